/* Attention in bf16 by AMX's tiles: what its forward and its backward share with each other, and with who chooses it.
 *
 * A tile is 16 x 64 bytes, and memory here is made of tiles: whatever is multiplied is first copied into them, zeros for what is not there,
 * so that no product has an edge. A product C += A B has 16 x 32 numbers of A a tile, 16 x 16 sums of C (fp32), and of B 32 x 16 numbers as
 * 16 rows of pairs: B[2i][n], B[2i+1][n]. As in attention.c a row is one query of one head and the rows of a block share a key/value head;
 * in C the rows are the columns, so that the softmax has no sum across lanes:
 *
 *     S[key][row] = K[key][:] . Q'[:][row]      O'[dim][row] = V'[dim][:] . P[:][row]
 *
 * Probabilities and gradients of scores are rounded to bf16 as operands of the second product, as every flash attention in bf16 does;
 * all sums are fp32, outputs are rounded once. Tiles take denormals for zero. So the bits differ from attention.c's, and they depend on
 * nothing but the inputs: not on the threads, nor on how rows are cut into blocks. */
#ifndef ZF_HOST_ATTENTION_AMX_H
#define ZF_HOST_ATTENTION_AMX_H

#include "kernels/host/attention.h"

/* amx.c: asks the system, once or as often as one likes. */
bool zf_host_amx(void);

/* Only after zf_host_amx() said so. */
extern const struct zf_host_kernel zf_host_attention_amx, zf_host_attention_backward_amx;

#if defined __AMX_BF16__ || defined __AMXBF16__ /* as older clang calls it */

#include "kernels/host/vec.h"

enum {
    SIDE = 16,  /* rows of a tile */
    DEEP = 32,  /* numbers of bf16 in one: what a product sums over is a multiple of it */
    KEYS = 64,  /* keys taken at a time */
    ROWS = 256, /* rows of a block at most */
    STEPS = ZF_HEAD_DIM_MAX / DEEP,
};

typedef struct {
    _Alignas(64) char at[1024];
} tile;

ALWAYS char *tile_row(tile *t, size_t row)
{
    return t->at + row * 64;
}

ALWAYS vf tile_floats(const tile *t, size_t row)
{
    return _mm512_load_ps(t->at + row * 64);
}

/* The compiler does not know that instructions of tiles read memory. */
#define TILES_READ_MEMORY() __asm__ volatile("" ::: "memory")

/* All eight tiles are whole ones, the same for every product; oneDNN has its own, so each task loads and releases them. */
static inline void tiles_open(void)
{
    static const struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    TILES_READ_MEMORY();
    _tile_loadconfig(&config);
}

static inline void tiles_close(void)
{
    _tile_release();
}

/* c = (add ? c : 0) + a b; m (even), n, k and the distances in tiles. */
struct product {
    tile *c;
    size_t c_row, c_col;
    const tile *a;
    size_t a_row, a_step;
    const tile *b;
    size_t b_col, b_step;
    size_t m, n, k;
    bool add;
};

ALWAYS void multiply_two(const struct product *p, tile *c, const tile *a, const tile *b)
{
    if (p->add) {
        _tile_loadd(0, c, 64);
        _tile_loadd(2, c + p->c_row, 64);
    } else {
        _tile_zero(0);
        _tile_zero(2);
    }
    for (size_t k = p->k; k; k--, a += p->a_step, b += p->b_step) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + p->a_row, 64);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, c, 64);
    _tile_stored(2, c + p->c_row, 64);
}

ALWAYS void multiply_four(const struct product *p, tile *c, const tile *a, const tile *b)
{
    if (p->add) {
        _tile_loadd(0, c, 64);
        _tile_loadd(1, c + p->c_col, 64);
        _tile_loadd(2, c + p->c_row, 64);
        _tile_loadd(3, c + p->c_row + p->c_col, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = p->k; k; k--, a += p->a_step, b += p->b_step) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + p->b_col, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + p->a_row, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 64);
    _tile_stored(1, c + p->c_col, 64);
    _tile_stored(2, c + p->c_row, 64);
    _tile_stored(3, c + p->c_row + p->c_col, 64);
}

