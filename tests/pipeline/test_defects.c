/* Defects of the published implementation that a pipeline can have (README.md of this folder has the table): each test has the id of its
 * row there and asserts what is right. Those of single ops are in tests/kernels/test_rows_defects.c. */
#include "forced.h"

static void near(const char *what, double a, double b, double limit)
{
    if (!(fabs(a - b) <= limit)) fail_msg("%s: %.9g; %.9g is expected, within %g", what, a, b, limit);
}

static void open_tiny(struct run *r, struct source *s, const char *options, enum zf_dtype dtype, const struct zf_adam_rule *rule,
                      forced_fill *fill)
{
    source_make(s, TINY_LLAMA, 2 * STEPS, 8);
    run_open_forced(r, s, options, &(struct run_options){.dtype = dtype, .threads = 2}, rule, fill);
}

static void close_tiny(struct run *r, struct source *s)
{
    run_close(r);
    source_free(s);
}

static void fill_zero(const struct zf_param *q, uint64_t t, float *g)
{
    (void)t;
    memset(g, 0, q->rows * q->cols * sizeof *g);
}

/* Constant within a channel; which channels are large changes from step to step. */
static void fill_turns(const struct zf_param *q, uint64_t t, float *g)
{
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = (i / q->cols + 3 * t) % 5 ? 0.01f : 0.02f;
}

/* Z3: at a new selection moments, counts and masters go with their channels. Channels change hands at every window, in both directions;
 * every update is one rate, as it is for a gradient that hardly changes (published: up to 6). */
static void test_z3_state_migrates(void **state)
{
    (void)state;
    static const char *const policies[] = {
        "strategy zenflow_sync topk_ratio 0.2 update_interval 1 select_interval 1",
        "strategy zenflow topk_ratio 0.2 update_interval 2 select_interval 1 cpu_update each optimistic no",
        "strategy zenflow topk_ratio 0.2 update_interval 2 select_interval 1 cpu_update each",
        "strategy zenflow topk_ratio 0.2 update_interval 3 select_interval 1 cpu_update each swap global",
    };
    const struct zf_adam_rule rule = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-12};
    enum { LONG = 60 };
    for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
        struct run r;
        struct source s;
        open_tiny(&r, &s, policies[k], ZF_F32, &rule, fill_turns);
        const struct zf_matrix *x = run_matrix(&r, "up_proj");
        float *from = run_masters(&r, x->param);
        for (uint64_t t = 1; t <= LONG; t++) run_step_at(&r, t, 1e-3);
        assert_true(r.pipeline.counts.selections > 6 * r.pipeline.matrices);
        ok(zf_pipeline_drain(&r.pipeline, &e));
        float *to = run_masters(&r, x->param);
        for (size_t c = 0; c < x->channels; c++) {
            /* the same gradients, without any selection */
            double m = 0, v = 0, w = 0, most = 0;
            for (uint64_t t = 1; t <= LONG; t++) {
                double g = (c + 3 * t) % 5 ? 0.01 : 0.02, step;
                m = 0.9 * m + 0.1 * g;
                v = 0.999 * v + 0.001 * g * g;
                step = 1e-3 * (m / (1 - pow(0.9, (double)t))) / sqrt(v / (1 - pow(0.999, (double)t)));
                if (step > most) most = step;
                w += step;
            }
            assert_true(most < 1.4e-3);
            for (size_t i = 0; i < x->length; i++)
                near("way of a channel", (double)(from[c * x->length + i] - to[c * x->length + i]), w, 2e-6);
        }
        for (size_t i = 0; i < x->channels; i++) assert_int_equal(i < x->device.rows ? x->device.t[i] : x->cpu.t[i - x->device.rows], LONG);
        free(from);
        free(to);
        close_tiny(&r, &s);
    }
}

static void fill_tiny_steps(const struct zf_param *q, uint64_t t, float *g)
{
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = (i / q->cols + t / 4) % 7 ? 1e-3f : 2e-3f;
}

