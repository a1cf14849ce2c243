#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "core/base/rng.h"
#include "tests/kernels/attention_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t seed;
static uint64_t drawn;

size_t below(size_t n)
{
    return (size_t)(zf_uniform(seed, ZF_STREAM_TEST, 0, drawn++) * (double)n);
}

float poison(void)
{
    uint32_t u = 0x7fc0beefu;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static struct matrix matrix_new(size_t rows, size_t cols, size_t ld)
{
    struct matrix m = {NULL, rows, cols, ld, rows ? (rows - 1) * ld + cols : 0};
    m.at = malloc(m.size * sizeof(float) + 1);
    assert_non_null(m.at);
    for (size_t i = 0; i < m.size; i++) m.at[i] = poison();
    return m;
}

static void matrix_randomize_row(struct matrix m, size_t row, double size)
{
    for (size_t c = 0; c < m.cols; c++) m.at[row * m.ld + c] = (float)(size * zf_normal(seed, ZF_STREAM_TEST, 1, drawn++));
}

static double *to_double(struct matrix m)
{
    double *d = malloc(m.size * sizeof(double) + 1);
    assert_non_null(d);
    for (size_t i = 0; i < m.size; i++) d[i] = (double)m.at[i];
    return d;
}

double distance(struct matrix m, const double *expected, const bool *rows)
{
    double error = 0, norm = 0;
    float p = poison();
    for (size_t i = 0; i < m.size; i++) {
        if (i % m.ld < m.cols && rows[i / m.ld]) {
            error += ((double)m.at[i] - expected[i]) * ((double)m.at[i] - expected[i]);
            norm += expected[i] * expected[i];
        } else {
            assert_memory_equal(&m.at[i], &p, sizeof p);
        }
    }
    return sqrt(error / (norm + 1e-30));
}

static size_t gap(const struct shape *s)
{
    return s->aligned ? 8 * below(3) : below(20);
}

void problem_init(struct problem *p, const struct shape *s)
{
    size_t width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim;
    memset(p, 0, sizeof *p);
    p->shape = *s;
    p->scale = (float)(1 / sqrt((double)s->head_dim));
    for (size_t i = 0; i < s->segments; i++) {
        size_t keys = s->shortest + below(s->longest - s->shortest + 1), queries = s->cached ? below(keys + 1) : keys;
        p->q_rows += below(3);
        p->k_rows += below(3);
        p->segments[i] = (struct zf_segment){p->q_rows, queries, p->k_rows, keys};
        p->q_rows += queries;
        p->k_rows += keys;
    }
    p->q_rows += 1 + below(2);
    p->k_rows += below(2);
    p->ldq = width + gap(s);
    p->ldkv = kv_width + gap(s);
    p->ldo = width + gap(s);
    p->q = matrix_new(p->q_rows, width, p->ldq);
    p->k = matrix_new(p->k_rows, kv_width, p->ldkv);
    p->v = matrix_new(p->k_rows, kv_width, p->ldkv);
    p->do_ = matrix_new(p->q_rows, width, p->ldo);
    p->in_q = calloc(p->q_rows + 1, sizeof *p->in_q);
    p->in_k = calloc(p->k_rows + 1, sizeof *p->in_k);
    for (size_t i = 0; i < s->segments; i++) {
        const struct zf_segment *g = &p->segments[i];
        for (size_t r = g->q_begin; r < g->q_begin + g->q_count; r++) {
            p->in_q[r] = true;
            matrix_randomize_row(p->q, r, 1.5);
            matrix_randomize_row(p->do_, r, 1);
        }
        for (size_t r = g->k_begin; r < g->k_begin + g->k_count; r++) {
            p->in_k[r] = true;
            matrix_randomize_row(p->k, r, 1.5);
            matrix_randomize_row(p->v, r, 1);
        }
    }
}

void problem_free(struct problem *p)
{
    free(p->q.at);
    free(p->k.at);
    free(p->v.at);
    free(p->do_.at);
    free(p->in_q);
    free(p->in_k);
}

struct result result_new(const struct problem *p)
{
    size_t more = p->shape.aligned ? 8 : 1; /* rows of results lie elsewhere than those of what they belong to */
    return (struct result){.o = matrix_new(p->q_rows, p->q.cols, p->ldo + more),
                           .lse = matrix_new(p->q_rows, p->shape.heads, p->shape.heads),
                           .dq = matrix_new(p->q_rows, p->q.cols, p->ldq + 3 * more),
                           .dk = matrix_new(p->k_rows, p->k.cols, p->ldkv + 5 * more),
                           .dv = matrix_new(p->k_rows, p->k.cols, p->ldkv + 5 * more),
                           .delta = matrix_new(p->q_rows, p->shape.heads, p->shape.heads)};
}

void result_free(struct result *r)
{
    free(r->o.at);
    free(r->lse.at);
    free(r->dq.at);
    free(r->dk.at);
    free(r->dv.at);
    free(r->delta.at);
}

void assert_same_bits(const struct result *a, const struct result *b)
{
    assert_memory_equal(a->o.at, b->o.at, a->o.size * sizeof(float));
    assert_memory_equal(a->lse.at, b->lse.at, a->lse.size * sizeof(float));
    assert_memory_equal(a->dq.at, b->dq.at, a->dq.size * sizeof(float));
    assert_memory_equal(a->dk.at, b->dk.at, a->dk.size * sizeof(float));
    assert_memory_equal(a->dv.at, b->dv.at, a->dv.size * sizeof(float));
}

struct zf_attention_args forward_args(const struct problem *p, const struct result *r)
{
    return (struct zf_attention_args){.type = ZF_F32,
                                      .q = p->q.at,
                                      .k = p->k.at,
                                      .v = p->v.at,
                                      .o = r->o.at,
                                      .lse = r->lse.at,
                                      .segments = p->segments,
                                      .segment_count = p->shape.segments,
                                      .q_rows = p->q_rows,
                                      .k_rows = p->k_rows,
                                      .heads = p->shape.heads,
                                      .kv_heads = p->shape.kv_heads,
                                      .head_dim = p->shape.head_dim,
                                      .ldq = p->ldq,
                                      .ldkv = p->ldkv,
                                      .ldo = r->o.ld,
                                      .scale = p->scale};
}

void run_tasks(const struct zf_host_kernel *kernel, const void *args, enum order order)
{
    size_t n = kernel->tasks(args);
    for (size_t i = 0; i < n; i++) kernel->run(args, order == REVERSE ? n - 1 - i : order == RANDOM ? (size_t)zf_permute(i, n, 7, 0) : i);
}

struct zf_attention_backward_args backward_args(const struct problem *p, const struct result *r)
{
    return (struct zf_attention_backward_args){.type = ZF_F32,
                                               .q = p->q.at,
                                               .k = p->k.at,
                                               .v = p->v.at,
                                               .o = r->o.at,
                                               .do_ = p->do_.at,
                                               .lse = r->lse.at,
                                               .dq = r->dq.at,
                                               .dk = r->dk.at,
                                               .dv = r->dv.at,
                                               .delta = r->delta.at,
                                               .segments = p->segments,
                                               .segment_count = p->shape.segments,
                                               .q_rows = p->q_rows,
                                               .k_rows = p->k_rows,
                                               .heads = p->shape.heads,
                                               .kv_heads = p->shape.kv_heads,
                                               .head_dim = p->shape.head_dim,
                                               .ldq = p->ldq,
                                               .ldkv = p->ldkv,
                                               .ldo = r->o.ld,
                                               .lddo = p->ldo,
                                               .lddq = r->dq.ld,
                                               .lddkv = r->dk.ld,
                                               .scale = p->scale};
}

double *zeros(size_t n)
{
    double *d = calloc(n + 1, sizeof *d);
    assert_non_null(d);
    return d;
}

struct expected expected_new(const struct problem *p)
{
    struct expected e = {.all = {to_double(p->q), to_double(p->k), to_double(p->v), to_double(p->do_), zeros(p->do_.size),
                                 zeros(p->q_rows * p->shape.heads), zeros(p->q.size), zeros(p->k.size), zeros(p->v.size)}};
    e.r = (struct reference_attention){.q = e.all[0],
                                       .k = e.all[1],
                                       .v = e.all[2],
                                       .do_ = e.all[3],
                                       .o = e.all[4],
                                       .lse = e.all[5],
                                       .dq = e.all[6],
                                       .dk = e.all[7],
                                       .dv = e.all[8],
                                       .segments = p->segments,
                                       .segment_count = p->shape.segments,
                                       .heads = p->shape.heads,
                                       .kv_heads = p->shape.kv_heads,
                                       .head_dim = p->shape.head_dim,
                                       .ldq = p->ldq,
                                       .ldkv = p->ldkv,
                                       .ldo = p->ldo,
                                       .scale = (double)p->scale};
    reference_attention(&e.r);
    reference_attention_backward(&e.r);
    return e;
}

void expected_free(struct expected *e)
{
    for (size_t i = 0; i < 9; i++) free(e->all[i]);
}

double apart(struct matrix m, const double *expected, size_t ld, const bool *rows)
{
    double *same = zeros(m.size);
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++) same[r * m.ld + c] = expected[r * ld + c];
    double d = distance(m, same, rows);
    free(same);
    return d;
}

