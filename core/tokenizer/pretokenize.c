/* Regexes by Oniguruma, with forms of the common patterns that match the same in constant stack. */
#include "core/tokenizer/pretokenize.h"
#include "core/tokenizer/text.h"

#include <limits.h>
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>

/* A pattern that backtracks without end, or whose stack grows with the text, must end as an error. */
enum { TRIES = 10000000, TRIES_IN_SEARCH = 200000000, STACK = 4 << 20 };

/* Patterns by their text, and what is run for them: the same matches, but the runs are atomic (a run of any length needs no stack), and
 * a run of white space, whose end depends on what stands behind it, is one run, which next_known then cuts. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LATER(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LATER_RUN(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?>\\p{L}+)|" numbers "| ?(?>[^\\s\\p{L}\\p{N}]+[\\r\\n]*)|(?>\\s+)"
static const struct {
    const char *pattern, *run;
} known[] = {
    [ZF_PATTERN_GPT2] = {GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?(?>\\p{L}+)| ?(?>\\p{N}+)| ?(?>[^\\s\\p{L}\\p{N}]+)|(?>\\s+)"},
    [ZF_PATTERN_LLAMA3] = {LATER("\\p{N}{1,3}"), LATER_RUN("\\p{N}{1,3}")},
    [ZF_PATTERN_QWEN] = {LATER("\\p{N}"), LATER_RUN("\\p{N}")},
};

static void start_engine(void)
{
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    onig_set_retry_limit_in_match(TRIES);
    onig_set_retry_limit_in_search(TRIES_IN_SEARCH);
    onig_set_match_stack_limit_size(STACK);
}

static enum zf_status fail_search(int code, struct zf_err *e)
{
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {0};
    onig_error_code_to_str(text, code);
    return zf_fail(e, ZF_FORMAT, NULL, "Oniguruma cannot apply the tokenizer's regex to the text: %s", (const char *)text);
}

enum zf_status zf_splitter_init(struct zf_splitter *s, const char *pattern, size_t size, struct zf_err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_engine);
    *s = (struct zf_splitter){0};
    const OnigUChar *p = (const OnigUChar *)pattern;
    for (size_t k = 1; k < sizeof known / sizeof *known; k++) {
        if (strlen(known[k].pattern) != size || memcmp(known[k].pattern, pattern, size)) continue;
        s->known = (enum zf_pattern)k;
        p = (const OnigUChar *)known[k].run;
        size = strlen(known[k].run);
    }
    OnigErrorInfo info = {0};
    int code = onig_new(&s->regex, p, p + size, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
    if (code == ONIG_NORMAL) return ZF_OK;
    s->regex = NULL;
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {0};
    onig_error_code_to_str(text, code, &info);
    return zf_fail(e, ZF_FORMAT, NULL, "the regex '%.*s' is none for Oniguruma: %s", (int)(size < 300 ? size : 300), pattern,
                   (const char *)text);
}

enum zf_status zf_splitter_init_gpt2(struct zf_splitter *s, struct zf_err *e)
{
    return zf_splitter_init(s, GPT2, sizeof GPT2 - 1, e);
}

void zf_splitter_free(struct zf_splitter *s)
{
    if (s->regex) onig_free(s->regex);
    s->regex = NULL;
}

void zf_region_free(struct re_registers **region)
{
    if (*region) onig_region_free(*region, 1);
    *region = NULL;
}

static bool ends_in_space(const unsigned char *t, size_t size)
{
    size_t last = zf_utf8_last(t, size);
    return zf_is_space(zf_utf8_decode(t + last, size - last));
}

/* Of a run of white space: up to its last line end where the pattern has lines; otherwise all, but for the last character before other
 * text, which that takes along, unless it is the only one. */
static size_t cut_spaces(const unsigned char *t, size_t run, bool lines, bool at_end)
{
    for (size_t n = run; lines && n; n--) {
        if (t[n - 1] == '\n' || t[n - 1] == '\r') return n;
    }
    size_t last = zf_utf8_last(t, run);
    return at_end || !last ? run : last;
}

