/* The key of something that is kept: 128 bits (XXH3) of all that decides on it, one thing after the other. One thread. */
#ifndef ZF_BASE_HASH_H
#define ZF_BASE_HASH_H

#include "core/base/err.h"

struct zf_hash { /* begin, add, end; what is begun must be ended */
    struct XXH3_state_s *state;
};

enum zf_status zf_hash_begin(struct zf_hash *h, struct zf_err *e);

/* With its size in front, so that neighbours cannot flow into each other. */
void zf_hash_add(struct zf_hash *h, const void *data, size_t size);
void zf_hash_add_text(struct zf_hash *h, const char *text); /* NULL is not "" */
void zf_hash_add_number(struct zf_hash *h, uint64_t number);

/* A part of something that is not known at once; behind the last part its caller adds the size of all. */
void zf_hash_add_part(struct zf_hash *h, const void *data, size_t size);

void zf_hash_end(struct zf_hash *h, unsigned char out[16]); /* out may be NULL */

#endif
