#include "core/pipeline/window.h"

void zf_window_start(struct zf_window *w, const struct zf_policy *p, uint64_t origin, size_t before, size_t own, size_t all)
{
    unsigned __int128 s = p->interval;
    *w = (struct zf_window){
        .origin = origin, .start = (uint32_t)(s * before / all), .end = (uint32_t)((s * (before + own) + all - 1) / all), .starts = true};
}

static bool begins_anew(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    return !w->selected || (p->select && t - w->selected >= p->select);
}

bool zf_window_may_select(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    return w->starts && zf_policy_selects(p) && begins_anew(w, p, t);
}

static uint32_t offset(const struct zf_window *w, const struct zf_policy *p)
{
    return p->visible == ZF_VISIBLE_STAGGERED ? w->start % p->interval : 0;
}

bool zf_window_ends(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    return (t - w->origin) % p->interval == offset(w, p);
}

/* Steps from a window's end to its service, and to when its rows become visible. */
static struct delay {
    uint64_t serve, due;
} delay(const struct zf_window *w, const struct zf_policy *p)
{
    const struct delay of[] = {
        [ZF_VISIBLE_NONE] = {0, 0},
        [ZF_VISIBLE_GLOBAL] = {w->start, p->interval},
        [ZF_VISIBLE_ROLLING] = {w->start, w->end},
        [ZF_VISIBLE_STAGGERED] = {0, w->end - w->start},
    };
    return of[p->visible];
}

void zf_window_close(struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    struct delay d = delay(w, p);
    w->up.any = true;
    w->up.served = false;
    w->up.ended = t;
    w->up.serve = t + d.serve;
    w->up.due = t + d.due;
}

bool zf_window_shows(const struct zf_window *w, uint64_t t)
{
    return w->up.any && w->up.due <= t;
}

/* The last step up to t with which a window ended, or that they began after. */
static uint64_t last_end(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    uint64_t since = t - w->origin, o = offset(w, p);
    return since < o ? w->origin : t - (since - o) % p->interval;
}

uint64_t zf_window_visible(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    if (!w->up.any) return last_end(w, p, t);
    if (w->up.due <= t) return w->up.ended;
    return w->up.ended - w->origin < p->interval ? w->origin : w->up.ended - p->interval;
}

/* The first step after t with which a window ends. */
static uint64_t next_end(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    uint64_t o = offset(w, p), phase = (t - w->origin) % p->interval;
    return t + (o > phase ? o - phase : p->interval + o - phase);
}

uint64_t zf_window_serves(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    return w->up.any && !w->up.served ? w->up.serve : next_end(w, p, t) + delay(w, p).serve;
}

uint64_t zf_window_due(const struct zf_window *w, const struct zf_policy *p, uint64_t t)
{
    return w->up.any ? w->up.due : next_end(w, p, t) + delay(w, p).due;
}

double zf_window_lag(const struct zf_window *w, const struct zf_policy *p)
{
    return ((double)p->interval - 1) / 2 + (double)(w->end - w->start);
}
