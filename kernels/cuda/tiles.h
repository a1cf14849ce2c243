/* What the kernels of attention by tensor cores share (attention_forward.cu, attention_backward.cu). A block of four warps has a tile of
 * rows of its own, queries or keys, 16 or 32 of them a warp, and goes through the tiles of others that these meet: keys that the queries
 * see, or queries that see the keys. The next tile of others is fetched while one is worked on. Which they are is found here, segment by
 * segment. */
#ifndef ZF_CUDA_TILES_H
#define ZF_CUDA_TILES_H

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

typedef __nv_bfloat16 half_float;

static const unsigned TILE_THREADS = 128, TILE_WARPS = TILE_THREADS / GPU_WARP, TILE_PAD = 8; /* of a row, so that eight lie in all banks */

/* The segment that row is in, of queries or of keys, is the one before this number, if it is in any: the last that begins at row or before.
 */
template <bool QUERIES> static __device__ __forceinline__ size_t segments_to(const struct zf_segment *s, size_t count, size_t row)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((QUERIES ? s[middle].q_begin : s[middle].k_begin) <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- which tiles meet ---- */

/* A tile of others: `count` rows from `row` on. It meets the own rows begin .. end; of them, row r meets others before bound + r (QUERIES
 * are our own), or from bound + r on (keys are). */
struct meeting {
    size_t row;
    int count, begin, end, bound;
};

struct walk {
    const struct zf_segment *next, *end;
    size_t first; /* own row 0 */
    int rows, others, own_begin, own_end;
    struct zf_segment s; /* the one at hand; `at` .. `to` of its others are still to come */
    size_t at, to;
};

template <bool QUERIES>
static __device__ __forceinline__ walk walk_new(const struct zf_segment *segments, size_t count, size_t first, int rows, int others)
{
    size_t before = segments_to<QUERIES>(segments, count, first);
    walk w = {};
    w.next = segments + (before ? before - 1 : 0);
    w.end = segments + count;
    w.first = first;
    w.rows = rows;
    w.others = others;
    return w;
}

/* The next segment with rows of the tile; marks them in `found`. */
template <bool QUERIES> static __device__ __forceinline__ bool walk_segment(walk &w, unsigned char *found)
{
    for (; w.next < w.end; w.next++) {
        w.s = *w.next;
        size_t s_begin = QUERIES ? w.s.q_begin : w.s.k_begin, s_end = s_begin + (QUERIES ? w.s.q_count : w.s.k_count);
        size_t before = w.s.k_count - w.s.q_count; /* keys that every query sees, without its own */
        if (s_begin >= w.first + (size_t)w.rows) break;
        size_t begin = s_begin > w.first ? s_begin : w.first, end = s_end < w.first + (size_t)w.rows ? s_end : w.first + (size_t)w.rows;
        if (begin >= end) continue;
        w.own_begin = (int)(begin - w.first);
        w.own_end = (int)(end - w.first);
        w.at = QUERIES || begin - s_begin < before ? 0 : begin - s_begin - before;
        w.to = QUERIES ? before + (end - s_begin) : w.s.q_count;
        for (int r = w.own_begin + (int)threadIdx.x; r < w.own_end; r += (int)blockDim.x) found[r] = 1;
        w.next++;
        return true;
    }
    w.next = w.end;
    return false;
}

/* What comes next; false: nothing. All threads of a block walk alike. */
template <bool QUERIES> static __device__ __forceinline__ bool walk_on(walk &w, meeting &m, unsigned char *found)
{
    const long long FAR = 1 << 24; /* beyond any tile */
    while (w.at >= w.to)
        if (!walk_segment<QUERIES>(w, found)) return false;
    long long before = (long long)(w.s.k_count - w.s.q_count), at = (long long)w.at,
              own = (long long)w.first - (long long)(QUERIES ? w.s.q_begin : w.s.k_begin),
              bound = QUERIES ? own + before + 1 - at : own - before - at;
    m.row = (QUERIES ? w.s.k_begin : w.s.q_begin) + w.at;
    m.count = w.to - w.at < (size_t)w.others ? (int)(w.to - w.at) : w.others;
    m.begin = w.own_begin;
    m.end = w.own_end;
    m.bound = (int)(bound > FAR ? FAR : bound < -FAR ? -FAR : bound);
    w.at += (size_t)m.count;
    return true;
}

/* Whether own row r meets column c of the tile of others. */
template <bool QUERIES> static __device__ __forceinline__ bool meets(const meeting &m, int r, int c)
{
    return r >= m.begin && r < m.end && (QUERIES ? c < m.bound + r : c >= m.bound + r && c < m.count);
}

/* Whether any of the own rows first .. first + rows meets any, whether all meet all `others`. */
template <bool QUERIES> static __device__ __forceinline__ bool meets_any(const meeting &m, int first, int rows)
{
    int begin = first > m.begin ? first : m.begin, end = first + rows < m.end ? first + rows : m.end;
    return begin < end && (QUERIES ? m.bound + end - 1 > 0 : m.bound + begin < m.count);
}
template <bool QUERIES> static __device__ __forceinline__ bool meets_all(const meeting &m, int first, int rows, int others)
{
    return first >= m.begin && first + rows <= m.end &&
           (QUERIES ? m.bound + first >= others : m.bound + first + rows - 1 <= 0 && m.count == others);
}

/* ---- tiles in shared memory: rows of WIDTH numbers, WIDTH + TILE_PAD apart ---- */

/* Rows 0 .. rows of a matrix; what lies beyond them, or beyond a row's `width` numbers, is 0. wide: rows begin at multiples of 16 bytes. */
template <int WIDTH>
static __device__ __forceinline__ void tile_fetch(gpu_copies &copies, half_float *tile, const half_float *from, size_t ld, int tile_rows,
                                                  int rows, unsigned width, bool wide)
{
    if (wide) {
        for (unsigned i = threadIdx.x; i < (unsigned)tile_rows * (WIDTH / 8); i += TILE_THREADS) {
            unsigned r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
            bool there = (int)r < rows && c < width;
            copies.begin(tile + r * (WIDTH + TILE_PAD) + c, there ? from + r * ld + c : from, there ? 16 : 0);
        }
        return;
    }
    for (unsigned i = threadIdx.x; i < (unsigned)tile_rows * WIDTH; i += TILE_THREADS) {
        unsigned r = i / WIDTH, c = i % WIDTH;
        tile[r * (WIDTH + TILE_PAD) + c] = (int)r < rows && c < width ? from[r * ld + c] : gpu_from_float<half_float>(0);
    }
}

/* Columns 0 .. PART of this warp's rows of a tile to memory: those rows that were found. */
template <int WIDTH, int PART, int ROWS>
static __device__ __forceinline__ void tile_store(half_float *to, size_t ld, const half_float *tile, const unsigned char *found, int first,
                                                  unsigned width, bool wide)
{
    unsigned lane = threadIdx.x % GPU_WARP, each = wide ? 8 : 1;
    __syncwarp();
    for (unsigned i = lane; i < ROWS * PART / each; i += GPU_WARP) {
        unsigned r = (unsigned)first + i / (PART / each), c = i % (PART / each) * each;
        const half_float *from = tile + r * (WIDTH + TILE_PAD) + c;
        if (!found[r] || c >= width) continue;
        if (wide)
            gpu_write(to + r * ld + c, gpu_read<8>(from));
        else
            to[r * ld + c] = *from;
    }
}

static __device__ __forceinline__ gpu_some<half_float, 2> two(float a, float b)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return {{both.x, both.y}};
}

