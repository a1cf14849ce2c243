/* What a line does: one of the prompt, or of a key (keys.def). Those of the table go to the trainer, or to own.c; those with a dot are what
 * only keys need, and are here. */
#include "tui/app_impl.h"
#include "tui/panels/parts.h"
#include "tui/prompt.h"
#include "tui/screen.h"

#include "core/session/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- dots --- */

static void prompt(struct zf_app *a, const char *args)
{
    zf_app_typing(a, ZF_TYPING_COMMAND);
    if (*args) zf_prompt_set(args);
}

static void filter(struct zf_app *a, const char *args)
{
    (void)args;
    if (!zf_panel_table[a->v.focus].filters) {
        zf_app_say(a, ZF_STYLE_WARN, "%s has no names to filter; channels, log and options have: their number, or Tab, then /",
                   zf_panel_table[a->v.focus].title);
        return;
    }
    zf_app_typing(a, ZF_TYPING_FILTER);
    zf_prompt_set(a->v.filter[a->v.focus]);
}

static void help(struct zf_app *a, const char *args)
{
    (void)args;
    char *text = zf_app_help(a);
    if (text) zf_app_show(a, ZF_DIALOG_PAGER, "keys and commands", text);
    free(text);
}

static void leave(struct zf_app *a, const char *args)
{
    (void)args;
    if (a->v.link != ZF_LINK_LIVE || a->v.read_only)
        a->leave = true;
    else
        zf_app_show(a, ZF_DIALOG_LEAVE, "leave",
                    a->stopping ? "The run is ending: it finishes its step and saves. The console waits for that.\n\n"
                                  "d  do not wait: leave now\nEsc  stay"
                                : "d  detach: leave the console; the run goes on\ns  stop the run: finish the step, save, end\nEsc  stay");
}

static void focus(struct zf_app *a, const char *args)
{
    int by = atoi(args) < 0 ? ZF_PANELS - 1 : 1, id = (int)a->v.focus;
    for (int i = 0; i < ZF_PANELS; i++) {
        id = (id + by) % ZF_PANELS;
        if (a->v.shown[id]) break;
    }
    if (!a->v.shown[id]) return;
    a->v.focus = (enum zf_panel_id)id;
    if (a->v.zoomed >= 0) a->v.zoomed = id;
}

static void next_smoothing(struct zf_app *a, const char *args)
{
    static const uint64_t steps[] = {0, 10, 30, 100};
    size_t i = 0;
    (void)args;
    while (i < 4 && steps[i] <= a->v.smooth) i++;
    a->v.smooth = steps[i % 4];
    if (a->v.smooth)
        zf_app_say(a, ZF_STYLE_TEXT, "smoothed over %llu steps", (unsigned long long)a->v.smooth);
    else
        zf_app_say(a, ZF_STYLE_TEXT, "not smoothed");
}

/* --- which steps --- */

static void whole(struct zf_view *v)
{
    v->from = v->to = v->tail = 0;
}

/* Around the cursor, the middle, or the newest step while that is followed: it stays where it is on the screen. */
static void span(struct zf_app *a, const char *args)
{
    struct zf_view *v = &a->v;
    uint64_t first, last, newest = a->h.step;
    double by = strtod(args, NULL);
    zf_view_steps(v, &first, &last);
    double shown = last >= first ? (double)(last - first) + 1 : 1, steps = fmax(2, floor(shown * by)), around = (double)last;
    if (newest < 2 || !(by > 0)) return;
    if (v->to) around = ((double)first + (double)last) / 2;
    if (v->cursor && v->cursor_step >= first && v->cursor_step <= last) around = (double)v->cursor_step;
    double from = fmax(1, round(around - (around - (double)first) * steps / shown));
    whole(v);
    if (steps >= (double)newest) return;
    if (from + steps - 1 >= (double)newest) {
        v->tail = (uint64_t)steps;
    } else {
        v->from = (uint64_t)from;
        v->to = (uint64_t)(from + steps - 1);
    }
}

static void seek(struct zf_app *a, const char *args);

static void pan(struct zf_app *a, const char *args)
{
    struct zf_view *v = &a->v;
    uint64_t first, last, newest = a->h.step;
    double by = strtod(args, NULL);
    char where[32];
    zf_view_steps(v, &first, &last);
    double shown = last >= first ? (double)(last - first) + 1 : 1, half = fmax(1, floor(shown / 2));
    if (zf_replay_is(a->feed)) {
        double jump = fmax(1, floor((v->tail || v->to ? shown : (double)(a->h.steps ? a->h.steps : newest)) / 20));
        snprintf(where, sizeof where, "%+.0f", by * jump);
        seek(a, where);
        return;
    }
    double from = (double)first + by * half;
    if (from + shown - 1 >= (double)newest) { /* the newest ones again */
        if (v->to) v->tail = (uint64_t)shown;
        v->from = v->to = 0;
        return;
    }
    v->from = (uint64_t)fmax(1, from);
    v->to = v->from + (uint64_t)shown - 1;
}

