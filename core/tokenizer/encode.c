/* Encoding: added tokens, normalizer, added tokens again, pre-tokenizer, merges. Text goes down through these as pieces of pieces; each
 * piece knows whether the call's text begins with it and which marks lie in it. */
#include "core/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

enum { POLL = 1 << 20 };

enum zf_status zf_ids_push(struct zf_ids *a, int32_t id, struct zf_err *e)
{
    void *p = a->ids;
    enum zf_status s = zf_grow(&p, &a->room, a->count + 1, sizeof *a->ids, e);
    a->ids = p;
    if (s == ZF_OK) a->ids[a->count++] = id;
    return s;
}

struct zf_encoder {
    const struct zf_tokenizer *t;
    struct zf_bpe_work work;
    struct zf_normal_work normal;
    struct re_registers *region;
    struct zf_text *changed; /* two for each step of the pre_tokenizer: its text and its alphabet's; one more for words */
    bool unmapped;           /* words come in the byte alphabet: ByteLevel is not the last step */
    size_t *places, place_room;
    /* of a call */
    const struct zf_encode_options *o;
    struct zf_ids *out;
    size_t since_poll, base, mark; /* base: ids that were there before; mark: the next to be answered */
};

/* Text on its way. Places of the marks up to `marks` that have no answer yet are relative to it. */
struct piece {
    const char *text;
    size_t size, marks;
    bool start; /* the call's text begins with it */
    bool first; /* and its first character is that text's */
};

typedef enum zf_status piece_action(struct zf_encoder *c, const struct piece *p, struct zf_err *e);

static void answer(struct zf_encoder *c, size_t ended, size_t begun)
{
    struct zf_mark *m = &c->o->marks[c->mark++];
    m->ended = ended - c->base;
    /* An unknown unit may come behind the bytes of a later one, as in the reference: then places are in no order. */
    m->begun = (begun > ended ? begun : ended) - c->base;
}

static void answer_before(struct zf_encoder *c, const struct piece *p, size_t place)
{
    while (c->mark < p->marks && c->places[c->mark] < place) answer(c, c->out->count, c->out->count);
}

static void answer_all(struct zf_encoder *c, const struct piece *p)
{
    while (c->mark < p->marks) answer(c, c->out->count, c->out->count);
}

static struct piece part_of(struct zf_encoder *c, const struct piece *p, size_t begin, size_t end)
{
    answer_before(c, p, begin);
    size_t marks = c->mark;
    for (; marks < p->marks && c->places[marks] < end; marks++) c->places[marks] -= begin;
    return (struct piece){p->text + begin, end - begin, marks, p->start && !begin, p->first && !begin};
}

static struct zf_places places_of(struct zf_encoder *c, const struct piece *p)
{
    return (struct zf_places){.list = c->places, .count = p->marks, .first = c->mark, .next = c->mark};
}

static enum zf_status poll_stop(struct zf_encoder *c, size_t bytes, struct zf_err *e)
{
    c->since_poll += bytes;
    if (c->since_poll < POLL) return ZF_OK;
    c->since_poll = 0;
    return c->o->stop && *c->o->stop ? zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising") : ZF_OK;
}

/* Words. */

/* Answers the marks in a word whose tokens, after the first `had`, begin at the work's starts. */
static void answer_inside(struct zf_encoder *c, const struct piece *p, size_t had)
{
    const struct zf_bpe_starts *s = &c->work.starts;
    size_t ended = 0, begun = 0;
    while (c->mark < p->marks) {
        size_t place = c->places[c->mark];
        while (begun < s->count && s->list[begun] < place) begun++;
        while (ended < begun && (ended + 1 < s->count ? s->list[ended + 1] : p->size) <= place) ended++;
        answer(c, had + ended, had + begun);
    }
}

/* A word in the byte alphabet, as bytes again. */
static enum zf_status unmap(struct zf_encoder *c, struct piece *p, struct zf_err *e)
{
    struct zf_text *to = &c->changed[2 * c->t->pre_tokenizer.count];
    struct zf_places places = places_of(c, p);
    const unsigned char *s = (const unsigned char *)p->text;
    to->size = 0;
    for (size_t at = 0, n; at < p->size; at += n) {
        n = zf_utf8_length(s + at, p->size - at, NULL);
        int b = n ? zf_alphabet_byte(zf_utf8_decode(s + at, n)) : -1;
        if (b < 0)
            return zf_fail(
                e, ZF_FORMAT, "tokenizer.json",
                "its pre_tokenizer adds characters behind ByteLevel that stand for no byte; expected ByteLevel as the last step");
        char byte = (char)b;
        zf_places_pass(&places, at, at + n, to->size, false);
        ZF_TRY(zf_text_add(to, &byte, 1, e));
    }
    zf_places_end(&places, to->size);
    p->text = to->data;
    p->size = to->size;
    return ZF_OK;
}

