/* The loop: keys, lines, signals and a clock; a frame when something changed, at most so often. See app.h. */
#include "tui/app_impl.h"
#include "tui/panels/parts.h"
#include "tui/prompt.h"
#include "tui/screen.h"

#include "core/base/clock.h"
#include "core/base/show.h"
#include "core/session/lock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frames: for data every so often, less often where they are large; for a person at once, out of a purse of bytes, so that a key that is
 * held down scrolls at what the line can bear. On a slow line the pause between frames is doubled until the terminal keeps up. */
#define DATA_EVERY 0.25
#define DATA_BYTES 20000.0   /* a second, to the terminal */
#define PERSON_BYTES 40000.0 /* a second; as many at once */
#define SLOWEST 4.0
#define TAKE_SECONDS 0.02 /* of lines, then keys have their turn */
#define TAKE_EVERY 0.1    /* lines may come a thousand times a second */
#define ENDING 3.0        /* for the files to tell how the run ended */
#define PASTE_PAUSE 1.0   /* after which a paste without an end is over */

struct loop {
    struct zf_app *a;
    struct zf_keys keys;
    double drawn, sent, pause; /* the last frame with new data, the last frame; pause: between frames, below DATA_EVERY: a fast line */
    double purse, counted;     /* bytes for what a person does; when it was filled */
    double bytes;              /* of a frame with new data, about */
    double key_at;             /* the last bytes */
    double took;               /* the last lines */
    uint64_t version;          /* of the data that was drawn */
    double second;             /* whole seconds of `now` that were drawn */
    bool more;                 /* lines wait */
    bool over;                 /* the feed has nothing more to say */
    double ended_at;
    char stray[512];
    size_t stray_used, stray_lines;
};

/* --- keys --- */

static void take_keys(struct loop *l)
{
    struct zf_key_event k;
    while (!l->a->leave && zf_keys_next(&l->keys, &k)) zf_app_key(l->a, &k);
}

static void read_keys(struct loop *l, double now)
{
    unsigned char bytes[1024];
    ssize_t n = read(zf_screen_input(), bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) { /* the terminal is gone */
        l->a->gone = l->a->leave = true;
        return;
    }
    if (n < 0) return;
    l->key_at = now;
    for (ssize_t at = 0; at < n; at += 256) { /* pieces, so that there is room */
        zf_keys_feed(&l->keys, bytes + at, (size_t)(n - at < 256 ? n - at : 256));
        take_keys(l);
    }
}

/* --- lines --- */

/* What anybody wrote to stdout or stderr. */
static void read_stray(struct loop *l)
{
    char bytes[4096];
    enum { MOST = 1000 }; /* lines of a whole session: the log is for the run */
    ssize_t n = read(zf_screen_stray(), bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != '\n' && l->stray_used < sizeof l->stray - 1) l->stray[l->stray_used++] = bytes[i];
        if (bytes[i] != '\n' || !l->stray_used) continue;
        l->stray[l->stray_used] = 0;
        l->stray_used = 0;
        if (l->stray_lines++ < MOST) zf_app_log(l->a, "warning", l->stray);
    }
}

static void ended(struct loop *l, bool lost)
{
    struct zf_app *a = l->a;
    char *text = zf_outcome(a->o->run, !lost, a->h.step, &a->code);
    if (!text && zf_clock() - l->ended_at < ENDING) return; /* its files will tell in a moment */
    if (!text && lost) a->code = ZF_BUSY;
    if (!text && !lost) {
        free(a->known);
        a->known = zf_outcome_told(a->o->run, &a->h, &a->code);
    }
    const char *says = text ? text : a->known;
    l->over = true;
    a->v.link = lost ? ZF_LINK_LOST : ZF_LINK_ENDED;
    a->said[0] = 0;
    a->dirty = true;
    if (a->leave_at_end) {
        a->leave = true;
    } else if (a->code == ZF_OK || a->code == ZF_STOPPED) {
        zf_app_say(a, a->code == ZF_OK ? ZF_STYLE_GOOD : ZF_STYLE_WARN, "%s `q` leaves.", says ? says : "The run has ended.");
    } else {
        const char *title = !lost ? "the run has failed" : text ? "the trainer is gone" : "cut off from the trainer";
        char *whole = NULL;
        if (asprintf(&whole, "%s\n\n`q` leaves then, with exit code %d.", says ? says : "The trainer is gone without a word.", a->code) >=
            0)
            zf_app_offer(a, ZF_DIALOG_NOTICE, title, whole, NULL);
        free(whole);
    }
    if (says) zf_app_log(a, a->code == ZF_OK ? "note" : "warning", says);
    free(text);
}

