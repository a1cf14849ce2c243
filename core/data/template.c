/* Templates of users: text with {column}, and {{ and }} for braces. Pure functions; what they make lies in the caller's arena. */
#include "core/config/options.h"
#include "core/data/layout_impl.h"

#include <stdlib.h>
#include <string.h>

static enum zf_status unknown_column(const char *name, const char *column, const struct zf_fields *f, struct zf_err *e)
{
    enum { NAMES = 256 };
    const char *names[NAMES];
    size_t count = 0;
    char all[600];
    while (count < NAMES && (names[count] = zf_fields_name(f, count))) count++;
    const char *near = zf_nearest(column, names, count);
    zf_fields_list(f, all, sizeof all);
    return zf_fail(e, ZF_USAGE, name,
                   "there is no column `%.80s` in %.200s; it has %s%s%.80s%s; correct the template, or write {{ for a brace", column,
                   f->file, all, near ? "; the nearest is `" : "", near ? near : "", near ? "`" : "");
}

static enum zf_status add_piece(struct zf_template *t, struct zf_arena *a, const char *text, size_t size, bool column, struct zf_err *e)
{
    if (!size) return ZF_OK;
    char *kept = zf_arena_strndup(a, text, size);
    if (!kept) return zf_fail_memory(e, "a template");
    t->pieces[t->count++] = (struct zf_template_piece){kept, size, column};
    return ZF_OK;
}

enum zf_status zf_template_column(struct zf_template *out, struct zf_arena *a, const char *column, struct zf_err *e)
{
    *out = (struct zf_template){.given = true, .pieces = zf_arena_alloc(a, sizeof *out->pieces)};
    return out->pieces ? add_piece(out, a, column, strlen(column), true, e) : zf_fail_memory(e, "a template");
}

enum zf_status zf_template_parse(struct zf_template *out, struct zf_arena *a, const char *name, const char *text, const struct zf_fields *f,
                                 struct zf_err *e)
{
    size_t size = strlen(text), braces = 0, n = 0, bad = zf_utf8_check(text, size);
    if (bad < size)
        return zf_fail(e, ZF_USAGE, name, "its byte %zu is no UTF-8; expected UTF-8 text: convert it (iconv -t UTF-8)", bad + 1);
    for (size_t i = 0; i < size; i++) braces += text[i] == '{';
    *out = (struct zf_template){.given = true, .pieces = zf_arena_alloc(a, (2 * braces + 1) * sizeof *out->pieces)};
    char *literal = zf_arena_alloc(a, size + 1);
    if (!out->pieces || !literal) return zf_fail_memory(e, "a template");
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if ((c == '{' || c == '}') && text[i + 1] == c) {
            literal[n++] = text[i++];
            continue;
        }
        if (c == '}') return zf_fail(e, ZF_USAGE, name, "the } at byte %zu closes nothing; write }} for a brace", i + 1);
        if (c != '{') {
            literal[n++] = c;
            continue;
        }
        size_t length = strcspn(text + i + 1, "{}");
        if (text[i + 1 + length] != '}')
            return zf_fail(e, ZF_USAGE, name, "the { at byte %zu is not closed; expected {COLUMN}; write {{ for a brace", i + 1);
        ZF_TRY(add_piece(out, a, literal, n, false, e));
        n = 0;
        char *column = zf_arena_strndup(a, text + i + 1, length);
        if (!column) return zf_fail_memory(e, "a template");
        if (!zf_fields_has(f, column)) return unknown_column(name, column, f, e);
        ZF_TRY(add_piece(out, a, column, length, true, e));
        i += length + 1;
    }
    return add_piece(out, a, literal, n, false, e);
}
