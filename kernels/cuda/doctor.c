#include "kernels/cuda/doctor.h"

#include "kernels/cuda/library.h"
#include "kernels/nvml.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* ---- libraries ---- */

static const struct library {
    const char *name, *file, *function, *package, *without;
    bool must; /* else a run does without */
} libraries[] = {
    {"cuBLAS", "libcublas.so." TEXT(CUBLAS_VER_MAJOR), "cublasCreate_v2",
     "libcublas-" TEXT(CUBLAS_VER_MAJOR) "-" TEXT(CUBLAS_VER_MINOR) " of NVIDIA's repository", "products need it", true},
    {"cuBLASLt", "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), "cublasLtCreate",
     "libcublas-" TEXT(CUBLAS_VER_MAJOR) "-" TEXT(CUBLAS_VER_MINOR) " of NVIDIA's repository", "cuBLAS needs it", true},
    {"NCCL", "libnccl.so.2", "ncclCommInitRank", "libnccl2 of NVIDIA's repository", "several GPUs need it, one does not", false},
    {"NVML", "libnvidia-ml.so.1", "nvmlInit_v2", "the driver: libnvidia-ml1 in Debian, the capability `utility` in a container",
     "use, power and temperature are not shown", false},
};

static bool has(const struct library *l)
{
    if (dlsym(RTLD_DEFAULT, l->function)) return true;
    void *handle = dlopen(l->file, RTLD_LAZY | RTLD_LOCAL); /* stays: such libraries leave memory behind when they are closed */
    return handle && dlsym(handle, l->function);
}

static void add_missing(char *missing, size_t size, const char *what, const char *how)
{
    size_t n = strlen(missing);
    snprintf(missing + n, size - n, "%s%s: %s", n ? "; " : "", what, how);
}

static void print_libraries(FILE *to, bool gpu, char *missing, size_t size)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const struct library *l = &libraries[i];
        bool found = has(l);
        if (found)
            fprintf(to, "%-14s %s is there\n", l->name, l->file);
        else
            fprintf(to, "%-14s %s is missing (%s); it comes with %s\n", l->name, l->file, l->without, l->package);
        if (!found && gpu && l->must) add_missing(missing, size, l->file, l->package);
    }
}

/* ---- GPUs ---- */

static void print_fact(FILE *to, const char *name, const struct zf_nvml_value *v, const char *const *words, int count)
{
    int i = (int)v->value;
    if (v->why)
        fprintf(to, ", %s n/a (%s)", name, v->why);
    else if (i >= 0 && i < count)
        fprintf(to, ", %s %s", name, words[i]);
}

static void print_bus(FILE *to, const struct zf_nvml_value *f)
{
    fprintf(to, "%-14s ", "");
    if (f[ZF_NVML_PCIE_GENERATION].why)
        fprintf(to, "PCIe n/a (%s)", f[ZF_NVML_PCIE_GENERATION].why);
    else
        fprintf(to, "PCIe %.0f.0 x%.0f now (idle links may be slower), %.0f.0 x%.0f at most", f[ZF_NVML_PCIE_GENERATION].value,
                f[ZF_NVML_PCIE_WIDTH].value, f[ZF_NVML_PCIE_MOST_GENERATION].value, f[ZF_NVML_PCIE_MOST_WIDTH].value);
    if (f[ZF_NVML_NVLINKS].why)
        fprintf(to, ", NVLink n/a (%s)\n", f[ZF_NVML_NVLINKS].why);
    else
        fprintf(to, ", %.0f NVLink%s up\n", f[ZF_NVML_NVLINKS].value, f[ZF_NVML_NVLINKS].value == 1 ? "" : "s");
}

static void print_sample(FILE *to, struct zf_nvml *n)
{
    struct zf_nvml_value v[ZF_NVML_SAMPLES];
    zf_nvml_sample(n, v);
    fprintf(to, "%-14s ", "");
    for (int i = 0; i < ZF_NVML_SAMPLES; i++) {
        const char *name = zf_nvml_sample_name((enum zf_nvml_sampled)i);
        if (v[i].why)
            fprintf(to, "%s%s n/a (%s)", i ? ", " : "", name, v[i].why);
        else
            fprintf(to, "%s%s %.10g", i ? ", " : "", name, v[i].value);
    }
    fputc('\n', to);
}

static void print_managed(FILE *to, const char *bus)
{
    static const char *const switches[] = {"off", "on"}, *const modes[] = {"default (any number of programs)", "one thread", "prohibited",
                                                                           "one program"};
    struct zf_nvml *n;
    struct zf_nvml_value f[ZF_NVML_FACTS];
    struct zf_err e;
    if (zf_nvml_open(&n, bus, &e)) {
        fprintf(to, "%-14s use, power, temperature and bus: n/a (%s: %s)\n", "", e.where, e.message);
        return;
    }
    zf_nvml_facts(n, f);
    print_bus(to, f);
    print_sample(to, n);
    fprintf(to, "%-14s driver %s", "", zf_nvml_driver(n));
    print_fact(to, "compute mode", &f[ZF_NVML_MODE], modes, 4);
    print_fact(to, "MIG", &f[ZF_NVML_MIG], switches, 2);
    print_fact(to, "ECC", &f[ZF_NVML_ECC], switches, 2);
    fputc('\n', to);
    zf_nvml_close(n);
}

static void print_gpu(FILE *to, int number)
{
    struct cudaDeviceProp p;
    char bus[32];
    size_t idle = 0, all = 0;
    if (cudaGetDeviceProperties(&p, number) != cudaSuccess || cudaSetDevice(number) != cudaSuccess) return;
    snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID, (unsigned)p.pciDeviceID);
    fprintf(to, "%-14s %d: %s, sm_%d%d, %d multiprocessors, %s", "gpu", number, p.name, p.major, p.minor, p.multiProcessorCount, bus);
    if (cudaMemGetInfo(&idle, &all) == cudaSuccess)
        fprintf(to, ", %.2f of %.2f GiB free\n", (double)idle / (1 << 30), (double)all / (1 << 30));
    else
        fputs(", memory n/a (no context could be made: compute mode, or another program has it alone)\n", to);
    print_managed(to, bus);
}

void zf_cuda_doctor(FILE *to, char *missing, size_t size)
{
    int driver = 0, runtime = 0, count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (code != cudaSuccess) count = 0;
    for (int i = 0; i < count; i++) print_gpu(to, i);
    if (!count)
        fprintf(to, "%-14s none that CUDA can use: %s\n", "gpu",
                !driver               ? "no NVIDIA driver"
                : code == cudaSuccess ? "no device"
                                      : cudaGetErrorString(code));
    if (driver)
        fprintf(to, "%-14s the driver can CUDA %d.%d, this program has runtime %d.%d\n", "CUDA", driver / 1000, driver % 1000 / 10,
                runtime / 1000, runtime % 1000 / 10);
    else
        fprintf(
            to,
            "%-14s no driver; this program has runtime %d.%d. It comes with nvidia-driver (Debian), or from NVIDIA; in a container with "
            "the NVIDIA container toolkit (--gpus all)\n",
            "CUDA", runtime / 1000, runtime % 1000 / 10);
    if (driver && driver / 1000 < runtime / 1000)
        add_missing(missing, size, "a newer driver", "the one here is for an older generation of CUDA");
    print_libraries(to, count > 0, missing, size);
}
