/* Tokenizers: ids known from the reference library, files made here so that the tests stand alone, and everything that is refused. */
#include "tests/data/support.h"

#include "core/base/json.h"
#include "core/tokenizer/tokenizer_impl.h"

#include <time.h>

static struct zf_tokenizer *open_tokenizer(const char *name)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    enum zf_status s = zf_tokenizer_open(&t, name, &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
    return t;
}

static struct zf_tokenizer *parse(const char *json)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    enum zf_status s = zf_tokenizer_parse(&t, json, strlen(json), "tokenizer.json", &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
    return t;
}

static void expect_bytes(const struct zf_tokenizer *t, const char *text, size_t size, bool specials, bool template, const char *expected)
{
    struct zf_err e = {0};
    struct zf_ids a = {0};
    assert_int_equal(zf_tokenizer_encode(t, text, size, specials, template, &a, &e), ZF_OK);
    assert_numbers(a.ids, a.count, expected);
    free(a.ids);
}

static void expect(const struct zf_tokenizer *t, const char *text, const char *expected)
{
    expect_bytes(t, text, strlen(text), true, false, expected);
}

static void expect_text(const struct zf_tokenizer *t, const char *ids, bool skip_specials, const char *expected)
{
    struct zf_err e = {0};
    int32_t list[64];
    char *text;
    size_t size;
    assert_int_equal(zf_tokenizer_decode(t, list, numbers(ids, list, 64), skip_specials, &text, &size, &e), ZF_OK);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static void expect_round_trip(const struct zf_tokenizer *t, const char *text, size_t size)
{
    struct zf_err e = {0};
    struct zf_ids a = {0};
    char *back;
    size_t n;
    assert_int_equal(zf_tokenizer_encode(t, text, size, false, false, &a, &e), ZF_OK);
    assert_int_equal(zf_tokenizer_decode(t, a.ids, a.count, false, &back, &n, &e), ZF_OK);
    assert_int_equal(n, size);
    assert_memory_equal(back, text, size);
    free(back);
    free(a.ids);
}

/* Texts of the goldens, and their ids by the Rust library. */
static const char *const texts[] = {"Hello, world! I'm 12345 \u2014 na\u00efve caf\u00e9\n\n  x",
                                    "cafe\u0301",
                                    "a \u180e b",
                                    "a\xc2\x85\xc2\x85 b",
                                    "\U0001F600 <think>hi</think>",
                                    "x'\u017f y",
                                    "I'M HERE, it'S",
                                    "  two  spaces  ",
                                    "tab\tand\r\nCRLF",
                                    "1234567",
                                    "a<|endoftext|>b",
                                    "<|im_start|>user\nHi<|im_end|>\n",
                                    "<s>x</s>",
                                    "\u00a0nbsp\u3000ideographic",
                                    "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8",
                                    ""};

static const char *const gpt2_ids[] = {"15496 11 995 0 314 1101 17031 2231 851 41492 40304 628 220 2124",
                                       "66 8635 136 223",
                                       "64 28053 254 236 275",
                                       "64 126 227 126 227 275",
                                       "47249 222 1279 14925 29 5303 3556 14925 29",
                                       "87 6 129 123 331",
                                       "40 6 44 15698 11 340 6 50",
                                       "220 734 220 9029 220 220",
                                       "8658 197 392 201 198 34 7836 37",
                                       "10163 2231 3134",
                                       "64 50256 65",
                                       "27 91 320 62 9688 91 29 7220 198 17250 27 91 320 62 437 91 29 198",
                                       "27 82 29 87 3556 82 29",
                                       "1849 77 24145 5099 222 485 6826",
                                       "33768 98 17312 105 45739 252 24336 25084 43302",
                                       ""};

static const char *const opt_ids[] = {"2 31414 6 232 328 38 437 17072 1898 93 39300 26059 50140 1437 3023",
                                      "2 438 20120 44025 10172",
                                      "2 102 25974 21402 12736 741",
                                      "2 102 4056 5782 4056 5782 741",
                                      "2 18636 7471 28696 22111 15698 3592 49138 22111 15698",
                                      "2 1178 108 1277 9470 1423",
                                      "2 100 108 448 9443 6 24 108 104",
                                      "2 1437 80 1437 5938 1437 1437",
                                      "2 34108 50117 463 50121 50118 347 17868 597",
                                      "2 19644 1898 4111",
                                      "2 102 41552 15483 1397 1116 29015 15483 15698 428",
                                      NULL,
                                      "2 41552 29 15698 1178 2",
                                      "2 50141 282 39596 48516 7471 1949 25510",
                                      "2 47954 8210 44636 11582 48537 17772 49312 49587 49615",
                                      "2"};

static const char *const llama2_ids[] = {
    "1 15043 29892 3186 29991 306 29915 29885 29871 29896 29906 29941 29946 29945 813 1055 30085 345 274 28059 13 13 29871 921",
    "1 5777 1725 30103",
    "1 263 29871 228 163 145 289",
    "1 263 197 136 197 136 289",
    "1 29871 243 162 155 131 529 386 682 29958 2918 829 386 682 29958",
    "1 921 29915 30473 343",
    "1 306 29915 29924 379 27267 29892 372 29915 29903",
    "1 259 1023 29871 8162 259",
    "1 4434 12 392 30004 13 29907 2241 29943",
    "1 29871 29896 29906 29941 29946 29945 29953 29955",
    NULL,
    NULL,
    "1 1 921 2",
    "1 20246 14239 30358 680 12122",
    "1 29871 30325 30346 30968 30572 30454 30255 30279",
    "1"};

static const struct {
    const char *folder;
    const char *const *ids;
} goldens[] = {{"data/tokenizers/gpt2-openai", gpt2_ids}, {"data/tokenizers/opt", opt_ids}, {"data/tokenizers/llama2", llama2_ids}};

static void test_goldens(void **state)
{
    (void)state;
    size_t tried = 0;
    for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++) {
        const char *path = shared_path(goldens[g].folder);
        if (!path) continue;
        struct zf_tokenizer *t = open_tokenizer(path);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            if (goldens[g].ids[i]) expect_bytes(t, texts[i], strlen(texts[i]), true, true, goldens[g].ids[i]);
        }
        zf_tokenizer_close(t);
        tried++;
    }
    if (!tried) skip();
}

