/* The canvas: clipping, text that means harm, wide characters, frames, the glyphs of plots, the two dumps. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/theme.h"

static struct zf_canvas open_canvas(int cols, int rows, enum zf_glyphs glyphs)
{
    struct zf_canvas c = {.glyphs = glyphs};
    assert_true(zf_canvas_resize(&c, cols, rows));
    return c;
}

static void expect_styled(struct zf_canvas *c, bool styles, const char *wanted)
{
    char *text = zf_canvas_text(c, styles);
    assert_non_null(text);
    assert_string_equal(text, wanted);
    free(text);
}

static void expect(struct zf_canvas *c, const char *wanted)
{
    expect_styled(c, false, wanted);
}

/* No right half without its left one, no left one without its right one; nothing that a terminal obeys. */
static void check_cells(const struct zf_canvas *c)
{
    for (int y = 0; y < c->rows; y++)
        for (int x = 0; x < c->cols; x++) {
            const struct zf_cell *cell = c->cell + (size_t)y * (size_t)c->cols + x;
            assert_true(cell->style < ZF_STYLE_END);
            if (cell->code == (uint32_t)ZF_CELL_RIGHT) {
                assert_true(x > 0);
                assert_true(cell[-1].code != (uint32_t)ZF_CELL_RIGHT && cell[-1].code > 0x1100);
                continue;
            }
            char one[8] = "";
            assert_in_range(cell->code, 0x20, 0x10ffff);
            assert_false(cell->code >= 0x7f && cell->code < 0xa0);
            if (cell->code < 0x80)
                one[0] = (char)cell->code;
            else if (cell->code < 0x800)
                one[0] = (char)(0xc0 | cell->code >> 6), one[1] = (char)(0x80 | (cell->code & 63));
            else if (cell->code < 0x10000)
                snprintf(one, sizeof one, "%c%c%c", (int)(0xe0 | cell->code >> 12), (int)(0x80 | (cell->code >> 6 & 63)),
                         (int)(0x80 | (cell->code & 63)));
            else
                snprintf(one, sizeof one, "%c%c%c%c", (int)(0xf0 | cell->code >> 18), (int)(0x80 | (cell->code >> 12 & 63)),
                         (int)(0x80 | (cell->code >> 6 & 63)), (int)(0x80 | (cell->code & 63)));
            bool wide = x + 1 < c->cols && cell[1].code == (uint32_t)ZF_CELL_RIGHT;
            assert_int_equal(zf_text_width(one, SIZE_MAX), wide ? 2 : 1);
        }
}

static void sizes(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(5, 2, ZF_GLYPHS_BRAILLE);
    zf_text(&c, zf_canvas_all(&c), 0, 0, ZF_STYLE_BAD, "12345");
    assert_true(zf_canvas_resize(&c, 2, 5));
    expect_styled(&c, true, "\n\n\n\n\n\n\n\n\n\n\n");
    assert_int_equal(c.cursor_x, -1);
    assert_true(zf_canvas_resize(&c, 0, 7));
    zf_put(&c, (struct zf_rect){0, 0, 10, 10}, 0, 0, 'x', 0);
    assert_true(zf_canvas_resize(&c, -3, INT_MIN));
    assert_int_equal(c.cols | c.rows, 0);
    expect(&c, "");
    assert_true(zf_canvas_resize(&c, INT_MAX, INT_MAX));
    assert_int_equal(c.cols, ZF_CANVAS_MOST_COLS);
    assert_int_equal(c.rows, ZF_CANVAS_MOST_ROWS);
    assert_true(zf_canvas_resize(&c, 1, 1));
    zf_text(&c, zf_canvas_all(&c), 0, 0, 0, "\u672c");
    expect(&c, "\n");
    zf_canvas_free(&c);
    zf_canvas_free(&c);
}

