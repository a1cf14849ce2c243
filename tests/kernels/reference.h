/* The kernels as plain loops in double, one row or element at a time: what the property tests measure against and what central
 * differences are taken of. Attention's stand in reference_attention.h. */
#ifndef ZF_TESTS_REFERENCE_H
#define ZF_TESTS_REFERENCE_H

#include "kernels/ops.h"

/* m, n, k, lda, ldb, ldc, trans_a, trans_b, accumulate are read from `a`; its pointers are not. bias may be NULL. */
void reference_matmul(const struct zf_matmul_args *a, const double *x, const double *w, const double *bias, double *c);

/* One vector. w, b and stats may be NULL. */
void reference_norm(enum zf_norm_kind kind, const double *x, const double *w, const double *b, double *y, double *stats, size_t n,
                    double eps);
/* Overwrites dx, adds to dw and db. w, dw, db may be NULL. */
void reference_norm_backward(enum zf_norm_kind kind, const double *dy, const double *x, const double *w, double *dx, double *dw, double *db,
                             size_t n, double eps);

void reference_rope(double *x, const double *table, size_t head_dim, bool inverse); /* one head; table: its position's cos, sin */

double reference_activation(enum zf_activation_kind kind, double gate, double up);
void reference_activation_backward(enum zf_activation_kind kind, double dy, double gate, double up, double *dgate, double *dup);

void reference_adamw(const struct zf_adamw_args *a, double clip, double g, double *master, double *m, double *v); /* one element */

#endif
