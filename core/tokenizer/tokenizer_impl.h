/* What a tokenizer is made of; for the files of this folder, its tests and its fuzz target. Read-only after opening. */
#ifndef ZF_TOKENIZER_IMPL_H
#define ZF_TOKENIZER_IMPL_H

#include "core/base/arena.h"
#include "core/tokenizer/added.h"
#include "core/tokenizer/bpe.h"
#include "core/tokenizer/pretokenize.h"
#include "core/tokenizer/text.h"
#include "core/tokenizer/tokenizer.h"

struct zf_piece { /* text in the arena */
    const char *text;
    size_t size;
};

enum zf_step_kind { ZF_STEP_PREPEND, ZF_STEP_REPLACE, ZF_STEP_BYTE_LEVEL, ZF_STEP_BYTE_FALLBACK, ZF_STEP_FUSE, ZF_STEP_STRIP };

struct zf_step { /* of the normalizer or the decoder */
    enum zf_step_kind kind;
    struct zf_piece pattern, content;
    size_t start, stop; /* Strip */
};

struct zf_steps {
    struct zf_step *list;
    size_t count, room;
};

struct zf_tokenizer {
    struct zf_arena arena;
    bool bytes;        /* an id is a byte */
    const char **text; /* [size] by id; NULL: no token has this id */
    size_t *text_size;
    bool *special;
    size_t size;
    struct zf_bpe *bpe;
    struct zf_added raw, normalized; /* added tokens searched for before and after the normalizer */
    struct zf_steps normalizer, decoder;
    bool byte_level, prefix_space, split;
    struct zf_splitter splitter;
    struct zf_ids before, after; /* what the template puts around */
    int32_t eos;
    char note[256];
};

/* A tokenizer from the bytes of a tokenizer.json; `path` is for messages. */
enum zf_status zf_tokenizer_parse(struct zf_tokenizer **out, const char *json, size_t size, const char *path, struct zf_err *e);
int32_t zf_tokenizer_find(const struct zf_tokenizer *t, const char *text, size_t size); /* -1: none */

struct zf_encode_options {
    bool specials_in_text, with_template;
    bool checked;             /* the caller knows that the text is UTF-8 */
    const volatile int *stop; /* polled about once a MB; may be NULL */
    size_t *recognised;       /* counts added tokens found in the text; may be NULL */
};
enum zf_status zf_tokenizer_encode_as(const struct zf_tokenizer *t, const char *text, size_t size, const struct zf_encode_options *o,
                                      struct zf_ids *out, struct zf_err *e);
/* Appends text with the step's pattern replaced by its content. ZF_FORMAT once *out is longer than limit: a file's replacements must not
 * fill the memory. */
enum zf_status zf_replace(struct zf_text *out, const char *text, size_t size, const struct zf_step *step, size_t limit, struct zf_err *e);
size_t zf_replace_limit(size_t size); /* for a text of this size: far more than any real tokenizer makes of it */

#endif
