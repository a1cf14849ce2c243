/* The exports of a run, by its journal. checkpoint_model.h has what looks for checkpoints as well. */
#ifndef ZF_RUN_LOCATE_H
#define ZF_RUN_LOCATE_H

#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

/* "300" of --step. ZF_USAGE: it is no step. */
enum zf_status zf_locate_step(uint64_t *out, const char *text, struct zf_err *e);
/* The newest export of a run, or that of a step (a number; NULL: any). To be freed. ZF_FORMAT: there is none. */
enum zf_status zf_locate_export(char **out, const char *run, const uint64_t *step, struct zf_err *e);
/* The step whose validation was the best, as the run went in the end, and the export that keep_best kept of it: to be freed; NULL: it is
 * not there any more. ZF_FORMAT: none was kept. */
enum zf_status zf_locate_best(char **out, uint64_t *step, const char *run, struct zf_err *e);

/* RUN/exports/step-NNNNNNNN; to be freed, NULL = no memory. */
char *zf_export_path(const char *run, uint64_t step);

#endif
