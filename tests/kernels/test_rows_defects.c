/* Defects of the published ZenFlow that these ops must not have: the numbers are those of the table of defects (Z1 ...), each test says
 * what goes wrong there. Both halves: adamw_rows is the device's update, fold_rows and serve_rows are the CPU's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/reference_rows.h"
#include "tests/kernels/rows_case.h"

#include <math.h>
#include <string.h>

enum { N = 64, SLOTS = 16 };

/* A row that is in one half or the other, with its visible copy. */
struct channel {
    float master[N], m[N], v[N];
    uint32_t t;
    uint16_t visible[N];
};

static const double lr = 1e-3;

static void run(op_call call, const void *args)
{
    size_t d = device_count() - 1;
    struct zf_err e;
    assert_int_equal(call(device_lane(d), args), ZF_OK);
    assert_int_equal(device_sync(d, &e), ZF_OK);
}

static void device_update(struct channel *x, const float *g, float clip, double rate, double beta2, double decay)
{
    run(call_adamw_rows, &(struct zf_adamw_rows_args){.type = ZF_BF16,
                                                      .bus_type = ZF_F32,
                                                      .weights = x->visible,
                                                      .master = x->master,
                                                      .m = x->m,
                                                      .v = x->v,
                                                      .t = &x->t,
                                                      .g = g,
                                                      .rows = 1,
                                                      .cols = N,
                                                      .clip = clip,
                                                      .lr = rate,
                                                      .beta1 = 0.9,
                                                      .beta2 = beta2,
                                                      .eps = 1e-12,
                                                      .decay = decay});
}

/* One update by a gradient that is scale times slot, of either type. */
static void serve(struct channel *x, void *slot, enum zf_dtype type, float scale, double rate, double beta2)
{
    void *visible = x->visible;
    struct zf_entry entry = {{&slot, 1}, scale, rate};
    must_serve(&(struct zf_serve_rows_args){.type = ZF_BF16,
                                            .g_type = type,
                                            .master = x->master,
                                            .m = x->m,
                                            .v = x->v,
                                            .t = &x->t,
                                            .entries = &entry,
                                            .entry_count = 1,
                                            .rows = 1,
                                            .cols = N,
                                            .visible = {&visible, 1},
                                            .beta1 = 0.9,
                                            .beta2 = beta2,
                                            .eps = 1e-12});
}

/* A window of `steps` slots as `mean` has it: folded in order, then one update. `sum` holds what the window before left there. */
static void mean_window(struct channel *x, float *sum, uint16_t (*slots)[N], size_t steps)
{
    void *to = sum;
    for (size_t s = 0; s < steps; s++) {
        void *from = slots[s];
        run(call_fold_rows, &(struct zf_fold_rows_args){ZF_BF16, {&from, 1}, {&to, 1}, 1, N, 1, s > 0});
    }
    serve(x, sum, ZF_F32, 1 / (float)steps, lr, 0.999);
}

static void constant_slots(uint16_t (*slots)[N], float g)
{
    for (size_t s = 0; s < SLOTS; s++)
        for (size_t i = 0; i < N; i++) slots[s][i] = zf_f32_to_bf16(g);
}

/* How far the first element has gone, in rates; and back to 0, so that this is exact. */
static double taken(struct channel *x, double rate)
{
    double step = -(double)x->master[0] / rate;
    memset(x->master, 0, sizeof x->master);
    return step;
}

/* From one half to the other, in the ops that a migration is. */
static void migrate(struct channel *to, const struct channel *from)
{
    const void *source[] = {from->master, from->m, from->v, &from->t};
    void *target[] = {to->master, to->m, to->v, &to->t};
    for (size_t k = 0; k < 4; k++)
        run(call_move_rows, &(struct zf_move_rows_args){.to = target[k], .from = source[k], .rows = 1, .cols = k < 3 ? N : 1});
}

/* Z1: a second moment of bf16 cannot decay. */
static void test_z1_second_moment_decays(void **state)
{
    enum { STEPS = 4000 };
    static struct channel x;
    static struct reference_weight w[N];
    const struct reference_rule rule = {lr, 0.9, 0.999, 1e-12, 0};
    (void)state;
    reseed(51000);
    memset(&x, 0, sizeof x);
    memset(w, 0, sizeof w);
    for (size_t t = 1; t <= STEPS; t++) {
        float g[N];
        double size = 0, expected = 0, v = 0;
        for (size_t i = 0; i < N; i++) g[i] = (float)normal();
        memset(x.master, 0, sizeof x.master);
        device_update(&x, g, 1, lr, 0.999, 0);
        for (size_t i = 0; i < N; i++) {
            w[i].master = 0;
            reference_update(&w[i], &rule, (double)t, (double)g[i]);
            size += fabs((double)x.master[i]);
            expected += fabs(w[i].master);
            v += (double)x.v[i] / N;
        }
        if (t % 2000) continue;
        near("mean update", t, size, expected, 0.01, 0);
        if (t == STEPS) near("second moment", t, v, 1 - pow(0.999, STEPS), 0.03, 0);
    }
}

