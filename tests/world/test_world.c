/* Ranks as processes: they find each other, talk, and end together, however one of them ends. A rank's exit status is what its code was;
 * 100 and more: something was not as it should be. */
#include "tests/world/support.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/world/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4 };
static char folder[64], run[96], saying[96];
static volatile int stop;

static void on_stop(int number)
{
    (void)number;
    stop = 1;
}

struct how {
    int ranks;
    const char *version; /* of the last one */
    int (*body)(struct zf_world *w);
    int absent; /* this rank is not started; 0: all are */
};

static _Noreturn void be(int rank, const struct how *h)
{
    struct zf_launch l = {.rank = rank, .ranks = h->ranks, .launcher = "test"};
    struct zf_world *w;
    struct zf_err e = {0};
    snprintf(l.job, sizeof l.job, "test.%d", (int)getppid());
    signal(SIGTERM, on_stop);
    freopen(saying, "a", stderr);
    setvbuf(stderr, NULL, _IONBF, 0);
    json_t *hello = json_pack("{si}", "square", rank * rank);
    enum zf_status s = zf_world_open(
        &w,
        &(struct zf_world_options){
            .launch = &l, .run = run, .stop = &stop, .hello = hello, .version = rank == h->ranks - 1 && h->version ? h->version : "1"},
        &e);
    json_decref(hello);
    if (s) {
        fprintf(stderr, "rank %d: %s\n", rank, e.message);
        _exit((int)s);
    }
    s = zf_world_join(w, &e);
    if (s) {
        fprintf(stderr, "rank %d: %s\n", rank, e.message);
        zf_world_fail(w, s, e.message);
    }
    int code = s ? (int)s : h->body(w);
    zf_world_close(w);
    _exit(code);
}

static void begin(pid_t *pid, const struct how *h)
{
    unlink(saying);
    for (int r = 0; r < h->ranks; r++) {
        pid[r] = h->absent && r == h->absent ? 0 : fork();
        if (!pid[r] && !(h->absent && r == h->absent)) be(r, h);
    }
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void expect_all(const pid_t *pid, int ranks, int code)
{
    for (int r = 0; r < ranks; r++) assert_int_equal(status_of(pid[r]), code);
}

/* How often they said it. */
static int said(const char *what)
{
    char *text;
    struct zf_err e;
    int n = 0;
    if (zf_file_read(&text, NULL, saying, 1 << 20, &e)) return 0;
    for (char *at = text; (at = strstr(at, what)); at++) n++;
    free(text);
    return n;
}

/* Nothing is left of how they found each other. */
static void expect_clean(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *f; (f = readdir(d));) assert_null(strstr(f->d_name, "ranks"));
    closedir(d);
}

static int talk(struct zf_world *w)
{
    struct zf_err e;
    int me = zf_world_rank(w), all[RANKS];
    if (zf_world_exchange(w, &me, all, sizeof me, &e)) return 100;
    for (int i = 0; i < RANKS; i++)
        if (all[i] != i) return 101;
    struct zf_world_place p = zf_world_place(w);
    if (p.rank != me || p.ranks != RANKS || p.share != me || p.shares != RANKS) return 102;
    for (int r = 1; !me && r < RANKS; r++)
        if (json_integer_value(json_object_get(json_object_get(zf_world_hello(w, r), "hello"), "square")) != r * r) return 103;
    enum { BIG = 3 << 20 };
    char *bytes = malloc(BIG);
    for (int i = 0; me && i < BIG; i++) bytes[i] = (char)(i * 7 + me);
    if (me && zf_world_put(w, 0, bytes, BIG, &e)) return 104;
    for (int r = 1; !me && r < RANKS; r++) {
        if (zf_world_get(w, r, bytes, BIG, &e)) return 105;
        for (int i = 0; i < BIG; i++)
            if (bytes[i] != (char)(i * 7 + r)) return 106;
    }
    free(bytes);
    char text[] = "an order";
    if (!me) return zf_world_tell(w, text, sizeof text, &e) ? 107 : 5;
    void *got;
    size_t size;
    if (zf_world_receive(w, 0, &got, &size, &e) || size != sizeof text || strcmp(got, text)) return 108;
    free(got);
    return 5;
}

static void test_talk(void **state)
{
    (void)state;
    pid_t pid[RANKS];
    begin(pid, &(struct how){.ranks = RANKS, .body = talk});
    expect_all(pid, RANKS, 5);
    expect_clean();
    assert_int_equal(said("zenflow-console"), 0);
}

