/* Lanes and events: order, waits across lanes, errors, full rings, the shared pool; memory and the choice of a device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef ZF_TEST_CUDA /* emulated, which takes its time */
#define BACKEND "cuda"
enum { LARGE = 1 << 14, MIDDLING = 700 };
static const double APART = 0.1; /* seconds: each stream has a clock of its own, set when it has been idle */
#else
#define BACKEND "host"
enum { LARGE = 1 << 21, MIDDLING = 40000 };
static const double APART = 0;
#endif

static struct zf_err err;

static struct zf_device *device_of(int threads, bool synchronous)
{
    struct zf_device *d;
    struct zf_device_options o = {.threads = threads, .synchronous = synchronous};
    if (zf_device_open(&d, BACKEND, &o, &err)) fail_msg("%s", err.message);
    return d;
}

static struct zf_lane *lane_of(struct zf_device *d, const char *name)
{
    struct zf_lane *l;
    assert_int_equal(d->type->lane_new(d, name, &l, &err), ZF_OK);
    return l;
}

static struct zf_event *event_of(struct zf_device *d)
{
    struct zf_event *v;
    assert_int_equal(d->type->event_new(d, &v, &err), ZF_OK);
    return v;
}

static float *floats(struct zf_device *d, size_t n)
{
    void *p;
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, n * sizeof(float), &p, &err), ZF_OK);
    return p;
}

static void must_sync(struct zf_device *d, struct zf_lane *l)
{
    if (d->type->lane_sync(l, &err)) fail_msg("%s", err.message);
}

static enum zf_status add(struct zf_device *d, struct zf_lane *l, const float *a, const float *b, float *y, size_t n)
{
    struct zf_add_args args = {.a = a, .b = b, .y = y, .n = n}; /* gone when the call returns: the lane must have its own */
    enum zf_status s = d->type->ops->add(l, &args);
    memset(&args, 0xff, sizeof args);
    return s;
}

/* More than a ring holds, each step reading the one before. */
static void test_order(void **state)
{
    enum { STEPS = 3000, N = 17 };
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        struct zf_device *d = device_of(2, synchronous);
        struct zf_lane *l = lane_of(d, "order");
        float *x = floats(d, N), *one = floats(d, N);
        for (int i = 0; i < N; i++) one[i] = 1;
        for (int i = 0; i < STEPS; i++) {
            assert_int_equal(add(d, l, x, one, x, N), ZF_OK);
            if (synchronous) assert_true(x[N - 1] == (float)(i + 1));
        }
        must_sync(d, l);
        for (int i = 0; i < N; i++) assert_true(x[i] == STEPS);
        d->type->free(d, x);
        d->type->free(d, one);
        d->type->lane_free(l);
        d->type->close(d);
    }
}

/* x doubles in one lane and grows by one in another, in turn: any other order gives another number. */
static void test_events_between_lanes(void **state)
{
    enum { TURNS = 20, N = MIDDLING, ROUNDS = 20 };
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        struct zf_device *d = device_of(2, synchronous);
        struct zf_lane *a = lane_of(d, "a"), *b = lane_of(d, "b");
        struct zf_event *grown = event_of(d), *doubled = event_of(d);
        float *x = floats(d, N), *one = floats(d, N);
        for (int i = 0; i < N; i++) one[i] = 1;
        for (int round = 0; round < ROUNDS; round++) {
            assert_int_equal(d->type->event_wait(a, doubled), ZF_OK); /* never recorded at first: done */
            assert_int_equal(d->type->fill(a, x, 0, N * sizeof *x), ZF_OK);
            for (int i = 0; i < TURNS; i++) {
                add(d, a, x, one, x, N);
                d->type->event_record(a, grown);
                d->type->event_wait(b, grown);
                add(d, b, x, x, x, N);
                d->type->event_record(b, doubled);
                d->type->event_wait(a, doubled);
            }
        }
        assert_int_equal(d->type->event_sync(doubled, &err), ZF_OK);
        for (int i = 0; i < N; i++) assert_true(x[i] == (float)((2 << TURNS) - 2));
        must_sync(d, a);
        must_sync(d, b);
        d->type->event_free(grown);
        d->type->event_free(doubled);
        d->type->free(d, x);
        d->type->free(d, one);
        d->type->lane_free(a);
        d->type->lane_free(b);
        d->type->close(d);
    }
}

