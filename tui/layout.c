/* Where everything goes, as a pure function of the view and the size. Panels stand in one to three columns, each full from top to bottom;
 * one after the other, by importance, is taken where it has room, so a small terminal shows fewer panels and never refuses. The panel in
 * focus always has a place: somebody asked for it. */
#include "tui/panel.h"

#include <string.h>

enum { COLUMNS = 3, TWO_FROM = 80, THREE_FROM = 150 };

/* By importance; the column it likes best of two and of three. */
static const struct wish {
    enum zf_panel_id id;
    int of_two, of_three;
} wishes[] = {
    {ZF_PANEL_LOSS, 0, 0}, {ZF_PANEL_RUN, 1, 2},   {ZF_PANEL_CHANNELS, 0, 0}, {ZF_PANEL_DEVICE, 1, 2},  {ZF_PANEL_BUFFERS, 0, 1},
    {ZF_PANEL_LOG, 1, 2},  {ZF_PANEL_LANES, 0, 1}, {ZF_PANEL_OPTIONS, 1, 1},  {ZF_PANEL_SAMPLES, 1, 1},
};
enum { WISHES = sizeof wishes / sizeof *wishes };
_Static_assert((int)WISHES == (int)ZF_PANELS, "every panel has a place");

static const int share[COLUMNS + 1][COLUMNS] = {{0}, {1}, {58, 42}, {40, 31, 29}}; /* of the width */

struct grid {
    int columns, cols[COLUMNS], free[COLUMNS];
    int where[ZF_PANELS]; /* column, -1: none */
};

static void widths(struct grid *g, int cols)
{
    int sum = 0, left = cols;
    for (int i = 0; i < g->columns; i++) sum += share[g->columns][i];
    for (int i = 0; i < g->columns; i++) {
        g->cols[i] = i + 1 == g->columns ? left : cols * share[g->columns][i] / sum;
        left -= g->cols[i];
    }
}

static void take(struct grid *g, const struct wish *w)
{
    const struct zf_panel *p = &zf_panel_table[w->id];
    int best = g->columns == 3 ? w->of_three : g->columns == 2 ? w->of_two : 0;
    for (int i = 0; i < g->columns; i++) {
        int at = (best + i) % g->columns;
        if (g->cols[at] < p->least_cols || g->free[at] < p->least_rows) continue;
        g->where[w->id] = at;
        g->free[at] -= p->least_rows;
        return;
    }
}

static void place(struct grid *g, const struct zf_view *v, int cols, int rows, int first)
{
    *g = (struct grid){.columns = cols >= THREE_FROM ? 3 : cols >= TWO_FROM ? 2 : 1};
    widths(g, cols);
    for (int i = 0; i < COLUMNS; i++) g->free[i] = rows;
    for (int i = 0; i < ZF_PANELS; i++) g->where[i] = -1;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < WISHES; i++)
            if (v->shown[wishes[i].id] && ((int)wishes[i].id == first) == (pass == 0)) take(g, &wishes[i]);
}

/* Rows of a column among its panels, in the order of their numbers: the least ones, and the rest by weight. */
static void stack(struct grid *g, int column, struct zf_rect r, struct zf_rect *panel)
{
    int weights = 0, count = 0, extra = g->free[column], y = r.y;
    for (int i = 0; i < ZF_PANELS; i++)
        if (g->where[i] == column) weights += zf_panel_table[i].weight, count++;
    for (int i = 0; i < ZF_PANELS; i++) {
        if (g->where[i] != column) continue;
        int weight = weights ? zf_panel_table[i].weight : 1, all = weights ? weights : count;
        int more = all ? extra * weight / all : 0;
        if (weights)
            weights -= weight;
        else
            count--;
        extra -= more;
        panel[i] = (struct zf_rect){r.x, y, r.cols, zf_panel_table[i].least_rows + more};
        y += panel[i].rows;
    }
}

/* Columns without a panel leave their room to the others. */
static void close_gaps(struct grid *g, int cols)
{
    int kept = 0, to[COLUMNS];
    bool used[COLUMNS] = {false};
    for (int i = 0; i < ZF_PANELS; i++)
        if (g->where[i] >= 0) used[g->where[i]] = true;
    for (int i = 0; i < g->columns; i++) {
        to[i] = kept;
        if (used[i]) g->free[kept++] = g->free[i];
    }
    for (int i = 0; i < ZF_PANELS; i++)
        if (g->where[i] >= 0) g->where[i] = to[g->where[i]];
    if (kept == g->columns) return;
    g->columns = kept;
    widths(g, cols);
}

static int only_one(const struct zf_view *v)
{
    if (v->zoomed >= 0 && v->zoomed < ZF_PANELS) return v->zoomed;
    if ((unsigned)v->focus < ZF_PANELS && v->shown[v->focus]) return (int)v->focus;
    for (int i = 0; i < WISHES; i++)
        if (v->shown[wishes[i].id]) return (int)wishes[i].id;
    return -1;
}

static void panels(const struct zf_view *v, struct zf_rect area, struct zf_rect *panel)
{
    struct grid g;
    int one = only_one(v), x = area.x;
    if (area.rows < 1 || one < 0) return;
    place(&g, v, area.cols, area.rows, -1);
    if ((unsigned)v->focus < ZF_PANELS && v->shown[v->focus] && g.where[v->focus] < 0) place(&g, v, area.cols, area.rows, (int)v->focus);
    if (g.where[one] < 0 || v->zoomed >= 0 || area.rows < zf_panel_table[ZF_PANEL_LOSS].least_rows) {
        panel[one] = area;
        return;
    }
    close_gaps(&g, area.cols);
    for (int i = 0; i < g.columns; i++) {
        stack(&g, i, (struct zf_rect){x, area.y, g.cols[i], area.rows}, panel);
        x += g.cols[i];
    }
}

/* What it takes below a dashboard: the prompt, then `step loss`, then the message, then the panels. */
struct zf_layout zf_layout_of(const struct zf_view *v, int cols, int rows, int message_rows)
{
    struct zf_layout l;
    memset(&l, 0, sizeof l);
    if (cols < 2 || rows < 1) return l;
    bool small = cols < 20 || rows < 3;
    int head = rows > 1, words = message_rows < 0 ? 0 : message_rows;
    if (words > rows - 2) words = rows - 2;
    if (small) words = 0;
    l.prompt = (struct zf_rect){0, rows - 1, cols, 1};
    if (head) l.header = (struct zf_rect){0, 0, cols, 1};
    if (words) l.message = (struct zf_rect){0, rows - 1 - words, cols, words};
    if (!small) panels(v, (struct zf_rect){0, 1, cols, rows - 2 - words}, l.panel);
    return l;
}
