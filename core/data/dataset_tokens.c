/* Safetensors files with input_ids [N][T] and, if they like, labels and document -> rows as they are. */
#include "core/data/build.h"

#include "checkpoints/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

enum { NO_LABEL = -100, FORGET = 32 << 20 };

struct file_tensors {
    struct zf_safetensors st;
    const struct zf_st_tensor *ids, *labels, *document;
};
static enum zf_status check_same_shape(const struct zf_st_tensor *t, const struct zf_st_tensor *ids, const char *file, struct zf_err *e)
{
    if (!t || (t->rank == 2 && t->shape[0] == ids->shape[0] && t->shape[1] == ids->shape[1])) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, file, "%s has another shape than input_ids [%zu][%zu]; expected the same", t->name, ids->shape[0],
                   ids->shape[1]);
}

static enum zf_status check_tensors(struct file_tensors *t, const char *file, size_t context, struct zf_err *e)
{
    t->ids = zf_st_find(&t->st, "input_ids");
    t->labels = zf_st_find(&t->st, "labels");
    t->document = zf_st_find(&t->st, "document");
    if (!t->ids)
        return zf_fail(e, ZF_FORMAT, file,
                       "it has no tensor input_ids; format tokens needs input_ids [rows][tokens] (and takes labels, document)");
    if (t->ids->rank != 2 || !t->ids->shape[0] || !t->ids->shape[1]) {
        return zf_fail(e, ZF_FORMAT, file, "input_ids has %zu dimensions and %zu elements; expected [rows][tokens], neither 0",
                       t->ids->rank, t->ids->elements);
    }
    if (t->ids->shape[1] > context || t->ids->shape[1] > INT32_MAX) {
        return zf_fail(e, ZF_FORMAT, file, "rows of %zu tokens; the model's context is %zu: make shorter rows", t->ids->shape[1], context);
    }
    ZF_TRY(check_same_shape(t->labels, t->ids, file, e));
    return check_same_shape(t->document, t->ids, file, e);
}

static enum zf_status open_file(struct file_tensors *t, const char *file, size_t context, struct zf_err *e)
{
    *t = (struct file_tensors){0};
    enum zf_status s = zf_st_open(&t->st, file, e);
    if (s == ZF_IO) return e->code = ZF_FORMAT; /* data that cannot be read, whatever the reason */
    if (s != ZF_OK) return s;
    s = check_tensors(t, file, context, e);
    if (s != ZF_OK) zf_st_close(&t->st);
    return s;
}

struct row_values { /* [length] each, as they are in the file */
    int64_t *ids, *labels, *document;
    uint32_t *tokens; /* the same as rows keep it */
    int32_t *targets;
    struct zf_source *sources;
    size_t length;
};

static enum zf_status read_row(const struct row_values *v, const struct file_tensors *t, size_t row, struct zf_err *e)
{
    size_t first = row * v->length;
    ZF_TRY(zf_st_integers(v->ids, t->ids, first, v->length, e));
    if (t->labels) ZF_TRY(zf_st_integers(v->labels, t->labels, first, v->length, e));
    if (t->document) ZF_TRY(zf_st_integers(v->document, t->document, first, v->length, e));
    return ZF_OK;
}

static enum zf_status check_row(const struct row_values *v, const struct file_tensors *t, const char *file, size_t row, size_t vocab,
                                struct zf_err *e)
{
    for (size_t i = 0; i < v->length; i++) {
        long long id = v->ids[i], label = t->labels ? v->labels[i] : NO_LABEL;
        if (id < 0 || (uint64_t)id >= vocab) {
            return zf_fail(e, ZF_FORMAT, file,
                           "input_ids[%zu][%zu] is %lld; the model has ids 0 to %zu: were they made with another tokenizer?", row, i, id,
                           vocab - 1);
        }
        if (label != NO_LABEL && (label < 0 || (uint64_t)label >= vocab)) {
            return zf_fail(e, ZF_FORMAT, file, "labels[%zu][%zu] is %lld; expected -100 (no target) or an id in 0 to %zu", row, i, label,
                           vocab - 1);
        }
        if (t->document && i && v->document[i] < v->document[i - 1]) {
            return zf_fail(e, ZF_FORMAT, file, "document[%zu][%zu] is %lld after %lld; expected numbers that do not fall within a row", row,
                           i, (long long)v->document[i], (long long)v->document[i - 1]);
        }
    }
    return ZF_OK;
}

