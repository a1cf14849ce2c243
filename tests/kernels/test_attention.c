/* Attention forward and backward: every path this processor runs against loops in double, over many shapes.
 * Everything that must not be read or written (gaps between rows, rows of no segment) holds a NaN. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/attention_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATHS(X) X(scalar) X(avx2) X(avx512)
#define X(path) \
    extern const struct zf_host_kernel zf_host_attention_##path, zf_host_attention_backward_##path, zf_host_attention_##path##_bf16, \
        zf_host_attention_backward_##path##_bf16;
PATHS(X)
#undef X

enum { PATH_COUNT = 3 };

static const struct path {
    const char *name;
    const struct zf_host_kernel *forward, *backward, *forward_bf16, *backward_bf16;
} paths[PATH_COUNT] = {
#define X(path) \
    {#path, &zf_host_attention_##path, &zf_host_attention_backward_##path, &zf_host_attention_##path##_bf16, \
     &zf_host_attention_backward_##path##_bf16},
    PATHS(X)
#undef X
};

static bool path_runs(size_t i)
{
    bool runs[PATH_COUNT] = {true, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), __builtin_cpu_supports("avx512f")};
    return runs[i];
}

static struct result run_problem(const struct problem *p, size_t path, enum order order)
{
    struct result r = result_new(p);
    struct zf_attention_args f = forward_args(p, &r);
    run_tasks(paths[path].forward, &f, order);
    struct zf_attention_backward_args b = backward_args(p, &r);
    run_tasks(paths[path].backward, &b, order);
    return r;
}

static void check_result(const struct problem *p, const struct expected *e, const struct result *r, const char *path)
{
    assert_close("o", path, &p->shape, apart(r->o, e->r.o, p->ldo, p->in_q), 3e-6);
    assert_close("lse", path, &p->shape, distance(r->lse, e->r.lse, p->in_q), 1e-6);
    assert_close("dq", path, &p->shape, apart(r->dq, e->r.dq, p->ldq, p->in_q), 1e-5);
    assert_close("dk", path, &p->shape, apart(r->dk, e->r.dk, p->ldkv, p->in_k), 1e-5);
    assert_close("dv", path, &p->shape, apart(r->dv, e->r.dv, p->ldkv, p->in_k), 1e-5);
}

/* ---- tests ---- */

static const struct shape shapes[] = {
    {1, 1, 1, 3, 1, 130, false}, {3, 1, 5, 6, 1, 130, false}, {4, 2, 16, 5, 1, 130, false}, {4, 2, 20, 3, 1, 100, true},
    {2, 2, 64, 2, 1, 130, false}, {3, 1, 64, 9, 1, 60, false}, {9, 3, 8, 40, 1, 7, false}, {2, 1, 80, 2, 1, 130, false},
    {2, 2, 128, 2, 1, 80, false}, {2, 1, 256, 2, 1, 70, false}, {1, 1, 256, 9, 1, 40, true}, {70, 1, 5, 2, 1, 20, false},
    {5, 5, 17, 12, 1, 33, true}, {3, 1, 64, 1, 1, 300, true}, {6, 2, 37, 4, 1, 90, true}, {3, 3, 144, 3, 1, 65, false},
};

static void test_paths_match_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        static struct problem p;
        seed = 100 + i;
        problem_init(&p, &shapes[i]);
        struct expected e = expected_new(&p);
        struct result first = {0};
        for (size_t path = 0; path < PATH_COUNT; path++) {
            if (!path_runs(path)) continue;
            struct result r = run_problem(&p, path, FORWARD);
            check_result(&p, &e, &r, paths[path].name);
            if (path == 0) {
                first = r;
                continue;
            }
            assert_same_bits(&first, &r);
            result_free(&r);
        }
        result_free(&first);
        expected_free(&e);
        problem_free(&p);
    }
}

static size_t best_path(void)
{
    size_t best = 0;
    for (size_t i = 0; i < PATH_COUNT; i++)
        if (path_runs(i)) best = i;
    return best;
}

