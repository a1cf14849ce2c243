/* One step. The model's hooks say when a layer is about to be used and when its gradients are complete; finish() does what follows from
 * the norm. */
#include "core/pipeline/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum zf_status zf_pipeline_begin_loss(struct zf_pipeline *p, struct zf_err *e)
{
    if (p->comm) ZF_TRY(zf_pipeline_show_due(p, e)); /* here, whether or not this rank has rows */
    enum zf_status s = p->device->type->fill(p->compute, p->loss, 0, sizeof *p->loss);
    return s ? zf_lane_refused(p->device, p->compute, s, "the loss", e) : ZF_OK;
}

enum zf_status zf_pipeline_loss(struct zf_pipeline *p, double *loss, struct zf_err *e)
{
    if (p->comm) return zf_ranks_loss(p, loss, e);
    ZF_TRY(zf_pipeline_copy(p, p->compute, &p->seen->loss, p->loss, sizeof *p->loss, e));
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    *loss = p->seen->loss;
    return ZF_OK;
}

enum zf_status zf_pipeline_begin(struct zf_pipeline *p, double rate, bool score_all, struct zf_err *e)
{
    p->rate = rate;
    p->score_all = score_all;
    p->last_micro_batch = false;
    p->graded = true;
    for (size_t i = 0; i < p->matrices; i++) p->matrix[i].handed = false;
    ZF_TRY(zf_pipeline_begin_loss(p, e));
    return zf_model_begin_grad(p->model, e);
}

void zf_pipeline_last(struct zf_pipeline *p)
{
    p->last_micro_batch = true;
}

/* ---- gradients on their way down ---- */

/* The gradient of n channels, list on the device: packed, if there is room for it given; moved by, where `move`. */
static enum zf_status hand_over(struct zf_pipeline *p, struct zf_matrix *x, const uint32_t *list, size_t n, void *packed, bool move,
                                struct zf_err *e)
{
    const struct zf_adam_rule *r = &p->rule;
    if (move) ZF_TRY(zf_pipeline_hold(p, false, e));
    ISSUE_READY(p, hand_over, e, .type = p->model->dtype, .bus_type = p->policy.bus, .g = p->model->grad + x->param->offset, .list = list,
                .packed = packed, .weights = move ? zf_matrix_weights(p, x->param) : NULL, .channel = x->channel, .column = x->column,
                .partial = p->partial + x->partial_at, .partials = x->partials, .rows = n, .cols = x->length, .clip = p->last_clip,
                .rate = zf_window_lag(&x->window, &p->policy) * (1 - r->beta1) * p->rate, .beta2 = r->beta2, .eps = r->epsilon,
                .seed = r->seed, .step = p->step + 1, .first = x->param->offset);
    return ZF_OK;
}

/* Packs rows first .. first + n of the CPU half (whole chunks of the slot) into a piece of the ring and lowers them. */
static enum zf_status lower(struct zf_pipeline *p, struct zf_matrix *x, size_t first, size_t n, bool move, struct zf_err *e)
{
    const struct zf_rows_memory *s = &x->slot;
    size_t row = x->length * zf_dtype_size(p->policy.bus);
    unsigned turn = p->down.turn++ % ZF_RING;
    char *piece = p->down.piece[turn];
    ZF_TRY(zf_pipeline_wait(p->device, p->ready, p->down.idle[turn], e));
    ZF_TRY(hand_over(p, x, x->device_order + x->device.rows + first, n, piece, move, e));
    ZF_TRY(zf_pipeline_record(p->device, p->ready, p->down.full[turn], e));
    ZF_TRY(zf_pipeline_wait(p->device, p->d2h, p->down.full[turn], e));
    for (size_t at = first; at < first + n; at += s->chunk_rows) {
        size_t some = first + n - at < s->chunk_rows ? first + n - at : s->chunk_rows;
        ZF_TRY(zf_pipeline_copy(p, p->d2h, s->chunk[at / s->chunk_rows], piece + (at - first) * row, some * row, e));
    }
    p->counts.d2h_bytes += n * row;
    return zf_pipeline_record(p->device, p->d2h, p->down.idle[turn], e);
}