/* Random work on random lanes, each piece waiting for the last writer and the last readers of its operands through events: the same numbers
 * as one after the other, with lanes that share a pool. */
static void test_random_graph(void **state)
{
    enum { LANES = 4, CELLS = 6, STEPS = 400, N = MIDDLING / 2 };
    (void)state;
    struct zf_device *d = device_of(3, false);
    struct zf_lane *lanes[LANES];
    struct zf_event *done[STEPS];
    float *cell[CELLS], expected[CELLS], *ones = floats(d, N);
    int writer[CELLS], reader[CELLS][LANES];
    for (int i = 0; i < N; i++) ones[i] = 1;
    for (int i = 0; i < LANES; i++) lanes[i] = lane_of(d, "graph");
    for (int c = 0; c < CELLS; c++) {
        cell[c] = floats(d, N);
        expected[c] = (float)c + 1;
        for (int i = 0; i < N; i++) cell[c][i] = expected[c];
        writer[c] = -1;
        for (int l = 0; l < LANES; l++) reader[c][l] = -1;
    }
    for (int s = 0; s < STEPS; s++) {
        struct zf_u32x4 r = zf_philox(77, 0, (uint64_t)s);
        int l = (int)(r.v[0] % LANES), a = (int)(r.v[1] % CELLS), b = (int)(r.v[2] % CELLS), y = (int)(r.v[3] % CELLS);
        int needs[3 + LANES] = {writer[a], writer[b], writer[y]};
        for (int i = 0; i < LANES; i++) needs[3 + i] = reader[y][i];
        for (int i = 0; i < 3 + LANES; i++)
            if (needs[i] >= 0) d->type->event_wait(lanes[l], done[needs[i]]);
        bool large = expected[a] + expected[b] > 1e6f; /* sums stay exact */
        if (large)
            d->type->copy(lanes[l], cell[y], ones, N * sizeof(float));
        else
            add(d, lanes[l], cell[a], cell[b], cell[y], N);
        expected[y] = large ? 1 : expected[a] + expected[b];
        done[s] = event_of(d);
        d->type->event_record(lanes[l], done[s]);
        writer[y] = s;
        reader[a][l] = reader[b][l] = s;
    }
    for (int i = 0; i < LANES; i++) must_sync(d, lanes[i]);
    for (int c = 0; c < CELLS; c++) {
        for (int i = 0; i < N; i++) assert_true(cell[c][i] == expected[c]);
        d->type->free(d, cell[c]);
    }
    d->type->free(d, ones);
    for (int s = 0; s < STEPS; s++) d->type->event_free(done[s]);
    for (int i = 0; i < LANES; i++) d->type->lane_free(lanes[i]);
    d->type->close(d);
}

/* An event moves to a second lane while its record in the first is still under way; and is freed before it is done. */
static void test_event_moves_and_dies(void **state)
{
    enum { N = 1 << 20 };
    (void)state;
    struct zf_device *d = device_of(2, false);
    struct zf_lane *slow = lane_of(d, "slow"), *quick = lane_of(d, "quick"), *third = lane_of(d, "third");
    float *x = floats(d, N), *y = floats(d, 1);
    for (int round = 0; round < 10; round++) {
        struct zf_event *v = event_of(d);
        for (int i = 0; i < 10; i++) d->type->fill(slow, x, i < 9 ? 0 : round + 1, N * sizeof *x);
        d->type->event_record(slow, v);
        d->type->event_record(quick, v);
        d->type->event_wait(third, v);
        d->type->copy(third, y, x + N - 1, sizeof *y);
        d->type->event_free(v);
        must_sync(d, third);
        unsigned char bytes[4], expected[4];
        memcpy(bytes, y, 4);
        memset(expected, round + 1, 4);
        assert_memory_equal(bytes, expected, 4);
        must_sync(d, slow);
    }
    d->type->free(d, x);
    d->type->free(d, y);
    d->type->lane_free(slow);
    d->type->lane_free(quick);
    d->type->lane_free(third);
    d->type->close(d);
}

