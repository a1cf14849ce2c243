/* Safetensors files with input_ids [N][T] and, if they like, labels and document -> rows as they are.
 * Two passes over the files: the first finds how much there is, so that nothing grows in the second. */
#include "core/data/dataset_impl.h"

#include "checkpoints/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { NO_LABEL = -100 };

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

static enum zf_status measure(struct zf_filling *f, struct zf_err *e)
{
    size_t total = 0;
    bool labels = false, documents = false;
    struct zf_dataset_store *s = f->store;
    for (size_t i = 0; i < f->o->file_count; i++) {
        struct file_tensors t;
        ZF_TRY(open_file(&t, f->o->files[i], f->o->context, e));
        size_t slots = t.ids->elements + t.ids->shape[0]; /* elements fit the file, so this cannot overflow */
        labels |= t.labels || t.document;
        documents |= t.document != NULL;
        zf_st_close(&t.st);
        if (slots > SIZE_MAX / 16 - total) return zf_fail_memory(e, "the data");
        total += slots;
    }
    s->ids.ids = malloc(total * sizeof *s->ids.ids);
    if (labels) s->target = malloc(total * sizeof *s->target);
    if (documents) s->document = malloc(total * sizeof *s->document);
    if (!s->ids.ids || (labels && !s->target) || (documents && !s->document)) return zf_fail_memory(e, "the data");
    s->ids.room = total;
    return ZF_OK;
}

struct row_values { /* [length] each, as they are in the file */
    int64_t *ids, *labels, *document;
    size_t length;
};

static enum zf_status read_row(struct row_values *v, const struct file_tensors *t, size_t row, struct zf_err *e)
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

static enum zf_status put_row(struct zf_filling *f, const struct row_values *v, const struct file_tensors *t, struct zf_err *e)
{
    struct zf_dataset_store *s = f->store;
    size_t begin = s->ids.count, n = v->length, label_tokens = 0;
    int32_t document = 0;
    for (size_t i = 0; i < n; i++) {
        bool ends = i + 1 == n || (t->document && v->document[i + 1] != v->document[i]);
        int64_t label = ends ? NO_LABEL : t->labels ? v->labels[i + 1] : v->ids[i + 1];
        s->ids.ids[begin + i] = (int32_t)v->ids[i];
        if (s->target) s->target[begin + i] = label == NO_LABEL ? -1 : (int32_t)label;
        if (s->document) s->document[begin + i] = document;
        label_tokens += label != NO_LABEL;
        document += ends;
    }
    s->ids.ids[begin + n] = -1;
    if (s->target) s->target[begin + n] = -1;
    if (s->document) s->document[begin + n] = -1;
    s->ids.count = begin + n + 1;
    f->documents += (size_t)document;
    return zf_filling_row(f, begin, n, label_tokens, e);
}

static enum zf_status fill_file(struct zf_filling *f, struct row_values *v, const struct file_tensors *t, const char *file,
                                struct zf_err *e)
{
    size_t rows = t->ids->shape[0], since_poll = 0;
    if (f->store->ids.room - f->store->ids.count < t->ids->elements + rows)
        return zf_fail(e, ZF_FORMAT, file, "it changed while it was read");
    for (size_t r = 0; r < rows; r++) {
        ZF_TRY(read_row(v, t, r, e));
        ZF_TRY(check_row(v, t, file, r, f->o->vocab, e));
        ZF_TRY(put_row(f, v, t, e));
        since_poll += v->length;
        if (since_poll < 1 << 17) continue; /* 1 MB of i64 */
        since_poll = 0;
        ZF_TRY(zf_filling_stopped(f, e));
    }
    return ZF_OK;
}

enum zf_status zf_fill_tokens(struct zf_filling *f, struct zf_err *e)
{
    ZF_TRY(measure(f, e));
    for (size_t i = 0; i < f->o->file_count; i++) {
        struct file_tensors t;
        ZF_TRY(open_file(&t, f->o->files[i], f->o->context, e));
        size_t n = t.ids->shape[1];
        struct row_values v = {calloc(n, sizeof *v.ids), calloc(n, sizeof *v.labels), calloc(n, sizeof *v.document), n};
        enum zf_status s = v.ids && v.labels && v.document ? fill_file(f, &v, &t, f->o->files[i], e) : zf_fail_memory(e, "the data");
        free(v.ids);
        free(v.labels);
        free(v.document);
        zf_st_close(&t.st);
        if (s != ZF_OK) return s;
    }
    return ZF_OK;
}
