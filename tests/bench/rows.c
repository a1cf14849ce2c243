/* What the ops of rows cost: bench_rows [THREADS] prints, for matrices of SmolLM2-135M, nanoseconds of processor time per 1000 elements and
 * the GB/s of it, counting the memory that an op cannot do without; then the ratios that matter: a window of four entries served at once to
 * four passes and to one pass of the mean, and what the move adds to a hand-over. Matrices are taken in turns from 28 million elements, so
 * that none is found in the cache. A measurement, not a test. */
#include "kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ELEMENTS = 49152 * 576, ENTRIES = 4, ROUNDS = 7 };

static const struct zf_ops *ops;
static struct zf_lane *lane;
static size_t rows, cols; /* of the present matrices */

static struct {
    float *master, *m, *v, *g, *mean, *channel, *column, *share;
    uint16_t *weights, *packed, *entry[ENTRIES];
    double *sums, *partial, *columns;
    uint32_t *t, *list;
} all;

static void need(enum zf_status s, const struct zf_err *e)
{
    if (!s) return;
    fprintf(stderr, "bench_rows: %s\n", e->message);
    exit(1);
}

/* ---- the ops, on the matrix whose first element is number `at` ---- */

static enum zf_status adamw(size_t at)
{
    struct zf_adamw_args a = {.type = ZF_BF16,
                              .weights = all.weights + at,
                              .master = all.master + at,
                              .m = all.m + at,
                              .v = all.v + at,
                              .g = all.g + at,
                              .n = rows * cols,
                              .t = 10,
                              .lr = 1e-5,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8};
    return ops->adamw(lane, &a);
}

static enum zf_status adamw_rows(size_t at)
{
    struct zf_adamw_rows_args a = {.type = ZF_BF16,
                                   .bus_type = ZF_BF16,
                                   .weights = all.weights + at,
                                   .master = all.master + at,
                                   .m = all.m + at,
                                   .v = all.v + at,
                                   .g = all.g + at,
                                   .t = all.t,
                                   .list = all.list,
                                   .rows = rows,
                                   .cols = cols,
                                   .clip = 1,
                                   .lr = 1e-5,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8};
    return ops->adamw_rows(lane, &a);
}

/* Entries first .. first + count of bf16, or the mean. */
static enum zf_status serve(size_t at, size_t first, size_t count, bool mean, double ahead, bool stochastic)
{
    void *chunk[ENTRIES], *visible = all.weights + at;
    struct zf_entry entries[ENTRIES];
    for (size_t i = 0; i < count; i++) {
        chunk[i] = mean ? (void *)(all.mean + at) : all.entry[first + i] + at;
        entries[i] = (struct zf_entry){{&chunk[i], rows}, 1, 1e-5};
    }
    struct zf_serve_rows_args a = {.type = ZF_BF16,
                                   .g_type = mean ? ZF_F32 : ZF_BF16,
                                   .master = all.master + at,
                                   .m = all.m + at,
                                   .v = all.v + at,
                                   .t = all.t,
                                   .entries = entries,
                                   .entry_count = count,
                                   .rows = rows,
                                   .cols = cols,
                                   .visible = {&visible, rows},
                                   .ahead = ahead,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .stochastic = stochastic};
    return ops->serve_rows(lane, &a);
}

static enum zf_status serve_mean(size_t at)
{
    return serve(at, 0, 1, true, 0, false);
}

static enum zf_status serve_each(size_t at)
{
    return serve(at, 0, ENTRIES, false, 0, false);
}

static enum zf_status serve_each_ahead(size_t at)
{
    return serve(at, 0, ENTRIES, false, 1e-5, true);
}

static enum zf_status serve_one(size_t at)
{
    return serve(at, 0, 1, false, 0, false);
}

static enum zf_status fold(size_t at, bool add)
{
    void *g = all.entry[0] + at, *sum = all.mean + at;
    return ops->fold_rows(lane, &(struct zf_fold_rows_args){ZF_BF16, {&g, rows}, {&sum, rows}, rows, cols, 0.25f, add});
}

static enum zf_status fold_first(size_t at)
{
    return fold(at, false);
}

static enum zf_status fold_next(size_t at)
{
    return fold(at, true);
}

