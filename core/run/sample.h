/* Samples of the model's text while it trains: `sample TEXT`, sample_every. The trainer's thread, between two steps. */
#ifndef ZF_RUN_SAMPLE_H
#define ZF_RUN_SAMPLE_H

#include "core/base/err.h"

#include <stddef.h>

struct zf_trainer;

/* Goes on with `prompt`, with the weights the next step computes with, and writes a `sample` line. The same at the same step of the same
 * run: the draws depend on seed and step. text: the whole, cut to size. ZF_DIFFERENT: no tokenizer, or the prompt has no room in the
 * context. ZF_MEMORY: there is none for it now. ZF_STOPPED: a signal asked to end. Training is not changed by it. */
enum zf_status zf_trainer_sample(struct zf_trainer *t, const char *prompt, char *text, size_t size, struct zf_err *e);

#endif
