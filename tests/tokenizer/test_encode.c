/* Encoding: ids of the reference library for every component (tests/golden/tokenizer_texts.json), places where a text may be cut, marks,
 * and texts made to break a regex engine. */
#include "tests/tokenizer/support.h"

#include "core/base/json.h"
#include "core/tokenizer/normalize.h"

struct text {
    const char *text;
    size_t size;
};

static struct zf_encoder *encoder_of(const struct zf_tokenizer *t)
{
    struct zf_err e = {0};
    struct zf_encoder *c;
    assert_int_equal(zf_encoder_new(&c, t, &e), ZF_OK);
    return c;
}

static void encode(struct zf_encoder *c, struct text x, const struct zf_encode_options *o, struct zf_ids *out)
{
    struct zf_err e = {0};
    enum zf_status s = zf_encode(c, x.text, x.size, o, out, &e);
    if (s != ZF_OK) print_error("%s\n", e.message);
    assert_int_equal(s, ZF_OK);
}

static void print_text(struct text x)
{
    for (size_t i = 0; i < x.size; i++)
        print_error((unsigned char)x.text[i] >= ' ' && (unsigned char)x.text[i] < 127 ? "%c" : "\\x%02x", (unsigned char)x.text[i]);
    print_error("\n");
}

static void assert_same(struct text x, const struct zf_ids *a, const struct zf_ids *b)
{
    if (a->count == b->count && (!a->count || !memcmp(a->ids, b->ids, a->count * sizeof *a->ids))) return;
    print_text(x);
    for (size_t i = 0; i < a->count && i < 50; i++) print_error("%d ", a->ids[i]);
    print_error("\n");
    for (size_t i = 0; i < b->count && i < 50; i++) print_error("%d ", b->ids[i]);
    print_error("\n");
    fail();
}

/* Numbers that are the same in every run. */
static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

/* The ids of a text are those of its parts, cut at places that zf_tokenizer_cut finds when it sees no more than what comes before `seen`.
 * Every look is at a copy of just that size, so that a sanitizer sees what is read behind it. Returns the number of parts. */
static size_t expect_cuts(const struct zf_tokenizer *t, struct zf_encoder *c, struct text x, bool specials, size_t step, uint64_t *state)
{
    struct zf_ids whole = {0}, parts = {0};
    struct zf_encode_options o = {.specials_in_text = specials};
    size_t at = 0, count = 0;
    encode(c, x, &o, &whole);
    while (at < x.size) {
        size_t seen = 1 + next_random(state) % step, cut = 0;
        for (; !cut && seen < x.size - at; seen += seen + 3) {
            char *copy = malloc(seen);
            assert_non_null(copy);
            memcpy(copy, x.text + at, seen);
            cut = zf_tokenizer_cut(t, copy, seen);
            assert_true(cut <= seen);
            free(copy);
        }
        if (!cut) cut = x.size - at;
        o.continues = at > 0;
        encode(c, (struct text){x.text + at, cut}, &o, &parts);
        at += cut;
        count++;
    }
    assert_same(x, &whole, &parts);
    free(whole.ids);
    free(parts.ids);
    return count;
}

/* One of the file's tokenizers, with its added tokens or without. */
static struct zf_tokenizer *golden_tokenizer(const json_t *root, const json_t *test, bool with_added)
{
    json_t *models = json_object_get(root, "models"), *j = json_object(), *model, *token, *added;
    const char *parts[] = {"vocab", "merges"};
    size_t i;
    model = json_deep_copy(json_object_get(models, json_string_value(json_object_get(test, "model"))));
    for (i = 0; i < 2; i++) {
        const char *other = json_string_value(json_object_get(model, parts[i]));
        if (other) json_object_set(model, parts[i], json_object_get(json_object_get(models, other), parts[i]));
    }
    added = with_added ? json_deep_copy(json_object_get(root, "added")) : json_array();
    json_int_t next = (json_int_t)json_object_size(json_object_get(model, "vocab"));
    json_array_foreach(added, i, token) json_object_set_new(token, "id", json_integer(next++));
    json_object_set_new(j, "model", model);
    json_object_set_new(j, "added_tokens", added);
    json_object_set(j, "normalizer", json_object_get(test, "normalizer"));
    json_object_set(j, "pre_tokenizer", json_object_get(test, "pre_tokenizer"));
    char *text = json_dumps(j, 0);
    assert_non_null(text);
    struct zf_tokenizer *t = parse(text);
    free(text);
    json_decref(j);
    return t;
}

