/* AdamW of rows and of windows: against double, and against AdamW itself and one another, bit for bit. Defects they must not have:
 * test_rows_defects.c. */
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

/* ---- adamw_rows ---- */

/* State rows 0 .. rows, which are the numbers list[r] of a matrix with `of` rows. */
struct half_rows {
    size_t rows, cols, of;
    const uint32_t *list;
    float *master, *m, *v, *g;
    uint32_t *t;
    void *weights;
};

static void make_rows(struct half_rows *x, size_t i, enum zf_dtype type)
{
    size_t rows = some_rows(i), cols = some_cols(i / 2), of = rows + below(9), n = rows * cols;
    *x = (struct half_rows){.rows = rows,
                            .cols = cols,
                            .of = of,
                            .list = i % 3 ? some_list(rows, of) : NULL,
                            .master = floats(n),
                            .m = floats(n),
                            .v = floats(n),
                            .g = floats(of * cols),
                            .t = block(rows, sizeof *x->t),
                            .weights = block(of * cols, zf_dtype_size(type))};
    for (size_t j = 0; j < n; j++) x->v[j] = x->v[j] * x->v[j] + 0.01f, x->m[j] *= 0.1f;
    for (size_t r = 0; r < rows; r++) x->t[r] = (uint32_t)(r % 4 == 0 ? below(5) : r % 4 == 1 ? below(1000000) : 1000 + r);
    for (size_t j = 0; j < n; j++)
        if (!x->t[j / cols]) x->m[j] = x->v[j] = 0;
}

static const struct reference_rule rule = {1e-3, 0.9, 0.999, 1e-8, 0.1};

static struct zf_adamw_rows_args rows_args(const struct half_rows *x, enum zf_dtype type, enum zf_dtype bus)
{
    return (struct zf_adamw_rows_args){.type = type,
                                       .bus_type = bus,
                                       .weights = x->weights,
                                       .master = x->master,
                                       .m = x->m,
                                       .v = x->v,
                                       .t = x->t,
                                       .list = x->list,
                                       .g = x->g,
                                       .rows = x->rows,
                                       .cols = x->cols,
                                       .clip = 0.25f,
                                       .lr = rule.lr,
                                       .beta1 = rule.beta1,
                                       .beta2 = rule.beta2,
                                       .eps = rule.eps,
                                       .decay = rule.decay};
}

static float on_bus(float g, enum zf_dtype bus)
{
    return bus == ZF_BF16 ? zf_bf16_to_f32(zf_f32_to_bf16(g)) : g;
}

static void test_adamw_rows(void **state)
{
    enum zf_dtype type = use_type(state);
    for (size_t i = 0; i < CASES; i++) {
        struct half_rows x;
        case_begin(41000 + i);
        make_rows(&x, i, type);
        enum zf_dtype bus = i / 2 % 2 ? ZF_BF16 : ZF_F32;
        struct zf_adamw_rows_args a = rows_args(&x, type, bus);
        everywhere("adamw_rows", call_adamw_rows, &a);
        const float *master = before(x.master), *m = before(x.m), *v = before(x.v);
        for (size_t j = 0; j < x.rows * x.cols; j++) {
            size_t r = j / x.cols, at = (x.list ? x.list[r] : r) * x.cols + j % x.cols;
            struct reference_weight w = {(double)master[j], (double)m[j], (double)v[j]};
            reference_update(&w, &rule, (double)x.t[r], 0.25 * (double)on_bus(x.g[at], bus));
            near("master", j, (double)x.master[j], w.master, 2e-7, 1e-3);
            near("m", j, (double)x.m[j], w.m, 2e-7, 0.1);
            near("v", j, (double)x.v[j], w.v, 3e-7, 0);
            if (type == ZF_BF16)
                assert_int_equal(half_of(x.weights, at), zf_f32_to_bf16(x.master[j]));
            else
                assert_true(((float *)x.weights)[at] == x.master[j]);
        }
        for (size_t r = 0; r < x.rows; r++) assert_int_equal(x.t[r], ((const uint32_t *)before(x.t))[r] + 1);
        for (size_t n = 0; n < x.of; n++)
            if (x.list ? !listed(x.list, x.rows, n) : n >= x.rows) untouched("adamw_rows", x.weights, n, x.cols * zf_dtype_size(type));
        case_end();
    }
}

