/* A job is handed out by a counter of the tasks that nobody has taken yet. Who finds none left looks for more for a moment, then sleeps: a
 * chain of small jobs costs no system call, an idle pool no processor. A job waits only for those who took a task of it, so that a worker
 * that the system does not run holds up nothing. */
#include "core/base/pool.h"

#include "core/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { LOOK_NS = 40000, SPINS = 64 }; /* how long to look for work: longer than the single-threaded work between two jobs mostly takes */

enum { PROCESSORS = 8192 };

struct worker {
    struct zf_pool *pool;
    int number; /* [1, threads) */
    pthread_t thread;
};

struct zf_pool {
    int threads;
    atomic_int used;        /* workers from this number on sleep, whatever there is to do */
    bool crowded;           /* more threads than processors: looking would keep others from working */
    struct worker *workers; /* [threads]; the first is the caller: not used */
    pthread_mutex_t lock;
    pthread_cond_t wake, rest; /* those who may work wait for the one, the others for the other: no wake-up goes to who may not */
    void (*task)(void *, size_t);
    void *ctx;
    size_t tasks;             /* of the job; these three change only when no task is being worked on */
    atomic_size_t left, done; /* not yet taken; finished */
    atomic_int asleep;        /* who sleeps says so, then looks at `left` again; who makes work, the other way round */
    atomic_bool quit;
};

static void work(struct zf_pool *p)
{
    size_t left = atomic_load(&p->left);
    while (left) {
        if (!atomic_compare_exchange_weak(&p->left, &left, left - 1)) continue;
        p->task(p->ctx, p->tasks - left);
        atomic_fetch_add(&p->done, 1);
        left = atomic_load(&p->left);
    }
}

static bool may_work(const struct worker *w)
{
    return w->number < atomic_load(&w->pool->used);
}

static void sleep_for_work(struct worker *w)
{
    struct zf_pool *p = w->pool;
    bool found = false;
    pthread_mutex_lock(&p->lock);
    while (!found && !atomic_load(&p->quit)) {
        if (!may_work(w)) {
            pthread_cond_wait(&p->rest, &p->lock);
            continue;
        }
        atomic_fetch_add(&p->asleep, 1);
        found = atomic_load(&p->left);
        if (!found && !atomic_load(&p->quit)) pthread_cond_wait(&p->wake, &p->lock);
        atomic_fetch_sub(&p->asleep, 1);
    }
    pthread_mutex_unlock(&p->lock);
}

static void look_for_work(struct worker *w)
{
    struct zf_pool *p = w->pool;
    double until = p->crowded || !may_work(w) ? 0 : zf_clock() + LOOK_NS * 1e-9;
    do
        for (int i = 0; i < SPINS; i++) {
            if (atomic_load(&p->left) && may_work(w)) return;
            __builtin_ia32_pause();
        }
    while (zf_clock() < until);
    sleep_for_work(w);
}

static void *worker(void *arg)
{
    struct worker *w = arg;
#ifdef _OPENMP
    omp_set_num_threads(1); /* a library's own threads would fight with ours and change sums */
#endif
    while (!atomic_load(&w->pool->quit)) {
        if (may_work(w)) work(w->pool);
        look_for_work(w);
    }
    return NULL;
}

static void wake(struct zf_pool *p, size_t most)
{
    size_t asleep = (size_t)atomic_load(&p->asleep);
    if (!asleep) return;
    pthread_mutex_lock(&p->lock);
    if (asleep <= most)
        pthread_cond_broadcast(&p->wake);
    else
        while (most--) pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void wake_all(struct zf_pool *p)
{
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_cond_broadcast(&p->rest);
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
    cpu_set_t *before = CPU_ALLOC(PROCESSORS);
    size_t size = CPU_ALLOC_SIZE(PROCESSORS);
    int s = before ? pthread_getaffinity_np(pthread_self(), size, before) : ENOMEM, pinned = 1;
    if (!s) {
        s = zf_thread_pin(pthread_self(), processor[0]);
        pthread_setaffinity_np(pthread_self(), size, before);
    }
    while (!s && pinned < p->threads) {
        s = zf_thread_pin(p->workers[pinned].thread, processor[pinned]);
        pinned += !s;
    }
    for (int i = 1; s && i < pinned; i++) pthread_setaffinity_np(p->workers[i].thread, size, before);
    if (before) CPU_FREE(before);
    return s;
}

/* Processors that the caller may run on; 1 where that cannot be told. */
static int processors(void)
{
    cpu_set_t *set = CPU_ALLOC(PROCESSORS);
    size_t size = CPU_ALLOC_SIZE(PROCESSORS);
    int n = set && !pthread_getaffinity_np(pthread_self(), size, set) ? CPU_COUNT_S(size, set) : 1;
    if (set) CPU_FREE(set);
    return n;
}

enum zf_status zf_pool_new(struct zf_pool **out, int threads, struct zf_err *e)
{
    struct zf_pool *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p || !(p->workers = calloc((size_t)threads, sizeof *p->workers))) {
        free(p);
        return zf_fail_memory(e, "the worker pool");
    }
    p->crowded = threads > processors();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->rest, NULL);
    atomic_store(&p->used, threads);
    for (p->threads = 1; p->threads < threads; p->threads++) {
        struct worker *w = &p->workers[p->threads];
        w->pool = p;
        w->number = p->threads;
        if (!zf_thread_start(&w->thread, worker, w)) continue;
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
    wake_all(p);
    for (int i = 1; i < p->threads; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->rest);
    pthread_cond_destroy(&p->wake);
    free(p->workers);
    free(p);
}

int zf_pool_threads(const struct zf_pool *p)
{
    return p->threads;
}

int zf_pool_used(const struct zf_pool *p)
{
    return atomic_load(&p->used);
}

void zf_pool_use(struct zf_pool *p, int threads)
{
    atomic_store(&p->used, threads < 1 ? 1 : threads < p->threads ? threads : p->threads);
    wake_all(p);
}

void zf_pool_name(struct zf_pool *p, const char *name)
{
    for (int i = 1; i < p->threads; i++) pthread_setname_np(p->workers[i].thread, name);
}

void zf_pool_run(struct zf_pool *p, size_t tasks, void (*task)(void *, size_t), void *ctx)
{
    if (zf_pool_used(p) == 1 || tasks < 2) {
        for (size_t i = 0; i < tasks; i++) task(ctx, i);
        return;
    }
    p->task = task;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store(&p->done, 0);
    atomic_store(&p->left, tasks);
    wake(p, tasks - 1);
    work(p);
    for (int spin = 0; atomic_load(&p->done) < tasks; spin++)
        if (spin < 4000)
            __builtin_ia32_pause();
        else
            sched_yield();
}
