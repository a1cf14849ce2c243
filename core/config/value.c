/* Text -> value: one parser a type, all errors in the form found; expected; what to do. */
#include "core/config/value.h"
#include "core/base/file.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t zf_utf8_good(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (i < size) {
        unsigned c = s[i];
        size_t more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : 9;
        if (!c || more > 3 || size - i <= more) return i;
        for (size_t k = 1; k <= more; k++)
            if ((s[i + k] & 0xc0) != 0x80) return i;
        /* Overlong forms, surrogates, beyond U+10FFFF: told by the second byte. */
        if ((c == 0xe0 && s[i + 1] < 0xa0) || (c == 0xed && s[i + 1] > 0x9f) || (c == 0xf0 && s[i + 1] < 0x90) ||
            (c == 0xf4 && s[i + 1] > 0x8f))
            return i;
        i += more + 1;
    }
    return size;
}

const char *zf_excerpt(const char *text, char *buffer, size_t size)
{
    size_t n = strlen(text), most = size - 4 < 60 ? size - 4 : 60;
    bool cut = n > most;
    if (cut) {
        for (n = most; n && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    }
    for (size_t i = 0; i < n; i++) buffer[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    strcpy(buffer + n, cut ? "..." : "");
    return buffer;
}

const char *zf_origin_text(const struct zf_origin *origin, const char *name, char *buffer, size_t size)
{
    buffer[0] = 0;
    if (origin->kind == ZF_ORIGIN_FILE) return zf_place(buffer, size, origin->file, origin->line, origin->column);
    if (origin->kind == ZF_ORIGIN_SET) snprintf(buffer, size, "--set %s", name);
    if (origin->kind == ZF_ORIGIN_COMMAND) snprintf(buffer, size, "set %s", name);
    return buffer;
}

/* The place of byte `offset` of a value. */
static const char *place_in(const struct zf_origin *origin, const char *name, const char *text, size_t offset, char *buffer, size_t size)
{
    struct zf_origin at = *origin;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            at.line++;
            at.column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            at.column++;
        }
    }
    return zf_origin_text(&at, name, buffer, size);
}

enum { LIST_MOST = 65536 };

struct source {
    const struct zf_option *row;
    const char *text;
    const struct zf_origin *origin;
    struct zf_arena *arena;
};

