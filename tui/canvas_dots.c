/* What plots are made of: dots, bars, sparklines, cells of heat maps, in each set of glyphs. Tables of glyphs; no state. */
#include "tui/canvas.h"

#include <math.h>
#include <stdlib.h>

static const uint8_t dots_of[ZF_GLYPH_SETS][2] = {{2, 4}, {1, 8}, {1, 1}};

/* The bit of a dot in a braille character: [column][row]. */
static const uint8_t braille_bit[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

/* Shades of ten, lowest first; heat maps use all, columns leave out the blank: a value of 0 is a value. */
static const char ascii_ramp[] = " .:-=+*#%@";
enum { ASCII_LEVELS = sizeof ascii_ramp - 1 };
static const uint32_t shade_ramp[] = {0x2591, 0x2592, 0x2593, 0x2588};
enum { SHADE_LEVELS = sizeof shade_ramp / sizeof *shade_ramp };

enum { FULL = 0x2588, UPPER_HALF = 0x2580, LOWER_HALF = 0x2584, LIGHT_SHADE = 0x2591 };

/* Lines of one colour, or none: a plot's marks say what they are. */
static uint8_t ascii_mark(unsigned style)
{
    switch (style) {
    case ZF_STYLE_TRAIN: return '.';
    case ZF_STYLE_VALID: return 'o';
    case ZF_STYLE_AXIS:
    case ZF_STYLE_DIM: return ':';
    default: return '*';
    }
}

int zf_dots_x(enum zf_glyphs g)
{
    return dots_of[g][0];
}

int zf_dots_y(enum zf_glyphs g)
{
    return dots_of[g][1];
}

bool zf_dots_open(struct zf_dots *d, const struct zf_canvas *c, struct zf_rect r)
{
    /* Nothing larger than the canvas can be seen, or is asked memory for. */
    r.cols = r.cols < 0 ? 0 : r.cols > c->cols ? c->cols : r.cols;
    r.rows = r.rows < 0 ? 0 : r.rows > c->rows ? c->rows : r.rows;
    *d = (struct zf_dots){.rect = r, .cols = r.cols * zf_dots_x(c->glyphs), .rows = r.rows * zf_dots_y(c->glyphs)};
    size_t cells = (size_t)r.cols * (size_t)r.rows;
    d->on = calloc(cells ? cells : 1, sizeof *d->on);
    d->style = calloc(cells ? cells : 1, sizeof *d->style);
    if (d->on && d->style) return true;
    free(d->on);
    free(d->style);
    *d = (struct zf_dots){.rect = r};
    return false;
}

void zf_dots_span(struct zf_dots *d, enum zf_glyphs g, int x, int top, int bottom, unsigned style)
{
    if (top < 0) top = 0;
    if (bottom >= d->rows) bottom = d->rows - 1;
    if (!d->on || x < 0 || x >= d->cols || top > bottom) return;
    int across = zf_dots_x(g), down = zf_dots_y(g);
    for (int y = top; y <= bottom;) {
        int row = y / down, next = (row + 1) * down;
        size_t i = (size_t)row * (size_t)d->rect.cols + (size_t)(x / across);
        uint8_t on = 0;
        switch (g) {
        case ZF_GLYPHS_BRAILLE:
            for (int k = y; k < next && k <= bottom; k++) on |= braille_bit[x % across][k % down];
            on |= d->on[i];
            break;
        case ZF_GLYPHS_BLOCK: /* a column stands on its cell's bottom; of another line's the later one's height is what is true */
            if (y > top && bottom + 1 - y < down / 2) return; /* hardly in this cell, which would be filled */
            on = (uint8_t)(next - y);
            if (d->style[i] == style && d->on[i] > on) on = d->on[i];
            break;
        default: on = ascii_mark(style);
        }
        d->on[i] = on;
        d->style[i] = (uint16_t)style;
        y = next;
    }
}

void zf_dots_close(struct zf_dots *d, struct zf_canvas *c)
{
    for (int y = 0; d->on && y < d->rect.rows; y++)
        for (int x = 0; x < d->rect.cols; x++) {
            size_t i = (size_t)y * (size_t)d->rect.cols + (size_t)x;
            uint32_t first = c->glyphs == ZF_GLYPHS_BRAILLE ? 0x2800 : c->glyphs == ZF_GLYPHS_BLOCK ? 0x2580 : 0;
            if (d->on[i]) zf_put(c, d->rect, x, y, first + d->on[i], d->style[i]);
        }
    free(d->on);
    free(d->style);
    *d = (struct zf_dots){.rect = d->rect};
}

static double clamp(double share)
{
    return share > 0 ? fmin(share, 1) : 0; /* NaN: 0 */
}

void zf_bar(struct zf_canvas *c, struct zf_rect r, int x, int y, int cols, double share, unsigned style)
{
    if (cols > c->cols) cols = c->cols;
    if (cols <= 0) return;
    share = clamp(share);
    bool ascii = c->glyphs == ZF_GLYPHS_ASCII;
    int parts = ascii ? 1 : 8, on = (int)(share * cols * parts);
    if (share > 0 && !on) on = 1; /* a little is not nothing */
    for (int i = 0; i < cols; i++, on -= parts) {
        uint32_t code = on <= 0 ? (ascii ? '.' : LIGHT_SHADE) : ascii ? '#' : (uint32_t)(FULL + 8 - (on < 8 ? on : 8));
        zf_put(c, r, x + i, y, code, on > 0 ? style : ZF_STYLE_DIM);
    }
}

void zf_spark(struct zf_canvas *c, struct zf_rect r, int x, int y, const float *share, int count, unsigned style)
{
    bool ascii = c->glyphs == ZF_GLYPHS_ASCII;
    int levels = ascii ? ASCII_LEVELS - 1 : 8;
    for (int i = 0; i < count && i < r.cols - x; i++) {
        int level = (int)(clamp(share[i]) * levels);
        if (level == levels) level--;
        uint32_t code = !(share[i] >= 0) ? ' ' : ascii ? (uint32_t)ascii_ramp[level + 1] : (uint32_t)(FULL - 7 + level);
        zf_put(c, r, x + i, y, code, style);
    }
}

int zf_heat_rows(const struct zf_canvas *c)
{
    return c->shades || c->glyphs == ZF_GLYPHS_ASCII ? 1 : 2;
}

void zf_heat(struct zf_canvas *c, struct zf_rect r, int x, int y, int upper, int lower)
{
    enum { LAST = ZF_HEAT_LEVELS - 1 };
    if (upper > LAST) upper = LAST;
    if (lower > LAST) lower = LAST;
    uint32_t code = ' ';
    unsigned style = ZF_STYLE_TEXT;
    if (zf_heat_rows(c) == 1) {
        if (upper >= 0)
            code = c->glyphs == ZF_GLYPHS_ASCII ? (uint32_t)ascii_ramp[upper * ASCII_LEVELS / ZF_HEAT_LEVELS]
                                                : shade_ramp[upper * SHADE_LEVELS / ZF_HEAT_LEVELS];
    } else if (upper >= 0 && lower >= 0) {
        code = UPPER_HALF, style = (unsigned)(ZF_STYLE_HEAT + ZF_HEAT_LEVELS * upper + lower);
    } else if (upper >= 0 || lower >= 0) {
        code = upper >= 0 ? UPPER_HALF : LOWER_HALF, style = (unsigned)(ZF_STYLE_HEAT_ONE + (upper >= 0 ? upper : lower));
    }
    zf_put(c, r, x, y, code, style);
}
