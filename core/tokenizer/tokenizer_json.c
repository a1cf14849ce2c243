/* tokenizer.json -> struct zf_tokenizer: the model, the added tokens, and the order in which the parts of a file are read. */
#include "core/tokenizer/load.h"

#include "core/base/hash.h"
#include "core/tokenizer/normalize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum zf_status zf_load_fail(struct zf_loader *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum zf_status s = zf_vfail(l->e, ZF_FORMAT, l->path, fmt, ap);
    va_end(ap);
    return s;
}

enum zf_status zf_load_bool(struct zf_loader *l, const json_t *j, const char *key, bool otherwise, bool *out)
{
    const json_t *v = json_object_get(j, key);
    *out = json_is_true(v) || (otherwise && !json_is_false(v));
    return !v || json_is_null(v) || json_is_boolean(v) ? ZF_OK : zf_load_fail(l, "'%s' is no boolean; expected true or false", key);
}

enum zf_status zf_load_piece(struct zf_loader *l, const json_t *j, const char *key, bool may_be_empty, struct zf_piece *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_string(v)) return zf_load_fail(l, "'%s' is missing or no text", key);
    out->size = json_string_length(v);
    if (!out->size && !may_be_empty) return zf_load_fail(l, "'%s' is empty; expected some text", key);
    out->text = zf_arena_strndup(&l->t->arena, json_string_value(v), out->size);
    return out->text ? ZF_OK : zf_fail_memory(l->e, "the tokenizer");
}

/* The model. */

static enum zf_status check_affix(struct zf_loader *l, const json_t *model, const char *key)
{
    const json_t *v = json_object_get(model, key);
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v))) return ZF_OK;
    return zf_load_fail(l, "model.%s is not supported by this version; expected null", key);
}

static enum zf_status load_model(struct zf_loader *l, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) return zf_load_fail(l, "it has no object 'model'; a tokenizer.json of Hugging Face tokenizers has one");
    const json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout"),
                 *unk = json_object_get(model, "unk_token"), *vocab = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE"))) {
        return zf_load_fail(
            l,
            "model '%.64s' is not supported by this version, which has BPE; use a tokenizer of the GPT-2, Llama or Qwen kind, or `bytes`",
            json_is_string(type) ? json_string_value(type) : "?");
    }
    if (!json_is_object(vocab) || !json_is_array(merges)) {
        return zf_load_fail(
            l, "the model is no BPE: it needs an object 'vocab' and a list 'merges'; other kinds are not supported by this version");
    }
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0)) {
        return zf_load_fail(l, "model.dropout is not supported by this version; expected null");
    }
    if (unk && !json_is_null(unk) && !json_is_string(unk)) return zf_load_fail(l, "model.unk_token is no text");
    if (json_is_string(unk)) {
        struct zf_piece piece;
        ZF_TRY(zf_load_piece(l, model, "unk_token", true, &piece));
        l->bpe.unk = piece.text;
    }
    ZF_TRY(check_affix(l, model, "continuing_subword_prefix"));
    ZF_TRY(check_affix(l, model, "end_of_word_suffix"));
    ZF_TRY(zf_load_bool(l, model, "byte_fallback", false, &l->bpe.byte_fallback));
    ZF_TRY(zf_load_bool(l, model, "fuse_unk", false, &l->bpe.fuse_unk));
    ZF_TRY(zf_load_bool(l, model, "ignore_merges", false, &l->bpe.ignore_merges));
    return l->vocabulary.entries ? ZF_OK : zf_load_vocabulary(l, vocab, merges);
}

/* The ids of added tokens that are not in the vocabulary: transformers counts on from it, whatever the file says; a file that says
 * otherwise does not fit the model it came with. */
