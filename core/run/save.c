/* See save.h. */
#include "core/run/save.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/run/content.h"
#include "core/run/orders.h"
#include "core/run/ranks.h"
#include "core/run/release.h"
#include "core/run/resume.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/run/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- what is no tensor ---- */

static json_t *trainer_facts(const struct zf_trainer *t)
{
    json_t *best = json_pack("{s:f s:I s:I s:I}", "loss", t->best.loss, "step", (json_int_t)t->best.step, "worse",
                             (json_int_t)t->best.worse, "kept", (json_int_t)t->best.kept);
    if (best && t->best.path) json_object_set_new(best, "path", json_string(t->best.path));
    json_t *o = json_pack("{s:I s:I s:I s:I s:b s:b s:I s:f s:b}", "skipped", (json_int_t)t->skipped, "in_row", (json_int_t)t->in_row,
                          "clipped", (json_int_t)t->clipped, "drains", (json_int_t)t->drains, "owed", t->owed, "told_zero_loss",
                          t->told_zero_loss, "update_interval", (json_int_t)t->pace.interval.now, "seconds", zf_clock() - t->started,
                          "judged", zf_trainer_is_now(t, &t->judged_at));
    if (t->best.any)
        json_object_set_new(o, "best", best);
    else
        json_decref(best);
    return o;
}

static json_t *info_of(struct zf_trainer *t)
{
    char now[96], *options = zf_options_text(t->o);
    struct zf_device_info device;
    t->device->type->info(t->device, &device);
    json_t *o = json_pack("{s:s s:s s:s s:I s:I s:s s:I s:I s:I s:s*}", "program", "zenflow-console " ZF_VERSION, "run", t->id, "time",
                          zf_time_text(zf_wall_clock(), now, sizeof now), "step", (json_int_t)t->step, "steps", (json_int_t)t->setup->steps,
                          "dtype", zf_dtype_name(t->setup->dtype), "rows", (json_int_t)(t->step * (uint64_t)t->o->batch_size), "journal",
                          (json_int_t)zf_journal_count(t->journal), "metrics", (json_int_t)zf_metrics_size(t->metrics), "run_cfg", options);
    json_t *more = json_pack("{s:o* s:o* s:O* s:o* s:o* s:o* s:{s:s s:s s:s}}", "content", zf_content_of(t->setup), "options",
                             zf_options_json(t->o), "config", t->setup->config_json, "trainer", trainer_facts(t), "session",
                             zf_session_state(t->session), "pipeline", t->kept ? zf_kept_facts(t->kept) : zf_state_facts(&t->pipeline),
                             "machine", "device", t->device->type->name, "instructions", device.isa, "products", device.products);
    bool fine = options && o && more && json_object_get(more, "pipeline") && !json_object_update(o, more);
    free(options);
    json_decref(more);
    if (fine) return o;
    json_decref(o);
    return NULL;
}

/* ---- one of them ---- */

/* Where a checkpoint of this step goes; a name that a person gave has no path in it. */
static enum zf_status path_of(const struct zf_trainer *t, const char *run, const char *name, char **out, struct zf_err *e)
{
    char *folder = zf_path_join(run, "checkpoints");
    *out = NULL;
    enum zf_status s = folder ? zf_directory_make(folder, 0777, e) : zf_fail_memory(e, run);
    int n = s      ? 0
            : name ? asprintf(out, "%s/%s%s", folder, name, zf_saves_is_file(name) ? "" : ".zfc")
                   : asprintf(out, "%s/step-%08" PRIu64 ".zfc", folder, t->step);
    free(folder);
    if (n < 0) *out = NULL;
    return s ? s : *out ? ZF_OK : zf_fail_memory(e, run);
}

bool zf_save_is_done(const struct zf_trainer *t)
{
    struct stat st;
    return zf_trainer_is_now(t, &t->save.moment) && t->save.path && !stat(t->save.path, &st) && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == t->save.bytes;
}

