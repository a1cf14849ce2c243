/* A run of several ranks: how rank 0 brings the others to where it is, and what the others do from their start to their end. What they then
 * do together is in orders.h. */
#ifndef ZF_RUN_RANKS_H
#define ZF_RUN_RANKS_H

#include "core/run/train.h"
#include "core/world/launch.h"

struct zf_trainer;

/* The run of these options, as one rank of several; as zf_train_run. quiet: what went wrong is told already, by rank 0 or by the world. */
enum zf_status zf_ranks_run(struct zf_options *o, struct zf_train_how *how, const struct zf_launch *l, bool *quiet, struct zf_err *e);

/* Rank 0, when it knows what the run is: the others set up the same. NULL world: nothing. */
enum zf_status zf_ranks_begin(struct zf_world *w, const struct zf_setup *s, const struct zf_resume *r, struct zf_err *e);
/* All, when devices, model and state are there: the same data, and the same weights bit for bit. */
enum zf_status zf_ranks_compare(struct zf_trainer *t, struct zf_err *e);
/* Which GPU is this rank's: they are given out in the order of ranks on a machine, where the launcher has not done so. */
int zf_ranks_gpu(const struct zf_world *w);
/* What ranks say to each other. Before the pipeline. */
enum zf_status zf_ranks_open_comm(struct zf_trainer *t, struct zf_err *e);
/* Rank 0: the loss of a rank is written down, by whoever comes first. When journal and metrics are open. */
void zf_ranks_watch(struct zf_trainer *t);
void zf_ranks_unwatch(struct zf_trainer *t);
/* A failure that came of the end of another rank is that: waits until the world knows. */
enum zf_status zf_ranks_why(struct zf_trainer *t, enum zf_status s, struct zf_err *e);

#endif
