/* Products on the CUDA device beside what the tests of all devices ask (test_ops.c, test_bf16.c): a bias is added before the one rounding,
 * a plan is kept for each shape and made anew when others took its place, operands of any alignment, and a lane's memory is given back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/floats.h"
#include "kernels/ops.h"

#include <string.h>

extern const struct zf_device_type zf_cuda_device;

enum { M = 5, N = 11, K = 7, ROOM = 4096 };

static struct zf_device *device;
static struct zf_lane *lane;
static struct zf_err err;
static uint16_t *a, *b, *bias, *c;

static void must_multiply(const struct zf_matmul_args *args)
{
    assert_int_equal(device->type->ops->matmul(lane, args), ZF_OK);
    if (device->type->lane_sync(lane, &err)) fail_msg("%s", err.message);
}

static float number(size_t i, size_t salt)
{
    return (float)((i * 37 + salt * 11) % 23) / 16 - 0.6875f; /* exact in bf16 */
}

static float product(size_t n, size_t k, size_t r, size_t col)
{
    float sum = 0;
    for (size_t i = 0; i < k; i++) sum += zf_bf16_to_f32(a[r * k + i]) * zf_bf16_to_f32(b[i * n + col]);
    return sum;
}

static void check_product(size_t m, size_t n, size_t k, const uint16_t *plus)
{
    memset(c, 0xff, (m * n + 1) * sizeof *c);
    must_multiply(&(struct zf_matmul_args){
        .type = ZF_BF16, .type_c = ZF_BF16, .a = a, .b = b, .bias = plus, .c = c, .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n});
    for (size_t r = 0; r < m; r++)
        for (size_t col = 0; col < n; col++) {
            float x = product(n, k, r, col) + (plus ? zf_bf16_to_f32(plus[col]) : 0);
            if (c[r * n + col] != zf_f32_to_bf16(x))
                fail_msg("%zux%zux%zu, row %zu, column %zu: %g, expected %g", m, n, k, r, col, (double)zf_bf16_to_f32(c[r * n + col]),
                         (double)x);
        }
    assert_int_equal(c[m * n], 0xffff);
}

/* Numbers whose product and bias have a sum that a rounding in between would change. */
static void test_bias_is_rounded_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++) bias[i] = zf_f32_to_bf16(257 + 2 * (float)i);
    check_product(M, N, K, bias);
}

/* More shapes than a lane keeps plans for, twice, so that each is found or made anew. */
static void test_many_shapes(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < 150; i++) check_product(1 + i % 5, 1 + i / 5 % 6, 1 + i / 30, i % 2 ? bias : NULL);
}

static void test_any_alignment(void **state)
{
    uint16_t *all[] = {a, b, bias, c};
    (void)state;
    for (size_t shift = 1; shift < 4; shift++) {
        a = all[0] + shift, b = all[1] + 2 * shift, bias = all[2] + shift % 2, c = all[3] + 3 * shift;
        check_product(M, N, K, bias);
        check_product(M, 8, 8, NULL);
    }
    a = all[0], b = all[1], bias = all[2], c = all[3];
}

/* A product of weights adds to the gradient in f32. */
static void test_adds(void **state)
{
    float *sum = (float *)(void *)c;
    (void)state;
    for (size_t i = 0; i < K * N; i++) sum[i] = (float)i;
    for (int i = 0; i < 3; i++)
        must_multiply(&(struct zf_matmul_args){.type = ZF_BF16,
                                               .type_c = ZF_F32,
                                               .a = a,
                                               .b = b,
                                               .c = sum,
                                               .m = K,
                                               .n = N,
                                               .k = M,
                                               .lda = K,
                                               .ldb = N,
                                               .ldc = N,
                                               .trans_a = true,
                                               .accumulate = true});
    for (size_t r = 0; r < K; r++)
        for (size_t col = 0; col < N; col++) {
            float x = (float)(r * N + col), p = 0;
            for (size_t i = 0; i < M; i++) p += zf_bf16_to_f32(a[i * K + r]) * zf_bf16_to_f32(b[i * N + col]);
            assert_float_equal(sum[r * N + col], x + 3 * p, 1e-4);
        }
}

/* After a product a lane holds its workspace, and gives it back when it goes. */
static void test_memory_is_given_back(void **state)
{
    struct zf_device_info before, with, after;
    struct zf_lane *other;
    (void)state;
    device->type->info(device, &before);
    assert_int_equal(device->type->lane_new(device, "another", &other, &err), ZF_OK);
    assert_int_equal(
        device->type->ops->matmul(
            other,
            &(struct zf_matmul_args){
                .type = ZF_BF16, .type_c = ZF_F32, .a = a, .b = b, .c = c, .m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N}),
        ZF_OK);
    device->type->info(device, &with);
    device->type->lane_free(other);
    device->type->info(device, &after);
    assert_true(with.bytes[ZF_TAG_OTHER] > before.bytes[ZF_TAG_OTHER]);
    assert_int_equal(after.bytes[ZF_TAG_OTHER], before.bytes[ZF_TAG_OTHER]);
}

/* Memory of the host, which the emulated device takes as its own. */
static uint16_t *numbers(size_t salt)
{
    static uint16_t all[5][ROOM + 16];
    uint16_t *p = all[salt] + (16 - (uintptr_t)all[salt] % 32 / 2);
    for (size_t i = 0; i < ROOM; i++) p[i] = zf_f32_to_bf16(number(i, salt));
    return p;
}

static int open_device(void **state)
{
    (void)state;
    if (zf_cuda_device.open(&device, &(struct zf_device_options){0}, &err)) return -1;
    if (device->type->lane_new(device, "test", &lane, &err)) return -1;
    a = numbers(1), b = numbers(2), bias = numbers(3), c = numbers(4);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device->type->lane_free(lane);
    device->type->close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bias_is_rounded_once), cmocka_unit_test(test_many_shapes),
                                       cmocka_unit_test(test_any_alignment), cmocka_unit_test(test_adds),
                                       cmocka_unit_test(test_memory_is_given_back)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
