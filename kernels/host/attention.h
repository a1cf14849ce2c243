/* What attention.c and attention_amx*.c share: how the forward is cut into tasks, by its shape alone. */
#ifndef ZF_HOST_ATTENTION_H
#define ZF_HOST_ATTENTION_H

#include "kernels/host/path.h"

#define ALWAYS static inline __attribute__((always_inline))

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* The work of a task for one key/value head: block `index` of a segment with more than a block of rows (queries of each head of the group),
 * or all of some short segments that together have no more than one. */
struct share {
    size_t first, end, index;
};

/* Walks the segments to share `want`, and returns how many shares there are up to it, it included; a block has `capacity` rows. Shares are
 * made so that many tiny segments do not make as many tasks, each of which would have to walk. */
static inline size_t find_share(const struct zf_attention_args *a, size_t capacity, size_t want, struct share *out)
{
    size_t group = a->heads / a->kv_heads, done = 0, open = 0;
    struct share gathered = {0};
    for (size_t i = 0; i < a->segment_count; i++) {
        size_t rows = a->segments[i].q_count * group;
        if (!rows) continue;
        if (open && open + rows > capacity) {
            if (done++ == want) {
                *out = gathered;
                return done;
            }
            open = 0;
        }
        if (rows > capacity) {
            size_t blocks = ceil_div(rows, capacity);
            if (want - done < blocks) { /* the last block has the most keys: first */
                *out = (struct share){i, i + 1, blocks - 1 - (want - done)};
                return want + 1;
            }
            done += blocks;
            continue;
        }
        if (!open) gathered.first = i;
        gathered.end = i + 1;
        open += rows;
    }
    if (open) {
        *out = gathered;
        done++;
    }
    return done;
}

#endif
