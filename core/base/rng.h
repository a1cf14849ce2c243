/* Counter-based random numbers: a value is a pure function of (seed, stream, counter), independent of threads and order.
 * Philox4x32-10 (Salmon et al., SC 2011). */
#ifndef ZF_BASE_RNG_H
#define ZF_BASE_RNG_H

#include <stdint.h>

/* Streams keep the users of one seed apart. */
enum zf_stream {
    ZF_STREAM_INIT = 1,
    ZF_STREAM_SHUFFLE = 2,
    ZF_STREAM_SAMPLE = 3,
    ZF_STREAM_ROUND = 4,
    ZF_STREAM_TEST = 5,
    ZF_STREAM_MOVE = 6
};

struct zf_u32x4 {
    uint32_t v[4];
};

struct zf_u32x4 zf_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/* Uniform in [0, 1) with 53 bits; standard normal. `index` counts values of the (seed, stream, substream). */
double zf_uniform(uint64_t seed, enum zf_stream stream, uint32_t substream, uint64_t index);
double zf_normal(uint64_t seed, enum zf_stream stream, uint32_t substream, uint64_t index);

/* Position i of a permutation of 0..n-1 that belongs to (seed, epoch): a Feistel network with cycle walking, O(1). i < n. */
uint64_t zf_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);

#endif
