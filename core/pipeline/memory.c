/* What a pipeline allocates, and the waiting of lanes. */
#include "core/pipeline/impl.h"
#include "core/pipeline/measure.h"

#include <stdlib.h>
#include <string.h>

enum zf_status zf_pipeline_wait(struct zf_device *d, struct zf_lane *l, struct zf_event *v, struct zf_err *e)
{
    enum zf_status s = d->type->event_wait(l, v);
    return s ? zf_lane_refused(d, l, s, "an event", e) : ZF_OK;
}

enum zf_status zf_pipeline_record(struct zf_device *d, struct zf_lane *l, struct zf_event *v, struct zf_err *e)
{
    enum zf_status s = d->type->event_record(l, v);
    return s ? zf_lane_refused(d, l, s, "an event", e) : ZF_OK;
}

enum zf_status zf_pipeline_copy(struct zf_pipeline *p, struct zf_lane *l, void *to, const void *from, size_t bytes, struct zf_err *e)
{
    enum zf_status s = p->device->type->copy(l, to, from, bytes);
    return s ? zf_lane_refused(p->device, l, s, "a copy", e) : ZF_OK;
}

enum zf_status zf_pipeline_sync(struct zf_pipeline *p, struct zf_err *e)
{
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    ZF_TRY(p->device->type->lane_sync(p->d2h, e));
    ZF_TRY(p->host->type->lane_sync(p->cpu, e));
    ZF_TRY(p->device->type->lane_sync(p->h2d, e));
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    if (!p->comm) return ZF_OK;
    ZF_TRY(p->device->type->lane_sync(p->exchange, e));
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    return zf_comm_failed(p->comm, e);
}

enum zf_status zf_pipeline_bury(struct zf_pipeline *p, void *memory, uint64_t after, struct zf_err *e)
{
    if (!memory) return ZF_OK;
    if (p->grave_count == p->grave_room) {
        size_t room = p->grave_room ? 2 * p->grave_room : 256;
        struct zf_grave *grown = realloc(p->graves, room * sizeof *grown);
        if (!grown) return zf_fail_memory(e, "the pipeline"); /* `memory` is lost until the end: work may still read it */
        p->graves = grown;
        p->grave_room = room;
    }
    p->graves[p->grave_count++] = (struct zf_grave){memory, after};
    return ZF_OK;
}

void zf_pipeline_exhume(struct zf_pipeline *p, uint64_t step)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->grave_count; i++)
        if (p->graves[i].after < step)
            free(p->graves[i].memory);
        else
            p->graves[kept++] = p->graves[i];
    p->grave_count = kept;
}

enum zf_status zf_half_alloc(struct zf_pipeline *p, struct zf_half *h, bool on_device, size_t rows, size_t length, bool master,
                             struct zf_err *e)
{
    struct zf_device *d = on_device ? p->device : p->host;
    size_t bytes = rows * length * sizeof(float);
    void *got[4] = {NULL};
    enum zf_mem_tag tag = on_device ? ZF_TAG_MOMENTS : ZF_TAG_CPU_STATE;
    *h = (struct zf_half){.rows = rows};
    if (!rows) return ZF_OK;
    enum zf_status s = ZF_OK;
    if (master) s = d->type->alloc(d, ZF_MEM_DEVICE, on_device ? ZF_TAG_WEIGHTS : tag, bytes, &got[0], e);
    if (!s) s = d->type->alloc(d, ZF_MEM_DEVICE, tag, bytes, &got[1], e);
    if (!s) s = d->type->alloc(d, ZF_MEM_DEVICE, tag, bytes, &got[2], e);
    if (!s) s = d->type->alloc(d, ZF_MEM_DEVICE, tag, rows * sizeof(uint32_t), &got[3], e);
    h->master = got[0];
    h->m = got[1];
    h->v = got[2];
    h->t = got[3];
    if (s) zf_half_free(p, h, on_device);
    return s;
}

void zf_half_free(struct zf_pipeline *p, struct zf_half *h, bool on_device)
{
    struct zf_device *d = on_device ? p->device : p->host;
    if (!h->borrowed) d->type->free(d, h->master);
    d->type->free(d, h->m);
    d->type->free(d, h->v);
    d->type->free(d, h->t);
    *h = (struct zf_half){0};
}

