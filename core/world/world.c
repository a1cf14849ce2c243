/* See world.h. */
#include "core/world/world_impl.h"

#include "core/base/clock.h"
#include "core/base/pool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double never = 1e9, last_seconds = 10, look = 0.2; /* seconds */

/* ---- begin ---- */

static void release(struct zf_world *w)
{
    for (int r = 0; r < w->launch.ranks; r++) {
        struct zf_peer *p = &w->peer[r];
        if (p->fd >= 0) close(p->fd);
        if (p->bulk >= 0) close(p->bulk);
        for (struct zf_message *m = p->first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        free(p->in);
        json_decref(p->hello);
        pthread_mutex_destroy(&p->sending);
    }
    for (size_t i = 0; i < w->waitings; i++) close(w->waiting[i].fd);
    if (w->listener >= 0) close(w->listener);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0) close(w->wake[i]);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->hooks);
    pthread_cond_destroy(&w->moved);
    free(w->waiting);
    free(w->peer);
    free(w->run);
    json_decref(w->hello);
    free(w);
}

static struct zf_world *new_world(const struct zf_world_options *o)
{
    struct zf_world *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->hooks, NULL);
    pthread_cond_init(&w->moved, &clock);
    pthread_condattr_destroy(&clock);
    w->launch = *o->launch;
    w->stop = o->stop;
    w->hello = json_incref(o->hello);
    w->listener = w->wake[0] = w->wake[1] = w->slow_told = -1;
    snprintf(w->version, sizeof w->version, "%s", o->version);
    w->own_since = zf_clock();
    w->run = strdup(o->run);
    w->peer = calloc((size_t)w->launch.ranks, sizeof *w->peer);
    if (!w->peer) w->launch.ranks = 0;
    for (int r = 0; r < w->launch.ranks; r++) {
        struct zf_peer *p = &w->peer[r];
        p->fd = p->bulk = -1;
        p->last = &p->first;
        pthread_mutex_init(&p->sending, NULL);
    }
    if (w->run && w->peer && !pipe2(w->wake, O_CLOEXEC | O_NONBLOCK)) return w;
    release(w);
    return NULL;
}

/* Signals are for the main thread. */
static enum zf_status start_thread(struct zf_world *w, struct zf_err *e)
{
    sigset_t all, before;
    for (int r = 0; r < w->launch.ranks; r++) w->peer[r].heard = zf_clock();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int bad = zf_thread_start(&w->thread, zf_world_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (bad) return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread for the other ranks");
    pthread_setname_np(w->thread, "ranks");
    w->runs = true;
    return ZF_OK;
}

enum zf_status zf_world_open(struct zf_world **out, const struct zf_world_options *o, struct zf_err *e)
{
    struct zf_world *w = new_world(o);
    *out = NULL;
    if (!w) return zf_fail_memory(e, "the other ranks");
    zf_meet_self(w);
    enum zf_status s = w->launch.rank ? zf_meet_find(w, e) : zf_meet_listen(w, e);
    if (!s) s = start_thread(w, e);
    if (s) {
        zf_meet_remove(w);
        release(w);
    } else {
        *out = w;
    }
    return s;
}

/* ---- facts ---- */

int zf_world_rank(const struct zf_world *w)
{
    return w ? w->launch.rank : 0;
}

int zf_world_ranks(const struct zf_world *w)
{
    return w ? w->launch.ranks : 1;
}

struct zf_world_place zf_world_place(const struct zf_world *w)
{
    return w && w->where.ranks ? w->where : (struct zf_world_place){.ranks = 1, .shares = 1};
}

const json_t *zf_world_hello(const struct zf_world *w, int rank)
{
    return w->peer[rank].hello;
}

const char *zf_world_name(const struct zf_world *w, int rank, char *text, size_t room)
{
    const struct zf_peer *p = &w->peer[rank];
    if (p->pid)
        snprintf(text, room, "rank %d (pid %lld on host %s)", rank, p->pid, p->host);
    else
        snprintf(text, room, "rank %d", rank);
    return text;
}

void zf_world_doing(struct zf_world *w, uint64_t step, const char *what)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    if (w->own.step != step || strcmp(w->own.doing, what)) w->own_since = zf_clock();
    w->own.step = step;
    snprintf(w->own.doing, sizeof w->own.doing, "%s", what);
    pthread_mutex_unlock(&w->lock);
}

enum zf_status zf_world_check(const struct zf_world *w, struct zf_err *e)
{
    struct zf_world *all = (struct zf_world *)(uintptr_t)w;
    if (!w) return ZF_OK;
    pthread_mutex_lock(&all->lock);
    struct zf_fate f = w->fate;
    pthread_mutex_unlock(&all->lock);
    return f.text[0] ? zf_fail(e, f.code, NULL, "%s", f.text) : ZF_OK;
}

bool zf_world_is_broken(const struct zf_world *w)
{
    struct zf_err ignored;
    return zf_world_check(w, &ignored) != ZF_OK;
}

