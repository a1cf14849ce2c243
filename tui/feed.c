/* See feed_impl.h. */
#include "tui/feed_impl.h"

#include "core/base/clock.h"
#include "core/base/show.h"
#include "core/session/lock.h"
#include "core/session/rundir.h"

#include <stdlib.h>
#include <string.h>

void zf_feed_tick(struct zf_feed_clock *c, const struct zf_history *h, double age)
{
    if (c->at > 0 && h->step == c->step) return;
    c->step = h->step;
    c->time = h->time;
    c->at = zf_clock() - age;
}

double zf_feed_now(const struct zf_feed_clock *c)
{
    return c->time + (c->at > 0 ? zf_clock() - c->at : 0);
}

void zf_feed_steps(struct zf_history *h, const char *run)
{
    struct zf_run_facts facts;
    struct zf_err ignored;
    if (!h->steps && !zf_rundir_look(&facts, run, NULL, &ignored)) h->steps = facts.steps;
}

void zf_feed_anew(struct zf_history *h, char **followed)
{
    if (h->map.matrix < h->matrices) {
        free(*followed);
        *followed = strdup(h->matrix[h->map.matrix].name);
    }
    uint64_t version = h->version_of_data, watched = h->watched;
    zf_history_close(h);
    h->version_of_data = version + 1;
    h->watched = watched;
}

void zf_feed_follow(struct zf_history *h, char **followed)
{
    if (!*followed || !h->matrices) return;
    for (size_t i = 0; i < h->matrices; i++)
        if (!strcmp(h->matrix[i].name, *followed)) zf_history_watch(h, i);
    free(*followed);
    *followed = NULL;
}

void zf_feed_map_close(struct zf_feed_map *m)
{
    if (m->busy) zf_tail_close(&m->tail);
    m->busy = false;
}

/* Most lines are not asked for a second time: by their first letters. */
static bool of_channels(const char *line, size_t size)
{
    static const char score[] = "{\"type\":\"score\"", select[] = "{\"type\":\"select\"";
    return size > sizeof select && (!memcmp(line, score, sizeof score - 1) || !memcmp(line, select, sizeof select - 1));
}

bool zf_feed_map(struct zf_feed_map *m, struct zf_history *h, const char *run, off_t end, double until)
{
    struct zf_err ignored;
    const char *line;
    size_t size;
    if (h->watched != m->watched) {
        zf_feed_map_close(m);
        m->watched = h->watched;
        if (h->map.matrix >= h->matrices || zf_tail_open(&m->tail, run, &ignored)) return false;
        zf_history_watch(h, h->map.matrix); /* what came since is in the file, too */
        m->watched = h->watched;
        m->busy = true;
        zf_history_mapping(h, true);
    }
    if (!m->busy) return false;
    for (unsigned n = 1; (end < 0 || m->tail.at < end) && zf_tail_line(&m->tail, &line, &size); n++) {
        if (of_channels(line, size)) zf_history_map(h, line, size);
        if (n % ZF_FEED_LINES == 0 && zf_clock() > until) return true;
    }
    zf_history_mapping(h, false);
    zf_feed_map_close(m);
    return false;
}

enum zf_status zf_feed_lost(const char *run, uint64_t step, struct zf_err *e)
{
    struct zf_lock_record holder;
    char why[768], word[ZF_SHELL_WORD];
    if (zf_lock_look(run, &holder) == ZF_LOCK_NONE) /* a clean end takes the lock away */
        return zf_fail(e, ZF_BUSY, run, "the trainer is gone; `zenflow-console status %s` shows how it ended", zf_shell_word(word, run));
    zf_lock_explain(&holder, step > holder.step ? step : holder.step, why, sizeof why);
    return zf_fail(e, ZF_BUSY, run, "%s", why);
}
