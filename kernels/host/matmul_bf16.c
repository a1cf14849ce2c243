/* Matrix products of bf16: oneDNN's matmul primitives, one thread each, over a grid of tiles that depends on the shape alone. Where a long
 * K is cut, it is cut by the shape alone, too, and the pieces are added in their order: bits do not depend on the number of threads.
 *
 * What decides the grid (oneDNN 2.6.3, AMX, CPU time of one thread on a busy machine, GFLOP/s):
 * - Its fast code (brgemm) takes operands without gaps between rows only, else it falls back to one that is slower. So a tile is as wide as
 * c where that is affordable; what has gaps or is transposed on the left is packed, and a piece of a wider c goes through a buffer:
 *   256x49152x576, b transposed, tiles of 1024 columns straight into c 290, of 512 through a buffer 440.
 * - 256 rows are enough to make up for its packing of b: 1024x3072x576 635, with 512 rows 595; 1024x576x3072, b transposed, 520, 500.
 * - A left operand is transposed by us, tile by tile (brgemm's own: 20 to 30 % slower): 1536x576x1024 into f32 550, 576x3072x1024 380;
 *   adding to c through a buffer is slower than oneDNN's own sum (430, 330).
 * - K = 49152 in pieces of 1024, 256 rows a time: 510; whole, 128 rows: 220. These pieces make work for more than one thread as well.
 *
 * Making a primitive takes 0.5 to 3 ms: the device keeps those used last. Their number is small because heights of tiles are multiples of
 * 16 (a last tile that is not gets rows of zeros). Scratch memory belongs to a worker, one for each thread that is multiplying, and stays
 * with the device.
 *
 * Without bf16 in hardware operands are made f32, tile by tile, for sgemm. */
#include "core/base/floats.h"
#include "kernels/host/host.h"

#include <dnnl.h>
#include <emmintrin.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
#define BY_REFERENCE(d) (d)
typedef const_dnnl_memory_desc_t description_arg;
#else
#define BY_REFERENCE(d) (&(d))
typedef const dnnl_memory_desc_t *description_arg;
#endif

enum { KEPT = 192 };
enum buffer { LEFT, RIGHT, RESULT, SCRATCH, BUFFERS };

/* What a primitive is made for; no padding: compared as bytes. */
struct key {
    uint64_t m, n, k, lda, ldb, ldc;
    uint32_t trans_b, type_c, add, bias;
};

struct primitive {
    struct key key;
    dnnl_primitive_t execute; /* NULL: the place is free */
    dnnl_memory_desc_t a, b, bias, c, scratch;
    size_t scratch_bytes, users;
    uint64_t used;
};

struct worker {
    struct worker *next;
    dnnl_stream_t stream;
    void *buffer[BUFFERS];
    size_t room[BUFFERS];
};

struct zf_host_products {
    bool direct; /* oneDNN has code for bf16 */
    dnnl_engine_t engine;
    pthread_mutex_t lock; /* over the rest */
    struct worker *idle;
    uint64_t clock;
    struct primitive kept[KEPT];
};

/* ---- the version of oneDNN ---- */

static int describe(dnnl_memory_desc_t *d, size_t rows, size_t cols, dnnl_data_type_t type, size_t row, size_t col)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols}, strides = {(dnnl_dim_t)row, (dnnl_dim_t)col};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
#endif
}

static void forget(struct primitive *p)
{
    if (p->execute) dnnl_primitive_destroy(p->execute);
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t all[] = {p->a, p->b, p->bias, p->c, p->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) dnnl_memory_desc_destroy(all[i]);
#endif
    memset(p, 0, sizeof *p);
}

static int make_descriptor(dnnl_primitive_desc_t *out, struct primitive *p, dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, engine, p->a, p->b, p->bias, p->c, attr);
#else
    dnnl_matmul_desc_t d;
    int s = dnnl_matmul_desc_init(&d, &p->a, &p->b, p->key.bias ? &p->bias : NULL, &p->c);
    return s ? s : (int)dnnl_primitive_desc_create(out, &d, attr, engine, NULL);
#endif
}

static int keep_scratch(struct primitive *p, dnnl_primitive_desc_t d)
{
    description_arg s = dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0);
    if (!s) return dnnl_success;
    p->scratch_bytes = dnnl_memory_desc_get_size(s);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_clone(&p->scratch, s);
