/* hwloc tells cores, siblings and nodes; the affinity mask is the process's (its main thread's: a pinned thread has another). */
#include "kernels/cores.h"

#include "core/base/cgroup.h"

#include <hwloc.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPREAD_FROM = 4 << 20, APART_FROM = 4, CPU_HALF_EVERY = 4 };

/* The whole of what is said about a core is the first processor of the mask on it. */
static void add_core(struct zf_core_map *m, hwloc_obj_t o, hwloc_const_bitmap_t mask)
{
    hwloc_bitmap_t usable = hwloc_bitmap_dup(mask);
    if (!usable) return;
    hwloc_bitmap_and(usable, usable, o->cpuset);
    int processor = hwloc_bitmap_first(usable), node = o->nodeset ? hwloc_bitmap_first(o->nodeset) : -1;
    hwloc_bitmap_free(usable);
    if (processor >= 0 && m->cores < ZF_CORES_MAX) m->core[m->cores++] = (struct zf_core){processor, node < 0 ? 0 : node};
}

static int count_nodes(const struct zf_core_map *m)
{
    int nodes = 0;
    for (int i = 0; i < m->cores; i++) {
        int j = 0;
        while (j < i && m->core[j].node != m->core[i].node) j++;
        nodes += j == i;
    }
    return nodes ? nodes : 1;
}

static void finish(struct zf_core_map *m, double quota)
{
    m->nodes = count_nodes(m);
    m->quota = quota;
    m->count = m->cores > 0 ? m->cores : 1;
    if (quota <= 0 || quota >= m->count) return;
    m->count = (int)ceil(quota);
    if (!m->loose[0]) snprintf(m->loose, sizeof m->loose, "the quota of %.3g processors is less than the cores", quota);
}

void zf_core_map_fill(struct zf_core_map *out, struct hwloc_topology *t, const struct hwloc_bitmap_s *mask, double quota)
{
    memset(out, 0, sizeof *out);
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, type, o));) add_core(out, o, mask);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, o));)
        out->processors += hwloc_bitmap_isset(mask, o->os_index);
    if (!hwloc_topology_is_thissystem(t)) snprintf(out->loose, sizeof out->loose, "the topology is not this machine's (HWLOC_... is set)");
    finish(out, quota);
}

/* No topology: the processors of the mask. */
static void fill_from_mask(struct zf_core_map *out, hwloc_const_bitmap_t mask, double quota)
{
    memset(out, 0, sizeof *out);
    for (int p = hwloc_bitmap_first(mask); p >= 0 && out->cores < ZF_CORES_MAX; p = hwloc_bitmap_next(mask, p))
        out->core[out->cores++] = (struct zf_core){p, 0};
    out->processors = out->cores;
    snprintf(out->loose, sizeof out->loose, "the system does not tell which processors share a core");
    finish(out, quota);
}

/* A machine that was made up (HWLOC_SYNTHETIC): its processors are the mask. */
static bool made_up(hwloc_topology_t t)
{
    const char *backend = hwloc_obj_get_info_by_name(hwloc_get_root_obj(t), "Backend");
    return backend && !strcmp(backend, "Synthetic");
}

/* The affinity mask; empty if it cannot be read. */
static hwloc_bitmap_t read_mask(void)
{
    size_t size = CPU_ALLOC_SIZE(ZF_CORES_MAX);
    cpu_set_t *set = CPU_ALLOC(ZF_CORES_MAX);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (mask && set && !sched_getaffinity(getpid(), size, set))
        for (int i = 0; i < ZF_CORES_MAX; i++)
            if (CPU_ISSET_S(i, size, set)) hwloc_bitmap_set(mask, (unsigned)i);
    if (set) CPU_FREE(set);
    return mask;
}

/* Cores, nodes and processors alone: caches, devices and the probing of processors one by one would cost time for nothing. */
static hwloc_topology_t load_topology(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t)) return NULL;
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (!hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) &&
        !hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) && !hwloc_topology_load(t))
        return t;
    hwloc_topology_destroy(t);
    return NULL;
}

