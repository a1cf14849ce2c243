/* Private to core/pipeline. step.c issues a step, cpu.c the CPU half's work, show.c what becomes visible, owners.c who owns which channel,
 * change.c changes between steps, memory.c what is allocated; ranks.c and ranks_owners.c what ranks exchange. */
#ifndef ZF_PIPELINE_IMPL_H
#define ZF_PIPELINE_IMPL_H

#include "core/pipeline/pipeline.h"

#define ISSUE_TO(p, dev, lane_, op, e, ...) \
    do { \
        enum zf_status issued_ = (dev)->type->ops->op((lane_), &(struct zf_##op##_args){__VA_ARGS__}); \
        if (issued_ != ZF_OK) return zf_lane_refused((dev), (lane_), issued_, #op, (e)); \
    } while (0)
#define ISSUE(p, op, e, ...) ISSUE_TO(p, (p)->device, (p)->compute, op, e, __VA_ARGS__)
#define ISSUE_READY(p, op, e, ...) ISSUE_TO(p, (p)->device, (p)->ready, op, e, __VA_ARGS__)
#define ISSUE_EXCHANGE(p, op, e, ...) ISSUE_TO(p, (p)->device, (p)->exchange, op, e, __VA_ARGS__)
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
/* Of all ranks. */
static inline size_t zf_all_cpu_rows(const struct zf_matrix *x)
{
    return x->assigned ? x->channels - x->device.rows : 0;
}
/* Rows in staging, of whichever rank, that are to become visible. */
static inline bool zf_is_staged(const struct zf_matrix *x)
{
    return x->shares ? x->shares->staged_rows > 0 : x->staging.chunk && x->staged_rows;
}
static inline bool zf_is_own(const struct zf_pipeline *p, const struct zf_matrix *x, size_t channel)
{
    return !x->shares || (channel >= x->shares->first[p->comm->rank] && channel < x->shares->first[p->comm->rank + 1]);
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

/* ranks.c; all but the first only with ranks */
size_t zf_squares_pieces(const struct zf_pipeline *p, const struct zf_param *q);
enum zf_status zf_ranks_open(struct zf_pipeline *p, size_t longest_row, size_t most_channels, struct zf_err *e);
void zf_ranks_close(struct zf_pipeline *p);
enum zf_status zf_shares_open(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
void zf_shares_close(struct zf_pipeline *p, struct zf_matrix *x);
/* What is issued into compute comes before what is issued into exchange from here on; and back. */
enum zf_status zf_ranks_follow(struct zf_pipeline *p, struct zf_err *e);
enum zf_status zf_ranks_lead(struct zf_pipeline *p, struct zf_err *e);
enum zf_status zf_ranks_sum(struct zf_pipeline *p, int layer, struct zf_err *e);      /* a layer's gradients and what is known by them */
enum zf_status zf_ranks_selected(struct zf_pipeline *p, int layer, struct zf_err *e); /* selected rows' gradients, but of what selects */
enum zf_status zf_ranks_selected_of(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
enum zf_status zf_ranks_visible(struct zf_pipeline *p, struct zf_err *e); /* rows that have changed on their owners' devices */
enum zf_status zf_ranks_await(struct zf_pipeline *p, int layer, struct zf_err *e);
enum zf_status zf_ranks_losses(struct zf_pipeline *p, struct zf_err *e); /* every rank's, behind compute */
/* The norm is on the host: the loss of all; compute goes on behind it. */
enum zf_status zf_ranks_normed(struct zf_pipeline *p, struct zf_step_norm *out, struct zf_err *e);
enum zf_status zf_ranks_loss(struct zf_pipeline *p, double *loss, struct zf_err *e);
void zf_ranks_staged(struct zf_matrix *x); /* all that CPU halves have */
/* Sums of the own rows' second moments, which the cpu lane has added up in parts, or of no rows; column shares of all. */
enum zf_status zf_ranks_add_columns(struct zf_pipeline *p, struct zf_matrix *x, bool any, struct zf_err *e);
/* Between steps: what the CPU halves know together of rows in staging is in next_column, as with one rank; so a state can be saved. The cpu
 * lane waits for it. */
enum zf_status zf_ranks_complete(struct zf_pipeline *p, struct zf_err *e);
enum zf_status zf_ranks_columns(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e);
enum zf_status zf_ranks_collect(struct zf_pipeline *p, bool sum, const struct zf_comm_rows *list, size_t count, struct zf_err *e);

/* ranks_owners.c */
enum zf_status zf_ranks_assign(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e);
enum zf_status zf_ranks_found(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e);
enum zf_status zf_ranks_masters(struct zf_pipeline *p, const struct zf_matrix *x, float *out, struct zf_err *e);

/* owners.c */
/* A row's way: where it is, where it goes. */
struct zf_way {
    uint32_t channel, from, to; /* slots */
};
enum zf_status zf_pipeline_leave(struct zf_pipeline *p, struct zf_matrix *x, const struct zf_way *down, size_t downs, struct zf_err *e);
enum zf_status zf_half_keep(struct zf_pipeline *p, const struct zf_array from[ZF_ARRAYS], const struct zf_array to[ZF_ARRAYS],
                            const uint32_t *slots, size_t n, struct zf_err *e);
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