static enum zf_status saving_new(struct zf_trainer *t, const char *name, struct zf_saving **out, struct zf_err *e)
{
    struct zf_device_info device;
    struct zf_saving *s = *out = calloc(1, sizeof *s);
    if (!s || !(s->run = zf_trainer_place(t))) return zf_fail_memory(e, t->run);
    t->device->type->info(t->device, &device);
    ZF_TRY(path_of(t, s->run, name, &s->path, e));
    s->began = zf_clock();
    s->step = t->step;
    s->drains = t->drains;
    s->likely = t->save.bytes;
    s->level = (int)t->o->compression_level;
    s->threads = device.threads;
    s->keep = (size_t)t->o->keep;
    s->keep_weights = (size_t)t->o->keep_weights;
    s->journal = t->journal;
    return ZF_OK;
}

/* The state is there: what is no tensor joins it. */
static enum zf_status add_info(struct zf_trainer *t, struct zf_saving *s, struct zf_err *e)
{
    s->info = info_of(t);
    if (s->info && s->sharing) zf_sharing_facts(s->sharing, json_object_get(s->info, "pipeline"));
    return s->info ? ZF_OK : zf_fail_memory(e, s->path);
}

static enum zf_status beat(void *trainer, struct zf_err *e)
{
    struct zf_trainer *t = trainer;
    return zf_lock_beat(t->lock, t->step, e);
}

/* All ranks: rank 0 writes, the others give. What the disk refuses is no failure of this. */
enum zf_status zf_trainer_share(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    struct zf_saving *s = t->save.together;
    struct zf_state state;
    struct zf_sharing sharing;
    (void)o, (void)text;
    zf_world_doing(t->world, t->step, "saving");
    ZF_TRY(zf_ranks_compare(t, e));
    ZF_TRY(zf_state_open(s ? &s->state : &state, &t->pipeline, e));
    if (!s) {
        enum zf_status bad = zf_sharing_serve(t->world, &state, e);
        zf_state_close(&state);
        return bad;
    }
    s->sharing = &sharing;
    enum zf_status bad = zf_sharing_open(&sharing, t->world, &s->state, e), failed = bad ? bad : add_info(t, s, &s->err);
    if (failed) /* there is nothing to write */
        s->status = failed;
    else
        zf_saving_run(s);
    enum zf_status ended = bad ? bad : zf_sharing_close(&sharing, e);
    s->sharing = NULL;
    return ended;
}

static enum zf_status write_together(struct zf_trainer *t, struct zf_saving *s, struct zf_err *e)
{
    s->between = beat;
    s->ctx = t;
    t->save.together = s;
    enum zf_status failed = zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_SAVE}, NULL, e);
    t->save.together = NULL;
    if (!failed && s->status) *e = s->err;
    return failed ? failed : s->status;
}

static enum zf_status write_now(struct zf_trainer *t, struct zf_saving *s, struct zf_err *e)
{
    if (t->world) return write_together(t, s, e);
    ZF_TRY(t->kept ? zf_kept_state(t->kept, &s->state, e) : zf_state_open(&s->state, &t->pipeline, e));
    ZF_TRY(add_info(t, s, e));
    s->between = beat;
    s->ctx = t;
    zf_saving_run(s);
    if (s->status) *e = s->err;
    return s->status;
}

/* What is left for a copy. Half of it: others are on this machine, too. */
static size_t spare_memory(const struct zf_trainer *t)
{
    struct zf_memory_limits l;
    zf_setup_limits(t->setup, &l);
    return t->save.memory.size + l.least / 2;
}

/* The system gives memory when it is written the first time, which takes longer than to copy into it: so that the first checkpoint holds
 * training up no more than the others, it is made to give it before, in the background. Where it cannot, the first one takes longer. */
