#include "kernels/comm/wire.h"
#include "kernels/comm/jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SOME = 64 << 10, MANY = 4 << 20 }; /* elements of a rank's share that are summed at once; bytes that are sent at once */

struct wire_comm {
    struct zf_comm head;
    struct zf_comm_type type; /* with the wire's name */
    struct zf_device *device;
    struct zf_wire *wire;
    struct zf_wire_block *out, *in; /* [ranks] of the job being done */
    char *scratch;                  /* [ranks][SOME doubles] */
    atomic_bool aborted, broken;
    struct zf_comm_jobs jobs;
    pthread_mutex_t lock; /* over error */
    struct zf_err error;
};

static enum zf_status exchange(struct wire_comm *c, struct zf_err *e)
{
    return c->wire->exchange(c->wire, c->out, c->in, &c->aborted, e);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Bytes from `at` on, `most` of them, of rank r's rows. */
static struct zf_wire_block piece(const struct zf_comm_rows *x, int r, size_t at, size_t most)
{
    size_t row = x->cols * zf_dtype_size(x->type), all = (x->first[r + 1] - x->first[r]) * row;
    if (at >= all) return (struct zf_wire_block){0};
    return (struct zf_wire_block){(char *)x->base + x->first[r] * row + at, least(most, all - at)};
}

static size_t largest(const struct zf_comm_rows *x, int ranks)
{
    size_t most = 0;
    for (int r = 0; r < ranks; r++)
        if (x->first[r + 1] - x->first[r] > most) most = x->first[r + 1] - x->first[r];
    return most * x->cols * zf_dtype_size(x->type);
}

#define ADD_UP(T) \
    static void add_up_##T(struct wire_comm *c, T *own, size_t n) \
    { \
        for (size_t i = 0; i < n; i++) { \
            T sum = 0; \
            for (int r = 0; r < c->head.ranks; r++) sum += r == c->head.rank ? own[i] : ((const T *)c->in[r].bytes)[i]; \
            own[i] = sum; \
        } \
    }
ADD_UP(float)
ADD_UP(double)

static enum zf_status sum_rows(struct wire_comm *c, const struct zf_comm_rows *x, struct zf_err *e)
{
    size_t each = zf_dtype_size(x->type), most = SOME * each, all = largest(x, c->head.ranks);
    for (size_t at = 0; at < all; at += most) {
        struct zf_wire_block own = piece(x, c->head.rank, at, most);
        for (int r = 0; r < c->head.ranks; r++) {
            c->out[r] = piece(x, r, at, most);
            c->in[r] = (struct zf_wire_block){c->scratch + (size_t)r * SOME * sizeof(double), own.size};
        }
        ZF_TRY(exchange(c, e));
        if (x->type == ZF_F64)
            add_up_double(c, own.bytes, own.size / each);
        else
            add_up_float(c, own.bytes, own.size / each);
    }
    return ZF_OK;
}

static enum zf_status gather_rows(struct wire_comm *c, const struct zf_comm_rows *x, struct zf_err *e)
{
    size_t all = largest(x, c->head.ranks);
    for (size_t at = 0; at < all; at += MANY) {
        struct zf_wire_block own = piece(x, c->head.rank, at, MANY);
        for (int r = 0; r < c->head.ranks; r++) {
            c->out[r] = own;
            c->in[r] = piece(x, r, at, MANY);
        }
        ZF_TRY(exchange(c, e));
    }
    return ZF_OK;
}

static void fail(struct wire_comm *c, const struct zf_err *e)
{
    pthread_mutex_lock(&c->lock);
    if (!atomic_load(&c->broken)) c->error = *e;
    atomic_store(&c->broken, true);
    pthread_mutex_unlock(&c->lock);
}

/* In the lane. */
static void perform(void *ctx)
{
    struct zf_comm_job *j = ctx;
    struct wire_comm *c = (struct wire_comm *)j->comm;
    struct zf_err e;
    enum zf_status s = ZF_OK;
    for (size_t i = 0; !s && i < j->count && !atomic_load(&c->broken); i++)
        s = j->sum ? sum_rows(c, &j->list[i], &e) : gather_rows(c, &j->list[i], &e);
    if (s) fail(c, &e);
    zf_comm_job_done(&c->jobs, j);
}

static enum zf_status issue(struct zf_comm *head, struct zf_lane *l, bool sum, const struct zf_comm_rows *list, size_t count)
{
    struct wire_comm *c = (struct wire_comm *)head;
    struct zf_err e;
    for (size_t i = 0; sum && i < count; i++)
        if (list[i].type != ZF_F32 && list[i].type != ZF_F64) {
            zf_fail(&e, ZF_USAGE, NULL, "sums over ranks are of f32 or f64, not %s: a mistake in the program", zf_dtype_name(list[i].type));
            fail(c, &e);
            return ZF_USAGE;
        }
    struct zf_comm_job *j = zf_comm_job_new(&c->jobs, head, sum, list, count);
    if (!j) {
        zf_fail_memory(&e, "what goes to other ranks");
        fail(c, &e);
        return ZF_MEMORY;
    }
    return c->device->type->call(l, perform, j);
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
    struct wire_comm *c = (struct wire_comm *)head;
    pthread_mutex_lock(&c->lock);
    enum zf_status s = atomic_load(&c->broken) ? c->error.code : ZF_OK;
    if (s) *e = c->error;
    pthread_mutex_unlock(&c->lock);
    return s;
}

static void abort_all(struct zf_comm *head)
{
    struct wire_comm *c = (struct wire_comm *)head;
    atomic_store(&c->aborted, true);
}

static void close_comm(struct zf_comm *head)
{
    struct wire_comm *c = (struct wire_comm *)head;
    c->wire->close(c->wire);
    zf_comm_jobs_free(&c->jobs);
    pthread_mutex_destroy(&c->lock);
    free(c->out);
    free(c->in);
    free(c->scratch);
    free(c);
}

enum zf_status zf_comm_over_wire(struct zf_comm **out, const char *name, struct zf_device *d, struct zf_wire *w, struct zf_err *e)
{
    size_t n = (size_t)w->ranks;
    struct wire_comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        w->close(w);
        return zf_fail_memory(e, "what goes to other ranks");
    }
    c->type = (struct zf_comm_type){name, close_comm, reduce_scatter, all_gather, failed, abort_all};
    c->head = (struct zf_comm){&c->type, w->rank, w->ranks};
    c->device = d;
    c->wire = w;
    c->out = calloc(n, sizeof *c->out);
    c->in = calloc(n, sizeof *c->in);
    c->scratch = malloc(n * SOME * sizeof(double));
    pthread_mutex_init(&c->lock, NULL);
    zf_comm_jobs_init(&c->jobs);
    if (!c->out || !c->in || !c->scratch) {
        close_comm(&c->head);
        return zf_fail_memory(e, "what goes to other ranks");
    }
    *out = &c->head;
    return ZF_OK;
}
