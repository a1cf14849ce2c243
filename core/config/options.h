/* Options: the struct, the names and the rules, all made from options.def.
 *
 * Ownership: everything a struct zf_options points to lives in its arena until zf_options_free. Not thread-safe; no globals but constants.
 *
 * Value text, the same in run.cfg, --set and `set`: bare text, blanks at both ends cut off; or a "quoted string" with \n \t \r \" \\, for
 * what bare text cannot hold: blanks at the ends, line breaks (as \n or as they are), a leading quote. Lists are comma separated, an
 * element with a comma is quoted. */
#ifndef ZF_CONFIG_OPTIONS_H
#define ZF_CONFIG_OPTIONS_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ZF_OPT_learning_rate, ...: the place of an option in the table. */
enum zf_option_id {
#define ZF_OPTION(section, name, ...) ZF_OPT_##name,
#include "core/config/options.def"
#undef ZF_OPTION
    ZF_OPTIONS
};

/* enum zf_choice_strategy {ZF_STRATEGY_AUTO, ZF_STRATEGY_ZENFLOW, ...}: ZF_<OPTION>_<VALUE>, in the order of the table. The one exception
 * is `family`: ZF_SCRATCH_GPT2... */
#define ZF_CHOICE_CONSTANT(prefix, constant, text) ZF_##prefix##_##constant,
#define ZF_CHOICE_ENUM(list) enum zf_choice_##list{ZF_CHOICES_##list(ZF_CHOICE_CONSTANT)};
ZF_CHOICE_TYPES(ZF_CHOICE_ENUM)
#undef ZF_CHOICE_ENUM
#undef ZF_CHOICE_CONSTANT

/* trace_steps: FIRST-LAST, or one step. false: it is no such text (or empty). */
bool zf_options_trace(const char *text, uint64_t *first, uint64_t *last);

enum zf_option_type {
    ZF_TYPE_STRING,
    ZF_TYPE_PATH,
    ZF_TYPE_PATHS,
    ZF_TYPE_INT,
    ZF_TYPE_SIZE,
    ZF_TYPE_DURATION,
    ZF_TYPE_FLOAT,
    ZF_TYPE_BOOL,
    ZF_TYPE_CHOICE,
    ZF_TYPE_LIST
};
enum zf_option_when { ZF_WHEN_NOW, ZF_WHEN_STEP, ZF_WHEN_RESTART };

struct zf_strings {
    char **list;
    size_t count;
};

/* Where a value comes from. COMMAND: a live command, or the program itself (an `auto` that was resolved). */
enum zf_origin_kind { ZF_ORIGIN_DEFAULT, ZF_ORIGIN_FILE, ZF_ORIGIN_SET, ZF_ORIGIN_COMMAND };

struct zf_origin {
    enum zf_origin_kind kind;
    const char *file;      /* FILE: as it was named */
    size_t line, column;   /* FILE: of the value's first character; both count from 1, columns in characters */
    const char *directory; /* relative paths are relative to it; NULL: to the current directory */
};

/* A line of [at]: `command` is done before step `step` is issued. */
struct zf_at {
    int64_t step;
    const char *command;
    struct zf_origin origin;
};

/* STRING and PATH are never NULL: "" is "not given". Paths are absolute (but for words such as `bytes`). SIZE in bytes, DURATION in
 * seconds. micro_batch and update_interval: 0 = auto; schedule_steps: 0 = steps. steps: 0 = epochs counts. */
#define ZF_FIELD_STRING(list) const char *
#define ZF_FIELD_PATH(list) const char *
#define ZF_FIELD_PATHS(list) struct zf_strings
#define ZF_FIELD_INT(list) int64_t
#define ZF_FIELD_SIZE(list) int64_t
#define ZF_FIELD_DURATION(list) double
#define ZF_FIELD_FLOAT(list) double
#define ZF_FIELD_BOOL(list) bool
#define ZF_FIELD_CHOICE(list) enum zf_choice_##list
#define ZF_FIELD_LIST(list) struct zf_strings
struct zf_options {
#define ZF_OPTION(section, name, type, fallback, least, most, bounds, choices, ...) ZF_FIELD_##type(choices) name;
#include "core/config/options.def"
#undef ZF_OPTION
    struct zf_at *at; /* in the order of the file */
    size_t at_count, at_room;
    struct zf_origin origin[ZF_OPTIONS];
    const char *file; /* the run.cfg, NULL if there is none */
    struct zf_arena arena;
};
#undef ZF_FIELD_STRING
#undef ZF_FIELD_PATH
#undef ZF_FIELD_PATHS
#undef ZF_FIELD_INT
#undef ZF_FIELD_SIZE
#undef ZF_FIELD_DURATION
#undef ZF_FIELD_FLOAT
#undef ZF_FIELD_BOOL
#undef ZF_FIELD_CHOICE
#undef ZF_FIELD_LIST

