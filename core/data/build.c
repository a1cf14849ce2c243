/* The pipeline from files to rows: read a batch, make documents of its records on all threads, pack them in order. */
#include "core/data/build.h"

#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/base/pool.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 4096, THREAD_BYTES = 2 << 20, MOST_BYTES = 64 << 20 };

/* What a record became: a range of its worker's tokens. */
struct result {
    size_t begin, count;
};

struct item {
    struct zf_record record;
    enum zf_status status; /* ZF_FORMAT: it cannot be used */
    int worker, chosen;
    bool spelled, unanswered;
};

struct worker {
    struct zf_build *build;
    struct zf_encoder *encoder;
    struct zf_parts parts;
    struct zf_document document; /* of records */
    struct zf_ids ids;           /* of text */
    uint32_t *tokens;            /* of all its items */
    size_t count, room;
    size_t first, last; /* items first .. last-1 */
    size_t recognised;
    struct zf_err bad, fatal; /* the first record that cannot be used; what ends everything (code ZF_OK: nothing) */
};

struct zf_build {
    struct zf_build_options o;
    struct zf_reader *reader;
    struct zf_layout *layout;
    struct zf_pool *pool;
    struct worker *workers;
    int threads;
    struct zf_text bytes;
    struct item *items;
    struct result *results; /* [items][choices] */
    size_t count, choices, batch_bytes;
    struct zf_err read_error; /* of the batch's first record that cannot be read */
    uint64_t early;           /* bad records before the first that told the layout */
    struct zf_source first_early;
    bool ended, text;
};

static const char *bytes_of(const struct zf_build *b, const struct zf_record *r)
{
    return r->size ? b->bytes.data + r->begin : "";
}

static const char *file_of(const struct zf_build *b, const struct zf_record *r)
{
    return b->o.data->files[r->file];
}

/* Of an error in a record, where nobody below knew a better one. */
static void set_place(const struct zf_build *b, const struct zf_record *r, struct zf_err *e)
{
    if (!e->where[0]) zf_place(e->where, sizeof e->where, file_of(b, r), r->line, r->column > 1 ? r->column : 0);
}

/* Reads records up to the batch's size. Without skip_bad the first bad one ends the batch. */
static enum zf_status read_batch(struct zf_build *b, struct zf_err *e)
{
    b->bytes.size = b->count = 0;
    b->read_error.code = ZF_OK;
    while (!b->ended && b->count < ITEMS && b->bytes.size < b->batch_bytes) {
        struct item *i = &b->items[b->count];
        size_t had = b->bytes.size;
        bool more = false;
        *i = (struct item){.chosen = -1};
        i->status = zf_reader_next(b->reader, &b->bytes, &i->record, &more, e);
        if (i->status && i->status != ZF_FORMAT) return zf_unreadable(e); /* not as FORMAT above: that would be skipped */
        if (i->status && i->record.lost && b->o.data->skip_bad) {
            /* to skip one record must not be to lose the rest of a file in silence */
            size_t n = strlen(e->message);
            snprintf(e->message + n, sizeof e->message - n, " (skip_bad does not help: nothing behind it could be read)");
            return e->code;
        }
        if (!i->status && !more) {
            b->ended = true;
            break;
        }
        b->count++;
        if (!i->status) continue;
        b->bytes.size = had;
        i->record.begin = had;
        i->record.size = 0;
        if (b->read_error.code == ZF_OK) b->read_error = *e;
        if (!b->o.data->skip_bad) break;
    }
    return ZF_OK;
}

static enum zf_status keep_tokens(struct worker *w, const void *tokens, size_t count, struct result *r, struct zf_err *e)
{
    void *p = w->tokens;
    enum zf_status s = zf_grow(&p, &w->room, w->count + count, sizeof *w->tokens, e);
    w->tokens = p;
    if (s) return s;
    if (count) memcpy(w->tokens + w->count, tokens, count * sizeof *w->tokens);
    r->begin = w->count;
    r->count = count;
    w->count += count;
    return ZF_OK;
}

