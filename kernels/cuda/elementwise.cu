/* Ops that go through memory once: sums, casts, copies, activations, embeddings, rotations. */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"

#define EACH(i, n) for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (size_t)gridDim.x * blockDim.x)

/* Kernels take N elements at once: 16 bytes of the wider type, where all rows allow it; else one. EACH counts in these. */

template <class T, int N> static __global__ void add(const T *a, const T *b, T *y, size_t n)
{
    EACH(i, n / N)
    {
        float u[N], v[N];
        gpu_fetch(u, a + i * N);
        gpu_fetch(v, b + i * N);
        GPU_UNROLL
        for (int j = 0; j < N; j++) u[j] += v[j];
        gpu_store(y + i * N, u);
    }
}

extern "C" cudaError_t zf_cuda_add(const struct zf_add_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        const T *x = (const T *)a->a, *b = (const T *)a->b;
        T *y = (T *)a->y;
        return gpu_by_width<T>(gpu_wide(x, a->n) && gpu_wide(b, a->n) && gpu_wide(y, a->n), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(add<T, N>, gpu_blocks(a->n / N), GPU_THREADS, 0, s, x, b, y, a->n);
        });
    });
}

template <class T, int N> static __global__ void copy_rows(const T *from, T *to, size_t rows, size_t cols, size_t ld_from, size_t ld_to)
{
    EACH(i, rows * (cols / N))
    {
        size_t r = i / (cols / N), c = i % (cols / N) * N;
        gpu_write(to + r * ld_to + c, gpu_read<N>(from + r * ld_from + c));
    }
}

extern "C" cudaError_t zf_cuda_copy_rows(const struct zf_copy_rows_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        const T *from = (const T *)a->from;
        T *to = (T *)a->to;
        return gpu_by_width<T>(gpu_wide(from, a->ld_from) && gpu_wide(to, a->ld_to) && gpu_wide(to, a->cols), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(copy_rows<T, N>, gpu_blocks(a->rows * (a->cols / N)), GPU_THREADS, 0, s, from, to, a->rows, a->cols,
                              a->ld_from, a->ld_to);
        });
    });
}

template <class T, class F, int N> static __global__ void cast(T *to, const F *from, size_t n)
{
    EACH(i, n / N)
    {
        float x[N];
        gpu_fetch(x, from + i * N);
        gpu_store(to + i * N, x);
    }
}

