/* Sixteen floats, in memory as such or as bf16, on whichever instructions this file is compiled for (ZF_VEC_SCALAR, ZF_VEC_AVX2,
 * ZF_VEC_AVX512).
 *
 * The three give the same bits: the width is 16 everywhere, a sum of lanes has one order, a*b+c is fused where it is written vfma and
 * nowhere else (-ffp-contract=off), and exp is ours. min and max return the second operand if one is NaN (as x86 does). */
#ifndef ZF_HOST_VEC_H
#define ZF_HOST_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VW = 16 };

#if defined(ZF_VEC_AVX512)
#include <immintrin.h>
typedef __m512 vf;
static inline __mmask16 vmask_(size_t n) { return (__mmask16)((1u << n) - 1); }
static inline vf vset(float x) { return _mm512_set1_ps(x); }
static inline vf vload(const float *p) { return _mm512_loadu_ps(p); }
static inline void vstore(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf vload_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(vmask_(n), p); } /* n < 16; the rest is 0 */
static inline void vstore_n(float *p, vf a, size_t n) { _mm512_mask_storeu_ps(p, vmask_(n), a); }
static inline vf vadd(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vsub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vmul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vdiv(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vsqrt(vf a) { return _mm512_sqrt_ps(a); }
/* The same root, to the bit, by multiplications: a seed of 14 bits, a step of Goldschmidt's, Markstein's correction. Numbers below 2^-100,
 * whose residuals are not exact, negative ones, infinity and NaN are left to the instruction. That one waits for the unit that divides; where
 * roots and quotients are what a loop does, half of the roots this way and half that way is fastest. */
#define VEC_HAS_ROOT_BY_PRODUCTS
static inline vf vsqrt_by_products(vf a)
{
    const __m512i least = _mm512_set1_epi32(0x0d800000), span = _mm512_set1_epi32(0x7f800000 - 0x0d800000);
    __m512 half = _mm512_set1_ps(0.5f), y = _mm512_rsqrt14_ps(a), g = _mm512_mul_ps(a, y), h = _mm512_mul_ps(y, half);
    __m512 r = _mm512_fnmadd_ps(h, g, half);
    g = _mm512_fmadd_ps(g, r, g);
    h = _mm512_fmadd_ps(h, r, h);
    g = _mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, a), h, g);
    __mmask16 others = _mm512_cmpge_epu32_mask(_mm512_sub_epi32(_mm512_castps_si512(a), least), span);
    if (__builtin_expect(others != 0, 0)) g = _mm512_mask_sqrt_ps(g, others, a);
    return g;
}
static inline vf vround(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vscale(vf p, vf n) { return _mm512_scalef_ps(p, n); } /* p 2^n, n a whole number from -126 to 127 */
/* a < b ? x : y, lane by lane; false where a or b is NaN. */
static inline vf vselect_lt(vf a, vf b, vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x); }

