/* Lanes: when each was busy during the newest steps, and where compute waited: a letter and a colour of its own. Recordings and files have
 * no such lines: there the busy shares of the steps are shown. */
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 8, VALUE = 6 };

static const struct known {
    const char *name;
    enum zf_series_id share;
    int per;
    uint16_t style;
} known[] = {
    {"compute", ZF_SERIES_BUSY_COMPUTE, -1, ZF_STYLE_BUSY}, {"d2h", ZF_SERIES_BUSY_D2H, -1, ZF_STYLE_COPY},
    {"h2d", ZF_SERIES_BUSY_H2D, -1, ZF_STYLE_UPLOAD},       {"cpu", ZF_SERIES_BUSY_CPU, -1, ZF_STYLE_UP},
    {"comm", ZF_SERIES_BUSY_COMM, -1, ZF_STYLE_FORWARD},    {"stall", ZF_SERIES_STALL_MS, ZF_SERIES_STEP_MS, ZF_STYLE_STALL},
};
enum { KNOWN = sizeof known / sizeof *known };

static uint16_t style_of(const char *lane)
{
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(lane, known[i].name)) return known[i].style;
    return ZF_STYLE_BUSY;
}

/* ---- timeline ---- */

static const struct zf_lane_step *lane_step(const struct zf_history *h, size_t back) /* 0: the newest */
{
    return back < h->lane_steps ? &h->lane_step[(h->lane_at + 2 * (size_t)ZF_LANE_STEPS - 1 - back) % ZF_LANE_STEPS] : NULL;
}

/* The part of from..to that the intervals cover. */
static double covered(const struct zf_interval_list *l, double from, double to)
{
    double sum = 0;
    for (size_t i = 0; i < l->count; i++) {
        double a = fmax(from, (double)l->at[i][0]), b = fmin(to, (double)l->at[i][1]);
        if (b > a) sum += b - a;
    }
    return to > from ? fmin(1, sum / (to - from)) : 0;
}

static uint32_t busy_glyph(const struct zf_canvas *c, double share)
{
    static const uint32_t shade[] = {0x2591, 0x2592, 0x2593, 0x2588};
    static const char ascii[] = ".-=#";
    int level = share >= 0.9 ? 3 : share >= 0.6 ? 2 : share >= 0.3 ? 1 : 0;
    return c->glyphs == ZF_GLYPHS_ASCII ? (uint32_t)ascii[level] : shade[level];
}

/* Steps beside each other share a scale. Of a fast run not every step is told: what is between two told ones is a gap of one column, for
 * nobody knows what the lanes did then. */
enum { STEPS_MOST = 4 };
struct timeline {
    struct piece {
        const struct zf_lane_step *step;
        double seconds; /* up to the next step, if that is told */
        int x, cols;
        bool gap; /* before it */
    } piece[STEPS_MOST];
    size_t pieces; /* [0] is the oldest */
};

static bool sound(const struct zf_lane_step *s)
{
    return s && s->to > s->from && s->to - s->from < 1e6;
}

/* The `most` told steps behind the newest `back`, in n columns. false: there is none. */
static bool timeline_of(struct timeline *t, const struct zf_history *h, size_t back, size_t most, int n)
{
    double seconds = 0, before = 0;
    int gaps = 0, x = 0;
    *t = (struct timeline){.pieces = 0};
    while (t->pieces < most && sound(lane_step(h, back + t->pieces))) t->pieces++;
    for (size_t i = 0; i < t->pieces; i++) {
        struct piece *p = &t->piece[i];
        p->step = lane_step(h, back + t->pieces - 1 - i);
        p->seconds = p->step->to - p->step->from;
        if (!i) continue;
        const struct zf_lane_step *last = p[-1].step;
        double apart = p->step->from - last->from;
        p->gap = p->step->step != last->step + 1 || !(apart >= p[-1].seconds - 1e-6) || apart > 1e6;
        gaps += p->gap;
        if (!p->gap) p[-1].seconds = apart;
    }
    for (size_t i = 0; i < t->pieces; i++) seconds += t->piece[i].seconds;
    for (size_t i = 0; i < t->pieces; i++) {
        struct piece *p = &t->piece[i];
        x += p->gap;
        p->x = x + (int)((n - gaps) * (before / seconds));
        before += p->seconds;
        p->cols = x + (int)((n - gaps) * (before / seconds) + 1e-9) - p->x;
    }
    return t->pieces > 0;
}

static const struct zf_interval_list *list_of(const struct zf_lane_step *s, const char *name, bool wait)
{
    for (size_t i = 0; i < s->lanes; i++)
        if (!strcmp(s->lane[i].name, name)) return wait ? &s->lane[i].wait : &s->lane[i].busy;
    return NULL;
}

