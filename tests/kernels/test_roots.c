/* Roots by products have the bits of the processor's. A root depends on the mantissa and on whether the exponent is odd, so all floats of
 * two exponents stand for all others; those at both ends, where something may be rounded that is exact elsewhere, are tried as well. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

size_t wrong_roots(uint32_t first, uint32_t count); /* roots_avx512.c */

static void test_roots(void **state)
{
    static const uint32_t exponents[] = {27, 126, 253}; /* 2^-100, 1/2, 2^126; and the next of each */
    (void)state;
    if (!__builtin_cpu_supports("avx512f")) {
        print_message("not tested: this processor has no AVX-512\n");
        skip();
    }
    for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++) assert_int_equal(wrong_roots(exponents[i] << 23, 2u << 23), 0);
    for (uint32_t exponent = 0; exponent < 512; exponent++) /* denormals, infinity, NaN, all of them negative, too */
        for (uint32_t part = 0; part < 64; part++) assert_int_equal(wrong_roots((exponent << 23) + part * (1u << 17), 256), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_roots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
