/* The console's own commands: they change the view, and nothing else. */
#include "tui/app_impl.h"

#include "core/base/file.h"
#include "core/session/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int zf_app_panel(const char *name)
{
    if (name[0] >= '1' && name[0] < '1' + ZF_PANELS && !name[1]) return name[0] - '1';
    size_t i = zf_name_index(name, zf_panel_words, ZF_PANELS);
    return i < ZF_PANELS ? (int)i : -1;
}

/* The names of something, as a refusal shows them. */
static enum zf_status unknown(const char *what, const char *name, const char *const *names, size_t count, struct zf_err *e)
{
    char list[256] = "";
    for (size_t i = 0; i < count; i++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    const char *near = zf_nearest(name, names, count);
    return zf_fail(e, ZF_USAGE, NULL, "there is no %s `%s`; %s%s%s%s are there", what, name, near ? "the nearest is " : "",
                   near ? near : "", near ? "; " : "", list);
}

static enum zf_status find_panel(const struct zf_command *c, int *panel, struct zf_err *e)
{
    *panel = zf_app_panel(c->word[0]);
    return *panel >= 0 ? ZF_OK : unknown("panel", c->word[0], zf_panel_words, ZF_PANELS, e);
}

static void focus_on_something(struct zf_view *v)
{
    for (int i = 0; i < ZF_PANELS && !v->shown[v->focus]; i++)
        if (v->shown[i]) v->focus = (enum zf_panel_id)i;
}

/* Shown, but not on the screen: there was no room. */
static bool has_no_place(const struct zf_app *a, int id)
{
    struct zf_layout l = zf_layout_of(&a->v, a->c.cols, a->c.rows, ZF_MESSAGE_ROWS);
    return a->c.cols && a->v.shown[id] && a->v.zoomed < 0 && !l.panel[id].rows;
}

static enum zf_status panel(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    struct zf_view fresh;
    int id;
    if (!c->count) {
        char list[256] = "";
        for (int i = 0; i < ZF_PANELS; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d %s%s", i ? "  " : "", i + 1, zf_panel_words[i],
                     a->v.shown[i] ? "" : " (hidden)");
        zf_app_say(a, ZF_STYLE_TEXT, "%s", list);
        return ZF_OK;
    }
    if (!strcmp(c->word[0], "all")) {
        zf_view_init(&fresh, &a->h);
        memcpy(a->v.shown, fresh.shown, sizeof fresh.shown);
        a->v.focus = fresh.focus;
        a->v.zoomed = -1;
        return ZF_OK;
    }
    ZF_TRY(find_panel(c, &id, e));
    if (has_no_place(a, id)) { /* it is to be seen: what is in focus has a place */
        a->v.focus = (enum zf_panel_id)id;
        return ZF_OK;
    }
    if (a->v.zoomed >= 0 && a->v.zoomed != id) { /* another one in its place: what is zoomed stays so */
        a->v.shown[id] = true;
        a->v.zoomed = id;
        a->v.focus = (enum zf_panel_id)id;
        return ZF_OK;
    }
    a->v.shown[id] = !a->v.shown[id];
    if (a->v.shown[id])
        a->v.focus = (enum zf_panel_id)id;
    else if (a->v.zoomed == id)
        a->v.zoomed = -1;
    focus_on_something(&a->v);
    return ZF_OK;
}

static enum zf_status zoom(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    int id = (int)a->v.focus;
    if (c->count) ZF_TRY(find_panel(c, &id, e));
    a->v.zoomed = a->v.zoomed == id || (!c->count && a->v.zoomed >= 0) ? -1 : id;
    a->v.focus = (enum zf_panel_id)id;
    a->v.shown[id] = true;
    return ZF_OK;
}

static enum zf_status smooth(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    char *end = NULL;
    const char *word = c->count ? c->word[0] : "";
    double n = strtod(word, &end);
    if (!c->count) {
        zf_app_command(a, ".smooth");
        return ZF_OK;
    }
    if (!strcmp(word, "none") || !strcmp(word, "off"))
        n = 0;
    else if (*end || !(n >= 0 && n <= 1e9) || n != floor(n))
        return zf_fail(e, ZF_USAGE, NULL, "`%s` is no number of steps; 0 (none) to 1000000000 is expected", word);
    a->v.smooth = (uint64_t)n;
    return ZF_OK;
}

static enum zf_status scale(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    static const char *const words[] = {"log", "linear", "fixed", "relative"};
    enum { LOG, LINEAR, FIXED, SCALES = sizeof words / sizeof *words };
    if (!c->count) {
        if (a->v.focus == ZF_PANEL_CHANNELS)
            a->v.fixed_scale = !a->v.fixed_scale;
        else
            a->v.log_scale = !a->v.log_scale;
        return ZF_OK;
    }
    const char *word = !strcmp(c->word[0], "lin") ? "linear" : c->word[0];
    size_t i = zf_name_index(word, words, SCALES);
    if (i == SCALES) return unknown("scale", word, words, SCALES, e);
    if (i <= LINEAR)
        a->v.log_scale = i == LOG;
    else
        a->v.fixed_scale = i == FIXED;
    return ZF_OK;
}

/* The one named, or the next. */
static enum zf_status choose(const struct zf_command *c, const char *what, const char *const *names, size_t count, unsigned *at,
                             struct zf_err *e)
{
    if (!c->count) {
        *at = (*at + 1) % (unsigned)count;
        return ZF_OK;
    }
    size_t i = zf_name_index(c->word[0], names, count);
    if (i == count) return unknown(what, c->word[0], names, count, e);
    *at = (unsigned)i;
    return ZF_OK;
}

static enum zf_status theme(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    unsigned at = a->v.scheme;
    ZF_TRY(choose(c, "theme", zf_scheme_names, ZF_SCHEMES, &at, e));
    a->v.scheme = (enum zf_scheme)at;
    zf_app_say(a, ZF_STYLE_TEXT, "theme %s%s", zf_scheme_names[at],
               a->colours || at == ZF_SCHEME_MONO ? "" : ", where there are colours: NO_COLOR is set, or this terminal has none");
    return ZF_OK;
}

static enum zf_status glyphs(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    unsigned at = a->v.glyphs;
    ZF_TRY(choose(c, "set of glyphs", zf_glyph_names, ZF_GLYPH_SETS, &at, e));
    a->v.glyphs = (enum zf_glyphs)at;
    zf_app_say(a, ZF_STYLE_TEXT, "glyphs %s", zf_glyph_names[at]);
    return ZF_OK;
}

/* Asked for once more, with a yes. */
static void ask_to_replace(struct zf_app *a, const struct zf_command *c, const char *path, bool link)
{
    char *question = NULL, *own = NULL, *command = zf_command_join((const char *const[]){"write!", c->word[0], c->word[1]}, 3);
    if (command && asprintf(&own, ":%s", command) < 0) own = NULL;
    if (own && asprintf(&question, "%s is there already%s. Replace it?", path, link ? ", a link: what it leads to stays as it is" : "") < 0)
        question = NULL;
    if (question) zf_app_offer(a, ZF_DIALOG_ASK, "write", question, own);
    free(command);
    free(own);
    free(question);
}

/* What is there is replaced only if that was asked for. */
static enum zf_status write_file(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    const char *home = getenv("HOME"), *file = c->count > 1 ? c->word[1] : NULL;
    int id;
    ZF_TRY(find_panel(c, &id, e));
    if (!file)
        return zf_fail(e, ZF_USAGE, NULL, "the file is missing; `write PANEL FILE` is expected, FILE ending in .csv, .npy, .svg or .txt");
    char *path = !strncmp(file, "~/", 2) && home ? zf_path_join(home, file + 2) : strdup(file);
    enum zf_status s = path ? ZF_OK : zf_fail_memory(e, file);
    struct stat st;
    bool there = !s && !lstat(path, &st), link = there && S_ISLNK(st.st_mode);
    if (there && !link && !S_ISREG(st.st_mode)) {
        s = zf_fail(e, ZF_USAGE, path, "it is there and no file%s; another name is expected",
                    S_ISDIR(st.st_mode) ? ", but a directory" : "");
    } else if (there && !c->yes) {
        ask_to_replace(a, c, path, link);
    } else if (!s) {
        s = zf_write_panel(&a->v, (enum zf_panel_id)id, path, e);
        if (!s) zf_app_say(a, ZF_STYLE_GOOD, "%s: written, as %s shows it", path, zf_panel_words[id]);
    }
    free(path);
    return s;
}

enum zf_status zf_app_own(struct zf_app *a, const struct zf_command *c, struct zf_err *e)
{
    a->dirty = true;
    switch (c->id) {
    case ZF_CMD_detach: a->leave = true; return ZF_OK;
    case ZF_CMD_panel: return panel(a, c, e);
    case ZF_CMD_zoom: return zoom(a, c, e);
    case ZF_CMD_smooth: return smooth(a, c, e);
    case ZF_CMD_scale: return scale(a, c, e);
    case ZF_CMD_theme: return theme(a, c, e);
    case ZF_CMD_glyphs: return glyphs(a, c, e);
    case ZF_CMD_write: return write_file(a, c, e);
    default: return zf_fail(e, ZF_USAGE, c->row->name, "the console does not know this one");
    }
}