/* Z2: a count of updates in the type of the weights stops at 256. */
static void test_z2_updates_are_counted(void **state)
{
    static struct channel device, host;
    static uint16_t slots[SLOTS][N];
    float g[N];
    (void)state;
    memset(&device, 0, sizeof device);
    memset(&host, 0, sizeof host);
    constant_slots(slots, 1);
    for (size_t i = 0; i < N; i++) g[i] = 1;
    for (uint32_t n = 1; n <= 5000; n++) {
        device_update(&device, g, 1, lr, 0.999, 0);
        serve(&host, slots[0], ZF_BF16, 1, lr, 0.999);
        if (n == 257 || n == 2049 || n == 5000) assert_true(device.t == n && host.t == n);
    }
    assert_memory_equal(device.master, host.master, sizeof host.master);
}

/* Z3: moments that are zeroed at a selection while the count goes on make updates of 3 to 6 rates. */
static void test_z3_state_migrates(void **state)
{
    static struct channel host, device;
    static uint16_t slots[SLOTS][N];
    float g[N];
    (void)state;
    memset(&host, 0, sizeof host);
    memset(&device, 0xff, sizeof device);
    constant_slots(slots, 0.5f);
    for (size_t i = 0; i < N; i++) g[i] = 0.5f;
    for (size_t n = 0; n < 2000; n++) serve(&host, slots[0], ZF_BF16, 1, lr, 0.999);
    migrate(&device, &host);
    assert_int_equal(device.t, 2000);
    taken(&device, lr);
    for (size_t n = 0; n < 200; n++) {
        device_update(&device, g, 1, lr, 0.999, 0);
        near("update after a selection", n, taken(&device, lr), 1, 1e-3, 0);
    }
    migrate(&host, &device);
    serve(&host, slots[0], ZF_BF16, 1, lr, 0.999);
    near("update after the way back", 0, taken(&host, lr), 1, 1e-3, 0);
    assert_int_equal(host.t, 2201);
}

/* Z4: a CPU half that counts steps where it makes updates takes half a rate at first, later up to 2.6. */
static void test_z4_windows_count_once(void **state)
{
    static struct channel x;
    static uint16_t slots[SLOTS][N];
    float sum[N];
    (void)state;
    constant_slots(slots, 0.25f);
    for (size_t steps = 1; steps <= SLOTS; steps *= 2) {
        memset(&x, 0, sizeof x);
        for (uint32_t n = 1; n <= 120; n++) {
            mean_window(&x, sum, slots, steps);
            assert_int_equal(x.t, n);
            near("update of a window", n, taken(&x, lr), 1, 1e-3, 0);
        }
    }
}

/* Z5: where the bf16 weight is the master small updates are rounded away. */
static void test_z5_masters_are_f32(void **state)
{
    static struct channel device, host;
    static uint16_t slots[SLOTS][N];
    float g[N];
    (void)state;
    memset(&device, 0, sizeof device);
    constant_slots(slots, 1);
    for (size_t i = 0; i < N; i++) device.master[i] = g[i] = 1;
    host = device;
    for (size_t n = 0; n < 1000; n++) {
        device_update(&device, g, 1, 2e-5, 0.999, 0);
        serve(&host, slots[0], ZF_BF16, 1, 2e-5, 0.999);
    }
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs((double)device.master[i] - 0.98) < 1e-4 && fabs((double)host.master[i] - 0.98) < 1e-4);
        assert_true(number_of(device.visible, ZF_BF16, i) == 0.98046875 && number_of(host.visible, ZF_BF16, i) == 0.98046875);
    }
}

