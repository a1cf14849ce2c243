/* Issuing: arguments are checked in the call, then the kernel is launched into the lane's stream. */
#include "kernels/checks.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

#include <stdio.h>

enum zf_status zf_cuda_refuse(struct zf_lane *l, const char *op, const char *wrong)
{
    pthread_mutex_lock(&l->lock);
    if (!l->broken) zf_fail(&l->error, ZF_USAGE, NULL, "%s: %s", op, wrong);
    l->broken = true;
    pthread_mutex_unlock(&l->lock);
    return ZF_USAGE;
}

/* After an error a lane does nothing but events, until lane_sync has told of it. */
static bool is_broken(struct zf_lane *l)
{
    pthread_mutex_lock(&l->lock);
    bool broken = l->broken;
    pthread_mutex_unlock(&l->lock);
    return broken;
}

static enum zf_status issue_matmul(struct zf_lane *l, const struct zf_matmul_args *a)
{
    const char *wrong = zf_check_matmul(a);
    if (wrong == zf_nothing || is_broken(l)) return ZF_OK;
    return wrong ? zf_cuda_refuse(l, "matmul", wrong) : zf_cuda_matmul(l, a);
}

static enum zf_status issue_serve_rows(struct zf_lane *l, const struct zf_serve_rows_args *a)
{
    const char *wrong = zf_check_serve_rows(a);
    if (wrong == zf_nothing) return ZF_OK;
    return zf_cuda_refuse(l, "serve_rows", wrong ? wrong : "this is the CPU half's work: a device of the host does it");
}

#define ZF_OPS_WITHOUT_MATMUL
#define ZF_OPS_OF_DEVICES
#define ZF_OP(op) \
    static enum zf_status issue_##op(struct zf_lane *l, const struct zf_##op##_args *a) \
    { \
        const char *wrong = zf_check_##op(a); \
        if (wrong && wrong != zf_nothing) return zf_cuda_refuse(l, #op, wrong); \
        if (wrong == zf_nothing || is_broken(l)) return ZF_OK; \
        return zf_cuda_lane_status(l, zf_cuda_##op(a, l->stream), #op); \
    }
#include "kernels/ops.def"
#undef ZF_OP
#undef ZF_OPS_OF_DEVICES
#undef ZF_OPS_WITHOUT_MATMUL

const struct zf_ops zf_cuda_ops = {
#define ZF_OP(op) .op = issue_##op,
#include "kernels/ops.def"
#undef ZF_OP
};

enum zf_status zf_cuda_copy(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    if (!bytes) return ZF_OK;
    if (!to || !from) return zf_cuda_refuse(l, "copy", "the source or the destination is missing");
    if (is_broken(l)) return ZF_OK;
    return zf_cuda_lane_status(l, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, l->stream), "copy");
}

enum zf_status zf_cuda_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count)
{
    enum zf_status s = ZF_OK;
    for (size_t i = 0; i < count && !s; i++) s = zf_cuda_copy(l, list[i].to, list[i].from, list[i].bytes);
    return s;
}

enum zf_status zf_cuda_fill(struct zf_lane *l, void *to, int byte, size_t bytes)
{
    if (!bytes) return ZF_OK;
    if (!to) return zf_cuda_refuse(l, "fill", "the destination is missing");
    if (is_broken(l)) return ZF_OK;
    return zf_cuda_lane_status(l, cudaMemsetAsync(to, byte, bytes, l->stream), "fill");
}

enum zf_status zf_cuda_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx)
{
    if (!body) return zf_cuda_refuse(l, "call", "there is nothing to call");
    if (is_broken(l)) return ZF_OK;
    return zf_cuda_lane_status(l, cudaLaunchHostFunc(l->stream, body, ctx), "call");
}
