/* Launchers of the kernels that the emulator's own tests run. */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x[i]: 1 where it was not a number, else one more. */
cudaError_t test_count_up(float *x, int n, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
