/* Byte-pair encoding of a word. The order of merges is the reference's: always the pair with the lowest rank, the leftmost of equals.
 * Short words scan for it, long ones keep a heap whose outdated entries are dropped when they surface. */
#include "core/tokenizer/bpe.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 48, CACHED_BYTES = 30, CACHED_IDS = 8, CACHE = 32768, SPLIT_FROM = 32, POLL = 1 << 20 };
enum { NONE = -1 };
#define NO_RANK UINT32_MAX
#define EMPTY UINT64_MAX

struct word_slot {
    const char *text; /* NULL: free */
    uint32_t size;
    int32_t id;
};

struct merge_slot {
    uint64_t pair; /* EMPTY: free */
    uint32_t rank;
    int32_t joined;
};

struct zf_bpe {
    struct zf_bpe_options o;
    struct word_slot *words;
    struct merge_slot *merges;
    uint64_t *inside; /* pairs of units between which a merge can join */
    size_t word_mask, merge_mask, inside_mask, inside_count;
    bool merges_bytes;       /* a rule joins <0xNN>, which is none of the units */
    int32_t unk, bytes[256]; /* ids of <0x00> .. <0xFF> */
    int32_t unit[256];       /* byte_level: of each byte; otherwise of each ASCII character */
    bool splits;             /* words may be cut where no merge can reach across */
};

struct zf_bpe_cached {
    uint8_t size, count; /* size 0: free */
    char word[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};

struct zf_bpe_entry {
    uint64_t order; /* rank, then position */
    int32_t joined;
};

static uint64_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15ull ^ n, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xD6E8FEB86659FD93ull;
        h ^= h >> 32;
    }
    w = 0;
    if (n) memcpy(&w, s, n);
    h = (h ^ w) * 0xD6E8FEB86659FD93ull;
    return h ^ h >> 32;
}

static uint64_t hash_pair(uint64_t p)
{
    p *= 0x9E3779B97F4A7C15ull;
    return p ^ p >> 32;
}

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static size_t table_size(size_t entries) /* a power of two, at most half full */
{
    size_t n = 16;
    while (n / 2 < entries && n < SIZE_MAX / 64) n *= 2;
    return n;
}

static uint64_t *inside_slot(uint64_t *table, size_t mask, uint64_t pair)
{
    size_t i = hash_pair(pair) & mask;
    while (table[i] != EMPTY && table[i] != pair) i = (i + 1) & mask;
    return &table[i];
}

static bool can_touch(const struct zf_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t pair = pair_of(left, right);
    return *inside_slot(b->inside, b->inside_mask, pair) == pair;
}

static enum zf_status resize_inside(struct zf_bpe *b, size_t slots, struct zf_err *e)
{
    uint64_t *table = malloc(slots * sizeof *table);
    if (!table) return zf_fail_memory(e, "the vocabulary");
    memset(table, 0xFF, slots * sizeof *table);
    for (size_t i = 0; b->inside && i <= b->inside_mask; i++) {
        if (b->inside[i] != EMPTY) *inside_slot(table, slots - 1, b->inside[i]) = b->inside[i];
    }
    free(b->inside);
    b->inside = table;
    b->inside_mask = slots - 1;
    return ZF_OK;
}

enum zf_status zf_bpe_new(struct zf_bpe **out, const struct zf_bpe_options *o, size_t vocab, size_t merges, struct zf_err *e)
{
    struct zf_bpe *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return zf_fail_memory(e, "the vocabulary");
    b->o = *o;
    size_t words = table_size(vocab), pairs = table_size(merges);
    b->words = calloc(words, sizeof *b->words);
    b->merges = malloc(pairs * sizeof *b->merges);
    if (!b->words || !b->merges) {
        zf_bpe_free(b);
        return zf_fail_memory(e, "the vocabulary");
    }
    b->word_mask = words - 1;
    b->merge_mask = pairs - 1;
    for (size_t i = 0; i < pairs; i++) b->merges[i].pair = EMPTY;
    if (resize_inside(b, 1024, e) != ZF_OK) {
        zf_bpe_free(b);
        return e->code;
    }
    *out = b;
    return ZF_OK;
}

void zf_bpe_free(struct zf_bpe *b)
{
    if (!b) return;
    free(b->words);
    free(b->merges);
    free(b->inside);
    free(b);
}

static struct word_slot *word_slot(const struct zf_bpe *b, const char *text, size_t size)
{
    size_t i = hash_bytes(text, size) & b->word_mask;
    while (b->words[i].text && (b->words[i].size != size || memcmp(b->words[i].text, text, size))) i = (i + 1) & b->word_mask;
    return &b->words[i];
}

