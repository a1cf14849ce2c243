/* What the parts of the console share: app.c (loop), input.c (keys, prompt), commands.c (what keys and lines do), talk.c (the trainer's
 * answers), dialog.c (words over the panels), offers.c (which of them wait), outcome.c (how a run ended). One thread; nothing here blocks.
 */
#ifndef ZF_TUI_APP_IMPL_H
#define ZF_TUI_APP_IMPL_H

#include "tui/app.h"
#include "tui/keys.h"
#include "tui/panel.h"

enum zf_typing { ZF_TYPING_NOTHING, ZF_TYPING_COMMAND, ZF_TYPING_FILTER };
enum zf_dialog { ZF_DIALOG_NONE, ZF_DIALOG_LEAVE, ZF_DIALOG_ASK, ZF_DIALOG_PAGER, ZF_DIALOG_NOTICE };

/* Why a command was sent: whom its answer concerns. */
enum zf_purpose { ZF_FOR_PERSON, ZF_FOR_STATUS, ZF_FOR_OPTIONS, ZF_FOR_NOBODY };
enum { ZF_WAITING_MOST = 64, ZF_MESSAGE_ROWS = 1 };
#define ZF_PASSING 10.0 /* seconds that news stay above the prompt; what is older is no news */

struct zf_app {
    struct zf_feed *feed; /* the caller's */
    const struct zf_console_options *o;
    struct zf_history h;
    struct zf_view v;
    struct zf_canvas c;
    struct zf_layout layout;

    enum zf_typing typing;
    bool pasting; /* between the marks of a paste: nothing is a key */
    /* above the prompt, until the next key; `passing` ones by themselves at `message_until` */
    char *message;
    unsigned message_style;
    double message_until; /* 0: until the next key */
    /* over the panels */
    enum zf_dialog dialog;
    char *dialog_title, *dialog_text;
    char *dialog_command; /* ASK: done at y */
    size_t dialog_scroll;
    struct zf_offer *offers, *offered; /* those that wait; that of the dialog, if it is one, which has its texts */
    double seen_at, key_at;            /* the dialog was on the screen, 0: not yet; the last key */

    struct zf_waiting {
        int64_t id;
        enum zf_purpose purpose;
        char *command;
    } waiting[ZF_WAITING_MOST];
    size_t waiting_count;
    int64_t last_id;
    char said[64];
    json_t *option_rows;
    bool options_asked; /* are to be asked for again */
    size_t watched;     /* the matrix whose scores we asked for in full; SIZE_MAX: none */
    double status_at;   /* when it was asked for last */
    double heard_at;    /* the last line or answer */

    uint64_t notes_seen; /* of all that were added */
    double speed;        /* of a replay, while it stands */
    int colours;         /* of the terminal; 0: none, or none are wanted */

    /* for the loop */
    bool leave, leave_at_end, stopping, redraw, suspend, gone;
    bool dirty; /* a person did something */
    int code;
    char *known; /* why there is no more to come, as the feed told it */
};

/* input.c */
bool zf_app_prompt(struct zf_app *a); /* opens it */
void zf_app_key(struct zf_app *a, const struct zf_key_event *k);

/* commands.c: a line of the prompt or of keys.def. */
void zf_app_command(struct zf_app *a, const char *line);
void zf_app_typing(struct zf_app *a, enum zf_typing what);
void zf_app_filter(struct zf_app *a, const char *text);
/* own.c: those of the console itself, that work on the view alone. ZF_USAGE: why not. */
struct zf_command;
enum zf_status zf_app_own(struct zf_app *a, const struct zf_command *c, struct zf_err *e);
int zf_app_panel(const char *name); /* name or number; -1 */

/* talk.c */
bool zf_app_send(struct zf_app *a, const char *command, bool yes, enum zf_purpose purpose); /* false: it was not sent */
void zf_app_answers(struct zf_app *a);
void zf_app_news(struct zf_app *a); /* after lines have come */
/* Questions of our own: what the trainer does, its options, scores of the matrix that is looked at. Returns seconds until it wants to be
 * called again; below 0: never. */
double zf_app_curious(struct zf_app *a, double now);

/* dialog.c */
void zf_app_say(struct zf_app *a, unsigned style, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void zf_app_pass(struct zf_app *a, unsigned style, const char *text); /* for some seconds, unless something is being said */
void zf_app_log(struct zf_app *a, const char *type, const char *text);
void zf_app_show(struct zf_app *a, enum zf_dialog d, const char *title, const char *text);
void zf_app_close_dialog(struct zf_app *a);
void zf_app_hush(struct zf_app *a);
bool zf_app_dialog_key(struct zf_app *a, uint32_t key); /* false: there is none */
void zf_app_words(struct zf_app *a);                    /* message and dialog, onto the canvas */
char *zf_app_help(const struct zf_app *a);              /* keys and commands; to be freed */

/* offers.c. command: of ASK. */
void zf_app_offer(struct zf_app *a, enum zf_dialog d, const char *title, const char *text, const char *command);
void zf_app_forget_offers(struct zf_app *a);
double zf_app_open_offer(struct zf_app *a, double now); /* if it is time; returns seconds until it may be, below 0: another event first */
bool zf_app_step_back(struct zf_app *a);                /* false: the dialog is none of them */
bool zf_app_too_soon(const struct zf_app *a);           /* for a key to be meant for the dialog */
const char *zf_app_waits(const struct zf_app *a,
                         enum zf_dialog *d); /* the title of that which waits for the line to be empty; NULL: none */

/* outcome.c: how a run ended, from its files: text to be freed, NULL: it has not ended (or they do not tell yet), or no memory. `ended`:
 * its `end` line has been seen. step: the newest that was seen. */
char *zf_outcome(const char *run, bool ended, uint64_t step, int *code);
/* The same from what its lines told, where the directory does not: renamed meanwhile. To be freed. */
char *zf_outcome_told(const char *run, const struct zf_history *h, int *code);
/* The last words on the terminal: that, or else what is `known`, and what to type next. To be freed; NULL: no memory. */
char *zf_farewell(const char *run, bool ended, uint64_t step, const char *known);

#endif
