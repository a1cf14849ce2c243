/* How fast the host device multiplies: bench_matmul [THREADS...] prints, for the products of a training step of SmolLM2-135M, 4 x 256
 * tokens, in bf16 and f32, GFLOP/s by the clock and by processor time a thread (what counts where other work runs beside), then the time of
 * all products of the step. A measurement, not a test. */
#include "core/base/floats.h"
#include "core/base/rng.h"
#include "kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 1024, HIDDEN = 576, KV = 192, FFN = 1536, VOCAB = 49152, LAYERS = 30, HEAD = 256, ROUNDS = 8 };

struct product {
    const char *what;
    size_t m, n, k, times; /* a step */
    char trans[3];
    bool wide, accumulate;
};

/* As the model issues them in a step of one micro-batch: where it adds, it adds; the first chunk of logits writes the table's gradient. */
static const struct product products[] = {
    {"q", TOKENS, HIDDEN, HIDDEN, LAYERS, "NN", false, false},
    {"k, v", TOKENS, KV, HIDDEN, 2 * LAYERS, "NN", false, false},
    {"attention out", TOKENS, HIDDEN, HIDDEN, LAYERS, "NN", false, false},
    {"gate, up", TOKENS, FFN, HIDDEN, 2 * LAYERS, "NN", false, false},
    {"down", TOKENS, HIDDEN, FFN, LAYERS, "NN", false, false},
    {"logits", HEAD, VOCAB, HIDDEN, TOKENS / HEAD, "NT", true, false},
    {"d logits", HEAD, HIDDEN, VOCAB, TOKENS / HEAD, "NN", false, false},
    {"d table", VOCAB, HIDDEN, HEAD, 1, "TN", true, false},
    {"d table, more", VOCAB, HIDDEN, HEAD, TOKENS / HEAD - 1, "TN", true, true},
    {"d q", TOKENS, HIDDEN, HIDDEN, LAYERS, "NT", true, false},
    {"d k, v", TOKENS, HIDDEN, KV, 2 * LAYERS, "NT", true, true},
    {"d attention out", TOKENS, HIDDEN, HIDDEN, LAYERS, "NT", false, false},
    {"d up", TOKENS, HIDDEN, FFN, LAYERS, "NT", true, false},
    {"d gate", TOKENS, HIDDEN, FFN, LAYERS, "NT", true, true},
    {"d down", TOKENS, FFN, HIDDEN, LAYERS, "NT", false, false},
    {"dW q, attention out", HIDDEN, HIDDEN, TOKENS, 2 * LAYERS, "TN", true, false},
    {"dW k, v", HIDDEN, KV, TOKENS, 2 * LAYERS, "TN", true, false},
    {"dW gate, up", HIDDEN, FFN, TOKENS, 2 * LAYERS, "TN", true, false},
    {"dW down", FFN, HIDDEN, TOKENS, LAYERS, "TN", true, false},
    {"one token: q", 1, HIDDEN, HIDDEN, 0, "NN", false, false},
    {"one token: k, v", 1, KV, HIDDEN, 0, "NN", false, false},
    {"one token: gate, up", 1, FFN, HIDDEN, 0, "NN", false, false},
    {"one token: down", 1, HIDDEN, FFN, 0, "NN", false, false},
    {"one token: logits", 1, VOCAB, HIDDEN, 0, "NT", true, false},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static double now(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_matmul: %s\n", what);
    exit(1);
}

/* Random numbers, as many as any operand has. */
static void *operand(enum zf_dtype type)
{
    size_t n = (size_t)VOCAB * TOKENS;
    char *p = malloc(n * sizeof(float));
    if (!p) fail("no memory");
    for (size_t i = 0; i < n; i++) {
        float x = i < 1 << 20 ? (float)(zf_uniform(1, ZF_STREAM_TEST, 0, i) * 2 - 1) : 0;
        if (i >= 1 << 20) {
            memcpy(p + i * zf_dtype_size(type), p + (i & ((1 << 20) - 1)) * zf_dtype_size(type), zf_dtype_size(type));
        } else if (type == ZF_F32) {
            ((float *)(void *)p)[i] = x;
        } else {
            ((uint16_t *)(void *)p)[i] = zf_f32_to_bf16(x);
        }
    }
    return p;
}

static void measure(struct zf_device *d, struct zf_lane *l, enum zf_dtype type, void *a, void *b, void *c, double step[2])
{
    struct zf_device_info info;
    struct zf_err e;
    d->type->info(d, &info);
    printf("%s, %s\n%-20s %17s    GFLOP/s  a thread of its time\n", info.description, zf_dtype_name(type), "", "m x n x k");
    for (const struct product *p = products; p < products + PRODUCTS; p++) {
        bool ta = p->trans[0] == 'T', tb = p->trans[1] == 'T';
        /* dlogits stand where logits stood */
        size_t lda = ta ? p->m : p->k;
        if (type == ZF_BF16 && lda == VOCAB) lda *= 2;
        struct zf_matmul_args args = {.type = type,
                                      .type_c = p->wide ? ZF_F32 : type,
                                      .a = a,
                                      .b = b,
                                      .c = c,
                                      .m = p->m,
                                      .n = p->n,
                                      .k = p->k,
                                      .lda = lda,
                                      .ldb = tb ? p->k : p->n,
                                      .ldc = p->n,
                                      .trans_a = ta,
                                      .trans_b = tb,
                                      .accumulate = p->accumulate};
        double best[2] = {1e9, 0}, flops = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
        size_t repeat = flops < 0.1 ? 20 : 1;
        for (int r = 0; r < ROUNDS; r++) {
            double t[2] = {-now(CLOCK_MONOTONIC), -now(CLOCK_PROCESS_CPUTIME_ID)};
            for (size_t i = 0; i < repeat; i++)
                if (d->type->ops->matmul(l, &args)) fail("the product was refused");
            if (d->type->lane_sync(l, &e)) fail(e.message);
            t[0] += now(CLOCK_MONOTONIC);
            t[1] += now(CLOCK_PROCESS_CPUTIME_ID);
            if (!r) continue; /* the first makes what is kept */
            if (t[0] / (double)repeat < best[0]) best[0] = t[0] / (double)repeat;
            best[1] += t[1] / (double)repeat / (ROUNDS - 1); /* the mean: the clock of another thread is read late */
        }
        printf("%-20s %5zux%5zux%5zu %s %9.1f  %9.1f\n", p->what, p->m, p->n, p->k, p->trans, flops / best[0], flops / best[1]);
        step[0] += best[0] * (double)p->times;
        step[1] += best[1] * (double)p->times;
    }
}

int main(int argc, char **argv)
{
    struct zf_err e;
    for (int type = 0; type < 2; type++) {
        enum zf_dtype t = type ? ZF_F32 : ZF_BF16;
        void *a = operand(t), *b = operand(t), *c = calloc((size_t)VOCAB * TOKENS, sizeof(float));
        if (!c) fail("no memory");
        for (int i = 1; i < (argc > 1 ? argc : 2); i++) {
            struct zf_device_options o = {.threads = argc > 1 ? atoi(argv[i]) : 0};
            struct zf_device *d;
            struct zf_lane *l;
            double step[2] = {0};
            if (zf_device_open(&d, "host", &o, &e) || d->type->lane_new(d, "bench", &l, &e)) fail(e.message);
            measure(d, l, t, a, b, c, step);
            printf("all products of a step: %.3f s, %.3f s of processor time\n\n", step[0], step[1]);
            d->type->lane_free(l);
            d->type->close(d);
        }
        free(a);
        free(b);
        free(c);
    }
    return 0;
}
