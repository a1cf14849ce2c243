/* Model folders: one message for each way in which one can be broken; written folders read back. */
#include "support.h"

#include "checkpoints/hf.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

#define INDEX "m/model.safetensors.index.json"
#define TWO_F32(name) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void new_model(void)
{
    remove_tree(in_folder("m"));
    assert_int_equal(mkdir(in_folder("m"), 0777), 0);
    save_text(in_folder("m/config.json"), "{\"model_type\":\"llama\"}");
}

/* Two shards, a in one.st and b in two.st. */
static void new_sharded(const char *index)
{
    new_model();
    save_text(in_folder(INDEX), index);
    save_frame(in_folder("m/one.st"), "{" TWO_F32("a") "}", 8);
    save_frame(in_folder("m/two.st"), "{" TWO_F32("b") "}", 8);
}

static void refused(enum zf_status status, const char *path, const char *says)
{
    struct zf_hf h;
    struct zf_err e = {0};
    enum zf_status got = zf_hf_open(&h, path, &e);
    if (got != status) fail_msg("%d, not %d: %s: %s", got, status, e.where, got ? e.message : "");
    assert_says(e.message, says);
    assert_null(h.config);
    assert_null(h.files);
}

static void accepted(const char *path, size_t files, size_t tensors, const char *note)
{
    struct zf_hf h;
    struct zf_err e = {0};
    if (zf_hf_open(&h, path, &e)) fail_msg("%s: %s", e.where, e.message);
    assert_int_equal(h.file_count, files);
    assert_int_equal(zf_hf_tensor_count(&h), tensors);
    if (*note)
        assert_says(h.note, note);
    else
        assert_string_equal(h.note, "");
    const char *file = NULL;
    for (size_t i = 0; i < tensors; i++) assert_non_null(zf_hf_tensor(&h, i, &file));
    assert_string_equal(file, h.file_names[files - 1]);
    assert_null(zf_hf_tensor(&h, tensors, &file));
    zf_hf_close(&h);
}

static void test_folder(void **state)
{
    (void)state;
    const char *m = in_folder("m");
    remove_tree(m);
    refused(ZF_FORMAT, m, "does not exist");
    save_text(m, "x");
    refused(ZF_FORMAT, m, "not a folder");
    refused(ZF_FORMAT, in_folder("m/inner"), "does not exist");
    unlink(m);
    mkdir(m, 0777);
    refused(ZF_FORMAT, m, "no config.json");
    save_text(in_folder("m/adapter_config.json"), "{}");
    refused(ZF_FORMAT, m, "adapter (LoRA)");
    assert_int_equal(symlink("absent", in_folder("m/config.json")), 0);
    refused(ZF_FORMAT, m, "a link to a file that does not exist");
    unlink(in_folder("m/config.json"));
    save_text(in_folder("m/config.json"), "{\n  \"model_type\": llama\n}");
    refused(ZF_FORMAT, m, "no valid JSON");
    struct zf_hf h;
    struct zf_err e;
    assert_int_equal(zf_hf_open(&h, m, &e), ZF_FORMAT);
    assert_says(e.where, "m/config.json:2:");
    save_text(in_folder("m/config.json"), "[1]");
    refused(ZF_FORMAT, m, "no object");
}

