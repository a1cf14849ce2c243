#include "tests/kernels/reference.h"

#include <math.h>

void reference_matmul(const struct zf_matmul_args *a, const double *x, const double *w, const double *bias, double *c)
{
    for (size_t i = 0; i < a->m; i++)
        for (size_t j = 0; j < a->n; j++) {
            double sum = (a->accumulate ? c[i * a->ldc + j] : 0) + (bias ? bias[j] : 0);
            for (size_t k = 0; k < a->k; k++)
                sum += x[a->trans_a ? k * a->lda + i : i * a->lda + k] * w[a->trans_b ? j * a->ldb + k : k * a->ldb + j];
            c[i * a->ldc + j] = sum;
        }
}

static void statistics(enum zf_norm_kind kind, const double *x, size_t n, double eps, double *mean, double *rstd)
{
    double variance = 0;
    *mean = 0;
    for (size_t i = 0; i < n && kind == ZF_LAYERNORM; i++) *mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) variance += (x[i] - *mean) * (x[i] - *mean) / (double)n;
    *rstd = 1 / sqrt(variance + eps);
}

void reference_norm(enum zf_norm_kind kind, const double *x, const double *w, const double *b, double *y, double *stats, size_t n,
                    double eps)
{
    double mean, rstd;
    statistics(kind, x, n, eps, &mean, &rstd);
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * (w ? w[i] : 1) + (b ? b[i] : 0);
    if (stats) {
        stats[0] = mean;
        stats[1] = rstd;
    }
}

void reference_norm_backward(enum zf_norm_kind kind, const double *dy, const double *x, const double *w, double *dx, double *dw, double *db,
                             size_t n, double eps)
{
    double mean, rstd, sum = 0, sum_x = 0;
    statistics(kind, x, n, eps, &mean, &rstd);
    for (size_t i = 0; i < n; i++) {
        double d = dy[i] * (w ? w[i] : 1), xhat = (x[i] - mean) * rstd;
        sum += kind == ZF_LAYERNORM ? d / (double)n : 0;
        sum_x += d * xhat / (double)n;
        if (dw) dw[i] += dy[i] * xhat;
        if (db) db[i] += dy[i];
    }
    for (size_t i = 0; i < n; i++) dx[i] = rstd * (dy[i] * (w ? w[i] : 1) - sum - (x[i] - mean) * rstd * sum_x);
}

void reference_rope(double *x, const double *table, size_t head_dim, bool inverse)
{
    size_t half = head_dim / 2;
    for (size_t d = 0; d < half; d++) {
        double a = x[d], b = x[half + d], c = table[2 * d], s = inverse ? -table[2 * d + 1] : table[2 * d + 1];
        x[d] = a * c - b * s;
        x[half + d] = b * c + a * s;
    }
}

double reference_activation(enum zf_activation_kind kind, double gate, double up)
{
    if (kind == ZF_RELU) return gate > 0 ? gate : 0;
    if (kind == ZF_SWIGLU) return gate / (1 + exp(-gate)) * up;
    return 0.5 * gate * (1 + tanh(sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
}

void reference_activation_backward(enum zf_activation_kind kind, double dy, double gate, double up, double *dgate, double *dup)
{
    double s = 1 / (1 + exp(-gate)), c = sqrt(2 / M_PI), t = tanh(c * (gate + 0.044715 * gate * gate * gate));
    *dup = 0;
    if (kind == ZF_RELU) {
        *dgate = gate > 0 ? dy : 0;
    } else if (kind == ZF_SWIGLU) {
        *dgate = dy * up * s * (1 + gate * (1 - s));
        *dup = dy * gate * s;
    } else {
        *dgate = dy * (0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * c * (1 + 3 * 0.044715 * gate * gate));
    }
}

void reference_adamw(const struct zf_adamw_args *a, double clip, double g, double *master, double *m, double *v)
{
    double t = (double)a->t;
    g *= clip;
    *master -= a->lr * a->decay * *master;
    *m = a->beta1 * *m + (1 - a->beta1) * g;
    *v = a->beta2 * *v + (1 - a->beta2) * g * g;
    *master -= a->lr * (*m / (1 - pow(a->beta1, t))) / (sqrt(*v / (1 - pow(a->beta2, t))) + a->eps);
}
