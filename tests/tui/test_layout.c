/* The layout, swept: every size, every set of panels that matters. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tui/panel.h"

#include <stdio.h>
#include <string.h>

static struct zf_history history;

static struct zf_view view_of(unsigned shown, int focus, int zoomed)
{
    struct zf_view v;
    zf_view_init(&v, &history);
    for (int i = 0; i < ZF_PANELS; i++) v.shown[i] = shown >> i & 1;
    v.focus = (enum zf_panel_id)focus;
    v.zoomed = zoomed;
    return v;
}

static bool empty(struct zf_rect r)
{
    return r.cols <= 0 || r.rows <= 0;
}

static bool meet(struct zf_rect a, struct zf_rect b)
{
    return !empty(a) && !empty(b) && a.x < b.x + b.cols && b.x < a.x + a.cols && a.y < b.y + b.rows && b.y < a.y + a.rows;
}

/* Inside, no overlap, and where panels are every cell between header and message is one's. */
static void check(const struct zf_view *v, int cols, int rows, int words)
{
    struct zf_layout l = zf_layout_of(v, cols, rows, words);
    struct zf_rect all[ZF_PANELS + 3];
    int n = 0, panels = 0, cells = 0, shown = 0;
    for (int i = 0; i < ZF_PANELS; i++) {
        all[n++] = l.panel[i];
        shown += v->shown[i];
        panels += !empty(l.panel[i]);
        cells += empty(l.panel[i]) ? 0 : l.panel[i].cols * l.panel[i].rows;
        if (!empty(l.panel[i])) assert_true(v->shown[i] || v->zoomed == i);
    }
    all[n++] = l.header;
    all[n++] = l.message;
    all[n++] = l.prompt;
    for (int i = 0; i < n; i++) {
        if (empty(all[i])) continue;
        assert_true(all[i].x >= 0 && all[i].y >= 0 && all[i].x + all[i].cols <= cols && all[i].y + all[i].rows <= rows);
        for (int k = i + 1; k < n; k++)
            if (meet(all[i], all[k])) fail_msg("%dx%d: %d and %d overlap", cols, rows, i, k);
    }
    assert_int_equal(!empty(l.prompt), cols >= 2 && rows >= 1);
    assert_int_equal(!empty(l.header), cols >= 2 && rows >= 2);
    int room = rows - 2 - (empty(l.message) ? 0 : l.message.rows);
    if (cols >= 20 && rows >= 3) assert_int_equal(empty(l.message) ? 0 : l.message.rows, words < rows - 2 ? words : rows - 2);
    if (cols < 20 || rows < 3 || room < 1 || (!shown && v->zoomed < 0)) {
        assert_int_equal(panels, 0);
        return;
    }
    assert_true(panels >= 1);
    if (cells != cols * room) fail_msg("%dx%d: %d of %d cells are used", cols, rows, cells, cols * room);
    if (v->zoomed >= 0) assert_int_equal(panels, 1);
    if (v->zoomed < 0 && v->shown[v->focus]) assert_false(empty(l.panel[v->focus])); /* in focus: somebody asked for it */
}

/* A panel that was left out has no column whose panels could make room for it. */
static void check_left_out(const struct zf_view *v, int cols, int rows)
{
    struct zf_layout l = zf_layout_of(v, cols, rows, 1);
    int columns[ZF_PANELS][3], n = 0, panels = 0; /* x, width, least rows of all in it */
    for (int i = 0; i < ZF_PANELS; i++) {
        int k = 0;
        if (empty(l.panel[i])) continue;
        panels++;
        while (k < n && columns[k][0] != l.panel[i].x) k++;
        if (k == n) {
            columns[n][0] = l.panel[i].x;
            columns[n][1] = l.panel[i].cols;
            columns[n++][2] = 0;
        }
        columns[k][2] += zf_panel_table[i].least_rows;
        if (panels > 1) assert_true(l.panel[i].rows >= zf_panel_table[i].least_rows && l.panel[i].cols >= zf_panel_table[i].least_cols);
    }
    if (rows - 3 < zf_panel_table[ZF_PANEL_LOSS].least_rows) return; /* one alone */
    const struct zf_panel *f = &zf_panel_table[v->focus];
    if (panels == 1 && !empty(l.panel[v->focus]) && (f->least_cols > cols || f->least_rows > rows - 3)) return; /* it wants all there is */
    bool merged = n < (cols >= 150 ? 3 : cols >= 80 ? 2 : 1); /* then columns are wider than when it was decided */
    for (int i = 0; i < ZF_PANELS; i++) {
        if (!v->shown[i] || !empty(l.panel[i])) continue;
        for (int k = 0; k < n && !merged; k++)
            if (columns[k][1] >= zf_panel_table[i].least_cols && columns[k][2] + zf_panel_table[i].least_rows <= rows - 3)
                fail_msg("%dx%d: there is room for %s", cols, rows, zf_panel_words[i]);
    }
}

