/* vocab.json and merges.txt without a tokenizer.json, as old GPT-2 and OPT folders have them: made into the tokenizer.json that says the
 * same. */
#include "core/tokenizer/load.h"

#include <stdio.h>
#include <string.h>

/* Other families ship files of the same names and cut text into other words, so the folder must say what it is. */
static enum zf_status check_family(const struct zf_beside *b, const char *vocab_path, struct zf_err *e)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast"}, *const families[] = {"gpt2", "opt", "gpt_neo", "gptj"};
    const char *class = json_string_value(json_object_get(b->tokenizer_config, "tokenizer_class"));
    const char *family = json_string_value(json_object_get(b->config, "model_type"));
    for (size_t i = 0; class && i < sizeof classes / sizeof *classes; i++) {
        if (!strcmp(class, classes[i])) return ZF_OK;
    }
    for (size_t i = 0; !class && family && i < sizeof families / sizeof *families; i++) {
        if (!strcmp(family, families[i])) return ZF_OK;
    }
    return zf_fail(e, ZF_FORMAT, vocab_path,
                   "there is no tokenizer.json, and this file with its merges is read only for GPT-2 and OPT; tokenizer_class in "
                   "tokenizer_config.json is %s%.64s, model_type in config.json %s%.64s. Make a tokenizer.json with transformers: "
                   "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                   class ? "" : "missing", class ? class : "", family ? "" : "missing", family ? family : "");
}

/* One rule a line; a first line "#version: 0.2". */
static enum zf_status read_merges(json_t *list, struct zf_piece text, const char *path, struct zf_err *e)
{
    char where[512];
    size_t line = 1;
    for (const char *at = text.text, *end = at + text.size, *next; at < end; at = next, line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop ? stop + 1 : end;
        size_t size = (size_t)((stop ? stop : end) - at);
        if (size && at[size - 1] == '\r') size--;
        if (!size || (size >= 8 && !memcmp(at, "#version", 8))) continue;
        const char *space = memchr(at, ' ', size);
        bool pair = space && space > at && space + 1 < at + size && !memchr(space + 1, ' ', (size_t)(at + size - space - 1));
        snprintf(where, sizeof where, "%s:%zu", path, line);
        if (!pair || zf_utf8_check(at, size) < size)
            return zf_fail(e, ZF_FORMAT, where, "it is no pair of tokens; expected two, in UTF-8, with a space between");
        if (json_array_append_new(list, json_stringn(at, size))) return zf_fail_memory(e, "the merges");
    }
    return ZF_OK;
}

enum zf_status zf_gpt2_json(json_t **out, struct zf_piece vocab, const char *vocab_path, struct zf_piece merges, const char *merges_path,
                            const struct zf_beside *beside, struct zf_err *e)
{
    json_t *tokens = NULL, *rules = json_array();
    *out = NULL;
    if (!rules) return zf_fail_memory(e, "the merges");
    enum zf_status s = check_family(beside, vocab_path, e);
    if (s == ZF_OK) s = zf_json_parse(&tokens, vocab.text, vocab.size, vocab_path, e);
    if (s == ZF_OK && !json_is_object(tokens)) s = zf_fail(e, ZF_FORMAT, vocab_path, "it is no JSON object; expected tokens and their ids");
    if (s == ZF_OK) s = read_merges(rules, merges, merges_path, e);
    if (s != ZF_OK) {
        json_decref(tokens);
        json_decref(rules);
        return s;
    }
    int prefix = json_is_true(json_object_get(beside->tokenizer_config, "add_prefix_space"));
    *out = json_pack("{s:{s:s, s:b}, s:{s:s}, s:{s:o, s:o}}", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", prefix, "decoder",
                     "type", "ByteLevel", "model", "vocab", tokens, "merges", rules);
    return *out ? ZF_OK : zf_fail_memory(e, "the tokenizer");
}
