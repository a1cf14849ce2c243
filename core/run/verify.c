/* Sums of the comparison are double; limits are those of the README. */
#include "core/run/verify.h"

#include "checkpoints/hf.h"
#include "core/pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* By dtype. bf16's are what PyTorch's own bf16 needs on small models. */
static const struct limits {
    double logits, loss, gradient, gradients, losses, matrix, vector;
} limits[] = {
    [ZF_F32] = {1e-5, 1e-5, 1e-5, 1e-5, 1e-4, 1e-3, 5e-3},
    [ZF_BF16] = {2e-2, 1e-3, 0.2, 5e-2, 5e-3, 5e-2, 0.2},
};

/* A line of the table: relative difference against its limit. */
struct row {
    char name[160];
    double difference, limit;
};

struct table {
    struct row *rows;
    size_t count, room;
};

struct job {
    const struct zf_verify *v;
    const struct limits *limits;
    struct zf_device *device;
    struct zf_hf hf;
    struct zf_safetensors golden;
    struct zf_model model;
    struct zf_pipeline pipeline;
    struct zf_batch batch;
    struct table table;
    struct zf_pieces pieces;
    float *ours, *theirs; /* [largest tensor, or logits] */
    size_t rows, length, missing;
};

static enum zf_status add(struct table *t, double limit, double difference, struct zf_err *e, const char *prefix, const char *name)
{
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        struct row *rows = realloc(t->rows, room * sizeof *rows);
        if (!rows) return zf_fail_memory(e, "the table");
        t->rows = rows;
        t->room = room;
    }
    struct row *r = &t->rows[t->count++];
    snprintf(r->name, sizeof r->name, "%s%s", prefix, name);
    r->difference = difference;
    r->limit = limit;
    return ZF_OK;
}

static double square(const float *a, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)a[i] * a[i];
    return s;
}

static double distance(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(s);
}

/* NaN is the worst of all. */
static int worst_first(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double p = x->difference / x->limit, q = y->difference / y->limit;
    if (isnan(p) || isnan(q)) return (int)isnan(q) - (int)isnan(p);
    return (p < q) - (p > q);
}

static enum zf_status integers(const struct job *j, const char *name, int64_t **out, bool needed, struct zf_err *e)
{
    const struct zf_st_tensor *t = zf_st_find(&j->golden, name);
    *out = NULL;
    if (!t && !needed) return ZF_OK;
    if (!t) return zf_fail(e, ZF_FORMAT, j->v->golden, "it has no tensor %s; see README, \"Verify a model\"", name);
    if (t->rank != 2 || t->shape[0] != j->rows || t->shape[1] != j->length)
        return zf_fail(e, ZF_FORMAT, j->v->golden, "tensor %s has not the shape [%zu][%zu] of input_ids", name, j->rows, j->length);
    if (!(*out = malloc(t->elements * sizeof **out))) return zf_fail_memory(e, name);
    enum zf_status s = zf_st_integers(*out, t, 0, t->elements, e);
    if (s) free(*out), *out = NULL;
    return s;
}

static enum zf_status check_range(const struct job *j, const char *name, const int64_t *x, int64_t least, int64_t most, struct zf_err *e)
{
    for (size_t i = 0; x && i < j->rows * j->length; i++)
        if (x[i] < least || x[i] > most)
            return zf_fail(e, ZF_FORMAT, j->v->golden, "%s[%zu][%zu] is %lld; %lld to %lld are possible", name, i / j->length,
                           i % j->length, (long long)x[i], (long long)least, (long long)most);
    return ZF_OK;
}

