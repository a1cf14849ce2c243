/* Going on with a run from one of its checkpoints, with the same bits as if it had never stopped: options, state, what was changed since,
 * what was edited in run.cfg. */
#ifndef ZF_RUN_RESUME_H
#define ZF_RUN_RESUME_H

#include "checkpoints/container.h"
#include "core/config/options.h"

struct zf_trainer;

struct zf_resume {
    struct zf_ckpt file;
    char *path;      /* of it; NULL: none */
    bool anew;       /* the run never had one: it begins again, with what was changed by hand */
    json_t *entries; /* of the journal; null what was done on the way that a `load` went back on */
    json_t *start;   /* the entry of the newest start */
    char *edits;     /* "set NAME VALUE ...": edited in run.cfg, possible while a run goes on; NULL: nothing */
    json_t *changes; /* what was edited and changes the run: [{"option", "old", "new"}], with "from_step" if it counts from then */
    json_t *content; /* what its data was (content.h); NULL: written by a version that did not keep it */
    json_t *edited;  /* names of those options, and of those that were edited to what they were at the checkpoint */
    char *run_cfg;   /* the options when the edits are made: RUN/run.cfg */
    uint64_t step, attempt, last_step; /* of the checkpoint; which attempt this is; how far the run had come */
    size_t written;                    /* entries that there were when the checkpoint's state was taken */
    uint64_t metrics;                  /* bytes of metrics.jsonl then */
};

/* Finds the checkpoint (`from`; NULL: the newest that is whole), and makes `o`, the options as they are asked for now, what they were when
 * it was written. What was edited since the last start counts from the next step on, or at once where only a start can change it. Prints
 * which checkpoints were passed over. ZF_DIFFERENT: what was edited is part of what the run is, or there is no
 * checkpoint. */
enum zf_status zf_resume_open(struct zf_resume *r, struct zf_options *o, const char *run, const char *from, struct zf_err *e);
/* The same for a run that is not at its start (`load`): the checkpoint at `path` is one of the run's, whole, and can be gone on from; else
 * ZF_DIFFERENT or ZF_FORMAT. wanted: `now` as the options were then, but for what only a start changes; to be freed. */
enum zf_status zf_resume_load(struct zf_resume *r, struct zf_options *wanted, const struct zf_options *now, const char *run,
                              const char *path, struct zf_err *e);
void zf_resume_close(struct zf_resume *r); /* zeroed is fine */
/* The options when the edits are made. To be freed, if ZF_OK. */
enum zf_status zf_resume_options(const struct zf_resume *r, struct zf_options *out, struct zf_err *e);

/* Counters, before the pipeline is opened; then, when it has its state (zf_saved_state) and the session is open, what is to be done again.
 */
enum zf_status zf_resume_counters(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e);
enum zf_status zf_resume_commands(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e);
/* The journal's entry of this attempt; NULL: no memory. */
json_t *zf_resume_entry(const struct zf_resume *r, const struct zf_trainer *t);
/* What it goes on from; and whether the machine gives the same bits as the one that wrote it, else a note: that alone. */
void zf_resume_tell(const struct zf_resume *r, struct zf_trainer *t);
void zf_resume_machine(const struct zf_resume *r, struct zf_trainer *t);

#endif
