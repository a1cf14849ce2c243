/* AdamW in one pass: reads and writes each number once, so memory is what it costs. */
#include "kernels/host/adamw.h"
#include "kernels/host/path.h"

static size_t adamw_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_adamw_args *)args)->n, 2 * ZF_HOST_TASK);
}

/* Where the elements' visible copies go, and how. */
struct copies {
    elem *weights;              /* NULL: nowhere */
    const struct zf_u32x4 *key; /* NULL: to nearest */
    bool past;
};

/* Updates elements i .. i + n; n <= VW. */
ALWAYS_INLINE void update_some(const struct zf_adamw_args *a, const struct step *s, const struct copies *c, size_t i, size_t n)
{
    fetch(a->g + i + FETCH);
    struct values x = update(s, load_values(a->master + i, a->m + i, a->v + i, n), load_f32(a->g + i, n));
    store_values(a->master + i, a->m + i, a->v + i, x, n);
    if (c->weights) show(c->weights + i, x.master, n, c->key, a->first + i, c->past);
}

static void adamw_run(const void *args, size_t task)
{
    const struct zf_adamw_args *a = args;
    if (a->norm && !a->norm->apply) return;
    struct correction known = correction_at(a->t, a->beta1, a->beta2, a->seed);
    struct rates rates = rates_of(&known, a->norm ? a->norm->clip : 1, a->lr, a->decay);
    struct step s = step_constants(a->beta1, a->beta2, a->eps);
    set_rates(&s, &rates);
    struct copies c = {.weights = a->weights != a->master ? a->weights : NULL, .key = a->stochastic ? &known.chance : NULL};
    size_t i = task * 2 * ZF_HOST_TASK, end = zf_host_end(a->n, 2 * ZF_HOST_TASK, task);
    c.past = past_caches(c.weights, a->n);
    for (; i + VW <= end; i += VW) update_some(a, &s, &c, i, VW);
    if (i < end) update_some(a, &s, &c, i, end - i);
    if (c.past) past_caches_done();
}

const struct zf_host_kernel ZF_PATH(zf_host_adamw) = {adamw_tasks, adamw_run};
