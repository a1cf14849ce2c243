#include "core/optim/schedule.h"

#include <math.h>

double zf_schedule_rate(const struct zf_schedule *s, uint64_t t)
{
    double p = s->steps ? (double)(t - 1) / (double)s->steps : 1;
    if (p > 1) p = 1;
    double rate = s->rate;
    if (s->kind == ZF_COSINE) rate = s->least + (s->rate - s->least) * (1 + cos(M_PI * p)) / 2;
    if (s->kind == ZF_LINEAR) rate = s->least + (s->rate - s->least) * (1 - p);
    return t < s->warmup ? rate * (double)t / (double)s->warmup : rate;
}
