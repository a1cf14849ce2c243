/* What the files that read tokenizers share; private to this folder. One thread. */
#ifndef ZF_TOKENIZER_LOAD_H
#define ZF_TOKENIZER_LOAD_H

#include "core/base/json.h"
#include "core/tokenizer/tokenizer_impl.h"

/* What stands beside tokenizer.json; NULL where there is no such file. */
struct zf_beside {
    json_t *tokenizer_config, *special_tokens_map, *added_tokens, *generation_config, *config;
};

/* A token of the vocabulary, a rule that joins two. */
struct zf_entry {
    struct zf_piece text;
    int32_t id;
};

struct zf_rule {
    struct zf_piece left, right;
};

/* Vocabulary and merges of the model, not yet looked up. The tokens' texts are in the tokenizer's arena, the rules' in rule_text or in what
 * they came from. */
struct zf_vocabulary {
    struct zf_entry *entries;
    struct zf_rule *rules;
    size_t count, room, rule_count, rule_room;
    char *rule_text;
};

struct zf_gpt2 { /* vocab.json and merges.txt; the path of the first is the loader's */
    struct zf_piece vocab, merges;
    const char *merges_path;
};

struct zf_loader {
    struct zf_tokenizer *t;
    const char *path;
    struct zf_err *e;
    const struct zf_beside *beside; /* may be NULL */
    const struct zf_gpt2 *gpt2;     /* NULL: from a tokenizer.json; else what no file names is as GPT2Tokenizer has it */
    bool has_template;
    struct zf_vocabulary vocabulary;
    struct zf_added added; /* in the order in which they get their ids; .text is what the file has; id -1: the next free one */
    size_t file_added;     /* how many of them tokenizer.json names */
    struct zf_bpe_options bpe;
};

enum zf_status zf_load_fail(struct zf_loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum zf_status zf_load_bool(struct zf_loader *l, const json_t *j, const char *key, bool otherwise, bool *out);
enum zf_status zf_load_piece(struct zf_loader *l, const json_t *j, const char *key, bool may_be_empty, struct zf_piece *out);

/* normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json -> steps and template. */
enum zf_status zf_load_components(struct zf_loader *l, const json_t *root);

/* Reads model.vocab and model.merges of a tokenizer.json straight from its text, which takes a tenth of the time that a JSON object of
 * them does; *rest is the file without them ({} and [] in their places), to be freed. *found is false, and nothing is kept, if the text
 * is not plain enough for that: then the JSON library decides what it is. */
enum zf_status zf_vocabulary_scan(struct zf_vocabulary *v, struct zf_arena *arena, const char *text, size_t size, struct zf_text *rest,
                                  bool *found, struct zf_err *e);
enum zf_status zf_load_vocabulary(struct zf_loader *l, const json_t *vocab, const json_t *merges); /* the same from JSON objects */
enum zf_status zf_load_merges(struct zf_loader *l, struct zf_piece text, const char *path); /* of a merges.txt, whose text must stay */
void zf_vocabulary_free(struct zf_vocabulary *v);

/* l->added: the tokens of tokenizer.json, then those that transformers adds to them from the files beside it. */
enum zf_status zf_load_added(struct zf_loader *l, const json_t *added_tokens);
/* eos, bos; what goes in front and behind where there is no tokenizer.json to say so. */
enum zf_status zf_load_special(struct zf_loader *l);

/* l->gpt2's vocabulary as a tokenizer.json, its merges straight as rules; ZF_FORMAT if the files beside do not say that they are GPT-2's.
 */
enum zf_status zf_load_gpt2(struct zf_loader *l, json_t **root);

/* A tokenizer from the text of a tokenizer.json, or from two files, whose bytes are then the text. gpt2, and for a tokenizer.json beside,
 * may be NULL. */
enum zf_status zf_tokenizer_build(struct zf_tokenizer **out, const char *text, size_t size, const struct zf_gpt2 *gpt2, const char *path,
                                  const struct zf_beside *beside, struct zf_err *e);
enum zf_status zf_tokenizer_seal(struct zf_tokenizer *t, const void *file, size_t size, struct zf_err *e); /* makes the hash */

#endif
