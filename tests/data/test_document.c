/* Parts -> tokens: borders, added tokens in templates and in contents, ids, and whole records beside what transformers makes of them. */
#include "support.h"

#include "core/base/json.h"
#include "core/data/document.h"
#include "core/data/layout.h"

static struct zf_tokenizer *t;
static struct zf_encoder *encoder;
static struct zf_err e;

/* `ab` and ` a` are merged; <s>, <p> (white space around it is its), <n> (searched for behind the normalizer). */
static const char json[] =
    "{\"added_tokens\": [{\"id\": 8, \"content\": \"<s>\", \"special\": true, \"normalized\": false}, {\"id\": 9, \"content\": \"<p>\", "
    "\"special\": true, \"lstrip\": true, \"rstrip\": true, \"normalized\": false}, {\"id\": 10, \"content\": \"<n>\", \"normalized\": "
    "true}], "
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
    "{\"type\": "
    "\"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"<\": 2, \"s\": 3, \">\": 4, \"\\u0120\": 5, \"ab\": 6, \"\\u0120a\": 7}, \"merges\": "
    "[\"a b\", \"\\u0120 a\"]}}";

static char shown[4096];

/* Ids, with T if trained and ^ if a document begins. */
static const char *show(const struct zf_document *d)
{
    size_t n = 0;
    shown[0] = 0;
    for (size_t i = 0; i < d->count; i++) {
        uint32_t k = d->tokens[i];
        n += (size_t)snprintf(shown + n, sizeof shown - n, "%s%s%s%u", i ? " " : "", k & ZF_TOKEN_FIRST ? "^" : "",
                              k & ZF_TOKEN_TRAINED ? "T" : "", k & ZF_TOKEN_ID);
        assert_true(n < sizeof shown);
    }
    return shown;
}

struct piece {
    const char *text; /* NULL: the id */
    int32_t id;
    const char *flags; /* as test_layout shows them */
};

static struct zf_document document;

static enum zf_status encode(const struct piece *list, size_t count, size_t vocab, const volatile int *stop)
{
    struct zf_parts parts = {0};
    for (size_t i = 0; i < count; i++) {
        const struct piece *a = &list[i];
        const struct zf_part p = {.text = a->text,
                                  .size = a->text ? strlen(a->text) : 0,
                                  .id = a->text ? -1 : a->id,
                                  .trained = strchr(a->flags, 'T'),
                                  .specials = strchr(a->flags, 's'),
                                  .content = strchr(a->flags, 'c'),
                                  .front = strchr(a->flags, 'F')};
        assert_int_equal(zf_parts_add(&parts, &p, &e), ZF_OK);
    }
    enum zf_status s = zf_document_encode(t, encoder, &parts, vocab, stop, &document, &e);
    zf_parts_free(&parts);
    return s;
}

#define ENCODE(...) encoded((struct piece[]){__VA_ARGS__}, sizeof((struct piece[]){__VA_ARGS__}) / sizeof(struct piece))
static const char *encoded(const struct piece *list, size_t count)
{
    assert_int_equal(encode(list, count, 100, NULL), ZF_OK);
    return show(&document);
}

static void test_borders(void **state)
{
    (void)state;
    assert_string_equal(ENCODE({"s", 0, ""}, {"ab", 0, "T"}), "^3 T6");
    assert_string_equal(ENCODE({"sa", 0, ""}, {"bs", 0, "T"}), "^3 T6 T3"); /* a token across the border is trained */
    assert_string_equal(ENCODE({"sa", 0, "T"}, {"bs", 0, ""}), "^3 T6 3");
    assert_string_equal(ENCODE({"s", 0, ""}, {"a", 0, "T"}, {"bs", 0, ""}, {"b", 0, "T"}), "^3 T6 3 T1");
    assert_string_equal(ENCODE({"s ", 0, ""}, {"a", 0, "T"}, {"b", 0, ""}), "^3 5 T6");
    assert_string_equal(ENCODE({"s ", 0, ""}, {"a", 0, "T"}), "^3 T7");
    assert_string_equal(ENCODE({"ab", 0, "T"}), "^6"); /* nothing predicts the first one */
    assert_string_equal(ENCODE({"a", 0, ""}, {NULL, 8, ""}, {"b", 0, "T"}, {NULL, 8, "T"}), "^0 8 T1 T8"); /* no merge across an id */
    assert_string_equal(ENCODE({NULL, 8, "T"}, {NULL, 8, "T"}), "^8 T8");
    assert_int_equal(encode(NULL, 0, 100, NULL), ZF_OK);
    assert_int_equal(document.count, 0);
}

