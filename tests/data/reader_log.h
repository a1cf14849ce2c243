/* What a reader says about files, as one text: a record, an error or a count a line. For tests and fuzz targets.
 *
 * 3[text] is a record of line 3; 3[text> a piece that does not end its document, 3<text] one that does not begin it; fields are set apart
 * by |; !name:3:5 message up to its first `;` is an error. */
#ifndef ZF_TESTS_DATA_READER_LOG_H
#define ZF_TESTS_DATA_READER_LOG_H

#include "core/data/reader_impl.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void log_bytes(FILE *f, const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (s[i] == '\n')
            fputs("\\n", f);
        else if (s[i] == '\r')
            fputs("\\r", f);
        else if (isprint((unsigned char)s[i]))
            fputc(s[i], f);
        else
            fprintf(f, "\\x%02X", (unsigned char)s[i]);
    }
}

static inline int log_record(FILE *f, enum zf_data_format format, const struct zf_record *r, const char *bytes)
{
    struct zf_err e;
    int good = 1;
    fprintf(f, "%llu%c", (unsigned long long)r->line, r->first ? '[' : '<');
    if (r->columns) {
        char *room = malloc(r->size + 1);
        size_t n = r->columns->count, *sizes = calloc(n, sizeof *sizes);
        const char **texts = calloc(n, sizeof *texts);
        good = room && sizes && texts && zf_csv_fields(format, bytes, r->size, n, texts, sizes, room, &e) == ZF_OK;
        for (size_t i = 0; i < n && good; i++) {
            if (i) fputc('|', f);
            log_bytes(f, texts[i], sizes[i]);
        }
        free(sizes);
        free(texts);
        free(room);
    } else {
        log_bytes(f, bytes, r->size);
    }
    fprintf(f, "%c\n", r->last ? ']' : '>');
    return good;
}

/* To be freed; NULL: something that must not be. Goes on behind ZF_FORMAT. */
static inline char *reader_log(const struct zf_reader_options *o, struct zf_err *e)
{
    struct zf_reader *r;
    struct zf_text into = {0};
    char *text = NULL;
    size_t size = 0;
    int good = 1;
    if (zf_reader_open(&r, o, e)) return NULL;
    FILE *f = open_memstream(&text, &size);
    for (bool over = !f; !over && good;) {
        struct zf_record record;
        bool more;
        into.size = into.size > 100 ? 0 : into.size; /* records are appended */
        size_t had = into.size;
        enum zf_status s = zf_reader_next(r, &into, &record, &more, e);
        over = s ? s != ZF_FORMAT : !more;
        if (s == ZF_FORMAT) {
            const char *slash = strrchr(e->where, '/');
            fprintf(f, "!%s %.*s\n", slash ? slash + 1 : e->where, (int)strcspn(e->message, ";"), e->message);
            good = into.size == had && e->message[0];
        } else if (s) {
            fprintf(f, "!%d\n", (int)s);
        } else if (more) {
            good = record.begin == had && record.size == into.size - had && record.file < o->file_count;
            good = good && log_record(f, o->format, &record, into.data ? into.data + record.begin : "");
        }
    }
    if (f) {
        if (zf_reader_empty_files(r)) fprintf(f, "empty files: %llu\n", (unsigned long long)zf_reader_empty_files(r));
        fclose(f);
    }
    free(into.data);
    zf_reader_close(r);
    if (good) return text;
    free(text);
    return NULL;
}

/* A place to cut: behind the last space. */
static inline size_t cut_at_space(const void *context, const char *text, size_t size)
{
    (void)context;
    while (size && text[size - 1] != ' ') size--;
    return size;
}

#endif
