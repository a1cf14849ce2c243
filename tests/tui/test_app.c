/* What keys and lines do: the console without a terminal, over a feed that answers what the test wants. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/session/commands.h"
#include "core/session/lock.h"
#include "tui/app_impl.h"
#include "tui/launch.h"
#include "tui/prompt.h"
#include "tui/screen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- stand-ins for the terminal --- */

static char set_text[256], label[32];
static bool line_typed; /* something stands in the line */
bool zf_prompt_empty(void)
{
    return !line_typed;
}
void zf_prompt_clear(void)
{
    set_text[0] = 0;
}
void zf_prompt_label(const char *text)
{
    snprintf(label, sizeof label, "%s", text);
}
void zf_prompt_set(const char *text)
{
    snprintf(set_text, sizeof set_text, "%s", text);
}
void zf_screen_mouse(bool on)
{
    (void)on;
}

/* --- a feed --- */

struct fake {
    struct zf_feed feed;
    char asked[1024];
    bool yes, answers, recording;
    int64_t id;
    int count;
    struct zf_answer answer;
    double speed;
    uint64_t sought;
};

static enum zf_status take(struct zf_feed *f, struct zf_history *h, double seconds, bool *more, struct zf_err *e)
{
    (void)f, (void)h, (void)seconds, (void)e;
    *more = false;
    return ZF_OK;
}
static int no_fd(const struct zf_feed *f)
{
    (void)f;
    return -1;
}
static double never(const struct zf_feed *f)
{
    (void)f;
    return 0;
}
static enum zf_status ask(struct zf_feed *f, int64_t id, const char *command, bool yes, struct zf_err *e)
{
    struct fake *k = (struct fake *)f;
    if (k->recording) return zf_fail(e, ZF_DIFFERENT, NULL, "a recording cannot do that");
    snprintf(k->asked, sizeof k->asked, "%s", command);
    k->yes = yes;
    k->id = id;
    k->count++;
    return ZF_OK;
}
static bool answer(struct zf_feed *f, struct zf_answer *out)
{
    struct fake *k = (struct fake *)f;
    if (!k->answers) return false;
    k->answers = false;
    *out = k->answer;
    out->id = k->id;
    return true;
}
static void no_close(struct zf_feed *f)
{
    (void)f;
}
static const struct zf_feed_type fake_type = {take, no_fd, never, ask, answer, never, no_close};

bool zf_replay_is(const struct zf_feed *f)
{
    return ((const struct fake *)f)->recording;
}
void zf_replay_speed(struct zf_feed *f, double speed)
{
    ((struct fake *)f)->speed = speed;
}
double zf_replay_speed_of(const struct zf_feed *f)
{
    return ((const struct fake *)f)->speed;
}
enum zf_status zf_replay_seek(struct zf_feed *f, struct zf_history *h, uint64_t step, struct zf_err *e)
{
    (void)h, (void)e;
    ((struct fake *)f)->sought = step;
    return ZF_OK;
}

/* --- a console --- */

static struct fake fake;
static struct zf_app app;
static struct zf_console_options options;

static void line(const char *text)
{
    assert_true(zf_history_text(&app.h, text, strlen(text)));
}

static int open_app(void **state)
{
    (void)state;
    fake = (struct fake){.feed.type = &fake_type, .speed = 1};
    options = (struct zf_console_options){.run = "out"};
    app = (struct zf_app){.feed = &fake.feed, .o = &options};
    zf_history_open(&app.h);
    zf_view_init(&app.v, &app.h);
    app.v.run = "out";
    app.v.said = app.said;
    app.v.link = ZF_LINK_LIVE;
    app.watched = SIZE_MAX;
    assert_true(zf_canvas_resize(&app.c, 100, 30));
    line(
        "{\"type\":\"start\",\"version\":\"0\",\"model\":\"m\",\"parameters\":9,\"device\":\"host\",\"strategy\":\"zenflow\",\"attempt\":1,"
        "\"options\":{\"steps\":1000,\"learning_rate\":0.01,\"topk_ratio\":0.1},\"matrices\":[{\"name\":\"layers.0.q\",\"channels\":8,"
        "\"length\":8},{\"name\":\"layers.0.k\",\"channels\":8,\"length\":8}]}");
    for (int i = 1; i <= 400; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"type\":\"step\",\"step\":%d,\"time\":%d.5,\"loss\":%.3f,\"grad_norm\":1.0,\"tokens\":64}", i, i,
                 3.0 - i / 400.0);
        line(text);
    }
    return 0;
}

static int close_app(void **state)
{
    (void)state;
    for (size_t i = 0; i < app.waiting_count; i++) free(app.waiting[i].command);
    zf_app_close_dialog(&app);
    zf_app_forget_offers(&app);
    zf_app_hush(&app);
    line_typed = false;
    json_decref(app.option_rows);
    zf_canvas_free(&app.c);
    zf_history_close(&app.h);
    return 0;
}

static void frame(int cols, int rows)
{
    assert_true(zf_canvas_resize(&app.c, cols, rows));
    zf_canvas_clear(&app.c);
    app.c.glyphs = app.v.glyphs;
    app.layout = zf_layout_of(&app.v, cols, rows, ZF_MESSAGE_ROWS);
    zf_draw(&app.v, &app.layout, &app.c);
    zf_app_words(&app);
}

static char *text_of_frame(void)
{
    frame(100, 30);
    return zf_canvas_text(&app.c, false);
}

