/* The gradient of a bias: the sum of rows. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

/* A task has 64 columns and all rows; sums of 64 rows are added to the total, so that rounding does not grow with the rows. */
enum { COLUMNS = 64, BLOCK = 64 };

static size_t bias_backward_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_bias_backward_args *)args)->n, COLUMNS);
}

static void bias_columns(const struct zf_bias_backward_args *a, size_t c, size_t n)
{
    vf total = vzero();
    for (size_t i = 0; i < a->rows; i += BLOCK) {
        size_t last = a->rows - i < BLOCK ? a->rows : i + BLOCK;
        const elem *dy = (const elem *)a->dy + i * a->ld + c;
        vf s = vzero();
        if (n == VW)
            for (size_t j = i; j < last; j++, dy += a->ld) s = vadd(s, eload(dy));
        else
            for (size_t j = i; j < last; j++, dy += a->ld) s = vadd(s, eload_n(dy, n));
        total = vadd(total, s);
    }
    if (n == VW)
        vstore(a->dbias + c, vadd(vload(a->dbias + c), total));
    else
        vstore_n(a->dbias + c, vadd(vload_n(a->dbias + c, n), total), n);
}

static void bias_backward_run(const void *args, size_t task)
{
    const struct zf_bias_backward_args *a = args;
    size_t end = zf_host_end(a->n, COLUMNS, task);
    for (size_t c = task * COLUMNS; c < end; c += VW) bias_columns(a, c, end - c < VW ? end - c : VW);
}

const struct zf_host_kernel ZF_PATH(zf_host_bias_backward) = {bias_backward_tasks, bias_backward_run};
