/* Panels: frames of a recording against kept ones (tests/tui/golden; ZF_GOLDEN=write writes them anew: look at the difference), and what
 * must hold of any frame: nothing outside its rectangle, no character that a terminal obeys, values where they belong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/config/options.h"
#include "tests/tui/frame.h"
#include "tui/plot.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

static const int sizes[][2] = {{80, 24}, {132, 43}, {40, 10}};
enum { SIZES = sizeof sizes / sizeof *sizes, HOT = 3 };

static struct zf_history sky, hostile, none;
static char folder[64];
static json_t *pending_rows; /* of put_off; views borrow it */

static void step(struct zf_history *h, uint64_t n, double loss)
{
    char line[200], value[40];
    snprintf(value, sizeof value, isfinite(loss) ? "%.9g" : "\"nan\"", loss);
    int size = snprintf(line, sizeof line, "{\"type\":\"step\",\"step\":%llu,\"time\":%llu.5,\"loss\":%s,\"step_ms\":500.0,\"tokens\":64}",
                        (unsigned long long)n, (unsigned long long)n, value);
    zf_history_text(h, line, (size_t)size);
}

static void text(struct zf_history *h, const char *line)
{
    zf_history_text(h, line, strlen(line));
}

/* ---- kept frames ---- */

struct picture {
    const char *name;
    int panel; /* -1: all */
    void (*prepare)(struct zf_view *v);
};

static void with_cursor(struct zf_view *v)
{
    v->cursor = true;
    v->cursor_step = 300;
    v->cursor_row = 9;
}
static void logarithmic(struct zf_view *v)
{
    v->log_scale = true;
    v->smooth = 0;
    v->tail = 200;
}
static void one_matrix(struct zf_view *v)
{
    v->matrix = HOT;
}
static void some_matrices(struct zf_view *v)
{
    snprintf(v->filter[ZF_PANEL_CHANNELS], sizeof v->filter[0], "q_proj");
    v->fixed_scale = true;
}
static void scrolled(struct zf_view *v)
{
    for (int i = 0; i < ZF_PANELS; i++) v->scroll[i] = 3;
}

/* `at 450 set ...` and [at] lines, as the trainer tells them. */
static void put_off(struct zf_view *v)
{
    static const struct {
        const char *name, *value, *pending[2];
        int step[2];
    } rows[] = {{"topk_ratio", "0.05", {"0.02", "x0.5"}, {650, 800}},
                {"clip_norm", "1", {"0.5", NULL}, {700, 0}},
                {"swap", "staggered", {NULL, NULL}, {0, 0}}};
    if (!pending_rows) pending_rows = json_array();
    json_array_clear(pending_rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *row =
            json_pack("{ss ss ss so}", "name", rows[i].name, "value", rows[i].value, "origin", "sky.cfg:9:8", "pending", json_array());
        for (int k = 0; k < 2 && rows[i].pending[k]; k++)
            json_array_append_new(json_object_get(row, "pending"),
                                  json_pack("{si ss}", "from_step", rows[i].step[k], "value", rows[i].pending[k]));
        json_array_append_new(pending_rows, row);
    }
    v->option_rows = pending_rows;
}

static const struct picture pictures[] = {
    {"all", -1, NULL},
    {"loss", ZF_PANEL_LOSS, NULL},
    {"loss-cursor", ZF_PANEL_LOSS, with_cursor},
    {"loss-log", ZF_PANEL_LOSS, logarithmic},
    {"device", ZF_PANEL_DEVICE, NULL},
    {"lanes", ZF_PANEL_LANES, NULL},
    {"buffers", ZF_PANEL_BUFFERS, NULL},
    {"channels", ZF_PANEL_CHANNELS, NULL},
    {"channels-cursor", ZF_PANEL_CHANNELS, with_cursor},
    {"channels-filter", ZF_PANEL_CHANNELS, some_matrices},
    {"matrix", ZF_PANEL_CHANNELS, one_matrix},
    {"run", ZF_PANEL_RUN, NULL},
    {"log", ZF_PANEL_LOG, NULL},
    {"log-scrolled", ZF_PANEL_LOG, scrolled},
    {"samples", ZF_PANEL_SAMPLES, NULL},
    {"options", ZF_PANEL_OPTIONS, NULL},
    {"options-scrolled", ZF_PANEL_OPTIONS, scrolled},
    {"pending", ZF_PANEL_OPTIONS, put_off},
};
enum { PICTURES = sizeof pictures / sizeof *pictures };

