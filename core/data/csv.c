/* tsv and csv: where a record ends, the header, the fields of a record. Pure but for the reader they are given.
 *
 * csv is RFC 4180; a quote inside a field that does not begin with one is ordinary text, as spreadsheets have it. In tsv a quote means
 * nothing at all: GLUE's files are full of bare ones. */
#include "core/data/reader_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct zf_header {
    struct zf_columns columns; /* columns.names is `names`, texts in `storage` */
    const char **names;
    char *storage;
    struct zf_header *before;
};

/* Quotes that are no longer there when the file goes wrong are looked for in vain: say where they were opened. */
static enum zf_found not_closed(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t opened = r->csv.opened;
    r->csv = (struct zf_csv_scan){0};
    r->done = true;
    f->next = r->end - r->begin;
    return zf_reader_bad(r, opened, e,
                         "the quote that opens here is never closed, and the file ends inside it; close it, double quotes inside of "
                         "quotes (\"\"), or set format = tsv if quotes mean nothing");
}

/* Looks at the byte at `i` in a state other than PLAIN and QUOTED; says whether the record ends here. */
static bool step(struct zf_csv_scan *c, char byte, size_t i)
{
    bool quote = c->state == ZF_CSV_QUOTE || c->state == ZF_CSV_QUOTE_CR;
    if (byte == '\n') return true;
    if (byte == ',' && c->state != ZF_CSV_QUOTE_CR) {
        c->fields++;
        c->state = ZF_CSV_FIELD;
    } else if (byte == '"' && c->state == ZF_CSV_QUOTE) {
        c->state = ZF_CSV_QUOTED;
    } else if (byte == '"' && c->state == ZF_CSV_FIELD) {
        c->state = ZF_CSV_QUOTED;
        c->opened = i;
    } else if (byte == '\r' && c->state == ZF_CSV_QUOTE) {
        c->state = ZF_CSV_QUOTE_CR;
    } else {
        if (quote && !c->text) c->text = i + 1;
        c->fields += byte == ','; /* behind the text of a stray CR */
        c->state = byte == ',' ? ZF_CSV_FIELD : ZF_CSV_PLAIN;
    }
    return false;
}

enum zf_found zf_scan_csv(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t size, i = r->scan;
    const char *text = zf_reader_front(r, &size);
    struct zf_csv_scan c = r->csv;
    bool ended = false;
    while (i < size && !ended) {
        if (c.state == ZF_CSV_PLAIN) {
            while (i < size && text[i] != ',' && text[i] != '\n') i++;
            if (i == size) break;
        } else if (c.state == ZF_CSV_QUOTED) {
            const char *quote = memchr(text + i, '"', size - i);
            i = quote ? (size_t)(quote - text) + 1 : size;
            if (quote) c.state = ZF_CSV_QUOTE;
            continue;
        }
        ended = step(&c, text[i], i);
        if (!ended) i++;
    }
    r->scan = i;
    r->csv = c;
    if (!ended && !r->eof) return ZF_FOUND_MORE;
    if (!ended && c.state == ZF_CSV_QUOTED && !r->skip) return not_closed(r, f, e);
    if (!size && !r->skip) return ZF_FOUND_END;
    r->csv = (struct zf_csv_scan){.count = c.fields + 1, .bad = c.text};
    f->size = i;
    f->next = ended ? i + 1 : i;
    if (f->size && text[f->size - 1] == '\r') f->size--;
    return ZF_FOUND_RECORD;
}

static size_t count_tabs(const char *s, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += s[i] == '\t';
    return n;
}

/* The field at *at, which moves behind it and its separator; past `size` after the last one. */
static enum zf_status next_field(enum zf_data_format format, const char *s, size_t size, size_t *at, const char **text, size_t *length,
                                 char **room, struct zf_err *e)
{
    bool csv = format == ZF_DATA_CSV;
    if (!csv || *at == size || s[*at] != '"') {
        const char *end = *at < size ? memchr(s + *at, csv ? ',' : '\t', size - *at) : NULL;
        *text = s + *at;
        *length = end ? (size_t)(end - *text) : size - *at;
        *at += *length + 1;
        return ZF_OK;
    }
    size_t begin = *at + 1;
    char *to = *room; /* moves once something was copied */
    for (;;) {
        const char *quote = begin < size ? memchr(s + begin, '"', size - begin) : NULL;
        if (!quote) return zf_fail(e, ZF_FORMAT, NULL, "a quote is not closed");
        size_t end = (size_t)(quote - s);
        bool twice = end + 1 < size && s[end + 1] == '"';
        if (twice || to > *room) {
            memcpy(to, s + begin, end - begin + twice);
            to += end - begin + twice;
        }
        if (twice) {
            begin = end + 2;
            continue;
        }
        if (end + 1 < size && s[end + 1] != ',') return zf_fail(e, ZF_FORMAT, NULL, "text follows a closed quote");
        *text = to > *room ? *room : s + begin;
        *length = to > *room ? (size_t)(to - *room) : end - begin;
        *room = to;
        *at = end + 2;
        return ZF_OK;
    }
}

enum zf_status zf_csv_fields(enum zf_data_format format, const char *record, size_t size, size_t count, const char **texts, size_t *sizes,
                             char *room, struct zf_err *e)
{
    size_t at = 0, n = 0;
    for (; at <= size && n < count; n++) ZF_TRY(next_field(format, record, size, &at, &texts[n], &sizes[n], &room, e));
    if (n == count && at > size) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, NULL, "the record has not the %zu fields of the header", count);
}

