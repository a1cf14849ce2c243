/* Ops that go through memory once: sums, casts, copies, activations, embeddings, rotations. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

#define EACH(i, n) for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (size_t)gridDim.x * blockDim.x)

template <class T> static __global__ void add(const T *a, const T *b, T *y, size_t n)
{
    EACH(i, n) y[i] = gpu_from_float<T>(gpu_float(a[i]) + gpu_float(b[i]));
}

extern "C" cudaError_t zf_cuda_add(const struct zf_add_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(add<T>, gpu_blocks(a->n), GPU_THREADS, 0, s, (const T *)a->a, (const T *)a->b, (T *)a->y, a->n);
    });
}

template <class T> static __global__ void copy_rows(const T *from, T *to, size_t rows, size_t cols, size_t ld_from, size_t ld_to)
{
    EACH(i, rows * cols)
    {
        size_t r = i / cols, c = i % cols;
        to[r * ld_to + c] = from[r * ld_from + c];
    }
}

extern "C" cudaError_t zf_cuda_copy_rows(const struct zf_copy_rows_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(copy_rows<T>, gpu_blocks(a->rows * a->cols), GPU_THREADS, 0, s, (const T *)a->from, (T *)a->to, a->rows, a->cols,
                          a->ld_from, a->ld_to);
    });
}

template <class T, class F> static __global__ void cast(T *to, const F *from, size_t n)
{
    EACH(i, n) to[i] = gpu_from_float<T>(gpu_float(from[i]));
}

extern "C" cudaError_t zf_cuda_cast(const struct zf_cast_args *a, cudaStream_t s)
{
    size_t size = a->type == ZF_BF16 ? sizeof(__nv_bfloat16) : sizeof(float);
    if (a->type == a->from_type) return cudaMemcpyAsync(a->to, a->from, a->n * size, cudaMemcpyDefault, s);
    return gpu_by_type(a->type, [&](auto t) {
        return gpu_by_type(a->from_type, [&](auto f) {
            using T = decltype(t);
            using F = decltype(f);
            return gpu_launch(cast<T, F>, gpu_blocks(a->n), GPU_THREADS, 0, s, (T *)a->to, (const F *)a->from, a->n);
        });
    });
}

/* ---- activations ---- */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static const float GELU_SCALE = 0.7978845608028654f, GELU_CUBE = 0.044715f; /* sqrt(2 / pi) */

/* GELU is x times the sigmoid of this: (1 + tanh(u)) / 2 is that of 2u, without the difference of two that are almost equal. */
static __device__ __forceinline__ float gelu_gate(float x)
{
    return 2 * GELU_SCALE * (x + GELU_CUBE * x * x * x);
}

template <int KIND> static __device__ __forceinline__ float activate(float x, float up)
{
    if (KIND == ZF_RELU) return x > 0 || x != x ? x : 0;
    if (KIND == ZF_SWIGLU) return x * sigmoid(x) * up;
    return x * sigmoid(gelu_gate(x));
}

/* d activate / dx, of SWIGLU over up */
template <int KIND> static __device__ __forceinline__ float slope(float x)
{
    if (KIND == ZF_RELU) return x > 0 ? 1 : x != x ? x : 0;
    float gate = KIND == ZF_SWIGLU ? x : gelu_gate(x), g = sigmoid(gate), bend = g * sigmoid(-gate);
    float inner = KIND == ZF_SWIGLU ? 1 : 2 * GELU_SCALE * (1 + 3 * GELU_CUBE * x * x);
    return bend > 0 ? g + x * inner * bend : g; /* far out x and inner may be infinite where there is no bend */
}

template <class T, int KIND> static __global__ void activation(const T *x, const T *up, T *y, size_t rows, size_t n, size_t ldx, size_t ldy)
{
    EACH(i, rows * n)
    {
        size_t r = i / n, c = i % n;
        float u = KIND == ZF_SWIGLU ? gpu_float(up[r * ldx + c]) : 0;
        y[r * ldy + c] = gpu_from_float<T>(activate<KIND>(gpu_float(x[r * ldx + c]), u));
    }
}

template <class T, int KIND>
static __global__ void activation_backward(const T *dy, const T *x, const T *up, T *dx, T *dup, size_t rows, size_t n, size_t lddy,
                                           size_t ldx, size_t lddx)
{
    EACH(i, rows * n)
    {
        size_t r = i / n, c = i % n;
        float d = gpu_float(dy[r * lddy + c]), v = gpu_float(x[r * ldx + c]);
        if (KIND == ZF_SWIGLU) {
            float u = gpu_float(up[r * ldx + c]);
            dx[r * lddx + c] = gpu_from_float<T>(d * u * slope<KIND>(v));
            dup[r * lddx + c] = gpu_from_float<T>(d * v * sigmoid(v));
        } else {
            dx[r * lddx + c] = gpu_from_float<T>(d * slope<KIND>(v));
        }
    }
}

