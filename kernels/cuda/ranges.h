/* Which parts of a large block are free: the book-keeping of memory that is taken once and given out again and again. Pure; no lock. */
#ifndef ZF_CUDA_RANGES_H
#define ZF_CUDA_RANGES_H

#include <stdbool.h>
#include <stddef.h>

enum { ZF_RANGE_UNIT = 256 }; /* what all parts begin at and are multiples of, as the driver's own blocks */

struct zf_ranges {
    struct zf_range {
        size_t at, bytes;
    } * idle;                  /* [count], ascending, none touching the next */
    size_t count, room, parts; /* parts: that are given out */
};

bool zf_ranges_open(struct zf_ranges *r, size_t bytes); /* all of it is free; false: no memory. bytes: whole units */
void zf_ranges_close(struct zf_ranges *r);
/* The smallest free part that is enough, and of equal ones the first. false: there is none. */
bool zf_ranges_take(struct zf_ranges *r, size_t bytes, size_t *at);
void zf_ranges_give(struct zf_ranges *r, size_t at, size_t bytes); /* as it was taken; cannot fail */

static inline size_t zf_range_bytes(size_t bytes)
{
    return bytes ? (bytes + ZF_RANGE_UNIT - 1) / ZF_RANGE_UNIT * ZF_RANGE_UNIT : ZF_RANGE_UNIT;
}

#endif