static void test_added_tokens(void **state)
{
    (void)state;
    assert_string_equal(ENCODE({"<s>", 0, "c"}), "^2 3 4");
    assert_true(document.spelled);
    assert_int_equal(document.recognised, 0);
    assert_string_equal(ENCODE({"a<s>b<n>", 0, "sT"}), "^0 T8 T1 T10");
    assert_false(document.spelled);
    assert_int_equal(document.recognised, 2);
    /* A template's tokens beside a content that spells the same. */
    assert_string_equal(ENCODE({"<s>a", 0, "s"}, {"b<s>", 0, "c"}, {"<n><s>", 0, "s"}, {"ab", 0, "cT"}), "^8 6 2 3 4 10 8 T6");
    assert_true(document.spelled);
    assert_int_equal(document.recognised, 3);
    assert_string_equal(ENCODE({"a", 0, "s"}, {"b", 0, "c"}, {"a", 0, "sT"}, {"b", 0, "cT"}), "^6 T6");
    /* No token of halves. */
    assert_string_equal(ENCODE({"<", 0, "s"}, {"s>", 0, "c"}), "^2 3 4");
    assert_string_equal(ENCODE({"s<", 0, "c"}, {"s>", 0, "sT"}), "^3 2 T3 T4");
    assert_false(document.spelled);
    /* Two pieces of templates are one. */
    assert_string_equal(ENCODE({"s<", 0, "s"}, {"s>a", 0, "sT"}, {"b", 0, "c"}), "^3 T8 T6");
    /* White space belongs to a token that takes it, in the template only. */
    assert_string_equal(ENCODE({"s ", 0, "c"}, {" <p> ", 0, "sT"}, {" a", 0, "c"}), "^3 5 T9 7");
    assert_string_equal(ENCODE({"s  <p>  a", 0, "s"}), "^3 9 0");
    assert_string_equal(ENCODE({"s", 0, "sT"}, {" <p>", 0, "s"}, {"b", 0, "sT"}), "^3 9 T1");
}

/* An added token that is searched for behind the normalizer, which changes it. */
static void test_normalized_tokens(void **state)
{
    (void)state;
    static const char lower[] =
        "{\"added_tokens\": [{\"id\": 6, \"content\": \"<END>\", \"special\": true, \"normalized\": true}], \"normalizer\": {\"type\": "
        "\"Lowercase\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<\": 1, \">\": 2, \"e\": 3, \"n\": 4, \"d\": 5}, "
        "\"merges\": []}}";
    struct zf_tokenizer *before = t;
    struct zf_encoder *with = encoder;
    save_text("tokenizer.json", lower);
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_OK);
    assert_int_equal(zf_encoder_new(&encoder, t, &e), ZF_OK);
    assert_string_equal(ENCODE({"A", 0, "c"}, {"<END>", 0, "sT"}, {"<END>", 0, "c"}, {"a", 0, "T"}), "^0 T6 1 3 4 5 2 T0");
    assert_int_equal(document.recognised, 1);
    assert_string_equal(ENCODE({"<END>", 0, "c"}, {"a<end>a", 0, "s"}, {"<END>", 0, "T"}), "^1 3 4 5 2 0 6 0 T1 T3 T4 T5 T2");
    assert_string_equal(ENCODE({"<END>", 0, "sT"}, {"a", 0, ""}, {"<END>", 0, "s"}), "^6 0 6");
    zf_encoder_free(encoder);
    zf_tokenizer_close(t);
    t = before;
    encoder = with;
}

static void test_refusals(void **state)
{
    (void)state;
    const struct piece list[] = {{"a", 0, ""}, {NULL, 8, "T"}};
    const volatile int stop = 1;
    assert_int_equal(encode(list, 2, 9, NULL), ZF_OK);
    assert_int_equal(encode(list, 2, 8, NULL), ZF_FORMAT);
    assert_non_null(strstr(e.message, "'<s>' with id 8"));
    assert_int_equal(document.count, 0);
    const struct piece word[] = {{"sab", 0, ""}};
    assert_int_equal(encode(word, 1, 6, NULL), ZF_FORMAT);
    assert_non_null(strstr(e.message, "'ab' with id 6"));
    assert_int_equal(encode(list, 2, 9, &stop), ZF_STOPPED);
    const struct piece broken[] = {{"a\xFF", 0, ""}, {"b", 0, "T"}};
    assert_int_equal(encode(broken, 2, 9, NULL), ZF_FORMAT);
}

/* A long document among short ones: memory is used again, and nothing of it stays. */
static void test_again(void **state)
{
    (void)state;
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    memset(text, 'a', LONG);
    text[LONG] = 0;
    const struct piece list[] = {{"s", 0, ""}, {text, 0, "T"}, {"b", 0, ""}};
    assert_int_equal(encode(list, 3, 100, NULL), ZF_OK);
    assert_int_equal(document.count, LONG + 1);
    for (size_t i = 1; i <= LONG; i++) assert_true(zf_token_is_target(document.tokens[i]));
    assert_string_equal(ENCODE({"s", 0, ""}, {"ab", 0, "T"}), "^3 T6");
    free(text);
}

