/* Any bytes as templates and records: options, prompt, response, first record, another record, with 0xFF between. What is not refused must
 * become tokens, the same ones twice, and only the first begins a document. */
#include "core/data/document.h"
#include "core/data/layout.h"
#include "core/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char small[] =
    "{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":false},{\"id\":7,\"content\":\"<p>\",\"lstrip\":true,"
    "\"rstrip\":true,\"normalized\":false},{\"id\":8,\"content\":\"b a\",\"single_word\":true,\"normalized\":true},{\"id\":9,\"content\":"
    "\"<|im_start|>\",\"special\":true},{\"id\":10,\"content\":\"<|im_end|>\",\"special\":true}],\"normalizer\":{\"type\":\"Sequence\","
    "\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":\" \"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"c\"},"
    "\"content\":\"ab\"}]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{"
    "\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[6],\"tokens\":[\"<s>\"]}}},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"ab\":3,\"\xC4\xA0"
    "ab\":4,\"u\":5},\"merges\":[\"a b\",\"\xC4\xA0 ab\"]}}";

static struct zf_tokenizer *tokenizers[2];
static struct zf_encoder *encoders[2];
static struct zf_parts parts;
static struct zf_document document;

static void check(bool good)
{
    if (!good) abort();
}

static void render(const struct zf_layout *l, const struct zf_record *r, const char *text, int which, int choice)
{
    struct zf_err e;
    int chosen;
    static uint32_t before[4096];
    if (zf_layout_render(l, r, text, "file", choice, &parts, &chosen, &e)) {
        check(e.code == ZF_FORMAT && strchr(e.where, ':'));
        return;
    }
    check(chosen >= -1 && chosen < 2);
    for (int time = 0; time < 2; time++) {
        if (zf_document_encode(tokenizers[which], encoders[which], &parts, 300, NULL, &document, &e)) {
            check(e.code == ZF_FORMAT && document.count == 0);
            return;
        }
        size_t n = document.count < 4096 ? document.count : 4096;
        for (size_t i = 0; i < document.count; i++)
            check((document.tokens[i] & ZF_TOKEN_ID) < 300 && !(document.tokens[i] & ZF_TOKEN_FIRST) == (i > 0));
        check(!n || !(document.tokens[0] & ZF_TOKEN_TRAINED));
        if (time) check(!memcmp(before, document.tokens, n * sizeof *before));
        if (n) memcpy(before, document.tokens, n * sizeof *before);
    }
}

/* A record that a reader might give; false: it would not. */
static bool make_record(struct zf_record *r, const char *text, size_t size, const struct zf_columns *columns)
{
    size_t tabs = 0;
    for (size_t i = 0; i < size; i++) tabs += text[i] == '\t';
    *r = (struct zf_record){.line = 3, .column = 1, .size = size, .first = true, .last = true, .columns = columns};
    return zf_utf8_check(text, size) == size && (!columns || (tabs + 1 == columns->count && !memchr(text, '\n', size)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a", "text", "label"};
    static const struct zf_columns columns = {names, 3};
    static const struct zf_choice choices[] = {{"0", "bad"}, {"1", "<s>good"}};
    struct zf_err e;
    if (!tokenizers[0]) {
        check(!zf_tokenizer_open(&tokenizers[0], "bytes", &e) && !zf_tokenizer_parse(&tokenizers[1], small, sizeof small - 1, "small", &e));
        for (int i = 0; i < 2; i++) check(!zf_encoder_new(&encoders[i], tokenizers[i], &e));
    }
    if (size < 2) return 0;
    char *fields[4] = {NULL};
    size_t sizes[4] = {0}, at = 2;
    for (int i = 0; i < 4; i++) {
        const uint8_t *end = at < size && i < 3 ? memchr(data + at, 0xFF, size - at) : NULL;
        sizes[i] = end ? (size_t)(end - data) - at : size - at;
        fields[i] = malloc(sizes[i] + 1);
        check(fields[i] != NULL);
        memcpy(fields[i], data + at, sizes[i]);
        fields[i][sizes[i]] = 0;
        at = end ? at + sizes[i] + 1 : size;
    }
    int which = data[0] & 1;
    bool table = data[0] & 2;
    const struct zf_layout_options o = {.tokenizer = tokenizers[which],
                                        .format = table ? ZF_DATA_TSV : ZF_DATA_JSONL,
                                        .prompt = sizes[0] ? fields[0] : NULL,
                                        .response = sizes[1] ? fields[1] : NULL,
                                        .choices = choices,
                                        .choice_count = data[0] & 4 ? 2 : 0,
                                        .chat = data[1] % 6,
                                        .train_all = data[0] & 8,
                                        .add_eos = data[0] & 16,
                                        .add_bos = (enum zf_switch)(data[1] / 6 % 3),
                                        .eos = which ? 6 : 256};
    struct zf_record records[2];
    struct zf_layout *l = NULL;
    if (make_record(&records[0], fields[2], sizes[2], table ? &columns : NULL) &&
        make_record(&records[1], fields[3], sizes[3], table ? &columns : NULL) &&
        !zf_layout_open(&l, &o, &records[0], fields[2], "file", &e)) {
        check(zf_layout_describe(l)[0]);
        for (int i = 0; i < 2; i++)
            for (int choice = -1; choice < (int)o.choice_count; choice++) render(l, &records[i], fields[2 + i], which, choice);
        zf_layout_close(l);
    }
    for (int i = 0; i < 4; i++) free(fields[i]);
    return 0;
}
