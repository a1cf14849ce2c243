/* Gradients of our own in place of the model's, so that what an update must be is known. */
#ifndef ZF_TESTS_PIPELINE_FORCED_H
#define ZF_TESTS_PIPELINE_FORCED_H

#include "bits.h"
#include "core/pipeline/impl.h"

/* Writes the gradient of q, [rows][cols], of step t. */
typedef void forced_fill(const struct zf_param *q, uint64_t t, float *g);
static forced_fill *forced;

static inline void force(struct zf_pipeline *p, const struct zf_param *q, int of, int layer)
{
    size_t n = q->rows * q->cols;
    if (of != layer) return;
    float *g = calloc(n, sizeof *g);
    assert_non_null(g);
    forced(q, p->step + 1, g);
    ok(p->device->type->copy(p->compute, p->model->grad + q->offset, g, n * sizeof *g));
    ok(p->device->type->lane_sync(p->compute, &e));
    free(g);
}

static enum zf_status forced_layer(void *ctx, int layer, struct zf_err *err)
{
    struct zf_pipeline *p = ctx;
    for (size_t i = 0; p->last_micro_batch && i < p->matrices; i++) force(p, p->matrix[i].param, p->matrix[i].layer, layer);
    for (size_t i = 0; p->last_micro_batch && i < p->vectors; i++) force(p, p->vector[i].param, p->vector[i].layer, layer);
    return zf_pipeline_after_layer(p, layer, err);
}

static inline void run_forced(struct run *r, forced_fill *fill)
{
    forced = fill;
    r->model.hooks.after_layer = forced_layer;
}

/* rule: set before the pipeline opens. */
static inline void run_open_forced(struct run *r, const struct source *s, const char *options, const struct run_options *how,
                                   const struct zf_adam_rule *rule, forced_fill *fill)
{
    run_prepare(r, s, how);
    if (rule) r->rule = *rule;
    run_set_text(r, options);
    run_start(r);
    run_forced(r, fill);
}

static inline const struct zf_matrix *run_matrix(const struct run *r, const char *part)
{
    for (size_t i = 0; i < r->pipeline.matrices; i++)
        if (strstr(r->pipeline.matrix[i].param->name, part)) return &r->pipeline.matrix[i];
    fail_msg("no matrix %s", part);
    return NULL;
}

static inline float *run_masters(struct run *r, const struct zf_param *q)
{
    float *out = malloc(q->rows * q->cols * sizeof *out);
    assert_non_null(out);
    ok(zf_pipeline_masters(&r->pipeline, q, out, &e));
    return out;
}

#endif