static void *populate(void *arg)
{
    enum { NICE = 10, SOME = 32 << 20 };
    const struct zf_state_memory *m = arg;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    for (size_t at = 0; at < m->size; at += SOME)
        if (madvise((char *)m->bytes + at, m->size - at < SOME ? m->size - at : SOME, MADV_POPULATE_WRITE)) break;
    return NULL;
}

static void prepare(struct zf_trainer *t)
{
    enum { STEPS = 4 }; /* of this process: what else needs memory has it by then */
    struct zf_err ignored;
    const struct zf_options *o = t->o;
    if (t->world || t->save.steps++ != STEPS || t->save.memory.bytes || !(o->save_every || o->save_minutes > 0)) return;
    if (zf_state_prepare(&t->pipeline, &t->save.memory, spare_memory(t), &ignored)) return;
    t->save.populates = t->save.memory.held = !zf_thread_start(&t->save.populate, populate, &t->save.memory);
}

static void prepared(struct zf_trainer *t)
{
    if (t->save.populates) pthread_join(t->save.populate, NULL);
    t->save.populates = t->save.memory.held = false;
}

/* *waited: there is no memory for a copy, and it is written already. */
static enum zf_status start(struct zf_trainer *t, struct zf_saving *s, bool *waited, struct zf_err *e)
{
    if (t->kept || t->world) { /* nothing alters it; the ranks' states come together in no time of training */
        *waited = true;
        return write_now(t, s, e);
    }
    enum zf_status failed = zf_state_copy(&s->state, &t->pipeline, &t->save.memory, spare_memory(t), e);
    if (failed == ZF_BUSY) { /* what was prepared is too small after all */
        prepared(t);
        failed = zf_state_copy(&s->state, &t->pipeline, &t->save.memory, spare_memory(t), e);
    }
    *waited = failed == ZF_MEMORY;
    if (*waited) {
        if (!t->save.told_waits) zf_record_text(t, "note", "training waits while a checkpoint is written: %s", e->message);
        t->save.told_waits = true;
        return write_now(t, s, e);
    }
    ZF_TRY(failed);
    failed = add_info(t, s, e);
    s->stalled = zf_clock() - s->began + t->save.waited;
    t->save.waited = 0;
    if (!failed) failed = zf_saving_start(s, e);
    if (failed) zf_state_over(&s->state);
    return failed;
}

/* ---- what came of it ---- */

static void saved_text(const struct zf_trainer *t, char *text, size_t room)
{
    snprintf(text, room, "step %" PRIu64 " saved to %.1200s", t->save.moment.step, t->save.path ? t->save.path : "its file");
}

static void succeeded(struct zf_trainer *t, struct zf_saving *s)
{
    char bytes[32];
    t->save.moment = (struct zf_moment){s->step, s->drains};
    t->save.bytes = s->counts.stored;
    t->save.failed = 0;
    zf_deadline_saved(&t->deadline, s->ended - s->began);
    free(t->save.path);
    t->save.path = strdup(s->path);
    zf_metrics_write(t->metrics, zf_saving_entry(s));
    zf_plain_text(&t->plain, "step %" PRIu64 " saved to %s (%s, %.1f s)", s->step, s->path,
                  zf_bytes_text(s->counts.stored, bytes, sizeof bytes), s->ended - s->began);
    if (s->unwritten)
        zf_record_text(t, "warning", "%s is whole, but it cannot be written down: %s: %s", s->path, s->err.where, s->err.message);
}

enum { RETRY_MINUTES = 10 }; /* steps may be long */

static void warn(struct zf_trainer *t, uint64_t step, const struct zf_err *e)
{
    enum { FIRST = 8, LONGEST = 1024 }; /* steps until it is tried again */
    uint64_t wait = t->save.failed ? (t->save.failed < LONGEST ? 2 * t->save.failed : LONGEST) : FIRST;
    t->save.failed = wait;
    t->save.again = step + wait;
    t->save.again_at = zf_clock() + RETRY_MINUTES * 60;
    zf_record_text(
        t, "warning",
        "unsaved since step %" PRIu64 ": %s: %s; training goes on, and it is tried again after step %" PRIu64 ", or in %d minutes",
        t->save.moment.drains ? t->save.moment.step : 0, e->where[0] ? e->where : "the state", e->message, t->save.again, RETRY_MINUTES);
}

