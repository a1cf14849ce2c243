/* See complete.h. A line is read the way core/session/commands.c reads it: up to the word that is being typed; what that word may be is a
 * list from a table. Pure but for memory; what cannot be had for lack of it is left out. */
#include "tui/complete.h"

#include "core/session/commands.h"
#include "tui/theme.h"
#include "tui/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word that is being typed. */
struct typed {
    struct zf_candidates *out;
    const struct zf_history *h;
    const char *text;
    size_t size;
};

static void add_all(struct typed *t, const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    if (n + m < t->size || strncmp(text, t->text, n < t->size ? n : t->size) != 0) return;
    if (n < t->size && strncmp(ending, t->text + n, t->size - n) != 0) return;
    char *whole;
    if (asprintf(&whole, "%s%s", text, ending) >= 0) zf_candidates_add(t->out, whole);
}

static void add(struct typed *t, const char *text)
{
    add_all(t, text, "");
}

static void add_names(struct typed *t, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) add(t, names[i]);
}

void zf_candidates_add(struct zf_candidates *c, char *word)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 32;
        char **list = reallocarray(c->list, room, sizeof *list);
        if (!list) {
            free(word);
            return;
        }
        c->list = list;
        c->room = room;
    }
    c->list[c->count++] = word;
}

void zf_candidates_free(struct zf_candidates *c)
{
    for (size_t i = 0; i < c->count; i++) free(c->list[i]);
    free(c->list);
    *c = (struct zf_candidates){0};
}

/* Words: as the parser of commands cuts them. */
static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

struct words {
    const char *line;
    size_t at, end;
};

/* The next whole word; false: what is left is the word that is being typed, and `at` is where it begins. */
static bool next_word(struct words *w, const char **word, size_t *size)
{
    size_t i = w->at;
    while (i < w->end && blank(w->line[i])) i++;
    w->at = i;
    if (i < w->end && w->line[i] == '"')
        for (i++; i < w->end && w->line[i] != '"'; i++) i += w->line[i] == '\\' && i + 1 < w->end;
    while (i < w->end && !blank(w->line[i])) i++;
    if (i >= w->end) return false;
    *word = w->line + w->at;
    *size = i - w->at;
    w->at = i;
    return true;
}

static struct typed typed_at(struct zf_candidates *out, const struct zf_history *h, const struct words *w, size_t start)
{
    out->start = start;
    return (struct typed){out, h, w->line + start, w->end - start};
}

static const struct zf_option *option_named(const char *name, size_t size)
{
    char buffer[64];
    if (size >= sizeof buffer) return NULL;
    memcpy(buffer, name, size);
    buffer[size] = 0;
    return zf_option_find(buffer);
}

static void add_options(struct typed *t, bool live, const bool *given)
{
    for (size_t i = 0; i < ZF_OPTIONS; i++)
        if (!(live && zf_option_table[i].when == ZF_WHEN_RESTART) && !(given && given[i])) add(t, zf_option_table[i].name);
}

/* What a value may be: words of the table, what it is now (to be edited), `default`. */
static void add_values(struct typed *t, const struct zf_option *o)
{
    static const char *const switches[] = {"yes", "no"};
    char now[256] = "";
    if (!o) return;
    if (o->type == ZF_TYPE_BOOL) add_names(t, switches, 2);
    add_names(t, o->choices, o->choice_count);
    if (t->h) zf_history_option(t->h, o->name, now, sizeof now);
    bool listed = !now[0] || strpbrk(now, " \t\"") || !strcmp(now, "default");
    for (size_t i = 0; i < t->out->count; i++) listed |= !strcmp(t->out->list[i], now);
    if (!listed) add(t, now);
    add(t, "default");
}

/* NAME VALUE, NAME=VALUE, NAME = VALUE, in turn. */
static void complete_pairs(struct zf_candidates *out, const struct zf_history *h, struct words *w)
{
    bool given[ZF_OPTIONS] = {0}, value = false;
    const struct zf_option *o = NULL;
    const char *word, *equals;
    size_t size;
    while (next_word(w, &word, &size)) {
        if (value) {
            value = size == 1 && *word == '=';
            continue;
        }
        equals = *word == '"' ? NULL : memchr(word, '=', size);
        o = option_named(word, equals ? (size_t)(equals - word) : size);
        if (o) given[zf_option_id(o)] = true;
        value = !equals || equals + 1 == word + size;
    }
    struct typed t = typed_at(out, h, w, w->at);
    if (!value && (equals = memchr(t.text, '=', t.size))) {
        o = option_named(t.text, (size_t)(equals - t.text));
        t = typed_at(out, h, w, (size_t)(equals + 1 - w->line));
        value = true;
    }
    if (value)
        add_values(&t, o);
    else
        add_options(&t, true, given);
}

/* Names that stand as one word, and do no harm where they are shown. */
static bool is_plain_name(const char *name)
{
    return *name && !strpbrk(name, " \"") && zf_is_text(name);
}