#elif defined(ZF_VEC_AVX2)
#include <immintrin.h>
typedef struct { __m256 a, b; } vf;
static inline __m256i vmask8_(size_t n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - (n > 8 ? 8 : n)));
}
static inline vf vset(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline vf vload(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void vstore(float *p, vf v) { _mm256_storeu_ps(p, v.a); _mm256_storeu_ps(p + 8, v.b); }
static inline vf vload_n(const float *p, size_t n)
{
    return (vf){_mm256_maskload_ps(p, vmask8_(n)), n > 8 ? _mm256_maskload_ps(p + 8, vmask8_(n - 8)) : _mm256_setzero_ps()};
}
static inline void vstore_n(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, vmask8_(n), v.a);
    if (n > 8) _mm256_maskstore_ps(p + 8, vmask8_(n - 8), v.b);
}
#define VF_TWO_(name, op) static inline vf name(vf x, vf y) { return (vf){op(x.a, y.a), op(x.b, y.b)}; }
VF_TWO_(vadd, _mm256_add_ps)
VF_TWO_(vsub, _mm256_sub_ps)
VF_TWO_(vmul, _mm256_mul_ps)
VF_TWO_(vdiv, _mm256_div_ps)
VF_TWO_(vmin, _mm256_min_ps)
VF_TWO_(vmax, _mm256_max_ps)
#undef VF_TWO_
static inline vf vfma(vf x, vf y, vf z) { return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
static inline vf vsqrt(vf x) { return (vf){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
static inline vf vround(vf x)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (vf){_mm256_round_ps(x.a, NEAREST), _mm256_round_ps(x.b, NEAREST)};
}
static inline __m256 vpow2_(__m256 n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline vf vscale(vf p, vf n) { return vmul(p, (vf){vpow2_(n.a), vpow2_(n.b)}); }
static inline vf vselect_lt(vf a, vf b, vf x, vf y)
{
    return (vf){_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
}

#else /* the compiler's own vectors: what every x86-64 has, and no array on the stack for a sanitizer to guard */
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi_ __attribute__((vector_size(64)));
#define VF_LANES_(expr) do { vf r_ = {0}; for (int i = 0; i < VW; i++) r_[i] = (expr); return r_; } while (0)
static inline vf vset(float x) { return x - (vf){0}; } /* not x + 0, which loses the sign of -0 */
static inline vf vload(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
static inline void vstore(float *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vf vload_n(const float *p, size_t n) { vf v = {0}; memcpy(&v, p, n * sizeof *p); return v; }
static inline void vstore_n(float *p, vf v, size_t n) { memcpy(p, &v, n * sizeof *p); }
static inline vf vadd(vf a, vf b) { return a + b; }
static inline vf vsub(vf a, vf b) { return a - b; }
static inline vf vmul(vf a, vf b) { return a * b; }
static inline vf vdiv(vf a, vf b) { return a / b; }
static inline vf vfma(vf a, vf b, vf c) { VF_LANES_(fmaf(a[i], b[i], c[i])); }
static inline vf vselect_lt(vf a, vf b, vf x, vf y) { vi_ less = a < b; return (vf)((less & (vi_)x) | (~less & (vi_)y)); }
static inline vf vmin(vf a, vf b) { return vselect_lt(a, b, a, b); }
static inline vf vmax(vf a, vf b) { return vselect_lt(b, a, a, b); }
static inline vf vsqrt(vf a) { VF_LANES_(sqrtf(a[i])); }
static inline vf vround(vf a) { VF_LANES_(rintf(a[i])); }
static inline float vpow2_(float n)
{
    if (!(n >= -127 && n <= 128)) return NAN; /* NaN only: vexp clamps */
    uint32_t u = (uint32_t)((int32_t)n + 127) << 23;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline vf vscale(vf p, vf n) { VF_LANES_(p[i] * vpow2_(n[i])); }
#undef VF_LANES_
#endif

#if !defined(VEC_HAS_ROOT_BY_PRODUCTS)
static inline vf vsqrt_by_products(vf a) { return vsqrt(a); }
#endif

static inline vf vzero(void) { return vset(0); }

/* A hint that the memory at p, which may be anywhere, will be needed: many streams at once, and rows of a list, are more than the processor
 * foresees. */
static inline void fetch(const void *p) { __builtin_prefetch(p); }

/* ---- bf16: the upper half of a float ---- */

typedef uint16_t vb __attribute__((vector_size(32))); /* sixteen of them */
#if defined(ZF_VEC_AVX2)
typedef uint32_t vu_ __attribute__((vector_size(32))); /* the bits of half a vf */
typedef int32_t vs_ __attribute__((vector_size(32)));
#else
typedef uint32_t vu_ __attribute__((vector_size(64))); /* the bits of a vf */
typedef int32_t vs_ __attribute__((vector_size(64)));
#endif

/* Rounding happens in the whole float, of which the upper half is then taken: integer arithmetic, as the instruction for it makes zeros of
 * denormals. What is not finite stays what it is, a NaN with the upper half of its payload. */
static inline vu_ choose_(vu_ mask, vu_ x, vu_ y) { return (mask & x) | (~mask & y); }
static inline vu_ nearest_(vu_ u)
{
    return choose_((vu_)((vs_)(u & 0x7fffffff) > 0x7f800000), u | 0x400000, u + 0x7fff + ((u >> 16) & 1));
}
static inline vu_ chance_(vu_ u, const uint32_t *noise)
{
    vu_ n;
    memcpy(&n, noise, sizeof n);
    return choose_((vu_)((vs_)(u & 0x7f800000) == 0x7f800000), nearest_(u), u + n);
}

#if defined(ZF_VEC_AVX512)
static inline vf bwiden(vb b) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)b), 16)); }
/* As nearest_ and chance_ have it, in the fewest instructions. */
static inline vb upper_(vf v, __m512i rounded)
{
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, _mm512_castps_si512(v), _mm512_set1_epi32(0x400000));
    return (vb)_mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
static inline vb bnarrow(vf v)
{
    __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return upper_(v, _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd));
}
static inline vb bnarrow_by(vf v, const uint32_t *noise)
{
    __m512i u = _mm512_castps_si512(v), infinity = _mm512_set1_epi32(0x7f800000);
    __mmask16 finite = _mm512_cmpneq_epi32_mask(_mm512_and_si512(u, infinity), infinity);
    return upper_(v, _mm512_mask_add_epi32(u, finite, u, _mm512_loadu_si512(noise)));
}
#elif defined(ZF_VEC_AVX2)
static inline __m256 bwiden_(__m128i b) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16)); }
static inline vf bwiden(vb b)
{
    return (vf){bwiden_(_mm256_castsi256_si128((__m256i)b)), bwiden_(_mm256_extracti128_si256((__m256i)b, 1))};
}
static inline vb upper_(vu_ a, vu_ b)
{
    return (vb)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)(a >> 16), (__m256i)(b >> 16)), 0xd8);
}
static inline vb bnarrow(vf v) { return upper_(nearest_((vu_)v.a), nearest_((vu_)v.b)); }
static inline vb bnarrow_by(vf v, const uint32_t *noise) { return upper_(chance_((vu_)v.a, noise), chance_((vu_)v.b, noise + 8)); }
#else
static inline vf bwiden(vb b) { return (vf)(__builtin_convertvector(b, vu_) << 16); }
static inline vb upper_(vu_ u) { return __builtin_convertvector(u >> 16, vb); }
static inline vb bnarrow(vf v) { return upper_(nearest_((vu_)v)); }
static inline vb bnarrow_by(vf v, const uint32_t *noise) { return upper_(chance_((vu_)v, noise)); }
#endif