#else
    p->scratch = *s;
    return dnnl_success;
#endif
}

static int set_sum(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops;
    int s = dnnl_post_ops_create(&ops);
    if (s) return s;
#if DNNL_VERSION_MAJOR >= 3
    s = dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    s = dnnl_post_ops_append_sum(ops, 1);
#endif
    if (!s) s = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return s;
}

/* ---- primitives ---- */

static int make(struct primitive *p, const struct key *k, dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t d = NULL;
    p->key = *k;
    int s = describe(&p->a, k->m, k->k, dnnl_bf16, k->lda, 1);
    if (!s) s = describe(&p->b, k->k, k->n, dnnl_bf16, k->trans_b ? 1 : k->ldb, k->trans_b ? k->ldb : 1);
    if (!s) s = describe(&p->c, k->m, k->n, k->type_c == ZF_F32 ? dnnl_f32 : dnnl_bf16, k->ldc, 1);
    if (!s && k->bias) s = describe(&p->bias, 1, k->n, dnnl_bf16, k->n, 1);
    if (!s) s = dnnl_primitive_attr_create(&attr);
    if (!s) s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user); /* the library's is no use to another thread */
    if (!s && k->add) s = set_sum(attr);
    if (!s) s = make_descriptor(&d, p, engine, attr);
    if (!s) s = keep_scratch(p, d);
    if (!s) s = dnnl_primitive_create(&p->execute, d);
    if (d) dnnl_primitive_desc_destroy(d);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (s) forget(p);
    return s;
}

/* The kept one, or a new one in the place of the one that was not used for longest. Not more than one a thread is in use. */
static int borrow(struct zf_host_products *h, const struct key *k, struct primitive **out)
{
    int s = dnnl_out_of_memory;
    struct primitive *oldest = NULL, *found = NULL;
    pthread_mutex_lock(&h->lock);
    for (struct primitive *p = h->kept; p < h->kept + KEPT && !found; p++) {
        if (p->execute && !memcmp(&p->key, k, sizeof *k)) found = p;
        if (!p->users && (!oldest || p->used < oldest->used)) oldest = p;
    }
    if (!found && oldest) {
        forget(oldest);
        s = make(oldest, k, h->engine);
        if (!s) found = oldest;
    }
    if (found) {
        found->users++;
        found->used = ++h->clock;
        s = dnnl_success;
    }
    pthread_mutex_unlock(&h->lock);
    *out = found;
    return s;
}

static void give_back(struct zf_host_products *h, struct primitive *p)
{
    pthread_mutex_lock(&h->lock);
    p->users--;
    pthread_mutex_unlock(&h->lock);
}

/* ---- workers ---- */

static void worker_free(struct worker *w)
{
    for (size_t i = 0; i < BUFFERS; i++) free(w->buffer[i]);
    if (w->stream) dnnl_stream_destroy(w->stream);
    free(w);
}

static struct worker *worker_take(struct zf_host_products *h)
{
    pthread_mutex_lock(&h->lock);
    struct worker *w = h->idle;
    if (w) h->idle = w->next;
    pthread_mutex_unlock(&h->lock);
    if (w) return w;
    w = calloc(1, sizeof *w);
    if (w && h->direct && dnnl_stream_create(&w->stream, h->engine, dnnl_stream_default_flags)) {
        w->stream = NULL;
        worker_free(w);
        w = NULL;
    }
    return w;
}

static void worker_return(struct zf_host_products *h, struct worker *w)
{
    pthread_mutex_lock(&h->lock);
    w->next = h->idle;
    h->idle = w;
    pthread_mutex_unlock(&h->lock);
}

/* At least `bytes`, of any content; NULL: no memory. */
static void *room(struct worker *w, enum buffer b, size_t bytes)
{
    enum { PAGE = 4096 };
    if (bytes > SIZE_MAX / 2) return NULL;
    if (w->room[b] < bytes || !w->buffer[b]) {
        free(w->buffer[b]);
        bytes = (bytes / PAGE + 1) * PAGE;
        w->buffer[b] = aligned_alloc(PAGE, bytes);
        w->room[b] = w->buffer[b] ? bytes : 0;
    }
    return w->buffer[b];
}

