/* Ranks: threads of this process, each with a device of its own. What they hold in common is the same bits on all of them after every step;
 * all of them together do what one rank does alone, within rounding; and how fast their lanes are changes no bit. */
#include "bits.h"
#include "core/pipeline/impl.h"
#include "kernels/comm_threads.h"

#include <pthread.h>

enum { ROWS = 5, MOST_RANKS = 4, PARTS = 3 };

/* A run of several ranks. bad: the step whose gradients, or (of an even one) whose loss alone, are not finite on one rank. */
struct setting {
    const struct source *s;
    const char *options, *changes;
    struct run_options how;
    int ranks;
    uint64_t bad;
    bool look; /* after every step, which waits for all lanes */
    struct hub *hub;
    struct result result[MOST_RANKS];
    uint64_t digest[MOST_RANKS][STEPS + 1][PARTS];
};

static uint64_t add(uint64_t h, const void *data, size_t n)
{
    const unsigned char *x = data;
    for (size_t i = 0; i < n; i++) h = (h ^ x[i]) * 1099511628211u;
    return h;
}

/* Of device memory. */
static uint64_t add_there(uint64_t h, const struct run *r, const void *data, size_t n)
{
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    run_peek(r, copy, data, n);
    h = add(h, copy, n);
    free(copy);
    return h;
}

static uint64_t add_half(uint64_t h, const struct run *r, const struct zf_half *x, size_t length)
{
    size_t bytes = x->rows * length * sizeof(float);
    if (!x->rows) return h;
    if (x->master) h = add_there(h, r, x->master, bytes);
    return add_there(add_there(add_there(h, r, x->m, bytes), r, x->v, bytes), r, x->t, x->rows * sizeof *x->t);
}

/* Visible weights, the device half, and who is in it. */
static void digest(struct run *r, uint64_t out[PARTS])
{
    struct zf_pipeline *p = &r->pipeline;
    for (int i = 0; i < PARTS; i++) out[i] = 14695981039346656037u;
    ok(zf_pipeline_settle(p, &e));
    out[0] = add_there(out[0], r, r->model.weights, r->model.params.elements * zf_dtype_size(r->model.dtype));
    for (size_t i = 0; i < p->matrices; i++) {
        const struct zf_matrix *x = &p->matrix[i];
        out[1] = add_half(out[1], r, &x->device, x->length);
        out[2] = add(out[2], x->order, x->device.rows * sizeof *x->order);
        out[2] = add(out[2], &x->window, sizeof x->window);
        out[2] = add(out[2], &x->energy, sizeof x->energy);
    }
    for (size_t i = 0; i < p->vectors; i++) out[1] = add_half(out[1], r, &p->vector[i].state, p->vector[i].param->cols);
}

/* This rank's rows of a step, at most two at a time. */
static void ranks_step(struct run *r, const struct setting *a, int rank, uint64_t t)
{
    struct zf_pipeline *p = &r->pipeline;
    struct zf_step_norm norm;
    size_t rows = 1 + t % ROWS, first = zf_share(rows, rank, a->ranks), end = zf_share(rows, rank + 1, a->ranks);
    double labels = (double)(rows * (a->s->length - 1));
    bool bad = t == a->bad && rank == a->ranks - 1 && first < end, loss = bad && t % 2 == 0;
    ok(zf_pipeline_begin(p, golden_rate(t), t % 5 == 0, &e));
    for (size_t row = first, n; row < end; row += n) {
        n = end - row < GOLDEN_ROWS ? end - row : GOLDEN_ROWS;
        fill_batch(r, (t - 1) * ROWS + row, n);
        if (row + n == end) zf_pipeline_last(p);
        ok(zf_model_step(&r->model, &r->batch, true, bad && !loss ? INFINITY : (float)(1 / labels), p->loss, &e));
    }
    if (first == end) ok(zf_pipeline_absent(p, &e));
    if (loss) {
        ok(p->device->type->lane_sync(p->compute, &e));
        double infinite = INFINITY;
        ok(p->device->type->copy(p->compute, p->loss, &infinite, sizeof infinite));
        ok(p->device->type->lane_sync(p->compute, &e));
    }
    ok(zf_pipeline_finish(p, &norm, &e));
    if (norm.apply != (t != a->bad)) fail_msg("%s: step %d: apply is %d", a->options, (int)t, norm.apply);
    r->losses[t] = norm.loss / labels;
    r->norms[t] = norm.norm;
}