static enum zf_status wrong_at(const struct source *s, size_t offset, struct zf_err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static enum zf_status wrong_at(const struct source *s, size_t offset, struct zf_err *e, const char *fmt, ...)
{
    char where[512];
    va_list ap;
    va_start(ap, fmt);
    zf_vfail(e, ZF_USAGE, place_in(s->origin, s->row->name, s->text, offset, where, sizeof where), fmt, ap);
    va_end(ap);
    return ZF_USAGE;
}

/* The whole value is wrong. */
static enum zf_status wrong(const struct source *s, struct zf_err *e, const char *expected)
{
    char shown[80];
    const char *fallback = s->row->fallback[0] ? s->row->fallback : "nothing";
    if (!s->text[0])
        return wrong_at(s, 0, e, "%s has no value; %s is expected; give one or leave the line out (the default is %s)", s->row->name,
                        expected, fallback);
    return wrong_at(s, 0, e, "%s is `%s`; %s is expected; correct it or leave it out (the default is %s)", s->row->name,
                    zf_excerpt(s->text, shown, sizeof shown), expected, fallback);
}

/* text[from] is a quote. Copies what it says; *end is behind the closing quote. */
static enum zf_status unquote(const struct source *s, size_t from, char **out, size_t *end, struct zf_err *e)
{
    const char *t = s->text;
    size_t close = from + 1;
    while (t[close] && t[close] != '"') close += 1 + (t[close] == '\\' && t[close + 1]);
    char *to = zf_arena_alloc(s->arena, close - from);
    if (!to) return zf_fail_memory(e, s->row->name);
    *out = to;
    size_t i = from + 1;
    for (; t[i] && t[i] != '"'; i++) {
        if (t[i] == '\r' && t[i + 1] == '\n') continue; /* a line end of the file */
        if (t[i] != '\\') {
            *to++ = t[i];
            continue;
        }
        static const char letters[] = "ntr\"\\", meant[] = "\n\t\r\"\\";
        const char *known = t[i + 1] ? strchr(letters, t[i + 1]) : NULL;
        if (!known) {
            char shown[8] = "";
            if (t[i + 1] >= 32 && t[i + 1] < 127) snprintf(shown, sizeof shown, "%c", t[i + 1]);
            return wrong_at(s, i, e,
                            "`\\%s` in the quoted string of %s; \\n, \\t, \\r, \\\" and \\\\ are known; write \\\\ for a backslash", shown,
                            s->row->name);
        }
        *to++ = meant[known - letters];
        i++;
    }
    if (!t[i]) return wrong_at(s, from, e, "the quoted string of %s has no end; a closing \" is expected; add it", s->row->name);
    *end = i + 1;
    return ZF_OK;
}

static enum zf_status parse_text(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    if (s->text[0] != '"') {
        v->text = zf_arena_strdup(s->arena, s->text);
        return v->text ? ZF_OK : zf_fail_memory(e, s->row->name);
    }
    char *text;
    size_t end;
    ZF_TRY(unquote(s, 0, &text, &end, e));
    if (s->text[end])
        return wrong_at(s, end, e, "text behind the quoted string of %s; the end of the line is expected; write \\\" for a quote inside",
                        s->row->name);
    v->text = text;
    return ZF_OK;
}

/* An absolute path: the meaning of a relative one must not change when the options are written into another directory. */
static enum zf_status absolute(const char **path, const struct source *s, struct zf_err *e)
{
    const char *p = *path, *home = getenv("HOME");
    if (!p[0] || p[0] == '/') return ZF_OK;
    if (p[0] == '~' && p[1] == '/' && home && home[0] == '/') {
        *path = zf_arena_printf(s->arena, "%s%s", home, p + 1);
        return *path ? ZF_OK : zf_fail_memory(e, s->row->name);
    }
    while (p[0] == '.' && p[1] == '/' && p[2] && p[2] != '/') p += 2;
    char *here = getcwd(NULL, 0), *base = here, *whole = NULL;
    if (here && s->origin->directory && strcmp(s->origin->directory, ".")) base = zf_path_join(here, s->origin->directory);
    while (base && s->row == &zf_option_table[ZF_OPT_dir] && !strncmp(p, "../", 3) && p[3]) { /* it is shown, and typed again */
        char *above = zf_path_join(base, "..");
        if (base != here) free(base);
        base = above;
        p += 3;
    }
    char *plain = base && strstr(base, "/..") ? realpath(base, NULL) : NULL; /* one name, from wherever the file is named */
    if (plain) {
        if (base != here) free(base);
        base = plain;
    }
    if (base && (whole = strcmp(p, ".") ? zf_path_join(base, p) : strdup(base))) *path = zf_arena_strdup(s->arena, whole);
    bool failed = !whole || !*path;
    free(whole);
    if (base != here) free(base);
    free(here);
    return failed ? zf_fail_errno(e, s->row->name, "cannot tell the current directory for the path `%s`", p) : ZF_OK;
}

static enum zf_status parse_path(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    ZF_TRY(parse_text(v, s, e));
    for (size_t i = 0; i < s->row->choice_count; i++)
        if (!strcmp(v->text, s->row->choices[i])) return ZF_OK;
    return absolute(&v->text, s, e);
}

static enum zf_status parse_list(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    const char *t = s->text;
    size_t room = 1, i = 0;
    for (const char *c = t; *c; c++) room += *c == ',';
    struct zf_strings all = {0};
    if (room > LIST_MOST)
        return wrong_at(s, 0, e, "%s has %zu commas; a list of at most %d names is expected; make it shorter", s->row->name, room - 1,
                        LIST_MOST);
    if (t[0] && strcmp(t, "\"\"")) { /* "" is how an empty list is written */
        if (!(all.list = zf_arena_alloc(s->arena, room * sizeof *all.list))) return zf_fail_memory(e, s->row->name);
        for (;;) {
            while (zf_blank(t[i]) || t[i] == '\n') i++;
            size_t from = i;
            char *one;
            if (t[i] == '"') {
                ZF_TRY(unquote(s, i, &one, &i, e));
                while (zf_blank(t[i]) || t[i] == '\n') i++;
                if (t[i] && t[i] != ',')
                    return wrong_at(
                        s, i, e,
                        "text behind a quoted string of %s; a comma or the end of the line is expected; put the whole name in quotes",
                        s->row->name);
            } else {
                while (t[i] && t[i] != ',') i++;
                size_t end = i;
                while (end > from && (zf_blank(t[end - 1]) || t[end - 1] == '\n')) end--;
                if (!(one = zf_arena_strndup(s->arena, t + from, end - from))) return zf_fail_memory(e, s->row->name);
            }
            if (!one[0])
                return wrong_at(s, from, e, "%s has an empty name between commas; a name is expected; take the comma out", s->row->name);
            if (s->row->type == ZF_TYPE_PATHS) {
                const char *path = one;
                ZF_TRY(absolute(&path, s, e));
                one = (char *)(size_t)path;
            }
            all.list[all.count++] = one;
            if (!t[i++]) break;
        }
    }
    v->strings = all;
    return ZF_OK;
}

/* Bytes of a decimal number at the beginning of t; 0: none. Nothing else that strtod knows (hex, inf, nan). */
static size_t decimal(const char *t, bool *whole)
{
    size_t i = t[0] == '-' || t[0] == '+', digits = 0;
    *whole = true;
    for (; t[i] >= '0' && t[i] <= '9'; i++) digits++;
    if (t[i] == '.') {
        *whole = false;
        for (i++; t[i] >= '0' && t[i] <= '9'; i++) digits++;
    }
    if (!digits) return 0;
    if (t[i] == 'e' || t[i] == 'E') {
        size_t k = i + 1 + (t[i + 1] == '-' || t[i + 1] == '+');
        if (t[k] >= '0' && t[k] <= '9') {
            *whole = false;
            for (i = k; t[i] >= '0' && t[i] <= '9';) i++;
        }
    }
    return i;
}

/* The console sets a locale, and strtod would want its comma. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double real(const char *t)
{
    locale_t c = c_locale();
    double x = c ? strtod_l(t, NULL, c) : strtod(t, NULL);
    if (c) freelocale(c);
    return x;
}

static bool below(const struct zf_option *row, double x)
{
    return row->bounds[0] == '(' ? x <= row->least : x < row->least;
}

static bool above(const struct zf_option *row, double x)
{
    return row->bounds[1] == ')' ? x >= row->most : x > row->most;
}

static enum zf_status in_range(const struct source *s, double x, const char *what, struct zf_err *e)
{
    const struct zf_option *row = s->row;
    char range[128], expected[256], shown[80];
    bool low = below(row, x);
    if (!low && !above(row, x) && isfinite(x)) return ZF_OK;
    snprintf(expected, sizeof expected, "%s, %s,", what, zf_option_range(row, range, sizeof range));
    double nearest = low ? row->least : row->most;
    if (!isfinite(x) || !isfinite(nearest) || row->bounds[low ? 0 : 1] == (low ? '(' : ')')) return wrong(s, e, expected);
    return wrong_at(s, 0, e, "%s is `%s`; %s is expected; the nearest is %.12g", row->name, zf_excerpt(s->text, shown, sizeof shown),
                    expected, nearest);
}

static enum zf_status parse_int(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    bool whole;
    if (s->row->choice_count && !strcmp(s->text, s->row->choices[0])) {
        v->whole = 0;
        return ZF_OK;
    }
    size_t n = decimal(s->text, &whole);
    errno = 0;
    if (!n || !whole || s->text[n]) {
        char range[128], expected[192];
        snprintf(expected, sizeof expected, "a whole number, %s,", zf_option_range(s->row, range, sizeof range));
        return wrong(s, e, expected);
    }
    v->whole = strtoll(s->text, NULL, 10);
    if (errno == ERANGE) return wrong(s, e, "a whole number below 2^63");
    return in_range(s, (double)v->whole, "a whole number", e);
}

/* Number and unit; *factor of the unit. */
static bool unit(const char *t, const char *letters, const double *factors, bool *whole, double *factor)
{
    size_t n = decimal(t, whole);
    if (!n) return false;
    *factor = 1;
    if (!t[n]) return true;
    const char *known = strchr(letters, t[n]);
    if (!known || t[n + 1]) return false;
    *factor = factors[known - letters];
    return true;
}

static enum zf_status parse_size(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    static const double factors[] = {0x1p10, 0x1p10, 0x1p20, 0x1p20, 0x1p30, 0x1p30};
    static const char expected[] = "a size in bytes such as 512M or 1.5G (k, M, G: powers of 1024)";
    bool whole;
    double factor;
    if (!unit(s->text, "kKmMgG", factors, &whole, &factor)) return wrong(s, e, expected);
    if (whole) { /* not through a double: it is exact to 2^53 only */
        long long digits;
        errno = 0;
        digits = strtoll(s->text, NULL, 10);
        if (errno == ERANGE || __builtin_mul_overflow(digits, (long long)factor, &digits)) return wrong(s, e, "a size below 2^63 bytes");
        v->whole = digits;
    } else {
        double x = real(s->text) * factor;
        if (!(fabs(x) < 0x1p63)) return wrong(s, e, "a size below 2^63 bytes");
        if (x != floor(x)) return wrong(s, e, "a whole number of bytes");
        v->whole = (int64_t)x;
    }
    return in_range(s, (double)v->whole, expected, e);
}

static enum zf_status parse_duration(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    static const double factors[] = {1, 60, 3600};
    static const char expected[] = "a duration such as 30s, 5m or 1.5h";
    bool whole;
    double factor;
    if (!unit(s->text, "smh", factors, &whole, &factor)) return wrong(s, e, expected);
    v->real = real(s->text) * factor;
    return in_range(s, v->real, expected, e);
}

static enum zf_status parse_float(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    bool whole;
    size_t n = decimal(s->text, &whole);
    if (!n || s->text[n]) {
        char range[128], expected[192];
        snprintf(expected, sizeof expected, "a number, %s,", zf_option_range(s->row, range, sizeof range));
        return wrong(s, e, expected);
    }
    v->real = real(s->text) + 0.0; /* -0 is 0 */
    return in_range(s, v->real, "a finite number", e);
}

static enum zf_status parse_bool(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(s->text, words[i])) {
            v->yes = i & 1;
            return ZF_OK;
        }
    return wrong(s, e, "yes or no");
}