/* Rows of the CPU half move between updates, once there are second moments to move by. */
static bool moves(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return p->policy.optimistic && x->has_column;
}

static enum zf_status hand_over_rest(struct zf_pipeline *p, struct zf_matrix *x, bool pack, bool move, struct zf_err *e)
{
    size_t rows = zf_cpu_rows(x), row = x->length * zf_dtype_size(p->policy.bus);
    x->handed = true;
    move = move && moves(p, x);
    if (x->shares && move) x->shares->stale = true;
    if (!rows) return ZF_OK;
    if (!pack) return move ? hand_over(p, x, x->device_order + x->device.rows, rows, NULL, true, e) : ZF_OK;
    ZF_TRY(zf_chunks_take(&p->chunks, rows, row, &x->slot, e));
    size_t step = zf_ring_rows(&p->down, &x->slot, row);
    for (size_t first = 0; first < rows; first += step) ZF_TRY(lower(p, x, first, rows - first < step ? rows - first : step, move, e));
    return ZF_OK;
}

/* Channels that came to the CPU half since the window that becomes visible now ended: they are not among its rows, so they move, by the
 * second moments that come with it. Waits. */
static enum zf_status move_arrived(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    if (!x->arrived || !p->policy.optimistic) return ZF_OK;
    if (x->window.up.any) ZF_TRY(zf_pipeline_show(p, x, true, true, e));
    if (!p->graded || !moves(p, x)) return ZF_OK;
    ZF_TRY(zf_pipeline_sync(p, e)); /* the scratch is free */
    size_t n = 0;
    for (size_t i = 0; i < x->arrived; i++)
        if (zf_is_own(p, x, x->arrived_list[i])) p->list_seen[n++] = x->arrived_list[i];
    if (x->shares) x->shares->stale = true;
    if (!n) return ZF_OK;
    ZF_TRY(zf_pipeline_copy(p, p->compute, p->list, p->list_seen, n * sizeof *p->list, e));
    return hand_over(p, x, p->list, n, NULL, true, e);
}

/* ---- hooks ---- */

enum zf_status zf_pipeline_before_layer(void *ctx, int layer, struct zf_err *e)
{
    struct zf_pipeline *p = ctx;
    return p->comm ? zf_ranks_await(p, layer, e) : zf_pipeline_show_layer(p, layer, e);
}

static enum zf_status squares(struct zf_pipeline *p, const struct zf_param *q, size_t at, struct zf_err *e)
{
    ISSUE(p, sum_squares, e, .x = p->model->grad + q->offset, .partial = p->partial + at, .n = q->rows * q->cols);
    return ZF_OK;
}

/* With the squares. */
static enum zf_status scores(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    size_t at = p->sums_at[x - p->matrix];
    ISSUE(p, row_sums, e, .g = p->model->grad + x->param->offset, .sums = p->sums + at, .rows = x->channels, .cols = x->length,
          .partial = p->partial + x->partial_at);
    return zf_pipeline_copy(p, p->compute, p->sums_seen + at, p->sums + at, 2 * x->channels * sizeof *p->sums, e);
}

static bool due_now(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return x->window.up.any && x->window.up.due == p->step + 1;
}

static bool packs(const struct zf_pipeline *p)
{
    return zf_policy_offloads(&p->policy);
}

/* What the lane's account counts its time for. */
static void phase(const struct zf_pipeline *p, enum zf_phase phase)
{
    if (p->device->type->lane_phase) p->device->type->lane_phase(p->compute, phase);
}

