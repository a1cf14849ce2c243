/* Parts -> tokens. Texts that stand side by side are a run, encoded as one; marks where they meet say what is trained, and where added
 * tokens are recognised. */
#include "core/data/document.h"

#include <stdlib.h>
#include <string.h>

struct making {
    const struct zf_tokenizer *t;
    struct zf_encoder *encoder;
    const volatile int *stop;
    struct zf_document *out;
    size_t vocab;
    bool inside;           /* something stands in front */
    struct zf_mark *marks; /* where a part with other flags than the one before begins */
    bool *trained;         /* [marks + 1]: what stands before the first, behind each */
    char *joined;
};

enum zf_status zf_document_check(const struct zf_tokenizer *t, const int32_t *ids, size_t count, size_t vocab, struct zf_err *e)
{
    size_t i = 0;
    while (i < count && ids[i] >= 0 && (size_t)ids[i] < vocab && ids[i] <= ZF_TOKEN_ID) i++;
    if (i == count) return ZF_OK;
    char *text;
    ZF_TRY(zf_tokenizer_decode(t, &ids[i], 1, false, &text, NULL, e));
    zf_fail(e, ZF_FORMAT, NULL,
            "its text has the token '%.64s' with id %d, but the model has %zu ids; the tokenizer belongs to another model", text, ids[i],
            vocab);
    free(text);
    return ZF_FORMAT;
}

static enum zf_status add_id(struct making *m, int32_t id, bool trained, struct zf_err *e)
{
    struct zf_document *d = m->out;
    void *p = d->tokens;
    enum zf_status s = zf_grow(&p, &d->room, d->count + 1, sizeof *d->tokens, e);
    d->tokens = p;
    if (s == ZF_OK) s = zf_document_check(m->t, &id, 1, m->vocab, e);
    if (s == ZF_OK) d->tokens[d->count++] = (uint32_t)id | (trained ? ZF_TOKEN_TRAINED : 0);
    return s;
}

static enum zf_status encode(struct making *m, const char *text, size_t size, bool specials, size_t marks, struct zf_err *e)
{
    struct zf_document *d = m->out;
    struct zf_ids ids = {(int32_t *)d->tokens, d->count, d->room};
    size_t had = d->count;
    const struct zf_encode_options o = {.specials_in_text = specials,
                                        .inside = m->inside,
                                        .stop = m->stop,
                                        .recognised = &d->recognised,
                                        .marks = m->marks,
                                        .mark_count = marks};
    enum zf_status s = zf_encode(m->encoder, text, size, &o, &ids, e);
    d->tokens = (uint32_t *)ids.ids;
    d->count = ids.count;
    d->room = ids.room;
    m->inside = true;
    ZF_TRY(s);
    ZF_TRY(zf_document_check(m->t, ids.ids + had, ids.count - had, m->vocab, e));
    for (size_t i = 0; i <= marks; i++) {
        size_t from = i ? m->marks[i - 1].ended : 0, to = i < marks ? m->marks[i].begun : d->count - had;
        for (size_t k = from; m->trained[i] && k < to; k++) d->tokens[had + k] |= ZF_TOKEN_TRAINED;
    }
    return ZF_OK;
}

/* `count` texts that stand side by side. */
static enum zf_status encode_run(struct making *m, const struct zf_part *parts, size_t count, struct zf_err *e)
{
    size_t size = 0, marks = 0;
    const struct zf_part *last = NULL;
    m->trained[0] = parts[0].trained;
    for (size_t i = 0; i < count; i++) {
        const struct zf_part *p = &parts[i];
        if (last && (last->trained != p->trained || last->specials != p->specials)) {
            m->marks[marks++] = (struct zf_mark){.offset = size, .specials = p->specials};
            m->trained[marks] = p->trained;
        }
        if (count > 1) memcpy(m->joined + size, p->text, p->size);
        size += p->size;
        last = p;
    }
    return encode(m, count > 1 ? m->joined : parts[0].text, size, parts[0].specials, marks, e);
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

/* One block for marks, what is trained and the joined text of the longest run. */
static enum zf_status make_room(struct making *m, const struct zf_parts *parts, void **block, struct zf_err *e)
{
    size_t most = 0, bytes = 0, n = parts->count, each = sizeof *m->marks + sizeof *m->trained;
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
    m->trained = (bool *)(m->marks + n);
    m->joined = (char *)(m->trained + n);
    return ZF_OK;
}

enum zf_status zf_document_encode(const struct zf_tokenizer *t, struct zf_encoder *c, const struct zf_parts *parts, size_t vocab,
                                  const volatile int *stop, struct zf_document *out, struct zf_err *e)
{
    struct making m = {.t = t, .encoder = c, .stop = stop, .out = out, .vocab = vocab};
    void *block = NULL;
    out->count = out->recognised = 0;
    bool asked = false, answered = false, trained = false;
    out->spelled = out->unanswered = false;
    ZF_TRY(make_room(&m, parts, &block, e));
    enum zf_status s = encode_parts(&m, parts, e);
    free(block);
    if (s != ZF_OK) {
        out->count = 0;
        return s;
    }
    for (size_t i = 0; i < parts->count; i++) {
        const struct zf_part *p = &parts->list[i];
        trained |= p->trained;
        asked |= p->id < 0 && !p->trained;
        answered |= p->trained && p->content;
        if (p->id < 0 && p->content && !out->spelled) out->spelled = zf_tokenizer_count_added(t, p->text, p->size) > 0;
    }
    out->unanswered = asked && trained && !answered;
    if (out->count) out->tokens[0] = (out->tokens[0] & ~(uint32_t)ZF_TOKEN_TRAINED) | ZF_TOKEN_FIRST;
    return ZF_OK;
}
