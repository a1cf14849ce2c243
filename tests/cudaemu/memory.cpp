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
#include <memory>

struct Allocation {
    size_t size;
    int device;      /* -1: pinned host memory */
    bool registered; /* the program's own, pinned for a while */
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

bool emu_allocation_of(const void *p, size_t *size, size_t *offset, int *device)
{
    Guard g(memory_lock);
    auto it = allocations().upper_bound((uintptr_t)p);
    if (it == allocations().begin()) return false;
    --it;
    *size = it->second.size, *offset = (uintptr_t)p - it->first, *device = it->second.device;
    return *offset < *size;
}

/* ------------------------------------------------------------------ allocation */

/* Memory of a device, or, -1, pinned. */
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

static size_t most_bytes(int device)
{
    if (device >= 0) return emu_device_bytes();
    long mb = emu_env("CUDAEMU_PIN_MB", -1);
    return mb < 0 ? SIZE_MAX : (size_t)mb << 20;
}
static bool has_room(size_t n, int device)
{
    size_t used = emu_used_bytes(device), most = most_bytes(device);
    return used <= most && n <= most - used;
}

static cudaError_t allocate(void **out, size_t n, int device)
{
    if (!out) return emu_set_error(cudaErrorInvalidValue);
    *out = nullptr;
    if (!n) return cudaSuccess;
    if (!has_room(n, device)) return emu_set_error(cudaErrorMemoryAllocation);
    void *p = nullptr;
    if (device >= 0)
        p = emu_take(n);
    else if (posix_memalign(&p, 4096, n))
        p = nullptr;
    if (!p) return emu_set_error(cudaErrorMemoryAllocation);
    {
        DeviceAccess access;
        memset(p, 0xFF, n);
    }
    Guard g(memory_lock);
    allocations()[(uintptr_t)p] = Allocation{n, device, false};
    *out = p;
    return cudaSuccess;
}

enum Owner { OF_DEVICE, OF_HOST, REGISTERED };

/* Takes the block that begins at p out of the table. false: there is none of that owner. */
static bool forget(void *p, Owner owner, Allocation *was)
{
    Guard g(memory_lock);
    auto it = allocations().find((uintptr_t)p);
    if (it == allocations().end()) return false;
    *was = it->second;
    Owner is = was->device >= 0 ? OF_DEVICE : was->registered ? REGISTERED : OF_HOST;
    if (is != owner) return false;
    allocations().erase(it);
    return true;
}

static cudaError_t release(void *p, Owner owner)
{ /* waits for all streams of the device, as the driver does; other ranks in the process may wait for us */
    Allocation was;
    if (!p) return emu_set_error(emu_sticky());
    emu_sync_device(emu_device());
    if (!forget(p, owner, &was)) return emu_set_error(cudaErrorInvalidValue);
    if (owner == OF_DEVICE)
        emu_give(p, was.size);
    else
        free(p);
    return emu_set_error(emu_sticky());
}

extern "C" {
cudaError_t cudaMalloc(void **p, size_t n)
{
    ENTER_DEVICE(cudaMalloc);
    return allocate(p, n, emu_device());
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    ENTER_DEVICE(cudaMallocHost);
    return allocate(p, n, -1);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    ENTER_DEVICE(cudaHostAlloc);
    return allocate(p, n, -1);
}
cudaError_t cudaFree(void *p)
{
    ENTER(cudaFree);
    return release(p, OF_DEVICE);
}
cudaError_t cudaFreeHost(void *p)
{
    ENTER(cudaFreeHost);
    return release(p, OF_HOST);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    ENTER_DEVICE(cudaMallocAsync);
    return allocate(p, n, emu_device());
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    ENTER(cudaFreeAsync);
    Allocation was;
    if (!p) return emu_set_error(emu_sticky());
    if (!forget(p, OF_DEVICE, &was)) return emu_set_error(cudaErrorInvalidValue);
    return emu_submit_host(s, [=] { emu_give(p, was.size); });
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    ENTER_DEVICE(cudaHostRegister);
    if (!p || !n) return emu_set_error(cudaErrorInvalidValue);
    if (!has_room(n, -1)) return emu_set_error(cudaErrorMemoryAllocation);
    Guard g(memory_lock);
    auto next = allocations().lower_bound((uintptr_t)p);
    bool overlaps = next != allocations().end() && next->first < (uintptr_t)p + n;
    if (next != allocations().begin()) {
        auto last = std::prev(next);
        overlaps |= last->first + last->second.size > (uintptr_t)p;
    }
    if (overlaps) return emu_set_error(cudaErrorHostMemoryAlreadyRegistered);
    allocations()[(uintptr_t)p] = Allocation{n, -1, true};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    ENTER(cudaHostUnregister);
    Allocation was;
    emu_sync_device(emu_device());
    return emu_set_error(forget(p, REGISTERED, &was) ? emu_sticky() : cudaErrorHostMemoryNotRegistered);
}
}

/* ------------------------------------------------------------------ copies and fills */

static bool fits(enum cudaMemcpyKind kind, Kind to, Kind from)
{
    if (kind == cudaMemcpyDefault) return true;
    bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (says_to == (to == DEVICE) && says_from == (from == DEVICE)) return true;
    fprintf(stderr, "cudaemu: memcpy kind %d does not fit its pointers\n", (int)kind);
    return false;
}

static cudaError_t copy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream, bool async)
{
    if (!n) return cudaSuccess;
    Kind to = classify(dst, n, "copy to"), from = classify(src, n, "copy from");
    if (to == BAD || from == BAD) return emu_set_error(cudaErrorInvalidValue);
    if (!fits(kind, to, from)) return emu_set_error(cudaErrorInvalidValue);
    if (async && (from == PAGEABLE || to == PAGEABLE)) emu_count(EMU_pageable_copy);
    if (from == PAGEABLE && to == DEVICE && async) {
        /* staged: the caller may reuse the source on return, as with the real driver */
        std::shared_ptr<void> stage(malloc(n), free);
        memcpy(stage.get(), src, n);
        return emu_submit(stream, [=] { memcpy(dst, stage.get(), n); });
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
    ENTER_DEVICE(cudaMemcpy);
    return copy(d, s, n, k, 0, false);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st)
{
    ENTER_DEVICE(cudaMemcpyAsync);
    return copy(d, s, n, k, st, true);
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    ENTER_DEVICE(cudaMemset);
    return fill(d, v, n, 0);
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st)
{
    ENTER_DEVICE(cudaMemsetAsync);
    return fill(d, v, n, st);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER_DEVICE(cudaMemcpy2DAsync);
    if (!width || !height) return cudaSuccess;
    if (width > dpitch || width > spitch) return emu_set_error(cudaErrorInvalidValue);
    Kind to = classify(dst, (height - 1) * dpitch + width, "copy to"), from = classify(src, (height - 1) * spitch + width, "copy from");
    if (to == BAD || from == BAD || !fits(kind, to, from)) return emu_set_error(cudaErrorInvalidValue);
    cudaError_t e = emu_submit(stream, [=] {
        for (size_t i = 0; i < height; i++) memmove((char *)dst + i * dpitch, (const char *)src + i * spitch, width);
    });
    if (e || (to != PAGEABLE && from != PAGEABLE)) return e;
    emu_count(EMU_pageable_copy);
    return emu_sync_stream(stream);
}
}