static struct zf_view view_of(const struct zf_history *h, const struct picture *p)
{
    struct zf_view v;
    zf_view_init(&v, h);
    v.run = "runs/sky";
    v.link = ZF_LINK_REPLAY;
    v.zoomed = p->panel;
    if (p->panel >= 0) v.focus = (enum zf_panel_id)p->panel;
    if (p->prepare) p->prepare(&v);
    return v;
}

static bool draw(struct zf_canvas *c, const struct zf_view *v, int cols, int rows)
{
    struct zf_layout l = zf_layout_of(v, cols, rows, 1);
    c->glyphs = v->glyphs;
    if (!zf_canvas_resize(c, cols, rows)) return false;
    zf_draw(v, &l, c);
    return true;
}

static char *frames_of(const struct picture *p)
{
    char *all = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&all, &size);
    assert_non_null(to);
    for (int s = 0; s < (strchr(p->name, '-') ? 1 : SIZES); s++) /* variants in one size */
        for (int g = 0; g < ZF_GLYPH_SETS; g++) {
            struct zf_canvas c = {.shades = g == ZF_GLYPHS_BLOCK};
            struct zf_view v = view_of(&sky, p);
            v.glyphs = (enum zf_glyphs)g;
            assert_true(draw(&c, &v, sizes[s][0], sizes[s][1]));
            char *frame = zf_canvas_text(&c, false);
            assert_non_null(frame);
            fprintf(to, "== %s %dx%d %s\n%s", p->name, sizes[s][0], sizes[s][1], zf_glyph_names[g], frame);
            free(frame);
            zf_canvas_free(&c);
        }
    assert_int_equal(fclose(to), 0);
    return all;
}

static int line_of_difference(const char *a, const char *b)
{
    int line = 1;
    for (; *a && *a == *b; a++, b++) line += *a == '\n';
    return line;
}

static void kept_frames(void **state)
{
    (void)state;
    const char *source = getenv("ZF_SOURCE"), *how = getenv("ZF_GOLDEN");
    bool write = how && !strcmp(how, "write");
    for (int i = 0; i < PICTURES; i++) {
        char path[600];
        struct zf_err e;
        char *is = frames_of(&pictures[i]), *was = NULL;
        snprintf(path, sizeof path, "%s/tests/tui/golden/%s.txt", source, pictures[i].name);
        if (write) {
            assert_int_equal(zf_file_write_atomic(path, is, strlen(is), &e), ZF_OK);
        } else {
            if (zf_file_read(&was, NULL, path, 1 << 20, &e)) fail_msg("%s: %s", e.where, e.message);
            if (strcmp(is, was)) {
                int line = line_of_difference(is, was);
                char beside[200];
                snprintf(beside, sizeof beside, "%s/%s.txt", folder, pictures[i].name);
                zf_file_write_atomic(beside, is, strlen(is), &e);
                fail_msg("%s differs in line %d from what is drawn now (%s; ZF_GOLDEN=write takes it over)", path, line, beside);
            }
        }
        free(is);
        free(was);
    }
}

/* ---- what holds of any frame ---- */

static bool harmless(uint32_t code)
{
    if (code == (uint32_t)ZF_CELL_RIGHT) return true;
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0), turns = (code >= 0x200b && code <= 0x200f) ||
                                                                         (code >= 0x2028 && code <= 0x202e) ||
                                                                         (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
    return !control && !turns && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
}

static void check_cells(const struct zf_canvas *c, const char *name)
{
    for (int i = 0; i < c->cols * c->rows; i++) {
        if (!harmless(c->cell[i].code)) fail_msg("%s: U+%04X in cell %d", name, c->cell[i].code, i);
        if (c->cell[i].style >= ZF_STYLE_END || (c->cell[i].style >= ZF_STYLES && c->cell[i].style < ZF_STYLE_HEAT))
            fail_msg("%s: style %u", name, c->cell[i].style);
    }
}

static void all_frames(const struct zf_history *h)
{
    static const int some[][2] = {{80, 24}, {132, 43}, {40, 10}, {200, 60}, {20, 4}, {20, 5}, {24, 7}, {33, 12}, {2, 2}, {5, 40}};
    for (int i = 0; i < PICTURES; i++)
        for (size_t s = 0; s < sizeof some / sizeof *some; s++)
            for (int g = 0; g < 2 * ZF_GLYPH_SETS; g++) {
                struct zf_canvas c = {.shades = g >= ZF_GLYPH_SETS};
                struct zf_view v = view_of(h, &pictures[i]);
                v.glyphs = (enum zf_glyphs)(g % ZF_GLYPH_SETS);
                assert_true(draw(&c, &v, some[s][0], some[s][1]));
                check_cells(&c, pictures[i].name);
                zf_canvas_free(&c);
            }
}

