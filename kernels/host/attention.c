/* Attention and its backward, in blocks that stay in the cache: nothing of size T x T is ever held.
 *
 * The lanes of a vector are *rows*: a row is one query of one head, and the rows of a block are consecutive queries of all
 * the heads that share a key/value head, so grouped queries read a key once. With rows in the lanes, keys and values are
 * read as they lie, one number at a time, and the softmax has no sum across lanes:
 *
 *     S[key][row] = K[key][:] . Q'[:][row]      O'[dim][row] = sum over keys of V[key][dim] P[key][row]
 *
 * (Q', O': transposed, once a block). Everything here is one small product, multiply(), with an order of summation that
 * does not depend on how it is cut into registers; that is why the paths may cut it differently and still give equal bits.
 *
 * In bf16 (where AMX does not do it: attention_amx.h) tiles of keys and values are widened as they are read, everything between inputs and outputs is fp32, and gradients of keys and
 * values are summed on the stack.
 *
 * Stack: under 1 MiB a task. Tasks write disjoint outputs and may run in any order, on any threads. */
#include "kernels/host/attention.h"
#include "kernels/host/vec.h"

#include <float.h>

enum {
    ROWS = 64,   /* rows of a block; half of it where heads are wide */
    KEYS = 64,   /* keys of a tile */
    TILE = 8192, /* floats of a block of rows: ROWS * 128 or ROWS / 2 * ZF_HEAD_DIM_MAX */
    MR = 4,      /* multiply() keeps MR x NV accumulators in registers */
    SAME = sizeof(elem) == sizeof(float), /* inputs and outputs are fp32: used where they lie */
    SUMS = SAME ? 1 : 1 << 16,            /* floats of the keys whose gradients are summed together */
#if defined(ZF_VEC_AVX512)
    NV = 4,
#else
    NV = 1,
#endif
};

static size_t padded(size_t head_dim)
{
    return ceil_div(head_dim, VW) * VW;
}

static size_t block_rows(size_t head_dim)
{
    return padded(head_dim) * ROWS <= TILE ? ROWS : ROWS / 2;
}

/* ---- the product ---- */

enum start { SET, ADD, SCALE }; /* what a product is added to: nothing, c, c * scale[column] */

/* c[m][n] = start + sum over k of a[m*am + k*ak] * b[k*ldb + n], the sum in order of k. n is nv vectors, the last of `last` columns;
 * b has all VW of them. */
struct product {
    const float *a, *b, *scale;
    float *c;
    size_t m, nv, k, am, ak, ldb, ldc, last;
    enum start start;
};

ALWAYS void corner(const struct product *p, const size_t mr, const size_t nv, size_t row, size_t v0)
{
    vf acc[MR][NV];
    const float *a = p->a + row * p->am, *b = p->b + v0 * VW;
    float *c = p->c + row * p->ldc + v0 * VW;
    const size_t am = p->am, ak = p->ak, ldb = p->ldb, k = p->k, ldc = p->ldc;
    bool cut = v0 + nv == p->nv && p->last < VW;

#define EACH for (size_t i = 0; i < mr; i++) for (size_t v = 0; v < nv; v++)
    if (p->start == SET) {
        EACH acc[i][v] = vzero();
    } else {
        EACH acc[i][v] = cut && v == nv - 1 ? vload_n(c + i * ldc + v * VW, p->last) : vload(c + i * ldc + v * VW);
        if (p->start == SCALE) EACH acc[i][v] = vmul(acc[i][v], vload(p->scale + (v0 + v) * VW));
    }
    for (size_t j = 0; j < k; j++) {
        vf x[NV];
        for (size_t v = 0; v < nv; v++) x[v] = vload(b + v * VW);
        for (size_t i = 0; i < mr; i++) {
            vf y = vset(a[i * am]);
            for (size_t v = 0; v < nv; v++) acc[i][v] = vfma(y, x[v], acc[i][v]);
        }
        a += ak;
        b += ldb;
    }
    EACH {
        if (cut && v == nv - 1) vstore_n(c + i * ldc + v * VW, acc[i][v], p->last);
        else vstore(c + i * ldc + v * VW, acc[i][v]);
    }
#undef EACH
}

