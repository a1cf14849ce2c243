/* Collectives over anything by which ranks exchange bytes: they run in the lane that they were issued into, where that lane is a thread of
 * this process and device memory is its own. Sums are made in the order of ranks: the same bits on any wire. */
#ifndef ZF_KERNELS_COMM_WIRE_H
#define ZF_KERNELS_COMM_WIRE_H

#include "kernels/comm.h"

#include <stdatomic.h>

struct zf_wire_block {
    void *bytes;
    size_t size;
};

struct zf_wire {
    int rank, ranks;
    /* out[q] goes to rank q, in[q] is filled by it, whose out[rank] has that size; those of this rank itself are left alone. One call at a
     * time; waits for the others. *aborted: it need not any more. */
    enum zf_status (*exchange)(struct zf_wire *w, const struct zf_wire_block *out, const struct zf_wire_block *in,
                               const atomic_bool *aborted, struct zf_err *e);
    void (*close)(struct zf_wire *w);
};

/* The wire is the comm's from here on, and closed if this fails. */
enum zf_status zf_comm_over_wire(struct zf_comm **out, const char *name, struct zf_device *d, struct zf_wire *w, struct zf_err *e);

#endif
