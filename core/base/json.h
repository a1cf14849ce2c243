/* JSON through Jansson: strict (duplicate keys refused), errors with file:line:column. */
#ifndef ZF_BASE_JSON_H
#define ZF_BASE_JSON_H

#include "core/base/err.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Parses text; on failure ZF_FORMAT with `path:line:column` as the place. To be released with json_decref. */
enum zf_status zf_json_parse(json_t **out, const char *text, size_t size, const char *path, struct zf_err *e);
/* The same of a text that begins at this line and column (from 1) of the file. */
enum zf_status zf_json_parse_at(json_t **out, const char *text, size_t size, const char *path, uint64_t line, uint64_t column,
                                struct zf_err *e);
enum zf_status zf_json_file(json_t **out, const char *path, size_t limit, struct zf_err *e);

/* What a failed download leaves behind instead of a file: the end of a sentence that says what it is, or "". */
const char *zf_json_guess(const char *text, size_t size);

/* Floats that read back to the same value; NaN and infinities as the strings "nan", "inf", "-inf" (README, metrics.jsonl). */
json_t *zf_json_real(double x);

/* A value as a person reads it, into `to`, returned: words without quotes, yes and no, numbers to six digits, what is in a list with commas
 * between; "": nothing of that. */
const char *zf_json_shown(const json_t *v, char *to, size_t size);

#endif