static void clipping(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(8, 3, ZF_GLYPHS_BRAILLE);
    struct zf_rect r = {2, 1, 4, 1};
    assert_int_equal(zf_text(&c, r, -2, 0, 0, "abcdefgh"), 8);
    zf_text(&c, r, 0, 1, 0, "below");
    zf_text(&c, r, 0, -1, 0, "above");
    zf_put(&c, r, 4, 0, 'X', 0);
    zf_put(&c, r, -1, 0, 'X', 0);
    expect(&c, "\n  cdef\n\n");
    zf_text_right(&c, r, 0, 0, "12");
    expect(&c, "\n  cd12\n\n");
    zf_text_right(&c, r, 0, 0, "123456");
    expect(&c, "\n  3456\n\n");
    zf_fill(&c, (struct zf_rect){-5, -5, 7, 7}, '#', ZF_STYLE_GOOD);
    expect_styled(&c, true, "##\n##3456\n\n\nGG\nGG....\n\n");
    /* Rectangles from nowhere. */
    struct zf_rect odd[] = {
        {INT_MAX, INT_MAX, INT_MAX, INT_MAX}, {INT_MIN, INT_MIN, INT_MAX, INT_MAX}, {0, 0, -1, 5}, {3, 1, INT_MAX, INT_MIN}};
    float spark[3] = {1, 1, 1};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        zf_text(&c, odd[i], INT_MAX, INT_MAX, 0, "no");
        zf_text(&c, odd[i], INT_MIN, 0, 0, "no");
        zf_text_right(&c, odd[i], 0, 0, "no");
        zf_put(&c, odd[i], 0, 0, 'n', 0);
        zf_fill(&c, odd[i], 'n', 0);
        zf_bar(&c, odd[i], 0, 0, INT_MAX, 1, 0);
        zf_spark(&c, odd[i], 0, 0, spark, 3, 0);
        zf_heat(&c, odd[i], 0, 0, 1, 2);
        zf_frame(&c, odd[i], true, "no", "no");
        struct zf_dots d;
        assert_true(zf_dots_open(&d, &c, odd[i]));
        zf_dots_span(&d, c.glyphs, 0, INT_MIN, INT_MAX, 0);
        zf_dots_close(&d, &c);
    }
    expect(&c, "##\n##3456\n\n");
    zf_textf(&c, zf_canvas_all(&c), 0, 0, 0, "%0700d|", 1);
    assert_int_equal(zf_textf(&c, zf_canvas_all(&c), 0, 0, 0, "%0700d|", 1), 701);
    assert_int_equal(zf_textf(&c, zf_canvas_all(&c), 0, 0, 0, "%d%%", 12), 3);
    expect(&c, "12%00000\n##3456\n\n");
    zf_canvas_free(&c);
}

static void hostile(void **state)
{
    (void)state;
    static const struct {
        const char *text, *unicode, *ascii;
        int width;
    } t[] = {
        {"\033[2Jx", "\ufffd[2Jx\n", "?[2Jx\n", 5},
        {"\033]0;title\007", "\ufffd]0;title\ufffd\n", "?]0;title?\n", 10},
        {"a\tb\nc\rd\177", "a\ufffdb\ufffdc\ufffdd\ufffd\n", "a?b?c?d?\n", 8},
        {"\xc2\x9b"
         "31m",
         "\ufffd31m\n", "?31m\n", 4},                                                  /* CSI in one byte */
        {"\xff\xfe-\xc3", "\ufffd\ufffd-\ufffd\n", "?\?-?\n", 4},                      /* never UTF-8; cut */
        {"\xc0\x80\xed\xa0\x80|", "\ufffd\ufffd\ufffd\ufffd\ufffd|\n", "?????|\n", 6}, /* overlong; half a pair */
        {"\u202e\u2066ab\u200b\u200d\ufeff", "ab\n", "ab\n", 2},                       /* turning text round, nothing wide */
        {"e\u0301\ufe0f-", "e-\n", "e-\n", 2},
        {"x\u2028y", "x\ufffdy\n", "x?y\n", 3},
        {"\U0001f44d\U0001f3fd!", "\U0001f44d!\n", "\U0001f44d!\n", 3},
        {"\u672c\uff21", "\u672c\uff21\n", "\u672c\uff21\n", 4},
        {"\U0010ffff\uffff", "\ufffd\ufffd\n", "??\n", 2},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (int ascii = 0; ascii < 2; ascii++) {
            struct zf_canvas c = open_canvas(12, 1, ascii ? ZF_GLYPHS_ASCII : ZF_GLYPHS_BRAILLE);
            assert_int_equal(zf_text(&c, zf_canvas_all(&c), 0, 0, 0, t[i].text), t[i].width);
            assert_int_equal(zf_text_width(t[i].text, SIZE_MAX), t[i].width);
            assert_int_equal(zf_text_width(t[i].text, strlen(t[i].text)), t[i].width);
            expect(&c, ascii ? t[i].ascii : t[i].unicode);
            check_cells(&c);
            zf_canvas_free(&c);
        }
    assert_int_equal(zf_text_width("a\xe6\x9c\xac", 2), 2); /* a cut character is a mark */
    assert_int_equal(zf_text_width("abc", 2), 2);
    assert_int_equal(zf_text_width("abc", 100), 3);

    struct zf_canvas c = open_canvas(3, 1, ZF_GLYPHS_BLOCK);
    static const uint32_t codes[] = {0, 7, 0x1b, 0x9b, 0xd800, 0x110000, 0x202e, (uint32_t)ZF_CELL_RIGHT};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        zf_put(&c, zf_canvas_all(&c), 1, 0, codes[i], 0);
        expect(&c, " \ufffd\n");
        check_cells(&c);
    }
    zf_canvas_free(&c);
}