/* An accumulator's columns 0 .. 8 COUNT, times a factor a row, into rows `first` of a tile. */
template <int COUNT>
static __device__ __forceinline__ void tile_put(half_float *tile, unsigned ld, int first, const float (&x)[COUNT][4], float upper,
                                                float lower)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    half_float *at = tile + ((unsigned)first + lane / 4) * ld + lane % 4 * 2;
    GPU_UNROLL
    for (int n = 0; n < COUNT; n++) {
        gpu_write(at + n * 8, two(x[n][0] * upper, x[n][1] * upper));
        gpu_write(at + 8 * ld + n * 8, two(x[n][2] * lower, x[n][3] * lower));
    }
}

/* ---- products of tiles, of one warp ---- */

/* Its rows of an own tile as fragments; held in registers, or fetched from the tile each time. */
template <int WIDTH, bool HELD> struct own_rows;
template <int WIDTH> struct own_rows<WIDTH, true> {
    uint32_t held[WIDTH / 16][4];
    __device__ __forceinline__ void take(const half_float *tile, int first)
    {
        GPU_UNROLL
        for (int k = 0; k < WIDTH / 16; k++)
            gpu_load_block<false>(held[k], tile + first * (WIDTH + (int)TILE_PAD) + k * 16, WIDTH + TILE_PAD);
    }
    __device__ __forceinline__ void get(uint32_t (&r)[4], int k) const
    {
        for (int i = 0; i < 4; i++) r[i] = held[k][i];
    }
};
template <int WIDTH> struct own_rows<WIDTH, false> {
    const half_float *at;
    __device__ __forceinline__ void take(const half_float *tile, int first)
    {
        at = tile + first * (WIDTH + (int)TILE_PAD);
    }
    __device__ __forceinline__ void get(uint32_t (&r)[4], int k) const
    {
        gpu_load_block<false>(r, at + k * 16, WIDTH + TILE_PAD);
    }
};

