/* What zenflow-console does with its arguments: what has a screen is done here, the rest is the trainer's, which stands beside this program
 * or on PATH. */
#ifndef ZF_TUI_LAUNCH_H
#define ZF_TUI_LAUNCH_H

#include "core/base/err.h"

#include <stdbool.h>

/* *handled false: this is the trainer's. Else *code is the exit code, and *e says why if it is not the run's own. */
enum zf_status zf_launch(int argc, char **argv, bool *handled, int *code, struct zf_err *e);

/* Becomes the trainer; returns only if there is none. */
enum zf_status zf_become_trainer(char **argv, struct zf_err *e);

/* Names of the trainer's commands: anything else may be a run.cfg. */
extern const char *const zf_trainer_commands[];

/* surroundings.c: will what is started here in the background outlive this shell? */
struct zf_surroundings {
    char job_kind[16], job[64]; /* "Slurm", "123"; "": no batch job */
    char cgroup[512];           /* the last line of /proc/self/cgroup */
    bool kills, lingers;        /* KillUserProcesses; loginctl enable-linger */
};
/* The last KillUserProcesses of a configuration file, or of a folder's *.conf; as it was before if there is none. */
bool zf_logind_kills(const char *place, bool before);
void zf_surroundings_read(struct zf_surroundings *s);
/* What to say, with the command that avoids it; NULL: nothing to say (or no memory). To be freed. */
char *zf_surroundings_warning(const struct zf_surroundings *s, const char *cfg);

#endif
