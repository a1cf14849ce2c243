/* A plot of series over steps: axes with ticks in steps of 1, 2 and 5, spans of least..most so that no spike vanishes, a smoothed line,
 * points, marks on the axis, a cursor. Draws on a canvas, keeps nothing; for the time of one frame. */
#ifndef ZF_TUI_PLOT_H
#define ZF_TUI_PLOT_H

#include "tui/panels/parts.h"

struct zf_plot {
    struct zf_canvas *c;
    struct zf_rect all, area; /* area: where the dots are */
    uint64_t first, last;     /* steps */
    double least, most;       /* of the axis, as logarithms if log */
    bool log;
    struct zf_dots dots;
    bool open;
};

/* Room for labels is taken from r as far as it is there. least..most: of the values; rounded outwards. false: no room, nothing to close. */
bool zf_plot_open(struct zf_plot *p, struct zf_canvas *c, struct zf_rect r, uint64_t first, uint64_t last, double least, double most,
                  bool log);
void zf_plot_spans(struct zf_plot *p, const struct zf_series *s, unsigned style);
void zf_plot_smooth(struct zf_plot *p, const struct zf_series *s, uint64_t n, unsigned style);
/* The dots are on the canvas from here on; what follows is drawn over them. */
void zf_plot_dots(struct zf_plot *p);
void zf_plot_points(struct zf_plot *p, const struct zf_series *s, uint32_t glyph, unsigned style);
/* Where values were no numbers ('!', top edge), or lie above the axis (an arrow there). */
void zf_plot_trouble(struct zf_plot *p, const struct zf_series *s);
void zf_plot_marks(struct zf_plot *p, const struct zf_notes *notes);

/* Positions of ticks within least..most, at most `most_ticks` of them; of a logarithmic axis (limits as log10) at 1, 2, 5 times powers of
 * ten. Returns how many. */
enum { ZF_TICKS = 32 };
int zf_ticks(double least, double most, bool log, int most_ticks, double out[ZF_TICKS]);

#endif
