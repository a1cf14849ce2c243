/* Words over the panels: the message above the prompt, questions, the help. They lie over the frame, so that nothing behind them moves. */
#include "tui/app_impl.h"
#include "tui/panels/parts.h"

#include "core/session/commands.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

void zf_app_hush(struct zf_app *a)
{
    if (a->message) a->dirty = true;
    free(a->message);
    a->message = NULL;
    a->message_until = 0;
}

static void say(struct zf_app *a, unsigned style, char *text, double until)
{
    zf_app_hush(a);
    a->message = text;
    a->message_style = style;
    a->message_until = until;
    a->dirty = true;
}

void zf_app_say(struct zf_app *a, unsigned style, const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) text = NULL;
    va_end(ap);
    say(a, style, text, 0);
}

void zf_app_pass(struct zf_app *a, unsigned style, const char *text)
{
    if (a->message && a->message_until <= 0) return;
    say(a, style, strdup(text), zf_clock() + ZF_PASSING);
}

void zf_app_log(struct zf_app *a, const char *type, const char *text)
{
    json_t *line = json_pack("{ss sI so*}", "type", type, "step", (json_int_t)a->h.step, "text", json_string(text));
    if (line) zf_history_take(&a->h, line);
    json_decref(line);
}

void zf_app_close_dialog(struct zf_app *a)
{
    free(a->dialog_title);
    free(a->dialog_text);
    free(a->dialog_command);
    a->dialog_title = a->dialog_text = a->dialog_command = NULL;
    free(a->offered);
    a->offered = NULL;
    a->dialog = ZF_DIALOG_NONE;
    a->dialog_scroll = 0;
    a->dirty = true;
}

void zf_app_show(struct zf_app *a, enum zf_dialog d, const char *title, const char *text)
{
    zf_app_close_dialog(a);
    a->dialog = d;
    a->dialog_title = strdup(title);
    a->dialog_text = strdup(text);
}

/* --- drawing --- */

/* Lines of text in `cols` columns; draws those from `first` on that fit. Returns how many there are. */
static size_t lines_of(struct zf_canvas *c, struct zf_rect r, size_t first, unsigned style, const char *text)
{
    size_t lines = 0, next;
    if (r.cols < 1) return 0;
    while (*text) {
        size_t n = zf_wrap(text, r.cols, &next);
        if (!next) break;
        if (c && lines >= first && lines - first < (size_t)r.rows) zf_piece(c, r, 0, (int)(lines - first), style, text, n);
        text += next;
        lines++;
    }
    return lines;
}

static const char *const waits_as[] = {
    [ZF_DIALOG_NONE] = "", [ZF_DIALOG_LEAVE] = "", [ZF_DIALOG_ASK] = "asks", [ZF_DIALOG_PAGER] = "has an answer", [ZF_DIALOG_NOTICE] = ""};

/* What was said last, or else what waits behind the line that is being typed. */
static void draw_message(struct zf_app *a)
{
    struct zf_rect m = a->layout.message;
    if (m.rows < 1) m = a->layout.header; /* a tiny terminal: better than nothing */
    enum zf_dialog waiting;
    char waits[200];
    const char *title = a->message ? NULL : zf_app_waits(a, &waiting), *text = a->message;
    unsigned style = a->message_style;
    if (title) {
        snprintf(waits, sizeof waits, "`%.100s` %s: seen when the line is empty (Enter, Esc, Ctrl-C)", title, waits_as[waiting]);
        text = waits;
        style = ZF_STYLE_WARN;
    }
    if (m.rows < 1 || !text || !*text) return;
    size_t lines = lines_of(NULL, m, 0, 0, text);
    int most = m.y + m.rows - 2; /* the header stays */
    if (most < m.rows) most = m.rows;
    int rows = lines > (size_t)most ? most : lines < (size_t)m.rows ? m.rows : (int)lines;
    struct zf_rect r = {m.x, m.y + m.rows - rows, m.cols, rows};
    zf_fill(&a->c, r, ' ', ZF_STYLE_TEXT);
    lines_of(&a->c, r, 0, style, text);
}

static const char *const dialog_notes[] = {
    [ZF_DIALOG_NONE] = "",
    [ZF_DIALOG_LEAVE] = "d detach  s stop  Esc stay",
    [ZF_DIALOG_ASK] = "y yes  n no",
    [ZF_DIALOG_PAGER] = "arrows scroll  Esc closes",
    [ZF_DIALOG_NOTICE] = "any key: look at the data",
};

/* A frame in the middle, as large as the text wants and the screen has. Too small for a frame: the text alone, at the bottom. */
static void draw_dialog(struct zf_app *a)
{
    struct zf_rect all = zf_canvas_all(&a->c);
    char more[64];
    int cols = a->dialog == ZF_DIALOG_PAGER ? 100 : 66, area = all.rows - 1;
    if (a->dialog == ZF_DIALOG_NONE || area < 1) return;
    if (cols > all.cols - 2) cols = all.cols - 2;
    if (cols < 10) cols = all.cols;
    const char *text = a->dialog_text ? a->dialog_text : "", *note = dialog_notes[a->dialog];
    size_t lines = lines_of(NULL, (struct zf_rect){0, 0, cols - 4, 0}, 0, 0, text);
    int rows = lines + 2 > (size_t)area ? area : (int)lines + 2;
    bool framed = rows >= 3 && cols >= 10;
    struct zf_rect r = {(all.cols - cols) / 2, (area - rows) / 2, cols, rows}, inside = r;
    zf_fill(&a->c, r, ' ', ZF_STYLE_TEXT);
    if (framed) {
        if (a->dialog_scroll + (size_t)rows - 2 < lines) {
            snprintf(more, sizeof more, "%s  more below", note);
            note = more;
        }
        inside = zf_frame(&a->c, r, true, a->dialog_title ? a->dialog_title : "", note);
        inside.x++;
        inside.cols -= 2;
    } else {
        lines = lines_of(NULL, inside, 0, 0, text);
    }
    size_t most = lines > (size_t)inside.rows ? lines - (size_t)inside.rows : 0;
    if (a->dialog_scroll > most) a->dialog_scroll = most;
    lines_of(&a->c, inside, a->dialog_scroll, ZF_STYLE_TEXT, text);
    if (!framed) zf_text(&a->c, a->layout.prompt, 0, 0, ZF_STYLE_KEY, note);
    a->c.cursor_x = a->c.cursor_y = -1;
}

