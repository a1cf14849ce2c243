/* The sum of squares of ZF_SQUARES_CHUNK numbers, in double, in one order wherever it is taken and in however many pieces. */
#ifndef ZF_HOST_SQUARES_H
#define ZF_HOST_SQUARES_H

#include <stddef.h>

enum { ZF_SQUARES_LANES = 32 };
struct zf_squares {
    double lane[ZF_SQUARES_LANES];
};

/* n: a multiple of ZF_SQUARES_LANES in all pieces but the last. */
static inline void zf_squares_add(struct zf_squares *s, const float *x, size_t n)
{
    double sum[ZF_SQUARES_LANES]; /* in registers */
    size_t i = 0;
    for (int j = 0; j < ZF_SQUARES_LANES; j++) sum[j] = s->lane[j];
    for (; i + ZF_SQUARES_LANES <= n; i += ZF_SQUARES_LANES)
        for (int j = 0; j < ZF_SQUARES_LANES; j++) sum[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
    for (int j = 0; i < n; i++, j++) sum[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < ZF_SQUARES_LANES; j++) s->lane[j] = sum[j];
}

static inline double zf_squares_sum(struct zf_squares *s)
{
    for (int half = ZF_SQUARES_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) s->lane[j] += s->lane[j + half];
    return s->lane[0];
}

#endif
