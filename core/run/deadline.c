/* See deadline.h. */
#include "core/run/deadline.h"
#include "core/base/clock.h"
#include "core/run/trainer.h"
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is measured may take half as long again the next time; and there is a second for all that is not measured. */
static const double slack = 1.5, rest = 1;
/* Until something has been written: by a slow network file system, masters, moments and weights. */
static const double guessed_speed = 100e6;
enum { STATE_BYTES = 16, EXPORT_BYTES = 4 };

void zf_deadline_step(struct zf_deadline *d, double seconds)
{
    d->step = fmax(seconds, 0.98 * d->step); /* a slow one is forgotten after some hundred */
}

void zf_deadline_saved(struct zf_deadline *d, double seconds)
{
    d->save = seconds;
}

void zf_deadline_exported(struct zf_deadline *d, double seconds)
{
    d->export = seconds;
}

/* How long ending takes once nothing else is done: a checkpoint that is under way comes first. */
static double ending(const struct zf_trainer *t)
{
    return rest + slack * ((t->save.now ? 2 : 1) * t->deadline.save + t->deadline.export);
}

double zf_deadline_left(const struct zf_trainer *t)
{
    return t->deadline.job_end > 0 ? t->deadline.job_end - zf_wall_clock() : (double)INFINITY;
}

static bool max_time_over(const struct zf_trainer *t, double more)
{
    return t->o->max_time > 0 && zf_clock() - t->deadline.began >= t->o->max_time + more;
}

bool zf_deadline_near(const struct zf_trainer *t)
{
    return max_time_over(t, 0) || zf_deadline_left(t) <= t->o->grace + slack * t->deadline.step + ending(t);
}

bool zf_deadline_over(const struct zf_trainer *t, bool step)
{
    return zf_deadline_left(t) <= ending(t) || (!step && max_time_over(t, t->o->grace));
}

const char *zf_deadline_text(const struct zf_trainer *t, char *buffer, size_t size)
{
    char when[96];
    if (max_time_over(t, 0))
        snprintf(buffer, size, "max_time is over");
    else
        snprintf(buffer, size, "the job ends at %s", zf_time_text(t->deadline.job_end, when, sizeof when));
    return buffer;
}

/* From the newest checkpoint of the attempts before; by its size if there is none. */
static double first_save(const struct zf_trainer *t)
{
    const json_t *entries = t->resume ? t->resume->entries : NULL;
    for (size_t i = json_array_size(entries); i-- > 0;) {
        const json_t *v = json_array_get(entries, i);
        double seconds = zf_json_number(v, "seconds", -1);
        if (zf_json_is(v, "checkpoint") && seconds >= 0) return seconds;
    }
    return (double)t->model.params.parameters * STATE_BYTES / guessed_speed;
}

static void tell(struct zf_trainer *t)
{
    char when[96], left[32], need[32];
    double seconds = zf_deadline_left(t);
    zf_time_text(t->deadline.job_end, when, sizeof when);
    zf_duration_text(seconds, left, sizeof left);
    zf_record_text(t, "note", "the job ends at %s (SLURM_JOB_END_TIME), in %s; the run will stop and save before, with exit code 5", when,
                   left);
    if (zf_deadline_near(t))
        zf_record_text(
            t, "warning",
            "that is little time: saving and exporting take about %s, and `grace` is kept beside; one step may be all that is taken; "
            "give the job more time, or lower grace",
            zf_duration_text(ending(t), need, sizeof need));
}

void zf_deadline_open(struct zf_trainer *t)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    struct zf_deadline *d = &t->deadline;
    char when[96], *end;
    d->save = first_save(t);
    d->export = (double)t->model.params.parameters * EXPORT_BYTES / guessed_speed;
    if (!text || !*text) return;
    errno = 0;
    double job_end = strtod(text, &end);
    if (errno || *end || !(job_end > 0 && job_end < 1e12)) {
        zf_record_text(t, "warning", "SLURM_JOB_END_TIME is `%.60s`, and seconds since 1970 are expected: when the job ends is not known",
                       text);
    } else if (job_end <= zf_wall_clock()) {
        zf_record_text(t, "warning", "SLURM_JOB_END_TIME is in the past (%s): when the job ends is not known",
                       zf_time_text(job_end, when, sizeof when));
    } else {
        d->job_end = job_end;
        tell(t);
    }
}
