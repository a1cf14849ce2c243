/* RUN/lock: one trainer a run directory, on all machines that share it.
 *
 * On one kernel an open-file-description lock (fcntl) decides: it ends with the process, however that ends. Between machines the heartbeat
 * decides: younger than ZF_LOCK_FRESH seconds is alive. The record is a fixed-size JSON text that is overwritten in place. It also carries
 * what explains a death afterwards: signal, step, memory, its limit, kills counted by the kernel. A forked child holds the lock as well:
 * detach first, then acquire. */
#ifndef ZF_SESSION_LOCK_H
#define ZF_SESSION_LOCK_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZF_LOCK_FRESH = 60, ZF_LOCK_BEAT = 5 };

struct zf_lock_record {
    char host[65], boot_id[40], job[65];
    long long pid, pid_start; /* start of the process in clock ticks since boot, against reused numbers */
    double started, heartbeat;
    uint64_t step;
    double peak_bytes, resident_bytes, limit_bytes, oom_kills; /* below 0: not known */
    int signal;                                                /* that it died of, after `step` steps; 0: none was seen */
    bool file_lock;                                            /* the holder could lock the file: then an unlocked one means death */
    char socket[108];                                          /* where it listens; "": nowhere, or not yet */
    bool paused;                                               /* it takes no steps until somebody says so */
};

enum zf_lock_state { ZF_LOCK_NONE, ZF_LOCK_LIVE, ZF_LOCK_DEAD };

/* Is a trainer alive there? From files alone. DEAD: the lock of one that ended without a clean stop. *out may be NULL. */
enum zf_lock_state zf_lock_look(const char *run, struct zf_lock_record *out);

struct zf_lock_options {
    size_t memory_limit;    /* bytes, for the explanation; 0: none */
    bool without_file_lock; /* as on a file system that has none */
    bool take_over;         /* from a holder on another machine, alive or not: it ends at its next sign of life */
};

struct zf_lock;
/* ZF_BUSY names host and pid of the holder. A dead holder's lock is taken over: then note (may be NULL) is a sentence about
 * how that trainer ended, else "". The directory exists. */
enum zf_status zf_lock_acquire(struct zf_lock **out, const char *run, const struct zf_lock_options *o, char *note, size_t note_size,
                               struct zf_err *e);
/* Where the trainer of `run` listens: RUN/control.sock if it is there, as a directory may have been moved since, else what the record says.
 * To be freed; NULL: no memory. */
char *zf_lock_where(const char *run, const struct zf_lock_record *r);
/* Names the socket in the record. */
void zf_lock_socket(struct zf_lock *l, const char *path);
/* Is the holder of this record on another machine (its processes and sockets cannot be reached from here)? */
bool zf_lock_elsewhere(const struct zf_lock_record *r);
/* To be called at every step; writes every ZF_LOCK_BEAT seconds. ZF_BUSY: another one holds the run, as this process was stopped
 * for so long, or the lock was removed; it must end without touching the directory. Anything else that goes wrong
 * is ignored. */
enum zf_status zf_lock_beat(struct zf_lock *l, uint64_t step, struct zf_err *e);
/* In the record from the next sign of life on, which is due then. */
void zf_lock_paused(struct zf_lock *l, bool paused);
void zf_lock_release(struct zf_lock *l); /* removes the file; NULL is fine */

/* From here to its release: a signal that ends this process is put into the record and onto stderr first. What has a handler already has
 * that one called afterwards. One lock a process. */
void zf_lock_tell_death(struct zf_lock *l);
/* For a handler that ends the process itself. */
void zf_lock_died(int number);

/* "the trainer (pid 7 on host h) ended without a clean stop at step 41; peak memory 3.10 GiB of a limit of 4.00 GiB". */
void zf_lock_explain(const struct zf_lock_record *r, uint64_t step, char *buffer, size_t size);
/* Seen from a machine: its host, boot_id and oom_kills. */
void zf_lock_explain_here(const struct zf_lock_record *r, uint64_t step, const struct zf_lock_record *here, char *buffer, size_t size);

#endif
