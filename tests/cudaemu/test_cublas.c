/* The emulated cuBLAS refuses what the documentation of cuBLAS does not allow, and says which argument it was. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/cudaemu.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { M = 3, N = 4, K = 5, ROOM = 64 };

/* A call that is right, until a case changes it. */
struct call {
    cublasHandle_t h;
    cublasOperation_t op_a, op_b;
    int m, n, k, lda, ldb, ldc, batch;
    const void *alpha, *a, *b, *beta;
    void *c;
    cudaDataType type_a, type_b, type_c;
    long long stride_c;
    cublasComputeType_t compute;
    cublasGemmAlgo_t algo;
};

static struct {
    cublasHandle_t h, destroyed;
    cudaStream_t stream, of_other, gone;
    float *a, *b, *c, *scalar, *of_other_device; /* of ROOM numbers each */
    float one, zero;
} f;

static int setup(void **state)
{
    (void)state;
    setenv("CUDAEMU_DEVICES", "2", 1);
    f.one = 1;
    float **all[] = {&f.a, &f.b, &f.c, &f.scalar};
    for (int i = 0; i < 4; i++)
        if (cudaMalloc((void **)all[i], ROOM * sizeof(float)) || cudaMemset(*all[i], 0, ROOM * sizeof(float))) return -1;
    if (cudaStreamCreateWithFlags(&f.stream, cudaStreamNonBlocking) || cudaStreamCreateWithFlags(&f.gone, cudaStreamNonBlocking)) return -1;
    if (cublasCreate(&f.h) || cublasSetStream(f.h, f.stream) || cublasCreate(&f.destroyed) || cublasDestroy(f.destroyed)) return -1;
    cudaStreamDestroy(f.gone);
    if (cudaSetDevice(1) || cudaStreamCreateWithFlags(&f.of_other, cudaStreamNonBlocking)) return -1;
    if (cudaMalloc((void **)&f.of_other_device, ROOM * sizeof(float)) || cudaSetDevice(0)) return -1;
    return cudaDeviceSynchronize();
}

static int teardown(void **state)
{
    (void)state;
    float *all[] = {f.a, f.b, f.c, f.scalar, f.of_other_device};
    for (int i = 0; i < 5; i++) cudaFree(all[i]);
    cublasDestroy(f.h);
    cudaStreamDestroy(f.stream);
    cudaStreamDestroy(f.of_other);
    return 0;
}

static struct call right(void)
{
    return (struct call){.h = f.h,
                         .op_a = CUBLAS_OP_N,
                         .op_b = CUBLAS_OP_N,
                         .m = M,
                         .n = N,
                         .k = K,
                         .lda = M,
                         .ldb = K,
                         .ldc = M,
                         .batch = 1,
                         .alpha = &f.one,
                         .a = f.a,
                         .b = f.b,
                         .beta = &f.zero,
                         .c = f.c,
                         .type_a = CUDA_R_32F,
                         .type_b = CUDA_R_32F,
                         .type_c = CUDA_R_32F,
                         .compute = CUBLAS_COMPUTE_32F,
                         .algo = CUBLAS_GEMM_DEFAULT};
}

static cublasStatus_t issue(const struct call *x)
{
    cudaemu_forget_refusal();
    return cublasGemmStridedBatchedEx(x->h, x->op_a, x->op_b, x->m, x->n, x->k, x->alpha, x->a, x->type_a, x->lda, 0, x->b, x->type_b,
                                      x->ldb, 0, x->beta, x->c, x->type_c, x->ldc, x->stride_c, x->batch, x->compute, x->algo);
}

#define REFUSED(status, text) \
    do { \
        cublasStatus_t got_ = (status); \
        assert_string_not_equal(cudaemu_refusal(), ""); \
        if (!strstr(cudaemu_refusal(), text)) fail_msg("'%s' does not say '%s'", cudaemu_refusal(), text); \
        assert_int_not_equal(got_, CUBLAS_STATUS_SUCCESS); \
    } while (0)

#define WRONG(change, text) \
    do { \
        struct call x = right(); \
        x.change; \
        REFUSED(issue(&x), text); \
    } while (0)

