/* Jobs are announced by a generation counter. Workers spin shortly, then sleep; so a chain of small jobs costs no system
 * call, and an idle pool no processor. */
#include "core/base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

struct zf_pool {
    int threads;
    pthread_t *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    void (*task)(void *, size_t);
    void *ctx;
    size_t tasks;
    atomic_size_t next;
    atomic_int busy;         /* workers that have not yet finished the present job */
    atomic_ulong generation; /* changes with each job */
    atomic_bool quit;
};

static void work(struct zf_pool *p)
{
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->tasks) return;
        p->task(p->ctx, i);
    }
}

static void *worker(void *arg)
{
    struct zf_pool *p = arg;
    unsigned long seen = 0;
#ifdef _OPENMP
    omp_set_num_threads(1); /* a library's own threads would fight with ours and change sums */
#endif
    for (;;) {
        for (int spin = 0; spin < 2000 && atomic_load(&p->generation) == seen; spin++) __builtin_ia32_pause();
        if (atomic_load(&p->generation) == seen) {
            pthread_mutex_lock(&p->lock);
            while (atomic_load(&p->generation) == seen) pthread_cond_wait(&p->wake, &p->lock);
            pthread_mutex_unlock(&p->lock);
        }
        seen = atomic_load(&p->generation);
        if (atomic_load(&p->quit)) return NULL;
        work(p);
        atomic_fetch_sub(&p->busy, 1);
    }
}

static void announce(struct zf_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->generation, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

int zf_thread_start(pthread_t *out, void *(*body)(void *), void *arg)
{
    pthread_attr_t a;
    int s = pthread_attr_init(&a);
    if (s) return s;
    s = pthread_attr_setstacksize(&a, (size_t)4 << 20);
    if (!s) s = pthread_create(out, &a, body, arg);
    pthread_attr_destroy(&a);
    return s;
}

int zf_thread_pin(pthread_t thread, int processor)
{
    cpu_set_t *set = processor >= 0 ? CPU_ALLOC((size_t)processor + 1) : NULL;
    if (!set) return processor < 0 ? EINVAL : ENOMEM;
    size_t size = CPU_ALLOC_SIZE((size_t)processor + 1);
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)processor, size, set);
    int s = pthread_setaffinity_np(thread, size, set);
    CPU_FREE(set);
    return s;
}

int zf_pool_pin(struct zf_pool *p, const int *processor)
{
    enum { ROOM = 8192 };
    cpu_set_t *before = CPU_ALLOC(ROOM);
    size_t size = CPU_ALLOC_SIZE(ROOM);
    int s = before ? pthread_getaffinity_np(pthread_self(), size, before) : ENOMEM, pinned = 1;
    while (!s && pinned < p->threads) {
        s = zf_thread_pin(p->workers[pinned], processor[pinned]);
        pinned += !s;
    }
    for (int i = 1; s && i < pinned; i++) pthread_setaffinity_np(p->workers[i], size, before);
    if (before) CPU_FREE(before);
    return s;
}

enum zf_status zf_pool_new(struct zf_pool **out, int threads, struct zf_err *e)
{
    struct zf_pool *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p || !(p->workers = calloc((size_t)threads, sizeof *p->workers))) {
        free(p);
        return zf_fail_memory(e, "the worker pool");
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (p->threads = 1; p->threads < threads; p->threads++)
        if (zf_thread_start(&p->workers[p->threads], worker, p)) {
            zf_pool_free(p);
            return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread (wanted %d); set threads lower", threads);
        }
    *out = p;
    return ZF_OK;
}

void zf_pool_free(struct zf_pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, true);
    announce(p);
    for (int i = 1; i < p->threads; i++) pthread_join(p->workers[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p->workers);
    free(p);
}

int zf_pool_threads(const struct zf_pool *p)
{
    return p->threads;
}

void zf_pool_run(struct zf_pool *p, size_t tasks, void (*task)(void *, size_t), void *ctx)
{
    p->task = task;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store(&p->next, 0);
    if (p->threads == 1 || tasks < 2) {
        work(p);
        return;
    }
    atomic_store(&p->busy, p->threads - 1);
    announce(p);
    work(p);
    for (int spin = 0; atomic_load(&p->busy); spin++)
        if (spin < 4000)
            __builtin_ia32_pause();
        else
            sched_yield();
}
