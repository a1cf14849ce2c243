/* When a run has to end by itself: when `max_time` is over, and before the batch job ends that it is in (SLURM_JOB_END_TIME). The trainer's
 * thread. */
#ifndef ZF_RUN_DEADLINE_H
#define ZF_RUN_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>

struct zf_trainer;

struct zf_deadline {
    double began;              /* clock: the program was started; max_time counts from here */
    double job_end;            /* seconds since 1970; 0: there is no job, or nobody knows */
    double step, save, export; /* seconds that one takes: seen so far, or guessed */
};

/* Looks for a job, and says when it ends. `began` is set. */
void zf_deadline_open(struct zf_trainer *t);

/* What things took. */
void zf_deadline_step(struct zf_deadline *d, double seconds);
void zf_deadline_saved(struct zf_deadline *d, double seconds);
void zf_deadline_exported(struct zf_deadline *d, double seconds);

/* After a step: is there no time for another one, the last save and the export? */
bool zf_deadline_near(const struct zf_trainer *t);
/* Within a step (its end is worth waiting for, whatever max_time says), or within anything else: is it to be dropped? */
bool zf_deadline_over(const struct zf_trainer *t, bool step);
/* Seconds until the job ends; infinite without one. */
double zf_deadline_left(const struct zf_trainer *t);
/* Why it ends, into buffer. */
const char *zf_deadline_text(const struct zf_trainer *t, char *buffer, size_t size);

#endif
