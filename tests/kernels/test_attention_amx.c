/* Attention in bf16 by AMX's tiles against loops in double on the same numbers, within what rounding probabilities to bf16 and outputs once
 * may cost; and what has to hold bit by bit: no order of tasks, no way of cutting the work shows in the result. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "kernels/host/attention_amx.h"
#include "tests/kernels/attention_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint16_t HALF_POISON = 0x7fcb;

#define NEEDS_AMX() \
    (void)state; \
    if (!zf_host_amx()) skip()

/* ---- a run: operands in bf16, and results, which finish() widens ---- */

struct run {
    const struct problem *p;
    struct zf_attention_args f;
    struct zf_attention_backward_args b;
    struct result r;
    uint16_t *q, *k, *v, *d_o, *o, *dq, *dk, *dv;
};

static uint16_t *poisoned(struct matrix m)
{
    uint16_t *h = malloc(m.size * sizeof *h + 1);
    assert_non_null(h);
    for (size_t i = 0; i < m.size; i++) h[i] = HALF_POISON;
    return h;
}

static struct run run_new(const struct problem *p)
{
    struct run x = {.p = p, .r = result_new(p)};
    x.q = to_bf16(p->q);
    x.k = to_bf16(p->k);
    x.v = to_bf16(p->v);
    x.d_o = to_bf16(p->do_);
    x.o = poisoned(x.r.o);
    x.dq = poisoned(x.r.dq);
    x.dk = poisoned(x.r.dk);
    x.dv = poisoned(x.r.dv);
    x.f = forward_args(p, &x.r);
    x.b = backward_args(p, &x.r);
    x.f.type = x.b.type = ZF_BF16;
    x.f.q = x.b.q = x.q, x.f.k = x.b.k = x.k, x.f.v = x.b.v = x.v, x.f.o = x.o, x.b.o = x.o;
    x.b.do_ = x.d_o, x.b.dq = x.dq, x.b.dk = x.dk, x.b.dv = x.dv;
    return x;
}

/* Moves what was written into m. */
static void collect(struct matrix m, uint16_t *half)
{
    for (size_t i = 0; i < m.size; i++) {
        if (half[i] != HALF_POISON) m.at[i] = zf_bf16_to_f32(half[i]);
        half[i] = HALF_POISON;
    }
}

