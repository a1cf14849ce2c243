/* The line where commands are typed: GNU readline without its hands on the terminal (reference: its callback interface). prompt*.c are the
 * only files that include readline. Draws onto a canvas; one prompt a process; the thread of the screen. */
#ifndef ZF_TUI_PROMPT_H
#define ZF_TUI_PROMPT_H

#include "tui/canvas.h"
#include "tui/complete.h"

struct zf_prompt_hooks {
    void *ctx;
    void (*line)(void *ctx, const char *text);                                            /* Enter */
    void (*matches)(void *ctx, char **list, size_t count);                                /* of an ambiguous completion, to be shown */
    void (*complete)(void *ctx, const char *line, size_t end, struct zf_candidates *out); /* what could stand at `end` */
};

/* Only lines that were typed at this one are kept in the history. */
#define ZF_PROMPT_LABEL "zf> "

/* history: file of it; NULL: it is not kept. Before the screen is opened: readline asks terminfo. */
bool zf_prompt_open(const struct zf_prompt_hooks *hooks, const char *history);
const char *zf_prompt_complaint(void); /* about ~/.inputrc, which was not read; NULL: none */
void zf_prompt_close(void);            /* puts the history's file in order; lines are written as they come */
/* Whole keys, as zf_keys_next tells them, the marks of a paste included; also one that was waited for in vain (Escape). */
void zf_prompt_bytes(const unsigned char *bytes, size_t size);
void zf_prompt_clear(void);                                    /* Ctrl-C: the line, a search; the history position */
void zf_prompt_label(const char *label);                       /* "zf> ", "filter> " */
void zf_prompt_set(const char *text);                          /* what is being typed */
bool zf_prompt_empty(void);                                    /* nothing is being typed */
bool zf_prompt_takes_escape(void);                             /* vi's insertion mode, a search: ESC is readline's */
bool zf_prompt_binds(const unsigned char *bytes, size_t size); /* a key that does something there */
bool zf_prompt_dirty(void);                                    /* since it was drawn */
void zf_prompt_resize(int cols);
/* In one row, scrolled so that the cursor is seen; sets the canvas' cursor if `active`. */
void zf_prompt_draw(struct zf_canvas *c, struct zf_rect r, bool active);

#endif
