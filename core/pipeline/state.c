/* See state.h: the list of pieces, and how each is read and written. */
#include "core/pipeline/state_impl.h"

#include "core/base/floats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t zf_state_type_bytes(enum zf_state_type t)
{
    static const size_t bytes[] = {[ZF_STATE_F32] = 4, [ZF_STATE_BF16] = 2, [ZF_STATE_U32] = 4, [ZF_STATE_I16] = 2, [ZF_STATE_I32] = 4};
    return bytes[t];
}

/* ---- the list ---- */

static enum zf_status add(struct zf_state *s, const char *what, struct zf_state_piece x, struct zf_err *e)
{
    struct zf_state_part *part = &s->part[s->parts];
    if (!x.rows || !x.cols) return ZF_OK;
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        struct zf_state_piece *grown = realloc(s->list, room * sizeof *grown);
        if (!grown) return zf_fail_memory(e, "the list of what is saved");
        s->list = grown;
        s->room = room;
    }
    x.part = s->parts;
    if (!s->pipeline->comm || !part->matrix) x.split = ZF_STATE_WHOLE;
    snprintf(x.name, sizeof x.name, "%.180s:%s", part->param->name, what);
    s->list[s->count++] = x;
    part->pieces++;
    return ZF_OK;
}

static enum zf_state_type state_type(enum zf_dtype t)
{
    return t == ZF_F32 ? ZF_STATE_F32 : ZF_STATE_BF16;
}

static enum zf_status add_update(struct zf_state *s, const struct zf_matrix *x, const struct zf_update *u, const char *which,
                                 struct zf_err *e)
{
    const struct zf_pipeline *p = s->pipeline;
    size_t rows = zf_cpu_rows(x);
    char name[64];
    bool sum = u->sum.chunk != NULL;
    for (uint32_t i = 0; u->slots && i < u->count && i < u->room; i++) {
        if (!u->slots[i].chunk) continue;
        snprintf(name, sizeof name, "%s.%u", which, i);
        struct zf_state_piece slot = {.type = state_type(p->policy.bus),
                                      .rows = rows,
                                      .cols = x->length,
                                      .place = ZF_STATE_CHUNKED,
                                      .chunks = u->slots[i],
                                      .split = ZF_STATE_BY_RANK};
        ZF_TRY(add(s, name, slot, e));
    }
    snprintf(name, sizeof name, "%s.sum", which);
    struct zf_state_piece all = {.type = ZF_STATE_F32,
                                 .rows = rows,
                                 .cols = x->length,
                                 .place = ZF_STATE_CHUNKED,
                                 .chunks = u->sum,
                                 .cpu_own = true,
                                 .split = ZF_STATE_BY_RANK};
    return sum ? add(s, name, all, e) : ZF_OK;
}

