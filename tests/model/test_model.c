/* The block as a whole, on models from scratch of every family, in f32 and bf16: what forward, backward, cache and export must agree on
 * without any golden file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/hf.h"
#include "core/base/floats.h"
#include "core/model/model.h"
#include "core/optim/schedule.h"
#include "core/pipeline/impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const configs[] = {
    "{'model_type':'gpt2','n_layer':2,'n_embd':24,'n_head':3,'vocab_size':37,'n_positions':700,'activation_function':'gelu_new'}",
    "{'model_type':'opt','num_hidden_layers':2,'hidden_size':24,'num_attention_heads':2,'ffn_dim':40,'vocab_size':37,'max_position_"
    "embeddings':700,"
    "'word_embed_proj_dim':16,'do_layer_norm_before':false,'activation_function':'relu'}",
    "{'model_type':'opt','num_hidden_layers':2,'hidden_size':24,'num_attention_heads':2,'ffn_dim':40,'vocab_size':37,'max_position_"
    "embeddings':700,"
    "'word_embed_proj_dim':24,'do_layer_norm_before':true,'activation_function':'relu'}",
    "{'model_type':'llama','num_hidden_layers':2,'hidden_size':24,'num_attention_heads':4,'num_key_value_heads':2,'intermediate_size':40,'"
    "vocab_size':37,"
    "'max_position_embeddings':700,'hidden_act':'silu','rope_theta':10000.0,'tie_word_embeddings':false}",
    "{'model_type':'qwen2','num_hidden_layers':2,'hidden_size':24,'num_attention_heads':4,'num_key_value_heads':1,'intermediate_size':40,'"
    "vocab_size':37,"
    "'max_position_embeddings':700,'hidden_act':'silu','rope_theta':10000.0,'tie_word_embeddings':true}",
    "{'model_type':'qwen3','num_hidden_layers':2,'hidden_size':24,'num_attention_heads':4,'num_key_value_heads':2,'head_dim':10,'"
    "intermediate_size':40,'vocab_size':37,"
    "'max_position_embeddings':700,'hidden_act':'silu','rope_theta':10000.0,'tie_word_embeddings':false}",
};
enum { CONFIGS = sizeof configs / sizeof *configs, V = 37 };
static const enum zf_dtype dtypes[] = {ZF_F32, ZF_BF16};
/* Models CONFIGS and CONFIGS + 1: an untied and a tied one, so wide that logits come in chunks. */
enum { WIDE = 2, WIDE_OF = 3, WIDE_VOCAB = 33000 };
#define EACH_MODEL_OF(models, which, dtype) \
    for (int which = 0; which < (models); which++) \
        for (const enum zf_dtype *dtype = dtypes; dtype < dtypes + 2; dtype++)

#define EACH_MODEL(which, dtype) EACH_MODEL_OF(CONFIGS, which, dtype)

struct fixture {
    struct zf_device *device;
    struct zf_model model;
    struct zf_model_config config;
    struct zf_batch batch;
    double *loss; /* of the step, on the device */
};

static struct zf_err e;

static void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

static struct zf_model_config config_of(int which)
{
    struct zf_model_config c;
    json_t *j;
    bool wide = which >= CONFIGS;
    char *text = strdup(configs[wide ? which - CONFIGS + WIDE_OF : which]);
    for (char *p = text; *p; p++)
        if (*p == '\'') *p = '"';
    ok(zf_json_parse(&j, text, strlen(text), "config", &e));
    ok(zf_model_config_read(&c, j, "config", &e));
    json_decref(j);
    free(text);
    if (wide) c.vocab = WIDE_VOCAB;
    return c;
}

/* Visible weights as open and updates leave them. */
static void round_weights(struct zf_model *m)
{
    uint16_t *weights = m->weights;
    if (m->dtype == ZF_BF16)
        for (size_t i = 0; i < m->params.elements; i++) weights[i] = zf_f32_to_bf16(m->master[i]);
}

