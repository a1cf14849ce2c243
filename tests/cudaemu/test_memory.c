/* Memory of the CUDA device on the emulated one: what is reserved and given out again, what the plan says against what is counted, pins
 * that the system refuses. */
#include "core/plan/memory.h"
#include "kernels/cuda/ranges.h"
#include "tests/cudaemu/cudaemu.h"
#include "tests/pipeline/support.h"

#include "core/pipeline/measure.h"

#define MIB ((size_t)1 << 20)

static struct zf_device *open_cuda(void)
{
    struct zf_device *d;
    ok(zf_device_open(&d, "cuda", NULL, &e));
    return d;
}

/* ---- ranges ---- */

/* Parts never overlap, lie inside, and when all are back there is one range again. */
static void test_ranges(void **state)
{
    enum { UNITS = 512, PARTS = 64, ROUNDS = 20000 };
    struct zf_ranges r;
    struct {
        size_t at, bytes;
    } part[PARTS] = {{0}};
    static unsigned char owner[UNITS];
    (void)state;
    assert_true(zf_ranges_open(&r, UNITS * ZF_RANGE_UNIT));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)(zf_uniform(1, ZF_STREAM_TEST, 0, round) * PARTS);
        if (part[i].bytes) {
            for (size_t u = part[i].at / ZF_RANGE_UNIT; u < (part[i].at + part[i].bytes - 1) / ZF_RANGE_UNIT + 1; u++) owner[u] = 0;
            zf_ranges_give(&r, part[i].at, part[i].bytes);
            part[i].bytes = 0;
            continue;
        }
        size_t bytes = 1 + (size_t)(zf_uniform(2, ZF_STREAM_TEST, 0, round) * 20 * ZF_RANGE_UNIT), at;
        if (!zf_ranges_take(&r, bytes, &at)) continue;
        assert_int_equal(at % ZF_RANGE_UNIT, 0);
        assert_true(at + bytes <= UNITS * ZF_RANGE_UNIT);
        for (size_t u = at / ZF_RANGE_UNIT; u < (at + bytes - 1) / ZF_RANGE_UNIT + 1; u++) {
            assert_int_equal(owner[u], 0);
            owner[u] = 1;
        }
        part[i].at = at;
        part[i].bytes = bytes;
    }
    for (size_t i = 0; i < PARTS; i++)
        if (part[i].bytes) zf_ranges_give(&r, part[i].at, part[i].bytes);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.parts, 0);
    assert_int_equal(r.idle[0].bytes, UNITS * ZF_RANGE_UNIT);
    zf_ranges_close(&r);
}

/* ---- what is reserved ---- */

static void all_zero(struct zf_device *d, const void *p, size_t bytes)
{
    struct zf_lane *l;
    unsigned char *host = malloc(bytes);
    ok(d->type->lane_new(d, "test", &l, &e));
    memset(host, 1, bytes);
    ok(d->type->copy(l, host, p, bytes));
    ok(d->type->lane_sync(l, &e));
    for (size_t i = 0; i < bytes; i++) assert_int_equal(host[i], 0);
    ok(d->type->fill(l, (void *)(uintptr_t)p, 0xab, bytes));
    ok(d->type->lane_sync(l, &e));
    d->type->lane_free(l);
    free(host);
}

