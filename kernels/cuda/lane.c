/* Lanes: a queue (kernels/queue.h) whose thread launches into a stream. What it launches comes back at once, so that it runs ahead of the
 * stream; it waits itself where CUDA cannot: for events of other backends, for records that another lane's thread has yet to launch, and
 * for its own stream before a call. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

void zf_cuda_enter(struct zf_cuda *c)
{
    cudaSetDevice(c->number);
}

enum zf_status zf_cuda_issue(struct zf_lane *l, const struct zf_work *work, const void *args, size_t size)
{
    return zf_queue_issue(&l->queue, work, args, size);
}

enum zf_status zf_cuda_lane_status(struct zf_lane *l, cudaError_t code, const char *what)
{
    struct zf_err e;
    enum zf_status s = zf_cuda_status(code, what, &e);
    if (s) zf_queue_fail(&l->queue, &e);
    return s;
}

/* By an event that lets the thread sleep: those that wait for a stream by themselves may spin, on a core that the CPU half needs. */
cudaError_t zf_cuda_drain(struct zf_lane *l)
{
    cudaError_t code = cudaEventRecord(l->end, l->stream);
    return code == cudaSuccess ? cudaEventSynchronize(l->end) : code;
}

static enum zf_status perform(struct zf_lane *l, const struct zf_slot *s, struct zf_err *e)
{
    bool always = s->work->always;
    l->phase = s->phase;
    if (!always) zf_marks_begin(&l->marks);
    enum zf_status status = s->work->run(l, &s->args, e);
    if (!always && !status) zf_marks_op(&l->marks, s->work->kind, s->phase, &s->args);
    if (!l->queue.synchronous) return status;
    zf_marks_close(&l->marks);
    cudaError_t code = zf_cuda_drain(l);
    zf_marks_harvest(&l->marks);
    return status || always ? status : zf_cuda_status(code, zf_work_name(s->work->kind), e);
}

static void begin(struct zf_lane *l)
{
    zf_cuda_enter(l->device);
}

static void idle(struct zf_lane *l)
{
    zf_marks_close(&l->marks);
}

static const struct zf_queue_type queue_type = {.perform = perform, .begin = begin, .idle = idle};

static void destroy(struct zf_lane *l)
{
    zf_cuda_enter(l->device);
    if (l->stream) zf_cuda_drain(l);
    zf_marks_free(&l->marks);
    zf_cuda_products_free(l);
    if (l->products) l->device->blas->cublasDestroy_v2(l->products);
    if (l->end) cudaEventDestroy(l->end);
    if (l->stream) cudaStreamDestroy(l->stream);
    free(l);
}

static enum zf_status open_stream(struct zf_lane *l, const char *name, struct zf_err *e)
{
    const struct zf_cublas *blas = l->device->blas;
    zf_cuda_enter(l->device);
    ZF_TRY(zf_cuda_status(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), name, e));
    ZF_TRY(zf_cuda_status(cudaEventCreateWithFlags(&l->end, cudaEventDisableTiming | cudaEventBlockingSync), name, e));
    if (blas->cublasCreate_v2(&l->products) != CUBLAS_STATUS_SUCCESS) return zf_fail(e, ZF_IO, name, "cuBLAS cannot be initialised");
    if (blas->cublasSetStream_v2(l->products, l->stream) != CUBLAS_STATUS_SUCCESS)
        return zf_fail(e, ZF_IO, name, "cuBLAS refused the stream");
    return ZF_OK;
}

enum zf_status zf_cuda_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e)
{
    struct zf_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return zf_fail_memory(e, "a lane");
    l->device = (struct zf_cuda *)d;
    snprintf(l->name, sizeof l->name, "%s", name);
    enum zf_status s = open_stream(l, name, e);
    zf_marks_init(&l->marks, l->stream);
    struct zf_queue_options o = {.type = &queue_type,
                                 .lane = l,
                                 .name = l->name,
                                 .synchronous = l->device->synchronous,
                                 .jitter = l->device->jitter,
                                 .number = atomic_fetch_add(&l->device->lanes, 1)};
    if (!s) s = zf_queue_open(&l->queue, &o, e);
    if (s)
        destroy(l);
    else
        *out = l;
    return s;
}

void zf_cuda_lane_free(struct zf_lane *l)
{
    if (!l) return;
    zf_queue_close(&l->queue);
    destroy(l);
}

enum zf_status zf_cuda_lane_sync(struct zf_lane *l, struct zf_err *e)
{
    zf_cuda_enter(l->device);
    zf_queue_drain(&l->queue);
    zf_marks_close(&l->marks);
    zf_cuda_lane_status(l, zf_cuda_drain(l), l->name);
    zf_marks_harvest(&l->marks);
    return zf_queue_take_error(&l->queue, e);
}

enum zf_status zf_cuda_lane_failed(struct zf_lane *l, struct zf_err *e)
{
    return zf_queue_failed(&l->queue, e);
}

void zf_cuda_lane_phase(struct zf_lane *l, enum zf_phase phase)
{
    l->queue.phase = phase;
}

/* ---- its time: as far as the stream has come ---- */

static struct zf_account *account(struct zf_lane *l)
{
    zf_cuda_enter(l->device);
    zf_marks_harvest(&l->marks);
    return &l->marks.account;
}

double zf_cuda_lane_busy(struct zf_lane *l)
{
    return zf_account_busy(account(l));
}

double zf_cuda_lane_waited(struct zf_lane *l)
{
    return zf_account_waited(account(l));
}

enum zf_status zf_cuda_lane_watch(struct zf_lane *l, size_t room, struct zf_err *e)
{
    return zf_account_watch(account(l), room, e);
}

size_t zf_cuda_lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped)
{
    return zf_account_take(account(l), out, room, dropped);
}

size_t zf_cuda_lane_profile(struct zf_lane *l, struct zf_profile_row *out, size_t room)
{
    return zf_account_rows(account(l), out, room);
}