enum zf_status zf_update_clear(struct zf_pipeline *p, struct zf_update *u, uint64_t after, struct zf_err *e)
{
    enum zf_status s = ZF_OK, t;
    for (uint32_t i = 0; u->slots && i < u->room; i++)
        if ((t = zf_pipeline_bury(p, zf_chunks_give(&p->chunks, &u->slots[i]), after, e))) s = t;
    if ((t = zf_pipeline_bury(p, zf_chunks_give(&p->chunks, &u->sum), after, e))) s = t;
    if ((t = zf_pipeline_bury(p, u->entries, after, e))) s = t;
    free(u->slots);
    *u = (struct zf_update){0};
    return s;
}

/* ---- opening ---- */

static int layer_of(const struct zf_param *q, int layers)
{
    if (q->layer >= 0) return q->layer;
    return q->slot == ZF_SLOT_HEAD || q->slot == ZF_SLOT_PROJECT_OUT || q->slot == ZF_SLOT_FINAL_NORM_W || q->slot == ZF_SLOT_FINAL_NORM_B
               ? layers
               : -1;
}

static enum zf_status host_array(void *out, size_t count, size_t size, struct zf_err *e)
{
    void *got = calloc(count ? count : 1, size);
    memcpy(out, &got, sizeof got);
    return got ? ZF_OK : zf_fail_memory(e, "the pipeline");
}

static enum zf_status device_array(struct zf_device *d, enum zf_memory_kind kind, enum zf_mem_tag tag, void *out, size_t bytes,
                                   struct zf_err *e)
{
    void *got = NULL;
    enum zf_status s = d->type->alloc(d, kind, tag, bytes ? bytes : 1, &got, e);
    memcpy(out, &got, sizeof got);
    return s;
}

static enum zf_status ring_open(struct zf_pipeline *p, struct zf_ring *r, size_t bytes, struct zf_err *e)
{
    if (bytes < p->chunks.bytes)
        return zf_fail(e, ZF_MEMORY, NULL, "pieces of %zu bytes in a ring; those of slots have %zu: a mistake in the program", bytes,
                       p->chunks.bytes);
    r->bytes = bytes;
    for (int i = 0; i < ZF_RING; i++) {
        ZF_TRY(device_array(p->device, ZF_MEM_DEVICE, ZF_TAG_STAGING, &r->piece[i], bytes, e));
        ZF_TRY(p->device->type->event_new(p->device, &r->full[i], e));
        ZF_TRY(p->device->type->event_new(p->device, &r->idle[i], e));
    }
    return ZF_OK;
}

static void ring_close(struct zf_pipeline *p, struct zf_ring *r)
{
    for (int i = 0; i < ZF_RING; i++) {
        p->device->type->free(p->device, r->piece[i]);
        if (r->full[i]) p->device->type->event_free(r->full[i]);
        if (r->idle[i]) p->device->type->event_free(r->idle[i]);
    }
}

static enum zf_status matrix_open(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct zf_device *d = p->device;
    ZF_TRY(host_array(&x->order, x->channels, sizeof *x->order, e));
    ZF_TRY(host_array(&x->staged, x->channels, sizeof *x->staged, e));
    ZF_TRY(host_array(&x->arrived_list, x->channels, sizeof *x->arrived_list, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &x->device_order, x->channels * sizeof *x->order, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &x->channel, x->channels * sizeof *x->channel, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &x->column, x->length * sizeof *x->column, e));
    ZF_TRY(device_array(d, ZF_MEM_PINNED, ZF_TAG_OTHER, &x->next_channel, x->channels * sizeof *x->next_channel, e));
    ZF_TRY(device_array(d, ZF_MEM_PINNED, ZF_TAG_OTHER, &x->next_column, x->length * sizeof *x->next_column, e));
    ZF_TRY(p->host->type->event_new(p->host, &x->served, e));
    for (size_t i = 0; i < x->channels; i++) x->order[i] = (uint32_t)i;
    if (p->comm) ZF_TRY(zf_shares_open(p, x, e));
    return zf_pipeline_copy(p, p->compute, x->device_order, x->order, x->channels * sizeof *x->order, e);
}

