/* Who owns which channel, among ranks: the device half is the same on all of them, and each rank's CPU half has what is left of its share.
 * A channel that is selected goes from its share's owner to all ranks, with its state; one that is not any more is kept by that owner
 * alone. Lanes are idle. */
#include "core/pipeline/impl.h"

#include <stdlib.h>
#include <string.h>

/* Lists by share, of the device half's channels and of the others. */
static enum zf_status list_shares(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    struct zf_shares *s = x->shares;
    size_t device = 0, cpu = 0;
    for (int r = 0; r <= p->comm->ranks; r++) {
        s->device[r] = device;
        s->cpu[r] = cpu;
        for (size_t c = s->first[r]; r < p->comm->ranks && c < s->first[r + 1]; c++)
            s->list[chosen[c] ? device++ : count + cpu++] = (uint32_t)c;
    }
    return zf_pipeline_copy(p, p->compute, s->device_list, s->list, x->channels * sizeof *s->list, e);
}

/* Memory of the CPU half: for all of the share where some of the matrix is not the device half's, so that no selection moves rows that
 * stay. */
static enum zf_status make_room(struct zf_pipeline *p, struct zf_matrix *x, size_t count, struct zf_err *e)
{
    struct zf_shares *s = x->shares;
    size_t share = s->first[p->comm->rank + 1] - s->first[p->comm->rank], wanted = count < x->channels ? share : 0;
    struct zf_half next;
    struct zf_array from[ZF_ARRAYS], to[ZF_ARRAYS];
    if (s->cpu_room >= wanted) return ZF_OK;
    ZF_TRY(zf_half_alloc(p, &next, false, wanted, x->length, true, e));
    zf_half_arrays(p, x, &x->cpu, from);
    zf_half_arrays(p, x, &next, to);
    for (int k = 0; k < ZF_ARRAYS && x->cpu.rows; k++) memcpy(to[k].base, from[k].base, x->cpu.rows * to[k].cols * sizeof(float));
    next.rows = x->cpu.rows;
    zf_half_free(p, &x->cpu, false);
    x->cpu = next;
    s->cpu_room = wanted;
    return ZF_OK;
}

static void give_room_back(struct zf_pipeline *p, struct zf_matrix *x, size_t count)
{
    if (count < x->channels) return;
    zf_half_free(p, &x->cpu, false);
    x->shares->cpu_room = 0;
}

/* Behind the device half's and the own CPU half's channels those of other ranks. */
static void list_others(const struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen)
{
    size_t n = x->device.rows + x->cpu.rows;
    for (size_t c = 0; c < x->channels; c++)
        if (!chosen[c] && !zf_is_own(p, x, c)) x->order[n++] = (uint32_t)c;
}

enum zf_status zf_ranks_found(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    bool narrow = p->model->dtype != ZF_F32, whole = count == x->channels;
    float *block = p->model->master + x->param->offset;
    size_t device = 0, cpu = 0, most = p->down.bytes / (x->length * sizeof(float));
    ZF_TRY(make_room(p, x, count, e));
    ZF_TRY(zf_half_alloc(p, &x->device, true, count, x->length, narrow && !whole, e));
    for (size_t c = 0; c < x->channels; c++)
        if (chosen[c])
            x->order[device++] = (uint32_t)c;
        else if (zf_is_own(p, x, c))
            x->order[count + cpu++] = (uint32_t)c;
    x->device.rows = count;
    x->cpu.rows = cpu;
    list_others(p, x, chosen);
    x->assigned = true;
    if (narrow && whole) {
        x->device.master = block;
        x->device.borrowed = true;
    } else if (narrow && count) {
        memcpy(p->list_seen, x->order, count * sizeof *x->order);
        ZF_TRY(zf_pipeline_copy(p, p->compute, p->list, p->list_seen, count * sizeof *x->order, e));
        ISSUE(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = x->device.master, .from = block, .from_list = p->list,
              .rows = count, .cols = x->length);
        ZF_TRY(p->device->type->lane_sync(p->compute, e));
    }
    for (size_t r = 0, some; r < cpu; r += some) {
        some = cpu - r < most ? cpu - r : most;
        ZF_TRY(zf_pipeline_fetch(p, block, x->length, x->order + count + r, some, x->cpu.master + r * x->length, e));
    }
    return list_shares(p, x, chosen, count, e);
}

