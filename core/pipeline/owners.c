/* Who owns which channel: selection by score, and the migration of state that follows from it. All of it happens while the lanes are idle.
 */
#include "core/pipeline/impl.h"
#include "core/pipeline/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which channels are best ---- */

/* Better: a higher score; of equal ones the lower index. */
static bool better(const double *score, uint32_t a, uint32_t b)
{
    return score[2 * a] != score[2 * b] ? score[2 * a] > score[2 * b] : a < b;
}

static void exchange_two(uint32_t *a, uint32_t *b)
{
    uint32_t x = *a;
    *a = *b;
    *b = x;
}

/* Brings the n best of all[count] to the front (quickselect, middle of three). No two are equally good. */
static void best_first(const double *score, uint32_t *all, size_t count, size_t n)
{
    for (size_t low = 0, high = count; low < n && n < high;) {
        size_t last = high - 1, middle = low + (last - low) / 2, place = low;
        if (better(score, all[middle], all[low])) exchange_two(&all[middle], &all[low]);
        if (better(score, all[last], all[low])) exchange_two(&all[last], &all[low]);
        if (better(score, all[middle], all[last])) exchange_two(&all[middle], &all[last]); /* the middle one of three is last */
        for (size_t i = low; i < last; i++)
            if (better(score, all[i], all[last])) exchange_two(&all[i], &all[place++]);
        exchange_two(&all[place], &all[last]); /* all before it are better, all behind it are not */
        if (n <= place)
            high = place;
        else
            low = place + 1;
    }
}

/* ---- rows of a half, to and from plain host memory ---- */

void zf_half_arrays(const struct zf_pipeline *p, const struct zf_matrix *x, const struct zf_half *h, struct zf_array out[ZF_ARRAYS])
{
    bool weights = h == &x->device && p->model->dtype == ZF_F32;
    out[0] = (struct zf_array){weights ? zf_matrix_weights(p, x->param) : h->master, x->length, weights};
    out[1] = (struct zf_array){h->m, x->length, false};
    out[2] = (struct zf_array){h->v, x->length, false};
    out[3] = (struct zf_array){(float *)(void *)h->t, 1, false};
}

static enum zf_status send_list(struct zf_pipeline *p, const uint32_t *list, size_t n, struct zf_err *e)
{
    memcpy(p->list_seen, list, n * sizeof *list);
    return zf_pipeline_copy(p, p->compute, p->list, p->list_seen, n * sizeof *list, e);
}

enum zf_status zf_pipeline_fetch(struct zf_pipeline *p, const float *base, size_t cols, const uint32_t *list, size_t n, float *host,
                                 struct zf_err *e)
{
    ZF_TRY(send_list(p, list, n, e));
    ISSUE(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = p->down.piece[0], .from = base, .from_list = p->list, .rows = n,
          .cols = cols);
    ZF_TRY(zf_pipeline_copy(p, p->compute, host, p->down.piece[0], n * cols * sizeof *host, e));
    return p->device->type->lane_sync(p->compute, e);
}

enum zf_status zf_pipeline_store(struct zf_pipeline *p, float *base, size_t cols, const uint32_t *list, size_t n, const float *host,
                                 struct zf_err *e)
{
    ZF_TRY(send_list(p, list, n, e));
    ZF_TRY(zf_pipeline_copy(p, p->compute, p->up.piece[0], host, n * cols * sizeof *host, e));
    ISSUE(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = base, .from = p->up.piece[0], .to_list = p->list, .rows = n,
          .cols = cols);
    return p->device->type->lane_sync(p->compute, e);
}

static void gather_host(const struct zf_array *a, const struct zf_way *w, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) memcpy(out + i * a->cols, a->base + w[i].from * a->cols, a->cols * sizeof *out);
}

static void scatter_host(const struct zf_array *a, const struct zf_way *w, size_t n, const float *in)
{
    for (size_t i = 0; i < n; i++) memcpy(a->base + w[i].to * a->cols, in + i * a->cols, a->cols * sizeof *in);
}

/* Rows that the device half gives (down) and takes (up), some at a time: where they only change places, the two are of equal number and
 * each writes where the other was read. numbers: scratch for as many. */
