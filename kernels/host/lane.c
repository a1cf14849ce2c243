/* Lanes: a thread each, with a bounded ring of work. The issuer copies arguments in; the lane's thread takes them out in order, and
 * shares out kernels among itself and the device's pool. A full ring makes the issuer wait. After an error a lane does nothing but
 * events, until lane_sync has told of it. A `synchronous` device has no threads: work is done inside the call that issues it. */
#include "kernels/host/host.h"

#include "core/base/clock.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 256 };

struct slot {
    const struct zf_host_work *work;
    union zf_host_args args;
};

struct zf_lane {
    struct zf_host *host;
    pthread_t thread;
    bool synchronous;
    double waited; /* for the pool, by the work being done; the lane's thread only */

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t arrived, done;
    uint64_t issued, finished;
    bool quit;
    double busy;
    struct zf_err error; /* the first since the last lane_sync */

    struct slot ring[RING]; /* [finished, issued): the lane's thread reads, slots beyond are the issuer's */
};

struct zf_host *zf_host_of(struct zf_lane *l)
{
    return l->host;
}

void zf_host_parallel(struct zf_lane *l, size_t tasks, void (*task)(void *ctx, size_t index), void *ctx)
{
    struct zf_host *h = l->host;
    if (tasks < 2 || zf_pool_threads(h->pool) == 1) {
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

static void perform(struct zf_lane *l, const struct slot *s)
{
    pthread_mutex_lock(&l->lock);
    bool broken = l->error.code != ZF_OK;
    pthread_mutex_unlock(&l->lock);
    if (broken && !s->work->always) return;

    struct zf_err e;
    double from = zf_clock();
    l->waited = 0;
    enum zf_status status = s->work->run(l, &s->args, &e);
    double spent = s->work->always ? 0 : zf_clock() - from - l->waited; /* waiting for an event is no work */
    pthread_mutex_lock(&l->lock);
    l->busy += spent;
    if (status && !l->error.code) l->error = e;
    pthread_mutex_unlock(&l->lock);
}

static void *lane_thread(void *arg)
{
    struct zf_lane *l = arg;
    omp_set_num_threads(1); /* the matrix library's own threads would fight with the pool's */
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->finished == l->issued && !l->quit) pthread_cond_wait(&l->arrived, &l->lock);
        if (l->finished == l->issued) break;
        const struct slot *s = &l->ring[l->finished % RING];
        pthread_mutex_unlock(&l->lock);
        perform(l, s);
        pthread_mutex_lock(&l->lock);
        l->finished++;
        pthread_cond_broadcast(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

enum zf_status zf_host_issue(struct zf_lane *l, const struct zf_host_work *work, const void *args, size_t size)
{
    if (l->synchronous) {
        struct slot s = {.work = work};
        memcpy(&s.args, args, size);
        omp_set_num_threads(1);
        perform(l, &s);
        pthread_mutex_lock(&l->lock);
        enum zf_status status = l->error.code;
        pthread_mutex_unlock(&l->lock);
        return status;
    }
    pthread_mutex_lock(&l->lock);
    while (l->issued - l->finished == RING) pthread_cond_wait(&l->done, &l->lock);
    struct slot *s = &l->ring[l->issued % RING];
    s->work = work;
    memcpy(&s->args, args, size);
    l->issued++;
    pthread_cond_signal(&l->arrived);
    pthread_mutex_unlock(&l->lock);
    return ZF_OK;
}

enum zf_status zf_host_lane_sync(struct zf_lane *l, struct zf_err *e)
{
    pthread_mutex_lock(&l->lock);
    for (uint64_t last = l->issued; l->finished < last;) pthread_cond_wait(&l->done, &l->lock);
    enum zf_status s = l->error.code;
    if (s) *e = l->error;
    l->error.code = ZF_OK;
    pthread_mutex_unlock(&l->lock);
    return s;
}

double zf_host_lane_busy(struct zf_lane *l)
{
    pthread_mutex_lock(&l->lock);
    double busy = l->busy;
    pthread_mutex_unlock(&l->lock);
    return busy;
}

static void destroy(struct zf_lane *l)
{
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->arrived);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

enum zf_status zf_host_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e)
{
    struct zf_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return zf_fail_memory(e, "a lane");
    l->host = (struct zf_host *)d;
    l->synchronous = l->host->synchronous;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->arrived, NULL);
    pthread_cond_init(&l->done, NULL);
    if (!l->synchronous) {
        if (pthread_create(&l->thread, NULL, lane_thread, l)) {
            destroy(l);
            return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread for the lane %s", name);
        }
        char short_name[16]; /* the system's limit */
        snprintf(short_name, sizeof short_name, "%s", name);
        pthread_setname_np(l->thread, short_name);
    }
    *out = l;
    return ZF_OK;
}

void zf_host_lane_free(struct zf_lane *l)
{
    if (!l) return;
    if (!l->synchronous) {
        pthread_mutex_lock(&l->lock);
        l->quit = true; /* after what was issued */
        pthread_cond_signal(&l->arrived);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    destroy(l);
}