/* ---- bf16: what the kernels in f32, which are held against the reference, make of the same numbers, rounded once ---- */

/* What was written, rounded, bit by bit; elsewhere the poison, which to_bf16 put there. */
static void assert_rounded(const char *what, const char *path, const struct shape *s, struct matrix expected, const uint16_t *found)
{
    for (size_t i = 0; i < expected.size; i++)
        if (found[i] != zf_f32_to_bf16(expected.at[i]))
            fail_msg("%s, path %s, heads %zu/%zu, head_dim %zu, %zu segments of up to %zu: %g at %zu, expected %g rounded", what, path,
                s->heads, s->kv_heads, s->head_dim, s->segments, s->longest, (double)zf_bf16_to_f32(found[i]), i, (double)expected.at[i]);
}

static void check_bf16(const struct problem *p, size_t path, enum order order)
{
    struct result r = result_new(p), empty = result_new(p);
    uint16_t *q = to_bf16(p->q), *k = to_bf16(p->k), *v = to_bf16(p->v), *d_o = to_bf16(p->do_);
    uint16_t *o = to_bf16(empty.o), *dq = to_bf16(empty.dq), *dk = to_bf16(empty.dk), *dv = to_bf16(empty.dv);
    struct zf_attention_args f = forward_args(p, &r), h = forward_args(p, &empty);
    run_tasks(paths[best_path()].forward, &f, FORWARD);
    h.type = ZF_BF16;
    h.q = q, h.k = k, h.v = v, h.o = o;
    run_tasks(paths[path].forward_bf16, &h, order);
    assert_rounded("o", paths[path].name, &p->shape, r.o, o);
    assert_memory_equal(r.lse.at, empty.lse.at, r.lse.size * sizeof(float));

    round_all(r.o);
    struct zf_attention_backward_args b = backward_args(p, &r), g = backward_args(p, &empty);
    run_tasks(paths[best_path()].backward, &b, FORWARD);
    g.type = ZF_BF16;
    g.q = q, g.k = k, g.v = v, g.o = o, g.do_ = d_o;
    g.dq = dq, g.dk = dk, g.dv = dv;
    run_tasks(paths[path].backward_bf16, &g, order);
    assert_rounded("dq", paths[path].name, &p->shape, r.dq, dq);
    assert_rounded("dk", paths[path].name, &p->shape, r.dk, dk);
    assert_rounded("dv", paths[path].name, &p->shape, r.dv, dv);
    uint16_t *const all[] = {q, k, v, d_o, o, dq, dk, dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    result_free(&r);
    result_free(&empty);
}

static void test_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        static struct problem p;
        seed = 500 + i;
        problem_init(&p, &shapes[i]);
        round_inputs(&p);
        for (size_t path = 0; path < PATH_COUNT; path++)
            if (path_runs(path) && (path || i % 3 == 0)) check_bf16(&p, path, path == 1 ? REVERSE : RANDOM); /* scalar is slow */
        problem_free(&p);
    }
}

static void test_order_of_tasks_does_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        static struct problem p;
        seed = 200 + i;
        problem_init(&p, &shapes[i]);
        struct result a = run_problem(&p, best_path(), FORWARD), b = run_problem(&p, best_path(), REVERSE);
        struct result c = run_problem(&p, best_path(), RANDOM);
        assert_same_bits(&a, &b);
        assert_same_bits(&a, &c);
        result_free(&a);
        result_free(&b);
        result_free(&c);
        problem_free(&p);
    }
}

