/* Attention without a matrix of scores, forward and backward: a warp has a query, or a key, and goes through those that it meets 32 at a
 * time. Each lane has the score of one of them; sums over them are taken with a lane for each part of the head. Nothing is added by two, so
 * the bits are always the same. Any head up to ZF_HEAD_DIM_MAX, both types: for what tensor cores are not for (tiles.h). */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.h"

static const unsigned ROWS = 4, PARTS = ZF_HEAD_DIM_MAX / 32; /* warps of a block; numbers of a head that a lane has */

static dim3 grid(size_t rows, size_t heads)
{
    return dim3((unsigned)((rows - 1) / ROWS + 1), (unsigned)heads);
}

/* The segment that row is in, of queries or of keys; NULL: in none. */
template <bool QUERIES> static __device__ const struct zf_segment *find(const struct zf_segment *s, size_t count, size_t row)
{
    size_t low = 0, high = count; /* the last that begins at row or before */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((QUERIES ? s[middle].q_begin : s[middle].k_begin) <= row)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return NULL;
    s += low - 1;
    return row < (QUERIES ? s->q_begin + s->q_count : s->k_begin + s->k_count) ? s : NULL;
}

template <class T> static __device__ __forceinline__ float dot(const float *a, const T *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * gpu_float(b[i]);
    return sum;
}

template <class T> static __device__ __forceinline__ void fetch(float *to, const T *from, size_t n, float scale)
{
    for (size_t i = threadIdx.x % GPU_WARP; i < n; i += GPU_WARP) to[i] = scale * gpu_float(from[i]);
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int o = GPU_WARP / 2; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    return x;
}

/* part[i] += x * from[lane + 32 i] */
template <class T> static __device__ __forceinline__ void add_row(float *part, float x, const T *from, size_t n)
{
    size_t d = threadIdx.x % GPU_WARP;
    for (unsigned i = 0; i < PARTS; i++, d += GPU_WARP)
        if (d < n) part[i] += x * gpu_float(from[d]);
}

template <class T> static __device__ __forceinline__ void store_row(T *to, const float *part, size_t n, float scale)
{
    size_t d = threadIdx.x % GPU_WARP;
    for (unsigned i = 0; i < PARTS; i++, d += GPU_WARP)
        if (d < n) to[d] = gpu_from_float<T>(scale * part[i]);
}

/* Keys that query number i of its segment sees. */
static __device__ __forceinline__ size_t seen(const struct zf_segment *s, size_t i)
{
    return s->k_count - (s->q_count - 1 - i);
}

template <class T> static __global__ void attention(struct zf_attention_args a)
{
    __shared__ float mine[ROWS][ZF_HEAD_DIM_MAX];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    size_t row = (size_t)blockIdx.x * ROWS + warp, head = blockIdx.y, n = a.head_dim, kv = head / (a.heads / a.kv_heads) * n;
    const struct zf_segment *s = row < a.q_rows ? find<true>(a.segments, a.segment_count, row) : NULL;
    if (!s) return; /* the whole warp */
    float *q = mine[warp], part[PARTS] = {}, most = -INFINITY, sum = 0;
    size_t keys = seen(s, row - s->q_begin);
    const T *k = (const T *)a.k + s->k_begin * a.ldkv + kv, *v = (const T *)a.v + s->k_begin * a.ldkv + kv;
    fetch(q, (const T *)a.q + row * a.ldq + head * n, n, a.scale);
    __syncwarp();
    for (size_t first = 0; first < keys; first += GPU_WARP) {
        size_t j = first + lane, some = keys - first < GPU_WARP ? keys - first : GPU_WARP;
        float score = j < keys ? dot(q, k + j * a.ldkv, n) : -INFINITY, now = fmaxf(most, warp_max(score)), less = expf(most - now);
        float p = j < keys ? expf(score - now) : 0;
        sum = sum * less + gpu_warp_sum(p);
        for (unsigned i = 0; i < PARTS; i++) part[i] *= less;
        for (size_t i = 0; i < some; i++) add_row(part, __shfl_sync(0xffffffffu, p, (int)i), v + (first + i) * a.ldkv, n);
        most = now;
    }
    store_row((T *)a.o + row * a.ldo + head * n, part, n, 1 / sum);
    if (a.lse && lane == 0) a.lse[row * a.heads + head] = most + logf(sum);
}

extern "C" cudaError_t zf_cuda_attention(const struct zf_attention_args *a, cudaStream_t s)
{
    cudaError_t said;
    if (zf_cuda_tiles_forward(a, s, &said)) return said;
    return gpu_by_type(a->type,
                       [&](auto t) { return gpu_launch(attention<decltype(t)>, grid(a->q_rows, a->heads), ROWS * GPU_WARP, 0, s, *a); });
}

/* ---- backward ---- */