static void change_at(struct run *r, const char *changes, uint64_t t)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", changes ? changes : "");
    for (char *c = strtok_r(copy, ";", &save); c; c = strtok_r(NULL, ";", &save)) {
        int at, used = 0;
        assert_int_equal(sscanf(c, "%d %n", &at, &used), 1);
        if ((uint64_t)at != t) continue;
        if (!strcmp(c + used, "drain"))
            ok(zf_pipeline_drain(&r->pipeline, &e));
        else if (!strcmp(c + used, "reselect"))
            zf_pipeline_reselect(&r->pipeline);
        else if (!strcmp(c + used, "skip"))
            ok(zf_pipeline_skip(&r->pipeline, golden_rate(t), &e));
        else
            run_change_text(r, c + used);
    }
}

static void validate(struct run *r, const struct setting *a, int rank, uint64_t t)
{
    double loss;
    size_t first = zf_share(GOLDEN_ROWS, rank, a->ranks), end = zf_share(GOLDEN_ROWS, rank + 1, a->ranks);
    ok(zf_pipeline_begin_loss(&r->pipeline, &e));
    fill_batch(r, first, end - first);
    if (first < end) ok(zf_model_step(&r->model, &r->batch, false, 0, r->pipeline.loss, &e));
    ok(zf_pipeline_loss(&r->pipeline, &loss, &e));
    r->losses[t] += loss;
}

static void comm_of(struct zf_comm **out, void *hub, int rank, struct zf_device *d)
{
#ifdef ZF_TEST_CUDA /* over NCCL */
    struct hub_rank self = {hub, rank};
    struct zf_comm_world world = {rank, hub_ranks(hub), hub_tell, &self};
    ok(zf_comm_open(out, d, &world, &e));
#else
    ok(hub_comm(out, hub, rank, d, &e));
#endif
}

static void one_rank(int rank, void *ctx)
{
    struct setting *a = ctx;
    struct run r;
    run_prepare(&r, a->s, &a->how);
    r.how.jitter += a->how.jitter ? (uint64_t)rank * 1000 : 0;
    r.how.rank = rank;
    if (a->hub) r.how.comm = comm_of;
    r.how.comm_ctx = a->hub;
    run_set_text(&r, a->options);
    run_start(&r);
    for (uint64_t t = 1; t <= STEPS; t++) {
        change_at(&r, a->changes, t);
        ranks_step(&r, a, rank, t);
        if (t % 4 == 0) validate(&r, a, rank, t);
        if (a->look) digest(&r, a->digest[rank][t]);
    }
    ok(zf_pipeline_drain(&r.pipeline, &e));
    result_take(&a->result[rank], &r);
    run_close(&r);
}

static void setting_run(struct setting *a)
{
    a->hub = a->ranks > 1 ? hub_new(a->ranks) : NULL;
    hub_run(a->ranks, one_rank, a);
    if (a->hub) hub_free(a->hub);
}

static void setting_free(struct setting *a)
{
    for (int r = 0; r < a->ranks; r++) result_free(&a->result[r]);
}

static bool equal_results(const struct result *a, const struct result *b)
{
    for (size_t i = 0; i < a->count; i++)
        if (memcmp(a->weights[i], b->weights[i], a->size[i] * sizeof(float))) return false;
    return !memcmp(a->losses, b->losses, sizeof a->losses);
}

