#include "core/optim/optimizer.h"

#define ISSUE(o, op, e, ...) \
    do { \
        enum zf_status issued_ = (o)->model->device->type->ops->op((o)->model->lane, &(struct zf_##op##_args){__VA_ARGS__}); \
        if (issued_ != ZF_OK) return zf_lane_refused((o)->model->device, (o)->model->lane, issued_, #op, (e)); \
    } while (0)

static size_t chunks(const struct zf_params *p)
{
    return (p->elements + ZF_SQUARES_CHUNK - 1) / ZF_SQUARES_CHUNK;
}

enum zf_status zf_optimizer_init(struct zf_optimizer *o, struct zf_model *m, struct zf_err *e)
{
    *o = (struct zf_optimizer){.model = m};
    struct zf_device *d = m->device;
    size_t block = m->params.elements * sizeof(float);
    const struct {
        size_t bytes;
        enum zf_memory_kind kind;
        enum zf_mem_tag tag;
    } parts[] = {
        {block, ZF_MEM_DEVICE, ZF_TAG_MOMENTS},
        {block, ZF_MEM_DEVICE, ZF_TAG_MOMENTS},
        {chunks(&m->params) * sizeof *o->partial, ZF_MEM_DEVICE, ZF_TAG_OTHER},
        {sizeof *o->loss, ZF_MEM_DEVICE, ZF_TAG_OTHER},
        {sizeof *o->norm, ZF_MEM_DEVICE, ZF_TAG_OTHER},
        {sizeof *o->seen, ZF_MEM_PINNED, ZF_TAG_OTHER},
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    void *got[PARTS] = {NULL};
    enum zf_status s = ZF_OK;
    for (size_t i = 0; !s && i < PARTS; i++) s = d->type->alloc(d, parts[i].kind, parts[i].tag, parts[i].bytes, &got[i], e);
    o->m = got[0];
    o->v = got[1];
    o->partial = got[2];
    o->loss = got[3];
    o->norm = got[4];
    o->seen = got[5];
    if (s) zf_optimizer_free(o);
    return s;
}

void zf_optimizer_free(struct zf_optimizer *o)
{
    if (!o->model) return;
    struct zf_device *d = o->model->device;
    struct zf_err ignored;
    if (o->model->lane) d->type->lane_sync(o->model->lane, &ignored); /* after a failure work may still be under way */
    void *const all[] = {o->m, o->v, o->partial, o->loss, o->norm, o->seen};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) d->type->free(d, all[i]);
    *o = (struct zf_optimizer){0};
}

enum zf_status zf_optimizer_begin_loss(struct zf_optimizer *o, struct zf_err *e)
{
    enum zf_status s = o->model->device->type->fill(o->model->lane, o->loss, 0, sizeof *o->loss);
    return s ? zf_lane_refused(o->model->device, o->model->lane, s, "the loss", e) : ZF_OK;
}

enum zf_status zf_optimizer_begin(struct zf_optimizer *o, struct zf_err *e)
{
    ZF_TRY(zf_optimizer_begin_loss(o, e));
    return zf_model_begin_grad(o->model, e);
}

/* From the device, through the pinned copy. Waits. */
static enum zf_status see(struct zf_optimizer *o, void *to, const void *from, size_t bytes, struct zf_err *e)
{
    struct zf_device *d = o->model->device;
    enum zf_status s = d->type->copy(o->model->lane, to, from, bytes);
    return s ? zf_lane_refused(d, o->model->lane, s, "the loss", e) : d->type->lane_sync(o->model->lane, e);
}

enum zf_status zf_optimizer_loss(struct zf_optimizer *o, double *loss, struct zf_err *e)
{
    ZF_TRY(see(o, &o->seen->loss, o->loss, sizeof *o->loss, e));
    *loss = o->seen->loss;
    return ZF_OK;
}

/* Neighbours in the flat block with the same decay are one kernel call; gaps between them are zeros and stay zeros. */
static enum zf_status update(struct zf_optimizer *o, const struct zf_adam_rule *r, double rate, struct zf_err *e)
{
    struct zf_model *m = o->model;
    const struct zf_params *p = &m->params;
    bool copies = m->dtype != ZF_F32; /* weights beside their masters */
    for (size_t i = 0, next; i < p->count; i = next) {
        const struct zf_param *first = &p->list[i];
        next = i + 1;
        if (first->frozen) continue;
        while (next < p->count && !p->list[next].frozen && p->list[next].matrix == first->matrix) next++;
        const struct zf_param *last = &p->list[next - 1];
        size_t at = first->offset;
        ISSUE(o, adamw, e, .type = m->dtype, .weights = copies ? (char *)m->weights + at * zf_dtype_size(m->dtype) : NULL,
              .master = m->master + at, .m = o->m + at, .v = o->v + at, .g = m->grad + at, .norm = o->norm,
              .n = last->offset + last->rows * last->cols - at, .t = o->updates + 1, .lr = rate, .beta1 = r->beta1, .beta2 = r->beta2,
              .eps = r->epsilon, .decay = first->matrix ? r->weight_decay : 0, .stochastic = copies && r->stochastic, .seed = r->seed,
              .first = at);
    }
    return ZF_OK;
}

enum zf_status zf_optimizer_step(struct zf_optimizer *o, const struct zf_adam_rule *r, double rate, struct zf_step_norm *out,
                                 struct zf_err *e)
{
    const struct zf_params *p = &o->model->params;
    const struct zf_device_type *t = o->model->device->type;
    if (t->lane_phase) t->lane_phase(o->model->lane, ZF_PHASE_UPDATE);
    ISSUE(o, sum_squares, e, .x = o->model->grad, .partial = o->partial, .n = p->elements);
    ISSUE(o, clip_factor, e, .partial = o->partial, .count = chunks(p), .loss = o->loss, .clip_norm = r->clip_norm, .out = o->norm);
    ZF_TRY(update(o, r, rate, e));
    ZF_TRY(see(o, o->seen, o->norm, sizeof *o->seen, e));
    *out = *o->seen;
    o->updates += out->apply != 0;
    return ZF_OK;
}
