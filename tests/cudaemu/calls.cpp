/* calls.cpp - what all entry points share: errors, counts of calls, and the switches that make calls fail. */
#include "emu.h"
#include "cudaemu.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* ------------------------------------------------------------------ errors */

static __thread cudaError_t last_error = cudaSuccess;
static std::atomic<int> sticky_error{0};

cudaError_t emu_set_error(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return e;
}
void emu_set_sticky(cudaError_t e)
{
    int none = 0;
    sticky_error.compare_exchange_strong(none, e);
}
cudaError_t emu_sticky()
{
    return (cudaError_t)sticky_error.load();
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t e = emu_sticky() ? emu_sticky() : last_error;
    last_error = emu_sticky();
    return e;
}
extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return emu_sticky() ? emu_sticky() : last_error;
}

extern "C" const char *cudaGetErrorName(cudaError_t e)
{
    static const struct {
        cudaError_t code;
        const char *name;
    } names[] = {
#define NAME(x) {x, #x},
        NAME(cudaSuccess) NAME(cudaErrorInvalidValue) NAME(cudaErrorMemoryAllocation) NAME(cudaErrorInvalidConfiguration)
            NAME(cudaErrorInvalidDevice) NAME(cudaErrorNoDevice) NAME(cudaErrorNotReady) NAME(cudaErrorLaunchFailure)
                NAME(cudaErrorInvalidResourceHandle) NAME(cudaErrorNotSupported) NAME(cudaErrorInsufficientDriver)
                    NAME(cudaErrorInvalidMemcpyDirection) NAME(cudaErrorDevicesUnavailable) NAME(cudaErrorECCUncorrectable)
                        NAME(cudaErrorHostMemoryAlreadyRegistered) NAME(cudaErrorHostMemoryNotRegistered)
#undef NAME
    };
    for (auto &n : names)
        if (n.code == e) return n.name;
    return "cudaErrorUnknown";
}
extern "C" const char *cudaGetErrorString(cudaError_t e)
{
    return cudaGetErrorName(e);
}

/* ------------------------------------------------------------------ counts */

static const struct {
    const char *name;
    bool whole;
} call_table[] = {
#define CALL(name, whole) {#name, whole},
    EMU_CALL_MAP(CALL)
#undef CALL
        {"cudaMemcpyAsync of pageable memory", true},
};
static_assert(sizeof call_table / sizeof *call_table == EMU_CALLS, "a name for each call");
static std::atomic<long> counts[EMU_CALLS];

static struct CountsAtExit {
    ~CountsAtExit()
    {
        const char *path = getenv("CUDAEMU_COUNTS");
        FILE *f = path && *path ? fopen(path, "w") : nullptr;
        for (int i = 0; f && i < EMU_CALLS; i++) fprintf(f, "%s %ld\n", call_table[i].name, counts[i].load());
        if (f) fclose(f);
    }
} counts_at_exit;

void emu_count(EmuCall call)
{
    counts[call].fetch_add(1, std::memory_order_relaxed);
}

extern "C" long cudaemu_calls(const char *name)
{
    for (int i = 0; i < EMU_CALLS; i++)
        if (!strcmp(call_table[i].name, name)) return counts[i].load();
    return -1;
}

extern "C" long cudaemu_whole_device_calls(void)
{
    long n = 0;
    for (int i = 0; i < EMU_CALLS; i++)
        if (call_table[i].whole) n += counts[i].load();
    return n;
}

/* ------------------------------------------------------------------ devices that are not there, or go away */

int emu_device_count()
{
    long n = emu_env("CUDAEMU_DEVICES", 1);
    return n > 0 ? (int)n : 0;
}

cudaError_t emu_no_device()
{
    long n = emu_env("CUDAEMU_DEVICES", 1);
    return n > 0 ? cudaSuccess : n == 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
}

bool emu_loses_device()
{
    static std::atomic<long> launches{0};
    static const struct {
        const char *name;
        cudaError_t code;
    } ways[] = {{"launch", cudaErrorLaunchFailure}, {"ecc", cudaErrorECCUncorrectable}, {"unavailable", cudaErrorDevicesUnavailable}};
    if (launches.fetch_add(1) + 1 != emu_env("CUDAEMU_LOSE_AT", -1)) return false;
    const char *name = getenv("CUDAEMU_LOSE_WITH");
    for (auto &w : ways)
        if (!name || !*name || !strcmp(name, w.name)) {
            emu_set_sticky(w.code);
            return true;
        }
    fprintf(stderr, "cudaemu: CUDAEMU_LOSE_WITH=%s; it may be launch, ecc or unavailable\n", name);
    abort();
}

/* ------------------------------------------------------------------ arguments that a library refuses */

static char refusal[512];
static Lock refusal_lock;

void emu_refuse(const char *call, const char *argument, const char *asks, const char *found, ...)
{
    char text[sizeof refusal], what[256];
    va_list list;
    va_start(list, found);
    vsnprintf(what, sizeof what, found, list);
    va_end(list);
    snprintf(text, sizeof text, "%s: %s is %s; the documentation asks: %s", call, argument, what, asks);
    fprintf(stderr, "cudaemu: %s\n", text);
    Guard g(refusal_lock);
    memcpy(refusal, text, sizeof refusal);
}

extern "C" const char *cudaemu_refusal(void)
{
    return refusal;
}
extern "C" void cudaemu_forget_refusal(void)
{
    Guard g(refusal_lock);
    refusal[0] = 0;
}
