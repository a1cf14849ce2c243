#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* The version that the headers are of. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

struct library {
    const char *file;
    const char *without; /* what does not work without it */
    const char *package; /* of NVIDIA's repository */
    const char *version; /* that this program needs, or later */
    const char *const *names;
    size_t count;
    bool open;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Its functions, in the order of the names, into the table. */
static enum zf_status load(struct library *l, void *table, struct zf_err *e)
{
    bool here = dlsym(RTLD_DEFAULT, l->names[0]);
    void *handle = here ? RTLD_DEFAULT : dlopen(l->file, RTLD_NOW | RTLD_LOCAL);
    const char *why = here || handle ? NULL : dlerror();
    if (why)
        return zf_fail(e, ZF_IO, l->file,
                       "%s; %s: install it with the package %s of NVIDIA's repository, or name its folder in LD_LIBRARY_PATH", why,
                       l->without, l->package);
    for (size_t i = 0; i < l->count; i++) {
        void *found = dlsym(handle, l->names[i]);
        if (!found) return zf_fail(e, ZF_IO, l->file, "it has no %s; this program needs version %s or later", l->names[i], l->version);
        memcpy((char *)table + i * sizeof found, &found, sizeof found);
    }
    l->open = true;
    return ZF_OK;
}

static enum zf_status open_once(struct library *l, void *table, struct zf_err *e)
{
    pthread_mutex_lock(&lock);
    enum zf_status s = l->open ? ZF_OK : load(l, table, e);
    pthread_mutex_unlock(&lock);
    return s;
}

#define X(name) #name,
static const char *const cublas_names[] = {ZF_CUBLAS_MAP(X)}, *const cublaslt_names[] = {ZF_CUBLASLT_MAP(X)};
#ifdef ZF_NCCL
static const char *const nccl_names[] = {ZF_NCCL_MAP(X)};
#endif
#undef X

enum { CUBLAS_NAMES = sizeof cublas_names / sizeof *cublas_names };
#define CUBLAS_LIBRARY(name, table) \
    { \
        .file = name ".so." TEXT(CUBLAS_VER_MAJOR), .without = "products on the GPU need cuBLAS", \
        .package = "libcublas-" TEXT(CUBLAS_VER_MAJOR) "-" TEXT(CUBLAS_VER_MINOR), \
        .version = TEXT(CUBLAS_VER_MAJOR) "." TEXT(CUBLAS_VER_MINOR), .names = table, .count = sizeof table / sizeof *table \
    }

enum zf_status zf_cuda_cublas(const struct zf_cublas **out, struct zf_err *e)
{
    static struct zf_cublas table;
    static struct library library = CUBLAS_LIBRARY("libcublas", cublas_names), lt = CUBLAS_LIBRARY("libcublasLt", cublaslt_names);
    *out = &table;
    ZF_TRY(open_once(&library, &table, e));
    return open_once(&lt, (void **)&table + CUBLAS_NAMES, e); /* its names come behind */
}

#ifdef ZF_NCCL
enum zf_status zf_cuda_nccl(const struct zf_nccl **out, struct zf_err *e)
{
    static struct zf_nccl table;
    static struct library library = {.file = "libnccl.so." TEXT(NCCL_MAJOR),
                                     .without = "ranks on GPUs exchange over NCCL",
                                     .package = "libnccl" TEXT(NCCL_MAJOR),
                                     .version = TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR),
                                     .names = nccl_names,
                                     .count = sizeof nccl_names / sizeof *nccl_names};
    *out = &table;
    return open_once(&library, &table, e);
}
#endif
