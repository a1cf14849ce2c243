/* See load.h. */
#include "core/run/load.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/run/orders.h"
#include "core/run/save.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/run/steer.h"
#include "core/session/change.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct load {
    const struct zf_command *command;
    struct zf_resume from;
    struct zf_options wanted;
    struct zf_changes changes;
    uint64_t steps; /* of how many the run had then */
    uint64_t fork;  /* up to that step it is the run's way as it is now */
};

/* ---- what can be known before ---- */

/* The model is this one, and memory is enough for the policy of then. */
static enum zf_status check_fits(const struct zf_trainer *t, const struct load *l, struct zf_err *e)
{
    const json_t *matrices = json_object_get(json_object_get(l->from.file.info, "pipeline"), "matrices");
    const struct zf_params *p = &t->model.params;
    const struct zf_ckpt_tensor *ignored;
    for (size_t i = 0; i < p->count; i++) ZF_TRY(zf_saved_master(&ignored, &l->from.file, &p->list[i], e));
    if (json_array_size(matrices) != t->pipeline.matrices)
        return zf_fail(e, ZF_FORMAT, l->from.path, "its state is of %zu matrices, and this run has %zu; the checkpoint is not of this run",
                       json_array_size(matrices), t->pipeline.matrices);
    struct zf_policy policy = zf_policy_of(&l->wanted, t->model.dtype, zf_saved_interval(&l->from.file, &l->wanted));
    return zf_steer_memory(t, &policy, e);
}

static enum zf_status differences(const struct zf_trainer *t, struct load *l, struct zf_err *e)
{
    l->steps = l->wanted.steps ? (uint64_t)l->wanted.steps : zf_json_count(l->from.file.info, "steps");
    struct zf_change_place place = {.step = l->from.step, .steps = t->o->steps ? l->steps : t->setup->steps, .run = t->run};
    return zf_changes_between(&l->changes, t->o, &l->wanted, &place, e);
}

/* Damage and mistakes are found here, while nothing has been altered. */
static enum zf_status look(struct zf_trainer *t, struct load *l, const char *run, struct zf_err *e)
{
    char *path = NULL;
    enum zf_status s = zf_saves_find(&path, &l->fork, run, l->command->word[0], e);
    if (!s) s = zf_resume_load(&l->from, &l->wanted, t->o, run, path, e);
    bool open = !s;
    if (!s) s = check_fits(t, l, e);
    if (!s) s = differences(t, l, e);
    if (s && open) {
        zf_changes_free(&l->changes);
        zf_options_free(&l->wanted);
        zf_resume_close(&l->from);
    }
    free(path);
    return s;
}

/* ---- going there ---- */

/* From here on a start goes on from there, too: what was done since has not happened. */
static enum zf_status write_down(struct zf_trainer *t, const struct load *l, struct zf_err *e)
{
    const struct zf_resume *r = &l->from;
    char *command = NULL;
    if (asprintf(&command, "load %s", l->command->word[0]) < 0) return zf_fail_memory(e, t->run);
    json_t *o =
        json_pack("{ss sI ss sI sI sI sI sI ss ss* ss*}", "type", "resume", "step", (json_int_t)r->step, "checkpoint", r->path, "attempt",
                  (json_int_t)r->attempt, "steps", (json_int_t)l->steps, "reached", (json_int_t)t->step, "journal", (json_int_t)r->written,
                  "from_step", (json_int_t)r->step + 1, "command", command, "by", l->command->by, "user", l->command->user);
    free(command);
    return zf_journal_append(t->journal, o, e);
}

/* Lines of steps that are of another way than its go, too, where it lies ahead on one that was left. Telemetry never stops a run. */
static void cut_metrics(struct zf_trainer *t, const struct load *l, const char *run)
{
    const struct zf_resume *r = &l->from;
    struct zf_err e;
    char *metrics = zf_path_join(run, "metrics.jsonl");
    bool other = l->fork < r->step;
    enum zf_status s = metrics ? zf_metrics_cut(metrics, other ? l->fork : r->step, other ? 0 : r->metrics, &e) : zf_fail_memory(&e, run);
    free(metrics);
    zf_metrics_write(t->metrics, json_pack("{ss sI sI ss ss* ss*}", "type", "resume", "step", (json_int_t)r->step, "attempt",
                                           (json_int_t)r->attempt, "checkpoint", r->path, "by", l->command->by, "user", l->command->user));
    if (s) zf_record_text(t, "warning", "%s: %s", e.where, e.message);
}

/* What was exported, saved and validated is of the course that is left. */
static void forget(struct zf_trainer *t)
{
    free(t->save.path);
    free(t->exported);
    free(t->best.path);
    t->save.path = t->exported = t->best.path = NULL;
    t->best.any = false;
    t->best.worse = t->best.step = t->best.kept = 0;
    t->exported_at = t->judged_at = (struct zf_moment){0};
    t->save.failed = 0;
    t->profile = (struct zf_profile){.data_cpu = t->profile.data_cpu};
    t->ill = t->answered = false;
}

