/* A recording with a clock of its own. Its time is the `time` of its steps; where that jumps back (a resume counts anew) it goes on from
 * there. A line belongs to the step before it.
 *
 * A long one keeps a few states on its way, so that winding back reads a fifth of it at most. */
#include "tui/feed_impl.h"

#include "core/base/clock.h"
#include "core/session/lock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double frame = 0.05; /* seconds: what is nearer to each other comes at once */

enum { KEPT = 4, KEPT_FROM = 64 << 20 /* bytes; a shorter file is read in a moment */ };

struct kept {
    bool used;
    off_t at;
    double shift, newest;
    struct zf_history h;
};

struct replay {
    struct zf_feed feed;
    struct zf_tail tail;
    char *run, *followed;
    double speed;
    double time, set; /* the recording's time as of `set` of our clock */
    double shift;     /* from a step's own time to the recording's, after resumes */
    double newest;    /* recording's time of the newest step */
    double due;       /* of the step that waits; below 0: none does */
    bool begun, ended;
    struct zf_feed_map map;
    off_t apart; /* bytes between states that are kept; 0: none is */
    struct kept kept[KEPT];
};

static struct replay *of(const struct zf_feed *f)
{
    return (struct replay *)(size_t)f;
}

static double time_of(const struct replay *r)
{
    if (!(r->speed > 0) || isinf(r->speed)) return r->time;
    return r->time + r->speed * (zf_clock() - r->set);
}

static void set_time(struct replay *r, double time)
{
    r->time = time;
    r->set = zf_clock();
}

/* Is it a step, and which, when? */
static bool step_line(const char *line, size_t size, uint64_t *step, double *time)
{
    static const char start[] = "{\"type\":\"step\",\"step\":", then[] = ",\"time\":";
    char number[40];
    if (size < sizeof start || memcmp(line, start, sizeof start - 1) != 0) return false;
    const char *p = line + sizeof start - 1, *end = line + size;
    for (*step = 0; p < end && *p >= '0' && *p <= '9' && *step < UINT64_MAX / 16; p++) *step = *step * 10 + (uint64_t)(*p - '0');
    *time = (double)NAN;
    if ((size_t)(end - p) < sizeof then || memcmp(p, then, sizeof then - 1) != 0) return true;
    p += sizeof then - 1;
    size_t n = (size_t)(end - p) < sizeof number - 1 ? (size_t)(end - p) : sizeof number - 1;
    memcpy(number, p, n);
    number[n] = 0;
    double x = strtod(number, NULL);
    if (x >= 0 && x < 1e12) *time = x;
    return true;
}

/* When a step is due, by what was before it. */
static double due_of(struct replay *r, double time)
{
    if (isnan(time)) return r->newest;
    if (time + r->shift < r->newest) r->shift = r->newest - time;
    return time + r->shift;
}

/* The state as of here, if it is one of those that are kept. */
static void keep(struct replay *r, struct zf_history *h)
{
    size_t i = (size_t)(r->tail.at / r->apart);
    if (!i || i > KEPT || r->kept[i - 1].used || h->mapping) return;
    struct kept *k = &r->kept[i - 1];
    bool brief = h->brief;
    zf_history_brief(h, false);
    zf_history_open(&k->h);
    k->at = r->tail.at;
    k->shift = r->shift;
    k->newest = r->newest;
    k->used = zf_history_copy(&k->h, h);
    if (!k->used) r->apart = 0;
    zf_history_brief(h, brief);
}

/* To the latest state that was kept before this step, if that is a short cut; to the beginning, if it lies back and there is none. */
static void wind(struct replay *r, struct zf_history *h, uint64_t step)
{
    const struct kept *k = NULL;
    bool back = step < h->step;
    uint64_t watched = h->watched;
    for (size_t i = 0; i < KEPT; i++)
        if (r->kept[i].used && r->kept[i].h.step <= step && (back || r->kept[i].at > r->tail.at) && (!k || r->kept[i].at > k->at))
            k = &r->kept[i];
    if (!back && !k) return;
    zf_feed_anew(h, &r->followed);
    uint64_t version = h->version_of_data;
    bool copied = k && zf_history_copy(h, &k->h);
    zf_tail_rewind(&r->tail, copied ? k->at : 0);
    r->shift = copied ? k->shift : 0;
    r->newest = copied ? k->newest : 0;
    r->due = -1;
    h->version_of_data = version;
    h->watched = watched;
    if (!copied) return;
    if (r->followed && h->map.matrix < h->matrices && !strcmp(r->followed, h->matrix[h->map.matrix].name)) {
        free(r->followed); /* its columns of before are in the copy */
        r->followed = NULL;
    } else {
        zf_history_watch(h, SIZE_MAX);
    }
    zf_feed_follow(h, &r->followed);
}

/* A recording without an end: the lock that its trainer left tells why. */
static void tell_death(const struct replay *r, struct zf_history *h)
{
    struct zf_lock_record holder;
    char why[768];
    if (h->ended || zf_lock_look(r->run, &holder) != ZF_LOCK_DEAD) return;
    zf_lock_explain(&holder, h->step, why, sizeof why);
    json_t *line = json_pack("{ss sI ss}", "type", "error", "step", (json_int_t)h->step, "text", why);
    if (line) zf_history_take(h, line);
    json_decref(line);
}

