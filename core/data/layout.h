/* How the records of a dataset become documents: the shape of its records (text, prompt and response, instruction, chat), the templates,
 * the chat template. Decided once, from the options and the first record; then read-only and shared by all threads. */
#ifndef ZF_DATA_LAYOUT_H
#define ZF_DATA_LAYOUT_H

#include "core/data/chat.h"
#include "core/data/reader.h"

enum zf_switch { ZF_SWITCH_AUTO, ZF_SWITCH_YES, ZF_SWITCH_NO }; /* in the order of the option `add_bos` */

/* `choices`: where a column's value in the response is `value`, `text` stands instead. */
struct zf_choice {
    const char *value, *text;
};

struct zf_layout_options {
    const struct zf_tokenizer *tokenizer;
    const char *folder;              /* of the tokenizer, for its chat template; NULL: none */
    enum zf_data_format format;      /* JSONL, JSON, TSV, CSV (TEXT has no layout) */
    const char *prompt, *response;   /* templates with {column}, {{ and }} for braces; NULL: not given */
    const struct zf_choice *choices; /* must outlive the layout */
    size_t choice_count;
    enum zf_chat_kind chat;
    bool train_all, add_eos;
    enum zf_switch add_bos; /* AUTO: what the tokenizer puts in front, but for text and where a model's chat template writes its own */
    int32_t eos;            /* -1: there is none */
};

struct zf_layout;

/* `record`, of `bytes`, is the first one. ZF_FORMAT, as below: it is no record; ZF_USAGE: its columns (which are
 * named) say nothing, or a template names one that is not there. */
enum zf_status zf_layout_open(struct zf_layout **out, const struct zf_layout_options *o, const struct zf_record *record, const char *bytes,
                              const char *file, struct zf_err *e);
void zf_layout_close(struct zf_layout *l);

/* One line, for people: "messages; chatml, ..." or "prompt from `question`, response from `answer`; ...". */
const char *zf_layout_describe(const struct zf_layout *l);
const unsigned char *zf_layout_hash(const struct zf_layout *l); /* [16]: of all that decides on its documents */

bool zf_layout_is_chat(const struct zf_layout *l); /* its documents are written by a chat template */

/* Record -> parts (cleared first; none: an empty record). `choice` >= 0: with this choice's text instead of the record's own; < 0: as it
 * is. *chosen (may be NULL): which of the choices is the record's own, -1: none of them. ZF_FORMAT: it cannot be read,
 * or lacks what the first one had; with a place where that is not the record itself. */
enum zf_status zf_layout_render(const struct zf_layout *l, const struct zf_record *record, const char *bytes, const char *file, int choice,
                                struct zf_parts *out, int *chosen, struct zf_err *e);

#endif
