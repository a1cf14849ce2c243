/* Lanes: a thread each, with a bounded ring of work. The issuer copies arguments in; the lane's thread takes them out in order, and
 * shares out kernels among itself and the device's pool. A full ring makes the issuer wait. After an error a lane does nothing but
 * events, until lane_sync has told of it. A `synchronous` device has no threads: work is done inside the call that issues it. */
#include "kernels/host/host.h"

#include "core/base/clock.h"
#include "core/base/rng.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = 256, SPINS = 1000 };

struct slot {
    const struct zf_host_work *work;
    enum zf_phase phase;
    union zf_host_args args;
};

/* One thread puts in, one takes out: `issued` is written by the one, `finished` by the other. Both spin shortly before they sleep, and who
 * advances a counter wakes the other only if it sleeps for that (each writes its own word, then reads the other's: no wake is lost). */
struct zf_lane {
    struct zf_host *host;
    pthread_t thread;
    bool synchronous;
    uint64_t number, held; /* for jitter */
    double waited;         /* for the pool, by the work being done; the lane's thread only */
    enum zf_phase phase;   /* of what is issued; the issuer's */

    void *scratch; /* of the work being done; the lane's thread only */
    size_t scratch_bytes;

    _Atomic uint64_t issued, finished;
    atomic_bool quit, sleeps; /* sleeps: the lane's thread, for work */
    _Atomic uint64_t wanted;  /* the least `finished` for which a thread sleeps */
    pthread_mutex_t lock;     /* for sleeping, and over error */
    pthread_cond_t arrived, done;

    struct zf_host_account account;
    atomic_bool broken; /* error holds the first since the last lane_sync */
    struct zf_err error;

    struct slot ring[RING]; /* [finished, issued) are the lane's thread's, the rest is the issuer's */
};

struct zf_host *zf_host_of(struct zf_lane *l)
{
    return l->host;
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
static void account(struct zf_lane *l, const struct slot *s, double from)
{
    enum { SHORTEST_NS = 2000 };
    struct zf_span span = {.start = from, .end = zf_clock(), .phase = s->phase, .wait = s->work->waits};
    double seconds = span.end - span.start;
    if (span.wait) {
        span.op = "wait";
        if (seconds * 1e9 >= SHORTEST_NS) zf_host_account_wait(&l->account, &span);
    } else if (!s->work->always) {
        span.op = zf_host_op_name(s->work->kind);
        span.work = seconds - l->waited;
        zf_host_account_work(&l->account, s->work->kind, &s->args, &span);
    }
}

/* By the seed a lane is never held up, now and then for a little or for long, often for a little, or seldom for very long: so that lanes
 * overtake each other in every way, by one piece of work or by a whole step's. */
static void hold_up(struct zf_lane *l)
{
    static const struct {
        uint64_t of, little, much; /* one in so many is held up; nanoseconds at most, for every fourth of them */
    } tempers[] = {{0, 0, 0}, {16, 400000, 400000}, {6, 60000, 60000}, {64, 400000, 4000000}};
    struct zf_u32x4 draw = zf_philox(l->host->jitter, l->number, l->held++);
    uint32_t temper = zf_philox(l->host->jitter, l->number, UINT64_MAX).v[0] % 4;
    if (!tempers[temper].of || draw.v[0] % tempers[temper].of) return;
    struct timespec pause = {.tv_nsec = (long)(draw.v[1] % (draw.v[2] % 4 ? tempers[temper].little : tempers[temper].much))};
    nanosleep(&pause, NULL);
}

static void perform(struct zf_lane *l, const struct slot *s)
{
    if (l->host->jitter) hold_up(l);
    if (atomic_load(&l->broken) && !s->work->always) return;
    struct zf_err e;
    double from = zf_clock();
    l->waited = 0;
    enum zf_status status = s->work->run(l, &s->args, &e);
    account(l, s, from);
    if (!status) return;
    pthread_mutex_lock(&l->lock);
    if (!atomic_load(&l->broken)) l->error = e;
    atomic_store(&l->broken, true);
    pthread_mutex_unlock(&l->lock);
}

/* The next piece of work is there; false: there will be none. */
static bool await_work(struct zf_lane *l, uint64_t next)
{
    for (int spin = 0; spin < SPINS && atomic_load(&l->issued) == next; spin++) __builtin_ia32_pause();
    if (atomic_load(&l->issued) != next) return true;
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->sleeps, true);
    while (atomic_load(&l->issued) == next && !atomic_load(&l->quit)) pthread_cond_wait(&l->arrived, &l->lock);
    atomic_store(&l->sleeps, false);
    pthread_mutex_unlock(&l->lock);
    return atomic_load(&l->issued) != next;
}

static void wake_lane(struct zf_lane *l)
{
    if (!atomic_load(&l->sleeps)) return;
    pthread_mutex_lock(&l->lock);
    pthread_cond_signal(&l->arrived);
    pthread_mutex_unlock(&l->lock);
}