static void wide(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(6, 1, ZF_GLYPHS_BRAILLE);
    struct zf_rect all = zf_canvas_all(&c);
    zf_text(&c, all, 0, 0, ZF_STYLE_GOOD, "\u672c\u672c\u672c");
    expect_styled(&c, true, "\u672c\u672c\u672c\n\nGGGGGG\n");
    zf_put(&c, all, 2, 0, 'x', 0); /* over a left half */
    expect(&c, "\u672cx \u672c\n");
    zf_put(&c, all, 1, 0, 'y', 0); /* over a right one */
    expect(&c, " yx \u672c\n");
    check_cells(&c);
    zf_text(&c, all, 3, 0, 0, "\u672c"); /* over the left half of another */
    expect(&c, " yx\u672c\n");
    check_cells(&c);
    zf_text(&c, all, 5, 0, 0, "\u672c"); /* no room */
    zf_text(&c, all, -1, 0, 0, "\u672c");
    expect(&c, " yx\u672c\n");
    assert_int_equal(c.cell[5].code, ' ');
    zf_fill(&c, (struct zf_rect){1, 0, 3, 1}, 0x672c, 0);
    check_cells(&c);
    zf_canvas_free(&c);

    /* Whatever is drawn over whatever. */
    static const char *const bits[] = {"a", "\u672c", "\033", "\u2588", "\xff", "\u0301", "\uff21\u0301b", "\U0001f600"};
    c = open_canvas(17, 5, ZF_GLYPHS_BRAILLE);
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525 + 1013904223;
        struct zf_rect r = {(int)(seed >> 27) - 6, (int)(seed >> 24 & 7) - 1, (int)(seed >> 20 & 15), (int)(seed >> 18 & 3)};
        zf_text(&c, r, (int)(seed >> 13 & 31) - 8, (int)(seed >> 11 & 3), seed >> 4 & 15, bits[seed >> 8 & 7]);
        if (i % 100 == 0) check_cells(&c);
    }
    check_cells(&c);
    zf_canvas_free(&c);
}

static void frames(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(14, 3, ZF_GLYPHS_BRAILLE);
    struct zf_rect r = zf_frame(&c, zf_canvas_all(&c), false, "1 loss", "step");
    assert_int_equal(r.x, 1);
    assert_int_equal(r.y, 1);
    assert_int_equal(r.cols, 12);
    assert_int_equal(r.rows, 1);
    expect_styled(&c, true,
                  "┌ 1 loss ────┐\n│            │\n└─ step ─────┘\n\n"
                  "FFTTTTTTFFFFFF\nF            F\nFFFDDDDFFFFFFF\n");
    zf_frame(&c, zf_canvas_all(&c), true, "a title too long", "a note, too");
    expect(&c, "┏ a title t… ┓\n┃            ┃\n┗━ a note,… ━┛\n");
    zf_canvas_free(&c);
}

