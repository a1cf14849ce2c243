/* What ranks exchange in a step, in the lane `exchange`, and what each does there with the rows of its share. Which rows there are, and so
 * what is exchanged, every rank knows by itself: by owners, windows and steps, which are the same on all. */
#include "core/pipeline/impl.h"
#include "core/pipeline/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* of what stands side by side in the piece */

/* ---- opening ---- */

static size_t pieces(size_t elements)
{
    return (elements + ZF_SQUARES_CHUNK - 1) / ZF_SQUARES_CHUNK;
}

size_t zf_squares_pieces(const struct zf_pipeline *p, const struct zf_param *q)
{
    size_t n = 0;
    int ranks = p->comm && q->matrix ? p->comm->ranks : 1;
    for (int r = 0; r < ranks; r++) n += pieces((zf_share(q->rows, r + 1, ranks) - zf_share(q->rows, r, ranks)) * q->cols);
    return n;
}

static enum zf_status take(struct zf_pipeline *p, enum zf_memory_kind kind, void *out, size_t bytes, struct zf_err *e)
{
    void *got = NULL;
    enum zf_status s = p->device->type->alloc(p->device, kind, ZF_TAG_OTHER, bytes ? bytes : 1, &got, e);
    memcpy(out, &got, sizeof got);
    return s;
}

enum zf_status zf_ranks_open(struct zf_pipeline *p, size_t longest_row, size_t most_channels, struct zf_err *e)
{
    const struct zf_device_type *t = p->device->type;
    size_t ranks = (size_t)p->comm->ranks, all = p->matrices + p->vectors + 1;
    struct zf_exchange *c = p->common = calloc(1, sizeof *c);
    if (!c) return zf_fail_memory(e, "what ranks exchange");
    c->each = calloc(ranks + 1, sizeof *c->each);
    c->some = calloc(ranks + 1, sizeof *c->some);
    c->clipped = calloc((ranks + 1) * all, sizeof *c->clipped);
    c->list = calloc(all, sizeof *c->list);
    if (!c->each || !c->some || !c->clipped || !c->list) return zf_fail_memory(e, "what ranks exchange");
    zf_shares(ranks, p->comm->ranks, c->each);
    c->piece_bytes = zf_ranks_piece_bytes(longest_row) / ALIGNMENT * ALIGNMENT;
    ZF_TRY(t->lane_new(p->device, "comm", &p->exchange, e));
    struct zf_event **const events[] = {&c->turned, &c->turned_back, &c->columns_full, &c->columns_idle};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) ZF_TRY(t->event_new(p->device, events[i], e));
    ZF_TRY(take(p, ZF_MEM_DEVICE, &c->losses, ranks * sizeof *c->losses, e));
    ZF_TRY(take(p, ZF_MEM_PINNED, &c->losses_seen, ranks * sizeof *c->losses, e));
    ZF_TRY(take(p, ZF_MEM_DEVICE, &c->scores, most_channels * sizeof *c->scores, e));
    ZF_TRY(take(p, ZF_MEM_DEVICE, &c->known, longest_row * sizeof *c->known, e));
    ZF_TRY(take(p, ZF_MEM_DEVICE, &c->columns, ZF_COLUMN_PARTS * longest_row * sizeof *c->columns, e));
    return take(p, ZF_MEM_DEVICE, &c->piece, c->piece_bytes, e);
}

void zf_ranks_close(struct zf_pipeline *p)
{
    const struct zf_device_type *t = p->device->type;
    struct zf_exchange *c = p->common;
    void *const memory[] = {c->losses, c->losses_seen, c->scores, c->columns, c->known, c->piece};
    struct zf_event *const events[] = {c->turned, c->turned_back, c->columns_full, c->columns_idle};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) t->free(p->device, memory[i]);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) t->event_free(events[i]);
    free(c->each);
    free(c->some);
    free(c->clipped);
    free(c->list);
    free(c);
}

