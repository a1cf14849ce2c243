/* What the pipeline tells of itself, against what it does: rows become visible when it says; bytes are those that lanes copied; scores are
 * those of the gradients. */
#include "support.h"

#include "core/pipeline/report.h"

enum { STEPS = 18 };

static const char *const POLICIES[] = {
    "strategy gpu_only",
    "strategy zero_offload",
    "strategy stronghold",
    "strategy zenflow_sync topk_ratio 0.25 update_interval 4",
    "strategy selected_only topk_ratio 0.25 select_interval 4",
    "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 8",
    "strategy zenflow topk_ratio 0.25 update_interval 4 select_interval 8 optimistic no",
    "strategy zenflow topk_ratio 0.25 update_interval 3 swap rolling cpu_update mean",
    "strategy zenflow topk_ratio 0.25 update_interval 4 swap global select_interval 4",
    "strategy zenflow topk_ratio 0 update_interval 5 optimistic no",
    "strategy zenflow topk_ratio 0 update_interval 4 swap rolling bus_dtype bf16",
    "strategy zenflow topk_ratio 0.25 update_interval 4 cpu_update mean optimistic no accumulate_on device",
};
enum { COUNT = sizeof POLICIES / sizeof *POLICIES };

/* The clock alone, over any policy: what is visible follows from when windows end and are due, step by step. */
static void the_clock(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        double u[8];
        for (int i = 0; i < 8; i++) u[i] = zf_uniform(seed, ZF_STREAM_TEST, 1, (uint64_t)i);
        struct zf_policy p = {
            .ratio = 0.25, .cpu_half = true, .interval = 1 + (uint32_t)(u[0] * 7), .visible = (enum zf_visible)(u[1] * 4)};
        size_t all = 1 + (size_t)(u[2] * 1000), own = 1 + (size_t)(u[3] * (double)(all - 1)), before = (size_t)(u[4] * (double)(all - own));
        struct zf_window w;
        uint64_t origin = (uint64_t)(u[5] * 20), visible = origin, promised = 0;
        zf_window_start(&w, &p, origin, before, own, all);
        for (uint64_t t = origin + 1; t <= origin + 40; t++) {
            uint64_t was = visible, bound = (uint64_t[]){p.interval, 2ull * p.interval, 2ull * p.interval,
                                                         (uint64_t)p.interval + w.end - w.start}[p.visible];
            bool ends = zf_window_ends(&w, &p, t);
            if (ends && p.visible == ZF_VISIBLE_NONE) zf_window_close(&w, &p, t);
            assert_true(zf_window_shows(&w, t) == (w.up.any && w.up.due == t)); /* as it is shown at once */
            if (zf_window_shows(&w, t)) {
                assert_int_equal(zf_window_visible(&w, &p, t), w.up.ended); /* until it is shown, too */
                visible = w.up.ended;
                w.up.any = false;
            }
            if (ends && p.visible != ZF_VISIBLE_NONE) zf_window_close(&w, &p, t);
            assert_int_equal(zf_window_visible(&w, &p, t), visible);
            assert_true(t + 1 - visible >= 1 && t + 1 - visible <= bound);
            if (promised) assert_true(visible == was ? t < promised : t == promised);
            promised = zf_window_due(&w, &p, t);
            assert_true(promised > t);
        }
    }
}

static uint64_t copied(const struct run *r, struct zf_lane *l)
{
    struct zf_profile_row row[64];
    double bytes = 0;
    size_t n = r->device->type->lane_profile(l, row, 64);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(row[i].op, "copy");
        bytes += row[i].bytes / 2; /* read and written */
    }
    return (uint64_t)bytes;
}

/* Weights of the CPU half that a step will compute with change when a window of theirs is due, and only then. */
static void rows_come_when_due(struct run *r, uint64_t t, float **seen, uint64_t *due)
{
    for (size_t i = 0; i < r->pipeline.matrices; i++) {
        const struct zf_matrix *x = &r->pipeline.matrix[i];
        float *now = run_weights(r, x->param);
        if (seen[i] && r->pipeline.policy.ratio == 0) {
            bool changed = memcmp(now, seen[i], x->channels * x->length * sizeof *now) != 0;
            if (changed != (due[i] == t)) fail_msg("step %d, %s: %d, due at %d", (int)t, x->param->name, changed, (int)due[i]);
        }
        free(seen[i]);
        seen[i] = now;
        due[i] = zf_window_due(&x->window, &r->pipeline.policy, t);
    }
}

