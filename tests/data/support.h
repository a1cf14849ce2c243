/* A temporary folder, files in it, and lists of ids, for the tests of this room. */
#ifndef ZF_TESTS_DATA_SUPPORT_H
#define ZF_TESTS_DATA_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/file.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256]; /* one for each test binary */

static inline const char *in_folder(const char *name)
{
    static char paths[16][512];
    static int next;
    char *p = paths[next++ % 16];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static inline int set_up(void **state)
{
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/zf-data-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (f->d_name[0] != '.') remove(in_folder(f->d_name));
    }
    if (d) closedir(d);
    return rmdir(folder);
}

static inline const char *save(const char *name, const void *data, size_t size)
{
    struct zf_err e = {0};
    const char *path = in_folder(name);
    assert_int_equal(zf_file_write_atomic(path, data, size, &e), ZF_OK);
    return path;
}

static inline const char *save_text(const char *name, const char *text)
{
    return save(name, text, strlen(text));
}

/* A path among the real inputs, or NULL (and a word why) where they are not. */
static inline const char *shared_path(const char *name)
{
    static char path[1024];
    const char *base = getenv("ZF_SHARED");
    snprintf(path, sizeof path, "%s/%s", base ? base : "", name);
    if (base && access(path, R_OK) == 0) return path;
    print_message("skipped: the real input %s is not here (ZF_SHARED)\n", name);
    return NULL;
}

/* "12 7 9" -> numbers; returns how many. */
static inline size_t numbers(const char *text, int32_t *to, size_t room)
{
    size_t n = 0;
    for (char *end; *text; text = end) {
        long v = strtol(text, &end, 10);
        if (end == text) break;
        assert_true(n < room);
        to[n++] = (int32_t)v;
    }
    return n;
}

static inline void assert_numbers(const int32_t *got, size_t count, const char *expected)
{
    int32_t want[4096];
    size_t n = numbers(expected, want, 4096);
    if (n == count && (!n || !memcmp(got, want, n * sizeof *got))) return;
    print_error("expected: %s\ngot:     ", expected);
    for (size_t i = 0; i < count; i++) print_error(" %d", got[i]);
    print_error("\n");
    fail();
}

#endif
