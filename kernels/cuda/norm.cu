/* Norms: a warp has a vector, and reads it twice or three times (it is in the cache then). Sums over rows, for the gradients of weights and
 * of biases, have one order. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

static const unsigned VECTORS = GPU_THREADS / GPU_WARP; /* of a block */

static unsigned vector_blocks(size_t vectors)
{
    return (unsigned)((vectors - 1) / VECTORS + 1);
}

/* Which vector this warp has. */
static __device__ __forceinline__ size_t my_vector()
{
    return (size_t)blockIdx.x * VECTORS + threadIdx.x / GPU_WARP;
}

/* A lane takes N elements at once: 16 bytes, where all vectors allow it; else one. */
#define EACH_COLUMN(c, cols) for (size_t c = threadIdx.x % GPU_WARP * N; c < (cols); c += GPU_WARP * N)

template <class T, bool RMS, int N> static __global__ void norm(struct zf_norm_args a)
{
    size_t i = my_vector(), cols = a.cols;
    if (i >= a.rows * a.groups) return;
    size_t r = i / a.groups, g = i % a.groups;
    const T *x = (const T *)a.x + r * a.ldx + g * cols, *residual = (const T *)a.residual, *weight = (const T *)a.weight,
            *bias = (const T *)a.bias;
    T *y = (T *)a.y + r * a.ldy + g * cols, *total = (T *)a.sum;
    float sum = 0, squares = 0, v[N], u[N];
    if (residual) {
        EACH_COLUMN(c, cols)
        {
            gpu_fetch(v, x + c);
            gpu_fetch(u, residual + r * cols + c);
            for (int j = 0; j < N; j++) v[j] += u[j];
            gpu_store(total + r * cols + c, v);
        }
        x = total + r * cols; /* each lane reads what it wrote */
    }
    if (!RMS) {
        EACH_COLUMN(c, cols)
        {
            gpu_fetch(v, x + c);
            for (int j = 0; j < N; j++) sum += v[j];
        }
    }
    float mean = RMS ? 0 : gpu_warp_sum(sum) / (float)cols;
    EACH_COLUMN(c, cols)
    {
        gpu_fetch(v, x + c);
        for (int j = 0; j < N; j++) squares += (v[j] - mean) * (v[j] - mean);
    }
    float rstd = 1 / sqrtf(gpu_warp_sum(squares) / (float)cols + a.eps);
    if (a.stats && threadIdx.x % GPU_WARP == 0) {
        a.stats[2 * i] = mean;
        a.stats[2 * i + 1] = rstd;
    }
    EACH_COLUMN(c, cols)
    {
        gpu_fetch(v, x + c);
        for (int j = 0; j < N; j++) v[j] = (v[j] - mean) * rstd;
        if (weight) gpu_fetch(u, weight + c);
        for (int j = 0; j < N && weight; j++) v[j] *= u[j];
        if (bias) gpu_fetch(u, bias + c);
        for (int j = 0; j < N && bias; j++) v[j] += u[j];
        gpu_store(y + c, v);
    }
}

/* Whether a vector of weights, which may be missing, is read 16 bytes at a time. */
template <class T> static bool wide_or_none(const void *p, size_t cols)
{
    return !p || gpu_wide((const T *)p, cols);
}

extern "C" cudaError_t zf_cuda_norm(const struct zf_norm_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        bool wide = gpu_wide((const T *)a->x, a->ldx) && gpu_wide((const T *)a->y, a->ldy) && gpu_wide((const T *)a->x, a->cols);
        for (const void *p : {a->residual, a->weight, a->bias, (const void *)a->sum}) wide = wide && wide_or_none<T>(p, a->cols);
        return gpu_by_width<T>(wide, [&](auto width) {
            const int N = decltype(width)::value;
            auto kernel = a->kind == ZF_RMSNORM ? norm<T, true, N> : norm<T, false, N>;
            return gpu_launch(kernel, vector_blocks(a->rows * a->groups), GPU_THREADS, 0, s, *a);
        });
    });
}

template <class T, bool RMS, int N> static __global__ void norm_backward(struct zf_norm_backward_args a)
{
    size_t i = my_vector(), cols = a.cols;
    if (i >= a.rows * a.groups) return;
    size_t r = i / a.groups, g = i % a.groups;
    const T *dy = (const T *)a.dy + r * a.lddy + g * cols, *x = (const T *)a.x + r * a.ldx + g * cols, *weight = (const T *)a.weight;
    T *dx = (T *)a.dx + r * a.lddx + g * cols;
    float mean = a.stats[2 * i], rstd = a.stats[2 * i + 1], sum = 0, dot = 0, d[N], v[N], u[N];
    EACH_COLUMN(c, cols)
    {
        gpu_fetch(d, dy + c);
        gpu_fetch(v, x + c);
        if (weight) gpu_fetch(u, weight + c);
        for (int j = 0; j < N; j++) {
            d[j] *= weight ? u[j] : 1;
            sum += d[j];
            dot += d[j] * (v[j] - mean) * rstd;
        }
    }
    float mean_sum = RMS ? 0 : gpu_warp_sum(sum) / (float)cols, mean_dot = gpu_warp_sum(dot) / (float)cols;
    EACH_COLUMN(c, cols)
    {
        gpu_fetch(d, dy + c);
        gpu_fetch(v, x + c);
        if (weight) gpu_fetch(u, weight + c);
        for (int j = 0; j < N; j++) d[j] = rstd * (d[j] * (weight ? u[j] : 1) - mean_sum - (v[j] - mean) * rstd * mean_dot);
        if (a.accumulate) gpu_fetch(v, dx + c);
        for (int j = 0; j < N && a.accumulate; j++) d[j] += v[j];
        gpu_store(dx + c, d);
    }
}

