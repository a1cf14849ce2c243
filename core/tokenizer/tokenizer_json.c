/* tokenizer.json -> struct zf_tokenizer. Each part of the file has a table of the components we have; anything else is refused by its name.
 */
#include "core/tokenizer/tokenizer_impl.h"

#include "core/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loader {
    struct zf_tokenizer *t;
    const char *path;
    struct zf_err *e;
    bool has_byte_level, has_template;
    const json_t *vocab, *merges, *added;
    struct zf_bpe_options bpe;
};

static enum zf_status fail(struct loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static enum zf_status fail(struct loader *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum zf_status s = zf_vfail(l->e, ZF_FORMAT, l->path, fmt, ap);
    va_end(ap);
    return s;
}

static enum zf_status get_bool(struct loader *l, const json_t *j, const char *key, bool otherwise, bool *out)
{
    const json_t *v = json_object_get(j, key);
    *out = json_is_true(v) || (otherwise && !json_is_false(v));
    return !v || json_is_null(v) || json_is_boolean(v) ? ZF_OK : fail(l, "'%s' is no boolean; expected true or false", key);
}

static enum zf_status get_count(struct loader *l, const json_t *j, const char *key, size_t *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return fail(l, "'%s' is missing or no count; expected 0 or more", key);
    *out = (size_t)json_integer_value(v);
    return ZF_OK;
}

static enum zf_status get_piece(struct loader *l, const json_t *j, const char *key, bool may_be_empty, struct zf_piece *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_string(v)) return fail(l, "'%s' is missing or no text", key);
    out->size = json_string_length(v);
    if (!out->size && !may_be_empty) return fail(l, "'%s' is empty; expected some text", key);
    out->text = zf_arena_strndup(&l->t->arena, json_string_value(v), out->size);
    return out->text ? ZF_OK : zf_fail_memory(l->e, "the tokenizer");
}

/* Components. */

static enum zf_status add_step(struct loader *l, struct zf_steps *to, const struct zf_step *step)
{
    void *p = to->list;
    enum zf_status s = zf_grow(&p, &to->room, to->count + 1, sizeof *to->list, l->e);
    to->list = p;
    if (s == ZF_OK) to->list[to->count++] = *step;
    return s;
}

static enum zf_status load_prepend(struct loader *l, const json_t *j)
{
    struct zf_step step = {.kind = ZF_STEP_PREPEND};
    ZF_TRY(get_piece(l, j, "prepend", true, &step.content));
    return add_step(l, &l->t->normalizer, &step);
}

static enum zf_status load_replace(struct loader *l, const json_t *j, struct zf_steps *to)
{
    struct zf_step step = {.kind = ZF_STEP_REPLACE};
    const json_t *pattern = json_object_get(j, "pattern");
    if (json_object_get(pattern, "Regex"))
        return fail(l, "Replace with a Regex is not supported by this version; it has Replace with a String");
    ZF_TRY(get_piece(l, pattern, "String", false, &step.pattern));
    ZF_TRY(get_piece(l, j, "content", true, &step.content));
    return add_step(l, to, &step);
}

static enum zf_status load_normalizer_replace(struct loader *l, const json_t *j)
{
    return load_replace(l, j, &l->t->normalizer);
}

static enum zf_status load_decoder_replace(struct loader *l, const json_t *j)
{
    return load_replace(l, j, &l->t->decoder);
}

static enum zf_status load_byte_level(struct loader *l, const json_t *j)
{
    if (l->has_byte_level) return fail(l, "pre_tokenizer has ByteLevel twice; expected once");
    l->has_byte_level = l->t->byte_level = true;
    ZF_TRY(get_bool(l, j, "add_prefix_space", true, &l->t->prefix_space));
    ZF_TRY(get_bool(l, j, "use_regex", true, &l->t->split));
    return l->t->split ? zf_splitter_init(&l->t->splitter, l->e) : ZF_OK;
}

static enum zf_status load_nothing(struct loader *l, const json_t *j) /* ByteLevel as a post_processor changes offsets only */
{
    (void)l;
    (void)j;
    return ZF_OK;
}

