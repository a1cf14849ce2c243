/* How fast checkpoints are written and read, and how small they are: bench_container FOLDER TEXT [MB [THREADS]] writes an fp32 master and
 * AdamW's m and v into FOLDER, beside the same bytes as plain zstd -1 and as they are: 1 MiB chunks everywhere, processor seconds, so that
 * FOLDER should be in memory. The states are those of a small model that is trained first, of 532,480 parameters: from 8 bytes of TEXT over
 * two hidden layers to the ninth, 400 steps. They are repeated until there are MB of them, which nothing gains by: chunks are
 * compressed alone, and are shorter than what is repeated. A measurement, not a test. */
#include "checkpoints/container_file.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

enum { CONTEXT = 8, BYTES = 256, WIDE = 512, NARROW = 32, BATCH = 64, STEPS = 400, LAYERS = 3, TENSORS = 3 };

static const char *const names[TENSORS] = {"master", "m", "v"};

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_container: %s: %s\n", e->where, e->message);
    exit(1);
}

static float *floats(size_t n)
{
    struct zf_err e;
    float *p = calloc(n, sizeof *p);
    if (!p) need(zf_fail_memory(&e, "the bench"), &e);
    return p;
}

/* Layer l is [out][in]; before the first one each byte becomes a row of the embedding, [BYTES][NARROW]. */
static const size_t in[LAYERS] = {CONTEXT * NARROW, WIDE, WIDE}, out[LAYERS] = {WIDE, WIDE, BYTES};
enum { EMBEDDING = BYTES * NARROW, PARAMETERS = EMBEDDING + CONTEXT * NARROW * WIDE + WIDE * WIDE + WIDE * BYTES };

struct trained {
    float *w, *m, *v, *g;                 /* [PARAMETERS] */
    float *x[LAYERS + 1], *d[LAYERS + 1]; /* [BATCH][in of that layer]; their gradients */
};

static void forward(struct trained *t, const unsigned char *text, const size_t *at)
{
    const float *w = t->w + EMBEDDING;
    for (size_t b = 0; b < BATCH; b++)
        for (size_t k = 0; k < CONTEXT; k++)
            memcpy(t->x[0] + (b * CONTEXT + k) * NARROW, t->w + text[at[b] + k] * (size_t)NARROW, NARROW * sizeof(float));
    for (int l = 0; l < LAYERS; w += in[l] * out[l], l++)
        for (size_t b = 0; b < BATCH; b++)
            for (size_t o = 0; o < out[l]; o++) {
                float part[8] = {0}, sum = 0;
                const float *row = w + o * in[l], *x = t->x[l] + b * in[l];
                for (size_t i = 0; i < in[l]; i += 8)
                    for (int k = 0; k < 8; k++) part[k] += row[i + (size_t)k] * x[i + (size_t)k];
                for (int k = 0; k < 8; k++) sum += part[k];
                t->x[l + 1][b * out[l] + o] = l + 1 < LAYERS ? tanhf(sum) : sum;
            }
}

/* Gradient of the mean cross entropy by the logits. Returns that mean. */
static float loss(struct trained *t, const unsigned char *text, const size_t *at)
{
    float sum = 0;
    for (size_t b = 0; b < BATCH; b++) {
        float *x = t->x[LAYERS] + b * BYTES, *d = t->d[LAYERS] + b * BYTES, total = 0;
        for (int i = 0; i < BYTES; i++) total += d[i] = expf(x[i]);
        for (int i = 0; i < BYTES; i++) d[i] /= total * BATCH;
        sum += logf(total) - x[text[at[b] + CONTEXT]];
        d[text[at[b] + CONTEXT]] -= 1.0f / BATCH;
    }
    return sum / BATCH;
}

