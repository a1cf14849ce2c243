/* Colours by rules: every style of every scheme and depth can be read on the backgrounds that its scheme is for; what means different
 * things looks different, without colours, too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tui/theme.h"

static const int depths[] = {0, 8, 16, 256};
static const char *const style_names[] = {
#define X(name) #name,
    ZF_STYLE_MAP(X)
#undef X
};

static double linear(uint32_t byte)
{
    double v = (byte & 255) / 255.0;
    return v <= 0.03928 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

/* WCAG's relative luminance. */
static double luminance(uint32_t rgb)
{
    return 0.2126 * linear(rgb >> 16) + 0.7152 * linear(rgb >> 8) + 0.0722 * linear(rgb);
}

static double contrast(uint32_t a, uint32_t b)
{
    double x = luminance(a), y = luminance(b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* What a scheme is for: backgrounds, and the contrast asked for on each with 256 colours (the second number: lines and points, which are
 * no letters) and with fewer. */
struct ground {
    uint32_t rgb;
    double text, lines, few;
};
static const struct ground grounds[ZF_SCHEMES][4] = {
    [ZF_SCHEME_DARK] = {{0x000000, 4.5, 3.5, 3.4}, {0x303030, 3.4, 2.4, 2}},
    [ZF_SCHEME_LIGHT] = {{0xffffff, 4.5, 3.4, 4}, {0xeeeeee, 4, 3, 3.5}},
    [ZF_SCHEME_SAFE] = {{0x000000, 3.3, 3.3, 3.4}, {0xffffff, 3.3, 3.3, 3.4}, {0x303030, 3, 3, 2}, {0xeeeeee, 3, 3, 3.5}},
};

static bool is_line(unsigned style)
{
    return style == ZF_STYLE_FRAME || style == ZF_STYLE_TRAIN || style == ZF_STYLE_SMOOTH || style == ZF_STYLE_VALID;
}

static void legible(void **state)
{
    (void)state;
    int checked = 0;
    for (int scheme = 0; scheme < ZF_SCHEMES; scheme++)
        for (int d = 0; d < 4; d++)
            for (unsigned style = 0; style < ZF_STYLES; style++) {
                struct zf_look look = zf_theme_look((enum zf_scheme)scheme, depths[d], style);
                assert_true(look.fg < depths[d] && look.bg < depths[d] && look.fg >= -1 && look.bg >= -1);
                if (depths[d] == 0 || scheme == ZF_SCHEME_MONO) assert_true(look.fg == -1 && look.bg == -1);
                if (look.fg == -1) {
                    assert_int_equal(look.bg, -1); /* our background under the terminal's own letters: nobody knows */
                    continue;
                }
                /* People change the first 16: none of them in a palette of 256, save for what has both colours. */
                if (depths[d] == 256) assert_true(look.fg >= 16 && (look.bg == -1 || look.bg >= 16));
                for (const struct ground *g = grounds[scheme]; g < grounds[scheme] + 4 && g->text > 0; g++) {
                    double wanted = depths[d] < 256 ? g->few : is_line(style) ? g->lines : g->text;
                    double is = contrast(zf_theme_rgb(look.fg), look.bg >= 0 ? zf_theme_rgb(look.bg) : g->rgb);
                    if (is < wanted) {
                        print_error("%s, %d colours, %s on #%06x: contrast %.2f, wanted %.2f\n", zf_scheme_names[scheme], depths[d],
                                    style_names[style], look.bg >= 0 ? zf_theme_rgb(look.bg) : g->rgb, is, wanted);
                        fail();
                    }
                    checked++;
                }
            }
    assert_true(checked > 200);
}

static bool same(struct zf_look a, struct zf_look b)
{
    return a.fg == b.fg && a.bg == b.bg && a.attributes == b.attributes;
}

static void different(void **state)
{
    (void)state;
    static const unsigned groups[][5] = {
        {ZF_STYLE_GOOD, ZF_STYLE_WARN, ZF_STYLE_BAD},
        {ZF_STYLE_TRAIN, ZF_STYLE_SMOOTH, ZF_STYLE_VALID, ZF_STYLE_MARK},
        {ZF_STYLE_ACC, ZF_STYLE_UP, ZF_STYLE_UPLOAD, ZF_STYLE_STALL},
        {ZF_STYLE_FORWARD, ZF_STYLE_COPY, ZF_STYLE_STALL},
        {ZF_STYLE_FRAME, ZF_STYLE_FOCUS},
        {ZF_STYLE_TEXT, ZF_STYLE_DIM, ZF_STYLE_STRONG, ZF_STYLE_CURSOR},
        {ZF_STYLE_TEXT, ZF_STYLE_SELECTED, ZF_STYLE_BAD},
    };
    for (int scheme = 0; scheme < ZF_SCHEMES; scheme++)
        for (int d = 0; d < 4; d++)
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
                for (int i = 0; i < 5; i++)
                    for (int k = i + 1; k < 5 && groups[g][k]; k++) {
                        struct zf_look a = zf_theme_look((enum zf_scheme)scheme, depths[d], groups[g][i]);
                        struct zf_look b = zf_theme_look((enum zf_scheme)scheme, depths[d], groups[g][k]);
                        if (same(a, b))
                            print_error("%s, %d: %s, %s\n", zf_scheme_names[scheme], depths[d], style_names[groups[g][i]],
                                        style_names[groups[g][k]]);
                        assert_false(same(a, b));
                    }
}

/* As a person without one kind of cones sees it (Viénot 1999, on linear light), the pairs that must not be mixed up stay apart. */
static void safe_for_the_colour_blind(void **state)
{
    (void)state;
    static const unsigned pairs[][2] = {
        {ZF_STYLE_GOOD, ZF_STYLE_WARN}, {ZF_STYLE_ACC, ZF_STYLE_UP}, {ZF_STYLE_SMOOTH, ZF_STYLE_VALID}, {ZF_STYLE_FORWARD, ZF_STYLE_STALL}};
    static const double see[2][2] = {{0.11238, 0.88762}, {0.29275, 0.70725}}; /* red and green become one: protan, deutan */
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            double v[2][2];
            for (int k = 0; k < 2; k++) {
                struct zf_look look = zf_theme_look(ZF_SCHEME_SAFE, 256, pairs[i][k]);
                uint32_t rgb = zf_theme_rgb(look.bg >= 0 ? look.bg : look.fg);
                v[k][0] = cbrt(see[kind][0] * linear(rgb >> 16) + see[kind][1] * linear(rgb >> 8)), v[k][1] = cbrt(linear(rgb));
            }
            assert_true(fabs(v[0][0] - v[1][0]) + fabs(v[0][1] - v[1][1]) > 0.4);
        }
}

static void heat(void **state)
{
    (void)state;
    for (int scheme = 0; scheme < ZF_SCHEME_MONO; scheme++) {
        double last = scheme == ZF_SCHEME_LIGHT ? 2 : -1;
        for (unsigned level = 0; level < ZF_HEAT_LEVELS; level++) {
            struct zf_look one = zf_theme_look((enum zf_scheme)scheme, 256, ZF_STYLE_HEAT_ONE + level);
            double l = luminance(zf_theme_rgb(one.fg));
            assert_int_equal(one.bg, -1);
            if (scheme == ZF_SCHEME_LIGHT ? l >= last : l <= last) fail_msg("%s: level %u", zf_scheme_names[scheme], level);
            last = l;
            for (unsigned lower = 0; lower < ZF_HEAT_LEVELS; lower++) {
                struct zf_look both = zf_theme_look((enum zf_scheme)scheme, 256, ZF_STYLE_HEAT + ZF_HEAT_LEVELS * level + lower);
                assert_int_equal(both.fg, one.fg);
                assert_int_equal(both.bg, zf_theme_look((enum zf_scheme)scheme, 256, ZF_STYLE_HEAT_ONE + lower).fg);
            }
        }
    }
    for (unsigned style = ZF_STYLES; style < 70000; style++) /* few colours, none, no style at all: the terminal's own */
        for (int d = 0; d < (style < ZF_STYLE_END && style >= ZF_STYLE_HEAT ? 3 : 4); d++)
            assert_true(same(zf_theme_look(ZF_SCHEME_DARK, depths[d], style), (struct zf_look){-1, -1, 0}));
}

static void palette(void **state)
{
    (void)state;
    static const struct {
        int colour;
        uint32_t rgb;
    } t[] = {{-1, 0xffffffff}, {256, 0xffffffff}, {0, 0},          {15, 0xffffff},  {16, 0},        {21, 0x0000ff},
             {196, 0xff0000},  {67, 0x5f87af},    {231, 0xffffff}, {232, 0x080808}, {255, 0xeeeeee}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) assert_int_equal(zf_theme_rgb(t[i].colour), t[i].rgb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legible), cmocka_unit_test(different), cmocka_unit_test(safe_for_the_colour_blind),
        cmocka_unit_test(heat),    cmocka_unit_test(palette),
    };
    return cmocka_run_group_tests_name("tui_theme", tests, NULL, NULL);
}
