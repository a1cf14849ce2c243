/* doctor: what this machine has for training, and what is missing. */
#include "core/run/check.h"

#include "core/base/file.h"
#include "core/plan/memory.h"
#include "core/run/measure.h"
#include "kernels/cores.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

static void cpu_name(char *to, size_t size)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(to, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(to, size, "%s", colon + 2);
        break;
    }
    if (f) fclose(f);
}

/* Over arrays that no cache holds, as far as there is memory for them. */
static void speed(struct zf_device *d, int threads, size_t room)
{
    enum { PARAMETERS = 16 << 20, BYTES = 16, SHARE = 8 };
    size_t most = room / SHARE / BYTES;
    struct zf_speed v;
    struct zf_err e;
    if (zf_measure_memory(d, most < PARAMETERS ? most : PARAMETERS, &v, &e)) {
        printf("%-14s not measured: %s\n", "bandwidth", e.message);
        return;
    }
    printf("%-14s %.1f GB/s reading, %.1f GB/s copying (what is read and what is written), %d thread%s\n", "bandwidth", v.read / 1e9,
           v.copy / 1e9, threads, threads == 1 ? "" : "s");
    printf("%-14s %.1f GB/s, %.2f of what the memory streams (%.1f GB/s); %.2f G parameters/s\n", "CPU Adam", v.adamw / 1e9,
           v.adamw / v.stream, v.stream / 1e9, v.adamw / 28e9);
}

/* AdamW by the threads that the CPU half has of its own, where it does. */
static void half_speed(size_t room)
{
    enum { PARAMETERS = 4 << 20, BYTES = 16, SHARE = 8 };
    size_t most = room / SHARE / BYTES;
    double bytes;
    struct zf_device *d;
    struct zf_device_info info;
    struct zf_err e;
    if (!zf_cores_apart(zf_cores(), 0) || zf_device_open(&d, "host", &(struct zf_device_options){.part = ZF_PART_CPU_HALF}, &e)) return;
    d->type->info(d, &info);
    if (!zf_measure_adamw(d, most < PARAMETERS ? most : PARAMETERS, &bytes, &e))
        printf("%-14s %.1f GB/s by the CPU half's %d thread%s, %s\n", "", bytes / 1e9, info.threads, info.threads == 1 ? "" : "s",
               info.placement);
    d->type->close(d);
}

static const char *gpu(void)
{
    DIR *d = opendir("/proc/driver/nvidia/gpus");
    if (!d) return "none (no NVIDIA driver); this version trains on the CPU in any case";
    closedir(d);
    return "an NVIDIA driver is there; this version trains on the CPU in any case";
}

static void limit(const char *name, size_t bytes, const char *more)
{
    char text[32];
    if (bytes == SIZE_MAX)
        printf("%-14s no limit\n", name);
    else
        printf("%-14s %s%s%s\n", name, zf_bytes_text(bytes, text, sizeof text), more[0] ? " left of " : "", more);
}

enum zf_status zf_doctor_run(struct zf_err *e)
{
    char cpu[256], text[32];
    struct utsname u;
    struct rlimit memlock;
    struct zf_memory_limits l;
    struct zf_device *d;
    struct zf_device_info info;
    ZF_TRY(zf_device_open(&d, "host", &(struct zf_device_options){0}, e));
    d->type->info(d, &info);
    cpu_name(cpu, sizeof cpu);
    uname(&u);
    printf("%-14s %s\n", "version", ZF_VERSION);
    printf("%-14s %s %s%s\n", "system", u.sysname, u.release,
           strstr(u.release, "microsoft") ? " (WSL: pinned memory is limited there)" : "");
    printf("%-14s %s\n", "processor", cpu);
    printf("%-14s %s\n", "host device", info.description);
    printf("%-14s %s%s\n", "products", info.products, info.bf16_products ? ", bf16 in hardware" : "");
    zf_cores_print(stdout, zf_cores(), 0, false);
    zf_memory_limits_read(&l, "/", 0);
    speed(d, info.threads, l.least);
    half_speed(l.least);
    printf("%-14s %s\n", "gpu", gpu());
    limit("memory", l.available, "");
    limit("cgroup", l.cgroup, l.cgroup_path);
    if (!getrlimit(RLIMIT_MEMLOCK, &memlock)) limit("memlock", memlock.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)memlock.rlim_cur, "");
    uint64_t room = zf_file_room(".");
    if (room < UINT64_MAX) printf("%-14s %s free in this directory\n", "disk", zf_bytes_text(room, text, sizeof text));
    puts(!strcmp(info.isa, "scalar") ? "missing        AVX2 or AVX-512: training will be slow on this processor"
                                     : "missing        nothing");
    d->type->close(d);
    return ZF_OK;
}
