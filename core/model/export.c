/* A model's tensors back into the checkpoint's layout. Streams: pieces of about a mebibyte, so that an export needs no memory that the plan
 * does not know. */
#include "core/model/workspace.h"

#include "checkpoints/hf.h"
#include "core/base/floats.h"

#include <math.h>
#include <stdlib.h>

enum { PIECE = 1 << 18 }; /* floats */

/* Host memory gets copies alone: kernels work with the device's. */
static enum zf_status fetch(const struct zf_model *m, void *to, const void *from, size_t bytes, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    enum zf_status s = t->copy(m->lane, to, from, bytes);
    return s ? zf_lane_refused(m->device, m->lane, s, "a copy", e) : t->lane_sync(m->lane, e);
}

static float number(const void *x, enum zf_dtype type, size_t i)
{
    return type == ZF_F32 ? ((const float *)x)[i] : zf_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Rows first .. first + count in the checkpoint's layout into x->host, of a block of `type`: fp32, or weights that have no master. */
static enum zf_status fetch_rows(const struct zf_model *m, const void *block, enum zf_dtype type, const struct zf_param *p, size_t first,
                                 size_t count, const struct zf_pieces *x, struct zf_err *e)
{
    size_t size = zf_dtype_size(type), n = count * (p->transposed ? p->rows : p->cols);
    const unsigned char *from = (const unsigned char *)block + (p->offset + first * (p->transposed ? 1 : p->cols)) * size;
    float *host = x->host;
    zf_phase_begin(m, ZF_PHASE_OTHER);
    if (!p->transposed) {
        ZF_TRY(fetch(m, type == ZF_F32 ? x->host : x->turned, from, n * size, e));
        for (size_t i = 0; type != ZF_F32 && i < n; i++) host[i] = number(x->turned, type, i);
        return ZF_OK;
    }
    ZF_ISSUE(m, copy_rows, e, .type = type, .from = from, .ld_from = p->cols, .to = x->device, .ld_to = count, .rows = p->rows,
             .cols = count);
    ZF_TRY(fetch(m, x->turned, x->device, n * size, e));
    for (size_t c = 0; c < count; c++)
        for (size_t r = 0; r < p->rows; r++) host[c * p->rows + r] = number(x->turned, type, r * count + c);
    return ZF_OK;
}

/* Rows of the tensor as the file has it, and their length. */
static void file_rows(const struct zf_param *p, size_t *rows, size_t *length)
{
    *rows = p->transposed ? p->cols : p->rows;
    *length = p->transposed ? p->rows : p->cols;
}

static size_t rows_of_piece(size_t rows, size_t length)
{
    size_t n = PIECE / length ? PIECE / length : 1;
    return n < rows ? n : rows;
}

size_t zf_model_piece_floats(const struct zf_params *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->count; i++) {
        size_t rows, length;
        file_rows(&p->list[i], &rows, &length);
        if (rows_of_piece(rows, length) * length > most) most = rows_of_piece(rows, length) * length;
    }
    return most;
}

enum zf_status zf_pieces_open(struct zf_pieces *x, const struct zf_model *m, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    size_t n = zf_model_piece_floats(&m->params), bytes = n * sizeof(float);
    *x = (struct zf_pieces){.floats = n};
    enum zf_status s = t->alloc(m->device, ZF_MEM_PINNED, ZF_TAG_OTHER, bytes, &x->host, e);
    if (!s) s = t->alloc(m->device, ZF_MEM_PINNED, ZF_TAG_OTHER, bytes, &x->turned, e);
    if (!s) s = t->alloc(m->device, ZF_MEM_DEVICE, ZF_TAG_OTHER, bytes, &x->device, e);
    if (s) zf_pieces_close(x, m);
    return s;
}

void zf_pieces_close(struct zf_pieces *x, const struct zf_model *m)
{
    const struct zf_device_type *t = m->device->type;
    t->free(m->device, x->host);
    t->free(m->device, x->turned);
    t->free(m->device, x->device);
    *x = (struct zf_pieces){0};
}