/* From there on nothing is asked of CUDA, what comes back is given out again, zeroed, and numbers are what was asked for. */
static void test_reserved(void **state)
{
    struct zf_device *d = open_cuda();
    struct zf_device_info info;
    void *p[8], *more;
    (void)state;
    ok(d->type->reserve(d, ZF_MEM_DEVICE, 8 * MIB, &e));
    ok(d->type->reserve(d, ZF_MEM_PINNED, 4 * MIB, &e));
    long before = cudaemu_calls("cudaMalloc") + cudaemu_calls("cudaHostAlloc");
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 8; i++) ok(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_WEIGHTS, MIB - 1000 * i, &p[i], &e));
        for (size_t i = 0; i < 8; i++) all_zero(d, p[i], MIB - 1000 * i);
        for (size_t i = 0; i < 8; i++) d->type->free(d, p[(i * 3) % 8]);
    }
    ok(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_SLOTS, 4 * MIB, &p[0], &e));
    ok(d->type->reserve(d, ZF_MEM_DEVICE, 8 * MIB, &e)); /* all in all */
    /* the lanes' own pieces, once a lane */
    assert_true(cudaemu_calls("cudaMalloc") + cudaemu_calls("cudaHostAlloc") <= before + 24);
    long mallocs = cudaemu_calls("cudaMalloc");
    ok(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, 9 * MIB, &more, &e)); /* does not fit: a block of its own */
    assert_int_equal(cudaemu_calls("cudaMalloc"), mallocs + 1);
    d->type->info(d, &info);
    assert_int_equal(info.own[ZF_TAG_OTHER], 9 * MIB);
    assert_int_equal(info.own[ZF_TAG_WEIGHTS], 0);
    assert_int_equal(info.own_peak, 9 * MIB);
    assert_int_equal(info.bytes[ZF_TAG_SLOTS], 4 * MIB);
    assert_int_equal(info.locked, 4 * MIB);
    assert_int_equal(info.unlocked, 0);
    d->type->free(d, more);
    assert_int_equal(d->type->trim(d), 8 * MIB);
    d->type->info(d, &info);
    assert_int_equal(info.free_bytes, info.total_bytes);
    d->type->free(d, p[0]);
    d->type->close(d);
}

static void test_no_room(void **state)
{
    struct zf_device *d = open_cuda();
    (void)state;
    setenv("CUDAEMU_MEM_MB", "16", 1);
    assert_int_equal(d->type->reserve(d, ZF_MEM_DEVICE, 17 * MIB, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "16777216 bytes, of which 16777216 are free"));
    assert_false(d->type->lost(d)); /* too little memory is no broken device */
    void *p;
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_LOGITS, 17 * MIB, &p, &e), ZF_MEMORY);
    assert_non_null(strstr(e.message, "logits"));
    ok(d->type->reserve(d, ZF_MEM_DEVICE, 15 * MIB, &e));
    unsetenv("CUDAEMU_MEM_MB");
    d->type->close(d);
}

/* ---- pins that are refused ---- */

/* Through ordinary memory, both ways, in the order of the lane: the source is written by the lane before. */
static void copies(struct zf_device *d)
{
    enum { N = 5 << 20 }; /* more than a lane's own piece */
    struct zf_lane *l;
    void *device, *a, *b;
    unsigned char *plain = malloc(N);
    ok(d->type->lane_new(d, "test", &l, &e));
    ok(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, N, &device, &e));
    ok(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_SLOTS, N, &a, &e));
    ok(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_SLOTS, N, &b, &e));
    for (size_t i = 0; i < N; i++) ((unsigned char *)a)[i] = (unsigned char)(i * 7 + i / 251);
    ok(d->type->copy(l, device, a, N));
    ok(d->type->copy(l, b, device, N));
    ok(d->type->copy(l, plain, b, N)); /* within the host */
    ok(d->type->fill(l, device, 0, N));
    ok(d->type->copy(l, device, plain, N));
    ok(d->type->fill(l, device, 5, 1000));
    memset(a, 0, 10); /* long copied? the lane may not be there yet, so it is waited for first */
    ok(d->type->lane_sync(l, &e));
    ok(d->type->copy(l, a, device, N));
    ok(d->type->lane_sync(l, &e));
    for (size_t i = 0; i < N; i++) {
        unsigned char was = (unsigned char)(i * 7 + i / 251);
        if (i >= 10) assert_int_equal(((unsigned char *)b)[i], was);
        if (i >= 10) assert_int_equal(((unsigned char *)a)[i], i < 1000 ? 5 : was);
    }
    d->type->free(d, device);
    d->type->free(d, a);
    d->type->free(d, b);
    d->type->lane_free(l);
    free(plain);
}