static enum zf_status parse_choice(struct zf_value *v, const struct source *s, struct zf_err *e)
{
    char range[256], expected[512];
    for (size_t i = 0; i < s->row->choice_count; i++)
        if (!strcmp(s->text, s->row->choices[i])) {
            v->choice = (int)i;
            return ZF_OK;
        }
    zf_option_range(s->row, range, sizeof range);
    const char *near = zf_nearest(s->text, s->row->choices, s->row->choice_count);
    if (near) {
        char shown[80];
        return wrong_at(s, 0, e, "%s is `%s`; %s is expected; the nearest is %s", s->row->name, zf_excerpt(s->text, shown, sizeof shown),
                        range, near);
    }
    snprintf(expected, sizeof expected, "%s", range);
    return wrong(s, e, expected);
}

enum zf_status zf_value_parse(struct zf_value *v, const struct zf_option *row, const char *text, const struct zf_origin *origin,
                              struct zf_arena *a, struct zf_err *e)
{
    struct source s = {row, text, origin, a};
    size_t size = strlen(text), good = zf_utf8_good(text, size);
    *v = (struct zf_value){0};
    if (good < size)
        return wrong_at(&s, good, e, "%s has a byte 0x%02x that is not UTF-8; UTF-8 is expected; correct it", row->name,
                        (unsigned char)text[good]);
    /* What is neither text nor a list may stand in quotes like everything else. */
    bool textual = row->type == ZF_TYPE_STRING || row->type == ZF_TYPE_PATH || row->type == ZF_TYPE_PATHS || row->type == ZF_TYPE_LIST;
    if (!textual && text[0] == '"') {
        ZF_TRY(parse_text(v, &s, e));
        s.text = v->text;
    }
    switch (row->type) {
    case ZF_TYPE_STRING: return parse_text(v, &s, e);
    case ZF_TYPE_PATH: return parse_path(v, &s, e);
    case ZF_TYPE_PATHS:
    case ZF_TYPE_LIST: return parse_list(v, &s, e);
    case ZF_TYPE_INT: return parse_int(v, &s, e);
    case ZF_TYPE_SIZE: return parse_size(v, &s, e);
    case ZF_TYPE_DURATION: return parse_duration(v, &s, e);
    case ZF_TYPE_FLOAT: return parse_float(v, &s, e);
    case ZF_TYPE_BOOL: return parse_bool(v, &s, e);
    case ZF_TYPE_CHOICE: return parse_choice(v, &s, e);
    }
    return zf_fail(e, ZF_USAGE, NULL, "option %s has no type", row->name);
}