/* What is beside master, m, v, t: who owns what, what is on its way, second moments by which the CPU half's rows move. */
static enum zf_status add_matrix(struct zf_state *s, const struct zf_matrix *x, struct zf_err *e)
{
    const struct zf_pipeline *p = s->pipeline;
    bool staged = x->staging.chunk && x->staged_rows;
    size_t sums = x->device_sum && x->open.count ? zf_cpu_rows(x) : 0, rows = staged ? x->staged_rows : 0;
    enum zf_state_type bits = state_type(p->model->dtype);
    const struct {
        const char *what;
        struct zf_state_piece piece;
    } list[] = {
        {"channel",
         {.type = ZF_STATE_F32,
          .rows = x->channels,
          .cols = 1,
          .place = ZF_STATE_DEVICE,
          .memory = x->channel,
          .forward_own = true,
          .split = ZF_STATE_BY_CHANNEL}},
        {"column",
         {.type = ZF_STATE_F32, .rows = x->length, .cols = 1, .place = ZF_STATE_DEVICE, .memory = x->column, .forward_own = true}},
        {"arrived", {.type = ZF_STATE_U32, .rows = x->arrived, .cols = 1, .place = ZF_STATE_HOST, .memory = x->arrived_list}},
        {"open.device_sum",
         {.type = ZF_STATE_F32,
          .rows = sums,
          .cols = x->length,
          .place = ZF_STATE_DEVICE,
          .memory = x->device_sum,
          .split = ZF_STATE_BY_RANK}},
        {"staged", {.type = ZF_STATE_U32, .rows = rows, .cols = 1, .place = ZF_STATE_HOST, .memory = x->staged, .split = ZF_STATE_BY_RANK}},
        {"staging",
         {.type = bits,
          .rows = rows,
          .cols = x->length,
          .place = ZF_STATE_CHUNKED,
          .chunks = x->staging,
          .cpu_own = true,
          .split = ZF_STATE_BY_RANK}},
        {"next_channel",
         {.type = ZF_STATE_F32,
          .rows = rows,
          .cols = 1,
          .place = ZF_STATE_HOST,
          .memory = x->next_channel,
          .cpu_own = true,
          .split = ZF_STATE_BY_RANK}},
        {"next_column",
         {.type = ZF_STATE_F32,
          .rows = zf_is_staged(x) ? x->length : 0,
          .cols = 1,
          .place = ZF_STATE_HOST,
          .memory = x->next_column,
          .cpu_own = true}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) ZF_TRY(add(s, list[i].what, list[i].piece, e));
    ZF_TRY(add_update(s, x, &x->open, "open", e));
    return x->window.up.any && !x->window.up.served ? add_update(s, x, &x->up, "up", e) : ZF_OK;
}

static void describe(struct zf_state_part *part, const struct zf_pipeline *p, const struct zf_param *q, struct zf_matrix *x,
                     const struct zf_vector *v)
{
    *part = (struct zf_state_part){.param = q, .weights = zf_matrix_weights(p, q)};
    if (x && x->assigned) {
        part->matrix = x;
        part->channels = x->channels;
        part->length = x->length;
        part->device_rows = x->device.rows;
        part->cpu_rows = x->cpu.rows;
        part->order = x->order;
        part->serves = zf_window_serves(&x->window, &p->policy, p->step);
        zf_half_arrays(p, x, &x->device, part->device);
        zf_half_arrays(p, x, &x->cpu, part->cpu);
    } else {
        part->block = v && v->state.master ? v->state.master : p->model->master + q->offset;
    }
}

static enum zf_status add_parameter(struct zf_state *s, const struct zf_param *q, struct zf_matrix *x, struct zf_vector *v,
                                    struct zf_err *e)
{
    static const char *const arrays[ZF_ARRAYS] = {"master", "m", "v", "t"};
    bool f32 = s->pipeline->model->dtype == ZF_F32;
    struct zf_state_part *part = &s->part[s->parts];
    struct zf_state_piece of = {
        .type = ZF_STATE_F32, .rows = q->rows, .cols = q->cols, .place = ZF_STATE_MASTER, .split = ZF_STATE_BY_CHANNEL};
    describe(part, s->pipeline, q, x, v);
    if (part->matrix) { /* first of all: it says where the rows of the others are */
        struct zf_state_piece order = {
            .type = ZF_STATE_U32, .rows = x->channels, .cols = 1, .place = ZF_STATE_HOST, .memory = x->order, .split = ZF_STATE_ORDER};
        ZF_TRY(add(s, "order", order, e));
    }
    ZF_TRY(add(s, arrays[0], of, e));
    of.place = ZF_STATE_VISIBLE;
    of.type = f32 ? ZF_STATE_I32 : ZF_STATE_I16;
    if (!f32 || (x && zf_all_cpu_rows(x))) ZF_TRY(add(s, "visible", of, e)); /* else it is the master */
    for (int k = 1; k < ZF_ARRAYS && (part->matrix || v); k++) {
        of = (struct zf_state_piece){.type = k == 3 ? ZF_STATE_U32 : ZF_STATE_F32,
                                     .rows = k == 3 && v ? 1 : q->rows,
                                     .cols = k == 3 ? 1 : q->cols,
                                     .place = v ? ZF_STATE_DEVICE : ZF_STATE_HALVES,
                                     .split = ZF_STATE_BY_CHANNEL,
                                     .array = k};
        if (v) of.memory = k == 1 ? (void *)v->state.m : k == 2 ? (void *)v->state.v : (void *)v->state.t;
        ZF_TRY(add(s, arrays[k], of, e));
    }
    if (part->matrix) ZF_TRY(add_matrix(s, x, e));
    s->parts++;
    return ZF_OK;
}

static enum zf_status list_all(struct zf_state *s, struct zf_err *e)
{
    struct zf_pipeline *p = s->pipeline;
    const struct zf_params *all = &p->model->params;
    size_t channels = 1;
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].channels > channels) channels = p->matrix[i].channels;
    s->slot = malloc(channels * sizeof *s->slot);
    s->rows = malloc(channels * sizeof *s->rows);
    s->place = malloc(channels * sizeof *s->place);
    s->buffer = malloc(p->down.bytes);
    if (!s->slot || !s->rows || !s->place || !s->buffer) return zf_fail_memory(e, "the list of what is saved");
    for (size_t i = 0; i < all->count; i++) {
        const struct zf_param *q = &all->list[i];
        struct zf_matrix *x = NULL;
        struct zf_vector *v = NULL;
        for (size_t k = 0; k < p->matrices; k++)
            if (p->matrix[k].param == q) x = &p->matrix[k];
        for (size_t k = 0; k < p->vectors; k++)
            if (p->vector[k].param == q) v = &p->vector[k];
        ZF_TRY(add_parameter(s, q, x, v, e));
    }
    for (size_t i = s->count; i-- > 0;) s->part[s->list[i].part].first = &s->list[i]; /* the list does not move any more */
    return ZF_OK;
}