static void ended(struct replay *r, struct zf_history *h)
{
    r->ended = true;
    r->due = -1;
    zf_history_brief(h, false);
    set_time(r, r->newest);
    tell_death(r, h);
}

/* Applies lines up to the first step that is after `until` or above `step`, for so many seconds of our clock. true: there is more to do. */
static bool go(struct replay *r, struct zf_history *h, double until, uint64_t step, double seconds)
{
    const char *line;
    size_t size;
    uint64_t at;
    double time, limit = zf_clock() + seconds;
    for (unsigned n = 1;; n++) {
        if (!zf_tail_line(&r->tail, &line, &size)) {
            ended(r, h);
            return false;
        }
        if (step_line(line, size, &at, &time)) {
            r->due = due_of(r, time);
            if (!(r->due <= until) || at > step) {
                zf_tail_unread(&r->tail, line, size);
                return false;
            }
            r->newest = r->due;
        }
        zf_history_text(h, line, size);
        if (r->apart) keep(r, h);
        if (r->followed) zf_feed_follow(h, &r->followed);
        if (n % ZF_FEED_LINES == 0 && zf_clock() > limit) return true;
    }
}

static enum zf_status take(struct zf_feed *feed, struct zf_history *h, double seconds, bool *more, struct zf_err *e)
{
    struct replay *r = of(feed);
    (void)e;
    *more = false;
    if (!r->ended) zf_history_brief(h, isinf(r->speed) && zf_tail_left(&r->tail) > ZF_FEED_BRIEF);
    if (!r->begun) {
        r->begun = true;
        go(r, h, -1, UINT64_MAX, INFINITY); /* what stands before the first step */
        if (r->due > 0) r->newest = r->due;
        set_time(r, r->newest);
        zf_feed_steps(h, r->run);
    }
    if (zf_feed_map(&r->map, h, r->run, r->tail.at, zf_clock() + seconds)) {
        *more = true;
        return ZF_OK;
    }
    if (r->ended || !(r->speed > 0)) return ZF_OK;
    double until = isinf(r->speed) ? INFINITY : time_of(r);
    *more = go(r, h, until, UINT64_MAX, seconds);
    if (isinf(r->speed) || (*more && r->newest < until)) set_time(r, r->newest); /* it does not run away from what is shown */
    return ZF_OK;
}

static double wait_for(const struct zf_feed *feed)
{
    const struct replay *r = of(feed);
    if (r->ended || !(r->speed > 0)) return r->begun ? 1 : 0;
    if (isinf(r->speed) || !r->begun) return 0;
    return fmin(1, fmax(frame, (r->due - time_of(r)) / r->speed));
}

static enum zf_status ask(struct zf_feed *f, int64_t id, const char *command, bool yes, struct zf_err *e)
{
    (void)f, (void)id, (void)command, (void)yes;
    return zf_fail(e, ZF_DIFFERENT, NULL,
                   "this is a recording: nobody is there to carry it out; `zenflow-console run.cfg` starts or continues a run");
}

static double now(const struct zf_feed *feed)
{
    const struct replay *r = of(feed);
    double t = time_of(r);
    if (r->due >= 0 && t > r->due) t = r->due;
    return t - r->shift > 0 ? t - r->shift : 0;
}

static void close_it(struct zf_feed *feed)
{
    struct replay *r = of(feed);
    zf_tail_close(&r->tail);
    zf_feed_map_close(&r->map);
    for (size_t i = 0; i < KEPT; i++)
        if (r->kept[i].used) zf_history_close(&r->kept[i].h);
    free(r->run);
    free(r->followed);
    free(r);
}

static const struct zf_feed_type type = {.take = take, .wait = wait_for, .ask = ask, .now = now, .close = close_it};

enum zf_status zf_feed_replay(struct zf_feed **out, const char *run, double speed, struct zf_err *e)
{
    struct replay *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r || !(r->run = strdup(run))) {
        free(r);
        return zf_fail_memory(e, run);
    }
    r->feed.type = &type;
    r->speed = speed >= 0 ? speed : 1;
    r->due = -1;
    enum zf_status s = zf_tail_open(&r->tail, run, e);
    if (s) {
        close_it(&r->feed);
        return s;
    }
    off_t size = zf_tail_left(&r->tail);
    r->apart = size > KEPT_FROM ? size / (KEPT + 1) : 0;
    *out = &r->feed;
    return ZF_OK;
}

bool zf_replay_is(const struct zf_feed *f)
{
    return f->type == &type;
}

void zf_replay_speed(struct zf_feed *feed, double speed)
{
    struct replay *r = of(feed);
    if (!zf_replay_is(feed) || !(speed >= 0)) return;
    set_time(r, time_of(r));
    r->speed = speed;
}

double zf_replay_speed_of(const struct zf_feed *f)
{
    return zf_replay_is(f) ? of(f)->speed : 1;
}

enum zf_status zf_replay_seek(struct zf_feed *feed, struct zf_history *h, uint64_t step, struct zf_err *e)
{
    struct replay *r = of(feed);
    if (!zf_replay_is(feed)) return zf_fail(e, ZF_DIFFERENT, NULL, "only a recording can be wound");
    wind(r, h, step);
    r->begun = true;
    r->ended = false;
    zf_history_brief(h, true);
    go(r, h, INFINITY, step, INFINITY);
    zf_history_brief(h, false);
    zf_feed_steps(h, r->run);
    set_time(r, r->newest);
    return ZF_OK;
}
