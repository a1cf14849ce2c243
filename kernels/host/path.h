/* An instruction-set path: all kernels but matmul, compiled once for scalar, AVX2+FMA and AVX-512 each (meson.build) and chosen at run time.
 *
 * A kernel is cut into tasks by its arguments alone, never by the number of threads; a task writes what no other task of the kernel writes. Each file
 * of kernels here defines `const struct zf_host_kernel ZF_PATH(zf_host_NAME)` for the rows of ops.def it implements, and uses vec.h. */
#ifndef ZF_HOST_PATH_H
#define ZF_HOST_PATH_H

#include "kernels/ops.h"

struct zf_host_kernel {
    size_t (*tasks)(const void *args); /* how many; 0: nothing to do */
    void (*run)(const void *args, size_t task);
};

/* One pointer a row of ops.def; NULL for matmul, which is oneDNN's. */
struct zf_host_path {
    const char *name;
#define ZF_OP(op) const struct zf_host_kernel *op;
#include "kernels/ops.def"
#undef ZF_OP
};

extern const struct zf_host_path zf_host_path_scalar, zf_host_path_avx2, zf_host_path_avx512;

#define ZF_CAT2_(a, b) a##_##b
#define ZF_CAT_(a, b) ZF_CAT2_(a, b)
#define ZF_PATH(name) ZF_CAT_(name, ZF_PATH_NAME)

#ifdef ZF_PATH_NAME
#define ZF_OP(op) extern const struct zf_host_kernel ZF_PATH(zf_host_##op);
#include "kernels/ops.def"
#undef ZF_OP
#endif

#endif
