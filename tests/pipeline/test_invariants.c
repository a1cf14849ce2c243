/* What must be the same bits (architecture 4): I1-I4, I7 (I5: test_schedules.c), on models of our own, in fp32 and bf16; and that steps
 * which do not count, and changes of policy, lose nothing. */
#include "bits.h"

static void equal(const char *a, const char *a_changes, const char *b, const char *b_changes, const struct run_options *how_b)
{
    for (size_t i = 0; i < sizeof SOURCES / sizeof *SOURCES; i++) {
        struct source s;
        source_make(&s, SOURCES[i], 2 * STEPS, 12);
        for (int d = 0; d < 4; d++) {
            if (left_out((size_t)d + i, 6)) continue; /* f32, and bf16 by chance */
            struct result x = {0}, y = {0};
            char what[600];
            struct run_options how = {.dtype = d & 1 ? ZF_BF16 : ZF_F32, .threads = 2, .stochastic = d & 2}, other = how;
            if (how_b) {
                other.threads = how_b->threads;
                other.jitter = how_b->jitter;
                other.synchronous = how_b->synchronous;
            }
            snprintf(what, sizeof what, "%s / %s, model %zu, %s%s", a, b, i, d & 1 ? "bf16" : "f32", d & 2 ? ", by chance" : "");
            train(&x, &s, a, a_changes, &how, NULL, what);
            train(&y, &s, b, b_changes, &other, &x, what);
            result_free(&x);
            result_free(&y);
        }
        source_free(&s);
    }
}

static void test_i1_zero_offload_is_gpu_only(void **state)
{
    (void)state;
    equal("strategy gpu_only", NULL, "strategy zero_offload", NULL, NULL);
}

static void test_i2_stronghold_is_zero_offload(void **state)
{
    (void)state;
    equal("strategy zero_offload", NULL, "strategy stronghold", NULL, NULL);
}

static void test_i3_sync_with_one_step_and_nothing_selected(void **state)
{
    (void)state;
    equal("strategy zero_offload", NULL, "strategy zenflow_sync topk_ratio 0 update_interval 1", NULL, NULL);
    equal("strategy zero_offload", NULL, "strategy zenflow_sync topk_ratio 0 update_interval 1 cpu_update mean", NULL, NULL);
}

static void test_i4_everything_selected_is_gpu_only(void **state)
{
    (void)state;
    equal("strategy gpu_only", NULL, "strategy zenflow topk_ratio 1", NULL, NULL);
    equal("strategy gpu_only", NULL, "strategy zenflow_sync topk_ratio 1 update_interval 5", NULL, NULL);
}

/* With one step a window and no overlap nothing is late, whoever owns a channel and however often it changes hands. */
static void test_selection_with_one_step_is_exact(void **state)
{
    (void)state;
    equal("strategy gpu_only", NULL, "strategy zenflow_sync topk_ratio 0.3 update_interval 1 select_interval 1", NULL, NULL);
    equal("strategy gpu_only", NULL, "strategy zenflow_sync topk_ratio 0.3 update_interval 1 select_interval 1",
          "4 topk_ratio 0.6;6 topk_ratio 0.1;9 topk_ratio 0;11 topk_ratio 0.5", NULL);
}

static void test_leaving_and_coming_back(void **state)
{
    (void)state;
    equal("strategy gpu_only", NULL, "strategy gpu_only",
          "4 strategy zero_offload;7 strategy gpu_only;9 strategy stronghold;12 strategy gpu_only", NULL);
}

/* Where a window is summed changes no bit. */
static void test_summed_on_the_device(void **state)
{
    (void)state;
    static const char *const swaps[] = {"staggered", "rolling", "global"};
    for (size_t i = 0; i < 3; i++) {
        char host[200], device[256];
        if (left_out(i, 6)) continue;
        snprintf(host, sizeof host,
                 "strategy zenflow topk_ratio 0.25 update_interval 3 select_interval 4 optimistic no cpu_update mean swap %s", swaps[i]);
        snprintf(device, sizeof device, "%.200s accumulate_on device", host);
        equal(host, "6 topk_ratio 0.5;9 update_interval 2", device, "6 topk_ratio 0.5;9 update_interval 2", NULL);
    }
    equal("strategy zenflow optimistic no cpu_update mean update_interval 3", "5 update_interval 4",
          "strategy zenflow optimistic no cpu_update mean update_interval 3 accumulate_on device", "5 accumulate_on host update_interval 4",
          NULL);
}

