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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
