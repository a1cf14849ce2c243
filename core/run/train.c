/* Starting a run and ending it, however it ends. */
#include "core/run/train.h"

#include "core/base/clock.h"
#include "core/base/show.h"
#include "core/config/run_cfg.h"
#include "core/run/content.h"
#include "core/run/locate.h"
#include "core/run/orders.h"
#include "core/run/ranks.h"
#include "core/run/release.h"
#include "core/run/save.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/run/steer.h"
#include "core/run/trainer.h"
#include "core/session/change.h"
#include "core/session/rundir.h"
#include "core/telemetry/jsonl.h"
#include "kernels/cores.h"

#include <inttypes.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The texts that make two runs the same one. To be freed. */
static enum zf_status identity(const struct zf_options *o, struct zf_run_identity *who, char **model, char **data, struct zf_err *e)
{
    char *path = zf_options_get_text(o, ZF_OPT_path), *tokenizer = zf_options_get_text(o, ZF_OPT_tokenizer),
         *family = zf_options_get_text(o, ZF_OPT_family);
    *data = zf_options_get_text(o, ZF_OPT_train);
    *model = NULL;
    int n = !path || !tokenizer || !family ? -1
            : o->path[0]                   ? asprintf(model, "%s", path)
                         : asprintf(model, "%s, layers %" PRId64 ", hidden %" PRId64 ", heads %" PRId64 ", tokenizer %s", family, o->layers,
                                    o->hidden, o->heads, tokenizer);
    free(path);
    free(tokenizer);
    free(family);
    *who = (struct zf_run_identity){.model = *model, .data = *data, .seed = (uint64_t)o->seed};
    return n < 0 || !*data ? zf_fail_memory(e, "the run's identity") : ZF_OK;
}

/* More steps than a finished run was made for; in epochs by its own run.cfg. */
static bool asks_for_more(const struct zf_options *o, const char *run, const struct zf_run_facts *f)
{
    struct zf_options then;
    struct zf_err ignored;
    char *path = zf_path_join(run, "run.cfg");
    bool read = path && !zf_run_cfg_options(&then, NULL, path, &ignored), more;
    if (o->steps) /* those of its last start that were lowered while it went on are no more */
        more = (uint64_t)o->steps > (f->steps > f->last_step ? f->steps : f->last_step) && !(read && o->steps == then.steps);
    else
        more = read && !then.steps && o->epochs > then.epochs;
    if (read) zf_options_free(&then);
    free(path);
    return more;
}

/* A directory in which a run of ours has been: over, alive, or ended early. */
static enum zf_status look_before(const struct zf_options *o, const char *run, const struct zf_run_identity *who, bool take_over,
                                  enum zf_train_start *what, struct zf_err *e)
{
    struct zf_run_facts f;
    struct zf_lock_record holder;
    *what = ZF_TRAIN_BEGIN;
    ZF_TRY(zf_rundir_look(&f, run, who, e));
    bool live = zf_directory_exists(run) && zf_lock_look(run, &holder) == ZF_LOCK_LIVE;
    if (live && take_over && zf_lock_elsewhere(&holder)) live = false;
    if (live && f.state != ZF_RUNDIR_OTHER && f.state != ZF_RUNDIR_FOREIGN && o->resume != ZF_RESUME_NEVER)
        return zf_fail(e, ZF_BUSY, run, "a trainer is at work on it (pid %lld on host %s, step %llu); `zenflow-console status %s` shows it",
                       holder.pid, holder.host, (unsigned long long)holder.step, run);
    if (f.state == ZF_RUNDIR_NEW && !live) return ZF_OK;
    if (f.state == ZF_RUNDIR_NEW)
        return zf_fail(e, ZF_BUSY, run, "a trainer (pid %lld on host %s) has just begun there; give this run another `dir`", holder.pid,
                       holder.host);
    if (f.state != ZF_RUNDIR_OURS) return zf_rundir_claim(&f, run, who, e); /* refuses, with the fix */
    if (o->resume == ZF_RESUME_NEVER)
        return zf_fail(e, ZF_DIFFERENT, run,
                       "there is a run already, and resume = never asks for a fresh one; take another directory with --set dir=NAME, or "
                       "remove this one");
    *what = f.finished && !asks_for_more(o, run, &f) ? ZF_TRAIN_OVER : ZF_TRAIN_GO_ON;
    return ZF_OK;
}

