/* See checks.h. */
#include "kernels/checks.h"

#include <string.h>

const char zf_nothing[] = "";

#define NEEDS(condition, text) \
    do { \
        if (!(condition)) return text; \
    } while (0)
static bool floats(enum zf_dtype type)
{
    return type == ZF_F32 || type == ZF_BF16;
}
#define HAS_TYPE(a) NEEDS(floats((a)->type), "this kernel is there for f32 and bf16 only")

const char *zf_check_matmul(const struct zf_matmul_args *a)
{
    if (!a->m || !a->n || (!a->k && a->accumulate && !a->bias)) return zf_nothing;
    NEEDS(floats(a->type), "only f32 and bf16 are multiplied");
    NEEDS(a->type_c == ZF_F32 || a->type_c == a->type, "c must be f32 or have the type of a and b");
    NEEDS(a->type_c == ZF_F32 || !a->accumulate, "only an f32 c can be added to");
    NEEDS(a->c && (!a->k || (a->a && a->b)), "a, b or c is missing");
    NEEDS(a->lda >= (a->trans_a ? a->m : a->k), "lda is smaller than a row of a");
    NEEDS(a->ldb >= (a->trans_b ? a->k : a->n), "ldb is smaller than a row of b");
    NEEDS(a->ldc >= a->n, "ldc is smaller than a row of c");
    NEEDS(a->m <= INT64_MAX / 4 && a->n <= INT64_MAX / 4 && a->k <= INT64_MAX / 4, "a dimension is out of range");
    return NULL;
}

const char *zf_check_bias_backward(const struct zf_bias_backward_args *a)
{
    if (!a->rows || !a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->dy && a->dbias, "dy or dbias is missing");
    NEEDS(a->ld >= a->n, "ld is smaller than a row");
    return NULL;
}

const char *zf_check_embed(const struct zf_embed_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->table && a->index && a->y, "table, index or y is missing");
    return NULL;
}

const char *zf_check_embed_backward(const struct zf_embed_backward_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->dy && a->index && a->dtable, "dy, index or dtable is missing");
    return NULL;
}

const char *zf_check_norm(const struct zf_norm_args *a)
{
    if (!a->rows || !a->groups || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->x && a->y, "x or y is missing");
    NEEDS(!a->residual || (a->sum && a->groups == 1), "a residual needs a place for the sum, and groups = 1");
    NEEDS(a->ldx / a->groups >= a->cols && a->ldy / a->groups >= a->cols, "ldx or ldy is smaller than a row");
    return NULL;
}

const char *zf_check_norm_backward(const struct zf_norm_backward_args *a)
{
    if (!a->rows || !a->groups || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->dy && a->x && a->stats && a->dx, "dy, x, stats or dx is missing");
    NEEDS(a->lddy / a->groups >= a->cols && a->ldx / a->groups >= a->cols && a->lddx / a->groups >= a->cols,
          "lddy, ldx or lddx is smaller than a row");
    return NULL;
}

const char *zf_check_norm_backward_weight(const struct zf_norm_backward_weight_args *a)
{
    if (!a->rows || !a->groups || !a->cols || (!a->dweight && !a->dbias)) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->dy && (!a->dweight || (a->x && a->stats)), "dy, x or stats is missing");
    NEEDS(a->lddy / a->groups >= a->cols && (!a->dweight || a->ldx / a->groups >= a->cols), "lddy or ldx is smaller than a row");
    return NULL;
}

const char *zf_check_rope(const struct zf_rope_args *a)
{
    if (!a->rows || !a->heads || !a->head_dim) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->x && a->table && a->position, "x, table or position is missing");
    NEEDS(a->head_dim % 2 == 0 && a->head_dim <= ZF_HEAD_DIM_MAX, "head_dim must be even and at most 256");
    NEEDS(a->ld / a->heads >= a->head_dim, "ld is smaller than a row");
    return NULL;
}

