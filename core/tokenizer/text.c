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

size_t zf_utf8_length(const unsigned char *s, size_t size, size_t *bad)
{
    unsigned char c = s[0];
    if (c < 0x80) return 1;
    size_t length = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    /* The second byte has the limits that exclude overlong forms, surrogates and what is above U+10FFFF. */
    unsigned char low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    size_t good = 1;
    while (good < length && good < size && s[good] >= low && s[good] <= high) {
        good++;
        low = 0x80;
        high = 0xBF;
    }
    if (bad) *bad = good;
    return length && good == length ? length : 0;
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

uint32_t zf_utf8_decode(const unsigned char *s, size_t length)
{
    static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = s[0] & lead[length];
    for (size_t i = 1; i < length; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
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

static bool is_harmless(uint32_t c)
{
    bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    bool reorders = c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0x061C;
    return !control && !reorders && c != 0x2028 && c != 0x2029;
}

size_t zf_text_show_one(char to[ZF_SHOWN], const char *s, size_t size, size_t *used)
{
    size_t n = zf_utf8_length((const unsigned char *)s, size, NULL);
    uint32_t c = n ? zf_utf8_decode((const unsigned char *)s, n) : (unsigned char)*s;
    *used = n ? n : 1;
    if (n && is_harmless(c)) {
        memcpy(to, s, n);
        return n;
    }
    if (c == '\n' || c == '\t') return (size_t)snprintf(to, ZF_SHOWN, c == '\n' ? "\\n" : "\\t");
    return (size_t)snprintf(to, ZF_SHOWN, c < 0x80 || !n ? "\\x%02x" : "\\u%04x", (unsigned)c & 0xFFFF);
}

void zf_text_show(char *to, size_t room, const char *text, size_t size)
{
    size_t n = 0, fits = 0; /* fits: bytes behind which there is room for the dots */
    for (size_t at = 0, used; at < size; at += used) {
        char one[ZF_SHOWN];
        size_t length = zf_text_show_one(one, text + at, size - at, &used);
        if (n + length >= room) {
            memcpy(to + fits, "...", 4);
            return;
        }
        memcpy(to + n, one, length);
        n += length;
        if (n + 3 < room) fits = n;
    }
    to[n] = 0;
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
