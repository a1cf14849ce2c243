/* What is read of a checkpoint beside its tensors, and of the journal: what counts after a run was taken back and forth; and anything at
 * all in them, which is refused or left aside, never more. */
#include "core/base/rng.h"
#include "core/config/options.h"
#include "core/run/content.h"
#include "core/run/trainer.h"
#include "core/session/change.h"

#include "tests/run/support.h"

#include <fcntl.h>

static struct zf_options options;

static void set_options(struct zf_options *o)
{
    static const char *const given[] = {"family=llama", "layers=1",  "hidden=32", "heads=2",
                                        "train=x.txt",  "steps=100", "lr=1e-3",   "strategy=zenflow"};
    ok(zf_options_init(o, &e));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) ok(zf_options_set_argument(o, given[i], &e));
}

static json_t *info_of(uint64_t step, const char *run_cfg)
{
    return json_pack("{ss sI sI ss ss s{sI sI sI sI sb sb sI sf sb s{sf sI sI sI ss}} s{sI s[ss] s[{ss ss ss sb}]} s{sI sf s[]} s{ss ss}}",
                     "run", "abc", "step", (json_int_t)step, "steps", (json_int_t)100, "time", now_text(), "run_cfg", run_cfg, "trainer",
                     "skipped", (json_int_t)1, "in_row", (json_int_t)0, "clipped", (json_int_t)2, "drains", (json_int_t)1, "owed", 0,
                     "told_zero_loss", 0, "update_interval", (json_int_t)4, "seconds", 3.5, "judged", 1, "best", "loss", 2.5, "step",
                     (json_int_t)2, "worse", (json_int_t)1, "kept", (json_int_t)2, "path", "x", "session", "begun", (json_int_t)step + 1,
                     "undo", "set lr 1", "set clip_norm 2", "due", "command", "set lr 2e-3", "by", "at", "user", "anna", "written", 0,
                     "pipeline", "step", (json_int_t)step, "last_clip", 1.0, "matrices", "machine", "instructions", "x", "products", "y");
}

/* ---- what counts ---- */

static void change(uint64_t from, const char *command)
{
    write_entry(json_pack("{ss sI sI ss ss ss}", "type", "change", "step", (json_int_t)from - 1, "from_step", (json_int_t)from, "command",
                          command, "by", "send", "user", "anna"));
}

static const char *const name = "run/checkpoints/step-%08u.zfc";

static void checkpoint(unsigned step, const char *run_cfg)
{
    char path[128];
    snprintf(path, sizeof path, name, step);
    write_checkpoint(path, info_of(step, run_cfg));
    write_entry(json_pack("{ss sI ss}", "type", "checkpoint", "step", (json_int_t)step, "file", at(path)));
}

static void load(unsigned step, unsigned journal)
{
    char path[128];
    snprintf(path, sizeof path, name, step);
    write_entry(json_pack("{ss sI ss sI ss}", "type", "resume", "step", (json_int_t)step, "checkpoint", at(path), "journal",
                          (json_int_t)journal, "command", "load"));
}

static const char *commands_of(const struct zf_resume *r)
{
    static char text[512];
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(r->entries); i++) {
        const char *c = json_string_value(json_object_get(json_array_get(r->entries, i), "command"));
        if (c) sprintf(text + strlen(text), "%s%s", *text ? ", " : "", c);
    }
    return text;
}

/* Entries: 0 start, 1 a, 2 checkpoint 2, 3 b, 4 checkpoint 4, 5 c, ... */
static void what_counts(void **state)
{
    (void)state;
    struct zf_resume r;
    struct zf_options o;
    char *text = zf_options_text(&options);
    write_start();
    change(1, "a");
    checkpoint(2, text);
    change(3, "b");
    checkpoint(4, text);
    change(5, "c");
    load(2, 2);
    change(3, "d");
    write_entry(json_pack("{ss sI ss ss}", "type", "resume", "step", (json_int_t)2, "asked", text, "run_cfg", text));
    ok(zf_options_copy(&o, &options, &e));
    ok(zf_resume_open(&r, &o, at("run"), NULL, &e));
    assert_int_equal(r.step, 2);
    assert_int_equal(r.attempt, 3); /* a load begins none */
    assert_int_equal(r.last_step, 2);
    assert_int_equal(r.written, 2);
    assert_string_equal(commands_of(&r), "a, d");
    zf_resume_close(&r);
    load(4, 4); /* forward, to what had been left: with what was done before that was written, and nothing else */
    ok(zf_resume_open(&r, &o, at("run"), NULL, &e));
    assert_int_equal(r.step, 4);
    assert_string_equal(commands_of(&r), "a, b");
    zf_resume_close(&r);
    change(5, "e");
    ok(zf_resume_open(&r, &o, at("run"), NULL, &e));
    assert_string_equal(commands_of(&r), "a, b, e");
    zf_resume_close(&r);
    struct zf_options wanted;
    ok(zf_resume_load(&r, &wanted, &options, at("run"), at("run/checkpoints/step-00000002.zfc"), &e));
    assert_string_equal(commands_of(&r), "a");
    assert_int_equal(r.attempt, 2);
    zf_options_free(&wanted);
    zf_resume_close(&r);
    zf_options_free(&o);
    free(text);
}