/* f(std::integral_constant) with the kind. */
template <class F> static cudaError_t by_kind(enum zf_activation_kind kind, F f)
{
    switch (kind) {
    case ZF_RELU: return f(std::integral_constant<int, ZF_RELU>());
    case ZF_GELU_TANH: return f(std::integral_constant<int, ZF_GELU_TANH>());
    default: return f(std::integral_constant<int, ZF_SWIGLU>());
    }
}

extern "C" cudaError_t zf_cuda_activation(const struct zf_activation_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        return by_kind(a->kind, [&](auto kind) {
            using T = decltype(t);
            return gpu_launch(activation<T, decltype(kind)::value>, gpu_blocks(a->rows * a->n), GPU_THREADS, 0, s, (const T *)a->x,
                              (const T *)a->up, (T *)a->y, a->rows, a->n, a->ldx, a->ldy);
        });
    });
}

extern "C" cudaError_t zf_cuda_activation_backward(const struct zf_activation_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        return by_kind(a->kind, [&](auto kind) {
            using T = decltype(t);
            return gpu_launch(activation_backward<T, decltype(kind)::value>, gpu_blocks(a->rows * a->n), GPU_THREADS, 0, s,
                              (const T *)a->dy, (const T *)a->x, (const T *)a->up, (T *)a->dx, (T *)a->dup, a->rows, a->n, a->lddy, a->ldx,
                              a->lddx);
        });
    });
}

/* ---- embeddings ---- */

template <class T>
static __global__ void embed(const T *table, const int32_t *index, T *y, size_t rows, size_t cols, int32_t offset, bool accumulate)
{
    EACH(i, rows * cols)
    {
        size_t r = i / cols, c = i % cols;
        float x = gpu_float(table[(size_t)(index[r] + offset) * cols + c]);
        y[i] = gpu_from_float<T>(accumulate ? gpu_float(y[i]) + x : x);
    }
}

extern "C" cudaError_t zf_cuda_embed(const struct zf_embed_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(embed<T>, gpu_blocks(a->rows * a->cols), GPU_THREADS, 0, s, (const T *)a->table, a->index, (T *)a->y, a->rows,
                          a->cols, a->offset, a->accumulate);
    });
}

/* A thread has a column: rows come in their order, whichever entry they belong to. */
template <class T>
static __global__ void embed_backward(const T *dy, const int32_t *index, float *dtable, size_t rows, size_t cols, int32_t offset,
                                      int32_t skip)
{
    EACH(c, cols)
    {
        for (size_t r = 0; r < rows; r++)
            if (index[r] != skip) dtable[(size_t)(index[r] + offset) * cols + c] += gpu_float(dy[r * cols + c]);
    }
}

extern "C" cudaError_t zf_cuda_embed_backward(const struct zf_embed_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(embed_backward<T>, gpu_blocks(a->cols), GPU_THREADS, 0, s, (const T *)a->dy, a->index, a->dtable, a->rows,
                          a->cols, a->offset, a->skip);
    });
}

/* ---- rotations ---- */

template <class T>
static __global__ void rope(T *x, const float *table, const int32_t *position, size_t rows, size_t heads, size_t head_dim, size_t ld,
                            bool inverse)
{
    size_t half = head_dim / 2;
    EACH(i, rows * heads * half)
    {
        size_t r = i / (heads * half), h = i / half % heads, d = i % half;
        const float *turn = table + ((size_t)position[r] * half + d) * 2;
        T *p = x + r * ld + h * head_dim + d;
        float a = gpu_float(p[0]), b = gpu_float(p[half]), cosine = turn[0], sine = inverse ? -turn[1] : turn[1];
        p[0] = gpu_from_float<T>(a * cosine - b * sine);
        p[half] = gpu_from_float<T>(b * cosine + a * sine);
    }
}

extern "C" cudaError_t zf_cuda_rope(const struct zf_rope_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        return gpu_launch(rope<T>, gpu_blocks(a->rows * a->heads * (a->head_dim / 2)), GPU_THREADS, 0, s, (T *)a->x, a->table, a->position,
                          a->rows, a->heads, a->head_dim, a->ld, a->inverse);
    });
}

/* ---- biases ---- */

template <class C, class T> static __global__ void bias_rows(C *c, const T *bias, size_t rows, size_t n, size_t ld, bool accumulate)
{
    EACH(i, rows * n)
    {
        C *to = c + i / n * ld + i % n;
        float b = bias ? gpu_float(bias[i % n]) : 0;
        *to = gpu_from_float<C>(accumulate ? gpu_float(*to) + b : b);
    }
}

extern "C" cudaError_t zf_cuda_bias_rows(const struct zf_matmul_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        return gpu_by_type(a->type_c, [&](auto c) {
            using T = decltype(t);
            using C = decltype(c);
            return gpu_launch(bias_rows<C, T>, gpu_blocks(a->m * a->n), GPU_THREADS, 0, s, (C *)a->c, (const T *)a->bias, a->m, a->n,
                              a->ldc, a->accumulate);
        });
    });
}