static void live(struct zf_app *a, const char *args)
{
    (void)args;
    whole(&a->v);
    a->v.scroll[ZF_PANEL_LOG] = 0;
    if (a->v.cursor) a->v.cursor_step = a->h.step;
}

static void cursor(struct zf_app *a, const char *args)
{
    uint64_t first, last;
    (void)args;
    a->v.cursor = !a->v.cursor;
    zf_view_steps(&a->v, &first, &last);
    if (a->v.cursor && (a->v.cursor_step < first || a->v.cursor_step > last)) a->v.cursor_step = last;
}

/* --- a recording --- */

static void follow_speed(struct zf_app *a)
{
    a->v.speed = zf_replay_speed_of(a->feed);
    if (a->v.speed > 0) a->speed = a->v.speed;
}

static bool is_recording(struct zf_app *a)
{
    if (zf_replay_is(a->feed)) return true;
    zf_app_say(a, ZF_STYLE_WARN, "this is no recording: `zenflow-console replay RUN` shows one");
    return false;
}

static void seek(struct zf_app *a, const char *args)
{
    struct zf_err e;
    char *end;
    args += strspn(args, " ");
    double steps = (double)(a->h.steps > a->h.step ? a->h.steps : a->h.step), x = strtod(args, &end), to = x;
    if (!is_recording(a)) return;
    if (args[0] == '+' || args[0] == '-') to = (double)a->h.step + x;
    if (*end == '%') to = steps * x / 100, end++;
    if (!strcmp(args, "end")) to = 9e15, end += 3;
    if (end == args || *end || !isfinite(to)) {
        zf_app_say(a, ZF_STYLE_BAD, "refused: `%s` is no place; `.seek 100`, `.seek +100`, `.seek 50%%` or `.seek end` is expected", args);
        return;
    }
    if (zf_replay_seek(a->feed, &a->h, (uint64_t)fmin(fmax(to, 0), 9e15), &e)) zf_app_say(a, ZF_STYLE_BAD, "%s", e.message);
    follow_speed(a);
}

static void speed(struct zf_app *a, const char *args)
{
    double by = strtod(args, NULL), now = zf_replay_is(a->feed) ? zf_replay_speed_of(a->feed) : 0;
    if (!is_recording(a)) return;
    if (!(now > 0)) now = a->speed > 0 ? a->speed : 1;
    now = isinf(now) ? (by < 1 ? 4096 : now) : now * by;
    if (now < 1.0 / 64) now = 1.0 / 64;
    if (now > 4096 && !isinf(now)) now = 4096;
    zf_replay_speed(a->feed, now);
    follow_speed(a);
    if (now == 1 || isinf(now))
        zf_app_say(a, ZF_STYLE_TEXT, "%s", now == 1 ? "as fast as it was" : "as fast as it can be read");
    else
        zf_app_say(a, ZF_STYLE_TEXT, "%g times as fast as it was", now);
}

static void pause_run(struct zf_app *a, const char *args)
{
    (void)args;
    if (!zf_replay_is(a->feed)) {
        zf_app_command(a, !strncmp(a->said, "paused", 6) ? "resume" : "pause");
        return;
    }
    zf_replay_speed(a->feed, zf_replay_speed_of(a->feed) > 0 ? 0 : a->speed > 0 ? a->speed : 1);
    follow_speed(a);
}

/* --- moving --- */

static void move_cursor(struct zf_app *a, long by)
{
    struct zf_view *v = &a->v;
    uint64_t first, last;
    zf_view_steps(v, &first, &last);
    int cols = a->layout.panel[v->focus].cols - 12;
    double steps = fmax(1, floor(((double)(last - first) + 1) / (cols > 1 ? cols : 1)));
    if (!v->cursor) cursor(a, "");
    v->cursor_step = (uint64_t)fmin(fmax((double)v->cursor_step + (double)by * steps, (double)first), (double)last);
}

static void scroll(struct zf_app *a, long by)
{
    struct zf_view *v = &a->v;
    uint64_t *at = v->focus == ZF_PANEL_CHANNELS ? &v->cursor_row : &v->scroll[v->focus];
    if (!zf_panel_table[v->focus].scrolls) return;
    if (v->focus == ZF_PANEL_LOG) by = -by; /* that is counted from its end */
    *at = by < 0 && *at < (uint64_t)-by ? 0 : *at + (uint64_t)by;
    uint64_t most = zf_panel_table[v->focus].scrolls(v, zf_panel_inside(a->layout.panel[v->focus]));
    if (*at > most) *at = most;
}