void zf_value_store(struct zf_options *o, const struct zf_option *row, const struct zf_value *v)
{
    void *field = (char *)o + row->offset;
    switch (row->type) {
    case ZF_TYPE_STRING:
    case ZF_TYPE_PATH: memcpy(field, &v->text, sizeof v->text); break;
    case ZF_TYPE_PATHS:
    case ZF_TYPE_LIST: memcpy(field, &v->strings, sizeof v->strings); break;
    case ZF_TYPE_INT:
    case ZF_TYPE_SIZE: memcpy(field, &v->whole, sizeof v->whole); break;
    case ZF_TYPE_DURATION:
    case ZF_TYPE_FLOAT: memcpy(field, &v->real, sizeof v->real); break;
    case ZF_TYPE_BOOL: memcpy(field, &v->yes, sizeof v->yes); break;
    case ZF_TYPE_CHOICE: memcpy(field, &v->choice, sizeof v->choice); break;
    }
}

struct zf_value zf_value_load(const struct zf_options *o, const struct zf_option *row)
{
    const void *field = (const char *)o + row->offset;
    struct zf_value v = {0};
    switch (row->type) {
    case ZF_TYPE_STRING:
    case ZF_TYPE_PATH: memcpy(&v.text, field, sizeof v.text); break;
    case ZF_TYPE_PATHS:
    case ZF_TYPE_LIST: memcpy(&v.strings, field, sizeof v.strings); break;
    case ZF_TYPE_INT:
    case ZF_TYPE_SIZE: memcpy(&v.whole, field, sizeof v.whole); break;
    case ZF_TYPE_DURATION:
    case ZF_TYPE_FLOAT: memcpy(&v.real, field, sizeof v.real); break;
    case ZF_TYPE_BOOL: memcpy(&v.yes, field, sizeof v.yes); break;
    case ZF_TYPE_CHOICE: memcpy(&v.choice, field, sizeof v.choice); break;
    }
    return v;
}

