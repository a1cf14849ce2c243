/* Checkpoints that are damaged, cut, foreign, of other versions or made to mislead: refused with what is wrong, never a crash, never wrong
 * bytes. The file of format version 1 in this folder must be readable for ever. */
#include "support.h"

#include "container_support.h"

static const struct zf_ckpt_options small = {.level = 1, .chunk = STANDARD_CHUNK};

#define GOOD(expr) \
    do { \
        if (expr) fail_msg("%s: %s: %s", #expr, e.where, e.message); \
    } while (0)

static unsigned char *standard_file(size_t *size)
{
    struct zf_err e;
    char *data;
    const char *path = in_folder("whole.zfc");
    GOOD(write_standard(path, &small, 1 << 20, &e));
    GOOD(zf_file_read(&data, size, path, 1 << 20, &e));
    unlink(path);
    return (unsigned char *)data;
}

/* Opens, verifies and reads all of it: ZF_OK only if every byte is the right one. Each finding says enough. */
static enum zf_status read_all(const char *path, struct zf_err *e)
{
    struct zf_ckpt c;
    enum zf_status s = zf_ckpt_open(&c, path, e), verified;
    struct zf_ckpt_damage d;
    size_t broken = 0;
    *e = s ? *e : (struct zf_err){0};
    if (s) {
        assert_null(c.list);
        assert_null(c.path);
        return s;
    }
    verified = zf_ckpt_verify(&c, NULL, &d, e);
    for (size_t i = 0; i < c.count; i++) {
        const struct zf_ckpt_tensor *t = &c.list[i];
        struct zf_err found;
        unsigned char *got = malloc((size_t)t->bytes + 1), *want = contents(i, t->type, (size_t)t->bytes);
        if (zf_ckpt_read(&c, t, got, 0, t->bytes, NULL, &found)) {
            assert_int_equal(found.code, ZF_FORMAT);
            assert_says(found.message, t->name);
            assert_ptr_equal(d.list[broken].tensor, t);
            broken++;
        } else if (i < STANDARD && t->bytes == standard_bytes(i)) {
            assert_memory_equal(got, want, (size_t)t->bytes);
        }
        free(got);
        free(want);
    }
    assert_int_equal(d.count, broken);
    assert_int_equal(verified, broken ? ZF_FORMAT : ZF_OK);
    zf_ckpt_close(&c);
    return verified;
}

static void expect_damage(const char *path, const char *says)
{
    struct zf_err e = {0};
    enum zf_status s = read_all(path, &e);
    if (s != ZF_FORMAT) fail_msg("%d, not %d, where this is expected: %s", s, ZF_FORMAT, says);
    assert_string_equal(e.where, path);
    assert_says(e.message, says);
}

static void test_truncated(void **state)
{
    (void)state;
    size_t size;
    char says[64];
    unsigned char *data = standard_file(&size);
    const char *path = in_folder("cut.zfc");
    for (size_t i = 0; i < 1000; i++) {
        size_t keep = i < 100 ? i : i >= 900 ? size - 1000 + i : 100 + (i - 100) * (size - 200) / 800;
        save(path, data, keep);
        snprintf(says, sizeof says, "it is truncated by %zu bytes: it has %zu of %zu", size - keep, keep, size);
        expect_damage(path, keep >= ZF_ZFC_EDGE ? says : keep > 8 ? "it is truncated: it has" : keep ? "no checkpoint" : "empty");
    }
    data = realloc(data, size + 3);
    memcpy(data + size, "abc", 3);
    save(path, data, size + 3);
    expect_damage(path, "3 bytes follow after its end");
    free(data);
}

/* Each of them is found: there is no byte in the file that nothing covers. */
static void test_flipped(void **state)
{
    (void)state;
    size_t size;
    unsigned char *data = standard_file(&size);
    const char *path = in_folder("flipped.zfc");
    for (size_t i = 0; i < 1100; i++) {
        uint32_t r = zf_philox(1, ZF_STREAM_TEST, i).v[0];
        size_t at = i < 48 ? i : i < 96 ? size - 96 + i : r % size;
        unsigned char old = data[at];
        data[at] ^= (unsigned char)(1 << (r >> 29));
        save(path, data, size);
        expect_damage(path, at < ZF_ZFC_EDGE ? "" : at >= size - ZF_ZFC_EDGE ? "" : "damaged");
        data[at] = old;
    }
    save(path, data, size);
    struct zf_err e;
    GOOD(read_all(path, &e));
    free(data);
}

static void test_named(void **state)
{
    (void)state;
    size_t size, seen = 0;
    struct zf_ckpt c;
    struct zf_err e;
    struct zf_ckpt_damage d, other;
    struct zf_pool *pool;
    char first[sizeof e.message];
    unsigned char *data = standard_file(&size), got[8192];
    const char *path = in_folder("named.zfc");
    save(path, data, size);
    GOOD(zf_ckpt_open(&c, path, &e));
    for (size_t t = 0; t < 5; t += 2) data[c.list[t].chunks[t ? 0 : 2].offset + 20] ^= 4;
    save(path, data, size);
    assert_int_equal(zf_ckpt_verify(&c, NULL, &d, &e), ZF_FORMAT);
    snprintf(first, sizeof first,
             "3 of %d tensors are damaged: \"weight\", \"other half\", \"bytes\"; the first: tensor \"weight\", chunk 3 of ", STANDARD);
    assert_says(e.message, first);
    assert_says(e.message, "use an older checkpoint");
    assert_int_equal(d.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(d.list[i].tensor, &c.list[2 * i]);
        assert_int_equal(d.list[i].chunk, i ? 0 : 2);
    }
    GOOD(zf_pool_new(&pool, 4, &e));
    snprintf(first, sizeof first, "%s", e.message);
    for (size_t i = 0; i < 20; i++) { /* which one is the first does not depend on who was faster */
        assert_int_equal(zf_ckpt_verify(&c, pool, &other, &e), ZF_FORMAT);
        assert_memory_equal(&d, &other, sizeof d);
        assert_string_equal(e.message, first);
        assert_int_equal(zf_ckpt_read(&c, &c.list[4], got, 0, 5000, pool, &e), ZF_FORMAT);
        seen += strstr(e.message, "tensor \"bytes\", chunk 1 of 5") != NULL;
        GOOD(zf_ckpt_read(&c, &c.list[4], got, STANDARD_CHUNK, 5000 - STANDARD_CHUNK, pool, &e)); /* the sound part of it */
    }
    assert_int_equal(seen, 20);
    assert_int_equal(truncate(path, 4000), 0); /* while it is open */
    assert_int_equal(zf_ckpt_read(&c, &c.list[1], got, 0, 5, NULL, &e), ZF_FORMAT);
    assert_says(e.message, "somebody cuts it");
    zf_pool_free(pool);
    zf_ckpt_close(&c);
    free(data);
    unlink(path);
}

/* More damaged tensors than are listed. */
static void test_many(void **state)
{
    (void)state;
    struct zf_ckpt_writer *w;
    struct zf_ckpt c;
    struct zf_err e;
    struct zf_ckpt_damage d;
    const uint64_t n = 64;
    unsigned char data[64] = {1};
    char name[32], *text;
    size_t size;
    const char *path = in_folder("many.zfc");
    GOOD(zf_ckpt_create(&w, path, &small, &e));
    for (int i = 0; i < 40; i++) {
        sprintf(name, "a tensor of number %d", i);
        GOOD(zf_ckpt_begin(w, name, ZF_CKPT_U8, 1, &n, &e));
        GOOD(zf_ckpt_put(w, data, n, &e));
    }
    GOOD(zf_ckpt_finish(w, NULL, &e));
    GOOD(zf_ckpt_open(&c, path, &e));
    GOOD(zf_file_read(&text, &size, path, 1 << 20, &e));
    for (size_t i = 0; i < 40; i++) text[c.list[i].offset + 5]++;
    save(path, text, size);
    assert_int_equal(zf_ckpt_verify(&c, NULL, &d, &e), ZF_FORMAT);
    assert_int_equal(d.count, 40);
    assert_says(e.message, "40 of 40 tensors are damaged");
    assert_says(e.message, "\"a tensor of number 15\", ...; the first");
    zf_ckpt_close(&c);
    free(text);
    unlink(path);
}

static void test_foreign(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } files[] = {
#define BYTES(s) s, sizeof s - 1
        {BYTES(""), "it is empty"},
        {BYTES("\x80\1\0\0\0\0\0\0{\"weight\":{\"dtype\":\"F32\",\"shape\":[2]}}"), "safetensors"},
        {BYTES("PK\3\4\0\0\x08\x08\0\0archive/data.pkl"), "a zip, as torch.save writes it"},
        {BYTES("\x28\xb5\x2f\xfd\x24\x05\x29\0\0hello\x9a\xb1\x11\x2d..........................................."), "zstd compressed"},
        {BYTES("\x1f\x8b\x08\0"), "gzip"},
        {BYTES("GGUF\3\0\0\0"), "GGUF"},
        {BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
         "begins with zeros"},
        {BYTES("model = SmolLM2\n[at]\nstep 5: save, and so on until the line is full\n"), "it looks like text"},
        {BYTES("hello"), "it looks like text"},
        {BYTES("\x50\x2a\x4d\x18\x28\0\0\0zenflow check"), "it is truncated: it has 21 bytes, its header alone takes 48"},
#undef BYTES
    };
    struct zf_ckpt c;
    struct zf_err e;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = in_folder("foreign.zfc");
        save(path, files[i].bytes, files[i].size);
        expect_damage(path, files[i].says);
    }
    assert_int_equal(zf_ckpt_open(&c, in_folder("absent"), &e), ZF_FORMAT);
    assert_says(e.message, "cannot open it");
    assert_int_equal(zf_ckpt_open(&c, folder, &e), ZF_FORMAT);
    assert_says(e.message, "a directory");
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(zf_ckpt_open(&c, in_folder("fifo"), &e), ZF_FORMAT);
}

