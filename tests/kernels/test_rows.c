/* Ops of rows that sum, move and fold them and take their second moments, against double, on every path with 1, 2 and 3 threads, bit for
 * bit alike. Others: test_hand_over.c, test_rows_adamw.c. */
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

/* ---- row_sums, move_rows, fold_rows ---- */

static void test_row_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        case_begin(31000 + i);
        size_t rows = some_rows(i), cols = i % 10 == 9 ? 40000 : some_cols(i);
        float *g = floats(rows * cols);
        double *sums = block(2 * rows, sizeof *sums);
        everywhere("row_sums", call_row_sums, &(struct zf_row_sums_args){g, sums, rows, cols, NULL});
        for (size_t r = 0; r < rows; r++) {
            double squares, magnitudes;
            reference_row_sums(g + r * cols, cols, &squares, &magnitudes);
            near("sum of squares", r, sums[2 * r], squares, 2e-6, 0);
            near("sum of magnitudes", r, sums[2 * r + 1], magnitudes, 2e-6, 0);
        }
        size_t partials = (rows * cols + ZF_SQUARES_CHUNK - 1) / ZF_SQUARES_CHUNK;
        double *with = block(2 * rows, sizeof *with), *partial = block(partials, sizeof *partial), *alone = block(partials, sizeof *alone);
        everywhere("row_sums and squares", call_row_sums, &(struct zf_row_sums_args){g, with, rows, cols, partial});
        must_run(call_sum_squares, &(struct zf_sum_squares_args){.x = g, .partial = alone, .n = rows * cols});
        assert_memory_equal(with, sums, 2 * rows * sizeof *sums);
        assert_memory_equal(partial, alone, partials * sizeof *partial);
        case_end();
    }
}

/* A number that is not finite is seen in its row, and in no other. */
static void test_row_sums_of_bad_numbers(void **state)
{
    enum { R = 5, C = 300 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float g[R * C];
    double sums[2 * R];
    (void)state;
    for (size_t i = 0; i < 60; i++) {
        size_t row = i % R, col = i % 2 ? C - 1 - i / 2 : i * 4;
        memset(g, 0, sizeof g);
        g[row * C + col] = bad[i % 3];
        must_run(call_row_sums, &(struct zf_row_sums_args){g, sums, R, C, NULL});
        for (size_t r = 0; r < R; r++) {
            assert_true(isfinite(sums[2 * r]) == (r != row) && isfinite(sums[2 * r + 1]) == (r != row));
            assert_true(isnan(sums[2 * r]) == (r == row && i % 3 == 0));
        }
    }
}

static void check_moved(const struct zf_move_rows_args *a, size_t of)
{
    size_t size = zf_dtype_size(a->type), from_size = zf_dtype_size(a->from_type);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t c = 0; c < a->cols; c++) {
            size_t to = (a->to_list ? a->to_list[r] : r) * a->cols + c, from = (a->from_list ? a->from_list[r] : r) * a->cols + c;
            if (a->type == a->from_type)
                assert_memory_equal((const char *)a->to + to * size, (const char *)a->from + from * from_size, size);
            else if (a->type == ZF_F32)
                assert_true(((uint32_t *)a->to)[to] == (uint32_t)half_of(a->from, from) << 16);
            else
                assert_int_equal(half_of(a->to, to), zf_f32_to_bf16(((const float *)a->from)[from]));
        }
    for (size_t n = 0; n < of; n++)
        if (a->to_list ? !listed(a->to_list, a->rows, n) : n >= a->rows) untouched("move_rows", a->to, n, a->cols * size);
}

/* Where types are equal any bits pass: small integers (as floats denormal) and signalling NaNs, too. */
static void test_move_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * CASES; i++) {
        case_begin(32000 + i);
        size_t rows = some_rows(i), cols = i % 3 ? some_cols(i / 3) : 1, of = rows + below(20);
        struct zf_move_rows_args a = {
            .type = i % 2 ? ZF_BF16 : ZF_F32, .from_type = i / 2 % 2 ? ZF_BF16 : ZF_F32, .rows = rows, .cols = cols};
        a.to = block(of * cols, zf_dtype_size(a.type));
        if (a.type != a.from_type) {
            void *half;
            float *x = halves_of(of * cols, &half);
            for (size_t j = 0; j < of * cols && a.from_type == ZF_F32; j++) x[j] = (float)normal();
            a.from = a.from_type == ZF_F32 ? (void *)x : half;
        } else {
            unsigned char *bits = block(of * cols, zf_dtype_size(a.type));
            for (size_t j = 0; j < of * cols * zf_dtype_size(a.type); j++) bits[j] = (unsigned char)below(256);
            if (a.type == ZF_F32) memcpy(bits, (const uint32_t[]){i % 3 ? 7 : 0x7f800001u}, sizeof(uint32_t));
            a.from = bits;
        }
        if (i % 5) a.to_list = some_list(rows, of);
        if (i % 7) a.from_list = some_list(rows, of);
        everywhere("move_rows", call_move_rows, &a);
        check_moved(&a, of);
        case_end();
    }
}

