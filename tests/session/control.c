/* A run that is steered, with a made-up trainer: real sockets, clients that behave and clients that do not, the journal, [at]. */
#include "tests/session/support.h"

#include "core/base/clock.h"
#include "core/session/session.h"
#include "core/wire/wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* The trainer: counts, remembers what it was told. */
static struct {
    struct zf_options o;
    struct zf_journal *journal;
    struct zf_session *session;
    uint64_t step;
    unsigned applied, acted, idle;
    json_t *lines;                 /* what it recorded */
    double learning_rate_at[1000]; /* of each step it took */
    bool refuse, loses;
    uint64_t ticket; /* not 0: an export is answered later, with the next ticket */
} t;

static enum zf_status check(void *ctx, const struct zf_options *now, const struct zf_options *wanted, uint64_t from, struct zf_err *e)
{
    (void)ctx, (void)now, (void)wanted, (void)from;
    return t.refuse ? zf_fail(e, ZF_MEMORY, "memory", "it would need 3 GiB more than there is") : ZF_OK;
}

static enum zf_status apply(void *ctx, const struct zf_options *before, uint64_t from, struct zf_err *e)
{
    (void)ctx, (void)before, (void)from, (void)e;
    t.applied++;
    return ZF_OK;
}

static double rate(void *ctx, const struct zf_options *o, uint64_t step)
{
    (void)ctx, (void)step;
    return o->learning_rate;
}

static bool can(void *ctx, enum zf_command_id id)
{
    (void)ctx;
    return id == ZF_CMD_export || id == ZF_CMD_eval || id == ZF_CMD_save;
}

static enum zf_status act(void *ctx, const struct zf_command *c, char *text, size_t room, struct zf_err *e)
{
    (void)ctx;
    t.acted++;
    if (c->id == ZF_CMD_eval) return zf_fail(e, ZF_IO, "valid.txt", "it cannot be read");
    if (t.ticket) zf_session_answer_with(t.session, t.ticket++);
    snprintf(text, room, "exported to %s", c->count ? c->word[0] : "the usual place");
    return ZF_OK;
}

static bool loses(void *ctx, const struct zf_command *c, char *text, size_t room)
{
    (void)ctx;
    snprintf(text, room, "%s would lose something", c->row->name);
    return t.loses;
}

static void record(void *ctx, json_t *stolen)
{
    (void)ctx;
    json_array_append_new(t.lines, stolen);
    char *text = json_dumps(stolen, JSON_COMPACT);
    char *line = NULL;
    assert_true(asprintf(&line, "%s\n", text) > 0);
    zf_session_publish(t.session, line, strlen(line));
    free(line);
    free(text);
}

static enum zf_status idle(void *ctx, struct zf_err *e)
{
    (void)ctx;
    return ++t.idle > 200 ? zf_fail(e, ZF_STOPPED, NULL, "nobody came") : ZF_OK;
}