/* Z5, Z6: in bf16 masters keep what weights round away, whoever owns them and however often they change hands: 200 updates of 2e-5 move
 * them by 0.004 (published: by nothing where the weight is above 0.01). */
static void test_z6_masters_keep_what_bf16_cannot(void **state)
{
    (void)state;
    const struct zf_adam_rule rule = {.beta1 = 0, .beta2 = 0, .epsilon = 1e-12};
    struct run r;
    struct source s;
    open_tiny(&r, &s, "strategy zenflow topk_ratio 0.3 update_interval 2 select_interval 1 cpu_update each optimistic no bus_dtype f32",
              ZF_BF16, &rule, fill_tiny_steps);
    const struct zf_matrix *x = run_matrix(&r, "gate_proj");
    float *from = run_masters(&r, x->param);
    for (uint64_t t = 1; t <= 200; t++) run_step_at(&r, t, 2e-5);
    ok(zf_pipeline_drain(&r.pipeline, &e));
    float *to = run_masters(&r, x->param);
    for (size_t i = 0; i < x->channels * x->length; i++) near("way of a master", (double)from[i] - (double)to[i], 0.004, 1e-6);
    free(from);
    free(to);
    close_tiny(&r, &s);
}

/* Z7: what the rate of one CPU update stands for is a choice: with no gradient and decay 0.1 at rate 1e-2, S 4, after 400 steps. */
static void test_z7_rates_of_windows(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        double selected, rest;
    } cases[] = {
        {"cpu_update mean cpu_learning_rate window", 0.6702, 0.9048},
        {"cpu_update mean cpu_learning_rate sqrt", 0.6702, 0.8186},
        {"cpu_update mean cpu_learning_rate sum", 0.6702, 0.6698},
        {"cpu_update each", 0.6702, 0.6702},
    };
    const struct zf_adam_rule rule = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct run r;
        struct source s;
        char options[256];
        snprintf(options, sizeof options, "strategy zenflow_sync topk_ratio 0.25 update_interval 4 select_interval 0 %s", cases[k].rule);
        open_tiny(&r, &s, options, ZF_F32, &rule, fill_zero);
        const struct zf_matrix *x = run_matrix(&r, "down_proj");
        float *from = run_masters(&r, x->param);
        for (uint64_t t = 1; t <= 400; t++) run_step_at(&r, t, 1e-2);
        ok(zf_pipeline_settle(&r.pipeline, &e));
        float *to = run_weights(&r, x->param);
        assert_int_equal(x->device.rows, 18); /* 72 channels; all scores are equal: the first ones */
        for (size_t c = 0; c < x->channels; c++)
            for (size_t i = 0; i < x->length; i++) {
                double w = (double)from[c * x->length + i];
                near(cases[k].rule, (double)to[c * x->length + i] / w, c < 18 ? cases[k].selected : cases[k].rest, 1e-4);
            }
        free(from);
        free(to);
        close_tiny(&r, &s);
    }
}

static double squares;

/* A norm of 10 over all parameters. */
static void fill_ten(const struct zf_param *q, uint64_t t, float *g)
{
    (void)t;
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = (float)((i % 3 ? 1 : -2) * 10 / sqrt(squares));
}

