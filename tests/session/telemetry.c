/* P107, P108: metrics.jsonl on full disks and over torn lines; the shortest text of a number; ETA (P110). */
#include "tests/session/support.h"

#include "core/telemetry/eta.h"
#include "core/telemetry/jsonl.h"
#include "core/telemetry/metrics.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct zf_metrics *open_metrics(void)
{
    struct zf_err e;
    struct zf_metrics *m;
    assert_int_equal(zf_metrics_open(&m, at("metrics.jsonl"), &e), ZF_OK);
    return m;
}

static void write_step(struct zf_metrics *m, int step)
{
    zf_metrics_write(m, json_pack("{sssi}", "type", "step", "step", step));
}

static void expect_dump(json_t *v, const char *text)
{
    char *s = zf_jsonl_text(v, NULL);
    assert_non_null(s);
    assert_string_equal(s, text);
    free(s);
    json_decref(v);
}

static void texts(void **state)
{
    (void)state;
    expect_dump(json_pack("[f,f,f,f,f]", 0.1, 2e-5, 1.0, 1e300, -0.0), "[0.1,2e-05,1.0,1e+300,-0.0]\n");
    expect_dump(json_pack("{s:i,s:s,s:{s:b},s:[],s:n}", "a", 1, "b", "\"x\\\n\x01\xc3\xa9", "c", "d", 1, "e", "f"),
                "{\"a\":1,\"b\":\"\\\"x\\\\\\n\\u0001\xc3\xa9\",\"c\":{\"d\":true},\"e\":[],\"f\":null}\n");
    expect_dump(zf_json_real(NAN), "\"nan\"\n");
    expect_dump(zf_json_real(-INFINITY), "\"-inf\"\n");
    assert_null(zf_jsonl_text(NULL, NULL));
}

/* Every double reads back to itself. */
static void doubles(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double x, y = 0;
        uint64_t b = i % 3 ? bits : (bits & 0xffffffffu) << 29 | 0x3fe0000000000000u; /* some are floats */
        memcpy(&x, &b, sizeof x);
        if (!isfinite(x)) continue;
        json_t *v = json_real(x);
        char *s = zf_jsonl_text(v, NULL);
        json_t *back = json_loads(s, JSON_DECODE_ANY, NULL);
        assert_true(json_is_real(back));
        y = json_real_value(back);
        assert_memory_equal(&x, &y, sizeof x);
        json_decref(v);
        json_decref(back);
        free(s);
    }
}

static void lines(void **state)
{
    (void)state;
    struct zf_metrics *m = open_metrics();
    write_step(m, 1);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n"); /* it is there at once */
    write_step(m, 2);
    zf_metrics_write(m, NULL);
    assert_int_equal(zf_metrics_dropped(m), 1);
    zf_metrics_close(m);
    m = open_metrics();
    write_step(m, 3);
    assert_int_equal(zf_metrics_dropped(m), 0);
    assert_string_equal(zf_metrics_why(m), "");
    zf_metrics_close(m);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n{\"type\":\"step\",\"step\":2}\n{\"type\":\"step\",\"step\":3}\n");
    zf_metrics_write(NULL, json_null());
    assert_int_equal(zf_metrics_dropped(NULL), 0);
    zf_metrics_close(NULL);
}

static void P107_full_disk(void **state)
{
    (void)state;
    assert_int_equal(symlink("/dev/full", at("metrics.jsonl")), 0);
    struct zf_metrics *m = open_metrics();
    for (int i = 0; i < 5; i++) write_step(m, i);
    assert_int_equal(zf_metrics_dropped(m), 5);
    assert_string_equal(zf_metrics_why(m), "No space left on device");
    zf_metrics_close(m);
}

