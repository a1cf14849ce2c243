/* Batch systems and systemd end what a shell has left in the background; a person should know that before a night is lost. See launch.h. */
#include "tui/launch.h"

#include <dirent.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *variable, *kind, *instead; /* printf: the run.cfg */
} batches[] = {
    {"SLURM_JOB_ID", "Slurm", "sbatch --wrap 'zenflow-console %s --plain'"},
    {"PBS_JOBID", "PBS", "echo 'zenflow-console %s --plain' | qsub"},
    {"LSB_JOBID", "LSF", "bsub zenflow-console %s --plain"},
    {"OAR_JOB_ID", "OAR", "oarsub 'zenflow-console %s --plain'"},
};

/* The last KillUserProcesses of a configuration file; as it was if there is none. */
static bool kills_by(const char *path, bool before)
{
    char line[512];
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = line + strspn(line, " \t");
        size_t name = sizeof "KillUserProcesses" - 1;
        if (strncmp(at, "KillUserProcesses", name)) continue;
        at += name + strspn(at + name, " \t");
        if (*at++ != '=') continue;
        at += strspn(at, " \t");
        before = (*at && strchr("yYtT1", *at)) || !strncasecmp(at, "on", 2);
    }
    if (f) fclose(f);
    return before;
}

bool zf_logind_kills(const char *place, bool before)
{
    struct dirent **list;
    int n = scandir(place, &list, NULL, alphasort);
    if (n < 0) return kills_by(place, before);
    for (int k = 0; k < n; k++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", place, list[k]->d_name);
        if (!fnmatch("*.conf", list[k]->d_name, 0)) before = kills_by(path, before);
        free(list[k]);
    }
    free(list);
    return before;
}

static bool kills(void)
{
    static const char *const places[] = {"/etc/systemd/logind.conf", "/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
                                         "/etc/systemd/logind.conf.d"};
    bool so = false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) so = zf_logind_kills(places[i], so);
    return so && getuid() != 0; /* root is excepted */
}

void zf_surroundings_read(struct zf_surroundings *s)
{
    char line[sizeof s->cgroup], path[512];
    *s = (struct zf_surroundings){0};
    for (size_t i = 0; i < sizeof batches / sizeof *batches && !s->job[0]; i++) {
        const char *job = getenv(batches[i].variable);
        if (!job || !*job) continue;
        snprintf(s->job_kind, sizeof s->job_kind, "%s", batches[i].kind);
        snprintf(s->job, sizeof s->job, "%s", job);
    }
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) memcpy(s->cgroup, line, sizeof line);
    if (f) fclose(f);
    s->kills = kills();
    const struct passwd *me = getpwuid(getuid());
    snprintf(path, sizeof path, "/var/lib/systemd/linger/%s", me ? me->pw_name : "");
    s->lingers = me && access(path, F_OK) == 0;
}

char *zf_surroundings_warning(const struct zf_surroundings *s, const char *cfg)
{
    char *text = NULL, instead[600] = "a job of its own";
    int n = 0;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const char *gap = strstr(batches[i].instead, "%s");
        if (!strcmp(batches[i].kind, s->job_kind))
            snprintf(instead, sizeof instead, "%.*s%.400s%s", (int)(gap - batches[i].instead), batches[i].instead, cfg, gap + 2);
    }
    bool session = strstr(s->cgroup, "/session-") && strstr(s->cgroup, ".scope"), user = strstr(s->cgroup, "/user@") != NULL;
    if (s->job[0])
        n = asprintf(&text, "this shell is %s job %s, and the run ends with it (it saves first); `%s` makes the run a job of its own",
                     s->job_kind, s->job, instead);
    else if (session && s->kills)
        n = asprintf(&text,
                     "systemd ends what you have started when you log out (KillUserProcesses); `loginctl enable-linger` and then "
                     "`systemd-run --user --scope zenflow-console %s` let the run go on",
                     cfg);
    else if (user && !s->lingers)
        n = asprintf(
            &text,
            "this terminal belongs to your systemd user session, which ends when you have logged out everywhere, and the run with it; "
            "`loginctl enable-linger` lets it go on");
    return n > 0 ? text : NULL;
}
