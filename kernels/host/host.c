/* The host backend: any x86-64 processor. Open, close, info; the choice of the instruction-set path. */
#include "kernels/cores.h"
#include "kernels/comm/mpi.h"
#include "kernels/host/attention_amx.h"
#include "kernels/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 4096 };

/* The builtins look at what the operating system saves (XCR0) as well as at the processor. */
static bool have_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool have_amx(void)
{
    return have_avx512() && zf_host_amx();
}

static bool have_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool have_scalar(void)
{
    return true;
}

/* Best first. The first is the second but for attention in bf16. */
static const struct {
    const char *name;
    const struct zf_host_path *path;
    bool (*have)(void);
    bool amx;
} paths[] = {{"avx512+amx", &zf_host_path_avx512, have_amx, true},
             {"avx512", &zf_host_path_avx512, have_avx512, false},
             {"avx2", &zf_host_path_avx2, have_avx2, false},
             {"scalar", &zf_host_path_scalar, have_scalar, false}};

static enum zf_status choose_path(struct zf_host_path *out, const char *forced, struct zf_err *e)
{
    char names[64] = "";
    __builtin_cpu_init();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        bool wanted = !forced || !strcmp(forced, paths[i].name);
        if (wanted && paths[i].have()) {
            *out = *paths[i].path;
            out->name = paths[i].name;
            if (paths[i].amx) {
                out->typed[ZF_BF16].attention = &zf_host_attention_amx;
                out->typed[ZF_BF16].attention_backward = &zf_host_attention_backward_amx;
            }
            return ZF_OK;
        }
        if (wanted && forced)
            return zf_fail(e, ZF_USAGE, NULL,
                           "the instruction set %s was asked for, and this processor (or its operating system) does not have it; "
                           "leave it out to take the best there is",
                           forced);
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", paths[i].name);
    }
    return zf_fail(e, ZF_USAGE, NULL, "there is no instruction set \"%s\"; known are: %s", forced, names);
}

static void host_close(struct zf_device *d)
{
    struct zf_host *h = (struct zf_host *)d;
    if (!h) return;
    zf_pool_free(h->pool);
    zf_host_products_free(h->products);
    while (h->block_count) zf_host_free(d, h->blocks[h->block_count - 1].data);
    free(h->blocks);
    pthread_mutex_destroy(&h->pool_lock);
    pthread_mutex_destroy(&h->memory_lock);
    free(h);
}

/* How many threads the pool of a part has; which core each would have. */
static int choose_cores(struct zf_host *h, int threads)
{
    const struct zf_core_map *map = zf_cores();
    static const enum zf_core_split splits[] = {[ZF_PART_ALL] = ZF_CORES_TOGETHER,
                                                [ZF_PART_COMPUTE] = ZF_CORES_APART,
                                                [ZF_PART_CPU_HALF] = ZF_CORES_APART,
                                                [ZF_PART_BESIDE_GPU] = ZF_CORES_BESIDE_GPU};
    bool apart = h->part != ZF_PART_ALL && zf_cores_apart(map, threads);
    int n = zf_cores_for(map, threads, zf_host_half(h) ? ZF_CORES_CPU_HALF : ZF_CORES_COMPUTE, splits[h->part], h->core);
    h->shared = n;
    if (!apart || h->part != ZF_PART_COMPUTE) return n;
    n += zf_cores_for(map, threads, ZF_CORES_CPU_HALF, ZF_CORES_APART, h->core + n);
    return n + zf_cores_for(map, threads, ZF_CORES_LOADER, ZF_CORES_APART, h->core + n);
}

/* Threads on cores of their own, where that helps; else the system places them. threads: of all parts. */
static void place(struct zf_host *h, int threads)
{
    const struct zf_core_map *map = zf_cores();
    int processor[ZF_CORES_MAX], n = zf_pool_threads(h->pool);
    h->processor = -1;
    h->loose =
        h->synchronous ? "work is done by the thread that issues it" : zf_cores_loose(map, threads ? threads : map->count, map->count);
    if (h->loose) return;
    for (int i = 0; i < n; i++) processor[i] = map->core[h->core[i]].processor;
    if (zf_pool_pin(h->pool, processor))
        h->loose = "the system refused";
    else
        h->processor = processor[0];
}

static void host_share(struct zf_device *d, bool needed)
{
    struct zf_host *h = (struct zf_host *)d;
    zf_pool_use(h->pool, needed ? h->shared : zf_pool_threads(h->pool));
}