static int open_with(const char *const *at_lines)
{
    struct zf_err e;
    memset(&t, 0, sizeof t);
    t.lines = json_array();
    if (zf_options_init(&t.o, &e)) return -1;
    static const char *const given[] = {"family=llama", "layers=1", "hidden=32",         "heads=2",           "train=x.txt",
                                        "steps=300",    "lr=2e-5",  "strategy=gpu_only", "schedule_steps=300"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (zf_options_set_argument(&t.o, given[i], &e)) return -1;
    for (; at_lines && *at_lines; at_lines += 2)
        if (zf_options_at(&t.o, at_lines[0], at_lines[1], &(struct zf_origin){0}, &e)) return -1;
    if (zf_journal_open(&t.journal, root, &e)) return -1;
    const struct zf_session_trainer trainer = {
        .check = check, .apply = apply, .rate = rate, .can = can, .act = act, .ask = loses, .record = record, .idle = idle};
    if (zf_session_open(&t.session, root, &t.o, t.journal, &trainer, &e) || zf_session_listen(t.session, &e)) {
        print_message("%s: %s\n", e.where, e.message);
        return -1;
    }
    return 0;
}

static int open_session(void **state)
{
    return make_root(state) || open_with(NULL) ? -1 : 0;
}

static int close_session(void **state)
{
    zf_session_close(t.session);
    zf_journal_close(t.journal);
    zf_options_free(&t.o);
    json_decref(t.lines);
    return remove_root(state);
}

/* Takes steps until `until` are done; false: it was stopped. */
static bool train(uint64_t until)
{
    struct zf_err e;
    bool stop = false;
    while (t.step < until) {
        if (zf_session_before_step(t.session, t.step + 1, &stop, &e)) fail_msg("%s", e.message);
        if (stop) return false;
        t.learning_rate_at[t.step + 1] = t.o.learning_rate;
        t.step++;
        zf_session_told(t.session, &(struct zf_session_facts){
                                       .step = t.step, .steps = 300, .loss = 2.5, .learning_rate = 1e-5, .tokens_per_s = 5120, .eta = 60});
    }
    return true;
}

static struct zf_wire client(void)
{
    struct zf_wire w;
    struct zf_err e;
    int fd;
    if (zf_wire_connect(&fd, zf_session_socket(t.session), 2, &e)) fail_msg("%s: %s", e.where, e.message);
    zf_wire_open(&w, fd, ZF_WIRE_LINE_MOST, 1 << 20);
    return w;
}

static void ask(struct zf_wire *w, int id, const char *command)
{
    json_t *o = json_pack("{si ss ss}", "id", id, "command", command, "user", "anna");
    char *text = json_dumps(o, 0), *line = NULL;
    assert_true(asprintf(&line, "%s\n", text) > 0);
    assert_true(zf_wire_queue(w, line, strlen(line), 0));
    assert_int_equal(zf_wire_flush(w), ZF_WIRE_OK);
    free(line);
    free(text);
    json_decref(o);
}

/* The next line with this key, NULL after a second. To be released. */
static json_t *next_with(struct zf_wire *w, const char *key, double seconds)
{
    double until = zf_clock() + seconds;
    for (;;) {
        char *line;
        size_t size;
        while (zf_wire_line(w, &line, &size) == ZF_WIRE_LINE) {
            json_t *o = json_loadb(line, size, 0, NULL);
            if (!o) fail_msg("no JSON: %.200s", line);
            if (json_object_get(o, key)) return o;
            json_decref(o);
        }
        if (zf_clock() > until || zf_wire_wait(w, until - zf_clock() + 0.01)) return NULL;
    }
}

/* The answer with this id, "ok: text" or "no: text"; to be freed. Trains while it waits. */
static char *answer(struct zf_wire *w, int id)
{
    char *text = NULL;
    for (int i = 0; i < 500; i++) {
        struct zf_err e;
        bool stop;
        json_t *o = next_with(w, "ok", 0.01);
        if (o && json_integer_value(json_object_get(o, "id")) == id) {
            assert_true(asprintf(&text, "%s%s: %s", json_is_true(json_object_get(o, "ok")) ? "ok" : "no",
                                 json_is_true(json_object_get(o, "ask")) ? "?" : "", json_string_value(json_object_get(o, "text"))) > 0);
            json_decref(o);
            return text;
        }
        json_decref(o);
        assert_int_equal(zf_session_at_end(t.session, &stop, &e), ZF_OK);
    }
    fail_msg("no answer");
    return NULL;
}

static void expect_answer(struct zf_wire *w, const char *command, const char *expected)
{
    static int id = 100;
    ask(w, ++id, command);
    char *text = answer(w, id);
    if (strncmp(text, expected, 3) || !strstr(text, expected + strcspn(expected, " ") + 1))
        fail_msg("`%s`: %s; not %s", command, text, expected);
    free(text);
}

/* `part` stands there once. */
static void expect_once(struct zf_wire *w, const char *command, const char *part)
{
    ask(w, 99, command);
    char *text = answer(w, 99), *first = strstr(text, part);
    if (!first || strstr(first + 1, part)) fail_msg("`%s`: %s; not once %s", command, text, part);
    free(text);
}

static json_t *journal_entry(size_t from_end)
{
    struct zf_err e;
    json_t *all;
    assert_int_equal(zf_journal_read(&all, root, NULL, &e), ZF_OK);
    json_t *v = json_incref(json_array_get(all, json_array_size(all) - 1 - from_end));
    json_decref(all);
    return v;
}

static void expect_text_of(const json_t *o, const char *key, const char *expected)
{
    assert_string_equal(json_string_value(json_object_get(o, key)), expected);
}

static void a_change(void **state)
{
    (void)state;
    struct zf_wire w = client();
    assert_true(train(40));
    expect_answer(&w, "set lr 1e-5", "ok: learning_rate 2e-5 -> 1e-5, from step 41 (lr(41) 2e-05 -> 1e-05)");
    json_t *v = journal_entry(0);
    expect_text_of(v, "type", "change");
    expect_text_of(v, "command", "set! learning_rate 1e-5");
    expect_text_of(v, "user", "anna");
    expect_text_of(v, "by", "send");
    assert_int_equal(json_integer_value(json_object_get(v, "step")), 40);
    assert_int_equal(json_integer_value(json_object_get(v, "from_step")), 41);
    json_decref(v);
    v = json_array_get(t.lines, 0);
    expect_text_of(v, "type", "change");
    expect_text_of(v, "option", "learning_rate");
    assert_float_equal(json_real_value(json_object_get(v, "old")), 2e-5, 0);
    assert_float_equal(json_real_value(json_object_get(v, "new")), 1e-5, 0);
    assert_true(train(42));
    assert_float_equal(t.learning_rate_at[40], 2e-5, 0);
    assert_float_equal(t.learning_rate_at[41], 1e-5, 0);
    assert_int_equal(t.applied, 1);
    expect_answer(&w, "set lr 1e-5", "ok: learning_rate is 1e-5 already");
    assert_int_equal(t.applied, 1);
    expect_answer(&w, "show lr", "ok: 1e-5");
    expect_answer(&w, "show *_rate", "ok: learning_rate");
    expect_answer(&w, "show nothing", "no: no option");
    expect_answer(&w, "history", "ok: step 41  learning_rate 2e-05 -> 1e-05  (anna, send)");
    expect_answer(&w, "set strategy zenflow optimistic no", "ok: strategy gpu_only -> zenflow");
    expect_answer(&w, "history", "ok: strategy gpu_only -> zenflow, optimistic yes -> no  (anna, send)"); /* words, not JSON */
    expect_answer(&w, "status", "ok: step 42 of 300, loss 2.5000, lr 1e-05, 5120 tok/s, ETA 1m00s");
    zf_session_told(t.session, &(struct zf_session_facts){.step = 42, .steps = 300, .eta = -1}); /* it has been loaded */
    expect_answer(&w, "status", "ok: step 42 of 300; 2 changes");
    zf_wire_close(&w);
}

static void what_would_be_lost_is_asked(void **state)
{
    (void)state;
    static const char *const lines[] = {"3", "save one", "4", "save! two", NULL};
    assert_int_equal(open_with(lines), 0);
    struct zf_wire w = client();
    expect_answer(&w, "save good", "ok: exported to");
    t.loses = true;
    expect_answer(&w, "save good", "no? save would lose something; to do it say yes (`save!`, or --yes)");
    assert_int_equal(t.acted, 1);
    expect_answer(&w, "save! good", "ok: exported to");
    expect_answer(&w, "export here", "ok: exported to"); /* it never asks */
    assert_int_equal(t.acted, 3);
    assert_true(train(2));
    expect_answer(&w, "at 3 save put-off", "ok: before step 3");
    assert_true(train(4));
    assert_int_equal(t.acted, 4); /* of those nobody is there to be asked about: save! alone */
    size_t warned = 0;
    for (size_t i = 0; i < json_array_size(t.lines); i++) {
        const json_t *o = json_array_get(t.lines, i);
        if (strcmp(json_string_value(json_object_get(o, "type")), "warning") != 0) continue;
        assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "save would lose something"));
        warned++;
    }
    assert_int_equal(warned, 2);
    zf_wire_close(&w);
}

