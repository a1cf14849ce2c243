/* Products. Ours are row-major, NVIDIA's libraries' column-major: c^T = b^T a^T, which is the same memory.
 *
 * cuBLASLt has them, with the bias added before the result is rounded. What it recommends for a product is asked once and kept; only
 * algorithms without split sums are, so that the same product has the same bits every time. What it does not take cuBLAS does. f32 is
 * multiplied in f32. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

#include <stdlib.h>
#include <string.h>

enum { PLANS = 128 };

/* What a plan is made for; compared as bytes. */
struct shape {
    size_t m, n, k, lda, ldb, ldc;
    uint32_t align[3];                                             /* of a, b, c in bytes, at most 256 */
    uint8_t type, type_c, trans_a, trans_b, bias, adds, unused[6]; /* no gaps */
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c; /* of ours */
    cublasLtMatmulAlgo_t algorithm;
    bool taken; /* false: cuBLASLt has no algorithm */
};

/* A lane's. Where all places are taken the oldest plan goes: a run has a few dozen of shapes. */
struct zf_cuda_products {
    cublasLtHandle_t handle;
    void *workspace;
    size_t count;
    struct plan plans[PLANS];
};

static cudaDataType_t type_of(enum zf_dtype t)
{
    return t == ZF_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static uint32_t alignment(const void *p)
{
    uintptr_t x = (uintptr_t)p | 256;
    return (uint32_t)(x & -x);
}

/* ---- plans ---- */

static void plan_free(const struct zf_cublas *b, struct plan *p)
{
    if (p->what) b->cublasLtMatmulDescDestroy(p->what);
    cublasLtMatrixLayout_t all[] = {p->a, p->b, p->c};
    for (size_t i = 0; i < 3; i++)
        if (all[i]) b->cublasLtMatrixLayoutDestroy(all[i]);
    *p = (struct plan){0};
}

/* rows x cols of ours, which are columns of theirs. */
static bool layout(const struct zf_cublas *b, cublasLtMatrixLayout_t *out, enum zf_dtype type, size_t rows, size_t cols, size_t ld)
{
    return b->cublasLtMatrixLayoutCreate(out, type_of(type), cols, rows, (int64_t)ld) == CUBLAS_STATUS_SUCCESS;
}

static bool recommend(const struct zf_cublas *b, cublasLtHandle_t handle, struct plan *p)
{
    const uint64_t workspace = ZF_CUDA_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE, *align = p->shape.align;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        const void *from;
        size_t size;
    } wanted[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                  {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[1], sizeof *align}, /* their a is our b */
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[0], sizeof *align},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof *align},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof *align}};
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    if (b->cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return false;
    bool good = true;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        good = good && b->cublasLtMatmulPreferenceSetAttribute(preference, wanted[i].which, wanted[i].from, wanted[i].size) ==
                           CUBLAS_STATUS_SUCCESS;
    good = good && b->cublasLtMatmulAlgoGetHeuristic(handle, p->what, p->b, p->a, p->c, p->c, preference, 1, &found, &count) ==
                       CUBLAS_STATUS_SUCCESS;
    good = good && count && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= ZF_CUDA_WORKSPACE;
    if (good) p->algorithm = found.algo;
    b->cublasLtMatmulPreferenceDestroy(preference);
    return good;
}

static bool set_operation(const struct zf_cublas *b, struct plan *p, cublasLtMatmulDescAttributes_t which, const void *from, size_t size)
{
    return b->cublasLtMatmulDescSetAttribute(p->what, which, from, size) == CUBLAS_STATUS_SUCCESS;
}

