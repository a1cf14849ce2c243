/* Feeds: a live run with a real socket (the trainer's own server) and a file that is written as it is, files that grow, are cut and torn,
 * recordings with a clock. What a feed gives must be what the file says, no more and no less. */
#include "tests/session/support.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/session/control.h"
#include "core/session/lock.h"
#include "core/telemetry/jsonl.h"
#include "tui/feed.h"
#include "tui/view.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>

static const char start_line[] =
    "{\"type\":\"start\",\"version\":\"0.1.0\",\"model\":\"sky\",\"options\":{\"steps\":0},\"matrices\":[{\"name\":\"q\","
    "\"channels\":128,\"length\":4},{\"name\":\"k\",\"channels\":8,\"length\":4}],\"attempt\":1}\n";

/* ---- a made-up trainer ---- */

static struct {
    struct zf_jsonl file;
    struct zf_control *control;
    struct zf_lock *lock;
    uint64_t step;
    bool asked_yes;
} t;

static char *at_once(void *ctx, const struct zf_request *r, bool *ok)
{
    (void)ctx;
    if (strcmp(r->command, "status") != 0) return NULL;
    *ok = true;
    return strdup("training");
}

static void trainer_begin(void)
{
    static const struct zf_control_hooks hooks = {.at_once = at_once};
    static const struct zf_lock_options none = {0};
    struct zf_err e;
    char note[256];
    memset(&t, 0, sizeof t);
    if (zf_lock_acquire(&t.lock, root, &none, note, sizeof note, &e) || zf_control_start(&t.control, root, &hooks, &e) ||
        zf_jsonl_open(&t.file, at("metrics.jsonl"), &e))
        fail_msg("%s", e.message);
    zf_lock_socket(t.lock, zf_control_path(t.control));
}

static void trainer_end(bool clean)
{
    zf_control_stop(t.control);
    zf_jsonl_close(&t.file);
    if (clean) zf_lock_release(t.lock);
}

/* As the trainer does: into the file, then to the clients. */
static void tell(const char *line)
{
    size_t n = strlen(line);
    assert_int_equal(zf_jsonl_append(&t.file, line, n), 0);
    zf_control_publish(t.control, line, n);
}

static void say(const char *type, const char *rest)
{
    char line[512];
    snprintf(line, sizeof line, "{\"type\":\"%s\",\"step\":%llu%s}\n", type, (unsigned long long)t.step, rest);
    tell(line);
}

static void train(uint64_t steps)
{
    char rest[256];
    while (steps--) {
        t.step++;
        snprintf(rest, sizeof rest, ",\"time\":%.3f,\"loss\":%.4f,\"step_ms\":10.0,\"groups\":[]", (double)t.step * 0.01,
                 3.0 / (double)t.step);
        say("step", rest);
        if (t.step % 10 == 0) say("mark", ",\"text\":\"every ten\"");
        if (t.step % 16 == 0) say("score", ",\"matrices\":[{\"name\":\"q\",\"bins\":[1.5],\"top\":[0.5],\"selected_energy\":0.25}]");
        say("lanes_not", "");
    }
}

/* ---- what a console does ---- */

/* Takes until nothing is left; for a socket: until this step, at most ten seconds. */
static enum zf_status drain(struct zf_feed *f, struct zf_history *h, uint64_t step, struct zf_err *e)
{
    double until = zf_clock() + 10;
    for (bool more = true; zf_clock() < until;) {
        enum zf_status s = f->type->take(f, h, 0.005, &more, e);
        if (s) return s;
        if (!more && h->step >= step) return ZF_OK;
        if (!more) usleep(1000);
    }
    fail_msg("step %llu, not %llu", (unsigned long long)h->step, (unsigned long long)step);
    return ZF_OK;
}

static void answers(struct zf_feed *f, struct zf_history *h, struct zf_answer *out)
{
    struct zf_err e;
    bool more;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(f->type->take(f, h, 0.005, &more, &e), ZF_OK);
        if (f->type->answer(f, out)) return;
        usleep(1000);
    }
    fail_msg("no answer");
}