/* Z8: both halves get the clipped gradient, whatever the window and however many micro-batches: a first moment of 0.1 g / 10. */
static void test_z8_both_halves_are_clipped(void **state)
{
    (void)state;
    const struct zf_adam_rule rule = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 1};
    for (int interval = 1; interval <= 8; interval *= 2)
        for (int parts = 0; parts < 2; parts++)
            for (int each = 0; each < 2; each++) {
                struct run r;
                struct source s;
                char options[256];
                snprintf(options, sizeof options, "strategy zenflow topk_ratio 0.25 update_interval %d swap global cpu_update %s", interval,
                         each ? "each" : "mean");
                open_tiny(&r, &s, options, ZF_F32, &rule, fill_ten);
                r.how.two_micro_batches = parts;
                squares = 0;
                for (size_t k = 0; k < r.model.params.count; k++) {
                    const struct zf_param *q = &r.model.params.list[k];
                    for (size_t i = 0; i < q->rows * q->cols; i++) squares += i % 3 ? 1 : 4;
                }
                run_step_at(&r, 1, 1e-3);
                near("norm", r.norms[1], 10, 1e-5);
                const struct zf_matrix *x = run_matrix(&r, "q_proj");
                for (size_t row = 0; row < x->device.rows; row++)
                    for (size_t i = 0; i < x->length; i++) {
                        double g = ((x->order[row] * x->length + i) % 3 ? 1 : -2) * 10 / sqrt(squares);
                        near("the device half's", (double)x->device.m[row * x->length + i], 0.1 * g / 10, fabs(g) * 1e-7);
                    }
                for (uint64_t t = 2; t <= (uint64_t)interval; t++) run_step_at(&r, t, 1e-3);
                ok(zf_pipeline_drain(&r.pipeline, &e));
                double all = each ? 1 - pow(0.9, interval) : 0.1; /* a window of equal gradients */
                for (size_t row = 0; row < x->cpu.rows; row++)
                    for (size_t i = 0; i < x->length; i++) {
                        double g = ((x->order[x->device.rows + row] * x->length + i) % 3 ? 1 : -2) * 10 / sqrt(squares);
                        near("the CPU half's", (double)x->cpu.m[row * x->length + i], all * g / 10, fabs(g) * 2e-7);
                    }
                close_tiny(&r, &s);
            }
}

/* Z9, Z26: a window that is cut short counts its own steps, and nothing of a window is left for the next: the mean of equal gradients is
 * that gradient, for windows that begin in the middle of a round, that skipped steps shorten, that a drain ends. */
static void test_z9_short_windows_are_means(void **state)
{
    (void)state;
    const struct zf_adam_rule rule = {.beta1 = 0, .beta2 = 0, .epsilon = 1e-12};
    struct run r;
    struct source s;
    open_tiny(&r, &s, "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 6 cpu_update mean optimistic no", ZF_F32, &rule,
              fill_ten);
    squares = 10000;
    for (uint64_t t = 1; t <= 30; t++) {
        if (t % 7 == 3)
            ok(zf_pipeline_skip(&r.pipeline, 1e-3, &e));
        else
            run_step_at(&r, t, 1e-3);
        if (t % 11 == 10) ok(zf_pipeline_drain(&r.pipeline, &e));
        ok(zf_pipeline_settle(&r.pipeline, &e));
        for (size_t k = 0; k < r.pipeline.matrices; k++) {
            const struct zf_matrix *x = &r.pipeline.matrix[k];
            for (size_t row = 0; x->assigned && row < x->cpu.rows; row++)
                for (size_t i = 0; x->cpu.t[row] && i < x->length; i++) /* without memory m is the window's gradient */
                    near("a window's mean", (double)x->cpu.m[row * x->length + i],
                         ((x->order[x->device.rows + row] * x->length + i) % 3 ? 0.1 : -0.2), 1e-7);
        }
    }
    close_tiny(&r, &s);
}

static void fill_signs(const struct zf_param *q, uint64_t t, float *g)
{
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = ((t - 1) / 2) % 2 ? -1e-3f : 1e-3f;
}

/* Z10: there is one m and one v, not one for odd and one for even windows: with windows of one sign after the other the update becomes
 * 0.1 / 1.9 of a rate (published: a whole rate). */
static void test_z10_one_state_for_all_windows(void **state)
{
    (void)state;
    const struct zf_adam_rule rule = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-12};
    struct run r;
    struct source s;
    open_tiny(&r, &s, "strategy zenflow topk_ratio 0.25 update_interval 2 swap global cpu_update mean cpu_learning_rate window", ZF_F32,
              &rule, fill_signs);
    const struct zf_matrix *x = run_matrix(&r, "o_proj");
    float before = 0;
    for (uint64_t t = 1; t <= 240; t++) {
        run_step_at(&r, t, 1e-3);
        ok(zf_pipeline_settle(&r.pipeline, &e));
        float now = x->cpu.master[0];
        if (t > 200 && t % 2 == 0) near("an update", fabs((double)now - (double)before), 1e-3 * 0.1 / 1.9, 1e-6);
        before = now;
    }
    close_tiny(&r, &s);
}

