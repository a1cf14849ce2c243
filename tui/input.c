/* What a person types: keys to commands or to the prompt, lines of the prompt to commands, and what the prompt wants to know. */
#include "tui/app_impl.h"
#include "tui/prompt.h"

#include "core/base/clock.h"
#include "core/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- hooks of the prompt --- */

static void typed_line(void *ctx, const char *text)
{
    struct zf_app *a = ctx;
    if (a->typing == ZF_TYPING_FILTER) {
        zf_app_filter(a, text);
        zf_app_typing(a, ZF_TYPING_NOTHING);
        return;
    }
    zf_app_command(a, text);
}

static void show_matches(void *ctx, char **list, size_t count)
{
    struct zf_app *a = ctx;
    char *text = NULL;
    size_t size;
    int widest = 0, cols = a->c.cols > 10 ? a->c.cols : 10, rows = a->c.rows > 9 ? a->c.rows / 3 : 1;
    for (size_t i = 0; i < count; i++) {
        int n = zf_text_width(list[i], SIZE_MAX);
        if (n > widest) widest = n;
    }
    if (widest > 40) widest = 40;
    int across = (cols + 2) / (widest + 2) > 0 ? (cols + 2) / (widest + 2) : 1;
    size_t most = (size_t)(across * rows), shown = count > most ? most - (most > 1) : count;
    FILE *to = open_memstream(&text, &size);
    if (!to) return;
    for (size_t i = 0; i < shown; i++) {
        bool last = (i + 1) % (size_t)across == 0 || i + 1 == count;
        int gap = widest - zf_text_width(list[i], SIZE_MAX);
        fprintf(to, "%s%*s", list[i], last ? 0 : gap > 0 ? gap + 2 : 2, "");
        if (last && i + 1 < count) putc('\n', to);
    }
    if (shown < count) fprintf(to, "and %zu more", count - shown);
    if (!fclose(to)) zf_app_say(a, ZF_STYLE_TEXT, "%s", text);
    free(text);
}

static void candidates(void *ctx, const char *line, size_t end, struct zf_candidates *out)
{
    struct zf_app *a = ctx;
    if (a->typing != ZF_TYPING_COMMAND) return;
    zf_complete(out, &a->h, line, end);
    if (out->saves) zf_complete_saves(out, a->o->run, line + out->start, end - out->start);
}

/* NULL: none. */
static char *history_file(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/') return zf_path_join(state, "zenflow/history");
    return home && home[0] == '/' ? zf_path_join(home, ".local/state/zenflow/history") : NULL;
}

bool zf_app_prompt(struct zf_app *a)
{
    struct zf_prompt_hooks hooks = {.ctx = a, .line = typed_line, .matches = show_matches, .complete = candidates};
    char *history = history_file();
    bool fine = zf_prompt_open(&hooks, history);
    free(history);
    return fine;
}

/* --- keys --- */

static void click(struct zf_app *a, const struct zf_key_event *k)
{
    if (a->dialog != ZF_DIALOG_NONE && (k->button == 64 || k->button == 65))
        zf_app_dialog_key(a, k->button == 64 ? ZF_KEY_UP : ZF_KEY_DOWN);
    if (a->dialog != ZF_DIALOG_NONE || k->button < 0) return;
    for (int i = 0; i < ZF_PANELS; i++) {
        struct zf_rect r = a->layout.panel[i];
        if (k->x < r.x || k->x >= r.x + r.cols || k->y < r.y || k->y >= r.y + r.rows) continue;
        a->v.focus = (enum zf_panel_id)i;
        bool list = zf_panel_table[i].scrolls != NULL;
        if (k->button == 64) zf_app_command(a, list ? ".move 0 -3" : ".span 0.5");
        if (k->button == 65) zf_app_command(a, list ? ".move 0 3" : ".span 2");
        a->dirty = true;
    }
}

/* Keys that mean the same whether a line is being typed or not. */
static bool always(struct zf_app *a, const struct zf_key_event *k)
{
    switch (k->key) {
    case 12: a->redraw = true; return true;  /* C-l */
    case 26: a->suspend = true; return true; /* C-z */
    case ZF_KEY_FOCUS: return true;
    case ZF_KEY_MOUSE: click(a, k); return true;
    default: return false;
    }
}

static void prompt_key(struct zf_app *a, const struct zf_key_event *k)
{
    bool leaves = (k->key == ZF_KEY_ESCAPE && !zf_prompt_takes_escape()) || k->key == 29; /* C-] */
    if (leaves) {
        zf_app_typing(a, ZF_TYPING_NOTHING);
    } else if (k->key == 3) {
        zf_prompt_clear();
    } else if (k->key == ZF_KEY_PAGE_UP || k->key == ZF_KEY_PAGE_DOWN || (k->key >= ZF_KEY_F1 && k->key <= ZF_KEY_F12)) {
        const struct zf_binding *b = zf_binding_of(k->key);
        if (b) zf_app_command(a, b->command);
    } else {
        zf_prompt_bytes(k->bytes, k->size);
    }
}

static void dashboard_key(struct zf_app *a, const struct zf_key_event *k)
{
    const struct zf_binding *b = zf_binding_of(k->key);
    if (b) {
        zf_app_command(a, b->command);
    } else if (k->key == 3) {
        zf_app_say(a, ZF_STYLE_TEXT, "Ctrl-C stops nothing here; `q` leaves, and asks whether the run shall go on");
    }
}

/* An Escape that another key followed at once looks as that key with Alt does. Where Alt means nothing it was the two. */
static bool two_keys(const struct zf_app *a, const struct zf_key_event *k)
{
    uint32_t plain = k->key & ~(uint32_t)ZF_KEY_ALT;
    if (!(k->key & ZF_KEY_ALT) || plain >= ZF_KEY_NONE || k->size < 2) return false;
    if (a->dialog != ZF_DIALOG_NONE) return true;
    if (a->typing) return !zf_prompt_takes_escape() && !zf_prompt_binds(k->bytes, k->size);
    return !zf_binding_of(k->key);
}

void zf_app_key(struct zf_app *a, const struct zf_key_event *k)
{
    a->key_at = zf_clock();
    if (k->key == ZF_KEY_PASTE_BEGIN) a->pasting = true;
    if (k->key == ZF_KEY_PASTE_BEGIN && a->typing) zf_app_step_back(a); /* text is an answer to nothing */
    if (a->pasting) {
        if (a->typing && a->dialog == ZF_DIALOG_NONE) zf_prompt_bytes(k->bytes, k->size);
        if (k->key == ZF_KEY_PASTE_END) a->pasting = false;
        return;
    }
    if (always(a, k) || k->key == ZF_KEY_PASTE_END) return;
    if (two_keys(a, k)) {
        zf_app_key(a, &(struct zf_key_event){.key = ZF_KEY_ESCAPE, .bytes = k->bytes, .size = 1});
        zf_app_key(a, &(struct zf_key_event){.key = k->key & ~(uint32_t)ZF_KEY_ALT, .bytes = k->bytes + 1, .size = k->size - 1});
        return;
    }
    zf_app_hush(a);
    if (zf_app_dialog_key(a, k->key)) return;
    if (a->typing)
        prompt_key(a, k);
    else
        dashboard_key(a, k);
}