static void questions_and_refusals(void **state)
{
    (void)state;
    struct zf_wire w = client();
    expect_answer(&w, "set lr 1", "no? grows to 5e+04 times");
    expect_answer(&w, "set lr -1", "no: above 0");
    expect_answer(&w, "set seed 2", "no: at a start only");
    expect_answer(&w, "nonsense", "no: no such command");
    expect_answer(&w, "detach", "no: console's own");
    expect_answer(&w, "load x", "no: this trainer cannot load");
    expect_answer(&w, "checkpoints", "no: this trainer has none");
    expect_answer(&w, "score", "no: no scores");
    t.refuse = true;
    expect_answer(&w, "set! lr 1e-6", "no: 3 GiB more");
    t.refuse = false;
    assert_int_equal(t.applied, 0);
    assert_int_equal(json_array_size(t.lines), 0);
    expect_text("journal.jsonl", "");
    expect_answer(&w, "set! lr 1", "ok: 2e-5 -> 1,");
    expect_answer(&w, "export a b", "ok: exported to a b");
    expect_answer(&w, "eval", "no: cannot be read");
    expect_answer(&w, "mark here", "ok: marked before step 1");
    zf_wire_close(&w);
}

static void undo(void **state)
{
    (void)state;
    struct zf_wire w = client();
    expect_answer(&w, "undo", "no: no change to take back");
    expect_answer(&w, "set lr 1e-5 clip_norm 2", "ok: clip_norm 1 -> 2");
    expect_answer(&w, "set lr 3e-5", "ok: 1e-5 -> 3e-5");
    expect_answer(&w, "undo", "ok: 3e-5 -> 1e-5");
    expect_answer(&w, "undo", "ok: clip_norm 2 -> 1");
    expect_answer(&w, "history", "ok: clip_norm 2 -> 1, by undo");
    assert_float_equal(t.o.learning_rate, 2e-5, 0);
    assert_float_equal(t.o.clip_norm, 1, 0);
    expect_answer(&w, "undo", "no: no change to take back");
    json_t *v = journal_entry(0);
    expect_text_of(v, "command", "set! learning_rate 2e-5 clip_norm 1");
    json_decref(v);
    zf_wire_close(&w);
}