static enum zf_status load_template(struct loader *l, const json_t *j)
{
    const json_t *single = json_object_get(j, "single"), *specials = json_object_get(j, "special_tokens"), *item;
    size_t i;
    bool seen = false;
    if (l->has_template) return fail(l, "post_processor has TemplateProcessing twice; expected once");
    l->has_template = true;
    if (!json_is_array(single)) return fail(l, "TemplateProcessing has no list 'single'");
    json_array_foreach(single, i, item)
    {
        const char *sequence = json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
        const char *name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (sequence) {
            if (strcmp(sequence, "A") || seen)
                return fail(l, "the template 'single' has sequence %.16s at place %zu; expected A, once", sequence, i);
            seen = true;
            continue;
        }
        if (!name) return fail(l, "the template 'single' has an item %zu that is neither Sequence nor SpecialToken", i);
        const json_t *ids = json_object_get(json_object_get(specials, name), "ids"), *id;
        size_t k;
        if (!json_is_array(ids)) return fail(l, "the template names '%.64s', which special_tokens does not list", name);
        json_array_foreach(ids, k, id)
        {
            json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
            if (v < 0 || v > INT32_MAX) return fail(l, "special_tokens: '%.64s' has an id that is none", name);
            ZF_TRY(zf_ids_push(seen ? &l->t->after : &l->t->before, (int32_t)v, l->e));
        }
    }
    return seen ? ZF_OK : fail(l, "the template 'single' has no sequence A");
}

static enum zf_status add_decoder(struct loader *l, enum zf_step_kind kind)
{
    return add_step(l, &l->t->decoder, &(struct zf_step){.kind = kind});
}

static enum zf_status load_decoder_byte_level(struct loader *l, const json_t *j)
{
    (void)j;
    return add_decoder(l, ZF_STEP_BYTE_LEVEL);
}

static enum zf_status load_byte_fallback(struct loader *l, const json_t *j)
{
    (void)j;
    return add_decoder(l, ZF_STEP_BYTE_FALLBACK);
}

static enum zf_status load_fuse(struct loader *l, const json_t *j)
{
    (void)j;
    return add_decoder(l, ZF_STEP_FUSE);
}

static enum zf_status load_strip(struct loader *l, const json_t *j)
{
    struct zf_step step = {.kind = ZF_STEP_STRIP};
    ZF_TRY(get_piece(l, j, "content", false, &step.content));
    if (zf_utf8_length((const unsigned char *)step.content.text, step.content.size, NULL) != step.content.size) {
        return fail(l, "Strip has the content '%.16s'; expected one character", step.content.text);
    }
    ZF_TRY(get_count(l, j, "start", &step.start));
    ZF_TRY(get_count(l, j, "stop", &step.stop));
    return add_step(l, &l->t->decoder, &step);
}

struct component {
    const char *type;
    enum zf_status (*load)(struct loader *l, const json_t *j);
};

struct section {
    const char *name, *list; /* list: the member of a Sequence that holds its parts */
    struct component components[6];
};

static const struct section sections[] = {
    {"normalizer", "normalizers", {{"Prepend", load_prepend}, {"Replace", load_normalizer_replace}}},
    {"pre_tokenizer", "pretokenizers", {{"ByteLevel", load_byte_level}}},
    {"post_processor", "processors", {{"ByteLevel", load_nothing}, {"TemplateProcessing", load_template}}},
    {"decoder",
     "decoders",
     {{"ByteLevel", load_decoder_byte_level},
      {"Replace", load_decoder_replace},
      {"ByteFallback", load_byte_fallback},
      {"Fuse", load_fuse},
      {"Strip", load_strip}}},
};

static enum zf_status refuse_type(struct loader *l, const struct section *s, const char *type)
{
    char have[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < 6 && s->components[i].type; i++) n += (size_t)snprintf(have + n, sizeof have - n, "%s, ", s->components[i].type);
    return fail(l,
                "%s '%.64s' is not supported by this version, which has: %sand Sequence of these; use a tokenizer of the GPT-2 or Llama-2 "
                "kind, or `bytes`",
                s->name, type, have);
}

static enum zf_status load_section(struct loader *l, const struct section *s, const json_t *j)
{
    if (!j || json_is_null(j)) return ZF_OK;
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!type) return fail(l, "%s is no object with a 'type'", s->name);
    if (!strcmp(type, "Sequence")) {
        const json_t *list = json_object_get(j, s->list), *item;
        size_t i;
        if (!json_is_array(list)) return fail(l, "%s is a Sequence without a list '%s'", s->name, s->list);
        json_array_foreach(list, i, item) ZF_TRY(load_section(l, s, item));
        return ZF_OK;
    }
    for (size_t i = 0; i < 6 && s->components[i].type; i++) {
        if (!strcmp(type, s->components[i].type)) return s->components[i].load(l, j);
    }
    return refuse_type(l, s, type);
}

