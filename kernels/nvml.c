#include "kernels/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As NVIDIA's documentation has them. */
typedef void *device_t;
typedef int return_t;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13 };
enum { SENSOR_GPU = 0, PCIE_TX = 0, PCIE_RX = 1, LINKS_MOST = 18 };
struct utilization {
    unsigned gpu, memory; /* percent */
};
struct memory {
    unsigned long long total, free, used;
};

/* clang-format off */
#define FUNCTION_MAP(X) \
    X(nvmlInit_v2, (void), true) \
    X(nvmlShutdown, (void), true) \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, device_t *out), true) \
    X(nvmlSystemGetDriverVersion, (char *out, unsigned size), false) \
    X(nvmlDeviceGetUtilizationRates, (device_t d, struct utilization *out), false) \
    X(nvmlDeviceGetMemoryInfo, (device_t d, struct memory *out), false) \
    X(nvmlDeviceGetPowerUsage, (device_t d, unsigned *milliwatts), false) \
    X(nvmlDeviceGetTemperature, (device_t d, int sensor, unsigned *out), false) \
    X(nvmlDeviceGetPcieThroughput, (device_t d, int counter, unsigned *kilobytes), false) \
    X(nvmlDeviceGetCurrPcieLinkGeneration, (device_t d, unsigned *out), false) \
    X(nvmlDeviceGetCurrPcieLinkWidth, (device_t d, unsigned *out), false) \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (device_t d, unsigned *out), false) \
    X(nvmlDeviceGetMaxPcieLinkWidth, (device_t d, unsigned *out), false) \
    X(nvmlDeviceGetNvLinkState, (device_t d, unsigned link, int *active), false) \
    X(nvmlDeviceGetMigMode, (device_t d, unsigned *now, unsigned *next), false) \
    X(nvmlDeviceGetEccMode, (device_t d, int *now, int *next), false) \
    X(nvmlDeviceGetComputeMode, (device_t d, int *out), false)
/* clang-format on */

struct zf_nvml {
    void *library; /* NULL: the process has it already */
    device_t device;
    char driver[96];
    const char *(*text)(return_t code);
#define X(name, arguments, needed) return_t(*name) arguments;
    FUNCTION_MAP(X)
#undef X
};

static enum zf_status find_functions(struct zf_nvml *n, struct zf_err *e)
{
    const char *missing = NULL;
    void *found, *from = n->library ? n->library : RTLD_DEFAULT;
#define X(name, arguments, needed) \
    found = dlsym(from, #name); \
    if (needed && !found) missing = #name; \
    memcpy(&n->name, &found, sizeof found);
    FUNCTION_MAP(X)
#undef X
    found = dlsym(from, "nvmlErrorString");
    memcpy(&n->text, &found, sizeof found);
    return missing ? zf_fail(e, ZF_IO, "libnvidia-ml.so.1", "it has no %s; a newer driver is needed", missing) : ZF_OK;
}

static const char *reason(const struct zf_nvml *n, return_t code)
{
    if (code == NOT_SUPPORTED) return "this GPU does not tell";
    if (code == FUNCTION_NOT_FOUND) return "the driver does not know it";
    const char *text = n->text ? n->text(code) : NULL;
    return text ? text : "NVML does not say why";
}

enum zf_status zf_nvml_open(struct zf_nvml **out, const char *bus, struct zf_err *e)
{
    struct zf_nvml *n = calloc(1, sizeof *n);
    *out = NULL;
    if (!n) return zf_fail_memory(e, "NVML");
    if (!dlsym(RTLD_DEFAULT, "nvmlInit_v2") && !(n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL))) {
        free(n);
        return zf_fail(e, ZF_IO, "libnvidia-ml.so.1",
                       "it is not there; it comes with the driver (libnvidia-ml1 in Debian, the `utility` capability in a container)");
    }
    enum zf_status s = find_functions(n, e);
    return_t code = s ? SUCCESS : n->nvmlInit_v2();
    if (code) s = zf_fail(e, ZF_IO, "NVML", "%s%s", reason(n, code), code == DRIVER_NOT_LOADED ? "; `nvidia-smi` must work first" : "");
    bool ready = !s;
    if (!s && (code = n->nvmlDeviceGetHandleByPciBusId_v2(bus, &n->device)))
        s = zf_fail(e, ZF_IO, "NVML", "the GPU at %s: %s", bus, reason(n, code));
    if (!s && n->nvmlSystemGetDriverVersion && n->nvmlSystemGetDriverVersion(n->driver, sizeof n->driver)) n->driver[0] = 0;
    if (!s) {
        *out = n;
        return ZF_OK;
    }
    if (ready) n->nvmlShutdown();
    if (n->library) dlclose(n->library);
    free(n);
    return s;
}