ALWAYS void panel(const struct product *p, const size_t nv, size_t v0)
{
    size_t row = 0;
    for (; row + MR <= p->m; row += MR) corner(p, MR, nv, row, v0);
    for (; row < p->m; row++) corner(p, 1, nv, row, v0);
}

static void multiply(const struct product *p)
{
    size_t v0 = 0;
    for (; v0 + NV <= p->nv; v0 += NV) panel(p, NV, v0);
    switch (p->nv - v0) {
#if defined(ZF_VEC_AVX512)
    case 3: panel(p, 3, v0); break;
    case 2: panel(p, 2, v0); break;
    case 1: panel(p, 1, v0); break;
#endif
    default: break;
    }
}

/* ---- blocks of rows ---- */

/* Rows first .. first + rows of one segment and one key/value head; row r is query r / group of head r % group of the group. */
struct block {
    const struct zf_segment *segment;
    size_t kv_head, rows, nv, stride;    /* nv vectors hold the rows; stride: block_rows(), the distance of two keys or dimensions */
    size_t head_dim, width;              /* width: head_dim padded, the distance of two rows */
    size_t query[ROWS], head[ROWS];      /* of each row, in the stream */
    size_t limit[ROWS];                  /* keys it sees; lanes without a row as the last row */
};

static void block_init(struct block *b, const struct zf_segment *s, size_t kv_head, size_t group, size_t head_dim, size_t index)
{
    size_t capacity = block_rows(head_dim), first = index * capacity;
    b->segment = s;
    b->kv_head = kv_head;
    b->stride = capacity;
    b->rows = least(capacity, s->q_count * group - first);
    b->nv = ceil_div(b->rows, VW);
    b->head_dim = head_dim;
    b->width = padded(head_dim);
    size_t query = first / group, member = first % group;
    for (size_t r = 0; r < b->rows; r++) {
        b->query[r] = s->q_begin + query;
        b->head[r] = kv_head * group + member;
        b->limit[r] = s->k_count - s->q_count + query + 1;
        if (++member == group) {
            member = 0;
            query++;
        }
    }
    for (size_t r = b->rows; r < b->nv * VW; r++) b->limit[r] = b->limit[b->rows - 1];
}

static size_t block_keys(const struct block *b)
{
    return b->limit[b->rows - 1];
}

static void transpose16(const float *from, size_t ld_from, float *to, size_t ld_to)
{
    for (size_t c = 0; c < VW; c++)
        for (size_t r = 0; r < VW; r++) to[c * ld_to + r] = from[r * ld_from + c];
}

/* rows and columns are multiples of VW */
static void transpose(const float *from, size_t ld_from, float *to, size_t ld_to, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r += VW)
        for (size_t c = 0; c < columns; c += VW) transpose16(from + r * ld_from + c, ld_from, to + c * ld_to + r, ld_to);
}

/* to[rows][width] = factor * the rows of x; zeros in lanes without a row and columns without a dimension. */
static void gather(const struct block *b, const elem *x, size_t ld, float factor, float *to)
{
    size_t whole = b->head_dim / VW * VW;
    vf f = vset(factor);
    for (size_t r = 0; r < b->rows; r++, to += b->width) {
        const elem *row = x + b->query[r] * ld + b->head[r] * b->head_dim;
        for (size_t d = 0; d < whole; d += VW) vstore(to + d, vmul(f, eload(row + d)));
        if (whole < b->head_dim) vstore(to + whole, vmul(f, eload_n(row + whole, b->head_dim - whole)));
    }
    memset(to, 0, (b->nv * VW - b->rows) * b->width * sizeof *to);
}

static void scatter(const struct block *b, const float *from, const float *factor, elem *x, size_t ld)
{
    size_t whole = b->head_dim / VW * VW;
    for (size_t r = 0; r < b->rows; r++, from += b->width) {
        elem *row = x + b->query[r] * ld + b->head[r] * b->head_dim;
        vf f = vset(factor[r]);
        for (size_t d = 0; d < whole; d += VW) estore(row + d, vmul(f, vload(from + d)));
        if (whole < b->head_dim) estore_n(row + whole, vmul(f, vload(from + whole)), b->head_dim - whole);
    }
}

/* Rows of keys or values in fp32. */
struct tile {
    const float *at;
    size_t ld;
};