/* The options of then, but for what only a start changes; what makes the run what it is must be the same. */
static void options_of_then(void **state)
{
    (void)state;
    struct zf_resume r;
    struct zf_options then, wanted;
    static const struct {
        const char *argument;
        bool refused, taken;
        enum zf_option_id id;
    } cases[] = {{"lr=5e-3", false, true, ZF_OPT_learning_rate},
                 {"keep=7", false, true, ZF_OPT_keep},
                 {"threads=5", false, false, ZF_OPT_threads},
                 {"steps=70", false, true, ZF_OPT_steps},
                 {"patience=5", false, false, ZF_OPT_patience},
                 {"hidden=64", true, false, ZF_OPT_hidden},
                 {"seed=9", true, false, ZF_OPT_seed}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_options(&then);
        ok(zf_options_set_argument(&then, cases[i].argument, &e));
        char *text = zf_options_text(&then), *was = zf_options_get_text(&then, cases[i].id),
             *is = zf_options_get_text(&options, cases[i].id);
        write_start();
        checkpoint(4, text);
        enum zf_status s = zf_resume_load(&r, &wanted, &options, at("run"), at("run/checkpoints/step-00000004.zfc"), &e);
        assert_int_equal(s, cases[i].refused ? ZF_DIFFERENT : ZF_OK);
        if (!s) {
            char *got = zf_options_get_text(&wanted, cases[i].id);
            assert_string_equal(got, cases[i].taken ? was : is);
            free(got);
            zf_options_free(&wanted);
            zf_resume_close(&r);
        }
        free(text);
        free(was);
        free(is);
        zf_options_free(&then);
    }
}

/* ---- anything at all ---- */

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    return zf_philox(7, ZF_STREAM_TEST, drawn++).v[0] % below;
}

static json_t *anything(void)
{
    static const char *const texts[] = {
        "", "\n", "set lr 1", "steps = 7", "[train]\nsteps = -1\n", "/", "..", "step-00000004.zfc", "2026-99-99T", "nan", "load 4"};
    switch (draw(9)) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_integer(-1);
    case 3: return json_integer(INT64_MAX);
    case 4: return json_integer(draw(100));
    case 5: return json_real(draw(2) ? 1e300 : -0.5);
    case 6: return json_array();
    case 7: return json_object();
    default: return json_string(texts[draw(sizeof texts / sizeof *texts)]);
    }
}

/* One member, however deep: another value, or gone. */
static void damage(json_t *o)
{
    if (json_is_array(o)) {
        size_t n = json_array_size(o), i = n ? draw((uint32_t)n) : 0;
        json_t *x = json_array_get(o, i);
        if (!n)
            json_array_append_new(o, anything());
        else if (json_is_object(x) && draw(4))
            damage(x);
        else
            json_array_set_new(o, i, anything());
        return;
    }
    size_t n = json_object_size(o), i = n ? draw((uint32_t)n) : 0;
    void *at_member = json_object_iter(o);
    while (i-- && at_member) at_member = json_object_iter_next(o, at_member);
    if (!at_member) return;
    char key[64];
    snprintf(key, sizeof key, "%s", json_object_iter_key(at_member));
    json_t *x = json_object_iter_value(at_member);
    if ((json_is_object(x) || json_is_array(x)) && draw(4))
        damage(x);
    else if (draw(6))
        json_object_set_new(o, key, anything());
    else
        json_object_del(o, key);
}

static void read_all(struct zf_journal *journal)
{
    struct zf_resume r;
    struct zf_options o, wanted;
    struct zf_trainer t = {0};
    struct zf_session *s;
    char *list = zf_saves_list(at("run"));
    free(list);
    ok(zf_options_copy(&o, &options, &e));
    t.o = &o;
    if (!zf_resume_open(&r, &o, at("run"), NULL, &e)) {
        if (r.path || r.anew) {
            ok(zf_resume_counters(&r, &t, &e));
            ok(zf_session_open(&s, at("run"), &o, journal, &(struct zf_session_trainer){0}, &e));
            t.session = s;
            zf_resume_commands(&r, &t, &e);
            zf_session_close(s);
            zf_pace_close(&t);
            free(t.best.path);
        }
        zf_resume_close(&r);
    }
    if (!zf_resume_load(&r, &wanted, &options, at("run"), at("run/checkpoints/step-00000004.zfc"), &e)) {
        zf_options_free(&wanted);
        zf_resume_close(&r);
    }
    zf_options_free(&o);
}