enum zf_status zf_host_products_new(struct zf_host_products **out, struct zf_err *e)
{
    char text[96];
    struct zf_host_products *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return zf_fail_memory(e, "the products of bf16");
    pthread_mutex_init(&h->lock, NULL);
    zf_host_matmul_library(text, sizeof text, &h->direct);
    if (h->direct) {
        dnnl_set_primitive_cache_capacity(0); /* a second, larger cache behind ours */
        if (dnnl_engine_create(&h->engine, dnnl_cpu, 0)) {
            h->engine = NULL;
            zf_host_products_free(h);
            return zf_fail(e, ZF_MEMORY, NULL, "%s has no engine for this processor", text);
        }
    }
    *out = h;
    return ZF_OK;
}

void zf_host_products_free(struct zf_host_products *h)
{
    if (!h) return;
    for (size_t i = 0; i < KEPT; i++) forget(&h->kept[i]);
    for (struct worker *w = h->idle, *next; w; w = next) {
        next = w->next;
        worker_free(w);
    }
    if (h->engine) dnnl_engine_destroy(h->engine);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* ---- moving elements ---- */

/* An 8x8 block of from, transposed. */
static void transpose_block(uint16_t *to, size_t ld_to, const uint16_t *from, size_t ld_from)
{
    __m128i r[8], u[8];
    for (size_t i = 0; i < 8; i++) r[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + i * ld_from));
    for (size_t i = 0; i < 4; i++) {
        u[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        u[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
        r[i] = _mm_unpacklo_epi32(u[i], u[i + 2]);
        r[i + 1] = _mm_unpackhi_epi32(u[i], u[i + 2]);
        r[i + 2] = _mm_unpacklo_epi32(u[i + 1], u[i + 3]);
        r[i + 3] = _mm_unpackhi_epi32(u[i + 1], u[i + 3]);
    }
    for (size_t i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * i * ld_to), _mm_unpacklo_epi64(r[i], r[i + 4]));
        _mm_storeu_si128((__m128i *)(void *)(to + (2 * i + 1) * ld_to), _mm_unpackhi_epi64(r[i], r[i + 4]));
    }
}

/* to[m][k] = from[k][m]: a cache line of `to` at a time. */
static void transpose(uint16_t *to, const uint16_t *from, size_t ld, size_t m, size_t k)
{
    enum { BLOCK = 8, LINE = 32 };
    size_t whole_m = m / BLOCK * BLOCK, whole_k = k / BLOCK * BLOCK;
    for (size_t line = 0; line < whole_k; line += LINE)
        for (size_t i = 0; i < whole_m; i += BLOCK)
            for (size_t j = line; j < whole_k && j < line + LINE; j += BLOCK) transpose_block(to + i * k + j, k, from + j * ld + i, ld);
    for (size_t i = 0; i < m; i++)
        for (size_t j = i < whole_m ? whole_k : 0; j < k; j++) to[i * k + j] = from[j * ld + i];
}

static void widen(float *to, size_t ld_to, const uint16_t *from, size_t ld_from, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) to[i * ld_to + j] = zf_bf16_to_f32(from[i * ld_from + j]);
}

static void narrow(uint16_t *to, const float *from, size_t n)
{
    for (size_t j = 0; j < n; j++) to[j] = zf_f32_to_bf16(from[j]);
}

/* ---- the grid ---- */

struct plan {
    size_t rows, cols, depth;    /* of a tile, of a piece of K */
    size_t across, down, slices; /* tiles beside and below each other; parts of K that are summed apart */
    size_t slice;                /* K of a part */
};

static size_t divide_up(size_t a, size_t b)
{
    return a ? (a - 1) / b + 1 : 0;
}

enum {
    HEIGHT = 256, /* rows of a tile */
    STEP = 16,    /* heights are multiples of it: rows of an AMX tile */
    WIDE = 16384,
    WIDTH = 512, /* c is cut into columns where it is wide and b's rows are its columns */
    DEEP = 8192,
    DEPTH = 1024,
    SLICE = 6144,        /* K of one piece and of one part where it is long */
    DEPTH_PACKED = 2048, /* and of a piece that is transposed */
};
static const double LEAST = 24e6; /* multiply-adds that are worth a task */