enum zf_status zf_train_look(const struct zf_options *o, bool take_over, enum zf_train_start *what, struct zf_err *e)
{
    struct zf_run_identity who;
    char *model = NULL, *data = NULL;
    enum zf_status s = identity(o, &who, &model, &data, e);
    if (!s) s = look_before(o, o->dir, &who, take_over, what, e);
    free(model);
    free(data);
    return s;
}

/* A run whose checkpoints are all damaged, or gone. */
static enum zf_status no_checkpoint(const char *run, struct zf_err *e)
{
    struct zf_run_facts f;
    ZF_TRY(zf_rundir_look(&f, run, NULL, e));
    return zf_fail(e, ZF_DIFFERENT, run,
                   "its run ended at step %" PRIu64 " (%s), and it has no checkpoint that is whole to go on from; start another with --set "
                   "dir=NAME%s%s",
                   f.last_step,
                   f.finished   ? "its last"
                   : f.ended[0] ? f.ended
                                : "without a clean stop",
                   f.last_export[0] ? ", from the exported weights with --set path=" : "", f.last_export);
}

/* `auto` is resolved once, and the result is in RUN/run.cfg. */
static enum zf_status resolve(struct zf_options *o, const struct zf_setup *s, struct zf_err *e)
{
    const struct zf_origin by_us = {.kind = ZF_ORIGIN_COMMAND};
    const char *dtype = zf_dtype_name(s->dtype);
    char number[32];
    snprintf(number, sizeof number, "%" PRIu64, s->steps);
    const struct {
        bool wanted;
        const char *name, *value;
    } rows[] = {{o->strategy == ZF_STRATEGY_AUTO, "strategy", zf_option_table[ZF_OPT_strategy].choices[s->strategy]},
                {o->device == ZF_DEVICE_AUTO, "device", s->device.name},
                {o->dtype == ZF_DTYPE_AUTO, "dtype", dtype},
                {o->bus_dtype == ZF_BUS_DTYPE_AUTO, "bus_dtype", dtype},
                {!o->schedule_steps, "schedule_steps", number}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].wanted) ZF_TRY(zf_options_set(o, rows[i].name, rows[i].value, &by_us, e));
    return ZF_OK;
}

static enum zf_status write_run_cfg(const char *text, const char *run, struct zf_err *e)
{
    char *path = zf_path_join(run, "run.cfg");
    enum zf_status s = path ? zf_file_write_atomic(path, text, strlen(text), e) : zf_fail_memory(e, run);
    free(path);
    return s;
}

/* The first entry of an attempt, with what was asked for and what came of it: the next start tells by them what was edited in between. */
static enum zf_status write_first(struct zf_trainer *t, const struct zf_run_identity *who, const char *asked, struct zf_err *e)
{
    char *text = t->resume ? strdup(t->resume->run_cfg) : zf_options_text(t->o);
    json_t *first = t->resume ? zf_resume_entry(t->resume, t) : zf_run_start_entry(who, t->setup->steps);
    bool whole = text && first &&
                 !json_object_update_new(first, json_pack("{ss ss ss* so*}", "asked", asked, "run_cfg", text, "before",
                                                          t->takeover[0] ? t->takeover : NULL, "content", zf_content_of(t->setup)));
    if (whole && !t->resume) snprintf(t->id, sizeof t->id, "%s", json_string_value(json_object_get(first, "run")));
    enum zf_status s = whole ? zf_journal_append(t->journal, json_incref(first), e) : zf_fail_memory(e, t->run);
    json_decref(first);
    if (!s) s = write_run_cfg(text, t->run, e);
    free(text);
    return s;
}

