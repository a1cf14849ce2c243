/* `log`: the steps of metrics.jsonl as a table. Two passes over the file, so that memory is a few bytes a step whatever a line holds. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/session/inspect_run.h"
#include "core/telemetry/jsonl.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 64 };

struct row {
    double step;
    off_t offset;
};

struct table {
    struct zf_lines lines;
    struct row *rows;
    size_t count, room;
    struct zf_arena arena;
    char *fields[MOST_FIELDS];
    size_t field_count;
};

/* "busy.compute" is field compute of field busy. */
static const json_t *field_of(const json_t *v, const char *name)
{
    const json_t *whole = json_object_get(v, name);
    const char *dot = strchr(name, '.');
    if (whole || !dot) return whole;
    return field_of(json_object_getn(v, name, (size_t)(dot - name)), dot + 1);
}

static enum zf_status split_fields(struct table *t, const char *fields, struct zf_err *e)
{
    char *save, *copy = zf_arena_strdup(&t->arena, fields);
    if (!copy) return zf_fail_memory(e, "fields");
    for (char *f = strtok_r(copy, ", ", &save); f; f = strtok_r(NULL, ", ", &save)) {
        if (t->field_count == MOST_FIELDS) return zf_fail(e, ZF_USAGE, "--fields", "more than %d fields", MOST_FIELDS);
        t->fields[t->field_count++] = f;
    }
    return t->field_count ? ZF_OK : zf_fail(e, ZF_USAGE, "--fields", "no field is named; expected some of %s", ZF_LOG_FIELDS);
}

/* A step that comes again replaces the old one and all behind it: they belong to an earlier attempt. */
static enum zf_status take_row(struct table *t, double step, struct zf_err *e)
{
    while (t->count && t->rows[t->count - 1].step >= step) t->count--;
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 1024;
        struct row *more = room > SIZE_MAX / sizeof *more ? NULL : realloc(t->rows, room * sizeof *more);
        if (!more) return zf_fail_memory(e, "the step table");
        t->rows = more;
        t->room = room;
    }
    t->rows[t->count++] = (struct row){step, t->lines.offset};
    return ZF_OK;
}

static enum zf_status find_rows(struct table *t, bool known[MOST_FIELDS], struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    json_t *v;
    while (!s && (v = zf_lines_next(&t->lines))) {
        const char *type = zf_json_text(v, "type", "");
        double step = zf_json_number(v, "step", -1);
        if (!strcmp(type, "step") && step >= 0) {
            for (size_t i = 0; i < t->field_count; i++) known[i] |= field_of(v, t->fields[i]) != NULL;
            s = take_row(t, step, e);
        } else if (!strcmp(type, "resume") && step >= 0) {
            while (t->count && t->rows[t->count - 1].step > step) t->count--;
        }
        json_decref(v);
    }
    return s;
}

/* The fields that the last step has, for the message. */
static enum zf_status refuse_field(struct table *t, const char *name, struct zf_err *e)
{
    char have[1024] = "";
    size_t n = 0;
    const char *key;
    json_t *item, *v = zf_lines_at(&t->lines, t->rows[t->count - 1].offset);
    json_object_foreach(v, key, item)
    {
        if (n < sizeof have) n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", n ? ", " : "", key);
    }
    json_decref(v);
    return zf_fail(e, ZF_USAGE, "--fields", "no step has the field \"%s\"; there are %s", name, have);
}

/* Text of a value without quotes; "" if absent. To be freed; NULL: no memory. */
static char *cell_text(const json_t *v)
{
    if (!v || json_is_null(v)) return strdup("");
    if (json_is_string(v)) return strdup(json_string_value(v));
    size_t n;
    char *s = zf_jsonl_text(v, &n);
    if (s) s[n - 1] = 0;
    return s;
}

