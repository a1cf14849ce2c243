/* See commands.h. */
#include "core/session/commands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct zf_command_row zf_command_table[ZF_COMMANDS] = {
#define ZF_COMMAND(name, alias, usage, arguments, least, who, effect, allowed, asks, without, sentence) \
    {#name,          alias,   usage,   ZF_ARGS_##arguments, least, ZF_WHO_##who, ZF_EFFECT_##effect, ZF_ALLOWED_##allowed, \
     ZF_ASKS_##asks, without, sentence},
#include "core/session/commands.def"
#undef ZF_COMMAND
};

static const char *const argument_names[] = {"none", "pairs",        "pattern", "count", "name",       "path",
                                             "text", "step command", "matrix",  "topic", "panel file", "switch"};
static const char *const who_names[] = {"at once", "between steps", "the console"};
static const char *const effect_names[] = {"nothing", "options",          "whether steps are taken", "what is trained",
                                           "files",   "what is recorded", "what will be done"};

const struct zf_command_row *zf_command_find(const char *name)
{
    for (size_t i = 0; i < ZF_COMMANDS; i++)
        if (!strcmp(name, zf_command_table[i].name) || (zf_command_table[i].alias[0] && !strcmp(name, zf_command_table[i].alias)))
            return &zf_command_table[i];
    return NULL;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Cuts the next word out of *at; a "quoted string" is one word and keeps its quotes. NULL: nothing is left. */
static char *next_word(char **at)
{
    char *s = *at;
    while (blank(*s)) s++;
    if (!*s) return NULL;
    char *word = s;
    if (*s == '"')
        for (s++; *s && *s != '"'; s++) s += *s == '\\' && s[1];
    while (*s && !blank(*s)) s++;
    *at = *s ? s + 1 : s;
    *s = 0;
    return word;
}

/* The rest of the line without blanks at its ends; NULL: nothing is left. */
static char *rest_of(char *at)
{
    while (blank(*at)) at++;
    size_t n = strlen(at);
    while (n && blank(at[n - 1])) n--;
    at[n] = 0;
    return n ? at : NULL;
}

static enum zf_status usage(const struct zf_command *c, struct zf_err *e, const char *what)
{
    return zf_fail(e, ZF_USAGE, c->row->name, "%s; `%s%s%s` is expected", what, c->row->name, c->row->usage[0] ? " " : "", c->row->usage);
}

static enum zf_status add(struct zf_command *c, const char *word, struct zf_err *e)
{
    if (c->count == ZF_COMMAND_WORDS) return usage(c, e, "too many words");
    c->word[c->count++] = word;
    return ZF_OK;
}

/* NAME VALUE, NAME=VALUE, NAME = VALUE */
static enum zf_status read_pairs(struct zf_command *c, char *at, struct zf_err *e)
{
    char *word;
    while ((word = next_word(&at))) {
        char *equals = c->count % 2 || *word == '"' ? NULL : strchr(word, '=');
        if (c->count % 2 && word[0] == '=' && !word[1]) continue; /* NAME = VALUE */
        if (equals && equals > word && equals[1]) {
            *equals = 0;
            ZF_TRY(add(c, word, e));
            word = equals + 1;
        } else if (equals && equals > word) {
            *equals = 0; /* NAME= VALUE */
        }
        ZF_TRY(add(c, word, e));
    }
    if (c->count % 2)
        return usage(c, e, c->count > 1 ? "a name without a value (a value with blanks needs quotes)" : "the value is missing");
    return ZF_OK;
}

static enum zf_status read_number(struct zf_command *c, const char *word, struct zf_err *e)
{
    size_t n = strspn(word, "0123456789");
    c->number = n && !word[n] && n < 19 ? strtoull(word, NULL, 10) : 0;
    return c->number ? ZF_OK : usage(c, e, "the number is none, or not 1 or more");
}

/* A path or name in quotes stands for what is in them; there \" is a quote and \\ a backslash, as put_word writes them. word: NULL is none.
 */
static enum zf_status add_unquoted(struct zf_command *c, char *word, struct zf_err *e)
{
    if (!word) return ZF_OK;
    if (word[0] != '"') return add(c, word, e);
    char *from = word + 1, *to = word;
    for (; *from && *from != '"'; from++) {
        from += from[0] == '\\' && (from[1] == '"' || from[1] == '\\');
        *to++ = *from;
    }
    if (from[0] != '"' || from[1]) return usage(c, e, "a quote that is not closed at the end");
    *to = 0;
    return add(c, word, e);
}

static enum zf_status read_arguments(struct zf_command *c, char *at, struct zf_err *e)
{
    char *word = NULL;
    c->number = 1;
    switch (c->row->arguments) {
    case ZF_ARGS_PAIRS: ZF_TRY(read_pairs(c, at, e)); break;
    case ZF_ARGS_PATH: ZF_TRY(add_unquoted(c, rest_of(at), e)); break;
    case ZF_ARGS_TEXT:
        if ((word = rest_of(at))) ZF_TRY(add(c, word, e));
        break;
    case ZF_ARGS_PANEL_FILE:
        ZF_TRY(add_unquoted(c, next_word(&at), e));
        word = rest_of(at);
        if (word && word[0] != '"' && word[strcspn(word, " \t")]) return usage(c, e, "too many words (a name with blanks needs quotes)");
        ZF_TRY(add_unquoted(c, word, e));
        break;
    case ZF_ARGS_STEP_COMMAND:
        if ((word = next_word(&at))) {
            ZF_TRY(read_number(c, word, e));
            ZF_TRY(add(c, word, e));
            if ((word = rest_of(at))) ZF_TRY(add(c, word, e));
        }
        break;
    case ZF_ARGS_SWITCH:
        while ((word = next_word(&at))) {
            size_t n = strlen(c->row->usage) - 2; /* [--word] */
            if (strlen(word) != n || strncmp(c->row->usage + 1, word, n) != 0) return usage(c, e, "a word that it does not know");
            ZF_TRY(add(c, word, e));
        }
        return c->count > 1 ? usage(c, e, "too many words") : ZF_OK;
    default:
        while ((word = next_word(&at))) ZF_TRY(add_unquoted(c, word, e));
        if (c->count > (c->row->arguments != ZF_ARGS_NONE)) return usage(c, e, "too many words");
        if (c->row->arguments == ZF_ARGS_COUNT && c->count) ZF_TRY(read_number(c, c->word[0], e));
        break;
    }
    return c->count < c->row->least ? usage(c, e, "something is missing") : ZF_OK;
}

static enum zf_status unknown(const char *name, struct zf_err *e)
{
    const char *names[2 * ZF_COMMANDS];
    size_t n = 0;
    char shown[48];
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        names[n++] = zf_command_table[i].name;
        if (zf_command_table[i].alias[0]) names[n++] = zf_command_table[i].alias;
    }
    const char *near = zf_nearest(name, names, n);
    snprintf(shown, sizeof shown, "%.40s", name);
    for (size_t i = strlen(shown); i && (shown[i - 1] & 0xc0) == 0x80; i--) shown[i - 1] = '?'; /* a character may have been cut */
    if (near) return zf_fail(e, ZF_USAGE, shown, "there is no such command; the nearest is `%s`; `help` lists all", near);
    if (zf_option_find(name))
        return zf_fail(e, ZF_USAGE, shown, "it is an option, no command; `set %s VALUE` changes it, `show %s` shows it", name, name);
    return zf_fail(e, ZF_USAGE, shown, "there is no such command; `help` lists all");
}

