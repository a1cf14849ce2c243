/* Parts -> a document's tokens. */
#ifndef ZF_DATA_DOCUMENT_H
#define ZF_DATA_DOCUMENT_H

#include "core/data/parts.h"
#include "core/tokenizer/tokenizer.h"

/* A token as rows keep it: its id, and whether it is a target, and whether it begins a document. */
enum { ZF_TOKEN_ID = 0x3FFFFFFF, ZF_TOKEN_TRAINED = 0x40000000 };
#define ZF_TOKEN_FIRST 0x80000000u

/* Of a token behind another one: whether that one is scored against it. */
static inline bool zf_token_is_target(uint32_t token)
{
    return (token & (ZF_TOKEN_TRAINED | ZF_TOKEN_FIRST)) == ZF_TOKEN_TRAINED;
}

struct zf_document {  /* zeroed = empty; free(tokens) when done; reused */
    uint32_t *tokens; /* the first one has ZF_TOKEN_FIRST and is never ZF_TOKEN_TRAINED */
    size_t count, room;
    size_t recognised; /* special tokens found where parts allow them */
    bool spelled;      /* content spells a special token */
    bool unanswered;   /* something is trained, but nothing of the record's own */
};

/* Are these ids of the model? ZF_FORMAT: the first that is not is named. */
enum zf_status zf_document_check(const struct zf_tokenizer *t, const int32_t *ids, size_t count, size_t vocab, struct zf_err *e);

/* A token is trained if any byte of it comes from a trained part. Texts that stand side by side are encoded as one, so that the ids are
 * those of the whole. An id of `vocab` or more is ZF_FORMAT. */
enum zf_status zf_document_encode(const struct zf_tokenizer *t, struct zf_encoder *c, const struct zf_parts *parts, size_t vocab,
                                  const volatile int *stop, struct zf_document *out, struct zf_err *e);

#endif
