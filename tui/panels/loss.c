/* Loss: least..most of training, its smoothed mean, validation, and on the axis what was changed, saved, or went wrong. */
#include "tui/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static double smoothed(const struct zf_view *v)
{
    const struct zf_series *s = zf_history_series(v->h, ZF_SERIES_LOSS);
    double mean = NAN;
    uint64_t at = v->cursor && v->cursor_step < s->newest ? v->cursor_step : s->newest;
    if (v->smooth && s->used) zf_series_smooth(s, v->smooth, at, at, &mean, 1);
    return mean;
}

struct legend {
    char text[3][48];
    unsigned style[3];
    int count;
};

/* Names, colours and values at once: of the newest step, or of the cursor's. */
static struct legend legend_of(const struct zf_view *v, const struct zf_canvas *c)
{
    struct legend l = {.count = 0};
    char number[ZF_FORMAT_ROOM];
    const char *train = c->glyphs == ZF_GLYPHS_ASCII ? "." : "▪", *mean = c->glyphs == ZF_GLYPHS_ASCII ? "*" : "━",
               *valid = c->glyphs == ZF_GLYPHS_ASCII ? "o" : "◆";
    snprintf(l.text[0], sizeof l.text[0], "%s train %s", train, zf_format_value(number, zf_value_now(v, ZF_SERIES_LOSS)));
    l.style[l.count++] = ZF_STYLE_TRAIN;
    if (v->smooth) {
        snprintf(l.text[1], sizeof l.text[1], "%s mean%" PRIu64 " %s", mean, v->smooth, zf_format_value(number, smoothed(v)));
        l.style[l.count++] = ZF_STYLE_SMOOTH;
    }
    if (zf_have(v->h, ZF_SERIES_VALID)) {
        snprintf(l.text[l.count], sizeof l.text[0], "%s valid %s", valid, zf_format_value(number, zf_value_now(v, ZF_SERIES_VALID)));
        l.style[l.count++] = ZF_STYLE_VALID;
    }
    return l;
}

static void put_legend(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    struct legend l = legend_of(v, c);
    char at[40] = "";
    int cols = 0, from = 0;
    if (v->cursor) snprintf(at, sizeof at, "step %" PRIu64, v->cursor_step);
    for (int i = 0; i < l.count; i++) cols += zf_text_width(l.text[i], SIZE_MAX) + 2;
    for (; from < l.count && cols > r.cols - 1; from++) cols -= zf_text_width(l.text[from], SIZE_MAX) + 2;
    if (from == l.count) return;
    int head = (int)strlen(at) + 2;
    if (*at && cols + head <= r.cols - 1)
        cols += head;
    else
        *at = 0;
    int x = r.cols - cols;
    if (*at) x += zf_text(c, r, x, 0, ZF_STYLE_CURSOR, at) + 2;
    for (int i = from; i < l.count; i++) x += zf_text(c, r, x, 0, l.style[i], l.text[i]) + 2;
}

/* What happened at the cursor, or nearest before it within a column. */
static void put_words(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, uint64_t column)
{
    const struct zf_note *best = NULL;
    for (size_t i = 0; i < v->h->notes.count; i++) {
        const struct zf_note *n = &v->h->notes.list[i];
        if (n->step <= v->cursor_step && v->cursor_step - n->step <= column && zf_mark_table[n->kind].axis) best = n;
    }
    if (!best || r.rows < 2) return;
    struct zf_rect low = {r.x, r.y + r.rows - 1, r.cols, 1};
    zf_fill(c, low, ' ', ZF_STYLE_TEXT);
    zf_put(c, low, 1, 0, zf_mark_glyph(c, best->kind), zf_mark_table[best->kind].style);
    zf_fit(c, low, 3, 0, low.cols - 4, ZF_STYLE_STRONG, best->text ? best->text : "");
}

static void one_line(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, uint64_t first, uint64_t last)
{
    char number[ZF_FORMAT_ROOM];
    const struct zf_series *s = zf_history_series(v->h, ZF_SERIES_LOSS);
    int x = zf_textf(c, r, 0, 0, ZF_STYLE_STRONG, "loss %s ", zf_format_value(number, zf_value_now(v, ZF_SERIES_LOSS)));
    int n = r.cols - x;
    double least, most, *value = n > 0 && n <= c->cols ? malloc((size_t)n * (sizeof *value + sizeof(float))) : NULL;
    if (!value) return;
    float *share = (float *)(value + n);
    zf_sample(s, NULL, ZF_HOW_MEAN, first, last, value, n);
    if (zf_series_range(s, first, last, true, &least, &most))
        for (int i = 0; i < n; i++)
            share[i] = (float)(isnan(value[i]) ? -1 : most > least ? fmin(1, fmax(0, (value[i] - least) / (most - least))) : 0.5);
    else
        for (int i = 0; i < n; i++) share[i] = -1;
    zf_spark(c, r, x, 0, share, n, ZF_STYLE_TRAIN);
    free(value);
}

