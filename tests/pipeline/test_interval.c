/* update_interval = auto as a pure function: where it settles, that noise does not move it, that it stays within its limits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/pipeline/interval.h"

/* A machine: seconds of a device step, of the cpu's 28 bytes a parameter, of the bus a step. */
struct machine {
    double step, cpu, d2h, h2d;
};

static struct zf_interval_look look_at(const struct machine *m, const struct zf_interval *v, double noise)
{
    uint64_t steps = zf_interval_steps(v);
    double rounds = (double)steps / v->now, fixed = v->mean ? 30 : 26;
    return (struct zf_interval_look){.steps = steps,
                                     .compute = m->step * (double)steps,
                                     .cpu = noise * rounds * m->cpu * (fixed + v->bus * v->now) / 28,
                                     .d2h = m->d2h * (double)steps,
                                     .h2d = rounds * m->h2d};
}

static uint32_t settle(const struct machine *m, struct zf_interval v, unsigned *changes)
{
    *changes = 0;
    for (int i = 0; i < 100; i++) {
        struct zf_interval_look l = look_at(m, &v, i % 2 ? 1.04 : 0.96);
        uint32_t s = zf_interval_decide(&v, &l);
        *changes += s != v.now;
        v.now = s;
    }
    return v.now;
}

static void test_settles(void **state)
{
    (void)state;
    const struct {
        struct machine machine;
        bool mean;
        unsigned bus;
        uint32_t least, most;
    } cases[] = {
        {{1, 0.1, 0.1, 0.1}, false, 2, 1, 1},   /* the CPU is quick: nothing need be late */
        {{1, 4.0, 0.1, 0.2}, false, 2, 6, 9},   /* Llama-2-7B on four A100: 4600 ms of CPU against 1000 */
        {{1, 100, 0.1, 0.2}, false, 2, 16, 16}, /* hopeless: as long as may be */
        {{1, 0.5, 0.1, 3.0}, false, 2, 4, 5},   /* the way up is what is slow */
        {{1, 2.5, 0.1, 0.2}, true, 2, 4, 6},    {{1, 4.0, 0.1, 0.2}, false, 4, 12, 14}, /* f32 on the bus */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned changes, again;
        uint32_t s =
            settle(&cases[i].machine, (struct zf_interval){.now = 4, .most = 16, .bus = cases[i].bus, .mean = cases[i].mean}, &changes);
        assert_in_range(s, cases[i].least, cases[i].most);
        assert_true(changes <= 2);
        assert_int_equal(
            settle(&cases[i].machine, (struct zf_interval){.now = s, .most = 16, .bus = cases[i].bus, .mean = cases[i].mean}, &again), s);
        assert_int_equal(again, 0);
    }
}

/* What crosses the bus is read, so that another S is foretold rightly: (26 + 4S) 4 / 28 of a step, 0.9 of S steps from S = 12 on. */
static void test_what_is_foretold(void **state)
{
    (void)state;
    struct machine m = {1, 4, 0.1, 0.1};
    struct zf_interval v = {.now = 1, .most = 32, .bus = 4};
    struct zf_interval_look l = look_at(&m, &v, 1);
    assert_int_equal(zf_interval_decide(&v, &l), 1);
    assert_int_equal(zf_interval_decide(&v, &l), 12);
}

static void test_one_slow_look_changes_nothing(void **state)
{
    (void)state;
    struct machine m = {1, 1.5, 0.1, 0.1};
    struct zf_interval v = {.now = 4, .most = 16, .bus = 2};
    for (int i = 0; i < 12; i++) {
        struct zf_interval_look l = look_at(&m, &v, i % 3 == 2 ? 9 : 1);
        assert_int_equal(zf_interval_decide(&v, &l), 4);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct zf_interval v = {.now = 12, .most = 5, .bus = 2};
    struct machine m = {1, 100, 0.1, 0.1};
    struct zf_interval_look l = look_at(&m, &v, 1), nothing = {0};
    assert_int_equal(zf_interval_decide(&v, &nothing), 12); /* nothing was measured */
    assert_int_equal(zf_interval_decide(&v, &l), 5);        /* the limit was lowered */
    assert_true(v.share > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settles), cmocka_unit_test(test_what_is_foretold),
                                       cmocka_unit_test(test_one_slow_look_changes_nothing), cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
