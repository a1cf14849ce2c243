/* Every op: each instruction set and thread count against loops in double, over random shapes, distances of rows and alignments. */
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

enum { CASES = 40 };

static void some_shape(size_t *rows, size_t *cols, uint64_t i)
{
    static const size_t widths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 576};
    *rows = 1 + below(i % 4 ? 20 : 150);
    *cols = i % 2 ? widths[below(13)] : 1 + below(200);
}

static void test_matmul(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5 * CASES; i++) {
        reseed(1000 + i);
        size_t big = i % 20 ? 70 : 400;
        struct zf_matmul_args a = {.m = i % 7 ? 1 + below(big) : 1,
                                   .n = 1 + below(big),
                                   .k = i % 50 == 49 ? 0 : 1 + below(big),
                                   .trans_a = below(2),
                                   .trans_b = below(2),
                                   .accumulate = below(2)};
        bool bias = below(2);
        a.lda = some_ld(a.trans_a ? a.m : a.k);
        a.ldb = some_ld(a.trans_b ? a.k : a.n);
        a.ldc = some_ld(a.n);
        struct matrix x = a.trans_a ? matrix_random(a.k, a.m, a.lda) : matrix_random(a.m, a.k, a.lda), b = matrix_random(1, a.n, a.n);
        struct matrix w = a.trans_b ? matrix_random(a.n, a.k, a.ldb) : matrix_random(a.k, a.n, a.ldb);
        struct matrix c = a.accumulate ? matrix_random(a.m, a.n, a.ldc) : matrix_new(a.m, a.n, a.ldc);
        double *expected = matrix_double(&c);
        reference_matmul(&a, matrix_double(&x), matrix_double(&w), bias ? matrix_double(&b) : NULL, expected);
        a.a = x.at;
        a.b = w.at;
        a.bias = bias ? b.at : NULL;
        a.c = c.at;
        check_op("matmul", call_matmul, &a, &(struct output){&c, expected, 3e-6}, 1);
    }
}

/* Shapes that are cut into many tiles, rows and columns. Integers: the sum is exact, so each tile must stand in its place. */
static void test_matmul_tiles(void **state)
{
    static const size_t shapes[][3] = {{700, 90, 300},   {1, 3000, 2000},  {3, 5001, 900},
                                       {300, 2100, 500}, {65, 1500, 2500}, {1030, 17, 130}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        reseed(1500 + i);
        size_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        struct matrix x = matrix_new(m, k, k), w = matrix_new(n, k, k), c = matrix_new(m, n, n + 3);
        struct matrix row = matrix_new(1, m, m), column = matrix_new(1, n, n);
        for (size_t r = 0; r < m; r++) row.at[r] = (float)below(7) - 3;
        for (size_t r = 0; r < n; r++) column.at[r] = (float)below(7) - 3;
        for (size_t r = 0; r < m; r++)
            for (size_t j = 0; j < k; j++) x.at[r * k + j] = row.at[r];
        for (size_t r = 0; r < n; r++)
            for (size_t j = 0; j < k; j++) w.at[r * k + j] = j % 2 ? 0 : column.at[r];
        double *expected = matrix_double(&c);
        for (size_t r = 0; r < m; r++)
            for (size_t j = 0; j < n; j++) expected[r * (n + 3) + j] = (double)row.at[r] * (double)column.at[j] * (double)((k + 1) / 2);
        struct zf_matmul_args a = {
            .a = x.at, .b = w.at, .c = c.at, .m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n + 3, .trans_b = true};
        check_op("matmul in tiles", call_matmul, &a, &(struct output){&c, expected, 0}, 1);
    }
}

static void test_bias_backward(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < CASES; i++) {
        size_t rows, n;
        reseed(2000 + i);
        some_shape(&rows, &n, i);
        struct matrix dy = typed_random(rows, n, some_ld(n)), dbias = matrix_random(1, n, n);
        double *expected = matrix_double(&dbias), *d = matrix_double(&dy);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++) expected[c] += d[r * dy.ld + c];
        struct zf_bias_backward_args a = {.type = type, .dy = data(&dy), .dbias = dbias.at, .rows = rows, .n = n, .ld = dy.ld};
        check_op("bias_backward", call_bias_backward, &a, &(struct output){&dbias, expected, 1e-6}, 1);
    }
}

