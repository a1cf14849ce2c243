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

static void one_rank(int rank, void *ctx)
{
    const struct setting *s = ctx;
    struct rank_of_problem r = {.rank = rank, .ranks = s->ranks};
    struct zf_err e;
#ifdef ZF_TEST_CUDA
    struct hub_rank self = {s->hub, rank};
    struct zf_comm_world world = {rank, s->ranks, hub_tell, &self};
    problem_device(&r, "cuda");
    if (zf_comm_open(&r.comm, r.device, &world, &e)) problem_fail(&r, "%s", e.message);
#else
    problem_device(&r, "host");
    if (hub_comm(&r.comm, s->hub, rank, r.device, &e)) problem_fail(&r, "%s", e.message);
#endif
    problem_all(&r);
    zf_comm_close(r.comm);
    r.device->type->close(r.device);
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

#ifndef ZF_TEST_CUDA
/* Rank 0 brings other rows than rank 1, or rank 1 never comes. */
static void disagreeing_rank(int rank, void *ctx)
{
    const struct setting *s = ctx;
    struct rank_of_problem r = {.rank = rank, .ranks = 2};
    struct zf_err e;
    problem_device(&r, "host");
    hub_comm(&r.comm, s->hub, rank, r.device, &e);
    problem_disagree(&r, rank == 0 ? 3 : 4);
    zf_comm_close(r.comm);
    r.device->type->close(r.device);
}

static void lonely_rank(int rank, void *ctx)
{
    const struct setting *s = ctx;
    struct rank_of_problem r = {.rank = rank, .ranks = 2};
    struct zf_err e;
    problem_device(&r, "host");
    hub_comm(&r.comm, s->hub, rank, r.device, &e);
    if (rank == 0) problem_alone(&r);
    zf_comm_close(r.comm);
    r.device->type->close(r.device);
}

static void test_failures(void **state)
{
    (void)state;
    void (*const bodies[])(int, void *) = {disagreeing_rank, lonely_rank};
    for (size_t i = 0; i < 2; i++) {
        struct setting s = {hub_new(2), 2};
        hub_run(2, bodies[i], &s);
        hub_free(s.hub);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
#ifndef ZF_TEST_CUDA
        cmocka_unit_test(test_failures),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
