/* Matrix products of f32 (those of bf16: matmul_bf16.c): oneDNN's sgemm, one thread a call, over a grid of tiles that depends on the shape
 * alone. K is never split, so the bits of an element do not depend on the number of threads.
 *
 * Why sgemm and no matmul primitives: measured as fast or faster in f32 (128x576x1536: 147 against 127 GFLOP/s a thread), the same call in
 * oneDNN 2 and 3, and it has no object to create (0.3 to 1 ms) and keep for each of the many row counts that documents bring. */
#include "core/base/floats.h"
#include "kernels/host/host.h"

#include <dnnl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct grid {
    size_t rows, cols; /* of a tile */
    size_t across, tiles;
};

static size_t divide_up(size_t a, size_t b)
{
    return (a - 1) / b + 1;
}

/* n cut into equal parts of at most about `want`, a multiple of 16; whole where a second part would be a small one */
static size_t part_of(size_t n, double want)
{
    if ((double)n <= 1.5 * want) return n;
    size_t parts = divide_up(n, (size_t)want), part = divide_up(n, parts);
    return divide_up(part, 16) * 16;
}

static double within(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* Multiply-adds of a tile: enough to be worth handing out, few enough that many threads find work. Rows first: a tile as wide as c reads
 * and packs b once for its rows, which costs as much as READ rows more (and more if b is transposed).
 * Measured, GFLOP/s of one thread, whole product and these tiles: 1024x576x1536 147, 143; b transposed 149, 144;
 * 576x1536x1024 a transposed 112, 116; 256x49152x576 111, 115. */
enum { READ = 16, ROWS_MOST = 256, COLS_LEAST = 512, COLS_LEAST_FEW_ROWS = 64 };
static const double LEAST = 8e6, MOST = 128e6;

static struct grid grid_of(const struct zf_matmul_args *a)
{
    struct grid g;
    double k = (double)(a->k ? a->k : 1), row = k * (double)a->n, rows_least = a->trans_b ? 256 : 64;
    double rows = within(MOST / row, rows_least, ROWS_MOST);
    g.rows = part_of(a->m, rows < LEAST / row ? LEAST / row : rows);
    double cols = MOST / (k * (double)(g.rows + READ));
    if (g.rows == a->m && g.rows < rows_least)
        cols = within(2 * LEAST / (k * (double)(g.rows + READ)), COLS_LEAST_FEW_ROWS, cols); /* long rows of b: memory is the limit */
    else
        cols = cols < COLS_LEAST ? COLS_LEAST : cols;
    g.cols = part_of(a->n, cols);
    g.across = divide_up(a->n, g.cols);
    g.tiles = g.across * divide_up(a->m, g.rows);
    return g;
}

struct job {
    const struct zf_matmul_args *a;
    struct grid grid;
    atomic_int status; /* of oneDNN: the first that is no success */
};

/* c's rows start as the bias, or take it on */
static void add_bias(float *c, size_t ldc, const float *bias, size_t m, size_t n, bool accumulate)
{
    for (size_t i = 0; i < m; i++, c += ldc) {
        if (!accumulate)
            memcpy(c, bias, n * sizeof *c);
        else
            for (size_t j = 0; j < n; j++) c[j] += bias[j];
    }
}

static void tile(void *ctx, size_t index)
{
    struct job *job = ctx;
    const struct zf_matmul_args *a = job->a;
    size_t i = index / job->grid.across * job->grid.rows, j = index % job->grid.across * job->grid.cols;
    size_t m = a->m - i < job->grid.rows ? a->m - i : job->grid.rows, n = a->n - j < job->grid.cols ? a->n - j : job->grid.cols;
    float *c = (float *)a->c + i * a->ldc + j;
    bool add = a->accumulate;
    if (a->bias) {
        add_bias(c, a->ldc, (const float *)a->bias + j, m, n, add);
        add = true;
    }
    if (!a->k) {
        for (size_t r = 0; r < m && !add; r++) memset(c + r * a->ldc, 0, n * sizeof *c);
        return;
    }
    const float *left = (const float *)a->a + (a->trans_a ? i : i * a->lda), *right = (const float *)a->b + (a->trans_b ? j * a->ldb : j);
    int status = dnnl_sgemm(a->trans_a ? 'T' : 'N', a->trans_b ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)a->k, 1, left,
                            (dnnl_dim_t)a->lda, right, (dnnl_dim_t)a->ldb, add, c, (dnnl_dim_t)a->ldc);
    int none = dnnl_success;
    if (status != dnnl_success) atomic_compare_exchange_strong(&job->status, &none, status);
}

/* ---- few rows ---- */

