#include "core/base/rng.h"

#include <math.h>

struct zf_u32x4 zf_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct zf_u32x4){{c0, c1, c2, c3}};
}

static double unit(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

double zf_uniform(uint64_t seed, enum zf_stream stream, uint32_t substream, uint64_t index)
{
    struct zf_u32x4 r = zf_philox(seed, ((uint64_t)stream << 32) | substream, index);
    return unit(r.v[0], r.v[1]);
}

double zf_normal(uint64_t seed, enum zf_stream stream, uint32_t substream, uint64_t index)
{
    struct zf_u32x4 r = zf_philox(seed, ((uint64_t)stream << 32) | substream, index >> 1);
    double radius = sqrt(-2 * log(1 - unit(r.v[0], r.v[1]))), angle = 2 * M_PI * unit(r.v[2], r.v[3]);
    return radius * ((index & 1) ? sin(angle) : cos(angle));
}

uint64_t zf_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch)
{
    int half = 1; /* bits of one half: the smallest even-sized domain that holds n */
    while (half < 32 && (n - 1) >> (2 * half)) half++;
    uint64_t mask = (1ull << half) - 1;
    do { /* cycle walking ends: the network permutes the domain, and i is inside 0..n-1 */
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            struct zf_u32x4 f = zf_philox(seed, ((uint64_t)ZF_STREAM_SHUFFLE << 32) | round, (epoch << 32) ^ right);
            uint64_t next = left ^ (f.v[0] & mask);
            left = right;
            right = next;
        }
        i = (left << half) | right;
    } while (i >= n);
    return i;
}
