/* Documents -> rows: what long_rows says, first fit, counting. Holds at most ZF_PACK_WINDOW rows. One packer, one thread. */
#include "core/data/pack.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct filling_row {
    uint32_t *tokens;
    struct zf_source *sources;
    size_t length, room, documents, source_room;
};

struct zf_packer {
    struct zf_rows_writer *writer;
    struct zf_data_stats *stats;
    size_t length; /* of a row, at most */
    enum zf_long_rows policy;
    bool pack;
    size_t oldest, open; /* in `rows`, a ring in the order of opening */
    struct filling_row rows[ZF_PACK_WINDOW];
    struct filling_row text; /* of a document that comes in pieces */
    bool in_text;
    uint64_t text_tokens;
    struct zf_source text_source;
    XXH3_state_t *text_hash;
};

enum zf_status zf_packer_new(struct zf_packer **out, struct zf_rows_writer *w, size_t length, enum zf_long_rows policy, bool pack,
                             struct zf_data_stats *stats, struct zf_err *e)
{
    *out = NULL;
    if (!length || length > INT32_MAX) return zf_fail(e, ZF_USAGE, NULL, "rows of %zu tokens; expected 1 to %d", length, INT32_MAX);
    struct zf_packer *p = calloc(1, sizeof *p);
    if (!p) return zf_fail_memory(e, "rows to be packed");
    p->writer = w;
    p->stats = stats;
    p->length = length;
    p->policy = policy;
    p->pack = pack;
    p->text_hash = XXH3_createState();
    if (!p->text_hash) {
        zf_packer_free(p);
        return zf_fail_memory(e, "rows to be packed");
    }
    *out = p;
    return ZF_OK;
}

void zf_packer_free(struct zf_packer *p)
{
    if (!p) return;
    for (size_t i = 0; i < ZF_PACK_WINDOW; i++) {
        free(p->rows[i].tokens);
        free(p->rows[i].sources);
    }
    free(p->text.tokens);
    free(p->text.sources);
    XXH3_freeState(p->text_hash);
    free(p);
}

/* Room for `need` elements, doubling, never for more than `most`: a row that is full has not a token too much. */
static enum zf_status grow(void **list, size_t *room, size_t need, size_t most, size_t element, struct zf_err *e)
{
    if (need <= *room) return ZF_OK;
    size_t more = *room * 2 < need ? need : *room * 2;
    if (more > most) more = most;
    void *q = realloc(*list, more * element);
    if (!q) return zf_fail_memory(e, "rows to be packed");
    *list = q;
    *room = more;
    return ZF_OK;
}

static enum zf_status room_for(const struct zf_packer *p, struct filling_row *r, size_t tokens, struct zf_err *e)
{
    void *list = r->tokens;
    enum zf_status s = grow(&list, &r->room, r->length + tokens, p->length, sizeof *r->tokens, e);
    r->tokens = list;
    if (s != ZF_OK) return s;
    list = r->sources;
    s = grow(&list, &r->source_room, r->documents + 1, p->length, sizeof *r->sources, e);
    r->sources = list;
    return s;
}

static bool has_target(const uint32_t *tokens, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (zf_token_is_target(tokens[i])) return true;
    return false;
}

static enum zf_status close_row(struct zf_packer *p, struct filling_row *r, struct zf_err *e)
{
    size_t length = r->length, documents = r->documents;
    r->length = r->documents = 0;
    return zf_rows_add(p->writer, r->tokens, NULL, length, r->sources, documents, e);
}

static enum zf_status close_oldest(struct zf_packer *p, struct zf_err *e)
{
    struct filling_row *r = &p->rows[p->oldest];
    p->oldest = (p->oldest + 1) % ZF_PACK_WINDOW;
    p->open--;
    return close_row(p, r, e);
}

static enum zf_status find_row(struct zf_packer *p, size_t tokens, struct filling_row **out, struct zf_err *e)
{
    for (size_t i = 0; i < p->open; i++) {
        *out = &p->rows[(p->oldest + i) % ZF_PACK_WINDOW];
        if (tokens <= p->length - (*out)->length) return ZF_OK;
    }
    if (p->open == ZF_PACK_WINDOW) ZF_TRY(close_oldest(p, e));
    *out = &p->rows[(p->oldest + p->open++) % ZF_PACK_WINDOW];
    return ZF_OK;
}

