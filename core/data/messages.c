/* Chat records -> messages: the names that datasets use for roles, contents and weights. What is asked for and not done (images, tools,
 * weights between 0 and 1) is refused, never left out in silence. */
#include "core/data/layout_impl.h"

#include "core/config/options.h"

#include <string.h>

static const struct {
    const char *name, *role;
} roles[] = {{"human", "user"},      {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bot", "assistant"},
             {"model", "assistant"}, {"function", "tool"}, {"observation", "tool"}};

static const struct {
    const char *key, *advice;
} refused[] = {{"tool_calls", "render such conversations into a `text` column"},
               {"function_call", "render such conversations into a `text` column"},
               {"reasoning_content", "write it into the content"},
               {"images", "only text is trained; remove them"},
               {"audio", "only text is trained; remove it"},
               {"videos", "only text is trained; remove them"},
               {"tools", "write them into the system message"},
               {"history", "write all turns into `messages`"}};

/* A misspelt role would pass as another speaker and never be trained. */
static const char *const speakers[] = {"system", "user", "assistant", "tool", "developer", "ipython"};
enum { SPEAKERS = sizeof speakers / sizeof *speakers };

static const char *const weights[] = {"loss_weight", "weight", "train"};
const char *const zf_turn_inputs[2] = {"input", "context"};

struct reading {
    const struct zf_layout *l;
    const struct zf_fields *f;
    struct zf_parts *into;
    const char *column; /* of the list */
    size_t index;
    struct zf_err *e;
};

static bool says_nothing(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_string(v) && !json_string_length(v));
}

static enum zf_status check_role(const struct reading *r, const char *role)
{
    for (size_t i = 0; i < SPEAKERS; i++)
        if (!strcmp(role, speakers[i])) return ZF_OK;
    char shown[64];
    const char *nearest = zf_nearest(role, speakers, SPEAKERS);
    zf_text_show(shown, sizeof shown, role, strlen(role));
    return zf_fail(r->e, ZF_FORMAT, NULL, "`%s`[%zu] has the role \"%s\"; expected system, user, assistant or tool%s%s", r->column,
                   r->index, shown, nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

/* `j` is a message, or (column NULL) the record. */
static enum zf_status refuse_unsupported(const struct reading *r, const json_t *j)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (says_nothing(json_object_get(j, refused[i].key))) continue;
        if (!r->column) return zf_fail(r->e, ZF_FORMAT, NULL, "it has `%s`, which is not supported; %s", refused[i].key, refused[i].advice);
        return zf_fail(r->e, ZF_FORMAT, NULL, "`%s`[%zu] has `%s`, which is not supported; %s", r->column, r->index, refused[i].key,
                       refused[i].advice);
    }
    return ZF_OK;
}

static const json_t *first_of(const json_t *j, const char *a, const char *b, const char *c)
{
    const json_t *v = json_object_get(j, a);
    if (!v) v = json_object_get(j, b);
    return v || !c ? v : json_object_get(j, c);
}

/* The text of a part of a content's list, NULL if it has none. */
static const json_t *part_text(const json_t *part)
{
    if (json_is_string(part)) return part;
    const json_t *type = json_object_get(part, "type");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "text"))) return NULL;
    const json_t *text = first_of(part, "text", "value", "content");
    return json_is_string(text) ? text : NULL;
}

static enum zf_status read_content(const struct reading *r, const json_t *content, struct zf_message *m)
{
    m->content = "";
    if (json_is_string(content)) {
        m->content = json_string_value(content);
        m->size = json_string_length(content);
        return ZF_OK;
    }
    if (!json_is_array(content)) {
        return zf_fail(r->e, ZF_FORMAT, NULL, "`%s`[%zu] has no text; expected a string as its content, or a list of text parts", r->column,
                       r->index);
    }
    size_t n = json_array_size(content);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(content, i), *text = part_text(part), *type = json_object_get(part, "type");
        if (!text) {
            return zf_fail(r->e, ZF_FORMAT, NULL, "part %zu of the content of `%s`[%zu]%s%.40s is no text; only text is trained: remove it",
                           i, r->column, r->index, json_is_string(type) ? ", of type " : "",
                           json_is_string(type) ? json_string_value(type) : "");
        }
        m->size += json_string_length(text);
    }
    char *to;
    ZF_TRY(zf_parts_text(r->into, m->size, &to, r->e));
    m->content = to;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = part_text(json_array_get(content, i));
        memcpy(to, json_string_value(text), json_string_length(text));
        to += json_string_length(text);
    }
    return ZF_OK;
}

static enum zf_status read_weight(const struct reading *r, const json_t *j, struct zf_message *m)
{
    bool assistant = !strcmp(m->role, "assistant");
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const json_t *v = json_object_get(j, weights[i]);
        if (!v || json_is_null(v)) continue;
        double weight = json_is_number(v) ? json_number_value(v) : json_is_boolean(v) ? json_is_true(v) : -1;
        if (weight == 0) {
            m->untrained = assistant;
        } else if (weight != 1) {
            return zf_fail(r->e, ZF_FORMAT, NULL,
                           "`%s` of `%s`[%zu] is neither 0 nor 1 (nor false or true); a turn is trained or it is not", weights[i],
                           r->column, r->index);
        } else if (!assistant && !r->l->o.train_all) {
            return zf_fail(r->e, ZF_FORMAT, NULL,
                           "`%s` asks to train on `%s`[%zu], a turn of role %.40s; only turns of the assistant are trained: set it to "
                           "0, or train_on = all",
                           weights[i], r->column, r->index, m->role);
        }
    }
    return ZF_OK;
}