/* Busy and waiting parts of from..to of a lane; what it did in one step may be told with the next. */
static void shares(const struct timeline *t, const char *name, double from, double to, double out[2])
{
    out[0] = out[1] = 0;
    for (size_t i = 0; i < t->pieces; i++) {
        const struct zf_lane_step *s = t->piece[i].step;
        for (int k = 0; k < 2; k++) {
            const struct zf_interval_list *l = list_of(s, name, k);
            if (l && l->at) out[k] += covered(l, from - s->from, to - s->from);
        }
    }
    for (int k = 0; k < 2; k++) out[k] = fmin(1, out[k]);
}

static void draw_gap(struct zf_canvas *c, struct zf_rect r, int y, const struct piece *p)
{
    if (p->gap) zf_put(c, r, LABEL + p->x - 1, y, zf_glyph(c, 0x250a, ':'), ZF_STYLE_DIM);
}

static void draw_lane(struct zf_canvas *c, struct zf_rect r, int y, const struct timeline *t, const char *name)
{
    double part[2];
    bool stalls = !strcmp(name, "compute");
    zf_fit(c, r, 0, y, LABEL - 1, ZF_STYLE_DIM, name);
    for (const struct piece *p = t->piece; p < t->piece + t->pieces; p++) {
        draw_gap(c, r, y, p);
        for (int i = 0; i < p->cols; i++) {
            int x = LABEL + p->x + i;
            shares(t, name, p->step->from + p->seconds * i / p->cols, p->step->from + p->seconds * (i + 1) / p->cols, part);
            if (part[1] >= 0.25 && part[1] >= part[0]) /* the device that waits is a stall; the others wait for work, as they should */
                zf_put(c, r, x, y, !stalls ? '.' : c->glyphs == ZF_GLYPHS_ASCII ? '!' : 's', stalls ? ZF_STYLE_STALL : ZF_STYLE_DIM);
            else if (part[0] > 0.02)
                zf_put(c, r, x, y, busy_glyph(c, part[0]), style_of(name));
        }
    }
}

/* Of the steps' own lines, as the device panel has it: intervals are told of some steps only. */
static void put_share(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y, const char *name)
{
    char number[ZF_FORMAT_ROOM];
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(name, known[i].name) && zf_have(v->h, known[i].share))
            zf_text_right(c, r, y, ZF_STYLE_TEXT, zf_format_share(number, zf_recent(v, known[i].share, known[i].per)));
}

/* Where steps begin. */
static void draw_steps(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int y, const struct timeline *t)
{
    int n = r.cols - LABEL - VALUE, free_from = 0;
    zf_fit(c, r, 0, y, LABEL - 1, ZF_STYLE_DIM, "step");
    for (const struct piece *p = t->piece; p < t->piece + t->pieces; p++) {
        char text[32];
        bool at_cursor = v->cursor && p->step->step == v->cursor_step;
        draw_gap(c, r, y, p);
        snprintf(text, sizeof text, "%s%" PRIu64, c->glyphs == ZF_GLYPHS_ASCII ? "|" : "▏", p->step->step);
        if (p->x < free_from || p->x + zf_text_width(text, SIZE_MAX) > n) continue;
        free_from = p->x + zf_text(c, r, LABEL + p->x, y, at_cursor ? ZF_STYLE_CURSOR : ZF_STYLE_AXIS, text) + 1;
    }
}

/* How many of the newest told steps lie behind the cursor. */
static size_t behind_cursor(const struct zf_view *v)
{
    size_t back = 0;
    while (v->cursor && back < v->h->lane_steps && lane_step(v->h, back)->step > v->cursor_step) back++;
    return back;
}

/* As many lines of time as there is room for; the newest steps, or the cursor's, are in the last one. */
static void draw_timeline(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    size_t most = r.cols >= 70 ? STEPS_MOST : 2, back = behind_cursor(v);
    int lanes = (int)lane_step(v->h, back)->lanes, tall = lanes + 2, systems = (r.rows + 1) / tall, y = 0;
    struct timeline t;
    if (systems < 1) systems = 1;
    if (systems > ZF_LANE_STEPS / (int)most) systems = ZF_LANE_STEPS / (int)most;
    if (r.cols < LABEL + VALUE + 8) systems = 0;
    for (int k = systems; k-- > 0;) {
        if (!timeline_of(&t, v->h, back + (size_t)k * most, most, r.cols - LABEL - VALUE)) continue;
        const struct zf_lane_step *s = t.piece[t.pieces - 1].step;
        if (r.rows - y > (int)s->lanes) draw_steps(v, c, r, y++, &t);
        for (size_t i = 0; i < s->lanes && y < r.rows; i++, y++) {
            draw_lane(c, r, y, &t, s->lane[i].name);
            if (!k) put_share(v, c, r, y, s->lane[i].name);
        }
        y++;
    }
    if (!y) zf_say(c, r, "no room for a timeline");
}