static void hostile_recording(void **state)
{
    (void)state;
    all_frames(&hostile);
    struct zf_view v;
    zf_view_init(&v, &hostile);
    char *log = frame_of(&v, 132, 43, false);
    assert_null(strchr(log, 0x1b));
    free(log);
}

static void few_steps(void **state)
{
    (void)state;
    struct zf_history h;
    all_frames(&none);
    zf_history_open(&h);
    step(&h, 1, 5.5);
    all_frames(&h);
    step(&h, 2, 5.5);
    all_frames(&h);
    zf_history_close(&h);
    zf_history_open(&h);
    for (uint64_t i = 1; i <= 50; i++) step(&h, i, NAN);
    all_frames(&h);
    for (uint64_t i = 51; i <= 60; i++) step(&h, i, i % 2 ? 1e30 : -1e30);
    all_frames(&h);
    zf_history_close(&h);
    zf_history_open(&h);
    step(&h, 9007199254740990, 1.5);
    step(&h, 9007199254740991, 2.5);
    all_frames(&h);
    zf_history_close(&h);
}

/* Panels alone in a rectangle: what is around it stays. */
static void inside(void **state)
{
    (void)state;
    static const struct zf_history *const histories[] = {&sky, &hostile, &none};
    enum { COLS = 70, ROWS = 30 };
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < PICTURES; i++)
            for (int n = 0; n < 60; n++) {
                struct zf_canvas c = {.glyphs = (enum zf_glyphs)(n % ZF_GLYPH_SETS)};
                struct zf_view v = view_of(histories[k], &pictures[i]);
                struct zf_rect r = {n % 7, n % 5, n * 7 % 63, n * 5 % 25};
                v.glyphs = c.glyphs;
                assert_true(zf_canvas_resize(&c, COLS, ROWS));
                zf_fill(&c, zf_canvas_all(&c), 'X', ZF_STYLE_BAD);
                zf_fill(&c, r, ' ', ZF_STYLE_TEXT);
                zf_panel_table[pictures[i].panel < 0 ? 0 : pictures[i].panel].draw(&v, &c, r);
                for (int y = 0; y < ROWS; y++)
                    for (int x = 0; x < COLS; x++) {
                        bool in = x >= r.x && x < r.x + r.cols && y >= r.y && y < r.y + r.rows;
                        const struct zf_cell *cell = &c.cell[y * COLS + x];
                        if (!in && (cell->code != 'X' || cell->style != ZF_STYLE_BAD))
                            fail_msg("%s in %dx%d draws at %d,%d outside", pictures[i].name, r.cols, r.rows, x - r.x, y - r.y);
                    }
                zf_canvas_free(&c);
            }
}

/* ---- what is seen ---- */

static void a_million_steps(void **state)
{
    (void)state;
    struct zf_history h;
    zf_history_open(&h);
    step(&h, 1, 2.0);
    for (uint64_t i = 2; i <= 1000000; i++)
        zf_series_add(&h.series[ZF_SERIES_LOSS], i, i == 543210 ? 9.0 : i == 123456 ? NAN : 2.0 + 0.1 * sin((double)i));
    h.step = h.steps = 1000000;
    struct zf_view v;
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LOSS;
    v.glyphs = ZF_GLYPHS_ASCII;
    struct zf_canvas c = {.shades = false};
    clock_t from = clock();
    assert_true(draw(&c, &v, 207, 50));
    assert_true((double)(clock() - from) / CLOCKS_PER_SEC < 1.0);
    /* plot: from column 8 on, 198 of them; the spike reaches above all others, the NaN has its mark */
    int spike = 8 + 543210 / (1000000 / 198), bad = 8 + 123456 / (1000000 / 198);
    bool seen = false;
    for (int x = spike - 1; x <= spike + 1; x++) seen |= c.cell[2 * 207 + x].code == '^';
    assert_true(seen);
    seen = false;
    for (int x = bad - 1; x <= bad + 1; x++) seen |= c.cell[2 * 207 + x].code == '!';
    assert_true(seen);
    zf_canvas_free(&c);
    zf_history_close(&h);
}