/* Frees it. Whoever asked for it is told; else a failure is a warning. */
static void conclude(struct zf_trainer *t, struct zf_saving *s)
{
    char text[1400];
    if (s->status) {
        snprintf(text, sizeof text, "%.200s: %.1100s", s->err.where[0] ? s->err.where : s->path, s->err.message);
    } else {
        succeeded(t, s);
        saved_text(t, text, sizeof text);
    }
    bool told = zf_session_answered(t->session, s->ticket, !s->status, text);
    if (s->status && s->status != ZF_STOPPED && !told) warn(t, s->step, &s->err);
    zf_saving_free(s);
}

enum zf_status zf_trainer_save(struct zf_trainer *t, struct zf_err *e)
{
    struct zf_saving *s;
    zf_save_end(t);
    if (zf_save_is_done(t)) return ZF_OK;
    zf_session_doing(t->session, "saving");
    enum zf_status failed = saving_new(t, NULL, &s, e);
    if (!failed) failed = write_now(t, s, e);
    if (!failed) {
        succeeded(t, s);
        t->save.at = s->ended;
        zf_eta_pause(&t->eta, s->stalled);
    }
    zf_saving_free(s);
    zf_session_doing(t->session, "training");
    return failed;
}

/* Nothing is under way. */
static enum zf_status begin(struct zf_trainer *t, const char *name, uint64_t ticket, struct zf_err *e)
{
    struct zf_saving *s;
    bool waited = false;
    enum zf_status failed = saving_new(t, name, &s, e);
    if (!failed) failed = start(t, s, &waited, e);
    if (!failed) {
        t->save.at = zf_clock();
        zf_eta_pause(&t->eta, t->save.at - s->began);
        s->ticket = ticket;
        if (waited)
            succeeded(t, s);
        else
            t->save.now = s;
    }
    if (failed || waited) zf_saving_free(s);
    return failed;
}

/* ---- one after the other ---- */

static void begin_or_warn(struct zf_trainer *t, const char *name, uint64_t ticket)
{
    struct zf_err e;
    char text[1400];
    enum zf_status failed = begin(t, name, ticket, &e);
    if (!failed && t->save.now) return; /* its end is told */
    if (failed)
        snprintf(text, sizeof text, "%.200s%s%.1100s", e.where, e.where[0] ? ": " : "", e.message);
    else
        saved_text(t, text, sizeof text);
    if (!zf_session_answered(t->session, ticket, !failed, text) && failed) warn(t, t->step, &e);
}

static void take_turn(struct zf_trainer *t)
{
    struct zf_save_wish first = t->save.wish[0];
    memmove(t->save.wish, t->save.wish + 1, --t->save.wishes * sizeof *t->save.wish);
    begin_or_warn(t, first.named ? first.name : NULL, first.ticket);
}

/* wait: for the one under way; else only if it is written by now. The next one begins. */
static void poll(struct zf_trainer *t, bool wait)
{
    struct zf_saving *s = t->save.now;
    if (s && (wait || s->done)) {
        pthread_join(s->thread, NULL);
        t->save.now = NULL;
        conclude(t, s);
    }
    if (!t->save.now && t->save.wishes) take_turn(t);
}

