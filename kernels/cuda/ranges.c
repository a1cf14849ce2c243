#include "kernels/cuda/ranges.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool zf_ranges_open(struct zf_ranges *r, size_t bytes)
{
    enum { FIRST = 64 };
    *r = (struct zf_ranges){.idle = malloc(FIRST * sizeof *r->idle), .room = FIRST};
    if (!r->idle) return false;
    if (bytes) r->idle[r->count++] = (struct zf_range){0, bytes};
    return true;
}

void zf_ranges_close(struct zf_ranges *r)
{
    free(r->idle);
    *r = (struct zf_ranges){0};
}

/* Free parts are at most one more than those given out: so giving back never needs memory. */
static bool make_room(struct zf_ranges *r)
{
    if (r->parts + 2 <= r->room) return true;
    struct zf_range *more = reallocarray(r->idle, 2 * r->room, sizeof *more);
    if (!more) return false;
    r->idle = more;
    r->room *= 2;
    return true;
}

static void drop(struct zf_ranges *r, size_t i)
{
    memmove(r->idle + i, r->idle + i + 1, (--r->count - i) * sizeof *r->idle);
}

bool zf_ranges_take(struct zf_ranges *r, size_t bytes, size_t *at)
{
    size_t best = SIZE_MAX;
    if (bytes > SIZE_MAX - ZF_RANGE_UNIT || !make_room(r)) return false;
    bytes = zf_range_bytes(bytes);
    for (size_t i = 0; i < r->count; i++)
        if (r->idle[i].bytes >= bytes && (best == SIZE_MAX || r->idle[i].bytes < r->idle[best].bytes)) best = i;
    if (best == SIZE_MAX) return false;
    struct zf_range *x = &r->idle[best];
    *at = x->at;
    x->at += bytes;
    x->bytes -= bytes;
    if (!x->bytes) drop(r, best);
    r->parts++;
    return true;
}

void zf_ranges_give(struct zf_ranges *r, size_t at, size_t bytes)
{
    size_t i = 0;
    bytes = zf_range_bytes(bytes);
    while (i < r->count && r->idle[i].at < at) i++;
    bool before = i && r->idle[i - 1].at + r->idle[i - 1].bytes == at, behind = i < r->count && at + bytes == r->idle[i].at;
    r->parts--;
    if (before) {
        r->idle[i - 1].bytes += bytes;
        if (!behind) return;
        r->idle[i - 1].bytes += r->idle[i].bytes;
        drop(r, i);
        return;
    }
    if (behind) {
        r->idle[i].at = at;
        r->idle[i].bytes += bytes;
        return;
    }
    memmove(r->idle + i + 1, r->idle + i, (r->count++ - i) * sizeof *r->idle);
    r->idle[i] = (struct zf_range){at, bytes};
}