struct visitor {
    struct zf_wire w;
    const char *commands[4];
    pthread_t thread;
    bool done;
};

/* Sends commands one after the other while the trainer's thread is in before_step. */
static void *visit(void *arg)
{
    struct visitor *v = arg;
    for (int i = 0; i < 4 && v->commands[i]; i++) {
        ask(&v->w, i, v->commands[i]);
        json_t *o = NULL;
        do json_decref(o), o = next_with(&v->w, "ok", 5);
        while (o && json_integer_value(json_object_get(o, "id")) != i);
        if (!o || !json_is_true(json_object_get(o, "ok"))) return NULL;
        json_decref(o);
    }
    v->done = true;
    return NULL;
}

static void pause_and_step(void **state)
{
    (void)state;
    struct visitor v = {.w = client(), .commands = {"step 2", "status", "resume"}};
    struct zf_wire w = client();
    assert_true(train(3));
    expect_answer(&w, "pause", "ok: paused before step 4");
    pthread_create(&v.thread, NULL, visit, &v);
    assert_true(train(10));
    pthread_join(v.thread, NULL);
    assert_true(v.done);
    unsigned waits = 0;
    for (size_t i = 0; i < json_array_size(t.lines); i++)
        waits += !strncmp(json_string_value(json_object_get(json_array_get(t.lines, i), "text")), "paused before", 13);
    assert_in_range(waits, 1, 2); /* before 4 and 6, unless `resume` was quicker */
    ask(&w, 1, "stop");
    free(answer(&w, 1));
    assert_false(train(20));
    assert_int_equal(t.step, 10);
    zf_wire_close(&v.w);
    zf_wire_close(&w);
}

/* Work that goes on after its command: whoever asked waits for its end, all others are answered meanwhile. */
static void answered_later(void **state)
{
    (void)state;
    struct zf_wire w = client(), other = client();
    t.ticket = 5;
    ask(&w, 1, "export a");
    ask(&w, 2, "mark here");
    ask(&other, 3, "export b");
    assert_true(train(3));
    char *said = answer(&w, 2); /* the answer to 1 would have come first */
    assert_non_null(strstr(said, "marked"));
    free(said);
    while (t.ticket < 7) assert_true(train(t.step + 1));
    assert_false(zf_session_answered(t.session, 4, true, "nobody"));
    assert_false(zf_session_answered(t.session, 0, true, "nobody"));
    assert_true(zf_session_answered(t.session, 6, false, "the disk is full"));
    assert_false(zf_session_answered(t.session, 6, true, "twice"));
    assert_true(zf_session_answered(t.session, 5, true, "now it is there"));
    said = answer(&w, 1);
    assert_string_equal(said, "ok: now it is there");
    free(said);
    said = answer(&other, 3);
    assert_string_equal(said, "no: the disk is full");
    free(said);
    ask(&w, 4, "export c");
    while (t.ticket < 8) assert_true(train(t.step + 1));
    zf_session_close(t.session); /* what is left is told, not forgotten */
    t.session = NULL;
    said = answer(&w, 4);
    assert_non_null(strstr(said, "no: the run has ended"));
    free(said);
    zf_wire_close(&w);
    zf_wire_close(&other);
}

