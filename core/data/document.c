/* Parts -> tokens. Texts that stand side by side are a run, encoded as one; where a user's template spells an added token, the run is cut.
 * What is trained follows from where parts begin in the run. */
#include "core/data/document.h"
#include "core/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

struct span { /* of a run, up to `end`; neighbours differ */
    size_t end;
    bool trained, specials;
};

struct making {
    const struct zf_tokenizer *t;
    struct zf_encoder *encoder;
    const volatile int *stop;
    struct zf_document *out;
    size_t vocab;
    bool inside; /* something stands in front */
    struct span *spans;
    struct zf_mark *marks;
    char *joined;
    const char *text;           /* of the run */
    size_t span_count, pending; /* bytes from `pending` on are not encoded yet */
};

/* What is behind `had` was encoded just now: are they ids of the model? */
static enum zf_status check_ids(const struct making *m, size_t had, struct zf_err *e)
{
    const struct zf_document *d = m->out;
    for (size_t i = had; i < d->count; i++) {
        int32_t id = (int32_t)d->tokens[i];
        if (id >= 0 && (size_t)id < m->vocab && id <= ZF_TOKEN_ID) continue;
        char *text;
        ZF_TRY(zf_tokenizer_decode(m->t, &id, 1, false, &text, NULL, e));
        zf_fail(e, ZF_FORMAT, NULL,
                "its text has the token '%.64s' with id %d, but the model has %zu ids; the tokenizer belongs to another model", text, id,
                m->vocab);
        free(text);
        return e->code;
    }
    return ZF_OK;
}

static enum zf_status encode(struct making *m, const char *text, size_t size, const struct zf_encode_options *o, struct zf_err *e)
{
    struct zf_document *d = m->out;
    struct zf_ids ids = {(int32_t *)d->tokens, d->count, d->room};
    size_t had = d->count;
    enum zf_status s = zf_encode(m->encoder, text, size, o, &ids, e);
    d->tokens = (uint32_t *)ids.ids;
    d->count = ids.count;
    d->room = ids.room;
    m->inside = true;
    return s == ZF_OK ? check_ids(m, had, e) : s;
}

static enum zf_status add_id(struct making *m, int32_t id, bool trained, struct zf_err *e)
{
    struct zf_document *d = m->out;
    void *p = d->tokens;
    enum zf_status s = zf_grow(&p, &d->room, d->count + 1, sizeof *d->tokens, e);
    d->tokens = p;
    if (s != ZF_OK) return s;
    d->tokens[d->count++] = (uint32_t)id;
    ZF_TRY(check_ids(m, d->count - 1, e));
    if (trained) d->tokens[d->count - 1] |= ZF_TOKEN_TRAINED;
    return ZF_OK;
}

static void train(struct zf_document *d, size_t from, size_t to)
{
    for (size_t i = from; i < to && i < d->count; i++) d->tokens[i] |= ZF_TOKEN_TRAINED;
}

/* Encodes the run's bytes from `pending` up to `end` as ordinary text. */
static enum zf_status flush(struct making *m, size_t end, struct zf_err *e)
{
    size_t begin = m->pending, had = m->out->count, first = 0, marks = 0;
    if (end <= begin) return ZF_OK;
    while (m->spans[first].end <= begin) first++;
    for (size_t i = first; m->spans[i].end < end; i++) m->marks[marks++] = (struct zf_mark){.offset = m->spans[i].end - begin};
    const struct zf_encode_options o = {.inside = m->inside, .stop = m->stop, .marks = m->marks, .mark_count = marks};
    ZF_TRY(encode(m, m->text + begin, end - begin, &o, e));
    m->pending = end;
    for (size_t i = 0; i <= marks; i++) {
        if (!m->spans[first + i].trained) continue;
        train(m->out, had + (i ? m->marks[i - 1].ended : 0), i < marks ? had + m->marks[i].begun : m->out->count);
    }
    return ZF_OK;
}

static bool is_trained(const struct making *m, size_t begin, size_t end)
{
    for (size_t i = 0, from = 0; i < m->span_count && from < end; from = m->spans[i++].end)
        if (m->spans[i].end > begin && m->spans[i].trained) return true;
    return false;
}

/* Added tokens spelled in bytes begin..end of the run, where they are recognised. Those that are searched for before the normalizer come
 * first; then, between them, the others. */
static enum zf_status recognise(struct making *m, const struct zf_added *list, const struct zf_added *then, size_t begin, size_t end,
                                struct zf_err *e)
{
    size_t from = begin, done = begin, low, high;
    const struct zf_added_token *a;
    while ((a = zf_added_next(list, m->text, end, &from, done, &low, &high))) {
        if (then && low > done) ZF_TRY(recognise(m, then, NULL, done, low, e));
        done = high;
        if (low >= high) continue; /* another token took its white space */
        ZF_TRY(flush(m, low, e));
        ZF_TRY(add_id(m, a->id, is_trained(m, low, high), e));
        m->pending = high;
        m->inside = true;
        m->out->recognised++;
    }
    return then && done < end ? recognise(m, then, NULL, done, end, e) : ZF_OK;
}