static bool seen(const char *text)
{
    frame(100, 30);
    char *all = zf_canvas_text(&app.c, false);
    bool found = strstr(all, text) != NULL;
    if (!found) fprintf(stderr, "not there: %s\n%s\n", text, all);
    free(all);
    return found;
}

static void reply(bool ok, bool asks, const char *text)
{
    fake.answer = (struct zf_answer){.ok = ok, .ask = asks, .text = (char *)(size_t)text};
    fake.answers = true;
    zf_app_answers(&app);
}

/* Nobody has pressed a key for a while, and what has opened was looked at. */
static void look(void)
{
    zf_app_open_offer(&app, zf_clock() + 60);
    app.seen_at = zf_clock() - 60;
}

static void test_a_change(void **state)
{
    (void)state;
    zf_app_command(&app, ":set topk_ratio 0.05");
    assert_string_equal(fake.asked, "set topk_ratio 0.05");
    assert_false(fake.yes);
    assert_true(seen("set topk_ratio 0.05 ..."));
    reply(true, false, "topk_ratio 0.1 -> 0.05, from step 41");
    assert_true(seen("topk_ratio 0.1 -> 0.05, from step 41"));
    assert_int_equal(app.waiting_count, 0);
    zf_app_hush(&app);
    assert_null(app.message);
    assert_int_equal(app.h.notes.count, 0); /* the log has the run's own line of it */
    zf_app_command(&app, "show topk_ratio");
    reply(true, false, "topk_ratio 0.05");
    assert_int_equal(app.h.notes.count, 0);
    zf_app_command(&app, "pause");
    reply(true, false, "paused before step 41");
    assert_int_equal(app.h.notes.count, 0);
    zf_app_command(&app, "select");
    reply(true, false, "at each matrix's next window start");
    assert_string_equal(app.h.notes.list[0].text, "select -> at each matrix's next window start");
    zf_app_command(&app, "set topk_ratio 5");
    reply(false, false, "it is 5");
    assert_string_equal(app.h.notes.list[1].text, "set topk_ratio 5 -> refused: it is 5");
}

static void test_a_question(void **state)
{
    (void)state;
    zf_app_command(&app, "set lr 1");
    reply(false, true, "it multiplies lr by 100: nothing was changed" ZF_TO_DO_IT " (`set!`, or --yes)");
    look();
    assert_int_equal(app.dialog, ZF_DIALOG_ASK);
    assert_true(seen("it multiplies lr by 100: nothing was changed. Do it?") && seen("y yes  n no"));
    assert_null(strstr(app.dialog_text, "--yes"));
    assert_true(zf_app_dialog_key(&app, 'x')); /* neither */
    assert_int_equal(app.dialog, ZF_DIALOG_ASK);
    assert_true(zf_app_dialog_key(&app, 'y'));
    assert_string_equal(fake.asked, "set lr 1");
    assert_true(fake.yes);
    reply(true, false, "done then");
    zf_app_command(&app, "set lr 1");
    reply(false, true, "again?");
    look();
    int count = fake.count;
    zf_app_dialog_key(&app, ZF_KEY_ESCAPE);
    assert_int_equal(fake.count, count);
    assert_true(seen("not done"));
}

/* A key that was typed before the question was seen is the line's, whatever it would answer. */
static void test_typed_ahead(void **state)
{
    (void)state;
    zf_app_command(&app, "set lr 1");
    zf_app_typing(&app, ZF_TYPING_COMMAND);
    line_typed = true; /* the next command has been begun */
    reply(false, true, "is that meant?");
    zf_app_command(&app, "set lr 2");
    reply(false, true, "and that?");
    look();
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
    assert_false(zf_app_dialog_key(&app, 'y'));
    zf_app_hush(&app);
    assert_true(seen("`set lr 1` asks: seen when the line is empty"));
    line_typed = false;
    double soon = zf_app_open_offer(&app, app.key_at = zf_clock());
    assert_true(soon > 0 && soon < 1); /* keys are not quiet yet */
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
    zf_app_open_offer(&app, zf_clock() + 1);
    assert_int_equal(app.dialog, ZF_DIALOG_ASK);
    int count = fake.count;
    assert_false(zf_app_dialog_key(&app, 'y')); /* it was on no screen */
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
    zf_app_open_offer(&app, zf_clock() + 1);
    app.seen_at = zf_clock();
    assert_false(zf_app_dialog_key(&app, 'y')); /* nobody reads so fast */
    assert_int_equal(fake.count, count);
    look();
    assert_true(seen("is that meant?"));
    assert_false(zf_app_dialog_key(&app, 'm')); /* no answer: of a word */
    look();
    assert_true(zf_app_dialog_key(&app, 'y'));
    assert_string_equal(fake.asked, "set lr 1");
    assert_true(fake.yes);
    look();
    assert_true(seen("and that?")); /* the second one has its turn */
    zf_app_dialog_key(&app, 'n');
    look();
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
    assert_int_equal(fake.count, count + 1);
}