static void frames_small(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(10, 3, ZF_GLYPHS_ASCII);
    zf_frame(&c, zf_canvas_all(&c), false, "long title", NULL);
    expect(&c, "+ long ~ +\n|        |\n+--------+\n");
    zf_frame(&c, zf_canvas_all(&c), true, NULL, "");
    expect(&c, "#========#\n|        |\n#========#\n");
    zf_canvas_clear(&c);
    c.glyphs = ZF_GLYPHS_BLOCK;
    zf_frame(&c, (struct zf_rect){0, 0, 4, 3}, true, "t", "n"); /* no room for either */
    expect(&c, "╔══╗\n║  ║\n╚══╝\n");
    zf_canvas_clear(&c);
    struct zf_rect r = zf_frame(&c, (struct zf_rect){0, 0, 6, 2}, false, "a title", "n");
    expect(&c, "a tit…\n\n\n");
    assert_int_equal(r.y, 1);
    assert_int_equal(r.rows, 1);
    zf_canvas_clear(&c);
    r = zf_frame(&c, (struct zf_rect){1, 0, 6, 1}, false, "a title", "n");
    assert_int_equal(r.rows, 1);
    assert_int_equal(r.y, 0);
    r = zf_frame(&c, (struct zf_rect){1, 0, 3, 3}, false, "a title", "n");
    assert_int_equal(r.cols, 3);
    assert_int_equal(r.rows, 3);
    expect(&c, "\n\n\n");
    for (int cols = -1; cols < 12; cols++) /* what is inside is inside */
        for (int rows = -1; rows < 5; rows++) {
            struct zf_rect in =
                zf_frame(&c, (struct zf_rect){2, 1, cols, rows}, cols & 1, "\u672c\u672c\u672c\u672c", "\u672c\u672c\u672c");
            assert_true(in.x >= 2 && in.y >= 1 && in.cols <= cols && in.rows <= rows && in.x + in.cols <= 2 + cols &&
                        in.y + in.rows <= 1 + rows);
            check_cells(&c);
        }
    zf_canvas_free(&c);
}

static void draw_dots(enum zf_glyphs g, const char *wanted)
{
    struct zf_canvas c = open_canvas(4, 2, g);
    struct zf_dots d;
    assert_true(zf_dots_open(&d, &c, zf_canvas_all(&c)));
    assert_int_equal(d.cols, 4 * zf_dots_x(g));
    assert_int_equal(d.rows, 2 * zf_dots_y(g));
    zf_dots_span(&d, g, 0, 0, d.rows - 1, ZF_STYLE_TRAIN);
    zf_dots_span(&d, g, zf_dots_x(g), d.rows - 1, d.rows - 1, ZF_STYLE_SMOOTH);
    zf_dots_span(&d, g, 2 * zf_dots_x(g), 0, 0, ZF_STYLE_VALID);
    zf_dots_span(&d, g, d.cols - 1, d.rows / 2 - 1, d.rows / 2, ZF_STYLE_TRAIN);
    zf_dots_span(&d, g, d.cols - 1, -9, d.rows / 2 - 1, ZF_STYLE_SMOOTH);
    zf_dots_span(&d, g, d.cols, 0, 99, ZF_STYLE_BAD); /* outside, or nothing */
    zf_dots_span(&d, g, -1, 0, 99, ZF_STYLE_BAD);
    zf_dots_span(&d, g, 1, 5, 4, ZF_STYLE_BAD);
    zf_dots_span(&d, g, 1, d.rows, d.rows, ZF_STYLE_BAD);
    zf_dots_close(&d, &c);
    zf_dots_close(&d, &c);
    expect_styled(&c, true, wanted);
    zf_canvas_free(&c);
}

