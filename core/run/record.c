/* What happened, for the ones who read it: metrics.jsonl and stdout (never in the way of training), trainer.log, the journal (durable). */
#include "core/run/measure.h"
#include "core/base/plural.h"
#include "core/run/report.h"
#include "core/run/orders.h"

#include "core/base/clock.h"
#include "core/base/show.h"
#include "kernels/cores.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *integer(uint64_t x)
{
    return json_integer((json_int_t)x);
}

static json_t *line(const char *type, uint64_t step)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string(type));
    json_object_set_new(o, "step", integer(step));
    return o;
}

/* Resident bytes of this process. */
static uint64_t resident(void)
{
    unsigned long long total, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &total, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * 4096;
}

void zf_record_said(struct zf_trainer *t, const char *kind, const char *text)
{
    zf_plain_text(&t->plain, "%s: %s", kind, text);
    if (!t->log) return;
    fprintf(t->log, "%s: ", kind);
    zf_show_lines(t->log, text, strlen(text));
    putc('\n', t->log);
    fflush(t->log);
}

void zf_record_text(struct zf_trainer *t, const char *kind, const char *fmt, ...)
{
    char text[1536];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *o = line(kind, t->step), *said = json_string(text);
    json_object_set_new(o, "text", said ? said : json_string("(no UTF-8)"));
    zf_metrics_write(t->metrics, o);
    zf_record_said(t, kind, text);
}

/* Bytes a second, over as many parameters as the model has, at most four million: a matter of milliseconds. 0: not measured. Before the
 * first step, when the memory that activations will take is not yet in use. */
static double adam_speed(const struct zf_trainer *t, struct zf_device *d)
{
    enum { MOST = 4 << 20 };
    size_t n = t->model.params.parameters;
    double speed;
    struct zf_err ignored;
    return zf_measure_adamw(d, n < MOST ? n : MOST, &speed, &ignored) ? 0 : speed;
}

/* Who works where, for the start line and for people. Beside a GPU all threads are the CPU half's. */
static void record_threads(const struct zf_trainer *t, json_t *o, char *text, size_t size)
{
    struct zf_device_info info, half;
    int loader = t->loader_processor;
    bool gpu = t->o->device == ZF_DEVICE_CUDA, busy = t->host && zf_policy_offloads(&t->pipeline.policy);
    struct zf_device *pool = gpu ? t->host : t->device, *adams = busy ? t->host : pool;
    char rest[384] = "", speed[64] = "";
    pool->type->info(pool, &info);
    double adam = adam_speed(t, adams);
    json_object_set_new(o, "threads", json_integer(info.threads));
    json_object_set_new(o, "pinned", json_boolean(info.pinned));
    json_object_set_new(o, "placement", json_string(info.placement));
    if (t->host) {
        t->host->type->info(t->host, &half);
        json_object_set_new(
            o, "cpu_half",
            json_pack("{s:i s:b s:s s:b}", "threads", half.threads, "pinned", half.pinned, "placement", half.placement, "idle", !busy));
        if (gpu)
            snprintf(rest, sizeof rest, ", for the CPU half%s", busy ? "" : ", when it has work");
        else
            snprintf(rest, sizeof rest, "; the CPU half%s %d, %s", busy ? ":" : ", when it has work, takes", half.threads, half.placement);
    }
    if (loader >= 0) {
        size_t n = strlen(rest);
        json_object_set_new(o, "loader_processor", json_integer(loader));
        snprintf(rest + n, sizeof rest - n, "; the loader: processor %d", loader);
    }
    if (adam > 0) {
        json_object_set_new(o, "adam_gb_s", zf_json_real(adam * 1e-9));
        snprintf(speed, sizeof speed, "; CPU Adam %.1f GB/s by %d", adam * 1e-9, busy ? half.threads : info.threads);
    }
    snprintf(text, size, "threads: %d, %s%s%s", info.threads, info.placement, rest, speed);
}

