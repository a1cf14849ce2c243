/* Memory for what the CPU half keeps for a few steps: gradient slots, sums, rows on their way up. Pieces of one size, of pinned host
 * memory, taken and given back; grows when it must, shrinks when it is told to.
 *
 * A piece may be taken again as soon as it is given back: who gives back must know that whoever takes it next is ordered behind its last
 * reader (pipeline.h says how). The issuing thread's alone. */
#ifndef ZF_PIPELINE_CHUNKS_H
#define ZF_PIPELINE_CHUNKS_H

#include "kernels/device.h"

enum { ZF_CHUNKS_SLAB = 16 << 20 }; /* bytes that are taken at once, but for pieces that are larger */

struct zf_chunks {
    struct zf_device *device;
    size_t bytes; /* of a piece */
    void **slab, **idle;
    size_t slabs, slab_room, idle_count, idle_room;
    size_t used, peak; /* pieces */
};

/* Rows of `cols` elements of `size` bytes, spread over pieces. Owned by whoever took it. */
struct zf_rows_memory {
    void **chunk; /* NULL: none */
    size_t count, chunk_rows;
};

void zf_chunks_init(struct zf_chunks *c, struct zf_device *d, size_t bytes);
void zf_chunks_free(struct zf_chunks *c); /* all pieces with it */
enum zf_status zf_chunks_take(struct zf_chunks *c, size_t rows, size_t row_bytes, struct zf_rows_memory *out, struct zf_err *e);
/* Gives the pieces back; the list of them, which work under way may still read, is returned for the caller to free. Empty ones are fine; m
 * is empty afterwards. */
void **zf_chunks_give(struct zf_chunks *c, struct zf_rows_memory *m);
/* No piece is taken, no lane works on any: all memory goes back. */
void zf_chunks_shrink(struct zf_chunks *c);
size_t zf_chunks_bytes(const struct zf_chunks *c); /* allocated */

#endif
