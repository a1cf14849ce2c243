/* What a gradient does to rows of the CPU half on its way to them: packed as it is, weights moved as expected, rounded by chance. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/reference_rows.h"
#include "tests/kernels/rows_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 40 };

/* ---- hand_over ---- */

struct handed {
    struct zf_hand_over_args a;
    size_t of;
};

static void make_handed(struct handed *h, size_t i)
{
    size_t rows = some_rows(i), cols = some_cols(i / 3), of = rows + below(9);
    enum zf_dtype type = i % 2 ? ZF_BF16 : ZF_F32, bus = i / 2 % 2 ? ZF_BF16 : ZF_F32;
    float *channel = floats(of), *column = floats(cols), *g = floats(of * cols);
    double *partial = block(3, sizeof *partial);
    void *half, *packed = block(rows * cols, zf_dtype_size(bus));
    float *weights = halves_of(of * cols, &half);
    for (size_t n = 0; n < of; n++) channel[n] = n % 5 == 0 ? 0 : n % 5 == 1 ? -channel[n] * channel[n] : channel[n] * channel[n];
    for (size_t c = 0; c < cols; c++) column[c] = fabsf(column[c]);
    for (size_t j = 0; j < 3; j++) partial[j] = (double)j;
    for (size_t j = 0; j < of * cols; j += 7) g[j] = 0;
    *h = (struct handed){{.type = type,
                          .bus_type = bus,
                          .g = g,
                          .list = i % 3 ? some_list(rows, of) : NULL,
                          .packed = i % 4 ? packed : NULL,
                          .weights = i % 5 == 4        ? NULL
                                     : type == ZF_BF16 ? half
                                                       : weights,
                          .channel = channel,
                          .column = column,
                          .partial = partial,
                          .partials = 3,
                          .rows = rows,
                          .cols = cols,
                          .clip = 0.25f,
                          .rate = i % 8 ? 1e-2 : 1e-5,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .seed = 5,
                          .step = 1 + i,
                          .first = i % 3 ? below(1000) : (1ull << 32) - 37},
                         of};
}

/* Weights of bf16 lie at one of the neighbours of what is expected. */
static void check_weight(const struct zf_hand_over_args *a, size_t at, double old, double expected)
{
    double x = number_of(a->weights, a->type, at);
    double ulp = a->type == ZF_BF16 ? ldexp(1, ilogb(fmax(fabs(expected), 0x1p-120)) - 7) : 0;
    if (!(fabs(x - expected) <= ulp + 3e-7 * (fabs(old) + fabs(expected) + a->rate)))
        fail_msg("hand_over: weight %zu is %.9g, expected %.9g", at, x, expected);
}

static void check_handed(const struct handed *h, bool moves)
{
    const struct zf_hand_over_args *a = &h->a;
    size_t size = zf_dtype_size(a->type), cols = a->cols;
    for (size_t r = 0; r < a->rows; r++) {
        size_t n = a->list ? a->list[r] : r;
        for (size_t c = 0; c < cols; c++) {
            float g = a->g[n * cols + c];
            if (a->packed && a->bus_type == ZF_BF16) assert_int_equal(half_of(a->packed, r * cols + c), zf_f32_to_bf16(g));
            if (a->packed && a->bus_type == ZF_F32) assert_true(number_of(a->packed, ZF_F32, r * cols + c) == (double)g);
            if (!a->weights || !moves || !(a->channel[n] > 0)) continue;
            double w = number_of(before(a->weights), a->type, n * cols + c);
            check_weight(
                a, n * cols + c, w,
                reference_moved(w, (double)a->clip * (double)g, (double)a->channel[n], (double)a->column[c], a->rate, a->beta2, a->eps));
        }
        if (a->weights && (!moves || !(a->channel[n] > 0))) untouched("hand_over", a->weights, n, cols * size);
    }
    for (size_t n = 0; a->weights && n < h->of; n++)
        if (a->list ? !listed(a->list, a->rows, n) : n >= a->rows) untouched("hand_over", a->weights, n, cols * size);
}

static void test_hand_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * CASES; i++) {
        struct handed h;
        case_begin(35000 + i);
        make_handed(&h, i);
        everywhere("hand_over", call_hand_over, &h.a);
        check_handed(&h, true);
        case_end();
    }
}

