/* What the files of the host backend share. Nobody outside kernels/host includes it.
 *
 * Threads: the pool belongs to the device and does one job at a time (pool_lock); the thread of the lane that brings the job works on it
 * too. */
#ifndef ZF_HOST_HOST_H
#define ZF_HOST_HOST_H

#include "core/base/pool.h"
#include "kernels/cores.h"
#include "kernels/host/path.h"
#include "kernels/queue.h"

#include <pthread.h>
#include <stdatomic.h>

extern const struct zf_device_type zf_host_device; /* host.c */

struct zf_host_block {
    void *data;
    size_t bytes;  /* asked for: what the live table counts */
    size_t mapped; /* 0: from the heap */
    enum zf_mem_tag tag;
};

struct zf_host {
    struct zf_device head;
    struct zf_pool *pool;
    pthread_mutex_t pool_lock;
    struct zf_host_path kernels; /* of the path, as this processor runs them */
    const struct zf_host_path *path;
    struct zf_host_products *products;
    bool synchronous;
    uint64_t jitter;
    _Atomic uint64_t lanes; /* made so far */
    enum zf_device_part part;
    int shared;             /* threads that work while the CPU half needs its own; the others of the pool come after them */
    int core[ZF_CORES_MAX]; /* of zf_cores(), by thread of the pool */
    const char *loose;      /* why the pool is not pinned; NULL: it is */
    int processor;          /* for the thread of the lane that brings the pool its jobs; -1: any */

    pthread_mutex_t memory_lock; /* over the rest */
    struct zf_host_block *blocks;
    size_t block_count, block_room;
    size_t bytes[ZF_MEM_TAGS], total, peak;
};

static inline bool zf_host_half(const struct zf_host *h)
{
    return h->part == ZF_PART_CPU_HALF || h->part == ZF_PART_BESIDE_GPU;
}

/* lane.c */
enum zf_status zf_host_lane_new(struct zf_device *d, const char *name, struct zf_lane **out, struct zf_err *e);
void zf_host_lane_free(struct zf_lane *l);
enum zf_status zf_host_lane_sync(struct zf_lane *l, struct zf_err *e);
enum zf_status zf_host_lane_failed(struct zf_lane *l, struct zf_err *e);
double zf_host_lane_busy(struct zf_lane *l);
double zf_host_lane_waited(struct zf_lane *l);
enum zf_status zf_host_lane_watch(struct zf_lane *l, size_t room, struct zf_err *e);
size_t zf_host_lane_take(struct zf_lane *l, struct zf_span *out, size_t room, uint64_t *dropped);
struct zf_host *zf_host_of(struct zf_lane *l);
struct zf_queue *zf_host_queue(struct zf_lane *l);
/* Copies `size` bytes of args behind what the lane has to do. A full lane makes the caller wait. */
enum zf_status zf_host_issue(struct zf_lane *l, const struct zf_work *work, const void *args, size_t size);
/* From inside work: tasks 0..n-1, on the pool if there is more than one. */
void zf_host_parallel(struct zf_lane *l, size_t tasks, void (*task)(void *ctx, size_t index), void *ctx);
/* From inside work: memory of any content, until the lane's next work. NULL: there is none. */
void *zf_host_scratch(struct zf_lane *l, size_t bytes);
void zf_host_run_kernel(struct zf_lane *l, const struct zf_host_kernel *k, const void *args);

/* Which phase the work that is issued from here on belongs to; the account of what was done. */
void zf_host_lane_phase(struct zf_lane *l, enum zf_phase phase);
size_t zf_host_lane_profile(struct zf_lane *l, struct zf_profile_row *out, size_t room);

/* event.c */
enum zf_status zf_host_event_new(struct zf_device *d, struct zf_event **out, struct zf_err *e);
void zf_host_event_free(struct zf_event *v);
enum zf_status zf_host_event_record(struct zf_lane *l, struct zf_event *v);
enum zf_status zf_host_event_wait(struct zf_lane *l, struct zf_event *v);
enum zf_status zf_host_event_sync(struct zf_event *v, struct zf_err *e);
uint64_t zf_host_event_hold(struct zf_event *v);
void zf_host_event_await(struct zf_event *v, uint64_t ticket);

/* issue.c: checks, then zf_host_issue */
extern const struct zf_ops zf_host_ops;
enum zf_status zf_host_copy(struct zf_lane *l, void *to, const void *from, size_t bytes);
enum zf_status zf_host_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count);
enum zf_status zf_host_fill(struct zf_lane *l, void *to, int byte, size_t bytes);
enum zf_status zf_host_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx);

/* memory.c */
enum zf_status zf_host_alloc(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, size_t bytes, void **out,
                             struct zf_err *e);
void zf_host_free(struct zf_device *d, void *p);

/* matmul.c; library: its name, version and what it dispatches to */
enum zf_status zf_host_matmul_run(struct zf_lane *l, const union zf_work_args *a, struct zf_err *e);
void zf_host_matmul_library(char *text, size_t size, bool *bf16);

/* matmul_bf16.c: what products of bf16 keep (primitives, scratch memory), one a device; a product: 0 or a status of oneDNN */
enum zf_status zf_host_products_new(struct zf_host_products **out, struct zf_err *e);
void zf_host_products_free(struct zf_host_products *p); /* NULL is fine */
int zf_host_matmul_bf16(struct zf_lane *l, const struct zf_matmul_args *a);

#endif
