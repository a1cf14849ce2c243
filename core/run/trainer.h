/* The state of a run while it goes on. Private to core/run: train.c starts and ends it, loop.c does its steps, record.c says what happened.
 */
#ifndef ZF_RUN_TRAINER_H
#define ZF_RUN_TRAINER_H

#include "core/data/loader.h"
#include "core/pipeline/state.h"
#include "core/optim/schedule.h"
#include "core/run/choices.h"
#include "core/run/deadline.h"
#include "core/run/gpu.h"
#include "core/run/pace.h"
#include "core/run/profile.h"
#include "core/run/resume.h"
#include "core/run/setup.h"
#include "core/run/watch.h"
#include "core/session/journal.h"
#include "core/session/lock.h"
#include "core/session/session.h"
#include "core/telemetry/eta.h"
#include "core/telemetry/metrics.h"
#include "core/telemetry/plain.h"
#include "core/world/world.h"

#include <stdatomic.h>

/* What the weights are of. Drains count from 1, so that a zeroed one is no moment. */
struct zf_moment {
    uint64_t step, drains;
};

/* A checkpoint that was asked for while another one is being written. */
enum { ZF_SAVE_WISHES = 16 };
struct zf_save_wish {
    char name[256];
    bool named;
    uint64_t ticket; /* whose answer waits for it; 0: nobody's */
};

/* What a step was like, for its line. */
struct zf_step_record {
    uint64_t step, first_row, last_row, tokens, label_tokens;
    double loss, seconds, rate;
    double eta; /* seconds; below 0: not known yet */
    struct zf_step_norm norm;
};

struct zf_valid_record {
    double loss;
    uint64_t tokens;                 /* targets */
    struct zf_choices_found choices; /* records 0: without `choices` */
};

/* Of a parameter's gradient after a step: summed over micro-batches and ranks, before clipping. */
struct zf_norm {
    double squares, most;
};

struct zf_trainer {
    struct zf_setup *setup;
    const struct zf_options *o;
    const volatile int *stop, *usr1; /* counts SIGUSR1 */

    const struct zf_resume *resume; /* what it goes on from; NULL: it begins. The caller's */
    const char *run;                /* the run directory, as it was named */
    char id[40];                    /* the run's, whatever its directory is called */
    int place;                      /* itself, wherever it is moved; -1: not known */
    struct zf_lock *lock;
    char takeover[768]; /* how the attempt before this one ended; empty: in order, or there was none */
    struct zf_journal *journal;
    struct zf_session *session;
    struct zf_metrics *metrics;
    struct { /* of its lines */
        size_t seen;
        bool told;
    } lost;
    struct zf_plain plain;
    FILE *log;      /* RUN/trainer.log; NULL: it could not be opened */
    double started; /* clock: the run's, as if there had been no time between attempts */

    struct zf_world *world; /* the other ranks; NULL: this is the only one. Where it is not rank 0's, what is rank 0's alone is NULL */
    struct zf_comm *comm;   /* what their pipelines say to each other */
    atomic_bool ended;      /* the journal says how the run ends, or is about to */
    const struct load *loading; /* load.c's */
    struct {                    /* orders.c's: how this rank gives them, where they go, whether they went there */
        enum zf_status (*of)(void *ctx, const struct zf_param *p, float *out, bool *elsewhere, struct zf_err *e);
        float *out;
        bool elsewhere;
    } masters;
    bool apart;             /* an order has failed in its middle: ranks may be anywhere */
    bool may_end;           /* the step's last micro-batch may begin, and all ranks know it */
    int change;             /* the newest change of the pipeline: enum zf_policy_change */
    struct zf_step_record record;  /* of the newest step */
    struct zf_valid_record valid;  /* of the newest validation */
    struct zf_norm *norm;          /* [params] of the newest gradients that were looked at; owned */

    struct zf_device *device;
    struct zf_device *host; /* of the CPU half, where it has cores of its own; NULL: the same */
    struct zf_model model;
    struct zf_pipeline pipeline;
    struct zf_kept *kept; /* the GPU is released, and model and pipeline are closed: what they were. NULL: they are open */
    struct zf_order order;
    int loader_processor;     /* where loaders run; below 0: where the system likes */
    struct zf_loader *loader; /* of the training rows, from `step` to the run's end */
    struct zf_schedule schedule;
    struct zf_adam_rule rule;
    struct zf_eta eta;
    struct zf_profile profile;
    struct zf_watch watch;
    struct zf_gpu_watch *gpu; /* NULL: there is none, or nothing can be told of it */
    struct zf_pace pace;
    struct zf_deadline deadline;