static struct plan plan_of(const struct zf_matmul_args *a)
{
    struct plan p = {.cols = a->n, .across = 1, .depth = a->k, .slices = 1, .slice = a->k};
    if (a->trans_b && a->n > WIDE) {
        p.cols = WIDTH;
        p.across = divide_up(a->n, WIDTH);
    }
    if (a->trans_a && a->k > DEPTH_PACKED) p.depth = DEPTH_PACKED;
    if (!a->trans_a && !a->trans_b && a->k > DEEP) {
        p.depth = DEPTH;
        p.slice = SLICE;
        p.slices = divide_up(a->k, SLICE);
    }
    size_t parts = divide_up(a->m, HEIGHT);
    if (p.across == 1 && p.slices == 1) { /* an even number of tiles: two threads want the same */
        parts += parts & 1;
        if ((double)a->m * (double)a->n * (double)a->k < 2 * LEAST) parts = 1;
    }
    p.rows = divide_up(divide_up(a->m, parts), STEP) * STEP;
    p.down = divide_up(a->m, p.rows);
    return p;
}

struct job {
    const struct zf_matmul_args *a;
    struct plan plan;
    struct zf_host_products *products;
    float *partial; /* [slices][m][n], if there are slices */
    atomic_int status;
};

/* One tile of one part of K. Where the result stands: in c itself, or without gaps in a buffer of the worker or in `partial`. */
struct piece {
    size_t i, j, m, n, k_begin, k_end;
    size_t height; /* of what oneDNN computes: m, or a little more */
    void *to;
    size_t ld_to;
    enum zf_dtype type_to;
    bool straight, add, bias;
};

static bool in_place(const struct job *job, const struct piece *p)
{
    const struct zf_matmul_args *a = job->a;
    return job->products->direct && p->height == p->m && p->n == a->n && (a->ldc == a->n || p->m == 1) &&
           (a->type_c == ZF_F32 || job->plan.depth == a->k);
}

/* ---- computing ---- */

