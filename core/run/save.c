/* See save.h. */
#include "core/run/save.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/pipeline/state.h"
#include "core/run/resume.h"
#include "core/run/saves.h"
#include "core/run/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* ---- tensors ---- */

enum zf_ckpt_type zf_save_type(enum zf_state_type t)
{
    static const enum zf_ckpt_type types[] = {[ZF_STATE_F32] = ZF_CKPT_F32,
                                              [ZF_STATE_BF16] = ZF_CKPT_BF16,
                                              [ZF_STATE_U32] = ZF_CKPT_U32,
                                              [ZF_STATE_I16] = ZF_CKPT_I16,
                                              [ZF_STATE_I32] = ZF_CKPT_I32};
    return types[t];
}

enum zf_status zf_save_room(const struct zf_state_piece *x, struct zf_save_buffer *b, struct zf_err *e)
{
    enum { BYTES = 4 << 20 };
    b->row = x->cols * zf_state_type_bytes(x->type);
    b->rows = b->row < BYTES ? BYTES / b->row : 1;
    if (b->rows * b->row <= b->room) return ZF_OK;
    void *grown = realloc(b->bytes, b->rows * b->row);
    if (!grown) return zf_fail_memory(e, "a checkpoint");
    b->bytes = grown;
    b->room = b->rows * b->row;
    return ZF_OK;
}

static enum zf_status put_piece(struct zf_trainer *t, struct zf_state *s, const struct zf_state_piece *x, struct zf_ckpt_writer *w,
                                struct zf_save_buffer *b, struct zf_err *e)
{
    const uint64_t shape[2] = {x->rows, x->cols};
    ZF_TRY(zf_save_room(x, b, e));
    ZF_TRY(zf_ckpt_begin(w, x->name, zf_save_type(x->type), 2, shape, e));
    for (size_t first = 0; first < x->rows; first += b->rows) {
        size_t n = x->rows - first < b->rows ? x->rows - first : b->rows;
        ZF_TRY(zf_state_read(s, x, first, n, b->bytes, e));
        ZF_TRY(zf_ckpt_put(w, b->bytes, n * b->row, e));
        ZF_TRY(zf_lock_beat(t->lock, t->step, e)); /* a sign of life; signals are heard when it is written */
    }
    return ZF_OK;
}

/* ---- what is no tensor ---- */

static json_t *trainer_facts(const struct zf_trainer *t)
{
    json_t *best = json_pack("{s:f s:I s:I s:I}", "loss", t->best.loss, "step", (json_int_t)t->best.step, "worse",
                             (json_int_t)t->best.worse, "kept", (json_int_t)t->best.kept);
    if (best && t->best.path) json_object_set_new(best, "path", json_string(t->best.path));
    json_t *o = json_pack("{s:I s:I s:I s:I s:b s:b s:I s:f s:b}", "skipped", (json_int_t)t->skipped, "in_row", (json_int_t)t->in_row,
                          "clipped", (json_int_t)t->clipped, "drains", (json_int_t)t->drains, "owed", t->owed, "told_zero_loss",
                          t->told_zero_loss, "update_interval", (json_int_t)t->pace.interval.now, "seconds", zf_clock() - t->started,
                          "judged", t->judged_at.step == t->step && t->judged_at.drains == t->drains);
    if (t->best.any)
        json_object_set_new(o, "best", best);
    else
        json_decref(best);
    return o;
}

static json_t *info_of(struct zf_trainer *t)
{
    char now[96], *options = zf_resume_text(t->o);
    struct zf_device_info device;
    t->device->type->info(t->device, &device);
    json_t *o =
        json_pack("{s:s s:s s:s s:I s:I s:s s:I s:s*}", "program", "zenflow-console " ZF_VERSION, "run", t->id, "time",
                  zf_time_text(zf_wall_clock(), now, sizeof now), "step", (json_int_t)t->step, "steps", (json_int_t)t->setup->steps,
                  "dtype", zf_dtype_name(t->model.dtype), "rows", (json_int_t)(t->step * (uint64_t)t->o->batch_size), "run_cfg", options);
    json_t *more =
        json_pack("{s:o* s:O* s:o* s:o* s:o* s:{s:s s:s s:s}}", "options", zf_options_json(t->o), "config", t->setup->config_json,
                  "trainer", trainer_facts(t), "session", zf_session_state(t->session), "pipeline", zf_state_facts(&t->pipeline), "machine",
                  "device", t->device->type->name, "instructions", device.isa, "products", device.products);
    bool fine = options && o && more && json_object_get(more, "pipeline") && !json_object_update(o, more);
    free(options);
    json_decref(more);
    if (fine) return o;
    json_decref(o);
    return NULL;
}

/* ---- a file ---- */

/* As many bytes as the last one and an eighth, or all that the first one could take: a disk that is nearly full is told before minutes of
 * compressing. */
static enum zf_status check_room(const struct zf_trainer *t, const struct zf_state *s, const char *path, struct zf_err *e)
{
    struct statvfs disk;
    uint64_t wanted = t->save.bytes + t->save.bytes / 8;
    for (size_t i = 0; i < s->count && !t->save.bytes; i++)
        wanted += (uint64_t)s->list[i].rows * s->list[i].cols * zf_state_type_bytes(s->list[i].type);
    char *folder = zf_path_directory(path), need[32], have[32];
    bool known = folder && !statvfs(folder, &disk);
    uint64_t room = known ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
    free(folder);
    if (wanted <= room) return ZF_OK;
    return zf_fail(e, ZF_IO, path, "about %s are needed, and %s are free there; make room, or lower `keep`",
                   zf_bytes_text(wanted, need, sizeof need), zf_bytes_text(room, have, sizeof have));
}

