/* Regexes of tokenizer.json, by Oniguruma (the engine of the reference, so the classes of characters are the same, but for what text.h
 * says). Read-only after init; threads may share a splitter. */
#ifndef ZF_PRETOKENIZE_H
#define ZF_PRETOKENIZE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Patterns that real tokenizers share, known by their exact text: they leave no gaps, and are run in a form that needs no stack, however
 * long a run of one class is. */
enum zf_pattern { ZF_PATTERN_OTHER, ZF_PATTERN_GPT2, ZF_PATTERN_LLAMA3, ZF_PATTERN_QWEN };

struct zf_splitter {                 /* zeroed = none */
    struct re_pattern_buffer *regex; /* Oniguruma's regex_t */
    enum zf_pattern known;
};

/* Compiles a regex as the reference does (Ruby's syntax, UTF-8). One that does not compile is ZF_FORMAT, with the pattern. */
enum zf_status zf_splitter_init(struct zf_splitter *s, const char *pattern, size_t size, struct zf_err *e);
/* What the pre_tokenizer ByteLevel with use_regex splits by (to be put into its step's `regex`). */
enum zf_status zf_splitter_init_gpt2(struct zf_splitter *s, struct zf_err *e);
void zf_splitter_free(struct zf_splitter *s);

/* The matches in a text (valid UTF-8), one after the other. To begin: text, size and where the region is kept (freed by
 * zf_region_free; it may serve any number of searches, one at a time). */
struct zf_search {
    const char *text;
    size_t size, at, last_end;
    bool any;
    struct re_registers **region;
};

enum zf_status zf_search_next(struct zf_search *f, const struct zf_splitter *s, bool *found, size_t *begin, size_t *end, struct zf_err *e);
void zf_region_free(struct re_registers **region);

/* Whether text that has these two characters side by side always is split between them, whatever stands around, and is split the same when
 * it is two texts. Only ever true of the known patterns. */
bool zf_splitter_parts(const struct zf_splitter *s, uint32_t left, uint32_t right);

#endif