/* llama.cpp's texts: separated by a line, a line of ids each. */
static void test_llama_cpp(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"gpt-2", "gpt2-openai"}, {"roberta-bpe", "opt"}, {"llama-spm", "llama2"}, {"phi-3", "phi3"}};
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t tried = 0;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        struct zf_err e = {0};
        char name[128], *in, *out;
        snprintf(name, sizeof name, "data/fixtures/llama.cpp-vocab/ggml-vocab-%s.gguf.inp", pairs[p][0]);
        const char *path = shared_path(name);
        if (!path) continue;
        assert_int_equal(zf_file_read(&in, NULL, path, 1 << 20, &e), ZF_OK);
        strcpy(strrchr(name, '.'), ".out");
        assert_int_equal(zf_file_read(&out, NULL, shared_path(name), 1 << 20, &e), ZF_OK);
        snprintf(name, sizeof name, "data/tokenizers/%s", pairs[p][1]);
        struct zf_tokenizer *t = open_tokenizer(shared_path(name));
        size_t n = 0;
        for (char *text = in, *ids = out, *end; (end = strstr(text, separator)); text = end + sizeof separator - 1, n++) {
            char *line = strchr(ids, '\n');
            assert_non_null(line);
            *line = '\0';
            expect_bytes(t, text, (size_t)(end - text), false, false, ids);
            ids = line + 1;
        }
        assert_int_equal(n, 46);
        zf_tokenizer_close(t);
        free(in);
        free(out);
        tried++;
    }
    if (!tried) skip();
}

