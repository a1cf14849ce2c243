/* Textbook attention: scores, softmax and sums of one query at a time, in double. */
#include "tests/kernels/reference_attention.h"

#include <math.h>
#include <stdlib.h>

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* p[0 .. keys) = softmax of the scores of one query; returns log sum exp. */
static double probabilities(const struct reference_attention *r, const double *q, const double *k, size_t keys, double *p)
{
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < keys; j++) {
        p[j] = r->scale * dot(q, k + j * r->ldkv, r->head_dim);
        if (p[j] > max) max = p[j];
    }
    for (size_t j = 0; j < keys; j++) sum += exp(p[j] - max);
    for (size_t j = 0; j < keys; j++) p[j] = exp(p[j] - max) / sum;
    return max + log(sum);
}

void reference_attention(const struct reference_attention *r)
{
    for (size_t s = 0; s < r->segment_count; s++) {
        const struct zf_segment *g = &r->segments[s];
        double *p = calloc(g->k_count + 1, sizeof *p);
        for (size_t h = 0; h < r->heads; h++) {
            size_t kv = h / (r->heads / r->kv_heads) * r->head_dim;
            for (size_t i = 0; i < g->q_count; i++) {
                size_t row = g->q_begin + i, keys = g->k_count - g->q_count + i + 1;
                double *o = r->o + row * r->ldo + h * r->head_dim;
                double lse = probabilities(r, r->q + row * r->ldq + h * r->head_dim, r->k + g->k_begin * r->ldkv + kv, keys, p);
                if (r->lse) r->lse[row * r->heads + h] = lse;
                for (size_t d = 0; d < r->head_dim; d++) {
                    o[d] = 0;
                    for (size_t j = 0; j < keys; j++) o[d] += p[j] * r->v[(g->k_begin + j) * r->ldkv + kv + d];
                }
            }
        }
        free(p);
    }
}

/* One query of one head: dP, dS and their products. */
static void backward_query(const struct reference_attention *r, size_t at_q, size_t at_o, size_t at_k, size_t keys, double *p)
{
    double *dp = p + keys, mean = 0;
    probabilities(r, r->q + at_q, r->k + at_k, keys, p);
    for (size_t j = 0; j < keys; j++) {
        dp[j] = dot(r->do_ + at_o, r->v + at_k + j * r->ldkv, r->head_dim);
        mean += p[j] * dp[j];
    }
    for (size_t j = 0; j < keys; j++) {
        double ds = r->scale * p[j] * (dp[j] - mean);
        size_t row = at_k + j * r->ldkv;
        for (size_t d = 0; d < r->head_dim; d++) {
            r->dv[row + d] += p[j] * r->do_[at_o + d];
            r->dk[row + d] += ds * r->q[at_q + d];
            r->dq[at_q + d] += ds * r->k[row + d];
        }
    }
}

void reference_attention_backward(const struct reference_attention *r)
{
    for (size_t s = 0; s < r->segment_count; s++) {
        const struct zf_segment *g = &r->segments[s];
        double *p = calloc(2 * g->k_count + 1, sizeof *p);
        for (size_t j = g->k_begin; j < g->k_begin + g->k_count; j++)
            for (size_t c = 0; c < r->kv_heads * r->head_dim; c++) r->dk[j * r->ldkv + c] = r->dv[j * r->ldkv + c] = 0;
        for (size_t i = 0; i < g->q_count; i++) {
            size_t row = g->q_begin + i;
            for (size_t c = 0; c < r->heads * r->head_dim; c++) r->dq[row * r->ldq + c] = 0;
            for (size_t h = 0; h < r->heads; h++)
                backward_query(r, row * r->ldq + h * r->head_dim, row * r->ldo + h * r->head_dim,
                    g->k_begin * r->ldkv + h / (r->heads / r->kv_heads) * r->head_dim, g->k_count - g->q_count + i + 1, p);
        }
        free(p);
    }
}