static enum zf_status hand_over(size_t at, bool packs, enum zf_dtype moves)
{
    void *weights = moves == ZF_F32 ? (void *)(all.master + at) : all.weights + at;
    struct zf_hand_over_args a = {.type = moves,
                                  .bus_type = ZF_BF16,
                                  .g = all.g + at,
                                  .packed = packs ? all.packed + at : NULL,
                                  .weights = weights,
                                  .channel = all.channel,
                                  .column = all.column,
                                  .partial = all.partial,
                                  .partials = rows * cols / ZF_SQUARES_CHUNK,
                                  .rows = rows,
                                  .cols = cols,
                                  .clip = 1,
                                  .rate = 1e-6,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .seed = 1,
                                  .step = 2};
    return ops->hand_over(lane, &a);
}

static enum zf_status hand_over_packs(size_t at)
{
    struct zf_hand_over_args a = {.bus_type = ZF_BF16, .g = all.g + at, .packed = all.packed + at, .rows = rows, .cols = cols};
    return ops->hand_over(lane, &a);
}

static enum zf_status hand_over_moves(size_t at)
{
    return hand_over(at, true, ZF_BF16);
}

static enum zf_status hand_over_moves_f32(size_t at)
{
    return hand_over(at, true, ZF_F32);
}

static enum zf_status row_sums(size_t at)
{
    return ops->row_sums(lane, &(struct zf_row_sums_args){all.g + at, all.sums, rows, cols, NULL});
}

static enum zf_status row_sums_squares(size_t at)
{
    return ops->row_sums(lane, &(struct zf_row_sums_args){all.g + at, all.sums, rows, cols, all.partial});
}

static enum zf_status sum_squares(size_t at)
{
    return ops->sum_squares(lane, &(struct zf_sum_squares_args){all.g + at, all.partial, rows * cols});
}

static enum zf_status move_rows(size_t at)
{
    struct zf_move_rows_args a = {ZF_F32, ZF_F32, all.mean + at, all.g + at, NULL, all.list, rows, cols};
    return ops->move_rows(lane, &a);
}

static enum zf_status move_rows_narrow(size_t at)
{
    struct zf_move_rows_args a = {ZF_BF16, ZF_F32, all.packed + at, all.g + at, all.list, NULL, rows, cols};
    return ops->move_rows(lane, &a);
}

static enum zf_status move_single(size_t at) /* the matrix as a list of single numbers */
{
    struct zf_move_rows_args a = {ZF_F32, ZF_F32, all.mean + at, all.g + at, NULL, NULL, rows * cols, 1};
    return ops->move_rows(lane, &a);
}

static enum zf_status vhat_rows(size_t at)
{
    struct zf_vhat_rows_args a = {
        .v = all.v + at, .t = all.t, .channel = all.channel, .column = all.columns, .rows = rows, .cols = cols, .beta2 = 0.95};
    return ops->vhat_rows(lane, &a);
}

static enum zf_status column_shares(size_t at)
{
    (void)at;
    return ops->column_shares(lane, &(struct zf_column_shares_args){all.columns, all.share, rows, cols});
}

enum { PASS_MEAN, PASS_ONE, PASS_EACH, PACKS, MOVES, SQUARES, SUMS, BOTH, FOLD_FIRST, FOLD_NEXT, OTHERS };
static const struct {
    const char *name;
    enum zf_status (*run)(size_t at);
    double bytes; /* an element */
} measured[] = {
    [PASS_MEAN] = {"serve_rows, the mean", serve_mean, 30},
    [PASS_ONE] = {"serve_rows, one entry", serve_one, 28},
    [PASS_EACH] = {"serve_rows, four entries", serve_each, 34},
    [PACKS] = {"hand_over, packs", hand_over_packs, 6},
    [MOVES] = {"hand_over, packs and moves", hand_over_moves, 10},
    [SQUARES] = {"sum_squares", sum_squares, 4},
    [SUMS] = {"row_sums", row_sums, 4},
    [BOTH] = {"row_sums and squares at once", row_sums_squares, 4},
    [FOLD_FIRST] = {"fold_rows, first", fold_first, 6},
    [FOLD_NEXT] = {"fold_rows, next", fold_next, 10},
    [OTHERS] = {"serve_rows, four, ahead, by chance", serve_each_ahead, 34},
    {"hand_over, packs and moves f32", hand_over_moves_f32, 14},
    {"adamw", adamw, 30},
    {"adamw_rows", adamw_rows, 30},
    {"move_rows", move_rows, 8},
    {"move_rows, f32 to bf16", move_rows_narrow, 6},
    {"move_rows, single numbers", move_single, 8},
    {"vhat_rows", vhat_rows, 4},
    {"column_shares", column_shares, 0},
};
enum { OPS = sizeof measured / sizeof *measured };

