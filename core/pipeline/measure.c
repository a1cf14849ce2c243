#include "core/pipeline/measure.h"

#include "core/pipeline/pipeline.h"

#include <math.h>
#include <stdlib.h>

struct zf_pipeline_grain zf_pipeline_grain = {.piece = 4 << 20, .chunk = 128 << 10, .page = 4096};

static size_t row_bytes(size_t longest_row)
{
    return (longest_row * sizeof(float) + zf_pipeline_grain.page - 1) / zf_pipeline_grain.page * zf_pipeline_grain.page;
}

size_t zf_pipeline_piece_bytes(size_t longest_row)
{
    return row_bytes(longest_row) > zf_pipeline_grain.piece ? row_bytes(longest_row) : zf_pipeline_grain.piece;
}

size_t zf_pipeline_chunk_bytes(size_t longest_row)
{
    return row_bytes(longest_row) > zf_pipeline_grain.chunk ? row_bytes(longest_row) : zf_pipeline_grain.chunk;
}

size_t zf_ranks_piece_bytes(size_t longest_row)
{
    enum { TIMES = 4 };
    return TIMES * zf_pipeline_piece_bytes(longest_row);
}

size_t zf_policy_quota(const struct zf_policy *p, size_t channels)
{
    if (p->ratio <= 0) return 0;
    if (p->ratio >= 1) return channels;
    size_t n = (size_t)floor(p->ratio * (double)channels + 0.5);
    return n < 1 ? 1 : n > channels ? channels : n;
}

static size_t add(size_t a, size_t b)
{
    size_t c;
    return __builtin_add_overflow(a, b, &c) ? SIZE_MAX : c;
}

static size_t multiply(size_t a, size_t b)
{
    size_t c;
    return __builtin_mul_overflow(a, b, &c) ? SIZE_MAX : c;
}

/* A matrix on its way through windows, in pieces of slots. */
struct walker {
    struct zf_window window;
    size_t slot, sum, staging; /* pieces each takes */
    size_t held, up;           /* of the open window, of the completed one with its staging */
};

static size_t pieces(size_t rows, size_t row, size_t chunk)
{
    size_t each = row ? chunk / row : 0;
    return rows && each ? (rows - 1) / each + 1 : 0;
}

/* One step of all matrices; the most pieces that were taken at once. */
static void walk(struct walker *all, size_t count, const struct zf_policy *p, uint64_t t, size_t *used, size_t *most)
{
    bool device = p->accumulate_on_device, mean = p->cpu_update == ZF_CPU_UPDATE_MEAN && !device;
    for (size_t i = 0; i < count; i++)
        if (zf_window_shows(&all[i].window, t - 1)) {
            *used -= all[i].up;
            all[i].up = 0;
            all[i].window.up.any = false;
        }
    for (size_t i = 0; i < count; i++) {
        size_t lowered = device && zf_window_ends(&all[i].window, p, t) ? all[i].sum : 0;
        all[i].held += lowered;
        *used += all[i].slot + lowered;
    }
    if (*used > *most) *most = *used;
    for (size_t i = 0; i < count; i++) {
        struct walker *x = &all[i];
        bool ends = zf_window_ends(&x->window, p, t), overlap = p->visible != ZF_VISIBLE_NONE;
        size_t kept = device ? 0 : mean ? (x->held ? 0 : x->sum) : x->slot;
        *used += mean ? kept : 0;
        x->held += kept;
        if (*used > *most) *most = *used;
        if (mean) *used -= x->slot;
        for (int turn = 0; turn < 2; turn++) { /* without overlap a window ends before what is due becomes visible, else after it */
            if (ends && turn == overlap) {
                zf_window_close(&x->window, p, t);
                x->up = x->held;
                x->held = 0;
            }
            if (x->window.up.any && !x->window.up.served && x->window.up.serve <= t) {
                x->window.up.served = true;
                x->up += x->staging;
                *used += x->staging;
                if (*used > *most) *most = *used;
            }
            if (turn == 0 && zf_window_shows(&x->window, t) && (!p->layered || (ends && overlap))) {
                *used -= x->up;
                x->up = 0;
                x->window.up.any = false;
            }
        }
    }
}

/* Rows of a matrix that a CPU half has, at most. One of several ranks has room for all of its share. */
static size_t cpu_rows(const struct zf_param *q, const struct zf_policy *p, int ranks)
{
    size_t rest = q->rows - zf_policy_quota(p, q->rows), share = (q->rows + (size_t)ranks - 1) / (size_t)ranks;
    return ranks == 1 || !rest ? rest : share;
}

