/* UTF-8, the byte alphabet of byte-level BPE, and a growing run of bytes. Pure functions; no state. */
#ifndef ZF_TEXT_H
#define ZF_TEXT_H

#include "core/base/err.h"
#include "core/base/show.h"
#include "core/base/utf8.h"
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

/* Where the last character begins; 0 if there is none. At most 3 bytes before the last one, however malformed the text. */
size_t zf_utf8_last(const unsigned char *s, size_t size);

/* The next character of a text that is UTF-8 (*at < size), which *at moves behind. ZF_FORMAT if it is none. */
enum zf_status zf_utf8_next(const unsigned char *s, size_t size, size_t *at, uint32_t *character, struct zf_err *e);

/* The character that s is; ZF_NO_CHARACTER if it is none or more. */
#define ZF_NO_CHARACTER UINT32_MAX
uint32_t zf_utf8_only(const char *s, size_t size);

/* Offset of the first byte that begins no well-formed character; size if there is none. */
size_t zf_utf8_check(const char *s, size_t size);
size_t zf_utf8_encode(char to[4], uint32_t character);

/* Appends s with every malformed part replaced by U+FFFD. */
enum zf_status zf_utf8_lossy(struct zf_text *out, const char *s, size_t size, struct zf_err *e);

/* The classes are those of the libraries' Unicode versions: Oniguruma 6.9.8 has 14.0, utf8proc (here and in normalize.c) 13.0 or newer,
 * while the reference brings its own: up to 17.0 for regexes and Digits, about 9.0 for Punctuation, StripAccents, NFKC and NFKD. Letters,
 * numbers, marks and punctuation that only one of two versions knows may split differently, and so get other ids. */
bool zf_is_space(uint32_t character);       /* Unicode White_Space */
bool zf_is_word(uint32_t character);        /* \w */
bool zf_is_numeric(uint32_t character);     /* what Digits splits at: a number of any kind */
bool zf_is_punctuation(uint32_t character); /* what Punctuation splits at: any of ASCII's, any of category P */

/* Byte-level BPE writes bytes as printable characters: itself, or U+0100 + n for the n-th byte that is not printable. */
uint32_t zf_alphabet_character(unsigned char byte);
int zf_alphabet_byte(uint32_t character); /* -1: stands for no byte */

#endif
