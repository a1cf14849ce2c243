/* AdamW of whole blocks, of rows that have their own counts, and of the CPU half's windows (which only a device that does both halves'
 * work serves). */
#include "kernels/cuda/adamw.h"
#include "kernels/cuda/launch.h"

struct whole {
    adam_rule rule;
    adam_rates rates;
    gpu_key key;
};

template <class T> static __global__ void adamw(struct zf_adamw_args a, whole w)
{
    float clip = a.norm ? a.norm->clip : 1;
    if (a.norm && !a.norm->apply) return;
    w.rates.clip = clip;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (size_t)gridDim.x * blockDim.x) {
        adam_values x = {a.master[i], a.m[i], a.v[i]};
        adam_update(w.rule, w.rates, x, a.g[i]);
        a.master[i] = x.master;
        a.m[i] = x.m;
        a.v[i] = x.v;
        if (!a.weights) continue;
        if (a.stochastic)
            gpu_store_by((T *)a.weights + i, x.master, gpu_update_noise(w.key, a.first + i));
        else
            ((T *)a.weights)[i] = gpu_from_float<T>(x.master);
    }
}

extern "C" cudaError_t zf_cuda_adamw(const struct zf_adamw_args *a, cudaStream_t s)
{
    whole w = {adam_rule_of(a->beta1, a->beta2, a->eps, a->lr, a->decay), {}, adam_chance(a->seed, a->t)};
    w.rates = adam_rates_at(w.rule, a->t, 1);
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(adamw<T>, gpu_blocks(a->n), GPU_THREADS, 0, s, *a, w);
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

template <class T> static __global__ void adamw_rows(struct zf_adamw_rows_args a, adam_rule rule)
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
        for (size_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
            float gradient = a.bus_type == ZF_BF16 ? gpu_float(gpu_from_float<__nv_bfloat16>(g[c])) : g[c];
            adam_values x = {master[c], a.m[at + c], a.v[at + c]};
            adam_update(rule, step.rates, x, gradient);
            master[c] = x.master;
            a.m[at + c] = x.m;
            a.v[at + c] = x.v;
            if (!weights || !a.master) continue;
            if (a.stochastic)
                gpu_store_by(weights + c, x.master, gpu_update_noise(step.key, a.first + n * a.cols + c));
            else
                weights[c] = gpu_from_float<T>(x.master);
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
        return gpu_launch(adamw_rows<T>, row_blocks(a->rows), GPU_THREADS, 0, s, *a,
                          adam_rule_of(a->beta1, a->beta2, a->eps, a->lr, a->decay));
    });
}