void zf_record_start(struct zf_trainer *t)
{
    const struct zf_params *p = &t->model.params;
    struct zf_device_info info;
    char threads[768];
    json_t *o = json_object(), *matrices = json_array();
    t->device->type->info(t->device, &info);
    const char *strategy = zf_option_table[ZF_OPT_strategy].choices[t->o->strategy];
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].matrix)
            json_array_append_new(matrices, json_pack("{s:s s:I s:I}", "name", p->list[i].name, "channels", (json_int_t)p->list[i].rows,
                                                      "length", (json_int_t)p->list[i].cols));
    json_object_set_new(o, "type", json_string("start"));
    json_object_set_new(o, "version", json_string(ZF_VERSION));
    json_object_set_new(o, "model", json_string(t->o->path[0] ? t->o->path : zf_family_name(t->model.config.family)));
    json_object_set_new(o, "parameters", integer(p->parameters));
    json_object_set_new(o, "device", json_string(t->device->type->name));
    json_object_set_new(o, "device_description", json_string(info.description));
    record_threads(t, o, threads, sizeof threads);
    json_object_set_new(o, "dtype", json_string(zf_dtype_name(t->model.dtype)));
    json_object_set_new(o, "strategy", json_string(strategy));
    json_object_set_new(o, "options", zf_options_json(t->o));
    json_object_set_new(o, "data", zf_report_dataset_json(&t->setup->train));
    json_object_set_new(o, "matrices", matrices);
    json_object_set_new(o, "attempt", integer(t->resume ? t->resume->attempt : 1));
    zf_metrics_write(t->metrics, o);
    if (t->resume)
        zf_metrics_write(t->metrics, json_pack("{s:s s:I s:I}", "type", "resume", "step", (json_int_t)t->step, "attempt",
                                               (json_int_t)t->resume->attempt));

    char bytes[32], left[32], all[32], words[512];
    const struct zf_setup *s = t->setup;
    zf_plain_text(&t->plain, "zenflow-console %s: %s, %" PRIu64 " parameters, %s, strategy %s on %s (%s)", ZF_VERSION,
                  t->o->path[0] ? t->o->path : zf_family_name(t->model.config.family), (uint64_t)p->parameters,
                  zf_dtype_name(t->model.dtype), strategy, t->device->type->name, info.description);
    zf_plain_text(&t->plain, "policy: %s", zf_policy_words(&t->pipeline.policy, words, sizeof words));
    zf_plain_text(&t->plain, "%s", threads);
    zf_plain_text(&t->plain,
                  "data: %" PRIu64 " row%s to train on, %" PRIu64 " to validate on, %" PRIu64 " tokens, %" PRIu64
                  " of them targets; the loss is the mean over the targets of a step",
                  s->train.rows, zf_plural(s->train.rows), s->valid.rows, s->all.tokens, s->all.label_tokens);
    if (s->all.layout) zf_plain_text(&t->plain, "template: %s", s->all.layout);
    zf_plain_text(&t->plain, "memory: %s planned for micro-batches of %zu sequence%s, %zu tokens",
                  zf_bytes_text(s->plan.total, bytes, sizeof bytes), s->plan.micro_batch, zf_plural(s->plan.micro_batch), s->plan.tokens);
    if (s->plan.device_total)
        zf_plain_text(&t->plain, "gpu memory: %s planned, %s left of %s", zf_bytes_text(s->plan.device_total, bytes, sizeof bytes),
                      zf_bytes_text(s->limits.device, left, sizeof left), zf_bytes_text(s->limits.device_total, all, sizeof all));
    zf_plain_text(&t->plain, "run: %s, %" PRIu64 " step%s of %" PRId64 " sequence%s", t->run, t->setup->steps, zf_plural(t->setup->steps),
                  t->o->batch_size, zf_plural((uint64_t)t->o->batch_size));
}

/* Bytes that the device's own memory would hold: all but what the CPU half keeps; the same with one device of the host as with two. */
static uint64_t device_bytes(const struct zf_trainer *t)
{
    struct zf_device *const devices[] = {t->device, t->o->device == ZF_DEVICE_CUDA ? NULL : t->host};
    struct zf_device_info info;
    uint64_t sum = 0;
    for (int d = 0; d < 2 && devices[d]; d++) {
        devices[d]->type->info(devices[d], &info);
        if (info.own_peak) {
            for (int i = 0; i < ZF_MEM_TAGS; i++) sum += info.own[i];
            return sum;
        }
        for (int i = 0; i < ZF_MEM_TAGS; i++)
            if (i != ZF_TAG_CPU_STATE && i != ZF_TAG_SLOTS && i != ZF_TAG_COPIES) sum += info.bytes[i];
    }
    return sum;
}

static json_t *busy_json(const struct zf_trainer *t, double seconds)
{
    json_t *o = json_object();
    for (int i = 0; i < zf_pipeline_lanes(&t->pipeline); i++)
        json_object_set_new(o, zf_lane_name((enum zf_lane_id)i), zf_json_real(fmin(1, t->watch.step.busy[i] / seconds)));
    return o;
}