/* Of a fast run some steps' lanes are told: those between are a gap, not idle time, and shares are those of the steps' own lines. */
static void lanes_of_some_steps(void **state)
{
    (void)state;
    struct zf_history h;
    char line[400];
    zf_history_open(&h);
    for (int i = 1; i <= 90; i++) {
        double from = i * 0.001, to = from + 0.001;
        snprintf(line, sizeof line,
                 "{\"type\":\"step\",\"step\":%d,\"time\":%.6f,\"loss\":2.5,\"step_ms\":1.0,\"stall_ms\":%.2f,\"busy\":{\"compute\":%.2f}}",
                 i, to, i > 50 ? 0.25 : 0, i > 50 ? 0.75 : 1);
        text(&h, line);
        if (i != 1 && i != 2 && i != 45 && i != 90) continue;
        snprintf(line, sizeof line,
                 "{\"type\":\"lanes\",\"step\":%d,\"from\":%.6f,\"to\":%.6f,\"lanes\":[{\"name\":\"compute\",\"busy\":[[%.6f,%.6f]],"
                 "\"wait\":[]}]}",
                 i, from, to, from, to);
        text(&h, line);
    }
    struct zf_view v;
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LANES;
    v.focus = ZF_PANEL_LANES;
    v.glyphs = ZF_GLYPHS_ASCII;
    char *frame = frame_of(&v, 80, 10, false);
    assert_non_null(strstr(frame, "|step    |1             |2             :|45             :|90                   |\n"
                                  "|compute ##############################:################:################  75 %|\n"));
    free(frame);
    v.cursor = true; /* the newest told step up to it is the last one drawn, with the share of that step */
    v.cursor_step = 45;
    frame = frame_of(&v, 80, 10, true);
    assert_non_null(strstr(frame, "lanes  step 45 in 1 ms"));
    assert_non_null(strstr(frame, ":|45  "));
    assert_null(strstr(frame, "|90"));
    assert_non_null(strstr(frame, "# 100 %|"));
    free(frame);
    zf_history_close(&h);
}

/* One figure for the newest steps, whichever panel tells it: device, buffers. */
static void one_figure(void **state)
{
    (void)state;
    struct zf_view v;
    zf_view_init(&v, &sky);
    v.glyphs = ZF_GLYPHS_ASCII;
    char share[ZF_FORMAT_ROOM], in_title[64], in_row[64];
    zf_format_share(share, zf_recent(&v, ZF_SERIES_STALL_MS, ZF_SERIES_STEP_MS));
    snprintf(in_title, sizeof in_title, "stall %s -", share);
    snprintf(in_row, sizeof in_row, " %s|", share);
    char *frame = frame_of(&v, 200, 60, false), *row = strstr(frame, "|stall ");
    assert_non_null(strstr(frame, in_title));
    assert_non_null(row);
    assert_ptr_equal(strstr(row, in_row) + strlen(in_row) - 1, strchr(row + 1, '|'));
    free(frame);
}

/* A validation every step does not hide the curves: markers keep apart. */
static void markers_keep_apart(void **state)
{
    (void)state;
    struct zf_history h;
    char line[200];
    zf_history_open(&h);
    for (uint64_t i = 1; i <= 400; i++) {
        step(&h, i, 3.0);
        snprintf(line, sizeof line, "{\"type\":\"valid\",\"step\":%d,\"loss\":2.5,\"tokens\":64}", (int)i);
        text(&h, line);
    }
    struct zf_view v;
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LOSS;
    v.glyphs = ZF_GLYPHS_ASCII;
    char *frame = frame_of(&v, 80, 24, false), *row = strstr(frame, "o   o");
    assert_non_null(row);
    assert_null(strstr(frame, "oo"));
    assert_null(strstr(row, "o o"));
    free(frame);
    zf_history_close(&h);
}

/* Beside other panels the log has the newest of validations in a row, alone all of them. */
static void validations_in_a_row(void **state)
{
    (void)state;
    struct zf_history h;
    char line[100];
    zf_history_open(&h);
    step(&h, 1, 2);
    text(&h, "{\"type\":\"mark\",\"step\":1,\"text\":\"remember\"}");
    for (int i = 1; i < 9; i++) {
        snprintf(line, sizeof line, "{\"type\":\"valid\",\"step\":%d,\"loss\":%d.5,\"tokens\":64}", i, i);
        text(&h, line);
    }
    struct zf_view v;
    zf_view_init(&v, &h);
    char *frame = frame_of(&v, 80, 24, false);
    assert_true(strstr(frame, "remember") && strstr(frame, "loss 8.500") && !strstr(frame, "loss 7.500"));
    free(frame);
    v.zoomed = ZF_PANEL_LOG;
    frame = frame_of(&v, 80, 24, false);
    assert_true(strstr(frame, "remember") && strstr(frame, "loss 8.500") && strstr(frame, "loss 7.500"));
    free(frame);
    zf_history_close(&h);
}

