/* A lane's queue: a bounded ring of work, and a thread that does it in order. The issuer copies arguments in; a full ring makes it wait.
 * After an error a lane does nothing but what is to be done always (events), until that error has been taken. A `synchronous` queue has no
 * thread: work is done inside the call that issues it. `jitter` holds the thread up before pieces of work, by a seed.
 *
 * One thread issues; draining, failed and take_error are anybody's. */
#ifndef ZF_KERNELS_QUEUE_H
#define ZF_KERNELS_QUEUE_H

#include "kernels/work.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ZF_QUEUE_RING = 256 };

struct zf_slot {
    const struct zf_work *work;
    enum zf_phase phase;
    union zf_work_args args;
};

/* How a backend works. */
struct zf_queue_type {
    /* Does what the slot says. */
    enum zf_status (*perform)(struct zf_lane *l, const struct zf_slot *s, struct zf_err *e);
    void (*begin)(struct zf_lane *l); /* on the thread that will do work, before it */
    void (*idle)(struct zf_lane *l);  /* there is no work, the thread is about to sleep. NULL: nothing is done then */
};

/* One thread puts in, one takes out: `issued` is written by the one, `finished` by the other. Both spin shortly before they sleep, and who
 * advances a counter wakes the other only if it sleeps for that (each writes its own word, then reads the other's: no wake is lost). */
struct zf_queue {
    const struct zf_queue_type *type;
    struct zf_lane *lane;
    pthread_t thread;
    bool synchronous;
    uint64_t jitter, number, held;
    enum zf_phase phase; /* of what is issued; the issuer's */

    _Atomic uint64_t issued, finished;
    atomic_bool quit, sleeps; /* sleeps: the thread, for work */
    _Atomic uint64_t wanted;  /* the least `finished` for which a thread sleeps */
    pthread_mutex_t lock;     /* for sleeping, and over error */
    pthread_cond_t arrived, done;
    atomic_bool broken; /* error holds the first since the last take */
    struct zf_err error;

    struct zf_slot ring[ZF_QUEUE_RING]; /* [finished, issued) are the thread's, the rest is the issuer's */
};

struct zf_queue_options {
    const struct zf_queue_type *type;
    struct zf_lane *lane;
    const char *name; /* of the thread */
    bool synchronous;
    uint64_t jitter, number; /* number: of the lane, so that each is held up in its own way */
};

enum zf_status zf_queue_open(struct zf_queue *q, const struct zf_queue_options *o, struct zf_err *e);
void zf_queue_close(struct zf_queue *q); /* when all that was issued has been done */

/* Copies `size` bytes of args. A synchronous queue says what became of it. */
enum zf_status zf_queue_issue(struct zf_queue *q, const struct zf_work *work, const void *args, size_t size);
/* The caller's mistake: found by whoever takes the error, in its place among the other work. ZF_USAGE. */
enum zf_status zf_queue_refuse(struct zf_queue *q, const char *op, const char *wrong);
void zf_queue_drain(struct zf_queue *q); /* until what has been issued is done */

void zf_queue_fail(struct zf_queue *q, const struct zf_err *e);           /* kept, if it is the first */
enum zf_status zf_queue_failed(struct zf_queue *q, struct zf_err *e);     /* it stays */
enum zf_status zf_queue_take_error(struct zf_queue *q, struct zf_err *e); /* and the queue works again */

#endif