static void take_lines(struct loop *l)
{
    struct zf_app *a = l->a;
    struct zf_err e = {0};
    bool watching = a->v.link == ZF_LINK_LIVE || a->v.link == ZF_LINK_FILES;
    if (l->over) { /* nothing new, but a matrix may be looked at whose columns of before are in the file */
        if (a->v.link == ZF_LINK_ENDED || a->v.link == ZF_LINK_LOST) a->feed->type->take(a->feed, &a->h, TAKE_SECONDS, &l->more, &e);
        return;
    }
    uint64_t before = a->h.version_of_data, step = a->h.step;
    if (!l->ended_at) {
        l->took = zf_clock();
        enum zf_status s = a->feed->type->take(a->feed, &a->h, TAKE_SECONDS, &l->more, &e);
        if (s && !watching) l->over = true;
        if (s && !watching) zf_app_say(a, ZF_STYLE_BAD, "%s", e.message);
        if (watching && (s || (a->h.ended && !l->more))) l->ended_at = zf_clock();
        if (watching && s) a->known = strdup(e.message);
    }
    zf_app_answers(a);
    if (a->h.version_of_data != before) a->heard_at = zf_clock();
    if (a->h.version_of_data != before) zf_app_news(a);
    if (a->h.step != step && !l->more) { /* it works: no need to ask what it does */
        a->status_at = zf_clock();
        if (!strcmp(a->said, "starting") || !strncmp(a->said, "paused", 6)) a->said[0] = 0;
    }
    if (l->ended_at && watching) ended(l, !a->h.ended);
}

/* --- frames --- */

/* What the keys are for, from the left, as far as there is room. */
static void draw_hint(struct zf_app *a)
{
    static const char *const live[][2] = {{":", "command"}, {"?", "help"},   {"q", "leave"}, {"Tab", "panel"}, {"z", "zoom"},
                                          {"+ -", "steps"}, {"c", "cursor"}, {"p", "pause"}, {"S", "save"}},
                             *const replay[][2] = {{"p", "pause"},   {"< >", "speed"}, {"[ ]", "seek"}, {"?", "help"},  {"q", "leave"},
                                                   {":", "command"}, {"Tab", "panel"}, {"z", "zoom"},   {"c", "cursor"}};
    bool recording = zf_replay_is(a->feed), live_run = a->v.link == ZF_LINK_LIVE && !a->v.read_only;
    bool stands = recording ? !(a->v.speed > 0) : !strncmp(a->said, "paused", 6);
    size_t count = recording ? sizeof replay / sizeof *replay : sizeof live / sizeof *live;
    struct zf_rect r = a->layout.prompt;
    int x = 0;
    for (size_t i = 0; i < count && r.rows > 0; i++) {
        const char *k = recording ? replay[i][0] : live[i][0], *what = recording ? replay[i][1] : live[i][1];
        if (*k == 'p' && stands) what = "go on";
        int n = zf_text_width(k, SIZE_MAX) + 1 + zf_text_width(what, SIZE_MAX);
        if (!recording && !live_run && strchr("pS", k[0])) continue;
        if (x + n > r.cols) break;
        x += zf_text(&a->c, r, x, 0, ZF_STYLE_KEY, k) + 1;
        x += zf_text(&a->c, r, x, 0, ZF_STYLE_DIM, what) + 2;
    }
}