/* `set strategy` while it goes on: the title tells what is used now. */
static void strategy_of_now(void **state)
{
    (void)state;
    struct zf_history h;
    char title[64] = "", note[64] = "";
    zf_history_open(&h);
    text(&h, "{\"type\":\"start\",\"strategy\":\"gpu_only\",\"options\":{\"strategy\":\"gpu_only\"}}");
    text(&h, "{\"type\":\"change\",\"step\":1,\"option\":\"strategy\",\"old\":\"gpu_only\",\"new\":\"zenflow\",\"from_step\":1}");
    struct zf_view v;
    zf_view_init(&v, &h);
    zf_frame_run(&v, title, note, sizeof title);
    assert_string_equal(title, "  zenflow");
    zf_history_close(&h);
}

/* The axis moves in jumps: hardly a cell changes when a step comes. */
static void calm(void **state)
{
    (void)state;
    struct zf_history h;
    zf_history_open(&h);
    for (uint64_t i = 1; i <= 1000; i++) step(&h, i, 3.0 + 0.5 * sin((double)i / 9));
    struct zf_view v;
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LOSS;
    struct zf_canvas a = {.glyphs = ZF_GLYPHS_BRAILLE}, b = a;
    int changed = 0, frames = 100;
    assert_true(draw(&a, &v, 120, 40));
    for (int n = 0; n < frames; n++) {
        step(&h, 1001 + (uint64_t)n, 3.0 + 0.5 * sin((double)(1001 + n) / 9));
        assert_true(draw(&b, &v, 120, 40));
        for (int i = 120; i < 120 * 40; i++) changed += a.cell[i].code != b.cell[i].code; /* not the header */
        struct zf_canvas was = a;
        a = b;
        b = was;
    }
    if (changed > 80 * frames) fail_msg("%d cells change in a frame", changed / frames);
    zf_canvas_free(&a);
    zf_canvas_free(&b);
    zf_history_close(&h);
}

static void cursor_tells_values(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    zf_history_open(&h);
    for (uint64_t i = 1; i <= 100; i++) {
        step(&h, i, 1 + (double)i / 1000);
        if (i == 37) text(&h, "{\"type\":\"mark\",\"step\":37,\"text\":\"here it is\"}");
    }
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LOSS;
    v.cursor = true;
    v.cursor_step = 37;
    char *frame = frame_of(&v, 100, 24, false);
    assert_non_null(strstr(frame, "step 37"));
    assert_non_null(strstr(frame, "train 1.037"));
    assert_non_null(strstr(frame, "here it is"));
    free(frame);
    zf_history_close(&h);
}

/* A hot channel is the brightest cell of its matrix, and is told to be selected. */
static void hot_channel(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    char line[4096] = "{\"type\":\"score\",\"step\":1,\"matrices\":[{\"name\":\"m.0.w\",\"bins\":[";
    zf_history_open(&h);
    text(&h, "{\"type\":\"start\",\"options\":{\"topk_ratio\":0.1},\"matrices\":[{\"name\":\"m.0.w\",\"channels\":16,\"length\":8}]}");
    zf_history_watch(&h, 0);
    text(
        &h,
        "{\"type\":\"select\",\"step\":1,\"matrices\":[{\"name\":\"m.0.w\",\"selected\":1,\"kept\":0.5,\"energy\":0.9,\"channels\":[5]}]}");
    for (int i = 0; i < 16; i++) zf_append(line, sizeof line, "%s%s", i ? "," : "", i == 5 ? "-1" : "-4");
    zf_append(line, sizeof line, "],\"top\":[0.9,0.9,0.9,0.91,0.95,0.99],\"selected_energy\":0.9}]}");
    text(&h, line);
    step(&h, 1, 2);
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_CHANNELS;
    v.matrix = 0;
    v.glyphs = ZF_GLYPHS_ASCII;
    struct zf_canvas c = {.shades = true};
    assert_true(draw(&c, &v, 100, 22)); /* 16 rows of the map from y = 2, x = 8 on */
    for (int row = 0; row < 16; row++) {
        uint32_t code = c.cell[(2 + row) * 100 + 8].code;
        if (row == 5)
            assert_int_equal(code, '9');
        else
            assert_int_equal(code, '.');
    }
    zf_canvas_free(&c);
    v.cursor = true;
    v.cursor_step = 1;
    v.cursor_row = 5;
    char *frame = frame_of(&v, 100, 22, false);
    assert_non_null(strstr(frame, "channel 5  step 1  score 1e-1.00  100 % selected"));
    free(frame);
    assert_int_equal(zf_channels_rows(&v), 16);
    v.matrix = SIZE_MAX;
    assert_int_equal(zf_channels_rows(&v), 1);
    assert_int_equal(zf_channels_matrix(&v, 0), 0);
    assert_true(zf_channels_matrix(&v, 1) == SIZE_MAX);
    zf_history_close(&h);
}

