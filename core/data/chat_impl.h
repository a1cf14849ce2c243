/* What the files of the chat templates share: chat_lines.c (a template's text -> lines), chat_find.c (lines -> what it does), chat.c. */
#ifndef ZF_DATA_CHAT_IMPL_H
#define ZF_DATA_CHAT_IMPL_H

#include "core/base/arena.h"
#include "core/data/chat.h"

/* What a recognised template does. */
enum {
    ZF_CHAT_BOS = 1 << 0,     /* begins with the tokenizer's BOS */
    ZF_CHAT_TRIM = 1 << 1,    /* takes white space from both ends of a content */
    ZF_CHAT_DEFAULT = 1 << 2, /* adds `system` to a conversation that does not begin with a system message */
    ZF_CHAT_STRICT = 1 << 3,  /* other roles than system, user, assistant (and tool) would vanish or are not rendered here */
    ZF_CHAT_TOOL = 1 << 4,    /* tool messages are user turns with <tool_response> */
    ZF_CHAT_THINK = 1 << 5,   /* <think> of assistant turns: kept after the last question only, and added to the last turn */
    ZF_CHAT_BLOCK = 1 << 6    /* a system turn stands always, and begins with `block` */
};

struct zf_chat_found { /* texts in the caller's arena, or NULL */
    enum zf_chat_kind kind;
    unsigned bits;
    const char *marker; /* by which it was recognised; static */
    const char *file;   /* its name, without the folder; static */
    const char *system, *block, *tail;
    bool today; /* the template would write today's date; the literal one stands in `block` */
};

/* ZF_USAGE, with the template's beginning, where it is not recognised. path: for messages. */
enum zf_status zf_chat_recognise(struct zf_chat_found *out, struct zf_arena *a, const char *text, size_t size, const char *path,
                                 struct zf_err *e);
/* Of a folder; out->kind = ZF_CHAT_AUTO: it has no template. */
enum zf_status zf_chat_find(struct zf_chat_found *out, struct zf_arena *a, const char *folder, struct zf_err *e);

/* Of what was found; a found that has only a kind is one chosen by name. Texts are copied. */
enum zf_status zf_chat_new(struct zf_chat **out, const struct zf_chat_found *found, const struct zf_tokenizer *t, struct zf_err *e);

/* A Jinja template's statements as they run for messages without tools and without a generation prompt, one line each, in one spelling:
 *   "for X in Y", "endfor", "if X", "elif X", "else", "endif", "set x=y", ...
 *   "> text{expression}text": what is written between two of them; { in a text is doubled
 * Branches that never run are left out. last: a line behind the loop over the messages, in no other statement. What `take` refuses, and
 * what cannot be read, is the return value. */
typedef enum zf_status zf_chat_take(void *context, const char *line, bool last, struct zf_err *e);
enum zf_status zf_chat_lines(const char *text, size_t size, zf_chat_take *take, void *context, struct zf_err *e);

#endif