static enum zf_status list_parameters(struct zf_pipeline *p, struct zf_err *e)
{
    const struct zf_params *all = &p->model->params;
    ZF_TRY(host_array(&p->matrix, all->count, sizeof *p->matrix, e));
    ZF_TRY(host_array(&p->vector, all->count, sizeof *p->vector, e));
    ZF_TRY(host_array(&p->sums_at, all->count, sizeof *p->sums_at, e));
    for (size_t i = 0; i < all->count; i++) {
        const struct zf_param *q = &all->list[i];
        if (q->frozen) continue;
        size_t n = zf_squares_pieces(p, q);
        if (q->matrix) {
            p->matrix[p->matrices++] = (struct zf_matrix){.param = q,
                                                          .layer = layer_of(q, (int)p->model->config.layers),
                                                          .channels = q->rows,
                                                          .length = q->cols,
                                                          .partials = n,
                                                          .partial_at = p->partials};
            p->parameters += q->rows * q->cols;
        } else {
            p->vector[p->vectors++] =
                (struct zf_vector){.param = q, .layer = layer_of(q, (int)p->model->config.layers), .partial_at = p->partials};
        }
        p->partials += n;
    }
    return ZF_OK;
}

static enum zf_status vector_open(struct zf_pipeline *p, struct zf_vector *v, struct zf_err *e)
{
    bool narrow = p->model->dtype != ZF_F32;
    ZF_TRY(zf_half_alloc(p, &v->state, true, 1, v->param->cols, narrow, e));
    return narrow ? zf_pipeline_copy(p, p->compute, v->state.master, p->model->master + v->param->offset, v->param->cols * sizeof(float), e)
                  : ZF_OK;
}

static enum zf_status allocate(struct zf_pipeline *p, struct zf_err *e)
{
    struct zf_device *d = p->device;
    const struct zf_device_type *t = d->type;
    size_t row = 0, channels = 0, most = 0;
    for (size_t i = 0; i < p->matrices; i++) {
        if (p->matrix[i].length > row) row = p->matrix[i].length;
        if (p->matrix[i].channels > most) most = p->matrix[i].channels;
        p->sums_at[i] = 2 * channels;
        channels += p->matrix[i].channels;
    }
    zf_chunks_init(&p->chunks, d, zf_pipeline_chunk_bytes(row));
    ZF_TRY(t->lane_new(d, "d2h", &p->d2h, e));
    ZF_TRY(t->lane_new(d, "h2d", &p->h2d, e));
    ZF_TRY(p->host->type->lane_new(p->host, "cpu", &p->cpu, e));
    ZF_TRY(ring_open(p, &p->down, zf_pipeline_piece_bytes(row), e));
    ZF_TRY(ring_open(p, &p->up, zf_pipeline_piece_bytes(row), e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->partial, p->partials * sizeof *p->partial, e));
    ZF_TRY(device_array(p->host, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->column_parts, ZF_COLUMN_PARTS * row * sizeof(double), e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->loss, sizeof *p->loss, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->norm, sizeof *p->norm, e));
    ZF_TRY(device_array(d, ZF_MEM_PINNED, ZF_TAG_OTHER, &p->seen, sizeof *p->seen, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->sums, 2 * channels * sizeof *p->sums, e));
    ZF_TRY(device_array(d, ZF_MEM_PINNED, ZF_TAG_OTHER, &p->sums_seen, 2 * channels * sizeof *p->sums, e));
    ZF_TRY(device_array(d, ZF_MEM_DEVICE, ZF_TAG_OTHER, &p->list, 2 * most * sizeof *p->list, e));
    ZF_TRY(device_array(d, ZF_MEM_PINNED, ZF_TAG_OTHER, &p->list_seen, 2 * most * sizeof *p->list, e));
    ZF_TRY(t->event_new(d, &p->normed, e));
    ZF_TRY(t->event_new(d, &p->raised, e));
    ZF_TRY(t->event_new(d, &p->lowered, e));
    ZF_TRY(p->host->type->event_new(p->host, &p->folded, e));
    if (p->comm) ZF_TRY(zf_ranks_open(p, row, most, e));
    for (size_t i = 0; i < p->matrices; i++) ZF_TRY(matrix_open(p, &p->matrix[i], e));
    for (size_t i = 0; i < p->vectors; i++) ZF_TRY(vector_open(p, &p->vector[i], e));
    return zf_pipeline_sync(p, e); /* what a lane refuses is told here */
}

