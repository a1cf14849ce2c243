/* Temporary folders and hand-made files for the tests of this room. */
#ifndef ZF_TESTS_CHECKPOINTS_SUPPORT_H
#define ZF_TESTS_CHECKPOINTS_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/file.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256]; /* one for each test binary */

static inline const char *in_folder(const char *name)
{
    static char paths[64][512];
    static int next;
    char *p = paths[next++ % 64];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static inline void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));) {
        char *inner = strcmp(f->d_name, ".") && strcmp(f->d_name, "..") ? zf_path_join(path, f->d_name) : NULL;
        if (inner) remove_tree(inner);
        free(inner);
    }
    if (d) closedir(d);
    remove(path);
}

static inline int set_up(void **state)
{
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/zf-checkpoints-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static inline void save(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void save_text(const char *path, const char *text)
{
    save(path, text, strlen(text));
}

/* Length, header, `bytes` bytes that count up. Returns the size. */
static inline size_t frame(unsigned char *to, const char *header, size_t bytes)
{
    uint64_t n = strlen(header);
    for (int i = 0; i < 8; i++) to[i] = (unsigned char)(n >> (8 * i));
    memcpy(to + 8, header, n);
    for (size_t i = 0; i < bytes; i++) to[8 + n + i] = (unsigned char)(i + 1);
    return 8 + n + bytes;
}

static inline void save_frame(const char *path, const char *header, size_t bytes)
{
    unsigned char *data = malloc(strlen(header) + bytes + 8);
    assert_non_null(data);
    save(path, data, frame(data, header, bytes));
    free(data);
}

static inline size_t entries_in(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline void assert_says(const char *message, const char *part)
{
    if (!strstr(message, part)) fail_msg("\"%s\" is not in the message: %s", part, message);
}

#endif