static enum zf_status number_added(struct zf_loader *l)
{
    int32_t next = (int32_t)l->vocabulary.count;
    for (size_t i = 0; i < l->added.count; i++) {
        struct zf_added_token *a = &l->added.tokens[i];
        int32_t known = zf_bpe_find(l->t->bpe, a->content, a->content_size);
        if (known >= 0 && a->id >= 0 && known != a->id) {
            return zf_load_fail(l, "added_tokens[%zu]: '%.64s' has id %d, but id %d in model.vocab; both must agree", i, a->content, a->id,
                                known);
        }
        if (known < 0 && i < l->file_added && a->id != next) {
            return zf_load_fail(
                l,
                "added_tokens[%zu]: '%.64s' has id %d, where transformers gives it %d, the next behind the vocabulary; save "
                "the tokenizer anew with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                i, a->content, a->id, next);
        }
        a->id = known >= 0 ? known : next;
        if (a->id >= next) next = a->id + 1;
        if ((size_t)a->id >= l->t->size) l->t->size = (size_t)a->id + 1;
    }
    return ZF_OK;
}

static enum zf_status put_token(struct zf_loader *l, struct zf_piece text, size_t id)
{
    if (l->t->text[id]) return zf_load_fail(l, "id %zu belongs to two tokens, '%.64s' and '%.64s'", id, l->t->text[id], text.text);
    l->t->text[id] = text.text;
    l->t->text_size[id] = text.size;
    return ZF_OK;
}

/* How far ahead places are asked for: they lie all over tables of many MB, and come faster together. */
enum { BATCH = 16 };

/* Few holes are normal; an id far beyond the number of tokens is a broken file, not a reason to allocate. */
static enum zf_status load_entries(struct zf_loader *l)
{
    const struct zf_vocabulary *v = &l->vocabulary;
    size_t limit = 2 * (v->count + l->added.count) + 65536;
    if (!v->count && !l->added.count) return zf_load_fail(l, "the vocabulary is empty");
    if (limit > INT32_MAX) return zf_load_fail(l, "the vocabulary has %zu tokens; at most a milliard is possible", v->count);
    l->bpe.byte_level = l->t->byte_level;
    ZF_TRY(zf_bpe_new(&l->t->bpe, &l->bpe, v->count, v->rule_count, l->e));
    for (size_t i = 0; i < v->count; i++) {
        const struct zf_entry *x = &v->entries[i];
        if (i + BATCH < v->count) zf_bpe_expect(l->t->bpe, x[BATCH].text.text, x[BATCH].text.size);
        if (x->id < 0 || (size_t)x->id >= limit) return zf_load_fail(l, "token '%.64s' has no id in 0 .. %zu", x->text.text, limit - 1);
        if (zf_bpe_find(l->t->bpe, x->text.text, x->text.size) >= 0)
            return zf_load_fail(l, "model.vocab has '%.64s' twice; JSON has a key once", x->text.text);
        zf_bpe_add(l->t->bpe, x->text.text, x->text.size, x->id);
        if ((size_t)x->id >= l->t->size) l->t->size = (size_t)x->id + 1;
    }
    ZF_TRY(number_added(l));
    l->t->text = calloc(l->t->size, sizeof *l->t->text);
    l->t->text_size = calloc(l->t->size, sizeof *l->t->text_size);
    l->t->special = calloc(l->t->size, sizeof *l->t->special);
    if (!l->t->text || !l->t->text_size || !l->t->special) return zf_fail_memory(l->e, "the tokenizer");
    for (size_t i = 0; i < v->count; i++) ZF_TRY(put_token(l, v->entries[i].text, (size_t)v->entries[i].id));
    return ZF_OK;
}

static enum zf_status load_batch(struct zf_loader *l, size_t first, size_t count, struct zf_text *joined)
{
    struct zf_bpe *b = l->t->bpe;
    const struct zf_rule *rules = l->vocabulary.rules + first;
    struct zf_bpe_side left[BATCH], right[BATCH];
    struct zf_piece both[BATCH];
    int32_t ids[BATCH];
    joined->size = 0;
    for (size_t i = 0; i < count; i++) {
        ZF_TRY(zf_text_add(joined, rules[i].left.text, rules[i].left.size, l->e));
        ZF_TRY(zf_text_add(joined, rules[i].right.text, rules[i].right.size, l->e));
    }
    for (size_t i = 0, at = 0; i < count; at += both[i++].size) {
        both[i] = (struct zf_piece){joined->data + at, rules[i].left.size + rules[i].right.size};
        zf_bpe_expect(b, rules[i].left.text, rules[i].left.size);
        zf_bpe_expect(b, rules[i].right.text, rules[i].right.size);
        zf_bpe_expect(b, both[i].text, both[i].size);
    }
    for (size_t i = 0; i < count; i++) {
        struct zf_piece x = rules[i].left, y = rules[i].right;
        left[i] = (struct zf_bpe_side){zf_bpe_find(b, x.text, x.size), x.text, x.size};
        right[i] = (struct zf_bpe_side){zf_bpe_find(b, y.text, y.size), y.text, y.size};
        ids[i] = zf_bpe_find(b, both[i].text, both[i].size);
        if (left[i].id < 0 || right[i].id < 0 || ids[i] < 0) {
            struct zf_piece lacks = left[i].id < 0 ? x : right[i].id < 0 ? y : both[i];
            return zf_load_fail(l, "model.merges[%zu] uses '%.*s', which model.vocab does not have", first + i,
                                (int)(lacks.size < 64 ? lacks.size : 64), lacks.text);
        }
        zf_bpe_expect_merge(b, left[i].id, right[i].id);
    }
    for (size_t i = 0; i < count; i++) ZF_TRY(zf_bpe_merge(b, &left[i], &right[i], ids[i], (uint32_t)(first + i), l->e));
    return ZF_OK;
}

static enum zf_status load_rules(struct zf_loader *l)
{
    size_t count = l->vocabulary.rule_count;
    struct zf_text joined = {0};
    enum zf_status s = ZF_OK;
    if (count >= UINT32_MAX) return zf_load_fail(l, "model.merges has more than 2^32 rules");
    for (size_t i = 0; s == ZF_OK && i < count; i += BATCH) s = load_batch(l, i, count - i < BATCH ? count - i : BATCH, &joined);
    free(joined.data);
    return s;
}

/* What the reference searches for: the content, normalised where the token says so. */
static enum zf_status searched_text(struct zf_loader *l, struct zf_added_token *a)
{
    struct zf_text text = {0};
    enum zf_status s = zf_normalize_text(&l->t->normalizer, a->content, a->content_size, &text, l->e);
    if (s == ZF_OK) {
        a->text = zf_arena_strndup(&l->t->arena, text.data ? text.data : "", text.size);
        a->size = text.size;
        if (!a->text) s = zf_fail_memory(l->e, "the tokenizer");
    }
    free(text.data);
    return s;
}

static enum zf_status add_added(struct zf_loader *l, struct zf_added_token a)
{
    struct zf_tokenizer *t = l->t;
    size_t id = (size_t)a.id;
    if (zf_bpe_find(t->bpe, a.content, a.content_size) < 0) {
        struct zf_piece text = {zf_arena_strndup(&t->arena, a.content, a.content_size), a.content_size};
        if (!text.text) return zf_fail_memory(l->e, "the tokenizer");
        ZF_TRY(put_token(l, text, id));
    }
    a.text = a.content = t->text[id];
    if (a.normalized) ZF_TRY(searched_text(l, &a));
    t->text[id] = a.text; /* the reference decodes to the normalised text, and looks that up to know what is special */
    t->text_size[id] = a.size;
    t->special[id] |= a.special && a.size == a.content_size && !memcmp(a.text, a.content, a.size);
    return zf_added_add(a.normalized ? &t->normalized : &t->raw, &a, l->e);
}

static enum zf_status load_added(struct zf_loader *l)
{
    /* Special ones first: of two with the same text the first is taken. */
    for (int special = 1; special >= 0; special--) {
        for (size_t i = 0; i < l->added.count; i++) {
            if (l->added.tokens[i].special == special) ZF_TRY(add_added(l, l->added.tokens[i]));
        }
    }
    ZF_TRY(zf_added_sort(&l->t->raw, l->e));
    return zf_added_sort(&l->t->normalized, l->e);
}

static enum zf_status check_template(struct zf_loader *l)
{
    const struct zf_ids *sides[] = {&l->t->before, &l->t->after};
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < sides[s]->count; i++) {
            size_t id = (size_t)sides[s]->ids[i];
            if (id >= l->t->size || !l->t->text[id]) return zf_load_fail(l, "the template adds id %zu, which no token has", id);
        }
    }
    return ZF_OK;
}

