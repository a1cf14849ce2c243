/* vocab.json and merges.txt without a tokenizer.json, as old GPT-2 and OPT folders have them: made into the tokenizer.json that says the
 * same. */
#include "core/tokenizer/load.h"

#include <string.h>

/* Other families ship files of the same names and cut text into other words, so the folder must say what it is. */
static enum zf_status check_family(struct zf_loader *l)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast"}, *const families[] = {"gpt2", "opt", "gpt_neo", "gptj"};
    const char *class = json_string_value(json_object_get(l->beside->tokenizer_config, "tokenizer_class"));
    const char *family = json_string_value(json_object_get(l->beside->config, "model_type"));
    for (size_t i = 0; class && i < sizeof classes / sizeof *classes; i++) {
        if (!strcmp(class, classes[i])) return ZF_OK;
    }
    for (size_t i = 0; !class && family && i < sizeof families / sizeof *families; i++) {
        if (!strcmp(family, families[i])) return ZF_OK;
    }
    return zf_load_fail(l,
                        "there is no tokenizer.json, and this file with its merges is read only for GPT-2 and OPT; tokenizer_class in "
                        "tokenizer_config.json is %s%.64s, model_type in config.json %s%.64s. Make a tokenizer.json with transformers: "
                        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                        class ? "" : "missing", class ? class : "", family ? "" : "missing", family ? family : "");
}

enum zf_status zf_load_gpt2(struct zf_loader *l, json_t **root)
{
    const struct zf_gpt2 *files = l->gpt2;
    json_t *tokens = NULL;
    ZF_TRY(check_family(l));
    ZF_TRY(zf_load_merges(l, files->merges, files->merges_path));
    ZF_TRY(zf_json_parse(&tokens, files->vocab.text, files->vocab.size, l->path, l->e));
    if (!json_is_object(tokens)) {
        json_decref(tokens);
        return zf_load_fail(l, "it is no JSON object; expected tokens and their ids");
    }
    int prefix = json_is_true(json_object_get(l->beside->tokenizer_config, "add_prefix_space"));
    *root = json_pack("{s:{s:s, s:b}, s:{s:s}, s:{s:o, s:[]}}", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", prefix, "decoder",
                      "type", "ByteLevel", "model", "vocab", tokens, "merges");
    return *root ? ZF_OK : zf_fail_memory(l->e, "the tokenizer");
}
