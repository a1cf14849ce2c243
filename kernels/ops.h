/* Kernels: one struct of arguments an op, flat (pointers, sizes, dtype). Shapes are row-major; ld is the distance of two rows in
 * elements. Activations, their gradients and the visible weights (norms and biases, too) have `type`, ZF_F32 or ZF_BF16; whatever the type,
 * arithmetic is fp32, and a result is rounded once, to nearest even, when it is stored. Statistics, losses, gradients of weights, moments,
 * masters and rotary tables are fp32. Backward kernels *accumulate* into gradients of weights and *overwrite*
 * gradients of activations, unless an `accumulate` flag says otherwise. Buffers must not overlap unless a comment allows it.
 *
 * A batch is one stream of `rows` tokens, without padding: documents stand one behind the other (struct zf_segment), so
 * nothing here knows of batch and length. A result must not depend on the number of threads: work is split by shape alone,
 * and a sum has one order. */
#ifndef ZF_KERNELS_OPS_H
#define ZF_KERNELS_OPS_H

#include "kernels/device.h"

/* c[m][n] = (c if accumulate) + a[m][k] b[k][n] + bias[n]. trans_a: a is stored [k][m]; trans_b: b is stored [n][k].
 * type is that of a, b and bias; type_c that of c: F32, or BF16 where type is BF16 (then without accumulate, but for a bias). Sums are
 * fp32. */
struct zf_matmul_args {
    enum zf_dtype type, type_c;
    const void *a, *b, *bias; /* bias may be NULL */
    void *c;
    size_t m, n, k, lda, ldb, ldc;
    bool trans_a, trans_b, accumulate;
};

/* dbias[n] += sum over rows of dy[rows][n]. */
struct zf_bias_backward_args {
    enum zf_dtype type;
    const void *dy;
    float *dbias;
    size_t rows, n, ld;
};

/* y[r][c] = (y if accumulate) + table[index[r] + offset][c]. */
struct zf_embed_args {
    enum zf_dtype type;
    const void *table; /* [*][cols] */
    const int32_t *index;
    void *y;
    size_t rows, cols;
    int32_t offset;
    bool accumulate;
};

/* dtable[index[r] + offset][c] += dy[r][c], in order of r, except where index[r] == skip (OPT's padding row; -1: none). */
struct zf_embed_backward_args {
    enum zf_dtype type;
    const void *dy;
    const int32_t *index;
    float *dtable;
    size_t rows, cols;
    int32_t offset, skip;
};

enum { ZF_HEAD_DIM_MAX = 256 }; /* kernels keep a row of a head on the stack */

enum zf_norm_kind { ZF_LAYERNORM, ZF_RMSNORM };

/* Rows of `groups` vectors of `cols` elements each: vector (r, g) is x + r*ldx + g*cols. Ordinary norms have groups = 1; the norms of
 * Qwen3's queries and keys one group a head, with the same weights. If residual is given, x + residual is normed and
 * stored in sum (residual and sum are [rows][cols], groups = 1). y may be x. stats[(r*groups + g)*2] = mean (0 for RMS), rstd. */
struct zf_norm_args {
    enum zf_dtype type;
    enum zf_norm_kind kind;
    const void *x, *residual, *weight, *bias; /* residual, weight, bias may be NULL */
    void *sum, *y;
    float *stats; /* may be NULL */
    size_t rows, groups, cols, ldx, ldy;
    float eps;
};

/* dx = (dx if accumulate) + the gradient for x. x is what was normed (the sum, where there was a residual). dx may be dy. */
struct zf_norm_backward_args {
    enum zf_dtype type;
    enum zf_norm_kind kind;
    const void *dy, *x, *weight; /* weight may be NULL */
    const float *stats;
    void *dx;
    size_t rows, groups, cols, lddy, ldx, lddx;
    bool accumulate;
};

/* dweight[c] += sum over rows and groups of dy * xhat; dbias[c] += sum of dy. Either may be NULL. */
struct zf_norm_backward_weight_args {
    enum zf_dtype type;
    enum zf_norm_kind kind;
    const void *dy, *x;
    const float *stats;
    float *dweight, *dbias;
    size_t rows, groups, cols, lddy, ldx;
};