static void start_config(struct fixture *f, const struct zf_model_config *c, enum zf_dtype dtype, enum zf_keep keep, int threads)
{
    memset(f, 0, sizeof *f);
    f->config = *c;
    ok(zf_device_open(&f->device, "host", &(struct zf_device_options){.threads = threads}, &e));
    ok(zf_model_open(&f->model, &f->config, NULL, 7, dtype, true, f->device, &e));
    /* away from the tiny initial weights, so that attention and norms matter */
    for (size_t i = 0; i < f->model.params.elements; i++) f->model.master[i] *= 2;
    round_weights(&f->model);
    ok(zf_model_reserve(&f->model, 700, 700, keep, &e));
    ok(zf_batch_init(&f->batch, 700, &e));
    void *loss;
    ok(f->device->type->alloc(f->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, sizeof *f->loss, &loss, &e));
    f->loss = loss;
}

static void start(struct fixture *f, int which, enum zf_dtype dtype, int threads)
{
    struct zf_model_config c = config_of(which);
    start_config(f, &c, dtype, ZF_KEEP_ALL, threads);
}

static void stop(struct fixture *f)
{
    zf_model_close(&f->model);
    f->device->type->free(f->device, f->loss);
    zf_batch_free(&f->batch);
    f->device->type->close(f->device);
}

/* A row of n tokens in documents that end at `cut` (0: one), every token but a document's first a target. */
static void add_row(struct zf_batch *b, uint32_t seed, size_t n, size_t cut)
{
    int32_t *ids = malloc(3 * n * sizeof *ids), *target = ids + n, *document = target + n;
    size_t labels = 0;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((seed * 2654435761u + i * i * 40503u + i * 77u) >> 3) & 0x7fffffff;
        ids[i] = ids[i] % (V - 3) + 3;
        document[i] = cut && i >= cut;
    }
    for (size_t i = 0; i < n; i++) {
        target[i] = i + 1 < n && document[i + 1] == document[i] ? ids[i + 1] : -1;
        labels += target[i] >= 0;
    }
    zf_batch_add(b, &(struct zf_row){.ids = ids, .target = target, .document = document, .length = n, .label_tokens = labels});
    free(ids);
}

/* Gradients and loss begin anew. */
static void begin(struct fixture *f)
{
    *f->loss = 0; /* between steps the lane is idle */
    ok(zf_model_begin_grad(&f->model, &e));
}

static double loss_of(struct fixture *f, bool backward, float scale)
{
    ok(zf_model_step(&f->model, &f->batch, backward, scale, f->loss, &e));
    ok(f->device->type->lane_sync(f->model.lane, &e));
    return *f->loss;
}

/* Updates by the device alone. What the pipeline needs of the model it takes when it opens: which parameters are frozen. */
static void open_pipeline(struct zf_pipeline *p, struct fixture *f, const struct zf_adam_rule *rule)
{
    const struct zf_policy gpu_only = {.ratio = 1, .interval = 1, .visible = ZF_VISIBLE_NONE, .cpu_half = true, .bus = f->model.dtype};
    ok(zf_pipeline_open(p, &f->model, NULL, NULL, &gpu_only, rule, &e));
}

static struct zf_step_norm update(struct zf_pipeline *p, struct fixture *f, float scale)
{
    struct zf_step_norm norm;
    ok(zf_pipeline_begin(p, 1e-2, false, &e));
    zf_pipeline_last(p);
    ok(zf_model_step(&f->model, &f->batch, true, scale, p->loss, &e));
    ok(zf_pipeline_finish(p, &norm, &e));
    return norm;
}

/* All masters, where the model has them: gaps are zeros. */
static float *masters_of(struct zf_pipeline *p)
{
    const struct zf_params *all = &p->model->params;
    float *out = calloc(all->elements, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < all->count; i++) ok(zf_pipeline_masters(p, &all->list[i], out + all->list[i].offset, &e));
    ok(zf_pipeline_settle(p, &e));
    return out;
}

static double relative(const float *a, const float *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return sqrt(d / s);
}

static double norm_of(const float *x, size_t n)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    return sqrt(squares);
}