void zf_bpe_add(struct zf_bpe *b, const char *text, size_t size, int32_t id)
{
    *word_slot(b, text, size) = (struct word_slot){text, (uint32_t)size, id};
}

int32_t zf_bpe_find(const struct zf_bpe *b, const char *text, size_t size)
{
    const struct word_slot *s = word_slot(b, text, size);
    return s->text ? s->id : NONE;
}

static struct merge_slot *merge_slot(const struct zf_bpe *b, uint64_t pair)
{
    size_t i = hash_pair(pair) & b->merge_mask;
    while (b->merges[i].pair != EMPTY && b->merges[i].pair != pair) i = (i + 1) & b->merge_mask;
    return &b->merges[i];
}

static uint32_t rank_of(const struct zf_bpe *b, int32_t left, int32_t right, int32_t *joined)
{
    const struct merge_slot *m = merge_slot(b, pair_of((uint32_t)left, (uint32_t)right));
    if (m->pair == EMPTY) return NO_RANK;
    *joined = m->joined;
    return m->rank;
}

static bool is_byte_token(const char *text, size_t size)
{
    return text && size == 6 && !memcmp(text, "<0x", 3);
}

/* The unit at a place of a token's text, -1 if no input can contain it. */
static int64_t unit_at(const struct zf_bpe *b, const struct zf_bpe_side *t, size_t at)
{
    const unsigned char *s = (const unsigned char *)t->text;
    size_t n = at < t->size ? zf_utf8_length(s + at, t->size - at, NULL) : 0;
    if (!n) return -1;
    uint32_t c = zf_utf8_decode(s + at, n);
    return b->o.byte_level ? zf_alphabet_byte(c) : (int64_t)c;
}

/* Where a rule joins: everywhere else a word may be cut without changing a single id, since what is longer than a unit comes from rules. */
static enum zf_status add_inside(struct zf_bpe *b, const struct zf_bpe_side *left, const struct zf_bpe_side *right, struct zf_err *e)
{
    size_t last = zf_utf8_last((const unsigned char *)left->text, left->size);
    int64_t before = unit_at(b, left, last), behind = unit_at(b, right, 0);
    if (before < 0 || behind < 0) return ZF_OK;
    if (b->inside_count * 2 >= b->inside_mask) ZF_TRY(resize_inside(b, 2 * (b->inside_mask + 1), e));
    uint64_t pair = pair_of((uint32_t)before, (uint32_t)behind), *slot = inside_slot(b->inside, b->inside_mask, pair);
    b->inside_count += *slot == EMPTY;
    *slot = pair;
    return ZF_OK;
}

enum zf_status zf_bpe_merge(struct zf_bpe *b, const struct zf_bpe_side *left, const struct zf_bpe_side *right, int32_t joined,
                            uint32_t rank, struct zf_err *e)
{
    uint64_t pair = pair_of((uint32_t)left->id, (uint32_t)right->id);
    *merge_slot(b, pair) = (struct merge_slot){pair, rank, joined};
    b->merges_bytes |= is_byte_token(left->text, left->size) || is_byte_token(right->text, right->size);
    return add_inside(b, left, right, e);
}

void zf_bpe_expect(const struct zf_bpe *b, const char *text, size_t size)
{
    __builtin_prefetch(&b->words[hash_bytes(text, size) & b->word_mask]);
}

void zf_bpe_expect_merge(const struct zf_bpe *b, int32_t left, int32_t right)
{
    __builtin_prefetch(&b->merges[hash_pair(pair_of((uint32_t)left, (uint32_t)right)) & b->merge_mask], 1);
}

void zf_bpe_finish(struct zf_bpe *b)
{
    bool all_bytes = true, all_units = true;
    for (int i = 0; i < 256; i++) {
        char name[8], character[4];
        size_t n = zf_utf8_encode(character, b->o.byte_level ? zf_alphabet_character((unsigned char)i) : (uint32_t)i);
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        b->bytes[i] = zf_bpe_find(b, name, 6);
        b->unit[i] = b->o.byte_level || i < 128 ? zf_bpe_find(b, character, n) : NONE;
        all_bytes &= b->bytes[i] != NONE;
        all_units &= b->unit[i] != NONE;
    }
    b->unk = b->o.unk ? zf_bpe_find(b, b->o.unk, strlen(b->o.unk)) : NONE;
    /* A unit that vanishes or is fused with its neighbours would make far parts of a word meet. */
    b->splits = b->o.byte_level ? all_units : b->o.byte_fallback && all_bytes && !b->merges_bytes;
}