void zf_world_fail(struct zf_world *w, enum zf_status code, const char *text)
{
    if (w) zf_world_set_fate(w, code, -1, w->launch.rank, text[0] ? text : zf_status_text(code), true);
}

void zf_world_when_lost(struct zf_world *w, void (*lost)(void *ctx, int rank, const char *text),
                        void (*last)(void *ctx, enum zf_status code, const char *text), void *ctx)
{
    if (!w) return;
    pthread_mutex_lock(&w->hooks);
    w->lost = lost;
    w->last = last;
    w->lost_ctx = ctx;
    pthread_mutex_unlock(&w->hooks);
}

void zf_world_tick(struct zf_world *w, enum zf_status (*tick)(void *ctx, struct zf_err *e), void *ctx)
{
    if (!w) return;
    w->tick = tick;
    w->tick_ctx = ctx;
}

/* ---- messages ---- */

/* A moment, or until something has happened. The lock is held; it is not while `tick` looks around. */
static enum zf_status wait_a_little(struct zf_world *w, struct zf_err *e)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(look * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->moved, &w->lock, &until);
    pthread_mutex_unlock(&w->lock);
    enum zf_status s = w->tick ? w->tick(w->tick_ctx, e) : ZF_OK;
    if (!s) s = zf_world_check(w, e);
    pthread_mutex_lock(&w->lock);
    return s;
}

/* What became of the connection is told by the world's thread, soon. */
static enum zf_status broken(struct zf_world *w, int rank, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    char name[128];
    double until = zf_clock() + ZF_WORLD_SILENCE + 1;
    pthread_mutex_lock(&w->lock);
    while (!s && !(s = w->fate.text[0] ? ZF_IO : ZF_OK) && zf_clock() < until) {
        struct zf_err ignored;
        s = wait_a_little(w, &ignored);
    }
    pthread_mutex_unlock(&w->lock);
    ZF_TRY(zf_world_check(w, e));
    return zf_fail(e, ZF_IO, NULL, "the connection to %s is broken", zf_world_name(w, rank, name, sizeof name));
}

enum zf_status zf_world_send(struct zf_world *w, int rank, const void *bytes, size_t size, struct zf_err *e)
{
    if (size > ZF_FRAME_MOST) return zf_fail(e, ZF_IO, NULL, "a message of %zu bytes; at most %d are expected", size, ZF_FRAME_MOST);
    return zf_peer_send(w, &w->peer[rank], ZF_FRAME_MESSAGE, bytes, size, never) ? ZF_OK : broken(w, rank, e);
}

enum zf_status zf_world_tell(struct zf_world *w, const void *bytes, size_t size, struct zf_err *e)
{
    for (int r = 1; w && r < w->launch.ranks; r++) ZF_TRY(zf_world_send(w, r, bytes, size, e));
    return ZF_OK;
}

enum zf_status zf_world_receive(struct zf_world *w, int rank, void **bytes, size_t *size, struct zf_err *e)
{
    struct zf_peer *p = &w->peer[rank];
    enum zf_status s = ZF_OK;
    *bytes = NULL;
    pthread_mutex_lock(&w->lock);
    while (!s && !p->first) s = wait_a_little(w, e);
    struct zf_message *m = s ? NULL : p->first;
    if (m && !(p->first = m->next)) p->last = &p->first;
    pthread_mutex_unlock(&w->lock);
    ZF_TRY(s);
    *size = m->size;
    char *copy = malloc(m->size + 1);
    if (copy) memcpy(copy, m->bytes, m->size + 1);
    free(m);
    *bytes = copy;
    return copy ? ZF_OK : zf_fail_memory(e, "a message");
}

bool zf_world_pending(struct zf_world *w, int rank)
{
    pthread_mutex_lock(&w->lock);
    bool is = w->peer[rank].first != NULL;
    pthread_mutex_unlock(&w->lock);
    return is;
}

static enum zf_status receive_exactly(struct zf_world *w, int rank, void *to, size_t bytes, struct zf_err *e)
{
    void *got;
    size_t size;
    char name[128];
    ZF_TRY(zf_world_receive(w, rank, &got, &size, e));
    if (size == bytes) memcpy(to, got, bytes);
    free(got);
    if (size == bytes) return ZF_OK;
    return zf_fail(e, ZF_IO, NULL, "%s has sent %zu bytes where %zu were expected; this is a mistake in the program",
                   zf_world_name(w, rank, name, sizeof name), size, bytes);
}

enum zf_status zf_world_exchange(void *world, const void *own, void *all, size_t bytes, struct zf_err *e)
{
    struct zf_world *w = world;
    size_t n = (size_t)zf_world_ranks(w);
    memcpy((char *)all + (size_t)zf_world_rank(w) * bytes, own, bytes);
    if (n == 1) return ZF_OK;
    if (w->launch.rank) {
        ZF_TRY(zf_world_send(w, 0, own, bytes, e));
        return receive_exactly(w, 0, all, n * bytes, e);
    }
    for (size_t r = 1; r < n; r++) ZF_TRY(receive_exactly(w, (int)r, (char *)all + r * bytes, bytes, e));
    return zf_world_tell(w, all, n * bytes, e);
}

