/* Attention on the CUDA device against loops in double: heads of every width, documents of every length, queries that continue cached keys;
 * what is of no document is neither read nor written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/attention_problem.h"

#include <stdlib.h>
#include <string.h>

extern const struct zf_device_type zf_cuda_device;

static struct zf_device *device;
static struct zf_lane *lane;
static struct zf_err err;

static const struct shape shapes[] = {
    {1, 1, 1, 3, 1, 70, false},   {3, 1, 5, 6, 1, 50, false},   {4, 2, 16, 5, 1, 40, false},   {4, 2, 20, 3, 1, 60, true},
    {2, 2, 64, 2, 1, 70, false},  {3, 1, 64, 9, 1, 20, false},  {9, 3, 8, 20, 1, 7, false},    {2, 1, 80, 2, 1, 40, false},
    {2, 2, 128, 2, 1, 50, false}, {2, 1, 256, 2, 1, 40, false}, {1, 1, 256, 5, 1, 30, true},   {5, 5, 17, 6, 1, 33, true},
    {2, 2, 33, 6, 31, 33, true},  {3, 1, 1, 30, 1, 1, false},   {1, 1, 64, 1, 130, 130, true}, {4, 1, 64, 3, 63, 65, false},
};

static const uint16_t HALF_POISON = 0x7fcb;

/* A matrix of results as kernels of bf16 write it. */
static uint16_t *halves(struct matrix m)
{
    uint16_t *h = malloc(m.size * sizeof *h + 1);
    assert_non_null(h);
    for (size_t i = 0; i < m.size; i++) h[i] = HALF_POISON;
    return h;
}

static void collect(struct matrix m, uint16_t *half)
{
    for (size_t i = 0; i < m.size; i++)
        if (half[i] != HALF_POISON) m.at[i] = zf_bf16_to_f32(half[i]);
    free(half);
}

static void run(struct zf_attention_args *f, struct zf_attention_backward_args *b)
{
    assert_int_equal(device->type->ops->attention(lane, f), ZF_OK);
    assert_int_equal(device->type->ops->attention_backward(lane, b), ZF_OK);
    if (device->type->lane_sync(lane, &err)) fail_msg("%s", err.message);
}

static struct result run_f32(const struct problem *p)
{
    struct result r = result_new(p);
    struct zf_attention_args f = forward_args(p, &r);
    struct zf_attention_backward_args b = backward_args(p, &r);
    run(&f, &b);
    return r;
}

static struct result run_bf16(const struct problem *p)
{
    struct result r = result_new(p);
    struct zf_attention_args f = forward_args(p, &r);
    struct zf_attention_backward_args b = backward_args(p, &r);
    uint16_t *in[] = {to_bf16(p->q), to_bf16(p->k), to_bf16(p->v), to_bf16(p->do_)}, *o = halves(r.o), *dq = halves(r.dq),
             *dk = halves(r.dk), *dv = halves(r.dv);
    f.type = b.type = ZF_BF16;
    f.q = b.q = in[0], f.k = b.k = in[1], f.v = b.v = in[2], b.do_ = in[3];
    f.o = o, b.o = o, b.dq = dq, b.dk = dk, b.dv = dv;
    run(&f, &b);
    collect(r.o, o);
    collect(r.dq, dq);
    collect(r.dk, dk);
    collect(r.dv, dv);
    for (size_t i = 0; i < 4; i++) free(in[i]);
    return r;
}

static void check(const struct problem *p, const struct result *r, const char *type, double outputs, double gradients)
{
    struct expected e = expected_new(p);
    assert_close("o", type, &p->shape, apart(r->o, e.r.o, p->ldo, p->in_q), outputs);
    assert_close("lse", type, &p->shape, distance(r->lse, e.r.lse, p->in_q), 2e-6);
    assert_close("dq", type, &p->shape, apart(r->dq, e.r.dq, p->ldq, p->in_q), gradients);
    assert_close("dk", type, &p->shape, apart(r->dk, e.r.dk, p->ldkv, p->in_k), gradients);
    assert_close("dv", type, &p->shape, apart(r->dv, e.r.dv, p->ldkv, p->in_k), outputs);
    expected_free(&e);
}

