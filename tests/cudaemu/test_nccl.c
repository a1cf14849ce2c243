/* The emulated NCCL: collectives between ranks, and what the documentation of NCCL does not allow is refused, in words. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/cudaemu.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, N = 1000, ROOM = 2 * N };

/* Both ranks in one thread, by groups. */
static struct {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS], second; /* the second of device 0 */
    float *a[RANKS], *b[RANKS];         /* of ROOM numbers each */
    float ordinary[N];
} f;

static void on(int device)
{
    assert_int_equal(cudaSetDevice(device), cudaSuccess);
}

static void communicators(ncclComm_t *comm)
{
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < RANKS; r++) {
        on(r);
        assert_int_equal(ncclCommInitRank(&comm[r], RANKS, id, r), ncclSuccess);
    }
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    on(0);
}

static int setup(void **state)
{
    (void)state;
    setenv("CUDAEMU_DEVICES", "2", 1);
    setenv("CUDAEMU_NCCL_TIMEOUT_S", "20", 1);
    for (int r = 0; r < RANKS; r++) {
        if (cudaSetDevice(r) || cudaStreamCreateWithFlags(&f.stream[r], cudaStreamNonBlocking)) return -1;
        if (cudaMalloc((void **)&f.a[r], ROOM * sizeof(float)) || cudaMalloc((void **)&f.b[r], ROOM * sizeof(float))) return -1;
    }
    if (cudaSetDevice(0) || cudaStreamCreateWithFlags(&f.second, cudaStreamNonBlocking)) return -1;
    communicators(f.comm);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        ncclCommDestroy(f.comm[r]);
        cudaFree(f.a[r]);
        cudaFree(f.b[r]);
        cudaStreamDestroy(f.stream[r]);
    }
    return cudaStreamDestroy(f.second) != cudaSuccess;
}

#define REFUSED(call, text) \
    do { \
        cudaemu_forget_refusal(); \
        ncclResult_t got_ = (call); \
        if (!strstr(cudaemu_refusal(), text)) fail_msg("'%s' does not say '%s'", cudaemu_refusal(), text); \
        assert_true(got_ == ncclInvalidArgument || got_ == ncclInvalidUsage); \
    } while (0)

static void put(float *device, float first, int n)
{
    float x[ROOM];
    for (int i = 0; i < n; i++) x[i] = first + (float)(i % 10);
    assert_int_equal(cudaMemcpy(device, x, (size_t)n * sizeof *x, cudaMemcpyDefault), cudaSuccess);
}
static void holds(const float *device, float first, float each, int n)
{
    float x[ROOM];
    assert_int_equal(cudaMemcpy(x, device, (size_t)n * sizeof *x, cudaMemcpyDefault), cudaSuccess);
    for (int i = 0; i < n; i++) assert_true(x[i] == first + each * (float)(i % 10));
}
static void wait_for_both(void)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(cudaStreamSynchronize(f.stream[r]), cudaSuccess);
}
/* In both ranks, as one group. */
#define BOTH(call) \
    do { \
        assert_int_equal(ncclGroupStart(), ncclSuccess); \
        for (int r = 0; r < RANKS; r++) assert_int_equal(call, ncclSuccess); \
        assert_int_equal(ncclGroupEnd(), ncclSuccess); \
        wait_for_both(); \
    } while (0)

static void collectives_do_what_they_say(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++) put(f.a[r], (float)r, ROOM);
    BOTH(ncclAllReduce(f.a[r], f.b[r], N, ncclFloat, ncclSum, f.comm[r], f.stream[r]));
    for (int r = 0; r < RANKS; r++) holds(f.b[r], 1, 2, N);
    BOTH(ncclAllReduce(f.b[r], f.b[r], N, ncclFloat, ncclAvg, f.comm[r], f.stream[r])); /* in place */
    for (int r = 0; r < RANKS; r++) holds(f.b[r], 1, 2, N);
    BOTH(ncclReduceScatter(f.a[r], f.a[r] + r * N, N, ncclFloat, ncclSum, f.comm[r], f.stream[r]));
    for (int r = 0; r < RANKS; r++) holds(f.a[r] + r * N, 1, 2, N);
    BOTH(ncclAllGather(f.a[r] + r * N, f.a[r], N, ncclFloat, f.comm[r], f.stream[r]));
    for (int r = 0; r < RANKS; r++) holds(f.a[r], 1, 2, ROOM);
    put(f.a[1], 7, N);
    BOTH(ncclBroadcast(r == 1 ? f.a[r] : NULL, f.b[r], N, ncclFloat, 1, f.comm[r], f.stream[r]));
    for (int r = 0; r < RANKS; r++) holds(f.b[r], 7, 1, N);
    BOTH(ncclReduce(f.b[r], r == 0 ? f.a[r] : NULL, N, ncclFloat, ncclMax, 0, f.comm[r], f.stream[r]));
    holds(f.a[0], 7, 1, N);
    BOTH(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, f.comm[r], f.stream[r])); /* nothing to do */
}

