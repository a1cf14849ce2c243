/* What panels share: text that is cut or broken to a width, marks, values by column. Pure but for the canvas. */
#ifndef ZF_TUI_PARTS_H
#define ZF_TUI_PARTS_H

#include "core/telemetry/eta.h"
#include "tui/format.h"
#include "tui/panel.h"

/* How a kind of note looks on an axis and in the log. */
struct zf_mark {
    uint32_t glyph;
    char letter; /* in ASCII */
    uint16_t style;
    bool axis;                 /* shown on the axis of steps */
    const char *word, *legend; /* in the log; below the axis, NULL: not there */
};
extern const struct zf_mark zf_mark_table[ZF_NOTE_KINDS];
uint32_t zf_mark_glyph(const struct zf_canvas *c, enum zf_note_kind kind);
static inline uint32_t zf_glyph(const struct zf_canvas *c, uint32_t code, char ascii)
{
    return c->glyphs == ZF_GLYPHS_ASCII ? (uint32_t)ascii : code;
}

/* To the end of text, which stays terminated. */
void zf_append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* In at most `cols` columns; cut text ends with a mark. Returns the columns that were used. */
int zf_fit(struct zf_canvas *c, struct zf_rect r, int x, int y, int cols, unsigned style, const char *text);
/* How many bytes of text go into a line of `cols` columns, broken at a blank or a newline; *next: where the next line begins. At least one
 * character, 0 at the end. */
size_t zf_wrap(const char *text, int cols, size_t *next);
/* The first `size` bytes, at most `cols` columns. */
void zf_piece(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *text, size_t size);
/* A dim sentence in the middle: why there is nothing to see. */
void zf_say(struct zf_canvas *c, struct zf_rect r, const char *text);
bool zf_matches(const char *text, const char *filter); /* somewhere in it, whatever the case; "": yes */

/* Steps from..to of piece i of n of first..last. false: there are fewer steps than pieces, and none begins here. */
struct zf_step_range {
    uint64_t from, to;
};
bool zf_piece_steps(uint64_t first, uint64_t last, int i, int n, struct zf_step_range *out);
/* The piece that a step is in. */
int zf_piece_of(uint64_t first, uint64_t last, uint64_t step, int n);
/* First and last step of a plot: those of the view, with an end that moves in jumps, so that what is drawn stands still between them. */
void zf_axis_steps(const struct zf_view *v, uint64_t *first, uint64_t *last);

/* The cursor's column, if r stands for first..last and it is among them. over: in place of what is there. */
void zf_cursor_column(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, uint64_t first, uint64_t last, bool over);
/* Rows for a file: a step each, or as many pieces of the steps shown; 0: no step yet. */
int zf_table_pieces(const struct zf_view *v, uint64_t *first, uint64_t *last);

/* A value for each of n pieces (NaN: none): mean or most of `s`; with `per` the sum of `s` by the sum of `per`. Pieces without a step have
 * the value of the one before. */
enum zf_how { ZF_HOW_MEAN, ZF_HOW_MOST };
void zf_sample(const struct zf_series *s, const struct zf_series *per, enum zf_how how, uint64_t first, uint64_t last, double *out, int n);
/* The value at a step (the cursor's) or of the newest one; NaN: none. */
double zf_value_now(const struct zf_view *v, enum zf_series_id id);
/* The one figure for how it goes now, in all panels: the mean of the newest steps (those whose pace ETA goes by), or the cursor's step
 * alone. per: a series, of the sums then; -1: none. */
enum { ZF_RECENT_STEPS = ZF_ETA_WINDOW };
double zf_recent(const struct zf_view *v, enum zf_series_id id, int per);
const struct zf_series *zf_per(const struct zf_view *v, int per); /* NULL for -1 */
bool zf_have(const struct zf_history *h, enum zf_series_id id);

/* One of a power of ten times 1, 2 or 5 that is not below x. */
double zf_nice(double x);

#define X(name, word) \
    void zf_draw_##word(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r); \
    void zf_frame_##word(const struct zf_view *v, char *title, char *note, size_t size); \
    void zf_table_##word(const struct zf_view *v, struct zf_table *out);
ZF_PANEL_MAP(X)
#undef X
uint64_t zf_scrolls_channels(const struct zf_view *v, struct zf_rect r);
uint64_t zf_scrolls_log(const struct zf_view *v, struct zf_rect r);
uint64_t zf_scrolls_samples(const struct zf_view *v, struct zf_rect r);
uint64_t zf_scrolls_options(const struct zf_view *v, struct zf_rect r);

/* channels: one matrix by its channels (channel_map.c). */
void zf_draw_channel_map(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r);
void zf_table_channel_map(const struct zf_view *v, struct zf_table *out);
/* 0..ZF_HEAT_LEVELS-1; -1: not known. In shades the lowest is no blank: that is what is not known. */
int zf_level(const struct zf_canvas *c, double value, double least, double most);
/* A ramp with its ends in words; returns its columns. */
int zf_ramp(struct zf_canvas *c, struct zf_rect r, int x, int y, const char *least, const char *most);

#endif
