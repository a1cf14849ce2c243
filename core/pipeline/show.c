/* Making rows visible: up through the h2d lane and a ring of device memory, then into the weights. A matrix's slots and staging are free
 * afterwards. */
#include "core/pipeline/impl.h"

#include <string.h>

/* Rows first .. first + n of staging (whole chunks) into a piece of the ring, in h2d. */
static enum zf_status raise(struct zf_pipeline *p, const struct zf_matrix *x, size_t first, size_t n, void *piece, struct zf_err *e)
{
    const struct zf_rows_memory *s = &x->staging;
    size_t row = x->length * zf_dtype_size(p->model->dtype);
    for (size_t r = first; r < first + n; r += s->chunk_rows) {
        size_t some = first + n - r < s->chunk_rows ? first + n - r : s->chunk_rows;
        ZF_TRY(zf_pipeline_copy(p, p->h2d, (char *)piece + (r - first) * row, s->chunk[r / s->chunk_rows], some * row, e));
    }
    p->counts.h2d_bytes += n * row;
    return ZF_OK;
}

/* Staging rows from_list[r] (positions within their piece) go to channels to_list[r]. */
struct targets {
    const uint32_t *from, *to; /* device memory */
    size_t rows;
};

/* Rows of staging that are still the CPU half's, from `first` on: lists into list_seen, then to the device. Whoever writes that scratch
 * memory waits for the lanes before. */
static enum zf_status filter(struct zf_pipeline *p, const struct zf_matrix *x, size_t first, size_t n, struct targets *out,
                             struct zf_err *e)
{
    size_t kept = 0;
    uint32_t *from = p->list_seen, *to = p->list_seen + x->channels;
    ZF_TRY(zf_pipeline_sync(p, e));
    for (size_t r = 0; r < n; r++) {
        uint32_t channel = x->staged[first + r];
        if (channel == UINT32_MAX) continue;
        from[kept] = (uint32_t)r;
        to[kept++] = channel;
    }
    ZF_TRY(zf_pipeline_copy(p, p->ready, p->list, from, kept * sizeof *from, e));
    ZF_TRY(zf_pipeline_copy(p, p->ready, p->list + x->channels, to, kept * sizeof *to, e));
    *out = (struct targets){p->list, p->list + x->channels, kept};
    return ZF_OK;
}

static enum zf_status show_rows(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    size_t step = zf_ring_rows(&p->up, &x->staging, x->length * zf_dtype_size(p->model->dtype));
    for (size_t first = 0; first < x->staged_rows; first += step) {
        size_t n = x->staged_rows - first < step ? x->staged_rows - first : step;
        unsigned turn = p->up.turn++ % ZF_RING;
        struct targets to = {NULL, x->device_order + x->device.rows + first, n};
        ZF_TRY(zf_pipeline_wait(p->device, p->h2d, p->up.idle[turn], e));
        ZF_TRY(raise(p, x, first, n, p->up.piece[turn], e));
        ZF_TRY(zf_pipeline_record(p->device, p->h2d, p->up.full[turn], e));
        if (x->staged_moved) ZF_TRY(filter(p, x, first, n, &to, e));
        ZF_TRY(zf_pipeline_wait(p->device, p->ready, p->up.full[turn], e));
        ISSUE_READY(p, move_rows, e, .type = p->model->dtype, .from_type = p->model->dtype, .to = zf_matrix_weights(p, x->param),
                    .from = p->up.piece[turn], .to_list = to.to, .from_list = to.from, .rows = to.rows, .cols = x->length);
        ZF_TRY(zf_pipeline_record(p->device, p->ready, p->up.idle[turn], e));
    }
    return ZF_OK;
}

/* Second moments of what has become visible, for the moves until the next time. */
static enum zf_status show_moments(struct zf_pipeline *p, struct zf_matrix *x, bool columns, struct zf_err *e)
{
    unsigned turn = p->up.turn++ % ZF_RING;
    size_t bytes = x->staged_rows * sizeof *x->next_channel;
    struct targets to = {NULL, x->device_order + x->device.rows, x->staged_rows};
    /* more channels than a piece holds: straight into place would need no list, so in parts */
    for (size_t first = 0, n; first < x->staged_rows; first += n) {
        n = p->up.bytes / sizeof *x->next_channel;
        if (n > x->staged_rows - first) n = x->staged_rows - first;
        ZF_TRY(zf_pipeline_wait(p->device, p->h2d, p->up.idle[turn], e));
        ZF_TRY(zf_pipeline_copy(p, p->h2d, p->up.piece[turn], x->next_channel + first, n * sizeof *x->next_channel, e));
        ZF_TRY(zf_pipeline_record(p->device, p->h2d, p->up.full[turn], e));
        if (x->staged_moved) {
            ZF_TRY(filter(p, x, first, n, &to, e));
        } else {
            to.to = x->device_order + x->device.rows + first;
            to.rows = n;
        }
        ZF_TRY(zf_pipeline_wait(p->device, p->ready, p->up.full[turn], e));
        ISSUE_READY(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = x->channel, .from = p->up.piece[turn], .to_list = to.to,
                    .from_list = to.from, .rows = to.rows, .cols = 1);
        ZF_TRY(zf_pipeline_record(p->device, p->ready, p->up.idle[turn], e));
    }
    p->counts.h2d_bytes += bytes;
    if (!columns) return ZF_OK;
    x->has_column = true;
    if (x->shares && x->shares->summed) return zf_ranks_columns(p, x, e);
    /* nobody reads the old ones any more: whatever moved by them was issued before a norm that has been waited for */
    ZF_TRY(zf_pipeline_copy(p, p->h2d, x->column, x->next_column, x->length * sizeof *x->column, e));
    ZF_TRY(zf_pipeline_record(p->device, p->h2d, p->up.full[turn], e));
    ZF_TRY(zf_pipeline_wait(p->device, p->ready, p->up.full[turn], e));
    p->counts.h2d_bytes += x->length * sizeof *x->column;
    return ZF_OK;
}

enum zf_status zf_pipeline_show(struct zf_pipeline *p, struct zf_matrix *x, bool moments, bool columns, struct zf_err *e)
{
    if (zf_is_staged(x)) {
        ZF_TRY(zf_pipeline_wait(p->device, p->h2d, x->served, e));
        ZF_TRY(zf_pipeline_hold(p, false, e));
        if (x->staged_rows) ZF_TRY(show_rows(p, x, e));
        if (moments) ZF_TRY(show_moments(p, x, columns, e));
        ZF_TRY(zf_pipeline_record(p->device, p->h2d, p->raised, e));
    }
    if (x->shares) {
        x->shares->stale |= zf_is_staged(x);
        memset(x->shares->staged, 0, x->channels);
        x->shares->staged_rows = 0;
    }
    x->staged_moved = false;
    x->staged_rows = 0;
    ZF_TRY(zf_pipeline_bury(p, zf_chunks_give(&p->chunks, &x->staging), p->step + 1, e));
    ZF_TRY(zf_update_clear(p, &x->up, p->step + 1, e));
    x->window.up.any = false;
    return ZF_OK;
}

enum zf_status zf_pipeline_show_layer(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].layer == layer && zf_window_shows(&p->matrix[i].window, p->step))
            ZF_TRY(zf_pipeline_show(p, &p->matrix[i], p->policy.optimistic, true, e));
    return ZF_OK;
}
