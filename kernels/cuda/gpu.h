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
#define GPU_UNROLL _Pragma("unroll") /* the loop that follows: what it indexes stays in registers */
#define DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char dyn_shared_raw[]; \
    T *const name = reinterpret_cast<T *>(dyn_shared_raw)
#else
#define GPU_UNROLL
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
/* To nearest even; a NaN keeps its payload, as on the host (the device's own conversion makes one NaN of all). */
template <> __device__ __forceinline__ __nv_bfloat16 gpu_from_float<__nv_bfloat16>(float x)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return __ushort_as_bfloat16((unsigned short)(bits >> 16 | 0x40));
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16));
}

/* f(T()) with the type that `type` names, F32 or BF16. */
template <class F> static inline cudaError_t gpu_by_type(enum zf_dtype type, F f)
{
    return type == ZF_BF16 ? f(__nv_bfloat16()) : f(float());
}

/* N numbers that lie together and are read and written at once. */
template <class T, int N> struct alignas(sizeof(T) * N) gpu_some {
    T at[N];
};
template <int N, class T> static __device__ __forceinline__ gpu_some<T, N> gpu_read(const T *p)
{
    return *reinterpret_cast<const gpu_some<T, N> *>(p);
}
template <class T, int N> static __device__ __forceinline__ void gpu_write(T *p, const gpu_some<T, N> &x)
{
    *reinterpret_cast<gpu_some<T, N> *>(p) = x;
}

/* The same as floats. */
template <int N, class T> static __device__ __forceinline__ void gpu_fetch(float (&x)[N], const T *p)
{
    gpu_some<T, N> some = gpu_read<N>(p);
    GPU_UNROLL
    for (int i = 0; i < N; i++) x[i] = gpu_float(some.at[i]);
}
template <int N, class T> static __device__ __forceinline__ void gpu_store(T *p, const float (&x)[N])
{
    gpu_some<T, N> some;
    GPU_UNROLL
    for (int i = 0; i < N; i++) some.at[i] = gpu_from_float<T>(x[i]);
    gpu_write(p, some);
}

/* Whether rows that are ld elements apart are read and written 16 bytes at a time: all begin at multiples of that. */
template <class T> static __host__ __device__ inline bool gpu_wide(const T *p, size_t ld)
{
    return (uintptr_t)p % 16 == 0 && ld * sizeof(T) % 16 == 0;
}

/* f(std::integral_constant) with how many elements of T a thread takes at once. */
template <class T, class F> static inline cudaError_t gpu_by_width(bool wide, F f)
{
    return wide ? f(std::integral_constant<int, 16 / (int)sizeof(T)>()) : f(std::integral_constant<int, 1>());
}

/* ---- grids ---- */

static const unsigned GPU_THREADS = 256, GPU_MOST_BLOCKS = 1 << 16, GPU_WARP = 32;

static __device__ __forceinline__ bool gpu_finite(double x)
{
    return x - x == 0;
}

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

static __device__ __forceinline__ double gpu_warp_sum(double x)
{
    for (int o = GPU_WARP / 2; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}

/* Sum over a block of GPU_THREADS, in every thread; the order is fixed. Every thread comes here. */
template <class T> static __device__ T gpu_block_sum(T x)
{
    __shared__ T part[GPU_THREADS / GPU_WARP];
    T all = 0;
    x = gpu_warp_sum(x);
    if (threadIdx.x % GPU_WARP == 0) part[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    for (unsigned i = 0; i < GPU_THREADS / GPU_WARP; i++) all += part[i];
    __syncthreads(); /* part is used again */
    return all;
}

/* ---- numbers by chance: core/base/rng.h, kernels/host/chance.h ---- */

struct gpu_key {
    uint32_t v[4];
};

static __host__ __device__ inline gpu_key gpu_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32),
             c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return gpu_key{{c0, c1, c2, c3}};
}

static __device__ __forceinline__ uint32_t gpu_mix_upper(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    return (x ^ (x >> 15)) * 0x846ca68bu;
}

static __device__ __forceinline__ uint32_t gpu_mix(uint32_t x)
{
    x = gpu_mix_upper(x);
    return x ^ (x >> 16);
}

