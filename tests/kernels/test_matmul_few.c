/* Products with few rows, in both types, against loops in double: every transposition, type of c, bias, sum, gap between rows; the same
 * bits on each instruction set and number of threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/kernels/harness.h"
#include "tests/kernels/reference.h"

#include <stdio.h>

struct shape {
    size_t m, n, k;
    unsigned mode; /* bits: trans_a, trans_b, c of f32, bias, accumulate */
};

static void check(enum zf_dtype type, const struct shape *s)
{
    bool wide = type == ZF_F32 || s->mode & 4, bias = s->mode & 8;
    char what[96];
    struct zf_matmul_args a = {.type = type,
                               .type_c = wide ? ZF_F32 : ZF_BF16,
                               .m = s->m,
                               .n = s->n,
                               .k = s->k,
                               .trans_a = s->mode & 1,
                               .trans_b = s->mode & 2,
                               .accumulate = wide && s->mode & 16};
    a.lda = some_ld(a.trans_a ? a.m : a.k);
    a.ldb = some_ld(a.trans_b ? a.k : a.n);
    a.ldc = some_ld(a.n);
    struct matrix x = a.trans_a ? typed_random(a.k, a.m, a.lda) : typed_random(a.m, a.k, a.lda);
    struct matrix w = a.trans_b ? typed_random(a.n, a.k, a.ldb) : typed_random(a.k, a.n, a.ldb);
    struct matrix b = typed_random(1, a.n, a.n);
    struct matrix c = a.accumulate ? matrix_random(a.m, a.n, a.ldc) : wide ? matrix_new(a.m, a.n, a.ldc) : typed_new(a.m, a.n, a.ldc);
    double *expected = matrix_double(&c);
    reference_matmul(&a, matrix_double(&x), matrix_double(&w), bias ? matrix_double(&b) : NULL, expected);
    a.a = data(&x);
    a.b = data(&w);
    a.bias = bias ? data(&b) : NULL;
    a.c = data(&c);
    snprintf(what, sizeof what, "matmul %zux%zux%zu, %s, mode %u", a.m, a.n, a.k, zf_dtype_name(type), s->mode);
    check_op(what, call_matmul, &a, &(struct output){&c, expected, 4e-6}, 1);
}

static void test_any(void **state)
{
    enum zf_dtype type = use_type(state);
    for (unsigned i = 0; i < 256; i++) {
        reseed(100 + i);
        struct shape s = {1 + i % 4, 1 + below(i % 5 ? 90 : 700), 1 + below(i % 5 ? 90 : 700), i / 4 % 32};
        check(type, &s);
    }
}

/* Cut into panels of columns, parts of K, groups of rows, with rests of each. */
static void test_cut(void **state)
{
    enum zf_dtype type = use_type(state);
    static const struct shape shapes[] = {{1, 576, 1536, 0}, {1, 192, 576, 8},     {2, 4111, 137, 4},     {1, 6200, 65, 28},
                                          {4, 3001, 203, 8}, {1, 5003, 96, 2 | 4}, {3, 700, 999, 2 | 12}, {1, 65537, 9, 0},
                                          {1, 40000, 8, 2},  {1, 1, 70000, 1},     {2, 3, 30011, 16 | 4}, {1, 1, 20001, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        reseed(900 + i);
        check(type, &shapes[i]);
    }
}

#define BOTH(test) \
    {#test " in f32", test, NULL, NULL, &as_f32}, \
    { \
#test " in bf16", test, NULL, NULL, &as_bf16 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {BOTH(test_any), BOTH(test_cut)};
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
