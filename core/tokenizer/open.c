/* Opening a tokenizer: `bytes`, or the files of a folder. */
#include "core/tokenizer/load.h"

#include "core/base/file.h"

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

int32_t zf_tokenizer_bos(const struct zf_tokenizer *t)
{
    return t->bos;
}

const struct zf_ids *zf_tokenizer_front(const struct zf_tokenizer *t)
{
    return &t->before;
}

const unsigned char *zf_tokenizer_hash(const struct zf_tokenizer *t)
{
    return t->hash;
}

bool zf_tokenizer_takes_bytes(const struct zf_tokenizer *t)
{
    return t->bytes;
}

bool zf_tokenizer_is_special(const struct zf_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->size && t->special[id];
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

int32_t zf_tokenizer_added(const struct zf_tokenizer *t, const char *text, size_t size)
{
    const struct zf_added *lists[] = {&t->raw, &t->normalized};
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            const struct zf_added_token *a = &lists[l]->tokens[i];
            if (a->content_size == size && !memcmp(a->content, text, size)) return a->id;
        }
    }
    return -1;
}

int32_t zf_tokenizer_find(const struct zf_tokenizer *t, const char *text, size_t size)
{
    int32_t id = zf_tokenizer_added(t, text, size);
    return id < 0 && t->bpe ? zf_bpe_find(t->bpe, text, size) : id;
}

static enum zf_status open_bytes(struct zf_tokenizer *t, struct zf_err *e)
{
    static const char eos[] = "<|endoftext|>";
    t->bytes = true;
    t->size = BYTES_EOS + 1;
    t->eos = BYTES_EOS;
    t->bos = -1;
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
    struct zf_added_token a = zf_added_plain(eos, sizeof eos - 1, true);
    a.id = BYTES_EOS;
    ZF_TRY(zf_added_add(&t->raw, &a, e));
    ZF_TRY(zf_added_sort(&t->raw, e));
    return zf_tokenizer_seal(t, "bytes", 5, e);
}

/* The folder's other files; what is absent stays NULL. */
static enum zf_status read_beside(struct zf_beside *b, const char *folder, struct zf_err *e)
{
    const struct {
        const char *name;
        json_t **to;
    } files[] = {{"tokenizer_config.json", &b->tokenizer_config},
                 {"special_tokens_map.json", &b->special_tokens_map},
                 {"added_tokens.json", &b->added_tokens},
                 {"generation_config.json", &b->generation_config},
                 {"config.json", &b->config}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = zf_path_join(folder, files[i].name);
        if (!path) return zf_fail_memory(e, "a path");
        enum zf_status s = zf_file_exists(path) ? zf_json_file(files[i].to, path, config_limit, e) : ZF_OK;
        free(path);
        if (s != ZF_OK) return s;
    }
    return ZF_OK;
}

static void free_beside(struct zf_beside *b)
{
    json_decref(b->tokenizer_config);
    json_decref(b->special_tokens_map);
    json_decref(b->added_tokens);
    json_decref(b->generation_config);
    json_decref(b->config);
}

static enum zf_status open_gpt2(struct zf_tokenizer **out, const char *vocab_path, const char *merges_path, const struct zf_beside *beside,
                                struct zf_err *e)
{
    char *vocab = NULL, *merges = NULL;
    size_t vocab_size, merges_size;
    struct zf_text both = {0};
    enum zf_status s;
    ZF_GOTO(done, s, zf_file_read(&vocab, &vocab_size, vocab_path, json_limit, e));
    ZF_GOTO(done, s, zf_file_read(&merges, &merges_size, merges_path, json_limit, e));
    ZF_GOTO(done, s, zf_text_add(&both, vocab, vocab_size + 1, e)); /* with the NUL between them */
    ZF_GOTO(done, s, zf_text_add(&both, merges, merges_size, e));
    if (json_is_true(json_object_get(beside->tokenizer_config, "add_prefix_space"))) ZF_GOTO(done, s, zf_text_add(&both, " ", 1, e));
    const struct zf_gpt2 files = {{vocab, vocab_size}, {merges, merges_size}, merges_path};
    s = zf_tokenizer_build(out, both.data, both.size, &files, vocab_path, beside, e);
done:
    free(both.data);
    free(vocab);
    free(merges);
    return s;
}

static enum zf_status open_files(struct zf_tokenizer **out, const char *folder, const struct zf_beside *beside, struct zf_err *e)
{
    static const char *const names[][2] = {{"tokenizer.json", NULL}, {"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = zf_path_join(folder, names[i][0]), *merges = zf_path_join(folder, names[i][1] ? names[i][1] : ""), *json = NULL;
        bool there = path && merges && zf_file_exists(path) && (!names[i][1] || zf_file_exists(merges));
        size_t size;
        enum zf_status s = path && merges ? ZF_OK : zf_fail_memory(e, "a path");
        if (there && names[i][1]) {
            s = open_gpt2(out, path, merges, beside, e);
        } else if (there) {
            s = zf_file_read(&json, &size, path, json_limit, e);
            if (s == ZF_OK) s = zf_tokenizer_build(out, json, size, NULL, path, beside, e);
        }
        free(path);
        free(merges);
        free(json);
        if (there || s != ZF_OK) return s;
    }
    return zf_fail(e, ZF_FORMAT, folder,
                   "it has no tokenizer.json (and no vocab.json with merges.txt; tokenizer.model is not read by this version); make one "
                   "with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

static enum zf_status open_folder(struct zf_tokenizer **out, const char *folder, struct zf_err *e)
{
    if (!zf_directory_exists(folder)) {
        return zf_fail(e, ZF_FORMAT, folder, "no such folder; a tokenizer is `bytes` or a folder with tokenizer.json");
    }
    struct zf_beside beside = {0};
    enum zf_status s = read_beside(&beside, folder, e);
    if (s == ZF_OK) s = open_files(out, folder, &beside, e);
    free_beside(&beside);
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
