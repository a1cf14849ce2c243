/* The reader of run.cfg. It works on a copy of the text, in which bytes that are no text are replaced once they have been reported. */
#include "core/config/run_cfg.h"
#include "core/base/file.h"
#include "core/config/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MOST = 16 << 20 };

struct place {
    size_t line, column;
};

struct reader {
    struct zf_options *o;
    struct zf_err_list *errors;
    const char *name, *directory;
    char *text;
    size_t size;
    size_t line, start, end; /* the current line: its number, its first byte, its end without CR and LF */
    size_t next;             /* where the next line begins */
    bool bad;                /* a byte of the present setting has been reported: what follows from it is not */
    const char *section;     /* NULL before the first; "" an unknown one */
    struct place seen[ZF_OPTIONS];
};

static struct place place_at(const struct reader *r, size_t at)
{
    struct place p = {r->line, 1};
    for (size_t i = r->start; i < at; i++) p.column += ((unsigned char)r->text[i] & 0xc0) != 0x80;
    return p;
}

static void report(struct reader *r, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void report(struct reader *r, size_t at, const char *fmt, ...)
{
    struct zf_err e;
    char where[sizeof e.where];
    va_list ap;
    if (r->bad) return;
    struct place p = place_at(r, at);
    va_start(ap, fmt);
    zf_vfail(&e, ZF_USAGE, zf_place(where, sizeof where, r->name, p.line, p.column), fmt, ap);
    va_end(ap);
    zf_err_list_add(r->errors, &e);
}

/* Makes the line that begins at `start` the current one. */
static void enter_line(struct reader *r, size_t start)
{
    char *line = r->text + start, *newline = memchr(line, '\n', r->size - start);
    size_t size = newline ? (size_t)(newline - line) : r->size - start, good;
    r->line++;
    r->start = start;
    r->next = start + size + 1;
    if (size && line[size - 1] == '\r') size--;
    r->end = start + size;
    for (size_t from = 0; (good = from + zf_utf8_good(line + from, size - from)) < size; from = good + 1) {
        if (!from) r->bad = false; /* one report a line */
        report(r, start + good, "a byte 0x%02x that is not text; UTF-8 is expected; correct it or save the file as UTF-8",
               (unsigned char)line[good]);
        r->bad = true;
        line[good] = '?';
    }
}

static size_t skip_blanks(const struct reader *r, size_t i)
{
    while (i < r->end && zf_blank(r->text[i])) i++;
    return i;
}

static size_t trim(const struct reader *r, size_t from, size_t to)
{
    while (to > from && zf_blank(r->text[to - 1])) to--;
    return to;
}

/* A copy for a message or a look-up. */
static char *copy(struct reader *r, size_t from, size_t to)
{
    struct zf_err e;
    char *s = zf_arena_strndup(&r->o->arena, r->text + from, to - from);
    if (!s) {
        zf_fail_memory(&e, r->name);
        zf_err_list_add(r->errors, &e);
    }
    return s;
}

/* Behind the closing quote of the string that opens at i, entering the lines it goes over; 0 if there is none. */
static size_t close_quote(struct reader *r, size_t i)
{
    const size_t line = r->line, start = r->start, end = r->end, next = r->next, from = i;
    const bool bad = r->bad;
    for (i++; i < r->size; i++) {
        if (r->text[i] == '"') return i + 1;
        if (r->text[i] == '\\' && i + 1 < r->size && r->text[i + 1] != '\n')
            i++;
        else if (r->text[i] == '\n' && i + 1 < r->size)
            enter_line(r, i + 1);
    }
    r->line = line; /* as if only this line were wrong */
    r->start = start;
    r->end = end;
    r->next = next;
    r->bad = bad;
    report(r, from, "a quoted string without an end; a closing \" is expected; add it (write \\\" for a quote inside)");
    return 0;
}

/* The end of the value that begins at i: the end of the line, but for quoted strings. 0: an error has been reported. */
static size_t value_end(struct reader *r, size_t i, bool list)
{
    for (;;) {
        if (i < r->end && r->text[i] == '"') {
            if (!(i = close_quote(r, i))) return 0;
            size_t behind = skip_blanks(r, i);
            if (behind >= r->end) return i;
            if (!list || r->text[behind] != ',') {
                report(r, behind, "text behind a quoted string; %s is expected; write \\\" for a quote inside",
                       list ? "a comma or the end of the line" : "the end of the line");
                return 0;
            }
            i = behind;
        } else if (!list) {
            return trim(r, i, r->end);
        }
        while (i < r->end && r->text[i] != ',') i++;
        if (i >= r->end) return trim(r, 0, r->end);
        i = skip_blanks(r, i + 1);
    }
}

/* All sections, with what people call them from habit. */
static const struct {
    const char *name, *section;
} sections[] = {
    {"run", "run"},
    {"model", "model"},
    {"data", "data"},
    {"train", "train"},
    {"zenflow", "zenflow"},
    {"checkpoint", "checkpoint"},
    {"log", "log"},
    {"at", "at"},
    {"training", "train"},
    {"trainer", "train"},
    {"optimizer", "train"},
    {"scheduler", "train"},
    {"dataset", "data"},
    {"logging", "log"},
    {"checkpoints", "checkpoint"},
    {"checkpointing", "checkpoint"},
    {"offload", "zenflow"},
    {"general", "run"},
};
enum { SECTIONS = 8, SECTION_NAMES = sizeof sections / sizeof *sections };

static void read_section(struct reader *r, size_t from)
{
    char shown[80];
    const char *names[SECTION_NAMES];
    const char *bracket = memchr(r->text + from, ']', r->end - from);
    r->section = "";
    if (!bracket) {
        report(r, from, "a section without `]`; `[name]` is expected; add it");
        return;
    }
    size_t close = (size_t)(bracket - r->text), name = skip_blanks(r, from + 1), behind = skip_blanks(r, close + 1);
    char *text = copy(r, name, name < close ? trim(r, name, close) : name);
    if (!text) return;
    if (behind < r->end)
        report(r, behind,
               "text behind a section; the end of the line is expected; put it on a line of its own (a comment begins its line with #)");
    for (size_t i = 0; i < SECTION_NAMES; i++) {
        names[i] = sections[i].name;
        if (strcmp(text, sections[i].name)) continue;
        if (i < SECTIONS) {
            r->section = sections[i].section;
            return;
        }
    }
    const char *near = zf_nearest(text, names, SECTION_NAMES);
    for (size_t i = 0; near && i < SECTION_NAMES; i++)
        if (near == sections[i].name) near = sections[i].section;
    zf_excerpt(text, shown, sizeof shown);
    if (near)
        report(r, from, "there is no section [%s]; the nearest is [%s]; correct the name", shown, near);
    else
        report(r, from, "there is no section [%s]; run, model, data, train, zenflow, checkpoint, log or at is expected; correct the name",
               shown);
}

/* Whether an option may stand here: its section, and once only. */
static bool admit(struct reader *r, const struct zf_option *row, const char *name, size_t at)
{
    char where[512];
    struct place *seen = &r->seen[zf_option_id(row)];
    if (!r->section) {
        report(r, at, "`%s` before the first section; it belongs to [%s]; put it there", name, row->section);
        return false;
    }
    if (r->section[0] && strcmp(r->section, row->section)) {
        report(r, at, "`%s` in section [%s]; it belongs to [%s]; move it there", name, r->section, row->section);
        return false;
    }
    if (seen->line) {
        report(r, at, "`%s` a second time; the first is %s; take one out", name,
               zf_place(where, sizeof where, r->name, seen->line, seen->column));
        return false;
    }
    *seen = place_at(r, at);
    return true;
}

static void read_setting(struct reader *r, size_t from)
{
    struct zf_err e;
    char shown[80], where[sizeof e.where];
    const char *equals = memchr(r->text + from, '=', r->end - from);
    if (!equals) {
        char *text = copy(r, from, trim(r, from, r->end));
        if (text)
            report(r, from, "`%s` is no setting; `name = value` is expected; add the `=`, or make it a comment with #",
                   zf_excerpt(text, shown, sizeof shown));
        return;
    }
    size_t at = (size_t)(equals - r->text), value = skip_blanks(r, at + 1);
    char *name = copy(r, from, trim(r, from, at));
    if (!name) return;
    bool commands = r->section && !strcmp(r->section, "at");
    const struct zf_option *row = commands ? NULL : zf_option_find(name);
    struct place named = place_at(r, from), valued = place_at(r, value);
    bool allowed = commands;
    if (row) {
        allowed = admit(r, row, name, from);
    } else if (!name[0]) {
        report(r, from, "a line that begins with `=`; `name = value` is expected; add the name");
    } else if (!commands && !r->bad) {
        zf_option_unknown(name, zf_place(where, sizeof where, r->name, named.line, named.column), &e);
        zf_err_list_add(r->errors, &e);
    }
    size_t end = commands ? trim(r, value, r->end) : value_end(r, value, row && (row->type == ZF_TYPE_PATHS || row->type == ZF_TYPE_LIST));
    if (!allowed || r->bad || (!end && !commands)) return;
    char *text = copy(r, value, end > value ? end : value);
    if (!text) return;
    struct zf_origin origin = {ZF_ORIGIN_FILE, r->name, valued.line, valued.column, r->directory};
    if (commands) origin.column = named.column; /* the step's */
    if ((commands ? zf_options_at(r->o, name, text, &origin, &e) : zf_options_set(r->o, name, text, &origin, &e)) != ZF_OK)
        zf_err_list_add(r->errors, &e);
}

static void read_lines(struct reader *r, size_t from)
{
    struct zf_err e;
    for (r->next = from; r->next < r->size;) {
        r->bad = false;
        enter_line(r, r->next);
        size_t i = skip_blanks(r, r->start);
        char first = i < r->end ? r->text[i] : '#';
        if (first == '[')
            read_section(r, i);
        else if (first != '#' && first != ';')
            read_setting(r, i);
        if (!r->errors->dropped) continue;
        zf_fail(&e, ZF_USAGE, r->name, "more than %d errors; the rest was not read", ZF_ERR_LIST_MOST);
        r->errors->list[r->errors->count - 1] = e; /* it is full */
        return;
    }
}

enum zf_status zf_run_cfg_read_memory(struct zf_options *o, const char *text, size_t size, const char *name, const char *directory,
                                      struct zf_err_list *errors)
{
    struct zf_err e;
    struct reader *r = calloc(1, sizeof *r);
    char *work = size < SIZE_MAX ? malloc(size + 1) : NULL;
    size_t from = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (!r || !work) {
        zf_fail_memory(&e, name);
        zf_err_list_add(errors, &e);
    } else if (size >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2))) {
        zf_fail(&e, ZF_USAGE, name, "the file is UTF-16; UTF-8 is expected; save it as UTF-8");
        zf_err_list_add(errors, &e);
    } else {
        if (!o->file) o->file = zf_arena_strdup(&o->arena, name); /* without memory messages name no file */
        if (size) memcpy(work, text, size);
        work[size] = 0;
        *r = (struct reader){.o = o, .errors = errors, .name = name, .directory = directory, .text = work, .size = size};
        read_lines(r, from);
    }
    free(work);
    free(r);
    return zf_err_list_status(errors);
}