static enum zf_status encode_word(struct zf_encoder *c, const struct piece *whole, struct zf_err *e)
{
    struct piece p = *whole;
    if (c->unmapped) ZF_TRY(unmap(c, &p, e));
    answer_before(c, &p, 1);
    size_t had = c->out->count;
    bool inside = c->mark < p.marks;
    c->work.starts.wanted = inside;
    c->work.starts.count = 0;
    ZF_TRY(zf_bpe_encode(c->t->bpe, &c->work, p.text, p.size, c->out, c->o->stop, e));
    if (inside) answer_inside(c, &p, had);
    return poll_stop(c, p.size, e);
}

static enum zf_status encode_bytes(struct zf_encoder *c, const struct piece *p, struct zf_err *e)
{
    size_t had = c->out->count;
    for (size_t i = 0; i < p->size; i++) ZF_TRY(zf_ids_push(c->out, (unsigned char)p->text[i], e));
    while (c->mark < p->marks) answer(c, had + c->places[c->mark], had + c->places[c->mark]);
    return poll_stop(c, p->size, e);
}

/* The pre_tokenizer. */

static enum zf_status take_step(struct zf_encoder *c, size_t step, const struct piece *p, struct zf_err *e);

/* What a step finds, one range after the other without gaps, joined or left out as its behavior wants. One range is held back: the next may
 * join it. */
struct cutter {
    struct zf_encoder *c;
    const struct piece *p;
    size_t step, begin, end;
    enum zf_behavior behavior;
    bool invert, holds, drops, match;
};

static enum zf_status flush(struct cutter *k, struct zf_err *e)
{
    if (!k->holds || k->drops || k->begin == k->end) return ZF_OK;
    struct piece part = part_of(k->c, k->p, k->begin, k->end);
    ZF_TRY(take_step(k->c, k->step + 1, &part, e));
    answer_all(k->c, &part);
    return ZF_OK;
}

static enum zf_status add_range(struct cutter *k, size_t begin, size_t end, bool match, struct zf_err *e)
{
    match ^= k->invert;
    bool joins = k->behavior == ZF_CONTIGUOUS             ? match == k->match
                 : k->behavior == ZF_MERGED_WITH_PREVIOUS ? match && !k->match
                 : k->behavior == ZF_MERGED_WITH_NEXT     ? !match && k->match
                                                          : false;
    if (!joins || !k->holds) {
        ZF_TRY(flush(k, e));
        k->begin = begin;
        k->holds = true;
        k->drops = match && k->behavior == ZF_REMOVED;
    }
    k->end = end;
    k->match = match;
    return ZF_OK;
}

static enum zf_status cut_at_regex(struct cutter *k, const struct zf_splitter *regex, struct zf_err *e)
{
    struct zf_search search = {.text = k->p->text, .size = k->p->size, .region = &k->c->region};
    size_t done = 0, begin, end;
    bool found;
    while (true) {
        ZF_TRY(zf_search_next(&search, regex, &found, &begin, &end, e));
        if (!found) begin = k->p->size;
        if (done < begin) ZF_TRY(add_range(k, done, begin, false, e));
        if (!found) return flush(k, e);
        ZF_TRY(add_range(k, begin, end, true, e));
        done = end;
    }
}

static enum zf_status cut_at_text(struct cutter *k, const char *text, size_t size, struct zf_err *e)
{
    for (size_t at = 0; at < k->p->size;) {
        const char *hit = size ? memmem(k->p->text + at, k->p->size - at, text, size) : NULL;
        size_t begin = hit ? (size_t)(hit - k->p->text) : k->p->size;
        if (at < begin) ZF_TRY(add_range(k, at, begin, false, e));
        if (hit) ZF_TRY(add_range(k, begin, begin + size, true, e));
        at = begin + size;
    }
    return flush(k, e);
}