static unsigned marks(const struct zf_history *h)
{
    unsigned n = 0;
    for (size_t i = 0; i < h->notes.count; i++) n += h->notes.list[i].kind == ZF_NOTE_MARK;
    return n;
}

static void exactly(const struct zf_history *h, uint64_t steps)
{
    struct zf_bucket b = zf_series_between(&h->series[ZF_SERIES_LOSS], 0, UINT64_MAX);
    assert_int_equal(h->step, steps);
    assert_int_equal(b.count, steps);
    assert_true(fabsf(b.least - 3.0f / (float)steps) < 1e-4f);
    assert_int_equal(marks(h), steps / 10);
}

/* ---- live ---- */

static void a_live_run(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    struct zf_answer a;
    zf_history_open(&h);
    trainer_begin();
    tell(start_line);
    train(995);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    train(500); /* before it reads */
    assert_int_equal(drain(f, &h, 1495, &e), ZF_OK);
    exactly(&h, 1495);
    for (int i = 0; i < 20; i++) {
        train(7);
        assert_int_equal(drain(f, &h, t.step, &e), ZF_OK);
    }
    exactly(&h, 1635);
    assert_int_equal(h.heat.used, 1635 / 16);
    assert_true(f->type->fd(f) >= 0);
    assert_true(f->type->now(f) >= 16.35 && f->type->now(f) < 60);
    assert_string_equal(h.model, "sky");

    assert_int_equal(f->type->ask(f, 7, "status", false, &e), ZF_OK); /* at once */
    answers(f, &h, &a);
    assert_true(a.id == 7 && a.ok && !a.ask && !strcmp(a.text, "training"));
    assert_int_equal(f->type->ask(f, 8, "set learning_rate 1", false, &e), ZF_OK); /* by the trainer, with a question */
    assert_int_equal(f->type->ask(f, 9, "set learning_rate 1", true, &e), ZF_OK);
    for (int i = 0; i < 2; i++) {
        struct zf_request *r = NULL;
        while (!r) {
            zf_control_wait(t.control, 1);
            r = zf_control_next(t.control);
        }
        assert_string_equal(r->by, "console");
        assert_int_equal(r->yes, i);
        zf_control_answer(t.control, r, r->yes, !r->yes, r->yes ? "done" : "really?");
    }
    answers(f, &h, &a);
    assert_true(a.id == 8 && !a.ok && a.ask && !strcmp(a.text, "really?"));
    answers(f, &h, &a);
    assert_true(a.id == 9 && a.ok && !a.ask && !strcmp(a.text, "done"));
    assert_false(f->type->answer(f, &a));
    assert_int_equal(f->type->ask(f, 1, "mark \xff", false, &e), ZF_USAGE);
    char *longest = malloc(70000);
    assert_non_null(longest);
    memset(longest, 'x', 69999);
    longest[69999] = 0;
    assert_int_equal(f->type->ask(f, 1, longest, false, &e), ZF_USAGE);
    free(longest);

    train(3);
    say("end", ",\"reason\":\"done\",\"code\":0");
    trainer_end(true);
    assert_int_equal(drain(f, &h, t.step, &e), ZF_OK);
    for (int i = 0; i < 200 && !h.ended; i++) {
        bool more;
        assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
        usleep(1000);
    }
    assert_true(h.ended);
    exactly(&h, 1638);
    bool more;
    for (int i = 0; i < 3; i++) assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK); /* it stays ended */
    f->type->close(f);
    zf_history_close(&h);
}

static void *train_on(void *count)
{
    train(*(uint64_t *)count);
    return NULL;
}

/* While the trainer writes as fast as it can, consoles come at any moment. */
static void no_gap_and_no_double(void **unused)
{
    (void)unused;
    struct zf_err e;
    pthread_t thread;
    uint64_t steps = 20000;
    trainer_begin();
    tell(start_line);
    train(10);
    assert_int_equal(pthread_create(&thread, NULL, train_on, &steps), 0);
    struct zf_feed *f[6];
    struct zf_history h[6];
    for (int i = 0; i < 6; i++) {
        bool more = true;
        assert_int_equal(zf_feed_live(&f[i], root, &e), ZF_OK);
        zf_history_open(&h[i]);
        usleep((useconds_t)i * 3000);
        for (int k = 0; k < 5; k++)
            for (int j = 0; j <= i; j++) assert_int_equal(f[j]->type->take(f[j], &h[j], 0.005, &more, &e), ZF_OK);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(drain(f[i], &h[i], 20010, &e), ZF_OK);
        assert_int_equal(h[i].step, 20010);
        assert_int_equal(zf_series_between(&h[i].series[ZF_SERIES_LOSS], 0, UINT64_MAX).count, 20010);
        assert_int_equal(marks(&h[i]), 2001);
    }
    trainer_end(true);
    for (int i = 0; i < 6; i++) {
        f[i]->type->close(f[i]);
        zf_history_close(&h[i]);
    }
}