/* Every byte and no other, large and small, wherever both begin. */
static void test_copies(void **state)
{
    enum { ROOM = (1 << 20) + (1 << 17), EDGE = 64 };
    static const size_t sizes[] = {1, 63, 65535, 65536, 65537, 131072 + 48, (1 << 20) - 1, (1 << 20) + 65536 + 17};
    (void)state;
    struct zf_device *d = device_of(2, false);
    struct zf_lane *l = lane_of(d, "copies");
    unsigned char *from = (unsigned char *)floats(d, ROOM / 4), *to = (unsigned char *)floats(d, ROOM / 4);
    for (size_t i = 0; i < ROOM; i++) from[i] = (unsigned char)(i * 2654435761u >> 24);
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i / 4], a = i % 2 ? 3 : 0, b = EDGE + (i % 4 < 2 ? 0 : i % 4 == 2 ? 16 : 5);
        memset(to, 0xa5, ROOM);
        assert_int_equal(d->type->copy(l, to + b, from + a, n), ZF_OK);
        must_sync(d, l);
        assert_memory_equal(to + b, from + a, n);
        for (size_t k = 0; k < b; k++) assert_int_equal(to[k], 0xa5);
        for (size_t k = b + n; k < b + n + EDGE; k++) assert_int_equal(to[k], 0xa5);
    }
    d->type->free(d, from);
    d->type->free(d, to);
    d->type->lane_free(l);
    d->type->close(d);
}

/* A list is copied as each of it would be, empty ones among them; a call comes in its place, and not behind a failure. */
static void note_call(void *ctx)
{
    float *const *place = ctx;
    *place[1] = *place[0]; /* what was issued before it has been done */
}

static void test_lists_and_calls(void **state)
{
    enum { N = 700000, LISTS = 5 };
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        struct zf_device *d = device_of(2, synchronous);
        struct zf_lane *l = lane_of(d, "lists");
        float *from = floats(d, N), *to = floats(d, N), seen = 0, *place[] = {to + N - 1, &seen};
        for (size_t i = 0; i < N; i++) from[i] = (float)i;
        const struct zf_copy list[LISTS] = {{to, from, 4},
                                            {NULL, NULL, 0},
                                            {to + 1, from + 1, 4 * 299999},
                                            {to + 300000, from + 300000, 8},
                                            {to + 300002, from + 300002, 4 * (N - 300002)}};
        assert_int_equal(d->type->copy_list(l, list, LISTS), ZF_OK);
        assert_int_equal(d->type->call(l, note_call, place), ZF_OK);
        must_sync(d, l);
        assert_memory_equal(to, from, N * sizeof *to);
        assert_true(seen == from[N - 1]);
        assert_int_equal(d->type->copy_list(l, list, 0), ZF_OK);
        assert_int_equal(d->type->copy_list(l, &(struct zf_copy){to, NULL, 4}, 1), ZF_USAGE);
        to[N - 1] = 0;
        d->type->call(l, note_call, place);
        assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
        assert_true(seen == from[N - 1]);
        assert_int_equal(d->type->call(l, NULL, NULL), ZF_USAGE);
        assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
        d->type->free(d, from);
        d->type->free(d, to);
        d->type->lane_free(l);
        d->type->close(d);
    }
}

static void test_errors(void **state)
{
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        struct zf_device *d = device_of(1, synchronous);
        struct zf_lane *l = lane_of(d, "errors"), *other = lane_of(d, "other");
        struct zf_event *v = event_of(d);
        float *x = floats(d, 4), *one = floats(d, 4);
        for (int i = 0; i < 4; i++) one[i] = 1;
        const struct zf_ops *ops = d->type->ops;
        assert_int_equal(add(d, l, x, one, x, 4), ZF_OK);
        assert_int_equal(add(d, l, NULL, one, x, 4), ZF_USAGE); /* the first error is kept */
        ops->rope(l,
                  &(struct zf_rope_args){
                      .x = x, .table = one, .position = (const int32_t *)(const void *)one, .rows = 1, .heads = 1, .head_dim = 3, .ld = 4});
        add(d, l, x, one, x, 4); /* not done */
        d->type->event_record(l, v);
        assert_int_equal(d->type->event_sync(v, &err), ZF_OK); /* nobody hangs */
        assert_int_equal(d->type->event_wait(other, v), ZF_OK);
        must_sync(d, other);
        assert_int_equal(d->type->lane_failed(other, &err), ZF_OK);
        assert_int_equal(d->type->lane_failed(l, &err), ZF_USAGE); /* and it stays so */
        assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
        assert_int_equal(d->type->lane_failed(l, &err), ZF_OK);
        assert_non_null(strstr(err.message, "add"));
        assert_true(x[0] == 1);
        assert_int_equal(add(d, l, x, one, x, 4), ZF_OK);
        must_sync(d, l);
        assert_true(x[0] == 2);
        assert_int_equal(ops->add(l, &(struct zf_add_args){.type = ZF_F16, .a = x, .b = x, .y = x, .n = 1}), ZF_USAGE);
        assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
        assert_int_equal(d->type->copy(l, NULL, x, 4), ZF_USAGE);
        assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
        d->type->event_free(v);
        d->type->free(d, x);
        d->type->free(d, one);
        d->type->lane_free(l);
        d->type->lane_free(other);
        d->type->close(d);
    }
}

