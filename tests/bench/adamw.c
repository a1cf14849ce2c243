/* How close AdamW comes to memory's own speed: bench_adamw [THREADS] prints GB/s of the op (28 bytes a parameter, 30 with the bf16 copy)
 * and of threads that do nothing but read four arrays and write three of them back, in turns, in one run. A measurement, not a test. */
#include "core/base/clock.h"
#include "core/base/pool.h"
#include "kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 32 << 20, PIECE = 1 << 15, ROUNDS = 7 };

struct arrays {
    float *master, *m, *v, *g;
    uint16_t *weights;
};

static void stream(void *ctx, size_t index)
{
    struct arrays *a = ctx;
    size_t end = (index + 1) * PIECE;
    for (size_t i = index * PIECE; i < end; i++) {
        float g = a->g[i];
        a->master[i] += g;
        a->m[i] += g;
        a->v[i] += g;
    }
}

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_adamw: %s\n", e->message);
    exit(1);
}

static double best(double old, double seconds)
{
    return old > 0 && old < seconds ? old : seconds;
}

int main(int count, char **arguments)
{
    struct zf_err e = {0};
    struct zf_device *d;
    struct zf_lane *lane;
    struct zf_pool *pool;
    struct zf_device_info info;
    need(zf_device_open(&d, "host", &(struct zf_device_options){.threads = count > 1 ? atoi(arguments[1]) : 0}, &e), &e);
    d->type->info(d, &info);
    need(d->type->lane_new(d, "compute", &lane, &e), &e);
    need(zf_pool_new(&pool, info.threads, &e), &e);
    void *p[5];
    for (int i = 0; i < 5; i++) need(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, N * (i < 4 ? 4u : 2u), &p[i], &e), &e);
    struct arrays a = {p[0], p[1], p[2], p[3], p[4]};
    for (size_t i = 0; i < N; i++) a.g[i] = 1e-3f;
    double took[3] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        double from = zf_clock();
        zf_pool_run(pool, N / PIECE, stream, &a);
        took[0] = best(took[0], zf_clock() - from);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct zf_adamw_args args = {.type = bf16 ? ZF_BF16 : ZF_F32,
                                         .weights = bf16 ? a.weights : NULL,
                                         .master = a.master,
                                         .m = a.m,
                                         .v = a.v,
                                         .g = a.g,
                                         .n = N,
                                         .t = 10,
                                         .lr = 1e-5,
                                         .beta1 = 0.9,
                                         .beta2 = 0.999,
                                         .eps = 1e-8,
                                         .decay = 0.01};
            from = zf_clock();
            if (d->type->ops->adamw(lane, &args)) exit(1);
            need(d->type->lane_sync(lane, &e), &e);
            took[1 + bf16] = best(took[1 + bf16], zf_clock() - from);
        }
    }
    double limit = 28.0 * N / took[0] * 1e-9, f32 = 28.0 * N / took[1] * 1e-9, bf16 = 30.0 * N / took[2] * 1e-9;
    printf("%d threads: streaming %.1f GB/s; adamw f32 %.1f GB/s (%.2f of it), with bf16 weights %.1f GB/s (%.2f)\n", info.threads, limit, f32,
           f32 / limit, bf16, bf16 / limit);
    for (int i = 0; i < 5; i++) d->type->free(d, p[i]);
    zf_pool_free(pool);
    d->type->lane_free(lane);
    d->type->close(d);
    return 0;
}
