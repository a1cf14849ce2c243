/* The option table and the struct: defaults, set, get, the list of errors. */
#include "core/config/options.h"
#include "core/config/value.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(enum zf_choice_strategy) == sizeof(int), "choices are stored through int");

#define CHOICE_TEXT(prefix, constant, text) text,
#define CHOICE_WORDS(list) static const char *const words_##list[] = {ZF_CHOICES_##list(CHOICE_TEXT) NULL};
ZF_CHOICE_TYPES(CHOICE_WORDS)
CHOICE_WORDS(none)
CHOICE_WORDS(auto)
CHOICE_WORDS(steps)
CHOICE_WORDS(bytes)
CHOICE_WORDS(cache)
CHOICE_WORDS(documents)

const struct zf_option zf_option_table[ZF_OPTIONS] = {
#define ZF_OPTION(section, name, type, fallback, least, most, bounds, choices, unit, when, sentence) \
    {#section, \
     #name, \
     ZF_TYPE_##type, \
     fallback, \
     least, \
     most, \
     bounds, \
     words_##choices, \
     sizeof words_##choices / sizeof *words_##choices - 1, \
     unit, \
     ZF_WHEN_##when, \
     sentence, \
     offsetof(struct zf_options, name)},
#include "core/config/options.def"
#undef ZF_OPTION
};

enum { AT_MOST = 65536 };

/* Instead of each other: a --set of one takes the place of the other one in the file. */
static const enum zf_option_id rivals[][2] = {{ZF_OPT_steps, ZF_OPT_epochs}};
/* What --set path takes the place of in the file: a run from scratch goes on from its export so. */
static const enum zf_option_id from_scratch[] = {ZF_OPT_family,   ZF_OPT_layers, ZF_OPT_hidden, ZF_OPT_heads,   ZF_OPT_kv_heads,
                                                 ZF_OPT_head_dim, ZF_OPT_ffn,    ZF_OPT_vocab,  ZF_OPT_context, ZF_OPT_tokenizer};

void zf_err_list_add(struct zf_err_list *l, const struct zf_err *e)
{
    if (l->count == l->room && l->count < ZF_ERR_LIST_MOST) {
        size_t room = l->room ? 2 * l->room : 8;
        struct zf_err *list = realloc(l->list, room * sizeof *list);
        if (list) {
            l->list = list;
            l->room = room;
        }
    }
    if (l->count < l->room && l->count < ZF_ERR_LIST_MOST)
        l->list[l->count++] = *e;
    else
        l->dropped++;
}

void zf_err_list_free(struct zf_err_list *l)
{
    free(l->list);
    *l = (struct zf_err_list){0};
}

enum zf_status zf_err_list_status(const struct zf_err_list *l)
{
    static const enum zf_status order[] = {ZF_USAGE, ZF_FORMAT, ZF_MEMORY};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t i = 0; i < l->count; i++)
            if (l->list[i].code == order[k]) return order[k];
    for (size_t i = 0; i < l->count; i++)
        if (l->list[i].code != ZF_OK) return l->list[i].code;
    return !l->count && l->dropped ? ZF_MEMORY : ZF_OK;
}

static enum zf_status set_row(struct zf_options *o, const struct zf_option *row, const char *text, const struct zf_origin *origin,
                              struct zf_err *e)
{
    struct zf_value v;
    struct zf_origin kept = *origin;
    ZF_TRY(zf_value_parse(&v, row, text, origin, &o->arena, e));
    if (kept.file && !(kept.file = zf_arena_strdup(&o->arena, kept.file))) return zf_fail_memory(e, row->name);
    if (kept.directory && !(kept.directory = zf_arena_strdup(&o->arena, kept.directory))) return zf_fail_memory(e, row->name);
    zf_value_store(o, row, &v);
    o->origin[zf_option_id(row)] = kept;
    return ZF_OK;
}

static enum zf_status set_default(struct zf_options *o, enum zf_option_id id, struct zf_err *e)
{
    return set_row(o, &zf_option_table[id], zf_option_table[id].fallback, &(struct zf_origin){0}, e);
}

enum zf_status zf_options_init(struct zf_options *o, struct zf_err *e)
{
    *o = (struct zf_options){0};
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        if (set_default(o, id, e) == ZF_OK) continue;
        zf_options_free(o);
        return e->code;
    }
    return ZF_OK;
}

void zf_options_free(struct zf_options *o)
{
    zf_arena_free(&o->arena);
    *o = (struct zf_options){0};
}

enum zf_status zf_options_set(struct zf_options *o, const char *name, const char *text, const struct zf_origin *origin, struct zf_err *e)
{
    char where[512];
    const struct zf_option *row = zf_option_find(name);
    if (!row) return zf_option_unknown(name, zf_origin_text(origin, name, where, sizeof where), e);
    ZF_TRY(set_row(o, row, text, origin, e));
    bool path = zf_option_id(row) == ZF_OPT_path && origin->kind == ZF_ORIGIN_SET;
    for (size_t i = 0; path && i < sizeof from_scratch / sizeof *from_scratch; i++)
        if (o->origin[from_scratch[i]].kind == ZF_ORIGIN_FILE) ZF_TRY(set_default(o, from_scratch[i], e));
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals && origin->kind >= ZF_ORIGIN_SET; i++)
        for (int k = 0; k < 2; k++)
            if (rivals[i][k] == zf_option_id(row) && o->origin[rivals[i][!k]].kind >= ZF_ORIGIN_FILE &&
                o->origin[rivals[i][!k]].kind < origin->kind)
                ZF_TRY(set_default(o, rivals[i][!k], e));
    return ZF_OK;
}