static void dots(void **state)
{
    (void)state;
    draw_dots(ZF_GLYPHS_BRAILLE, "⡇ ⠁⢸\n⡇⡀ ⠈\n\nR VM\nRM R\n");
    draw_dots(ZF_GLYPHS_BLOCK, "█ ██\n█▁\n\nR VM\nRM\n");
    draw_dots(ZF_GLYPHS_ASCII, ". o*\n.* .\n\nR VM\nRM R\n");
    /* Another line's column: the later height is true; the same one's: the higher. */
    struct zf_canvas c = open_canvas(2, 1, ZF_GLYPHS_BLOCK);
    struct zf_dots d;
    assert_true(zf_dots_open(&d, &c, zf_canvas_all(&c)));
    zf_dots_span(&d, c.glyphs, 0, 1, 7, ZF_STYLE_TRAIN);
    zf_dots_span(&d, c.glyphs, 0, 4, 4, ZF_STYLE_SMOOTH);
    zf_dots_span(&d, c.glyphs, 1, 4, 4, ZF_STYLE_SMOOTH);
    zf_dots_span(&d, c.glyphs, 1, 6, 6, ZF_STYLE_SMOOTH);
    zf_dots_close(&d, &c);
    expect(&c, "▄▄\n");
    zf_canvas_free(&c);
}

static void bars(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(8, 1, ZF_GLYPHS_BLOCK);
    struct zf_rect all = zf_canvas_all(&c);
    zf_bar(&c, all, 0, 0, 8, 0.5 + 3 / 64.0, ZF_STYLE_BUSY);
    expect_styled(&c, true, "████▍░░░\n\nYYYYYDDD\n");
    zf_bar(&c, all, 0, 0, 8, 1e-9, ZF_STYLE_BUSY);
    expect(&c, "▏░░░░░░░\n");
    zf_bar(&c, all, 0, 0, 8, 0.999, ZF_STYLE_BUSY); /* nearly full is not full */
    expect(&c, "███████▉\n");
    static const double none[] = {0, -1, NAN, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        zf_bar(&c, all, 0, 0, 8, none[i], ZF_STYLE_BUSY);
        expect(&c, "░░░░░░░░\n");
    }
    zf_bar(&c, all, 6, 0, 4, INFINITY, ZF_STYLE_BUSY);
    zf_bar(&c, all, 0, 0, 0, 1, ZF_STYLE_BUSY);
    zf_bar(&c, all, 0, 0, -4, 1, ZF_STYLE_BUSY);
    expect(&c, "░░░░░░██\n");
    c.glyphs = ZF_GLYPHS_ASCII;
    zf_bar(&c, all, 0, 0, 8, 0.5 + 3 / 64.0, ZF_STYLE_BUSY);
    expect(&c, "####....\n");

    float v[8] = {0, 0.124f, 0.126f, 0.5f, 1, 7, -1, NAN};
    c.glyphs = ZF_GLYPHS_BRAILLE;
    zf_spark(&c, all, 0, 0, v, 8, ZF_STYLE_BUSY);
    expect(&c, "▁▁▂▅██\n");
    c.glyphs = ZF_GLYPHS_ASCII;
    zf_spark(&c, all, 0, 0, v, 8, ZF_STYLE_BUSY);
    expect(&c, ".::+@@\n");
    zf_canvas_clear(&c);
    zf_spark(&c, (struct zf_rect){2, 0, 3, 1}, 1, 0, v, 8, ZF_STYLE_BUSY);
    expect(&c, "   .:\n");
    zf_canvas_free(&c);
}

static void heat(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(6, 1, ZF_GLYPHS_BRAILLE);
    struct zf_rect all = zf_canvas_all(&c);
    static const int level[6][2] = {{0, 15}, {15, 99}, {-1, -1}, {7, -1}, {-1, 3}, {12, 12}};
    assert_int_equal(zf_heat_rows(&c), 2);
    for (int i = 0; i < 6; i++) zf_heat(&c, all, i, 0, level[i][0], level[i][1]);
    expect_styled(&c, true, "▀▀ ▀▄▀\n\n0f 73c\n\nff --c\n");
    c.shades = true;
    assert_int_equal(zf_heat_rows(&c), 1);
    for (int i = 0; i < 6; i++) zf_heat(&c, all, i, 0, level[i][0], level[i][1]);
    expect_styled(&c, true, "░█ ▒ █\n\n.. . .\n");
    c.shades = false, c.glyphs = ZF_GLYPHS_ASCII;
    assert_int_equal(zf_heat_rows(&c), 1);
    for (int i = 0; i < 6; i++) zf_heat(&c, all, i, 0, level[i][0], -1);
    expect(&c, " @ = #\n");
    zf_canvas_free(&c);
    c = open_canvas(17, 1, ZF_GLYPHS_ASCII);
    for (int i = 0; i < 16; i++) zf_heat(&c, zf_canvas_all(&c), i, 0, i, i);
    zf_put(&c, zf_canvas_all(&c), 16, 0, '|', 0);
    expect(&c, "  ..:--=++**#%%@|\n");
    zf_canvas_free(&c);
}

