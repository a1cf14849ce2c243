/* The reader: files one after the other through one buffer, records cut out of it by the format's scanner.
 *
 * read(), never a mapping: a file that shrinks while we read ends early and does no harm. The buffer holds the thing at the front and a
 * block behind it; it grows with the longest record, up to the limit, and what is longer is dropped as it arrives. */
#include "core/data/reader_impl.h"

#include "core/base/file.h"
#include "core/base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t zf_reader_head = 1024, zf_reader_block = 256 << 10, zf_reader_limit = ZF_RECORD_LIMIT, zf_reader_piece = ZF_TEXT_PIECE;

static const struct {
    enum zf_found (*scan)(struct zf_reader *, struct zf_find *, struct zf_err *);
    enum zf_found (*accept)(struct zf_reader *, struct zf_find *, struct zf_err *);
} formats[] = {
    [ZF_DATA_TEXT] = {zf_scan_text, NULL},           [ZF_DATA_JSONL] = {zf_scan_line, NULL},         [ZF_DATA_JSON] = {zf_scan_json, NULL},
    [ZF_DATA_TSV] = {zf_scan_line, zf_table_accept}, [ZF_DATA_CSV] = {zf_scan_csv, zf_table_accept},
};

static size_t count_newlines(const char *s, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += s[i] == '\n';
    return n;
}

static size_t count_characters(const char *s, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += (s[i] & 0xC0) != 0x80;
    return n;
}

/* Moves a place over text. A column is a character, as editors count. */
static void move(uint64_t *line, uint64_t *column, const char *text, size_t size)
{
    const char *newline = size ? memrchr(text, '\n', size) : NULL;
    if (newline) {
        size_t tail = (size_t)(newline - text) + 1;
        *line += count_newlines(text, tail);
        *column = 1;
        text += tail;
        size -= tail;
    }
    *column += count_characters(text, size);
}

static void consume(struct zf_reader *r, size_t n)
{
    move(&r->line, &r->column, r->buffer + r->begin, n);
    r->begin += n;
    r->offset += n;
    r->scan = r->scan > n ? r->scan - n : 0;
}

enum zf_found zf_reader_bad(const struct zf_reader *r, size_t offset, struct zf_err *e, const char *fmt, ...)
{
    char where[sizeof e->where];
    uint64_t line = r->line, column = r->column;
    if (offset != ZF_WHOLE) move(&line, &column, r->buffer + r->begin, offset);
    va_list ap;
    va_start(ap, fmt);
    zf_vfail(e, ZF_FORMAT, zf_place(where, sizeof where, r->o.files[r->file], line, offset == ZF_WHOLE ? 0 : column), fmt, ap);
    va_end(ap);
    return ZF_FOUND_BAD;
}

/* Room for a block behind end. A move is paid for by the bytes that are read before the next one: as many, at least, as it moves. */
static enum zf_status make_room(struct zf_reader *r, struct zf_err *e)
{
    size_t held = r->end - r->begin, block = zf_reader_block;
    if (r->room - r->end >= block) return ZF_OK;
    if (r->room < 2 * held + block) {
        size_t room = 2 * held + 2 * block;
        char *more = malloc(room);
        if (!more) return zf_fail_memory(e, "the data's buffer");
        if (held) memcpy(more, r->buffer + r->begin, held);
        free(r->buffer);
        r->buffer = more;
        r->room = room;
    } else {
        memmove(r->buffer, r->buffer + r->begin, held);
    }
    r->begin = 0;
    r->end = held;
    return ZF_OK;
}

