/* UTF-8, character classes (Oniguruma's tables, the same that split the text, and utf8proc's), the byte alphabet. */
#include "core/tokenizer/text.h"

#include <oniguruma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum zf_status zf_grow(void **list, size_t *room, size_t need, size_t element, struct zf_err *e)
{
    if (need <= *room) return ZF_OK;
    size_t more = *room > SIZE_MAX / 4 ? need : *room * 2;
    if (more < need) more = need;
    if (more < 16) more = 16;
    void *p = more > SIZE_MAX / element ? NULL : realloc(*list, more * element);
    if (!p) return zf_fail_memory(e, "text and tokens");
    *list = p;
    *room = more;
    return ZF_OK;
}

enum zf_status zf_text_add(struct zf_text *t, const void *data, size_t size, struct zf_err *e)
{
    if (size > SIZE_MAX - t->size) return zf_fail_memory(e, "text");
    void *p = t->data;
    enum zf_status s = zf_grow(&p, &t->room, t->size + size, 1, e);
    t->data = p;
    if (s != ZF_OK) return s;
    if (size) memcpy(t->data + t->size, data, size);
    t->size += size;
    return ZF_OK;
}

size_t zf_utf8_last(const unsigned char *s, size_t size)
{
    size_t at = size ? size - 1 : 0;
    while (at && size - at < 4 && (s[at] & 0xC0) == 0x80) at--;
    return at;
}

enum zf_status zf_utf8_next(const unsigned char *s, size_t size, size_t *at, uint32_t *character, struct zf_err *e)
{
    size_t n = zf_utf8_length(s + *at, size - *at, NULL);
    if (!n) return zf_fail(e, ZF_FORMAT, NULL, "byte %zu of a text is no UTF-8", *at);
    *character = zf_utf8_decode(s + *at, n);
    *at += n;
    return ZF_OK;
}

uint32_t zf_utf8_only(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    return size && zf_utf8_length(s, size, NULL) == size ? zf_utf8_decode(s, size) : ZF_NO_CHARACTER;
}

size_t zf_utf8_check(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0;
    while (at < size) {
        uint64_t eight;
        if (size - at >= 8 && (memcpy(&eight, s + at, 8), !(eight & 0x8080808080808080ull))) {
            at += 8;
            continue;
        }
        size_t n = zf_utf8_length(s + at, size - at, NULL);
        if (!n) return at;
        at += n;
    }
    return size;
}

size_t zf_utf8_encode(char to[4], uint32_t c)
{
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(lead[n] | c);
    return n;
}

enum zf_status zf_utf8_lossy(struct zf_text *out, const char *text, size_t size, struct zf_err *e)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t at = 0; at < size;) {
        size_t good = zf_utf8_check(text + at, size - at), bad = 0;
        ZF_TRY(zf_text_add(out, text + at, good, e));
        at += good;
        if (at == size) break;
        zf_utf8_length(s + at, size - at, &bad);
        ZF_TRY(zf_text_add(out, "\xEF\xBF\xBD", 3, e));
        at += bad;
    }
    return ZF_OK;
}

bool zf_is_space(uint32_t c)
{
    return ONIGENC_IS_CODE_SPACE(ONIG_ENCODING_UTF8, c);
}

bool zf_is_word(uint32_t c)
{
    /* Superscripts and fractions of Latin-1, which Oniguruma counts as word characters and the reference does not. */
    if (c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE)) return false;
    return ONIGENC_IS_CODE_WORD(ONIG_ENCODING_UTF8, c) || ONIGENC_IS_CODE_ALPHA(ONIG_ENCODING_UTF8, c) || c == 0x200C || c == 0x200D;
}

bool zf_is_numeric(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool zf_is_punctuation(uint32_t c)
{
    if (c < 128) return (c > 32 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 127);
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/* Not printable are 0-32, 127-160 and 173: 33 + 34 + 1 bytes, numbered in that order. */
uint32_t zf_alphabet_character(unsigned char b)
{
    if (b <= 32) return 256u + b;
    if (b >= 127 && b <= 160) return 256u + 33 + (b - 127u);
    return b == 173 ? 256u + 67 : b;
}

int zf_alphabet_byte(uint32_t c)
{
    if (c < 256) return zf_alphabet_character((unsigned char)c) == c ? (int)c : -1;
    c -= 256;
    if (c <= 32) return (int)c;
    if (c <= 66) return (int)(c - 33 + 127);
    return c == 67 ? 173 : -1;
}
