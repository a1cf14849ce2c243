/* cublas.cpp - the matrix products a transformer trainer calls, run on the stream's worker thread.
 *
 * Operands f32, bf16 or f16; accumulation in f32. Every argument is checked against the documentation. Uses OpenBLAS if it can be
 * opened (CUDAEMU_OPENBLAS=0: never), else plain loops.
 */
#include "blas.h"
#include "vendor.h"
#include <algorithm>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dlfcn.h>
#include <vector>

struct cublasContext {
    bool destroyed = false; /* kept, so that its use is found, and no other has its address */
    cudaStream_t stream = 0;
    int device = 0; /* that was current when it was made; it works there alone */
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
};

static Lock handles_lock;
static std::vector<cublasHandle_t> &handles()
{
    static auto *v = [] {
        auto *x = new std::vector<cublasHandle_t>();
        x->reserve(1024); /* nothing is allocated under the lock */
        return x;
    }();
    return *v;
}
static bool check_handle(const char *call, cublasHandle_t h)
{
    Guard g(handles_lock);
    for (auto x : handles())
        if (x == h && !h->destroyed) return true;
    emu_refuse(call, "the handle", "one that cublasCreate made and cublasDestroy has not destroyed", "%s", h ? "not one of these" : "NULL");
    return false;
}
#define CHECK_HANDLE(call, h) \
    if (!check_handle(call, h)) return CUBLAS_STATUS_NOT_INITIALIZED

/* ------------------------------------------------------------------ element types */

size_t emu_width(cudaDataType t)
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

void emu_gemm(bool ta, bool tb, float alpha, const Matrix &a, const Matrix &b, float beta, const Matrix &c, const Matrix &d,
              const Matrix *bias)
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
    if (bias) {
        std::vector<float> more = load(*bias);
        for (size_t i = 0; i < fc.size(); i++) fc[i] += more[i % (size_t)m];
    }
    store(d, fc);
}

/* ------------------------------------------------------------------ API */

