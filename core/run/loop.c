/* The steps of a run: micro-batches from the loader, update, validation, exports. */
#include "core/run/orders.h"

#include "core/base/clock.h"
#include "core/run/choices.h"
#include "core/run/locate.h"
#include "core/run/release.h"
#include "core/run/sample.h"
#include "core/run/save.h"
#include "core/run/steer.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool asked_to_stop(const struct zf_trainer *t)
{
    return *t->stop != 0;
}

static enum zf_status sign_of_life(struct zf_trainer *t, struct zf_err *e)
{
    zf_watch_take(t);
    ZF_TRY(zf_world_check(t->world, e));
    return t->lock ? zf_lock_beat(t->lock, t->step, e) : ZF_OK; /* it is rank 0's */
}

/* Is what is being done to be left? Rank 0 decides; the others hear of it. */
static bool is_over(struct zf_trainer *t, bool step)
{
    if (zf_world_rank(t->world)) return zf_world_pending(t->world, 0);
    return asked_to_stop(t) || zf_deadline_over(t, step);
}

static enum zf_status leave(struct zf_trainer *t, struct zf_err *e)
{
    if (t->model.lane) ZF_TRY(t->device->type->lane_sync(t->model.lane, e));
    return zf_fail(e, ZF_STOPPED, NULL, "a signal or the clock asked to end");
}

/* All ranks drop the step, or none: before its last micro-batch rank 0 says which. */
static enum zf_status go_on(struct zf_trainer *t, bool stop, struct zf_err *e)
{
    enum zf_status s = zf_order_go(t, stop, e);
    return s == ZF_STOPPED ? leave(t, e) : s;
}

static enum zf_status between(struct zf_trainer *t, bool step, struct zf_err *e)
{
    ZF_TRY(sign_of_life(t, e));
    if (!is_over(t, step)) return ZF_OK;
    if (step && t->world) return go_on(t, !zf_world_rank(t->world), e);
    return leave(t, e);
}

enum zf_status zf_trainer_between(void *trainer, struct zf_err *e)
{
    return between(trainer, false, e);
}

static enum zf_end stopped_by(const struct zf_trainer *t)
{
    return asked_to_stop(t) ? ZF_END_SIGNAL : ZF_END_TIME;
}

/* The next micro-batch where there must be one. */
static enum zf_status next_load(struct zf_loader *l, const struct zf_load **out, struct zf_err *e)
{
    ZF_TRY(zf_loader_next(l, out, e));
    return *out ? ZF_OK : zf_fail(e, ZF_FORMAT, NULL, "the data ended before the last step; this is a mistake in the program");
}

/* Issues the micro-batches of a step, of which `load` is the first; ZF_STOPPED between two of them if a signal came. Not after the last one
 * of a training step: with its gradients the CPU half's rows have moved, and such a step is finished. */
static enum zf_status micro_batches(struct zf_trainer *t, struct zf_loader *l, const struct zf_load *load, bool backward, float scale,
                                    struct zf_err *e)
{
    for (;;) {
        bool whole = backward && load->ends;
        if (whole && t->world) ZF_TRY(go_on(t, !zf_world_rank(t->world) && is_over(t, true), e));
        t->half |= whole;
        if (whole) zf_pipeline_last(&t->pipeline);
        ZF_TRY(zf_model_step(&t->model, &load->batch, backward, scale, t->pipeline.loss, e));
        ZF_TRY(whole ? sign_of_life(t, e) : between(t, backward, e));
        if (load->ends) return ZF_OK;
        ZF_TRY(next_load(l, &load, e));
    }
}