/* Threads run tasks at the same time: no two may write one number. */
static void test_tasks_write_apart(void **state)
{
    (void)state;
    static const struct shape some[] = {{3, 1, 20, 2, 100, 300, true}, {4, 2, 20, 5, 1, 90, false}, {2, 1, 144, 1, 200, 200, false}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        static struct problem p;
        seed = 250 + i;
        problem_init(&p, &some[i]);
        struct result whole = run_problem(&p, best_path(), FORWARD), r = result_new(&p);
        struct zf_attention_args f = forward_args(&p, &r);
        unsigned char *o = calloc(r.o.size, 1), *lse = calloc(r.lse.size, 1);
        unsigned char *dq = calloc(r.dq.size, 1), *dk = calloc(r.dk.size, 1), *dv = calloc(r.dv.size, 1);
        assert_true(o && lse && dq && dk && dv);
        for (size_t t = 0; t < paths[best_path()].forward->tasks(&f); t++) {
            paths[best_path()].forward->run(&f, t);
            take(r.o, o);
            take(r.lse, lse);
        }
        struct zf_attention_backward_args b = backward_args(&p, &r);
        b.o = whole.o.at;
        b.lse = whole.lse.at;
        for (size_t t = 0; t < paths[best_path()].backward->tasks(&b); t++) {
            paths[best_path()].backward->run(&b, t);
            take(r.dq, dq);
            take(r.dk, dk);
            take(r.dv, dv);
        }
        free(o);
        free(lse);
        free(dq);
        free(dk);
        free(dv);
        result_free(&whole);
        result_free(&r);
        problem_free(&p);
    }
}

/* Many heads, and documents with more keys than the stack has sums for; one of exactly as many. */
static void test_bf16_long_documents(void **state)
{
    (void)state;
    static const struct shape some[] = {{8, 8, 144, 1, 450, 450, false}, {9, 9, 256, 1, 256, 256, false}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        static struct problem p;
        seed = 550 + i;
        problem_init(&p, &some[i]);
        p.segments[0].q_count = 20; /* the last queries are enough */
        round_inputs(&p);
        check_bf16(&p, best_path(), FORWARD);
        problem_free(&p);
    }
}

/* One long document, where errors would add up. */
static void test_long_document_is_accurate(void **state)
{
    (void)state;
    static struct problem p;
    seed = 300;
    problem_init(&p, &(struct shape){3, 1, 64, 1, 512, 512, false});
    struct expected e = expected_new(&p);
    struct result r = run_problem(&p, best_path(), FORWARD);
    check_result(&p, &e, &r, paths[best_path()].name);
    result_free(&r);
    expected_free(&e);
    problem_free(&p);
}

/* A query over a cache gives the bits that it has in the middle of its document. */
static void test_decoding_gives_the_bits_of_the_whole(void **state)
{
    (void)state;
    static struct problem p;
    seed = 310;
    problem_init(&p, &(struct shape){6, 2, 20, 1, 150, 150, false});
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        struct result whole = run_problem(&p, path, FORWARD), part = result_new(&p);
        struct result no_lse = result_new(&p);
        struct zf_attention_args args = forward_args(&p, &part);
        struct zf_segment step;
        size_t q_begin = p.segments[0].q_begin, k_begin = p.segments[0].k_begin;
        for (size_t i = 0, count; i < 150; i += count) {
            count = i < 100 ? 50 : i < 110 ? 3 : 1;
            if (count > 150 - i) count = 150 - i;
            step = (struct zf_segment){q_begin + i, count, k_begin, i + count};
            args.segments = &step;
            run_tasks(paths[path].forward, &args, FORWARD);
        }
        assert_memory_equal(whole.o.at, part.o.at, whole.o.size * sizeof(float));
        assert_memory_equal(whole.lse.at, part.lse.at, whole.lse.size * sizeof(float));
        args = forward_args(&p, &no_lse);
        args.lse = NULL;
        run_tasks(paths[path].forward, &args, FORWARD);
        assert_memory_equal(whole.o.at, no_lse.o.at, whole.o.size * sizeof(float));
        result_free(&whole);
        result_free(&part);
        result_free(&no_lse);
    }
    problem_free(&p);
}