/* Away for so long that the trainer gave up telling it: all is there when it is back. */
static void lost_lines_are_read_from_the_file(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    zf_history_open(&h);
    trainer_begin();
    tell(start_line);
    train(100);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    assert_int_equal(drain(f, &h, 100, &e), ZF_OK);
    zf_history_watch(&h, 1);
    for (int i = 0; i < 60 && !zf_control_lost(t.control); i++) {
        train(1000);
        usleep(20000);
    }
    assert_true(zf_control_lost(t.control) > 0);
    for (int i = 0; i < 400; i++) { /* it is told when it has read what waits */
        bool more;
        if (i % 20 == 0) train(1);
        assert_int_equal(f->type->take(f, &h, 0.02, &more, &e), ZF_OK);
        usleep(500);
    }
    train(1);
    assert_int_equal(drain(f, &h, t.step, &e), ZF_OK);
    assert_int_equal(zf_series_between(&h.series[ZF_SERIES_LOSS], 0, UINT64_MAX).count, t.step);
    assert_int_equal(marks(&h), t.step / 10 < ZF_NOTES_MOST ? t.step / 10 : marks(&h));
    assert_int_equal(h.map.matrix, 1);
    trainer_end(true);
    f->type->close(f);
    zf_history_close(&h);
}

static void a_trainer_that_dies(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e = {0};
    zf_history_open(&h);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_BUSY); /* nobody */
    trainer_begin();
    tell(start_line);
    train(20);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    assert_int_equal(drain(f, &h, 20, &e), ZF_OK);
    train(5);
    trainer_end(true);
    bool more;
    enum zf_status s = ZF_OK;
    for (int i = 0; i < 1000 && !s; i++) {
        s = f->type->take(f, &h, 0.01, &more, &e);
        usleep(1000);
    }
    assert_int_equal(s, ZF_BUSY);
    assert_non_null(strstr(e.message, "gone"));
    exactly(&h, 25);
    assert_int_equal(f->type->ask(f, 1, "status", false, &e), ZF_DIFFERENT);
    f->type->close(f);
    zf_history_close(&h);
}

/* A socket that says anything at all. */
static void a_hostile_socket(void **unused)
{
    (void)unused;
    static const char *const lines[] = {
        "{\"id\":1}\n",
        "{\"id\":null,\"ok\":false,\"text\":\"full\"}\n",
        "{\"id\":1,\"ok\":7,\"text\":[]}\n",
        "{\"id\":1e99,\"ok\":true}\n",
        "\xff\n",
        "\n",
        "{\"type\":\"note\",\"text\":",
        "\n{\"type\":\"note\",\"text\":5,\"lost\":\"x\"}\n",
        "[[[[[[\n",
        "{\"id\":\"x\",\"ok\":true,\"text\":\"\\u0000\"}\n",
    };
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    struct zf_answer a;
    bool more;
    zf_history_open(&h);
    trainer_begin();
    tell(start_line);
    train(5);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) zf_control_publish(t.control, lines[i], strlen(lines[i]));
    train(5);
    assert_int_equal(drain(f, &h, 10, &e), ZF_OK);
    unsigned n = 0;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
        while (f->type->answer(f, &a)) n++;
        usleep(500);
    }
    assert_int_equal(n, 4);
    exactly(&h, 10);
    trainer_end(true);
    f->type->close(f);
    zf_history_close(&h);
}

/* ---- files ---- */