static void test_embed(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < CASES; i++) {
        size_t rows, cols, entries = 1;
        reseed(3000 + i);
        some_shape(&rows, &cols, i);
        entries += below(30);
        int32_t index[200], offset = (int32_t)below(3);
        struct matrix table = typed_random(entries + 2, cols, cols),
                      y = i % 2 ? typed_random(rows, cols, cols) : typed_new(rows, cols, cols);
        double *expected = matrix_double(&y), *t = matrix_double(&table);
        for (size_t r = 0; r < rows; r++) {
            index[r] = (int32_t)below(entries);
            for (size_t c = 0; c < cols; c++)
                expected[r * cols + c] = (i % 2 ? expected[r * cols + c] : 0) + t[(size_t)(index[r] + offset) * cols + c];
        }
        struct zf_embed_args a = {.type = type,
                                  .table = data(&table),
                                  .index = index,
                                  .y = data(&y),
                                  .rows = rows,
                                  .cols = cols,
                                  .offset = offset,
                                  .accumulate = i % 2};
        check_op("embed", call_embed, &a, &(struct output){&y, expected, i % 2 ? 1e-7 : 0}, 1);
    }
}

static void test_embed_backward(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < CASES; i++) {
        size_t rows, cols;
        reseed(4000 + i);
        some_shape(&rows, &cols, i);
        if (i % 8 == 0) cols = 600; /* enough for blocks of columns */
        size_t entries = 1 + below(30);
        int32_t index[200], offset = (int32_t)below(3), skip = i % 3 ? -1 : (int32_t)below(entries);
        struct matrix dy = typed_random(rows, cols, cols), dtable = matrix_random(entries + 2, cols, cols);
        double *expected = matrix_double(&dtable), *d = matrix_double(&dy);
        for (size_t r = 0; r < rows; r++) {
            index[r] = (int32_t)below(entries);
            for (size_t c = 0; c < cols && index[r] != skip; c++) expected[(size_t)(index[r] + offset) * cols + c] += d[r * cols + c];
        }
        struct zf_embed_backward_args a = {
            .type = type, .dy = data(&dy), .index = index, .dtable = dtable.at, .rows = rows, .cols = cols, .offset = offset, .skip = skip};
        check_op("embed_backward", call_embed_backward, &a, &(struct output){&dtable, expected, 2e-6}, 1);
    }
}

static void test_norm(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < 3 * CASES; i++) {
        size_t rows, cols;
        reseed(5000 + i);
        some_shape(&rows, &cols, i);
        struct zf_norm_args a = {.type = type,
                                 .kind = below(2) ? ZF_LAYERNORM : ZF_RMSNORM,
                                 .rows = rows,
                                 .cols = cols,
                                 .groups = i % 3 ? 1 : 1 + below(4),
                                 .eps = 1e-5f};
        size_t width = a.groups * cols;
        bool residual = a.groups == 1 && below(2), weight = below(4), bias = below(2), in_place = !residual && below(3) == 0;
        a.ldx = some_ld(width);
        a.ldy = in_place ? a.ldx : some_ld(width);
        struct matrix x = typed_random(rows, width, a.ldx), other = typed_random(rows, cols, cols), w = typed_random(1, cols, cols),
                      b = typed_random(1, cols, cols);
        double centre = below(2) ? 0 : 3 * normal();
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < width; c++) x.at[r * a.ldx + c] += (float)centre;
        matrix_keep(&x);
        struct matrix y = in_place ? x : typed_new(rows, width, a.ldy), stats = matrix_new(rows * a.groups, 2, 2);
        struct matrix sum = residual ? typed_new(rows, cols, cols) : typed_new(0, 0, 1);
        double *in = matrix_double(&x), *out = matrix_double(&y), *s = matrix_double(&stats), *total = matrix_double(&sum);
        double *dw = matrix_double(&w), *dbias = matrix_double(&b), *plus = matrix_double(&other);
        for (size_t r = 0; r < rows; r++)
            for (size_t g = 0; g < a.groups; g++) {
                double *v = in + r * a.ldx + g * cols;
                for (size_t c = 0; c < cols && residual; c++) total[r * cols + c] = v[c] = typed(v[c] + plus[r * cols + c]);
                reference_norm(a.kind, v, weight ? dw : NULL, bias ? dbias : NULL, out + r * a.ldy + g * cols, s + 2 * (r * a.groups + g),
                               cols, (double)a.eps);
            }
        a.x = data(&x);
        a.residual = residual ? data(&other) : NULL;
        a.weight = weight ? data(&w) : NULL;
        a.bias = bias ? data(&b) : NULL;
        a.sum = residual ? data(&sum) : NULL;
        a.y = data(&y);
        a.stats = stats.at;
        /* one or two columns near each other amplify the rounding of the mean */
        struct output o[] = {{&y, out, cols < 8 ? 1e-3 : 2e-5}, {&stats, s, cols < 8 ? 1e-3 : 2e-6}, {&sum, total, 1e-7}};
        check_op("norm", call_norm, &a, o, 3);
    }
}

