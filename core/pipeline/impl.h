/* Private to core/pipeline. step.c issues a step, cpu.c the CPU half's work, show.c what becomes visible, owners.c who owns which channel,
 * change.c changes between steps, memory.c what is allocated. */
#ifndef ZF_PIPELINE_IMPL_H
#define ZF_PIPELINE_IMPL_H

#include "core/pipeline/pipeline.h"

#define ISSUE_TO(p, dev, lane_, op, e, ...) \
    do { \
        enum zf_status issued_ = (dev)->type->ops->op((lane_), &(struct zf_##op##_args){__VA_ARGS__}); \
        if (issued_ != ZF_OK) return zf_lane_refused((dev), (lane_), issued_, #op, (e)); \
    } while (0)
#define ISSUE(p, op, e, ...) ISSUE_TO(p, (p)->device, (p)->compute, op, e, __VA_ARGS__)
#define ISSUE_CPU(p, op, e, ...) ISSUE_TO(p, (p)->host, (p)->cpu, op, e, __VA_ARGS__)

struct zf_grave {
    void *memory;
    uint64_t after; /* freed when a later step's norm has been seen */
};

/* memory.c */
enum zf_status zf_pipeline_bury(struct zf_pipeline *p, void *memory, uint64_t after, struct zf_err *e);
void zf_pipeline_exhume(struct zf_pipeline *p, uint64_t step); /* frees what was buried before */
enum zf_status zf_half_alloc(struct zf_pipeline *p, struct zf_half *h, bool on_device, size_t rows, size_t length, bool master,
                             struct zf_err *e);
void zf_half_free(struct zf_pipeline *p, struct zf_half *h, bool on_device);
/* Gives slots and staging back and forgets the window. */
enum zf_status zf_update_clear(struct zf_pipeline *p, struct zf_update *u, uint64_t after, struct zf_err *e);
enum zf_status zf_pipeline_sync(struct zf_pipeline *p, struct zf_err *e); /* waits for all lanes */

/* The lane waits, or says it is done so far. */
enum zf_status zf_pipeline_wait(struct zf_device *d, struct zf_lane *l, struct zf_event *v, struct zf_err *e);
enum zf_status zf_pipeline_record(struct zf_device *d, struct zf_lane *l, struct zf_event *v, struct zf_err *e);
enum zf_status zf_pipeline_copy(struct zf_pipeline *p, struct zf_lane *l, void *to, const void *from, size_t bytes, struct zf_err *e);

/* Rows, of whole pieces of m, that a piece of the ring takes: it takes one piece at least (ring_open). */
static inline size_t zf_ring_rows(const struct zf_ring *r, const struct zf_rows_memory *m, size_t row_bytes)
{
    return r->bytes / (m->chunk_rows * row_bytes) * m->chunk_rows;
}
static inline size_t zf_cpu_rows(const struct zf_matrix *x)
{
    return x->assigned ? x->cpu.rows : 0;
}
static inline void *zf_matrix_weights(const struct zf_pipeline *p, const struct zf_param *q)
{
    return (char *)p->model->weights + q->offset * zf_dtype_size(p->model->dtype);
}

/* step.c */
enum zf_status zf_pipeline_before_layer(void *ctx, int layer, struct zf_err *e);
enum zf_status zf_pipeline_after_layer(void *ctx, int layer, struct zf_err *e);

/* cpu.c */
enum zf_status zf_pipeline_fold(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
enum zf_status zf_pipeline_serve(struct zf_pipeline *p, struct zf_matrix *x, struct zf_update *u, bool exact, struct zf_err *e);
/* Visible rows of all the CPU half as it is: the master, or ahead of it. Into staging. */
enum zf_status zf_pipeline_stage(struct zf_pipeline *p, struct zf_matrix *x, const struct zf_update *u, bool exact, struct zf_err *e);
enum zf_status zf_pipeline_statistics(struct zf_pipeline *p, struct zf_matrix *x, const uint32_t *list, const uint32_t *to_list,
                                      size_t rows, bool columns, double beta2, struct zf_err *e);
double zf_update_ahead(const struct zf_pipeline *p, const struct zf_matrix *x, const struct zf_update *u);

/* device_sum.c: this step's gradient into the open window's sum; that sum on its way down, where the window ends */
enum zf_status zf_pipeline_sum_on_device(struct zf_pipeline *p, struct zf_matrix *x, float clip, struct zf_err *e);
enum zf_status zf_pipeline_lower_sum(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
enum zf_status zf_pipeline_make_sum(struct zf_pipeline *p, struct zf_matrix *x, size_t rows, struct zf_err *e);
void zf_pipeline_free_sum(struct zf_pipeline *p, struct zf_matrix *x);

/* show.c */
enum zf_status zf_pipeline_show(struct zf_pipeline *p, struct zf_matrix *x, bool moments, bool columns, struct zf_err *e);
enum zf_status zf_pipeline_show_layer(struct zf_pipeline *p, int layer, struct zf_err *e);

/* change.c */
void zf_pipeline_share(struct zf_pipeline *p); /* the device has the CPU half's threads where the policy gives that nothing to do */
enum zf_status zf_pipeline_begin_windows(struct zf_pipeline *p, struct zf_err *e);
enum zf_status zf_pipeline_show_due(struct zf_pipeline *p, struct zf_err *e);

/* copies.c: before the CPU half's state of a matrix is altered, by what the cpu lane does next, or (lanes are idle) at once: a checkpoint
 * that is being written gets it as it was. */
enum zf_status zf_pipeline_spare(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
void zf_pipeline_spare_now(struct zf_pipeline *p, struct zf_matrix *x);
/* The same for compute, before it alters visible weights and what moves them; half: the device half's state, too. */
enum zf_status zf_pipeline_hold(struct zf_pipeline *p, bool half, struct zf_err *e);

/* owners.c */
void zf_half_arrays(const struct zf_pipeline *p, const struct zf_matrix *x, const struct zf_half *h, struct zf_array out[ZF_ARRAYS]);
/* n rows of device memory, which fit a piece of the ring, to and from host memory. Lanes are idle; waits. */
enum zf_status zf_pipeline_fetch(struct zf_pipeline *p, const float *base, size_t cols, const uint32_t *list, size_t n, float *host,
                                 struct zf_err *e);
enum zf_status zf_pipeline_store(struct zf_pipeline *p, float *base, size_t cols, const uint32_t *list, size_t n, const float *host,
                                 struct zf_err *e);
enum zf_status zf_pipeline_select(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e); /* with this step's scores; waits */
enum zf_status zf_pipeline_masters_of(void *ctx, const struct zf_param *param, float *out, bool *elsewhere, struct zf_err *e);
/* The model's own block of masters is given back when nobody needs it any more. */
void zf_pipeline_release_masters(struct zf_pipeline *p);
/* The channels that are `chosen` become the device half's, all others the CPU half's, with their state. Lanes are idle. */
enum zf_status zf_pipeline_assign(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e);

#endif