static enum zf_status exchange(struct zf_pipeline *p, const struct zf_array from_device[ZF_ARRAYS], const struct zf_array to_cpu[ZF_ARRAYS],
                               const struct zf_way *down, size_t downs, const struct zf_array from_cpu[ZF_ARRAYS],
                               const struct zf_array to_device[ZF_ARRAYS], const struct zf_way *up, size_t ups, struct zf_err *e)
{
    size_t cols = from_device[1].cols ? from_device[1].cols : from_cpu[1].cols, most = p->down.bytes / (cols * sizeof(float));
    size_t all = downs > ups ? downs : ups;
    if (most > all) most = all;
    if (!all) return ZF_OK;
    float *buffer = malloc(2 * most * cols * sizeof *buffer);
    uint32_t *list = malloc(most * sizeof *list);
    enum zf_status s = buffer && list ? ZF_OK : zf_fail_memory(e, "channels that change owner");
    for (size_t at = 0; !s && at < all; at += most) {
        size_t d = at < downs ? (downs - at < most ? downs - at : most) : 0, u = at < ups ? (ups - at < most ? ups - at : most) : 0;
        for (int k = 0; !s && k < ZF_ARRAYS; k++) {
            float *a = buffer, *b = buffer + most * cols;
            for (size_t i = 0; i < d; i++) list[i] = from_device[k].by_channel ? down[at + i].channel : down[at + i].from;
            if (d) s = zf_pipeline_fetch(p, from_device[k].base, from_device[k].cols, list, d, a, e);
            if (s) break;
            gather_host(&from_cpu[k], up + at, u, b);
            scatter_host(&to_cpu[k], down + at, d, a);
            for (size_t i = 0; i < u; i++) list[i] = to_device[k].by_channel ? up[at + i].channel : up[at + i].to;
            if (u) s = zf_pipeline_store(p, to_device[k].base, to_device[k].cols, list, u, b, e);
        }
    }
    free(buffer);
    free(list);
    return s;
}

/* Rows that stay on the device, into new memory. */
enum zf_status zf_half_keep(struct zf_pipeline *p, const struct zf_array from[ZF_ARRAYS], const struct zf_array to[ZF_ARRAYS],
                            const uint32_t *slots, size_t n, struct zf_err *e)
{
    if (!n) return ZF_OK;
    ZF_TRY(send_list(p, slots, n, e));
    for (int k = 0; k < ZF_ARRAYS; k++)
        if (!from[k].by_channel)
            ISSUE(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = to[k].base, .from = from[k].base, .from_list = p->list,
                  .rows = n, .cols = from[k].cols);
    return p->device->type->lane_sync(p->compute, e);
}

/* ---- new owners ---- */

struct plan {
    struct zf_way *down, *up; /* [downs], [ups] */
    uint32_t *order, *kept;   /* new order; slots of the device half that stay */
    size_t downs, ups, keeps;
};

static void plan_free(struct plan *a)
{
    free(a->down);
    free(a->up);
    free(a->order);
    free(a->kept);
}

static enum zf_status plan_make(struct plan *a, const struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    size_t channels = x->channels, device = x->device.rows;
    *a = (struct plan){.down = malloc(channels * sizeof *a->down),
                       .up = malloc(channels * sizeof *a->up),
                       .order = malloc(channels * sizeof *a->order),
                       .kept = malloc(channels * sizeof *a->kept)};
    if (!a->down || !a->up || !a->order || !a->kept) {
        plan_free(a);
        return zf_fail_memory(e, "channels that change owner");
    }
    for (size_t s = 0; s < device; s++) {
        uint32_t c = x->order[s];
        if (chosen[c])
            a->kept[a->keeps++] = (uint32_t)s;
        else
            a->down[a->downs++] = (struct zf_way){.channel = c, .from = (uint32_t)s};
    }
    for (size_t s = 0; s < channels - device; s++) {
        uint32_t c = x->order[device + s];
        if (chosen[c]) a->up[a->ups++] = (struct zf_way){.channel = c, .from = (uint32_t)s};
    }
    memcpy(a->order, x->order, channels * sizeof *a->order);
    if (a->downs == a->ups) { /* they change places */
        for (size_t i = 0; i < a->ups; i++) {
            a->up[i].to = a->down[i].from;
            a->down[i].to = a->up[i].from;
            a->order[a->up[i].to] = a->up[i].channel;
            a->order[device + a->down[i].to] = a->down[i].channel;
        }
        return ZF_OK;
    }
    size_t n = 0, rest = count;
    for (size_t i = 0; i < a->keeps; i++) a->order[n++] = x->order[a->kept[i]];
    for (size_t i = 0; i < a->ups; i++) {
        a->up[i].to = (uint32_t)n;
        a->order[n++] = a->up[i].channel;
    }
    for (size_t s = 0; s < channels - device; s++)
        if (!chosen[x->order[device + s]]) a->order[rest++] = x->order[device + s];
    for (size_t i = 0; i < a->downs; i++) {
        a->down[i].to = (uint32_t)(rest - count);
        a->order[rest++] = a->down[i].channel;
    }
    return ZF_OK;
}

