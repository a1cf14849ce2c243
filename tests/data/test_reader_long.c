/* Files much larger than what may be held: a line of 1 GB, a file of more than 4 GB, an array and a quote that never end. Holes in files
 * take no room on the disk; they are read as NUL bytes. */
#include "tests/data/support.h"

#include "core/base/clock.h"
#include "core/data/reader.h"
#include <fcntl.h>
#include <sys/resource.h>

#define GB (1ull << 30)

static size_t peak(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (size_t)u.ru_maxrss >> 10; /* MiB */
}

/* `head`, a hole of `hole` bytes, `tail`. */
static const char *hollow(const char *head, uint64_t hole, const char *tail)
{
    const char *path = in_folder("x");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    off_t at = (off_t)(strlen(head) + hole);
    assert_int_equal(pwrite(fd, head, strlen(head), 0), strlen(head));
    assert_int_equal(pwrite(fd, tail, strlen(tail), at), strlen(tail));
    assert_int_equal(close(fd), 0);
    return path;
}

static void read_all(enum zf_data_format format, const char *file, size_t good, size_t bad, uint64_t last_line, uint64_t bytes)
{
    const struct zf_reader_options o = {.files = &file, .file_count = 1, .format = format, .documents = "--"};
    struct zf_reader *r;
    struct zf_text into = {0};
    struct zf_record record;
    struct zf_err e;
    bool more = true;
    uint64_t line = 0, got = 0;
    double begin = zf_clock();
    assert_int_equal(zf_reader_open(&r, &o, &e), ZF_OK);
    while (more) {
        enum zf_status s = zf_reader_next(r, &into, &record, &more, &e);
        assert_true(s == ZF_OK || s == ZF_FORMAT);
        if (s) {
            print_message("%s: %s\n", e.where, e.message);
            assert_true(bad--);
            more = true;
        } else if (more) {
            assert_true(good--);
            line = record.line;
            got += record.size;
        }
        into.size = 0;
    }
    assert_int_equal(good, 0);
    assert_int_equal(bad, 0);
    assert_int_equal(line, last_line);
    assert_true(got == bytes);
    print_message("%.1f GB/s, at most %zu MiB so far\n", (double)zf_reader_bytes(r) / 1e9 / (zf_clock() - begin), peak());
    zf_reader_close(r);
    free(into.data);
    assert_true(peak() < 300);
}

static void test_long_line(void **state)
{
    (void)state;
    read_all(ZF_DATA_JSONL, hollow("{}\n", GB, "\n[]\n"), 2, 1, 3, 4);
    read_all(ZF_DATA_TSV, hollow("a\tb\n", GB, "\nx\ty\n"), 1, 1, 3, 3);
}

static void test_open_quote(void **state)
{
    (void)state;
    read_all(ZF_DATA_CSV, hollow("a,b\n1,2\n\"", GB, "\n1,2\n"), 1, 1, 2, 3);
}

static void test_open_array(void **state)
{
    (void)state;
    read_all(ZF_DATA_JSON, hollow("[1,\n[", GB, "]\n,2]"), 2, 1, 3, 2);
}

static void test_4gb(void **state)
{
    (void)state;
    const uint64_t hole = 4 * GB + 12345;
    read_all(ZF_DATA_TEXT, hollow("a--", hole, "\nb--c"), 1 + 4097 + 1, 0, 2, 1 + hole + 2 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_open_quote),
        cmocka_unit_test(test_open_array),
        cmocka_unit_test(test_4gb),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
