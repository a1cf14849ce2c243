/* A panel into a file: its numbers as CSV or NPY, its picture as SVG or text. Written beside the file and renamed: a reader sees the old
 * one or the whole new one. */
#include "core/base/file.h"
#include "tui/panels/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLS = 120, ROWS = 36 }; /* of a picture */

/* ---- CSV (RFC 4180) ---- */

static void put_text(FILE *to, const char *s)
{
    bool plain = !s[strcspn(s, ",\"\r\n")];
    if (plain) {
        fputs(s, to);
        return;
    }
    putc('"', to);
    for (; *s; s++) {
        if (*s == '"') putc('"', to);
        putc(*s, to);
    }
    putc('"', to);
}

/* The shortest text that reads back to the same number. */
static void put_number(FILE *to, double x)
{
    char text[40];
    if (isnan(x)) {
        fputs("nan", to);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    fputs(text, to);
}

static bool has_text(const struct zf_table *t)
{
    for (size_t i = 0; i < t->rows; i++)
        if (t->text[i]) return true;
    return false;
}

static enum zf_status csv(FILE *to, const struct zf_table *t, const char *path, struct zf_err *e)
{
    bool text = has_text(t);
    (void)path;
    (void)e;
    for (size_t i = 0; i < t->columns; i++) {
        if (i) putc(',', to);
        put_text(to, t->column[i]);
    }
    fprintf(to, "%s%s\r\n", text && t->columns ? "," : "", text ? "text" : "");
    for (size_t row = 0; row < t->rows; row++) {
        for (size_t i = 0; i < t->columns; i++) {
            if (i) putc(',', to);
            double x = t->cell[row * t->columns + i];
            if (t->words && t->words[i])
                put_text(to, t->words[i][(size_t)x]);
            else
                put_number(to, x);
        }
        if (text && t->columns) putc(',', to);
        if (text) put_text(to, t->text[row] ? t->text[row] : "");
        fputs("\r\n", to);
    }
    return ZF_OK;
}

/* ---- NPY: format 1.0, or 2.0 for a long header; a field of float64 a column ---- */

/* As a Python string; a name that was there before gets a number. */
static void put_name(FILE *to, const struct zf_table *t, size_t i)
{
    size_t before = 0;
    for (size_t k = 0; k < i; k++) before += !strcmp(t->column[k], t->column[i]);
    putc('\'', to);
    for (const unsigned char *s = (const unsigned char *)t->column[i]; *s; s++) {
        if (*s == '\'' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if (*s < 0x20 || *s >= 0x7f)
            fprintf(to, "\\x%02x", *s);
        else
            putc(*s, to);
    }
    if (before || !*t->column[i]) fprintf(to, "#%zu", i);
    putc('\'', to);
}

static void little(FILE *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) putc((int)(x >> 8 * i & 0xff), to);
}

static enum zf_status npy(FILE *to, const struct zf_table *t, const char *path, struct zf_err *e)
{
    char *head = NULL;
    size_t size = 0;
    if (!t->columns)
        return zf_fail(e, ZF_USAGE, path, "this panel has words and no numbers, and .npy holds numbers; write it as .csv or .txt");
    FILE *h = open_memstream(&head, &size);
    if (!h) return zf_fail_memory(e, "a file's header");
    fputs("{'descr': [", h);
    for (size_t i = 0; i < t->columns; i++) {
        if (i) fputs(", ", h);
        putc('(', h);
        put_name(h, t, i);
        fputs(", '<f8')", h);
    }
    fprintf(h, "], 'fortran_order': False, 'shape': (%zu,), }", t->rows);
    if (fclose(h)) {
        free(head);
        return zf_fail_memory(e, "a file's header");
    }
    int version = size + 1 + 64 < 65536 ? 1 : 2, before = version == 1 ? 10 : 12;
    size_t pad = (64 - ((size_t)before + size + 1) % 64) % 64;
    fwrite("\x93NUMPY", 1, 6, to);
    putc(version, to);
    putc(0, to);
    little(to, size + pad + 1, version == 1 ? 2 : 4);
    fwrite(head, 1, size, to);
    for (size_t i = 0; i < pad; i++) putc(' ', to);
    putc('\n', to);
    free(head);
    for (size_t i = 0; i < t->rows * t->columns; i++) {
        uint64_t bits;
        memcpy(&bits, &t->cell[i], sizeof bits);
        little(to, bits, 8);
    }
    return ZF_OK;
}

/* ---- pictures ---- */

static char *picture(const struct zf_view *v, enum zf_panel_id id, bool svg)
{
    struct zf_canvas c = {.glyphs = v->glyphs, .shades = !svg};
    struct zf_layout l = {.panel = {{0}}};
    struct zf_view alone = *v;
    char *text = NULL;
    alone.focus = ZF_PANELS; /* nothing is in focus on paper */
    if (zf_canvas_resize(&c, COLS, ROWS)) {
        l.panel[id] = zf_canvas_all(&c);
        zf_draw(&alone, &l, &c);
        text = svg ? zf_canvas_svg(&c, zf_canvas_all(&c), v->scheme == ZF_SCHEME_MONO ? ZF_SCHEME_DARK : v->scheme)
                   : zf_canvas_text(&c, false);
    }
    zf_canvas_free(&c);
    return text;
}

static enum zf_status write_picture(const struct zf_view *v, enum zf_panel_id id, bool svg, const char *path, struct zf_err *e)
{
    char *text = picture(v, id, svg);
    if (!text) return zf_fail_memory(e, "a picture of a panel");
    enum zf_status s = zf_file_write_atomic(path, text, strlen(text), e);
    free(text);
    return s;
}

static enum zf_status write_numbers(const struct zf_view *v, enum zf_panel_id id,
                                    enum zf_status (*as)(FILE *to, const struct zf_table *t, const char *path, struct zf_err *e),
                                    const char *path, struct zf_err *e)
{
    struct zf_table t = {0};
    char *text = NULL;
    size_t size = 0;
    zf_panel_table[id].table(v, &t);
    enum zf_status s = ZF_OK;
    FILE *to = NULL;
    if (t.failed)
        s = zf_fail_memory(e, "a panel's numbers");
    else if (!t.rows)
        s = zf_fail(e, ZF_USAGE, path, "the panel `%s` has no data yet; nothing was written", zf_panel_words[id]);
    else if (!(to = open_memstream(&text, &size)))
        s = zf_fail_memory(e, "a panel's numbers");
    else
        s = as(to, &t, path, e);
    if (to && fclose(to) && s == ZF_OK) s = zf_fail_memory(e, "a panel's numbers");
    if (s == ZF_OK) s = zf_file_write_atomic(path, text, size, e);
    free(text);
    zf_table_free(&t);
    return s;
}

enum zf_status zf_write_panel(const struct zf_view *v, enum zf_panel_id id, const char *path, struct zf_err *e)
{
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/'), *end = dot && (!slash || dot > slash) ? dot : "";
    if ((unsigned)id >= ZF_PANELS) return zf_fail(e, ZF_USAGE, NULL, "there is no such panel");
    if (!strcmp(end, ".csv")) return write_numbers(v, id, csv, path, e);
    if (!strcmp(end, ".npy")) return write_numbers(v, id, npy, path, e);
    if (!strcmp(end, ".svg") || !strcmp(end, ".txt")) return write_picture(v, id, end[1] == 's', path, e);
    return zf_fail(e, ZF_USAGE, path, "its ending is %s%s%s; expected .csv or .npy (numbers), .svg or .txt (the picture)", *end ? "`" : "",
                   *end ? end : "none", *end ? "`" : "");
}
