/* Issuing: arguments are checked in the call, then copied into the lane; its thread launches the kernel into the stream. */
#include "kernels/checks.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

static enum zf_status run_matmul(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    return zf_cuda_matmul(l, &a->matmul, e);
}

static enum zf_status issue_matmul(struct zf_lane *l, const struct zf_matmul_args *a)
{
    static const struct zf_work work = {.run = run_matmul, .kind = ZF_WORK_matmul};
    const char *wrong = zf_check_matmul(a);
    if (wrong == zf_nothing) return ZF_OK;
    return wrong ? zf_queue_refuse(&l->queue, "matmul", wrong) : zf_cuda_issue(l, &work, a, sizeof *a);
}

static enum zf_status issue_serve_rows(struct zf_lane *l, const struct zf_serve_rows_args *a)
{
    const char *wrong = zf_check_serve_rows(a);
    if (wrong == zf_nothing) return ZF_OK;
    return zf_queue_refuse(&l->queue, "serve_rows", wrong ? wrong : "this is the CPU half's work: a device of the host does it");
}

#define ZF_OPS_WITHOUT_MATMUL
#define ZF_OPS_OF_DEVICES
#define ZF_OP(op) \
    static enum zf_status run_##op(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e) \
    { \
        return zf_cuda_status(zf_cuda_##op(&a->op, l->stream), #op, e); \
    } \
    static enum zf_status issue_##op(struct zf_lane *l, const struct zf_##op##_args *a) \
    { \
        static const struct zf_work work = {.run = run_##op, .kind = ZF_WORK_##op}; \
        const char *wrong = zf_check_##op(a); \
        if (wrong == zf_nothing) return ZF_OK; \
        return wrong ? zf_queue_refuse(&l->queue, #op, wrong) : zf_cuda_issue(l, &work, a, sizeof *a); \
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

static enum zf_status copy(struct zf_lane *l, const struct zf_copy *c, struct zf_err *e)
{
    if (!c->bytes) return ZF_OK;
    return zf_cuda_status(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDefault, l->stream), "copy", e);
}

static enum zf_status run_copy(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    return copy(l, &(struct zf_copy){a->copy.to, a->copy.from, a->copy.bytes}, e);
}

enum zf_status zf_cuda_copy(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    static const struct zf_work work = {.run = run_copy, .kind = ZF_WORK_copy};
    if (!bytes) return ZF_OK;
    if (!to || !from) return zf_queue_refuse(&l->queue, "copy", "the source or the destination is missing");
    struct zf_copy_args a = {to, from, bytes};
    return zf_cuda_issue(l, &work, &a, sizeof a);
}

static enum zf_status run_copy_list(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    for (size_t i = 0; i < a->copy_list.count; i++) ZF_TRY(copy(l, &a->copy_list.list[i], e));
    return ZF_OK;
}

enum zf_status zf_cuda_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count)
{
    static const struct zf_work work = {.run = run_copy_list, .kind = ZF_WORK_copy_list};
    for (size_t i = 0; i < count; i++)
        if (list[i].bytes && (!list[i].to || !list[i].from))
            return zf_queue_refuse(&l->queue, "copy_list", "a source or a destination is missing");
    struct zf_copy_list_args a = {list, count};
    return count ? zf_cuda_issue(l, &work, &a, sizeof a) : ZF_OK;
}

static enum zf_status run_fill(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    return zf_cuda_status(cudaMemsetAsync(a->fill.to, a->fill.byte, a->fill.bytes, l->stream), "fill", e);
}

enum zf_status zf_cuda_fill(struct zf_lane *l, void *to, int byte, size_t bytes)
{
    static const struct zf_work work = {.run = run_fill, .kind = ZF_WORK_fill};
    if (!bytes) return ZF_OK;
    if (!to) return zf_queue_refuse(&l->queue, "fill", "the destination is missing");
    struct zf_fill_args a = {to, bytes, byte};
    return zf_cuda_issue(l, &work, &a, sizeof a);
}

/* By the lane's thread, with the stream done. CUDA has host functions for this, but those of all streams may come one after the other on
 * one thread, and must not wait for anything: ours wait for a thread that writes a checkpoint. It costs the stream the time of a launch; a
 * lane has some calls a checkpoint, and none else. */
static enum zf_status run_call(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    zf_marks_close(&l->marks);
    ZF_TRY(zf_cuda_status(zf_cuda_drain(l), "call", e));
    zf_marks_begin(&l->marks);
    a->call.body(a->call.ctx);
    return ZF_OK;
}

enum zf_status zf_cuda_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx)
{
    static const struct zf_work work = {.run = run_call, .kind = ZF_WORK_call};
    if (!body) return zf_queue_refuse(&l->queue, "call", "there is nothing to call");
    struct zf_call_args a = {body, ctx};
    return zf_cuda_issue(l, &work, &a, sizeof a);
}