/* All rows as one micro-batch. */
static enum zf_status make_batch(struct job *j, struct zf_err *e)
{
    const struct zf_st_tensor *t = zf_st_find(&j->golden, "input_ids");
    if (!t || t->rank != 2 || !t->elements)
        return zf_fail(e, ZF_FORMAT, j->v->golden, "it has no tensor input_ids [B][T]; see README, \"Verify a model\"");
    j->rows = t->shape[0];
    j->length = t->shape[1];
    if (j->length > j->model.config.context)
        return zf_fail(e, ZF_FORMAT, j->v->golden, "its rows have %zu tokens; the model's context is %zu", j->length,
                       j->model.config.context);
    int64_t *ids = NULL, *labels = NULL, *documents = NULL;
    int32_t *row = malloc(3 * j->length * sizeof *row);
    enum zf_status s = row ? ZF_OK : zf_fail_memory(e, "a row");
    if (!s) s = integers(j, "input_ids", &ids, true, e);
    if (!s) s = integers(j, "labels", &labels, true, e);
    if (!s) s = integers(j, "document", &documents, false, e);
    if (!s) s = check_range(j, "input_ids", ids, 0, (int64_t)j->model.config.vocab - 1, e);
    if (!s) s = check_range(j, "labels", labels, -100, (int64_t)j->model.config.vocab - 1, e);
    if (!s) s = check_range(j, "document", documents, 0, INT32_MAX, e);
    if (!s) s = zf_batch_init(&j->batch, j->rows * j->length, e);
    for (size_t r = 0; !s && r < j->rows; r++) {
        int32_t *target = row + j->length, *document = target + j->length;
        size_t count = 0;
        for (size_t i = 0; i < j->length; i++) {
            size_t at = r * j->length + i;
            bool last = i + 1 == j->length || (documents && documents[at + 1] != documents[at]);
            row[i] = (int32_t)ids[at];
            document[i] = documents ? (int32_t)documents[at] : 0;
            target[i] = last || labels[at + 1] < 0 ? -1 : (int32_t)labels[at + 1];
            count += target[i] >= 0;
        }
        zf_batch_add(&j->batch,
                     &(struct zf_row){.ids = row, .target = target, .document = document, .length = j->length, .label_tokens = count});
    }
    if (!s && !j->batch.label_tokens) s = zf_fail(e, ZF_FORMAT, j->v->golden, "no label is a target");
    free(ids);
    free(labels);
    free(documents);
    free(row);
    return s;
}

/* PREFIX.NAME, whichever accepted spelling of a parameter's name the file has (wte.weight, transformer.wte.weight). */
static const struct zf_st_tensor *golden_find(const struct job *j, const char *prefix, const char *name)
{
    char text[512];
    size_t n = strlen(prefix);
    snprintf(text, sizeof text, "%s%s", prefix, name);
    const struct zf_st_tensor *t = zf_st_find(&j->golden, text);
    for (size_t i = 0; !t && n && name[0] && i < j->golden.count; i++) {
        const char *found = j->golden.list[i].name;
        const char *canonical = strncmp(found, prefix, n) ? NULL : zf_family_canonical(&j->model.config, found + n, text, sizeof text);
        if (canonical && !strcmp(canonical, name)) t = &j->golden.list[i];
    }
    return t;
}

static enum zf_status golden_floats(struct job *j, const char *prefix, const char *name, size_t n, bool *found, struct zf_err *e)
{
    const struct zf_st_tensor *t = golden_find(j, prefix, name);
    *found = t != NULL;
    if (!t) return ZF_OK;
    if (t->elements != n)
        return zf_fail(e, ZF_FORMAT, j->v->golden, "tensor %s has %zu elements; %zu belong there", t->name, t->elements, n);
    return zf_st_floats(j->theirs, t, 0, n, e);
}

struct collector {
    float *to;
};

static enum zf_status collect(void *ctx, const float *x, size_t n, struct zf_err *e)
{
    struct collector *c = ctx;
    (void)e;
    memcpy(c->to, x, n * sizeof *x);
    c->to += n;
    return ZF_OK;
}

/* A whole parameter of a flat block into j->ours. */
static enum zf_status fetch(struct job *j, const float *block, const struct zf_param *p, struct zf_err *e)
{
    return zf_model_each_piece(&j->model, block, p, &j->pieces, collect, &(struct collector){j->ours}, e);
}

static enum zf_status compare_logits(struct job *j, struct zf_err *e)
{
    size_t n = j->batch.tokens * j->model.config.vocab;
    bool found;
    ZF_TRY(golden_floats(j, "logits", "", n, &found, e));
    if (!found) return zf_fail(e, ZF_FORMAT, j->v->golden, "it has no tensor logits");
    ZF_TRY(zf_model_logits(&j->model, &j->batch, j->ours, e));
    return add(&j->table, j->limits->logits, distance(j->ours, j->theirs, n) / sqrt(square(j->theirs, n)), e, "logits", "");
}

