/* Kernels with one defect each, and without it: what the builds of the tests must find (test_defects.c). */
#ifndef DEFECTS_H
#define DEFECTS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define DEFECT_MAP(X) \
    X(missing_barrier) \
    X(scratch_reused) \
    X(warp_in_lockstep) \
    X(static_shared_overrun) \
    X(static_shared_overrun_by_pointer) \
    X(dynamic_shared_overrun) \
    X(global_overrun) \
    X(adds_without_atomics) \
    X(divergent_barrier) \
    X(two_barriers_meet) \
    X(shuffle_of_the_absent) \
    X(mask_without_its_caller) \
    X(shared_uninitialised) \
    X(product_kernel_overrun) \
    X(too_many_threads) \
    X(too_much_shared_memory)
/* clang-format on */
enum defect {
#define X(name) DEFECT_##name,
    DEFECT_MAP(X)
#undef X
        DEFECTS
};

enum { DEFECT_VALUES = 128 };

/* Launches it over out[DEFECT_VALUES], which is all 0; `wrong`: with the defect. */
cudaError_t defect_launch(enum defect which, bool wrong, float *out, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