/* Every op: all zero is no work; a type nobody has, and pointers that are missing, are refused in the call. */
static void test_broken_calls(void **state)
{
    (void)state;
    struct zf_device *d = device_of(1, false);
    struct zf_lane *l = lane_of(d, "broken");
    const struct zf_ops *o = d->type->ops;
    enum zf_status expected = ZF_OK;
#define ZF_OP(op) \
    if (strcmp(#op, "clip_factor")) assert_int_equal(o->op(l, &(struct zf_##op##_args){0}), expected);
#include "kernels/ops.def"
#undef ZF_OP
    must_sync(d, l);
    assert_int_equal(o->clip_factor(l, &(struct zf_clip_factor_args){0}), ZF_USAGE);
#define REFUSED(op, ...) assert_int_equal(o->op(l, &(struct zf_##op##_args){__VA_ARGS__}), ZF_USAGE)
    float x[64] = {0};
    int32_t index[4] = {0};
    struct zf_segment segment = {0, 1, 0, 1};
    for (enum zf_dtype t = ZF_F32; t <= ZF_F16; t++) { /* f32, bf16: pointers are missing; f16: even if none is */
        float *p = t == ZF_F16 ? x : NULL;
        int32_t *n = t == ZF_F16 ? index : NULL;
        REFUSED(matmul, .type = t, .a = p, .b = p, .c = p, .m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1);
        REFUSED(bias_backward, .type = t, .dy = p, .dbias = p, .rows = 1, .n = 1, .ld = 1);
        REFUSED(embed, .type = t, .table = p, .index = n, .y = p, .rows = 1, .cols = 1);
        REFUSED(embed_backward, .type = t, .dy = p, .index = n, .dtable = p, .rows = 1, .cols = 1);
        REFUSED(norm, .type = t, .x = p, .y = p, .rows = 1, .groups = 1, .cols = 1, .ldx = 1, .ldy = 1);
        REFUSED(norm_backward, .type = t, .dy = p, .x = p, .stats = p, .dx = p, .rows = 1, .groups = 1, .cols = 1, .lddy = 1, .ldx = 1,
                .lddx = 1);
        REFUSED(norm_backward_weight, .type = t, .dy = p, .x = p, .stats = p, .dweight = x, .rows = 1, .groups = 1, .cols = 1, .lddy = 1,
                .ldx = 1);
        REFUSED(rope, .type = t, .x = p, .table = p, .position = n, .rows = 1, .heads = 1, .head_dim = 2, .ld = 2);
        REFUSED(attention, .type = t, .q = p, .k = p, .v = p, .o = p, .segments = &segment, .segment_count = 1, .heads = 1, .kv_heads = 1,
                .head_dim = 2, .ldq = 2, .ldkv = 2, .ldo = 2);
        REFUSED(attention_backward, .type = t, .q = p, .k = p, .v = p, .o = p, .do_ = p, .lse = p, .dq = p, .dk = p, .dv = p, .delta = p,
                .segments = &segment, .segment_count = 1, .heads = 1, .kv_heads = 1, .head_dim = 2, .ldq = 2, .ldkv = 2, .ldo = 2,
                .lddo = 2, .lddq = 2, .lddkv = 2);
        REFUSED(activation, .type = t, .x = p, .y = p, .rows = 1, .n = 1, .ldx = 1, .ldy = 1);
        REFUSED(activation_backward, .type = t, .dy = p, .x = p, .dx = p, .rows = 1, .n = 1, .lddy = 1, .ldx = 1, .lddx = 1);
        REFUSED(add, .type = t, .a = p, .b = p, .y = p, .n = 1);
        REFUSED(copy_rows, .type = t, .from = p, .to = p, .rows = 1, .cols = 1, .ld_from = 1, .ld_to = 1);
        REFUSED(cross_entropy, .type = t, .logits = p, .target = n, .loss = p, .rows = 1, .n = 1, .ld = 1);
        REFUSED(adamw, .type = t, .master = p, .m = p, .v = p, .g = p, .n = 1, .t = 1);
        REFUSED(cast, .type = t, .from_type = ZF_F32, .to = p, .from = p, .n = 1);
        REFUSED(cast, .type = ZF_BF16, .from_type = t, .to = p, .from = p, .n = 1);
    }
    REFUSED(adamw, .type = ZF_BF16, .weights = x, .master = x, .m = x, .v = x, .g = x, .n = 1, .t = 1);
    REFUSED(matmul, .type_c = ZF_BF16, .a = x, .b = x, .c = x, .m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1);
    REFUSED(matmul, .type = ZF_BF16, .type_c = ZF_BF16, .accumulate = true, .a = x, .b = x, .c = x, .m = 1, .n = 1, .k = 1, .lda = 1,
            .ldb = 1, .ldc = 1);
    REFUSED(sum_losses, .rows = 1);
    REFUSED(sum_squares, .n = 1);
    REFUSED(adamw, .master = x, .m = x, .v = x, .g = x, .n = 1); /* t = 0 */
    REFUSED(rope, .x = x, .table = x, .position = index, .rows = 1, .heads = 1, .head_dim = 3, .ld = 3);
    REFUSED(rope, .x = x, .table = x, .position = index, .rows = 1, .heads = 1, .head_dim = ZF_HEAD_DIM_MAX + 2, .ld = 1000);
    REFUSED(matmul, .a = x, .b = x, .c = x, .m = 2, .n = 2, .k = 3, .lda = 2, .ldb = 2, .ldc = 2);
    REFUSED(norm, .x = x, .y = x, .rows = 1, .groups = 3, .cols = 2, .ldx = 5, .ldy = 6);
    REFUSED(norm, .x = x, .y = x, .residual = x, .rows = 1, .groups = 1, .cols = 2, .ldx = 2, .ldy = 2);
    REFUSED(activation, .x = x, .y = x, .rows = 1, .n = 2, .ldx = 1, .ldy = 2);
    REFUSED(activation, .kind = ZF_SWIGLU, .x = x, .y = x, .rows = 1, .n = 2, .ldx = 2, .ldy = 2);
    REFUSED(activation_backward, .kind = ZF_SWIGLU, .dy = x, .x = x, .up = x, .dx = x, .rows = 1, .n = 2, .lddy = 2, .ldx = 2, .lddx = 2);
    REFUSED(attention, .q = x, .k = x, .v = x, .o = x, .segments = &segment, .segment_count = 1, .heads = 3, .kv_heads = 2, .head_dim = 2,
            .ldq = 6, .ldkv = 6, .ldo = 6);
    assert_int_equal(d->type->lane_sync(l, &err), ZF_USAGE);
    assert_non_null(strstr(err.message, "clip_factor"));
    for (size_t i = 0; i < 64; i++) assert_true(x[i] == 0);
    d->type->lane_free(l);
    d->type->close(d);
}

static void test_busy(void **state)
{
    enum { N = LARGE / 2 };
    (void)state;
    struct zf_device *d = device_of(2, false);
    struct zf_lane *l = lane_of(d, "busy"), *idle = lane_of(d, "idle");
    struct zf_event *v = event_of(d);
    float *x = floats(d, N);
    double from = zf_clock();
    for (int i = 0; i < 20; i++) add(d, l, x, x, x, N);
    d->type->event_record(l, v);
    d->type->event_wait(idle, v);
    must_sync(d, idle);
    must_sync(d, l);
    double wall = zf_clock() - from;
    assert_true(d->type->lane_busy(l) > 0 && d->type->lane_busy(l) <= wall);
    assert_true(d->type->lane_busy(idle) == 0); /* waiting is no work */
    d->type->event_free(v);
    d->type->lane_free(l);
    for (int i = 0; i < 50; i++) d->type->fill(idle, x, i, sizeof *x);
    d->type->lane_free(idle); /* with work left in it */
    unsigned char last[sizeof *x], expected[sizeof *x];
    memcpy(last, x, sizeof last);
    memset(expected, 49, sizeof expected);
    assert_memory_equal(last, expected, sizeof last);
    d->type->free(d, x);
    d->type->close(d);
}

#ifndef ZF_TEST_CUDA
static void test_memory(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 300000, 5000001, 9 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    (void)state;
    struct zf_device *d = device_of(1, false);
    struct zf_device_info info;
    void *p[N];
    size_t total = 0;
    for (int round = 0; round < 3; round++) {
        total = 0;
        for (size_t i = 0; i < N; i++) {
            enum zf_mem_tag tag = i % 2 ? ZF_TAG_WEIGHTS : ZF_TAG_MOMENTS;
            assert_int_equal(d->type->alloc(d, i % 3 ? ZF_MEM_DEVICE : ZF_MEM_PINNED, tag, sizes[i], &p[i], &err), ZF_OK);
            assert_true((uintptr_t)p[i] % 64 == 0);
            for (size_t j = 0; j < sizes[i]; j++) assert_true(((char *)p[i])[j] == 0);
            memset(p[i], 0xab, sizes[i]);
            total += sizes[i];
        }
        d->type->info(d, &info);
        assert_int_equal(info.bytes[ZF_TAG_WEIGHTS], 1 + 64 + 4096 + 5000001);
        assert_int_equal(info.bytes[ZF_TAG_WEIGHTS] + info.bytes[ZF_TAG_MOMENTS], total);
        assert_int_equal(info.peak_bytes, total);
        for (size_t i = 0; i < N; i++) d->type->free(d, p[round == 1 ? N - 1 - i : i]);
        d->type->free(d, NULL);
        d->type->info(d, &info);
        assert_int_equal(info.bytes[ZF_TAG_WEIGHTS] + info.bytes[ZF_TAG_MOMENTS], 0);
        assert_int_equal(info.peak_bytes, total);
    }
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_WEIGHTS, SIZE_MAX, &p[0], &err), ZF_MEMORY);
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_WEIGHTS, SIZE_MAX / 2, &p[0], &err), ZF_MEMORY);
    assert_non_null(strstr(err.message, "weights"));
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_MEM_TAGS, 1, &p[0], &err), ZF_USAGE);
    d->type->close(d);
}

