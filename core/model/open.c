/* Opening a model: which tensor of a folder is which parameter, memory, weights (load.c). */
#include "core/model/workspace.h"

#include "checkpoints/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void shape_text(char *to, size_t size, const size_t *shape, size_t rank)
{
    size_t at = (size_t)snprintf(to, size, "[");
    for (size_t i = 0; i < rank && at < size; i++) at += (size_t)snprintf(to + at, size - at, "%s%zu", i ? ", " : "", shape[i]);
    if (at < size) snprintf(to + at, size - at, "]");
}

size_t zf_param_file_shape(const struct zf_param *p, size_t shape[2])
{
    if (!p->matrix) {
        shape[0] = p->cols;
        return 1;
    }
    shape[0] = p->transposed ? p->cols : p->rows;
    shape[1] = p->transposed ? p->rows : p->cols;
    return 2;
}

static enum zf_status check_shape(const struct zf_param *p, const struct zf_st_tensor *t, const char *file, struct zf_err *e)
{
    size_t want[2], rank = zf_param_file_shape(p, want);
    if (t->rank == rank && !memcmp(t->shape, want, rank * sizeof *want)) return ZF_OK;
    char found[128], expected[128];
    shape_text(found, sizeof found, t->shape, t->rank);
    shape_text(expected, sizeof expected, want, rank);
    return zf_fail(e, ZF_FORMAT, file, "tensor %s has shape %s; config.json makes it %s; weights and config.json do not belong together",
                   p->name, found, expected);
}

/* Bytes of two tensors alike: the embedding and a head that should be tied to it. */
static bool same_values(const struct zf_hf *hf, const struct zf_st_tensor *a, const struct zf_st_tensor *b)
{
    bool same = a->type == b->type && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
    zf_hf_pages(hf, a->data, a->bytes, true);
    zf_hf_pages(hf, b->data, b->bytes, true);
    return same;
}

enum zf_status zf_sources_find(struct zf_weight_source *found, const struct zf_model_config *c, const struct zf_params *p,
                               const struct zf_hf *hf, char *note, size_t size, struct zf_err *e)
{
    const struct zf_st_tensor *head = NULL;
    size_t unknown = 0;
    note[0] = 0;
    for (size_t i = 0; i < zf_hf_tensor_count(hf); i++) {
        const char *file;
        char buffer[512];
        const struct zf_st_tensor *t = zf_hf_tensor(hf, i, &file);
        const char *name = zf_family_canonical(c, t->name, buffer, sizeof buffer);
        if (!name) continue;
        const struct zf_param *q = zf_param_find(p, name);
        if (q && found[q - p->list].tensor)
            return zf_fail(e, ZF_FORMAT, file, "tensor %s is there twice, as %s and as %s", q->name, found[q - p->list].tensor->name,
                           t->name);
        if (q)
            found[q - p->list] = (struct zf_weight_source){t, file};
        else if (c->tied && !strcmp(name, "lm_head.weight"))
            head = t;
        else if (!unknown++) {
            char escaped[256];
            zf_st_escape(escaped, sizeof escaped, t->name);
            snprintf(note, size, "%s is no tensor of this model and was ignored", escaped);
        }
    }
    if (unknown > 1) snprintf(note + strlen(note), size - strlen(note), ", like %zu others", unknown - 1);
    for (size_t i = 0; i < p->count; i++) {
        if (!found[i].tensor)
            return zf_fail(e, ZF_FORMAT, hf->path,
                           "tensor %s is in none of its files; config.json asks for it; the download may be incomplete", p->list[i].name);
        ZF_TRY(check_shape(&p->list[i], found[i].tensor, found[i].file, e));
    }
    const struct zf_param *embed = zf_param_at(p, ZF_SLOT_EMBED, -1);
    if (head && !same_values(hf, head, found[embed - p->list].tensor))
        return zf_fail(e, ZF_FORMAT, hf->path,
                       "config.json ties the head to the embedding, but lm_head.weight and %s hold different values; "
                       "set tie_word_embeddings to false, or remove one of them",
                       embed->name);
    return ZF_OK;
}

static enum zf_status alloc_weights(struct zf_model *m, bool training, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    void *master;
    ZF_TRY(t->alloc(m->device, ZF_MEM_DEVICE, ZF_TAG_WEIGHTS, m->params.elements * zf_dtype_size(m->dtype), &m->weights, e));
    if (m->dtype == ZF_F32) {
        m->master = m->weights;
    } else if (training) {
        ZF_TRY(t->alloc(m->device, ZF_MEM_DEVICE, ZF_TAG_WEIGHTS, m->params.elements * sizeof *m->master, &master, e));
        m->master = master;
    }
    return ZF_OK;
}

enum zf_status zf_model_open_blank(struct zf_model *out, const struct zf_model_config *c, enum zf_dtype dtype, bool training,
                                   struct zf_device *d, struct zf_err *e)
{
    *out = (struct zf_model){.config = *c, .device = d, .dtype = dtype};
    enum zf_status s = zf_params_build(&out->params, &out->config, &out->arena, e);
    if (!s) s = d->type->lane_new(d, "compute", &out->lane, e);
    if (!s) s = alloc_weights(out, training, e);
    if (s) zf_model_close(out);
    return s;
}

enum zf_status zf_model_open(struct zf_model *out, const struct zf_model_config *c, const struct zf_hf *hf, uint64_t seed,
                             enum zf_dtype dtype, bool training, struct zf_device *d, struct zf_err *e)
{
    *out = (struct zf_model){.config = *c, .device = d, .dtype = dtype};
    struct zf_weight_source *sources = NULL;
    enum zf_status s;
    ZF_GOTO(fail, s, zf_params_build(&out->params, &out->config, &out->arena, e));
    if (hf) {
        if (!(sources = calloc(out->params.count, sizeof *sources))) {
            s = zf_fail_memory(e, "the list of tensors");
            goto fail;
        }
        char note[512];
        ZF_GOTO(fail, s, zf_sources_find(sources, c, &out->params, hf, note, sizeof note, e));
    }
    ZF_GOTO(fail, s, d->type->lane_new(d, "compute", &out->lane, e));
    ZF_GOTO(fail, s, alloc_weights(out, training, e));
    ZF_GOTO(fail, s, zf_model_load(out, hf, sources, seed, e));
    free(sources);
    return ZF_OK;
fail:
    free(sources);
    zf_model_close(out);
    return s;
}

void zf_model_close(struct zf_model *m)
{
    if (m->lane) m->device->type->lane_free(m->lane);
    zf_workspace_free(m->work, m->device);
    if (m->device) {
        if (m->master != m->weights) m->device->type->free(m->device, m->master);
        m->device->type->free(m->device, m->weights);
        m->device->type->free(m->device, m->grad);
    }
    zf_arena_free(&m->arena);
    *m = (struct zf_model){0};
}

enum zf_status zf_model_reserve(struct zf_model *m, size_t tokens, size_t positions, enum zf_keep keep, struct zf_err *e)
{
    void *grad;
    if (keep != ZF_KEEP_NOTHING) {
        ZF_TRY(m->device->type->alloc(m->device, ZF_MEM_DEVICE, ZF_TAG_GRADIENTS, m->params.elements * sizeof(float), &grad, e));
        m->grad = grad;
    }
    return zf_workspace_new(&m->work, &m->config, m->dtype, m->device, m->lane, tokens, positions, keep, e);
}
