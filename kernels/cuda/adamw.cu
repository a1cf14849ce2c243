/* AdamW of whole blocks, of rows that have their own counts, and of the CPU half's windows (which only a device that does both halves'
 * work serves). */
#include "kernels/cuda/adamw.h"
#include "kernels/cuda/launch.h"

struct whole {
    adam_rule rule;
    adam_rates rates;
    gpu_key key;
};

/* N elements of a kernel that applies the update: state, gradient, and the visible copy; a thread takes 16 bytes of f32 at once, where all
 * allow it. noise(j): the bits by which element j is rounded by chance. */
template <int N, class T, class NOISE>
static __device__ __forceinline__ void update(const adam_rule &rule, const adam_rates &rates, float *master, float *m, float *v,
                                              const float (&g)[N], T *weights, bool stochastic, NOISE noise)
{
    float x[N], first[N], second[N];
    gpu_fetch(x, master);
    gpu_fetch(first, m);
    gpu_fetch(second, v);
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        adam_values now = {x[j], first[j], second[j]};
        adam_update(rule, rates, now, g[j]);
        x[j] = now.master;
        first[j] = now.m;
        second[j] = now.v;
    }
    gpu_store(master, x);
    gpu_store(m, first);
    gpu_store(v, second);
    if (!weights) return;
    gpu_some<T, N> seen;
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        if (stochastic)
            gpu_store_by(&seen.at[j], x[j], noise(j));
        else
            seen.at[j] = gpu_from_float<T>(x[j]);
    }
    gpu_write(weights, seen);
}

template <class T, int N> static __global__ void adamw(struct zf_adamw_args a, whole w)
{
    if (a.norm && !a.norm->apply) return;
    w.rates.clip = a.norm ? a.norm->clip : 1;
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < a.n; i += (size_t)gridDim.x * blockDim.x * N) {
        float g[N];
        gpu_fetch(g, a.g + i);
        update<N>(w.rule, w.rates, a.master + i, a.m + i, a.v + i, g, a.weights ? (T *)a.weights + i : NULL, a.stochastic,
                  [&](int j) { return gpu_update_noise(w.key, a.first + i + j); });
    }
}

/* Whether vectors of n elements, of which some may be missing, are read 16 bytes of f32 at a time. */
template <class T> static bool wide_state(const T *weights, const float *master, const float *m, const float *v, const float *g, size_t n)
{
    bool wide = n % 4 == 0 && (uintptr_t)weights % (4 * sizeof(T)) == 0;
    for (const float *p : {master, m, v, g}) wide = wide && (uintptr_t)p % 16 == 0;
    return wide;
}

extern "C" cudaError_t zf_cuda_adamw(const struct zf_adamw_args *a, cudaStream_t s)
{
    whole w = {adam_rule_of(a->beta1, a->beta2, a->eps, a->lr, a->decay), {}, adam_chance(a->seed, a->t)};
    w.rates = adam_rates_at(w.rule, a->t, 1);
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_by_width<float>(wide_state((const T *)a->weights, a->master, a->m, a->v, a->g, a->n), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(adamw<T, N>, gpu_blocks(a->n / N), GPU_THREADS, 0, s, *a, w);
        });
    });
}

/* ---- rows: a block has one ---- */

static __device__ __forceinline__ size_t number(const uint32_t *list, size_t r)
{
    return list ? list[r] : r;
}

/* What depends on a row's count alone: made by one thread. */
struct row_step {
    adam_rates rates;
    gpu_key key;
};

template <class T, int N> static __global__ void adamw_rows(struct zf_adamw_rows_args a, adam_rule rule)
{
    __shared__ row_step step;
    for (size_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        size_t n = number(a.list, r), at = r * a.cols;
        if (threadIdx.x == 0) {
            uint32_t t = ++a.t[r];
            step.rates = adam_rates_at(rule, t, a.clip);
            step.key = adam_chance(a.seed, t);
        }
        __syncthreads();
        const float *g = a.g + n * a.cols;
        T *weights = a.weights ? (T *)a.weights + n * a.cols : NULL;
        float *master = a.master ? a.master + at : (float *)(void *)weights;
        for (size_t c = (size_t)threadIdx.x * N; c < a.cols; c += (size_t)blockDim.x * N) {
            float gradient[N];
            gpu_fetch(gradient, g + c);
            GPU_UNROLL
            for (int j = 0; j < N && a.bus_type == ZF_BF16; j++) gradient[j] = gpu_float(gpu_from_float<__nv_bfloat16>(gradient[j]));
            update<N>(rule, step.rates, master + c, a.m + at + c, a.v + at + c, gradient, weights && a.master ? weights + c : NULL,
                      a.stochastic, [&](int j) { return gpu_update_noise(step.key, a.first + n * a.cols + c + j); });
        }
        __syncthreads(); /* step is used again */
    }
}

static unsigned row_blocks(size_t rows)
{
    return rows < GPU_MOST_BLOCKS ? (unsigned)rows : (unsigned)GPU_MOST_BLOCKS;
}

extern "C" cudaError_t zf_cuda_adamw_rows(const struct zf_adamw_rows_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_by_width<float>(wide_state((const T *)a->weights, a->master, a->m, a->v, a->g, a->cols), [&](auto width) {
            return gpu_launch(adamw_rows<T, decltype(width)::value>, row_blocks(a->rows), GPU_THREADS, 0, s, *a,
                              adam_rule_of(a->beta1, a->beta2, a->eps, a->lr, a->decay));
        });
    });
}
