/* The only place in the product that knows that two compilers exist: nvcc, and, for the tests, C++ with tests/cudaemu/device.h. What
 * kernels share. Rules: kernels are static; no <<<>>>, no inline assembly, no __CUDACC__ elsewhere; shuffles with masks only. */
#ifndef ZF_CUDA_GPU_H
#define ZF_CUDA_GPU_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/device.h"

/* Dynamic shared memory as a typed array. Under nvcc it is raw bytes under one name, so that kernels of one file may use different types;
 * on the CPU a block of the exact size. */
#ifdef __CUDACC__
#define DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char dyn_shared_raw[]; \
    T *const name = reinterpret_cast<T *>(dyn_shared_raw)
#else
#define DYN_SHARED(T, name) T *const name = static_cast<T *>(cudaemu_dyn_smem())
#endif

/* A launch that is ordinary C++: the arguments are checked against the kernel's own. */
template <class... P, class... A>
static inline cudaError_t gpu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

/* ---- types ---- */

static __device__ __forceinline__ float gpu_float(float x)
{
    return x;
}
static __device__ __forceinline__ float gpu_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <class T> static __device__ __forceinline__ T gpu_from_float(float x);
template <> __device__ __forceinline__ float gpu_from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 gpu_from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* f(T()) with the type that `type` names, F32 or BF16. */
template <class F> static inline cudaError_t gpu_by_type(enum zf_dtype type, F f)
{
    return type == ZF_BF16 ? f(__nv_bfloat16()) : f(float());
}

/* ---- grids ---- */

enum { GPU_THREADS = 256, GPU_MOST_BLOCKS = 1 << 16, GPU_WARP = 32 };

/* Blocks of GPU_THREADS for a loop over n > 0 that strides by the grid. */
static inline unsigned gpu_blocks(size_t n)
{
    size_t blocks = (n - 1) / GPU_THREADS + 1;
    return blocks < GPU_MOST_BLOCKS ? (unsigned)blocks : (unsigned)GPU_MOST_BLOCKS;
}

/* Sum over a warp, in every lane; the order is fixed. */
static __device__ __forceinline__ float gpu_warp_sum(float x)
{
    for (int o = GPU_WARP / 2; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}

/* ---- tensor cores ---- */

/* d += a b of 16x8x16, bf16 in, f32 out; fragments as the PTX manual lays them out (mma.m16n8k16). */
struct gpu_mma {
    float d[4];
    uint32_t a[4], b[2];
};
static __device__ __forceinline__ void gpu_mma_bf16(gpu_mma &f)
{
#if defined(__CUDACC__)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(f.d[0]), "+f"(f.d[1]), "+f"(f.d[2]), "+f"(f.d[3])
                 : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]));
#else
    cudaemu_warp(EMU_MMA_BF16, 0xffffffffu, &f, sizeof f, 0, __FILE__, __LINE__);
#endif
}

#endif
