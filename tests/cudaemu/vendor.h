/* vendor.h - what the emulated libraries (cuBLAS, cuBLASLt, NCCL) check alike. Each check that fails has said so (emu_refuse). */
#pragma once
#include "emu.h"
#include <cublas_v2.h>

/* A column-major matrix as a library's call names it. */
struct EmuOperand {
    const char *name, *ld_name; /* as in the documentation: "A", "lda" */
    const void *data;
    cudaDataType type;
    long rows, cols, ld; /* as it lies in memory */
    long long stride;    /* in elements, from one of a batch to the next */
    long batch;
};

/* Enough columns, aligned to its elements (to `align` bytes, where that is more), and within its allocation on that device. A matrix
 * without elements is not looked at. */
bool emu_check_operand(const char *call, const EmuOperand &o, size_t align, int device);
/* `bytes` at p lie within one allocation, if p is in one at all, of that device or pinned. */
bool emu_check_memory(const char *call, const char *name, const void *p, size_t bytes, int device);
/* A row of the table of types: compute type, alpha's, A's and B's, C's. */
bool emu_check_types(const char *call, cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b, cudaDataType c);
/* alpha or beta, where the pointer mode says that it is. */
bool emu_check_scalar(const char *call, const char *name, const void *p, bool on_device);
/* There is such a stream, and it is of that device. */
bool emu_check_stream(const char *call, cudaStream_t s, int device);
