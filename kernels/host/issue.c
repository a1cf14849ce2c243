/* Issuing: arguments are checked in the call, then copied into the lane. A broken call returns ZF_USAGE and leaves the reason in the
 * lane, where lane_sync finds it in its place among the other work. No rows or columns is no work. */
#include "kernels/host/host.h"

#include <emmintrin.h>
#include <stdio.h>
#include <string.h>

/* What is wrong, in words; NULL: nothing; NOTHING: nothing to do. */
static const char NOTHING[] = "";

#define NEEDS(condition, text) \
    do { \
        if (!(condition)) return text; \
    } while (0)
static bool floats(enum zf_dtype type)
{
    return type == ZF_F32 || type == ZF_BF16;
}
#define HAS_TYPE(a) NEEDS(floats((a)->type), "the host device has this kernel for f32 and bf16 only")

static const char *check_matmul(const struct zf_matmul_args *a)
{
    if (!a->m || !a->n || (!a->k && a->accumulate && !a->bias)) return NOTHING;
    NEEDS(floats(a->type), "the host device multiplies f32 and bf16 only");
    NEEDS(a->type_c == ZF_F32 || a->type_c == a->type, "c must be f32 or have the type of a and b");
    NEEDS(a->type_c == ZF_F32 || !a->accumulate, "only an f32 c can be added to");
    NEEDS(a->c && (!a->k || (a->a && a->b)), "a, b or c is missing");
    NEEDS(a->lda >= (a->trans_a ? a->m : a->k), "lda is smaller than a row of a");
    NEEDS(a->ldb >= (a->trans_b ? a->k : a->n), "ldb is smaller than a row of b");
    NEEDS(a->ldc >= a->n, "ldc is smaller than a row of c");
    NEEDS(a->m <= INT64_MAX / 4 && a->n <= INT64_MAX / 4 && a->k <= INT64_MAX / 4, "a dimension is out of range");
    return NULL;
}

static const char *check_bias_backward(const struct zf_bias_backward_args *a)
{
    if (!a->rows || !a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->dy && a->dbias, "dy or dbias is missing");
    NEEDS(a->ld >= a->n, "ld is smaller than a row");
    return NULL;
}

static const char *check_embed(const struct zf_embed_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->table && a->index && a->y, "table, index or y is missing");
    return NULL;
}

static const char *check_embed_backward(const struct zf_embed_backward_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->dy && a->index && a->dtable, "dy, index or dtable is missing");
    return NULL;
}

static const char *check_norm(const struct zf_norm_args *a)
{
    if (!a->rows || !a->groups || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->x && a->y, "x or y is missing");
    NEEDS(!a->residual || (a->sum && a->groups == 1), "a residual needs a place for the sum, and groups = 1");
    NEEDS(a->ldx / a->groups >= a->cols && a->ldy / a->groups >= a->cols, "ldx or ldy is smaller than a row");
    return NULL;
}

static const char *check_norm_backward(const struct zf_norm_backward_args *a)
{
    if (!a->rows || !a->groups || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->dy && a->x && a->stats && a->dx, "dy, x, stats or dx is missing");
    NEEDS(a->lddy / a->groups >= a->cols && a->ldx / a->groups >= a->cols && a->lddx / a->groups >= a->cols,
          "lddy, ldx or lddx is smaller than a row");
    return NULL;
}

static const char *check_norm_backward_weight(const struct zf_norm_backward_weight_args *a)
{
    if (!a->rows || !a->groups || !a->cols || (!a->dweight && !a->dbias)) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->kind == ZF_LAYERNORM || a->kind == ZF_RMSNORM, "there is no such norm");
    NEEDS(a->dy && (!a->dweight || (a->x && a->stats)), "dy, x or stats is missing");
    NEEDS(a->lddy / a->groups >= a->cols && (!a->dweight || a->ldx / a->groups >= a->cols), "lddy or ldx is smaller than a row");
    return NULL;
}

static const char *check_rope(const struct zf_rope_args *a)
{
    if (!a->rows || !a->heads || !a->head_dim) return NOTHING;
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

static const char *check_attention(const struct zf_attention_args *a)
{
    if (!a->segment_count || !a->heads || !a->head_dim) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->q && a->k && a->v && a->o && a->segments, "q, k, v, o or segments is missing");
    const char *wrong = check_heads(a->heads, a->kv_heads, a->head_dim);
    if (wrong) return wrong;
    NEEDS(a->ldq / a->heads >= a->head_dim && a->ldo / a->heads >= a->head_dim && a->ldkv / a->kv_heads >= a->head_dim,
          "ldq, ldkv or ldo is smaller than a row");
    return NULL;
}

