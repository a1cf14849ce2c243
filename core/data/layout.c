/* The shape of a dataset's records, found from the options and the first record. */
#include "core/data/layout_impl.h"

#include "core/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tried in this order on the first record. */
static const struct row {
    enum zf_shape shape;
    const char *columns[2];
    bool inputs;
} rows[] = {{ZF_SHAPE_CHAT, {"messages", NULL}},
            {ZF_SHAPE_CHAT, {"conversations", NULL}},
            {ZF_SHAPE_PAIR, {"prompt", "completion"}},
            {ZF_SHAPE_PAIR, {"prompt", "response"}},
            {ZF_SHAPE_PAIR, {"prompt", "chosen"}},
            {ZF_SHAPE_TURNS, {"instruction", "output"}, true},
            {ZF_SHAPE_TURNS, {"instruction", "response"}, true},
            {ZF_SHAPE_TURNS, {"question", "answer"}},
            {ZF_SHAPE_TURNS, {"query", "response"}},
            {ZF_SHAPE_TEXT, {"text", NULL}},
            {ZF_SHAPE_TEXT, {"content", NULL}},
            {ZF_SHAPE_TEXT, {"document", NULL}}};
/* "`messages` (a list), ..., `prompt` with `completion`, ..." */
static void list_known(char *to, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && used < size; i++) {
        const struct row *r = &rows[i];
        int n = snprintf(to + used, size - used, "%s`%s`%s%s%s", i ? ", " : "", r->columns[0], r->columns[1] ? " with `" : "",
                         r->columns[1] ? r->columns[1] : "",
                         r->columns[1]               ? "`"
                         : r->shape == ZF_SHAPE_CHAT ? " (a list)"
                                                     : "");
        used += n > 0 ? (size_t)n : 0;
    }
}

static bool is_list(const struct zf_fields *f, const char *name)
{
    return json_is_array(zf_fields_json(f, name));
}

static enum zf_status use_row(struct zf_layout *l, const struct row *row, const struct zf_fields *f, struct zf_err *e)
{
    l->shape = row->shape;
    l->inputs = row->inputs;
    memcpy(l->columns, row->columns, sizeof l->columns);
    if (row->shape != ZF_SHAPE_PAIR) return ZF_OK;
    bool prompt = is_list(f, row->columns[0]), response = is_list(f, row->columns[1]);
    if (prompt != response) {
        return zf_fail(e, ZF_FORMAT, NULL, "one of `%s` and `%s` is a list of messages, the other is not; expected two lists or two texts",
                       row->columns[0], row->columns[1]);
    }
    if (prompt) {
        l->shape = ZF_SHAPE_CHAT;
        return ZF_OK;
    }
    ZF_TRY(zf_template_column(&l->prompt, &l->arena, row->columns[0], e));
    return zf_template_column(&l->response, &l->arena, row->columns[1], e);
}

/* A table with a single column usually is one of another kind. NULL: nothing of that. */
static const char *other_separator(const struct zf_fields *f, enum zf_data_format format)
{
    const char *name = zf_fields_name(f, 0);
    if ((format != ZF_DATA_CSV && format != ZF_DATA_TSV) || zf_fields_name(f, 1)) return NULL;
    if (*name == '{') return "it looks like JSON lines: set format = jsonl";
    if (format == ZF_DATA_CSV && strchr(name, '\t')) return "it is separated by tabs: set format = tsv";
    if (format == ZF_DATA_TSV && strchr(name, ',')) return "it is separated by commas: set format = csv";
    if (strchr(name, ';')) return "it is separated by semicolons; commas (csv) or tabs (tsv) are read: save it with one of these";
    return NULL;
}