/* The losses over this rank's share of `rows` validation rows, as one step of the loader; *tokens: of all of them. */
static enum zf_status validation_loss(struct zf_trainer *t, uint64_t rows, uint64_t *tokens, struct zf_err *e)
{
    const struct zf_memory_plan *p = &t->setup->plan;
    struct zf_loader *l;
    const struct zf_load *load;
    ZF_TRY(zf_loader_start(&l,
                           &(struct zf_loader_options){.data = &t->setup->valid,
                                                       .count = rows,
                                                       .step_rows = rows,
                                                       .rank = zf_world_rank(t->world),
                                                       .ranks = zf_world_ranks(t->world),
                                                       .micro_batch = p->micro_batch,
                                                       .room_tokens = p->tokens,
                                                       .placed = t->loader_processor >= 0,
                                                       .processor = t->loader_processor},
                           e));
    enum zf_status s;
    ZF_GOTO(end, s, zf_pipeline_begin_loss(&t->pipeline, e));
    ZF_GOTO(end, s, next_load(l, &load, e));
    *tokens = load->label_tokens;
    ZF_GOTO(end, s, micro_batches(t, l, load, false, 0, e));
end:
    t->profile.data_cpu += zf_loader_cpu(l);
    zf_loader_stop(l);
    return s;
}

/* Before it, all ranks show what is due: a rank may be told to leave its share before its first forward. */
enum zf_status zf_trainer_loss(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)text;
    zf_world_doing(t->world, t->step, "validating");
    if (t->world) ZF_TRY(zf_pipeline_settle(&t->pipeline, e));
    return zf_order_sum(t, validation_loss(t, o->number, &t->valid.tokens, e), NULL, 0, e);
}

/* When all have come to the end of theirs. */
enum zf_status zf_trainer_sum(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    double sum;
    (void)o, (void)text;
    ZF_TRY(zf_pipeline_loss(&t->pipeline, &sum, e));
    t->valid.loss = t->valid.tokens ? sum / (double)t->valid.tokens : NAN;
    return ZF_OK;
}

enum zf_status zf_trainer_choices(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    const struct zf_setup *s = t->setup;
    size_t n = s->choice_count;
    double *counts = calloc(ZF_CHOICE_COUNTS + n, sizeof *counts);
    struct zf_choices c = {.data = &s->choices,
                           .count = n,
                           .most = o->number,
                           .rank = zf_world_rank(t->world),
                           .ranks = zf_world_ranks(t->world),
                           .micro_batch = s->plan.micro_batch,
                           .room_tokens = s->plan.tokens,
                           .between = zf_trainer_between,
                           .context = t};
    (void)text;
    enum zf_status bad = counts ? zf_choices_score(&c, &t->model, counts, e) : zf_fail_memory(e, "the scores of choices");
    bad = zf_order_sum(t, bad, counts, ZF_CHOICE_COUNTS + n, e);
    if (!bad) zf_choices_sum(&t->valid.choices, counts, n);
    free(counts);
    return bad;
}

enum zf_status zf_trainer_validate(struct zf_trainer *t, double *loss, struct zf_err *e)
{
    const struct zf_setup *s = t->setup;
    uint64_t most = (uint64_t)t->o->valid_batches * (uint64_t)t->o->batch_size;
    double from = zf_clock();
    t->valid = (struct zf_valid_record){0};
    zf_session_doing(t->session, "validating");
    uint64_t rows = most && most < s->valid.rows ? most : s->valid.rows;
    ZF_TRY(zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_LOSS, .number = rows}, NULL, e));
    ZF_TRY(zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_SUM}, NULL, e));
    if (s->choices.rows) ZF_TRY(zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_CHOICES, .number = most}, NULL, e));
    *loss = t->valid.loss;
    zf_profile_see(t);
    zf_record_valid(t, &t->valid);
    zf_eta_pause(&t->eta, zf_clock() - from);
    return ZF_OK;
}

/* Only what we wrote ourselves: an export this run's journal names. */
static void remove_export(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d));)
        if (f->d_name[0] != '.') unlinkat(dirfd(d), f->d_name, 0);
    if (d) closedir(d);
    rmdir(path);
}

char *zf_trainer_place(const struct zf_trainer *t)
{
    char link[40], path[4096];
    struct stat there, own;
    snprintf(link, sizeof link, "/proc/self/fd/%d", t->place);
    ssize_t n = t->place < 0 ? -1 : readlink(link, path, sizeof path - 1);
    if (n <= 0) return strdup(t->run);
    path[n] = 0;
    bool found = !fstat(t->place, &own) && !stat(path, &there) && own.st_dev == there.st_dev && own.st_ino == there.st_ino;
    return strdup(found && (stat(t->run, &there) || own.st_ino != there.st_ino || own.st_dev != there.st_dev) ? path : t->run);
}