/* The model. */

static enum zf_status check_affix(struct loader *l, const json_t *model, const char *key)
{
    const json_t *v = json_object_get(model, key);
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v))) return ZF_OK;
    return fail(l, "model.%s is not supported by this version; expected null", key);
}

static enum zf_status check_model(struct loader *l, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) return fail(l, "it has no object 'model'; a tokenizer.json of Hugging Face tokenizers has one");
    const json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout"),
                 *unk = json_object_get(model, "unk_token");
    l->vocab = json_object_get(model, "vocab");
    l->merges = json_object_get(model, "merges");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE"))) {
        return fail(
            l, "model '%.64s' is not supported by this version, which has BPE; use a tokenizer of the GPT-2 or Llama-2 kind, or `bytes`",
            json_is_string(type) ? json_string_value(type) : "?");
    }
    if (!json_is_object(l->vocab) || !json_is_array(l->merges)) {
        return fail(l,
                    "the model is no BPE: it needs an object 'vocab' and a list 'merges'; other kinds are not supported by this version");
    }
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0)) {
        return fail(l, "model.dropout is not supported by this version; expected null");
    }
    if (unk && !json_is_null(unk) && !json_is_string(unk)) return fail(l, "model.unk_token is no text");
    if (json_is_string(unk)) {
        struct zf_piece piece;
        ZF_TRY(get_piece(l, model, "unk_token", true, &piece));
        l->bpe.unk = piece.text;
    }
    ZF_TRY(check_affix(l, model, "continuing_subword_prefix"));
    ZF_TRY(check_affix(l, model, "end_of_word_suffix"));
    ZF_TRY(get_bool(l, model, "byte_fallback", false, &l->bpe.byte_fallback));
    ZF_TRY(get_bool(l, model, "fuse_unk", false, &l->bpe.fuse_unk));
    return get_bool(l, model, "ignore_merges", false, &l->bpe.ignore_merges);
}

static enum zf_status check_id(struct loader *l, const json_t *id, const char *text, size_t limit)
{
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v < 0 || (size_t)v >= limit) return fail(l, "token '%.64s' has no id in 0 .. %zu", text, limit - 1);
    if ((size_t)v >= l->t->size) l->t->size = (size_t)v + 1;
    return ZF_OK;
}

/* Room for all ids. Few holes are normal; an id far beyond the number of tokens is a broken file, not a reason to allocate. */
static enum zf_status size_tables(struct loader *l)
{
    size_t limit = 2 * (json_object_size(l->vocab) + json_array_size(l->added)) + 65536, i;
    const char *text;
    json_t *id;
    const json_t *item;
    json_object_foreach((json_t *)(size_t)l->vocab, text, id) ZF_TRY(check_id(l, id, text, limit));
    json_array_foreach(l->added, i, item)
    {
        const json_t *content = json_object_get(item, "content");
        if (!json_is_string(content) || !json_string_length(content)) return fail(l, "added_tokens[%zu] has no content", i);
        ZF_TRY(check_id(l, json_object_get(item, "id"), json_string_value(content), limit));
    }
    if (!l->t->size) return fail(l, "the vocabulary is empty");
    l->t->text = calloc(l->t->size, sizeof *l->t->text);
    l->t->text_size = calloc(l->t->size, sizeof *l->t->text_size);
    l->t->special = calloc(l->t->size, sizeof *l->t->special);
    return l->t->text && l->t->text_size && l->t->special ? ZF_OK : zf_fail_memory(l->e, "the tokenizer");
}

static enum zf_status put_token(struct loader *l, const char *text, size_t size, size_t id)
{
    if (l->t->text[id]) return fail(l, "id %zu belongs to two tokens, '%.64s' and '%.64s'", id, l->t->text[id], text);
    l->t->text[id] = zf_arena_strndup(&l->t->arena, text, size);
    l->t->text_size[id] = size;
    return l->t->text[id] ? ZF_OK : zf_fail_memory(l->e, "the tokenizer");
}

