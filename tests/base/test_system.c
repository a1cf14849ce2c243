/* The pool, errors, files, arenas, JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/pool.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct zf_err err;

struct job {
    atomic_int *runs;
    size_t n;
};

static void count(void *ctx, size_t index)
{
    struct job *j = ctx;
    atomic_fetch_add(&j->runs[index < j->n ? index : 0], 1); /* out of range: the first is found twice */
}

/* Each task once, whatever the number of threads and tasks; jobs follow each other closely and after pauses. */
static void test_pool(void **state)
{
    enum { MOST = 1000 };
    static atomic_int runs[MOST];
    static const size_t sizes[] = {0, 1, 2, 3, 7, 100, MOST};
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct zf_pool *p;
        assert_int_equal(zf_pool_new(&p, threads, &err), ZF_OK);
        assert_int_equal(zf_pool_threads(p), threads);
        for (int round = 0; round < 200; round++) {
            struct job j = {runs, sizes[round % 7]};
            for (size_t i = 0; i < j.n; i++) atomic_store(&runs[i], 0);
            zf_pool_run(p, j.n, count, &j);
            for (size_t i = 0; i < j.n; i++) assert_int_equal(atomic_load(&runs[i]), 1);
            if (round % 50 == 49) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* workers fall asleep */
        }
        zf_pool_free(p);
    }
    zf_pool_free(NULL);
}

/* What tasks wrote is seen when the job is over (no atomics here: a race is the sanitizer's to find). */
static void square(void *ctx, size_t index)
{
    double *x = ctx;
    x[index] = (double)index * (double)index;
}

static void test_pool_publishes(void **state)
{
    enum { N = 5000 };
    static double x[N];
    struct zf_pool *p;
    (void)state;
    assert_int_equal(zf_pool_new(&p, 4, &err), ZF_OK);
    for (int round = 0; round < 20; round++) {
        memset(x, 0, sizeof x);
        zf_pool_run(p, N, square, x);
        for (size_t i = 0; i < N; i++) assert_true(x[i] == (double)i * (double)i);
    }
    zf_pool_free(p);
}

struct places {
    atomic_int wrong;
    pthread_t caller;
    cpu_set_t *allowed; /* of every thread but the caller's: one processor, or these */
};

static void look_where(void *ctx, size_t index)
{
    struct places *p = ctx;
    cpu_set_t mine;
    (void)index;
    if (pthread_equal(pthread_self(), p->caller)) return;
    if (pthread_getaffinity_np(pthread_self(), sizeof mine, &mine)) atomic_fetch_add(&p->wrong, 1);
    if (p->allowed ? !CPU_EQUAL(&mine, p->allowed) : CPU_COUNT(&mine) != 1) atomic_fetch_add(&p->wrong, 1);
}

/* Workers on their processors and the caller where it was; all as before where one of the processors cannot be had. */
static void test_pool_pinned(void **state)
{
    cpu_set_t all, after;
    int processor[3], n = 0;
    (void)state;
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof all, &all), 0);
    while (n < 3)
        for (int i = 0; i < CPU_SETSIZE && n < 3; i++)
            if (CPU_ISSET(i, &all)) processor[n++] = i; /* the same again where there are fewer */
    for (int row = 0; row < 3; row++) {
        bool good = row == 2;
        struct zf_pool *p;
        struct places where = {.caller = pthread_self(), .allowed = good ? NULL : &all};
        assert_int_equal(zf_pool_new(&p, 3, &err), ZF_OK);
        int had[] = {row == 1 ? 8000 : processor[0], processor[1], row == 0 ? 8000 : processor[2]};
        assert_int_equal(zf_pool_pin(p, had) == 0, good);
        for (int job = 0; job < 50; job++) zf_pool_run(p, 40, look_where, &where);
        assert_int_equal(atomic_load(&where.wrong), 0);
        zf_pool_free(p);
    }
    assert_int_not_equal(zf_thread_pin(pthread_self(), -1), 0);
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&all, &after));
}

struct busy {
    atomic_int done, who[4];
    atomic_int known;
};

