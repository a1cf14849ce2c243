/* Tables of rotary embeddings. Frequencies and angles are rounded to fp32 where transformers rounds them: at position 100,000
 * an angle kept in double would differ visibly from the one that the checkpoint was trained with. */
#include "core/model/family.h"

#include <math.h>

/* Quotients as torch forms them for number / tensor: the rounded reciprocal, then a product. */
static float over(float number, float x)
{
    float reciprocal = 1.0f / x;
    return reciprocal * number;
}

static float scale_llama3(const struct zf_rope *r, float frequency)
{
    const float factor = (float)r->factor, low = (float)r->low_freq_factor, old = (float)r->original_context;
    const float longest = (float)(r->original_context / r->low_freq_factor), shortest = (float)(r->original_context / r->high_freq_factor);
    const float wave = over((float)(2.0 * M_PI), frequency);
    if (wave < shortest) return frequency;
    if (wave > longest) return frequency / factor;
    const float smooth = (over(old, wave) - low) / (float)(r->high_freq_factor - r->low_freq_factor);
    return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

static float frequency_of(const struct zf_rope *r, size_t d, size_t head_dim)
{
    const float exponent = (float)(2 * d) / (float)head_dim;
    const float frequency = 1.0f / (float)pow((double)(float)r->theta, (double)exponent);
    switch (r->kind) {
    case ZF_ROPE_LINEAR: return frequency / (float)r->factor;
    case ZF_ROPE_LLAMA3: return scale_llama3(r, frequency);
    default: return frequency;
    }
}

void zf_rope_table(float *table, const struct zf_rope *r, size_t positions, size_t head_dim)
{
    const size_t pairs = head_dim / 2;
    for (size_t d = 0; d < pairs; d++) {
        const float frequency = frequency_of(r, d, head_dim);
        for (size_t p = 0; p < positions; p++) {
            const float angle = (float)p * frequency;
            table[(p * pairs + d) * 2] = (float)cos((double)angle);
            table[(p * pairs + d) * 2 + 1] = (float)sin((double)angle);
        }
    }
}
