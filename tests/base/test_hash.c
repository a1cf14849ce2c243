/* Keys of what is kept. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/hash.h"

#include <string.h>

enum { N = 9 };

/* The same things the same key; other borders, another order, nothing and an empty text another. */
static void make(unsigned char out[16], int which)
{
    struct zf_hash h;
    struct zf_err e;
    assert_int_equal(zf_hash_begin(&h, &e), ZF_OK);
    switch (which) {
    case 0: zf_hash_add(&h, "ab", 2), zf_hash_add(&h, "c", 1); break;
    case 1: zf_hash_add(&h, "a", 1), zf_hash_add(&h, "bc", 2); break;
    case 2: zf_hash_add(&h, "c", 1), zf_hash_add(&h, "ab", 2); break;
    case 3: zf_hash_add_text(&h, NULL); break;
    case 4: zf_hash_add_text(&h, ""); break;
    case 5: zf_hash_add_number(&h, 1); break;
    case 6: zf_hash_add_number(&h, (uint64_t)1 << 32); break;
    case 7: break;
    default: zf_hash_add_part(&h, "abc", 3), zf_hash_add_number(&h, 3); break;
    }
    zf_hash_end(&h, out);
}

static void test_keys(void **state)
{
    (void)state;
    unsigned char keys[N][16], again[16];
    for (int i = 0; i < N; i++) {
        make(keys[i], i);
        make(again, i);
        assert_memory_equal(keys[i], again, 16);
        for (int k = 0; k < i; k++) assert_memory_not_equal(keys[i], keys[k], 16);
    }
}

/* However something long comes in: its parts are not told apart. */
static void test_parts(void **state)
{
    (void)state;
    unsigned char key[16], whole[16];
    struct zf_err e;
    make(whole, N - 1);
    for (size_t cut = 0; cut <= 3; cut++) {
        struct zf_hash h;
        assert_int_equal(zf_hash_begin(&h, &e), ZF_OK);
        zf_hash_add_part(&h, "abc", cut);
        zf_hash_add_part(&h, "abc" + cut, 3 - cut);
        zf_hash_add_number(&h, 3);
        zf_hash_end(&h, key);
        assert_memory_equal(key, whole, 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
