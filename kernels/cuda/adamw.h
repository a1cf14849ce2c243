/* One element of AdamW (formulas: struct zf_adamw_args), for every kernel that applies it: with the same t, rate and gradient they give the
 * same bits, wherever a channel lives. The host's order of operations (kernels/host/adamw.h). */
#ifndef ZF_CUDA_ADAMW_H
#define ZF_CUDA_ADAMW_H

#include "core/base/rng.h"
#include "kernels/cuda/gpu.h"

/* What an update does not share with every other one: t, the rate. */
struct adam_rates {
    float clip, decay, rate, unbias2;
};

struct adam_rule {
    double beta1, beta2, lr, decay;
    float b1, rest1, b2, rest2, eps;
};

static inline adam_rule adam_rule_of(double beta1, double beta2, double eps, double lr, double decay)
{
    return adam_rule{beta1, beta2, lr, decay, (float)beta1, (float)(1 - beta1), (float)beta2, (float)(1 - beta2), (float)eps};
}

static __host__ __device__ inline adam_rates adam_rates_at(const adam_rule &r, uint64_t t, float clip)
{
    return adam_rates{clip, (float)(r.lr * r.decay), (float)(r.lr / (1 - pow(r.beta1, (double)t))),
                      (float)(1 / (1 - pow(r.beta2, (double)t)))};
}

struct adam_values {
    float master, m, v;
};

static __device__ __forceinline__ void adam_update(const adam_rule &r, const adam_rates &now, adam_values &x, float g)
{
    g *= now.clip;
    x.m = fmaf(r.b1, x.m, r.rest1 * g);
    x.v = fmaf(r.b2, x.v, r.rest2 * (g * g));
    float root = sqrtf(x.v * now.unbias2) + r.eps;
    x.master -= fmaf(now.decay, x.master, now.rate * x.m / root);
}

static __host__ __device__ inline gpu_key adam_chance(uint64_t seed, uint64_t t)
{
    return gpu_philox(seed, (uint64_t)ZF_STREAM_ROUND << 32, t);
}

#endif
