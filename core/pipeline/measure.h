/* What a policy needs in memory, before anything is allocated: the planner's figures, by the same window clock that the pipeline runs on.
 */
#ifndef ZF_PIPELINE_MEASURE_H
#define ZF_PIPELINE_MEASURE_H

#include "core/model/family.h"
#include "core/pipeline/policy.h"

/* Bytes; SIZE_MAX where they do not fit an address space. */
struct zf_pipeline_sizes {
    size_t device_state;   /* masters, moments, counts of the device half (f32: the masters are the weights) */
    size_t cpu_state;      /* masters, moments, counts of the CPU half */
    size_t slots;          /* most that gradients, sums and rows on their way take at once, in pinned memory */
    size_t device_staging; /* rings between the lanes */
    size_t other;          /* lists, scores, second moments, statistics */
};

void zf_pipeline_measure(struct zf_pipeline_sizes *out, const struct zf_params *params, const struct zf_policy *policy,
                         enum zf_dtype dtype);

/* The same for each of several ranks, the one with the most: its CPU half has room for all rows of its share. */
void zf_pipeline_measure_rank(struct zf_pipeline_sizes *out, const struct zf_params *params, const struct zf_policy *policy,
                              enum zf_dtype dtype, int ranks);

/* Channels of `channels` that the device half owns under a ratio strictly between 0 and 1: floor(k n + 1/2), at least 1. */
size_t zf_policy_quota(const struct zf_policy *p, size_t channels);

/* Sizes that measuring and allocating must agree on, and what they are made of: bytes that a piece has at least, and what rows are rounded
 * up to. Tests make them small, before a pipeline is opened, so that a tiny model fills many pieces; a piece of a ring holds at least one
 * of slots. */
struct zf_pipeline_grain {
    size_t piece, chunk, page;
};
extern struct zf_pipeline_grain zf_pipeline_grain;
size_t zf_pipeline_piece_bytes(size_t longest_row); /* of a ring's piece */
size_t zf_pipeline_chunk_bytes(size_t longest_row); /* of a piece of slots */
size_t zf_ranks_piece_bytes(size_t longest_row);    /* of what ranks exchange at once */

#endif