static void idle_ends_a_pause(void **state)
{
    (void)state;
    struct zf_err e;
    bool stop;
    zf_session_pause(t.session, "a step was not finite");
    t.idle = 200;
    assert_int_equal(zf_session_before_step(t.session, 1, &stop, &e), ZF_STOPPED);
    expect_text_of(json_array_get(t.lines, 0), "text",
                   "paused before step 1: a step was not finite; `resume` goes on, `step` takes one step, `stop` ends the run");
}

static void scripted(void **state)
{
    (void)state;
    static const char *const lines[] = {"3", "set lr 1", "2", "set lr 4e-5", "3", "set weight_decay 0.1", "4", "set lr 0.0",
                                        "5", "undo",     "6", "stop",        NULL};
    assert_int_equal(open_with(lines), 0);
    struct zf_wire w = client();
    expect_answer(&w, "at 1 set clip_norm 5", "ok: before step 1");
    expect_answer(&w, "at 7 set lr 7e-5", "ok: before step 7");
    expect_answer(&w, "at 4 status", "no: only answers");
    expect_answer(&w, "at 4 watch m", "no: cannot be put off");
    expect_answer(&w, "at 4 at 5 pause", "no: command alone");
    expect_answer(&w, "at 4 set lr 100", "no? nothing was planned");
    assert_true(train(4));
    expect_answer(&w, "at 4 pause", "no: step 4 is issued already");
    assert_false(train(10));
    assert_int_equal(t.step, 5);
    const double expected[] = {0, 2e-5, 4e-5, 1, 1, 1};
    for (int i = 1; i <= 5; i++) assert_float_equal(t.learning_rate_at[i], expected[i], 0);
    assert_float_equal(t.o.clip_norm, 5, 0);
    assert_float_equal(t.o.weight_decay, 0.01, 0); /* undone */
    bool warned = false;
    for (size_t i = 0; i < json_array_size(t.lines); i++)
        warned |= !strcmp(json_string_value(json_object_get(json_array_get(t.lines, i), "type")), "warning");
    assert_true(warned); /* the refused one of step 4 */
    zf_wire_close(&w);
}

/* What an option is going to be, in `show --json`. */
static void expect_pending(struct zf_wire *w, const char *option, const char *expected)
{
    ask(w, 7, "show --json");
    char *said = answer(w, 7), *is = NULL;
    json_t *all = json_loads(said + 4, 0, NULL);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *row = json_array_get(all, i), *pending = json_object_get(row, "pending");
        if (!strcmp(json_string_value(json_object_get(row, "name")), option)) is = pending ? json_dumps(pending, JSON_COMPACT) : strdup("");
    }
    assert_string_equal(is, expected);
    free(is);
    free(said);
    json_decref(all);
}

