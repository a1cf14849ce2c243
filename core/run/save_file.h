/* One checkpoint: on its way to the disk, by a thread of its own or by the trainer's, and back. */
#ifndef ZF_RUN_SAVE_FILE_H
#define ZF_RUN_SAVE_FILE_H

#include "checkpoints/container.h"
#include "core/pipeline/state.h"
#include "core/run/save_share.h"
#include "core/session/journal.h"

#include <pthread.h>
#include <stdatomic.h>

struct zf_saving {
    /* set by who begins it; owned: state, run, path, info */
    struct zf_state state;
    struct zf_sharing *sharing; /* what other ranks have of it; NULL: there are none */
    char *run, *path;           /* the run's directory; the file's */
    json_t *info;
    uint64_t step, drains;
    uint64_t ticket; /* whose answer waits for it; 0: nobody's */
    uint64_t likely; /* bytes that it is likely to have; 0: not known */
    int level, threads;
    size_t keep, keep_weights;
    struct zf_journal *journal;
    double began;
    enum zf_status (*between)(void *ctx, struct zf_err *e); /* after some rows: a sign of life. NULL: none */
    void *ctx;
    /* the writer's until `done` */
    struct zf_ckpt_counts counts;
    double stalled, ended; /* seconds that training waited (at first: of the issuing thread); clock */
    enum zf_status status;
    struct zf_err err;
    bool unwritten; /* it is whole, but the journal does not know: err says why */
    atomic_bool done, cancelled;
    pthread_t thread;
};

/* state is a copy: writes it in a thread, at low priority. ZF_MEMORY: no thread. */
enum zf_status zf_saving_start(struct zf_saving *s, struct zf_err *e);
/* Writes it here and now. */
void zf_saving_run(struct zf_saving *s);
/* The line of metrics and journal; new reference, NULL: no memory. */
json_t *zf_saving_entry(const struct zf_saving *s);
void zf_saving_free(struct zf_saving *s); /* after its end */

/* The state that is in a file into a pipeline that has just been opened, under the policy of then. ZF_DIFFERENT: it has its weights only.
 * ZF_FORMAT: it is not of this model and policy, or damaged; then the pipeline is good for nothing but to be closed, as when `between`
 * fails, which is called before some rows (NULL: nothing is). */
enum zf_status zf_saved_state(const struct zf_ckpt *c, struct zf_pipeline *p, enum zf_status (*between)(void *ctx, struct zf_err *e),
                              void *ctx, struct zf_err *e);
/* The masters of a parameter, f32 [rows][cols]. ZF_FORMAT: they are missing, or of another shape. */
enum zf_status zf_saved_master(const struct zf_ckpt_tensor **out, const struct zf_ckpt *c, const struct zf_param *p, struct zf_err *e);
/* The update_interval that a run had then, whose options they are: `auto` may have chosen another one since it began. */
uint32_t zf_saved_interval(const struct zf_ckpt *c, const struct zf_options *o);

#endif