/* Z11, Z12: the CPU half is the complement, exactly: rows, state, and rows updated a window; its share is rounded, not cut, and never
 * nothing while the ratio is not. */
static void test_z11_the_complement_is_exact(void **state)
{
    (void)state;
    static const double ratios[] = {0, 1e-6, 0.004, 0.1, 0.29, 0.5, 0.77, 0.99, 1};
    for (size_t k = 0; k < sizeof ratios / sizeof *ratios; k++)
        for (int each = 0; each < 2; each++) {
            struct run r;
            struct source s;
            char options[256];
            snprintf(options, sizeof options,
                     "strategy zenflow_sync topk_ratio %g update_interval 3 select_interval 2 cpu_update %s bus_dtype f32", ratios[k],
                     each ? "each" : "mean");
            open_tiny(&r, &s, options, ZF_BF16, NULL, fill_turns);
            for (uint64_t t = 1; t <= 9; t++) run_step_at(&r, t, 1e-3);
            ok(zf_pipeline_settle(&r.pipeline, &e));
            size_t state_bytes = 0;
            for (size_t i = 0; i < r.pipeline.matrices; i++) {
                const struct zf_matrix *x = &r.pipeline.matrix[i];
                uint8_t seen[1024] = {0};
                assert_true(x->channels <= sizeof seen);
                size_t n = zf_policy_quota(&r.pipeline.policy, x->channels), updates = 0;
                assert_int_equal(x->device.rows, n);
                assert_int_equal(x->cpu.rows, x->channels - n);
                for (size_t c = 0; c < x->channels; c++) {
                    assert_true(x->order[c] < x->channels);
                    assert_int_equal(seen[x->order[c]]++, 0); /* one owner */
                    updates += c < n ? x->device.t[c] : x->cpu.t[c - n];
                }
                /* nine steps, three windows; counts go with their channels */
                assert_int_equal(updates, 9 * n + 3 * (each ? 3 : 1) * (x->channels - n));
                state_bytes += x->cpu.rows * (3 * x->length * sizeof(float) + sizeof(uint32_t));
            }
            assert_int_equal(run_cpu_state(&r), state_bytes);
            close_tiny(&r, &s);
        }
}

