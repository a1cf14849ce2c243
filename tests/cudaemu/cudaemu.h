/* cudaemu.h - what tests may ask the emulated device besides NVIDIA's own calls. C and C++.
 *
 * Environment of the emulated programs; read when it is needed, so that a test may set it:
 *   CUDAEMU_DEVICES       how many there are (1). 0: a machine without a driver. -1: a driver, and no device
 *   CUDAEMU_MEM_MB        memory of each (4096); more is refused
 *   CUDAEMU_PIN_MB        pinned host memory of the process; more is refused, as where memlock is small (no limit)
 *   CUDAEMU_CC            compute capability: 75, 80, 90 (90)
 *   CUDAEMU_LOSE_AT       the device is lost at this launch of a kernel, counted from 1: it does not run, and every later call fails
 *   CUDAEMU_LOSE_WITH     how: launch, ecc or unavailable (launch)
 *   CUDAEMU_PROTECT       1: host code that touches device memory dies with a report (arena.cpp). Not under sanitizers
 *   CUDAEMU_COUNTS        a file that gets the table of calls when the process ends: NAME COUNT, one a line
 *   CUDAEMU_SEED          a random and unfair schedule of the threads of a block
 *   CUDAEMU_SMS           blocks that run at once
 *   CUDAEMU_LATENCY_US    a random delay before each operation of a stream
 *   CUDAEMU_OPENBLAS      0: products by plain loops
 *   CUDAEMU_NCCL_TIMEOUT_S  how long a collective waits for the other ranks (60)
 */
#ifndef CUDAEMU_H
#define CUDAEMU_H

#ifdef __cplusplus
extern "C" {
#endif

/* How often the function of that name was called by this process; -1: it is not emulated. "cudaMemcpyAsync of pageable memory" counts those
 * calls of cudaMemcpyAsync that held up their caller. */
long cudaemu_calls(const char *name);

/* Calls that wait for the whole device, or may: a training step has none. */
long cudaemu_whole_device_calls(void);

/* What was wrong with the last argument that an emulated library refused; "" if none was. Valid until the next refusal. */
const char *cudaemu_refusal(void);
void cudaemu_forget_refusal(void);

#ifdef __cplusplus
}
#endif

#endif
