/* Weights into their place, piece by piece: from the tensors of a Hugging Face folder, or random. A piece is made by a pool of threads
 * while the lane places the one before. What is held beside the weights, pieces and the pages of the file that they come from, is less than
 * the largest tensor. */
#include "core/model/workspace.h"

#include "checkpoints/hf.h"
#include "core/base/pool.h"
#include "core/base/rng.h"

#include <math.h>

enum {
    PIECE = 1 << 20, /* elements, at most, but for columns that are longer */
    BLOCK = 32,      /* columns of a tile of a transposition */
    STRIP = 256,     /* its rows */
    STRETCH = 16384  /* elements of a task that fills a flat piece */
};

/* Part of a parameter as it is stored: `rows` rows of `cols` columns from element `first` on. A flat piece is one row. */
struct piece {
    const struct zf_param *p;
    size_t first, rows, cols;
};

struct loader {
    struct zf_model *m;
    const struct zf_hf *hf;                /* NULL: random weights */
    const struct zf_weight_source *source; /* of each parameter */
    uint64_t seed;
    struct zf_pool *pool;
    size_t wanted, room; /* elements of a piece: what it should have; the largest */
    void *staging[2];    /* pinned, fp32 */
    void *raised;        /* device, fp32: kernels work with the device's memory alone */
    void *narrow;        /* device, of the model's type; NULL in f32 */
    struct zf_event *placed[2];
    int turn;

