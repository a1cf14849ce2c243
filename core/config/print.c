/* Options written down: as JSON, as a run.cfg, as the reference table. */
#include "core/config/options.h"
#include "core/config/value.h"

#include <stdlib.h>
#include <string.h>

const char *zf_option_type_name(enum zf_option_type type)
{
    static const char *const names[] = {"text", "path", "paths", "integer", "size", "duration", "number", "switch", "choice", "list"};
    return names[type];
}

const char *zf_option_when_name(enum zf_option_when when)
{
    static const char *const names[] = {"now", "step", "restart"};
    return names[when];
}

const char *zf_option_range(const struct zf_option *row, char *buffer, size_t size)
{
    size_t n = 0;
    buffer[0] = 0;
    if (row->type == ZF_TYPE_BOOL) snprintf(buffer, size, "yes|no");
    for (size_t i = 0; i < row->choice_count && n < size; i++)
        n += (size_t)snprintf(buffer + n, size - n, "%s%s", i ? "|" : "", row->choices[i]);
    if (row->choice_count && n < size && (row->type == ZF_TYPE_PATH || row->type == ZF_TYPE_STRING))
        snprintf(buffer + n, size - n, row->type == ZF_TYPE_PATH ? " or a path" : " or text");
    if (row->bounds[0] && n < size) {
        if (n) n += (size_t)snprintf(buffer + n, size - n, " or ");
        bool open_low = row->bounds[0] == '(';
        char low[32], high[32];
        snprintf(low, sizeof low, "%.12g", row->least);
        snprintf(high, sizeof high, "%.12g", row->most);
        if (n >= size) return buffer;
        if (isfinite(row->most))
            snprintf(buffer + n, size - n, "%s %s x %s %s", low, open_low ? "<" : "<=", row->bounds[1] == ')' ? "<" : "<=", high);
        else
            snprintf(buffer + n, size - n, open_low ? "above %s" : "%s or more", low);
    }
    return buffer;
}

/* Text that is UTF-8 or becomes it (a directory's name may be anything). */
static json_t *json_text(const char *text)
{
    json_t *j = json_string(text);
    if (j) return j;
    char *copy = strdup(text);
    size_t n = copy ? strlen(copy) : 0, good;
    while (copy && (good = zf_utf8_good(copy, n)) < n) copy[good] = '?';
    j = copy ? json_string(copy) : NULL;
    free(copy);
    return j;
}

