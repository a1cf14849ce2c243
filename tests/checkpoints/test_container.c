/* The checkpoint container: what is written reads back to the same bits, whatever the sizes, pieces, threads and ranges. */
#include "support.h"

#include "container_support.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define GOOD(expr) \
    do { \
        if (expr) fail_msg("%s: %s: %s", #expr, e.where, e.message); \
    } while (0)

static const struct zf_ckpt_options small = {.level = 1, .chunk = STANDARD_CHUNK};

static void test_round_trip(void **state)
{
    (void)state;
    struct zf_ckpt c;
    struct zf_err e;
    const char *path = in_folder("standard.zfc");
    GOOD(write_standard(path, &small, 1000, &e));
    assert_int_equal(entries_in(folder), 1);
    GOOD(zf_ckpt_open(&c, path, &e));
    assert_int_equal(c.count, STANDARD);
    assert_int_equal(json_integer_value(json_object_get(c.info, "step")), 500);
    for (size_t t = 0; t < STANDARD; t++) {
        const struct zf_ckpt_tensor *x = zf_ckpt_find(&c, standard[t].name);
        assert_ptr_equal(x, &c.list[t]);
        assert_int_equal(x->type, standard[t].type);
        assert_int_equal(x->rank, standard[t].rank);
        assert_memory_equal(x->shape, standard[t].shape, x->rank * sizeof *x->shape);
        assert_int_equal(x->bytes, standard_bytes(t));
        unsigned char *want = contents(t, x->type, (size_t)x->bytes), *got = malloc((size_t)x->bytes + 1);
        GOOD(zf_ckpt_read(&c, x, got, 0, x->bytes, NULL, &e));
        assert_memory_equal(want, got, (size_t)x->bytes);
        free(want);
        free(got);
    }
    assert_null(zf_ckpt_find(&c, "weights"));
    GOOD(zf_ckpt_verify(&c, NULL, NULL, &e));
    zf_ckpt_close(&c);
    unlink(path);
}

/* Every size next to a chunk's, of every type, of data that compresses and of such that does not, stored and compressed. */
static void round_trip(enum zf_ckpt_type type, uint64_t elements, const struct zf_ckpt_options *o, bool noise)
{
    struct zf_ckpt_writer *w;
    struct zf_ckpt c;
    struct zf_err e;
    size_t bytes = (size_t)elements * zf_ckpt_type_bytes(type);
    unsigned char *data = contents(7, noise ? ZF_CKPT_U8 : type, bytes), *got = malloc(bytes + 1);
    const char *path = in_folder("sizes.zfc");
    GOOD(zf_ckpt_create(&w, path, o, &e));
    GOOD(zf_ckpt_begin(w, "x", type, 1, &elements, &e));
    GOOD(zf_ckpt_put(w, data, bytes, &e));
    GOOD(zf_ckpt_finish(w, NULL, &e));
    GOOD(zf_ckpt_open(&c, path, &e));
    GOOD(zf_ckpt_read(&c, &c.list[0], got, 0, bytes, NULL, &e));
    assert_memory_equal(data, got, bytes);
    assert_true(c.list[0].stored <= bytes + bytes / 128 + 60 * (c.list[0].chunk_count + 1)); /* what does not compress stays what it is */
    zf_ckpt_close(&c);
    unlink(path);
    free(data);
    free(got);
}

static void test_sizes(void **state)
{
    (void)state;
    for (int type = 0; type < ZF_CKPT_TYPES; type++) {
        uint64_t chunk = 8192 / zf_ckpt_type_bytes((enum zf_ckpt_type)type);
        const uint64_t sizes[] = {0, 1, 2, 3, chunk - 1, chunk, chunk + 1, 2 * chunk, 5 * chunk + 17};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int level = 0; level < 2; level++)
                for (int noise = 0; noise < 2; noise++)
                    round_trip((enum zf_ckpt_type)type, sizes[i], &(struct zf_ckpt_options){.level = level, .chunk = 8192}, noise);
    }
    /* The chunk that is written otherwise, of several raw blocks. */
    for (int noise = 0; noise < 2; noise++)
        for (uint64_t more = 0; more < 2; more++) round_trip(ZF_CKPT_F32, (1 << 19) + more, &(struct zf_ckpt_options){.level = 1}, noise);
    round_trip(ZF_CKPT_BF16, 1 << 20, &(struct zf_ckpt_options){.level = 19}, false);
}