/* Where the export of this step goes. A name that somebody else has taken is left alone: step-00000300-2. To be freed. */
static char *free_name(const struct zf_trainer *t, const char *run)
{
    char *first = zf_export_path(run, t->step), *path = first ? strdup(first) : NULL;
    struct stat st;
    for (int i = 2; path && i < 100 && !lstat(path, &st); i++) {
        free(path);
        if (asprintf(&path, "%s-%d", first, i) < 0) path = NULL;
    }
    free(first);
    return path;
}

static enum zf_status write_export(struct zf_trainer *t, struct zf_err *e)
{
    char taken[128];
    ZF_TRY(zf_take_back(t, taken, sizeof taken, e));
    char *run = zf_trainer_place(t), *path = run ? free_name(t, run) : NULL, *folder = run ? zf_path_join(run, "exports") : NULL;
    enum zf_status s = path && folder ? zf_directory_make(folder, 0777, e) : zf_fail_memory(e, "a path");
    if (!s) s = zf_model_export(&t->model, path, t->setup->config_json, t->setup->tokenizer_folder, e);
    bool bytes = !t->o->path[0] && !t->setup->tokenizer_folder;
    if (!s && bytes) s = zf_tokenizer_write_bytes(path, t->model.config.eos_count > 0, e);
    free(folder);
    free(run);
    if (s) {
        free(path);
        return s;
    }
    free(t->exported);
    t->exported = path;
    t->exported_at = zf_trainer_now(t);
    zf_plain_text(&t->plain, "step %" PRIu64 " exported to %s", t->step, path);
    return ZF_OK;
}

enum zf_status zf_trainer_export(struct zf_trainer *t, bool best, struct zf_err *e)
{
    double from = zf_clock();
    zf_session_doing(t->session, "exporting");
    bool written = !t->exported || !zf_trainer_is_now(t, &t->exported_at); /* the best one and the last one may be the same */
    if (written) ZF_TRY(write_export(t, e));
    if (!best && t->best.path && !strcmp(t->best.path, t->exported)) { /* it was asked for: a better one does not remove it */
        free(t->best.path);
        t->best.path = NULL;
    }
    json_t *o = json_pack("{s:s s:I s:s s:b}", "type", "export", "step", (json_int_t)t->step, "file", t->exported, "best", best);
    if (best) json_object_set_new(o, "loss", zf_json_real(t->best.loss));
    zf_eta_pause(&t->eta, zf_clock() - from);
    if (written) zf_deadline_exported(&t->deadline, zf_clock() - from);
    zf_metrics_write(t->metrics, json_incref(o));
    return zf_journal_append(t->journal, o, e);
}

static const char goes_on[] = "training goes on";

/* In the middle of a run: a full disk costs this export, not the run. */
static bool export_or_warn(struct zf_trainer *t, bool best, const char *then)
{
    struct zf_err e;
    if (!zf_trainer_export(t, best, &e)) return true;
    zf_record_text(t, "warning", "step %" PRIu64 " was not exported, %s: %s: %s", t->step, then, e.where, e.message);
    return false;
}

/* Validation, and what follows from it: the best one kept, patience. */
static enum zf_status judge(struct zf_trainer *t, bool *enough, struct zf_err *e)
{
    double loss;
    ZF_TRY(zf_trainer_validate(t, &loss, e));
    *enough = false;
    t->judged_at = zf_trainer_now(t);
    if (!isfinite(loss))
        zf_record_text(t, "warning", "the validation loss of step %" PRIu64 " is not finite; it counts as one that is no better", t->step);
    if (isfinite(loss) && (!t->best.any || loss < t->best.loss)) {
        t->best.any = true;
        t->best.loss = loss;
        t->best.step = t->step;
        t->best.worse = 0;
        if (!t->o->keep_best) return ZF_OK;
        if (!export_or_warn(t, true, goes_on)) return ZF_OK;
        if (t->best.path && !(t->o->export_every && t->best.kept % (uint64_t)t->o->export_every == 0)) remove_export(t->best.path);
        free(t->best.path);
        t->best.path = strdup(t->exported);
        t->best.kept = t->step;
        return ZF_OK;
    }
    t->best.worse++;
    *enough = t->o->patience && t->best.worse >= (uint64_t)t->o->patience;
    return ZF_OK;
}

