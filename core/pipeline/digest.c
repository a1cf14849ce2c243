/* The model's memory as it is on the device: the weights, which all ranks have in common, and the gradients, of which each has a share. */
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

enum zf_status zf_pipeline_gradient(struct zf_pipeline *p, const struct zf_param *q, void (*see)(void *ctx, const float *x, size_t n),
                                    void *ctx, struct zf_err *e)
{
    enum { SOME = 1 << 20 };
    int rank = p->comm ? p->comm->rank : 0, ranks = p->comm ? p->comm->ranks : 1;
    size_t from = zf_share(q->rows, rank, ranks) * q->cols, to = zf_share(q->rows, rank + 1, ranks) * q->cols;
    if (!q->matrix) from = 0, to = rank ? 0 : q->rows * q->cols; /* all ranks have all of it */
    float *piece = malloc((to - from < SOME ? to - from + 1 : SOME) * sizeof *piece);
    enum zf_status s = piece ? ZF_OK : zf_fail_memory(e, "a look at gradients");
    for (size_t n; !s && from < to; from += n) {
        n = to - from < SOME ? to - from : SOME;
        s = zf_pipeline_copy(p, p->compute, piece, p->model->grad + q->offset + from, n * sizeof *piece, e);
        if (!s) s = p->device->type->lane_sync(p->compute, e);
        if (!s) see(ctx, piece, n);
    }
    free(piece);
    return s;
}