/* s[m] += own[m] other^T: a row of s a row of ours, a column a row of the others. */
template <int WIDTH, int M, int OTHERS, class OWN>
static __device__ __forceinline__ void tile_scores(float (&s)[M][OTHERS / 8][4], const OWN (&own)[M], const half_float *others)
{
    GPU_UNROLL
    for (int k = 0; k < WIDTH / 16; k++) {
        uint32_t a[M][4];
        GPU_UNROLL
        for (int m = 0; m < M; m++) own[m].get(a[m], k);
        GPU_UNROLL
        for (int n = 0; n < OTHERS / 16; n++) {
            uint32_t b[4];
            gpu_load_block<false>(b, others + n * 16 * (WIDTH + (int)TILE_PAD) + k * 16, WIDTH + TILE_PAD);
            GPU_UNROLL
            for (int m = 0; m < M; m++) {
                gpu_mma_bf16(s[m][2 * n], a[m], b[0], b[2]);
                gpu_mma_bf16(s[m][2 * n + 1], a[m], b[1], b[3]);
            }
        }
    }
}

/* sum[m] += s[m] others, columns 0 .. 8 COUNT of them; s is rounded to bf16. */
template <int WIDTH, int M, int OTHERS, int COUNT>
static __device__ __forceinline__ void tile_gather(float (&sum)[M][COUNT][4], const float (&s)[M][OTHERS / 8][4], const half_float *others)
{
    GPU_UNROLL
    for (int k = 0; k < OTHERS / 16; k++) {
        uint32_t a[M][4];
        GPU_UNROLL
        for (int i = 0; i < M * 4; i++) {
            const float *of = s[i / 4][2 * k + i % 4 / 2] + i % 2 * 2;
            a[i / 4][i % 4] = gpu_pair(of[0], of[1]);
        }
        GPU_UNROLL
        for (int n = 0; n < COUNT / 2; n++) {
            uint32_t b[4];
            gpu_load_block<true>(b, others + k * 16 * (WIDTH + (int)TILE_PAD) + n * 16, WIDTH + TILE_PAD);
            GPU_UNROLL
            for (int m = 0; m < M; m++) {
                gpu_mma_bf16(sum[m][2 * n], a[m], b[0], b[1]);
                gpu_mma_bf16(sum[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Sum, and greatest, of the four lanes that share a row. */
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* ---- launching: attention.cu has the kernels for what these do not take ---- */

/* false: this device, or this problem, is not for them. *said: what the launch says. */
bool zf_cuda_tiles_forward(const struct zf_attention_args *a, cudaStream_t s, cudaError_t *said);
bool zf_cuda_tiles_backward(const struct zf_attention_backward_args *a, cudaStream_t s, cudaError_t *said);

static const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Whether the kernels with tensor cores are for such heads. */
static inline bool tiles_take(enum zf_dtype type, size_t head_dim)
{
    return type == ZF_BF16 && head_dim % 16 == 0 && head_dim <= ZF_HEAD_DIM_MAX;
}

/* f(std::integral_constant) with the width of tiles for such heads. */
template <class F> static inline cudaError_t tiles_by_width(size_t head_dim, F f)
{
    if (head_dim <= 32) return f(std::integral_constant<int, 32>());
    if (head_dim <= 64) return f(std::integral_constant<int, 64>());
    if (head_dim <= 80) return f(std::integral_constant<int, 80>());
    if (head_dim <= 96) return f(std::integral_constant<int, 96>());
    if (head_dim <= 128) return f(std::integral_constant<int, 128>());
    return f(std::integral_constant<int, 256>());
}

#endif