static char *print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *print(const char *fmt, ...)
{
    char *out = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&out, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : out;
}

/* The shortest digits that read back, with a point in every locale and no zeros in the exponent: 2e-5. */
static char *print_real(double x, const char *suffix)
{
    char digits[64];
    locale_t c = c_locale(), before = c ? uselocale(c) : (locale_t)0;
    if (x == floor(x) && fabs(x) < 1e15)
        snprintf(digits, sizeof digits, "%.0f", x); /* %g would say 3e+01 */
    else
        for (int p = 1; p <= 17; p++) {
            snprintf(digits, sizeof digits, "%.*g", p, x);
            if (strtod(digits, NULL) == x) break;
        }
    if (c) {
        uselocale(before);
        freelocale(c);
    }
    char *exponent = strchr(digits, 'e');
    if (exponent) {
        char *from = exponent + 1, *to = from;
        if (*from == '+') from++;
        if (*from == '-') *to++ = *from++;
        while (*from == '0') from++;
        memmove(to, from, strlen(from) + 1);
    }
    return print("%s%s", digits, suffix);
}

static char *print_duration(double x)
{
    double hours = x / 3600, minutes = x / 60;
    if (x > 0 && hours == floor(hours) && hours * 3600 == x) return print_real(hours, "h");
    if (x > 0 && minutes == floor(minutes) && minutes * 60 == x) return print_real(minutes, "m");
    return print_real(x, "s");
}