/* One row by the op for whole tensors, its gradient rounded for it. */
static void adamw_of_row(const struct zf_adamw_rows_args *a, size_t r, float *master, float *m, float *v, void *weights)
{
    size_t n = a->list ? a->list[r] : r;
    float *g = malloc(a->cols * sizeof *g);
    struct zf_step_norm norm = {.clip = a->clip, .apply = 1};
    for (size_t c = 0; c < a->cols; c++) g[c] = on_bus(a->g[n * a->cols + c], a->bus_type);
    must_run(call_adamw, &(struct zf_adamw_args){.type = a->type,
                                                 .weights = weights,
                                                 .master = master,
                                                 .m = m,
                                                 .v = v,
                                                 .g = g,
                                                 .norm = &norm,
                                                 .n = a->cols,
                                                 .t = a->t[r],
                                                 .lr = a->lr,
                                                 .beta1 = a->beta1,
                                                 .beta2 = a->beta2,
                                                 .eps = a->eps,
                                                 .decay = a->decay,
                                                 .stochastic = a->stochastic,
                                                 .seed = a->seed,
                                                 .first = a->first + n * a->cols});
    free(g);
}

static void *copy_of(const void *from, size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return memcpy(p, from, bytes);
}

/* The same t, gradient and learning rate: the same bits as AdamW's, of state and visible copy. */
static void test_adamw_rows_are_adamw(void **state)
{
    enum zf_dtype type = use_type(state);
    for (size_t i = 0; i < CASES; i++) {
        struct half_rows x;
        case_begin(42000 + i);
        make_rows(&x, i, type);
        struct zf_adamw_rows_args a = rows_args(&x, type, i / 2 % 2 ? ZF_BF16 : ZF_F32);
        a.stochastic = i / 4 % 2;
        a.seed = 9;
        a.first = i % 5 ? 12345 : (1ull << 32) - 50;
        everywhere("adamw_rows", call_adamw_rows, &a);
        for (size_t r = 0; r < x.rows; r++) {
            size_t j = r * x.cols, bytes = x.cols * sizeof(float), size = zf_dtype_size(type), n = x.list ? x.list[r] : r;
            float *master = copy_of((const float *)before(x.master) + j, bytes), *m = copy_of((const float *)before(x.m) + j, bytes),
                  *v = copy_of((const float *)before(x.v) + j, bytes);
            void *weights = malloc(bytes);
            adamw_of_row(&a, r, master, m, v, weights);
            assert_memory_equal(master, x.master + j, bytes);
            assert_memory_equal(m, x.m + j, bytes);
            assert_memory_equal(v, x.v + j, bytes);
            assert_memory_equal(weights, (char *)x.weights + n * x.cols * size, x.cols * size);
            free(master), free(m), free(v), free(weights);
        }
        case_end();
    }
}

/* f32 weights that are the masters themselves: the same, without a copy. */
static void test_weights_as_masters(void **state)
{
    (void)state;
    for (size_t i = 0; i < 20; i++) {
        struct half_rows x;
        case_begin(43000 + i);
        make_rows(&x, i, ZF_F32);
        float *weights = x.weights;
        for (size_t r = 0; r < x.rows; r++)
            memcpy(weights + (x.list ? x.list[r] : r) * x.cols, x.master + r * x.cols, x.cols * sizeof(float));
        struct zf_adamw_rows_args a = rows_args(&x, ZF_F32, i % 2 ? ZF_BF16 : ZF_F32);
        everywhere("adamw_rows", call_adamw_rows, &a);
        size_t bytes = x.of * x.cols * sizeof(float), n = x.rows * x.cols * sizeof(float);
        float *expected = copy_of(weights, bytes);
        memcpy(weights, before(weights), bytes);
        memcpy(x.m, before(x.m), n);
        memcpy(x.v, before(x.v), n);
        memcpy(x.t, before(x.t), x.rows * sizeof *x.t);
        a.master = NULL;
        everywhere("adamw_rows", call_adamw_rows, &a);
        assert_memory_equal(expected, weights, bytes);
        free(expected);
        case_end();
    }
}

/* ---- serve_rows ---- */

struct served {
    struct zf_serve_rows_args a;
    struct zf_entry entries[40];
    struct pieces g[40], visible;
};