static enum zf_status cut_at_class(struct cutter *k, bool (*is)(uint32_t), struct zf_err *e)
{
    const unsigned char *s = (const unsigned char *)k->p->text;
    size_t done = 0;
    for (size_t at = 0, next = 0; at < k->p->size; at = next) {
        uint32_t character;
        ZF_TRY(zf_utf8_next(s, k->p->size, &next, &character, e));
        if (!is(character)) continue;
        if (done < at) ZF_TRY(add_range(k, done, at, false, e));
        ZF_TRY(add_range(k, at, next, true, e));
        done = next;
    }
    if (done < k->p->size) ZF_TRY(add_range(k, done, k->p->size, false, e));
    return flush(k, e);
}

/* The piece with `with` in front, in place of *p. */
static enum zf_status put_in_front(struct zf_encoder *c, struct piece *p, const char *with, size_t size, struct zf_text *to,
                                   struct zf_err *e)
{
    struct zf_places places = places_of(c, p);
    to->size = 0;
    ZF_TRY(zf_text_add(to, with, size, e));
    ZF_TRY(zf_text_add(to, p->text, p->size, e));
    zf_places_pass(&places, 0, 1, 0, false);
    zf_places_pass(&places, 1, p->size, size + 1, true);
    zf_places_end(&places, to->size);
    p->text = to->data;
    p->size = to->size;
    return ZF_OK;
}

static enum zf_status byte_level(struct cutter *k, const struct zf_step *step, struct zf_err *e)
{
    struct piece p = *k->p;
    if (step->prefix_space && p.text[0] != ' ' && !(p.start && k->c->o->continues))
        ZF_TRY(put_in_front(k->c, &p, " ", 1, &k->c->changed[2 * k->step], e));
    k->p = &p;
    if (step->use_regex) return cut_at_regex(k, &step->regex, e);
    ZF_TRY(add_range(k, 0, p.size, false, e));
    return flush(k, e);
}

static bool starts_with(const struct piece *p, const struct zf_piece *with)
{
    return p->size >= with->size && !memcmp(p->text, with->text, with->size);
}

static enum zf_status metaspace(struct cutter *k, const struct zf_step *step, struct zf_err *e)
{
    struct zf_encoder *c = k->c;
    struct piece p = *k->p;
    struct zf_text *to = &c->changed[2 * k->step];
    bool wants = step->prepend == ZF_PREPEND_ALWAYS ? !(p.start && c->o->continues) : step->prepend == ZF_PREPEND_FIRST && p.first;
    struct zf_places places = places_of(c, &p);
    to->size = 0;
    if (wants && p.text[0] != ' ' && !starts_with(&p, &step->content)) {
        ZF_TRY(zf_text_add(to, step->content.text, step->content.size, e));
        zf_places_pass(&places, 0, 1, 0, false);
    }
    for (size_t at = 0; at < p.size;) {
        const char *space = memchr(p.text + at, ' ', p.size - at);
        size_t n = space ? (size_t)(space - p.text) - at : p.size - at;
        zf_places_pass(&places, at, at + n, to->size, true);
        ZF_TRY(zf_text_add(to, p.text + at, n, e));
        at += n;
        if (!space) break;
        zf_places_pass(&places, at, at + 1, to->size, false);
        ZF_TRY(zf_text_add(to, step->content.text, step->content.size, e));
        at++;
    }
    zf_places_end(&places, to->size);
    p.text = to->data;
    p.size = to->size;
    k->p = &p;
    k->behavior = ZF_MERGED_WITH_NEXT;
    if (step->split) return cut_at_text(k, step->content.text, step->content.size, e);
    ZF_TRY(add_range(k, 0, p.size, false, e));
    return flush(k, e);
}

static enum zf_status to_alphabet(struct zf_encoder *c, size_t step, struct piece *p, struct zf_err *e)
{
    struct zf_text *to = &c->changed[2 * step + 1];
    struct zf_places places = places_of(c, p);
    to->size = 0;
    for (size_t i = 0; i < p->size; i++) {
        char character[4];
        zf_places_pass(&places, i, i + 1, to->size, false);
        ZF_TRY(zf_text_add(to, character, zf_utf8_encode(character, zf_alphabet_character((unsigned char)p->text[i])), e));
    }
    zf_places_end(&places, to->size);
    p->text = to->data;
    p->size = to->size;
    return ZF_OK;
}

