/* Ranks on GPUs: NCCL, in the stream of the lane. Shares of one size are its own collectives; others are a group of one a rank. */
#include "kernels/comm.h"
#include "kernels/cuda/cuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 512 }; /* operations that are given at once at most */

struct nccl_comm {
    struct zf_comm head;
    const struct zf_nccl *nccl;
    ncclComm_t comm;
    atomic_bool aborted;
    pthread_mutex_t lock; /* over error */
    struct zf_err error;  /* code ZF_OK: none */
};

static enum zf_status note(struct nccl_comm *c, ncclResult_t code, const char *what)
{
    if (code == ncclSuccess) return ZF_OK;
    pthread_mutex_lock(&c->lock);
    if (!c->error.code) zf_fail(&c->error, ZF_IO, "NCCL", "%s: %s", what, c->nccl->ncclGetErrorString(code));
    pthread_mutex_unlock(&c->lock);
    return ZF_IO;
}

static bool even(const struct zf_comm_rows *x, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (x->first[r + 1] - x->first[r] != x->first[1] - x->first[0]) return false;
    return x->first[0] == 0;
}

/* One rank's rows of a list, or all of them at once; a gathering counts bytes, so that bits are copied whatever they mean. */
struct operation {
    char *at;
    size_t count;
    ncclDataType_t type;
};

static struct operation operation(const struct zf_comm_rows *x, int rank, bool sum)
{
    size_t row = x->cols * zf_dtype_size(x->type), n = x->first[rank + 1] - x->first[rank];
    return (struct operation){(char *)x->base + x->first[rank] * row, sum ? n * x->cols : n * row,
                              !sum                ? ncclUint8
                              : x->type == ZF_F64 ? ncclFloat64
                                                  : ncclFloat32};
}

static ncclResult_t whole(struct nccl_comm *c, const struct zf_comm_rows *x, bool sum, cudaStream_t s)
{
    struct operation own = operation(x, c->head.rank, sum);
    if (!own.count) return ncclSuccess;
    return sum ? c->nccl->ncclReduceScatter(x->base, own.at, own.count, own.type, ncclSum, c->comm, s)
               : c->nccl->ncclAllGather(own.at, x->base, own.count, own.type, c->comm, s);
}

static ncclResult_t part(struct nccl_comm *c, const struct zf_comm_rows *x, int rank, bool sum, cudaStream_t s)
{
    struct operation of = operation(x, rank, sum);
    if (!of.count) return ncclSuccess;
    return sum ? c->nccl->ncclReduce(of.at, of.at, of.count, of.type, ncclSum, rank, c->comm, s)
               : c->nccl->ncclBroadcast(of.at, of.at, of.count, of.type, rank, c->comm, s);
}

/* A collective on its way through the lane, with copies of what the caller's list says. */
struct collective {
    struct nccl_comm *comm;
    bool sum;
    size_t count;
    struct zf_comm_rows list[];
};

static void give(const struct collective *x, cudaStream_t s)
{
    struct nccl_comm *c = x->comm;
    const struct zf_nccl *n = c->nccl;
    ncclResult_t code = n->ncclGroupStart(), ended;
    unsigned given = 0;
    for (size_t i = 0; i < x->count && code == ncclSuccess; i++) {
        const struct zf_comm_rows *rows = &x->list[i];
        bool all = even(rows, c->head.ranks);
        if (x->sum && rows->type != ZF_F32 && rows->type != ZF_F64) code = ncclInvalidArgument;
        for (int r = 0; r < (all ? 1 : c->head.ranks) && code == ncclSuccess; r++) {
            if (++given % GROUP == 0) {
                code = n->ncclGroupEnd();
                if (code == ncclSuccess) code = n->ncclGroupStart();
                if (code != ncclSuccess) {
                    note(c, code, "a group");
                    return;
                }
            }
            code = all ? whole(c, rows, x->sum, s) : part(c, rows, r, x->sum, s);
        }
    }
    ended = n->ncclGroupEnd();
    note(c, code != ncclSuccess ? code : ended, x->sum ? "a sum over ranks" : "a gathering from ranks");
}

/* On the lane's thread, in its place among the lane's other work; always, as it owns its list. What goes wrong is the communicator's. */
static enum zf_status run(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    struct collective *x = a->call.ctx;
    if (!zf_queue_failed(&l->queue, e) && !atomic_load(&x->comm->aborted)) {
        zf_marks_begin(&l->marks);
        give(x, l->stream);
        zf_marks_op(&l->marks, ZF_WORK_call, l->phase, a);
    }
    free(x);
    return ZF_OK;
}

