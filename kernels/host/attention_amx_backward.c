/* The backward of attention in bf16 by AMX's tiles (attention_amx.h).
 *
 *     dV[key] = P[key][:] . dO   dK[key] = dS[key][:] . Q   dQ'[:][row] = K'[:][key] . dS[:][row]   dS = P * (V dO' - delta)
 *
 * Probabilities come from lse anew. Sums of a key run over rows in their order, those of a row over keys in theirs, 32 at a time: cutting
 * the work otherwise would not change the bits. Stack: under 1 MiB a task. */
#include "kernels/host/attention_amx.h"

#include <stdlib.h>

enum {
    STRIP = 32,                  /* rows whose scores are held at a time */
    BLOCK = ROWS / 2,            /* rows of a block at most */
    OPERANDS = BLOCK / SIDE * 2, /* tiles of the rows of a block: no more for wider heads */
    SUMS = 256,                  /* tiles of sums of keys on the stack */
    FEW = 8,                     /* segments and heads that are too few to be the tasks */
    SPAN = 512,                  /* then a task has that many keys */
};

enum want { WANT_Q = 1, WANT_KV = 2 };

static size_t steps_of(size_t head_dim)
{
    return ceil_div(head_dim, DEEP);
}

static size_t block_capacity(size_t head_dim)
{
    return least(BLOCK, BLOCK * 2 / steps_of(head_dim) / STRIP * STRIP);
}

/* What belongs to the rows of a block. by_dim: what is multiplied over dimensions; by_row: over rows. dq has the rows of a strip in the
 * order that strip_row() tells. */
struct gradient {
    tile q_by_dim[OPERANDS], do_by_dim[OPERANDS], q_by_row[OPERANDS], do_by_row[OPERANDS], dq[OPERANDS * 2];
    tile p[KEYS / SIDE * BLOCK / STRIP], ds[KEYS / SIDE * BLOCK / STRIP];
    _Alignas(64) float lse[BLOCK], delta[BLOCK];
};

/* KEYS of them: as they lie, and transposed. */
struct keys {
    tile k[KEYS / SIDE * STEPS], v[KEYS / SIDE * STEPS], k_transposed[KEYS / SIDE * STEPS];
};

/* The gradients of keys first, first + 1, ...: 2 * steps tiles for 16 of them. */
struct sums {
    tile *dk, *dv;
    size_t first;
};

static size_t strip_row(size_t half, size_t lane)
{
    return lane / 4 * 8 + half * 4 + lane % 4;
}

static void load_matrix(const struct rows *x, tile *by_dim, tile *by_row)
{
    size_t steps = steps_of(x->head_dim);
    for (size_t row = 0; row < x->count; row += STRIP) {
        for (size_t i = 0; i < steps; i++) {
            tile rows[2], *to = by_row + row / STRIP * steps * 2 + i * 2;
            for (size_t half = 0; half < 2; half++) {
                copy_tile(x, row + half * SIDE, i * DEEP, &rows[half]);
                transpose_tile(&rows[half], by_dim + (row / SIDE + half) * steps + i);
            }
            pair_rows(&rows[0], &rows[1], to, to + 1);
        }
    }
}

static float dot(const uint16_t *x, const uint16_t *y, size_t n)
{
    vf sum = vzero();
    for (size_t i = 0; i < n; i += DEEP) {
        __mmask32 mask = columns(n, i);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_maskz_loadu_epi16(mask, x + i), (__m512bh)_mm512_maskz_loadu_epi16(mask, y + i));
    }
    return _mm512_reduce_add_ps(sum);
}

