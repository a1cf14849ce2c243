/* A run whose trainer is on another machine, or whose socket is out of reach: its metrics.jsonl as it grows. It can be watched, not
 * steered. */
#include "tui/feed_impl.h"

#include "core/base/clock.h"
#include "core/base/show.h"
#include "core/session/lock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct files {
    struct zf_feed feed;
    struct zf_tail tail;
    struct zf_feed_clock clock;
    struct zf_feed_map map;
    char *run, *followed;
    double looked; /* at the lock */
    bool begun, caught_up, gone;
};

static struct files *of(const struct zf_feed *f)
{
    return (struct files *)(size_t)f;
}

static enum zf_status take(struct zf_feed *feed, struct zf_history *h, double seconds, bool *more, struct zf_err *e)
{
    struct files *f = of(feed);
    double until = zf_clock() + seconds;
    const char *line;
    size_t size;
    *more = false;
    if (f->begun && zf_tail_replaced(&f->tail)) { /* a resume has cut it: what was read may not have happened */
        zf_feed_anew(h, &f->followed);
        f->caught_up = false;
        f->clock.at = 0;
    }
    f->begun = true;
    if (!f->caught_up) zf_history_brief(h, zf_tail_left(&f->tail) > ZF_FEED_BRIEF);
    for (unsigned n = 1; zf_tail_line(&f->tail, &line, &size); n++) {
        zf_history_text(h, line, size);
        if (f->followed) zf_feed_follow(h, &f->followed);
        if (n % ZF_FEED_LINES || zf_clock() < until) continue;
        *more = true;
        break;
    }
    if (!*more && zf_feed_map(&f->map, h, f->run, f->tail.at, until)) *more = true;
    if (*more) return ZF_OK;
    if (!f->caught_up) {
        zf_history_brief(h, false);
        zf_feed_steps(h, f->run);
        f->caught_up = true;
    }
    zf_feed_tick(&f->clock, h, zf_tail_age(&f->tail));
    if (h->ended) {
        f->clock.at = 0;
        f->clock.time = h->time;
        return ZF_OK;
    }
    if (f->gone) return zf_feed_lost(f->run, h->step, e); /* what it wrote last has been read */
    if (zf_clock() - f->looked > 1) {
        f->looked = zf_clock();
        f->gone = zf_lock_look(f->run, NULL) != ZF_LOCK_LIVE;
        *more = f->gone;
    }
    return ZF_OK;
}

static double wait_for(const struct zf_feed *f)
{
    (void)f;
    return 0.25;
}

static enum zf_status ask(struct zf_feed *feed, int64_t id, const char *command, bool yes, struct zf_err *e)
{
    struct files *f = of(feed);
    struct zf_lock_record holder;
    (void)id, (void)command, (void)yes;
    char word[ZF_SHELL_WORD], *real = realpath(f->run, NULL);
    enum zf_status s;
    if (zf_lock_look(f->run, &holder) == ZF_LOCK_LIVE)
        s = zf_fail(e, ZF_DIFFERENT, NULL,
                    "the trainer is on %s, this console follows its files; to steer it: ssh -t %s zenflow-console attach %s", holder.host,
                    holder.host, real ? real : f->run);
    else
        s = zf_fail(e, ZF_DIFFERENT, NULL, "no trainer is at work on it; `zenflow-console status %s` shows how it ended",
                    zf_shell_word(word, f->run));
    free(real);
    return s;
}

static double now(const struct zf_feed *feed)
{
    return zf_feed_now(&of(feed)->clock);
}

static void close_it(struct zf_feed *feed)
{
    struct files *f = of(feed);
    zf_tail_close(&f->tail);
    zf_feed_map_close(&f->map);
    free(f->run);
    free(f->followed);
    free(f);
}

static const struct zf_feed_type type = {.take = take, .wait = wait_for, .ask = ask, .now = now, .close = close_it};

enum zf_status zf_feed_files(struct zf_feed **out, const char *run, struct zf_err *e)
{
    struct files *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f || !(f->run = strdup(run))) {
        free(f);
        return zf_fail_memory(e, run);
    }
    f->feed.type = &type;
    enum zf_status s = zf_tail_open(&f->tail, run, e);
    if (s)
        close_it(&f->feed);
    else
        *out = &f->feed;
    return s;
}