/* Directory, lock, files: from here on the run exists. */
static enum zf_status open_run(struct zf_trainer *t, const struct zf_run_identity *who, const char *asked, bool take_over, struct zf_err *e)
{
    struct zf_run_facts facts;
    const struct zf_memory_limits *l = &t->setup->limits;
    size_t limit = l->least > SIZE_MAX - l->resident ? 0 : l->least + l->resident;
    ZF_TRY(zf_rundir_claim(&facts, t->run, who, e));
    ZF_TRY(zf_lock_acquire(&t->lock, t->run, &(struct zf_lock_options){.memory_limit = limit, .take_over = take_over}, t->takeover,
                           sizeof t->takeover, e));
    ZF_TRY(zf_rundir_look(&facts, t->run, who, e)); /* once more, under the lock: set-up takes time, and another may have been quicker */
    t->place = open(t->run, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (facts.state != (t->resume ? ZF_RUNDIR_OURS : ZF_RUNDIR_NEW) || (t->resume && facts.attempts + 1 != t->resume->attempt))
        return zf_fail(e, ZF_BUSY, t->run, "another trainer began a run there a moment ago; nothing of it was touched");
    zf_lock_tell_death(t->lock);
    if (t->resume && !facts.ended[0] && !t->takeover[0])
        snprintf(t->takeover, sizeof t->takeover,
                 "the attempt before this one ended without a clean stop, and its lock is gone or empty: how, nobody knows");
    ZF_TRY(zf_journal_open(&t->journal, t->run, e));
    snprintf(t->id, sizeof t->id, "%s", facts.run);
    ZF_TRY(write_first(t, who, asked, e)); /* first of all: it makes the directory ours */
    zf_saves_sweep(t->run);
    char *metrics = zf_path_join(t->run, "metrics.jsonl"), *log = zf_path_join(t->run, "trainer.log");
    enum zf_status s = metrics && log ? ZF_OK : zf_fail_memory(e, "a path");
    if (!s && t->resume) s = zf_metrics_cut(metrics, t->step, t->resume->metrics, e);
    if (!s) s = zf_metrics_open(&t->metrics, metrics, e);
    if (s == ZF_IO) { /* telemetry never stops training */
        zf_err_print("warning", e);
        s = ZF_OK;
    }
    if (log) t->log = fopen(log, "ae");
    free(metrics);
    free(log);
    return s;
}

/* Compute, the CPU half and the loader on cores of their own where there are enough. A GPU has a CPU half beside it in any case. */
static enum zf_status open_devices(struct zf_trainer *t, struct zf_err *e)
{
    int threads = (int)t->o->threads;
    bool gpu = t->o->device == ZF_DEVICE_CUDA;
    const char *name = zf_option_table[ZF_OPT_device].choices[t->o->device];
    t->loader_processor = zf_cores_loader(zf_cores(), threads);
    const struct zf_device_options own = {.threads = threads, .part = ZF_PART_COMPUTE, .number = gpu ? zf_ranks_gpu(t->world) : 0};
    ZF_TRY(zf_device_open(&t->device, name, &own, e));
    if (!gpu && !zf_cores_apart(zf_cores(), threads)) return ZF_OK;
    const struct zf_device_options half = {.threads = threads, .part = gpu ? ZF_PART_BESIDE_GPU : ZF_PART_CPU_HALF};
    enum zf_status s = zf_device_open(&t->host, "host", &half, e);
    if (s && !*e->where) snprintf(e->where, sizeof e->where, "the CPU half's threads");
    return s;
}

/* A large checkpoint that is read takes a while. Before the run is opened a signal ends it, as nothing is written yet; later, in a `load`,
 * what is in memory must become whole, and it is heard afterwards. */
static enum zf_status between_pieces(void *trainer, struct zf_err *e)
{
    const struct zf_trainer *t = trainer;
    ZF_TRY(zf_world_check(t->world, e));
    if (t->lock) return zf_lock_beat(t->lock, t->step, e);
    return t->stop && *t->stop ? zf_fail(e, ZF_STOPPED, t->run, "stopped while its checkpoint was read; nothing was changed") : ZF_OK;
}

/* What was planned, before anything of it is used: what is not there is told now. */
static enum zf_status reserve(struct zf_trainer *t, struct zf_err *e)
{
    const struct zf_device_type *d = t->device->type;
    const struct zf_memory_plan *p = &t->setup->plan;
    if (!d->reserve) return ZF_OK;
    ZF_TRY(d->reserve(t->device, ZF_MEM_DEVICE, p->device_blocks, e));
    return d->reserve(t->device, ZF_MEM_PINNED, p->pinned, e);
}

static enum zf_status furnish(struct zf_trainer *t, struct zf_err *e)
{
    const struct zf_setup *s = t->setup;
    ZF_TRY(zf_setup_freeze(&t->model.params, &t->o->freeze, e));
    return zf_model_reserve(&t->model, s->plan.tokens, s->longest_row, t->o->recompute ? ZF_KEEP_INPUTS : ZF_KEEP_ALL, e);
}

enum zf_status zf_trainer_open_blank(struct zf_trainer *t, struct zf_err *e)
{
    ZF_TRY(reserve(t, e));
    ZF_TRY(zf_model_open_blank(&t->model, &t->setup->config, t->setup->dtype, true, t->device, e));
    return furnish(t, e);
}

enum zf_status zf_trainer_open_model(struct zf_trainer *t, const struct zf_resume *from, struct zf_err *e)
{
    struct zf_setup *s = t->setup;
    const struct zf_options *o = t->o;
    bool saved = from && !from->anew;
    if (saved) {
        ZF_TRY(zf_trainer_open_blank(t, e));
    } else {
        ZF_TRY(reserve(t, e));
        ZF_TRY(zf_model_open(&t->model, &s->config, o->path[0] ? &s->hf : NULL, (uint64_t)o->seed, s->dtype, true, t->device, e));
        ZF_TRY(furnish(t, e));
    }
    t->drains = 1;
    t->order = (struct zf_order){.seed = (uint64_t)o->seed, .rows = s->train.rows, .shuffle = o->shuffle};
    zf_pace_start(t);
    if (from) ZF_TRY(zf_resume_counters(from, t, e));
    s->policy = zf_policy_of(o, s->dtype, t->pace.interval.now);
    t->schedule = zf_schedule_of(o);
    t->rule = zf_rule_of(o);
    ZF_TRY(zf_pipeline_open(&t->pipeline, &t->model, t->host, t->comm, &s->policy, &t->rule, e));
    zf_orders_take_masters(t);
    if (saved) ZF_TRY(zf_saved_state(&from->file, &t->pipeline, between_pieces, t, e));
    return zf_trainer_feed(t, e);
}

enum zf_status zf_trainer_open(struct zf_trainer *t, const struct zf_resume *from, struct zf_err *e)
{
    ZF_TRY(open_devices(t, e));
    ZF_TRY(zf_ranks_open_comm(t, e));
    zf_world_doing(t->world, t->step, "reading the model");
    return zf_trainer_open_model(t, from, e);
}

/* Why a run ends, in words; NULL: it is done. */
static const char *end_text(const struct zf_trainer *t, enum zf_end end, char *buffer, size_t size)
{
    static const char *const texts[] = {
        [ZF_END_PATIENCE] = "validation did not improve any more (patience)",
        [ZF_END_SIGNAL] = "a signal asked to end; a step that was not complete is dropped",
        [ZF_END_COMMAND] = "a command asked to end",
        [ZF_END_TIME] = NULL,
        [ZF_END_NONFINITE] = NULL,
    };
    if (end == ZF_END_TIME) return zf_deadline_text(t, buffer, size);
    if (end != ZF_END_NONFINITE) return texts[end];
    zf_nonfinite_why(t, t->ill, t->answered, buffer, size);
    return buffer;
}

static bool is_exported(const struct zf_trainer *t)
{
    return t->exported && zf_trainer_is_now(t, &t->exported_at);
}

static enum zf_status export_once(struct zf_trainer *t, struct zf_err *e)
{
    return zf_trainer_export(t, false, e);
}

/* What is written last has no later: as long as `grace` and the job last, somebody may make room. A journal that failed after it is whole
 * is not waited for. */
static enum zf_status insist(struct zf_trainer *t, enum zf_status (*write)(struct zf_trainer *, struct zf_err *),
                             bool (*whole)(const struct zf_trainer *), struct zf_err *e)
{
    const double from = zf_clock();
    char text[32];
    for (bool told = false;; told = true) {
        enum zf_status s = write(t, e);
        double left = fmin(t->o->grace - (zf_clock() - from), zf_deadline_left(t));
        if (!s && told) zf_record_text(t, "note", "now it could be written");
        if (s != ZF_IO || left <= 0 || whole(t)) return s;
        if (!told)
            zf_record_text(t, "warning", "%s: %s; it is tried again every second for %s (grace)", e->where, e->message,
                           zf_duration_text(left, text, sizeof text));
        nanosleep(&(struct timespec){.tv_sec = left >= 1, .tv_nsec = left >= 1 ? 0 : (long)(left * 1e9)}, NULL);
        ZF_TRY(zf_lock_beat(t->lock, t->step, e));
    }
}

/* What the next start does, as things are. */
static const char *next_start(const struct zf_trainer *t, char *text, size_t size)
{
    const char *path = t->save.path ? t->save.path : t->resume ? t->resume->path : NULL;
    if (path)
        snprintf(text, size, "the next start goes on from %s, step %" PRIu64, path, t->save.moment.step);
    else
        snprintf(text, size, "there is no checkpoint yet, and the next start begins again");
    return text;
}

static enum zf_status last_save(struct zf_trainer *t, struct zf_err *e)
{
    char next[600];
    enum zf_status s = insist(t, zf_trainer_save, zf_save_is_done, e);
    if (!s || s == ZF_NUMERIC || s == ZF_BUSY) return s;
    const struct zf_err why = *e;
    return zf_fail(e, s, why.where, "%s; %s", why.message, next_start(t, next, sizeof next));
}

/* The last checkpoint could not be written. The weights alone are fewer bytes, and there may be room for them. */
static enum zf_status unsaved(struct zf_trainer *t, const struct zf_err *why, struct zf_err *e)
{
    struct zf_err other;
    char exported[700];
    enum zf_status s = export_once(t, &other);
    if (s == ZF_BUSY) return *e = other, s;
    if (s)
        snprintf(exported, sizeof exported, "the weights could not be exported either: %.200s: %.400s", other.where, other.message);
    else
        snprintf(exported, sizeof exported, "the weights are exported to %.600s", t->exported);
    return zf_fail(e, ZF_IO, why->where, "the checkpoint of step %" PRIu64 " could not be written: %.800s; %s", t->step, why->message,
                   exported);
}

/* Whatever cannot be saved because it is not finite: the weights may be, and if not their export names the one that is not. *lost: there is
 * no checkpoint, and *e is the whole story. */
static enum zf_status save_and_export(struct zf_trainer *t, bool ill, bool *lost, struct zf_err *e)
{
    enum zf_status saved = ill && t->save.moment.step == t->step ? ZF_OK : last_save(t, e), s;
    struct zf_err why = *e;
    *lost = saved && saved != ZF_NUMERIC;
    if (*lost) return saved == ZF_BUSY ? saved : unsaved(t, &why, e);
    s = insist(t, export_once, is_exported, e);
    if (!s && saved) zf_record_text(t, "warning", "the weights are exported; the state was not saved: %s", why.message);
    if (s == ZF_MEMORY && t->kept) { /* the GPU is somebody else's by now */
        zf_record_text(t, "warning", "the weights are not exported: %s; `zenflow-console export %s FOLDER` makes it from the checkpoint",
                       e->message, t->run);
        return ZF_OK;
    }
    if (s && s != ZF_NUMERIC && s != ZF_BUSY) s = e->code = ZF_IO;
    return s;
}

/* What every way of ending has in common: a checkpoint, an export of the weights as they are, and a last line. */
static enum zf_status end_run(struct zf_trainer *t, enum zf_end end, struct zf_err *e)
{
    static const struct {
        const char *reason;
        enum zf_status status;
    } ends[] = {
        [ZF_END_DONE] = {"done", ZF_OK},          [ZF_END_PATIENCE] = {"done", ZF_OK},
        [ZF_END_SIGNAL] = {"signal", ZF_STOPPED}, [ZF_END_COMMAND] = {"stopped", ZF_STOPPED},
        [ZF_END_TIME] = {"stopped", ZF_STOPPED},  [ZF_END_NONFINITE] = {"error", ZF_NUMERIC},
    };
    char why[320], done[sizeof e->message];
    const char *text = end_text(t, end, why, sizeof why);
    bool ill = end == ZF_END_NONFINITE;
    if (text && !ill) zf_record_text(t, "note", "%s", text);
    bool lost;
    enum zf_status s = save_and_export(t, ill, &lost, e);
    if (s == ZF_BUSY) return s; /* the directory is another trainer's */
    if (s || ill) {
        if (lost)
            snprintf(done, sizeof done, "%.200s: %.1200s", e->where, e->message);
        else
            zf_nonfinite_done(t, s ? e : NULL, done, sizeof done);
        zf_record_text(t, "error", "%s%s%s", ill ? text : "", ill ? "; " : "", done);
    }
    if (s) {
        zf_record_end(t, "error", s);
        return ill || s == ZF_NUMERIC ? zf_fail(e, s, t->run, "%s%s%s", ill ? text : "", ill ? "; " : "", done) : s;
    }
    if (t->best.any && t->best.step != t->step)
        zf_record_text(t, "note", "the export is of the last step; the best validation loss was %.4f at step %" PRIu64 "%s", t->best.loss,
                       t->best.step, t->o->keep_best ? ", kept: export --step best takes it" : "");
    zf_record_end(t, ends[end].reason, ends[end].status);
    if (ill) return zf_fail(e, ZF_NUMERIC, t->run, "%s; %s", text, done);
    return ends[end].status == ZF_OK ? ZF_OK : zf_fail(e, ends[end].status, t->run, "%s", text);
}

static bool is_lost(const struct zf_trainer *t)
{
    return t->device && t->device->type->lost && t->device->type->lost(t->device);
}

/* The device half's state is gone with the GPU: the CPU half's alone is no state. What was copied for a checkpoint before is written. */
static void lost_run(struct zf_trainer *t, struct zf_err *why)
{
    char next[600];
    const struct zf_err first = *why;
    if (!strstr(first.message, "the GPU is lost")) /* a library said so in its words */
        zf_fail(why, ZF_IO, first.where, "the GPU is lost to this program: %s; `nvidia-smi` and `dmesg` (a line with Xid) say more",
                first.message);
    zf_record_text(t, "error", "%s%s%s", why->where, why->where[0] ? ": " : "", why->message);
    t->save.wishes = 0;
    zf_save_end(t);
    next_start(t, next, sizeof next);
    zf_record_text(t, "warning", "the state of step %" PRIu64 " was on the GPU and cannot be saved; checkpoints are as they were: %s",
                   t->step, next);
    zf_record_end(t, "error", why->code);
}

/* The device failed, or memory did, or the data. What is whole is saved: the state as it was after the last step, unless the failure came
 * when a step's gradients had begun to change it. */
static void broken_run(struct zf_trainer *t, struct zf_err *why)
{
    struct zf_err e;
    char next[600];
    if (is_lost(t)) {
        lost_run(t, why);
        return;
    }
    zf_record_text(t, "error", "%s%s%s", why->where, why->where[0] ? ": " : "", why->message);
    if (t->broken) { /* a checkpoint could not be read to its end */
        zf_record_text(t, "note", "checkpoints are as they were; the next start goes on from the newest that can be read");
        zf_record_end(t, "error", why->code);
        return;
    }
    if (t->apart || zf_world_is_broken(t->world)) { /* its state is spread over ranks that do not come together any more */
        zf_record_text(t, "note", "%s", next_start(t, next, sizeof next));
        zf_record_end(t, "error", why->code);
        return;
    }
    bool whole = !t->half && !t->pipeline.torn;
    enum zf_status s = ZF_OK;
    if (!whole) t->save.wishes = 0; /* one that is under way has its own copy; another could not be begun */
    if (whole)
        s = zf_trainer_save(t, &e);
    else
        zf_save_end(t);
    if (s == ZF_BUSY) return;
    next_start(t, next, sizeof next);
    if (!whole)
        zf_record_text(t, "warning", "it came while step %" PRIu64 " was applied, and its state cannot be saved%s; %s", t->step + 1,
                       t->pipeline.torn ? "; parts of the exported model may be a step older than others" : "", next);
    else if (s)
        zf_record_text(t, "warning", "the state of step %" PRIu64 " could not be saved: %s%s%s; %s", t->step, e.where,
                       e.where[0] ? ": " : "", e.message, next);
    else
        zf_record_text(t, "note", "the state is whole and saved; %s", next);
    if (zf_trainer_export(t, false, &e)) zf_err_print(NULL, &e);
    zf_record_end(t, "error", why->code);
}

/* Lanes, and what they work with. Where they may wait for ranks that are gone they are left as they are: the process ends with them. */
static void close_lanes(struct zf_trainer *t)
{
    if (t->apart || zf_world_is_broken(t->world)) return;
    zf_loader_stop(t->loader);
    zf_watch_close(t);
    zf_kept_free(t->kept);
    zf_pipeline_close(&t->pipeline);
    zf_model_close(&t->model);
    zf_comm_close(t->comm);
    if (t->host) t->host->type->close(t->host);
    if (t->device) t->device->type->close(t->device);
}

void zf_trainer_close(struct zf_trainer *t)
{
    zf_ranks_unwatch(t);
    if (!t->apart && !zf_world_is_broken(t->world)) zf_save_close(t);
    zf_metrics_listen(t->metrics, NULL, NULL);
    t->watch.listeners = 0;
    zf_session_close(t->session); /* first: its clients have had the last line, and the socket goes while the lock is held */
    close_lanes(t);
    zf_journal_close(t->journal);
    zf_metrics_close(t->metrics);
    if (t->log) fclose(t->log);
    zf_lock_release(t->lock);
    if (t->place >= 0) close(t->place);
    zf_pace_close(t);
    free(t->norm);
    free(t->exported);
    free(t->best.path);
}

/* The others are told how it ends, and end with it. After an end that they know of already: nothing. */
static void end_together(struct zf_trainer *t, const struct zf_train_how *how, enum zf_status s)
{
    struct zf_err ignored;
    if (!t->world || t->apart || zf_world_is_broken(t->world)) return;
    *how->together = !zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_END, .number = s}, NULL, &ignored);
}

