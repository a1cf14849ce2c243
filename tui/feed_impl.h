/* What the feeds share. */
#ifndef ZF_TUI_FEED_IMPL_H
#define ZF_TUI_FEED_IMPL_H

#include "tui/feed.h"
#include "tui/tail.h"

enum {
    ZF_FEED_LINES = 32,      /* between two looks at the clock */
    ZF_FEED_BRIEF = 1 << 20, /* bytes that are still to be read: then only what stays of them */
};

/* The run's own time: that of its newest step and what has passed since; at 0: it stands. */
struct zf_feed_clock {
    double time, at;
    uint64_t step;
};
/* age: seconds since the newest line came. */
void zf_feed_tick(struct zf_feed_clock *c, const struct zf_history *h, double age);
double zf_feed_now(const struct zf_feed_clock *c);

/* How many steps, if lines do not tell. */
void zf_feed_steps(struct zf_history *h, const char *run);
/* All that is known is forgotten, but for which matrix is followed (it is followed anew once it is known: see zf_feed_follow). */
void zf_feed_anew(struct zf_history *h, char **followed);
void zf_feed_follow(struct zf_history *h, char **followed);
/* The columns of before for a matrix that the map has begun to follow, from the file up to `end` (below 0: its end). Zeroed at first. true:
 * there is more to do. */
struct zf_feed_map {
    struct zf_tail tail;
    uint64_t watched; /* which of the maps that were begun */
    bool busy;
};
bool zf_feed_map(struct zf_feed_map *m, struct zf_history *h, const char *run, off_t end, double until);
void zf_feed_map_close(struct zf_feed_map *m);
/* ZF_BUSY: the trainer's last words, by its lock. */
enum zf_status zf_feed_lost(const char *run, uint64_t step, struct zf_err *e);

#endif