/* What the gradients of a layer are now: summed and known by their squares, where scores are wanted by those. */
static enum zf_status known_by(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    if (p->comm) return zf_ranks_sum(p, layer, e);
    for (size_t i = 0; i < p->vectors; i++)
        if (p->vector[i].layer == layer) ZF_TRY(squares(p, p->vector[i].param, p->vector[i].partial_at, e));
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer != layer) continue;
        bool scored = p->score_all || zf_window_may_select(&x->window, &p->policy, p->step + 1);
        ZF_TRY(scored ? scores(p, x, e) : squares(p, x->param, x->partial_at, e));
    }
    return ZF_OK;
}

static enum zf_status gradients_of(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    ZF_TRY(known_by(p, layer, e));
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer != layer || zf_window_may_select(&x->window, &p->policy, p->step + 1)) continue;
        if (packs(p) && !p->policy.accumulate_on_device) ZF_TRY(hand_over_rest(p, x, true, !due_now(p, x), e));
    }
    return p->comm ? zf_ranks_selected(p, layer, e) : ZF_OK;
}

enum zf_status zf_pipeline_after_layer(void *ctx, int layer, struct zf_err *e)
{
    struct zf_pipeline *p = ctx;
    if (!p->last_micro_batch) return ZF_OK;
    phase(p, ZF_PHASE_UPDATE);
    enum zf_status s = gradients_of(p, layer, e);
    phase(p, ZF_PHASE_BACKWARD);
    return s;
}

/* ---- what follows from the norm ---- */

static enum zf_status device_half(struct zf_pipeline *p, const struct zf_param *q, const struct zf_half *h, const uint32_t *list,
                                  enum zf_dtype bus, float clip, struct zf_err *e)
{
    const struct zf_adam_rule *r = &p->rule;
    ZF_TRY(zf_pipeline_hold(p, true, e));
    ISSUE(p, adamw_rows, e, .type = p->model->dtype, .bus_type = bus, .weights = zf_matrix_weights(p, q), .master = h->master, .m = h->m,
          .v = h->v, .t = h->t, .list = list, .g = p->model->grad + q->offset, .rows = h->rows, .cols = q->cols, .clip = clip,
          .lr = p->rate, .beta1 = r->beta1, .beta2 = r->beta2, .eps = r->epsilon, .decay = q->matrix ? r->weight_decay : 0,
          .stochastic = r->stochastic && p->model->dtype != ZF_F32, .seed = r->seed, .first = q->offset);
    return ZF_OK;
}

/* Room for all entries of the open window. */
static enum zf_status make_entries(struct zf_pipeline *p, struct zf_update *u, struct zf_err *e)
{
    uint32_t room = p->policy.cpu_update == ZF_CPU_UPDATE_MEAN ? 1 : p->policy.interval;
    u->entries = calloc(room, sizeof *u->entries);
    u->slots = calloc(room, sizeof *u->slots);
    if (!u->entries || !u->slots) return zf_fail_memory(e, "a window");
    u->room = room;
    return ZF_OK;
}

static enum zf_status bury(struct zf_pipeline *p, struct zf_rows_memory *m, uint64_t after, struct zf_err *e)
{
    return zf_pipeline_bury(p, zf_chunks_give(&p->chunks, m), after, e);
}

/* This step's slot becomes an entry of the open window. */
static enum zf_status enter(struct zf_pipeline *p, struct zf_matrix *x, float clip, struct zf_err *e)
{
    struct zf_update *u = &x->open;
    bool mean = p->policy.cpu_update == ZF_CPU_UPDATE_MEAN, folds = mean && !p->policy.accumulate_on_device;
    if (!u->room) ZF_TRY(make_entries(p, u, e));
    uint32_t place = mean ? 0 : u->count;
    u->entries[place] = (struct zf_entry){{x->slot.chunk, x->slot.chunk_rows}, clip, p->rate};
    u->slots[place] = x->slot;
    x->slot = (struct zf_rows_memory){0};
    u->last_rate = p->rate;
    u->sum_rate += p->rate;
    if (folds && zf_cpu_rows(x)) {
        ZF_TRY(zf_pipeline_fold(p, x, e));
        ZF_TRY(bury(p, &u->slots[0], p->step + 2 + 2 * (uint64_t)p->policy.interval, e));
    }
    u->count++;
    return ZF_OK;
}