/* The cache, filled in uneven pieces (one longer than a prefill chunk), gives the logits of the whole sequence. */
static void cache_equals_whole(void **state)
{
    (void)state;
    EACH_MODEL(which, dtype)
    {
        struct fixture f;
        struct zf_cache *cache;
        start(&f, which, *dtype, 2);
        size_t n = 600;
        add_row(&f.batch, 5, n, 0);
        float *whole = malloc(n * V * sizeof *whole), last[V];
        ok(zf_model_logits(&f.model, &f.batch, whole, &e));
        ok(zf_cache_new(&cache, &f.model, n, &e));
        const size_t pieces[] = {3, 1, 530, 1, 65};
        size_t at = 0;
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            ok(zf_cache_append(cache, f.batch.ids + at, pieces[i], last, &e));
            at += pieces[i];
            assert_true(relative(last, whole + (at - 1) * V, V) < (*dtype == ZF_F32 ? 2e-5 : 2e-2));
        }
        assert_int_equal(zf_cache_append(cache, f.batch.ids, 1, last, &e), ZF_USAGE); /* full */
        zf_cache_free(cache);
        free(whole);
        stop(&f);
    }
}

/* The loss of each token is that of its logits; where there is no target it is 0. */
static void losses_of_tokens(void **state)
{
    (void)state;
    EACH_MODEL(which, dtype)
    {
        struct fixture f;
        start(&f, which, *dtype, 2);
        add_row(&f.batch, 1, 300, 13);
        add_row(&f.batch, 2, 7, 0);
        size_t n = f.batch.tokens;
        float *logits = malloc(n * V * sizeof *logits), *losses = malloc(n * sizeof *losses);
        ok(zf_model_logits(&f.model, &f.batch, logits, &e));
        ok(zf_model_losses(&f.model, &f.batch, losses, &e));
        for (size_t i = 0; i < n; i++) {
            double sum = 0, want = 0;
            for (size_t k = 0; k < V; k++) sum += exp((double)logits[i * V + k]);
            if (f.batch.target[i] >= 0) want = log(sum) - (double)logits[i * V + (size_t)f.batch.target[i]];
            assert_true(fabs(losses[i] - want) <= 1e-5 * fabs(want));
        }
        free(logits);
        free(losses);
        stop(&f);
    }
}

/* Rows together or one by one: the same sums of losses and gradients. */
static void batches_are_sums(void **state)
{
    (void)state;
    EACH_MODEL_OF(CONFIGS + WIDE, which, dtype)
    {
        struct fixture f;
        start(&f, which, *dtype, 2);
        bool f32 = *dtype == ZF_F32; /* bf16: a product of another shape sums in another order, so that some roundings differ */
        size_t elements = f.model.params.elements;
        float *together = malloc(elements * sizeof *together);
        begin(&f);
        add_row(&f.batch, 1, 250, 13);
        add_row(&f.batch, 2, 7, 0);
        add_row(&f.batch, 3, 30, 0);
        double all = loss_of(&f, true, 0.01f);
        memcpy(together, f.model.grad, elements * sizeof *together);
        begin(&f);
        static const size_t rows[][3] = {{1, 250, 13}, {2, 7, 0}, {3, 30, 0}};
        double one_by_one = 0;
        for (size_t i = 0; i < 3; i++) {
            zf_batch_clear(&f.batch);
            add_row(&f.batch, (uint32_t)rows[i][0], rows[i][1], rows[i][2]);
            one_by_one = loss_of(&f, true, 0.01f);
        }
        assert_true(fabs(all - one_by_one) < (f32 ? 1e-6 : 1e-4) * all);
        assert_true(relative(f.model.grad, together, elements) < (f32 ? 1e-6 : 1e-2));
        free(together);
        stop(&f);
    }
}

/* A step of three micro-batches, with some tokens that occur nowhere, and more rows than a chunk of logits has. */
static void three_backwards(struct fixture *f)
{
    static const size_t rows[][3] = {{1, 270, 13}, {2, 7, 0}, {3, 30, 0}};
    for (size_t i = 0; i < 3; i++) {
        zf_batch_clear(&f->batch);
        add_row(&f->batch, (uint32_t)rows[i][0], rows[i][1], rows[i][2]);
        for (size_t k = 0; k < f->batch.tokens; k++)
            if (f->batch.ids[k] == 20) f->batch.ids[k] = 21;
        loss_of(f, true, 0.01f);
    }
}

