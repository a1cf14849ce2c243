/* What is peculiar to bf16: casts, bit by bit, and the two ways AdamW rounds the weights. Other ops: test_ops.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void run(size_t device, op_call call, const void *args)
{
    struct zf_err e;
    assert_int_equal(call(device_lane(device), args), ZF_OK);
    assert_int_equal(device_sync(device, &e), ZF_OK);
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return p;
}

/* Every bf16 becomes the float with its bits, and that the same bf16 again (a signalling NaN a quiet one). */
static void test_all_bf16(void **state)
{
    enum { N = 65536 };
    static uint16_t h[N], again[N];
    static float f[N];
    (void)state;
    for (size_t i = 0; i < N; i++) h[i] = (uint16_t)i;
    for (size_t d = 0; d < device_count(); d++) {
        run(d, call_cast, &(struct zf_cast_args){.type = ZF_F32, .from_type = ZF_BF16, .to = f, .from = h, .n = N});
        run(d, call_cast, &(struct zf_cast_args){.type = ZF_BF16, .from_type = ZF_F32, .to = again, .from = f, .n = N});
        for (size_t i = 0; i < N; i++) {
            bool nan = (i & 0x7fff) > 0x7f80;
            assert_int_equal(zf_bits_from_float(f[i]), (uint32_t)i << 16);
            assert_int_equal(again[i], nan ? i | 0x40 : i);
        }
    }
}

/* Below, at and above each tie, of normal and denormal numbers, up to infinity; NaNs whose payload lies in what is cut off. */
static void test_rounding(void **state)
{
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    static const struct {
        uint32_t from;
        uint16_t to;
    } known[] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x00000001, 0},      {0x00008000, 0},
                 {0x00008001, 1},      {0x00018000, 2},      {0x807f8000, 0x8080}, {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80},
                 {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xff80ffff, 0xffc0},
                 {0x7fa58000, 0x7fe5}, {0x80000000, 0x8000}};
    enum { KNOWN = sizeof known / sizeof *known, N = 65536 * 6 + KNOWN };
    float *f = need(N * sizeof *f);
    uint16_t *h = need(N * sizeof *h);
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) f[i] = zf_float_from_bits(known[i].from);
    for (size_t i = KNOWN; i < N; i++) f[i] = zf_float_from_bits((uint32_t)((i - KNOWN) / 6) << 16 | low[(i - KNOWN) % 6]);
    for (size_t d = 0; d < device_count(); d++) {
        memset(h, 0xee, N * sizeof *h);
        run(d, call_cast, &(struct zf_cast_args){.type = ZF_BF16, .from_type = ZF_F32, .to = h, .from = f, .n = N});
        for (size_t i = 0; i < N; i++) assert_int_equal(h[i], i < KNOWN ? known[i].to : zf_f32_to_bf16(f[i]));
    }
    free(f);
    free(h);
}

static size_t size_of(enum zf_dtype type)
{
    return type == ZF_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Any count, to and from any type: nothing is written or read behind it, and the same type is the same bytes. */
static void test_cast_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 200; i++) {
        reseed(20000 + i);
        size_t n = i < 50 ? i + 1 : i < 190 ? 1 + below(500) : 16300 + below(20000), shift = below(3);
        struct zf_cast_args a = {.type = i % 2 ? ZF_BF16 : ZF_F32, .from_type = i / 2 % 2 ? ZF_BF16 : ZF_F32, .n = n};
        size_t to_size = size_of(a.type), from_size = size_of(a.from_type);
        unsigned char *to = need((n + shift + 1) * to_size), *from = need((n + shift) * from_size);
        for (size_t j = 0; j < (n + shift) * from_size; j++) from[j] = (unsigned char)below(256);
        a.to = to + shift * to_size;
        a.from = from + shift * from_size;
        for (size_t d = 0; d < device_count(); d++) {
            memset(to, 0xa5, (n + shift + 1) * to_size);
            run(d, call_cast, &a);
            for (size_t j = 0; j < to_size; j++) assert_int_equal(to[(n + shift) * to_size + j], 0xa5);
            for (size_t j = 0; j < shift * to_size; j++) assert_int_equal(to[j], 0xa5);
            if (a.type == a.from_type) assert_memory_equal(a.to, a.from, n * to_size);
            for (size_t j = 0; j < n && a.type == ZF_F32 && a.from_type == ZF_BF16; j++)
                assert_int_equal(((uint32_t *)a.to)[j], (uint32_t)((const uint16_t *)a.from)[j] << 16);
            for (size_t j = 0; j < n && a.type == ZF_BF16 && a.from_type == ZF_F32; j++)
                assert_int_equal(((uint16_t *)a.to)[j], zf_f32_to_bf16(((const float *)a.from)[j]));
        }
        free(to);
        free(from);
    }
}