/* Both halves in memory of their new size. */
static enum zf_status rebuild(struct zf_pipeline *p, struct zf_matrix *x, const struct plan *a, const uint8_t *chosen, size_t count,
                              struct zf_err *e)
{
    struct zf_matrix next = *x;
    struct zf_array from_device[ZF_ARRAYS], from_cpu[ZF_ARRAYS], to_device[ZF_ARRAYS], to_cpu[ZF_ARRAYS];
    bool master = p->model->dtype != ZF_F32;
    ZF_TRY(zf_half_alloc(p, &next.device, true, count, x->length, master, e));
    enum zf_status s = zf_half_alloc(p, &next.cpu, false, x->channels - count, x->length, true, e);
    zf_half_arrays(p, x, &x->device, from_device);
    zf_half_arrays(p, x, &x->cpu, from_cpu);
    zf_half_arrays(p, &next, &next.device, to_device);
    zf_half_arrays(p, &next, &next.cpu, to_cpu);
    if (!s) s = zf_half_keep(p, from_device, to_device, a->kept, a->keeps, e);
    if (!s) s = exchange(p, from_device, to_cpu, a->down, a->downs, from_cpu, to_device, a->up, a->ups, e);
    if (s) {
        zf_half_free(p, &next.device, true);
        zf_half_free(p, &next.cpu, false);
        return s;
    }
    size_t rest = 0;
    for (size_t r = 0; r < x->cpu.rows; r++) {
        if (chosen[x->order[x->device.rows + r]]) continue;
        for (int k = 0; k < ZF_ARRAYS; k++)
            memcpy(to_cpu[k].base + rest * to_cpu[k].cols, from_cpu[k].base + r * from_cpu[k].cols, to_cpu[k].cols * sizeof(float));
        rest++;
    }
    zf_half_free(p, &x->device, true);
    zf_half_free(p, &x->cpu, false);
    x->device = next.device;
    x->cpu = next.cpu;
    return ZF_OK;
}

/* The first owners: state is zeros, masters are the model's. */
static enum zf_status found(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    bool narrow = p->model->dtype != ZF_F32, whole = count == x->channels;
    float *block = p->model->master + x->param->offset;
    size_t n = 0, rest = count;
    for (size_t c = 0; c < x->channels; c++) x->order[chosen[c] ? n++ : rest++] = (uint32_t)c;
    ZF_TRY(zf_half_alloc(p, &x->device, true, count, x->length, narrow && !whole, e));
    ZF_TRY(zf_half_alloc(p, &x->cpu, false, x->channels - count, x->length, true, e));
    x->assigned = true;
    if (narrow && whole) {
        x->device.master = block;
        x->device.borrowed = true;
    } else if (narrow && count) {
        ZF_TRY(send_list(p, x->order, count, e));
        ISSUE(p, move_rows, e, .type = ZF_F32, .from_type = ZF_F32, .to = x->device.master, .from = block, .from_list = p->list,
              .rows = count, .cols = x->length);
        ZF_TRY(p->device->type->lane_sync(p->compute, e));
    }
    size_t most = p->down.bytes / (x->length * sizeof(float));
    for (size_t r = 0, some; r < x->cpu.rows; r += some) {
        some = x->cpu.rows - r < most ? x->cpu.rows - r : most;
        ZF_TRY(zf_pipeline_fetch(p, block, x->length, x->order + count + r, some, x->cpu.master + r * x->length, e));
    }
    return ZF_OK;
}

/* Second moments, for their moves, of channels that a selection takes from the device half. Where a change of the ratio does, the oracle
 * leaves them what they were. */
enum zf_status zf_pipeline_leave(struct zf_pipeline *p, struct zf_matrix *x, const struct zf_way *down, size_t downs, struct zf_err *e)
{
    if (!p->policy.optimistic || !zf_policy_selects(&p->policy) || !downs) return ZF_OK;
    uint32_t *slots = p->list_seen, *channels = p->list_seen + x->channels;
    for (size_t i = 0; i < downs; i++) {
        slots[i] = down[i].from;
        channels[i] = down[i].channel;
    }
    ZF_TRY(zf_pipeline_copy(p, p->compute, p->list, slots, downs * sizeof *slots, e));
    ZF_TRY(zf_pipeline_copy(p, p->compute, p->list + x->channels, channels, downs * sizeof *slots, e));
    ISSUE(p, vhat_rows, e, .v = x->device.v, .t = x->device.t, .list = p->list, .to_list = p->list + x->channels, .channel = x->channel,
          .rows = downs, .cols = x->length, .beta2 = p->rule.beta2);
    return p->device->type->lane_sync(p->compute, e);
}

