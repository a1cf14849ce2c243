/* Text files -> rows: documents, tokens, one end token a document, rows of one length and a shorter rest. */
#include "core/data/dataset_impl.h"
#include "core/tokenizer/tokenizer_impl.h"

#include "core/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20 };

struct span {
    size_t begin, end;
};

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n') return false;
    }
    return true;
}

/* The lines up to the next blank one, without the last line's end. */
static struct span paragraph(const char *text, size_t size, size_t *at)
{
    struct span d = {*at, *at};
    bool started = false;
    while (*at < size) {
        const char *newline = memchr(text + *at, '\n', size - *at);
        size_t begin = *at, end = newline ? (size_t)(newline - text) : size;
        *at = newline ? end + 1 : size;
        if (is_blank(text + begin, end - begin)) {
            if (started) break;
            continue;
        }
        if (!started) d.begin = begin;
        started = true;
        d.end = end > begin && text[end - 1] == '\r' ? end - 1 : end;
    }
    return d;
}

static struct span until_separator(const char *text, size_t size, const char *separator, size_t *at)
{
    size_t n = strlen(separator);
    const char *hit = memmem(text + *at, size - *at, separator, n);
    struct span d = {*at, hit ? (size_t)(hit - text) : size};
    *at = hit ? d.end + n : size;
    return d;
}

/* Document by document: separators are no part of one. */
static struct span next_document(const struct zf_dataset_options *o, const char *text, size_t size, size_t *at)
{
    if (!o->documents || !strcmp(o->documents, "file")) {
        struct span all = {*at, size};
        *at = size;
        return all;
    }
    return strcmp(o->documents, "blank") ? until_separator(text, size, o->documents, at) : paragraph(text, size, at);
}

/* Offset of the first byte that is no UTF-8, or size. */
static enum zf_status check_utf8(const struct zf_filling *f, const char *text, size_t size, size_t *good, struct zf_err *e)
{
    for (size_t at = 0; at < size; at = *good) {
        size_t block = size - at < BLOCK ? size - at : BLOCK;
        *good = at + zf_utf8_check(text + at, block);
        /* A character may be cut at the end of a block, at most 3 bytes of it. */
        bool whole = *good == at + block, cut = !whole && at + block < size && at + block - *good < 4;
        if (!whole && !cut) return ZF_OK;
        ZF_TRY(zf_filling_stopped(f, e));
    }
    *good = size;
    return ZF_OK;
}

static enum zf_status fail_utf8(const char *file, const char *text, size_t size, size_t at, struct zf_err *e)
{
    char where[sizeof e->where];
    size_t line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    snprintf(where, sizeof where, "%s:%zu", file, line);
    const unsigned char *s = (const unsigned char *)text;
    bool wide = size >= 2 && ((s[0] == 0xFF && s[1] == 0xFE) || (s[0] == 0xFE && s[1] == 0xFF));
    return zf_fail(e, ZF_FORMAT, where,
                   "byte 0x%02X at offset %zu is no UTF-8%s; expected UTF-8 text: convert it (iconv -f %s -t UTF-8), or set skip_bad = yes "
                   "to leave the document out",
                   (unsigned)s[at], at, wide ? " (the file looks like UTF-16)" : "", wide ? "UTF-16" : "ISO-8859-1");
}

/* Cuts the ids from `begin` on into rows, in place: each row's end mark moves what follows by one more. */
static enum zf_status cut_rows(struct zf_filling *f, size_t begin, struct zf_err *e)
{
    struct zf_ids *ids = &f->store->ids;
    size_t n = ids->count - begin, rows = (n + f->length - 1) / f->length;
    void *p = ids->ids;
    enum zf_status s = zf_grow(&p, &ids->room, ids->count + rows, sizeof *ids->ids, e);
    ids->ids = p;
    if (s != ZF_OK) return s;
    for (size_t r = rows; r-- > 0;) {
        size_t from = begin + r * f->length, length = r + 1 < rows ? f->length : n - r * f->length;
        memmove(ids->ids + from + r, ids->ids + from, length * sizeof *ids->ids);
        ids->ids[from + r + length] = -1;
    }
    ids->count += rows;
    for (size_t r = 0; r < rows; r++) {
        size_t length = r + 1 < rows ? f->length : n - r * f->length;
        ZF_TRY(zf_filling_row(f, begin + r * (f->length + 1), length, length - 1, e));
    }
    return ZF_OK;
}

static enum zf_status check_ids(const struct zf_filling *f, const char *file, size_t begin, struct zf_err *e)
{
    const struct zf_ids *ids = &f->store->ids;
    for (size_t i = begin; i < ids->count; i++) {
        if ((size_t)ids->ids[i] < f->o->vocab) continue;
        size_t size = f->o->tokenizer->text_size[ids->ids[i]];
        return zf_fail(e, ZF_FORMAT, file,
                       "its text has the token '%.*s' with id %d, but the model has %zu ids; the tokenizer belongs to another model",
                       (int)(size < 64 ? size : 64), f->o->tokenizer->text[ids->ids[i]], ids->ids[i], f->o->vocab);
    }
    return ZF_OK;
}

static enum zf_status add_document(struct zf_filling *f, const char *file, const char *text, size_t size, struct zf_err *e)
{
    struct zf_ids *ids = &f->store->ids;
    size_t begin = ids->count;
    struct zf_encode_options o = {.specials_in_text = f->specials, .checked = true, .stop = f->stop, .recognised = &f->recognised};
    ZF_TRY(zf_tokenizer_encode_as(f->o->tokenizer, text, size, &o, ids, e));
    if (ids->count == begin) {
        f->empty_documents++;
        return ZF_OK;
    }
    if (f->eos >= 0) ZF_TRY(zf_ids_push(ids, f->eos, e));
    ZF_TRY(check_ids(f, file, begin, e));
    f->documents++;
    return cut_rows(f, begin, e);
}

static enum zf_status add_file(struct zf_filling *f, const char *file, const char *text, size_t size, struct zf_err *e)
{
    size_t at = size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0, since_poll = 0;
    bool whole = !f->o->documents || !strcmp(f->o->documents, "file");
    if (at == size) f->empty_files++;
    while (at < size) {
        struct span d = next_document(f->o, text, size, &at);
        size_t n = d.end - d.begin, good = n;
        since_poll += n;
        if (since_poll > BLOCK) {
            since_poll = 0;
            ZF_TRY(zf_filling_stopped(f, e));
        }
        if (!n || (!whole && is_blank(text + d.begin, n))) {
            f->empty_documents += at < size; /* what follows the last separator is the end of the file */
            continue;
        }
        if (!f->o->tokenizer->bytes) ZF_TRY(check_utf8(f, text + d.begin, n, &good, e));
        if (good < n && !f->o->skip_bad) return fail_utf8(file, text, size, d.begin + good, e);
        if (good < n) {
            f->bad_documents++;
            continue;
        }
        ZF_TRY(add_document(f, file, text + d.begin, n, e));
    }
    return ZF_OK;
}

enum zf_status zf_fill_text(struct zf_filling *f, const char *file, struct zf_err *e)
{
    struct zf_map m;
    if (zf_map_open(&m, file, e) != ZF_OK) return e->code = ZF_FORMAT; /* data that cannot be read, whatever the reason */
    enum zf_status s = add_file(f, file, (const char *)m.data, m.size, e);
    zf_map_close(&m);
    return s;
}
