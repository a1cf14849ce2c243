/* One deliberate defect per kernel. Where a value does not tell, what is written stays right, so that only the build that looks for such a
 * defect can find it. No kernel has more than 256 threads: the thread sanitizer knows each as one of its own. */
#include "kernels/cuda/gpu.h"
#include "tests/cudaemu/defects.h"

static const unsigned N = DEFECT_VALUES;

/* ---- order of shared memory ---- */

static __global__ void missing_barrier(float *out, bool wrong)
{
    __shared__ float s[N];
    s[threadIdx.x] = (float)threadIdx.x;
    if (!wrong) __syncthreads();
    out[threadIdx.x] = s[N - 1 - threadIdx.x];
}

/* A sum of warps, twice in the same scratch: without the second barrier a fast warp overwrites what a slow one still reads. */
static __global__ void scratch_reused(float *out, bool wrong)
{
    __shared__ float part[N / GPU_WARP];
    float total = 0;
    for (int k = 0; k < 2; k++) {
        float sum = gpu_warp_sum(1.0f + (float)k);
        if (threadIdx.x % GPU_WARP == 0) part[threadIdx.x / GPU_WARP] = sum;
        __syncthreads();
        for (unsigned i = 0; i < N / GPU_WARP; i++) total += part[i];
        if (!wrong) __syncthreads();
    }
    out[threadIdx.x] = total;
}

static __global__ void warp_in_lockstep(float *out, bool wrong)
{
    __shared__ float s[GPU_WARP];
    s[threadIdx.x] = (float)threadIdx.x;
    if (!wrong) __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}

static __global__ void shared_uninitialised(float *out, bool wrong)
{
    __shared__ float s[N];
    if (threadIdx.x || !wrong) s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

/* ---- bounds ---- */

static __global__ void static_shared_overrun(float *out, unsigned by)
{
    __shared__ float s[N];
    s[threadIdx.x] = 1;
    if (threadIdx.x == N - 1) s[threadIdx.x + by] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

static __device__ void __attribute__((noinline)) put(float *p, unsigned i, float v)
{
    p[i] = v;
}

static __global__ void static_shared_overrun_by_pointer(float *out, unsigned by)
{
    __shared__ float s[N];
    s[threadIdx.x] = 1;
    if (threadIdx.x == N - 1) put(s, threadIdx.x + by, 1);
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

static __global__ void dynamic_shared_overrun(float *out, unsigned by)
{
    DYN_SHARED(float, s);
    s[threadIdx.x + by] = 1;
    __syncthreads();
    out[threadIdx.x] = threadIdx.x < by ? 1 : s[threadIdx.x];
}

static __global__ void global_overrun(float *out, unsigned by)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x == N - 1) out[threadIdx.x + by] = 1;
}

/* kernels/cuda/rows.cu's copy_listed, but for the last element. */
static __global__ void copy_listed(uint32_t *to, const uint32_t *from, const uint32_t *to_list, const uint32_t *from_list, size_t rows,
                                   size_t cols, size_t too_many)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols + too_many; i += (size_t)gridDim.x * blockDim.x) {
        size_t r = i / cols, c = i % cols;
        to[(to_list ? to_list[r] : r) * cols + c] = from[(from_list ? from_list[r] : r) * cols + c];
    }
}

/* ---- blocks, barriers, warps ---- */

static __global__ void adds_without_atomics(float *out, bool wrong)
{
    if (threadIdx.x) return;
    if (wrong)
        out[0] += 1;
    else
        atomicAdd(out, 1.0f);
}

static __global__ void divergent_barrier(float *out, bool wrong)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < N / 2 || !wrong) __syncthreads();
    if (threadIdx.x == N / 2 && wrong) __syncthreads();
}

static __global__ void two_barriers_meet(float *out, bool wrong)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x % 2 && wrong)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void shuffle_of_the_absent(float *out, bool wrong)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < GPU_WARP / 2) out[threadIdx.x] = __shfl_down_sync(wrong ? 0xffffffffu : 0x0000ffffu, 1.0f, 8, 16);
    __syncthreads();
}

static __global__ void mask_without_its_caller(float *out, bool wrong)
{
    out[threadIdx.x] = __shfl_xor_sync(wrong ? 0x7fffffffu : 0xffffffffu, 1.0f, 1);
}

/* ---- launches ---- */

static cudaError_t copy_as_the_product(float *out, bool wrong, cudaStream_t s)
{
    uint32_t *bits = (uint32_t *)(void *)out;
    return gpu_launch(copy_listed, 2, 64, 0, s, bits + N / 2, bits, (const uint32_t *)NULL, (const uint32_t *)NULL, (size_t)4,
                      (size_t)N / 8, (size_t)wrong);
}

static cudaError_t use_much(float *out, size_t shared, cudaStream_t s)
{
    return gpu_launch(dynamic_shared_overrun, 1, N, shared, s, out, 0u);
}

extern "C" cudaError_t defect_launch(enum defect which, bool wrong, float *out, cudaStream_t s)
{
    switch (which) {
    case DEFECT_missing_barrier: return gpu_launch(missing_barrier, 1, N, 0, s, out, wrong);
    case DEFECT_scratch_reused: return gpu_launch(scratch_reused, 1, N, 0, s, out, wrong);
    case DEFECT_warp_in_lockstep: return gpu_launch(warp_in_lockstep, 1, GPU_WARP, 0, s, out, wrong);
    case DEFECT_static_shared_overrun: return gpu_launch(static_shared_overrun, 1, N, 0, s, out, wrong ? 3u : 0u);
    case DEFECT_static_shared_overrun_by_pointer: return gpu_launch(static_shared_overrun_by_pointer, 1, N, 0, s, out, wrong ? 3u : 0u);
    case DEFECT_dynamic_shared_overrun: return gpu_launch(dynamic_shared_overrun, 1, N, N * sizeof(float), s, out, wrong ? 1u : 0u);
    case DEFECT_global_overrun: return gpu_launch(global_overrun, 1, N, 0, s, out, wrong ? 1u : 0u);
    case DEFECT_adds_without_atomics: return gpu_launch(adds_without_atomics, 64, GPU_WARP, 0, s, out, wrong);
    case DEFECT_divergent_barrier: return gpu_launch(divergent_barrier, 1, N, 0, s, out, wrong);
    case DEFECT_two_barriers_meet: return gpu_launch(two_barriers_meet, 1, N, 0, s, out, wrong);
    case DEFECT_shuffle_of_the_absent: return gpu_launch(shuffle_of_the_absent, 1, GPU_WARP, 0, s, out, wrong);
    case DEFECT_mask_without_its_caller: return gpu_launch(mask_without_its_caller, 1, GPU_WARP, 0, s, out, wrong);
    case DEFECT_shared_uninitialised: return gpu_launch(shared_uninitialised, 1, N, 0, s, out, wrong);
    case DEFECT_product_kernel_overrun: return copy_as_the_product(out, wrong, s);
    case DEFECT_too_many_threads: return gpu_launch(missing_barrier, 1, wrong ? 2048 : N, 0, s, out, false);
    case DEFECT_too_much_shared_memory: return use_much(out, wrong ? 64 << 10 : N * sizeof(float), s);
    default: return cudaErrorInvalidValue;
    }
}
