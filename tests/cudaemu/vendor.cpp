/* vendor.cpp - checks of arguments that the emulated libraries share. */
#include "vendor.h"
#include <algorithm>

static size_t element_bytes(cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F:
    case CUDA_R_32I: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 1;
    }
}

static const char *type_name(cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F: return "CUDA_R_64F";
    case CUDA_R_32F: return "CUDA_R_32F";
    case CUDA_R_32I: return "CUDA_R_32I";
    case CUDA_R_16F: return "CUDA_R_16F";
    case CUDA_R_16BF: return "CUDA_R_16BF";
    case CUDA_R_8I: return "CUDA_R_8I";
    default: return "another type";
    }
}

bool emu_check_memory(const char *call, const char *name, const void *p, size_t bytes, int device)
{
    size_t size, offset;
    int owner;
    if (!emu_allocation_of(p, &size, &offset, &owner)) return true;
    if (bytes > size - offset) {
        emu_refuse(call, name, "that all of it lies in memory that was allocated", "%zu bytes at byte %zu of an allocation of %zu", bytes,
                   offset, size);
        return false;
    }
    if (owner >= 0 && owner != device) {
        emu_refuse(call, name, "memory of the handle's device", "memory of device %d; the handle is of device %d", owner, device);
        return false;
    }
    return true;
}

bool emu_check_operand(const char *call, const EmuOperand &o, size_t align, int device)
{
    size_t width = element_bytes(o.type);
    if (o.ld < std::max(1L, o.rows)) {
        emu_refuse(call, o.ld_name, "at least the rows of the matrix as it is stored, and 1", "%ld; %s is stored with %ld rows", o.ld,
                   o.name, o.rows);
        return false;
    }
    if (!o.rows || !o.cols || !o.batch) return true;
    if (!o.data) {
        emu_refuse(call, o.name, "a pointer to device memory", "NULL");
        return false;
    }
    align = std::max(align, width);
    if ((uintptr_t)o.data % align) {
        emu_refuse(call, o.name, "a pointer that is aligned to its elements", "%p; aligned to less than %zu bytes", o.data, align);
        return false;
    }
    long long last = (long long)o.ld * (o.cols - 1) + o.rows;
    if (o.batch > 1) last += o.stride * (o.batch - 1);
    return emu_check_memory(call, o.name, o.data, (size_t)std::max(0LL, last) * width, device);
}

/* cuBLAS's documentation, cublasGemmEx: real types. */
static const struct {
    cublasComputeType_t first, last; /* compute types of one row */
    cudaDataType scale, ab, c;
} type_table[] = {
    {CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_16F_PEDANTIC, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC, CUDA_R_32I, CUDA_R_8I, CUDA_R_32I},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_8I, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
};

bool emu_check_types(const char *call, cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b, cudaDataType c)
{
    for (auto &t : type_table)
        if (compute >= t.first && compute <= t.last && scale == t.scale && a == t.ab && b == t.ab && c == t.c) return true;
    emu_refuse(call, "the combination of types", "one of its table of compute, scale, A, B and C types",
               "compute type %d, scale %s, A %s, B %s, C %s", (int)compute, type_name(scale), type_name(a), type_name(b), type_name(c));
    return false;
}

bool emu_check_scalar(const char *call, const char *name, const void *p, bool on_device)
{
    size_t size, offset;
    int owner = -1;
    if (!p) {
        emu_refuse(call, name, "a pointer to the factor", "NULL");
        return false;
    }
    bool device = emu_allocation_of(p, &size, &offset, &owner) && owner >= 0;
    if (device == on_device || (on_device && owner < 0 && emu_allocation_of(p, &size, &offset, &owner))) return true;
    emu_refuse(call, name,
               on_device ? "device memory, because of cublasSetPointerMode" : "host memory: the pointer mode is that of the host",
               "in %s memory", device ? "device" : "host");
    return false;
}

bool emu_check_stream(const char *call, cudaStream_t s, int device)
{
    int of = emu_stream_device(s);
    if (of == device || (!s && device >= 0)) return true;
    if (of < 0)
        emu_refuse(call, "the stream", "a stream that exists", "none, or was destroyed");
    else
        emu_refuse(call, "the stream", "a stream of the handle's device", "of device %d; the handle is of device %d", of, device);
    return false;
}
