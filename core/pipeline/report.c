/* See report.h. */
#include "core/pipeline/report.h"
#include "core/base/plural.h"
#include "core/pipeline/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lanes ---- */

static const char *const lane_names[] = {
#define X(name, field, text) text,
    ZF_LANE_MAP(X)
#undef X
};

const char *zf_lane_name(enum zf_lane_id id)
{
    return lane_names[id];
}

int zf_pipeline_lanes(const struct zf_pipeline *p)
{
    return p->comm ? ZF_LANES : ZF_LANE_COMM;
}

struct zf_lane *zf_pipeline_lane(const struct zf_pipeline *p, enum zf_lane_id id, struct zf_device **d)
{
    struct zf_lane *const lanes[] = {
#define X(name, field, text) p->field,
        ZF_LANE_MAP(X)
#undef X
    };
    *d = id == ZF_LANE_CPU ? p->host : p->device;
    return lanes[id];
}

void zf_pipeline_sample(const struct zf_pipeline *p, struct zf_pipeline_sample *out)
{
    enum { ROWS = 64 };
    struct zf_profile_row row[ROWS];
    struct zf_device *d;
    *out = (struct zf_pipeline_sample){.counts = p->counts};
    for (int i = 0; i < zf_pipeline_lanes(p); i++) {
        struct zf_lane *l = zf_pipeline_lane(p, (enum zf_lane_id)i, &d);
        out->busy[i] = d->type->lane_busy(l);
    }
    out->stalled = p->device->type->lane_waited(p->compute);
    if (!p->host->type->lane_profile) return;
    size_t n = p->host->type->lane_profile(p->cpu, row, ROWS);
    for (size_t i = 0; i < n && i < ROWS; i++) {
        if (strcmp(row[i].op, "serve_rows")) continue;
        out->adam_seconds += row[i].seconds;
        out->adam_bytes += row[i].bytes;
    }
}

struct zf_pipeline_sample zf_pipeline_between(const struct zf_pipeline_sample *from, const struct zf_pipeline_sample *to)
{
    struct zf_pipeline_sample d = *to;
    for (int i = 0; i < ZF_LANES; i++) d.busy[i] -= from->busy[i];
    d.stalled -= from->stalled;
    d.adam_seconds -= from->adam_seconds;
    d.adam_bytes -= from->adam_bytes;
    d.counts.d2h_bytes -= from->counts.d2h_bytes;
    d.counts.h2d_bytes -= from->counts.h2d_bytes;
    d.counts.cpu_updates -= from->counts.cpu_updates;
    d.counts.selections -= from->counts.selections;
    d.counts.comm_bytes -= from->counts.comm_bytes;
    return d;
}

struct zf_bus zf_pipeline_bus_formula(const struct zf_pipeline *p, double *matrix_bytes)
{
    const struct zf_policy *q = &p->policy;
    double weights = (double)p->parameters * (double)zf_dtype_size(p->model->dtype), s = q->interval,
           gradients = (double)p->parameters * (double)zf_dtype_size(q->bus), share = zf_policy_offloads(q) ? 1 - q->ratio : 0;
    *matrix_bytes = weights;
    return (struct zf_bus){.down = share * gradients / (q->accumulate_on_device ? s : 1), .up = share * weights / s};
}

/* ---- groups ---- */

static const char *const phase_names[] = {[ZF_GROUP_ACC] = "ACC", [ZF_GROUP_UP] = "UP", [ZF_GROUP_UPLOAD] = "UPLOAD"};

const char *zf_group_phase_name(enum zf_group_phase p)
{
    return phase_names[p];
}

static struct zf_group group_of(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    const struct zf_window *w = &x->window;
    return (struct zf_group){.start = w->start,
                             .fill = (double)x->open.count / (double)p->policy.interval,
                             .phase = zf_window_shows(w, p->step) ? ZF_GROUP_UPLOAD
                                      : w->up.any                 ? ZF_GROUP_UP
                                                                  : ZF_GROUP_ACC,
                             .staleness = p->step + 1 - zf_window_visible(w, &p->policy, p->step),
                             .due = zf_window_due(w, &p->policy, p->step)};
}

/* What holds for both: the older weights, and what is visible last. */
static void join(struct zf_group *g, const struct zf_group *x)
{
    if (x->fill < g->fill) g->fill = x->fill;
    if (x->staleness > g->staleness) g->staleness = x->staleness;
    if (g->phase == ZF_GROUP_ACC || x->phase == ZF_GROUP_UP) /* UP where any is, else UPLOAD where any is */
        if (x->phase != ZF_GROUP_ACC) g->phase = x->phase;
    if (x->due > g->due) g->due = x->due;
}

