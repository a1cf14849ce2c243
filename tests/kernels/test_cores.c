/* Who works on which core: synthetic machines, masks and quotas; and what is really done on this one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/cores.h"
#include "kernels/device.h"

#include <dirent.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct zf_core_map map;

/* A machine in hwloc's words; mask: the processors of the process in its list syntax, NULL: all. */
static void look_at(const char *machine, const char *mask, double quota)
{
    hwloc_topology_t t;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    assert_non_null(set);
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_set_synthetic(t, machine), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    if (mask)
        assert_int_equal(hwloc_bitmap_list_sscanf(set, mask), 0);
    else
        hwloc_bitmap_copy(set, hwloc_topology_get_complete_cpuset(t));
    zf_core_map_fill(&map, t, set, quota);
    assert_string_equal(map.loose, "the topology is not this machine's (HWLOC_... is set)");
    map.loose[0] = 0; /* as if it were: what follows from the rest */
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(t);
}

static void check_uses(enum zf_core_split split, const char *compute, const char *optimizer, const char *loader)
{
    const char *const expected[ZF_CORE_USES] = {compute, optimizer, loader};
    int index[ZF_CORES_MAX];
    char text[256];
    for (int use = 0; use < ZF_CORE_USES; use++) {
        int n = zf_cores_for(&map, 0, (enum zf_core_use)use, split, index), same[ZF_CORES_MAX];
        assert_int_equal(zf_cores_for(&map, map.count, (enum zf_core_use)use, split, same), n); /* 0 stands for that */
        assert_memory_equal(index, same, (size_t)n * sizeof *index);
        assert_string_equal(zf_cores_text(&map, index, n, text, sizeof text), expected[use]);
    }
}

static void check_counts(int count, int cores, int processors, int nodes)
{
    assert_int_equal(map.count, count);
    assert_int_equal(map.cores, cores);
    assert_int_equal(map.processors, processors);
    assert_int_equal(map.nodes, nodes);
}

static void one_core(void **state)
{
    (void)state;
    look_at("core:1 pu:1", NULL, 0);
    check_counts(1, 1, 1, 1);
    check_uses(ZF_CORES_APART, "0", "0", "0");
    check_uses(ZF_CORES_TOGETHER, "0", "0", "0");
    assert_non_null(zf_cores_loose(&map, 1, 1));
}

/* Fewer than four: the compute pool has all, the others share them. */
static void two_and_three_cores(void **state)
{
    (void)state;
    look_at("core:2 pu:1", NULL, 0);
    check_counts(2, 2, 2, 1);
    check_uses(ZF_CORES_APART, "0-1", "0-1", "0-1");
    look_at("core:3 pu:2", NULL, 0);
    check_counts(3, 3, 6, 1);
    check_uses(ZF_CORES_APART, "0,2,4", "0,2,4", "0,2,4");
    check_uses(ZF_CORES_BESIDE_GPU, "0,2,4", "0,2,4", "0,2,4");
}

/* Siblings are not used; with lanes the sets are apart. */
static void four_cores_with_siblings(void **state)
{
    (void)state;
    look_at("core:4 pu:2", NULL, 0);
    check_counts(4, 4, 8, 1);
    check_uses(ZF_CORES_APART, "2,4", "6", "0");
    check_uses(ZF_CORES_BESIDE_GPU, "2", "4,6", "0");
    check_uses(ZF_CORES_TOGETHER, "0,2,4,6", "0,2,4,6", "0,2,4,6");
}

/* Optimizer workers on both sockets: each has its own memory channels. */
static void two_sockets(void **state)
{
    (void)state;
    look_at("pack:2 [numa] core:8 pu:2", NULL, 0);
    check_counts(16, 16, 32, 2);
    check_uses(ZF_CORES_APART, "2,4,8,10,12,16,18,20,24,26,28", "6,14,22,30", "0");
    check_uses(ZF_CORES_BESIDE_GPU, "2", "4,6,8,10,12,14,16,18,20,22,24,26,28,30", "0");
    for (int i = 0; i < 16; i++) assert_int_equal(map.core[i].node, i / 8);
    assert_true(zf_cores_spread(&map, (size_t)4 << 20));
    assert_false(zf_cores_spread(&map, 4096));
    look_at("pack:1 [numa] core:8 pu:2", NULL, 0);
    assert_false(zf_cores_spread(&map, (size_t)1 << 40));
}