static void compare_row(const json_t *row, const struct zf_tokenizer *of, struct zf_encoder *with, const char *name, int32_t eos)
{
    const json_t *ids = json_object_get(row, "ids");
    const char *trained = json_string_value(json_object_get(row, "trained"));
    char *record = json_dumps(json_object_get(row, "record"), 0);
    assert_non_null(record);
    const struct zf_record r = {.line = 1, .column = 1, .size = strlen(record), .first = true, .last = true};
    const struct zf_layout_options o = {.tokenizer = of,
                                        .format = ZF_DATA_JSONL,
                                        .prompt = json_string_value(json_object_get(row, "prompt")),
                                        .response = json_string_value(json_object_get(row, "response")),
                                        .add_eos = true,
                                        .eos = eos};
    struct zf_layout *l;
    struct zf_parts parts = {0};
    struct zf_document d = {0};
    if (zf_layout_open(&l, &o, &r, record, name, &e) != ZF_OK || zf_layout_render(l, &r, record, name, -1, &parts, NULL, &e) != ZF_OK ||
        zf_document_encode(of, with, &parts, zf_tokenizer_size(of), NULL, &d, &e) != ZF_OK)
        fail_msg("%s: %s: %s", name, record, e.message);
    bool equal = d.count == json_array_size(ids) && d.count && (d.tokens[0] & ZF_TOKEN_FIRST);
    for (size_t i = 0; equal && i < d.count; i++) {
        equal = (d.tokens[i] & ZF_TOKEN_ID) == (uint32_t)json_integer_value(json_array_get(ids, i)) &&
                ((d.tokens[i] & ZF_TOKEN_TRAINED) != 0) == (trained[i] == '1');
    }
    if (!equal) {
        for (size_t i = 0; i < d.count || i < json_array_size(ids); i++) {
            print_error("%zu: %d%s, expected %lld%s\n", i, i < d.count ? (int)(d.tokens[i] & ZF_TOKEN_ID) : -1,
                        i < d.count && d.tokens[i] & ZF_TOKEN_TRAINED ? " trained" : "",
                        i < json_array_size(ids) ? (long long)json_integer_value(json_array_get(ids, i)) : -1,
                        i < json_array_size(ids) && trained[i] == '1' ? " trained" : "");
        }
        fail_msg("%s: another row for %s", name, record);
    }
    zf_layout_close(l);
    zf_parts_free(&parts);
    free(d.tokens);
    free(record);
}

/* prompt_rows.py writes such sets; ZF_PROMPT_ROWS names another one, of real tokenizers. */
static void test_as_transformers(void **state)
{
    (void)state;
    char path[1024], tokenizer[2048];
    const char *other = getenv("ZF_PROMPT_ROWS"), *source = getenv("ZF_SOURCE");
    if (other)
        snprintf(path, sizeof path, "%s", other);
    else
        snprintf(path, sizeof path, "%s/tests/golden/prompt_rows", source ? source : ".");
    json_t *sets;
    size_t rows = 0;
    snprintf(tokenizer, sizeof tokenizer, "%s/rows.json", path);
    assert_int_equal(zf_json_file(&sets, tokenizer, (size_t)256 << 20, &e), ZF_OK);
    for (size_t i = 0; i < json_array_size(sets); i++) {
        const json_t *set = json_array_get(sets, i), *list = json_object_get(set, "rows");
        const char *name = json_string_value(json_object_get(set, "tokenizer"));
        struct zf_tokenizer *of;
        struct zf_encoder *with;
        snprintf(tokenizer, sizeof tokenizer, "%s%s%s", *name == '/' ? "" : path, *name == '/' ? "" : "/", name);
        if (zf_tokenizer_open(&of, tokenizer, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
        assert_int_equal(zf_encoder_new(&with, of, &e), ZF_OK);
        for (size_t k = 0; k < json_array_size(list); k++, rows++)
            compare_row(json_array_get(list, k), of, with, name, (int32_t)json_integer_value(json_object_get(set, "eos")));
        zf_encoder_free(with);
        zf_tokenizer_close(of);
    }
    assert_true(rows >= 20);
    if (other) print_message("%zu rows\n", rows);
    json_decref(sets);
}

static int begin(void **state)
{
    if (set_up(state)) return -1;
    save_text("tokenizer.json", json);
    return zf_tokenizer_open(&t, folder, &e) != ZF_OK || zf_encoder_new(&encoder, t, &e) != ZF_OK;
}

static int end(void **state)
{
    free(document.tokens);
    zf_encoder_free(encoder);
    zf_tokenizer_close(t);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders),  cmocka_unit_test(test_added_tokens), cmocka_unit_test(test_normalized_tokens),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_again),        cmocka_unit_test(test_as_transformers),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