static void test_choice(void **state)
{
    (void)state;
    struct zf_device *d;
    struct zf_device_info info;
    assert_int_equal(zf_device_open(&d, "abacus", NULL, &err), ZF_USAGE);
    assert_non_null(strstr(err.message, "abacus"));
    assert_non_null(strstr(err.message, "host"));
    assert_null(d);
    assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.isa = "mmx"}, &err), ZF_USAGE);
    assert_non_null(strstr(err.message, "avx512, avx2, scalar"));
    assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.threads = -1}, &err), ZF_USAGE);
    assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.threads = 1 << 30}, &err), ZF_USAGE);
    assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.isa = "scalar", .threads = 2}, &err), ZF_OK);
    d->type->info(d, &info);
    assert_string_equal(info.isa, "scalar");
    assert_int_equal(info.threads, 2);
    assert_int_equal(strncmp(info.products, "oneDNN ", 7), 0);
    assert_int_equal(strncmp(info.description, "2 threads, scalar, oneDNN ", 26), 0);
    assert_true(info.total_bytes > 0 && info.free_bytes <= info.total_bytes);
    d->type->close(d);
    assert_int_equal(zf_device_open(&d, "host", NULL, &err), ZF_OK);
    d->type->info(d, &info);
    assert_true(info.threads >= 1);
    d->type->close(d);
    assert_int_equal(zf_dtype_size(ZF_BF16), 2);
    assert_string_equal(zf_dtype_name(ZF_I64), "i64");
    assert_int_equal(zf_dtype_size(ZF_DTYPES), 0);
}