enum zf_status zf_world_share(void *world, void *bytes, size_t size, struct zf_err *e)
{
    struct zf_world *w = world;
    return zf_world_rank(w) ? receive_exactly(w, 0, bytes, size, e) : zf_world_tell(w, bytes, size, e);
}

enum zf_status zf_world_put(struct zf_world *w, int rank, const void *bytes, size_t size, struct zf_err *e)
{
    return zf_link_write(w->peer[rank].bulk, bytes, size, never, w) ? ZF_OK : broken(w, rank, e);
}

enum zf_status zf_world_get(struct zf_world *w, int rank, void *bytes, size_t size, struct zf_err *e)
{
    return zf_link_read(w->peer[rank].bulk, bytes, size, never, w) ? ZF_OK : broken(w, rank, e);
}

/* ---- all are there ---- */

/* "1, 3": those that have not come. */
static int missing(const struct zf_world *w, char *text, size_t room)
{
    int count = 0;
    size_t n = 0;
    *text = 0;
    for (int r = 1; r < w->launch.ranks; r++) {
        if (w->peer[r].come) continue;
        if (n + 16 < room) n += (size_t)snprintf(text + n, room - n, "%s%d", count ? ", " : "", r);
        count++;
    }
    return count;
}

static enum zf_status wait_for_all(struct zf_world *w, struct zf_err *e)
{
    enum { TELL_AFTER = 10 };
    double from = zf_clock();
    char who[200];
    enum zf_status s = ZF_OK;
    bool told = false;
    pthread_mutex_lock(&w->lock);
    for (int left; !s && (left = missing(w, who, sizeof who));) {
        double waited = zf_clock() - from;
        if (waited > ZF_WORLD_COME) {
            s = zf_fail(e, ZF_IO, w->run,
                        "rank%s %s of %d did not come within %d s; are they started (in a batch script: with srun or mpirun before the "
                        "command), and is %s on a disk that all machines share?",
                        left > 1 ? "s" : "", who, w->launch.ranks, ZF_WORLD_COME, w->run);
        } else {
            if (!told && waited > TELL_AFTER)
                fprintf(stderr, "zenflow-console: note: rank 0 waits for rank%s %s of %d to come\n", left > 1 ? "s" : "", who,
                        w->launch.ranks);
            told |= waited > TELL_AFTER;
            s = *w->stop ? zf_fail(e, ZF_STOPPED, w->run, "stopped before all ranks had come") : wait_a_little(w, e);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}

enum zf_status zf_world_join(struct zf_world *w, struct zf_err *e)
{
    if (!w || w->launch.rank) return ZF_OK;
    ZF_TRY(wait_for_all(w, e));
    zf_meet_places(w);
    zf_meet_remove(w);
    json_t *list = zf_meet_list(w);
    enum zf_status s = list ? ZF_OK : zf_fail_memory(e, "the list of ranks");
    for (int r = 1; !s && r < w->launch.ranks; r++)
        if (!zf_peer_json(w, &w->peer[r], ZF_FRAME_WELCOME, list, never)) s = broken(w, r, e);
    json_decref(list);
    return s;
}

/* ---- the end ---- */

/* Waits until `done` says so, or for some seconds. */
static void wait_until(struct zf_world *w, bool (*done)(const struct zf_world *w))
{
    double until = zf_clock() + last_seconds;
    pthread_mutex_lock(&w->lock);
    while (!done(w) && zf_clock() < until) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += 50000000;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->moved, &w->lock, &t);
    }
    pthread_mutex_unlock(&w->lock);
}

/* All who have come have said so; where all are to be told that the start has failed, all have come, too. */
static bool all_are_done(const struct zf_world *w)
{
    for (int r = 1; r < w->launch.ranks; r++) {
        const struct zf_peer *p = &w->peer[r];
        if (!p->bye && !p->lost && (p->hello || w->place)) return false;
    }
    return true;
}

static bool first_is_done(const struct zf_world *w)
{
    return w->peer[0].bye || w->peer[0].lost;
}

void zf_world_close(struct zf_world *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
    if (w->launch.rank) {
        zf_peer_send(w, &w->peer[0], ZF_FRAME_BYE, NULL, 0, 1);
        wait_until(w, first_is_done);
    } else {
        wait_until(w, all_are_done);
        for (int r = 1; r < w->launch.ranks; r++) zf_peer_send(w, &w->peer[r], ZF_FRAME_BYE, NULL, 0, 1);
    }
    pthread_mutex_lock(&w->lock);
    w->finished = true;
    pthread_mutex_unlock(&w->lock);
    zf_world_wake(w);
    if (w->runs) pthread_join(w->thread, NULL);
    zf_meet_remove(w);
    release(w);
}
