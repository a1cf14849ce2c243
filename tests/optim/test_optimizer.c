/* Masters and the visible weights that are made from them, on a model that is nothing but four parameters. */
#include "core/base/floats.h"
#include "core/optim/optimizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4, ELEMENTS = 5008 };

static struct zf_err e;

static void ok(enum zf_status s)
{
    if (s) fail_msg("%s: %s", e.where, e.message);
}

struct fixture {
    struct zf_param list[COUNT];
    struct zf_model model;
    struct zf_optimizer optimizer;
};

static float *block(struct zf_device *d, size_t bytes)
{
    void *p;
    ok(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &p, &e));
    return p;
}

/* frozen: the parameter that is, or -1. Gaps lie behind the first two. */
static void start(struct fixture *f, enum zf_dtype dtype, int frozen)
{
    static const struct zf_param params[COUNT] = {
        {.name = "a", .rows = 3, .cols = 37, .matrix = true, .offset = 0},
        {.name = "b", .rows = 1, .cols = 50, .offset = 112},
        {.name = "c", .rows = 1, .cols = 32, .offset = 176},
        {.name = "d", .rows = 44, .cols = 109, .matrix = true, .offset = 208},
    };
    memset(f, 0, sizeof *f);
    struct zf_model *m = &f->model;
    memcpy(f->list, params, sizeof params);
    if (frozen >= 0) f->list[frozen].frozen = true;
    m->params = (struct zf_params){.list = f->list, .count = COUNT, .elements = ELEMENTS};
    ok(zf_device_open(&m->device, "host", &(struct zf_device_options){.threads = 2}, &e));
    ok(m->device->type->lane_new(m->device, "compute", &m->lane, &e));
    m->dtype = dtype;
    m->master = block(m->device, ELEMENTS * sizeof(float));
    m->grad = block(m->device, ELEMENTS * sizeof(float));
    m->weights = dtype == ZF_F32 ? m->master : block(m->device, ELEMENTS * sizeof(uint16_t));
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = f->list[i].offset; k < f->list[i].offset + f->list[i].rows * f->list[i].cols; k++) {
            m->master[k] = 1 + (float)k / ELEMENTS;
            m->grad[k] = (k * 7 % 11 < 5 ? 1.0f : -1.0f) * (1 + (float)(k % 13));
            if (dtype == ZF_BF16) ((uint16_t *)m->weights)[k] = zf_f32_to_bf16(m->master[k]);
        }
    ok(zf_optimizer_init(&f->optimizer, m, &e));
}

static void stop(struct fixture *f)
{
    struct zf_model *m = &f->model;
    zf_optimizer_free(&f->optimizer);
    if (m->weights != m->master) m->device->type->free(m->device, m->weights);
    m->device->type->free(m->device, m->master);
    m->device->type->free(m->device, m->grad);
    m->device->type->lane_free(m->lane);
    m->device->type->close(m->device);
}

static struct zf_adam_rule rule_of(bool stochastic, uint64_t seed)
{
    return (struct zf_adam_rule){
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .stochastic = stochastic, .seed = seed};
}

static void steps(struct fixture *f, int count, bool stochastic, uint64_t seed)
{
    struct zf_adam_rule rule = rule_of(stochastic, seed);
    struct zf_step_norm norm;
    for (int i = 0; i < count; i++) {
        ok(zf_optimizer_begin_loss(&f->optimizer, &e)); /* gradients stay as they are */
        ok(zf_optimizer_step(&f->optimizer, &rule, 1e-4, &norm, &e));
        assert_true(norm.apply);
    }
}

static void masters_are_those_of_f32(void **state)
{
    (void)state;
    struct fixture a, b;
    start(&a, ZF_F32, -1);
    start(&b, ZF_BF16, -1);
    steps(&a, 3, false, 1);
    steps(&b, 3, true, 1);
    assert_memory_equal(a.model.master, b.model.master, ELEMENTS * sizeof(float));
    stop(&a);
    stop(&b);
}

static void to_nearest(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, ZF_BF16, 1);
    const uint16_t *w = f.model.weights;
    uint16_t before[ELEMENTS];
    memcpy(before, w, sizeof before);
    steps(&f, 2, false, 1);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = f.list[i].offset; k < f.list[i].offset + f.list[i].rows * f.list[i].cols; k++)
            assert_int_equal(w[k], i == 1 ? before[k] : zf_f32_to_bf16(f.model.master[k]));
    for (size_t k = 162; k < 176; k++) assert_int_equal(w[k], 0); /* a gap */
    stop(&f);
}

/* One of the two neighbours, on average the master; another seed and another step choose otherwise. */
static void by_chance(void **state)
{
    (void)state;
    struct fixture f, other;
    start(&f, ZF_BF16, -1);
    start(&other, ZF_BF16, -1);
    steps(&f, 1, true, 1);
    steps(&other, 1, true, 2);
    const uint16_t *w = f.model.weights, *v = other.model.weights;
    double off = 0, unit = 1.0 / 128; /* of bf16 in [1, 2) */
    size_t n = 0, differ = 0, up = 0;
    for (size_t k = f.list[3].offset; k < f.list[3].offset + 44 * 109; k++, n++) {
        double d = (double)zf_bf16_to_f32(w[k]) - f.model.master[k];
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

/* What is frozen changes which elements go in one pass, and no element's rounding. */
static void rounding_depends_on_the_element_alone(void **state)
{
    (void)state;
    struct fixture a, b;
    start(&a, ZF_BF16, -1);
    start(&b, ZF_BF16, 1);
    steps(&a, 2, true, 5);
    steps(&b, 2, true, 5);
    const uint16_t *w = a.model.weights, *v = b.model.weights;
    assert_memory_equal(w, v, 112 * sizeof *w);
    assert_memory_equal(w + 176, v + 176, (ELEMENTS - 176) * sizeof *w);
    assert_memory_not_equal(w + 112, v + 112, 50 * sizeof *w);
    stop(&a);
    stop(&b);
}

static void what_is_not_finite_moves_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct zf_adam_rule rule = rule_of(true, 1);
    struct zf_step_norm norm;
    start(&f, ZF_BF16, -1);
    uint16_t before[ELEMENTS];
    memcpy(before, f.model.weights, sizeof before);
    f.model.grad[300] = INFINITY;
    ok(zf_optimizer_begin_loss(&f.optimizer, &e));
    ok(zf_optimizer_step(&f.optimizer, &rule, 1e-4, &norm, &e));
    assert_false(norm.apply);
    assert_memory_equal(before, f.model.weights, sizeof before);
    assert_int_equal(f.optimizer.updates, 0);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masters_are_those_of_f32), cmocka_unit_test(to_nearest),
                                       cmocka_unit_test(by_chance), cmocka_unit_test(rounding_depends_on_the_element_alone),
                                       cmocka_unit_test(what_is_not_finite_moves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
