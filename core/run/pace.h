/* update_interval = auto while a run goes on: looks at the lanes, decides (core/pipeline/interval.h), has it written down, acts. The
 * trainer's thread. */
#ifndef ZF_RUN_PACE_H
#define ZF_RUN_PACE_H

#include "core/pipeline/interval.h"
#include "core/pipeline/report.h"

#include <jansson.h>

struct zf_trainer;

struct zf_pace {
    struct zf_interval interval; /* `now` is what update_interval = auto is */
    bool looking;
    uint64_t from;                  /* the step after which the look began, or is to begin */
    struct zf_pipeline_sample then; /* when it began */
    double compute;                 /* seconds that the compute lane has worked in its steps */
    uint32_t room;                  /* the longest window that memory was enough for, once that was asked; 0: it was not */
    bool told_room, told_journal;
    /* Of a run that goes on: what was decided after its checkpoint, to be done again, and up to which step nothing else is decided. */
    struct zf_pace_decision {
        uint64_t step;
        uint32_t now;
    } * again;
    size_t again_count;
    uint64_t again_until;
};

/* It begins anew: update_interval has become auto, or the run has. */
void zf_pace_start(struct zf_trainer *t);
void zf_pace_close(struct zf_trainer *t);
/* It goes on: the interval then, the journal's entries, the last step that was taken. */
void zf_pace_resume(struct zf_trainer *t, uint32_t now, const json_t *entries, uint64_t last_step);
/* What has been measured does not count any more: another policy. */
void zf_pace_forget(struct zf_trainer *t);
void zf_pace_step(struct zf_trainer *t); /* after a step */
/* Before the next one is issued, when nothing else changes any more. Fails only with what ends the run. */
enum zf_status zf_pace_decide(struct zf_trainer *t, struct zf_err *e);

#endif
