/* Ranks on GPUs: NCCL, in the stream of the lane. Shares of one size are its own collectives; others are a group of one a rank. */
#include "kernels/comm/jobs.h"
#include "kernels/cuda/cuda.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { GROUP = 512 }; /* operations that are given at once at most */

struct nccl_comm {
    struct zf_comm head;
    const struct zf_nccl *nccl;
    ncclComm_t comm;
    struct zf_cuda *device;
    struct zf_comm_jobs jobs;
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

/* By the lane's thread. */
static enum zf_status give(struct nccl_comm *c, struct zf_lane *l, bool sum, const struct zf_comm_rows *list, size_t count)
{
    const struct zf_nccl *n = c->nccl;
    if (atomic_load(&c->aborted)) return ZF_IO;
    ncclResult_t code = n->ncclGroupStart(), ended;
    unsigned given = 0;
    for (size_t i = 0; i < count && code == ncclSuccess; i++) {
        bool all = even(&list[i], c->head.ranks);
        if (sum && list[i].type != ZF_F32 && list[i].type != ZF_F64) code = ncclInvalidArgument;
        for (int r = 0; r < (all ? 1 : c->head.ranks) && code == ncclSuccess; r++) {
            if (++given % GROUP == 0) {
                code = n->ncclGroupEnd();
                if (code == ncclSuccess) code = n->ncclGroupStart();
                if (code != ncclSuccess) return note(c, code, "a group");
            }
            code = all ? whole(c, &list[i], sum, l->stream) : part(c, &list[i], r, sum, l->stream);
        }
    }
    ended = n->ncclGroupEnd();
    return note(c, code != ncclSuccess ? code : ended, sum ? "a sum over ranks" : "a gathering from ranks");
}

static enum zf_status run_exchange(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    struct zf_comm_job *j = a->call.ctx;
    struct nccl_comm *c = (struct nccl_comm *)j->comm;
    enum zf_status s = give(c, l, j->sum, j->list, j->count);
    zf_comm_job_done(&c->jobs, j);
    if (!s) return ZF_OK;
    return zf_comm_failed(&c->head, e) ? e->code : zf_fail(e, s, "NCCL", "an exchange with the other ranks was given up");
}

static enum zf_status issue(struct zf_comm *head, struct zf_lane *l, bool sum, const struct zf_comm_rows *list, size_t count)
{
    static const struct zf_work work = {.run = run_exchange, .kind = ZF_WORK_call};
    struct nccl_comm *c = (struct nccl_comm *)head;
    struct zf_comm_job *j = zf_comm_job_new(&c->jobs, head, sum, list, count);
    if (!j) return ZF_MEMORY;
    return zf_cuda_issue(l, &work, &(struct zf_call_args){NULL, j}, sizeof(struct zf_call_args));
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
    zf_cuda_enter(c->device);
    c->nccl->ncclCommAbort(c->comm);
}

static void close_comm(struct zf_comm *head)
{
    struct nccl_comm *c = (struct nccl_comm *)head;
    if (c->comm && !atomic_load(&c->aborted)) c->nccl->ncclCommDestroy(c->comm);
    zf_comm_jobs_free(&c->jobs);
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
    c->device = (struct zf_cuda *)d;
    pthread_mutex_init(&c->lock, NULL);
    zf_comm_jobs_init(&c->jobs);
    enum zf_status s = ZF_OK;
    zf_cuda_enter(c->device);
    code = nccl->ncclCommInitRank(&c->comm, world->ranks, id, world->rank);
    if (code != ncclSuccess)
        s = zf_fail(e, ZF_IO, "NCCL", "rank %d of %d does not find the others: %s; NCCL_DEBUG=INFO in the environment says more",
                    world->rank, world->ranks, nccl->ncclGetErrorString(code));
    if (s)
        close_comm(&c->head);
    else
        *out = &c->head;
    return s;
}
