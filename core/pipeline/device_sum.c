/* accumulate_on = device: a window's gradients are summed where they are made, and only the sum goes down. It takes fp32 for every
 * parameter of the CPU half on the device. The same sums in the same order as on the host: rounded to the bus type, times c, added in fp32.
 */
#include "core/pipeline/impl.h"

#include <stdlib.h>

enum zf_status zf_pipeline_make_sum(struct zf_pipeline *p, struct zf_matrix *x, size_t rows, struct zf_err *e)
{
    void *got;
    if (x->device_sum_rows >= rows) return ZF_OK; /* else new owners have just been assigned: lanes are idle */
    zf_pipeline_free_sum(p, x);
    ZF_TRY(p->device->type->alloc(p->device, ZF_MEM_DEVICE, ZF_TAG_STAGING, rows * x->length * sizeof(float), &got, e));
    x->device_sum = got;
    x->device_sum_rows = rows;
    return ZF_OK;
}

void zf_pipeline_free_sum(struct zf_pipeline *p, struct zf_matrix *x)
{
    p->device->type->free(p->device, x->device_sum);
    x->device_sum = NULL;
    x->device_sum_rows = 0;
}

enum zf_status zf_pipeline_sum_on_device(struct zf_pipeline *p, struct zf_matrix *x, float clip, struct zf_err *e)
{
    size_t rows = zf_cpu_rows(x), most = p->down.bytes / (x->length * zf_dtype_size(p->policy.bus));
    ZF_TRY(zf_pipeline_make_sum(p, x, rows, e));
    ZF_TRY(zf_pipeline_hold(p, true, e));
    if (!x->open.count) ZF_TRY(zf_pipeline_wait(p->device, p->compute, p->lowered, e)); /* the last window's sum has left */
    for (size_t first = 0, n; first < rows; first += n) {
        unsigned turn = p->down.turn++ % ZF_RING;
        void **place = malloc(2 * sizeof *place); /* read when the op runs */
        if (!place) return zf_fail_memory(e, "a window");
        n = rows - first < most ? rows - first : most;
        place[0] = p->down.piece[turn]; /* under this policy compute alone uses the ring */
        place[1] = x->device_sum + first * x->length;
        ZF_TRY(zf_pipeline_bury(p, place, p->step + 1, e));
        ISSUE(p, hand_over, e, .type = p->model->dtype, .bus_type = p->policy.bus, .g = p->model->grad + x->param->offset,
              .list = x->device_order + x->device.rows + first, .packed = place[0], .rows = n, .cols = x->length, .clip = 1);
        ISSUE(p, fold_rows, e, .type = p->policy.bus, .g = {place, n}, .sum = {place + 1, n}, .rows = n, .cols = x->length, .scale = clip,
              .add = x->open.count > 0);
    }
    return ZF_OK;
}

enum zf_status zf_pipeline_lower_sum(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct zf_rows_memory *s = &x->open.sum;
    size_t rows = zf_cpu_rows(x), row = x->length * sizeof(float);
    unsigned turn = p->down.turn++ % ZF_RING;
    if (!rows) return ZF_OK;
    ZF_TRY(zf_chunks_take(&p->chunks, rows, row, s, e));
    ZF_TRY(zf_pipeline_record(p->device, p->compute, p->down.full[turn], e));
    ZF_TRY(zf_pipeline_wait(p->device, p->d2h, p->down.full[turn], e));
    for (size_t at = 0; at < rows; at += s->chunk_rows) {
        size_t some = rows - at < s->chunk_rows ? rows - at : s->chunk_rows;
        ZF_TRY(zf_pipeline_copy(p, p->d2h, s->chunk[at / s->chunk_rows], x->device_sum + at * x->length, some * row, e));
    }
    p->counts.d2h_bytes += rows * row;
    return ZF_OK;
}
