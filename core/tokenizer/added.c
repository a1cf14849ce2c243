/* Added tokens: leftmost-longest search over a sorted list, narrowed byte by byte. */
#include "core/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

struct zf_added_token zf_added_plain(const char *text, size_t size, bool special)
{
    return (struct zf_added_token){
        .text = text, .size = size, .content = text, .content_size = size, .id = -1, .special = special, .normalized = !special};
}

enum zf_status zf_added_add(struct zf_added *a, const struct zf_added_token *t, struct zf_err *e)
{
    void *p = a->tokens;
    enum zf_status s = zf_grow(&p, &a->room, a->count + 1, sizeof *a->tokens, e);
    a->tokens = p;
    if (s == ZF_OK) a->tokens[a->count++] = *t;
    return s;
}

void zf_added_free(struct zf_added *a)
{
    free(a->tokens);
    *a = (struct zf_added){0};
}

static int compare_text(const struct zf_added_token *x, const struct zf_added_token *y)
{
    int c = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return c ? c : (x->size > y->size) - (x->size < y->size);
}

/* Stable: merge sort of the C library is not promised, so equal texts are ordered by where they stood. */
struct placed {
    struct zf_added_token token;
    size_t place;
};

static int compare_placed(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    int c = compare_text(&a->token, &b->token);
    return c ? c : (a->place > b->place) - (a->place < b->place);
}

enum zf_status zf_added_sort(struct zf_added *a, struct zf_err *e)
{
    struct placed *list = calloc(a->count + 1, sizeof *list);
    if (!list) return zf_fail_memory(e, "added tokens");
    for (size_t i = 0; i < a->count; i++) list[i] = (struct placed){a->tokens[i], i};
    qsort(list, a->count, sizeof *list, compare_placed);
    size_t n = 0;
    for (size_t i = 0; i < a->count; i++) {
        if (list[i].token.size && (!n || compare_text(&a->tokens[n - 1], &list[i].token))) a->tokens[n++] = list[i].token;
    }
    a->count = n;
    free(list);
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (i < n && (size_t)(unsigned char)a->tokens[i].text[0] < b) i++;
        a->first[b] = i;
    }
    return ZF_OK;
}

/* The longest token that begins at s. */
static const struct zf_added_token *longest_at(const struct zf_added *a, const char *s, size_t size)
{
    size_t low = a->first[(unsigned char)s[0]], high = a->first[(unsigned char)s[0] + 1];
    const struct zf_added_token *best = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (a->tokens[low].size == depth) best = &a->tokens[low++]; /* a prefix of the others sorts before them */
        if (depth == size) break;
        unsigned char c = (unsigned char)s[depth];
        size_t from = low, to = high;
        while (from < to) {
            size_t middle = from + (to - from) / 2;
            if ((unsigned char)a->tokens[middle].text[depth] < c)
                from = middle + 1;
            else
                to = middle;
        }
        low = from;
        to = high;
        while (from < to) {
            size_t middle = from + (to - from) / 2;
            if ((unsigned char)a->tokens[middle].text[depth] <= c)
                from = middle + 1;
            else
                to = middle;
        }
        high = from;
    }
    return best;
}

/* The character that ends at `at` (> 0); malformed bytes are no character of any class. */
static uint32_t character_before(const unsigned char *s, size_t at, size_t *begin)
{
    size_t b = *begin = zf_utf8_last(s, at);
    return zf_utf8_length(s + b, at - b, NULL) == at - b ? zf_utf8_decode(s + b, at - b) : 0;
}

static uint32_t character_at(const unsigned char *s, size_t size, size_t *length)
{
    *length = zf_utf8_length(s, size, NULL);
    return *length ? zf_utf8_decode(s, *length) : 0;
}

const struct zf_added_token *zf_added_next(const struct zf_added *a, const char *text, size_t size, size_t *from, size_t floor,
                                           size_t *begin, size_t *end)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t at = *from; a->count && at < size; at++) {
        const struct zf_added_token *t = a->first[s[at]] == a->first[s[at] + 1] ? NULL : longest_at(a, text + at, size - at);
        if (!t) continue;
        size_t b = at, n = at + t->size, other;
        if (t->single_word &&
            ((at && zf_is_word(character_before(s, at, &other))) || (n < size && zf_is_word(character_at(s + n, size - n, &other))))) {
            at = n - 1;
            continue;
        }
        *from = n;
        while (t->lstrip && b > floor && zf_is_space(character_before(s, b, &other))) b = other;
        while (t->rstrip && n < size && zf_is_space(character_at(s + n, size - n, &other))) n += other;
        *begin = t->lstrip && b < floor ? floor : b;
        *end = n;
        return t;
    }
    return NULL;
}
