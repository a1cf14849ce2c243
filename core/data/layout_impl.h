/* What a layout is made of; for layout.c, render.c, template.c, messages.c, fields.c. Read-only once open. */
#ifndef ZF_DATA_LAYOUT_IMPL_H
#define ZF_DATA_LAYOUT_IMPL_H

#include "core/base/arena.h"
#include "core/data/layout.h"

/* A record that has been read: the columns of a JSON object or of a table. Its texts lie in the record or in the parts it was read into. */
struct zf_fields {
    const struct zf_record *record;
    const char *bytes, *file;
    const json_t *json; /* else: */
    const char **texts;
    size_t *sizes;
};

struct zf_field {
    bool missing, null; /* null has no text, too */
    const char *text;
    size_t size;
};

/* Clears `into` and keeps there what the fields point to. A record that cannot be used is ZF_FORMAT, here and in all that works on fields,
 * with FILE:LINE:COLUMN where it is no JSON and no place else: the caller knows where the record is. */
enum zf_status zf_fields_read(struct zf_fields *f, enum zf_data_format format, const struct zf_record *record, const char *bytes,
                              const char *file, struct zf_parts *into, struct zf_err *e);
/* A column's value as text: strings as they are, numbers and booleans as JSON writes them. ZF_FORMAT for a list or an object. */
enum zf_status zf_fields_get(const struct zf_fields *f, const char *name, struct zf_field *out, struct zf_err *e);
const json_t *zf_fields_json(const struct zf_fields *f, const char *name); /* NULL: none, or a table */
const char *zf_fields_name(const struct zf_fields *f, size_t index);       /* NULL: no more columns */
bool zf_fields_has(const struct zf_fields *f, const char *name);           /* also if it is null */
void zf_fields_list(const struct zf_fields *f, char *to, size_t size);     /* "`a`, `b`" */

struct zf_template_piece {
    const char *text; /* a literal, or a column's name */
    size_t size;
    bool column;
};

struct zf_template {
    struct zf_template_piece *pieces;
    size_t count;
    bool given;
};

/* ZF_USAGE with `name` as the place: braces that do not fit, or a column that the record does not have. */
enum zf_status zf_template_parse(struct zf_template *out, struct zf_arena *a, const char *name, const char *text, const struct zf_fields *f,
                                 struct zf_err *e);
enum zf_status zf_template_column(struct zf_template *out, struct zf_arena *a, const char *column, struct zf_err *e); /* "{column}" */

enum zf_shape { ZF_SHAPE_CHAT, ZF_SHAPE_PAIR, ZF_SHAPE_TURNS, ZF_SHAPE_TEXT };

struct zf_layout {
    struct zf_arena arena;
    struct zf_layout_options o; /* its strings are not kept */
    enum zf_shape shape;
    const char *columns[2];              /* CHAT: lists of messages; TURNS: user's, assistant's; TEXT: the text */
    bool inputs;                         /* TURNS: zf_turn_inputs are looked for */
    struct zf_template prompt, response; /* PAIR */
    size_t choice_piece;                 /* of the response */
    struct zf_chat *chat;                /* CHAT, TURNS */
    bool own_front;                      /* the chat template writes BOS where it wants one */
    struct zf_ids front;                 /* put in front, never trained */
    char *front_text;                    /* how the first of them is written in a text; NULL: not at all */
    size_t front_size;
    char *describe;
    unsigned char hash[16];
};

/* Which of the choices this value is; -1: none. */
int zf_layout_choice(const struct zf_layout *l, const char *value, size_t size);

/* The messages of a record, in the parts' storage. *count = 0: nobody says anything. */
enum zf_status zf_messages_read(const struct zf_layout *l, const struct zf_fields *f, struct zf_parts *into, struct zf_message **out,
                                size_t *count, struct zf_err *e);
/* Columns that a turn may have besides its own; the first one there counts. */
extern const char *const zf_turn_inputs[2];

#endif
