/* `doctor` of a build that has the CUDA device. */
#ifndef ZF_CUDA_DOCTOR_H
#define ZF_CUDA_DOCTOR_H

#include <stddef.h>
#include <stdio.h>

/* GPUs, what each tells, NVIDIA's libraries and which package brings what is missing; a line each, its name in 14 columns. What would keep
 * a run from the GPU goes into missing as well, "" if nothing does. Weak: a build without the toolkit has none. */
__attribute__((weak)) void zf_cuda_doctor(FILE *to, char *missing, size_t size);

#endif
