/* How fast the host device attends: bench_attention [bf16|f32 [ISA...]] prints, for the attention of a layer of SmolLM2-135M, GFLOP/s of
 * one thread by its processor time (what counts where other work runs beside). Counted is what a query sees: 4 head_dim a score forward, 10
 * backward. A measurement, not a test. */
#include "core/base/floats.h"
#include "core/base/rng.h"
#include "kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 9, KV_HEADS = 3, HEAD_DIM = 64, Q = HEADS * HEAD_DIM, KV = KV_HEADS * HEAD_DIM, ROWS_MAX = 4096, ROUNDS = 8 };

static const struct stream {
    const char *what;
    size_t documents, tokens;
} streams[] = {{"4 x 256", 4, 256}, {"1 x 1024", 1, 1024}, {"1 x 4096", 1, 4096}, {"64 x 16", 64, 16}};

struct arrays {
    void *q, *k, *v, *o, *d_o, *dq, *dk, *dv;
    float *lse, *delta;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_attention: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *numbers(size_t n, enum zf_dtype type)
{
    void *p = aligned_alloc(64, n * sizeof(float)); /* as a device's memory is */
    if (!p) fail("no memory");
    for (size_t i = 0; i < n; i++) {
        float x = (float)zf_normal(1, ZF_STREAM_TEST, 0, i);
        if (type == ZF_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = zf_f32_to_bf16(x);
    }
    return p;
}

static void measure(struct zf_lane *l, const struct zf_ops *ops, const struct stream *s, enum zf_dtype type, const struct arrays *x)
{
    struct zf_segment segments[ROWS_MAX];
    for (size_t i = 0; i < s->documents; i++) segments[i] = (struct zf_segment){i * s->tokens, s->tokens, i * s->tokens, s->tokens};
    struct zf_attention_args f = {.type = type,
                                  .q = x->q,
                                  .k = x->k,
                                  .v = x->v,
                                  .o = x->o,
                                  .lse = x->lse,
                                  .segments = segments,
                                  .segment_count = s->documents,
                                  .heads = HEADS,
                                  .kv_heads = KV_HEADS,
                                  .head_dim = HEAD_DIM,
                                  .ldq = Q,
                                  .ldkv = KV,
                                  .ldo = Q,
                                  .scale = 0.125f};
    struct zf_attention_backward_args b = {.type = type,
                                           .q = f.q,
                                           .k = f.k,
                                           .v = f.v,
                                           .o = f.o,
                                           .do_ = x->d_o,
                                           .lse = f.lse,
                                           .dq = x->dq,
                                           .dk = x->dk,
                                           .dv = x->dv,
                                           .delta = x->delta,
                                           .segments = segments,
                                           .segment_count = s->documents,
                                           .heads = HEADS,
                                           .kv_heads = KV_HEADS,
                                           .head_dim = HEAD_DIM,
                                           .ldq = Q,
                                           .ldkv = KV,
                                           .ldo = Q,
                                           .lddo = Q,
                                           .lddq = Q,
                                           .lddkv = KV,
                                           .scale = f.scale};
    double best[2] = {1e9, 1e9}, scores = 0.5 * (double)s->documents * (double)s->tokens * (double)(s->tokens + 1) * HEADS;
    for (int round = 0; round < ROUNDS; round++) {
        double from = now(), middle, end;
        if (ops->attention(l, &f)) fail("the forward was refused");
        middle = now();
        if (ops->attention_backward(l, &b)) fail("the backward was refused");
        end = now();
        if (middle - from < best[0]) best[0] = middle - from;
        if (end - middle < best[1]) best[1] = end - middle;
    }
    printf("%-10s %-5s forward %8.3f ms %7.1f GFLOP/s   backward %8.3f ms %7.1f GFLOP/s\n", s->what, zf_dtype_name(type), best[0] * 1e3,
           scores * 4e-9 * HEAD_DIM / best[0], best[1] * 1e3, scores * 10e-9 * HEAD_DIM / best[1]);
}

static void measure_all(const char *isa, enum zf_dtype t)
{
    struct zf_err e;
    struct zf_device *d;
    struct zf_lane *l;
    struct zf_device_info info;
    struct arrays x;
    void **all[] = {&x.q, &x.o, &x.d_o, &x.dq, &x.k, &x.v, &x.dk, &x.dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = numbers((size_t)ROWS_MAX * (i < 4 ? Q : KV), t);
    x.lse = numbers((size_t)ROWS_MAX * HEADS, ZF_F32);
    x.delta = numbers((size_t)ROWS_MAX * HEADS, ZF_F32);
    if (zf_device_open(&d, "host", &(struct zf_device_options){.threads = 1, .synchronous = true, .isa = isa}, &e) ||
        d->type->lane_new(d, "bench", &l, &e))
        fail(e.message);
    d->type->info(d, &info);
    puts(info.description);
    for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) measure(l, d->type->ops, &streams[s], t, &x);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(*all[i]);
    free(x.lse);
    free(x.delta);
    d->type->lane_free(l);
    d->type->close(d);
}

int main(int argc, char **argv)
{
    for (int type = 0; type < 2; type++) {
        enum zf_dtype t = type ? ZF_F32 : ZF_BF16;
        if (argc > 1 && strcmp(argv[1], zf_dtype_name(t)) != 0) continue;
        if (argc < 3) measure_all(NULL, t);
        for (int i = 2; i < argc; i++) measure_all(argv[i], t);
    }
    return 0;
}
