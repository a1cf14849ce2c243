/* Ids -> text: the tokens' texts through the steps of the decoder, each of which maps a list of pieces to a list of pieces. */
#include "core/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

struct pieces {
    struct zf_text text;
    size_t *ends, count, room; /* piece i ends at ends[i] */
};

static void pieces_free(struct pieces *p)
{
    free(p->text.data);
    free(p->ends);
    *p = (struct pieces){0};
}

static enum zf_status piece_end(struct pieces *p, struct zf_err *e)
{
    void *list = p->ends;
    enum zf_status s = zf_grow(&list, &p->room, p->count + 1, sizeof *p->ends, e);
    p->ends = list;
    if (s == ZF_OK) p->ends[p->count++] = p->text.size;
    return s;
}

static enum zf_status piece_add(struct pieces *p, const char *text, size_t size, struct zf_err *e)
{
    ZF_TRY(zf_text_add(&p->text, text, size, e));
    return piece_end(p, e);
}

/* The bytes that a token's characters stand for; a token with any other character stands for itself. */
static enum zf_status add_alphabet(struct zf_text *to, const char *text, size_t size, struct zf_err *e)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t had = to->size;
    for (size_t at = 0, n; at < size; at += n) {
        n = zf_utf8_length(s + at, size - at, NULL);
        int b = n ? zf_alphabet_byte(zf_utf8_decode(s + at, n)) : -1;
        if (b < 0) {
            to->size = had;
            return zf_text_add(to, text, size, e);
        }
        char c = (char)b;
        ZF_TRY(zf_text_add(to, &c, 1, e));
    }
    return ZF_OK;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int fallback_byte(const char *s, size_t size) /* of <0xNN>, -1: it is none */
{
    if (size != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0) return -1;
    return hex(s[3]) * 16 + hex(s[4]);
}

/* Bytes that are text together become it, others one U+FFFD each. */
static enum zf_status flush_bytes(struct pieces *to, struct zf_text *bytes, struct zf_err *e)
{
    size_t n = bytes->size;
    bytes->size = 0;
    if (!n) return ZF_OK;
    if (zf_utf8_check(bytes->data, n) == n) return piece_add(to, bytes->data, n, e);
    for (size_t i = 0; i < n; i++) ZF_TRY(piece_add(to, "\xEF\xBF\xBD", 3, e));
    return ZF_OK;
}

static size_t strip_front(const struct zf_step *step, const char *s, size_t size)
{
    size_t n = step->content.size, at = 0;
    for (size_t i = 0; i < step->start && size - at >= n && !memcmp(s + at, step->content.text, n); i++) at += n;
    return at;
}

static size_t strip_back(const struct zf_step *step, const char *s, size_t size)
{
    size_t n = step->content.size;
    for (size_t i = 0; i < step->stop && size >= n && !memcmp(s + size - n, step->content.text, n); i++) size -= n;
    return size;
}

/* The replacement is a space again, but for the ones that were put in front of the text. */
static enum zf_status add_spaces(struct zf_text *to, const struct zf_step *step, bool first, const char *s, size_t size, struct zf_err *e)
{
    for (size_t at = 0; at < size;) {
        const char *hit = memmem(s + at, size - at, step->content.text, step->content.size);
        size_t plain = hit ? (size_t)(hit - s) - at : size - at;
        ZF_TRY(zf_text_add(to, s + at, plain, e));
        if (hit && !(first && step->prepend != ZF_PREPEND_NEVER)) ZF_TRY(zf_text_add(to, " ", 1, e));
        at += plain + (hit ? step->content.size : 0);
    }
    return ZF_OK;
}

static enum zf_status step_pieces(const struct zf_step *step, const struct pieces *from, struct pieces *to, struct zf_text *bytes,
                                  size_t limit, struct zf_err *e)
{
    bool fuse = step->kind == ZF_STEP_FUSE || step->kind == ZF_STEP_BYTE_LEVEL;
    for (size_t i = 0, begin = 0; i < from->count; begin = from->ends[i++]) {
        const char *s = from->text.data ? from->text.data + begin : "";
        size_t size = from->ends[i] - begin;
        if (step->kind == ZF_STEP_REPLACE) {
            ZF_TRY(zf_replace(&to->text, s, size, step, limit, e));
        } else if (step->kind == ZF_STEP_STRIP) {
            size_t front = strip_front(step, s, size);
            ZF_TRY(zf_text_add(&to->text, s + front, strip_back(step, s + front, size - front), e));
        } else if (step->kind == ZF_STEP_METASPACE) {
            ZF_TRY(add_spaces(&to->text, step, i == 0, s, size, e));
        } else if (step->kind == ZF_STEP_BYTE_LEVEL) {
            ZF_TRY(add_alphabet(bytes, s, size, e));
        } else if (step->kind == ZF_STEP_BYTE_FALLBACK) {
            int b = fallback_byte(s, size);
            char c = (char)b;
            if (b >= 0) {
                ZF_TRY(zf_text_add(bytes, &c, 1, e));
                continue;
            }
            ZF_TRY(flush_bytes(to, bytes, e));
            ZF_TRY(zf_text_add(&to->text, s, size, e));
        } else {
            ZF_TRY(zf_text_add(&to->text, s, size, e));
        }
        if (!fuse) ZF_TRY(piece_end(to, e));
    }
    if (step->kind == ZF_STEP_BYTE_FALLBACK) return flush_bytes(to, bytes, e);
    if (step->kind == ZF_STEP_BYTE_LEVEL) ZF_TRY(zf_utf8_lossy(&to->text, bytes->data, bytes->size, e));
    return fuse ? piece_end(to, e) : ZF_OK;
}

static enum zf_status collect(const struct zf_tokenizer *t, const int32_t *ids, size_t count, bool skip_specials, struct pieces *p,
                              struct zf_err *e)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= t->size) {
            return zf_fail(e, ZF_FORMAT, NULL, "id %d at place %zu is no token; the tokenizer has ids 0 to %zu", ids[i], i, t->size - 1);
        }
        if (!t->text[ids[i]] || (skip_specials && t->special[ids[i]])) continue;
        /* Without a decoder the reference puts spaces between tokens. */
        if (!t->bytes && !t->decoder.count && p->count) ZF_TRY(zf_text_add(&p->text, " ", 1, e));
        ZF_TRY(piece_add(p, t->text[ids[i]], t->text_size[ids[i]], e));
    }
    return ZF_OK;
}

enum zf_status zf_tokenizer_decode(const struct zf_tokenizer *t, const int32_t *ids, size_t count, bool skip_specials, char **out,
                                   size_t *size, struct zf_err *e)
{
    struct pieces now = {0}, next = {0};
    struct zf_text bytes = {0};
    *out = NULL;
    enum zf_status s = collect(t, ids, count, skip_specials, &now, e);
    size_t limit = zf_replace_limit(now.text.size);
    for (size_t i = 0; s == ZF_OK && i < t->decoder.count; i++) {
        bytes.size = 0;
        s = step_pieces(&t->decoder.list[i], &now, &next, &bytes, limit, e);
        pieces_free(&now);
        now = next;
        next = (struct pieces){0};
    }
    if (s == ZF_OK) s = zf_text_add(&now.text, "", 1, e); /* NUL, not counted in *size */
    if (s == ZF_OK) {
        if (size) *size = now.text.size - 1;
        *out = now.text.data;
        now.text.data = NULL;
    }
    pieces_free(&now);
    free(bytes.data);
    return s;
}