/* Until `count` pieces of work are finished. */
static void await_finished(struct zf_lane *l, uint64_t count)
{
    for (int spin = 0; spin < SPINS && atomic_load(&l->finished) < count; spin++) __builtin_ia32_pause();
    if (atomic_load(&l->finished) >= count) return;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        if (atomic_load(&l->wanted) > count) atomic_store(&l->wanted, count);
        if (atomic_load(&l->finished) >= count) break;
        pthread_cond_wait(&l->done, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
}

static void finish(struct zf_lane *l, uint64_t count)
{
    atomic_store(&l->finished, count);
    if (count < atomic_load(&l->wanted)) return;
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->wanted, UINT64_MAX); /* who wants more says so again */
    pthread_cond_broadcast(&l->done);
    pthread_mutex_unlock(&l->lock);
}

static void *lane_thread(void *arg)
{
    struct zf_lane *l = arg;
    omp_set_num_threads(1); /* the matrix library's own threads would fight with the pool's */
    for (uint64_t next = 0; await_work(l, next);) {
        perform(l, &l->ring[next % RING]);
        finish(l, ++next);
    }
    return NULL;
}

enum zf_status zf_host_issue(struct zf_lane *l, const struct zf_host_work *work, const void *args, size_t size)
{
    if (l->synchronous) {
        struct slot s = {.work = work, .phase = l->phase};
        memcpy(&s.args, args, size);
        omp_set_num_threads(1);
        perform(l, &s);
        if (!atomic_load(&l->broken)) return ZF_OK;
        pthread_mutex_lock(&l->lock);
        enum zf_status status = l->error.code;
        pthread_mutex_unlock(&l->lock);
        return status;
    }
    uint64_t n = atomic_load(&l->issued);
    if (n - atomic_load(&l->finished) == RING) await_finished(l, n - RING / 2); /* one wake for half a ring */
    struct slot *s = &l->ring[n % RING];
    s->work = work;
    s->phase = l->phase;
    memcpy(&s->args, args, size);
    atomic_store(&l->issued, n + 1);
    wake_lane(l);
    return ZF_OK;
}

enum zf_status zf_host_lane_sync(struct zf_lane *l, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    if (!l->synchronous) await_finished(l, atomic_load(&l->issued));
    pthread_mutex_lock(&l->lock);
    if (atomic_load(&l->broken)) {
        *e = l->error;
        s = e->code;
        atomic_store(&l->broken, false);
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

enum zf_status zf_host_lane_failed(struct zf_lane *l, struct zf_err *e)
{
    if (!atomic_load(&l->broken)) return ZF_OK;
    pthread_mutex_lock(&l->lock);
    *e = l->error;
    pthread_mutex_unlock(&l->lock);
    return e->code;
}

double zf_host_lane_busy(struct zf_lane *l)
{
    return zf_host_account_busy(&l->account);
}

double zf_host_lane_waited(struct zf_lane *l)
{
    return zf_host_account_waited(&l->account);
}

enum zf_status zf_host_lane_watch(struct zf_lane *l, size_t room, struct zf_err *e)
{
    return zf_host_account_watch(&l->account, room, e);
}

size_t zf_host_lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped)
{
    return zf_host_account_take(&l->account, out, room, dropped);
}

void zf_host_lane_phase(struct zf_lane *l, enum zf_phase phase)
{
    l->phase = phase;
}

size_t zf_host_lane_profile(struct zf_lane *l, struct zf_profile_row *out, size_t room)
{
    return zf_host_account_rows(&l->account, out, room);
}

static void destroy(struct zf_lane *l)
{
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->arrived);
    pthread_mutex_destroy(&l->lock);
    zf_host_account_free(&l->account);
    zf_host_free(&l->host->head, l->scratch);
    free(l);
}

enum zf_status zf_host_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e)
{
    struct zf_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return zf_fail_memory(e, "a lane");
    l->host = (struct zf_host *)d;
    l->synchronous = l->host->synchronous;
    l->number = atomic_fetch_add(&l->host->lanes, 1);
    atomic_store(&l->wanted, UINT64_MAX);
    pthread_mutex_init(&l->lock, NULL);
    zf_host_account_init(&l->account);
    pthread_cond_init(&l->arrived, NULL);
    pthread_cond_init(&l->done, NULL);
    if (!l->synchronous) {
        if (zf_thread_start(&l->thread, lane_thread, l)) {
            destroy(l);
            return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread for the lane %s", name);
        }
        char short_name[16]; /* the system's limit */
        snprintf(short_name, sizeof short_name, "%s", name);
        pthread_setname_np(l->thread, short_name);
        bool works = zf_host_half(l->host) || !strcmp(name, "compute");
        if (works && l->host->processor >= 0) zf_thread_pin(l->thread, l->host->processor); /* else the system places it */
    }
    *out = l;
    return ZF_OK;
}

void zf_host_lane_free(struct zf_lane *l)
{
    if (!l) return;
    if (!l->synchronous) {
        atomic_store(&l->quit, true); /* after what was issued */
        wake_lane(l);
        pthread_join(l->thread, NULL);
    }
    destroy(l);
}
