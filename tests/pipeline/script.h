/* Runs what a script says through the pipeline and tells what came of it: the other side of fuzz_oracle.py, which writes scripts, runs them
 * through the oracle too, and compares.
 *
 * Script: {"model": a folder, "ids": [..], "length": tokens of a row, "options": {..}, "rule": {..}, "steps": [step, ..], "undrained": at
 * the end, "out": a file}, and how: "threads", "jitter", "two", "recompute", "synchronous", "bf16", "stochastic", "grain": [piece, chunk,
 * page].
 *
 * Step: {"rate", "before": [command, ..], "bad", "validate"}. Command: {"set": {option: value}, "rule": {name: value}}, or {"do": "drain",
 * "settle" or "reselect"}. Bad: "scale" (all gradients are), "loss" (it alone is), "none" (no target tokens), or a parameter that has one
 * element that is not finite.
 *
 * Result: {"steps": [{"loss", "norm", "selected": {matrix: [channels]}, "validation"}], "parameters": [{"name", "rows", "cols",
 * "transposed", "matrix", "t": [..]}], "last": loss of the first rows afterwards}. Out: of each parameter weights, m, v, in fp32. */
#ifndef ZF_TESTS_PIPELINE_SCRIPT_H
#define ZF_TESTS_PIPELINE_SCRIPT_H

#include "core/pipeline/impl.h"
#include "core/pipeline/measure.h"
#include "support.h"

/* The parameter whose gradients are spoilt where they are complete, or NULL. */
static const char *spoilt;

static void put(struct zf_pipeline *p, void *to, const void *from, size_t bytes)
{
    ok(p->device->type->copy(p->compute, to, from, bytes));
    ok(p->device->type->lane_sync(p->compute, &e));
}

static void spoil(struct zf_pipeline *p, const struct zf_param *q, int of, int layer)
{
    const float bad = q->matrix ? NAN : INFINITY;
    if (!spoilt || of != layer || strcmp(q->name, spoilt)) return;
    put(p, p->model->grad + q->offset + q->rows * q->cols / 2, &bad, sizeof bad);
}

static enum zf_status after_layer(void *ctx, int layer, struct zf_err *err)
{
    struct zf_pipeline *p = ctx;
    for (size_t i = 0; p->last_micro_batch && i < p->matrices; i++) spoil(p, p->matrix[i].param, p->matrix[i].layer, layer);
    for (size_t i = 0; p->last_micro_batch && i < p->vectors; i++) spoil(p, p->vector[i].param, p->vector[i].layer, layer);
    return zf_pipeline_after_layer(p, layer, err);
}

static void set_rule(struct zf_adam_rule *r, const json_t *rule)
{
    const struct {
        const char *name;
        double *place;
    } places[] = {{"beta1", &r->beta1},
                  {"beta2", &r->beta2},
                  {"epsilon", &r->epsilon},
                  {"weight_decay", &r->weight_decay},
                  {"clip_norm", &r->clip_norm}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const json_t *x = json_object_get(rule, places[i].name);
        if (x) *places[i].place = json_number_value(x);
    }
}

static void command(struct run *r, const json_t *c)
{
    const char *what = json_string_value(json_object_get(c, "do"));
    if (!what) {
        set_rule(&r->rule, json_object_get(c, "rule"));
        run_change(r, json_object_get(c, "set"));
    } else if (!strcmp(what, "drain")) {
        ok(zf_pipeline_drain(&r->pipeline, &e));
    } else if (!strcmp(what, "settle")) {
        ok(zf_pipeline_settle(&r->pipeline, &e));
    } else if (!strcmp(what, "reselect")) {
        zf_pipeline_reselect(&r->pipeline);
    } else {
        fail_msg("unknown command %s", what);
    }
}