static void collectives_with_a_wrong_argument_are_refused(void **state)
{
    ncclComm_t c = f.comm[0];
    cudaStream_t s = f.stream[0];
    float *a = f.a[0], *b = f.b[0];
    (void)state;
    REFUSED(ncclAllReduce(a, b, N, ncclFloat, ncclSum, NULL, s), "comm is NULL");
    REFUSED(ncclAllReduce(a, b, N, (ncclDataType_t)77, ncclSum, c, s), "datatype is 77");
    REFUSED(ncclAllReduce(a, b, N, ncclFloat, (ncclRedOp_t)9, c, s), "op is 9");
    REFUSED(ncclBroadcast(a, b, N, ncclFloat, 2, c, s), "root is 2");
    REFUSED(ncclReduce(a, b, N, ncclFloat, ncclSum, -1, c, s), "root is -1");
    REFUSED(ncclAllReduce(NULL, b, N, ncclFloat, ncclSum, c, s), "sendbuff is NULL");
    REFUSED(ncclAllReduce(a, NULL, N, ncclFloat, ncclSum, c, s), "recvbuff is NULL");
    REFUSED(ncclAllReduce(f.ordinary, b, N, ncclFloat, ncclSum, c, s), "sendbuff is ordinary host memory");
    REFUSED(ncclAllReduce((char *)a + 2, b, N, ncclFloat, ncclSum, c, s), "sendbuff is 0x");
    REFUSED(ncclAllReduce(f.a[1], b, N, ncclFloat, ncclSum, c, s), "sendbuff is memory of device 1");
    REFUSED(ncclAllReduce(a, b, ROOM + 1, ncclFloat, ncclSum, c, s), "sendbuff is 8004 bytes at byte 0 of an allocation of 8000");
    REFUSED(ncclAllGather(a, b, N + 1, ncclFloat, c, s), "recvbuff is 8008 bytes");
    REFUSED(ncclReduceScatter(a, b, N + 1, ncclFloat, ncclSum, c, s), "sendbuff is 8008 bytes");
    REFUSED(ncclAllReduce(a, b, N, ncclFloat, ncclSum, c, f.stream[1]), "the stream is of device 1");
    REFUSED(ncclAllReduce(a, a + 1, N, ncclFloat, ncclSum, c, s), "recvbuff is 4 bytes from sendbuff; in place it is 0");
    REFUSED(ncclAllGather(f.a[1], f.a[1], N, ncclFloat, f.comm[1], f.stream[1]), "in place it is -4000 in this rank");
    REFUSED(ncclReduceScatter(f.a[1], f.a[1], N, ncclFloat, ncclSum, f.comm[1], f.stream[1]), "in place it is 4000 in this rank");
    REFUSED(ncclGroupEnd(), "the group is none");
    wait_for_both();
}

static void ranks_that_disagree_all_hear_of_it(void **state)
{
    ncclComm_t comm[RANKS];
    ncclResult_t e;
    (void)state;
    for (int which = 0; which < 3; which++) {
        communicators(comm);
        ncclGroupStart();
        ncclAllReduce(f.a[0], f.b[0], N, ncclFloat, ncclSum, comm[0], f.stream[0]);
        if (which == 0) ncclAllReduce(f.a[1], f.b[1], N - 1, ncclFloat, ncclSum, comm[1], f.stream[1]);
        if (which == 1) ncclAllReduce(f.a[1], f.b[1], N, ncclFloat, ncclMax, comm[1], f.stream[1]);
        if (which == 2) ncclBroadcast(f.a[1], f.b[1], N, ncclFloat, 0, comm[1], f.stream[1]);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        wait_for_both();
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ncclCommGetAsyncError(comm[r], &e), ncclSuccess);
            assert_int_not_equal(e, ncclSuccess);
            assert_int_not_equal(ncclAllReduce(f.a[r], f.b[r], N, ncclFloat, ncclSum, comm[r], f.stream[r]), ncclSuccess);
            assert_int_equal(ncclCommDestroy(comm[r]), ncclSuccess);
        }
    }
}

/* The other rank never comes. */
static void an_abort_ends_what_waits(void **state)
{
    ncclComm_t comm[RANKS];
    (void)state;
    communicators(comm);
    assert_int_equal(ncclAllReduce(f.a[0], f.b[0], N, ncclFloat, ncclSum, comm[0], f.stream[0]), ncclSuccess);
    assert_int_equal(ncclCommAbort(comm[0]), ncclSuccess);
    wait_for_both();
    REFUSED(ncclAllReduce(f.a[0], f.b[0], N, ncclFloat, ncclSum, comm[0], f.stream[0]), "comm is not one of these");
    REFUSED(ncclCommDestroy(comm[0]), "comm is not one of these");
    assert_int_equal(ncclCommFinalize(comm[1]), ncclSuccess);
    REFUSED(ncclAllReduce(f.a[1], f.b[1], N, ncclFloat, ncclSum, comm[1], f.stream[1]),
            "comm is 1; the documentation asks: one that is not fin");
    assert_int_equal(ncclCommDestroy(comm[1]), ncclSuccess);
    REFUSED(ncclCommAbort(comm[1]), "comm is not one of these");
}