/* Rotates pairs (d, d + head_dim/2) of `heads` heads in place: x + r*ld + h*head_dim. table is [positions][head_dim/2][2]: cos, sin.
 * inverse: by the negative angle (backward). head_dim is even. */
struct zf_rope_args {
    enum zf_dtype type;
    void *x;
    const float *table;
    const int32_t *position; /* [rows] */
    size_t rows, heads, head_dim, ld;
    bool inverse;
};

/* Queries q_begin .. q_begin + q_count of the stream see keys k_begin .. ; the last query sees all k_count keys, the one before
 * it all but the last, and so on (causal). In training q and k ranges are the same: a document. */
struct zf_segment {
    size_t q_begin, q_count, k_begin, k_count; /* k_count >= q_count */
};

/* Segments stand in the order of their queries and of their keys; q_rows, k_rows: no range ends behind them. What the device's copy of them
 * costs the account of time is told beside it: pairs of a query and a key that it sees, and keys (zf_segments_sum); 0: not known. */

/* o = softmax(scale q k^T) v per segment and head; kv head = head / (heads / kv_heads). q + r*ldq + head*head_dim, k and v likewise with
 * ldkv. lse[r*heads + head] = log of the sum of exp(scale q k), kept for backward (may be NULL). */
struct zf_attention_args {
    enum zf_dtype type;
    const void *q, *k, *v;
    void *o;
    float *lse;
    const struct zf_segment *segments;
    size_t segment_count, q_rows, k_rows, heads, kv_heads, head_dim, ldq, ldkv, ldo;
    double pairs, keys;
    float scale;
};
void zf_segments_sum(const struct zf_segment *s, size_t count, double *pairs, double *keys); /* profile.c */

/* dq, dk, dv overwritten, in the layout of q, k, v (lddq, lddkv). Key ranges of segments must not overlap. delta: workspace
 * [rows][heads]; rows are all queries. */
struct zf_attention_backward_args {
    enum zf_dtype type;
    const void *q, *k, *v, *o, *do_;
    const float *lse;
    void *dq, *dk, *dv;
    float *delta;
    const struct zf_segment *segments;
    size_t segment_count, q_rows, k_rows, heads, kv_heads, head_dim, ldq, ldkv, ldo, lddo, lddq, lddkv;
    double pairs, keys;
    float scale;
};

enum zf_activation_kind { ZF_RELU, ZF_GELU_TANH, ZF_SWIGLU };

/* y[rows][n] = f(x). SWIGLU: y = silu(x) * up, up in the layout of x; others have no up. */
struct zf_activation_args {
    enum zf_dtype type;
    enum zf_activation_kind kind;
    const void *x, *up;
    void *y;
    size_t rows, n, ldx, ldy;
};

/* dx and dup in one layout (lddx). dx may be x, dup may be up. */
struct zf_activation_backward_args {
    enum zf_dtype type;
    enum zf_activation_kind kind;
    const void *dy, *x, *up;
    void *dx, *dup;
    size_t rows, n, lddy, ldx, lddx;
};

/* y[n] = a[n] + b[n]. y may be a or b. */
struct zf_add_args {
    enum zf_dtype type;
    const void *a, *b;
    void *y;
    size_t n;
};

/* to[r][c] = from[r][c]. */
struct zf_copy_rows_args {
    enum zf_dtype type;
    const void *from;
    void *to;
    size_t rows, cols, ld_from, ld_to;
};

/* loss[r] = -log softmax(logits[r])[target[r]], 0 where target[r] < 0 (a logit that is not finite makes it not finite). If gradient: the
 * row becomes scale * (softmax - onehot), 0 where target[r] < 0. Columns n..ld are not touched. Logits are fp32 whatever the type, which is
 * the gradient's: in BF16 it lies over the beginning of its row, so that rows of it are 2 ld elements apart. */
struct zf_cross_entropy_args {
    enum zf_dtype type;
    float *logits; /* [rows][ld] */
    const int32_t *target;
    float *loss; /* [rows] */
    size_t rows, n, ld;
    float scale;
    bool gradient;
};