bool zf_bpe_parts(const struct zf_bpe *b, uint32_t left, uint32_t right)
{
    return b->splits && !b->o.ignore_merges && !can_touch(b, left, right);
}

enum zf_status zf_bpe_work_init(struct zf_bpe_work *w, bool cached, struct zf_err *e)
{
    size_t slots = cached ? CACHE : 1;
    *w = (struct zf_bpe_work){.cache = calloc(slots, sizeof *w->cache), .cache_mask = slots - 1};
    return w->cache ? ZF_OK : zf_fail_memory(e, "tokenising");
}

void zf_bpe_work_free(struct zf_bpe_work *w)
{
    free(w->cache);
    free(w->symbols);
    free(w->begins);
    free(w->next);
    free(w->previous);
    free(w->heap);
    free(w->starts.list);
    free(w->mapped.data);
    *w = (struct zf_bpe_work){0};
}

/* What a unit that is not in the vocabulary becomes: its bytes if all of them have an id, else an unknown one, which is held back because
 * fuse_unk may join it with the next. */
static enum zf_status add_unknown(const struct zf_bpe *b, const char *unit, size_t size, int32_t *symbols, size_t *count, bool *held,
                                  struct zf_err *e)
{
    bool all = b->o.byte_fallback;
    for (size_t i = 0; i < size; i++) all &= b->bytes[(unsigned char)unit[i]] != NONE;
    if (all) {
        for (size_t i = 0; i < size; i++) symbols[(*count)++] = b->bytes[(unsigned char)unit[i]];
        return ZF_OK;
    }
    if (!b->o.unk) return ZF_OK;
    if (b->unk == NONE) {
        return zf_fail(
            e, ZF_FORMAT, NULL,
            "the text has a character that is not in the tokenizer's vocabulary, and neither is its unk_token '%.64s'; add it to "
            "model.vocab in tokenizer.json",
            b->o.unk);
    }
    if (*held && !b->o.fuse_unk) symbols[(*count)++] = b->unk;
    *held = true;
    return ZF_OK;
}

static enum zf_status next_unit(const struct zf_bpe *b, const char *word, size_t size, size_t *at, uint32_t *unit, struct zf_err *e)
{
    *unit = (unsigned char)word[*at];
    if (*unit >= 0x80 && !b->o.byte_level) return zf_utf8_next((const unsigned char *)word, size, at, unit, e);
    ++*at;
    return ZF_OK;
}

/* Symbols from .. to are of the text at `at`: all of it each, or a byte each. */
static void note_begins(struct zf_bpe_work *w, size_t from, size_t to, size_t at, bool bytes)
{
    for (size_t i = from; w->starts.wanted && i < to; i++) w->begins[i] = (int32_t)(at + (bytes ? i - from : 0));
}

static enum zf_status make_room(struct zf_bpe_work *w, size_t n, struct zf_err *e)
{
    void *p = w->symbols;
    enum zf_status s = zf_grow(&p, &w->symbol_room, n, sizeof *w->symbols, e);
    w->symbols = p;
    if (s != ZF_OK || !w->starts.wanted) return s;
    p = w->begins;
    s = zf_grow(&p, &w->begin_room, n, sizeof *w->begins, e);
    w->begins = p;
    return s;
}

static enum zf_status start_symbols(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t size, size_t *count,
                                    struct zf_err *e)
{
    if (size > INT_MAX / 4)
        return zf_fail(e, ZF_FORMAT, NULL, "one word of %zu bytes; this tokenizer can take at most %d at a time", size, INT_MAX / 4);
    ZF_TRY(make_room(w, 2 * size + 1, e));
    size_t n = 0, held_at = 0;
    bool held = false;
    for (size_t at = 0, next = 0; at < size; at = next) {
        uint32_t unit;
        ZF_TRY(next_unit(b, word, size, &next, &unit, e));
        size_t length = next - at, had = n;
        int32_t id = length == 1 ? b->unit[unit] : zf_bpe_find(b, word + at, length);
        if (id == NONE) {
            char mapped[4];
            size_t bytes = b->o.byte_level ? zf_utf8_encode(mapped, zf_alphabet_character((unsigned char)unit)) : length;
            bool was = held;
            ZF_TRY(add_unknown(b, b->o.byte_level ? mapped : word + at, bytes, w->symbols, &n, &held, e));
            note_begins(w, had, n, was ? held_at : at, !b->o.byte_level && n - had == length);
            if (!was || !b->o.fuse_unk) held_at = at;
            continue;
        }
        if (held) w->symbols[n++] = b->unk;
        note_begins(w, had, n, held_at, false);
        held = false;
        w->symbols[n++] = id;
        note_begins(w, n - 1, n, at, false);
    }
    if (held) {
        w->symbols[n++] = b->unk;
        note_begins(w, n - 1, n, held_at, false);
    }
    *count = n;
    return ZF_OK;
}

