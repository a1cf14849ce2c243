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

template <class T, bool RMS> static __global__ void norm(struct zf_norm_args a)
{
    size_t i = my_vector(), lane = threadIdx.x % GPU_WARP, cols = a.cols;
    if (i >= a.rows * a.groups) return;
    size_t r = i / a.groups, g = i % a.groups;
    const T *x = (const T *)a.x + r * a.ldx + g * cols, *residual = (const T *)a.residual, *weight = (const T *)a.weight,
            *bias = (const T *)a.bias;
    T *y = (T *)a.y + r * a.ldy + g * cols, *total = (T *)a.sum;
    float sum = 0, squares = 0;
    if (residual) {
        for (size_t c = lane; c < cols; c += GPU_WARP)
            total[r * cols + c] = gpu_from_float<T>(gpu_float(x[c]) + gpu_float(residual[r * cols + c]));
        x = total + r * cols; /* each lane reads what it wrote */
    }
    for (size_t c = lane; c < cols && !RMS; c += GPU_WARP) sum += gpu_float(x[c]);
    float mean = RMS ? 0 : gpu_warp_sum(sum) / (float)cols;
    for (size_t c = lane; c < cols; c += GPU_WARP) {
        float d = gpu_float(x[c]) - mean;
        squares += d * d;
    }
    float rstd = 1 / sqrtf(gpu_warp_sum(squares) / (float)cols + a.eps);
    if (a.stats && lane == 0) {
        a.stats[2 * i] = mean;
        a.stats[2 * i + 1] = rstd;
    }
    for (size_t c = lane; c < cols; c += GPU_WARP) {
        float v = (gpu_float(x[c]) - mean) * rstd;
        if (weight) v *= gpu_float(weight[c]);
        if (bias) v += gpu_float(bias[c]);
        y[c] = gpu_from_float<T>(v);
    }
}

extern "C" cudaError_t zf_cuda_norm(const struct zf_norm_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        auto kernel = a->kind == ZF_RMSNORM ? norm<T, true> : norm<T, false>;
        return gpu_launch(kernel, vector_blocks(a->rows * a->groups), GPU_THREADS, 0, s, *a);
    });
}

template <class T, bool RMS> static __global__ void norm_backward(struct zf_norm_backward_args a)
{
    size_t i = my_vector(), lane = threadIdx.x % GPU_WARP, cols = a.cols;
    if (i >= a.rows * a.groups) return;
    size_t r = i / a.groups, g = i % a.groups;
    const T *dy = (const T *)a.dy + r * a.lddy + g * cols, *x = (const T *)a.x + r * a.ldx + g * cols, *weight = (const T *)a.weight;
    T *dx = (T *)a.dx + r * a.lddx + g * cols;
    float mean = a.stats[2 * i], rstd = a.stats[2 * i + 1], sum = 0, dot = 0;
    for (size_t c = lane; c < cols; c += GPU_WARP) {
        float d = gpu_float(dy[c]) * (weight ? gpu_float(weight[c]) : 1);
        sum += d;
        dot += d * (gpu_float(x[c]) - mean) * rstd;
    }
    float mean_sum = RMS ? 0 : gpu_warp_sum(sum) / (float)cols, mean_dot = gpu_warp_sum(dot) / (float)cols;
    for (size_t c = lane; c < cols; c += GPU_WARP) {
        float d = gpu_float(dy[c]) * (weight ? gpu_float(weight[c]) : 1), hat = (gpu_float(x[c]) - mean) * rstd;
        float v = rstd * (d - mean_sum - hat * mean_dot);
        dx[c] = gpu_from_float<T>(a.accumulate ? gpu_float(dx[c]) + v : v);
    }
}

extern "C" cudaError_t zf_cuda_norm_backward(const struct zf_norm_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        auto kernel = a->kind == ZF_RMSNORM ? norm_backward<T, true> : norm_backward<T, false>;
        return gpu_launch(kernel, vector_blocks(a->rows * a->groups), GPU_THREADS, 0, s, *a);
    });
}

/* ---- sums over rows: a block has GPU_WARP columns, each of its warps every VECTORS-th row ---- */

/* Adds up what the warps have of a column; the first warp has the sum. */
static __device__ float over_warps(float x)
{
    __shared__ float part[VECTORS][GPU_WARP + 1];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    float sum = 0;
    part[warp][lane] = x;
    __syncthreads();
    for (unsigned w = 0; w < VECTORS; w++) sum += part[w][lane];
    __syncthreads(); /* part is used again */
    return sum;
}

template <class T> static __global__ void norm_backward_weight(struct zf_norm_backward_weight_args a)
{
    size_t c = (size_t)blockIdx.x * GPU_WARP + threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP, vectors = a.rows * a.groups;
    float weight = 0, bias = 0;
    for (size_t i = warp; i < vectors && c < a.cols; i += VECTORS) {
        size_t r = i / a.groups, g = i % a.groups;
        float d = gpu_float(((const T *)a.dy)[r * a.lddy + g * a.cols + c]), x = gpu_float(((const T *)a.x)[r * a.ldx + g * a.cols + c]);
        weight += d * (x - a.stats[2 * i]) * a.stats[2 * i + 1];
        bias += d;
    }
    weight = over_warps(weight);
    bias = over_warps(bias);
    if (warp || c >= a.cols) return;
    if (a.dweight) a.dweight[c] += weight;
    if (a.dbias) a.dbias[c] += bias;
}

extern "C" cudaError_t zf_cuda_norm_backward_weight(const struct zf_norm_backward_weight_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(norm_backward_weight<T>, (unsigned)((a->cols - 1) / GPU_WARP + 1), GPU_THREADS, 0, s, *a);
    });
}

template <class T> static __global__ void bias_backward(const T *dy, float *dbias, size_t rows, size_t n, size_t ld)
{
    size_t c = (size_t)blockIdx.x * GPU_WARP + threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    float sum = 0;
    for (size_t r = warp; r < rows && c < n; r += VECTORS) sum += gpu_float(dy[r * ld + c]);
    sum = over_warps(sum);
    if (!warp && c < n) dbias[c] += sum;
}

extern "C" cudaError_t zf_cuda_bias_backward(const struct zf_bias_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(bias_backward<T>, (unsigned)((a->n - 1) / GPU_WARP + 1), GPU_THREADS, 0, s, (const T *)a->dy, a->dbias, a->rows,
                          a->n, a->ld);
    });
}
