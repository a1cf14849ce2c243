/* Sums over the whole model, of losses and of squares, in double and in one order; the clip factor. */
#include "kernels/host/path.h"
#include "kernels/host/squares.h"

#include <math.h>

static size_t one_task(const void *args)
{
    (void)args;
    return 1;
}

static void sum_losses_run(const void *args, size_t task)
{
    const struct zf_sum_losses_args *a = args;
    double total = *a->total;
    (void)task;
    for (size_t r = 0; r < a->rows; r++) total += (double)a->loss[r];
    *a->total = total;
}

const struct zf_host_kernel ZF_PATH(zf_host_sum_losses) = {one_task, sum_losses_run};

static size_t sum_squares_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_sum_squares_args *)args)->n, ZF_SQUARES_CHUNK);
}

static void sum_squares_run(const void *args, size_t task)
{
    const struct zf_sum_squares_args *a = args;
    size_t i = task * ZF_SQUARES_CHUNK, end = zf_host_end(a->n, ZF_SQUARES_CHUNK, task);
    struct zf_squares sum = {0};
    zf_squares_add(&sum, a->x + i, end - i);
    a->partial[task] = zf_squares_sum(&sum);
}

const struct zf_host_kernel ZF_PATH(zf_host_sum_squares) = {sum_squares_tasks, sum_squares_run};

static void clip_factor_run(const void *args, size_t task)
{
    const struct zf_clip_factor_args *a = args;
    double sum = 0;
    (void)task;
    for (size_t i = 0; i < a->count; i++) sum += a->partial[i];
    double norm = sqrt(sum);
    bool finite = isfinite(norm) && isfinite(*a->loss), clips = finite && a->clip_norm > 0 && norm > a->clip_norm;
    *a->out = (struct zf_step_norm){.norm = norm, .loss = *a->loss, .clip = clips ? (float)(a->clip_norm / norm) : 1, .apply = finite};
}

const struct zf_host_kernel ZF_PATH(zf_host_clip_factor) = {one_task, clip_factor_run};
