/* Rounding by chance, for the visible weights of a bf16 model: what fits into an `elem` is stored as it is, a float that does not goes up
 * with the probability that is its distance from the lower neighbour, so that the mean of what is stored is the float.
 *
 * Sixteen random bits are added to the half that is cut off. They are a function of a key, which Philox makes of (seed, stream, count), and
 * of the element's index, and nothing else: not of how elements come together in vectors. */
#ifndef ZF_HOST_CHANCE_H
#define ZF_HOST_CHANCE_H

#include "core/base/rng.h"
#include "kernels/host/vec.h"

#include <emmintrin.h>
#include <stdbool.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* n <= VW of them; the rest of a vector that is loaded is 0. */
ALWAYS_INLINE vf load_f32(const float *p, size_t n)
{
    return n == VW ? vload(p) : vload_n(p, n);
}

ALWAYS_INLINE void store_f32(float *p, vf x, size_t n)
{
    if (n == VW)
        vstore(p, x);
    else
        vstore_n(p, x, n);
}

ALWAYS_INLINE vf load_bf16(const uint16_t *p, size_t n)
{
    return n == VW ? bload(p) : bload_n(p, n);
}

/* Numbers that are written and not read go past the caches where there are so many of them that these hold no more of the first when the
 * last is written: without reading what they overwrite. p: where a row begins. The task that did so ends with past_caches_done(): such
 * stores are not ordered with the one that says that the task is done. */
enum { PAST_CACHES_FROM = 1 << 19 };
static inline bool past_caches(const void *p, size_t elements)
{
    return elements >= PAST_CACHES_FROM && (uintptr_t)p % sizeof(__m128i) == 0;
}

static inline void past_caches_done(void)
{
    _mm_sfence();
}

ALWAYS_INLINE void store_bf16(uint16_t *p, vb x, size_t n, bool past)
{
    if (n < VW) {
        bput_n(p, x, n);
    } else if (past) {
        __m128i half[2];
        memcpy(half, &x, sizeof x);
        _mm_stream_si128((__m128i *)(void *)p, half[0]);
        _mm_stream_si128((__m128i *)(void *)(p + VW / 2), half[1]);
    } else {
        bput(p, x);
    }
}

#ifdef ZF_ELEM_BF16
/* A bijection of 32 bits in which each bit of the input moves each of the output: multiply and shift, twice. The upper half is done before
 * the last shift. */
static inline uint32_t mix_upper(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    return (x ^ (x >> 15)) * 0x846ca68bu;
}

static inline uint32_t mix(uint32_t x)
{
    x = mix_upper(x);
    return x ^ (x >> 16);
}

/* Sixteen bits for each of the elements index .. index + VW: two rounds of mix(), each with its own half of the key, the index's upper half
 * between them. A loop for the compiler to make vectors of. */
static inline void draw(const struct zf_u32x4 *key, uint64_t index, uint32_t *noise)
{
    uint32_t low = (uint32_t)index, high = (uint32_t)(index >> 32);
    for (uint32_t j = 0; j < VW; j++) {
        uint32_t l = low + j, h = high + (l < low);
        noise[j] = mix_upper((mix(l ^ key->v[0]) ^ (h + key->v[2])) + key->v[1]) >> 16;
    }
}

/* to[0..n) = x, by chance; key NULL: to nearest. index: that of the first. */
ALWAYS_INLINE void show(elem *to, vf x, size_t n, const struct zf_u32x4 *key, uint64_t index, bool past)
{
    if (key) {
        uint32_t noise[VW];
        draw(key, index, noise);
        store_bf16(to, bnarrow_by(x, noise), n, past);
    } else {
        store_bf16(to, bnarrow(x), n, past);
    }
}
#else
ALWAYS_INLINE void show(elem *to, vf x, size_t n, const struct zf_u32x4 *key, uint64_t index, bool past)
{
    (void)key;
    (void)index;
    (void)past;
    store_f32(to, x, n);
}
#endif

#endif
