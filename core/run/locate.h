/* What an argument of a command stands for: a model folder, or an export of a run. checkpoint_model.h has what looks for checkpoints first.
 */
#ifndef ZF_RUN_LOCATE_H
#define ZF_RUN_LOCATE_H

#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

/* A folder with config.json: itself. A run (or its run.cfg): its newest export, or that of a step: "last", "best", or a number. To be
 * freed. */
enum zf_status zf_locate_model(char **out, const char *argument, const char *step, struct zf_err *e);

/* RUN/exports/step-NNNNNNNN; to be freed, NULL = no memory. */
char *zf_export_path(const char *run, uint64_t step);

#endif