/* A piece of a text's document; of an empty one nothing. */
static enum zf_status encode_text(struct worker *w, const struct item *i, struct result *r, struct zf_err *e)
{
    const struct zf_build *b = w->build;
    const struct zf_dataset_options *d = b->o.data;
    if (i->record.first && i->record.last && !i->record.size) return ZF_OK;
    struct zf_encode_options o = {.specials_in_text = b->o.specials,
                                  .continues = !i->record.first,
                                  .inside = !i->record.first,
                                  .checked = true,
                                  .stop = b->o.stop,
                                  .recognised = &w->recognised};
    w->ids.count = 0;
    ZF_TRY(zf_encode(w->encoder, bytes_of(b, &i->record), i->record.size, &o, &w->ids, e));
    if (i->record.last && b->o.eos >= 0) ZF_TRY(zf_ids_push(&w->ids, b->o.eos, e));
    ZF_TRY(zf_document_check(d->tokenizer, w->ids.ids, w->ids.count, d->vocab, e));
    return keep_tokens(w, w->ids.ids, w->ids.count, r, e);
}

static enum zf_status encode_record(struct worker *w, struct item *i, struct result *r, struct zf_err *e)
{
    const struct zf_build *b = w->build;
    const struct zf_dataset_options *d = b->o.data;
    const char *bytes = bytes_of(b, &i->record), *file = file_of(b, &i->record);
    for (size_t k = 0; k < b->choices; k++) {
        int chosen = -1;
        ZF_TRY(zf_layout_render(b->layout, &i->record, bytes, file, d->every_choice ? (int)k : -1, &w->parts, &chosen, e));
        if (!w->parts.count) return ZF_OK;
        if (d->choice_count && chosen < 0) {
            return zf_fail(e, ZF_FORMAT, NULL,
                           "its response is none of the %zu choices; correct it, add it to choices, or set skip_bad = yes to leave it out",
                           d->choice_count);
        }
        i->chosen = chosen;
        ZF_TRY(zf_document_encode(d->tokenizer, w->encoder, &w->parts, d->vocab, b->o.stop, &w->document, e));
        ZF_TRY(keep_tokens(w, w->document.tokens, w->document.count, &r[k], e));
        if (!k && !zf_layout_is_chat(b->layout)) w->recognised += w->document.recognised; /* a model's template is full of them */
        i->spelled = w->document.spelled;
        i->unanswered = w->document.unanswered;
    }
    return ZF_OK;
}

static void work(void *ctx, size_t index)
{
    struct worker *w = &((struct worker *)ctx)[index];
    struct zf_build *b = w->build;
    w->count = w->recognised = 0;
    w->bad.code = w->fatal.code = ZF_OK;
    for (size_t n = w->first; n < w->last; n++) {
        struct item *i = &b->items[n];
        struct zf_err e;
        i->worker = (int)index;
        memset(&b->results[n * b->choices], 0, b->choices * sizeof *b->results);
        if (i->status) continue;
        if (b->o.stop && *b->o.stop) {
            zf_fail(&w->fatal, ZF_STOPPED, NULL, "stopped while reading the data");
            return;
        }
        i->status = b->text ? encode_text(w, i, &b->results[n], &e) : encode_record(w, i, &b->results[n * b->choices], &e);
        if (i->status && i->status != ZF_FORMAT) {
            w->fatal = e;
            return;
        }
        if (i->status && w->bad.code == ZF_OK) {
            set_place(b, &i->record, &e);
            w->bad = e;
        }
        if (i->status && !b->o.data->skip_bad) return;
    }
}

/* Ranges of items with about the same bytes for each worker. */
static void divide(struct zf_build *b)
{
    size_t n = 0, share = b->bytes.size / (size_t)b->threads + 1;
    for (int t = 0; t < b->threads; t++) {
        struct worker *w = &b->workers[t];
        w->first = n;
        for (size_t taken = 0; n < b->count && taken < share; n++) taken += b->items[n].record.size + 1;
        if (t + 1 == b->threads) n = b->count;
        w->last = n;
    }
}

static enum zf_status pack_text(struct zf_build *b, const struct item *i, struct zf_packer *p, struct zf_data_stats *stats,
                                struct zf_err *e)
{
    const struct result *r = &b->results[i - b->items];
    const struct zf_source source = {.line = i->record.line, .file = i->record.file};
    stats->records += i->record.first;
    if (i->record.first && i->record.last && !r->count) {
        stats->empty += !i->status;
        return ZF_OK;
    }
    bool last = i->record.last || i->status; /* a document ends where it cannot be read */
    return zf_packer_text(p, b->workers[i->worker].tokens + r->begin, r->count, last, &source, e);
}

