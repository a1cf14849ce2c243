/* AdamW through the pipeline against float64: with cpu_update = each nothing but visibility is late, so whatever the policy and however it
 * changes, masters are what AdamW makes of each step's gradient in turn. Many small tensors of odd sizes; gradients of our own, of all
 * magnitudes, so that epsilon, decay and clipping count. */
#include "forced.h"

static const char ODD_LLAMA[] =
    "{'model_type': 'llama', 'vocab_size': 53, 'hidden_size': 18, 'intermediate_size': 37, 'num_hidden_layers': 3,"
    " 'num_attention_heads': 3, 'num_key_value_heads': 1, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5,"
    " 'hidden_act': 'silu', 'rope_theta': 10000.0, 'rope_scaling': null}";
static const char ODD_GPT2[] =
    "{'model_type': 'gpt2', 'vocab_size': 41, 'n_positions': 19, 'n_embd': 21, 'n_layer': 3, 'n_head': 3, 'n_inner': 29,"
    " 'bos_token_id': 0, 'eos_token_id': 0, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5}";

static double draw(const struct zf_param *q, uint64_t t, size_t i, uint64_t what)
{
    return zf_uniform(11 + what, ZF_STREAM_TEST, t, q->offset + i);
}

/* Signs at random, magnitudes from 1e-9 to 1; every fifth element always the same, every seventh 0. */
static float gradient(const struct zf_param *q, uint64_t t, size_t i)
{
    if (i % 7 == 3) return 0;
    if (i % 5 == 0) return 1e-3f;
    return (float)((draw(q, t, i, 0) < 0.5 ? -1 : 1) * pow(10, -9 * draw(q, t, i, 1)));
}

static void fill(const struct zf_param *q, uint64_t t, float *g)
{
    for (size_t i = 0; i < q->rows * q->cols; i++) g[i] = gradient(q, t, i);
}

/* The reference: all parameters in one block, as the model lays them out. */
struct reference {
    double *w, *m, *v;
    uint64_t t;
};

static void reference_open(struct reference *x, struct run *r)
{
    size_t n = r->model.params.elements;
    *x = (struct reference){.w = calloc(3 * n, sizeof *x->w)};
    assert_non_null(x->w);
    x->m = x->w + n;
    x->v = x->m + n;
    for (size_t k = 0; k < r->model.params.count; k++) {
        const struct zf_param *q = &r->model.params.list[k];
        float *w = run_masters(r, q);
        for (size_t i = 0; i < q->rows * q->cols; i++) x->w[q->offset + i] = (double)w[i];
        free(w);
    }
}

static void reference_step(struct reference *x, const struct run *r, double rate)
{
    const struct zf_adam_rule *h = &r->rule;
    double norm = 0, c;
    x->t++;
    for (size_t k = 0; k < r->model.params.count; k++) {
        const struct zf_param *q = &r->model.params.list[k];
        for (size_t i = 0; i < q->rows * q->cols; i++) norm += pow((double)gradient(q, x->t, i), 2);
    }
    c = h->clip_norm > 0 ? fmin(1, h->clip_norm / sqrt(norm)) : 1;
    for (size_t k = 0; k < r->model.params.count; k++) {
        const struct zf_param *q = &r->model.params.list[k];
        for (size_t i = 0; i < q->rows * q->cols; i++) {
            size_t at = q->offset + i;
            double g = c * (double)gradient(q, x->t, i), t = (double)x->t;
            x->m[at] = h->beta1 * x->m[at] + (1 - h->beta1) * g;
            x->v[at] = h->beta2 * x->v[at] + (1 - h->beta2) * g * g;
            if (q->matrix) x->w[at] -= rate * h->weight_decay * x->w[at];
            x->w[at] -= rate * (x->m[at] / (1 - pow(h->beta1, t))) / (sqrt(x->v[at] / (1 - pow(h->beta2, t))) + h->epsilon);
        }
    }
}