/* `count` texts that stand side by side. */
static enum zf_status encode_run(struct making *m, const struct zf_part *parts, size_t count, struct zf_err *e)
{
    size_t size = 0;
    m->span_count = m->pending = 0;
    m->text = count == 1 ? parts[0].text : m->joined;
    for (size_t i = 0; i < count; i++) {
        const struct zf_part *p = &parts[i];
        if (!p->size) continue;
        if (count > 1) memcpy(m->joined + size, p->text, p->size);
        size += p->size;
        struct span *last = m->span_count ? &m->spans[m->span_count - 1] : NULL;
        if (!last || last->trained != p->trained || last->specials != p->specials)
            m->spans[m->span_count++] = (struct span){.trained = p->trained, .specials = p->specials};
        m->spans[m->span_count - 1].end = size;
    }
    if (m->span_count == 1 && m->spans[0].specials) { /* nothing to mark: as the tokenizer itself would */
        size_t had = m->out->count;
        const struct zf_encode_options o = {
            .specials_in_text = true, .inside = m->inside, .stop = m->stop, .recognised = &m->out->recognised};
        ZF_TRY(encode(m, m->text, size, &o, e));
        if (m->spans[0].trained) train(m->out, had, m->out->count);
        return ZF_OK;
    }
    for (size_t i = 0, begin = 0, n; i < m->span_count; i = n) { /* neighbours that are recognised are one text */
        for (n = i + 1; n < m->span_count && m->spans[n].specials == m->spans[i].specials;) n++;
        size_t end = m->spans[n - 1].end;
        if (m->spans[i].specials) ZF_TRY(recognise(m, &m->t->raw, &m->t->normalized, begin, end, e));
        begin = end;
    }
    return flush(m, size, e);
}

static enum zf_status encode_parts(struct making *m, const struct zf_parts *parts, struct zf_err *e)
{
    for (size_t i = 0, n; i < parts->count; i = n) {
        const struct zf_part *p = &parts->list[i];
        n = i + 1;
        if (m->stop && *m->stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising");
        if (p->id >= 0) {
            ZF_TRY(add_id(m, p->id, p->trained, e));
            m->inside = m->inside || !p->front;
            continue;
        }
        while (n < parts->count && parts->list[n].id < 0) n++;
        ZF_TRY(encode_run(m, p, n - i, e));
    }
    return ZF_OK;
}

/* One block for spans, marks and the joined text of the longest run. */
static enum zf_status make_room(struct making *m, const struct zf_parts *parts, void **block, struct zf_err *e)
{
    size_t most = 0, bytes = 0, n = parts->count, each = sizeof *m->spans + sizeof *m->marks;
    for (size_t i = 0; i < n; i++) {
        const struct zf_part *p = &parts->list[i];
        bool neighbours = (i && parts->list[i - 1].id < 0) || (i + 1 < n && parts->list[i + 1].id < 0);
        bytes = p->id >= 0 ? 0 : bytes;
        if (p->id < 0 && neighbours && __builtin_add_overflow(bytes, p->size, &bytes)) return zf_fail_memory(e, "a document");
        most = bytes > most ? bytes : most;
    }
    if (n > (SIZE_MAX / 2) / each || most > SIZE_MAX / 2) return zf_fail_memory(e, "a document");
    *block = malloc(n * each + most + 1);
    if (!*block) return zf_fail_memory(e, "a document");
    m->marks = *block;
    m->spans = (struct span *)(m->marks + n);
    m->joined = (char *)(m->spans + n);
    return ZF_OK;
}

enum zf_status zf_document_encode(const struct zf_tokenizer *t, struct zf_encoder *c, const struct zf_parts *parts, size_t vocab,
                                  const volatile int *stop, struct zf_document *out, struct zf_err *e)
{
    struct making m = {.t = t, .encoder = c, .stop = stop, .out = out, .vocab = vocab};
    void *block = NULL;
    out->count = out->recognised = 0;
    out->spelled = false;
    ZF_TRY(make_room(&m, parts, &block, e));
    enum zf_status s = encode_parts(&m, parts, e);
    free(block);
    if (s != ZF_OK) {
        out->count = 0;
        return s;
    }
    for (size_t i = 0; i < parts->count && !out->spelled; i++) {
        const struct zf_part *p = &parts->list[i];
        if (p->id < 0 && p->content) out->spelled = zf_tokenizer_count_added(t, p->text, p->size) > 0;
    }
    if (out->count) out->tokens[0] = (out->tokens[0] & ~(uint32_t)ZF_TOKEN_TRAINED) | ZF_TOKEN_FIRST;
    return ZF_OK;
}