static enum zf_status load_vocab(struct loader *l)
{
    const char *text;
    json_t *id;
    l->bpe.byte_level = l->t->byte_level;
    ZF_TRY(zf_bpe_new(&l->t->bpe, &l->bpe, json_object_size(l->vocab), json_array_size(l->merges), l->e));
    json_object_foreach((json_t *)(size_t)l->vocab, text, id)
    {
        size_t size = strlen(text), n = (size_t)json_integer_value(id);
        ZF_TRY(put_token(l, text, size, n));
        zf_bpe_add(l->t->bpe, l->t->text[n], size, (int32_t)n);
    }
    return ZF_OK;
}

/* "a b", or ["a", "b"]. */
static enum zf_status merge_parts(struct loader *l, const json_t *j, size_t index, const char *part[2], size_t size[2])
{
    if (json_is_array(j) && json_array_size(j) == 2) {
        for (size_t k = 0; k < 2; k++) {
            const json_t *p = json_array_get(j, k);
            if (!json_is_string(p)) return fail(l, "model.merges[%zu] is no pair of texts", index);
            part[k] = json_string_value(p);
            size[k] = json_string_length(p);
        }
        return ZF_OK;
    }
    const char *text = json_string_value(j), *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return fail(l, "model.merges[%zu] is no pair; expected \"a b\" or [\"a\", \"b\"]", index);
    part[0] = text;
    size[0] = (size_t)(space - text);
    part[1] = space + 1;
    size[1] = json_string_length(j) - size[0] - 1;
    return ZF_OK;
}

static enum zf_status load_merges(struct loader *l, struct zf_text *joined)
{
    const json_t *j;
    size_t i;
    uint32_t rank = 0;
    if (json_array_size(l->merges) >= UINT32_MAX) return fail(l, "model.merges has more than 2^32 rules");
    json_array_foreach(l->merges, i, j)
    {
        const char *part[2];
        size_t size[2];
        if (json_is_string(j) && !strncmp(json_string_value(j), "#version", 8)) continue;
        ZF_TRY(merge_parts(l, j, i, part, size));
        joined->size = 0;
        ZF_TRY(zf_text_add(joined, part[0], size[0], l->e));
        ZF_TRY(zf_text_add(joined, part[1], size[1], l->e));
        int32_t left = zf_bpe_find(l->t->bpe, part[0], size[0]), right = zf_bpe_find(l->t->bpe, part[1], size[1]);
        int32_t both = zf_bpe_find(l->t->bpe, joined->data, joined->size);
        if (left < 0 || right < 0 || both < 0) {
            return fail(l, "model.merges[%zu] uses '%.*s', which model.vocab does not have", i,
                        (int)(joined->size < 64 ? joined->size : 64),
                        left < 0    ? part[0]
                        : right < 0 ? part[1]
                                    : joined->data);
        }
        zf_bpe_merge(l->t->bpe, left, right, both, rank++);
    }
    return ZF_OK;
}

/* What the reference searches for: the content, normalised where the token says so. */
static enum zf_status searched_text(struct loader *l, struct zf_added_token *a)
{
    struct zf_text now = {0}, next = {0};
    enum zf_status s = zf_text_add(&now, a->text, a->size, l->e);
    for (size_t i = 0; s == ZF_OK && i < l->t->normalizer.count; i++) {
        const struct zf_step *step = &l->t->normalizer.list[i];
        next.size = 0;
        if (step->kind == ZF_STEP_REPLACE) {
            s = zf_replace(&next, now.data, now.size, step, zf_replace_limit(a->size), l->e);
        } else if (now.size) {
            s = zf_text_add(&next, step->content.text, step->content.size, l->e);
            if (s == ZF_OK) s = zf_text_add(&next, now.data, now.size, l->e);
        }
        struct zf_text t = now;
        now = next;
        next = t;
    }
    if (s == ZF_OK) {
        a->text = zf_arena_strndup(&l->t->arena, now.data ? now.data : "", now.size);
        a->size = now.size;
        if (!a->text) s = zf_fail_memory(l->e, "the tokenizer");
    }
    free(now.data);
    free(next.data);
    return s;
}

