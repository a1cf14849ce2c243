/* Worker pool: runs the tasks 0..n-1 of a job on `threads` threads, the caller among them.
 * What a task computes may depend on its number only, so results do not depend on the number of threads. */
#ifndef ZF_BASE_POOL_H
#define ZF_BASE_POOL_H

#include "core/base/err.h"
#include <pthread.h>
#include <stddef.h>

/* A thread whose stack does not depend on `ulimit -s`: kernels keep tiles there. 0 or errno. */
int zf_thread_start(pthread_t *out, void *(*body)(void *), void *arg);

/* Keeps a thread on one processor. 0 or errno. */
int zf_thread_pin(pthread_t thread, int processor);

struct zf_pool;

enum zf_status zf_pool_new(struct zf_pool **out, int threads, struct zf_err *e); /* threads >= 1, the caller included */
void zf_pool_free(struct zf_pool *p);                                            /* NULL is fine */
int zf_pool_threads(const struct zf_pool *p);

/* The first `threads` of them work, the others sleep, until said otherwise; all at first. From any thread, also while a job runs. */
void zf_pool_use(struct zf_pool *p, int threads);
int zf_pool_used(const struct zf_pool *p);

/* What the system calls the workers (top -H), at most 15 bytes. */
void zf_pool_name(struct zf_pool *p, const char *name);

/* Keeps each worker on a processor of its own, [1] to [threads - 1]; the first is for who brings the jobs, and is only tried. All or none:
 * 0 or errno. */
int zf_pool_pin(struct zf_pool *p, const int *processor);

/* Returns when all tasks are done. One job at a time; not to be called from inside a task. */
void zf_pool_run(struct zf_pool *p, size_t tasks, void (*task)(void *ctx, size_t index), void *ctx);

#endif