static void check_alike(const struct setting *a, const char *what)
{
    static const char *const parts[PARTS] = {"visible weights", "the device half", "owners"};
    for (uint64_t t = 1; a->look && t <= STEPS; t++)
        for (int r = 1; r < a->ranks; r++)
            for (int k = 0; k < PARTS; k++)
                if (a->digest[r][t][k] != a->digest[0][t][k])
                    fail_msg("%s: step %d: %s of rank %d are not those of rank 0", what, (int)t, parts[k], r);
    for (int r = 1; r < a->ranks; r++)
        if (!equal_results(&a->result[r], &a->result[0])) fail_msg("%s: rank %d ends with other weights or losses than rank 0", what, r);
}

/* Within rounding: what one rank does alone. Limits are those of the golden trajectories. */
static void check_near(const struct setting *a, const struct setting *one, double times, const char *what)
{
    for (size_t t = 1; t <= STEPS; t++) {
        double x = a->result[0].losses[t], y = one->result[0].losses[t];
        if (fabs(x - y) > times * 1e-5 * fabs(y)) fail_msg("%s: loss of step %zu: %.9g; one rank: %.9g", what, t, x, y);
    }
    for (size_t i = 0; i < one->result[0].count; i++) {
        const float *x = a->result[0].weights[i], *y = one->result[0].weights[i];
        double difference = 0, size = 0;
        for (size_t k = 0; k < one->result[0].size[i]; k++) {
            difference += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
            size += (double)y[k] * y[k];
        }
        double limit = times * (one->result[0].size[i] > 2 * 200 ? 1e-4 : 5e-3);
        if (sqrt(difference) > limit * sqrt(size)) fail_msg("%s: parameter %zu differs by %.3g", what, i, sqrt(difference / size));
    }
}

static const char *const ANY[] = {
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 score l1",
    "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 4 cpu_update mean swap rolling optimistic no",
    "strategy zenflow topk_ratio 0.25 update_interval 2 select_interval 2 swap global optimistic no bus_dtype bf16",
    "strategy zenflow topk_ratio 0.1 update_interval 4 select_interval 1",
    "strategy zenflow topk_ratio 0.93 update_interval 4 select_interval 1",
};

static const char *policy(size_t i)
{
    return i < POLICY_COUNT ? POLICIES[i] : i < POLICY_COUNT + sizeof ANY / sizeof *ANY ? ANY[i - POLICY_COUNT] : NULL;
}

static void together(const struct source *s, const char *options, const char *changes, enum zf_dtype dtype, uint64_t bad)
{
    struct setting one = {.s = s, .options = options, .changes = changes, .how = {.dtype = dtype, .threads = 1}, .ranks = 1, .bad = bad};
    one.how.stochastic = dtype != ZF_F32;
    setting_run(&one);
    static int turn;
    bool every = getenv("ZF_EVERY_RANKS") != NULL; /* the long run: each case with 2, 3 and 4 */
    int first = every ? 2 : 2 + turn++ % (MOST_RANKS - 1), last = every ? MOST_RANKS : first;
    for (int ranks = first; ranks <= last; ranks++) {
        struct setting all = one;
        char what[600];
        memset(all.result, 0, sizeof all.result);
        all.ranks = ranks;
        all.look = true;
        snprintf(what, sizeof what, "%s%s%s, %d ranks, %s", options, changes ? ", " : "", changes ? changes : "", ranks,
                 zf_dtype_name(dtype));
        setting_run(&all);
        check_alike(&all, what);
        check_near(&all, &one, dtype == ZF_F32 ? 1 : 100, what);
        setting_free(&all);
    }
    setting_free(&one);
}

static void test_every_policy(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct source s;
        source_make(&s, SOURCES[k], ROWS * STEPS, 12);
        for (size_t i = 0; policy(i); i++)
            if (!left_out(i + k, 18)) together(&s, policy(i), NULL, (i + k) % 2 ? ZF_BF16 : ZF_F32, 0);
        source_free(&s);
    }
}

