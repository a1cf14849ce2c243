/* Backward kernels against central differences, in double, of the reference's forward. The objective is the sum of w * output with random
 * w: its gradient for the outputs is w. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/kernels/harness.h"
#include "tests/kernels/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct problem;
typedef double (*objective)(const struct problem *p);

/* Inputs in double, which the objective reads, and what was computed for them. */
struct problem {
    const void *args;
    const double *weight; /* of the outputs */
    double *in[4], *scratch;
    size_t size[4];
};

static double weighted(const double *y, const double *w, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += y[i] * w[i];
    return sum;
}

static void check(const char *what, const struct problem *p, objective f, size_t input, const float *found, double tolerance)
{
    const double h = 1e-5;
    for (size_t i = 0; i < p->size[input]; i++) {
        double *x = &p->in[input][i], kept = *x, more, slope;
        *x = kept + h;
        more = f(p);
        *x = kept - h;
        slope = (more - f(p)) / (2 * h);
        *x = kept;
        if (!(fabs(slope - (double)found[i]) <= tolerance * (1 + fabs(slope))))
            fail_msg("%s: input %zu, element %zu: %g, by differences %g", what, input, i, (double)found[i], slope);
    }
}

static void copy(struct matrix *to, const struct matrix *from)
{
    memcpy(to->at, from->at, to->size * sizeof(float));
}

static double matmul_objective(const struct problem *p)
{
    const struct zf_matmul_args *a = p->args;
    reference_matmul(a, p->in[0], p->in[1], p->in[2], p->scratch);
    return weighted(p->scratch, p->weight, a->m * a->n);
}

/* y = x w + b, and its three gradients as the trainer computes them. */
static void test_linear(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 12; i++) {
        reseed(100 + i);
        size_t m = 1 + below(9), n = 1 + below(20), k = 1 + below(20);
        bool transposed = i % 2; /* w stored [n][k] */
        struct matrix x = matrix_random(m, k, k), w = transposed ? matrix_random(n, k, k) : matrix_random(k, n, n),
                      b = matrix_random(1, n, n), dy = matrix_random(m, n, n);
        struct matrix dx = matrix_new(m, k, k), dw = matrix_new(w.rows, w.cols, w.ld), db = matrix_new(1, n, n);
        memset(dw.at, 0, dw.size * sizeof(float));
        memset(db.at, 0, db.size * sizeof(float));
        must_run(call_matmul,
                 &(struct zf_matmul_args){
                     .a = dy.at, .b = w.at, .c = dx.at, .m = m, .n = k, .k = n, .lda = n, .ldb = w.ld, .ldc = k, .trans_b = !transposed});
        if (transposed)
            must_run(call_matmul, &(struct zf_matmul_args){.a = dy.at,
                                                           .b = x.at,
                                                           .c = dw.at,
                                                           .m = n,
                                                           .n = k,
                                                           .k = m,
                                                           .lda = n,
                                                           .ldb = k,
                                                           .ldc = k,
                                                           .trans_a = true,
                                                           .accumulate = true});
        else
            must_run(call_matmul, &(struct zf_matmul_args){.a = x.at,
                                                           .b = dy.at,
                                                           .c = dw.at,
                                                           .m = k,
                                                           .n = n,
                                                           .k = m,
                                                           .lda = k,
                                                           .ldb = n,
                                                           .ldc = n,
                                                           .trans_a = true,
                                                           .accumulate = true});
        must_run(call_bias_backward, &(struct zf_bias_backward_args){.dy = dy.at, .dbias = db.at, .rows = m, .n = n, .ld = n});
        struct zf_matmul_args a = {.m = m, .n = n, .k = k, .lda = k, .ldb = w.ld, .ldc = n, .trans_b = transposed};
        struct matrix scratch = matrix_new(m, n, n);
        struct problem p = {&a,
                            matrix_double(&dy),
                            {matrix_double(&x), matrix_double(&w), matrix_double(&b)},
                            matrix_double(&scratch),
                            {x.size, w.size, b.size}};
        check("linear", &p, matmul_objective, 0, dx.at, 1e-5);
        check("linear", &p, matmul_objective, 1, dw.at, 1e-5);
        check("linear", &p, matmul_objective, 2, db.at, 1e-5);
    }
}

