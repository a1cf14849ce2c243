/* The CUDA backend: opening, and what is known of the device. */
#include "kernels/cores.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum zf_status zf_cuda_status(cudaError_t code, const char *what, struct zf_err *e)
{
    if (code == cudaSuccess) return ZF_OK;
    return zf_fail(e, code == cudaErrorMemoryAllocation ? ZF_MEMORY : ZF_IO, what, "CUDA: %s (%s)", cudaGetErrorString(code),
                   cudaGetErrorName(code));
}

/* Here it gets a context. */
static enum zf_status take_gpu(int number, struct zf_err *e)
{
    cudaError_t code = cudaSetDevice(number);
    if (code == cudaSuccess) return ZF_OK;
    cudaGetLastError();
    return zf_fail(e, ZF_USAGE, NULL, "GPU %d cannot be used: %s; another program may hold it (nvidia-smi tells); or set device = host",
                   number, cudaGetErrorString(code));
}

static enum zf_status open_device(struct zf_device **out, const struct zf_device_options *o, struct zf_err *e)
{
    struct zf_cuda *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return zf_fail_memory(e, "the CUDA device");
    c->head.type = &zf_cuda_device;
    c->number = o->number;
    c->synchronous = o->synchronous;
    c->jitter = o->jitter;
    c->threads = o->threads ? o->threads : zf_cores()->count;
    pthread_mutex_init(&c->memory_lock, NULL);
    enum zf_status s = zf_cuda_probe(o, &c->found, e);
    if (!s) s = take_gpu(c->number, e);
    if (!s) s = zf_cuda_status(cudaGetDeviceProperties(&c->facts, c->number), "the GPU", e);
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
    *out = (struct zf_device_info){.threads = zf_cores()->count, .bf16_products = true};
    if (!c) return;
    *out = c->found;
    out->threads = c->threads;
    cudaMemGetInfo(&out->free_bytes, &out->total_bytes);
    pthread_mutex_lock(&c->memory_lock);
    memcpy(out->bytes, c->bytes, sizeof out->bytes);
    out->peak_bytes = c->peak;
    pthread_mutex_unlock(&c->memory_lock);
}

const struct zf_device_type zf_cuda_device = {
    .abi = ZF_DEVICE_ABI,
    .name = "cuda",
    .open = open_device,
    .probe = zf_cuda_probe,
    .close = close_device,
    .info = info,
    .alloc = zf_cuda_alloc,
    .free = zf_cuda_free,
    .lane_new = zf_cuda_lane_new,
    .lane_free = zf_cuda_lane_free,
    .lane_sync = zf_cuda_lane_sync,
    .lane_failed = zf_cuda_lane_failed,
    .lane_busy = zf_cuda_lane_busy,
    .lane_waited = zf_cuda_lane_waited,
    .lane_watch = zf_cuda_lane_watch,
    .lane_take = zf_cuda_lane_take,
    .lane_phase = zf_cuda_lane_phase,
    .lane_profile = zf_cuda_lane_profile,
    .event_new = zf_cuda_event_new,
    .event_free = zf_cuda_event_free,
    .event_record = zf_cuda_event_record,
    .event_wait = zf_cuda_event_wait,
    .event_sync = zf_cuda_event_sync,
    .event_hold = zf_cuda_event_hold,
    .event_await = zf_cuda_event_await,
    .copy = zf_cuda_copy,
    .copy_list = zf_cuda_copy_list,
    .fill = zf_cuda_fill,
    .call = zf_cuda_call,
    .ops = &zf_cuda_ops,
#ifdef ZF_NCCL
    .comm_open = zf_cuda_comm_open,
#endif
};