enum zf_status zf_shares_open(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    size_t ends = (size_t)p->comm->ranks + 1;
    struct zf_shares *s = x->shares = calloc(1, sizeof *s);
    if (!s) return zf_fail_memory(e, "shares of ranks");
    s->first = calloc(4 * ends, sizeof *s->first);
    s->list = calloc(x->channels, sizeof *s->list);
    s->staged = calloc(x->channels, 1);
    if (!s->first || !s->list || !s->staged) return zf_fail_memory(e, "shares of ranks");
    s->partial = s->first + ends;
    s->device = s->partial + ends;
    s->cpu = s->device + ends;
    s->parts = p->column_parts;
    s->length = x->length;
    zf_shares(x->channels, p->comm->ranks, s->first);
    for (size_t r = 1; r < ends; r++) s->partial[r] = s->partial[r - 1] + pieces((s->first[r] - s->first[r - 1]) * x->length);
    ZF_TRY(take(p, ZF_MEM_DEVICE, &s->device_list, x->channels * sizeof *s->list, e));
    ZF_TRY(take(p, ZF_MEM_PINNED, &s->column, x->length * sizeof *s->column, e));
    return p->device->type->event_new(p->device, &s->here, e);
}

void zf_shares_close(struct zf_pipeline *p, struct zf_matrix *x)
{
    struct zf_shares *s = x->shares;
    p->device->type->free(p->device, s->device_list);
    p->device->type->free(p->device, s->column);
    if (s->here) p->device->type->event_free(s->here);
    free(s->first);
    free(s->list);
    free(s->staged);
    free(s);
    x->shares = NULL;
}

/* ---- the lane ---- */

enum zf_status zf_ranks_follow(struct zf_pipeline *p, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_record(p->device, p->compute, p->common->turned, e));
    ZF_TRY(zf_pipeline_wait(p->device, p->exchange, p->common->turned, e));
    p->ready = p->exchange;
    return ZF_OK;
}

enum zf_status zf_ranks_lead(struct zf_pipeline *p, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_record(p->device, p->exchange, p->common->turned_back, e));
    ZF_TRY(zf_pipeline_wait(p->device, p->compute, p->common->turned_back, e));
    p->ready = p->compute;
    return ZF_OK;
}

enum zf_status zf_ranks_collect(struct zf_pipeline *p, bool sum, const struct zf_comm_rows *list, size_t count, struct zf_err *e)
{
    const struct zf_comm_type *t = p->comm->type;
    for (size_t i = 0; i < count; i++) p->counts.comm_bytes += zf_comm_bytes(p->comm, sum, &list[i]);
    enum zf_status s = sum ? t->reduce_scatter(p->comm, p->exchange, list, count) : t->all_gather(p->comm, p->exchange, list, count);
    if (!s) return ZF_OK;
    return zf_comm_failed(p->comm, e) ? e->code : zf_lane_refused(p->device, p->exchange, s, "an exchange between ranks", e);
}

/* Rows of a list, each rank's together, from where they are on their owners' devices to the same place on all: some at a time, packed, as
 * `wire`. */
struct spread {
    void *base;
    enum zf_dtype type, wire;
    size_t cols;
    const uint32_t *list; /* on the device */
    const size_t *first;  /* [ranks + 1] */
};

/* A part of it that lies in the piece. */
struct packed {
    const struct spread *of;
    size_t at, rows;
    const size_t *first; /* [ranks + 1] of these rows */
    char *place;
};

struct batch {
    struct packed *part;
    size_t count, room, used; /* used: bytes of the piece */
};

static enum zf_status unpack(struct zf_pipeline *p, const struct packed *x, size_t at, size_t rows, struct zf_err *e)
{
    const struct spread *to = x->of;
    ISSUE_EXCHANGE(p, move_rows, e, .type = to->type, .from_type = to->wire, .to = to->base,
                   .from = x->place + at * to->cols * zf_dtype_size(to->wire), .to_list = to->list + x->at + at, .rows = rows,
                   .cols = to->cols);
    return ZF_OK;
}

