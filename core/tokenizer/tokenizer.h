/* Text <-> token ids, as Hugging Face tokenizers would see it. */
#ifndef ZF_TOKENIZER_H
#define ZF_TOKENIZER_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_tokenizer;

/* A growing array of ids; zeroed = empty. free(ids) when done. */
struct zf_ids {
    int32_t *ids;
    size_t count, room;
};

/* "bytes", or a folder with tokenizer.json (or vocab.json and merges.txt). What a file asks for and we do not have is refused by name
 * (ZF_FORMAT); its truncation and padding blocks are ignored, which zf_tokenizer_note says. */
enum zf_status zf_tokenizer_open(struct zf_tokenizer **out, const char *name, struct zf_err *e);
void zf_tokenizer_close(struct zf_tokenizer *t);

size_t zf_tokenizer_size(const struct zf_tokenizer *t);      /* largest id + 1 */
const char *zf_tokenizer_note(const struct zf_tokenizer *t); /* "" if there is nothing to say */
/* Of everything that decides on ids: the files' bytes; two tokenizers with the same hash encode alike. */
const unsigned char *zf_tokenizer_hash(const struct zf_tokenizer *t); /* [16] */
int32_t zf_tokenizer_eos(const struct zf_tokenizer *t); /* from tokenizer_config.json, generation_config.json, config.json; -1: none */
int32_t zf_tokenizer_bos(const struct zf_tokenizer *t); /* likewise */
/* What the tokenizer itself puts in front of a text (post_processor; add_bos_token where there is none): usually BOS or nothing. */
const struct zf_ids *zf_tokenizer_front(const struct zf_tokenizer *t);
/* The id of an added token with exactly this text; -1: none. */
int32_t zf_tokenizer_added(const struct zf_tokenizer *t, const char *text, size_t size);
bool zf_tokenizer_takes_bytes(const struct zf_tokenizer *t); /* `bytes`: text need not be UTF-8 */
bool zf_tokenizer_is_special(const struct zf_tokenizer *t, int32_t id);
size_t zf_tokenizer_count_added(const struct zf_tokenizer *t, const char *text, size_t size); /* added tokens that text spells out */

/* A place in a text that is encoded. In: offset, in bytes, and whether added tokens are recognised from there to the next mark (all of a
 * token must lie where they are; the white space that it takes, too, ends there). Out, counted from the first token of the call: how many
 * tokens end at or before it, how many begin before it; the two differ where a token lies across the place. What the tokenizer puts in
 * front of a text comes behind offset 0; a place inside characters that the normalizer makes one (e and an accent) is the place in front of
 * them. */
struct zf_mark {
    size_t offset, ended, begun;
    bool specials;
};

struct zf_encode_options {
    bool specials_in_text;    /* added tokens written in the text, up to the first mark, are recognised; else they are ordinary text */
    bool with_template;       /* what the post_processor adds (BOS) */
    bool inside;              /* something stands in front of the text already: what is put before an input's very first word is not put */
    bool continues;           /* the text goes on where another was cut (zf_tokenizer_cut): nothing is put in front at all */
    bool checked;             /* the caller knows that the text is UTF-8 */
    const volatile int *stop; /* polled about once a MB; may be NULL */
    size_t *recognised;       /* counts added tokens found in the text; may be NULL */
    struct zf_mark *marks;    /* ascending */
    size_t mark_count;
};

/* What one thread needs to encode with a tokenizer, which must outlive it: scratch and a cache of words. */
struct zf_encoder;
enum zf_status zf_encoder_new(struct zf_encoder **out, const struct zf_tokenizer *t, struct zf_err *e);
void zf_encoder_free(struct zf_encoder *c);

/* Appends the ids of text, which must be UTF-8 unless the tokenizer is `bytes`: else ZF_FORMAT with the offset of the first bad byte, and
 * nothing appended. */
enum zf_status zf_encode(struct zf_encoder *c, const char *text, size_t size, const struct zf_encode_options *o, struct zf_ids *out,
                         struct zf_err *e);

/* Where a long text may be cut: the largest offset <= size such that the ids of text[0, offset) followed by those of the rest (encoded with
 * `continues`) are the ids of the whole, whatever stands behind `size`. 0: no such place. */
size_t zf_tokenizer_cut(const struct zf_tokenizer *t, const char *text, size_t size);

/* For a single text: a zf_encoder of its own. */
enum zf_status zf_tokenizer_encode(const struct zf_tokenizer *t, const char *text, size_t size, bool specials_in_text, bool with_template,
                                   struct zf_ids *out, struct zf_err *e);

/* Text of ids, to be freed; *size may be NULL. Special tokens are kept unless skip_specials. Invalid UTF-8 becomes U+FFFD as transformers
 * does (except `bytes`: raw). An id out of range is ZF_FORMAT. */
enum zf_status zf_tokenizer_decode(const struct zf_tokenizer *t, const int32_t *ids, size_t count, bool skip_specials, char **out,
                                   size_t *size, struct zf_err *e);

/* tokenizer.json, tokenizer_config.json that make transformers see what `bytes` sees (a byte-level BPE without merges), written into a
 * folder. */
enum zf_status zf_tokenizer_write_bytes(const char *folder, bool with_eos, struct zf_err *e);

enum zf_status zf_ids_push(struct zf_ids *a, int32_t id, struct zf_err *e);

#endif
