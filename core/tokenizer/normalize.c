/* The steps of the normalizer. Each reads a text and writes another, and says of every part whether it is the same or was rewritten, so
 * that places can follow. */
#include "core/tokenizer/normalize.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { SORT_BY_INSERTION = 32, CLASSES = 256 };

void zf_normal_work_free(struct zf_normal_work *w)
{
    free(w->text[0].data);
    free(w->text[1].data);
    free(w->characters);
    zf_region_free(&w->region);
    *w = (struct zf_normal_work){0};
}

void zf_places_pass(struct zf_places *p, size_t in_begin, size_t in_end, size_t out_begin, bool same)
{
    if (!p) return;
    for (; p->next < p->count && p->list[p->next] < in_end; p->next++)
        p->list[p->next] = out_begin + (same ? p->list[p->next] - in_begin : 0);
}

void zf_places_end(struct zf_places *p, size_t out_size)
{
    if (!p) return;
    for (; p->next < p->count; p->next++) p->list[p->next] = out_size;
    p->next = p->first;
}

/* What a step works on. */
struct change {
    const char *text;
    size_t size, limit;
    struct zf_text *out;
    struct zf_places *places;
    struct zf_err *e;
    bool front_lost;
};

static enum zf_status put(struct change *c, size_t begin, size_t end, const char *text, size_t size, bool same)
{
    zf_places_pass(c->places, begin, end, c->out->size, same);
    c->front_lost |= !size && !c->out->size && begin < end;
    ZF_TRY(zf_text_add(c->out, text, size, c->e));
    if (c->out->size <= c->limit) return ZF_OK;
    return zf_fail(c->e, ZF_FORMAT, NULL, "the tokenizer's Replace steps make a text over %zu bytes of a short one", c->limit);
}

static enum zf_status keep(struct change *c, size_t begin, size_t end)
{
    return begin < end ? put(c, begin, end, c->text + begin, end - begin, true) : ZF_OK;
}

static enum zf_status replace_text(struct change *c, const struct zf_step *step)
{
    for (size_t at = 0; at < c->size;) {
        const char *hit = step->pattern.size ? memmem(c->text + at, c->size - at, step->pattern.text, step->pattern.size) : NULL;
        size_t plain = hit ? (size_t)(hit - c->text) : c->size;
        ZF_TRY(keep(c, at, plain));
        at = plain;
        if (!hit) break;
        ZF_TRY(put(c, at, at + step->pattern.size, step->content.text, step->content.size, false));
        at += step->pattern.size;
    }
    return ZF_OK;
}

static enum zf_status replace_regex(struct change *c, const struct zf_step *step, struct re_registers **region)
{
    struct zf_search search = {.text = c->text, .size = c->size, .region = region};
    size_t done = 0, begin, end;
    bool found;
    if (!c->size) return ZF_OK;
    while (true) {
        ZF_TRY(zf_search_next(&search, &step->regex, &found, &begin, &end, c->e));
        if (!found) return keep(c, done, c->size);
        ZF_TRY(keep(c, done, begin));
        ZF_TRY(put(c, begin, end, step->content.text, step->content.size, false));
        done = end;
    }
}

size_t zf_replace_limit(size_t size)
{
    return size > SIZE_MAX / 128 ? SIZE_MAX : 64 * size + 65536;
}

enum zf_status zf_replace(struct zf_text *out, const char *text, size_t size, const struct zf_step *step, size_t limit, struct zf_err *e)
{
    struct change c = {.text = text, .size = size, .limit = limit, .out = out, .e = e};
    struct re_registers *region = NULL;
    enum zf_status s = step->has_regex ? replace_regex(&c, step, &region) : replace_text(&c, step);
    zf_region_free(&region);
    return s;
}

/* Unicode's normal forms. */

