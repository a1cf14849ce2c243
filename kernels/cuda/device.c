/* The CUDA backend: opening, lanes, events. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event {
    struct zf_event head;
    cudaEvent_t event;
};

enum zf_status zf_cuda_status(cudaError_t code, const char *what, struct zf_err *e)
{
    if (code == cudaSuccess) return ZF_OK;
    return zf_fail(e, code == cudaErrorMemoryAllocation ? ZF_MEMORY : ZF_IO, what, "CUDA: %s (%s)", cudaGetErrorString(code),
                   cudaGetErrorName(code));
}

enum zf_status zf_cuda_lane_status(struct zf_lane *l, cudaError_t code, const char *what)
{
    struct zf_err e;
    enum zf_status s = zf_cuda_status(code, what, &e);
    if (!s) return ZF_OK;
    pthread_mutex_lock(&l->lock);
    if (!l->broken) l->error = e;
    l->broken = true;
    pthread_mutex_unlock(&l->lock);
    return s;
}

static enum zf_status open_device(struct zf_device **out, const struct zf_device_options *o, struct zf_err *e)
{
    struct zf_cuda *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return zf_fail_memory(e, "the CUDA device");
    c->head.type = &zf_cuda_device;
    c->number = o->number;
    pthread_mutex_init(&c->memory_lock, NULL);
    enum zf_status s = zf_cuda_status(cudaSetDevice(c->number), "device 0", e);
    if (!s) s = zf_cuda_status(cudaGetDeviceProperties(&c->facts, c->number), "device 0", e);
    if (!s) s = zf_cuda_cublas(&c->blas, e);
    if (s) {
        free(c);
        return s;
    }
    *out = &c->head;
    return ZF_OK;
}

static void close_device(struct zf_device *d)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    if (!c) return;
    pthread_mutex_destroy(&c->memory_lock);
    free(c->blocks);
    free(c);
}

static void info(struct zf_device *d, struct zf_device_info *out)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    *out = (struct zf_device_info){.threads = 1, .bf16_products = true};
    if (!c) return;
    snprintf(out->description, sizeof out->description, "%s", c->facts.name);
    snprintf(out->isa, sizeof out->isa, "sm_%d%d", c->facts.major, c->facts.minor);
    cudaMemGetInfo(&out->free_bytes, &out->total_bytes);
    pthread_mutex_lock(&c->memory_lock);
    memcpy(out->bytes, c->bytes, sizeof out->bytes);
    out->peak_bytes = c->peak;
    pthread_mutex_unlock(&c->memory_lock);
}

/* ---- lanes ---- */

static void lane_free(struct zf_lane *l)
{
    if (!l) return;
    if (l->stream) cudaStreamSynchronize(l->stream);
    if (l->products) l->device->blas->cublasDestroy_v2(l->products);
    if (l->stream) cudaStreamDestroy(l->stream);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static enum zf_status lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e)
{
    struct zf_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return zf_fail_memory(e, "a lane");
    l->device = (struct zf_cuda *)d;
    pthread_mutex_init(&l->lock, NULL);
    enum zf_status s = zf_cuda_status(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), name, e);
    const struct zf_cublas *blas = l->device->blas;
    if (!s && blas->cublasCreate_v2(&l->products) != CUBLAS_STATUS_SUCCESS) s = zf_fail(e, ZF_IO, name, "cuBLAS cannot be initialised");
    if (!s && blas->cublasSetStream_v2(l->products, l->stream) != CUBLAS_STATUS_SUCCESS)
        s = zf_fail(e, ZF_IO, name, "cuBLAS refused the stream");
    if (s)
        lane_free(l);
    else
        *out = l;
    return s;
}

static enum zf_status lane_sync(struct zf_lane *l, struct zf_err *e)
{
    zf_cuda_lane_status(l, cudaStreamSynchronize(l->stream), "the device");
    pthread_mutex_lock(&l->lock);
    enum zf_status s = l->broken ? l->error.code : ZF_OK;
    if (s) *e = l->error;
    l->broken = false;
    pthread_mutex_unlock(&l->lock);
    return s;
}

static enum zf_status lane_failed(struct zf_lane *l, struct zf_err *e)
{
    pthread_mutex_lock(&l->lock);
    enum zf_status s = l->broken ? l->error.code : ZF_OK;
    if (s) *e = l->error;
    pthread_mutex_unlock(&l->lock);
    return s;
}

static double lane_seconds(struct zf_lane *l)
{
    (void)l;
    return 0;
}

static enum zf_status lane_watch(struct zf_lane *l, size_t room, struct zf_err *e)
{
    (void)l, (void)room, (void)e;
    return ZF_OK;
}

static size_t lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped)
{
    (void)l, (void)out, (void)room;
    *dropped = 0;
    return 0;
}

/* ---- events ---- */

static cudaEvent_t own(struct zf_event *v)
{
    return ((struct event *)v)->event;
}

static enum zf_status event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e)
{
    struct event *v = calloc(1, sizeof *v);
    (void)d;
    *out = NULL;
    if (!v) return zf_fail_memory(e, "an event");
    v->head.type = &zf_cuda_device;
    enum zf_status s = zf_cuda_status(cudaEventCreateWithFlags(&v->event, cudaEventDisableTiming), "an event", e);
    if (s)
        free(v);
    else
        *out = &v->head;
    return s;
}

static void event_free(struct zf_event *v)
{
    if (!v) return;
    cudaEventDestroy(own(v));
    free(v);
}

static enum zf_status event_record(struct zf_lane *l, struct zf_event *v)
{
    return zf_cuda_lane_status(l, cudaEventRecord(own(v), l->stream), "an event");
}

/* Of another backend's lane: its work was issued before, so that who issues may wait for it. */
static enum zf_status event_wait(struct zf_lane *l, struct zf_event *v)
{
    struct zf_err e;
    if (v->type != &zf_cuda_device) return v->type->event_sync(v, &e);
    return zf_cuda_lane_status(l, cudaStreamWaitEvent(l->stream, own(v), 0), "an event");
}

static enum zf_status event_sync(struct zf_event *v, struct zf_err *e)
{
    return zf_cuda_status(cudaEventSynchronize(own(v)), "an event", e);
}

const struct zf_device_type zf_cuda_device = {
    .abi = ZF_DEVICE_ABI,
    .name = "cuda",
    .open = open_device,
    .close = close_device,
    .info = info,
    .alloc = zf_cuda_alloc,
    .free = zf_cuda_free,
    .lane_new = lane_new,
    .lane_free = lane_free,
    .lane_sync = lane_sync,
    .lane_failed = lane_failed,
    .lane_busy = lane_seconds,
    .lane_waited = lane_seconds,
    .lane_watch = lane_watch,
    .lane_take = lane_take,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .copy = zf_cuda_copy,
    .copy_list = zf_cuda_copy_list,
    .fill = zf_cuda_fill,
    .call = zf_cuda_call,
    .ops = &zf_cuda_ops,
#ifdef ZF_NCCL
    .comm_open = zf_cuda_comm_open,
#endif
};
