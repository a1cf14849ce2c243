/* A run's threads in parts: how many each device has, what they are called, who works when. Run on this machine and, with HWLOC_SYNTHETIC,
 * on machines that were made up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/cores.h"
#include "kernels/device.h"
#include "kernels/ops.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zf_err e;

static struct zf_device *open_part(enum zf_device_part part, int threads)
{
    struct zf_device *d;
    if (zf_device_open(&d, "host", &(struct zf_device_options){.threads = threads, .part = part}, &e)) fail_msg("%s", e.message);
    return d;
}

static int threads_of(struct zf_device *d)
{
    struct zf_device_info info;
    d->type->info(d, &info);
    char start[32];
    snprintf(start, sizeof start, "%d thread%s, ", info.threads, info.threads == 1 ? "" : "s");
    assert_memory_equal(info.description, start, strlen(start));
    return info.threads;
}

/* Threads of this process that the system knows by this name. */
static int called(const char *name)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[300], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (f && fgets(text, sizeof text, f)) n += !strncmp(text, name, strlen(name)) && text[strlen(name)] == '\n';
        if (f) fclose(f);
    }
    closedir(d);
    return n;
}

/* Of so many threads in all: a quarter for the CPU half, one for the loader, where cores and threads are four or more; beside a GPU all but
 * the loader's and that of who issues. */
static void parts(void **state)
{
    int cores = zf_cores()->count;
    (void)state;
    for (int threads = 0; threads <= 11; threads++) {
        int all = threads ? threads : cores;
        bool apart = cores >= 4 && all >= 4;
        struct zf_device *whole = open_part(ZF_PART_ALL, threads), *compute = open_part(ZF_PART_COMPUTE, threads);
        assert_int_equal(called("compute worker"), 2 * (all - 1));
        struct zf_device *half = open_part(ZF_PART_BESIDE_GPU, threads);
        assert_int_equal(threads_of(half), apart ? all - 2 : all);
        assert_int_equal(called("cpu worker"), (apart ? all - 2 : all) - 1);
        half->type->close(half);
        half = open_part(ZF_PART_CPU_HALF, threads);
        assert_int_equal(threads_of(whole), all);
        assert_int_equal(threads_of(compute), apart ? all - all / 4 - 1 : all);
        assert_int_equal(threads_of(half), apart ? all / 4 : all);
        assert_int_equal(called("cpu worker"), (apart ? all / 4 : all) - 1);
        for (int i = 0; i < 3; i++) { /* while the CPU half has nothing to do, and again */
            compute->type->share(compute, i % 2);
            assert_int_equal(threads_of(compute), i % 2 && apart ? all - all / 4 - 1 : all);
            whole->type->share(whole, i % 2);
            assert_int_equal(threads_of(whole), all);
        }
        whole->type->close(whole);
        compute->type->close(compute);
        half->type->close(half);
    }
}

/* What a part computes does not depend on how many of its threads work, nor on when that changes. */
static void same_bits(void **state)
{
    enum { ROWS = 96, COLS = 80, INNER = 64, TIMES = 40 };
    struct zf_device *d = open_part(ZF_PART_COMPUTE, 7);
    struct zf_lane *l;
    float *a, *b, *c[2];
    (void)state;
    void *p;
    assert_int_equal(d->type->lane_new(d, "compute", &l, &e), ZF_OK);
    assert_int_equal(
        d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, (ROWS * INNER + COLS * INNER + 2 * ROWS * COLS) * sizeof(float), &p, &e), ZF_OK);
    a = p;
    b = a + ROWS * INNER;
    c[0] = b + COLS * INNER;
    c[1] = c[0] + ROWS * COLS;
    for (int i = 0; i < ROWS * INNER; i++) a[i] = (float)((i * 37) % 101) / 101;
    for (int i = 0; i < COLS * INNER; i++) b[i] = (float)((i * 53) % 97) / 97 - 0.5f;
    for (int time = 0; time < TIMES; time++) {
        assert_int_equal(d->type->ops->matmul(l, &(struct zf_matmul_args){.type = ZF_F32,
                                                                          .a = a,
                                                                          .b = b,
                                                                          .c = c[time > 0],
                                                                          .m = ROWS,
                                                                          .n = COLS,
                                                                          .k = INNER,
                                                                          .trans_b = true,
                                                                          .lda = INNER,
                                                                          .ldb = INNER,
                                                                          .ldc = COLS}),
                         ZF_OK);
        d->type->share(d, time % 2);
        assert_int_equal(d->type->lane_sync(l, &e), ZF_OK);
        if (time) assert_memory_equal(c[0], c[1], ROWS * COLS * sizeof(float));
    }
    d->type->lane_free(l);
    d->type->free(d, p);
    d->type->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
