/* Datasets: the format of the files, the rows once they are filled, slices, order. */
#include "core/data/dataset_impl.h"

#include "core/base/rng.h"
#include "core/tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEFAULT_LENGTH = 1024, NAMED_ROWS = 5 };

static const struct {
    const char *extension, *name;
    enum zf_data_format format;
} formats[] = {
    {".txt", "text", ZF_DATA_TEXT},     {".md", "text", ZF_DATA_TEXT},   {".safetensors", "tokens", ZF_DATA_TOKENS},
    {".jsonl", "jsonl", ZF_DATA_JSONL}, {".json", "json", ZF_DATA_JSON}, {".tsv", "tsv", ZF_DATA_TSV},
    {".csv", "csv", ZF_DATA_CSV},
};

static enum zf_status find_format(enum zf_data_format *out, const struct zf_dataset_options *o, const char *file, struct zf_err *e)
{
    const char *name = strrchr(file, '/');
    const char *dot = strrchr(name ? name + 1 : file, '.');
    *out = o->format;
    for (size_t i = 0; i < sizeof formats / sizeof *formats && *out == ZF_DATA_AUTO; i++) {
        if (dot && !strcasecmp(dot, formats[i].extension)) *out = formats[i].format;
    }
    if (*out == ZF_DATA_TEXT || *out == ZF_DATA_TOKENS) return ZF_OK;
    if (*out == ZF_DATA_AUTO) {
        return zf_fail(e, ZF_USAGE, file,
                       "its format cannot be told from '%s'; expected .txt, .md or .safetensors: rename it or set format = text or tokens",
                       dot ? dot : "a name without extension");
    }
    const char *what = "?";
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].format == *out) what = formats[i].name;
    }
    return zf_fail(e, ZF_USAGE, file,
                   "format %s is not supported by this version, which has text and tokens; convert the file to one of them", what);
}

enum zf_status zf_filling_stopped(const struct zf_filling *f, struct zf_err *e)
{
    return f->stop && *f->stop ? zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data") : ZF_OK;
}

enum zf_status zf_filling_row(struct zf_filling *f, size_t begin, size_t length, size_t label_tokens, struct zf_err *e)
{
    void *p = f->store->rows;
    enum zf_status s = zf_grow(&p, &f->store->row_room, f->store->row_count + 1, sizeof *f->store->rows, e);
    f->store->rows = p;
    if (s == ZF_OK) f->store->rows[f->store->row_count++] = (struct zf_row_place){begin, (uint32_t)length, (uint32_t)label_tokens};
    return s;
}

static void store_free(struct zf_dataset_store *s)
{
    if (!s) return;
    free(s->ids.ids);
    free(s->target);
    free(s->document);
    free(s->rows);
    free(s);
}

static void *shrink(void *p, size_t *room, size_t used, size_t element)
{
    void *q = used ? realloc(p, used * element) : NULL;
    if (q) *room = used;
    return q ? q : p;
}

static void count_rows(struct zf_dataset *d)
{
    const struct zf_row_place *r = d->store->rows + d->first;
    d->tokens = d->label_tokens = d->longest = d->unlabelled = 0;
    for (size_t i = 0; i < d->rows; i++) {
        d->tokens += r[i].length;
        d->label_tokens += r[i].label_tokens;
        if (r[i].length > d->longest) d->longest = r[i].length;
        d->unlabelled += !r[i].label_tokens;
    }
}

static void add_note(struct zf_dataset *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(struct zf_dataset *d, const char *fmt, ...)
{
    size_t n = strlen(d->note);
    if (n) n += (size_t)snprintf(d->note + n, sizeof d->note - n, "; ");
    if (n >= sizeof d->note) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->note + n, sizeof d->note - n, fmt, ap);
    va_end(ap);
}

static void write_note(struct zf_dataset *d, const struct zf_filling *f)
{
    if (f->wants_eos && f->eos < 0)
        add_note(d, "no end token after documents: the tokenizer has none, or the model's vocabulary has no room for it");
    if (f->empty_files) add_note(d, "%zu empty files", f->empty_files);
    if (f->empty_documents) add_note(d, "%zu empty documents left out", f->empty_documents);
    if (f->bad_documents) add_note(d, "%zu documents that are no UTF-8 left out", f->bad_documents);
    if (f->recognised) add_note(d, "%zu special tokens written in the text were recognised as such", f->recognised);
    if (d->unlabelled) add_note(d, "%zu of %zu rows have no label token", d->unlabelled, d->rows);
    if (f->o->tokenizer && *zf_tokenizer_note(f->o->tokenizer)) add_note(d, "%s", zf_tokenizer_note(f->o->tokenizer));
}

static enum zf_status check_filled(const struct zf_dataset *d, const struct zf_dataset_options *o, bool tokens, struct zf_err *e)
{
    const char *file = o->files[0];
    if (!d->rows) return zf_fail(e, ZF_FORMAT, file, "no usable row in %zu files: everything is empty; expected some text", o->file_count);
    if (!d->label_tokens) {
        return zf_fail(e, ZF_FORMAT, file, "none of its %zu rows has a label token (%s); nothing could be trained or scored", d->rows,
                       tokens ? "all labels are -100, or every document is one token" : "every document is a single token");
    }
    if (!tokens || o->skip_bad || d->unlabelled * 100 <= d->rows) return ZF_OK;
    char named[128] = "";
    size_t n = 0, shown = 0;
    for (size_t i = 0; i < d->rows && shown < NAMED_ROWS; i++) {
        if (!d->store->rows[i].label_tokens) n += (size_t)snprintf(named + n, sizeof named - n, "%s%zu", shown++ ? ", " : "", i);
    }
    return zf_fail(e, ZF_FORMAT, file,
                   "%zu of %zu rows have no label token (rows %s%s, from 0), more than 1 %%; correct the labels, or set skip_bad = yes",
                   d->unlabelled, d->rows, named, d->unlabelled > shown ? ", ..." : "");
}

