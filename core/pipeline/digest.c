/* What ranks have in common: the visible weights, as they are in the device's memory. */
#include "core/base/hash.h"
#include "core/pipeline/impl.h"

#include <stdlib.h>

enum zf_status zf_pipeline_digest(struct zf_pipeline *p, unsigned char out[16], struct zf_err *e)
{
    enum { SOME = 4 << 20 };
    const struct zf_params *all = &p->model->params;
    struct zf_hash h;
    char *piece = malloc(SOME);
    enum zf_status s = piece ? zf_pipeline_settle(p, e) : zf_fail_memory(e, "a digest of the weights");
    if (!s) s = zf_hash_begin(&h, e);
    if (s) {
        free(piece);
        return s;
    }
    for (size_t i = 0; !s && i < all->count; i++) {
        const struct zf_param *q = &all->list[i];
        const char *from = zf_matrix_weights(p, q);
        size_t bytes = q->rows * q->cols * zf_dtype_size(p->model->dtype);
        for (size_t at = 0, n; !s && at < bytes; at += n) {
            n = bytes - at < SOME ? bytes - at : SOME;
            s = zf_pipeline_copy(p, p->compute, piece, from + at, n, e);
            if (!s) s = p->device->type->lane_sync(p->compute, e);
            if (!s) zf_hash_add_part(&h, piece, n);
        }
    }
    zf_hash_end(&h, out);
    free(piece);
    return s;
}