static enum zf_status load_added_token(struct loader *l, const json_t *j, size_t index)
{
    const json_t *content = json_object_get(j, "content");
    struct zf_added_token a = {.size = json_string_length(content), .id = (int32_t)json_integer_value(json_object_get(j, "id"))};
    const char *text = json_string_value(content);
    size_t id = (size_t)a.id;
    ZF_TRY(get_bool(l, j, "special", false, &a.special));
    ZF_TRY(get_bool(l, j, "single_word", false, &a.single_word));
    ZF_TRY(get_bool(l, j, "lstrip", false, &a.lstrip));
    ZF_TRY(get_bool(l, j, "rstrip", false, &a.rstrip));
    ZF_TRY(get_bool(l, j, "normalized", !a.special, &a.normalized));
    int32_t known = zf_bpe_find(l->t->bpe, text, a.size);
    if (known >= 0 && known != a.id) {
        return fail(l, "added_tokens[%zu]: '%.64s' has id %d, but id %d in model.vocab; both must agree", index, text, a.id, known);
    }
    if (known < 0) ZF_TRY(put_token(l, text, a.size, id));
    l->t->special[id] |= a.special;
    a.text = a.content = l->t->text[id];
    a.content_size = a.size;
    if (a.normalized) ZF_TRY(searched_text(l, &a));
    l->t->text[id] = a.text; /* the reference decodes to the normalised text, too */
    l->t->text_size[id] = a.size;
    return zf_added_add(a.normalized ? &l->t->normalized : &l->t->raw, &a, l->e);
}

static enum zf_status load_added(struct loader *l)
{
    /* Special ones first: of two with the same text the first is taken. */
    for (int special = 1; special >= 0; special--) {
        const json_t *j;
        size_t i;
        json_array_foreach(l->added, i, j)
        {
            if (json_is_true(json_object_get(j, "special")) == special) ZF_TRY(load_added_token(l, j, i));
        }
    }
    ZF_TRY(zf_added_sort(&l->t->raw, l->e));
    return zf_added_sort(&l->t->normalized, l->e);
}

static enum zf_status check_template(struct loader *l)
{
    const struct zf_ids *sides[] = {&l->t->before, &l->t->after};
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < sides[s]->count; i++) {
            size_t id = (size_t)sides[s]->ids[i];
            if (id >= l->t->size || !l->t->text[id]) return fail(l, "the template adds id %zu, which no token has", id);
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

static enum zf_status load_root(struct loader *l, const json_t *root)
{
    if (!json_is_object(root)) return fail(l, "it is no JSON object; expected a tokenizer.json of Hugging Face tokenizers");
    l->added = json_object_get(root, "added_tokens");
    if (l->added && !json_is_null(l->added) && !json_is_array(l->added)) return fail(l, "added_tokens is no list");
    ZF_TRY(check_model(l, root));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        ZF_TRY(load_section(l, &sections[i], json_object_get(root, sections[i].name)));
    ZF_TRY(size_tables(l));
    ZF_TRY(load_vocab(l));
    struct zf_text joined = {0};
    enum zf_status s = load_merges(l, &joined);
    free(joined.data);
    if (s != ZF_OK) return s;
    ZF_TRY(zf_bpe_finish(l->t->bpe, l->t->text, l->t->text_size, l->t->size, l->e));
    ZF_TRY(load_added(l));
    ZF_TRY(check_template(l));
    write_note(l->t, root);
    return ZF_OK;
}

enum zf_status zf_tokenizer_parse(struct zf_tokenizer **out, const char *text, size_t size, const char *path, struct zf_err *e)
{
    static const char pointer[] = "version https://git-lfs";
    json_t *root = NULL;
    *out = NULL;
    if (size >= sizeof pointer - 1 && !memcmp(text, pointer, sizeof pointer - 1)) {
        return zf_fail(e, ZF_FORMAT, path, "it is a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`");
    }
    ZF_TRY(zf_json_parse(&root, text, size, path, e));
    struct loader l = {.t = calloc(1, sizeof(struct zf_tokenizer)), .path = path, .e = e};
    enum zf_status s;
    if (!l.t) {
        s = zf_fail_memory(e, "the tokenizer");
    } else {
        l.t->eos = -1;
        s = load_root(&l, root);
    }
    json_decref(root);
    if (s == ZF_OK)
        *out = l.t;
    else
        zf_tokenizer_close(l.t);
    return s;
}
