/* What a full-screen program does to a terminal apart from drawing: raw mode, a way of writing that never waits long, a pipe in place of
 * stdout and stderr, and putting everything back however the process ends. screen.c's other half; one terminal a process. */
#ifndef ZF_TUI_TTY_H
#define ZF_TUI_TTY_H

#include <stdbool.h>

#include "core/base/err.h"

/* Descriptors of its own; nothing is changed yet. ZF_USAGE: no terminal. */
enum zf_status zf_tty_open(struct zf_err *e);
/* What undoes on the terminal all that `enter` and frames did to it; before it is taken, and whenever that changes. */
void zf_tty_leave(const char *leave);
/* Raw mode, the pipe, handlers of all signals that end a process. */
enum zf_status zf_tty_take(const char *enter, struct zf_err *e);
/* Back as it was, pipe and all: async-signal-safe; again is nothing. */
void zf_tty_restore(void);
void zf_tty_close(void);

/* Back to the shell; returns when continued, with the terminal taken again. */
void zf_tty_suspend(const char *enter);
/* Continued after a stop that nobody asked us about: the shell may have changed the terminal's mode. */
void zf_tty_again(const char *enter);

/* Bytes for the terminal, in order. false: no memory, none of them is kept. */
bool zf_tty_queue(const char *bytes, size_t size);
/* true: everything is with the terminal, and it takes more (or it is gone). Waits wait_ms at most. */
bool zf_tty_flush(int wait_ms);
uint64_t zf_tty_bytes(void);

void zf_tty_size(int *cols, int *rows); /* 80x24 where it does not say */
int zf_tty_input(void);
int zf_tty_stray(void);

#endif