static void move(struct zf_app *a, const char *args)
{
    char *next;
    long dx = strtol(args, &next, 10), dy = strtol(next, NULL, 10);
    if (dx) move_cursor(a, dx);
    if (dy) scroll(a, dy);
}

/* A list by ten lines; the cursor of a plot by ten columns. */
static void page(struct zf_app *a, const char *args)
{
    long by = 10 * strtol(args, NULL, 10);
    if (zf_panel_table[a->v.focus].scrolls)
        scroll(a, by);
    else
        move_cursor(a, by);
}

/* What was written down at the cursor. */
static void notes_at(struct zf_app *a)
{
    char *text = NULL;
    size_t size;
    uint64_t first, last;
    zf_view_steps(&a->v, &first, &last);
    int cols = a->layout.panel[a->v.focus].cols - 12;
    uint64_t around = last >= first && cols > 0 ? (last - first) / (uint64_t)cols / 2 + 1 : 1;
    FILE *to = open_memstream(&text, &size);
    if (!to) return;
    for (size_t i = 0; i < a->h.notes.count; i++) {
        const struct zf_note *n = &a->h.notes.list[i];
        if (n->step + around < a->v.cursor_step || n->step > a->v.cursor_step + around) continue;
        fprintf(to, "%sstep %llu  %s: %s", ftell(to) ? "\n" : "", (unsigned long long)n->step, zf_note_names[n->kind],
                n->text ? n->text : "");
    }
    if (!fclose(to)) zf_app_say(a, ZF_STYLE_TEXT, "%s", size ? text : "nothing was written down there");
    free(text);
}

static void enter(struct zf_app *a, const char *args)
{
    struct zf_view *v = &a->v;
    (void)args;
    if (v->focus != ZF_PANEL_CHANNELS) {
        if (v->cursor) notes_at(a);
        return;
    }
    if (v->matrix != SIZE_MAX) {
        v->matrix = SIZE_MAX;
        zf_history_watch(&a->h, SIZE_MAX);
        return;
    }
    size_t matrix = zf_channels_matrix(v, v->cursor_row);
    if (matrix >= a->h.matrices) return;
    v->matrix = matrix;
    zf_history_watch(&a->h, matrix);
}

static void back(struct zf_app *a, const char *args)
{
    struct zf_view *v = &a->v;
    if (v->focus == ZF_PANEL_CHANNELS && v->matrix != SIZE_MAX)
        enter(a, args); /* as Enter does: to all matrices */
    else if (*v->filter[v->focus])
        zf_app_filter(a, "");
    else if (v->zoomed >= 0)
        v->zoomed = -1;
    else
        v->cursor = false;
}

static void mouse(struct zf_app *a, const char *args)
{
    (void)args;
    a->v.mouse = !a->v.mouse;
    zf_screen_mouse(a->v.mouse);
    zf_app_say(a, ZF_STYLE_TEXT,
               a->v.mouse ? "the mouse is the console's: click and wheel; with Shift the terminal selects text"
                          : "the mouse is the terminal's");
}

static void redraw(struct zf_app *a, const char *args)
{
    (void)args;
    a->redraw = true;
}

static void suspend(struct zf_app *a, const char *args)
{
    (void)args;
    a->suspend = true;
}

static const struct {
    const char *name;
    void (*run)(struct zf_app *a, const char *args);
} dots[] = {
    {".prompt", prompt}, {".filter", filter},  {".help", help},       {".leave", leave},   {".focus", focus}, {".smooth", next_smoothing},
    {".span", span},     {".pan", pan},        {".live", live},       {".cursor", cursor}, {".move", move},   {".page", page},
    {".enter", enter},   {".back", back},      {".pause", pause_run}, {".speed", speed},   {".seek", seek},   {".mouse", mouse},
    {".redraw", redraw}, {".suspend", suspend}};

static void run_dot(struct zf_app *a, const char *line)
{
    size_t n = strcspn(line, " ");
    const char *args = line + n + strspn(line + n, " ");
    a->dirty = true;
    for (size_t i = 0; i < sizeof dots / sizeof *dots; i++)
        if (strlen(dots[i].name) == n && !memcmp(dots[i].name, line, n)) {
            dots[i].run(a, args);
            return;
        }
    zf_app_say(a, ZF_STYLE_BAD, "refused: there is no `%.*s`; `?` shows what there is", n > 40 ? 40 : (int)n, line);
}

/* --- lines --- */

void zf_app_filter(struct zf_app *a, const char *text)
{
    char *filter = a->v.filter[a->v.focus];
    snprintf(filter, sizeof a->v.filter[0], "%s", text);
    size_t n = strlen(filter); /* a character may have been cut */
    while (n && strlen(text) > n && ((unsigned char)text[n] & 0xc0) == 0x80) filter[--n] = 0;
    if (a->v.focus == ZF_PANEL_CHANNELS) a->v.cursor_row = 0;
    a->v.scroll[a->v.focus] = 0;
    a->dirty = true;
}