static double norm_objective(const struct problem *p)
{
    const struct zf_norm_args *a = p->args;
    for (size_t i = 0; i < a->rows * a->groups; i++)
        reference_norm(a->kind, p->in[0] + i * a->cols, p->in[1], p->in[2], p->scratch + i * a->cols, NULL, a->cols, (double)a->eps);
    return weighted(p->scratch, p->weight, a->rows * a->groups * a->cols);
}

static void test_norm(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 16; i++) {
        reseed(200 + i);
        size_t rows = 1 + below(5), groups = 1 + below(3), cols = 2 + below(40), width = groups * cols;
        struct matrix x = matrix_random(rows, width, width), w = matrix_random(1, cols, cols), b = matrix_random(1, cols, cols),
                      dy = matrix_random(rows, width, width);
        struct matrix y = matrix_new(rows, width, width), stats = matrix_new(rows * groups, 2, 2), dx = matrix_new(rows, width, width),
                      dw = matrix_new(1, cols, cols), db = dw;
        db = matrix_new(1, cols, cols);
        memset(dw.at, 0, cols * sizeof(float));
        memset(db.at, 0, cols * sizeof(float));
        struct zf_norm_args a = {.kind = i % 2 ? ZF_LAYERNORM : ZF_RMSNORM,
                                 .x = x.at,
                                 .weight = w.at,
                                 .bias = b.at,
                                 .y = y.at,
                                 .stats = stats.at,
                                 .rows = rows,
                                 .groups = groups,
                                 .cols = cols,
                                 .ldx = width,
                                 .ldy = width,
                                 .eps = 1e-2f};
        must_run(call_norm, &a);
        must_run(call_norm_backward, &(struct zf_norm_backward_args){.kind = a.kind,
                                                                     .dy = dy.at,
                                                                     .x = x.at,
                                                                     .weight = w.at,
                                                                     .stats = stats.at,
                                                                     .dx = dx.at,
                                                                     .rows = rows,
                                                                     .groups = groups,
                                                                     .cols = cols,
                                                                     .lddy = width,
                                                                     .ldx = width,
                                                                     .lddx = width});
        must_run(call_norm_backward_weight, &(struct zf_norm_backward_weight_args){.kind = a.kind,
                                                                                   .dy = dy.at,
                                                                                   .x = x.at,
                                                                                   .stats = stats.at,
                                                                                   .dweight = dw.at,
                                                                                   .dbias = db.at,
                                                                                   .rows = rows,
                                                                                   .groups = groups,
                                                                                   .cols = cols,
                                                                                   .lddy = width,
                                                                                   .ldx = width});
        struct problem p = {
            &a, matrix_double(&dy), {matrix_double(&x), matrix_double(&w), matrix_double(&b)}, matrix_double(&y), {x.size, cols, cols}};
        check("norm", &p, norm_objective, 0, dx.at, 2e-5);
        check("norm", &p, norm_objective, 1, dw.at, 1e-5);
        check("norm", &p, norm_objective, 2, db.at, 1e-5);
    }
}

static double activation_objective(const struct problem *p)
{
    const struct zf_activation_args *a = p->args;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t c = 0; c < a->n; c++)
            p->scratch[r * a->n + c] = reference_activation(a->kind, p->in[0][r * a->ldx + c], p->in[1][r * a->ldx + c]);
    return weighted(p->scratch, p->weight, a->rows * a->n);
}

static void test_activation(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 15; i++) {
        reseed(300 + i);
        struct zf_activation_args a = {.kind = (enum zf_activation_kind)(i % 3), .rows = 1 + below(4), .n = 1 + below(40)};
        a.ldx = a.n;
        struct matrix x = matrix_random(a.rows, a.n, a.n), up = matrix_random(a.rows, a.n, a.n), dy = matrix_random(a.rows, a.n, a.n),
                      dx = matrix_new(a.rows, a.n, a.n), dup = matrix_new(a.rows, a.n, a.n);
        for (size_t j = 0; j < x.size; j++)
            if (fabsf(x.at[j]) < 1e-3f) x.at[j] = 1; /* no difference across the corner of relu */
        must_run(call_activation_backward, &(struct zf_activation_backward_args){.kind = a.kind,
                                                                                 .dy = dy.at,
                                                                                 .x = x.at,
                                                                                 .up = up.at,
                                                                                 .dx = dx.at,
                                                                                 .dup = dup.at,
                                                                                 .rows = a.rows,
                                                                                 .n = a.n,
                                                                                 .lddy = a.n,
                                                                                 .ldx = a.n,
                                                                                 .lddx = a.n});
        struct problem p = {&a, matrix_double(&dy), {matrix_double(&x), matrix_double(&up)}, matrix_double(&dy), {x.size, up.size}};
        p.scratch = matrix_double(&dy);
        check("activation", &p, activation_objective, 0, dx.at, 1e-5);
        if (a.kind == ZF_SWIGLU) check("activation", &p, activation_objective, 1, dup.at, 1e-5);
    }
}

