/* status, list, log: from files alone. */
#include "tests/session/support.h"

#include "core/base/json.h"
#include "core/session/inspect_run.h"
#include "core/session/lock.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define START \
    "{\"type\":\"start\",\"run\":\"0123456789abcdef\",\"model\":\"m\",\"data\":\"d\",\"seed\":\"1\",\"steps\":100,\"time\":\"2025-01-" \
    "31T12:00:00.000Z\"}\n"
#define END \
    "{\"type\":\"export\",\"step\":4,\"file\":\"exports/" \
    "step-00000004\",\"time\":\"x\"}\n{\"type\":\"end\",\"reason\":\"stopped\",\"step\":4,\"time\":\"2025-01-31T12:05:00.000Z\"}\n"
#define STEP(n, loss) \
    "{\"type\":\"step\",\"step\":" #n ",\"time\":" #n ".5,\"loss\":" loss \
    ",\"grad_norm\":0.81,\"clip\":1.0,\"learning_rate\":2e-05,\"tokens\":4096,\"label_tokens\":3911,\"tokens_per_s\":5000.25,\"step_ms\":" \
    "819.2,\"busy\":{\"compute\":0.5}}\n"

/* To be freed. */
static char *log_text(enum zf_log_format format, const char *fields, enum zf_status expected, struct zf_err *e)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_int_equal(zf_log_print(f, root, format, fields, NULL, e), expected);
    fclose(f);
    return text;
}

static void expect_log(enum zf_log_format format, const char *fields, const char *expected)
{
    struct zf_err e;
    char *text = log_text(format, fields, ZF_OK, &e);
    assert_string_equal(text, expected);
    free(text);
}

#define HEAD "step,time,loss,grad_norm,clip,learning_rate,tokens,label_tokens,tokens_per_s,step_ms\n"
#define REST ",0.81,1.0,2e-05,4096,3911,5000.25,819.2\n"

static void csv(void **state)
{
    (void)state;
    write_text("metrics.jsonl",
               "{\"type\":\"start\",\"version\":\"0\"}\n" STEP(1, "0.1")
                   STEP(2, "\"nan\"") "{\"type\":\"valid\",\"step\":2,\"loss\":3.0}\n" STEP(3, "2.5") "{\"type\":\"step\",\"st");
    expect_log(ZF_LOG_CSV, NULL, HEAD "1,1.5,0.1" REST "2,2.5,nan" REST "3,3.5,2.5" REST);
    expect_log(ZF_LOG_CSV, "loss, step,busy.compute", "loss,step,busy.compute\n0.1,1,0.5\nnan,2,0.5\n2.5,3,0.5\n");
    expect_log(ZF_LOG_CSV, "step,busy",
               "step,busy\n1,\"{\"\"compute\"\":0.5}\"\n2,\"{\"\"compute\"\":0.5}\"\n3,\"{\"\"compute\"\":0.5}\"\n");
    struct zf_err e;
    size_t bad;
    FILE *f = fopen("/dev/null", "w");
    assert_int_equal(zf_log_print(f, root, ZF_LOG_TABLE, NULL, &bad, &e), ZF_OK);
    assert_int_equal(bad, 1);
    fclose(f);
}

static void later_attempt_wins(void **state)
{
    (void)state;
    write_text("metrics.jsonl", STEP(1, "1.0") STEP(2, "2.0") STEP(3, "3.0")
                                    STEP(4, "4.0") "{\"type\":\"resume\",\"step\":2,\"attempt\":2}\n" STEP(3, "3.5"));
    expect_log(ZF_LOG_CSV, "step,loss", "step,loss\n1,1.0\n2,2.0\n3,3.5\n");
    /* a resume that has not made a step yet; one without its line */
    write_text("metrics.jsonl", STEP(1, "1.0") STEP(2, "2.0") STEP(3, "3.0") "{\"type\":\"resume\",\"step\":1}\n");
    expect_log(ZF_LOG_CSV, "step,loss", "step,loss\n1,1.0\n");
    write_text("metrics.jsonl", STEP(1, "1.0") STEP(2, "2.0") STEP(3, "3.0") STEP(1, "9.0") STEP(2, "8.0"));
    expect_log(ZF_LOG_CSV, "step,loss", "step,loss\n1,9.0\n2,8.0\n");
}

static void json_and_table(void **state)
{
    (void)state;
    write_text("metrics.jsonl", STEP(1, "0.1") STEP(2, "0.30000000000000004"));
    expect_log(ZF_LOG_JSON, "step,loss", "[\n{\"step\":1,\"loss\":0.1},\n{\"step\":2,\"loss\":0.30000000000000004}\n]\n");
    write_text("metrics.jsonl", STEP(1, "0.1") STEP(20, "0.30000000000000004"));
    expect_log(ZF_LOG_TABLE, "step,loss,learning_rate",
               "     step       loss  learning_rate\n        1        0.1          2e-05\n       20        0.3          2e-05\n");
}

static void empty_and_absent(void **state)
{
    (void)state;
    struct zf_err e;
    free(log_text(ZF_LOG_CSV, NULL, ZF_USAGE, &e));
    assert_non_null(strstr(e.message, "metrics.jsonl"));
    write_text("metrics.jsonl", "");
    expect_log(ZF_LOG_CSV, NULL, HEAD);
    expect_log(ZF_LOG_JSON, NULL, "[]\n");
    expect_log(ZF_LOG_CSV, "anything", "anything\n");
    write_text("metrics.jsonl", "\x01\xff\n{}\n[]\n{\"type\":\"step\"}\n{\"type\":7,\"step\":{}}\n{\"type\":\"step\",\"step\":\"inf\"}\n{"
                                "\"type\":\"step\",\"step\":-1}");
    free(log_text(ZF_LOG_CSV, NULL, ZF_OK, &e));
    write_text("metrics.jsonl", STEP(1, "0.1"));
    free(log_text(ZF_LOG_CSV, "step,lossy", ZF_USAGE, &e));
    assert_non_null(strstr(e.message, "\"lossy\"; there are type, step, time, loss"));
    free(log_text(ZF_LOG_CSV, " ,", ZF_USAGE, &e));
}