/* A run whose result has no room on the disk is better not begun. */
static enum zf_status check_disk(const struct zf_setup *s, const char *run, struct zf_err *e)
{
    char need[32], have[32];
    uint64_t bytes = s->params.parameters * sizeof(float) * (s->o->keep_best ? 2 : 1), room = zf_file_room(run);
    if (bytes <= room) return ZF_OK;
    return zf_fail(e, ZF_IO, run, "the model that the run exports needs %s, and %s are free there; make room or set dir to another disk",
                   zf_bytes_text(bytes, need, sizeof need), zf_bytes_text(room, have, sizeof have));
}

/* The system refused to pin some host memory. */
static void note_unpinned(struct zf_trainer *t)
{
    struct zf_device_info d;
    struct rlimit memlock;
    char lacks[32], all[32], limit[32];
    t->device->type->info(t->device, &d);
    if (!d.unlocked) return;
    bool limited = !getrlimit(RLIMIT_MEMLOCK, &memlock) && memlock.rlim_cur != RLIM_INFINITY;
    zf_record_text(
        t, "note",
        "%s of the %s of host memory that copies need could not be pinned; their copies take a longer way and training is the same, but "
        "slower; a higher limit of locked memory may help (`ulimit -l` is %s), in a container --ulimit memlock=-1, in WSL a larger "
        "memory= in .wslconfig, or a smaller update_interval",
        zf_bytes_text(d.unlocked, lacks, sizeof lacks), zf_bytes_text(d.locked + d.unlocked, all, sizeof all),
        limited ? zf_bytes_text((size_t)memlock.rlim_cur, limit, sizeof limit) : "unlimited");
}

