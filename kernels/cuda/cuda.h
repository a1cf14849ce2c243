/* What the files of the CUDA backend share. Nobody outside kernels/cuda includes it.
 *
 * A lane is a stream that waits for no other (non-blocking), with a thread that launches into it. Errors: what a launch says stays in the
 * lane until lane_sync has told of it; what a kernel does wrong comes up at any later call, for the whole device. */
#ifndef ZF_CUDA_CUDA_H
#define ZF_CUDA_CUDA_H

#include "kernels/cuda/library.h"
#include "kernels/cuda/marks.h"
#include "kernels/queue.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

extern const struct zf_device_type zf_cuda_device; /* device.c */

struct zf_cuda_block {
    void *data;
    size_t bytes;
    enum zf_mem_tag tag;
    bool pinned;
};

struct zf_cuda {
    struct zf_device head;
    int number;  /* CUDA's, of the device */
    int threads; /* of the host, that the run has */
    struct cudaDeviceProp facts;
    struct zf_device_info found; /* by the probe */
    const struct zf_cublas *blas;
    bool synchronous;
    uint64_t jitter;
    _Atomic uint64_t lanes;      /* made so far */
    pthread_mutex_t memory_lock; /* over the rest */
    struct zf_cuda_block *blocks;
    size_t block_count, block_room;
    size_t bytes[ZF_MEM_TAGS], total, peak;
};

struct zf_lane {
    struct zf_cuda *device;
    char name[16];
    cudaStream_t stream;
    cublasHandle_t products; /* the lane's thread only */
    struct zf_cuda_products *plans; /* likewise; NULL: nothing was multiplied yet */
    cudaEvent_t end;         /* for waiting until the stream has done what it was given */
    enum zf_phase phase;     /* of the work being done; the lane's thread only */
    struct zf_queue queue;
    struct zf_marks marks;
};

/* Of a call of CUDA's: ZF_OK, or the error with its name and what to do. */
enum zf_status zf_cuda_status(cudaError_t code, const char *what, struct zf_err *e);

/* lane.c */
/* Before any call of CUDA's on a thread that may not have been here. */
void zf_cuda_enter(struct zf_cuda *c);
/* Work for the lane's thread, which may use all of the lane: copies `size` bytes of args. */
enum zf_status zf_cuda_issue(struct zf_lane *l, const struct zf_work *work, const void *args, size_t size);
/* From inside work: what CUDA, or who looks at the work, says against it stays in the lane, if it is the first. */
enum zf_status zf_cuda_lane_status(struct zf_lane *l, cudaError_t code, const char *what);
cudaError_t zf_cuda_drain(struct zf_lane *l); /* the caller waits for the stream */
enum zf_status zf_cuda_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e);
void zf_cuda_lane_free(struct zf_lane *l);
enum zf_status zf_cuda_lane_sync(struct zf_lane *l, struct zf_err *e);
enum zf_status zf_cuda_lane_failed(struct zf_lane *l, struct zf_err *e);
double zf_cuda_lane_busy(struct zf_lane *l);
double zf_cuda_lane_waited(struct zf_lane *l);
enum zf_status zf_cuda_lane_watch(struct zf_lane *l, size_t room, struct zf_err *e);
size_t zf_cuda_lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped);
void zf_cuda_lane_phase(struct zf_lane *l, enum zf_phase phase);
size_t zf_cuda_lane_profile(struct zf_lane *l, struct zf_profile_row *out, size_t room);

/* event.c */
enum zf_status zf_cuda_event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e);
void zf_cuda_event_free(struct zf_event *v);
enum zf_status zf_cuda_event_record(struct zf_lane *l, struct zf_event *v);
enum zf_status zf_cuda_event_wait(struct zf_lane *l, struct zf_event *v);
enum zf_status zf_cuda_event_sync(struct zf_event *v, struct zf_err *e);
uint64_t zf_cuda_event_hold(struct zf_event *v);
void zf_cuda_event_await(struct zf_event *v, uint64_t ticket);

/* probe.c: NVIDIA's words for what is missing become ours. found: the GPU's name, empty where there is none; what the libraries are. */
enum zf_status zf_cuda_probe(const struct zf_device_options *o, struct zf_device_info *found, struct zf_err *e);

/* memory.c */
enum zf_status zf_cuda_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out,
                             struct zf_err *e);
void zf_cuda_free(struct zf_device *d, void *p);

/* issue.c: checks in the call, then zf_cuda_issue: the launchers of launch.h */
extern const struct zf_ops zf_cuda_ops;
enum zf_status zf_cuda_copy(struct zf_lane *l, void *to, const void *from, size_t bytes);
enum zf_status zf_cuda_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count);
enum zf_status zf_cuda_fill(struct zf_lane *l, void *to, int byte, size_t bytes);
enum zf_status zf_cuda_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx);

/* nccl.c, where the toolkit has NCCL's header */
#ifdef ZF_NCCL
enum zf_status zf_cuda_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e);
#endif

/* matmul.c, on the lane's thread: a lane that multiplies has a workspace of this size, of device memory, from its first product on. */
enum { ZF_CUDA_WORKSPACE = 32 << 20 };
void zf_cuda_products_free(struct zf_lane *l);
enum zf_status zf_cuda_matmul(struct zf_lane *l, const struct zf_matmul_args *a, struct zf_err *e);

#endif
