/* A run in the background: the process that was called waits until the start has succeeded or failed, and says so; its grandchild, the
 * leader of a session of its own, trains. To be called before there are threads, and before the lock is taken. */
#ifndef ZF_RUN_DETACH_H
#define ZF_RUN_DETACH_H

#include "core/base/err.h"
#include <stdbool.h>

struct zf_detach {
    int pipe;    /* the grandchild's, for its verdict; -1: given */
    bool parent; /* this is the process that was called: the start is over, the status says how */
};

/* Returns twice: in the parent with the outcome of the start, in the grandchild at once. stop: what signals set; they are passed on. */
enum zf_status zf_detach(struct zf_detach *d, const volatile int *stop, struct zf_err *e);
/* In the grandchild: the start has succeeded. stdout and stderr go to the file `log` from now on. */
void zf_detach_started(struct zf_detach *d, const char *log);
/* In the grandchild: the start has failed; the parent says why. */
void zf_detach_failed(struct zf_detach *d, const struct zf_err *why);

#endif
