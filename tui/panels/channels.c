/* Channels: where the gradient is. Of all matrices (here) the share of the squared norm that the selected channels hold, layer by time; of
 * one matrix (channel_map.c) the scores of its channels over time. */
#include "tui/panels/parts.h"
#include "core/base/plural.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 512, NOW = 6 };

static bool zoomed(const struct zf_view *v)
{
    return v->matrix < v->h->matrices;
}

static const char *name_of(const struct zf_history *h, size_t i)
{
    return h->matrix[i].name ? h->matrix[i].name : "";
}

uint64_t zf_channels_rows(const struct zf_view *v)
{
    uint64_t n = 0;
    if (zoomed(v)) return v->h->map.matrix == v->matrix ? v->h->map.rows : 0;
    for (size_t i = 0; i < v->h->matrices; i++) n += zf_matches(name_of(v->h, i), v->filter[ZF_PANEL_CHANNELS]);
    return n;
}

uint64_t zf_scrolls_channels(const struct zf_view *v, struct zf_rect r)
{
    uint64_t n = zf_channels_rows(v);
    (void)r;
    return n ? n - 1 : 0;
}

size_t zf_channels_matrix(const struct zf_view *v, uint64_t row)
{
    if (zoomed(v)) return v->matrix;
    for (size_t i = 0; i < v->h->matrices; i++)
        if (zf_matches(name_of(v->h, i), v->filter[ZF_PANEL_CHANNELS]) && !row--) return i;
    return SIZE_MAX;
}

/* ---- rows: matrices, or layers, or as many together as it takes ---- */

/* The number among the parts of a name, "model.layers.3.mlp": 3; -1: none. */
static long layer_of(const char *name)
{
    for (const char *s = strchr(name, '.'); s; s = strchr(s + 1, '.')) {
        char *end;
        if (!isdigit((unsigned char)s[1])) continue;
        long n = strtol(s + 1, &end, 10);
        if ((*end == '.' || !*end) && n >= 0 && n < 100000) return n;
    }
    return -1;
}

/* "L3 q_proj", "embed_tokens"; of a row of several: "L3", "L3-5", "embed-L2". */
static void label_of(const char *name, const char *last, char *to, size_t size)
{
    long layer = layer_of(name), end = layer_of(last);
    size_t n = strlen(name);
    if (n > 7 && !strcmp(name + n - 7, ".weight")) n -= 7;
    size_t from = n;
    while (from > 0 && name[from - 1] != '.') from--;
    if (layer < 0 && end >= 0) /* "embed-L2" */
        snprintf(to, size, "%.*s-L%ld", (int)strcspn(name + from, "_."), name + from, end);
    else if (layer < 0)
        snprintf(to, size, "%.*s", (int)(n - from < 60 ? n - from : 60), name + from);
    else if (end > layer)
        snprintf(to, size, "L%ld-%ld", layer, end);
    else if (name == last)
        snprintf(to, size, "L%ld %.*s", layer, (int)(n - from < 60 ? n - from : 60), name + from);
    else
        snprintf(to, size, "L%ld", layer);
}

struct rows {
    size_t *matrix;       /* those that the filter lets through */
    size_t count, groups; /* groups[]: rows of values, matrices first[g] .. first[g+1] */
    size_t first[ROWS_MOST + 1];
    size_t cells; /* of the map's height: one or two rows of values in each */
    int tall;     /* lines that a cell takes */
};

static bool begins_layer(const struct zf_view *v, const struct rows *k, size_t i)
{
    if (!i) return true;
    long a = layer_of(name_of(v->h, k->matrix[i - 1])), b = layer_of(name_of(v->h, k->matrix[i]));
    return a != b || a < 0;
}