static void test_changes(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "4 strategy zero_offload;7 strategy gpu_only;9 strategy stronghold;12 strategy zenflow",
        "3 topk_ratio 0.5;5 reselect;8 topk_ratio 0.1;10 update_interval 2;12 topk_ratio 1;13 topk_ratio 0.3",
        "4 drain;6 skip;9 cpu_update mean;11 skip;11 drain;12 strategy gpu_only",
    };
    struct source s;
    source_make(&s, TINY_LLAMA, ROWS * STEPS, 12);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        for (size_t k = 9; k < 13; k++)
            if (!left_out(4 * i + k, 10)) together(&s, POLICIES[k], changes[i], (i + k) % 2 ? ZF_BF16 : ZF_F32, 0);
    for (size_t k = 9; k < (ON_CUDA ? 9 : 11); k++)
        together(&s, POLICIES[k], "4 optimistic no;6 optimistic yes;9 optimistic no;10 optimistic yes", ZF_F32, 0);
    source_free(&s);
}

/* Of a step that is not finite on one rank none of them keeps anything. */
static void test_steps_that_do_not_count(void **state)
{
    (void)state;
    struct source s;
    source_make(&s, TINY_GPT2, ROWS * STEPS, 12);
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (!left_out(i + 4, 13)) together(&s, POLICIES[i], NULL, ZF_F32, 4 + i % 5);
    source_free(&s);
}

/* Whatever the lanes' speeds: the same bits. */
static void test_schedules(void **state)
{
    (void)state;
    const struct zf_pipeline_grain usual = zf_pipeline_grain;
    const struct zf_pipeline_grain grains[] = {{.piece = 320, .chunk = 320, .page = 64}, usual, {.piece = 1024, .chunk = 512, .page = 64}};
    const char *text = getenv("ZF_SEEDS");
    int seeds = text ? atoi(text) : 1, schedule = 0;
    struct source s;
    source_make(&s, TINY_LLAMA, ROWS * STEPS, 12);
    for (size_t i = 0; policy(i) && !ON_CUDA; i++) {
        struct setting a = {.s = &s, .options = policy(i), .changes = "8 topk_ratio 0.4;11 update_interval 2", .ranks = 2 + (int)i % 3};
        a.how = (struct run_options){.dtype = i % 2 ? ZF_BF16 : ZF_F32, .threads = 1, .stochastic = i % 2};
        a.look = true;
        setting_run(&a);
        for (int k = 0; k < seeds; k++) {
            struct setting b = a;
            char what[600];
            memset(b.result, 0, sizeof b.result);
            b.look = false;
            b.how.jitter = (uint64_t)++schedule;
            zf_pipeline_grain = grains[schedule % 3];
            snprintf(what, sizeof what, "%s, %d ranks, schedule %d", policy(i), a.ranks, schedule);
            setting_run(&b);
            check_alike(&b, what);
            if (!equal_results(&a.result[0], &b.result[0])) fail_msg("%s: not the same bits", what);
            setting_free(&b);
        }
        zf_pipeline_grain = usual;
        setting_free(&a);
    }
    source_free(&s);
}

/* ---- what is exchanged ---- */

struct light {
    struct setting *a;
    int rank;
    const struct zf_pipeline *p;
    uint8_t was[64][256]; /* the device half before the step */
};

static size_t others(const struct light *l, const size_t *first)
{
    return first[l->a->ranks] - (first[l->rank + 1] - first[l->rank]);
}

static size_t own(const struct light *l, size_t n)
{
    return zf_share(n, l->rank + 1, l->a->ranks) - zf_share(n, l->rank, l->a->ranks);
}

/* Before a step: what it takes in to begin with. Rows of CPU halves that become visible. */
static size_t before_step(struct light *l)
{
    size_t bytes = 0;
    for (size_t i = 0; i < l->p->matrices; i++) {
        const struct zf_matrix *x = &l->p->matrix[i];
        memset(l->was[i], 0, sizeof l->was[i]);
        for (size_t k = 0; k < x->device.rows; k++) l->was[i][x->order[k]] = x->assigned;
        bool shows = x->shares->stale || (zf_window_shows(&x->window, l->p->step) && zf_is_staged(x));
        if (shows) bytes += others(l, x->shares->cpu) * x->length * zf_dtype_size(l->p->model->dtype);
    }
    return bytes;
}