void zf_app_words(struct zf_app *a)
{
    draw_message(a);
    draw_dialog(a);
}

/* --- keys --- */

static void scroll(struct zf_app *a, int by)
{
    size_t page = a->c.rows > 6 ? (size_t)a->c.rows - 5 : 1, n = (by < 0 ? -by : by) >= 10 ? page : 1;
    if (by < 0)
        a->dialog_scroll = a->dialog_scroll > n ? a->dialog_scroll - n : 0;
    else
        a->dialog_scroll += n; /* drawing holds it to the end */
    a->dirty = true;
}

static bool scrolls(struct zf_app *a, uint32_t key)
{
    static const struct {
        uint32_t key;
        int by;
    } rows[] = {{ZF_KEY_UP, -1},        {'k', -1}, {ZF_KEY_DOWN, 1},   {'j', 1},        {ZF_KEY_PAGE_UP, -10},
                {ZF_KEY_PAGE_DOWN, 10}, {' ', 10}, {ZF_KEY_HOME, -10}, {ZF_KEY_END, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].key == key) {
            scroll(a, rows[i].by);
            if (key == ZF_KEY_HOME) a->dialog_scroll = 0;
            if (key == ZF_KEY_END) a->dialog_scroll = 1 << 20;
            return true;
        }
    return false;
}

static bool stays(uint32_t key)
{
    return key == ZF_KEY_ESCAPE || key == 3 || key == 7; /* C-c, C-g */
}

static void leave_key(struct zf_app *a, uint32_t key)
{
    if (key == 'd') {
        zf_app_close_dialog(a);
        a->leave = true;
    } else if (key == 's' && !a->o->read_only) {
        zf_app_close_dialog(a);
        if (zf_app_send(a, "stop", true, ZF_FOR_PERSON)) a->leave_at_end = a->stopping = true;
    } else if (stays(key) || key == 'c' || key == 'n' || key == 'q') {
        zf_app_close_dialog(a);
    }
}

static void ask_key(struct zf_app *a, uint32_t key)
{
    if (key == 'y' || key == 'Y') {
        char *command = a->dialog_command;
        a->dialog_command = NULL;
        zf_app_close_dialog(a);
        if (command && command[0] == ':') /* our own */
            zf_app_command(a, command);
        else if (command)
            zf_app_send(a, command, true, ZF_FOR_PERSON);
        free(command);
    } else if (stays(key) || key == 'n' || key == 'N' || key == 'q') {
        zf_app_close_dialog(a);
        zf_app_say(a, ZF_STYLE_DIM, "not done");
    }
}

/* A letter that answers nothing, while a line may be typed, is the line's. */
static bool is_for_line(const struct zf_app *a, uint32_t key)
{
    bool letter = key > ' ' && key < ZF_KEY_NONE && key != 127;
    const char *answers = a->dialog == ZF_DIALOG_ASK ? "yYnNq" : "qjk";
    return a->offered && a->typing && letter && (key > 0x7f || !strchr(answers, (int)key));
}

bool zf_app_dialog_key(struct zf_app *a, uint32_t key)
{
    bool for_line = is_for_line(a, key);
    if ((zf_app_too_soon(a) || (for_line && a->dialog == ZF_DIALOG_ASK)) && zf_app_step_back(a)) return false;
    switch (a->dialog) {
    case ZF_DIALOG_NONE: return false;
    case ZF_DIALOG_LEAVE: leave_key(a, key); return true;
    case ZF_DIALOG_ASK:
        if (!scrolls(a, key)) ask_key(a, key);
        return true;
    case ZF_DIALOG_NOTICE:
    case ZF_DIALOG_PAGER:
        if (!scrolls(a, key)) zf_app_close_dialog(a);
        return !for_line;
    }
    return false;
}

/* --- the help, made from the tables --- */

char *zf_app_help(const struct zf_app *a)
{
    char *text = NULL;
    size_t size;
    bool known;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    for (size_t i = 0; i < zf_binding_count; i++)
        if (zf_bindings[i].name && zf_bindings[i].help) fprintf(to, "%-10s %s\n", zf_bindings[i].name, zf_bindings[i].help);
    fprintf(to, "\nIn the prompt: Tab completes, arrows and C-r find what was typed before, C-c clears, Esc leaves.\n");
    if (zf_replay_is(a->feed)) fprintf(to, "Of a recording: `.seek STEP`, `.seek +100`, `.seek 50%%`; `[` and `]` go back and forth.\n");
    char *commands = zf_command_help(NULL, &known);
    fprintf(to, "\n%s\n", commands ? commands : "");
    free(commands);
    if (!fclose(to)) return text;
    free(text);
    return NULL;
}