static inline vf bload(const uint16_t *p) { vb b; memcpy(&b, p, sizeof b); return bwiden(b); }
static inline vf bload_n(const uint16_t *p, size_t n) { vb b = {0}; memcpy(&b, p, n * sizeof *p); return bwiden(b); }
static inline void bput(uint16_t *p, vb b) { memcpy(p, &b, sizeof b); }
static inline void bput_n(uint16_t *p, vb b, size_t n) { memcpy(p, &b, n * sizeof *p); }

/* ---- what activations, their gradients and the visible weights are made of: each file of kernels is compiled for either ---- */

#if defined(ZF_ELEM_BF16)
typedef uint16_t elem;
static inline vf eload(const elem *p) { return bload(p); }
static inline vf eload_n(const elem *p, size_t n) { return bload_n(p, n); }
static inline void estore(elem *p, vf v) { bput(p, bnarrow(v)); }
static inline void estore_n(elem *p, vf v, size_t n) { bput_n(p, bnarrow(v), n); }
#else
typedef float elem;
static inline vf eload(const elem *p) { return vload(p); }
static inline vf eload_n(const elem *p, size_t n) { return vload_n(p, n); }
static inline void estore(elem *p, vf v) { vstore(p, v); }
static inline void estore_n(elem *p, vf v, size_t n) { vstore_n(p, v, n); }
#endif

/* The lanes added as ((0+8)+(4+12)) + ..., i.e. halves, quarters, eighths: one order on every path. */
static inline float vsum(vf v)
{
    float f[16];
    vstore(f, v);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) f[i] += f[i + half];
    return f[0];
}

static inline float vmaxall(vf v)
{
    float f[16];
    vstore(f, v);
    for (int i = 1; i < 16; i++) f[0] = f[i] > f[0] || f[i] != f[i] ? f[i] : f[0]; /* a NaN wins */
    return f[0];
}

/* e^y for y from EXP_LOW to 88; NaN stays NaN. */
#define EXP_LOW (-87.33654f)
static inline vf vexp_within_(vf y)
{
    vf n = vround(vmul(y, vset(1.44269504f)));
    vf r = vfma(n, vset(-0.693145752f), y);
    r = vfma(n, vset(-1.42860677e-6f), r);
    vf p = vset(1.37810305e-3f);
    p = vfma(p, r, vset(8.37480333e-3f));
    p = vfma(p, r, vset(4.16699767e-2f));
    p = vfma(p, r, vset(1.66663811e-1f));
    p = vfma(p, r, vset(4.99999881e-1f));
    p = vfma(p, r, vset(1.0f));
    p = vfma(p, r, vset(1.0f));
    return vscale(p, n);
}

/* exp within about 1 ulp on [-87.3, 88]; 0 below, e^88 above; NaN for NaN and +infinity. */
static inline vf vexp(vf x)
{
    vf low = vset(EXP_LOW), y = vmin(vset(88.0f), vmax(low, x));
    return vselect_lt(x, low, vzero(), vadd(vexp_within_(y), vsub(x, x))); /* x - x: 0, or NaN where x is not finite */
}

/* The same to the bit for x up to 88 and NaN, and less work. */
static inline vf vexp_low(vf x)
{
    vf low = vset(EXP_LOW);
    return vselect_lt(x, low, vzero(), vexp_within_(vmax(low, x)));
}

#endif
