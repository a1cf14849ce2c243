#include "core/run/measure.h"

#include "core/base/clock.h"
#include "core/base/pool.h"
#include "kernels/ops.h"

#include <string.h>

/* A slow machine gets fewer passes. */
enum { PIECE = 1 << 15, PASSES_MOST = 8, PASSES_LEAST = 3 };
static const double ENOUGH = 0.12;

struct bench {
    struct zf_device *device;
    struct zf_lane *lane;
    struct zf_pool *pool;
    size_t n; /* floats of an array, a multiple of PIECE */
    float *a[4];
};

static void read_piece(void *ctx, size_t index)
{
    const struct bench *b = ctx;
    uint64_t sum = 0;
    for (int k = 0; k < 4; k++) {
        const char *x = (const char *)(b->a[k] + index * PIECE);
        for (size_t i = 0; i < PIECE * sizeof(float); i += sizeof sum) {
            uint64_t v;
            memcpy(&v, x + i, sizeof v);
            sum += v;
        }
    }
    __asm__ volatile("" : : "r"(sum)); /* else nothing would be read */
}

static void copy_piece(void *ctx, size_t index)
{
    const struct bench *b = ctx;
    memcpy(b->a[1] + index * PIECE, b->a[0] + index * PIECE, PIECE * sizeof(float));
}

static void stream_piece(void *ctx, size_t index)
{
    const struct bench *b = ctx;
    for (size_t i = index * PIECE, end = i + PIECE; i < end; i++) {
        float g = b->a[3][i];
        b->a[0][i] += g;
        b->a[1][i] += g;
        b->a[2][i] += g;
    }
}

/* Passes go on: too few, or quick ones. */
static bool goes_on(int done, double from)
{
    return done < PASSES_LEAST || (done < PASSES_MOST && zf_clock() - from < ENOUGH);
}

static double best_of(struct bench *b, void (*piece)(void *, size_t), double bytes)
{
    double least = 0, from = zf_clock();
    for (int pass = 0; goes_on(pass, from); pass++) {
        double start = zf_clock();
        zf_pool_run(b->pool, b->n / PIECE, piece, b);
        double took = zf_clock() - start;
        if (!least || took < least) least = took;
    }
    return least > 0 ? bytes / least : 0;
}

static enum zf_status adamw(struct bench *b, double *out, struct zf_err *e)
{
    const struct zf_device_type *t = b->device->type;
    struct zf_adamw_args args = {.type = ZF_F32,
                                 .master = b->a[0],
                                 .m = b->a[1],
                                 .v = b->a[2],
                                 .g = b->a[3],
                                 .n = b->n,
                                 .t = 10,
                                 .lr = 1e-5,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .decay = 0.01};
    double least = 0, from = zf_clock();
    for (int pass = 0; goes_on(pass, from); pass++) {
        double start = zf_clock();
        enum zf_status s = t->ops->adamw(b->lane, &args);
        if (s) return zf_lane_refused(b->device, b->lane, s, "AdamW", e);
        ZF_TRY(t->lane_sync(b->lane, e));
        double took = zf_clock() - start;
        if (pass && (!least || took < least)) least = took; /* the first pass is the first to touch the pages */
    }
    *out = least > 0 ? 28.0 * (double)b->n / least : 0;
    return ZF_OK;
}

static void close_bench(struct bench *b)
{
    const struct zf_device_type *t = b->device->type;
    for (int i = 0; i < 4; i++) t->free(b->device, b->a[i]);
    t->lane_free(b->lane);
    zf_pool_free(b->pool);
}

static enum zf_status open_bench(struct bench *b, struct zf_device *d, size_t parameters, struct zf_err *e)
{
    const struct zf_device_type *t = d->type;
    *b = (struct bench){.device = d, .n = (parameters / PIECE + !!(parameters % PIECE)) * PIECE};
    if (!b->n) b->n = PIECE;
    if (b->n < parameters || b->n > SIZE_MAX / sizeof(float))
        return zf_fail(e, ZF_USAGE, NULL, "AdamW was to be measured over %zu parameters; fewer are expected", parameters);
    enum zf_status s = ZF_OK;
    for (int i = 0; i < 4 && !s; i++) {
        void *p;
        s = t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, b->n * sizeof(float), &p, e);
        b->a[i] = p;
    }
    if (!s) s = t->lane_new(d, "compute", &b->lane, e);
    for (size_t i = 0; !s && i < b->n; i++) b->a[3][i] = 1e-3f;
    if (s) close_bench(b);
    return s;
}

enum zf_status zf_measure_adamw(struct zf_device *d, size_t parameters, double *out, struct zf_err *e)
{
    struct bench b;
    *out = 0;
    ZF_TRY(open_bench(&b, d, parameters, e));
    enum zf_status s = adamw(&b, out, e);
    close_bench(&b);
    return s;
}

enum zf_status zf_measure_memory(struct zf_device *d, size_t parameters, struct zf_speed *out, struct zf_err *e)
{
    struct bench b;
    struct zf_device_info info;
    *out = (struct zf_speed){0};
    ZF_TRY(open_bench(&b, d, parameters, e));
    d->type->info(d, &info);
    double array = (double)b.n * sizeof(float);
    enum zf_status s = zf_pool_new(&b.pool, info.threads, e);
    if (!s) s = adamw(&b, &out->adamw, e); /* first: it touches the pages */
    if (!s) {
        out->stream = best_of(&b, stream_piece, 7 * array);
        out->read = best_of(&b, read_piece, 4 * array);
        out->copy = best_of(&b, copy_piece, 2 * array);
    }
    close_bench(&b);
    return s;
}