static void test_stories(void **state)
{
    (void)state;
    struct zf_err e = {0};
    const char *path = shared_path("data/models/stories260K-hf");
    if (!path) skip();
    struct zf_tokenizer *t = open_tokenizer(path);
    assert_int_equal(zf_tokenizer_size(t), 512);
    assert_int_equal(zf_tokenizer_eos(t), 2);
    assert_string_equal(zf_tokenizer_note(t), "");
    json_t *j;
    assert_int_equal(zf_json_file(&j, shared_path("data/models/stories260K-hf/reference.json"), 1 << 20, &e), ZF_OK);
    const json_t *want = json_object_get(j, "prompt_ids"), *greedy = json_object_get(j, "greedy_ids_200"), *id;
    struct zf_ids a = {0};
    const char *prompt = json_string_value(json_object_get(j, "prompt"));
    assert_int_equal(zf_tokenizer_encode(t, prompt, strlen(prompt), true, true, &a, &e), ZF_OK);
    assert_int_equal(a.count, json_array_size(want));
    size_t i;
    json_array_foreach(want, i, id) assert_int_equal(a.ids[i], json_integer_value(id));
    a.count = 0;
    json_array_foreach(greedy, i, id) assert_int_equal(zf_ids_push(&a, (int32_t)json_integer_value(id), &e), ZF_OK);
    char *text;
    assert_int_equal(zf_tokenizer_decode(t, a.ids, a.count, true, &text, NULL, &e), ZF_OK);
    const char *told = json_string_value(json_object_get(j, "greedy_text"));
    assert_non_null(strstr(told, text[0] == ' ' ? text + 1 : text));
    free(text);
    free(a.ids);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) expect_round_trip(t, texts[k], strlen(texts[k]));
    json_decref(j);
    zf_tokenizer_close(t);
}

static void test_truncation_ignored(void **state)
{
    (void)state;
    struct zf_err e = {0};
    const char *path = shared_path("data/tokenizers/gpt2-with-truncation");
    if (!path) skip();
    struct zf_tokenizer *t = open_tokenizer(path);
    assert_non_null(strstr(zf_tokenizer_note(t), "truncation at 50 tokens"));
    char text[2001];
    for (size_t i = 0; i < 2000; i++) text[i] = i % 2 ? ' ' : 'x';
    struct zf_ids a = {0};
    assert_int_equal(zf_tokenizer_encode(t, text, 2000, true, true, &a, &e), ZF_OK);
    assert_true(a.count > 900);
    free(a.ids);
    zf_tokenizer_close(t);
}

static void test_refused_families(void **state)
{
    (void)state;
    static const char *const families[][2] = {{"llama3", "'Split'"}, {"qwen2", "'NFC'"}, {"qwen3", "'NFC'"}};
    size_t tried = 0;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        struct zf_err e = {0};
        struct zf_tokenizer *t;
        snprintf(name, sizeof name, "data/tokenizers/%s", families[i][0]);
        const char *path = shared_path(name);
        if (!path) continue;
        assert_int_equal(zf_tokenizer_open(&t, path, &e), ZF_FORMAT);
        assert_null(t);
        assert_non_null(strstr(e.message, families[i][1]));
        tried++;
    }
    if (!tried) skip();
}

static void test_speed(void **state)
{
    (void)state;
    struct zf_err e = {0};
    const char *path = shared_path("data/datasets/tinyshakespeare/input.txt");
    if (!path) skip();
    char *text;
    size_t size;
    assert_int_equal(zf_file_read(&text, &size, path, 1 << 24, &e), ZF_OK);
    clock_t start = clock(); /* of this process: the machine may be busy */
    struct zf_tokenizer *t = open_tokenizer(shared_path("data/tokenizers/gpt2-openai"));
    clock_t loaded = clock();
    struct zf_ids a = {0};
    assert_int_equal(zf_tokenizer_encode(t, text, size, true, false, &a, &e), ZF_OK);
    clock_t done = clock();
    print_message("GPT-2: loaded in %.3f s, %.1f MB/s\n", (double)(loaded - start) / CLOCKS_PER_SEC,
                  (double)size / (double)(done - loaded) * CLOCKS_PER_SEC / 1e6);
    assert_int_equal(a.count, 338025); /* as the reference library */
    expect_round_trip(t, text, size);
    free(a.ids);
    free(text);
    zf_tokenizer_close(t);
}