static const char *check_heads(size_t heads, size_t kv_heads, size_t head_dim)
{
    NEEDS(kv_heads && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
    NEEDS(head_dim <= ZF_HEAD_DIM_MAX, "head_dim must be at most 256");
    return NULL;
}

const char *zf_check_attention(const struct zf_attention_args *a)
{
    if (!a->segment_count || !a->heads || !a->head_dim) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->q && a->k && a->v && a->o && a->segments, "q, k, v, o or segments is missing");
    const char *wrong = check_heads(a->heads, a->kv_heads, a->head_dim);
    if (wrong) return wrong;
    NEEDS(a->ldq / a->heads >= a->head_dim && a->ldo / a->heads >= a->head_dim && a->ldkv / a->kv_heads >= a->head_dim,
          "ldq, ldkv or ldo is smaller than a row");
    return NULL;
}

const char *zf_check_attention_backward(const struct zf_attention_backward_args *a)
{
    if (!a->segment_count || !a->heads || !a->head_dim) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->q && a->k && a->v && a->o && a->do_ && a->lse && a->segments, "q, k, v, o, do, lse or segments is missing");
    NEEDS(a->dq && a->dk && a->dv && a->delta, "dq, dk, dv or delta is missing");
    const char *wrong = check_heads(a->heads, a->kv_heads, a->head_dim);
    if (wrong) return wrong;
    NEEDS(a->ldq / a->heads >= a->head_dim && a->lddq / a->heads >= a->head_dim && a->ldo / a->heads >= a->head_dim &&
              a->lddo / a->heads >= a->head_dim && a->ldkv / a->kv_heads >= a->head_dim && a->lddkv / a->kv_heads >= a->head_dim,
          "a distance of rows is smaller than a row");
    return NULL;
}

static const char *check_activation_kind(enum zf_activation_kind kind)
{
    NEEDS(kind == ZF_RELU || kind == ZF_GELU_TANH || kind == ZF_SWIGLU, "there is no such activation");
    return NULL;
}

const char *zf_check_activation(const struct zf_activation_args *a)
{
    if (!a->rows || !a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->x && a->y && (a->up || a->kind != ZF_SWIGLU), "x, up or y is missing");
    NEEDS(a->ldy >= a->n && a->ldx >= a->n, "ldx or ldy is smaller than a row");
    return check_activation_kind(a->kind);
}

const char *zf_check_activation_backward(const struct zf_activation_backward_args *a)
{
    if (!a->rows || !a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->dy && a->x && a->dx && ((a->up && a->dup) || a->kind != ZF_SWIGLU), "dy, x, up, dx or dup is missing");
    NEEDS(a->lddy >= a->n && a->ldx >= a->n && a->lddx >= a->n, "lddy, ldx or lddx is smaller than a row");
    return check_activation_kind(a->kind);
}

const char *zf_check_add(const struct zf_add_args *a)
{
    if (!a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->a && a->b && a->y, "a, b or y is missing");
    return NULL;
}

const char *zf_check_copy_rows(const struct zf_copy_rows_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->from && a->to, "from or to is missing");
    NEEDS(a->ld_from >= a->cols && a->ld_to >= a->cols, "ld_from or ld_to is smaller than a row");
    return NULL;
}

const char *zf_check_cross_entropy(const struct zf_cross_entropy_args *a)
{
    if (!a->rows || !a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->logits && a->target && a->loss, "logits, target or loss is missing");
    NEEDS(a->ld >= a->n, "ld is smaller than a row");
    return NULL;
}

const char *zf_check_sum_losses(const struct zf_sum_losses_args *a)
{
    if (!a->rows) return zf_nothing;
    NEEDS(a->loss && a->total, "loss or total is missing");
    return NULL;
}

const char *zf_check_sum_squares(const struct zf_sum_squares_args *a)
{
    if (!a->n) return zf_nothing;
    NEEDS(a->x && a->partial, "x or partial is missing");
    return NULL;
}