static enum zf_status forward_backward(struct job *j, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_begin(&j->pipeline, 1e-3, false, e));
    zf_pipeline_last(&j->pipeline);
    return zf_model_step(&j->model, &j->batch, true, 1.0f / (float)j->batch.label_tokens, j->pipeline.loss, e);
}

/* The limit of a gradient is relative to its own norm, or to its share of the whole where it is small: gradients that are zero in theory
 * have no relative error. */
static enum zf_status compare_gradients(struct job *j, struct zf_err *e)
{
    const struct zf_params *p = &j->model.params;
    double all = 0, off = 0;
    for (size_t i = 0; i < p->count; i++) {
        bool found;
        size_t n = p->list[i].rows * p->list[i].cols;
        ZF_TRY(golden_floats(j, "grad.", p->list[i].name, n, &found, e));
        if (found) all += square(j->theirs, n);
    }
    all = sqrt(all);
    for (size_t i = 0; i < p->count; i++) {
        const struct zf_param *q = &p->list[i];
        size_t n = q->rows * q->cols;
        bool found;
        ZF_TRY(golden_floats(j, "grad.", q->name, n, &found, e));
        if (!found) {
            j->missing++;
            continue;
        }
        ZF_TRY(fetch(j, j->model.grad, q, e));
        double own = sqrt(square(j->theirs, n)), floor = 0.1 * all * sqrt((double)n / (double)p->parameters),
               d = distance(j->ours, j->theirs, n);
        off += d * d;
        ZF_TRY(add(&j->table, j->limits->gradient, d / (own > floor ? own : floor), e, "grad.", q->name));
    }
    if (j->missing < p->count) ZF_TRY(add(&j->table, j->limits->gradients, sqrt(off) / all, e, "all gradients", ""));
    for (size_t i = 0; i < j->golden.count; i++) {
        char text[512];
        const char *name = j->golden.list[i].name;
        const char *own = strncmp(name, "grad.", 5) ? NULL : zf_family_canonical(&j->model.config, name + 5, text, sizeof text);
        if (own && !zf_param_find(p, own) && !(j->model.config.tied && !strcmp(own, "lm_head.weight")))
            return zf_fail(e, ZF_FORMAT, j->v->golden, "it has a gradient of %s, which this model does not have", name + 5);
    }
    return ZF_OK;
}

static enum zf_status compare_training(struct job *j, struct zf_err *e)
{
    const struct zf_st_tensor *t = zf_st_find(&j->golden, "losses");
    if (!t || t->rank != 1 || !t->elements) return zf_fail(e, ZF_FORMAT, j->v->golden, "it has no tensor losses; leave --losses out");
    float *losses = malloc(t->elements * sizeof *losses);
    if (!losses) return zf_fail_memory(e, "losses");
    enum zf_status s = zf_st_floats(losses, t, 0, t->elements, e);
    double worst = 0;
    for (size_t i = 0; !s && i < t->elements; i++) {
        struct zf_step_norm norm;
        s = forward_backward(j, e);
        if (!s) s = zf_pipeline_finish(&j->pipeline, &norm, e);
        if (s) break;
        double loss = norm.loss / (double)j->batch.label_tokens, off = fabs(loss - losses[i]) / fabs(losses[i]);
        if (!(off <= worst)) worst = off;
    }
    free(losses);
    if (s) return s;
    ZF_TRY(add(&j->table, j->limits->losses, worst, e, "losses", ""));
    for (size_t i = 0; i < j->model.params.count; i++) {
        const struct zf_param *q = &j->model.params.list[i];
        size_t n = q->rows * q->cols;
        bool found;
        ZF_TRY(golden_floats(j, "after.", q->name, n, &found, e));
        if (!found) continue;
        ZF_TRY(fetch(j, j->model.master, q, e));
        double own = sqrt(square(j->theirs, n));
        ZF_TRY(add(&j->table, q->matrix ? j->limits->matrix : j->limits->vector, distance(j->ours, j->theirs, n) / (own > 0 ? own : 1), e,
                   "after.", q->name));
    }
    return ZF_OK;
}

