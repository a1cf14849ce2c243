/* What status, list and log say about a run, from its files alone: no trainer is needed, a live one is not disturbed, missing files are
 * tolerated. */
#ifndef ZF_SESSION_INSPECT_RUN_H
#define ZF_SESSION_INSPECT_RUN_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* run: a run directory. No run there: ZF_USAGE. */
enum zf_status zf_status_print(FILE *to, const char *run, bool json, struct zf_err *e);

/* All runs in `runs` ("runs"), one a line, by name. None, or no such directory: says so, ZF_OK. */
enum zf_status zf_list_print(FILE *to, const char *runs, bool json, struct zf_err *e);

enum zf_log_format { ZF_LOG_TABLE, ZF_LOG_CSV, ZF_LOG_JSON };
#define ZF_LOG_FIELDS "step,time,loss,grad_norm,clip,learning_rate,tokens,label_tokens,tokens_per_s,step_ms"

/* The step table. Where a step occurs twice (after a resume) the later attempt wins. fields: names separated by commas, a.b for
 * a field of a field; NULL: ZF_LOG_FIELDS. A name that no step has: ZF_USAGE. *bad (may be NULL): lines that could not be read. JSON: an
 * array. */
enum zf_status zf_log_print(FILE *to, const char *run, enum zf_log_format format, const char *fields, size_t *bad, struct zf_err *e);

#endif
