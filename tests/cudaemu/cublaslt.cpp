/* cublaslt.cpp - products with an epilogue: D = alpha op(A) op(B) + beta C + bias, f32 and bf16, accumulation in f32.
 *
 * The heuristic knows one algorithm, which is made for what was asked: operands aligned as the preference says, a workspace of the size it
 * may have. cublasLtMatmul refuses it for anything else, and writes all over its workspace. CUDAEMU_LT=0: it knows none.
 */
#include "blas.h"
#include "vendor.h"
#include <cublasLt.h>
#include <cstdio>
#include <cstring>

struct cublasLtContext {
    int unused;
};

namespace
{
struct Layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};
struct Operation {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t trans[2];
    uint32_t epilogue;
    const void *bias;
};
struct Preference {
    uint64_t workspace;
    uint32_t schemes, align[4];
};
struct Algorithm {
    uint64_t magic, workspace, align[4], shape;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "the algorithm is the caller's memory");
const uint64_t MAGIC = 0x5a464c54;

uint64_t shape_of(const Operation *o, const Layout *a, const Layout *b, const Layout *d)
{
    uint64_t h = o->epilogue * 31 + (uint64_t)o->trans[0] * 7 + (uint64_t)o->trans[1];
    for (const Layout *l : {a, b, d})
        for (uint64_t x : {(uint64_t)l->type, l->rows, l->cols, (uint64_t)l->ld}) h = h * 0x100000001b3ull ^ x;
    return h;
}

