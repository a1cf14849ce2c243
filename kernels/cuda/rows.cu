/* Rows on their way between the halves: scores, moves, packing with the optimistic move in the same pass, sums of windows, second moments.
 */
#include "core/base/rng.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

static const unsigned PIECE = 256, ROWS = GPU_THREADS / GPU_WARP; /* columns whose sum is one of floats; rows of a block, a warp each */

static __device__ __forceinline__ size_t number(const uint32_t *list, size_t r)
{
    return list ? list[r] : r;
}

static unsigned warp_blocks(size_t rows)
{
    size_t blocks = (rows - 1) / ROWS + 1;
    return blocks < GPU_MOST_BLOCKS ? (unsigned)blocks : (unsigned)GPU_MOST_BLOCKS;
}

#define EACH_ROW(r, rows) for (size_t r = (size_t)blockIdx.x * ROWS + threadIdx.x / GPU_WARP; r < (rows); r += (size_t)gridDim.x * ROWS)
/* A lane takes N elements at once: 16 bytes of f32, where all rows allow it. */
#define EACH_COLUMN(c, cols) for (size_t c = threadIdx.x % GPU_WARP * N; c < (cols); c += GPU_WARP * N)

/* ---- scores ---- */

template <int N> static __global__ void row_sums(const float *g, double *sums, size_t rows, size_t cols)
{
    EACH_ROW(r, rows)
    {
        double squares = 0, magnitudes = 0;
        for (size_t first = 0; first < cols; first += PIECE) {
            size_t end = cols - first < PIECE ? cols : first + PIECE;
            float s = 0, m = 0;
            for (size_t c = first + threadIdx.x % GPU_WARP * N; c < end; c += GPU_WARP * N) {
                float x[N];
                gpu_fetch(x, g + r * cols + c);
                GPU_UNROLL
                for (int j = 0; j < N; j++) {
                    s += x[j] * x[j];
                    m += fabsf(x[j]);
                }
            }
            squares += (double)gpu_warp_sum(s);
            magnitudes += (double)gpu_warp_sum(m);
        }
        if (threadIdx.x % GPU_WARP == 0) {
            sums[2 * r] = squares;
            sums[2 * r + 1] = magnitudes;
        }
    }
}

extern "C" cudaError_t zf_cuda_row_sums(const struct zf_row_sums_args *a, cudaStream_t s)
{
    if (a->partial) {
        const struct zf_sum_squares_args squares = {a->g, a->partial, a->rows * a->cols};
        cudaError_t failed = zf_cuda_sum_squares(&squares, s);
        if (failed != cudaSuccess) return failed;
    }
    return gpu_by_width<float>(gpu_wide(a->g, a->cols), [&](auto width) {
        return gpu_launch(row_sums<decltype(width)::value>, warp_blocks(a->rows), GPU_THREADS, 0, s, a->g, a->sums, a->rows, a->cols);
    });
}

/* ---- moves ---- */

/* Where nothing is converted, bits, whatever they mean. */
template <class T, class F, int N>
static __global__ void move_rows(T *to, const F *from, const uint32_t *to_list, const uint32_t *from_list, size_t rows, size_t cols)
{
    EACH_ROW(r, rows)
    {
        T *row = to + number(to_list, r) * cols;
        const F *source = from + number(from_list, r) * cols;
        EACH_COLUMN(c, cols)
        {
            gpu_some<F, N> x = gpu_read<N>(source + c);
            gpu_some<T, N> y;
            GPU_UNROLL
            for (int j = 0; j < N; j++) {
                if constexpr (std::is_same<T, F>::value)
                    y.at[j] = x.at[j];
                else
                    y.at[j] = gpu_from_float<T>(gpu_float(x.at[j]));
            }
            gpu_write(row + c, y);
        }
    }
}

