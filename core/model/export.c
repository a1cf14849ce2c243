/* A model's tensors back into the checkpoint's layout. Streams: one tensor of host memory beside what is written. */
#include "core/model/model.h"

#include "checkpoints/hf.h"

#include <stdlib.h>

struct exporter {
    const struct zf_model *m;
    const float *from; /* flat block in device memory */
    float *host, *turned;
};

enum zf_status zf_model_fetch(const struct zf_model *m, const float *block, const struct zf_param *p, float *host, float *turned, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    float *first = p->transposed ? turned : host;
    enum zf_status s = t->copy(m->lane, first, block + p->offset, p->rows * p->cols * sizeof(float));
    if (s) return zf_fail(e, s, p->name, "the device refused a copy");
    ZF_TRY(t->lane_sync(m->lane, e));
    if (p->transposed)
        for (size_t c = 0; c < p->cols; c++)
            for (size_t r = 0; r < p->rows; r++) host[c * p->rows + r] = turned[r * p->cols + c];
    return ZF_OK;
}

static enum zf_status put(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    struct exporter *x = ctx;
    const struct zf_param *p = &x->m->params.list[index];
    ZF_TRY(zf_model_fetch(x->m, x->from, p, x->host, x->turned, e));
    return zf_st_put(sink, x->host, p->rows * p->cols * sizeof(float), e);
}

enum zf_status zf_model_export(const struct zf_model *m, const char *out, const json_t *config_json, const char *tokenizer_from, struct zf_err *e)
{
    const struct zf_params *p = &m->params;
    size_t largest = 0;
    struct zf_st_entry *entries = calloc(p->count, sizeof *entries);
    for (size_t i = 0; entries && i < p->count; i++) {
        const struct zf_param *q = &p->list[i];
        entries[i] = (struct zf_st_entry){.name = q->name, .type = ZF_ST_F32};
        entries[i].rank = zf_param_file_shape(q, entries[i].shape);
        if (q->rows * q->cols > largest) largest = q->rows * q->cols;
    }
    struct exporter x = {.m = m, .from = m->weights, .host = malloc(largest * sizeof(float)), .turned = malloc(largest * sizeof(float))};
    enum zf_status s;
    if (!entries || !x.host || !x.turned) s = zf_fail_memory(e, "the export");
    else
        s = zf_hf_write(&(struct zf_hf_write){.out = out, .config = config_json, .type = ZF_ST_F32, .entries = entries, .count = p->count, .source = put,
                                              .ctx = &x, .tokenizer_from = tokenizer_from}, e);
    free(entries);
    free(x.host);
    free(x.turned);
    return s;
}