void zf_app_typing(struct zf_app *a, enum zf_typing what)
{
    a->typing = what;
    zf_prompt_clear();
    zf_prompt_label(what == ZF_TYPING_FILTER ? "filter> " : "zf> ");
    a->dirty = true;
}

/* A relative path is relative to here; ~ is home, as in a shell. NULL: no memory. */
static char *with_whole_path(const struct zf_command *c, const char *line)
{
    const char *home = getenv("HOME");
    char name[32], *path = NULL;
    if (c->row->arguments != ZF_ARGS_PATH || !c->count) return strdup(line);
    snprintf(name, sizeof name, "%s%s", c->row->name, c->yes ? "!" : "");
    if (!strncmp(c->word[0], "~/", 2) && home && asprintf(&path, "%s/%s", home, c->word[0] + 2) < 0) return NULL;
    char *joined = zf_command_join((const char *const[]){name, path ? path : c->word[0]}, 2);
    free(path);
    return joined;
}

/* So is the path of what `at` puts off. */
static char *command_for_trainer(const struct zf_command *c, const char *line)
{
    struct zf_command later;
    struct zf_err ignored; /* the trainer's to refuse */
    char *text = NULL;
    if (c->row->arguments != ZF_ARGS_STEP_COMMAND || c->count < 2) return with_whole_path(c, line);
    char *rest = zf_command_parse(&later, c->word[1], &ignored) ? strdup(c->word[1]) : with_whole_path(&later, c->word[1]);
    if (rest && asprintf(&text, "%s %s %s", c->row->name, c->word[0], rest) < 0) text = NULL;
    free(rest);
    zf_command_free(&later);
    return text;
}

/* A matrix by its name, in full, as Enter does in its panel; "none": no more. Another name is the trainer's to refuse. */
static void look_at(struct zf_app *a, const char *name)
{
    size_t matrix = 0;
    while (matrix < a->h.matrices && strcmp(a->h.matrix[matrix].name, name)) matrix++;
    if (matrix == a->h.matrices && strcmp(name, "none")) return;
    a->watched = a->v.matrix = matrix < a->h.matrices ? matrix : SIZE_MAX;
    zf_history_watch(&a->h, a->v.matrix);
    if (matrix < a->h.matrices) a->v.shown[ZF_PANEL_CHANNELS] = true;
}

static void to_trainer(struct zf_app *a, const struct zf_command *c, const char *line)
{
    if (a->v.read_only && c->row->who == ZF_WHO_TRAINER && c->row->effect != ZF_EFFECT_NOTHING) {
        zf_app_say(a, ZF_STYLE_WARN, "refused: this console only reads (--read-only), and `%s` would change something", c->row->name);
        return;
    }
    if (c->id == ZF_CMD_watch) look_at(a, c->word[0]);
    char *command = command_for_trainer(c, line);
    if (command && zf_app_send(a, command, false, ZF_FOR_PERSON) && c->id == ZF_CMD_stop) a->stopping = true;
    free(command);
}

static void tell_help(struct zf_app *a, const char *topic)
{
    bool known;
    char *text = zf_command_help(topic, &known);
    if (text && known)
        zf_app_show(a, ZF_DIALOG_PAGER, topic, text);
    else if (text)
        zf_app_say(a, ZF_STYLE_BAD, "refused: %s", text);
    free(text);
}

void zf_app_command(struct zf_app *a, const char *line)
{
    static const char *const habits[][2] = {{"q", ".leave"}, {"quit", ".leave"}, {"exit", ".leave"}, {"?", ".help"}};
    struct zf_command c;
    struct zf_err e = {0};
    line += strspn(line, " \t:");
    size_t n = strlen(line);
    while (n && strchr(" \t\r\n", line[n - 1])) n--;
    char *trimmed = strndup(line, n);
    if (!trimmed || !n) {
        free(trimmed);
        return;
    }
    a->dirty = true;
    const char *dot = trimmed[0] == '.' ? trimmed : NULL;
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (!strcmp(trimmed, habits[i][0])) dot = habits[i][1];
    if (dot) {
        run_dot(a, dot);
        free(trimmed);
        return;
    }
    enum zf_status s = zf_command_parse(&c, trimmed, &e);
    if (!s && c.id == ZF_CMD_help && c.count)
        tell_help(a, c.word[0]);
    else if (!s && c.id == ZF_CMD_help)
        help(a, "");
    else if (!s && c.row->who == ZF_WHO_CONSOLE)
        s = zf_app_own(a, &c, &e);
    else if (!s)
        to_trainer(a, &c, trimmed);
    if (s) zf_app_say(a, ZF_STYLE_BAD, "refused: %s%s%s", e.where, e.where[0] ? ": " : "", e.message);
    zf_command_free(&c);
    free(trimmed);
}
