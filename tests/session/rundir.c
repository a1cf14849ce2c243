/* P78: whose directory is it? Foreign files survive. */
#include "tests/session/support.h"

#include "core/session/journal.h"
#include "core/session/lock.h"
#include "core/session/rundir.h"

#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static const struct zf_run_identity me = {.model = "gpt2 abc", .data = "text def", .seed = 18446744073709551615u};

static void add(const char *run, json_t *entry)
{
    struct zf_err e;
    struct zf_journal *j;
    assert_int_equal(zf_journal_open(&j, run, &e), ZF_OK);
    assert_int_equal(zf_journal_append(j, entry, &e), ZF_OK);
    zf_journal_close(j);
}

static struct zf_run_facts look(const char *run, const struct zf_run_identity *who)
{
    struct zf_err e;
    struct zf_run_facts f;
    if (zf_rundir_look(&f, run, who, &e)) fail_msg("%s: %s", e.where, e.message);
    return f;
}

static void new_ones(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_run_facts f;
    assert_int_equal(look(at("absent"), &me).state, ZF_RUNDIR_NEW);
    assert_int_equal(look(root, &me).state, ZF_RUNDIR_NEW);
    assert_int_equal(zf_rundir_claim(&f, at("a/b/c"), &me, &e), ZF_OK);
    assert_int_equal(access(at("a/b/c"), F_OK), 0);
    /* a start that was killed at once */
    write_text("a/b/c/lock", "");
    write_text("a/b/c/trainer.log", "x");
    write_text("a/b/c/journal.jsonl", "{\"type\":\"sta");
    assert_int_equal(look(at("a/b/c"), &me).state, ZF_RUNDIR_NEW);
}

static void ours(void **state)
{
    (void)state;
    add(root, zf_run_start_entry(&me, 100));
    struct zf_run_facts f = look(root, &me);
    assert_int_equal(f.state, ZF_RUNDIR_OURS);
    assert_int_equal(strlen(f.run), 16);
    assert_int_equal(f.steps, 100);
    assert_true(f.attempts == 1 && f.last_step == 0 && !f.finished && !f.ended[0]);
    write_text("metrics.jsonl", "{\"type\":\"step\",\"step\":7}\n{\"type\":\"step\",\"st");
    add(root, json_pack("{sssi}", "type", "note", "step", 6));
    assert_int_equal(look(root, &me).last_step, 7);
    add(root, json_pack("{sssiss}", "type", "export", "step", 9, "file", "exports/step-00000009"));
    add(root, json_pack("{sssiss}", "type", "end", "step", 9, "reason", "stopped"));
    f = look(root, &me);
    assert_int_equal(f.last_step, 9);
    assert_string_equal(f.ended, "stopped");
    assert_string_equal(f.last_export, "exports/step-00000009");
    assert_false(f.finished);
    add(root, json_pack("{sssi}", "type", "resume", "step", 5)); /* back to a checkpoint: what the last attempt reached is past */
    f = look(root, &me);
    assert_true(f.attempts == 2 && f.last_step == 7 && !f.ended[0]); /* metrics still has 7 */
    add(root, json_pack("{sssiss}", "type", "end", "step", 100, "reason", "done"));
    assert_true(look(root, &me).finished);
}

static void P78_another_run(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_run_facts f;
    add(root, zf_run_start_entry(&me, 100));
    struct zf_run_identity other = me;
    other.seed = 1;
    other.data = "text xyz";
    assert_int_equal(look(root, &other).state, ZF_RUNDIR_OTHER);
    assert_int_equal(zf_rundir_claim(&f, root, &other, &e), ZF_DIFFERENT);
    assert_non_null(strstr(e.message, "data text def there, text xyz here, seed 18446744073709551615 there, 1 here"));
    assert_non_null(strstr(e.message, "set `dir`"));
    other = me;
    other.model = "llama";
    assert_int_equal(look(root, &other).state, ZF_RUNDIR_OTHER);
    assert_int_equal(look(root, NULL).state, ZF_RUNDIR_OURS);
}