/* What was changed, what is pending, where the rest comes from, by the trainer's own table. */
static void options_by_the_trainer(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    json_t *rows = json_array();
    for (int i = 0; i < ZF_OPTIONS; i++) {
        const struct zf_option *o = &zf_option_table[i];
        const char *value = !strcmp(o->name, "topk_ratio") ? "0.05" : !strcmp(o->name, "keep") ? "7" : o->fallback;
        json_array_append_new(rows, json_pack("{ssssssss}", "name", o->name, "value", value, "default", o->fallback, "origin",
                                              !strcmp(o->name, "swap")             ? "x.cfg:3:8"
                                              : !strcmp(o->name, "schedule_steps") ? "set schedule_steps"
                                              : !strcmp(o->name, "clip_norm")      ? "set clip_norm"
                                                                                   : ""));
    }
    zf_history_open(&h);
    text(&h, "{\"type\":\"start\",\"options\":{\"topk_ratio\":0.1,\"keep\":3,\"grace\":30.0,\"max_time\":0,\"schedule_steps\":0,\"clip_"
             "norm\":1}}");
    step(&h, 1, 2);
    text(&h, "{\"type\":\"change\",\"step\":1,\"option\":\"topk_ratio\",\"old\":0.1,\"new\":0.05,\"from_step\":2,\"by\":\"console\"}");
    text(&h, "{\"type\":\"change\",\"step\":1,\"option\":\"clip_norm\",\"old\":1,\"new\":2,\"from_step\":2,\"by\":\"console\"}");
    text(&h, "{\"type\":\"change\",\"step\":1,\"option\":\"clip_norm\",\"old\":2,\"new\":1,\"from_step\":2,\"by\":\"console\"}");
    zf_view_init(&v, &h);
    v.option_rows = rows;
    v.zoomed = ZF_PANEL_OPTIONS;
    char *frame = frame_of(&v, 120, 100, false);
    const char *changed = strstr(frame, "changed in this run"), *live = strstr(frame, "can be changed now"),
               *fixed = strstr(frame, "changed by a restart only"), *ratio = strstr(frame, "topk_ratio"), *keep = strstr(frame, " keep "),
               *dtype = strstr(frame, " dtype ");
    assert_true(changed && live && fixed && ratio && keep && dtype);
    assert_true(changed < ratio && ratio < live && keep < live && live < fixed && fixed < dtype);
    assert_non_null(strstr(ratio, "was 0.1"));
    assert_true(strstr(keep, "pending, still 3") && strstr(keep, "pending") < live);
    assert_non_null(strstr(frame, "x.cfg:3:8"));
    assert_non_null(strstr(frame, "settled at the start")); /* nobody has set it since */
    assert_null(strstr(frame, "set schedule_steps"));
    assert_non_null(strstr(frame, "set clip_norm")); /* and back */
    const char *limit = strstr(frame, " max_time ");
    assert_true(limit && !strncmp(limit + strspn(limit, " max_time"), "0s ", 3));
    assert_true(strstr(frame, " grace ") > live); /* 30.0 is 30s */
    free(frame);
    for (uint64_t down = 0; down < 120; down += 7) { /* scrolled past the end, the last ones stay */
        v.scroll[ZF_PANEL_OPTIONS] = down;
        frame = frame_of(&v, 60, 20, false);
        assert_non_null(strstr(frame, "9 options"));
        if (down > 100) assert_non_null(strstr(frame, "trace_steps"));
        free(frame);
    }
    zf_history_close(&h);
    json_decref(rows);
}

/* Of a time that is not known nothing is a share. */
static void a_stall_of_unknown_steps(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    zf_history_open(&h);
    text(&h, "{\"type\":\"step\",\"step\":1,\"loss\":2,\"stall_ms\":5}");
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_LANES;
    char *frame = frame_of(&v, 80, 24, false);
    assert_non_null(strstr(frame, "stall"));
    assert_non_null(strstr(frame, "--"));
    assert_null(strstr(frame, "e+"));
    free(frame);
    zf_history_close(&h);
}

