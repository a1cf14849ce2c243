/* Run: where it stands, a fact a line: learning rate now and ahead, norm, speed, what is left, memory, the last save, counters; below them
 * the largest gradients, when `norms` lines tell them. */
#include "tui/panels/parts.h"

#include "core/base/plural.h"
#include "core/optim/schedule.h"
#include "core/telemetry/eta.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 7, SPARK_MOST = 512 };

static double option_number(const struct zf_history *h, const char *name, double absent)
{
    const json_t *x = json_object_get(h->options, name);
    return json_is_number(x) ? json_number_value(x) : absent;
}

static struct zf_schedule schedule_of(const struct zf_history *h)
{
    char kind[16];
    double steps = fmin(option_number(h, "schedule_steps", 0), 1e15), warmup = fmin(option_number(h, "warmup_steps", 0), 1e15);
    zf_history_option(h, "schedule", kind, sizeof kind);
    return (struct zf_schedule){.kind = !strcmp(kind, "cosine")   ? ZF_COSINE
                                        : !strcmp(kind, "linear") ? ZF_LINEAR
                                                                  : ZF_CONSTANT,
                                .rate = option_number(h, "learning_rate", NAN),
                                .least = option_number(h, "min_learning_rate", 0),
                                .steps = steps > 0 ? (uint64_t)steps : h->steps,
                                .warmup = warmup > 0 ? (uint64_t)warmup : 0};
}

/* Shares of the most of values; NaN: blank. */
static void spark(struct zf_canvas *c, struct zf_rect r, int x, int y, const double *value, int n, double most, unsigned style)
{
    float share[SPARK_MOST];
    for (int i = 0; i < n; i++) share[i] = (float)(isfinite(value[i]) && most > 0 ? fmin(1, fmax(0, value[i] / most)) * 0.999 : -1);
    zf_spark(c, r, x, y, share, n, style);
}

static double most_of(const double *value, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(value[i])) most = fmax(most, value[i]);
    return most;
}

static int limit(int n)
{
    return n < 0 ? 0 : n > SPARK_MOST ? SPARK_MOST : n;
}

/* ---- lines: each writes its value and may have a course at the right of it ---- */

static void line_rate(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char text[ZF_FORMAT_ROOM], kind[24];
    double value[SPARK_MOST], ahead[SPARK_MOST];
    const struct zf_series *s = zf_history_series(v->h, ZF_SERIES_RATE);
    uint64_t steps = v->h->steps > v->h->step ? v->h->steps : v->h->step;
    double now = zf_value_now(v, ZF_SERIES_RATE);
    if (isfinite(now))
        snprintf(text, sizeof text, "%.3g", now);
    else
        zf_format_value(text, now);
    zf_text(c, r, LABEL, y, ZF_STYLE_STRONG, text);
    int x = LABEL + 10;
    zf_history_option(v->h, "schedule", kind, sizeof kind);
    int words = r.cols >= 44 && *kind ? (int)strlen(kind) + 1 : 0, n = limit(r.cols - x - words);
    if (words) zf_text_right(c, r, y, ZF_STYLE_DIM, kind);
    if (n < 4 || !steps) return;
    struct zf_schedule schedule = schedule_of(v->h);
    zf_sample(s, NULL, ZF_HOW_MEAN, 1, steps, value, n);
    for (int i = 0; i < n; i++) {
        struct zf_step_range p;
        zf_piece_steps(1, steps, i, n, &p);
        ahead[i] = isnan(value[i]) && p.to > v->h->step ? zf_schedule_rate(&schedule, p.to) : NAN;
    }
    double most = fmax(most_of(value, n), most_of(ahead, n));
    spark(c, r, x, y, ahead, n, most, ZF_STYLE_DIM);
    for (int i = 0; i < n; i++)
        if (!isnan(value[i])) spark(c, r, x + i, y, value + i, 1, most, ZF_STYLE_SMOOTH);
}

static void line_norm(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    enum { BACK = 100 };
    char text[ZF_FORMAT_ROOM];
    double value[SPARK_MOST];
    uint64_t first, last;
    const struct zf_series *norm = zf_history_series(v->h, ZF_SERIES_NORM), *clip = zf_history_series(v->h, ZF_SERIES_CLIP);
    zf_text(c, r, LABEL, y, ZF_STYLE_TEXT, zf_format_value(text, zf_value_now(v, ZF_SERIES_NORM)));
    int clipped = 0, of = 0, x = LABEL + 10;
    for (uint64_t i = 0; i < BACK && i < clip->newest; i++) {
        struct zf_bucket b = zf_series_between(clip, clip->newest - i, clip->newest - i);
        of += b.count > 0;
        clipped += b.count && b.least < 1;
    }
    char words[40] = "";
    if (of) snprintf(words, sizeof words, "clipped %d %%", clipped * 100 / of);
    int n = limit(r.cols - x - (int)strlen(words) - 1);
    zf_text_right(c, r, y, ZF_STYLE_DIM, r.cols >= 36 ? words : "");
    if (r.cols < 36 || n < 4) return;
    zf_axis_steps(v, &first, &last);
    zf_sample(norm, NULL, ZF_HOW_MOST, first, last, value, n);
    spark(c, r, x, y, value, n, most_of(value, n), ZF_STYLE_TRAIN);
}

