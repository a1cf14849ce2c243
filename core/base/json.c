#include "core/base/json.h"
#include "core/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *zf_json_guess(const char *text, size_t size)
{
    size_t blank = 0;
    while (blank < size && strchr(" \t\r\n", text[blank])) blank++;
    if (size - blank > 8 && !strncmp(text + blank, "version ", 8) && memmem(text, size, "git-lfs", 7))
        return "; it is a Git-LFS pointer: fetch the file itself with `git lfs pull`";
    return blank < size && text[blank] == '<' ? "; it looks like a web page: the download went wrong" : "";
}

enum zf_status zf_json_parse(json_t **out, const char *text, size_t size, const char *path, struct zf_err *e)
{
    return zf_json_parse_at(out, text, size, path, 1, 1, e);
}

enum zf_status zf_json_parse_at(json_t **out, const char *text, size_t size, const char *path, uint64_t line, uint64_t column,
                                struct zf_err *e)
{
    json_error_t at;
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    *out = json_loadb(text, size, flags, &at);
    /* Integers beyond 64 bits are valid JSON, and common (model_max_length = 1e30 written out): then all numbers are read as reals. */
    if (!*out && json_error_code(&at) == json_error_numeric_overflow) *out = json_loadb(text, size, flags | JSON_DECODE_INT_AS_REAL, &at);
    if (*out) return ZF_OK;
    char where[sizeof e->where];
    zf_place(where, sizeof where, path, line + (uint64_t)(at.line > 0 ? at.line - 1 : 0),
             (uint64_t)(at.column > 0 ? at.column : 0) + (at.line > 1 ? 0 : column - 1));
    return zf_fail(e, ZF_FORMAT, where, "no valid JSON: %s%s", at.text, zf_json_guess(text, size));
}

enum zf_status zf_json_file(json_t **out, const char *path, size_t limit, struct zf_err *e)
{
    char *text;
    size_t size;
    *out = NULL;
    ZF_TRY(zf_file_read(&text, &size, path, limit, e));
    enum zf_status s = zf_json_parse(out, text, size, path, e);
    free(text);
    return s;
}

json_t *zf_json_real(double x)
{
    if (isnan(x)) return json_string("nan");
    if (isinf(x)) return json_string(x > 0 ? "inf" : "-inf");
    return json_real(x);
}

const char *zf_json_shown(const json_t *v, char *to, size_t size)
{
    size_t used = 0;
    if (!size) return "";
    *to = 0;
    if (json_is_string(v))
        snprintf(to, size, "%s", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(to, size, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_integer(v))
        snprintf(to, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(to, size, "%.6g", json_real_value(v));
    for (size_t i = 0; i < json_array_size(v) && used + 3 < size; i++) {
        const json_t *one = json_array_get(v, i);
        if (json_is_array(one)) continue; /* no deeper */
        if (used) used += (size_t)snprintf(to + used, size - used, ", ");
        zf_json_shown(one, to + used, size - used);
        used += strlen(to + used);
    }
    return to;
}