/* Every core is somebody's, and nobody's twice, however many there are. */
static void sets_are_apart_and_complete(void **state)
{
    (void)state;
    for (int cores = 4; cores <= 260; cores++)
        for (int split = ZF_CORES_APART; split <= ZF_CORES_BESIDE_GPU; split++) {
            int index[ZF_CORES_MAX], seen[260] = {0}, sizes[ZF_CORE_USES];
            map = (struct zf_core_map){.count = cores, .cores = cores};
            for (int use = 0; use < ZF_CORE_USES; use++) {
                sizes[use] = zf_cores_for(&map, 0, (enum zf_core_use)use, (enum zf_core_split)split, index);
                for (int i = 0; i < sizes[use]; i++) seen[index[i]]++;
            }
            for (int i = 0; i < cores; i++) assert_int_equal(seen[i], 1);
            assert_int_equal(sizes[ZF_CORES_CPU_HALF], split == ZF_CORES_APART ? cores / 4 : cores - 2);
            assert_int_equal(sizes[ZF_CORES_LOADER], 1);
        }
}

/* A part of the machine: other processes have the rest. Of a core of which only the second thread is ours, that one is taken. */
static void masks(void **state)
{
    (void)state;
    look_at("pack:2 [numa] core:8 pu:2", "8-15", 0);
    check_counts(4, 4, 8, 1);
    check_uses(ZF_CORES_APART, "10,12", "14", "8");
    look_at("pack:2 [numa] core:8 pu:2", "1,3,16-17", 0);
    check_counts(3, 3, 4, 2);
    check_uses(ZF_CORES_TOGETHER, "1,3,16", "1,3,16", "1,3,16");
    look_at("core:4 pu:2", "6-7", 0);
    check_counts(1, 1, 2, 1);
    look_at("core:2 pu:1", "100-101", 0); /* none of it: still a thread, which nobody pins */
    check_counts(1, 0, 0, 1);
    assert_non_null(zf_cores_loose(&map, 1, 1));
}

/* Processors whose cores are not known count as such. */
static void no_cores_in_the_topology(void **state)
{
    (void)state;
    look_at("pu:3", NULL, 0);
    check_counts(3, 3, 3, 1);
    check_uses(ZF_CORES_TOGETHER, "0-2", "0-2", "0-2");
}

static void quotas(void **state)
{
    static const struct {
        double quota;
        int count;
        bool loose;
    } rows[] = {{0, 8, false}, {8, 8, false}, {100, 8, false}, {7.5, 8, true}, {3.5, 4, true}, {2, 2, true}, {0.01, 1, true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hwloc_topology_t t;
        assert_int_equal(hwloc_topology_init(&t), 0);
        assert_int_equal(hwloc_topology_set_synthetic(t, "core:8 pu:1"), 0);
        assert_int_equal(hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM), 0);
        assert_int_equal(hwloc_topology_load(t), 0);
        zf_core_map_fill(&map, t, hwloc_topology_get_complete_cpuset(t), rows[i].quota);
        hwloc_topology_destroy(t);
        check_counts(rows[i].count, 8, 8, 1);
        assert_int_equal(map.loose[0] != 0, rows[i].loose);
        assert_int_equal(zf_cores_loose(&map, map.count, map.count) != NULL, rows[i].loose);
    }
    look_at("core:8 pu:2", NULL, 3.5);
    check_uses(ZF_CORES_APART, "2,4", "6", "0");
}

/* `threads`: all uses together; apart where there are four of both. Pinned, and the loader with them, where they are as many as cores. */
static void threads_of_a_run(void **state)
{
    static const struct {
        int cores, threads, compute, optimizer, loader;
        bool apart, pinned;
    } rows[] = {{8, 0, 5, 2, 1, true, true},       {8, 8, 5, 2, 1, true, true},          {8, 4, 2, 1, 1, true, false},
                {8, 3, 3, 3, 3, false, false},     {8, 1, 1, 1, 1, false, false},        {8, 9, 6, 2, 1, true, false},
                {8, 64, 47, 16, 1, true, false},   {3, 0, 3, 3, 3, false, false},        {3, 8, 8, 8, 8, false, false},
                {2, 64, 64, 64, 64, false, false}, {4, 4096, 3071, 1024, 1, true, false}};
    static int index[ZF_CORES_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        map = (struct zf_core_map){.count = rows[i].cores, .cores = rows[i].cores, .nodes = 1};
        for (int k = 0; k < rows[i].cores; k++) map.core[k].processor = 100 + k;
        const int expected[ZF_CORE_USES] = {rows[i].compute, rows[i].optimizer, rows[i].loader};
        for (int use = 0; use < ZF_CORE_USES; use++)
            assert_int_equal(zf_cores_for(&map, rows[i].threads, (enum zf_core_use)use, ZF_CORES_APART, index), expected[use]);
        int all = rows[i].threads ? rows[i].threads : rows[i].cores;
        assert_int_equal(zf_cores_for(&map, rows[i].threads, ZF_CORES_COMPUTE, ZF_CORES_TOGETHER, index), all);
        assert_int_equal(zf_cores_apart(&map, rows[i].threads), rows[i].apart);
        assert_int_equal(zf_cores_loader(&map, rows[i].threads), rows[i].pinned ? 100 : -1);
    }
    map = (struct zf_core_map){.count = 4, .cores = 8, .quota = 3.5, .loose = "a quota"};
    assert_true(zf_cores_apart(&map, 0) && !zf_cores_apart(&map, 3));
    assert_int_equal(zf_cores_loader(&map, 0), -1);
}