static void write_note(struct zf_tokenizer *t, const json_t *root)
{
    const json_t *cut = json_object_get(root, "truncation"), *pad = json_object_get(root, "padding");
    const json_t *length = json_object_get(cut, "max_length");
    bool cuts = cut && !json_is_null(cut), pads = pad && !json_is_null(pad);
    char at[48] = "";
    if (json_is_integer(length)) snprintf(at, sizeof at, " at %" JSON_INTEGER_FORMAT " tokens", json_integer_value(length));
    if (cuts || pads) {
        snprintf(t->note, sizeof t->note, "tokenizer.json asks for %s%s%s%s; ignored: nothing is cut or padded", cuts ? "truncation" : "",
                 at, cuts && pads ? " and " : "", pads ? "padding" : "");
    }
}

/* The file; then what came from other files: the added tokens, and what begins and ends a text. */
enum zf_status zf_tokenizer_seal(struct zf_tokenizer *t, const void *file, size_t size, struct zf_err *e)
{
    const struct zf_added *lists[] = {&t->raw, &t->normalized};
    const struct zf_ids *sides[] = {&t->before, &t->after};
    struct zf_hash h;
    ZF_TRY(zf_hash_begin(&h, e));
    zf_hash_add(&h, file, size);
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            const struct zf_added_token *a = &lists[l]->tokens[i];
            int32_t flags = a->special | a->single_word << 1 | a->lstrip << 2 | a->rstrip << 3 | a->normalized << 4;
            zf_hash_add(&h, (int32_t[]){a->id, flags}, 2 * sizeof(int32_t));
            zf_hash_add(&h, a->content, a->content_size);
        }
    }
    zf_hash_add(&h, (int32_t[]){t->eos, t->bos}, 2 * sizeof(int32_t));
    for (size_t i = 0; i < 2; i++) zf_hash_add(&h, sides[i]->ids, sides[i]->count * sizeof *sides[i]->ids);
    zf_hash_end(&h, t->hash);
    return ZF_OK;
}

