/* How many threads are worth having: physical cores of the affinity mask, bounded by the processor quota of the cgroups. */
#include "kernels/host/host.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool have = fgets(line, (int)size, f) != NULL;
    fclose(f);
    return have;
}

static bool topology(int cpu, const char *what, long *value)
{
    char path[128], line[64], *end;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    if (!read_line(path, line, sizeof line)) return false;
    *value = strtol(line, &end, 10);
    return end != line;
}

/* Pairs of (package, core) that occur among the processors of the mask; without a topology, the processors. */
static int cores_of_mask(void)
{
    enum { ROOM = 4096 };
    int size = CPU_ALLOC_SIZE(ROOM), all = 0, distinct = 0;
    cpu_set_t *mask = CPU_ALLOC(ROOM);
    long(*seen)[2] = calloc(ROOM, sizeof *seen);
    if (mask && seen && !sched_getaffinity(0, (size_t)size, mask)) {
        all = CPU_COUNT_S((size_t)size, mask);
        for (int cpu = 0; cpu < ROOM; cpu++) {
            long package, core;
            if (!CPU_ISSET_S(cpu, (size_t)size, mask)) continue;
            if (!topology(cpu, "physical_package_id", &package) || !topology(cpu, "core_id", &core)) {
                distinct = 0;
                break;
            }
            int i = 0;
            while (i < distinct && (seen[i][0] != package || seen[i][1] != core)) i++;
            if (i < distinct) continue;
            seen[distinct][0] = package;
            seen[distinct++][1] = core;
        }
    }
    free(seen);
    if (mask) CPU_FREE(mask);
    int n = distinct ? distinct : all;
    return n > 0 ? n : 1;
}

/* Processors one directory of a cgroup tree allows; 0: no limit said. */
static int quota_of(const char *directory, bool v2)
{
    char path[4608], line[64];
    long long quota = 0, period = 0;
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", directory);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld %lld", &quota, &period) != 2) return 0; /* "max" */
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &quota) != 1) return 0;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &period) != 1) return 0;
    }
    if (quota <= 0 || period <= 0) return 0; /* v1 says -1 */
    long long n = (quota + period - 1) / period;
    return n > 4096 ? 4096 : (int)n;
}

/* The smallest quota of a cgroup and all above it. */
static int quota_above(const char *root, const char *group, bool v2)
{
    char path[4096];
    int least = 0;
    if ((size_t)snprintf(path, sizeof path, "%s%s", root, group) >= sizeof path) return 0;
    size_t stop = strlen(root);
    for (;;) {
        int n = quota_of(path, v2);
        if (n && (!least || n < least)) least = n;
        char *slash = strrchr(path, '/');
        if (strlen(path) <= stop || !slash || (size_t)(slash - path) < stop) return least;
        *slash = 0;
    }
}

/* Does the comma-separated list name the controller? */
static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (!strncmp(at, name, n) && (at[n] == ',' || !at[n])) return true;
    }
    return false;
}

static int cgroup_quota(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096];
    int least = 0;
    while (f && fgets(line, sizeof line, f)) { /* ID:CONTROLLERS:PATH; version 2 is "0::PATH" */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        bool v2 = !list[1];
        if (!v2 && !has_controller(list + 1, "cpu")) continue;
        int n = quota_above(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group, v2);
        if (n && (!least || n < least)) least = n;
    }
    if (f) fclose(f);
    return least;
}

int zf_host_cores(void)
{
    int cores = cores_of_mask(), quota = cgroup_quota();
    return quota && quota < cores ? quota : cores;
}