static void make_served(struct served *s, const struct half_rows *x, size_t i, size_t count, enum zf_dtype type, enum zf_dtype g_type)
{
    for (size_t e = 0; e < count; e++) {
        make_pieces(&s->g[e], x->rows, x->cols, count > 4 ? x->rows : some_chunk_rows(i + e, x->rows), zf_dtype_size(g_type));
        fill_pieces(&s->g[e], x->rows, x->cols, g_type);
        s->entries[e] = (struct zf_entry){s->g[e].chunked, 0.1f + (float)e, 1e-3 / (double)(1 + e)};
    }
    make_pieces(&s->visible, x->rows, x->cols, some_chunk_rows(i + 2, x->rows), zf_dtype_size(type));
    s->a = (struct zf_serve_rows_args){.type = type,
                                       .g_type = g_type,
                                       .master = x->master,
                                       .m = x->m,
                                       .v = x->v,
                                       .t = x->t,
                                       .list = x->list,
                                       .entries = s->entries,
                                       .entry_count = count,
                                       .rows = x->rows,
                                       .cols = x->cols,
                                       .visible = s->visible.chunked,
                                       .beta1 = rule.beta1,
                                       .beta2 = rule.beta2,
                                       .eps = rule.eps,
                                       .decay = rule.decay,
                                       .stochastic = i / 4 % 2,
                                       .seed = 11,
                                       .first = i % 5 ? 777 : (1ull << 32) - 50};
}

/* A window's entries, one after the other, by adamw_rows, from the state that serve_rows began with. */
static void separately(const struct served *s, const struct half_rows *x, float *master, float *m, float *v, uint32_t *t, void *weights)
{
    size_t cols = x->cols;
    float *g = calloc(x->of * cols, sizeof *g);
    for (size_t e = 0; e < s->a.entry_count; e++) {
        for (size_t r = 0; r < x->rows; r++)
            for (size_t c = 0; c < cols; c++)
                g[(x->list ? x->list[r] : r) * cols + c] =
                    (float)number_of(piece_row(&s->g[e], r, cols, zf_dtype_size(s->a.g_type)), s->a.g_type, c);
        must_run(call_adamw_rows, &(struct zf_adamw_rows_args){.type = s->a.type,
                                                               .bus_type = s->a.g_type,
                                                               .weights = weights,
                                                               .master = master,
                                                               .m = m,
                                                               .v = v,
                                                               .t = t,
                                                               .list = x->list,
                                                               .g = g,
                                                               .rows = x->rows,
                                                               .cols = cols,
                                                               .clip = s->entries[e].scale,
                                                               .lr = s->entries[e].lr,
                                                               .beta1 = s->a.beta1,
                                                               .beta2 = s->a.beta2,
                                                               .eps = s->a.eps,
                                                               .decay = s->a.decay,
                                                               .stochastic = s->a.stochastic,
                                                               .seed = s->a.seed,
                                                               .first = s->a.first});
    }
    free(g);
}

/* n entries at once are n updates of adamw_rows with the same gradients, bit for bit. */
static void test_serving_is_adamw_rows(void **state)
{
    static const size_t counts[] = {1, 2, 4, 5, 16, 17, 40};
    static struct served s;
    enum zf_dtype type = use_type(state);
    devices_must_serve();
    for (size_t i = 0; i < CASES; i++) {
        struct half_rows x;
        case_begin(44000 + i);
        make_rows(&x, i, type);
        size_t count = counts[i % (sizeof counts / sizeof *counts)], n = x.rows * x.cols * sizeof(float), size = zf_dtype_size(type);
        make_served(&s, &x, i, count, type, i / 2 % 2 ? ZF_BF16 : ZF_F32);
        everywhere("serve_rows", call_serve_rows, &s.a);
        float *master = copy_of(before(x.master), n), *m = copy_of(before(x.m), n), *v = copy_of(before(x.v), n);
        uint32_t *t = copy_of(before(x.t), x.rows * sizeof *t);
        char *weights = malloc(x.of * x.cols * size);
        separately(&s, &x, master, m, v, t, weights);
        assert_memory_equal(master, x.master, n);
        assert_memory_equal(m, x.m, n);
        assert_memory_equal(v, x.v, n);
        assert_memory_equal(t, x.t, x.rows * sizeof *t);
        for (size_t r = 0; r < x.rows; r++)
            assert_memory_equal(weights + (x.list ? x.list[r] : r) * x.cols * size, piece_row(&s.visible, r, x.cols, size), x.cols * size);
        free(master), free(m), free(v), free(t), free(weights);
        case_end();
    }
}