static void close_window(struct zf_pipeline *p, struct zf_matrix *x, uint64_t t)
{
    zf_window_close(&x->window, &p->policy, t);
    x->up = x->open;
    x->open = (struct zf_update){0};
    x->up.rule = p->rule;
    x->up.cpu_rate = p->policy.cpu_rate;
}

static enum zf_status serve_due(struct zf_pipeline *p, struct zf_matrix *x, uint64_t t, struct zf_err *e)
{
    struct zf_window *w = &x->window;
    if (!w->up.any || w->up.served || w->up.serve > t) return ZF_OK;
    w->up.served = true;
    return zf_pipeline_serve(p, x, &x->up, false, e);
}

static enum zf_status matrix_step(struct zf_pipeline *p, struct zf_matrix *x, bool counts, float clip, struct zf_err *e)
{
    uint64_t t = p->step + 1;
    struct zf_window *w = &x->window;
    bool due = due_now(p, x), selects = counts && zf_window_may_select(w, &p->policy, t);
    if (selects) {
        if (w->up.any) ZF_TRY(serve_due(p, x, UINT64_MAX, e)); /* channels leave with what the window did to them */
        ZF_TRY(zf_pipeline_select(p, x, e));
        w->selected = t;
        if (due) ZF_TRY(zf_pipeline_show(p, x, p->policy.optimistic, true, e));
        if (p->comm) ZF_TRY(zf_ranks_selected_of(p, x, e));
    }
    if (p->policy.accumulate_on_device) {
        if (counts) ZF_TRY(zf_pipeline_sum_on_device(p, x, clip, e));
        if (zf_window_ends(w, &p->policy, t) && (counts || x->open.count)) ZF_TRY(zf_pipeline_lower_sum(p, x, e));
    } else if (!x->handed && packs(p)) {
        ZF_TRY(hand_over_rest(p, x, counts, !due, e));
    }
    if (due) ZF_TRY(move_arrived(p, x, e));
    if (due || !w->up.any) x->arrived = 0;
    if (!counts) return ZF_OK;
    w->starts = false;
    return x->assigned && x->device.rows ? device_half(p, x->param, &x->device, x->device_order, p->policy.bus, clip, e) : ZF_OK;
}

/* The CPU half, after the gradients have been handed over. */
static enum zf_status window_step(struct zf_pipeline *p, struct zf_matrix *x, bool counts, float clip, struct zf_err *e)
{
    uint64_t t = p->step + 1;
    struct zf_window *w = &x->window;
    if (x->slot.chunk && counts) {
        ZF_TRY(enter(p, x, clip, e));
    } else if (x->slot.chunk) {
        ZF_TRY(bury(p, &x->slot, t + 1, e));
    } else if (counts && packs(p)) { /* without rows a window still has its steps */
        ZF_TRY(enter(p, x, clip, e));
    }
    bool ends = zf_window_ends(w, &p->policy, t);
    w->starts |= ends;
    if (ends && p->policy.visible == ZF_VISIBLE_NONE && x->open.count) close_window(p, x, t);
    ZF_TRY(serve_due(p, x, t, e));
    ends = ends && x->open.count;
    if (zf_window_shows(w, t) && (!p->policy.layered || ends)) ZF_TRY(zf_pipeline_show(p, x, p->policy.optimistic, true, e));
    if (ends) {
        close_window(p, x, t);
        ZF_TRY(serve_due(p, x, t, e));
    }
    return ZF_OK;
}