static const utf8proc_option_t forms_of[] = {
    [ZF_STEP_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [ZF_STEP_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [ZF_STEP_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [ZF_STEP_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

static bool is_hangul_part(uint32_t c) /* a vowel or a final consonant */
{
    return (c >= 0x1160 && c <= 0x11FF) || (c >= 0xD7B0 && c <= 0xD7FB);
}

/* Whether nothing in front of a character can change with it, or change it, in any form. */
static bool begins(uint32_t c, utf8proc_option_t form)
{
    if (c < 0x300) return true;
    if (is_hangul_part(c)) return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    bool mark = p->combining_class || (p->category >= UTF8PROC_CATEGORY_MN && p->category <= UTF8PROC_CATEGORY_ME);
    return !mark && (!(form & UTF8PROC_COMPAT) || p->decomp_seqindex == UINT16_MAX);
}

/* Whether a character alone is its own form. */
static bool stays(uint32_t c, utf8proc_option_t form)
{
    if (c < 0x80) return true;
    if (form & UTF8PROC_COMPAT ? c < 0xA0 : (form & UTF8PROC_COMPOSE) && c < 0x300) return true;
    if (c >= 0xAC00 && c <= 0xD7A3) return form & UTF8PROC_COMPOSE;
    return utf8proc_get_property((utf8proc_int32_t)c)->decomp_seqindex == UINT16_MAX;
}

/* Marks in the order of their classes; equal classes keep theirs. By counting where there are many: text may be nothing but marks. */
static enum zf_status order_marks(int32_t *c, size_t n, struct zf_err *e)
{
    if (n <= SORT_BY_INSERTION) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = c[i];
            int class = utf8proc_get_property(x)->combining_class;
            size_t k = i;
            for (; k && utf8proc_get_property(c[k - 1])->combining_class > class; k--) c[k] = c[k - 1];
            c[k] = x;
        }
        return ZF_OK;
    }
    size_t from[CLASSES + 1] = {0};
    int32_t *copy = malloc(n * sizeof *copy);
    if (!copy) return zf_fail_memory(e, "a text's normal form");
    memcpy(copy, c, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) from[(utf8proc_get_property(copy[i])->combining_class & 0xFF) + 1]++;
    for (size_t k = 1; k <= CLASSES; k++) from[k] += from[k - 1];
    for (size_t i = 0; i < n; i++) c[from[utf8proc_get_property(copy[i])->combining_class & 0xFF]++] = copy[i];
    free(copy);
    return ZF_OK;
}

/* A part that begins at a character that `begins` and goes up to the next. */
static enum zf_status normalize_part(struct change *c, struct zf_normal_work *w, utf8proc_option_t form, size_t begin, size_t end)
{
    const unsigned char *s = (const unsigned char *)c->text;
    size_t n = 0, at = begin, marks = 0;
    int boundary = 0;
    while (at < end) {
        uint32_t character;
        void *list = w->characters;
        enum zf_status status = zf_grow(&list, &w->character_room, n + 32, sizeof *w->characters, c->e);
        w->characters = list;
        if (status != ZF_OK) return status;
        ZF_TRY(zf_utf8_next(s, end, &at, &character, c->e));
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)character, w->characters + n, 32, form | UTF8PROC_DECOMPOSE, &boundary);
        if (got < 0 || got > 32) return zf_fail(c->e, ZF_FORMAT, NULL, "utf8proc: %s", utf8proc_errmsg(got));
        n += (size_t)got;
    }
    for (size_t i = 0; i <= n; i++) {
        if (i < n && utf8proc_get_property(w->characters[i])->combining_class) continue;
        ZF_TRY(order_marks(w->characters + marks, i - marks, c->e));
        marks = i + 1;
    }
    if (form & UTF8PROC_COMPOSE) {
        utf8proc_ssize_t left = utf8proc_normalize_utf32(w->characters, (utf8proc_ssize_t)n, form);
        if (left < 0) return zf_fail(c->e, ZF_FORMAT, NULL, "utf8proc: %s", utf8proc_errmsg(left));
        n = (size_t)left;
    }
    size_t had = c->out->size;
    char character[4];
    for (size_t i = 0; i < n; i++) ZF_TRY(zf_text_add(c->out, character, zf_utf8_encode(character, (uint32_t)w->characters[i]), c->e));
    bool same = c->out->size - had == end - begin && !memcmp(c->out->data + had, c->text + begin, end - begin);
    zf_places_pass(c->places, begin, end, had, same);
    return ZF_OK;
}

/* Stretches that stay as they are are copied at once. */
static enum zf_status normal_form(struct change *c, struct zf_normal_work *w, utf8proc_option_t form)
{
    const unsigned char *s = (const unsigned char *)c->text;
    size_t kept = 0, part = 0; /* text up to kept is written; the character before at begins at part */
    bool plain = true;         /* what is from part up to at stays */
    for (size_t at = 0, next = 0; at < c->size; at = next) {
        uint32_t character;
        ZF_TRY(zf_utf8_next(s, c->size, &next, &character, c->e));
        if (begins(character, form) || !at) {
            if (!plain) {
                ZF_TRY(keep(c, kept, part));
                ZF_TRY(normalize_part(c, w, form, part, at));
                kept = at;
            }
            part = at;
            plain = begins(character, form) && stays(character, form);
        } else {
            plain = false;
        }
    }
    if (plain) return keep(c, kept, c->size);
    ZF_TRY(keep(c, kept, part));
    return normalize_part(c, w, form, part, c->size);
}

/* Steps that look at one character after the other. */

/* As Rust's char::to_lowercase: without regard to what stands around; one character becomes two. */
static enum zf_status lowercase(struct change *c, uint32_t character, size_t at, size_t length)
{
    char to[4];
    if (character == 0x130) return put(c, at, at + length, "i\u0307", 3, false);
    uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
    return put(c, at, at + length, to, zf_utf8_encode(to, low), false);
}

static enum zf_status strip_accent(struct change *c, uint32_t character, size_t at, size_t length)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)character);
    if (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME) return put(c, at, at + length, "", 0, false);
    return put(c, at, at + length, c->text + at, length, true);
}