/* After it: gradients of the own share from all others, squares, the selected rows' gradients of the other shares; a selection adds one
 * number a channel, and the state of the channels that it takes from others. */
static size_t after_step(const struct light *l)
{
    size_t all = (size_t)l->a->ranks, bytes = (all - 1) * sizeof(double);
    for (size_t i = 0; i < l->p->vectors; i++) {
        size_t n = l->p->vector[i].param->cols;
        bytes += (own(l, n) * (all - 1) + n - own(l, n)) * sizeof(float);
    }
    for (size_t i = 0; i < l->p->matrices; i++) {
        const struct zf_matrix *x = &l->p->matrix[i];
        const struct zf_shares *s = x->shares;
        bytes += own(l, x->channels) * (all - 1) * x->length * sizeof(float) + others(l, s->partial) * sizeof(double);
        bytes += others(l, s->device) * x->length * zf_dtype_size(l->p->policy.bus);
        if (x->window.selected != l->p->step) continue;
        bytes += others(l, s->first) * sizeof(double);
        for (size_t k = 0; l->p->step > 1 && k < x->device.rows; k++) {
            uint32_t c = x->order[k];
            if (!l->was[i][c] && !zf_is_own(l->p, x, c)) bytes += (3 * x->length + 1) * sizeof(float);
        }
    }
    return bytes;
}

static void light_rank(int rank, void *ctx)
{
    struct setting *a = ctx;
    struct run r;
    run_prepare(&r, a->s, &a->how);
    r.how.rank = rank;
    r.how.comm = comm_of;
    r.how.comm_ctx = a->hub;
    run_set_text(&r, a->options);
    run_start(&r);
    struct light l = {.a = a, .rank = rank, .p = &r.pipeline};
    for (uint64_t t = 1; t <= STEPS; t++) {
        uint64_t from = r.pipeline.counts.comm_bytes;
        size_t wanted = before_step(&l);
        run_step(&r, t);
        wanted += after_step(&l);
        if (r.pipeline.counts.comm_bytes - from != wanted)
            fail_msg("%s, step %d: rank %d of %d takes in %llu bytes, not %zu", a->options, (int)t, rank, a->ranks,
                     (unsigned long long)(r.pipeline.counts.comm_bytes - from), wanted);
    }
    run_close(&r);
}

/* Without a selection only the selected rows' gradients go to all, and what becomes visible: no rank takes in more. */
static void test_light_gathering(void **state)
{
    (void)state;
    static const char *const options[] = {
        "strategy zenflow topk_ratio 0.1 update_interval 4 select_interval 4 swap global optimistic no",
        "strategy zenflow topk_ratio 0.3 update_interval 3 select_interval 1 swap staggered optimistic no cpu_update mean",
        "strategy zenflow_sync topk_ratio 0.2 update_interval 2 select_interval 2",
        "strategy gpu_only",
        "strategy zero_offload",
        "strategy selected_only topk_ratio 0.2 update_interval 2",
    };
    struct source s;
    source_make(&s, TINY_LLAMA, ROWS * STEPS, 12);
    for (size_t i = 0; i < (ON_CUDA ? 1 : sizeof options / sizeof *options); i++) {
        struct setting a = {
            .s = &s, .options = options[i], .how = {.dtype = i % 2 ? ZF_BF16 : ZF_F32, .threads = 1}, .ranks = 2 + (int)i % 3};
        a.hub = hub_new(a.ranks);
        hub_run(a.ranks, light_rank, &a);
        hub_free(a.hub);
    }
    source_free(&s);
}

int main(void)
{
    setenv("CUDAEMU_DEVICES", "4", 1);
    struct zf_device *d; /* the libraries' own beginnings, in one thread */
    ok(zf_device_open(&d, "host", NULL, &e));
    d->type->close(d);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_policy), cmocka_unit_test(test_changes),         cmocka_unit_test(test_steps_that_do_not_count),
        cmocka_unit_test(test_schedules),    cmocka_unit_test(test_light_gathering),
    };
    if (getenv("ZF_TEST")) cmocka_set_test_filter(getenv("ZF_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