static enum zf_status send(struct zf_pipeline *p, struct batch *b, struct zf_err *e)
{
    if (!b->count) return ZF_OK;
    ZF_TRY(zf_ranks_collect(p, false, p->common->list, b->count, e));
    for (size_t i = 0; i < b->count; i++) {
        const struct packed *x = &b->part[i];
        size_t own = x->first[p->comm->rank], behind = x->first[p->comm->rank + 1];
        ZF_TRY(unpack(p, x, 0, own, e));
        ZF_TRY(unpack(p, x, behind, x->rows - behind, e));
    }
    b->count = b->used = 0;
    return ZF_OK;
}

static size_t clamp(size_t x, size_t least, size_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* Rows at .. at + n of the list: the own ones are packed, the others are to come. */
static enum zf_status pack(struct zf_pipeline *p, struct batch *b, const struct spread *x, size_t at, size_t n, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    size_t ends = (size_t)p->comm->ranks + 1, row = x->cols * zf_dtype_size(x->wire), *first = c->clipped + b->count * ends;
    char *place = c->piece + b->used;
    for (size_t r = 0; r < ends; r++) first[r] = clamp(x->first[r], at, at + n) - at;
    size_t own = first[p->comm->rank], rows = first[p->comm->rank + 1] - own;
    ISSUE_EXCHANGE(p, move_rows, e, .type = x->wire, .from_type = x->type, .to = place + own * row, .from = x->base,
                   .from_list = x->list + at + own, .rows = rows, .cols = x->cols);
    c->list[b->count] = (struct zf_comm_rows){place, x->wire, x->cols, first};
    b->part[b->count++] = (struct packed){x, at, n, first, place};
    b->used += (n * row + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return ZF_OK;
}

static enum zf_status spread(struct zf_pipeline *p, const struct spread *list, size_t count, struct zf_err *e)
{
    size_t most = p->matrices + p->vectors + 1; /* room of the lists */
    struct batch b = {.part = calloc(most, sizeof *b.part)};
    enum zf_status s = b.part ? ZF_OK : zf_fail_memory(e, "what ranks exchange");
    for (size_t i = 0; !s && i < count; i++) {
        const struct spread *x = &list[i];
        size_t all = x->first[p->comm->ranks], row = x->cols * zf_dtype_size(x->wire);
        for (size_t at = 0, n; !s && at < all; at += n) {
            size_t room = (p->common->piece_bytes - b.used) / row;
            n = all - at < room ? all - at : room;
            if (n && b.count < most)
                s = pack(p, &b, x, at, n, e);
            else
                n = 0, s = send(p, &b, e);
        }
    }
    if (!s) s = send(p, &b, e);
    free(b.part);
    return s;
}

/* ---- gradients ---- */

static bool scored(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return p->score_all || zf_window_may_select(&x->window, &p->policy, p->step + 1);
}

/* Sums of the layer's gradients: of matrices the own share's, of vectors all. */
static enum zf_status sum_up(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    size_t n = 0, matrices, ends = (size_t)p->comm->ranks + 1;
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer == layer) c->list[n++] = (struct zf_comm_rows){p->model->grad + x->param->offset, ZF_F32, x->length, x->shares->first};
    }
    matrices = n;
    for (size_t i = 0; i < p->vectors; i++) {
        const struct zf_vector *v = &p->vector[i];
        size_t *first = c->clipped + n * ends;
        if (v->layer != layer) continue;
        zf_shares(v->param->rows * v->param->cols, p->comm->ranks, first);
        c->list[n++] = (struct zf_comm_rows){p->model->grad + v->param->offset, ZF_F32, 1, first};
    }
    if (!n) return ZF_OK;
    ZF_TRY(zf_ranks_collect(p, true, c->list, n, e));
    return n > matrices ? zf_ranks_collect(p, false, c->list + matrices, n - matrices, e) : ZF_OK;
}

