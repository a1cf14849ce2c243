/* The trainer as the session steers it: what a change of options means for its parts, and the commands that only it can do. */
#include "core/run/steer.h"
#include "core/run/orders.h"
#include "core/run/load.h"
#include "core/run/release.h"
#include "core/run/sample.h"
#include "core/run/save.h"
#include "core/run/saves.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct zf_schedule zf_schedule_of(const struct zf_options *o)
{
    return (struct zf_schedule){.kind = (enum zf_schedule_kind)o->schedule,
                                .rate = o->learning_rate,
                                .least = o->min_learning_rate,
                                .steps = (uint64_t)o->schedule_steps,
                                .warmup = (uint64_t)o->warmup_steps};
}

struct zf_adam_rule zf_rule_of(const struct zf_options *o)
{
    return (struct zf_adam_rule){.beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .epsilon = o->epsilon,
                                 .weight_decay = o->weight_decay,
                                 .clip_norm = o->clip_norm,
                                 .stochastic = o->stochastic_rounding,
                                 .seed = (uint64_t)o->seed};
}

/* What the loader hands out: from `step` to the end of the run. */
enum zf_status zf_trainer_feed(struct zf_trainer *t, struct zf_err *e)
{
    const struct zf_options *o = t->o;
    const struct zf_setup *s = t->setup;
    uint64_t first = t->step * (uint64_t)o->batch_size;
    t->profile.data_cpu += zf_loader_cpu(t->loader);
    zf_loader_stop(t->loader);
    t->loader = NULL;
    return zf_loader_start(&t->loader,
                           &(struct zf_loader_options){.data = &s->train,
                                                       .order = &t->order,
                                                       .first = first,
                                                       .count = s->total_rows > first ? s->total_rows - first : 0,
                                                       .step_rows = (uint64_t)o->batch_size,
                                                       .rank = zf_world_rank(t->world),
                                                       .ranks = zf_world_ranks(t->world),
                                                       .micro_batch = s->plan.micro_batch,
                                                       .room_tokens = s->plan.tokens,
                                                       .placed = t->loader_processor >= 0,
                                                       .processor = t->loader_processor},
                           e);
}

enum zf_status zf_steer_memory(const struct zf_trainer *t, const struct zf_policy *policy, struct zf_err *e)
{
    const struct zf_setup *s = t->setup;
    struct zf_memory_request r = s->request;
    struct zf_memory_plan plan;
    r.micro_batch = s->plan.micro_batch;
    zf_pipeline_measure_rank(&r.halves, &s->params, policy, t->model.dtype, zf_world_ranks(t->world));
    zf_memory_plan_make(&plan, &r, s->limits.least);
    return zf_memory_plan_check(&plan, &r, &s->limits, e);
}

static enum zf_status check(void *ctx, const struct zf_options *now, const struct zf_options *wanted, uint64_t from, struct zf_err *e)
{
    const struct zf_trainer *t = ctx;
    (void)from;
    if (t->kept) return zf_fail(e, ZF_DIFFERENT, "set", "the GPU is released; `resume` takes it again");
    if ((uint64_t)wanted->steps > UINT64_MAX / (uint64_t)wanted->batch_size)
        return zf_fail(e, ZF_USAGE, "steps", "%" PRId64 " steps of %" PRId64 " sequences are too many", wanted->steps, wanted->batch_size);
    if (wanted->strategy == ZF_STRATEGY_AUTO && now->strategy != ZF_STRATEGY_AUTO)
        return zf_fail(e, ZF_DIFFERENT, "strategy", "auto is settled at a start; name the strategy itself");
    /* update_interval = auto begins anew whenever it is chosen */
    uint32_t interval = now->update_interval ? zf_policy_first_interval(wanted) : t->pace.interval.now;
    struct zf_policy policy = zf_policy_of(wanted, t->model.dtype, interval);
    return zf_policy_compare(&t->pipeline.policy, &policy) == ZF_CHANGE_NOTHING ? ZF_OK : zf_steer_memory(t, &policy, e);
}