static enum zf_status take_step(struct zf_encoder *c, size_t step, const struct piece *whole, struct zf_err *e)
{
    const struct zf_steps *steps = &c->t->pre_tokenizer;
    if (step == steps->count) return encode_word(c, whole, e);
    const struct zf_step *s = &steps->list[step];
    struct piece p = *whole;
    if (step && s[-1].kind == ZF_STEP_BYTE_LEVEL) ZF_TRY(to_alphabet(c, step, &p, e));
    struct cutter k = {.c = c, .p = &p, .step = step, .behavior = s->behavior, .invert = s->invert};
    switch (s->kind) {
    case ZF_STEP_SPLIT: return s->has_regex ? cut_at_regex(&k, &s->regex, e) : cut_at_text(&k, s->pattern.text, s->pattern.size, e);
    case ZF_STEP_DIGITS:
        k.behavior = s->individual ? ZF_ISOLATED : ZF_CONTIGUOUS;
        k.invert = false;
        return cut_at_class(&k, zf_is_numeric, e);
    case ZF_STEP_PUNCTUATION: k.invert = false; return cut_at_class(&k, zf_is_punctuation, e);
    case ZF_STEP_WHITESPACE_SPLIT:
        k.behavior = ZF_REMOVED;
        k.invert = false;
        return cut_at_class(&k, zf_is_space, e);
    case ZF_STEP_BYTE_LEVEL:
        k.behavior = ZF_ISOLATED;
        k.invert = false;
        return byte_level(&k, s, e);
    case ZF_STEP_METASPACE: k.invert = false; return metaspace(&k, s, e);
    default: return zf_fail(e, ZF_FORMAT, NULL, "step %d is none of a pre_tokenizer", (int)s->kind);
    }
}

static enum zf_status encode_words(struct zf_encoder *c, const struct piece *p, struct zf_err *e)
{
    return c->t->bytes ? encode_bytes(c, p, e) : take_step(c, 0, p, e);
}

/* Added tokens and the normalizer. */

static enum zf_status encode_added(struct zf_encoder *c, const struct piece *p, int32_t id, struct zf_err *e)
{
    answer_before(c, p, 1);
    size_t before = c->out->count;
    ZF_TRY(zf_ids_push(c->out, id, e));
    while (c->mark < p->marks) answer(c, before, before + 1);
    if (c->o->recognised) ++*c->o->recognised;
    return ZF_OK;
}

/* A text being cut at the added tokens of a list: up to `done` all is encoded. */
struct cutting {
    const struct zf_added *list;
    const struct piece *p;
    piece_action *between; /* on what lies between them */
    size_t done;
};

static enum zf_status cut_up_to(struct zf_encoder *c, struct cutting *k, size_t end, struct zf_err *e)
{
    if (end <= k->done) return ZF_OK;
    struct piece part = part_of(c, k->p, k->done, end);
    k->done = end;
    ZF_TRY(k->between(c, &part, e));
    answer_all(c, &part);
    return ZF_OK;
}

/* Where they are recognised: bytes `floor` .. `limit`. */
static enum zf_status cut_at_added(struct zf_encoder *c, struct cutting *k, size_t floor, size_t limit, struct zf_err *e)
{
    size_t from = floor, begin, end;
    const struct zf_added_token *a;
    while ((a = zf_added_next(k->list, k->p->text, limit, &from, floor, &begin, &end))) {
        ZF_TRY(cut_up_to(c, k, begin, e));
        k->done = floor = end;
        if (begin >= end) continue;
        struct piece token = part_of(c, k->p, begin, end);
        ZF_TRY(encode_added(c, &token, a->id, e));
    }
    return ZF_OK;
}

/* Marks say where. Those in text that is still to be encoded are where they were in the piece. */
static enum zf_status around_added(struct zf_encoder *c, const struct zf_added *list, const struct piece *p, piece_action *between,
                                   struct zf_err *e)
{
    const struct zf_mark *marks = c->o->marks;
    struct cutting k = {list, p, between, 0};
    bool open = c->mark ? marks[c->mark - 1].specials : c->o->specials_in_text;
    for (size_t i = c->mark, at = 0, end; at < p->size; at = end, open = !open) {
        while (i < p->marks && marks[i].specials == open) i++;
        end = i < p->marks ? c->places[i] : p->size;
        if (open) ZF_TRY(cut_at_added(c, &k, at, end, e));
    }
    ZF_TRY(cut_up_to(c, &k, p->size, e));
    answer_all(c, p);
    return ZF_OK;
}