static char *status_text(bool json)
{
    struct zf_err e;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (zf_status_print(f, root, json, &e)) fail_msg("%s: %s", e.where, e.message);
    fclose(f);
    return text;
}

static json_t *status_json(void)
{
    struct zf_err e;
    json_t *v;
    char *text = status_text(true);
    assert_int_equal(zf_json_parse(&v, text, strlen(text), "status", &e), ZF_OK);
    free(text);
    return v;
}

static void expect_field(const char *key, const char *expected)
{
    json_t *v = status_json();
    char *s = json_dumps(json_object_get(v, key), JSON_ENCODE_ANY);
    if (!s || strcmp(s, expected)) fail_msg("%s is %s, not %s", key, s ? s : "absent", expected);
    free(s);
    json_decref(v);
}

static void status(void **state)
{
    (void)state;
    struct zf_err e;
    FILE *f = fopen("/dev/null", "w");
    assert_int_equal(zf_status_print(f, root, false, &e), ZF_USAGE);
    assert_int_equal(zf_status_print(f, at("absent"), false, &e), ZF_USAGE);
    fclose(f);
    write_text("journal.jsonl", START);
    expect_field("state", "\"died\""); /* no lock, no end, no metrics */
    expect_field("loss", "null");
    expect_field("step", "0");
    write_text("metrics.jsonl", STEP(3, "2.5") STEP(4, "\"nan\"") "{\"type\":\"valid\",\"step\":4,\"loss\":3.25}\n{\"to");
    expect_field("step", "4");
    expect_field("steps", "100");
    expect_field("loss", "\"nan\"");
    expect_field("valid_loss", "3.25");
    expect_field("tokens_per_s", "5000.25");
    expect_field("alive", "false");
    expect_field("note", "\"the trainer ended without a clean stop at step 4\"");
    write_text("journal.jsonl", START END);
    expect_field("state", "\"stopped\"");
    expect_field("last_export", "\"exports/step-00000004\"");
    expect_field("note", "null");
    expect_field("last_checkpoint", "null");
    write_text("journal.jsonl", START "{\"type\":\"checkpoint\",\"step\":4,\"file\":\"checkpoints/step-00000004.zfc\"}\n" END);
    expect_field("last_checkpoint", "\"checkpoints/step-00000004.zfc\"");
    expect_field("note", "\"the same run.cfg goes on from its newest checkpoint\"");
    char *text = status_text(false);
    assert_non_null(strstr(text, "  last_save      checkpoints/step-00000004.zfc\n"));
    assert_non_null(strstr(text, "  state          stopped\n  step           4 of 100\n  loss           nan\n"));
    assert_non_null(strstr(text, "exports/step-00000004"));
    free(text);
}

static void status_of_the_living_and_the_dead(void **state)
{
    (void)state;
    int ends[2];
    char c;
    write_text("journal.jsonl", START);
    write_text("metrics.jsonl", STEP(3, "2.5"));
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        struct zf_err e;
        struct zf_lock *l;
        const struct zf_lock_options o = {.memory_limit = 1 << 30};
        if (zf_lock_acquire(&l, root, &o, NULL, 0, &e) || write(ends[1], "x", 1) != 1) _exit(1);
        alarm(20); /* should the test fail before it kills us */
        for (;;) pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &c, 1), 1);
    close(ends[0]);
    char pid[32];
    snprintf(pid, sizeof pid, "%ld", (long)child);
    expect_field("alive", "true");
    expect_field("state", "\"running\"");
    expect_field("pid", pid);
    char *text = status_text(false);
    assert_non_null(strstr(text, "running: pid "));
    free(text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    expect_field("alive", "false");
    expect_field("state", "\"died\"");
    text = status_text(false);
    assert_non_null(strstr(text, "ended without a clean stop at step 3; peak memory"));
    assert_non_null(strstr(text, "of a limit of 1.00 GiB"));
    free(text);
}

static void list(void **state)
{
    (void)state;
    struct zf_err e;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_int_equal(zf_list_print(f, at("absent"), false, &e), ZF_OK);
    fclose(f);
    assert_non_null(strstr(text, "no runs in "));
    free(text);
    mkdir(at("b"), 0700);
    mkdir(at("a"), 0700);
    mkdir(at("foreign"), 0700);
    write_text("foreign/x", "");
    write_text("file", "");
    write_text("a/journal.jsonl", START END);
    write_text("b/journal.jsonl", START);
    write_text("b/metrics.jsonl", STEP(3, "2.5"));
    f = open_memstream(&text, &size);
    assert_int_equal(zf_list_print(f, root, false, &e), ZF_OK);
    fclose(f);
    assert_string_equal(text, "run                      state             step       loss  last entry\n"
                              "a                        stopped          4/100          -  2025-01-31T12:05:00.000Z\n"
                              "b                        died             3/100     2.5000  2025-01-31T12:00:00.000Z\n");
    free(text);
    f = open_memstream(&text, &size);
    assert_int_equal(zf_list_print(f, root, true, &e), ZF_OK);
    fclose(f);
    json_t *v;
    assert_int_equal(zf_json_parse(&v, text, size, "list", &e), ZF_OK);
    assert_int_equal(json_array_size(v), 2);
    json_decref(v);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(csv), T(later_attempt_wins), T(json_and_table), T(empty_and_absent), T(status), T(status_of_the_living_and_the_dead), T(list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