static enum zf_status read_message(const struct reading *r, const json_t *j, struct zf_message *m)
{
    *m = (struct zf_message){0};
    if (!json_is_object(j)) {
        return zf_fail(r->e, ZF_FORMAT, NULL, "`%s`[%zu] is no object; expected {\"role\": ..., \"content\": ...}", r->column, r->index);
    }
    const json_t *role = first_of(j, "role", "from", NULL);
    if (!json_is_string(role)) {
        return zf_fail(r->e, ZF_FORMAT, NULL, "`%s`[%zu] has no role; expected \"role\" (or \"from\"): system, user, assistant or tool",
                       r->column, r->index);
    }
    m->role = json_string_value(role);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(m->role, roles[i].name)) m->role = roles[i].role;
    ZF_TRY(check_role(r, m->role));
    ZF_TRY(refuse_unsupported(r, j));
    ZF_TRY(read_content(r, first_of(j, "content", "value", "text"), m));
    return read_weight(r, j, m);
}

/* A turn of a record with columns of its own. */
static enum zf_status read_turn(const struct zf_layout *l, const struct zf_fields *f, struct zf_parts *into, struct zf_message *m,
                                struct zf_err *e)
{
    struct zf_field user, extra = {.size = 0};
    ZF_TRY(zf_fields_get(f, l->columns[0], &user, e));
    if (user.missing) return zf_fail(e, ZF_FORMAT, NULL, "it has no `%s`, as the first record had", l->columns[0]);
    for (size_t i = 0; l->inputs && i < sizeof zf_turn_inputs / sizeof *zf_turn_inputs; i++) {
        ZF_TRY(zf_fields_get(f, zf_turn_inputs[i], &extra, e));
        if (!extra.missing) break;
    }
    *m = (struct zf_message){.role = "user", .content = user.text, .size = user.size};
    if (!extra.size) return ZF_OK;
    char *text;
    size_t between = user.size ? 2 : 0;
    ZF_TRY(zf_parts_text(into, user.size + between + extra.size, &text, e));
    memcpy(text, user.text, user.size);
    memcpy(text + user.size, "\n\n", between);
    memcpy(text + user.size + between, extra.text, extra.size);
    m->content = text;
    m->size = user.size + between + extra.size;
    return ZF_OK;
}

static enum zf_status read_turns(const struct zf_layout *l, const struct zf_fields *f, struct zf_parts *into, struct zf_message *list,
                                 size_t *count, struct zf_err *e)
{
    struct zf_field answer;
    ZF_TRY(read_turn(l, f, into, &list[(*count)++], e));
    ZF_TRY(zf_fields_get(f, l->columns[1], &answer, e));
    if (answer.null && !answer.missing && !list[*count - 1].size) {
        *count = 0;
        return ZF_OK;
    }
    if (answer.missing || answer.null) {
        return zf_fail(e, ZF_FORMAT, NULL, "its `%s` is %s; expected a text to train on (an empty one is possible)", l->columns[1],
                       answer.missing ? "missing" : "null");
    }
    list[(*count)++] = (struct zf_message){.role = "assistant", .content = answer.text, .size = answer.size};
    return ZF_OK;
}

enum zf_status zf_messages_read(const struct zf_layout *l, const struct zf_fields *f, struct zf_parts *into, struct zf_message **out,
                                size_t *count, struct zf_err *e)
{
    const json_t *lists[2] = {NULL, NULL};
    size_t room = 3, said = 0;
    bool turns = l->shape == ZF_SHAPE_TURNS;
    *count = 0;
    for (size_t i = 0; !turns && i < 2 && l->columns[i]; i++) {
        lists[i] = zf_fields_json(f, l->columns[i]);
        if (!json_is_array(lists[i])) {
            return zf_fail(e, ZF_FORMAT, NULL, "its `%s` is %s; expected a list of messages, as in the first record", l->columns[i],
                           lists[i] ? "no list" : "missing");
        }
        room += json_array_size(lists[i]);
    }
    struct zf_message *list = zf_parts_array(into, room, sizeof *list);
    if (!list) return zf_fail_memory(e, "messages");
    struct reading r = {.l = l, .f = f, .into = into, .e = e};
    if (f->json) ZF_TRY(refuse_unsupported(&r, f->json));
    const json_t *system = zf_fields_json(f, "system");
    if (system && !json_is_null(system) && !json_is_string(system))
        return zf_fail(e, ZF_FORMAT, NULL, "its `system` is no text; expected a string");
    if (json_string_length(system))
        list[(*count)++] = (struct zf_message){.role = "system", .content = json_string_value(system), .size = json_string_length(system)};
    if (turns) ZF_TRY(read_turns(l, f, into, list, count, e));
    for (size_t i = 0; i < 2; i++) {
        r.column = l->columns[i];
        for (r.index = 0; r.index < json_array_size(lists[i]); r.index++, ++*count) {
            ZF_TRY(read_message(&r, json_array_get(lists[i], r.index), &list[*count]));
            /* Of a prompt with a completion only the completion is trained. */
            if (lists[1] && !i) list[*count].untrained = !strcmp(list[*count].role, "assistant");
        }
    }
    for (size_t i = 0; i < *count; i++) said += list[i].size;
    if (!said) *count = 0;
    *out = list;
    return ZF_OK;
}