/* So is an answer that needs the panels' room: it closes at any key, which then may do something else. */
static void test_a_long_answer(void **state)
{
    (void)state;
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    zf_app_command(&app, "history");
    reply(true, false, text);
    assert_false(zf_app_dialog_key(&app, 'z'));
    look();
    assert_int_equal(app.dialog, ZF_DIALOG_PAGER);
    assert_true(zf_app_dialog_key(&app, ZF_KEY_ESCAPE));
    look();
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        const char *command, *says;
    } rows[] = {{"sett lr 1", "nearest is `set`"},
                {"lr", "`set lr VALUE` changes it"},
                {"panel losss", "the nearest is loss"},
                {"theme pink", "dark, light, safe, mono"},
                {"glyphs x", "braille, block, ascii"},
                {"smooth -1", "no number of steps"},
                {"scale cubic", "log, linear"},
                {"write loss", "the file is missing"},
                {".nothing", "there is no"},
                {".seek 5", "no recording"},
                {"write loss out.gif", "refused"},
                {"help nonsense", "refused"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        zf_app_command(&app, rows[i].command);
        assert_true(seen(rows[i].says));
        assert_int_equal(fake.count, 0);
    }
    reply(true, false, "an answer that nobody asked for");
    options.read_only = app.v.read_only = true;
    zf_app_command(&app, "set lr 1e-3");
    assert_true(seen("--read-only"));
    zf_app_command(&app, "save");
    assert_int_equal(fake.count, 0);
    zf_app_command(&app, "show lr");
    assert_string_equal(fake.asked, "show lr");
}

static void test_paths(void **state)
{
    (void)state;
    char here[4096], wanted[4200];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(wanted, sizeof wanted, "source %s/steer it.txt", here);
    zf_app_command(&app, "source steer it.txt");
    assert_string_equal(fake.asked, wanted);
    setenv("HOME", "/home/me", 1);
    zf_app_command(&app, "export ~/out");
    assert_string_equal(fake.asked, "export /home/me/out");
    zf_app_command(&app, "at 40 export ~/out");
    assert_string_equal(fake.asked, "at 40 export /home/me/out");
    zf_app_command(&app, "at  7 set lr 1 ");
    assert_string_equal(fake.asked, "at 7 set lr 1");
    zf_app_command(&app, "at 7 nonsense");
    assert_string_equal(fake.asked, "at 7 nonsense");
    zf_app_command(&app, "source! /a b");
    assert_string_equal(fake.asked, "source! /a b");
    zf_app_command(&app, "load step-5");
    assert_string_equal(fake.asked, "load step-5");
}

static void test_views(void **state)
{
    uint64_t first, last;
    (void)state;
    zf_app_command(&app, "panel loss");
    assert_false(app.v.shown[ZF_PANEL_LOSS]);
    assert_true(app.v.shown[app.v.focus]);
    zf_app_command(&app, "panel 1");
    assert_true(app.v.shown[ZF_PANEL_LOSS] && app.v.focus == ZF_PANEL_LOSS);
    zf_app_command(&app, "zoom log");
    assert_int_equal(app.v.zoomed, ZF_PANEL_LOG);
    zf_app_command(&app, "zoom");
    assert_int_equal(app.v.zoomed, -1);
    zf_app_command(&app, "smooth 25");
    assert_int_equal(app.v.smooth, 25);
    zf_app_command(&app, "smooth");
    assert_int_equal(app.v.smooth, 30);
    zf_app_command(&app, "scale log");
    assert_true(app.v.log_scale);
    zf_app_command(&app, "theme light");
    assert_int_equal(app.v.scheme, ZF_SCHEME_LIGHT);
    assert_true(seen("theme light, where there are colours")); /* there are none */
    zf_app_command(&app, "glyphs ascii");
    zf_app_command(&app, "glyphs");
    assert_int_equal(app.v.glyphs, ZF_GLYPHS_BRAILLE);
    zf_app_command(&app, ".span 0.5");
    zf_view_steps(&app.v, &first, &last);
    assert_int_equal(last, 400);
    assert_int_equal(last - first + 1, 200);
    zf_app_command(&app, ".pan -1");
    zf_view_steps(&app.v, &first, &last);
    assert_int_equal(first, 101);
    assert_int_equal(last, 300);
    zf_app_command(&app, ".live"); /* End: the whole run */
    zf_view_steps(&app.v, &first, &last);
    assert_true(first <= 1 && last == 400);
    zf_app_command(&app, ".cursor");
    frame(100, 30);
    zf_app_command(&app, ".move -1 0");
    assert_true(app.v.cursor && app.v.cursor_step < 400);
}

/* A panel that has no room is brought onto the screen by its number and by Tab, and hidden by the next press. */
static void test_no_room(void **state)
{
    (void)state;
    frame(40, 10);
    assert_true(app.v.shown[ZF_PANEL_RUN] && !app.layout.panel[ZF_PANEL_RUN].rows);
    zf_app_command(&app, "panel 6");
    frame(40, 10);
    assert_true(app.v.shown[ZF_PANEL_RUN] && app.layout.panel[ZF_PANEL_RUN].rows && !app.layout.panel[ZF_PANEL_LOSS].rows);
    for (int i = 0; i < ZF_PANELS; i++) {
        zf_app_command(&app, ".focus 1");
        frame(40, 10);
        assert_true(app.layout.panel[app.v.focus].rows);
    }
    zf_app_command(&app, "panel 6");
    assert_false(app.v.shown[ZF_PANEL_RUN]);
}

