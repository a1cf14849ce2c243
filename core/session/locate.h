/* What RUN stands for where a person names one. */
#ifndef ZF_SESSION_LOCATE_H
#define ZF_SESSION_LOCATE_H

#include "core/base/err.h"

/* A run directory: itself. A run.cfg is read for its `dir` alone. To be freed. */
enum zf_status zf_locate_run(char **out, const char *argument, struct zf_err *e);

#endif