static void test_z12_quota(void **state)
{
    (void)state;
    static const struct {
        double ratio;
        size_t channels, quota;
    } cases[] = {{0, 100, 0},      {0.1, 9, 1},   {0.29, 100, 29}, {1e-9, 5, 1},    {0.5, 1, 1},
                 {0.05, 10, 1},    {0.25, 10, 3}, {0.999, 10, 10}, {0.95, 10, 10},  {1, 7, 7},
                 {0.1, 1000, 100}, {0.3, 10, 3},  {0.07, 100, 7},  {0.57, 100, 57}, {0.1, 4096, 410}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(zf_policy_quota(&(struct zf_policy){.ratio = cases[i].ratio}, cases[i].channels), cases[i].quota);
}

/* ---- Z16: ages and torn rows ---- */

/* Rates that tell which steps a weight has had: with gradients of one sign and no memory a weight goes down by the sum of them. */
static double rate_of(uint64_t t)
{
    return 1e-3 * (1 + (double)t / 64);
}
static void fill_ones(const struct zf_param *q, uint64_t t, float *g)
{
    (void)t;
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = 1e-3f;
}

static struct stamps {
    float *from[32]; /* masters at the start, of the matrices in order */
    struct run *run;
    uint64_t oldest, seen;
} stamps;

/* Steps that a weight which began as `from` has had. */
static uint64_t steps_of(float from, float now)
{
    double way = (double)from - (double)now;
    for (uint64_t n = 0; n <= 60; n++) {
        if (fabs(way) < 2e-5) return n;
        way -= rate_of(n + 1);
    }
    fail_msg("a weight went from %.9g to %.9g: no number of steps does that; the row is torn", (double)from, (double)now);
    return 0;
}

/* What the forward pass of a layer is about to read: all rows of the CPU half have had the same steps, those of one window's end. */
static enum zf_status look(void *ctx, int layer, struct zf_err *err)
{
    struct zf_pipeline *p = ctx;
    ZF_TRY(zf_pipeline_before_layer(p, layer, err));
    ok(p->device->type->lane_sync(p->compute, err)); /* that alone: the cpu lane may be behind */
    for (size_t k = 0; k < p->matrices; k++) {
        const struct zf_matrix *x = &p->matrix[k];
        const struct zf_window *w = &x->window;
        if (x->layer != layer || !x->assigned || !p->step) continue;
        const float *now = (const float *)p->model->weights + x->param->offset;
        uint64_t had = UINT64_MAX;
        for (size_t r = 0; r < x->channels; r++)
            for (size_t i = 0; i < x->length; i++) {
                size_t at = x->order[r] * x->length + i;
                uint64_t n = steps_of(stamps.from[k][at], now[at]);
                if (r < x->device.rows) {
                    assert_int_equal(n, p->step); /* age 1 */
                } else {
                    if (had == UINT64_MAX) had = n;
                    assert_int_equal(n, had);
                }
            }
        uint64_t age = p->step + 1 - had;
        assert_true(had == 0 || zf_window_ends(w, &p->policy, had)); /* a whole number of windows */
        if (age > 2 * (uint64_t)p->policy.interval) fail_msg("%s: weights of age %d", x->param->name, (int)age);
        if (age > stamps.oldest) stamps.oldest = age;
        stamps.seen++;
    }
    return ZF_OK;
}

/* Z16: with a CPU half that is slow (it and the copies are held up for milliseconds) every row that is read has had exactly the steps of
 * whole windows, all of them; the age of a weight is at most 2 S, and it is reached under `global` alone. */
static void test_z16_no_torn_rows_no_older_ones(void **state)
{
    (void)state;
    static const char *const swaps[] = {"staggered", "rolling", "global"};
    const struct zf_adam_rule rule = {.beta1 = 0, .beta2 = 0, .epsilon = 1e-12};
    const struct zf_pipeline_grain usual = zf_pipeline_grain;
    for (size_t k = 0; k < 9; k++) {
        struct run r;
        struct source s;
        char options[256];
        snprintf(options, sizeof options,
                 "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 0 cpu_update each optimistic no swap %s",
                 swaps[k % 3]);
        source_make(&s, TINY_LLAMA, 2 * STEPS, 8);
        zf_pipeline_grain = k < 3 ? usual : (struct zf_pipeline_grain){.piece = 1024, .chunk = 512, .page = 64};
        run_open_forced(&r, &s, options, &(struct run_options){.dtype = ZF_F32, .threads = 2, .jitter = 100 + k}, &rule, fill_ones);
        r.model.hooks.before_layer = look;
        stamps = (struct stamps){.run = &r};
        for (size_t i = 0; i < r.pipeline.matrices; i++) stamps.from[i] = run_masters(&r, r.pipeline.matrix[i].param);
        for (uint64_t t = 1; t <= 20; t++) run_step_at(&r, t, rate_of(t));
        assert_true(stamps.seen > 100);
        assert_true(k % 3 != 2 || stamps.oldest == 6);
        for (size_t i = 0; i < r.pipeline.matrices; i++) free(stamps.from[i]);
        close_tiny(&r, &s);
    }
    zf_pipeline_grain = usual;
}

/* ---- Z18: what goes over the bus, and who waits ---- */

static size_t syncs, norms;
static struct zf_event *normed;
static const struct zf_device_type *real;

static enum zf_status count_lane_sync(struct zf_lane *l, struct zf_err *err)
{
    syncs++;
    return real->lane_sync(l, err);
}
static enum zf_status count_event_sync(struct zf_event *v, struct zf_err *err)
{
    norms += v == normed; /* the model waits for its own: a batch that has left */
    return real->event_sync(v, err);
}

/* Z18, Z31: a window's rows go up once, a step's gradients down once, and a step waits for nothing but its norm: the issuing thread never
 * waits until a lane is idle, nor does the compute lane for the copies of gradients (they leave through a ring). */
static void test_z18_bytes_and_waits(void **state)
{
    (void)state;
    enum { S = 4, WINDOWS = 5 };
    for (int optimistic = 0; optimistic < 2; optimistic++) {
        struct run r;
        struct source s;
        struct zf_device_type counting;
        char options[256];
        snprintf(options, sizeof options,
                 "strategy zenflow topk_ratio 0.25 update_interval %d select_interval 0 swap staggered optimistic %s", S,
                 optimistic ? "yes" : "no");
        source_make(&s, TINY_LLAMA, 2 * STEPS, 8);
        run_open_text(&r, &s, options, &(struct run_options){.dtype = ZF_BF16, .threads = 2});
        real = r.device->type;
        counting = *real;
        counting.lane_sync = count_lane_sync;
        counting.event_sync = count_event_sync;
        uint64_t t = 1;
        for (; t <= S + 1; t++) run_step(&r, t); /* every matrix has selected, once and for all */
        r.device->type = &counting;
        struct zf_pipeline_counts from = r.pipeline.counts;
        size_t rest = 0, moments = 0;
        for (size_t i = 0; i < r.pipeline.matrices; i++) {
            const struct zf_matrix *x = &r.pipeline.matrix[i];
            rest += x->cpu.rows * x->length;
            moments += sizeof(float) * (x->cpu.rows + x->length);
        }
        syncs = norms = 0;
        normed = r.pipeline.normed;
        for (; t <= S + 1 + WINDOWS * S; t++) run_step(&r, t);
        assert_int_equal(syncs, 0);
        assert_int_equal(norms, WINDOWS * S);
        assert_int_equal(r.pipeline.counts.h2d_bytes - from.h2d_bytes, WINDOWS * (2 * rest + (optimistic ? moments : 0)));
        assert_int_equal(r.pipeline.counts.d2h_bytes - from.d2h_bytes, WINDOWS * S * 2 * rest);
        r.device->type = real;
        close_tiny(&r, &s);
    }
}

/* Z22, Z29: matrices of which nothing or everything is selected train; so does one with a single channel more than nothing. */
static void test_z22_nothing_and_everything(void **state)
{
    (void)state;
    static const double ratios[] = {0, 1e-9, 0.999, 1};
    for (size_t k = 0; k < 4; k++) {
        struct run r;
        struct source s;
        char options[256];
        snprintf(options, sizeof options, "strategy zenflow topk_ratio %g update_interval 3 select_interval 3", ratios[k]);
        source_make(&s, TINY_GPT2, 2, 8);
        run_open_text(&r, &s, options, &(struct run_options){.dtype = ZF_F32, .threads = 2});
        for (uint64_t t = 1; t <= 20; t++) run_step_at(&r, t, 3e-3);
        if (!(r.losses[20] < r.losses[1] - 0.5)) fail_msg("ratio %g: loss %g, then %g", ratios[k], r.losses[1], r.losses[20]);
        close_tiny(&r, &s);
    }
}

/* Z24: what goes wrong in a lane is told, with the lane's name, at the end of that step or the next, and nothing hangs. */
static void test_z24_a_lane_that_fails_is_heard(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct run r;
        struct source s;
        struct zf_step_norm n;
        struct zf_err heard = {0};
        open_tiny(&r, &s, "strategy zero_offload", ZF_F32, NULL, fill_ones);
        const struct {
            struct zf_lane *lane;
            const char *name;
        } lanes[] = {{r.pipeline.compute, "compute"}, {r.pipeline.d2h, "d2h"}, {r.pipeline.h2d, "h2d"}, {r.pipeline.cpu, "cpu"}};
        run_step(&r, 1);
        enum zf_status told = ZF_OK;
        for (int step = 0; !told && step < 3; step++) { /* that one, or the next where the lane is behind */
            ok(zf_pipeline_begin(&r.pipeline, 1e-3, false, &e));
            fill_batch(&r, 0, GOLDEN_ROWS);
            zf_pipeline_last(&r.pipeline);
            ok(zf_model_step(&r.model, &r.batch, true, 0.1f, r.pipeline.loss, &e));
            if (!step) r.device->type->ops->add(lanes[k].lane, &(struct zf_add_args){.type = ZF_F32, .n = 1}); /* of nothing to nothing */
            told = zf_pipeline_finish(&r.pipeline, &n, &heard);
        }
        assert_int_not_equal(told, ZF_OK);
        if (!strstr(heard.where, lanes[k].name)) fail_msg("%s: %s: %s", lanes[k].name, heard.where, heard.message);
        assert_true(*heard.message);
        close_tiny(&r, &s);
    }
}

