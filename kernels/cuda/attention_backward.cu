/* Attention of bf16 on tensor cores, backward, in two kernels: gradients of queries, each from the keys that it sees, then those of keys
 * and values, each from the queries that see it, of all heads that share it. Scores are made anew from lse. Every sum has one order, and
 * nobody adds to what another has written. */
#include "kernels/cuda/tiles.h"

/* Tiles of both kernels: two of own rows, four of others (two of each kind, one fetched while one is used). */
template <int WIDTH> struct backward_tiles {
    static const int OWN = 16 * (int)TILE_WARPS, OTHERS = 32, LD = WIDTH + (int)TILE_PAD;
    static const size_t SHARED = (size_t)(2 * OWN + 4 * OTHERS) * LD * sizeof(half_float);
    static const int PART = WIDTH <= 128 ? WIDTH : WIDTH / 2; /* columns of dk and dv that a block has registers for */
};

/* s[row][column] = p, dp = p (dp - delta) of those that meet, else 0; lse and delta (of queries: rows or columns) by number i of s. */
template <bool QUERIES, int OTHERS, class LSE, class DELTA>
static __device__ __forceinline__ void slopes(float (&s)[OTHERS / 8][4], float (&dp)[OTHERS / 8][4], float scale, const meeting &meet,
                                              int first, LSE lse, DELTA delta)
{
    bool all = meets_all<QUERIES>(meet, first, 16, OTHERS);
    int lane = (int)(threadIdx.x % GPU_WARP);
    GPU_UNROLL
    for (int i = 0; i < OTHERS / 2; i++) {
        int n = i / 4, half = i % 4 / 2, row = first + half * 8 + lane / 4, column = n * 8 + lane % 4 * 2 + i % 2;
        bool met = all || meets<QUERIES>(meet, row, column);
        float p = met ? gpu_exp2(s[n][i % 4] * scale - lse(half, column)) : 0;
        s[n][i % 4] = p;
        dp[n][i % 4] = met ? p * (dp[n][i % 4] - delta(half, column)) : 0;
    }
}

/* delta of this warp's 16 rows, the sum of do * o, into shared memory and for the kernel that comes after; eight lanes have a row. */
template <int WIDTH>
static __device__ __forceinline__ void sum_deltas(const struct zf_attention_backward_args &a, float *delta, const half_float *d,
                                                  size_t begin, int rows, int first, size_t head)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    bool wide = gpu_wide((const half_float *)a.o, a.ldo);
    for (int r = first + (int)lane / 8; r < first + 16; r += 4) {
        const half_float *o = (const half_float *)a.o + (begin + r) * a.ldo + head * a.head_dim;
        float sum = 0;
        for (unsigned c = lane % 8 * 8; c < a.head_dim && r < rows; c += 64) {
            gpu_some<half_float, 8> some;
            if (wide)
                some = gpu_read<8>(o + c);
            else
                for (int i = 0; i < 8; i++) some.at[i] = o[c + i];
            for (int i = 0; i < 8; i++) sum += gpu_float(d[r * (WIDTH + (int)TILE_PAD) + c + i]) * gpu_float(some.at[i]);
        }
        for (int i = 1; i < 8; i *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
        if (lane % 8 == 0) delta[r] = sum;
    }
    __syncwarp();
}