/* What a process that was killed leaves beside the name. */
static void test_interrupted(void **state)
{
    (void)state;
    struct zf_ckpt_writer *w;
    struct zf_err e;
    char beside[600], copy[600];
    snprintf(copy, sizeof copy, "%s", in_folder("copy.zfc"));
    GOOD(zf_ckpt_create(&w, in_folder("half.zfc"), &small, &e));
    snprintf(beside, sizeof beside, "%s.tmp-%ld", in_folder("half.zfc"), (long)getpid());
    GOOD(put_standard(w, 1 << 20, &e));
    GOOD(zf_file_copy(beside, copy, &e));
    zf_ckpt_abandon(w);
    expect_damage(copy, "writing it was interrupted");
}

/* The member at "a.0.b" of `root` becomes the JSON `to`; NULL: it goes. */
static void edit(json_t *root, const char *path, const char *to)
{
    char words[128], *rest = words, *word = NULL, *next;
    json_t *value = to ? json_loads(to, JSON_DECODE_ANY, NULL) : NULL;
    if (to) assert_non_null(value);
    snprintf(words, sizeof words, "%s", path);
    word = strsep(&rest, ".");
    while ((next = strsep(&rest, "."))) {
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(word)) : json_object_get(root, word);
        assert_non_null(root);
        word = next;
    }
    if (json_is_array(root))
        assert_int_equal(to ? json_array_set_new(root, (size_t)atoi(word), value) : json_array_remove(root, (size_t)atoi(word)), 0);
    else
        assert_int_equal(to ? json_object_set_new(root, word, value) : json_object_del(root, word), 0);
}