static void letters_differ(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(ZF_STYLES, 1, ZF_GLYPHS_ASCII);
    for (int i = 0; i < ZF_STYLES; i++) zf_put(&c, zf_canvas_all(&c), i, 0, 'x', (unsigned)i);
    char *text = zf_canvas_text(&c, true), *letters = strrchr(text, 'x') + 3;
    assert_int_equal(strlen(letters), ZF_STYLES + 1);
    for (int i = 0; i < ZF_STYLES; i++) {
        assert_null(memchr(letters + i + 1, letters[i], (size_t)(ZF_STYLES - i - 1)));
        assert_null(strchr("0123456789abcdef?- ", letters[i]));
    }
    free(text);
    zf_canvas_free(&c);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

static void svg(void **state)
{
    (void)state;
    struct zf_canvas c = open_canvas(30, 3, ZF_GLYPHS_BRAILLE);
    struct zf_rect all = zf_canvas_all(&c);
    zf_text(&c, all, 0, 0, ZF_STYLE_BAD, "</svg><script>&\"'\033[0m");
    zf_text(&c, all, 0, 1, ZF_STYLE_CURSOR, "a \u672c b");
    zf_text(&c, all, 10, 1, ZF_STYLE_TRAIN, "\u28ff\u2580\u2584\u258c\u2592\u2590");
    zf_heat(&c, all, 0, 2, 3, 12);
    for (int scheme = -1; scheme <= ZF_SCHEMES; scheme++) {
        char *text = zf_canvas_svg(&c, all, scheme);
        assert_non_null(text);
        assert_ptr_equal(strstr(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"240\" height=\"48\""), text);
        assert_int_equal(count(text, "<svg"), 1);
        assert_int_equal(count(text, "</svg>\n"), 1);
        assert_int_equal(count(text, "<script"), 0);
        assert_int_equal(count(text, "&lt;/svg&gt;&lt;script&gt;&amp;&quot;&#39;\ufffd[0m"), 1);
        assert_int_equal(count(text, "M82 18h0"), 1); /* the first dot of the braille character */
        assert_int_equal(count(text, "\u672c</text>"), 1);
        for (const char *p = text; *p; p++) assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        free(text);
    }
    char *part = zf_canvas_svg(&c, (struct zf_rect){28, 2, 100, 100}, ZF_SCHEME_LIGHT);
    assert_non_null(strstr(part, "width=\"16\" height=\"16\""));
    free(part);
    static const struct zf_rect nowhere[] = {
        {INT_MAX, INT_MIN, INT_MAX, INT_MAX}, {INT_MIN, 0, -5, 1}, {INT_MIN, INT_MIN, INT_MIN, INT_MIN}};
    for (size_t i = 0; i < 3; i++) {
        part = zf_canvas_svg(&c, nowhere[i], ZF_SCHEME_LIGHT);
        assert_non_null(strstr(part, "width=\"0\""));
        free(part);
    }
    zf_canvas_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),  cmocka_unit_test(clipping),       cmocka_unit_test(hostile), cmocka_unit_test(wide),
        cmocka_unit_test(frames), cmocka_unit_test(frames_small),   cmocka_unit_test(dots),    cmocka_unit_test(bars),
        cmocka_unit_test(heat),   cmocka_unit_test(letters_differ), cmocka_unit_test(svg),
    };
    return cmocka_run_group_tests_name("tui_canvas", tests, NULL, NULL);
}
