/* Host code that dereferences device memory dies with a report that says so; what the device does goes on. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cudaemu/child.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { N = 1000 };
static const char *const protect[] = {"CUDAEMU_PROTECT", "1", NULL};

#define CALL(x) \
    if ((x) != cudaSuccess) return 9

static int a_read(void *device)
{
    return ((volatile char *)device)[100] == 1;
}
static int a_write(void *device)
{
    ((volatile char *)device)[100] = 1;
    return 0;
}
static int behind_it(void *device)
{
    return ((volatile char *)device)[4 << 20] == 1;
}
static void ignore(int number)
{
    _exit(number);
}
/* Test frameworks catch the signal. */
static int a_read_that_is_caught(void *device)
{
    signal(SIGSEGV, ignore);
    CALL(cudaMemset(device, 0, N));
    CALL(cudaDeviceSynchronize());
    return a_read(device);
}

static int touches(void *body)
{
    int (*const *touch)(void *) = body;
    char *device;
    CALL(cudaMalloc((void **)&device, N));
    CALL(cudaMemset(device, 1, N));
    CALL(cudaDeviceSynchronize());
    return (*touch)(device);
}

static void host_code_that_touches_device_memory_dies(void **state)
{
    static int (*const ways[])(void *) = {a_read, a_write, a_read_that_is_caught};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct child c;
        int (*way)(void *) = ways[i];
        child_run(&c, protect, touches, (void *)&way);
        print_message("%s", c.text);
        assert_true(WIFSIGNALED(c.status));
        assert_int_equal(WTERMSIG(c.status), SIGSEGV);
        assert_non_null(strstr(c.text, "host code touched device memory at 0x"));
        assert_non_null(strstr(c.text, "byte 100 of an allocation of 1000 bytes"));
        assert_non_null(strstr(c.text, "test_cudaemu_protect")); /* the backtrace */
    }
    struct child c;
    int (*way)(void *) = behind_it;
    child_run(&c, protect, touches, (void *)&way);
    assert_true(WIFSIGNALED(c.status));
    assert_non_null(strstr(c.text, "which is not allocated"));
}

/* Another fault is nobody's but the program's. */
static int faults(void *arg)
{
    char *device;
    CALL(cudaMalloc((void **)&device, N));
    signal(SIGSEGV, ignore);
    CALL(cudaMemset(device, 0, N));
    CALL(cudaDeviceSynchronize());
    raise(SIGSEGV);
    (void)arg;
    return 0;
}

static void other_faults_are_left_alone(void **state)
{
    struct child c;
    (void)state;
    child_run(&c, protect, faults, NULL);
    assert_true(WIFEXITED(c.status));
    assert_int_equal(WEXITSTATUS(c.status), SIGSEGV);
    assert_null(strstr(c.text, "cudaemu"));
}

/* Streams at once, copies of all kinds, memory that comes, goes and comes again. */
static int works(void *arg)
{
    enum { STREAMS = 4, ROUNDS = 50, LARGE = 3 << 20 };
    cudaStream_t s[STREAMS];
    unsigned char *host, *device[STREAMS], *copy;
    (void)arg;
    CALL(cudaMallocHost((void **)&host, STREAMS * (size_t)LARGE));
    for (int i = 0; i < STREAMS; i++) CALL(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = round % 2 ? LARGE : 77;
        for (int i = 0; i < STREAMS; i++) {
            CALL(cudaMalloc((void **)&device[i], n));
            CALL(cudaMalloc((void **)&copy, n));
            CALL(cudaMemsetAsync(device[i], round + i, n, s[i]));
            CALL(cudaMemcpyAsync(copy, device[i], n, cudaMemcpyDeviceToDevice, s[i]));
            CALL(cudaMemcpyAsync(host + (size_t)i * LARGE, copy, n, cudaMemcpyDeviceToHost, s[i]));
            CALL(cudaFreeAsync(copy, s[i]));
        }
        for (int i = 0; i < STREAMS; i++) {
            CALL(cudaStreamSynchronize(s[i]));
            for (size_t j = 0; j < n; j += 76)
                if (host[(size_t)i * LARGE + j] != round + i) return 8;
            CALL(cudaFree(device[i]));
        }
    }
    return 0;
}

static void what_the_device_does_goes_on(void **state)
{
    struct child c;
    (void)state;
    child_run(&c, protect, works, NULL);
    assert_string_equal(c.text, "");
    assert_int_equal(c.status, 0);
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("sanitizers have their own allocator");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_code_that_touches_device_memory_dies),
        cmocka_unit_test(other_faults_are_left_alone),
        cmocka_unit_test(what_the_device_does_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
