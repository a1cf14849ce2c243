/* Masters and the visible weights that are made from them, on a model that is nothing but four parameters, whoever owns its channels. */
#include "core/base/floats.h"
#include "support.h"

enum { COUNT = 4, ELEMENTS = 5008 };

struct fixture {
    struct zf_param list[COUNT];
    struct zf_model model;
    struct zf_pipeline pipeline;
};

/* Policies under which every gradient is applied in its step. */
static const struct zf_policy owners[] = {{.ratio = 1, .interval = 1, .cpu_half = true}, {.ratio = 0, .interval = 1, .cpu_half = true}};
#define EACH_OWNER(policy) for (const struct zf_policy *policy = owners; policy < owners + 2; policy++)

static void *block(struct zf_device *d, size_t bytes)
{
    void *p;
    ok(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &p, &e));
    return p;
}

/* frozen: the parameter that is, or -1. Gaps lie behind the first two. */
static void start(struct fixture *f, const struct zf_policy *owner, enum zf_dtype dtype, int frozen, bool stochastic, uint64_t seed)
{
    static const struct zf_param params[COUNT] = {
        {.name = "a", .rows = 3, .cols = 37, .matrix = true, .offset = 0},
        {.name = "b", .rows = 1, .cols = 50, .offset = 112},
        {.name = "c", .rows = 1, .cols = 32, .offset = 176},
        {.name = "d", .rows = 44, .cols = 109, .matrix = true, .offset = 208},
    };
    const struct zf_adam_rule rule = {
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .stochastic = stochastic, .seed = seed};
    struct zf_policy policy = *owner;
    memset(f, 0, sizeof *f);
    struct zf_model *m = &f->model;
    memcpy(f->list, params, sizeof params);
    if (frozen >= 0) f->list[frozen].frozen = true;
    m->params = (struct zf_params){.list = f->list, .count = COUNT, .elements = ELEMENTS};
    ok(zf_device_open(&m->device, "host", &(struct zf_device_options){.threads = 2}, &e));
    ok(m->device->type->lane_new(m->device, "compute", &m->lane, &e));
    m->dtype = policy.bus = dtype;
    m->master = block(m->device, ELEMENTS * sizeof(float));
    m->grad = block(m->device, ELEMENTS * sizeof(float));
    m->weights = dtype == ZF_F32 ? (void *)m->master : block(m->device, ELEMENTS * sizeof(uint16_t));
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = f->list[i].offset; k < f->list[i].offset + f->list[i].rows * f->list[i].cols; k++) {
            m->master[k] = 1 + (float)k / ELEMENTS;
            if (dtype == ZF_BF16) ((uint16_t *)m->weights)[k] = zf_f32_to_bf16(m->master[k]);
        }
    ok(zf_pipeline_open(&f->pipeline, m, NULL, NULL, &policy, &rule, &e));
}

static void stop(struct fixture *f)
{
    struct zf_model *m = &f->model;
    zf_pipeline_close(&f->pipeline);
    if (m->weights != m->master) m->device->type->free(m->device, m->weights);
    m->device->type->free(m->device, m->master);
    m->device->type->free(m->device, m->grad);
    m->device->type->lane_free(m->lane);
    m->device->type->close(m->device);
}

/* The same gradients in every step; all parameters are of one layer. */
static struct zf_step_norm step(struct fixture *f, bool spoilt)
{
    struct zf_model *m = &f->model;
    struct zf_step_norm norm;
    ok(zf_pipeline_begin(&f->pipeline, 1e-4, false, &e));
    ok(m->device->type->lane_sync(m->lane, &e));
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = f->list[i].offset; k < f->list[i].offset + f->list[i].rows * f->list[i].cols; k++)
            m->grad[k] = (k * 7 % 11 < 5 ? 1.0f : -1.0f) * (1 + (float)(k % 13));
    if (spoilt) m->grad[300] = INFINITY;
    zf_pipeline_last(&f->pipeline);
    ok(m->hooks.after_layer(m->hooks.ctx, 0, &e));
    ok(zf_pipeline_finish(&f->pipeline, &norm, &e));
    return norm;
}

static void steps(struct fixture *f, int count)
{
    for (int i = 0; i < count; i++) assert_true(step(f, false).apply);
    ok(zf_pipeline_settle(&f->pipeline, &e));
}

/* As they lie in the model: gaps are zeros. */
static void take_masters(struct fixture *f, float out[ELEMENTS])
{
    memset(out, 0, ELEMENTS * sizeof *out);
    for (size_t i = 0; i < COUNT; i++) ok(zf_pipeline_masters(&f->pipeline, &f->list[i], out + f->list[i].offset, &e));
}