#endif

/* Calls, arithmetic and memory of each op, under the phase it was issued in; events are no work. */
static void test_profile(void **state)
{
    enum { N = 64, ROWS = 3 };
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        struct zf_device *d = device_of(2, synchronous);
        struct zf_lane *l = lane_of(d, "profile");
        struct zf_event *v = event_of(d);
        struct zf_profile_row row[ROWS + 1];
        float *x = floats(d, N * N), *y = floats(d, N * N);
        assert_int_equal(d->type->lane_profile(l, row, ROWS), 0);
        d->type->fill(l, x, 0, N);
        d->type->lane_phase(l, ZF_PHASE_FORWARD);
        for (int i = 0; i < 2; i++)
            d->type->ops->matmul(l, &(struct zf_matmul_args){.a = x, .b = x, .c = y, .m = N, .n = N, .k = N, .lda = N, .ldb = N, .ldc = N});
        d->type->event_record(l, v);
        d->type->lane_phase(l, ZF_PHASE_UPDATE);
        add(d, l, x, y, y, N);
        must_sync(d, l);
        assert_int_equal(d->type->lane_profile(l, row, 0), 3);
        assert_int_equal(d->type->lane_profile(l, row, ROWS + 1), 3);
        assert_string_equal(row[0].op, "fill");
        assert_string_equal(zf_phase_name(row[0].phase), "other");
        assert_true(row[0].calls == 1 && row[0].bytes == N && row[0].flops == 0);
        assert_string_equal(row[1].op, "matmul");
        assert_int_equal(row[1].phase, ZF_PHASE_FORWARD);
        assert_true(row[1].calls == 2 && row[1].flops == 2 * 2.0 * N * N * N && row[1].bytes == 2 * 3 * 4.0 * N * N);
        assert_string_equal(row[2].op, "add");
        assert_true(row[2].phase == ZF_PHASE_UPDATE && row[2].calls == 1 && row[2].bytes == 3 * 4 * N);
        double sum = row[0].seconds + row[1].seconds + row[2].seconds;
        assert_true(sum > 0 && fabs(sum - d->type->lane_busy(l)) <= 1e-9 * sum);
        d->type->event_free(v);
        d->type->free(d, x);
        d->type->free(d, y);
        d->type->lane_free(l);
        d->type->close(d);
    }
}