static bool rows_open(struct rows *k, const struct zf_view *v, size_t cells, size_t halves)
{
    size_t layers = 0, most;
    *k = (struct rows){.tall = 1};
    k->matrix = v->h->matrices ? malloc(v->h->matrices * sizeof *k->matrix) : NULL;
    if (!k->matrix || !cells) return false;
    for (size_t i = 0; i < v->h->matrices; i++)
        if (zf_matches(name_of(v->h, i), v->filter[ZF_PANEL_CHANNELS])) k->matrix[k->count++] = i;
    if (!k->count) return false;
    for (size_t i = 0; i < k->count; i++) layers += begins_layer(v, k, i);
    if (cells > ROWS_MOST / halves) cells = ROWS_MOST / halves;
    bool by_layer = k->count > cells;
    size_t things = by_layer ? layers : k->count;
    most = cells * halves;
    k->groups = things < most ? things : most;
    k->cells = k->groups < cells ? k->groups : cells;
    if (k->groups * 2 <= cells) k->tall = cells / k->groups > 3 ? 3 : (int)(cells / k->groups);
    for (size_t i = 0, thing = 0, g = 0; i < k->count && g < k->groups; i++) { /* thing: of what i is the first, or part of */
        bool begins = !by_layer || begins_layer(v, k, i);
        if (begins && thing++ == g * things / k->groups) k->first[g++] = i;
    }
    k->first[k->groups] = k->count;
    return true;
}

/* ---- values ---- */

/* A matrix's energy at the ends of n pieces of first..last, added to sum and count. Between two selections the last one holds. */
static void add_energy(const struct zf_history *h, size_t matrix, uint64_t first, uint64_t last, double *sum, int *count, int n)
{
    const float *energy = h->matrix[matrix].energy_column;
    double now = NAN;
    size_t at = 0;
    if (!energy) return;
    for (int x = 0; x < n; x++) {
        struct zf_step_range p;
        double own = 0;
        int parts = 0;
        zf_piece_steps(first, last, x, n, &p);
        if (p.from > h->step) break;
        for (; at < h->heat.used && h->heat.step[at] <= p.to; at++) {
            if (isnan(energy[at])) continue;
            now = (double)energy[at];
            if (h->heat.step[at] < p.from) continue;
            own += now;
            parts++;
        }
        double value = parts ? own / parts : now;
        if (isnan(value)) continue;
        sum[x] += value;
        count[x]++;
    }
}

/* Rows of values [groups][n]; NaN: not known. To be freed. */
static double *values_of(const struct zf_view *v, const struct rows *k, uint64_t first, uint64_t last, int n)
{
    double *value = calloc(k->groups * (size_t)n, sizeof *value);
    int *count = calloc((size_t)n, sizeof *count);
    for (size_t g = 0; value && count && g < k->groups; g++) {
        double *row = value + g * (size_t)n;
        memset(count, 0, (size_t)n * sizeof *count);
        for (size_t i = k->first[g]; i < k->first[g + 1]; i++) add_energy(v->h, k->matrix[i], first, last, row, count, n);
        for (int x = 0; x < n; x++) row[x] = count[x] ? row[x] / count[x] : NAN;
    }
    if (!count) {
        free(value);
        value = NULL;
    }
    free(count);
    return value;
}

struct scale {
    double least, most;
};

static struct scale scale_of(const struct zf_view *v, const double *value, size_t n)
{
    struct scale s = {INFINITY, -INFINITY};
    if (v->fixed_scale) return (struct scale){0, 1};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(value[i])) continue;
        s.least = fmin(s.least, value[i]);
        s.most = fmax(s.most, value[i]);
    }
    if (!(s.most >= s.least)) return (struct scale){0, 1};
    /* to twentieths, outwards: a scale that moves with every value makes all cells twinkle */
    s.least = floor(20 * s.least + 1e-9) / 20;
    s.most = ceil(20 * s.most - 1e-9) / 20;
    if (s.most > 1) s.most = 1;
    if (s.least > s.most - 0.05) s.least = s.most - 0.05;
    return s;
}

/* ---- drawing ---- */

static void draw_rows(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, const struct rows *k, const double *value, int label,
                      int now, const struct scale *s)
{
    int n = r.cols - label - now;
    for (size_t cell = 0; cell < k->cells; cell++) {
        char text[80], number[ZF_FORMAT_ROOM];
        int y = (int)cell * k->tall;
        size_t g = cell * k->groups / k->cells, next = (cell + 1) * k->groups / k->cells, end = k->first[next];
        bool here = v->cursor && v->cursor_row >= k->first[g] && v->cursor_row < end;
        label_of(name_of(v->h, k->matrix[k->first[g]]), name_of(v->h, k->matrix[end - 1]), text, sizeof text);
        zf_fit(c, r, 0, y, label - 1, here ? ZF_STYLE_SELECTED : ZF_STYLE_DIM, text);
        for (int x = 0; x < n; x++) {
            const double *at = value + g * (size_t)n + x;
            int upper = zf_level(c, at[0], s->least, s->most), lower = g + 1 < next ? zf_level(c, at[n], s->least, s->most) : upper;
            for (int i = 0; i < k->tall; i++) zf_heat(c, r, label + x, y + i, upper, lower);
        }
        double last = NAN;
        for (int x = n; x > 0 && isnan(last); x--) last = value[g * (size_t)n + (size_t)x - 1];
        if (now) zf_text_right(c, r, y, ZF_STYLE_TEXT, zf_format_share(number, last));
    }
}

