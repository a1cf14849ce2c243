/* What the tests of the pipeline share: a model, golden or made here, under a policy, stepped through batches. */
#ifndef ZF_TESTS_PIPELINE_SUPPORT_H
#define ZF_TESTS_PIPELINE_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "checkpoints/hf.h"
#include "core/base/rng.h"
#include "core/pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ZF_TEST_CUDA
enum { ON_CUDA = 1 };
#else
enum { ON_CUDA = 0 };
#endif

/* The emulated GPU is slow: of such cases one of `every`, but with ZF_EVERYTHING. */
static inline bool left_out(size_t i, size_t every)
{
    return ON_CUDA && i % every && !getenv("ZF_EVERYTHING");
}

static __thread struct zf_err e; /* ranks are threads */

static inline void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

enum { GOLDEN_STEPS = 24, GOLDEN_ROWS = 2 };

/* What is trained on what: rows of `length` tokens. */
struct source {
    const struct zf_hf *hf; /* NULL: weights from the seed */
    struct zf_model_config config;
    int64_t *ids; /* [rows][length] */
    size_t rows, length;
};

struct golden {
    struct zf_hf hf;
    struct zf_safetensors results;
    json_t *cases;
    struct source source;
    char path[1024]; /* of the folder: hf points to it */
};

static inline void source_free(struct source *s)
{
    free(s->ids);
}

/* A model of our own, of two layers, and random rows: config with ' for ". */
static inline void source_make(struct source *s, const char *config, size_t rows, size_t length)
{
    char text[2048];
    size_t n = strlen(config);
    json_t *json;
    assert_true(n < sizeof text);
    for (size_t i = 0; i <= n; i++) text[i] = config[i] == '\'' ? '"' : config[i];
    ok(zf_json_parse(&json, text, n, "test", &e));
    *s = (struct source){.rows = rows, .length = length, .ids = malloc(rows * length * sizeof *s->ids)};
    assert_non_null(s->ids);
    ok(zf_model_config_read(&s->config, json, "config.json", &e));
    json_decref(json);
    for (size_t i = 0; i < rows * length; i++) s->ids[i] = (int64_t)(zf_uniform(3, ZF_STREAM_TEST, 0, i) * (double)s->config.vocab);
}

static const char TINY_LLAMA[] __attribute__((unused)) =
    "{'model_type': 'llama', 'vocab_size': 131, 'hidden_size': 32, 'intermediate_size': 72, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'hidden_act': 'silu',"
    " 'rope_theta': 10000.0, 'rope_scaling': null}";
static const char TINY_GPT2[] __attribute__((unused)) =
    "{'model_type': 'gpt2', 'vocab_size': 61, 'n_positions': 64, 'n_embd': 24, 'n_layer': 2, 'n_head': 3, 'n_inner': null,"
    " 'bos_token_id': 0, 'eos_token_id': 0, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5}";

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
    snprintf(g->path, sizeof g->path, "%s", path);
    ok(zf_hf_open(&g->hf, g->path, &e));
    snprintf(path, sizeof path, "%s/golden/trajectories/%s/batches.safetensors", shared, name);
    struct zf_safetensors batches;
    ok(zf_st_open(&batches, path, &e));
    const struct zf_st_tensor *t = zf_st_find(&batches, "input_ids");
    assert_non_null(t);
    g->source = (struct source){.hf = &g->hf, .rows = t->shape[0], .length = t->shape[1], .ids = malloc(t->elements * sizeof(int64_t))};
    assert_non_null(g->source.ids);
    ok(zf_st_integers(g->source.ids, t, 0, t->elements, &e));
    zf_st_close(&batches);
    ok(zf_model_config_read(&g->source.config, g->hf.config, "config.json", &e));
    snprintf(path, sizeof path, "%s/golden/trajectories/%s/trajectories.safetensors", shared, name);
    ok(zf_st_open(&g->results, path, &e));
    return true;
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->cases);
    zf_hf_close(&g->hf);
    source_free(&g->source);
    zf_st_close(&g->results);
}

