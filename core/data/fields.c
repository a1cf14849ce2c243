/* Records -> columns: JSON objects, and records of tsv and csv. What the fields point to is owned by the parts they were read into. */
#include "core/base/json.h"
#include "core/data/layout_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char first_character(const struct zf_fields *f)
{
    for (size_t i = 0; i < f->record->size; i++)
        if (!strchr(" \t\r\n", f->bytes[i])) return f->bytes[i];
    return 0;
}

static enum zf_status read_json(struct zf_fields *f, struct zf_parts *into, struct zf_err *e)
{
    json_t *j;
    enum zf_status s = zf_json_parse_at(&j, f->bytes, f->record->size, f->file, f->record->line, f->record->column, e);
    char first = first_character(f);
    if (s == ZF_OK) {
        into->json = j;
        f->json = j;
        if (json_is_object(j)) return ZF_OK;
    }
    if (s != ZF_OK && s != ZF_FORMAT) return s;
    if (first == '[') {
        return zf_fail(e, ZF_FORMAT, NULL,
                       "this looks like a JSON array; expected an object, {\"column\": ...}; if the whole file is an array, set "
                       "format = json");
    }
    if (first != '{') return zf_fail(e, ZF_FORMAT, NULL, "this is no JSON object; expected {\"column\": ...} for a record");
    return s;
}

static enum zf_status read_table(struct zf_fields *f, enum zf_data_format format, struct zf_parts *into, struct zf_err *e)
{
    const struct zf_record *r = f->record;
    size_t count = r->columns->count;
    char *room;
    f->texts = zf_parts_array(into, count, sizeof *f->texts);
    f->sizes = zf_parts_array(into, count, sizeof *f->sizes);
    if (!f->texts || !f->sizes) return zf_fail_memory(e, "the fields of a record");
    ZF_TRY(zf_parts_text(into, r->size, &room, e));
    return zf_csv_fields(format, f->bytes, r->size, count, f->texts, f->sizes, room, e);
}

enum zf_status zf_fields_read(struct zf_fields *f, enum zf_data_format format, const struct zf_record *record, const char *bytes,
                              const char *file, struct zf_parts *into, struct zf_err *e)
{
    *f = (struct zf_fields){.record = record, .bytes = bytes, .file = file};
    zf_parts_clear(into);
    return record->columns ? read_table(f, format, into, e) : read_json(f, into, e);
}

const char *zf_fields_name(const struct zf_fields *f, size_t index)
{
    if (!f->json) return index < f->record->columns->count ? f->record->columns->names[index] : NULL;
    void *i = json_object_iter((json_t *)f->json);
    while (i && index--) i = json_object_iter_next((json_t *)f->json, i);
    return i ? json_object_iter_key(i) : NULL;
}

/* SIZE_MAX: it is not there. JSON objects keep their order. */
static size_t place_of(const struct zf_fields *f, const char *name)
{
    size_t at = 0;
    if (f->json) {
        json_t *j = (json_t *)f->json;
        for (void *i = json_object_iter(j); i; i = json_object_iter_next(j, i), at++)
            if (!strcmp(json_object_iter_key(i), name)) return at;
        return SIZE_MAX;
    }
    const struct zf_columns *c = f->record->columns;
    while (at < c->count && strcmp(c->names[at], name)) at++;
    return at < c->count ? at : SIZE_MAX;
}

bool zf_fields_has(const struct zf_fields *f, const char *name)
{
    return f->json ? json_object_get(f->json, name) != NULL : place_of(f, name) != SIZE_MAX;
}

const json_t *zf_fields_json(const struct zf_fields *f, const char *name)
{
    return f->json ? json_object_get(f->json, name) : NULL;
}

void zf_fields_list(const struct zf_fields *f, char *to, size_t size)
{
    enum { SHOWN = 12 };
    size_t used = 0;
    const char *name;
    to[0] = 0;
    for (size_t i = 0; (name = zf_fields_name(f, i)) && used < size; i++) {
        char shown[44];
        zf_text_show(shown, sizeof shown, name, strlen(name));
        int n = i < SHOWN ? snprintf(to + used, size - used, "%s`%s`", i ? ", " : "", shown) : snprintf(to + used, size - used, ", ...");
        used += n > 0 ? (size_t)n : 0;
        if (i == SHOWN) break;
    }
}

/* The number that is the value of the object's member `place`, as the record (which has been parsed) writes it. */
static void written(const struct zf_fields *f, size_t place, struct zf_field *out)
{
    const char *s = f->bytes;
    size_t size = f->record->size, member = 0, i = 0, depth = 0;
    for (; i < size; i++) {
        if (s[i] == '"') {
            for (i++; i < size && s[i] != '"'; i++) i += s[i] == '\\';
        } else if (s[i] == '{' || s[i] == '[') {
            depth++;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        } else if (depth == 1 && s[i] == ',') {
            member++;
        } else if (depth == 1 && s[i] == ':' && member == place) {
            break;
        }
    }
    for (i++; i < size && strchr(" \t\r\n", s[i]);) i++;
    size_t end = i;
    while (end < size && (strchr("+-.eE", s[end]) || (s[end] >= '0' && s[end] <= '9'))) end++;
    out->text = s + i;
    out->size = end - i;
}

enum zf_status zf_fields_get(const struct zf_fields *f, const char *name, struct zf_field *out, struct zf_err *e)
{
    *out = (struct zf_field){.text = ""};
    if (!f->json) {
        size_t i = place_of(f, name);
        out->missing = i == SIZE_MAX;
        if (!out->missing) {
            out->text = f->texts[i];
            out->size = f->sizes[i];
        }
        return ZF_OK;
    }
    const json_t *v = json_object_get(f->json, name);
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_NULL:
        out->missing = !v;
        out->null = true;
        break;
    case JSON_STRING:
        out->text = json_string_value(v);
        out->size = json_string_length(v);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        out->text = json_is_true(v) ? "true" : "false";
        out->size = strlen(out->text);
        break;
    case JSON_INTEGER:
    case JSON_REAL: written(f, place_of(f, name), out); break;
    default:
        return zf_fail(e, ZF_FORMAT, NULL, "`%.80s` holds %s; expected text or a number in a column", name,
                       json_is_array(v) ? "a list" : "an object");
    }
    return ZF_OK;
}