static bool range_of(const struct zf_view *v, uint64_t first, uint64_t last, double *least, double *most)
{
    double low, high;
    bool any = zf_series_range(zf_history_series(v->h, ZF_SERIES_LOSS), first, last, true, least, most);
    if (!zf_series_range(zf_history_series(v->h, ZF_SERIES_VALID), first, last, true, &low, &high)) return any;
    *least = any ? fmin(*least, low) : low;
    *most = any ? fmax(*most, high) : high;
    return true;
}

void zf_draw_loss(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    uint64_t first, last;
    double least, most;
    struct zf_plot p;
    const struct zf_series *loss = zf_history_series(v->h, ZF_SERIES_LOSS), *valid = zf_history_series(v->h, ZF_SERIES_VALID);
    if (r.cols < 1 || r.rows < 1) return;
    zf_axis_steps(v, &first, &last);
    if (!loss->used && !valid->used) {
        zf_say(c, r, "no step yet");
        return;
    }
    if (r.rows < 3 || r.cols < 12) {
        one_line(v, c, r, first, last);
        return;
    }
    bool any = range_of(v, first, last, &least, &most);
    if (!zf_plot_open(&p, c, r, first, last, any ? least : 0, any ? most : 1, v->log_scale)) return;
    zf_plot_spans(&p, loss, ZF_STYLE_TRAIN);
    if (v->smooth) zf_plot_smooth(&p, loss, v->smooth, ZF_STYLE_SMOOTH);
    zf_plot_dots(&p);
    zf_plot_points(&p, valid, zf_glyph(c, 0x25c6, 'o'), ZF_STYLE_VALID);
    zf_plot_trouble(&p, loss);
    zf_plot_marks(&p, &v->h->notes);
    zf_cursor_column(v, c, p.area, first, last, false);
    if (p.area.rows >= 4) put_legend(v, c, p.area);
    if (v->cursor && p.all.rows > p.area.rows) put_words(v, c, r, (last - first) / (uint64_t)p.area.cols);
    if (!any) zf_say(c, p.area, "no value in these steps");
}

void zf_frame_loss(const struct zf_view *v, char *title, char *note, size_t size)
{
    char number[ZF_FORMAT_ROOM];
    uint64_t first, last;
    bool seen[ZF_NOTE_KINDS] = {false};
    zf_view_steps(v, &first, &last);
    if (zf_have(v->h, ZF_SERIES_LOSS))
        zf_append(title, size, "  %s%s", zf_format_value(number, zf_history_series(v->h, ZF_SERIES_LOSS)->last),
                  v->log_scale ? "  log scale" : "");
    for (size_t i = 0; i < v->h->notes.count; i++) {
        const struct zf_note *n = &v->h->notes.list[i];
        if (n->step >= first && n->step <= last) seen[n->kind] = true;
    }
    if (v->from || v->to || v->tail) zf_append(note, size, "steps %" PRIu64 "..%" PRIu64 "  ", first, last);
    seen[ZF_NOTE_WARNING] |= seen[ZF_NOTE_ERROR];
    for (int k = 0; k < ZF_NOTE_KINDS; k++) {
        const struct zf_mark *m = &zf_mark_table[k];
        if (!seen[k] || !m->legend) continue;
        utf8proc_uint8_t glyph[5] = {0};
        utf8proc_encode_char((utf8proc_int32_t)(v->glyphs == ZF_GLYPHS_ASCII ? (uint32_t)m->letter : m->glyph), glyph);
        zf_append(note, size, "%s%s %s", *note ? " " : "", (const char *)glyph, m->legend);
    }
}

/* A row a step, or a piece of steps if there are more than rows for a file. */
void zf_table_loss(const struct zf_view *v, struct zf_table *out)
{
    static const char *const column[] = {"from_step", "to_step", "loss_least", "loss_mean", "loss_most", "loss_smoothed", "valid_loss"};
    const struct zf_series *loss = zf_history_series(v->h, ZF_SERIES_LOSS), *valid = zf_history_series(v->h, ZF_SERIES_VALID);
    uint64_t first, last;
    int n = zf_table_pieces(v, &first, &last);
    out->column = column;
    out->columns = sizeof column / sizeof *column;
    if (!n) return;
    double *mean = malloc((size_t)n * sizeof *mean);
    if (!mean) {
        out->failed = true;
        return;
    }
    zf_series_smooth(loss, v->smooth ? v->smooth : 1, first, last, mean, (size_t)n);
    for (int i = 0; i < n; i++) {
        struct zf_step_range p;
        zf_piece_steps(first, last, i, n, &p);
        struct zf_bucket b = zf_series_between(loss, p.from, p.to), q = zf_series_between(valid, p.from, p.to);
        if (!b.count && !b.bad && !q.count) continue;
        zf_table_row(out,
                     (double[]){(double)p.from, (double)p.to, b.count ? (double)b.least : NAN, b.count ? b.sum / b.count : NAN,
                                b.count ? (double)b.most : NAN, mean[i], q.count ? (double)q.last : NAN},
                     NULL);
    }
    free(mean);
}