/* The standard file and some chunks of floats behind it, so that each slot of the writer sees each kind last. */
static char *write_with(struct zf_pool *pool, uint64_t chunks, size_t piece, size_t *size)
{
    struct zf_ckpt_counts counts;
    struct zf_ckpt_options o = small;
    struct zf_ckpt_writer *w;
    struct zf_err e;
    char *text;
    unsigned char floats[5 * STANDARD_CHUNK];
    const char *path = in_folder("threads.zfc");
    uint64_t raw = chunks * STANDARD_CHUNK, elements = raw / 4;
    for (size_t i = 0; i < sizeof floats; i++) floats[i] = content(50, i, ZF_CKPT_F32);
    o.pool = pool;
    o.counts = &counts;
    GOOD(zf_ckpt_create(&w, path, &o, &e));
    GOOD(put_standard(w, piece, &e));
    GOOD(zf_ckpt_begin(w, "floats", ZF_CKPT_F32, 1, &elements, &e));
    GOOD(zf_ckpt_put(w, floats, raw, &e));
    GOOD(zf_ckpt_finish(w, NULL, &e));
    GOOD(zf_file_read(&text, size, path, 1 << 20, &e));
    for (size_t t = 0; t < STANDARD; t++) raw += standard_bytes(t);
    assert_int_equal(counts.raw, raw);
    assert_int_equal(counts.stored, *size);
    unlink(path);
    return text;
}

