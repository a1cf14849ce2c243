/* How close generation comes to memory's own speed: bench_generate MODEL [THREADS [f32]] prints, for one sequence, tokens/s and the share
 * of the time in which as many threads do nothing but read the weights that a token reads, in turns, in one run; then where the time goes.
 * A measurement, not a test. */
#include "checkpoints/hf.h"
#include "core/base/clock.h"
#include "core/base/pool.h"
#include "core/model/model.h"

#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, TOKENS = 12, PROMPT = 16, PIECE = 1 << 18, ROWS = 64 };

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_generate: %s\n", e->message);
    exit(1);
}

struct span {
    const char *from;
    size_t bytes;
    __m128i *sink;
};

static void read_piece(void *ctx, size_t index)
{
    enum { LINE = 64, PARTS = LINE / sizeof(__m128i) };
    const struct span *s = ctx;
    size_t begin = index * PIECE, end = s->bytes - begin < PIECE ? s->bytes : begin + PIECE;
    __m128i sum[PARTS] = {0};
    for (size_t i = begin; i + LINE <= end; i += LINE)
        for (size_t k = 0; k < PARTS; k++) sum[k] ^= _mm_loadu_si128((const __m128i *)(const void *)(s->from + i) + k);
    _mm_storeu_si128(&s->sink[index & 1], sum[0] ^ sum[1] ^ sum[2] ^ sum[3]);
}

static double less(double old, double seconds)
{
    return old > 0 && old < seconds ? old : seconds;
}

/* All but tables of which a token reads one row. They stand at the beginning of the weights. */
static struct span weights_of_a_token(const struct zf_model *m)
{
    static __m128i sink[2]; /* so that reading is not in vain */
    size_t size = zf_dtype_size(m->dtype), skipped = 0;
    for (size_t i = 0; i < m->params.count; i++) {
        const struct zf_param *p = &m->params.list[i];
        bool table = p->slot == ZF_SLOT_POSITION || (p->slot == ZF_SLOT_EMBED && !m->config.tied);
        if (table) skipped += p->rows * p->cols;
    }
    return (struct span){(const char *)m->weights + skipped * size, (m->params.elements - skipped) * size, sink};
}

static void print_profile(const struct zf_device *d, struct zf_lane *l, double tokens)
{
    struct zf_profile_row rows[ROWS];
    if (!d->type->lane_profile) return;
    size_t n = d->type->lane_profile(l, rows, ROWS);
    for (size_t i = 0; i < n && i < ROWS; i++)
        printf("  %-16s %6.1f calls a token, %7.3f ms, %5.1f GB/s\n", rows[i].op, (double)rows[i].calls / tokens,
               rows[i].seconds / tokens * 1e3, rows[i].bytes / rows[i].seconds * 1e-9);
}

int main(int count, char **arguments)
{
    struct zf_err e = {0};
    struct zf_hf hf;
    struct zf_device *d;
    struct zf_device_info info;
    struct zf_model_config config;
    struct zf_model m = {0};
    struct zf_pool *pool;
    struct zf_cache *cache;
    if (count < 2) {
        fprintf(stderr, "usage: bench_generate MODEL [THREADS [f32]]\n");
        return 2;
    }
    enum zf_dtype dtype = count > 3 && !strcmp(arguments[3], "f32") ? ZF_F32 : ZF_BF16;
    need(zf_device_open(&d, "host", &(struct zf_device_options){.threads = count > 2 ? atoi(arguments[2]) : 0}, &e), &e);
    d->type->info(d, &info);
    need(zf_hf_open(&hf, arguments[1], &e), &e);
    need(zf_model_config_read(&config, hf.config, arguments[1], &e), &e);
    need(zf_model_open(&m, &config, &hf, 0, dtype, false, d, &e), &e);
    need(zf_pool_new(&pool, info.threads, &e), &e);
    need(zf_cache_new(&cache, &m, PROMPT + ROUNDS * TOKENS, &e), &e);
    float *logits = malloc(config.vocab * sizeof *logits);
    int32_t ids[PROMPT];
    if (!logits) return 1;
    for (int i = 0; i < PROMPT; i++) ids[i] = 10 + i;
    need(zf_cache_append(cache, ids, PROMPT, logits, &e), &e);

    struct span span = weights_of_a_token(&m);
    double reading = 0, token = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double from = zf_clock();
        zf_pool_run(pool, (span.bytes - 1) / PIECE + 1, read_piece, &span);
        reading = less(reading, zf_clock() - from);
        from = zf_clock();
        for (int i = 0; i < TOKENS; i++) need(zf_cache_append(cache, ids + i, 1, logits, &e), &e);
        token = less(token, (zf_clock() - from) / TOKENS);
    }
    printf("%s, %s: %.1f tokens/s; a token reads %.1f MB of weights in %.2f ms, %.1f GB/s; reading alone %.1f GB/s: a share of %.2f\n",
           info.description, zf_dtype_name(dtype), 1 / token, (double)span.bytes * 1e-6, token * 1e3, (double)span.bytes / token * 1e-9,
           (double)span.bytes / reading * 1e-9, reading / token);
    print_profile(d, m.lane, PROMPT > 0 ? ROUNDS * TOKENS + 1 : 1);
    free(logits);
    zf_cache_free(cache);
    zf_pool_free(pool);
    zf_model_close(&m);
    zf_hf_close(&hf);
    d->type->close(d);
    return 0;
}
