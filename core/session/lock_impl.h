/* What the files of the lock share. */
#ifndef ZF_SESSION_LOCK_IMPL_H
#define ZF_SESSION_LOCK_IMPL_H

#include "core/session/lock.h"

struct zf_lock {
    int fd;
    char *path;
    struct zf_lock_record me;
    double last_beat; /* zf_clock */
    bool due;         /* what the record says has changed */
    bool lost;        /* to another machine: the record is not ours any more */
};

void zf_lock_read_host(struct zf_lock_record *r); /* host and boot_id of this machine */

/* With what a record begins: its signal and step, in places that a handler can write without knowing the rest. Returns `to`. */
enum { ZF_LOCK_HEAD = 46 };
char *zf_lock_head(char to[ZF_LOCK_HEAD + 1], int number, uint64_t step);
void zf_lock_no_death(struct zf_lock *l);

#endif