/* Rows in staging that have gone to the device half are not shown. Their second moments are known as those of an update, the others' are
 * taken anew without them. */
static enum zf_status unstage(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, struct zf_err *e)
{
    bool some = false; /* rows of whichever rank: all take the sums anew together, or none does */
    for (size_t c = 0; x->shares && c < x->channels; c++) {
        bool leaves = x->shares->staged[c] && chosen[c];
        some |= leaves;
        x->shares->staged[c] &= !leaves;
        x->shares->staged_rows -= leaves;
    }
    size_t kept = 0, gone = 0, device = x->device.rows, rows = zf_cpu_rows(x);
    uint32_t *from = p->list_seen, *to = p->list_seen + x->channels, *slot = malloc(2 * x->channels * sizeof *slot);
    float *moments = malloc(x->channels * sizeof *moments);
    if (!slot || !moments) {
        free(slot);
        free(moments);
        return zf_fail_memory(e, "channels that change owner");
    }
    uint32_t *left = slot + x->channels;
    for (size_t r = 0; r < rows; r++) slot[x->order[device + r]] = (uint32_t)r;
    for (size_t r = 0; r < x->staged_rows; r++) {
        if (x->staged[r] == UINT32_MAX) continue;
        if (chosen[x->staged[r]]) {
            left[gone] = x->staged[r];
            moments[gone++] = x->next_channel[r];
            x->staged[r] = UINT32_MAX;
            x->staged_moved = true;
        } else {
            from[kept] = slot[x->staged[r]];
            to[kept++] = (uint32_t)r;
        }
    }
    if (!kept) x->staged_rows = 0;
    enum zf_status s = ZF_OK;
    if (p->policy.optimistic && (x->shares ? some : x->staged_moved && kept)) {
        s = zf_pipeline_statistics(p, x, from, to, kept, true, x->up.rule.beta2, e);
        if (!s) s = p->host->type->lane_sync(p->cpu, e);
    }
    if (!s && p->policy.optimistic && gone) s = zf_pipeline_store(p, x->channel, 1, left, gone, moments, e);
    free(slot);
    free(moments);
    return s;
}

static enum zf_status assign(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    struct plan a;
    ZF_TRY(plan_make(&a, x, chosen, count, e));
    enum zf_status s = zf_pipeline_leave(p, x, a.down, a.downs, e);
    if (!s && a.downs == a.ups) {
        struct zf_array device[ZF_ARRAYS], cpu[ZF_ARRAYS];
        zf_half_arrays(p, x, &x->device, device);
        zf_half_arrays(p, x, &x->cpu, cpu);
        s = exchange(p, device, cpu, a.down, a.downs, cpu, device, a.up, a.ups, e);
    } else if (!s) {
        s = rebuild(p, x, &a, chosen, count, e);
    }
    if (!s) memcpy(x->order, a.order, x->channels * sizeof *x->order);
    x->arrived = s ? 0 : a.downs;
    for (size_t i = 0; i < x->arrived; i++) x->arrived_list[i] = a.down[i].channel;
    plan_free(&a);
    return s;
}

enum zf_status zf_pipeline_assign(struct zf_pipeline *p, struct zf_matrix *x, const uint8_t *chosen, size_t count, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_sync(p, e));
    zf_pipeline_spare_now(p, x);
    if (!x->assigned) {
        ZF_TRY(x->shares ? zf_ranks_found(p, x, chosen, count, e) : found(p, x, chosen, count, e));
    } else {
        ZF_TRY(x->shares ? zf_ranks_assign(p, x, chosen, count, e) : assign(p, x, chosen, count, e));
        if (x->window.up.any && x->window.up.served) ZF_TRY(unstage(p, x, chosen, e));
    }
    return zf_pipeline_copy(p, p->compute, x->device_order, x->order, x->channels * sizeof *x->order, e);
}