static enum zf_status each_character(struct change *c, enum zf_status (*action)(struct change *, uint32_t, size_t, size_t))
{
    const unsigned char *s = (const unsigned char *)c->text;
    for (size_t at = 0, next = 0; at < c->size; at = next) {
        uint32_t character;
        ZF_TRY(zf_utf8_next(s, c->size, &next, &character, c->e));
        ZF_TRY(action(c, character, at, next - at));
    }
    return ZF_OK;
}

static enum zf_status strip_space(struct change *c, const struct zf_step *step)
{
    const unsigned char *s = (const unsigned char *)c->text;
    size_t begin = 0, end = c->size, length;
    while (step->left && begin < end && (length = zf_utf8_length(s + begin, end - begin, NULL)) &&
           zf_is_space(zf_utf8_decode(s + begin, length)))
        begin += length;
    while (step->right && end > begin) {
        size_t last = begin + zf_utf8_last(s + begin, end - begin);
        if (!zf_is_space(zf_utf8_decode(s + last, end - last))) break;
        end = last;
    }
    c->front_lost |= begin > 0;
    return keep(c, begin, end);
}

static enum zf_status take_step(struct change *c, const struct zf_step *step, struct zf_normal_work *w)
{
    switch (step->kind) {
    case ZF_STEP_PREPEND:
        zf_places_pass(c->places, 0, 1, 0, false);
        ZF_TRY(zf_text_add(c->out, step->content.text, step->content.size, c->e));
        return keep(c, 0, c->size);
    case ZF_STEP_REPLACE: return step->has_regex ? replace_regex(c, step, &w->region) : replace_text(c, step);
    case ZF_STEP_NFC:
    case ZF_STEP_NFD:
    case ZF_STEP_NFKC:
    case ZF_STEP_NFKD: return normal_form(c, w, forms_of[step->kind]);
    case ZF_STEP_LOWERCASE: return each_character(c, lowercase);
    case ZF_STEP_STRIP_SPACE: return strip_space(c, step);
    case ZF_STEP_STRIP_ACCENTS: return each_character(c, strip_accent);
    default: return zf_fail(c->e, ZF_FORMAT, NULL, "step %d is none of a normalizer", (int)step->kind);
    }
}