extern "C" cudaError_t zf_cuda_norm_backward(const struct zf_norm_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        bool wide = gpu_wide((const T *)a->dy, a->lddy) && gpu_wide((const T *)a->x, a->ldx) && gpu_wide((const T *)a->dx, a->lddx) &&
                    gpu_wide((const T *)a->x, a->cols) && wide_or_none<T>(a->weight, a->cols);
        return gpu_by_width<T>(wide, [&](auto width) {
            const int N = decltype(width)::value;
            auto kernel = a->kind == ZF_RMSNORM ? norm_backward<T, true, N> : norm_backward<T, false, N>;
            return gpu_launch(kernel, vector_blocks(a->rows * a->groups), GPU_THREADS, 0, s, *a);
        });
    });
}

/* ---- sums over rows: a block has LANES * N columns and all rows, a thread every (GPU_THREADS / LANES)-th row of N of them. 32 bytes of a
 * row are what memory gives at once, so that few columns make many blocks. ---- */

template <int N> static __host__ __device__ constexpr unsigned lanes_of()
{
    return N == 1 ? 32 : 2;
}

/* Adds up x of the threads that have the same columns; the first LANES threads have the sums. Every thread comes here. */
template <int N> static __device__ void over_rows(float (&x)[N])
{
    const unsigned LANES = lanes_of<N>(), WARPS = GPU_THREADS / GPU_WARP;
    __shared__ float part[WARPS][LANES][N];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    GPU_UNROLL
    for (int j = 0; j < N; j++)
        for (unsigned o = GPU_WARP / 2; o >= LANES; o /= 2) x[j] += __shfl_xor_sync(0xffffffffu, x[j], (int)o);
    if (lane < LANES)
        for (int j = 0; j < N; j++) part[warp][lane][j] = x[j];
    __syncthreads();
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        x[j] = 0;
        for (unsigned w = 0; w < WARPS; w++) x[j] += part[w][lane % LANES][j];
    }
    __syncthreads(); /* part is used again */
}

template <int N> static __device__ __forceinline__ void add_to(float *to, const float (&x)[N])
{
    for (int j = 0; j < N && to; j++) to[j] += x[j];
}

template <class T, int N> static __global__ void norm_backward_weight(struct zf_norm_backward_weight_args a)
{
    const unsigned LANES = lanes_of<N>();
    size_t c = ((size_t)blockIdx.x * LANES + threadIdx.x % LANES) * N, vectors = a.rows * a.groups;
    float weight[N] = {}, bias[N] = {};
    for (size_t i = threadIdx.x / LANES; i < vectors && c < a.cols; i += GPU_THREADS / LANES) {
        size_t r = i / a.groups, g = i % a.groups;
        float d[N], x[N];
        gpu_fetch(d, (const T *)a.dy + r * a.lddy + g * a.cols + c);
        if (a.dweight) gpu_fetch(x, (const T *)a.x + r * a.ldx + g * a.cols + c);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            if (a.dweight) weight[j] += d[j] * (x[j] - a.stats[2 * i]) * a.stats[2 * i + 1];
            bias[j] += d[j];
        }
    }
    over_rows(weight);
    over_rows(bias);
    if (threadIdx.x >= LANES || c >= a.cols) return;
    add_to(a.dweight ? a.dweight + c : NULL, weight);
    add_to(a.dbias ? a.dbias + c : NULL, bias);
}

template <int N> static unsigned column_blocks(size_t cols)
{
    return (unsigned)((cols - 1) / (lanes_of<N>() * N) + 1);
}

extern "C" cudaError_t zf_cuda_norm_backward_weight(const struct zf_norm_backward_weight_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        const T *x = (const T *)(a->dweight ? a->x : a->dy);
        bool wide = gpu_wide((const T *)a->dy, a->lddy) && gpu_wide(x, a->dweight ? a->ldx : a->lddy) && gpu_wide(x, a->cols);
        return gpu_by_width<T>(wide, [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(norm_backward_weight<T, N>, column_blocks<N>(a->cols), GPU_THREADS, 0, s, *a);
        });
    });
}

template <class T, int N> static __global__ void bias_backward(const T *dy, float *dbias, size_t rows, size_t n, size_t ld)
{
    const unsigned LANES = lanes_of<N>();
    size_t c = ((size_t)blockIdx.x * LANES + threadIdx.x % LANES) * N;
    float sum[N] = {}, d[N];
    for (size_t r = threadIdx.x / LANES; r < rows && c < n; r += GPU_THREADS / LANES) {
        gpu_fetch(d, dy + r * ld + c);
        GPU_UNROLL
        for (int j = 0; j < N; j++) sum[j] += d[j];
    }
    over_rows(sum);
    if (threadIdx.x < LANES && c < n) add_to(dbias + c, sum);
}

extern "C" cudaError_t zf_cuda_bias_backward(const struct zf_bias_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        const T *dy = (const T *)a->dy;
        return gpu_by_width<T>(gpu_wide(dy, a->ld) && gpu_wide(dy, a->n), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(bias_backward<T, N>, column_blocks<N>(a->n), GPU_THREADS, 0, s, dy, a->dbias, a->rows, a->n, a->ld);
        });
    });
}