/* What the own share says of a matrix. */
static enum zf_status measure(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    int rank = p->comm->rank;
    size_t first = x->shares->first[rank], rows = x->shares->first[rank + 1] - first;
    const float *g = p->model->grad + x->param->offset + first * x->length;
    double *partial = p->partial + x->partial_at + x->shares->partial[rank], *sums = p->sums + p->sums_at[x - p->matrix] + 2 * first;
    if (scored(p, x))
        ISSUE_EXCHANGE(p, row_sums, e, .g = g, .sums = sums, .rows = rows, .cols = x->length, .partial = partial);
    else
        ISSUE_EXCHANGE(p, sum_squares, e, .x = g, .partial = partial, .n = rows * x->length);
    return ZF_OK;
}

/* The scores of a matrix from all ranks, one number a channel; with those by magnitude the squares come along, which tell how much of the
 * gradient is selected. */
static enum zf_status gather_scores(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    enum { FLOATS = sizeof(double) / sizeof(float) };
    int rank = p->comm->rank;
    size_t at = p->sums_at[x - p->matrix], first = x->shares->first[rank], rows = x->shares->first[rank + 1] - first;
    double *sums = p->sums + at, *scores = p->common->scores;
    struct zf_comm_rows both = {sums, ZF_F64, 2, x->shares->first}, one = {scores, ZF_F64, 1, x->shares->first};
    if (p->policy.score == ZF_SCORE_L1) {
        ZF_TRY(zf_ranks_collect(p, false, &both, 1, e));
    } else {
        ISSUE_EXCHANGE(p, copy_rows, e, .type = ZF_F32, .from = sums + 2 * first, .to = scores + first, .rows = rows, .cols = FLOATS,
                       .ld_from = 2 * FLOATS, .ld_to = FLOATS);
        ZF_TRY(zf_ranks_collect(p, false, &one, 1, e));
        ISSUE_EXCHANGE(p, copy_rows, e, .type = ZF_F32, .from = scores, .to = sums, .rows = x->channels, .cols = FLOATS, .ld_from = FLOATS,
                       .ld_to = 2 * FLOATS);
    }
    return zf_pipeline_copy(p, p->exchange, p->sums_seen + at, sums, 2 * x->channels * sizeof *sums, e);
}

enum zf_status zf_ranks_sum(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    size_t n = 0;
    ZF_TRY(zf_ranks_follow(p, e));
    ZF_TRY(sum_up(p, layer, e));
    for (size_t i = 0; i < p->vectors; i++) {
        const struct zf_param *q = p->vector[i].param;
        if (p->vector[i].layer == layer)
            ISSUE_EXCHANGE(p, sum_squares, e, .x = p->model->grad + q->offset, .partial = p->partial + p->vector[i].partial_at,
                           .n = q->rows * q->cols);
    }
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer != layer) continue;
        ZF_TRY(measure(p, x, e));
        c->list[n++] = (struct zf_comm_rows){p->partial + x->partial_at, ZF_F64, 1, x->shares->partial};
    }
    if (n) ZF_TRY(zf_ranks_collect(p, false, c->list, n, e));
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].layer == layer && scored(p, &p->matrix[i])) ZF_TRY(gather_scores(p, &p->matrix[i], e));
    return ZF_OK;
}

/* As they cross the bus: whoever updates by them rounds them so. */
static struct spread selected(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return (struct spread){p->model->grad + x->param->offset, ZF_F32, p->policy.bus, x->length, x->shares->device_list, x->shares->device};
}

enum zf_status zf_ranks_selected(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    size_t n = 0;
    struct spread *list = malloc((p->matrices + 1) * sizeof *list);
    if (!list) return zf_fail_memory(e, "what ranks exchange");
    for (size_t i = 0; i < p->matrices; i++) {
        const struct zf_matrix *x = &p->matrix[i];
        bool selects = zf_window_may_select(&x->window, &p->policy, p->step + 1); /* then it is not known yet */
        if (x->layer == layer && x->assigned && !selects) list[n++] = selected(p, x);
    }
    enum zf_status s = spread(p, list, n, e);
    free(list);
    return s;
}