static const char *check_attention_backward(const struct zf_attention_backward_args *a)
{
    if (!a->segment_count || !a->heads || !a->head_dim) return NOTHING;
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

static const char *check_activation(const struct zf_activation_args *a)
{
    if (!a->rows || !a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->x && a->y && (a->up || a->kind != ZF_SWIGLU), "x, up or y is missing");
    NEEDS(a->ldy >= a->n && a->ldx >= a->n, "ldx or ldy is smaller than a row");
    return check_activation_kind(a->kind);
}

static const char *check_activation_backward(const struct zf_activation_backward_args *a)
{
    if (!a->rows || !a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->dy && a->x && a->dx && ((a->up && a->dup) || a->kind != ZF_SWIGLU), "dy, x, up, dx or dup is missing");
    NEEDS(a->lddy >= a->n && a->ldx >= a->n && a->lddx >= a->n, "lddy, ldx or lddx is smaller than a row");
    return check_activation_kind(a->kind);
}

static const char *check_add(const struct zf_add_args *a)
{
    if (!a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->a && a->b && a->y, "a, b or y is missing");
    return NULL;
}

static const char *check_copy_rows(const struct zf_copy_rows_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->from && a->to, "from or to is missing");
    NEEDS(a->ld_from >= a->cols && a->ld_to >= a->cols, "ld_from or ld_to is smaller than a row");
    return NULL;
}

static const char *check_cross_entropy(const struct zf_cross_entropy_args *a)
{
    if (!a->rows || !a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->logits && a->target && a->loss, "logits, target or loss is missing");
    NEEDS(a->ld >= a->n, "ld is smaller than a row");
    return NULL;
}

static const char *check_sum_losses(const struct zf_sum_losses_args *a)
{
    if (!a->rows) return NOTHING;
    NEEDS(a->loss && a->total, "loss or total is missing");
    return NULL;
}

static const char *check_sum_squares(const struct zf_sum_squares_args *a)
{
    if (!a->n) return NOTHING;
    NEEDS(a->x && a->partial, "x or partial is missing");
    return NULL;
}

static const char *check_clip_factor(const struct zf_clip_factor_args *a)
{
    NEEDS(a->out && a->loss && (a->partial || !a->count), "partial, loss or out is missing");
    NEEDS(a->clip_norm >= 0, "clip_norm is negative or not a number");
    return NULL;
}