static void check_groups(const struct run *r)
{
    const struct zf_pipeline *p = &r->pipeline;
    struct zf_group g[16];
    size_t n = zf_pipeline_groups(p, g, 16), found = 0;
    assert_int_equal(zf_pipeline_groups(p, g, 0), n);
    assert_true(n <= p->policy.interval && (n > 0) == zf_policy_offloads(&p->policy));
    n = zf_pipeline_groups(p, g, 16);
    for (size_t i = 0; i < n; i++) {
        uint64_t span = 0;
        assert_true(g[i].start < p->policy.interval && (!i || g[i].start > g[i - 1].start));
        for (size_t k = 0; k < p->matrices; k++) {
            const struct zf_window *w = &p->matrix[k].window;
            if (w->start != g[i].start) continue;
            found++;
            if (w->end - w->start > span) span = w->end - w->start;
        }
        const uint64_t bound[] = {p->policy.interval, 2ull * p->policy.interval, 2ull * p->policy.interval, p->policy.interval + span};
        assert_true(g[i].staleness >= 1 && g[i].staleness <= bound[p->policy.visible]);
        assert_true(g[i].fill >= 0 && g[i].fill < 1 && g[i].due >= p->step && g[i].due <= p->step + bound[p->policy.visible]);
        if (g[i].phase != ZF_GROUP_UPLOAD) assert_true(g[i].due > p->step);
    }
    assert_true(!n || found == p->matrices);
}

