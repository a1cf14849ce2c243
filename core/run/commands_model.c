#include "core/run/commands_model.h"

#include "checkpoints/hf.h"
#include "core/base/plural.h"
#include "core/base/show.h"
#include "core/tokenizer/tokenizer.h"
#include "core/run/checkpoint_model.h"
#include "core/run/saves.h"
#include "core/session/locate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 1 << 30 };

/* --- tokenize --- */

static void print_ids(const struct zf_ids *ids, bool json)
{
    if (json) putchar('[');
    for (size_t i = 0; i < ids->count; i++) printf("%s%d", i ? (json ? ", " : " ") : "", ids->ids[i]);
    puts(json ? "]" : "");
}

struct tokenize {
    struct zf_tokenizer *tokenizer;
    struct zf_encoder *encoder;
    struct zf_ids ids; /* of the line at hand */
    bool json, decode;
    const char *where; /* FILE, for messages */
};

static enum zf_status encode_line(struct tokenize *t, const char *text, size_t size, struct zf_err *e)
{
    const struct zf_encode_options o = {.specials_in_text = true};
    t->ids.count = 0;
    ZF_TRY(zf_encode(t->encoder, text, size, &o, &t->ids, e));
    print_ids(&t->ids, t->json);
    return ZF_OK;
}

static enum zf_status decode_ids(const struct tokenize *t, struct zf_err *e)
{
    char *text;
    size_t size;
    ZF_TRY(zf_tokenizer_decode(t->tokenizer, t->ids.ids, t->ids.count, false, &text, &size, e));
    if (t->json) {
        json_t *s = json_stringn(text, size);
        char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
        if (quoted)
            puts(quoted);
        else
            zf_fail(e, ZF_FORMAT, NULL, "the ids make bytes that are no UTF-8; leave --json out");
        enum zf_status status = quoted ? ZF_OK : e->code;
        free(quoted);
        json_decref(s);
        free(text);
        return status;
    }
    zf_show_terminal(stdout, text, size);
    putchar('\n');
    free(text);
    return ZF_OK;
}

/* A line of ids: "1 2 3", with or without brackets and commas. */
static enum zf_status decode_line(struct tokenize *t, const char *line, size_t size, struct zf_err *e)
{
    enum zf_status s = ZF_OK;
    char *copy = strndup(line, size), *at = copy;
    if (!copy) return zf_fail_memory(e, "a line");
    t->ids.count = 0;
    while (!s) {
        at += strspn(at, " \t,[]\r");
        if (!*at) break;
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX)
            s = zf_fail(e, ZF_FORMAT, NULL, "`%.20s` is no token id; a line of ids looks like 1 2 3", at);
        else
            s = zf_ids_push(&t->ids, (int32_t)id, e);
        at = end;
    }
    if (!s) s = decode_ids(t, e);
    free(copy);
    return s;
}

static enum zf_status read_stdin(char **out, size_t *size, struct zf_err *e)
{
    size_t room = 1 << 16, n;
    *size = 0;
    *out = malloc(room + 1);
    while (*out && (n = fread(*out + *size, 1, room - *size, stdin))) {
        *size += n;
        if (*size < room) continue;
        char *more = room < TEXT_LIMIT ? realloc(*out, 2 * room + 1) : NULL;
        if (!more) {
            free(*out);
            *out = NULL;
        } else {
            *out = more;
            room *= 2;
        }
    }
    if (!*out) return zf_fail_memory(e, "standard input");
    if (ferror(stdin)) {
        free(*out);
        *out = NULL;
        return zf_fail_errno(e, "stdin", "cannot read it");
    }
    (*out)[*size] = 0;
    return ZF_OK;
}

static enum zf_status tokenize_lines(struct tokenize *t, const char *text, size_t size, struct zf_err *e)
{
    size_t number = 0;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) : (size_t)(end - at);
        number++;
        enum zf_status s = t->decode ? decode_line(t, at, n, e) : encode_line(t, at, n, e);
        if (s) {
            char place[600];
            snprintf(place, sizeof place, "%s:%zu", t->where, number);
            return zf_fail(e, s, place, "%s", e->message);
        }
        at += n + 1;
    }
    return ZF_OK;
}