/* delta = sum over dimensions of dO * O: as cheap to have anew as to keep in args->delta. */
static void gradient_init(struct gradient *g, const struct zf_attention_backward_args *a, const struct block *b)
{
    const uint16_t *q[BLOCK], *d_o[BLOCK];
    memset(g->lse, 0, sizeof g->lse);
    memset(g->delta, 0, sizeof g->delta);
    for (size_t r = 0; r < b->count; r++) {
        q[r] = (const uint16_t *)a->q + block_place(b, r, a->ldq);
        d_o[r] = (const uint16_t *)a->do_ + block_place(b, r, a->lddo);
        g->delta[r] = dot(d_o[r], (const uint16_t *)a->o + block_place(b, r, a->ldo), a->head_dim);
        g->lse[r] = a->lse[b->query[r] * a->heads + b->head[r]] * (float)M_LOG2E;
    }
    load_matrix(&(struct rows){q, b->count, a->head_dim}, g->q_by_dim, g->q_by_row);
    load_matrix(&(struct rows){d_o, b->count, a->head_dim}, g->do_by_dim, g->do_by_row);
}

/* count keys from the one that k and v begin with. */
static void load_keys(const struct zf_attention_backward_args *a, const uint16_t *k, const uint16_t *v, size_t count, struct keys *to,
                      unsigned want)
{
    const uint16_t *at_k[KEYS], *at_v[KEYS];
    size_t steps = steps_of(a->head_dim);
    for (size_t j = 0; j < count; j++) {
        at_k[j] = k + j * a->ldkv;
        at_v[j] = v + j * a->ldkv;
    }
    for (size_t j = 0; j < count; j += DEEP) {
        for (size_t i = 0; i < steps; i++) {
            tile *rows = to->k + j / SIDE * steps + i, *transposed = to->k_transposed + j / DEEP * 2 * steps + i * 2;
            for (size_t half = 0; half < 2; half++) {
                size_t row = j + half * SIDE;
                copy_tile(&(struct rows){at_k, count, a->head_dim}, row, i * DEEP, rows + half * steps);
                copy_tile(&(struct rows){at_v, count, a->head_dim}, row, i * DEEP, to->v + row / SIDE * steps + i);
            }
            if (want & WANT_Q) transpose_rows(rows, rows + steps, transposed, transposed + 1);
        }
    }
}

/* The scores of a strip and the gradients of its probabilities, in pairs of tiles of 16 keys. */
struct strip {
    const tile *s, *dp;
    tile *p, *ds; /* of keys by rows, `apart` tiles to the next 16 keys (WANT_KV) */
    tile *pairs;  /* dS in pairs of keys (WANT_Q) */
    size_t apart, tiles;
    const float *lse, *delta;
    __m512i limits[2]; /* of a masked strip */
    float scale;
};

ALWAYS void softmax_gradient(const struct strip *x, const unsigned want, const bool masked)
{
    vf scale = vset(x->scale), lse[2] = {vload(x->lse), vload(x->lse + SIDE)}, delta[2] = {vload(x->delta), vload(x->delta + SIDE)};
    for (size_t t = 0; t < x->tiles; t++) {
        const tile *s = x->s + t * 2, *dp = x->dp + t * 2;
        for (size_t r = 0; r < SIDE; r += 2) {
            __m512i ds[2];
            for (size_t key = 0; key < 2; key++) {
                vf e[2], d[2];
                __m512i index = _mm512_set1_epi32((int32_t)(t * SIDE + r + key));
                for (size_t h = 0; h < 2; h++) {
                    e[h] = power_of_2(_mm512_fmsub_ps(tile_floats(s + h, r + key), scale, lse[h]));
                    d[h] = vmul(e[h], vsub(tile_floats(dp + h, r + key), delta[h]));
                    if (!masked) continue;
                    __mmask16 seen = _mm512_cmpgt_epi32_mask(x->limits[h], index);
                    e[h] = _mm512_maskz_mov_ps(seen, e[h]);
                    d[h] = _mm512_maskz_mov_ps(seen, d[h]);
                }
                ds[key] = narrow(d[0], d[1]);
                if (!(want & WANT_KV)) continue;
                _mm512_store_si512(tile_row(x->p + t * x->apart, r + key), narrow(e[0], e[1]));
                _mm512_store_si512(tile_row(x->ds + t * x->apart, r + key), ds[key]);
            }
            if (!(want & WANT_Q)) continue;
            char *to = tile_row(x->pairs + t / 2 * 2, t % 2 * (SIDE / 2) + r / 2);
            _mm512_store_si512(to, _mm512_unpacklo_epi16(ds[0], ds[1]));
            _mm512_store_si512(to + sizeof(tile), _mm512_unpackhi_epi16(ds[0], ds[1]));
        }
    }
}

