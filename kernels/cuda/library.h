/* NVIDIA's libraries that are opened when they are needed, so that one trainer runs with and without them. What the process has already
 * (tests link their own) comes first. */
#ifndef ZF_CUDA_LIBRARY_H
#define ZF_CUDA_LIBRARY_H

#include "core/base/err.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#ifdef ZF_NCCL
#include <nccl.h>
#endif

/* clang-format off */
#define ZF_CUBLAS_MAP(X) \
    X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2) X(cublasGemmEx) X(cublasGetVersion_v2) \
    X(cublasGetProperty)
#define ZF_CUBLASLT_MAP(X) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
/* clang-format on */

struct zf_cublas {
#define X(name) __typeof__(name) *name;
    ZF_CUBLAS_MAP(X)
    ZF_CUBLASLT_MAP(X)
#undef X
};

/* cuBLAS with cuBLASLt, and NCCL: they stay open until the process ends. ZF_IO: what is missing, and which package brings it. Any thread. */
enum zf_status zf_cuda_cublas(const struct zf_cublas **out, struct zf_err *e);

#ifdef ZF_NCCL
#define ZF_NCCL_MAP(X) \
    X(ncclGetUniqueId) \
    X(ncclCommInitRank) \
    X(ncclCommDestroy) \
    X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclGroupStart) X(ncclGroupEnd) X(ncclReduce) X(ncclReduceScatter) \
        X(ncclBroadcast) X(ncclAllGather)

struct zf_nccl {
#define X(name) __typeof__(name) *name;
    ZF_NCCL_MAP(X)
#undef X
};

enum zf_status zf_cuda_nccl(const struct zf_nccl **out, struct zf_err *e);
#endif

#endif