/* The same bytes of the file for any number of threads and any pieces; counts that fit. */
static void test_threads(void **state)
{
    (void)state;
    struct zf_err e;
    for (uint64_t chunks = 0; chunks < 5; chunks++) {
        size_t size, n;
        char *first = write_with(NULL, chunks, 1, &size);
        for (int threads = 1; threads < 6; threads++) {
            struct zf_pool *pool;
            GOOD(zf_pool_new(&pool, threads, &e));
            char *text = write_with(pool, chunks, threads == 1 ? 1023 : 1000000, &n);
            assert_int_equal(n, size);
            assert_memory_equal(text, first, n);
            free(text);
            zf_pool_free(pool);
        }
        free(first);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    struct zf_ckpt c;
    struct zf_err e;
    struct zf_pool *pool;
    const char *path = in_folder("ranges.zfc");
    GOOD(write_standard(path, &small, 1 << 20, &e));
    GOOD(zf_ckpt_open(&c, path, &e));
    GOOD(zf_pool_new(&pool, 3, &e));
    for (size_t t = 0; t < STANDARD; t++) {
        size_t bytes = (size_t)c.list[t].bytes;
        unsigned char *want = contents(t, c.list[t].type, bytes), got[16384];
        for (size_t i = 0; i < 300 && bytes; i++) {
            struct zf_u32x4 r = zf_philox(t, ZF_STREAM_TEST, i);
            size_t from = r.v[0] % (bytes + 1), n = i % 3 ? r.v[1] % (bytes - from + 1) : bytes - from < 5 ? bytes - from : 5;
            memset(got, 0xEE, n + 1);
            GOOD(zf_ckpt_read(&c, &c.list[t], got, from, n, i % 2 ? pool : NULL, &e));
            assert_memory_equal(got, want + from, n);
            assert_int_equal(got[n], 0xEE);
        }
        assert_int_equal(zf_ckpt_read(&c, &c.list[t], got, bytes, 1, NULL, &e), ZF_FORMAT);
        assert_int_equal(zf_ckpt_read(&c, &c.list[t], got, UINT64_MAX, 2, NULL, &e), ZF_FORMAT);
        assert_says(e.message, standard[t].name);
        free(want);
    }
    zf_pool_free(pool);
    zf_ckpt_close(&c);
    unlink(path);
}

/* What the format promises to any other program. */
static void test_zstd_tool(void **state)
{
    (void)state;
    char command[700];
    struct zf_err e;
    const char *path = in_folder("tool.zfc");
    if (system("zstd --version >/dev/null 2>&1")) {
        print_message("skipped: no zstd on this machine\n");
        skip();
    }
    for (int level = 0; level < 2; level++) {
        struct zf_ckpt_options o = {.level = level, .chunk = level ? STANDARD_CHUNK : 0};
        GOOD(write_standard(path, &o, 1 << 20, &e));
        snprintf(command, sizeof command, "zstd -tq '%s' 2>&1", path);
        assert_int_equal(system(command), 0);
    }
    unlink(path);
}

/* Structure of floats is found: one plane of four is nearly constant here, three are noise. Zeros take next to nothing. */
static void test_compresses(void **state)
{
    (void)state;
    struct zf_ckpt_writer *w;
    struct zf_ckpt c;
    struct zf_err e;
    uint64_t elements = 1 << 20;
    size_t bytes = 4 << 20;
    unsigned char *data = contents(1, ZF_CKPT_F32, bytes);
    const char *path = in_folder("compresses.zfc");
    GOOD(zf_ckpt_create(&w, path, &(struct zf_ckpt_options){.level = 1}, &e));
    GOOD(zf_ckpt_begin(w, "floats", ZF_CKPT_F32, 1, &elements, &e));
    GOOD(zf_ckpt_put(w, data, bytes, &e));
    memset(data, 0, bytes);
    GOOD(zf_ckpt_begin(w, "zeros", ZF_CKPT_F32, 1, &elements, &e));
    GOOD(zf_ckpt_put(w, data, bytes, &e));
    GOOD(zf_ckpt_finish(w, NULL, &e));
    GOOD(zf_ckpt_open(&c, path, &e));
    assert_true(c.list[0].stored < bytes * 82 / 100);
    assert_true(c.list[1].stored < 4096);
    zf_ckpt_close(&c);
    free(data);
    unlink(path);
}

static void expect_refusal(struct zf_ckpt_writer *w, enum zf_status got, enum zf_status status, const struct zf_err *e, const char *says)
{
    struct zf_err later;
    assert_int_equal(got, status);
    assert_says(e->message, says);
    assert_int_equal(zf_ckpt_put(w, "", 0, &later), status); /* the first failure stays */
    assert_string_equal(later.message, e->message);
    assert_int_equal(zf_ckpt_finish(w, json_pack("{s:i}", "step", 1), &later), status);
    assert_string_equal(later.message, e->message);
    assert_int_equal(entries_in(folder), 0);
}

static struct zf_ckpt_writer *writer_of(uint64_t elements)
{
    struct zf_ckpt_writer *w;
    struct zf_err e;
    GOOD(zf_ckpt_create(&w, in_folder("refused.zfc"), &small, &e));
    GOOD(zf_ckpt_begin(w, "x", ZF_CKPT_F32, 1, &elements, &e));
    return w;
}

static void test_refusals(void **state)
{
    (void)state;
    struct zf_err e;
    struct zf_ckpt_writer *w;
    char name[ZF_CKPT_NAME + 2];
    const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, one = 1, negative = UINT64_MAX, nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "x", ZF_CKPT_F32, 1, &one, &e), ZF_FORMAT, &e, "two tensors have the name \"x\"");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "", ZF_CKPT_F32, 1, &one, &e), ZF_FORMAT, &e, "printable");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "a\n", ZF_CKPT_F32, 1, &one, &e), ZF_FORMAT, &e, "printable");
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, name, ZF_CKPT_F32, 1, &one, &e), ZF_FORMAT, &e, "256 bytes of name");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "y", ZF_CKPT_F32, 2, huge, &e), ZF_FORMAT, &e, "63 bits");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "y", ZF_CKPT_F32, 1, &negative, &e), ZF_FORMAT, &e, "63 bits");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "y", ZF_CKPT_F32, 9, nine, &e), ZF_FORMAT, &e, "9 dimensions");
    w = writer_of(0);
    expect_refusal(w, zf_ckpt_begin(w, "y", ZF_CKPT_TYPES, 1, &one, &e), ZF_FORMAT, &e, "no type");
    w = writer_of(1);
    expect_refusal(w, zf_ckpt_put(w, "abcde", 5, &e), ZF_FORMAT, &e, "5 bytes were supplied where 4 are left");
    w = writer_of(1);
    assert_int_equal(zf_ckpt_put(w, "abc", 3, &e), ZF_OK);
    expect_refusal(w, zf_ckpt_begin(w, "y", ZF_CKPT_F32, 1, &one, &e), ZF_FORMAT, &e, "ended 1 bytes short of the declared 4");
    w = writer_of(1);
    assert_int_equal(zf_ckpt_finish(w, NULL, &e), ZF_FORMAT);
    assert_says(e.message, "\"x\": its data ended 4 bytes short");
    assert_int_equal(zf_ckpt_finish(writer_of(0), json_array(), &e), ZF_FORMAT);
    assert_says(e.message, "no JSON object");
    zf_ckpt_abandon(writer_of(1));
    zf_ckpt_abandon(NULL);
    assert_int_equal(entries_in(folder), 0);
    assert_int_equal(zf_ckpt_create(&w, in_folder("x.zfc"), &(struct zf_ckpt_options){.chunk = 12}, &e), ZF_USAGE);
    assert_int_equal(zf_ckpt_create(&w, in_folder("no/x.zfc"), &small, &e), ZF_IO);
    assert_null(w);
}

