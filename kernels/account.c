/* See account.h. */
#include "kernels/account.h"

#include <stdlib.h>

void zf_account_init(struct zf_account *a)
{
    pthread_mutex_init(&a->lock, NULL);
}

void zf_account_free(struct zf_account *a)
{
    pthread_mutex_destroy(&a->lock);
    free(a->ring);
}

static void keep(struct zf_account *a, const struct zf_span *s) /* locked */
{
    if (!a->room) return;
    if (a->count == a->room) { /* the oldest goes */
        a->first = (a->first + 1) % a->room;
        a->count--;
        a->dropped++;
    }
    a->ring[(a->first + a->count++) % a->room] = *s;
}

void zf_account_work(struct zf_account *a, enum zf_work_kind kind, const struct zf_cost *cost, const struct zf_span *s)
{
    struct zf_usage *u = &a->used[s->phase][kind];
    pthread_mutex_lock(&a->lock);
    a->busy += s->work;
    u->calls++;
    u->seconds += s->work;
    u->flops += cost->flops;
    u->bytes += cost->bytes;
    keep(a, s);
    pthread_mutex_unlock(&a->lock);
}

void zf_account_wait(struct zf_account *a, const struct zf_span *s)
{
    pthread_mutex_lock(&a->lock);
    a->waited += s->end - s->start;
    keep(a, s);
    pthread_mutex_unlock(&a->lock);
}

double zf_account_busy(struct zf_account *a)
{
    pthread_mutex_lock(&a->lock);
    double busy = a->busy;
    pthread_mutex_unlock(&a->lock);
    return busy;
}

double zf_account_waited(struct zf_account *a)
{
    pthread_mutex_lock(&a->lock);
    double waited = a->waited;
    pthread_mutex_unlock(&a->lock);
    return waited;
}

size_t zf_account_rows(struct zf_account *a, struct zf_profile_row *out, size_t room)
{
    size_t n = 0;
    pthread_mutex_lock(&a->lock);
    for (int p = 0; p < ZF_PHASES; p++)
        for (int kind = 0; kind < ZF_WORK_KINDS; kind++) {
            const struct zf_usage *u = &a->used[p][kind];
            if (!u->calls) continue;
            if (n < room)
                out[n] = (struct zf_profile_row){(enum zf_phase)p, zf_work_name((enum zf_work_kind)kind), u->calls, u->seconds, u->flops,
                                                 u->bytes};
            n++;
        }
    pthread_mutex_unlock(&a->lock);
    return n;
}

enum zf_status zf_account_watch(struct zf_account *a, size_t room, struct zf_err *e)
{
    struct zf_span *ring = room ? calloc(room, sizeof *ring) : NULL;
    if (room && !ring) return zf_fail_memory(e, "spans of a lane's time");
    pthread_mutex_lock(&a->lock);
    struct zf_span *old = a->ring;
    a->ring = ring;
    a->room = room;
    a->first = a->count = 0;
    a->dropped = 0;
    pthread_mutex_unlock(&a->lock);
    free(old);
    return ZF_OK;
}

size_t zf_account_take(struct zf_account *a, struct zf_span *out, size_t room, uint64_t *dropped)
{
    pthread_mutex_lock(&a->lock);
    size_t n = a->count < room ? a->count : room;
    for (size_t i = 0; i < n; i++) out[i] = a->ring[(a->first + i) % a->room];
    a->first = n ? (a->first + n) % a->room : 0;
    a->count -= n;
    *dropped = a->dropped;
    a->dropped = 0;
    pthread_mutex_unlock(&a->lock);
    return n;
}
