/* `pause --release-gpu`: the GPU's memory for others while a run waits. What the run is stays in host memory meanwhile, piece by piece as a
 * checkpoint has it, so that it can be saved from there, too; `resume` takes the GPU again, and training goes on with the same bits. */
#ifndef ZF_RUN_RELEASE_H
#define ZF_RUN_RELEASE_H

#include "core/run/trainer.h"

/* text: what is free now, and how long coming back takes. What fails (no host memory for it) leaves all as it was. Done already: says so.
 */
enum zf_status zf_release(struct zf_trainer *t, char *text, size_t room, struct zf_err *e);
/* Nothing to do where it is not released. ZF_MEMORY: others have the GPU's memory; it stays released, and may be tried again. text: the
 * answer, empty where nothing was to do. */
enum zf_status zf_take_back(struct zf_trainer *t, char *text, size_t room, struct zf_err *e);

/* For a checkpoint: the pieces, to be closed as any state, and what is no piece (a new reference). While it is released. */
enum zf_status zf_kept_state(const struct zf_kept *k, struct zf_state *out, struct zf_err *e);
json_t *zf_kept_facts(const struct zf_kept *k);
void zf_kept_free(struct zf_kept *k); /* NULL is fine */

#endif
