/* Processor quotas from fake trees of control groups (what they say of memory: tests/plan/limits.c). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/cgroup.h"
#include "core/base/file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/zf-cgroup-XXXXXX");
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

static void quota(double expected)
{
    assert_true(zf_cgroup_processors(root) == expected);
}

static void nothing_there(void **state)
{
    (void)state;
    quota(0);
    file("proc/self/cgroup", "0::/a\n");
    quota(0);
}

/* The least of the group and all above it. */
static void v2(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/pod/job\n");
    file("sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
    quota(0);
    file("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
    quota(3.5);
    file("sys/fs/cgroup/pod/job/cpu.max", "50000 100000\n");
    quota(0.5);
    file("sys/fs/cgroup/cpu.max", "25000 100000\n");
    quota(0.25);
}

static void v1(void **state)
{
    (void)state;
    file("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/pod/job\n3:cpuset:/y\n0::/\n");
    file("sys/fs/cgroup/cpu/pod/job/cpu.cfs_quota_us", "-1\n");
    file("sys/fs/cgroup/cpu/pod/job/cpu.cfs_period_us", "100000\n");
    quota(0);
    file("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "200000\n");
    quota(0); /* without a period it says nothing */
    file("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
    quota(2);
    file("sys/fs/cgroup/cpuset/y/cpu.cfs_quota_us", "1000\n"); /* no such controller there */
    file("sys/fs/cgroup/cpuset/y/cpu.cfs_period_us", "100000\n");
    quota(2);
}

/* Both controllers in one hierarchy, mounted under both names, which only mountinfo tells. */
static void mounted_elsewhere(void **state)
{
    (void)state;
    file("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc/sub\n");
    file("proc/self/mountinfo", "31 30 0:40 /docker/abc /groups/cpu,cpuacct rw,nosuid shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
                                "32 30 0:41 / /groups/memory rw - cgroup cgroup rw,memory\n");
    file("groups/cpu,cpuacct/sub/cpu.cfs_quota_us", "150000\n");
    file("groups/cpu,cpuacct/sub/cpu.cfs_period_us", "100000\n");
    quota(1.5);
}

static void garbage_is_no_limit(void **state)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "max",
                                        "100000\n",
                                        "x 100000\n",
                                        "100000 x\n",
                                        "0 100000\n",
                                        "100000 0\n",
                                        "-5 100000",
                                        "1 -100000\n",
                                        "1e5 100000\n",
                                        " ",
                                        "99999999999999999999999 1\n"};
    (void)state;
    file("proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        file("sys/fs/cgroup/cpu.max", texts[i]);
        quota(0);
    }
}

static void numbers(void **state)
{
    unsigned long long n = 7;
    (void)state;
    file("some", "first 12\nsecond:   34 kB\nsecondary 56\nbad x\n");
    assert_true(zf_cgroup_number(root, "some", "first", &n) && n == 12);
    assert_true(zf_cgroup_number(root, "some", "second", &n) && n == 34);
    assert_true(zf_cgroup_number(root, "some", "secondary", &n) && n == 56);
    assert_false(zf_cgroup_number(root, "some", "bad", &n));
    assert_false(zf_cgroup_number(root, "some", "firs", &n));
    assert_false(zf_cgroup_number(root, "some", "", &n));
    assert_false(zf_cgroup_number(root, "none", "", &n));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {T(nothing_there), T(v2), T(v1), T(mounted_elsewhere), T(garbage_is_no_limit), T(numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
