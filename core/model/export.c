/* A model's tensors back into the checkpoint's layout. Streams: pieces of about a mebibyte, so that an export needs no memory that the plan
 * does not know. */
#include "core/model/workspace.h"

#include "checkpoints/hf.h"
#include "core/base/floats.h"

#include <math.h>
#include <stdlib.h>

enum { PIECE = 1 << 18 }; /* floats */

/* Like zf_model_fetch_rows, of a block of `type`: fp32, or weights that have no master. */
static enum zf_status fetch_rows(const struct zf_model *m, const void *block, enum zf_dtype type, const struct zf_param *p, size_t first,
                                 size_t count, float *host, float *scratch, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    zf_phase_begin(m, ZF_PHASE_OTHER);
    const unsigned char *from = (const unsigned char *)block + (p->offset + first * (p->transposed ? 1 : p->cols)) * zf_dtype_size(type);
    if (!p->transposed) {
        ZF_ISSUE(m, cast, e, .type = ZF_F32, .from_type = type, .to = host, .from = from, .n = count * p->cols);
        return t->lane_sync(m->lane, e);
    }
    ZF_ISSUE(m, copy_rows, e, .type = type, .from = from, .ld_from = p->cols, .to = scratch, .ld_to = count, .rows = p->rows,
             .cols = count);
    ZF_TRY(t->lane_sync(m->lane, e));
    const uint16_t *narrow = (const void *)scratch;
    for (size_t c = 0; c < count; c++)
        for (size_t r = 0; r < p->rows; r++)
            host[c * p->rows + r] = type == ZF_F32 ? scratch[r * count + c] : zf_bf16_to_f32(narrow[r * count + c]);
    return ZF_OK;
}

enum zf_status zf_model_fetch_rows(const struct zf_model *m, const float *block, const struct zf_param *p, size_t first, size_t count,
                                   float *host, float *scratch, struct zf_err *e)
{
    return fetch_rows(m, block, ZF_F32, p, first, count, host, scratch, e);
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

static enum zf_status each_piece(const struct zf_model *m, const void *block, enum zf_dtype type, const struct zf_param *p, float *pinned,
                                 zf_model_piece *take, void *ctx, struct zf_err *e)
{
    size_t rows, length, n, most = zf_model_piece_floats(&m->params);
    file_rows(p, &rows, &length);
    for (size_t at = 0; at < rows; at += n) {
        n = rows_of_piece(rows, length);
        if (n > rows - at) n = rows - at;
        ZF_TRY(fetch_rows(m, block, type, p, at, n, pinned, pinned + most, e));
        ZF_TRY(take(ctx, pinned, n * length, e));
    }
    return ZF_OK;
}

enum zf_status zf_model_each_piece(const struct zf_model *m, const float *block, const struct zf_param *p, float *pinned,
                                   zf_model_piece *take, void *ctx, struct zf_err *e)
{
    return each_piece(m, block, ZF_F32, p, pinned, take, ctx, e);
}

struct exporter {
    const struct zf_model *m;
    float *pinned;
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
    float *all = malloc(p->rows * p->cols * sizeof *all);
    if (!all) return zf_fail_memory(e, "the export");
    enum zf_status s = x->m->hooks.masters(x->m->hooks.ctx, p, all, elsewhere, e);
    file_rows(p, &rows, &length);
    for (size_t at = 0; !s && *elsewhere && at < rows; at += n) {
        n = rows_of_piece(rows, length);
        if (n > rows - at) n = rows - at;
        for (size_t i = 0; i < n * length; i++)
            x->pinned[i] = p->transposed ? all[i % length * p->cols + at + i / length] : all[at * length + i];
        s = put_piece(sink, x->pinned, n * length, e);
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
    enum zf_status s = each_piece(x->m, block, x->m->master ? ZF_F32 : x->m->dtype, p, x->pinned, put_piece, sink, e);
    return s == ZF_NUMERIC ? zf_fail(e, s, p->name, "%s", e->message) : s;
}

enum zf_status zf_model_export(const struct zf_model *m, const char *out, const json_t *config_json, const char *tokenizer_from,
                               struct zf_err *e)
{
    const struct zf_params *p = &m->params;
    const struct zf_device_type *t = m->device->type;
    void *pinned = NULL;
    struct zf_st_entry *entries = calloc(p->count, sizeof *entries);
    if (!entries) return zf_fail_memory(e, "the export");
    for (size_t i = 0; i < p->count; i++) {
        entries[i] = (struct zf_st_entry){.name = p->list[i].name, .type = ZF_ST_F32};
        entries[i].rank = zf_param_file_shape(&p->list[i], entries[i].shape);
    }
    enum zf_status s = t->alloc(m->device, ZF_MEM_PINNED, ZF_TAG_OTHER, 2 * zf_model_piece_floats(p) * sizeof(float), &pinned, e);
    struct exporter x = {m, pinned};
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
    t->free(m->device, pinned);
    free(entries);
    return s;
}