static enum zf_status find_shape(struct zf_layout *l, const struct zf_fields *f, struct zf_err *e)
{
    const struct zf_layout_options *o = &l->o;
    if (o->prompt || o->response) {
        l->shape = ZF_SHAPE_PAIR;
        if (!o->response && !o->train_all) {
            return zf_fail(e, ZF_USAGE, "prompt",
                           "there is a prompt and no response, so nothing is trained; set response, too, or train_on = all");
        }
        if (o->prompt) ZF_TRY(zf_template_parse(&l->prompt, &l->arena, "prompt", o->prompt, f, e));
        return o->response ? zf_template_parse(&l->response, &l->arena, "response", o->response, f, e) : ZF_OK;
    }
    if (!zf_fields_name(f, 0)) return zf_fail(e, ZF_FORMAT, NULL, "the record has no columns; expected {\"column\": ...}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->shape == ZF_SHAPE_CHAT ? !is_list(f, row->columns[0]) : !zf_fields_has(f, row->columns[0])) continue;
        if (row->columns[1] && !zf_fields_has(f, row->columns[1])) continue;
        return use_row(l, row, f, e);
    }
    char all[512], known[512];
    const char *other = other_separator(f, l->o.format);
    zf_fields_list(f, all, sizeof all);
    list_known(known, sizeof known);
    if (other) return zf_fail(e, ZF_USAGE, f->file, "it has one column, `%s`; %s", all, other);
    return zf_fail(e, ZF_USAGE, f->file,
                   "its columns (%s) do not say what is to be learnt; known are %s; set prompt and response to templates such as {%.40s}",
                   all, known, zf_fields_name(f, 0));
}

/* Which column of the response takes choices: the first whose value here is one, else the first. */
static enum zf_status find_choice_piece(struct zf_layout *l, const struct zf_fields *f, struct zf_err *e)
{
    size_t first = SIZE_MAX;
    if (!l->o.choice_count || l->shape == ZF_SHAPE_TURNS) return ZF_OK;
    for (size_t i = 0; i < l->response.count; i++) {
        struct zf_field v;
        if (!l->response.pieces[i].column) continue;
        if (first == SIZE_MAX) first = i;
        ZF_TRY(zf_fields_get(f, l->response.pieces[i].text, &v, e));
        l->choice_piece = i;
        if (zf_layout_choice(l, v.text, v.size) >= 0) return ZF_OK;
    }
    l->choice_piece = first;
    if (l->shape == ZF_SHAPE_PAIR && first != SIZE_MAX) return ZF_OK;
    return zf_fail(e, ZF_USAGE, "choices",
                   "no column of the response takes them; set response to a template with a column, such as {label}");
}

static enum zf_status find_chat(struct zf_layout *l, struct zf_err *e)
{
    enum zf_chat_kind kind = l->o.chat;
    if (l->shape != ZF_SHAPE_CHAT && l->shape != ZF_SHAPE_TURNS) return ZF_OK;
    ZF_TRY(zf_chat_open(&l->chat, kind, l->o.folder, l->o.tokenizer, e));
    if (!l->chat) ZF_TRY(zf_chat_open(&l->chat, kind = ZF_CHAT_PLAIN, l->o.folder, l->o.tokenizer, e));
    l->own_front = kind != ZF_CHAT_PLAIN && kind != ZF_CHAT_NONE;
    return ZF_OK;
}

/* What stands in front of a document. Templates of models bring their own; to a text it is only put where that is asked for. */
static enum zf_status find_front(struct zf_layout *l, struct zf_err *e)
{
    const struct zf_layout_options *o = &l->o;
    const struct zf_ids *own = zf_tokenizer_front(o->tokenizer);
    bool pair = l->shape == ZF_SHAPE_PAIR,
         wanted = o->add_bos == ZF_SWITCH_YES || (o->add_bos == ZF_SWITCH_AUTO && l->shape != ZF_SHAPE_TEXT);
    if (!wanted || l->own_front) return ZF_OK;
    for (size_t i = 0; i < own->count; i++) ZF_TRY(zf_ids_push(&l->front, own->ids[i], e));
    int32_t bos = zf_tokenizer_bos(o->tokenizer);
    if (!own->count && o->add_bos == ZF_SWITCH_YES) {
        if (bos < 0) return zf_fail(e, ZF_USAGE, "add_bos", "the tokenizer names no BOS token; set add_bos = auto or no");
        ZF_TRY(zf_ids_push(&l->front, bos, e));
    }
    if (!l->front.count) return ZF_OK;
    ZF_TRY(zf_tokenizer_decode(o->tokenizer, l->front.ids, 1, false, &l->front_text, &l->front_size, e));
    const struct zf_template *t = l->prompt.given ? &l->prompt : &l->response;
    const struct zf_template_piece *p = pair && t->count ? &t->pieces[0] : NULL;
    if (p && !p->column && l->front_size && p->size >= l->front_size && !memcmp(p->text, l->front_text, l->front_size)) l->front.count = 0;
    return ZF_OK;
}