static void pinned_where_threads_are_as_many_as_cores(void **state)
{
    (void)state;
    look_at("core:4 pu:2", NULL, 0);
    assert_null(zf_cores_loose(&map, 4, 4));
    assert_non_null(strstr(zf_cores_loose(&map, 5, 4), "more threads than cores"));
    assert_non_null(strstr(zf_cores_loose(&map, 3, 4), "fewer threads than cores"));
    look_at("core:3 pu:2", NULL, 0);
    assert_non_null(strstr(zf_cores_loose(&map, 3, 3), "fewer than four cores"));
}

/* Room enough or not, what is printed is a list, ended by a zero. */
static void texts(void **state)
{
    char text[8];
    int index[] = {0, 1, 2, 3};
    (void)state;
    look_at("core:4 pu:2", NULL, 0);
    assert_string_equal(zf_cores_text(&map, index, 0, text, sizeof text), "");
    zf_cores_text(&map, index, 4, text, 4);
    assert_true(strlen(text) < 4);
}

static void printed(void **state)
{
    char *text = NULL;
    size_t size;
    (void)state;
    look_at("pack:2 [numa] core:8 pu:2", NULL, 0);
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    zf_cores_print(f, &map, 16, false);
    zf_cores_print(f, &map, 3, false);
    zf_cores_print(f, &map, 16, true);
    fclose(f);
    static const char *const expected[] = {
        "16 physical, 32 processors in the affinity mask, 2 NUMA nodes\n",
        "node 1       processors 16,18,20,22,24,26,28,30\n",
        "16, pinned to processors 0,2,4",
        "CPU half 6,14,22,30, loader 0 (gpu_only: compute has all)\n",
        "3, not pinned: with fewer threads",
        "lanes          compute 0,2,4, CPU half 0,2,4, loader 0,2,4 (shared: fewer than four threads)\n",
        "lanes          issuing 2, CPU half 4,6,8,10,12,14,16,18,20,22,24,26,28,30, loader 0 (the GPU computes)\n"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr(text, expected[i])) fail_msg("\"%s\" is not in:\n%s", expected[i], text);
    free(text);
}

static void this_machine(void **state)
{
    cpu_set_t set;
    const struct zf_core_map *m = zf_cores();
    (void)state;
    assert_true(m->count >= 1 && m->nodes >= 1 && m->cores <= m->processors);
    if (sched_getaffinity(getpid(), sizeof set, &set)) skip();
    assert_int_equal(m->processors, CPU_COUNT(&set));
    for (int i = 0; i < m->cores; i++) assert_true(CPU_ISSET(m->core[i].processor, &set));
    assert_ptr_equal(m, zf_cores());
}

/* What a device says of its threads agrees with where they may run: read from the system. */
static int threads_with_one_processor(void)
{
    int n = 0;
    cpu_set_t set;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));)
        if (entry->d_name[0] != '.' && !sched_getaffinity(atoi(entry->d_name), sizeof set, &set)) n += CPU_COUNT(&set) == 1;
    closedir(d);
    return n;
}