static const char *check_adamw(const struct zf_adamw_args *a)
{
    if (!a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(a->master && a->m && a->v && a->g, "master, m, v or g is missing");
    NEEDS(a->type == ZF_F32 || a->weights != a->master, "bf16 weights cannot be the masters themselves");
    NEEDS(a->t, "t counts updates from 1");
    return NULL;
}

static const char *check_cast(const struct zf_cast_args *a)
{
    if (!a->n) return NOTHING;
    HAS_TYPE(a);
    NEEDS(floats(a->from_type), "the host device casts between f32 and bf16 only");
    NEEDS(a->from && a->to, "from or to is missing");
    return NULL;
}

/* ---- rows: tables of chunks and entries are read when the op runs, so only that there are some is looked at here ---- */

static const char *check_row_sums(const struct zf_row_sums_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    NEEDS(a->g && a->sums, "g or sums is missing");
    return NULL;
}

static const char *check_move_rows(const struct zf_move_rows_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(floats(a->from_type), "the host device moves rows of f32 and bf16 only");
    NEEDS(a->from && a->to, "from or to is missing");
    return NULL;
}

static const char *check_hand_over(const struct zf_hand_over_args *a)
{
    if (!a->rows || !a->cols || (!a->packed && !a->weights)) return NOTHING;
    HAS_TYPE(a);
    NEEDS(floats(a->bus_type), "bus_type must be f32 or bf16");
    NEEDS(a->g, "g is missing");
    NEEDS(!a->weights || (a->channel && a->column), "weights move by channel and column, of which one is missing");
    NEEDS(!a->weights || a->partial || !a->partials, "partial is missing");
    return NULL;
}

static const char *check_adamw_rows(const struct zf_adamw_rows_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
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

static const char *check_serve_rows(const struct zf_serve_rows_args *a)
{
    if (!a->rows || !a->cols || (!a->entry_count && !a->visible.chunk)) return NOTHING;
    HAS_TYPE(a);
    NEEDS(!a->entry_count || (floats(a->g_type) && a->entries), "entries are missing, or neither f32 nor bf16");
    NEEDS(a->master && a->m && a->v && a->t, "master, m, v or t is missing");
    NEEDS(!a->visible.chunk || a->visible.chunk_rows, "visible has chunks of no rows");
    NEEDS(a->ahead >= 0, "ahead is negative or not a number");
    return NULL;
}

static const char *check_fold_rows(const struct zf_fold_rows_args *a)
{
    if (!a->rows || !a->cols) return NOTHING;
    HAS_TYPE(a);
    NEEDS(chunks(&a->g) && chunks(&a->sum), "g or sum is missing, or has chunks of no rows");
    return NULL;
}

static const char *check_vhat_rows(const struct zf_vhat_rows_args *a)
{
    if (!a->cols || (!a->channel && !a->column) || (!a->rows && !a->column)) return NOTHING;
    NEEDS(!a->rows || (a->v && a->t), "v or t is missing");
    return NULL;
}

static const char *check_column_shares(const struct zf_column_shares_args *a)
{
    if (!a->cols) return NOTHING;
    NEEDS(a->column && a->share, "column or share is missing");
    return NULL;
}

static enum zf_status run_fail(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    (void)l;
    return zf_fail(e, a->fail.code, NULL, "%s", a->fail.message);
}

static enum zf_status refuse(struct zf_lane *l, const char *op, const char *wrong)
{
    static const struct zf_host_work fail = {.run = run_fail};
    struct zf_host_fail_args a = {.code = ZF_USAGE};
    snprintf(a.message, sizeof a.message, "%s: %s", op, wrong);
    zf_host_issue(l, &fail, &a, sizeof a);
    return ZF_USAGE;
}

static enum zf_status issue_matmul(struct zf_lane *l, const struct zf_matmul_args *a)
{
    static const struct zf_host_work work = {.run = zf_host_matmul_run, .kind = ZF_HOST_matmul};
    const char *wrong = check_matmul(a);
    if (wrong == NOTHING) return ZF_OK;
    return wrong ? refuse(l, "matmul", wrong) : zf_host_issue(l, &work, a, sizeof *a);
}

#define ISSUE(op, kernel) \
    static enum zf_status run_##op(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e) \
    { \
        (void)e; \
        zf_host_run_kernel(l, kernel, a); \
        return ZF_OK; \
    } \
    static enum zf_status issue_##op(struct zf_lane *l, const struct zf_##op##_args *a) \
    { \
        static const struct zf_host_work work = {.run = run_##op, .kind = ZF_HOST_##op}; \
        const char *wrong = check_##op(a); \
        if (wrong == NOTHING) return ZF_OK; \
        return wrong ? refuse(l, #op, wrong) : zf_host_issue(l, &work, a, sizeof *a); \
    }
#define ZF_OPS_WITHOUT_MATMUL
#define ZF_OP(op) ISSUE(op, zf_host_of(l)->path->typed[a->op.type].op)
#define ZF_OP_UNTYPED(op) ISSUE(op, zf_host_of(l)->path->op)
#include "kernels/ops.def"
#undef ZF_OP_UNTYPED
#undef ZF_OP
#undef ZF_OPS_WITHOUT_MATMUL

const struct zf_ops zf_host_ops = {
#define ZF_OP(op) .op = issue_##op,
#include "kernels/ops.def"
#undef ZF_OP
};

/* Copies and fills are kernels as well: pieces of 1 MiB. */
enum { PIECE = 1 << 20 };

static size_t piece_of(size_t bytes, size_t task)
{
    size_t rest = bytes - task * PIECE;
    return rest < PIECE ? rest : PIECE;
}

static size_t copy_tasks(const void *args)
{
    return (((const struct zf_host_copy_args *)args)->bytes - 1) / PIECE + 1;
}

/* Without reading what is overwritten: most of what is copied in bulk is gradients on their way down, which nobody reads before a whole
 * window has gone through the caches. */
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
    enum { LINE = 64, AHEAD = 1024 };
    size_t i = 0;
    for (; i + LINE <= bytes; i += LINE) {
        __m128i x[LINE / sizeof(__m128i)];
        __builtin_prefetch(from + i + AHEAD);
        memcpy(x, from + i, sizeof x);
        for (size_t k = 0; k < sizeof x / sizeof *x; k++) _mm_stream_si128((__m128i *)(void *)(to + i) + k, x[k]);
    }
    _mm_sfence(); /* such stores are not ordered with the one that says that the task is done */
    memcpy(to + i, from + i, bytes - i);
}

static void copy_run(const void *args, size_t task)
{
    enum { BULK = 1 << 16 };
    const struct zf_host_copy_args *a = args;
    char *to = (char *)a->to + task * PIECE;
    const char *from = (const char *)a->from + task * PIECE;
    size_t bytes = piece_of(a->bytes, task);
    if (bytes >= BULK && (uintptr_t)to % sizeof(__m128i) == 0)
        copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static size_t copy_list_tasks(const void *args)
{
    const struct zf_host_copy_list_args *a = args;
    size_t n = 0;
    for (size_t i = 0; i < a->count; i++) n += a->list[i].bytes ? (a->list[i].bytes - 1) / PIECE + 1 : 0;
    return n;
}

static void copy_list_run(const void *args, size_t task)
{
    const struct zf_copy *c = ((const struct zf_host_copy_list_args *)args)->list;
    for (;; c++) {
        size_t n = c->bytes ? (c->bytes - 1) / PIECE + 1 : 0;
        if (task < n) break;
        task -= n;
    }
    copy_run(&(struct zf_host_copy_args){c->to, c->from, c->bytes}, task);
}

static size_t fill_tasks(const void *args)
{
    return (((const struct zf_host_fill_args *)args)->bytes - 1) / PIECE + 1;
}

static void fill_run(const void *args, size_t task)
{
    const struct zf_host_fill_args *a = args;
    memset((char *)a->to + task * PIECE, a->byte, piece_of(a->bytes, task));
}

static enum zf_status run_copy(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {copy_tasks, copy_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

static enum zf_status run_fill(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {fill_tasks, fill_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

enum zf_status zf_host_copy(struct zf_lane *l, void *to, const void *from, size_t bytes)
{
    static const struct zf_host_work work = {.run = run_copy, .kind = ZF_HOST_copy};
    if (!bytes) return ZF_OK;
    if (!to || !from) return refuse(l, "copy", "the source or the destination is missing");
    struct zf_host_copy_args a = {to, from, bytes};
    return zf_host_issue(l, &work, &a, sizeof a);
}

static enum zf_status run_copy_list(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    static const struct zf_host_kernel kernel = {copy_list_tasks, copy_list_run};
    (void)e;
    zf_host_run_kernel(l, &kernel, a);
    return ZF_OK;
}

enum zf_status zf_host_copy_list(struct zf_lane *l, const struct zf_copy *list, size_t count)
{
    static const struct zf_host_work work = {.run = run_copy_list, .kind = ZF_HOST_copy_list};
    for (size_t i = 0; i < count; i++)
        if (list[i].bytes && (!list[i].to || !list[i].from)) return refuse(l, "copy_list", "a source or a destination is missing");
    struct zf_host_copy_list_args a = {list, count};
    return count ? zf_host_issue(l, &work, &a, sizeof a) : ZF_OK;
}

enum zf_status zf_host_fill(struct zf_lane *l, void *to, int byte, size_t bytes)
{
    static const struct zf_host_work work = {.run = run_fill, .kind = ZF_HOST_fill};
    if (!bytes) return ZF_OK;
    if (!to) return refuse(l, "fill", "the destination is missing");
    struct zf_host_fill_args a = {to, bytes, byte};
    return zf_host_issue(l, &work, &a, sizeof a);
}

static enum zf_status run_call(struct zf_lane *l, const union zf_host_args *a, struct zf_err *e)
{
    (void)l;
    (void)e;
    a->call.body(a->call.ctx);
    return ZF_OK;
}

enum zf_status zf_host_call(struct zf_lane *l, void (*body)(void *ctx), void *ctx)
{
    static const struct zf_host_work work = {.run = run_call, .kind = ZF_HOST_call};
    if (!body) return refuse(l, "call", "there is nothing to call");
    struct zf_host_call_args a = {body, ctx};
    return zf_host_issue(l, &work, &a, sizeof a);
}
