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

/* "bytes", or a folder with tokenizer.json. What a file asks for and we do not have is refused by name (ZF_FORMAT); its truncation and
 * padding blocks are ignored, which zf_tokenizer_note says. */
enum zf_status zf_tokenizer_open(struct zf_tokenizer **out, const char *name, struct zf_err *e);
void zf_tokenizer_close(struct zf_tokenizer *t);

size_t zf_tokenizer_size(const struct zf_tokenizer *t);      /* largest id + 1 */
int32_t zf_tokenizer_eos(const struct zf_tokenizer *t);      /* from tokenizer_config.json, generation_config.json, config.json; -1: none */
const char *zf_tokenizer_note(const struct zf_tokenizer *t); /* "" if there is nothing to say */

/* Appends the ids of text. specials_in_text: added tokens written in the text are recognised; otherwise they are ordinary text.
 * with_template: what the post_processor adds (BOS). Text must be UTF-8 unless the tokenizer is `bytes`: ZF_FORMAT with the byte offset of
 * the first bad byte. */
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