static void compose(struct zf_app *a, int cols, int rows)
{
    if ((cols != a->c.cols || rows != a->c.rows) && !zf_canvas_resize(&a->c, cols, rows)) return;
    zf_canvas_clear(&a->c);
    a->c.glyphs = a->v.glyphs;
    a->v.said = a->said;
    a->layout = zf_layout_of(&a->v, a->c.cols, a->c.rows, ZF_MESSAGE_ROWS);
    zf_draw(&a->v, &a->layout, &a->c);
    a->c.cursor_x = a->c.cursor_y = -1;
    if (a->typing)
        zf_prompt_draw(&a->c, a->layout.prompt, true);
    else
        draw_hint(a);
    zf_app_words(a);
}

static double data_every(const struct loop *l)
{
    return fmin(1, fmax(DATA_EVERY, l->bytes / DATA_BYTES));
}

/* Seconds until a frame may go out, for a person or for data; at most 0: now. */
static double frame_in(struct loop *l, bool person, double now)
{
    l->purse = fmin(PERSON_BYTES, l->purse + (now - l->counted) * PERSON_BYTES);
    l->counted = now;
    double wait = person ? -l->purse / PERSON_BYTES : l->drawn + data_every(l) - now;
    return fmax(wait, l->sent + l->pause - now);
}

/* Draws if it is time; returns seconds until it will be, below 0: nothing to draw. */
static double draw(struct loop *l, double now)
{
    struct zf_app *a = l->a;
    bool acted = a->dirty || a->redraw, typed = a->typing && zf_prompt_dirty();
    bool ticks = !l->over && floor(a->feed->type->now(a->feed)) != l->second;
    if (!acted && !typed && !ticks && a->h.version_of_data == l->version) return -1;
    double wait = frame_in(l, acted || typed, now);
    if (wait > 0) return wait;
    bool line_only = typed && !acted && a->c.cols; /* what the panels show has its own pace */
    int cols, rows;
    zf_screen_size(&cols, &rows);
    if (a->redraw) zf_screen_redraw();
    if (line_only)
        zf_prompt_draw(&a->c, a->layout.prompt, true);
    else
        compose(a, cols, rows);
    uint64_t before = zf_screen_bytes();
    bool out = zf_screen_draw(&a->c, a->v.scheme);
    double bytes = (double)(zf_screen_bytes() - before);
    l->sent = now;
    if (!out) { /* the terminal is behind */
        l->pause = fmin(SLOWEST, fmax(0.05, 2 * l->pause));
        a->dirty |= acted || typed;
        return l->pause;
    }
    l->pause = l->pause > 0.06 ? l->pause / 2 : 0;
    if (acted || typed)
        l->purse -= bytes;
    else
        l->bytes += 0.25 * (bytes - l->bytes);
    if (line_only) return fmax(0, l->drawn + DATA_EVERY - now);
    a->dirty = a->redraw = false;
    if (a->seen_at <= 0) a->seen_at = now;
    l->drawn = now;
    l->version = a->h.version_of_data;
    l->second = floor(a->feed->type->now(a->feed));
    return -1;
}

/* --- the loop --- */

static void take_signals(struct loop *l)
{
    struct zf_app *a = l->a;
    int number, cols, rows;
    while ((number = zf_screen_signal())) {
        if (number == SIGHUP || number == SIGTERM || number == SIGINT) {
            a->leave = true;
            a->gone |= number == SIGHUP;
        }
        if (number == SIGWINCH || number == SIGCONT) {
            zf_screen_size(&cols, &rows);
            zf_prompt_resize(cols);
            a->redraw = true;
        }
    }
}

static double sooner(double a, double b)
{
    return b < 0 ? a : a < 0 ? b : fmin(a, b);
}

