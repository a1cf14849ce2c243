/* Sums over rows and columns: what channels are chosen by, and the second moments as an optimistic device knows them. */
#include "kernels/host/rows.h"
#include "kernels/host/squares.h"
#include "kernels/host/vec.h"

#include <math.h>

enum { PIECE = 256 }; /* columns whose sum is one of floats */

static inline vf load_some(const float *p, size_t n)
{
    return n == VW ? vload(p) : vload_n(p, n);
}

/* ---- row_sums ---- */

/* With partial: a task has the numbers of one of them, and the rows that begin there: they come from the cache. */
static size_t row_sums_tasks(const void *args)
{
    const struct zf_row_sums_args *a = args;
    return a->partial ? zf_host_tasks(a->rows * a->cols, ZF_SQUARES_CHUNK) : group_tasks(a->rows, a->cols);
}

static void sum_row(const float *g, size_t cols, double *sums)
{
    double squares = 0, magnitudes = 0;
    for (size_t i = 0; i < cols;) {
        size_t end = cols - i < PIECE ? cols : i + PIECE;
        vf s = vzero(), m = vzero();
        for (; i < end; i += VW) {
            vf x = load_some(g + i, end - i < VW ? end - i : VW);
            s = vfma(x, x, s);
            m = vadd(m, vmax(x, vsub(vzero(), x)));
        }
        squares += (double)vsum(s);
        magnitudes += (double)vsum(m);
    }
    sums[0] = squares;
    sums[1] = magnitudes;
}

static void squares_and_rows(const struct zf_row_sums_args *a, size_t task)
{
    enum { SOME = 4096 }; /* that stay in the nearest cache */
    size_t i = task * ZF_SQUARES_CHUNK, end = zf_host_end(a->rows * a->cols, ZF_SQUARES_CHUNK, task), r = zf_host_tasks(i, a->cols);
    struct zf_squares sum = {0};
    while (i < end) {
        size_t n = end - i < SOME ? end - i : SOME;
        zf_squares_add(&sum, a->g + i, n);
        for (i += n; r * a->cols < i; r++) sum_row(a->g + r * a->cols, a->cols, a->sums + 2 * r);
    }
    a->partial[task] = zf_squares_sum(&sum);
}

static void row_sums_run(const void *args, size_t task)
{
    const struct zf_row_sums_args *a = args;
    size_t each = group_rows(a->cols), end = zf_host_end(a->rows, each, task);
    if (a->partial) {
        squares_and_rows(a, task);
    } else {
        for (size_t r = task * each; r < end; r++) sum_row(a->g + r * a->cols, a->cols, a->sums + 2 * r);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_row_sums) = {row_sums_tasks, row_sums_run};

/* ---- vhat_rows ---- */

/* A task is a part of the rows, and owns that part's column sums. */
static size_t vhat_rows_tasks(const void *args)
{
    (void)args;
    return ZF_COLUMN_PARTS;
}

static double total(const float *x, size_t cols)
{
    double sum = 0;
    for (size_t i = 0; i < cols;) {
        size_t end = cols - i < PIECE ? cols : i + PIECE;
        vf s = vzero();
        for (; i < end; i += VW) s = vadd(s, load_some(x + i, end - i < VW ? end - i : VW));
        sum += (double)vsum(s);
    }
    return sum;
}

static void add_scaled(double *restrict sums, const float *restrict v, double scale, size_t cols)
{
    for (size_t c = 0; c < cols; c++) sums[c] += scale * (double)v[c];
}

static void vhat_rows_run(const void *args, size_t task)
{
    const struct zf_vhat_rows_args *a = args;
    size_t each = (a->rows - 1) / ZF_COLUMN_PARTS + 1, begin = task * each, end = begin + each < a->rows ? begin + each : a->rows;
    double *column = a->column ? a->column + task * a->cols : NULL;
    uint32_t t = 0;
    double unbias = 0;
    if (column) memset(column, 0, a->cols * sizeof *column);
    for (size_t r = begin; r < end; r++) {
        size_t n = number(a->list, r);
        const float *v = a->v + n * a->cols;
        if (a->t[n] != t) {
            t = a->t[n];
            unbias = t ? 1 / (1 - pow(a->beta2, t)) : 0;
        }
        if (a->channel) a->channel[number(a->to_list, r)] = t ? (float)(unbias * total(v, a->cols) / (double)a->cols) : 0;
        if (column && t) add_scaled(column, v, unbias, a->cols);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_vhat_rows) = {vhat_rows_tasks, vhat_rows_run};

/* ---- column_shares ---- */

static size_t one_task(const void *args)
{
    (void)args;
    return 1;
}

static void column_shares_run(const void *args, size_t task)
{
    const struct zf_column_shares_args *a = args;
    double all = 0;
    (void)task;
    for (size_t c = 0; c < a->cols; c += PIECE) {
        double sum[PIECE] = {0};
        size_t n = a->cols - c < PIECE ? a->cols - c : PIECE;
        for (size_t p = 0; p < ZF_COLUMN_PARTS; p++)
            for (size_t i = 0; i < n; i++) sum[i] += a->column[p * a->cols + c + i];
        for (size_t i = 0; i < n; i++) {
            all += sum[i];
            a->share[c + i] = (float)(sum[i] / (double)a->rows);
        }
    }
    double mean = all / (double)a->rows / (double)a->cols;
    for (size_t c = 0; c < a->cols; c++) a->share[c] = mean > 0 ? (float)((double)a->share[c] / mean) : 1;
}

const struct zf_host_kernel ZF_PATH(zf_host_column_shares) = {one_task, column_shares_run};
