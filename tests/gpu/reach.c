/* Makes all of a test program's memory reachable for a GPU, before main: the tests of kernels give them ordinary memory, which the emulated
 * device takes. Heap, stack and the program's own data are registered with the driver (page-locked and mapped), so that a host pointer is a
 * device pointer. Not needed where the GPU reaches pageable memory by itself. */
#include <cuda_runtime_api.h>

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAP = 512 << 20, STACK = 4 << 20 };

static void fail(const char *what, cudaError_t code)
{
    fprintf(stderr, "the GPU cannot reach the test's memory: %s: %s (%s)\n", what, cudaGetErrorString(code), cudaGetErrorName(code));
    exit(77);
}

/* The heap grows to its full size now, and does not move. */
static void settle_heap(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_TOP_PAD, HEAP);
    free(malloc(1));
}

static __attribute__((noinline)) void touch_stack(void)
{
    volatile char room[STACK];
    for (size_t i = 0; i < STACK; i += 4096) room[i] = 1;
    (void)room[0];
}

static void enter(uintptr_t from, uintptr_t to, const char *mode, const char *what)
{
    cudaError_t code = cudaHostRegister((void *)from, to - from, mode[1] == 'w' ? cudaHostRegisterDefault : cudaHostRegisterReadOnly);
    if (code == cudaSuccess) return;
    cudaGetLastError();
    if (mode[1] == 'w') fail(what, code);
    fprintf(stderr, "constants of the program are not reachable for the GPU: %s\n", cudaGetErrorName(code));
}

static __attribute__((constructor)) void make_reachable(void)
{
    int reaches = 0, devices = 0;
    cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess) fail("a device", code);
    cudaDeviceGetAttribute(&reaches, cudaDevAttrPageableMemoryAccess, 0);
    if (reaches) return;
    settle_heap();
    touch_stack();
    char self[512] = "", line[1024];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) return;
    struct {
        uintptr_t from, to;
        char mode[8];
    } wanted[64];
    size_t count = 0;
    while (count < 64 && fgets(line, sizeof line, maps)) {
        char path[512] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %511[^\n]", &wanted[count].from, &wanted[count].to, wanted[count].mode, path) < 3) continue;
        count += wanted[count].mode[0] == 'r' && wanted[count].mode[2] == '-' &&
                 (!strcmp(path, self) || !strcmp(path, "[heap]") || !strcmp(path, "[stack]"));
    }
    fclose(maps);
    for (size_t i = 0; i < count; i++) enter(wanted[i].from, wanted[i].to, wanted[i].mode, "its heap, stack or data");
}