/* A matrix with a bad partial sum does not move; its gradient goes its way. */
static void test_hand_over_of_bad_gradients(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t i = 0; i < 24; i++) {
        struct handed h;
        case_begin(36000 + i);
        make_handed(&h, i);
        ((double *)(uintptr_t)h.a.partial)[i % 3] = bad[i / 3 % 3];
        everywhere("hand_over", call_hand_over, &h.a);
        check_handed(&h, false);
        case_end();
    }
}

/* No gradient, however rare and large, takes a weight further than rate / sqrt(1 - beta2). */
static void test_hand_over_of_rare_rows(void **state)
{
    enum { R = 3, C = 40 };
    float g[R * C], weights[R * C], channel[R] = {1e-12f, 1e-20f, 1e-30f}, column[C];
    double partial = 1, limit = 1e-3 / sqrt(0.05);
    (void)state;
    for (size_t i = 0; i < R * C; i++) g[i] = (float)(i % 2 ? 1 : -1) * powf(10, (float)(i % C) - 25), weights[i] = 0;
    for (size_t c = 0; c < C; c++) column[c] = c % 3 ? 1 : 0;
    must_run(call_hand_over, &(struct zf_hand_over_args){.g = g,
                                                         .weights = weights,
                                                         .channel = channel,
                                                         .column = column,
                                                         .partial = &partial,
                                                         .partials = 1,
                                                         .rows = R,
                                                         .cols = C,
                                                         .clip = 1,
                                                         .rate = 1e-3,
                                                         .beta2 = 0.95,
                                                         .eps = 1e-8});
    for (size_t i = 0; i < R * C; i++) assert_true(fabs((double)weights[i]) <= limit * (1 + 1e-6));
}

/* ---- rounding of moved weights by chance ---- */

enum { N = 203 };

struct moved {
    float g[N], column[N], channel[N];
    uint16_t weights[N], moved[N];
};

static void start_moved(struct moved *x, uint64_t seed)
{
    reseed(seed);
    for (size_t i = 0; i < N; i++) {
        x->g[i] = (float)normal();
        x->column[i] = x->channel[i] = 1;
        x->weights[i] = zf_f32_to_bf16((float)normal());
    }
}

/* The weights as rows of `cols`, with a rate of 0.003: a few of a bf16's last places. */
static void move(size_t device, struct moved *x, uint64_t seed, uint64_t step, uint64_t first, size_t begin, size_t rows, size_t cols)
{
    struct zf_err e;
    double partial = 1;
    uint32_t backwards[N]; /* the order of a list is no part of it */
    for (size_t r = 0; r < rows; r++) backwards[r] = (uint32_t)(rows - 1 - r);
    struct zf_hand_over_args a = {.type = ZF_BF16,
                                  .list = backwards,
                                  .g = x->g + begin,
                                  .weights = x->moved + begin,
                                  .channel = x->channel,
                                  .column = x->column,
                                  .partial = &partial,
                                  .partials = 1,
                                  .rows = rows,
                                  .cols = cols,
                                  .clip = 1,
                                  .rate = 3e-3,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .seed = seed,
                                  .step = step,
                                  .first = first + begin};
    memcpy(x->moved + begin, x->weights + begin, rows * cols * sizeof *x->moved);
    assert_int_equal(call_hand_over(device_lane(device), &a), ZF_OK);
    assert_int_equal(device_sync(device, &e), ZF_OK);
}

/* Only the two neighbours, each as often as the other is near. */
static void test_moves_by_chance(void **state)
{
    enum { STEPS = 3000 };
    static struct moved x;
    static double sum[N];
    (void)state;
    start_moved(&x, 37000);
    memset(sum, 0, sizeof sum);
    for (uint64_t step = 0; step < STEPS; step++) {
        move(device_count() - 1, &x, 3, step, 0, 0, 1, N);
        for (size_t i = 0; i < N; i++) sum[i] += (double)zf_bf16_to_f32(x.moved[i]);
    }
    for (size_t i = 0; i < N; i++) {
        double w = (double)zf_bf16_to_f32(x.weights[i]), expected = reference_moved(w, (double)x.g[i], 1, 1, 3e-3, 0.95, 1e-8);
        double ulp = ldexp(1, ilogb(expected) - 7), p = fabs(expected) / ulp - floor(fabs(expected) / ulp);
        assert_true(fabs(sum[i] / STEPS - expected) <= ulp * (4.5 * sqrt(p * (1 - p) / STEPS) + 1e-3));
    }
}