static json_t *groups_json(struct zf_trainer *t)
{
    struct zf_watch *w = &t->watch;
    json_t *list = json_array();
    size_t n = zf_pipeline_groups(&t->pipeline, w->groups, w->group_room);
    if (n > w->group_room) {
        free(w->groups);
        w->groups = malloc(n * sizeof *w->groups);
        w->group_room = w->groups ? n : 0;
        n = w->groups ? zf_pipeline_groups(&t->pipeline, w->groups, n) : 0;
    }
    for (size_t i = 0; i < n; i++) {
        const struct zf_group *g = &w->groups[i];
        json_array_append_new(list, json_pack("{s:f s:s s:I s:I}", "fill", g->fill, "phase", zf_group_phase_name(g->phase), "staleness",
                                              (json_int_t)g->staleness, "due", (json_int_t)g->due));
    }
    return list;
}

/* How the step went through the lanes. */
static void set_lanes(json_t *o, struct zf_trainer *t, double seconds)
{
    const struct zf_pipeline_sample *s = &t->watch.step;
    json_object_set_new(o, "compute_ms", zf_json_real(1e3 * s->busy[ZF_LANE_COMPUTE]));
    json_object_set_new(o, "stall_ms", zf_json_real(1e3 * s->stalled));
    json_object_set_new(o, "busy", busy_json(t, seconds));
    json_object_set_new(o, "d2h_bytes", integer(s->counts.d2h_bytes));
    json_object_set_new(o, "h2d_bytes", integer(s->counts.h2d_bytes));
    if (t->pipeline.comm) json_object_set_new(o, "comm_bytes", integer(s->counts.comm_bytes));
    json_object_set_new(o, "groups", groups_json(t));
    json_object_set_new(o, "cpu_updates", integer(s->counts.cpu_updates));
    if (s->adam_seconds > 0) json_object_set_new(o, "adam_gb_s", zf_json_real(1e-9 * s->adam_bytes / s->adam_seconds));
}

/* Lines that are lost are told to whoever looks now, and that there is room again. */
static void tell_lost(struct zf_trainer *t)
{
    size_t lost = zf_metrics_dropped(t->metrics);
    bool now = lost > t->lost.seen;
    if (now && !t->lost.told)
        zf_record_text(t, "warning", "metrics.jsonl cannot be written, lines are lost: %s; training goes on", zf_metrics_why(t->metrics));
    if (!now && t->lost.told)
        zf_record_text(t, "note", "metrics.jsonl is written again; %zu line%s lost", lost, lost == 1 ? " is" : "s are");
    t->lost.told = now;
    t->lost.seen = zf_metrics_dropped(t->metrics);
}

void zf_record_step(struct zf_trainer *t, const struct zf_step_record *r)
{
    bool last = r->step == t->setup->steps;
    if (t->o->log_every && (r->step % (uint64_t)t->o->log_every == 0 || last || !r->norm.apply)) {
        json_t *o = line("step", r->step);
        json_object_set_new(o, "time", zf_json_real(zf_clock() - t->started));
        json_object_set_new(o, "epoch", zf_json_real((double)(r->last_row + 1) / (double)t->order.rows));
        json_object_set_new(o, "loss", zf_json_real(r->loss));
        json_object_set_new(o, "grad_norm", zf_json_real(r->norm.norm));
        json_object_set_new(o, "clip", zf_json_real(r->norm.clip));
        json_object_set_new(o, "learning_rate", zf_json_real(r->rate));
        json_object_set_new(o, "tokens", integer(r->tokens));
        json_object_set_new(o, "label_tokens", integer(r->label_tokens));
        json_object_set_new(o, "tokens_per_s", zf_json_real((double)r->tokens / r->seconds));
        json_object_set_new(o, "step_ms", zf_json_real(1e3 * r->seconds));
        json_object_set_new(o, "rows", json_pack("[I,I]", (json_int_t)r->first_row, (json_int_t)r->last_row));
        set_lanes(o, t, r->seconds);
        json_object_set_new(o, "skipped", integer(t->skipped));
        json_object_set_new(o, "memory_device", integer(device_bytes(t)));
        json_object_set_new(o, "memory_host", integer(resident()));
        zf_metrics_write(t->metrics, o);
        const struct zf_scalar scalars[] = {{"loss", (float)r->loss},
                                            {"grad_norm", (float)r->norm.norm},
                                            {"learning_rate", (float)r->rate},
                                            {"tokens_per_s", (float)((double)r->tokens / r->seconds)}};
        zf_tensorboard_write(t->watch.tensorboard, r->step, scalars, sizeof scalars / sizeof *scalars);
    }
    if (r->norm.apply) zf_record_channels(t);
    zf_plain_step(&t->plain,
                  &(struct zf_plain_step){.step = r->step,
                                          .steps = t->setup->steps,
                                          .loss = r->loss,
                                          .norm = r->norm.norm,
                                          .clip = r->norm.clip,
                                          .applied = r->norm.apply,
                                          .learning_rate = r->rate,
                                          .tokens_per_s = (double)r->tokens / r->seconds,
                                          .eta = r->eta,
                                          .skipped = t->skipped},
                  zf_clock(), last);
    tell_lost(t);
}