static void expect_foreign(const char *run, const char *what)
{
    struct zf_err e;
    struct zf_run_facts f;
    assert_int_equal(zf_rundir_claim(&f, run, &me, &e), ZF_DIFFERENT);
    assert_int_equal(f.state, ZF_RUNDIR_FOREIGN);
    assert_non_null(strstr(f.what, what));
    assert_non_null(strstr(e.message, what));
    assert_non_null(strstr(e.message, "nothing is overwritten"));
}

static void P78_foreign_files_survive(void **state)
{
    (void)state;
    write_text("thesis.tex", "precious");
    expect_foreign(root, "files that no run wrote (thesis.tex)");
    expect_text("thesis.tex", "precious");
    expect_foreign(at("thesis.tex"), "no directory but is a file");
    assert_int_equal(mkdir(at("b"), 0700), 0);
    write_text("b/run.cfg", "[run]\ndir = .\n"); /* the user's own */
    expect_foreign(at("b"), "run.cfg");
    assert_int_equal(mkdir(at("c"), 0700), 0);
    write_text("c/journal.jsonl", "{\"entry\":\"Dear diary\"}\n");
    expect_foreign(at("c"), "journal.jsonl");
    expect_text("c/journal.jsonl", "{\"entry\":\"Dear diary\"}\n");
    write_text("c/journal.jsonl", "\n");
    assert_int_equal(look(at("c"), &me).state, ZF_RUNDIR_NEW);
    assert_int_equal(mkdir(at("d"), 0700), 0);
    assert_int_equal(mkdir(at("d/.hidden"), 0700), 0);
    expect_foreign(at("d"), ".hidden");
}

static void age(const char *name, long seconds)
{
    struct timeval t[2];
    gettimeofday(&t[0], NULL);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    assert_int_equal(utimes(at(name), t), 0);
}

static void newest(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_lock *l;
    const struct zf_lock_options o = {0};
    assert_null(zf_rundir_newest(at("absent"), false));
    assert_null(zf_rundir_newest(root, false));
    static const char *const names[] = {"old", "newer", "middle"};
    static const long ages[] = {300, 100, 200};
    for (int i = 0; i < 3; i++) {
        char journal[64];
        assert_int_equal(mkdir(at(names[i]), 0700), 0);
        add(at(names[i]), zf_run_start_entry(&me, 1));
        snprintf(journal, sizeof journal, "%s/journal.jsonl", names[i]);
        age(journal, ages[i]);
    }
    write_text("file", "");
    char *run = zf_rundir_newest(root, false);
    assert_string_equal(run, at("newer"));
    free(run);
    assert_null(zf_rundir_newest(root, true));
    assert_int_equal(zf_lock_acquire(&l, at("old"), &o, NULL, 0, &e), ZF_OK);
    run = zf_rundir_newest(root, true);
    assert_string_equal(run, at("old"));
    free(run);
    zf_lock_release(l);
}

/* Whoever looks while another process begins a run sees nothing, or a run: nothing foreign. */
static void one_that_begins(void **state)
{
    (void)state;
    enum { RUNS = 300 };
    int go[2];
    char name[32], c = 0;
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (!child) close(go[1]); /* a parent that fails is no parent any more */
    for (int i = 0; !child && i < RUNS && read(go[0], &c, 1) == 1; i++) {
        snprintf(name, sizeof name, "%d", i);
        if (mkdir(at(name), 0777)) _exit(1);
        add(at(name), zf_run_start_entry(&me, 100));
    }
    if (!child) _exit(0);
    for (int i = 0; i < RUNS; i++) {
        enum zf_rundir_state seen = ZF_RUNDIR_NEW;
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(write(go[1], "x", 1), 1);
        while (seen == ZF_RUNDIR_NEW && !kill(child, 0)) seen = look(at(name), &me).state;
        assert_int_equal(seen, ZF_RUNDIR_OURS);
    }
    waitpid(child, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(new_ones), T(ours),           T(P78_another_run), T(P78_foreign_files_survive),
                                       T(newest),   T(one_that_begins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