/* One line of text, in UTF-8. */
static bool is_line(const char *line)
{
    for (const char *s = line; *s; s++)
        if (((unsigned char)*s < ' ' && *s != '\t') || *s == 127) return false;
    json_t *text = json_string(line);
    json_decref(text);
    return text != NULL;
}

enum zf_status zf_command_parse(struct zf_command *c, const char *line, struct zf_err *e)
{
    c->row = NULL;
    c->yes = false;
    c->count = 0;
    c->number = c->client = 0;
    if (!(c->storage = strdup(line))) return zf_fail_memory(e, "a command");
    if (!is_line(line))
        return zf_fail(e, ZF_USAGE, NULL, "it is no line of text; one command in UTF-8, without control characters, is expected");
    char *at = c->storage, *name;
    while (blank(*at)) at++;
    if (*at == ':') at++; /* the key that opens the prompt */
    if (!(name = next_word(&at))) return zf_fail(e, ZF_USAGE, NULL, "there is no command; `help` lists all");
    size_t n = strlen(name);
    c->yes = n > 1 && name[n - 1] == '!';
    if (c->yes) name[n - 1] = 0;
    if (!(c->row = zf_command_find(name))) return unknown(name, e);
    c->id = (enum zf_command_id)(c->row - zf_command_table);
    if (c->yes && c->row->asks == ZF_ASKS_NEVER) return usage(c, e, "it never asks, so there is no form with `!`");
    return read_arguments(c, at, e);
}

