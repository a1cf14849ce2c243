/* Micro-batches: rows laid end to end, documents marked by segments. */
#include "core/data/batch.h"

#include <stdlib.h>
#include <string.h>

enum zf_status zf_batch_init(struct zf_batch *b, size_t room_tokens, struct zf_err *e)
{
    *b = (struct zf_batch){.room_tokens = room_tokens};
    b->ids = calloc(room_tokens, sizeof *b->ids);
    b->position = calloc(room_tokens, sizeof *b->position);
    b->target = calloc(room_tokens, sizeof *b->target);
    b->segments = calloc(room_tokens, sizeof *b->segments);
    if (b->ids && b->position && b->target && b->segments) return ZF_OK;
    zf_batch_free(b);
    return zf_fail_memory(e, "a batch");
}

void zf_batch_free(struct zf_batch *b)
{
    free(b->ids);
    free(b->position);
    free(b->target);
    free(b->segments);
    *b = (struct zf_batch){0};
}

void zf_batch_clear(struct zf_batch *b)
{
    b->tokens = b->label_tokens = b->segment_count = 0;
}

void zf_batch_add(struct zf_batch *b, const struct zf_row *r)
{
    size_t begin = b->tokens; /* of the document */
    memcpy(b->ids + b->tokens, r->ids, r->length * sizeof *b->ids);
    memcpy(b->target + b->tokens, r->target, r->length * sizeof *b->target);
    for (size_t i = 0; i < r->length; i++) {
        size_t at = b->tokens + i;
        b->position[at] = (int32_t)(at - begin);
        if (i + 1 < r->length && (!r->document || r->document[i + 1] == r->document[i])) continue;
        size_t n = at + 1 - begin;
        b->segments[b->segment_count++] = (struct zf_segment){begin, n, begin, n};
        begin = at + 1;
    }
    b->tokens += r->length;
    b->label_tokens += r->label_tokens;
}
