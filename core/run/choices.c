#include "core/run/choices.h"
#include "kernels/comm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A row that waits for its losses. */
struct waiting {
    uint64_t row;
    size_t begin, tokens, label_tokens;
    struct zf_source source;
};

struct scoring {
    const struct zf_choices *c;
    struct zf_model *m;
    struct zf_row_buffer buffer;
    struct zf_batch batch;
    float *losses;           /* [room_tokens] */
    struct waiting *waiting; /* [micro_batch] */
    double *counts;
    size_t count;
    struct { /* the record of which `seen` choices are scored; it may span micro-batches */
        size_t seen;
        struct zf_source source;
        double least;
        int likeliest, own;
        bool judged;
    } record;
};

static enum zf_status not_whole(const struct scoring *s, uint64_t row, struct zf_err *e)
{
    return zf_fail(e, ZF_FORMAT, "choices",
                   "row %" PRIu64
                   " of the validation rows with choices is not where it should be; expected %zu rows of each record, one of "
                   "them its own: with long_rows = drop or split records lose some; set long_rows = error or truncate",
                   row, s->c->count);
}

static enum zf_status score_row(struct scoring *s, const struct waiting *w, struct zf_err *e)
{
    uint32_t file = w->source.file & ~ZF_SOURCE_CHOSEN;
    double loss = 0;
    for (size_t i = 0; i < w->tokens; i++) loss += s->losses[w->begin + i];
    if (!s->record.seen) {
        s->record.source = (struct zf_source){.file = file, .line = w->source.line};
        s->record.least = INFINITY;
        s->record.likeliest = s->record.own = -1;
        s->record.judged = true;
    }
    if (file != s->record.source.file || w->source.line != s->record.source.line) return not_whole(s, w->row, e);
    if (w->source.file & ZF_SOURCE_CHOSEN) {
        if (s->record.own >= 0) return not_whole(s, w->row, e);
        s->record.own = (int)s->record.seen;
    }
    if (!w->label_tokens || !isfinite(loss)) s->record.judged = false;
    if (loss < s->record.least) {
        s->record.least = loss;
        s->record.likeliest = (int)s->record.seen;
    }
    if (++s->record.seen < s->c->count) return ZF_OK;
    if (s->record.own < 0) return not_whole(s, w->row, e);
    s->record.seen = 0;
    s->counts[0]++;
    s->counts[1] += s->record.judged && s->record.likeliest == s->record.own;
    s->counts[ZF_CHOICE_COUNTS + s->record.own]++;
    return ZF_OK;
}

static enum zf_status flush(struct scoring *s, struct zf_err *e)
{
    if (!s->count) return ZF_OK;
    ZF_TRY(zf_model_losses(s->m, &s->batch, s->losses, e));
    for (size_t i = 0; i < s->count; i++) ZF_TRY(score_row(s, &s->waiting[i], e));
    zf_batch_clear(&s->batch);
    s->count = 0;
    return s->c->between ? s->c->between(s->c->context, e) : ZF_OK;
}

static enum zf_status add(struct scoring *s, uint64_t row, struct zf_err *e)
{
    struct zf_row r;
    ZF_TRY(zf_dataset_read(s->c->data, row, &s->buffer, &r, e));
    if (r.documents != 1) return not_whole(s, row, e);
    if (s->count == s->c->micro_batch || r.length > s->batch.room_tokens - s->batch.tokens) ZF_TRY(flush(s, e));
    if (r.length > s->batch.room_tokens)
        return zf_fail(e, ZF_MEMORY, "choices", "row %" PRIu64 " has %zu tokens; there is room for %zu", row, r.length,
                       s->batch.room_tokens);
    s->waiting[s->count++] =
        (struct waiting){.row = row, .begin = s->batch.tokens, .tokens = r.length, .label_tokens = r.label_tokens, .source = r.sources[0]};
    zf_batch_add(&s->batch, &r);
    return ZF_OK;
}

enum zf_status zf_choices_score(const struct zf_choices *c, struct zf_model *m, double *counts, struct zf_err *e)
{
    struct scoring s = {.c = c, .m = m, .counts = counts};
    int ranks = c->ranks ? c->ranks : 1;
    if (!c->count || c->data->rows % c->count) return not_whole(&s, c->data->rows, e);
    uint64_t all = c->data->rows / c->count, records = c->most && c->most < all ? c->most : all;
    uint64_t from = zf_share(records, c->rank, ranks) * c->count, to = zf_share(records, c->rank + 1, ranks) * c->count;
    enum zf_status status = zf_batch_init(&s.batch, c->room_tokens, e);
    s.losses = calloc(c->room_tokens, sizeof *s.losses);
    s.waiting = calloc(c->micro_batch, sizeof *s.waiting);
    if (!status && (!s.losses || !s.waiting)) status = zf_fail_memory(e, "the scores of choices");
    for (uint64_t i = from; !status && i < to; i++) status = add(&s, i, e);
    if (!status) status = flush(&s, e);
    zf_batch_free(&s.batch);
    zf_row_buffer_free(&s.buffer);
    free(s.losses);
    free(s.waiting);
    return status;
}

void zf_choices_sum(struct zf_choices_found *out, const double *counts, size_t count)
{
    *out = (struct zf_choices_found){.records = (uint64_t)counts[0], .right = (uint64_t)counts[1]};
    for (size_t i = ZF_CHOICE_COUNTS; i < ZF_CHOICE_COUNTS + count; i++)
        if (counts[i] > (double)out->commonest) out->commonest = (uint64_t)counts[i];
}