static const struct {
    const char *path, *to, *says; /* to NULL: it is not there; says NULL: the file is as good as before */
} edits[] = {
    {"version", "2", "another \"version\""},
    {"version", NULL, "another \"version\""},
    {"version", "\"1\"", "another \"version\""},
    {"needs", NULL, "no list \"needs\""},
    {"needs", "{}", "no list \"needs\""},
    {"needs", "[1]", "entry 0 of \"needs\""},
    {"needs", "[\"planes\",\"deltas\"]", "it needs \"deltas\", which this program does not know: use a newer"},
    {"needs", "[]", NULL},
    {"chunk", NULL, "\"chunk\""},
    {"chunk", "0", "\"chunk\""},
    {"chunk", "-8", "\"chunk\""},
    {"chunk", "1025", "\"chunk\""},
    {"chunk", "33554432", "\"chunk\""},
    {"chunk", "2048", "another number of chunks"},
    {"chunk", "1032", "damaged"},
    {"tensors", NULL, "no list \"tensors\""},
    {"tensors", "{}", "no list \"tensors\""},
    {"tensors.0", "5", "tensor 0 (\"\"): a name"},
    {"tensors.0", "{}", "tensor 0 (\"\"): a name"},
    {"info", NULL, "no object \"info\""},
    {"info", "[]", "no object \"info\""},
    {"info.step", "501", NULL},
    {"colour", "\"blue\"", NULL},
    {"tensors.0.colour", "[{}]", NULL},
    {"tensors.0.name", NULL, "a name"},
    {"tensors.0.name", "3", "a name"},
    {"tensors.0.name", "\"\"", "a name"},
    {"tensors.0.name", "\"a\\nb\"", "a name"},
    {"tensors.0.name", "\"half\"", "two tensors have the name \"half\""},
    {"tensors.0.dtype", NULL, "tensor 0 (\"weight\"): its dtype is not known"},
    {"tensors.0.dtype", "\"f31\"", "its dtype is not known"},
    {"tensors.0.dtype", "\"bf16\"", "another number of chunks"},
    {"tensors.0.dtype", "\"f64\"", "cannot have planes"},
    {"tensors.0.dtype", "\"i32\"", NULL},
    {"tensors.0.shape", NULL, "its shape is no list"},
    {"tensors.0.shape", "7", "its shape is no list"},
    {"tensors.0.shape", "[1,1,1,1,1,1,1,1,2993]", "its shape is no list of at most 8"},
    {"tensors.0.shape", "[41,74]", "fewer bytes"},
    {"tensors.0.shape", "[41,72]", "damaged"},
    {"tensors.0.shape", "[41,7]", "another number of chunks"},
    {"tensors.0.shape", "[41,-73]", "something else than sizes"},
    {"tensors.0.shape", "[41,73.0]", "something else than sizes"},
    {"tensors.0.shape", "[4611686018427387904,4]", "absurd"},
    {"tensors.0.shape", "[0,4611686018427387904,4]", "absurd"},
    {"tensors.0.shape", "[4294967296,4294967296,4294967296]", "absurd"},
    {"tensors.0.shape", "[1000000000000]", "another number of chunks"},
    {"tensors.0.shape", "[73,1,41]", NULL},
    {"tensors.0.filter", NULL, "its filter is not known"},
    {"tensors.0.filter", "\"deltas\"", "its filter is not known"},
    {"tensors.0.filter", "\"none\"", "damaged"},
    {"tensors.4.filter", "\"planes\"", "cannot have planes"},
    {"tensors.6.filter", "\"none\"", NULL}, /* of the empty one */
    {"tensors.0.offset", NULL, "no place in the file"},
    {"tensors.0.offset", "-1", "no place in the file"},
    {"tensors.0.offset", "9223372036854775807", "no place in the file"},
    {"tensors.0.offset", "0", "overlaps"},
    {"tensors.0.offset", "47", "overlaps"},
    {"tensors.1.offset", "48", "tensor 1 (\"half\"): it overlaps"},
    {"tensors.0.offset", "49", "overlaps"}, /* the next one */
    {"tensors.9.offset", "1000000", "no place in the file"},
    {"tensors.0.stored", NULL, "another number of chunks"},
    {"tensors.0.stored", "12", "another number of chunks"},
    {"tensors.0.stored.11", NULL, "another number of chunks"},
    {"tensors.0.stored.0", "0", "a number of bytes that it cannot have"},
    {"tensors.0.stored.0", "-5", "a number of bytes that it cannot have"},
    {"tensors.0.stored.0", "null", "a number of bytes that it cannot have"},
    {"tensors.0.stored.0", "4294967296", "a number of bytes that it cannot have"},
    {"tensors.0.stored.0", "1545", "a number of bytes that it cannot have"},
    {"tensors.0.stored.0", "3", "damaged"},
    {"tensors.9.stored.0", "1500", "do not fit into the file"},
    {"tensors.0.xxh3", NULL, "\"xxh3\" has not as many"},
    {"tensors.0.xxh3", "{}", "\"xxh3\" has not as many"},
    {"tensors.0.xxh3.3", NULL, "\"xxh3\" has not as many"},
    {"tensors.0.xxh3.3", "5", "hexadecimal"},
    {"tensors.0.xxh3.3", "\"12345\"", "hexadecimal"},
    {"tensors.0.xxh3.3", "\"000000000000000G\"", "hexadecimal"},
    {"tensors.0.xxh3.3", "\"0000000000000000\"", "tensor \"weight\", chunk 4 of 12"},
};