static double mean_kept(const struct zf_history *h)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < h->matrices; i++)
        if (isfinite(h->matrix[i].kept)) sum += h->matrix[i].kept, n++;
    return n > 0 ? sum / n : NAN;
}

/* How much of a selection was there before: a course, and a value. */
static void draw_kept(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int x, int y, uint64_t first, uint64_t last)
{
    enum { WIDE = 16 };
    char number[ZF_FORMAT_ROOM];
    double value[WIDE], kept = mean_kept(v->h);
    float share[WIDE];
    if (isnan(kept)) return;
    x += zf_text(c, r, x, y, ZF_STYLE_DIM, "kept ");
    if (r.cols - x >= WIDE + 6 && zf_have(v->h, ZF_SERIES_KEPT)) {
        zf_sample(zf_history_series(v->h, ZF_SERIES_KEPT), NULL, ZF_HOW_MEAN, first, last, value, WIDE);
        for (int i = 0; i < WIDE; i++) share[i] = (float)(isnan(value[i]) ? -1 : fmin(1, fmax(0, value[i])));
        zf_spark(c, r, x, y, share, WIDE, ZF_STYLE_SMOOTH);
        x += WIDE + 1;
    }
    zf_text(c, r, x, y, ZF_STYLE_TEXT, zf_format_share(number, kept));
}

static void draw_legend(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, const struct scale *s, uint64_t first,
                        uint64_t last)
{
    char low[ZF_FORMAT_ROOM], high[ZF_FORMAT_ROOM];
    int y = r.rows - 1, x = 0;
    if (r.cols >= 44) x = zf_text(c, r, 0, y, ZF_STYLE_DIM, "energy ");
    x += zf_ramp(c, r, x, y, zf_format_share(low, s->least), zf_format_share(high, s->most)) + 2;
    if (r.cols - x >= 10) draw_kept(v, c, r, x, y, first, last);
}

/* Of the cursor: which matrix, when, how much. */
static void draw_words(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    size_t i = zf_channels_matrix(v, v->cursor_row);
    char text[64] = "", share[ZF_FORMAT_ROOM], kept[ZF_FORMAT_ROOM];
    int y = r.rows - 1;
    double value = NAN;
    if (i == SIZE_MAX) return;
    const struct zf_matrix_seen *m = &v->h->matrix[i];
    for (size_t k = 0; k < v->h->heat.used && m->energy_column && v->h->heat.step[k] <= v->cursor_step; k++)
        if (!isnan(m->energy_column[k])) value = (double)m->energy_column[k];
    snprintf(text, sizeof text, "  step %" PRIu64 "  energy %s  kept %s", v->cursor_step, zf_format_share(share, value),
             zf_format_share(kept, m->kept));
    int cols = (int)strlen(text);
    if (cols > r.cols - 12) cols = 0;
    int x = zf_fit(c, r, 0, y, r.cols - cols, ZF_STYLE_SELECTED, name_of(v->h, i));
    if (cols) zf_text(c, r, x, y, ZF_STYLE_TEXT, text);
}

