/* Any bytes as tokenizer.json and as text: the input up to the first 0xFF byte is the file, the rest the text. If the file is refused, the
 * text goes through a small tokenizer that has everything. Ids must decode. */
#include "core/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char small[] =
    "{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":false},"
    "{\"id\":7,\"content\":\"b a\",\"single_word\":true,\"normalized\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\" "
    "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"ab\"}]},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
    "\"ByteLevel\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"<0x41>\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}]},"
    "\"model\":{\"unk_token\":\"u\",\"fuse_unk\":true,\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"ab\":3,\"\xC4\xA0"
    "ab\":4,\"u\":5},\"merges\":[\"a b\",\"\xC4\xA0 ab\"]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    struct zf_ids ids = {0};
    const uint8_t *mark = size ? memchr(data, 0xFF, size) : NULL;
    size_t file = mark ? (size_t)(mark - data) : size, text = mark ? file + 1 : 0;
    if (zf_tokenizer_parse(&t, (const char *)data, file, "tokenizer.json", &e) != ZF_OK &&
        zf_tokenizer_parse(&t, small, sizeof small - 1, "small", &e) != ZF_OK) {
        abort();
    }
    for (int specials = 0; specials < 2; specials++) {
        if (zf_tokenizer_encode(t, (const char *)data + text, size - text, specials, true, &ids, &e) != ZF_OK) continue;
        char *out;
        if (zf_tokenizer_decode(t, ids.ids, ids.count, false, &out, NULL, &e) != ZF_OK) abort();
        free(out);
    }
    free(ids.ids);
    zf_tokenizer_close(t);
    return 0;
}