/* A list of single numbers, longer than a task. */
static void test_move_many_single_numbers(void **state)
{
    enum { MANY = 100003 };
    (void)state;
    case_begin(33000);
    uint32_t *from = block(MANY, sizeof *from), *to = block(MANY, sizeof *to), *list = some_list(MANY, MANY);
    for (uint32_t i = 0; i < MANY; i++) from[i] = i;
    everywhere("move_rows", call_move_rows,
               &(struct zf_move_rows_args){.to = to, .from = from, .from_list = list, .rows = MANY, .cols = 1});
    assert_memory_equal(to, list, MANY * sizeof *to);
    case_end();
}

/* A sum that is begun may hold anything before. */
static void test_fold_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        case_begin(34000 + i);
        size_t rows = some_rows(i), cols = some_cols(i / 2);
        enum zf_dtype type = i % 2 ? ZF_BF16 : ZF_F32;
        bool add = i / 2 % 2;
        struct pieces g, sum;
        make_pieces(&g, rows, cols, some_chunk_rows(i, rows), zf_dtype_size(type));
        make_pieces(&sum, rows, cols, some_chunk_rows(i + 1, rows), sizeof(float));
        fill_pieces(&g, rows, cols, type);
        if (add) fill_pieces(&sum, rows, cols, ZF_F32);
        float *old = malloc(rows * cols * sizeof *old);
        for (size_t r = 0; r < rows; r++) memcpy(old + r * cols, piece_row(&sum, r, cols, 4), cols * sizeof *old);
        everywhere("fold_rows", call_fold_rows, &(struct zf_fold_rows_args){type, g.chunked, sum.chunked, rows, cols, 0.37f, add});
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) {
                double x = (double)0.37f * number_of(piece_row(&g, r, cols, zf_dtype_size(type)), type, c);
                near("fold_rows", r * cols + c, (double)((float *)piece_row(&sum, r, cols, 4))[c],
                     x + (add ? (double)old[r * cols + c] : 0), 1e-7, fabs(x));
            }
        free(old);
        case_end();
    }
}

/* ---- vhat_rows, column_shares ---- */

static void test_second_moments(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        case_begin(46000 + i);
        size_t rows = some_rows(i), cols = some_cols(i / 2), of = rows + below(9);
        float *v = floats(of * cols), *channel = block(of, sizeof *channel), *share = block(cols, sizeof *share);
        double *column = block(ZF_COLUMN_PARTS * cols, sizeof *column);
        uint32_t *t = block(of, sizeof *t), *list = i % 3 ? some_list(rows, of) : NULL, *to_list = i % 4 ? some_list(rows, of) : NULL;
        for (size_t j = 0; j < of * cols; j++) v[j] = v[j] * v[j] * 1e-6f;
        for (size_t r = 0; r < of; r++) t[r] = (uint32_t)(r % 3 ? below(2000) : 0);
        if (i % 10 == 7) memset(v, 0, of * cols * sizeof *v); /* the mean is 0 */
        everywhere("vhat_rows", call_vhat_rows,
                   &(struct zf_vhat_rows_args){v, t, list, to_list, i % 5 ? channel : NULL, column, rows, cols, 0.99});
        everywhere("column_shares", call_column_shares, &(struct zf_column_shares_args){column, share, rows, cols});
        float *listed_v = malloc(rows * cols * sizeof *v);
        uint32_t *listed_t = malloc(rows * sizeof *t);
        double *means = malloc(rows * sizeof *means), *shares = malloc(cols * sizeof *shares);
        for (size_t r = 0; r < rows; r++) {
            memcpy(listed_v + r * cols, v + (list ? list[r] : r) * cols, cols * sizeof *v);
            listed_t[r] = t[list ? list[r] : r];
        }
        reference_second_moments(listed_v, listed_t, rows, cols, 0.99, means, shares);
        for (size_t r = 0; r < rows && i % 5; r++) near("channel", r, (double)channel[to_list ? to_list[r] : r], means[r], 1e-6, 0);
        for (size_t c = 0; c < cols; c++) near("share", c, (double)share[c], shares[c], 1e-6, 0);
        for (size_t n = 0; n < of; n++)
            if (i % 5 == 0 || (to_list ? !listed(to_list, rows, n) : n >= rows)) assert_true(isnan(channel[n])); /* as it was */
        free(listed_v), free(listed_t), free(means), free(shares);
        case_end();
    }
}

/* The mean of rows alone; columns of no rows at all. */
static void test_second_moments_in_part(void **state)
{
    float v[6] = {1, 2, 3, 4, 5, 6}, channel[2];
    uint32_t t[2] = {1, 0};
    double column[ZF_COLUMN_PARTS * 3];
    (void)state;
    must_run(call_vhat_rows, &(struct zf_vhat_rows_args){.v = v, .t = t, .channel = channel, .rows = 2, .cols = 3, .beta2 = 0.5});
    near("channel", 0, (double)channel[0], 4, 1e-6, 0);
    assert_true(channel[1] == 0);
    memset(column, 0xff, sizeof column);
    must_run(call_vhat_rows, &(struct zf_vhat_rows_args){.v = v, .t = t, .column = column, .cols = 3, .beta2 = 0.5});
    for (size_t i = 0; i < ZF_COLUMN_PARTS * 3; i++) assert_true(column[i] == 0);
}