/* Thousands of segments of one token: what comes out is the value, and there are not thousands of tasks a head. */
static void test_tiny_segments(void **state)
{
    (void)state;
    static struct problem p;
    seed = 320;
    problem_init(&p, &(struct shape){2, 1, 4, SEGMENTS_MAX, 1, 1, false});
    struct result r = run_problem(&p, best_path(), FORWARD);
    for (size_t i = 0; i < SEGMENTS_MAX; i++)
        for (size_t h = 0; h < 2; h++)
            assert_memory_equal(r.o.at + p.segments[i].q_begin * r.o.ld + h * 4, p.v.at + p.segments[i].k_begin * p.ldkv, 16);
    struct zf_attention_args args = forward_args(&p, &r);
    assert_true(paths[best_path()].forward->tasks(&args) <= SEGMENTS_MAX / 16);
    args.segment_count = 0;
    assert_int_equal(paths[best_path()].forward->tasks(&args), 0);
    result_free(&r);
    problem_free(&p);
}

/* Scores of +-10000: the softmax is all but a choice. */
static void test_large_scores(void **state)
{
    (void)state;
    static struct problem p;
    seed = 330;
    problem_init(&p, &(struct shape){2, 1, 16, 2, 100, 100, false});
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < 100; i++) {
            float *q = p.q.at + (p.segments[s].q_begin + i) * p.ldq, *k = p.k.at + (p.segments[s].k_begin + i) * p.ldkv;
            for (size_t d = 0; d < 16; d++) {
                q[d] = q[16 + d] = d ? 0 : 200;
                k[d] = d ? 0 : below(2) ? 200 : -200;
            }
        }
    }
    struct expected e = expected_new(&p);
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        struct result r = run_problem(&p, path, FORWARD);
        assert_close("o", paths[path].name, &p.shape, apart(r.o, e.r.o, p.ldo, p.in_q), 3e-6);
        assert_close("lse", paths[path].name, &p.shape, distance(r.lse, e.r.lse, p.in_q), 1e-6);
        /* lse near 1e4 has an ulp of 1e-3 */
        assert_close("dv", paths[path].name, &p.shape, apart(r.dv, e.r.dv, p.ldkv, p.in_k), 1e-2);
        result_free(&r);
    }
    expected_free(&e);
    problem_free(&p);
}

/* Scores that overflow to -infinity have no weight, also where they fill the first tile of keys. */
static void test_scores_of_minus_infinity(void **state)
{
    (void)state;
    static struct problem p;
    seed = 340;
    problem_init(&p, &(struct shape){1, 1, 16, 1, 200, 200, false});
    for (size_t i = 0; i < 200; i++) {
        p.q.at[(p.segments[0].q_begin + i) * p.ldq] = 1e30f;
        p.k.at[(p.segments[0].k_begin + i) * p.ldkv] = i < 130 ? -1e30f : 0;
    }
    struct expected e = expected_new(&p);
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        struct result r = run_problem(&p, path, FORWARD);
        for (size_t i = 0; i < 200; i++) {
            const float *o = r.o.at + (p.segments[0].q_begin + i) * r.o.ld;
            const double *x = e.r.o + (p.segments[0].q_begin + i) * p.ldo;
            for (size_t d = 0; d < 16; d++) {
                if (i < 130) assert_true(isnan(o[d]));
                else assert_true(fabs((double)o[d] - x[d]) < 1e-5);
            }
        }
        result_free(&r);
    }
    expected_free(&e);
    problem_free(&p);
}

