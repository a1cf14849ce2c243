/* The forward of attention in bf16 by AMX's tiles (attention_amx.h).
 *
 * The softmax runs in powers of 2. What is subtracted from the scores of a row is the greatest so far only roughly: it follows when a score
 * is more than 2^8 times as probable, so that sums of outputs are rarely rescaled.
 *
 * Stack: under 512 KiB a task. */
#include "kernels/host/attention_amx.h"

#include <float.h>

extern const struct zf_host_kernel zf_host_attention_avx512_bf16; /* where a scale is not positive: the greatest score is taken unscaled */

static size_t steps_of(size_t head_dim)
{
    return ceil_div(head_dim, DEEP);
}

/* As many rows as make the copies of keys and values cheap, and fit into the cache. */
static size_t block_capacity(size_t head_dim)
{
    return least(ROWS, ROWS * 2 / steps_of(head_dim) / DEEP * DEEP);
}

enum { OPERANDS = ROWS / SIDE * 2 }; /* tiles of the rows of a block: no more for wider heads */

/* Of each row: what is subtracted from its scores, and the sum of what is left of them. */
struct running {
    _Alignas(64) float base[ROWS], sum[ROWS];
};

/* Scores of 16 rows, every second of `tiles` tiles of s, become -infinity where a row does not see the key. */
static void hide(const struct block *b, size_t row, size_t first, tile *s, size_t tiles)
{
    size_t seen = b->limit[row] > first ? b->limit[row] - first : 0;
    if (seen >= tiles * SIDE) return;
    __m512i limits = block_limits(b, row, first);
    for (size_t j = seen; j < tiles * SIDE; j++) {
        char *at = tile_row(s + j / SIDE * 2, j % SIDE);
        _mm512_mask_store_ps(at, _mm512_cmple_epi32_mask(limits, _mm512_set1_epi32((int32_t)j)), vset(-INFINITY));
    }
}

/* Follows the greatest of the scores; o: the sums of the rows, or NULL. */
static void rebase(struct running *run, size_t row, const tile *s, size_t tiles, float scale, tile *o, size_t o_tiles)
{
    vf m[4], base = vload(run->base + row);
    for (size_t i = 0; i < 4; i++) m[i] = vset(-INFINITY);
    for (size_t t = 0; t < tiles; t++)
        for (size_t r = 0; r < SIDE; r++) m[r % 4] = vmax(tile_floats(s + t * 2, r), m[r % 4]);
    vf top = vmul(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])), vset(scale));
    __mmask16 far = _mm512_cmp_ps_mask(top, vadd(base, vset(8)), _CMP_GT_OQ);
    if (!far) return;
    vf to = _mm512_mask_blend_ps(far, base, top), factor = power_of_2(vsub(base, to));
    vstore(run->base + row, to);
    vstore(run->sum + row, vmul(vload(run->sum + row), factor));
    for (size_t t = 0; o && t < o_tiles; t++)
        for (size_t r = 0; r < SIDE; r++) _mm512_store_ps(tile_row(o + t, r), vmul(tile_floats(o + t, r), factor));
}

/* Scores to probabilities, in pairs of keys. */
static void soften(struct running *run, size_t row, const tile *s, tile *p, size_t tiles, float scale)
{
    vf base = vload(run->base + row), sum[4], f = vset(scale);
    for (size_t i = 0; i < 4; i++) sum[i] = vzero();
    for (size_t t = 0; t < tiles; t++) {
        char *to = tile_row(p + t / 2 * 2, t % 2 * (SIDE / 2));
        for (size_t r = 0; r < SIDE; r += 4) {
            vf e[4];
            for (size_t i = 0; i < 4; i++) {
                e[i] = power_of_2(_mm512_fmsub_ps(tile_floats(s + t * 2, r + i), f, base));
                sum[i] = vadd(sum[i], e[i]);
            }
            _mm512_store_si512(to + r * 32, pair_halves(narrow(e[0], e[1])));
            _mm512_store_si512(to + r * 32 + 64, pair_halves(narrow(e[2], e[3])));
        }
    }
    vstore(run->sum + row, vadd(vload(run->sum + row), vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3]))));
}

static void load_queries(const struct zf_attention_args *a, const struct block *b, tile *q)
{
    const uint16_t *at[ROWS];
    size_t steps = steps_of(a->head_dim);
    for (size_t r = 0; r < b->count; r++) at[r] = (const uint16_t *)a->q + block_place(b, r, a->ldq);
    for (size_t t = 0; t < ceil_div(b->count, SIDE); t++) {
        for (size_t i = 0; i < steps; i++) {
            tile rows;
            copy_tile(&(struct rows){at, b->count, a->head_dim}, t * SIDE, i * DEEP, &rows);
            transpose_tile(&rows, q + t * steps + i);
        }
    }
}

/* count keys from the one that k and v begin with: keys as they lie, values transposed. */
static void load_keys(const struct zf_attention_args *a, const uint16_t *k, const uint16_t *v, size_t count, tile *keys, tile *values)
{
    const uint16_t *at_k[KEYS], *at_v[KEYS];
    size_t steps = steps_of(a->head_dim);
    for (size_t j = 0; j < count; j++) {
        at_k[j] = k + j * a->ldkv;
        at_v[j] = v + j * a->ldkv;
    }
    for (size_t j = 0; j < count; j += DEEP) {
        for (size_t i = 0; i < steps; i++) {
            tile rows[2], *to = values + j / DEEP * 2 * steps + i * 2;
            for (size_t half = 0; half < 2; half++) {
                size_t row = j + half * SIDE;
                copy_tile(&(struct rows){at_k, count, a->head_dim}, row, i * DEEP, keys + row / SIDE * steps + i);
                copy_tile(&(struct rows){at_v, count, a->head_dim}, row, i * DEEP, &rows[half]);
            }
            transpose_rows(&rows[0], &rows[1], to, to + 1);
        }
    }
}

