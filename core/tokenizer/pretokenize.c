/* Words of GPT-2, by Oniguruma (the engine of the reference, so the classes of characters are the same). */
#include "core/tokenizer/pretokenize.h"
#include "core/tokenizer/text.h"

#include <limits.h>
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+   with two changes that alter no match but keep a run of
 * any length from filling the engine's stack: the runs are atomic, and what \s+(?!\S) gives back is left to zf_splitter_next. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?(?>\\p{L}+)| ?(?>\\p{N}+)| ?(?>[^\\s\\p{L}\\p{N}]+)|(?>\\s+)";

static void start_engine(void)
{
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
}

static enum zf_status fail_engine(int code, struct zf_err *e)
{
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {0};
    onig_error_code_to_str(text, code);
    return zf_fail(e, ZF_FORMAT, NULL, "Oniguruma cannot split the text: %s", (const char *)text);
}

enum zf_status zf_splitter_init(struct zf_splitter *s, struct zf_err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_engine);
    OnigErrorInfo info;
    const OnigUChar *p = (const OnigUChar *)gpt2_pattern;
    int code = onig_new(&s->pattern, p, p + sizeof gpt2_pattern - 1, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
    if (code == ONIG_NORMAL) return ZF_OK;
    s->pattern = NULL;
    return fail_engine(code, e);
}

void zf_splitter_free(struct zf_splitter *s)
{
    if (s->pattern) onig_free(s->pattern);
    s->pattern = NULL;
}

enum zf_status zf_splitter_next(const struct zf_splitter *s, const char *text, size_t size, size_t at, size_t *length, struct zf_err *e)
{
    const OnigUChar *t = (const OnigUChar *)text;
    /* Lengths come back as int; a longer run is cut. */
    size_t end = size - at > INT_MAX / 2 ? at + INT_MAX / 2 : size;
    while (end < size && end > at + 1 && (t[end] & 0xC0) == 0x80) end--;
    int n = onig_match(s->pattern, t + at, t + end, t + at, NULL, ONIG_OPTION_NONE);
    if (n <= 0) return fail_engine(n, e);
    *length = (size_t)n;
    if (at + *length == size) return ZF_OK;
    /* Only a run of white space ends in white space: before other text it leaves its last character to the next word, unless it has no
     * other. */
    size_t last = *length - 1;
    while (last && (t[at + last] & 0xC0) == 0x80) last--;
    if (last && zf_is_space(zf_utf8_decode(t + at + last, *length - last))) *length = last;
    return ZF_OK;
}