enum zf_status zf_state_list(struct zf_state *s, struct zf_pipeline *p, struct zf_state_part *parts, struct zf_err *e)
{
    *s = (struct zf_state){.pipeline = p, .part = parts};
    if (p->torn)
        return zf_fail(e, ZF_NUMERIC, NULL, "a failure has left parts of the model at different steps; there is no state to save any more");
    ZF_TRY(zf_pipeline_show_due(p, e));
    if (p->comm) ZF_TRY(zf_ranks_complete(p, e));
    return list_all(s, e);
}

enum zf_status zf_state_open(struct zf_state *s, struct zf_pipeline *p, struct zf_err *e)
{
    *s = (struct zf_state){0};
    if (!p->torn) ZF_TRY(zf_pipeline_settle(p, e));
    struct zf_state_part *parts = calloc(p->model->params.count, sizeof *parts);
    if (!parts) return zf_fail_memory(e, "the list of what is saved");
    enum zf_status failed = zf_state_list(s, p, parts, e);
    if (!failed && p->comm) failed = zf_pipeline_sync(p, e);
    if (failed) zf_state_close(s);
    return failed;
}

void zf_state_close(struct zf_state *s)
{
    if (s->gate)
        zf_state_end_copy(s);
    else
        free(s->part);
    free(s->list);
    free(s->slot);
    free(s->rows);
    free(s->place);
    free(s->buffer);
    *s = (struct zf_state){0};
}

/* ---- rows ---- */

/* Bytes from .. of plain device memory, or of its copy. */
static enum zf_status device_bytes(struct zf_state *s, void *at, void *host, size_t bytes, bool write, struct zf_err *e)
{
    struct zf_pipeline *p = s->pipeline;
    if (s->gate) return memcpy(host, at, bytes), ZF_OK;
    ZF_TRY(write ? zf_pipeline_copy(p, p->compute, at, host, bytes, e) : zf_pipeline_copy(p, p->compute, host, at, bytes, e));
    return p->device->type->lane_sync(p->compute, e);
}

