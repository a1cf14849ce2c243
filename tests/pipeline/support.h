/* What the tests of the pipeline share: a golden model under a policy, stepped through the golden batches. */
#ifndef ZF_TESTS_PIPELINE_SUPPORT_H
#define ZF_TESTS_PIPELINE_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "checkpoints/hf.h"
#include "core/pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zf_err e;

static inline void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

enum { GOLDEN_STEPS = 24, GOLDEN_ROWS = 2 };

struct golden {
    struct zf_hf hf;
    struct zf_safetensors batches, results;
    json_t *cases;
    size_t length;
};

/* false: the shared inputs are not there. */
static inline bool golden_open(struct golden *g, const char *name)
{
    char path[1024];
    const char *shared = getenv("ZF_SHARED");
    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "%s/golden/trajectories/%s/trajectories.json", shared ? shared : "", name);
    FILE *f = shared ? fopen(path, "r") : NULL;
    if (!f) return false;
    json_error_t error;
    g->cases = json_loadf(f, 0, &error);
    fclose(f);
    assert_non_null(g->cases);
    snprintf(path, sizeof path, "%s/golden/families/%s", shared, name);
    ok(zf_hf_open(&g->hf, strdup(path), &e));
    snprintf(path, sizeof path, "%s/golden/trajectories/%s/batches.safetensors", shared, name);
    ok(zf_st_open(&g->batches, strdup(path), &e));
    snprintf(path, sizeof path, "%s/golden/trajectories/%s/trajectories.safetensors", shared, name);
    ok(zf_st_open(&g->results, strdup(path), &e));
    g->length = zf_st_find(&g->batches, "input_ids")->shape[1];
    return true;
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->cases);
    zf_hf_close(&g->hf);
    zf_st_close(&g->batches);
    zf_st_close(&g->results);
}

struct run_options {
    enum zf_dtype dtype;
    int threads;
    bool synchronous;
    bool two_micro_batches;
};

/* A trainer without files: what a step needs. */
struct run {
    const struct golden *g;
    struct zf_options options;
    struct zf_device *device;
    struct zf_model_config config;
    struct zf_model model;
    struct zf_pipeline pipeline;
    struct zf_adam_rule rule;
    struct zf_batch batch;
    struct run_options how;
    double losses[GOLDEN_STEPS + 1], norms[GOLDEN_STEPS + 1];
};

static inline void run_set(struct run *r, const char *name, const char *value)
{
    ok(zf_options_set(&r->options, name, value, &(struct zf_origin){.kind = ZF_ORIGIN_COMMAND}, &e));
}

static inline void run_set_all(struct run *r, const json_t *options)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, name, value)
    {
        char text[64];
        if (json_is_string(value))
            snprintf(text, sizeof text, "%s", json_string_value(value));
        else if (json_is_integer(value))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else
            snprintf(text, sizeof text, "%.17g", json_real_value(value));
        run_set(r, name, text);
    }
}

static inline void run_open(struct run *r, const struct golden *g, const json_t *options, const struct run_options *how)
{
    memset(r, 0, sizeof *r);
    r->g = g;
    r->how = *how;
    ok(zf_options_init(&r->options, &e));
    run_set_all(r, options);
    ok(zf_device_open(&r->device, "host",
                      &(struct zf_device_options){.threads = how->threads, .synchronous = how->synchronous}, &e));
    ok(zf_model_config_read(&r->config, g->hf.config, "config.json", &e));
    ok(zf_model_open(&r->model, &r->config, &g->hf, 1, how->dtype, true, r->device, &e));
    ok(zf_model_reserve(&r->model, GOLDEN_ROWS * g->length, g->length, true, &e));
    ok(zf_batch_init(&r->batch, GOLDEN_ROWS * g->length, &e));
    r->rule = (struct zf_adam_rule){.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1, .seed = 1};
    struct zf_policy policy = zf_policy_of(&r->options, how->dtype, 4);
    ok(zf_pipeline_open(&r->pipeline, &r->model, NULL, &policy, &r->rule, &e));
}

static inline void run_close(struct run *r)
{
    zf_pipeline_close(&r->pipeline);
    zf_batch_free(&r->batch);
    zf_model_close(&r->model);
    r->device->type->close(r->device);
    zf_options_free(&r->options);
}

static inline void run_change(struct run *r, const json_t *options)
{
    int change;
    run_set_all(r, options);
    struct zf_policy policy = zf_policy_of(&r->options, r->how.dtype, 4);
    ok(zf_pipeline_change(&r->pipeline, &policy, &r->rule, &change, &e));
}

/* Rows first .. first + count of the golden batches, every token but a row's first a target. */
static inline void fill_batch(struct run *r, size_t first, size_t count)
{
    const struct zf_st_tensor *t = zf_st_find(&r->g->batches, "input_ids");
    size_t n = r->g->length;
    int64_t *ids = malloc(count * n * sizeof *ids);
    assert_non_null(ids);
    ok(zf_st_integers(ids, t, first * n, count * n, &e));
    struct zf_batch *b = &r->batch;
    zf_batch_clear(b);
    for (size_t row = 0; row < count; row++) {
        b->segments[row] = (struct zf_segment){row * n, n, row * n, n};
        for (size_t i = 0; i < n; i++) {
            size_t at = row * n + i;
            b->ids[at] = (int32_t)ids[at];
            b->position[at] = (int32_t)i;
            b->target[at] = i + 1 < n ? (int32_t)ids[at + 1] : -1;
        }
    }
    b->tokens = count * n;
    b->label_tokens = count * (n - 1);
    b->segment_count = count;
    free(ids);
}

/* The learning rate of the golden runs. */
static inline double golden_rate(uint64_t t)
{
    return 1e-3 * (0.5 + 0.5 * cos(3.14159265358979323846 * (double)(t - 1) / 40));
}

static inline struct zf_step_norm run_step_at(struct run *r, uint64_t t, double rate)
{
    struct zf_step_norm norm;
    double labels = (double)(GOLDEN_ROWS * (r->g->length - 1));
    size_t parts = r->how.two_micro_batches ? 2 : 1;
    ok(zf_pipeline_begin(&r->pipeline, rate, false, &e));
    for (size_t i = 0; i < parts; i++) {
        fill_batch(r, (t - 1) * GOLDEN_ROWS + i * (GOLDEN_ROWS / parts), GOLDEN_ROWS / parts);
        if (i == parts - 1) zf_pipeline_last(&r->pipeline);
        ok(zf_model_step(&r->model, &r->batch, true, (float)(1 / labels), r->pipeline.loss, &e));
    }
    ok(zf_pipeline_finish(&r->pipeline, &norm, &e));
    if (t <= GOLDEN_STEPS) {
        r->losses[t] = norm.loss / labels;
        r->norms[t] = norm.norm;
    }
    return norm;
}

static inline struct zf_step_norm run_step(struct run *r, uint64_t t)
{
    return run_step_at(r, t, golden_rate(t));
}

/* Visible weights of a parameter, as they are stored, in fp32. */
static inline float *run_weights(const struct run *r, const struct zf_param *p)
{
    float *out = malloc(p->rows * p->cols * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < p->rows * p->cols; i++) {
        if (r->model.dtype == ZF_F32) {
            out[i] = ((const float *)r->model.weights)[p->offset + i];
        } else {
            uint32_t u = (uint32_t)((const uint16_t *)r->model.weights)[p->offset + i] << 16;
            memcpy(&out[i], &u, sizeof u);
        }
    }
    return out;
}

#endif
