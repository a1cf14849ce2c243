/* model.vocab and model.merges: hundreds of thousands of short texts. Read straight from the file where it is plain, else from the JSON
 * library's objects; both give the same lists. */
#include "core/tokenizer/load.h"

#include <stdlib.h>
#include <string.h>

static enum zf_status add_entry(struct zf_vocabulary *v, struct zf_piece text, int32_t id, struct zf_err *e)
{
    void *p = v->entries;
    enum zf_status s = zf_grow(&p, &v->room, v->count + 1, sizeof *v->entries, e);
    v->entries = p;
    if (s == ZF_OK) v->entries[v->count++] = (struct zf_entry){text, id};
    return s;
}

static enum zf_status add_rule(struct zf_vocabulary *v, struct zf_piece left, struct zf_piece right, struct zf_err *e)
{
    void *p = v->rules;
    enum zf_status s = zf_grow(&p, &v->rule_room, v->rule_count + 1, sizeof *v->rules, e);
    v->rules = p;
    if (s == ZF_OK) v->rules[v->rule_count++] = (struct zf_rule){left, right};
    return s;
}

/* "a b"; false: it is none. A line "#version: 0.2" of a merges.txt is no rule: their texts stay NULL. */
static bool split_rule(struct zf_piece text, struct zf_piece *left, struct zf_piece *right)
{
    static const char version[] = "#version";
    *left = *right = (struct zf_piece){0};
    if (text.size >= sizeof version - 1 && !memcmp(text.text, version, sizeof version - 1)) return true;
    const char *space = memchr(text.text, ' ', text.size);
    if (!space) return false;
    *left = (struct zf_piece){text.text, (size_t)(space - text.text)};
    *right = (struct zf_piece){space + 1, text.size - left->size - 1};
    return left->size && right->size && !memchr(right->text, ' ', right->size);
}

void zf_vocabulary_free(struct zf_vocabulary *v)
{
    free(v->entries);
    free(v->rules);
    free(v->rule_text);
    *v = (struct zf_vocabulary){0};
}

/* From JSON objects. */

static enum zf_status load_entries(struct zf_loader *l, const json_t *vocab)
{
    const char *text;
    json_t *id;
    json_object_foreach((json_t *)(size_t)vocab, text, id)
    {
        json_int_t n = json_is_integer(id) ? json_integer_value(id) : -1;
        struct zf_piece piece = {zf_arena_strdup(&l->t->arena, text), strlen(text)};
        if (!piece.text) return zf_fail_memory(l->e, "the vocabulary");
        ZF_TRY(add_entry(&l->vocabulary, piece, n < 0 || n > INT32_MAX ? -1 : (int32_t)n, l->e));
    }
    return ZF_OK;
}

static enum zf_status load_rules(struct zf_loader *l, const json_t *merges)
{
    const json_t *j;
    size_t i;
    json_array_foreach(merges, i, j)
    {
        struct zf_piece text = {json_string_value(j), json_string_length(j)}, part[2] = {{0}};
        bool good = text.text && split_rule(text, &part[0], &part[1]);
        for (size_t k = 0; k < 2 && json_is_array(j) && json_array_size(j) == 2; k++) {
            const json_t *p = json_array_get(j, k);
            good = json_is_string(p) && (!k || good);
            part[k] = (struct zf_piece){json_string_value(p), json_string_length(p)};
        }
        if (!good) return zf_load_fail(l, "model.merges[%zu] is no pair; expected \"a b\" or [\"a\", \"b\"]", i);
        if (part[0].text) ZF_TRY(add_rule(&l->vocabulary, part[0], part[1], l->e));
    }
    return ZF_OK;
}

enum zf_status zf_load_vocabulary(struct zf_loader *l, const json_t *vocab, const json_t *merges)
{
    ZF_TRY(load_entries(l, vocab));
    return load_rules(l, merges);
}

/* One rule a line. */
enum zf_status zf_load_merges(struct zf_loader *l, struct zf_piece text, const char *path)
{
    uint64_t line = 1;
    for (const char *at = text.text, *end = at + text.size, *next; at < end; at = next, line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct zf_piece rule = {at, (size_t)((stop ? stop : end) - at)}, left, right;
        next = stop ? stop + 1 : end;
        if (rule.size && at[rule.size - 1] == '\r') rule.size--;
        if (!rule.size) continue;
        if (!split_rule(rule, &left, &right) || (left.text && zf_utf8_check(at, rule.size) < rule.size)) {
            char where[sizeof l->e->where];
            return zf_fail(l->e, ZF_FORMAT, zf_place(where, sizeof where, path, line, 0),
                           "it is no pair of tokens; expected two, in UTF-8, with a space between");
        }
        if (left.text) ZF_TRY(add_rule(&l->vocabulary, left, right, l->e));
    }
    return ZF_OK;
}

