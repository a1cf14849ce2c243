/* One trainer a run directory: refusal, death, takeover, other machines. */
#include "tests/session/support.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/session/lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct zf_lock_options ordinary = {.memory_limit = (size_t)4 << 30}, no_locks = {.without_file_lock = true};

static struct zf_lock *take(const struct zf_lock_options *o, const char *expected_note)
{
    struct zf_err e = {.message = ""};
    struct zf_lock *l;
    char note[512];
    if (zf_lock_acquire(&l, root, o, note, sizeof note, &e)) fail_msg("%s: %s", e.where, e.message);
    if (!*expected_note)
        assert_string_equal(note, "");
    else if (!strstr(note, expected_note))
        fail_msg("no \"%s\" in \"%s\"", expected_note, note);
    return l;
}

static void refused(const struct zf_lock_options *o, const char *expected)
{
    struct zf_err e = {.message = ""};
    struct zf_lock *l;
    assert_int_equal(zf_lock_acquire(&l, root, o, NULL, 0, &e), ZF_BUSY);
    assert_null(l);
    if (!strstr(e.message, expected)) fail_msg("no \"%s\" in \"%s\"", expected, e.message);
}

static void write_record(const char *host, const char *boot, long long pid, double age)
{
    char text[512];
    snprintf(text, sizeof text, "{\"host\":\"%s\",\"pid\":%lld,\"boot_id\":\"%s\",\"started\":1,\"heartbeat\":%.3f,\"step\":41}   \n", host,
             pid, boot, zf_wall_clock() - age);
    write_text("lock", text);
}

static void boot_id(char out[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    assert_non_null(f);
    assert_non_null(fgets(out, 37, f));
    fclose(f);
}

static void taken_and_left(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_lock_record r;
    assert_int_equal(zf_lock_look(root, NULL), ZF_LOCK_NONE);
    setenv("SLURM_JOB_ID", "77\"\n", 1);
    struct zf_lock *l = take(&ordinary, "");
    unsetenv("SLURM_JOB_ID");
    assert_int_equal(zf_lock_look(root, &r), ZF_LOCK_LIVE);
    assert_int_equal(r.pid, getpid());
    assert_string_equal(r.job, "77??");
    assert_true(r.limit_bytes == 4294967296.0 && r.peak_bytes > 0 && r.pid_start > 0);
    json_t *v;
    assert_int_equal(zf_json_file(&v, at("lock"), 1 << 20, &e), ZF_OK); /* plain JSON, padded */
    json_decref(v);
    assert_int_equal(zf_lock_beat(l, 3, &e), ZF_OK); /* too early to write: nothing changes */
    zf_lock_look(root, &r);
    assert_int_equal(r.step, 0);
    zf_lock_release(l);
    assert_int_equal(access(at("lock"), F_OK), -1);
    assert_int_equal(zf_lock_look(root, NULL), ZF_LOCK_NONE);
    zf_lock_release(NULL);
    zf_lock_release(take(&ordinary, "")); /* after a clean stop there is nothing to explain */
}

static void second_is_refused(void **state)
{
    (void)state;
    char pid[64];
    struct zf_lock *l = take(&ordinary, "");
    snprintf(pid, sizeof pid, "pid %ld on host", (long)getpid());
    refused(&ordinary, pid); /* this process, another description */
    pid_t child = fork();
    if (!child) {
        struct zf_err e;
        struct zf_lock *mine;
        _exit(zf_lock_acquire(&mine, root, &ordinary, NULL, 0, &e));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), ZF_BUSY);
    zf_lock_release(l);
}

/* Starts a child that holds the lock until it is killed. */
static pid_t holder(const struct zf_lock_options *o)
{
    int ends[2];
    char c;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        struct zf_err e;
        struct zf_lock *l;
        if (zf_lock_acquire(&l, root, o, NULL, 0, &e)) _exit(1);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        alarm(20); /* should the test fail before it kills us */
        for (;;) pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &c, 1), 1);
    close(ends[0]);
    return child;
}

