/* Opening a tokenizer and comparing ids and texts, for the tests of this room. */
#ifndef ZF_TESTS_TOKENIZER_SUPPORT_H
#define ZF_TESTS_TOKENIZER_SUPPORT_H

#include "tests/data/support.h"

#include "core/tokenizer/tokenizer_impl.h"
#include <time.h>

static inline struct zf_tokenizer *open_tokenizer(const char *name)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    enum zf_status s = zf_tokenizer_open(&t, name, &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
    return t;
}

static inline struct zf_tokenizer *parse(const char *json)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    enum zf_status s = zf_tokenizer_parse(&t, json, strlen(json), "tokenizer.json", &e);
    if (s != ZF_OK) print_error("%s: %s\n", e.where, e.message);
    assert_int_equal(s, ZF_OK);
    return t;
}

static inline void expect_bytes(const struct zf_tokenizer *t, const char *text, size_t size, bool specials, bool template,
                                const char *expected)
{
    struct zf_err e = {0};
    struct zf_ids a = {0};
    assert_int_equal(zf_tokenizer_encode(t, text, size, specials, template, &a, &e), ZF_OK);
    assert_numbers(a.ids, a.count, expected);
    free(a.ids);
}

static inline void expect(const struct zf_tokenizer *t, const char *text, const char *expected)
{
    expect_bytes(t, text, strlen(text), true, false, expected);
}

static inline void expect_text(const struct zf_tokenizer *t, const char *ids, bool skip_specials, const char *expected)
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

#endif
