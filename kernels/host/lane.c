/* Lanes: a queue (kernels/queue.h) whose thread does the work itself, and shares out kernels among itself and the device's pool. */
#include "kernels/host/host.h"

#include "core/base/clock.h"
#include "kernels/account.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct zf_lane {
    struct zf_host *host;
    double waited; /* for the pool, by the work being done; the lane's thread only */
    void *scratch; /* of the work being done; the lane's thread only */
    size_t scratch_bytes;
    struct zf_account account;
    struct zf_queue queue;
};

struct zf_host *zf_host_of(struct zf_lane *l)
{
    return l->host;
}

struct zf_queue *zf_host_queue(struct zf_lane *l)
{
    return &l->queue;
}

void *zf_host_scratch(struct zf_lane *l, size_t bytes)
{
    struct zf_err ignored;
    struct zf_device *d = &l->host->head;
    if (bytes <= l->scratch_bytes) return l->scratch;
    zf_host_free(d, l->scratch);
    l->scratch_bytes = zf_host_alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &l->scratch, &ignored) ? 0 : bytes;
    return l->scratch;
}

void zf_host_parallel(struct zf_lane *l, size_t tasks, void (*task)(void *ctx, size_t index), void *ctx)
{
    struct zf_host *h = l->host;
    if (tasks < 2 || zf_pool_used(h->pool) == 1) {
        for (size_t i = 0; i < tasks; i++) task(ctx, i);
        return;
    }
    if (pthread_mutex_trylock(&h->pool_lock)) {
        double from = zf_clock();
        pthread_mutex_lock(&h->pool_lock);
        l->waited += zf_clock() - from;
    }
    zf_pool_run(h->pool, tasks, task, ctx);
    pthread_mutex_unlock(&h->pool_lock);
}

struct kernel_job {
    const struct zf_host_kernel *kernel;
    const void *args;
};

static void kernel_task(void *ctx, size_t index)
{
    const struct kernel_job *j = ctx;
    j->kernel->run(j->args, index);
}

void zf_host_run_kernel(struct zf_lane *l, const struct zf_host_kernel *k, const void *args)
{
    struct kernel_job j = {k, args};
    zf_host_parallel(l, k->tasks(args), kernel_task, &j);
}

/* Waiting for an event is no work; one that was there already is not worth a span. */
static void account(struct zf_lane *l, const struct zf_slot *s, double from)
{
    enum { SHORTEST_NS = 2000 };
    struct zf_span span = {.start = from, .end = zf_clock(), .phase = s->phase, .wait = s->work->waits};
    double seconds = span.end - span.start;
    if (span.wait) {
        span.op = "wait";
        if (seconds * 1e9 >= SHORTEST_NS) zf_account_wait(&l->account, &span);
    } else if (!s->work->always) {
        struct zf_cost cost = zf_cost_of(s->work->kind, &s->args);
        span.op = zf_work_name(s->work->kind);
        span.work = seconds - l->waited;
        zf_account_work(&l->account, s->work->kind, &cost, &span);
    }
}

static enum zf_status perform(struct zf_lane *l, const struct zf_slot *s, struct zf_err *e)
{
    double from = zf_clock();
    l->waited = 0;
    enum zf_status status = s->work->run(l, &s->args, e);
    account(l, s, from);
    return status;
}

/* The matrix library's own threads would fight with the pool's. */
static void begin(struct zf_lane *l)
{
    (void)l;
    omp_set_num_threads(1);
}

static const struct zf_queue_type queue_type = {.perform = perform, .begin = begin};

enum zf_status zf_host_issue(struct zf_lane *l, const struct zf_work *work, const void *args, size_t size)
{
    return zf_queue_issue(&l->queue, work, args, size);
}

enum zf_status zf_host_lane_sync(struct zf_lane *l, struct zf_err *e)
{
    zf_queue_drain(&l->queue);
    return zf_queue_take_error(&l->queue, e);
}

enum zf_status zf_host_lane_failed(struct zf_lane *l, struct zf_err *e)
{
    return zf_queue_failed(&l->queue, e);
}

double zf_host_lane_busy(struct zf_lane *l)
{
    return zf_account_busy(&l->account);
}

double zf_host_lane_waited(struct zf_lane *l)
{
    return zf_account_waited(&l->account);
}

enum zf_status zf_host_lane_watch(struct zf_lane *l, size_t room, struct zf_err *e)
{
    return zf_account_watch(&l->account, room, e);
}

size_t zf_host_lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped)
{
    return zf_account_take(&l->account, out, room, dropped);
}

void zf_host_lane_phase(struct zf_lane *l, enum zf_phase phase)
{
    l->queue.phase = phase;
}

size_t zf_host_lane_profile(struct zf_lane *l, struct zf_profile_row *out, size_t room)
{
    return zf_account_rows(&l->account, out, room);
}

static void destroy(struct zf_lane *l)
{
    zf_account_free(&l->account);
    zf_host_free(&l->host->head, l->scratch);
    free(l);
}

enum zf_status zf_host_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e)
{
    struct zf_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return zf_fail_memory(e, "a lane");
    l->host = (struct zf_host *)d;
    zf_account_init(&l->account);
    struct zf_queue_options o = {.type = &queue_type,
                                 .lane = l,
                                 .name = name,
                                 .synchronous = l->host->synchronous,
                                 .jitter = l->host->jitter,
                                 .number = atomic_fetch_add(&l->host->lanes, 1)};
    enum zf_status s = zf_queue_open(&l->queue, &o, e);
    if (s) {
        destroy(l);
        return s;
    }
    bool works = zf_host_half(l->host) || !strcmp(name, "compute");
    if (!l->queue.synchronous && works && l->host->processor >= 0)
        zf_thread_pin(l->queue.thread, l->host->processor); /* else the system places it */
    *out = l;
    return ZF_OK;
}

void zf_host_lane_free(struct zf_lane *l)
{
    if (!l) return;
    zf_queue_close(&l->queue);
    destroy(l);
}