static char *print_size(int64_t x)
{
    static const char letters[] = "GMk";
    for (int i = 0; i < 3 && x; i++) {
        int64_t factor = INT64_C(1) << (30 - 10 * i);
        if (x % factor == 0) return print("%lld%c", (long long)(x / factor), letters[i]);
    }
    return print("%lld", (long long)x);
}

static bool needs_quotes(const char *s, bool in_list)
{
    size_t n = strlen(s);
    if (!n || s[0] == '"' || zf_blank(s[0]) || zf_blank(s[n - 1])) return true;
    return strcspn(s, in_list ? "\n\r\t," : "\n\r\t") < n;
}

static void put_text(FILE *f, const char *s, bool in_list)
{
    if (!needs_quotes(s, in_list)) {
        fputs(s, f);
        return;
    }
    putc('"', f);
    for (; *s; s++) {
        static const char meant[] = "\n\t\r\"\\", letters[] = "ntr\"\\";
        const char *known = strchr(meant, *s);
        if (known)
            fprintf(f, "\\%c", letters[known - meant]);
        else
            putc(*s, f);
    }
    putc('"', f);
}

static char *print_strings(const struct zf_strings *all, bool in_list)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    if (!f) return NULL;
    if (!all->count) fputs("\"\"", f);
    for (size_t i = 0; i < all->count; i++) {
        if (i) fputs(", ", f);
        put_text(f, all->list[i], in_list);
    }
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(out);
        return NULL;
    }
    return out;
}

char *zf_value_text(const struct zf_option *row, const struct zf_value *v)
{
    char *text = (char *)(size_t)v->text;
    switch (row->type) {
    case ZF_TYPE_STRING:
    case ZF_TYPE_PATH: return print_strings(&(struct zf_strings){&text, 1}, false);
    case ZF_TYPE_PATHS:
    case ZF_TYPE_LIST: return print_strings(&v->strings, true);
    case ZF_TYPE_INT: return !v->whole && row->choice_count ? strdup(row->choices[0]) : print("%lld", (long long)v->whole);
    case ZF_TYPE_SIZE: return print_size(v->whole);
    case ZF_TYPE_DURATION: return print_duration(v->real);
    case ZF_TYPE_FLOAT: return print_real(v->real, "");
    case ZF_TYPE_BOOL: return strdup(v->yes ? "yes" : "no");
    case ZF_TYPE_CHOICE: return strdup(row->choices[v->choice]);
    }
    return NULL;
}