/* From the text. Whatever is unusual ends the attempt: the JSON library then says what it is. */

struct scan {
    const char *at, *end;
    bool plain; /* false: end the attempt */
};

static void blank(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) s->at++;
}

static bool take(struct scan *s, char c) /* c, with blanks around it */
{
    blank(s);
    if (!s->plain || s->at == s->end || *s->at != c) return false;
    s->at++;
    blank(s);
    return true;
}

static bool need(struct scan *s, char c)
{
    if (!take(s, c)) s->plain = false;
    return s->plain;
}

static void skip_string(struct scan *s)
{
    if (s->at == s->end || *s->at != '"') s->plain = false;
    if (!s->plain) return;
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++) {
        if (*s->at == '\\' && s->at + 1 < s->end) s->at++;
    }
    if (s->at == s->end)
        s->plain = false;
    else
        s->at++;
}

/* Brackets are counted, not matched: the library sees them, too, or scan_vocab and scan_merges do. */
static void skip_value(struct scan *s)
{
    size_t depth = 0;
    do {
        blank(s);
        if (s->at == s->end) {
            s->plain = false;
        } else if (*s->at == '"') {
            skip_string(s);
        } else {
            char c = *s->at;
            if (!depth && (c == '}' || c == ']' || c == ',' || c == ':')) {
                s->plain = false;
                return;
            }
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            s->at++;
            /* The rest of a number or a word. */
            while (s->at < s->end && !strchr("{}[]\",: \t\r\n", *s->at)) s->at++;
        }
    } while (s->plain && depth);
}

static bool unit(struct scan *s, uint32_t *out) /* the four digits of \uXXXX */
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->end ? *s->at : 0;
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return false;
        *out = *out << 4 | (uint32_t)d;
    }
    return true;
}

static bool escape(struct scan *s, char **to) /* at points behind the backslash */
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    if (s->at == s->end) return false;
    char name = *s->at++;
    const char *known = name ? strchr(names, name) : NULL;
    if (known) {
        *(*to)++ = values[known - names];
        return true;
    }
    if (name != 'u' || !unit(s, &c) || !c || (c >= 0xDC00 && c < 0xE000)) return false;
    if (c >= 0xD800 && c < 0xDC00) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u') return false;
        s->at += 2;
        if (!unit(s, &low) || low < 0xDC00 || low >= 0xE000) return false;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    *to += zf_utf8_encode(*to, c);
    return true;
}

/* A string, written to *to with a NUL behind it: never longer than it stands in the file with its quotes. */
static struct zf_piece scan_string(struct scan *s, char **to)
{
    char *begin = *to;
    unsigned char high = 0;
    if (s->at == s->end || *s->at != '"') s->plain = false;
    if (!s->plain) return (struct zf_piece){0};
    s->at++;
    while (s->at < s->end && *s->at != '"') {
        unsigned char c = (unsigned char)*s->at++;
        high |= c;
        if (c == '\\') {
            s->plain = s->plain && escape(s, to);
        } else {
            s->plain = s->plain && c >= 0x20;
            *(*to)++ = (char)c;
        }
        if (!s->plain) return (struct zf_piece){0};
    }
    struct zf_piece piece = {begin, (size_t)(*to - begin)};
    if (s->at == s->end || (high & 0x80 && zf_utf8_check(begin, piece.size) < piece.size)) {
        s->plain = false;
        return piece;
    }
    s->at++;
    *(*to)++ = '\0';
    return piece;
}

static int32_t scan_id(struct scan *s)
{
    int32_t id = 0;
    const char *begin = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - begin < 9; s->at++) id = id * 10 + (*s->at - '0');
    if (s->at == begin || (*begin == '0' && s->at - begin > 1)) s->plain = false;
    return id;
}