/* dir = runs/NAME-OF-THE-CFG beside the file, if it was not given. */
static enum zf_status default_dir(struct zf_options *o, const char *path, const char *directory, struct zf_err *e)
{
    const char *name = zf_path_name(path), *dot = strrchr(name, '.');
    size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    struct zf_value v;
    if (o->origin[ZF_OPT_dir].kind != ZF_ORIGIN_DEFAULT) return ZF_OK;
    char *text = zf_arena_printf(&o->arena, "runs/%.*s", (int)n, name);
    if (!text) return zf_fail_memory(e, path);
    ZF_TRY(zf_value_parse(&v, &zf_option_table[ZF_OPT_dir], text, &(struct zf_origin){.directory = directory}, &o->arena, e));
    zf_value_store(o, &zf_option_table[ZF_OPT_dir], &v);
    return ZF_OK;
}

enum zf_status zf_run_cfg_read(struct zf_options *o, const char *path, struct zf_err_list *errors)
{
    struct zf_err e;
    char *text = NULL, *directory = zf_path_directory(path);
    size_t size = 0;
    enum zf_status s = ZF_OK;
    if (!directory || !(o->file = zf_arena_strdup(&o->arena, path))) {
        s = zf_fail_memory(&e, path);
    } else if (access(path, F_OK) && errno == ENOENT) {
        s = zf_fail(&e, ZF_USAGE, path, "there is no such file; a run.cfg is expected; `zenflow-console init > run.cfg` writes one");
    } else if (zf_directory_exists(path)) {
        s = zf_fail(&e, ZF_USAGE, path, "it is a directory; a run.cfg is expected; name the file");
    } else {
        s = zf_file_read(&text, &size, path, FILE_MOST, &e);
        if (s == ZF_FORMAT) s = e.code = ZF_USAGE;
    }
    if (!s) {
        zf_run_cfg_read_memory(o, text, size, path, directory, errors);
        s = default_dir(o, path, directory, &e);
    }
    if (s) zf_err_list_add(errors, &e);
    free(text);
    free(directory);
    return zf_err_list_status(errors);
}

enum zf_status zf_run_cfg_options(struct zf_options *out, const char *text, const char *name, struct zf_err *e)
{
    struct zf_err_list errors = {0};
    ZF_TRY(zf_options_init(out, e));
    enum zf_status s = text ? zf_run_cfg_read_memory(out, text, strlen(text), name, NULL, &errors) : zf_run_cfg_read(out, name, &errors);
    if (s) *e = errors.list[0];
    if (s) zf_options_free(out);
    zf_err_list_free(&errors);
    return s;
}