/* ---- AdamW with the gradient and the rates 0: the masters stay, the weights are written ---- */

enum { N = 203 };

struct still {
    float master[N], m[N], v[N], g[N];
    uint16_t weights[N + 1];
};

static void write_back(size_t device, struct still *x, uint64_t seed, uint64_t t, uint64_t first, size_t begin, size_t n)
{
    run(device, call_adamw,
        &(struct zf_adamw_args){.type = ZF_BF16,
                                .weights = x->weights + begin,
                                .master = x->master + begin,
                                .m = x->m + begin,
                                .v = x->v + begin,
                                .g = x->g + begin,
                                .n = n,
                                .t = t,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .eps = 1e-8,
                                .stochastic = true,
                                .seed = seed,
                                .first = first + begin});
}

static struct still *some_numbers(uint64_t seed)
{
    static const float special[] = {0, -0.0f, 1, -1.5f, NAN, 0x1p-140f, -0x1.234p-128f, 0x1.fffffep-1f, 0x1.000002p0f};
    struct still *x = calloc(1, sizeof *x);
    assert_non_null(x);
    reseed(seed);
    for (size_t i = 0; i < N; i++) x->master[i] = i < sizeof special / sizeof *special ? special[i] : (float)(normal() * pow(10, normal()));
    x->weights[N] = 0xabcd;
    return x;
}

/* Only the two neighbours, each as often as the other is near. */
static void test_chance(void **state)
{
    enum { SEEDS = 2000 };
    static double sum[N];
    (void)state;
    struct still *x = some_numbers(21000), *before = some_numbers(21000);
    memset(sum, 0, sizeof sum);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        write_back(device_count() - 1, x, seed, 1 + seed % 3, 0, 0, N);
        for (size_t i = 0; i < N; i++) {
            uint32_t u = zf_bits_from_float(x->master[i]);
            uint16_t lower = (uint16_t)(u >> 16), w = x->weights[i];
            if (!isfinite(x->master[i]) || !(u & 0xffff))
                assert_int_equal(w, isnan(x->master[i]) ? lower | 0x40 : lower);
            else
                assert_true(w == lower || w == lower + 1);
            sum[i] += w != lower;
        }
    }
    assert_memory_equal(x->master, before->master, sizeof x->master);
    assert_int_equal(x->weights[N], 0xabcd);
    for (size_t i = 0; i < N; i++) {
        double p = isfinite(x->master[i]) ? (double)(zf_bits_from_float(x->master[i]) & 0xffff) / 65536 : 0;
        double error = sum[i] / SEEDS - p, deviation = sqrt(p * (1 - p) / SEEDS);
        if (!isnan(x->master[i])) assert_true(fabs(error) <= 4.5 * deviation + 1e-12 + (deviation > 0 ? 1.0 / SEEDS : 0));
    }
    free(x);
    free(before);
}

/* The same chance in one piece or in several, on every path, also where the index passes 2^32; another for another t, seed or place. */
static void test_chance_is_a_function(void **state)
{
    static const uint64_t firsts[] = {0, 5, (1ull << 32) - 100, (1ull << 32) + 7, UINT64_MAX / 2};
    (void)state;
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
        struct still *x = some_numbers(22000 + k);
        uint16_t first[N];
        write_back(0, x, 7, 3, firsts[k], 0, N);
        memcpy(first, x->weights, sizeof first);
        for (size_t d = 0; d < device_count(); d++) {
            for (size_t begin = 0, n; begin < N; begin += n) {
                n = d ? 1 + below(60) : N;
                if (n > N - begin) n = N - begin;
                write_back(d, x, 7, 3, firsts[k], begin, n);
            }
            assert_memory_equal(first, x->weights, sizeof first);
            assert_int_equal(x->weights[N], 0xabcd);
        }
        for (int other = 0; other < 4; other++) {
            size_t differ = 0;
            write_back(0, x,
                       other == 0   ? 8
                       : other == 1 ? 7 + (1ull << 32)
                                    : 7,
                       other == 2 ? 4 : 3, firsts[k] + (other == 3 ? 1ull << 32 : 0), 0, N);
            for (size_t i = 0; i < N; i++) differ += x->weights[i] != first[i];
            assert_true(differ > N / 8 && differ < N / 2); /* a third is expected: 2 p (1 - p) of a uniform p */
        }
        free(x);
    }
}