/* Z6: a master that is made anew of the bf16 weight at each selection never leaves 1. */
static void test_z6_masters_migrate(void **state)
{
    static struct channel host, device;
    static uint16_t slots[SLOTS][N];
    (void)state;
    memset(&host, 0, sizeof host);
    constant_slots(slots, 1);
    for (size_t i = 0; i < N; i++) host.master[i] = 1;
    for (size_t n = 1; n <= 100; n++) {
        serve(&host, slots[0], ZF_BF16, 1, 2e-5, 0.999);
        if (n % 10) continue;
        migrate(&device, &host);
        memset(&host, 0xff, sizeof host);
        migrate(&host, &device);
    }
    for (size_t i = 0; i < N; i++) assert_true(fabs((double)host.master[i] - 0.998) < 1e-4);
}

/* Z8: the device half's gradients are clipped, as the CPU half's are, whatever the window. */
static void test_z8_gradients_are_clipped(void **state)
{
    float g[N], clip = (float)(1 / (10 + 1e-6)), sum[N];
    void *from = g, *to = sum;
    (void)state;
    for (size_t i = 0; i < N; i++) g[i] = 10 / sqrtf(N);
    for (size_t steps = 1; steps <= SLOTS; steps *= 2) {
        static struct channel device, mean, each;
        memset(&device, 0, sizeof device);
        mean = each = device;
        device_update(&device, g, clip, lr, 0.999, 0);
        serve(&each, g, ZF_F32, clip, lr, 0.999);
        for (size_t s = 0; s < steps; s++)
            run(call_fold_rows, &(struct zf_fold_rows_args){ZF_F32, {&from, 1}, {&to, 1}, 1, N, clip, s > 0});
        serve(&mean, sum, ZF_F32, 1 / (float)steps, lr, 0.999);
        for (size_t i = 0; i < N; i++) {
            double expected = 0.1 * (double)g[i] / (10 + 1e-6);
            near("first moment on the device", i, (double)device.m[i], expected, 1e-6, 0);
            near("first moment of a window's first entry", i, (double)each.m[i], expected, 1e-6, 0);
            near("first moment of a window's mean", i, (double)mean.m[i], expected, 1e-6, 0);
        }
    }
}

/* Z9, Z26: windows of any length follow one another: each is the mean of its own steps, nothing is left of the window before. */
static void test_z9_windows_are_means_of_their_steps(void **state)
{
    static struct channel x;
    static uint16_t slots[SLOTS][N];
    float sum[N];
    (void)state;
    for (size_t i = 0; i < N; i++) sum[i] = NAN;
    constant_slots(slots, 0.75f);
    for (size_t window = 0; window < 20; window++) {
        size_t steps = 1 + window * 7 % SLOTS;
        memset(&x, 0, sizeof x);
        mean_window(&x, sum, slots, steps);
        for (size_t i = 0; i < N; i++) near("first moment", window, (double)x.m[i], 0.1 * 0.75, 1e-6, 0);
    }
}

/* Z10: with moments for even and for odd windows, gradients that change their sign make updates of a whole rate. */
static void test_z10_there_is_one_state(void **state)
{
    static struct channel x;
    static uint16_t slots[SLOTS][N];
    float sum[N];
    (void)state;
    memset(&x, 0, sizeof x);
    for (size_t n = 1; n <= 200; n++) {
        constant_slots(slots, n % 2 ? 1 : -1);
        mean_window(&x, sum, slots, 4);
        double step = fabs(taken(&x, lr));
        if (n % 2 == 0 || n > 100) near("update", n, step, 0.1 / 1.9, 1e-3, 0);
    }
}

/* A step that is not applied is one that is not issued; one whose rate is 0 leaves weights, and decay follows the rate. */
static void test_rate_zero_keeps_weights(void **state)
{
    static struct channel x;
    float g[N];
    (void)state;
    memset(&x, 0, sizeof x);
    for (size_t i = 0; i < N; i++) x.master[i] = g[i] = 1 + (float)i;
    device_update(&x, g, 1, 0, 0.999, 0.1);
    for (size_t i = 0; i < N; i++) assert_true(x.master[i] == 1 + (float)i && x.m[i] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_z1_second_moment_decays),  cmocka_unit_test(test_z2_updates_are_counted),
        cmocka_unit_test(test_z3_state_migrates),        cmocka_unit_test(test_z4_windows_count_once),
        cmocka_unit_test(test_z5_masters_are_f32),       cmocka_unit_test(test_z6_masters_migrate),
        cmocka_unit_test(test_z8_gradients_are_clipped), cmocka_unit_test(test_z9_windows_are_means_of_their_steps),
        cmocka_unit_test(test_z10_there_is_one_state),   cmocka_unit_test(test_rate_zero_keeps_weights),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
