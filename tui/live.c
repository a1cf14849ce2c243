/* A run whose trainer is alive on this machine: its socket, after what metrics.jsonl has of the time before.
 *
 * The trainer has let us in when it answers; only then the file is read to its end, then the socket: no line is missed. Lines that come
 * both ways are the same bytes in the same order, so of the file's newest lines only hashes are kept: a line of the socket that is found
 * among them is known, and so are all before it. Where the trainer says that this client lost lines, and when it is gone without an end,
 * all is read anew. */
#include "tui/feed_impl.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/session/lock.h"
#include "core/telemetry/jsonl.h"
#include "core/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    LINE_MOST = 16 << 20,
    QUEUE = 1 << 20,
    KNOWN = 1 << 17, /* newest lines of the file: more than the trainer's queue for a client holds, so that it repeats no others */
    ANSWERS = 256,   /* that nobody has fetched */
    PATIENCE_S = 10, /* for a trainer that has its lock but does not listen yet */
    WELCOME_S = 2,   /* then what the file has is shown for the time being */
};
static const char knock[] = "{\"id\":\"attach\",\"command\":\"status\",\"by\":\"console\"}\n";

struct live {
    struct zf_feed feed;
    struct zf_wire wire;
    struct zf_tail tail;
    struct zf_feed_clock clock;
    struct zf_feed_map map;
    char *run, *followed, user[80];
    bool welcomed; /* an answer has come: the socket tells all from here on */
    double since;  /* we have knocked */
    char refused[200];
    bool reading; /* the file, which has all that the socket says meanwhile */
    bool anew;    /* from its beginning */
    bool gone;    /* the socket has ended */
    uint64_t *known;
    size_t known_count, known_at; /* ring; known_at: up to there the socket has repeated them */
    struct zf_answer answer[ANSWERS];
    size_t answers;
    char *told; /* the text that the last call of `answer` gave away */
};

static struct live *of(const struct zf_feed *f)
{
    return (struct live *)(size_t)f;
}

/* ---- lines that come twice ---- */

static void remember(struct live *l, const char *line, size_t size)
{
    if (!l->known) l->known = malloc(KNOWN * sizeof *l->known);
    if (l->known) l->known[l->known_count++ % KNOWN] = XXH3_64bits(line, size);
}

static void forget(struct live *l)
{
    free(l->known);
    l->known = NULL;
    l->known_count = l->known_at = 0;
}

static bool is_known(struct live *l, const char *line, size_t size)
{
    size_t oldest = l->known_count > KNOWN ? l->known_count - KNOWN : 0;
    if (l->known_at < oldest) l->known_at = oldest;
    if (l->known_at == l->known_count) return false;
    uint64_t x = XXH3_64bits(line, size);
    for (size_t i = l->known_at; i < l->known_count; i++) {
        if (l->known[i % KNOWN] != x) continue;
        l->known_at = i + 1;
        return true;
    }
    return false;
}

static void read_anew(struct live *l)
{
    l->reading = l->anew = true;
    forget(l);
}

/* true: there is more of the file. */
static bool read_file(struct live *l, struct zf_history *h, double until)
{
    const char *line;
    size_t size;
    struct zf_err ignored;
    if (l->tail.fd < 0 && zf_tail_open(&l->tail, l->run, &ignored)) { /* none yet: the socket has it all */
        l->reading = l->anew = false;
        return false;
    }
    if (zf_tail_replaced(&l->tail) || l->anew) {
        zf_feed_anew(h, &l->followed);
        zf_tail_rewind(&l->tail, 0);
        forget(l);
        l->anew = false;
    }
    zf_history_brief(h, zf_tail_left(&l->tail) > ZF_FEED_BRIEF);
    for (unsigned n = 1; zf_tail_line(&l->tail, &line, &size); n++) {
        zf_history_text(h, line, size);
        if (l->followed) zf_feed_follow(h, &l->followed);
        remember(l, line, size);
        if (n % ZF_FEED_LINES == 0 && zf_clock() > until) return true;
    }
    zf_history_brief(h, false);
    if (!l->gone) h->ended = false; /* the trainer lives: an end is that of an attempt before it, or comes again when it lets go of us */
    zf_feed_steps(h, l->run);
    zf_feed_tick(&l->clock, h, zf_tail_age(&l->tail));
    zf_tail_close(&l->tail); /* its room, too */
    l->reading = false;
    return false;
}

/* ---- the socket ---- */

