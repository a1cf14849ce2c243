/* See plot.h. */
#include "tui/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 6 }; /* columns of labels at the left: always, or a plot would jump */

static double onto(const struct zf_plot *p, double value)
{
    return p->log ? log10(value > 1e-30 ? value : 1e-30) : value;
}

/* Dots from the top; outside: at the edge. */
static int row_of(const struct zf_plot *p, double value)
{
    double share = (p->most - onto(p, value)) / (p->most - p->least);
    return share <= 0 ? 0 : share >= 1 ? p->dots.rows - 1 : (int)(share * (p->dots.rows - 1) + 0.5);
}

static int cell_row(const struct zf_plot *p, double value)
{
    return row_of(p, value) / zf_dots_y(p->c->glyphs);
}

static int cell_col(const struct zf_plot *p, uint64_t step)
{
    return zf_piece_of(p->first, p->last, step, p->area.cols);
}

/* ---- axes ---- */

int zf_ticks(double least, double most, bool log, int most_ticks, double out[ZF_TICKS])
{
    int n = 0;
    if (most_ticks > ZF_TICKS) most_ticks = ZF_TICKS;
    if (!(most > least) || most_ticks < 1 || !isfinite(most - least)) return 0;
    if (log && most - least < 0.8) { /* less than a decade: as if it were linear */
        n = zf_ticks(pow(10, least), pow(10, most), false, most_ticks, out);
        for (int i = 0; i < n; i++) out[i] = log10(out[i]);
        return n;
    }
    if (log && most - least < 12) { /* all of 1, 2, 5; or only the powers, if those are too many */
        static const double parts[] = {1, 2, 5};
        for (int count = 3; count > 0; count -= 2) {
            n = 0;
            for (int k = (int)floor(least); k <= (int)ceil(most); k++)
                for (int i = 0; i < count; i++) {
                    double at = k + log10(parts[i]);
                    if (at < least - 1e-9 || at > most + 1e-9) continue;
                    if (n < ZF_TICKS) out[n] = at;
                    n++;
                }
            if (n && n <= most_ticks) return n;
        }
    }
    double step = zf_nice((most - least) / most_ticks);
    while (floor(most / step + 1e-9) - ceil(least / step - 1e-9) + 1 > most_ticks) step = zf_nice(1.5 * step);
    n = 0;
    for (double k = ceil(least / step - 1e-9); k * step <= most + 1e-9 * step && n < most_ticks; k++) out[n++] = k * step;
    return n;
}

static void label_text(char *to, size_t size, double value, double step)
{
    if (fabs(value) < 1e-9 * step) value = 0; /* no -0.0 */
    double big = fabs(value);
    if (value != 0 && (big >= 99999.5 || big < 1e-4))
        snprintf(to, size, "%*.0e", LABEL, value);
    else {
        int decimals = step > 0 && step < 1 ? (int)ceil(-log10(step) - 1e-9) : step < 10;
        int most = big >= 1000 ? 0 : big >= 100 ? 1 : big >= 10 ? 2 : 4;
        snprintf(to, size, "%*.*f", LABEL, decimals < most ? decimals : most, value);
    }
}

static void axis_y(struct zf_plot *p)
{
    double tick[ZF_TICKS];
    int x = p->area.x - p->all.x - 1, last_row = -2;
    uint32_t line = zf_glyph(p->c, 0x2502, '|'), at_tick = zf_glyph(p->c, 0x2524, '+');
    for (int y = 0; y < p->area.rows; y++) zf_put(p->c, p->all, x, y, line, ZF_STYLE_AXIS);
    int n = zf_ticks(p->least, p->most, p->log, p->area.rows > 3 ? (p->area.rows + 1) / 2 : p->area.rows, tick);
    for (int i = n - 1; i >= 0; i--) {
        char text[32];
        double value = p->log ? pow(10, tick[i]) : tick[i];
        int y = cell_row(p, value);
        if (y == last_row) continue;
        last_row = y;
        int other = i ? i - 1 : n > 1;
        double step = p->log ? fabs(value - pow(10, tick[other])) : fabs(tick[i] - tick[other]);
        if (n == 1) step = fabs(value) / 10;
        label_text(text, sizeof text, value, step);
        zf_put(p->c, p->all, x, y, at_tick, ZF_STYLE_AXIS);
        zf_fit(p->c, p->all, 0, y, LABEL, ZF_STYLE_AXIS, text);
    }
}