static enum zf_status encode_piece(struct zf_encoder *c, const struct piece *whole, struct zf_err *e)
{
    struct piece p = *whole;
    struct zf_places places = places_of(c, &p);
    ZF_TRY(zf_normalize(&c->t->normalizer, &p.text, &p.size, p.start && c->o->continues, &places, &c->normal, e));
    p.first &= !c->normal.front_lost;
    return around_added(c, &c->t->normalized, &p, encode_words, e);
}

static enum zf_status push_template(struct zf_encoder *c, const struct zf_ids *ids, struct zf_err *e)
{
    for (size_t i = 0; c->o->with_template && i < ids->count; i++) ZF_TRY(zf_ids_push(c->out, ids->ids[i], e));
    return ZF_OK;
}

static enum zf_status copy_places(struct zf_encoder *c, struct zf_err *e)
{
    void *p = c->places;
    enum zf_status s = zf_grow(&p, &c->place_room, c->o->mark_count, sizeof *c->places, e);
    c->places = p;
    if (s != ZF_OK) return s;
    for (size_t i = 0; i < c->o->mark_count; i++) c->places[i] = c->o->marks[i].offset;
    return ZF_OK;
}

static enum zf_status encode(struct zf_encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_tokenizer *t = c->t;
    if (!t->bytes && !c->o->checked) {
        size_t good = zf_utf8_check(text, size);
        if (good < size) {
            return zf_fail(e, ZF_FORMAT, NULL,
                           "byte 0x%02X at offset %zu is no UTF-8; the tokenizer needs UTF-8 text: convert it (iconv -t UTF-8)",
                           (unsigned)(unsigned char)text[good], good);
        }
    }
    ZF_TRY(copy_places(c, e));
    ZF_TRY(push_template(c, &t->before, e));
    struct piece p = {text, size, c->o->mark_count, true, !c->o->inside && !c->o->continues};
    ZF_TRY(around_added(c, &t->raw, &p, encode_piece, e));
    return push_template(c, &t->after, e);
}

enum zf_status zf_encode(struct zf_encoder *c, const char *text, size_t size, const struct zf_encode_options *o, struct zf_ids *out,
                         struct zf_err *e)
{
    size_t had = out->count;
    c->o = o;
    c->out = out;
    c->base = had;
    c->mark = 0;
    enum zf_status s = encode(c, text, size, e);
    if (s != ZF_OK) out->count = had;
    return s;
}

enum zf_status zf_encoder_new(struct zf_encoder **out, const struct zf_tokenizer *t, struct zf_err *e)
{
    struct zf_encoder *c = *out = calloc(1, sizeof *c);
    if (!c) return zf_fail_memory(e, "tokenising");
    size_t steps = t->pre_tokenizer.count;
    c->t = t;
    c->changed = calloc(2 * steps + 1, sizeof *c->changed);
    enum zf_status s = c->changed ? zf_bpe_work_init(&c->work, !t->bytes, e) : zf_fail_memory(e, "tokenising");
    for (size_t i = 0; i + 1 < steps; i++) c->unmapped |= t->pre_tokenizer.list[i].kind == ZF_STEP_BYTE_LEVEL;
    if (s == ZF_OK) return ZF_OK;
    zf_encoder_free(c);
    *out = NULL;
    return s;
}

void zf_encoder_free(struct zf_encoder *c)
{
    if (!c) return;
    for (size_t i = 0; c->changed && i < 2 * c->t->pre_tokenizer.count + 1; i++) free(c->changed[i].data);
    free(c->changed);
    free(c->places);
    zf_bpe_work_free(&c->work);
    zf_normal_work_free(&c->normal);
    zf_region_free(&c->region);
    free(c);
}

enum zf_status zf_tokenizer_encode(const struct zf_tokenizer *t, const char *text, size_t size, bool specials_in_text, bool with_template,
                                   struct zf_ids *out, struct zf_err *e)
{
    struct zf_encode_options o = {.specials_in_text = specials_in_text, .with_template = with_template};
    struct zf_encoder *c;
    ZF_TRY(zf_encoder_new(&c, t, e));
    enum zf_status s = zf_encode(c, text, size, &o, out, e);
    zf_encoder_free(c);
    return s;
}
