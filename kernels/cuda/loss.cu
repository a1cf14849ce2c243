/* The loss, the norm of the gradient, and AdamW of whole blocks. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

/* ---- cross-entropy: a block has a row ---- */

/* Over a block of GPU_THREADS; NaN is passed over, and found when it is summed. */
static __device__ float block_max(float x)
{
    __shared__ float part[GPU_THREADS / GPU_WARP];
    for (int o = GPU_WARP / 2; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    if (threadIdx.x % GPU_WARP == 0) part[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    for (unsigned i = 0; i < GPU_THREADS / GPU_WARP; i++) x = fmaxf(x, part[i]);
    __syncthreads(); /* part is used again */
    return x;
}

/* The gradient lies over the logits. In bf16 over those that were read before: STEPS times the block are read by all, then written; what is
 * written then lies before what the next turn reads. A thread takes N at once. */
template <class T, int N> static __device__ void write_gradient(float *x, size_t n, size_t target, float max, float factor, float scale)
{
    const int STEPS = 4;
    T *y = (T *)(void *)x;
    for (size_t first = 0; first < n; first += (size_t)STEPS * N * GPU_THREADS) {
        float e[STEPS][N];
        GPU_UNROLL
        for (int k = 0; k < STEPS; k++) {
            size_t i = first + ((size_t)k * GPU_THREADS + threadIdx.x) * N;
            if (i < n) gpu_fetch(e[k], x + i);
        }
        if (sizeof(T) < sizeof(float)) __syncthreads();
        GPU_UNROLL
        for (int k = 0; k < STEPS; k++) {
            size_t i = first + ((size_t)k * GPU_THREADS + threadIdx.x) * N;
            GPU_UNROLL
            for (int j = 0; j < N; j++) e[k][j] = factor * expf(e[k][j] - max) - (i + j == target ? scale : 0);
            if (i < n) gpu_store(y + i, e[k]);
        }
    }
}

template <class T, int N> static __global__ void __launch_bounds__(GPU_THREADS) cross_entropy(struct zf_cross_entropy_args a)
{
    size_t r = blockIdx.x, n = a.n;
    float *x = a.logits + r * a.ld, high = -INFINITY, low = INFINITY;
    int32_t target = a.target[r];
    if (target < 0) {
        if (threadIdx.x == 0) a.loss[r] = 0;
        for (size_t i = threadIdx.x; i < n && a.gradient; i += GPU_THREADS) ((T *)(void *)x)[i] = gpu_from_float<T>(0);
        return;
    }
    double sum = 0; /* of exp(x - high), high what this thread has seen */
    for (size_t i = threadIdx.x * (size_t)N; i < n; i += (size_t)N * GPU_THREADS) {
        float some[N], most = high, part = 0;
        gpu_fetch(some, x + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            most = fmaxf(most, some[j]);
            low = fminf(low, some[j]);
        }
        if (most > high) sum *= (double)expf(high - most);
        high = most;
        GPU_UNROLL
        for (int j = 0; j < N; j++) part += expf(some[j] - high);
        sum += (double)part;
    }
    float mine = high;
    high = block_max(high);
    low = -block_max(-low);
    sum = gpu_block_sum(mine == high ? sum : sum * (double)expf(mine - high));
    if (low == -INFINITY) sum = (double)NAN; /* exp would pass it over */
    if (threadIdx.x == 0) a.loss[r] = (float)(log(sum) + ((double)high - (double)x[target]));
    __syncthreads();
    if (a.gradient) write_gradient<T, N>(x, n, (size_t)target, high, (float)((double)a.scale / sum), a.scale);
}

extern "C" cudaError_t zf_cuda_cross_entropy(const struct zf_cross_entropy_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_by_width<float>(gpu_wide(a->logits, a->ld) && gpu_wide(a->logits, a->n), [&](auto width) {
            return gpu_launch(cross_entropy<T, decltype(width)::value>, (unsigned)a->rows, GPU_THREADS, 0, s, *a);
        });
    });
}

/* In order: some are fetched by all, one thread adds them. */
static __global__ void sum_losses(const float *loss, size_t rows, double *total)
{
    __shared__ float some[GPU_THREADS];
    double sum = threadIdx.x ? 0 : *total;
    for (size_t first = 0; first < rows; first += GPU_THREADS) {
        size_t n = rows - first < GPU_THREADS ? rows - first : GPU_THREADS;
        if (threadIdx.x < n) some[threadIdx.x] = loss[first + threadIdx.x];
        __syncthreads();
        for (size_t i = 0; i < n && !threadIdx.x; i++) sum += (double)some[i];
        __syncthreads();
    }
    if (!threadIdx.x) *total = sum;
}

extern "C" cudaError_t zf_cuda_sum_losses(const struct zf_sum_losses_args *a, cudaStream_t s)
{
    return gpu_launch(sum_losses, 1, GPU_THREADS, 0, s, a->loss, a->rows, a->total);
}

/* ---- the norm ---- */

template <int N> static __global__ void sum_squares(const float *x, double *partial, size_t n)
{
    size_t first = (size_t)blockIdx.x * ZF_SQUARES_CHUNK, end = n - first < ZF_SQUARES_CHUNK ? n : first + ZF_SQUARES_CHUNK;
    double sum = 0;
    for (size_t i = first + threadIdx.x * (size_t)N; i < end; i += (size_t)N * GPU_THREADS) {
        float some[N];
        gpu_fetch(some, x + i);
        GPU_UNROLL
        for (int j = 0; j < N; j++) sum += (double)some[j] * (double)some[j];
    }
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" cudaError_t zf_cuda_sum_squares(const struct zf_sum_squares_args *a, cudaStream_t s)
{
    return gpu_by_width<float>(gpu_wide(a->x, a->n), [&](auto width) {
        return gpu_launch(sum_squares<decltype(width)::value>, (unsigned)((a->n - 1) / ZF_SQUARES_CHUNK + 1), GPU_THREADS, 0, s, a->x,
                          a->partial, a->n);
    });
}

static __global__ void clip_factor(struct zf_clip_factor_args a)
{
    double sum = 0;
    for (size_t i = 0; i < a.count; i++) sum += a.partial[i];
    double norm = sqrt(sum), loss = *a.loss;
    struct zf_step_norm out = {norm, loss, 1, gpu_finite(norm) && gpu_finite(loss)};
    if (out.apply && a.clip_norm > 0 && norm > a.clip_norm) out.clip = (float)(a.clip_norm / norm);
    *a.out = out;
}

extern "C" cudaError_t zf_cuda_clip_factor(const struct zf_clip_factor_args *a, cudaStream_t s)
{
    return gpu_launch(clip_factor, 1, 1, 0, s, *a);
}
