/* Kernels whose ways through memory are known (test_record.c). One warp each. */
#ifndef PATTERNS_H
#define PATTERNS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pattern {
    STRIDE_1,
    STRIDE_2,
    STRIDE_33,
    COLUMN,         /* of a matrix of 64 columns */
    BROADCAST,      /* all lanes one number */
    VECTORS,        /* 16 bytes a lane */
    HALF_WARP,      /* 16 lanes are there */
    IN_TURN,        /* a loop of 4 rounds, stride 1 each */
    SHIFTED,        /* stride 1, one number off the sector */
    SHARED_ROW,     /* 32 words in a row */
    SHARED_2,       /* every second word */
    SHARED_COLUMN,  /* of [32][32] */
    SHARED_PADDED,  /* of [32][33] */
    SHARED_ONE,     /* all lanes one word */
    SHARED_VECTORS, /* 16 bytes a lane */
    SHARED_DYNAMIC, /* a column of [32][32] again, in dynamic shared memory */
    PATTERNS
};

/* from: 4096 floats; to: 256. */
cudaError_t pattern_launch(enum pattern which, float *to, const float *from, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