/* ---- migration ---- */

struct moves {
    struct zf_way *down, *own, *up; /* own: those of `down` that go to the own CPU half. up: by channel; from: own rows alone */
    struct zf_way *fill;            /* rows of the own CPU half that close a gap */
    uint32_t *kept, *cpu;           /* slots of the device half that stay; new order of the own CPU half */
    size_t downs, owns, ups, fills, keeps, cpu_rows;
    bool same; /* the device half has as many rows as before: they change places */
};

static void moves_free(struct moves *a)
{
    free(a->down);
    free(a->own);
    free(a->up);
    free(a->fill);
    free(a->kept);
    free(a->cpu);
}

/* Where the own CPU half's rows go: gaps are closed by rows from behind its new end, and by those that arrive. */
static void settle_cpu(struct moves *a, const struct zf_matrix *x, const uint8_t *chosen)
{
    const uint32_t *old = x->order + x->device.rows;
    size_t rows = x->cpu.rows, leave = 0, arrived = 0;
    for (size_t s = 0; s < rows; s++) leave += chosen[old[s]];
    a->cpu_rows = rows - leave + a->owns;
    for (size_t s = 0, behind = a->cpu_rows; s < a->cpu_rows; s++) {
        a->cpu[s] = s < rows ? old[s] : 0;
        if (s < rows && !chosen[old[s]]) continue;
        while (behind < rows && chosen[old[behind]]) behind++;
        if (behind < rows) {
            a->fill[a->fills++] = (struct zf_way){.channel = old[behind], .from = (uint32_t)behind, .to = (uint32_t)s};
            a->cpu[s] = old[behind++];
        } else {
            a->own[arrived].to = (uint32_t)s;
            a->cpu[s] = a->own[arrived++].channel;
        }
    }
}

static enum zf_status moves_make(struct zf_pipeline *p, struct moves *a, const struct zf_matrix *x, const uint8_t *chosen, struct zf_err *e)
{
    size_t n = x->channels, device = x->device.rows;
    uint32_t *slot = malloc(n * sizeof *slot);
    *a = (struct moves){.down = malloc(n * sizeof *a->down),
                        .own = malloc(n * sizeof *a->own),
                        .up = malloc(n * sizeof *a->up),
                        .fill = malloc(n * sizeof *a->fill),
                        .kept = malloc(n * sizeof *a->kept),
                        .cpu = malloc(2 * n * sizeof *a->cpu)};
    if (!slot || !a->down || !a->own || !a->up || !a->fill || !a->kept || !a->cpu) {
        free(slot);
        moves_free(a);
        return zf_fail_memory(e, "channels that change owner");
    }
    for (size_t s = 0; s < n; s++) slot[x->order[s]] = (uint32_t)s;
    for (size_t s = 0; s < device; s++) {
        struct zf_way w = {.channel = x->order[s], .from = (uint32_t)s};
        if (chosen[w.channel]) {
            a->kept[a->keeps++] = w.from;
            continue;
        }
        a->down[a->downs++] = w;
        if (zf_is_own(p, x, w.channel)) a->own[a->owns++] = w;
    }
    for (size_t c = 0; c < n; c++)
        if (chosen[c] && slot[c] >= device) a->up[a->ups++] = (struct zf_way){.channel = (uint32_t)c, .from = slot[c] - (uint32_t)device};
    a->same = a->ups == a->downs;
    for (size_t i = 0; i < a->ups; i++) a->up[i].to = a->same ? a->down[i].from : (uint32_t)(a->keeps + i);
    settle_cpu(a, x, chosen);
    free(slot);
    return ZF_OK;
}