static bool score_now(const struct zf_trainer *t)
{
    return t->watch.score_asked || (t->o->score_every && (t->step + 1) % (uint64_t)t->o->score_every == 0);
}

/* One optimizer step, into t->record. ZF_STOPPED: dropped because of a signal. */
enum zf_status zf_trainer_step(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    struct zf_step_record *r = &t->record;
    const struct zf_load *load;
    (void)text;
    zf_world_doing(t->world, t->step + 1, "training");
    t->may_end = false;
    zf_watch_begin(t);
    ZF_TRY(next_load(t->loader, &load, e));
    *r = (struct zf_step_record){.step = t->step + 1,
                                 .first_row = load->first,
                                 .last_row = load->last,
                                 .tokens = load->tokens,
                                 .label_tokens = load->label_tokens,
                                 .rate = o->rate};
    if (!r->label_tokens) {
        r->loss = r->norm.norm = r->norm.loss = NAN;
        r->norm.clip = 1;
        while (!load->ends) ZF_TRY(next_load(t->loader, &load, e));
        ZF_TRY(zf_pipeline_skip(&t->pipeline, r->rate, e));
    } else {
        ZF_TRY(zf_pipeline_begin(&t->pipeline, r->rate, o->flag, e));
        ZF_TRY(micro_batches(t, t->loader, load, true, 1.0f / (float)r->label_tokens, e));
        zf_world_doing(t->world, t->step + 1, zf_world_waits);
        ZF_TRY(zf_pipeline_finish(&t->pipeline, &r->norm, e));
        r->loss = r->norm.loss / (double)r->label_tokens;
    }
    t->half = false;
    t->step++;
    zf_watch_end(t);
    r->seconds = t->watch.ended - t->watch.began;
    return ZF_OK;
}

/* What comes every so many steps. *enough: patience is over. */
static enum zf_status periodic(struct zf_trainer *t, bool *enough, struct zf_err *e)
{
    const struct zf_options *o = t->o;
    *enough = false;
    t->owed = true; /* until all of it is done: a signal may end the run in between, and the next start does the rest */
    bool valid = o->valid_every && t->setup->valid.rows && t->step % (uint64_t)o->valid_every == 0;
    if (valid && !zf_trainer_is_now(t, &t->judged_at)) ZF_TRY(judge(t, enough, e));
    if (*enough) return ZF_OK;
    if (o->export_every && t->step % (uint64_t)o->export_every == 0) export_or_warn(t, false, goes_on);
    if (o->sample_every && t->step % (uint64_t)o->sample_every == 0) {
        enum zf_status s = zf_trainer_sample(t, o->sample_prompt, NULL, 0, e);
        if (s == ZF_STOPPED || s == ZF_BUSY) return s;
        if (s) zf_record_text(t, "warning", "no sample: %s: %s", e->where, e->message);
    }
    t->owed = false;
    return ZF_OK;
}

