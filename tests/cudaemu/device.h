/* device.h - lets a .cu file be compiled by g++ or clang++ as plain C++.
 *
 * NVIDIA's own headers supply the types (dim3, float4, __nv_bfloat16, cudaStream_t ...): without
 * __CUDACC__ they make __global__, __device__ and __constant__ expand to nothing. This file
 * supplies the device built-ins; their bodies are in libcudaemu.so (exec.cpp).
 *
 * Include it before the .cu file (see wrap.cpp.in) or with -include.
 */
#pragma once
#if defined(__CUDACC__)
#error "cudaemu/device.h is for host compilers only"
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CUDAEMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDAEMU_ASAN 1
#endif
#endif

/* Storage of __shared__ arrays. NVIDIA's headers leave the macro alone if it exists already.
 *   thread_local: one copy per emulated SM; legal alone and after `extern`.
 *   static (ASan): AddressSanitizer puts red zones around it, which it never does for thread_local.
 *                  There is only one copy then, so blocks run one at a time. */
#ifdef CUDAEMU_ASAN
#define __shared__ static
#define CUDAEMU_SHARED_STATIC 1
#else
#define __shared__ thread_local
#define CUDAEMU_SHARED_STATIC 0
#endif
#define __launch_bounds__(...)
#define __grid_constant__
/* Keep NVIDIA's declaration of threadIdx and friends out: they are thread-local variables here. Macros
 * of those names would not do, they break cudaLaunchConfig_t::gridDim. */
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

extern "C" {
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim; /* of the CUDA thread that runs now */
extern __thread int cudaemu_lane;
enum { EMU_BAR, EMU_BAR_COUNT, EMU_BAR_AND, EMU_BAR_OR };
enum { EMU_SYNCWARP, EMU_SHFL, EMU_BALLOT, EMU_REDUCE_ADD, EMU_MMA_BF16 };
int cudaemu_barrier(int kind, int pred, const char *file, int line);
/* One rendezvous of the lanes named in mask; *val is replaced by this lane's result. */
void cudaemu_warp(int op, unsigned mask, void *val, int size, int src, const char *file, int line);
void cudaemu_fence(void);
void cudaemu_yield(void);
void *cudaemu_dyn_smem(void);
void cudaemu_trap(const char *file, int line);
}
void cudaemu_enqueue(dim3 grid, dim3 block, size_t smem, cudaStream_t s, const void *kernel, std::function<void()> body, int shared_static,
                     cudaError_t *rc);

#define warpSize 32
/* Default arguments that record the place of the call, for the reports. */
#define CUDAEMU_WHERE const char *emu_f = __builtin_FILE(), int emu_l = __builtin_LINE()

/* ------------------------------------------------------------------ launch */

/* Same signature as cudaLaunchKernelEx: the arguments are converted to the kernel's own types. */
template <class... P, class... A> inline cudaError_t cudaemu_launch(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...a)
{
    cudaError_t rc;
    std::tuple<P...> args{static_cast<P>(std::forward<A>(a))...};
    auto body = [kernel, args] { std::apply(kernel, args); };
    cudaemu_enqueue(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, (const void *)kernel, body, CUDAEMU_SHARED_STATIC, &rc);
    return rc;
}
#define cudaLaunchKernelEx cudaemu_launch

/* What `k<<<g,b,s,st>>>(args)` becomes after the optional rewriting step (examples/chevron):
 * cudaemu_chevron(k,g,b,s,st)(args). */
template <class K> struct cudaemu_chevron_t {
    K kernel;
    cudaLaunchConfig_t config;
    template <class... A> void operator()(A &&...a)
    {
        cudaemu_launch(&config, kernel, std::forward<A>(a)...);
    }
};
template <class... P> inline auto cudaemu_chevron(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem = 0, cudaStream_t s = 0)
{
    cudaemu_chevron_t<void (*)(P...)> r{kernel, {}};
    r.config.gridDim = grid;
    r.config.blockDim = block;
    r.config.dynamicSmemBytes = smem;
    r.config.stream = s;
    return r;
}

/* ------------------------------------------------------------------ synchronisation */

inline void __syncthreads(CUDAEMU_WHERE)
{
    cudaemu_barrier(EMU_BAR, 0, emu_f, emu_l);
}
inline int __syncthreads_count(int p, CUDAEMU_WHERE)
{
    return cudaemu_barrier(EMU_BAR_COUNT, p, emu_f, emu_l);
}
inline int __syncthreads_and(int p, CUDAEMU_WHERE)
{
    return cudaemu_barrier(EMU_BAR_AND, p, emu_f, emu_l);
}
inline int __syncthreads_or(int p, CUDAEMU_WHERE)
{
    return cudaemu_barrier(EMU_BAR_OR, p, emu_f, emu_l);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDAEMU_WHERE)
{
    cudaemu_warp(EMU_SYNCWARP, mask, nullptr, 0, 0, emu_f, emu_l);
}
inline void __threadfence()
{
    cudaemu_fence();
}
inline void __threadfence_block()
{
    cudaemu_fence();
}
inline void __threadfence_system()
{
    cudaemu_fence();
}
inline void __nanosleep(unsigned)
{
    cudaemu_yield();
}
#define __trap() cudaemu_trap(__FILE__, __LINE__)