static void kill_and_take_over(const struct zf_lock_options *o)
{
    struct zf_lock_record r;
    char text[256];
    pid_t child = holder(o);
    snprintf(text, sizeof text, "pid %ld on host", (long)child);
    assert_int_equal(zf_lock_look(root, &r), ZF_LOCK_LIVE);
    assert_int_equal(r.pid, child);
    refused(o, text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(zf_lock_look(root, &r), ZF_LOCK_DEAD);
    write_text("metrics.jsonl", "{\"type\":\"step\",\"step\":12}\n{\"type\":\"valid\",\"step\":12}\n{\"type\":\"st");
    snprintf(text, sizeof text, "(pid %ld on host %s) ended without a clean stop at step 12; peak memory ", (long)child, r.host);
    struct zf_lock *l = take(o, text);
    assert_int_equal(zf_lock_look(root, &r), ZF_LOCK_LIVE);
    assert_int_equal(r.pid, getpid());
    zf_lock_release(l);
}

static void P02_killed_holder(void **state)
{
    (void)state;
    kill_and_take_over(&ordinary);
    char note[512];
    struct zf_lock_record r = {.host = "h", .pid = 7, .step = 9, .peak_bytes = 3 << 20, .limit_bytes = 4 << 20, .oom_kills = -1};
    zf_lock_explain(&r, 5, note, sizeof note);
    assert_string_equal(note,
                        "the trainer (pid 7 on host h) ended without a clean stop at step 9; peak memory 3.00 MiB of a limit of 4.00 MiB");
    for (size_t size = 1; size < sizeof note; size++) zf_lock_explain(&r, 5, note, size); /* never beyond the end */
}

/* A child that takes the lock, comes to step 41 and dies of a signal, whichever way that comes. */
static void die_of(int number, const char *words)
{
    char text[160];
    struct zf_lock_record r;
    int status;
    pid_t child = fork();
    if (!child) {
        struct zf_err e;
        struct zf_lock *l;
        if (zf_lock_acquire(&l, root, &ordinary, NULL, 0, &e) || !freopen("/dev/null", "w", stderr)) _exit(1);
        signal(number, SIG_DFL); /* not the test's own, which would catch it */
        zf_lock_tell_death(l);
        if (zf_lock_beat(l, 41, &e)) _exit(1);
        if (number == SIGABRT) abort();
        kill(getpid(), number);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == number);
    assert_int_equal(zf_lock_look(root, &r), ZF_LOCK_DEAD);
    assert_int_equal(r.signal, number);
    assert_int_equal(r.step, 41); /* the record itself is of the start */
    snprintf(text, sizeof text, "ended without a clean stop at step 41 by signal %d (%s)", number, words);
    zf_lock_release(take(&ordinary, text));
}

static void died_of_a_signal(void **state)
{
    (void)state;
    die_of(SIGSEGV, "Segmentation fault");
    die_of(SIGABRT, "Aborted");
    die_of(SIGFPE, "Floating point exception");
    zf_lock_died(SIGSEGV); /* nobody holds anything */
}

/* How it is told, by what was and what is. */
static void how_it_died(void **state)
{
    (void)state;
    static const struct {
        struct zf_lock_record was, here;
        const char *text, *not ;
    } rows[] = {
        {{.boot_id = "b", .oom_kills = 2},
         {.boot_id = "b", .oom_kills = 3},
         "out-of-memory killer has acted here since it started (1 time)",
         "kill -9"},
        {{.boot_id = "b", .oom_kills = 2}, {.boot_id = "b", .oom_kills = 5}, "(3 times)", "kill -9"},
        {{.boot_id = "b", .oom_kills = 2}, {.boot_id = "b", .oom_kills = 2}, "killed outright, as by kill -9", "out-of-memory"},
        {{.boot_id = "b", .oom_kills = -1}, {.boot_id = "b", .oom_kills = 9}, "killed outright, as by kill -9", "out-of-memory"},
        {{.boot_id = "b", .oom_kills = 2, .signal = 7}, {.boot_id = "b", .oom_kills = 2}, "by signal 7", "kill -9"},
        {{.boot_id = "b", .oom_kills = 2}, {.boot_id = "c", .oom_kills = 9}, "the machine was started anew since", "out-of-memory"},
        {{.boot_id = "b", .oom_kills = 2}, {.host = "other", .boot_id = "c", .oom_kills = 9}, "at step 3", ";"},
        {{.boot_id = "b", .oom_kills = -1, .peak_bytes = 3 << 20, .resident_bytes = 2 << 20, .limit_bytes = 4 << 20, .heartbeat = 1},
         {.boot_id = "b", .oom_kills = -1},
         "; peak memory 3.00 MiB of a limit of 4.00 MiB; its last sign of life was at 1970-01-01T00:00:01.000Z with 2.00 MiB;",
         "anew"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char note[768];
        zf_lock_explain_here(&rows[i].was, 3, &rows[i].here, note, sizeof note);
        if (!strstr(note, rows[i].text) || strstr(note, rows[i].not )) fail_msg("row %zu: %s", i, note);
    }
}

static void file_system_without_locks(void **state)
{
    (void)state;
    kill_and_take_over(&no_locks);
}

static void reused_pid(void **state)
{
    (void)state;
    char boot[40], host[256], text[512];
    boot_id(boot);
    gethostname(host, sizeof host);
    snprintf(text, sizeof text, "{\"host\":\"%s\",\"pid\":%ld,\"pid_start\":1,\"boot_id\":\"%s\",\"heartbeat\":%.3f}\n", host,
             (long)getpid(), boot, zf_wall_clock());
    write_text("lock", text);
    zf_lock_release(take(&no_locks, "ended without a clean stop")); /* the number lives, the process does not */
}

static void other_machine(void **state)
{
    (void)state;
    write_record("elsewhere", "another-boot", 4242, 10);
    assert_int_equal(zf_lock_look(root, NULL), ZF_LOCK_LIVE);
    refused(&ordinary, "pid 4242 on host elsewhere");
    refused(&no_locks, "last sign of life is 10 s old");
    write_record("elsewhere", "another-boot", 4242, 61);
    assert_int_equal(zf_lock_look(root, NULL), ZF_LOCK_DEAD);
    zf_lock_release(take(&ordinary, "(pid 4242 on host elsewhere) ended without a clean stop at step 41"));
}

/* Stopped for so long that another machine has taken over: the beat says so and leaves its record alone, the release its file. */
static void lost_lock(void **state)
{
    (void)state;
    struct zf_err e = {.message = ""};
    enum zf_status s = ZF_OK;
    struct zf_lock *l = take(&ordinary, "");
    write_record("elsewhere", "another-boot", 4242, 0);
    char *before = read_text("lock");
    for (int i = 0; i < 70 && !s; i++) {
        s = zf_lock_beat(l, 5, &e);
        usleep(100000);
    }
    assert_int_equal(s, ZF_BUSY);
    assert_non_null(strstr(e.message, "elsewhere"));
    expect_text("lock", before);
    zf_lock_release(l);
    expect_text("lock", before);
    free(before);
}

/* The file was removed by hand, or the whole directory: no matter while nobody is there; whoever has begun there since holds the run. */
static void removed_lock(void **state)
{
    (void)state;
    struct zf_err e = {.message = ""};
    struct zf_lock *l = take(&ordinary, "");
    unlink(at("lock"));
    zf_lock_paused(l, true);
    assert_int_equal(zf_lock_beat(l, 5, &e), ZF_OK);
    write_record("elsewhere", "another-boot", 4242, 0);
    char *before = read_text("lock");
    zf_lock_paused(l, false);
    assert_int_equal(zf_lock_beat(l, 5, &e), ZF_BUSY);
    assert_non_null(strstr(e.message, "elsewhere"));
    zf_lock_release(l);
    expect_text("lock", before);
    free(before);
}

static void what_is_no_lock(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_lock *l;
    write_text("lock", "my diary\n");
    assert_int_equal(zf_lock_acquire(&l, root, &ordinary, NULL, 0, &e), ZF_IO);
    assert_non_null(strstr(e.message, "move it away"));
    expect_text("lock", "my diary\n");
    assert_int_equal(zf_lock_look(root, NULL), ZF_LOCK_NONE);
    write_text("lock", ""); /* died before the first record */
    zf_lock_release(take(&ordinary, ""));
    assert_int_equal(mkdir(at("lock"), 0700), 0);
    assert_int_equal(zf_lock_acquire(&l, root, &ordinary, NULL, 0, &e), ZF_IO);
    assert_int_equal(zf_lock_acquire(&l, at("absent"), &ordinary, NULL, 0, &e), ZF_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(taken_and_left),   T(second_is_refused), T(P02_killed_holder), T(file_system_without_locks),
                                       T(died_of_a_signal), T(how_it_died),       T(reused_pid),        T(other_machine),
                                       T(lost_lock),        T(removed_lock),      T(what_is_no_lock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