/* *total += sum of loss[rows], in order, in double. */
struct zf_sum_losses_args {
    const float *loss;
    size_t rows;
    double *total;
};

/* partial[i] = sum of squares of x[i*ZF_SQUARES_CHUNK ...]; ceil(n / ZF_SQUARES_CHUNK) of them. */
enum { ZF_SQUARES_CHUNK = 65536 };
struct zf_sum_squares_args {
    const float *x;
    double *partial;
    size_t n;
};

/* What clipping and the check for finiteness find, once a step: read by adamw on the device, by the host for the log. */
struct zf_step_norm {
    double norm;   /* global norm before clipping */
    double loss;   /* the sum of the step's losses, copied from *loss */
    float clip;    /* the factor c_t: min(1, clip_norm / norm), 1 where clip_norm is 0 */
    int32_t apply; /* 0: loss or norm is not finite, nothing may be updated */
};

/* *out from the partial sums of squares, in order. clip_norm 0: never clips. */
struct zf_clip_factor_args {
    const double *partial;
    size_t count;
    const double *loss;
    double clip_norm;
    struct zf_step_norm *out;
};

/* AdamW, decoupled decay (Loshchilov and Hutter 2019), one pass over master[n], m[n], v[n], gradient g[n]:
 *   master -= lr*decay*master;  g' = clip*g;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
 *   master -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
 * weights: the visible copy in `type`, rounded from the master; NULL where it is the master itself. Nothing moves when norm->apply is 0. */
struct zf_adamw_args {
    enum zf_dtype type;
    void *weights;
    float *master, *m, *v;
    const float *g;
    const struct zf_step_norm *norm; /* NULL: clip 1, apply */
    size_t n;
    uint64_t t; /* updates, this one included */
    double lr, beta1, beta2, eps, decay;
    bool stochastic;      /* BF16 weights: rounded up or down by chance, in proportion, so that their mean is the master; else to nearest */
    uint64_t seed, first; /* of that chance: a function of (seed, t, first + i), i the element, and nothing else */
};

/* to[i] = from[i], from one of F32 and BF16 to the other (to nearest even) or the same. */
struct zf_cast_args {
    enum zf_dtype type, from_type;
    void *to;
    const void *from;
    size_t n;
};

/* ---- channels: rows of a matrix that two halves own (core/pipeline). A list gives the number of each row; NULL: row r is number r. ----
 */

/* sums[r][0] = sum of squares, sums[r][1] = sum of magnitudes of g[r][cols]: fp32 over pieces of at most 256 columns, pieces added in
 * double. */
struct zf_row_sums_args {
    const float *g; /* [rows][cols] */
    double *sums;   /* [rows][2] */
    size_t rows, cols;
    double *partial; /* NULL, or what sum_squares makes of g[rows * cols]: both from one reading */
};

/* to[to_list[r]][cols] = from[from_list[r]][cols], to nearest where that narrows. Where type = from_type bits are copied (32-bit integers
 * pass as F32). No number twice in to_list. */
struct zf_move_rows_args {
    enum zf_dtype type, from_type; /* of to, of from: F32, BF16 */
    void *to;
    const void *from;
    const uint32_t *to_list, *from_list;
    size_t rows, cols;
};

/* What a step's gradient does to rows of the CPU half: it is rounded to bus_type and packed for the way to the host, and, where rows are
 * optimistic, they move by what this gradient is expected to do to them (golden/zenflow_oracle.py, `provisional`):
 *   g = clip * gradient;  w -= rate * g / (sqrt(beta2 * channel[n] * column[c] + (1 - beta2) g^2) + eps),  n = list[r]
 * A row whose channel[n] is not above 0 does not move; none does where a partial sum of squares is not finite. The move takes the gradient
 * as it is, not as it is rounded for the bus. */
