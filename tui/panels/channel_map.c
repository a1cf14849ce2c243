/* One matrix: its channels (or bins of them) by time. Colour or shade is the score; what is selected has a dot, or in shades a digit for
 * its strength. Beside it how the squared norm is spread: the share of the best channels. */
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 7, CURVE = 25, FIXED_DECADES = 6 };

static size_t column_at(const struct zf_channel_map *p, size_t i) /* 0: the oldest */
{
    return (p->at + ZF_CHANNEL_COLUMNS - p->used + i) % ZF_CHANNEL_COLUMNS;
}

static float score_at(const struct zf_channel_map *p, size_t column, size_t row)
{
    return p->score[column * ZF_CHANNEL_ROWS + row];
}

/* Rows of the screen: rows of the map from .. to, the strongest of them counts. */
struct grid {
    int rows, cols;
    size_t *column; /* [cols]: of the map, SIZE_MAX: none */
    float *score;   /* [rows][cols] */
    uint8_t *chosen;
};

static void row_span(const struct zf_channel_map *p, const struct grid *g, int y, size_t *from, size_t *to)
{
    *from = (size_t)y * p->rows / (size_t)g->rows;
    *to = ((size_t)y + 1) * p->rows / (size_t)g->rows;
    if (*to <= *from) *to = *from + 1;
}

static bool grid_open(struct grid *g, const struct zf_view *v, int rows, int cols, uint64_t first, uint64_t last)
{
    const struct zf_channel_map *p = &v->h->map;
    *g = (struct grid){.rows = rows, .cols = cols};
    size_t cells = (size_t)rows * (size_t)cols;
    g->column = malloc((size_t)cols * sizeof *g->column);
    g->score = malloc(cells * sizeof *g->score);
    g->chosen = calloc(cells, 1);
    if (!g->column || !g->score || !g->chosen) return false;
    size_t at = 0, now = SIZE_MAX;
    for (int x = 0; x < cols; x++) {
        struct zf_step_range s;
        zf_piece_steps(first, last, x, cols, &s);
        while (at < p->used && p->step[column_at(p, at)] <= s.to) now = column_at(p, at++);
        g->column[x] = s.from > v->h->step ? SIZE_MAX : now;
    }
    for (int y = 0; y < rows; y++) {
        size_t from, to;
        row_span(p, g, y, &from, &to);
        for (int x = 0; x < cols; x++) {
            size_t i = (size_t)y * (size_t)cols + (size_t)x;
            g->score[i] = NAN;
            for (size_t k = from; g->column[x] != SIZE_MAX && k < to && k < p->rows; k++) {
                float s = score_at(p, g->column[x], k);
                uint8_t chosen = p->selected[g->column[x] * ZF_CHANNEL_ROWS + k];
                if (!(s <= g->score[i])) g->score[i] = isfinite(s) ? s : g->score[i];
                if (chosen > g->chosen[i]) g->chosen[i] = chosen;
            }
        }
    }
    return true;
}

static void grid_close(struct grid *g)
{
    free(g->column);
    free(g->score);
    free(g->chosen);
}

/* Fixed: so many decades below the highest whole one; else what is there, outwards to half decades. */
static void scale_of(const struct zf_view *v, const struct grid *g, double *least, double *most)
{
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t i = 0; i < (size_t)g->rows * (size_t)g->cols; i++) {
        if (!isfinite(g->score[i])) continue;
        *least = fmin(*least, (double)g->score[i]);
        *most = fmax(*most, (double)g->score[i]);
    }
    if (!(*most >= *least)) *least = -1, *most = 0;
    *most = v->fixed_scale ? ceil(*most) : ceil(2 * *most) / 2;
    *least = v->fixed_scale ? *most - FIXED_DECADES : floor(2 * *least) / 2;
    if (!(*most > *least)) *most = *least + 1;
}

static void cell(struct zf_canvas *c, struct zf_rect r, int x, int y, int level, uint8_t chosen)
{
    zf_heat(c, r, x, y, level, level);
    if (level < 0 || !chosen) return;
    if (zf_heat_rows(c) == 1) /* shades: the digit is the strength */
        zf_put(c, r, x, y, (uint32_t)('0' + level * 10 / ZF_HEAT_LEVELS), ZF_STYLE_STRONG);
    else
        zf_put(c, r, x, y,
               chosen >= 192  ? 0x25cf
               : chosen >= 64 ? 0x2022
                              : 0x00b7,
               (unsigned)(ZF_STYLE_HEAT + (level < ZF_HEAT_LEVELS / 2 ? ZF_HEAT_LEVELS - 1 : 0) * ZF_HEAT_LEVELS + level));
}

/* The first channel of a row of the map. */
static uint64_t channel_of(const struct zf_view *v, size_t row)
{
    const struct zf_matrix_seen *m = &v->h->matrix[v->matrix];
    return v->h->map.rows ? (uint64_t)((double)m->channels * (double)row / (double)v->h->map.rows) : 0;
}

static void draw_curve(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    static const char *const label[] = {"0.1 %", "1 %", "5 %", "10 %", "20 %", "50 %"};
    const struct zf_matrix_seen *m = &v->h->matrix[v->matrix];
    char number[ZF_FORMAT_ROOM];
    int y = 0;
    zf_fit(c, r, 0, y++, r.cols, ZF_STYLE_DIM, c->glyphs == ZF_GLYPHS_ASCII ? "channels  hold of |g|^2" : "channels  hold of |g|²");
    for (int i = 0; i < 6 && y < r.rows; i++, y++) {
        zf_text(c, r, 6 - (int)strlen(label[i]), y, ZF_STYLE_DIM, label[i]);
        zf_bar(c, r, 8, y, r.cols - 15, (double)m->top[i], ZF_STYLE_SMOOTH);
        zf_text_right(c, r, y, ZF_STYLE_TEXT, zf_format_share(number, (double)m->top[i]));
    }
    y++;
    zf_textf(c, r, 0, y++, ZF_STYLE_TEXT, "selected %" PRIu64, m->selected);
    zf_textf(c, r, 0, y++, ZF_STYLE_TEXT, "energy   %s", zf_format_share(number, m->energy));
    zf_textf(c, r, 0, y++, ZF_STYLE_TEXT, "kept     %s", zf_format_share(number, m->kept));
    zf_textf(c, r, 0, y, ZF_STYLE_DIM, "%" PRIu64 " x %" PRIu64, m->channels, m->length);
}

