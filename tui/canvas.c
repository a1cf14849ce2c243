/* Cells: where things may be drawn, what text turns into, frames. Nothing that was read from outside gets into a cell unless it is a
 * character of one or two columns that a terminal shows and does not obey. Owns the cells of a canvas; one thread. */
#include "tui/canvas.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

const char *const zf_glyph_names[ZF_GLYPH_SETS] = {"braille", "block", "ascii"};

/* What stands for a character that is not shown: by the set of glyphs. */
static const uint32_t hidden_mark[ZF_GLYPH_SETS] = {0xfffd, 0xfffd, '?'};
static const uint32_t cut_mark[ZF_GLYPH_SETS] = {0x2026, 0x2026, '~'};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

bool zf_canvas_resize(struct zf_canvas *c, int cols, int rows)
{
    cols = least(most(cols, 0), ZF_CANVAS_MOST_COLS);
    rows = least(most(rows, 0), ZF_CANVAS_MOST_ROWS);
    size_t cells = (size_t)cols * (size_t)rows;
    if (!c->cell || cells != (size_t)c->cols * (size_t)c->rows) {
        struct zf_cell *cell = malloc((cells ? cells : 1) * sizeof *cell);
        free(c->cell);
        c->cell = cell;
    }
    c->cols = c->cell ? cols : 0;
    c->rows = c->cell ? rows : 0;
    zf_canvas_clear(c);
    return c->cell;
}

void zf_canvas_clear(struct zf_canvas *c)
{
    size_t cells = (size_t)c->cols * (size_t)c->rows;
    for (size_t i = 0; i < cells; i++) c->cell[i] = (struct zf_cell){' ', ZF_STYLE_TEXT};
    c->cursor_x = c->cursor_y = -1;
}

void zf_canvas_free(struct zf_canvas *c)
{
    free(c->cell);
    c->cell = NULL;
    c->cols = c->rows = 0;
}

struct zf_rect zf_canvas_all(const struct zf_canvas *c)
{
    return (struct zf_rect){0, 0, c->cols, c->rows};
}

/* The part of r that is on the canvas, as first and last + 1; empty: x0 >= x1 or y0 >= y1. Sums in 64 bits: rectangles may be anything. */
struct clip {
    int64_t x, y; /* where r begins */
    int x0, y0, x1, y1;
};

static int within(int64_t v, int end)
{
    return v < 0 ? 0 : v > end ? end : (int)v;
}

static struct clip clip_to(const struct zf_canvas *c, struct zf_rect r)
{
    return (struct clip){r.x,
                         r.y,
                         within(r.x, c->cols),
                         within(r.y, c->rows),
                         within((int64_t)r.x + most(r.cols, 0), c->cols),
                         within((int64_t)r.y + most(r.rows, 0), c->rows)};
}

/* Columns of a code point: 1 or 2; 0: it is left out; below 0: a mark stands for it. What joins (variation, skin) is left out: a terminal
 * that joins would use fewer columns than we counted. */
static int width_of(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return -1;
    if (code < 0x7f || (code >= 0x2500 && code < 0x25a0) || (code >= 0x2800 && code < 0x2900)) return 1;
    if (code > 0x10ffff) return -1;
    if (code >= 0x1f3fb && code <= 0x1f3ff) return 0;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return -1;
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME: return 0;
    default: return utf8proc_charwidth((utf8proc_int32_t)code);
    }
}

static void set_cell(struct zf_canvas *c, int x, int y, uint32_t code, unsigned style)
{
    struct zf_cell *row = c->cell + (size_t)y * (size_t)c->cols;
    if (row[x].code == (uint32_t)ZF_CELL_RIGHT && x > 0) row[x - 1].code = ' ';
    if (x + 1 < c->cols && row[x + 1].code == (uint32_t)ZF_CELL_RIGHT) row[x + 1].code = ' ';
    row[x] = (struct zf_cell){code, (uint16_t)style};
}