/* All memory is given back before any is taken. */
static void leave(struct zf_trainer *t, uint64_t step)
{
    t->profile.data_cpu += zf_loader_cpu(t->loader);
    zf_loader_stop(t->loader);
    t->loader = NULL;
    zf_pipeline_close(&t->pipeline);
    zf_model_close(&t->model);
    forget(t);
    t->step = step;
    t->started = t->save.at = zf_clock();
}

/* A rank that is not the first: the same, as far as it concerns it. */
static enum zf_status go_along(struct zf_trainer *t, const json_t *text, struct zf_err *e)
{
    struct zf_resume r = {.step = zf_json_count(text, "step")};
    const char *path = zf_json_text(text, "checkpoint", "");
    r.last_step = r.step;
    leave(t, r.step);
    ZF_TRY(zf_orders_set(t, text, e));
    ZF_TRY(zf_setup_steps(t->setup, e));
    ZF_TRY(zf_ckpt_open(&r.file, path, e));
    r.path = strdup(path);
    enum zf_status s = r.path ? zf_trainer_open_model(t, &r, e) : zf_fail_memory(e, path);
    if (r.path)
        zf_resume_close(&r);
    else
        zf_ckpt_close(&r.file);
    return s;
}

static enum zf_status go(struct zf_trainer *t, const struct load *l, struct zf_err *e)
{
    const struct zf_resume *r = &l->from;
    zf_watch_leave(t);
    leave(t, r->step);
    ZF_TRY(zf_session_go_to(t->session, &l->changes, r->step, l->steps, l->command, e));
    ZF_TRY(zf_setup_steps(t->setup, e));
    t->plain.every = t->o->plain_every;
    ZF_TRY(zf_trainer_open_model(t, r, e));
    t->applied = t->in_row ? 0 : t->step;
    ZF_TRY(zf_resume_commands(r, t, e));
    return zf_lock_beat(t->lock, t->step, e);
}

enum zf_status zf_order_load(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)o;
    zf_world_doing(t->world, t->step, "loading a checkpoint");
    return t->loading ? go(t, t->loading, e) : go_along(t, text, e);
}

static enum zf_status go_together(struct zf_trainer *t, const struct load *l, struct zf_err *e)
{
    json_t *text = zf_orders_changes(t->o, &l->wanted, t->pace.interval.now);
    bool whole = text && !json_object_set_new(text, "checkpoint", json_string(l->from.path)) &&
                 !json_object_set_new(text, "step", json_integer((json_int_t)l->from.step));
    t->loading = l;
    enum zf_status s = whole ? zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_LOAD}, text, e) : zf_fail_memory(e, "the options");
    t->loading = NULL;
    json_decref(text);
    return s;
}

bool zf_load_loses(const struct zf_trainer *t, const char *word, char *text, size_t room)
{
    struct zf_err ignored;
    char *run = zf_trainer_place(t), *path = NULL;
    uint64_t fork;
    bool found = run && !zf_saves_find(&path, &fork, run, word, &ignored);
    double step = found ? zf_saves_step(path) : -1;
    free(path);
    free(run);
    if (step < 0) return false;
    if (step < (double)t->step)
        snprintf(text, room,
                 "load takes the run from step %" PRIu64
                 " back to step %.0f: what was done since is undone, with %.0f step%s to be taken again",
                 t->step, step, (double)t->step - step, zf_plural((size_t)((double)t->step - step)));
    else
        snprintf(text, room,
                 "load takes the run from step %" PRIu64
                 " to step %.0f as it is in the checkpoint: what was done on the way here is undone",
                 t->step, step);
    return true;
}

enum zf_status zf_load(struct zf_trainer *t, const struct zf_command *c, char *text, size_t room, struct zf_err *e)
{
    struct load l = {.command = c};
    uint64_t before = t->step;
    char *run = zf_trainer_place(t);
    zf_save_end(t); /* what is being written is of the way that the run may leave */
    zf_session_doing(t->session, "loading");
    enum zf_status s = run ? look(t, &l, run, e) : zf_fail_memory(e, t->run);
    if (s) {
        free(run);
        return s;
    }
    struct zf_change_place place = {.step = l.from.step, .steps = l.steps, .rate = NULL, .bare = true};
    char *differ = zf_changes_text(&l.changes, t->o, NULL, 0, &place);
    s = write_down(t, &l, e);
    if (!s) {
        t->broken = true;
        zf_session_breaks(t->session, true);
        cut_metrics(t, &l, run);
        s = go_together(t, &l, e);
    }
    if (!s) {
        t->broken = false;
        zf_session_breaks(t->session, false);
        zf_watch_open(t);
        zf_record_text(t, "note", "step %" PRIu64 " is loaded from %s; the run was at step %" PRIu64, l.from.step, l.from.path, before);
        zf_resume_machine(&l.from, t);
        snprintf(text, room,
                 "step %" PRIu64 " is loaded from %s (the run was at step %" PRIu64 "); `resume` goes on with step %" PRIu64 "%s%s",
                 l.from.step, l.from.path, before, l.from.step + 1, differ && *differ ? "\n" : "", differ ? differ : "");
    }
    free(differ);
    zf_changes_free(&l.changes);
    zf_options_free(&l.wanted);
    zf_resume_close(&l.from);
    free(run);
    return s;
}
