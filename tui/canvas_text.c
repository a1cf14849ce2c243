/* A canvas as text (golden files, snapshots, `write`) and as a picture. Pure; what is returned is the caller's. */
#include "tui/theme.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Part of golden files: a letter once given stays. 0..9, a..f are levels of heat. */
static const char style_letter[ZF_STYLES] = {
    [ZF_STYLE_TEXT] = '.',   [ZF_STYLE_DIM] = 'D',      [ZF_STYLE_STRONG] = 'S',  [ZF_STYLE_TITLE] = 'T', [ZF_STYLE_FRAME] = 'F',
    [ZF_STYLE_FOCUS] = 'O',  [ZF_STYLE_KEY] = 'K',      [ZF_STYLE_GOOD] = 'G',    [ZF_STYLE_WARN] = 'W',  [ZF_STYLE_BAD] = 'B',
    [ZF_STYLE_CURSOR] = 'C', [ZF_STYLE_SELECTED] = 'E', [ZF_STYLE_PROMPT] = 'P',  [ZF_STYLE_TRAIN] = 'R', [ZF_STYLE_SMOOTH] = 'M',
    [ZF_STYLE_VALID] = 'V',  [ZF_STYLE_MARK] = '^',     [ZF_STYLE_AXIS] = 'X',    [ZF_STYLE_ACC] = 'A',   [ZF_STYLE_UP] = 'U',
    [ZF_STYLE_UPLOAD] = 'L', [ZF_STYLE_BUSY] = 'Y',     [ZF_STYLE_FORWARD] = '>', [ZF_STYLE_COPY] = '=',  [ZF_STYLE_STALL] = '!',
};
static const char level_digit[] = "0123456789abcdef";

enum plane { GLYPHS, STYLES, LOWER_HALVES };

static bool is_pair(unsigned style)
{
    return style >= ZF_STYLE_HEAT && style < ZF_STYLE_HEAT_END;
}

static bool is_one(unsigned style)
{
    return style >= ZF_STYLE_HEAT_ONE && style < ZF_STYLE_END;
}

static char letter_of(struct zf_cell cell, enum plane plane)
{
    unsigned style = cell.style;
    if (is_pair(style))
        return level_digit[plane == STYLES ? (style - ZF_STYLE_HEAT) / ZF_HEAT_LEVELS : (style - ZF_STYLE_HEAT) % ZF_HEAT_LEVELS];
    if (is_one(style)) return plane == STYLES ? level_digit[style - ZF_STYLE_HEAT_ONE] : '-';
    if (plane == LOWER_HALVES || (style == ZF_STYLE_TEXT && cell.code == ' ')) return ' ';
    return style < ZF_STYLES && style_letter[style] ? style_letter[style] : '?';
}

static void print_code(FILE *f, uint32_t code)
{
    utf8proc_uint8_t b[4];
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)code, b);
    if (n > 0) fwrite(b, 1, (size_t)n, f);
}

static void print_plane(FILE *f, const struct zf_canvas *c, enum plane plane)
{
    for (int y = 0; y < c->rows; y++) {
        const struct zf_cell *row = c->cell + (size_t)y * (size_t)c->cols;
        int end = c->cols;
        while (end && (plane == GLYPHS ? row[end - 1].code == ' ' : letter_of(row[end - 1], plane) == ' ')) end--;
        for (int x = 0; x < end; x++) {
            if (plane != GLYPHS)
                fputc(letter_of(row[x], plane), f);
            else if (row[x].code != (uint32_t)ZF_CELL_RIGHT)
                print_code(f, row[x].code);
        }
        fputc('\n', f);
    }
}

static char *finish(FILE *f, char **text)
{
    bool bad = ferror(f);
    bad |= fclose(f) != 0;
    if (!bad) return *text;
    free(*text);
    return NULL;
}

char *zf_canvas_text(const struct zf_canvas *c, bool styles)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    print_plane(f, c, GLYPHS);
    if (styles) {
        bool heat = false;
        for (size_t i = 0; i < (size_t)c->cols * (size_t)c->rows && !heat; i++)
            heat = is_pair(c->cell[i].style) || is_one(c->cell[i].style);
        fputc('\n', f);
        print_plane(f, c, STYLES);
        if (heat) {
            fputc('\n', f);
            print_plane(f, c, LOWER_HALVES);
        }
    }
    return finish(f, &text);
}

/* --- SVG. Lines, blocks and dots are drawn, not written: fonts leave gaps between them. --- */

enum { CELL_X = 8, CELL_Y = 16, BASE = 12 };

struct ink {
    uint32_t fg, bg;
    unsigned attributes;
    bool own_bg;
};

static struct ink ink_of(unsigned style, enum zf_scheme scheme, uint32_t paper, uint32_t pen)
{
    struct zf_look look = zf_theme_look(scheme, 256, style);
    struct ink k = {look.fg < 0 ? pen : zf_theme_rgb(look.fg), look.bg < 0 ? paper : zf_theme_rgb(look.bg), look.attributes, look.bg >= 0};
    if (look.attributes & ZF_ATTR_REVERSE) {
        uint32_t fg = k.fg;
        k.fg = k.bg, k.bg = fg, k.own_bg = true;
    }
    return k;
}