static void put_off(void **state)
{
    (void)state;
    static const char *const lines[] = {"40", "set clip_norm 2 lr x0.5", "3", "export", NULL};
    assert_int_equal(open_with(lines), 0);
    struct zf_wire w = client();
    expect_pending(&w, "clip_norm", "[{\"from_step\":40,\"value\":\"2\"}]");
    expect_pending(&w, "learning_rate", "[{\"from_step\":40,\"value\":\"x0.5\"}]");
    expect_pending(&w, "weight_decay", "");
    expect_answer(&w, "history", "ok: step 3  put off: export  (");
    expect_answer(&w, "status", "ok: 2 commands put off");
    expect_answer(&w, "at 5 set clip_norm 3", "ok: before step 5");
    expect_text_of(json_array_get(t.lines, 0), "text", "put off until step 5: set clip_norm 3"); /* others hear of it */
    expect_answer(&w, "show clip_norm", "ok: clip_norm            1 -> 3 at step 5, 2 at step 40");
    expect_answer(&w, "show", "ok: 1 -> 3 at step 5, 2 at step 40");
    expect_answer(&w, "history", "ok: step 5  put off: set clip_norm 3  (anna, send)");
    assert_true(train(6));
    expect_pending(&w, "clip_norm", "[{\"from_step\":40,\"value\":\"2\"}]");
    expect_answer(&w, "history", "ok: step 5  clip_norm 1 -> 3  (anna, at)\nstep 40  put off: set clip_norm 2 lr x0.5  (");
    expect_answer(&w, "status", "ok: 1 change, 1 command put off");
    assert_true(train(41));
    expect_pending(&w, "clip_norm", "");
    expect_answer(&w, "status", "ok: 2 changes, 0 commands put off");
    zf_wire_close(&w);
}

static void source(void **state)
{
    (void)state;
    char command[300];
    struct zf_wire w = client();
    write_text("script", "# a comment\n\n  set lr 3e-5\r\nmark half\nset lr 0\nset lr 4e-5\n");
    snprintf(command, sizeof command, "source %s", at("script"));
    expect_answer(&w, command, "no: script:5: ");
    assert_float_equal(t.o.learning_rate, 3e-5, 0);
    write_text("script", "set lr 4e-5\n");
    expect_answer(&w, command, "ok: 1 command of");
    assert_float_equal(t.o.learning_rate, 4e-5, 0);
    write_text("script", command); /* itself */
    expect_answer(&w, command, "no: more than 4 deep");
    expect_once(&w, command, "script:1: ");
    expect_answer(&w, "source /nowhere/x", "no: No such file");
    zf_wire_close(&w);
}

static void journal_that_cannot_be_written(void **state)
{
    (void)state;
    struct zf_wire w = client();
    struct rlimit old, none;
    expect_answer(&w, "set lr 3e-5", "ok: 3e-5");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none = old;
    none.rlim_cur = 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    expect_answer(&w, "set lr 4e-5", "no: training goes on");
    expect_answer(&w, "mark x", "no: cannot be written down");
    assert_float_equal(t.o.learning_rate, 3e-5, 0);
    assert_true(train(5));
    expect_answer(&w, "pause", "ok: not written down");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    expect_answer(&w, "set lr 4e-5", "ok: 3e-5 -> 4e-5");
    zf_wire_close(&w);
}

static void two_clients_see_the_same(void **state)
{
    (void)state;
    static const char start[] = "{\"type\":\"start\",\"model\":\"m\"}\n", lanes[] = "{\"type\":\"lanes\"}\n";
    zf_session_publish(t.session, start, sizeof start - 1);
    zf_session_publish(t.session, lanes, sizeof lanes - 1);
    struct zf_wire a = client(), b = client();
    json_t *o = next_with(&a, "model", 2);
    assert_non_null(o);
    json_decref(o);
    expect_answer(&a, "set lr 3e-5", "ok: 3e-5");
    expect_answer(&b, "mark seen by both", "ok: marked");
    o = next_with(&a, "text", 2);
    expect_text_of(o, "text", "seen by both");
    json_decref(o);
    struct zf_wire late = client(); /* what came before it, first of all `start`, and no lanes */
    char *line;
    size_t size;
    while (zf_wire_line(&late, &line, &size) != ZF_WIRE_LINE) assert_int_equal(zf_wire_wait(&late, 2), ZF_WIRE_OK);
    assert_non_null(strstr(line, "\"start\""));
    while (zf_wire_line(&late, &line, &size) != ZF_WIRE_LINE) assert_int_equal(zf_wire_wait(&late, 2), ZF_WIRE_OK);
    assert_non_null(strstr(line, "\"change\""));
    assert_int_equal(zf_session_clients(t.session), 3);
    zf_wire_close(&a);
    zf_wire_close(&b);
    zf_wire_close(&late);
}