/* Rows of one array that leave the device half for the own CPU half. */
static enum zf_status fetch_own(struct zf_pipeline *p, const struct moves *a, const struct zf_array *from, float *out, struct zf_err *e)
{
    size_t most = p->down.bytes / (from->cols * sizeof *out);
    uint32_t *list = malloc((a->owns + 1) * sizeof *list);
    enum zf_status s = list ? ZF_OK : zf_fail_memory(e, "channels that change owner");
    for (size_t i = 0; !s && i < a->owns; i++) list[i] = from->by_channel ? a->own[i].channel : a->own[i].from;
    for (size_t at = 0, n; !s && at < a->owns; at += n) {
        n = a->owns - at < most ? a->owns - at : most;
        s = zf_pipeline_fetch(p, from->base, from->cols, list + at, n, out + at * from->cols, e);
    }
    free(list);
    return s;
}

/* Rows of one array that come to every device half, some at a time: each rank brings those of its share. */
static enum zf_status raise_all(struct zf_pipeline *p, const struct zf_matrix *x, const struct moves *a, const struct zf_array *from,
                                const struct zf_array *to, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    size_t row = to->cols * sizeof(float), most = c->piece_bytes / row;
    float *host = malloc((a->ups < most ? a->ups : most) * row + 1);
    enum zf_status s = host ? ZF_OK : zf_fail_memory(e, "channels that change owner");
    for (size_t at = 0, n; !s && at < a->ups; at += n) {
        size_t *first = c->clipped, mine = 0;
        n = a->ups - at < most ? a->ups - at : most;
        for (int r = 0; r <= p->comm->ranks; r++) {
            size_t i = 0;
            while (i < n && a->up[at + i].channel < x->shares->first[r]) i++;
            first[r] = r == p->comm->ranks ? n : i;
        }
        for (size_t i = first[p->comm->rank]; i < first[p->comm->rank + 1]; i++, mine++)
            memcpy((char *)host + mine * row, from->base + a->up[at + i].from * from->cols, row);
        for (size_t i = 0; i < n; i++) p->list_seen[i] = to->by_channel ? a->up[at + i].channel : a->up[at + i].to;
        struct zf_comm_rows rows = {c->piece, ZF_F32, to->cols, first};
        s = zf_pipeline_copy(p, p->exchange, c->piece + first[p->comm->rank] * row, host, mine * row, e);
        if (!s) s = zf_pipeline_copy(p, p->exchange, p->list, p->list_seen, n * sizeof *p->list, e);
        if (!s) s = zf_ranks_collect(p, false, &rows, 1, e);
        if (s) break;
        const struct zf_move_rows_args move = {
            .type = ZF_F32, .from_type = ZF_F32, .to = to->base, .from = c->piece, .to_list = p->list, .rows = n, .cols = to->cols};
        s = p->device->type->ops->move_rows(p->exchange, &move);
        s = s ? zf_lane_refused(p->device, p->exchange, s, "move_rows", e) : p->device->type->lane_sync(p->exchange, e);
        if (!s) s = zf_comm_failed(p->comm, e);
    }
    free(host);
    return s;
}

static enum zf_status migrate(struct zf_pipeline *p, struct zf_matrix *x, const struct moves *a, struct zf_matrix *next, struct zf_err *e)
{
    struct zf_array from_device[ZF_ARRAYS], to_device[ZF_ARRAYS], cpu[ZF_ARRAYS];
    float *down = malloc((a->owns * x->length + 1) * sizeof *down);
    enum zf_status s = down ? ZF_OK : zf_fail_memory(e, "channels that change owner");
    zf_half_arrays(p, x, &x->device, from_device);
    zf_half_arrays(p, next, &next->device, to_device);
    zf_half_arrays(p, x, &x->cpu, cpu);
    if (!s && !a->same) s = zf_half_keep(p, from_device, to_device, a->kept, a->keeps, e);
    for (int k = 0; !s && k < ZF_ARRAYS; k++) {
        size_t cols = cpu[k].cols, bytes = cols * sizeof *down;
        s = fetch_own(p, a, &from_device[k], down, e);
        if (!s) s = raise_all(p, x, a, &cpu[k], &to_device[k], e);
        for (size_t i = 0; !s && i < a->fills; i++) memcpy(cpu[k].base + a->fill[i].to * cols, cpu[k].base + a->fill[i].from * cols, bytes);
        for (size_t i = 0; !s && i < a->owns; i++) memcpy(cpu[k].base + a->own[i].to * cols, down + i * cols, bytes);
    }
    free(down);
    return s;
}

