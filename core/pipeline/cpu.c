/* The CPU half's work, issued into the cpu lane: folding slots into sums, serving windows, staging visible rows, second moments for the
 * device. */
#include "core/pipeline/impl.h"

#include <math.h>

static struct zf_chunked view(const struct zf_rows_memory *m)
{
    return (struct zf_chunked){.chunk = m->chunk, .chunk_rows = m->chunk_rows};
}

/* What the sum's update makes of one learning rate. */
static double mean_rate(const struct zf_update *u)
{
    const double of[] = {[ZF_CPU_LEARNING_RATE_WINDOW] = u->last_rate,
                         [ZF_CPU_LEARNING_RATE_SUM] = u->sum_rate,
                         [ZF_CPU_LEARNING_RATE_SQRT] = u->last_rate * sqrt((double)u->count)};
    return of[u->cpu_rate];
}

double zf_update_ahead(const struct zf_pipeline *p, const struct zf_matrix *x, const struct zf_update *u)
{
    double n = zf_window_lag(&x->window, &p->policy), count = (double)u->count, b = u->rule.beta1, sum = 0, term = 1;
    const double rates[] = {
        [ZF_CPU_LEARNING_RATE_WINDOW] = 1, [ZF_CPU_LEARNING_RATE_SUM] = count, [ZF_CPU_LEARNING_RATE_SQRT] = sqrt(count)};
    if (p->policy.cpu_update == ZF_CPU_UPDATE_MEAN) return u->last_rate * (n / count * rates[u->cpu_rate]);
    for (int i = 1; i <= (int)n; i++) sum += term *= b;
    return u->last_rate * (sum + (n - (int)n) * term * b);
}

/* Memory that the cpu lane may write: behind whatever h2d still reads of it. */
static enum zf_status take(struct zf_pipeline *p, size_t rows, size_t bytes, struct zf_rows_memory *out, struct zf_err *e)
{
    ZF_TRY(zf_chunks_take(&p->chunks, rows, bytes, out, e));
    return zf_pipeline_wait(p->host, p->cpu, p->raised, e);
}

enum zf_status zf_pipeline_fold(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct zf_update *u = &x->open;
    size_t rows = zf_cpu_rows(x);
    bool add = u->sum.chunk != NULL;
    if (!add) ZF_TRY(take(p, rows, x->length * sizeof(float), &u->sum, e));
    ISSUE_CPU(p, fold_rows, e, .type = p->policy.bus, .g = view(&u->slots[0]), .sum = view(&u->sum), .rows = rows, .cols = x->length,
              .scale = u->entries[0].scale, .add = add);
    return ZF_OK;
}

/* Room in staging for all of the CPU half. What is there may be of before a selection that gave it more; lanes are idle then. */
static enum zf_status make_staging(struct zf_pipeline *p, struct zf_matrix *x, size_t rows, struct zf_err *e)
{
    struct zf_rows_memory *s = &x->staging;
    if (s->count * s->chunk_rows >= rows) return ZF_OK;
    ZF_TRY(zf_pipeline_bury(p, zf_chunks_give(&p->chunks, s), p->step + 1, e));
    return take(p, rows, x->length * zf_dtype_size(p->model->dtype), s, e);
}

/* One AdamW an entry, or none; visible rows into staging. */
static enum zf_status issue_serve(struct zf_pipeline *p, struct zf_matrix *x, const struct zf_update *u, uint32_t entries, double ahead,
                                  struct zf_err *e)
{
    const struct zf_adam_rule *r = &u->rule;
    size_t rows = zf_cpu_rows(x);
    bool mean = p->policy.cpu_update == ZF_CPU_UPDATE_MEAN;
    ZF_TRY(make_staging(p, x, rows, e));
    if (entries) ZF_TRY(zf_pipeline_spare(p, x, e));
    ISSUE_CPU(p, serve_rows, e, .type = p->model->dtype, .g_type = mean ? ZF_F32 : p->policy.bus, .master = x->cpu.master, .m = x->cpu.m,
              .v = x->cpu.v, .t = x->cpu.t, .list = x->order + x->device.rows, .entries = u->entries, .entry_count = entries, .rows = rows,
              .cols = x->length, .visible = view(&x->staging), .ahead = ahead, .beta1 = r->beta1, .beta2 = r->beta2, .eps = r->epsilon,
              .decay = r->weight_decay, .stochastic = r->stochastic && p->model->dtype != ZF_F32, .seed = r->seed,
              .first = x->param->offset);
    return ZF_OK;
}

static void note_staged(struct zf_matrix *x)
{
    x->staged_rows = zf_cpu_rows(x);
    x->staged_moved = false;
    for (size_t r = 0; r < x->staged_rows; r++) x->staged[r] = x->order[x->device.rows + r];
    if (x->shares) zf_ranks_staged(x);
}

enum zf_status zf_pipeline_statistics(struct zf_pipeline *p, struct zf_matrix *x, const uint32_t *list, const uint32_t *to_list,
                                      size_t rows, bool columns, double beta2, struct zf_err *e)
{
    ISSUE_CPU(p, vhat_rows, e, .v = x->cpu.v, .t = x->cpu.t, .list = list, .to_list = to_list, .channel = x->next_channel,
              .column = columns ? p->column_parts : NULL, .rows = rows, .cols = x->length, .beta2 = beta2);
    if (columns && x->shares) return zf_ranks_add_columns(p, x, rows > 0, e);
    if (columns) ISSUE_CPU(p, column_shares, e, .column = p->column_parts, .share = x->next_column, .rows = rows, .cols = x->length);
    return ZF_OK;
}

enum zf_status zf_pipeline_serve(struct zf_pipeline *p, struct zf_matrix *x, struct zf_update *u, bool exact, struct zf_err *e)
{
    size_t rows = zf_cpu_rows(x);
    bool optimistic = p->policy.optimistic;
    if (!zf_all_cpu_rows(x)) return ZF_OK;
    uint32_t entries = u->count;
    if (p->policy.cpu_update == ZF_CPU_UPDATE_MEAN && u->count) {
        u->entries[0] = (struct zf_entry){.g = view(&u->sum), .scale = (float)(1 / (double)u->count), .lr = mean_rate(u)};
        entries = 1;
    }
    ZF_TRY(issue_serve(p, x, u, entries, optimistic && !exact ? zf_update_ahead(p, x, u) : 0, e));
    p->counts.cpu_updates++;
    note_staged(x);
    if (optimistic) ZF_TRY(zf_pipeline_statistics(p, x, NULL, NULL, rows, !exact, u->rule.beta2, e));
    return zf_pipeline_record(p->host, p->cpu, x->served, e);
}

enum zf_status zf_pipeline_stage(struct zf_pipeline *p, struct zf_matrix *x, const struct zf_update *u, bool exact, struct zf_err *e)
{
    if (!zf_all_cpu_rows(x)) return ZF_OK;
    ZF_TRY(issue_serve(p, x, u, 0, exact ? 0 : zf_update_ahead(p, x, u), e));
    note_staged(x);
    return zf_pipeline_record(p->host, p->cpu, x->served, e);
}
