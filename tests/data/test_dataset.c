/* Datasets, order, batches: rows of small texts and files, exactly. */
#include "support.h"

#include "checkpoints/safetensors.h"
#include "core/data/batch.h"
#include "core/data/dataset.h"

static struct zf_tokenizer *bytes;

static enum zf_status open_files(struct zf_dataset *d, struct zf_dataset_options o, struct zf_err *e)
{
    if (!o.tokenizer) o.tokenizer = bytes;
    if (!o.context) o.context = 64;
    if (!o.vocab) o.vocab = 257;
    *e = (struct zf_err){0};
    return zf_dataset_open(d, &o, NULL, e);
}

static void open_one(struct zf_dataset *d, const char *path, struct zf_dataset_options o)
{
    struct zf_err e;
    o.files = &path;
    o.file_count = 1;
    enum zf_status s = open_files(d, o, &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
}

static void refuse_one(const char *path, struct zf_dataset_options o, enum zf_status code, const char *where, const char *says)
{
    struct zf_err e;
    struct zf_dataset d;
    o.files = &path;
    o.file_count = 1;
    enum zf_status s = open_files(&d, o, &e);
    if (s != code || !strstr(e.message, says) || !strstr(e.where, where)) print_error("%d %s: %s\n", s, e.where, e.message);
    assert_int_equal(s, code);
    assert_non_null(strstr(e.message, says));
    assert_non_null(strstr(e.where, where));
    assert_null(d.store);
}

static void expect_row(const struct zf_dataset *d, size_t row, const char *ids, const char *targets, const char *documents)
{
    struct zf_err e = {0};
    static struct zf_row_buffer buffer;
    struct zf_row r;
    assert_int_equal(zf_dataset_read(d, row, &buffer, &r, &e), ZF_OK);
    assert_numbers(r.ids, r.length, ids);
    assert_numbers(r.target, r.length, targets);
    if (documents)
        assert_numbers(r.document, r.length, documents);
    else
        assert_null(r.document);
    size_t labels = 0;
    for (size_t i = 0; i < r.length; i++) labels += r.target[i] >= 0;
    assert_int_equal(labels, r.label_tokens);
}

static void test_text_rows(void **state)
{
    (void)state;
    struct zf_dataset d;
    open_one(&d, save_text("a.txt", "abcdefg"), (struct zf_dataset_options){.sequence_length = 3, .add_eos = true});
    assert_int_equal(d.rows, 3);
    assert_int_equal(d.store->stats.documents, 1);
    assert_int_equal(d.tokens, 8);
    assert_int_equal(d.label_tokens, 5);
    assert_int_equal(d.longest, 3);
    assert_int_equal(d.unlabelled, 0);
    assert_true(d.bytes > 0);
    expect_row(&d, 0, "97 98 99", "98 99 -1", NULL);
    expect_row(&d, 1, "100 101 102", "101 102 -1", NULL);
    expect_row(&d, 2, "103 256", "256 -1", NULL);
    zf_dataset_close(&d);
    open_one(&d, in_folder("a.txt"), (struct zf_dataset_options){.sequence_length = 3});
    assert_int_equal(d.rows, 3);
    assert_int_equal(d.unlabelled, 1); /* the rest of one token: harmless in text */
    expect_row(&d, 2, "103", "-1", NULL);
    assert_non_null(strstr(d.note, "1 of 3 rows have no label token"));
    zf_dataset_close(&d);
    open_one(&d, in_folder("a.txt"), (struct zf_dataset_options){.sequence_length = 7});
    assert_int_equal(d.rows, 1);
    zf_dataset_close(&d);
    open_one(&d, in_folder("a.txt"), (struct zf_dataset_options){.context = 4}); /* 0: the context */
    assert_int_equal(d.rows, 2);
    zf_dataset_close(&d);
    /* No room for the end token: none is added, its text is text, and the note says so. */
    open_one(&d, save_text("e.md", "a<|endoftext|>"), (struct zf_dataset_options){.sequence_length = 20, .add_eos = true, .vocab = 256});
    assert_int_equal(d.tokens, 14);
    assert_non_null(strstr(d.note, "no end token"));
    zf_dataset_close(&d);
    open_one(&d, in_folder("e.md"), (struct zf_dataset_options){.sequence_length = 20});
    expect_row(&d, 0, "97 256", "256 -1", NULL);
    assert_non_null(strstr(d.note, "1 special tokens written in texts"));
    zf_dataset_close(&d);
}

static void test_documents(void **state)
{
    (void)state;
    struct zf_dataset d;
    struct zf_err e;
    const char *files[] = {save_text("1.txt", "\xEF\xBB\xBF"
                                              "ab\r\n"),
                           save_text("2.txt", ""), save_text("3.txt", "c")};
    assert_int_equal(
        open_files(&d, (struct zf_dataset_options){.files = files, .file_count = 3, .sequence_length = 9, .add_eos = true}, &e), ZF_OK);
    assert_int_equal(d.rows, 2);
    assert_int_equal(d.store->stats.documents, 2);
    expect_row(&d, 0, "97 98 13 10 256", "98 13 10 256 -1", NULL); /* no BOM; CRLF as it is */
    expect_row(&d, 1, "99 256", "256 -1", NULL);
    assert_non_null(strstr(d.note, "1 files without anything"));
    zf_dataset_close(&d);

    open_one(&d, save_text("b.txt", "\n\nab\ncd\n \t\r\n\r\nef\r\n\n"),
             (struct zf_dataset_options){.sequence_length = 9, .documents = "blank"});
    assert_int_equal(d.rows, 2);
    expect_row(&d, 0, "97 98 10 99 100", "98 10 99 100 -1", NULL);
    expect_row(&d, 1, "101 102", "102 -1", NULL);
    zf_dataset_close(&d);

    open_one(&d, save_text("s.txt", "ab--cd\n----ef--\n"),
             (struct zf_dataset_options){.sequence_length = 2, .documents = "--", .add_eos = true});
    assert_int_equal(d.store->stats.documents, 3);
    assert_int_equal(d.rows, 6);
    expect_row(&d, 0, "97 98", "98 -1", NULL);
    expect_row(&d, 1, "256", "-1", NULL);
    expect_row(&d, 2, "99 100", "100 -1", NULL);
    expect_row(&d, 3, "10 256", "256 -1", NULL);
    expect_row(&d, 4, "101 102", "102 -1", NULL);
    assert_non_null(strstr(d.note, "1 records or documents without any text"));
    zf_dataset_close(&d);
}

static void test_text_refused(void **state)
{
    (void)state;
    struct zf_err e = {0};
    assert_int_equal(zf_tokenizer_write_bytes(folder, true, &e), ZF_OK);
    struct zf_tokenizer *t;
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_OK);
    struct zf_dataset_options o = {.sequence_length = 4, .tokenizer = t};
    refuse_one(save("u.txt", "ok\nok\nab\xe9z", 10), o, ZF_FORMAT, "u.txt:3", "byte 0xE9 at offset 8");
    refuse_one(save("w.txt",
                    "\xff\xfe"
                    "a\0b\0",
                    6),
               o, ZF_FORMAT, "w.txt:1", "UTF-16");
    struct zf_dataset d;
    o.documents = "blank";
    o.skip_bad = true;
    open_one(&d, save("v.txt", "ab\n\n\xff\n\ncd", 10), o);
    assert_int_equal(d.store->stats.documents, 2);
    assert_non_null(strstr(d.note, "1 records (of long text documents, the rest) that cannot be read, left out, the first at"));
    zf_dataset_close(&d);
    zf_tokenizer_close(t);
    o = (struct zf_dataset_options){.sequence_length = 4};
    open_one(&d, in_folder("u.txt"), o); /* `bytes` takes any byte */
    assert_int_equal(d.tokens, 10);
    zf_dataset_close(&d);
    refuse_one(save_text("x.txt", ""), o, ZF_FORMAT, "x.txt", "no usable row");
    refuse_one(save_text("y.txt", "a"), o, ZF_FORMAT, "y.txt", "label token");
    refuse_one(in_folder("nowhere.txt"), o, ZF_FORMAT, "nowhere.txt", "cannot open");
    refuse_one(folder, (struct zf_dataset_options){.format = ZF_DATA_TEXT}, ZF_FORMAT, folder, "directory");
    refuse_one(save_text("z.jsonl", "{\"name\":1}"), o, ZF_USAGE, "z.jsonl", "name");
    /* An array on one line: a place in the line. */
    refuse_one(save_text("z.json", "[{\"text\": \"a\"}, {\"text\" \"b\"}]"), o, ZF_FORMAT, "z.json:1:27", "no valid JSON");
    refuse_one(save_text("z.json", "[{\"text\": \"a\"},{\"txt\": \"b\"}]"), o, ZF_FORMAT, "z.json:1:16", "it has no `text`");
    refuse_one(in_folder("z"), o, ZF_USAGE, "z", "without extension");
    refuse_one(in_folder("z.bin"), o, ZF_USAGE, "z.bin", "'.bin'");
    o.documents = "";
    refuse_one(in_folder("y.txt"), o, ZF_USAGE, "", "empty separator");
    o.documents = NULL;
    o.sequence_length = 65;
    refuse_one(in_folder("y.txt"), o, ZF_USAGE, "", "context");
    o.sequence_length = 4;
    o.vocab = 98;
    refuse_one(save_text("n.txt", "abc"), o, ZF_FORMAT, "n.txt", "'b' with id 98");
}

