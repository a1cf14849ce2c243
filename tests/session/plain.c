/* P104: the lines of --plain. */
#include "tests/session/support.h"

#include "core/telemetry/plain.h"

#include <fcntl.h>
#include <math.h>

static const struct zf_plain_step ordinary = {.step = 41,
                                              .steps = 100,
                                              .loss = 2.91449,
                                              .norm = 0.8125,
                                              .clip = 1,
                                              .applied = true,
                                              .learning_rate = 2e-5,
                                              .tokens_per_s = 5120.4,
                                              .eta = 62};

static void expect_line(const struct zf_plain_step *s, const char *expected)
{
    char line[512];
    size_t n = zf_plain_line(line, sizeof line, s);
    assert_string_equal(line, expected);
    assert_int_equal(n, strlen(expected));
    for (size_t i = 0; i + 1 < n; i++) assert_true(line[i] >= ' ' && line[i] < 127);
}

static void the_line(void **state)
{
    (void)state;
    struct zf_plain_step s = ordinary;
    expect_line(&s, "step  41/100  loss 2.9145   norm    0.8125 -> 0.8125           lr 2e-05         5120 tok/s  ETA 1m02s\n");
    s.norm = 4;
    s.clip = 0.25;
    s.eta = -1;
    s.skipped = 2;
    expect_line(&s, "step  41/100  loss 2.9145   norm         4 -> 1       clipped  lr 2e-05         5120 tok/s  ETA --  skipped 2\n");
    s.loss = copysign(NAN, -1);
    s.norm = INFINITY;
    s.applied = false;
    expect_line(&s,
                "step  41/100  loss nan      norm       inf -> 0       (not applied)  lr 2e-05         5120 tok/s  ETA --  skipped 2\n");
    char tiny[8];
    assert_int_equal(zf_plain_line(tiny, sizeof tiny, &s), 7);
}

static void at_most_one_per_interval(void **state)
{
    (void)state;
    struct zf_plain p;
    struct zf_plain_step s = ordinary;
    int fd = open(at("out"), O_WRONLY | O_CREAT, 0600);
    zf_plain_init(&p, fd, 2);
    for (int i = 0; i <= 100; i++) { /* ten steps a second */
        s.step = (uint64_t)i + 1;
        zf_plain_step(&p, &s, 1000 + 0.1 * i, i == 100);
    }
    close(fd);
    char *text = read_text("out");
    int lines = 0;
    for (char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, 6); /* 0, 2, 4, 6, 8 s, and the last */
    assert_int_equal(strncmp(text, "step   1/", 9), 0);
    assert_non_null(strstr(text, "step 101/"));
    assert_null(strpbrk(text, "\r\033"));
    assert_int_equal(p.lost, 0);
    free(text);
}

static void other_lines(void **state)
{
    (void)state;
    struct zf_plain p;
    int fd = open(at("out"), O_WRONLY | O_CREAT, 0600);
    zf_plain_init(&p, fd, 2);
    zf_plain_text(&p, "valid %d: %s\n", 3, "\033[31mred\r\t! \xc2\x9b" "2J\x9b");
    zf_plain_text(&p, "%5000d", 1); /* cut, not overrun */
    close(fd);
    char *text = read_text("out");
    static const char shown[] = "valid 3: \\x1b[31mred  ! \\u009b2J\\x9b\n";
    assert_int_equal(strncmp(text, shown, sizeof shown - 1), 0);
    assert_true(text[strlen(text) - 1] == '\n');
    free(text);
}

static void closed_stdout_is_counted(void **state)
{
    (void)state;
    struct zf_plain p;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    zf_plain_init(&p, ends[1], 0);
    for (int i = 0; i < 3; i++) zf_plain_step(&p, &ordinary, i, false);
    zf_plain_text(&p, "x");
    assert_int_equal(p.lost, 4);
    close(ends[1]);
    int full = open("/dev/full", O_WRONLY);
    zf_plain_init(&p, full, 0);
    zf_plain_step(&p, &ordinary, 0, true);
    assert_int_equal(p.lost, 1);
    close(full);
    zf_plain_init(&p, -1, 0);
    zf_plain_step(&p, &ordinary, 0, false);
    assert_int_equal(p.lost, 1);
}

/* `| less` that nobody scrolls: the pipe is full, training goes on. */
static void a_reader_that_stopped(void **state)
{
    (void)state;
    struct zf_plain p;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    zf_plain_init(&p, ends[1], 0);
    for (int i = 0; i < 5000; i++) zf_plain_step(&p, &ordinary, i, false);
    assert_true(p.lost > 0 && p.lost < 5000);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(the_line), T(at_most_one_per_interval), T(other_lines), T(closed_stdout_is_counted),
                                       T(a_reader_that_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