static void append(const char *text)
{
    FILE *f = fopen(at("metrics.jsonl"), "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void append_steps(uint64_t from, uint64_t to, double time)
{
    FILE *f = fopen(at("metrics.jsonl"), "a");
    assert_non_null(f);
    for (; from <= to; from++)
        fprintf(f, "{\"type\":\"step\",\"step\":%llu,\"time\":%.3f,\"loss\":%.4f}\n", (unsigned long long)from, (double)from * time,
                3.0 / (double)from);
    fclose(f);
}

static void files_that_grow(void **unused)
{
    (void)unused;
    static const struct zf_lock_options none = {0};
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    struct zf_lock *lock;
    char note[256];
    zf_history_open(&h);
    assert_int_equal(zf_feed_files(&f, root, &e), ZF_USAGE);
    assert_int_equal(zf_lock_acquire(&lock, root, &none, note, sizeof note, &e), ZF_OK);
    append(start_line);
    append_steps(1, 3000, 0.5);
    assert_int_equal(zf_feed_files(&f, root, &e), ZF_OK);
    assert_int_equal(drain(f, &h, 3000, &e), ZF_OK);
    assert_true(f->type->now(f) >= 1500 && f->type->now(f) < 1520);
    assert_true(!f->type->fd && !f->type->answer);
    assert_int_equal(f->type->ask(f, 1, "pause", false, &e), ZF_DIFFERENT);
    assert_non_null(strstr(e.message, "ssh -t "));
    append("{\"type\":\"step\",\"step\":3001,\"time\":15"); /* torn: its rest comes later */
    bool more;
    assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
    assert_int_equal(h.step, 3000);
    append("00.5,\"loss\":1.5}\n{\"type\":\"mark\",\"step\":3001,\"text\":\"x\"}\n");
    assert_int_equal(drain(f, &h, 3001, &e), ZF_OK);
    assert_int_equal(h.bad, 0);
    zf_history_watch(&h, 1);

    assert_int_equal(truncate(at("metrics.jsonl"), 60000), 0); /* a resume cuts it back, in the middle of a line at worst */
    append("\n{\"type\":\"resume\",\"step\":900,\"attempt\":2}\n");
    append_steps(901, 1000, 0.5);
    for (int i = 0; i < 100 && h.step != 1000; i++) assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
    assert_int_equal(h.step, 1000);
    assert_int_equal(zf_series_between(&h.series[ZF_SERIES_LOSS], 0, UINT64_MAX).count, 1000);
    assert_int_equal(marks(&h), 0);
    assert_int_equal(h.attempt, 2);
    assert_int_equal(h.map.matrix, 1);

    assert_int_equal(rename(at("metrics.jsonl"), at("metrics.cut-1.jsonl")), 0); /* or another takes its place */
    append(start_line);
    append_steps(1, 10, 0.5);
    for (int i = 0; i < 100 && h.step != 10; i++) assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
    assert_int_equal(h.step, 10);

    zf_lock_release(lock); /* gone without an end */
    append_steps(11, 12, 0.5);
    enum zf_status s = ZF_OK;
    for (int i = 0; i < 40 && !s; i++) {
        s = f->type->take(f, &h, 0.01, &more, &e);
        usleep(50000);
    }
    assert_int_equal(s, ZF_BUSY);
    assert_int_equal(h.step, 12);
    assert_int_equal(f->type->ask(f, 1, "pause", false, &e), ZF_DIFFERENT);
    f->type->close(f);
    zf_history_close(&h);
}

static void lines_that_are_no_lines(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    bool more = true;
    zf_history_open(&h);
    append(start_line);
    FILE *to = fopen(at("metrics.jsonl"), "a");
    assert_non_null(to);
    char *block = malloc(1 << 20);
    assert_non_null(block);
    memset(block, 'x', 1 << 20);
    for (int i = 0; i < 20; i++) assert_int_equal(fwrite(block, 1, 1 << 20, to), 1 << 20); /* longer than any line may be */
    fputs("\n{\"type\":\"step\",\"step\":1,\"loss\":3}\n", to);
    for (int i = 0; i < 5; i++) assert_int_equal(fwrite(block, 1, 1 << 20, to), 1 << 20); /* too long for the parser */
    fputs("\n{\"type\":\"step\",\"step\":2,\"loss\":3}\n", to);
    for (int i = 0; i < 20; i++) assert_int_equal(fwrite(block, 1, 1 << 20, to), 1 << 20); /* without an end */
    fclose(to);
    free(block);
    assert_int_equal(zf_feed_replay(&f, root, INFINITY, &e), ZF_OK);
    while (more) assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
    assert_int_equal(h.step, 2);
    assert_int_equal(h.bad, 1);
    f->type->close(f);
    zf_history_close(&h);
}

/* ---- recordings ---- */

/* For so long, or longer on a busy machine: returns how long. */
static double play(struct zf_feed *f, struct zf_history *h, double seconds)
{
    struct zf_err e;
    double began = zf_clock();
    while (zf_clock() - began < seconds) {
        bool more;
        assert_int_equal(f->type->take(f, h, 0.01, &more, &e), ZF_OK);
        double wait = f->type->wait(f);
        assert_true(wait <= 1);
        usleep(wait < 0 ? 20000 : (useconds_t)(fmin(wait, 0.02) * 1e6));
    }
    return zf_clock() - began;
}

/* Of a run that nobody ended: it says so where it ends, each time it comes there. */
static void a_recording_without_an_end(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    const char *dead = "{\"host\":\"h\",\"pid\":4194303,\"pid_start\":1,\"boot_id\":\"x\",\"heartbeat\":1,\"step\":9,\"file_lock\":true}\n";
    append(start_line);
    append_steps(1, 47, 0.01);
    assert_int_equal(zf_file_write_atomic(at("lock"), dead, strlen(dead), &e), ZF_OK);
    zf_history_open(&h);
    assert_int_equal(zf_feed_replay(&f, root, INFINITY, &e), ZF_OK);
    for (int i = 0; i < 2; i++) {
        for (bool more = true; more;) assert_int_equal(f->type->take(f, &h, 1, &more, &e), ZF_OK);
        assert_int_equal(h.notes.count, 1);
        assert_int_equal(h.notes.list[0].kind, ZF_NOTE_ERROR);
        assert_non_null(strstr(h.notes.list[0].text, "without a clean stop at step 47")); /* the lock is some seconds behind */
        assert_int_equal(zf_replay_seek(f, &h, 20, &e), ZF_OK);
        assert_int_equal(h.notes.count, 0);
        zf_replay_speed(f, INFINITY);
    }
    struct zf_view v; /* no more steps are promised */
    zf_view_init(&v, &h);
    v.link = ZF_LINK_REPLAY;
    assert_true(zf_view_goes_on(&v));
    v.died = true;
    assert_false(zf_view_goes_on(&v));
    f->type->close(f);
    zf_history_close(&h);
}

static void a_recording(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    zf_history_open(&h);
    assert_int_equal(zf_feed_replay(&f, root, 1, &e), ZF_USAGE);
    append(start_line);
    append("{\"type\":\"note\",\"step\":0,\"text\":\"first\"}\n");
    append_steps(1, 100, 0.01);
    append("{\"type\":\"mark\",\"step\":100,\"text\":\"hundred\"}\n");
    append_steps(101, 5000, 0.01);
    append("{\"type\":\"resume\",\"step\":4000,\"attempt\":2}\n");
    append_steps(4001, 6000, 0.001); /* its time begins anew */
    append("{\"type\":\"end\",\"step\":6000,\"reason\":\"done\"}\n");
    assert_int_equal(zf_feed_replay(&f, root, 1, &e), ZF_OK);
    assert_true(zf_replay_is(f) && zf_replay_speed_of(f) == 1 && !f->type->fd && !f->type->answer && f->type->wait(f) == 0);
    double took = play(f, &h, 0.3);
    assert_in_range(h.step, 10, (uint64_t)(100 * took) + 10); /* 100 a second */
    assert_int_equal(h.notes.count, 1);
    assert_true(fabs(f->type->now(f) - 0.01 * (double)h.step) < 0.06);

    zf_replay_speed(f, 0); /* it stands */
    uint64_t stood = h.step;
    double now = f->type->now(f);
    play(f, &h, 0.2);
    assert_int_equal(h.step, stood);
    assert_true(f->type->now(f) == now && f->type->wait(f) == 1);

    zf_replay_speed(f, 20);
    took = play(f, &h, 0.3);
    assert_in_range(h.step, stood + 200, stood + (uint64_t)(2000 * took) + 200);

    zf_replay_speed(f, 0);
    assert_int_equal(zf_replay_seek(f, &h, 100, &e), ZF_OK); /* back: to the end of the step */
    assert_int_equal(h.step, 100);
    assert_int_equal(marks(&h), 1);
    assert_int_equal(zf_series_between(&h.series[ZF_SERIES_LOSS], 0, UINT64_MAX).count, 100);
    assert_true(fabs(f->type->now(f) - 1) < 0.011);
    assert_int_equal(zf_replay_seek(f, &h, 2000, &e), ZF_OK);
    assert_int_equal(h.step, 2000);
    assert_int_equal(zf_replay_seek(f, &h, 0, &e), ZF_OK); /* before the first */
    assert_true(h.step == 0 && h.matrices == 2 && h.notes.count == 1);
    zf_history_watch(&h, 1);
    assert_int_equal(zf_replay_seek(f, &h, 5, &e), ZF_OK);
    assert_int_equal(zf_replay_seek(f, &h, 3, &e), ZF_OK);
    assert_int_equal(h.map.matrix, 1);

    bool more = true;
    zf_replay_speed(f, INFINITY);
    while (more) assert_int_equal(f->type->take(f, &h, 0.001, &more, &e), ZF_OK);
    assert_true(h.ended && h.step == 6000);
    assert_int_equal(zf_series_between(&h.series[ZF_SERIES_LOSS], 0, UINT64_MAX).count, 6000);
    assert_true(f->type->wait(f) == 1);
    assert_int_equal(zf_replay_seek(f, &h, 99999, &e), ZF_OK);
    assert_int_equal(h.step, 6000);
    assert_int_equal(f->type->ask(f, 1, "pause", false, &e), ZF_DIFFERENT);

    assert_int_equal(zf_replay_seek(f, &h, 4800, &e), ZF_OK); /* the first time that it is reached */
    zf_replay_speed(f, 10);
    for (int i = 0; i < 100 && h.attempt != 2; i++) play(f, &h, 0.1); /* over the resume, whose times are smaller */
    assert_true(h.step > 4000 && h.attempt == 2);
    f->type->close(f);

    assert_int_equal(zf_feed_replay(&f, root, 0, &e), ZF_OK); /* one that stands shows its start */
    zf_history_close(&h);
    assert_int_equal(f->type->take(f, &h, 0.01, &more, &e), ZF_OK);
    assert_true(h.matrices == 2 && h.step == 0);
    f->type->close(f);
    zf_history_close(&h);
}

/* ---- a long one ---- */

static void same_state(const struct zf_history *a, const struct zf_history *b)
{
    assert_true(a->step == b->step && a->time == b->time && a->ended == b->ended && a->heat.used == b->heat.used);
    assert_true(a->heat.merged == b->heat.merged && a->heat.pending == b->heat.pending && a->notes.count == b->notes.count);
    for (int i = 0; i < ZF_SERIES_COUNT; i++) {
        const struct zf_series *x = &a->series[i], *y = &b->series[i];
        assert_true(x->used == y->used && x->span == y->span && x->newest == y->newest && x->recent_used == y->recent_used);
        if (!x->used) continue;
        struct zf_bucket p = zf_series_between(x, 0, UINT64_MAX), q = zf_series_between(y, 0, UINT64_MAX);
        assert_true(p.count == q.count && p.sum == q.sum && p.least == q.least && p.most == q.most && p.bad == q.bad);
    }
    for (size_t i = 0; i < a->notes.count; i++) assert_string_equal(a->notes.list[i].text, b->notes.list[i].text);
    for (size_t i = 0; i < a->matrices; i++) {
        assert_memory_equal(a->matrix[i].energy_column, b->matrix[i].energy_column, a->heat.used * sizeof(float));
        assert_int_equal(a->matrix[i].bins, b->matrix[i].bins);
        assert_memory_equal(a->matrix[i].bin, b->matrix[i].bin, a->matrix[i].bins * sizeof(float));
        assert_int_equal(a->matrix[i].channel_count, b->matrix[i].channel_count);
    }
    assert_int_equal(a->map.used, b->map.used);
    for (size_t i = 1; i <= a->map.used; i++) {
        size_t c = (a->map.at + ZF_CHANNEL_COLUMNS - i) % ZF_CHANNEL_COLUMNS, d = (b->map.at + ZF_CHANNEL_COLUMNS - i) % ZF_CHANNEL_COLUMNS;
        assert_int_equal(a->map.step[c], b->map.step[d]);
        assert_memory_equal(a->map.score + c * ZF_CHANNEL_ROWS, b->map.score + d * ZF_CHANNEL_ROWS, a->map.rows * sizeof(float));
    }
}

static void all_of_it(struct zf_feed *f, struct zf_history *h)
{
    struct zf_err e;
    bool more = true;
    while (more) assert_int_equal(f->type->take(f, h, 0.05, &more, &e), ZF_OK);
}

static void score(FILE *to, uint64_t step)
{
    fprintf(to,
            "{\"type\":\"select\",\"step\":%llu,\"matrices\":[{\"name\":\"k\",\"selected\":2,\"kept\":0.5,\"energy\":0.25,\"channels\":[1,%"
            "llu]}]}\n"
            "{\"type\":\"score\",\"step\":%llu,\"matrices\":[{\"name\":\"q\",\"bins\":[%llu.5,2.5],\"top\":[0.5],\"selected_energy\":0.5},"
            "{\"name\":\"k\",\"bins\":[-%llu.5,1.5,0.5],\"top\":[0.5],\"selected_energy\":0.%llu}]}\n",
            (unsigned long long)step, (unsigned long long)step % 8, (unsigned long long)step, (unsigned long long)step,
            (unsigned long long)step, (unsigned long long)step % 1000 + 1000);
}

/* States that are kept on the way are no other than those that reading from the beginning gives. */
static void a_long_recording_is_wound(void **unused)
{
    (void)unused;
    static const uint64_t places[] = {60000, 31000, 100, 44444, 69999, 12345, 70000, 14001};
    struct zf_feed *f, *g;
    struct zf_history h, fresh;
    struct zf_err e;
    char pad[900];
    append(start_line);
    FILE *to = fopen(at("metrics.jsonl"), "a");
    assert_non_null(to);
    memset(pad, '7', sizeof pad - 1);
    pad[sizeof pad - 1] = 0;
    for (uint64_t i = 1; i <= 70000; i++) {
        fprintf(to, "{\"type\":\"step\",\"step\":%llu,\"time\":%.2f,\"loss\":%.4f,\"busy\":{\"compute\":0.%llu}}\n", (unsigned long long)i,
                (double)i * 0.01, 3.0 / (double)i, (unsigned long long)(i % 97));
        fprintf(to, "{\"type\":\"padding\",\"text\":\"%s\"}\n", pad);
        if (i % 50 == 0) score(to, i);
        if (i % 1000 == 0)
            fprintf(to, "{\"type\":\"mark\",\"step\":%llu,\"text\":\"%llu\"}\n", (unsigned long long)i, (unsigned long long)i);
    }
    fclose(to);
    zf_history_open(&h);
    assert_int_equal(zf_feed_replay(&f, root, INFINITY, &e), ZF_OK);
    all_of_it(f, &h);
    assert_int_equal(h.step, 70000);
    zf_replay_speed(f, 0);
    zf_history_watch(&h, 1);
    all_of_it(f, &h);
    assert_int_equal(h.map.used, ZF_CHANNEL_COLUMNS); /* columns of before */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(zf_replay_seek(f, &h, places[i], &e), ZF_OK);
        all_of_it(f, &h);
        zf_history_open(&fresh);
        assert_int_equal(zf_feed_replay(&g, root, 0, &e), ZF_OK);
        assert_int_equal(zf_replay_seek(g, &fresh, places[i], &e), ZF_OK);
        zf_history_watch(&fresh, 1);
        all_of_it(g, &fresh);
        same_state(&h, &fresh);
        g->type->close(g);
        zf_history_close(&fresh);
    }
    f->type->close(f);
    zf_history_close(&h);
}

/* Whoever looks at a matrix sees what was before, and what comes, in the order of steps. */
static void a_matrix_that_is_looked_at(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    char line[256];
    zf_history_open(&h);
    trainer_begin();
    tell(start_line);
    train(1600);
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    assert_int_equal(drain(f, &h, 1600, &e), ZF_OK);
    zf_history_watch(&h, 0);
    train(160);
    assert_int_equal(drain(f, &h, 1760, &e), ZF_OK);
    all_of_it(f, &h);
    assert_int_equal(h.map.used, 110);
    for (size_t i = 0; i < h.map.used; i++) assert_int_equal(h.map.step[i], 16 * (i + 1));
    train(16);
    snprintf(line, sizeof line, "{\"type\":\"watch\",\"step\":1777,\"name\":\"q\",\"scores\":[1,100,1000],\"selected\":[1]}\n");
    zf_control_publish(t.control, line, strlen(line));
    train(16);
    assert_int_equal(drain(f, &h, 1792, &e), ZF_OK);
    assert_true(h.map.used == 113 && h.map.rows == 3 && h.map.full); /* those of before are as wide */
    assert_true(h.map.score[2] == 1.5f && h.map.score[111 * ZF_CHANNEL_ROWS + 2] == 3 && h.map.score[112 * ZF_CHANNEL_ROWS + 2] == 1.5f);
    zf_history_watch(&h, SIZE_MAX);
    all_of_it(f, &h);
    zf_history_watch(&h, 0);
    zf_history_watch(&h, SIZE_MAX);
    zf_history_watch(&h, 0);
    all_of_it(f, &h);
    assert_int_equal(h.map.used, 112);
    tell("{\"type\":\"end\",\"reason\":\"done\",\"step\":1792}\n");
    trainer_end(true);
    for (bool more = true; more || !h.ended;) assert_int_equal(f->type->take(f, &h, 1, &more, &e), ZF_OK);
    zf_history_watch(&h, SIZE_MAX);
    zf_history_watch(&h, 0); /* after the end, too */
    for (bool more = true; more;) assert_int_equal(f->type->take(f, &h, 1, &more, &e), ZF_OK);
    assert_int_equal(h.map.used, 112);
    f->type->close(f);
    zf_history_close(&h);
}

/* The end of an attempt before this one, which has not written a line yet, ends nothing; its own does. */
static void a_run_that_goes_on(void **unused)
{
    (void)unused;
    struct zf_feed *f;
    struct zf_history h;
    struct zf_err e;
    struct zf_answer a;
    zf_history_open(&h);
    trainer_begin();
    tell(start_line);
    train(40);
    say("end", ",\"reason\":\"stopped\",\"code\":5");
    assert_int_equal(zf_feed_live(&f, root, &e), ZF_OK);
    assert_int_equal(drain(f, &h, 40, &e), ZF_OK);
    assert_int_equal(f->type->ask(f, 1, "status", false, &e), ZF_OK); /* it has let us in: the file was read to its end */
    answers(f, &h, &a);
    for (bool more = true; more;) assert_int_equal(f->type->take(f, &h, 1, &more, &e), ZF_OK);
    assert_false(h.ended);
    say("resume", ",\"attempt\":2");
    train(10);
    assert_int_equal(drain(f, &h, 50, &e), ZF_OK);
    assert_false(h.ended);
    say("end", ",\"reason\":\"done\",\"code\":0");
    trainer_end(true);
    for (bool more = true; more || !h.ended;) assert_int_equal(f->type->take(f, &h, 1, &more, &e), ZF_OK);
    assert_string_equal(h.end_reason, "done");
    f->type->close(f);
    zf_history_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_live_run),
        T(a_run_that_goes_on),
        T(no_gap_and_no_double),
        T(lost_lines_are_read_from_the_file),
        T(a_trainer_that_dies),
        T(a_hostile_socket),
        T(files_that_grow),
        T(lines_that_are_no_lines),
        T(a_long_recording_is_wound),
        T(a_matrix_that_is_looked_at),
        T(a_recording),
        T(a_recording_without_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