/* Where the rows of channels are. An order that came from a file may be none. */
static enum zf_status find_slots(struct zf_state *s, const struct zf_state_part *x, struct zf_err *e)
{
    if (s->slots_of == x) return ZF_OK;
    for (size_t c = 0; c < x->channels; c++) s->slot[c] = UINT32_MAX;
    for (size_t r = 0; r < x->channels; r++) {
        if (x->order[r] >= x->channels || s->slot[x->order[r]] != UINT32_MAX)
            return zf_fail(e, ZF_FORMAT, x->param->name, "its channels are in no order: row %zu is said to be channel %u of %zu", r,
                           x->order[r], x->channels);
        s->slot[x->order[r]] = (uint32_t)r;
    }
    s->slots_of = x;
    return ZF_OK;
}

/* Channels first .. first + n of an array: the CPU half's one by one, the device half's as many at once as fit a piece of the ring. */
static enum zf_status halves(struct zf_state *s, const struct zf_state_part *x, int array, size_t first, size_t n, float *host, bool write,
                             struct zf_err *e)
{
    struct zf_pipeline *p = s->pipeline;
    const struct zf_array *d = &x->device[array], *c = &x->cpu[array];
    size_t cols = d->cols, bytes = cols * sizeof *host, most = p->down.bytes / bytes;
    ZF_TRY(find_slots(s, x, e));
    for (size_t at = 0, k; at < n; at += k, host += k * cols) {
        size_t group = 0;
        k = n - at < most ? n - at : most;
        for (size_t i = 0; i < k; i++) {
            size_t channel = first + at + i, slot = s->slot[channel];
            float *row = host + i * cols;
            bool device = slot < x->device_rows;
            if (slot >= x->device_rows + x->cpu_rows) continue; /* another rank's */
            size_t number = !device ? slot - x->device_rows : d->by_channel ? channel : slot;
            if (!device || s->gate) {
                float *own = (device ? d : c)->base + number * cols;
                memcpy(write ? own : row, write ? row : own, bytes);
                continue;
            }
            s->rows[group] = (uint32_t)number;
            s->place[group] = (uint32_t)i;
            if (write) memcpy(s->buffer + group * cols, row, bytes);
            group++;
        }
        if (!group) continue;
        ZF_TRY(write ? zf_pipeline_store(p, d->base, cols, s->rows, group, s->buffer, e)
                     : zf_pipeline_fetch(p, d->base, cols, s->rows, group, s->buffer, e));
        for (size_t i = 0; i < group && !write; i++) memcpy(host + s->place[i] * cols, s->buffer + i * cols, bytes);
    }
    return ZF_OK;
}

static enum zf_status masters(struct zf_state *s, const struct zf_state_part *x, size_t first, size_t n, float *host, bool write,
                              struct zf_err *e)
{
    size_t cols = x->param->cols;
    if (x->matrix) return halves(s, x, 0, first, n, host, write, e);
    return device_bytes(s, x->block + first * cols, host, n * cols * sizeof *host, write, e);
}

/* Weights as integers, less what the rounded masters are; some rows at a time. given: those masters; NULL: this process has them. */
static enum zf_status visible(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, char *host, bool write,
                              const float *given, struct zf_err *e)
{
    const struct zf_state_part *part = &s->part[x->part];
    size_t each = zf_state_type_bytes(x->type), count = n * x->cols;
    char *weights = part->weights + first * x->cols * each;
    float *master = malloc(count * sizeof *master);
    if (!master) return zf_fail_memory(e, "weights that are saved");
    if (given) memcpy(master, given, count * sizeof *master);
    enum zf_status failed = given ? ZF_OK : masters(s, part, first, n, master, false, e);
    if (!failed && !write) failed = device_bytes(s, weights, host, count * each, false, e);
    for (size_t i = 0; !failed && i < count; i++) {
        uint32_t bits = each == 4 ? zf_bits_from_float(master[i]) : zf_f32_to_bf16(master[i]), value = 0;
        memcpy(&value, host + i * each, each); /* little-endian, as all that this runs on */
        value = write ? value + bits : value - bits;
        memcpy(write ? (char *)master + i * each : host + i * each, &value, each);
    }
    if (!failed && write) failed = device_bytes(s, weights, master, count * each, true, e);
    free(master);
    return failed;
}

