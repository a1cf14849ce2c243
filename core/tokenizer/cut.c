/* Looking at a text without encoding it: where it may be cut, which added tokens it spells out.
 *
 * A cut is right if each step of the way does the same to two texts as to one: the added tokens, the normalizer, the pre_tokenizer, and, if
 * none of its steps parts the two characters at the cut, the merges. */
#include "core/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64, TRIES = 1 << 20 };

static size_t longest(const struct zf_added *a)
{
    size_t most = 0;
    for (size_t i = 0; i < a->count; i++) most = a->tokens[i].size > most ? a->tokens[i].size : most;
    return most;
}

static bool takes_space(const struct zf_added *a)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->tokens[i].lstrip || a->tokens[i].rstrip) return true;
    }
    return false;
}

/* Whether text may have an added token that reaches or crosses the place: all of it, or as much as the text goes on. */
static bool touches(const struct zf_added *a, const char *text, size_t size, size_t place, size_t most)
{
    for (size_t at = place > most ? place - most : 0; most && at <= place && at < size; at++) {
        unsigned char c = (unsigned char)text[at];
        for (size_t i = a->first[c]; i < a->first[c + 1]; i++) {
            size_t n = a->tokens[i].size, have = size - at < n ? size - at : n;
            if (at + n >= place && !memcmp(text + at, a->tokens[i].text, have)) return true;
        }
    }
    return false;
}

/* What does not change from place to place. */
struct cutter {
    const struct zf_tokenizer *t;
    struct zf_normal_work work;
    struct zf_text around, texts; /* texts: of the tokens in bare */
    struct zf_added bare;         /* the normalized tokens, without what is put in front of the first piece of a text */
    size_t most_raw, most_normalized;
    bool takes_space;
};

static enum zf_status collect_bare(struct cutter *k, struct zf_err *e)
{
    const struct zf_added *all = &k->t->normalized;
    for (size_t i = 0; i < all->count; i++) {
        struct zf_added_token a = all->tokens[i];
        const char *text = a.content;
        size_t size = a.content_size;
        ZF_TRY(zf_normalize(&k->t->normalizer, &text, &size, true, NULL, &k->work, e));
        a.size = size;
        ZF_TRY(zf_text_add(&k->texts, text, size, e));
        ZF_TRY(zf_added_add(&k->bare, &a, e));
    }
    for (size_t i = 0, at = 0; i < k->bare.count; at += k->bare.tokens[i++].size) k->bare.tokens[i].text = k->texts.data + at;
    return zf_added_sort(&k->bare, e);
}

/* The same for the tokens that are searched for in normalised text: what stands around is normalised on either side. */
static bool touches_normalized(struct cutter *k, const char *text, size_t size, size_t place)
{
    const struct zf_tokenizer *t = k->t;
    struct zf_err e;
    size_t reach = 4 * k->most_normalized + MARGIN, begin = place > reach ? place - reach : 0;
    size_t end = size - place > reach ? place + reach : size, middle, n;
    while (begin < place && ((unsigned char)text[begin] & 0xC0) == 0x80) begin++;
    end = place + zf_normalizer_settled(&t->normalizer, text + place, zf_utf8_check(text + place, end - place));
    const char *part = text + begin;
    n = place - begin;
    k->around.size = 0;
    if (zf_normalize(&t->normalizer, &part, &n, true, NULL, &k->work, &e) != ZF_OK) return true;
    if (zf_text_add(&k->around, part, n, &e) != ZF_OK) return true;
    middle = k->around.size;
    part = text + place;
    n = end - place;
    if (zf_normalize(&t->normalizer, &part, &n, true, NULL, &k->work, &e) != ZF_OK) return true;
    if (zf_text_add(&k->around, part, n, &e) != ZF_OK) return true;
    return touches(&t->normalized, k->around.data, k->around.size, middle, k->most_normalized) ||
           touches(&k->bare, k->around.data, k->around.size, middle, k->most_normalized);
}

