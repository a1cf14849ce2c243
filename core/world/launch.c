/* See launch.h. */
#include "core/world/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_WORDS = 3 };

/* In this order: an mpirun within a Slurm job has the variables of both, and Slurm's are those of the batch script. */
static const struct launcher {
    const char *name, *rank, *ranks, *job[JOB_WORDS]; /* job: variables that make a launch's name together, those that there are */
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}},
};

static bool read_number(const char *text, long *out)
{
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    return *text && !*end && !errno;
}

static void read_job(struct zf_launch *out, const struct launcher *l, const char *(*value_of)(void *, const char *), void *ctx)
{
    size_t n = (size_t)snprintf(out->job, sizeof out->job, "%s", l->name);
    for (int i = 0; i < JOB_WORDS && n < sizeof out->job; i++) {
        const char *word = value_of(ctx, l->job[i]);
        if (word) n += (size_t)snprintf(out->job + n, sizeof out->job - n, ".%.40s", word);
    }
    for (char *c = out->job; *c; c++) /* it becomes part of a file's name */
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *c)) *c = '-';
}

enum zf_status zf_launch_read(struct zf_launch *out, const char *(*value_of)(void *ctx, const char *name), void *ctx, struct zf_err *e)
{
    *out = (struct zf_launch){.ranks = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        const char *rank_text = value_of(ctx, l->rank), *ranks_text = value_of(ctx, l->ranks);
        long rank, ranks;
        if (!rank_text || !ranks_text) continue;
        if (!read_number(rank_text, &rank) || !read_number(ranks_text, &ranks) || ranks < 1 || rank < 0 || rank >= ranks)
            return zf_fail(e, ZF_USAGE, l->rank, "`%.40s`, with %s = `%.40s`: a number from 0 on, below the other one, is expected from %s",
                           rank_text, l->ranks, ranks_text, l->name);
        if (ranks > ZF_LAUNCH_MOST) return zf_fail(e, ZF_USAGE, l->ranks, "%ld processes; at most %d are expected", ranks, ZF_LAUNCH_MOST);
        if (ranks == 1) return ZF_OK;
        out->rank = (int)rank;
        out->ranks = (int)ranks;
        out->launcher = l->name;
        read_job(out, l, value_of, ctx);
        return ZF_OK;
    }
    return ZF_OK;
}

static const char *from_environment(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

enum zf_status zf_launch_find(struct zf_launch *out, struct zf_err *e)
{
    return zf_launch_read(out, from_environment, NULL, e);
}