struct zf_hand_over_args {
    enum zf_dtype type, bus_type; /* of weights; of packed */
    const float *g;               /* [*][cols] */
    const uint32_t *list;         /* [rows] */
    void *packed;                 /* [rows][cols]; NULL: nothing is packed */
    void *weights;                /* [*][cols]; NULL: nothing moves */
    const float *channel;         /* [*] mean second moment of a row of the matrix */
    const float *column;          /* [cols] that of a column, relative to the mean of all */
    const double *partial;        /* [partials] of the matrix */
    size_t partials, rows, cols;
    float clip;
    double rate, beta2, eps;
    uint64_t seed, step, first; /* BF16 weights are rounded by chance: a function of (seed, step, first + n*cols + c) */
};

/* AdamW of rows (formulas: zf_adamw_args, the gradient rounded to bus_type, then times clip): row r of the state is number list[r] of g and
 * of weights. t[r]: updates the row has had; it is counted up. master NULL: F32 weights are the masters themselves. */
struct zf_adamw_rows_args {
    enum zf_dtype type, bus_type;
    void *weights;         /* [*][cols] of type */
    float *master, *m, *v; /* [rows][cols] */
    uint32_t *t;           /* [rows] */
    const uint32_t *list;  /* [rows] */
    const float *g;        /* [*][cols] */
    size_t rows, cols;
    float clip;
    double lr, beta1, beta2, eps, decay;
    bool stochastic;
    uint64_t seed, first; /* as in zf_adamw_args, with t the row's own count and first + n*cols + c the element */
};

/* Rows in pieces of memory: row r of `cols` elements is number r % chunk_rows of chunk[r / chunk_rows]. */
struct zf_chunked {
    void *const *chunk;
    size_t chunk_rows;
};

/* One entry of a window: the gradients of a step, what they are multiplied with, the learning rate. */
struct zf_entry {
    struct zf_chunked g;
    float scale;
    double lr;
};

/* The CPU half's update of a window: for each entry in order one AdamW, with gradient scale * g (formulas: zf_adamw_args). All entries of a
 * row are applied while the row is in the cache. Then its visible copy: the master; with ahead > 0 master - ahead * (m / (1-b1^t)) /
 * (sqrt(v / (1-b2^t)) + eps) No entries: only the visible copy is made. */
struct zf_serve_rows_args {
    enum zf_dtype type, g_type; /* of visible; of the entries */
    float *master, *m, *v;      /* [rows][cols] */
    uint32_t *t;                /* [rows] updates so far; counted up */
    const uint32_t *list;       /* [rows] numbers, for rounding by chance alone; NULL: r */
    const struct zf_entry *entries;
    size_t entry_count, rows, cols;
    struct zf_chunked visible; /* of `type`; chunk NULL: none is made */
    double ahead, beta1, beta2, eps, decay;
    bool stochastic;
    uint64_t seed, first; /* as in zf_adamw_rows_args */
};

/* sum[r] = (sum[r] if add) + scale * g[r], in fp32. */
struct zf_fold_rows_args {
    enum zf_dtype type;       /* of g */
    struct zf_chunked g, sum; /* sum is F32 */
    size_t rows, cols;
    float scale;
    bool add;
};

/* Second moments without their bias, vhat = v / (1 - beta2^t), of state rows list[r]: channel[to_list[r]] = mean over the row; column: sums
 * over all rows in ZF_COLUMN_PARTS parts of rows (parts by shape alone), for zf_column_shares. Either may be NULL. A row with t = 0 counts
 * as 0. */
enum { ZF_COLUMN_PARTS = 64 };
struct zf_vhat_rows_args {
    const float *v;    /* [*][cols] */
    const uint32_t *t; /* [*] */
    const uint32_t *list, *to_list;
    float *channel;
    double *column; /* [ZF_COLUMN_PARTS][cols]; parts without rows are set to 0 */
    size_t rows, cols;
    double beta2;
};

/* share[c] = (sum over the parts of column[.][c] / rows) / (the same, mean over all c); 1 where that mean is not above 0. */
struct zf_column_shares_args {
    const double *column; /* [ZF_COLUMN_PARTS][cols] */
    float *share;         /* [cols] */
    size_t rows, cols;
};

struct zf_ops {
#define ZF_OP(name) enum zf_status (*name)(struct zf_lane * lane, const struct zf_##name##_args *args);
#include "kernels/ops.def"
#undef ZF_OP
};

#endif