/* Blanks at both ends off; in the arena. */
static char *trimmed(struct zf_arena *a, const char *from, size_t n)
{
    while (n && zf_blank(from[n - 1])) n--;
    while (n && zf_blank(from[0])) from++, n--;
    return zf_arena_strndup(a, from, n);
}

enum zf_status zf_options_set_argument(struct zf_options *o, const char *argument, struct zf_err *e)
{
    const struct zf_origin origin = {.kind = ZF_ORIGIN_SET};
    const char *equals = strchr(argument, '=');
    char shown[80];
    if (!equals)
        return zf_fail(e, ZF_USAGE, "--set", "`%s` has no `=`; name=value is expected; e.g. --set learning_rate=1e-4",
                       zf_excerpt(argument, shown, sizeof shown));
    char *name = trimmed(&o->arena, argument, (size_t)(equals - argument)), *text = trimmed(&o->arena, equals + 1, strlen(equals + 1));
    if (!name || !text) return zf_fail_memory(e, "--set");
    return zf_options_set(o, name, text, &origin, e);
}

static enum zf_status at_push(struct zf_options *o, const struct zf_at *at, struct zf_err *e)
{
    if (o->at_count == o->at_room) {
        size_t room = o->at_room ? 2 * o->at_room : 8; /* bounded by AT_MOST */
        struct zf_at *list = zf_arena_alloc(&o->arena, room * sizeof *list);
        if (!list) return zf_fail_memory(e, "[at]");
        if (o->at_count) memcpy(list, o->at, o->at_count * sizeof *list);
        o->at = list;
        o->at_room = room;
    }
    o->at[o->at_count++] = *at;
    return ZF_OK;
}

enum zf_status zf_options_at(struct zf_options *o, const char *step, const char *command, const struct zf_origin *origin, struct zf_err *e)
{
    char where[512], shown[80];
    struct zf_at at = {.origin = *origin};
    size_t n = strspn(step, "0123456789"), length = strlen(command);
    zf_origin_text(origin, "at", where, sizeof where);
    zf_excerpt(step, shown, sizeof shown);
    if (!n || step[n] || n > 18 || !(at.step = strtoll(step, NULL, 10)))
        return zf_fail(e, ZF_USAGE, where, "`%s` before `=` in [at]; a step, 1 or more, is expected; e.g. `40 = set topk_ratio 0.05`",
                       shown);
    if (!length)
        return zf_fail(e, ZF_USAGE, where, "step %s of [at] has no command; one is expected; e.g. `%s = set topk_ratio 0.05`", shown,
                       shown);
    if (command[strcspn(command, "\n\r")] || zf_blank(command[0]) || zf_blank(command[length - 1]) ||
        zf_utf8_good(command, length) < length)
        return zf_fail(e, ZF_USAGE, where, "the command of step %s of [at] is no line of text; one line is expected; correct it", shown);
    if (o->at_count == AT_MOST)
        return zf_fail(e, ZF_USAGE, where, "more than %d commands in [at]; fewer are expected; take some out", AT_MOST);
    at.command = zf_arena_strdup(&o->arena, command);
    if (!at.command || (at.origin.file && !(at.origin.file = zf_arena_strdup(&o->arena, at.origin.file)))) return zf_fail_memory(e, "[at]");
    at.origin.directory = NULL;
    return at_push(o, &at, e);
}

char *zf_options_get_text(const struct zf_options *o, enum zf_option_id id)
{
    struct zf_value v = zf_value_load(o, &zf_option_table[id]);
    return zf_value_text(&zf_option_table[id], &v);
}

bool zf_options_is_default(const struct zf_options *o, enum zf_option_id id)
{
    char *text = zf_options_get_text(o, id);
    const char *fallback = zf_option_table[id].fallback[0] ? zf_option_table[id].fallback : "\"\"";
    bool same = text && !strcmp(text, fallback); /* the table has defaults as they are written; a test holds it to that */
    free(text);
    return same;
}

bool zf_options_equal(const struct zf_options *a, const struct zf_options *b)
{
    bool same = a->at_count == b->at_count;
    for (size_t i = 0; same && i < a->at_count; i++) same = a->at[i].step == b->at[i].step && !strcmp(a->at[i].command, b->at[i].command);
    for (enum zf_option_id id = 0; same && id < ZF_OPTIONS; id++) {
        char *x = zf_options_get_text(a, id), *y = zf_options_get_text(b, id);
        same = x && y && !strcmp(x, y);
        free(x);
        free(y);
    }
    return same;
}
