/* Added tokens (`<s>`, `<|endoftext|>`): finding them in text. Read-only once sorted. */
#ifndef ZF_ADDED_H
#define ZF_ADDED_H

#include "core/tokenizer/text.h"

struct zf_added_token {
    const char *text; /* what is searched for (normalised where the token says so); must outlive the list */
    size_t size;
    const char *content; /* as the file has it */
    size_t content_size;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
};

struct zf_added { /* zeroed = empty */
    struct zf_added_token *tokens;
    size_t count, room;
    size_t first[257]; /* after sorting: tokens that begin with byte b are first[b] .. first[b+1] */
};

/* A token with this text as its content, which normalizers touch unless it is special; without an id (-1). */
struct zf_added_token zf_added_plain(const char *text, size_t size, bool special);

enum zf_status zf_added_add(struct zf_added *a, const struct zf_added_token *t, struct zf_err *e);
enum zf_status zf_added_sort(struct zf_added *a, struct zf_err *e); /* of tokens with the same text the first added stays */
void zf_added_free(struct zf_added *a);

/* The next added token: the longest at the leftmost place from *from on, which moves behind it. Its range, with the white space that lstrip
 * and rstrip take, is begin .. end; lstrip takes nothing before `floor`. Empty if another token took its white space: then it is not there.
 * NULL: no more. */
const struct zf_added_token *zf_added_next(const struct zf_added *a, const char *text, size_t size, size_t *from, size_t floor,
                                           size_t *begin, size_t *end);

#endif
