/* Cutting text into words, as the pre_tokenizer ByteLevel does. Read-only after init; any number of threads may share it. */
#ifndef ZF_PRETOKENIZE_H
#define ZF_PRETOKENIZE_H

#include "core/base/err.h"
#include <stddef.h>

struct zf_splitter {
    struct re_pattern_buffer *pattern; /* Oniguruma's regex_t */
};

enum zf_status zf_splitter_init(struct zf_splitter *s, struct zf_err *e);
void zf_splitter_free(struct zf_splitter *s);

/* Bytes of the word that begins at text + at (valid UTF-8, at < size). */
enum zf_status zf_splitter_next(const struct zf_splitter *s, const char *text, size_t size, size_t at, size_t *length, struct zf_err *e);

#endif
