/* Where the time of a run's steps went: by phase of a step and op, with what each op cannot do without (arithmetic, memory). The first
 * step, which warms up, is left out where there are others. Written once, when a run ends; printed from the file. */
#ifndef ZF_RUN_PROFILE_H
#define ZF_RUN_PROFILE_H

#include "kernels/device.h"
#include <stdio.h>

enum { ZF_PROFILE_ROWS = 256 };

struct zf_profile {
    struct zf_profile_row first[ZF_PROFILE_ROWS], last[ZF_PROFILE_ROWS]; /* the lane's account when the first step was over, and newest */
    size_t first_count, last_count;
    uint64_t steps;  /* after it */
    double seconds;  /* of those, by the clock */
    double data_cpu; /* processor seconds: reading, checking, tokenising, packing, of all threads */
};

/* `zenflow-console log RUN --profile`: the table, or the line of metrics.jsonl as it is. ZF_USAGE: the run has none (yet). */
enum zf_status zf_profile_print(FILE *to, const char *run, bool json, struct zf_err *e);

#endif