static void test_refused_pins(void **state)
{
    static const struct {
        const char *most;
        bool all, some;
    } cases[] = {{"0", false, false}, {"6", false, true}, {"22", true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_device *d = open_cuda();
        struct zf_device_info info;
        void *p;
        setenv("CUDAEMU_PIN_MB", cases[i].most, 1);
        ok(d->type->reserve(d, ZF_MEM_PINNED, 10 * MIB, &e));
        copies(d);
        ok(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_SLOTS, 9 * MIB, &p, &e));
        d->type->info(d, &info);
        assert_int_equal(info.locked, cases[i].all ? 9 * MIB : 0);
        assert_int_equal(info.unlocked, cases[i].all ? 0 : 9 * MIB);
        d->type->free(d, p);
        ok(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_COPIES, 9 * MIB, &p, &e)); /* never pinned, and nobody complains */
        d->type->info(d, &info);
        assert_int_equal(info.unlocked, 0);
        d->type->free(d, p);
        unsetenv("CUDAEMU_PIN_MB");
        d->type->close(d);
    }
}

/* ---- the plan ---- */

struct planned {
    struct run run;
    struct zf_memory_plan plan;
};

static void plan_run(struct planned *x, bool recompute)
{
    struct run *r = &x->run;
    struct zf_params params;
    struct zf_arena arena = {0};
    struct zf_policy policy = zf_policy_of(&r->options, r->how.dtype, 4);
    ok(zf_params_build(&params, &r->s->config, &arena, &e));
    struct zf_memory_request q = {.config = &r->s->config,
                                  .params = &params,
                                  .batch_size = GOLDEN_ROWS,
                                  .micro_batch = GOLDEN_ROWS,
                                  .sequence_length = r->s->length,
                                  .training = true,
                                  .recompute = recompute,
                                  .dtype = r->how.dtype,
                                  .apart = true,
                                  .device_limit = SIZE_MAX};
    zf_pipeline_measure(&q.halves, &params, &policy, q.dtype);
    zf_memory_plan_make(&x->plan, &q, SIZE_MAX);
    zf_arena_free(&arena);
}

static void start(struct planned *x, const struct source *s, const char *options, const struct run_options *how)
{
    struct run *r = &x->run;
    run_prepare(r, s, how);
    run_set_text(r, options);
    plan_run(x, how->recompute);
    ok(zf_device_open(&r->device, "cuda", NULL, &e));
    ok(zf_device_open(&r->host, "host", &(struct zf_device_options){.threads = 1}, &e));
    ok(r->device->type->reserve(r->device, ZF_MEM_DEVICE, x->plan.device_blocks, &e));
    ok(r->device->type->reserve(r->device, ZF_MEM_PINNED, x->plan.pinned, &e));
    ok(zf_model_open(&r->model, &s->config, s->hf, 1, how->dtype, true, r->device, &e));
    ok(zf_model_reserve(&r->model, GOLDEN_ROWS * s->length, s->length, how->recompute ? ZF_KEEP_INPUTS : ZF_KEEP_ALL, &e));
    ok(zf_batch_init(&r->batch, GOLDEN_ROWS * s->length, &e));
    run_start_pipeline(r);
}

static const char *const policies[] = {
    "strategy gpu_only",
    "strategy zero_offload",
    "strategy stronghold",
    "strategy zenflow_sync topk_ratio 0.1",
    "strategy zenflow topk_ratio 0.25",
    "strategy zenflow topk_ratio 0.1 swap global optimistic no",
    "strategy zenflow topk_ratio 0.1 swap rolling optimistic no cpu_update mean accumulate_on device",
    "strategy selected_only topk_ratio 0.1",
};

static const char OPT[] =
    "{'model_type': 'opt', 'vocab_size': 61, 'max_position_embeddings': 64, 'hidden_size': 24, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 3, 'ffn_dim': 96, 'word_embed_proj_dim': 24, 'do_layer_norm_before': true,"
    " 'activation_function': 'relu'}";
