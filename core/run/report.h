/* What there is to say about a dataset: for `check` and for the start of a run, so that nothing is cut, dropped or masked unseen. */
#ifndef ZF_RUN_REPORT_H
#define ZF_RUN_REPORT_H

#include "core/data/dataset.h"
#include <jansson.h>

/* On stdout; one line, or with `details` everything that is counted. */
void zf_report_dataset(const char *name, const struct zf_dataset *d, bool details);
json_t *zf_report_dataset_json(const struct zf_dataset *d);

#endif