static void look_who(void *ctx, size_t index)
{
    struct busy *b = ctx;
    static _Thread_local int mine = -1;
    (void)index;
    if (mine < 0) mine = atomic_fetch_add(&b->known, 1);
    atomic_fetch_add(&b->who[mine], 1);
    atomic_fetch_add(&b->done, 1);
    for (int spin = 0; spin < 200; spin++) __builtin_ia32_pause();
}

static void *turn(void *pool)
{
    for (int i = 0; i < 400; i++) zf_pool_use(pool, i % 6); /* 0 and 5 are taken as 1 and 4 */
    return NULL;
}

/* As many threads as are told to work, though never more; all tasks are done, also while that changes. */
static void test_pool_used(void **state)
{
    enum { TASKS = 64 };
    static struct busy b;
    struct zf_pool *p;
    pthread_t turning;
    (void)state;
    assert_int_equal(zf_pool_new(&p, 4, &err), ZF_OK);
    assert_int_equal(zf_pool_used(p), 4);
    zf_pool_name(p, "used");
    for (int used = 1; used <= 4; used++) {
        zf_pool_use(p, used);
        assert_int_equal(zf_pool_used(p), used);
        for (int job = 1; job <= 200; job++) {
            atomic_store(&b.done, 0);
            zf_pool_run(p, TASKS, look_who, &b);
            assert_int_equal(atomic_load(&b.done), TASKS);
        }
        assert_true(atomic_load(&b.known) <= used);
    }
    assert_int_equal(zf_thread_start(&turning, turn, p), 0);
    for (int job = 1; job <= 400; job++) {
        atomic_store(&b.done, 0);
        zf_pool_run(p, TASKS, look_who, &b);
        assert_int_equal(atomic_load(&b.done), TASKS);
    }
    pthread_join(turning, NULL);
    assert_int_equal(zf_pool_used(p), 3);
    assert_int_equal(zf_pool_threads(p), 4);
    zf_pool_free(p);
}

static enum zf_status fails(int code)
{
    return code ? zf_fail(&err, (enum zf_status)code, "place:1:2", "found %d; expected %s", code, "none") : ZF_OK;
}

static enum zf_status tries(int code, int *reached)
{
    ZF_TRY(fails(0));
    ZF_TRY(fails(code));
    *reached = 1;
    return ZF_OK;
}

