/* What the tests of this room share: a directory of their own, files, expectations about texts. */
#ifndef ZF_TEST_SESSION_SUPPORT_H
#define ZF_TEST_SESSION_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* as the trainer does */
    strcpy(root, "/tmp/zf-session-XXXXXX");
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

#define T(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

/* The name below the test's directory, in one of a few static buffers. */
static inline const char *at(const char *name)
{
    static char buffers[8][256];
    static unsigned next;
    char *b = buffers[next++ % 8];
    snprintf(b, sizeof buffers[0], "%s/%s", root, name);
    return b;
}

static inline void write_text(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* To be freed. */
static inline char *read_text(const char *name)
{
    FILE *f = fopen(at(name), "r");
    char *text = NULL;
    size_t size = 0;
    if (!f) return strdup("(no such file)");
    if (getdelim(&text, &size, EOF, f) < 0) {
        free(text);
        text = strdup("");
    }
    fclose(f);
    return text;
}

static inline void expect_text(const char *name, const char *expected)
{
    char *text = read_text(name);
    assert_string_equal(text, expected);
    free(text);
}

#endif
