/* Rows -> micro-batches, one thread ahead of the consumer.
 *
 * A ring of ZF_LOADER_DEPTH micro-batches, all allocated at the start. Three counters order it: published by the thread, taken by the
 * consumer, released by the consumer; slot = counter % depth. A slot between `released` and `published` belongs to the consumer, the
 * others to the thread, so the contents need no lock. One mutex and one condition guard the counters: thread and consumer never wait both,
 * for the ring is not full and empty at once. */
#include "core/data/loader.h"

#include "core/base/clock.h"
#include "core/base/pool.h"
#include "kernels/comm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 128 }; /* rows whose places are read at once, where they lie side by side */

struct zf_loader {
    struct zf_loader_options o;
    struct zf_order order; /* o.order points here, or is NULL */
    struct zf_load ring[ZF_LOADER_DEPTH];
    struct zf_row_buffer row; /* the thread's */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t published, taken, released;
    bool over;         /* the thread publishes no more */
    struct zf_err why; /* with `over`: what ended it; code ZF_OK: the last row */
    double cpu;        /* seconds the thread has worked */
    atomic_bool quit;
};

static uint64_t row_at(const struct zf_loader *l, uint64_t position)
{
    return l->o.order ? zf_order_row(l->o.order, position) : position;
}

/* Tokens of a whole step, before any of its rows is read: the loss is scaled by them from its first micro-batch on. */
static enum zf_status count_step(const struct zf_loader *l, struct zf_load *step, struct zf_err *e)
{
    struct zf_row_place places[PLACES];
    size_t most = l->o.order ? 1 : PLACES;
    for (uint64_t left = step->last - step->first + 1; left && !atomic_load(&l->quit);) {
        size_t n = left < most ? (size_t)left : most;
        ZF_TRY(zf_dataset_places(l->o.data, row_at(l, step->last + 1 - left), n, places, e));
        for (size_t i = 0; i < n; i++) {
            step->tokens += places[i].length;
            step->label_tokens += places[i].label_tokens;
        }
        left -= n;
    }
    return ZF_OK;
}

/* Waits for a slot to fill; NULL: stopped. */
static struct zf_load *claim(struct zf_loader *l)
{
    pthread_mutex_lock(&l->lock);
    while (!atomic_load(&l->quit) && l->published - l->released == ZF_LOADER_DEPTH) pthread_cond_wait(&l->changed, &l->lock);
    struct zf_load *slot = atomic_load(&l->quit) ? NULL : &l->ring[l->published % ZF_LOADER_DEPTH];
    pthread_mutex_unlock(&l->lock);
    return slot;
}