enum {
    FEW = 4,
    PANEL = 2048,          /* columns of b that one task reads: a page of bf16 */
    FEW_TASK = 128 * 1024, /* bytes of b worth a task */
    SLICES = 8,            /* each makes sums of its own, that one thread adds */
    SLICE = 2048,          /* terms of a sum that has one order: rounding grows with them */
};

/* Parts of b that tasks read: parts of its rows, of which columns are cut off only where they are long; or rows of c where it is
 * transposed. */
static struct zf_host_few few_of(const struct zf_matmul_args *a)
{
    struct zf_host_few f = {.a = a, .slice = a->k, .slices = 1};
    size_t size = zf_dtype_size(a->type), row = a->trans_b ? a->k * size : size;
    f.panel = a->trans_b ? divide_up(FEW_TASK, row) : part_of(a->n, PANEL);
    f.panel = divide_up(f.panel, 16) * 16;
    f.panels = divide_up(a->n, f.panel);
    if (a->trans_b) return f;
    size_t width = f.panel < a->n ? f.panel : a->n, slices = divide_up(a->k * width * size, FEW_TASK);
    slices = slices > SLICES ? SLICES : slices + (slices > 1 ? slices & 1 : 0); /* an even number: two threads want the same */
    f.slice = divide_up(divide_up(a->k, slices), 8) * 8;
    if (f.slice > SLICE) f.slice = SLICE;
    f.slices = divide_up(a->k, f.slice);
    return f;
}

static void left_as_floats(float *x, const struct zf_matmul_args *a)
{
    size_t down = a->trans_a ? 1 : a->lda, right = a->trans_a ? a->lda : 1;
    for (size_t i = 0; i < a->m; i++, x += a->k)
        if (a->type == ZF_F32) {
            const float *from = (const float *)a->a + i * down;
            for (size_t k = 0; k < a->k; k++) x[k] = from[k * right];
        } else {
            const uint16_t *from = (const uint16_t *)a->a + i * down;
            for (size_t k = 0; k < a->k; k++) x[k] = zf_bf16_to_f32(from[k * right]);
        }
}

static int multiply_few(struct zf_lane *l, const struct zf_matmul_args *a)
{
    const struct zf_host_typed *kernels = &zf_host_of(l)->path->typed[a->type];
    struct zf_host_few f = few_of(a);
    size_t x = divide_up(a->m * a->k, 16) * 16, sums, bytes; /* dimensions are below 2^61 */
    if (__builtin_mul_overflow(f.slices * a->m, a->n, &sums) || __builtin_add_overflow(x, sums, &sums) ||
        __builtin_mul_overflow(sums, sizeof(float), &bytes))
        return dnnl_out_of_memory;
    float *scratch = zf_host_scratch(l, bytes);
    if (!scratch) return dnnl_out_of_memory;
    left_as_floats(scratch, a);
    f.x = scratch;
    f.sums = scratch + x;
    zf_host_run_kernel(l, kernels->few, &f);
    zf_host_run_kernel(l, kernels->few_end, &f);
    return dnnl_success;
}

static int multiply_f32(struct zf_lane *l, const struct zf_matmul_args *a)
{
    struct job job = {.a = a, .grid = grid_of(a), .status = dnnl_success};
    zf_host_parallel(l, job.grid.tiles, tile, &job);
    return atomic_load(&job.status);
}

enum zf_status zf_host_matmul_run(struct zf_lane *l, const union zf_work_args *args, struct zf_err *e)
{
    const struct zf_matmul_args *a = &args->matmul;
    int status = (a->m <= FEW && a->k ? multiply_few : a->type == ZF_BF16 ? zf_host_matmul_bf16 : multiply_f32)(l, a);
    if (status == dnnl_success) return ZF_OK;
    return zf_fail(e, status == dnnl_out_of_memory ? ZF_MEMORY : ZF_NUMERIC, NULL, "oneDNN could not multiply %zux%zux%zu (status %d)%s",
                   a->m, a->n, a->k, status, status == dnnl_out_of_memory ? ": it found no memory" : "");
}

void zf_host_matmul_library(char *text, size_t size, bool *bf16)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
#if DNNL_VERSION_MAJOR >= 3
        {dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16"},
        {dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16"},
#endif
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx_bf16"},
    };
    const dnnl_version_t *v = dnnl_version();
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    char number[24];
    snprintf(number, sizeof number, "isa 0x%x", (unsigned)isa); /* one that came later */
    const char *name = number;
    *bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16; /* a set of bits: later ones hold earlier ones */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].isa == isa) name = known[i].name;
    snprintf(text, size, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch, name);
}
