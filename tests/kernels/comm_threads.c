#include "comm_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct hub {
    int ranks;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int arrived;
    uint64_t turn;
    bool disagree;
    const struct zf_wire_block **out; /* [ranks] of the exchange that is under way */
    void *told;
};

struct hub_wire {
    struct zf_wire head;
    struct hub *hub;
};

struct hub *hub_new(int ranks)
{
    struct hub *h = calloc(1, sizeof *h);
    h->ranks = ranks;
    h->out = calloc((size_t)ranks, sizeof *h->out);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->moved, NULL);
    return h;
}

int hub_ranks(const struct hub *h)
{
    return h->ranks;
}

void hub_free(struct hub *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->moved);
    free(h->out);
    free(h);
}

/* All ranks are here; false: one of them will not come. */
static bool barrier(struct hub *h, const atomic_bool *aborted)
{
    pthread_mutex_lock(&h->lock);
    uint64_t turn = h->turn;
    if (++h->arrived == h->ranks) {
        h->arrived = 0;
        h->turn++;
        pthread_cond_broadcast(&h->moved);
    }
    while (h->turn == turn && !(aborted && atomic_load(aborted))) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 10000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&h->moved, &h->lock, &until);
    }
    bool all = h->turn != turn;
    pthread_mutex_unlock(&h->lock);
    return all;
}

static enum zf_status exchange(struct zf_wire *w, const struct zf_wire_block *out, const struct zf_wire_block *in,
                               const atomic_bool *aborted, struct zf_err *e)
{
    struct hub *h = ((struct hub_wire *)w)->hub;
    pthread_mutex_lock(&h->lock);
    h->out[w->rank] = out;
    pthread_mutex_unlock(&h->lock);
    if (!barrier(h, aborted)) return zf_fail(e, ZF_IO, NULL, "rank %d need not wait any more", w->rank);
    for (int q = 0; q < w->ranks; q++) {
        if (q == w->rank) continue;
        const struct zf_wire_block *from = &h->out[q][w->rank];
        if (from->size == in[q].size) {
            if (from->size) memcpy(in[q].bytes, from->bytes, from->size);
            continue;
        }
        pthread_mutex_lock(&h->lock);
        h->disagree = true;
        pthread_mutex_unlock(&h->lock);
    }
    if (!barrier(h, aborted)) return zf_fail(e, ZF_IO, NULL, "rank %d need not wait any more", w->rank);
    pthread_mutex_lock(&h->lock);
    bool disagree = h->disagree;
    pthread_mutex_unlock(&h->lock);
    return disagree ? zf_fail(e, ZF_IO, NULL, "ranks disagree on what they exchange") : ZF_OK;
}

static void close_wire(struct zf_wire *w)
{
    free(w);
}

enum zf_status hub_comm(struct zf_comm **out, struct hub *h, int rank, struct zf_device *d, struct zf_err *e)
{
    struct hub_wire *w = calloc(1, sizeof *w);
    *w = (struct hub_wire){{rank, h->ranks, exchange, close_wire}, h};
    return zf_comm_over_wire(out, "threads", d, &w->head, e);
}

enum zf_status hub_tell(void *ctx, void *bytes, size_t size, struct zf_err *e)
{
    const struct hub_rank *r = ctx;
    (void)e;
    if (r->rank == 0) r->hub->told = bytes;
    barrier(r->hub, NULL);
    if (r->rank) memcpy(bytes, r->hub->told, size);
    barrier(r->hub, NULL);
    return ZF_OK;
}

struct thread {
    pthread_t id;
    int rank;
    void (*body)(int rank, void *ctx);
    void *ctx;
};

static void *run(void *arg)
{
    const struct thread *t = arg;
    t->body(t->rank, t->ctx);
    return NULL;
}

void hub_run(int ranks, void (*body)(int rank, void *ctx), void *ctx)
{
    struct thread *t = calloc((size_t)ranks, sizeof *t);
    for (int r = 0; r < ranks; r++) {
        t[r] = (struct thread){.rank = r, .body = body, .ctx = ctx};
        if (pthread_create(&t[r].id, NULL, run, &t[r])) {
            fprintf(stderr, "no thread for rank %d\n", r);
            exit(1);
        }
    }
    for (int r = 0; r < ranks; r++) pthread_join(t[r].id, NULL);
    free(t);
}