static struct result finish(struct run *x)
{
    collect(x->r.o, x->o);
    collect(x->r.dq, x->dq);
    collect(x->r.dk, x->dk);
    collect(x->r.dv, x->dv);
    uint16_t *all[] = {x->q, x->k, x->v, x->d_o, x->o, x->dq, x->dk, x->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return x->r;
}

static struct result run_problem(const struct problem *p, enum order order)
{
    struct run x = run_new(p);
    run_tasks(&zf_host_attention_amx, &x.f, order);
    run_tasks(&zf_host_attention_backward_amx, &x.b, order);
    return finish(&x);
}

static void check_result(const struct problem *p, const struct expected *e, const struct result *r)
{
    assert_close("o", "amx", &p->shape, apart(r->o, e->r.o, p->ldo, p->in_q), 4e-3);
    assert_close("lse", "amx", &p->shape, distance(r->lse, e->r.lse, p->in_q), 2e-6);
    assert_close("dq", "amx", &p->shape, apart(r->dq, e->r.dq, p->ldq, p->in_q), 1e-2);
    assert_close("dk", "amx", &p->shape, apart(r->dk, e->r.dk, p->ldkv, p->in_k), 1e-2);
    assert_close("dv", "amx", &p->shape, apart(r->dv, e->r.dv, p->ldkv, p->in_k), 4e-3);
}

/* ---- tests ---- */

/* Heads of every width, also such that blocks of rows and what the stack has room for change; segments around 16, 32 and 128 keys. */
static const struct shape shapes[] = {
    {1, 1, 1, 3, 1, 130, false},    {3, 1, 5, 6, 1, 130, false},    {4, 2, 16, 5, 1, 130, false},   {4, 2, 20, 3, 1, 100, true},
    {2, 2, 64, 2, 1, 130, false},   {3, 1, 64, 9, 1, 60, false},    {9, 3, 8, 40, 1, 7, false},     {2, 1, 80, 2, 1, 130, false},
    {2, 2, 128, 2, 1, 80, false},   {2, 1, 256, 2, 1, 70, false},   {1, 1, 256, 9, 1, 40, true},    {70, 1, 5, 2, 1, 20, false},
    {5, 5, 17, 12, 1, 33, true},    {3, 1, 64, 1, 1, 300, true},    {6, 2, 37, 4, 1, 90, true},     {3, 3, 144, 3, 1, 65, false},
    {9, 3, 64, 4, 250, 256, false}, {4, 4, 96, 3, 120, 140, true},  {1, 1, 32, 20, 15, 17, false},  {2, 2, 33, 20, 31, 33, true},
    {4, 1, 64, 8, 127, 129, false}, {2, 1, 160, 2, 100, 200, true}, {2, 1, 192, 2, 100, 200, true}, {1, 1, 224, 2, 100, 200, true},
    {1, 1, 96, 8, 350, 360, false}, {3, 1, 1, 30, 1, 1, false},     {1, 1, 64, 1, 600, 600, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct problem problem;

static struct problem *problem_of(uint64_t number, const struct shape *s)
{
    seed = number;
    problem_init(&problem, s);
    round_inputs(&problem);
    return &problem;
}

static void test_matches_reference(void **state)
{
    NEEDS_AMX();
    for (size_t i = 0; i < SHAPES; i++) {
        struct problem *p = problem_of(100 + i, &shapes[i]);
        struct expected e = expected_new(p);
        struct result r = run_problem(p, RANDOM);
        check_result(p, &e, &r);
        result_free(&r);
        expected_free(&e);
        problem_free(p);
    }
}

static void test_order_of_tasks_does_not_matter(void **state)
{
    NEEDS_AMX();
    for (size_t i = 0; i < SHAPES; i++) {
        struct problem *p = problem_of(200 + i, &shapes[i]);
        struct result a = run_problem(p, FORWARD), b = run_problem(p, REVERSE);
        assert_same_bits(&a, &b);
        result_free(&a);
        result_free(&b);
        problem_free(p);
    }
}

static void test_tasks_write_apart(void **state)
{
    NEEDS_AMX();
    static const struct shape some[] = {{3, 1, 20, 2, 100, 300, true}, {4, 2, 20, 5, 1, 90, false}, {2, 1, 144, 1, 600, 600, true}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct problem *p = problem_of(250 + i, &some[i]);
        struct run x = run_new(p), y = run_new(p);
        unsigned char *o = calloc(x.r.o.size, 1), *lse = calloc(x.r.lse.size, 1);
        unsigned char *dq = calloc(x.r.dq.size, 1), *dk = calloc(x.r.dk.size, 1), *dv = calloc(x.r.dv.size, 1);
        assert_true(o && lse && dq && dk && dv);
        for (size_t t = 0; t < zf_host_attention_amx.tasks(&x.f); t++) {
            zf_host_attention_amx.run(&x.f, t);
            collect(x.r.o, x.o);
            take(x.r.o, o);
            take(x.r.lse, lse);
        }
        run_tasks(&zf_host_attention_amx, &y.f, FORWARD);
        for (size_t t = 0; t < zf_host_attention_backward_amx.tasks(&y.b); t++) {
            zf_host_attention_backward_amx.run(&y.b, t);
            collect(y.r.dq, y.dq);
            collect(y.r.dk, y.dk);
            collect(y.r.dv, y.dv);
            take(y.r.dq, dq);
            take(y.r.dk, dk);
            take(y.r.dv, dv);
        }
        unsigned char *all[] = {o, lse, dq, dk, dv};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
        struct result r[] = {finish(&x), finish(&y)};
        result_free(&r[0]);
        result_free(&r[1]);
        problem_free(p);
    }
}

/* Rows `from` .. `to` of two matrices of the same shape. */
static void assert_same_rows(struct matrix a, struct matrix b, size_t from, size_t count)
{
    for (size_t r = from; r < from + count; r++) assert_memory_equal(a.at + r * a.ld, b.at + r * b.ld, a.cols * sizeof(float));
}

/* A document by itself is cut into blocks of queries and spans of keys; with many others its task is one. The bits are the same. */
static void test_cutting_the_work_does_not_show(void **state)
{
    NEEDS_AMX();
    static const struct shape some[] = {{3, 1, 32, 9, 540, 560, false}, {2, 2, 80, 9, 200, 300, true}, {1, 1, 256, 9, 100, 200, true}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct problem *p = problem_of(260 + i, &some[i]);
        struct run alone = run_new(p);
        struct result all = run_problem(p, FORWARD);
        const struct zf_segment *s = &p->segments[i * 3];
        alone.f.segments = alone.b.segments = s;
        alone.f.segment_count = alone.b.segment_count = 1;
        run_tasks(&zf_host_attention_amx, &alone.f, RANDOM);
        run_tasks(&zf_host_attention_backward_amx, &alone.b, RANDOM);
        assert_true(zf_host_attention_backward_amx.tasks(&alone.b) != p->shape.kv_heads);
        struct result one = finish(&alone);
        assert_same_rows(all.o, one.o, s->q_begin, s->q_count);
        assert_same_rows(all.dq, one.dq, s->q_begin, s->q_count);
        assert_same_rows(all.dk, one.dk, s->k_begin, s->k_count);
        assert_same_rows(all.dv, one.dv, s->k_begin, s->k_count);
        result_free(&all);
        result_free(&one);
        problem_free(p);
    }
}

/* A query over a cache gives the bits that it has in the middle of its document. */
static void test_decoding_gives_the_bits_of_the_whole(void **state)
{
    NEEDS_AMX();
    enum { TOKENS = 300 };
    struct problem *p = problem_of(310, &(struct shape){6, 2, 20, 1, TOKENS, TOKENS, false});
    struct run x = run_new(p), y = run_new(p), z = run_new(p);
    struct zf_segment step;
    run_tasks(&zf_host_attention_amx, &x.f, FORWARD);
    for (size_t i = 0, count; i < TOKENS; i += count) {
        count = i < 200 ? 50 : i < 210 ? 3 : 1;
        step = (struct zf_segment){p->segments[0].q_begin + i, count, p->segments[0].k_begin, i + count};
        y.f.segments = &step;
        run_tasks(&zf_host_attention_amx, &y.f, FORWARD);
    }
    z.f.lse = NULL;
    run_tasks(&zf_host_attention_amx, &z.f, FORWARD);
    struct result whole = finish(&x), part = finish(&y), no_lse = finish(&z);
    assert_memory_equal(whole.o.at, part.o.at, whole.o.size * sizeof(float));
    assert_memory_equal(whole.lse.at, part.lse.at, whole.lse.size * sizeof(float));
    assert_memory_equal(whole.o.at, no_lse.o.at, whole.o.size * sizeof(float));
    result_free(&whole);
    result_free(&part);
    result_free(&no_lse);
    problem_free(p);
}

/* Thousands of segments of one token: what comes out is the value, and there are not thousands of tasks a head. */
static void test_tiny_segments(void **state)
{
    NEEDS_AMX();
    struct problem *p = problem_of(320, &(struct shape){2, 1, 4, SEGMENTS_MAX, 1, 1, false});
    struct run x = run_new(p);
    assert_true(zf_host_attention_amx.tasks(&x.f) <= SEGMENTS_MAX / 16);
    x.f.segment_count = 0;
    assert_int_equal(zf_host_attention_amx.tasks(&x.f), 0);
    struct result unused = finish(&x), r = run_problem(p, FORWARD);
    for (size_t i = 0; i < SEGMENTS_MAX; i++)
        for (size_t h = 0; h < 2; h++)
            assert_memory_equal(r.o.at + p->segments[i].q_begin * r.o.ld + h * 4, p->v.at + p->segments[i].k_begin * p->ldkv, 16);
    result_free(&unused);
    result_free(&r);
    problem_free(p);
}

/* Scores of +-10000: the softmax is all but a choice. */
static void test_large_scores(void **state)
{
    NEEDS_AMX();
    struct problem *p = problem_of(330, &(struct shape){2, 1, 16, 2, 200, 200, false});
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < 200; i++) {
            float *q = p->q.at + (p->segments[s].q_begin + i) * p->ldq, *k = p->k.at + (p->segments[s].k_begin + i) * p->ldkv;
            for (size_t d = 0; d < 16; d++) {
                q[d] = q[16 + d] = d ? 0 : 200;
                k[d] = d ? 0 : below(2) ? 200 : -200;
            }
        }
    }
    struct expected e = expected_new(p);
    struct result r = run_problem(p, FORWARD);
    assert_close("o", "amx", &p->shape, apart(r.o, e.r.o, p->ldo, p->in_q), 4e-3);
    assert_close("lse", "amx", &p->shape, distance(r.lse, e.r.lse, p->in_q), 1e-6);
    assert_close("dv", "amx", &p->shape, apart(r.dv, e.r.dv, p->ldkv, p->in_k), 1e-2);
    result_free(&r);
    expected_free(&e);
    problem_free(p);
}

/* Scores that rise by much from tile to tile, so that sums are rescaled, and that fall. */
static void test_rising_scores(void **state)
{
    NEEDS_AMX();
    for (int sign = -1; sign < 2; sign += 2) {
        struct problem *p = problem_of(335, &(struct shape){2, 1, 64, 1, 700, 700, false});
        for (size_t i = 0; i < 700; i++) {
            float *q = p->q.at + (p->segments[0].q_begin + i) * p->ldq, *k = p->k.at + (p->segments[0].k_begin + i) * p->ldkv;
            q[0] = q[64] = 16;
            k[0] = (float)(sign * (int)(i / 10)) * 0.5f;
        }
        round_inputs(p);
        struct expected e = expected_new(p);
        struct result r = run_problem(p, FORWARD);
        check_result(p, &e, &r);
        result_free(&r);
        expected_free(&e);
        problem_free(p);
    }
}

/* Scores that overflow to -infinity have no weight, also where they fill the first tile of keys. */
static void test_scores_of_minus_infinity(void **state)
{
    NEEDS_AMX();
    struct problem *p = problem_of(340, &(struct shape){1, 1, 16, 1, 300, 300, false});
    size_t q = p->segments[0].q_begin, k = p->segments[0].k_begin;
    for (size_t i = 0; i < 300; i++) {
        p->q.at[(q + i) * p->ldq] = 1e30f;
        p->k.at[(k + i) * p->ldkv] = i < 130 ? -1e30f : 0;
    }
    round_inputs(p);
    struct expected e = expected_new(p);
    struct result r = run_problem(p, FORWARD);
    for (size_t i = 0; i < 300; i++) {
        for (size_t d = 0; d < 16; d++) {
            float found = r.o.at[(q + i) * r.o.ld + d];
            if (i < 130)
                assert_true(isnan(found));
            else
                assert_true(fabs((double)found - e.r.o[(q + i) * p->ldo + d]) < 2e-2);
        }
    }
    result_free(&r);
    expected_free(&e);
    problem_free(p);
}

/* A key that is NaN spoils its own and all later queries of its document, and nothing else. */
static void test_nan_propagates(void **state)
{
    NEEDS_AMX();
    enum { BAD = 70 };
    struct problem *p = problem_of(350, &(struct shape){4, 2, 20, 2, 100, 100, false});
    float *key = p->k.at + (p->segments[0].k_begin + BAD) * p->ldkv + 20 + 19; /* of the second key/value head */
    struct result clean = run_problem(p, FORWARD);
    *key = NAN;
    struct result r = run_problem(p, FORWARD);
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < 100; i++) {
            for (size_t c = 0; c < 80; c++) {
                size_t o = (p->segments[s].q_begin + i) * r.o.ld + c, dq = (p->segments[s].q_begin + i) * r.dq.ld + c;
                bool spoilt = s == 0 && i >= BAD && c >= 40;
                if (spoilt)
                    assert_true(isnan(r.o.at[o]));
                else
                    assert_memory_equal(&r.o.at[o], &clean.o.at[o], sizeof(float));
                if (spoilt) assert_true(isnan(r.dq.at[dq]));
            }
        }
    }
    assert_true(isnan(r.dk.at[p->segments[0].k_begin * r.dk.ld + 20]));
    result_free(&clean);
    result_free(&r);
    problem_free(p);
}