    uint64_t step;            /* completed */
    uint64_t skipped, in_row; /* steps that were not applied; the newest of them without a good one between */
    uint64_t applied;         /* the newest step that was; 0: none */
    uint64_t clipped;         /* steps whose gradient was scaled down */
    struct {
        double loss;
        uint64_t step;
        char *path; /* with keep_best: the newest export of a best one, of step `kept`; owned */
        uint64_t kept;
        uint64_t worse; /* validations since */
        bool any;
    } best;
    struct {
        struct zf_moment moment;                  /* the newest checkpoint's, of this process or the one it went on from */
        char *path;                               /* of this process; owned */
        uint64_t bytes;                           /* of it */
        double at;                                /* clock: when it was written, or the process began */
        uint64_t failed, again;                   /* steps to wait after a failure; when it is tried again. 0: the last one succeeded */
        double again_at;                          /* clock: or then, if steps are long */
        int heard;                                /* of usr1 */
        struct zf_saving *together;               /* the one that all ranks write now */
        struct zf_saving *now;                    /* the one that is being written while training goes on; NULL: none */
        struct zf_state_memory memory;            /* its copies; kept for the next one */
        struct zf_save_wish wish[ZF_SAVE_WISHES]; /* [wishes]: what waits for its turn */
        size_t wishes;
        pthread_t populate; /* makes the system give that memory, while `populates` */
        bool populates;
        uint64_t steps;   /* of this process */
        uint64_t tickets; /* so far */
        double waited;    /* seconds, for one to end before the next one begins; not yet told of */
        bool told_waits;  /* that there is no memory for copies */
        bool told_slow;   /* that they are asked for faster than they are written */
    } save;
    uint64_t drains; /* so far: a drain changes the masters between two steps */
    bool owed;       /* what is due after the last step waits for its drain */
    char *exported;  /* the newest export of this process, NULL: none; owned */
    struct zf_moment exported_at;
    struct zf_moment judged_at; /* validated, and the best one and patience told of it */
    bool half;                  /* the last gradients of a step have begun to change the state, and it has not ended */
    bool told_zero_loss;
    bool broken;   /* what is in memory is of no step: there is nothing to save or export */
    bool ill;      /* paused because a step was not finite */
    bool answered; /* a client ended that pause, and the run */
    double lonely; /* clock since which that pause has had no client */
};

static inline struct zf_moment zf_trainer_now(const struct zf_trainer *t)
{
    return (struct zf_moment){t->step, t->drains};
}

static inline bool zf_trainer_is_now(const struct zf_trainer *t, const struct zf_moment *m)
{
    return m->step == t->step && m->drains == t->drains;
}

/* loop.c */
enum zf_end { ZF_END_DONE, ZF_END_PATIENCE, ZF_END_SIGNAL, ZF_END_COMMAND, ZF_END_TIME, ZF_END_NONFINITE };
enum zf_status zf_trainer_loop(struct zf_trainer *t, enum zf_end *end, struct zf_err *e);
/* Between two pieces of work: a sign of life, an ear for signals and an eye on the clock (ZF_STOPPED). */
enum zf_status zf_trainer_between(void *trainer, struct zf_err *e);
enum zf_status zf_trainer_validate(struct zf_trainer *t, double *loss, struct zf_err *e);
enum zf_status zf_trainer_export(struct zf_trainer *t, bool best, struct zf_err *e);
/* Devices, what ranks say to each other, model, pipeline, loader; and all of it back. train.c. */
enum zf_status zf_trainer_open(struct zf_trainer *t, const struct zf_resume *from, struct zf_err *e);
void zf_trainer_close(struct zf_trainer *t);
/* Model, pipeline and loader, under the options of now: in the state that is in `from`, or of a run that begins (NULL). train.c. */
enum zf_status zf_trainer_open_model(struct zf_trainer *t, const struct zf_resume *from, struct zf_err *e);
/* The model with room for everything, without weights: what that takes of the device is taken first. train.c. */
enum zf_status zf_trainer_open_blank(struct zf_trainer *t, struct zf_err *e);
/* Where the run directory is now: another run may have its name by now. To be freed; NULL: no memory. */
char *zf_trainer_place(const struct zf_trainer *t);

/* nonfinite.c */
enum zf_verdict { ZF_GO_ON, ZF_ASK, ZF_GIVE_UP };
/* A step without an update: counts it, says what happened and what follows. */
enum zf_verdict zf_nonfinite_step(struct zf_trainer *t, const struct zf_step_record *r);
/* The end of a run whose last step was not finite: why; what was done (export: why there is none, NULL: there is) and what to do. */
void zf_nonfinite_why(const struct zf_trainer *t, bool asked, bool answered, char *out, size_t size);
void zf_nonfinite_done(const struct zf_trainer *t, const struct zf_err *export, char *out, size_t size);

/* profile.c: takes the account of the compute lane as it is after a step. Writes what came together. */
void zf_profile_see(struct zf_trainer *t);
void zf_profile_step(struct zf_trainer *t, double seconds);
void zf_record_profile(struct zf_trainer *t);

/* record.c: journal, metrics, stdout, trainer.log */
void zf_record_start(struct zf_trainer *t);
void zf_record_step(struct zf_trainer *t, const struct zf_step_record *r);
void zf_record_valid(struct zf_trainer *t, const struct zf_valid_record *r);
void zf_record_channels(struct zf_trainer *t); /* channels.c: `select` and `score` lines of a step that counts */
enum zf_status zf_record_norms(struct zf_trainer *t, struct zf_err *e);
/* kind: "note", "warning", "error". Goes everywhere. */
void zf_record_text(struct zf_trainer *t, const char *kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void zf_record_said(struct zf_trainer *t, const char *kind, const char *text); /* to stdout and trainer.log alone */
void zf_record_end(struct zf_trainer *t, const char *reason, enum zf_status code);

#endif