static const struct {
    enum zf_ckpt_type type;
    size_t element;
    uint64_t bits;
    const char *says; /* NULL: it is fine */
} odd[] = {
    {ZF_CKPT_F32, 0, 0x7f800000, "tensor \"x\", element 0 is no finite number (bits 0x7f800000)"},
    {ZF_CKPT_F32, 1999, 0xff800001, "element 1999 "},
    {ZF_CKPT_F32, 700, 0xff7fffff, NULL},
    {ZF_CKPT_BF16, 1023, 0xff80, "element 1023 "},
    {ZF_CKPT_BF16, 5, 0x7f7f, NULL},
    {ZF_CKPT_F16, 513, 0x7e00, "element 513 "},
    {ZF_CKPT_F16, 513, 0xfbff, NULL},
    {ZF_CKPT_F64, 300, 0x7ff0000000000000, "element 300 is no finite number (bits 0x7ff0000000000000)"},
    {ZF_CKPT_F64, 300, 0x7fefffffffffffff, NULL},
    {ZF_CKPT_U32, 3, 0x7f800000, NULL},
    {ZF_CKPT_I16, 3, 0x7f80, NULL},
};

static void test_finite(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int asked = 0; asked < 2; asked++) {
            size_t each = zf_ckpt_type_bytes(odd[i].type), bytes = 2000 * each;
            unsigned char *data = contents(3, odd[i].type, bytes);
            const uint64_t elements = 2000;
            struct zf_ckpt_options o = {.level = 1, .chunk = STANDARD_CHUNK, .finite = asked};
            struct zf_ckpt_writer *w;
            struct zf_err e;
            const char *path = in_folder("finite.zfc");
            memcpy(data + odd[i].element * each, &odd[i].bits, each);
            GOOD(zf_ckpt_create(&w, path, &o, &e));
            GOOD(zf_ckpt_begin(w, "x", odd[i].type, 1, &elements, &e));
            zf_ckpt_put(w, data, bytes, &e);
            enum zf_status s = zf_ckpt_finish(w, NULL, &e);
            free(data);
            assert_int_equal(s, asked && odd[i].says ? ZF_NUMERIC : ZF_OK);
            if (s) assert_says(e.message, odd[i].says);
            if (!s) assert_int_equal(unlink(path), 0);
            assert_int_equal(entries_in(folder), 0);
        }
}

/* A file-size limit stands for a full disk. The old file stays. */
static void test_disk_full(void **state)
{
    (void)state;
    struct rlimit old, limit;
    struct zf_ckpt_counts counts;
    struct zf_ckpt_options o = small;
    struct zf_err e;
    char *text;
    const char *path = in_folder("kept.zfc");
    o.counts = &counts;
    GOOD(write_standard(path, &o, 1 << 20, &e));
    save_text(path, "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (uint64_t bytes = 0, size = counts.stored; bytes < size;
         bytes = bytes + 5003 < size - 1 || bytes == size - 1 ? bytes + 5003 : size - 1) {
        limit = old;
        limit.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        enum zf_status s = write_standard(path, &o, 1 << 20, &e);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(s, ZF_IO);
        assert_says(e.message, strerror(EFBIG));
        assert_int_equal(entries_in(folder), 1);
    }
    GOOD(zf_file_read(&text, NULL, path, 100, &e));
    assert_string_equal(text, "old");
    free(text);
    unlink(path);
}

static size_t cached_bytes(const char *path)
{
    struct zf_map m;
    struct zf_err e;
    GOOD(zf_map_open(&m, path, &e));
    size_t pages = (m.size + 4095) / 4096, n = 0;
    unsigned char *in = malloc(pages);
    assert_int_equal(mincore((void *)(size_t)m.data, m.size, in), 0);
    for (size_t i = 0; i < pages; i++) n += in[i] & 1;
    free(in);
    zf_map_close(&m);
    return n * 4096;
}

/* Of 160 MB at most two windows of 32 MiB, and what came after them, are in the page cache. */
static void test_pages(void **state)
{
    (void)state;
    size_t cached[2], piece = 1 << 20;
    unsigned char *data = contents(9, ZF_CKPT_U8, piece);
    const uint64_t elements = 160 << 20;
    for (int drop = 0; drop < 2; drop++) {
        struct zf_ckpt_options o = {.level = 1, .drop_pages = drop};
        struct zf_ckpt_writer *w;
        struct zf_err e;
        const char *path = in_folder("pages.zfc");
        GOOD(zf_ckpt_create(&w, path, &o, &e));
        GOOD(zf_ckpt_begin(w, "x", ZF_CKPT_U8, 1, &elements, &e));
        for (uint64_t at = 0; at < elements; at += piece) GOOD(zf_ckpt_put(w, data, piece, &e));
        GOOD(zf_ckpt_finish(w, NULL, &e));
        cached[drop] = cached_bytes(path);
        unlink(path);
    }
    free(data);
    if (cached[0] < 100 << 20 || cached[1] > cached[0] - (32 << 20)) {
        print_message("skipped: this file system keeps its pages as it likes (%zu, %zu bytes)\n", cached[0], cached[1]);
        skip();
    }
    assert_true(cached[1] <= 100 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_sizes),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ranges),     cmocka_unit_test(test_zstd_tool), cmocka_unit_test(test_compresses),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_finite),    cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
