/* See feed_impl.h. */
#include "tui/feed_impl.h"

#include "core/base/clock.h"
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
    return c->at > 0 ? c->time + zf_clock() - c->at : 0;
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
    uint64_t version = h->version_of_data;
    zf_history_close(h);
    h->version_of_data = version + 1;
}

void zf_feed_follow(struct zf_history *h, char **followed)
{
    if (!*followed || !h->matrices) return;
    for (size_t i = 0; i < h->matrices; i++)
        if (!strcmp(h->matrix[i].name, *followed)) zf_history_watch(h, i);
    free(*followed);
    *followed = NULL;
}

enum zf_status zf_feed_lost(const char *run, uint64_t step, struct zf_err *e)
{
    struct zf_lock_record holder;
    char why[768];
    if (zf_lock_look(run, &holder) == ZF_LOCK_NONE) /* a clean end takes the lock away */
        return zf_fail(e, ZF_BUSY, run, "the trainer is gone; `zenflow-console status %s` shows how it ended", run);
    zf_lock_explain(&holder, step > holder.step ? step : holder.step, why, sizeof why);
    return zf_fail(e, ZF_BUSY, run, "%s", why);
}
