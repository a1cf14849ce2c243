/* P16: what memory there is, from fake trees of procfs and cgroups. */
#include "core/base/file.h"
#include "core/plan/memory.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/zf-limits-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void file(const char *name, const char *text)
{
    struct zf_err e;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    char *directory = zf_path_directory(path);
    assert_int_equal(zf_directory_make(directory, 0777, &e), ZF_OK);
    free(directory);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct zf_memory_limits limits(size_t option)
{
    struct zf_memory_limits l;
    zf_memory_limits_read(&l, root, option);
    return l;
}

#define MEMINFO "MemTotal:       16000000 kB\nMemFree:          100000 kB\nMemAvailable:    8000000 kB\n"

static void nothing_there_is_no_limit(void **state)
{
    (void)state;
    struct zf_memory_limits l = limits(0);
    assert_true(l.available == SIZE_MAX && l.cgroup == SIZE_MAX && l.option == SIZE_MAX && l.least == SIZE_MAX);
    assert_string_equal(l.least_name, "no limit");
    assert_true(zf_memory_oom_kills(root) == SIZE_MAX);
}

static void available_alone(void **state)
{
    (void)state;
    file("proc/meminfo", MEMINFO);
    struct zf_memory_limits l = limits(0);
    assert_int_equal(l.available, (size_t)8000000 * 1024);
    assert_int_equal(l.least, l.available);
    assert_string_equal(l.least_name, "MemAvailable");
}

static void option_counts_what_is_resident(void **state)
{
    (void)state;
    file("proc/meminfo", MEMINFO);
    file("proc/self/status", "Name:\tx\nVmHWM:\t   90000 kB\nVmRSS:\t    1000 kB\n");
    struct zf_memory_limits l = limits(10000 * 1024);
    assert_int_equal(l.resident, 1000 * 1024);
    assert_int_equal(l.option, 9000 * 1024);
    assert_string_equal(l.least_name, "memory_limit");
    assert_int_equal(limits(1000).option, 0);
}

/* v2: the process's group is unlimited, its grandparent is not; file cache that can be dropped is not used. */
static void v2_nested(void **state)
{
    (void)state;
    file("proc/meminfo", MEMINFO);
    file("proc/self/cgroup", "0::/system.slice/job.scope/inner\n");
    file("sys/fs/cgroup/system.slice/job.scope/inner/memory.max", "max\n");
    file("sys/fs/cgroup/system.slice/job.scope/inner/memory.current", "999\n");
    file("sys/fs/cgroup/system.slice/job.scope/memory.max", "5000000000\n");
    file("sys/fs/cgroup/system.slice/job.scope/memory.current", "1000000000\n");
    file("sys/fs/cgroup/system.slice/job.scope/memory.stat", "anon 1\nfile 2\ninactive_file 400000000\nactive_file 7\n");
    file("sys/fs/cgroup/system.slice/memory.max", "6000000000\n");
    file("sys/fs/cgroup/system.slice/memory.current", "1000000000\n");
    struct zf_memory_limits l = limits(0);
    assert_int_equal(l.cgroup, 5000000000 - 600000000);
    assert_string_equal(l.least_name, "cgroup limit");
    assert_non_null(strstr(l.cgroup_path, "/system.slice/job.scope"));
    /* an ancestor becomes the tightest */
    file("sys/fs/cgroup/system.slice/memory.current", "5900000000\n");
    l = limits(0);
    assert_int_equal(l.cgroup, 100000000);
    assert_string_equal(l.cgroup_path + strlen(l.cgroup_path) - 12, "system.slice");
    /* used up is nothing, not an enormous number */
    file("sys/fs/cgroup/system.slice/memory.current", "7000000000\n");
    assert_int_equal(limits(0).cgroup, 0);
}

/* In a container with its own namespace the group is "/", the limit stands in the mount point itself. */
static void v2_namespaced(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/\n");
    file("sys/fs/cgroup/memory.max", "1073741824\n");
    file("sys/fs/cgroup/memory.current", "73741824\n");
    file("sys/fs/cgroup/memory.events", "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n");
    assert_int_equal(limits(0).cgroup, 1000000000);
    assert_int_equal(zf_memory_oom_kills(root), 2);
}

static void v1_nested(void **state)
{
    (void)state;
    file("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,cpuacct:/x\n3:memory:/slurm/job_7/step_0\n0::/\n");
    file("sys/fs/cgroup/memory/slurm/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n");
    file("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "4000000000\n");
    file("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "3000000000\n");
    file("sys/fs/cgroup/memory/slurm/job_7/memory.stat", "inactive_file 5\ntotal_inactive_file 2500000000\n");
    file("sys/fs/cgroup/memory/slurm/job_7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limits(0).cgroup, 3500000000);
    assert_int_equal(zf_memory_oom_kills(root), 5);
}

static void v1_none(void **state)
{
    (void)state;
    file("proc/self/cgroup", "3:memory:/a\n");
    file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    file("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "123\n");
    assert_true(limits(0).cgroup == SIZE_MAX);
}

/* Mount points elsewhere, with a blank in the name, whose tree begins at the container's group. */
static void mountinfo_decides(void **state)
{
    (void)state;
    file("proc/self/cgroup", "3:memory:/docker/abc/sub\n0::/docker/abc\n");
    file("proc/self/mountinfo", "20 1 0:1 / /proc rw - proc proc rw\ngarbage\n"
                                "31 30 0:40 /docker/abc /my\\040groups/mem rw,nosuid shared:1 master:2 - cgroup cgroup rw,memory\n"
                                "32 30 0:41 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "33 30 0:42 /docker/abc /unified rw - cgroup2 cgroup2 rw,nsdelegate\n");
    file("my groups/mem/sub/memory.limit_in_bytes", "500\n");
    file("my groups/mem/memory.limit_in_bytes", "400\n");
    file("unified/memory.max", "max\n");
    assert_int_equal(limits(0).cgroup, 400);
    file("unified/memory.max", "300\n");
    assert_int_equal(limits(0).cgroup, 300);
    /* a group outside of what is mounted leaves the mount point */
    file("proc/self/cgroup", "3:memory:/elsewhere\n0::/../../x\n");
    assert_int_equal(limits(0).cgroup, 300);
}

static void garbage_is_no_limit(void **state)
{
    (void)state;
    char longest[20000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    file("proc/meminfo", "MemAvailable: many kB\nMemAvailable:\n");
    file("proc/self/status", longest);
    file("proc/self/mountinfo", longest);
    static const char *const values[] = {"", "\n", "-1\n", "12x\n", "999999999999999999999999999\n", "MAX\n", "0x10\n"};
    static const char *const groups[] = {"", "::", "0:", "0::", "nonsense\n\n:::\n", "0::relative\n", "3:memory\n"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        file("proc/self/cgroup", groups[i]);
        limits(0);
    }
    file("proc/self/cgroup", longest);
    limits(0);
    file("proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        file("sys/fs/cgroup/memory.max", values[i]);
        struct zf_memory_limits l = limits(0);
        assert_true(l.cgroup == SIZE_MAX && l.available == SIZE_MAX && l.resident == 0);
    }
    /* a limit whose usage cannot be read still is one */
    file("sys/fs/cgroup/memory.max", "77\n");
    file("sys/fs/cgroup/memory.current", "what\n");
    assert_int_equal(limits(0).cgroup, 77);
}

static void this_machine(void **state)
{
    (void)state;
    struct zf_memory_limits l;
    zf_memory_limits_read(&l, "/", 0);
    assert_true(l.available > 0 && l.available != SIZE_MAX);
    assert_true(l.resident > 0 && l.least <= l.available);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {T(nothing_there_is_no_limit),
                                       T(available_alone),
                                       T(option_counts_what_is_resident),
                                       T(v2_nested),
                                       T(v2_namespaced),
                                       T(v1_nested),
                                       T(v1_none),
                                       T(mountinfo_decides),
                                       T(garbage_is_no_limit),
                                       T(this_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