static void test_stop(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_dataset d;
    size_t size = 3 << 20;
    char *text = malloc(size);
    memset(text, 'x', size);
    const char *path = save("big.txt", text, size);
    free(text);
    const volatile int stop = 1, go = 0;
    struct zf_dataset_options o = {.files = &path, .file_count = 1, .tokenizer = bytes, .sequence_length = 64, .context = 64, .vocab = 257};
    assert_int_equal(zf_dataset_open(&d, &o, &stop, &e), ZF_STOPPED);
    assert_int_equal(zf_dataset_open(&d, &o, &go, &e), ZF_OK);
    assert_int_equal(d.rows, size / 64);
    assert_true(d.bytes < size * 5);
    zf_dataset_close(&d);
}

/* Tokens files: int64 values as given, under any integer type that the test names. */
struct written {
    const char *name;
    enum zf_st_type type;
    size_t rows, length;
    const char *values;
};

static enum zf_status put_values(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct written *w = (const struct written *)ctx + index;
    int32_t v[64];
    size_t n = numbers(w->values, v, 64);
    assert_int_equal(n, w->rows * w->length);
    for (size_t i = 0; i < n; i++) {
        int64_t wide = v[i];
        float f = (float)v[i];
        ZF_TRY(w->type == ZF_ST_F32 ? zf_st_put(sink, &f, 4, e)
                                    : zf_st_put(sink, &wide, zf_st_type_bits(w->type) / 8, e)); /* little-endian */
    }
    return ZF_OK;
}