/* Each list has its own filter; Escape takes that of the panel in focus away. */
static void test_filters(void **state)
{
    (void)state;
    zf_app_command(&app, ".filter"); /* the loss has none */
    assert_int_equal(app.typing, ZF_TYPING_NOTHING);
    assert_true(seen("no names to filter"));
    app.v.focus = ZF_PANEL_CHANNELS;
    zf_app_filter(&app, "q");
    app.v.focus = ZF_PANEL_OPTIONS;
    zf_app_filter(&app, "batch");
    assert_string_equal(app.v.filter[ZF_PANEL_CHANNELS], "q");
    assert_string_equal(app.v.filter[ZF_PANEL_LOG], "");
    line("{\"type\":\"start\",\"attempt\":2,\"options\":{\"batch_size\":8,\"seed\":1}}");
    app.v.zoomed = ZF_PANEL_OPTIONS;
    assert_true(seen("/batch") && seen("batch_size"));
    char *few = text_of_frame();
    assert_null(strstr(few, "seed"));
    free(few);
    zf_app_command(&app, ".back");
    assert_true(seen("seed"));
    assert_string_equal(app.v.filter[ZF_PANEL_CHANNELS], "q");
}

/* Zooming goes around the cursor, and the cursor stays in view, whatever comes. */
static void test_cursor_in_view(void **state)
{
    uint64_t first, last, before;
    (void)state;
    app.v.cursor = true;
    app.v.cursor_step = 100;
    for (int i = 0; i < 4; i++) {
        zf_app_command(&app, ".span 0.5");
        zf_view_steps(&app.v, &first, &last);
        assert_int_equal(last - first + 1, 400 >> (i + 1));
        assert_true(first <= 100 && last >= 100);
    }
    zf_app_command(&app, ".live");
    app.v.tail = 20;
    app.v.cursor_step = 300;
    zf_view_steps(&app.v, &first, &last);
    assert_true(first <= 300 && last >= 300 && last - first + 1 == 20);
    zf_app_command(&app, ".live");
    app.v.focus = ZF_PANEL_LOSS;
    frame(100, 30);
    zf_app_command(&app, ".move -1 0");
    before = app.v.cursor_step;
    zf_app_command(&app, ".move -1 0");
    uint64_t one = before - app.v.cursor_step;
    before = app.v.cursor_step;
    zf_app_command(&app, ".page -1");
    assert_int_equal(before - app.v.cursor_step, 10 * one);
}

static void test_leaving(void **state)
{
    (void)state;
    zf_app_command(&app, ".leave");
    assert_int_equal(app.dialog, ZF_DIALOG_LEAVE);
    assert_true(seen("detach"));
    zf_app_dialog_key(&app, 'c');
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
    zf_app_command(&app, "q");
    zf_app_dialog_key(&app, 's');
    assert_string_equal(fake.asked, "stop");
    assert_true(app.leave_at_end && !app.leave);
    zf_app_command(&app, ".leave");
    zf_app_dialog_key(&app, 'd');
    assert_true(app.leave);
    app.leave = false;
    zf_app_command(&app, "detach");
    assert_true(app.leave);
    app.leave = false;
    app.v.link = ZF_LINK_ENDED; /* nothing to ask */
    zf_app_command(&app, ".leave");
    assert_true(app.leave);
}

/* A `stop` that nobody has heard stops nothing: the console waits for no end, and a later `q` asks what it asks otherwise. */
static void test_a_stop_that_was_not_sent(void **state)
{
    (void)state;
    for (int i = 0; i < ZF_WAITING_MOST; i++) zf_app_command(&app, "mark here");
    int before = fake.count;
    zf_app_command(&app, "stop");
    assert_int_equal(fake.count, before);
    assert_false(app.stopping);
    zf_app_command(&app, ".leave");
    zf_app_dialog_key(&app, 's');
    assert_int_equal(fake.count, before);
    assert_false(app.stopping || app.leave_at_end);
    assert_true(seen("64 commands wait for an answer"));
}

/* As far as there is something to see: a key back does something at once. */
static void test_scrolling(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) line(i % 20 ? "{\"type\":\"mark\",\"text\":\"here\"}" : "{\"type\":\"mark\",\"text\":\"there\"}");
    app.v.focus = ZF_PANEL_LOG;
    free(text_of_frame());
    zf_app_command(&app, ".move 0 -1000");
    assert_int_equal(app.v.scroll[ZF_PANEL_LOG], 99);
    app.v.focus = ZF_PANEL_LOG;
    zf_app_filter(&app, "there");
    zf_app_command(&app, ".move 0 -1000");
    assert_int_equal(app.v.scroll[ZF_PANEL_LOG], 4);
    line("{\"type\":\"start\",\"attempt\":2,\"options\":{\"keep\":1,\"seed\":1,\"steps\":9,\"grace\":1,\"topk_ratio\":0.1,\"threads\":1,"
         "\"beta1\":0.9,\"beta2\":0.9,\"weight_decay\":0.1,\"batch_size\":1}}");
    for (int zoomed = 0; zoomed < 2; zoomed++) {
        app.v.focus = ZF_PANEL_OPTIONS;
        app.v.zoomed = zoomed ? ZF_PANEL_OPTIONS : -1;
        free(text_of_frame());
        zf_app_command(&app, ".move 0 1000");
        uint64_t most = app.v.scroll[ZF_PANEL_OPTIONS];
        char *last = text_of_frame();
        zf_app_command(&app, ".move 0 -1");
        char *before = text_of_frame();
        assert_int_equal(most == 0, zoomed); /* all of them are there */
        assert_int_equal(strcmp(last, before) == 0, zoomed);
        if (!zoomed) assert_non_null(strstr(before, "above"));
        app.v.scroll[ZF_PANEL_OPTIONS] = most;
        free(last);
        free(before);
    }
}

