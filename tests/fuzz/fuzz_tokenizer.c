/* Any bytes as tokenizer.json and as text: the input up to the first 0xFF byte is the file, the rest the text. If the file is refused, its
 * first bytes choose the components of a small tokenizer that takes the text. Ids must decode; a mark must lie where it is said to; the ids
 * of a text must be those of the two parts that zf_tokenizer_cut makes of it. */
#include "core/tokenizer/tokenizer_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TYPE(type) "{\"type\":\"" type "\"}"
#define SPLIT(pattern, behavior, invert) \
    "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior "\",\"invert\":" invert "}"
#define REGEX(pattern) "\"Regex\":\"" pattern "\""
#define REPLACE(pattern, content) "{\"type\":\"Replace\",\"pattern\":{" pattern "},\"content\":\"" content "\"}"
#define META(more) "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\"" more "}"
#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
#define SPACES "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

enum { CHOICES = 16, STEPS = 3 };

static const char *const normalizers[CHOICES] = {NULL,
                                                 TYPE("NFC"),
                                                 TYPE("NFD"),
                                                 TYPE("NFKC"),
                                                 TYPE("NFKD"),
                                                 TYPE("Lowercase"),
                                                 TYPE("StripAccents"),
                                                 "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}",
                                                 "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}",
                                                 "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}",
                                                 REPLACE("\"String\":\" \"", "\xE2\x96\x81"),
                                                 REPLACE("\"String\":\"c\"", "ab"),
                                                 REPLACE(REGEX("a+"), "b"),
                                                 REPLACE(REGEX("x*"), ""),
                                                 REPLACE(REGEX("(a|aa)+$"), " "),
                                                 NULL};

static const char *const pre_tokenizers[CHOICES] = {NULL,
                                                    SPLIT(REGEX(WORDS SPACES), "Isolated", "false"),
                                                    SPLIT(REGEX(WORDS "{1,3}" SPACES), "Isolated", "false"),
                                                    SPLIT(REGEX("\\\\s+"), "Removed", "false"),
                                                    SPLIT("\"String\":\"a\"", "MergedWithPrevious", "false"),
                                                    SPLIT("\"String\":\"a\"", "MergedWithNext", "true"),
                                                    SPLIT(REGEX("[ab]*"), "Contiguous", "false"),
                                                    SPLIT(REGEX("(a*)*b"), "Isolated", "true"),
                                                    "{\"type\":\"Digits\",\"individual_digits\":true}",
                                                    "{\"type\":\"Digits\",\"individual_digits\":false}",
                                                    TYPE("Punctuation"),
                                                    TYPE("WhitespaceSplit"),
                                                    META(""),
                                                    META(",\"prepend_scheme\":\"first\",\"split\":false"),
                                                    META(",\"prepend_scheme\":\"never\""),
                                                    NULL};

static const char *const byte_levels[4] = {NULL, TYPE("ByteLevel"), "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
                                           "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"};

static const char *const decoders[CHOICES] = {NULL,
                                              TYPE("ByteLevel"),
                                              TYPE("ByteFallback"),
                                              TYPE("Fuse"),
                                              "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}",
                                              META(""),
                                              META(",\"prepend_scheme\":\"never\""),
                                              REPLACE("\"String\":\"a\"", "<0x41>"),
                                              REPLACE("\"String\":\"\xE2\x96\x81\"", " "),
                                              REPLACE(REGEX("b?"), "\xC3\xA9")};

static void add(struct zf_text *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct zf_text *to, const char *format, ...)
{
    char text[512];
    struct zf_err e;
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof text || zf_text_add(to, text, (size_t)n, &e) != ZF_OK) abort();
}

/* A Sequence of the components that the bytes choose, and `last` behind them; null if there are none. */
static void add_sequence(struct zf_text *to, const char *section, const char *list, const char *const *from, const uint8_t *bytes,
                         const char *last)
{
    int count = 0;
    for (int i = 0; i <= STEPS; i++) {
        const char *one = i == STEPS ? last : from[bytes[i] % CHOICES];
        if (!one) continue;
        if (!count++) add(to, "\"%s\":{\"type\":\"Sequence\",\"%s\":[", section, list);
        add(to, "%s%s", count > 1 ? "," : "", one);
    }
    if (count)
        add(to, "]},");
    else
        add(to, "\"%s\":null,", section);
}

