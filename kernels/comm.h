/* What ranks say to each other: sums and copies of rows, issued into lanes as any other work, on device memory. A rank is a trainer with a
 * device of its own.
 *
 * All ranks issue the same collectives, with the same shapes, in the same order, each into one lane of its device (the same for all): what
 * differs is an error, or waits for ever. Nothing here waits in the thread that issues. What goes wrong comes up in zf_comm_failed; from
 * then on nothing is exchanged any more, and what stands in the memory means nothing.
 *
 * Backends: NCCL for the device cuda (kernels/cuda/nccl.c), MPI for the host (kernels/comm/mpi.c); both are opened at run time, so that a
 * trainer of one rank needs neither. */
#ifndef ZF_KERNELS_COMM_H
#define ZF_KERNELS_COMM_H

#include "kernels/device.h"

enum { ZF_RANKS_MAX = 4096 };

/* Rows that ranks share out: rank r has first[r] .. first[r + 1], of first[ranks] in all; none is fine. Read in the call that issues. */
struct zf_comm_rows {
    void *base; /* [first[ranks]][cols], on every rank */
    enum zf_dtype type;
    size_t cols;
    const size_t *first; /* [ranks + 1] */
};

struct zf_comm;
struct zf_comm_type {
    const char *name;
    void (*close)(struct zf_comm *c); /* its lanes are idle, or it has been aborted. Every rank does, at about the same time */
    /* Each rank's own rows become the sum over all ranks; the same bits whenever the same is added by as many ranks. F32, F64. What is in
     * the other rows is lost. */
    enum zf_status (*reduce_scatter)(struct zf_comm *c, struct zf_lane *l, const struct zf_comm_rows *list, size_t count);
    /* Each rank's own rows come to all others. Bits are copied. */
    enum zf_status (*all_gather)(struct zf_comm *c, struct zf_lane *l, const struct zf_comm_rows *list, size_t count);
    enum zf_status (*failed)(struct zf_comm *c, struct zf_err *e); /* any thread; the first error, which stays */
    void (*abort)(struct zf_comm *c); /* any thread: whoever waits for another rank need not any more; a failure follows */
};

/* The head of every backend's. */
struct zf_comm {
    const struct zf_comm_type *type;
    int rank, ranks;
};

/* This rank among all; tell: gives rank 0's bytes to every rank, each of which calls it, for what they need to find each other. */
struct zf_comm_world {
    int rank, ranks;
    enum zf_status (*tell)(void *ctx, void *bytes, size_t size, struct zf_err *e);
    void *ctx;
};

/* Waits for all ranks. The backend is the device's own. ZF_USAGE: it has none. The caller frees with zf_comm_close, before the device. */
enum zf_status zf_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e);
void zf_comm_close(struct zf_comm *c); /* NULL is fine */
enum zf_status zf_comm_failed(struct zf_comm *c, struct zf_err *e);

/* Where rank r's share of n things begins; of r = ranks: n. Shares of one are in the order of ranks and differ by one at most. */
static inline size_t zf_share(size_t n, int rank, int ranks)
{
    return (size_t)((unsigned __int128)n * (unsigned)rank / (unsigned)ranks);
}
void zf_shares(size_t n, int ranks, size_t *first); /* [ranks + 1] */

/* What this rank takes in by it, in bytes, and gives as well: where shares are equal. */
size_t zf_comm_bytes(const struct zf_comm *c, bool sum, const struct zf_comm_rows *rows);

#endif