static void test_norm_backward(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < 3 * CASES; i++) {
        size_t rows, cols;
        reseed(6000 + i);
        some_shape(&rows, &cols, i);
        cols += 7; /* see above */
        struct zf_norm_backward_args a = {.type = type,
                                          .kind = below(2) ? ZF_LAYERNORM : ZF_RMSNORM,
                                          .rows = rows,
                                          .cols = cols,
                                          .groups = i % 3 ? 1 : 1 + below(4),
                                          .accumulate = below(2)};
        size_t width = a.groups * cols;
        bool weight = below(4), in_place = !a.accumulate && below(3) == 0, parts = below(3);
        a.lddy = some_ld(width);
        a.ldx = some_ld(width);
        a.lddx = in_place ? a.lddy : some_ld(width);
        struct matrix dy = typed_random(rows, width, a.lddy), x = typed_random(rows, width, a.ldx), w = typed_random(1, cols, cols),
                      stats = matrix_new(rows * a.groups, 2, 2);
        struct matrix dx = in_place ? dy : a.accumulate ? typed_random(rows, width, a.lddx) : typed_new(rows, width, a.lddx);
        struct matrix dweight = matrix_random(1, cols, cols), dbias = matrix_random(1, cols, cols), original = dy;
        if (in_place) { /* the weights' gradient reads dy after it was overwritten */
            original = typed_new(rows, width, a.lddy);
            memcpy(original.at, dy.at, dy.size * sizeof(float));
            matrix_keep(&original);
        }
        double *d = matrix_double(&dy), *v = matrix_double(&x), *wd = matrix_double(&w), *out = matrix_double(&dx),
               *ew = matrix_double(&dweight), *eb = matrix_double(&dbias);
        double *one = calloc(cols, sizeof *one);
        for (size_t r = 0; r < rows; r++)
            for (size_t g = 0; g < a.groups; g++) {
                double s[2];
                reference_norm(a.kind, v + r * a.ldx + g * cols, NULL, NULL, one, s, cols, 1e-5);
                stats.at[2 * (r * a.groups + g)] = (float)s[0];
                stats.at[2 * (r * a.groups + g) + 1] = (float)s[1];
                reference_norm_backward(a.kind, d + r * a.lddy + g * cols, v + r * a.ldx + g * cols, weight ? wd : NULL, one, ew, eb, cols,
                                        1e-5);
                for (size_t c = 0; c < cols; c++) {
                    double *to = &out[r * a.lddx + g * cols + c];
                    *to = (a.accumulate ? *to : 0) + one[c];
                }
            }
        free(one);
        a.dy = data(&dy);
        a.x = data(&x);
        a.weight = weight ? data(&w) : NULL;
        a.stats = stats.at;
        a.dx = data(&dx);
        check_op("norm_backward", call_norm_backward, &a, &(struct output){&dx, out, 1e-5}, 1);

        struct zf_norm_backward_weight_args b = {.type = type,
                                                 .kind = a.kind,
                                                 .dy = data(&original),
                                                 .x = data(&x),
                                                 .stats = stats.at,
                                                 .rows = rows,
                                                 .groups = a.groups,
                                                 .cols = cols,
                                                 .lddy = a.lddy,
                                                 .ldx = a.ldx,
                                                 .dweight = dweight.at,
                                                 .dbias = parts ? dbias.at : NULL};
        struct output o[] = {{&dweight, ew, 5e-6}, {&dbias, eb, 5e-6}};
        check_op("norm_backward_weight", call_norm_backward_weight, &b, o, parts ? 2 : 1);
    }
}