/* I7: two micro-batches against one, within rounding. */
static void test_i7_accumulation(void **state)
{
    (void)state;
    struct source s;
    source_make(&s, TINY_LLAMA, 2 * STEPS, 12);
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        struct result x = {0}, y = {0};
        if (left_out(i, 6)) continue;
        train(&x, &s, POLICIES[i], NULL, &(struct run_options){.dtype = ZF_F32, .threads = 2}, NULL, "");
        train(&y, &s, POLICIES[i], NULL, &(struct run_options){.dtype = ZF_F32, .threads = 2, .two_micro_batches = true}, NULL, "");
        for (size_t t = 1; t <= STEPS; t++)
            if (fabs(x.losses[t] - y.losses[t]) > 1e-5 * x.losses[t])
                fail_msg("%s: step %zu: %.9g, %.9g", POLICIES[i], t, x.losses[t], y.losses[t]);
        result_free(&x);
        result_free(&y);
    }
    source_free(&s);
}

/* A step that is not finite, at every phase of a window: every state is what it would be if that step had only taken its number. The same
 * run is made with a step without targets in its place, which has no gradient at all. */
static void test_steps_that_do_not_count(void **state)
{
    (void)state;
    struct source s;
    source_make(&s, TINY_GPT2, 2 * STEPS, 12);
    for (size_t i = 0; i < POLICY_COUNT; i++)
        for (uint64_t bad = 1; bad <= 9; bad += i % 3 + 1) {
            if (left_out(bad - 1, 9) || left_out(i, 3)) continue;
            struct result out[2];
            memset(out, 0, sizeof out);
            for (int kind = 0; kind < 2; kind++) {
                struct run r;
                run_open_text(&r, &s, POLICIES[i], &(struct run_options){.dtype = ZF_F32, .threads = 2});
                for (uint64_t t = 1; t <= STEPS; t++) {
                    if (t != bad) {
                        run_step(&r, t);
                    } else if (kind) {
                        ok(zf_pipeline_skip(&r.pipeline, golden_rate(t), &e));
                    } else {
                        struct zf_step_norm n;
                        ok(zf_pipeline_begin(&r.pipeline, golden_rate(t), false, &e));
                        fill_batch(&r, 0, GOLDEN_ROWS);
                        zf_pipeline_last(&r.pipeline);
                        ok(zf_model_step(&r.model, &r.batch, true, INFINITY, r.pipeline.loss, &e));
                        ok(zf_pipeline_finish(&r.pipeline, &n, &e));
                        assert_int_equal(n.apply, 0);
                    }
                }
                ok(zf_pipeline_drain(&r.pipeline, &e));
                result_take(&out[kind], &r);
                if (kind && !same(&out[0], &out[1], &r, POLICIES[i], false)) fail_msg("%s: step %d left a trace", POLICIES[i], (int)bad);
                run_close(&r);
            }
            result_free(&out[0]);
            result_free(&out[1]);
        }
    source_free(&s);
}

/* The planner's figures are what a run takes. */
static void test_memory_as_planned(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct source s;
        source_make(&s, SOURCES[k], 2 * STEPS, 12);
        for (size_t i = 0; i < POLICY_COUNT; i++) {
            struct run r;
            struct zf_pipeline_sizes sizes;
            enum zf_dtype dtype = (i + k) % 2 ? ZF_BF16 : ZF_F32;
            if (left_out(i + k, 7)) continue;
            run_open_text(&r, &s, POLICIES[i], &(struct run_options){.dtype = dtype, .threads = 1});
            zf_pipeline_measure(&sizes, &r.model.params, &r.pipeline.policy, dtype);
            for (uint64_t t = 1; t <= STEPS; t++) run_step(&r, t);
            size_t state_bytes = 0, masters = dtype == ZF_F32 ? 0 : 4;
            for (size_t m = 0; m < r.pipeline.matrices; m++) { /* borrowed masters are the model's own */
                const struct zf_matrix *x = &r.pipeline.matrix[m];
                state_bytes += x->device.rows * (x->length * (8 + (x->device.borrowed ? 0 : masters)) + 4);
            }
            for (size_t v = 0; v < r.pipeline.vectors; v++) state_bytes += r.pipeline.vector[v].param->cols * (8 + masters) + 4;
            assert_int_equal(sizes.device_state, state_bytes);
            assert_int_equal(sizes.cpu_state, run_cpu_state(&r));
            /* a selection shows what is due earlier than the plan knows: a piece or two less */
            size_t taken = r.pipeline.chunks.peak * r.pipeline.chunks.bytes;
            if (sizes.slots < taken || sizes.slots > taken + 2 * r.pipeline.chunks.bytes)
                fail_msg("%s: %zu bytes of slots planned, %zu taken", POLICIES[i], sizes.slots, taken);
            run_close(&r);
        }
        source_free(&s);
    }
}

