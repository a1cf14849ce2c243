/* Products with few rows of a, those of generation: memory is what limits them, so every byte of b is read once, in the order in which it
 * stands there. Sums are fp32, in one order: of the rows of b and of their parts where b is not transposed, of 16 lanes where it is; the
 * cut into tasks is of the shape alone (matmul.c). So bits depend neither on the number of threads nor on the path; they are not those of
 * the library, which multiplies more rows. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

static size_t few_tasks(const void *args)
{
    const struct zf_host_few *f = args;
    return f->panels * f->slices;
}

/* Rows of b at a time, and outputs where it is transposed: sums that do not wait for each other, one load of x or of sums for all. Rows are
 * too short for the processor's own prefetching: 9 GB/s; with ours, of what comes next in memory, 13 of the 14 that reading alone does. */
enum { ROWS = 8, DOTS = 4, LINE = 64 / sizeof(elem) };

/* sum[n] += x[0] w[0][n], then x[1] w[1][n] ... x[rows - 1]; the first rows of a part make sums of nothing. */
static inline __attribute__((always_inline)) void add_rows(float *sum, const float *x, const elem *w, size_t ld, size_t n, size_t rows,
                                                           bool first)
{
    vf factor[ROWS];
    size_t j = 0;
    for (size_t r = 0; r < rows; r++) factor[r] = vset(x[r]);
    for (; j + VW <= n; j += VW) {
        vf s = first ? vzero() : vload(sum + j);
        for (size_t r = 0; r < rows; r++) s = vfma(factor[r], eload(w + r * ld + j), s);
        if (j % LINE == 0)
            for (size_t r = 0; r < rows; r++) __builtin_prefetch(w + (r + rows) * ld + j);
        vstore(sum + j, s);
    }
    if (j == n) return;
    vf s = first ? vzero() : vload_n(sum + j, n - j);
    for (size_t r = 0; r < rows; r++) s = vfma(factor[r], eload_n(w + r * ld + j, n - j), s);
    vstore_n(sum + j, s, n - j);
}

static void few_rows_of_b(const struct zf_host_few *f, size_t panel, size_t slice)
{
    const struct zf_matmul_args *a = f->a;
    size_t j = panel * f->panel, n = zf_host_end(a->n, f->panel, panel) - j;
    size_t begin = slice * f->slice, end = zf_host_end(a->k, f->slice, slice);
    const elem *w = (const elem *)a->b + j;
    for (size_t k = begin; k < end;) {
        size_t rows = end - k >= ROWS ? ROWS : 1;
        for (size_t i = 0; i < a->m; i++) {
            float *sum = f->sums + (slice * a->m + i) * a->n + j;
            const float *x = f->x + i * a->k + k;
            if (rows == ROWS)
                add_rows(sum, x, w + k * a->ldb, a->ldb, n, ROWS, k == begin);
            else
                add_rows(sum, x, w + k * a->ldb, a->ldb, n, 1, k == begin);
        }
        k += rows;
    }
}

/* sum[d] = x . w[d] */
static inline __attribute__((always_inline)) void dots(float *sum, const float *x, const elem *w, size_t ld, size_t k, size_t count)
{
    vf s[DOTS];
    size_t i = 0;
    for (size_t d = 0; d < count; d++) s[d] = vzero();
    for (; i + VW <= k; i += VW) {
        vf v = vload(x + i);
        for (size_t d = 0; d < count; d++) s[d] = vfma(v, eload(w + d * ld + i), s[d]);
        if (i % LINE == 0)
            for (size_t d = 0; d < count; d++) __builtin_prefetch(w + (d + count) * ld + i);
    }
    if (i < k) {
        vf v = vload_n(x + i, k - i);
        for (size_t d = 0; d < count; d++) s[d] = vfma(v, eload_n(w + d * ld + i, k - i), s[d]);
    }
    for (size_t d = 0; d < count; d++) sum[d] = vsum(s[d]);
}

static void few_columns_of_b(const struct zf_host_few *f, size_t panel)
{
    const struct zf_matmul_args *a = f->a;
    size_t end = zf_host_end(a->n, f->panel, panel);
    for (size_t j = panel * f->panel; j < end;) {
        size_t count = end - j >= DOTS ? DOTS : 1;
        const elem *w = (const elem *)a->b + j * a->ldb;
        for (size_t i = 0; i < a->m; i++) {
            const float *x = f->x + i * a->k;
            if (count == DOTS)
                dots(f->sums + i * a->n + j, x, w, a->ldb, a->k, DOTS);
            else
                dots(f->sums + i * a->n + j, x, w, a->ldb, a->k, 1);
        }
        j += count;
    }
}

static void few_run(const void *args, size_t task)
{
    const struct zf_host_few *f = args;
    if (f->a->trans_b)
        few_columns_of_b(f, task);
    else
        few_rows_of_b(f, task / f->slices, task % f->slices);
}

const struct zf_host_kernel ZF_PATH(zf_host_few) = {few_tasks, few_run};

/* The parts' sums and the bias, into c. */
static size_t few_end_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_host_few *)args)->a->n, ZF_HOST_TASK);
}

static inline __attribute__((always_inline)) void end_columns(const struct zf_host_few *f, size_t i, size_t j, size_t n)
{
    const struct zf_matmul_args *a = f->a;
    const float *sums = f->sums + i * a->n + j;
    char *c = (char *)a->c + (i * a->ldc + j) * zf_dtype_size(a->type_c);
    float *wide = (float *)(void *)c;
    vf s = n == VW ? vload(sums) : vload_n(sums, n);
    for (size_t p = 1; p < f->slices; p++) {
        const float *part = sums + p * a->m * a->n;
        s = vadd(s, n == VW ? vload(part) : vload_n(part, n));
    }
    if (a->bias) {
        const elem *bias = (const elem *)a->bias + j;
        s = vadd(s, n == VW ? eload(bias) : eload_n(bias, n));
    }
    if (a->accumulate) s = vadd(n == VW ? vload(wide) : vload_n(wide, n), s);
    if (a->type_c == ZF_F32) {
        if (n == VW)
            vstore(wide, s);
        else
            vstore_n(wide, s, n);
    } else if (n == VW)
        estore((elem *)(void *)c, s);
    else
        estore_n((elem *)(void *)c, s, n);
}

static void few_end_run(const void *args, size_t task)
{
    const struct zf_host_few *f = args;
    const struct zf_matmul_args *a = f->a;
    size_t begin = task * ZF_HOST_TASK, end = zf_host_end(a->n, ZF_HOST_TASK, task);
    for (size_t i = 0; i < a->m; i++) {
        size_t j = begin;
        for (; j + VW <= end; j += VW) end_columns(f, i, j, VW);
        if (j < end) end_columns(f, i, j, end - j);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_few_end) = {few_end_tasks, few_end_run};