static void differentiate_strip(const struct strip *x, unsigned want, bool masked)
{
    switch (want * 2 + masked) {
    case WANT_Q * 2: softmax_gradient(x, WANT_Q, false); break;
    case WANT_Q * 2 + 1: softmax_gradient(x, WANT_Q, true); break;
    case WANT_KV * 2: softmax_gradient(x, WANT_KV, false); break;
    case WANT_KV * 2 + 1: softmax_gradient(x, WANT_KV, true); break;
    case (WANT_Q | WANT_KV) * 2: softmax_gradient(x, WANT_Q | WANT_KV, false); break;
    default: softmax_gradient(x, WANT_Q | WANT_KV, true); break;
    }
}

/* What strip `strip` of the block and count keys from `first` give. */
static void differentiate_rows(struct gradient *g, const struct block *b, const struct keys *keys, size_t strip, size_t first, size_t count,
                               float scale, bool add, unsigned want)
{
    tile s[KEYS / SIDE * 2], dp[KEYS / SIDE * 2], pairs[KEYS / DEEP * 2];
    size_t steps = steps_of(b->head_dim), row = strip * STRIP, strips = ceil_div(b->count, STRIP);
    size_t deep = ceil_div(least(count, b->limit[least(b->count, row + STRIP) - 1] - first), DEEP);
    struct product by_dim = {
        .c_row = 2, .c_col = 1, .a_row = steps, .a_step = 1, .b_col = steps, .b_step = 1, .m = deep * 2, .n = 2, .k = steps};
    by_dim.c = s, by_dim.a = keys->k, by_dim.b = g->q_by_dim + strip * 2 * steps;
    multiply(&by_dim);
    by_dim.c = dp, by_dim.a = keys->v, by_dim.b = g->do_by_dim + strip * 2 * steps;
    multiply(&by_dim);
    struct strip x = {.s = s,
                      .dp = dp,
                      .p = g->p + strip,
                      .ds = g->ds + strip,
                      .pairs = pairs,
                      .apart = strips,
                      .tiles = deep * 2,
                      .lse = g->lse + row,
                      .delta = g->delta + row,
                      .scale = scale};
    bool masked = first + deep * DEEP > b->limit[row] || row + STRIP > b->count;
    if (masked) x.limits[0] = block_limits(b, row, first), x.limits[1] = block_limits(b, row + SIDE, first);
    differentiate_strip(&x, want, masked);
    if (want & WANT_Q)
        multiply(&(struct product){.c = g->dq + strip * 4 * steps,
                                   .c_row = 1,
                                   .c_col = steps * 2,
                                   .a = keys->k_transposed,
                                   .a_row = 1,
                                   .a_step = steps * 2,
                                   .b = pairs,
                                   .b_col = 1,
                                   .b_step = 2,
                                   .m = steps * 2,
                                   .n = 2,
                                   .k = deep,
                                   .add = add});
}

/* Adds to the sums of count keys from `first` what the block gives. */
static void add_keys(const struct gradient *g, const struct block *b, const struct sums *sums, size_t first, size_t count)
{
    size_t steps = steps_of(b->head_dim), strips = ceil_div(b->count, STRIP), strip = 0;
    for (size_t j = 0; j < count; j += DEEP) {
        while (strip < strips && b->limit[least(b->count, (strip + 1) * STRIP) - 1] <= first + j) strip++;
        if (strip == strips) return;
        size_t from = (first + j - sums->first) / SIDE * steps * 2, at = j / SIDE * strips + strip;
        struct product p = {.c_row = steps * 2,
                            .c_col = 1,
                            .a_row = strips,
                            .a_step = 1,
                            .b_col = 1,
                            .b_step = steps * 2,
                            .m = 2,
                            .n = steps * 2,
                            .k = strips - strip,
                            .add = true};
        p.c = sums->dv + from, p.a = g->p + at, p.b = g->do_by_row + strip * steps * 2;
        multiply(&p);
        p.c = sums->dk + from, p.a = g->ds + at, p.b = g->q_by_row + strip * steps * 2;
        multiply(&p);
    }
}

