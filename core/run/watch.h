/* Where the time of a run goes while it goes on: each step's share of the lanes, sums for the end, spans of work and waits for whoever
 * listens: a trace, clients. Lanes keep spans only then. The trainer's thread. */
#ifndef ZF_RUN_WATCH_H
#define ZF_RUN_WATCH_H

#include "core/pipeline/report.h"
#include "core/telemetry/tensorboard.h"
#include "core/telemetry/trace.h"

struct zf_trainer;

enum { ZF_WATCHERS = 32 }; /* as many as clients */

struct zf_watch {
    struct zf_pipeline_sample before, step; /* when the step began (its counts: when the last one ended); what it took */
    double began, ended;                    /* of that step: the clock */
    struct {                                /* of all steps so far */
        uint64_t steps;
        double seconds, stalled, formula_down, formula_up; /* seconds; bytes */
        uint64_t d2h_bytes, h2d_bytes, selections;
    } sum;
    struct zf_group *groups;
    size_t group_room;
    bool score_asked; /* scores of the next step are wanted */

    struct zf_tensorboard *tensorboard; /* NULL: not wanted, or it could not be made */

    struct zf_span *spans; /* as many as watch.c takes at once, while lanes are watched, else NULL */
    struct {
        struct zf_trace *file;        /* NULL: none is being written */
        char *path;                   /* of it */
        uint64_t wanted, first, last; /* steps; wanted: the first of the next one, 0: none */
        double over;                  /* when its last step ended; 0: not yet */
        uint64_t lost;                /* spans */
        bool cut;                     /* its file has reached trace_bytes */
    } trace;

    /* Not more of them than a screen shows. Whoever wants `lanes` lines sets listeners (0: nobody) and publish before a step. */
    struct zf_watcher { /* of `watch`: whose scores a client gets in full */
        uint64_t client;
        size_t matrix;
    } watcher[ZF_WATCHERS];
    size_t watchers;
    unsigned listeners;
    void (*publish)(void *ctx, const char *line, size_t size);
    void *ctx;
    struct zf_live *live; /* the line of the present step */
    double shown;         /* when the last step began that was told so: the clock */
    bool showing;         /* the present one is to be told */
};

/* Options say what: tensorboard, trace_steps. What cannot be had is a warning. After zf_record_start. */
void zf_watch_open(struct zf_trainer *t);
/* Around a step. In between: takes what lanes have kept so far, where they keep it. */
void zf_watch_begin(struct zf_trainer *t);
void zf_watch_take(struct zf_trainer *t);
void zf_watch_end(struct zf_trainer *t);
void zf_watch_stop(struct zf_trainer *t); /* after the last step: a trace that is being written ends here */
/* Between two steps, lanes and all will go and others come: a trace ends here, and what counts begins anew; zf_watch_open follows. */
void zf_watch_leave(struct zf_trainer *t);
void zf_watch_close(struct zf_trainer *t); /* while lanes still exist */

/* The commands. `trace N`: the next N steps; text: the answer. `score`: with the next step. */
enum zf_status zf_watch_trace(struct zf_trainer *t, uint64_t steps, char *text, size_t room, struct zf_err *e);
void zf_watch_score(struct zf_trainer *t);
/* Scores of a matrix, channel by channel, for a client, with every `score` line; "none": no more. Each client has one, until it leaves. */
enum zf_status zf_watch_matrix(struct zf_trainer *t, uint64_t client, const char *name, char *text, size_t room, struct zf_err *e);
/* The matrices that somebody watches who is still there: into out[ZF_WATCHERS], none twice. Returns how many. */
size_t zf_watch_matrices(struct zf_trainer *t, size_t *out);

#endif