static enum zf_status host_open(struct zf_device **out, const struct zf_device_options *o, struct zf_err *e)
{
    struct zf_host_path path;
    if (o->threads < 0 || o->threads > THREADS_MAX)
        return zf_fail(e, ZF_USAGE, NULL, "%d threads were asked for; 1 to %d can be had, 0 takes the physical cores", o->threads,
                       (int)THREADS_MAX);
    ZF_TRY(choose_path(&path, o->isa, e));
    struct zf_host *h = calloc(1, sizeof *h);
    if (!h) return zf_fail_memory(e, "the host device");
    h->head.type = &zf_host_device;
    h->kernels = path;
    h->path = &h->kernels;
    h->synchronous = o->synchronous;
    h->jitter = o->jitter;
    pthread_mutex_init(&h->pool_lock, NULL);
    pthread_mutex_init(&h->memory_lock, NULL);
    h->part = o->part;
    enum zf_status s = zf_pool_new(&h->pool, choose_cores(h, o->threads), e);
    if (!s) {
        zf_pool_name(h->pool, zf_host_half(h) ? "cpu worker" : "compute worker");
        place(h, o->threads);
        host_share(&h->head, true);
    }
    if (!s) s = zf_host_products_new(&h->products, e);
    if (s) {
        host_close(&h->head);
        return s;
    }
    *out = &h->head;
    return ZF_OK;
}

/* MemTotal and MemAvailable; 0 where they cannot be read. */
static void system_memory(size_t *total, size_t *available)
{
    *total = *available = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return;
    char line[128];
    unsigned long long kib;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1) *total = (size_t)kib * 1024;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) *available = (size_t)kib * 1024;
    }
    fclose(f);
}

static void describe_placement(const struct zf_host *h, struct zf_device_info *out)
{
    char text[sizeof out->placement / 2];
    out->pinned = !h->loose;
    if (h->loose)
        snprintf(out->placement, sizeof out->placement, "not pinned: %s", h->loose);
    else
        snprintf(out->placement, sizeof out->placement, "pinned to processor%s %s", out->threads == 1 ? "" : "s",
                 zf_cores_text(zf_cores(), h->core, out->threads, text, sizeof text));
}

static void host_info(struct zf_device *d, struct zf_device_info *out)
{
    struct zf_host *h = (struct zf_host *)d;
    memset(out, 0, sizeof *out);
    out->threads = h ? zf_pool_used(h->pool) : zf_cores()->count;
    snprintf(out->isa, sizeof out->isa, "%s", h ? h->path->name : "");
    zf_host_matmul_library(out->products, sizeof out->products, &out->bf16_products);
    snprintf(out->description, sizeof out->description, "%d thread%s, %s, %s", out->threads, out->threads == 1 ? "" : "s", out->isa,
             out->products);
    system_memory(&out->total_bytes, &out->free_bytes);
    if (!h) return;
    describe_placement(h, out);
    pthread_mutex_lock(&h->memory_lock);
    memcpy(out->bytes, h->bytes, sizeof out->bytes);
    out->peak_bytes = h->peak;
    pthread_mutex_unlock(&h->memory_lock);
}

const struct zf_device_type zf_host_device = {
    .abi = ZF_DEVICE_ABI,
    .name = "host",
    .open = host_open,
    .close = host_close,
    .info = host_info,
    .alloc = zf_host_alloc,
    .free = zf_host_free,
    .share = host_share,
    .lane_new = zf_host_lane_new,
    .lane_free = zf_host_lane_free,
    .lane_sync = zf_host_lane_sync,
    .lane_failed = zf_host_lane_failed,
    .lane_busy = zf_host_lane_busy,
    .lane_waited = zf_host_lane_waited,
    .lane_watch = zf_host_lane_watch,
    .lane_take = zf_host_lane_take,
    .lane_phase = zf_host_lane_phase,
    .lane_profile = zf_host_lane_profile,
    .event_new = zf_host_event_new,
    .event_free = zf_host_event_free,
    .event_record = zf_host_event_record,
    .event_wait = zf_host_event_wait,
    .event_sync = zf_host_event_sync,
    .event_hold = zf_host_event_hold,
    .event_await = zf_host_event_await,
    .copy = zf_host_copy,
    .copy_list = zf_host_copy_list,
    .fill = zf_host_fill,
    .call = zf_host_call,
    .ops = &zf_host_ops,
    .comm_open = zf_mpi_comm_open,
};