static const char QWEN2[] =
    "{'model_type': 'qwen2', 'vocab_size': 131, 'hidden_size': 32, 'intermediate_size': 72, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-6, 'hidden_act': 'silu',"
    " 'rope_theta': 1000000.0, 'tie_word_embeddings': true}";
static const char QWEN3[] =
    "{'model_type': 'qwen3', 'vocab_size': 131, 'hidden_size': 32, 'intermediate_size': 72, 'num_hidden_layers': 2, 'head_dim': 16,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-6, 'hidden_act': 'silu',"
    " 'rope_theta': 1000000.0, 'tie_word_embeddings': true}";
static const char *const families[] = {TINY_LLAMA, TINY_GPT2, OPT, QWEN2, QWEN3};

static size_t planned_bytes(const struct zf_memory_plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < ZF_PLAN_ROWS; i++) sum += p->device[i];
    return sum;
}

/* Some steps of every strategy, family and type: the most there was is what the plan says, and all of it was taken before. */
static void test_plan(void **state)
{
    enum { PRODUCTS = 32 << 20 }; /* a workspace that is more than these models */
    const struct zf_pipeline_grain grain = zf_pipeline_grain;
    (void)state;
    zf_pipeline_grain = (struct zf_pipeline_grain){.piece = 1024, .chunk = 1024, .page = 64}; /* or rings would be more than all else */
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        struct source s;
        source_make(&s, families[f], 2 * GOLDEN_ROWS, 10);
        for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
            enum zf_dtype dtype = (f + k) % 2 ? ZF_BF16 : ZF_F32;
            struct planned x;
            struct zf_device_info info;
            start(&x, &s, policies[k], &(struct run_options){.dtype = dtype, .threads = 1, .recompute = k % 3 == 0});
            long before = cudaemu_calls("cudaMalloc");
            for (uint64_t t = 1; t <= 10; t++) run_step(&x.run, t);
            x.run.device->type->info(x.run.device, &info);
            size_t plan = planned_bytes(&x.plan) - PRODUCTS, peak = info.own_peak - PRODUCTS;
            if (dtype == ZF_BF16 && zf_policy_offloads(&x.run.pipeline.policy) && !zf_policy_selects(&x.run.pipeline.policy))
                plan -= x.run.model.params.elements * sizeof(float); /* masters have gone before anything is multiplied */
            if (peak > plan || peak < plan - plan / 100)
                fail_msg("family %zu, %s, %s: planned %zu, counted %zu", f, policies[k], zf_dtype_name(dtype), plan, peak);
            if (cudaemu_calls("cudaMalloc") != before) fail_msg("family %zu, %s: cudaMalloc in a step", f, policies[k]);
            if (info.unlocked || info.locked > x.plan.pinned)
                fail_msg("family %zu, %s: pinned %zu, planned %zu", f, policies[k], info.locked, x.plan.pinned);
            run_close(&x.run);
        }
        source_free(&s);
    }
    zf_pipeline_grain = grain;
}

/* The same losses, whatever could be pinned. */
static void test_losses_without_pins(void **state)
{
    enum { STEPS = 12 };
    static const char *const most[] = {NULL, "0", "5"};
    double losses[3][STEPS + 1];
    struct source s;
    (void)state;
    source_make(&s, TINY_LLAMA, 2 * GOLDEN_ROWS, 12);
    for (size_t i = 0; i < 3; i++) {
        struct planned x;
        if (most[i]) setenv("CUDAEMU_PIN_MB", most[i], 1);
        start(&x, &s, policies[4], &(struct run_options){.dtype = ZF_BF16, .threads = 1});
        for (uint64_t t = 1; t <= STEPS; t++) run_step(&x.run, t);
        memcpy(losses[i], x.run.losses, sizeof losses[i]);
        run_close(&x.run);
        unsetenv("CUDAEMU_PIN_MB");
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_memory_equal(losses[0], losses[2], sizeof losses[0]);
    source_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),       cmocka_unit_test(test_reserved), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_refused_pins), cmocka_unit_test(test_plan),     cmocka_unit_test(test_losses_without_pins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
