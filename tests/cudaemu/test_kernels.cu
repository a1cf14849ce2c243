#include "kernels/cuda/gpu.h"
#include "tests/cudaemu/test_kernels.h"

static __global__ void count_up(float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] = x[i] == x[i] ? x[i] + 1 : 1;
}

extern "C" cudaError_t test_count_up(float *x, int n, cudaStream_t s)
{
    return gpu_launch(count_up, (unsigned)(n + 63) / 64, 64, 0, s, x, n);
}