static enum zf_status apply(void *ctx, const struct zf_options *before, uint64_t from, struct zf_err *e)
{
    struct zf_trainer *t = ctx;
    (void)from;
    t->plain.every = t->o->plain_every;
    if (before->update_interval) zf_pace_start(t);
    json_t *changes = zf_orders_changes(before, t->o, t->pace.interval.now);
    enum zf_status s = changes ? zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_CHANGE}, changes, e) : zf_fail_memory(e, "a change");
    json_decref(changes);
    ZF_TRY(s);
    if (t->change) zf_pace_forget(t);
    t->drains += t->change & ZF_CHANGE_DRAIN ? 1 : 0;
    return ZF_OK;
}

static double rate(void *ctx, const struct zf_options *o, uint64_t step)
{
    (void)ctx;
    struct zf_schedule s = zf_schedule_of(o);
    return zf_schedule_rate(&s, step);
}

static bool can(void *ctx, enum zf_command_id id)
{
    const struct zf_trainer *t = ctx;
    return id == ZF_CMD_save || id == ZF_CMD_load || id == ZF_CMD_checkpoints || id == ZF_CMD_export || id == ZF_CMD_trace ||
           id == ZF_CMD_score || id == ZF_CMD_watch || (id == ZF_CMD_sample && t->setup->tokenizer) ||
           (id == ZF_CMD_eval && t->setup->valid.rows) || (id == ZF_CMD_select && (t->kept || zf_policy_selects(&t->pipeline.policy)));
}

static enum zf_status export_to(struct zf_trainer *t, const char *folder, struct zf_err *e)
{
    if (!folder) {
        ZF_TRY(zf_trainer_export(t, false, e));
        return ZF_OK;
    }
    if (folder[0] != '/') return zf_fail(e, ZF_USAGE, folder, "an absolute path is expected here");
    ZF_TRY(zf_model_export(&t->model, folder, t->setup->config_json, t->setup->tokenizer_folder, e));
    if (!t->o->path[0] && !t->setup->tokenizer_folder) ZF_TRY(zf_tokenizer_write_bytes(folder, t->model.config.eos_count > 0, e));
    return ZF_OK;
}

static bool ask(void *ctx, const struct zf_command *c, char *text, size_t room)
{
    struct zf_trainer *t = ctx;
    if (c->id == ZF_CMD_load) return zf_load_loses(t, c->word[0], text, room);
    return c->id == ZF_CMD_save && zf_save_replaces(t, c->count ? c->word[0] : NULL, !c->client, text, room);
}

static enum zf_status act(void *ctx, const struct zf_command *c, char *text, size_t room, struct zf_err *e)
{
    struct zf_trainer *t = ctx;
    enum zf_status s = ZF_OK;
    const char *folder = c->count ? c->word[0] : NULL;
    double loss;
    if (t->kept && c->id != ZF_CMD_save && c->id != ZF_CMD_checkpoints)
        return zf_fail(e, ZF_DIFFERENT, c->row->name, "the GPU is released; `resume` takes it again");
    if (c->id == ZF_CMD_save) {
        s = zf_save_command(t, folder, !c->client, text, room, e);
    } else if (c->id == ZF_CMD_load) {
        s = zf_load(t, c, text, room, e);
    } else if (c->id == ZF_CMD_checkpoints) {
        char *run = zf_trainer_place(t), *list = run ? zf_saves_list(run) : NULL;
        snprintf(text, room, "%s", list && *list ? list : "there are none yet; `save` writes one");
        free(run);
        free(list);
    } else if (c->id == ZF_CMD_export) {
        zf_session_doing(t->session, "exporting");
        s = export_to(t, folder, e);
        if (!s) snprintf(text, room, "step %" PRIu64 " exported to %s", t->step, folder ? folder : t->exported);
    } else if (c->id == ZF_CMD_eval) {
        zf_session_doing(t->session, "validating");
        s = zf_trainer_validate(t, &loss, e);
        if (!s) snprintf(text, room, "validation loss %.4f after step %" PRIu64, loss, t->step);
    } else if (c->id == ZF_CMD_trace) {
        s = zf_watch_trace(t, c->number, text, room, e);
    } else if (c->id == ZF_CMD_score) {
        zf_watch_score(t);
        snprintf(text, room, "a `score` line comes with step %" PRIu64, t->step + 1);
    } else if (c->id == ZF_CMD_watch) {
        s = zf_watch_matrix(t, c->client, c->word[0], text, room, e);
    } else if (c->id == ZF_CMD_sample) {
        s = zf_trainer_sample(t, c->word[0], text, room, e);
    } else if (c->id == ZF_CMD_select) {
        s = zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_SELECT}, NULL, e);
        snprintf(text, room, "each matrix selects anew at its next window start, from step %" PRIu64, t->step + 1);
    } else {
        s = zf_fail(e, ZF_DIFFERENT, c->row->name, "this version cannot do it");
    }
    return s;
}