static inline void multiply(const struct product *p)
{
    TILES_READ_MEMORY();
    size_t j = 0;
    for (; j + 2 <= p->n; j += 2)
        for (size_t i = 0; i < p->m; i += 2) multiply_four(p, p->c + i * p->c_row + j * p->c_col, p->a + i * p->a_row, p->b + j * p->b_col);
    for (size_t i = 0; j < p->n && i < p->m; i += 2)
        multiply_two(p, p->c + i * p->c_row + j * p->c_col, p->a + i * p->a_row, p->b + j * p->b_col);
    TILES_READ_MEMORY();
}

/* ---- into tiles and out of them ---- */

/* Rows in the stream of one matrix: `count` of them, of head_dim numbers each. */
struct rows {
    const uint16_t *const *at;
    size_t count, head_dim;
};

ALWAYS __mmask32 columns(size_t head_dim, size_t dim)
{
    return head_dim - dim >= DEEP ? ~(__mmask32)0 : ((__mmask32)1 << (head_dim - dim)) - 1;
}

/* Rows row .. row + 16, dimensions dim .. dim + 32, as they lie. */
ALWAYS void copy_tile(const struct rows *x, size_t row, size_t dim, tile *to)
{
    __mmask32 mask = columns(x->head_dim, dim);
    size_t there = x->count > row ? least(x->count - row, SIDE) : 0, r = 0;
    for (; r < there; r++) _mm512_store_si512(tile_row(to, r), _mm512_maskz_loadu_epi16(mask, x->at[row + r] + dim));
    for (; r < SIDE; r++) _mm512_store_si512(tile_row(to, r), _mm512_setzero_si512());
}

/* 16 x 16 of 4 bytes. Loads put four rows' quarters side by side, so half of the usual shuffles are left. */
ALWAYS void transpose_tile(const tile *from, tile *to)
{
#define QUARTER(row) _mm_load_si128((const __m128i *)(const void *)(from->at + (row)*64 + c * 16))
    for (size_t c = 0; c < 4; c++) {
        __m512i x[4];
        for (size_t i = 0; i < 4; i++) {
            x[i] = _mm512_castsi128_si512(QUARTER(i));
            x[i] = _mm512_inserti32x4(x[i], QUARTER(i + 4), 1);
            x[i] = _mm512_inserti32x4(x[i], QUARTER(i + 8), 2);
            x[i] = _mm512_inserti32x4(x[i], QUARTER(i + 12), 3);
        }
        __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
        __m512i d = _mm512_unpacklo_epi32(x[2], x[3]), e = _mm512_unpackhi_epi32(x[2], x[3]);
        _mm512_store_si512(tile_row(to, 4 * c), _mm512_unpacklo_epi64(a, d));
        _mm512_store_si512(tile_row(to, 4 * c + 1), _mm512_unpackhi_epi64(a, d));
        _mm512_store_si512(tile_row(to, 4 * c + 2), _mm512_unpacklo_epi64(b, e));
        _mm512_store_si512(tile_row(to, 4 * c + 3), _mm512_unpackhi_epi64(b, e));
    }
#undef QUARTER
}

/* words 0 16 1 17 ... of x: its halves in pairs */
ALWAYS __m512i pair_halves(__m512i x)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                           18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, x);
}

/* Of 32 rows of 32 numbers in two tiles, two tiles of 16 pairs of rows, with 16 columns each. */
ALWAYS void pair_rows(const tile *upper, const tile *lower, tile *left, tile *right)
{
    for (size_t i = 0; i < SIDE; i++) {
        const char *row = (i < SIDE / 2 ? upper : lower)->at + i % (SIDE / 2) * 128;
        for (size_t half = 0; half < 2; half++) {
            __m512i x = _mm512_castsi256_si512(_mm256_load_si256((const __m256i *)(const void *)(row + half * 32)));
            x = _mm512_inserti64x4(x, _mm256_load_si256((const __m256i *)(const void *)(row + 64 + half * 32)), 1);
            _mm512_store_si512(tile_row(half ? right : left, i), pair_halves(x));
        }
    }
}

