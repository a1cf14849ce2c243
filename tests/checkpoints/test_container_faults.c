/* Every call that can fail does, one after the other: system calls with ENOSPC and EIO, allocations (ours, Jansson's, zstd's) with no
 * memory. After each: the right status, no file of that name or the old one, nothing beside it. The linker hands us the calls (--wrap). */
#include "support.h"

#include "container_support.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <zstd.h>
#include <zstd_errors.h>

static struct {
    bool armed, onward, kill, shorten; /* onward: all from `at` on; kill: the process ends there; shorten: no failure, but half a write */
    long at;                           /* the call, from 1 */
    atomic_long calls;
    int number;       /* errno of a system call */
    const char *only; /* calls of this name alone, if not NULL */
    const char *what;
    enum zf_status expected;
    bool renamed;
} fault;

static bool fails(const char *what, enum zf_status status)
{
    if (!fault.armed || (fault.only && strcmp(fault.only, what))) return false;
    long n = atomic_fetch_add(&fault.calls, 1) + 1;
    if (n != fault.at && !(fault.onward && n > fault.at)) return false;
    if (fault.kill) _exit(0);
    if (n == fault.at) {
        fault.what = what;
        fault.expected = status;
    }
    errno = status == ZF_MEMORY ? ENOMEM : fault.number;
    return true;
}

static void arm(long at, int number)
{
    fault.at = at;
    fault.number = number;
    fault.onward = fault.kill = fault.shorten = fault.renamed = false;
    fault.only = fault.what = NULL;
    atomic_store(&fault.calls, 0);
    fault.armed = true;
}

