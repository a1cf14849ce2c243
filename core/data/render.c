/* A record -> the parts of its document. Pure, but for what is put into the caller's parts; any number of threads. */
#include "core/data/layout_impl.h"

#include <string.h>

static enum zf_status add_ids(struct zf_parts *out, const struct zf_ids *ids, struct zf_err *e)
{
    for (size_t i = 0; i < ids->count; i++) {
        const struct zf_part part = {.id = ids->ids[i], .front = true};
        ZF_TRY(zf_parts_add(out, &part, e));
    }
    return ZF_OK;
}

static enum zf_status add_eos(const struct zf_layout *l, struct zf_parts *out, struct zf_err *e)
{
    const struct zf_part part = {.id = l->o.eos, .trained = true};
    return l->o.add_eos && l->o.eos >= 0 ? zf_parts_add(out, &part, e) : ZF_OK;
}

int zf_layout_choice(const struct zf_layout *l, const char *value, size_t size)
{
    for (size_t i = 0; i < l->o.choice_count; i++) {
        const char *own = l->o.choices[i].value;
        if (strlen(own) == size && !memcmp(own, value, size)) return (int)i;
    }
    return -1;
}

/* What stands in place of a value: the text of `choice`, or (-1) of the choice that the value is. NULL: the value stays. */
static const char *text_of_choice(const struct zf_layout *l, const char *value, size_t size, int choice, int *chosen)
{
    *chosen = zf_layout_choice(l, value, size);
    int taken = choice >= 0 ? choice : *chosen;
    return taken >= 0 ? l->o.choices[taken].text : NULL;
}

/* Parts of a template. `choice` as zf_layout_render has it, of the piece that takes choices; NULL: none does. */
static enum zf_status add_template(const struct zf_layout *l, const struct zf_template *t, const struct zf_fields *f, bool trained,
                                   const int *choice, struct zf_parts *out, int *chosen, struct zf_err *e)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct zf_template_piece *piece = &t->pieces[i];
        struct zf_part part = {.text = piece->text, .size = piece->size, .id = -1, .trained = trained, .specials = !piece->column};
        if (piece->column) {
            struct zf_field v;
            ZF_TRY(zf_fields_get(f, piece->text, &v, e));
            part.text = v.text;
            part.size = v.size;
            part.content = true;
            if (choice && i == l->choice_piece) {
                const char *text = text_of_choice(l, v.text, v.size, *choice, chosen);
                if (text) part = (struct zf_part){.text = text, .size = strlen(text), .id = -1, .trained = trained};
            }
        }
        if (part.size) ZF_TRY(zf_parts_add(out, &part, e));
    }
    return ZF_OK;
}

struct seen {
    size_t columns, bytes, nulls; /* bytes of all columns' values */
    const char *null;             /* a column that is null */
};

static enum zf_status look(const struct zf_template *t, const struct zf_fields *f, struct seen *s, struct zf_err *e)
{
    for (size_t i = 0; i < t->count; i++) {
        struct zf_field v;
        if (!t->pieces[i].column) continue;
        ZF_TRY(zf_fields_get(f, t->pieces[i].text, &v, e));
        if (v.missing) return zf_fail(e, ZF_FORMAT, NULL, "it has no `%.80s`, as the first record had", t->pieces[i].text);
        s->columns++;
        s->bytes += v.size;
        s->nulls += v.null;
        if (v.null) s->null = t->pieces[i].text;
    }
    return ZF_OK;
}

static enum zf_status render_pair(const struct zf_layout *l, const struct zf_fields *f, int choice, struct zf_parts *out, int *chosen,
                                  struct zf_err *e)
{
    struct seen prompt = {0}, response = {0};
    ZF_TRY(look(&l->prompt, f, &prompt, e));
    ZF_TRY(look(&l->response, f, &response, e));
    if (prompt.columns + response.columns && !prompt.bytes && !response.bytes) return ZF_OK;
    if (response.columns && response.nulls == response.columns)
        return zf_fail(e, ZF_FORMAT, NULL, "its `%.80s` is null; expected a text to train on (an empty one is possible)", response.null);
    ZF_TRY(add_ids(out, &l->front, e));
    ZF_TRY(add_template(l, &l->prompt, f, l->o.train_all, NULL, out, chosen, e));
    ZF_TRY(add_template(l, &l->response, f, true, l->o.choice_count ? &choice : NULL, out, chosen, e));
    return add_eos(l, out, e);
}

static enum zf_status render_text(const struct zf_layout *l, const struct zf_fields *f, struct zf_parts *out, struct zf_err *e)
{
    struct zf_field v;
    ZF_TRY(zf_fields_get(f, l->columns[0], &v, e));
    if (v.missing) return zf_fail(e, ZF_FORMAT, NULL, "it has no `%s`, as the first record had", l->columns[0]);
    if (!v.size) return ZF_OK;
    bool there = l->front_size && v.size >= l->front_size && !memcmp(v.text, l->front_text, l->front_size);
    if (!there) ZF_TRY(add_ids(out, &l->front, e));
    const struct zf_part part = {.text = v.text, .size = v.size, .id = -1, .trained = true, .specials = true};
    ZF_TRY(zf_parts_add(out, &part, e));
    return add_eos(l, out, e);
}

static enum zf_status render_chat(const struct zf_layout *l, const struct zf_fields *f, int choice, struct zf_parts *out, int *chosen,
                                  struct zf_err *e)
{
    struct zf_message *list;
    size_t count;
    ZF_TRY(zf_messages_read(l, f, out, &list, &count, e));
    if (!count) return ZF_OK;
    if (l->o.choice_count) {
        struct zf_message *answer = &list[count - 1];
        const char *text = text_of_choice(l, answer->content, answer->size, choice, chosen);
        if (text) {
            answer->content = text;
            answer->size = strlen(text);
        }
    }
    ZF_TRY(add_ids(out, &l->front, e));
    return zf_chat_render(l->chat, list, count, l->o.train_all, out, e);
}

enum zf_status zf_layout_render(const struct zf_layout *l, const struct zf_record *record, const char *bytes, const char *file, int choice,
                                struct zf_parts *out, int *chosen, struct zf_err *e)
{
    struct zf_fields f;
    int found = -1;
    enum zf_status s = zf_fields_read(&f, l->o.format, record, bytes, file, out, e);
    if (s == ZF_OK) {
        s = l->shape == ZF_SHAPE_TEXT   ? render_text(l, &f, out, e)
            : l->shape == ZF_SHAPE_PAIR ? render_pair(l, &f, choice, out, &found, e)
                                        : render_chat(l, &f, choice, out, &found, e);
    }
    if (chosen) *chosen = found;
    return s;
}