/* A step that fails before its norm has altered nothing; one that fails after it may leave some halves a step ahead, and says so. */
static size_t refuse_in;
static enum zf_mem_tag refused_tag;

static enum zf_status refuse(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out,
                             struct zf_err *err)
{
    if (tag == refused_tag && !--refuse_in) return zf_fail(err, ZF_MEMORY, "a test", "no more");
    return real->alloc(d, kind, tag, bytes, out, err);
}

static void test_a_torn_step_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        enum zf_mem_tag tag;
        size_t in;
        bool torn;
    } cases[] = {
        {"strategy zero_offload", ZF_TAG_SLOTS, 1, false},                                              /* on the way down */
        {"strategy zenflow_sync topk_ratio 0.25 update_interval 2", ZF_TAG_CPU_STATE, 4 * 2 + 1, true}, /* the third matrix */
    };
    for (size_t k = 0; k < 2; k++) {
        struct run r;
        struct source s;
        struct zf_step_norm n;
        struct zf_device_type refusing;
        open_tiny(&r, &s, cases[k].options, ZF_F32, NULL, fill_ones);
        struct zf_pipeline *p = &r.pipeline;
        real = p->host->type;
        refusing = *real;
        refusing.alloc = refuse;
        refuse_in = cases[k].in;
        refused_tag = cases[k].tag;
        p->host->type = &refusing;
        if (p->device != p->host) p->device->type = &refusing;
        ok(zf_pipeline_begin(p, 1e-3, false, &e));
        fill_batch(&r, 0, GOLDEN_ROWS);
        zf_pipeline_last(p);
        enum zf_status told = zf_model_step(&r.model, &r.batch, true, 0.1f, p->loss, &e);
        assert_int_equal(told, cases[k].torn ? ZF_OK : ZF_MEMORY);
        if (!told) assert_int_equal(zf_pipeline_finish(p, &n, &e), ZF_MEMORY);
        assert_true(p->torn == cases[k].torn);
        assert_int_equal(p->step, 0);
        ok(zf_pipeline_sync(p, &e));
        for (size_t i = 0; cases[k].torn && i < p->matrices; i++) /* those before it had the step already */
            assert_int_equal(i < 2 && p->matrix[i].device.t[0] == 1, i < 2);
        p->host->type = p->device->type = real;
        close_tiny(&r, &s);
        open_tiny(&r, &s, cases[k].options, ZF_F32, NULL, fill_ones);
        run_step(&r, 1);
        ok(zf_pipeline_drain(&r.pipeline, &e));
        assert_false(r.pipeline.torn);
        close_tiny(&r, &s);
    }
}