static struct zf_step_norm script_step(struct run *r, uint64_t t, double rate, const char *bad)
{
    struct zf_pipeline *p = &r->pipeline;
    struct zf_step_norm n = {.loss = NAN};
    double labels = (double)(GOLDEN_ROWS * (r->s->length - 1));
    size_t parts = r->how.two_micro_batches ? 2 : 1;
    if (bad && !strcmp(bad, "none")) {
        ok(zf_pipeline_skip(p, rate, &e));
        return n;
    }
    bool scale = bad && !strcmp(bad, "scale"), loss = bad && !strcmp(bad, "loss");
    spoilt = bad && !scale && !loss ? bad : NULL;
    ok(zf_pipeline_begin(p, rate, t % 3 == 0, &e));
    for (size_t i = 0; i < parts; i++) {
        fill_batch(r, (t - 1) * GOLDEN_ROWS + i * (GOLDEN_ROWS / parts), GOLDEN_ROWS / parts);
        if (i == parts - 1) zf_pipeline_last(p);
        ok(zf_model_step(&r->model, &r->batch, true, scale ? INFINITY : (float)(1 / labels), p->loss, &e));
    }
    if (loss) put(p, p->loss, &(double){INFINITY}, sizeof(double));
    spoilt = NULL;
    ok(zf_pipeline_finish(p, &n, &e));
    if (n.apply != !bad) fail_msg("step %d: apply is %d", (int)t, (int)n.apply);
    n.loss /= labels;
    return n;
}

static double validate(struct run *r, uint64_t t)
{
    double loss;
    ok(zf_pipeline_begin_loss(&r->pipeline, &e));
    fill_batch(r, (t - 1) * GOLDEN_ROWS, GOLDEN_ROWS);
    ok(zf_model_step(&r->model, &r->batch, false, 0, r->pipeline.loss, &e));
    ok(zf_pipeline_loss(&r->pipeline, &loss, &e));
    return loss / (double)(GOLDEN_ROWS * (r->s->length - 1));
}

static json_t *selected(const struct run *r, uint64_t t)
{
    json_t *all = json_object();
    for (size_t i = 0; i < r->pipeline.matrices; i++) {
        const struct zf_matrix *x = &r->pipeline.matrix[i];
        if (x->window.selected != t) continue;
        json_t *list = json_array();
        for (size_t k = 0; k < x->device.rows; k++) json_array_append_new(list, json_integer(x->order[k]));
        json_object_set_new(all, x->param->name, list);
    }
    return all;
}

/* A number that JSON has a word for. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* Moments and counts of a matrix, by channel, from whichever half has them. */
static void state_of(const struct run *r, const struct zf_matrix *x, float *m, float *v, uint32_t *t)
{
    if (!x->assigned) return;
    for (size_t i = 0; i < x->channels; i++) {
        const struct zf_half *h = i < x->device.rows ? &x->device : &x->cpu;
        size_t row = i < x->device.rows ? i : i - x->device.rows, to = x->order[i] * x->length;
        run_peek(r, m + to, h->m + row * x->length, x->length * sizeof *m);
        run_peek(r, v + to, h->v + row * x->length, x->length * sizeof *v);
        run_peek(r, &t[x->order[i]], &h->t[row], sizeof *t);
    }
}

static json_t *write_parameter(const struct run *r, const struct zf_param *q, FILE *out)
{
    size_t n = q->rows * q->cols;
    float *w = run_weights(r, q), *m = calloc(2 * n, sizeof *m), *v = m + n;
    uint32_t *t = calloc(q->rows, sizeof *t);
    assert_true(m && t);
    for (size_t i = 0; i < r->pipeline.matrices; i++)
        if (r->pipeline.matrix[i].param == q) state_of(r, &r->pipeline.matrix[i], m, v, t);
    for (size_t i = 0; i < r->pipeline.vectors; i++)
        if (r->pipeline.vector[i].param == q) {
            const struct zf_half *h = &r->pipeline.vector[i].state;
            run_peek(r, m, h->m, n * sizeof *m);
            run_peek(r, v, h->v, n * sizeof *v);
            run_peek(r, t, h->t, sizeof *t);
        }
    if (out) assert_int_equal(fwrite(w, sizeof *w, n, out) + fwrite(m, sizeof *m, 2 * n, out), 3 * n);
    json_t *counts = json_array();
    for (size_t i = 0; i < q->rows; i++) json_array_append_new(counts, json_integer(t[i]));
    free(w);
    free(m);
    free(t);
    return json_pack("{s:s, s:i, s:i, s:b, s:b, s:o}", "name", q->name, "rows", (int)q->rows, "cols", (int)q->cols, "transposed",
                     q->transposed, "matrix", q->matrix, "t", counts);
}

