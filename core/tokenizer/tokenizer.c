/* Opening a tokenizer and encoding: added tokens, normalizer, added tokens again, words, merges. */
#include "core/tokenizer/tokenizer_impl.h"

#include "core/base/file.h"
#include "core/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_EOS = 256, POLL = 1 << 20 };
static const size_t json_limit = (size_t)256 << 20, config_limit = (size_t)16 << 20;

enum zf_status zf_ids_push(struct zf_ids *a, int32_t id, struct zf_err *e)
{
    void *p = a->ids;
    enum zf_status s = zf_grow(&p, &a->room, a->count + 1, sizeof *a->ids, e);
    a->ids = p;
    if (s == ZF_OK) a->ids[a->count++] = id;
    return s;
}

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

void zf_tokenizer_close(struct zf_tokenizer *t)
{
    if (!t) return;
    zf_bpe_free(t->bpe);
    zf_added_free(&t->raw);
    zf_added_free(&t->normalized);
    zf_splitter_free(&t->splitter);
    free(t->normalizer.list);
    free(t->decoder.list);
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

enum zf_status zf_replace(struct zf_text *out, const char *text, size_t size, const struct zf_step *step, size_t limit, struct zf_err *e)
{
    for (size_t at = 0; at < size;) {
        const char *hit = memmem(text + at, size - at, step->pattern.text, step->pattern.size);
        size_t plain = hit ? (size_t)(hit - text) - at : size - at;
        ZF_TRY(zf_text_add(out, text + at, plain, e));
        at += plain;
        if (!hit) break;
        ZF_TRY(zf_text_add(out, step->content.text, step->content.size, e));
        at += step->pattern.size;
        if (out->size > limit)
            return zf_fail(e, ZF_FORMAT, "tokenizer.json", "its Replace steps make a text over %zu bytes of a short one", limit);
    }
    return ZF_OK;
}

size_t zf_replace_limit(size_t size)
{
    return size > SIZE_MAX / 128 ? SIZE_MAX : 64 * size + 65536;
}

struct encoder {
    const struct zf_tokenizer *t;
    const struct zf_encode_options *o;
    struct zf_bpe_work work;
    struct zf_text normal[2], prefixed; /* the normalizer writes from one to the other */
    struct zf_ids *out;
    size_t since_poll;
};

static enum zf_status poll_stop(struct encoder *c, size_t bytes, struct zf_err *e)
{
    c->since_poll += bytes;
    if (c->since_poll < POLL) return ZF_OK;
    c->since_poll = 0;
    return c->o->stop && *c->o->stop ? zf_fail(e, ZF_STOPPED, NULL, "stopped while tokenising") : ZF_OK;
}

static enum zf_status encode_words(struct encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_tokenizer *t = c->t;
    if (!size) return ZF_OK;
    if (t->bytes) {
        for (size_t i = 0; i < size; i++) ZF_TRY(zf_ids_push(c->out, (unsigned char)text[i], e));
        return poll_stop(c, size, e);
    }
    if (t->prefix_space && text[0] != ' ') {
        c->prefixed.size = 0;
        ZF_TRY(zf_text_add(&c->prefixed, " ", 1, e));
        ZF_TRY(zf_text_add(&c->prefixed, text, size, e));
        text = c->prefixed.data;
        size = c->prefixed.size;
    }
    for (size_t at = 0, length = size; at < size; at += length) {
        if (t->split) ZF_TRY(zf_splitter_next(&t->splitter, text, size, at, &length, e));
        ZF_TRY(zf_bpe_encode(t->bpe, &c->work, text + at, length, c->out, c->o->stop, e));
        ZF_TRY(poll_stop(c, length, e));
    }
    return ZF_OK;
}

typedef enum zf_status text_action(struct encoder *c, const char *text, size_t size, struct zf_err *e);

/* Cuts text at the added tokens of a list: their ids, and `between` on what lies between them. */
static enum zf_status around_added(struct encoder *c, const struct zf_added *list, const char *text, size_t size, text_action *between,
                                   struct zf_err *e)
{
    size_t done = 0, from = 0, begin, end;
    const struct zf_added_token *a;
    while (c->o->specials_in_text && (a = zf_added_next(list, text, size, &from, done, &begin, &end))) {
        if (begin > done) ZF_TRY(between(c, text + done, begin - done, e));
        done = end;
        if (begin >= end) continue;
        ZF_TRY(zf_ids_push(c->out, a->id, e));
        if (c->o->recognised) ++*c->o->recognised;
    }
    return done < size ? between(c, text + done, size - done, e) : ZF_OK;
}

static enum zf_status encode_piece(struct encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_steps *steps = &c->t->normalizer;
    size_t limit = zf_replace_limit(size);
    for (size_t i = 0; i < steps->count && size; i++) {
        struct zf_text *to = &c->normal[i % 2];
        to->size = 0;
        if (steps->list[i].kind == ZF_STEP_PREPEND) {
            ZF_TRY(zf_text_add(to, steps->list[i].content.text, steps->list[i].content.size, e));
            ZF_TRY(zf_text_add(to, text, size, e));
        } else {
            ZF_TRY(zf_replace(to, text, size, &steps->list[i], limit, e));
        }
        text = to->data;
        size = to->size;
    }
    return around_added(c, &c->t->normalized, text, size, encode_words, e);
}

static enum zf_status encode(struct encoder *c, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_tokenizer *t = c->t;
    if (!t->bytes && !c->o->checked) {
        size_t good = zf_utf8_check(text, size);
        if (good < size) {
            return zf_fail(e, ZF_FORMAT, NULL,
                           "byte 0x%02X at offset %zu is no UTF-8; the tokenizer needs UTF-8 text: convert it (iconv -t UTF-8)",
                           (unsigned)(unsigned char)text[good], good);
        }
    }
    for (size_t i = 0; c->o->with_template && i < t->before.count; i++) ZF_TRY(zf_ids_push(c->out, t->before.ids[i], e));
    ZF_TRY(around_added(c, &t->raw, text, size, encode_piece, e));
    for (size_t i = 0; c->o->with_template && i < t->after.count; i++) ZF_TRY(zf_ids_push(c->out, t->after.ids[i], e));
    return ZF_OK;
}

enum zf_status zf_tokenizer_encode_as(const struct zf_tokenizer *t, const char *text, size_t size, const struct zf_encode_options *o,
                                      struct zf_ids *out, struct zf_err *e)
{
    struct encoder c = {.t = t, .o = o, .out = out};
    size_t had = out->count;
    ZF_TRY(zf_bpe_work_init(&c.work, t->bytes ? 0 : size, e));
    enum zf_status s = encode(&c, text, size, e);
    if (s != ZF_OK) out->count = had;
    zf_bpe_work_free(&c.work);
    free(c.normal[0].data);
    free(c.normal[1].data);
    free(c.prefixed.data);
    return s;
}

enum zf_status zf_tokenizer_encode(const struct zf_tokenizer *t, const char *text, size_t size, bool specials_in_text, bool with_template,
                                   struct zf_ids *out, struct zf_err *e)
{
    struct zf_encode_options o = {.specials_in_text = specials_in_text, .with_template = with_template};
    return zf_tokenizer_encode_as(t, text, size, &o, out, e);
}
