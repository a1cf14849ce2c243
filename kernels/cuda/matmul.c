/* Products by cuBLAS. Ours are row-major, its column-major: c^T = b^T a^T, which is the same memory. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

static cudaDataType_t type_of(enum zf_dtype t)
{
    return t == ZF_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

enum zf_status zf_cuda_matmul(struct zf_lane *l, const struct zf_matmul_args *a)
{
    const float one = 1, zero = 0;
    bool adds = a->accumulate || a->bias;
    if (a->bias || !a->k) ZF_TRY(zf_cuda_lane_status(l, zf_cuda_bias_rows(a, l->stream), "matmul"));
    if (!a->k) return ZF_OK;
    cublasOperation_t a_op = a->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b_op = a->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t s = l->device->blas->cublasGemmEx(l->products, b_op, a_op, (int)a->n, (int)a->m, (int)a->k, &one, a->b, type_of(a->type), (int)a->ldb,
                                    a->a, type_of(a->type), (int)a->lda, adds ? &one : &zero, a->c, type_of(a->type_c), (int)a->ldc,
                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (s != CUBLAS_STATUS_SUCCESS) return zf_cuda_refuse(l, "matmul", "cuBLAS refused it");
    return ZF_OK;
}