static void test_bytes(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_tokenizer *t = open_tokenizer("bytes");
    assert_int_equal(zf_tokenizer_size(t), 257);
    assert_int_equal(zf_tokenizer_eos(t), 256);
    expect_bytes(t,
                 "\0\xff\x80"
                 "A",
                 4, true, true, "0 255 128 65");
    expect(t, "a<|endoftext|>b", "97 256 98");
    expect_bytes(t, "<|", 2, false, false, "60 124");
    expect_bytes(t, "a<|endoftext|>", 14, false, false, "97 60 124 101 110 100 111 102 116 101 120 116 124 62");
    expect_text(t, "72 105 256", false, "Hi<|endoftext|>");
    expect_text(t, "72 105 256", true, "Hi");
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    expect_round_trip(t, all, 256);
    char *text;
    assert_int_equal(zf_tokenizer_decode(t, (int32_t[]){3, 257}, 2, false, &text, NULL, &e), ZF_FORMAT);
    assert_null(text);
    assert_int_equal(zf_tokenizer_decode(t, (int32_t[]){-1}, 1, false, &text, NULL, &e), ZF_FORMAT);
    zf_tokenizer_close(t);
}

/* What is written for transformers reads back as the same tokenizer. */
static void test_write_bytes(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_tokenizer *bytes = open_tokenizer("bytes");
    for (int with_eos = 0; with_eos < 2; with_eos++) {
        assert_int_equal(zf_tokenizer_write_bytes(folder, with_eos, &e), ZF_OK);
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_size(t), 256 + with_eos);
        assert_int_equal(zf_tokenizer_eos(t), with_eos ? 256 : -1);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct zf_ids a = {0}, b = {0};
            assert_int_equal(zf_tokenizer_encode(bytes, texts[i], strlen(texts[i]), with_eos, false, &a, &e), ZF_OK);
            assert_int_equal(zf_tokenizer_encode(t, texts[i], strlen(texts[i]), true, true, &b, &e), ZF_OK);
            assert_int_equal(a.count, b.count);
            if (a.count) assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
            free(a.ids);
            free(b.ids);
        }
        expect_text(t, "226 130", false, "\uFFFD"); /* one for a part of a character */
        expect_text(t, "226 65 255 128", false, "\uFFFDA\uFFFD\uFFFD");
        zf_tokenizer_close(t);
    }
    zf_tokenizer_close(bytes);
}

/* A small tokenizer in the manner of Llama-2. %s: parts that a test changes. */
#define SPM(added, merges) \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":false},{\"id\":1,\"content\":\"<s>\",\"special\":" \
    "true,\"normalized\":false}," \
    "{\"id\":2,\"content\":\"</s>\",\"special\":true,\"normalized\":false}" added "]," \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\"," \
    "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}," \
    "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_" \
    "id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}," \
    "{\"SpecialToken\":{\"id\":\"</" \
    "s>\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":\"</" \
    "s>\",\"ids\":[2],\"tokens\":[\"</s>\"]}}}," \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" " \
    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}," \
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null," \
    "\"fuse_unk\":true,\"byte_fallback\":true," \
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</" \
    "s>\":2,\"<0xC3>\":3,\"<0xA9>\":4,\"\u2581\":5,\"a\":6,\"b\":7,\"c\":8,\"ab\":9,\"bc\":10,\"\u2581a\":11,\"abc\":12,\"\u2581abc\":13}" \
    "," \
    "\"merges\":" merges "}}"