/* The chance of an element is a function of (seed, step, its index): however the rows are cut, also where the index passes 2^32. */
static void test_chance_is_a_function(void **state)
{
    static const uint64_t firsts[] = {0, 5, (1ull << 32) - 100, (1ull << 32) + 7, UINT64_MAX / 2};
    static struct moved x;
    uint16_t once[N];
    (void)state;
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
        start_moved(&x, 38000 + k);
        move(0, &x, 7, 3, firsts[k], 0, 1, N);
        memcpy(once, x.moved, sizeof once);
        for (size_t d = 0; d < device_count(); d++) {
            for (size_t begin = 0, cols, rows; begin < N; begin += rows * cols) {
                cols = 1 + below(N - begin);
                rows = 1 + below((N - begin) / cols);
                move(d, &x, 7, 3, firsts[k], begin, rows, cols);
            }
            assert_memory_equal(once, x.moved, sizeof once);
        }
        for (int other = 0; other < 4; other++) {
            size_t differ = 0;
            move(0, &x,
                 other == 0   ? 8
                 : other == 1 ? 7 + (1ull << 32)
                              : 7,
                 other == 2 ? 4 : 3, firsts[k] + (other == 3 ? 1ull << 32 : 0), 0, 1, N);
            for (size_t i = 0; i < N; i++) differ += x.moved[i] != once[i];
            assert_true(differ > N / 8 && differ < N / 2); /* a third is expected: 2 p (1 - p) of a uniform p */
        }
    }
}

/* Equal weights, side by side: none knows of its neighbours, nor of itself in the step before. */
static void test_chance_is_independent(void **state)
{
    enum { MANY = 1 << 16, STEPS = 4 };
    static const size_t distance[] = {1, 2, 8, 15, 16, 32, 256, 4096};
    static float g[MANY], column[MANY];
    static uint16_t w[MANY];
    static signed char up[STEPS][MANY];
    float channel = 1;
    double partial = 1;
    (void)state;
    for (size_t i = 0; i < MANY; i++) g[i] = column[i] = 1;
    for (uint64_t t = 0; t < STEPS; t++) {
        double mean = 0, same = 0;
        for (size_t i = 0; i < MANY; i++) w[i] = 0x3f81;
        must_run(call_hand_over, /* half a place down: g / sqrt(1) is 1 */
                 &(struct zf_hand_over_args){.type = ZF_BF16,
                                             .g = g,
                                             .weights = w,
                                             .channel = &channel,
                                             .column = column,
                                             .partial = &partial,
                                             .partials = 1,
                                             .rows = 1,
                                             .cols = MANY,
                                             .clip = 1,
                                             .rate = 0x1p-8,
                                             .beta2 = 0.95,
                                             .seed = 1,
                                             .step = t});
        for (size_t i = 0; i < MANY; i++) {
            assert_true(w[i] == 0x3f81 || w[i] == 0x3f80);
            mean += up[t][i] = (signed char)(w[i] == 0x3f81 ? 1 : -1);
        }
        assert_true(fabs(mean) <= 4.5 * sqrt(MANY));
        for (size_t k = 0; k < sizeof distance / sizeof *distance; k++) {
            double together = 0;
            for (size_t i = distance[k]; i < MANY; i++) together += up[t][i] * up[t][i - distance[k]];
            assert_true(fabs(together) <= 4.5 * sqrt(MANY));
        }
        for (size_t i = 0; i < MANY && t; i++) same += up[t][i] * up[t - 1][i];
        assert_true(fabs(same) <= 4.5 * sqrt(MANY));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_hand_over_of_bad_gradients),
        cmocka_unit_test(test_hand_over_of_rare_rows),
        cmocka_unit_test(test_moves_by_chance),
        cmocka_unit_test(test_chance_is_a_function),
        cmocka_unit_test(test_chance_is_independent),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