template <int WIDTH> static __global__ void __launch_bounds__(TILE_THREADS) backward_queries(struct zf_attention_backward_args a, bool wide)
{
    typedef backward_tiles<WIDTH> t;
    DYN_SHARED(half_float, own); /* queries, do; keys, values twice */
    __shared__ unsigned char found[t::OWN];
    __shared__ float deltas[t::OWN];
    size_t begin = (size_t)(gridDim.x - 1 - blockIdx.x) * t::OWN, head = blockIdx.y, n = a.head_dim, kv = head / (a.heads / a.kv_heads) * n;
    int rows = a.q_rows - begin < (size_t)t::OWN ? (int)(a.q_rows - begin) : t::OWN, first = (int)(threadIdx.x / GPU_WARP) * 16;
    const half_float *k = (const half_float *)a.k + kv, *v = (const half_float *)a.v + kv;
    gpu_copies copies;
    auto fetch = [&](const meeting &m, unsigned stage) {
        half_float *to = own + (2 * t::OWN + 2 * t::OTHERS * (int)stage) * t::LD;
        tile_fetch<WIDTH>(copies, to, k + m.row * a.ldkv, a.ldkv, t::OTHERS, m.count, (unsigned)n, wide);
        tile_fetch<WIDTH>(copies, to + t::OTHERS * t::LD, v + m.row * a.ldkv, a.ldkv, t::OTHERS, m.count, (unsigned)n, wide);
    };
    for (int i = (int)threadIdx.x; i < t::OWN; i += (int)TILE_THREADS) found[i] = 0;
    __syncthreads();
    walk w = walk_new<true>(a.segments, a.segment_count, begin, rows, t::OTHERS);
    meeting now = {}, then = {};
    bool more = walk_on<true>(w, now, found);
    if (!more) return; /* a block of no document */
    tile_fetch<WIDTH>(copies, own, (const half_float *)a.q + begin * a.ldq + head * n, a.ldq, t::OWN, rows, (unsigned)n, wide);
    tile_fetch<WIDTH>(copies, own + t::OWN * t::LD, (const half_float *)a.do_ + begin * a.lddo + head * n, a.lddo, t::OWN, rows,
                      (unsigned)n, wide);
    fetch(now, 0);
    float dq[1][WIDTH / 8][4] = {}, lse[2] = {}, delta[2] = {};
    own_rows<WIDTH, WIDTH <= 96> q[1], d[1];
    for (unsigned step = 0; more; step++, now = then) {
        const half_float *keys = own + (2 * t::OWN + 2 * t::OTHERS * (int)(step % 2)) * t::LD;
        copies.wait();
        __syncthreads(); /* what was fetched is there, and nobody works on the other stage any more */
        if (step == 0) {
            q[0].take(own, first);
            d[0].take(own + t::OWN * t::LD, first);
            sum_deltas<WIDTH>(a, deltas, own + t::OWN * t::LD, begin, rows, first, head);
            for (int i = 0; i < 2; i++) {
                int row = first + i * 8 + (int)(threadIdx.x % GPU_WARP) / 4;
                delta[i] = deltas[row];
                lse[i] = row < rows ? a.lse[(begin + row) * a.heads + head] * LOG2_E : 0;
            }
        }
        more = walk_on<true>(w, then, found);
        if (more) fetch(then, (step + 1) % 2);
        if (!meets_any<true>(now, first, 16)) continue; /* the whole warp */
        float s[1][t::OTHERS / 8][4] = {}, ds[1][t::OTHERS / 8][4] = {};
        tile_scores<WIDTH, 1, t::OTHERS>(s, q, keys);
        tile_scores<WIDTH, 1, t::OTHERS>(ds, d, keys + t::OTHERS * t::LD);
        slopes<true, t::OTHERS>(
            s[0], ds[0], a.scale * LOG2_E, now, first, [&](int half, int) { return lse[half]; },
            [&](int half, int) { return delta[half]; });
        tile_gather<WIDTH, 1, t::OTHERS>(dq, ds, keys);
    }
    __syncthreads(); /* found */
    for (int r = first + (int)(threadIdx.x % GPU_WARP); r < first + 16; r += (int)GPU_WARP)
        if (found[r]) a.delta[(begin + r) * a.heads + head] = deltas[r];
    tile_put(own, t::LD, first, dq[0], a.scale, a.scale);
    tile_store<WIDTH, WIDTH, 16>((half_float *)a.dq + begin * a.lddq + head * n, a.lddq, own, found, first, (unsigned)n,
                                 wide && gpu_wide((const half_float *)a.dq, a.lddq));
}

/* Where a block that has keys is: the tile of queries it is at, of which of the heads. */
struct position {
    meeting meet;
    size_t head;
};