static void put_answer(struct live *l, const json_t *o)
{
    const json_t *id = json_object_get(o, "id");
    if (json_is_string(id) && !strcmp(json_string_value(id), "attach")) {
        l->welcomed = true;
        read_anew(l); /* what came before the answer is in the file */
        return;
    }
    if (!l->welcomed && json_is_null(id)) snprintf(l->refused, sizeof l->refused, "%s", zf_json_text(o, "text", ""));
    if (l->answers == ANSWERS) {
        free(l->answer[0].text);
        memmove(l->answer, l->answer + 1, --l->answers * sizeof *l->answer);
    }
    struct zf_answer a = {.id = json_is_integer(id) ? json_integer_value(id) : -1,
                          .ok = json_is_true(json_object_get(o, "ok")),
                          .ask = json_is_true(json_object_get(o, "ask")),
                          .text = strdup(zf_json_text(o, "text", ""))};
    if (a.text) l->answer[l->answers++] = a;
}

static bool begins(const char *line, size_t size, const char *with)
{
    size_t n = strlen(with);
    return size > n && !memcmp(line, with, n);
}

/* An answer, or the note that lines were lost; else it is the history's. */
static void one_line(struct live *l, struct zf_history *h, const char *line, size_t size)
{
    bool only_here = begins(line, size, "{\"type\":\"lanes\"") || begins(line, size, "{\"type\":\"watch\"");
    bool special = begins(line, size, "{\"id\":") || begins(line, size, "{\"type\":\"note\",\"text\":");
    json_t *o = special ? json_loadb(line, size, JSON_ALLOW_NUL, NULL) : NULL;
    if (json_object_get(o, "ok"))
        put_answer(l, o);
    else if (json_object_get(o, "lost"))
        read_anew(l);
    else if (!l->reading && (only_here || !is_known(l, line, size)) && zf_history_text(h, line, size) &&
             begins(line, size, "{\"type\":\"step\","))
        forget(l); /* from here on nothing repeats */
    json_decref(o);
}

/* true: there may be more. */
static bool read_socket(struct live *l, struct zf_history *h, double until)
{
    char *line;
    size_t size;
    enum zf_wire_line found;
    unsigned n = 0;
    for (;;) {
        size_t before = l->wire.in_used - l->wire.in_from;
        if (!l->gone && zf_wire_read(&l->wire) == ZF_WIRE_ENDED) l->gone = true;
        bool came = l->wire.in_used - l->wire.in_from > before || l->wire.in_seen < l->wire.in_used;
        while ((found = zf_wire_line(&l->wire, &line, &size)) != ZF_WIRE_NONE) {
            if (found == ZF_WIRE_LINE && size) one_line(l, h, line, size);
            if (++n % ZF_FEED_LINES == 0 && zf_clock() > until) return true;
        }
        if (!came || l->gone) return false;
        if (zf_clock() > until) return true;
    }
}

static enum zf_status take(struct zf_feed *feed, struct zf_history *h, double seconds, bool *more, struct zf_err *e)
{
    struct live *l = of(feed);
    double until = zf_clock() + seconds;
    *more = false;
    if (zf_wire_queued(&l->wire) && !l->gone && zf_wire_flush(&l->wire) == ZF_WIRE_ENDED && zf_wire_read(&l->wire)) l->gone = true;
    bool may_read = l->welcomed || l->gone || zf_clock() - l->since > WELCOME_S;
    if (l->reading && may_read && (*more = read_file(l, h, until))) return ZF_OK;
    bool was_gone = l->gone;
    if (l->wire.fd >= 0) *more = read_socket(l, h, until);
    if (!*more && !l->reading && zf_feed_map(&l->map, h, l->run, -1, until)) *more = true;
    zf_feed_tick(&l->clock, h, 0);
    if (l->reading && may_read) *more = true;
    if (*more || !l->gone) return ZF_OK;
    if (l->wire.fd >= 0) zf_wire_close(&l->wire);
    if (h->ended) {
        l->clock = (struct zf_feed_clock){.time = h->time};
        return ZF_OK;
    }
    if (was_gone && l->refused[0]) return zf_fail(e, ZF_BUSY, l->run, "%s", l->refused);
    if (was_gone) return zf_feed_lost(l->run, h->step, e);
    read_anew(l); /* what it could not send any more is in its file */
    *more = true;
    return ZF_OK;
}

static int fd(const struct zf_feed *f)
{
    return of(f)->wire.fd;
}

static double wait_for(const struct zf_feed *feed)
{
    const struct live *l = of(feed);
    if (!l->welcomed && !l->gone) return 0.02;
    if (l->reading || l->wire.in_seen < l->wire.in_used) return 0;
    return zf_wire_queued(&l->wire) ? 0.02 : 1;
}