static bool plan_make(const struct zf_cublas *b, cublasLtHandle_t handle, struct plan *p, const struct zf_matmul_args *a)
{
    const int32_t trans_a = a->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, trans_b = a->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    bool good = b->cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    good = good && set_operation(b, p, CUBLASLT_MATMUL_DESC_TRANSA, &trans_b, sizeof trans_b);
    good = good && set_operation(b, p, CUBLASLT_MATMUL_DESC_TRANSB, &trans_a, sizeof trans_a);
    if (p->shape.bias) {
        good = good && set_operation(b, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        good = good && set_operation(b, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias); /* its alignment counts */
    }
    good = good && layout(b, &p->a, a->type, a->trans_a ? a->k : a->m, a->trans_a ? a->m : a->k, a->lda);
    good = good && layout(b, &p->b, a->type, a->trans_b ? a->n : a->k, a->trans_b ? a->k : a->n, a->ldb);
    good = good && layout(b, &p->c, a->type_c, a->m, a->n, a->ldc);
    return good && recommend(b, handle, p);
}

static struct plan *plan_for(struct zf_lane *l, const struct zf_matmul_args *a, bool bias, bool adds)
{
    struct zf_cuda_products *all = l->plans;
    struct shape s;
    memset(&s, 0, sizeof s);
    s = (struct shape){.m = a->m,
                       .n = a->n,
                       .k = a->k,
                       .lda = a->lda,
                       .ldb = a->ldb,
                       .ldc = a->ldc,
                       .align = {alignment(a->a), alignment(a->b), alignment(a->c)},
                       .type = (uint8_t)a->type,
                       .type_c = (uint8_t)a->type_c,
                       .trans_a = a->trans_a,
                       .trans_b = a->trans_b,
                       .bias = bias ? (uint8_t)(alignment(a->bias) < 16 ? 1 : 2) : 0,
                       .adds = adds};
    size_t known = all->count < PLANS ? all->count : PLANS;
    for (size_t i = 0; i < known; i++)
        if (!memcmp(&all->plans[i].shape, &s, sizeof s)) return &all->plans[i];
    struct plan *p = &all->plans[all->count++ % PLANS];
    plan_free(l->device->blas, p);
    p->shape = s;
    p->taken = plan_make(l->device->blas, all->handle, p, a);
    return p;
}

/* ---- a lane's ---- */

static enum zf_status products_new(struct zf_lane *l, struct zf_err *e)
{
    struct zf_cuda_products *p = calloc(1, sizeof *p);
    if (!p) return zf_fail_memory(e, "the products of a lane");
    l->plans = p;
    ZF_TRY(zf_cuda_alloc(&l->device->head, ZF_MEM_DEVICE, ZF_TAG_OTHER, ZF_CUDA_WORKSPACE, &p->workspace, e));
    if (l->device->blas->cublasLtCreate(&p->handle) != CUBLAS_STATUS_SUCCESS)
        return zf_fail(e, ZF_IO, "matmul", "cuBLASLt cannot be initialised");
    if (l->device->blas->cublasSetWorkspace_v2(l->products, p->workspace, ZF_CUDA_WORKSPACE) != CUBLAS_STATUS_SUCCESS)
        return zf_fail(e, ZF_IO, "matmul", "cuBLAS refused its workspace of %d bytes", (int)ZF_CUDA_WORKSPACE);
    return ZF_OK;
}

void zf_cuda_products_free(struct zf_lane *l)
{
    struct zf_cuda_products *p = l->plans;
    if (!p) return;
    for (size_t i = 0; i < PLANS; i++) plan_free(l->device->blas, &p->plans[i]);
    if (p->handle) l->device->blas->cublasLtDestroy(p->handle);
    zf_cuda_free(&l->device->head, p->workspace);
    free(p);
    l->plans = NULL;
}

/* ---- products ---- */

static const float one = 1, zero = 0;

static bool multiply_lt(struct zf_lane *l, const struct zf_matmul_args *a, bool bias, bool adds)
{
    const struct zf_cublas *b = l->device->blas;
    struct plan *p = plan_for(l, a, bias, adds);
    if (!p->taken) return false;
    if (bias && !set_operation(b, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias)) return false;
    cublasStatus_t s = b->cublasLtMatmul(l->plans->handle, p->what, &one, a->b, p->b, a->a, p->a, adds ? &one : &zero, a->c, p->c, a->c,
                                         p->c, &p->algorithm, l->plans->workspace, ZF_CUDA_WORKSPACE, l->stream);
    return p->taken = s == CUBLAS_STATUS_SUCCESS;
}

/* cuBLAS counts in int. */
static bool multiply_ex(struct zf_lane *l, const struct zf_matmul_args *a, bool adds)
{
    cublasOperation_t a_op = a->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b_op = a->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const size_t sizes[] = {a->m, a->n, a->k, a->lda, a->ldb, a->ldc};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > INT32_MAX) return false;
    return l->device->blas->cublasGemmEx(l->products, b_op, a_op, (int)a->n, (int)a->m, (int)a->k, &one, a->b, type_of(a->type),
                                         (int)a->ldb, a->a, type_of(a->type), (int)a->lda, adds ? &one : &zero, a->c, type_of(a->type_c),
                                         (int)a->ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS;
}

enum zf_status zf_cuda_matmul(struct zf_lane *l, const struct zf_matmul_args *a, struct zf_err *e)
{
    bool fused = a->bias && a->type_c == a->type; /* the library adds one of that type alone */
    enum zf_status s = a->k && !l->plans ? products_new(l, e) : ZF_OK;
    if (s) {
        zf_cuda_products_free(l);
        return s;
    }
    if (a->k && (fused || !a->bias) && multiply_lt(l, a, fused, a->accumulate)) return ZF_OK;
    if (a->bias || !a->k) ZF_TRY(zf_cuda_status(zf_cuda_bias_rows(a, l->stream), "matmul", e));
    if (!a->k) return ZF_OK;
    if (a->bias && !fused && multiply_lt(l, a, false, true)) return ZF_OK;
    if (multiply_ex(l, a, a->accumulate || a->bias)) return ZF_OK;
    return zf_fail(e, ZF_IO, "matmul", "cuBLAS refused a product of %zu x %zu x %zu", a->m, a->n, a->k);
}