/* Where no trainer tells what is put off, [at] does, of steps to come. */
static void options_of_a_script(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    zf_history_open(&h);
    text(&h, "{\"type\":\"start\",\"options\":{\"topk_ratio\":0.1,\"learning_rate\":0.01,\"keep\":3,\"at\":[\"1 = set keep 4\",\"40 = set "
             "lr x0.5 "
             "topk_ratio 0.05\",\"40 = export\",\"nonsense\",7,\"50 = set nothing 1\"]}}");
    step(&h, 1, 2);
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_OPTIONS;
    char *frame = frame_of(&v, 100, 30, false);
    const char *live = strstr(frame, "can be changed now"), *rate = strstr(frame, "-> x0.5 at step 40"),
               *ratio = strstr(frame, "-> 0.05 at step 40"), *keep = strstr(frame, " keep ");
    assert_true(live && rate && ratio && keep && strstr(frame, "about to be"));
    assert_true(rate < live && ratio < live && keep > live);
    assert_null(strstr(frame, "-> 4")); /* step 1 is done */
    free(frame);
    step(&h, 40, 2);
    frame = frame_of(&v, 100, 30, false);
    assert_null(strstr(frame, "->"));
    free(frame);
    zf_history_close(&h);
}

/* All on the device: no host buffers, and locality is told all the same, by the best tenth of the channels. */
static void without_a_cpu_half(void **state)
{
    (void)state;
    struct zf_history h;
    struct zf_view v;
    zf_history_open(&h);
    text(&h,
         "{\"type\":\"start\",\"strategy\":\"gpu_only\",\"options\":{\"topk_ratio\":0.1},\"matrices\":[{\"name\":\"m.0.w\",\"channels\":16,"
         "\"length\":8}]}");
    step(&h, 1, 2);
    text(&h, "{\"type\":\"score\",\"step\":1,\"matrices\":[{\"name\":\"m.0.w\",\"bins\":[-1.0],\"top\":[0.1,0.2,0.3,0.64,0.7,0.8],"
             "\"selected_energy\":1.0}]}");
    zf_view_init(&v, &h);
    v.zoomed = ZF_PANEL_BUFFERS;
    char *frame = frame_of(&v, 100, 24, false);
    assert_non_null(strstr(frame, "no CPU half"));
    free(frame);
    v.zoomed = ZF_PANEL_CHANNELS;
    frame = frame_of(&v, 100, 24, false);
    assert_true(strstr(frame, "best 10 %") && strstr(frame, "L0 w") && strstr(frame, "64 %"));
    free(frame);
    zf_history_close(&h);
}

static void ticks(void **state)
{
    (void)state;
    double t[ZF_TICKS];
    assert_int_equal(zf_ticks(0, 10, false, 5, t), 3); /* 0 5 10: steps of 2 would be six */
    assert_true(t[1] == 5);
    for (int k = 0; k < 4000; k++) {
        double least = (k % 17 - 8) * pow(10, k % 13 - 6), wide = (1 + k % 29) * pow(10, k % 11 - 5);
        int most = 1 + k % 20, n = zf_ticks(least, least + wide, k % 3 == 0, most, t);
        assert_true(n >= 0 && n <= most);
        for (int i = 0; i < n; i++) {
            assert_true(t[i] >= least - 1e-6 * wide && t[i] <= least + wide * (1 + 1e-6));
            if (i) assert_true(t[i] > t[i - 1]);
        }
    }
    assert_int_equal(zf_ticks(1, 1, false, 5, t), 0);
    assert_int_equal(zf_ticks(NAN, 1, false, 5, t), 0);
    int n = zf_ticks(-1, 1, true, 10, t); /* 0.1 .. 10 */
    assert_int_equal(n, 7);
    assert_true(fabs(pow(10, t[1]) - 0.2) < 1e-9);
}

static void pieces(void **state)
{
    (void)state;
    /* pieces cover first..last without gaps, and a step is in the piece it is said to be in */
    for (uint64_t span = 1; span < 400; span += 7)
        for (int n = 1; n < 90; n += 4) {
            uint64_t next = 1000;
            for (int i = 0; i < n; i++) {
                struct zf_step_range p;
                if (!zf_piece_steps(1000, 999 + span, i, n, &p)) continue;
                assert_int_equal(p.from, next);
                for (uint64_t s = p.from; s <= p.to; s++)
                    if (span >= (uint64_t)n) assert_int_equal(zf_piece_of(1000, 999 + span, s, n), i);
                next = p.to + 1;
            }
            assert_int_equal(next, 1000 + span);
        }
    struct zf_step_range p;
    assert_true(zf_piece_steps(0, UINT64_MAX, 99, 100, &p));
    assert_int_equal(zf_piece_of(0, UINT64_MAX, UINT64_MAX, 100), 99);
}

