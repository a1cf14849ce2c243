/* Device: one metric a row, its course over the steps that all plots show, and its value now. What the lanes did is known of every device;
 * rows of a GPU appear when it tells something. */
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*format_fn)(char to[ZF_FORMAT_ROOM], double v);

static const char *per_second(char to[ZF_FORMAT_ROOM], double v)
{
    char number[ZF_FORMAT_ROOM];
    snprintf(to, ZF_FORMAT_ROOM, "%s/s", zf_format_count(number, v));
    return to;
}

static const char *gb_per_s(char to[ZF_FORMAT_ROOM], double v)
{
    if (!isfinite(v)) return zf_format_value(to, v);
    if (v >= 0 && v < 0.1) {
        snprintf(to, ZF_FORMAT_ROOM, v < 9.95e-5 ? "%.2f MB/s" : "%.1f MB/s", 1e3 * v);
        return to;
    }
    snprintf(to, ZF_FORMAT_ROOM, fabs(v) < 9.995 ? "%.2f GB/s" : fabs(v) < 1e6 ? "%.1f GB/s" : "%.1e GB/s", v);
    return to;
}

static const char *watts(char to[ZF_FORMAT_ROOM], double v)
{
    snprintf(to, ZF_FORMAT_ROOM, isfinite(v) && fabs(v) < 1e6 ? "%.0f W" : "--", v);
    return to;
}

static const char *degrees(char to[ZF_FORMAT_ROOM], double v)
{
    snprintf(to, ZF_FORMAT_ROOM, isfinite(v) && fabs(v) < 1e6 ? "%.0f C" : "--", v);
    return to;
}

enum scale { OF_ONE, OF_MOST, OF_LITTLE }; /* LITTLE: of one if it is much, else of a tenth, or nothing would be seen */
/* In the order of their importance; what has no values is left out. `per`: of the sums, times `times`. */
static const struct metric {
    const char *label, *column;
    enum zf_series_id id;
    int per; /* a series, -1: none */
    double times;
    enum zf_how how;
    enum scale scale;
    format_fn format;
    uint16_t style;
} metrics[] = {
    {"gpu", "gpu_utilization", ZF_SERIES_GPU_UTILIZATION, -1, 1, ZF_HOW_MEAN, OF_ONE, zf_format_share, ZF_STYLE_GOOD},
    {"compute", "busy_compute", ZF_SERIES_BUSY_COMPUTE, -1, 1, ZF_HOW_MEAN, OF_ONE, zf_format_share, ZF_STYLE_BUSY},
    {"stall", "stall_share", ZF_SERIES_STALL_MS, ZF_SERIES_STEP_MS, 1, ZF_HOW_MEAN, OF_LITTLE, zf_format_share, ZF_STYLE_STALL},
    {"tokens", "tokens_per_s", ZF_SERIES_TOKENS_PER_S, -1, 1, ZF_HOW_MEAN, OF_MOST, per_second, ZF_STYLE_TRAIN},
    {"memory", "memory_device", ZF_SERIES_MEMORY_DEVICE, -1, 1, ZF_HOW_MOST, OF_MOST, zf_format_bytes, ZF_STYLE_BUSY},
    {"bus up", "h2d_gb_per_s", ZF_SERIES_H2D_BYTES, ZF_SERIES_STEP_MS, 1e-6, ZF_HOW_MEAN, OF_MOST, gb_per_s, ZF_STYLE_COPY},
    {"bus down", "d2h_gb_per_s", ZF_SERIES_D2H_BYTES, ZF_SERIES_STEP_MS, 1e-6, ZF_HOW_MEAN, OF_MOST, gb_per_s, ZF_STYLE_COPY},
    {"power", "power_w", ZF_SERIES_GPU_POWER, -1, 1, ZF_HOW_MEAN, OF_MOST, watts, ZF_STYLE_WARN},
    {"gpu mem", "gpu_memory", ZF_SERIES_GPU_MEMORY, -1, 1, ZF_HOW_MOST, OF_MOST, zf_format_bytes, ZF_STYLE_BUSY},
    {"cpu", "busy_cpu", ZF_SERIES_BUSY_CPU, -1, 1, ZF_HOW_MEAN, OF_ONE, zf_format_share, ZF_STYLE_UP},
    {"adam", "adam_gb_s", ZF_SERIES_ADAM_GB_S, -1, 1, ZF_HOW_MEAN, OF_MOST, gb_per_s, ZF_STYLE_UP},
    {"host mem", "memory_host", ZF_SERIES_MEMORY_HOST, -1, 1, ZF_HOW_MOST, OF_MOST, zf_format_bytes, ZF_STYLE_UP},
    {"temp", "temperature_c", ZF_SERIES_GPU_TEMPERATURE, -1, 1, ZF_HOW_MOST, OF_MOST, degrees, ZF_STYLE_WARN},
    {"pcie up", "pcie_rx", ZF_SERIES_GPU_RX, -1, 1e-9, ZF_HOW_MEAN, OF_MOST, gb_per_s, ZF_STYLE_COPY},
    {"pcie down", "pcie_tx", ZF_SERIES_GPU_TX, -1, 1e-9, ZF_HOW_MEAN, OF_MOST, gb_per_s, ZF_STYLE_COPY},
};
enum { METRICS = sizeof metrics / sizeof *metrics, LABEL = 10, VALUE = 11 };