/* What is visible: the master, or where its momentum will take it; with entries or without, and nothing at all. */
static void test_serving_ahead(void **state)
{
    static struct served s;
    enum zf_dtype type = use_type(state);
    devices_must_serve();
    for (size_t i = 0; i < CASES; i++) {
        struct half_rows x;
        case_begin(45000 + i);
        make_rows(&x, i, type);
        make_served(&s, &x, i, i % 3, type, i / 2 % 2 ? ZF_BF16 : ZF_F32);
        s.a.ahead = i % 4 ? 0.02 : 0;
        s.a.stochastic = false;
        if (i % 7 == 6) s.a.visible.chunk = NULL;
        everywhere("serve_rows", call_serve_rows, &s.a);
        for (size_t j = 0; j < x.rows * x.cols; j++) {
            size_t r = j / x.cols;
            struct reference_weight w = {(double)x.master[j], (double)x.m[j], (double)x.v[j]};
            double shown = number_of(piece_row(&s.visible, r, x.cols, zf_dtype_size(type)), type, j % x.cols);
            double expected = reference_ahead(&w, &rule, (double)x.t[r], s.a.ahead);
            if (!s.a.visible.chunk)
                assert_true(isnan(shown)); /* as it was */
            else
                near("visible", j, shown, expected, type == ZF_BF16 ? 0x1.01p-8 : 2e-7, type == ZF_BF16 ? 1e-5 : fabs(w.master) + 0.1);
        }
        if (!s.a.entry_count) {
            size_t n = x.rows * x.cols * sizeof(float);
            assert_true(!memcmp(x.master, before(x.master), n) && !memcmp(x.m, before(x.m), n) && !memcmp(x.v, before(x.v), n));
            assert_memory_equal(x.t, before(x.t), x.rows * sizeof *x.t);
        }
        case_end();
    }
}

/* A bad number in one gradient reaches that weight and no other; the next entry finds it there. */
static void test_bad_gradients_stay_where_they_are(void **state)
{
    enum { R = 3, C = 50, BAD = C + 33 };
    (void)state;
    devices_must_serve();
    for (size_t d = 0; d < device_count(); d++) {
        float master[R * C], m[R * C] = {0}, v[R * C] = {0}, g[2][R * C], shown[R * C];
        void *chunk[2] = {g[0], g[1]}, *visible = shown;
        uint32_t t[R] = {0};
        struct zf_entry entries[2] = {{{&chunk[0], R}, 1, 1e-3}, {{&chunk[1], R}, 1, 1e-3}};
        struct zf_err e;
        for (size_t i = 0; i < R * C; i++) master[i] = g[0][i] = g[1][i] = 1;
        g[0][BAD] = NAN;
        struct zf_serve_rows_args a = {.g_type = ZF_F32,
                                       .master = master,
                                       .m = m,
                                       .v = v,
                                       .t = t,
                                       .entries = entries,
                                       .entry_count = 2,
                                       .rows = R,
                                       .cols = C,
                                       .visible = {&visible, R},
                                       .beta1 = 0.9,
                                       .beta2 = 0.99,
                                       .eps = 1e-8};
        assert_int_equal(call_serve_rows(device_lane(d), &a), ZF_OK);
        assert_int_equal(device_sync(d, &e), ZF_OK);
        struct zf_adamw_rows_args again = {.master = master,
                                           .weights = shown,
                                           .m = m,
                                           .v = v,
                                           .t = t,
                                           .g = g[1],
                                           .rows = R,
                                           .cols = C,
                                           .clip = 1,
                                           .lr = 1e-3,
                                           .beta1 = 0.9,
                                           .beta2 = 0.99,
                                           .eps = 1e-8};
        assert_int_equal(call_adamw_rows(device_lane(d), &again), ZF_OK);
        assert_int_equal(device_sync(d, &e), ZF_OK);
        for (size_t i = 0; i < R * C; i++) {
            assert_true(isnan(master[i]) == (i == BAD) && isnan(shown[i]) == (i == BAD) && isnan(m[i]) == (i == BAD));
            if (i != BAD) near("weight", i, (double)shown[i], 0.997, 1e-6, 0);
        }
    }
}

/* ---- large matrices: what goes past the caches has the bits of what does not ---- */