static void a_communicator_is_made_once_by_ranks_that_agree(void **state)
{
    ncclComm_t c, both[RANKS];
    ncclUniqueId id, made_up = {{0}};
    (void)state;
    ncclGetUniqueId(&id);
    REFUSED(ncclCommInitRank(&c, 0, id, 0), "nranks is 0");
    REFUSED(ncclCommInitRank(&c, 2, id, 2), "rank is 2 of 2");
    REFUSED(ncclCommInitRank(&c, 2, id, -1), "rank is -1 of 2");
    REFUSED(ncclCommInitRank(&c, 1, made_up, 0), "commId is something else");
    REFUSED(ncclCommInitAll(both, 3, NULL), "ndev is 3 of 2");
    assert_int_equal(ncclCommInitRank(&c, 1, id, 0), ncclSuccess);
    REFUSED(ncclCommInitRank(&both[0], 1, id, 0), "commId is one that rank 0 has used before");
    assert_int_equal(ncclCommDestroy(c), ncclSuccess);
    assert_int_equal(ncclCommInitAll(both, RANKS, NULL), ncclSuccess);
    for (int r = 0; r < RANKS; r++) {
        int n, rank;
        assert_int_equal(ncclCommCount(both[r], &n), ncclSuccess);
        assert_int_equal(ncclCommUserRank(both[r], &rank), ncclSuccess);
        assert_true(n == RANKS && rank == r);
        assert_int_equal(ncclCommDestroy(both[r]), ncclSuccess);
    }
    for (int which = 0; which < 2; which++) {
        ncclGetUniqueId(&id);
        cudaemu_forget_refusal();
        ncclGroupStart();
        ncclCommInitRank(&both[0], 2, id, 0);
        if (which) on(1);
        ncclCommInitRank(&both[1], which ? 3 : 2, id, 1); /* the same device; another number of ranks */
        on(0);
        assert_int_not_equal(ncclGroupEnd(), ncclSuccess);
        assert_non_null(strstr(cudaemu_refusal(), which ? "nranks is" : "the current device is 0, which rank"));
    }
}

/* Collectives of a communicator follow one another: in one stream, by an event, or because the host has waited. */
static void two_streams_need_an_order(void **state)
{
    ncclUniqueId id;
    ncclComm_t c;
    cudaEvent_t v, w;
    (void)state;
    ncclGetUniqueId(&id);
    assert_int_equal(cudaEventCreateWithFlags(&v, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&w, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(ncclCommInitRank(&c, 1, id, 0), ncclSuccess);
#define SUM(stream) ncclAllReduce(f.a[0], f.b[0], N, ncclFloat, ncclSum, c, stream)
    assert_int_equal(cudaEventRecord(v, f.stream[0]), cudaSuccess);
    assert_int_equal(SUM(f.stream[0]), ncclSuccess);
    REFUSED(SUM(f.second), "not ordered after the communicator's last collective");
    assert_int_equal(cudaStreamWaitEvent(f.second, v, 0), cudaSuccess); /* an event from before it */
    REFUSED(SUM(f.second), "not ordered after");
    assert_int_equal(cudaEventRecord(v, f.stream[0]), cudaSuccess);
    REFUSED(SUM(f.second), "not ordered after");
    assert_int_equal(cudaStreamWaitEvent(f.second, v, 0), cudaSuccess);
    assert_int_equal(SUM(f.second), ncclSuccess);
    REFUSED(SUM(f.stream[0]), "not ordered after");
    assert_int_equal(cudaStreamSynchronize(f.second), cudaSuccess);
    assert_int_equal(SUM(f.stream[0]), ncclSuccess);
    assert_int_equal(cudaEventRecord(w, f.stream[0]), cudaSuccess);
    assert_int_equal(cudaEventSynchronize(w), cudaSuccess);
    assert_int_equal(SUM(f.second), ncclSuccess);
#undef SUM
    assert_int_equal(cudaStreamSynchronize(f.second), cudaSuccess);
    wait_for_both();
    assert_int_equal(ncclCommDestroy(c), ncclSuccess);
    cudaEventDestroy(v);
    cudaEventDestroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_do_what_they_say),
        cmocka_unit_test(collectives_with_a_wrong_argument_are_refused),
        cmocka_unit_test(ranks_that_disagree_all_hear_of_it),
        cmocka_unit_test(an_abort_ends_what_waits),
        cmocka_unit_test(a_communicator_is_made_once_by_ranks_that_agree),
        cmocka_unit_test(two_streams_need_an_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
