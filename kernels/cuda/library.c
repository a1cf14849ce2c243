#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* The version that the headers are of. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define CUBLAS_NAME "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum zf_status zf_cuda_cublas(const struct zf_cublas **out, struct zf_err *e)
{
    static struct zf_cublas table;
    static bool open;
    static const char *const names[] = {
#define X(name) #name,
        ZF_CUBLAS_MAP(X)
#undef X
    };
    enum zf_status s = ZF_OK;
    *out = &table;
    pthread_mutex_lock(&lock);
    if (!open) {
        bool here = dlsym(RTLD_DEFAULT, names[0]);
        void *handle = here ? RTLD_DEFAULT : dlopen(CUBLAS_NAME, RTLD_NOW | RTLD_LOCAL);
        const char *why = here || handle ? NULL : dlerror();
        if (why)
            s = zf_fail(
                e, ZF_IO, CUBLAS_NAME,
                "%s; products on the GPU need cuBLAS: install it with the package libcublas-%d-%d of NVIDIA's repository, or name its "
                "folder in LD_LIBRARY_PATH",
                why, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
        for (size_t i = 0; !s && i < sizeof names / sizeof *names; i++) {
            void *found = dlsym(handle, names[i]);
            if (!found)
                s = zf_fail(e, ZF_IO, CUBLAS_NAME, "it has no %s; this program needs version %d.%d or later", names[i], CUBLAS_VER_MAJOR,
                            CUBLAS_VER_MINOR);
            memcpy((char *)&table + i * sizeof found, &found, sizeof found);
        }
        open = !s;
    }
    pthread_mutex_unlock(&lock);
    return s;
}