static void products_with_a_wrong_argument_are_refused(void **state)
{
    (void)state;
    WRONG(h = NULL, "the handle is NULL");
    WRONG(h = f.destroyed, "the handle is not one of these");
    WRONG(op_a = (cublasOperation_t)7, "transa is 7");
    WRONG(op_b = (cublasOperation_t)-1, "transb is -1");
    WRONG(m = -1, "m is -1");
    WRONG(n = -1, "n is -1");
    WRONG(k = -1, "k is -1");
    WRONG(batch = -1, "batchCount is -1");
    WRONG(lda = M - 1, "lda is 2; A is stored with 3 rows");
    WRONG(op_a = CUBLAS_OP_T, "lda is 3; A is stored with 5 rows");
    WRONG(ldb = K - 1, "ldb is 4; B is stored with 5 rows");
    WRONG(ldc = M - 1, "ldc is 2; C is stored with 3 rows");
    WRONG(lda = 0, "lda is 0");
    WRONG(a = NULL, "A is NULL");
    WRONG(b = NULL, "B is NULL");
    WRONG(c = NULL, "C is NULL");
    WRONG(a = (char *)f.a + 2, "A is 0x");
    WRONG(c = (char *)f.c + 1, "aligned to less than 4 bytes");
    WRONG(alpha = NULL, "alpha is NULL");
    WRONG(beta = NULL, "beta is NULL");
    WRONG(alpha = f.scalar, "alpha is in device memory");
    WRONG(algo = (cublasGemmAlgo_t)77, "algo is 77");
    WRONG(lda = 20, "A is 332 bytes at byte 0 of an allocation of 256");
    WRONG(b = f.b + ROOM - 1, "B is 80 bytes at byte 252 of an allocation of 256");
    WRONG(c = f.of_other_device, "C is memory of device 1; the handle is of device 0");
    WRONG(batch = 2, "strideC is 0; a result takes 12");
}

static void types_are_those_of_the_table(void **state)
{
    static const struct {
        cudaDataType a, b, c;
        cublasComputeType_t compute;
        bool right;
    } cases[] = {
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, true},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, true},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16F, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF, false},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_16F, false},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_64F, false},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, (cublasComputeType_t)0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call x = right();
        x.type_a = cases[i].a, x.type_b = cases[i].b, x.type_c = cases[i].c, x.compute = cases[i].compute;
        cublasStatus_t s = issue(&x);
        assert_int_equal(s, cases[i].right ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
        assert_int_equal(!!strstr(cudaemu_refusal(), "the combination of types"), !cases[i].right);
    }
}

