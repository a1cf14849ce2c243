/* Where lines come from: a live run's socket (with the history before it from its file), the files of a run on another node, or a
 * recording with a clock of its own. One struct of functions; app.c polls its descriptor and calls `take`. Never blocks: a call does a
 * bounded amount of work and says whether there is more; but for zf_replay_seek, which reads up to its step. */
#ifndef ZF_TUI_FEED_H
#define ZF_TUI_FEED_H

#include "core/base/err.h"
#include "tui/history.h"

#include <stdbool.h>

struct zf_answer { /* to a command of ours */
    int64_t id;
    bool ok, ask;
    char *text; /* owned by the feed until the next call */
};

struct zf_feed {
    const struct zf_feed_type *type;
};

struct zf_feed_type {
    /* Lines into the history, for about `seconds` at most. *more: there are some left. ZF_BUSY: the trainer is gone without an end line. */
    enum zf_status (*take)(struct zf_feed *f, struct zf_history *h, double seconds, bool *more, struct zf_err *e);
    int (*fd)(const struct zf_feed *f);      /* readable when `take` has something to do; NULL or -1: only the timer */
    double (*wait)(const struct zf_feed *f); /* seconds until `take` wants to be called, fd or not; at most 1 */
    /* A command; its answer comes by `answer`. ZF_DIFFERENT: nobody can carry it out (files, a recording). */
    enum zf_status (*ask)(struct zf_feed *f, int64_t id, const char *command, bool yes, struct zf_err *e);
    bool (*answer)(struct zf_feed *f, struct zf_answer *out); /* NULL: there are none */
    double (*now)(const struct zf_feed *f);                   /* seconds since the run's start */
    void (*close)(struct zf_feed *f);
};

/* While `h->map` has just begun to follow a matrix, `take` brings its columns of before from the file. Only one history a feed.
 *
 * live.c. ZF_BUSY: nobody is there, or on another machine. run: the run directory. */
enum zf_status zf_feed_live(struct zf_feed **out, const char *run, struct zf_err *e);
/* files.c: of a run whose trainer is elsewhere: follows metrics.jsonl as it grows. */
enum zf_status zf_feed_files(struct zf_feed **out, const char *run, struct zf_err *e);

/* replay.c: speed 1: as it was; 0: it stands; INFINITY: at once. */
enum zf_status zf_feed_replay(struct zf_feed **out, const char *run, double speed, struct zf_err *e);
void zf_replay_speed(struct zf_feed *f, double speed);
double zf_replay_speed_of(const struct zf_feed *f);
/* To the end of this step: backwards, too (then `h` is begun anew). */
enum zf_status zf_replay_seek(struct zf_feed *f, struct zf_history *h, uint64_t step, struct zf_err *e);
bool zf_replay_is(const struct zf_feed *f);

#endif