void zf_command_free(struct zf_command *c)
{
    free(c->storage);
    c->storage = NULL;
}

enum quoting { AS_IT_IS, VALUES, WORDS }; /* VALUES: value texts, which have quotes of their own where they need them */

/* Words that belong together as a value text does: `"two words"`. */
static void put_word(FILE *to, const char *word, enum quoting how)
{
    if (how == AS_IT_IS || (how == VALUES && word[0] == '"') || (word[0] && !strpbrk(word, how == VALUES ? " \t" : " \t\""))) {
        fputs(word, to);
        return;
    }
    putc('"', to);
    for (; *word; word++) fprintf(to, "%s%c", *word == '"' || *word == '\\' ? "\\" : "", *word);
    putc('"', to);
}

static enum quoting quoting_of(const struct zf_command_row *row)
{
    switch (row ? row->arguments : ZF_ARGS_NONE) {
    case ZF_ARGS_PAIRS: return VALUES;
    case ZF_ARGS_NAME:
    case ZF_ARGS_PATTERN:
    case ZF_ARGS_MATRIX:
    case ZF_ARGS_PANEL_FILE: return WORDS;
    default: return AS_IT_IS;
    }
}

char *zf_command_join(const char *const *words, size_t count)
{
    char *text = NULL, name[64] = "", *here;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    size_t first = 0; /* word of the command whose arguments follow: that of `at STEP COMMAND` */
    const struct zf_command_row *row = NULL;
    for (bool later = true; later && first < count; first += later ? 2 : 0) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(words[first], "!"), words[first]);
        row = zf_command_find(name);
        later = row && row->arguments == ZF_ARGS_STEP_COMMAND;
    }
    bool path = row && row->arguments == ZF_ARGS_PATH;
    for (size_t i = 0; i < count; i++) {
        if (i) putc(' ', to);
        bool called = row && !strcmp(row->name, "load") && !strchr(words[i], '/'); /* of a checkpoint */
        if (path && i == first + 1 && words[i][0] != '/' && !called && (here = getcwd(NULL, 0))) {
            fprintf(to, "%s/", here);
            free(here);
        }
        put_word(to, words[i], i > first ? quoting_of(row) : AS_IT_IS);
    }
    bool failed = ferror(to);
    if (!fclose(to) && !failed) return text;
    free(text);
    return NULL;
}

static void put_row(FILE *to, const struct zf_command_row *r)
{
    char left[64];
    snprintf(left, sizeof left, "%s%s%s", r->name, r->usage[0] ? " " : "", r->usage);
    fprintf(to, "%-30s %s\n", left, r->sentence);
}

