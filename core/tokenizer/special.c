/* Added tokens, and which of them begin and end a text: what tokenizer.json says and what transformers (5.24) adds from the files beside
 * it. */
#include "core/tokenizer/load.h"

#include <stdlib.h>
#include <string.h>

/* In the order in which transformers gives ids to those that are new. */
static const char *const named[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
enum { NAMED = sizeof named / sizeof *named };
static const char gpt2_token[] = "<|endoftext|>"; /* bos, eos and unk of GPT2Tokenizer, unless the files say otherwise */

struct collector {
    struct zf_loader *l;
    json_t *places; /* content -> its index in l->added */
};

/* A token with a known text takes the new flags, but stays special. */
static enum zf_status put(struct collector *c, const struct zf_added_token *t)
{
    const json_t *known = json_object_getn(c->places, t->content, t->content_size);
    struct zf_added *list = &c->l->added;
    if (known) {
        struct zf_added_token *old = &list->tokens[json_integer_value(known)];
        bool special = old->special || t->special;
        int32_t id = old->id;
        *old = *t;
        old->special = special;
        old->id = id;
        return ZF_OK;
    }
    if (json_object_setn_new(c->places, t->content, t->content_size, json_integer((json_int_t)list->count)))
        return zf_fail_memory(c->l->e, "added tokens");
    return zf_added_add(list, t, c->l->e);
}

/* {"content": text, flags}. `where` is for messages. */
static enum zf_status read_token(struct zf_loader *l, const json_t *j, const char *where, struct zf_added_token *out)
{
    const json_t *content = json_object_get(j, "content");
    if (!json_is_string(content) || !json_string_length(content)) return zf_load_fail(l, "%s has no content", where);
    bool special;
    ZF_TRY(zf_load_bool(l, j, "special", false, &special));
    *out = zf_added_plain(json_string_value(content), json_string_length(content), special);
    ZF_TRY(zf_load_bool(l, j, "single_word", false, &out->single_word));
    ZF_TRY(zf_load_bool(l, j, "lstrip", false, &out->lstrip));
    ZF_TRY(zf_load_bool(l, j, "rstrip", false, &out->rstrip));
    return zf_load_bool(l, j, "normalized", !special, &out->normalized);
}

static enum zf_status collect_file(struct collector *c, const json_t *list)
{
    size_t i;
    const json_t *j;
    char where[64];
    if (list && !json_is_null(list) && !json_is_array(list)) return zf_load_fail(c->l, "added_tokens is no list");
    json_array_foreach(list, i, j)
    {
        struct zf_added_token t;
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        ZF_TRY(read_token(c->l, j, where, &t));
        json_int_t id = json_is_integer(json_object_get(j, "id")) ? json_integer_value(json_object_get(j, "id")) : -1;
        if (id < 0 || id > INT32_MAX) return zf_load_fail(c->l, "%s: '%.64s' has no id", where, t.content);
        t.id = (int32_t)id;
        ZF_TRY(put(c, &t));
    }
    c->l->file_added = c->l->added.count;
    return ZF_OK;
}

/* tokenizer_config.json's added_tokens_decoder, {"id": {token}}, or the older added_tokens.json, {"text": id}: in the order of their ids,
 * which count for nothing else. */
struct numbered {
    struct zf_added_token token;
    json_int_t id;
};

static int compare_numbered(const void *x, const void *y)
{
    const struct numbered *a = x, *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

static enum zf_status collect_numbered(struct collector *c, const json_t *decoder, const json_t *older)
{
    struct numbered *list = calloc(json_object_size(decoder) + json_object_size(older) + 1, sizeof *list);
    enum zf_status s = list ? ZF_OK : zf_fail_memory(c->l->e, "added tokens");
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)(size_t)decoder, key, value)
    {
        if (s == ZF_OK) s = read_token(c->l, value, "tokenizer_config.json: a token of added_tokens_decoder", &list[n].token);
        if (s == ZF_OK) list[n++].id = strtoll(key, NULL, 10);
    }
    json_object_foreach((json_t *)(size_t)older, key, value)
    {
        size_t size = strlen(key);
        if (s != ZF_OK || !size) continue;
        list[n].token = zf_added_plain(key, size, false);
        list[n++].id = json_integer_value(value);
    }
    if (s == ZF_OK) qsort(list, n, sizeof *list, compare_numbered);
    for (size_t i = 0; s == ZF_OK && i < n; i++) s = put(c, &list[i].token);
    free(list);
    return s;
}

/* "text" or {"content": "text", flags}: special, whatever it was. Anything else is none (null, true). */
static enum zf_status collect_special(struct collector *c, const json_t *j)
{
    struct zf_added_token t;
    if (json_is_object(j) && json_object_get(j, "content")) {
        ZF_TRY(read_token(c->l, j, "a special token of tokenizer_config.json or special_tokens_map.json", &t));
        t.special = true;
    } else if (json_is_string(j) && json_string_length(j)) {
        t = zf_added_plain(json_string_value(j), json_string_length(j), true);
    } else {
        return ZF_OK;
    }
    const json_t *known = json_object_getn(c->places, t.content, t.content_size);
    if (!known) return put(c, &t);
    c->l->added.tokens[json_integer_value(known)].special = true;
    return ZF_OK;
}