static enum zf_status fill(struct zf_dataset *d, struct zf_filling *f, enum zf_data_format *format, struct zf_err *e)
{
    const struct zf_dataset_options *o = f->o;
    if (!o->file_count) return zf_fail(e, ZF_USAGE, NULL, "no data file is given");
    for (size_t i = 0; i < o->file_count; i++) {
        enum zf_data_format this;
        ZF_TRY(find_format(&this, o, o->files[i], e));
        if (i && this != *format)
            return zf_fail(e, ZF_USAGE, o->files[i], "it has another format than %s; give files of one format", o->files[0]);
        *format = this;
    }
    if (*format == ZF_DATA_TOKENS) {
        ZF_TRY(zf_fill_tokens(f, e));
    } else {
        if (!o->tokenizer) return zf_fail(e, ZF_USAGE, o->files[0], "text needs a tokenizer; none is given");
        if (o->documents && !*o->documents)
            return zf_fail(e, ZF_USAGE, NULL, "documents is an empty separator; expected file, blank or some text");
        if (o->sequence_length > o->context) {
            return zf_fail(e, ZF_USAGE, NULL, "sequence_length %zu is more than the model's context; at most %zu", o->sequence_length,
                           o->context);
        }
        f->length = o->sequence_length ? o->sequence_length : o->context < DEFAULT_LENGTH ? o->context : DEFAULT_LENGTH;
        if (!f->length || f->length > INT32_MAX)
            return zf_fail(e, ZF_USAGE, NULL, "rows of %zu tokens; expected 1 to %d", f->length, INT32_MAX);
        f->wants_eos = o->add_eos;
        f->eos = zf_tokenizer_eos(o->tokenizer);
        /* `bytes` on a model of 256 ids: its one special token has no id there, so the text is bytes and nothing else. */
        f->specials = !o->tokenizer->bytes || (size_t)f->eos < o->vocab;
        if (!o->add_eos || (f->eos >= 0 && (size_t)f->eos >= o->vocab)) f->eos = -1;
        for (size_t i = 0; i < o->file_count; i++) ZF_TRY(zf_fill_text(f, o->files[i], e));
    }
    d->rows = d->store->row_count;
    d->documents = f->documents;
    count_rows(d);
    return check_filled(d, o, *format == ZF_DATA_TOKENS, e);
}

enum zf_status zf_dataset_open(struct zf_dataset *out, const struct zf_dataset_options *o, const volatile int *stop, struct zf_err *e)
{
    *out = (struct zf_dataset){.store = calloc(1, sizeof *out->store)};
    if (!out->store) return zf_fail_memory(e, "the data");
    struct zf_filling f = {.store = out->store, .o = o, .stop = stop, .eos = -1};
    enum zf_data_format format = ZF_DATA_AUTO;
    enum zf_status s = fill(out, &f, &format, e);
    if (s != ZF_OK) {
        zf_dataset_close(out);
        return s;
    }
    struct zf_dataset_store *d = out->store;
    d->ids.ids = shrink(d->ids.ids, &d->ids.room, d->ids.count, sizeof *d->ids.ids);
    d->rows = shrink(d->rows, &d->row_room, d->row_count, sizeof *d->rows);
    size_t arrays = 1u + (d->target != NULL) + (d->document != NULL);
    out->bytes = sizeof *d + d->ids.room * sizeof *d->ids.ids * arrays + d->row_room * sizeof *d->rows;
    write_note(out, &f);
    return ZF_OK;
}

void zf_dataset_close(struct zf_dataset *d)
{
    if (!d->slice) store_free(d->store);
    *d = (struct zf_dataset){0};
}

struct zf_row zf_dataset_row(const struct zf_dataset *d, size_t row)
{
    const struct zf_dataset_store *s = d->store;
    const struct zf_row_place *r = &s->rows[d->first + row];
    return (struct zf_row){.ids = s->ids.ids + r->begin,
                           .target = s->target ? s->target + r->begin : s->ids.ids + r->begin + 1,
                           .document = s->document ? s->document + r->begin : NULL,
                           .length = r->length,
                           .label_tokens = r->label_tokens};
}

void zf_dataset_slice(struct zf_dataset *out, const struct zf_dataset *of, size_t first, size_t count)
{
    if (first > of->rows) first = of->rows;
    if (count > of->rows - first) count = of->rows - first;
    *out = (struct zf_dataset){.rows = count, .store = of->store, .first = of->first + first, .slice = true};
    count_rows(out);
    for (size_t i = 0; i < count; i++) { /* documents of text may span rows; here a row's own are counted */
        struct zf_row r = zf_dataset_row(out, i);
        out->documents += r.document ? (size_t)r.document[r.length - 1] + 1 : 1;
    }
}

uint64_t zf_order_row(const struct zf_order *o, uint64_t position)
{
    if (!o->rows) return 0;
    uint64_t row = position % o->rows;
    return o->shuffle ? zf_permute(row, o->rows, o->seed, position / o->rows) : row;
}