/* --json: an array of strings; or, to decode, one of arrays of ids, as this command prints them line by line. */
static enum zf_status decode_list(struct tokenize *t, const json_t *list, size_t index, struct zf_err *e)
{
    bool good = json_is_array(list);
    t->ids.count = 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        good = json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) <= INT32_MAX;
        if (good) ZF_TRY(zf_ids_push(&t->ids, (int32_t)json_integer_value(id), e));
    }
    if (!good) return zf_fail(e, ZF_FORMAT, t->where, "element %zu of the list is no list of ids; expected lists such as [1, 2, 3]", index);
    return decode_ids(t, e);
}

static enum zf_status tokenize_json(struct tokenize *t, const char *text, size_t size, struct zf_err *e)
{
    json_t *list;
    struct zf_err ignored;
    if (t->decode) { /* lines, unless it is all one list of lists */
        enum zf_status s = zf_json_parse(&list, text, size, t->where, &ignored);
        if (s || !json_is_array(json_array_get(list, 0))) {
            if (!s) json_decref(list);
            return tokenize_lines(t, text, size, e);
        }
        for (size_t i = 0; !s && i < json_array_size(list); i++) s = decode_list(t, json_array_get(list, i), i, e);
        json_decref(list);
        return s;
    }
    ZF_TRY(zf_json_parse(&list, text, size, t->where, e));
    enum zf_status s = json_is_array(list) ? ZF_OK : zf_fail(e, ZF_FORMAT, t->where, "with --json an array of strings is expected");
    for (size_t i = 0; !s && i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            s = zf_fail(e, ZF_FORMAT, t->where, "element %zu of the array is no string", i);
        else
            s = encode_line(t, json_string_value(item), json_string_length(item), e);
    }
    json_decref(list);
    return s;
}

enum zf_status zf_command_tokenize(struct zf_args *a, struct zf_err *e)
{
    const char *model, *file;
    struct tokenize t = {.json = zf_args_flag(a, "--json"), .decode = zf_args_flag(a, "--decode")};
    ZF_TRY(zf_args_need(a, "MODEL (a folder with tokenizer.json, or `bytes`)", &model, e));
    file = zf_args_next(a);
    ZF_TRY(zf_args_done(a, e));
    if (strcmp(model, "bytes") && !zf_directory_exists(model))
        return zf_fail(e, ZF_FORMAT, model, "there is no such folder; it should have a tokenizer.json");
    bool from_stdin = !file || !strcmp(file, "-");
    char *text = NULL;
    size_t size;
    t.where = from_stdin ? "stdin" : file;
    enum zf_status s = zf_tokenizer_open(&t.tokenizer, model, e);
    if (!s) s = zf_encoder_new(&t.encoder, t.tokenizer, e);
    if (!s) s = from_stdin ? read_stdin(&text, &size, e) : zf_file_read(&text, &size, file, TEXT_LIMIT, e);
    if (!s) s = t.json ? tokenize_json(&t, text, size, e) : tokenize_lines(&t, text, size, e);
    if (!s && zf_tokenizer_note(t.tokenizer)[0]) fprintf(stderr, "zenflow-console: note: %s\n", zf_tokenizer_note(t.tokenizer));
    free(text);
    free(t.ids.ids);
    zf_encoder_free(t.encoder);
    zf_tokenizer_close(t.tokenizer);
    return s;
}

/* --- inspect --- */

static json_t *tensor_json(const struct zf_st_tensor *t, const char *file)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s s:s s:o s:I s:I s:s}", "name", t->name, "type", zf_st_type_name(t->type), "shape", shape, "offset",
                     (json_int_t)t->offset, "bytes", (json_int_t)t->bytes, "file", file);
}

static void print_tensor(const struct zf_st_tensor *t)
{
    zf_show(stdout, t->name);
    printf("  %s [", zf_st_type_name(t->type));
    for (size_t i = 0; i < t->rank; i++) printf("%s%zu", i ? ", " : "", t->shape[i]);
    printf("]  %zu bytes at %zu\n", t->bytes, t->offset);
}

/* A file or folder as one list of tensors. */
struct listing {
    size_t tensors, bytes, elements;
    json_t *json; /* NULL: print */
};