static void watch_gpu(struct zf_trainer *t)
{
    struct zf_device_info d;
    struct zf_err e;
    t->device->type->info(t->device, &d);
    if (!d.bus[0] || !t->metrics || !zf_gpu_watch_start(&t->gpu, d.bus, t->metrics, &e)) return;
    zf_record_text(t, "note", "the GPU's use, power and temperature are not shown: %s%s%s", e.where, e.where[0] ? ": " : "", e.message);
}

static enum zf_status train(struct zf_setup *setup, struct zf_options *o, const char *run, const struct zf_run_identity *who,
                            const struct zf_resume *resume, const char *asked, const struct zf_train_how *how, struct zf_err *e)
{
    struct zf_trainer t = {
        .setup = setup, .o = o, .stop = how->stop, .usr1 = how->usr1, .run = run, .resume = resume, .place = -1, .world = how->world};
    t.started = t.save.at = zf_clock();
    t.deadline.began = how->began;
    enum zf_end end = ZF_END_DONE;
    char unheard[768] = "";
    zf_plain_init(&t.plain, STDOUT_FILENO, o->plain_every);
    enum zf_status s = check_disk(setup, run, e);
    if (!s) s = zf_ranks_begin(t.world, setup, resume, e);
    if (!s) s = zf_trainer_open(&t, resume, e); /* all memory is taken before anything is written */
    if (!s) s = zf_ranks_compare(&t, e);
    bool met = !s;
    if (!s) s = open_run(&t, who, asked, how->take_over, e);
    zf_ranks_watch(&t);
    if (!s) s = zf_steer_open(&t, o, unheard, sizeof unheard, e);
    if (!s && resume) s = zf_resume_commands(resume, &t, e);
    zf_hf_close(&setup->hf); /* the weights are copied: their files need not stay mapped */
    if (!s && how->started) {
        how->started(how->ctx, run);
        if (t.log) fclose(t.log); /* stdout is it */
        t.log = NULL;
    }
    if (!s) {
        zf_record_start(&t);
        if (resume) zf_resume_tell(resume, &t);
        if (unheard[0]) zf_record_text(&t, "warning", "%s", unheard);
        if (t.takeover[0]) zf_record_text(&t, "note", "%s", t.takeover);
        note_unpinned(&t);
        for (size_t i = 0; i < setup->notes.count; i++)
            zf_record_text(&t, "note", "%s: %s", setup->notes.list[i].where, setup->notes.list[i].message);
        zf_deadline_open(&t);
        zf_watch_open(&t);
        watch_gpu(&t);
        t.profile.data_cpu = setup->data_cpu;
        s = zf_ranks_why(&t, zf_trainer_loop(&t, &end, e), e);
        zf_gpu_watch_stop(t.gpu);
        t.gpu = NULL;
        zf_record_profile(&t);
        zf_watch_stop(&t);
        if (!s)
            s = end_run(&t, end, e);
        else if (s != ZF_BUSY)
            broken_run(&t, e);
    }
    if (met) end_together(&t, how, s);
    zf_trainer_close(&t);
    return s;
}