static void test_large_matrices(void **state)
{
    enum { R = 1100, C = 511, PART = 100 };
    enum zf_dtype type = use_type(state);
    devices_must_serve();
    size_t n = (size_t)R * C, size = zf_dtype_size(type);
    case_begin(47000);
    float *state_of[3], *other[3];
    for (size_t k = 0; k < 3; k++) {
        state_of[k] = floats(n);
        for (size_t j = 0; j < n && k == 2; j++) state_of[k][j] *= state_of[k][j];
        other[k] = copy_of(state_of[k], n * sizeof(float));
    }
    void *g, *whole = block(n, size), *packed = block(n, 2), *parts = malloc(n * size), *packed_parts = malloc(n * 2);
    float *wide = halves_of(n, &g);
    uint32_t *t = block(R, sizeof *t), *other_t = calloc(R, sizeof *t);
    memset(t, 0, R * sizeof *t);
    struct zf_entry entry = {{&g, R}, 1, 1e-3};
    struct zf_serve_rows_args a = {.type = type,
                                   .g_type = ZF_BF16,
                                   .master = state_of[0],
                                   .m = state_of[1],
                                   .v = state_of[2],
                                   .t = t,
                                   .entries = &entry,
                                   .entry_count = 1,
                                   .rows = R,
                                   .cols = C,
                                   .visible = {&whole, R},
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8,
                                   .stochastic = true,
                                   .seed = 3};
    everywhere("serve_rows", call_serve_rows, &a);
    everywhere("hand_over", call_hand_over,
               &(struct zf_hand_over_args){.bus_type = ZF_BF16, .g = wide, .packed = packed, .rows = R, .cols = C});
    for (size_t r = 0; r < R; r += PART) {
        size_t at = r * C;
        void *some_g = (uint16_t *)g + at, *some = (char *)parts + at * size;
        struct zf_entry some_entry = {{&some_g, PART}, 1, 1e-3};
        struct zf_serve_rows_args b = a;
        b.master = other[0] + at, b.m = other[1] + at, b.v = other[2] + at, b.t = other_t + r;
        b.entries = &some_entry, b.visible = (struct zf_chunked){&some, PART}, b.rows = PART, b.first = at;
        must_run(call_serve_rows, &b);
        must_run(call_hand_over,
                 &(struct zf_hand_over_args){
                     .bus_type = ZF_BF16, .g = wide + at, .packed = (uint16_t *)packed_parts + at, .rows = PART, .cols = C});
    }
    assert_memory_equal(whole, parts, n * size);
    assert_memory_equal(packed, packed_parts, n * 2);
    for (size_t k = 0; k < 3; k++) assert_memory_equal(state_of[k], other[k], n * sizeof(float));
    for (size_t k = 0; k < 3; k++) free(other[k]);
    free(parts), free(packed_parts), free(other_t);
    case_end();
}

/* A row that is longer than a task. */
static void test_long_rows(void **state)
{
    enum { R = 3, C = 70001 };
    static struct served s;
    (void)state;
    devices_must_serve();
    case_begin(48000);
    struct half_rows x = {
        .rows = R, .cols = C, .of = R, .master = floats(R * C), .m = floats(R * C), .v = floats(R * C), .t = block(R, sizeof *x.t)};
    for (size_t j = 0; j < R * C; j++) x.v[j] *= x.v[j];
    for (size_t r = 0; r < R; r++) x.t[r] = (uint32_t)r;
    make_served(&s, &x, 1, 2, ZF_BF16, ZF_BF16);
    everywhere("serve_rows", call_serve_rows, &s.a);
    for (size_t j = 0; j < R * C; j += 997) {
        const float *start[3] = {before(x.master), before(x.m), before(x.v)};
        struct reference_weight w = {(double)start[0][j], (double)start[1][j], (double)start[2][j]};
        for (size_t e = 0; e < 2; e++) {
            struct reference_rule r = rule;
            r.lr = s.entries[e].lr;
            reference_update(&w, &r, (double)(j / C + e + 1),
                             (double)s.entries[e].scale * number_of(piece_row(&s.g[e], j / C, C, 2), ZF_BF16, j % C));
        }
        near("master", j, (double)x.master[j], w.master, 1e-6, 1e-3);
    }
    case_end();
}

#define BOTH(test) \
    {.name = #test " f32", .test_func = test, .initial_state = &as_f32}, \
    { \
        .name = #test " bf16", .test_func = test, .initial_state = &as_bf16 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_adamw_rows),
        BOTH(test_adamw_rows_are_adamw),
        cmocka_unit_test(test_weights_as_masters),
        BOTH(test_serving_is_adamw_rows),
        BOTH(test_serving_ahead),
        cmocka_unit_test(test_bad_gradients_stay_where_they_are),
        BOTH(test_large_matrices),
        cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