static void every_size(void **state)
{
    (void)state;
    for (int cols = 0; cols <= 260; cols++)
        for (int rows = 0; rows <= 80; rows++)
            for (int words = 0; words < 4; words += words ? 2 : 1) {
                struct zf_view v = view_of(~0u, (cols + rows) % ZF_PANELS, -1);
                check(&v, cols, rows, words);
                if (cols >= 20 && rows >= 4 && words == 1) check_left_out(&v, cols, rows);
            }
    struct zf_view v = view_of(~0u, 0, -1);
    check(&v, 500, 200, 1);
    check(&v, 500, 1, 1000);
    check(&v, 1, 200, 1);
    for (int bad = -2; bad < 0; bad++) {
        struct zf_layout l = zf_layout_of(&v, bad, 20, 1), k = zf_layout_of(&v, 20, bad, 1);
        assert_true(empty(l.prompt) && empty(k.prompt));
    }
}

static void every_set_of_panels(void **state)
{
    (void)state;
    static const int sizes[][2] = {{20, 3},   {20, 8},   {40, 10},  {40, 40},  {79, 24},  {80, 24},
                                   {100, 30}, {132, 43}, {149, 20}, {150, 50}, {200, 50}, {500, 200}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned shown = 0; shown < 1u << ZF_PANELS; shown++) {
            struct zf_view v = view_of(shown, (int)(shown % ZF_PANELS), -1);
            check(&v, sizes[s][0], sizes[s][1], 1);
            if (sizes[s][1] > 3) check_left_out(&v, sizes[s][0], sizes[s][1]);
        }
    for (int zoomed = 0; zoomed < ZF_PANELS; zoomed++)
        for (unsigned shown = 0; shown < 2; shown++) {
            struct zf_view v = view_of(shown ? ~0u : 0, 0, zoomed);
            check(&v, 80, 24, 1);
            check(&v, 20, 4, 1);
            struct zf_layout l = zf_layout_of(&v, 80, 24, 1);
            assert_int_equal(l.panel[zoomed].rows, 21);
        }
}

static void eighty_by_twenty_four(void **state)
{
    (void)state;
    struct zf_view v = view_of(~0u, ZF_PANEL_LOSS, -1);
    struct zf_layout l = zf_layout_of(&v, 80, 24, 1);
    static const int there[] = {ZF_PANEL_LOSS, ZF_PANEL_DEVICE, ZF_PANEL_BUFFERS, ZF_PANEL_CHANNELS, ZF_PANEL_RUN, ZF_PANEL_LOG};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) assert_false(empty(l.panel[there[i]]));
    /* asking for one that has no place brings it */
    v.focus = ZF_PANEL_OPTIONS;
    l = zf_layout_of(&v, 80, 24, 1);
    assert_false(empty(l.panel[ZF_PANEL_OPTIONS]));
    assert_false(empty(l.panel[ZF_PANEL_LOSS]));
    /* the focus among those that are there moves nothing */
    struct zf_layout before, after;
    v.focus = ZF_PANEL_LOSS;
    before = zf_layout_of(&v, 80, 24, 1);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        v.focus = (enum zf_panel_id)there[i];
        after = zf_layout_of(&v, 80, 24, 1);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

static void tiny(void **state)
{
    (void)state;
    struct zf_view v = view_of(~0u, ZF_PANEL_LOSS, -1);
    struct zf_layout l = zf_layout_of(&v, 40, 8, 1); /* header, loss, a line of status, prompt */
    assert_false(empty(l.panel[ZF_PANEL_LOSS]));
    assert_int_equal(l.message.rows, 1);
    l = zf_layout_of(&v, 19, 30, 1);
    assert_false(empty(l.header));
    assert_true(empty(l.panel[ZF_PANEL_LOSS]));
}

int main(void)
{
    zf_history_open(&history);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),
        cmocka_unit_test(every_set_of_panels),
        cmocka_unit_test(eighty_by_twenty_four),
        cmocka_unit_test(tiny),
    };
    int failed = cmocka_run_group_tests_name("layout", tests, NULL, NULL);
    zf_history_close(&history);
    return failed;
}
