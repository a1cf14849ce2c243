/* Chat templates: recognised in a model's folder or chosen by name, and what they make of messages. Read-only once open. */
#ifndef ZF_DATA_CHAT_H
#define ZF_DATA_CHAT_H

#include "core/data/parts.h"
#include "core/tokenizer/tokenizer.h"

/* In the order of the option `chat_template`. */
enum zf_chat_kind { ZF_CHAT_AUTO, ZF_CHAT_CHATML, ZF_CHAT_LLAMA2, ZF_CHAT_LLAMA3, ZF_CHAT_PLAIN, ZF_CHAT_NONE };

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