static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void measure(struct zf_device *d)
{
    double took[OPS] = {0};
    size_t n = rows * cols;
    for (size_t r = 0; r < rows; r++) {
        all.t[r] = (uint32_t)(10 + r % 3);
        all.list[r] = (uint32_t)(r ^ 1);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < OPS; i++) {
            double from = processor_seconds();
            for (size_t at = 0; at + n <= ELEMENTS; at += n)
                if (measured[i].run(at)) {
                    struct zf_err e;
                    need(d->type->lane_sync(lane, &e), &e);
                }
            double seconds = processor_seconds() - from;
            if (!round || seconds < took[i]) took[i] = seconds;
        }
    printf("%zux%zu\n", rows, cols);
    for (size_t i = 0; i < OPS; i++) {
        double ns = took[i] / (double)(ELEMENTS / n * n) * 1e9;
        printf("  %-36s %7.1f ns/1000", measured[i].name, 1e3 * ns);
        if (measured[i].bytes > 0) printf("  %5.1f GB/s", measured[i].bytes / ns);
        printf("\n");
    }
    double mean_window = took[FOLD_FIRST] + (ENTRIES - 1) * took[FOLD_NEXT] + took[PASS_MEAN];
    printf("  four entries at once: %.2f of four passes, %.2f of a pass of the mean, %.2f of it with its folds; the move adds %.2f of "
           "packing; row_sums: %.2f of sum_squares, "
           "with it %.2f\n",
           took[PASS_EACH] / (ENTRIES * took[PASS_ONE]), took[PASS_EACH] / took[PASS_MEAN], took[PASS_EACH] / mean_window,
           took[MOVES] / took[PACKS] - 1, took[SUMS] / took[SQUARES], took[BOTH] / took[SQUARES]);
}

static void *zeros(struct zf_device *d, size_t bytes)
{
    struct zf_err e;
    void *p;
    need(d->type->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &p, &e), &e);
    return p;
}

int main(int count, char **arguments)
{
    static const size_t shapes[][2] = {{576, 1536}, {1536, 576}, {49152, 576}};
    struct zf_err e = {0};
    struct zf_device *d;
    struct zf_device_options options = {
        .threads = count > 1 ? atoi(arguments[1]) : 1, .isa = count > 2 ? arguments[2] : NULL, .synchronous = true};
    need(zf_device_open(&d, "host", &options, &e), &e);
    need(d->type->lane_new(d, "compute", &lane, &e), &e);
    ops = d->type->ops;
    float **floats[] = {&all.master, &all.m, &all.v, &all.g, &all.mean, &all.channel, &all.column, &all.share};
    uint16_t **halves[] = {&all.weights, &all.packed, &all.entry[0], &all.entry[1], &all.entry[2], &all.entry[3]};
    double **doubles[] = {&all.sums, &all.partial, &all.columns};
    for (size_t i = 0; i < 8; i++) *floats[i] = zeros(d, (i < 5 ? ELEMENTS : 49152) * sizeof(float));
    for (size_t i = 0; i < 6; i++) *halves[i] = zeros(d, ELEMENTS * sizeof(uint16_t));
    for (size_t i = 0; i < 3; i++) *doubles[i] = zeros(d, 2 * 49152 * sizeof(double));
    all.t = zeros(d, 49152 * sizeof(uint32_t));
    all.list = zeros(d, 49152 * sizeof(uint32_t));
    for (size_t i = 0; i < ELEMENTS; i++) {
        all.g[i] = 1e-3f * (float)(i % 7);
        all.v[i] = 1e-6f;
        for (size_t k = 0; k < ENTRIES; k++) all.entry[k][i] = (uint16_t)(0x3a00 + (i + k) % 64);
    }
    for (size_t i = 0; i < 49152; i++) {
        all.channel[i] = 1e-6f;
        all.column[i] = 1;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        rows = shapes[i][0];
        cols = shapes[i][1];
        measure(d);
    }
    for (size_t i = 0; i < 8; i++) d->type->free(d, *floats[i]);
    for (size_t i = 0; i < 6; i++) d->type->free(d, *halves[i]);
    for (size_t i = 0; i < 3; i++) d->type->free(d, *doubles[i]);
    d->type->free(d, all.t);
    d->type->free(d, all.list);
    d->type->lane_free(lane);
    d->type->close(d);
    return 0;
}