static enum zf_status fill(struct zf_reader *r, struct zf_err *e)
{
    if (r->o.stop && *r->o.stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data");
    ZF_TRY(make_room(r, e));
    ssize_t n;
    do n = read(r->fd, r->buffer + r->end, zf_reader_block);
    while (n < 0 && errno == EINTR);
    if (n < 0) return zf_fail_errno(e, r->o.files[r->file], "cannot read it after %llu bytes", (unsigned long long)r->offset);
    r->eof = !n;
    r->end += (size_t)n;
    r->bytes += (size_t)n;
    return ZF_OK;
}

static void close_file(struct zf_reader *r)
{
    if (r->fd < 0) return;
    close(r->fd);
    r->fd = -1;
    if (!r->any) r->empty_files++;
    r->file++;
}

static enum zf_status open_file(struct zf_reader *r, struct zf_err *e)
{
    struct stat st;
    if (r->o.stop && *r->o.stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data");
    ZF_TRY(zf_file_open(&r->fd, &st, r->o.files[r->file], e));
    (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    r->begin = r->end = r->scan = 0;
    r->offset = 0;
    r->line = r->column = 1;
    r->eof = r->skip = r->done = r->any = false;
    r->header = r->o.format == ZF_DATA_TSV || r->o.format == ZF_DATA_CSV;
    r->json = (struct zf_json_scan){0};
    r->csv = (struct zf_csv_scan){0};
    r->text = (struct zf_text_scan){0};
    while (!r->eof && r->end < zf_reader_head) ZF_TRY(fill(r, e));
    return ZF_OK;
}

static enum zf_found check_head(struct zf_reader *r, struct zf_err *e)
{
    size_t size;
    const char *s = zf_reader_front(r, &size);
    if (size >= 3 && !memcmp(s, "\xEF\xBB\xBF", 3)) {
        consume(r, 3);
        r->column = 1;
        s = zf_reader_front(r, &size);
    }
    const struct zf_other *other = r->o.any_bytes ? NULL : zf_other_file(s, size);
    if (other) return zf_reader_bad(r, 0, e, "the file is %s; %s", other->what, other->todo);
    if (!r->o.any_bytes && size >= 4 && !s[0] != !s[1] && !s[0] == !s[2] && !s[1] == !s[3]) {
        return zf_reader_bad(r, 0, e,
                             "every other byte is 0: the file looks like UTF-16; expected UTF-8: convert it (iconv -f UTF-16%s -t UTF-8)",
                             s[0] ? "LE" : "BE");
    }
    /* A pointer is short; a web page can be meant as text, and in jsonl and json its first line says what it is. */
    const char *guess = zf_json_guess(s, size);
    bool pointer = size && s[0] == 'v' && r->eof && size <= zf_reader_head;
    bool page = r->header && size > 1 && s[0] == '<' && strchr("!hH", s[1]);
    if (*guess && (pointer || page)) return zf_reader_bad(r, 0, e, "this is no data%s", guess);
    return ZF_FOUND_MORE;
}

static enum zf_found bad_utf8(const struct zf_reader *r, size_t at, bool inside, struct zf_err *e)
{
    return zf_reader_bad(r, at, e,
                         "byte 0x%02X at offset %llu is no UTF-8; expected UTF-8 text: convert the file (iconv -f ISO-8859-1 -t UTF-8), or "
                         "set skip_bad = yes to leave the %s out",
                         (unsigned char)r->buffer[r->begin + at], (unsigned long long)(r->offset + at),
                         r->o.format != ZF_DATA_TEXT ? "record"
                         : inside                    ? "rest of the document"
                                                     : "document");
}

static enum zf_found too_long(const struct zf_reader *r, struct zf_err *e)
{
    static const char *const why[] = {
        [ZF_DATA_JSONL] = "is the file without line ends? jsonl has a record a line",
        [ZF_DATA_JSON] = "is a `\"` or a `}` missing in it?",
        [ZF_DATA_TSV] = "is the file without line ends?",
        [ZF_DATA_CSV] = "is a quote in it not closed?",
    };
    return zf_reader_bad(r, ZF_WHOLE, e, "the record has more than %zu MiB; a record may not be longer: %s", zf_reader_limit >> 20,
                         why[r->o.format]);
}

enum zf_found zf_scan_line(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    (void)e;
    size_t size;
    const char *text = zf_reader_front(r, &size), *newline = size > r->scan ? memchr(text + r->scan, '\n', size - r->scan) : NULL;
    if (!newline) {
        r->scan = size;
        if (!r->eof) return ZF_FOUND_MORE;
        if (!size && !r->skip) return ZF_FOUND_END;
    }
    f->size = newline ? (size_t)(newline - text) : size;
    f->next = newline ? f->size + 1 : size;
    if (f->size && text[f->size - 1] == '\r') f->size--;
    if (r->o.format == ZF_DATA_TSV) return ZF_FOUND_RECORD; /* white space may be fields */
    size_t i = 0;
    while (i < f->size && zf_reader_white(text[i])) i++;
    return i < f->size || r->skip || f->size > zf_reader_limit ? ZF_FOUND_RECORD : ZF_FOUND_GAP;
}

/* What is at the front of the open file, as far as the buffer shows it. */
static enum zf_found find(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    bool inside = r->text.inside;
    enum zf_found found = formats[r->o.format].scan(r, f, e);
    if (r->skip) {
        if (found == ZF_FOUND_MORE) {
            f->next = r->scan;
            return r->scan ? ZF_FOUND_GAP : ZF_FOUND_MORE;
        }
        r->skip = !f->last;
        return ZF_FOUND_GAP;
    }
    size_t unended = found == ZF_FOUND_MORE ? r->scan : found == ZF_FOUND_BAD ? f->next : 0;
    if (unended > zf_reader_limit + 2 && r->o.format != ZF_DATA_TEXT) { /* 2: a line end is not part of it */
        f->last = found == ZF_FOUND_BAD;
        f->next = f->last ? f->next : 0;
        found = too_long(r, e);
    } else if (found == ZF_FOUND_RECORD) {
        size_t good = r->o.any_bytes ? f->size : zf_utf8_check(r->buffer + r->begin, f->size);
        if (f->size > zf_reader_limit)
            found = too_long(r, e);
        else if (good < f->size)
            found = bad_utf8(r, good, inside, e);
        else if (formats[r->o.format].accept)
            found = formats[r->o.format].accept(r, f, e);
    }
    if (found == ZF_FOUND_BAD) {
        r->skip = !f->last;
        r->done |= r->header; /* without it the rest says nothing */
    }
    if (found == ZF_FOUND_BAD || found == ZF_FOUND_RECORD) r->any = true;
    return found;
}

static enum zf_status next_in_file(struct zf_reader *r, struct zf_text *into, struct zf_record *out, bool *more, struct zf_err *e)
{
    for (;;) {
        struct zf_find f = {.last = true};
        if (r->done) {
            close_file(r);
            return ZF_OK;
        }
        bool first = r->o.format != ZF_DATA_TEXT || !r->text.inside;
        enum zf_found found = find(r, &f, e);
        if (found == ZF_FOUND_MORE) {
            ZF_TRY(fill(r, e));
            continue;
        }
        if (found == ZF_FOUND_END) {
            close_file(r);
            return ZF_OK;
        }
        if (found != ZF_FOUND_GAP) {
            *out = (struct zf_record){
                .file = (uint32_t)r->file, .line = r->line, .column = r->column, .begin = into->size, .first = first, .last = true};
        }
        if (found == ZF_FOUND_RECORD) {
            ZF_TRY(zf_text_add(into, r->buffer + r->begin, f.size, e));
            out->size = f.size;
            out->last = f.last;
            out->columns = zf_table_columns(r);
        }
        out->lost = found == ZF_FOUND_BAD && r->done;
        if (r->o.format == ZF_DATA_TEXT && found != ZF_FOUND_GAP) r->text.inside = !f.last && found == ZF_FOUND_RECORD;
        consume(r, f.next);
        *more = found != ZF_FOUND_GAP;
        if (*more) return found == ZF_FOUND_RECORD ? ZF_OK : e->code;
    }
}

enum zf_status zf_reader_next(struct zf_reader *r, struct zf_text *into, struct zf_record *out, bool *more, struct zf_err *e)
{
    *more = false;
    *out = (struct zf_record){.begin = into->size, .first = true, .last = true};
    while (!*more) {
        if (r->fd < 0) {
            if (r->file == r->o.file_count) return ZF_OK;
            ZF_TRY(open_file(r, e));
            if (check_head(r, e) == ZF_FOUND_BAD) {
                *out =
                    (struct zf_record){.file = (uint32_t)r->file, .line = 1, .column = 1, .begin = into->size, .first = true, .last = true};
                r->any = true;
                r->done = true;
                out->lost = true;
                return e->code;
            }
        }
        ZF_TRY(next_in_file(r, into, out, more, e));
    }
    return ZF_OK;
}

struct identity {
    dev_t device;
    ino_t inode;
    size_t index;
};

static int compare_identities(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Before hours are spent on the first file: all are there, are files, and no two are one. */
static enum zf_status check_files(const struct zf_reader_options *o, struct zf_err *e)
{
    struct identity *list = calloc(o->file_count + 1, sizeof *list);
    if (!list) return zf_fail_memory(e, "the list of files");
    enum zf_status s = ZF_OK;
    for (size_t i = 0; i < o->file_count && !s; i++) {
        struct stat st;
        int fd;
        if (zf_file_open(&fd, &st, o->files[i], e)) {
            s = zf_unreadable(e);
            break;
        }
        close(fd);
        list[i] = (struct identity){st.st_dev, st.st_ino, i};
    }
    if (!s) qsort(list, o->file_count, sizeof *list, compare_identities);
    for (size_t i = 1; i < o->file_count && !s; i++) {
        const struct identity *a = &list[i - 1], *b = &list[i];
        if (a->device != b->device || a->inode != b->inode) continue;
        s = zf_fail(e, ZF_USAGE, o->files[b->index],
                    "the file is given twice (file %zu is the same, %.200s); name it once, or use more epochs to see it more often",
                    a->index + 1, o->files[a->index]);
    }
    free(list);
    return s;
}

enum zf_status zf_reader_open(struct zf_reader **out, const struct zf_reader_options *o, struct zf_err *e)
{
    *out = NULL;
    ZF_TRY(check_files(o, e));
    struct zf_reader *r = calloc(1, sizeof *r);
    if (!r) return zf_fail_memory(e, "the reader");
    r->o = *o;
    const char *d = o->documents && *o->documents ? o->documents : "file";
    r->documents = !strcmp(d, "file") ? ZF_DOCUMENTS_FILE : !strcmp(d, "blank") ? ZF_DOCUMENTS_BLANK : ZF_DOCUMENTS_SEPARATOR;
    r->fd = -1;
    *out = r;
    return ZF_OK;
}

void zf_reader_close(struct zf_reader *r)
{
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    zf_table_free(r);
    free(r->buffer);
    free(r);
}

uint64_t zf_reader_empty_files(const struct zf_reader *r)
{
    return r->empty_files;
}

uint64_t zf_reader_bytes(const struct zf_reader *r)
{
    return r->bytes;
}