/* The first backward of a step leaves nothing of what gradients were before; written or added to zeros, they are the same. */
static void steps_begin_anew(void **state)
{
    (void)state;
    EACH_MODEL_OF(CONFIGS + WIDE, which, dtype)
    {
        struct fixture f;
        start(&f, which, *dtype, 2);
        size_t elements = f.model.params.elements, bytes = elements * sizeof(float);
        float *fresh = malloc(bytes), *g = f.model.grad;
        begin(&f);
        three_backwards(&f);
        memcpy(fresh, g, bytes);
        for (size_t i = 0; i < f.model.params.count; i++) {
            const struct zf_param *p = &f.model.params.list[i];
            for (size_t k = 0; k < p->rows * p->cols; k++) g[p->offset + k] = NAN;
        }
        begin(&f);
        three_backwards(&f);
        assert_memory_equal(fresh, g, bytes);
        memset(g, 0, bytes);
        f.model.grad_begun = true;
        three_backwards(&f);
        for (size_t i = 0; i < elements; i++) assert_true(fresh[i] == g[i]); /* -0 may be 0 */
        free(fresh);
        stop(&f);
    }
}

/* Kept or computed again: the same losses and gradients, bit for bit. A layer more costs the memory of its input alone. */
static void recompute_gives_equal_bits(void **state)
{
    (void)state;
    EACH_MODEL(which, dtype)
    {
        struct fixture f[2];
        struct zf_model_config c = config_of(which), deeper;
        c.layers = 4;
        deeper = c;
        deeper.layers++;
        for (int i = 0; i < 2; i++) {
            start_config(&f[i], &c, *dtype, i ? ZF_KEEP_INPUTS : ZF_KEEP_ALL, 2);
            begin(&f[i]);
            three_backwards(&f[i]);
        }
        assert_memory_equal(f[0].loss, f[1].loss, sizeof *f[0].loss);
        assert_memory_equal(f[0].model.grad, f[1].model.grad, f[0].model.params.elements * sizeof(float));
        assert_true(norm_of(f[0].model.grad, f[0].model.params.elements) > 0);
        size_t more = zf_workspace_measure(&deeper, *dtype, 640, 100, ZF_KEEP_INPUTS).activations -
                      zf_workspace_measure(&c, *dtype, 640, 100, ZF_KEEP_INPUTS).activations;
        assert_int_equal(more, 640 * c.hidden * zf_dtype_size(*dtype));
        for (int i = 0; i < 2; i++) stop(&f[i]);
    }
}

/* Two documents in one row give the logits they give in rows of their own. */
static void packed_equals_unpacked(void **state)
{
    (void)state;
    enum { N = 90, CUT = 37 };
    EACH_MODEL(which, dtype)
    {
        struct fixture f;
        int32_t ids[N], target[N] = {0};
        float *packed = malloc(N * V * sizeof *packed), *alone = malloc(N * V * sizeof *alone);
        start(&f, which, *dtype, 2);
        add_row(&f.batch, 6, N, CUT);
        memcpy(ids, f.batch.ids, sizeof ids);
        ok(zf_model_logits(&f.model, &f.batch, packed, &e));
        const size_t first[] = {0, CUT, N};
        for (int i = 0; i < 2; i++) {
            zf_batch_clear(&f.batch);
            zf_batch_add(&f.batch, &(struct zf_row){.ids = ids + first[i], .target = target, .length = first[i + 1] - first[i]});
            ok(zf_model_logits(&f.model, &f.batch, alone + first[i] * V, &e));
        }
        assert_true(relative(packed, alone, N * V) < (*dtype == ZF_F32 ? 1e-6 : 1e-2));
        free(packed);
        free(alone);
        stop(&f);
    }
}

