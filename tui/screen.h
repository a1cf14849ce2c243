/* The terminal: ncurses as something that puts a canvas on it, and whatever must be right around that: signals, resizing, stray output, the
 * state in which the terminal is left. screen.c is the only file that includes curses. One screen a process. */
#ifndef ZF_TUI_SCREEN_H
#define ZF_TUI_SCREEN_H

#include "core/base/err.h"
#include "tui/theme.h"

struct zf_screen_facts {
    int cols, rows, colours; /* 0, 8, 16, 256: NO_COLOR and mono count */
    bool utf8;               /* the locale's; the Linux console is not good for braille */
    bool braille;
};

/* Takes the terminal over: raw, its own copy of the descriptor; stdout and stderr become a pipe (zf_screen_stray). What ends the process by
 * a signal puts the terminal back first. ZF_USAGE: this terminal cannot (TERM=dumb, unknown without a fallback): use --plain. */
enum zf_status zf_screen_open(struct zf_screen_facts *f, struct zf_err *e);
void zf_screen_close(void);                /* again is fine; also at exit and in fatal signals */
void zf_screen_size(int *cols, int *rows); /* after SIGWINCH */
int zf_screen_input(void);                 /* descriptor to read keys from */
/* Puts the cells that differ on the terminal, in one synchronized piece. false: the terminal has not taken the last frame yet; this one is
 * left out (a slow line). */
bool zf_screen_draw(const struct zf_canvas *c, enum zf_scheme scheme);
void zf_screen_redraw(void); /* the next frame as a whole */
void zf_screen_mouse(bool on);
void zf_screen_suspend(void); /* Ctrl-Z: back to the shell until SIGCONT */
int zf_screen_stray(void);    /* descriptor with what anybody wrote to stdout or stderr */
/* Signals as a descriptor: SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGCONT; blocked in all threads. Before any thread exists. */
int zf_screen_signals(void);
int zf_screen_signal(void);     /* the next one, 0: none */
uint64_t zf_screen_bytes(void); /* written to the terminal so far */

#endif