static void news_are(const char *text) /* NULL: none */
{
    zf_app_hush(&app);
    zf_app_news(&app);
    assert_int_equal(app.message != NULL, text != NULL);
    if (text) assert_string_equal(app.message, text);
}

static void test_news(void **state)
{
    (void)state;
    app.h.time = 10; /* all that is there now was said long before the newest step */
    line("{\"type\":\"warning\",\"step\":400,\"text\":\"old\"}");
    app.h.time = 3600;
    news_are(NULL);
    line("{\"type\":\"warning\",\"step\":400,\"text\":\"new\"}");
    news_are("new");
    news_are(NULL);
    for (int i = 0; i < 2 * ZF_NOTES_MOST; i++) /* the oldest ones are dropped meanwhile */
        line("{\"type\":\"mark\",\"step\":400,\"text\":\"here\"}");
    line("{\"type\":\"error\",\"step\":400,\"text\":\"after many\"}");
    news_are("after many");
    line("{\"type\":\"error\",\"step\":400,\"text\":\"of the last attempt\"}");
    line("{\"type\":\"resume\",\"step\":300,\"attempt\":2}");
    news_are(NULL);
    zf_history_close(&app.h); /* a feed reads all anew */
    line("{\"type\":\"warning\",\"text\":\"at the start\"}");
    news_are("at the start");
}

static void test_a_recording(void **state)
{
    (void)state;
    fake.recording = true;
    app.v.link = ZF_LINK_REPLAY;
    zf_app_command(&app, ".pause");
    assert_true(fake.speed == 0);
    zf_app_command(&app, ".pause");
    assert_true(fake.speed == 1);
    zf_app_command(&app, ".speed 2");
    assert_true(fake.speed == 2 && seen("2 times as fast as it was"));
    zf_app_command(&app, ".speed 0.5");
    assert_true(fake.speed == 1 && seen("as fast as it was"));
    assert_null(strstr(app.message, "times"));
    fake.speed = INFINITY;
    zf_app_command(&app, ".speed 2");
    assert_true(seen("as fast as it can be read"));
    fake.speed = 1;
    zf_app_command(&app, ".seek 123");
    assert_int_equal(fake.sought, 123);
    zf_app_command(&app, ".seek 50%");
    assert_int_equal(fake.sought, 500);
    zf_app_command(&app, ".seek -50");
    assert_int_equal(fake.sought, 350);
    zf_app_command(&app, ".pan 1");
    assert_int_equal(fake.sought, 450);
    zf_app_command(&app, "set lr 1");
    assert_true(seen("a recording cannot do that"));
    zf_app_command(&app, "show lr");
    assert_true(seen("learning_rate") && seen("0.01"));
    zf_app_close_dialog(&app);
    zf_app_command(&app, "status");
    assert_true(seen("step 400 of 1000"));
    app.h.steps = 0;
    zf_app_command(&app, "status");
    assert_true(seen("step 400, loss"));
}

static void test_help_is_whole(void **state)
{
    (void)state;
    char *text = zf_app_help(&app);
    assert_non_null(text);
    for (size_t i = 0; i < zf_binding_count; i++)
        if (zf_bindings[i].name) assert_non_null(strstr(text, zf_bindings[i].name));
    for (size_t i = 0; i < ZF_COMMANDS; i++) assert_non_null(strstr(text, zf_command_table[i].name));
    free(text);
    zf_app_command(&app, "?");
    assert_int_equal(app.dialog, ZF_DIALOG_PAGER);
    assert_true(seen("keys and commands"));
    for (int i = 0; i < 100; i++) zf_app_dialog_key(&app, ZF_KEY_DOWN);
    assert_true(seen("help NAME")); /* the end of it */
    zf_app_dialog_key(&app, ZF_KEY_ESCAPE);
    assert_int_equal(app.dialog, ZF_DIALOG_NONE);
}

/* The trainer tells the matrix that is looked at in full, no other, and none when none is. */
static void test_watching(void **state)
{
    (void)state;
    static const struct {
        const char *does, *sends; /* NULL: nothing */
    } rows[] = {{".enter", "watch layers.0.q"},
                {"", NULL},
                {".enter", "watch none"},
                {".enter", "watch layers.0.q"},
                {"panel channels", "watch none"}, /* hidden */
                {"panel channels", "watch layers.0.q"},
                {"watch layers.0.k", NULL}, /* is sent as it was typed */
                {"panel channels", "watch none"},
                {"watch layers.0.k", NULL}, /* shows the panel */
                {"watch nothing", NULL},
                {"watch none", NULL},
                {".enter", "watch layers.0.q"}};
    app.v.focus = ZF_PANEL_CHANNELS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        zf_app_command(&app, rows[i].does);
        app.v.focus = ZF_PANEL_CHANNELS;
        int before = fake.count;
        fake.asked[0] = 0;
        zf_app_curious(&app, 0);
        assert_string_equal(fake.asked, rows[i].sends ? rows[i].sends : "");
        assert_int_equal(fake.count, before + (rows[i].sends != NULL));
        app.waiting_count = app.waiting_count ? (free(app.waiting[0].command), 0) : 0;
        app.status_at = 0;
    }
    app.v.link = ZF_LINK_ENDED; /* nobody to ask */
    zf_app_command(&app, ".enter");
    fake.asked[0] = 0;
    assert_true(zf_app_curious(&app, 0) < 0);
    assert_string_equal(fake.asked, "");
}