/* A causal document sees half of the square, and the diagonal. */
static void test_profile_attention(void **state)
{
    enum { T = 5, HEADS = 2, DIM = 8 };
    (void)state;
    struct zf_device *d = device_of(1, false);
    struct zf_lane *l = lane_of(d, "profile");
    struct zf_profile_row row;
    struct zf_segment s[2] = {{0, T, 0, T}, {T, 1, T, 4}};
    float *x = floats(d, 3 * HEADS * DIM * (T + 4)), *y = floats(d, HEADS * DIM * (T + 1));
    size_t ld = 3 * HEADS * DIM;
    double pairs, keys;
    zf_segments_sum(s, 2, &pairs, &keys);
    d->type->ops->attention(l, &(struct zf_attention_args){.q = x,
                                                           .k = x + HEADS * DIM,
                                                           .v = x + 2 * HEADS * DIM,
                                                           .o = y,
                                                           .segments = s,
                                                           .segment_count = 2,
                                                           .heads = HEADS,
                                                           .kv_heads = HEADS,
                                                           .head_dim = DIM,
                                                           .ldq = ld,
                                                           .ldkv = ld,
                                                           .ldo = HEADS * DIM,
                                                           .q_rows = T + 1,
                                                           .k_rows = T + 4,
                                                           .pairs = pairs,
                                                           .keys = keys,
                                                           .scale = 1});
    must_sync(d, l);
    assert_int_equal(d->type->lane_profile(l, &row, 1), 1);
    assert_true(row.flops == 4.0 * HEADS * DIM * (T * (T + 1) / 2 + 4));
    assert_true(row.bytes == 4.0 * HEADS * DIM * 2 * (T + 1 + T + 4));
    d->type->free(d, x);
    d->type->free(d, y);
    d->type->lane_free(l);
    d->type->close(d);
}

/* Spans of two lanes, one of which waits for the other: in order, apart, waits kept from work; what does not fit goes, counted. Taken and
 * looked at while the lanes work. */
