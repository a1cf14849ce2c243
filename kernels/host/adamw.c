/* AdamW in one pass: reads and writes each number once, so memory is what it costs.
 *
 * Stochastic rounding adds a random number of 16 bits to the half that is cut off: a float goes up with the probability that is its
 * distance from the lower neighbour. The number is a function of a key, which Philox makes of (seed, t), and the element's index. */
#include "core/base/rng.h"
#include "kernels/host/path.h"
#include "kernels/host/vec.h"

#ifdef ZF_ELEM_BF16
#include <emmintrin.h>
#endif

struct step {
    vf decay;                      /* lr * decay: kept apart, as 1 - 1e-7 is no float */
    vf clip, b1, rest1, b2, rest2; /* rest: 1 - b */
    vf rate, unbias2, eps;         /* lr / (1 - b1^t), 1 / (1 - b2^t) */
};

struct values {
    vf master, m, v;
};

static inline struct values update(const struct step *s, struct values x, vf g)
{
    g = vmul(s->clip, g);
    x.m = vfma(s->b1, x.m, vmul(s->rest1, g));
    x.v = vfma(s->b2, x.v, vmul(s->rest2, vmul(g, g)));
    vf root = vadd(vsqrt(vmul(x.v, s->unbias2)), s->eps);
    x.master = vsub(x.master, vfma(s->decay, x.master, vdiv(vmul(s->rate, x.m), root)));
    return x;
}

static size_t adamw_tasks(const void *args)
{
    return zf_host_tasks(((const struct zf_adamw_args *)args)->n, 2 * ZF_HOST_TASK);
}

static struct step step_of(const struct zf_adamw_args *a)
{
    double t = (double)a->t, correct1 = 1 - pow(a->beta1, t), correct2 = 1 - pow(a->beta2, t);
    return (struct step){vset((float)(a->lr * a->decay)),
                         vset(a->norm ? a->norm->clip : 1),
                         vset((float)a->beta1),
                         vset((float)(1 - a->beta1)),
                         vset((float)a->beta2),
                         vset((float)(1 - a->beta2)),
                         vset((float)(a->lr / correct1)),
                         vset((float)(1 / correct2)),
                         vset((float)a->eps)};
}

/* Updates elements i .. i + n; n <= VW, the rest is 0. */
static inline vf update_some(const struct step *s, const struct zf_adamw_args *a, size_t i, size_t n)
{
    struct values x;
    if (n == VW) {
        x = update(s, (struct values){vload(a->master + i), vload(a->m + i), vload(a->v + i)}, vload(a->g + i));
        vstore(a->master + i, x.master);
        vstore(a->m + i, x.m);
        vstore(a->v + i, x.v);
    } else {
        x = update(s, (struct values){vload_n(a->master + i, n), vload_n(a->m + i, n), vload_n(a->v + i, n)}, vload_n(a->g + i, n));
        vstore_n(a->master + i, x.master, n);
        vstore_n(a->m + i, x.m, n);
        vstore_n(a->v + i, x.v, n);
    }
    return x.master;
}

#ifdef ZF_ELEM_BF16
/* A bijection of 32 bits in which each bit of the input moves each of the output: multiply and shift, twice. */
static inline uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Sixteen bits for each of the elements index .. index + VW: two rounds of mix(), each with its own half of the key, the index's upper half
 * between them. A loop for the compiler to make vectors of. */
static inline void draw(const struct zf_u32x4 *key, uint64_t index, uint32_t *noise)
{
    uint32_t low = (uint32_t)index, high = (uint32_t)(index >> 32);
    for (uint32_t j = 0; j < VW; j++) {
        uint32_t l = low + j, h = high + (l < low);
        noise[j] = mix((mix(l ^ key->v[0]) ^ (h + key->v[2])) + key->v[1]) >> 16;
    }
}

/* Past the caches, which hold no more of so large a block when it is read again, and without reading what it overwrites: 2 of 32
 * bytes (master, m and v are read in any case, so ordinary stores cost them nothing). Measured: 3 to 5 % of the time. */
enum { PAST_CACHES_FROM = 1 << 19 };
static inline void put_past_caches(uint16_t *p, vb b)
{
    __m128i half[2];
    memcpy(half, &b, sizeof b);
    _mm_stream_si128((__m128i *)(void *)p, half[0]);
    _mm_stream_si128((__m128i *)(void *)(p + VW / 2), half[1]);
}

static void run_range(const struct zf_adamw_args *a, size_t i, size_t end)
{
    struct step s = step_of(a);
    bool past = a->n >= PAST_CACHES_FROM && ((uintptr_t)a->weights + i * sizeof(uint16_t)) % sizeof(__m128i) == 0;
    struct zf_u32x4 key = zf_philox(a->seed, (uint64_t)ZF_STREAM_ROUND << 32, a->t);
    uint16_t *weights = a->weights;
    for (; i < end; i += VW) {
        size_t n = end - i < VW ? end - i : VW;
        vf master = update_some(&s, a, i, n);
        if (!weights) continue;
        vb rounded;
        if (a->stochastic) {
            uint32_t noise[VW];
            draw(&key, a->first + i, noise);
            rounded = bnarrow_by(master, noise);
        } else {
            rounded = bnarrow(master);
        }
        if (n < VW)
            bput_n(weights + i, rounded, n);
        else if (past)
            put_past_caches(weights + i, rounded);
        else
            bput(weights + i, rounded);
    }
    if (past) _mm_sfence(); /* such stores are not ordered with the one that says that the task is done */
}
#else
static void run_range(const struct zf_adamw_args *a, size_t i, size_t end)
{
    struct step s = step_of(a);
    float *weights = a->weights != a->master ? a->weights : NULL;
    for (; i < end; i += VW) {
        size_t n = end - i < VW ? end - i : VW;
        vf master = update_some(&s, a, i, n);
        if (weights && n == VW)
            vstore(weights + i, master);
        else if (weights)
            vstore_n(weights + i, master, n);
    }
}
#endif

static void adamw_run(const void *args, size_t task)
{
    const struct zf_adamw_args *a = args;
    if (a->norm && !a->norm->apply) return;
    run_range(a, task * 2 * ZF_HOST_TASK, zf_host_end(a->n, 2 * ZF_HOST_TASK, task));
}

const struct zf_host_kernel ZF_PATH(zf_host_adamw) = {adamw_tasks, adamw_run};
