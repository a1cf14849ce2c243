/* `data`: rows as the model will see them, in the order of training, with the trained tokens marked. Needs no weights, writes nothing but
 * the rows' cache. */
#ifndef ZF_RUN_DATA_H
#define ZF_RUN_DATA_H

#include "core/config/options.h"

struct zf_data_view {
    int64_t rows, from;    /* how many, and the first one's position in the order of training */
    bool valid;            /* the validation rows, as they lie */
    bool ids, json, color; /* color: of a terminal; else trained tokens stand in brackets */
};

enum zf_status zf_data_run(const struct zf_options *o, const struct zf_data_view *v, const volatile int *stop, struct zf_err *e);

#endif