static json_t *json_strings(const struct zf_strings *all)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < all->count; i++)
        if (json_array_append_new(list, json_text(all->list[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *json_value(const struct zf_option *row, const struct zf_value *v)
{
    switch (row->type) {
    case ZF_TYPE_STRING:
    case ZF_TYPE_PATH: return json_text(v->text);
    case ZF_TYPE_PATHS:
    case ZF_TYPE_LIST: return json_strings(&v->strings);
    case ZF_TYPE_INT: return !v->whole && row->choice_count ? json_string(row->choices[0]) : json_integer(v->whole);
    case ZF_TYPE_SIZE: return json_integer(v->whole);
    case ZF_TYPE_DURATION:
    case ZF_TYPE_FLOAT: return json_real(v->real);
    case ZF_TYPE_BOOL: return json_boolean(v->yes);
    case ZF_TYPE_CHOICE: return json_string(row->choices[v->choice]);
    }
    return NULL;
}

json_t *zf_options_json(const struct zf_options *o)
{
    json_t *all = json_object(), *at = json_array();
    bool failed = !all || !at;
    for (enum zf_option_id id = 0; !failed && id < ZF_OPTIONS; id++) {
        struct zf_value v = zf_value_load(o, &zf_option_table[id]);
        failed = json_object_set_new(all, zf_option_table[id].name, json_value(&zf_option_table[id], &v)) != 0;
    }
    for (size_t i = 0; !failed && i < o->at_count; i++)
        failed = json_array_append_new(at, json_sprintf("%lld = %s", (long long)o->at[i].step, o->at[i].command)) != 0;
    if (!failed) failed = json_object_set(all, "at", at) != 0;
    json_decref(at);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

/* Options that cannot stand beside another one; at their default they are written as a comment. */
static bool unused(const struct zf_options *o, enum zf_option_id id)
{
    return id == ZF_OPT_epochs && o->steps > 0 && zf_options_is_default(o, id);
}

enum zf_status zf_options_write(const struct zf_options *o, FILE *out, struct zf_err *e)
{
    const char *section = "";
    fputs("# Every option of this run with its value. `zenflow-console options` explains them.\n", out);
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        char *text = zf_options_get_text(o, id);
        if (!text) return zf_fail_memory(e, row->name);
        if (strcmp(section, row->section)) fprintf(out, "\n[%s]\n", section = row->section);
        fprintf(out, "%s%s = %s\n", unused(o, id) ? "# " : "", row->name, text);
        free(text);
    }
    if (o->at_count) fputs("\n[at]\n", out);
    for (size_t i = 0; i < o->at_count; i++) fprintf(out, "%lld = %s\n", (long long)o->at[i].step, o->at[i].command);
    return fflush(out) || ferror(out) ? zf_fail_errno(e, "run.cfg", "cannot write the options") : ZF_OK;
}

char *zf_options_text(const struct zf_options *o)
{
    char *text = NULL;
    size_t size;
    struct zf_err ignored;
    FILE *to = open_memstream(&text, &size);
    bool fine = to && !zf_options_write(o, to, &ignored);
    if (to) fclose(to);
    if (fine) return text;
    free(text);
    return NULL;
}

/* A row of the reference; the columns of all styles. */
enum { COLUMNS = 8 };
static const char *const headings[COLUMNS] = {"section", "name", "type", "range", "default", "unit", "when", "description"};

static void table_row(size_t i, const char *cells[COLUMNS], char range[256])
{
    if (i == ZF_OPTIONS) { /* [at] has lines, not options */
        static const char *const at[COLUMNS] = {
            "at",      "STEP",
            "command", "1 or more",
            "",        "",
            "restart", "Lines `STEP = COMMAND`: the command is done before that step is issued; a step may come several times."};
        memcpy(cells, at, sizeof at);
        return;
    }
    const struct zf_option *row = &zf_option_table[i];
    const char *const all[COLUMNS] = {row->section,  row->name, zf_option_type_name(row->type), zf_option_range(row, range, 256),
                                      row->fallback, row->unit, zf_option_when_name(row->when), row->sentence};
    memcpy(cells, all, sizeof all);
}

static void print_plain(FILE *out)
{
    char range[256];
    const char *cells[COLUMNS];
    int width[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) width[c] = (int)strlen(headings[c]);
    for (size_t i = 0; i <= ZF_OPTIONS; i++) {
        table_row(i, cells, range);
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(cells[c]) > width[c] && c != 3) width[c] = (int)strlen(cells[c]);
    }
    width[3] = 28; /* long lists of choices run over */
    for (int c = 0; c < COLUMNS; c++) fprintf(out, "%-*s%s", c == COLUMNS - 1 ? 0 : width[c], headings[c], c == COLUMNS - 1 ? "\n" : "  ");
    for (size_t i = 0; i <= ZF_OPTIONS; i++) {
        table_row(i, cells, range);
        for (int c = 0; c < COLUMNS; c++) fprintf(out, "%-*s%s", c == COLUMNS - 1 ? 0 : width[c], cells[c], c == COLUMNS - 1 ? "\n" : "  ");
    }
}

static void print_markdown(FILE *out)
{
    char range[256];
    const char *cells[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) fprintf(out, "| %s ", headings[c]);
    fputs("|\n", out);
    for (int c = 0; c < COLUMNS; c++) fputs("|---", out);
    fputs("|\n", out);
    for (size_t i = 0; i <= ZF_OPTIONS; i++) {
        table_row(i, cells, range);
        for (int c = 0; c < COLUMNS; c++) {
            const char *code = (c == 1 || c == 4) && cells[c][0] ? "`" : "";
            fprintf(out, "| %s", code);
            for (const char *s = cells[c]; *s; s++) {
                /* `|` ends a cell; `*`, `_`, `<` of sentences and ranges would be markup */
                if (*s == '|' || (!*code && (*s == '*' || *s == '_' || *s == '<'))) putc('\\', out);
                putc(*s, out);
            }
            fprintf(out, "%s ", code);
        }
        fputs("|\n", out);
    }
}

static enum zf_status print_json(FILE *out, struct zf_err *e)
{
    char range[256];
    const char *cells[COLUMNS];
    json_t *all = json_array();
    bool failed = !all;
    for (size_t i = 0; !failed && i <= ZF_OPTIONS; i++) {
        table_row(i, cells, range);
        json_t *row = json_object();
        failed = json_array_append_new(all, row) != 0;
        for (int c = 0; !failed && c < COLUMNS; c++) failed = json_object_set_new(row, headings[c], json_string(cells[c])) != 0;
    }
    if (!failed) {
        json_dumpf(all, out, JSON_INDENT(2));
        putc('\n', out);
    }
    json_decref(all);
    return failed ? zf_fail_memory(e, "the table of options") : ZF_OK;
}

enum zf_status zf_options_print(FILE *out, enum zf_table_style style, struct zf_err *e)
{
    if (style == ZF_TABLE_JSON)
        ZF_TRY(print_json(out, e));
    else
        (style == ZF_TABLE_MARKDOWN ? print_markdown : print_plain)(out);
    return fflush(out) || ferror(out) ? zf_fail_errno(e, "stdout", "cannot write the table of options") : ZF_OK;
}