static enum zf_status compare(struct job *j, struct zf_err *e)
{
    struct zf_model_config config;
    bool found;
    double loss;
    ZF_TRY(zf_hf_open(&j->hf, j->v->model, e));
    ZF_TRY(zf_model_config_read(&config, j->hf.config, j->v->model, e));
    ZF_TRY(zf_st_open(&j->golden, j->v->golden, e));
    ZF_TRY(zf_device_open(&j->device, j->v->device, &(struct zf_device_options){.threads = j->v->threads}, e));
    ZF_TRY(zf_model_open(&j->model, &config, &j->hf, 0, j->v->dtype, true, j->device, e));
    ZF_TRY(make_batch(j, e));
    ZF_TRY(zf_model_reserve(&j->model, j->batch.tokens, j->length, ZF_KEEP_ALL, e));
    const struct zf_policy gpu_only = {.ratio = 1, .interval = 1, .cpu_half = true, .bus = j->v->dtype};
    const struct zf_adam_rule rule = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    ZF_TRY(zf_pipeline_open(&j->pipeline, &j->model, NULL, NULL, &gpu_only, &rule, e));

    size_t largest = j->batch.tokens * config.vocab;
    for (size_t i = 0; i < j->model.params.count; i++) {
        size_t n = j->model.params.list[i].rows * j->model.params.list[i].cols;
        if (n > largest) largest = n;
    }
    ZF_TRY(zf_pieces_open(&j->pieces, &j->model, e));
    j->ours = malloc(largest * sizeof *j->ours);
    j->theirs = malloc(largest * sizeof *j->theirs);
    if (!j->ours || !j->theirs) return zf_fail_memory(e, "the comparison");

    ZF_TRY(compare_logits(j, e));
    ZF_TRY(forward_backward(j, e));
    ZF_TRY(compare_gradients(j, e));
    ZF_TRY(zf_pipeline_loss(&j->pipeline, &loss, e));
    ZF_TRY(golden_floats(j, "loss", "", 1, &found, e));
    if (!found) return zf_fail(e, ZF_FORMAT, j->v->golden, "it has no tensor loss [1]");
    loss /= (double)j->batch.label_tokens;
    ZF_TRY(add(&j->table, j->limits->loss, fabs(loss - j->theirs[0]) / fabs((double)j->theirs[0]), e, "loss", ""));
    return j->v->losses ? compare_training(j, e) : ZF_OK;
}

static enum zf_status report(struct job *j, FILE *out, struct zf_err *e)
{
    size_t over = 0;
    qsort(j->table.rows, j->table.count, sizeof *j->table.rows, worst_first);
    fprintf(out, "%-64s %12s %12s\n", "what", "difference", "limit");
    for (size_t i = 0; i < j->table.count; i++) {
        const struct row *r = &j->table.rows[i];
        double limit = r->limit * j->v->tolerance;
        bool bad = !(r->difference <= limit);
        over += bad;
        fprintf(out, "%-64s %12.3e %12.3e%s\n", r->name, r->difference, limit, bad ? "  DIFFERENT" : "");
    }
    if (j->missing) fprintf(out, "%zu parameters have no gradient in the file and were not compared\n", j->missing);
    fprintf(out, "%zu compared, %zu different\n", j->table.count, over);
    return over ? zf_fail(e, ZF_DIFFERENT, j->v->model, "%zu of %zu rows are over their limit", over, j->table.count) : ZF_OK;
}

enum zf_status zf_verify_run(const struct zf_verify *v, FILE *out, struct zf_err *e)
{
    struct job j = {.v = v, .limits = &limits[v->dtype]};
    enum zf_status s = compare(&j, e);
    if (!s) s = report(&j, out, e);
    zf_pipeline_close(&j.pipeline);
    if (j.pieces.floats) zf_pieces_close(&j.pieces, &j.model);
    zf_model_close(&j.model);
    zf_batch_free(&j.batch);
    if (j.device) j.device->type->close(j.device);
    zf_st_close(&j.golden);
    zf_hf_close(&j.hf);
    free(j.table.rows);
    free(j.ours);
    free(j.theirs);
    return s;
}
