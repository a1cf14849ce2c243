/* Ranks that are threads of one process: a wire whose ranks copy from each other's memory. What ranks disagree on ends in an error on all
 * of them. */
#ifndef ZF_TESTS_KERNELS_COMM_THREADS_H
#define ZF_TESTS_KERNELS_COMM_THREADS_H

#include "kernels/comm/wire.h"

struct hub;
struct hub *hub_new(int ranks);
int hub_ranks(const struct hub *h);
void hub_free(struct hub *h); /* after all its comms have been closed */
enum zf_status hub_comm(struct zf_comm **out, struct hub *h, int rank, struct zf_device *d, struct zf_err *e);
/* A world's `tell`, ctx a struct hub_rank. */
struct hub_rank {
    struct hub *hub;
    int rank;
};
enum zf_status hub_tell(void *hub_rank, void *bytes, size_t size, struct zf_err *e);

/* body(rank, ctx) of each rank in a thread of its own; returns when all have. */
void hub_run(int ranks, void (*body)(int rank, void *ctx), void *ctx);

#endif
