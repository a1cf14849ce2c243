/* The CUDA backend: opening, and what is known of the device. */
#include "kernels/cores.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool zf_cuda_is_lost(cudaError_t code)
{
    static const cudaError_t codes[] = {
        cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable,
        cudaErrorIllegalAddress,
        cudaErrorLaunchTimeout,
        cudaErrorAssert,
        cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc,
        cudaErrorLaunchFailure,
        cudaErrorDevicesUnavailable,
        cudaErrorUnknown,
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return true;
    return false;
}

enum zf_status zf_cuda_status(cudaError_t code, const char *what, struct zf_err *e)
{
    if (code == cudaSuccess) return ZF_OK;
    if (zf_cuda_is_lost(code))
        return zf_fail(
            e, ZF_IO, what,
            "the GPU is lost to this program: %s (%s); what the driver says is in `dmesg` (a line with Xid) and in `nvidia-smi -q`; "
            "if `nvidia-smi` still lists the GPU start again, else reset it or the machine",
            cudaGetErrorString(code), cudaGetErrorName(code));
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
    if (!s) s = zf_cuda_status(cudaStreamCreateWithFlags(&c->zeroes, cudaStreamNonBlocking), "a stream", e);
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
    zf_cuda_memory_close(c);
    cudaStreamDestroy(c->zeroes);
    pthread_mutex_destroy(&c->memory_lock);
    free(c);
}

static void info(struct zf_device *d, struct zf_device_info *out)
{
    struct zf_cuda *c = (struct zf_cuda *)d;
    *out = (struct zf_device_info){.threads = zf_cores()->count, .bf16_products = true};
    if (!c) return;
    *out = c->found;
    out->threads = c->threads;
    snprintf(out->bus, sizeof out->bus, "%08x:%02x:%02x.0", (unsigned)c->facts.pciDomainID, (unsigned)c->facts.pciBusID,
             (unsigned)c->facts.pciDeviceID);
    zf_cuda_enter(c);
    cudaMemGetInfo(&out->free_bytes, &out->total_bytes);
    pthread_mutex_lock(&c->memory_lock);
    memcpy(out->bytes, c->all.bytes, sizeof out->bytes);
    memcpy(out->own, c->own.bytes, sizeof out->own);
    out->peak_bytes = c->all.peak;
    out->own_peak = c->own.peak;
    out->locked = c->locked;
    out->unlocked = c->unlocked;
    pthread_mutex_unlock(&c->memory_lock);
}

static bool room_of(size_t *left, size_t *all)
{
    bool told = cudaSetDevice(0) == cudaSuccess && cudaMemGetInfo(left, all) == cudaSuccess;
    if (!told) cudaGetLastError();
    return told;
}

/* Without waiting: what went wrong for good comes up at any call. */
static bool lost(struct zf_device *d)
{
    zf_cuda_enter((struct zf_cuda *)d);
    return zf_cuda_is_lost(cudaStreamQuery(((struct zf_cuda *)d)->zeroes));
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
    .reserve = zf_cuda_reserve,
    .trim = zf_cuda_trim,
    .lost = lost,
    .room = room_of,
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