static void line_speed(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char a[ZF_FORMAT_ROOM], b[ZF_FORMAT_ROOM];
    double ms = v->cursor ? zf_value_now(v, ZF_SERIES_STEP_MS) : 1e3 * zf_history_pace(v->h);
    int x = LABEL + zf_textf(c, r, LABEL, y, ZF_STYLE_STRONG, "%s tok/s", zf_format_count(a, zf_recent(v, ZF_SERIES_TOKENS_PER_S, -1)));
    if (ms >= 1000)
        zf_textf(c, r, x + 2, y, ZF_STYLE_TEXT, "%s s/step", zf_format_count(b, ms / 1000));
    else if (ms > 0)
        zf_textf(c, r, x + 2, y, ZF_STYLE_TEXT, "%s steps/s", zf_format_count(b, 1000 / ms));
}

/* One more fact behind x, if all of it fits: half a number misleads. Returns where the next one begins. */
static int fact(struct zf_canvas *c, struct zf_rect r, int x, int y, unsigned style, const char *text)
{
    int cols = zf_text_width(text, SIZE_MAX);
    if (x + cols > r.cols) return x;
    zf_text(c, r, x, y, style, text);
    return x + cols + 2;
}

static void line_left(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char text[ZF_FORMAT_ROOM], done[ZF_FORMAT_ROOM], after[2 * ZF_FORMAT_ROOM];
    const struct zf_history *h = v->h;
    int x = LABEL;
    if (h->ended)
        x += zf_textf(c, r, x, y, strcmp(h->end_reason, "error") ? ZF_STYLE_GOOD : ZF_STYLE_BAD, "ended: %s", h->end_reason);
    else if (!zf_view_goes_on(v))
        x += zf_text(c, r, x, y, ZF_STYLE_BAD, "trainer gone");
    else
        x += zf_text(c, r, x, y, ZF_STYLE_STRONG, zf_duration_text(zf_history_eta(h), text, sizeof text));
    snprintf(after, sizeof after, "after %s", zf_duration_text(h->time > 0 ? h->time : -1, text, sizeof text));
    x = fact(c, r, x + 2, y, ZF_STYLE_DIM, after) - 2;
    if (!h->steps || h->step > h->steps) return;
    double share = (double)h->step / (double)h->steps;
    zf_format_share(done, share);
    int n = r.cols - x - 8;
    if (n >= 4) zf_bar(c, r, x + 2, y, n, share, ZF_STYLE_SMOOTH);
    if (n >= 0) zf_text_right(c, r, y, ZF_STYLE_TEXT, done);
}

static void line_memory(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char device[ZF_FORMAT_ROOM], host[ZF_FORMAT_ROOM];
    zf_textf(c, r, LABEL, y, ZF_STYLE_TEXT, "%s, host %s", zf_format_bytes(device, zf_value_now(v, ZF_SERIES_MEMORY_DEVICE)),
             zf_format_bytes(host, zf_value_now(v, ZF_SERIES_MEMORY_HOST)));
}

static void line_saved(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char text[ZF_FORMAT_ROOM];
    const struct zf_history *h = v->h;
    if (!h->saved.file) {
        zf_text(c, r, LABEL, y, ZF_STYLE_DIM, "nothing yet");
        return;
    }
    int x = LABEL + zf_textf(c, r, LABEL, y, ZF_STYLE_GOOD, "step %" PRIu64, h->saved.step) + 2;
    x = fact(c, r, x, y, ZF_STYLE_TEXT, h->saved.export ? "export" : "checkpoint");
    if (h->saved.bytes > 0) x = fact(c, r, x, y, ZF_STYLE_TEXT, zf_format_bytes(text, h->saved.bytes));
    if (h->saved.seconds > 0) {
        snprintf(text, sizeof text, "in %.3g s", fmin(h->saved.seconds, 1e9));
        x = fact(c, r, x, y, ZF_STYLE_TEXT, text);
    }
    const char *name = strrchr(h->saved.file, '/');
    fact(c, r, x, y, ZF_STYLE_DIM, name ? name + 1 : h->saved.file);
}

static void line_count(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char text[ZF_FORMAT_ROOM], words[2 * ZF_FORMAT_ROOM];
    const struct zf_history *h = v->h;
    double epoch = zf_value_now(v, ZF_SERIES_EPOCH);
    struct zf_bucket tokens = zf_series_between(zf_history_series(h, ZF_SERIES_TOKENS), 0, UINT64_MAX);
    int x = LABEL + zf_textf(c, r, LABEL, y, ZF_STYLE_TEXT, "%" PRIu64 " step%s", h->step, zf_plural(h->step)) + 2;
    if (tokens.count) {
        snprintf(words, sizeof words, "%s tokens", zf_format_count(text, tokens.sum));
        x = fact(c, r, x, y, ZF_STYLE_TEXT, words);
    }
    if (isfinite(epoch)) {
        snprintf(words, sizeof words, "epoch %.2f", fmin(epoch, 1e9));
        fact(c, r, x, y, ZF_STYLE_TEXT, words);
    }
}