static struct problem problem;

static void test_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        seed = 700 + i;
        problem_init(&problem, &shapes[i]);
        struct result r = run_f32(&problem), again = run_f32(&problem);
        check(&problem, &r, "f32", 2e-6, 5e-6);
        assert_same_bits(&r, &again);
        result_free(&r);
        result_free(&again);
        problem_free(&problem);
    }
}

static void check_bf16(const struct shape *shape)
{
    problem_init(&problem, shape);
    round_inputs(&problem);
    struct result r = run_bf16(&problem), again = run_bf16(&problem);
    check(&problem, &r, "bf16", 4e-3, 1e-2);
    assert_same_bits(&r, &again);
    result_free(&r);
    result_free(&again);
    problem_free(&problem);
}

static void test_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        seed = 800 + i;
        check_bf16(&shapes[i]);
    }
}

/* Every width of head that the tensor cores take, rows read and written 16 bytes at a time and one by one, heads that share keys. */
static void test_tiles(void **state)
{
    static const size_t heads[][2] = {{1, 1}, {2, 1}, {6, 2}, {3, 3}, {7, 1}};
    (void)state;
    for (size_t width = 16, i = 0; width <= 256; width += 16, i++)
        for (int aligned = 0; aligned < 2; aligned++) {
            const size_t *h = heads[(i + (size_t)aligned) % 5];
            seed = 900 + 2 * i + (size_t)aligned;
            check_bf16(&(struct shape){h[0], h[1], width, 3, 1, 40, i % 3 == 1, aligned});
        }
}

/* Documents longer than the tiles of both kernels, and many that are shorter. */
static void test_lengths(void **state)
{
    static const struct shape list[] = {
        {1, 1, 64, 1, 300, 300, false, true},  {2, 1, 128, 2, 100, 200, true, true}, {1, 1, 64, 40, 1, 5, false, true},
        {1, 1, 128, 1, 129, 129, false, true}, {1, 1, 80, 3, 63, 66, false, true},   {2, 1, 96, 1, 260, 260, true, false},
        {1, 1, 64, 3, 128, 128, false, true},  {1, 1, 32, 1, 500, 500, true, true},  {1, 1, 256, 2, 90, 100, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        seed = 1000 + i;
        check_bf16(&list[i]);
    }
}

/* A few queries behind many keys: what generation asks for, a query a segment. */
static void test_generation(void **state)
{
    static const struct shape shape = {4, 2, 64, 6, 60, 150, true, true};
    (void)state;
    seed = 1100;
    problem_init(&problem, &shape);
    round_inputs(&problem);
    size_t rows = 0;
    for (size_t i = 0; i < shape.segments; i++) problem.segments[i].q_begin = rows++, problem.segments[i].q_count = 1;
    assert_true(rows <= problem.q_rows);
    memset(problem.in_q, 0, problem.q_rows);
    memset(problem.in_q, 1, rows);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < problem.q.cols; c++) {
            problem.q.at[r * problem.q.ld + c] = (float)((r + 5 * c) % 7) / 4 - 0.75f;
            problem.do_.at[r * problem.do_.ld + c] = (float)((3 * r + c) % 11) / 8 - 0.5f;
        }
    struct result r = run_bf16(&problem);
    check(&problem, &r, "bf16", 4e-3, 1e-2);
    result_free(&r);
    problem_free(&problem);
}

static int open_device(void **state)
{
    (void)state;
    if (zf_cuda_device.open(&device, &(struct zf_device_options){0}, &err)) return -1;
    return device->type->lane_new(device, "test", &lane, &err) ? -1 : 0;
}

static int close_device(void **state)
{
    (void)state;
    device->type->lane_free(lane);
    device->type->close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16), cmocka_unit_test(test_tiles),
                                       cmocka_unit_test(test_lengths), cmocka_unit_test(test_generation)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