/* Before added_tokens_decoder there was special_tokens_map.json, which then goes before tokenizer_config.json. */
static bool is_old(const struct zf_beside *b)
{
    return !json_object_get(b->tokenizer_config, "added_tokens_decoder");
}

static const json_t *value_of(const struct zf_beside *b, const char *key)
{
    const json_t *older = is_old(b) ? json_object_get(b->special_tokens_map, key) : NULL;
    return older ? older : json_object_get(b->tokenizer_config, key);
}

static bool ends_in_token(const char *key)
{
    size_t n = strlen(key);
    if (n < 6 || strcmp(key + n - 6, "_token")) return false;
    for (size_t i = 0; i < NAMED; i++) {
        if (!strcmp(key, named[i])) return false;
    }
    return true;
}

/* The seven names; a model's own (image_token); the lists of more. */
static enum zf_status collect_specials(struct collector *c, const struct zf_beside *b)
{
    const json_t *files[] = {b->tokenizer_config, is_old(b) ? b->special_tokens_map : NULL};
    const char *key;
    json_t *value;
    for (size_t i = 0; i < NAMED; i++) {
        const json_t *v = value_of(b, named[i]);
        struct zf_added_token usual = zf_added_plain(gpt2_token, sizeof gpt2_token - 1, true);
        ZF_TRY(!v && c->l->gpt2 && i < 3 ? put(c, &usual) : collect_special(c, v));
    }
    for (size_t f = 0; f < 2; f++) {
        json_object_foreach((json_t *)(size_t)files[f], key, value)
        {
            if (ends_in_token(key)) ZF_TRY(collect_special(c, value));
        }
    }
    const json_t *more = value_of(b, "extra_special_tokens"), *v;
    if (!json_object_size(more) && !json_array_size(more)) more = value_of(b, "additional_special_tokens");
    json_object_foreach((json_t *)(size_t)more, key, value) ZF_TRY(collect_special(c, value));
    size_t i;
    json_array_foreach(more, i, v)
    {
        /* Unlike the others these leave a known token as it is. */
        const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(text) && !json_object_getn(c->places, json_string_value(text), json_string_length(text)))
            ZF_TRY(collect_special(c, v));
    }
    return ZF_OK;
}

enum zf_status zf_load_added(struct zf_loader *l, const json_t *added_tokens)
{
    struct collector c = {l, json_object()};
    const struct zf_beside *b = l->beside;
    enum zf_status s = c.places ? collect_file(&c, added_tokens) : zf_fail_memory(l->e, "added tokens");
    if (s == ZF_OK && b) {
        const json_t *decoder = json_object_get(b->tokenizer_config, "added_tokens_decoder");
        s = collect_numbered(&c, decoder, is_old(b) ? b->added_tokens : NULL);
        if (s == ZF_OK) s = collect_specials(&c, b);
    }
    json_decref(c.places);
    return s;
}

/* The token that a file names: as text or {"content": text}, as an id or a list of ids; -1: none that exists. */
static int32_t resolve(const struct zf_tokenizer *t, const json_t *v)
{
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (json_is_array(v)) v = json_array_get(v, 0);
    if (json_is_string(v)) return zf_tokenizer_find(t, json_string_value(v), json_string_length(v));
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < (json_int_t)t->size && t->text[id] ? (int32_t)id : -1;
}

static int32_t find_special(const struct zf_loader *l, const char *name, const char *id_name)
{
    const struct zf_beside *b = l->beside;
    const json_t *const places[] = {json_object_get(b->tokenizer_config, name), json_object_get(b->special_tokens_map, name),
                                    json_object_get(b->generation_config, id_name), json_object_get(b->config, id_name)};
    int32_t id = -1;
    for (size_t i = 0; i < sizeof places / sizeof *places && id < 0; i++) id = resolve(l->t, places[i]);
    return id >= 0 || !l->gpt2 ? id : zf_tokenizer_find(l->t, gpt2_token, sizeof gpt2_token - 1);
}

enum zf_status zf_load_special(struct zf_loader *l)
{
    static const struct {
        const char *asked, *name;
    } sides[] = {{"add_bos_token", "bos_token"}, {"add_eos_token", "eos_token"}};
    struct zf_tokenizer *t = l->t;
    if (!l->beside) return ZF_OK;
    t->eos = find_special(l, "eos_token", "eos_token_id");
    t->bos = find_special(l, "bos_token", "bos_token_id");
    /* With a tokenizer.json its post_processor decides alone. */
    for (size_t i = 0; i < 2 && l->gpt2; i++) {
        const json_t *v = value_of(l->beside, sides[i].name);
        if (!json_is_true(json_object_get(l->beside->tokenizer_config, sides[i].asked)) || json_is_null(v)) continue;
        int32_t id = v ? resolve(t, v) : zf_tokenizer_find(t, gpt2_token, sizeof gpt2_token - 1);
        if (id >= 0) ZF_TRY(zf_ids_push(i ? &t->after : &t->before, id, l->e));
    }
    return ZF_OK;
}
