/* arena.cpp - where device memory lies.
 *
 * It is ordinary host memory. With CUDAEMU_PROTECT=1 all of it lies in one reserved region that only what a device does may touch, so that
 * host code which dereferences a device pointer dies here as it would on a GPU, and not years later on the first one. Where the processor
 * has protection keys, the threads of streams and SMs alone have the region's; elsewhere the region is inaccessible while no operation
 * runs: a touch at the same time as one is not seen. Sanitizers have their own allocator, and no region.
 */
#include "emu.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <map>
#include <sys/mman.h>

static const size_t RESERVED = 64ull << 30, GRAIN = 512, HUGE_PAGE = 2 << 20;

static struct Region {
    char *base = nullptr;
    size_t used = 0;                        /* no allocation has ever reached beyond; a multiple of HUGE_PAGE */
    int key = -1;                           /* protection key, -1: the processor has none */
    int running = 0;                        /* operations that may touch it now */
    std::map<uintptr_t, size_t> free_parts; /* below `used` */
    Lock lock;
} * region;
static struct sigaction before; /* who handled faults before us */

/* ------------------------------------------------------------------ the report */

static void on_fault(int number, siginfo_t *info, void *context)
{
    char *at = (char *)info->si_addr;
    if (at < region->base || at >= region->base + RESERVED) {
        sigaction(SIGSEGV, &before, nullptr); /* the instruction runs again, and whose fault it is hears of it */
        if (info->si_code <= 0) raise(number);
        return;
    }
    (void)context;
    size_t size = 0, offset = 0;
    int device;
    char text[256];
    void *frames[64];
    if (emu_allocation_of(at, &size, &offset, &device))
        snprintf(text, sizeof text, "cudaemu: host code touched device memory at %p, byte %zu of an allocation of %zu bytes\n", (void *)at,
                 offset, size);
    else
        snprintf(text, sizeof text, "cudaemu: host code touched device memory at %p, which is not allocated\n", (void *)at);
    if (write(STDERR_FILENO, text, strlen(text)) < 0) abort();
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(SIGSEGV, SIG_DFL); /* and die of it */
}

/* Test frameworks set handlers of their own at any time: ours goes in front of them again. */
static void watch()
{
    struct sigaction now;
    sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
    before = now;
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &ours, nullptr);
}

/* ------------------------------------------------------------------ access */

static void set_access(bool on)
{
    if (region->used && mprotect(region->base, region->used, on ? PROT_READ | PROT_WRITE : PROT_NONE)) {
        perror("cudaemu: mprotect of device memory");
        abort();
    }
}

static __thread int depth; /* an SM's thread enters within the stream's */

DeviceAccess::DeviceAccess()
{
    if (!region || depth++) return;
    if (region->key >= 0) {
        pkey_set(region->key, 0);
        return;
    }
    Guard g(region->lock);
    if (!region->running++) set_access(true);
}

DeviceAccess::~DeviceAccess()
{
    if (!region || --depth) return;
    if (region->key >= 0) {
        pkey_set(region->key, PKEY_DISABLE_ACCESS);
        watch();
        return;
    }
    Guard g(region->lock);
    if (--region->running) return;
    set_access(false);
    watch();
}

static void reserve()
{
    if (in_asan() || in_tsan() || !emu_env("CUDAEMU_PROTECT", 0)) return;
    void *p = mmap(nullptr, RESERVED + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("cudaemu: no address space for CUDAEMU_PROTECT");
        abort();
    }
    auto *r = new Region();
    r->base = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    madvise(r->base, RESERVED, MADV_HUGEPAGE); /* protection changes by page: the fewer, the faster */
    r->key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (r->key >= 0 && pkey_mprotect(r->base, RESERVED, PROT_READ | PROT_WRITE, r->key)) r->key = -1;
    void *frame;
    backtrace(&frame, 1); /* loads what it needs now, and not in the handler */
    region = r;
    watch();
}

/* ------------------------------------------------------------------ allocation */

/* The first free part that is large enough, else the end of the region grows. */
static void *take(Region *r, size_t n)
{
    for (auto it = r->free_parts.begin(); it != r->free_parts.end(); ++it) {
        if (it->second < n) continue;
        uintptr_t at = it->first;
        size_t rest = it->second - n;
        r->free_parts.erase(it);
        if (rest) r->free_parts[at + n] = rest;
        return (void *)at;
    }
    size_t old = r->used, grown = (n + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    if (old + grown > RESERVED) return nullptr;
    r->used += grown;
    if (r->running && r->key < 0) set_access(true);
    if (grown > n) r->free_parts[(uintptr_t)r->base + old + n] = grown - n;
    return r->base + old;
}

void *emu_take(size_t n)
{
    static bool reserved = (reserve(), true);
    void *p = nullptr;
    (void)reserved;
    if (!region) return posix_memalign(&p, 256, n) ? nullptr : p;
    Guard g(region->lock);
    return take(region, (n + GRAIN - 1) & ~(GRAIN - 1));
}

void emu_give(void *p, size_t n)
{
    if (!region) {
        free(p);
        return;
    }
    Guard g(region->lock);
    auto &parts = region->free_parts;
    auto it = parts.emplace((uintptr_t)p, (n + GRAIN - 1) & ~(GRAIN - 1)).first;
    auto next = std::next(it);
    if (next != parts.end() && it->first + it->second == next->first) {
        it->second += next->second;
        parts.erase(next);
    }
    if (it == parts.begin()) return;
    auto last = std::prev(it);
    if (last->first + last->second != it->first) return;
    last->second += it->second;
    parts.erase(it);
}
