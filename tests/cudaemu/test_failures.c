/* The emulated device fails where it is told to, as the vendor's does; and it counts what it is asked. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/child.h"
#include "tests/cudaemu/cudaemu.h"
#include "tests/cudaemu/test_kernels.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a child: what is not so is said, and ends it. */
#define SAYS(call, expected) \
    do { \
        long got_ = (long)(call); \
        if (got_ != (long)(expected)) { \
            printf("line %d: %s is %ld, expected %ld\n", __LINE__, #call, got_, (long)(expected)); \
            return 1; \
        } \
    } while (0)

static void passes(const char *const *environment, int (*body)(void *arg))
{
    struct child c;
    child_run(&c, environment, body, NULL);
    if (c.status) print_message("%s", c.text);
    assert_int_equal(c.status, 0);
}

/* ---- no driver, no device ---- */

static int without_driver(void *arg)
{
    int n = -7, v = -7;
    void *p;
    cudaStream_t s;
    cudaEvent_t e;
    cublasHandle_t h;
    ncclUniqueId id;
    ncclComm_t comm;
    (void)arg;
    SAYS(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    SAYS(n, -7);
    SAYS(cudaDriverGetVersion(&v), cudaSuccess);
    SAYS(v, 0);
    SAYS(cudaRuntimeGetVersion(&v), cudaSuccess);
    SAYS(v, CUDART_VERSION);
    SAYS(cudaSetDevice(0), cudaErrorInsufficientDriver);
    SAYS(cudaGetDevice(&n), cudaErrorInsufficientDriver);
    SAYS(cudaMalloc(&p, 16), cudaErrorInsufficientDriver);
    SAYS(cudaMallocHost(&p, 16), cudaErrorInsufficientDriver);
    SAYS(cudaHostAlloc(&p, 16, 0), cudaErrorInsufficientDriver);
    SAYS(cudaStreamCreate(&s), cudaErrorInsufficientDriver);
    SAYS(cudaEventCreate(&e), cudaErrorInsufficientDriver);
    SAYS(cudaDeviceSynchronize(), cudaErrorInsufficientDriver);
    SAYS(cudaGetLastError(), cudaErrorInsufficientDriver);
    SAYS(strcmp(cudaGetErrorName(cudaErrorInsufficientDriver), "cudaErrorInsufficientDriver"), 0);
    SAYS(cublasCreate(&h), CUBLAS_STATUS_NOT_INITIALIZED);
    SAYS(ncclGetVersion(&v), ncclSuccess);
    SAYS(ncclGetUniqueId(&id), ncclSuccess);
    SAYS(ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError);
    SAYS(ncclCommInitAll(&comm, 1, NULL), ncclUnhandledCudaError);
    return 0;
}

static void a_machine_without_a_driver(void **state)
{
    static const char *const environment[] = {"CUDAEMU_DEVICES", "0", NULL};
    (void)state;
    passes(environment, without_driver);
}

static int without_device(void *arg)
{
    int n = -7, v = -7;
    (void)arg;
    SAYS(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    SAYS(n, 0);
    SAYS(cudaDriverGetVersion(&v), cudaSuccess);
    SAYS(v, CUDART_VERSION);
    SAYS(cudaSetDevice(0), cudaErrorNoDevice);
    return 0;
}

static void a_driver_without_a_device(void **state)
{
    static const char *const environment[] = {"CUDAEMU_DEVICES", "-1", NULL};
    (void)state;
    passes(environment, without_device);
}

/* ---- memory that is refused ---- */

static int little_memory(void *arg)
{
    void *p, *q;
    size_t free_bytes, total;
    (void)arg;
    SAYS(cudaMalloc(&p, 3 << 20), cudaSuccess);
    SAYS(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    SAYS(total, 4 << 20);
    SAYS(free_bytes, 1 << 20);
    SAYS(cudaMalloc(&q, (1 << 20) + 1), cudaErrorMemoryAllocation);
    SAYS(cudaGetLastError(), cudaErrorMemoryAllocation);
    SAYS(cudaGetLastError(), cudaSuccess);
    SAYS(cudaMalloc(&q, (size_t)-1), cudaErrorMemoryAllocation);
    SAYS(cudaMalloc(&q, 1 << 20), cudaSuccess);
    SAYS(cudaFree(p), cudaSuccess);
    SAYS(cudaFree(q), cudaSuccess);
    SAYS(cudaMalloc(&q, 4 << 20), cudaSuccess);
    SAYS(cudaFree(q), cudaSuccess);
    SAYS(cudaFree(q), cudaErrorInvalidValue);
    return 0;
}

static int few_pins(void *arg)
{
    char *own = malloc(1 << 20);
    void *p, *q;
    (void)arg;
    SAYS(cudaHostAlloc(&p, 1 << 20, cudaHostAllocDefault), cudaSuccess);
    SAYS(cudaMallocHost(&q, (1 << 20) + 1), cudaErrorMemoryAllocation);
    SAYS(cudaHostRegister(own, 1 << 20, 0), cudaSuccess);
    SAYS(cudaMallocHost(&q, 1), cudaErrorMemoryAllocation);
    SAYS(cudaHostRegister(own + 100, 10, 0), cudaErrorMemoryAllocation);
    SAYS(cudaFreeHost(own), cudaErrorInvalidValue);
    SAYS(cudaHostUnregister(p), cudaErrorHostMemoryNotRegistered);
    SAYS(cudaFreeHost(p), cudaSuccess);
    SAYS(cudaHostRegister(own + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
    SAYS(cudaHostUnregister(own), cudaSuccess);
    free(own);
    SAYS(cudaMallocHost(&q, 2 << 20), cudaSuccess);
    SAYS(cudaMalloc(&p, 8 << 20), cudaSuccess); /* of the device there is enough */
    SAYS(cudaFree(p), cudaSuccess);
    SAYS(cudaFreeHost(q), cudaSuccess);
    return 0;
}

static void memory_beyond_the_limit_is_refused(void **state)
{
    static const char *const device[] = {"CUDAEMU_MEM_MB", "4", NULL};
    (void)state;
    passes(device, little_memory);
    static const char *const pins[] = {"CUDAEMU_PIN_MB", "2", NULL};
    passes(pins, few_pins);
}

/* ---- a device that is lost ---- */

static int loses(cudaError_t error)
{
    enum { N = 256 };
    cudaStream_t s, other;
    cudaEvent_t v;
    float *device, *host, *more;
    size_t free_bytes, total;
    SAYS(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    SAYS(cudaEventCreateWithFlags(&v, cudaEventDisableTiming), cudaSuccess);
    SAYS(cudaMalloc((void **)&device, N * sizeof(float)), cudaSuccess);
    SAYS(cudaMallocHost((void **)&host, N * sizeof(float)), cudaSuccess);
    for (int i = 0; i < 2; i++) {
        SAYS(test_count_up(device, N, s), cudaSuccess); /* the first one fills */
        SAYS(cudaStreamSynchronize(s), cudaSuccess);
    }
    SAYS(cudaMemcpyAsync(host, device, N * sizeof(float), cudaMemcpyDeviceToHost, s), cudaSuccess);
    SAYS(cudaStreamSynchronize(s), cudaSuccess);
    SAYS(host[7], 2);
    SAYS(test_count_up(device, N, s), cudaSuccess); /* the third one: accepted, and the end */
    SAYS(test_count_up(device, N, s), error);
    SAYS(cudaMemcpyAsync(host, device, N * sizeof(float), cudaMemcpyDeviceToHost, s), error);
    SAYS(cudaMemsetAsync(device, 0, N, s), error);
    SAYS(cudaEventRecord(v, s), error);
    SAYS(cudaEventSynchronize(v), error); /* it is not waited for */
    SAYS(cudaEventQuery(v), error);
    SAYS(cudaStreamWaitEvent(s, v, 0), error);
    SAYS(cudaStreamQuery(s), error);
    SAYS(cudaStreamSynchronize(s), error);
    SAYS(cudaDeviceSynchronize(), error);
    SAYS(cudaStreamCreate(&other), error);
    SAYS(cudaMalloc((void **)&more, N), error);
    SAYS(cudaMallocHost((void **)&more, N), error);
    SAYS(cudaMemGetInfo(&free_bytes, &total), error);
    SAYS(cudaGetLastError(), error);
    SAYS(cudaGetLastError(), error); /* it cannot be cleared */
    SAYS(cudaDeviceReset(), error);
    SAYS(cudaFree(device), error);
    SAYS(cudaFreeHost(host), error);
    SAYS(cudaEventDestroy(v), error);
    SAYS(cudaStreamDestroy(s), error);
    return 0;
}

static int loses_by_launch(void *arg)
{
    (void)arg;
    return loses(cudaErrorLaunchFailure);
}
static int loses_by_ecc(void *arg)
{
    (void)arg;
    return loses(cudaErrorECCUncorrectable);
}
static int loses_unavailable(void *arg)
{
    (void)arg;
    return loses(cudaErrorDevicesUnavailable);
}

static void a_lost_device_stays_lost(void **state)
{
    (void)state;
    static const char *const launch[] = {"CUDAEMU_LOSE_AT", "3", NULL};
    passes(launch, loses_by_launch);
    static const char *const ecc[] = {"CUDAEMU_LOSE_AT", "3", "CUDAEMU_LOSE_WITH", "ecc", NULL};
    passes(ecc, loses_by_ecc);
    static const char *const unavailable[] = {"CUDAEMU_LOSE_AT", "3", "CUDAEMU_LOSE_WITH", "unavailable", NULL};
    passes(unavailable, loses_unavailable);
}

/* ---- counts ---- */

static int counts(void *arg)
{
    char pageable[64] = {0}, *pinned, *device;
    cudaStream_t s;
    (void)arg;
    SAYS(cudaemu_calls("cudaNothing"), -1);
    SAYS(cudaMalloc((void **)&device, sizeof pageable), cudaSuccess);
    SAYS(cudaMallocHost((void **)&pinned, sizeof pageable), cudaSuccess);
    SAYS(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    long before = cudaemu_whole_device_calls();
    SAYS(cudaMemcpyAsync(device, pinned, sizeof pageable, cudaMemcpyHostToDevice, s), cudaSuccess);
    SAYS(test_count_up((float *)device, 16, s), cudaSuccess);
    SAYS(cudaStreamSynchronize(s), cudaSuccess);
    SAYS(cudaemu_whole_device_calls() - before, 0);
    SAYS(cudaemu_calls("launch"), 1);
    SAYS(cudaemu_calls("cudaMemcpyAsync"), 1);
    SAYS(cudaMemcpyAsync(pageable, device, sizeof pageable, cudaMemcpyDeviceToHost, s), cudaSuccess);
    SAYS(cudaemu_calls("cudaMemcpyAsync of pageable memory"), 1);
    SAYS(cudaDeviceSynchronize(), cudaSuccess);
    SAYS(cudaMemset(device, 0, 1), cudaSuccess);
    SAYS(cudaemu_whole_device_calls() - before, 3);
    SAYS(cudaFree(device), cudaSuccess);
    SAYS(cudaFreeHost(pinned), cudaSuccess);
    SAYS(cudaStreamDestroy(s), cudaSuccess);
    SAYS(cudaemu_calls("cudaFree"), 1);
    SAYS(cudaemu_calls("cudaMalloc"), 1);
    return 0;
}

static void calls_are_counted(void **state)
{
    char path[] = "/tmp/cudaemu-counts-XXXXXX", line[128];
    int fd = mkstemp(path), found = 0;
    const char *const environment[] = {"CUDAEMU_COUNTS", path, NULL};
    (void)state;
    assert_true(fd >= 0);
    passes(environment, counts);
    FILE *f = fdopen(fd, "r");
    while (fgets(line, sizeof line, f)) found += !strcmp(line, "cudaDeviceSynchronize 1\n") + !strcmp(line, "launch 1\n");
    fclose(f);
    remove(path);
    assert_int_equal(found, 2);
}

/* ---- streams and events of another device ---- */

static int two_devices(void *arg)
{
    cudaStream_t first, second;
    cudaEvent_t of_first, untimed;
    float *device, ms;
    (void)arg;
    SAYS(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
    SAYS(cudaEventCreate(&of_first), cudaSuccess);
    SAYS(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
    SAYS(cudaMalloc((void **)&device, 64), cudaSuccess);
    SAYS(cudaSetDevice(1), cudaSuccess);
    SAYS(cudaSetDevice(2), cudaErrorInvalidDevice);
    SAYS(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    SAYS(test_count_up(device, 16, first), cudaErrorInvalidResourceHandle);
    SAYS(cudaEventRecord(of_first, second), cudaErrorInvalidResourceHandle);
    SAYS(cudaEventRecord(of_first, first), cudaSuccess);
    SAYS(cudaStreamWaitEvent(second, of_first, 0), cudaSuccess); /* this is what events are for */
    SAYS(cudaStreamSynchronize(second), cudaSuccess);
    SAYS(cudaEventRecord(untimed, first), cudaSuccess);
    SAYS(cudaEventSynchronize(untimed), cudaSuccess);
    SAYS(cudaEventElapsedTime(&ms, of_first, untimed), cudaErrorInvalidResourceHandle);
    SAYS(cudaFree(device), cudaSuccess);
    SAYS(cudaEventDestroy(of_first), cudaSuccess);
    SAYS(cudaEventDestroy(untimed), cudaSuccess);
    SAYS(cudaStreamDestroy(first), cudaSuccess);
    SAYS(cudaStreamDestroy(second), cudaSuccess);
    return 0;
}

static void streams_and_events_belong_to_a_device(void **state)
{
    static const char *const environment[] = {"CUDAEMU_DEVICES", "2", NULL};
    (void)state;
    passes(environment, two_devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_a_driver),
        cmocka_unit_test(a_driver_without_a_device),
        cmocka_unit_test(memory_beyond_the_limit_is_refused),
        cmocka_unit_test(a_lost_device_stays_lost),
        cmocka_unit_test(calls_are_counted),
        cmocka_unit_test(streams_and_events_belong_to_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