static void numbers(void **state)
{
    (void)state;
    char t[ZF_FORMAT_ROOM];
    assert_string_equal(zf_format_value(t, 2.1144), "2.114");
    assert_string_equal(zf_format_value(t, 1e-5), "1.00e-05");
    assert_string_equal(zf_format_value(t, NAN), "--");
    assert_string_equal(zf_format_count(t, 999.6), "1.00k");
    assert_string_equal(zf_format_count(t, 31400), "31.4k");
    assert_string_equal(zf_format_count(t, 640), "640");
    assert_string_equal(zf_format_bytes(t, 61.2 * (1 << 30)), "61.2 GiB");
    assert_string_equal(zf_format_share(t, 0.014), "1.4 %");
    assert_string_equal(zf_format_clock(t, 192), "0:03:12");
    static const double odd[] = {0, -1, 1e300, -1e300, 1e-300, INFINITY, -INFINITY, NAN, 9.9999, 99.996, 999.97};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_true(strlen(zf_format_value(t, odd[i])) < 12);
        assert_true(strlen(zf_format_count(t, odd[i])) < 12);
        assert_true(strlen(zf_format_bytes(t, odd[i])) < 14);
        assert_true(strlen(zf_format_share(t, odd[i])) < 14);
        assert_true(strlen(zf_format_clock(t, odd[i])) < 12);
    }
}

static void lines(void **state)
{
    (void)state;
    size_t next;
    assert_int_equal(zf_wrap("to be or not", 7, &next), 5); /* "to be" */
    assert_int_equal(next, 6);
    assert_int_equal(zf_wrap("ab\ncd", 7, &next), 2);
    assert_int_equal(next, 3);
    assert_int_equal(zf_wrap("東京", 1, &next), 3); /* too wide: taken all the same */
    assert_int_equal(zf_wrap("", 5, &next), 0);
    static const char bad[] = "\xff\xfe\xf0\x9f a\xe6\x9d\xb1\x1b[2J";
    for (int cols = 0; cols < 9; cols++) {
        const char *s = bad;
        int turns = 0;
        for (; *s && turns < 100; s += next, turns++) zf_wrap(s, cols, &next);
        assert_true(!*s && turns < 100);
    }
}

/* ---- recordings ---- */

static bool record(struct zf_history *h, const char *name, const char *options)
{
    char command[1200], path[200];
    zf_history_open(h);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(command, sizeof command, "python3 '%s/tests/tui/make_run.py' '%s' %s", getenv("ZF_SOURCE"), path, options);
    if (system(command)) return false;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, name);
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while (f && (n = getline(&line, &room, f)) > 0) {
        zf_history_text(h, line, (size_t)n - (line[n - 1] == '\n'));
        if (h->matrices && h->map.matrix == SIZE_MAX) zf_history_watch(h, HOT);
    }
    free(line);
    if (f) fclose(f);
    return f && h->step > 0;
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/zf-panels-XXXXXX", temporary ? temporary : "/tmp");
    zf_history_open(&none);
    if (!getenv("ZF_SOURCE") || system("python3 -c '' 2>/dev/null")) {
        printf("skipped: ZF_SOURCE and python3 make the recording that is drawn\n");
        return 77;
    }
    if (!mkdtemp(folder) || !record(&sky, "sky", "--steps 600 --layers 12 --lanes 12 --no-end --log-channels") ||
        !record(&hostile, "hostile", "--steps 200 --layers 4 --lanes 8 --hostile"))
        return 99;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_frames),
        cmocka_unit_test(hostile_recording),
        cmocka_unit_test(few_steps),
        cmocka_unit_test(inside),
        cmocka_unit_test(a_million_steps),
        cmocka_unit_test(lanes_of_some_steps),
        cmocka_unit_test(one_figure),
        cmocka_unit_test(markers_keep_apart),
        cmocka_unit_test(strategy_of_now),
        cmocka_unit_test(validations_in_a_row),
        cmocka_unit_test(calm),
        cmocka_unit_test(cursor_tells_values),
        cmocka_unit_test(hot_channel),
        cmocka_unit_test(options_by_the_trainer),
        cmocka_unit_test(a_stall_of_unknown_steps),
        cmocka_unit_test(options_of_a_script),
        cmocka_unit_test(without_a_cpu_half),
        cmocka_unit_test(ticks),
        cmocka_unit_test(pieces),
        cmocka_unit_test(numbers),
        cmocka_unit_test(lines),
    };
    int failed = cmocka_run_group_tests_name("panels", tests, NULL, NULL);
    json_decref(pending_rows);
    zf_history_close(&sky);
    zf_history_close(&hostile);
    zf_history_close(&none);
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (!failed && system(command)) failed = 1;
    return failed;
}