static void backward(struct trained *t, const unsigned char *text, const size_t *at)
{
    size_t place = PARAMETERS;
    memset(t->g, 0, PARAMETERS * sizeof(float));
    for (int l = LAYERS; l-- > 0;) {
        place -= in[l] * out[l];
        memset(t->d[l], 0, BATCH * in[l] * sizeof(float));
        for (size_t b = 0; b < BATCH; b++)
            for (size_t o = 0; o < out[l]; o++) {
                float y = t->x[l + 1][b * out[l] + o], d = t->d[l + 1][b * out[l] + o] * (l + 1 < LAYERS ? 1 - y * y : 1);
                const float *w = t->w + place + o * in[l], *x = t->x[l] + b * in[l];
                float *g = t->g + place + o * in[l], *back = t->d[l] + b * in[l];
                for (size_t i = 0; i < in[l]; i++) {
                    g[i] += d * x[i];
                    back[i] += d * w[i];
                }
            }
    }
    for (size_t b = 0; b < BATCH; b++)
        for (size_t k = 0; k < CONTEXT; k++)
            for (size_t i = 0; i < NARROW; i++) t->g[text[at[b] + k] * (size_t)NARROW + i] += t->d[0][(b * CONTEXT + k) * NARROW + i];
}

static void adamw(struct trained *t, int step)
{
    float fix_m = 1 / (1 - powf(0.9f, (float)step)), fix_v = 1 / (1 - powf(0.999f, (float)step));
    for (size_t i = 0; i < PARAMETERS; i++) {
        t->m[i] = 0.9f * t->m[i] + 0.1f * t->g[i];
        t->v[i] = 0.999f * t->v[i] + 0.001f * t->g[i] * t->g[i];
        t->w[i] -= 1e-3f * (t->m[i] * fix_m / (sqrtf(t->v[i] * fix_v) + 1e-8f) + 0.01f * t->w[i]);
    }
}

static void train(struct trained *t, const char *path)
{
    struct zf_map text;
    struct zf_err e;
    size_t at[BATCH];
    float first = 0, last = 0;
    need(zf_map_open(&text, path, &e), &e);
    if (text.size < 1 << 16) need(zf_fail(&e, ZF_FORMAT, path, "it has %zu bytes; 64 KiB at least are needed", text.size), &e);
    t->w = floats(PARAMETERS), t->m = floats(PARAMETERS), t->v = floats(PARAMETERS), t->g = floats(PARAMETERS);
    for (int l = 0; l <= LAYERS; l++) {
        size_t n = BATCH * (l < LAYERS ? in[l] : BYTES);
        t->x[l] = floats(n), t->d[l] = floats(n);
    }
    for (size_t i = 0; i < PARAMETERS; i++) t->w[i] = (i < EMBEDDING ? 0.5f : 0.05f) * (float)zf_normal(1, ZF_STREAM_INIT, 0, i);
    for (int step = 1; step <= STEPS; step++) {
        for (size_t b = 0; b < BATCH; b++)
            at[b] = (size_t)(zf_uniform(1, ZF_STREAM_SHUFFLE, 0, (uint64_t)step * BATCH + b) * (double)(text.size - CONTEXT - 1));
        forward(t, text.data, at);
        last = loss(t, text.data, at);
        if (step == 1) first = last;
        backward(t, text.data, at);
        adamw(t, step);
    }
    printf("%d parameters, %d steps: loss %.2f -> %.2f\n", PARAMETERS, STEPS, (double)first, (double)last);
    zf_map_close(&text);
    for (int l = 0; l <= LAYERS; l++) free(t->x[l]), free(t->d[l]);
    free(t->g);
}

struct states {
    float *of[TENSORS];
    size_t elements;
};

static void repeat(struct states *s, const struct trained *t)
{
    const float *const from[TENSORS] = {t->w, t->m, t->v};
    for (int i = 0; i < TENSORS; i++) {
        s->of[i] = floats(s->elements);
        for (size_t at = 0; at < s->elements; at++) s->of[i][at] = from[i][at % PARAMETERS];
    }
}

static void row(const char *what, double raw, double stored, double wrote, double read)
{
    printf("  %-28s %7.1f %% ", what, 100 * stored / raw);
    printf(wrote > 0 ? " %8.0f" : "        -", raw / wrote / 1e6);
    printf(read > 0 ? " %8.0f\n" : "        -\n", raw / read / 1e6);
}