static bool help_topic(FILE *to, const char *topic)
{
    const struct zf_command_row *r = zf_command_find(topic);
    const struct zf_option *o = zf_option_find(topic);
    char range[256];
    if (r) {
        put_row(to, r);
        if (r->alias[0]) fprintf(to, "also: %s\n", r->alias);
        fprintf(to, "carried out: %s; changes %s%s\n", who_names[r->who], effect_names[r->effect],
                r->allowed == ZF_ALLOWED_PAUSED ? "; only while paused" : "");
    }
    if (o)
        fprintf(to, "%s (%s, %s%s%s): %s\ndefault %s; a change takes effect %s\n", o->name, zf_option_type_name(o->type),
                zf_option_range(o, range, sizeof range), o->unit[0] ? ", " : "", o->unit, o->sentence,
                o->fallback[0] ? o->fallback : "none",
                o->when == ZF_WHEN_NOW    ? "at once"
                : o->when == ZF_WHEN_STEP ? "at the next step"
                                          : "at the next start");
    return r || o;
}

char *zf_command_help(const char *topic, bool *known)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    *known = true;
    if (!to) return NULL;
    if (topic)
        *known = help_topic(to, topic);
    else
        for (size_t i = 0; i < ZF_COMMANDS; i++) put_row(to, &zf_command_table[i]);
    if (!topic) fputs("`help NAME` says more of a command or an option.\n", to);
    if (!*known) {
        struct zf_err e;
        if (zf_option_nearest(topic))
            zf_option_unknown(topic, NULL, &e);
        else
            unknown(topic, &e);
        fprintf(to, "%s\n", e.message);
    }
    bool failed = ferror(to);
    if (fclose(to) || failed) {
        free(text);
        return NULL;
    }
    size_t n = strlen(text);
    if (n) text[n - 1] = 0;
    return text;
}

static void print_markdown(FILE *to)
{
    fputs("| command | carried out | changes | description |\n|---|---|---|---|\n", to);
    for (size_t i = 0; i < ZF_COMMANDS; i++) {
        const struct zf_command_row *r = &zf_command_table[i];
        fprintf(to, "| `%s%s%s`%s%s%s | %s%s | %s | %s |\n", r->name, r->usage[0] ? " " : "", r->usage, r->alias[0] ? " (`" : "", r->alias,
                r->alias[0] ? "`)" : "", who_names[r->who], r->allowed == ZF_ALLOWED_PAUSED ? ", while paused" : "",
                effect_names[r->effect], r->sentence);
    }
}

json_t *zf_commands_json(void)
{
    json_t *all = json_array();
    for (size_t i = 0; all && i < ZF_COMMANDS; i++) {
        const struct zf_command_row *r = &zf_command_table[i];
        json_t *o =
            json_pack("{ss ss ss ss ss ss ss}", "name", r->name, "alias", r->alias, "usage", r->usage, "arguments",
                      argument_names[r->arguments], "who", who_names[r->who], "effect", effect_names[r->effect], "sentence", r->sentence);
        if (!o || json_array_append_new(all, o)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

enum zf_status zf_commands_print(FILE *to, enum zf_table_style style, struct zf_err *e)
{
    json_t *all = style == ZF_TABLE_JSON ? zf_commands_json() : NULL;
    if (style == ZF_TABLE_JSON && !all) return zf_fail_memory(e, "the table of commands");
    if (all) {
        json_dumpf(all, to, JSON_INDENT(2));
        putc('\n', to);
    } else if (style == ZF_TABLE_MARKDOWN) {
        print_markdown(to);
    } else {
        for (size_t i = 0; i < ZF_COMMANDS; i++) put_row(to, &zf_command_table[i]);
    }
    json_decref(all);
    return fflush(to) || ferror(to) ? zf_fail_errno(e, "stdout", "cannot write the table of commands") : ZF_OK;
}
