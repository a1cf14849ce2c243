/* The world's thread: reads what comes, gives signs of life, looks for those of the others, and ends the process when its main thread does
 * not. It never waits for anybody. See world_impl.h. */
#include "core/world/world_impl.h"

#include "core/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 100, SLOW = 10 /* seconds */ };
static const double gap = 2, greeting = 10; /* seconds: that this thread itself may have been stopped; to say who one is */

const char zf_world_waits[] = "waiting for the other ranks";

void zf_world_wake(struct zf_world *w)
{
    if (write(w->wake[1], "", 1) < 0) return; /* it is full of such bytes */
}

/* ---- what ends all ---- */

/* A rank that is stopped, or hangs where no signal reaches it, would go on when everybody else is gone. */
static void end_process(const struct zf_world *w, int rank)
{
    const struct zf_peer *p = &w->peer[rank];
    const char *machine = json_string_value(json_object_get(p->hello, "machine"));
    char path[64], text[1024] = "";
    if (rank == w->launch.rank || p->pid <= 1 || !machine || strcmp(machine, w->machine)) return;
    snprintf(path, sizeof path, "/proc/%lld/stat", p->pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    char *at = n ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at && strtoll(at, NULL, 10) == p->pid_start) kill((pid_t)p->pid, SIGKILL);
}

void zf_world_set_fate(struct zf_world *w, enum zf_status code, int rank, int from, const char *text, bool quiet)
{
    pthread_mutex_lock(&w->lock);
    bool first = !w->fate.text[0];
    if (first) {
        w->fate = (struct zf_fate){.code = code, .rank = rank, .from = from, .at = zf_clock(), .quiet = quiet};
        snprintf(w->fate.text, sizeof w->fate.text, "%s", text);
    }
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    zf_world_wake(w);
    if (!first) return;
    if (!quiet) fprintf(stderr, "zenflow-console: rank %d: %s; the run ends\n", w->launch.rank, text);
    if (rank >= 0) end_process(w, rank);
    pthread_mutex_lock(&w->hooks);
    if (rank >= 0 && w->lost) w->lost(w->lost_ctx, rank, text);
    pthread_mutex_unlock(&w->hooks);
}

/* Whose connection it was, or whose silence it is. */
static void lose(struct zf_world *w, int rank, const char *how)
{
    const struct zf_peer *p = &w->peer[rank];
    const struct zf_beat *b = &p->beat;
    char name[128], text[600];
    double ago = zf_clock() - p->heard;
    size_t n = (size_t)snprintf(text, sizeof text, "%s %s", zf_world_name(w, rank, name, sizeof name), how);
    if (b->doing[0])
        snprintf(text + n, sizeof text - n, "; at its last sign of life, %.1f s ago, it was at step %" PRIu64 ": %.47s, for %.1f s", ago,
                 b->step, b->doing, b->since);
    pthread_mutex_lock(&w->lock);
    w->peer[rank].lost = true;
    pthread_mutex_unlock(&w->lock);
    zf_world_set_fate(w, ZF_IO, rank, w->launch.rank, text, false);
}

static bool has_fate(struct zf_world *w, struct zf_fate *out)
{
    pthread_mutex_lock(&w->lock);
    *out = w->fate;
    pthread_mutex_unlock(&w->lock);
    return out->text[0];
}

static void spread_fate(struct zf_world *w)
{
    struct zf_fate f;
    if (!has_fate(w, &f)) return;
    json_t *o = json_pack("{si ss si sb}", "code", (int)f.code, "text", f.text, "rank", f.rank, "quiet", f.quiet);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    for (int r = 0; text && r < w->launch.ranks; r++) {
        struct zf_peer *p = &w->peer[r];
        if (p->fd >= 0 && !p->told && f.from != r) p->told = zf_peer_try(p, ZF_FRAME_FATE, text, strlen(text));
    }
    free(text);
    json_decref(o);
}

/* ---- what comes ---- */

static void take_fate(struct zf_world *w, int rank, const char *bytes, size_t size)
{
    json_t *o = json_loadb(bytes, size, 0, NULL);
    const char *text = json_string_value(json_object_get(o, "text"));
    json_int_t code = json_integer_value(json_object_get(o, "code")), lost = json_integer_value(json_object_get(o, "rank"));
    enum zf_status s = code > 0 && code <= ZF_BUSY ? (enum zf_status)code : ZF_IO;
    char name[128], all[1200];
    bool here = w->launch.rank == 0; /* a rank has failed, and rank 0 is to say so */
    snprintf(all, sizeof all, "%s%s%.1000s", here ? zf_world_name(w, rank, name, sizeof name) : "", here ? ": " : "", text ? text : "?");
    zf_world_set_fate(w, s, lost >= 0 && lost < w->launch.ranks ? (int)lost : -1, rank, all, json_is_true(json_object_get(o, "quiet")));
    json_decref(o);
}

