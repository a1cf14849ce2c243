/* See kernels/comm.h: what does not depend on the backend. */
#include "kernels/comm.h"

enum zf_status zf_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *w, struct zf_err *e)
{
    *out = NULL;
    if (w->ranks < 1 || w->ranks > ZF_RANKS_MAX || w->rank < 0 || w->rank >= w->ranks)
        return zf_fail(e, ZF_USAGE, NULL, "rank %d of %d; ranks are numbered from 0, and there are at most %d", w->rank, w->ranks,
                       (int)ZF_RANKS_MAX);
    if (!d->type->comm_open) return zf_fail(e, ZF_USAGE, NULL, "the device %s trains with one rank only", d->type->name);
    return d->type->comm_open(out, d, w, e);
}

void zf_comm_close(struct zf_comm *c)
{
    if (c) c->type->close(c);
}

enum zf_status zf_comm_failed(struct zf_comm *c, struct zf_err *e)
{
    return c->type->failed(c, e);
}

void zf_shares(size_t n, int ranks, size_t *first)
{
    for (int r = 0; r <= ranks; r++) first[r] = zf_share(n, r, ranks);
}

size_t zf_comm_bytes(const struct zf_comm *c, bool sum, const struct zf_comm_rows *rows)
{
    size_t own = rows->first[c->rank + 1] - rows->first[c->rank], all = rows->first[c->ranks];
    return (sum ? own * (size_t)(c->ranks - 1) : all - own) * rows->cols * zf_dtype_size(rows->type);
}
