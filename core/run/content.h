/* What the data of a run is: the rows that its files became. A run goes on with the same rows only, whatever they are read from. */
#ifndef ZF_RUN_CONTENT_H
#define ZF_RUN_CONTENT_H

#include "core/base/json.h"
#include "core/run/setup.h"

/* {"train": {"rows", "tokens", "xxh3"}, "valid": the same where there are such files, "tokenizer": its hash}. The data was read. New
 * reference; NULL: no memory. */
json_t *zf_content_of(const struct zf_setup *s);

/* ZF_DIFFERENT: it is not what it was `then`, by an earlier zf_content_of; what that does not say is not compared (NULL: nothing). */
enum zf_status zf_content_check(const struct zf_setup *s, const json_t *then, struct zf_err *e);

#endif
