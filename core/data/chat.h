/* Chat templates: recognised in a model's folder or chosen by name, and what they make of messages. Read-only once open. */
#ifndef ZF_DATA_CHAT_H
#define ZF_DATA_CHAT_H

#include "core/data/data.h"
#include "core/tokenizer/tokenizer.h"
#include <jansson.h>

/* In the order of the option `chat_template`. */
enum zf_chat_kind { ZF_CHAT_AUTO, ZF_CHAT_CHATML, ZF_CHAT_LLAMA2, ZF_CHAT_LLAMA3, ZF_CHAT_PLAIN, ZF_CHAT_NONE };

/* A document on its way to tokens: texts and single tokens, one behind the other. Neighbouring texts are encoded as one. */
struct zf_part {
    const char *text; /* in the record, the template or the list's own storage */
    size_t size;
    int32_t id;    /* >= 0: this token, and no text */
    bool trained;  /* its tokens are targets */
    bool specials; /* added tokens spelled in it are recognised (a user's template, a text record); never so for content */
    bool content;  /* from the record: a special token spelled in it is counted */
    bool front;    /* an id that the tokenizer itself puts there: the text behind it is still an input's first */
};

struct zf_parts { /* zeroed = empty; reused from record to record by one thread */
    struct zf_part *list;
    size_t count, room;
    json_t *json;          /* what texts may point into; owned */
    struct zf_text *texts; /* blocks for texts that had to be made; they do not move */
    size_t text_count, text_room;
};
enum zf_status zf_parts_add(struct zf_parts *p, const struct zf_part *part, struct zf_err *e);
/* Room for a text of `size` bytes that stays until the next clear. */
enum zf_status zf_parts_text(struct zf_parts *p, size_t size, char **out, struct zf_err *e);
void zf_parts_clear(struct zf_parts *p);
void zf_parts_free(struct zf_parts *p);

struct zf_chat;

/* kind AUTO: what chat_template.jinja or tokenizer_config.json of the folder says (folder may be NULL: none). A template that is not
 * recognised is ZF_USAGE: its text (its beginning) is shown, and what to set. *out = NULL and ZF_OK: AUTO, and the folder has none. */
enum zf_status zf_chat_open(struct zf_chat **out, enum zf_chat_kind kind, const char *folder, const struct zf_tokenizer *t,
                            struct zf_err *e);
void zf_chat_close(struct zf_chat *c);

/* One line: which, from where, what else it does ("chatml, recognised in tokenizer_config.json by <|im_start|>; without a system message it
 * adds ..."). */
const char *zf_chat_describe(const struct zf_chat *c);
const unsigned char *zf_chat_hash(const struct zf_chat *c); /* [16]: of all that decides on its parts */

struct zf_message {
    const char *role; /* "system", "user", "assistant", "tool", or another where the template takes any */
    const char *content;
    size_t size;
    bool untrained; /* an assistant's turn with weight 0 */
};

/* Appends the parts of a conversation: every assistant turn is trained, its end-of-turn token included; nothing else is, unless train_all.
 * ZF_FORMAT (without place) for what the template does not take. */
enum zf_status zf_chat_render(const struct zf_chat *c, const struct zf_message *messages, size_t count, bool train_all,
                              struct zf_parts *out, struct zf_err *e);

#endif
