/* Cross-entropy: every path this processor runs against plain loops in double. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "core/base/rng.h"
#include "kernels/host/path.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct zf_host_kernel zf_host_cross_entropy_scalar, zf_host_cross_entropy_avx2, zf_host_cross_entropy_avx512;
extern const struct zf_host_kernel zf_host_cross_entropy_scalar_bf16, zf_host_cross_entropy_avx2_bf16, zf_host_cross_entropy_avx512_bf16;

enum { PATH_COUNT = 3 };

static const struct zf_host_kernel *const paths[PATH_COUNT] = {
    &zf_host_cross_entropy_scalar, &zf_host_cross_entropy_avx2, &zf_host_cross_entropy_avx512};
static const struct zf_host_kernel *const paths_bf16[PATH_COUNT] = {&zf_host_cross_entropy_scalar_bf16, &zf_host_cross_entropy_avx2_bf16,
                                                                    &zf_host_cross_entropy_avx512_bf16};

static bool path_runs(size_t i)
{
    bool runs[PATH_COUNT] = {true, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), __builtin_cpu_supports("avx512f")};
    return runs[i];
}

/* Logits of `rows` rows, ld apart; the columns behind n hold a number that nothing may change or use. */
struct problem {
    size_t rows, n, ld, size;
    float *logits;
    int32_t *target;
    float scale;
};

struct result {
    float *logits, *loss;
};

static const float GAP = 12345.678f;

static uint64_t seed, drawn;

static size_t below(size_t n)
{
    return (size_t)(zf_uniform(seed, ZF_STREAM_TEST, 0, drawn++) * (double)n);
}

static void *need(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    assert_non_null(p);
    return p;
}

static struct problem problem_new(size_t rows, size_t n, double size)
{
    struct problem p = {.rows = rows, .n = n, .ld = n + below(20), .scale = 0.25f};
    p.size = rows * p.ld;
    p.logits = need(p.size, sizeof(float));
    p.target = need(rows, sizeof(int32_t));
    for (size_t r = 0; r < rows; r++) {
        p.target[r] = below(5) ? (int32_t)below(n) : below(2) ? -1 : -100;
        float *x = p.logits + r * p.ld;
        for (size_t c = 0; c < p.ld; c++) x[c] = c < n ? (float)(size * zf_normal(seed, ZF_STREAM_TEST, 1, drawn++)) : GAP;
    }
    return p;
}

static void problem_free(struct problem *p)
{
    free(p->logits);
    free(p->target);
}

enum order { FORWARD, REVERSE, RANDOM };

static struct result run_kernel(const struct problem *p, const struct zf_host_kernel *kernel, enum zf_dtype type, bool gradient,
                                enum order order)
{
    struct result r = {need(p->size, sizeof(float)), need(p->rows, sizeof(float))};
    memcpy(r.logits, p->logits, p->size * sizeof(float));
    for (size_t i = 0; i < p->rows; i++) r.loss[i] = NAN;
    struct zf_cross_entropy_args a = {.type = type,
                                      .logits = r.logits,
                                      .target = p->target,
                                      .loss = r.loss,
                                      .rows = p->rows,
                                      .n = p->n,
                                      .ld = p->ld,
                                      .scale = p->scale,
                                      .gradient = gradient};
    size_t tasks = kernel->tasks(&a);
    for (size_t i = 0; i < tasks; i++)
        kernel->run(&a, order == REVERSE ? tasks - 1 - i : order == RANDOM ? (size_t)zf_permute(i, tasks, 7, 0) : i);
    return r;
}

static struct result run_problem(const struct problem *p, size_t path, bool gradient, enum order order)
{
    return run_kernel(p, paths[path], ZF_F32, gradient, order);
}

static void result_free(struct result *r)
{
    free(r->logits);
    free(r->loss);
}

/* In bf16: the losses, bit by bit, and the gradient rounded once, at the beginning of its row. */
static void check_bf16(const struct problem *p, const struct result *r, size_t path, bool gradient)
{
    struct result half = run_kernel(p, paths_bf16[path], ZF_BF16, gradient, FORWARD);
    assert_memory_equal(half.loss, r->loss, p->rows * sizeof(float));
    for (size_t row = 0; row < p->rows; row++) {
        const float *expected = r->logits + row * p->ld, *found = half.logits + row * p->ld;
        for (size_t c = 0; c < p->n && gradient; c++) {
            uint16_t h;
            memcpy(&h, (const char *)found + c * sizeof h, sizeof h);
            assert_int_equal(h, zf_f32_to_bf16(expected[c]));
        }
        if (!gradient) assert_memory_equal(found, expected, p->n * sizeof(float));
        for (size_t c = p->n; c < p->ld; c++) assert_memory_equal(&found[c], &GAP, sizeof GAP);
    }
    result_free(&half);
}

static double reference_loss(const double *x, size_t n, int32_t target)
{
    double max = -INFINITY, sum = 0;
    for (size_t c = 0; c < n; c++) max = fmax(max, x[c]);
    for (size_t c = 0; c < n; c++) sum += exp(x[c] - max);
    return target < 0 ? 0 : log(sum) + max - x[target];
}

