/* Ops that go through memory once: sums, casts, copies of rows. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

template <class T> static __global__ void add(const T *a, const T *b, T *y, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] = gpu_from_float<T>(gpu_float(a[i]) + gpu_float(b[i]));
}

extern "C" cudaError_t zf_cuda_add(const struct zf_add_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(add<T>, gpu_blocks(a->n), GPU_THREADS, 0, s, (const T *)a->a, (const T *)a->b, (T *)a->y, a->n);
    });
}