static enum zf_status pack_record(struct zf_build *b, const struct item *i, struct zf_packer *p, struct zf_data_stats *stats,
                                  struct zf_err *e)
{
    stats->records++;
    const struct result *r = &b->results[(size_t)(i - b->items) * b->choices];
    if (!i->status && !r->count) stats->empty++;
    if (i->status || !r->count) return ZF_OK;
    stats->spelled_specials += i->spelled;
    stats->unanswered += i->unanswered;
    for (size_t k = 0; k < b->choices; k++) {
        struct zf_source source = {.line = i->record.line, .file = i->record.file};
        if (b->o.data->every_choice && (int)k == i->chosen) source.file |= ZF_SOURCE_CHOSEN;
        ZF_TRY(zf_packer_add(p, b->workers[i->worker].tokens + r[k].begin, r[k].count, &source, e));
    }
    return ZF_OK;
}

static enum zf_status pack_batch(struct zf_build *b, struct zf_packer *p, struct zf_data_stats *stats, struct zf_err *e)
{
    for (int t = 0; t < b->threads; t++) {
        if (b->workers[t].fatal.code == ZF_OK) continue;
        *e = b->workers[t].fatal;
        return e->code;
    }
    for (size_t n = 0; n < b->count; n++) {
        const struct item *i = &b->items[n];
        if (i->status) {
            const struct worker *w = &b->workers[i->worker];
            const struct zf_err *why = w->bad.code != ZF_OK ? &w->bad : &b->read_error;
            if (!b->o.data->skip_bad) {
                *e = *why;
                size_t had = strlen(e->message);
                if (!strstr(e->message, "skip_bad"))
                    snprintf(e->message + had, sizeof e->message - had, "; correct it, or set skip_bad = yes to leave it out");
                return e->code;
            }
            const struct zf_source source = {.line = i->record.line, .file = i->record.file};
            zf_stats_first(&stats->bad, &stats->first_bad, &source);
        }
        ZF_TRY(b->text ? pack_text(b, i, p, stats, e) : pack_record(b, i, p, stats, e));
    }
    for (int t = 0; t < b->threads; t++) stats->recognised += b->workers[t].recognised;
    return ZF_OK;
}

static void tell(struct zf_build *b)
{
    const struct zf_dataset_options *d = b->o.data;
    if (d->progress) d->progress(d->progress_context, zf_reader_bytes(b->reader), b->o.total);
}

enum zf_status zf_build_rows(struct zf_build *b, struct zf_rows_writer *w, struct zf_data_stats *stats, struct zf_err *e)
{
    const struct zf_dataset_options *d = b->o.data;
    struct zf_packer *p;
    ZF_TRY(zf_packer_new(&p, w, b->o.length, d->long_rows, d->pack && !d->every_choice && !b->text, stats, e));
    enum zf_status s = ZF_OK;
    stats->records = stats->bad = b->early;
    stats->first_bad = b->first_early;
    for (bool over = false; !s && !over;) { /* the first batch has been read */
        divide(b);
        zf_pool_run(b->pool, (size_t)b->threads, work, b->workers);
        s = pack_batch(b, p, stats, e);
        tell(b);
        over = b->ended;
        if (!s && !over) s = read_batch(b, e);
    }
    if (!s) s = zf_packer_flush(p, e);
    zf_packer_free(p);
    stats->empty_files = zf_reader_empty_files(b->reader);
    return s;
}

/* The first of the batch's records that tells what records are; ZF_FORMAT: none does, and *e says why the first does not. */
static enum zf_status layout_from_batch(struct zf_build *b, struct zf_err *e)
{
    const struct zf_dataset_options *d = b->o.data;
    const struct zf_layout_options o = {.tokenizer = d->tokenizer,
                                        .folder = d->folder,
                                        .format = b->o.format,
                                        .prompt = d->prompt && *d->prompt ? d->prompt : NULL,
                                        .response = d->response && *d->response ? d->response : NULL,
                                        .choices = d->choices,
                                        .choice_count = d->choice_count,
                                        .chat = d->chat,
                                        .train_all = d->train_all,
                                        .add_eos = d->add_eos,
                                        .add_bos = d->add_bos,
                                        .eos = b->o.eos};
    struct zf_err first = b->read_error;
    for (size_t n = 0; n < b->count; n++) {
        const struct item *i = &b->items[n];
        if (i->status) continue;
        enum zf_status s = zf_layout_open(&b->layout, &o, &i->record, bytes_of(b, &i->record), file_of(b, &i->record), e);
        if (s != ZF_FORMAT) return s;
        set_place(b, &i->record, e);
        if (first.code == ZF_OK || !n) first = *e;
        if (!d->skip_bad) break;
    }
    *e = first;
    return ZF_FORMAT;
}