static void test_errors(void **state)
{
    int reached = 0;
    (void)state;
    assert_int_equal(tries(4, &reached), ZF_FORMAT);
    assert_int_equal(reached, 0);
    assert_string_equal(err.where, "place:1:2");
    assert_string_equal(err.message, "found 4; expected none");
    assert_int_equal(err.code, ZF_FORMAT);
    assert_int_equal(tries(0, &reached), ZF_OK);
    assert_int_equal(reached, 1);

    zf_fail(&err, ZF_IO, err.where, "wrapped: %s", err.message); /* from itself */
    assert_string_equal(err.message, "wrapped: found 4; expected none");
    assert_string_equal(err.where, "place:1:2");
    errno = ENOSPC;
    assert_int_equal(zf_fail_errno(&err, NULL, "cannot write %s", "it"), ZF_IO);
    assert_string_equal(err.message, "cannot write it: No space left on device");
    assert_string_equal(err.where, "");
    assert_int_equal(zf_fail_memory(&err, "a test"), ZF_MEMORY);

    char *big = malloc(100000);
    assert_non_null(big);
    memset(big, 'x', 99999);
    big[99999] = 0;
    assert_int_equal(zf_fail(&err, ZF_IO, big, "%s", big), ZF_IO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(strlen(err.where), sizeof err.where - 1);
    errno = EIO;
    zf_fail_errno(&err, big, "%s", big); /* no room for the reason */
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    free(big);
    assert_string_equal(zf_status_text(ZF_BUSY), "no live trainer there, or another one holds the run");
}

static char directory[64];

static int directory_make(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/zf-base-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int directory_remove(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static size_t entries_of(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void test_files(void **state)
{
    (void)state;
    char *a = zf_path_join(directory, "deep/er/a"), *b = zf_path_join(directory, "deep/er/b"), *deep = zf_path_directory(a), *text;
    struct zf_map m;
    size_t size;
    assert_int_equal(zf_map_open(&m, a, &err), ZF_IO);
    assert_string_equal(err.where, a);
    assert_int_equal(zf_file_write_atomic(a, "x", 1, &err), ZF_IO); /* no directory yet */
    assert_int_equal(zf_directory_make(deep, 0777, &err), ZF_OK);
    assert_int_equal(zf_directory_make(deep, 0777, &err), ZF_OK);
    assert_true(zf_directory_exists(deep) && !zf_file_exists(deep) && !zf_file_exists(a));
    assert_int_equal(zf_file_write_atomic(a, "one\0two", 7, &err), ZF_OK);
    assert_true(zf_file_exists(a));
    assert_int_equal(zf_file_copy(a, b, &err), ZF_OK);
    assert_int_equal(zf_file_write_atomic(a, "", 0, &err), ZF_OK); /* replaced, by nothing */
    assert_int_equal(entries_of(deep), 2);                         /* no leftovers */
    assert_int_equal(zf_map_open(&m, a, &err), ZF_OK);
    assert_null(m.data);
    zf_map_close(&m);
    assert_int_equal(zf_map_open(&m, b, &err), ZF_OK);
    assert_int_equal(m.size, 7);
    assert_memory_equal(m.data, "one\0two", 7);
    zf_map_close(&m);
    assert_int_equal(zf_file_read(&text, &size, b, 7, &err), ZF_OK);
    assert_int_equal(size, 7);
    assert_memory_equal(text, "one\0two", 8);
    free(text);
    assert_int_equal(zf_file_read(&text, &size, a, 0, &err), ZF_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(zf_file_read(&text, NULL, b, 6, &err), ZF_FORMAT);
    assert_null(text);
    assert_int_equal(zf_file_read(&text, NULL, deep, 100, &err), ZF_IO);
    assert_non_null(strstr(err.message, "a directory"));
    assert_int_equal(zf_directory_make(a, 0777, &err), ZF_IO); /* a file stands there */
    free(a);
    free(b);
    free(deep);
}

/* Neither hangs nor reads what is no file. */
static void test_special_files(void **state)
{
    (void)state;
    char *fifo = zf_path_join(directory, "fifo"), *text;
    struct zf_map m;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(zf_map_open(&m, fifo, &err), ZF_IO);
    assert_int_equal(zf_file_read(&text, NULL, fifo, 100, &err), ZF_IO);
    assert_int_equal(zf_map_open(&m, "/dev/null", &err), ZF_IO);
    free(fifo);
}

static void check_join(const char *a, const char *b, const char *expected)
{
    char *p = zf_path_join(a, b);
    assert_string_equal(p, expected);
    free(p);
}

static void check_directory(const char *path, const char *expected)
{
    char *p = zf_path_directory(path);
    assert_string_equal(p, expected);
    free(p);
}

static void test_paths(void **state)
{
    (void)state;
    check_join("a/b", "c", "a/b/c");
    check_join("a/b/", "c", "a/b/c");
    check_join("a", "/c", "/c");
    check_join("", "c", "c");
    check_join("/", "c", "/c");
    check_directory("a/b", "a");
    check_directory("b", ".");
    check_directory("/b", "/");
    check_directory("/a/b/c", "/a/b");
    assert_string_equal(zf_path_name("a/b.c"), "b.c");
    assert_string_equal(zf_path_name("b"), "b");
    assert_string_equal(zf_path_name("a/"), "");
    static const char *const places[] = {"/", ".", "/not/there/yet", "not/there/yet", "notyet", "/notyet", ""};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) assert_true(zf_file_room(places[i]) < UINT64_MAX);
    assert_true(zf_file_room("/proc") == UINT64_MAX);
}

static void test_arena(void **state)
{
    (void)state;
    struct zf_arena a = {0};
    char *strings[500];
    for (int i = 0; i < 500; i++) assert_non_null(strings[i] = zf_arena_printf(&a, "%d%*s", i, i, "|"));
    for (int i = 0; i < 500; i++) {
        char expected[600];
        snprintf(expected, sizeof expected, "%d%*s", i, i, "|");
        assert_string_equal(strings[i], expected);
    }
    unsigned char *big = zf_arena_alloc(&a, 1 << 20);
    assert_non_null(big);
    assert_true((uintptr_t)big % 16 == 0);
    for (int i = 0; i < 1 << 20; i++) assert_int_equal(big[i], 0);
    assert_string_equal(zf_arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(zf_arena_strdup(&a, "abc"), "abc");
    assert_null(zf_arena_alloc(&a, SIZE_MAX));
    zf_arena_free(&a);
    assert_null(a.head);
    assert_non_null(zf_arena_alloc(&a, 1)); /* usable again */
    zf_arena_free(&a);
}

static void test_place(void **state)
{
    (void)state;
    char to[16];
    assert_string_equal(zf_place(to, sizeof to, "f", 0, 0), "f");
    assert_string_equal(zf_place(to, sizeof to, "f", 12, 0), "f:12");
    assert_string_equal(zf_place(to, sizeof to, "f", 12, 3), "f:12:3");
    assert_string_equal(zf_place(to, sizeof to, "12345678", 123, 12), "12345678:123:12");
    assert_string_equal(zf_place(to, sizeof to, "123456789", 123, 12), "...56789:123:12");
    assert_string_equal(zf_place(to, sizeof to, "1234\u00e45678", 123, 12), "...5678:123:12");
    assert_string_equal(zf_place(to, 4, "f", 123456, 3), "...");
}

static void test_json(void **state)
{
    (void)state;
    json_t *j;
    static const char good[] = "{\"a\": [1, 2.5, \"x\"]}", twice[] = "{\n  \"a\": 1,\n  \"a\": 2\n}";
    assert_int_equal(zf_json_parse(&j, good, strlen(good), "good.json", &err), ZF_OK);
    assert_int_equal(json_array_size(json_object_get(j, "a")), 3);
    json_decref(j);
    assert_int_equal(zf_json_parse(&j, twice, strlen(twice), "twice.json", &err), ZF_FORMAT);
    assert_int_equal(strncmp(err.where, "twice.json:3:", 13), 0);
    assert_int_equal(zf_json_parse(&j, good, 7, "cut.json", &err), ZF_FORMAT);
    assert_int_equal(strncmp(err.where, "cut.json:1:", 11), 0);
    assert_int_equal(zf_json_parse(&j, "", 0, "empty.json", &err), ZF_FORMAT);
    assert_int_equal(zf_json_parse_at(&j, "{\"a\" 1}", 7, "part.json", 5, 11, &err), ZF_FORMAT);
    assert_string_equal(err.where, "part.json:5:16"); /* the 1 */
    assert_int_equal(zf_json_parse_at(&j, "{\n\"a\" 1}", 8, "part.json", 5, 11, &err), ZF_FORMAT);
    assert_string_equal(err.where, "part.json:6:5");

    static const char huge[] = "[123456789012345678901234567890]"; /* beyond 64 bits: a real */
    assert_int_equal(zf_json_parse(&j, huge, strlen(huge), "huge.json", &err), ZF_OK);
    assert_true(json_number_value(json_array_get(j, 0)) == 123456789012345678901234567890.0);
    json_decref(j);

    static const double numbers[] = {0, 1, -1.5, 0.1, 1e-300, 1.7976931348623157e308, 5e-324, 3.0000000000000004};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        j = json_pack("[o]", zf_json_real(numbers[i]));
        char *text = json_dumps(j, 0);
        json_decref(j);
        assert_int_equal(zf_json_parse(&j, text, strlen(text), "number", &err), ZF_OK);
        assert_true(json_number_value(json_array_get(j, 0)) == numbers[i]);
        json_decref(j);
        free(text);
    }
    static const struct {
        double x;
        const char *text;
    } special[] = {{(double)NAN, "nan"}, {(double)INFINITY, "inf"}, {-(double)INFINITY, "-inf"}};
    for (size_t i = 0; i < 3; i++) {
        j = zf_json_real(special[i].x);
        assert_string_equal(json_string_value(j), special[i].text);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),          cmocka_unit_test(test_pool_publishes), cmocka_unit_test(test_pool_pinned),
        cmocka_unit_test(test_pool_used),     cmocka_unit_test(test_errors),         cmocka_unit_test(test_files),
        cmocka_unit_test(test_special_files), cmocka_unit_test(test_paths),          cmocka_unit_test(test_arena),
        cmocka_unit_test(test_place),         cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