size_t zf_pipeline_groups(const struct zf_pipeline *p, struct zf_group *out, size_t room)
{
    size_t n = 0;
    if (!zf_policy_offloads(&p->policy)) return 0;
    for (size_t i = 0; i < p->matrices; i++) { /* in the order of service: starts do not fall */
        struct zf_group g = group_of(p, &p->matrix[i]);
        bool same = i && p->matrix[i - 1].window.start == g.start;
        if (!same) n++;
        if (n > room) continue;
        if (same)
            join(&out[n - 1], &g);
        else
            out[n - 1] = g;
    }
    return n;
}

/* ---- scores ---- */

const double zf_score_tops[ZF_SCORE_TOPS] = {0.001, 0.01, 0.05, 0.1, 0.2, 0.5};

bool zf_pipeline_selected(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return p->step && x->window.selected == p->step;
}

bool zf_pipeline_scored(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    return p->score_all || zf_pipeline_selected(p, x);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Of [n][2] sums, the squares. */
static void tops(const double *sums, size_t n, double total, double *sorted, double out[ZF_SCORE_TOPS])
{
    double sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) sorted[i] = sums[2 * i];
    qsort(sorted, n, sizeof *sorted, descending);
    for (int k = 0; k < ZF_SCORE_TOPS; k++) {
        size_t best = (size_t)(zf_score_tops[k] * (double)n + 0.5);
        for (size_t end = best ? best : 1; at < end && at < n; at++) sum += sorted[at];
        out[k] = total > 0 ? fmin(1, sum / total) : 0;
    }
}

enum zf_status zf_pipeline_scores(const struct zf_pipeline *p, const struct zf_matrix *x, struct zf_scores *out, struct zf_err *e)
{
    const double *sums = p->sums_seen + p->sums_at[x - p->matrix], *score = sums + (p->policy.score == ZF_SCORE_L1);
    size_t n = x->channels;
    double total = 0, selected = 0, *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return zf_fail_memory(e, "scores");
    *out = (struct zf_scores){.bins = n < ZF_SCORE_BINS ? n : ZF_SCORE_BINS};
    for (size_t b = 0; b < out->bins; b++) {
        size_t from = b * n / out->bins, end = (b + 1) * n / out->bins;
        double sum = 0;
        for (size_t i = from; i < end; i++) sum += score[2 * i];
        out->bin[b] = log10(sum / (double)(end - from));
    }
    for (size_t i = 0; i < n; i++) total += sums[2 * i];
    for (size_t i = 0; x->assigned && i < x->device.rows; i++) selected += sums[2 * x->order[i]];
    if (total > 0) out->selected_energy = x->assigned && x->device.rows == n ? 1 : fmin(1, selected / total);
    tops(sums, n, total, sorted, out->top);
    free(sorted);
    return ZF_OK;
}

/* ---- in words ---- */

static void windows_words(const struct zf_policy *p, char *text, size_t size)
{
    static const char *const visible[] = {
        [ZF_VISIBLE_NONE] = "while the device waits",
        [ZF_VISIBLE_GLOBAL] = "behind the device's back, all of it a window later",
        [ZF_VISIBLE_ROLLING] = "behind the device's back, matrix after matrix",
        [ZF_VISIBLE_STAGGERED] = "behind the device's back, matrix after matrix at staggered times",
    };
    static const char *const rates[] = {[ZF_CPU_LEARNING_RATE_SQRT] = "sqrt(S) times the rate",
                                        [ZF_CPU_LEARNING_RATE_WINDOW] = "the window's last rate",
                                        [ZF_CPU_LEARNING_RATE_SUM] = "the sum of its rates"};
    if (p->interval == 1) {
        snprintf(text, size, "%s",
                 p->visible != ZF_VISIBLE_NONE ? visible[p->visible]
                 : p->layered                  ? "every step; each layer waits for its own rows"
                                               : "every step, while the device waits");
        return;
    }
    bool mean = p->cpu_update == ZF_CPU_UPDATE_MEAN;
    snprintf(text, size, "every %" PRIu32 " step%s, %s; %s%s%s%s", p->interval, zf_plural(p->interval), visible[p->visible],
             mean ? "one update by the mean of a window, by " : "one update for each step's gradient", mean ? rates[p->cpu_rate] : "",
             p->accumulate_on_device ? ", summed on the device" : "", p->optimistic ? "; in between its channels move as expected" : "");
}

const char *zf_policy_words(const struct zf_policy *p, char *text, size_t size)
{
    char rest[320], again[64] = "";
    if (p->ratio >= 1) {
        snprintf(text, size, "the device updates all channels every step");
        return text;
    }
    windows_words(p, rest, sizeof rest);
    if (p->ratio <= 0) {
        snprintf(text, size, "the CPU updates all channels of matrices, %s", rest);
        return text;
    }
    if (p->select) snprintf(again, sizeof again, ", chosen anew every %" PRIu64 " step%s", (uint64_t)p->select, zf_plural(p->select));
    snprintf(text, size, "the device updates %.4g %% of the channels every step%s; %s the rest, %s", 100 * p->ratio, again,
             p->cpu_half ? "the CPU updates" : "nobody updates", p->cpu_half ? rest : "whose gradients are dropped");
    return text;
}
