/* run.cfg: an INI reader of our own, for columns and quoted strings.
 *
 *   [section]        name = value        # or ; at the beginning of a line: a comment
 *
 * Blanks around names and values do not count; a section may come again; a value ends at the end of its line, unless it is a "quoted
 * string" (options.h), which may go on over lines. UTF-8, with or without BOM; LF or CRLF (which is a LF inside a quoted string); no limit
 * to a line, 16 MiB to a file. */
#ifndef ZF_CONFIG_RUN_CFG_H
#define ZF_CONFIG_RUN_CFG_H

#include "core/config/options.h"

/* Reads a file into options that have been initialised. All errors are added to the list, each with its FILE:LINE:COLUMN; returns the
 * status of the list. Relative paths become relative to the file; `dir`, if not given, runs/NAME beside it. */
enum zf_status zf_run_cfg_read(struct zf_options *o, const char *path, struct zf_err_list *errors);

/* The same from memory. `name` stands in messages; `directory` is what relative paths are relative to (NULL: the current one). */
enum zf_status zf_run_cfg_read_memory(struct zf_options *o, const char *text, size_t size, const char *name, const char *directory,
                                      struct zf_err_list *errors);

/* Fresh options as a text has them that a run wrote (`name` stands in messages), or, text NULL, the file called `name`. After a failure, of
 * which there is the first error alone, there is nothing to be freed. */
enum zf_status zf_run_cfg_options(struct zf_options *out, const char *text, const char *name, struct zf_err *e);

/* Is MODEL a folder with config.json, DATA a file that can be read? ZF_FORMAT says what is there instead, and what is called nearly so.
 * NULL and "" are not looked at. */
enum zf_status zf_init_check(const char *model, const char *data, struct zf_err *e);

/* A commented run.cfg that works, for a model folder (NULL: a small one from scratch) and a file of data (NULL: a name to be replaced). */
enum zf_status zf_init_write(FILE *out, const char *model, const char *data, struct zf_err *e);

#endif
