/* cublas.cpp - the matrix products a transformer trainer calls, run on the stream's worker thread.
 *
 * Operands f32, bf16 or f16; accumulation in f32; host pointer mode. Uses OpenBLAS if it can be
 * opened (CUDAEMU_OPENBLAS=0: never), else plain loops.
 */
#include "emu.h"
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dlfcn.h>
#include <vector>

struct cublasContext {
    cudaStream_t stream = 0;
};

/* ------------------------------------------------------------------ element types */

static size_t width(cudaDataType t)
{ /* 0: not supported */
    switch (t) {
    case CUDA_R_32F: return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F: return 2;
    default: return 0;
    }
}
static float get(const void *p, size_t i, cudaDataType t)
{
    switch (t) {
    case CUDA_R_16BF: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    case CUDA_R_16F: return __half2float(((const __half *)p)[i]);
    default: return ((const float *)p)[i];
    }
}
static void put(void *p, size_t i, cudaDataType t, float v)
{
    switch (t) {
    case CUDA_R_16BF: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(v); break;
    case CUDA_R_16F: ((__half *)p)[i] = __float2half_rn(v); break;
    default: ((float *)p)[i] = v;
    }
}

/* ------------------------------------------------------------------ matrices */

struct Matrix { /* column-major */
    void *data;
    cudaDataType type;
    int rows, cols;
    long ld;
    void *column(int j) const
    {
        return (char *)data + (size_t)j * (size_t)ld * width(type);
    }
    size_t column_bytes() const
    {
        return (size_t)rows * width(type);
    }
};

/* As floats without gaps. Tells TSan exactly which bytes were read. */
static std::vector<float> load(const Matrix &m)
{
    std::vector<float> out((size_t)m.rows * m.cols);
    for (int j = 0; j < m.cols; j++) {
        note_read(m.column(j), m.column_bytes());
        for (int i = 0; i < m.rows; i++) out[(size_t)j * m.rows + i] = get(m.column(j), (size_t)i, m.type);
    }
    return out;
}
static void store(const Matrix &m, const std::vector<float> &v)
{
    for (int j = 0; j < m.cols; j++) {
        note_write(m.column(j), m.column_bytes());
        for (int i = 0; i < m.rows; i++) put(m.column(j), (size_t)i, m.type, v[(size_t)j * m.rows + i]);
    }
}

typedef void (*cblas_sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                               int ldb, float beta, float *c, int ldc);
static cblas_sgemm_fn find_sgemm()
{
    if (!emu_env("CUDAEMU_OPENBLAS", 1)) return nullptr;
    void *h = dlopen("libopenblas.so.0", RTLD_NOW);
    return h ? (cblas_sgemm_fn)dlsym(h, "cblas_sgemm") : nullptr;
}

/* c = alpha * op(a) * op(b) + beta * c */
static void gemm(bool ta, bool tb, float alpha, const Matrix &a, const Matrix &b, float beta, const Matrix &c)
{
    enum { COLUMN_MAJOR = 102, NO_TRANS = 111, TRANS = 112 };
    static cblas_sgemm_fn sgemm = find_sgemm();
    int m = c.rows, n = c.cols, k = ta ? a.rows : a.cols;
    std::vector<float> fa = load(a), fb = load(b);
    std::vector<float> fc = beta != 0 ? load(c) : std::vector<float>((size_t)m * n);
    if (sgemm) {
        sgemm(COLUMN_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, m, n, k, alpha, fa.data(), a.rows, fb.data(), b.rows, beta,
              fc.data(), m);
    } else {
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                float sum = 0;
                for (int l = 0; l < k; l++)
                    sum += fa[ta ? (size_t)i * k + l : (size_t)l * m + i] * fb[tb ? (size_t)l * n + j : (size_t)j * k + l];
                float &out = fc[(size_t)j * m + i];
                out = alpha * sum + (beta != 0 ? beta * out : 0);
            }
    }
    store(c, fc);
}

/* ------------------------------------------------------------------ API */

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    if (emu_no_device()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *h = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t h, int *version)
{
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!version) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t *s)
{
    *s = h->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusString(cublasStatus_t s)
{
    return s ? "cublas error" : "CUBLAS_STATUS_SUCCESS";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType type_a, int lda, long long stride_a, const void *B,
                                          cudaDataType type_b, int ldb, long long stride_b, const void *beta, void *C, cudaDataType type_c,
                                          int ldc, long long stride_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t)
{
    bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || lda < 1 || ldb < 1 || ldc < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
    switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_PEDANTIC: break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (type_a != type_b || !width(type_a) || !width(type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    float al = *(const float *)alpha, be = *(const float *)beta;
    cudaError_t e = emu_submit(h->stream, [=] {
        for (long long i = 0; i < batch; i++) {
            Matrix a{(char *)A + i * stride_a * (long long)width(type_a), type_a, ta ? k : m, ta ? m : k, lda};
            Matrix b{(char *)B + i * stride_b * (long long)width(type_b), type_b, tb ? n : k, tb ? k : n, ldb};
            Matrix c{(char *)C + i * stride_c * (long long)width(type_c), type_c, m, n, ldc};
            gemm(ta, tb, al, a, b, be, c);
        }
    });
    return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType type_a, int lda, const void *B, cudaDataType type_b, int ldb, const void *beta,
                            void *C, cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(h, op_a, op_b, m, n, k, alpha, A, type_a, lda, 0, B, type_b, ldb, 0, beta, C, type_c, ldc, 0, 1,
                                      compute, algo);
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const float *alpha,
                              const float *A, int lda, const float *B, int ldb, const float *beta, float *C, int ldc)
{
    return cublasGemmEx(h, op_a, op_b, m, n, k, alpha, A, CUDA_R_32F, lda, B, CUDA_R_32F, ldb, beta, C, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
}
}
