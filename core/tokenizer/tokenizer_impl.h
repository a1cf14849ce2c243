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

/* One step of the normalizer, the pre_tokenizer or the decoder; which members count depends on the kind. */
enum zf_step_kind {
    /* normalizer */
    ZF_STEP_PREPEND, /* content */
    ZF_STEP_REPLACE, /* pattern (regex where has_regex) -> content; in the decoder, too */
    ZF_STEP_NFC,
    ZF_STEP_NFD,
    ZF_STEP_NFKC,
    ZF_STEP_NFKD,
    ZF_STEP_LOWERCASE,
    ZF_STEP_STRIP_SPACE,   /* left, right */
    ZF_STEP_STRIP_ACCENTS, /* drops combining marks */
    /* pre_tokenizer */
    ZF_STEP_SPLIT,            /* pattern or regex, behavior, invert */
    ZF_STEP_DIGITS,           /* individual */
    ZF_STEP_PUNCTUATION,      /* behavior */
    ZF_STEP_WHITESPACE_SPLIT, /* white space falls away */
    ZF_STEP_BYTE_LEVEL,       /* prefix_space, use_regex; in the decoder: bytes again */
    ZF_STEP_METASPACE,        /* content = the replacement, prepend, split; in the decoder: spaces again */
    /* decoder */
    ZF_STEP_BYTE_FALLBACK,
    ZF_STEP_FUSE,
    ZF_STEP_STRIP /* content, start, stop */
};
enum zf_behavior { ZF_REMOVED, ZF_ISOLATED, ZF_MERGED_WITH_PREVIOUS, ZF_MERGED_WITH_NEXT, ZF_CONTIGUOUS };
enum zf_prepend { ZF_PREPEND_ALWAYS, ZF_PREPEND_FIRST, ZF_PREPEND_NEVER };

struct zf_step {
    enum zf_step_kind kind;
    struct zf_piece pattern, content;
    bool has_regex;
    struct zf_splitter regex; /* owned; compiled from pattern */
    enum zf_behavior behavior;
    enum zf_prepend prepend;
    bool invert, individual, prefix_space, use_regex, split, left, right;
    size_t start, stop;
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
    struct zf_steps normalizer, pre_tokenizer, decoder;
    bool byte_level;             /* the model's characters are bytes */
    struct zf_ids before, after; /* what the template puts around */
    int32_t eos, bos;
    unsigned char hash[16];
    char note[256];
};

/* A tokenizer from the bytes of a tokenizer.json; `path` is for messages. */
enum zf_status zf_tokenizer_parse(struct zf_tokenizer **out, const char *json, size_t size, const char *path, struct zf_err *e);
int32_t zf_tokenizer_find(const struct zf_tokenizer *t, const char *text, size_t size); /* -1: none */

/* Appends text with the step's pattern replaced by its content. ZF_FORMAT once *out is longer than limit: a file's replacements must not
 * fill the memory. */
enum zf_status zf_replace(struct zf_text *out, const char *text, size_t size, const struct zf_step *step, size_t limit, struct zf_err *e);
size_t zf_replace_limit(size_t size); /* for a text of this size: far more than any real tokenizer makes of it */

#endif