static struct text text_of(const json_t *list, size_t i)
{
    const json_t *j = json_array_get(list, i);
    return (struct text){json_string_value(j), json_string_length(j)};
}

static void expect_ids(struct zf_encoder *c, struct text x, bool specials, const char *expected)
{
    struct zf_ids ids = {0};
    encode(c, x, &(struct zf_encode_options){.specials_in_text = specials}, &ids);
    int32_t want[1024];
    struct zf_ids told = {.ids = want, .count = numbers(expected, want, 1024)};
    assert_same(x, &ids, &told);
    free(ids.ids);
}

/* "ended/begun" for every place between two characters. */
static void expect_marks(struct zf_encoder *c, struct text x, const char *expected)
{
    struct zf_mark marks[128];
    size_t n = 0;
    struct zf_ids ids = {0};
    for (size_t i = 0; i <= x.size; i++) {
        if (i == x.size || ((unsigned char)x.text[i] & 0xC0) != 0x80) marks[n++] = (struct zf_mark){.offset = i};
        assert_true(n < 128);
    }
    encode(c, x, &(struct zf_encode_options){.marks = marks, .mark_count = n}, &ids);
    char *line = strdup(expected), *at = line;
    assert_non_null(line);
    for (size_t i = 0; i < n; i++) {
        size_t ended = strtoul(at, &at, 10), begun = strtoul(at + 1, &at, 10);
        if (marks[i].ended != ended || marks[i].begun != begun) {
            print_text(x);
            print_error("place %zu: %zu/%zu, expected %zu/%zu of %s\n", marks[i].offset, marks[i].ended, marks[i].begun, ended, begun,
                        expected);
        }
        assert_int_equal(marks[i].ended, ended);
        assert_int_equal(marks[i].begun, begun);
    }
    free(line);
    free(ids.ids);
}

static void one_case(const json_t *root, const json_t *test, const json_t *list)
{
    const json_t *with = json_object_get(test, "ids"), *without = json_object_get(test, "plain"), *marks = json_object_get(test, "marks");
    struct zf_tokenizer *t = golden_tokenizer(root, test, true), *bare = golden_tokenizer(root, test, false);
    struct zf_encoder *c = encoder_of(t), *plain = encoder_of(bare);
    uint64_t state = 1;
    assert_int_equal(json_array_size(with), json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct text x = text_of(list, i);
        const char *ids = json_string_value(json_array_get(with, i)), *other = json_string_value(json_array_get(without, i));
        if (!strcmp(other, "=")) other = ids;
        expect_ids(c, x, true, ids);
        expect_ids(plain, x, true, other);
        expect_ids(c, x, false, other);
        const char *line = json_string_value(json_array_get(marks, i));
        if (line && *line) expect_marks(plain, x, line);
        for (size_t step = 1; step < 30; step += 9) expect_cuts(t, c, x, step % 2, step, &state);
    }
    zf_encoder_free(c);
    zf_encoder_free(plain);
    zf_tokenizer_close(t);
    zf_tokenizer_close(bare);
}

static json_t *read_goldens(void)
{
    struct zf_err e = {0};
    char path[1024];
    json_t *root;
    const char *source = getenv("ZF_SOURCE");
    if (!source) return NULL;
    snprintf(path, sizeof path, "%s/tests/golden/tokenizer_texts.json", source);
    assert_int_equal(zf_json_file(&root, path, 1 << 22, &e), ZF_OK);
    return root;
}

static void test_goldens(void **state)
{
    (void)state;
    json_t *root = read_goldens();
    if (!root) {
        print_message("skipped: where the sources are is not said (ZF_SOURCE)\n");
        skip();
    }
    const json_t *cases = json_object_get(root, "cases"), *test;
    size_t i;
    assert_true(json_array_size(cases) > 40);
    json_array_foreach(cases, i, test)
    {
        one_case(root, test, json_object_get(root, "texts"));
    }
    json_decref(root);
}