enum zf_status zf_pipeline_open(struct zf_pipeline *p, struct zf_model *m, struct zf_device *host, struct zf_comm *comm,
                                const struct zf_policy *policy, const struct zf_adam_rule *rule, struct zf_err *e)
{
    *p = (struct zf_pipeline){.model = m,
                              .comm = comm,
                              .device = m->device,
                              .host = host ? host : m->device,
                              .compute = m->lane,
                              .ready = m->lane,
                              .policy = *policy,
                              .rule = *rule,
                              .last_clip = 1};
    zf_pipeline_share(p);
    enum zf_status s = list_parameters(p, e);
    if (!s) s = allocate(p, e);
    if (!s) s = zf_pipeline_begin_windows(p, e);
    if (s) {
        zf_pipeline_close(p);
        return s;
    }
    m->hooks = (struct zf_model_hooks){
        .ctx = p, .before_layer = zf_pipeline_before_layer, .after_layer = zf_pipeline_after_layer, .masters = zf_pipeline_masters_of};
    return ZF_OK;
}

static void matrix_close(struct zf_pipeline *p, struct zf_matrix *x)
{
    struct zf_err ignored;
    zf_half_free(p, &x->device, true);
    zf_half_free(p, &x->cpu, false);
    zf_pipeline_free_sum(p, x);
    zf_update_clear(p, &x->open, 0, &ignored);
    zf_update_clear(p, &x->up, 0, &ignored);
    free(zf_chunks_give(&p->chunks, &x->staging));
    free(zf_chunks_give(&p->chunks, &x->slot));
    free(x->order);
    free(x->staged);
    free(x->arrived_list);
    if (x->shares) zf_shares_close(p, x);
    void *const device[] = {x->device_order, x->channel, x->column, x->next_channel, x->next_column};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) p->device->type->free(p->device, device[i]);
    if (x->served) p->host->type->event_free(x->served);
}

void zf_pipeline_close(struct zf_pipeline *p)
{
    if (!p->model) return;
    struct zf_device *d = p->device;
    const struct zf_device_type *t = d->type;
    struct zf_err ignored;
    struct zf_lane *const lanes[] = {p->compute, p->d2h, p->h2d, p->exchange};
    enum { LANES = sizeof lanes / sizeof *lanes };
    p->model->hooks = (struct zf_model_hooks){0};
    for (size_t i = 0; i < LANES; i++) /* after a failure work may still be under way; twice, as they wait for each other */
        if (lanes[i]) t->lane_sync(lanes[i], &ignored);
    if (p->cpu) p->host->type->lane_sync(p->cpu, &ignored);
    for (size_t i = 0; i < LANES; i++)
        if (lanes[i]) t->lane_sync(lanes[i], &ignored);
    for (size_t i = 0; i < p->matrices; i++) matrix_close(p, &p->matrix[i]);
    for (size_t i = 0; i < p->vectors; i++) zf_half_free(p, &p->vector[i].state, true);
    if (p->common) zf_ranks_close(p);
    zf_chunks_free(&p->chunks);
    ring_close(p, &p->down);
    ring_close(p, &p->up);
    void *const device[] = {p->partial, p->loss, p->norm, p->seen, p->sums, p->sums_seen, p->list, p->list_seen};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) t->free(d, device[i]);
    p->host->type->free(p->host, p->column_parts);
    if (p->normed) t->event_free(p->normed);
    if (p->raised) t->event_free(p->raised);
    if (p->lowered) t->event_free(p->lowered);
    if (p->folded) p->host->type->event_free(p->folded);
    if (p->d2h) t->lane_free(p->d2h);
    if (p->h2d) t->lane_free(p->h2d);
    if (p->exchange) t->lane_free(p->exchange);
    if (p->cpu) p->host->type->lane_free(p->cpu);
    zf_pipeline_exhume(p, UINT64_MAX);
    free(p->graves);
    free(p->matrix);
    free(p->vector);
    free(p->sums_at);
    *p = (struct zf_pipeline){0};
}