static void test_no_weights(void **state)
{
    (void)state;
    const char *m = in_folder("m");
    new_model();
    refused(ZF_FORMAT, m, "the weights are missing");
    save_text(in_folder("m/training_args.bin"), "x");
    refused(ZF_FORMAT, m, "the weights are missing");
    save_text(in_folder("m/pytorch_model.bin"), "PK");
    refused(ZF_FORMAT, m, "only as a pickle (pytorch_model.bin)");
    refused(ZF_FORMAT, m, "save_pretrained");
    save_text(in_folder("m/consolidated.safetensors"), "x");
    refused(ZF_FORMAT, m, "only others such as consolidated.safetensors");
    assert_int_equal(symlink("absent", in_folder("m/model.safetensors")), 0);
    refused(ZF_FORMAT, m, "incomplete");
    new_model();
    save_text(in_folder("m/model.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 949792\n");
    refused(ZF_FORMAT, m, "Git-LFS pointer");
    struct zf_hf h;
    struct zf_err e;
    assert_int_equal(zf_hf_open_config(&h, m, &e), ZF_OK);
    assert_string_equal(json_string_value(json_object_get(h.config, "model_type")), "llama");
    assert_int_equal(zf_hf_tensor_count(&h), 0);
    assert_null(zf_hf_tensor(&h, 0, NULL));
    zf_hf_close(&h);
}

static void test_index(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
    } broken[] = {
        {"", "no valid JSON"},
        {"[]", "weight_map"},
        {"{\"metadata\":{}}", "weight_map"},
        {"{\"weight_map\":{}}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "no string"},
        {"{\"weight_map\":{\"a\":\"\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"../one.st\"}}", "\"../one.st\""},
        {"{\"weight_map\":{\"a\":\"..\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"one.st\\u0000x\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"\\u001b[2J\"}}", "\"\\x1b[2J\""},
        {"{\"weight_map\":{\"a\":\"one.st\",\"a\":\"two.st\"}}", "\"a\""},
        {"{\"weight_map\":{\"a\":\"one.st\",\"b\":\"three.st\",\"c\":\"four.st\"}}", "shard four.st is missing (2 of 3"},
        {"{\"weight_map\":{\"a\":\"one.st\",\"b\":\"three.st\"}}", "tensor \"b\""},
        {"{\"weight_map\":{\"a\":\"one.st\",\"b\":\"two.st\",\"c\":\"two.st\"}}",
         "shard two.st lacks tensor \"c\", which the index maps to it and no other"},
        {"{\"weight_map\":{\"a\":\"two.st\",\"b\":\"one.st\"}}", "it is in one.st"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        new_sharded(broken[i].index);
        refused(ZF_FORMAT, in_folder("m"), broken[i].says);
    }
}

static void test_shards(void **state)
{
    (void)state;
    static const char fine[] = "{\"metadata\":{\"total_size\":16,\"x\":[]},\"weight_map\":{\"b\":\"two.st\",\"a\":\"one.st\"}}";
    const char *m = in_folder("m");
    new_sharded(fine);
    accepted(m, 2, 2, "");
    accepted(in_folder("m//"), 2, 2, "");
    save_text(in_folder("m/three.safetensors"), "junk");
    accepted(m, 2, 2, "three.safetensors is ignored");
    save_text(in_folder("m/four.safetensors"), "junk");
    accepted(m, 2, 2, "1 more safetensors files are ignored");
    new_sharded("{\"metadata\":{\"total_size\":17},\"weight_map\":{\"b\":\"two.st\",\"a\":\"one.st\"}}");
    accepted(m, 2, 2, "total_size 17, the tensors have 16");
    new_sharded(fine);
    save_frame(in_folder("m/two.st"), "{" TWO_F32("b") ",\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}", 9);
    refused(ZF_FORMAT, m, "tensor \"a\" is in two shards, one.st and two.st");
    save_frame(in_folder("m/two.st"), "{" TWO_F32("b") ",\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}", 9);
    accepted(m, 2, 3, "not in the index, the first is \"c\"");
    save_frame(in_folder("m/two.st"), "{" TWO_F32("b") "}", 7);
    refused(ZF_FORMAT, m, "truncated by 1 bytes");
    save_frame(in_folder("m/model.safetensors"), "{" TWO_F32("s") "}", 8);
    accepted(m, 1, 1, "index.json is ignored");
}

static enum zf_status give(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct zf_hf_write *w = ctx;
    size_t bytes;
    assert_int_equal(zf_st_entry_bytes(&bytes, &w->entries[index], e), ZF_OK);
    if (!strcmp(w->entries[index].name, "broken")) return zf_fail(e, ZF_NUMERIC, NULL, "it broke");
    while (bytes) {
        unsigned char data[1000];
        size_t n = bytes < sizeof data ? bytes : sizeof data;
        memset(data, (int)index + 1, n);
        ZF_TRY(zf_st_put(sink, data, n, e));
        bytes -= n;
    }
    return ZF_OK;
}

static const struct zf_st_entry entries[] = {
    {"wte", ZF_ST_BF16, 2, {100, 8}}, {"h.0", ZF_ST_BF16, 1, {600}},  {"h.1", ZF_ST_BF16, 1, {600}},
    {"ids", ZF_ST_I64, 1, {3}},       {"h.2", ZF_ST_BF16, 1, {5000}}, {"norm", ZF_ST_BF16, 1, {8}},
};

static struct zf_hf_write a_write(const json_t *config)
{
    return (struct zf_hf_write){
        .out = in_folder("out"), .config = config, .type = ZF_ST_BF16, .entries = entries, .count = 6, .source = give};
}

static void written(struct zf_hf_write w, size_t files)
{
    struct zf_err e;
    struct zf_hf h;
    w.ctx = &w;
    if (zf_hf_write(&w, &e)) fail_msg("%s: %s", e.where, e.message);
    assert_int_equal(entries_in(folder), 2); /* out, m */
    accepted(w.out, files, w.count, "");
    assert_int_equal(zf_hf_open(&h, w.out, &e), ZF_OK);
    for (size_t i = 0; i < w.count; i++) {
        const struct zf_st_tensor *t = NULL;
        for (size_t f = 0; f < files && !t; f++) t = zf_st_find(&h.files[f], w.entries[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, w.entries[i].type);
        assert_int_equal(t->rank, w.entries[i].rank);
        for (size_t b = 0; b < t->bytes; b++) assert_int_equal(t->data[b], i + 1);
    }
    zf_hf_close(&h);
}

static void expect_text(const char *path, const char *text)
{
    char *got;
    struct zf_err e;
    assert_int_equal(zf_file_read(&got, NULL, path, 1 << 20, &e), ZF_OK);
    assert_string_equal(got, text);
    free(got);
}

static void test_write(void **state)
{
    (void)state;
    new_model();
    save_text(in_folder("m/tokenizer.json"), "{ \"x\" : 1 }\r\n");
    save_text(in_folder("m/chat_template.jinja"), "{{ x }}");
    save_text(in_folder("m/unrelated.txt"), "x");
    json_t *config =
        json_loads("{\"rms_norm_eps\":1e-05,\"torch_dtype\":\"float32\",\"x\":0.1,\"third\":0.33333333333333331,\"n\":null}", 0, NULL);
    assert_non_null(config);
    struct zf_hf_write w = a_write(config);
    w.tokenizer_from = in_folder("m");
    written(w, 1);
    assert_int_equal(entries_in(w.out), 4);
    expect_text(in_folder("out/config.json"), "{\n  \"rms_norm_eps\": 1e-5,\n  \"torch_dtype\": \"bfloat16\",\n  \"x\": 0.1,\n"
                                              "  \"third\": 0.3333333333333333,\n  \"n\": null\n}\n");
    assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "float32"); /* the caller's is untouched */
    expect_text(in_folder("out/tokenizer.json"), "{ \"x\" : 1 }\r\n");
    expect_text(in_folder("out/chat_template.jinja"), "{{ x }}");
    /* Exists: refused, whatever it is. */
    struct zf_err e;
    w.ctx = &w;
    assert_int_equal(zf_hf_write(&w, &e), ZF_IO);
    assert_says(e.message, "exists already");
    remove_tree(w.out);
    mkdir(w.out, 0777);
    assert_int_equal(zf_hf_write(&w, &e), ZF_IO);
    assert_int_equal(entries_in(folder), 2);
    rmdir(w.out);
    json_decref(config);
}

static void test_type_key(void **state)
{
    (void)state;
    static const struct {
        const char *config, *expect;
    } cases[] = {
        {"{}", "{\n  \"torch_dtype\": \"bfloat16\"\n}\n"},
        {"{\"dtype\":\"float16\"}", "{\n  \"dtype\": \"bfloat16\"\n}\n"},
        {"{\"x\":0.02,\"torch_dtype\":\"float16\",\"dtype\":\"float32\"}",
         "{\n  \"x\": 0.02,\n  \"torch_dtype\": \"bfloat16\",\n  \"dtype\": \"bfloat16\"\n}\n"},
    };
    new_model();
    for (size_t i = 0; i < 3; i++) {
        json_t *config = json_loads(cases[i].config, 0, NULL);
        written(a_write(config), 1);
        expect_text(in_folder("out/config.json"), cases[i].expect);
        json_decref(config);
        remove_tree(in_folder("out"));
    }
}

/* A config.json that says what is to be written is not written anew. */
static void test_same_config(void **state)
{
    (void)state;
    static const struct {
        const char *theirs, *expect;
    } cases[] = {
        {"{ \"torch_dtype\":\"bfloat16\",\r\n\"x\": 1.0e-05 }", "{ \"torch_dtype\":\"bfloat16\",\r\n\"x\": 1.0e-05 }"},
        {"{\"torch_dtype\":\"float32\", \"x\": 1.0e-05}", "{\n  \"torch_dtype\": \"bfloat16\",\n  \"x\": 1e-5\n}\n"},
        {"{\"torch_dtype\":\"bfloat16\", \"x\": 1.0e-06}", "{\n  \"torch_dtype\": \"bfloat16\",\n  \"x\": 1e-5\n}\n"},
        {"{\"torch_dtype\":\"bfloat16\"", "{\n  \"torch_dtype\": \"bfloat16\",\n  \"x\": 1e-5\n}\n"},
    };
    json_t *config = json_loads("{\"torch_dtype\":\"float32\",\"x\":1e-5}", 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        new_model();
        save_text(in_folder("m/config.json"), cases[i].theirs);
        struct zf_hf_write w = a_write(config);
        w.tokenizer_from = in_folder("m");
        written(w, 1);
        expect_text(in_folder("out/config.json"), cases[i].expect);
        remove_tree(w.out);
    }
    json_decref(config);
}

static void test_write_sharded(void **state)
{
    (void)state;
    new_model();
    json_t *config = json_object();
    struct zf_hf_write w = a_write(config);
    w.shard_limit = 2800; /* wte + h.0 = 2800 | h.1 + ids = 1224 | h.2 alone, over the limit | norm */
    written(w, 4);
    struct zf_hf h;
    struct zf_err e;
    assert_int_equal(zf_hf_open(&h, w.out, &e), ZF_OK);
    assert_string_equal(h.file_names[0], "model-00001-of-00004.safetensors");
    assert_int_equal(h.files[0].count, 2);
    assert_int_equal(h.files[1].count, 2);
    assert_string_equal(h.files[2].list[0].name, "h.2");
    assert_string_equal(h.files[3].list[0].name, "norm");
    zf_hf_close(&h);
    json_t *index;
    assert_int_equal(zf_json_file(&index, in_folder("out/model.safetensors.index.json"), 1 << 20, &e), ZF_OK);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), 14040);
    assert_int_equal(json_object_size(json_object_get(index, "weight_map")), 6);
    json_decref(index);
    remove_tree(w.out);
    json_decref(config);
}