static void put_csv(FILE *to, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        zf_show(to, s);
        return;
    }
    fputc('"', to);
    for (size_t n; *s; s += n) { /* a quote is doubled */
        n = strcspn(s, "\"");
        zf_show_lines(to, s, n);
        if (s[n] == '"') fputs("\"\"", to), n++;
    }
    fputc('"', to);
}

static void put_cell(FILE *to, const json_t *v, enum zf_log_format format, int width)
{
    char *s = cell_text(v), narrow[64], shown[1024];
    if (!s) return;
    if (format == ZF_LOG_CSV) {
        put_csv(to, s);
    } else {
        if (json_is_real(v)) snprintf(narrow, sizeof narrow, "%.6g", json_real_value(v));
        fprintf(to, "%*s", width, json_is_real(v) ? narrow : zf_text_show(shown, sizeof shown, s, strlen(s)));
    }
    free(s);
}

static void put_row(FILE *to, const struct table *t, const json_t *v, enum zf_log_format format, bool first)
{
    if (format == ZF_LOG_JSON) {
        json_t *out = json_object();
        for (size_t i = 0; i < t->field_count; i++) {
            const json_t *item = field_of(v, t->fields[i]);
            if (item) json_object_set(out, t->fields[i], (json_t *)(size_t)item);
        }
        size_t n;
        char *s = zf_jsonl_text(out, &n);
        if (s) fprintf(to, "%s%.*s", first ? "\n" : ",\n", (int)(n - 1), s);
        free(s);
        json_decref(out);
        return;
    }
    for (size_t i = 0; i < t->field_count; i++) {
        if (i) fputs(format == ZF_LOG_CSV ? "," : "  ", to);
        int width = (int)strlen(t->fields[i]);
        put_cell(to, field_of(v, t->fields[i]), format, width < 9 ? 9 : width);
    }
    fputc('\n', to);
}

static void print_rows(FILE *to, struct table *t, enum zf_log_format format)
{
    if (format == ZF_LOG_JSON) fputc('[', to);
    for (size_t i = 0; i < t->field_count && format != ZF_LOG_JSON; i++) {
        if (i) fputs(format == ZF_LOG_CSV ? "," : "  ", to);
        if (format == ZF_LOG_CSV)
            put_csv(to, t->fields[i]);
        else
            fprintf(to, "%9s", t->fields[i]);
    }
    if (format != ZF_LOG_JSON) fputc('\n', to);
    bool first = true;
    for (size_t i = 0; i < t->count; i++) {
        json_t *v = zf_lines_at(&t->lines, t->rows[i].offset);
        if (!v) continue; /* cut off since the first pass */
        put_row(to, t, v, format, first);
        first = false;
        json_decref(v);
    }
    if (format == ZF_LOG_JSON) fputs(first ? "]\n" : "\n]\n", to);
}

enum zf_status zf_log_print(FILE *to, const char *run, enum zf_log_format format, const char *fields, size_t *bad, struct zf_err *e)
{
    struct table t = {0};
    bool known[MOST_FIELDS] = {false};
    if (bad) *bad = 0;
    char *path = zf_path_join(run, "metrics.jsonl");
    enum zf_status s = path ? split_fields(&t, fields ? fields : ZF_LOG_FIELDS, e) : zf_fail_memory(e, run);
    if (!s && !zf_file_exists(path)) s = zf_fail(e, ZF_USAGE, run, "there is no metrics.jsonl; a run directory is expected (see `list`)");
    if (!s) s = zf_lines_open(&t.lines, path, e);
    if (!s) s = find_rows(&t, known, e);
    if (bad) *bad = t.lines.bad;
    for (size_t i = 0; !s && fields && t.count && i < t.field_count; i++)
        if (!known[i]) s = refuse_field(&t, t.fields[i], e);
    if (!s) {
        print_rows(to, &t, format);
        if (ferror(to) || fflush(to)) s = zf_fail_errno(e, NULL, "cannot write the table");
    }
    zf_lines_close(&t.lines);
    zf_arena_free(&t.arena);
    free(t.rows);
    free(path);
    return s;
}
