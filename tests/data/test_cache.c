/* The folder of kept rows: where it is, how it is made, and that of what lies in it only leftovers of our own are removed. */
#include "tests/data/support.h"

#include "core/data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void assert_folder(const char *wanted, const char *expected)
{
    struct zf_err e = {0};
    char *path;
    struct stat st;
    assert_int_equal(zf_cache_folder(&path, wanted, &e), ZF_OK);
    assert_string_equal(path, expected);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    free(path);
}

static void assert_no_folder(const char *wanted, const char *reason)
{
    struct zf_err e = {0};
    char *path;
    assert_int_equal(zf_cache_folder(&path, wanted, &e), ZF_IO);
    assert_null(path);
    assert_non_null(strstr(e.message, reason));
    assert_string_not_equal(e.where, "");
}

static void test_used(void **state)
{
    (void)state;
    assert_false(zf_cache_used(NULL, UINT64_MAX));
    assert_false(zf_cache_used("", UINT64_MAX));
    assert_false(zf_cache_used("no", UINT64_MAX));
    assert_false(zf_cache_used("auto", (32 << 20) - 1));
    assert_true(zf_cache_used("auto", 32 << 20));
    assert_true(zf_cache_used("./no", 0));
}

static void test_folder(void **state)
{
    (void)state;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL,
         *cache = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    mode_t mask = umask(022);
    setenv("HOME", folder, 1);
    setenv("XDG_CACHE_HOME", in_folder("xdg/deep"), 1);
    assert_folder("auto", in_folder("xdg/deep/zenflow-console"));
    assert_folder("auto", in_folder("xdg/deep/zenflow-console"));
    setenv("XDG_CACHE_HOME", "relative", 1); /* as if it were not set */
    assert_folder("auto", in_folder(".cache/zenflow-console"));
    setenv("XDG_CACHE_HOME", "", 1);
    assert_folder("auto", in_folder(".cache/zenflow-console"));
    unsetenv("XDG_CACHE_HOME");
    assert_folder("auto", in_folder(".cache/zenflow-console"));
    assert_folder(in_folder("mine/rows"), in_folder("mine/rows"));
    save_text("file", "in the way");
    assert_no_folder(in_folder("file"), "no directory");
    assert_no_folder(in_folder("file/rows"), strerror(ENOTDIR));
    setenv("HOME", in_folder("nowhere"), 1);
    assert_no_folder("auto", "no home folder");
    unsetenv("HOME");
    assert_no_folder("auto", "HOME is not set");
    if (geteuid()) { /* root may write everywhere */
        assert_int_equal(chmod(in_folder("mine"), 0500), 0);
        assert_no_folder(in_folder("mine"), strerror(EACCES));
        assert_no_folder(in_folder("mine/other"), strerror(EACCES));
        assert_int_equal(chmod(in_folder("mine"), 0700), 0);
    }
    static const char *const made[] = {
        "xdg/deep/zenflow-console", "xdg/deep", "xdg", ".cache/zenflow-console", ".cache", "mine/rows", "mine"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) assert_int_equal(rmdir(in_folder(made[i])), 0);
    umask(mask);
    if (home) setenv("HOME", home, 1);
    if (cache) setenv("XDG_CACHE_HOME", cache, 1);
    free(home);
    free(cache);
}

static void test_path(void **state)
{
    (void)state;
    char *path = zf_cache_path("/a/b", (const unsigned char[16]){0, 1, 0xAB, [15] = 0xFF});
    assert_string_equal(path, "/a/b/0001ab000000000000000000000000ff.rows");
    free(path);
}

#define KEY "0123456789abcdef0123456789abcdef"

/* KEY.rows.tmp-PID, as zf_file_begin has it */
static const char *beside(const char *start, int pid, const char *end)
{
    char name[128];
    snprintf(name, sizeof name, "%s%d%s", start, pid, end);
    return in_folder(name);
}

static bool stands(const char *path)
{
    struct stat st;
    return !lstat(path, &st);
}

static void test_sweep(void **state)
{
    (void)state;
    pid_t gone = fork();
    if (!gone) _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    static const char *const others[][2] = {{KEY ".rows.tmp-0", ""},
                                            {KEY ".rows.tmp-", "x"},
                                            {KEY ".rows.tmp-", ".bak"},
                                            {KEY "0.rows.tmp-", ""},
                                            {KEY ".row.tmp-", ""},
                                            {".rows.tmp-", ""},
                                            {KEY ".rows.tmp-", "00000000"},
                                            {KEY ".rows-", ""},
                                            {KEY ".rows.tmp--", ""},
                                            {KEY ".rows.tmp- ", ""},
                                            {"x" KEY ".rows.tmp-", ""},
                                            {KEY ".json.tmp-", ""},
                                            {"0123456789ABCDEF0123456789ABCDEF.rows.tmp-", ""}};
    enum { OTHERS = sizeof others / sizeof *others };
    char left[512], kept[OTHERS + 4][512];
    size_t n = 0;
    snprintf(left, sizeof left, "%s", beside(KEY ".rows.tmp-", gone, ""));
    for (size_t i = 0; i < OTHERS; i++) snprintf(kept[n++], sizeof *kept, "%s", beside(others[i][0], gone, others[i][1]));
    snprintf(kept[n++], sizeof *kept, "%s", in_folder(KEY ".rows"));
    snprintf(kept[n++], sizeof *kept, "%s", in_folder(KEY ".rows.tmp-"));
    snprintf(kept[n++], sizeof *kept, "%s", beside(KEY ".rows.tmp-", getpid(), ""));
    for (size_t i = 0; i < n; i++) {
        int fd = open(kept[i], O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    /* A writer of another host: its process is none of ours, but it has the lock. */
    int fd = open(left, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    zf_cache_sweep(folder);
    assert_true(stands(left));
    close(fd);
    zf_cache_sweep(folder);
    assert_false(stands(left));
    for (size_t i = 0; i < n; i++) assert_true(stands(kept[i]));
    /* No file at all is not a file of ours, either. */
    assert_int_equal(mkdir(left, 0700), 0);
    zf_cache_sweep(folder);
    assert_int_equal(rmdir(left), 0);
    assert_int_equal(symlink(kept[0], left), 0);
    zf_cache_sweep(folder);
    assert_true(stands(left) && stands(kept[0]));
    assert_int_equal(unlink(left), 0);
    assert_int_equal(mkfifo(left, 0600), 0);
    zf_cache_sweep(folder);
    assert_true(stands(left));
    assert_int_equal(unlink(left), 0);
    for (size_t i = 0; i < n; i++) assert_int_equal(unlink(kept[i]), 0);
    zf_cache_sweep(in_folder("none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_used),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