struct run_options {
    enum zf_dtype dtype;
    int threads;
    bool synchronous;
    bool two_micro_batches, recompute;
    bool packed;        /* each row is two documents */
    const char *device; /* NULL: the program's */
    uint64_t jitter;    /* delays in lanes, by this seed */
    bool stochastic;
    void (*comm)(struct zf_comm **out, void *ctx, int rank, struct zf_device *d); /* NULL: one rank */
    void *comm_ctx;
    int rank;
};

/* A trainer without files: what a step needs. */
struct run {
    const struct source *s;
    struct zf_options options;
    struct zf_device *device, *host; /* host: NULL, or with ZF_TWO_DEVICES and on a GPU that of the CPU half */
    struct zf_comm *comm;            /* NULL: one rank */
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

/* "strategy zenflow topk_ratio 0.25": names and values. */
static inline void run_set_text(struct run *r, const char *text)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) run_set(r, name, strtok_r(NULL, " ", &save));
}

/* Beside a GPU the host is the CPU half's. */
static inline void run_open_devices(struct run *r)
{
    const struct run_options *how = &r->how;
    const char *name = how->device ? how->device : ON_CUDA ? "cuda" : "host";
    bool cuda = !strcmp(name, "cuda"), two = cuda || getenv("ZF_TWO_DEVICES") != NULL;
    struct zf_device_options options = {.number = how->rank,                     /* of a GPU */
                                        .threads = how->threads + (two ? 4 : 0), /* enough to be parted */
                                        .part = two ? ZF_PART_COMPUTE : ZF_PART_ALL,
                                        .synchronous = how->synchronous,
                                        .jitter = how->jitter};
    ok(zf_device_open(&r->device, name, &options, &e));
    options.part = cuda ? ZF_PART_BESIDE_GPU : ZF_PART_CPU_HALF;
    options.jitter += how->jitter != 0; /* other delays than the first device's */
    if (two) ok(zf_device_open(&r->host, "host", &options, &e));
    if (how->comm) how->comm(&r->comm, how->comm_ctx, how->rank, r->device);
}

static inline void run_start_model(struct run *r)
{
    const struct run_options *how = &r->how;
    const struct source *s = r->s;
    run_open_devices(r);
    ok(zf_model_open(&r->model, &s->config, s->hf, 1, how->dtype, true, r->device, &e));
    ok(zf_model_reserve(&r->model, GOLDEN_ROWS * s->length, s->length, how->recompute ? ZF_KEEP_INPUTS : ZF_KEEP_ALL, &e));
    ok(zf_batch_init(&r->batch, GOLDEN_ROWS * s->length, &e));
}

static inline void run_start_pipeline(struct run *r)
{
    struct zf_policy policy = zf_policy_of(&r->options, r->how.dtype, 4);
    ok(zf_pipeline_open(&r->pipeline, &r->model, r->host, r->comm, &policy, &r->rule, &e));
}

static inline void run_start(struct run *r)
{
    run_start_model(r);
    run_start_pipeline(r);
}

static inline void run_prepare(struct run *r, const struct source *s, const struct run_options *how)
{
    memset(r, 0, sizeof *r);
    r->s = s;
    r->how = *how;
    r->rule = (struct zf_adam_rule){
        .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1, .stochastic = how->stochastic, .seed = 1};
    ok(zf_options_init(&r->options, &e));
}

static inline void run_open(struct run *r, const struct source *s, const json_t *options, const struct run_options *how)
{
    run_prepare(r, s, how);
    run_set_all(r, options);
    run_start(r);
}

static inline void run_open_text(struct run *r, const struct source *s, const char *options, const struct run_options *how)
{
    run_prepare(r, s, how);
    run_set_text(r, options);
    run_start(r);
}

static inline void run_close(struct run *r)
{
    zf_pipeline_close(&r->pipeline);
    zf_comm_close(r->comm);
    zf_batch_free(&r->batch);
    zf_model_close(&r->model);
    if (r->host) r->host->type->close(r->host);
    r->device->type->close(r->device);
    zf_options_free(&r->options);
}

/* After options have been set. */
static inline void run_apply(struct run *r)
{
    int change;
    struct zf_policy policy = zf_policy_of(&r->options, r->how.dtype, 4);
    ok(zf_pipeline_change(&r->pipeline, &policy, &r->rule, &change, &e));
}

