/* Rows of a table by index, and the gradient of that. */
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

static void add_row(elem *to, const elem *from, size_t cols)
{
    size_t c = 0;
    for (; c + VW <= cols; c += VW) estore(to + c, vadd(eload(to + c), eload(from + c)));
    if (c < cols) estore_n(to + c, vadd(eload_n(to + c, cols - c), eload_n(from + c, cols - c)), cols - c);
}

static size_t embed_tasks(const void *args)
{
    const struct zf_embed_args *a = args;
    return zf_host_tasks(a->rows, zf_host_rows_per_task(a->cols));
}

static void embed_run(const void *args, size_t task)
{
    const struct zf_embed_args *a = args;
    size_t each = zf_host_rows_per_task(a->cols), end = zf_host_end(a->rows, each, task);
    for (size_t r = task * each; r < end; r++) {
        const elem *from = (const elem *)a->table + (size_t)((int64_t)a->index[r] + a->offset) * a->cols;
        elem *to = (elem *)a->y + r * a->cols;
        if (a->accumulate)
            add_row(to, from, a->cols);
        else
            memcpy(to, from, a->cols * sizeof *to);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_embed) = {embed_tasks, embed_run};

/* Two rows may go to one place: a task has columns, and takes all rows in their order. */
static size_t columns_of(const struct zf_embed_backward_args *a)
{
    return a->rows * a->cols < 4 * (size_t)ZF_HOST_TASK ? a->cols : 64;
}

static size_t embed_backward_tasks(const void *args)
{
    const struct zf_embed_backward_args *a = args;
    return zf_host_tasks(a->cols, columns_of(a));
}

static void add_gradient(float *to, const elem *from, size_t cols)
{
    size_t c = 0;
    for (; c + VW <= cols; c += VW) vstore(to + c, vadd(vload(to + c), eload(from + c)));
    if (c < cols) vstore_n(to + c, vadd(vload_n(to + c, cols - c), eload_n(from + c, cols - c)), cols - c);
}

static void embed_backward_run(const void *args, size_t task)
{
    const struct zf_embed_backward_args *a = args;
    size_t each = columns_of(a), begin = task * each, cols = zf_host_end(a->cols, each, task) - begin;
    for (size_t r = 0; r < a->rows; r++) {
        if (a->index[r] == a->skip) continue;
        float *to = a->dtable + (size_t)((int64_t)a->index[r] + a->offset) * a->cols + begin;
        add_gradient(to, (const elem *)a->dy + r * a->cols + begin, cols);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_embed_backward) = {embed_backward_tasks, embed_backward_run};
