/* nvml.cpp - the entry points of NVIDIA's management library that the trainer asks. Found in the process itself, before the real library is
 * looked for. Checks every argument.
 *
 * CUDAEMU_NVML          0: no driver. lost: the GPU has fallen off its bus after it was found
 * CUDAEMU_NVML_REFUSE   names of functions that this GPU does not support, as MIG and consumer cards do: "nvmlDeviceGetPowerUsage,..." */
#include "cudaemu.h"
#include "emu.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum Return {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15
};
struct Utilization {
    unsigned gpu, memory;
};
struct Memory {
    unsigned long long total, free, used;
};
static std::atomic<int> initialised{0};
static int the_gpu;

static int wrong(const char *call, const char *what)
{
    fprintf(stderr, "cudaemu: %s: %s\n", call, what);
    return INVALID_ARGUMENT;
}

static bool refused(const char *call)
{
    const char *list = getenv("CUDAEMU_NVML_REFUSE");
    size_t n = strlen(call);
    for (const char *at = list ? strstr(list, call) : nullptr; at; at = strstr(at + 1, call))
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ',')) return true;
    return false;
}

/* What all queries of a device have in common. */
static int enter(const char *call, const void *device, const void *out)
{
    const char *state = getenv("CUDAEMU_NVML");
    if (!initialised) return UNINITIALIZED;
    if (device != &the_gpu) return wrong(call, "no device that nvmlDeviceGetHandleByPciBusId_v2 gave");
    if (!out) return wrong(call, "no place for the answer");
    if (state && !strcmp(state, "lost")) return GPU_IS_LOST;
    return refused(call) ? NOT_SUPPORTED : SUCCESS;
}
#define ENTER_NVML(out) \
    if (int code = enter(__func__, device, out)) return code

extern "C" {
int nvmlInit_v2(void)
{
    const char *state = getenv("CUDAEMU_NVML");
    if (state && !strcmp(state, "0")) return DRIVER_NOT_LOADED;
    initialised++;
    return SUCCESS;
}
int nvmlShutdown(void)
{
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}
const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Invalid Argument";
    }
}
int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    if (!initialised) return UNINITIALIZED;
    if (!out || size < 80) return wrong(__func__, "80 bytes are needed (NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)");
    snprintf(out, size, "999.99");
    return SUCCESS;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    unsigned domain, b, device, function;
    char more;
    if (!initialised) return UNINITIALIZED;
    if (!bus || !out) return wrong(__func__, "a missing argument");
    if (sscanf(bus, "%x:%x:%x.%x%c", &domain, &b, &device, &function, &more) != 4) return wrong(__func__, "no domain:bus:device.function");
    if (b != 0x3b) return NOT_FOUND;
    *out = &the_gpu;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, Utilization *out)
{
    ENTER_NVML(out);
    *out = {53, 20};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *out)
{
    ENTER_NVML(out);
    unsigned long long used = emu_used_bytes(0), total = emu_device_bytes();
    *out = {total, total - used, used};
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    ENTER_NVML(out);
    *out = 123500;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    ENTER_NVML(out);
    if (sensor) return wrong(__func__, "NVML_TEMPERATURE_GPU is the only sensor");
    *out = 41;
    return SUCCESS;
}
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *out)
{
    ENTER_NVML(out);
    if (counter != 0 && counter != 1) return wrong(__func__, "counters are TX (0) and RX (1)");
    *out = counter ? 2000 : 1000;
    return SUCCESS;
}
#define NUMBER(name, v) \
    int name(void *device, unsigned *out) \
    { \
        ENTER_NVML(out); \
        *out = v; \
        return SUCCESS; \
    }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 4)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 8)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *out)
{
    ENTER_NVML(out);
    if (link >= 18) return wrong(__func__, "link 0 to 17");
    *out = link < 4;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(void *device, unsigned *out, unsigned *next)
{
    ENTER_NVML(out);
    if (!next) return wrong(__func__, "no place for the mode after a reset");
    *out = *next = 0;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(void *device, int *out, int *next)
{
    ENTER_NVML(out);
    if (!next) return wrong(__func__, "no place for the mode after a reset");
    *out = *next = 1;
    return SUCCESS;
}
int nvmlDeviceGetComputeMode(void *device, int *out)
{
    ENTER_NVML(out);
    *out = 0;
    return SUCCESS;
}
}