static const char *const shared[] = {"data/tokenizers/gpt2-openai", "data/tokenizers/opt",       "data/tokenizers/llama2",
                                     "data/tokenizers/phi3",        "data/tokenizers/llama3",    "data/tokenizers/qwen2",
                                     "data/tokenizers/qwen3",       "data/models/stories260K-hf"};
static const char *const corpora[] = {"data/datasets/tinyshakespeare/input.txt", "data/datasets/gsm8k/test.jsonl",
                                      "data/datasets/text/botchan.txt"};

/* Pieces of many kinds in any order, added tokens among them. */
static struct text random_text(char *to, size_t room, uint64_t *state)
{
    static const char *const bits[] = {"a",
                                       "b",
                                       "The",
                                       " word",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\n\n",
                                       "\t",
                                       "\r\n",
                                       "1",
                                       "23",
                                       ".",
                                       "!?",
                                       "'s",
                                       "'LL",
                                       "é",
                                       "e",
                                       "\u0301",
                                       "漢",
                                       "字。",
                                       "かな",
                                       "\u3099",
                                       "한",
                                       "\u1112",
                                       "\u11ab",
                                       "👍🏽",
                                       "\u200d",
                                       "\u00a0",
                                       "\xc2\x85",
                                       "▁",
                                       "<s>",
                                       "</s>",
                                       "<|endoftext|>",
                                       "<|",
                                       "<0x0A>",
                                       "İ",
                                       "ſ",
                                       "½",
                                       "_",
                                       "<|im_start|>",
                                       "<think>"};
    size_t n = 0;
    while (true) {
        const char *bit = bits[next_random(state) % (sizeof bits / sizeof *bits)];
        size_t size = strlen(bit);
        if (n + size > room) return (struct text){to, n};
        memcpy(to + n, bit, size);
        n += size;
    }
}

static void test_cuts_of_real_tokenizers(void **state)
{
    (void)state;
    struct zf_err e = {0};
    size_t tried = 0, parts = 0;
    uint64_t random = 7;
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++) {
        const char *path = shared_path(shared[k]);
        if (!path) continue;
        struct zf_tokenizer *t = open_tokenizer(path);
        struct zf_encoder *c = encoder_of(t);
        for (size_t d = 0; d < sizeof corpora / sizeof *corpora; d++) {
            char *text;
            size_t size;
            path = shared_path(corpora[d]);
            if (!path) continue;
            assert_int_equal(zf_file_read(&text, &size, path, 1 << 24, &e), ZF_OK);
            size = size < 40000 ? size : 40000;
            while ((text[size] & 0xC0) == 0x80) size--;
            parts += expect_cuts(t, c, (struct text){text, size}, true, 1000, &random);
            free(text);
        }
        char room[400];
        for (size_t i = 0; i < 60; i++) expect_cuts(t, c, random_text(room, 10 + i * 6, &random), i % 2, 60, &random);
        zf_encoder_free(c);
        zf_tokenizer_close(t);
        tried++;
    }
    if (!tried) skip();
    assert_true(parts > 100 * tried); /* the cuts were many */
}

/* A byte-level tokenizer whose tokens are single bytes, so that only the pre_tokenizer is at work. */
static struct zf_tokenizer *tokenizer_of_bytes(const char *pre_tokenizer, const char *normalizer)
{
    struct zf_err e = {0};
    struct zf_text json = {0};
    char part[512];
    int n = snprintf(part, sizeof part, "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"merges\":[],\"vocab\":{", normalizer,
                     pre_tokenizer);
    assert_int_equal(zf_text_add(&json, part, (size_t)n, &e), ZF_OK);
    for (int i = 0; i < 256; i++) {
        char character[8];
        size_t size = zf_utf8_encode(character, zf_alphabet_character((unsigned char)i));
        n = snprintf(part, sizeof part, "%s\"%s%.*s\":%d", i ? "," : "", i == '"' || i == '\\' ? "\\" : "", (int)size, character, i);
        assert_int_equal(zf_text_add(&json, part, (size_t)n, &e), ZF_OK);
    }
    assert_int_equal(zf_text_add(&json, "}}}", 4, &e), ZF_OK);
    struct zf_tokenizer *t = parse(json.data);
    free(json.data);
    return t;
}

#define LATER(numbers) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" numbers \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(pattern) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