/* A trainer that is stopped looks as one that is not: what it says last stays. */
static void test_silence(void **state)
{
    (void)state;
    double now = zf_clock();
    app.heard_at = now - 1;
    zf_app_curious(&app, now); /* asks */
    assert_true(seen("RUN") && seen("ETA"));
    zf_app_curious(&app, now + 7);
    assert_true(seen("no sign of life for 8s"));
    frame(100, 30);
    char *all = zf_canvas_text(&app.c, false);
    assert_null(strstr(all, "ETA"));
    assert_null(strstr(all, "it/s"));
    free(all);
    reply(true, false, "training, step 400");
    zf_app_curious(&app, zf_clock());
    assert_true(seen("RUN") && seen("ETA"));
}

static void test_writing(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.csv", "two words.csv", "a \"b\" \\ c.csv", "\"q\".csv"};
    static const char *const typed[] = {"plain.csv", "two words.csv", "a \\\"b\\\" \\\\ c.csv", "\\\"q\\\".csv"};
    char folder[] = "/tmp/zf-app-XXXXXX", path[64], command[128];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 4; i++) {
        snprintf(command, sizeof command, "write loss \"%s/%s\"", folder, typed[i]);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        zf_app_command(&app, command);
        assert_true(seen("written"));
        assert_int_equal(access(path, R_OK), 0);
        zf_app_command(&app, command);
        look();
        assert_int_equal(app.dialog, ZF_DIALOG_ASK); /* it is there now */
        assert_int_equal(truncate(path, 0), 0);
        zf_app_dialog_key(&app, 'y');
        assert_int_equal(app.dialog, ZF_DIALOG_NONE);
        assert_true(seen("written"));
        struct stat st;
        assert_true(!stat(path, &st) && st.st_size > 0);
        snprintf(command, sizeof command, "write! loss \"%s/%s\"", folder, typed[i]);
        zf_app_command(&app, command); /* not asked */
        assert_int_equal(app.dialog, ZF_DIALOG_NONE);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(fake.count, 0);
    snprintf(path, sizeof path, "%s/x.csv", folder); /* what is there and no file */
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(command, sizeof command, "write! loss %s", path);
    zf_app_command(&app, command);
    assert_true(seen("x.csv: it is there and no file, but a directory"));
    rmdir(path);
    assert_int_equal(symlink("/dev/full", path), 0); /* is replaced as such, and that is asked */
    snprintf(command, sizeof command, "write loss %s", path);
    zf_app_command(&app, command);
    look();
    assert_true(seen("a link"));
    zf_app_dialog_key(&app, 'y');
    struct stat st;
    assert_true(!lstat(path, &st) && S_ISREG(st.st_mode) && st.st_size > 0);
    unlink(path);
    snprintf(command, sizeof command, "write loss %s y.csv", path);
    zf_app_command(&app, command);
    assert_true(seen("needs quotes"));
    assert_int_equal(rmdir(folder), 0);
}

/* Everything a key can do, in any order, at any size. */
static void test_storm(void **state)
{
    (void)state;
    uint32_t x = 7;
    for (int i = 0; i < 3000; i++) {
        x = x * 1664525 + 1013904223;
        const struct zf_binding *b = &zf_bindings[(x >> 8) % zf_binding_count];
        zf_app_hush(&app);
        if (!zf_app_dialog_key(&app, b->key)) zf_app_command(&app, b->command);
        app.typing = ZF_TYPING_NOTHING;
        if (i % 7 == 0) reply(x & 1 << 20, x & 1 << 21, "some answer\nof two lines");
        if (i % 500 == 499) fake.recording = !fake.recording, app.v.link = fake.recording ? ZF_LINK_REPLAY : ZF_LINK_LIVE;
        if (i % 3) continue;
        frame((int)(x >> 9) % 200, (int)(x >> 17) % 60);
    }
    uint64_t first, last;
    zf_view_steps(&app.v, &first, &last);
    assert_true(first <= last && last <= 400);
}

static void test_hostile_words(void **state)
{
    (void)state;
    zf_app_command(&app, "mark x");
    reply(true, false, "\x1b]0;owned\x07\x1b[2J\n\xff\xfe bad");
    frame(100, 30);
    char *all = zf_canvas_text(&app.c, false);
    assert_null(strchr(all, 27));
    assert_null(strchr(all, 7));
    free(all);
}

