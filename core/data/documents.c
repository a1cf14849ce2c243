/* text: documents of a file, and pieces of a long one. Pure but for the reader.
 *
 * Where a document is cut depends on its bytes alone, never on how they arrived: a place is looked for in exactly the first piece's bytes
 * of what is left, then in twice as many, and so on. */
#include "core/data/reader_impl.h"

#include <string.h>

static bool is_blank(const char *text, size_t size)
{
    size_t i = 0;
    while (i < size && zf_reader_white(text[i])) i++;
    return i == size;
}

static void found(struct zf_text_scan *t, size_t end, size_t next)
{
    t->found = true;
    t->end = end;
    t->next = next;
}

/* Each of these looks from *scan on, sets the end if it is there, and returns how many bytes surely belong to the document. */
static size_t scan_file(struct zf_text_scan *t, size_t *scan, const char *text, size_t size, bool eof)
{
    (void)text;
    *scan = size;
    if (eof) found(t, size, size);
    return size;
}

static size_t scan_separator(struct zf_text_scan *t, size_t *scan, const char *text, size_t size, bool eof, const char *separator)
{
    size_t n = strlen(separator);
    const char *hit = memmem(text + *scan, size - *scan, separator, n);
    if (hit)
        found(t, (size_t)(hit - text), (size_t)(hit - text) + n);
    else if (eof)
        found(t, size, size);
    else if (size >= n && size - n + 1 > *scan)
        *scan = size - n + 1; /* a separator may begin behind */
    return *scan;
}

/* Paragraphs between blank lines, without the last line's end. A line of white space as long as a piece is text. */
static size_t scan_paragraph(struct zf_text_scan *t, size_t *scan, const char *text, size_t size, bool eof)
{
    for (;;) {
        const char *newline = *scan < size ? memchr(text + *scan, '\n', size - *scan) : NULL;
        size_t stop = newline ? (size_t)(newline - text) : size;
        if (!t->filled) {
            t->blank_size += stop - *scan;
            t->filled = t->blank_size > zf_reader_piece || !is_blank(text + *scan, stop - *scan);
        }
        *scan = newline ? stop + 1 : stop;
        if (!newline && !eof) return t->filled && stop > t->end + 1 ? stop - 1 : t->end; /* a CR may belong to the line's end */
        if (t->filled) t->end = stop && text[stop - 1] == '\r' ? stop - 1 : stop;
        if (!newline || !t->filled) {
            found(t, t->end, *scan); /* an end of 0: blank lines in front */
            return t->end;
        }
        t->filled = false;
        t->blank_size = 0;
    }
}

static size_t scan(struct zf_reader *r, const char *text, size_t size)
{
    struct zf_text_scan *t = &r->text;
    size_t known = t->end;
    if (t->found) return known;
    switch (r->documents) {
    case ZF_DOCUMENTS_FILE: known = scan_file(t, &r->scan, text, size, r->eof); break;
    case ZF_DOCUMENTS_BLANK: known = scan_paragraph(t, &r->scan, text, size, r->eof); break;
    case ZF_DOCUMENTS_SEPARATOR: known = scan_separator(t, &r->scan, text, size, r->eof, r->o.documents); break;
    }
    return t->found ? t->end : known;
}

/* `n` bytes of a document that has more, whole characters. */
static enum zf_found piece(struct zf_reader *r, struct zf_find *f, size_t n)
{
    struct zf_text_scan *t = &r->text;
    f->size = f->next = n;
    f->last = false;
    t->end = t->end > n ? t->end - n : 0;
    t->next = t->next > n ? t->next - n : 0;
    t->aim = 0;
    return ZF_FOUND_RECORD;
}

/* What is left of the document. Nothing but white space between separators is an empty one; between blank lines and at the file's end it
 * is none. */
static enum zf_found whole(struct zf_reader *r, struct zf_find *f, const char *text)
{
    const struct zf_text_scan t = r->text;
    bool blank = !t.inside && !r->skip && (!t.end || (r->documents != ZF_DOCUMENTS_FILE && is_blank(text, t.end)));
    r->text = (struct zf_text_scan){0};
    f->size = blank ? 0 : t.end;
    f->next = t.next;
    if (!blank || (r->documents == ZF_DOCUMENTS_SEPARATOR && t.next > t.end)) return ZF_FOUND_RECORD;
    return t.next ? ZF_FOUND_GAP : ZF_FOUND_END;
}

enum zf_found zf_scan_text(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t size;
    const char *text = zf_reader_front(r, &size);
    struct zf_text_scan *t = &r->text;
    size_t known = scan(r, text, size);
    if (!t->aim) t->aim = zf_reader_piece;
    if (r->skip) return t->found ? whole(r, f, text) : ZF_FOUND_MORE;
    while (known > t->aim) {
        size_t n = t->aim;
        for (int i = 0; i < 3 && n && ((unsigned char)text[n] & 0xC0) == 0x80; i++) n--;
        if (!r->o.any_bytes && zf_utf8_check(text, n) < n) return piece(r, f, n); /* whoever checks it says so */
        size_t cut = r->o.cut ? r->o.cut(r->o.context, text, n) : n;
        if (cut) return piece(r, f, cut < n ? cut : n);
        if (t->aim >= zf_reader_limit) {
            piece(r, f, n);
            return zf_reader_bad(r, 0, e,
                                 "more than %zu MiB of text without a place to cut it (white space, mostly); divide it into documents "
                                 "(documents = a separator) or into lines",
                                 zf_reader_limit >> 20);
        }
        t->aim = t->aim > zf_reader_limit / 2 ? zf_reader_limit : t->aim * 2;
    }
    if (t->found) return whole(r, f, text);
    return ZF_FOUND_MORE;
}
