#include "kernels/cuda/gpu.h"
#include "tests/cudaemu/patterns.h"

/* The second argument of each is what is looked at. */
static __global__ void strided(float *to, const float *from, int stride, int shift)
{
    to[threadIdx.x] = from[threadIdx.x * stride + shift];
}

static __global__ void vectors(float4 *to, const float4 *from)
{
    to[threadIdx.x] = from[threadIdx.x];
}

static __global__ void in_turn(float *to, const float *from)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += from[i * 32 + threadIdx.x];
    to[threadIdx.x] = sum;
}

template <int PITCH> static __global__ void shared_column(float *to, int lane, int step)
{
    __shared__ float s[32 * PITCH];
    s[threadIdx.x] = 0;
    __syncthreads();
    to[threadIdx.x] = s[(threadIdx.x * lane + step) * PITCH];
}

static __global__ void shared_strided(float *to, int stride)
{
    __shared__ float s[64];
    s[threadIdx.x] = 0;
    __syncthreads();
    to[threadIdx.x] = s[threadIdx.x * stride];
}

static __global__ void shared_vectors(float4 *to)
{
    __shared__ float4 s[32];
    s[threadIdx.x].x = 0;
    __syncthreads();
    to[threadIdx.x] = s[threadIdx.x];
}

static __global__ void shared_dynamic(float *to)
{
    DYN_SHARED(float, s);
    s[threadIdx.x] = 0;
    __syncthreads();
    to[threadIdx.x] = s[threadIdx.x * 32];
}

extern "C" cudaError_t pattern_launch(enum pattern which, float *to, const float *from, cudaStream_t s)
{
    switch (which) {
    case STRIDE_1: return gpu_launch(strided, 1, 32, 0, s, to, from, 1, 0);
    case STRIDE_2: return gpu_launch(strided, 1, 32, 0, s, to, from, 2, 0);
    case STRIDE_33: return gpu_launch(strided, 1, 32, 0, s, to, from, 33, 0);
    case COLUMN: return gpu_launch(strided, 1, 32, 0, s, to, from, 64, 0);
    case BROADCAST: return gpu_launch(strided, 1, 32, 0, s, to, from, 0, 5);
    case HALF_WARP: return gpu_launch(strided, 1, 16, 0, s, to, from, 1, 0);
    case SHIFTED: return gpu_launch(strided, 1, 32, 0, s, to, from, 1, 1);
    case VECTORS: return gpu_launch(vectors, 1, 32, 0, s, (float4 *)(void *)to, (const float4 *)(const void *)from);
    case IN_TURN: return gpu_launch(in_turn, 1, 32, 0, s, to, from);
    case SHARED_ROW: return gpu_launch(shared_strided, 1, 32, 0, s, to, 1);
    case SHARED_2: return gpu_launch(shared_strided, 1, 32, 0, s, to, 2);
    case SHARED_COLUMN: return gpu_launch(shared_column<32>, 1, 32, 0, s, to, 1, 0);
    case SHARED_PADDED: return gpu_launch(shared_column<33>, 1, 32, 0, s, to, 1, 0);
    case SHARED_ONE: return gpu_launch(shared_column<32>, 1, 32, 0, s, to, 0, 3);
    case SHARED_VECTORS: return gpu_launch(shared_vectors, 1, 32, 0, s, (float4 *)(void *)to);
    case SHARED_DYNAMIC: return gpu_launch(shared_dynamic, 1, 32, 32 * 32 * sizeof(float), s, to);
    default: return cudaErrorInvalidValue;
    }
}