static void test_index(void **state)
{
    (void)state;
    size_t size, length;
    struct zf_ckpt c;
    struct zf_err e;
    unsigned char *file = standard_file(&size);
    const char *path = in_folder("index.zfc");
    size_t bytes = (size_t)zf_zfc_get(file + size - ZF_ZFC_EDGE + ZF_ZFC_INDEX_AT, 8) - ZF_ZFC_EDGE;
    save(path, file, size);
    GOOD(zf_ckpt_open(&c, path, &e));
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        json_t *index = json_deep_copy(c.index);
        edit(index, edits[i].path, edits[i].to);
        char *text = json_dumps(index, JSON_COMPACT);
        unsigned char *made = assemble_text(file + ZF_ZFC_EDGE, bytes, text, strlen(text), 1, &length);
        save(path, made, length);
        if (edits[i].says)
            expect_damage(path, edits[i].says);
        else if (read_all(path, &e))
            fail_msg("%s = %s: %s", edits[i].path, edits[i].to, e.message);
        free(made);
        free(text);
        json_decref(index);
    }
    zf_ckpt_close(&c);
    free(file);
}

/* Indexes that are none, and what a later version would say. */
static void test_whole_indexes(void **state)
{
    (void)state;
#define EMPTY "{\"version\":1,\"needs\":[],\"chunk\":1024,\"tensors\":[],\"info\":{},\"later\":[7]}"
    static const struct {
        const char *text;
        unsigned version;
        const char *says;
    } rows[] = {
        {EMPTY, 2, "it has checkpoint format version 2; this program reads up to 1: use a newer"},
        {EMPTY, 0, "format version 0"},
        {EMPTY "x", 1, "its index is no JSON"},
        {"{", 1, "its index is no JSON"},
        {"[1]", 1, "another \"version\""},
        {"{\"version\":1,\"version\":1}", 1, "duplicate"},
    };
    struct zf_ckpt c;
    struct zf_err e;
    size_t size;
    const char *path = in_folder("index.zfc");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char *file = assemble_text("", 0, rows[i].text, strlen(rows[i].text), rows[i].version, &size);
        save(path, file, size);
        expect_damage(path, rows[i].says);
        free(file);
    }
    unsigned char *file = assemble_text("bytes of a later version", 24, EMPTY, strlen(EMPTY), 1, &size);
    save(path, file, size);
    free(file);
    GOOD(zf_ckpt_open(&c, path, &e)); /* what it does not know it keeps */
    assert_int_equal(json_integer_value(json_array_get(json_object_get(c.index, "later"), 0)), 7);
    assert_null(zf_ckpt_find(&c, "weight"));
    GOOD(zf_ckpt_verify(&c, NULL, NULL, &e));
    zf_ckpt_close(&c);
    /* No frame; one that announces a terabyte; one that announces more than it has; nothing. */
    static const char *const frames[] = {"this is no frame of zstd", "\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\1\0\0\x23\0\0",
                                         "\x28\xb5\x2f\xfd\x20\x30\x0b\0\0A"};
    static const size_t lengths[] = {24, 16, 10};
    for (size_t i = 0; i < 4; i++) {
        file = assemble("", 0, i < 3 ? frames[i] : "", i < 3 ? lengths[i] : 0, 1, &size);
        save(path, file, size);
        expect_damage(path, "its index");
        free(file);
    }
}

/* Written by make_container.c of version 1, and never again: it must be readable for ever. */
static void test_version_1(void **state)
{
    (void)state;
    struct zf_ckpt c;
    struct zf_err e;
    char path[512];
    const char *source = getenv("ZF_SOURCE");
    snprintf(path, sizeof path, "%s/tests/checkpoints/container-1.zfc", source ? source : ".");
    if (!zf_file_exists(path)) {
        print_message("skipped: %s is not there (ZF_SOURCE)\n", path);
        skip();
    }
    GOOD(read_all(path, &e));
    GOOD(zf_ckpt_open(&c, path, &e));
    assert_int_equal(c.count, STANDARD);
    for (size_t i = 0; i < STANDARD; i++) {
        assert_string_equal(c.list[i].name, standard[i].name);
        assert_int_equal(c.list[i].type, standard[i].type);
        assert_int_equal(c.list[i].bytes, standard_bytes(i));
    }
    assert_int_equal(json_integer_value(json_object_get(c.info, "step")), 500);
    zf_ckpt_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped),       cmocka_unit_test(test_named),
        cmocka_unit_test(test_many),      cmocka_unit_test(test_foreign),       cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_index),     cmocka_unit_test(test_whole_indexes), cmocka_unit_test(test_version_1),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