static void take_message(struct zf_world *w, struct zf_peer *p, const char *bytes, size_t size)
{
    struct zf_message *m = malloc(sizeof *m + size + 1);
    if (!m) {
        zf_world_set_fate(w, ZF_MEMORY, -1, w->launch.rank, "the system refused memory for a message of another rank", false);
        return;
    }
    m->next = NULL;
    m->size = size;
    memcpy(m->bytes, bytes, size);
    m->bytes[size] = 0;
    pthread_mutex_lock(&w->lock);
    *p->last = m;
    p->last = &m->next;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static void take_bye(struct zf_world *w, struct zf_peer *p)
{
    pthread_mutex_lock(&w->lock);
    p->bye = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static void take_list(struct zf_world *w, const char *bytes, size_t size)
{
    json_t *o = json_loadb(bytes, size, 0, NULL);
    pthread_mutex_lock(&w->lock);
    bool fine = zf_meet_welcome(w, o);
    pthread_mutex_unlock(&w->lock);
    if (!fine) zf_world_set_fate(w, ZF_IO, -1, w->launch.rank, "rank 0 has sent no list of all ranks", false);
    json_decref(o);
}

static void take(struct zf_world *w, int rank, const struct zf_frame_head *head, const char *bytes)
{
    struct zf_peer *p = &w->peer[rank];
    switch (head->kind) {
    case ZF_FRAME_BEAT:
        if (head->size == sizeof p->beat) memcpy(&p->beat, bytes, sizeof p->beat);
        p->beat.doing[sizeof p->beat.doing - 1] = 0;
        break;
    case ZF_FRAME_WELCOME: take_list(w, bytes, head->size); break;
    case ZF_FRAME_FATE: take_fate(w, rank, bytes, head->size); break;
    case ZF_FRAME_SIGNAL: *w->stop = 1; break;
    case ZF_FRAME_BYE: take_bye(w, p); break;
    case ZF_FRAME_MESSAGE: take_message(w, p, bytes, head->size); break;
    default: break;
    }
}

static void hang_up(struct zf_world *w, struct zf_peer *p)
{
    pthread_mutex_lock(&p->sending);
    close(p->fd);
    p->fd = -1;
    pthread_mutex_unlock(&p->sending);
    pthread_mutex_lock(&w->lock);
    p->bye = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

/* false: that was all. */
static bool read_some(struct zf_peer *p)
{
    enum { SOME = 64 << 10 };
    if (p->room - p->used < SOME) {
        char *more = realloc(p->in, p->used + 2 * SOME);
        if (!more) return false;
        p->in = more;
        p->room = p->used + 2 * SOME;
    }
    ssize_t n = recv(p->fd, p->in + p->used, p->room - p->used, MSG_DONTWAIT);
    if (n > 0) p->used += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void read_peer(struct zf_world *w, int rank)
{
    struct zf_peer *p = &w->peer[rank];
    struct zf_frame_head head;
    struct zf_fate fate;
    bool open = read_some(p);
    size_t at = 0;
    p->heard = zf_clock();
    while (p->used - at >= sizeof head) {
        memcpy(&head, p->in + at, sizeof head);
        if (head.size > ZF_FRAME_MOST || head.kind >= ZF_FRAME_KINDS) {
            open = false;
            break;
        }
        if (p->used - at - sizeof head < head.size) break;
        take(w, rank, &head, p->in + at + sizeof head);
        at += sizeof head + head.size;
    }
    if (at) memmove(p->in, p->in + at, p->used -= at);
    if (open) return;
    bool expected = p->bye || has_fate(w, &fate);
    hang_up(w, p);
    if (!expected) lose(w, rank, "is gone: its connection has ended");
}

/* ---- signs of life ---- */

static void beat(struct zf_world *w, double now)
{
    pthread_mutex_lock(&w->lock);
    struct zf_beat own = w->own;
    own.since = now - w->own_since;
    pthread_mutex_unlock(&w->lock);
    w->peer[w->launch.rank].beat = own;
    for (int r = 0; r < w->launch.ranks; r++)
        if (w->peer[r].fd >= 0) zf_peer_try(&w->peer[r], ZF_FRAME_BEAT, &own, sizeof own);
    if (w->launch.rank && *w->stop && !w->signalled) w->signalled = zf_peer_try(&w->peer[0], ZF_FRAME_SIGNAL, NULL, 0);
}

static void look_for_silence(struct zf_world *w, double now)
{
    char how[80];
    snprintf(how, sizeof how, "has given no sign of life for %d s", ZF_WORLD_SILENCE);
    for (int r = 0; r < w->launch.ranks; r++) {
        struct zf_peer *p = &w->peer[r];
        if (p->fd >= 0 && !p->bye && !p->lost && now - p->heard > ZF_WORLD_SILENCE) lose(w, r, how);
    }
}

/* All wait for the end of a step but some: those are named, once for each time. */
static void look_for_slow(struct zf_world *w)
{
    char name[128];
    bool waits = false;
    int behind = -1;
    for (int r = 0; r < w->launch.ranks; r++) {
        const struct zf_beat *b = &w->peer[r].beat;
        if (strcmp(b->doing, zf_world_waits))
            behind = r;
        else
            waits |= b->since > SLOW;
    }
    if (!waits || behind < 0) {
        w->slow_told = -1;
        return;
    }
    const struct zf_beat *b = &w->peer[behind].beat;
    if (w->slow_told == behind) return;
    w->slow_told = behind;
    fprintf(stderr, "zenflow-console: warning: %s keeps the others waiting for more than %d s: step %" PRIu64 ", %.47s\n",
            zf_world_name(w, behind, name, sizeof name), SLOW, b->step, b->doing);
}

/* ---- the thread ---- */

static void wait_for_something(struct zf_world *w)
{
    size_t most = 2 + w->waitings + (size_t)w->launch.ranks, n = 0;
    struct pollfd *f = calloc(most, sizeof *f);
    int *who = calloc(most, sizeof *who); /* ranks */
    size_t waitings = w->waitings;
    if (!f || !who) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    } else {
        f[n++] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
        f[n++] = (struct pollfd){.fd = w->listener, .events = POLLIN};
        for (size_t i = 0; i < waitings; i++) f[n++] = (struct pollfd){.fd = w->waiting[i].fd, .events = POLLIN};
        size_t peers = n;
        for (int r = 0; r < w->launch.ranks; r++) {
            who[n] = r;
            if (w->peer[r].fd >= 0) f[n++] = (struct pollfd){.fd = w->peer[r].fd, .events = POLLIN};
        }
        if (poll(f, n, LOOK_MS) > 0) {
            char bytes[64];
            if (f[0].revents && read(w->wake[0], bytes, sizeof bytes) < 0) bytes[0] = 0;
            for (size_t i = peers; i < n; i++)
                if (f[i].revents) read_peer(w, who[i]);
            for (size_t i = waitings; i-- > 0;) /* from behind: the last one takes the place of one that goes */
                if (f[2 + i].revents || zf_clock() - w->waiting[i].since > greeting) zf_meet_hello(w, i);
            if (f[1].revents) zf_meet_accept(w);
        }
    }
    free(f);
    free(who);
}

/* The main thread may wait for ranks that will never come. */
static void end_at_last(struct zf_world *w, double now)
{
    struct zf_fate f;
    if (!has_fate(w, &f)) return;
    pthread_mutex_lock(&w->lock);
    bool late = now - f.at > ZF_WORLD_LINGER && !w->ending;
    pthread_mutex_unlock(&w->lock);
    if (!late) return;
    if (f.quiet && !w->launch.rank) fprintf(stderr, "zenflow-console: %s\n", f.text);
    pthread_mutex_lock(&w->hooks);
    if (w->last) w->last(w->lost_ctx, f.code, f.text);
    _exit((int)f.code);
}

void *zf_world_thread(void *world)
{
    struct zf_world *w = world;
    double last = zf_clock(), beaten = 0;
    for (bool finished = false; !finished;) {
        wait_for_something(w);
        double now = zf_clock();
        for (int r = 0; now - last > gap && r < w->launch.ranks; r++) w->peer[r].heard = now; /* it was not they who were silent */
        last = now;
        if (now - beaten >= ZF_WORLD_BEAT_MS / 1000.0) {
            beat(w, now);
            beaten = now;
            if (!w->launch.rank) look_for_slow(w);
        }
        look_for_silence(w, now);
        spread_fate(w);
        end_at_last(w, now);
        pthread_mutex_lock(&w->lock);
        finished = w->finished;
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}