/* rows x head_dim of x: as they lie, or a copy. */
static struct tile tile_of(const struct block *b, const elem *x, size_t ld, size_t rows, float *copy)
{
    size_t whole = b->head_dim / VW * VW;
    if (SAME) return (struct tile){(const float *)(const void *)x, ld};
    for (size_t r = 0; r < rows; r++, x += ld) {
        float *to = copy + r * b->width;
        for (size_t d = 0; d < whole; d += VW) vstore(to + d, eload(x + d));
        if (whole < b->head_dim) vstore(to + whole, eload_n(x + whole, b->head_dim - whole));
    }
    return (struct tile){copy, b->width};
}

/* Every key that a row does not see becomes `hidden`. keys tile: first .. first + count. */
static void mask(const struct block *b, float *s, size_t first, size_t count, float hidden)
{
    if (first + count <= b->limit[0]) return;
    for (size_t v = 0; v < b->nv; v++) {
        float limit[VW];
        for (size_t i = 0; i < VW; i++) {
            size_t l = b->limit[v * VW + i];
            limit[i] = l <= first ? 0 : (float)least(l - first, KEYS);
        }
        vf l = vload(limit), h = vset(hidden);
        for (size_t j = 0; j < count; j++) {
            float *p = s + j * b->stride + v * VW;
            vstore(p, vselect_lt(vset((float)j), l, vload(p), h));
        }
    }
}

/* ---- forward ---- */

/* The running softmax of a block: greatest score so far, sum of exp(score - greatest), and what older sums are to be multiplied with. */
struct running {
    float max[ROWS], sum[ROWS], scale[ROWS];
};

/* Scores of a tile become exp(score - max). Four keys at a time, each with its own maximum and sum, for the latency. */
static void soften(const struct block *b, struct running *run, float *s, size_t count)
{
    size_t even = ceil_div(count, 4) * 4;
    for (size_t j = count; j < even; j++)
        for (size_t v = 0; v < b->nv; v++) vstore(s + j * b->stride + v * VW, vset(-INFINITY));
    for (size_t v = 0; v < b->nv; v++) {
        float *p = s + v * VW;
        vf old = vload(run->max + v * VW), m[4] = {old, old, old, old}, sum[4] = {vzero(), vzero(), vzero(), vzero()};
        for (size_t j = 0; j < even; j += 4)
            for (size_t i = 0; i < 4; i++) m[i] = vmax(vload(p + (j + i) * b->stride), m[i]);
        vf max = vmax(vmax(m[0], m[1]), vmax(m[2], m[3]));
        for (size_t j = 0; j < even; j += 4) {
            for (size_t i = 0; i < 4; i++) {
                vf e = vexp(vsub(vload(p + (j + i) * b->stride), max));
                vstore(p + (j + i) * b->stride, e);
                sum[i] = vadd(sum[i], e);
            }
        }
        vf scale = vexp(vsub(old, max)), tile = vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3]));
        vstore(run->max + v * VW, max);
        vstore(run->scale + v * VW, scale);
        vstore(run->sum + v * VW, vfma(vload(run->sum + v * VW), scale, tile));
    }
}