static void new_order(const struct zf_pipeline *p, struct zf_matrix *x, const struct moves *a, const uint8_t *chosen, size_t count)
{
    uint32_t *device = a->cpu + x->channels;
    for (size_t i = 0; i < a->keeps; i++) device[a->same ? a->kept[i] : i] = x->order[a->kept[i]];
    for (size_t i = 0; i < a->ups; i++) device[a->up[i].to] = a->up[i].channel;
    memcpy(x->order, device, count * sizeof *x->order);
    memcpy(x->order + count, a->cpu, a->cpu_rows * sizeof *x->order);
    x->device.rows = count;
    x->cpu.rows = a->cpu_rows;
    list_others(p, x, chosen);
}

static enum zf_status reassign(struct zf_pipeline *p, struct zf_matrix *x, const struct moves *a, const uint8_t *chosen, size_t count,
                               struct zf_err *e)
{
    struct zf_matrix next = *x;
    ZF_TRY(zf_pipeline_leave(p, x, a->down, a->downs, e));
    if (!a->same) ZF_TRY(zf_half_alloc(p, &next.device, true, count, x->length, p->model->dtype != ZF_F32, e));
    enum zf_status s = migrate(p, x, a, &next, e);
    if (s) {
        if (!a->same) zf_half_free(p, &next.device, true);
        return s;
    }
    if (!a->same) {
        zf_half_free(p, &x->device, true);
        x->device = next.device;
    }
    new_order(p, x, a, chosen, count);
    give_room_back(p, x, count);
    x->arrived = a->downs;
    for (size_t i = 0; i < a->downs; i++) x->arrived_list[i] = a->down[i].channel;
    return list_shares(p, x, chosen, count, e);
}

enum zf_status zf_ranks_assign(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    struct moves a;
    ZF_TRY(make_room(p, x, count, e));
    ZF_TRY(moves_make(p, &a, x, chosen, e));
    enum zf_status s = reassign(p, x, &a, chosen, count, e);
    moves_free(&a);
    return s;
}

/* Rows that other ranks have, of masters [channels][length] whose others are there. */
enum zf_status zf_ranks_masters(struct zf_pipeline *p, const struct zf_matrix *x, float *out, struct zf_err *e)
{
    struct zf_exchange *c = p->common;
    const struct zf_shares *s = x->shares;
    size_t row = x->length * sizeof *out, most = c->piece_bytes / row, ends = (size_t)p->comm->ranks + 1;
    for (size_t at = 0, n; at < x->channels; at += n) {
        size_t *first = c->clipped;
        n = x->channels - at < most ? x->channels - at : most;
        for (size_t r = 0; r < ends; r++) first[r] = s->first[r] < at ? 0 : s->first[r] > at + n ? n : s->first[r] - at;
        size_t own = first[p->comm->rank], rows = first[p->comm->rank + 1] - own;
        struct zf_comm_rows list = {c->piece, ZF_F32, x->length, first};
        ZF_TRY(zf_pipeline_copy(p, p->exchange, c->piece + own * row, out + (at + own) * x->length, rows * row, e));
        ZF_TRY(zf_ranks_collect(p, false, &list, 1, e));
        ZF_TRY(zf_pipeline_copy(p, p->exchange, out + at * x->length, c->piece, n * row, e));
        ZF_TRY(p->device->type->lane_sync(p->exchange, e));
        ZF_TRY(zf_comm_failed(p->comm, e));
    }
    return ZF_OK;
}