void zf_record_valid(struct zf_trainer *t, const struct zf_valid_record *r)
{
    json_t *o = line("valid", t->step);
    char accuracy[96] = "";
    json_object_set_new(o, "loss", zf_json_real(r->loss));
    json_object_set_new(o, "tokens", integer(r->tokens));
    if (r->choices.records) {
        double share = (double)r->choices.right / (double)r->choices.records,
               always = (double)r->choices.commonest / (double)r->choices.records;
        json_object_set_new(o, "accuracy", zf_json_real(share));
        json_object_set_new(o, "records", integer(r->choices.records));
        json_object_set_new(o, "commonest", zf_json_real(always));
        snprintf(accuracy, sizeof accuracy, ", accuracy %.4f of %" PRIu64 " (the commonest answer: %.4f)", share, r->choices.records,
                 always);
    }
    zf_metrics_write(t->metrics, o);
    zf_tensorboard_write(t->watch.tensorboard, t->step, &(struct zf_scalar){"valid_loss", (float)r->loss}, 1);
    zf_plain_text(&t->plain, "step %" PRIu64 " validation loss %.4f over %" PRIu64 " targets%s", t->step, r->loss, r->tokens, accuracy);
}

static void add_piece(void *ctx, const float *x, size_t n)
{
    struct zf_norm *s = ctx;
    for (size_t i = 0; i < n; i++) {
        s->squares += (double)x[i] * x[i];
        if (isnan(x[i]) || fabsf(x[i]) > s->most) s->most = fabsf(x[i]);
    }
}

static enum zf_status own_norms(struct zf_trainer *t, double *sums, struct zf_err *e)
{
    const struct zf_params *p = &t->model.params;
    size_t each = 1 + (size_t)zf_world_ranks(t->world);
    for (size_t i = 0; i < p->count; i++) {
        struct zf_norm norm = {0};
        if (!p->list[i].frozen) ZF_TRY(zf_pipeline_gradient(&t->pipeline, &p->list[i], add_piece, &norm, e));
        sums[i * each] = norm.squares;
        sums[i * each + 1 + (size_t)zf_world_rank(t->world)] = norm.most;
    }
    return ZF_OK;
}

/* Gradients as they are after the step: summed over micro-batches and ranks, before clipping. */
enum zf_status zf_trainer_norms(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    size_t count = t->model.params.count, each = 1 + (size_t)zf_world_ranks(t->world);
    double *sums = calloc(count * each, sizeof *sums);
    (void)o, (void)text;
    if (!t->norm) t->norm = calloc(count, sizeof *t->norm);
    enum zf_status s = sums && t->norm ? own_norms(t, sums, e) : zf_fail_memory(e, "the norms of gradients");
    s = zf_order_sum(t, s, sums, count * each, e);
    for (size_t i = 0; !s && i < count; i++) {
        const double *x = sums + i * each;
        t->norm[i] = (struct zf_norm){.squares = x[0]};
        for (size_t r = 1; r < each; r++)
            if (isnan(x[r]) || x[r] > t->norm[i].most) t->norm[i].most = x[r];
    }
    free(sums);
    return s;
}