static void garbage(void **state)
{
    (void)state;
    struct zf_wire w = client(), good = client();
    static const char *const lines[] = {"hello\n",
                                        "[]\n",
                                        "{}\n",
                                        "{\"id\":1}\n",
                                        "{\"id\":{},\"command\":\"status\"}\n",
                                        "\xff\xfe\n",
                                        "{\"id\":1,\"command\":5}\n",
                                        "{\"id\":1,\"id\":2,\"command\":\"status\"}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_true(zf_wire_queue(&w, lines[i], strlen(lines[i]), 0));
        assert_int_equal(zf_wire_flush(&w), ZF_WIRE_OK);
        json_t *o = next_with(&w, "ok", 2);
        assert_true(o && json_is_false(json_object_get(o, "ok")));
        json_decref(o);
    }
    expect_answer(&w, "status", "ok: step"); /* it is forgiven */
    int sent = 0;
    while (sent < 1000 && zf_wire_queue(&w, "x\n", 2, 0) && !zf_wire_flush(&w)) sent++;
    while (!zf_wire_wait(&w, 2)) continue; /* dropped */
    expect_answer(&good, "status", "ok: step");
    zf_wire_close(&w);
    zf_wire_close(&good);
}

/* A gigabyte without a newline, as fast as it goes. */
static void *flood(void *arg)
{
    struct zf_wire *w = arg;
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    uint64_t sent = 0;
    int flags = fcntl(w->fd, F_GETFL);
    fcntl(w->fd, F_SETFL, flags & ~O_NONBLOCK);
    while (sent < (UINT64_C(1) << 30)) {
        ssize_t n = send(w->fd, block, sizeof block, MSG_NOSIGNAL);
        if (n <= 0) break; /* dropped */
        sent += (uint64_t)n;
    }
    fcntl(w->fd, F_SETFL, flags);
    return NULL;
}

static void a_line_without_end(void **state)
{
    (void)state;
    struct zf_wire bad = client(), good = client();
    struct rusage before, after;
    pthread_t thread;
    getrusage(RUSAGE_SELF, &before);
    double from = zf_clock();
    pthread_create(&thread, NULL, flood, &bad);
    assert_true(train(100));
    expect_answer(&good, "set lr 3e-5", "ok: 3e-5");
    pthread_join(thread, NULL);
    assert_true(zf_clock() - from < 5);
    json_t *o = next_with(&bad, "ok", 2);
    assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "longer than 64 KiB"));
    json_decref(o);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 << 10);
    zf_wire_close(&bad);
    zf_wire_close(&good);
}

static void a_client_that_does_not_read(void **state)
{
    (void)state;
    static char line[20000];
    struct zf_wire deaf = client(), good = client();
    memset(line, ' ', sizeof line);
    memcpy(line, "{\"type\":\"step\"", 14);
    line[sizeof line - 2] = '}';
    line[sizeof line - 1] = '\n';
    double from = zf_clock();
    for (int i = 0; i < 1500; i++) { /* 30 MB */
        assert_true(train(t.step < 900 ? t.step + 1 : t.step));
        zf_session_publish(t.session, line, sizeof line);
        for (int k = 0; i % 10 == 9 && k < 10; k++) json_decref(next_with(&good, "type", 0.5)); /* lines come in bunches */
    }
    assert_true(zf_clock() - from < 10);
    expect_answer(&good, "status", "ok: step");
    json_t *o = next_with(&deaf, "lost", 5); /* now it reads */
    assert_non_null(o);
    assert_true(json_integer_value(json_object_get(o, "lost")) > 100);
    json_decref(o);
    expect_answer(&deaf, "status", "ok: step");
    zf_wire_close(&deaf);
    zf_wire_close(&good);
}

static void answers_that_do_not_fit(void **state)
{
    (void)state;
    struct zf_wire deaf = client(), good = client();
    int sent = 0;
    /* asks for 1 MB of help a thousand times and never reads */
    while (sent < 3000 && zf_wire_queue(&deaf, "{\"id\":1,\"command\":\"help --json\"}\n", 33, 0) && !zf_wire_flush(&deaf)) sent++;
    double from = zf_clock();
    expect_answer(&good, "status", "ok: step");
    assert_true(zf_clock() - from < 2);
    zf_wire_close(&deaf);
    zf_wire_close(&good);
}