/* A character of `width` columns at column x of the canvas; of a wide one that is cut in two a blank is left. */
static void place(struct zf_canvas *c, const struct clip *k, int64_t x, int64_t y, uint32_t code, int width, unsigned style)
{
    if (y < k->y0 || y >= k->y1) return;
    bool left = x >= k->x0 && x < k->x1, right = width == 2 && x + 1 >= k->x0 && x + 1 < k->x1;
    bool whole = left && (right || width == 1);
    if (left) set_cell(c, (int)x, (int)y, whole ? code : ' ', style);
    if (right) set_cell(c, (int)x + 1, (int)y, ' ', style);
    if (whole && right) c->cell[(size_t)y * (size_t)c->cols + (size_t)x + 1].code = (uint32_t)ZF_CELL_RIGHT;
}

void zf_put(struct zf_canvas *c, struct zf_rect r, int x, int y, uint32_t code, unsigned style)
{
    struct clip k = clip_to(c, r);
    int width = width_of(code);
    if (width <= 0) code = hidden_mark[c->glyphs], width = 1;
    place(c, &k, k.x + x, k.y + y, code, width, style);
}

/* The next character of s..end (end NULL: up to its 0), its width as of width_of; false: no more. */
static bool next(const char **s, const char *end, uint32_t *code, int *width)
{
    if (end ? *s >= end : !**s) return false;
    unsigned char b = (unsigned char)**s;
    if (b < 0x80) {
        *code = b, ++*s;
    } else {
        utf8proc_int32_t u = 0;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)*s, end ? end - *s : -1, &u);
        *code = n > 0 ? (uint32_t)u : 0; /* 0: a mark, for this byte alone */
        *s += n > 0 ? n : 1;
    }
    *width = width_of(*code);
    return true;
}

int zf_text_width(const char *text, size_t size)
{
    int64_t columns = 0;
    uint32_t code;
    int width;
    const char *end = size == SIZE_MAX ? NULL : text + strnlen(text, size);
    while (next(&text, end, &code, &width)) columns += width < 0 ? 1 : width;
    return within(columns, INT32_MAX);
}

int zf_text(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *text)
{
    struct clip k = clip_to(c, r);
    int64_t columns = 0;
    uint32_t code;
    int width;
    while (next(&text, NULL, &code, &width)) {
        if (!width) continue;
        if (width < 0) code = hidden_mark[c->glyphs], width = 1;
        place(c, &k, k.x + x + columns, k.y + y, code, width, style);
        columns += width;
    }
    return within(columns, INT32_MAX);
}

int zf_textf(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *fmt, ...)
{
    char fits[512], *text = fits;
    va_list ap;
    va_start(ap, fmt);
    int size = vsnprintf(fits, sizeof fits, fmt, ap);
    va_end(ap);
    if (size >= (int)sizeof fits) {
        va_start(ap, fmt);
        if (vasprintf(&text, fmt, ap) < 0) text = fits; /* no memory: its beginning */
        va_end(ap);
    }
    int columns = size < 0 ? 0 : zf_text(c, r, x, y, style, text);
    if (text != fits) free(text);
    return columns;
}

int zf_text_right(struct zf_canvas *c, struct zf_rect r, int y, unsigned style, const char *text)
{
    int columns = zf_text_width(text, SIZE_MAX);
    return zf_text(c, r, most(r.cols, 0) - columns, y, style, text);
}

void zf_fill(struct zf_canvas *c, struct zf_rect r, uint32_t code, unsigned style)
{
    for (struct clip k = clip_to(c, r); k.y0 < k.y1; k.y0++)
        for (int x = k.x0; x < k.x1; x++) zf_put(c, r, (int)(x - k.x), (int)(k.y0 - k.y), code, style);
}