static void axis_x(struct zf_plot *p)
{
    double tick[ZF_TICKS];
    struct zf_canvas *c = p->c;
    int x0 = p->area.x - p->all.x, y = p->area.rows;
    bool labels = p->all.rows > y + 1;
    uint32_t line = zf_glyph(c, 0x2500, '-'), at_tick = zf_glyph(c, 0x252c, '+');
    zf_put(c, p->all, x0 - 1, y, zf_glyph(c, 0x2514, '+'), ZF_STYLE_AXIS);
    for (int x = 0; x < p->area.cols; x++) zf_put(c, p->all, x0 + x, y, line, ZF_STYLE_AXIS);
    int n = zf_ticks((double)p->first, (double)p->last, false, p->area.cols / 12 + 1, tick);
    for (int i = 0, free_from = 0; i < n; i++) {
        char text[ZF_FORMAT_ROOM];
        int x = cell_col(p, (uint64_t)tick[i]);
        if (tick[i] != floor(tick[i])) continue;
        zf_put(c, p->all, x0 + x, y, at_tick, ZF_STYLE_AXIS);
        if (p->last < 100000 || tick[i] < 1)
            snprintf(text, sizeof text, "%.0f", tick[i]);
        else
            zf_format_count(text, tick[i]);
        int cols = (int)strlen(text), at = x - cols / 2;
        if (at + cols > p->area.cols) at = p->area.cols - cols;
        if (!labels || (i && at <= free_from)) continue;
        zf_text(c, p->all, x0 + at, y + 1, ZF_STYLE_AXIS, text);
        free_from = at + cols;
    }
}

/* Outwards to halves of a tick's step, so that the axis moves seldom. */
static void round_range(struct zf_plot *p, double least, double most, bool log)
{
    p->log = log && most > 0;
    if (p->log && !(least > 0)) least = most / 1e6;
    p->least = onto(p, least);
    p->most = onto(p, most);
    double wide = p->most - p->least, size = fmax(fabs(p->least), fabs(p->most));
    if (!(wide > 1e-6 * size) || !isfinite(wide)) {
        double pad = p->log ? 0.1 : size > 0 ? 0.05 * size : 1;
        if (!isfinite(p->least) || !isfinite(p->most)) p->least = 0, p->most = 1, pad = 0;
        p->least -= pad;
        p->most += pad;
        wide = p->most - p->least;
    }
    double step = zf_nice(wide / 6) / 2;
    p->least = floor(p->least / step + 1e-6) * step;
    p->most = ceil(p->most / step - 1e-6) * step;
    if (!(p->most > p->least)) p->most = p->least + step;
}

bool zf_plot_open(struct zf_plot *p, struct zf_canvas *c, struct zf_rect r, uint64_t first, uint64_t last, double least, double most,
                  bool log)
{
    *p = (struct zf_plot){.c = c, .all = r, .area = r, .first = first, .last = last > first ? last : first};
    bool labels = r.cols >= 24 && r.rows >= 3;
    if (labels) p->area = (struct zf_rect){r.x + LABEL + 1, r.y, r.cols - LABEL - 1, r.rows - (r.rows >= 6 ? 2 : 1)};
    if (p->area.cols < 1 || p->area.rows < 1) return false;
    round_range(p, least, most, log);
    if (!zf_dots_open(&p->dots, c, p->area)) return false;
    p->open = true;
    if (labels) {
        axis_y(p);
        axis_x(p);
    }
    return true;
}

/* ---- curves ---- */

static void span(struct zf_plot *p, int x, int top, int bottom, unsigned style)
{
    zf_dots_span(&p->dots, p->c->glyphs, x, top, bottom, style);
}

/* From column x0, row y0 (not drawn) to x1, y1: without gaps. */
static void line(struct zf_plot *p, int x0, int y0, int x1, int y1, unsigned style)
{
    for (int x = x0 + 1, y = y0; x <= x1; x++) {
        int to = y0 + (int)lround((double)(y1 - y0) * (x - x0) / (x1 - x0));
        int from = to > y ? y + 1 : to < y ? y - 1 : y;
        span(p, x, from < to ? from : to, from < to ? to : from, style);
        y = to;
    }
}

void zf_plot_spans(struct zf_plot *p, const struct zf_series *s, unsigned style)
{
    int before = -1, top_before = 0, low_before = 0, last_before = 0;
    for (int x = 0; x < p->dots.cols; x++) {
        struct zf_step_range steps;
        if (!zf_piece_steps(p->first, p->last, x, p->dots.cols, &steps)) continue;
        if (!s->used || steps.from > s->newest) break;
        struct zf_bucket b = zf_series_between(s, steps.from, steps.to);
        if (!b.count) continue;
        int top = row_of(p, (double)b.most), low = row_of(p, (double)b.least), t = top, l = low;
        if (before >= 0 && before < x - 1) line(p, before, last_before, x, row_of(p, b.sum / b.count), style);
        if (before == x - 1 && top > low_before + 1) t = low_before + 1; /* it begins where the one before ended */
        if (before == x - 1 && low < top_before - 1) l = top_before - 1;
        span(p, x, t, l, style);
        before = x;
        top_before = top;
        low_before = low;
        last_before = row_of(p, (double)b.last);
    }
}