/* A file that was removed would take lines that nobody ever reads. */
static void removed(void **state)
{
    (void)state;
    struct zf_metrics *m = open_metrics();
    write_step(m, 1);
    assert_int_equal(unlink(at("metrics.jsonl")), 0);
    write_step(m, 2);
    assert_int_equal(zf_metrics_dropped(m), 1);
    assert_string_equal(zf_metrics_why(m), "No such file or directory");
    zf_metrics_close(m);
}

/* The limit strikes in the middle of a line: the part is cut off again, and when there is room lines go on. */
static void P107_short_write(void **state)
{
    (void)state;
    struct rlimit old, tight;
    struct zf_metrics *m = open_metrics();
    write_step(m, 1); /* 25 bytes */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 35;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    write_step(m, 2);
    write_step(m, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(zf_metrics_dropped(m), 2);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n");
    write_step(m, 4);
    zf_metrics_close(m);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n{\"type\":\"step\",\"step\":4}\n");
}

static void P108_torn_last_line_is_cut(void **state)
{
    (void)state;
    char *big = malloc(20000);
    memset(big, 'x', 19999);
    big[19999] = 0;
    char *text;
    assert_true(asprintf(&text, "{\"type\":\"step\",\"step\":1}\n{\"type\":\"%s", big) > 0);
    write_text("metrics.jsonl", text);
    free(text);
    free(big);
    struct zf_metrics *m = open_metrics();
    write_step(m, 2);
    zf_metrics_close(m);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n{\"type\":\"step\",\"step\":2}\n");
    write_text("metrics.jsonl", "{\"type\":\"st");
    m = open_metrics();
    write_step(m, 1);
    zf_metrics_close(m);
    expect_text("metrics.jsonl", "{\"type\":\"step\",\"step\":1}\n");
}

/* What was torn and could not be cut off is shut off by a newline. */
static void torn_part_that_stays(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_jsonl j;
    assert_int_equal(zf_jsonl_open(&j, at("x.jsonl"), &e), ZF_OK);
    assert_int_equal(write(j.fd, "{\"to", 4), 4);
    j.torn = true;
    assert_int_equal(zf_jsonl_append(&j, "{}\n", 3), 0);
    assert_int_equal(zf_jsonl_append(&j, "{}\n", 3), 0);
    zf_jsonl_close(&j);
    expect_text("x.jsonl", "{\"to\n{}\n{}\n");
}

static void a_fifo_does_not_block(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(at("metrics.jsonl"), 0600), 0);
    struct zf_metrics *m = open_metrics();
    for (int i = 0; i < 10000; i++) write_step(m, i); /* more than a pipe holds */
    assert_true(zf_metrics_dropped(m) > 0);
    zf_metrics_close(m);
}

static void reading(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_lines l;
    json_t *v;
    write_text("x.jsonl", "{\"type\":\"step\",\"step\":1}\n\nnonsense\n[1]\n{\"type\":\"valid\",\"step\":1}\n{\"type\":\"step\",\"step\":2}"
                          "\n{\"type\":\"mark\",\"text\":\"step\"}\n{\"type\":\"step\",\"st");
    assert_int_equal(zf_lines_open(&l, at("x.jsonl"), &e), ZF_OK);
    int n = 0;
    off_t second = 0;
    while ((v = zf_lines_next(&l))) {
        if (++n == 2) second = l.offset;
        json_decref(v);
    }
    assert_int_equal(n, 4);
    assert_int_equal(l.bad, 3);
    v = zf_lines_at(&l, second);
    assert_string_equal(zf_json_text(v, "type", ""), "valid");
    json_decref(v);
    assert_null(zf_lines_at(&l, 1000));
    assert_null(zf_lines_at(&l, second + 1));
    zf_lines_close(&l);
    v = zf_jsonl_last(at("x.jsonl"), "step");
    assert_int_equal((int)zf_json_number(v, "step", 0), 2);
    json_decref(v);
    assert_null(zf_jsonl_last(at("x.jsonl"), "nothing"));
    assert_null(zf_jsonl_last(at("absent"), "step"));
    assert_int_equal(zf_lines_open(&l, at("."), &e), ZF_IO);
}