enum zf_status zf_ranks_selected_of(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct spread one = selected(p, x);
    ZF_TRY(zf_ranks_follow(p, e));
    ZF_TRY(spread(p, &one, 1, e));
    return zf_ranks_lead(p, e);
}

/* ---- weights ---- */

static enum zf_status visible_of(struct zf_pipeline *p, int layer, struct spread *list, struct zf_err *e)
{
    size_t n = 0;
    enum zf_dtype type = p->model->dtype;
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer == layer && x->shares->stale && x->assigned)
            list[n++] = (struct spread){zf_matrix_weights(p, x->param),          type,          type, x->length,
                                        x->shares->device_list + x->device.rows, x->shares->cpu};
    }
    if (!n) return ZF_OK;
    ZF_TRY(zf_pipeline_hold(p, false, e));
    ZF_TRY(spread(p, list, n, e));
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_shares *s = p->matrix[i].shares;
        if (p->matrix[i].layer != layer || !s->stale) continue;
        s->stale = false;
        s->coming = true;
        ZF_TRY(zf_pipeline_record(p->device, p->exchange, s->here, e));
    }
    return ZF_OK;
}

enum zf_status zf_ranks_visible(struct zf_pipeline *p, struct zf_err *e)
{
    struct spread *list = malloc((p->matrices + 1) * sizeof *list);
    enum zf_status s = list ? ZF_OK : zf_fail_memory(e, "what ranks exchange");
    for (int layer = -1; !s && layer <= (int)p->model->config.layers; layer++) s = visible_of(p, layer, list, e);
    free(list);
    return s;
}

enum zf_status zf_ranks_await(struct zf_pipeline *p, int layer, struct zf_err *e)
{
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->layer != layer) continue;
        if (x->shares->stale || zf_window_shows(&x->window, p->step))
            return zf_fail(e, ZF_USAGE, x->param->name, "its rows of other ranks are not here: a mistake in the program");
        if (x->shares->coming) ZF_TRY(zf_pipeline_wait(p->device, p->compute, x->shares->here, e));
        x->shares->coming = false;
    }
    return ZF_OK;
}

/* ---- norm and loss ---- */

enum zf_status zf_ranks_losses(struct zf_pipeline *p, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    struct zf_comm_rows rows = {c->losses, ZF_F64, 1, c->each};
    ZF_TRY(zf_ranks_follow(p, e));
    ZF_TRY(zf_pipeline_copy(p, p->exchange, c->losses + p->comm->rank, p->loss, sizeof *c->losses, e));
    ZF_TRY(zf_ranks_collect(p, false, &rows, 1, e));
    return zf_pipeline_copy(p, p->exchange, c->losses_seen, c->losses, (size_t)p->comm->ranks * sizeof *c->losses, e);
}

static double loss_of_all(const struct zf_pipeline *p)
{
    double sum = 0;
    for (int r = 0; r < p->comm->ranks; r++) sum += p->common->losses_seen[r];
    return sum;
}

enum zf_status zf_ranks_normed(struct zf_pipeline *p, struct zf_step_norm *out, struct zf_err *e)
{
    out->loss = loss_of_all(p);
    out->apply = isfinite(out->norm) && isfinite(out->loss); /* the device has seen the own loss alone */
    ZF_TRY(zf_pipeline_wait(p->device, p->compute, p->normed, e));
    p->ready = p->compute;
    return ZF_OK;
}

enum zf_status zf_ranks_loss(struct zf_pipeline *p, double *loss, struct zf_err *e)
{
    ZF_TRY(zf_ranks_losses(p, e));
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    ZF_TRY(p->device->type->lane_sync(p->exchange, e));
    ZF_TRY(zf_comm_failed(p->comm, e));
    *loss = loss_of_all(p);
    return ZF_OK;
}

/* ---- second moments of columns ---- */