/* The same transposed: two tiles of 16 columns, with all 32 rows each. */
ALWAYS void transpose_rows(const tile *upper, const tile *lower, tile *left, tile *right)
{
    tile pairs[2];
    pair_rows(upper, lower, &pairs[0], &pairs[1]);
    transpose_tile(&pairs[0], left);
    transpose_tile(&pairs[1], right);
}

ALWAYS __m512i narrow(vf low, vf high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Of two tiles of sums of 16 dimensions, a row in each column, the rows rounded: columns dim .. dim + 32 of to[0..15], as far as they are
 * not NULL. */
ALWAYS void store_columns(const tile *upper, const tile *lower, vf factor, uint16_t *const *to, size_t head_dim, size_t dim)
{
    tile pairs, rows;
    __mmask32 mask = columns(head_dim, dim);
    for (size_t i = 0; i < SIDE; i++) {
        const tile *t = i < SIDE / 2 ? upper : lower;
        size_t row = i % (SIDE / 2) * 2;
        __m512i x = narrow(vmul(factor, tile_floats(t, row)), vmul(factor, tile_floats(t, row + 1)));
        _mm512_store_si512(tile_row(&pairs, i), pair_halves(x));
    }
    transpose_tile(&pairs, &rows);
    for (size_t r = 0; r < SIDE; r++)
        if (to[r]) _mm512_mask_storeu_epi16(to[r] + dim, mask, _mm512_load_si512(tile_row(&rows, r)));
}

/* ---- blocks of rows ---- */

/* Rows first .. first + count of one segment and one key/value head; row r is query r / group of head r % group of the group. */
struct block {
    size_t count, kv_head, head_dim;
    size_t query[ROWS], head[ROWS]; /* of each row, in the stream */
    size_t limit[ROWS];             /* keys it sees, ascending */
};

ALWAYS void block_init(struct block *b, const struct zf_segment *s, size_t kv_head, size_t group, size_t head_dim, size_t first,
                       size_t count)
{
    size_t query = first / group, member = first % group;
    b->count = count;
    b->kv_head = kv_head;
    b->head_dim = head_dim;
    for (size_t r = 0; r < count; r++) {
        b->query[r] = s->q_begin + query;
        b->head[r] = kv_head * group + member;
        b->limit[r] = s->k_count - s->q_count + query + 1;
        if (++member == group) {
            member = 0;
            query++;
        }
    }
}

ALWAYS size_t block_place(const struct block *b, size_t row, size_t ld)
{
    return b->query[row] * ld + b->head[row] * b->head_dim;
}

/* Lanes of rows row .. row + 16: how many of the keys from `first` they see, at most KEYS; none where there is no row. */
ALWAYS __m512i block_limits(const struct block *b, size_t row, size_t first)
{
    _Alignas(64) int32_t seen[SIDE];
    for (size_t i = 0; i < SIDE; i++) {
        size_t l = row + i < b->count ? b->limit[row + i] : 0;
        seen[i] = l <= first ? 0 : (int32_t)least(l - first, KEYS);
    }
    return _mm512_load_si512(seen);
}

/* 2^x within 3e-6, far below what rounding to bf16 loses; 0 below -126 (a result that is denormal takes the processor a hundred cycles),
 * NaN for NaN and +infinity. */
ALWAYS vf power_of_2(vf x)
{
    __mmask16 normal = _mm512_cmp_ps_mask(x, vset(-126), _CMP_NLT_UQ);
    vf n = vround(x), r = vsub(x, n);
    vf p = vset(0.0095828530951996f);
    p = vfma(p, r, vset(0.055906424597162836f));
    p = vfma(p, r, vset(0.24024098609910502f));
    p = vfma(p, r, vset(0.6931241934177155f));
    p = vfma(p, r, vset(1.0f));
    return _mm512_maskz_scalef_ps(normal, p, n);
}

#endif
#endif