extern "C" cudaError_t zf_cuda_cast(const struct zf_cast_args *a, cudaStream_t s)
{
    size_t size = a->type == ZF_BF16 ? sizeof(__nv_bfloat16) : sizeof(float);
    if (a->type == a->from_type) return cudaMemcpyAsync(a->to, a->from, a->n * size, cudaMemcpyDefault, s);
    return gpu_by_type(a->type, [&](auto t) {
        return gpu_by_type(a->from_type, [&](auto f) {
            using T = decltype(t);
            using F = decltype(f);
            return gpu_by_width<float>(gpu_wide((const T *)a->to, a->n) && gpu_wide((const F *)a->from, a->n), [&](auto width) {
                const int N = decltype(width)::value;
                return gpu_launch(cast<T, F, N>, gpu_blocks(a->n / N), GPU_THREADS, 0, s, (T *)a->to, (const F *)a->from, a->n);
            });
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

template <class T, int KIND, int N>
static __global__ void activation(const T *x, const T *up, T *y, size_t rows, size_t n, size_t ldx, size_t ldy)
{
    EACH(i, rows * (n / N))
    {
        size_t r = i / (n / N), c = i % (n / N) * N;
        float v[N], u[N] = {};
        gpu_fetch(v, x + r * ldx + c);
        if (KIND == ZF_SWIGLU) gpu_fetch(u, up + r * ldx + c);
        GPU_UNROLL
        for (int j = 0; j < N; j++) v[j] = activate<KIND>(v[j], u[j]);
        gpu_store(y + r * ldy + c, v);
    }
}

template <class T, int KIND, int N>
static __global__ void activation_backward(const T *dy, const T *x, const T *up, T *dx, T *dup, size_t rows, size_t n, size_t lddy,
                                           size_t ldx, size_t lddx)
{
    EACH(i, rows * (n / N))
    {
        size_t r = i / (n / N), c = i % (n / N) * N;
        float d[N], v[N], u[N], du[N];
        gpu_fetch(d, dy + r * lddy + c);
        gpu_fetch(v, x + r * ldx + c);
        if (KIND == ZF_SWIGLU) gpu_fetch(u, up + r * ldx + c);
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            du[j] = d[j] * v[j] * sigmoid(v[j]);
            d[j] = d[j] * (KIND == ZF_SWIGLU ? u[j] : 1) * slope<KIND>(v[j]);
        }
        gpu_store(dx + r * lddx + c, d);
        if (KIND == ZF_SWIGLU) gpu_store(dup + r * lddx + c, du);
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
            const T *x = (const T *)a->x, *up = a->kind == ZF_SWIGLU ? (const T *)a->up : x;
            T *y = (T *)a->y;
            return gpu_by_width<T>(gpu_wide(x, a->ldx) && gpu_wide(up, a->n) && gpu_wide(y, a->ldy), [&](auto width) {
                const int N = decltype(width)::value;
                return gpu_launch(activation<T, decltype(kind)::value, N>, gpu_blocks(a->rows * (a->n / N)), GPU_THREADS, 0, s, x, up, y,
                                  a->rows, a->n, a->ldx, a->ldy);
            });
        });
    });
}

extern "C" cudaError_t zf_cuda_activation_backward(const struct zf_activation_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        return by_kind(a->kind, [&](auto kind) {
            using T = decltype(t);
            bool gated = a->kind == ZF_SWIGLU;
            const T *dy = (const T *)a->dy, *x = (const T *)a->x, *up = gated ? (const T *)a->up : x;
            T *dx = (T *)a->dx, *dup = gated ? (T *)a->dup : dx;
            bool wide = gpu_wide(dy, a->lddy) && gpu_wide(x, a->ldx) && gpu_wide(up, a->n) && gpu_wide(dx, a->lddx) && gpu_wide(dup, a->n);
            return gpu_by_width<T>(wide, [&](auto width) {
                const int N = decltype(width)::value;
                return gpu_launch(activation_backward<T, decltype(kind)::value, N>, gpu_blocks(a->rows * (a->n / N)), GPU_THREADS, 0, s, dy,
                                  x, up, dx, dup, a->rows, a->n, a->lddy, a->ldx, a->lddx);
            });
        });
    });
}

/* ---- embeddings ---- */

template <class T, int N>
static __global__ void embed(const T *table, const int32_t *index, T *y, size_t rows, size_t cols, int32_t offset, bool accumulate)
{
    EACH(i, rows * (cols / N))
    {
        size_t r = i / (cols / N), c = i % (cols / N) * N;
        float x[N], before[N] = {};
        gpu_fetch(x, table + (size_t)(index[r] + offset) * cols + c);
        if (accumulate) gpu_fetch(before, y + i * N);
        GPU_UNROLL
        for (int j = 0; j < N && accumulate; j++) x[j] += before[j];
        gpu_store(y + i * N, x);
    }
}

extern "C" cudaError_t zf_cuda_embed(const struct zf_embed_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        const T *table = (const T *)a->table;
        T *y = (T *)a->y;
        return gpu_by_width<T>(gpu_wide(table, a->cols) && gpu_wide(y, a->cols), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(embed<T, N>, gpu_blocks(a->rows * (a->cols / N)), GPU_THREADS, 0, s, table, a->index, y, a->rows, a->cols,
                              a->offset, a->accumulate);
        });
    });
}

/* A block has the entries whose number is its own modulo the blocks, and of them `columns` columns: it goes through the index, keeps the
 * rows that are its, SOME at a time, and adds them in their order. So every entry gets its rows in order, and nobody else writes it. */
static const unsigned SOME = 8 * GPU_THREADS, ENTRY_BLOCKS = 128;

