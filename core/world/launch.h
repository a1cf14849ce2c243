/* Who started this process, and as which one of how many: what mpirun and srun say in the environment. One table. */
#ifndef ZF_WORLD_LAUNCH_H
#define ZF_WORLD_LAUNCH_H

#include "core/base/err.h"

enum { ZF_LAUNCH_MOST = 1024 };

struct zf_launch {
    int rank, ranks;      /* 0 of 1: nobody has started others beside it */
    const char *launcher; /* "mpirun", "srun"; NULL: none */
    char job[160];        /* the same in all processes of one launch, another in the next */
};

/* ZF_USAGE: what the launcher says makes no sense. */
enum zf_status zf_launch_find(struct zf_launch *out, struct zf_err *e);
/* The same of any environment: value_of(ctx, name) is like getenv. */
enum zf_status zf_launch_read(struct zf_launch *out, const char *(*value_of)(void *ctx, const char *name), void *ctx, struct zf_err *e);

#endif