/* Equal masters, side by side: none knows of its neighbours, nor of itself in the update before. */
static void test_chance_is_independent(void **state)
{
    enum { MANY = 1 << 16, UPDATES = 4 };
    static const size_t distance[] = {1, 2, 8, 16, 32, 256, 4096};
    float *zero = calloc(MANY, sizeof *zero), *master = need(MANY * sizeof *master);
    uint16_t *w = need(MANY * sizeof *w);
    signed char(*up)[MANY] = need(UPDATES * sizeof *up);
    (void)state;
    assert_non_null(zero);
    for (size_t i = 0; i < MANY; i++) master[i] = zf_float_from_bits(0x3f808000); /* half way */
    for (size_t t = 0; t < UPDATES; t++) {
        double mean = 0;
        run(device_count() - 1, call_adamw,
            &(struct zf_adamw_args){.type = ZF_BF16,
                                    .weights = w,
                                    .master = master,
                                    .m = zero,
                                    .v = zero,
                                    .g = zero,
                                    .n = MANY,
                                    .t = t + 1,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99,
                                    .eps = 1e-8,
                                    .stochastic = true,
                                    .seed = 1});
        for (size_t i = 0; i < MANY; i++) mean += up[t][i] = (signed char)(w[i] == 0x3f81 ? 1 : -1);
        assert_true(fabs(mean) <= 4.5 * sqrt(MANY));
        for (size_t k = 0; k < sizeof distance / sizeof *distance; k++) {
            double same = 0;
            for (size_t i = distance[k]; i < MANY; i++) same += up[t][i] * up[t][i - distance[k]];
            assert_true(fabs(same) <= 4.5 * sqrt(MANY));
        }
        double same = 0;
        for (size_t i = 0; i < MANY && t; i++) same += up[t][i] * up[t - 1][i];
        assert_true(fabs(same) <= 4.5 * sqrt(MANY));
    }
    free(zero);
    free(master);
    free(w);
    free(up);
}

/* A large block, whose weights pass the caches by where they are aligned, has the bits of its pieces, and nothing beside it is touched. */
static void test_large_blocks(void **state)
{
    enum { MANY = (1 << 19) + 37, PIECE = 50001, SHIFTS = 2 };
    float *zero = calloc(MANY, sizeof *zero), *master = need(MANY * sizeof *master);
    uint16_t *whole = need((MANY + SHIFTS + 1) * sizeof *whole), *pieces = need(MANY * sizeof *pieces);
    (void)state;
    assert_non_null(zero);
    reseed(23000);
    for (size_t i = 0; i < MANY; i++) master[i] = zf_float_from_bits((uint32_t)below(1ull << 32));
    for (int k = 0; k < 2 * SHIFTS; k++) {
        struct zf_adamw_args a = {.type = ZF_BF16,
                                  .master = master,
                                  .m = zero,
                                  .v = zero,
                                  .g = zero,
                                  .n = MANY,
                                  .t = 3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .eps = 1e-8,
                                  .stochastic = k >= SHIFTS,
                                  .seed = 5};
        for (size_t i = 0; i < MANY; i += PIECE) {
            struct zf_adamw_args some = a;
            some.master += i, some.m += i, some.v += i, some.g += i, some.first = i;
            some.weights = pieces + i;
            some.n = MANY - i < PIECE ? MANY - i : PIECE;
            run(0, call_adamw, &some);
        }
        a.weights = whole + k % SHIFTS;
        for (size_t d = 0; d < device_count(); d++) {
            memset(whole, 0xa5, (MANY + SHIFTS + 1) * sizeof *whole);
            run(d, call_adamw, &a);
            assert_memory_equal(a.weights, pieces, MANY * sizeof *pieces);
            assert_int_equal(((uint16_t *)a.weights)[MANY], 0xa5a5);
            assert_true(!(k % SHIFTS) || whole[0] == 0xa5a5);
        }
    }
    free(zero);
    free(master);
    free(whole);
    free(pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_blocks),
        cmocka_unit_test(test_all_bf16),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_cast_sizes),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_chance_is_a_function),
        cmocka_unit_test(test_chance_is_independent),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