static void show_text(FILE *to, const char *text, size_t size)
{
    char shown[128];
    zf_text_show(shown, sizeof shown, text, size);
    fputs(shown, to);
}

static void show_template(FILE *to, const char *name, const struct zf_template *t)
{
    fprintf(to, "%s ", name);
    if (t->count == 1 && t->pieces[0].column) {
        fputs("from `", to);
        show_text(to, t->pieces[0].text, t->pieces[0].size);
        fputc('`', to);
        return;
    }
    fputc('"', to);
    for (size_t i = 0; i < t->count; i++) {
        if (t->pieces[i].column) fputc('{', to);
        show_text(to, t->pieces[i].text, t->pieces[i].size);
        if (t->pieces[i].column) fputc('}', to);
    }
    fputc('"', to);
}

static bool is_used(const struct zf_layout *l, const char *column)
{
    const struct zf_template *both[2] = {&l->prompt, &l->response};
    bool chat = l->shape == ZF_SHAPE_CHAT || l->shape == ZF_SHAPE_TURNS;
    for (size_t i = 0; i < 2; i++) {
        if (l->columns[i] && !strcmp(l->columns[i], column)) return true;
        if (l->inputs && !strcmp(zf_turn_inputs[i], column)) return true;
        for (size_t k = 0; k < both[i]->count; k++)
            if (both[i]->pieces[k].column && !strcmp(both[i]->pieces[k].text, column)) return true;
    }
    return chat && !strcmp(column, "system");
}

static void show_unused(FILE *to, const struct zf_layout *l, const struct zf_fields *f)
{
    enum { SHOWN = 8 };
    const char *name;
    size_t unused = 0;
    for (size_t i = 0; (name = zf_fields_name(f, i)); i++) {
        if (is_used(l, name)) continue;
        if (unused < SHOWN) {
            char shown[44];
            zf_text_show(shown, sizeof shown, name, strlen(name));
            fprintf(to, "%s`%s`", unused ? ", " : "; not used: ", shown);
        }
        if (unused++ == SHOWN) {
            fputs(", ...", to);
            break;
        }
    }
}

static enum zf_status show_id(FILE *to, const struct zf_layout *l, int32_t id, const char *where, struct zf_err *e)
{
    char *text;
    size_t size;
    ZF_TRY(zf_tokenizer_decode(l->o.tokenizer, &id, 1, false, &text, &size, e));
    fputs("; ", to);
    show_text(to, text, size);
    fprintf(to, " %s", where);
    free(text);
    return ZF_OK;
}

static enum zf_status show(FILE *to, const struct zf_layout *l, const struct zf_fields *f, struct zf_err *e)
{
    if (l->shape == ZF_SHAPE_CHAT) {
        fprintf(to, "messages from `%s`", l->columns[0]);
        if (l->columns[1]) fprintf(to, " and `%s`", l->columns[1]);
    } else if (l->shape == ZF_SHAPE_TURNS) {
        fprintf(to, "user from `%s`", l->columns[0]);
        for (size_t i = 0; l->inputs && i < 2; i++) {
            if (!zf_fields_has(f, zf_turn_inputs[i])) continue;
            fprintf(to, " and `%s`", zf_turn_inputs[i]);
            break;
        }
        fprintf(to, ", assistant from `%s`", l->columns[1]);
    } else if (l->shape == ZF_SHAPE_TEXT) {
        fprintf(to, "text from `%s`", l->columns[0]);
    } else {
        if (l->prompt.given) show_template(to, "prompt", &l->prompt);
        if (l->prompt.given && l->response.given) fputs(", ", to);
        if (l->response.given) show_template(to, "response", &l->response);
    }
    if (l->o.choice_count) fprintf(to, ", %zu choices", l->o.choice_count);
    if (l->chat) fprintf(to, "; %s", zf_chat_describe(l->chat));
    if (l->front.count) ZF_TRY(show_id(to, l, l->front.ids[0], "in front", e));
    if (!l->chat && l->o.add_eos && l->o.eos >= 0) ZF_TRY(show_id(to, l, l->o.eos, "at the end", e));
    if (l->o.train_all && l->shape != ZF_SHAPE_TEXT) fputs("; everything is trained", to);
    show_unused(to, l, f);
    return ZF_OK;
}