#define WRAP(type, name, failed, status, parameters, arguments) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters \
    { \
        if (fails(#name, status)) return failed; \
        return __real_##name arguments; \
    }

WRAP(void *, malloc, NULL, ZF_MEMORY, (size_t n), (n))
WRAP(void *, calloc, NULL, ZF_MEMORY, (size_t n, size_t each), (n, each))
WRAP(void *, realloc, NULL, ZF_MEMORY, (void *p, size_t n), (p, n))
WRAP(char *, strdup, NULL, ZF_MEMORY, (const char *s), (s))
WRAP(char *, strndup, NULL, ZF_MEMORY, (const char *s, size_t n), (s, n))
WRAP(ZSTD_CCtx *, ZSTD_createCCtx, NULL, ZF_MEMORY, (void), ())
WRAP(ZSTD_DCtx *, ZSTD_createDCtx, NULL, ZF_MEMORY, (void), ())
WRAP(size_t, ZSTD_compress2, (size_t)-ZSTD_error_memory_allocation, ZF_MEMORY,
     (ZSTD_CCtx * c, void *to, size_t room, const void *from, size_t n), (c, to, room, from, n))
WRAP(int, fsync, -1, ZF_IO, (int fd), (fd))
WRAP(off_t, lseek64, -1, ZF_IO, (int fd, off_t at, int whence), (fd, at, whence))
WRAP(ssize_t, pread64, -1, ZF_FORMAT, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
WRAP(int, sync_file_range, -1, ZF_IO, (int fd, off_t at, off_t n, unsigned flags), (fd, at, n, flags))

int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *fmt, ...)
{
    va_list ap;
    if (fails("asprintf", ZF_MEMORY)) return -1;
    va_start(ap, fmt);
    int n = vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails("open", ZF_IO) ? -1 : __real_open64(path, flags, mode);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int s = __real_close(fd);
    return !fault.renamed && fails("close", ZF_IO) ? -1 : s; /* that of the synced directory has nothing to say */
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (fails("rename", ZF_IO)) return -1;
    int s = __real_rename(from, to);
    fault.renamed = fault.armed && !s;
    return s;
}

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    if (fault.armed && fault.shorten && n > 1) {
        if (atomic_fetch_add(&fault.calls, 1) % 2) {
            errno = EINTR;
            return -1;
        }
        return __real_write(fd, from, n / 2);
    }
    return fails("write", ZF_IO) ? -1 : __real_write(fd, from, n);
}

/* Prepared once, so that nothing of the test's own is allocated while calls fail. */
static unsigned char *data[STANDARD];
static json_t *info;

static enum zf_status write_file(const char *path, const struct zf_ckpt_options *o, struct zf_err *e)
{
    struct zf_ckpt_writer *w;
    enum zf_status s = ZF_OK;
    ZF_TRY(zf_ckpt_create(&w, path, o, e));
    for (size_t t = 0; t < STANDARD && !s; t++) {
        s = zf_ckpt_begin(w, standard[t].name, standard[t].type, standard[t].rank, standard[t].shape, e);
        if (!s) s = zf_ckpt_put(w, data[t], (size_t)standard_bytes(t), e);
    }
    return zf_ckpt_finish(w, json_incref(info), e);
}

static void check_file(const char *path)
{
    struct zf_ckpt c;
    struct zf_err e;
    unsigned char got[16384];
    if (zf_ckpt_open(&c, path, &e)) fail_msg("%s: %s", e.where, e.message);
    for (size_t t = 0; t < STANDARD; t++) {
        if (zf_ckpt_read(&c, zf_ckpt_find(&c, standard[t].name), got, 0, standard_bytes(t), NULL, &e)) fail_msg("%s", e.message);
        assert_memory_equal(got, data[t], (size_t)standard_bytes(t));
    }
    zf_ckpt_close(&c);
}

/* Returns whether the call was reached. */
static bool fail_one(const char *path, const struct zf_ckpt_options *o, long at, int number, bool onward, bool old)
{
    struct zf_err e = {0};
    char *text;
    unlink(path);
    if (old) save_text(path, "old");
    arm(at, number);
    fault.onward = onward;
    enum zf_status s = write_file(path, o, &e);
    fault.armed = false;
    if (!fault.what) {
        assert_int_equal(s, ZF_OK);
        return false;
    }
    if (s != fault.expected) fail_msg("call %ld, %s: status %d, not %d: %s", at, fault.what, s, fault.expected, e.message);
    if (s == ZF_IO) assert_says(e.message, strerror(number));
    if (s == ZF_MEMORY) assert_says(e.message, "refused memory");
    assert_int_equal(e.code, s);
    if (fault.renamed) { /* the directory could not be synced: the file is there, and sound */
        check_file(path);
        assert_int_equal(entries_in(folder), 1);
    } else if (old) {
        if (zf_file_read(&text, NULL, path, 10, &e)) fail_msg("%s", e.message);
        assert_string_equal(text, "old");
        free(text);
    }
    assert_int_equal(entries_in(folder), old || fault.renamed);
    return true;
}

static void fail_each(struct zf_pool *pool, int number, bool onward, bool old)
{
    struct zf_ckpt_options o = {.level = 1, .chunk = STANDARD_CHUNK, .finite = true, .pool = pool};
    const char *path = in_folder("saved.zfc");
    long n = 1;
    while (fail_one(path, &o, n, number, onward, old)) n++;
    if (n < 200) fail_msg("%ld calls only", n);
    check_file(path); /* the one that nothing happened to */
    unlink(path);
}

static void test_writing(void **state)
{
    (void)state;
    struct zf_pool *pool;
    struct zf_err e;
    assert_int_equal(zf_pool_new(&pool, 3, &e), ZF_OK);
    fail_each(NULL, ENOSPC, false, false);
    fail_each(NULL, EIO, false, true);
    fail_each(pool, EIO, false, false);
    fail_each(NULL, ENOSPC, true, true);
    zf_pool_free(pool);
}

/* Half of each write and EINTR after it: nobody's failure. */
static void test_short_writes(void **state)
{
    (void)state;
    struct zf_err e;
    char *texts[2];
    size_t sizes[2];
    const char *path = in_folder("short.zfc");
    for (int i = 0; i < 2; i++) {
        arm(0, 0);
        fault.shorten = i;
        enum zf_status s = write_file(path, &(struct zf_ckpt_options){.level = 1}, &e);
        fault.armed = false;
        assert_int_equal(s, ZF_OK);
        assert_int_equal(zf_file_read(&texts[i], &sizes[i], path, 1 << 20, &e), ZF_OK);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(texts[0], texts[1], sizes[0]);
    free(texts[0]);
    free(texts[1]);
    unlink(path);
}

/* The process ends at each call: the name has the old file or the whole new one, and what lies beside it is known as interrupted. */
static void test_killed(void **state)
{
    (void)state;
    struct zf_ckpt_options o = {.level = 1, .chunk = STANDARD_CHUNK};
    struct zf_err e;
    struct zf_ckpt c;
    char *text, beside[600];
    const char *path = in_folder("killed.zfc");
    long n = 0;
    size_t kept = 0, whole = 0;
    for (int status = 0; !status; n++) {
        save_text(path, "old");
        pid_t child = fork();
        if (!child) {
            arm(n + 1, 0);
            fault.kill = true;
            write_file(path, &o, &e);
            _exit(9);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        snprintf(beside, sizeof beside, "%s.tmp-%ld", path, (long)child);
        if (zf_file_exists(beside)) {
            enum zf_status s = zf_ckpt_open(&c, beside, &e);
            if (s)
                assert_int_equal(s, ZF_FORMAT);
            else
                zf_ckpt_close(&c);
            unlink(beside);
        }
        assert_int_equal(zf_file_read(&text, NULL, path, 1 << 20, &e), ZF_OK);
        kept += !strcmp(text, "old");
        if (strcmp(text, "old")) {
            check_file(path);
            whole++;
        }
        free(text);
        assert_int_equal(entries_in(folder), 1);
    }
    assert_true(kept > 100 && whole > 1);
    unlink(path);
}

/* What the disk says while pages are written out is not said again by fsync. Where it cannot be asked to, that is no failure. */
static void test_write_out(void **state)
{
    (void)state;
    static const int numbers[] = {EIO, ENOSPC, ENOSYS};
    static unsigned char piece[1 << 20];
    const char *path = in_folder("out.zfc");
    const uint64_t elements = 100 << 20;
    for (int i = 0; i < 9; i++) {
        struct zf_ckpt_writer *w;
        struct zf_err e;
        enum zf_status s = ZF_OK;
        assert_int_equal(zf_ckpt_create(&w, path, &(struct zf_ckpt_options){.drop_pages = true}, &e), ZF_OK);
        assert_int_equal(zf_ckpt_begin(w, "x", ZF_CKPT_U8, 1, &elements, &e), ZF_OK);
        arm(1 + i / 3, numbers[i % 3]);
        fault.only = "sync_file_range";
        for (uint64_t at = 0; at < elements && !s; at += sizeof piece) s = zf_ckpt_put(w, piece, sizeof piece, &e);
        fault.armed = false;
        assert_non_null(fault.what);
        if (s) assert_says(e.message, "cannot write it out");
        assert_int_equal(s, fault.number == ENOSYS ? ZF_OK : ZF_IO);
        assert_int_equal(zf_ckpt_finish(w, NULL, &e), s);
        unlink(path);
        assert_int_equal(entries_in(folder), 0);
    }
}

static enum zf_status read_file(const char *path, unsigned char *to, struct zf_err *e)
{
    struct zf_ckpt c;
    ZF_TRY(zf_ckpt_open(&c, path, e));
    enum zf_status s = zf_ckpt_verify(&c, NULL, NULL, e);
    for (size_t t = 0; t < c.count && !s; t++) s = zf_ckpt_read(&c, &c.list[t], to, 0, c.list[t].bytes, NULL, e);
    zf_ckpt_close(&c);
    return s;
}

static void test_reading(void **state)
{
    (void)state;
    struct zf_err e;
    unsigned char got[16384];
    const char *path = in_folder("read.zfc");
    assert_int_equal(write_file(path, &(struct zf_ckpt_options){.level = 1, .chunk = STANDARD_CHUNK}, &e), ZF_OK);
    for (long n = 1;; n++) {
        arm(n, EIO);
        enum zf_status s = read_file(path, got, &e);
        fault.armed = false;
        if (!fault.what) break;
        if (!strcmp(fault.what, "close")) continue;
        if (s != ZF_MEMORY && s != ZF_FORMAT) fail_msg("call %ld, %s: status %d", n, fault.what, s);
        if (!strcmp(fault.what, "pread64")) {
            assert_int_equal(s, ZF_FORMAT);
            assert_says(e.message, "cannot read");
        }
    }
    unlink(path);
}

static int set_up_data(void **state)
{
    for (size_t t = 0; t < STANDARD; t++)
        if (!(data[t] = contents(t, standard[t].type, (size_t)standard_bytes(t)))) return -1;
    json_set_alloc_funcs(malloc, free); /* the wrapped ones */
    info = json_pack("{s:i}", "step", 5);
    return set_up(state);
}

static int tear_down_data(void **state)
{
    for (size_t t = 0; t < STANDARD; t++) free(data[t]);
    json_decref(info);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing),   cmocka_unit_test(test_short_writes), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_write_out), cmocka_unit_test(test_reading),
    };
    return cmocka_run_group_tests(tests, set_up_data, tear_down_data);
}