static enum zf_status ask(struct zf_feed *feed, int64_t id, const char *command, bool yes, struct zf_err *e)
{
    struct live *l = of(feed);
    size_t size;
    if (l->gone) return zf_fail(e, ZF_DIFFERENT, NULL, "the trainer is gone: nobody is there to carry it out");
    json_t *o = json_pack("{sI ss ss ss}", "id", (json_int_t)id, "command", command, "by", "console", "user", l->user);
    if (o && yes) json_object_set_new(o, "yes", json_true());
    char *text = zf_jsonl_text(o, &size);
    json_decref(o);
    if (!text) return zf_fail(e, ZF_USAGE, NULL, "the command is no UTF-8 text");
    bool fits = size <= ZF_WIRE_REQUEST_MOST;
    bool queued = fits && zf_wire_queue(&l->wire, text, size, 0);
    free(text);
    if (!fits) return zf_fail(e, ZF_USAGE, NULL, "the command is too long; at most 64 KiB are expected");
    if (!queued) return zf_fail(e, ZF_IO, NULL, "the trainer does not read what is sent to it");
    zf_wire_flush(&l->wire); /* what does not go now, and a socket that has ended, are `take`'s */
    return ZF_OK;
}

static bool answer(struct zf_feed *feed, struct zf_answer *out)
{
    struct live *l = of(feed);
    free(l->told);
    l->told = NULL;
    if (!l->answers) return false;
    *out = l->answer[0];
    l->told = out->text;
    memmove(l->answer, l->answer + 1, --l->answers * sizeof *l->answer);
    return true;
}

static double now(const struct zf_feed *feed)
{
    return zf_feed_now(&of(feed)->clock);
}

static void close_it(struct zf_feed *feed)
{
    struct live *l = of(feed);
    if (l->wire.fd >= 0) zf_wire_close(&l->wire);
    zf_tail_close(&l->tail);
    zf_feed_map_close(&l->map);
    for (size_t i = 0; i < l->answers; i++) free(l->answer[i].text);
    free(l->told);
    free(l->known);
    free(l->run);
    free(l->followed);
    free(l);
}

static const struct zf_feed_type type = {take, fd, wait_for, ask, answer, now, close_it};

/* A trainer that has just begun has its lock, but may not listen yet. */
static enum zf_status connect_it(struct live *l, struct zf_err *e)
{
    struct zf_lock_record holder;
    char word[ZF_SHELL_WORD];
    double until = zf_clock() + PATIENCE_S;
    while (zf_lock_look(l->run, &holder) == ZF_LOCK_LIVE) {
        if (zf_lock_elsewhere(&holder))
            return zf_fail(e, ZF_BUSY, l->run, "its trainer is on %s, which this machine cannot reach but for its files", holder.host);
        char *where = zf_lock_where(l->run, &holder);
        int fd_of_it;
        enum zf_status s = where ? zf_wire_connect(&fd_of_it, where, until - zf_clock(), e) : zf_fail_memory(e, l->run);
        free(where);
        if (!s) {
            zf_wire_open(&l->wire, fd_of_it, LINE_MOST, QUEUE);
            l->since = zf_clock();
            if (!zf_wire_queue(&l->wire, knock, sizeof knock - 1, 0)) return zf_fail_memory(e, l->run);
            zf_wire_flush(&l->wire);
        }
        if (s != ZF_BUSY || zf_clock() > until) return s;
        usleep(20000);
    }
    return zf_fail(e, ZF_BUSY, l->run, "no trainer is at work on it; `zenflow-console status %s` shows how it ended",
                   zf_shell_word(word, l->run));
}

enum zf_status zf_feed_live(struct zf_feed **out, const char *run, struct zf_err *e)
{
    struct live *l = calloc(1, sizeof *l);
    const char *user = getenv("USER");
    *out = NULL;
    if (!l) return zf_fail_memory(e, run);
    l->feed.type = &type;
    l->wire.fd = l->tail.fd = -1;
    l->reading = true;
    l->run = strdup(run);
    if (user && *user)
        snprintf(l->user, sizeof l->user, "%.70s", user);
    else
        snprintf(l->user, sizeof l->user, "uid %u", (unsigned)geteuid());
    enum zf_status s = l->run ? connect_it(l, e) : zf_fail_memory(e, run);
    if (s)
        close_it(&l->feed);
    else
        *out = &l->feed;
    return s;
}
