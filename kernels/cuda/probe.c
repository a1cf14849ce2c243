/* Whether there is a GPU that this program can use, and if not, what is missing: the driver, a GPU, one that is new enough, cuBLAS. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MAJOR = 8 }; /* products of bf16 in hardware: the kernels are made for it */

/* The driver that is too old and the one that is not there are one error to the runtime. */
static enum zf_status no_driver(struct zf_err *e)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (!driver)
        return zf_fail(
            e, ZF_USAGE, NULL,
            "there is no NVIDIA driver here (libcuda.so.1 was not found); install it with the package of your distribution, and in "
            "a container start that with --gpus all; or compute on the processor, with device = host");
    return zf_fail(e, ZF_USAGE, NULL,
                   "the NVIDIA driver is made for CUDA %d.%d, and this program for CUDA %d.%d; a newer driver is needed, or device = host",
                   driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static enum zf_status no_gpu(struct zf_err *e)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return zf_fail(
        e, ZF_USAGE, NULL,
        "the NVIDIA driver is there and shows no GPU to this process (CUDA_VISIBLE_DEVICES is %s%s%s); in a container start that "
        "with --gpus all, in a job ask for a GPU; or set device = host",
        visible ? "\"" : "", visible ? visible : "not set", visible ? "\"" : "");
}

static enum zf_status count_devices(int *count, struct zf_err *e)
{
    *count = 0;
    cudaError_t code = cudaGetDeviceCount(count);
    if (code != cudaSuccess) cudaGetLastError();
    switch (code) {
    case cudaSuccess: return *count ? ZF_OK : no_gpu(e);
    case cudaErrorNoDevice: return no_gpu(e);
    case cudaErrorInsufficientDriver: return no_driver(e);
    case cudaErrorStubLibrary:
        return zf_fail(e, ZF_USAGE, NULL,
                       "libcuda.so.1 is the stub of the CUDA toolkit, not the driver's; take the toolkit's folder `stubs` out of "
                       "LD_LIBRARY_PATH, or set device = host");
    default:
        zf_cuda_status(code, NULL, e);
        return zf_fail(e, ZF_USAGE, NULL, "the GPUs cannot be asked: %s; nvidia-smi may say more; or set device = host",
                       cudaGetErrorString(code));
    }
}

/* What the libraries are that make products, and on which GPU: what the bits of a product depend on. */
static void tell_products(const struct zf_cublas *blas, const char *gpu, struct zf_device_info *found)
{
    int version[3] = {0};
    blas->cublasGetProperty(MAJOR_VERSION, &version[0]);
    blas->cublasGetProperty(MINOR_VERSION, &version[1]);
    blas->cublasGetProperty(PATCH_LEVEL, &version[2]);
    snprintf(found->products, sizeof found->products, "cuBLAS %d.%d.%d (%.40s)", version[0], version[1], version[2], gpu);
}

enum zf_status zf_cuda_probe(const struct zf_device_options *o, struct zf_device_info *found, struct zf_err *e)
{
    struct cudaDeviceProp facts;
    const struct zf_cublas *blas;
    int count;
    *found = (struct zf_device_info){.bf16_products = true};
    ZF_TRY(count_devices(&count, e));
    if (o->number < 0 || o->number >= count)
        return zf_fail(e, ZF_USAGE, NULL, "GPU %d was asked for, and there %s; they are counted from 0", o->number,
                       count == 1 ? "is one" : "are fewer");
    ZF_TRY(zf_cuda_status(cudaGetDeviceProperties(&facts, o->number), "the GPU", e)); /* makes no context: that takes memory of it */
    snprintf(found->description, sizeof found->description, "%s", facts.name);
    snprintf(found->isa, sizeof found->isa, "sm_%d%d", facts.major, facts.minor);
    if (facts.major < LEAST_MAJOR)
        return zf_fail(e, ZF_USAGE, NULL,
                       "GPU %d, %s, has the compute capability %d.%d; %d.0 (Ampere) or later is expected; set device = host", o->number,
                       facts.name, facts.major, facts.minor, (int)LEAST_MAJOR);
    if (zf_cuda_cublas(&blas, e)) return e->code = ZF_USAGE;
    tell_products(blas, facts.name, found);
    return ZF_OK;
}
