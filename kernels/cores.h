/* Which processors this process computes on, and which of its threads get which: physical cores of the affinity mask, one processor each
 * (a hyperthread's sibling adds heat, not speed), with the NUMA node of each.
 *
 * Nothing here is fatal: without a topology the processors of the mask are the cores, and the system places the threads. Any thread. */
#ifndef ZF_KERNELS_CORES_H
#define ZF_KERNELS_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { ZF_CORES_MAX = 4096 };

struct zf_core_map {
    int count;      /* threads worth having: the cores, or fewer where a quota says so; at least 1 */
    int cores;      /* physical cores of the affinity mask: entries of core[], in the order of the machine */
    int processors; /* of the mask, hyperthreads included */
    int nodes;      /* NUMA nodes that have some of these cores; at least 1 */
    double quota;   /* processors' worth of time that the cgroups allow; 0: no limit */
    char loose[96]; /* why no thread is pinned on this machine; empty: threads may be */
    struct zf_core {
        int processor, node; /* as the system numbers them */
    } core[ZF_CORES_MAX];
};

/* Of this machine, looked at once. */
const struct zf_core_map *zf_cores(void);

/* Of `ranks` processes that may use the very same processors this is the one of number `rank`: from here on the map has its share of the
 * cores alone. Where there are fewer cores than processes all have all of them, and no thread is pinned. Once, before a device is opened. */
void zf_cores_share(int rank, int ranks);
void zf_core_map_share(struct zf_core_map *map, int rank, int ranks);

/* Who works on a core. */
enum zf_core_use { ZF_CORES_COMPUTE, ZF_CORES_CPU_HALF, ZF_CORES_LOADER, ZF_CORE_USES };

/* How a run parts its cores. */
enum zf_core_split {
    ZF_CORES_TOGETHER,  /* nobody has any of his own */
    ZF_CORES_APART,     /* a CPU half beside a compute pool */
    ZF_CORES_BESIDE_GPU /* a CPU half beside a GPU, whose compute needs the thread that issues alone */
};

/* Whether the three uses have cores of their own in a run of so many threads in all (0: map->count): where there are four or more cores,
 * and threads. */
bool zf_cores_apart(const struct zf_core_map *map, int threads);

/* The threads for one use: how many, and which core of core[] each would have, ascending (beyond map->cores where there are more threads
 * than cores). Where uses are apart the first is the loader's; beside a compute pool every fourth is the CPU half's, so that each NUMA node
 * has its share, and the rest computes; beside a GPU the second is compute's, and the CPU half has all the rest. Else all are for every
 * use. Depends on the numbers alone. */
int zf_cores_for(const struct zf_core_map *map, int threads, enum zf_core_use use, enum zf_core_split split, int index[ZF_CORES_MAX]);

/* The processor of the loader's thread in such a run; -1: the system places it. */
int zf_cores_loader(const struct zf_core_map *map, int threads);

/* Why `threads` threads that may use `cores` cores of the map are not pinned to them, one each; NULL: they are. */
const char *zf_cores_loose(const struct zf_core_map *map, int threads, int cores);

/* Are the pages of a block of this size spread over the nodes? Any thread may get any task, so no node is the right one; and a strict
 * binding to one node runs out of memory while the others have some. */
bool zf_cores_spread(const struct zf_core_map *map, size_t bytes);

/* Asks for it: interleaved over the nodes of the map, a preference. Before the block is touched. False: it stays as it is. */
bool zf_cores_spread_block(void *p, size_t bytes);

/* A few lines for people: cores, nodes, who works where and why not pinned. threads: of a run, in all. */
void zf_cores_print(FILE *to, const struct zf_core_map *map, int threads, bool gpu);

/* "0-3,8": the processors of the cores in index[], into buffer, which is returned. */
const char *zf_cores_text(const struct zf_core_map *map, const int *index, int count, char *buffer, size_t size);

/* The parts behind zf_cores and zf_cores_spread_block, on any topology: tests give synthetic ones. */
struct hwloc_topology;
struct hwloc_bitmap_s;
void zf_core_map_fill(struct zf_core_map *out, struct hwloc_topology *t, const struct hwloc_bitmap_s *mask, double quota);
bool zf_core_map_interleave(const struct zf_core_map *map, struct hwloc_topology *t, void *p, size_t bytes);

#endif