/* loss(w + s d) - loss(w - s d) along the gradient's own direction is 2 s |g|^2: a wrong gradient anywhere shows. */
static void gradient_is_the_slope(void **state)
{
    (void)state;
    for (int which = 0; which < CONFIGS; which++) {
        struct fixture f;
        start(&f, which, ZF_F32, 2);
        size_t n = f.model.params.elements;
        float *g = malloc(n * sizeof *g), *w = malloc(n * sizeof *w);
        add_row(&f.batch, 9, 200, 61);
        begin(&f);
        loss_of(&f, true, 1.0f);
        memcpy(g, f.model.grad, n * sizeof *g);
        memcpy(w, f.model.master, n * sizeof *w);
        double squares = 0, side[2];
        for (size_t i = 0; i < n; i++) squares += (double)g[i] * g[i];
        double s = 3e-4 / sqrt(squares);
        for (int k = 0; k < 2; k++) {
            for (size_t i = 0; i < n; i++) f.model.master[i] = (float)(w[i] + (k ? s : -s) * g[i]);
            begin(&f);
            side[k] = loss_of(&f, false, 0);
        }
        double slope = (side[1] - side[0]) / (2 * s);
        assert_true(fabs(slope - squares) < 5e-3 * squares);
        free(g);
        free(w);
        stop(&f);
    }
}

static void threads_give_equal_bits(void **state)
{
    (void)state;
    const struct zf_adam_rule rule = {0.9, 0.999, 1e-8, 0.1, 1.0, false, 0};
    EACH_MODEL(which, dtype)
    {
        struct fixture f[3];
        struct zf_pipeline p[3];
        struct zf_step_norm norm[3];
        float *masters[3];
        for (int i = 0; i < 3; i++) {
            start(&f[i], which, *dtype, i + 1);
            open_pipeline(&p[i], &f[i], &rule);
        }
        for (int step = 0; step < 3; step++) {
            for (int i = 0; i < 3; i++) {
                zf_batch_clear(&f[i].batch);
                add_row(&f[i].batch, (uint32_t)step, 300, 37);
                norm[i] = update(&p[i], &f[i], 0.01f);
            }
            for (int i = 1; i < 3; i++) assert_memory_equal(&norm[0].loss, &norm[i].loss, sizeof norm[0].loss);
        }
        for (int i = 0; i < 3; i++) masters[i] = masters_of(&p[i]);
        for (int i = 1; i < 3; i++) {
            assert_memory_equal(masters[0], masters[i], f[0].model.params.elements * sizeof(float));
            assert_memory_equal(f[0].model.weights, f[i].model.weights, f[0].model.params.elements * zf_dtype_size(*dtype));
        }
        for (int i = 0; i < 3; i++) {
            free(masters[i]);
            zf_pipeline_close(&p[i]);
            stop(&f[i]);
        }
    }
}

static double distance(const float *a, const float *b, size_t n)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(squares);
}

/* Norms of queries and keys as they begin: with twice their gain scores are so sharp that any bf16 is off by as much as the limits. */
static void soften_scores(struct zf_model *m)
{
    for (size_t i = 0; i < m->params.count; i++) {
        const struct zf_param *p = &m->params.list[i];
        if (p->slot == ZF_SLOT_Q_NORM || p->slot == ZF_SLOT_K_NORM)
            for (size_t k = 0; k < p->cols; k++) m->master[p->offset + k] = 1;
    }
    round_weights(m);
}

/* The limits of the command verify in bf16. */
static void bf16_is_near_f32(void **state)
{
    (void)state;
    for (int which = 0; which < CONFIGS; which++) {
        struct fixture f[2];
        float *logits[2];
        double loss[2];
        for (int i = 0; i < 2; i++) {
            start(&f[i], which, dtypes[i], 2);
            soften_scores(&f[i].model);
            add_row(&f[i].batch, 9, 200, 61);
            add_row(&f[i].batch, 4, 90, 0);
            logits[i] = malloc(f[i].batch.tokens * V * sizeof(float));
            ok(zf_model_logits(&f[i].model, &f[i].batch, logits[i], &e));
            begin(&f[i]);
            loss[i] = loss_of(&f[i], true, 1.0f / (float)f[i].batch.label_tokens);
        }
        assert_memory_equal(f[0].model.master, f[1].model.master, f[0].model.params.elements * sizeof(float));
        const struct zf_params *p = &f[0].model.params;
        const float *exact = f[0].model.grad, *g = f[1].model.grad;
        double all = norm_of(exact, p->elements), off = relative(logits[1], logits[0], f[0].batch.tokens * V);
        assert_true(off > 1e-5 && off < 2e-2); /* it is bf16 indeed */
        assert_true(fabs(loss[1] - loss[0]) < 1e-3 * loss[0]);
        assert_true(distance(g, exact, p->elements) < 5e-2 * all);
        for (size_t i = 0; i < p->count; i++) {
            size_t n = p->list[i].rows * p->list[i].cols, at = p->list[i].offset;
            double own = norm_of(exact + at, n), least = 0.1 * all * sqrt((double)n / (double)p->parameters);
            if (!(distance(g + at, exact + at, n) < 0.2 * (own > least ? own : least))) fail_msg("%s of model %d", p->list[i].name, which);
        }
        for (int i = 0; i < 2; i++) {
            free(logits[i]);
            stop(&f[i]);
        }
    }
}