/* ------------------------------------------------------------------ shuffles and votes */

template <class T> inline T cudaemu_shfl(unsigned mask, T v, int src, const char *file, int line)
{
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable<T>::value, "shuffle type");
    cudaemu_warp(EMU_SHFL, mask, &v, sizeof(T), src, file, line);
    return v;
}
template <class T> inline T __shfl_sync(unsigned mask, T v, int src, int width = 32, CUDAEMU_WHERE)
{
    int first = cudaemu_lane & ~(width - 1);
    return cudaemu_shfl(mask, v, first | (src & (width - 1)), emu_f, emu_l);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, CUDAEMU_WHERE)
{
    int last = cudaemu_lane | (width - 1), src = cudaemu_lane ^ x;
    /* clamped above only, as the hardware does */
    return cudaemu_shfl(mask, v, src > last ? cudaemu_lane : src, emu_f, emu_l);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, CUDAEMU_WHERE)
{
    int last = cudaemu_lane | (width - 1), src = cudaemu_lane + (int)delta;
    return cudaemu_shfl(mask, v, src > last ? cudaemu_lane : src, emu_f, emu_l);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, CUDAEMU_WHERE)
{
    int first = cudaemu_lane & ~(width - 1), src = cudaemu_lane - (int)delta;
    return cudaemu_shfl(mask, v, src < first ? cudaemu_lane : src, emu_f, emu_l);
}
inline unsigned __ballot_sync(unsigned mask, int p, CUDAEMU_WHERE)
{
    unsigned v = p != 0;
    cudaemu_warp(EMU_BALLOT, mask, &v, sizeof v, 0, emu_f, emu_l);
    return v;
}
inline int __any_sync(unsigned mask, int p, CUDAEMU_WHERE)
{
    return __ballot_sync(mask, p, emu_f, emu_l) != 0;
}
inline int __all_sync(unsigned mask, int p, CUDAEMU_WHERE)
{
    return __ballot_sync(mask, p, emu_f, emu_l) == mask;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned x, CUDAEMU_WHERE)
{
    cudaemu_warp(EMU_REDUCE_ADD, mask, &x, sizeof x, 0, emu_f, emu_l);
    return x;
}

/* ------------------------------------------------------------------ atomics */

/* Real CPU atomics, relaxed as on the device, so that ThreadSanitizer sees them for what they are. */
template <class T, class F> inline T cudaemu_rmw(T *p, F f)
{
    T old, want;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do want = f(old);
    while (!__atomic_compare_exchange(p, &old, &want, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    cudaemu_yield();
    return old;
}
template <class T> inline T atomicCAS(T *p, T compare, T v)
{
    __atomic_compare_exchange(p, &compare, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    cudaemu_yield();
    return compare;
}
/* clang-format off */
#define CUDAEMU_ATOMIC(name, T, expr) \
    inline T name(T *p, T v) { return cudaemu_rmw(p, [=](T old) -> T { return expr; }); }
#define CUDAEMU_INT_ATOMICS(T)                          \
    CUDAEMU_ATOMIC(atomicAdd, T, old + v)               \
    CUDAEMU_ATOMIC(atomicMax, T, old > v ? old : v)     \
    CUDAEMU_ATOMIC(atomicMin, T, old < v ? old : v)     \
    CUDAEMU_ATOMIC(atomicAnd, T, old & v)               \
    CUDAEMU_ATOMIC(atomicOr, T, old | v)                \
    CUDAEMU_ATOMIC(atomicExch, T, ((void)old, v))
CUDAEMU_INT_ATOMICS(int)
CUDAEMU_INT_ATOMICS(unsigned)
CUDAEMU_INT_ATOMICS(unsigned long long)
CUDAEMU_ATOMIC(atomicAdd, float, old + v)
CUDAEMU_ATOMIC(atomicAdd, double, old + v)
CUDAEMU_ATOMIC(atomicExch, float, ((void)old, v))
CUDAEMU_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)

/* ------------------------------------------------------------------ loads, bit casts, maths */

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }

template <class D, class S> inline D cudaemu_bits(S s) {
    D d;
    static_assert(sizeof d == sizeof s, "bit cast");
    memcpy(&d, &s, sizeof d);
    return d;
}
inline float __int_as_float(int x) { return cudaemu_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cudaemu_bits<float>(x); }
inline int __float_as_int(float x) { return cudaemu_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cudaemu_bits<unsigned>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

#define CUDAEMU_MINMAX(T)                            \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; }
CUDAEMU_MINMAX(int)
CUDAEMU_MINMAX(unsigned)
CUDAEMU_MINMAX(long)
CUDAEMU_MINMAX(unsigned long)
CUDAEMU_MINMAX(long long)
CUDAEMU_MINMAX(unsigned long long)
CUDAEMU_MINMAX(float)
CUDAEMU_MINMAX(double)
