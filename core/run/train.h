/* A run: from a complete setup to the exported model, in this process, with progress as lines on stdout. */
#ifndef ZF_RUN_TRAIN_H
#define ZF_RUN_TRAIN_H

#include "core/run/setup.h"
#include "core/world/world.h"

struct zf_train_how {
    volatile int *stop;                          /* becomes nonzero when a signal asks to end */
    const volatile int *usr1;                    /* another value than before: a checkpoint is asked for */
    double began;                                /* clock: when the program was started */
    const char *checkpoint;                      /* to go on from; NULL: the newest that is whole */
    bool take_over;                              /* from a trainer on another machine, whatever its state */
    void (*started)(void *ctx, const char *run); /* once the run exists; what stdout says from then on is trainer.log's. May be NULL */
    void *ctx;
    struct zf_world *world; /* the other ranks, of which this is rank 0; NULL: there are none */
    bool *together;         /* with it: set when all have been told how the run ends */
};

/* The run of these options, whatever state its directory is in: starts it, goes on with it, or says that it is over. ZF_STOPPED,
 * ZF_NUMERIC: ended early, with a checkpoint and an export. */
enum zf_status zf_train_run(struct zf_options *o, const struct zf_train_how *how, struct zf_err *e);

/* What a start would do with the run directory of these options, else why it would be refused: ZF_BUSY if a trainer is at work on it.
 * Writes nothing. */
enum zf_train_start {
    ZF_TRAIN_BEGIN,
    ZF_TRAIN_GO_ON,
    ZF_TRAIN_OVER /* the run has reached its last step: nothing */
};
enum zf_status zf_train_look(const struct zf_options *o, bool take_over, enum zf_train_start *what, struct zf_err *e);

/* ZF_TRAIN_GO_ON, or a checkpoint that is named: from where, with `o` as the run would have it. ZF_DIFFERENT: it cannot. */
struct zf_resume;
enum zf_status zf_train_resume(struct zf_resume *r, struct zf_options *o, enum zf_train_start what, const char *checkpoint,
                               struct zf_err *e);

/* A note if steps will have a learning rate of 0, now that it is known how many there are. r: zeroed for a fresh run. */
enum zf_status zf_train_note_rate(struct zf_setup *s, const struct zf_resume *r, const struct zf_options *o, struct zf_err *e);

#endif
