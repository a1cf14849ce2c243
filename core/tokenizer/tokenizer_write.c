/* `bytes` for transformers: a byte-level BPE without merges, in which the id of a byte is its value. */
#include "core/tokenizer/text.h"
#include "core/tokenizer/tokenizer.h"

#include "core/base/file.h"
#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

static const char eos_text[] = "<|endoftext|>";

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0);
}

static json_t *vocabulary(bool with_eos)
{
    json_t *v = json_object();
    for (int i = 0; i < 256; i++) {
        char text[5] = {0};
        zf_utf8_encode(text, zf_alphabet_character((unsigned char)i));
        if (json_object_set_new(v, text, json_integer(i))) goto failed;
    }
    if (!with_eos || !json_object_set_new(v, eos_text, json_integer(256))) return v;
failed:
    json_decref(v);
    return NULL;
}

static json_t *tokenizer(bool with_eos)
{
    json_t *added = with_eos ? json_pack("[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}]", "id", 256, "content", eos_text, "single_word", 0,
                                         "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1)
                             : json_array();
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                  "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocabulary(with_eos), "merges");
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding", "added_tokens", added,
                     "normalizer", "pre_tokenizer", byte_level(), "post_processor", "decoder", byte_level(), "model", model);
}

static json_t *settings(bool with_eos)
{
    json_t *j = json_pack("{s:s, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0,
                          "add_prefix_space", 0);
    if (j && with_eos && json_object_set_new(j, "eos_token", json_string(eos_text))) {
        json_decref(j);
        return NULL;
    }
    return j;
}

static enum zf_status write_json(const char *folder, const char *name, json_t *j, struct zf_err *e)
{
    char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL, *path = zf_path_join(folder, name);
    enum zf_status s = text && path ? zf_file_write_atomic(path, text, strlen(text), e) : zf_fail_memory(e, name);
    json_decref(j);
    free(text);
    free(path);
    return s;
}

enum zf_status zf_tokenizer_write_bytes(const char *folder, bool with_eos, struct zf_err *e)
{
    ZF_TRY(write_json(folder, "tokenizer.json", tokenizer(with_eos), e));
    return write_json(folder, "tokenizer_config.json", settings(with_eos), e);
}