static void take_source(struct source *s, struct zf_hf *hf, const json_t *script)
{
    const json_t *ids = json_object_get(script, "ids");
    size_t n = json_array_size(ids), length = (size_t)json_integer_value(json_object_get(script, "length"));
    ok(zf_hf_open(hf, json_string_value(json_object_get(script, "model")), &e));
    *s = (struct source){.hf = hf, .rows = n / length, .length = length, .ids = malloc(n * sizeof *s->ids)};
    assert_non_null(s->ids);
    for (size_t i = 0; i < n; i++) s->ids[i] = json_integer_value(json_array_get(ids, i));
    ok(zf_model_config_read(&s->config, hf->config, "config.json", &e));
}

static void take_grain(const json_t *grain)
{
    if (!grain) return;
    zf_pipeline_grain = (struct zf_pipeline_grain){(size_t)json_integer_value(json_array_get(grain, 0)),
                                                   (size_t)json_integer_value(json_array_get(grain, 1)),
                                                   (size_t)json_integer_value(json_array_get(grain, 2))};
}

static inline json_t *run_script(const json_t *script)
{
    struct zf_hf hf;
    struct source s;
    struct run r;
    struct run_options how = {.dtype = json_is_true(json_object_get(script, "bf16")) ? ZF_BF16 : ZF_F32,
                              .threads = (int)json_integer_value(json_object_get(script, "threads")),
                              .jitter = (uint64_t)json_integer_value(json_object_get(script, "jitter")),
                              .two_micro_batches = json_is_true(json_object_get(script, "two")),
                              .recompute = json_is_true(json_object_get(script, "recompute")),
                              .synchronous = json_is_true(json_object_get(script, "synchronous")),
                              .stochastic = json_is_true(json_object_get(script, "stochastic"))};
    take_source(&s, &hf, script);
    take_grain(json_object_get(script, "grain"));
    run_prepare(&r, &s, &how);
    run_set_all(&r, json_object_get(script, "options"));
    set_rule(&r.rule, json_object_get(script, "rule"));
    run_start(&r);
    r.model.hooks.after_layer = after_layer;
    json_t *steps = json_array(), *parameters = json_array(), *c;
    const json_t *all = json_object_get(script, "steps");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        size_t k;
        json_array_foreach(json_object_get(one, "before"), k, c) command(&r, c);
        double loss = json_is_true(json_object_get(one, "validate")) ? validate(&r, i + 1) : NAN;
        struct zf_step_norm n =
            script_step(&r, i + 1, json_number_value(json_object_get(one, "rate")), json_string_value(json_object_get(one, "bad")));
        json_array_append_new(steps, json_pack("{s:o, s:o, s:o, s:o}", "loss", number(n.loss), "norm", number(n.norm), "validation",
                                               number(loss), "selected", selected(&r, i + 1)));
    }
    if (json_is_true(json_object_get(script, "undrained")))
        ok(zf_pipeline_settle(&r.pipeline, &e));
    else
        ok(zf_pipeline_drain(&r.pipeline, &e));
    const char *path = json_string_value(json_object_get(script, "out"));
    FILE *out = path ? fopen(path, "wb") : NULL;
    double last = validate(&r, 1);
    for (size_t i = 0; i < r.model.params.count; i++) json_array_append_new(parameters, write_parameter(&r, &r.model.params.list[i], out));
    if (out) assert_int_equal(fclose(out), 0);
    run_close(&r);
    source_free(&s);
    zf_hf_close(&hf);
    return json_pack("{s:o, s:o, s:o}", "steps", steps, "parameters", parameters, "last", number(last));
}

#endif