static void write_fails(struct zf_hf_write w, enum zf_status status, const char *says)
{
    struct zf_err e = {0};
    w.ctx = &w;
    enum zf_status got = zf_hf_write(&w, &e);
    if (got != status) fail_msg("%d, not %d: %s", got, status, e.message);
    assert_says(e.message, says);
    assert_int_equal(entries_in(folder), 1); /* m */
}

static void test_write_failures(void **state)
{
    (void)state;
    new_model();
    json_t *config = json_object(), *array = json_array();
    struct zf_hf_write w = a_write(config);
    struct zf_st_entry list[6];
    w.shard_limit = 2800;
    w.entries = list;
    memcpy(list, entries, sizeof entries);
    list[5].name = "broken";
    write_fails(w, ZF_NUMERIC, "it broke");
    list[5].name = "wte"; /* in another shard than the first */
    write_fails(w, ZF_FORMAT, "two tensors have the name \"wte\"");
    list[5].name = "\xff";
    write_fails(w, ZF_FORMAT, "UTF-8");
    list[5] = entries[5];
    list[5].type = ZF_ST_F32;
    write_fails(w, ZF_FORMAT, "\"norm\" is F32, but the folder is to be BF16");
    list[5] = entries[5];
    list[5].shape[0] = SIZE_MAX;
    write_fails(w, ZF_FORMAT, "64 bits");
    list[5] = entries[5];
    w.type = ZF_ST_F64;
    write_fails(w, ZF_FORMAT, "F64");
    w.type = ZF_ST_BF16;
    w.config = array;
    write_fails(w, ZF_FORMAT, "config.json");
    w.config = config;
    w.out = "";
    write_fails(w, ZF_IO, "empty");
    w.out = in_folder("m/config.json/out");
    write_fails(w, ZF_IO, "Not a directory");
    w.out = in_folder("out");

    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 5000; /* the third shard does not fit: a full disk */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    write_fails(w, ZF_IO, strerror(EFBIG));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);

    struct zf_st_entry huge = {"huge", ZF_ST_BF16, 2, {1 << 30, 1 << 29}};
    w.entries = &huge;
    w.count = 1;
    w.shard_limit = 0;
    write_fails(w, ZF_IO, "1152921504607 MB are needed, and");
    json_decref(config);
    json_decref(array);
}

