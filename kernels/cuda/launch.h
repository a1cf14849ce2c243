/* Launchers of the kernels in the .cu files: one an op, issued into a stream. The arguments have been checked (kernels/checks.h); what they
 * point to is device memory. Each returns what the launch says, not what the kernel does. C and C++. */
#ifndef ZF_CUDA_LAUNCH_H
#define ZF_CUDA_LAUNCH_H

#include "kernels/ops.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZF_OP(name) cudaError_t zf_cuda_##name(const struct zf_##name##_args *a, cudaStream_t s);
#define ZF_OPS_WITHOUT_MATMUL /* cuBLAS */
#define ZF_OPS_OF_DEVICES
#include "kernels/ops.def"
#undef ZF_OPS_OF_DEVICES
#undef ZF_OPS_WITHOUT_MATMUL
#undef ZF_OP

/* c[r][i] = (c if accumulate) + bias[i], bias of `type` or NULL (0): before a product that adds to it, or instead of one without terms. */
cudaError_t zf_cuda_bias_rows(const struct zf_matmul_args *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