static enum zf_status issue(struct zf_comm *head, struct zf_lane *l, bool sum, const struct zf_comm_rows *list, size_t count)
{
    static const struct zf_work work = {.run = run, .always = true, .kind = ZF_WORK_call};
    struct nccl_comm *c = (struct nccl_comm *)head;
    size_t shares = (size_t)head->ranks + 1, bytes = count * (sizeof *list + shares * sizeof *list->first);
    if (atomic_load(&c->aborted)) return ZF_IO;
    struct collective *x = malloc(sizeof *x + bytes);
    if (!x) {
        struct zf_err e;
        zf_fail_memory(&e, "what goes to other ranks");
        zf_queue_fail(&l->queue, &e);
        return ZF_MEMORY;
    }
    *x = (struct collective){c, sum, count};
    size_t *first = (size_t *)(void *)&x->list[count];
    for (size_t i = 0; i < count; i++, first += shares) {
        memcpy(first, list[i].first, shares * sizeof *first);
        x->list[i] = list[i];
        x->list[i].first = first;
    }
    zf_cuda_issue(l, &work, &(struct zf_call_args){NULL, x}, sizeof(struct zf_call_args));
    return ZF_OK;
}

static enum zf_status reduce_scatter(struct zf_comm *c, struct zf_lane *l, const struct zf_comm_rows *list, size_t count)
{
    return issue(c, l, true, list, count);
}

static enum zf_status all_gather(struct zf_comm *c, struct zf_lane *l, const struct zf_comm_rows *list, size_t count)
{
    return issue(c, l, false, list, count);
}

static enum zf_status failed(struct zf_comm *head, struct zf_err *e)
{
    struct nccl_comm *c = (struct nccl_comm *)head;
    ncclResult_t code = ncclSuccess, asked = ncclSuccess;
    if (!atomic_load(&c->aborted)) asked = c->nccl->ncclCommGetAsyncError(c->comm, &code);
    note(c, asked, "the communicator");
    if (code != ncclInProgress) note(c, code, "another rank, or the way to it, failed");
    pthread_mutex_lock(&c->lock);
    enum zf_status s = c->error.code;
    if (s) *e = c->error;
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* NCCL ends what is under way and frees the communicator with it. */
static void abort_all(struct zf_comm *head)
{
    struct nccl_comm *c = (struct nccl_comm *)head;
    if (atomic_exchange(&c->aborted, true)) return;
    pthread_mutex_lock(&c->lock);
    if (!c->error.code) zf_fail(&c->error, ZF_IO, "NCCL", "an exchange with the other ranks was given up");
    pthread_mutex_unlock(&c->lock);
    c->nccl->ncclCommAbort(c->comm);
}

static void close_comm(struct zf_comm *head)
{
    struct nccl_comm *c = (struct nccl_comm *)head;
    if (c->comm && !atomic_load(&c->aborted)) c->nccl->ncclCommDestroy(c->comm);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const struct zf_comm_type type = {"NCCL", close_comm, reduce_scatter, all_gather, failed, abort_all};

enum zf_status zf_cuda_comm_open(struct zf_comm **out, struct zf_device *d, const struct zf_comm_world *world, struct zf_err *e)
{
    const struct zf_nccl *nccl;
    ncclUniqueId id;
    ZF_TRY(zf_cuda_nccl(&nccl, e));
    ncclResult_t code = world->rank ? ncclSuccess : nccl->ncclGetUniqueId(&id);
    if (code != ncclSuccess) return zf_fail(e, ZF_IO, "NCCL", "no identifier for the ranks: %s", nccl->ncclGetErrorString(code));
    if (world->ranks > 1) ZF_TRY(world->tell(world->ctx, &id, sizeof id, e));
    struct nccl_comm *c = calloc(1, sizeof *c);
    if (!c) return zf_fail_memory(e, "what goes to other ranks");
    c->head = (struct zf_comm){&type, world->rank, world->ranks};
    c->nccl = nccl;
    pthread_mutex_init(&c->lock, NULL);
    enum zf_status s = zf_cuda_status(cudaSetDevice(((struct zf_cuda *)d)->number), "the device", e);
    if (!s) code = nccl->ncclCommInitRank(&c->comm, world->ranks, id, world->rank);
    if (!s && code != ncclSuccess)
        s = zf_fail(e, ZF_IO, "NCCL", "rank %d of %d does not find the others: %s; NCCL_DEBUG=INFO in the environment says more",
                    world->rank, world->ranks, nccl->ncclGetErrorString(code));
    if (s)
        close_comm(&c->head);
    else
        *out = &c->head;
    return s;
}
