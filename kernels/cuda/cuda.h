/* What the files of the CUDA backend share. Nobody outside kernels/cuda includes it.
 *
 * A lane is a stream that waits for no other (non-blocking), an event a CUDA event. Errors: what a call that issues says stays in the lane
 * until lane_sync has told of it; what a kernel does wrong comes up at any later call, for the whole device. */
#ifndef ZF_CUDA_CUDA_H
#define ZF_CUDA_CUDA_H

#include "kernels/cuda/library.h"
#include "kernels/ops.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

extern const struct zf_device_type zf_cuda_device; /* device.c */

struct zf_cuda_block {
    void *data;
    size_t bytes;
    enum zf_mem_tag tag;
    bool pinned;
};

struct zf_cuda {
    struct zf_device head;
    int number; /* CUDA's, of the device */
    struct cudaDeviceProp facts;
    const struct zf_cublas *blas;
    pthread_mutex_t memory_lock; /* over the rest */
    struct zf_cuda_block *blocks;
    size_t block_count, block_room;
    size_t bytes[ZF_MEM_TAGS], total, peak;
};

struct zf_lane {
    struct zf_cuda *device;
    cudaStream_t stream;
    cublasHandle_t products;
    enum zf_phase phase;
    pthread_mutex_t lock; /* over error */
    bool broken;          /* error holds the first since the last lane_sync */
    struct zf_err error;
};

/* Of a call of CUDA's: ZF_OK, or the error with its name and what to do. */
enum zf_status zf_cuda_status(cudaError_t code, const char *what, struct zf_err *e);
/* The same for work that was issued into a lane: the first error stays there. */
enum zf_status zf_cuda_lane_status(struct zf_lane *l, cudaError_t code, const char *what);
enum zf_status zf_cuda_refuse(struct zf_lane *l, const char *op, const char *wrong);

/* memory.c */
enum zf_status zf_cuda_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out,
                             struct zf_err *e);
void zf_cuda_free(struct zf_device *d, void *p);

/* issue.c: checks, then the launchers of launch.h */
extern const struct zf_ops zf_cuda_ops;
enum zf_status zf_cuda_copy(struct zf_lane *l, void *to, const void *from, size_t bytes);
enum zf_status zf_cuda_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count);
enum zf_status zf_cuda_fill(struct zf_lane *l, void *to, int byte, size_t bytes);
enum zf_status zf_cuda_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx);

/* nccl.c, where the toolkit has NCCL's header */
#ifdef ZF_NCCL
enum zf_status zf_cuda_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e);
#endif

/* matmul.c */
enum zf_status zf_cuda_matmul(struct zf_lane *l, const struct zf_matmul_args *a);

#endif
