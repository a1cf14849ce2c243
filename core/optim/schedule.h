/* The learning rate as a pure function of the optimizer step. */
#ifndef ZF_OPTIM_SCHEDULE_H
#define ZF_OPTIM_SCHEDULE_H

#include <stdint.h>

enum zf_schedule_kind { ZF_COSINE, ZF_LINEAR, ZF_CONSTANT };

struct zf_schedule {
    enum zf_schedule_kind kind;
    double rate, least;     /* learning_rate, min_learning_rate */
    uint64_t steps, warmup; /* schedule_steps, warmup_steps */
};

/* t = 1, 2, ...; p = min(1, (t-1)/steps). cosine: least + (rate - least)(1 + cos(pi p))/2; linear: least + (rate - least)(1 - p); constant:
 * rate; each times t/warmup while t < warmup. Closed form: nothing drifts, nothing depends on how t was reached. */
double zf_schedule_rate(const struct zf_schedule *s, uint64_t t);

#endif