static void attend(const struct zf_attention_args *a, const struct block *b)
{
    _Alignas(64) float rows[TILE], q[TILE], o[TILE], s[KEYS * ROWS], copy[SAME ? 1 : KEYS * ZF_HEAD_DIM_MAX];
    struct running run;
    const elem *k = (const elem *)a->k + b->segment->k_begin * a->ldkv + b->kv_head * a->head_dim;
    const elem *v = (const elem *)a->v + b->segment->k_begin * a->ldkv + b->kv_head * a->head_dim;
    size_t keys = block_keys(b);

    gather(b, a->q, a->ldq, a->scale, rows);
    transpose(rows, b->width, q, b->stride, b->nv * VW, b->width);
    memset(o, 0, b->width * b->stride * sizeof *o);
    for (size_t r = 0; r < ROWS; r++) {
        run.max[r] = -FLT_MAX; /* not -infinity: rows whose first scores are all -infinity */
        run.sum[r] = 0;
    }
    for (size_t first = 0; first < keys; first += KEYS) {
        size_t count = least(KEYS, keys - first);
        struct tile t = tile_of(b, k + first * a->ldkv, a->ldkv, count, copy);
        multiply(&(struct product){.a = t.at, .am = t.ld, .ak = 1, .b = q, .ldb = b->stride, .c = s, .ldc = b->stride,
                                   .m = count, .nv = b->nv, .k = a->head_dim, .last = VW, .start = SET});
        mask(b, s, first, count, -INFINITY);
        soften(b, &run, s, count);
        t = tile_of(b, v + first * a->ldkv, a->ldkv, count, copy);
        multiply(&(struct product){.a = t.at, .am = 1, .ak = t.ld, .b = s, .ldb = b->stride, .c = o, .ldc = b->stride,
                                   .m = a->head_dim, .nv = b->nv, .k = count, .last = VW, .start = SCALE, .scale = run.scale});
    }
    transpose(o, b->stride, rows, b->width, b->width, b->nv * VW);
    for (size_t r = 0; r < b->rows; r++) {
        run.scale[r] = 1 / run.sum[r];
        if (a->lse) a->lse[b->query[r] * a->heads + b->head[r]] = (float)((double)run.max[r] + log((double)run.sum[r]));
    }
    scatter(b, rows, run.scale, a->o, a->ldo);
}

static size_t attention_tasks(const void *args)
{
    const struct zf_attention_args *a = args;
    struct share share;
    if (!a->kv_heads || !a->head_dim) return 0;
    return find_share(a, block_rows(a->head_dim), SIZE_MAX, &share) * a->kv_heads;
}