static const char *save_tokens(const char *name, struct written *w, size_t count)
{
    struct zf_err e = {0};
    struct zf_st_entry entries[4];
    const char *path = in_folder(name);
    for (size_t i = 0; i < count; i++) entries[i] = (struct zf_st_entry){w[i].name, w[i].type, 2, {w[i].rows, w[i].length}};
    enum zf_status s = zf_st_write(path, entries, count, put_values, w, &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
    return path;
}

#define TOKENS(name, ...) \
    save_tokens(name, (struct written[]){__VA_ARGS__}, sizeof((struct written[]){__VA_ARGS__}) / sizeof(struct written))

static void test_tokens(void **state)
{
    (void)state;
    struct zf_dataset d;
    struct zf_err e;
    const char *plain = TOKENS("plain.safetensors", {"input_ids", ZF_ST_I64, 2, 3, "1 2 3  4 5 6"});
    open_one(&d, plain, (struct zf_dataset_options){0});
    assert_int_equal(d.rows, 2);
    assert_int_equal(d.store->stats.documents, 2);
    assert_int_equal(d.label_tokens, 4);
    expect_row(&d, 0, "1 2 3", "2 3 -1", NULL);
    expect_row(&d, 1, "4 5 6", "5 6 -1", NULL);
    zf_dataset_close(&d);

    open_one(&d,
             TOKENS("labels.safetensors", {"input_ids", ZF_ST_I32, 2, 4, "1 2 3 4  5 6 7 8"},
                    {"labels", ZF_ST_I64, 2, 4, "1 -100 9 4  -100 6 -100 0"}),
             (struct zf_dataset_options){0});
    expect_row(&d, 0, "1 2 3 4", "-1 9 4 -1", NULL);
    expect_row(&d, 1, "5 6 7 8", "6 -1 0 -1", NULL);
    assert_int_equal(d.label_tokens, 4);
    zf_dataset_close(&d);

    const char *packed =
        TOKENS("packed.safetensors", {"input_ids", ZF_ST_U8, 2, 5, "1 2 3 4 5  6 7 8 9 10"},
               {"labels", ZF_ST_I16, 2, 5, "1 2 3 4 5  6 7 8 9 10"}, {"document", ZF_ST_I64, 2, 5, "0 0 1 1 1  3 3 3 7 7"});
    open_one(&d, packed, (struct zf_dataset_options){0});
    assert_int_equal(d.store->stats.documents, 4);
    expect_row(&d, 0, "1 2 3 4 5", "2 -1 4 5 -1", "0 0 1 1 1");
    expect_row(&d, 1, "6 7 8 9 10", "7 8 -1 10 -1", "0 0 0 1 1");
    zf_dataset_close(&d);

    /* Files of different length and kind, end to end. */
    const char *both[] = {plain, packed};
    assert_int_equal(open_files(&d, (struct zf_dataset_options){.files = both, .file_count = 2}, &e), ZF_OK);
    assert_int_equal(d.rows, 4);
    assert_int_equal(d.longest, 5);
    expect_row(&d, 1, "4 5 6", "5 6 -1", NULL);
    expect_row(&d, 2, "1 2 3 4 5", "2 -1 4 5 -1", "0 0 1 1 1");
    struct zf_dataset part;
    assert_int_equal(zf_dataset_slice(&part, &d, 1, 2, &e), ZF_OK);
    assert_int_equal(part.rows, 2);
    assert_int_equal(part.tokens, 8);
    assert_int_equal(part.label_tokens, 5);
    assert_int_equal(part.longest, 5);
    assert_int_equal(part.length, 5);
    char place[512], expected[512], small[32];
    snprintf(expected, sizeof expected, "%s row 1", plain);
    assert_string_equal(zf_dataset_place(&part, &(struct zf_source){.line = 1, .file = ZF_SOURCE_CHOSEN}, place, sizeof place), expected);
    assert_string_equal(zf_dataset_place(&part, &(struct zf_source){.file = 2}, place, sizeof place), "? row 0");
    assert_string_equal(zf_source_place(small, sizeof small, ZF_DATA_TOKENS, "", 7), "row 7");
    assert_string_equal(zf_source_place(small, sizeof small, ZF_DATA_CSV, "", 7), ":7");
    assert_string_equal(zf_source_place(small, sizeof small, ZF_DATA_TOKENS, "/a/long/folder/of/rows.safetensors", 123456),
                        ".../rows.safetensors row 123456");
    expect_row(&part, 0, "4 5 6", "5 6 -1", NULL);
    struct zf_dataset inner;
    assert_int_equal(zf_dataset_slice(&inner, &part, 1, 9, &e), ZF_OK);
    assert_int_equal(inner.rows, 1);
    expect_row(&inner, 0, "1 2 3 4 5", "2 -1 4 5 -1", "0 0 1 1 1");
    zf_dataset_close(&inner);
    zf_dataset_close(&part);
    expect_row(&d, 1, "4 5 6", "5 6 -1", NULL); /* a slice does not take the rows with it */
    zf_dataset_close(&d);
}

static void test_tokens_refused(void **state)
{
    (void)state;
    struct zf_dataset_options o = {.vocab = 10, .context = 4};
    refuse_one(TOKENS("t.safetensors", {"ids", ZF_ST_I64, 1, 3, "1 2 3"}), o, ZF_FORMAT, "t.safetensors", "no tensor input_ids");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 0, 3, ""}), o, ZF_FORMAT, "t.safetensors", "neither 0");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 5, "1 2 3 4 5"}), o, ZF_FORMAT, "t.safetensors", "context is 4");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_F32, 1, 2, "1 2"}), o, ZF_FORMAT, "", "");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 2, 2, "1 2  3 10"}), o, ZF_FORMAT, "t.safetensors",
               "input_ids[1][1] is 10");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 2, "1 -1"}), o, ZF_FORMAT, "t.safetensors", "input_ids[0][1] is -1");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 2, "1 2"}, {"labels", ZF_ST_I64, 2, 1, "1 2"}), o, ZF_FORMAT,
               "t.safetensors", "labels has another shape");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 2, "1 2"}, {"labels", ZF_ST_I64, 1, 2, "1 -1"}), o, ZF_FORMAT,
               "t.safetensors", "labels[0][1] is -1");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 2, "1 2"}, {"document", ZF_ST_I64, 1, 2, "1 0"}), o, ZF_FORMAT,
               "t.safetensors", "document[0][1] is 0 after 1");
    refuse_one(TOKENS("t.safetensors", {"input_ids", ZF_ST_I64, 1, 2, "1 2"}, {"labels", ZF_ST_I64, 1, 2, "1 -100"}), o, ZF_FORMAT,
               "t.safetensors", "none of its 1 rows");
    const char *half =
        TOKENS("half.safetensors", {"input_ids", ZF_ST_I64, 3, 2, "1 2 3 4 5 6"}, {"labels", ZF_ST_I64, 3, 2, "1 2  3 -100  5 -100"});
    refuse_one(half, o, ZF_FORMAT, "half.safetensors", "2 of 3 rows have no label token (the first: ");
    o.skip_bad = true;
    struct zf_dataset d;
    open_one(&d, half, o);
    assert_int_equal(d.rows, 3);
    assert_int_equal(d.unlabelled, 2);
    zf_dataset_close(&d);
    refuse_one(save_text("no.safetensors", "version https://git-lfs.github.com/spec/v1\n"), o, ZF_FORMAT, "no.safetensors", "");
    refuse_one(in_folder("nowhere.safetensors"), o, ZF_FORMAT, "nowhere.safetensors", "");
}