static void test_rope(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < 2 * CASES; i++) {
        reseed(7000 + i);
        size_t dim = 2 * (1 + below(i % 5 ? 40 : 128)), heads = 1 + below(5), rows = 1 + below(60), positions = 1 + below(90);
        struct matrix x = typed_random(rows, heads * dim, some_ld(heads * dim)), table = matrix_new(positions, dim, dim);
        for (size_t p = 0; p < positions; p++)
            for (size_t d = 0; d < dim / 2; d++) {
                double angle = (double)p * pow(10000, -2.0 * (double)d / (double)dim);
                table.at[p * dim + 2 * d] = (float)cos(angle);
                table.at[p * dim + 2 * d + 1] = (float)sin(angle);
            }
        int32_t position[64];
        double *expected = matrix_double(&x), *t = matrix_double(&table);
        struct zf_rope_args a = {.type = type,
                                 .x = data(&x),
                                 .table = table.at,
                                 .position = position,
                                 .rows = rows,
                                 .heads = heads,
                                 .head_dim = dim,
                                 .ld = x.ld,
                                 .inverse = i % 2};
        for (size_t r = 0; r < rows; r++) {
            position[r] = (int32_t)below(positions);
            for (size_t h = 0; h < heads; h++) reference_rope(expected + r * x.ld + h * dim, t + (size_t)position[r] * dim, dim, a.inverse);
        }
        check_op("rope", call_rope, &a, &(struct output){&x, expected, 3e-7}, 1);
    }
}

static void test_activation(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < 3 * CASES; i++) {
        size_t rows, n;
        reseed(8000 + i);
        some_shape(&rows, &n, i / 3);
        enum zf_activation_kind kind = (enum zf_activation_kind)(i % 3);
        bool gated = kind == ZF_SWIGLU, in_place = below(2);
        struct matrix x = typed_random(rows, n, some_ld(n)), up = typed_random(rows, n, x.ld), dy = typed_random(rows, n, some_ld(n)),
                      y = typed_new(rows, n, some_ld(n));
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++) x.at[r * x.ld + c] *= 3;
        matrix_keep(&x);
        struct matrix dx = in_place ? x : typed_new(rows, n, some_ld(n)), dup = in_place ? up : typed_new(rows, n, dx.ld);
        double *out = matrix_double(&y), *back = matrix_double(&dx), *back_up = matrix_double(&dup), *v = matrix_double(&x),
               *u = matrix_double(&up), *d = matrix_double(&dy);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++) {
                out[r * y.ld + c] = reference_activation(kind, v[r * x.ld + c], u[r * x.ld + c]);
                reference_activation_backward(kind, d[r * dy.ld + c], v[r * x.ld + c], u[r * x.ld + c], &back[r * dx.ld + c],
                                              &back_up[r * dx.ld + c]);
            }
        struct zf_activation_args a = {.type = type,
                                       .kind = kind,
                                       .x = data(&x),
                                       .up = gated ? data(&up) : NULL,
                                       .y = data(&y),
                                       .rows = rows,
                                       .n = n,
                                       .ldx = x.ld,
                                       .ldy = y.ld};
        check_op("activation", call_activation, &a, &(struct output){&y, out, 5e-7}, 1);
        struct zf_activation_backward_args b = {.type = type,
                                                .kind = kind,
                                                .dy = data(&dy),
                                                .x = data(&x),
                                                .up = a.up,
                                                .dx = data(&dx),
                                                .dup = gated ? data(&dup) : NULL,
                                                .rows = rows,
                                                .n = n,
                                                .lddy = dy.ld,
                                                .ldx = x.ld,
                                                .lddx = dx.ld};
        struct output gradients[] = {{&dx, back, 1e-6}, {&dup, back_up, 1e-6}};
        check_op("activation_backward", call_activation_backward, &b, gradients, gated ? 2 : 1);
    }
}