static void svg_rect(FILE *f, int x, int y, int w, int h, uint32_t colour, const char *more)
{
    fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%06" PRIx32 "\"%s/>\n", x, y, w, h, colour, more);
}

/* Lines of frames: towards which sides, and how (1 thin, 2 heavy, 3 double). */
enum { LEFT = 1, RIGHT = 2, UPWARDS = 4, DOWNWARDS = 8 };
enum { CORNER_1 = RIGHT | DOWNWARDS, CORNER_2 = LEFT | DOWNWARDS, CORNER_3 = RIGHT | UPWARDS, CORNER_4 = LEFT | UPWARDS };
static const struct line {
    uint16_t code;
    uint8_t sides, form;
} lines[] = {
    {0x2500, LEFT | RIGHT, 1},
    {0x2502, UPWARDS | DOWNWARDS, 1},
    {0x250c, CORNER_1, 1},
    {0x2510, CORNER_2, 1},
    {0x2514, CORNER_3, 1},
    {0x2518, CORNER_4, 1},
    {0x251c, CORNER_1 | CORNER_3, 1},
    {0x2524, CORNER_2 | CORNER_4, 1},
    {0x252c, CORNER_1 | CORNER_2, 1},
    {0x2534, CORNER_3 | CORNER_4, 1},
    {0x253c, CORNER_1 | CORNER_4, 1},
    {0x2501, LEFT | RIGHT, 2},
    {0x2503, UPWARDS | DOWNWARDS, 2},
    {0x250f, CORNER_1, 2},
    {0x2513, CORNER_2, 2},
    {0x2517, CORNER_3, 2},
    {0x251b, CORNER_4, 2},
    {0x2550, LEFT | RIGHT, 3},
    {0x2551, UPWARDS | DOWNWARDS, 3},
    {0x2554, CORNER_1, 3},
    {0x2557, CORNER_2, 3},
    {0x255a, CORNER_3, 3},
    {0x255d, CORNER_4, 3},
};

static const struct line *line_of(uint32_t code)
{
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].code == code) return &lines[i];
    return NULL;
}

/* A cell's lines, their middle moved by dx, dy. */
static void svg_sides(FILE *f, int x, int y, unsigned sides, int dx, int dy)
{
    int cx = x + CELL_X / 2 + dx, cy = y + CELL_Y / 2 + dy;
    if (sides & LEFT) fprintf(f, "M%d %dH%d", cx, cy, x);
    if (sides & RIGHT) fprintf(f, "M%d %dH%d", cx, cy, x + CELL_X);
    if (sides & UPWARDS) fprintf(f, "M%d %dV%d", cx, cy, y);
    if (sides & DOWNWARDS) fprintf(f, "M%d %dV%d", cx, cy, y + CELL_Y);
}

static void svg_line(FILE *f, int x, int y, const struct line *l, uint32_t fg)
{
    /* A double line is drawn twice: one corner is outside of the other. */
    int dx = l->form < 3 ? 0 : l->sides & RIGHT ? 1 : -1, dy = l->form < 3 ? 0 : l->sides & DOWNWARDS ? 1 : -1;
    fprintf(f, "<path stroke=\"#%06" PRIx32 "\" stroke-width=\"%d\" stroke-linecap=\"square\" d=\"", fg, l->form == 2 ? 2 : 1);
    svg_sides(f, x, y, l->sides, dx, dy);
    if (l->form == 3) svg_sides(f, x, y, l->sides, -dx, -dy);
    fprintf(f, "\"/>\n");
}

/* Lines, blocks and braille as shapes; false: it is a letter. */
static bool svg_shape(FILE *f, int x, int y, uint32_t code, uint32_t fg)
{
    static const char *const opacity[] = {" fill-opacity=\".25\"", " fill-opacity=\".5\"", " fill-opacity=\".75\""};
    const struct line *line = line_of(code);
    int part = (int)code - 0x2580;
    if (line) {
        svg_line(f, x, y, line, fg);
    } else if (code == 0x2580) {
        svg_rect(f, x, y, CELL_X, CELL_Y / 2, fg, "");
    } else if (code >= 0x2581 && code <= 0x2588) {
        svg_rect(f, x, y + CELL_Y - part * 2, CELL_X, part * 2, fg, "");
    } else if (code >= 0x2589 && code <= 0x258f) {
        svg_rect(f, x, y, 16 - part, CELL_Y, fg, "");
    } else if (code >= 0x2591 && code <= 0x2593) {
        svg_rect(f, x, y, CELL_X, CELL_Y, fg, opacity[code - 0x2591]);
    } else if (code >= 0x2800 && code < 0x2900) {
        static const int8_t place[8][2] = {{2, 2}, {2, 6}, {2, 10}, {6, 2}, {6, 6}, {6, 10}, {2, 14}, {6, 14}};
        fprintf(f, "<path stroke=\"#%06" PRIx32 "\" d=\"", fg);
        for (int i = 0; i < 8; i++)
            if (code >> i & 1) fprintf(f, "M%d %dh0", x + place[i][0], y + place[i][1]);
        fprintf(f, "\"/>\n");
    } else {
        return false;
    }
    return true;
}