#define SPM_MERGES "[\"b c\",[\"a\",\"b\"],\"a bc\",\"\u2581 abc\",\"\u2581 a\"]"

static void test_small_spm(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(SPM("", SPM_MERGES));
    assert_int_equal(zf_tokenizer_size(t), 14);
    expect(t, "abc", "13"); /* b c first, then a bc, then the whole */
    expect(t, "ab", "5 9"); /* a b before the prefix and a */
    expect(t, "a bab", "11 5 7 9");
    expect(t, "", "");
    expect(t, "abc</s>abc", "13 2 13"); /* each piece has its own prefix */
    expect(t, " abc", "5 13");
    expect_bytes(t, "abc", 3, true, true, "1 13 2");
    expect_bytes(t, "<s>", 3, false, false, "5 0"); /* no token now: unknown characters fused into one */
    expect(t, "\u00e9", "5 3 4");                   /* by its bytes */
    expect(t, "\u00e8\u00e8", "5 0");               /* one byte has no id: unknown, fused */
    expect_text(t, "13 5 9", false, "abc ab");
    expect_text(t, "1 13 2", false, "<s> abc</s>"); /* Strip acts on the fused text */
    expect_text(t, "1 13 2", true, "abc");
    expect_text(t, "6 3 4 6", false,
                "a\u00e9"
                "a");
    expect_text(t, "6 3 6 4 4", false, "a\uFFFDa\uFFFD\uFFFD");
    zf_tokenizer_close(t);
}

static void test_long_words(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_tokenizer *t = parse(SPM("", SPM_MERGES));
    /* A million characters in one piece: the heap, and the cut at places that no merge can cross. */
    size_t n = 1000002;
    char *text = malloc(n);
    struct zf_ids a = {0};
    for (size_t i = 0; i < n; i++) text[i] = "abc"[i % 3];
    assert_int_equal(zf_tokenizer_encode(t, text, n, true, false, &a, &e), ZF_OK);
    assert_int_equal(a.count, n / 3);
    assert_int_equal(a.ids[0], 13);
    for (size_t i = 1; i < a.count; i++) assert_int_equal(a.ids[i], 12);
    memset(text, ' ', n);
    a.count = 0;
    assert_int_equal(zf_tokenizer_encode(t, text, n, true, false, &a, &e), ZF_OK);
    assert_int_equal(a.count, n + 1);
    free(text);
    free(a.ids);
    zf_tokenizer_close(t);
}

/* Flags of added tokens, on a byte-level tokenizer of single letters. */
#define TOKEN(id, text, flags) "{\"id\":" #id ",\"content\":\"" text "\"" flags "}"
#define BYTE_LEVEL(pre, added) \
    "{\"added_tokens\":[" added "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\"" pre \
    "},\"post_processor\":{\"type\":\"ByteLevel\"}," \
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"vocab\":{\"a\":0,\"b\":1," \
    "\"\u0120\":2,\"\u00c3\":3,\"\u00a9\":4," \
    "\"\u0120a\":5,\"ab\":6,\"\u010a\":7,\"a\u0120\":8},\"merges\":[\"#version: 0.2\",\"\u0120 a\",\"a b\",\"a \u0120\"]}}"