/* The ends of the number line: each value's own relative error, and nothing but NaN from NaN. */
static void test_activation_extremes(void **state)
{
    static const float points[] = {0, -0.0f, 1e-30f, -1e-30f, 1e-7f, -1e-7f, 1e-3f,  -1e-3f, 0.5f,   -0.5f, -3,    -5,
                                   9, 30,    -9,     100,     -100,  1e10f,  -1e10f, 1e30f,  -1e30f, 3e38f, -3e38f};
    enum { N = sizeof points / sizeof *points };
    (void)state;
    reseed(8900);
    for (int k = 0; k < 3; k++) {
        enum zf_activation_kind kind = (enum zf_activation_kind)k;
        float x[N], up[N], y[N], dy[N], dx[N], dup[N];
        for (size_t i = 0; i < N; i++) {
            x[i] = points[i];
            up[i] = dy[i] = 1;
        }
        struct zf_activation_args a = {.kind = kind, .x = x, .up = up, .y = y, .rows = 1, .n = N, .ldx = N, .ldy = N};
        struct zf_activation_backward_args b = {
            .kind = kind, .dy = dy, .x = x, .up = up, .dx = dx, .dup = dup, .rows = 1, .n = N, .lddy = N, .ldx = N, .lddx = N};
        must_run(call_activation, &a);
        must_run(call_activation_backward, &b);
        for (size_t i = 0; i < N; i++) {
            double v = (double)x[i], expected = kind == ZF_GELU_TANH ? v / (1 + exp(-2 * sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)))
                                                                     : reference_activation(kind, v, 1);
            double slope, unused;                      /* 1 + tanh would cancel */
            double clamped = fmax(-300, fmin(300, v)); /* the derivative in double is inf * 0 beyond */
            reference_activation_backward(kind, 1, clamped, 1, &slope, &unused);
            if (!(fabs((double)y[i] - expected) <= 2e-6 * fabs(expected) + 1e-35))
                fail_msg("kind %d at %g: %g, expected %g", k, (double)x[i], (double)y[i], expected);
            if (!(fabs((double)dx[i] - slope) <= 1e-5 * fabs(slope) + 1e-6))
                fail_msg("kind %d at %g: slope %g, expected %g", k, (double)x[i], (double)dx[i], slope);
        }
    }
}

static void test_add_and_copy(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < CASES; i++) {
        size_t rows, cols;
        reseed(9000 + i);
        some_shape(&rows, &cols, i);
        size_t n = i % 10 ? rows * cols : 50001;
        struct matrix x = typed_random(1, n, n), w = typed_random(1, n, n), y = i % 3 == 0 ? x : i % 3 == 1 ? w : typed_new(1, n, n);
        double *expected = matrix_double(&x), *other = matrix_double(&w);
        for (size_t j = 0; j < n; j++) expected[j] += other[j];
        struct zf_add_args a = {.type = type, .a = data(&x), .b = data(&w), .y = data(&y), .n = n};
        check_op("add", call_add, &a, &(struct output){&y, expected, 1e-7}, 1);

        struct matrix from = typed_random(rows, cols, some_ld(cols)), to = typed_new(rows, cols, some_ld(cols));
        double *same = matrix_double(&to), *source = matrix_double(&from);
        for (size_t r = 0; r < rows; r++) memcpy(same + r * to.ld, source + r * from.ld, cols * sizeof *same);
        struct zf_copy_rows_args b = {
            .type = type, .from = data(&from), .to = data(&to), .rows = rows, .cols = cols, .ld_from = from.ld, .ld_to = to.ld};
        check_op("copy_rows", call_copy_rows, &b, &(struct output){&to, same, 0}, 1);
    }
}