static enum zf_status each_piece(const struct zf_model *m, const void *block, enum zf_dtype type, const struct zf_param *p,
                                 const struct zf_pieces *x, zf_model_piece *take, void *ctx, struct zf_err *e)
{
    size_t rows, length, n;
    file_rows(p, &rows, &length);
    for (size_t at = 0; at < rows; at += n) {
        n = rows_of_piece(rows, length);
        if (n > rows - at) n = rows - at;
        ZF_TRY(fetch_rows(m, block, type, p, at, n, x, e));
        ZF_TRY(take(ctx, x->host, n * length, e));
    }
    return ZF_OK;
}

enum zf_status zf_model_each_piece(const struct zf_model *m, const float *block, const struct zf_param *p, const struct zf_pieces *x,
                                   zf_model_piece *take, void *ctx, struct zf_err *e)
{
    return each_piece(m, block, ZF_F32, p, x, take, ctx, e);
}

struct exporter {
    const struct zf_model *m;
    struct zf_pieces pieces;
};

/* A model that is not finite is no model: it never reaches the disk. */
static enum zf_status put_piece(void *ctx, const float *x, size_t n, struct zf_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return zf_fail(e, ZF_NUMERIC, NULL, "a weight is %g; nothing was exported; a smaller learning rate may help", (double)x[i]);
    return zf_st_put(ctx, x, n * sizeof *x, e);
}

/* Masters that are not in the model's own block: a whole tensor at a time. */
static enum zf_status put_elsewhere(const struct exporter *x, const struct zf_param *p, struct zf_st_sink *sink, bool *elsewhere,
                                    struct zf_err *e)
{
    size_t rows, length, n;
    float *piece = x->pieces.host;
    float *all = malloc(p->rows * p->cols * sizeof *all);
    if (!all) return zf_fail_memory(e, "the export");
    enum zf_status s = x->m->hooks.masters(x->m->hooks.ctx, p, all, elsewhere, e);
    file_rows(p, &rows, &length);
    for (size_t at = 0; !s && *elsewhere && at < rows; at += n) {
        n = rows_of_piece(rows, length);
        if (n > rows - at) n = rows - at;
        for (size_t i = 0; i < n * length; i++)
            piece[i] = p->transposed ? all[i % length * p->cols + at + i / length] : all[at * length + i];
        s = put_piece(sink, piece, n * length, e);
    }
    free(all);
    return s;
}

static enum zf_status put(void *ctx, size_t index, struct zf_st_sink *sink, struct zf_err *e)
{
    const struct exporter *x = ctx;
    const struct zf_param *p = &x->m->params.list[index];
    if (x->m->hooks.masters) {
        bool elsewhere;
        enum zf_status s = put_elsewhere(x, p, sink, &elsewhere, e);
        if (s || elsewhere) return s == ZF_NUMERIC ? zf_fail(e, s, p->name, "%s", e->message) : s;
    }
    const void *block = x->m->master ? x->m->master : x->m->weights;
    enum zf_status s = each_piece(x->m, block, x->m->master ? ZF_F32 : x->m->dtype, p, &x->pieces, put_piece, sink, e);
    return s == ZF_NUMERIC ? zf_fail(e, s, p->name, "%s", e->message) : s;
}

enum zf_status zf_model_export(const struct zf_model *m, const char *out, const json_t *config_json, const char *tokenizer_from,
                               struct zf_err *e)
{
    const struct zf_params *p = &m->params;
    struct zf_st_entry *entries = calloc(p->count, sizeof *entries);
    if (!entries) return zf_fail_memory(e, "the export");
    for (size_t i = 0; i < p->count; i++) {
        entries[i] = (struct zf_st_entry){.name = p->list[i].name, .type = ZF_ST_F32};
        entries[i].rank = zf_param_file_shape(&p->list[i], entries[i].shape);
    }
    struct exporter x = {.m = m};
    enum zf_status s = zf_pieces_open(&x.pieces, m, e);
    if (!s)
        s = zf_hf_write(&(struct zf_hf_write){.out = out,
                                              .config = config_json,
                                              .type = ZF_ST_F32,
                                              .entries = entries,
                                              .count = p->count,
                                              .source = put,
                                              .ctx = &x,
                                              .tokenizer_from = tokenizer_from},
                        e);
    zf_pieces_close(&x.pieces, m);
    free(entries);
    return s;
}