/* A file in one of the forms a panel may have; no name yet: the panel's. */
static void complete_write(struct zf_candidates *out, const struct zf_history *h, struct words *w)
{
    static const char *const endings[] = {".csv", ".npy", ".svg", ".txt"};
    const char *panel;
    char stem[256];
    size_t size;
    if (!next_word(w, &panel, &size)) {
        struct typed t = typed_at(out, h, w, w->at);
        add_names(&t, zf_panel_words, ZF_PANELS);
        return;
    }
    while (w->at < w->end && blank(w->line[w->at])) w->at++;
    struct typed t = typed_at(out, h, w, w->at);
    out->files = true;
    bool folder = !t.size || t.text[t.size - 1] == '/';
    const char *slash = memrchr(t.text, '/', t.size), *dot = memrchr(t.text, '.', t.size);
    size_t begun = dot && dot > t.text && (!slash || dot > slash + 1) ? (size_t)(dot - t.text) : t.size;
    if (begun + (folder ? size : 0) >= sizeof stem) return;
    memcpy(stem, t.text, begun);
    if (folder) memcpy(stem + begun, panel, size);
    stem[begun + (folder ? size : 0)] = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) add_all(&t, stem, endings[i]);
}

/* The one word of the console's own commands. */
static void complete_name(struct typed *t, const struct zf_command_row *row)
{
    static const char *const steps[] = {"0", "10", "30", "100"}, *const scales[] = {"log", "linear", "fixed", "relative"};
    static const struct {
        const char *command;
        const char *const *names;
        size_t count;
    } rows[] = {
        {"panel", zf_panel_words, ZF_PANELS},   {"zoom", zf_panel_words, ZF_PANELS},      {"smooth", steps, 4}, {"scale", scales, 4},
        {"theme", zf_scheme_names, ZF_SCHEMES}, {"glyphs", zf_glyph_names, ZF_GLYPH_SETS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(row->name, rows[i].command)) add_names(t, rows[i].names, rows[i].count);
    if (!strcmp(row->name, "panel")) add(t, "all");
}

/* The rest of the line is a path; one in quotes begins after them. `load` takes a name as well. */
static void complete_path(struct zf_candidates *out, const struct zf_history *h, struct words *w, bool load)
{
    while (w->at < w->end && blank(w->line[w->at])) w->at++;
    bool quoted = w->at < w->end && w->line[w->at] == '"';
    struct typed t = typed_at(out, h, w, w->at + quoted);
    out->saves = load && !memchr(t.text, '/', t.size) && (!t.size || (t.text[0] != '~' && t.text[0] != '.'));
    out->files = !out->saves;
}

static void add_commands(struct typed *t)
{
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        add(t, zf_command_table[i].name);
        if (zf_command_table[i].alias[0]) add(t, zf_command_table[i].alias);
    }
    if (!t->size || t->text[t->size - 1] != '!') return;
    for (size_t i = 0; i < ZF_COMMANDS; i++)
        if (zf_command_table[i].asks != ZF_ASKS_NEVER) add_all(t, zf_command_table[i].name, "!");
}

static void complete_one_word(struct typed *t, const struct zf_command_row *row)
{
    char word[64];
    switch (row->arguments) {
    case ZF_ARGS_PATTERN: add_options(t, false, NULL); break;
    case ZF_ARGS_NAME: complete_name(t, row); break;
    case ZF_ARGS_SWITCH:
        snprintf(word, sizeof word, "%.*s", (int)strlen(row->usage) - 2, row->usage + 1);
        add(t, word);
        break;
    case ZF_ARGS_MATRIX:
        for (size_t i = 0; t->h && i < t->h->matrices; i++)
            if (t->h->matrix[i].name && is_plain_name(t->h->matrix[i].name)) add(t, t->h->matrix[i].name);
        break;
    case ZF_ARGS_TOPIC:
        add_commands(t);
        add_options(t, false, NULL);
        break;
    default: break;
    }
}

static const struct zf_command_row *command_named(const char *word, size_t size)
{
    char name[64];
    size_t n = size > 1 && word[size - 1] == '!' ? size - 1 : size;
    if (n >= sizeof name) return NULL;
    memcpy(name, word, n);
    name[n] = 0;
    return zf_command_find(name);
}

static void complete_arguments(struct zf_candidates *out, const struct zf_history *h, struct words *w, const struct zf_command_row *row)
{
    const char *word;
    size_t size;
    if (row->arguments == ZF_ARGS_PAIRS) {
        complete_pairs(out, h, w);
    } else if (row->arguments == ZF_ARGS_PATH) {
        complete_path(out, h, w, !strcmp(row->name, "load"));
    } else if (row->arguments == ZF_ARGS_PANEL_FILE) {
        complete_write(out, h, w);
    } else if (row->arguments == ZF_ARGS_TEXT) {
        return;
    } else if (!next_word(w, &word, &size)) {
        struct typed t = typed_at(out, h, w, w->at);
        complete_one_word(&t, row);
    }
}

void zf_complete(struct zf_candidates *out, const struct zf_history *h, const char *line, size_t end)
{
    struct words w = {line, 0, strnlen(line, end)};
    const struct zf_command_row *row;
    const char *word;
    size_t size;
    *out = (struct zf_candidates){.start = w.end};
    while (w.at < w.end && blank(line[w.at])) w.at++;
    w.at += w.at < w.end && line[w.at] == ':';
    for (;;) { /* a turn an `at STEP` */
        if (!next_word(&w, &word, &size)) {
            struct typed t = typed_at(out, h, &w, w.at);
            add_commands(&t);
            return;
        }
        if (!(row = command_named(word, size))) return;
        if (row->arguments != ZF_ARGS_STEP_COMMAND) break;
        if (!next_word(&w, &word, &size)) return;
    }
    complete_arguments(out, h, &w, row);
}