/* As a run goes: orders until one says that it is over, or all of them end. */
static int obey(struct zf_world *w)
{
    struct zf_err e;
    zf_world_doing(w, 41, "training");
    for (int me = zf_world_rank(w);;) {
        char order = stop ? 'e' : 'o';
        void *got = NULL;
        size_t size;
        enum zf_status s = me ? zf_world_receive(w, 0, &got, &size, &e) : zf_world_tell(w, &order, 1, &e);
        if (!s && !me) s = zf_world_check(w, &e);
        if (me && got) order = *(char *)got;
        free(got);
        if (s) return (int)s;
        if (order == 'e') return 5;
        if (!me) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* It neither talks nor looks: as in a collective that waits for a rank that is gone. */
static _Noreturn int hang(struct zf_world *w)
{
    (void)w;
    for (;;) pause();
}

static void wait_until_they_met(void)
{
    struct stat st;
    char place[200];
    snprintf(place, sizeof place, "%s/.run.ranks-test.%d", folder, (int)getpid());
    while (stat(place, &st)) usleep(1000);
    assert_int_equal(st.st_mode & 0777, 0600);
    while (!stat(place, &st)) usleep(1000);
}

static void test_signal(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r += 2) {
        pid_t pid[RANKS];
        begin(pid, &(struct how){.ranks = RANKS, .body = obey});
        wait_until_they_met();
        kill(pid[r], SIGTERM);
        expect_all(pid, RANKS, 5);
        expect_clean();
    }
}

static void lose(int rank, int (*body)(struct zf_world *), int signal_number)
{
    pid_t pid[RANKS];
    char name[64];
    begin(pid, &(struct how){.ranks = RANKS, .body = body});
    wait_until_they_met();
    usleep(700000); /* a sign of life says what it does */
    kill(pid[rank], signal_number);
    double from = zf_clock();
    for (int r = 0; r < RANKS; r++)
        if (r != rank) assert_int_equal(status_of(pid[r]), ZF_IO);
    assert_int_equal(status_of(pid[rank]), -SIGKILL); /* the stopped one, too: nobody else would end it */
    assert_true(zf_clock() - from < ZF_WORLD_SILENCE + ZF_WORLD_LINGER + 10);
    snprintf(name, sizeof name, ": rank %d (pid %d on host ", rank, (int)pid[rank]);
    assert_int_equal(said(name), RANKS - 1);
    if (signal_number == SIGKILL) assert_true(said("is gone") >= RANKS - 1);
    if (signal_number == SIGSTOP) assert_true(said("no sign of life") >= 1); /* who is first ends it, and for the others it is gone */
    if (body == obey) assert_true(said("it was at step 41: training") >= RANKS - 1);
    expect_clean();
}

static void test_killed(void **state)
{
    (void)state;
    lose(0, obey, SIGKILL);
    lose(2, obey, SIGKILL);
    lose(3, hang, SIGKILL);
}

static void test_stopped(void **state)
{
    (void)state;
    lose(1, obey, SIGSTOP);
    lose(0, hang, SIGSTOP);
}

static int give_up(struct zf_world *w)
{
    if (zf_world_rank(w) != 2) return obey(w);
    zf_world_fail(w, ZF_MEMORY, "it has no memory");
    return ZF_MEMORY;
}

/* One cannot go on: all end with its code, and rank 0 says whose fault it is. */
static void test_failed(void **state)
{
    (void)state;
    pid_t pid[RANKS];
    begin(pid, &(struct how){.ranks = RANKS, .body = give_up});
    expect_all(pid, RANKS, ZF_MEMORY);
}

static void test_other_version(void **state)
{
    (void)state;
    pid_t pid[RANKS];
    begin(pid, &(struct how){.ranks = RANKS, .body = obey, .version = "2"});
    expect_all(pid, RANKS, ZF_USAGE);
    assert_true(said("is version 2 of the program, and rank 0 is 1") >= 1);
    expect_clean();
}

static void set_up_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/zf-world-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(saying, sizeof saying, "%s/stderr", folder);
}

static void test_stranger(void **state)
{
    (void)state;
    pid_t pid[RANKS];
    struct how h = {.ranks = RANKS, .body = obey, .absent = 3};
    begin(pid, &h);
    usleep(300000);
    for (int r = 0; r < 3; r++) kill(pid[r], SIGTERM);
    for (int r = 0; r < 3; r++) assert_int_equal(status_of(pid[r]), ZF_STOPPED);
    expect_clean();
}

static int set_up(void **state)
{
    (void)state;
    set_up_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(saying);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_talk),    cmocka_unit_test(test_signal), cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_stopped), cmocka_unit_test(test_failed), cmocka_unit_test(test_other_version),
                                       cmocka_unit_test(test_stranger)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
