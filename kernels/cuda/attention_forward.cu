/* Attention of bf16 on tensor cores, forward: a block has a tile of queries of one head, each warp 16 or 32 of them, and goes once through
 * the keys that they see. The softmax is that of what was seen so far (Milakov and Gimelshein 2018; Dao et al. 2022). */
#include "kernels/cuda/tiles.h"

template <int WIDTH> struct forward_tiles {
    static const int M = WIDTH <= 64 ? 2 : 1, OWN = M * 16 * (int)TILE_WARPS, OTHERS = WIDTH <= 64 ? 64 : 32, LD = WIDTH + (int)TILE_PAD;
    static const size_t SHARED = (size_t)(OWN + 4 * OTHERS) * LD * sizeof(half_float);
};

/* What a warp knows of its queries: sums over the keys so far, relative to the highest score (in powers of two). Of a lane's numbers 0 and
 * 1 belong to row lane / 4 of 16, 2 and 3 to that row + 8. */
template <int WIDTH> struct seen_so_far {
    float o[forward_tiles<WIDTH>::M][WIDTH / 8][4], high[forward_tiles<WIDTH>::M][2], sum[forward_tiles<WIDTH>::M][2];
};

/* Scores to powers of two, relative to the highest of the row so far, to which `x` is brought. */
template <int WIDTH, int M, int OTHERS>
static __device__ __forceinline__ void soften(seen_so_far<WIDTH> &x, float (&s)[M][OTHERS / 8][4], float scale, const meeting &meet,
                                              int first)
{
    bool all = meets_all<true>(meet, first, M * 16, OTHERS);
    int lane = (int)(threadIdx.x % GPU_WARP);
    GPU_UNROLL
    for (int part = 0; part < 2 * M; part++) {
        int m = part / 2, half = part % 2, row = first + m * 16 + half * 8 + lane / 4;
        float high = x.high[m][half], sum = 0;
        GPU_UNROLL
        for (int i = 0; i < OTHERS / 4; i++) {
            float &score = s[m][i / 2][2 * half + i % 2];
            score = all || meets<true>(meet, row, i / 2 * 8 + lane % 4 * 2 + i % 2) ? score * scale : -INFINITY;
            high = fmaxf(high, score);
        }
        high = quad_max(high);
        float base = high == -INFINITY ? 0 : high, less = gpu_exp2(x.high[m][half] - base); /* a row may have seen nothing yet */
        GPU_UNROLL
        for (int i = 0; i < OTHERS / 4; i++) {
            float &score = s[m][i / 2][2 * half + i % 2];
            score = gpu_exp2(score - base);
            sum += score;
        }
        x.high[m][half] = high;
        x.sum[m][half] = x.sum[m][half] * less + sum;
        GPU_UNROLL
        for (int i = 0; i < WIDTH / 4; i++) x.o[m][i / 2][2 * half + i % 2] *= less;
    }
}

template <int WIDTH> static __global__ void __launch_bounds__(TILE_THREADS) forward(struct zf_attention_args a, bool wide)
{
    typedef forward_tiles<WIDTH> t;
    DYN_SHARED(half_float, own);
    __shared__ unsigned char found[t::OWN];
    size_t begin = (size_t)(gridDim.x - 1 - blockIdx.x) * t::OWN, head = blockIdx.y, n = a.head_dim, kv = head / (a.heads / a.kv_heads) * n;
    int rows = a.q_rows - begin < (size_t)t::OWN ? (int)(a.q_rows - begin) : t::OWN, first = (int)(threadIdx.x / GPU_WARP) * t::M * 16;
    const half_float *k = (const half_float *)a.k + kv, *v = (const half_float *)a.v + kv;
    gpu_copies copies;
    auto fetch = [&](const meeting &m, unsigned stage) {
        half_float *to = own + (t::OWN + 2 * t::OTHERS * (int)stage) * t::LD;
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
    fetch(now, 0);
    seen_so_far<WIDTH> x = {};
    own_rows<WIDTH, WIDTH <= 128> q[t::M];
    for (int m = 0; m < t::M; m++) x.high[m][0] = x.high[m][1] = -INFINITY;
    for (unsigned step = 0; more; step++, now = then) {
        const half_float *keys = own + (t::OWN + 2 * t::OTHERS * (int)(step % 2)) * t::LD;
        copies.wait();
        __syncthreads(); /* what was fetched is there, and nobody works on the other stage any more */
        if (step == 0)
            for (int m = 0; m < t::M; m++) q[m].take(own, first + m * 16);
        more = walk_on<true>(w, then, found);
        if (more) fetch(then, (step + 1) % 2);
        if (!meets_any<true>(now, first, t::M * 16)) continue; /* the whole warp */
        float s[t::M][t::OTHERS / 8][4] = {};
        tile_scores<WIDTH, t::M, t::OTHERS>(s, q, keys);
        soften<WIDTH, t::M, t::OTHERS>(x, s, a.scale * LOG2_E, now, first);
        tile_gather<WIDTH, t::M, t::OTHERS>(x.o, s, keys + t::OTHERS * t::LD);
    }
    __syncthreads(); /* found */
    for (int m = 0; m < t::M; m++) {
        float upper = quad_sum(x.sum[m][0]), lower = quad_sum(x.sum[m][1]);
        int lane = (int)(threadIdx.x % GPU_WARP), row = first + m * 16 + lane / 4;
        tile_put(own, t::LD, first + m * 16, x.o[m], 1 / upper, 1 / lower);
        if (!a.lse || lane % 4) continue;
        if (found[row]) a.lse[(begin + row) * a.heads + head] = (x.high[m][0] + log2f(upper)) * LN_2;
        if (found[row + 8]) a.lse[(begin + row + 8) * a.heads + head] = (x.high[m][1] + log2f(lower)) * LN_2;
    }
    tile_store<WIDTH, WIDTH, t::M * 16>((half_float *)a.o + begin * a.ldo + head * n, a.ldo, own, found, first, (unsigned)n,
                                        wide && gpu_wide((const half_float *)a.o, a.ldo));
}

bool zf_cuda_tiles_forward(const struct zf_attention_args *a, cudaStream_t s, cudaError_t *said)
{
    bool wide = gpu_wide((const half_float *)a->q, a->ldq) && gpu_wide((const half_float *)a->k, a->ldkv) &&
                gpu_wide((const half_float *)a->v, a->ldkv),
         taken = tiles_take(a->type, a->head_dim);
    if (!taken) return false;
    *said = tiles_by_width(a->head_dim, [&](auto width) {
        typedef forward_tiles<decltype(width)::value> t;
        auto kernel = forward<decltype(width)::value>;
        taken = gpu_allow_shared(kernel, t::SHARED);
        if (!taken) return cudaSuccess;
        return gpu_launch(kernel, dim3((unsigned)((a->q_rows - 1) / t::OWN + 1), (unsigned)a->heads), TILE_THREADS, t::SHARED, s, *a, wide);
    });
    return taken;
}
