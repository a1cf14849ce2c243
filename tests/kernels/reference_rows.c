#include "tests/kernels/reference_rows.h"

#include <math.h>

void reference_update(struct reference_weight *w, const struct reference_rule *r, double t, double g)
{
    w->m = r->beta1 * w->m + (1 - r->beta1) * g;
    w->v = r->beta2 * w->v + (1 - r->beta2) * g * g;
    double mhat = w->m / (1 - pow(r->beta1, t)), vhat = w->v / (1 - pow(r->beta2, t));
    w->master -= r->lr * r->decay * w->master;
    w->master -= r->lr * mhat / (sqrt(vhat) + r->eps);
}

double reference_ahead(const struct reference_weight *w, const struct reference_rule *r, double t, double ahead)
{
    if (t == 0) return w->master;
    return w->master - ahead * (w->m / (1 - pow(r->beta1, t))) / (sqrt(w->v / (1 - pow(r->beta2, t))) + r->eps);
}

double reference_moved(double w, double g, double channel, double column, double rate, double beta2, double eps)
{
    return channel > 0 ? w - rate * g / (sqrt(beta2 * channel * column + (1 - beta2) * g * g) + eps) : w;
}

void reference_row_sums(const float *g, size_t cols, double *squares, double *magnitudes)
{
    *squares = *magnitudes = 0;
    for (size_t c = 0; c < cols; c++) {
        *squares += (double)g[c] * (double)g[c];
        *magnitudes += fabs((double)g[c]);
    }
}

void reference_second_moments(const float *v, const uint32_t *t, size_t rows, size_t cols, double beta2, double *channel, double *share)
{
    double all = 0;
    for (size_t c = 0; c < cols; c++) share[c] = 0;
    for (size_t r = 0; r < rows; r++) {
        channel[r] = 0;
        for (size_t c = 0; c < cols; c++) {
            double vhat = t[r] ? (double)v[r * cols + c] / (1 - pow(beta2, (double)t[r])) : 0;
            channel[r] += vhat / (double)cols;
            share[c] += vhat / (double)rows;
        }
        all += channel[r] / (double)rows;
    }
    for (size_t c = 0; c < cols; c++) share[c] = all > 0 ? share[c] / all : 1;
}
