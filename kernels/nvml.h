/* What NVIDIA's management library tells of a GPU: use, memory, power, temperature, bus. Opened when it is needed, with declarations of our
 * own, so that this needs no toolkit to build and no driver to start. What a GPU does not tell (MIG, consumer cards, no permission) is a
 * reason instead of a number. */
#ifndef ZF_KERNELS_NVML_H
#define ZF_KERNELS_NVML_H

#include "core/base/err.h"

struct zf_nvml; /* one GPU; one thread at a time */

struct zf_nvml_value {
    double value;
    const char *why; /* not NULL: it is not told, for this reason; static text */
};

/* What a `gpu` line has, in its order and under its names: utilization as a fraction, bytes, W, C, bytes a second from and to the bus. */
/* clang-format off */
#define ZF_NVML_SAMPLE_MAP(X) \
    X(UTILIZATION, "utilization") X(MEMORY_USED, "memory_used") X(POWER, "power_w") X(TEMPERATURE, "temperature_c") \
    X(PCIE_RX, "pcie_rx") X(PCIE_TX, "pcie_tx")
/* What does not change while a run goes on. MODE: 0 for all programs, 2 none, 3 one at a time. NVLINKS: that are up. */
#define ZF_NVML_FACT_MAP(X) \
    X(PCIE_GENERATION) X(PCIE_WIDTH) X(PCIE_MOST_GENERATION) X(PCIE_MOST_WIDTH) X(NVLINKS) X(MIG) X(ECC) X(MODE)
/* clang-format on */
enum zf_nvml_sampled {
#define X(name, text) ZF_NVML_##name,
    ZF_NVML_SAMPLE_MAP(X)
#undef X
        ZF_NVML_SAMPLES
};
enum zf_nvml_fact {
#define X(name) ZF_NVML_##name,
    ZF_NVML_FACT_MAP(X)
#undef X
        ZF_NVML_FACTS
};

/* bus: "00000000:3b:00.0". ZF_IO: there is no such library, or it does not work, and what to do. */
enum zf_status zf_nvml_open(struct zf_nvml **out, const char *bus, struct zf_err *e);
void zf_nvml_close(struct zf_nvml *n); /* NULL is fine */
void zf_nvml_sample(struct zf_nvml *n, struct zf_nvml_value out[ZF_NVML_SAMPLES]);
void zf_nvml_facts(struct zf_nvml *n, struct zf_nvml_value out[ZF_NVML_FACTS]);
const char *zf_nvml_driver(struct zf_nvml *n); /* "550.54.15"; "": it does not say */
const char *zf_nvml_sample_name(enum zf_nvml_sampled s);

#endif
