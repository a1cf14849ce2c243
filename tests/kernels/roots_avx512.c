/* Compiled for AVX-512, called where the processor has it: test_roots.c. */
#define ZF_VEC_AVX512
#include "kernels/host/vec.h"

size_t wrong_roots(uint32_t first, uint32_t count);

/* Of `count` floats from the one with the bits `first` on (count a multiple of 16): how many roots by products are not the processor's. */
size_t wrong_roots(uint32_t first, uint32_t count)
{
    size_t wrong = 0;
    for (uint32_t i = 0; i < count; i += VW) {
        uint32_t bits[VW];
        for (uint32_t j = 0; j < VW; j++) bits[j] = first + i + j;
        vf x = _mm512_castsi512_ps(_mm512_loadu_si512(bits));
        __m512i a = _mm512_castps_si512(vsqrt_by_products(x)), b = _mm512_castps_si512(vsqrt(x));
        wrong += (size_t)__builtin_popcount(_mm512_cmpneq_epi32_mask(a, b));
    }
    return wrong;
}