static struct {
    pthread_once_t once;
    struct zf_core_map map;
    hwloc_topology_t topology; /* kept where there are several nodes, to the end of the process; else NULL */
} here = {.once = PTHREAD_ONCE_INIT};

static void look(void)
{
    double quota = zf_cgroup_processors("/");
    hwloc_bitmap_t mask = read_mask();
    hwloc_topology_t t = mask ? load_topology() : NULL;
    if (t) zf_core_map_fill(&here.map, t, made_up(t) ? hwloc_topology_get_complete_cpuset(t) : mask, quota);
    if (mask && !here.map.cores) fill_from_mask(&here.map, mask, quota);
    if (!mask) finish(&here.map, quota);
    if (mask) hwloc_bitmap_free(mask);
    if (t && here.map.nodes > 1)
        here.topology = t;
    else if (t)
        hwloc_topology_destroy(t);
}

const struct zf_core_map *zf_cores(void)
{
    pthread_once(&here.once, look);
    return &here.map;
}

void zf_core_map_share(struct zf_core_map *map, int rank, int ranks)
{
    int all = map->cores, from = all * rank / ranks, to = all * (rank + 1) / ranks;
    double quota = map->quota > 0 ? map->quota / ranks : 0;
    if (ranks < 2) return;
    if (all >= ranks) {
        memmove(map->core, map->core + from, (size_t)(to - from) * sizeof *map->core);
        map->cores = to - from;
        map->processors = map->processors * map->cores / all;
        finish(map, quota);
        return;
    }
    if (!map->loose[0]) snprintf(map->loose, sizeof map->loose, "%d ranks share %d core%s", ranks, all, all == 1 ? "" : "s");
    map->count = 1;
}

void zf_cores_share(int rank, int ranks)
{
    zf_cores();
    zf_core_map_share(&here.map, rank, ranks);
}

static enum zf_core_use use_of(int i, enum zf_core_split split)
{
    bool half = split == ZF_CORES_BESIDE_GPU ? i > 1 : i % CPU_HALF_EVERY == CPU_HALF_EVERY - 1;
    return half ? ZF_CORES_CPU_HALF : i ? ZF_CORES_COMPUTE : ZF_CORES_LOADER;
}

bool zf_cores_apart(const struct zf_core_map *map, int threads)
{
    return map->count >= APART_FROM && (!threads || threads >= APART_FROM);
}

int zf_cores_for(const struct zf_core_map *map, int threads, enum zf_core_use use, enum zf_core_split split, int index[ZF_CORES_MAX])
{
    int n = 0;
    bool all = split == ZF_CORES_TOGETHER || !zf_cores_apart(map, threads);
    if (!threads) threads = map->count;
    for (int i = 0; i < threads && i < ZF_CORES_MAX; i++)
        if (all || use_of(i, split) == use) index[n++] = i;
    return n;
}

int zf_cores_loader(const struct zf_core_map *map, int threads)
{
    int index[ZF_CORES_MAX];
    if (!zf_cores_apart(map, threads) || zf_cores_loose(map, threads ? threads : map->count, map->count)) return -1;
    zf_cores_for(map, threads, ZF_CORES_LOADER, ZF_CORES_APART, index); /* the same beside a GPU */
    return map->core[index[0]].processor;
}

const char *zf_cores_loose(const struct zf_core_map *map, int threads, int cores)
{
    if (map->loose[0]) return map->loose;
    if (!map->cores) return "the affinity mask cannot be read";
    /* Measured on two cores with other work beside: pinned threads, which cannot step aside, are slower by a seventh. */
    if (map->count < APART_FROM) return "with fewer than four cores other threads have to share them";
    if (threads > cores) return "there are more threads than cores";
    if (threads < cores) return "with fewer threads than cores the system finds the free ones";
    return NULL;
}