static inline void run_change(struct run *r, const json_t *options)
{
    run_set_all(r, options);
    run_apply(r);
}

static inline void run_change_text(struct run *r, const char *options)
{
    run_set_text(r, options);
    run_apply(r);
}

/* A document: every token but its first is a target. */
static inline void add_document(struct zf_batch *b, const int64_t *ids, size_t n)
{
    size_t begin = b->tokens;
    b->segments[b->segment_count++] = (struct zf_segment){begin, n, begin, n};
    for (size_t i = 0; i < n; i++) {
        b->ids[begin + i] = (int32_t)ids[i];
        b->position[begin + i] = (int32_t)i;
        b->target[begin + i] = i + 1 < n ? (int32_t)ids[i + 1] : -1;
    }
    b->tokens += n;
    b->label_tokens += n - 1;
}

/* Rows first .. first + count. */
static inline void fill_batch(struct run *r, size_t first, size_t count)
{
    size_t n = r->s->length, cut = r->how.packed ? n / 3 + 1 : 0;
    const int64_t *ids = r->s->ids + first % r->s->rows * n;
    zf_batch_clear(&r->batch);
    for (size_t row = 0; row < count; row++) {
        if (cut) add_document(&r->batch, ids + row * n, cut);
        add_document(&r->batch, ids + row * n + cut, n - cut);
    }
}

/* The learning rate of the golden runs. */
static inline double golden_rate(uint64_t t)
{
    return 1e-3 * (0.5 + 0.5 * cos(3.14159265358979323846 * (double)(t - 1) / 40));
}

static inline struct zf_step_norm run_step_at(struct run *r, uint64_t t, double rate)
{
    struct zf_step_norm norm;
    double labels = (double)(GOLDEN_ROWS * (r->s->length - (r->how.packed ? 2 : 1)));
    const struct zf_comm *c = r->comm;
    size_t first = c ? zf_share(GOLDEN_ROWS, c->rank, c->ranks) : 0, end = c ? zf_share(GOLDEN_ROWS, c->rank + 1, c->ranks) : GOLDEN_ROWS;
    size_t parts = r->how.two_micro_batches && end - first > 1 ? 2 : 1;
    ok(zf_pipeline_begin(&r->pipeline, rate, false, &e));
    for (size_t i = 0; i < parts && first < end; i++) {
        fill_batch(r, (t - 1) * GOLDEN_ROWS + first + i * ((end - first) / parts), (end - first) / parts);
        if (i == parts - 1) zf_pipeline_last(&r->pipeline);
        ok(zf_model_step(&r->model, &r->batch, true, (float)(1 / labels), r->pipeline.loss, &e));
    }
    if (first == end) ok(zf_pipeline_absent(&r->pipeline, &e));
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

/* Bytes that the CPU half's state takes, by the account of whoever has it. */
static inline size_t run_cpu_state(const struct run *r)
{
    struct zf_device_info info;
    struct zf_device *d = r->pipeline.host;
    d->type->info(d, &info);
    return info.bytes[ZF_TAG_CPU_STATE];
}

/* From the device's memory, and into it; all that was issued is done. */
static inline void run_peek(const struct run *r, void *to, const void *from, size_t bytes)
{
    ok(r->device->type->copy(r->model.lane, to, from, bytes));
    ok(r->device->type->lane_sync(r->model.lane, &e));
}

/* Visible weights of a parameter, as they are stored, in fp32. */
static inline float *run_weights(const struct run *r, const struct zf_param *p)
{
    size_t n = p->rows * p->cols, size = zf_dtype_size(r->model.dtype);
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    char *stored = (char *)out + n * (sizeof *out - size); /* widened from its end on */
    run_peek(r, stored, (const char *)r->model.weights + p->offset * size, n * size);
    for (size_t i = 0; r->model.dtype != ZF_F32 && i < n; i++) {
        uint16_t half;
        memcpy(&half, stored + i * size, sizeof half);
        uint32_t u = (uint32_t)half << 16;
        memcpy(&out[i], &u, sizeof u);
    }
    return out;
}

#endif
