/* Arguments of one command: flags and values are taken out by name, positional ones in order, and what is left over is an error. */
#ifndef ZF_BASE_ARGS_H
#define ZF_BASE_ARGS_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_args {
    int count;
    char **list; /* taken arguments become NULL */
};

bool zf_args_flag(struct zf_args *a, const char *name);
/* "--name VALUE" or "--name=VALUE"; *out is NULL if it is not there. May be called again for repeated ones. */
enum zf_status zf_args_value(struct zf_args *a, const char *name, const char **out, struct zf_err *e);
/* Numbers in a range; *out keeps its value if the argument is not there. */
enum zf_status zf_args_integer(struct zf_args *a, const char *name, int64_t least, int64_t most, int64_t *out, struct zf_err *e);
enum zf_status zf_args_real(struct zf_args *a, const char *name, double least, double most, double *out, struct zf_err *e);
/* The next positional argument, NULL if there is none. "-" is one. After "--" everything is. */
const char *zf_args_next(struct zf_args *a);
enum zf_status zf_args_need(struct zf_args *a, const char *what, const char **out, struct zf_err *e);
/* ZF_USAGE if anything is left. */
enum zf_status zf_args_done(const struct zf_args *a, struct zf_err *e);

#endif