/* delta = sum of do * o; then dq. */
template <class T> static __global__ void backward_queries(struct zf_attention_backward_args a)
{
    __shared__ float mine[2][ROWS][ZF_HEAD_DIM_MAX];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    size_t row = (size_t)blockIdx.x * ROWS + warp, head = blockIdx.y, n = a.head_dim, kv = head / (a.heads / a.kv_heads) * n;
    const struct zf_segment *s = row < a.q_rows ? find<true>(a.segments, a.segment_count, row) : NULL;
    if (!s) return; /* the whole warp */
    float *q = mine[0][warp], *d = mine[1][warp], part[PARTS] = {}, delta = 0, lse = a.lse[row * a.heads + head];
    size_t keys = seen(s, row - s->q_begin);
    const T *k = (const T *)a.k + s->k_begin * a.ldkv + kv, *v = (const T *)a.v + s->k_begin * a.ldkv + kv,
            *o = (const T *)a.o + row * a.ldo + head * n;
    fetch(q, (const T *)a.q + row * a.ldq + head * n, n, a.scale);
    fetch(d, (const T *)a.do_ + row * a.lddo + head * n, n, 1);
    __syncwarp();
    for (size_t i = lane; i < n; i += GPU_WARP) delta += d[i] * gpu_float(o[i]);
    delta = gpu_warp_sum(delta);
    if (lane == 0) a.delta[row * a.heads + head] = delta;
    for (size_t first = 0; first < keys; first += GPU_WARP) {
        size_t j = first + lane, some = keys - first < GPU_WARP ? keys - first : GPU_WARP;
        float ds = 0;
        if (j < keys) ds = expf(dot(q, k + j * a.ldkv, n) - lse) * (dot(d, v + j * a.ldkv, n) - delta);
        for (size_t i = 0; i < some; i++) add_row(part, __shfl_sync(0xffffffffu, ds, (int)i), k + (first + i) * a.ldkv, n);
    }
    store_row((T *)a.dq + row * a.lddq + head * n, part, n, a.scale);
}

/* dk and dv of a key: from all heads that share it, and in each from the queries that see it. After backward_queries. */
template <class T> static __global__ void backward_keys(struct zf_attention_backward_args a)
{
    __shared__ float mine[2][ROWS][ZF_HEAD_DIM_MAX];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    size_t row = (size_t)blockIdx.x * ROWS + warp, n = a.head_dim, shared = a.heads / a.kv_heads, kv = blockIdx.y * n;
    const struct zf_segment *s = row < a.k_rows ? find<false>(a.segments, a.segment_count, row) : NULL;
    if (!s) return; /* the whole warp */
    float *k = mine[0][warp], *v = mine[1][warp], dk[PARTS] = {}, dv[PARTS] = {};
    size_t before = s->k_count - s->q_count, key = row - s->k_begin, begin = key > before ? key - before : 0;
    fetch(k, (const T *)a.k + row * a.ldkv + kv, n, a.scale);
    fetch(v, (const T *)a.v + row * a.ldkv + kv, n, 1);
    __syncwarp();
    for (size_t head = blockIdx.y * shared; head < (blockIdx.y + 1) * shared; head++)
        for (size_t first = begin; first < s->q_count; first += GPU_WARP) {
            size_t i = first + lane, some = s->q_count - first < GPU_WARP ? s->q_count - first : GPU_WARP, r = s->q_begin + i;
            const T *q = (const T *)a.q + s->q_begin * a.ldq + head * n, *d = (const T *)a.do_ + s->q_begin * a.lddo + head * n;
            float p = 0, ds = 0;
            if (i < s->q_count) {
                p = expf(dot(k, q + i * a.ldq, n) - a.lse[r * a.heads + head]);
                ds = p * (dot(v, d + i * a.lddo, n) - a.delta[r * a.heads + head]);
            }
            for (size_t j = 0; j < some; j++) {
                add_row(dv, __shfl_sync(0xffffffffu, p, (int)j), d + (first + j) * a.lddo, n);
                add_row(dk, __shfl_sync(0xffffffffu, ds, (int)j), q + (first + j) * a.ldq, n);
            }
        }
    store_row((T *)a.dk + row * a.lddkv + kv, dk, n, a.scale);
    store_row((T *)a.dv + row * a.lddkv + kv, dv, n, 1);
}

extern "C" cudaError_t zf_cuda_attention_backward(const struct zf_attention_backward_args *a, cudaStream_t s)
{
    cudaError_t said;
    if (zf_cuda_tiles_backward(a, s, &said)) return said;
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        cudaError_t failed = gpu_launch(backward_queries<T>, grid(a->q_rows, a->heads), ROWS * GPU_WARP, 0, s, *a);
        if (failed != cudaSuccess) return failed;
        return gpu_launch(backward_keys<T>, grid(a->k_rows, a->kv_heads), ROWS * GPU_WARP, 0, s, *a);
    });
}
