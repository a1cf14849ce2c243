/* Attention and its backward as plain loops in double: what the kernels are measured against. */
#ifndef ZF_TESTS_REFERENCE_ATTENTION_H
#define ZF_TESTS_REFERENCE_ATTENTION_H

#include "kernels/ops.h"

/* As zf_attention_args; the gradients are used by the backward only and have the layout of q, k, v (dq: that of q). */
struct reference_attention {
    const double *q, *k, *v, *do_;
    double *o, *lse, *dq, *dk, *dv;
    const struct zf_segment *segments;
    size_t segment_count, heads, kv_heads, head_dim, ldq, ldkv, ldo;
    double scale;
};

void reference_attention(const struct reference_attention *r);
void reference_attention_backward(const struct reference_attention *r); /* o and lse need not be there */

#endif