static void svg_code(FILE *f, uint32_t code)
{
    switch (code) {
    case '&': fputs("&amp;", f); break;
    case '<': fputs("&lt;", f); break;
    case '>': fputs("&gt;", f); break;
    case '"': fputs("&quot;", f); break;
    case '\'': fputs("&#39;", f); break;
    default: print_code(f, code < 0x20 || code == 0xfffe || code == 0xffff ? 0xfffd : code);
    }
}

static bool is_letter(uint32_t code)
{
    return !(code >= 0x2580 && code <= 0x2593 && code != 0x2590) && !(code >= 0x2800 && code < 0x2900) && !line_of(code);
}

/* Letters from x on that look alike, as one element; returns where it ends. A wide character stands alone, and two blanks end it: where a
 * font is narrower or wider than our cells, columns stay in line. */
static int svg_letters(FILE *f, const struct zf_cell *row, int x, int end, int left, int top, const struct ink *k)
{
    int from = x, last = x;
    bool wide = x + 1 < end && row[x + 1].code == (uint32_t)ZF_CELL_RIGHT;
    for (; x < end && row[x].style == row[from].style && is_letter(row[x].code); x++) {
        bool next_wide = x + 1 < end && row[x + 1].code == (uint32_t)ZF_CELL_RIGHT;
        if (x > from && (next_wide || wide || (row[x].code == ' ' && row[x - 1].code == ' '))) break;
        if (row[x].code != ' ') last = x;
    }
    if (wide) x = from + 2, last = from + 1;
    if (row[from].code == ' ' && last == from) return x;
    fprintf(f, "<text x=\"%d\" y=\"%d\" textLength=\"%d\" fill=\"#%06" PRIx32 "\"%s%s%s>", left, top + BASE, (last + 1 - from) * CELL_X,
            k->fg, k->attributes & ZF_ATTR_BOLD ? " font-weight=\"bold\"" : "", k->attributes & ZF_ATTR_DIM ? " fill-opacity=\".6\"" : "",
            k->attributes & ZF_ATTR_UNDERLINE ? " text-decoration=\"underline\"" : "");
    for (int i = from; i <= last; i++)
        if (row[i].code != (uint32_t)ZF_CELL_RIGHT) svg_code(f, row[i].code);
    fputs("</text>\n", f);
    return x;
}

static void svg_row(FILE *f, const struct zf_cell *row, int x0, int end, int top, enum zf_scheme scheme, uint32_t paper, uint32_t pen)
{
    for (int x = x0; x < end;) { /* what is behind, in runs */
        int from = x;
        struct ink k = ink_of(row[from].style, scheme, paper, pen);
        while (x < end && row[x].style == row[from].style) x++;
        if (k.own_bg) svg_rect(f, (from - x0) * CELL_X, top, (x - from) * CELL_X, CELL_Y, k.bg, "");
    }
    for (int x = x0; x < end;) {
        struct ink k = ink_of(row[x].style, scheme, paper, pen);
        if (row[x].code == (uint32_t)ZF_CELL_RIGHT || svg_shape(f, (x - x0) * CELL_X, top, row[x].code, k.fg))
            x++;
        else
            x = svg_letters(f, row, x, end, (x - x0) * CELL_X, top, &k);
    }
}

static int on_canvas(int64_t v, int end)
{
    return v < 0 ? 0 : v > end ? end : (int)v;
}

char *zf_canvas_svg(const struct zf_canvas *c, struct zf_rect r, int scheme)
{
    enum zf_scheme s = scheme < 0 || scheme >= ZF_SCHEMES ? ZF_SCHEME_DARK : (enum zf_scheme)scheme;
    bool light = s == ZF_SCHEME_LIGHT || s == ZF_SCHEME_MONO;
    uint32_t paper = light ? 0xffffff : 0x121212, pen = light ? 0x1c1c1c : 0xd7d7d7;
    int x0 = on_canvas(r.x, c->cols), x1 = on_canvas((int64_t)r.x + r.cols, c->cols);
    int y0 = on_canvas(r.y, c->rows), y1 = on_canvas((int64_t)r.y + r.rows, c->rows);
    int cols = x1 > x0 ? x1 - x0 : 0, rows = y1 > y0 ? y1 - y0 : 0;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"monospace\" "
            "font-size=\"13.3\" stroke-width=\"3\" stroke-linecap=\"round\" style=\"white-space:pre\" xml:space=\"preserve\">\n",
            cols * CELL_X, rows * CELL_Y, cols * CELL_X, rows * CELL_Y);
    svg_rect(f, 0, 0, cols * CELL_X, rows * CELL_Y, paper, "");
    for (int y = 0; y < rows; y++) svg_row(f, c->cell + (size_t)(y0 + y) * (size_t)c->cols, x0, x0 + cols, y * CELL_Y, s, paper, pen);
    fputs("</svg>\n", f);
    return finish(f, &text);
}