static void what_is_told(void **state)
{
    (void)state;
    struct source s;
    source_make(&s, TINY_LLAMA, 2 * STEPS, 12);
    for (size_t k = 0; k < COUNT; k++) {
        struct run r;
        struct zf_pipeline_sample from, to;
        float *seen[64] = {0};
        uint64_t due[64] = {0};
        print_message("%s\n", POLICIES[k]);
        run_open_text(&r, &s, POLICIES[k], &(struct run_options){.threads = 1});
        struct zf_pipeline *p = &r.pipeline;
        assert_true(p->matrices < 64);
        zf_pipeline_sample(p, &from);
        for (uint64_t t = 1; t <= STEPS; t++) {
            run_step(&r, t);
            check_groups(&r);
            ok(zf_pipeline_settle(p, &e));
            rows_come_when_due(&r, t, seen, due);
        }
        zf_pipeline_sample(p, &to);
        struct zf_pipeline_sample d = zf_pipeline_between(&from, &to);
        assert_int_equal(d.counts.d2h_bytes, copied(&r, p->d2h));
        assert_int_equal(d.counts.h2d_bytes, copied(&r, p->h2d));
        assert_true(d.busy[ZF_LANE_COMPUTE] > 0 && d.stalled >= 0);
        assert_true((d.adam_bytes > 0) == zf_policy_offloads(&p->policy) && (d.adam_seconds > 0) == zf_policy_offloads(&p->policy));
        double m;
        struct zf_bus bus = zf_pipeline_bus_formula(p, &m);
        if (p->policy.ratio == 0 && p->policy.interval == 1) { /* nothing is rounded and nothing is pending: the formula is exact */
            assert_true(bus.down == m && bus.up == m);
            assert_true((double)d.counts.d2h_bytes == STEPS * m && (double)d.counts.h2d_bytes == STEPS * m);
        } else if (zf_policy_offloads(&p->policy) && !p->policy.accumulate_on_device) {
            assert_true(fabs((double)d.counts.d2h_bytes - STEPS * bus.down) < 0.05 * STEPS * m);
        } else if (!zf_policy_offloads(&p->policy)) {
            assert_true(bus.down == 0 && bus.up == 0 && d.counts.d2h_bytes == 0 && d.counts.h2d_bytes == 0);
        }
        for (size_t i = 0; i < p->matrices; i++) free(seen[i]);
        run_close(&r);
    }
    source_free(&s);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* By the plainest means, from the gradient as it lies there. */
static void check_scores(const struct run *r, const struct zf_matrix *x)
{
    const float *g = r->model.grad + x->param->offset;
    size_t n = x->channels;
    double *squares = calloc(n, sizeof *squares), total = 0, mine = 0;
    bool *chosen = calloc(n, sizeof *chosen);
    struct zf_scores s;
    assert_true(squares && chosen);
    for (size_t i = 0; i < x->device.rows; i++) chosen[x->order[i]] = true;
    for (size_t c = 0; c < n; c++) {
        for (size_t i = 0; i < x->length; i++) squares[c] += (double)g[c * x->length + i] * g[c * x->length + i];
        total += squares[c];
        if (chosen[c]) mine += squares[c];
    }
    ok(zf_pipeline_scores(&r->pipeline, x, &s, &e));
    assert_int_equal(s.bins, n < 64 ? n : 64);
    assert_true(fabs(s.selected_energy - mine / total) < 1e-6);
    if (zf_pipeline_selected(&r->pipeline, x)) assert_true(fabs(s.selected_energy - x->energy) < 1e-12);
    for (size_t b = 0; b < s.bins; b++) {
        double sum = 0;
        for (size_t c = b * n / s.bins; c < (b + 1) * n / s.bins; c++) sum += squares[c];
        sum /= (double)((b + 1) * n / s.bins - b * n / s.bins);
        assert_true(sum > 0 ? fabs(s.bin[b] - log10(sum)) < 1e-5 : isinf(s.bin[b]));
    }
    qsort(squares, n, sizeof *squares, descending);
    for (size_t k = 0; k < ZF_SCORE_TOPS; k++) {
        double sum = 0;
        for (size_t c = 0; c < fmax(1, floor(zf_score_tops[k] * (double)n + 0.5)); c++) sum += squares[c];
        assert_true(fabs(s.top[k] - sum / total) < 1e-6);
    }
    free(squares);
    free(chosen);
}

static void scores_of_gradients(void **state)
{
    (void)state;
    struct source s;
    source_make(&s, TINY_GPT2, 2 * STEPS, 12);
    for (size_t k = 0; k < COUNT; k++) {
        struct run r;
        size_t selected = 0;
        run_open_text(&r, &s, POLICIES[k], &(struct run_options){.threads = 1, .two_micro_batches = true});
        struct zf_pipeline *p = &r.pipeline;
        for (uint64_t t = 1; t <= 9; t++) {
            struct zf_step_norm norm;
            ok(zf_pipeline_begin(p, 1e-3, t % 3 == 0, &e));
            for (size_t i = 0; i < 2; i++) {
                fill_batch(&r, 2 * t + i, 1);
                if (i) zf_pipeline_last(p);
                ok(zf_model_step(&r.model, &r.batch, true, 1 / 22.0f, p->loss, &e));
            }
            ok(zf_pipeline_finish(p, &norm, &e));
            for (size_t i = 0; i < p->matrices; i++) {
                bool chose = zf_pipeline_selected(p, &p->matrix[i]);
                selected += chose;
                assert_true(zf_pipeline_scored(p, &p->matrix[i]) == (chose || t % 3 == 0));
                if (chose || t % 3 == 0) check_scores(&r, &p->matrix[i]);
            }
        }
        assert_int_equal(selected, p->counts.selections);
        assert_true((selected > 0) == zf_policy_selects(&p->policy));
        run_close(&r);
    }
    source_free(&s);
}

static void in_words(void **state)
{
    (void)state;
    struct zf_options o;
    char text[512], all[COUNT][512];
    for (size_t k = 0; k < COUNT; k++) {
        struct run r;
        memset(&r, 0, sizeof r);
        ok(zf_options_init(&r.options, &e));
        run_set_text(&r, POLICIES[k]);
        o = r.options;
        struct zf_policy p = zf_policy_of(&o, ZF_F32, 4);
        assert_ptr_equal(zf_policy_words(&p, text, sizeof text), text);
        assert_true(strlen(text) > 30 && strlen(text) < 400 && !strstr(text, "(null)"));
        assert_true((strstr(text, "25 %") != NULL) == zf_policy_selects(&p));
        snprintf(all[k], sizeof all[k], "%s", text);
        for (size_t i = 0; i < k; i++) assert_true(strcmp(all[i], text) != 0 || k == 10); /* the bus is no part of it */
        zf_options_free(&r.options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_clock), cmocka_unit_test(what_is_told), cmocka_unit_test(scores_of_gradients),
                                       cmocka_unit_test(in_words)};
    return cmocka_run_group_tests_name("pipeline/report", tests, NULL, NULL);
}