static void bench_container(const struct states *s, const char *path, struct zf_pool *pool, bool finite, int first, int count)
{
    struct zf_ckpt_writer *w;
    struct zf_ckpt c;
    struct zf_err e;
    struct zf_ckpt_counts counts;
    uint64_t shape = s->elements;
    size_t bytes = s->elements * sizeof(float);
    char what[64];
    double start = zf_clock_cpu(), raw = (double)bytes * count;
    need(zf_ckpt_create(&w, path, &(struct zf_ckpt_options){.level = 1, .pool = pool, .finite = finite, .counts = &counts}, &e), &e);
    for (int i = first; i < first + count; i++) {
        need(zf_ckpt_begin(w, names[i], ZF_CKPT_F32, 1, &shape, &e), &e);
        need(zf_ckpt_put(w, s->of[i], bytes, &e), &e);
    }
    need(zf_ckpt_finish(w, NULL, &e), &e);
    double wrote = zf_clock_cpu() - start;
    float *back = floats(s->elements);
    memset(back, 1, bytes);
    start = zf_clock_cpu();
    need(zf_ckpt_open(&c, path, &e), &e);
    for (int i = first; i < first + count; i++) {
        need(zf_ckpt_read(&c, &c.list[i - first], back, 0, bytes, pool, &e), &e);
        if (memcmp(back, s->of[i], bytes)) need(zf_fail(&e, ZF_FORMAT, path, "other bytes came back"), &e);
    }
    double read = zf_clock_cpu() - start;
    zf_ckpt_close(&c);
    free(back);
    snprintf(what, sizeof what, "container, %s%s", count == TENSORS ? "all" : names[first], finite ? ", finite" : "");
    row(what, raw, (double)counts.stored, wrote, read);
}

static void bench_zstd(const struct states *s, const char *path, int level)
{
    struct zf_err e;
    size_t bytes = s->elements * sizeof(float), room = ZSTD_compressBound(ZF_ZFC_CHUNK);
    unsigned char *frame = malloc(room), *back = malloc(ZF_ZFC_CHUNK);
    struct zf_replacement file;
    double stored = 0, wrote, start = zf_clock_cpu(), decoded = 0;
    char what[64];
    need(zf_file_begin(&file, path, &e), &e);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    for (int i = 0; i < TENSORS; i++)
        for (size_t at = 0, n; at < bytes; at += n) {
            const char *data = (const char *)s->of[i] + at;
            n = bytes - at < ZF_ZFC_CHUNK ? bytes - at : ZF_ZFC_CHUNK;
            size_t size = level ? ZSTD_compress2(c, frame, room, data, n) : n;
            double before = zf_clock_cpu();
            if (level) ZSTD_decompress(back, n, frame, size);
            decoded += zf_clock_cpu() - before;
            need(zf_write_all(file.fd, level ? (const char *)frame : data, size, path, &e), &e);
            stored += (double)size;
        }
    need(zf_file_end(&file, ZF_OK, &e), &e);
    wrote = zf_clock_cpu() - start - decoded;
    ZSTD_freeCCtx(c);
    free(frame);
    free(back);
    snprintf(what, sizeof what, level ? "plain zstd -%d, all" : "raw write, all", level);
    row(what, (double)bytes * TENSORS, stored, wrote, level ? decoded : 0);
}

int main(int argc, char **argv)
{
    struct zf_err e;
    struct zf_pool *pool;
    struct trained t;
    struct states s;
    if (argc < 3) return fprintf(stderr, "usage: bench_container FOLDER TEXT [MB [THREADS]]\n"), ZF_USAGE;
    s.elements = (size_t)(argc > 3 ? atoi(argv[3]) : 96) * 1000000 / (TENSORS * sizeof(float));
    need(zf_pool_new(&pool, argc > 4 ? atoi(argv[4]) : 1, &e), &e);
    train(&t, argv[2]);
    repeat(&s, &t);
    char *path = zf_path_join(argv[1], "bench_container.zfc");
    printf("%d threads; MB of tensors per processor second\n  %-28s %9s  %8s %8s\n", zf_pool_threads(pool), "", "size", "write", "read");
    for (int i = 0; i < TENSORS; i++) bench_container(&s, path, pool, false, i, 1);
    bench_container(&s, path, pool, false, 0, TENSORS);
    bench_container(&s, path, pool, true, 0, TENSORS);
    bench_zstd(&s, path, 1);
    bench_zstd(&s, path, 0);
    unlink(path);
    free(path);
    zf_pool_free(pool);
    for (int i = 0; i < TENSORS; i++) free(s.of[i]);
    free(t.w), free(t.m), free(t.v);
    return 0;
}
