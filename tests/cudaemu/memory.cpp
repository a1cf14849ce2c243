/* memory.cpp - allocations, copies and fills of libcudart.
 *
 * Device memory is ordinary host memory that remembers its size and device, so that copies can be
 * checked. New memory is filled with 0xFF (NaN in every float format): uninitialised reads show.
 */
#include "emu.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

struct Allocation {
    size_t size;
    int device; /* -1: pinned host memory */
};
static Lock memory_lock;
static std::map<uintptr_t, Allocation> &allocations()
{
    static auto *m = new std::map<uintptr_t, Allocation>();
    return *m;
}

/* ------------------------------------------------------------------ what a pointer is */

enum Kind { PAGEABLE, PINNED, DEVICE, BAD };

static Kind classify(const void *p, size_t n, const char *what)
{
    uintptr_t at = (uintptr_t)p;
    Guard g(memory_lock);
    auto it = allocations().upper_bound(at);
    if (it == allocations().begin()) return PAGEABLE;
    --it;
    uintptr_t start = it->first;
    size_t size = it->second.size;
    if (at >= start + std::max<size_t>(size, 1)) return PAGEABLE;
    if (at + n > start + size) {
        fprintf(stderr, "cudaemu: %s of %zu bytes at offset %zu runs past an allocation of %zu bytes\n", what, n, (size_t)(at - start),
                size);
        return BAD;
    }
    return it->second.device < 0 ? PINNED : DEVICE;
}

/* ------------------------------------------------------------------ allocation */

static size_t used_locked(int device)
{
    size_t used = 0;
    for (auto &a : allocations())
        if (a.second.device == device) used += a.second.size;
    return used;
}
size_t emu_used_bytes(int device)
{
    Guard g(memory_lock);
    return used_locked(device);
}

static cudaError_t allocate(void **out, size_t n, int device)
{
    if (!out) return emu_set_error(cudaErrorInvalidValue);
    *out = nullptr;
    if (!n) return cudaSuccess;
    if (emu_used_bytes(device) + n > emu_device_bytes()) return emu_set_error(cudaErrorMemoryAllocation);
    void *p = nullptr;
    if (posix_memalign(&p, 256, n)) return emu_set_error(cudaErrorMemoryAllocation);
    memset(p, 0xFF, n);
    Guard g(memory_lock);
    allocations()[(uintptr_t)p] = Allocation{n, device};
    *out = p;
    return cudaSuccess;
}

static bool forget(void *p, bool device)
{
    Guard g(memory_lock);
    auto it = allocations().find((uintptr_t)p);
    if (it == allocations().end() || (it->second.device >= 0) != device) return false;
    allocations().erase(it);
    return true;
}

static cudaError_t release(void *p, bool device)
{ /* waits for all streams of the device, as the driver does */
    if (!p) return cudaSuccess;
    emu_sync_device(emu_device());
    if (!forget(p, device)) return emu_set_error(cudaErrorInvalidValue);
    free(p);
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaMalloc(void **p, size_t n)
{
    return allocate(p, n, emu_device());
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    return allocate(p, n, -1);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    return allocate(p, n, -1);
}
cudaError_t cudaFree(void *p)
{
    return release(p, true);
}
cudaError_t cudaFreeHost(void *p)
{
    return release(p, false);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return allocate(p, n, emu_device());
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    if (!p) return cudaSuccess;
    if (!forget(p, true)) return emu_set_error(cudaErrorInvalidValue);
    return emu_submit(s, [=] { free(p); });
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    Guard g(memory_lock);
    allocations()[(uintptr_t)p] = Allocation{n, -1};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    return forget(p, false) ? cudaSuccess : emu_set_error(cudaErrorInvalidValue);
}
}

/* ------------------------------------------------------------------ copies and fills */

static cudaError_t copy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream, bool async)
{
    if (!n) return cudaSuccess;
    Kind to = classify(dst, n, "copy to"), from = classify(src, n, "copy from");
    if (to == BAD || from == BAD) return emu_set_error(cudaErrorInvalidValue);
    bool to_device = to == DEVICE, from_device = from == DEVICE;
    if (kind != cudaMemcpyDefault) {
        bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (says_to != to_device || says_from != from_device) {
            fprintf(stderr, "cudaemu: memcpy kind %d does not fit its pointers\n", (int)kind);
            return emu_set_error(cudaErrorInvalidValue);
        }
    }
    if (from == PAGEABLE && to_device && async) {
        /* staged: the caller may reuse the source on return, as with the real driver */
        void *stage = malloc(n);
        memcpy(stage, src, n);
        return emu_submit(stream, [=] {
            memcpy(dst, stage, n);
            free(stage);
        });
    }
    cudaError_t e = emu_submit(stream, [=] { memmove(dst, src, n); });
    if (e) return e;
    return !async || to == PAGEABLE ? emu_sync_stream(stream) : cudaSuccess;
}

static cudaError_t fill(void *dst, int byte, size_t n, cudaStream_t stream)
{
    if (!n) return cudaSuccess;
    if (classify(dst, n, "memset") != DEVICE) return emu_set_error(cudaErrorInvalidValue);
    return emu_submit(stream, [=] { memset(dst, byte, n); });
}

extern "C" {
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k)
{
    return copy(d, s, n, k, 0, false);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st)
{
    return copy(d, s, n, k, st, true);
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    return fill(d, v, n, 0);
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st)
{
    return fill(d, v, n, st);
}

/* Ranges and kind are not checked here. */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind,
                              cudaStream_t stream)
{
    cudaError_t e = emu_submit(stream, [=] {
        for (size_t i = 0; i < height; i++) memcpy((char *)dst + i * dpitch, (const char *)src + i * spitch, width);
    });
    bool pageable = classify(dst, 1, "copy to") == PAGEABLE || classify(src, 1, "copy from") == PAGEABLE;
    return e || !pageable ? e : emu_sync_stream(stream);
}
}