static void test_sums(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        1, 31, 32, 33, 1000, ZF_SQUARES_CHUNK - 1, ZF_SQUARES_CHUNK, ZF_SQUARES_CHUNK + 1, 3 * ZF_SQUARES_CHUNK + 77};
    static const float scales[] = {1, 1e-38f, 1e38f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes * 3; i++) {
        reseed(10000 + i);
        size_t n = sizes[i / 3], chunks = (n + ZF_SQUARES_CHUNK - 1) / ZF_SQUARES_CHUNK;
        struct matrix x = matrix_random(1, n, n);
        double partial[8], first[8] = {0}, exact = 0, total = 3.5, losses = 3.5, loss = 2;
        for (size_t j = 0; j < n; j++) {
            x.at[j] = (float)fmax(-3, fmin(3, (double)x.at[j])) * scales[i % 3];
            exact += (double)x.at[j] * (double)x.at[j];
            losses += (double)x.at[j];
        }
        for (size_t d = 0; d < device_count(); d++) {
            struct zf_step_norm out;
            struct zf_err e;
            struct zf_sum_squares_args a = {.x = x.at, .partial = partial, .n = n};
            struct zf_clip_factor_args b = {.partial = partial, .count = chunks, .loss = &loss, .clip_norm = 1, .out = &out};
            struct zf_sum_losses_args c = {.loss = x.at, .rows = n, .total = &total};
            total = 3.5;
            assert_int_equal(device_ops()->sum_squares(device_lane(d), &a), ZF_OK);
            assert_int_equal(device_ops()->clip_factor(device_lane(d), &b), ZF_OK);
            assert_int_equal(device_ops()->sum_losses(device_lane(d), &c), ZF_OK);
            assert_int_equal(device_sync(d, &e), ZF_OK);
            assert_true(fabs(out.norm - sqrt(exact)) <= 1e-12 * out.norm);
            assert_true(out.apply == 1 && out.loss == 2);
            double clip = out.norm > 1 ? 1 / out.norm : 1;
            assert_true(fabs((double)out.clip - clip) <= 1e-7 * clip + 2e-45);
            assert_true(total == losses);
            if (d == 0) memcpy(first, partial, chunks * sizeof *first);
            assert_memory_equal(first, partial, chunks * sizeof *first);
        }
    }
}

static struct zf_step_norm clip_of(double square, double loss, double clip_norm)
{
    struct zf_step_norm out = {0};
    struct zf_clip_factor_args a = {.partial = &square, .count = 1, .loss = &loss, .clip_norm = clip_norm, .out = &out};
    must_run(call_clip_factor, &a);
    return out;
}

static void test_clip_factor(void **state)
{
    (void)state;
    struct zf_step_norm n = clip_of(0, 1, 1);
    assert_true(n.norm == 0 && n.clip == 1 && n.apply == 1);
    n = clip_of(4.94e-324, 1, 1);
    assert_true(n.norm > 0 && n.norm < 1e-160 && n.clip == 1 && n.apply == 1);
    n = clip_of(4.94e-324, 1, 1e-300);
    assert_true(n.clip == 1e-300 / n.norm || (n.clip >= 0 && n.clip < 1e-37f)); /* beyond float: 0 */
    n = clip_of(16, 1, 1);
    assert_true(n.norm == 4 && n.clip == 0.25f && n.apply == 1);
    n = clip_of(16, 1, 0);
    assert_true(n.norm == 4 && n.clip == 1 && n.apply == 1);
    n = clip_of(1e300, 1, 1);
    assert_true(n.apply == 1 && n.clip == 0);
    n = clip_of((double)INFINITY, 1, 1);
    assert_true(isinf(n.norm) && n.apply == 0 && n.clip == 1);
    n = clip_of((double)NAN, 1, 1);
    assert_true(isnan(n.norm) && n.apply == 0 && n.clip == 1);
    n = clip_of(1, (double)NAN, 1);
    assert_true(n.norm == 1 && isnan(n.loss) && n.apply == 0);
    n = clip_of(1, (double)INFINITY, 1);
    assert_true(n.apply == 0);
}

