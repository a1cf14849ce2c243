/* Files of JSON lines: one text for a value, appending that leaves no torn line behind, reading that tolerates one. */
#ifndef ZF_TELEMETRY_JSONL_H
#define ZF_TELEMETRY_JSONL_H

#include "core/base/err.h"
#include "core/base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The value on one line, a newline at its end; controls of a terminal, C1's among them, are escaped. Reals are the shortest text that reads
 * back to the same double. To be freed; NULL: no memory. */
char *zf_jsonl_text(const json_t *value, size_t *size);

struct zf_jsonl {
    int fd;
    bool torn; /* a part of a line stands at the end and could not be cut off: the next write begins with a newline */
};

/* Opens for appending, creates; the torn last line of a writer that was killed is cut off. */
enum zf_status zf_jsonl_open(struct zf_jsonl *out, const char *path, struct zf_err *e);
/* One write(2). 0, or errno (ENOENT: the file has been removed): then nothing of the line is left in the file, or the next line starts
 * afresh. */
int zf_jsonl_append(struct zf_jsonl *j, const char *text, size_t size);
void zf_jsonl_close(struct zf_jsonl *j);

/* Reading, line by line, of a file that may grow, be torn, or be no JSON at all. */
enum { ZF_JSONL_LONGEST = 64 << 20 };
struct zf_lines {
    FILE *file;
    char *text; /* the line, NUL-terminated, without its newline */
    size_t length, room;
    off_t offset; /* of the line */
    size_t bad;   /* lines that were too long, torn, or no JSON objects */
};

enum zf_status zf_lines_open(struct zf_lines *out, const char *path, struct zf_err *e);
/* The next JSON object (new reference), NULL at the end. Everything else is counted and passed over. */
json_t *zf_lines_next(struct zf_lines *l);
/* The object at this offset, NULL if there is none. */
json_t *zf_lines_at(struct zf_lines *l, off_t offset);
void zf_lines_close(struct zf_lines *l);

/* The last whole line of a file whose "type" is `type` (new reference), or NULL. Reads from the end, at most ZF_JSONL_LONGEST bytes. */
json_t *zf_jsonl_last(const char *path, const char *type);

/* Fields, whatever the value is. Numbers may be written as "nan", "inf", "-inf". */
double zf_json_number(const json_t *object, const char *key, double absent);
const char *zf_json_text(const json_t *object, const char *key, const char *absent);
/* A step, or a number of things: 1 or more. 0: there is none, or it is none that a double holds exactly. */
uint64_t zf_json_count(const json_t *object, const char *key);
/* Of a line of ours: is its "type" this one? */
bool zf_json_is(const json_t *line, const char *type);

#endif
