/* See queue.h. */
#include "kernels/queue.h"

#include "core/base/pool.h"
#include "core/base/rng.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RING = ZF_QUEUE_RING, SPINS = 1000 };

/* By the seed a lane is never held up, now and then for a little or for long, often for a little, or seldom for very long: so that lanes
 * overtake each other in every way, by one piece of work or by a whole step's. */
static void hold_up(struct zf_queue *q)
{
    static const struct {
        uint64_t of, little, much; /* one in so many is held up; nanoseconds at most, for every fourth of them */
    } tempers[] = {{0, 0, 0}, {16, 400000, 400000}, {6, 60000, 60000}, {64, 400000, 4000000}};
    struct zf_u32x4 draw = zf_philox(q->jitter, q->number, q->held++);
    uint32_t temper = zf_philox(q->jitter, q->number, UINT64_MAX).v[0] % 4;
    if (!tempers[temper].of || draw.v[0] % tempers[temper].of) return;
    struct timespec pause = {.tv_nsec = (long)(draw.v[1] % (draw.v[2] % 4 ? tempers[temper].little : tempers[temper].much))};
    nanosleep(&pause, NULL);
}

static void perform(struct zf_queue *q, const struct zf_slot *s)
{
    struct zf_err e;
    if (q->jitter) hold_up(q);
    if (atomic_load(&q->broken) && !s->work->always) return;
    if (q->type->perform(q->lane, s, &e)) zf_queue_fail(q, &e);
}

void zf_queue_fail(struct zf_queue *q, const struct zf_err *e)
{
    pthread_mutex_lock(&q->lock);
    if (!atomic_load(&q->broken)) q->error = *e;
    atomic_store(&q->broken, true);
    pthread_mutex_unlock(&q->lock);
}

/* The next piece of work is there; false: there will be none. */
static bool await_work(struct zf_queue *q, uint64_t next)
{
    for (int spin = 0; spin < SPINS && atomic_load(&q->issued) == next; spin++) __builtin_ia32_pause();
    if (atomic_load(&q->issued) != next) return true;
    if (q->type->idle) q->type->idle(q->lane);
    pthread_mutex_lock(&q->lock);
    atomic_store(&q->sleeps, true);
    while (atomic_load(&q->issued) == next && !atomic_load(&q->quit)) pthread_cond_wait(&q->arrived, &q->lock);
    atomic_store(&q->sleeps, false);
    pthread_mutex_unlock(&q->lock);
    return atomic_load(&q->issued) != next;
}

static void wake(struct zf_queue *q)
{
    if (!atomic_load(&q->sleeps)) return;
    pthread_mutex_lock(&q->lock);
    pthread_cond_signal(&q->arrived);
    pthread_mutex_unlock(&q->lock);
}

/* Until `count` pieces of work are finished. */
static void await_finished(struct zf_queue *q, uint64_t count)
{
    for (int spin = 0; spin < SPINS && atomic_load(&q->finished) < count; spin++) __builtin_ia32_pause();
    if (atomic_load(&q->finished) >= count) return;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        if (atomic_load(&q->wanted) > count) atomic_store(&q->wanted, count);
        if (atomic_load(&q->finished) >= count) break;
        pthread_cond_wait(&q->done, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

static void finish(struct zf_queue *q, uint64_t count)
{
    atomic_store(&q->finished, count);
    if (count < atomic_load(&q->wanted)) return;
    pthread_mutex_lock(&q->lock);
    atomic_store(&q->wanted, UINT64_MAX); /* who wants more says so again */
    pthread_cond_broadcast(&q->done);
    pthread_mutex_unlock(&q->lock);
}

static void *work(void *arg)
{
    struct zf_queue *q = arg;
    q->type->begin(q->lane);
    for (uint64_t next = 0; await_work(q, next);) {
        perform(q, &q->ring[next % RING]);
        finish(q, ++next);
    }
    return NULL;
}

enum zf_status zf_queue_issue(struct zf_queue *q, const struct zf_work *what, const void *args, size_t size)
{
    if (q->synchronous) {
        struct zf_err ignored;
        struct zf_slot s = {.work = what, .phase = q->phase};
        memcpy(&s.args, args, size);
        q->type->begin(q->lane);
        perform(q, &s);
        return zf_queue_failed(q, &ignored);
    }
    uint64_t n = atomic_load(&q->issued);
    if (n - atomic_load(&q->finished) == RING) await_finished(q, n - RING / 2); /* one wake for half a ring */
    struct zf_slot *s = &q->ring[n % RING];
    s->work = what;
    s->phase = q->phase;
    memcpy(&s->args, args, size);
    atomic_store(&q->issued, n + 1);
    wake(q);
    return ZF_OK;
}

static enum zf_status run_fail(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e)
{
    (void)l;
    return zf_fail(e, a->fail.code, NULL, "%s", a->fail.message);
}

enum zf_status zf_queue_refuse(struct zf_queue *q, const char *op, const char *wrong)
{
    static const struct zf_work fail = {.run = run_fail};
    struct zf_fail_args a = {.code = ZF_USAGE};
    snprintf(a.message, sizeof a.message, "%s: %s", op, wrong);
    zf_queue_issue(q, &fail, &a, sizeof a);
    return ZF_USAGE;
}

void zf_queue_drain(struct zf_queue *q)
{
    if (!q->synchronous) await_finished(q, atomic_load(&q->issued));
}

enum zf_status zf_queue_take_error(struct zf_queue *q, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    pthread_mutex_lock(&q->lock);
    if (atomic_load(&q->broken)) {
        *e = q->error;
        s = e->code;
        atomic_store(&q->broken, false);
    }
    pthread_mutex_unlock(&q->lock);
    return s;
}

enum zf_status zf_queue_failed(struct zf_queue *q, struct zf_err *e)
{
    if (!atomic_load(&q->broken)) return ZF_OK;
    pthread_mutex_lock(&q->lock);
    *e = q->error;
    pthread_mutex_unlock(&q->lock);
    return e->code;
}

static void destroy(struct zf_queue *q)
{
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->arrived);
    pthread_mutex_destroy(&q->lock);
}

enum zf_status zf_queue_open(struct zf_queue *q, const struct zf_queue_options *o, struct zf_err *e)
{
    q->type = o->type;
    q->lane = o->lane;
    q->synchronous = o->synchronous;
    q->jitter = o->jitter;
    q->number = o->number;
    atomic_store(&q->wanted, UINT64_MAX);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->arrived, NULL);
    pthread_cond_init(&q->done, NULL);
    if (q->synchronous) return ZF_OK;
    if (zf_thread_start(&q->thread, work, q)) {
        destroy(q);
        return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread for the lane %s", o->name);
    }
    char short_name[16]; /* the system's limit */
    snprintf(short_name, sizeof short_name, "%s", o->name);
    pthread_setname_np(q->thread, short_name);
    return ZF_OK;
}

void zf_queue_close(struct zf_queue *q)
{
    if (!q->synchronous) {
        atomic_store(&q->quit, true); /* after what was issued */
        wake(q);
        pthread_join(q->thread, NULL);
    }
    destroy(q);
}