bool zf_cores_spread(const struct zf_core_map *map, size_t bytes)
{
    return map->nodes > 1 && bytes >= SPREAD_FROM;
}

bool zf_core_map_interleave(const struct zf_core_map *map, struct hwloc_topology *t, void *p, size_t bytes)
{
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    if (!nodes) return false;
    for (int i = 0; i < map->cores; i++) hwloc_bitmap_set(nodes, (unsigned)map->core[i].node);
    bool done = !hwloc_set_area_membind(t, p, bytes, nodes, HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
    hwloc_bitmap_free(nodes);
    return done;
}

bool zf_cores_spread_block(void *p, size_t bytes)
{
    const struct zf_core_map *map = zf_cores();
    return here.topology && zf_cores_spread(map, bytes) && zf_core_map_interleave(map, here.topology, p, bytes);
}

const char *zf_cores_text(const struct zf_core_map *map, const int *index, int count, char *buffer, size_t size)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (size) buffer[0] = 0;
    for (int i = 0; set && i < count && index[i] < map->cores; i++) hwloc_bitmap_set(set, (unsigned)map->core[index[i]].processor);
    if (set) hwloc_bitmap_list_snprintf(buffer, size, set);
    hwloc_bitmap_free(set);
    return buffer;
}

static void print_nodes(FILE *to, const struct zf_core_map *map)
{
    int index[ZF_CORES_MAX];
    char text[256];
    for (int first = 0; first < map->cores; first++) {
        int n = 0, node = map->core[first].node, i = 0;
        while (map->core[i].node != node) i++;
        if (i < first) continue; /* said already */
        for (; i < map->cores; i++)
            if (map->core[i].node == node) index[n++] = i;
        fprintf(to, "  node %-7d processors %s\n", node, zf_cores_text(map, index, n, text, sizeof text));
    }
}

static void print_uses(FILE *to, const struct zf_core_map *map, int threads, bool gpu, bool loose)
{
    const char *const names[ZF_CORE_USES] = {gpu ? "issuing" : "compute", "CPU half", "loader"};
    int index[ZF_CORES_MAX];
    char text[256];
    fprintf(to, "%-14s ", "lanes");
    for (int use = 0; use < ZF_CORE_USES; use++) {
        int n = zf_cores_for(map, threads, (enum zf_core_use)use, gpu ? ZF_CORES_BESIDE_GPU : ZF_CORES_APART, index);
        fprintf(to, "%s%s %s", use ? ", " : "", names[use], zf_cores_text(map, index, n, text, sizeof text));
    }
    if (zf_cores_apart(map, threads))
        fprintf(to, " (%s%s)\n", gpu ? "the GPU computes" : "gpu_only: compute has all", loose ? "; as many threads each, not pinned" : "");
    else
        fprintf(to, " (shared: fewer than four %s)\n", map->count < APART_FROM ? "cores" : "threads");
}

void zf_cores_print(FILE *to, const struct zf_core_map *map, int threads, bool gpu)
{
    int index[ZF_CORES_MAX], n = zf_cores_for(map, threads, ZF_CORES_COMPUTE, ZF_CORES_TOGETHER, index);
    char text[256];
    const char *loose = zf_cores_loose(map, n, map->count);
    fprintf(to, "%-14s %d physical, %d processor%s in the affinity mask, %d NUMA node%s", "cores", map->cores, map->processors,
            map->processors == 1 ? "" : "s", map->nodes, map->nodes == 1 ? "" : "s");
    if (map->quota > 0) fprintf(to, ", a quota of %.3g processors", map->quota);
    fputc('\n', to);
    if (map->nodes > 1) print_nodes(to, map);
    if (loose)
        fprintf(to, "%-14s %d, not pinned: %s\n", "threads", n, loose);
    else
        fprintf(to, "%-14s %d, pinned to processor%s %s\n", "threads", n, n == 1 ? "" : "s",
                zf_cores_text(map, index, n, text, sizeof text));
    print_uses(to, map, threads, gpu, loose);
}
