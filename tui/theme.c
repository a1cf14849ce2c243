/* How styles look: a table of styles by schemes and depths. No state.
 *
 * Chosen for contrast (tests/tui/test_theme.c has the rules): DARK on anything from black to #303030, LIGHT from white to #eeeeee, SAFE on
 * both, with blue against orange and no red against green. Of the 256 colours only 16.. are used, since people change the first 16. */
#include "tui/theme.h"

const char *const zf_scheme_names[ZF_SCHEMES] = {"dark", "light", "safe", "mono"};

enum { B = ZF_ATTR_BOLD, D = ZF_ATTR_DIM, R = ZF_ATTR_REVERSE, U = ZF_ATTR_UNDERLINE };
enum { OWN = -1, BASE = 512 };
/* A colour on another one, in one number. */
#define ON(fg, bg) ((fg) + BASE * ((bg) + 1))

struct row {
    int rich[3];  /* 256 colours: dark, light, safe */
    int plain[3]; /* 16; with 8 the bright ones are bold */
    unsigned rich_attributes, plain_attributes, mono;
};

/* clang-format off */
static const struct row looks[ZF_STYLES] = {
    /*                     256: dark       light          safe           16: dark  light     safe       attributes: 256, 16, none */
    [ZF_STYLE_TEXT]     = {{OWN,           OWN,           OWN},          {OWN,     OWN,      OWN},      0, 0, 0},
    [ZF_STYLE_DIM]      = {{245,           242,           244},          {OWN,     OWN,      OWN},      0, D, D},
    [ZF_STYLE_STRONG]   = {{OWN,           OWN,           OWN},          {OWN,     OWN,      OWN},      B, B, B},
    [ZF_STYLE_TITLE]    = {{153,           24,            OWN},          {OWN,     OWN,      OWN},      B, B, B},
    [ZF_STYLE_FRAME]    = {{242,           244,           244},          {OWN,     OWN,      OWN},      0, D, D},
    [ZF_STYLE_FOCUS]    = {{81,            25,            32},           {6,       4,        OWN},      B, B, B},
    [ZF_STYLE_KEY]      = {{222,           94,            OWN},          {3,       4,        OWN},      B, B, B},
    [ZF_STYLE_GOOD]     = {{114,           22,            32},           {2,       OWN,      OWN},      0, 0, 0},
    [ZF_STYLE_WARN]     = {{221,           130,           166},          {11,      5,        OWN},      B, B, B},
    [ZF_STYLE_BAD]      = {{203,           160,           ON(16, 208)},  {9,       1,        ON(7, 1)}, B, B, B | R},
    [ZF_STYLE_CURSOR]   = {{OWN,           OWN,           OWN},          {OWN,     OWN,      OWN},      R, R, R},
    [ZF_STYLE_SELECTED] = {{ON(231, 24),   ON(16, 153),   ON(231, 25)},  {ON(7, 4), ON(0, 6), ON(7, 4)}, 0, 0, R},
    [ZF_STYLE_PROMPT]   = {{117,           25,            32},           {6,       4,        OWN},      B, B, B},
    [ZF_STYLE_TRAIN]    = {{67,            67,            244},          {OWN,     OWN,      OWN},      0, D, D},
    [ZF_STYLE_SMOOTH]   = {{81,            25,            32},           {6,       4,        OWN},      B, B, B},
    [ZF_STYLE_VALID]    = {{215,           166,           166},          {3,       1,        5},        0, 0, U},
    [ZF_STYLE_MARK]     = {{177,           90,            133},          {5,       5,        5},        B, B, R},
    [ZF_STYLE_AXIS]     = {{245,           242,           244},          {OWN,     OWN,      OWN},      0, D, D},
    [ZF_STYLE_ACC]      = {{75,            25,            32},           {6,       4,        ON(7, 4)}, 0, 0, 0},
    [ZF_STYLE_UP]       = {{215,           130,           166},          {3,       5,        ON(0, 3)}, 0, 0, R},
    [ZF_STYLE_UPLOAD]   = {{177,           90,            133},          {5,       ON(0, 6), 5},        0, 0, B},
    [ZF_STYLE_BUSY]     = {{114,           28,            32},           {2,       4,        OWN},      0, 0, 0},
    [ZF_STYLE_FORWARD]  = {{80,            24,            32},           {6,       4,        ON(7, 4)}, 0, 0, 0},
    [ZF_STYLE_COPY]     = {{186,           94,            244},          {3,       ON(0, 6), ON(0, 7)}, 0, 0, U},
    [ZF_STYLE_STALL]    = {{203,           160,           ON(16, 208)},  {9,       1,        ON(7, 1)}, B, B, B | R},
};

/* Level 0 is near the background, the highest stands out; brightness goes one way. SAFE runs from blue to yellow. */
static const uint8_t ramps[3][ZF_HEAT_LEVELS] = {
    {17, 18, 19, 54, 55, 56, 91, 127, 163, 198, 203, 209, 215, 221, 227, 230},
    {195, 159, 153, 117, 111, 75, 69, 33, 32, 27, 26, 21, 20, 19, 18, 17},
    {17, 53, 54, 55, 24, 25, 31, 36, 72, 42, 77, 113, 149, 185, 191, 227},
};
/* clang-format on */

static struct zf_look of_number(int number, unsigned attributes)
{
    if (number < 0) return (struct zf_look){-1, -1, attributes};
    return (struct zf_look){number % BASE, number / BASE - 1, attributes};
}

struct zf_look zf_theme_look(enum zf_scheme scheme, int colours, unsigned style)
{
    bool mono = scheme >= ZF_SCHEME_MONO || colours < 8;
    if (style < ZF_STYLES) {
        const struct row *row = &looks[style];
        if (mono) return (struct zf_look){-1, -1, row->mono};
        if (colours >= 256) return of_number(row->rich[scheme], row->rich_attributes);
        struct zf_look look = of_number(row->plain[scheme], row->plain_attributes);
        if (colours < 16 && look.fg >= 8) look.fg -= 8, look.attributes |= B;
        return look;
    }
    if (mono || colours < 256 || style < ZF_STYLE_HEAT || style >= ZF_STYLE_END) return (struct zf_look){-1, -1, 0};
    if (style >= ZF_STYLE_HEAT_ONE) return (struct zf_look){ramps[scheme][style - ZF_STYLE_HEAT_ONE], -1, 0};
    unsigned pair = style - ZF_STYLE_HEAT;
    return (struct zf_look){ramps[scheme][pair / ZF_HEAT_LEVELS], ramps[scheme][pair % ZF_HEAT_LEVELS], 0};
}

uint32_t zf_theme_rgb(int colour)
{
    /* xterm's */
    static const uint32_t first[16] = {0x000000, 0xcd0000, 0x00cd00, 0xcdcd00, 0x0000ee, 0xcd00cd, 0x00cdcd, 0xe5e5e5,
                                       0x7f7f7f, 0xff0000, 0x00ff00, 0xffff00, 0x5c5cff, 0xff00ff, 0x00ffff, 0xffffff};
    static const uint8_t step[6] = {0x00, 0x5f, 0x87, 0xaf, 0xd7, 0xff};
    if (colour < 0 || colour > 255) return 0xffffffff;
    if (colour < 16) return first[colour];
    if (colour < 232) {
        int cube = colour - 16;
        return (uint32_t)step[cube / 36] << 16 | (uint32_t)step[cube / 6 % 6] << 8 | step[cube % 6];
    }
    return (uint32_t)(8 + 10 * (colour - 232)) * 0x010101;
}