struct zf_option {
    const char *section, *name;
    enum zf_option_type type;
    const char *fallback; /* the default, as value text */
    double least, most;   /* INFINITY: the type's own limit */
    const char *bounds;
    const char *const *choices; /* CHOICE: in the order of the enum; else words with a meaning of their own */
    size_t choice_count;
    const char *unit;
    enum zf_option_when when;
    const char *sentence;
    size_t offset; /* in struct zf_options */
};
extern const struct zf_option zf_option_table[ZF_OPTIONS];

/* A growing list of errors (or notes, with code ZF_OK). Full at ZF_ERR_LIST_MOST: the rest is only counted. */
enum { ZF_ERR_LIST_MOST = 1000 };
struct zf_err_list {
    struct zf_err *list;
    size_t count, room, dropped;
};
void zf_err_list_add(struct zf_err_list *l, const struct zf_err *e);
void zf_err_list_free(struct zf_err_list *l);
enum zf_status zf_err_list_status(const struct zf_err_list *l); /* the exit code: of several kinds the first of 2, 4, 3; ZF_OK if empty */

enum zf_status zf_options_init(struct zf_options *o, struct zf_err *e); /* every option at its default */
void zf_options_free(struct zf_options *o);

/* NULL if there is none. `lr` is learning_rate. */
const struct zf_option *zf_option_find(const char *name);
/* The name a misspelt one probably means, NULL if none is near. Any list of names. */
const char *zf_option_nearest(const char *name);
const char *zf_nearest(const char *name, const char *const *names, size_t count);
static inline enum zf_option_id zf_option_id(const struct zf_option *row)
{
    return (enum zf_option_id)(row - zf_option_table);
}

/* Fails with ZF_USAGE: there is no such option; names the right one for habits (max_grad_norm) and the nearest for misspellings. */
enum zf_status zf_option_unknown(const char *name, const char *where, struct zf_err *e);

/* Sets an option from value text after checking type, range and finiteness; on failure (ZF_USAGE) nothing changes. `origin` is copied. A
 * --set of `steps` or `epochs` takes the place of the other one in the file, a command that of either. */
enum zf_status zf_options_set(struct zf_options *o, const char *name, const char *text, const struct zf_origin *origin, struct zf_err *e);
/* The argument of --set: "name=value". */
enum zf_status zf_options_set_argument(struct zf_options *o, const char *argument, struct zf_err *e);
/* A line of [at]. */
enum zf_status zf_options_at(struct zf_options *o, const char *step, const char *command, const struct zf_origin *origin, struct zf_err *e);

/* The value as value text, which zf_options_set reads back to the same value. To be freed; NULL = no memory. */
char *zf_options_get_text(const struct zf_options *o, enum zf_option_id id);
bool zf_options_is_default(const struct zf_options *o, enum zf_option_id id);  /* the value is the default's, wherever it comes from */
bool zf_options_equal(const struct zf_options *a, const struct zf_options *b); /* values and [at]; not where they come from */

/* "FILE:LINE:COLUMN", "--set NAME", "" for a default; into buffer, returned. */
const char *zf_origin_text(const struct zf_origin *origin, const char *name, char *buffer, size_t size);

/* {"name": value, ...} with values of their own types, [at] as a list of lines; NULL = no memory. */
json_t *zf_options_json(const struct zf_options *o);

/* A run.cfg with every option and its value, by section; it reads back to equal options. */
enum zf_status zf_options_write(const struct zf_options *o, FILE *out, struct zf_err *e);
char *zf_options_text(const struct zf_options *o); /* the same; to be freed; NULL: no memory */

/* An option that only a start changes: whether a run may go on with another value of it. */
bool zf_option_free_to_change(enum zf_option_id id);

/* The reference: a table of all options. */
enum zf_table_style { ZF_TABLE_PLAIN, ZF_TABLE_MARKDOWN, ZF_TABLE_JSON };
enum zf_status zf_options_print(FILE *out, enum zf_table_style style, struct zf_err *e);
const char *zf_option_range(const struct zf_option *row, char *buffer, size_t size); /* "0 <= x < 1", "auto|bf16|f32" */
const char *zf_option_type_name(enum zf_option_type type);
const char *zf_option_when_name(enum zf_option_when when);

/* What no single option can tell: options that exclude, need or contradict each other, values this version does not have. All are
 * added to `errors`. `plan`: for the simulator, which needs neither data nor a learning rate. */
enum zf_status zf_options_validate(const struct zf_options *o, bool plan, struct zf_err_list *errors);

#endif