static void publish(struct zf_loader *l)
{
    double cpu = zf_clock_thread();
    pthread_mutex_lock(&l->lock);
    l->published++;
    l->cpu = cpu;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static enum zf_status add_row(struct zf_loader *l, struct zf_batch *b, uint64_t position, struct zf_err *e)
{
    struct zf_row row;
    ZF_TRY(zf_dataset_read(l->o.data, row_at(l, position), &l->row, &row, e));
    if (row.length > b->room_tokens - b->tokens)
        return zf_fail(e, ZF_MEMORY, NULL, "row %llu has %zu tokens, and a micro-batch of %zu has room for %zu more; the data has changed",
                       (unsigned long long)row_at(l, position), row.length, b->room_tokens, b->room_tokens - b->tokens);
    zf_batch_add(b, &row);
    return ZF_OK;
}

/* Which rows of a step are this rank's: the first one, and how many. *idle: none is, and what is given is to change nothing. */
static uint64_t own_rows(const struct zf_loader *l, const struct zf_load *step, uint64_t *count, bool *idle)
{
    size_t rows = (size_t)(step->last - step->first + 1);
    int ranks = l->o.ranks ? l->o.ranks : 1;
    size_t from = zf_share(rows, l->o.rank, ranks);
    *count = zf_share(rows, l->o.rank + 1, ranks) - from;
    *idle = !*count;
    if (*idle) *count = 1;
    return step->first + (*idle ? 0 : from);
}

static void forget_targets(struct zf_batch *b)
{
    for (size_t i = 0; i < b->tokens; i++) b->target[i] = -1;
    b->label_tokens = 0;
}

/* This rank's micro-batches of a step. Returns early when stopped. */
static enum zf_status load_step(struct zf_loader *l, const struct zf_load *step, struct zf_err *e)
{
    uint64_t left, first;
    bool idle;
    first = own_rows(l, step, &left, &idle);
    for (uint64_t at = first; left;) {
        struct zf_load *slot = claim(l);
        if (!slot) return ZF_OK;
        uint64_t n = left < l->o.micro_batch ? left : l->o.micro_batch;
        struct zf_batch batch = slot->batch;
        zf_batch_clear(&batch);
        for (uint64_t i = 0; i < n && !atomic_load(&l->quit); i++) ZF_TRY(add_row(l, &batch, at + i, e));
        if (idle) forget_targets(&batch);
        *slot = *step;
        slot->batch = batch;
        slot->begins = at == first;
        slot->ends = left == n;
        at += n;
        left -= n;
        publish(l);
    }
    return ZF_OK;
}

static void *run(void *arg)
{
    struct zf_loader *l = arg;
    struct zf_err why = {.code = ZF_OK};
    uint64_t at = l->o.first, left = l->o.count;
    enum zf_status s = ZF_OK;
    while (!s && left && !atomic_load(&l->quit)) {
        uint64_t n = left < l->o.step_rows ? left : l->o.step_rows;
        struct zf_load step = {.first = at, .last = at + n - 1};
        s = count_step(l, &step, &why);
        if (!s) s = load_step(l, &step, &why);
        at += n;
        left -= n;
    }
    pthread_mutex_lock(&l->lock);
    l->over = true;
    l->why = why;
    l->why.code = s;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void release(struct zf_loader *l)
{
    for (int i = 0; i < ZF_LOADER_DEPTH; i++) zf_batch_free(&l->ring[i].batch);
    zf_row_buffer_free(&l->row);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

enum zf_status zf_loader_start(struct zf_loader **out, const struct zf_loader_options *o, struct zf_err *e)
{
    *out = NULL;
    if (!o->step_rows || !o->micro_batch || !o->room_tokens || o->count > UINT64_MAX - o->first)
        return zf_fail(e, ZF_USAGE, NULL, "a loader of steps of %llu rows, micro-batches of %zu rows and %zu tokens; expected at least 1",
                       (unsigned long long)o->step_rows, o->micro_batch, o->room_tokens);
    struct zf_loader *l = calloc(1, sizeof *l);
    if (!l) return zf_fail_memory(e, "the loader");
    l->o = *o;
    if (o->order) {
        l->order = *o->order;
        l->o.order = &l->order;
    }
    pthread_mutex_init(&l->lock, NULL); /* with default attributes these two cannot fail here */
    pthread_cond_init(&l->changed, NULL);
    enum zf_status s = ZF_OK;
    for (int i = 0; !s && i < ZF_LOADER_DEPTH; i++) s = zf_batch_init(&l->ring[i].batch, o->room_tokens, e);
    if (!s && zf_thread_start(&l->thread, run, l)) s = zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread to read the data with");
    if (s) {
        release(l);
        return s;
    }
    pthread_setname_np(l->thread, "loader");
    if (o->placed) zf_thread_pin(l->thread, o->processor); /* refused: the system places it */
    *out = l;
    return ZF_OK;
}

enum zf_status zf_loader_next(struct zf_loader *l, const struct zf_load **out, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    pthread_mutex_lock(&l->lock);
    l->released = l->taken;
    pthread_cond_signal(&l->changed);
    while (l->taken == l->published && !l->over) pthread_cond_wait(&l->changed, &l->lock);
    if (l->taken < l->published) {
        *out = &l->ring[l->taken++ % ZF_LOADER_DEPTH];
    } else {
        *out = NULL;
        s = l->why.code;
        if (s) *e = l->why;
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

double zf_loader_cpu(struct zf_loader *l)
{
    if (!l) return 0;
    pthread_mutex_lock(&l->lock);
    double cpu = l->cpu;
    pthread_mutex_unlock(&l->lock);
    return cpu;
}

void zf_loader_stop(struct zf_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->quit, true);
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    release(l);
}

size_t zf_loader_bytes(size_t room_tokens)
{
    /* a token of a micro-batch: id, position, target, and a segment at worst; of the row that is read: as it lies in the file (id, target,
     * a source at worst), and id, target, document */
    const size_t batch = 3 * sizeof(int32_t) + sizeof(struct zf_segment),
                 row = sizeof(uint32_t) + sizeof(int32_t) + sizeof(struct zf_source) + 3 * sizeof(int32_t);
    size_t bytes;
    if (__builtin_mul_overflow(room_tokens, ZF_LOADER_DEPTH * batch + row, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct zf_loader), &bytes))
        return SIZE_MAX;
    return bytes;
}