/* One bad gradient among many reaches the norm, whatever lane or tail it lies in. */
static void test_squares_of_bad_numbers(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float x[ZF_SQUARES_CHUNK + 50];
    (void)state;
    for (size_t i = 0; i < 60; i++) {
        reseed(11000 + i);
        size_t n = ZF_SQUARES_CHUNK + 50, at = i % 2 ? n - 1 - below(60) : below(n);
        double partial[2], loss = 0;
        struct zf_step_norm out;
        memset(x, 0, sizeof x);
        x[at] = bad[i % 3];
        must_run(call_sum_squares, &(struct zf_sum_squares_args){.x = x, .partial = partial, .n = n});
        must_run(call_clip_factor,
                 &(struct zf_clip_factor_args){.partial = partial, .count = 2, .loss = &loss, .clip_norm = 1, .out = &out});
        assert_true(out.apply == 0 && !isfinite(out.norm));
    }
}

static void test_adamw(void **state)
{
    enum zf_dtype type = use_type(state);
    for (uint64_t i = 0; i < CASES; i++) {
        reseed(12000 + i);
        size_t n = i % 8 ? 1 + below(400) : 70001;
        struct matrix master = matrix_random(1, n, n), m = matrix_random(1, n, n), v = matrix_random(1, n, n), g = matrix_random(1, n, n),
                      weights = typed_new(1, n, n);
        for (size_t j = 0; j < n; j++) v.at[j] = fabsf(v.at[j]);
        if (i % 4 == 0) memset(m.at, 0, n * sizeof(float)), memset(v.at, 0, n * sizeof(float));
        matrix_keep(&m);
        matrix_keep(&v);
        struct zf_step_norm norm = {.norm = 4, .clip = 0.25f, .apply = 1};
        struct zf_adamw_args a = {.type = type,
                                  .weights = i % 3 ? data(&weights) : NULL,
                                  .master = master.at,
                                  .m = m.at,
                                  .v = v.at,
                                  .g = g.at,
                                  .norm = i % 2 ? &norm : NULL,
                                  .n = n,
                                  .t = i % 4 ? 1 + below(1000) : 1,
                                  .lr = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .decay = i % 5 ? 0.1 : 0};
        double *em = matrix_double(&m), *ev = matrix_double(&v), *ex = matrix_double(&master), *dg = matrix_double(&g);
        for (size_t j = 0; j < n; j++) reference_adamw(&a, a.norm ? 0.25 : 1, dg[j], &ex[j], &em[j], &ev[j]);
        struct output o[] = {{&master, ex, 2e-7}, {&m, em, 2e-7}, {&v, ev, 3e-7}, {&weights, ex, 2e-7}};
        check_op("adamw", call_adamw, &a, o, a.weights ? 4 : 3);
        for (size_t j = 0; j < n && a.weights; j++) assert_true((double)weights.at[j] == typed((double)master.at[j]));

        float *before = malloc(n * sizeof(float));
        memcpy(before, master.at, n * sizeof(float));
        norm.apply = 0;
        norm.clip = NAN;
        a.norm = &norm;
        must_run(call_adamw, &a);
        assert_memory_equal(before, master.at, n * sizeof(float));
        free(before);
    }
}