/* What is checked of a product besides its types and operands. */
static bool check_call(const char *call, cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, int batch,
                       cublasGemmAlgo_t algo)
{
    const struct {
        const char *name, *asks;
        int value;
        bool right;
    } checks[] = {
        {"transa", "CUBLAS_OP_N, _T or _C", op_a, op_a >= CUBLAS_OP_N && op_a <= CUBLAS_OP_C},
        {"transb", "CUBLAS_OP_N, _T or _C", op_b, op_b >= CUBLAS_OP_N && op_b <= CUBLAS_OP_C},
        {"m", "0 or more", m, m >= 0},
        {"n", "0 or more", n, n >= 0},
        {"k", "0 or more", k, k >= 0},
        {"batchCount", "0 or more", batch, batch >= 0},
        {"algo", "one of cublasGemmAlgo_t", algo,
         (algo >= CUBLAS_GEMM_DEFAULT && algo <= CUBLAS_GEMM_ALGO23) ||
             (algo >= CUBLAS_GEMM_DEFAULT_TENSOR_OP && algo <= CUBLAS_GEMM_ALGO15_TENSOR_OP)},
        {"the current device", "the device that was current when the handle was made", emu_device(), emu_device() == h->device},
    };
    for (auto &c : checks)
        if (!c.right) {
            emu_refuse(call, c.name, c.asks, "%d", c.value);
            return false;
        }
    return emu_check_stream(call, h->stream, h->device);
}

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    if (emu_no_device() || emu_sticky()) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!h) return CUBLAS_STATUS_INVALID_VALUE;
    *h = new cublasContext();
    (*h)->device = emu_device();
    Guard g(handles_lock);
    handles().push_back(*h);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t h, int *version)
{
    CHECK_HANDLE("cublasGetVersion", h);
    if (!version) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    const int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    if (!value || type < MAJOR_VERSION || type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
    *value = version[type];
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    CHECK_HANDLE("cublasDestroy", h);
    Guard g(handles_lock);
    h->destroyed = true;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    CHECK_HANDLE("cublasSetStream", h);
    if (!emu_check_stream("cublasSetStream", s, h->device)) return CUBLAS_STATUS_INVALID_VALUE;
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t *s)
{
    CHECK_HANDLE("cublasGetStream", h);
    *s = h->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode)
{
    CHECK_HANDLE("cublasSetPointerMode", h);
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) {
        emu_refuse("cublasSetPointerMode", "mode", "CUBLAS_POINTER_MODE_HOST or _DEVICE", "%d", (int)mode);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    h->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
    CHECK_HANDLE("cublasSetMathMode", h);
    int kind = (int)mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    if (kind == CUBLAS_DEFAULT_MATH || kind == CUBLAS_PEDANTIC_MATH || kind == CUBLAS_TF32_TENSOR_OP_MATH) return CUBLAS_STATUS_SUCCESS;
    emu_refuse("cublasSetMathMode", "mode", "one of cublasMath_t", "%d", (int)mode);
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *workspace, size_t bytes)
{
    CHECK_HANDLE("cublasSetWorkspace", h);
    if (!workspace && bytes) {
        emu_refuse("cublasSetWorkspace", "workspace", "device memory of that size", "NULL for %zu bytes", bytes);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((uintptr_t)workspace % 256) {
        emu_refuse("cublasSetWorkspace", "workspace", "a pointer that is aligned to 256 bytes", "%p", workspace);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return emu_check_memory("cublasSetWorkspace", "workspace", workspace, bytes, h->device) ? CUBLAS_STATUS_SUCCESS
                                                                                            : CUBLAS_STATUS_INVALID_VALUE;
}
const char *cublasGetStatusString(cublasStatus_t s)
{
    return s ? "cublas error" : "CUBLAS_STATUS_SUCCESS";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType type_a, int lda, long long stride_a, const void *B,
                                          cudaDataType type_b, int ldb, long long stride_b, const void *beta, void *C, cudaDataType type_c,
                                          int ldc, long long stride_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
    static const char call[] = "cublasGemmEx";
    CHECK_HANDLE(call, h);
    EmuOperand a{"A", "lda", A, type_a, ta ? k : m, ta ? m : k, lda, stride_a, batch};
    EmuOperand b{"B", "ldb", B, type_b, tb ? n : k, tb ? k : n, ldb, stride_b, batch};
    EmuOperand c{"C", "ldc", C, type_c, m, n, ldc, stride_c, batch};
    if (!check_call(call, h, op_a, op_b, m, n, k, batch, algo)) return CUBLAS_STATUS_INVALID_VALUE;
    bool by_device = h->mode == CUBLAS_POINTER_MODE_DEVICE;
    if (!emu_check_types(call, compute, CUDA_R_32F, type_a, type_b, type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!emu_width(type_a) || !emu_width(type_c)) return CUBLAS_STATUS_NOT_SUPPORTED; /* by the emulation */
    if (!emu_check_scalar(call, "alpha", alpha, by_device) || !emu_check_scalar(call, "beta", beta, by_device))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu_check_operand(call, a, 0, h->device) || !emu_check_operand(call, b, 0, h->device) || !emu_check_operand(call, c, 0, h->device))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (batch > 1 && m && n && std::llabs(stride_c) < (long long)ldc * (n - 1) + m) {
        emu_refuse(call, "strideC", "that the results of a batch do not overlap", "%lld; a result takes %lld", stride_c,
                   (long long)ldc * (n - 1) + m);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
    float host_al = by_device ? 0 : *(const float *)alpha, host_be = by_device ? 0 : *(const float *)beta;
    cudaError_t e = emu_submit(h->stream, [=] {
        float al = by_device ? *(const float *)alpha : host_al, be = by_device ? *(const float *)beta : host_be;
        for (long long i = 0; i < batch; i++) {
            Matrix a{(char *)A + i * stride_a * (long long)emu_width(type_a), type_a, ta ? k : m, ta ? m : k, lda};
            Matrix b{(char *)B + i * stride_b * (long long)emu_width(type_b), type_b, tb ? n : k, tb ? k : n, ldb};
            Matrix c{(char *)C + i * stride_c * (long long)emu_width(type_c), type_c, m, n, ldc};
            emu_gemm(ta, tb, al, a, b, be, c, c, nullptr);
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