static void test_spans(void **state)
{
    enum { N = LARGE, ADDS = 60, ROOM = 16 }; /* work enough that the other lane has to wait */
    (void)state;
    struct zf_device *d = device_of(2, false);
    struct zf_lane *a = lane_of(d, "a"), *b = lane_of(d, "b");
    struct zf_event *v = event_of(d);
    struct zf_span span[ADDS + 2];
    struct zf_profile_row row[4];
    float *x = floats(d, N);
    uint64_t lost;
    assert_int_equal(d->type->lane_take(a, span, ADDS, &lost), 0); /* nobody watches: none are kept */
    add(d, a, x, x, x, N);
    must_sync(d, a);
    assert_int_equal(d->type->lane_take(a, span, ADDS, &lost), 0);

    double from = zf_clock(), sum = 0, waited = 0, last = from;
    assert_int_equal(d->type->lane_watch(a, ADDS + 2, &err), ZF_OK);
    assert_int_equal(d->type->lane_watch(b, ADDS + 2, &err), ZF_OK);
    d->type->lane_phase(a, ZF_PHASE_FORWARD);
    for (int i = 0; i < ADDS; i++) add(d, a, x, x, x, N);
    d->type->event_record(a, v);
    d->type->event_wait(b, v);
    add(d, b, x, x, x, 1);
    size_t n = 0, more;
    while (n < ADDS) { /* as they come */
        more = d->type->lane_take(a, span + n, ADDS + 2 - n, &lost);
        assert_int_equal(lost, 0);
        d->type->lane_profile(a, row, 4);
        assert_true(d->type->lane_busy(a) >= 0 && d->type->lane_waited(a) == 0);
        n += more;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    must_sync(d, b);
    assert_int_equal(n, ADDS);
    for (size_t i = 0; i < n; i++) {
        assert_true(span[i].start >= last && span[i].end >= span[i].start && !span[i].wait && span[i].phase == ZF_PHASE_FORWARD);
        assert_true(span[i].work > 0 && span[i].work <= span[i].end - span[i].start);
        assert_string_equal(span[i].op, "add");
        sum += span[i].work;
        last = span[i].end;
    }
    assert_true(sum > 0 && sum <= d->type->lane_busy(a));

    assert_int_equal(d->type->lane_take(b, span, ADDS, &lost), 2);
    assert_true(span[0].wait && span[0].work == 0 && span[0].end >= span[0].start && span[0].start >= from);
    assert_true(span[0].end >= last - APART);
    assert_string_equal(span[0].op, "wait");
    assert_true(!span[1].wait && span[1].start >= span[0].end);
    waited = span[0].end - span[0].start;
    assert_true(fabs(d->type->lane_waited(b) - waited) <= 1e-9);
    assert_true(fabs(d->type->lane_busy(b) - span[1].work) <= 1e-9); /* waiting is no work */

    assert_int_equal(d->type->lane_watch(a, ROOM, &err), ZF_OK);
    for (int i = 0; i < ADDS; i++) d->type->fill(a, x, i, 4);
    add(d, a, x, x, x, 4);
    must_sync(d, a);
    assert_int_equal(d->type->lane_take(a, span, ROOM / 2, &lost), ROOM / 2);
    assert_int_equal(lost, ADDS + 1 - ROOM);
    assert_string_equal(span[0].op, "fill");
    assert_int_equal(d->type->lane_take(a, span, ADDS, &lost), ROOM / 2);
    assert_int_equal(lost, 0);
    assert_string_equal(span[ROOM / 2 - 1].op, "add"); /* the newest are kept */
    assert_int_equal(d->type->lane_watch(a, 0, &err), ZF_OK);
    d->type->fill(a, x, 0, 4);
    must_sync(d, a);
    assert_int_equal(d->type->lane_take(a, span, ADDS, &lost), 0);
    d->type->event_free(v);
    d->type->free(d, x);
    d->type->lane_free(a);
    d->type->lane_free(b);
    d->type->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),        cmocka_unit_test(test_events_between_lanes),
        cmocka_unit_test(test_random_graph), cmocka_unit_test(test_event_moves_and_dies),
        cmocka_unit_test(test_copies),       cmocka_unit_test(test_lists_and_calls),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_broken_calls),
        cmocka_unit_test(test_busy),         cmocka_unit_test(test_spans),
        cmocka_unit_test(test_profile),      cmocka_unit_test(test_profile_attention),
#ifndef ZF_TEST_CUDA
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_choice),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