/* A character as the normalizer leaves it: its last one (or its first); false if nothing is left. */
static bool normal_character(struct cutter *k, uint32_t *c, bool last)
{
    char text[4];
    const char *s = text;
    size_t n = zf_utf8_encode(text, *c);
    struct zf_err e;
    if (!k->t->normalizer.count) return true;
    if (zf_normalize(&k->t->normalizer, &s, &n, true, NULL, &k->work, &e) != ZF_OK || !n) return false;
    size_t at = last ? zf_utf8_last((const unsigned char *)s, n) : 0;
    return zf_utf8_next((const unsigned char *)s, n, &at, c, &e) == ZF_OK;
}

enum joint { JOINED, APART, UNSURE };

/* Two characters of which each matches or not, in a step that takes characters one by one. */
static enum joint joint_of(enum zf_behavior behavior, bool left, bool right)
{
    switch (behavior) {
    case ZF_CONTIGUOUS: return left != right ? APART : JOINED;
    case ZF_MERGED_WITH_PREVIOUS: return left ? APART : JOINED;
    case ZF_MERGED_WITH_NEXT: return right ? APART : JOINED;
    default: return left || right ? APART : JOINED;
    }
}

static enum joint split_joint(const struct zf_step *s, uint32_t left, uint32_t right)
{
    if (s->has_regex) {
        bool all = (s->behavior == ZF_ISOLATED && !s->invert) || (s->behavior == ZF_REMOVED && s->invert);
        return all && zf_splitter_parts(&s->regex, left, right) ? APART : UNSURE;
    }
    uint32_t c = zf_utf8_only(s->pattern.text, s->pattern.size);
    if (c == ZF_NO_CHARACTER || (s->invert && (left == c || right == c))) return UNSURE;
    return joint_of(s->behavior, left == c, right == c);
}

/* A step between two characters, which it may replace. Something put in front of the second would be put there only in the whole, where it
 * begins a piece, not where it begins a text that goes on. */
static enum joint step_joint(const struct zf_step *s, bool apart, uint32_t *left, uint32_t *right)
{
    if (s->kind == ZF_STEP_BYTE_LEVEL) {
        if (apart && s->prefix_space && *right != ' ') return UNSURE;
        if (apart || !s->use_regex) return JOINED;
        return zf_splitter_parts(&s->regex, *left, *right) ? APART : UNSURE;
    }
    if (s->kind == ZF_STEP_METASPACE) {
        uint32_t space = zf_utf8_only(s->content.text, s->content.size);
        if (space == ZF_NO_CHARACTER || (apart && s->prepend == ZF_PREPEND_ALWAYS && *right != ' ' && *right != space)) return UNSURE;
        if (*left == ' ') *left = space;
        if (*right == ' ') *right = space;
        return s->split ? joint_of(ZF_MERGED_WITH_NEXT, *left == space, *right == space) : JOINED;
    }
    if (apart) return JOINED;
    if (s->kind == ZF_STEP_SPLIT) return split_joint(s, *left, *right);
    if (s->kind == ZF_STEP_DIGITS)
        return joint_of(s->individual ? ZF_ISOLATED : ZF_CONTIGUOUS, zf_is_numeric(*left), zf_is_numeric(*right));
    if (s->kind == ZF_STEP_PUNCTUATION) return joint_of(s->behavior, zf_is_punctuation(*left), zf_is_punctuation(*right));
    if (s->kind == ZF_STEP_WHITESPACE_SPLIT) return joint_of(ZF_REMOVED, zf_is_space(*left), zf_is_space(*right));
    return UNSURE;
}

