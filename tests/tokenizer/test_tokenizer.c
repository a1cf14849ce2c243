/* Encoding and decoding with whole tokenizers: ids known from the reference library, and small files made here, so that the tests stand
 * alone. */
#include "tests/tokenizer/support.h"

#include "core/base/json.h"

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

static const char *const qwen2_ids[] = {"9707 11 1879 0 358 2776 220 16 17 18 19 20 1959 94880 586 51950 271 220 856",
                                        "924 58858",
                                        "64 86089 254 236 293",
                                        "64 126 227 126 227 293",
                                        "141334 366 26865 29 6023 522 26865 29",
                                        "87 6 144815 379",
                                        "40 27603 19249 11 432 13272",
                                        "220 1378 220 12621 256",
                                        "6192 52477 319 34 80658",
                                        "16 17 18 19 20 21 22",
                                        "64 151643 65",
                                        "151644 872 198 13048 151645 198",
                                        "44047 28257 522 82 29",
                                        "4102 5674 22441 94007",
                                        "101059 102819 56833 61803 70534",
                                        ""};

static const char *const qwen3_ids[] = {"9707 11 1879 0 358 2776 220 16 17 18 19 20 1959 94880 586 51950 271 220 856",
                                        "924 58858",
                                        "64 86089 254 236 293",
                                        "64 126 227 126 227 293",
                                        "141334 220 151667 6023 151668",
                                        "87 6 144815 379",
                                        "40 27603 19249 11 432 13272",
                                        "220 1378 220 12621 256",
                                        "6192 52477 319 34 80658",
                                        "16 17 18 19 20 21 22",
                                        "64 151643 65",
                                        "151644 872 198 13048 151645 198",
                                        "44047 28257 522 82 29",
                                        "4102 5674 22441 94007",
                                        "101059 102819 56833 61803 70534",
                                        ""};

static const char *const llama3_ids[] = {"9906 11 1917 0 358 2846 220 4513 1774 2001 95980 588 53050 271 220 865",
                                         "936 1897 54939",
                                         "64 87189 254 236 293",
                                         "64 116360 116360 293",
                                         "76460 222 366 27963 29 6151 524 27963 29",
                                         "87 6 129 123 379",
                                         "40 28703 19804 11 433 13575",
                                         "220 1403 220 12908 256",
                                         "6323 53577 319 34 81758",
                                         "4513 10961 22",
                                         "64 27 91 8862 728 428 91 29 65",
                                         "27 91 318 5011 91 29 882 198 13347 27 91 318 6345 91 397",
                                         "45147 29357 524 82 29",
                                         "4194 5792 23249 95107",
                                         "102433 102158 57933 62903 71634",
                                         ""};

static const struct {
    const char *folder;
    const char *const *ids;
} goldens[] = {{"data/tokenizers/gpt2-openai", gpt2_ids}, {"data/tokenizers/opt", opt_ids},     {"data/tokenizers/llama2", llama2_ids},
               {"data/tokenizers/qwen2", qwen2_ids},      {"data/tokenizers/qwen3", qwen3_ids}, {"data/tokenizers/llama3", llama3_ids}};

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
    static const char *const pairs[][2] = {{"gpt-2", "gpt2-openai"}, {"roberta-bpe", "opt"},  {"llama-spm", "llama2"},
                                           {"phi-3", "phi3"},        {"llama-bpe", "llama3"}, {"qwen2", "qwen2"}};
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
    /* The text's fault, of which only the caller knows the place. */
    t = parse("{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"unk_token\":\"?\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    expect(t, "aa", "0 0");
    assert_int_equal(zf_tokenizer_encode(t, "az", 2, true, true, &a, &e), ZF_FORMAT);
    assert_string_equal(e.where, "");
    assert_non_null(strstr(e.message, "unk_token '?'"));
    zf_tokenizer_close(t);
    free(a.ids);
    assert_int_equal(zf_tokenizer_open(&t, in_folder("nowhere"), &e), ZF_FORMAT);
    assert_null(t);
}

static void test_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t last;   /* where the last character begins */
        uint32_t only; /* the character that it is */
        size_t first;  /* the bytes of its first one; 0: malformed */
    } rows[] = {{"a", 0, 'a', 1},
                {"ab", 1, ZF_NO_CHARACTER, 1},
                {"\u00e9", 0, 0xE9, 2},
                {"a\u20ac", 1, ZF_NO_CHARACTER, 1},
                {"\U0001F600", 0, 0x1F600, 4},
                {"\u20acb", 3, ZF_NO_CHARACTER, 3},
                {"a\x80\x80\x80\x80\x80", 2, ZF_NO_CHARACTER, 1},
                {"\x80", 0, ZF_NO_CHARACTER, 0},
                {"\xe2\x82", 0, ZF_NO_CHARACTER, 0}};
    struct zf_err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unsigned char *s = (const unsigned char *)rows[i].text;
        size_t size = strlen(rows[i].text), at = 0;
        uint32_t c;
        assert_int_equal(zf_utf8_last(s, size), rows[i].last);
        assert_int_equal(zf_utf8_only(rows[i].text, size), rows[i].only);
        assert_int_equal(zf_utf8_next(s, size, &at, &c, &e), rows[i].first ? ZF_OK : ZF_FORMAT);
        assert_int_equal(at, rows[i].first);
        if (rows[i].only != ZF_NO_CHARACTER) assert_int_equal(c, rows[i].only);
    }
    assert_int_equal(zf_utf8_last((const unsigned char *)"", 0), 0);
    assert_int_equal(zf_utf8_only("", 0), ZF_NO_CHARACTER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),    cmocka_unit_test(test_llama_cpp),  cmocka_unit_test(test_stories),
        cmocka_unit_test(test_speed),      cmocka_unit_test(test_bytes),      cmocka_unit_test(test_small_spm),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_byte_level), cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_bad_text),   cmocka_unit_test(test_characters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
