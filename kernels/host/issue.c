/* Issuing: arguments are checked in the call, then copied into the lane. A broken call returns ZF_USAGE and leaves the reason in the
 * lane, where lane_sync finds it in its place among the other work. No rows or columns is no work. */
#include "kernels/checks.h"
#include "kernels/host/host.h"

#include <emmintrin.h>
#include <string.h>

static enum zf_status refuse(struct zf_lane *l, const char *op, const char *wrong)
{
    return zf_queue_refuse(zf_host_queue(l), op, wrong);
}

static enum zf_status issue_matmul(struct zf_lane *l, const struct zf_matmul_args *a)
{
    static const struct zf_work work = {.run = zf_host_matmul_run, .kind = ZF_WORK_matmul};
    const char *wrong = zf_check_matmul(a);
    if (wrong == zf_nothing) return ZF_OK;
    return wrong ? refuse(l, "matmul", wrong) : zf_host_issue(l, &work, a, sizeof *a);
}

#define ISSUE(op, kernel) \
    static enum zf_status run_##op(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e) \
    { \
        (void)e; \
        zf_host_run_kernel(l, kernel, a); \
        return ZF_OK; \
    } \
    static enum zf_status issue_##op(struct zf_lane *l, const struct zf_##op##_args *a) \
    { \
        static const struct zf_work work = {.run = run_##op, .kind = ZF_WORK_##op}; \
        const char *wrong = zf_check_##op(a); \
        if (wrong == zf_nothing) return ZF_OK; \
        return wrong ? refuse(l, #op, wrong) : zf_host_issue(l, &work, a, sizeof *a); \
    }
#define ZF_OPS_WITHOUT_MATMUL
#define ZF_OP(op) ISSUE(op, zf_host_of(l)->path->typed[a->op.type].op)
#define ZF_OP_UNTYPED(op) ISSUE(op, zf_host_of(l)->path->op)
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
#undef ZF_OPS_WITHOUT_MATMUL

const struct zf_ops zf_host_ops = {
#define ZF_OP(op) .op = issue_##op,
#include "kernels/ops.def"
#undef ZF_OP
};

/* Copies and fills are kernels as well: pieces of 1 MiB. */
enum { PIECE = 1 << 20 };

static size_t piece_of(size_t bytes, size_t task)
{
    size_t rest = bytes - task * PIECE;
    return rest < PIECE ? rest : PIECE;
}

static size_t copy_tasks(const void *args)
{
    return (((const struct zf_copy_args *)args)->bytes - 1) / PIECE + 1;
}

/* Without reading what is overwritten: most of what is copied in bulk is gradients on their way down, which nobody reads before a whole
 * window has gone through the caches. */
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
    enum { LINE = 64, AHEAD = 1024 };
    size_t i = 0;
    for (; i + LINE <= bytes; i += LINE) {
        __m128i x[LINE / sizeof(__m128i)];
        __builtin_prefetch(from + i + AHEAD);
        memcpy(x, from + i, sizeof x);
        for (size_t k = 0; k < sizeof x / sizeof *x; k++) _mm_stream_si128((__m128i *)(void *)(to + i) + k, x[k]);
    }
    _mm_sfence(); /* such stores are not ordered with the one that says that the task is done */
    memcpy(to + i, from + i, bytes - i);
}

static void copy_run(const void *args, size_t task)
{
    enum { BULK = 1 << 16 };
    const struct zf_copy_args *a = args;
    char *to = (char *)a->to + task * PIECE;
    const char *from = (const char *)a->from + task * PIECE;
    size_t bytes = piece_of(a->bytes, task);
    if (bytes >= BULK && (uintptr_t)to % sizeof(__m128i) == 0)
        copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static size_t copy_list_tasks(const void *args)
{
    const struct zf_copy_list_args *a = args;
    size_t n = 0;
    for (size_t i = 0; i < a->count; i++) n += a->list[i].bytes ? (a->list[i].bytes - 1) / PIECE + 1 : 0;
    return n;
}

static void copy_list_run(const void *args, size_t task)
{
    const struct zf_copy *c = ((const struct zf_copy_list_args *)args)->list;
    for (;; c++) {
        size_t n = c->bytes ? (c->bytes - 1) / PIECE + 1 : 0;
        if (task < n) break;
        task -= n;
    }
    copy_run(&(struct zf_copy_args){c->to, c->from, c->bytes}, task);
}

static size_t fill_tasks(const void *args)
{
    return (((const struct zf_fill_args *)args)->bytes - 1) / PIECE + 1;
}

static void fill_run(const void *args, size_t task)
{
    const struct zf_fill_args *a = args;
    memset((char *)a->to + task * PIECE, a->byte, piece_of(a->bytes, task));
}

static enum zf_status run_copy(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {copy_tasks, copy_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

static enum zf_status run_fill(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {fill_tasks, fill_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

enum zf_status zf_host_copy(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    static const struct zf_work work = {.run = run_copy, .kind = ZF_WORK_copy};
    if (!bytes) return ZF_OK;
    if (!to || !from) return refuse(l, "copy", "the source or the destination is missing");
    struct zf_copy_args a = {to, from, bytes};
    return zf_host_issue(l, &work, &a, sizeof a);
}

static enum zf_status run_copy_list(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {copy_list_tasks, copy_list_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

enum zf_status zf_host_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count)
{
    static const struct zf_work work = {.run = run_copy_list, .kind = ZF_WORK_copy_list};
    for (size_t i = 0; i < count; i++)
        if (list[i].bytes && (!list[i].to || !list[i].from)) return refuse(l, "copy_list", "a source or a destination is missing");
    struct zf_copy_list_args a = {list, count};
    return count ? zf_host_issue(l, &work, &a, sizeof a) : ZF_OK;
}

enum zf_status zf_host_fill(struct zf_lane *l, void *to, int byte, size_t bytes)
{
    static const struct zf_work work = {.run = run_fill, .kind = ZF_WORK_fill};
    if (!bytes) return ZF_OK;
    if (!to) return refuse(l, "fill", "the destination is missing");
    struct zf_fill_args a = {to, bytes, byte};
    return zf_host_issue(l, &work, &a, sizeof a);
}

static enum zf_status run_call(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    (void)l;
    (void)e;
    a->call.body(a->call.ctx);
    return ZF_OK;
}

enum zf_status zf_host_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx)
{
    static const struct zf_work work = {.run = run_call, .kind = ZF_WORK_call};
    if (!body) return refuse(l, "call", "there is nothing to call");
    struct zf_call_args a = {body, ctx};
    return zf_host_issue(l, &work, &a, sizeof a);
}
