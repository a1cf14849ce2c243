/* The console: a loop over keys, lines, signals and a clock; commands and keys change the view; a frame is drawn when something changed, at
 * most so often. */
#ifndef ZF_TUI_APP_H
#define ZF_TUI_APP_H

#include "tui/feed.h"

struct zf_console_options {
    const char *run; /* the run directory */
    bool read_only;
    bool elsewhere;             /* its trainer is on another machine: the feed follows its files */
    double speed;               /* replay */
    uint64_t from;              /* replay */
    const char *theme, *glyphs; /* NULL: by the terminal */
    const char *notice;         /* said at the start; NULL: nothing */
};

/* Runs until a person leaves or the run ends and has been looked at. *code: the exit code (that of the run; 0 when it goes on). The feed is
 * the caller's. *code -1 with ZF_USAGE: this terminal cannot show it (nothing has happened to it). */
enum zf_status zf_console(struct zf_feed *feed, const struct zf_console_options *o, int *code, struct zf_err *e);

/* `replay RUN --snapshot COLSxROWS [--at-step N]`: one frame on stdout. */
enum zf_status zf_snapshot(const char *run, int cols, int rows, uint64_t step, const struct zf_console_options *o, struct zf_err *e);

#endif