static void a_folder(const char *name)
{
    char inside[64];
    snprintf(inside, sizeof inside, "%s/model.safetensors", name);
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
    save_text(in_folder(inside), "half");
}

/* What a killed process left is removed by the next that writes the same; what another one writes, or is called otherwise, is not. */
static void test_left_behind(void **state)
{
    (void)state;
    static const char *const stay[] = {"out.tmp-2", "out.tmp-", "out.tmp-3x", "out2.tmp-4", "xout.tmp-5"};
    char own[64];
    new_model();
    json_t *config = json_object();
    struct zf_hf_write w = a_write(config);
    struct zf_err e;
    snprintf(own, sizeof own, "out.tmp-%ld", (long)getpid());
    a_folder(own);
    a_folder("out.tmp-1");
    for (size_t i = 0; i < 5; i++) a_folder(stay[i]);
    int held = open(in_folder("out.tmp-2"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
    w.ctx = &w;
    if (zf_hf_write(&w, &e)) fail_msg("%s: %s", e.where, e.message);
    accepted(w.out, 1, 6, "");
    assert_int_equal(entries_in(folder), 7); /* m, out */
    close(held);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(entries_in(in_folder(stay[i])), 1);
        remove_tree(in_folder(stay[i]));
    }
    remove_tree(w.out);
    json_decref(config);
}

static void test_write_parents(void **state)
{
    (void)state;
    new_model();
    json_t *config = json_object();
    struct zf_hf_write w = a_write(config);
    struct zf_err e;
    w.ctx = &w;
    w.out = in_folder("m/deep/er/out/");
    if (zf_hf_write(&w, &e)) fail_msg("%s: %s", e.where, e.message);
    assert_int_equal(entries_in(in_folder("m/deep/er")), 1);
    accepted(in_folder("m/deep/er/out"), 1, 6, "");
    json_decref(config);
}

/* Real folders are read. */
static void test_shared_folders(void **state)
{
    (void)state;
    static const char *const names[] = {"golden/families/llama2-plain", "golden/families/gpt2-plain", "data/models/stories260K-hf",
                                        "data/models/capp-gpt2"};
    const char *shared = getenv("ZF_SHARED");
    char path[600];
    size_t found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct zf_hf h;
        struct zf_err e;
        snprintf(path, sizeof path, "%s/%s", shared ? shared : "", names[i]);
        if (!shared || !zf_directory_exists(path)) continue;
        found++;
        if (zf_hf_open(&h, path, &e)) fail_msg("%s: %s", e.where, e.message);
        assert_int_equal(h.file_count, 1);
        assert_true(zf_hf_tensor_count(&h) > 10);
        if (strstr(path, "golden")) assert_says(h.note, "golden.safetensors is ignored");
        zf_hf_close(&h);
    }
    if (!found) {
        print_message("skipped: no model folders under %s (ZF_SHARED)\n", shared ? shared : "");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),      cmocka_unit_test(test_no_weights),    cmocka_unit_test(test_index),
        cmocka_unit_test(test_shards),      cmocka_unit_test(test_write),         cmocka_unit_test(test_type_key),
        cmocka_unit_test(test_same_config), cmocka_unit_test(test_write_sharded), cmocka_unit_test(test_write_failures),
        cmocka_unit_test(test_left_behind), cmocka_unit_test(test_write_parents), cmocka_unit_test(test_shared_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