static void line_updates(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    char text[ZF_FORMAT_ROOM], words[2 * ZF_FORMAT_ROOM];
    struct zf_bucket updates = zf_series_between(zf_history_series(v->h, ZF_SERIES_CPU_UPDATES), 0, UINT64_MAX);
    double skipped = zf_value_now(v, ZF_SERIES_SKIPPED);
    int x = LABEL + zf_textf(c, r, LABEL, y, ZF_STYLE_TEXT, "%s updates", zf_format_count(text, updates.count ? updates.sum : NAN)) + 2;
    if (!(skipped > 0)) return;
    snprintf(words, sizeof words, "%s skipped", zf_format_count(text, skipped));
    fact(c, r, x, y, ZF_STYLE_WARN, words);
}

static const struct line {
    const char *label;
    void (*draw)(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y);
} lines[] = {
    {"lr", line_rate},       {"norm", line_norm},   {"speed", line_speed}, {"left", line_left},
    {"memory", line_memory}, {"saved", line_saved}, {"done", line_count},  {"cpu", line_updates},
};
enum { LINES = sizeof lines / sizeof *lines };

static void draw_norms(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y)
{
    enum { MOST = 16 };
    const struct zf_history *h = v->h;
    size_t best[MOST];
    int count = 0, room = r.rows - y - 1 < MOST ? r.rows - y - 1 : MOST;
    if (!h->norm || !h->norm_step || room < 2) return;
    for (size_t i = 0; i < h->matrices; i++) {
        int at = count;
        if (!isfinite(h->norm[i])) continue;
        for (; at > 0 && h->norm[best[at - 1]] < h->norm[i]; at--)
            if (at < room) best[at] = best[at - 1];
        if (at >= room) continue;
        best[at] = i;
        if (count < room) count++;
    }
    if (!count) return;
    zf_textf(c, r, 0, y++, ZF_STYLE_DIM, "largest gradients at step %" PRIu64, h->norm_step);
    for (int i = 0; i < count; i++, y++) {
        char text[ZF_FORMAT_ROOM];
        zf_fit(c, r, 1, y, r.cols - 12, ZF_STYLE_TEXT, h->matrix[best[i]].name ? h->matrix[best[i]].name : "");
        zf_text_right(c, r, y, ZF_STYLE_TEXT, zf_format_value(text, h->norm[best[i]]));
    }
}

void zf_draw_run(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    if (!v->h->step) {
        zf_say(c, r, "no step yet");
        return;
    }
    int n = r.rows < LINES ? r.rows : LINES;
    for (int i = 0; i < n; i++) {
        zf_fit(c, r, 0, i, LABEL - 1, ZF_STYLE_DIM, lines[i].label);
        lines[i].draw(v, c, r, i);
    }
    draw_norms(v, c, r, LINES + 1);
}

void zf_frame_run(const struct zf_view *v, char *title, char *note, size_t size)
{
    char text[ZF_FORMAT_ROOM], option[32];
    const char *now = zf_history_option(v->h, "strategy", option, sizeof option), *begun = v->h->strategy ? v->h->strategy : "";
    const char *strategy = *now && strcmp(now, "auto") ? now : begun; /* it changes while a run goes on */
    if (*strategy) zf_append(title, size, "  %s", strategy);
    if (v->h->parameters) zf_append(title, size, "  %s", zf_format_count(text, (double)v->h->parameters));
    if (v->h->attempt > 1) zf_append(note, size, "attempt %" PRIu64, v->h->attempt);
}

void zf_table_run(const struct zf_view *v, struct zf_table *out)
{
    static const char *const column[] = {"step",         "time",    "learning_rate", "grad_norm",   "clip",
                                         "tokens_per_s", "step_ms", "epoch",         "cpu_updates", "skipped"};
    static const enum zf_series_id id[] = {ZF_SERIES_TIME,  ZF_SERIES_RATE,         ZF_SERIES_NORM,
                                           ZF_SERIES_CLIP,  ZF_SERIES_TOKENS_PER_S, ZF_SERIES_STEP_MS,
                                           ZF_SERIES_EPOCH, ZF_SERIES_CPU_UPDATES,  ZF_SERIES_SKIPPED};
    enum { COLUMNS = sizeof column / sizeof *column };
    uint64_t first, last;
    int n = zf_table_pieces(v, &first, &last);
    out->column = column;
    out->columns = COLUMNS;
    for (int k = 0; k < n; k++) {
        struct zf_step_range p;
        double cell[COLUMNS];
        zf_piece_steps(first, last, k, n, &p);
        cell[0] = (double)p.to;
        for (int i = 1; i < COLUMNS; i++)
            zf_sample(zf_history_series(v->h, id[i - 1]), NULL, i == 1 ? ZF_HOW_MOST : ZF_HOW_MEAN, p.from, p.to, &cell[i], 1);
        zf_table_row(out, cell, NULL);
    }
}