static void list_tensor(struct listing *l, const struct zf_st_tensor *t, const char *file)
{
    l->tensors++;
    l->bytes += t->bytes;
    l->elements += t->elements;
    if (l->json)
        json_array_append_new(l->json, tensor_json(t, file));
    else
        print_tensor(t);
}

static enum zf_status inspect_file(const char *path, bool json, struct zf_err *e)
{
    struct zf_safetensors s;
    struct listing l = {.json = json ? json_array() : NULL};
    ZF_TRY(zf_st_open(&s, path, e));
    for (size_t i = 0; i < s.count; i++) list_tensor(&l, &s.list[i], path);
    if (json) {
        json_t *meta = json_object();
        for (size_t i = 0; i < s.metadata_count; i++) json_object_set_new(meta, s.metadata[2 * i], json_string(s.metadata[2 * i + 1]));
        json_t *o =
            json_pack("{s:s s:o s:o s:I s:b}", "path", path, "metadata", meta, "tensors", l.json, "bytes", (json_int_t)l.bytes, "valid", 1);
        json_dumpf(o, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(o);
    } else {
        printf("%zu tensor%s, %zu elements, %zu bytes; the file is valid\n", l.tensors, zf_plural(l.tensors), l.elements, l.bytes);
    }
    zf_st_close(&s);
    return ZF_OK;
}

void zf_print_model(const struct zf_model_config *c)
{
    printf("%s: %zu layers, hidden %zu, %zu heads, %zu key/value heads, head_dim %zu, ffn %zu, vocabulary %zu, context %zu%s\n",
           zf_family_name(c->family), c->layers, c->hidden, c->heads, c->kv_heads, c->head_dim, c->ffn, c->vocab, c->context,
           c->tied ? ", head tied to the embedding" : "");
}

static enum zf_status inspect_folder(const char *path, bool json, struct zf_err *e)
{
    struct zf_hf hf;
    struct zf_model_config c;
    struct listing l = {.json = json ? json_array() : NULL};
    ZF_TRY(zf_hf_open(&hf, path, e));
    enum zf_status s = zf_model_config_read(&c, hf.config, path, e);
    for (size_t i = 0; !s && i < zf_hf_tensor_count(&hf); i++) {
        const char *file;
        const struct zf_st_tensor *t = zf_hf_tensor(&hf, i, &file);
        list_tensor(&l, t, file);
    }
    if (!s && json) {
        json_t *o = json_pack("{s:s s:s s:I s:o s:I s:b}", "path", path, "family", zf_family_name(c.family), "elements",
                              (json_int_t)l.elements, "tensors", l.json, "bytes", (json_int_t)l.bytes, "valid", 1);
        json_dumpf(o, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(o);
    } else if (!s) {
        zf_print_model(&c);
        printf("%zu tensor%s, %zu elements, %zu bytes in %zu file%s; all headers are valid\n", l.tensors, zf_plural(l.tensors), l.elements,
               l.bytes, hf.file_count, zf_plural(hf.file_count));
        if (hf.note[0]) zf_show_line(stdout, "note: %s", hf.note);
    }
    zf_hf_close(&hf);
    return s;
}

enum zf_status zf_command_inspect(struct zf_args *a, struct zf_err *e)
{
    const char *path;
    bool json = zf_args_flag(a, "--json");
    ZF_TRY(zf_args_need(a, "PATH (a checkpoint, a safetensors file, a model folder or a run)", &path, e));
    ZF_TRY(zf_args_done(a, e));
    if (zf_is_checkpoint(path)) return zf_inspect_checkpoint(path, json, e);
    if (zf_file_exists(path)) {
        size_t n = strlen(path);
        if (n < 4 || strcmp(path + n - 4, ".cfg")) return inspect_file(path, json, e);
    }
    char *config = zf_path_join(path, "config.json"), *run = NULL;
    bool model = config && zf_file_exists(config);
    free(config);
    if (model) return inspect_folder(path, json, e);
    if (zf_saves_is_file(path) && !zf_directory_exists(path)) return zf_saves_missing(path, e);
    ZF_TRY(zf_locate_run(&run, path, e));
    enum zf_status s = zf_inspect_run(run, json, e);
    free(run);
    return s;
}
