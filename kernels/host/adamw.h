/* One element of AdamW (formulas: struct zf_adamw_args), for every kernel that applies it: with the same t, rate and gradient they give
 * the same bits, wherever a channel lives. */
#ifndef ZF_HOST_ADAMW_H
#define ZF_HOST_ADAMW_H

#include "kernels/host/chance.h"

struct values {
    vf master, m, v;
};

struct step {
    vf decay;                      /* lr * decay: kept apart, as 1 - 1e-7 is no float */
    vf clip, b1, rest1, b2, rest2; /* rest: 1 - b */
    vf rate, unbias2, eps;         /* lr / (1 - b1^t), 1 / (1 - b2^t) */
};

/* products: how the root is taken, not what it is. */
ALWAYS_INLINE struct values update_by(const struct step *s, struct values x, vf g, bool products)
{
    g = vmul(s->clip, g);
    x.m = vfma(s->b1, x.m, vmul(s->rest1, g));
    x.v = vfma(s->b2, x.v, vmul(s->rest2, vmul(g, g)));
    vf vhat = vmul(x.v, s->unbias2), root = vadd(products ? vsqrt_by_products(vhat) : vsqrt(vhat), s->eps);
    x.master = vsub(x.master, vfma(s->decay, x.master, vdiv(vmul(s->rate, x.m), root)));
    return x;
}

/* So many elements ahead of those that are loaded, the next are asked for. */
enum { FETCH = 256 };

ALWAYS_INLINE struct values update(const struct step *s, struct values x, vf g)
{
    return update_by(s, x, g, false);
}

ALWAYS_INLINE struct values load_values(const float *master, const float *m, const float *v, size_t n)
{
    fetch(master + FETCH);
    fetch(m + FETCH);
    fetch(v + FETCH);
    return (struct values){load_f32(master, n), load_f32(m, n), load_f32(v, n)};
}

ALWAYS_INLINE void store_values(float *master, float *m, float *v, struct values x, size_t n)
{
    store_f32(master, x.master, n);
    store_f32(m, x.m, n);
    store_f32(v, x.v, n);
}

/* What depends on t alone. */
struct correction {
    uint64_t t;
    double first, second;   /* 1 - b1^t, 1 - b2^t */
    struct zf_u32x4 chance; /* the key of that update's rounding */
};

static inline struct correction correction_at(uint64_t t, double beta1, double beta2, uint64_t seed)
{
    return (struct correction){t, 1 - pow(beta1, (double)t), 1 - pow(beta2, (double)t),
                               zf_philox(seed, (uint64_t)ZF_STREAM_ROUND << 32, t)};
}

/* What depends on neither t nor the learning rate; clip is left to the caller. */
static inline struct step step_constants(double beta1, double beta2, double eps)
{
    return (struct step){.b1 = vset((float)beta1),
                         .rest1 = vset((float)(1 - beta1)),
                         .b2 = vset((float)beta2),
                         .rest2 = vset((float)(1 - beta2)),
                         .eps = vset((float)eps)};
}

/* The numbers of one update of a row, as floats. */
struct rates {
    float clip, decay, rate, unbias2;
};

static inline struct rates rates_of(const struct correction *c, float clip, double lr, double decay)
{
    return (struct rates){clip, (float)(lr * decay), (float)(lr / c->first), (float)(1 / c->second)};
}

ALWAYS_INLINE void set_rates(struct step *s, const struct rates *r)
{
    s->clip = vset(r->clip);
    s->decay = vset(r->decay);
    s->rate = vset(r->rate);
    s->unbias2 = vset(r->unbias2);
}

#endif
