/* How styles look. Colours are semantic; a meaning is never carried by colour alone. Tables only. */
#ifndef ZF_TUI_THEME_H
#define ZF_TUI_THEME_H

#include "tui/canvas.h"

enum zf_scheme { ZF_SCHEME_DARK, ZF_SCHEME_LIGHT, ZF_SCHEME_SAFE, ZF_SCHEME_MONO, ZF_SCHEMES }; /* SAFE: for the colour-blind */
extern const char *const zf_scheme_names[ZF_SCHEMES];

enum zf_attribute { ZF_ATTR_BOLD = 1, ZF_ATTR_DIM = 2, ZF_ATTR_REVERSE = 4, ZF_ATTR_UNDERLINE = 8 };
/* Colours of the 256-colour palette; -1: the terminal's own. */
struct zf_look {
    int fg, bg;
    unsigned attributes;
};
/* colours: 0, 8, 16, 256: what the terminal has. Any style, heat pairs included. */
struct zf_look zf_theme_look(enum zf_scheme scheme, int colours, unsigned style);
/* 0xRRGGBB of a palette colour; -1: 0xffffffff. */
uint32_t zf_theme_rgb(int colour);

#endif