static void masters_are_those_of_f32(void **state)
{
    (void)state;
    EACH_OWNER(owner)
    {
        struct fixture a, b;
        static float x[ELEMENTS], y[ELEMENTS];
        start(&a, owner, ZF_F32, -1, false, 1);
        start(&b, owner, ZF_BF16, -1, true, 1);
        steps(&a, 3);
        steps(&b, 3);
        take_masters(&a, x);
        take_masters(&b, y);
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(x, a.model.weights, sizeof x);
        stop(&a);
        stop(&b);
    }
}

static void to_nearest(void **state)
{
    (void)state;
    EACH_OWNER(owner)
    {
        struct fixture f;
        static float masters[ELEMENTS];
        start(&f, owner, ZF_BF16, 1, false, 1);
        const uint16_t *w = f.model.weights;
        uint16_t before[ELEMENTS];
        memcpy(before, w, sizeof before);
        steps(&f, 2);
        take_masters(&f, masters);
        for (size_t i = 0; i < COUNT; i++)
            for (size_t k = f.list[i].offset; k < f.list[i].offset + f.list[i].rows * f.list[i].cols; k++)
                assert_int_equal(w[k], i == 1 ? before[k] : zf_f32_to_bf16(masters[k]));
        for (size_t k = 162; k < 176; k++) assert_int_equal(w[k], 0); /* a gap */
        stop(&f);
    }
}

/* One of the two neighbours, on average the master; another seed and another step choose otherwise. */
static void by_chance(void **state)
{
    (void)state;
    EACH_OWNER(owner)
    {
        struct fixture f, other;
        static float masters[ELEMENTS];
        start(&f, owner, ZF_BF16, -1, true, 1);
        start(&other, owner, ZF_BF16, -1, true, 2);
        steps(&f, 1);
        steps(&other, 1);
        take_masters(&f, masters);
        const uint16_t *w = f.model.weights, *v = other.model.weights;
        double off = 0, unit = 1.0 / 128; /* of bf16 in [1, 2) */
        size_t n = 0, differ = 0, up = 0;
        for (size_t k = f.list[3].offset; k < f.list[3].offset + 44 * 109; k++, n++) {
            double d = (double)zf_bf16_to_f32(w[k]) - masters[k];
            assert_true(fabs(d) < unit);
            off += d / unit;
            up += d > 0;
            differ += w[k] != v[k];
        }
        assert_true(up > n / 3 && up < 2 * n / 3);
        assert_true(fabs(off / (double)n) < 4 * 0.41 / sqrt((double)n)); /* 0.41: the standard deviation of one, over uniform places */
        assert_true(differ > n / 5 && differ < n / 2);                   /* a third is expected */
        stop(&f);
        stop(&other);
    }
}

/* Neither what is frozen nor who owns it changes an element's rounding. */
static void rounding_depends_on_the_element_alone(void **state)
{
    (void)state;
    struct fixture a;
    start(&a, &owners[0], ZF_BF16, -1, true, 5);
    steps(&a, 2);
    const uint16_t *w = a.model.weights;
    EACH_OWNER(owner)
    {
        struct fixture b;
        start(&b, owner, ZF_BF16, 1, true, 5);
        steps(&b, 2);
        const uint16_t *v = b.model.weights;
        assert_memory_equal(w, v, 112 * sizeof *w);
        assert_memory_equal(w + 176, v + 176, (ELEMENTS - 176) * sizeof *w);
        assert_memory_not_equal(w + 112, v + 112, 50 * sizeof *w);
        stop(&b);
    }
    stop(&a);
}

static void what_is_not_finite_moves_nothing(void **state)
{
    (void)state;
    EACH_OWNER(owner)
    {
        struct fixture f;
        start(&f, owner, ZF_BF16, -1, true, 1);
        uint16_t before[ELEMENTS];
        memcpy(before, f.model.weights, sizeof before);
        assert_false(step(&f, true).apply);
        ok(zf_pipeline_settle(&f.pipeline, &e));
        assert_memory_equal(before, f.model.weights, sizeof before);
        for (size_t i = 0; i < f.pipeline.matrices; i++) {
            const struct zf_matrix *x = &f.pipeline.matrix[i];
            const uint32_t *t = x->device.rows ? x->device.t : x->cpu.t;
            for (size_t r = 0; r < x->channels; r++) assert_int_equal(t[r], 0);
        }
        for (size_t i = 0; i < f.pipeline.vectors; i++) assert_int_equal(*f.pipeline.vector[i].state.t, 0);
        stop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masters_are_those_of_f32), cmocka_unit_test(to_nearest),
                                       cmocka_unit_test(by_chance), cmocka_unit_test(rounding_depends_on_the_element_alone),
                                       cmocka_unit_test(what_is_not_finite_moves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