struct rope_case {
    const double *table;
    const int32_t *position;
    size_t rows, heads, head_dim;
};

static double rope_objective(const struct problem *p)
{
    const struct rope_case *a = p->args;
    size_t width = a->heads * a->head_dim;
    memcpy(p->scratch, p->in[0], a->rows * width * sizeof(double));
    for (size_t r = 0; r < a->rows; r++)
        for (size_t h = 0; h < a->heads; h++)
            reference_rope(p->scratch + r * width + h * a->head_dim, a->table + (size_t)a->position[r] * a->head_dim, a->head_dim, false);
    return weighted(p->scratch, p->weight, a->rows * width);
}

/* The gradient for the unrotated is the inverse rotation of that for the rotated. */
static void test_rope(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++) {
        reseed(400 + i);
        int32_t position[4];
        struct rope_case a = {.position = position, .rows = 1 + below(4), .heads = 1 + below(3), .head_dim = 2 * (1 + below(20))};
        size_t width = a.heads * a.head_dim;
        struct matrix table = matrix_new(50, a.head_dim, a.head_dim), x = matrix_random(a.rows, width, width),
                      dy = matrix_random(a.rows, width, width), dx = matrix_new(a.rows, width, width);
        for (size_t j = 0; j < table.size; j += 2) {
            double angle = 7 * normal();
            table.at[j] = (float)cos(angle);
            table.at[j + 1] = (float)sin(angle);
        }
        for (size_t r = 0; r < a.rows; r++) position[r] = (int32_t)below(50);
        a.table = matrix_double(&table);
        copy(&dx, &dy);
        must_run(call_rope, &(struct zf_rope_args){.x = dx.at,
                                                   .table = table.at,
                                                   .position = position,
                                                   .rows = a.rows,
                                                   .heads = a.heads,
                                                   .head_dim = a.head_dim,
                                                   .ld = width,
                                                   .inverse = true});
        struct problem p = {&a, matrix_double(&dy), {matrix_double(&x)}, matrix_double(&x), {x.size}};
        check("rope", &p, rope_objective, 0, dx.at, 1e-5);
    }
}

struct embed_case {
    const int32_t *index;
    size_t rows, cols;
    int32_t offset;
};

static double embed_objective(const struct problem *p)
{
    const struct embed_case *a = p->args;
    double sum = 0;
    for (size_t r = 0; r < a->rows; r++)
        sum += weighted(p->in[0] + (size_t)(a->index[r] + a->offset) * a->cols, p->weight + r * a->cols, a->cols);
    return sum;
}

static void test_embed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++) {
        reseed(500 + i);
        int32_t index[20];
        struct embed_case a = {index, 1 + below(20), 1 + below(30), (int32_t)below(3)};
        struct matrix table = matrix_random(8, a.cols, a.cols), dy = matrix_random(a.rows, a.cols, a.cols),
                      dtable = matrix_new(8, a.cols, a.cols);
        for (size_t r = 0; r < a.rows; r++) index[r] = (int32_t)below(6);
        memset(dtable.at, 0, dtable.size * sizeof(float));
        must_run(call_embed_backward,
                 &(struct zf_embed_backward_args){
                     .dy = dy.at, .index = index, .dtable = dtable.at, .rows = a.rows, .cols = a.cols, .offset = a.offset, .skip = -1});
        struct problem p = {&a, matrix_double(&dy), {matrix_double(&table)}, NULL, {table.size}};
        check("embed", &p, embed_objective, 0, dtable.at, 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_norm),  cmocka_unit_test(test_activation),
        cmocka_unit_test(test_rope),   cmocka_unit_test(test_embed),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
