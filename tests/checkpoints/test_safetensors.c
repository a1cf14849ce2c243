/* The safetensors reader: every finding, by hand-made bytes; the guesses; values; random mutations. */
#include "support.h"

#include "checkpoints/safetensors.h"
#include "core/base/json.h"
#include "core/base/rng.h"
#include <math.h>

#define ENTRY(name, type, shape, offsets) "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32_2 ENTRY("a", "F32", "[2]", "[0,8]")

static const struct {
    const char *header;
    size_t bytes;
    const char *finding, *also; /* NULL: it is fine */
} cases[] = {
    {"{}", 0, NULL, NULL},
    {" \t\r\n{} \n", 0, NULL, NULL},
    {"{" F32_2 "}", 8, NULL, NULL},
    {"{" ENTRY("scalar", "BF16", "[]", "[0,2]") "}", 2, NULL, NULL},
    {"{" ENTRY("empty", "F32", "[3,0,2]", "[0,0]") "," F32_2 "}", 8, NULL, NULL},
    {"{" ENTRY("b", "U8", "[3]", "[8,11]") "," F32_2 "}", 11, NULL, NULL},
    {"{\"__metadata__\":null," F32_2 "}", 8, NULL, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\",\"b\":\"\"}," F32_2 "}", 8, NULL, NULL},
    {"{\"a\":{\"x\":[{\"y\":1.5}],\"data_offsets\":[0,8],\"shape\":[2],\"dtype\":\"F32\"}}", 8, NULL, NULL},
    {"{" ENTRY("four", "F4", "[4]", "[0,2]") "}", 2, NULL, NULL},
    {"{" ENTRY("six", "F6_E2M3", "[4]", "[0,3]") "}", 3, NULL, NULL},

    {"", 0, "InvalidHeaderDeserialization", "at byte 8"},
    {"{", 0, "InvalidHeaderDeserialization", "at byte 9"},
    {"[]", 0, "InvalidHeaderDeserialization", "object"},
    {"{}x", 0, "InvalidHeaderDeserialization", "at byte 10"},
    {"{}{}", 0, "InvalidHeaderDeserialization", "at byte 10"},
    {"{" F32_2 ",}", 8, "InvalidHeaderDeserialization", "a name"},
    {"{" F32_2 " " F32_2 "}", 8, "InvalidHeaderDeserialization", "comma"},
    {"{\"a\" 1}", 0, "InvalidHeaderDeserialization", "colon"},
    {"{\"a\":[]}", 0, "InvalidHeaderDeserialization", "tensor \"a\""},
    {"{\"a\":{}}", 0, "InvalidHeaderDeserialization", "dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", 8, "InvalidHeaderDeserialization", "tensor \"a\""},
    {"{" ENTRY("a", "F33", "[2]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "dtype"},
    {"{" ENTRY("a", "F32", "2", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{" ENTRY("a", "F32", "[2.0]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{" ENTRY("a", "F32", "[-2]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{" ENTRY("a", "F32", "[\"2\"]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "16 dimensions"},
    {"{" ENTRY("a", "F32", "[2]", "[0]") "}", 8, "InvalidHeaderDeserialization", "data_offsets"},
    {"{" ENTRY("a", "F32", "[2]", "[0,8,9]") "}", 8, "InvalidHeaderDeserialization", "data_offsets"},
    {"{" ENTRY("a", "F32", "[2]", "[0,8.0]") "}", 8, "InvalidHeaderDeserialization", "data_offsets"},
    {"{" ENTRY("a", "F32", "[2]", "[-1,8]") "}", 8, "InvalidHeaderDeserialization", "data_offsets"},
    {"{" ENTRY("a", "F32", "[-18446744073709551615]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{" ENTRY("a", "F32", "[99999999999999999999999]", "[0,8]") "}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{\"a\":{\"x\":18446744073709551614,\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "InvalidHeaderDeserialization",
     "too big"},
    {"{\"a\":{\"x\":1e999,\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "InvalidHeaderDeserialization", "tensor \"a\""},
    {"{\"__metadata__\":{\"a\":1}}", 0, "InvalidHeaderDeserialization", "__metadata__"},
    {"{\"__metadata__\":[]}", 0, "InvalidHeaderDeserialization", "__metadata__"},
    {"{\"a\\u0000b\":{}}", 0, "InvalidHeaderDeserialization", "u0000"},
    {"{\"a\\ud800\":{}}", 0, "InvalidHeaderDeserialization", "at byte"},
    {"{" F32_2 "," F32_2 "}", 8, "InvalidHeaderDeserialization", "two entries for tensor \"a\""},
    {"{" F32_2 "," ENTRY("\\u0061", "F32", "[2]", "[8,16]") "}", 16, "InvalidHeaderDeserialization", "two entries for tensor \"a\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "InvalidHeaderDeserialization", "shape"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "InvalidHeaderDeserialization", "__metadata__"},
    {"{\"__metadata__\":{\"k\":\"1\",\"j\":\"1\",\"k\":\"1\"}}", 0, "InvalidHeaderDeserialization", "\"k\""},

    {"{" ENTRY("a", "F32", "[2]", "[4,12]") "}", 12, "InvalidOffset", "a hole"},
    {"{" F32_2 "," ENTRY("b", "F32", "[2]", "[12,20]") "}", 20, "InvalidOffset", "tensor \"b\""},
    {"{" F32_2 "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 12, "InvalidOffset", "overlaps"},
    {"{" F32_2 "," ENTRY("b", "F32", "[2]", "[0,8]") "}", 8, "InvalidOffset", "tensor \"b\""},
    {"{" F32_2 "," ENTRY("b", "F32", "[2]", "[8,0]") "}", 8, "InvalidOffset", "before the begin"},
    {"{" ENTRY("a", "F32", "[2]", "[18446744073709551614,8]") "}", 8, "InvalidOffset", "tensor \"a\""},
    {"{" ENTRY("a", "I32", "[2,18446744073709551614]", "[0,16]") "}", 16, "ValidationOverflow", "tensor \"a\""},
    {"{" ENTRY("a", "I32", "[2,9223372036854775807]", "[0,16]") "}", 16, "ValidationOverflow", "tensor \"a\""},
    {"{" ENTRY("a", "U8", "[9007199254740993,0]", "[0,0]") "}", 0, "ValidationOverflow", "2^53"},
    {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,16]") "}", 16, "ValidationOverflow", "tensor \"a\""},
    {"{" ENTRY("a", "F64", "[4294967296,67108864]", "[0,16]") "}", 16, "ValidationOverflow", "tensor \"a\""},
    {"{" ENTRY("a", "F4", "[3]", "[0,2]") "}", 2, "MisalignedSlice", "tensor \"a\""},
    {"{" ENTRY("a", "F6_E3M2", "[2]", "[0,2]") "}", 2, "MisalignedSlice", "tensor \"a\""},
    {"{" ENTRY("a", "F32", "[2,2]", "[0,8]") "}", 8, "TensorInvalidInfo", "make 16"},
    {"{" ENTRY("a", "F32", "[2]", "[0,18446744073709551614]") "}", 8, "TensorInvalidInfo", "tensor \"a\""},
    {"{" F32_2 "}", 7, "MetadataIncompleteBuffer", "truncated by 1 bytes"},
    {"{" F32_2 "," ENTRY("b", "F32", "[2]", "[8,16]") "}", 9, "MetadataIncompleteBuffer", "\"b\""},
    {"{" F32_2 "}", 10, "MetadataIncompleteBuffer", "2 more"},
    {"{" ENTRY("a", "F32", "[2251799813685248]", "[0,9007199254740992]") "}", 8, "MetadataIncompleteBuffer",
     "truncated by 9007199254740984"},
    {"{}", 1, "MetadataIncompleteBuffer", "1 more"},
    {"{" ENTRY("\\u001b[2J\\u202e\\\\", "F32", "[2]", "[1,9]") "}", 9, "InvalidOffset", "\"\\x1b[2J\\xe2\\x80\\xae\\x5c\""},
};

static void expect_finding(const char *path, const char *finding, const char *also)
{
    struct zf_safetensors s;
    struct zf_err e = {0};
    enum zf_status status = zf_st_open(&s, path, &e);
    if (!finding) {
        if (status) fail_msg("%s: %s", e.where, e.message);
        zf_st_close(&s);
        return;
    }
    if (!status) fail_msg("%s was read, %s expected", path, finding);
    assert_int_equal(status, ZF_FORMAT);
    assert_string_equal(e.where, path);
    if (*finding && strncmp(e.message, finding, strlen(finding))) fail_msg("%s expected: %s", finding, e.message);
    if (*finding) assert_int_equal(e.message[strlen(finding)], ':');
    assert_says(e.message, also);
    assert_null(s.list);
}

static void test_findings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = in_folder("case.safetensors");
        save_frame(path, cases[i].header, cases[i].bytes);
        expect_finding(path, cases[i].finding, cases[i].also);
    }
}

/* Bytes that are no frame; also what each looks like. */
static void test_guesses(void **state)
{
    (void)state;
#define BYTES(s) s, sizeof s - 1
    static const struct {
        const char *bytes;
        size_t size;
        const char *finding, *also;
    } files[] = {
        {BYTES(""), "HeaderTooSmall", "empty"},
        {BYTES("\2\0\0\0\0\0\0"), "HeaderTooSmall", "7 bytes"},
        {BYTES("<\0\0\0\xff\xff\xff\xff{}"), "HeaderTooLarge", "announce"},
        {BYTES("\x01\xe1\xf5\x05\0\0\0\0{}"), "HeaderTooLarge", "100000001"},
        {BYTES("\x00\xe1\xf5\x05\0\0\0\0{}"), "InvalidHeaderLength", "truncated by at least 99999998"},
        {BYTES("<\0\0\0\0\0\0\0"), "InvalidHeaderLength", "68"},
        {BYTES("\1\0\0\0\0\0\0\0\xff"), "InvalidHeader", "at byte 8"},
        {BYTES("\4\0\0\0\0\0\0\0{}\xc3\x28"), "InvalidHeader", "at byte 10"},
        {BYTES("\4\0\0\0\0\0\0\0{\xc0\xaf}"), "InvalidHeader", "at byte 9"},
        {BYTES("\5\0\0\0\0\0\0\0{\xed\xa0\x80}"), "InvalidHeader", "at byte 9"},
        {BYTES("\3\0\0\0\0\0\0\0{}\xe2"), "InvalidHeader", "at byte 10"},
        {BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "InvalidHeaderDeserialization", "interrupted download"},
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 949792\n"), "HeaderTooLarge", "Git-LFS pointer"},
        {BYTES("PK\3\4\0\0\x08\x08\0\0\0\0archive/data.pkl"), "HeaderTooLarge", "zip or pickle"},
        {BYTES("PK\3\4\0\0\0\0\0\0\0\0archive/data.pkl"), "InvalidHeaderLength", "zip or pickle"},
        {BYTES("\x80\2\x8a\nl\xfc\x9c"
               "F\xf9 j\xa8P\x19."),
         "HeaderTooLarge", "pickle"},
        {BYTES("<!DOCTYPE html><html><body>Sign in</body></html>"), "HeaderTooLarge", "HTML page"},
        {BYTES("\n  <!doctype html>"), "HeaderTooLarge", "HTML page"},
        {BYTES("<html>"), "HeaderTooSmall", "HTML page"},
        {BYTES("GGUF\3\0\0\0\x23\0\0\0\0\0\0\0"), "HeaderTooLarge", "GGUF"},
        {BYTES("{\"metadata\":{},\"weight_map\":{}}"), "HeaderTooLarge", "JSON"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = in_folder("guess.safetensors");
        save(path, files[i].bytes, files[i].size);
        expect_finding(path, files[i].finding, files[i].also);
    }
    /* A header of 640 bytes begins like a pickle: no guess then. */
    char header[641];
    struct zf_safetensors s;
    struct zf_err e;
    snprintf(header, sizeof header, "%-640s", "{" F32_2 "}");
    save_frame(in_folder("pickle-like"), header, 7);
    assert_int_equal(zf_st_open(&s, in_folder("pickle-like"), &e), ZF_FORMAT);
    assert_null(strstr(e.message, "pickle"));
}

static void test_not_a_file(void **state)
{
    struct zf_safetensors s;
    struct zf_err e;
    (void)state;
    assert_int_equal(zf_st_open(&s, in_folder("absent"), &e), ZF_FORMAT);
    assert_int_equal(zf_st_open(&s, folder, &e), ZF_FORMAT);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(zf_st_open(&s, in_folder("fifo"), &e), ZF_FORMAT);
}

/* Deep nesting, one entry that would become millions of values, a very long name. */
static void test_hostile_headers(void **state)
{
    (void)state;
    const char *path = in_folder("hostile");
    size_t n = 4 << 20;
    char *text = malloc(n + 1);
    assert_non_null(text);
    static const char *const starts[] = {"{\"a\":{\"x\":[", "{\"a\":{\"x\":[1", "{\"a\":{\"x\":{\"y\":[["};
    static const char *const fills[] = {"[", ",1", "],["};
    for (size_t i = 0; i < 3; i++) {
        size_t at = strlen(starts[i]), m = strlen(fills[i]);
        memcpy(text, starts[i], at);
        for (; at + m <= n; at += m) memcpy(text + at, fills[i], m);
        text[at] = 0;
        save_frame(path, text, 0);
        expect_finding(path, "InvalidHeaderDeserialization", "tensor \"a\"");
    }
    memset(text, 'n', n);
    memcpy(text, "{\"", 2);
    strcpy(text + n - strlen("\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"),
           "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    save_frame(path, text, 8);
    expect_finding(path, NULL, NULL);
    save_frame(path, text, 7);
    expect_finding(path, "MetadataIncompleteBuffer", "nnn...");
    free(text);
}

static void test_contents(void **state)
{
    (void)state;
    struct zf_safetensors s;
    struct zf_err e;
    /* 69 bytes before the data: nothing is aligned. */
    save_frame(in_folder("contents"),
               "{\"__metadata__\":{\"z\":\"1\",\"format\":\"pt\"}," ENTRY("w", "F32", "[2,3]", "[1,25]") "," ENTRY(
                   "b", "U8", "[1]", "[0,1]") "," ENTRY("e", "I64", "[0]", "[25,25]") "}",
               25);
    assert_int_equal(zf_st_open(&s, in_folder("contents"), &e), ZF_OK);
    assert_int_equal(s.count, 3);
    assert_string_equal(s.list[0].name, "b");
    assert_string_equal(s.list[1].name, "w");
    assert_string_equal(s.list[2].name, "e");
    assert_int_equal(s.metadata_count, 2);
    assert_string_equal(s.metadata[0], "format");
    assert_string_equal(s.metadata[1], "pt");
    assert_string_equal(s.metadata[3], "1");
    const struct zf_st_tensor *w = zf_st_find(&s, "w");
    assert_ptr_equal(w, &s.list[1]);
    assert_null(zf_st_find(&s, "x"));
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->shape[1], 3);
    assert_int_equal(w->elements, 6);
    assert_int_equal(w->bytes, 24);
    assert_ptr_equal(w->data, s.map.data + w->offset);
    assert_int_equal(w->offset + 24, s.map.size);
    assert_int_equal(w->data[0], 2);
    float x[6], y;
    assert_int_equal(zf_st_floats(x, w, 0, 6, &e), ZF_OK);
    memcpy(&y, w->data + 20, 4);
    assert_true(x[5] == y);
    assert_int_equal(zf_st_floats(x, w, 5, 2, &e), ZF_FORMAT);
    assert_int_equal(zf_st_floats(x, w, 7, 0, &e), ZF_FORMAT);
    assert_int_equal(zf_st_floats(x, w, 6, 0, &e), ZF_OK);
    assert_int_equal(zf_st_floats(x, w, 1, SIZE_MAX, &e), ZF_FORMAT);
    int64_t i[6];
    assert_int_equal(zf_st_integers(i, w, 0, 1, &e), ZF_FORMAT);
    assert_says(e.message, "\"w\" is F32");
    assert_int_equal(zf_st_floats(x, zf_st_find(&s, "b"), 0, 1, &e), ZF_FORMAT);
    assert_int_equal(zf_st_integers(i, zf_st_find(&s, "e"), 0, 0, &e), ZF_OK);
    zf_st_close(&s);
    assert_null(zf_st_find(&s, "w"));
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        enum zf_st_type type;
        unsigned char bytes[9];
        int64_t integer;
        double real;
    } values[] = {
        {ZF_ST_BOOL, {1}, 1, 0},
        {ZF_ST_U8, {0xff}, 255, 0},
        {ZF_ST_I8, {0xff}, -1, 0},
        {ZF_ST_U16, {0xfe, 0xff}, 65534, 0},
        {ZF_ST_I16, {0xfe, 0xff}, -2, 0},
        {ZF_ST_U32, {0, 0, 0, 0x80}, 2147483648, 0},
        {ZF_ST_I32, {0x9c, 0xff, 0xff, 0xff}, -100, 0},
        {ZF_ST_I64, {0x9c, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -100, 0},
        {ZF_ST_U64, {5, 1}, 261, 0},
        {ZF_ST_F32, {0, 0, 0xc0, 0xbf}, 0, -1.5},
        {ZF_ST_BF16, {0xc0, 0xbf}, 0, -1.5},
        {ZF_ST_F16, {0, 0xbe}, 0, -1.5},
        {ZF_ST_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, 0, -1.5},
        {ZF_ST_F16, {1, 0}, 0, 0x1p-24},
        {ZF_ST_F16, {0, 0x7c}, 0, INFINITY},
    };
    struct zf_err e;
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        unsigned char raw[2 * 8 + 1] = {0};
        size_t size = zf_st_type_bits(values[k].type) / 8;
        memcpy(raw + 1 + size, values[k].bytes, size); /* the second element, unaligned */
        struct zf_st_tensor t = {
            .name = "v", .type = values[k].type, .rank = 1, .shape = {2}, .elements = 2, .data = raw + 1, .bytes = 2 * size};
        bool floating = values[k].real != 0;
        int64_t i = 7;
        float f = 7;
        assert_int_equal(zf_st_integers(&i, &t, 1, 1, &e), floating ? ZF_FORMAT : ZF_OK);
        assert_int_equal(zf_st_floats(&f, &t, 1, 1, &e), floating ? ZF_OK : ZF_FORMAT);
        if (floating)
            assert_true(f == (float)values[k].real);
        else
            assert_true(i == values[k].integer);
    }
    unsigned char big[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    struct zf_st_tensor t = {.name = "v", .type = ZF_ST_U64, .elements = 1, .data = big, .bytes = 8};
    int64_t i;
    assert_int_equal(zf_st_integers(&i, &t, 0, 1, &e), ZF_FORMAT);
    assert_says(e.message, "9223372036854775808");
}

static void test_types(void **state)
{
    (void)state;
    assert_string_equal(zf_st_type_name(ZF_ST_BOOL), "BOOL");
    assert_string_equal(zf_st_type_name(ZF_ST_U64), "U64");
    assert_int_equal(zf_st_type_bits(ZF_ST_F6_E3M2), 6);
    assert_int_equal(zf_st_type_bits(ZF_ST_TYPES), 0);
    for (int t = 0; t < ZF_ST_TYPES; t++) { /* a name in the table is the name that the reader takes */
        char header[200];
        size_t bytes = zf_st_type_bits((enum zf_st_type)t);
        struct zf_safetensors s;
        struct zf_err e;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%zu]}}",
                 zf_st_type_name((enum zf_st_type)t), bytes);
        save_frame(in_folder("type"), header, bytes);
        assert_int_equal(zf_st_open(&s, in_folder("type"), &e), ZF_OK);
        assert_int_equal(s.list[0].type, t);
        zf_st_close(&s);
    }
}

struct dice {
    uint64_t seed, rolls;
};

static uint32_t below(struct dice *d, size_t n)
{
    return zf_philox(d->seed, ZF_STREAM_TEST, d->rolls++).v[0] % (uint32_t)n;
}

/* Whatever bytes change, the reader says yes or no, and a yes has all its data inside the file. */
static void test_mutations(void **state)
{
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a.b", "F32", "[2,3]", "[0,24]") "," ENTRY(
        "c", "BF16", "[]", "[24,26]") "," ENTRY("d", "I64", "[1,0]", "[26,26]") "} ";
    static const char alphabet[] = "{}[]\":,0123456789.-eE\\ufa_ ";
    unsigned char valid[512];
    size_t size = frame(valid, header, 26), accepted = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        struct dice r = {seed, 0};
        unsigned char *m = malloc(size + 1); /* an exact allocation: a sanitizer sees a read past its end */
        assert_non_null(m);
        memcpy(m, valid, size);
        size_t keep = below(&r, 4) ? size : below(&r, size + 1);
        for (size_t k = 1 + below(&r, 4); k-- > 0;) {
            size_t at = below(&r, 3) ? 8 + below(&r, sizeof header - 1) : below(&r, size);
            m[at] = below(&r, 2) ? (unsigned char)alphabet[below(&r, sizeof alphabet - 1)] : (unsigned char)below(&r, 256);
        }
        unsigned char *exact = realloc(m, keep ? keep : 1);
        assert_non_null(exact);
        struct zf_safetensors s;
        struct zf_err e = {0};
        if (zf_st_parse(&s, exact, keep, "mutation", &e) == ZF_OK) {
            accepted++;
            for (size_t i = 0; i < s.count; i++) {
                assert_true(s.list[i].data >= exact && s.list[i].data + s.list[i].bytes <= exact + keep);
                assert_int_equal(s.list[i].bytes, s.list[i].elements * zf_st_type_bits(s.list[i].type) / 8);
                assert_ptr_equal(zf_st_find(&s, s.list[i].name), &s.list[i]);
            }
            zf_st_close(&s);
        } else {
            assert_int_equal(e.code, ZF_FORMAT);
            assert_true(strlen(e.message) > 10);
        }
        free(exact);
    }
    assert_true(accepted > 100 && accepted < 9000);
}

static void check_listed(json_t *list, const char *base)
{
    size_t i, absent = 0;
    json_t *c;
    json_array_foreach(list, i, c) {
        const char *expect = json_string_value(json_object_get(c, "expect"));
        char path[1024], finding[64] = "";
        snprintf(path, sizeof path, "%s/%s", base, json_string_value(json_object_get(c, "file")));
        if (!zf_file_exists(path)) {
            absent++;
            continue;
        }
        sscanf(expect, "error:%63s", finding);
        expect_finding(path, strcmp(expect, "ok") ? finding : NULL, "");
    }
    if (absent) print_message("%zu files are listed, but not there\n", absent);
}

static void test_shared_fixtures(void **state)
{
    (void)state;
    char base[512], path[600];
    const char *shared = getenv("ZF_SHARED");
    snprintf(base, sizeof base, "%s/data/fixtures/safetensors", shared ? shared : "");
    snprintf(path, sizeof path, "%s/index.json", base);
    if (!shared || !zf_file_exists(path)) {
        print_message("skipped: no fixtures at %s (ZF_SHARED)\n", path);
        skip();
    }
    json_t *index;
    struct zf_err e;
    assert_int_equal(zf_json_file(&index, path, 1 << 20, &e), ZF_OK);
    assert_true(json_array_size(json_object_get(index, "cases")) >= 16);
    check_listed(json_object_get(index, "cases"), base);
    check_listed(json_object_get(index, "extra"), base);
    json_decref(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings),        cmocka_unit_test(test_guesses),   cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_hostile_headers), cmocka_unit_test(test_contents),  cmocka_unit_test(test_values),
        cmocka_unit_test(test_types),           cmocka_unit_test(test_mutations), cmocka_unit_test(test_shared_fixtures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
