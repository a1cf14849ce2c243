/* Runs that are compared bit for bit: what is left of a run, and the policies that are tried. */
#ifndef ZF_TESTS_PIPELINE_BITS_H
#define ZF_TESTS_PIPELINE_BITS_H

#include "core/pipeline/measure.h"
#include "support.h"

enum { STEPS = 14 };

static const char *const SOURCES[] __attribute__((unused)) = {TINY_LLAMA, TINY_GPT2};

struct result {
    float *weights[64];
    size_t count, size[64];
    double losses[STEPS + 1];
};

static inline void result_free(struct result *a)
{
    for (size_t i = 0; i < a->count; i++) free(a->weights[i]);
    a->count = 0;
}

/* Visible weights, and masters behind them. */
static inline void result_take(struct result *a, struct run *r)
{
    a->count = 0;
    ok(zf_pipeline_settle(&r->pipeline, &e));
    for (size_t i = 0; i < r->model.params.count; i++) {
        const struct zf_param *p = &r->model.params.list[i];
        size_t n = p->rows * p->cols;
        float *visible = run_weights(r, p), *both = realloc(visible, 2 * n * sizeof *both);
        assert_non_null(both);
        ok(zf_pipeline_masters(&r->pipeline, p, both + n, &e));
        a->weights[a->count] = both;
        a->size[a->count++] = 2 * n;
    }
    memcpy(a->losses, r->losses, sizeof a->losses);
}

static inline bool same(const struct result *a, const struct result *b, const struct run *r, const char *what, bool quiet)
{
    for (size_t i = 1; i <= STEPS; i++)
        if (memcmp(&a->losses[i], &b->losses[i], sizeof(double))) {
            if (!quiet) print_error("%s: loss of step %zu: %.17g, %.17g\n", what, i, a->losses[i], b->losses[i]);
            return false;
        }
    for (size_t i = 0; i < a->count; i++)
        if (memcmp(a->weights[i], b->weights[i], a->size[i] * sizeof(float))) {
            if (!quiet) print_error("%s: %s differs\n", what, r->model.params.list[i].name);
            return false;
        }
    return true;
}

/* changes: "6 strategy gpu_only; 9 strategy zenflow", or NULL. drain: at the end. */
static inline void train(struct result *out, const struct source *s, const char *options, const char *changes,
                         const struct run_options *how, const struct result *like, const char *what)
{
    struct run r;
    run_open_text(&r, s, options, how);
    for (uint64_t t = 1; t <= STEPS; t++) {
        char copy[512], *save = NULL;
        snprintf(copy, sizeof copy, "%s", changes ? changes : "");
        for (char *c = strtok_r(copy, ";", &save); c; c = strtok_r(NULL, ";", &save)) {
            int at, used = 0;
            assert_int_equal(sscanf(c, "%d %n", &at, &used), 1);
            if ((uint64_t)at == t) run_change_text(&r, c + used);
        }
        run_step(&r, t);
    }
    ok(zf_pipeline_drain(&r.pipeline, &e));
    result_take(out, &r);
    if (like && !same(like, out, &r, what, false)) fail_msg("%s: not the same bits", what);
    run_close(&r);
}

static const char *const POLICIES[] __attribute__((unused)) = {
    "strategy gpu_only",
    "strategy zero_offload",
    "strategy stronghold",
    "strategy selected_only topk_ratio 0.25 update_interval 3 select_interval 4",
    "strategy zenflow_sync topk_ratio 0.25 update_interval 3 select_interval 4",
    "strategy zenflow_sync topk_ratio 0.25 update_interval 3 select_interval 4 cpu_update mean",
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 swap global optimistic no cpu_update mean",
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 swap rolling optimistic no",
    "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 4 optimistic no cpu_update mean cpu_learning_rate sum",
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4",
    "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 4 cpu_update mean",
    "strategy zenflow topk_ratio 0 update_interval 5",
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 optimistic no cpu_update mean accumulate_on device",
    "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 swap global cpu_update mean accumulate_on device",
};
enum { POLICY_COUNT = sizeof POLICIES / sizeof *POLICIES };

#endif