static size_t slots(const struct zf_params *params, const struct zf_policy *p, enum zf_dtype dtype, size_t chunk, int ranks)
{
    size_t count = 0, all = 0, before = 0, used = 0, most = 0;
    if (!zf_policy_offloads(p)) return 0;
    struct walker *w = calloc(params->count ? params->count : 1, sizeof *w);
    if (!w) return SIZE_MAX;
    for (size_t i = 0; i < params->count; i++)
        if (params->list[i].matrix && !params->list[i].frozen) all += params->list[i].rows * params->list[i].cols;
    for (size_t i = 0; i < params->count; i++) {
        const struct zf_param *q = &params->list[i];
        if (!q->matrix || q->frozen) continue;
        size_t own = q->rows * q->cols, rows = cpu_rows(q, p, ranks);
        struct walker *x = &w[count++];
        zf_window_start(&x->window, p, 0, before, own, all);
        before += own;
        x->slot = p->accumulate_on_device ? 0 : pieces(rows, q->cols * zf_dtype_size(p->bus), chunk);
        x->sum = pieces(rows, q->cols * sizeof(float), chunk);
        x->staging = pieces(rows, q->cols * zf_dtype_size(dtype), chunk);
    }
    for (uint64_t t = 1; t <= 3 * (uint64_t)p->interval + 1; t++) walk(w, count, p, t, &used, &most);
    free(w);
    return multiply(most, chunk);
}

/* What ranks exchange with, beside the rest (ranks.c). */
static size_t exchange(size_t channels, size_t most, size_t longest, size_t columns, int ranks)
{
    return zf_ranks_piece_bytes(longest) + most * sizeof(double) + ZF_COLUMN_PARTS * longest * sizeof(double) + longest * sizeof(float) +
           channels * sizeof(uint32_t) + (columns + 2 * (size_t)ranks) * sizeof(double);
}

void zf_pipeline_measure_rank(struct zf_pipeline_sizes *out, const struct zf_params *params, const struct zf_policy *policy,
                              enum zf_dtype dtype, int ranks)
{
    size_t longest = 0, most = 0, squares = 0, channels = 0, columns = 0, masters = dtype == ZF_F32 ? 0 : sizeof(float);
    *out = (struct zf_pipeline_sizes){0};
    for (size_t i = 0; i < params->count; i++) {
        const struct zf_param *q = &params->list[i];
        if (q->frozen) continue;
        size_t device = q->matrix ? zf_policy_quota(policy, q->rows) : 1, cpu = q->matrix ? cpu_rows(q, policy, ranks) : 0;
        out->device_state = add(out->device_state, add(multiply(multiply(device, q->cols), masters + 2 * sizeof(float)), 4 * device));
        out->cpu_state = add(out->cpu_state, add(multiply(multiply(cpu, q->cols), 3 * sizeof(float)), 4 * cpu));
        squares += (q->rows * q->cols + ZF_SQUARES_CHUNK - 1) / ZF_SQUARES_CHUNK + (size_t)(ranks - 1); /* of each share */
        if (!q->matrix) continue;
        if (policy->accumulate_on_device) out->device_staging = add(out->device_staging, multiply(multiply(cpu, q->cols), sizeof(float)));
        channels += q->rows;
        columns += q->cols;
        out->other = add(out->other, q->rows * 5 * sizeof(uint32_t) + q->cols * 2 * sizeof(float));
        if (q->cols > longest) longest = q->cols;
        if (q->rows > most) most = q->rows;
    }
    out->other = add(out->other, channels * 4 * sizeof(double) + squares * sizeof(double) + most * 4 * sizeof(uint32_t) +
                                     ZF_COLUMN_PARTS * longest * sizeof(double));
    out->device_staging = add(out->device_staging, multiply(2 * ZF_RING, zf_pipeline_piece_bytes(longest)));
    out->slots = slots(params, policy, dtype, zf_pipeline_chunk_bytes(longest), ranks);
    if (ranks > 1) out->other = add(out->other, exchange(channels, most, longest, columns, ranks));
}

void zf_pipeline_measure(struct zf_pipeline_sizes *out, const struct zf_params *params, const struct zf_policy *policy, enum zf_dtype dtype)
{
    zf_pipeline_measure_rank(out, params, policy, dtype, 1);
}