static void store_queries(const struct zf_attention_backward_args *a, const struct block *b, const struct gradient *g)
{
    size_t steps = steps_of(a->head_dim);
    for (size_t t = 0; t < ceil_div(b->count, STRIP) * 2; t++) {
        uint16_t *to[SIDE] = {NULL};
        const tile *dq = g->dq + t * steps * 2;
        for (size_t lane = 0; lane < SIDE; lane++) {
            size_t row = t / 2 * STRIP + strip_row(t % 2, lane);
            if (row < b->count) to[lane] = (uint16_t *)a->dq + block_place(b, row, a->lddq);
        }
        for (size_t i = 0; i < steps; i++) store_columns(dq + i * 2, dq + i * 2 + 1, vset(a->scale), to, a->head_dim, i * DEEP);
    }
}

/* What the rows of b and keys first .. end give: adds to sums (WANT_KV) and stores dq (WANT_Q: all keys must be there). */
static void differentiate(const struct zf_attention_backward_args *a, const struct zf_segment *segment, const struct block *b,
                          const struct sums *sums, size_t first, size_t end, unsigned want)
{
    struct gradient g;
    struct keys keys;
    size_t at = segment->k_begin * a->ldkv + b->kv_head * a->head_dim;
    end = least(end, b->limit[b->count - 1]);
    if (first >= end) return;
    gradient_init(&g, a, b);
    for (size_t j = first; j < end; j += KEYS) {
        size_t count = least(KEYS, end - j), from = at + j * a->ldkv;
        load_keys(a, (const uint16_t *)a->k + from, (const uint16_t *)a->v + from, count, &keys, want);
        for (size_t strip = 0; strip < ceil_div(b->count, STRIP); strip++) {
            if (b->limit[least(b->count, (strip + 1) * STRIP) - 1] <= j) continue;
            differentiate_rows(&g, b, &keys, strip, j, count, a->scale * (float)M_LOG2E, j > first, want);
        }
        if (want & WANT_KV) add_keys(&g, b, sums, j, count);
    }
    if (want & WANT_Q) store_queries(a, b, &g);
}

static void store_keys(const struct zf_attention_backward_args *a, const struct zf_segment *s, const struct sums *sums, size_t kv_head,
                       size_t end)
{
    size_t steps = steps_of(a->head_dim);
    vf scale = vset(a->scale);
    for (size_t j = sums->first; j < end; j++) {
        size_t to = (s->k_begin + j) * a->lddkv + kv_head * a->head_dim, from = (j - sums->first) / SIDE * steps * 2;
        size_t r = (j - sums->first) % SIDE;
        for (size_t i = 0; i < steps; i++, from += 2) {
            __mmask32 mask = columns(a->head_dim, i * DEEP);
            const tile *dk = sums->dk + from, *dv = sums->dv + from;
            __m512i k = narrow(vmul(scale, tile_floats(dk, r)), vmul(scale, tile_floats(dk + 1, r)));
            _mm512_mask_storeu_epi16((uint16_t *)a->dk + to + i * DEEP, mask, k);
            _mm512_mask_storeu_epi16((uint16_t *)a->dv + to + i * DEEP, mask, narrow(tile_floats(dv, r), tile_floats(dv + 1, r)));
        }
    }
}

static size_t query_blocks(const struct zf_attention_backward_args *a, const struct zf_segment *s)
{
    return ceil_div(s->q_count * (a->heads / a->kv_heads), block_capacity(a->head_dim));
}