/* Of the master: fp32 rounds it once or twice a step; of the path: the update itself has a few roundings. */
static void reference_compare(const struct reference *x, struct run *r, double path, const char *what)
{
    for (size_t k = 0; k < r->model.params.count; k++) {
        const struct zf_param *q = &r->model.params.list[k];
        float *w = run_masters(r, q);
        for (size_t i = 0; i < q->rows * q->cols; i++) {
            double wanted = x->w[q->offset + i], limit = 1e-7 * (double)x->t * fabs(wanted) + 2e-6 * path;
            if (!(fabs((double)w[i] - wanted) <= limit))
                fail_msg("%s: %s, element %zu: %.9g, float64 has %.9g", what, q->name, i, (double)w[i], wanted);
        }
        free(w);
    }
}

static const char *const EACH[] = {
    "strategy gpu_only",
    "strategy zero_offload",
    "strategy zenflow_sync topk_ratio 0.3 update_interval 1 select_interval 1",
    "strategy zenflow_sync topk_ratio 0.3 update_interval 4 select_interval 5",
    "strategy zenflow topk_ratio 0.2 update_interval 3 select_interval 3",
    "strategy zenflow topk_ratio 0.9 update_interval 5 select_interval 2 swap global",
    "strategy zenflow topk_ratio 0.1 update_interval 4 select_interval 1 swap rolling",
    "strategy zenflow topk_ratio 0 update_interval 7",
};
static const char *const TOURS[] = {
    NULL,
    "3 topk_ratio 0.6;5 update_interval 2;8 strategy zenflow;12 topk_ratio 0.05;17 swap staggered",
    "4 strategy zero_offload;7 strategy zenflow topk_ratio 0.5 select_interval 2;11 strategy gpu_only;13 strategy zenflow;18 strategy "
    "stronghold",
};

static void trained(const char *config, size_t policy, size_t tour, const struct zf_adam_rule *rule, enum zf_dtype dtype)
{
    enum { LONG = 24 };
    struct source s;
    struct run r;
    struct reference x;
    char what[256], copy[512];
    double path = 0;
    source_make(&s, config, 2 * LONG, 7);
    snprintf(copy, sizeof copy, "%s cpu_update each bus_dtype f32", EACH[policy]);
    snprintf(what, sizeof what, "policy %zu, tour %zu, epsilon %g, decay %g, clip %g, %s", policy, tour, rule->epsilon, rule->weight_decay,
             rule->clip_norm, dtype == ZF_F32 ? "f32" : "bf16");
    run_open_forced(&r, &s, copy, &(struct run_options){.dtype = dtype, .threads = 2}, rule, fill);
    reference_open(&x, &r);
    for (uint64_t t = 1; t <= LONG; t++) {
        double rate = 1e-2 * (1 + (double)(t % 3));
        char *save = NULL;
        snprintf(copy, sizeof copy, "%s", TOURS[tour] ? TOURS[tour] : "");
        for (char *c = strtok_r(copy, ";", &save); c; c = strtok_r(NULL, ";", &save)) {
            int at, used = 0;
            assert_int_equal(sscanf(c, "%d %n", &at, &used), 1);
            if ((uint64_t)at == t) run_change_text(&r, c + used);
        }
        run_step_at(&r, t, rate);
        reference_step(&x, &r, rate);
        path += rate;
    }
    ok(zf_pipeline_drain(&r.pipeline, &e));
    reference_compare(&x, &r, path, what);
    run_close(&r);
    source_free(&s);
    free(x.w);
}

static void test_adamw_against_float64(void **state)
{
    static const struct zf_adam_rule rules[] = {
        {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01, .clip_norm = 1},
        {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0, .clip_norm = 0},
        {.beta1 = 0, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 1.5, .clip_norm = 100},
        {.beta1 = 0.8, .beta2 = 0, .epsilon = 1, .weight_decay = 0.3, .clip_norm = 0.01},
    };
    (void)state;
    size_t n = 0;
    for (size_t policy = 0; policy < sizeof EACH / sizeof *EACH; policy++)
        for (size_t tour = 0; tour < sizeof TOURS / sizeof *TOURS; tour++)
            for (size_t rule = (policy + tour) % 2; rule < sizeof rules / sizeof *rules; rule += 2, n++) {
                if (left_out(n, 5)) continue;
                trained(n % 3 ? ODD_LLAMA : ODD_GPT2, policy, tour, &rules[rule], n % 2 ? ZF_BF16 : ZF_F32);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_adamw_against_float64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
