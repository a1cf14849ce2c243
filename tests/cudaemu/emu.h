/* emu.h - shared by the parts of libcudaemu.so.
 *
 * The library itself is never compiled with -fsanitize=thread. Its own locks are futexes that no
 * sanitizer can see, and the only happens-before edges ThreadSanitizer hears about are those CUDA
 * promises; they are told through hb_release() and hb_acquire(). So TSan reports exactly missing
 * synchronisation of the program, whatever the timing was.
 *
 * One binary serves all builds: the sanitizer hooks are weak symbols, NULL when absent.
 */
#pragma once
#include <cuda_runtime_api.h>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ------------------------------------------------------------------ sanitizers */

#define WEAK __attribute__((weak))
extern "C" {
WEAK void __tsan_acquire(void *);
WEAK void __tsan_release(void *);
WEAK void __tsan_read_range(void *, unsigned long);
WEAK void __tsan_write_range(void *, unsigned long);
WEAK void *__tsan_get_current_fiber(void);
WEAK void *__tsan_create_fiber(unsigned);
WEAK void __tsan_destroy_fiber(void *);
WEAK void __tsan_switch_to_fiber(void *, unsigned);
WEAK void __tsan_set_fiber_name(void *, const char *);
WEAK void __sanitizer_start_switch_fiber(void **, const void *, size_t);
WEAK void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
WEAK void __asan_unpoison_memory_region(const volatile void *, size_t);
}
static inline bool in_tsan()
{
    return &__tsan_acquire != nullptr;
}
static inline bool in_asan()
{
    return &__asan_unpoison_memory_region != nullptr;
}
static inline void hb_acquire(void *p)
{
    if (&__tsan_acquire) __tsan_acquire(p);
}
static inline void hb_release(void *p)
{
    if (&__tsan_release) __tsan_release(p);
}
/* Library calls (cuBLAS, NCCL) announce the bytes they touch. */
static inline void note_read(const void *p, size_t n)
{
    if (&__tsan_read_range) __tsan_read_range(const_cast<void *>(p), n);
}
static inline void note_write(void *p, size_t n)
{
    if (&__tsan_write_range) __tsan_write_range(p, n);
}

/* ------------------------------------------------------------------ invisible locks */

/* Nothing may be allocated under these: TSan intercepts operator new and would see the order. */
static inline void futex_wait(std::atomic<int> *a, int v)
{
    syscall(SYS_futex, a, FUTEX_WAIT, v, nullptr, nullptr, 0);
}
static inline void futex_wake(std::atomic<int> *a, int n = INT_MAX)
{
    syscall(SYS_futex, a, FUTEX_WAKE, n, nullptr, nullptr, 0);
}
struct Lock {
    std::atomic<int> v{0}; /* 0 free, 1 held, 2 held and waited for */
    void lock()
    {
        int c = 0;
        if (v.compare_exchange_strong(c, 1)) return;
        if (c != 2) c = v.exchange(2);
        while (c) {
            futex_wait(&v, 2);
            c = v.exchange(2);
        }
    }
    void unlock()
    {
        if (v.exchange(0) == 2) futex_wake(&v, 1);
    }
};
struct Guard {
    Lock &l;
    explicit Guard(Lock &x) : l(x)
    {
        l.lock();
    }
    ~Guard()
    {
        l.unlock();
    }
};
struct Flag { /* one-shot */
    std::atomic<int> v{0};
    void set()
    {
        v.store(1);
        futex_wake(&v);
    }
    bool test() const
    {
        return v.load() != 0;
    }
    void wait()
    {
        while (!v.load()) futex_wait(&v, 0);
    }
};

/* ------------------------------------------------------------------ between the .cpp files */

long emu_env(const char *name, long dflt);
uint64_t emu_rand(uint64_t *state);
/* runtime.cpp */
int emu_device();          /* current device of the calling thread */
size_t emu_device_bytes(); /* capacity of each device */
size_t emu_used_bytes(int device);
/* Put work on a stream; it runs on the stream's worker thread. */
cudaError_t emu_submit(cudaStream_t s, std::function<void()> fn);
cudaError_t emu_submit_host(cudaStream_t s, std::function<void()> fn); /* the same for what is no work of the device */
int emu_stream_device(cudaStream_t s);                                 /* -1: there is no such stream */
cudaError_t emu_sync_stream(cudaStream_t s);
cudaError_t emu_sync_device(int device); /* -1: all devices */
/* What is certain to be done before the next operation of a stream, or before anything the host issues: operations of each stream, by its
 * number. It follows from the calls alone, never from timing. Streams beyond the first ones are not followed. */
