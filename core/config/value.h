/* Values of options: text -> value -> text. For the files of this room. */
#ifndef ZF_CONFIG_VALUE_H
#define ZF_CONFIG_VALUE_H

#include "core/config/options.h"

struct zf_value {
    const char *text;          /* STRING, PATH; in the arena */
    struct zf_strings strings; /* PATHS, LIST; in the arena */
    int64_t whole;             /* INT, SIZE */
    double real;               /* DURATION, FLOAT */
    bool yes;                  /* BOOL */
    int choice;                /* CHOICE */
};

/* Type, range and finiteness; ZF_USAGE with the place of the first wrong character of `text`. */
enum zf_status zf_value_parse(struct zf_value *v, const struct zf_option *row, const char *text, const struct zf_origin *origin,
                              struct zf_arena *a, struct zf_err *e);
void zf_value_store(struct zf_options *o, const struct zf_option *row, const struct zf_value *v);
struct zf_value zf_value_load(const struct zf_options *o, const struct zf_option *row);
char *zf_value_text(const struct zf_option *row, const struct zf_value *v); /* to be freed; NULL = no memory */

/* At most about 60 characters of user text for a message, control characters replaced. */
const char *zf_excerpt(const char *text, char *buffer, size_t size);

/* Bytes before the first NUL or byte that is not UTF-8; `size` if there is none. */
size_t zf_utf8_good(const char *text, size_t size);

static inline bool zf_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

#endif
