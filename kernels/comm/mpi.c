/* The module: a wire over MPI. One thread at a time calls it: who opens and closes it, and in between the comm lane. It never waits inside
 * MPI: whoever waits there cannot hear that another rank is gone, and takes a core that others need. */
#include "kernels/comm/mpi.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

struct mpi_wire {
    struct zf_wire head;
    MPI_Comm comm;
    MPI_Request *request; /* [2 * ranks] */
    bool broken;
};

static enum zf_status mpi_fail(struct zf_err *e, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return zf_fail(e, ZF_IO, "MPI", "%s: %.*s", what, n, text);
}

/* Until all requests are done: eagerly at first, then by looking now and then. */
static enum zf_status await(struct mpi_wire *w, int count, const atomic_bool *aborted, struct zf_err *e)
{
    enum { EAGER = 2000 };
    const struct timespec little = {.tv_nsec = 50000};
    for (unsigned turn = 0;; turn++) {
        int done = 0, code = MPI_Testall(count, w->request, &done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS) return mpi_fail(e, code, "an exchange with the other ranks failed");
        if (done) return ZF_OK;
        if (atomic_load(aborted)) return zf_fail(e, ZF_IO, "MPI", "an exchange with the other ranks was given up");
        if (turn < EAGER)
            sched_yield();
        else
            nanosleep(&little, NULL);
    }
}

static enum zf_status exchange(struct zf_wire *head, const struct zf_wire_block *out, const struct zf_wire_block *in,
                               const atomic_bool *aborted, struct zf_err *e)
{
    struct mpi_wire *w = (struct mpi_wire *)head;
    int count = 0, code = MPI_SUCCESS;
    if (w->broken) return zf_fail(e, ZF_IO, "MPI", "an exchange after one that failed");
    for (int q = 0; q < head->ranks && code == MPI_SUCCESS; q++) {
        if (q == head->rank) continue;
        if (in[q].size) code = MPI_Irecv(in[q].bytes, (int)in[q].size, MPI_BYTE, q, 0, w->comm, &w->request[count++]);
        if (code == MPI_SUCCESS && out[q].size)
            code = MPI_Isend(out[q].bytes, (int)out[q].size, MPI_BYTE, q, 0, w->comm, &w->request[count++]);
    }
    enum zf_status s = code == MPI_SUCCESS ? await(w, count, aborted, e) : mpi_fail(e, code, "an exchange with the other ranks failed");
    w->broken = s != ZF_OK;
    return s;
}

/* After a failure there is nobody to say goodbye to: MPI_Finalize would wait for them. */
static void close_wire(struct zf_wire *head)
{
    struct mpi_wire *w = (struct mpi_wire *)head;
    if (!w->broken) {
        if (w->comm != MPI_COMM_NULL) MPI_Comm_free(&w->comm);
        MPI_Finalize();
    }
    free(w->request);
    free(w);
}

static enum zf_status open_wire(struct zf_wire **out, int rank, int ranks, struct zf_err *e)
{
    int found = -1, all = -1, thread = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &thread);
    *out = NULL;
    if (code != MPI_SUCCESS) return zf_fail(e, ZF_IO, "MPI", "MPI_Init_thread failed with code %d", code);
    MPI_Comm_rank(MPI_COMM_WORLD, &found);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (found != rank || all != ranks || thread < MPI_THREAD_SERIALIZED) {
        MPI_Finalize();
        return found != rank || all != ranks
                   ? zf_fail(
                         e, ZF_USAGE, "MPI",
                         "it says that this is rank %d of %d; the launcher said %d of %d; start with the mpirun of the same MPI that this "
                         "was built with, or with srun --mpi=pmix",
                         found, all, rank, ranks)
                   : zf_fail(e, ZF_USAGE, "MPI", "it allows no calls from other threads; one built with threads is needed");
    }
    struct mpi_wire *w = calloc(1, sizeof *w);
    if (w) w->request = calloc(2 * (size_t)ranks, sizeof(MPI_Request));
    if (!w || !w->request) {
        free(w);
        MPI_Finalize();
        return zf_fail_memory(e, "what goes to other ranks");
    }
    w->head = (struct zf_wire){rank, ranks, exchange, close_wire};
    code = MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) {
        w->comm = MPI_COMM_NULL;
        close_wire(&w->head);
        return zf_fail(e, ZF_IO, "MPI", "MPI_Comm_dup failed with code %d", code);
    }
    *out = &w->head;
    return ZF_OK;
}

extern const struct zf_mpi zf_mpi;
const struct zf_mpi zf_mpi = {ZF_MPI_ABI, open_wire};