enum zf_status zf_record_norms(struct zf_trainer *t, struct zf_err *e)
{
    const struct zf_params *p = &t->model.params;
    double total = 0;
    enum zf_status s = zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_NORMS}, NULL, e);
    if (s == ZF_MEMORY && !t->world) return ZF_OK; /* telemetry never stops training */
    ZF_TRY(s);
    json_t *o = line("norms", t->step), *matrices = json_array();
    for (size_t i = 0; i < p->count; i++) {
        total += t->norm[i].squares;
        if (!p->list[i].matrix || p->list[i].frozen) continue;
        json_t *m = json_pack("{s:s}", "name", p->list[i].name);
        json_object_set_new(m, "norm", zf_json_real(sqrt(t->norm[i].squares)));
        json_object_set_new(m, "max", zf_json_real(t->norm[i].most));
        json_array_append_new(matrices, m);
    }
    json_object_set_new(o, "total", zf_json_real(sqrt(total)));
    json_object_set_new(o, "matrices", matrices);
    zf_metrics_write(t->metrics, o);
    return ZF_OK;
}

/* What the bus carried in a step, in units of M, the bytes of all matrices' weights, beside what a formula says; how long the device waited
 * for it. */
static void set_bus(json_t *o, const struct zf_trainer *t, char *text, size_t size)
{
    double m = 0, steps = (double)t->watch.sum.steps;
    if (!t->kept) zf_pipeline_bus_formula(&t->pipeline, &m);
    text[0] = 0;
    if (!t->watch.sum.steps || m <= 0) return;
    double unit = 1 / (m * steps), down = (double)t->watch.sum.d2h_bytes * unit, up = (double)t->watch.sum.h2d_bytes * unit,
           formula = (t->watch.sum.formula_down + t->watch.sum.formula_up) * unit, stall = t->watch.sum.stalled / t->watch.sum.seconds;
    json_object_set_new(o, "stall", zf_json_real(stall));
    json_object_set_new(o, "selections", integer(t->watch.sum.selections));
    json_object_set_new(o, "bus",
                        json_pack("{s:f s:f s:f s:f s:f s:f}", "matrix_bytes", m, "d2h", down, "h2d", up, "formula_d2h",
                                  t->watch.sum.formula_down * unit, "formula_h2d", t->watch.sum.formula_up * unit, "formula", formula));
    char bytes[32], measured[32];
    if (down + up + formula <= 0 && !t->watch.sum.selections) return; /* there is no CPU half to wait for */
    snprintf(text, size,
             "stalls: %.1f %% of the time; bus: measured %.4g M a step (%.4g down, %.4g up; M = %s, %s a step), formula %.4g M; "
             "selections: %" PRIu64,
             100 * stall, down + up, down, up, zf_bytes_text((uint64_t)m, bytes, sizeof bytes),
             zf_bytes_text((uint64_t)((down + up) * m), measured, sizeof measured), formula, t->watch.sum.selections);
}

void zf_record_end(struct zf_trainer *t, const char *reason, enum zf_status code)
{
    struct zf_err e;
    char bus[384];
    json_t *o = line("end", t->step);
    json_object_set_new(o, "reason", json_string(reason));
    json_object_set_new(o, "code", json_integer(code));
    json_object_set_new(o, "steps", integer(t->setup->steps)); /* as they were in the end: more go on */
    set_bus(o, t, bus, sizeof bus);
    if (zf_metrics_dropped(t->metrics)) json_object_set_new(o, "metrics_dropped", integer(zf_metrics_dropped(t->metrics)));
    bool said = atomic_exchange(&t->ended, true); /* by the thread that looks after the ranks */
    if (!said) zf_metrics_write(t->metrics, json_incref(o));
    if (!said && t->journal && zf_journal_append(t->journal, o, &e))
        zf_err_print("warning", &e);
    else if (said || !t->journal)
        json_decref(o);
    if (zf_metrics_dropped(t->metrics))
        zf_plain_text(&t->plain, "warning: %zu line%s of metrics.jsonl lost: %s", zf_metrics_dropped(t->metrics),
                      zf_plural(zf_metrics_dropped(t->metrics)), zf_metrics_why(t->metrics));
    if (zf_tensorboard_dropped(t->watch.tensorboard))
        zf_plain_text(&t->plain, "warning: %zu record%s for TensorBoard lost", zf_tensorboard_dropped(t->watch.tensorboard),
                      zf_plural(zf_tensorboard_dropped(t->watch.tensorboard)));
    if (bus[0]) zf_plain_text(&t->plain, "%s", bus);
    zf_plain_text(&t->plain, "end: %s at step %" PRIu64 " of %" PRIu64 "; %" PRIu64 " clipped, %" PRIu64 " skipped", reason, t->step,
                  t->setup->steps, t->clipped, t->skipped);
}