/* What is allocated is what the plan asks the measure for, and opening needs no more than the largest tensor in fp32 beside it. */
static void memory_is_as_measured(void **state)
{
    (void)state;
    EACH_MODEL(which, dtype)
    {
        for (enum zf_keep keep = ZF_KEEP_NOTHING; keep <= ZF_KEEP_INPUTS; keep++) {
            bool training = keep != ZF_KEEP_NOTHING;
            struct zf_model_config c = config_of(which);
            struct zf_device *d;
            struct zf_model m;
            struct zf_cache *cache;
            struct zf_device_info info;
            size_t largest = 0;
            ok(zf_device_open(&d, "host", &(struct zf_device_options){.threads = 1}, &e));
            ok(zf_model_open(&m, &c, NULL, 7, *dtype, training, d, &e));
            d->type->info(d, &info);
            size_t weights = m.params.elements * (*dtype == ZF_F32 ? 4 : training ? 6 : 2);
            for (size_t i = 0; i < m.params.count; i++)
                if (m.params.list[i].rows * m.params.list[i].cols > largest) largest = m.params.list[i].rows * m.params.list[i].cols;
            assert_int_equal(info.bytes[ZF_TAG_WEIGHTS], weights);
            assert_int_equal(info.bytes[ZF_TAG_OTHER], 0);
            assert_true(info.peak_bytes <= weights + largest * sizeof(float) + 64);
            assert_true(*dtype == ZF_F32 ? m.master == m.weights : !m.master == !training);
            ok(zf_model_reserve(&m, 300, 100, keep, &e));
            struct zf_workspace_sizes s = zf_workspace_measure(&c, *dtype, 300, 100, keep);
            d->type->info(d, &info);
            assert_int_equal(info.bytes[ZF_TAG_ACTIVATIONS], s.activations);
            assert_int_equal(info.bytes[ZF_TAG_LOGITS], s.logits);
            assert_int_equal(info.bytes[ZF_TAG_BATCH], s.batch);
            ok(zf_cache_new(&cache, &m, 60, &e));
            d->type->info(d, &info);
            assert_int_equal(info.bytes[ZF_TAG_CACHE], zf_cache_bytes(&c, *dtype, 60));
            zf_cache_free(cache);
            zf_model_close(&m);
            d->type->info(d, &info);
            for (size_t i = 0; i < ZF_MEM_TAGS; i++) assert_int_equal(info.bytes[i], 0);
            d->type->close(d);
        }
    }
}

/* The gradients of model.params.list[1] are complete: one of them is not finite. */
static enum zf_status spoil(void *ctx, int layer, struct zf_err *err)
{
    struct zf_pipeline *p = ctx;
    const struct zf_param *q = &p->model->params.list[1];
    if (q->layer == layer) {
        ok(p->device->type->lane_sync(p->compute, err));
        p->model->grad[q->offset] = NAN;
    }
    return zf_pipeline_after_layer(p, layer, err);
}

/* Such a step changes nothing, and does not count for Adam's t. */
static void nonfinite_step_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct zf_pipeline p;
    start(&f, 3, ZF_F32, 2);
    size_t bytes = f.model.params.elements * sizeof(float);
    float *before = malloc(bytes);
    const struct zf_adam_rule rule = {0.9, 0.999, 1e-8, 0.1, 1.0, false, 0};
    open_pipeline(&p, &f, &rule);
    f.model.hooks.after_layer = spoil;
    add_row(&f.batch, 1, 50, 0);
    memcpy(before, f.model.weights, bytes);
    struct zf_step_norm norm = update(&p, &f, 1);
    ok(zf_pipeline_settle(&p, &e));
    assert_int_equal(norm.apply, 0);
    assert_true(isnan(norm.norm));
    for (size_t i = 0; i < p.matrices; i++)
        for (size_t r = 0; r < p.matrix[i].channels; r++) assert_int_equal(p.matrix[i].device.t[r], 0);
    for (size_t i = 0; i < p.vectors; i++) assert_int_equal(*p.vector[i].state.t, 0);
    assert_memory_equal(before, f.model.weights, bytes);
    free(before);
    zf_pipeline_close(&p);
    stop(&f);
}