static void draw_all(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    uint64_t first, last;
    struct rows k = {.matrix = NULL};
    int legend = r.rows >= 3, label = r.cols >= 70 ? 16 : r.cols >= 30 ? 12 : 5, now = r.cols >= 40 ? NOW : 0, n = r.cols - label - now;
    zf_axis_steps(v, &first, &last);
    double *value = NULL;
    if (n > 0 && n <= c->cols && rows_open(&k, v, (size_t)(r.rows - legend), (size_t)zf_heat_rows(c)))
        value = values_of(v, &k, first, last, n);
    else if (n > 0)
        zf_say(c, r, v->h->matrices ? "no matrix has this filter's text in its name" : "no step yet");
    if (value) {
        struct scale s = scale_of(v, value, k.groups * (size_t)n);
        struct zf_rect map = {r.x, r.y, r.cols, r.rows - legend};
        draw_rows(v, c, map, &k, value, label, now, &s);
        int rows = (int)k.cells * k.tall;
        zf_cursor_column(v, c, (struct zf_rect){r.x + label, r.y, n, rows}, first, last, true);
        if (legend && v->cursor)
            draw_words(v, c, r);
        else if (legend)
            draw_legend(v, c, r, &s, first, last);
    }
    free(value);
    free(k.matrix);
}

void zf_draw_channels(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    if (r.cols < 1 || r.rows < 1) return;
    if (zoomed(v))
        zf_draw_channel_map(v, c, r);
    else if (!v->h->heat.used)
        zf_say(c, r, v->h->step ? "no scores yet: `score` takes them now, `set score_every N` every N steps" : "no step yet");
    else
        draw_all(v, c, r);
}

static bool selects(const struct zf_history *h)
{
    for (size_t i = 0; i < h->matrices; i++)
        if (h->matrix[i].selected) return true;
    return false;
}

void zf_frame_channels(const struct zf_view *v, char *title, char *note, size_t size)
{
    char value[64];
    if (zoomed(v)) {
        const struct zf_matrix_seen *m = &v->h->matrix[v->matrix];
        zf_append(title, size, "  %s  %" PRIu64 " channel%s", name_of(v->h, v->matrix), m->channels, zf_plural(m->channels));
        zf_append(note, size, "score, log10  %s scale", v->fixed_scale ? "fixed" : "relative");
        return;
    }
    zf_history_option(v->h, "topk_ratio", value, sizeof value);
    double ratio = strtod(value, NULL);
    if (!selects(v->h))
        zf_append(title, size, "  |g|%s in the best 10 %%", v->glyphs == ZF_GLYPHS_ASCII ? "^2" : "²");
    else if (ratio > 0 && ratio < 1)
        zf_append(title, size, "  |g|%s in the top %.4g %%", v->glyphs == ZF_GLYPHS_ASCII ? "^2" : "²", 100 * ratio);
    if (*v->filter[ZF_PANEL_CHANNELS]) zf_append(title, size, "  /%s", v->filter[ZF_PANEL_CHANNELS]);
    zf_append(note, size, "layer x time  %s scale", v->fixed_scale ? "fixed" : "relative");
}

static void free_names(struct zf_table *out)
{
    for (size_t i = 0; out->names && i < out->columns; i++) free(out->names[i]);
    free(out->names);
    out->names = NULL;
    out->failed = true;
}

/* A row a column of the map, a column a matrix. */
static void table_all(const struct zf_view *v, struct zf_table *out)
{
    uint64_t n = zf_channels_rows(v);
    const struct zf_history *h = v->h;
    double *cell = malloc((size_t)(n + 1) * sizeof *cell);
    out->columns = (size_t)n + 1;
    out->names = calloc(out->columns, sizeof *out->names);
    bool ok = cell && out->names && (out->names[0] = strdup("step"));
    for (size_t i = 0, k = 1; ok && i < h->matrices; i++)
        if (zf_matches(name_of(h, i), v->filter[ZF_PANEL_CHANNELS])) ok = (out->names[k++] = strdup(name_of(h, i))) != NULL;
    if (!ok) free_names(out);
    out->column = (const char *const *)out->names;
    for (size_t c = 0; ok && c < h->heat.used; c++) {
        size_t k = 1;
        cell[0] = (double)h->heat.step[c];
        for (size_t i = 0; i < h->matrices; i++)
            if (zf_matches(name_of(h, i), v->filter[ZF_PANEL_CHANNELS]))
                cell[k++] = h->matrix[i].energy_column ? (double)h->matrix[i].energy_column[c] : NAN;
        zf_table_row(out, cell, NULL);
    }
    free(cell);
}

void zf_table_channels(const struct zf_view *v, struct zf_table *out)
{
    if (zoomed(v))
        zf_table_channel_map(v, out);
    else
        table_all(v, out);
}