static enum zf_status load_root(struct zf_loader *l, const json_t *root)
{
    if (!json_is_object(root)) return zf_load_fail(l, "it is no JSON object; expected a tokenizer.json of Hugging Face tokenizers");
    ZF_TRY(load_model(l, root));
    ZF_TRY(zf_load_components(l, root));
    ZF_TRY(zf_load_added(l, json_object_get(root, "added_tokens")));
    ZF_TRY(load_entries(l));
    ZF_TRY(load_rules(l));
    zf_bpe_finish(l->t->bpe);
    ZF_TRY(load_added(l));
    ZF_TRY(check_template(l));
    ZF_TRY(zf_load_special(l));
    write_note(l->t, root);
    return ZF_OK;
}

/* The file's JSON, without the two large members if they could be read straight. */
static enum zf_status parse(struct zf_loader *l, const char *text, size_t size, json_t **root)
{
    static const char pointer[] = "version https://git-lfs";
    if (size >= sizeof pointer - 1 && !memcmp(text, pointer, sizeof pointer - 1))
        return zf_load_fail(l, "it is a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`");
    struct zf_text rest = {0};
    bool found;
    enum zf_status s = zf_vocabulary_scan(&l->vocabulary, &l->t->arena, text, size, &rest, &found, l->e);
    if (s == ZF_OK && found && zf_json_parse(root, rest.data, rest.size, l->path, l->e) != ZF_OK) {
        found = false; /* the message shall have the line and column of the whole file */
        zf_vocabulary_free(&l->vocabulary);
    }
    free(rest.data);
    return s != ZF_OK || found ? s : zf_json_parse(root, text, size, l->path, l->e);
}

enum zf_status zf_tokenizer_build(struct zf_tokenizer **out, const char *text, size_t size, const struct zf_gpt2 *gpt2, const char *path,
                                  const struct zf_beside *beside, struct zf_err *e)
{
    json_t *root = NULL;
    struct zf_loader l = {.t = calloc(1, sizeof(struct zf_tokenizer)), .path = path, .e = e, .beside = beside, .gpt2 = gpt2};
    *out = NULL;
    if (!l.t) return zf_fail_memory(e, "the tokenizer");
    l.t->eos = l.t->bos = -1;
    enum zf_status s = gpt2 ? zf_load_gpt2(&l, &root) : parse(&l, text, size, &root);
    if (s == ZF_OK) s = load_root(&l, root);
    if (s == ZF_OK) s = zf_tokenizer_seal(l.t, text, size, e);
    json_decref(root);
    zf_added_free(&l.added);
    zf_vocabulary_free(&l.vocabulary);
    if (s == ZF_OK)
        *out = l.t;
    else
        zf_tokenizer_close(l.t);
    return s;
}

enum zf_status zf_tokenizer_parse(struct zf_tokenizer **out, const char *json, size_t size, const char *path, struct zf_err *e)
{
    return zf_tokenizer_build(out, json, size, NULL, path, NULL, e);
}
