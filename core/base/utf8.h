/* One character of UTF-8. In a header, as whole files go through it. */
#ifndef ZF_BASE_UTF8_H
#define ZF_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at s, 0 if there is none (size > 0; no surrogates, nothing overlong, at most U+10FFFF). If *bad is
 * given it gets the bytes that one U+FFFD stands for where there is none. */
static inline size_t zf_utf8_length(const unsigned char *s, size_t size, size_t *bad)
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

/* A character that zf_utf8_length measured. */
static inline uint32_t zf_utf8_decode(const unsigned char *s, size_t length)
{
    static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = s[0] & lead[length];
    for (size_t i = 1; i < length; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
}

#endif