static void draw_words(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    const struct zf_channel_map *p = &v->h->map;
    size_t row = v->cursor_row < p->rows ? (size_t)v->cursor_row : p->rows - 1, column = SIZE_MAX;
    for (size_t i = 0; i < p->used && p->step[column_at(p, i)] <= v->cursor_step; i++) column = column_at(p, i);
    if (column == SIZE_MAX) return;
    uint64_t from = channel_of(v, row), end = channel_of(v, row + 1);
    char channels[64];
    if (end > from + 1)
        snprintf(channels, sizeof channels, "channels %" PRIu64 "..%" PRIu64, from, end - 1);
    else
        snprintf(channels, sizeof channels, "channel %" PRIu64, from);
    zf_textf(c, r, 0, r.rows - 1, ZF_STYLE_SELECTED, "%s  step %" PRIu64 "  score 1e%.2f  %.0f %% selected", channels, p->step[column],
             (double)score_at(p, column, row), p->selected[column * ZF_CHANNEL_ROWS + row] * 100 / 255.0);
}

static void draw_legend(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, double least, double most)
{
    const struct zf_matrix_seen *m = &v->h->matrix[v->matrix];
    char low[32], high[32];
    int y = r.rows - 1;
    snprintf(low, sizeof low, "1e%.3g", least);
    snprintf(high, sizeof high, "1e%.3g", most);
    int x = zf_ramp(c, r, 0, y, low, high) + 2;
    const char *words = !m->selected           ? "nothing is selected"
                        : !m->channel          ? "which are selected: `set log_channels yes`"
                        : zf_heat_rows(c) == 1 ? "0-9 selected, by strength"
                                               : "● selected";
    zf_fit(c, r, x, y, r.cols - x, ZF_STYLE_DIM, words);
}

static void draw_grid(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, const struct grid *g, double least, double most)
{
    const struct zf_channel_map *p = &v->h->map;
    for (int y = 0; y < g->rows; y++) {
        char text[32];
        size_t from, to;
        row_span(p, g, y, &from, &to);
        bool here = v->cursor && v->cursor_row >= from && v->cursor_row < to;
        snprintf(text, sizeof text, "%*" PRIu64, LABEL - 1, channel_of(v, from));
        if (here || y % 2 == 0 || g->rows < 8) zf_fit(c, r, 0, y, LABEL - 1, here ? ZF_STYLE_SELECTED : ZF_STYLE_DIM, text);
        for (int x = 0; x < g->cols; x++) {
            size_t i = (size_t)y * (size_t)g->cols + (size_t)x;
            cell(c, r, LABEL + x, y, zf_level(c, (double)g->score[i], least, most), g->chosen[i]);
        }
    }
}

void zf_draw_channel_map(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    const struct zf_channel_map *p = &v->h->map;
    if (p->matrix != v->matrix || !p->used || !p->rows || !p->score) {
        zf_say(c, r, "No scores of this matrix yet: they come with `score` (now), or `watch NAME` (every step).");
        return;
    }
    uint64_t first, last;
    double least, most;
    struct grid g;
    bool legend = r.rows >= 3, curve = r.cols >= 64 && r.rows >= 6;
    int rows = r.rows - legend, cols = r.cols - LABEL - (curve ? CURVE : 0);
    if (rows < 1 || cols < 1 || cols > c->cols || rows > c->rows) return;
    if ((size_t)rows > p->rows) rows = (int)p->rows;
    zf_axis_steps(v, &first, &last);
    if (p->step[column_at(p, 0)] > first) first = p->step[column_at(p, 0)] < last ? p->step[column_at(p, 0)] : last;
    if (grid_open(&g, v, rows, cols, first, last)) {
        scale_of(v, &g, &least, &most);
        draw_grid(v, c, r, &g, least, most);
        zf_cursor_column(v, c, (struct zf_rect){r.x + LABEL, r.y, cols, rows}, first, last, true);
        if (legend && v->cursor)
            draw_words(v, c, r);
        else if (legend)
            draw_legend(v, c, r, least, most);
        if (curve) draw_curve(v, c, (struct zf_rect){r.x + r.cols - CURVE + 1, r.y, CURVE - 1, r.rows - legend});
    }
    grid_close(&g);
}

void zf_table_channel_map(const struct zf_view *v, struct zf_table *out)
{
    static const char *const column[] = {"step", "first_channel", "last_channel", "log10_score", "selected_share"};
    const struct zf_channel_map *p = &v->h->map;
    out->column = column;
    out->columns = 5;
    if (p->matrix != v->matrix || !p->score) return;
    for (size_t i = 0; i < p->used; i++)
        for (size_t row = 0; row < p->rows; row++) {
            size_t at = column_at(p, i);
            uint64_t from = channel_of(v, row), end = channel_of(v, row + 1);
            zf_table_row(out,
                         (double[]){(double)p->step[at], (double)from, (double)(end > from ? end - 1 : from), (double)score_at(p, at, row),
                                    p->selected[at * ZF_CHANNEL_ROWS + row] / 255.0},
                         NULL);
        }
}