static void test_byte_level(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(BYTE_LEVEL(",\"add_prefix_space\":false", ""));
    expect(t, "ab ab", "6 5 1");
    expect(t, "a  a", "0 2 5"); /* the run of spaces leaves its last to the word */
    expect(t, "a  ", "0 2 2");
    expect(t, "a \n b\n", "0 2 7 2 1 7");
    expect(t, "\u00e9", "3 4");
    expect(t, "zzab", "6"); /* no unk_token: what is unknown vanishes, as in the reference */
    expect_text(t, "5 6 3 4", false, " aab\u00e9");
    expect_text(t, "3 0", false, "\uFFFDa");
    zf_tokenizer_close(t);
    t = parse(BYTE_LEVEL(",\"use_regex\":false,\"add_prefix_space\":false", ""));
    expect(t, "a  a", "8 5"); /* one word: merges cross the spaces */
    zf_tokenizer_close(t);
    t = parse(BYTE_LEVEL("", TOKEN(9, "<x>", ",\"special\":true"))); /* add_prefix_space is true unless said */
    expect(t, "a", "5");
    expect(t, " a", "5");
    expect(t, "a<x>a", "5 9 5");
    expect_text(t, "5 9", false, " a<x>");
    expect_text(t, "5 9", true, " a");
    zf_tokenizer_close(t);
}

static void test_added_tokens(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(BYTE_LEVEL(
        ",\"add_prefix_space\":false",
        TOKEN(9, "<x>", ",\"normalized\":false") "," TOKEN(10, "<x>b", ",\"normalized\":false") "," TOKEN(
            11, "one",
            ",\"single_word\":true,\"normalized\":false") "," TOKEN(12, "<l>",
                                                                    ",\"lstrip\":true,\"normalized\":false") "," TOKEN(13, "<r>",
                                                                                                                       ",\"rstrip\":true,"
                                                                                                                       "\"normalized\":"
                                                                                                                       "true")));
    expect(t, "a<x>b<x>", "0 10 9"); /* the longest */
    expect(t, "a one b", "0 2 11 2 1");
    expect(t, "aone", "0"); /* inside a word it is none (and o, n, e are not in this vocabulary) */
    expect(t, "one", "11");
    expect(t, "a \n <l> a", "0 12 5");   /* takes the white space before */
    expect(t, "a <r> \n a", "0 2 13 0"); /* takes the white space behind */
    zf_tokenizer_close(t);
    /* A normalised token is searched for in the normalised text: with its prefix, so only where a piece or a word begins. */
    t = parse(SPM(",{\"id\":14,\"content\":\"cc\",\"normalized\":true}", SPM_MERGES));
    expect(t, "cc", "14");
    expect(t, "a cc", "11 14");
    expect(t, "acc", "11 8 8");
    expect_text(t, "14", false, "cc");
    zf_tokenizer_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "JSON"},
        {"[]", "no JSON object"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "'Unigram'"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "'WordPiece'"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "no BPE"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]}}", "empty"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "dropout"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":1}}", "fuse_unk"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "JSON"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":2000000000},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "no pair"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "no pair"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", "no pair"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "'aa'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"x a\"]}}", "'x"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"NFC\"}}", "normalizer 'NFC'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":"
         "\"\"}}",
         "Regex"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":"
         "\"\"}}",
         "empty"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"}]"
         "}}",
         "pre_tokenizer 'Digits'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Metaspace\"}}", "pre_tokenizer 'Metaspace'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
         "\"ByteLevel\"},{\"type\":\"ByteLevel\"}]}}",
         "twice"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"BertProcessing\"}}",
         "post_processor 'BertProcessing'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}",
         "no sequence A"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"x\"}}]}}",
         "'x'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[7]}}}}",
         "id 7"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"decoder\":{\"type\":\"WordPiece\"}}", "decoder 'WordPiece'"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]}", "must agree"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]}", "two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1}]}", "no content"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"special\":\"yes\"}]}", "special"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git-LFS"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_err e = {0};
        struct zf_tokenizer *t;
        enum zf_status s = zf_tokenizer_parse(&t, cases[i].json, strlen(cases[i].json), "tokenizer.json", &e);
        if (s != ZF_FORMAT || !strstr(e.message, cases[i].says)) print_error("case %zu: %s\n%s\n", i, cases[i].json, e.message);
        assert_int_equal(s, ZF_FORMAT);
        assert_null(t);
        assert_non_null(strstr(e.message, cases[i].says));
        assert_non_null(strstr(e.where, "tokenizer.json"));
    }
}

