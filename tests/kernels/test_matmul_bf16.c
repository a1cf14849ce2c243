/* Products of bf16 against sums in double: every transposition, type of c, bias, gaps between rows; the same bits for 1, 2 and 3 threads.
 * Run twice, the second time with oneDNN held down to AVX2, where it has no code for bf16. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "core/base/rng.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3 };
static const uint32_t POISON = 0x7fc57fc3u; /* both halves are NaN */

static struct zf_device *devices[THREADS];
static struct zf_lane *lanes[THREADS];

static int open_all(void **state)
{
    (void)state;
    struct zf_err e;
    for (int i = 0; i < THREADS; i++) {
        struct zf_device_options o = {.threads = i + 1};
        if (zf_device_open(&devices[i], "host", &o, &e) || devices[i]->type->lane_new(devices[i], "test", &lanes[i], &e)) return -1;
    }
    struct zf_device_info info;
    devices[0]->type->info(devices[0], &info);
    print_message("%s, products of bf16 %s\n", info.products, info.bf16_products ? "in hardware" : "made of f32");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        devices[i]->type->lane_free(lanes[i]);
        devices[i]->type->close(devices[i]);
    }
    return 0;
}

static uint64_t drawn;

static size_t below(size_t n)
{
    return (size_t)(zf_uniform(5, ZF_STREAM_TEST, 0, drawn++) * (double)n);
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

struct operand {
    uint16_t *block, *at; /* ends with its last element, begins off any alignment */
    size_t ld;
};

static struct operand operand_new(size_t rows, size_t cols, bool gaps)
{
    struct operand o = {.ld = cols + (gaps ? 1 + below(40) : 0)};
    size_t size = rows && cols ? (rows - 1) * o.ld + cols : 0, shift = below(32);
    o.block = need((size + shift) * sizeof *o.block);
    o.at = o.block + shift;
    for (size_t i = 0; i < size; i++) o.at[i] = zf_f32_to_bf16((float)(zf_uniform(6, ZF_STREAM_TEST, 1, drawn++) * 2 - 1));
    for (size_t i = 0; i < size; i++)
        if (i % o.ld >= cols) o.at[i] = (uint16_t)POISON; /* must not be read */
    return o;
}

static double value(const struct operand *o, bool trans, size_t row, size_t col)
{
    return (double)zf_bf16_to_f32(trans ? o->at[col * o->ld + row] : o->at[row * o->ld + col]);
}

static double read_c(const void *c, enum zf_dtype type, size_t i)
{
    return type == ZF_F32 ? (double)((const float *)c)[i] : (double)zf_bf16_to_f32(((const uint16_t *)c)[i]);
}

struct shape {
    size_t m, n, k;
    bool trans_a, trans_b, wide, bias, accumulate, gaps; /* wide: c is f32 */
};

static void say(char *text, size_t size, const struct shape *s)
{
    snprintf(text, size, "%zux%zux%zu %c%c%s%s%s%s", s->m, s->n, s->k, s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N',
             s->wide ? ", c f32" : ", c bf16", s->bias ? ", bias" : "", s->accumulate ? ", accumulate" : "", s->gaps ? ", gaps" : "");
}

/* Rows and columns far apart where there are many: sums in double take their time. */
static size_t stride_of(size_t n, size_t most)
{
    return n <= most ? 1 : n / most | 1;
}

static void compare(const struct shape *s, const struct zf_matmul_args *a, const struct operand *l, const struct operand *r,
                    const uint16_t *bias, const void *before)
{
    char text[96];
    size_t most = s->k > 1000 ? 23 : 70;
    for (size_t i = 0; i < s->m; i += stride_of(s->m, most))
        for (size_t j = 0; j < s->n; j += stride_of(s->n, most)) {
            double sum = s->accumulate ? read_c(before, a->type_c, i * a->ldc + j) : 0, size;
            if (bias) sum += (double)zf_bf16_to_f32(bias[j]);
            size = fabs(sum) + (bias ? 1 : 0);
            for (size_t k = 0; k < s->k; k++) {
                double term = value(l, s->trans_a, i, k) * value(r, s->trans_b, k, j);
                sum += term;
                size += fabs(term);
            }
            double terms = 4 * sqrt((double)s->k) + 8, tolerance = terms * 0x1p-24 * size + (s->wide ? 0 : fabs(sum) * 0x1.01p-8);
            double got = read_c(a->c, a->type_c, i * a->ldc + j);
            say(text, sizeof text, s);
            if (!(fabs(got - sum) <= tolerance))
                fail_msg("%s: row %zu, column %zu: %.9g, expected %.9g +- %.2g", text, i, j, got, sum, tolerance);
        }
}

static void check(const struct shape *s)
{
    struct operand l = operand_new(s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->gaps);
    struct operand r = operand_new(s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->gaps);
    struct operand bias = operand_new(1, s->n, false);
    struct zf_matmul_args a = {.type = ZF_BF16,
                               .type_c = s->wide ? ZF_F32 : ZF_BF16,
                               .a = l.at,
                               .b = r.at,
                               .lda = l.ld,
                               .ldb = r.ld,
                               .bias = s->bias ? bias.at : NULL,
                               .m = s->m,
                               .n = s->n,
                               .k = s->k,
                               .trans_a = s->trans_a,
                               .trans_b = s->trans_b,
                               .accumulate = s->accumulate,
                               .ldc = s->n + (s->gaps ? 1 + below(9) : 0)};
    size_t size = zf_dtype_size(a.type_c), bytes = ((s->m - 1) * a.ldc + s->n) * size, gap = (a.ldc - s->n) * size;
    char *before = need(bytes), *first = need(bytes), *c = need(bytes), text[96];
    say(text, sizeof text, s);
    for (size_t i = 0; i < bytes; i += 2) memcpy(before + i, (const char *)&POISON + i % 4, 2);
    for (size_t i = 0; s->accumulate && i < s->m; i++)
        for (size_t j = 0; j < s->n; j++) ((float *)(void *)before)[i * a.ldc + j] = (float)below(7) - 3;
    a.c = c;
    for (int d = 0; d < THREADS; d++) {
        struct zf_err e;
        memcpy(c, before, bytes);
        assert_int_equal(devices[d]->type->ops->matmul(lanes[d], &a), ZF_OK);
        if (devices[d]->type->lane_sync(lanes[d], &e)) fail_msg("%s: %s", text, e.message);
        if (d && memcmp(c, first, bytes)) fail_msg("%s: %d threads give other bits than one", text, d + 1);
        memcpy(first, c, bytes);
    }
    compare(s, &a, &l, &r, s->bias ? bias.at : NULL, before);
    for (size_t i = 0; gap && i + 1 < s->m; i++)
        if (memcmp(c + (i * a.ldc + s->n) * size, before + (i * a.ldc + s->n) * size, gap)) fail_msg("%s: written behind row %zu", text, i);
    free(l.block);
    free(r.block);
    free(bias.block);
    free(before);
    free(first);
    free(c);
}

/* How the bits of `mode` turn the flags; c of bf16 is not added to. */
static struct shape shape_of(size_t m, size_t n, size_t k, unsigned mode)
{
    struct shape s = {m, n, k, mode & 1, mode & 2, mode & 4, mode & 8, (mode & 16) && (mode & 4), mode & 32};
    return s;
}

static void every_flag(void **state)
{
    (void)state;
    for (unsigned mode = 0; mode < 64; mode++) {
        struct shape s = shape_of(37, 50, 45, mode);
        check(&s);
    }
}

/* More shapes than primitives are kept. */
static void odd_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65, 127, 255};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < 220; i++) {
        struct shape s = shape_of(sizes[below(SIZES)], sizes[below(SIZES)], sizes[below(SIZES)], (unsigned)below(64));
        check(&s);
    }
}

