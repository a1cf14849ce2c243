/* Byte-pair encoding of one word: vocabulary, ranked merges, and the loop that applies them.
 *
 * A model is built by add and merge, sealed by finish, then read-only and shared by any number of threads; each encoding has its own struct
 * zf_bpe_work. A word is bytes. Under byte_level its units are bytes, looked up as the characters of the byte alphabet; otherwise its units
 * are characters. */
#ifndef ZF_BPE_H
#define ZF_BPE_H

#include "core/tokenizer/text.h"
#include "core/tokenizer/tokenizer.h"

struct zf_bpe;

struct zf_bpe_options {
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    const char *unk; /* NULL: unknown units vanish, as in the reference; must outlive the model */
};

enum zf_status zf_bpe_new(struct zf_bpe **out, const struct zf_bpe_options *o, size_t vocab, size_t merges, struct zf_err *e);
void zf_bpe_free(struct zf_bpe *b);

/* `text` must outlive the model. At most as many as zf_bpe_new was told. */
void zf_bpe_add(struct zf_bpe *b, const char *text, size_t size, int32_t id);
int32_t zf_bpe_find(const struct zf_bpe *b, const char *text, size_t size); /* -1: none */

/* A rule; a later one for the same pair wins. */
struct zf_bpe_side {
    int32_t id;
    const char *text; /* of the token */
    size_t size;
};
enum zf_status zf_bpe_merge(struct zf_bpe *b, const struct zf_bpe_side *left, const struct zf_bpe_side *right, int32_t joined,
                            uint32_t rank, struct zf_err *e);
void zf_bpe_finish(struct zf_bpe *b);

/* Fetches ahead what finding this text, adding a rule for this pair will touch. */
void zf_bpe_expect(const struct zf_bpe *b, const char *text, size_t size);
void zf_bpe_expect_merge(const struct zf_bpe *b, int32_t left, int32_t right);

/* Where in its word each token begins, if wanted (that is slower). */
struct zf_bpe_starts {
    bool wanted;
    size_t *list, count, room; /* the caller sets count to 0 before a word */
};

struct zf_bpe_work {
    struct zf_bpe_cached *cache;
    size_t cache_mask;
    int32_t *symbols, *begins, *next, *previous; /* begins: where a symbol's text begins, only if starts are wanted */
    size_t symbol_room, begin_room, link_room;
    struct zf_bpe_starts starts;
    struct zf_bpe_entry *heap;
    size_t heap_room;
    struct zf_text mapped;
};

enum zf_status zf_bpe_work_init(struct zf_bpe_work *w, bool cached, struct zf_err *e);
void zf_bpe_work_free(struct zf_bpe_work *w);

/* Whether a word that has these two units side by side has the ids of its two parts, whatever stands around. */
bool zf_bpe_parts(const struct zf_bpe *b, uint32_t left, uint32_t right);

/* Appends the ids of a word (valid UTF-8 unless byte_level). *stop may be NULL. */
enum zf_status zf_bpe_encode(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t size, struct zf_ids *out,
                             const volatile int *stop, struct zf_err *e);

#endif