static size_t merge_short(const struct zf_bpe *b, int32_t *s, size_t n)
{
    uint32_t rank[SHORT];
    int32_t joined[SHORT];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, s[i], s[i + 1], &joined[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best]) best = i;
        }
        if (rank[best] == NO_RANK) break;
        s[best] = joined[best];
        n--;
        memmove(s + best + 1, s + best + 2, (n - best - 1) * sizeof *s);
        if (best + 1 < n) {
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
            memmove(joined + best, joined + best + 1, (n - best - 1) * sizeof *joined);
            rank[best] = rank_of(b, s[best], s[best + 1], &joined[best]);
        }
        if (best) rank[best - 1] = rank_of(b, s[best - 1], s[best], &joined[best - 1]);
    }
    return n;
}

static void sift_down(struct zf_bpe_entry *heap, size_t n, size_t i)
{
    struct zf_bpe_entry x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= x.order) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static enum zf_status push_pair(const struct zf_bpe *b, struct zf_bpe_work *w, size_t *count, int32_t left, int32_t right, bool sift,
                                struct zf_err *e)
{
    int32_t joined = NONE;
    uint32_t rank = rank_of(b, w->symbols[left], w->symbols[right], &joined);
    if (rank == NO_RANK) return ZF_OK;
    void *p = w->heap;
    enum zf_status s = zf_grow(&p, &w->heap_room, *count + 1, sizeof *w->heap, e);
    w->heap = p;
    if (s != ZF_OK) return s;
    struct zf_bpe_entry x = {pair_of(rank, (uint32_t)left), joined};
    size_t i = (*count)++;
    for (; sift && i && w->heap[(i - 1) / 2].order > x.order; i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = x;
    return ZF_OK;
}

static enum zf_status make_links(struct zf_bpe_work *w, size_t n, struct zf_err *e)
{
    if (n > w->link_room) {
        free(w->next);
        free(w->previous);
        w->link_room = 0;
        w->next = malloc(n * sizeof *w->next);
        w->previous = malloc(n * sizeof *w->previous);
        if (!w->next || !w->previous) return zf_fail_memory(e, "tokenising a long word");
        w->link_room = n;
    }
    for (size_t i = 0; i < n; i++) {
        w->previous[i] = (int32_t)i - 1;
        w->next[i] = i + 1 < n ? (int32_t)i + 1 : NONE;
    }
    return ZF_OK;
}

static enum zf_status merge_long(const struct zf_bpe *b, struct zf_bpe_work *w, size_t *symbols, const volatile int *stop, struct zf_err *e)
{
    size_t n = *symbols, count = 0, turns = 0;
    int32_t *s = w->symbols;
    ZF_TRY(make_links(w, n, e));
    for (size_t i = 0; i + 1 < n; i++) ZF_TRY(push_pair(b, w, &count, (int32_t)i, (int32_t)i + 1, false, e));
    for (size_t i = count / 2; i-- > 0;) sift_down(w->heap, count, i);
    while (count) {
        if (++turns % POLL == 0 && stop && *stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising");
        struct zf_bpe_entry top = w->heap[0];
        w->heap[0] = w->heap[--count];
        if (count) sift_down(w->heap, count, 0);
        int32_t at = (int32_t)(uint32_t)top.order, right = s[at] == NONE ? NONE : w->next[at], joined = NONE;
        if (right == NONE || rank_of(b, s[at], s[right], &joined) == NO_RANK || joined != top.joined) continue;
        s[at] = top.joined;
        s[right] = NONE;
        w->next[at] = w->next[right];
        if (w->next[at] != NONE) w->previous[w->next[at]] = at;
        if (w->previous[at] != NONE) ZF_TRY(push_pair(b, w, &count, w->previous[at], at, true, e));
        if (w->next[at] != NONE) ZF_TRY(push_pair(b, w, &count, at, w->next[at], true, e));
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == NONE) continue;
        if (w->starts.wanted) w->begins[kept] = w->begins[i];
        s[kept++] = s[i];
    }
    *symbols = kept;
    return ZF_OK;
}

static enum zf_status push_all(struct zf_ids *out, const int32_t *ids, size_t n, struct zf_err *e)
{
    void *p = out->ids;
    enum zf_status s = zf_grow(&p, &out->room, out->count + n, sizeof *ids, e);
    out->ids = p;
    if (s != ZF_OK) return s;
    if (n) memcpy(out->ids + out->count, ids, n * sizeof *ids);
    out->count += n;
    return ZF_OK;
}

static enum zf_status push_starts(struct zf_bpe_starts *to, const int32_t *begins, size_t n, size_t offset, struct zf_err *e)
{
    void *p = to->list;
    enum zf_status s = zf_grow(&p, &to->room, to->count + n, sizeof *to->list, e);
    to->list = p;
    for (size_t i = 0, at = 0; s == ZF_OK && i < n; i++) { /* an unknown unit may come after its neighbours' bytes */
        at = (size_t)begins[i] > at ? (size_t)begins[i] : at;
        to->list[to->count++] = offset + at;
    }
    return s;
}

/* The whole word's id, for ignore_merges. */
static enum zf_status find_whole(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t size, int32_t *id,
                                 struct zf_err *e)
{
    if (!b->o.byte_level) {
        *id = zf_bpe_find(b, word, size);
        return ZF_OK;
    }
    w->mapped.size = 0;
    for (size_t i = 0; i < size; i++) {
        char c[4];
        ZF_TRY(zf_text_add(&w->mapped, c, zf_utf8_encode(c, zf_alphabet_character((unsigned char)word[i])), e));
    }
    *id = zf_bpe_find(b, w->mapped.data, w->mapped.size);
    return ZF_OK;
}

/* Symbols of a word or part of one, merged. */
static enum zf_status merge_part(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t size, size_t *n,
                                 const volatile int *stop, struct zf_err *e)
{
    ZF_TRY(start_symbols(b, w, word, size, n, e));
    if (*n > SHORT || w->starts.wanted) return merge_long(b, w, n, stop, e);
    *n = merge_short(b, w->symbols, *n);
    return ZF_OK;
}

/* A word, or the part of it at `begin`, through the cache. */
static enum zf_status encode_part(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t begin, size_t size,
                                  struct zf_ids *out, const volatile int *stop, struct zf_err *e)
{
    const char *part = word + begin;
    bool cached = size <= CACHED_BYTES && !w->starts.wanted;
    struct zf_bpe_cached *c = cached ? &w->cache[hash_bytes(part, size) & w->cache_mask] : NULL;
    if (c && c->size == size && !memcmp(c->word, part, size)) return push_all(out, c->ids, c->count, e);
    int32_t id = NONE;
    if (b->o.ignore_merges) ZF_TRY(find_whole(b, w, part, size, &id, e));
    size_t n = 1;
    if (id == NONE) {
        ZF_TRY(merge_part(b, w, part, size, &n, stop, e));
    } else {
        ZF_TRY(make_room(w, 1, e));
        w->symbols[0] = id;
        note_begins(w, 0, 1, 0, false);
    }
    if (c && n <= CACHED_IDS) {
        c->size = (uint8_t)size;
        c->count = (uint8_t)n;
        memcpy(c->word, part, size);
        if (n) memcpy(c->ids, w->symbols, n * sizeof *c->ids);
    }
    if (w->starts.wanted) ZF_TRY(push_starts(&w->starts, w->begins, n, begin, e));
    return push_all(out, w->symbols, n, e);
}

enum zf_status zf_bpe_encode(const struct zf_bpe *b, struct zf_bpe_work *w, const char *word, size_t size, struct zf_ids *out,
                             const volatile int *stop, struct zf_err *e)
{
    if (!size) return ZF_OK;
    if (!b->splits || b->o.ignore_merges || size <= SPLIT_FROM) return encode_part(b, w, word, 0, size, out, stop, e);
    size_t begin = 0, polled = 0;
    uint32_t before = 0;
    for (size_t at = 0, next = 0; at < size; at = next) {
        uint32_t unit;
        ZF_TRY(next_unit(b, word, size, &next, &unit, e));
        if (at && !can_touch(b, before, unit)) {
            ZF_TRY(encode_part(b, w, word, begin, at - begin, out, stop, e));
            begin = at;
            if (at - polled > POLL) {
                polled = at;
                if (stop && *stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising");
            }
        }
        before = unit;
    }
    return encode_part(b, w, word, begin, size - begin, out, stop, e);
}
