/* The run directory: whose is it, what happened in it. Files we did not write are never touched: a directory that is neither empty nor a
 * run of ours is refused, and so is one that holds another run (different model, data or seed). */
#ifndef ZF_SESSION_RUNDIR_H
#define ZF_SESSION_RUNDIR_H

#include "core/base/err.h"
#include "core/base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What makes two runs the same one; texts of the caller's choice (paths, hashes), compared as they are. NULL: not compared. */
struct zf_run_identity {
    const char *model, *data;
    uint64_t seed;
};

/* The first thing that is written into a run directory besides lock and trainer.log (a run.cfg that was there before is the user's): the
 * journal's first entry {"type":"start","run":ID,"model":…,"data":…,"seed":"1","steps":…}; new reference, NULL: no memory. */
json_t *zf_run_start_entry(const struct zf_run_identity *who, uint64_t steps);

enum zf_rundir_state {
    ZF_RUNDIR_NEW,     /* absent, empty, or only what a start leaves behind that died at once (lock, trainer.log) */
    ZF_RUNDIR_OURS,    /* journal.jsonl begins with a start entry */
    ZF_RUNDIR_OTHER,   /* ours, but of a different model, data or seed */
    ZF_RUNDIR_FOREIGN, /* anything else */
};

struct zf_run_facts {
    enum zf_rundir_state state;
    char run[40];                        /* its id */
    uint64_t attempts, last_step, steps; /* starts and resumes; newest step known; of how many (0: not known) */
    bool finished;                       /* reached its last step: "end" with reason "done" */
    char ended[32];                      /* reason of the present attempt's end; "": it goes on, or died */
    char last_time[40];                  /* of the newest entry */
    char last_export[512];               /* "" */
    char last_checkpoint[512];           /* the newest that was written; "" */
    char what[1024];                     /* OTHER: what differs. FOREIGN: what is there */
};

/* who NULL: identity is not compared. Fails only for what cannot be read. */
enum zf_status zf_rundir_look(struct zf_run_facts *out, const char *run, const struct zf_run_identity *who, struct zf_err *e);

/* Looks; refuses (ZF_DIFFERENT) FOREIGN and OTHER with the fix; makes the directory. */
enum zf_status zf_rundir_claim(struct zf_run_facts *out, const char *run, const struct zf_run_identity *who, struct zf_err *e);

/* The newest run below `runs` (by its metrics and journal), or the newest whose trainer is alive. To be freed; NULL: none. */
char *zf_rundir_newest(const char *runs, bool alive);

#endif