void assert_close(const char *what, const char *path, const struct shape *s, double found, double allowed)
{
    if (found <= allowed) return;
    fail_msg("%s, path %s, heads %zu/%zu, head_dim %zu, %zu segments of up to %zu: relative error %g, allowed %g", what, path, s->heads,
             s->kv_heads, s->head_dim, s->segments, s->longest, found, allowed);
}

void round_all(struct matrix m)
{
    for (size_t i = 0; i < m.size; i++) m.at[i] = zf_bf16_to_f32(zf_f32_to_bf16(m.at[i]));
}

uint16_t *to_bf16(struct matrix m)
{
    uint16_t *h = malloc(m.size * sizeof *h + 1);
    assert_non_null(h);
    for (size_t i = 0; i < m.size; i++) h[i] = zf_f32_to_bf16(m.at[i]);
    return h;
}

void round_inputs(const struct problem *p)
{
    round_all(p->q);
    round_all(p->k);
    round_all(p->v);
    round_all(p->do_);
}

void take(struct matrix m, unsigned char *written)
{
    float p = poison();
    for (size_t i = 0; i < m.size; i++) {
        if (!memcmp(&m.at[i], &p, sizeof p)) continue;
        assert_false(written[i]);
        written[i] = 1;
        m.at[i] = p;
    }
}