static enum zf_status chunked(const struct zf_state_piece *x, size_t first, size_t n, char *host, bool write)
{
    const struct zf_rows_memory *m = &x->chunks;
    size_t row = x->cols * zf_state_type_bytes(x->type);
    for (size_t r = 0; r < n; r++) {
        char *at = (char *)m->chunk[(first + r) / m->chunk_rows] + (first + r) % m->chunk_rows * row;
        memcpy(write ? at : host + r * row, write ? host + r * row : at, row);
    }
    return ZF_OK;
}

static enum zf_status move(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, void *host, bool write,
                           struct zf_err *e)
{
    size_t row = x->cols * zf_state_type_bytes(x->type);
    char *at = x->memory ? (char *)x->memory + first * row : NULL;
    switch (x->place) {
    case ZF_STATE_MASTER: return masters(s, &s->part[x->part], first, n, host, write, e);
    case ZF_STATE_VISIBLE: return visible(s, x, first, n, host, write, NULL, e);
    case ZF_STATE_HALVES: return halves(s, &s->part[x->part], x->array, first, n, host, write, e);
    case ZF_STATE_DEVICE: return device_bytes(s, at, host, n * row, write, e);
    case ZF_STATE_HOST: memcpy(write ? at : host, write ? host : at, n * row); return ZF_OK;
    case ZF_STATE_CHUNKED: return chunked(x, first, n, host, write);
    }
    return ZF_OK;
}

enum zf_status zf_state_read(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, void *out, struct zf_err *e)
{
    size_t row = x->cols * zf_state_type_bytes(x->type);
    if (s->kept) return memcpy(out, (const char *)s->kept[x - s->list] + first * row, n * row), ZF_OK;
    return move(s, x, first, n, out, false, e);
}

enum zf_status zf_state_write(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, const void *in, struct zf_err *e)
{
    if (x->place == ZF_STATE_HOST) s->slots_of = NULL; /* it may be the order of channels */
    return move(s, x, first, n, (void *)(uintptr_t)in, true, e);
}

/* ---- ranks ---- */

void zf_state_own(const struct zf_state *s, const struct zf_state_piece *x, size_t *first, size_t *n)
{
    const struct zf_state_part *part = &s->part[x->part];
    int rank = s->pipeline->comm ? s->pipeline->comm->rank : 0;
    const size_t *share = part->matrix && part->matrix->shares ? part->matrix->shares->first : NULL;
    *first = 0;
    *n = x->rows;
    if (x->split == ZF_STATE_BY_CHANNEL) {
        *first = share[rank];
        *n = share[rank + 1] - *first;
    } else if (x->split == ZF_STATE_ORDER) {
        *first = rank ? part->device_rows : 0;
        *n = part->device_rows + part->cpu_rows - *first;
    } else if (x->split == ZF_STATE_WHOLE && rank) {
        *n = 0;
    }
}

enum zf_status zf_state_write_visible(struct zf_state *s, const struct zf_state_piece *x, size_t first, size_t n, const void *in,
                                      const float *masters_there, struct zf_err *e)
{
    return visible(s, x, first, n, (void *)(uintptr_t)in, true, masters_there, e);
}

void zf_state_places(const struct zf_state *s, const struct zf_state_piece *x, const uint32_t *channels, size_t n, uint32_t *to)
{
    const struct zf_matrix *m = s->part[x->part].matrix;
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++)
        to[i] = channels[i] < m->channels && zf_is_own(s->pipeline, m, channels[i]) && next < x->rows ? next++ : UINT32_MAX;
}

size_t zf_state_staged(const struct zf_pipeline *p, size_t matrix, bool *moved)
{
    const struct zf_matrix *x = &p->matrix[matrix];
    *moved = x->staged_moved;
    return x->staging.chunk ? x->staged_rows : 0;
}