/* Every way a grid is cut: tiles of rows with an odd rest, columns of a wide c, pieces and parts of a long K. */
static void large_sizes(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {.m = 515, .n = 576, .k = 320},
        {.m = 300, .n = 960, .k = 576, .bias = true, .gaps = true},
        {.m = 515, .n = 320, .k = 960, .trans_b = true},
        {.m = 576, .n = 192, .k = 1021, .trans_a = true, .wide = true, .accumulate = true},
        {.m = 300, .n = 192, .k = 2500, .trans_a = true, .wide = true, .accumulate = true, .bias = true},
        {.m = 70, .n = 64, .k = 2500, .trans_a = true},
        {.m = 33, .n = 16999, .k = 96, .trans_b = true, .wide = true, .bias = true},
        {.m = 270, .n = 16500, .k = 16, .trans_b = true},
        {.m = 33, .n = 17000, .k = 24, .trans_b = true, .wide = true, .accumulate = true, .gaps = true},
        {.m = 67, .n = 96, .k = 13000, .bias = true},
        {.m = 300, .n = 40, .k = 9001, .gaps = true},
        {.m = 20, .n = 40, .k = 9001, .wide = true, .accumulate = true, .gaps = true},
        {.m = 5000, .n = 96, .k = 200, .trans_a = true, .wide = true, .accumulate = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i]);
}

static void no_k(void **state)
{
    (void)state;
    for (unsigned mode = 0; mode < 64; mode++) {
        struct shape s = shape_of(5, 19, 0, mode);
        check(&s);
    }
}

/* Two lanes multiply on one device at once. */
static void two_lanes(void **state)
{
    (void)state;
    enum { M = 200, N = 320, K = 256, TIMES = 12 };
    struct zf_device *d = devices[1];
    struct zf_lane *second;
    struct zf_err e;
    struct operand l = operand_new(M, K, false), r = operand_new(K, N, false);
    float *c[2] = {need(sizeof(float) * M * N), need(sizeof(float) * M * N)};
    assert_int_equal(d->type->lane_new(d, "second", &second, &e), ZF_OK);
    struct zf_lane *both[2] = {lanes[1], second};
    memset(c[0], 0, sizeof(float) * M * N);
    memset(c[1], 0, sizeof(float) * M * N);
    for (int t = 0; t < TIMES; t++)
        for (int i = 0; i < 2; i++) {
            struct zf_matmul_args a = {.type = ZF_BF16,
                                       .type_c = ZF_F32,
                                       .a = l.at,
                                       .b = r.at,
                                       .c = c[i],
                                       .m = M,
                                       .n = N,
                                       .k = K,
                                       .lda = K,
                                       .ldb = N,
                                       .ldc = N,
                                       .accumulate = true};
            assert_int_equal(d->type->ops->matmul(both[i], &a), ZF_OK);
        }
    for (int i = 0; i < 2; i++) assert_int_equal(d->type->lane_sync(both[i], &e), ZF_OK);
    assert_memory_equal(c[0], c[1], sizeof(float) * M * N);
    double sum = 0;
    for (size_t k = 0; k < K; k++) sum += TIMES * value(&l, false, 11, k) * value(&r, false, k, 13);
    assert_true(fabs((double)c[0][11 * N + 13] - sum) < 1e-3);
    d->type->lane_free(second);
    free(l.block);
    free(r.block);
    free(c[0]);
    free(c[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flag), cmocka_unit_test(odd_sizes), cmocka_unit_test(large_sizes),
        cmocka_unit_test(no_k),       cmocka_unit_test(two_lanes),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
