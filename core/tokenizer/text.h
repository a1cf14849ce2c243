/* UTF-8, the byte alphabet of byte-level BPE, and a growing run of bytes. Pure functions; no state. */
#ifndef ZF_TEXT_H
#define ZF_TEXT_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_text { /* zeroed = empty; free(data) when done */
    char *data;
    size_t size, room;
};

enum zf_status zf_text_add(struct zf_text *t, const void *data, size_t size, struct zf_err *e);

/* Grows *list to at least `need` elements of `element` bytes, doubling. */
enum zf_status zf_grow(void **list, size_t *room, size_t need, size_t element, struct zf_err *e);

/* Bytes of the well-formed character at s, 0 if there is none (size > 0; no surrogates, nothing overlong, at most U+10FFFF). If *bad is
 * given it gets the bytes that one U+FFFD stands for where there is none. */
size_t zf_utf8_length(const unsigned char *s, size_t size, size_t *bad);

/* Offset of the first byte that begins no well-formed character; size if there is none. */
size_t zf_utf8_check(const char *s, size_t size);
uint32_t zf_utf8_decode(const unsigned char *s, size_t length); /* a character that zf_utf8_length measured */
size_t zf_utf8_encode(char to[4], uint32_t character);

/* Appends s with every malformed part replaced by U+FFFD. */
enum zf_status zf_utf8_lossy(struct zf_text *out, const char *s, size_t size, struct zf_err *e);

bool zf_is_space(uint32_t character); /* Unicode White_Space */
bool zf_is_word(uint32_t character);  /* \w */

/* Byte-level BPE writes bytes as printable characters: itself, or U+0100 + n for the n-th byte that is not printable. */
uint32_t zf_alphabet_character(unsigned char byte);
int zf_alphabet_byte(uint32_t character); /* -1: stands for no byte */

#endif
