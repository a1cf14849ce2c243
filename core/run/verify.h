/* `verify`: logits, loss, every gradient, and a few steps of AdamW against values made elsewhere (README, "Verify a model"). */
#ifndef ZF_RUN_VERIFY_H
#define ZF_RUN_VERIFY_H

#include "core/base/err.h"
#include "kernels/device.h"
#include <stdbool.h>
#include <stdio.h>

struct zf_verify {
    const char *device; /* the backend's name */
    const char *model, *golden;
    bool losses;
    enum zf_dtype dtype;
    double tolerance; /* scales the limits; 1 */
    int threads;      /* 0: all */
};

/* Prints the table, worst first. ZF_DIFFERENT if a row is over its limit. */
enum zf_status zf_verify_run(const struct zf_verify *v, FILE *out, struct zf_err *e);

#endif