/* The step stands before a block's worth of other lines. */
static void last_far_from_the_end(void **state)
{
    (void)state;
    FILE *f = fopen(at("x.jsonl"), "w");
    for (int i = 1; i <= 3; i++) fprintf(f, "{\"type\":\"step\",\"step\":%d}\n", i);
    for (int i = 0; i < 40000; i++) fprintf(f, "{\"type\":\"gpu\",\"index\":%d}\n", i);
    fclose(f);
    json_t *v = zf_jsonl_last(at("x.jsonl"), "step");
    assert_int_equal((int)zf_json_number(v, "step", 0), 3);
    json_decref(v);
}

static void numbers(void **state)
{
    (void)state;
    json_t *v = json_pack("{s:s,s:s,s:s,s:f,s:s}", "a", "nan", "b", "-inf", "c", "12", "d", 1.5, "e", "inf");
    assert_true(isnan(zf_json_number(v, "a", 0)));
    assert_true(zf_json_number(v, "b", 0) == -INFINITY && zf_json_number(v, "e", 0) == INFINITY);
    assert_true(zf_json_number(v, "c", 7) == 7 && zf_json_number(v, "d", 7) == 1.5 && zf_json_number(NULL, "d", 7) == 7);
    json_decref(v);
    v = json_pack("{s:s,s:i,s:i,s:f,s:f,s:s}", "type", "step", "step", 41, "below", -1, "small", 0.5, "huge", 1e300, "text", "12");
    assert_true(zf_json_count(v, "step") == 41 && !zf_json_count(v, "below") && !zf_json_count(v, "small"));
    assert_true(!zf_json_count(v, "huge") && !zf_json_count(v, "text") && !zf_json_count(v, "none") && !zf_json_count(NULL, "step"));
    assert_true(zf_json_is(v, "step") && !zf_json_is(v, "ste") && !zf_json_is(NULL, "step"));
    json_decref(v);
}

static void P110_eta(void **state)
{
    (void)state;
    struct zf_eta t = {0};
    for (int i = 0; i < 4; i++) zf_eta_step(&t, 2);
    assert_true(zf_eta_left(&t, 100, 0) == -1);
    zf_eta_step(&t, 2);
    assert_true(zf_eta_left(&t, 100, 0) == 200); /* resumed at 900 of 1000: what was done before does not count */
    zf_eta_step(&t, 1000);                       /* an outlier does not move a median */
    assert_true(zf_eta_left(&t, 100, 3) == 200);
    zf_eta_pause(&t, 10);
    zf_eta_pause(&t, 20);
    assert_true(zf_eta_left(&t, 100, 3) == 245);
    for (int i = 0; i < ZF_ETA_WINDOW; i++) zf_eta_step(&t, i < 10 ? 3 : 5); /* only the recent ones */
    assert_true(zf_eta_step_seconds(&t) == 4);
    char b[32];
    assert_string_equal(zf_duration_text(-1, b, sizeof b), "--");
    assert_string_equal(zf_duration_text(NAN, b, sizeof b), "--");
    assert_string_equal(zf_duration_text(59.4, b, sizeof b), "59s");
    assert_string_equal(zf_duration_text(59.6, b, sizeof b), "1m00s");
    assert_string_equal(zf_duration_text(3725, b, sizeof b), "1h02m");
    assert_string_equal(zf_duration_text(2 * 86400 + 3 * 3600, b, sizeof b), "2d03h");
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(texts),
                                       T(doubles),
                                       T(lines),
                                       T(P107_full_disk),
                                       T(removed),
                                       T(P107_short_write),
                                       T(P108_torn_last_line_is_cut),
                                       T(torn_part_that_stays),
                                       T(a_fifo_does_not_block),
                                       T(reading),
                                       T(last_far_from_the_end),
                                       T(numbers),
                                       T(P110_eta)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
