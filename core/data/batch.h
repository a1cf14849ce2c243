/* Micro-batches: rows laid end to end. */
#ifndef ZF_DATA_BATCH_H
#define ZF_DATA_BATCH_H

#include "core/data/rows.h"
#include "kernels/ops.h"

/* A micro-batch as kernels see it: one stream of tokens without padding; host memory, allocated once for the longest that can occur. */
struct zf_batch {
    size_t tokens, label_tokens, segment_count;
    size_t room_tokens;               /* of segments as well: a document has at least one token */
    int32_t *ids, *position, *target; /* [tokens] */
    struct zf_segment *segments;      /* one a document (q and k the same range) */
};

enum zf_status zf_batch_init(struct zf_batch *b, size_t room_tokens, struct zf_err *e);
void zf_batch_free(struct zf_batch *b);
void zf_batch_clear(struct zf_batch *b);
/* Appends a row. The caller has checked that it fits. */
void zf_batch_add(struct zf_batch *b, const struct zf_row *r);

#endif