/* Text in `room` columns, with a mark where it was cut. */
static void text_cut(struct zf_canvas *c, struct zf_rect r, int x, int y, int room, unsigned style, const char *text)
{
    int columns = zf_text_width(text, SIZE_MAX);
    struct zf_rect part = {r.x + x, r.y + y, columns > room ? room - 1 : columns, 1};
    zf_text(c, part, 0, 0, style, text);
    if (columns > room) zf_put(c, r, x + room - 1, y, cut_mark[c->glyphs], style);
}

enum { ACROSS, DOWN, TOP_LEFT, TOP_RIGHT, LOW_LEFT, LOW_RIGHT, FRAME_PARTS };
/* The focus is told by the lines' form, too. Heavy lines are not in the fonts of consoles, double ones are. */
static const uint32_t frame_of[ZF_GLYPH_SETS][2][FRAME_PARTS] = {
    [ZF_GLYPHS_BRAILLE] = {{0x2500, 0x2502, 0x250c, 0x2510, 0x2514, 0x2518}, {0x2501, 0x2503, 0x250f, 0x2513, 0x2517, 0x251b}},
    [ZF_GLYPHS_BLOCK] = {{0x2500, 0x2502, 0x250c, 0x2510, 0x2514, 0x2518}, {0x2550, 0x2551, 0x2554, 0x2557, 0x255a, 0x255d}},
    [ZF_GLYPHS_ASCII] = {{'-', '|', '+', '+', '+', '+'}, {'=', '|', '#', '#', '#', '#'}},
};

/* Sums of two such numbers fit. */
static int tame(int v)
{
    enum { FAR = 1 << 20 };
    return least(most(v, -FAR), FAR);
}

struct zf_rect zf_frame(struct zf_canvas *c, struct zf_rect r, bool focus, const char *title, const char *note)
{
    r = (struct zf_rect){tame(r.x), tame(r.y), tame(r.cols), tame(r.rows)};
    bool titled = title && *title;
    if (r.cols < 4 || r.rows < 3) {
        if (r.cols < 4 || r.rows < 2 || !titled) return r;
        text_cut(c, r, 0, 0, r.cols, focus ? ZF_STYLE_FOCUS : ZF_STYLE_TITLE, title);
        return (struct zf_rect){r.x, r.y + 1, r.cols, r.rows - 1};
    }
    const uint32_t *line = frame_of[c->glyphs][focus];
    unsigned style = focus ? ZF_STYLE_FOCUS : ZF_STYLE_FRAME;
    int right = r.cols - 1, low = r.rows - 1;
    zf_fill(c, (struct zf_rect){r.x + 1, r.y, right - 1, 1}, line[ACROSS], style);
    zf_fill(c, (struct zf_rect){r.x + 1, r.y + low, right - 1, 1}, line[ACROSS], style);
    zf_fill(c, (struct zf_rect){r.x, r.y + 1, 1, low - 1}, line[DOWN], style);
    zf_fill(c, (struct zf_rect){r.x + right, r.y + 1, 1, low - 1}, line[DOWN], style);
    zf_put(c, r, 0, 0, line[TOP_LEFT], style);
    zf_put(c, r, right, 0, line[TOP_RIGHT], style);
    zf_put(c, r, 0, low, line[LOW_LEFT], style);
    zf_put(c, r, right, low, line[LOW_RIGHT], style);

    int room = least(r.cols - 4, titled ? zf_text_width(title, SIZE_MAX) : 0);
    if (room > 0) {
        zf_fill(c, (struct zf_rect){r.x + 1, r.y, room + 2, 1}, ' ', style);
        text_cut(c, r, 2, 0, room, focus ? ZF_STYLE_FOCUS : ZF_STYLE_TITLE, title);
    }
    room = least(r.cols - 6, note ? zf_text_width(note, SIZE_MAX) : 0);
    if (room > 0) {
        zf_fill(c, (struct zf_rect){r.x + 2, r.y + low, room + 2, 1}, ' ', style);
        text_cut(c, r, 3, low, room, ZF_STYLE_DIM, note);
    }
    return (struct zf_rect){r.x + 1, r.y + 1, r.cols - 2, r.rows - 2};
}
