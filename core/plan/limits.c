/* What memory there is: procfs and every ancestor's cgroup limit, v1 and v2. Reads files only; what is missing or garbled is "no such
 * limit".
 *
 * Inside a container procfs shows the host's memory; the group's limit is what kills. So the least of all counts. */
#include "core/plan/memory.h"

#include "core/base/cgroup.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* v1 says "none" with a number just below 2^63. */
#define HUGE_LIMIT ((unsigned long long)1 << 62)

static const struct layout {
    const char *limit, *usage, *inactive, *oom;
} layouts[] = {
    [ZF_CGROUP_V1] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control"},
    [ZF_CGROUP_V2] = {"memory.max", "memory.current", "inactive_file", "memory.events"},
};

static size_t read_kilobytes(const char *root, const char *file, const char *key, size_t absent)
{
    unsigned long long k;
    if (!zf_cgroup_number(root, file, key, &k) || k > SIZE_MAX / 1024) return absent;
    return (size_t)k * 1024;
}

static void take_tightest(void *ctx, enum zf_cgroup_version version, const char *directory)
{
    struct zf_memory_limits *out = ctx;
    const struct layout *layout = &layouts[version];
    unsigned long long limit, used = 0, inactive = 0;
    if (!zf_cgroup_number(directory, layout->limit, "", &limit) || limit >= HUGE_LIMIT) return;
    zf_cgroup_number(directory, layout->usage, "", &used);
    zf_cgroup_number(directory, "memory.stat", layout->inactive, &inactive);
    used = used > inactive ? used - inactive : 0;
    size_t left = limit > used ? (size_t)(limit - used) : 0;
    if (left >= out->cgroup) return;
    out->cgroup = left;
    snprintf(out->cgroup_path, sizeof out->cgroup_path, "%s", directory);
}

static void count_kills(void *ctx, enum zf_cgroup_version version, const char *directory)
{
    size_t *out = ctx;
    unsigned long long n;
    if (zf_cgroup_number(directory, layouts[version].oom, "oom_kill", &n) && (*out == SIZE_MAX || n > *out)) *out = (size_t)n;
}

size_t zf_memory_oom_kills(const char *root)
{
    size_t kills = SIZE_MAX;
    zf_cgroup_walk(root, "memory", count_kills, &kills);
    return kills;
}

/* The smallest of all. */
static void choose(struct zf_memory_limits *out)
{
    const struct {
        size_t bytes;
        const char *name;
    } all[] = {{out->available, "MemAvailable"}, {out->cgroup, "cgroup limit"}, {out->option, "memory_limit"}, {out->address, "ulimit -v"}};
    out->least = SIZE_MAX;
    out->least_name = "no limit";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].bytes >= out->least) continue;
        out->least = all[i].bytes;
        out->least_name = all[i].name;
    }
}

void zf_memory_limits_read(struct zf_memory_limits *out, const char *root, size_t memory_limit)
{
    *out = (struct zf_memory_limits){
        .cgroup = SIZE_MAX, .option = SIZE_MAX, .address = SIZE_MAX, .device = SIZE_MAX, .device_total = SIZE_MAX};
    out->available = read_kilobytes(root, "proc/meminfo", "MemAvailable", SIZE_MAX);
    out->resident = read_kilobytes(root, "proc/self/status", "VmRSS", 0);
    zf_cgroup_walk(root, "memory", take_tightest, out);
    struct rlimit address;
    if (!getrlimit(RLIMIT_AS, &address) && address.rlim_cur != RLIM_INFINITY) {
        size_t mapped = read_kilobytes(root, "proc/self/status", "VmSize", 0);
        out->address = address.rlim_cur > mapped ? (size_t)address.rlim_cur - mapped : 0;
    }
    if (memory_limit) out->option = memory_limit > out->resident ? memory_limit - out->resident : 0;
    choose(out);
}

void zf_memory_limits_share(struct zf_memory_limits *l, size_t processes)
{
    l->available /= processes;
    if (l->cgroup != SIZE_MAX) l->cgroup /= processes;
    choose(l);
}