static void free_header(struct zf_header *h)
{
    if (!h) return;
    free(h->names);
    free(h->storage);
    free(h);
}

void zf_table_free(struct zf_reader *r)
{
    while (r->headers) {
        struct zf_header *h = r->headers;
        r->headers = h->before;
        free_header(h);
    }
}

const struct zf_columns *zf_table_columns(const struct zf_reader *r)
{
    return r->headers ? &r->headers->columns : NULL;
}

static bool equal(const struct zf_columns *a, const struct zf_columns *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) same = !strcmp(a->names[i], b->names[i]);
    return same;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum zf_found check_names(const struct zf_reader *r, const struct zf_header *h, const size_t *sizes, const char **sorted,
                                 struct zf_err *e)
{
    size_t count = h->columns.count;
    for (size_t i = 0; i < count; i++) {
        if (!sizes[i]) {
            return zf_reader_bad(r, ZF_WHOLE, e,
                                 "column %zu of the header has no name; every column needs one (pandas writes such a column unless it is "
                                 "told index=False)",
                                 i + 1);
        }
        if (strlen(h->names[i]) != sizes[i])
            return zf_reader_bad(r, ZF_WHOLE, e, "the name of column %zu has a NUL byte; rename it", i + 1);
    }
    memcpy(sorted, h->names, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1], sorted[i])) continue;
        return zf_reader_bad(r, ZF_WHOLE, e, "two columns have the name '%.100s'; rename one of them in the header", sorted[i]);
    }
    return ZF_FOUND_GAP;
}

/* Texts -> NUL-terminated names in storage of their own. */
static enum zf_found set_names(struct zf_reader *r, struct zf_header *h, size_t count, size_t size, struct zf_err *e)
{
    char *unquoted = malloc(size + 1);
    const char **texts = calloc(count, sizeof *texts);
    size_t *sizes = calloc(count, sizeof *sizes);
    h->names = calloc(count, sizeof *h->names);
    h->storage = malloc(size + count + 1);
    h->columns = (struct zf_columns){h->names, count};
    enum zf_found found = ZF_FOUND_BAD;
    if (!unquoted || !texts || !sizes || !h->names || !h->storage) {
        zf_fail_memory(e, "the header");
    } else if (!zf_csv_fields(r->o.format, r->buffer + r->begin, size, count, texts, sizes, unquoted, e)) {
        char *to = h->storage;
        for (size_t i = 0; i < count; i++) {
            h->names[i] = to;
            if (sizes[i]) memcpy(to, texts[i], sizes[i]);
            to[sizes[i]] = 0;
            to += sizes[i] + 1;
        }
        found = check_names(r, h, sizes, texts, e);
    }
    free(unquoted);
    free(texts);
    free(sizes);
    return found;
}

static enum zf_found take_header(struct zf_reader *r, size_t size, size_t count, struct zf_err *e)
{
    if (count > ZF_COLUMNS_MOST)
        return zf_reader_bad(r, ZF_WHOLE, e, "the header has %zu columns; at most %d are expected", count, ZF_COLUMNS_MOST);
    struct zf_header *h = calloc(1, sizeof *h);
    if (!h) {
        zf_fail_memory(e, "the header");
        return ZF_FOUND_BAD;
    }
    enum zf_found found = set_names(r, h, count, size, e);
    if (found != ZF_FOUND_GAP || (r->headers && equal(&r->headers->columns, &h->columns))) {
        free_header(h); /* files of one table share a header */
    } else {
        h->before = r->headers;
        r->headers = h;
    }
    if (found == ZF_FOUND_GAP) {
        r->header = false;
        r->any = true;
    }
    return found;
}

static enum zf_found wrong_count(const struct zf_reader *r, size_t count, struct zf_err *e)
{
    const struct zf_columns *c = zf_table_columns(r);
    char names[256];
    size_t n = 0;
    for (size_t i = 0; i < c->count && n < sizeof names; i++) {
        bool room = n + strlen(c->names[i]) + 6 < sizeof names;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", room ? c->names[i] : "...");
        if (!room) break;
    }
    bool csv = r->o.format == ZF_DATA_CSV;
    return zf_reader_bad(r, ZF_WHOLE, e, "it has %zu field%s, the header has %zu (%s); %s", count, count == 1 ? "" : "s", c->count, names,
                         csv ? "quote fields that hold commas or line ends" : "fields are separated by tabs, and may not hold any");
}

enum zf_found zf_table_accept(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    const char *text = r->buffer + r->begin;
    bool csv = r->o.format == ZF_DATA_CSV;
    size_t i = 0, count = csv ? r->csv.count : count_tabs(text, f->size) + 1, bad = csv ? r->csv.bad : 0;
    while (i < f->size && (text[i] == ' ' || (csv && text[i] == '\t'))) i++;
    if (i == f->size) return ZF_FOUND_GAP;
    if (bad) {
        return zf_reader_bad(r, bad - 1, e,
                             "text follows a closed quote; expected a comma or the line's end: double quotes inside of quotes (\"\")");
    }
    if (r->header) return take_header(r, f->size, count, e);
    return count == zf_table_columns(r)->count ? ZF_FOUND_RECORD : wrong_count(r, count, e);
}