template <int WIDTH> static __global__ void __launch_bounds__(TILE_THREADS) backward_keys(struct zf_attention_backward_args a, bool wide)
{
    typedef backward_tiles<WIDTH> t;
    DYN_SHARED(half_float, own); /* keys, values; queries, do twice */
    __shared__ unsigned char found[t::OWN];
    __shared__ float lses[2][t::OTHERS], deltas[2][t::OTHERS];
    size_t begin = (size_t)blockIdx.x * t::OWN, shared = a.heads / a.kv_heads, n = a.head_dim, kv = blockIdx.y * n,
           part = blockIdx.z * t::PART;
    int rows = a.k_rows - begin < (size_t)t::OWN ? (int)(a.k_rows - begin) : t::OWN, first = (int)(threadIdx.x / GPU_WARP) * 16;
    gpu_copies copies;
    auto fetch = [&](const position &p, unsigned stage) {
        half_float *to = own + (2 * t::OWN + 2 * t::OTHERS * (int)stage) * t::LD;
        const half_float *q = (const half_float *)a.q + p.meet.row * a.ldq + p.head * n,
                         *d = (const half_float *)a.do_ + p.meet.row * a.lddo + p.head * n;
        tile_fetch<WIDTH>(copies, to, q, a.ldq, t::OTHERS, p.meet.count, (unsigned)n, wide);
        tile_fetch<WIDTH>(copies, to + t::OTHERS * t::LD, d, a.lddo, t::OTHERS, p.meet.count, (unsigned)n, wide);
        for (int i = (int)threadIdx.x; i < t::OTHERS; i += (int)TILE_THREADS) {
            size_t at = (p.meet.row + i) * a.heads + p.head;
            lses[stage][i] = i < p.meet.count ? a.lse[at] * LOG2_E : 0;
            deltas[stage][i] = i < p.meet.count ? a.delta[at] : 0;
        }
    };
    for (int i = (int)threadIdx.x; i < t::OWN; i += (int)TILE_THREADS) found[i] = 0;
    __syncthreads();
    walk w = walk_new<false>(a.segments, a.segment_count, begin, rows, t::OTHERS);
    position now = {{}, blockIdx.y * shared}, then;
    auto walk_heads = [&](position &p) { /* all tiles of queries of a head, then those of the next */
                                         while (!walk_on<false>(w, p.meet, found)) {
                                             if (++p.head == (blockIdx.y + 1) * shared) return false;
                                             w = walk_new<false>(a.segments, a.segment_count, begin, rows, t::OTHERS);
                                         }
                                         return true;
    };
    bool more = walk_heads(now);
    if (more) {
        tile_fetch<WIDTH>(copies, own, (const half_float *)a.k + begin * a.ldkv + kv, a.ldkv, t::OWN, rows, (unsigned)n, wide);
        tile_fetch<WIDTH>(copies, own + t::OWN * t::LD, (const half_float *)a.v + begin * a.ldkv + kv, a.ldkv, t::OWN, rows, (unsigned)n,
                          wide);
        fetch(now, 0);
    }
    float dk[1][t::PART / 8][4] = {}, dv[1][t::PART / 8][4] = {};
    own_rows<WIDTH, WIDTH <= 64> k[1], v[1];
    for (unsigned step = 0; more; step++, now = then) {
        unsigned stage = step % 2;
        const half_float *queries = own + (2 * t::OWN + 2 * t::OTHERS * (int)stage) * t::LD, *d = queries + t::OTHERS * t::LD;
        copies.wait();
        __syncthreads(); /* what was fetched is there, and nobody works on the other stage any more */
        if (step == 0) {
            k[0].take(own, first);
            v[0].take(own + t::OWN * t::LD, first);
        }
        then = now;
        more = walk_heads(then);
        if (more) fetch(then, stage ^ 1);
        if (!meets_any<false>(now.meet, first, 16)) continue; /* the whole warp */
        float p[1][t::OTHERS / 8][4] = {}, ds[1][t::OTHERS / 8][4] = {};
        tile_scores<WIDTH, 1, t::OTHERS>(p, k, queries);
        tile_scores<WIDTH, 1, t::OTHERS>(ds, v, d);
        slopes<false, t::OTHERS>(
            p[0], ds[0], a.scale * LOG2_E, now.meet, first, [&](int, int column) { return lses[stage][column]; },
            [&](int, int column) { return deltas[stage][column]; });
        tile_gather<WIDTH, 1, t::OTHERS>(dv, p, d + part);
        tile_gather<WIDTH, 1, t::OTHERS>(dk, ds, queries + part);
    }
    __syncthreads(); /* found */
    bool store_wide = wide && gpu_wide((const half_float *)a.dk, a.lddkv) && gpu_wide((const half_float *)a.dv, a.lddkv);
    unsigned width = n > part ? (unsigned)(n - part) : 0;
    tile_put(own, t::LD, first, dk[0], a.scale, a.scale);
    tile_put(own + t::OWN * t::LD, t::LD, first, dv[0], 1, 1);
    tile_store<WIDTH, t::PART, 16>((half_float *)a.dk + begin * a.lddkv + kv + part, a.lddkv, own, found, first, width, store_wide);
    tile_store<WIDTH, t::PART, 16>((half_float *)a.dv + begin * a.lddkv + kv + part, a.lddkv, own + t::OWN * t::LD, found, first, width,
                                   store_wide);
}

bool zf_cuda_tiles_backward(const struct zf_attention_backward_args *a, cudaStream_t s, cudaError_t *said)
{
    bool wide = gpu_wide((const half_float *)a->q, a->ldq) && gpu_wide((const half_float *)a->k, a->ldkv) &&
                gpu_wide((const half_float *)a->v, a->ldkv) && gpu_wide((const half_float *)a->do_, a->lddo);
    bool taken = tiles_take(a->type, a->head_dim);
    if (!taken) return false;
    *said = tiles_by_width(a->head_dim, [&](auto width) {
        typedef backward_tiles<decltype(width)::value> t;
        auto queries = backward_queries<decltype(width)::value>;
        auto keys = backward_keys<decltype(width)::value>;
        taken = gpu_allow_shared(queries, t::SHARED) && gpu_allow_shared(keys, t::SHARED);
        if (!taken) return cudaSuccess;
        cudaError_t failed =
            gpu_launch(queries, dim3((unsigned)((a->q_rows - 1) / t::OWN + 1), (unsigned)a->heads), TILE_THREADS, t::SHARED, s, *a, wide);
        if (failed != cudaSuccess) return failed;
        return gpu_launch(keys, dim3((unsigned)((a->k_rows - 1) / t::OWN + 1), (unsigned)a->kv_heads, decltype(width)::value / t::PART),
                          TILE_THREADS, t::SHARED, s, *a, wide);
    });
    return taken;
}