static void test_outcomes(void **state)
{
    (void)state;
    char run[] = "/tmp/zf-outcome-XXXXXX", path[64];
    struct zf_err e;
    int code = -1;
    assert_non_null(mkdtemp(run));
    assert_null(zf_outcome(run, false, 0, &code));
    static const struct {
        const char *line;
        int code;
        const char *says;
    } rows[] = {{"{\"type\":\"end\",\"step\":40,\"reason\":\"done\",\"code\":0}\n", 0, "last step"},
                {"{\"type\":\"end\",\"step\":4,\"reason\":\"signal\"}\n", 5, "a signal asked"},
                {"{\"type\":\"end\",\"step\":4,\"reason\":\"stopped\"}\n", 5, "max_time"},
                {"{\"type\":\"command\",\"step\":4,\"command\":\"stop\",\"by\":\"console\",\"user\":\"anna\"}\n"
                 "{\"type\":\"end\",\"step\":4,\"reason\":\"stopped\"}\n",
                 5, "at step 4: anna (console) stopped it."},
                {"{\"type\":\"end\",\"step\":4,\"reason\":\"error\",\"code\":7}\n", 7, "disk is full"}};
    snprintf(path, sizeof path, "%s/trainer.log", run);
    assert_int_equal(zf_file_write_atomic(path, "a\nb\nlast words: the disk is full\n", 33, &e), ZF_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/journal.jsonl", run);
        assert_int_equal(zf_file_write_atomic(path, rows[i].line, strlen(rows[i].line), &e), ZF_OK);
        char *text = zf_outcome(run, true, 40, &code);
        assert_non_null(text);
        assert_non_null(strstr(text, rows[i].says));
        assert_int_equal(code, rows[i].code);
        free(text);
    }
    const char
        *older =
            "{\"type\":\"start\",\"run\":\"x\"}\n{\"type\":\"end\",\"step\":4,\"reason\":\"stopped\"}\n{\"type\":\"resume\",\"step\":4}\n",
        *newer = "{\"type\":\"end\",\"step\":9,\"reason\":\"done\",\"code\":0}\n"; /* the journal has it a moment later */
    snprintf(path, sizeof path, "%s/journal.jsonl", run);
    assert_int_equal(zf_file_write_atomic(path, older, strlen(older), &e), ZF_OK);
    assert_null(zf_outcome(run, true, 9, &code));
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    assert_int_equal(zf_file_write_atomic(path, newer, strlen(newer), &e), ZF_OK);
    char *text = zf_outcome(run, true, 9, &code);
    assert_non_null(text);
    assert_non_null(strstr(text, "ended at step 9"));
    assert_int_equal(code, 0);
    free(text);
    snprintf(path, sizeof path, "%s/lock", run); /* one that died: no file lock is held */
    const char *dead = "{\"host\":\"h\",\"pid\":4194303,\"pid_start\":1,\"boot_id\":\"x\",\"heartbeat\":1,\"step\":9,\"file_lock\":true}\n";
    assert_int_equal(zf_file_write_atomic(path, dead, strlen(dead), &e), ZF_OK);
    text = zf_outcome(run, false, 0, &code);
    assert_non_null(text);
    assert_int_equal(strncmp(text, "The trainer (pid", 16), 0);
    assert_non_null(strstr(text, "without a clean stop at step 9"));
    assert_non_null(strstr(text, "last words"));
    assert_int_equal(code, ZF_BUSY);
    free(text);
    const char *step = "{\"type\":\"step\",\"step\":47,\"time\":1.0,\"loss\":2.5}\n"; /* the lock is some seconds behind */
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    assert_int_equal(zf_file_write_atomic(path, step, strlen(step), &e), ZF_OK);
    text = zf_outcome(run, false, 0, &code);
    assert_non_null(strstr(text, "without a clean stop at step 47"));
    free(text);
    const char *const files[] = {"trainer.log", "journal.jsonl", "metrics.jsonl", "lock"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", run, files[i]);
        unlink(path);
    }
    rmdir(run);
}

/* Last words: how it ended, where the weights are, what to type next. */
static void test_farewell(void **state)
{
    (void)state;
    char run[] = "/tmp/zf-farewell-XXXXXX", path[64], expected[600];
    struct zf_err e;
    assert_non_null(mkdtemp(run));
    static const struct {
        const char *reason, *says;
    } rows[] = {{"done", "lets its model speak"}, {"stopped", "to go on from "}, {"error", "tells where it stands"}};
    snprintf(path, sizeof path, "%s/exports/step-00000004", run);
    assert_int_equal(zf_directory_make(path, 0700, &e), ZF_OK);
    snprintf(path, sizeof path, "%s/checkpoints", run);
    assert_int_equal(zf_directory_make(path, 0700, &e), ZF_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000004.zfc", run);
    assert_int_equal(zf_file_write_atomic(path, "", 0, &e), ZF_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        /* moved since: the journal's path is an older one */
        int n = snprintf(text, sizeof text,
                         "{\"type\":\"checkpoint\",\"step\":4,\"file\":\"/before/checkpoints/step-00000004.zfc\"}\n"
                         "{\"type\":\"export\",\"step\":4,\"file\":\"/before/exports/step-00000004\"}\n"
                         "{\"type\":\"command\",\"step\":4,\"command\":\"stop\",\"by\":\"send\",\"user\":\"anna\"}\n"
                         "{\"type\":\"end\",\"step\":4,\"reason\":\"%s\"}\n",
                         rows[i].reason);
        snprintf(path, sizeof path, "%s/journal.jsonl", run);
        assert_int_equal(zf_file_write_atomic(path, text, (size_t)n, &e), ZF_OK);
        char *words = zf_farewell(run, true, 4, NULL);
        assert_non_null(words);
        assert_non_null(strstr(words, "The run has ended at step 4: "));
        assert_non_null(strstr(words, " Its weights: exports/step-00000004."));
        assert_non_null(strstr(words, rows[i].says));
        if (i == 1) {
            snprintf(expected, sizeof expected,
                     "%s: The run has ended at step 4: anna (send) stopped it. Its weights: exports/step-00000004.\n"
                     "to go on from checkpoints/step-00000004.zfc: `zenflow-console %s/run.cfg`\n",
                     run, run);
            assert_string_equal(words, expected);
        }
        free(words);
    }
    unlink(path);
    snprintf(path, sizeof path, "%s/exports/step-00000004", run);
    rmdir(path);
    char *words = zf_farewell(run, true, 4, NULL); /* nothing is left */
    assert_non_null(strstr(words, "without a word"));
    free(words);
    words = zf_farewell(run, false, 4, "there are 32 clients already");
    assert_non_null(strstr(words, ": there are 32 clients already\n"));
    free(words);
    snprintf(path, sizeof path, "%s/exports", run);
    rmdir(path);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000004.zfc", run);
    unlink(path);
    snprintf(path, sizeof path, "%s/checkpoints", run);
    rmdir(path);
    rmdir(run);
    int code = -1;
    line("{\"type\":\"end\",\"step\":400,\"reason\":\"stopped\"}"); /* renamed meanwhile: what came by the socket */
    char *told = zf_outcome_told(run, &app.h, &code);
    assert_non_null(strstr(told, "ended at step 400 (stopped)"));
    assert_non_null(strstr(told, "renamed"));
    assert_int_equal(code, ZF_STOPPED);
    words = zf_farewell(run, true, 4, told);
    assert_non_null(strstr(words, told));
    assert_null(strstr(words, "status /tmp"));
    free(told);
    free(words);
}

/* Commands that are suggested can be pasted, whatever the name of the run, and drive no terminal. */
static void test_words_of_a_shell(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"runs/a-1", "runs/a-1"},
                                          {"", "''"},
                                          {"my run", "'my run'"},
                                          {"l\u00f6ss", "'l\u00f6ss'"},
                                          {"it's $HOME", "'it'\\''s $HOME'"},
                                          {"a\x1b]0;owned\x07z", "$'a\\x1b]0;owned\\x07z'"},
                                          {"it's\n\\\xff\u202e", "$'it\\'s\\x0a\\\\\\xff\\xe2\\x80\\xae'"}};
    char word[ZF_SHELL_WORD], longest[2 * ZF_SHELL_WORD];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_string_equal(zf_shell_word(word, rows[i][0]), rows[i][1]);
    memset(longest, ' ', sizeof longest - 1);
    for (size_t n = ZF_SHELL_WORD - 8; n < sizeof longest; n++) { /* no part of a name is another name */
        longest[n] = 0;
        zf_shell_word(word, longest);
        assert_true(!strcmp(word, "RUN") || strlen(word) == n + 2);
        longest[n] = ' ';
    }
}

