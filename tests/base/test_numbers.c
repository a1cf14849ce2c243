/* Narrow floats and counter-based random numbers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "core/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every pattern to f32 and back; NaNs stay NaNs of the same sign. */
static void test_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float b = zf_bf16_to_f32((uint16_t)h), f = zf_f16_to_f32((uint16_t)h);
        if (isnan(b))
            assert_true((h & 0x7f80) == 0x7f80 && (h & 0x7f) && isnan(zf_bf16_to_f32(zf_f32_to_bf16(b))) &&
                        !((zf_f32_to_bf16(b) ^ h) & 0x8000));
        else
            assert_int_equal(zf_f32_to_bf16(b), h);
        if (isnan(f))
            assert_true((h & 0x7c00) == 0x7c00 && (h & 0x3ff) && isnan(zf_f16_to_f32(zf_f32_to_f16(f))) &&
                        !((zf_f32_to_f16(f) ^ h) & 0x8000));
        else
            assert_int_equal(zf_f32_to_f16(f), h);
    }
}

/* The value of a half by its definition, with no bits shared with the code. */
static void test_f16_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        int exponent = (int)(h >> 10);
        double value = exponent ? ldexp(1 + (h & 0x3ff) / 1024.0, exponent - 15) : ldexp((h & 0x3ff) / 1024.0, -14);
        assert_true((double)zf_f16_to_f32((uint16_t)h) == value);
        assert_true((double)zf_f16_to_f32((uint16_t)(h | 0x8000)) == -value);
    }
}

/* Between two neighbours: the middle goes to the even one, what lies beside it to the nearer one. */
static void check_between(uint16_t low, float a, float b, uint16_t (*narrow)(float), uint16_t high)
{
    float middle = (float)(((double)a + (double)b) / 2); /* exact: f32 has bits to spare */
    uint16_t even = low & 1 ? high : low;
    assert_int_equal(narrow(middle), even);
    assert_int_equal(narrow(nextafterf(middle, a)), low);
    assert_int_equal(narrow(nextafterf(middle, b)), high);
    assert_int_equal(narrow(-middle), even | 0x8000);
}

static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++)
        check_between((uint16_t)h, zf_f16_to_f32((uint16_t)h), zf_f16_to_f32((uint16_t)(h + 1)), zf_f32_to_f16, (uint16_t)(h + 1));
    for (uint32_t h = 0; h < 0x7f7f; h++)
        check_between((uint16_t)h, zf_bf16_to_f32((uint16_t)h), zf_bf16_to_f32((uint16_t)(h + 1)), zf_f32_to_bf16, (uint16_t)(h + 1));
    assert_int_equal(zf_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(zf_f32_to_f16(65520), 0x7c00);
    assert_int_equal(zf_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(zf_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(zf_f32_to_f16(1e-30f), 0);
    assert_int_equal(zf_f32_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(zf_f32_to_bf16(-INFINITY), 0xff80);
}

static void test_philox(void **state)
{
    (void)state;
    struct zf_u32x4 r = zf_philox(0, 0, 0), expected = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
    assert_memory_equal(&r, &expected, sizeof r);
    r = zf_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX); /* the published answer for all ones */
    expected = (struct zf_u32x4){{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}};
    assert_memory_equal(&r, &expected, sizeof r);
    /* counter and key of the digits of pi, published as well */
    r = zf_philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88);
    expected = (struct zf_u32x4){{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    assert_memory_equal(&r, &expected, sizeof r);
}

/* Moments within five standard errors, the range, and independence of streams, substreams and seeds. */
static void test_distributions(void **state)
{
    enum { N = 100000 };
    double mean = 0, normal_mean = 0, square = 0, fourth = 0, with_stream = 0, with_seed = 0, with_next = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double u = zf_uniform(5, ZF_STREAM_TEST, 0, i), x = zf_normal(5, ZF_STREAM_TEST, 0, i);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(x));
        mean += u / N;
        normal_mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
        with_stream += x * zf_normal(5, ZF_STREAM_INIT, 0, i) / N;
        with_seed += x * zf_normal(6, ZF_STREAM_TEST, 0, i) / N;
        with_next += x * zf_normal(5, ZF_STREAM_TEST, 1, i) / N;
    }
    double error = 5 / sqrt(N);
    assert_true(fabs(mean - 0.5) < error * sqrt(1.0 / 12));
    assert_true(fabs(normal_mean) < error);
    assert_true(fabs(square - 1) < error * sqrt(2));
    assert_true(fabs(fourth - 3) < error * sqrt(96));
    assert_true(fabs(with_stream) < error && fabs(with_seed) < error && fabs(with_next) < error);
    assert_true(zf_normal(5, ZF_STREAM_TEST, 0, 77) == zf_normal(5, ZF_STREAM_TEST, 0, 77));
}

static void check_permutation(uint64_t n, uint64_t seed, uint64_t epoch)
{
    unsigned char *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = zf_permute(i, n, seed, epoch);
        assert_true(at < n);
        assert_false(seen[at]);
        seen[at] = 1;
    }
    free(seen);
}

static void test_permutation(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) check_permutation(n, n % 7, n % 3);
    check_permutation(100003, 42, 9);
    check_permutation(100003, 42, 1ull << 40);
    uint64_t huge = zf_permute(12345, 1ull << 60, 1, 1);
    assert_true(huge < 1ull << 60);
}

/* Another seed or epoch is another order; neighbours do not stay neighbours. */
static void test_permutation_mixes(void **state)
{
    enum { N = 10007 };
    int by_epoch = 0, by_seed = 0, stay = 0, follow = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t a = zf_permute(i, N, 1, 0);
        by_epoch += a == zf_permute(i, N, 1, 1);
        by_seed += a == zf_permute(i, N, 2, 0);
        stay += a == i;
        follow += zf_permute((i + 1) % N, N, 1, 0) == a + 1;
    }
    assert_true(by_epoch < 10 && by_seed < 10 && stay < 10 && follow < 10); /* each is 1 on average */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_f16_values),
        cmocka_unit_test(test_rounding),          cmocka_unit_test(test_philox),
        cmocka_unit_test(test_distributions),     cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_permutation_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
