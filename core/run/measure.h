/* How fast this machine's memory is, and AdamW beside it. */
#ifndef ZF_RUN_MEASURE_H
#define ZF_RUN_MEASURE_H

#include "kernels/device.h"

/* Bytes a second, the best of a few passes by all threads of the device; 0: not measured. */
struct zf_speed {
    double read;   /* four arrays, read */
    double copy;   /* one to another: read and written */
    double stream; /* AdamW's bytes without its arithmetic: four arrays read, three of them written back */
    double adamw;  /* 28 bytes a parameter */
};

/* AdamW alone, over `parameters` (16 bytes each are taken meanwhile), in a few passes. */
enum zf_status zf_measure_adamw(struct zf_device *d, size_t parameters, double *out, struct zf_err *e);
/* All of it; under a second. */
enum zf_status zf_measure_memory(struct zf_device *d, size_t parameters, struct zf_speed *out, struct zf_err *e);

#endif