void zf_ranks_staged(struct zf_matrix *x)
{
    struct zf_shares *s = x->shares;
    memset(s->staged, 0, x->channels);
    for (size_t i = x->device.rows; i < x->channels; i++) s->staged[s->list[i]] = 1;
    s->staged_rows = x->channels - x->device.rows;
}

static void add_parts(void *shares)
{
    struct zf_shares *s = shares;
    for (size_t c = 0; c < s->length; c++) {
        s->column[c] = 0;
        for (size_t part = 0; part < ZF_COLUMN_PARTS; part++) s->column[c] += s->parts[part * s->length + c];
    }
}

static void add_nothing(void *shares)
{
    struct zf_shares *s = shares;
    memset(s->column, 0, s->length * sizeof *s->column);
}

enum zf_status zf_ranks_add_columns(struct zf_pipeline *p, struct zf_matrix *x, bool any, struct zf_err *e)
{
    x->shares->summed = true;
    ZF_TRY(zf_pipeline_wait(p->host, p->cpu, p->raised, e)); /* h2d has read what was there */
    enum zf_status s = p->host->type->call(p->cpu, any ? add_parts : add_nothing, x->shares);
    return s ? zf_lane_refused(p->host, p->cpu, s, "second moments of columns", e) : ZF_OK;
}

/* Column shares by all ranks' sums, which the lane exchange then has in `to`. */
static enum zf_status sum_columns(struct zf_pipeline *p, struct zf_matrix *x, float *to, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    size_t bytes = x->length * sizeof *c->columns;
    struct zf_comm_rows rows = {c->columns, ZF_F64, 1, c->some};
    ZF_TRY(zf_pipeline_wait(p->device, p->h2d, c->columns_idle, e));
    ZF_TRY(zf_pipeline_copy(p, p->h2d, c->columns, x->shares->column, bytes, e));
    ZF_TRY(zf_pipeline_record(p->device, p->h2d, c->columns_full, e));
    p->counts.h2d_bytes += bytes;
    ZF_TRY(zf_pipeline_wait(p->device, p->exchange, c->columns_full, e));
    zf_shares(x->length, p->comm->ranks, c->some);
    ZF_TRY(zf_ranks_collect(p, true, &rows, 1, e));
    ZF_TRY(zf_ranks_collect(p, false, &rows, 1, e));
    enum zf_status s = p->device->type->fill(p->exchange, c->columns + x->length, 0, (ZF_COLUMN_PARTS - 1) * bytes);
    if (s) return zf_lane_refused(p->device, p->exchange, s, "second moments of columns", e);
    ISSUE_EXCHANGE(p, column_shares, e, .column = c->columns, .share = to, .rows = x->shares->staged_rows, .cols = x->length);
    return zf_pipeline_record(p->device, p->exchange, c->columns_idle, e);
}

enum zf_status zf_ranks_columns(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    bool turns = p->ready != p->exchange;
    x->shares->summed = false;
    if (turns) ZF_TRY(zf_ranks_follow(p, e));
    ZF_TRY(sum_columns(p, x, x->column, e));
    return turns ? zf_ranks_lead(p, e) : ZF_OK;
}

enum zf_status zf_ranks_complete(struct zf_pipeline *p, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    ZF_TRY(zf_ranks_follow(p, e));
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (!x->shares->summed || !zf_is_staged(x)) continue;
        x->shares->summed = false;
        ZF_TRY(zf_pipeline_wait(p->device, p->h2d, x->served, e));
        ZF_TRY(sum_columns(p, x, c->known, e));
        ZF_TRY(zf_pipeline_copy(p, p->exchange, x->next_column, c->known, x->length * sizeof *c->known, e));
        ZF_TRY(zf_pipeline_record(p->device, p->h2d, p->raised, e));
    }
    ZF_TRY(zf_pipeline_record(p->device, p->exchange, c->turned_back, e));
    ZF_TRY(zf_pipeline_wait(p->device, p->h2d, c->turned_back, e));
    return zf_pipeline_wait(p->host, p->cpu, c->turned_back, e);
}
