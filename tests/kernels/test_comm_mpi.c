/* The collectives of test_comm.c between processes, over MPI: started by mpirun, as many as that likes. */
#include "comm_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum zf_status tell(void *ctx, void *bytes, size_t size, struct zf_err *e)
{
    (void)ctx, (void)bytes, (void)size;
    return zf_fail(e, ZF_USAGE, NULL, "MPI finds its ranks by itself");
}

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *ranks = getenv("OMPI_COMM_WORLD_SIZE");
    bool lie = argc > 1 && !strcmp(argv[1], "lie");
    struct rank_of_problem r = {.rank = rank ? atoi(rank) : 0, .ranks = ranks ? atoi(ranks) : 1};
    struct zf_comm_world world = {r.rank, r.ranks + lie, tell, NULL};
    struct zf_err e;
    problem_device(&r, "host");
    if (zf_comm_open(&r.comm, r.device, &world, &e)) {
        if (!lie || !strstr(e.message, "mpirun")) problem_fail(&r, "%s: %s", e.where, e.message);
        r.device->type->close(r.device);
        return 0;
    }
    if (lie) problem_fail(&r, "a wrong number of ranks was taken");
    problem_all(&r);
    zf_comm_close(r.comm);
    r.device->type->close(r.device);
    return 0;
}