static enum zf_status write_file(struct zf_trainer *t, const char *path, struct zf_ckpt_counts *counts, struct zf_err *e)
{
    struct zf_state state;
    struct zf_pool *pool = NULL;
    struct zf_ckpt_writer *w = NULL;
    struct zf_save_buffer buffer = {0};
    struct zf_device_info device;
    t->device->type->info(t->device, &device);
    ZF_TRY(zf_state_open(&state, &t->pipeline, e));
    enum zf_status s = check_room(t, &state, path, e);
    if (!s) s = zf_pool_new(&pool, device.threads, e);
    struct zf_ckpt_options o = {.level = (int)t->o->compression_level, .pool = pool, .finite = true, .drop_pages = true, .counts = counts};
    if (!s) s = zf_ckpt_create(&w, path, &o, e);
    for (size_t i = 0; !s && i < state.count; i++) s = put_piece(t, &state, &state.list[i], w, &buffer, e);
    json_t *info = s ? NULL : info_of(t);
    if (!s && !info) s = zf_fail_memory(e, path);
    if (s)
        zf_ckpt_abandon(w), json_decref(info);
    else
        s = zf_ckpt_finish(w, info, e);
    free(buffer.bytes);
    zf_pool_free(pool);
    zf_state_close(&state);
    return s;
}

/* Where a checkpoint of this step goes; a name that a person gave has no path in it. */
static enum zf_status path_of(const struct zf_trainer *t, const char *run, const char *name, char **out, struct zf_err *e)
{
    char *folder = zf_path_join(run, "checkpoints");
    *out = NULL;
    if (name && (strchr(name, '/') || name[0] == '.' || strlen(name) > 200)) {
        free(folder);
        return zf_fail(e, ZF_USAGE, name, "a checkpoint's name has no / in it, does not begin with a dot and has at most 200 bytes");
    }
    enum zf_status s = folder ? zf_directory_make(folder, 0777, e) : zf_fail_memory(e, run);
    int n = s      ? 0
            : name ? asprintf(out, "%s/%s%s", folder, name, zf_saves_is_file(name) ? "" : ".zfc")
                   : asprintf(out, "%s/step-%08" PRIu64 ".zfc", folder, t->step);
    free(folder);
    if (n < 0) *out = NULL;
    return s ? s : *out ? ZF_OK : zf_fail_memory(e, run);
}

static enum zf_status record(struct zf_trainer *t, const char *path, const struct zf_ckpt_counts *c, double seconds, struct zf_err *e)
{
    char bytes[32];
    json_t *o = json_pack("{s:s s:I s:s s:I s:I s:f s:f}", "type", "checkpoint", "step", (json_int_t)t->step, "file", path, "bytes",
                          (json_int_t)c->stored, "raw_bytes", (json_int_t)c->raw, "stall_ms", 1e3 * seconds, "seconds", seconds);
    zf_metrics_write(t->metrics, json_incref(o));
    zf_plain_text(&t->plain, "step %" PRIu64 " saved to %s (%s, %.1f s)", t->step, path, zf_bytes_text(c->stored, bytes, sizeof bytes),
                  seconds);
    return zf_journal_append(t->journal, o, e);
}

enum zf_status zf_trainer_save(struct zf_trainer *t, const char *name, char **out, struct zf_err *e)
{
    double from = zf_clock();
    struct zf_ckpt_counts counts = {0};
    char *run = zf_trainer_place(t), *path = NULL;
    zf_session_doing(t->session, "saving");
    enum zf_status s = run ? path_of(t, run, name, &path, e) : zf_fail_memory(e, t->run);
    if (!s) s = write_file(t, path, &counts, e);
    if (!s) {
        t->save.at = zf_clock();
        t->save.moment = (struct zf_moment){t->step, t->drains};
        t->save.bytes = counts.stored;
        t->save.failed = 0;
        s = record(t, path, &counts, t->save.at - from, e);
        free(t->save.path);
        t->save.path = strdup(path);
        if (t->o->keep) zf_saves_keep(run, (size_t)t->o->keep);
        zf_eta_pause(&t->eta, t->save.at - from);
    }
    zf_session_doing(t->session, "training");
    if (out && !s)
        *out = path;
    else
        free(path);
    free(run);
    return s;
}

/* ---- when ---- */

bool zf_save_or_warn(struct zf_trainer *t)
{
    enum { FIRST = 8, LONGEST = 1024 }; /* steps until it is tried again */
    struct zf_err e;
    if (!zf_trainer_save(t, NULL, NULL, &e)) return true;
    uint64_t wait = t->save.failed ? (t->save.failed < LONGEST ? 2 * t->save.failed : LONGEST) : FIRST;
    t->save.failed = wait;
    t->save.again = t->step + wait;
    zf_record_text(t, "warning", "unsaved since step %" PRIu64 ": %s: %s; training goes on, and it is tried again after step %" PRIu64,
                   t->save.moment.drains ? t->save.moment.step : 0, e.where[0] ? e.where : "the state", e.message, t->save.again);
    return false;
}

void zf_save_due(struct zf_trainer *t)
{
    const struct zf_options *o = t->o;
    bool again = t->save.failed && t->step >= t->save.again,
         every = o->save_every && !t->save.failed && t->step % (uint64_t)o->save_every == 0,
         minutes = o->save_minutes > 0 && !t->save.failed && zf_clock() - t->save.at >= 60 * o->save_minutes;
    bool asked = t->save.heard != *t->usr1;
    t->save.heard = *t->usr1;
    if (again || every || minutes || asked) zf_save_or_warn(t);
}

void zf_save_asked(struct zf_trainer *t)
{
    if (t->save.heard == *t->usr1) return;
    t->save.heard = *t->usr1;
    zf_save_or_warn(t);
}