/* A million of one character, or of a few in turn: no stack, no time beyond that of the text. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const pre_tokenizers[] = {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", SPLIT(LATER("\\\\p{N}{1,3}")),
                                                 SPLIT(LATER("\\\\p{N}"))};
    static const char *const normalizers[] = {"null", "{\"type\":\"NFC\"}", "{\"type\":\"NFKD\"}"};
    static const struct text runs[] = {{"a", 1},  {" ", 1},      {"\n", 1},     {" \n", 2},          {"\0", 1},
                                       {"1", 1},  {"'", 1},      {"\u0301", 2}, {"\u0301\u0327", 4}, {"漢", 3},
                                       {"a ", 2}, {"\u1161", 3}, {"\t\r", 2},   {"e\u0301\u0323", 5}};
    enum { SIZE = 300000 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t p = 0; p < 3; p++) {
        struct zf_tokenizer *t = tokenizer_of_bytes(pre_tokenizers[p], normalizers[p]);
        struct zf_encoder *c = encoder_of(t);
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            size_t n = SIZE - SIZE % runs[r].size;
            for (size_t i = 0; i < n; i += runs[r].size) memcpy(text + i, runs[r].text, runs[r].size);
            struct zf_ids ids = {0};
            encode(c, (struct text){text, n}, &(struct zf_encode_options){0}, &ids);
            if (!p) assert_int_equal(ids.count, n);
            assert_true(ids.count > n / 3);
            zf_tokenizer_cut(t, text, n);
            free(ids.ids);
        }
        zf_encoder_free(c);
        zf_tokenizer_close(t);
    }
    free(text);
}

/* A regex of the file's own that does not end is an error in words; one that is none, too; the encoder stays usable. */
static void test_own_regexes(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_splitter s;
    assert_int_equal(zf_splitter_init(&s, "[a", 2, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "'[a'"));
    struct zf_tokenizer *t = tokenizer_of_bytes(SPLIT("(?:x+x+)+y|c"), "null");
    struct zf_encoder *c = encoder_of(t);
    struct zf_ids ids = {0};
    char text[64];
    memset(text, 'x', sizeof text);
    assert_int_equal(zf_encode(c, text, sizeof text, &(struct zf_encode_options){0}, &ids, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "Oniguruma"));
    assert_int_equal(ids.count, 0);
    encode(c, (struct text){"acb", 3}, &(struct zf_encode_options){0}, &ids);
    assert_numbers(ids.ids, ids.count, "97 99 98");
    assert_int_equal(zf_tokenizer_cut(t, "a b c d e f", 11), 0); /* who knows what it does */
    free(ids.ids);
    zf_encoder_free(c);
    zf_tokenizer_close(t);
}

/* Metaspace "first" is for the first word of an input; ByteLevel's space for every piece. */
static void test_inside(void **state)
{
    (void)state;
    static const char *const scheme[] = {"first", "always", "never"};
    static const char *const expected[3][3] = {{"1 0", "0", "0"}, {"1 0", "1 0", "0"}, {"0", "0", "0"}};
    for (size_t k = 0; k < 3; k++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"%s\",\"split\":true},\"model\":{"
                 "\"merges\":[],\"vocab\":{\"a\":0,\"_\":1}}}",
                 scheme[k]);
        struct zf_tokenizer *t = parse(json);
        struct zf_encoder *c = encoder_of(t);
        for (int how = 0; how < 3; how++) {
            struct zf_ids ids = {0};
            encode(c, (struct text){"a", 1}, &(struct zf_encode_options){.inside = how == 1, .continues = how == 2}, &ids);
            assert_numbers(ids.ids, ids.count, expected[k][how]);
            free(ids.ids);
        }
        zf_encoder_free(c);
        zf_tokenizer_close(t);
    }
}