/* A key that is NaN spoils its own and all later queries of its document, and nothing else. */
static void test_nan_propagates(void **state)
{
    (void)state;
    static struct problem p;
    enum { BAD = 70 };
    seed = 350;
    problem_init(&p, &(struct shape){4, 2, 20, 2, 100, 100, false});
    for (size_t path = 0; path < PATH_COUNT; path++) {
        if (!path_runs(path)) continue;
        float *key = p.k.at + (p.segments[0].k_begin + BAD) * p.ldkv + 20 + 19, kept = *key; /* of the second key/value head */
        struct result clean = run_problem(&p, path, FORWARD);
        *key = NAN;
        struct result r = run_problem(&p, path, FORWARD);
        *key = kept;
        for (size_t s = 0; s < 2; s++) {
            for (size_t i = 0; i < 100; i++) {
                for (size_t c = 0; c < 80; c++) {
                    size_t at = (p.segments[s].q_begin + i) * r.o.ld + c;
                    if (s == 0 && i >= BAD && c >= 40) assert_true(isnan(r.o.at[at]));
                    else assert_memory_equal(&r.o.at[at], &clean.o.at[at], sizeof(float));
                }
            }
        }
        assert_true(isnan(r.dk.at[p.segments[0].k_begin * r.dk.ld + 20]));
        assert_true(isnan(r.dq.at[(p.segments[0].q_begin + BAD) * r.dq.ld + 40]));
        result_free(&clean);
        result_free(&r);
    }
    problem_free(&p);
}

/* sum of dO * O */
static double objective(const struct problem *p, const struct expected *e)
{
    double sum = 0;
    reference_attention(&e->r);
    for (size_t r = 0; r < p->q_rows; r++)
        for (size_t c = 0; c < p->q.cols && p->in_q[r]; c++) sum += e->r.do_[r * p->ldo + c] * e->r.o[r * p->ldo + c];
    return sum;
}

/* Central differences of the objective in each number of x, in the layout of x; they are what the reference says too. */
static double *differences(const struct problem *p, const struct expected *e, double *x, struct matrix like, const double *reference,
    const bool *rows)
{
    const double h = 1e-5;
    double *slopes = zeros(like.size);
    for (size_t i = 0; i < like.size; i++) {
        if (i % like.ld >= like.cols || !rows[i / like.ld]) continue;
        double kept = x[i], more;
        x[i] = kept + h;
        more = objective(p, e);
        x[i] = kept - h;
        slopes[i] = (more - objective(p, e)) / (2 * h);
        x[i] = kept;
        assert_true(fabs(slopes[i] - reference[i]) < 1e-7);
    }
    return slopes;
}

static void test_gradients_are_central_differences(void **state)
{
    (void)state;
    /* fewer than and more than the segments and heads at which the backward changes how it is cut */
    static const struct shape small[] = {{3, 1, 5, 2, 1, 9, false}, {4, 2, 4, 4, 1, 7, false}, {2, 2, 3, 5, 1, 8, true}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        static struct problem p;
        seed = 400 + i;
        problem_init(&p, &small[i]);
        struct expected e = expected_new(&p);
        double *dq = differences(&p, &e, e.all[0], p.q, e.r.dq, p.in_q), *dk = differences(&p, &e, e.all[1], p.k, e.r.dk, p.in_k);
        double *dv = differences(&p, &e, e.all[2], p.v, e.r.dv, p.in_k);
        for (size_t path = 0; path < PATH_COUNT; path++) {
            if (!path_runs(path)) continue;
            struct result r = run_problem(&p, path, FORWARD);
            assert_close("dq", paths[path].name, &p.shape, apart(r.dq, dq, p.ldq, p.in_q), 1e-6);
            assert_close("dk", paths[path].name, &p.shape, apart(r.dk, dk, p.ldkv, p.in_k), 1e-6);
            assert_close("dv", paths[path].name, &p.shape, apart(r.dv, dv, p.ldkv, p.in_k), 1e-6);
            result_free(&r);
        }
        free(dq);
        free(dk);
        free(dv);
        expected_free(&e);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_match_reference),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_long_documents),
        cmocka_unit_test(test_order_of_tasks_does_not_matter),
        cmocka_unit_test(test_tasks_write_apart),
        cmocka_unit_test(test_long_document_is_accurate),
        cmocka_unit_test(test_decoding_gives_the_bits_of_the_whole),
        cmocka_unit_test(test_tiny_segments),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_scores_of_minus_infinity),
        cmocka_unit_test(test_nan_propagates),
        cmocka_unit_test(test_gradients_are_central_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
