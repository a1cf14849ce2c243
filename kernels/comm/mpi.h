/* Between the trainer and its module for MPI, which is opened at run time: a trainer of one rank, and its machine, need no MPI. */
#ifndef ZF_KERNELS_COMM_MPI_H
#define ZF_KERNELS_COMM_MPI_H

#include "kernels/comm/wire.h"

enum { ZF_MPI_ABI = 1 };
#define ZF_MPI_MODULE "zf_comm_mpi.so"

/* What the module has, as the symbol zf_mpi. */
struct zf_mpi {
    uint32_t abi; /* ZF_MPI_ABI */
    enum zf_status (*open)(struct zf_wire **out, int rank, int ranks, struct zf_err *e);
};

/* The host device's comm. */
enum zf_status zf_mpi_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e);

#endif