/* Appending, stopping, counting. */
static void test_options(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_tokenizer *t = open_tokenizer("bytes"), *words = tokenizer_of_bytes("{\"type\":\"ByteLevel\"}", "null");
    struct zf_encoder *c = encoder_of(t), *w = encoder_of(words);
    struct zf_ids ids = {0};
    size_t found = 0;
    struct zf_mark marks[] = {{.offset = 0}, {.offset = 2}, {.offset = 2}, {.offset = 3}};
    assert_int_equal(zf_ids_push(&ids, 7, &e), ZF_OK);
    encode(c, (struct text){"a<|endoftext|>b<|endoftext|>", 28},
           &(struct zf_encode_options){.specials_in_text = true, .recognised = &found}, &ids);
    assert_numbers(ids.ids, ids.count, "7 97 256 98 256");
    assert_int_equal(found, 2);
    assert_int_equal(zf_tokenizer_count_added(t, "a<|endoftext|>b<|endoftext|>", 28), 2);
    assert_int_equal(zf_tokenizer_count_added(t, "<|endoftext|", 12), 0);
    assert_int_equal(zf_tokenizer_cut(t, "a<|endof", 8), 0); /* none beside what may become a token */
    assert_int_equal(zf_tokenizer_cut(t, "abc<|endof", 10), 2);
    encode(c, (struct text){"abc", 3}, &(struct zf_encode_options){.marks = marks, .mark_count = 4}, &ids);
    assert_int_equal(marks[0].begun, 0);
    assert_int_equal(marks[1].ended, 2);
    assert_int_equal(marks[2].begun, 2);
    assert_int_equal(marks[3].ended, 3);
    /* Marks say where added tokens are recognised: not where one lies across. */
    struct zf_mark parts[] = {{.offset = 14, .specials = true}, {.offset = 28}, {.offset = 30, .specials = true}};
    ids.count = found = 0;
    encode(c, (struct text){"<|endoftext|>a<|endoftext|>b<|endoftext|><|endoftext|>", 54},
           &(struct zf_encode_options){.recognised = &found, .marks = parts, .mark_count = 3}, &ids);
    assert_int_equal(found, 2);
    assert_int_equal(ids.count, 13 + 1 + 1 + 1 + 13 + 1);
    assert_int_equal(ids.ids[14], 256);
    assert_int_equal(ids.ids[ids.count - 1], 256);
    assert_int_equal(parts[0].ended, 14);
    assert_int_equal(parts[1].ended, 16);
    assert_int_equal(parts[2].begun, 18);
    /* The stop is seen within a MB or so, and leaves the ids as they were. */
    volatile int stop = 1;
    size_t size = 4 << 20, had = ids.count;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++) text[i] = i % 5 ? 'a' : ' ';
    struct zf_encode_options o = {.stop = &stop};
    assert_int_equal(zf_encode(w, text, size, &o, &ids, &e), ZF_STOPPED);
    assert_int_equal(ids.count, had);
    text[10] = '\xff';
    assert_int_equal(zf_encode(w, text, 20, &o, &ids, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "offset 10"));
    assert_int_equal(ids.count, had);
    free(text);
    free(ids.ids);
    zf_encoder_free(c);
    zf_encoder_free(w);
    zf_tokenizer_close(t);
    zf_tokenizer_close(words);
}

/* Places move with the text: what is put in front stands behind place 0; inside what becomes one, a place is at its front. */
static void test_places(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_step list[] = {{.kind = ZF_STEP_NFC},
                             {.kind = ZF_STEP_PREPEND, .content = {"__", 2}},
                             {.kind = ZF_STEP_REPLACE, .pattern = {"bc", 2}, .content = {"-", 1}}};
    struct zf_steps steps = {.list = list, .count = 3};
    size_t places[] = {0, 1, 2, 4, 5, 6, 7};
    struct zf_places p = {.list = places, .count = 7};
    struct zf_normal_work w = {0};
    const char *text = "ae\u0301bcd"; /* a, e with a mark in 1 .. 4, bc, d */
    size_t size = strlen(text);
    static const size_t expected[] = {0, 3, 3, 5, 5, 6, 7};
    assert_int_equal(zf_normalize(&steps, &text, &size, false, &p, &w, &e), ZF_OK);
    assert_int_equal(size, 7);
    assert_memory_equal(text, "__a\u00e9-d", 7);
    for (size_t i = 0; i < 7; i++) assert_int_equal(places[i], expected[i]);
    zf_normal_work_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),   cmocka_unit_test(test_cuts_of_real_tokenizers),
        cmocka_unit_test(test_long_runs), cmocka_unit_test(test_own_regexes),
        cmocka_unit_test(test_inside),    cmocka_unit_test(test_options),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
