/* An instruction-set path: all kernels but matmul, compiled once for scalar, AVX2+FMA and AVX-512 each (meson.build), chosen at run time;
 * and those whose arguments have a type once more for bf16 (ZF_ELEM_BF16). All give the same bits. The exception is attention in bf16 by AMX's
 * tiles (attention_amx.h), which takes the place of AVX-512's where there are any: the path is called avx512+amx then.
 *
 * A kernel is cut into tasks by its arguments alone, never by the number of threads; a task writes what no other task of the kernel writes.
 * Each file of kernels here defines `const struct zf_host_kernel ZF_PATH(zf_host_NAME)` for the rows of ops.def it implements, and uses
 * vec.h. Arguments are checked before (issue.c). */
#ifndef ZF_HOST_PATH_H
#define ZF_HOST_PATH_H

#include "kernels/ops.h"

struct zf_host_kernel {
    size_t (*tasks)(const void *args); /* how many; 0: nothing to do */
    void (*run)(const void *args, size_t task);
};

/* Rows of `cols` elements: as many a task as make work worth handing out; how many tasks that makes of `rows`. */
enum { ZF_HOST_TASK = 16384 };
static inline size_t zf_host_rows_per_task(size_t cols)
{
    return cols >= ZF_HOST_TASK ? 1 : ZF_HOST_TASK / (cols ? cols : 1);
}
static inline size_t zf_host_tasks(size_t n, size_t each)
{
    return n ? (n - 1) / each + 1 : 0;
}
static inline size_t zf_host_end(size_t n, size_t each, size_t task) /* of a task that begins at task * each */
{
    return n - task * each < each ? n : (task + 1) * each;
}

/* A product with few rows, cut up (matmul.c; the kernels: matmul_few.c). */
struct zf_host_few {
    const struct zf_matmul_args *a;
    const float *x;       /* [m][k]: a, not transposed */
    float *sums;          /* [slices][m][n] */
    size_t panel, panels; /* columns of c of a task */
    size_t slice, slices; /* K of a task: all of it where b is transposed */
};

/* One pointer a row of ops.def whose arguments have a type, and the two parts of a product with few rows: all others are oneDNN's. */
struct zf_host_typed {
    const struct zf_host_kernel *few, *few_end;
#define ZF_OP(op) const struct zf_host_kernel *op;
#define ZF_OP_UNTYPED(op)
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
};

struct zf_host_path {
    const char *name;
    struct zf_host_typed typed[ZF_BF16 + 1]; /* ZF_F32, ZF_BF16 */
#define ZF_OP(op)
#define ZF_OP_UNTYPED(op) const struct zf_host_kernel *op;
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
};

extern const struct zf_host_path zf_host_path_scalar, zf_host_path_avx2, zf_host_path_avx512;

#define ZF_CAT2_(a, b) a##_##b
#define ZF_CAT_(a, b) ZF_CAT2_(a, b)
#define ZF_PATH_F32(name) ZF_CAT_(name, ZF_PATH_NAME)
#define ZF_PATH_BF16(name) ZF_CAT_(ZF_PATH_F32(name), bf16)
#ifdef ZF_ELEM_BF16
#define ZF_PATH(name) ZF_PATH_BF16(name)
#else
#define ZF_PATH(name) ZF_PATH_F32(name)
#endif

#ifdef ZF_PATH_NAME
#define ZF_OP(op) extern const struct zf_host_kernel ZF_PATH_F32(zf_host_##op), ZF_PATH_BF16(zf_host_##op);
#define ZF_OP_UNTYPED(op) extern const struct zf_host_kernel ZF_PATH_F32(zf_host_##op);
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
extern const struct zf_host_kernel ZF_PATH_F32(zf_host_few), ZF_PATH_BF16(zf_host_few);
extern const struct zf_host_kernel ZF_PATH_F32(zf_host_few_end), ZF_PATH_BF16(zf_host_few_end);
#endif

#endif