static void test_bad_text(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_ids a = {0};
    struct zf_tokenizer *t = parse(SPM("", SPM_MERGES));
    static const char *const bad[] = {"ab\xff", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xe2\x82", "ab\xf4\x90\x80\x80", "ab\x80"};
    assert_int_equal(zf_ids_push(&a, 77, &e), ZF_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(zf_tokenizer_encode(t, bad[i], strlen(bad[i]), true, true, &a, &e), ZF_FORMAT);
        assert_non_null(strstr(e.message, "offset 2"));
        assert_int_equal(a.count, 1);
    }
    zf_tokenizer_close(t);
    free(a.ids);
    assert_int_equal(zf_tokenizer_open(&t, in_folder("nowhere"), &e), ZF_FORMAT);
    assert_null(t);
}

/* The end token: by name before by number; what cannot be resolved falls to the next file. */
static void test_eos(void **state)
{
    (void)state;
    save_text("tokenizer.json", SPM("", SPM_MERGES));
    static const struct {
        const char *tokenizer_config, *generation_config, *config;
        int32_t eos;
    } cases[] = {
        {"{\"eos_token\":\"</s>\"}", NULL, "{\"eos_token_id\":1}", 2},
        {"{\"eos_token\":{\"content\":\"<s>\",\"lstrip\":false}}", NULL, NULL, 1},
        {"{\"eos_token\":null}", "{\"eos_token_id\":[7,8]}", "{\"eos_token_id\":1}", 7},
        {"{}", NULL, "{\"eos_token_id\":1}", 1},
        {"{\"eos_token\":\"<none>\"}", "{\"eos_token_id\":99}", "{}", -1},
        {NULL, NULL, NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const files[][2] = {{"tokenizer_config.json", cases[i].tokenizer_config},
                                        {"generation_config.json", cases[i].generation_config},
                                        {"config.json", cases[i].config}};
        for (size_t f = 0; f < 3; f++) {
            if (files[f][1])
                save_text(files[f][0], files[f][1]);
            else
                remove(in_folder(files[f][0]));
        }
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_eos(t), cases[i].eos);
        zf_tokenizer_close(t);
    }
}

/* Replacements that would fill the memory are stopped. */
static void test_replace_bomb(void **state)
{
    (void)state;
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaa\"}";
    char json[8192] = "", list[4096] = "";
    for (int i = 0; i < 30; i++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? "," : "", step);
    for (int where = 0; where < 2; where++) {
        struct zf_err e = {0};
        struct zf_ids a = {0};
        char *text = NULL;
        snprintf(json, sizeof json, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[%s]},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
                 where ? "decoder" : "normalizer", where ? "decoders" : "normalizers", list);
        struct zf_tokenizer *t = parse(json);
        enum zf_status s =
            where ? zf_tokenizer_decode(t, (int32_t[]){0}, 1, false, &text, NULL, &e) : zf_tokenizer_encode(t, "a", 1, true, true, &a, &e);
        assert_int_equal(s, ZF_FORMAT);
        assert_non_null(strstr(e.message, "Replace"));
        free(a.ids);
        free(text);
        zf_tokenizer_close(t);
    }
}

static void test_note(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(
        "{\"truncation\":{\"max_length\":7},\"padding\":{\"strategy\":\"BatchLongest\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    assert_string_equal(zf_tokenizer_note(t),
                        "tokenizer.json asks for truncation at 7 tokens and padding; ignored: nothing is cut or padded");
    expect(t, "aaaaaaaaaa", "0 0 0 0 0 0 0 0 0 0");
    expect_text(t, "0 0", false, "a a"); /* without a decoder */
    zf_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_llama_cpp),
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_truncation_ignored),
        cmocka_unit_test(test_refused_families),
        cmocka_unit_test(test_speed),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_write_bytes),
        cmocka_unit_test(test_small_spm),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_note),
        cmocka_unit_test(test_replace_bomb),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
