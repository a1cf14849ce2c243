/* What a frame is before it reaches a terminal: cells of a character and a style. Panels draw here and nowhere else; screen.c puts a
 * canvas on a terminal, canvas_text.c prints it (snapshots, tests, `write`). Everything is clipped to a rectangle: no caller checks sizes.
 *
 * Text may come from files, models, other users: control characters, escape sequences and invalid UTF-8 become a visible mark, a wide
 * character takes two cells (the right one is ZF_CELL_RIGHT), what has no width is dropped. Pure but for memory; one thread. */
#ifndef ZF_TUI_CANVAS_H
#define ZF_TUI_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a cell means; theme.c says how that looks. HEAT_n: a level of a heat map, ZF_HEAT_LEVELS of them follow. */
/* clang-format off */
#define ZF_STYLE_MAP(X) \
    X(TEXT) X(DIM) X(STRONG) X(TITLE) X(FRAME) X(FOCUS) X(KEY) X(GOOD) X(WARN) X(BAD) X(CURSOR) X(SELECTED) X(PROMPT) \
    X(TRAIN) X(SMOOTH) X(VALID) X(MARK) X(AXIS) \
    X(ACC) X(UP) X(UPLOAD) X(BUSY) X(FORWARD) X(COPY) X(STALL)
/* clang-format on */
enum zf_style {
#define X(name) ZF_STYLE_##name,
    ZF_STYLE_MAP(X)
#undef X
        ZF_STYLES
};

enum { ZF_HEAT_LEVELS = 16 };

/* A style, or a heat map's pair: ZF_STYLE_HEAT + 16 * upper + lower half of the cell, levels 0..15; HEAT_ONE + level: a half without the
 * other, the last row of an odd number. */
enum {
    ZF_STYLE_HEAT = 64,
    ZF_STYLE_HEAT_END = ZF_STYLE_HEAT + ZF_HEAT_LEVELS * ZF_HEAT_LEVELS,
    ZF_STYLE_HEAT_ONE = ZF_STYLE_HEAT_END,
    ZF_STYLE_END = ZF_STYLE_HEAT_ONE + ZF_HEAT_LEVELS
};

enum zf_glyphs { ZF_GLYPHS_BRAILLE, ZF_GLYPHS_BLOCK, ZF_GLYPHS_ASCII, ZF_GLYPH_SETS };
extern const char *const zf_glyph_names[ZF_GLYPH_SETS]; /* "braille", "block", "ascii" */

enum { ZF_CELL_RIGHT = 0xffffffff }; /* the second cell of a wide character */
struct zf_cell {
    uint32_t code; /* a code point; 0 never */
    uint16_t style;
};

struct zf_rect {
    int x, y, cols, rows;
};

struct zf_canvas {
    int cols, rows;
    struct zf_cell *cell;   /* [rows][cols] */
    enum zf_glyphs glyphs;  /* what plots are drawn with; frames and marks follow it */
    bool shades;            /* heat maps in shades, not colours: few colours, or none */
    int cursor_x, cursor_y; /* of the terminal; below 0: hidden */
};

/* Blanks everywhere. false: no memory, the canvas is 0x0. Again with another size is fine; what is larger than MOST_* is cut. */
enum { ZF_CANVAS_MOST_COLS = 1024, ZF_CANVAS_MOST_ROWS = 512 };
bool zf_canvas_resize(struct zf_canvas *c, int cols, int rows);
void zf_canvas_clear(struct zf_canvas *c);
void zf_canvas_free(struct zf_canvas *c);

struct zf_rect zf_canvas_all(const struct zf_canvas *c);
/* x, y below are within r. */
void zf_put(struct zf_canvas *c, struct zf_rect r, int x, int y, uint32_t code, unsigned style);
/* Returns the columns that the text takes, whether they fit or not. */
int zf_text(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *text);
int zf_textf(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* Ends at the right edge; of what is too long the beginning is cut off. */
int zf_text_right(struct zf_canvas *c, struct zf_rect r, int y, unsigned style, const char *text);
/* Columns of the first `size` bytes (of all: SIZE_MAX), as they would be drawn. */
int zf_text_width(const char *text, size_t size);
void zf_fill(struct zf_canvas *c, struct zf_rect r, uint32_t code, unsigned style);
/* A frame with a title at its top left and a note at its bottom; what is inside. Without room for one (fewer than 3 rows or 4 columns): a
 * line with the title, or nothing. */
struct zf_rect zf_frame(struct zf_canvas *c, struct zf_rect r, bool focus, const char *title, const char *note);

/* Dots: a cell has zf_dots_x() * zf_dots_y() of them, by the set of glyphs (braille 2x4, block 1x8 as columns, ascii 1x1). A plot collects
 * them for a rectangle and puts them down at once; the later style of a cell wins. */
int zf_dots_x(enum zf_glyphs g);
int zf_dots_y(enum zf_glyphs g);
struct zf_dots {
    struct zf_rect rect;
    int cols, rows;  /* in dots */
    uint8_t *on;     /* [rows of cells][cols of cells]: bits (braille), height (block), mark (ascii) */
    uint16_t *style; /* the same */
};
bool zf_dots_open(struct zf_dots *d, const struct zf_canvas *c, struct zf_rect r);
/* A vertical span of dots, top..bottom (0 is the top), in column x. */
void zf_dots_span(struct zf_dots *d, enum zf_glyphs g, int x, int top, int bottom, unsigned style);
void zf_dots_close(struct zf_dots *d, struct zf_canvas *c); /* draws, frees */

/* A bar of `share` (0..1) of the width, in eighths. */
void zf_bar(struct zf_canvas *c, struct zf_rect r, int x, int y, int cols, double share, unsigned style);
/* A row of values 0..1 as columns an eighth high (sparkline); below 0: blank. */
void zf_spark(struct zf_canvas *c, struct zf_rect r, int x, int y, const float *share, int count, unsigned style);
/* A cell of a heat map with one (ascii, shades) or two levels above each other; below 0: nothing there. */
void zf_heat(struct zf_canvas *c, struct zf_rect r, int x, int y, int upper, int lower);
int zf_heat_rows(const struct zf_canvas *c); /* values above each other in a cell: 2 with colours and half blocks, else 1 */

/* The canvas as text, a line a row, blanks at the ends cut off. styles: a second block of the same form after an empty line, a letter a
 * style (TEXT is '.', a blank of it ' '; the others are canvas_text.c's; a heat map's upper half 0..f) and, if there is any heat map, a
 * third one with its lower halves ('-' if it has only one). To be freed; NULL: no memory. */
char *zf_canvas_text(const struct zf_canvas *c, bool styles);
char *zf_canvas_svg(const struct zf_canvas *c, struct zf_rect r, int scheme); /* theme.h's; the same, with its colours */

#endif
