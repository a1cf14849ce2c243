/* Collectives, of whatever backend: sums and copies of rows over 1, 2, 3 and 4 ranks, with shares of any size, none included, several at
 * once, and in the order in which they were issued. ZF_TEST_CUDA: over NCCL on the emulated device. Ranks are threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm_problem.h"
#include "comm_threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct setting {
    struct hub *hub;
    int ranks;
};

static void open_rank(struct rank_of_problem *r, const struct setting *s, int rank)
{
    struct zf_err e;
    *r = (struct rank_of_problem){.rank = rank, .ranks = s->ranks};
#ifdef ZF_TEST_CUDA
    struct hub_rank self = {s->hub, rank};
    struct zf_comm_world world = {rank, s->ranks, hub_tell, &self};
    problem_device(r, "cuda");
    if (zf_comm_open(&r->comm, r->device, &world, &e)) problem_fail(r, "%s", e.message);
#else
    problem_device(r, "host");
    if (hub_comm(&r->comm, s->hub, rank, r->device, &e)) problem_fail(r, "%s", e.message);
#endif
}

static void close_rank(struct rank_of_problem *r)
{
    zf_comm_close(r->comm);
    r->device->type->close(r->device);
}

static void one_rank(int rank, void *ctx)
{
    struct rank_of_problem r;
    open_rank(&r, ctx, rank);
    problem_all(&r);
    close_rank(&r);
}

static void test_all(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct setting s = {hub_new(ranks), ranks};
        hub_run(ranks, one_rank, &s);
        hub_free(s.hub);
    }
}

#ifdef ZF_TEST_CUDA
/* What rank 0 tells, in memory that processes share. */
struct board {
    atomic_bool told;
    char bytes[256];
};

struct board_rank {
    struct board *board;
    int rank;
};

static enum zf_status board_tell(void *ctx, void *bytes, size_t size, struct zf_err *e)
{
    const struct board_rank *self = ctx;
    struct board *b = self->board;
    if (size > sizeof b->bytes) return zf_fail(e, ZF_MEMORY, NULL, "%zu bytes for all ranks", size);
    if (self->rank == 0) {
        memcpy(b->bytes, bytes, size);
        atomic_store(&b->told, true);
        return ZF_OK;
    }
    while (!atomic_load(&b->told)) usleep(1000);
    memcpy(bytes, b->bytes, size);
    return ZF_OK;
}

/* Ranks that are processes. The first test: nothing of CUDA has been used before they part. */
static void test_processes(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child[RANKS];
    assert_ptr_not_equal(board, MAP_FAILED);
    for (int rank = 0; rank < RANKS; rank++) {
        child[rank] = fork();
        assert_true(child[rank] >= 0);
        if (child[rank]) continue;
        struct board_rank self = {board, rank};
        struct zf_comm_world world = {rank, RANKS, board_tell, &self};
        struct rank_of_problem r = {.rank = rank, .ranks = RANKS};
        struct zf_err e;
        problem_device(&r, "cuda");
        if (zf_comm_open(&r.comm, r.device, &world, &e)) problem_fail(&r, "%s", e.message);
        problem_all(&r);
        close_rank(&r);
        _exit(0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        assert_int_equal(waitpid(child[rank], &status, 0), child[rank]);
        assert_int_equal(status, 0);
    }
    munmap(board, sizeof *board);
}
#endif

/* Rank 0 brings other rows than rank 1, or rank 1 never comes. */
static void disagreeing_rank(int rank, void *ctx)
{
    struct rank_of_problem r;
    open_rank(&r, ctx, rank);
    problem_disagree(&r, rank == 0 ? 3 : 4);
    close_rank(&r);
}

static void lonely_rank(int rank, void *ctx)
{
    struct rank_of_problem r;
    open_rank(&r, ctx, rank);
    if (rank == 0) problem_alone(&r);
    close_rank(&r);
}

static void test_failures(void **state)
{
    (void)state;
    setenv("CUDAEMU_NCCL_TIMEOUT_S", "3", 1);
    void (*const bodies[])(int, void *) = {disagreeing_rank, lonely_rank};
    for (size_t i = 0; i < 2; i++) {
        struct setting s = {hub_new(2), 2};
        hub_run(2, bodies[i], &s);
        hub_free(s.hub);
    }
}

int main(void)
{
    setenv("CUDAEMU_DEVICES", "4", 1); /* one a rank: freeing memory waits for all of a device */
    const struct CMUnitTest tests[] = {
#ifdef ZF_TEST_CUDA
        cmocka_unit_test(test_processes),
#endif
        cmocka_unit_test(test_all), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