/* ---- shares ---- */

static void draw_shares(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    uint64_t first, last;
    int n = r.cols - LABEL - VALUE, y = 0;
    zf_axis_steps(v, &first, &last);
    double *value = n > 0 && n <= c->cols ? malloc((size_t)n * (sizeof *value + sizeof(float))) : NULL;
    if (!value) return;
    float *share = (float *)(value + n);
    for (int i = 0; i < KNOWN && y < r.rows; i++) {
        const struct known *k = &known[i];
        char number[ZF_FORMAT_ROOM];
        if (!zf_have(v->h, k->share)) continue;
        zf_sample(zf_history_series(v->h, k->share), zf_per(v, k->per), ZF_HOW_MEAN, first, last, value, n);
        for (int x = 0; x < n; x++) share[x] = (float)(isnan(value[x]) ? -1 : fmin(1, fmax(0, value[x])));
        zf_fit(c, r, 0, y, LABEL - 1, ZF_STYLE_DIM, k->name);
        zf_spark(c, r, LABEL, y, share, n, k->style);
        zf_text_right(c, r, y++, ZF_STYLE_TEXT, zf_format_share(number, zf_recent(v, k->share, k->per)));
    }
    free(value);
    zf_cursor_column(v, c, (struct zf_rect){r.x + LABEL, r.y, n, y}, first, last, false);
    if (!y) zf_say(c, r, "no step yet");
}

/* Not of a recording, nor at a cursor that is further back than what was told. */
static bool has_timeline(const struct zf_view *v)
{
    return behind_cursor(v) < v->h->lane_steps;
}

void zf_draw_lanes(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    if (has_timeline(v))
        draw_timeline(v, c, r);
    else
        draw_shares(v, c, r);
}

void zf_frame_lanes(const struct zf_view *v, char *title, char *note, size_t size)
{
    if (has_timeline(v)) {
        const struct zf_lane_step *s = lane_step(v->h, behind_cursor(v));
        zf_append(title, size, "  step %" PRIu64, s->step);
        if (s->to > s->from && s->to - s->from < 1e6) zf_append(title, size, " in %.4g ms", 1000 * (s->to - s->from));
        zf_append(note, size, "%s", v->glyphs == ZF_GLYPHS_ASCII ? "# busy ! stall . waits" : "█ busy s stall . waits");
    } else if (v->h->step) {
        zf_append(title, size, "  busy shares");
        if (v->cursor)
            zf_append(note, size, "at step %" PRIu64, v->cursor_step);
        else
            zf_append(note, size, "intervals only of a live run");
    }
}

void zf_table_lanes(const struct zf_view *v, struct zf_table *out)
{
    static const char *const interval[] = {"step", "lane", "waits", "from", "to"};
    static const char *const share[KNOWN + 1] = {"step", "compute", "d2h", "h2d", "cpu", "comm", "stall"};
    const struct zf_history *h = v->h;
    out->column = h->lane_steps ? interval : share;
    out->columns = h->lane_steps ? 5 : KNOWN + 1;
    for (size_t i = h->lane_steps; i-- > 0;) {
        const struct zf_lane_step *s = lane_step(h, i);
        for (size_t k = 0; k < s->lanes; k++)
            for (int waits = 0; waits < 2; waits++) {
                const struct zf_interval_list *l = waits ? &s->lane[k].wait : &s->lane[k].busy;
                for (size_t n = 0; n < l->count; n++)
                    zf_table_row(
                        out, (double[]){(double)s->step, (double)k, waits, s->from + (double)l->at[n][0], s->from + (double)l->at[n][1]},
                        s->lane[k].name);
            }
    }
    if (h->lane_steps) return;
    uint64_t first, last;
    int n = zf_table_pieces(v, &first, &last);
    for (int k = 0; k < n; k++) {
        struct zf_step_range p;
        double cell[KNOWN + 1];
        zf_piece_steps(first, last, k, n, &p);
        cell[0] = (double)p.to;
        for (int i = 0; i < KNOWN; i++)
            zf_sample(zf_history_series(h, known[i].share), zf_per(v, known[i].per), ZF_HOW_MEAN, p.from, p.to, &cell[i + 1], 1);
        zf_table_row(out, cell, NULL);
    }
}