static void add_template(struct zf_hash *h, const struct zf_template *t)
{
    zf_hash_add_number(h, t->given);
    zf_hash_add_number(h, t->count);
    for (size_t i = 0; i < t->count; i++) {
        zf_hash_add_number(h, (uint64_t)t->pieces[i].column);
        zf_hash_add(h, t->pieces[i].text, t->pieces[i].size);
    }
}

static enum zf_status hash(struct zf_layout *l, struct zf_err *e)
{
    const struct zf_layout_options *o = &l->o;
    const uint64_t numbers[] = {l->shape, o->choice_count, l->choice_piece, o->train_all, o->add_eos ? (uint64_t)o->eos : UINT64_MAX};
    struct zf_hash h;
    ZF_TRY(zf_hash_begin(&h, e));
    zf_hash_add_text(&h, "layout 2");
    zf_hash_add(&h, numbers, sizeof numbers);
    for (size_t i = 0; i < 2; i++) zf_hash_add_text(&h, l->columns[i]);
    add_template(&h, &l->prompt);
    add_template(&h, &l->response);
    for (size_t i = 0; i < o->choice_count; i++) {
        zf_hash_add_text(&h, o->choices[i].value);
        zf_hash_add_text(&h, o->choices[i].text);
    }
    zf_hash_add(&h, l->front.ids, l->front.count * sizeof *l->front.ids);
    zf_hash_add(&h, l->chat ? zf_chat_hash(l->chat) : NULL, l->chat ? 16 : 0);
    zf_hash_add(&h, zf_tokenizer_hash(o->tokenizer), 16);
    zf_hash_end(&h, l->hash);
    return ZF_OK;
}

/* Its line for people. */
static enum zf_status describe(struct zf_layout *l, const struct zf_fields *f, struct zf_err *e)
{
    size_t size;
    FILE *to = open_memstream(&l->describe, &size);
    if (!to) return zf_fail_memory(e, "a layout");
    enum zf_status s = show(to, l, f, e);
    bool bad = ferror(to);
    return fclose(to) || bad ? zf_fail_memory(e, "a layout") : s;
}

static enum zf_status decide(struct zf_layout *l, const struct zf_fields *f, struct zf_err *e)
{
    for (size_t i = 0; i < l->o.choice_count; i++) {
        const char *text = l->o.choices[i].text;
        if (zf_utf8_check(text, strlen(text)) < strlen(text))
            return zf_fail(e, ZF_USAGE, "choices", "the text of number %zu is no UTF-8; convert it (iconv -t UTF-8)", i + 1);
    }
    ZF_TRY(find_shape(l, f, e));
    ZF_TRY(find_choice_piece(l, f, e));
    ZF_TRY(find_chat(l, e));
    ZF_TRY(find_front(l, e));
    ZF_TRY(hash(l, e));
    return describe(l, f, e);
}

enum zf_status zf_layout_open(struct zf_layout **out, const struct zf_layout_options *o, const struct zf_record *record, const char *bytes,
                              const char *file, struct zf_err *e)
{
    struct zf_parts parts = {0};
    struct zf_fields f;
    *out = NULL;
    struct zf_layout *l = calloc(1, sizeof *l);
    if (!l) return zf_fail_memory(e, "a layout");
    l->o = *o;
    enum zf_status s = zf_fields_read(&f, o->format, record, bytes, file, &parts, e);
    if (s == ZF_OK) s = decide(l, &f, e);
    zf_parts_free(&parts);
    l->o.prompt = l->o.response = l->o.folder = NULL;
    if (s == ZF_OK)
        *out = l;
    else
        zf_layout_close(l);
    return s;
}

void zf_layout_close(struct zf_layout *l)
{
    if (!l) return;
    if (l->chat) zf_chat_close(l->chat);
    zf_arena_free(&l->arena);
    free(l->front.ids);
    free(l->front_text);
    free(l->describe);
    free(l);
}

bool zf_layout_is_chat(const struct zf_layout *l)
{
    return l->chat;
}

const char *zf_layout_describe(const struct zf_layout *l)
{
    return l->describe;
}

const unsigned char *zf_layout_hash(const struct zf_layout *l)
{
    return l->hash;
}