static enum zf_status next_known(struct zf_search *f, const struct zf_splitter *s, size_t *length, struct zf_err *e)
{
    const OnigUChar *t = (const OnigUChar *)f->text + f->at;
    size_t left = f->size - f->at, end = left;
    if (end > INT_MAX / 2) end = zf_utf8_last(t, INT_MAX / 2 + 1); /* lengths come back as int; a longer run is cut */
    int n = onig_match(s->regex, t, t + end, t, NULL, ONIG_OPTION_NONE);
    if (n <= 0) return fail_search(n, e);
    size_t first = zf_utf8_length(t, left, NULL);
    *length = (size_t)n;
    /* A run of white space begins and goes on with it: one space alone stands before other kinds, too. */
    if (!first || !zf_is_space(zf_utf8_decode(t, first)) || !ends_in_space(t, (size_t)n)) return ZF_OK;
    size_t second = (size_t)n > first ? zf_utf8_length(t + first, (size_t)n - first, NULL) : 0;
    if (second && !zf_is_space(zf_utf8_decode(t + first, second))) return ZF_OK;
    *length = cut_spaces(t, (size_t)n, s->known != ZF_PATTERN_GPT2, (size_t)n == left);
    return ZF_OK;
}

enum zf_status zf_search_next(struct zf_search *f, const struct zf_splitter *s, bool *found, size_t *begin, size_t *end, struct zf_err *e)
{
    *found = false;
    if (s->known) {
        size_t length = 0;
        if (f->at >= f->size) return ZF_OK;
        ZF_TRY(next_known(f, s, &length, e));
        *begin = f->at;
        *end = f->at += length;
        *found = true;
        return ZF_OK;
    }
    const OnigUChar *t = (const OnigUChar *)f->text;
    if (f->size > INT_MAX)
        return zf_fail(e, ZF_FORMAT, NULL, "a text of %zu bytes; a tokenizer with its own regex takes at most %d", f->size, INT_MAX);
    if (!*f->region && !(*f->region = onig_region_new())) return zf_fail_memory(e, "a search");
    while (f->at <= f->size) {
        int at = onig_search(s->regex, t, t + f->size, t + f->at, t + f->size, *f->region, ONIG_OPTION_NONE);
        if (at == ONIG_MISMATCH) break;
        if (at < 0) return fail_search(at, e);
        size_t b = (size_t)(*f->region)->beg[0], n = (size_t)(*f->region)->end[0];
        /* An empty match where the last one ended is none, as in the reference. */
        if (b == n && f->any && f->last_end == n) {
            f->at += f->at < f->size ? zf_utf8_length(t + f->at, f->size - f->at, NULL) : 1;
            continue;
        }
        f->any = *found = true;
        f->at = f->last_end = *end = n;
        *begin = b;
        return ZF_OK;
    }
    f->at = f->size + 1;
    return ZF_OK;
}

static bool is_line_end(uint32_t c)
{
    return c == '\n' || c == '\r';
}

static bool is_plain_word(uint32_t c) /* surely a letter or a digit, in every version of Unicode */
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= 0x3B1 && c <= 0x3C9) ||
           (c >= 0x410 && c <= 0x44F) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x4E00 && c <= 0x9FA5) ||
           (c >= 0xAC00 && c <= 0xD7A3);
}

bool zf_splitter_parts(const struct zf_splitter *s, uint32_t left, uint32_t right)
{
    bool left_space = zf_is_space(left), right_space = zf_is_space(right);
    if (s->known == ZF_PATTERN_GPT2) return !left_space && right_space;
    if (s->known == ZF_PATTERN_OTHER) return false;
    if (is_line_end(left)) return !right_space;
    return !left_space && right_space && (!is_line_end(right) || is_plain_word(left));
}
