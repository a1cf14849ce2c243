/* What a person has chosen to see: everything panels look at beside the history. Commands and keys change it (commands.c). Plain data. */
#ifndef ZF_TUI_VIEW_H
#define ZF_TUI_VIEW_H

#include "tui/history.h"
#include "tui/theme.h"

/* In the order of their numbers on the screen, 1.. */
/* clang-format off */
#define ZF_PANEL_MAP(X) X(LOSS, loss) X(DEVICE, device) X(LANES, lanes) X(BUFFERS, buffers) X(CHANNELS, channels) X(RUN, run) X(LOG, log) \
    X(SAMPLES, samples) X(OPTIONS, options)
/* clang-format on */
enum zf_panel_id {
#define X(name, word) ZF_PANEL_##name,
    ZF_PANEL_MAP(X)
#undef X
        ZF_PANELS
};

extern const char *const zf_panel_words[ZF_PANELS]; /* "loss", ... */
/* Where a name stands; count: nowhere. */
size_t zf_name_index(const char *name, const char *const *names, size_t count);

enum zf_link { ZF_LINK_LIVE, ZF_LINK_FILES, ZF_LINK_REPLAY, ZF_LINK_ENDED, ZF_LINK_LOST };

struct zf_view {
    const struct zf_history *h;
    enum zf_scheme scheme;
    enum zf_glyphs glyphs;
    bool shown[ZF_PANELS];
    enum zf_panel_id focus;
    int zoomed; /* a panel, -1: none */

    uint64_t smooth;   /* steps of the exponential mean; 0: none */
    bool log_scale;    /* loss */
    uint64_t from, to; /* steps shown; to 0: up to the newest, from counts back then if `tail` */
    uint64_t tail;     /* 0: the whole run; else the newest so many */
    bool cursor;       /* values at cursor_step are shown */
    uint64_t cursor_step;
    uint64_t cursor_row;         /* channels: row of the map */
    bool fixed_scale;            /* channels: energies 0..1, not by what is there */
    size_t matrix;               /* channels: zoomed on this one; SIZE_MAX: all layers */
    char filter[ZF_PANELS][128]; /* of those that have one (panel.h): part of the name; "" all */
    uint64_t scroll[ZF_PANELS];  /* log, samples, options: lines back, or down */

    /* for headers */
    const char *run; /* the run directory */
    enum zf_link link;
    const char *said; /* what the trainer is doing, "paused"; "" */
    double silent;    /* seconds without a word of a trainer that should be there; 0: it speaks */
    bool died;        /* of a recording: its trainer ended without a word */
    bool read_only;
    double speed; /* of a replay; 0: it stands */
    bool mouse;
    const json_t *option_rows; /* the options as `show --json` tells them; NULL: not known */
};

void zf_view_init(struct zf_view *v, const struct zf_history *h);
/* Will there be more steps, as far as is known? */
bool zf_view_goes_on(const struct zf_view *v);
/* First and last step that plots show. */
void zf_view_steps(const struct zf_view *v, uint64_t *first, uint64_t *last);

#endif