static void frozen_stays(void **state)
{
    (void)state;
    for (const enum zf_dtype *dtype = dtypes; dtype < dtypes + 2; dtype++) {
        struct fixture f;
        struct zf_pipeline p;
        start(&f, 4, *dtype, 2);
        const struct zf_adam_rule rule = {0.9, 0.999, 1e-8, 0.1, 0, false, 0};
        for (size_t i = 0; i < f.model.params.count; i++) f.model.params.list[i].frozen = i % 2;
        size_t elements = f.model.params.elements, size = zf_dtype_size(*dtype);
        float *before = malloc(elements * sizeof *before);
        unsigned char *rounded = malloc(elements * size), *now = f.model.weights;
        memcpy(before, f.model.master, elements * sizeof *before);
        memcpy(rounded, now, elements * size);
        open_pipeline(&p, &f, &rule);
        add_row(&f.batch, 1, 50, 0);
        update(&p, &f, 1);
        float *after = masters_of(&p);
        for (size_t i = 0; i < f.model.params.count; i++) {
            const struct zf_param *q = &f.model.params.list[i];
            size_t n = q->rows * q->cols;
            for (size_t k = 0; q->frozen && k < n; k++) assert_true(f.model.grad[q->offset + k] == 0);
            assert_int_equal(!memcmp(before + q->offset, after + q->offset, n * sizeof *before), q->frozen);
            assert_int_equal(!memcmp(rounded + q->offset * size, now + q->offset * size, n * size), q->frozen);
        }
        free(before);
        free(after);
        free(rounded);
        zf_pipeline_close(&p);
        stop(&f);
    }
}

static void export_to(const struct zf_model *m, const char *folder)
{
    json_t *j = zf_model_config_write(&m->config);
    ok(zf_model_export(m, folder, j, NULL, &e));
    json_decref(j);
}

static void open_from(struct zf_model *m, const char *folder, enum zf_dtype dtype, bool training, struct zf_device *d)
{
    struct zf_model_config c;
    struct zf_hf hf;
    ok(zf_hf_open(&hf, folder, &e));
    ok(zf_model_config_read(&c, hf.config, folder, &e));
    ok(zf_model_open(m, &c, &hf, 0, dtype, training, d, &e));
    zf_hf_close(&hf);
}

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Bytes of this process; 0 where a sanitizer keeps books of its own in its memory. */
static size_t resident(void)
{
    size_t pages = 0;
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %zu", &pages), 1);
    fclose(f);
#endif
    return pages * 4096;
}

/* Masters come back bit for bit; without masters what comes back are the rounded weights. */
static void export_and_back(void **state)
{
    (void)state;
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/zf-test-export-%ld", (long)getpid());
    EACH_MODEL(which, dtype)
    {
        struct fixture f;
        struct zf_model again;
        start(&f, which, *dtype, 2);
        size_t n = f.model.params.elements;
        export_to(&f.model, folder);
        open_from(&again, folder, ZF_F32, false, f.device);
        assert_memory_equal(again.master, f.model.master, n * sizeof(float));
        zf_model_close(&again);
        open_from(&again, folder, *dtype, true, f.device);
        assert_memory_equal(again.master, f.model.master, n * sizeof(float));
        assert_memory_equal(again.weights, f.model.weights, n * zf_dtype_size(*dtype));
        zf_model_close(&again);
        open_from(&again, folder, *dtype, false, f.device);
        assert_memory_equal(again.weights, f.model.weights, n * zf_dtype_size(*dtype));
        remove_folder(folder);
        export_to(&again, folder);
        zf_model_close(&again);
        open_from(&again, folder, ZF_F32, false, f.device);
        const uint16_t *narrow = f.model.weights;
        for (size_t i = 0; i < n; i++) {
            float want = *dtype == ZF_F32 ? f.model.master[i] : zf_bf16_to_f32(narrow[i]);
            assert_memory_equal(&again.master[i], &want, sizeof want);
        }
        zf_model_close(&again);
        stop(&f);
        remove_folder(folder);
    }
}