static void wait_for_something(struct loop *l, double seconds)
{
    struct zf_app *a = l->a;
    struct pollfd p[4] = {{.fd = zf_screen_input(), .events = POLLIN},
                          {.fd = zf_screen_signals(), .events = POLLIN},
                          {.fd = zf_screen_stray(), .events = POLLIN},
                          {.fd = -1, .events = POLLIN}};
    if (!l->over && !l->ended_at) {
        const struct zf_feed_type *type = a->feed->type;
        double rest = a->waiting_count ? 0 : l->took + TAKE_EVERY - zf_clock();
        p[3].fd = rest > 0 || !type->fd ? -1 : type->fd(a->feed);
        if (rest > 0) seconds = sooner(seconds, rest);
    }
    int ms = l->more ? 0 : seconds < 0 ? -1 : seconds > 60 ? 60000 : (int)ceil(seconds * 1000);
    if (poll(p, 4, ms) < 0) return;
    double now = zf_clock();
    if (p[1].revents) take_signals(l);
    if (p[0].revents && !a->leave) read_keys(l, now);
    if (p[2].revents) read_stray(l);
}

static void run(struct loop *l)
{
    struct zf_app *a = l->a;
    while (!a->leave) {
        double now = zf_clock(), wait = -1;
        if (zf_keys_waits(&l->keys)) {
            if (now - l->key_at >= ZF_KEY_WAIT) {
                zf_keys_idle(&l->keys);
                take_keys(l);
            } else {
                wait = l->key_at + ZF_KEY_WAIT - now;
            }
        }
        if (a->pasting && now - l->key_at > PASTE_PAUSE) { /* its end was lost */
            a->pasting = false;
            zf_prompt_bytes((const unsigned char *)"\x1b[201~", 6);
        }
        if (a->suspend) {
            a->suspend = false;
            a->redraw = true;
            zf_screen_suspend();
        }
        take_lines(l);
        if (a->message_until > 0 && now > a->message_until) zf_app_hush(a);
        if (a->message_until > 0) wait = sooner(wait, a->message_until - now);
        wait = sooner(wait, zf_app_curious(a, now));
        wait = sooner(wait, zf_app_open_offer(a, now));
        if (!l->over) wait = sooner(wait, l->ended_at ? 0.1 : a->feed->type->wait(a->feed));
        if (!l->over) wait = sooner(wait, 1 - (a->feed->type->now(a->feed) - floor(a->feed->type->now(a->feed))));
        wait = sooner(wait, draw(l, zf_clock()));
        if (!a->leave) wait_for_something(l, wait);
    }
}

static void choose_looks(struct zf_view *v, const struct zf_console_options *o, bool utf8, bool braille, int colours)
{
    size_t scheme = colours ? ZF_SCHEME_DARK : ZF_SCHEME_MONO, glyphs = braille ? ZF_GLYPHS_BRAILLE
                                                                        : utf8  ? ZF_GLYPHS_BLOCK
                                                                                : ZF_GLYPHS_ASCII;
    if (o->theme) scheme = zf_name_index(o->theme, zf_scheme_names, ZF_SCHEMES);
    if (o->glyphs) glyphs = zf_name_index(o->glyphs, zf_glyph_names, ZF_GLYPH_SETS);
    v->scheme = (enum zf_scheme)scheme;
    v->glyphs = (enum zf_glyphs)glyphs;
}

static void begin(struct zf_app *a, enum zf_link link)
{
    zf_history_open(&a->h);
    zf_view_init(&a->v, &a->h);
    a->v.run = a->o->run;
    a->v.read_only = a->o->read_only;
    a->v.link = link;
    a->v.died = link == ZF_LINK_REPLAY && zf_lock_look(a->o->run, NULL) == ZF_LOCK_DEAD;
    a->v.said = a->said;
    a->options_asked = true;
    a->watched = SIZE_MAX;
    a->heard_at = zf_clock();
    a->dirty = true;
}

static void finish(struct zf_app *a)
{
    for (size_t i = 0; i < a->waiting_count; i++) free(a->waiting[i].command);
    zf_app_close_dialog(a);
    zf_app_forget_offers(a);
    zf_app_hush(a);
    free(a->known);
    json_decref(a->option_rows);
    zf_canvas_free(&a->c);
    zf_history_close(&a->h);
}