static void test_surroundings(void **state)
{
    (void)state;
    static const struct {
        struct zf_surroundings s;
        const char *says;
    } rows[] = {
        {{.cgroup = "0::/user.slice/user-1000.slice/session-3.scope"}, NULL},
        {{.cgroup = "0::/user.slice/user-1000.slice/session-3.scope", .kills = true}, "systemd-run --user --scope zenflow-console my.cfg"},
        {{.cgroup = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope", .lingers = true}, NULL},
        {{.cgroup = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"}, "loginctl enable-linger"},
        {{.cgroup = "0::/"}, NULL},
        {{.job_kind = "Slurm", .job = "77"}, "sbatch --wrap 'zenflow-console my.cfg --plain'"},
        {{.job_kind = "PBS", .job = "8.host"}, "qsub"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = zf_surroundings_warning(&rows[i].s, "my.cfg");
        assert_true(!text == !rows[i].says);
        if (text) assert_non_null(strstr(text, rows[i].says));
        free(text);
    }
    struct zf_surroundings here;
    setenv("SLURM_JOB_ID", "123", 1);
    zf_surroundings_read(&here);
    unsetenv("SLURM_JOB_ID");
    assert_string_equal(here.job_kind, "Slurm");
    assert_string_equal(here.job, "123");
}

static void test_logind(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
        bool kills;
    } rows[] = {{"a.conf", "[Login]\n KillUserProcesses = yes\n", true},
                {"a.conf", "KillUserProcesses=no", false},
                {"b.conf.bak", "KillUserProcesses=yes\n", false}, /* no part of it */
                {"c.conf", "#KillUserProcesses=yes\nKillUserProcesses=", false}};
    char folder[] = "/tmp/zf-logind-XXXXXX", path[64];
    struct zf_err e;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
        assert_int_equal(zf_file_write_atomic(path, rows[i].text, strlen(rows[i].text), &e), ZF_OK);
        assert_int_equal(zf_logind_kills(folder, false), rows[i].kills);
    }
    assert_true(zf_logind_kills(path, true) == false && zf_logind_kills("/nowhere", true));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, open_app, close_app)
    const struct CMUnitTest tests[] = {TEST(a_change),
                                       TEST(a_question),
                                       TEST(typed_ahead),
                                       TEST(a_long_answer),
                                       TEST(refusals),
                                       TEST(paths),
                                       TEST(views),
                                       TEST(no_room),
                                       TEST(filters),
                                       TEST(cursor_in_view),
                                       TEST(leaving),
                                       TEST(a_stop_that_was_not_sent),
                                       TEST(news),
                                       TEST(scrolling),
                                       TEST(a_recording),
                                       TEST(help_is_whole),
                                       TEST(watching),
                                       TEST(silence),
                                       TEST(writing),
                                       TEST(storm),
                                       TEST(hostile_words),
                                       cmocka_unit_test(test_outcomes),
                                       TEST(farewell),
                                       cmocka_unit_test(test_words_of_a_shell),
                                       cmocka_unit_test(test_surroundings),
                                       cmocka_unit_test(test_logind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