static bool parts_words(struct cutter *k, uint32_t left, uint32_t right)
{
    const struct zf_tokenizer *t = k->t;
    char text[4];
    bool apart = false, mapped = false;
    if (!zf_normalizer_parts(&t->normalizer, left, right)) return false;
    if (!normal_character(k, &left, true) || !normal_character(k, &right, false)) return false;
    for (size_t i = 0; i < t->pre_tokenizer.count; i++) {
        enum joint j = step_joint(&t->pre_tokenizer.list[i], apart, &left, &right);
        if (j == UNSURE) return false;
        apart |= j == APART;
        if (t->pre_tokenizer.list[i].kind != ZF_STEP_BYTE_LEVEL || mapped) continue;
        left = zf_alphabet_character((unsigned char)text[zf_utf8_encode(text, left) - 1]);
        zf_utf8_encode(text, right);
        right = zf_alphabet_character((unsigned char)text[0]);
        mapped = true;
    }
    if (apart) return true;
    if (mapped) return zf_bpe_parts(t->bpe, (uint32_t)zf_alphabet_byte(left), (uint32_t)zf_alphabet_byte(right));
    return zf_bpe_parts(t->bpe, left, right);
}

static bool may_cut(struct cutter *k, const char *text, size_t size, size_t place)
{
    const struct zf_tokenizer *t = k->t;
    const unsigned char *s = (const unsigned char *)text;
    if (!t->bytes) {
        if ((s[place] & 0xC0) == 0x80) return false;
        size_t before = zf_utf8_last(s, place), n = zf_utf8_length(s + place, size - place, NULL);
        uint32_t left = zf_utf8_only(text + before, place - before);
        if (!n || left == ZF_NO_CHARACTER || (k->takes_space && zf_is_space(left))) return false;
        if (!parts_words(k, left, zf_utf8_decode(s + place, n))) return false;
    }
    if (touches(&t->raw, text, size, place, k->most_raw)) return false;
    if (!t->normalizer.count) return !touches(&t->normalized, text, size, place, k->most_normalized);
    return !k->most_normalized || !touches_normalized(k, text, size, place);
}

size_t zf_tokenizer_cut(const struct zf_tokenizer *t, const char *text, size_t size)
{
    struct cutter k = {.t = t, .most_raw = longest(&t->raw), .most_normalized = longest(&t->normalized)};
    k.takes_space = takes_space(&t->raw) || takes_space(&t->normalized);
    size_t place = size ? size - 1 : 0;
    struct zf_err e;
    if (t->normalizer.count && t->normalized.count && collect_bare(&k, &e) != ZF_OK) place = 0;
    for (size_t tries = 0; place && !may_cut(&k, text, size, place); place--) {
        if (++tries == TRIES) place = 1;
    }
    zf_normal_work_free(&k.work);
    zf_added_free(&k.bare);
    free(k.around.data);
    free(k.texts.data);
    return place;
}

static size_t count_in(const struct zf_added *a, const char *text, size_t size)
{
    size_t count = 0, done = 0, from = 0, begin, end;
    while (zf_added_next(a, text, size, &from, done, &begin, &end)) {
        count += begin < end;
        done = end;
    }
    return count;
}

/* In a text between tokens of the first kind; what cannot be normalised has none. */
static size_t count_normalized(const struct zf_tokenizer *t, struct zf_normal_work *w, const char *text, size_t size)
{
    struct zf_err e;
    if (!t->normalized.count || zf_normalize(&t->normalizer, &text, &size, false, NULL, w, &e) != ZF_OK) return 0;
    return count_in(&t->normalized, text, size);
}

size_t zf_tokenizer_count_added(const struct zf_tokenizer *t, const char *text, size_t size)
{
    struct zf_normal_work w = {0};
    size_t count = 0, done = 0, from = 0, begin, end;
    while (zf_added_next(&t->raw, text, size, &from, done, &begin, &end)) {
        count += count_normalized(t, &w, text + done, begin > done ? begin - done : 0) + (begin < end);
        done = end;
    }
    count += count_normalized(t, &w, text + done, size - done);
    zf_normal_work_free(&w);
    return count;
}