/* On the terminal that is ours no more. */
static void farewell(const struct zf_app *a)
{
    char quoted[ZF_SHELL_WORD];
    const char *run = a->o->run, *word = zf_shell_word(quoted, run);
    bool ended = a->v.link == ZF_LINK_ENDED;
    if (a->gone) return;
    char *words = ended || a->v.link == ZF_LINK_LOST ? zf_farewell(run, ended, a->h.step, a->known) : NULL;
    if (a->v.link == ZF_LINK_LIVE) {
        fputs("left ", stdout);
        zf_show(stdout, run);
        printf(" at step %llu; %s: `zenflow-console %s %s`\n", (unsigned long long)a->h.step,
               a->stopping ? "it was asked to stop, and ends after its step" : "the run goes on", a->stopping ? "status" : "attach", word);
    }
    if (words) zf_show_lines(stdout, words, strlen(words));
    fflush(stdout);
    free(words);
}

enum zf_status zf_console(struct zf_feed *feed, const struct zf_console_options *o, int *code, struct zf_err *e)
{
    struct zf_app a = {.feed = feed, .o = o};
    struct loop l = {.a = &a, .second = -1, .purse = PERSON_BYTES, .counted = zf_clock()};
    struct zf_screen_facts facts;
    *code = ZF_OK;
    begin(&a, zf_replay_is(feed) ? ZF_LINK_REPLAY : o->elsewhere ? ZF_LINK_FILES : ZF_LINK_LIVE);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is refused, and that is said */
    enum zf_status s = zf_screen_signals() < 0 ? zf_fail_errno(e, NULL, "cannot wait for signals") : ZF_OK;
    if (!s && !zf_app_prompt(&a)) s = zf_fail_errno(e, NULL, "cannot begin the prompt");
    if (!s && (s = zf_screen_open(&facts, e)) == ZF_USAGE) *code = -1;
    if (!s) {
        choose_looks(&a.v, o, facts.utf8, facts.braille, facts.colours);
        a.c.shades = facts.colours < 256;
        a.colours = facts.colours;
        a.speed = o->speed > 0 && isfinite(o->speed) ? o->speed : 1;
        if (zf_replay_is(feed)) a.v.speed = zf_replay_speed_of(feed);
        if (zf_replay_is(feed) && o->from) zf_replay_seek(feed, &a.h, o->from, e);
        const char *notice = o->notice ? o->notice : zf_prompt_complaint();
        if (notice) zf_app_say(&a, ZF_STYLE_WARN, "%s", notice);
        zf_prompt_resize(facts.cols);
        run(&l);
        zf_screen_close();
        if (a.v.link != ZF_LINK_LIVE && a.v.link != ZF_LINK_FILES && a.v.link != ZF_LINK_REPLAY) *code = a.code;
        farewell(&a);
    }
    zf_prompt_close();
    finish(&a);
    return s;
}

enum zf_status zf_snapshot(const char *run, int cols, int rows, uint64_t step, const struct zf_console_options *o, struct zf_err *e)
{
    struct zf_feed *feed;
    struct zf_app a = {.o = o};
    ZF_TRY(zf_feed_replay(&feed, run, INFINITY, e));
    a.feed = feed;
    begin(&a, ZF_LINK_REPLAY);
    enum zf_status s = ZF_OK;
    for (bool more = true; !s && more && !step;) s = feed->type->take(feed, &a.h, 1, &more, e);
    if (!s && step) s = zf_replay_seek(feed, &a.h, step, e);
    choose_looks(&a.v, o, true, true, 256);
    a.c.shades = true;
    a.v.speed = zf_replay_speed_of(feed);
    compose(&a, cols, rows);
    char *text = s ? NULL : zf_canvas_text(&a.c, false);
    if (!s && !text) s = zf_fail_memory(e, "a frame");
    if (!s && (fputs(text, stdout) < 0 || fflush(stdout))) s = zf_fail_errno(e, "stdout", "cannot write the frame");
    free(text);
    finish(&a);
    feed->type->close(feed);
    return s;
}