static int run_primitive(const struct zf_host_products *h, struct worker *w, const struct primitive *p, void *const data[5])
{
    static const int roles[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    const dnnl_memory_desc_t *const kinds[] = {&p->a, &p->b, &p->c, &p->scratch, &p->bias};
    dnnl_exec_arg_t args[5];
    int count = 0, s = dnnl_success;
    for (int i = 0; i < 5 && !s; i++) {
        if (!data[i]) continue;
        args[count].arg = roles[i];
        s = dnnl_memory_create(&args[count].memory, BY_REFERENCE(*kinds[i]), h->engine, data[i]);
        if (!s) count++;
    }
    if (!s) s = dnnl_primitive_execute(p->execute, w->stream, count, args);
    if (!s) s = dnnl_stream_wait(w->stream);
    while (count) dnnl_memory_destroy(args[--count].memory);
    return s;
}

/* to += or = left[height][k] right[k][n] + bias. left has no gaps. */
static int multiply(const struct job *job, struct worker *w, const struct piece *p, const uint16_t *left, size_t ld_left,
                    const uint16_t *right, size_t k, const uint16_t *bias)
{
    const struct zf_matmul_args *a = job->a;
    struct zf_host_products *h = job->products;
    struct key key = {p->height, p->n, k, ld_left, a->ldb, p->ld_to, a->trans_b, p->type_to, p->add, bias != NULL};
    struct primitive *primitive;
    int s = borrow(h, &key, &primitive);
    if (s) return s;
    void *scratch = primitive->scratch_bytes ? room(w, SCRATCH, primitive->scratch_bytes) : NULL;
    void *data[] = {(void *)(uintptr_t)left, (void *)(uintptr_t)right, p->to, scratch, (void *)(uintptr_t)bias};
    s = primitive->scratch_bytes && !scratch ? (int)dnnl_out_of_memory : run_primitive(h, w, primitive, data);
    give_back(h, primitive);
    return s;
}

/* The same in f32. p->to is f32. */
static int multiply_wide(const struct job *job, struct worker *w, const struct piece *p, const uint16_t *left, size_t ld_left,
                         const uint16_t *right, size_t k, const uint16_t *bias)
{
    const struct zf_matmul_args *a = job->a;
    size_t rows = a->trans_b ? p->n : k, cols = a->trans_b ? k : p->n;
    float *l = room(w, SCRATCH, p->height * k * sizeof *l), *r = room(w, RIGHT, rows * cols * sizeof *r), *to = p->to;
    if (!l || !r) return dnnl_out_of_memory;
    widen(l, k, left, ld_left, p->height, k);
    widen(r, cols, right, a->ldb, rows, cols);
    int s = dnnl_sgemm('N', a->trans_b ? 'T' : 'N', (dnnl_dim_t)p->height, (dnnl_dim_t)p->n, (dnnl_dim_t)k, 1, l, (dnnl_dim_t)k, r,
                       (dnnl_dim_t)cols, p->add, to, (dnnl_dim_t)p->ld_to);
    for (size_t i = 0; bias && !s && i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) to[i * p->ld_to + j] += zf_bf16_to_f32(bias[j]);
    return s;
}

/* The left operand of a piece of K without gaps and with all the rows; itself where it is so. NULL: no memory. */
static const uint16_t *left_of(const struct job *job, struct worker *w, const struct piece *p, size_t k_begin, size_t k)
{
    const struct zf_matmul_args *a = job->a;
    const uint16_t *from = (const uint16_t *)a->a + (a->trans_a ? k_begin * a->lda + p->i : p->i * a->lda + k_begin);
    if (p->height == p->m && !a->trans_a && (a->lda == k || p->m == 1)) return from;
    uint16_t *to = room(w, LEFT, p->height * k * sizeof *to);
    if (!to) return NULL;
    if (a->trans_a)
        transpose(to, from, a->lda, p->m, k);
    else
        for (size_t i = 0; i < p->m; i++) memcpy(to + i * k, from + i * a->lda, k * sizeof *to);
    memset(to + p->m * k, 0, (p->height - p->m) * k * sizeof *to);
    return to;
}

/* Rows of sums, f32 or already in c's type, into c. */
static void store(const struct zf_matmul_args *a, const struct piece *p, const void *rows, size_t ld, enum zf_dtype type, bool add)
{
    size_t size = zf_dtype_size(a->type_c);
    for (size_t i = 0; i < p->m; i++) {
        char *c = (char *)a->c + ((p->i + i) * a->ldc + p->j) * size;
        const char *from = (const char *)rows + i * ld * zf_dtype_size(type);
        if (type != a->type_c)
            narrow((uint16_t *)(void *)c, (const float *)(const void *)from, p->n);
        else if (!add)
            memcpy(c, from, p->n * size);
        else
            for (size_t j = 0; j < p->n; j++) ((float *)(void *)c)[j] += ((const float *)(const void *)from)[j];
    }
}

static struct piece piece_of(const struct job *job, size_t index)
{
    const struct zf_matmul_args *a = job->a;
    const struct plan *g = &job->plan;
    size_t slice = index % g->slices, tile = index / g->slices;
    struct piece p = {
        .i = tile / g->across * g->rows, .j = tile % g->across * g->cols, .k_begin = slice * g->slice, .bias = a->bias && !slice};
    p.m = a->m - p.i < g->rows ? a->m - p.i : g->rows;
    p.n = a->n - p.j < g->cols ? a->n - p.j : g->cols;
    p.k_end = a->k - p.k_begin < g->slice ? a->k : p.k_begin + g->slice;
    p.height = p.m < STEP ? p.m : divide_up(p.m, STEP) * STEP;
    p.straight = job->partial || in_place(job, &p);
    return p;
}

/* Finds the place of the result. */
static int place(const struct job *job, struct worker *w, struct piece *p)
{
    const struct zf_matmul_args *a = job->a;
    if (job->partial) {
        p->height = p->m;
        p->to = job->partial + (p->k_begin / job->plan.slice * a->m + p->i) * a->n;
        p->ld_to = a->n;
        p->type_to = ZF_F32;
    } else if (p->straight) {
        p->to = (char *)a->c + p->i * a->ldc * zf_dtype_size(a->type_c);
        p->ld_to = a->ldc;
        p->type_to = a->type_c;
        p->add = a->accumulate;
    } else {
        p->type_to = job->products->direct && job->plan.depth == a->k && a->k ? a->type_c : ZF_F32;
        p->ld_to = p->n;
        p->to = room(w, RESULT, p->height * p->n * zf_dtype_size(p->type_to));
    }
    return p->to ? dnnl_success : dnnl_out_of_memory;
}

static int compute(const struct job *job, struct worker *w, size_t index)
{
    const struct zf_matmul_args *a = job->a;
    struct piece p = piece_of(job, index);
    int s = place(job, w, &p);
    const uint16_t *bias = a->bias ? (const uint16_t *)a->bias + p.j : NULL;
    for (size_t k0 = p.k_begin, k; k0 < p.k_end && !s; k0 += k) {
        k = p.k_end - k0 < job->plan.depth ? p.k_end - k0 : job->plan.depth;
        const uint16_t *left = left_of(job, w, &p, k0, k),
                       *right = (const uint16_t *)a->b + (a->trans_b ? p.j * a->ldb + k0 : k0 * a->ldb + p.j);
        if (!left) return dnnl_out_of_memory;
        s = (job->products->direct ? multiply : multiply_wide)(job, w, &p, left, k, right, k, p.bias ? bias : NULL);
        p.add = true;
        p.bias = false;
    }
    if (!s && !p.straight) store(a, &p, p.to, p.ld_to, p.type_to, a->accumulate);
    return s;
}

static void note(struct job *job, int status)
{
    int none = dnnl_success;
    if (status != dnnl_success) atomic_compare_exchange_strong(&job->status, &none, status);
}

static void tile(void *ctx, size_t index)
{
    struct job *job = ctx;
    struct worker *w = worker_take(job->products);
    note(job, w ? compute(job, w, index) : (int)dnnl_out_of_memory);
    if (w) worker_return(job->products, w);
}

/* A row of c from the parts of K, in their order. */
static void add_parts(void *ctx, size_t row)
{
    const struct job *job = ctx;
    const struct zf_matmul_args *a = job->a;
    float *sum = job->partial + row * a->n;
    for (size_t s = 1; s < job->plan.slices; s++) {
        const float *part = sum + s * a->m * a->n;
        for (size_t j = 0; j < a->n; j++) sum[j] += part[j];
    }
    store(a, &(struct piece){.i = row, .m = 1, .n = a->n}, sum, a->n, ZF_F32, a->accumulate);
}

/* No K: c is the bias. */
static void bias_only(void *ctx, size_t row)
{
    const struct job *job = ctx;
    const struct zf_matmul_args *a = job->a;
    char *c = (char *)a->c + row * a->ldc * zf_dtype_size(a->type_c);
    for (size_t j = 0; j < a->n; j++) {
        uint16_t b = a->bias ? ((const uint16_t *)a->bias)[j] : 0;
        if (a->type_c == ZF_BF16)
            ((uint16_t *)(void *)c)[j] = b;
        else
            ((float *)(void *)c)[j] = (a->accumulate ? ((float *)(void *)c)[j] : 0) + zf_bf16_to_f32(b);
    }
}

/* 0 or a status of oneDNN. */
int zf_host_matmul_bf16(struct zf_lane *l, const struct zf_matmul_args *a)
{
    struct job job = {.a = a, .plan = plan_of(a), .products = zf_host_of(l)->products, .status = dnnl_success};
    if (!a->k) {
        zf_host_parallel(l, a->m, bias_only, &job);
        return dnnl_success;
    }
    struct worker *w = NULL;
    if (job.plan.slices > 1) {
        if (a->m > SIZE_MAX / sizeof(float) / a->n / job.plan.slices) return dnnl_out_of_memory;
        w = worker_take(job.products);
        job.partial = w ? room(w, RESULT, job.plan.slices * a->m * a->n * sizeof(float)) : NULL;
        if (w && !job.partial) worker_return(job.products, w);
        if (!job.partial) return dnnl_out_of_memory;
    }
    zf_host_parallel(l, job.plan.slices * job.plan.down * job.plan.across, tile, &job);
    if (w) {
        if (atomic_load(&job.status) == dnnl_success) zf_host_parallel(l, a->m, add_parts, &job);
        worker_return(job.products, w);
    }
    return atomic_load(&job.status);
}