static enum zf_status wish(struct zf_trainer *t, const char *name, uint64_t ticket, struct zf_err *e)
{
    if (t->save.wishes == ZF_SAVE_WISHES)
        return zf_fail(e, ZF_DIFFERENT, NULL, "%d checkpoints wait for their turn already", ZF_SAVE_WISHES);
    struct zf_save_wish *w = &t->save.wish[t->save.wishes++];
    *w = (struct zf_save_wish){.named = name != NULL, .ticket = ticket};
    snprintf(w->name, sizeof w->name, "%s", name ? name : "");
    return ZF_OK;
}

enum zf_status zf_save_command(struct zf_trainer *t, const char *name, bool scripted, char *text, size_t room, struct zf_err *e)
{
    uint64_t ticket = ++t->save.tickets;
    ZF_TRY(zf_save_check_name(name, e));
    poll(t, false);
    if (scripted) zf_save_end(t); /* at that step, not at one that depends on clocks */
    if (t->save.now) {
        ZF_TRY(wish(t, name, ticket, e));
        snprintf(text, room, "step %" PRIu64 " is still being written; the next one begins when that is done", t->save.now->step);
    } else {
        ZF_TRY(begin(t, name, ticket, e));
        saved_text(t, text, room);
        if (!t->save.now) return ZF_OK;
        snprintf(text, room, "step %" PRIu64 " is being written to %s", t->step, t->save.now->path);
    }
    zf_session_answer_with(t->session, ticket);
    return ZF_OK;
}

void zf_save_end(struct zf_trainer *t)
{
    while (t->save.now || t->save.wishes) poll(t, true);
}

void zf_save_close(struct zf_trainer *t)
{
    struct zf_err ignored;
    if (t->save.now && zf_lock_beat(t->lock, t->step, &ignored)) t->save.now->cancelled = true;
    t->save.wishes = 0;
    zf_save_end(t);
    prepared(t);
    if (t->device) t->device->type->free(t->device, t->save.memory.bytes);
    t->save.memory = (struct zf_state_memory){0};
    free(t->save.path);
}

/* ---- when ---- */

bool zf_save_or_warn(struct zf_trainer *t)
{
    struct zf_err e;
    if (!zf_trainer_save(t, &e)) return true;
    warn(t, t->step, &e);
    return false;
}

/* SIGUSR1 has come since. */
static bool heard(struct zf_trainer *t)
{
    bool asked = t->save.heard != *t->usr1;
    t->save.heard = *t->usr1;
    return asked;
}

static void wait_for_the_last(struct zf_trainer *t)
{
    double from = zf_clock();
    if (!t->save.now) return;
    uint64_t step = t->save.now->step;
    zf_save_end(t);
    t->save.waited += zf_clock() - from;
    zf_eta_pause(&t->eta, zf_clock() - from);
    if (t->save.told_slow) return;
    t->save.told_slow = true;
    zf_record_text(t, "note",
                   "training waited %.1f s for the checkpoint of step %" PRIu64
                   ": they are asked for faster (save_every) than they are written",
                   zf_clock() - from, step);
}

void zf_save_due(struct zf_trainer *t)
{
    const struct zf_options *o = t->o;
    struct zf_err ignored;
    bool every = o->save_every && t->step % (uint64_t)o->save_every == 0, asked = heard(t);
    poll(t, false);
    prepare(t);
    if (every) wait_for_the_last(t); /* this step is to be saved, not a later one */
    bool again = t->save.failed && (t->step >= t->save.again || zf_clock() >= t->save.again_at),
         minutes = o->save_minutes > 0 && !t->save.failed && zf_clock() - t->save.at >= 60 * o->save_minutes;
    every = every && !t->save.failed;
    if (t->save.now && asked) wish(t, NULL, 0, &ignored);
    if (!t->save.now && (again || every || minutes || asked)) begin_or_warn(t, NULL, 0);
}

void zf_save_idle(struct zf_trainer *t)
{
    struct zf_err ignored;
    poll(t, false);
    if (!heard(t)) return;
    if (t->save.now)
        wish(t, NULL, 0, &ignored);
    else
        begin_or_warn(t, NULL, 0);
}