/* The byte alphabet or <0xNN>, letters, and what a few rules make of them. */
static struct zf_tokenizer *small(const uint8_t chosen[12])
{
    const char *byte_level = byte_levels[chosen[9] % 4], *space = byte_level ? "\xC4\xA0" : "\xE2\x96\x81";
    const unsigned flags = chosen[10];
    const char *const yes[] = {"false", "true"};
    struct zf_text json = {0};
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    add(&json, "{");
    add_sequence(&json, "normalizer", "normalizers", normalizers, chosen, NULL);
    add_sequence(&json, "pre_tokenizer", "pretokenizers", pre_tokenizers, chosen + 3, byte_level);
    add_sequence(&json, "decoder", "decoders", decoders, chosen + 6, NULL);
    add(&json, "\"model\":{\"fuse_unk\":%s,\"ignore_merges\":%s,\"byte_fallback\":%s,\"unk_token\":%s,\"vocab\":{\"<u>\":0", yes[flags & 1],
        yes[flags >> 1 & 1], yes[flags >> 2 & 1], flags & 8 ? "\"<u>\"" : "null");
    int id = 1;
    for (unsigned b = 0; b < 256; b++) {
        char c[4];
        int size = (int)zf_utf8_encode(c, zf_alphabet_character((unsigned char)b));
        if (byte_level)
            add(&json, ",\"%s%.*s\":%d", b == '"' || b == '\\' ? "\\" : "", size, c, id++);
        else if (flags & 16 || b % 3) /* perhaps not all of them */
            add(&json, ",\"<0x%02X>\":%d", b, id++);
    }
    const char *const letters[] = {"a", "b", "c", "1", ".", " ", space};
    for (size_t i = 0; !byte_level && i < sizeof letters / sizeof *letters; i++) add(&json, ",\"%s\":%d", letters[i], id++);
    add(&json, ",\"ab\":%d,\"%sa\":%d,\"%sab\":%d,\"%s%s\":%d,\"abab\":%d,\"aa\":%d}", id, space, id + 1, space, id + 2, space, space,
        id + 3, id + 4, id + 5);
    id += 6;
    add(&json, ",\"merges\":[\"a b\",\"%s %s\",\"%s a\",[\"ab\",\"ab\"],\"%s ab\",\"a a\"]},\"added_tokens\":[", space, space, space,
        space);
    add(&json, "{\"id\":%d,\"content\":\"<s>\",\"special\":true,\"lstrip\":%s,\"rstrip\":%s,\"normalized\":false}", id, yes[flags >> 5 & 1],
        yes[flags >> 6 & 1]);
    add(&json, ",{\"id\":%d,\"content\":\"b a\",\"single_word\":%s,\"normalized\":true}]}", id + 1, yes[flags >> 7]);
    if (zf_tokenizer_parse(&t, json.data, json.size, "small", &e) != ZF_OK) {
        fprintf(stderr, "%s: %s\n%.*s\n", e.where, e.message, (int)json.size, json.data);
        abort();
    }
    free(json.data);
    return t;
}

static void check_decoding(const struct zf_tokenizer *t, const struct zf_ids *ids)
{
    struct zf_err e = {0};
    char *out;
    for (int skip = 0; skip < 2; skip++) {
        enum zf_status s = zf_tokenizer_decode(t, ids->ids, ids->count, skip, &out, NULL, &e);
        if (s != ZF_OK && s != ZF_FORMAT) abort(); /* the file's own Replace may go too far */
        free(out);
    }
}

/* Marks at a few places: in order, within the ids, no token ends at a place before it begins. */
static void check_marks(struct zf_encoder *c, const char *text, size_t size, bool specials, const struct zf_ids *plain)
{
    struct zf_err e = {0};
    struct zf_ids ids = {0};
    struct zf_mark marks[4] = {{.offset = 0}, {.offset = size / 3}, {.offset = size / 2}, {.offset = size}};
    struct zf_encode_options o = {.specials_in_text = specials, .marks = marks, .mark_count = 4};
    for (size_t i = 0; i < 4; i++) marks[i].specials = specials;
    if (zf_encode(c, text, size, &o, &ids, &e) == ZF_OK) {
        if (ids.count != plain->count || (ids.count && memcmp(ids.ids, plain->ids, ids.count * sizeof *ids.ids))) abort();
        for (size_t i = 0; i < 4; i++) {
            const struct zf_mark *m = &marks[i];
            if (m->ended <= m->begun && m->begun <= ids.count && (!i || (m->ended >= m[-1].ended && m->begun >= m[-1].begun)) &&
                (i < 3 || m->ended == ids.count))
                continue;
            fprintf(stderr, "mark %zu: at %zu of %zu, %zu tokens end, %zu begin, of %zu\n", i, m->offset, size, m->ended, m->begun,
                    ids.count);
            abort();
        }
    }
    free(ids.ids);
}

/* The text in two parts, cut where zf_tokenizer_cut says when it has seen `seen` bytes. */
static void check_cut(const struct zf_tokenizer *t, struct zf_encoder *c, const char *text, size_t size, size_t seen, bool specials,
                      const struct zf_ids *whole)
{
    struct zf_err e = {0};
    struct zf_ids ids = {0};
    size_t at = zf_tokenizer_cut(t, text, seen);
    struct zf_encode_options first = {.specials_in_text = specials}, second = {.specials_in_text = specials, .continues = true};
    if (at > seen) abort();
    if (at && zf_encode(c, text, at, &first, &ids, &e) == ZF_OK && zf_encode(c, text + at, size - at, &second, &ids, &e) == ZF_OK &&
        (ids.count != whole->count || (ids.count && memcmp(ids.ids, whole->ids, ids.count * sizeof *ids.ids)))) {
        fprintf(stderr, "cut at %zu of %zu (seen %zu): %zu ids, whole %zu\n", at, size, seen, ids.count, whole->count);
        abort();
    }
    free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    struct zf_encoder *c;
    const uint8_t *end = size ? memchr(data, 0xFF, size) : NULL;
    size_t file = end ? (size_t)(end - data) : size, from = end ? file + 1 : size;
    const char *text = (const char *)data + from;
    size -= from;
    if (zf_tokenizer_parse(&t, (const char *)data, file, "tokenizer.json", &e) != ZF_OK) {
        uint8_t chosen[12] = {0};
        memcpy(chosen, data, file < sizeof chosen ? file : sizeof chosen);
        t = small(chosen);
    }
    if (zf_encoder_new(&c, t, &e) != ZF_OK) abort();
    for (int specials = 0; specials < 2; specials++) {
        struct zf_ids ids = {0};
        struct zf_encode_options o = {.specials_in_text = specials};
        if (zf_encode(c, text, size, &o, &ids, &e) == ZF_OK) {
            check_decoding(t, &ids);
            check_marks(c, text, size, specials, &ids);
            for (size_t seen = size / 2; seen <= size; seen += size / 2 + 1) check_cut(t, c, text, size, seen, specials, &ids);
            check_cut(t, c, text, size, size, specials, &ids);
        }
        free(ids.ids);
    }
    zf_encoder_free(c);
    zf_tokenizer_close(t);
    return 0;
}
