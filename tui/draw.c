/* A whole frame: the header line, and each panel in its frame. */
#include "core/telemetry/eta.h"
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- header ---- */

/* A part of the header; the least important ones go first when there is no room. */
struct part {
    char text[96];
    unsigned style;
    int rank;
    bool out;
};
enum { PARTS = 12 };
struct parts {
    struct part part[PARTS];
    int count;
};

static void __attribute__((format(printf, 4, 5))) add(struct parts *p, int rank, unsigned style, const char *fmt, ...)
{
    struct part *x = &p->part[p->count < PARTS ? p->count++ : PARTS - 1];
    va_list ap;
    *x = (struct part){.rank = rank, .style = style};
    va_start(ap, fmt);
    vsnprintf(x->text, sizeof x->text, fmt, ap);
    va_end(ap);
}

/* The last part of a path, short. */
static void tail_of(const char *path, char *to, size_t size)
{
    size_t n = path ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    snprintf(to, size, "%.*s", (int)(n - from < 32 ? n - from : 32), path ? path + from : "");
}

static void state(const struct zf_view *v, struct parts *p)
{
    enum { RANK = 1 };
    char a[ZF_FORMAT_ROOM];
    if (v->link == ZF_LINK_REPLAY && v->speed > 0 && isfinite(v->speed))
        add(p, RANK, ZF_STYLE_KEY, "REPLAY x%.3g", v->speed);
    else if (v->link == ZF_LINK_REPLAY)
        add(p, RANK, ZF_STYLE_KEY, "REPLAY%s", v->speed > 0 ? "" : " paused");
    else if (v->link == ZF_LINK_LOST)
        add(p, RANK, ZF_STYLE_BAD, "LOST");
    else if (v->link == ZF_LINK_ENDED || v->h->ended)
        add(p, RANK, strcmp(v->h->end_reason, "error") ? ZF_STYLE_STRONG : ZF_STYLE_BAD, "ENDED%s%s", v->h->end_reason[0] ? " " : "",
            v->h->end_reason);
    else if (v->silent > 0)
        add(p, RANK, ZF_STYLE_WARN, "no sign of life for %s", zf_duration_text(v->silent, a, sizeof a));
    else if (v->said && *v->said)
        add(p, RANK, strstr(v->said, "pause") ? ZF_STYLE_WARN : ZF_STYLE_GOOD, "%.40s", v->said);
    else
        add(p, RANK, ZF_STYLE_GOOD, "%s", v->link == ZF_LINK_FILES ? "FILES" : "RUN");
}

static void collect(const struct zf_view *v, struct parts *p)
{
    const struct zf_history *h = v->h;
    char a[ZF_FORMAT_ROOM], name[40];
    double loss = zf_history_series(h, ZF_SERIES_LOSS)->last, ms = 1e3 * zf_history_pace(h);
    add(p, 8, ZF_STYLE_TITLE, "zenflow");
    tail_of(v->run, name, sizeof name);
    if (*name) add(p, 5, ZF_STYLE_STRONG, "%s", name);
    tail_of(h->model, name, sizeof name);
    if (*name) add(p, 9, ZF_STYLE_DIM, "%s", name);
    state(v, p);
    if (v->died) add(p, 1, ZF_STYLE_BAD, "its trainer died");
    if (v->read_only) add(p, 6, ZF_STYLE_WARN, "read-only");
    if (h->steps)
        add(p, 0, ZF_STYLE_TEXT, "step %" PRIu64 "/%" PRIu64, h->step, h->steps);
    else
        add(p, 0, ZF_STYLE_TEXT, "step %" PRIu64, h->step);
    if (!h->step) return;
    add(p, 2, ZF_STYLE_TRAIN, "loss %s", zf_format_value(a, loss));
    double epoch = zf_history_series(h, ZF_SERIES_EPOCH)->last;
    if (zf_have(h, ZF_SERIES_EPOCH) && isfinite(epoch)) add(p, 7, ZF_STYLE_TEXT, "ep %.2f", fmin(epoch, 1e6));
    if (v->silent > 0) return; /* what it made in an hour says nothing now */
    if (ms > 0 && isfinite(ms))
        add(p, 4, ZF_STYLE_TEXT, "%s %s", zf_format_count(a, ms < 1000 ? 1000 / ms : ms / 1000), ms < 1000 ? "it/s" : "s/it");
    if (zf_view_goes_on(v)) add(p, 3, ZF_STYLE_TEXT, "ETA %s", zf_duration_text(zf_history_eta(h), a, sizeof a));
}

static void draw_header(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r)
{
    enum { BAR = 12 };
    struct parts p = {.count = 0};
    int cols = 1, x = 1;
    if (r.rows < 1 || r.cols < 1) return;
    collect(v, &p);
    for (int i = 0; i < p.count; i++) cols += zf_text_width(p.part[i].text, SIZE_MAX) + 2;
    while (cols - 1 > r.cols) { /* two blanks behind the last one do not count, the one before the first does */
        int worst = -1;
        for (int i = 0; i < p.count; i++)
            if (!p.part[i].out && p.part[i].rank > 0 && (worst < 0 || p.part[i].rank > p.part[worst].rank)) worst = i;
        if (worst < 0) break;
        p.part[worst].out = true;
        cols -= zf_text_width(p.part[worst].text, SIZE_MAX) + 2;
    }
    if (cols - 1 > r.cols) x = 0;
    for (int i = 0; i < p.count; i++)
        if (!p.part[i].out) x += zf_fit(c, r, x, 0, r.cols - x, p.part[i].style, p.part[i].text) + 2;
    if (v->h->steps && v->h->step <= v->h->steps && r.cols - x >= BAR + 7) {
        char share[ZF_FORMAT_ROOM];
        double done = (double)v->h->step / (double)v->h->steps;
        zf_format_share(share, done);
        zf_bar(c, r, r.cols - BAR - 7, 0, BAR, done, ZF_STYLE_SMOOTH);
        zf_text_right(c, (struct zf_rect){r.x, r.y, r.cols - 1, 1}, 0, ZF_STYLE_TEXT, share);
    }
}

/* ---- panels ---- */

struct zf_rect zf_panel_inside(struct zf_rect r)
{
    enum { LEAST = 5 }; /* rows: a frame would take half of fewer */
    return r.rows < LEAST ? r : (struct zf_rect){r.x + 1, r.y + 1, r.cols - 2, r.rows - 2};
}

static void draw_panel(const struct zf_view *v, struct zf_canvas *c, struct zf_rect r, int id)
{
    const struct zf_panel *p = &zf_panel_table[id];
    char title[256], note[256] = "";
    if (zf_panel_inside(r).rows == r.rows) {
        p->draw(v, c, r);
        return;
    }
    snprintf(title, sizeof title, "%d %s", id + 1, p->title);
    p->frame(v, title, note, sizeof title);
    p->draw(v, c, zf_frame(c, r, (int)v->focus == id, title, note));
}

void zf_draw(const struct zf_view *v, const struct zf_layout *l, struct zf_canvas *c)
{
    draw_header(v, c, l->header);
    for (int i = 0; i < ZF_PANELS; i++)
        if (l->panel[i].rows > 0 && l->panel[i].cols > 0) draw_panel(v, c, l->panel[i], i);
}