template <class T, class F> static cudaError_t launch_move(const struct zf_move_rows_args *a, cudaStream_t s)
{
    T *to = (T *)a->to;
    const F *from = (const F *)a->from;
    bool wide = gpu_wide(to, a->cols) && gpu_wide(from, a->cols);
    auto launch = [&](auto kernel) {
        return gpu_launch(kernel, warp_blocks(a->rows), GPU_THREADS, 0, s, to, from, a->to_list, a->from_list, a->rows, a->cols);
    };
    if (sizeof(T) == sizeof(F)) return gpu_by_width<T>(wide, [&](auto width) { return launch(move_rows<T, F, decltype(width)::value>); });
    return gpu_by_width<float>(wide, [&](auto width) { return launch(move_rows<T, F, decltype(width)::value>); });
}

extern "C" cudaError_t zf_cuda_move_rows(const struct zf_move_rows_args *a, cudaStream_t s)
{
    if (a->type == a->from_type) return a->type == ZF_BF16 ? launch_move<uint16_t, uint16_t>(a, s) : launch_move<uint32_t, uint32_t>(a, s);
    return a->type == ZF_BF16 ? launch_move<__nv_bfloat16, float>(a, s) : launch_move<float, __nv_bfloat16>(a, s);
}

/* ---- hand_over ---- */

/* Whether all partial sums are finite; every thread of the block comes here. */
static __device__ bool all_finite(const double *x, size_t n)
{
    int bad = 0;
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) bad |= !gpu_finite(x[i]);
    return !__syncthreads_or(bad);
}

template <class T, class B, int N> static __global__ void hand_over(struct zf_hand_over_args a, gpu_key key)
{
    bool moves = a.weights && all_finite(a.partial, a.partials);
    float rate = (float)a.rate, rest2 = (float)(1 - a.beta2), eps = (float)a.eps;
    EACH_ROW(r, a.rows)
    {
        size_t n = number(a.list, r);
        const float *from = a.g + n * a.cols;
        B *packed = a.packed ? (B *)a.packed + r * a.cols : NULL;
        bool moved = moves && a.channel[n] > 0;
        T *w = moved ? (T *)a.weights + n * a.cols : NULL;
        float channel = moved ? (float)a.beta2 * a.channel[n] : 0;
        EACH_COLUMN(c, a.cols)
        {
            float g[N], share[N];
            gpu_fetch(g, from + c);
            if (packed) gpu_store(packed + c, g);
            if (!moved) continue;
            gpu_some<T, N> x = gpu_read<N>(w + c);
            gpu_fetch(share, a.column + c);
            GPU_UNROLL
            for (int j = 0; j < N; j++) {
                float d = g[j] * a.clip, moment = fmaf(rest2, d * d, channel * share[j]),
                      moved_to = gpu_float(x.at[j]) - rate * d / (sqrtf(moment) + eps);
                gpu_store_by(&x.at[j], moved_to, gpu_move_noise(key, a.first + n * a.cols + c + j));
            }
            gpu_write(w + c, x);
        }
    }
}

extern "C" cudaError_t zf_cuda_hand_over(const struct zf_hand_over_args *a, cudaStream_t s)
{
    gpu_key key = gpu_philox(a->seed, (uint64_t)ZF_STREAM_MOVE << 32, a->step);
    return gpu_by_type(a->type, [&](auto t) {
        return gpu_by_type(a->bus_type, [&](auto b) {
            using T = decltype(t);
            using B = decltype(b);
            bool wide = gpu_wide(a->g, a->cols) && (uintptr_t)a->packed % (4 * sizeof(B)) == 0 &&
                        (!a->weights || ((uintptr_t)a->weights % (4 * sizeof(T)) == 0 && (uintptr_t)a->column % 16 == 0));
            return gpu_by_width<float>(wide, [&](auto width) {
                return gpu_launch(hand_over<T, B, decltype(width)::value>, warp_blocks(a->rows), GPU_THREADS, 0, s, *a, key);
            });
        });
    });
}

/* ---- sums of windows: a launch for each pair of pieces ---- */

template <class T> static __global__ void fold(const T *g, float *sum, size_t n, float scale, bool add)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        sum[i] = add ? fmaf(scale, gpu_float(g[i]), sum[i]) : scale * gpu_float(g[i]);
}