/* Z27: what a run takes at most, migrations and swaps included, is what was planned: and while channels change owners, one matrix's rows
 * on their way. */
static void test_z27_high_water(void **state)
{
    (void)state;
    for (size_t k = 0; k < POLICY_COUNT; k++) {
        struct run r;
        struct source s;
        struct zf_device_info info;
        struct zf_pipeline_sizes sizes;
        size_t before = 0, most = 0, largest = 0;
        source_make(&s, TINY_LLAMA, 2 * STEPS, 8);
        run_prepare(&r, &s, &(struct run_options){.dtype = ZF_BF16, .threads = 2});
        run_set_text(&r, POLICIES[k]);
        run_start_model(&r);
        r.device->type->info(r.device, &info);
        for (int i = 0; i < ZF_MEM_TAGS; i++) before += info.bytes[i];
        run_start_pipeline(&r);
        zf_pipeline_measure(&sizes, &r.model.params, &r.pipeline.policy, ZF_BF16);
        for (uint64_t t = 1; t <= STEPS; t++) run_step(&r, t);
        ok(zf_pipeline_drain(&r.pipeline, &e));
        r.device->type->info(r.device, &info);
        most = info.peak_bytes;
        if (r.host) {
            r.host->type->info(r.host, &info);
            most += info.peak_bytes;
        }
        for (size_t i = 0; i < r.pipeline.matrices; i++) {
            size_t bytes = r.pipeline.matrix[i].channels * (r.pipeline.matrix[i].length * 3 * sizeof(float) + 4);
            if (bytes > largest) largest = bytes;
        }
        size_t planned = before + sizes.device_state + sizes.cpu_state + zf_chunks_bytes(&r.pipeline.chunks) + sizes.device_staging +
                         sizes.other + largest;
        if (most > planned) fail_msg("%s: %zu bytes at most; %zu were planned", POLICIES[k], most, planned);
        assert_true(sizes.slots <= zf_chunks_bytes(&r.pipeline.chunks) || !zf_chunks_bytes(&r.pipeline.chunks));
        close_tiny(&r, &s);
    }
}