/* 1 <= count <= length. What is put begins a document. */
static enum zf_status put_document(struct zf_packer *p, const uint32_t *tokens, size_t count, const struct zf_source *source,
                                   struct zf_err *e)
{
    struct filling_row *r;
    ZF_TRY(find_row(p, count, &r, e));
    ZF_TRY(room_for(p, r, count, e));
    memcpy(r->tokens + r->length, tokens, count * sizeof *tokens);
    r->tokens[r->length] = (tokens[0] & ZF_TOKEN_ID) | ZF_TOKEN_FIRST;
    r->sources[r->documents++] = (struct zf_source){.line = source->line, .file = source->file, .tokens = (uint32_t)count};
    r->length += count;
    return p->pack ? ZF_OK : close_oldest(p, e);
}

/* Returns how many of its tokens stay; those are cut into rows if they are more than one row takes. */
static size_t shorten(struct zf_packer *p, size_t count, const struct zf_source *source)
{
    struct zf_data_stats *s = p->stats;
    uint64_t *counters[] = {
        [ZF_LONG_ERROR] = &s->dropped, [ZF_LONG_TRUNCATE] = &s->truncated, [ZF_LONG_SPLIT] = &s->split, [ZF_LONG_DROP] = &s->dropped};
    size_t keep = p->policy == ZF_LONG_TRUNCATE ? p->length : p->policy == ZF_LONG_SPLIT ? count : 0;
    if (count <= p->length) return count;
    zf_stats_first(counters[p->policy], &s->first_long, source);
    s->cut_tokens += count - keep;
    return keep;
}

enum zf_status zf_packer_add(struct zf_packer *p, const uint32_t *tokens, size_t count, const struct zf_source *source, struct zf_err *e)
{
    if (!count) {
        p->stats->empty++;
        return ZF_OK;
    }
    zf_stats_document(p->stats, count);
    ZF_TRY(zf_rows_document(p->writer, XXH3_64bits(tokens, count * sizeof *tokens), e));
    size_t keep = shorten(p, count, source);
    bool labelled = !keep;
    for (size_t at = 0; at < keep; at += p->length) {
        size_t n = keep - at < p->length ? keep - at : p->length;
        labelled = labelled || has_target(tokens + at, n);
        ZF_TRY(put_document(p, tokens + at, n, source, e));
    }
    if (!labelled) zf_stats_first(&p->stats->unlabelled, &p->stats->first_unlabelled, source);
    return ZF_OK;
}

enum zf_status zf_packer_flush(struct zf_packer *p, struct zf_err *e)
{
    while (p->open) ZF_TRY(close_oldest(p, e));
    return ZF_OK;
}

static enum zf_status close_text_row(struct zf_packer *p, struct zf_err *e)
{
    struct filling_row *r = &p->text;
    r->sources[0] = p->text_source;
    r->sources[0].tokens = (uint32_t)r->length;
    r->documents = 1;
    /* As it stands in rows: how the document was cut into pieces does not show. */
    XXH3_64bits_update(p->text_hash, r->tokens, r->length * sizeof *r->tokens);
    return close_row(p, r, e);
}

static enum zf_status end_text(struct zf_packer *p, struct zf_err *e)
{
    p->in_text = false;
    if (!p->text_tokens) {
        p->stats->empty++;
        return ZF_OK;
    }
    if (p->text.length) ZF_TRY(close_text_row(p, e));
    zf_stats_document(p->stats, p->text_tokens);
    if (p->text_tokens < 2 || p->length < 2) zf_stats_first(&p->stats->unlabelled, &p->stats->first_unlabelled, &p->text_source);
    return zf_rows_document(p->writer, XXH3_64bits_digest(p->text_hash), e);
}

enum zf_status zf_packer_text(struct zf_packer *p, const uint32_t *tokens, size_t count, bool last, const struct zf_source *source,
                              struct zf_err *e)
{
    struct filling_row *r = &p->text;
    if (!p->in_text) {
        p->in_text = true;
        p->text_tokens = 0;
        p->text_source = (struct zf_source){.line = source->line, .file = source->file};
        XXH3_64bits_reset(p->text_hash);
    }
    p->text_tokens += count;
    while (count) {
        size_t n = p->length - r->length < count ? p->length - r->length : count;
        ZF_TRY(room_for(p, r, n, e));
        for (size_t i = 0; i < n; i++, r->length++)
            r->tokens[r->length] = (tokens[i] & ZF_TOKEN_ID) | (r->length ? (uint32_t)ZF_TOKEN_TRAINED : ZF_TOKEN_FIRST);
        tokens += n;
        count -= n;
        if (r->length == p->length) ZF_TRY(close_text_row(p, e));
    }
    return last ? end_text(p, e) : ZF_OK;
}
