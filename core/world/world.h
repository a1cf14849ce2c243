/* The ranks of one run: processes that mpirun or srun has started, on one machine or several, one of them (rank 0) with the run directory,
 * and how they talk and look after each other. TCP of our own: it works with whatever starts them and moves the tensors.
 *
 * Rank 0 listens, and says where in a file of mode 0600 beside the run directory, with a random token; the others come, each with two
 * connections: one for messages, one for bulk. A thread in each process sends signs of life and looks for those of the others. A rank that
 * is gone, or gives none for ZF_WORLD_SILENCE seconds, is the fate of all: it is named on stderr in every process, what waits for messages
 * fails, and a process that has not come to its end ZF_WORLD_LINGER seconds later is ended, as it may wait within a collective for ever.
 *
 * Messages are whatever the caller makes of them, in order, between rank 0 and each of the others; none among those. All functions but
 * those marked A: the trainer's thread. */
#ifndef ZF_WORLD_WORLD_H
#define ZF_WORLD_WORLD_H

#include "core/base/err.h"
#include "core/world/launch.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZF_WORLD_BEAT_MS = 500, ZF_WORLD_SILENCE = 7, ZF_WORLD_LINGER = 4, ZF_WORLD_COME = 120 /* seconds that they have to come */ };

struct zf_world;

struct zf_world_options {
    const struct zf_launch *launch;
    const char *run;     /* the run directory: need not be there */
    volatile int *stop;  /* what a signal sets; one that another rank got is set at rank 0, too */
    json_t *hello;       /* borrowed: what this process tells of itself beside what the world does (see zf_world_hello) */
    const char *version; /* of the program: must be the same */
};

/* Rank 0: returns at once, and the others may come. Another rank: when rank 0 has been found. ZF_IO: it was not, in time. */
enum zf_status zf_world_open(struct zf_world **out, const struct zf_world_options *o, struct zf_err *e);
/* Rank 0: waits until all have come. After it all know how many share a machine with them. */
enum zf_status zf_world_join(struct zf_world *w, struct zf_err *e);
/* The end, orderly or not: all of this process's work is done. Waits until that of the others is, too: whoever started them ends those that
 * are left as soon as one has failed. NULL is fine. */
void zf_world_close(struct zf_world *w);

int zf_world_rank(const struct zf_world *w);
int zf_world_ranks(const struct zf_world *w);
/* Which of the ranks on this machine, of how many; and those of them that may use the very same processors. After zf_world_join; elsewhere
 * after the first message. */
struct zf_world_place {
    int rank, ranks;   /* on this machine */
    int share, shares; /* of its processors */
};
struct zf_world_place zf_world_place(const struct zf_world *w);
/* Rank 0: what a rank told of itself: its `hello`, with "rank", "host", "pid". */
const json_t *zf_world_hello(const struct zf_world *w, int rank);
/* "rank 2 (pid 7 on host h)" into text, returned. A */
const char *zf_world_name(const struct zf_world *w, int rank, char *text, size_t room);

/* What this process does, for those who wait for it: a constant; zf_world_waits where it is the others who are waited for. A */
extern const char zf_world_waits[];
void zf_world_doing(struct zf_world *w, uint64_t step, const char *what);
/* Has something ended all? Else ZF_OK. With the code that all exit with. A */
enum zf_status zf_world_check(const struct zf_world *w, struct zf_err *e);
/* The same, without saying what: there is nobody to go on with. A */
bool zf_world_is_broken(const struct zf_world *w);
/* This process cannot go on; the others are to end, with this code. Rank 0: tells those that have not come yet, too, if they come within
 * seconds. */
void zf_world_fail(struct zf_world *w, enum zf_status code, const char *text);
/* Called once, by the world's thread, when a rank is lost; then `last` before that thread ends the process. Both must not wait for the
 * trainer's. */
void zf_world_when_lost(struct zf_world *w, void (*lost)(void *ctx, int rank, const char *text),
                        void (*last)(void *ctx, enum zf_status code, const char *text), void *ctx);
/* Called a few times a second while a message is waited for; what fails ends the waiting. */
void zf_world_tick(struct zf_world *w, enum zf_status (*tick)(void *ctx, struct zf_err *e), void *ctx);

/* Between rank 0 and `rank` (elsewhere: 0). A message: what was sent in one piece, to be freed; never NULL. */
enum zf_status zf_world_send(struct zf_world *w, int rank, const void *bytes, size_t size, struct zf_err *e);
enum zf_status zf_world_receive(struct zf_world *w, int rank, void **bytes, size_t *size, struct zf_err *e);
bool zf_world_pending(struct zf_world *w, int rank); /* a message is there */
/* Rank 0: to all others. */
enum zf_status zf_world_tell(struct zf_world *w, const void *bytes, size_t size, struct zf_err *e);
/* Everybody gives as many bytes and gets those of all, by rank. */
enum zf_status zf_world_exchange(void *world, const void *own, void *all, size_t bytes, struct zf_err *e);
/* Rank 0's bytes come to all. */
enum zf_status zf_world_share(void *world, void *bytes, size_t size, struct zf_err *e);
/* Plain bytes on the other connection; one thread at a time on each side, any. */
enum zf_status zf_world_put(struct zf_world *w, int rank, const void *bytes, size_t size, struct zf_err *e);
enum zf_status zf_world_get(struct zf_world *w, int rank, void *bytes, size_t size, struct zf_err *e);

#endif
