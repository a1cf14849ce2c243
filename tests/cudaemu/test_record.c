/* The recorder of memory accesses, on kernels whose ways through memory are known. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/patterns.h"
#include "tests/cudaemu/record.h"

#include <stdlib.h>
#include <string.h>

/* The loads that the pattern is about: of one warp. */
static const struct {
    const char *name, *kernel;
    bool shared;
    unsigned long accesses, bytes, did, ideal; /* did: sectors, or phases */
    unsigned worst;
} expected[PATTERNS] = {
    [STRIDE_1] = {"stride 1", "strided", false, 1, 128, 4, 4, 0},
    [STRIDE_2] = {"stride 2", "strided", false, 1, 128, 8, 4, 0},
    [STRIDE_33] = {"stride 33", "strided", false, 1, 128, 32, 4, 0},
    [COLUMN] = {"a column", "strided", false, 1, 128, 32, 4, 0},
    [BROADCAST] = {"one number for all", "strided", false, 1, 4, 1, 1, 0},
    [HALF_WARP] = {"half a warp", "strided", false, 1, 64, 2, 2, 0},
    [SHIFTED] = {"off the sector", "strided", false, 1, 128, 5, 4, 0},
    [VECTORS] = {"vectors", "vectors", false, 1, 512, 16, 16, 0},
    [IN_TURN] = {"four in turn", "in_turn", false, 4, 512, 16, 16, 0},
    [SHARED_ROW] = {"a row of shared memory", "shared_strided", true, 1, 128, 1, 1, 1},
    [SHARED_2] = {"every second word", "shared_strided", true, 1, 128, 2, 1, 2},
    [SHARED_COLUMN] = {"a column of 32", "shared_column<32>", true, 1, 128, 32, 1, 32},
    [SHARED_PADDED] = {"a column of 33", "shared_column<33>", true, 1, 128, 1, 1, 1},
    [SHARED_ONE] = {"one word for all", "shared_column<32>", true, 1, 4, 1, 1, 1},
    [SHARED_VECTORS] = {"vectors of shared memory", "shared_vectors", true, 1, 512, 4, 4, 1},
    [SHARED_DYNAMIC] = {"a column, dynamic", "shared_dynamic", true, 1, 128, 32, 1, 32},
};

static void known_patterns_are_seen(void **state)
{
    float *from, *to;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&from, 4096 * sizeof(float)), 0);
    assert_int_equal(cudaMalloc((void **)&to, 256 * sizeof(float)), 0);
    assert_int_equal(cudaMemset(from, 0, 4096 * sizeof(float)), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0);
    for (int p = 0; p < PATTERNS; p++) {
        struct record_row rows[16];
        int found = 0;
        record_start();
        assert_int_equal(pattern_launch((enum pattern)p, to, from, NULL), 0);
        assert_int_equal(cudaDeviceSynchronize(), 0);
        record_stop();
        size_t n = record_rows(rows, 16);
        assert_true(n >= 2 && n <= 16);
        for (size_t i = 0; i < n; i++) {
            const struct record_row *r = &rows[i];
            assert_string_equal(r->file, "patterns.cu");
            if (strcmp(r->kernel, expected[p].kernel)) fail_msg("%s: kernel '%s'", expected[p].name, r->kernel);
            if (r->write || r->shared != expected[p].shared) continue;
            found++;
            unsigned long did = r->shared ? r->phases : r->sectors;
            print_message("%-26s %lu accesses, %lu bytes, %lu of %lu, worst %u\n", expected[p].name, r->accesses, r->bytes, did, r->ideal,
                          r->worst);
            assert_int_equal(r->accesses, expected[p].accesses);
            assert_int_equal(r->bytes, expected[p].bytes);
            assert_int_equal(did, expected[p].did);
            assert_int_equal(r->ideal, expected[p].ideal);
            assert_int_equal(r->worst, expected[p].worst);
        }
        assert_int_equal(found, 1);
    }
    cudaFree(from);
    cudaFree(to);
}

/* Blocks and launches are apart: nothing of one is taken for the lanes of another. */
static void blocks_and_launches_are_apart(void **state)
{
    struct record_row rows[16];
    float *from, *to;
    (void)state;
    assert_int_equal(cudaMalloc((void **)&from, 4096 * sizeof(float)), 0);
    assert_int_equal(cudaMalloc((void **)&to, 256 * sizeof(float)), 0);
    record_start();
    for (int i = 0; i < 3; i++) assert_int_equal(pattern_launch(STRIDE_1, to, from, NULL), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0);
    record_stop();
    assert_int_equal(record_rows(rows, 16), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rows[i].accesses, 3);
        assert_int_equal(rows[i].sectors, 12);
    }
    cudaFree(from);
    cudaFree(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_patterns_are_seen),
        cmocka_unit_test(blocks_and_launches_are_apart),
    };
    setenv("CUDAEMU_SMS", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