void zf_plot_smooth(struct zf_plot *p, const struct zf_series *s, uint64_t n, unsigned style)
{
    uint64_t steps = p->last - p->first + 1;
    size_t count = steps && steps < (uint64_t)p->dots.cols ? (size_t)steps : (size_t)p->dots.cols;
    double *mean = s->used && count ? malloc(count * sizeof *mean) : NULL;
    int before = -1, row_before = 0;
    if (!mean) return;
    zf_series_smooth(s, n, p->first, p->last, mean, count);
    for (size_t i = 0; i < count; i++) {
        struct zf_step_range at;
        zf_piece_steps(p->first, p->last, (int)i, (int)count, &at);
        if (!isfinite(mean[i])) continue;
        if (at.from > s->newest) break;
        int x = (int)((i + 1) * (size_t)p->dots.cols / count) - 1, y = row_of(p, mean[i]);
        if (x < before) continue;
        if (before >= 0)
            line(p, before, row_before, x, y, style);
        else
            span(p, x, y, y, style);
        before = x;
        row_before = y;
    }
    free(mean);
}

void zf_plot_dots(struct zf_plot *p)
{
    if (p->open) zf_dots_close(&p->dots, p->c);
    /* rows are still asked for */
    p->dots.rows = p->area.rows * zf_dots_y(p->c->glyphs);
    p->dots.cols = p->area.cols * zf_dots_x(p->c->glyphs);
    p->open = false;
}

void zf_plot_points(struct zf_plot *p, const struct zf_series *s, uint32_t glyph, unsigned style)
{
    enum { APART = 4 }; /* columns: closer ones would hide the curves; from the left, so that they stand still */
    for (int x = 0, free_from = 0; x < p->area.cols; x++) {
        struct zf_step_range steps;
        if (x < free_from || !zf_piece_steps(p->first, p->last, x, p->area.cols, &steps)) continue;
        struct zf_bucket b = zf_series_between(s, steps.from, steps.to);
        if (!b.count) continue;
        int at = cell_col(p, steps.from);
        zf_put(p->c, p->area, at, cell_row(p, (double)b.last), glyph, style);
        free_from = x + APART;
    }
}

void zf_plot_trouble(struct zf_plot *p, const struct zf_series *s)
{
    double top = p->log ? pow(10, p->most) : p->most;
    for (int x = 0; x < p->area.cols; x++) {
        struct zf_step_range steps;
        if (!zf_piece_steps(p->first, p->last, x, p->area.cols, &steps)) continue;
        struct zf_bucket b = zf_series_between(s, steps.from, steps.to);
        if (b.bad)
            zf_put(p->c, p->area, x, 0, '!', ZF_STYLE_BAD);
        else if (b.count && (double)b.most > top)
            zf_put(p->c, p->area, x, 0, zf_glyph(p->c, 0x2191, '^'), ZF_STYLE_TRAIN);
    }
}

/* ---- marks ---- */

void zf_plot_marks(struct zf_plot *p, const struct zf_notes *notes)
{
    int y = p->area.rows, x0 = p->area.x - p->all.x;
    if (p->all.rows <= y) return;
    /* what tells more stands above the rest: errors last */
    for (int pass = 0; pass < ZF_NOTE_KINDS; pass++) {
        static const enum zf_note_kind order[ZF_NOTE_KINDS] = {ZF_NOTE_NOTE,   ZF_NOTE_SAMPLE, ZF_NOTE_CHECKPOINT, ZF_NOTE_END,
                                                               ZF_NOTE_RESUME, ZF_NOTE_CHANGE, ZF_NOTE_MARK,       ZF_NOTE_WARNING,
                                                               ZF_NOTE_ERROR,  ZF_NOTE_VALID};
        const struct zf_mark *m = &zf_mark_table[order[pass]];
        if (!m->axis) continue;
        for (size_t i = 0; i < notes->count; i++) {
            const struct zf_note *n = &notes->list[i];
            if (n->kind != order[pass] || n->step < p->first || n->step > p->last) continue;
            zf_put(p->c, p->all, x0 + cell_col(p, n->step), y, zf_mark_glyph(p->c, n->kind), m->style);
        }
    }
}
