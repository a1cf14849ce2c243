/* What each op costs: arithmetic, and the memory it cannot do without (each operand read or written once, as if nothing were cached). With
 * the time the lane measures that makes GFLOP/s and GB/s. Pure functions of the arguments. */
#include "kernels/work.h"

/* Of one call. */
#define COST(op) static struct zf_cost cost_##op(const struct zf_##op##_args *a)
#define MAKES(flops, bytes) \
    return (struct zf_cost) \
    { \
        (double)(flops), (double)(bytes) \
    }

COST(matmul)
{
    double m = (double)a->m, n = (double)a->n, k = (double)a->k;
    MAKES(2 * m * n * k, (double)zf_dtype_size(a->type) * (m * k + k * n) + (double)zf_dtype_size(a->type_c) * m * n * (1 + a->accumulate));
}

COST(bias_backward)
{
    MAKES(a->rows * a->n, a->rows * a->n * zf_dtype_size(a->type));
}

COST(embed)
{
    MAKES(0, a->rows * a->cols * zf_dtype_size(a->type) * (2u + a->accumulate));
}

COST(embed_backward)
{
    MAKES(a->rows * a->cols, a->rows * a->cols * (zf_dtype_size(a->type) + 2 * sizeof(float)));
}

COST(norm)
{
    size_t n = a->rows * a->groups * a->cols;
    MAKES(4 * n, n * zf_dtype_size(a->type) * (a->residual ? 4 : 2));
}

COST(norm_backward)
{
    size_t n = a->rows * a->groups * a->cols;
    MAKES(8 * n, n * zf_dtype_size(a->type) * (3u + a->accumulate));
}

COST(norm_backward_weight)
{
    size_t n = a->rows * a->groups * a->cols;
    MAKES(3 * n, n * zf_dtype_size(a->type) * 2);
}

COST(rope)
{
    size_t n = a->rows * a->heads * a->head_dim;
    MAKES(3 * n, 2 * n * zf_dtype_size(a->type));
}

/* Elements of queries, and of keys or values. */
#define ATTENDS(a) ((double)(a)->q_rows * (double)((a)->heads * (a)->head_dim) + (a)->keys * (double)((a)->kv_heads * (a)->head_dim))

COST(attention)
{
    MAKES(4 * a->pairs * (double)(a->heads * a->head_dim), (double)zf_dtype_size(a->type) * 2 * ATTENDS(a));
}

COST(attention_backward)
{
    MAKES(10 * a->pairs * (double)(a->heads * a->head_dim), (double)zf_dtype_size(a->type) * 4 * ATTENDS(a));
}

COST(activation)
{
    size_t n = a->rows * a->n;
    MAKES(8 * n, n * zf_dtype_size(a->type) * (a->kind == ZF_SWIGLU ? 3 : 2));
}

COST(activation_backward)
{
    size_t n = a->rows * a->n;
    MAKES(12 * n, n * zf_dtype_size(a->type) * (a->kind == ZF_SWIGLU ? 5 : 3));
}

COST(add)
{
    MAKES(a->n, 3 * a->n * zf_dtype_size(a->type));
}

COST(copy_rows)
{
    MAKES(0, 2 * a->rows * a->cols * zf_dtype_size(a->type));
}

COST(cross_entropy)
{
    size_t n = a->rows * a->n;
    MAKES(8 * n, n * (sizeof(float) + (a->gradient ? zf_dtype_size(a->type) : 0)));
}

COST(sum_losses)
{
    MAKES(a->rows, a->rows * sizeof(float));
}

COST(sum_squares)
{
    MAKES(2 * a->n, a->n * sizeof(float));
}

COST(clip_factor)
{
    MAKES(a->count, a->count * sizeof(double));
}

COST(adamw)
{
    MAKES(15 * a->n, a->n * (7 * sizeof(float) + (a->weights ? zf_dtype_size(a->type) : 0)));
}

COST(cast)
{
    MAKES(0, a->n * (zf_dtype_size(a->type) + zf_dtype_size(a->from_type)));
}

COST(row_sums)
{
    MAKES((a->partial ? 6 : 4) * a->rows * a->cols, a->rows * (a->cols * sizeof(float) + 2 * sizeof(double)));
}

COST(move_rows)
{
    MAKES(0, a->rows * a->cols * (zf_dtype_size(a->type) + zf_dtype_size(a->from_type)));
}

COST(hand_over)
{
    size_t n = a->rows * a->cols, packed = a->packed ? zf_dtype_size(a->bus_type) : 0, moved = a->weights ? 2 * zf_dtype_size(a->type) : 0;
    MAKES(a->weights ? 9 * n : 0, n * (sizeof(float) + packed + moved));
}

COST(adamw_rows)
{
    size_t n = a->rows * a->cols;
    MAKES(15 * n, n * (7 * sizeof(float) + (a->master && a->weights ? zf_dtype_size(a->type) : 0)));
}

COST(serve_rows)
{
    size_t n = a->rows * a->cols, shown = a->visible.chunk ? zf_dtype_size(a->type) : 0;
    size_t state = a->entry_count ? 6 : a->ahead > 0 ? 3 : 1;
    MAKES(15 * n * a->entry_count, n * (state * sizeof(float) + a->entry_count * zf_dtype_size(a->g_type) + shown));
}

COST(fold_rows)
{
    MAKES(2 * a->rows * a->cols, a->rows * a->cols * (zf_dtype_size(a->type) + sizeof(float) * (1u + a->add)));
}

COST(vhat_rows)
{
    MAKES(3 * a->rows * a->cols, a->rows * a->cols * sizeof(float) + (a->column ? ZF_COLUMN_PARTS * a->cols * sizeof(double) : 0));
}

COST(column_shares)
{
    MAKES(ZF_COLUMN_PARTS * a->cols, a->cols * (ZF_COLUMN_PARTS * sizeof(double) + sizeof(float)));
}

struct zf_cost zf_cost_of(enum zf_work_kind kind, const union zf_work_args *a)
{
    switch (kind) {
#define ZF_OP(name) \
    case ZF_WORK_##name: \
        return cost_##name(&a->name);
#include "kernels/ops.def"
#undef ZF_OP
    case ZF_WORK_copy: return (struct zf_cost){0, 2 * (double)a->copy.bytes};
    case ZF_WORK_copy_list: {
        double bytes = 0;
        for (size_t i = 0; i < a->copy_list.count; i++) bytes += 2 * (double)a->copy_list.list[i].bytes;
        return (struct zf_cost){0, bytes};
    }
    case ZF_WORK_fill: return (struct zf_cost){0, (double)a->fill.bytes};
    case ZF_WORK_call:
    case ZF_WORK_OTHER:
    case ZF_WORK_KINDS: break;
    }
    return (struct zf_cost){0};
}

static const char *const names[ZF_WORK_KINDS] = {
    [ZF_WORK_OTHER] = "other",
#define ZF_OP(name) [ZF_WORK_##name] = #name,
#include "kernels/ops.def"
#undef ZF_OP
    [ZF_WORK_copy] = "copy",   [ZF_WORK_copy_list] = "copy", [ZF_WORK_fill] = "fill", [ZF_WORK_call] = "call",
};

const char *zf_work_name(enum zf_work_kind kind)
{
    return names[kind];
}

void zf_segments_sum(const struct zf_segment *s, size_t count, double *pairs, double *keys)
{
    *pairs = *keys = 0;
    for (size_t i = 0; i < count; i++) {
        double q = (double)s[i].q_count;
        *pairs += q * (double)s[i].k_count - q * (q - 1) / 2;
        *keys += (double)s[i].k_count;
    }
}