/* What there is to go on from; neither path nor anew: a fresh run. */
enum zf_status zf_train_resume(struct zf_resume *r, struct zf_options *o, enum zf_train_start what, const char *checkpoint,
                               struct zf_err *e)
{
    *r = (struct zf_resume){0};
    if (what == ZF_TRAIN_BEGIN && checkpoint)
        return zf_fail(e, ZF_DIFFERENT, o->dir,
                       "there is no run that could go on from %s; export the checkpoint, and start from the export with --set path=FOLDER",
                       checkpoint);
    if (what == ZF_TRAIN_BEGIN) return ZF_OK;
    ZF_TRY(zf_resume_open(r, o, o->dir, checkpoint, e));
    return r->path || r->anew ? ZF_OK : no_checkpoint(o->dir, e);
}

/* What counts at once; the rest is told when it is done. */
static void tell_changes(const struct zf_resume *r)
{
    for (size_t i = 0; i < json_array_size(r->changes); i++) {
        const json_t *v = json_array_get(r->changes, i);
        if (!json_object_get(v, "from_step"))
            fprintf(stderr, "zenflow-console: note: %s %s -> %s, as run.cfg says now\n", zf_json_text(v, "option", ""),
                    zf_json_text(v, "old", ""), zf_json_text(v, "new", ""));
    }
}