static void record(void *ctx, json_t *stolen)
{
    struct zf_trainer *t = ctx;
    const char *type = json_string_value(json_object_get(stolen, "type")), *text = json_string_value(json_object_get(stolen, "text"));
    const json_t *option = json_object_get(stolen, "option");
    if (type && text) zf_record_said(t, type, text);
    if (type && option) {
        char old[512], new[512], said[1400];
        const char *user = zf_json_text(stolen, "user", "");
        snprintf(
            said, sizeof said, "%s %s -> %s, from step %" PRId64 " (%s%s%s)", json_string_value(option),
            zf_json_shown(json_object_get(stolen, "old"), old, sizeof old), zf_json_shown(json_object_get(stolen, "new"), new, sizeof new),
            (int64_t)json_integer_value(json_object_get(stolen, "from_step")), user, *user ? ", " : "", zf_json_text(stolen, "by", "?"));
        zf_record_said(t, type, said);
    }
    zf_metrics_write(t->metrics, stolen);
}

static enum zf_status idle(void *ctx, struct zf_err *e)
{
    struct zf_trainer *t = ctx;
    if (zf_session_clients(t->session)) t->lonely = zf_clock();
    zf_lock_paused(t->lock, true);
    zf_save_idle(t);
    if (t->ill && zf_clock() - t->lonely >= t->o->grace) return zf_fail(e, ZF_NUMERIC, NULL, "nobody answered");
    return zf_trainer_between(t, e);
}

static enum zf_status release_gpu(void *ctx, char *text, size_t room, struct zf_err *e)
{
    return zf_release(ctx, text, room, e);
}

static enum zf_status take_gpu(void *ctx, char *text, size_t room, struct zf_err *e)
{
    enum zf_status s = zf_take_back(ctx, text, room, e);
    if (!s) return s;
    const struct zf_err why = *e;
    return zf_fail(e, s, why.where, "%s; the run stays paused, with its state in host memory: `resume` tries again, `save` and `stop` work",
                   why.message);
}

void zf_steer_ask(struct zf_trainer *t)
{
    t->ill = true;
    t->lonely = zf_clock();
    zf_session_pause(t->session, "a step was not finite");
}

enum zf_status zf_steer_open(struct zf_trainer *t, struct zf_options *live, char *unheard, size_t size, struct zf_err *e)
{
    const struct zf_session_trainer trainer = {.ctx = t,
                                               .check = check,
                                               .apply = apply,
                                               .rate = rate,
                                               .can = can,
                                               .act = act,
                                               .ask = ask,
                                               .record = record,
                                               .idle = idle,
                                               .release = release_gpu,
                                               .take = take_gpu};
    struct zf_err why;
    ZF_TRY(zf_session_open(&t->session, t->run, live, t->journal, &trainer, e));
    zf_session_told(t->session, &(struct zf_session_facts){.step = t->step, .steps = t->setup->steps, .eta = -1});
    zf_metrics_listen(t->metrics, zf_session_publish, t->session);
    if (zf_session_listen(t->session, &why)) {
        snprintf(unheard, size, "%.200s: %.500s", why.where, why.message);
        return ZF_OK;
    }
    t->watch.publish = zf_session_publish;
    t->watch.ctx = t->session;
    zf_lock_socket(t->lock, zf_session_socket(t->session));
    return ZF_OK;
}

void zf_steer_told(struct zf_trainer *t, const struct zf_step_record *r)
{
    t->watch.listeners = zf_session_clients(t->session);
    zf_session_told(t->session, &(struct zf_session_facts){.step = t->step,
                                                           .steps = t->setup->steps,
                                                           .loss = r->loss,
                                                           .learning_rate = r->rate,
                                                           .tokens_per_s = (double)r->tokens / r->seconds,
                                                           .eta = r->eta,
                                                           .interval = t->pace.interval.now});
}