void zf_nvml_close(struct zf_nvml *n)
{
    if (!n) return;
    n->nvmlShutdown();
    if (n->library) dlclose(n->library);
    free(n);
}

const char *zf_nvml_driver(struct zf_nvml *n)
{
    return n->driver;
}

const char *zf_nvml_sample_name(enum zf_nvml_sampled s)
{
    static const char *const names[] = {
#define X(name, text) text,
        ZF_NVML_SAMPLE_MAP(X)
#undef X
    };
    return names[s];
}

#define ASK(n, call, ...) ((n)->call ? (n)->call(__VA_ARGS__) : FUNCTION_NOT_FOUND)

static struct zf_nvml_value value(const struct zf_nvml *n, return_t code, double v)
{
    return (struct zf_nvml_value){.value = code ? 0 : v, .why = code ? reason(n, code) : NULL};
}

static struct zf_nvml_value throughput(struct zf_nvml *n, int counter)
{
    unsigned kilobytes = 0;
    return_t code = ASK(n, nvmlDeviceGetPcieThroughput, n->device, counter, &kilobytes);
    return value(n, code, 1e3 * kilobytes);
}

void zf_nvml_sample(struct zf_nvml *n, struct zf_nvml_value out[ZF_NVML_SAMPLES])
{
    struct utilization u = {0};
    struct memory m = {0};
    unsigned x = 0;
    return_t code = ASK(n, nvmlDeviceGetUtilizationRates, n->device, &u);
    out[ZF_NVML_UTILIZATION] = value(n, code, u.gpu / 100.0);
    code = ASK(n, nvmlDeviceGetMemoryInfo, n->device, &m);
    out[ZF_NVML_MEMORY_USED] = value(n, code, (double)m.used);
    code = ASK(n, nvmlDeviceGetPowerUsage, n->device, &x);
    out[ZF_NVML_POWER] = value(n, code, x / 1e3);
    code = ASK(n, nvmlDeviceGetTemperature, n->device, SENSOR_GPU, &x);
    out[ZF_NVML_TEMPERATURE] = value(n, code, x);
    out[ZF_NVML_PCIE_RX] = throughput(n, PCIE_RX);
    out[ZF_NVML_PCIE_TX] = throughput(n, PCIE_TX);
}

static struct zf_nvml_value links(struct zf_nvml *n)
{
    int up = 0, active = 0;
    return_t first = SUCCESS;
    for (unsigned i = 0; i < LINKS_MOST; i++) {
        return_t code = ASK(n, nvmlDeviceGetNvLinkState, n->device, i, &active);
        if (!i) first = code;
        up += !code && active;
    }
    return value(n, first == NOT_SUPPORTED ? SUCCESS : first, up); /* a GPU without them says so in this way */
}

void zf_nvml_facts(struct zf_nvml *n, struct zf_nvml_value out[ZF_NVML_FACTS])
{
    unsigned x = 0, next = 0;
    int mode = 0, later = 0;
    return_t code = ASK(n, nvmlDeviceGetCurrPcieLinkGeneration, n->device, &x);
    out[ZF_NVML_PCIE_GENERATION] = value(n, code, x);
    code = ASK(n, nvmlDeviceGetCurrPcieLinkWidth, n->device, &x);
    out[ZF_NVML_PCIE_WIDTH] = value(n, code, x);
    code = ASK(n, nvmlDeviceGetMaxPcieLinkGeneration, n->device, &x);
    out[ZF_NVML_PCIE_MOST_GENERATION] = value(n, code, x);
    code = ASK(n, nvmlDeviceGetMaxPcieLinkWidth, n->device, &x);
    out[ZF_NVML_PCIE_MOST_WIDTH] = value(n, code, x);
    out[ZF_NVML_NVLINKS] = links(n);
    code = ASK(n, nvmlDeviceGetMigMode, n->device, &x, &next);
    out[ZF_NVML_MIG] = value(n, code, x);
    code = ASK(n, nvmlDeviceGetEccMode, n->device, &mode, &later);
    out[ZF_NVML_ECC] = value(n, code, mode);
    code = ASK(n, nvmlDeviceGetComputeMode, n->device, &mode);
    out[ZF_NVML_MODE] = value(n, code, mode);
}
