/* The journal: durable lines, reading back, a torn end. */
#include "tests/session/support.h"

#include "core/session/journal.h"

#include <sys/resource.h>
#include <sys/stat.h>

static void append(struct zf_journal *j, const char *type)
{
    struct zf_err e;
    assert_int_equal(zf_journal_append(j, json_pack("{ss}", "type", type), &e), ZF_OK);
}

static struct zf_journal *open_journal(void)
{
    struct zf_err e;
    struct zf_journal *j;
    assert_int_equal(zf_journal_open(&j, root, &e), ZF_OK);
    return j;
}

static void written_and_read(void **state)
{
    (void)state;
    struct zf_err e;
    json_t *all;
    size_t bad;
    struct zf_journal *j = open_journal();
    append(j, "start");
    append(j, "end");
    zf_journal_close(j);
    j = open_journal();
    append(j, "resume");
    zf_journal_close(j);
    zf_journal_close(NULL);
    assert_int_equal(zf_journal_read(&all, root, &bad, &e), ZF_OK);
    assert_int_equal(json_array_size(all), 3);
    assert_int_equal(bad, 0);
    const json_t *v = json_array_get(all, 2);
    assert_string_equal(json_string_value(json_object_get(v, "type")), "resume");
    const char *time = json_string_value(json_object_get(v, "time"));
    assert_int_equal(strlen(time), strlen("2025-01-31T12:00:00.123Z"));
    json_decref(all);
}

static void torn_end(void **state)
{
    (void)state;
    struct zf_err e;
    json_t *all;
    size_t bad;
    write_text("journal.jsonl", "{\"type\":\"start\"}\n{\"type\":\"en");
    assert_int_equal(zf_journal_read(&all, root, &bad, &e), ZF_OK);
    assert_int_equal(json_array_size(all), 1);
    assert_int_equal(bad, 1);
    json_decref(all);
    struct zf_journal *j = open_journal();
    append(j, "resume");
    zf_journal_close(j);
    assert_int_equal(zf_journal_read(&all, root, &bad, &e), ZF_OK);
    assert_int_equal(json_array_size(all), 2);
    assert_int_equal(bad, 0);
    json_decref(all);
}

static void refusals(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_journal *j;
    json_t *all;
    assert_int_equal(zf_journal_open(&j, at("absent"), &e), ZF_IO);
    assert_int_equal(zf_journal_read(&all, root, NULL, &e), ZF_IO);
    assert_null(all);
    j = open_journal();
    append(j, "start");
    char *before = read_text("journal.jsonl");
    assert_int_equal(zf_journal_append(j, NULL, &e), ZF_MEMORY);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = strlen(before) + 3;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    assert_int_equal(zf_journal_append(j, json_pack("{ss}", "type", "end"), &e), ZF_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    expect_text("journal.jsonl", before); /* not half of it */
    append(j, "end");
    zf_journal_close(j);
    free(before);
}

static void times(void **state)
{
    (void)state;
    char b[96];
    assert_string_equal(zf_time_text(0, b, sizeof b), "1970-01-01T00:00:00.000Z");
    assert_string_equal(zf_time_text(1738324800.5, b, sizeof b), "2025-01-31T12:00:00.500Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(written_and_read), T(torn_end), T(refusals), T(times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