static void schedule(void **state)
{
    (void)state;
    struct zf_schedule s = {ZF_COSINE, 2.0, 0.5, 10, 4};
    assert_true(zf_schedule_rate(&s, 1) == 2.0 * 1 / 4);                    /* warm-up times the start of the curve */
    assert_true(fabs(zf_schedule_rate(&s, 6) - (0.5 + 1.5 * 0.5)) < 1e-15); /* p = 1/2 */
    assert_true(fabs(zf_schedule_rate(&s, 11) - 0.5) < 1e-15);
    assert_true(zf_schedule_rate(&s, 500) == zf_schedule_rate(&s, 11)); /* never rises again */
    s.kind = ZF_LINEAR;
    assert_true(fabs(zf_schedule_rate(&s, 6) - 1.25) < 1e-15);
    s.kind = ZF_CONSTANT;
    assert_true(zf_schedule_rate(&s, 9) == 2.0);
}

/* Matrices of several pieces, none of whose sides is a multiple of a block: every element in its place, and memory as promised. */
static void large_tensors(void **state)
{
    (void)state;
    char folder[64],
        text[] = "{'model_type': 'llama', 'vocab_size': 1501, 'hidden_size': 650, 'intermediate_size': 1301,"
                 " 'num_hidden_layers': 1, 'num_attention_heads': 1, 'head_dim': 250, 'max_position_embeddings': 64, 'rope_theta': 10000.0,"
                 " 'tie_word_embeddings': false}";
    struct zf_model_config c;
    struct zf_device *d;
    struct zf_model m, again;
    json_t *j;
    snprintf(folder, sizeof folder, "/tmp/zf-test-large-%ld", (long)getpid());
    for (char *p = text; *p; p++)
        if (*p == '\'') *p = '"';
    ok(zf_json_parse(&j, text, strlen(text), "config", &e));
    ok(zf_model_config_read(&c, j, "config", &e));
    json_decref(j);
    ok(zf_device_open(&d, "host", &(struct zf_device_options){.threads = 3}, &e));
    ok(zf_model_open(&m, &c, NULL, 7, ZF_F32, true, d, &e));
    export_to(&m, folder);
    for (int mode = 0; mode < 3; mode++) { /* f32, bf16 with masters, bf16 without */
        size_t before = resident(), n = m.params.elements, state_bytes = n * (mode == 0 ? 4 : mode == 1 ? 6 : 2), largest = 1501 * 650 * 4;
        open_from(&again, folder, mode ? ZF_BF16 : ZF_F32, mode < 2, d);
        size_t after = resident();
        if (before && after > before + state_bytes + largest)
            fail_msg("%zu bytes are resident, %zu expected", after - before, state_bytes + largest);
        if (mode < 2) assert_memory_equal(again.master, m.master, n * sizeof(float));
        const uint16_t *narrow = again.weights;
        for (size_t i = 0; mode && i < n; i++)
            if (narrow[i] != zf_f32_to_bf16(m.master[i])) fail_msg("weight %zu is not the rounded master", i);
        zf_model_close(&again);
    }
    remove_folder(folder);
    zf_model_close(&m);
    d->type->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_equals_whole),
        cmocka_unit_test(losses_of_tokens),
        cmocka_unit_test(batches_are_sums),
        cmocka_unit_test(recompute_gives_equal_bits),
        cmocka_unit_test(steps_begin_anew),
        cmocka_unit_test(packed_equals_unpacked),
        cmocka_unit_test(gradient_is_the_slope),
        cmocka_unit_test(threads_give_equal_bits),
        cmocka_unit_test(bf16_is_near_f32),
        cmocka_unit_test(memory_is_as_measured),
        cmocka_unit_test(frozen_stays),
        cmocka_unit_test(nonfinite_step_changes_nothing),
        cmocka_unit_test(export_and_back),
        cmocka_unit_test(large_tensors),
        cmocka_unit_test(schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