static void anything_is_survived(void **state)
{
    (void)state;
    enum { TURNS = 200 };
    char *text = zf_options_text(&options);
    int quiet = open("/dev/null", O_WRONLY), was = dup(2);
    for (int turn = 0; turn < TURNS; turn++) {
        struct zf_journal *journal;
        json_t *info = info_of(4, text), *entry;
        if (draw(3)) json_object_set_new(info, "journal", json_integer(draw(8)));
        for (uint32_t n = draw(4); n; n--) damage(info);
        write_start();
        write_checkpoint("run/checkpoints/step-00000004.zfc", info);
        const char *const lines[] = {
            "{\"type\":\"start\",\"run\":\"abc\",\"asked\":\"\",\"run_cfg\":\"\"}",
            "{\"type\":\"change\",\"step\":4,\"from_step\":5,\"command\":\"set lr "
            "1e-4\",\"by\":\"send\",\"user\":\"a\",\"changes\":[{\"option\":\"lr\",\"new\":2}]}",
            "{\"type\":\"at\",\"step\":4,\"from_step\":9,\"command\":\"set lr 1e-4\",\"by\":\"send\",\"user\":\"a\"}",
            "{\"type\":\"checkpoint\",\"step\":4,\"file\":\"a/step-00000004.zfc\"}",
            "{\"type\":\"resume\",\"step\":4,\"checkpoint\":\"a/step-00000004.zfc\",\"attempt\":2,\"edited\":[\"lr\"],\"edits\":\"set lr "
            "1\"}",
            "{\"type\":\"resume\",\"step\":4,\"checkpoint\":\"a/step-00000004.zfc\",\"journal\":2,\"command\":\"load 4\",\"reached\":7}",
        };
        for (uint32_t n = draw(8); n; n--) {
            assert_non_null(entry = json_loads(lines[draw(sizeof lines / sizeof *lines)], 0, NULL));
            if (draw(2)) damage(entry);
            write_entry(entry);
        }
        ok(zf_journal_open(&journal, at("run"), &e));
        dup2(quiet, 2);
        read_all(journal);
        dup2(was, 2);
        zf_journal_close(journal);
    }
    close(quiet);
    close(was);
    free(text);
}

/* ---- what the data was ---- */

/* Of made-up files, with nothing that makes tokens of them. */
static void content(const json_t *then, const char *refusal)
{
    struct zf_rows train = {.rows = 743, .content = 7, .stats = {.tokens = 9000}}, valid = {.rows = 5, .content = 8};
    const struct zf_setup s = {.o = &options, .all = {.store = &train}, .valid = {.store = &valid}};
    assert_int_equal(zf_content_check(&s, then, &e), refusal ? ZF_DIFFERENT : ZF_OK);
    if (!refusal) return;
    assert_string_equal(e.where, "data");
    if (!strstr(e.message, refusal)) fail_msg("%s, without %s", e.message, refusal);
}

static void content_is_compared(void **state)
{
    (void)state;
    static const struct {
        const char *then, *refusal;
    } cases[] = {
        {"{}", NULL},
        {"[]", NULL},
        {"{\"tokenizer\": \"ab\"}", NULL},
        {"{\"train\": {\"rows\": 743, \"tokens\": 9000, \"xxh3\": \"0000000000000007\"}}", NULL},
        {"{\"train\": {\"rows\": 743, \"tokens\": 9000, \"xxh3\": \"0000000000000006\"}}",
         "x.txt is not what the run began with (the content differs): put it back"},
        {"{\"train\": {\"rows\": 1113, \"tokens\": 9999, \"xxh3\": \"0000000000000006\"}}",
         "(1113 rows then, 743 now; the content differs)"},
        {"{\"valid\": {\"rows\": 4, \"tokens\": 0, \"xxh3\": \"0000000000000008\"}}", "(4 rows then, 5 now; the content differs)"},
        {"{\"train\": 3}", "differs"},
        {"{\"train\": {\"rows\": -1e300}}", "differs"},
    };
    content(NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *then = json_loads(cases[i].then, 0, NULL);
        assert_non_null(then);
        content(then, cases[i].refusal);
        json_decref(then);
    }
}

/* The checkpoint's counts; where it does not say, the newest start's; where neither does, they are of a version that did not keep it. */
static void content_is_remembered(void **state)
{
    (void)state;
    struct zf_resume r;
    struct zf_options o;
    char *text = zf_options_text(&options);
    static const char *const cases[][3] = {{NULL, NULL, NULL}, {"a", NULL, "a"}, {NULL, "b", "b"}, {"a", "b", "b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *info = info_of(2, text);
        write_start();
        write_entry(json_pack("{ss sI ss ss ss*}", "type", "resume", "step", (json_int_t)0, "asked", text, "run_cfg", text, "content",
                              cases[i][0]));
        if (cases[i][1]) json_object_set_new(info, "content", json_string(cases[i][1]));
        write_checkpoint("run/checkpoints/step-00000002.zfc", info);
        ok(zf_options_copy(&o, &options, &e));
        ok(zf_resume_open(&r, &o, at("run"), NULL, &e));
        const char *found = json_string_value(r.content);
        assert_true(found ? cases[i][2] && !strcmp(found, cases[i][2]) : !cases[i][2]);
        zf_resume_close(&r);
        zf_options_free(&o);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(what_counts), T(options_of_then), T(content_is_compared), T(content_is_remembered),
                                       T(anything_is_survived)};
    set_options(&options);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    zf_options_free(&options);
    return failed;
}