/* That record decides for all. With skip_bad it need not be the first, nor in the first batch. */
static enum zf_status find_layout(struct zf_build *b, struct zf_err *e)
{
    const struct zf_dataset_options *d = b->o.data;
    if (!b->count)
        return zf_fail(
            e, ZF_FORMAT, d->files[0],
            "no record in %zu file%s: everything is empty, or there is a header alone (lines end with LF or CRLF; a lone CR ends none)",
            d->file_count, zf_plural(d->file_count));
    for (struct zf_err first = {.code = ZF_OK};;) {
        enum zf_status s = layout_from_batch(b, e);
        if (s != ZF_FORMAT || !d->skip_bad) return s;
        if (first.code == ZF_OK) first = *e;
        if (!b->early) b->first_early = (struct zf_source){.line = b->items[0].record.line, .file = b->items[0].record.file};
        b->early += b->count;
        b->count = 0;
        if (!b->ended) ZF_TRY(read_batch(b, e));
        if (b->count) continue;
        *e = first;
        return ZF_FORMAT;
    }
}

static size_t cut_text(const void *context, const char *text, size_t size)
{
    return zf_tokenizer_cut(context, text, size);
}

static enum zf_status begin(struct zf_build *b, struct zf_err *e)
{
    const struct zf_dataset_options *d = b->o.data;
    b->text = b->o.format == ZF_DATA_TEXT;
    b->threads = d->threads > 0 ? d->threads : 1;
    b->choices = d->every_choice && d->choice_count ? d->choice_count : 1;
    b->batch_bytes = (size_t)b->threads * THREAD_BYTES < MOST_BYTES ? (size_t)b->threads * THREAD_BYTES : MOST_BYTES;
    b->items = calloc(ITEMS, sizeof *b->items);
    b->results = calloc(ITEMS * b->choices, sizeof *b->results);
    b->workers = calloc((size_t)b->threads, sizeof *b->workers);
    if (!b->items || !b->results || !b->workers) return zf_fail_memory(e, "the data");
    ZF_TRY(zf_pool_new(&b->pool, b->threads, e));
    for (int t = 0; t < b->threads; t++) {
        b->workers[t].build = b;
        ZF_TRY(zf_encoder_new(&b->workers[t].encoder, d->tokenizer, e));
    }
    const struct zf_reader_options r = {.files = d->files,
                                        .file_count = d->file_count,
                                        .format = b->o.format,
                                        .documents = d->documents,
                                        .cut = cut_text,
                                        .context = d->tokenizer,
                                        .any_bytes = b->text && zf_tokenizer_takes_bytes(d->tokenizer),
                                        .stop = b->o.stop};
    ZF_TRY(zf_reader_open(&b->reader, &r, e));
    ZF_TRY(read_batch(b, e));
    return b->text ? ZF_OK : find_layout(b, e);
}

enum zf_status zf_build_begin(struct zf_build **out, const struct zf_build_options *o, struct zf_err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return zf_fail_memory(e, "the data");
    (*out)->o = *o;
    enum zf_status s = begin(*out, e);
    if (!s) return ZF_OK;
    zf_build_end(*out);
    *out = NULL;
    return s;
}

const struct zf_layout *zf_build_layout(const struct zf_build *b)
{
    return b->layout;
}

void zf_build_end(struct zf_build *b)
{
    if (!b) return;
    for (int t = 0; b->workers && t < b->threads; t++) {
        struct worker *w = &b->workers[t];
        zf_encoder_free(w->encoder);
        zf_parts_free(&w->parts);
        free(w->document.tokens);
        free(w->ids.ids);
        free(w->tokens);
    }
    zf_pool_free(b->pool);
    if (b->reader) zf_reader_close(b->reader);
    if (b->layout) zf_layout_close(b->layout);
    free(b->workers);
    free(b->items);
    free(b->results);
    free(b->bytes.data);
    free(b);
}
