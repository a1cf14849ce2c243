/* Encoding: added tokens, normalizer, added tokens again, words, merges. */
#include "core/tokenizer/tokenizer_impl.h"

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

enum zf_status zf_replace(struct zf_text *out, const char *text, size_t size, const struct zf_step *step, size_t limit, struct zf_err *e)
{
    for (size_t at = 0; at < size;) {
        const char *hit = memmem(text + at, size - at, step->pattern.text, step->pattern.size);
        size_t plain = hit ? (size_t)(hit - text) - at : size - at;
        ZF_TRY(zf_text_add(out, text + at, plain, e));
        at += plain;
        if (!hit) break;
        ZF_TRY(zf_text_add(out, step->content.text, step->content.size, e));
        at += step->pattern.size;
        if (out->size > limit)
            return zf_fail(e, ZF_FORMAT, "tokenizer.json", "its Replace steps make a text over %zu bytes of a short one", limit);
    }
    return ZF_OK;
}

size_t zf_replace_limit(size_t size)
{
    return size > SIZE_MAX / 128 ? SIZE_MAX : 64 * size + 65536;
}

struct encoder {
    const struct zf_tokenizer *t;
    const struct zf_encode_options *o;
    struct zf_bpe_work work;
    struct zf_text normal[2], prefixed; /* the normalizer writes from one to the other */
    struct zf_ids *out;
    size_t since_poll;
};

static enum zf_status poll_stop(struct encoder *c, size_t bytes, struct zf_err *e)
{
    c->since_poll += bytes;
    if (c->since_poll < POLL) return ZF_OK;
    c->since_poll = 0;
    return c->o->stop && *c->o->stop ? zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising") : ZF_OK;
}

static enum zf_status encode_words(struct encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_tokenizer *t = c->t;
    if (!size) return ZF_OK;
    if (t->bytes) {
        for (size_t i = 0; i < size; i++) ZF_TRY(zf_ids_push(c->out, (unsigned char)text[i], e));
        return poll_stop(c, size, e);
    }
    if (t->prefix_space && text[0] != ' ') {
        c->prefixed.size = 0;
        ZF_TRY(zf_text_add(&c->prefixed, " ", 1, e));
        ZF_TRY(zf_text_add(&c->prefixed, text, size, e));
        text = c->prefixed.data;
        size = c->prefixed.size;
    }
    for (size_t at = 0, length = size; at < size; at += length) {
        if (t->split) ZF_TRY(zf_splitter_next(&t->splitter, text, size, at, &length, e));
        ZF_TRY(zf_bpe_encode(t->bpe, &c->work, text + at, length, c->out, c->o->stop, e));
        ZF_TRY(poll_stop(c, length, e));
    }
    return ZF_OK;
}

typedef enum zf_status text_action(struct encoder *c, const char *text, size_t size, struct zf_err *e);

/* Cuts text at the added tokens of a list: their ids, and `between` on what lies between them. */
static enum zf_status around_added(struct encoder *c, const struct zf_added *list, const char *text, size_t size, text_action *between,
                                   struct zf_err *e)
{
    size_t done = 0, from = 0, begin, end;
    const struct zf_added_token *a;
    while (c->o->specials_in_text && (a = zf_added_next(list, text, size, &from, done, &begin, &end))) {
        if (begin > done) ZF_TRY(between(c, text + done, begin - done, e));
        done = end;
        if (begin >= end) continue;
        ZF_TRY(zf_ids_push(c->out, a->id, e));
        if (c->o->recognised) ++*c->o->recognised;
    }
    return done < size ? between(c, text + done, size - done, e) : ZF_OK;
}

static enum zf_status encode_piece(struct encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_steps *steps = &c->t->normalizer;
    size_t limit = zf_replace_limit(size);
    for (size_t i = 0; i < steps->count && size; i++) {
        struct zf_text *to = &c->normal[i % 2];
        to->size = 0;
        if (steps->list[i].kind == ZF_STEP_PREPEND) {
            ZF_TRY(zf_text_add(to, steps->list[i].content.text, steps->list[i].content.size, e));
            ZF_TRY(zf_text_add(to, text, size, e));
        } else {
            ZF_TRY(zf_replace(to, text, size, &steps->list[i], limit, e));
        }
        text = to->data;
        size = to->size;
    }
    return around_added(c, &c->t->normalized, text, size, encode_words, e);
}

static enum zf_status encode(struct encoder *c, const char *text, size_t size, struct zf_err *e)
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
    for (size_t i = 0; c->o->with_template && i < t->before.count; i++) ZF_TRY(zf_ids_push(c->out, t->before.ids[i], e));
    ZF_TRY(around_added(c, &t->raw, text, size, encode_piece, e));
    for (size_t i = 0; c->o->with_template && i < t->after.count; i++) ZF_TRY(zf_ids_push(c->out, t->after.ids[i], e));
    return ZF_OK;
}

enum zf_status zf_tokenizer_encode_as(const struct zf_tokenizer *t, const char *text, size_t size, const struct zf_encode_options *o,
                                      struct zf_ids *out, struct zf_err *e)
{
    struct encoder c = {.t = t, .o = o, .out = out};
    size_t had = out->count;
    ZF_TRY(zf_bpe_work_init(&c.work, t->bytes ? 0 : size, e));
    enum zf_status s = encode(&c, text, size, e);
    if (s != ZF_OK) out->count = had;
    zf_bpe_work_free(&c.work);
    free(c.normal[0].data);
    free(c.normal[1].data);
    free(c.prefixed.data);
    return s;
}

enum zf_status zf_tokenizer_encode(const struct zf_tokenizer *t, const char *text, size_t size, bool specials_in_text, bool with_template,
                                   struct zf_ids *out, struct zf_err *e)
{
    struct zf_encode_options o = {.specials_in_text = specials_in_text, .with_template = with_template};
    return zf_tokenizer_encode_as(t, text, size, &o, out, e);
}