/* A course that has several lines for itself: filled from below. */
static void area(struct zf_canvas *c, struct zf_rect r, const float *share, int n, unsigned style)
{
    struct zf_dots d;
    if (!zf_dots_open(&d, c, r)) return;
    for (int x = 0; x < d.cols; x++) {
        float s = share[x * n / d.cols];
        if (s >= 0) zf_dots_span(&d, c->glyphs, x, d.rows - 1 - (int)(s * (float)(d.rows - 1) + 0.5f), d.rows - 1, style);
    }
    zf_dots_close(&d, c);
}

/* Values as shares of the axis; below 0: none. */
static void scale_to(const struct metric *m, const double *value, float *share, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(value[i])) most = fmax(most, value[i]);
    double of = m->scale == OF_ONE ? 1 : m->scale == OF_LITTLE ? (most > 0.1 ? 1 : 0.1) : most > 0 ? most / 0.85 : 1;
    for (int i = 0; i < n; i++) share[i] = (float)(isnan(value[i]) ? -1 : fmin(1, fmax(0, value[i] / of)));
}

static void draw_metric(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, const struct metric *m, uint64_t first,
                        uint64_t last)
{
    char number[ZF_FORMAT_ROOM];
    int label = r.cols >= 30 ? LABEL : 8, n = r.cols - label - VALUE, fine = r.rows > 1 ? zf_dots_x(c->glyphs) : 1;
    double now = m->how == ZF_HOW_MEAN ? zf_recent(v, m->id, m->per) : zf_value_now(v, m->id);
    zf_fit(c, r, 0, 0, label - 1, ZF_STYLE_DIM, m->label);
    zf_text_right(c, r, 0, ZF_STYLE_TEXT, m->format(number, m->times * now));
    double *value = n > 0 && n <= c->cols ? malloc((size_t)(n * fine) * (sizeof *value + sizeof(float))) : NULL;
    if (!value) return;
    float *share = (float *)(value + n * fine);
    zf_sample(zf_history_series(v->h, m->id), zf_per(v, m->per), m->how, first, last, value, n * fine);
    scale_to(m, value, share, n * fine);
    if (r.rows > 1)
        area(c, (struct zf_rect){r.x + label, r.y, n, r.rows}, share, n * fine, m->style);
    else
        zf_spark(c, r, label, 0, share, n, m->style);
    free(value);
    zf_cursor_column(v, c, (struct zf_rect){r.x + label, r.y, n, r.rows}, first, last, false);
}

/* A figure has a row if there are values of it, or a reason why there are none. */
static bool has_row(const struct zf_view *v, const struct metric *m)
{
    return zf_have(v->h, m->id) || zf_history_refused(v->h, m->id);
}

static void draw_refused(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, const struct metric *m)
{
    char text[64];
    int label = r.cols >= 30 ? LABEL : 8;
    snprintf(text, sizeof text, "n/a (%s)", zf_history_refused(v->h, m->id));
    zf_fit(c, r, 0, 0, label - 1, ZF_STYLE_DIM, m->label);
    zf_fit(c, r, label, 0, r.cols - label, ZF_STYLE_DIM, text);
}

void zf_draw_device(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    uint64_t first, last;
    int y = 0, count = 0;
    zf_axis_steps(v, &first, &last);
    for (int i = 0; i < METRICS; i++) count += has_row(v, &metrics[i]);
    /* so many lines each that all are seen, one of them a gap */
    int tall = count && r.rows / count >= 3 ? r.rows / count : 1, gap = tall > 2;
    if (tall > 6) tall = 6;
    for (int i = 0; i < METRICS && y < r.rows; i++) {
        struct zf_rect row = {r.x, r.y + y, r.cols, tall - gap};
        if (!has_row(v, &metrics[i])) continue;
        if (zf_have(v->h, metrics[i].id))
            draw_metric(v, c, row, &metrics[i], first, last);
        else
            draw_refused(v, c, row, &metrics[i]);
        y += tall;
    }
    if (!count) zf_say(c, r, "no step yet");
}

void zf_frame_device(const struct zf_view *v, char *title, char *note, size_t size)
{
    uint64_t first, last;
    if (v->h->device && *v->h->device) zf_append(title, size, "  %s", v->h->device);
    zf_view_steps(v, &first, &last);
    if (!v->h->step) return;
    if (v->cursor)
        zf_append(note, size, "at step %" PRIu64, v->cursor_step);
    else
        zf_append(note, size, "steps %" PRIu64 "..%" PRIu64, first, last);
}

void zf_table_device(const struct zf_view *v, struct zf_table *out)
{
    static const char *column[METRICS + 2] = {"from_step", "to_step"};
    uint64_t first, last;
    int n = zf_table_pieces(v, &first, &last);
    for (int i = 0; i < METRICS; i++) column[i + 2] = metrics[i].column;
    out->column = column;
    out->columns = METRICS + 2;
    for (int k = 0; k < n; k++) {
        struct zf_step_range p;
        double cell[METRICS + 2];
        zf_piece_steps(first, last, k, n, &p);
        cell[0] = (double)p.from;
        cell[1] = (double)p.to;
        for (int i = 0; i < METRICS; i++) {
            zf_sample(zf_history_series(v->h, metrics[i].id), zf_per(v, metrics[i].per), metrics[i].how, p.from, p.to, &cell[i + 2], 1);
            cell[i + 2] *= metrics[i].times;
        }
        zf_table_row(out, cell, NULL);
    }
}