extern "C" cudaError_t zf_cuda_fold_rows(const struct zf_fold_rows_args *a, cudaStream_t s)
{
    size_t size = a->type == ZF_BF16 ? sizeof(__nv_bfloat16) : sizeof(float);
    for (size_t r = 0, n; r < a->rows; r += n) { /* as many rows as lie together on both sides */
        size_t g = a->g.chunk_rows - r % a->g.chunk_rows, sum = a->sum.chunk_rows - r % a->sum.chunk_rows;
        n = g < sum ? g : sum;
        if (n > a->rows - r) n = a->rows - r;
        const char *from = (const char *)a->g.chunk[r / a->g.chunk_rows] + r % a->g.chunk_rows * a->cols * size;
        float *to = (float *)a->sum.chunk[r / a->sum.chunk_rows] + r % a->sum.chunk_rows * a->cols;
        cudaError_t failed = gpu_by_type(a->type, [&](auto t) {
            using T = decltype(t);
            return gpu_launch(fold<T>, gpu_blocks(n * a->cols), GPU_THREADS, 0, s, (const T *)(const void *)from, to, n * a->cols, a->scale,
                              a->add);
        });
        if (failed != cudaSuccess) return failed;
    }
    return cudaSuccess;
}

/* ---- second moments ---- */

static __device__ double unbias(double beta2, uint32_t t)
{
    return t ? 1 / (1 - pow(beta2, (double)t)) : 0;
}

static __global__ void vhat_channels(struct zf_vhat_rows_args a)
{
    EACH_ROW(r, a.rows)
    {
        size_t n = number(a.list, r);
        double sum = 0;
        for (size_t first = 0; first < a.cols; first += PIECE) {
            size_t end = a.cols - first < PIECE ? a.cols : first + PIECE;
            float s = 0;
            for (size_t c = first + threadIdx.x % GPU_WARP; c < end; c += GPU_WARP) s += a.v[n * a.cols + c];
            sum += (double)gpu_warp_sum(s);
        }
        if (threadIdx.x % GPU_WARP == 0) a.channel[number(a.to_list, r)] = (float)(unbias(a.beta2, a.t[n]) * sum / (double)a.cols);
    }
}

/* Block (x, part): columns of that part of the rows. */
static __global__ void vhat_columns(struct zf_vhat_rows_args a)
{
    size_t each = (a.rows - 1) / ZF_COLUMN_PARTS + 1, begin = blockIdx.y * each, end = begin + each < a.rows ? begin + each : a.rows;
    for (size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x; c < a.cols; c += (size_t)gridDim.x * blockDim.x) {
        double sum = 0;
        for (size_t r = begin; r < end; r++) {
            size_t n = number(a.list, r);
            sum += unbias(a.beta2, a.t[n]) * (double)a.v[n * a.cols + c];
        }
        a.column[blockIdx.y * a.cols + c] = sum;
    }
}

extern "C" cudaError_t zf_cuda_vhat_rows(const struct zf_vhat_rows_args *a, cudaStream_t s)
{
    cudaError_t failed = a->channel ? gpu_launch(vhat_channels, warp_blocks(a->rows), GPU_THREADS, 0, s, *a) : cudaSuccess;
    if (failed != cudaSuccess || !a->column) return failed;
    return gpu_launch(vhat_columns, dim3(gpu_blocks(a->cols), ZF_COLUMN_PARTS), GPU_THREADS, 0, s, *a);
}

static __global__ void column_shares(struct zf_column_shares_args a)
{
    double all = 0;
    for (size_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
        double sum = 0;
        for (size_t p = 0; p < ZF_COLUMN_PARTS; p++) sum += a.column[p * a.cols + c];
        all += sum;
        a.share[c] = (float)(sum / (double)a.rows);
    }
    double mean = gpu_block_sum(all) / (double)a.rows / (double)a.cols;
    for (size_t c = threadIdx.x; c < a.cols; c += blockDim.x) a.share[c] = mean > 0 ? (float)((double)a.share[c] / mean) : 1;
}

extern "C" cudaError_t zf_cuda_column_shares(const struct zf_column_shares_args *a, cudaStream_t s)
{
    return gpu_launch(column_shares, 1, GPU_THREADS, 0, s, *a);
}
