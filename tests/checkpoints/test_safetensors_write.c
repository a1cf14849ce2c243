/* The safetensors writer: what it writes reads back to the same bits; whatever fails leaves nothing behind. */
#include "support.h"

#include "checkpoints/safetensors.h"
#include "core/base/rng.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

static unsigned char byte_of(size_t tensor, size_t i)
{
    return (unsigned char)(zf_philox(tensor, ZF_STREAM_TEST, i / 16).v[i / 4 % 4] >> (8 * (i % 4)));
}

struct supply {
    const struct zf_st_entry *entries;
    size_t order[32], calls;
    size_t piece;       /* bytes a piece */
    long extra;         /* bytes more or fewer than declared, in the last tensor asked for */
    size_t fail_at;     /* call that fails, from 1 */
    bool ignore_errors; /* a careless source */
};

static enum zf_status supply(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    struct supply *s = ctx;
    const struct zf_st_entry *t = &s->entries[index];
    size_t bytes;
    assert_int_equal(zf_st_entry_bytes(&bytes, t, e), ZF_OK);
    s->order[s->calls++ % 32] = index;
    if (s->calls == s->fail_at) return zf_fail(e, ZF_NUMERIC, "the source", "it broke");
    bytes = (size_t)((long)bytes + s->extra);
    unsigned char *data = malloc(s->piece);
    assert_non_null(data);
    enum zf_status status = ZF_OK;
    for (size_t at = 0; at < bytes && !status; at += s->piece) {
        size_t n = bytes - at < s->piece ? bytes - at : s->piece;
        for (size_t i = 0; i < n; i++) data[i] = byte_of(index, at + i);
        status = zf_st_put(sink, data, n, e);
        if (s->ignore_errors) status = ZF_OK;
    }
    free(data);
    return status;
}

static const struct zf_st_entry entries[] = {
    {"model.weight", ZF_ST_BF16, 2, {3, 5}},
    {"ids", ZF_ST_I64, 2, {2, 3}},
    {"half", ZF_ST_F16, 1, {7}},
    {"scalar", ZF_ST_F32, 0, {0}},
    {"empty", ZF_ST_F32, 3, {4, 0, 2}},
    {"mask", ZF_ST_BOOL, 1, {5}},
    {"double", ZF_ST_F64, 1, {2}},
    {"\xc3\xa9\"\\\n\x1b/..", ZF_ST_U8, 1, {1}},
    {"big", ZF_ST_F32, 2, {701, 523}},
    {"quarter", ZF_ST_F4, 1, {6}},
    {"", ZF_ST_I16, 1, {1}},
};
enum { COUNT = sizeof entries / sizeof *entries };

static void test_round_trip(void **state)
{
    (void)state;
    static const size_t pieces[] = {1000003, 4096, 7};
    static const size_t order[COUNT] = {1, 6, 8, 4, 3, 0, 2, 10, 7, 9, 5};
    for (size_t k = 0; k < 3; k++) {
        const char *path = in_folder("out.safetensors");
        struct supply s = {.entries = entries, .piece = pieces[k]};
        struct zf_safetensors in;
        struct zf_err e;
        if (zf_st_write(path, entries, COUNT, supply, &s, &e)) fail_msg("%s: %s", e.where, e.message);
        assert_int_equal(s.calls, COUNT);
        assert_memory_equal(s.order, order, sizeof order);
        if (zf_st_open(&in, path, &e)) fail_msg("%s: %s", e.where, e.message);
        assert_int_equal(in.count, COUNT);
        assert_int_equal(in.metadata_count, 1);
        assert_string_equal(in.metadata[0], "format");
        assert_string_equal(in.metadata[1], "pt");
        assert_int_equal((in.list[0].data - in.map.data) % 8, 0);
        for (size_t i = 0; i < COUNT; i++) {
            const struct zf_st_tensor *t = zf_st_find(&in, entries[i].name);
            assert_non_null(t);
            assert_int_equal(t->type, entries[i].type);
            assert_int_equal(t->rank, entries[i].rank);
            for (size_t d = 0; d < t->rank; d++) assert_int_equal(t->shape[d], entries[i].shape[d]);
            if (zf_st_type_bits(t->type) >= 8) assert_int_equal(t->offset % (zf_st_type_bits(t->type) / 8), 0);
            for (size_t b = 0; b < t->bytes; b++)
                if (t->data[b] != byte_of(i, b)) fail_msg("tensor %zu, byte %zu", i, b);
        }
        zf_st_close(&in);
        assert_int_equal(entries_in(folder), 1);
    }
    unlink(in_folder("out.safetensors"));
}

static void test_nothing_to_write(void **state)
{
    (void)state;
    struct zf_safetensors in;
    struct zf_err e;
    assert_int_equal(zf_st_write(in_folder("none"), NULL, 0, supply, NULL, &e), ZF_OK);
    assert_int_equal(zf_st_open(&in, in_folder("none"), &e), ZF_OK);
    assert_int_equal(in.count, 0);
    zf_st_close(&in);
    unlink(in_folder("none"));
}

