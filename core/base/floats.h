/* Narrow floats. f32 -> bf16 and f16 round to nearest even; NaN stays NaN. */
#ifndef ZF_BASE_FLOATS_H
#define ZF_BASE_FLOATS_H

#include <stdint.h>
#include <string.h>

static inline float zf_float_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t zf_bits_from_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float zf_bf16_to_f32(uint16_t h)
{
    return zf_float_from_bits((uint32_t)h << 16);
}

static inline uint16_t zf_f32_to_bf16(float f)
{
    uint32_t u = zf_bits_from_float(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float zf_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    if (exponent == 31) return zf_float_from_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent) return zf_float_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
    float tiny = (float)fraction * 0x1p-24f; /* subnormal or zero: exact */
    return sign ? -tiny : tiny;
}

static inline uint16_t zf_f32_to_f16(float f)
{
    uint32_t u = zf_bits_from_float(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x1ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 and above */
    if (a < 0x38800000u) {                                  /* below 2^-14: units of 2^-24, rounded by the addition */
        float shifted = zf_float_from_bits(a) + 0.5f;
        return (uint16_t)(sign | (zf_bits_from_float(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}

#endif