static void slow_and_closed(void **state)
{
    (void)state;
    struct zf_wire slow = client(), gone = client(), good = client();
    const char *text = "{\"id\":7,\"command\":\"status\"}\n";
    for (const char *c = text; *c; c++) {
        assert_true(zf_wire_queue(&slow, c, 1, 0));
        assert_int_equal(zf_wire_flush(&slow), ZF_WIRE_OK);
        if (c - text == 10) expect_answer(&good, "status", "ok: step");
        usleep(500);
    }
    json_t *o = next_with(&slow, "ok", 2);
    assert_int_equal(json_integer_value(json_object_get(o, "id")), 7);
    json_decref(o);
    ask(&gone, 1, "set lr 3e-5");
    zf_wire_close(&gone); /* before its answer: it is carried out all the same */
    usleep(50000);
    assert_true(train(3));
    assert_float_equal(t.o.learning_rate, 3e-5, 0);
    ask(&slow, 2, "set lr 4e-5");
    shutdown(slow.fd, SHUT_WR); /* sends no more, but reads */
    usleep(50000);
    char *said = answer(&slow, 2);
    assert_memory_equal(said, "ok", 2);
    free(said);
    zf_wire_close(&slow);
    zf_wire_close(&good);
}

static void many_clients(void **state)
{
    (void)state;
    enum { MANY = 40 };
    struct zf_wire w[MANY];
    for (int i = 0; i < MANY; i++) w[i] = client();
    expect_answer(&w[31], "status", "ok: step");
    json_t *o = next_with(&w[MANY - 1], "ok", 2);
    assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "32 clients"));
    json_decref(o);
    for (int i = 0; i < 10; i++) zf_wire_close(&w[i]);
    usleep(50000);
    struct zf_wire late = client();
    expect_answer(&late, "status", "ok: step");
    zf_wire_close(&late);
    for (int i = 10; i < MANY; i++) zf_wire_close(&w[i]);
}

static void more_commands_than_are_carried_out(void **state)
{
    (void)state;
    struct zf_wire w = client();
    unsigned refused = 0;
    for (int i = 0; i < 200; i++) ask(&w, i, "mark x");
    for (int i = 0; i < 200 - 128; i++) {
        json_t *o = next_with(&w, "ok", 2);
        assert_non_null(o);
        refused += !!strstr(json_string_value(json_object_get(o, "text")), "too many commands");
        json_decref(o);
    }
    assert_int_equal(refused, 200 - 128);
    assert_true(train(1));
    free(answer(&w, 127));
    zf_wire_close(&w);
}

static void by_itself(void **state)
{
    (void)state;
    struct zf_err e;
    assert_true(train(8));
    assert_int_equal(zf_session_decided(t.session, ZF_OPT_update_interval, 4, 6, json_pack("{sf}", "cpu_ms", 12.5), false, &e), ZF_OK);
    json_t *v = journal_entry(0);
    expect_text_of(v, "by", "auto");
    expect_text_of(v, "command", "set! update_interval 6");
    assert_int_equal(json_integer_value(json_object_get(v, "from_step")), t.step);
    assert_non_null(json_object_get(json_object_get(v, "why"), "cpu_ms"));
    json_decref(v);
    assert_int_equal(t.o.update_interval, 4); /* the option stays what it is */
}

#define S(name) cmocka_unit_test_setup_teardown(name, open_session, close_session)

int main(void)
{
    const struct CMUnitTest tests[] = {S(a_change),
                                       S(questions_and_refusals),
                                       S(undo),
                                       S(pause_and_step),
                                       S(idle_ends_a_pause),
                                       S(answered_later),
                                       S(source),
                                       S(journal_that_cannot_be_written),
                                       S(two_clients_see_the_same),
                                       S(garbage),
                                       S(a_line_without_end),
                                       S(a_client_that_does_not_read),
                                       S(answers_that_do_not_fit),
                                       S(slow_and_closed),
                                       S(many_clients),
                                       S(more_commands_than_are_carried_out),
                                       S(by_itself),
                                       cmocka_unit_test_setup_teardown(what_would_be_lost_is_asked, make_root, close_session),
                                       cmocka_unit_test_setup_teardown(put_off, make_root, close_session),
                                       cmocka_unit_test_setup_teardown(scripted, make_root, close_session)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