/* After a failure the old content is there, and nothing else. */
static void expect_failure(const struct zf_st_entry *list, size_t n, struct supply s, enum zf_status status, const char *says)
{
    const char *path = in_folder("kept");
    struct zf_err e = {0};
    char *text;
    s.entries = list;
    save_text(path, "old");
    enum zf_status got = zf_st_write(path, list, n, supply, &s, &e);
    if (got != status) fail_msg("%d, not %d: %s", got, status, e.message);
    assert_says(e.message, says);
    assert_int_equal(zf_file_read(&text, NULL, path, 100, &e), ZF_OK);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(entries_in(folder), 1);
    unlink(path);
}

static void test_refusals(void **state)
{
    (void)state;
    struct supply fine = {.piece = 4096};
    const struct zf_st_entry twice[] = {{"a", ZF_ST_F32, 1, {1}}, {"b", ZF_ST_F32, 1, {1}}, {"a", ZF_ST_U8, 1, {1}}};
    const struct zf_st_entry reserved = {"__metadata__", ZF_ST_F32, 1, {1}}, odd = {"a", ZF_ST_F4, 1, {3}},
                             huge = {"a", ZF_ST_F32, 2, {SIZE_MAX / 64, 3}};
    const struct zf_st_entry rank = {"a", ZF_ST_F32, 17, {1}}, type = {"a", ZF_ST_TYPES, 1, {1}}, name = {"a\xff", ZF_ST_F32, 1, {1}};
    struct zf_st_entry sum[9];
    char letters[9][2];
    for (size_t i = 0; i < 9; i++) {
        sprintf(letters[i], "%zu", i % 10);
        sum[i] = (struct zf_st_entry){letters[i], ZF_ST_U8, 1, {SIZE_MAX / 8}};
    }
    expect_failure(twice, 3, fine, ZF_FORMAT, "two tensors have the name \"a\"");
    expect_failure(&reserved, 1, fine, ZF_FORMAT, "reserves");
    expect_failure(&odd, 1, fine, ZF_FORMAT, "12 bits");
    expect_failure(&huge, 1, fine, ZF_FORMAT, "64 bits");
    expect_failure(&rank, 1, fine, ZF_FORMAT, "17 dimensions");
    expect_failure(&type, 1, fine, ZF_FORMAT, "no type");
    expect_failure(&name, 1, fine, ZF_FORMAT, "\"a\\xff\" cannot be written: its name is not UTF-8");
    expect_failure(sum, 9, fine, ZF_FORMAT, "64 bits");
}

static void test_bad_sources(void **state)
{
    (void)state;
    expect_failure(entries, COUNT, (struct supply){.piece = 4096, .fail_at = 3}, ZF_NUMERIC, "it broke");
    expect_failure(entries, COUNT, (struct supply){.piece = 4096, .extra = 1}, ZF_FORMAT, "are left");
    expect_failure(entries, COUNT, (struct supply){.piece = 4096, .extra = 1, .ignore_errors = true}, ZF_FORMAT, "are left");
    expect_failure(entries, COUNT, (struct supply){.piece = 4096, .extra = -1}, ZF_FORMAT, "1 bytes short");
}

static void test_header_limit(void **state)
{
    (void)state;
    enum { N = 250, LENGTH = 400000 };
    char *names = malloc((size_t)N * (LENGTH + 1));
    struct zf_st_entry *list = calloc(N, sizeof *list);
    assert_non_null(names);
    assert_non_null(list);
    for (size_t i = 0; i < N; i++) {
        char *name = names + i * (LENGTH + 1);
        memset(name, 'n', LENGTH);
        sprintf(name + LENGTH - 4, "%04zu", i);
        list[i] = (struct zf_st_entry){name, ZF_ST_U8, 1, {1}};
    }
    expect_failure(list, N, (struct supply){.piece = 4096}, ZF_FORMAT, "100000000 bytes");
    free(list);
    free(names);
}

static void test_targets(void **state)
{
    (void)state;
    struct zf_err e;
    struct supply s = {.entries = entries, .piece = 4096};
    assert_int_equal(zf_st_write("/dev/full", entries, COUNT, supply, &s, &e), ZF_IO);
    assert_says(e.message, "no regular file");
    assert_int_equal(zf_st_write(folder, entries, COUNT, supply, &s, &e), ZF_IO);
    assert_says(e.message, "a directory");
    assert_int_equal(zf_st_write(in_folder("no/such/folder"), entries, COUNT, supply, &s, &e), ZF_IO);
    save_text(in_folder("real"), "old");
    assert_int_equal(symlink("real", in_folder("link")), 0);
    assert_int_equal(zf_st_write(in_folder("link"), entries, COUNT, supply, &s, &e), ZF_IO);
    assert_says(e.message, "symbolic link");
    assert_int_equal(s.calls, 0);
    assert_int_equal(entries_in(folder), 2);
    unlink(in_folder("link"));
    unlink(in_folder("real"));
}

/* A file-size limit stands for a full disk: write() fails in the middle of the data. */
static void test_disk_full(void **state)
{
    (void)state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1200000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_failure(entries, COUNT, (struct supply){.piece = 4096}, ZF_IO, strerror(EFBIG));
    expect_failure(entries, COUNT, (struct supply){.piece = 4096, .ignore_errors = true}, ZF_IO, "");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_nothing_to_write), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_sources), cmocka_unit_test(test_header_limit),     cmocka_unit_test(test_targets),
        cmocka_unit_test(test_disk_full),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