/* Sixteen bits for element `index` of an update, and of a move. */
static __device__ __forceinline__ uint32_t gpu_update_noise(const gpu_key &k, uint64_t index)
{
    return gpu_mix_upper((gpu_mix((uint32_t)index ^ k.v[0]) ^ ((uint32_t)(index >> 32) + k.v[2])) + k.v[1]) >> 16;
}
static __device__ __forceinline__ uint32_t gpu_move_noise(const gpu_key &k, uint64_t index)
{
    return gpu_mix_upper((uint32_t)index ^ (gpu_mix((uint32_t)(index >> 32) ^ k.v[0]) + k.v[1])) >> 16;
}

/* x to bf16 by these bits: up with the probability that is its distance from the lower neighbour. What is not finite stays so. */
static __device__ __forceinline__ __nv_bfloat16 gpu_narrow_by(float x, uint32_t noise)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return gpu_from_float<__nv_bfloat16>(x);
    return __ushort_as_bfloat16((unsigned short)((bits + noise) >> 16));
}
static __device__ __forceinline__ void gpu_store_by(float *to, float x, uint32_t)
{
    *to = x;
}
static __device__ __forceinline__ void gpu_store_by(__nv_bfloat16 *to, float x, uint32_t noise)
{
    *to = gpu_narrow_by(x, noise);
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
static __device__ __forceinline__ void gpu_mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    gpu_mma f = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    gpu_mma_bf16(f);
    for (int i = 0; i < 4; i++) d[i] = f.d[i];
}

/* A 16x16 block of shared memory, rows ld elements apart and at multiples of 16 bytes, as the tensor cores take it: r[0] of rows 0-7 and
 * columns 0-7, r[1] of rows 8-15, r[2] and r[3] of columns 8-15 (ldmatrix.x4). Each is an 8x8 matrix of which lane l has row l/4, columns
 * 2(l%4) and the next; transposed: column l/4 and these rows. The whole warp comes here. */
template <bool TRANSPOSED> static __device__ __forceinline__ void gpu_load_block(uint32_t (&r)[4], const __nv_bfloat16 *block, unsigned ld)
{
    unsigned lane = threadIdx.x % GPU_WARP;
#if defined(__CUDACC__)
    uint32_t at = (uint32_t)__cvta_generic_to_shared(block + lane % 16 * ld + lane / 16 * 8);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
#else
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = i % 2 * 8 + (TRANSPOSED ? lane % 4 * 2 : lane / 4), col = i / 2 * 8 + (TRANSPOSED ? lane / 4 : lane % 4 * 2);
        const __nv_bfloat16 *p = block + row * ld + col;
        r[i] = __bfloat16_as_ushort(p[0]) | (uint32_t)__bfloat16_as_ushort(p[TRANSPOSED ? ld : 1]) << 16;
    }
#endif
}

/* Two numbers as the tensor cores take them, the first in the lower half; to nearest even, a NaN stays one. */
static __device__ __forceinline__ uint32_t gpu_pair(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return __bfloat16_as_ushort(both.x) | (uint32_t)__bfloat16_as_ushort(both.y) << 16;
}

/* 2^x, to two units in the last place; 0 where that would be denormal. */
static __device__ __forceinline__ float gpu_exp2(float x)
{
#if defined(__CUDACC__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
#endif
}

/* Copies of 16 bytes from global to shared memory that go on beside the thread; `bytes` of them are fetched, 0 or 16, the rest is zero.
 * What is copied may be used after wait(), by others after a barrier behind it. The emulated ones happen at wait(), as late as they may. */
struct gpu_copies {
#if defined(__CUDACC__)
    __device__ __forceinline__ void begin(void *to, const void *from, unsigned bytes)
    {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes)
                     : "memory");
    }
    __device__ __forceinline__ void wait()
    {
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
#else
    enum { MOST = 96 };
    struct {
        void *to;
        const void *from;
        unsigned bytes;
    } begun[MOST];
    unsigned count = 0;
    void begin(void *to, const void *from, unsigned bytes)
    {
        if (count == MOST || (uintptr_t)to % 16 || (uintptr_t)from % 16) __trap();
        begun[count++] = {to, from, bytes};
    }
    void wait()
    {
        static const uint4 nothing = {};
        for (unsigned i = 0; i < count; i++) __builtin_memcpy(begun[i].to, begun[i].bytes ? begun[i].from : &nothing, 16);
        count = 0;
    }
#endif
};

/* A kernel that needs more shared memory than the 48 KiB that all may have: whether the device has as much. */
template <class... P> static inline bool gpu_allow_shared(void (*kernel)(P...), size_t bytes)
{
    if (bytes <= 48 << 10) return true;
    if (cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess) return true;
    cudaGetLastError(); /* no broken device */
    return false;
}

#endif