/* Whoever updates: gradients are rounded alike, so I1 and I4 hold whatever the bus carries. */
static void test_i1_whatever_crosses_the_bus(void **state)
{
    (void)state;
    static const char *const buses[] = {"bf16", "f32"};
    for (size_t i = 0; i < 2; i++) {
        char one[100], other[100], all[100];
        snprintf(one, sizeof one, "strategy gpu_only bus_dtype %s", buses[i]);
        snprintf(other, sizeof other, "strategy zero_offload bus_dtype %s", buses[i]);
        snprintf(all, sizeof all, "strategy zenflow topk_ratio 1 bus_dtype %s", buses[i]);
        if (!left_out(i, 2)) equal(one, NULL, other, NULL, NULL);
        if (!left_out(i + 1, 2)) equal(one, NULL, all, NULL, NULL);
    }
}

static void account(const struct run *r, size_t bytes[ZF_MEM_TAGS])
{
    struct zf_device_info info, host = {0};
    r->device->type->info(r->device, &info);
    if (r->host) r->host->type->info(r->host, &host);
    for (int i = 0; i < ZF_MEM_TAGS; i++) bytes[i] = info.bytes[i] + host.bytes[i];
}

/* A policy that has been changed to takes what a fresh run of it does. */
static void test_memory_after_a_change(void **state)
{
    (void)state;
    static const char *const from = "strategy zenflow topk_ratio 0.25 update_interval 16 select_interval 16 ";
    static const char *const how[] = {"", "cpu_update mean optimistic no accumulate_on device"};
    static const char *const to[] = {"strategy gpu_only", "strategy zero_offload", "strategy selected_only"};
    struct source s;
    source_make(&s, TINY_LLAMA, 2 * STEPS, 12);
    for (size_t i = 0; i < 6; i++) {
        struct run old, fresh;
        char options[256], both[300];
        size_t before[ZF_MEM_TAGS], after[ZF_MEM_TAGS], wanted[ZF_MEM_TAGS];
        if (left_out(i, 7)) continue;
        snprintf(options, sizeof options, "%s%s", from, how[i % 2]);
        snprintf(both, sizeof both, "%s %s", options, to[i / 2]);
        run_open_text(&old, &s, options, &(struct run_options){.threads = 2});
        for (uint64_t t = 1; t <= 40; t++) run_step(&old, t);
        account(&old, before);
        run_change_text(&old, to[i / 2]);
        run_open_text(&fresh, &s, both, &(struct run_options){.threads = 2});
        for (uint64_t t = 1; t <= 3; t++) {
            run_step(&old, 40 + t);
            run_step(&fresh, t);
        }
        account(&old, after);
        account(&fresh, wanted);
        for (int k = 0; k < ZF_MEM_TAGS; k++)
            if (after[k] != wanted[k]) fail_msg("%s: memory %d: %zu bytes; fresh: %zu", both, k, after[k], wanted[k]);
        assert_true(before[ZF_TAG_SLOTS] > after[ZF_TAG_SLOTS] || (i % 2 && before[ZF_TAG_STAGING] > after[ZF_TAG_STAGING]));
        run_close(&old);
        run_close(&fresh);
    }
    source_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i1_zero_offload_is_gpu_only),
        cmocka_unit_test(test_i2_stronghold_is_zero_offload),
        cmocka_unit_test(test_i3_sync_with_one_step_and_nothing_selected),
        cmocka_unit_test(test_i4_everything_selected_is_gpu_only),
        cmocka_unit_test(test_selection_with_one_step_is_exact),
        cmocka_unit_test(test_leaving_and_coming_back),
        cmocka_unit_test(test_summed_on_the_device),
        cmocka_unit_test(test_i7_accumulation),
        cmocka_unit_test(test_steps_that_do_not_count),
        cmocka_unit_test(test_memory_as_planned),
        cmocka_unit_test(test_i1_whatever_crosses_the_bus),
        cmocka_unit_test(test_memory_after_a_change),
    };
    if (getenv("ZF_TEST")) cmocka_set_test_filter(getenv("ZF_TEST")); /* e.g. test_i5* */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