cublasStatus_t set(void *field, size_t field_size, const void *from, size_t size)
{
    if (!from || size != field_size) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* What the vendor's table of types has of ours. */
bool is_supported(const Operation *o, const Layout *a, const Layout *b, const Layout *c, const Layout *d)
{
    bool types = a->type == b->type && c->type == d->type && emu_width(a->type) && emu_width(d->type) &&
                 (d->type == CUDA_R_32F || d->type == a->type);
    bool bias = o->epilogue == CUBLASLT_EPILOGUE_BIAS;
    return types && o->compute == CUBLAS_COMPUTE_32F && o->scale == CUDA_R_32F && (o->epilogue == CUBLASLT_EPILOGUE_DEFAULT || bias);
}

bool fits(const Operation *o, const Layout *a, const Layout *b, const Layout *c, const Layout *d)
{
    uint64_t m = d->rows, n = d->cols, k = o->trans[0] ? a->rows : a->cols;
    auto has = [](const Layout *l, uint64_t rows, uint64_t cols) { return l->rows == rows && l->cols == cols && l->ld >= (int64_t)rows; };
    return has(a, o->trans[0] ? k : m, o->trans[0] ? m : k) && has(b, o->trans[1] ? n : k, o->trans[1] ? k : n) && has(c, m, n) &&
           has(d, m, n);
}

/* Where the operands lie; a bias is as long as a column of D. */
bool lie_right(const Operation *o, const Layout *const l[4], const void *const p[4], const void *workspace, size_t bytes, cudaStream_t s)
{
    static const char call[] = "cublasLtMatmul";
    static const char *const names[] = {"A", "B", "C", "D"};
    int device = emu_device();
    for (int i = 0; i < 4; i++)
        if (!emu_check_operand(call, {names[i], "ld", p[i], l[i]->type, (long)l[i]->rows, (long)l[i]->cols, (long)l[i]->ld, 0, 1}, 0,
                               device))
            return false;
    if (o->epilogue == CUBLASLT_EPILOGUE_BIAS && !emu_check_memory(call, "the bias", o->bias, l[3]->rows * emu_width(l[3]->type), device))
        return false;
    if ((uintptr_t)workspace % 16) {
        emu_refuse(call, "workspace", "a pointer that is aligned to 16 bytes", "%p", workspace);
        return false;
    }
    return emu_check_memory(call, "workspace", workspace, bytes, device) && emu_check_stream(call, s, device);
}

bool refuse(const char *what)
{
    fprintf(stderr, "cudaemu: cublasLtMatmul: %s\n", what);
    return false;
}

bool is_for(const Algorithm &g, const Operation *o, const Layout *a, const Layout *b, const Layout *d, const void *const p[4],
            size_t workspace)
{
    if (g.magic != MAGIC) return refuse("the algorithm is none that the heuristic gave");
    if (g.shape != shape_of(o, a, b, d)) return refuse("the algorithm was chosen for another product");
    if (workspace < g.workspace) return refuse("the workspace is smaller than the algorithm needs");
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)p[i] % g.align[i]) return refuse("an operand is less aligned than the algorithm was chosen for");
    return true;
}
} // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{compute, scale, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete reinterpret_cast<Operation *>(d);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, const void *from,
                                              size_t size)
{
    Operation *o = reinterpret_cast<Operation *>(d);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&o->trans[0], sizeof o->trans[0], from, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&o->trans[1], sizeof o->trans[1], from, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&o->epilogue, sizeof o->epilogue, from, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&o->bias, sizeof o->bias, from, size);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete reinterpret_cast<Layout *>(l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete reinterpret_cast<Preference *>(p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *from, size_t size)
{
    Preference *p = reinterpret_cast<Preference *>(pref);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&p->workspace, sizeof p->workspace, from, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&p->schemes, sizeof p->schemes, from, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&p->align[0], sizeof p->align[0], from, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&p->align[1], sizeof p->align[1], from, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&p->align[2], sizeof p->align[2], from, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&p->align[3], sizeof p->align[3], from, size);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
                                              cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                              cublasLtMatmulPreference_t pref, int room, cublasLtMatmulHeuristicResult_t *out, int *count)
{
    const Operation *o = reinterpret_cast<Operation *>(desc);
    const Layout *a = reinterpret_cast<Layout *>(la), *b = reinterpret_cast<Layout *>(lb), *c = reinterpret_cast<Layout *>(lc),
                 *d = reinterpret_cast<Layout *>(ld);
    const Preference *p = reinterpret_cast<Preference *>(pref);
    *count = 0;
    if (!h || room < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(o, a, b, c, d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu_env("CUDAEMU_LT", 1) || !is_supported(o, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    Algorithm g = {
        MAGIC, p->workspace < 4096 ? p->workspace : 4096, {p->align[0], p->align[1], p->align[2], p->align[3]}, shape_of(o, a, b, d)};
    *out = {};
    memcpy(&out->algo, &g, sizeof g);
    out->workspaceSize = g.workspace;
    out->state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A, cublasLtMatrixLayout_t la,
                              const void *B, cublasLtMatrixLayout_t lb, const void *beta, const void *C, cublasLtMatrixLayout_t lc, void *D,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    Operation o = *reinterpret_cast<Operation *>(desc);
    const Layout *a = reinterpret_cast<Layout *>(la), *b = reinterpret_cast<Layout *>(lb), *c = reinterpret_cast<Layout *>(lc),
                 *d = reinterpret_cast<Layout *>(ld);
    const void *const operands[4] = {A, B, C, D};
    Algorithm g;
    if (!h || !algo) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&g, algo, sizeof g);
    if (!is_for(g, &o, a, b, d, operands, workspace_bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && !o.bias) return CUBLAS_STATUS_INVALID_VALUE;
    const Layout *const layouts[4] = {a, b, c, d};
    if (!emu_check_scalar("cublasLtMatmul", "alpha", alpha, false) || !emu_check_scalar("cublasLtMatmul", "beta", beta, false) ||
        !lie_right(&o, layouts, operands, workspace, workspace_bytes, stream))
        return CUBLAS_STATUS_INVALID_VALUE;
    auto matrix = [](const void *p, const Layout *l) {
        return Matrix{const_cast<void *>(p), l->type, (int)l->rows, (int)l->cols, (long)l->ld};
    };
    Matrix ma = matrix(A, a), mb = matrix(B, b), mc = matrix(C, c), md = matrix(D, d);
    float al = *(const float *)alpha, be = *(const float *)beta;
    cudaError_t e = emu_submit(stream, [=] {
        Matrix bias = {const_cast<void *>(o.bias), md.type, md.rows, 1, md.rows};
        if (g.workspace) {
            note_write(workspace, g.workspace);
            memset(workspace, 0xff, g.workspace);
        }
        emu_gemm(o.trans[0], o.trans[1], al, ma, mb, be, mc, md, o.epilogue == CUBLASLT_EPILOGUE_BIAS ? &bias : nullptr);
    });
    return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}