static void attention_run(const void *args, size_t task)
{
    const struct zf_attention_args *a = args;
    struct share share = {0};
    struct block b;
    find_share(a, block_rows(a->head_dim), task / a->kv_heads, &share);
    for (size_t i = share.first; i < share.end; i++) {
        if (!a->segments[i].q_count) continue;
        block_init(&b, &a->segments[i], task % a->kv_heads, a->heads / a->kv_heads, a->head_dim, share.index);
        attend(a, &b);
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_attention) = {attention_tasks, attention_run};

/* ---- backward ---- */

enum want { WANT_Q = 1, WANT_KV = 2 };

/* Queries and what belongs to them, as products need them: rows in the lanes (transposed) and dimensions in the lanes. */
struct gradient {
    _Alignas(64) float q[TILE], q_rows[TILE], do_[TILE], do_rows[TILE], dq[TILE], p[KEYS * ROWS], ds[KEYS * ROWS];
    _Alignas(64) float key[SAME ? 1 : KEYS * ZF_HEAD_DIM_MAX], value[SAME ? 1 : KEYS * ZF_HEAD_DIM_MAX];
    float delta[ROWS], lse[ROWS];
};

/* Where the gradients of keys first, first + 1, ... are summed, and the distance of two of them. */
struct sums {
    float *dk, *dv;
    size_t first, ld;
};

/* delta = sum over dimensions of dO * O, of each row: as cheap to have anew as to keep in args->delta. dq holds O for the while. */
static void gradient_init(struct gradient *g, const struct zf_attention_backward_args *a, const struct block *b)
{
    memset(g->delta, 0, sizeof g->delta);
    memset(g->lse, 0, sizeof g->lse);
    gather(b, a->o, a->ldo, 1, g->dq);
    gather(b, a->do_, a->lddo, 1, g->do_rows);
    gather(b, a->q, a->ldq, a->scale, g->q_rows);
    for (size_t r = 0; r < b->rows; r++) {
        vf sum = vzero();
        const float *o = g->dq + r * b->width, *d_o = g->do_rows + r * b->width;
        for (size_t d = 0; d < b->width; d += VW) sum = vfma(vload(o + d), vload(d_o + d), sum);
        g->delta[r] = vsum(sum);
        g->lse[r] = a->lse[b->query[r] * a->heads + b->head[r]];
    }
    transpose(g->do_rows, b->width, g->do_, b->stride, b->nv * VW, b->width);
    transpose(g->q_rows, b->width, g->q, b->stride, b->nv * VW, b->width);
    memset(g->dq, 0, b->width * b->stride * sizeof *g->dq);
}

static void probabilities(struct gradient *g, const struct block *b, size_t first, size_t count)
{
    for (size_t v = 0; v < b->nv; v++) {
        vf lse = vload(g->lse + v * VW);
        for (size_t j = 0; j < count; j++) {
            float *p = g->p + j * b->stride + v * VW;
            vstore(p, vexp(vsub(vload(p), lse)));
        }
    }
    mask(b, g->p, first, count, 0);
}

/* dS = P * (dP - delta) */
static void score_gradients(struct gradient *g, const struct block *b, size_t count)
{
    for (size_t v = 0; v < b->nv; v++) {
        vf delta = vload(g->delta + v * VW);
        for (size_t j = 0; j < count; j++) {
            float *ds = g->ds + j * b->stride + v * VW;
            vstore(ds, vmul(vload(g->p + j * b->stride + v * VW), vsub(vload(ds), delta)));
        }
    }
}

/* What the rows of b and keys first .. end give: adds to sums (WANT_KV) and stores dq (WANT_Q: all keys must be there). */
static void differentiate(const struct zf_attention_backward_args *a, const struct block *b, const struct sums *sums, size_t first,
    size_t end, unsigned want)
{
    struct gradient g;
    size_t at = b->segment->k_begin * a->ldkv + b->kv_head * a->head_dim;
    size_t columns = b->width / VW, last = SAME ? a->head_dim - (columns - 1) * VW : VW;

    end = least(end, block_keys(b));
    if (first >= end) return;
    gradient_init(&g, a, b);
    for (; first < end; first += KEYS) {
        size_t count = least(KEYS, end - first);
        struct tile k = tile_of(b, (const elem *)a->k + at + first * a->ldkv, a->ldkv, count, g.key);
        struct tile v = tile_of(b, (const elem *)a->v + at + first * a->ldkv, a->ldkv, count, g.value);
        struct product by_key = {.am = k.ld, .ak = 1, .ldb = b->stride, .ldc = b->stride,
                                 .m = count, .nv = b->nv, .k = a->head_dim, .last = VW, .start = SET};
        struct product to_key = {.am = b->stride, .ak = 1, .ldb = b->width, .ldc = sums->ld,
                                 .m = count, .nv = columns, .k = b->rows, .last = last, .start = ADD};
        by_key.a = k.at, by_key.b = g.q, by_key.c = g.p;
        multiply(&by_key);
        probabilities(&g, b, first, count);
        by_key.a = v.at, by_key.b = g.do_, by_key.c = g.ds;
        multiply(&by_key);
        score_gradients(&g, b, count);
        if (want & WANT_KV) {
            to_key.a = g.p, to_key.b = g.do_rows, to_key.c = sums->dv + (first - sums->first) * sums->ld;
            multiply(&to_key);
            to_key.a = g.ds, to_key.b = g.q_rows, to_key.c = sums->dk + (first - sums->first) * sums->ld;
            multiply(&to_key);
        }
        if (want & WANT_Q)
            multiply(&(struct product){.a = k.at, .am = 1, .ak = k.ld, .b = g.ds, .ldb = b->stride, .c = g.dq, .ldc = b->stride,
                                       .m = a->head_dim, .nv = b->nv, .k = count, .last = VW, .start = ADD});
    }
    if (!(want & WANT_Q)) return;
    float scale[ROWS];
    for (size_t r = 0; r < ROWS; r++) scale[r] = a->scale;
    transpose(g.dq, b->stride, g.q_rows, b->width, b->width, b->nv * VW);
    scatter(b, g.q_rows, scale, a->dq, a->lddq);
}

/* Where the gradients of keys first .. end are summed: where they will be, or in `room`. All zero. */
static struct sums sums_open(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head, size_t first,
    size_t end, float *room_k, float *room_v)
{
    size_t at = (s->k_begin + first) * a->lddkv + kv_head * a->head_dim, width = SAME ? a->head_dim : padded(a->head_dim);
    struct sums sums = {room_k, room_v, first, width};
    if (SAME) sums = (struct sums){(float *)a->dk + at, (float *)a->dv + at, first, a->lddkv};
    for (size_t j = 0; j < end - first; j++) {
        memset(sums.dk + j * sums.ld, 0, width * sizeof(float));
        memset(sums.dv + j * sums.ld, 0, width * sizeof(float));
    }
    return sums;
}

static void sums_close(const struct zf_attention_backward_args *a, const struct zf_segment *s, const struct sums *sums, size_t kv_head,
    size_t end)
{
    size_t whole = a->head_dim / VW * VW, rest = a->head_dim - whole;
    if (SAME) return;
    for (size_t j = sums->first; j < end; j++) {
        size_t to = (s->k_begin + j) * a->lddkv + kv_head * a->head_dim, from = (j - sums->first) * sums->ld;
        elem *dk = (elem *)a->dk + to, *dv = (elem *)a->dv + to;
        for (size_t d = 0; d < whole; d += VW) {
            estore(dk + d, vload(sums->dk + from + d));
            estore(dv + d, vload(sums->dv + from + d));
        }
        if (!rest) continue;
        estore_n(dk + whole, vload(sums->dk + from + whole), rest);
        estore_n(dv + whole, vload(sums->dv + from + whole), rest);
    }
}

/* With many segments and heads a task is all of a segment and key/value head. With few, that would leave processors idle, and a task is
 * either a block of queries, for dq, or SPAN keys, for dk and dv: the probabilities are computed twice, 7 products instead of 5. */
enum { FEW = 8, SPAN = 2 * KEYS };

static size_t whole_tasks(const struct zf_attention_backward_args *a)
{
    return a->segment_count * a->kv_heads;
}

static size_t query_blocks(const struct zf_attention_backward_args *a, const struct zf_segment *s)
{
    return ceil_div(s->q_count * (a->heads / a->kv_heads), block_rows(a->head_dim));
}

static size_t attention_backward_tasks(const void *args)
{
    const struct zf_attention_backward_args *a = args;
    size_t n = 0;
    if (!a->kv_heads || !a->head_dim) return 0;
    if (whole_tasks(a) >= FEW) return whole_tasks(a);
    for (size_t i = 0; i < a->segment_count; i++) n += query_blocks(a, &a->segments[i]) + ceil_div(a->segments[i].k_count, SPAN);
    return n * a->kv_heads;
}

static void backward_range(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head, size_t block,
    size_t block_end, size_t first, size_t end, unsigned want)
{
    _Alignas(64) float room_k[SUMS], room_v[SUMS];
    struct sums sums = {0};
    struct block b;
    if (want & WANT_KV) sums = sums_open(a, s, kv_head, first, end, room_k, room_v);
    for (; block < block_end; block++) {
        block_init(&b, s, kv_head, a->heads / a->kv_heads, a->head_dim, block);
        differentiate(a, &b, &sums, first, end, want);
    }
    if (want & WANT_KV) sums_close(a, s, &sums, kv_head, end);
}

/* All of a segment and key/value head. More keys than there is room for the sums of: dq by itself, and the keys in parts. */
static void backward_whole(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head)
{
    size_t blocks = query_blocks(a, s), room = SAME ? s->k_count : SUMS / padded(a->head_dim) / KEYS * KEYS;
    if (s->k_count <= room) {
        backward_range(a, s, kv_head, 0, blocks, 0, s->k_count, WANT_Q | WANT_KV);
        return;
    }
    backward_range(a, s, kv_head, 0, blocks, 0, s->k_count, WANT_Q);
    for (size_t first = 0; first < s->k_count; first += room)
        backward_range(a, s, kv_head, 0, blocks, first, least(s->k_count, first + room), WANT_KV);
}

static void attention_backward_run(const void *args, size_t task)
{
    const struct zf_attention_backward_args *a = args;
    const struct zf_segment *s = a->segments;
    size_t kv_head = task % a->kv_heads, left = task / a->kv_heads;
    if (whole_tasks(a) >= FEW) {
        backward_whole(a, s + left, kv_head);
        return;
    }
    for (;; s++) {
        size_t blocks = query_blocks(a, s), spans = ceil_div(s->k_count, SPAN);
        if (left < blocks) {
            backward_range(a, s, kv_head, left, left + 1, 0, s->k_count, WANT_Q);
            return;
        }
        left -= blocks;
        if (left < spans) {
            backward_range(a, s, kv_head, 0, blocks, left * SPAN, least(s->k_count, (left + 1) * SPAN), WANT_KV);
            return;
        }
        left -= spans;
    }
}

const struct zf_host_kernel ZF_PATH(zf_host_attention_backward) = {attention_backward_tasks, attention_backward_run};