const char *zf_check_clip_factor(const struct zf_clip_factor_args *a)
{
    NEEDS(a->out && a->loss && (a->partial || !a->count), "partial, loss or out is missing");
    NEEDS(a->clip_norm >= 0, "clip_norm is negative or not a number");
    return NULL;
}

const char *zf_check_adamw(const struct zf_adamw_args *a)
{
    if (!a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(a->master && a->m && a->v && a->g, "master, m, v or g is missing");
    NEEDS(a->type == ZF_F32 || a->weights != a->master, "bf16 weights cannot be the masters themselves");
    NEEDS(a->t, "t counts updates from 1");
    return NULL;
}

const char *zf_check_cast(const struct zf_cast_args *a)
{
    if (!a->n) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(floats(a->from_type), "the host device casts between f32 and bf16 only");
    NEEDS(a->from && a->to, "from or to is missing");
    return NULL;
}

/* ---- rows: tables of chunks and entries are read when the op runs, so only that there are some is looked at here ---- */

const char *zf_check_row_sums(const struct zf_row_sums_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    NEEDS(a->g && a->sums, "g or sums is missing");
    return NULL;
}

const char *zf_check_move_rows(const struct zf_move_rows_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(floats(a->from_type), "the host device moves rows of f32 and bf16 only");
    NEEDS(a->from && a->to, "from or to is missing");
    return NULL;
}

const char *zf_check_hand_over(const struct zf_hand_over_args *a)
{
    if (!a->rows || !a->cols || (!a->packed && !a->weights)) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(floats(a->bus_type), "bus_type must be f32 or bf16");
    NEEDS(a->g, "g is missing");
    NEEDS(!a->weights || (a->channel && a->column), "weights move by channel and column, of which one is missing");
    NEEDS(!a->weights || a->partial || !a->partials, "partial is missing");
    return NULL;
}

const char *zf_check_adamw_rows(const struct zf_adamw_rows_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(floats(a->bus_type), "bus_type must be f32 or bf16");
    NEEDS(a->m && a->v && a->t && a->g, "m, v, t or g is missing");
    NEEDS(a->master || (a->weights && a->type == ZF_F32), "master is missing, and only f32 weights are masters themselves");
    NEEDS(a->weights != a->master, "masters that are the weights are given as weights alone");
    return NULL;
}

static bool chunks(const struct zf_chunked *c)
{
    return c->chunk && c->chunk_rows;
}

const char *zf_check_serve_rows(const struct zf_serve_rows_args *a)
{
    if (!a->rows || !a->cols || (!a->entry_count && !a->visible.chunk)) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(!a->entry_count || (floats(a->g_type) && a->entries), "entries are missing, or neither f32 nor bf16");
    NEEDS(a->master && a->m && a->v && a->t, "master, m, v or t is missing");
    NEEDS(!a->visible.chunk || a->visible.chunk_rows, "visible has chunks of no rows");
    NEEDS(a->ahead >= 0, "ahead is negative or not a number");
    return NULL;
}

const char *zf_check_fold_rows(const struct zf_fold_rows_args *a)
{
    if (!a->rows || !a->cols) return zf_nothing;
    HAS_TYPE(a);
    NEEDS(chunks(&a->g) && chunks(&a->sum), "g or sum is missing, or has chunks of no rows");
    return NULL;
}

const char *zf_check_vhat_rows(const struct zf_vhat_rows_args *a)
{
    if (!a->cols || (!a->channel && !a->column) || (!a->rows && !a->column)) return zf_nothing;
    NEEDS(!a->rows || (a->v && a->t), "v or t is missing");
    return NULL;
}

const char *zf_check_column_shares(const struct zf_column_shares_args *a)
{
    if (!a->cols) return zf_nothing;
    NEEDS(a->column && a->share, "column or share is missing");
    return NULL;
}

