/* blas.h - matrices and their product, for cublas.cpp and cublaslt.cpp. */
#pragma once
#include "emu.h"
#include <library_types.h>

size_t emu_width(cudaDataType t); /* bytes of an element; 0: not supported */

struct Matrix { /* column-major */
    void *data;
    cudaDataType type;
    int rows, cols;
    long ld;
    void *column(int j) const
    {
        return (char *)data + (size_t)j * (size_t)ld * emu_width(type);
    }
    size_t column_bytes() const
    {
        return (size_t)rows * emu_width(type);
    }
};

/* d = alpha * op(a) * op(b) + beta * c + bias, rounded once; c and d have one shape; bias: a number a row, or NULL. In the stream's thread.
 */
void emu_gemm(bool ta, bool tb, float alpha, const Matrix &a, const Matrix &b, float beta, const Matrix &c, const Matrix &d,
              const Matrix *bias);