static void test_order(void **state)
{
    (void)state;
    bool seen[101];
    size_t moved = 0, differ = 0;
    const struct zf_order o = {.seed = 7, .rows = 101, .shuffle = true}, other = {.seed = 8, .rows = 101, .shuffle = true},
                          file = {.seed = 7, .rows = 101};
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < 101; i++) {
            uint64_t row = zf_order_row(&o, epoch * 101 + i);
            assert_true(row < 101 && !seen[row]);
            seen[row] = true;
            moved += row != i;
            differ += row != zf_order_row(&other, epoch * 101 + i);
            differ += epoch && row != zf_order_row(&o, i);
            assert_int_equal(row, zf_order_row(&o, epoch * 101 + i)); /* no state */
            assert_int_equal(zf_order_row(&file, epoch * 101 + i), i);
        }
    }
    assert_true(moved > 250);
    assert_true(differ > 400);
    assert_int_equal(zf_order_row(&(struct zf_order){.rows = 1, .shuffle = true}, 5), 0);
    assert_int_equal(zf_order_row(&(struct zf_order){0}, 5), 0);
}

static void test_batch(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_batch b;
    const struct zf_row plain = {.ids = (int32_t[]){7, 8}, .target = (int32_t[]){8, -1}, .length = 2, .label_tokens = 1};
    const struct zf_row packed = {.ids = (int32_t[]){1, 2, 3, 4, 5, 6},
                                  .target = (int32_t[]){2, 3, -1, 5, -1, -1},
                                  .document = (int32_t[]){0, 0, 0, 1, 1, 2},
                                  .length = 6,
                                  .label_tokens = 3};
    assert_int_equal(zf_batch_init(&b, 8, &e), ZF_OK);
    for (int turn = 0; turn < 2; turn++) {
        zf_batch_clear(&b);
        zf_batch_add(&b, &plain);
        zf_batch_add(&b, &packed);
        assert_int_equal(b.tokens, 8);
        assert_int_equal(b.label_tokens, 4);
        assert_numbers(b.ids, 8, "7 8 1 2 3 4 5 6");
        assert_numbers(b.target, 8, "8 -1 2 3 -1 5 -1 -1");
        assert_numbers(b.position, 8, "0 1 0 1 2 0 1 0");
        static const size_t begins[] = {0, 2, 5, 7}, counts[] = {2, 3, 2, 1};
        assert_int_equal(b.segment_count, 4);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(b.segments[i].q_begin, begins[i]);
            assert_int_equal(b.segments[i].k_begin, begins[i]);
            assert_int_equal(b.segments[i].q_count, counts[i]);
            assert_int_equal(b.segments[i].k_count, counts[i]);
        }
    }
    zf_batch_free(&b);
}

static int open_bytes(void **state)
{
    struct zf_err e = {0};
    return set_up(state) || zf_tokenizer_open(&bytes, "bytes", &e) != ZF_OK ? -1 : 0;
}

static int close_bytes(void **state)
{
    zf_tokenizer_close(bytes);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_rows), cmocka_unit_test(test_documents), cmocka_unit_test(test_text_refused),
        cmocka_unit_test(test_stop),      cmocka_unit_test(test_tokens),    cmocka_unit_test(test_tokens_refused),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_batch),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