static enum zf_status after_norm(struct zf_pipeline *p, bool counts, float clip, struct zf_err *e)
{
    p->torn = true;
    for (size_t i = 0; i < p->matrices; i++) ZF_TRY(matrix_step(p, &p->matrix[i], counts, clip, e));
    for (size_t i = 0; counts && i < p->vectors; i++)
        ZF_TRY(device_half(p, p->vector[i].param, &p->vector[i].state, NULL, ZF_F32, clip, e));
    ZF_TRY(zf_pipeline_record(p->device, p->d2h, p->lowered, e));
    ZF_TRY(zf_pipeline_wait(p->host, p->cpu, p->lowered, e));
    for (size_t i = 0; i < p->matrices; i++) ZF_TRY(window_step(p, &p->matrix[i], counts, clip, e));
    if (p->policy.cpu_update == ZF_CPU_UPDATE_MEAN) {
        ZF_TRY(zf_pipeline_record(p->host, p->cpu, p->folded, e));
        ZF_TRY(zf_pipeline_wait(p->device, p->d2h, p->folded, e)); /* slots are used again in the next step */
    }
    if (p->model->master) zf_pipeline_release_masters(p);
    if (counts) p->last_clip = clip;
    p->step++;
    p->torn = false;
    return ZF_OK;
}

/* A lane that has failed does nothing more; nobody else would say so before the next time that lanes are waited for. */
static enum zf_status lanes_work(struct zf_pipeline *p, struct zf_err *e)
{
    const struct {
        const char *name;
        struct zf_device *device;
        struct zf_lane *lane;
    } lanes[] = {{"the compute lane", p->device, p->compute},
                 {"the d2h lane", p->device, p->d2h},
                 {"the h2d lane", p->device, p->h2d},
                 {"the cpu lane", p->host, p->cpu},
                 {"the comm lane", p->device, p->exchange}};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes && lanes[i].lane; i++) {
        enum zf_status s = lanes[i].device->type->lane_failed(lanes[i].lane, e);
        if (s && !*e->where) snprintf(e->where, sizeof e->where, "%s", lanes[i].name);
        if (s) return s;
    }
    return p->comm ? zf_comm_failed(p->comm, e) : ZF_OK;
}

enum zf_status zf_pipeline_finish(struct zf_pipeline *p, struct zf_step_norm *out, struct zf_err *e)
{
    phase(p, ZF_PHASE_UPDATE);
    if (p->comm) ZF_TRY(zf_ranks_losses(p, e));
    ISSUE_READY(p, clip_factor, e, .partial = p->partial, .count = p->partials, .loss = p->loss, .clip_norm = p->rule.clip_norm,
                .out = p->norm);
    ZF_TRY(zf_pipeline_copy(p, p->ready, p->seen, p->norm, sizeof *p->seen, e));
    ZF_TRY(zf_pipeline_record(p->device, p->ready, p->normed, e));
    ZF_TRY(p->device->type->event_sync(p->normed, e));
    ZF_TRY(lanes_work(p, e));
    *out = *p->seen;
    if (p->comm) ZF_TRY(zf_ranks_normed(p, out, e));
    zf_pipeline_exhume(p, p->step + 1);
    return after_norm(p, out->apply != 0, out->clip, e);
}

enum zf_status zf_pipeline_absent(struct zf_pipeline *p, struct zf_err *e)
{
    struct zf_model *m = p->model;
    enum zf_status s = p->device->type->fill(p->compute, m->grad, 0, m->params.elements * sizeof *m->grad);
    if (s) return zf_lane_refused(p->device, p->compute, s, "the gradients", e);
    zf_pipeline_last(p);
    for (int layer = (int)m->config.layers; layer >= -1; layer--) ZF_TRY(zf_pipeline_after_layer(p, layer, e));
    return ZF_OK;
}

enum zf_status zf_pipeline_skip(struct zf_pipeline *p, double rate, struct zf_err *e)
{
    p->rate = rate;
    p->graded = false;
    ZF_TRY(zf_pipeline_settle(p, e)); /* no forward asks for what is due */
    p->ready = p->compute;
    for (size_t i = 0; i < p->matrices; i++) p->matrix[i].handed = true;
    return after_norm(p, false, 1, e);
}