static void devices_do_what_they_say(void **state)
{
    const struct zf_core_map *m = zf_cores();
    (void)state;
    if (m->processors < 2) {
        printf("one processor: pinned or not is the same\n");
        skip();
    }
    for (int threads = 0; threads <= m->cores + 1 && threads < 20; threads++) {
        struct zf_err e;
        struct zf_device *d;
        struct zf_lane *compute, *other;
        struct zf_device_info info;
        assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.threads = threads}, &e), ZF_OK);
        assert_int_equal(d->type->lane_new(d, "compute", &compute, &e), ZF_OK);
        assert_int_equal(d->type->lane_new(d, "other", &other, &e), ZF_OK);
        d->type->info(d, &info);
        bool expected = !zf_cores_loose(m, info.threads, m->cores);
        assert_true(!info.pinned || expected); /* the system may refuse */
        assert_int_equal(threads_with_one_processor(), info.pinned ? info.threads : 0);
        assert_int_equal(strncmp(info.placement, info.pinned ? "pinned to" : "not pinned: ", info.pinned ? 9 : 12), 0);
        d->type->lane_free(compute);
        d->type->lane_free(other);
        d->type->close(d);
    }
}

/* Interleaving is asked for as a preference, and the policy reads back; the memory is zeros as before. */
static void memory_is_interleaved(void **state)
{
    enum { BYTES = 8 << 20 };
    hwloc_topology_t t;
    hwloc_membind_policy_t policy;
    (void)state;
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    hwloc_bitmap_t mask = hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(t)), nodes = hwloc_bitmap_alloc();
    assert_true(mask && nodes);
    zf_core_map_fill(&map, t, mask, 0);
    unsigned char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    bool done = zf_core_map_interleave(&map, t, p, BYTES);
    if (done) {
        assert_int_equal(hwloc_get_area_membind(t, p, BYTES, nodes, &policy, HWLOC_MEMBIND_BYNODESET), 0);
        assert_int_equal(policy, HWLOC_MEMBIND_INTERLEAVE);
        for (int i = 0; i < map.cores; i++) assert_true(hwloc_bitmap_isset(nodes, (unsigned)map.core[i].node));
    }
    for (size_t i = 0; i < BYTES; i += 4096) assert_int_equal(p[i], 0);
    munmap(p, BYTES);
    hwloc_bitmap_free(mask);
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(t);
    if (done) return;
    printf("this system refuses memory policies\n");
    skip();
}

/* Blocks of a device, by the decision for this machine. */
static void blocks_follow_the_decision(void **state)
{
    enum { BYTES = 16 << 20 };
    struct zf_err e;
    struct zf_device *d;
    void *p;
    hwloc_topology_t t;
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    (void)state;
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    assert_int_equal(zf_device_open(&d, "host", &(struct zf_device_options){.threads = 1}, &e), ZF_OK);
    assert_int_equal(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_MOMENTS, BYTES, &p, &e), ZF_OK);
    bool spread = zf_cores_spread(zf_cores(), BYTES), told = !hwloc_get_area_membind(t, p, BYTES, nodes, &policy, HWLOC_MEMBIND_BYNODESET);
    bool allowed = zf_core_map_interleave(zf_cores(), t, p, BYTES); /* where a policy can be set at all, one was */
    d->type->free(d, p);
    d->type->close(d);
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(t);
    if (told && allowed) assert_int_equal(policy == HWLOC_MEMBIND_INTERLEAVE, spread);
}

/* Ranks on one machine: each core is one rank's; with fewer cores than ranks all have all of them, unpinned. */
static void shared_among_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        int seen = 0;
        for (int rank = 0; rank < ranks; rank++) {
            struct zf_core_map one = {.cores = 8, .count = 8, .processors = 16, .nodes = 1};
            for (int i = 0; i < 8; i++) one.core[i] = (struct zf_core){.processor = i};
            zf_core_map_share(&one, rank, ranks);
            if (ranks > 8) {
                assert_int_equal(one.cores, 8);
                assert_int_equal(one.count, 1);
                assert_true(one.loose[0]);
                continue;
            }
            assert_int_equal(one.count, one.cores);
            for (int i = 0; i < one.cores; i++) assert_int_equal(one.core[i].processor, seen++);
        }
        assert_int_equal(seen, ranks > 8 ? 0 : 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_core),
        cmocka_unit_test(shared_among_ranks),
        cmocka_unit_test(threads_of_a_run),
        cmocka_unit_test(two_and_three_cores),
        cmocka_unit_test(four_cores_with_siblings),
        cmocka_unit_test(two_sockets),
        cmocka_unit_test(sets_are_apart_and_complete),
        cmocka_unit_test(masks),
        cmocka_unit_test(no_cores_in_the_topology),
        cmocka_unit_test(quotas),
        cmocka_unit_test(pinned_where_threads_are_as_many_as_cores),
        cmocka_unit_test(texts),
        cmocka_unit_test(printed),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(devices_do_what_they_say),
        cmocka_unit_test(memory_is_interleaved),
        cmocka_unit_test(blocks_follow_the_decision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