static void backward_blocks(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head, size_t block,
                            size_t block_end, const struct sums *sums, size_t first, size_t end, unsigned want)
{
    size_t group = a->heads / a->kv_heads, capacity = block_capacity(a->head_dim);
    struct block b;
    for (; block < block_end; block++) {
        size_t row = block * capacity;
        block_init(&b, s, kv_head, group, a->head_dim, row, least(capacity, s->q_count * group - row));
        differentiate(a, s, &b, sums, first, end, want);
    }
}

/* Gradients of keys first .. end, whose sums have room in `room`: twice sums_tiles(). */
static size_t sums_tiles(size_t head_dim, size_t keys)
{
    return ceil_div(keys, DEEP) * 2 * 2 * steps_of(head_dim);
}

static void backward_keys(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head, size_t first, size_t end,
                          tile *room, unsigned want)
{
    size_t tiles = sums_tiles(a->head_dim, end - first);
    struct sums sums = {room, room + tiles, first};
    memset(room, 0, 2 * tiles * sizeof *room);
    backward_blocks(a, s, kv_head, 0, query_blocks(a, s), &sums, first, end, want);
    store_keys(a, s, &sums, kv_head, end);
}

/* The same in parts that the stack has room for. */
static void backward_parts(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head, size_t first, size_t end)
{
    tile room[2 * SUMS];
    size_t part = SUMS / sums_tiles(a->head_dim, KEYS) * KEYS;
    for (; first < end; first += part) backward_keys(a, s, kv_head, first, least(end, first + part), room, WANT_KV);
}

/* All of a segment and key/value head; without memory for the sums of its keys, dq by itself and the keys in parts. */
static void backward_whole(const struct zf_attention_backward_args *a, const struct zf_segment *s, size_t kv_head)
{
    size_t tiles = sums_tiles(a->head_dim, s->k_count);
    tile *room = tiles < SIZE_MAX / 2 / sizeof *room ? aligned_alloc(64, 2 * tiles * sizeof *room) : NULL;
    if (room) {
        backward_keys(a, s, kv_head, 0, s->k_count, room, WANT_Q | WANT_KV);
        free(room);
        return;
    }
    backward_blocks(a, s, kv_head, 0, query_blocks(a, s), NULL, 0, s->k_count, WANT_Q);
    backward_parts(a, s, kv_head, 0, s->k_count);
}

/* With many segments and heads a task is all of a segment and key/value head. With few, that would leave processors idle, and a task is
 * either a block of queries, for dq, or SPAN keys, for dk and dv: the probabilities are computed twice, 7 products instead of 5. */
static size_t whole_tasks(const struct zf_attention_backward_args *a)
{
    return a->segment_count * a->kv_heads;
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

/* The longest first: spans, whose first sees the most queries, then blocks, the last of which sees the most keys. */
static void run_part(const struct zf_attention_backward_args *a, size_t kv_head, size_t left)
{
    for (const struct zf_segment *s = a->segments;; s++) {
        size_t blocks = query_blocks(a, s), spans = ceil_div(s->k_count, SPAN);
        if (left < spans) {
            backward_parts(a, s, kv_head, left * SPAN, least(s->k_count, (left + 1) * SPAN));
            return;
        }
        left -= spans;
        if (left < blocks) {
            backward_blocks(a, s, kv_head, blocks - 1 - left, blocks - left, NULL, 0, s->k_count, WANT_Q);
            return;
        }
        left -= blocks;
    }
}

static void attention_backward_run(const void *args, size_t task)
{
    const struct zf_attention_backward_args *a = args;
    tiles_open();
    if (whole_tasks(a) >= FEW)
        backward_whole(a, &a->segments[task / a->kv_heads], task % a->kv_heads);
    else
        run_part(a, task % a->kv_heads, task / a->kv_heads);
    tiles_close();
}

const struct zf_host_kernel zf_host_attention_backward_amx = {attention_backward_tasks, attention_backward_run};
