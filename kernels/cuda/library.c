#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* The version that the headers are of. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define CUBLAS_NAME "libcublas.so." TEXT(CUBLAS_VER_MAJOR)
#define CUBLASLT_NAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The addresses of names[count], one behind the other. */
static enum zf_status find_all(const char *library, const char *const *names, size_t count, char *table, struct zf_err *e)
{
    bool here = dlsym(RTLD_DEFAULT, names[0]);
    void *handle = here ? RTLD_DEFAULT : dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *why = here || handle ? NULL : dlerror();
    if (why)
        return zf_fail(
            e, ZF_IO, library,
            "%s; products on the GPU need cuBLAS: install it with the package libcublas-%d-%d of NVIDIA's repository, or name its "
            "folder in LD_LIBRARY_PATH",
            why, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(handle, names[i]);
        if (!found)
            return zf_fail(e, ZF_IO, library, "it has no %s; this program needs version %d.%d or later", names[i], CUBLAS_VER_MAJOR,
                           CUBLAS_VER_MINOR);
        memcpy(table + i * sizeof found, &found, sizeof found);
    }
    return ZF_OK;
}

enum zf_status zf_cuda_cublas(const struct zf_cublas **out, struct zf_err *e)
{
    static struct zf_cublas table;
    static bool open;
#define X(name) #name,
    static const char *const names[] = {ZF_CUBLAS_MAP(X)}, *const lt_names[] = {ZF_CUBLASLT_MAP(X)};
#undef X
    enum { NAMES = sizeof names / sizeof *names, LT_NAMES = sizeof lt_names / sizeof *lt_names };
    enum zf_status s = ZF_OK;
    *out = &table;
    pthread_mutex_lock(&lock);
    if (!open) {
        s = find_all(CUBLAS_NAME, names, NAMES, (char *)&table, e);
        if (!s) s = find_all(CUBLASLT_NAME, lt_names, LT_NAMES, (char *)&table + NAMES * sizeof(void *), e);
        open = !s;
    }
    pthread_mutex_unlock(&lock);
    return s;
}