static void streams_workspaces_and_modes_are_checked(void **state)
{
    char *memory = (char *)f.scalar;
    (void)state;
    cudaemu_forget_refusal();
    REFUSED(cublasSetStream(f.h, f.of_other), "the stream is of device 1; the handle is of device 0");
    REFUSED(cublasSetStream(f.h, f.gone), "the stream is none, or was destroyed");
    REFUSED(cublasSetStream(f.destroyed, f.stream), "cublasSetStream: the handle");
    REFUSED(cublasSetWorkspace(f.h, memory + 4, 16), "workspace is 0x");
    REFUSED(cublasSetWorkspace(f.h, NULL, 16), "workspace is NULL for 16 bytes");
    REFUSED(cublasSetWorkspace(f.h, memory, 257), "workspace is 257 bytes at byte 0 of an allocation of 256");
    REFUSED(cublasSetMathMode(f.h, (cublasMath_t)8), "mode is 8");
    REFUSED(cublasSetPointerMode(f.h, (cublasPointerMode_t)2), "mode is 2");
    REFUSED(cublasDestroy(f.destroyed), "cublasDestroy: the handle");
    cudaemu_forget_refusal();
    assert_int_equal(cublasSetWorkspace(f.h, memory, 256), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasSetMathMode(f.h, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
    assert_string_equal(cudaemu_refusal(), "");
    struct call x = right();
    cudaSetDevice(1);
    REFUSED(issue(&x), "the current device is 1");
    cudaSetDevice(0);
}

static void factors_lie_where_the_mode_says(void **state)
{
    float host[M * N], ones[ROOM], factors[2] = {3, 0};
    struct call x = right();
    (void)state;
    for (int i = 0; i < ROOM; i++) ones[i] = 1;
    assert_int_equal(cudaStreamSynchronize(f.stream), 0); /* what other tests have issued */
    assert_int_equal(cudaMemcpy(f.a, ones, sizeof ones, cudaMemcpyHostToDevice), 0);
    assert_int_equal(cudaMemcpy(f.b, ones, sizeof ones, cudaMemcpyHostToDevice), 0);
    assert_int_equal(cudaMemcpy(f.scalar, factors, sizeof factors, cudaMemcpyHostToDevice), 0);
    assert_int_equal(cublasSetPointerMode(f.h, CUBLAS_POINTER_MODE_DEVICE), 0);
    REFUSED(issue(&x), "alpha is in host memory");
    x.alpha = f.scalar, x.beta = f.scalar + 1;
    assert_int_equal(issue(&x), 0);
    assert_int_equal(cudaStreamSynchronize(f.stream), 0);
    assert_int_equal(cudaMemcpy(host, f.c, sizeof host, cudaMemcpyDeviceToHost), 0);
    for (int i = 0; i < M * N; i++) assert_true(host[i] == 3 * K);
    assert_int_equal(cublasSetPointerMode(f.h, CUBLAS_POINTER_MODE_HOST), 0);
}

/* m or n 0: nothing is done, and no operand looked at. k 0: C is scaled. */
static void nothing_to_do_is_done(void **state)
{
    float host[M * N], two = 2;
    struct call x = right();
    (void)state;
    for (int i = 0; i < M * N; i++) host[i] = 5;
    assert_int_equal(cudaStreamSynchronize(f.stream), 0);
    assert_int_equal(cudaMemcpy(f.c, host, sizeof host, cudaMemcpyHostToDevice), 0);
    x.m = 0, x.a = NULL, x.c = NULL, x.lda = 1, x.ldc = 1;
    assert_int_equal(issue(&x), 0);
    x = right();
    x.n = 0, x.b = NULL, x.c = NULL;
    assert_int_equal(issue(&x), 0);
    x = right();
    x.k = 0, x.a = NULL, x.b = NULL, x.ldb = 1, x.beta = &two;
    assert_int_equal(issue(&x), 0);
    assert_string_equal(cudaemu_refusal(), "");
    assert_int_equal(cudaStreamSynchronize(f.stream), 0);
    assert_int_equal(cudaMemcpy(host, f.c, sizeof host, cudaMemcpyDeviceToHost), 0);
    for (int i = 0; i < M * N; i++) assert_true(host[i] == 10);
}

/* [M][N] = [M][K] [K][N] by cuBLASLt, with what is changed of it. */
static cublasStatus_t lt(const void *alpha, const void *a, const void *c, void *workspace, size_t bytes, cudaStream_t s)
{
    cublasLtHandle_t h;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t wanted;
    cublasLtMatmulHeuristicResult_t found;
    uint32_t align = 4;
    int n;
    assert_int_equal(cublasLtCreate(&h), 0);
    assert_int_equal(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, M, K, M), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, K, N, K), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, M, N, M), 0);
    assert_int_equal(cublasLtMatmulPreferenceCreate(&wanted), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            cublasLtMatmulPreferenceSetAttribute(
                wanted, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i), &align, sizeof align),
            0);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(h, what, la, lb, lc, lc, wanted, 1, &found, &n), 0);
    cudaemu_forget_refusal();
    cublasStatus_t status =
        cublasLtMatmul(h, what, alpha, a, la, f.b, lb, &f.zero, c, lc, (void *)(uintptr_t)c, lc, &found.algo, workspace, bytes, s);
    cublasLtMatmulPreferenceDestroy(wanted);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(what);
    cublasLtDestroy(h);
    return status;
}

static void products_of_lt_lie_where_they_may(void **state)
{
    char *memory = (char *)f.scalar;
    (void)state;
    assert_int_equal(lt(&f.one, f.a, f.c, NULL, 0, f.stream), CUBLAS_STATUS_SUCCESS);
    assert_string_equal(cudaemu_refusal(), "");
    assert_int_equal(cudaStreamSynchronize(f.stream), 0);
    REFUSED(lt(NULL, f.a, f.c, NULL, 0, f.stream), "alpha is NULL");
    REFUSED(lt(f.scalar, f.a, f.c, NULL, 0, f.stream), "alpha is in device memory");
    REFUSED(lt(&f.one, NULL, f.c, NULL, 0, f.stream), "A is NULL");
    REFUSED(lt(&f.one, f.a + ROOM - 2, f.c, NULL, 0, f.stream), "A is 60 bytes at byte 248 of an allocation of 256");
    REFUSED(lt(&f.one, f.a, f.of_other_device, NULL, 0, f.stream), "C is memory of device 1");
    REFUSED(lt(&f.one, f.a, f.c, memory + 4, 16, f.stream), "workspace is 0x");
    REFUSED(lt(&f.one, f.a, f.c, memory, 257, f.stream), "workspace is 257 bytes");
    REFUSED(lt(&f.one, f.a, f.c, NULL, 0, f.of_other), "the stream is of device 1");
    REFUSED(lt(&f.one, f.a, f.c, NULL, 0, f.gone), "the stream is none, or was destroyed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_with_a_wrong_argument_are_refused),
        cmocka_unit_test(types_are_those_of_the_table),
        cmocka_unit_test(streams_workspaces_and_modes_are_checked),
        cmocka_unit_test(factors_lie_where_the_mode_says),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(products_of_lt_lie_where_they_may),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