/* The commonest cases change nothing and need no copy. */
static bool changes_nothing(const struct zf_step *step, const char *text, size_t size, bool continues)
{
    if (step->kind == ZF_STEP_PREPEND) return continues;
    if (step->kind < ZF_STEP_NFC || step->kind > ZF_STEP_NFKD) return false;
    unsigned char least = step->kind == ZF_STEP_NFC ? 0xCC : 0x80; /* U+0300 begins with 0xCC */
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] >= least) return false;
    }
    return true;
}

enum zf_status zf_normalize(const struct zf_steps *steps, const char **text, size_t *size, bool continues, struct zf_places *places,
                            struct zf_normal_work *w, struct zf_err *e)
{
    size_t limit = zf_replace_limit(*size);
    struct zf_text *out = &w->text[0];
    w->front_lost = false;
    for (size_t i = 0; i < steps->count && *size; i++) {
        if (changes_nothing(&steps->list[i], *text, *size, continues)) continue;
        out->size = 0;
        struct change c = {.text = *text, .size = *size, .limit = limit, .out = out, .places = places, .e = e};
        ZF_TRY(take_step(&c, &steps->list[i], w));
        zf_places_end(places, out->size);
        w->front_lost |= c.front_lost;
        *text = out->data ? out->data : "";
        *size = out->size;
        out = out == &w->text[0] ? &w->text[1] : &w->text[0];
    }
    return ZF_OK;
}

enum zf_status zf_normalize_text(const struct zf_steps *steps, const char *text, size_t size, struct zf_text *out, struct zf_err *e)
{
    struct zf_normal_work w = {0};
    enum zf_status s = zf_normalize(steps, &text, &size, false, NULL, &w, e);
    if (s == ZF_OK) s = zf_text_add(out, text, size, e);
    zf_normal_work_free(&w);
    return s;
}

/* Characters that no mark behind them changes. */
static bool stays_alone(uint32_t c)
{
    return c <= ' ' || (c >= '0' && c <= '9');
}

bool zf_normalizer_parts(const struct zf_steps *steps, uint32_t left, uint32_t right)
{
    bool forms = false; /* a normal form comes behind the step */
    for (size_t i = steps->count; i-- > 0;) {
        const struct zf_step *step = &steps->list[i];
        if (step->kind >= ZF_STEP_NFC && step->kind <= ZF_STEP_NFKD) {
            if (!stays_alone(right) || !begins(left, forms_of[step->kind])) return false;
            forms = true;
        } else if (step->kind == ZF_STEP_REPLACE) {
            uint32_t p = zf_utf8_only(step->pattern.text, step->pattern.size);
            if (step->has_regex || p == ZF_NO_CHARACTER) return false; /* a match may lie across */
            if (forms && (p == left || p == right)) return false;      /* by a mark, or nothing */
        } else if (step->kind == ZF_STEP_STRIP_SPACE) {
            return false;
        }
    }
    return true;
}

size_t zf_normalizer_settled(const struct zf_steps *steps, const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t end = size;
    for (size_t i = 0; i < steps->count; i++) {
        if (steps->list[i].kind < ZF_STEP_NFC || steps->list[i].kind > ZF_STEP_NFKD) continue;
        bool found = false; /* the last character that begins a part */
        for (end = size; end && !found;) {
            size_t last = zf_utf8_last(s, end);
            found = begins(zf_utf8_decode(s + last, end - last), UTF8PROC_COMPAT);
            end = last;
        }
    }
    return end;
}
