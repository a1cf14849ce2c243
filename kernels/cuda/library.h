/* NVIDIA's libraries that are opened when they are needed, so that one trainer runs with and without them. What the process has already
 * (tests link their own) comes first. */
#ifndef ZF_CUDA_LIBRARY_H
#define ZF_CUDA_LIBRARY_H

#include "core/base/err.h"

#include <cublas_v2.h>
#ifdef ZF_NCCL
#include <nccl.h>
#endif

#define ZF_CUBLAS_MAP(X) X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasGemmEx) X(cublasGetVersion_v2)

struct zf_cublas {
#define X(name) __typeof__(name) *name;
    ZF_CUBLAS_MAP(X)
#undef X
};

/* These stay open until the process ends. ZF_IO: what is missing, and which package brings it. Any thread. */
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
