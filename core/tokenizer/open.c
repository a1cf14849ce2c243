/* Opening a tokenizer: `bytes`, or the files of a folder. */
#include "core/tokenizer/tokenizer_impl.h"

#include "core/base/file.h"
#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_EOS = 256 };
static const size_t json_limit = (size_t)256 << 20, config_limit = (size_t)16 << 20;

size_t zf_tokenizer_size(const struct zf_tokenizer *t)
{
    return t->size;
}

int32_t zf_tokenizer_eos(const struct zf_tokenizer *t)
{
    return t->eos;
}

const char *zf_tokenizer_note(const struct zf_tokenizer *t)
{
    return t->note;
}

static void free_steps(struct zf_steps *s)
{
    for (size_t i = 0; i < s->count; i++) zf_splitter_free(&s->list[i].regex);
    free(s->list);
}

void zf_tokenizer_close(struct zf_tokenizer *t)
{
    if (!t) return;
    zf_bpe_free(t->bpe);
    zf_added_free(&t->raw);
    zf_added_free(&t->normalized);
    free_steps(&t->normalizer);
    free_steps(&t->pre_tokenizer);
    free_steps(&t->decoder);
    free(t->before.ids);
    free(t->after.ids);
    free(t->text);
    free(t->text_size);
    free(t->special);
    zf_arena_free(&t->arena);
    free(t);
}

int32_t zf_tokenizer_find(const struct zf_tokenizer *t, const char *text, size_t size)
{
    const struct zf_added *lists[] = {&t->raw, &t->normalized};
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            const struct zf_added_token *a = &lists[l]->tokens[i];
            if (a->content_size == size && !memcmp(a->content, text, size)) return a->id;
        }
    }
    return t->bpe ? zf_bpe_find(t->bpe, text, size) : -1;
}

static enum zf_status open_bytes(struct zf_tokenizer *t, struct zf_err *e)
{
    static const char eos[] = "<|endoftext|>";
    t->bytes = true;
    t->size = BYTES_EOS + 1;
    t->eos = BYTES_EOS;
    t->text = calloc(t->size, sizeof *t->text);
    t->text_size = calloc(t->size, sizeof *t->text_size);
    t->special = calloc(t->size, sizeof *t->special);
    char *all = zf_arena_alloc(&t->arena, 256);
    if (!t->text || !t->text_size || !t->special || !all) return zf_fail_memory(e, "the tokenizer");
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        t->text[i] = all + i;
        t->text_size[i] = 1;
    }
    t->text[BYTES_EOS] = eos;
    t->text_size[BYTES_EOS] = sizeof eos - 1;
    t->special[BYTES_EOS] = true;
    struct zf_added_token a = {
        .text = eos, .size = sizeof eos - 1, .content = eos, .content_size = sizeof eos - 1, .id = BYTES_EOS, .special = true};
    ZF_TRY(zf_added_add(&t->raw, &a, e));
    return zf_added_sort(&t->raw, e);
}

/* The end token that one of the folder's files names: as text or {"content": text} under eos_token, as a number or a list under
 * eos_token_id. */
static enum zf_status find_eos(struct zf_tokenizer *t, const char *folder, struct zf_err *e)
{
    static const struct {
        const char *file, *key;
    } sources[] = {{"tokenizer_config.json", "eos_token"}, {"generation_config.json", "eos_token_id"}, {"config.json", "eos_token_id"}};
    for (size_t i = 0; i < sizeof sources / sizeof *sources && t->eos < 0; i++) {
        char *path = zf_path_join(folder, sources[i].file);
        if (!path) return zf_fail_memory(e, "a path");
        json_t *j = NULL;
        enum zf_status s = zf_file_exists(path) ? zf_json_file(&j, path, config_limit, e) : ZF_OK;
        free(path);
        if (s != ZF_OK) return s;
        const json_t *v = json_object_get(j, sources[i].key);
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (json_is_array(v)) v = json_array_get(v, 0);
        if (json_is_string(v)) t->eos = zf_tokenizer_find(t, json_string_value(v), json_string_length(v));
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id >= 0 && id < (json_int_t)t->size && t->text[id]) t->eos = (int32_t)id;
        json_decref(j);
    }
    return ZF_OK;
}

static enum zf_status open_folder(struct zf_tokenizer **out, const char *folder, struct zf_err *e)
{
    if (!zf_directory_exists(folder)) {
        return zf_fail(e, ZF_FORMAT, folder, "no such folder; a tokenizer is `bytes` or a folder with tokenizer.json");
    }
    char *path = zf_path_join(folder, "tokenizer.json"), *json = NULL;
    size_t size;
    if (!path) return zf_fail_memory(e, "a path");
    enum zf_status s;
    if (!zf_file_exists(path)) {
        s = zf_fail(
            e, ZF_FORMAT, folder,
            "it has no tokenizer.json (vocab.json with merges.txt, and tokenizer.model, are not read by this version); make one with "
            "transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
    } else if ((s = zf_file_read(&json, &size, path, json_limit, e)) == ZF_OK) {
        s = zf_tokenizer_parse(out, json, size, path, e);
    }
    free(json);
    free(path);
    if (s == ZF_OK) s = find_eos(*out, folder, e);
    return s;
}

enum zf_status zf_tokenizer_open(struct zf_tokenizer **out, const char *name, struct zf_err *e)
{
    enum zf_status s;
    *out = NULL;
    if (!strcmp(name, "bytes")) {
        *out = calloc(1, sizeof **out);
        s = *out ? open_bytes(*out, e) : zf_fail_memory(e, "the tokenizer");
    } else {
        s = open_folder(out, name, e);
    }
    if (s == ZF_OK) return ZF_OK;
    zf_tokenizer_close(*out);
    *out = NULL;
    return s;
}