/* The update itself, where it is far smaller than the number it moves: lr * decay near the rounding of 1, steps of 1e-6. */
static void test_adamw_small_steps(void **state)
{
    enum { N = 64, STEPS = 2000 };
    float x[N], m[N] = {0}, v[N] = {0}, g[N];
    double ex[N], em[N] = {0}, ev[N] = {0};
    (void)state;
    reseed(13000);
    for (size_t i = 0; i < N; i++) ex[i] = (double)(x[i] = (float)(0.02 * normal()));
    for (uint64_t t = 1; t <= STEPS; t++) {
        struct zf_adamw_args a = {
            .master = x, .m = m, .v = v, .g = g, .n = N, .t = t, .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
        for (size_t i = 0; i < N; i++) {
            g[i] = (float)(1e-4 * (normal() + 1));
            reference_adamw(&a, 1, (double)g[i], &ex[i], &em[i], &ev[i]);
        }
        must_run(call_adamw, &a);
    }
    for (size_t i = 0; i < N; i++) assert_true(fabs((double)x[i] - ex[i]) < 5e-7);
}

/* NaN in, NaN out: what one bad number reaches, and nothing else. */
static void test_nan_propagates(void **state)
{
    enum { R = 3, C = 37 };
    enum zf_dtype type = use_type(state);
    for (size_t at = 0; at < C; at++) {
        struct matrix x = typed_new(R, 2 * C, 2 * C), y = typed_new(R, 2 * C, 2 * C), ones = typed_new(R, 2 * C, 2 * C),
                      dup = typed_new(R, 2 * C, 2 * C);
        struct matrix stats = matrix_new(R, 2, 2), product = matrix_new(R, 1, 1);
        for (size_t i = 0; i < x.size; i++) x.at[i] = (float)(i % 11) - 5;
        for (size_t i = 0; i < ones.size; i++) ones.at[i] = 1;
        x.at[2 * C + at] = NAN; /* row 1 */
        matrix_keep(&x);
        matrix_keep(&ones);
        struct zf_norm_args norm = {.type = type,
                                    .x = data(&x),
                                    .y = data(&y),
                                    .weight = data(&ones),
                                    .stats = stats.at,
                                    .rows = R,
                                    .groups = 1,
                                    .cols = C,
                                    .ldx = 2 * C,
                                    .ldy = 2 * C,
                                    .eps = 1e-5f};
        for (int kind = 0; kind < 2; kind++) {
            norm.kind = (enum zf_norm_kind)kind;
            must_run(call_norm, &norm);
            matrix_fetch(&y);
            for (size_t i = 0; i < R * C; i++) assert_int_equal(!!isnan(y.at[i / C * 2 * C + i % C]), i / C == 1);
        }
        struct zf_activation_args activation = {
            .type = type, .x = data(&x), .up = data(&ones), .y = data(&y), .rows = R, .n = C, .ldx = 2 * C, .ldy = 2 * C};
        struct zf_activation_backward_args back = {.type = type,
                                                   .dy = data(&ones),
                                                   .x = data(&x),
                                                   .up = data(&ones),
                                                   .dx = data(&y),
                                                   .dup = data(&dup),
                                                   .rows = R,
                                                   .n = C,
                                                   .ldx = 2 * C,
                                                   .lddx = 2 * C,
                                                   .lddy = 2 * C};
        for (int kind = 0; kind < 3; kind++) {
            activation.kind = back.kind = (enum zf_activation_kind)kind;
            must_run(call_activation, &activation);
            matrix_fetch(&y);
            for (size_t i = 0; i < R * C; i++) assert_int_equal(!!isnan(y.at[i / C * 2 * C + i % C]), i == C + at);
            must_run(call_activation_backward, &back);
            matrix_fetch(&y);
            for (size_t i = 0; i < R * C; i++) assert_int_equal(!!isnan(y.at[i / C * 2 * C + i % C]), i == C + at);
        }
        if (type != ZF_F32) continue;
        must_run(call_matmul, &(struct zf_matmul_args){
                                  .a = x.at, .b = ones.at, .c = product.at, .m = R, .n = 1, .k = C, .lda = 2 * C, .ldb = 1, .ldc = 1});
        for (size_t i = 0; i < R; i++) assert_int_equal(!!isnan(product.at[i]), i == 1);
    }
}

#define BOTH(test) cmocka_unit_test_prestate(test, &as_f32), cmocka_unit_test_prestate(test, &as_bf16)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_tiles),
        BOTH(test_bias_backward),
        BOTH(test_embed),
        BOTH(test_embed_backward),
        BOTH(test_norm),
        BOTH(test_norm_backward),
        BOTH(test_rope),
        BOTH(test_activation),
        cmocka_unit_test(test_activation_extremes),
        BOTH(test_add_and_copy),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_clip_factor),
        cmocka_unit_test(test_squares_of_bad_numbers),
        BOTH(test_adamw),
        cmocka_unit_test(test_adamw_small_steps),
        BOTH(test_nan_propagates),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