enum { CLOCK_STREAMS = 256 };
struct Clock {
    int done[CLOCK_STREAMS];
};
struct StreamPlace { /* the last operation that was issued into a stream */
    int stream = -1, count = 0;
};
StreamPlace emu_place(cudaStream_t s);
bool emu_is_ordered(const StreamPlace &before, cudaStream_t s); /* whether what is issued into s now runs after it */
/* grid.cpp: run a whole grid on the calling thread (and those of further SMs); returns when it is done. */
cudaError_t emu_run_grid(dim3 grid, dim3 block, size_t smem, const void *kernel, const std::function<void()> &body, int shared_static);

/* grid.cpp: the block that the calling thread executes; false: none. */
struct EmuBlock {
    const void *kernel;
    uint64_t launch, number;
};
bool emu_block(EmuBlock *out);
bool emu_is_shared(const void *p); /* memory of that block */

/* ------------------------------------------------------------------ memory of devices: arena.cpp, memory.cpp */

void *emu_take(size_t n); /* NULL: there is none */
void emu_give(void *p, size_t n);
bool emu_allocation_of(const void *p, size_t *size, size_t *offset, int *device); /* device -1: pinned */
struct DeviceAccess { /* while it lives the calling thread may touch device memory */
    DeviceAccess();
    ~DeviceAccess();
    DeviceAccess(const DeviceAccess &) = delete;
};

/* ------------------------------------------------------------------ entry points: calls.cpp */

/* name, whether it waits for the whole device, or may */
/* clang-format off */
#define EMU_CALL_MAP(X) \
    X(cudaGetDeviceCount, false) X(cudaSetDevice, false) X(cudaGetDevice, false) X(cudaDeviceReset, true) \
    X(cudaDeviceSynchronize, true) X(cudaGetDeviceProperties, false) X(cudaDeviceGetAttribute, false) \
    X(cudaMemGetInfo, false) X(cudaDeviceCanAccessPeer, false) X(cudaDeviceEnablePeerAccess, false) \
    X(cudaStreamCreateWithFlags, false) X(cudaDeviceGetStreamPriorityRange, false) X(cudaStreamDestroy, false) \
    X(cudaStreamSynchronize, false) X(cudaStreamQuery, false) X(cudaLaunchHostFunc, false) \
    X(cudaEventCreateWithFlags, false) X(cudaEventDestroy, false) X(cudaEventRecord, false) X(cudaStreamWaitEvent, false) \
    X(cudaEventSynchronize, false) X(cudaEventQuery, false) X(cudaEventElapsedTime, false) \
    X(cudaFuncSetAttribute, false) X(launch, false) \
    X(cudaMalloc, true) X(cudaMallocHost, true) X(cudaHostAlloc, true) X(cudaFree, true) X(cudaFreeHost, true) \
    X(cudaMallocAsync, false) X(cudaFreeAsync, false) X(cudaHostRegister, true) X(cudaHostUnregister, true) \
    X(cudaMemcpy, true) X(cudaMemcpyAsync, false) X(cudaMemset, true) X(cudaMemsetAsync, false) X(cudaMemcpy2DAsync, false)
/* clang-format on */
enum EmuCall {
#define CALL(name, whole) EMU_##name,
    EMU_CALL_MAP(CALL)
#undef CALL
        EMU_pageable_copy,
    EMU_CALLS
};
void emu_count(EmuCall call);
/* At the top of an entry point: it is counted, and fails where there is no device, the second also on one that was lost. */
#define ENTER(name) \
    emu_count(EMU_##name); \
    if (emu_no_device()) return emu_set_error(emu_no_device())
#define ENTER_DEVICE(name) \
    ENTER(name); \
    if (emu_sticky()) return emu_set_error(emu_sticky())

int emu_device_count();
cudaError_t emu_no_device(); /* what calls say where there is none; cudaSuccess: there is one */
bool emu_loses_device();     /* at a launch: whether the device is lost by it */

cudaError_t emu_set_error(cudaError_t e); /* last error of the calling thread; returns e */
void emu_set_sticky(cudaError_t e);       /* an error after which the context is unusable */
cudaError_t emu_sticky();

/* Says which argument of a library's call is wrong, what was found, what the vendor's documentation asks. */
__attribute__((format(printf, 4, 5))) void emu_refuse(const char *call, const char *argument, const char *asks, const char *found, ...);