/* The greatest score is that of the greatest product only where the scale is positive; else the other code does it. */
static void test_scale_that_is_not_positive(void **state)
{
    NEEDS_AMX();
    for (int zero = 0; zero < 2; zero++) {
        struct problem *p = problem_of(360, &(struct shape){6, 2, 32, 3, 1, 200, true});
        p->scale = zero ? 0 : -0.25f;
        struct expected e = expected_new(p);
        struct result r = run_problem(p, RANDOM);
        assert_close("o", "amx", &p->shape, apart(r.o, e.r.o, p->ldo, p->in_q), 4e-3);
        assert_close("dv", "amx", &p->shape, apart(r.dv, e.r.dv, p->ldkv, p->in_k), 4e-3);
        if (!zero) assert_close("dk", "amx", &p->shape, apart(r.dk, e.r.dk, p->ldkv, p->in_k), 1e-2);
        result_free(&r);
        expected_free(&e);
        problem_free(p);
    }
}

/* The device takes it where it can, says so, and gives the same bits on any number of threads; a forced path is left alone. */
static void test_device(void **state)
{
    (void)state;
    struct zf_err err;
    struct problem *p = problem_of(370, &(struct shape){9, 3, 64, 5, 1, 150, false});
    struct result amx = {0};
    if (zf_host_amx()) amx = run_problem(p, FORWARD);
    static const char *const forced[] = {NULL, "avx512+amx", "avx512", "scalar"};
    for (int threads = 1; threads <= 3; threads++) {
        for (size_t i = 0; i < sizeof forced / sizeof *forced && (i < 3 || threads == 1); i++) {
            struct zf_device_options options = {.threads = threads, .isa = forced[i]};
            struct zf_device_info info;
            struct zf_device *d;
            struct zf_lane *l;
            if (zf_device_open(&d, "host", &options, &err)) {
                assert_non_null(forced[i]);
                assert_false(!strcmp(forced[i], "avx512+amx") && zf_host_amx());
                continue;
            }
            d->type->info(d, &info);
            if (forced[i])
                assert_string_equal(info.isa, forced[i]);
            else
                assert_true(!strcmp(info.isa, "avx512+amx") == zf_host_amx());
            struct run x = run_new(p);
            assert_int_equal(d->type->lane_new(d, "test", &l, &err), ZF_OK);
            assert_int_equal(d->type->ops->attention(l, &x.f), ZF_OK);
            assert_int_equal(d->type->ops->attention_backward(l, &x.b), ZF_OK);
            assert_int_equal(d->type->lane_sync(l, &err), ZF_OK);
            d->type->lane_free(l);
            d->type->close(d);
            struct result r = finish(&x);
            if (!strcmp(info.isa, "avx512+amx"))
                assert_same_bits(&amx, &r);
            else if (amx.o.at)
                assert_memory_not_equal(amx.dq.at, r.dq.at, r.dq.size * sizeof(float));
            result_free(&r);
        }
    }
    if (amx.o.at) result_free(&amx);
    problem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches_reference),
        cmocka_unit_test(test_order_of_tasks_does_not_matter),
        cmocka_unit_test(test_tasks_write_apart),
        cmocka_unit_test(test_cutting_the_work_does_not_show),
        cmocka_unit_test(test_decoding_gives_the_bits_of_the_whole),
        cmocka_unit_test(test_tiny_segments),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_rising_scores),
        cmocka_unit_test(test_scores_of_minus_infinity),
        cmocka_unit_test(test_nan_propagates),
        cmocka_unit_test(test_scale_that_is_not_positive),
        cmocka_unit_test(test_device),
    };
    if (!zf_host_amx()) print_message("skipped: this processor (or its operating system) has no tiles of bf16\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
