/* The parts of one document, and the storage of the texts that had to be made for it. */
#ifndef ZF_DATA_PARTS_H
#define ZF_DATA_PARTS_H

#include "core/base/err.h"
#include "core/tokenizer/text.h"
#include <jansson.h>

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
/* Room for `count` elements of any type, until the next clear. NULL: no memory. */
void *zf_parts_array(struct zf_parts *p, size_t count, size_t element);
void zf_parts_clear(struct zf_parts *p);
void zf_parts_free(struct zf_parts *p);

#endif