enum zf_status zf_pipeline_select(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    size_t index = (size_t)(x - p->matrix), n = zf_policy_quota(&p->policy, x->channels), kept = 0;
    const double *sums = p->sums_seen + p->sums_at[index], *score = sums + (p->policy.score == ZF_SCORE_L1);
    uint32_t *all = malloc(x->channels * sizeof *all);
    uint8_t *chosen = calloc(x->channels, 1);
    enum zf_status s = all && chosen ? ZF_OK : zf_fail_memory(e, "a selection");
    double energy = 0, total = 0;
    if (!s) {
        for (size_t i = 0; i < x->channels; i++) {
            all[i] = (uint32_t)i;
            total += sums[2 * i];
        }
        best_first(score, all, x->channels, n);
        for (size_t i = 0; i < n; i++) {
            chosen[all[i]] = 1;
            energy += sums[2 * all[i]];
        }
        for (size_t i = 0; i < x->device.rows; i++) kept += chosen[x->order[i]];
        x->energy = total > 0 ? energy / total : 0;
        x->kept = kept;
        x->kept_of = x->assigned ? x->device.rows + n - kept : n; /* the union */
        s = zf_pipeline_assign(p, x, chosen, n, e);
    }
    free(all);
    free(chosen);
    p->counts.selections++;
    return s;
}

static const struct zf_matrix *matrix_of(const struct zf_pipeline *p, const struct zf_param *param)
{
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].param == param) return &p->matrix[i];
    return NULL;
}

static const struct zf_vector *vector_of(const struct zf_pipeline *p, const struct zf_param *param)
{
    for (size_t i = 0; i < p->vectors; i++)
        if (p->vector[i].param == param) return &p->vector[i];
    return NULL;
}

/* Its masters are the model's own, channel after channel. A half that was all of it when the model was opened has the order of the state
 * that was read into it since. */
static bool is_in_place(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    bool in_order = x->device.borrowed;
    for (size_t c = 0; in_order && c < x->channels; c++) in_order = x->order[c] == c;
    return !x->assigned || in_order || (!zf_all_cpu_rows(x) && p->model->dtype == ZF_F32);
}

enum zf_status zf_pipeline_masters_of(void *ctx, const struct zf_param *param, float *out, bool *elsewhere, struct zf_err *e)
{
    struct zf_pipeline *p = ctx;
    const struct zf_vector *v = vector_of(p, param);
    const struct zf_matrix *x = matrix_of(p, param);
    *elsewhere = v ? v->state.master != NULL : x && !is_in_place(p, x);
    if (!*elsewhere) return ZF_OK;
    ZF_TRY(zf_pipeline_settle(p, e));
    if (v) {
        ZF_TRY(zf_pipeline_copy(p, p->compute, out, v->state.master, param->cols * sizeof *out, e));
        return p->device->type->lane_sync(p->compute, e);
    }
    struct zf_array device[ZF_ARRAYS];
    zf_half_arrays(p, x, &x->device, device);
    for (size_t s = 0; s < x->device.rows; s++) {
        size_t channel = x->order[s], slot = device[0].by_channel ? channel : s;
        ZF_TRY(zf_pipeline_copy(p, p->compute, out + channel * x->length, device[0].base + slot * x->length, x->length * sizeof *out, e));
    }
    for (size_t r = 0; r < x->cpu.rows; r++)
        memcpy(out + x->order[x->device.rows + r] * x->length, x->cpu.master + r * x->length, x->length * sizeof *out);
    ZF_TRY(p->device->type->lane_sync(p->compute, e));
    return x->shares ? zf_ranks_masters(p, x, out, e) : ZF_OK;
}

enum zf_status zf_pipeline_masters(struct zf_pipeline *p, const struct zf_param *param, float *out, struct zf_err *e)
{
    bool elsewhere;
    ZF_TRY(zf_pipeline_masters_of(p, param, out, &elsewhere, e));
    if (elsewhere) return ZF_OK;
    ZF_TRY(zf_pipeline_copy(p, p->compute, out, p->model->master + param->offset, param->rows * param->cols * sizeof *out, e));
    return p->device->type->lane_sync(p->compute, e);
}

void zf_pipeline_release_masters(struct zf_pipeline *p)
{
    struct zf_model *m = p->model;
    if (!m->master || m->dtype == ZF_F32 || p->matrices + p->vectors < m->params.count) return; /* frozen parameters have theirs there */
    for (size_t i = 0; i < p->matrices; i++)
        if (!p->matrix[i].assigned || p->matrix[i].device.borrowed) return;
    p->device->type->free(p->device, m->master);
    m->master = NULL;
}
