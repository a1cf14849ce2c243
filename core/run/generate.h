/* `generate`: text from a model with a key/value cache. */
#ifndef ZF_RUN_GENERATE_H
#define ZF_RUN_GENERATE_H

#include "core/base/err.h"
#include "kernels/device.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct zf_generate {
    const char *device; /* the backend's name */
    const char *model;  /* a Hugging Face folder, a checkpoint, or a run */
    const char *prompt; /* text, or NULL */
    const char *ids;    /* "1,2,3" instead of a prompt, or NULL */
    int64_t tokens, seed, threads;
    double temperature, top_p; /* temperature 0: the likeliest token */
    enum zf_dtype dtype;       /* of weights, activations and cache */
    bool json;                 /* one object with ids and text instead of streamed text */
    bool time;                 /* says on stderr how long it took */
};

enum zf_status zf_generate_run(const struct zf_generate *g, FILE *out, struct zf_err *e);

/* The next token; -1: no memory. Pure: `draw` in [0, 1) is the random number. */
int32_t zf_sample_token(const float *logits, size_t n, double temperature, double top_p, double draw);

#endif