    /* of the piece that the pool makes */
    struct piece piece;
    float *to;
    const struct zf_st_tensor *tensor;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* All rows of some columns, which are rows in the file; or a stretch of elements. */
static struct piece piece_at(const struct loader *l, const struct zf_param *p, size_t at)
{
    size_t n = p->rows * p->cols;
    if (!l->source || !p->transposed) return (struct piece){p, at, 1, least(l->wanted, n - at)};
    size_t cols = l->wanted / p->rows;
    if (cols > BLOCK) cols = cols / BLOCK * BLOCK;
    return (struct piece){p, at, p->rows, least(cols ? cols : 1, p->cols - at)};
}

static size_t piece_end(const struct loader *l, const struct zf_param *p)
{
    return l->source && p->transposed ? p->cols : p->rows * p->cols;
}

/* BLOCK rows of the file -> as many columns of the piece. */
static void transpose_task(void *ctx, size_t task)
{
    const struct loader *l = ctx;
    const struct piece *q = &l->piece;
    size_t c0 = task * BLOCK, count = least(BLOCK, q->cols - c0);
    struct zf_err ignored;         /* type and range were checked */
    float rows[BLOCK][STRIP + 16]; /* a power of two would put a column's elements on top of each other in the cache */
    for (size_t r0 = 0; r0 < q->rows; r0 += STRIP) {
        size_t n = least(STRIP, q->rows - r0);
        for (size_t c = 0; c < count; c++) zf_st_floats(rows[c], l->tensor, (q->first + c0 + c) * q->rows + r0, n, &ignored);
        for (size_t r = 0; r < n; r++)
            for (size_t c = 0; c < count; c++) l->to[(r0 + r) * q->cols + c0 + c] = rows[c][r];
    }
}

static void copy_task(void *ctx, size_t task)
{
    const struct loader *l = ctx;
    struct zf_err ignored;
    size_t at = task * STRETCH;
    zf_st_floats(l->to + at, l->tensor, l->piece.first + at, least(STRETCH, l->piece.cols - at), &ignored);
}

static bool is_gain(const struct zf_param *p)
{
    return p->slot == ZF_SLOT_ATTN_NORM_W || p->slot == ZF_SLOT_MLP_NORM_W || p->slot == ZF_SLOT_FINAL_NORM_W ||
           p->slot == ZF_SLOT_Q_NORM || p->slot == ZF_SLOT_K_NORM;
}

static void random_task(void *ctx, size_t task)
{
    const struct loader *l = ctx;
    const struct zf_model_config *c = &l->m->config;
    const struct zf_param *p = l->piece.p;
    size_t end = least((task + 1) * STRETCH, l->piece.cols);
    bool output = p->slot == ZF_SLOT_O_W || p->slot == ZF_SLOT_DOWN_W;
    double std = c->init_std / (c->init_scaled_output && output ? sqrt(2.0 * (double)c->layers) : 1);
    uint32_t stream = (uint32_t)(p - l->m->params.list);
    for (size_t i = task * STRETCH; i < end; i++)
        l->to[i] = p->matrix ? (float)(std * zf_normal(l->seed, ZF_STREAM_INIT, stream, l->piece.first + i)) : is_gain(p) ? 1 : 0;
}

/* The part of the file that a piece is made from: wanted soon, or done with. */
static void file_pages(const struct loader *l, const struct piece *q, bool done)
{
    const struct zf_st_tensor *t = l->source[q->p - l->m->params.list].tensor;
    size_t row = q->p->transposed ? q->p->rows : 1, each = t->elements ? t->bytes / t->elements : 0;
    zf_hf_pages(l->hf, t->data + q->first * row * each, q->cols * row * each, done);
}

static void make(struct loader *l)
{
    const struct piece *q = &l->piece;
    size_t stretches = (q->cols - 1) / STRETCH + 1, blocks = (q->cols - 1) / BLOCK + 1;
    if (!l->source)
        zf_pool_run(l->pool, stretches, random_task, l);
    else if (q->p->transposed)
        zf_pool_run(l->pool, blocks, transpose_task, l);
    else
        zf_pool_run(l->pool, stretches, copy_task, l);
}

/* A piece in fp32 to the master, if there is one, and rounded to the visible weights. */
static enum zf_status place(struct loader *l, const struct piece *q, struct zf_err *e)
{
    struct zf_model *m = l->m;
    const struct zf_device_type *t = m->device->type;
    const struct zf_param *p = q->p;
    size_t n = q->rows * q->cols, at = p->offset + q->first, ld = q->rows > 1 ? p->cols : q->cols;
    bool flat = q->cols == ld;
    float *raised = m->master && flat ? m->master + at : l->raised; /* where it lies as it was made */
    enum zf_status s = t->copy(m->lane, raised, l->staging[l->turn], n * sizeof *raised);
    if (s) return zf_lane_refused(m->device, m->lane, s, p->name, e);
    if ((s = t->event_record(m->lane, l->placed[l->turn]))) return zf_lane_refused(m->device, m->lane, s, p->name, e);
    if (m->master && !flat)
        ZF_ISSUE(m, copy_rows, e, .type = ZF_F32, .from = raised, .ld_from = q->cols, .to = m->master + at, .ld_to = ld, .rows = q->rows,
                 .cols = q->cols);
    if (m->weights == m->master) return ZF_OK;
    void *to = zf_at(m, m->weights, at), *narrow = flat ? to : l->narrow;
    ZF_ISSUE(m, cast, e, .type = m->dtype, .from_type = ZF_F32, .to = narrow, .from = raised, .n = n);
    if (!flat)
        ZF_ISSUE(m, copy_rows, e, .type = m->dtype, .from = narrow, .ld_from = q->cols, .to = to, .ld_to = ld, .rows = q->rows,
                 .cols = q->cols);
    return ZF_OK;
}

static enum zf_status load_parameter(struct loader *l, const struct zf_param *p, struct zf_err *e)
{
    const struct zf_device_type *t = l->m->device->type;
    size_t end = piece_end(l, p);
    l->tensor = l->source ? l->source[p - l->m->params.list].tensor : NULL;
    if (l->tensor) ZF_TRY(zf_st_floats(NULL, l->tensor, 0, 0, e)); /* a type that is no float is refused */
    for (size_t at = 0; at < end;) {
        l->piece = piece_at(l, p, at);
        at += l->piece.cols;
        l->turn ^= 1;
        l->to = l->staging[l->turn];
        ZF_TRY(t->event_sync(l->placed[l->turn], e));
        if (l->source && at < end) {
            struct piece next = piece_at(l, p, at);
            file_pages(l, &next, false);
        }
        make(l);
        if (l->source) file_pages(l, &l->piece, true);
        ZF_TRY(place(l, &l->piece, e));
    }
    return ZF_OK;
}

static enum zf_status prepare(struct loader *l, struct zf_err *e)
{
    struct zf_device *d = l->m->device;
    const struct zf_device_type *t = d->type;
    struct zf_device_info info;
    const struct zf_params *p = &l->m->params;
    size_t largest = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].rows * p->list[i].cols > largest) largest = p->list[i].rows * p->list[i].cols;
    l->wanted = least(PIECE, largest / 4 + 1); /* three times in fp32 and once in bf16, at most, is less than the tensor */
    for (size_t i = 0; i < p->count; i++) {
        const struct piece q = piece_at(l, &p->list[i], 0);
        if (q.rows * q.cols > l->room) l->room = q.rows * q.cols;
    }
    t->info(d, &info);
    ZF_TRY(zf_pool_new(&l->pool, info.threads, e));
    for (int i = 0; i < 2; i++) {
        ZF_TRY(t->event_new(d, &l->placed[i], e));
        ZF_TRY(t->alloc(d, ZF_MEM_PINNED, ZF_TAG_OTHER, l->room * sizeof(float), &l->staging[i], e));
    }
    ZF_TRY(t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, l->room * sizeof(float), &l->raised, e));
    return l->m->weights == l->m->master ? ZF_OK
                                         : t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, l->room * zf_dtype_size(l->m->dtype), &l->narrow, e);
}

enum zf_status zf_model_load(struct zf_model *m, const struct zf_hf *hf, const struct zf_weight_source *source, uint64_t seed,
                             struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    struct loader l = {.m = m, .hf = hf, .source = source, .seed = seed};
    struct zf_err ignored;
    enum zf_status s = prepare(&l, e);
    for (size_t i = 0; !s && i < m->params.count; i++) s = load_parameter(&l, &m->params.list[i], e);
    enum zf_status last = t->lane_sync(m->lane, s ? &ignored : e);
    if (!s) s = last;
    for (int i = 0; i < 2; i++) {
        t->event_free(l.placed[i]);
        t->free(m->device, l.staging[i]);
    }
    t->free(m->device, l.raised);
    t->free(m->device, l.narrow);
    zf_pool_free(l.pool);
    if (hf) zf_hf_pages(hf, NULL, 0, true);
    return s;
}