/* One row: loss within 1e-6 (relative above 1), gradient within 1e-6 of its largest possible element. */
static void check_row(const struct problem *p, const struct result *r, size_t row, bool gradient)
{
    double *x = need(p->n, sizeof *x), loss;
    const float *found = r->logits + row * p->ld;
    for (size_t c = 0; c < p->n; c++) x[c] = (double)p->logits[row * p->ld + c];
    loss = reference_loss(x, p->n, p->target[row]);
    assert_true(fabs((double)r->loss[row] - loss) <= 1e-6 * fmax(1, loss));
    for (size_t c = p->n; c < p->ld; c++) assert_memory_equal(&found[c], &GAP, sizeof GAP);
    if (!gradient) {
        assert_memory_equal(found, p->logits + row * p->ld, p->n * sizeof(float));
    } else if (p->target[row] < 0) {
        for (size_t c = 0; c < p->n; c++) assert_true(found[c] == 0);
    } else {
        double lse = loss + x[p->target[row]];
        for (size_t c = 0; c < p->n; c++) {
            double expected = (double)p->scale * (exp(x[c] - lse) - (c == (size_t)p->target[row]));
            assert_true(fabs((double)found[c] - expected) <= 1e-6 * (double)p->scale);
            if (c != (size_t)p->target[row]) assert_true(fabs((double)found[c] - expected) <= 3e-6 * expected + 1e-37);
        }
    }
    free(x);
}

static void test_paths_match_reference(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 512, 1023, 1024, 1025, 5000, 50257};
    static const double spreads[] = {0, 1, 5, 1e4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < 2 * sizeof spreads / sizeof *spreads; k++) {
            seed = 500 + i;
            struct problem p = problem_new(sizes[i] > 10000 ? 2 : 1 + below(8), sizes[i], spreads[k / 2]);
            struct result first = {0};
            for (size_t path = 0; path < PATH_COUNT; path++) {
                if (!path_runs(path)) continue;
                struct result r = run_problem(&p, path, k % 2, FORWARD);
                for (size_t row = 0; row < p.rows; row++) check_row(&p, &r, row, k % 2);
                check_bf16(&p, &r, path, k % 2);
                if (path == 0) {
                    first = r;
                    continue;
                }
                assert_memory_equal(first.logits, r.logits, p.size * sizeof(float));
                assert_memory_equal(first.loss, r.loss, p.rows * sizeof(float));
                result_free(&r);
            }
            result_free(&first);
            problem_free(&p);
        }
    }
}

static void test_order_of_tasks_does_not_matter(void **state)
{
    (void)state;
    seed = 600;
    struct problem p = problem_new(700, 1000, 3); /* many tasks, the last a short one */
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        struct result a = run_problem(&p, path, true, FORWARD), b = run_problem(&p, path, true, REVERSE);
        struct result c = run_problem(&p, path, true, RANDOM);
        for (size_t row = 0; row < p.rows; row++) check_row(&p, &a, row, true);
        assert_memory_equal(a.logits, b.logits, p.size * sizeof(float));
        assert_memory_equal(a.loss, b.loss, p.rows * sizeof(float));
        assert_memory_equal(a.logits, c.logits, p.size * sizeof(float));
        assert_memory_equal(a.loss, c.loss, p.rows * sizeof(float));
        result_free(&a);
        result_free(&b);
        result_free(&c);
    }
    problem_free(&p);
}

/* One bad logit, anywhere in the row: the loss of a trained row says so, that of another row is 0 and its gradient too. */
static void test_non_finite_logits(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t sizes[] = {1, 5, 16, 70, 1030};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes * 4 * 16; i++) {
        size_t n = sizes[i / 64];
        seed = 700 + i;
        struct problem p = problem_new(3, n, 1);
        size_t where = below(n);
        p.target[0] = (int32_t)below(n);
        p.target[1] = i / 4 % 2 ? (int32_t)where : (int32_t)below(n);
        p.target[2] = -1;
        p.logits[p.ld + where] = p.logits[2 * p.ld + where] = bad[i % 4];
        for (size_t path = 0; path < PATH_COUNT; path++) {
            if (!path_runs(path)) continue;
            for (int gradient = 0; gradient < 2; gradient++) {
                struct result r = run_problem(&p, path, gradient, FORWARD);
                check_row(&p, &r, 0, gradient);
                check_bf16(&p, &r, path, gradient);
                assert_false(isfinite(r.loss[1]));
                assert_true(r.loss[2] == 0);
                for (size_t c = 0; c < n && gradient; c++) assert_true(r.logits[2 * p.ld + c] == 0);
                result_free(&r);
            }
        }
        problem_free(&p);
    }
}

static void test_gradient_is_central_difference(void **state)
{
    (void)state;
    const double h = 1e-5;
    seed = 800;
    struct problem p = problem_new(6, 37, 2);
    double *x = need(p.n, sizeof *x);
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        struct result r = run_problem(&p, path, true, FORWARD);
        for (size_t row = 0; row < p.rows; row++) {
            for (size_t c = 0; c < p.n; c++) x[c] = (double)p.logits[row * p.ld + c];
            for (size_t c = 0; c < p.n; c++) {
                double kept = x[c], more, less;
                x[c] = kept + h;
                more = reference_loss(x, p.n, p.target[row]);
                x[c] = kept - h;
                less = reference_loss(x, p.n, p.target[row]);
                x[c] = kept;
                assert_true(fabs((double)p.scale * (more - less) / (2 * h) - (double)r.logits[row * p.ld + c]) < 1e-6);
            }
        }
        result_free(&r);
    }
    free(x);
    problem_free(&p);
}

static void test_no_rows(void **state)
{
    (void)state;
    struct zf_cross_entropy_args a = {.type = ZF_F32, .n = 10, .ld = 10};
    for (size_t path = 0; path < PATH_COUNT; path++) if (path_runs(path)) assert_int_equal(paths[path]->tasks(&a), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_match_reference),
        cmocka_unit_test(test_order_of_tasks_does_not_matter),
        cmocka_unit_test(test_non_finite_logits),
        cmocka_unit_test(test_gradient_is_central_difference),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
