/* Whole steps on the GPU, here the emulated one, against the host, of every family there is in tests/golden/families and ZF_SHARED: the
 * same losses, norms and weights within rounding, in fp32 and bf16, with recompute, micro-batches, packed documents, under several
 * policies. */
#include "bits.h"

#include <dirent.h>

enum { LONG = 6, ROW = 11 };

/* Of the golden trajectories in fp32; of what PyTorch's own bf16 needs in bf16 (core/run/verify.c). */
static const struct limits {
    double loss, norm, matrix, vector;
} limits[] = {[ZF_F32] = {1e-5, 1e-4, 1e-4, 5e-3}, [ZF_BF16] = {5e-3, 5e-2, 5e-2, 0.2}};

static const struct {
    const char *options;
    struct run_options how;
} ways[] = {
    {"strategy gpu_only", {.dtype = ZF_F32}},
    {"strategy zenflow topk_ratio 0.25 update_interval 2 select_interval 2", {.dtype = ZF_F32, .recompute = true, .packed = true}},
    {"strategy zero_offload", {.dtype = ZF_BF16, .two_micro_batches = true, .packed = true}},
    {"strategy zenflow_sync topk_ratio 0.25 update_interval 2 select_interval 2",
     {.dtype = ZF_BF16, .recompute = true, .two_micro_batches = true}},
    {"strategy zenflow topk_ratio 0.25 update_interval 2 select_interval 2 optimistic no cpu_update mean accumulate_on device",
     {.dtype = ZF_F32, .two_micro_batches = true}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void train_on(struct result *out, double norms[LONG + 1], const struct source *s, size_t way, const char *device)
{
    struct run r;
    struct run_options how = ways[way].how;
    how.threads = 1;
    how.device = device;
    run_open_text(&r, s, ways[way].options, &how);
    assert_string_equal(r.device->type->name, device);
    for (uint64_t t = 1; t <= LONG; t++) run_step(&r, t);
    memcpy(norms, r.norms, (LONG + 1) * sizeof *norms);
    ok(zf_pipeline_drain(&r.pipeline, &e));
    result_take(out, &r);
    run_close(&r);
}

static void near_by(const char *what, const char *name, double a, double b, double limit)
{
    if (!(fabs(a - b) <= limit * fabs(b))) fail_msg("%s: %s: %.9g on the GPU, %.9g on the host", what, name, a, b);
}

static void compare(const char *what, const struct source *s, size_t way)
{
    struct result host = {0}, cuda = {0};
    double host_norms[LONG + 1], cuda_norms[LONG + 1];
    char name[64];
    const struct limits *l = &limits[ways[way].how.dtype];
    train_on(&host, host_norms, s, way, "host");
    train_on(&cuda, cuda_norms, s, way, "cuda");
    for (size_t t = 1; t <= LONG; t++) {
        snprintf(name, sizeof name, "step %zu: loss", t);
        near_by(what, name, cuda.losses[t], host.losses[t], l->loss);
        snprintf(name, sizeof name, "step %zu: norm", t);
        near_by(what, name, cuda_norms[t], host_norms[t], l->norm);
    }
    struct zf_params params;
    struct zf_arena arena = {0};
    ok(zf_params_build(&params, &s->config, &arena, &e));
    assert_int_equal(params.count, cuda.count);
    for (size_t i = 0; i < cuda.count; i++) {
        double off = 0, size = 0;
        for (size_t k = 0; k < cuda.size[i]; k++) {
            off += pow((double)cuda.weights[i][k] - host.weights[i][k], 2);
            size += pow((double)host.weights[i][k], 2);
        }
        double limit = params.list[i].matrix ? l->matrix : l->vector;
        if (!(sqrt(off) <= limit * sqrt(size))) fail_msg("%s: %s differs by %.3g", what, params.list[i].name, sqrt(off / size));
    }
    zf_arena_free(&arena);
    result_free(&host);
    result_free(&cuda);
}

static void a_family(const char *path, const char *name, size_t turn)
{
    struct zf_hf hf;
    struct source s;
    char what[1200];
    ok(zf_hf_open(&hf, path, &e));
    s = (struct source){.hf = &hf, .rows = GOLDEN_ROWS * LONG, .length = ROW, .ids = malloc(GOLDEN_ROWS * LONG * ROW * sizeof *s.ids)};
    assert_non_null(s.ids);
    ok(zf_model_config_read(&s.config, hf.config, path, &e));
    for (size_t i = 0; i < s.rows * s.length; i++)
        s.ids[i] = 3 + (int64_t)(zf_uniform(3, ZF_STREAM_TEST, 0, i) * (double)(s.config.vocab - 3)); /* OPT's padding is below */
    for (size_t way = 0; way < WAYS; way++) {
        if (left_out(way + turn, 2)) continue; /* the families take turns at the ways */
        snprintf(what, sizeof what, "%s, %s, %s", name, ways[way].options, zf_dtype_name(ways[way].how.dtype));
        compare(what, &s, way);
    }
    source_free(&s);
    zf_hf_close(&hf);
}

/* only: what the names of folders end with. */
static size_t all_in(const char *root, const char *below, const char *only)
{
    char folder[1024], path[1400];
    struct dirent **list;
    snprintf(folder, sizeof folder, "%s/%s", root, below);
    int n = scandir(folder, &list, NULL, alphasort);
    size_t done = 0, length = strlen(only);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
        FILE *there = strlen(name) >= length && !strcmp(name + strlen(name) - length, only) ? fopen(path, "r") : NULL;
        if (there) {
            fclose(there);
            snprintf(path, sizeof path, "%s/%s", folder, name);
            a_family(path, name, done++);
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    return done;
}

static void test_families_of_our_own(void **state)
{
    (void)state;
    const char *source = getenv("ZF_SOURCE");
    assert_non_null(source);
    assert_true(all_in(source, "tests/golden/families", "") > 10);
}

static void test_golden_families(void **state)
{
    (void)state;
    const char *shared = getenv("ZF_SHARED");
    if (!shared || !all_in(shared, "golden/families", "-plain")) {
        print_message("the golden families are not here (ZF_SHARED)\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families_of_our_own), cmocka_unit_test(test_golden_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