/* Z28: no strategy makes anything that is not finite in 10 S steps, and all of them learn. */
static void test_z28_every_strategy_learns(void **state)
{
    (void)state;
    for (size_t k = 0; k < POLICY_COUNT; k++)
        for (size_t m = 0; m < 2; m++) {
            struct run r;
            struct source s;
            source_make(&s, SOURCES[m], 2, 8);
            run_open_text(&r, &s, POLICIES[k], &(struct run_options){.dtype = m ? ZF_F32 : ZF_BF16, .threads = 2, .stochastic = true});
            double first = 0, last = 0;
            for (uint64_t t = 1; t <= 10 * (uint64_t)r.pipeline.policy.interval + 10; t++) {
                struct zf_step_norm n = run_step_at(&r, t, 2e-3);
                assert_int_equal(n.apply, 1);
                last = n.loss;
                if (t == 1) first = n.loss;
            }
            if (!(last < 0.95 * first)) fail_msg("%s: loss %g, then %g", POLICIES[k], first, last);
            close_tiny(&r, &s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_z3_state_migrates),
        cmocka_unit_test(test_z6_masters_keep_what_bf16_cannot),
        cmocka_unit_test(test_z7_rates_of_windows),
        cmocka_unit_test(test_z8_both_halves_are_clipped),
        cmocka_unit_test(test_z9_short_windows_are_means),
        cmocka_unit_test(test_z10_one_state_for_all_windows),
        cmocka_unit_test(test_z11_the_complement_is_exact),
        cmocka_unit_test(test_z12_quota),
        cmocka_unit_test(test_z16_no_torn_rows_no_older_ones),
        cmocka_unit_test(test_z18_bytes_and_waits),
        cmocka_unit_test(test_z22_nothing_and_everything),
        cmocka_unit_test(test_z24_a_lane_that_fails_is_heard),
        cmocka_unit_test(test_a_torn_step_is_told),
        cmocka_unit_test(test_z27_high_water),
        cmocka_unit_test(test_z28_every_strategy_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