/* log2 x within 1e-7; -infinity for 0, NaN for NaN. */
static vf log_of_2(vf x)
{
    static const float c[] = {-0.09087903052568436f, 0.2012806087732315f,  -0.25194206833839417f, 0.29080623388290405f,
                              -0.36026105284690857f, 0.48080193996429443f, -0.7213521003723145f,  1.4426958560943604f};
    vf m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src), n = _mm512_getexp_ps(x), r = vsub(m, vset(1)), p = vset(c[0]);
    for (size_t i = 1; i < sizeof c / sizeof *c; i++) p = vfma(p, r, vset(c[i]));
    return vfma(p, r, vselect_lt(m, vset(1), vadd(n, vset(1)), n));
}

static void store_outputs(const struct zf_attention_args *a, const struct block *b, const struct running *run, const tile *o)
{
    size_t steps = steps_of(a->head_dim);
    for (size_t row = 0; row < b->count; row += SIDE, o += 2 * steps) {
        uint16_t *to[SIDE] = {NULL};
        float lse[SIDE];
        vf sum = vload(run->sum + row), factor = vdiv(vset(1), sum);
        vstore(lse, vmul(vadd(vload(run->base + row), log_of_2(sum)), vset((float)M_LN2)));
        for (size_t r = row; r < least(b->count, row + SIDE); r++) {
            to[r - row] = (uint16_t *)a->o + block_place(b, r, a->ldo);
            if (a->lse) a->lse[b->query[r] * a->heads + b->head[r]] = lse[r - row];
        }
        for (size_t i = 0; i < steps; i++) store_columns(o + i * 2, o + i * 2 + 1, factor, to, a->head_dim, i * DEEP);
    }
}

static void attend(const struct zf_attention_args *a, const struct zf_segment *segment, const struct block *b)
{
    tile q[OPERANDS], o[OPERANDS * 2], keys[KEYS / SIDE * STEPS], values[KEYS / SIDE * STEPS], s[KEYS / SIDE * 2], p[KEYS / DEEP * 2];
    struct running run;
    size_t steps = steps_of(a->head_dim), tiles = ceil_div(b->count, SIDE), end = b->limit[b->count - 1];
    size_t at = segment->k_begin * a->ldkv + b->kv_head * a->head_dim;
    float scale = a->scale * (float)M_LOG2E;

    load_queries(a, b, q);
    for (size_t r = 0; r < tiles * SIDE; r++) {
        run.base[r] = -FLT_MAX;
        run.sum[r] = 0;
    }
    for (size_t first = 0; first < end; first += KEYS) {
        size_t count = least(KEYS, end - first), from = at + first * a->ldkv;
        load_keys(a, (const uint16_t *)a->k + from, (const uint16_t *)a->v + from, count, keys, values);
        for (size_t t = 0; t < tiles; t += 2) {
            size_t n = least(2, tiles - t), limit = b->limit[least(b->count, (t + 2) * SIDE) - 1];
            if (limit <= first) continue;
            size_t deep = ceil_div(least(count, limit - first), DEEP);
            multiply(&(struct product){.c = s,
                                       .c_row = 2,
                                       .c_col = 1,
                                       .a = keys,
                                       .a_row = steps,
                                       .a_step = 1,
                                       .b = q + t * steps,
                                       .b_col = steps,
                                       .b_step = 1,
                                       .m = deep * 2,
                                       .n = n,
                                       .k = steps});
            for (size_t h = 0; h < n; h++) {
                size_t row = (t + h) * SIDE;
                hide(b, row, first, s + h, deep * 2);
                rebase(&run, row, s + h, deep * 2, scale, first ? o + (t + h) * steps * 2 : NULL, steps * 2);
                soften(&run, row, s + h, p + h, deep * 2, scale);
            }
            multiply(&(struct product){.c = o + t * steps * 2,
                                       .c_row = 1,
                                       .c_col = steps * 2,
                                       .a = values,
                                       .a_row = 1,
                                       .a_step = steps * 2,
                                       .b = p,
                                       .b_col = 1,
                                       .b_step = 2,
                                       .m = steps * 2,
                                       .n = n,
                                       .k = deep,
                                       .add = first > 0});
        }
    }
    store_outputs(a, b, &run, o);
}

static size_t attention_tasks(const void *args)
{
    const struct zf_attention_args *a = args;
    struct share share;
    if (!a->kv_heads || !a->head_dim) return 0;
    if (!(a->scale > 0)) return zf_host_attention_avx512_bf16.tasks(args);
    return find_share(a, block_capacity(a->head_dim), SIZE_MAX, &share) * a->kv_heads;
}

static void attention_run(const void *args, size_t task)
{
    const struct zf_attention_args *a = args;
    struct share share = {0};
    struct block b;
    size_t group = a->heads / a->kv_heads, capacity = block_capacity(a->head_dim);
    if (!(a->scale > 0)) {
        zf_host_attention_avx512_bf16.run(args, task);
        return;
    }
    find_share(a, capacity, task / a->kv_heads, &share);
    tiles_open();
    for (size_t i = share.first; i < share.end; i++) {
        const struct zf_segment *s = &a->segments[i];
        size_t row = share.index * capacity;
        if (!s->q_count) continue;
        block_init(&b, s, task % a->kv_heads, group, a->head_dim, row, least(capacity, s->q_count * group - row));
        attend(a, s, &b);
    }
    tiles_close();
}

const struct zf_host_kernel zf_host_attention_amx = {attention_tasks, attention_run};