static enum zf_status after_step(struct zf_trainer *t, const struct zf_step_record *r, enum zf_end *end, bool *over, struct zf_err *e)
{
    const struct zf_options *o = t->o;
    *over = true;
    if (!r->norm.apply) {
        enum zf_verdict v = zf_nonfinite_step(t, r);
        *end = ZF_END_NONFINITE;
        if (v == ZF_GIVE_UP) return ZF_OK;
        if (v == ZF_ASK) {
            zf_save_or_warn(t); /* the last good state, before anybody is waited for */
            export_or_warn(t, false, "the run waits");
            zf_steer_ask(t);
        }
    } else {
        t->in_row = 0;
        t->applied = r->step;
        t->clipped += r->norm.clip < 1;
        if (r->loss == 0 && !t->told_zero_loss) {
            t->told_zero_loss = true;
            zf_record_text(t, "warning",
                           "the loss of step %" PRIu64 " is exactly 0: every target may be predicted already, or the labels are wrong",
                           r->step);
        }
    }
    if (o->norms_every && t->step % (uint64_t)o->norms_every == 0 && r->label_tokens) ZF_TRY(zf_record_norms(t, e));
    if (t->step >= t->setup->steps) {
        t->owed = true; /* of the drained state, then */
    } else {
        ZF_TRY(periodic(t, over, e));
        zf_save_due(t);
        *end = ZF_END_PATIENCE;
        if (*over) return ZF_OK;
    }
    *end = ZF_END_TIME;
    *over = t->step < t->setup->steps && zf_deadline_near(t);
    return ZF_OK;
}

/* After the last step. */
static enum zf_status finish(struct zf_trainer *t, enum zf_end *end, struct zf_err *e)
{
    bool enough;
    *end = ZF_END_DONE;
    ZF_TRY(zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_DRAIN}, NULL, e));
    enum zf_status s = t->owed ? periodic(t, &enough, e) : ZF_OK;
    if (!s && t->setup->valid.rows && !zf_trainer_is_now(t, &t->judged_at)) s = judge(t, &enough, e);
    if (s != ZF_STOPPED) return s;
    *end = stopped_by(t);
    return ZF_OK;
}

enum zf_status zf_trainer_loop(struct zf_trainer *t, enum zf_end *end, struct zf_err *e)
{
    *end = ZF_END_DONE;
    for (;;) {
        struct zf_step_record *r = &t->record;
        uint64_t was = t->step;
        bool over = false, stop = false, last = t->step >= t->setup->steps;
        enum zf_status s = asked_to_stop(t) && !last ? ZF_STOPPED : ZF_OK;
        if (!s && t->owed && !last) s = periodic(t, &over, e); /* an earlier attempt was ended in the middle of it */
        *end = ZF_END_PATIENCE;
        if (!s && over) return ZF_OK;
        if (!s) s = last ? zf_session_at_end(t->session, &stop, e) : zf_session_before_step(t->session, t->step + 1, &stop, e);
        zf_lock_paused(t->lock, false);
        if (s == ZF_NUMERIC || (!s && stop)) { /* nobody answered a pause; or a client said stop */
            *end = s || t->ill ? ZF_END_NONFINITE : ZF_END_COMMAND;
            t->answered = stop;
            return ZF_OK;
        }
        if (!s && last && t->step != was) continue; /* `load` */
        if (!s && t->step >= t->setup->steps && last) break;
        if (!s && t->step >= t->setup->steps) continue; /* there are fewer steps now */
        if (!s && t->owed) {                            /* there are more steps now */
            s = periodic(t, &over, e);
            *end = ZF_END_PATIENCE;
            if (!s && over) return ZF_OK;
        }
        if (!s) {
            t->ill = false;
            s = zf_pace_decide(t, e);
            struct zf_ordered step = {.kind = ZF_ORDER_STEP, .flag = score_now(t), .rate = zf_schedule_rate(&t->schedule, t->step + 1)};
            if (!s) s = zf_order(t, step, NULL, e);
        }
        if (!s) {
            uint64_t every = (uint64_t)t->o->valid_every, left = t->setup->steps - t->step;
            zf_pace_step(t);
            zf_eta_step(&t->eta, r->seconds);
            zf_deadline_step(&t->deadline, r->seconds);
            r->eta = zf_eta_left(&t->eta, left, every ? left / every : 0);
            zf_profile_step(t, r->seconds);
            zf_record_step(t, r);
            zf_steer_told(t, r);
            s = after_step(t, r, end, &over, e);
            if (!s && over) return ZF_OK;
        }
        if (s == ZF_STOPPED) {
            *end = stopped_by(t);
            return ZF_OK;
        }
        if (s) return s;
    }
    return finish(t, end, e);
}
