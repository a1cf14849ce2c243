/* AdamW in one pass: reads and writes each number once, so memory is what it costs. */
#include "kernels/host/adamw.h"
#include "kernels/host/path.h"

static size_t adamw_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_adamw_args *)args)->n, 2 * ZF_HOST_TASK);
}

/* Updates elements i .. i + n; n <= VW. */
ALWAYS_INLINE void update_some(const struct zf_adamw_args *a, const struct step *s, elem *weights, const struct zf_u32x4 *key, size_t i,
                               size_t n)
{
    struct values x = update(s, load_values(a->master + i, a->m + i, a->v + i, n), load_f32(a->g + i, n));
    store_values(a->master + i, a->m + i, a->v + i, x, n);
    if (weights) show(weights + i, x.master, n, key, a->first + i);
}

static void adamw_run(const void *args, size_t task)
{
    const struct zf_adamw_args *a = args;
    if (a->norm && !a->norm->apply) return;
    struct correction c = correction_at(a->t, a->beta1, a->beta2, a->seed);
    struct rates rates = rates_of(&c, a->norm ? a->norm->clip : 1, a->lr, a->decay);
    struct step s = step_constants(a->beta1, a->beta2, a->eps);
    set_rates(&s, &rates);
    elem *weights = a->weights != a->master ? a->weights : NULL;
    const struct zf_u32x4 *key = a->stochastic ? &c.chance : NULL;
    size_t i = task * 2 * ZF_HOST_TASK, end = zf_host_end(a->n, 2 * ZF_HOST_TASK, task);
    for (; i + VW <= end; i += VW) update_some(a, &s, weights, key, i, VW);
    if (i < end) update_some(a, &s, weights, key, i, end - i);
}

const struct zf_host_kernel ZF_PATH(zf_host_adamw) = {adamw_tasks, adamw_run};