/* ---- broken calls, and none ---- */

static void test_broken_calls(void **state)
{
    float x[16] = {0}, y[16] = {0};
    double d[2 * ZF_COLUMN_PARTS] = {0};
    uint32_t t[4] = {0};
    void *chunk = y;
    struct zf_chunked good = {&chunk, 4}, none = {&chunk, 0};
    struct zf_entry entry = {good, 1, 1};
    struct zf_err e;
    (void)state;
#define REFUSED(op, ...) \
    do { \
        assert_int_equal(call_##op(device_lane(0), &(struct zf_##op##_args){__VA_ARGS__}), ZF_USAGE); \
        assert_int_equal(device_sync(0, &e), ZF_USAGE); \
        assert_non_null(strstr(e.message, #op)); \
    } while (0)
#define NOTHING_TO_DO(op, ...) must_run(call_##op, &(struct zf_##op##_args){__VA_ARGS__})
#define SIZE .rows = 1, .cols = 1
    REFUSED(row_sums, .sums = d, SIZE);
    REFUSED(row_sums, .g = x, SIZE);
    REFUSED(move_rows, .to = x, SIZE);
    REFUSED(move_rows, .from = x, SIZE);
    REFUSED(move_rows, .to = x, .from = y, .type = ZF_F16, SIZE);
    REFUSED(move_rows, .to = x, .from = y, .from_type = ZF_F16, SIZE);
    REFUSED(hand_over, .packed = x, SIZE);
    REFUSED(hand_over, .packed = x, .g = y, .bus_type = ZF_F16, SIZE);
    REFUSED(hand_over, .weights = x, .g = y, .column = y, SIZE);
    REFUSED(hand_over, .weights = x, .g = y, .channel = y, SIZE);
    REFUSED(hand_over, .weights = x, .g = y, .channel = y, .column = y, .partials = 1, SIZE);
    REFUSED(hand_over, .weights = x, .g = y, .channel = y, .column = y, .type = ZF_F16, SIZE);
    REFUSED(adamw_rows, .master = x, .m = x, .v = x, .t = t, SIZE);
    REFUSED(adamw_rows, .master = x, .m = x, .v = x, .g = y, SIZE);
    REFUSED(adamw_rows, .m = x, .v = x, .g = y, .t = t, SIZE);
    REFUSED(adamw_rows, .type = ZF_BF16, .weights = x, .m = x, .v = x, .g = y, .t = t, SIZE);
    REFUSED(adamw_rows, .weights = x, .master = x, .m = x, .v = x, .g = y, .t = t, SIZE);
    REFUSED(adamw_rows, .bus_type = ZF_F16, .master = x, .m = x, .v = x, .g = y, .t = t, SIZE);
    REFUSED(serve_rows, .m = x, .v = x, .t = t, .entries = &entry, .entry_count = 1, SIZE);
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .entry_count = 1, SIZE);
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .entries = &entry, .entry_count = 1, .g_type = ZF_F16, SIZE);
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .visible = none, SIZE);
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .visible = good, .ahead = -1, SIZE);
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .visible = good, .ahead = NAN, SIZE);
    REFUSED(fold_rows, .g = good, SIZE);
    REFUSED(fold_rows, .g = none, .sum = good, SIZE);
    REFUSED(fold_rows, .g = good, .sum = good, .type = ZF_F16, SIZE);
    REFUSED(vhat_rows, .v = x, .channel = y, SIZE);
    REFUSED(vhat_rows, .t = t, .column = d, SIZE);
    REFUSED(column_shares, .column = d, SIZE);
    NOTHING_TO_DO(hand_over, .g = x, SIZE);
    NOTHING_TO_DO(serve_rows, .master = x, .m = x, .v = x, .t = t, SIZE);
    NOTHING_TO_DO(vhat_rows, .v = x, .t = t, SIZE);
#ifdef ZF_TEST_CUDA
    REFUSED(serve_rows, .master = x, .m = x, .v = x, .t = t, .visible = good, SIZE);
    assert_non_null(strstr(e.message, "a device of the host does it"));
#endif
#define NO_SIZE(op) \
    NOTHING_TO_DO(op, .rows = 3); \
    NOTHING_TO_DO(op, .cols = 3)
    NO_SIZE(row_sums);
    NO_SIZE(move_rows);
    NO_SIZE(hand_over);
    NO_SIZE(adamw_rows);
    NO_SIZE(serve_rows);
    NO_SIZE(fold_rows);
    NO_SIZE(vhat_rows);
    NOTHING_TO_DO(column_shares, .rows = 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_sums),
        cmocka_unit_test(test_row_sums_of_bad_numbers),
        cmocka_unit_test(test_move_rows),
        cmocka_unit_test(test_move_many_single_numbers),
        cmocka_unit_test(test_fold_rows),
        cmocka_unit_test(test_second_moments),
        cmocka_unit_test(test_second_moments_in_part),
        cmocka_unit_test(test_broken_calls),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
