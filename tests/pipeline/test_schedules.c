/* I5 (architecture 4): whatever the lanes' speeds, the same bits. Against a run in which each piece of work is done as it is issued. */
#include "bits.h"

/* On the emulated GPU streams lag behind what is launched into them, each operation by its own time. */
static void slow_streams(int schedule)
{
    static const char *const latencies[] = {"0", "20", "100"};
    if (ON_CUDA) setenv("CUDAEMU_LATENCY_US", latencies[schedule % 3], 1);
}

/* I5. ZF_SEEDS: how many schedules of each policy (the long run asks for more); no two of all are the same. Two of three with pieces so
 * small that a matrix takes many of them, again and again. */
static void test_i5_schedules(void **state)
{
    (void)state;
    const struct zf_pipeline_grain usual = zf_pipeline_grain;
    const struct zf_pipeline_grain grains[] = {{.piece = 320, .chunk = 320, .page = 64}, usual, {.piece = 1024, .chunk = 512, .page = 64}};
    const char *text = getenv("ZF_SEEDS");
    int seeds = text ? atoi(text) : 4, schedule = 0;
    struct source s;
    source_make(&s, TINY_LLAMA, 2 * STEPS, 12);
    s.config.vocab = 197; /* without a head of its own, more channels than a small piece has room for second moments of */
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        struct result x = {0};
        unsetenv("CUDAEMU_LATENCY_US");
        const char *changes =
            strstr(POLICIES[i], "optimistic no")
                ? "8 topk_ratio 0.4;11 update_interval 2"
                : "4 optimistic no;6 optimistic yes;8 topk_ratio 0.4;9 optimistic no;10 optimistic yes;11 update_interval 2";
        enum zf_dtype dtype = i % 2 ? ZF_BF16 : ZF_F32;
        s.config.tied = i % 2;
        train(&x, &s, POLICIES[i], changes, &(struct run_options){.dtype = dtype, .threads = 1, .synchronous = true}, NULL, "");
        for (int k = 0; k < seeds; k++) {
            struct result y = {0};
            char what[600];
            struct run_options how = {.dtype = dtype, .threads = 1 + schedule / 3 % 3, .jitter = (uint64_t)++schedule};
            if (left_out((size_t)schedule, 7)) continue;
            slow_streams(schedule);
            snprintf(what, sizeof what, "%s, schedule %d", POLICIES[i], schedule);
            zf_pipeline_grain = grains[schedule % 3];
            train(&y, &s, POLICIES[i], changes, &how, &x, what);
            result_free(&y);
        }
        zf_pipeline_grain = usual;
        result_free(&x);
    }
    source_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_i5_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