enum zf_status zf_train_note_rate(struct zf_setup *s, const struct zf_resume *r, const struct zf_options *o, struct zf_err *e)
{
    struct zf_options next;
    bool goes_on = r->path || r->anew;
    char text[256];
    if (goes_on) ZF_TRY(zf_resume_options(r, &next, e));
    if (zf_schedule_leaves(goes_on ? &next : o, r->step, s->steps, text, sizeof text)) zf_setup_note(s, "schedule_steps", "%s", text);
    if (goes_on) zf_options_free(&next);
    return ZF_OK;
}

enum zf_status zf_train_run(struct zf_options *o, const struct zf_train_how *how, struct zf_err *e)
{
    struct zf_setup setup = {.ranks = how->world ? zf_world_ranks(how->world) : 0, .neighbours = zf_world_place(how->world).ranks};
    struct zf_run_identity who;
    struct zf_resume resume = {0};
    char *model = NULL, *data = NULL, *asked = zf_options_text(o);
    enum zf_train_start what = ZF_TRAIN_BEGIN;
    enum zf_status s = asked ? identity(o, &who, &model, &data, e) : zf_fail_memory(e, "the options");
    if (!s) s = look_before(o, o->dir, &who, how->take_over, &what, e);
    if (!s && what == ZF_TRAIN_OVER && how->checkpoint) what = ZF_TRAIN_GO_ON;
    if (!s && what == ZF_TRAIN_OVER) {
        zf_show_line(
            stdout,
            "%s: this run is over; nothing was changed. To train on raise steps, and schedule_steps with it: the learning rate stays "
            "where the schedule ended. To train again take another directory with --set dir=NAME",
            o->dir);
    } else if (!s) {
        s = zf_train_resume(&resume, o, what, how->checkpoint, e);
        if (!s) tell_changes(&resume);
        if (!s) s = zf_setup_model(&setup, o, e);
        if (!s && !resume.path) s = zf_setup_weights(&setup, e);
        if (!s) s = zf_setup_data(&setup, how->stop, e);
        if (s == ZF_MEMORY && setup.plan.device_total) zf_memory_plan_print(stderr, &setup.plan, &setup.limits);
        if (!s) s = zf_content_check(&setup, resume.content, e);
        if (!s) s = resolve(o, &setup, e);
        if (!s) s = zf_train_note_rate(&setup, &resume, o, e);
        if (!s) s = train(&setup, o, o->dir, &who, resume.path || resume.anew ? &resume : NULL, asked, how, e);
        zf_setup_free(&setup);
        zf_resume_close(&resume);
    }
    free(asked);
    free(model);
    free(data);
    return s;
}