template <class T>
static __global__ void embed_backward(const T *dy, const int32_t *index, float *dtable, size_t rows, size_t cols, int32_t offset,
                                      int32_t skip)
{
    __shared__ uint32_t mine[SOME], before[GPU_THREADS / GPU_WARP];
    unsigned warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
    size_t c = (size_t)blockIdx.y * GPU_THREADS + threadIdx.x;
    for (size_t first = 0; first < rows; first += SOME) {
        unsigned count = 0;
        for (unsigned at = 0; at < SOME && first + at < rows; at += GPU_THREADS) {
            size_t r = first + at + threadIdx.x;
            bool is_mine = r < rows && index[r] != skip && (unsigned)(index[r] + offset) % gridDim.x == blockIdx.x;
            unsigned all = __ballot_sync(0xffffffffu, is_mine), place = count;
            if (lane == 0) before[warp] = (unsigned)__popc(all);
            __syncthreads();
            for (unsigned w = 0; w < GPU_THREADS / GPU_WARP; w++) {
                place += w < warp ? before[w] : 0;
                count += before[w];
            }
            if (is_mine) mine[place + (unsigned)__popc(all & ((1u << lane) - 1))] = at + threadIdx.x;
            __syncthreads();
        }
        for (unsigned i = 0; i < count && c < cols; i++) {
            size_t r = first + mine[i];
            dtable[(size_t)(index[r] + offset) * cols + c] += gpu_float(dy[r * cols + c]);
        }
        __syncthreads(); /* mine is used again */
    }
}

extern "C" cudaError_t zf_cuda_embed_backward(const struct zf_embed_backward_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        dim3 grid(a->rows < ENTRY_BLOCKS ? (unsigned)a->rows : (unsigned)ENTRY_BLOCKS, (unsigned)((a->cols - 1) / GPU_THREADS + 1));
        return gpu_launch(embed_backward<T>, grid, GPU_THREADS, 0, s, (const T *)a->dy, a->index, a->dtable, a->rows, a->cols, a->offset,
                          a->skip);
    });
}

/* ---- rotations ---- */

template <class T, int N>
static __global__ void rope(T *x, const float *table, const int32_t *position, size_t rows, size_t heads, size_t head_dim, size_t ld,
                            bool inverse)
{
    const int PAIRS = N == 1 ? 1 : 4; /* numbers of the table at once */
    size_t half = head_dim / 2, each = half / N;
    EACH(i, rows * heads * each)
    {
        size_t r = i / (heads * each), h = i / each % heads, d = i % each * N;
        T *p = x + r * ld + h * head_dim + d;
        float a[N], b[N], turn[2 * N]; /* cosine, sine */
        gpu_fetch(a, p);
        gpu_fetch(b, p + half);
        const float *from = table + ((size_t)position[r] * half + d) * 2;
        GPU_UNROLL
        for (int j = 0; j < 2 * N; j += PAIRS) {
            float some[PAIRS];
            gpu_fetch(some, from + j);
            for (int i = 0; i < PAIRS; i++) turn[j + i] = some[i];
        }
        GPU_UNROLL
        for (int j = 0; j < N; j++) {
            float u = a[j], v = b[j];
            float sine = inverse ? -turn[2 * j + 1] : turn[2 * j + 1];
            a[j] = u * turn[2 * j] - v * sine;
            b[j] = v * turn[2 * j] + u * sine;
        }
        gpu_store(p, a);
        gpu_store(p + half, b);
    }
}

extern "C" cudaError_t zf_cuda_rope(const struct zf_rope_args *a, cudaStream_t s)
{
    return gpu_by_type(a->type, [&](auto t) {
        using T = decltype(t);
        T *x = (T *)a->x;
        return gpu_by_width<T>(gpu_wide(x, a->ld) && gpu_wide(x, a->head_dim / 2) && gpu_wide(a->table, a->head_dim), [&](auto width) {
            const int N = decltype(width)::value;
            return gpu_launch(rope<T, N>, gpu_blocks(a->rows * a->heads * (a->head_dim / 2 / N)), GPU_THREADS, 0, s, x, a->table,
                              a->position, a->rows, a->heads, a->head_dim, a->ld, a->inverse);
        });
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