static enum zf_status scan_vocab(struct scan *s, struct zf_vocabulary *v, struct zf_arena *arena, struct zf_err *e)
{
    struct scan ahead = *s;
    skip_value(&ahead);
    char *to = ahead.plain ? zf_arena_alloc(arena, (size_t)(ahead.at - s->at)) : NULL;
    if (ahead.plain && !to) return zf_fail_memory(e, "the vocabulary");
    s->plain = ahead.plain;
    s->end = ahead.at; /* so that nothing is written behind what was allocated */
    if (!need(s, '{')) return ZF_OK;
    while (s->plain) {
        struct zf_piece text = scan_string(s, &to);
        if (!need(s, ':')) break;
        int32_t id = scan_id(s);
        if (s->plain) ZF_TRY(add_entry(v, text, id, e));
        if (take(s, ',')) continue;
        if (need(s, '}')) break;
    }
    return ZF_OK;
}

static enum zf_status scan_merges(struct scan *s, struct zf_vocabulary *v, struct zf_err *e)
{
    struct scan ahead = *s;
    skip_value(&ahead);
    char *to = v->rule_text = ahead.plain ? malloc((size_t)(ahead.at - s->at) + 1) : NULL;
    if (ahead.plain && !to) return zf_fail_memory(e, "the vocabulary");
    s->plain = ahead.plain;
    s->end = ahead.at;
    if (!need(s, '[')) return ZF_OK;
    while (s->plain) {
        struct zf_piece left, right;
        if (take(s, '[')) {
            left = scan_string(s, &to);
            if (!need(s, ',')) break;
            right = scan_string(s, &to);
            if (!need(s, ']')) break;
        } else {
            struct zf_piece text = scan_string(s, &to);
            if (!s->plain || !split_rule(text, &left, &right)) s->plain = false;
        }
        if (s->plain && left.text) ZF_TRY(add_rule(v, left, right, e));
        if (take(s, ',')) continue;
        if (need(s, ']')) break;
    }
    return ZF_OK;
}

/* The next key of an object, its value ahead; false: no more. *first is true before the first. */
static bool next_key(struct scan *s, bool *first, const char **key, size_t *size)
{
    if (*first && !need(s, '{')) return false;
    if (take(s, '}') || !s->plain) return false;
    if (!*first && !need(s, ',')) return false;
    *first = false;
    const char *quote = s->at;
    skip_string(s);
    if (!s->plain) return false;
    *key = quote + 1;
    *size = (size_t)(s->at - quote) - 2;
    return need(s, ':');
}

static bool is_key(const char *key, size_t size, const char *name)
{
    return size == strlen(name) && !memcmp(key, name, size);
}

struct span {
    const char *begin, *end;
};

static enum zf_status scan_model(struct scan *s, struct zf_vocabulary *v, struct zf_arena *arena, struct span spans[2], struct zf_err *e)
{
    const char *key, *end = s->end;
    size_t size;
    for (bool first = true; next_key(s, &first, &key, &size);) {
        size_t which = is_key(key, size, "vocab") ? 0 : is_key(key, size, "merges") ? 1 : 2;
        if (which == 2 || spans[which].begin) { /* a second time: the library refuses it */
            skip_value(s);
            continue;
        }
        spans[which].begin = s->at;
        ZF_TRY(which ? scan_merges(s, v, e) : scan_vocab(s, v, arena, e));
        spans[which].end = s->at;
        s->end = end;
    }
    return ZF_OK;
}

enum zf_status zf_vocabulary_scan(struct zf_vocabulary *v, struct zf_arena *arena, const char *text, size_t size, struct zf_text *rest,
                                  bool *found, struct zf_err *e)
{
    struct scan s = {text, text + size, true};
    struct span spans[2] = {{0}};
    const char *key;
    size_t key_size;
    bool seen = false;
    *found = false;
    for (bool first = true; next_key(&s, &first, &key, &key_size);) {
        if (!seen && is_key(key, key_size, "model")) {
            seen = true;
            ZF_TRY(scan_model(&s, v, arena, spans, e));
        } else {
            skip_value(&s);
        }
    }
    *found = s.plain && spans[0].begin && spans[1].begin;
    if (!*found) {
        zf_vocabulary_free(v);
        return ZF_OK;
    }
    bool merges_first = spans[1].begin < spans[0].begin;
    for (size_t i = 0; i < 2; i++) {
        const struct span *span = &spans[merges_first ? 1 - i : i];
        ZF_TRY(zf_text_add(rest, text, (size_t)(span->begin - text), e));
        ZF_TRY(zf_text_add(rest, span == &spans[0] ? "{}" : "[]", 2, e));
        size -= (size_t)(span->end - text);
        text = span->end;
    }
    return zf_text_add(rest, text, size, e);
}
