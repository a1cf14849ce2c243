#include "core/pipeline/interval.h"

#include <math.h>

enum { LOOKS_LONGER = 2, LOOKS_SHORTER = 4, LEAST_STEPS = 8, ROUNDS = 2 };
static const double FULL = 0.9, ROOMY = 0.7; /* share of the device's time that the others may take; that a shorter window may */

uint64_t zf_interval_steps(const struct zf_interval *v)
{
    uint64_t steps = (uint64_t)ROUNDS * v->now;
    return steps > LEAST_STEPS ? steps : LEAST_STEPS;
}

/* Seconds of a round of S steps, by the bytes it moves. */
static double round_of(const struct zf_interval *v, double measured, uint32_t s)
{
    double fixed = v->mean ? 30 : 26, each = v->bus;
    return measured * (fixed + each * s) / (fixed + each * v->now);
}

/* Share of the device's time with a window of s: the cpu lane's round, or what the bus carries: a gradient a step, weights a round. */
static double share_of(const struct zf_interval *v, const struct zf_interval_look *l, uint32_t s)
{
    double steps = (double)l->steps, step = l->compute / steps, round = l->cpu / steps * v->now;
    double cpu = round_of(v, round, s) / (s * step), down = l->d2h / l->compute, up = l->h2d / steps * v->now / (s * step);
    return fmax(cpu, fmax(down, up));
}

static uint32_t shortest(const struct zf_interval *v, const struct zf_interval_look *l, double share)
{
    for (uint32_t s = 1; s < v->most; s++)
        if (share_of(v, l, s) <= share) return s;
    return v->most;
}

uint32_t zf_interval_decide(struct zf_interval *v, const struct zf_interval_look *l)
{
    if (!l->steps || !(l->compute > 0)) return v->now;
    uint32_t full = shortest(v, l, FULL), roomy = shortest(v, l, ROOMY);
    v->share = share_of(v, l, v->now);
    v->wanted = full > v->now ? full : roomy < v->now ? roomy : v->now;
    if (v->now > v->most) v->wanted = v->most;
    v->longer = v->wanted > v->now ? v->longer + 1 : 0;
    v->shorter = v->wanted < v->now ? v->shorter + 1 : 0;
    if (v->now > v->most || v->longer >= LOOKS_LONGER || v->shorter >= LOOKS_SHORTER) {
        v->longer = v->shorter = 0;
        return v->wanted;
    }
    return v->now;
}