/* Where every label is its token or none, the tokens say it themselves; else the row has targets of its own. */
static enum zf_status put_row(struct zf_rows_writer *w, const struct row_values *v, const struct file_tensors *t, size_t file, size_t row,
                              struct zf_data_stats *stats, struct zf_err *e)
{
    size_t n = v->length, documents = 0;
    bool own = false, labelled = false;
    memset(v->sources, 0, n * sizeof *v->sources);
    for (size_t i = 0; i < n; i++) {
        bool first = !i || (t->document && v->document[i] != v->document[i - 1]);
        bool ends = i + 1 == n || (t->document && v->document[i + 1] != v->document[i]);
        bool trained = !first && (!t->labels || v->labels[i] != NO_LABEL);
        int64_t target = ends ? NO_LABEL : t->labels ? v->labels[i + 1] : v->ids[i + 1];
        v->tokens[i] = (uint32_t)v->ids[i] | (first ? ZF_TOKEN_FIRST : 0) | (trained ? ZF_TOKEN_TRAINED : 0);
        v->targets[i] = target == NO_LABEL ? -1 : (int32_t)target;
        own |= trained && t->labels && v->labels[i] != v->ids[i];
        labelled |= target != NO_LABEL;
        if (first) v->sources[documents++] = (struct zf_source){.line = row, .file = (uint32_t)file};
        v->sources[documents - 1].tokens++;
    }
    if (!labelled) zf_stats_first(&stats->unlabelled, &stats->first_unlabelled, v->sources);
    stats->records++;
    for (size_t i = 0; i < documents; i++) zf_stats_document(stats, v->sources[i].tokens);
    ZF_TRY(zf_rows_document(w, XXH3_64bits(v->tokens, n * sizeof *v->tokens), e));
    return zf_rows_add(w, v->tokens, own ? v->targets : NULL, n, v->sources, documents, e);
}

static enum zf_status put_file(struct zf_rows_writer *w, const struct zf_dataset_options *o, const struct row_values *v,
                               const struct file_tensors *t, size_t file, struct zf_data_stats *stats, const volatile int *stop,
                               struct zf_err *e)
{
    size_t rows = t->ids->shape[0], since = 0;
    for (size_t r = 0; r < rows; r++) {
        ZF_TRY(read_row(v, t, r, e));
        ZF_TRY(check_row(v, t, o->files[file], r, o->vocab, e));
        ZF_TRY(put_row(w, v, t, file, r, stats, e));
        since += v->length * 3 * sizeof *v->ids;
        if (stop && *stop) return zf_fail(e, ZF_STOPPED, NULL, "stopped while reading the data");
        if (since < FORGET) continue;
        since = 0;
        madvise((void *)(uintptr_t)t->st.map.data, t->st.map.size, MADV_DONTNEED); /* memory does not grow with the file */
    }
    return ZF_OK;
}

enum zf_status zf_build_tokens(const struct zf_dataset_options *o, struct zf_rows_writer *w, struct zf_data_stats *stats,
                               const volatile int *stop, struct zf_err *e)
{
    for (size_t i = 0; i < o->file_count; i++) {
        struct file_tensors t;
        ZF_TRY(open_file(&t, o->files[i], o->context, e));
        size_t n = t.ids->shape[1];
        struct row_values v = {.ids = calloc(n, sizeof *v.ids),
                               .labels = calloc(n, sizeof *v.labels),
                               .document = calloc(n, sizeof *v.document),
                               .tokens = calloc(n, sizeof *v.tokens),
                               .targets = calloc(n, sizeof *v.targets),
                               .sources = calloc(n, sizeof *v.sources),
                               .length = n};
        bool memory = v.ids && v.labels && v.document && v.tokens && v.targets && v.sources;
        enum zf_status s = memory ? put_file(w, o, &v, &t, i, stats, stop, e) : zf_fail_memory(e, "the data");
        free(v.ids);
        free(v.labels);
        free(v.document);
        free(v.tokens);
        free(v.targets);
        free(v.sources);
        zf_st_close(&t.st);
        if (s) return s;
    }
    return ZF_OK;
}
