/* See resume.h. */
#include "core/run/resume.h"
#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/config/run_cfg.h"
#include "core/pipeline/state.h"
#include "core/run/saves.h"
#include "core/run/trainer.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* `auto` was settled at the first start: asking for it again is no change. */
static bool was_settled(const struct zf_options *o, enum zf_option_id id)
{
    return (id == ZF_OPT_strategy && o->strategy == ZF_STRATEGY_AUTO) || (id == ZF_OPT_device && o->device == ZF_DEVICE_AUTO) ||
           (id == ZF_OPT_dtype && o->dtype == ZF_DTYPE_AUTO) || (id == ZF_OPT_bus_dtype && o->bus_dtype == ZF_BUS_DTYPE_AUTO) ||
           (id == ZF_OPT_schedule_steps && !o->schedule_steps);
}

struct merge {
    struct zf_options *asked, then, saved; /* now; at the last start; when the checkpoint was written */
    FILE *edits, *refused;
    size_t edited, refusals;
};

static enum zf_status merge_one(struct merge *m, enum zf_option_id id, struct zf_err *e)
{
    const struct zf_option *row = &zf_option_table[id];
    char *asked = zf_options_get_text(m->asked, id), *then = zf_options_get_text(&m->then, id), *saved = zf_options_get_text(&m->saved, id);
    enum zf_status s = asked && then && saved ? ZF_OK : zf_fail_memory(e, "the options");
    bool edited = !s && strcmp(asked, then) != 0 && !was_settled(m->asked, id);
    bool live = row->when != ZF_WHEN_RESTART;
    if (!s && edited && live && strcmp(asked, saved)) {
        char *word = zf_command_join((const char *const[]){asked}, 1);
        fprintf(m->edits, " %s %s", row->name, word ? word : asked);
        m->edited++;
        free(word);
    } else if (!s && edited && !live && zf_option_free_to_change(id)) {
        if (id != ZF_OPT_dir && id != ZF_OPT_resume)
            fprintf(stderr, "zenflow-console: note: %s %s -> %s, as run.cfg says now\n", row->name, then, asked);
    } else if (!s && edited && !live) {
        fprintf(m->refused, "%s%s %s -> %s", m->refusals++ ? ", " : "", row->name, then, asked);
    }
    if (!s && (!edited || live) && id != ZF_OPT_dir && id != ZF_OPT_resume && strcmp(asked, saved))
        s = zf_options_set(m->asked, row->name, saved, &m->saved.origin[id], e);
    free(asked);
    free(then);
    free(saved);
    return s;
}

static enum zf_status read_options(struct zf_options *o, const char *text, const char *path, struct zf_err *e)
{
    struct zf_err_list errors = {0};
    ZF_TRY(zf_options_init(o, e));
    enum zf_status s = text ? zf_run_cfg_read_memory(o, text, strlen(text), path, NULL, &errors) : zf_run_cfg_read(o, path, &errors);
    if (s) *e = errors.list[0];
    if (s) zf_options_free(o);
    zf_err_list_free(&errors);
    return s;
}

static enum zf_status merge_options(struct zf_resume *r, struct zf_options *o, const char *run, struct zf_err *e)
{
    char *start = zf_path_join(run, "run.cfg"), *refused = NULL, *edits = NULL;
    const char *text = zf_json_text(r->file.info, "run_cfg", NULL);
    size_t size;
    struct merge m = {.asked = o};
    if (!text) {
        free(start);
        return zf_fail(e, ZF_FORMAT, r->path,
                       "it does not say under which options it was written (`run_cfg`); another checkpoint is needed");
    }
    enum zf_status s = start ? read_options(&m.then, NULL, start, e) : zf_fail_memory(e, run);
    if (!s && (s = read_options(&m.saved, text, r->path, e))) zf_options_free(&m.then);
    free(start);
    ZF_TRY(s);
    m.edits = open_memstream(&edits, &size);
    m.refused = open_memstream(&refused, &size);
    if (!m.edits || !m.refused) s = zf_fail_memory(e, "the options");
    for (int i = 0; !s && i < ZF_OPTIONS; i++) s = merge_one(&m, (enum zf_option_id)i, e);
    if (m.edits) fclose(m.edits);
    if (m.refused) fclose(m.refused);
    if (!s && m.refusals)
        s = zf_fail(
            e, ZF_DIFFERENT, run,
            "%s: that is part of what the run is, and cannot change while it goes on; take it back, or begin another run with --set "
            "dir=NAME",
            refused);
    if (!s && m.edited && asprintf(&r->edits, "set!%s", edits) < 0) {
        r->edits = NULL;
        s = zf_fail_memory(e, "the options");
    }
    free(edits);
    free(refused);
    zf_options_free(&m.then);
    zf_options_free(&m.saved);
    return s;
}

/* ---- which checkpoint ---- */

static enum zf_status choose(struct zf_resume *r, const char *run, const char *from, struct zf_err *e)
{
    if (!from) return zf_saves_newest(&r->file, &r->path, run, zf_saves_warn, NULL, e);
    ZF_TRY(zf_ckpt_open(&r->file, from, e));
    enum zf_status s = zf_ckpt_verify(&r->file, NULL, NULL, e);
    if (!s && !(r->path = strdup(from))) s = zf_fail_memory(e, from);
    if (s) zf_ckpt_close(&r->file);
    return s;
}

/* Attempts so far, and how far they came. */
static void look_back(struct zf_resume *r)
{
    r->attempt = 1;
    for (size_t i = 0; i < json_array_size(r->entries); i++) {
        const json_t *v = json_array_get(r->entries, i);
        const char *type = zf_json_text(v, "type", "");
        double step = fmax(zf_json_number(v, "step", 0), zf_json_number(v, "from_step", 1) - 1);
        r->attempt += !strcmp(type, "start") || !strcmp(type, "resume");
        if (step < 9e15 && (uint64_t)step > r->last_step && strcmp(type, "at") != 0) r->last_step = (uint64_t)step;
    }
}

enum zf_status zf_resume_open(struct zf_resume *r, struct zf_options *o, const char *run, const char *from, struct zf_err *e)
{
    *r = (struct zf_resume){0};
    ZF_TRY(choose(r, run, from, e));
    if (!r->path) return ZF_OK;
    double step = zf_json_number(r->file.info, "step", -1);
    enum zf_status s = zf_journal_read(&r->entries, run, NULL, e);
    if (!s && (step < 0 || step > 9e15))
        s = zf_fail(e, ZF_FORMAT, r->path, "it does not say of which step it is; another checkpoint is needed");
    if (!s) {
        r->step = (uint64_t)step;
        look_back(r);
        s = merge_options(r, o, run, e);
    }
    if (s) zf_resume_close(r);
    return s;
}

void zf_resume_close(struct zf_resume *r)
{
    if (r->path) zf_ckpt_close(&r->file);
    json_decref(r->entries);
    free(r->path);
    free(r->edits);
    *r = (struct zf_resume){0};
}

/* ---- state ---- */

static uint64_t count_of(const json_t *o, const char *name)
{
    double x = zf_json_number(o, name, 0);
    return x >= 1 && x < 9e15 ? (uint64_t)x : 0;
}

enum zf_status zf_resume_counters(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e)
{
    const json_t *o = json_object_get(r->file.info, "trainer"), *best = json_object_get(o, "best");
    t->step = r->step;
    t->skipped = count_of(o, "skipped");
    t->in_row = count_of(o, "in_row");
    t->clipped = count_of(o, "clipped");
    t->drains = count_of(o, "drains");
    t->owed = json_is_true(json_object_get(o, "owed"));
    t->told_zero_loss = json_is_true(json_object_get(o, "told_zero_loss"));
    if (!t->drains) t->drains = 1;
    t->started -= fmax(0, fmin(1e9, zf_json_number(o, "seconds", 0)));
    if (best) {
        const char *path = zf_json_text(best, "path", NULL);
        t->best.any = true;
        t->best.loss = zf_json_number(best, "loss", (double)INFINITY);
        t->best.step = count_of(best, "step");
        t->best.worse = count_of(best, "worse");
        t->best.kept = count_of(best, "kept");
        if (path && !(t->best.path = strdup(path))) return zf_fail_memory(e, path);
    }
    t->save.moment = (struct zf_moment){t->step, t->drains};
    zf_pace_resume(t, (uint32_t)count_of(o, "update_interval"), r->entries, r->last_step);
    return ZF_OK;
}

/* Which type of the file a piece is of. */
static bool same_type(enum zf_state_type a, enum zf_ckpt_type b)
{
    static const enum zf_ckpt_type types[] = {[ZF_STATE_F32] = ZF_CKPT_F32,
                                              [ZF_STATE_BF16] = ZF_CKPT_BF16,
                                              [ZF_STATE_U32] = ZF_CKPT_U32,
                                              [ZF_STATE_I16] = ZF_CKPT_I16,
                                              [ZF_STATE_I32] = ZF_CKPT_I32};
    return types[a] == b;
}

static enum zf_status get_piece(const struct zf_resume *r, struct zf_state *s, const struct zf_state_piece *x, struct zf_pool *pool,
                                void **buffer, size_t *room, struct zf_err *e)
{
    enum { BUFFER = 4 << 20 };
    const struct zf_ckpt_tensor *t = zf_ckpt_find(&r->file, x->name);
    size_t row = x->cols * zf_state_type_bytes(x->type), some = row < BUFFER ? BUFFER / row : 1;
    if (!t) return zf_fail(e, ZF_FORMAT, r->path, "%s is missing; the checkpoint is not of this run", x->name);
    if (t->rank != 2 || t->shape[0] != x->rows || t->shape[1] != x->cols || !same_type(x->type, t->type))
        return zf_fail(e, ZF_FORMAT, r->path, "%s has another shape or type than this run's, which is [%zu, %zu]", x->name, x->rows,
                       x->cols);
    if (some * row > *room) {
        void *grown = realloc(*buffer, *room = some * row);
        if (!grown) return zf_fail_memory(e, "a checkpoint");
        *buffer = grown;
    }
    for (size_t first = 0; first < x->rows; first += some) {
        size_t n = x->rows - first < some ? x->rows - first : some;
        ZF_TRY(zf_ckpt_read(&r->file, t, *buffer, first * row, n * row, pool, e));
        ZF_TRY(zf_state_write(s, x, first, n, *buffer, e));
    }
    return ZF_OK;
}

enum zf_status zf_resume_state(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e)
{
    struct zf_state state;
    struct zf_pool *pool = NULL;
    struct zf_device_info device;
    void *buffer = NULL;
    size_t room = 0;
    t->device->type->info(t->device, &device);
    enum zf_status s = zf_state_shape(&t->pipeline, json_object_get(r->file.info, "pipeline"), e);
    if (s && s == ZF_FORMAT) {
        char what[512];
        snprintf(what, sizeof what, "%.200s: %.300s", e->where, e->message);
        return zf_fail(e, s, r->path, "%s", what);
    }
    ZF_TRY(s);
    ZF_TRY(zf_state_open(&state, &t->pipeline, e));
    s = zf_pool_new(&pool, device.threads, e);
    for (size_t i = 0; !s && i < state.count; i++) s = get_piece(r, &state, &state.list[i], pool, &buffer, &room, e);
    free(buffer);
    zf_pool_free(pool);
    zf_state_close(&state);
    return s ? s : zf_state_settled(&t->pipeline, e);
}

/* ---- what is to be done again ---- */

/* A change, or `select`: what else was done has had its effect. */
static bool is_repeated(const char *command)
{
    struct zf_command c;
    struct zf_err ignored;
    bool does = !zf_command_parse(&c, command, &ignored) && (c.row->effect == ZF_EFFECT_OPTIONS || c.id == ZF_CMD_select);
    zf_command_free(&c);
    return does;
}

enum zf_status zf_resume_commands(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e)
{
    const char *user = getenv("USER");
    for (size_t i = 0; i < json_array_size(r->entries); i++) {
        const json_t *v = json_array_get(r->entries, i);
        const char *type = zf_json_text(v, "type", ""), *command = zf_json_text(v, "command", ""), *by = zf_json_text(v, "by", "");
        uint64_t from = count_of(v, "from_step");
        bool put_off = !strcmp(type, "at"), done = !strcmp(type, "change") || !strcmp(type, "command");
        if (from <= r->step || (!put_off && (!done || !strcmp(by, "at") || !strcmp(by, "auto") || !is_repeated(command)))) continue;
        /* what is put off is written down when it is done; the rest stands in the journal already */
        ZF_TRY(zf_session_repeat(t->session, from, command, put_off ? "at" : by, zf_json_text(v, "user", ""), !put_off, e));
    }
    return r->edits ? zf_session_repeat(t->session, r->step + 1, r->edits, "file", user ? user : "", false, e) : ZF_OK;
}

void zf_resume_tell(const struct zf_resume *r, struct zf_trainer *t)
{
    const json_t *m = json_object_get(r->file.info, "machine");
    struct zf_device_info now;
    t->device->type->info(t->device, &now);
    const char *isa = zf_json_text(m, "instructions", ""), *products = zf_json_text(m, "products", "");
    zf_record_text(t, "note", "goes on from %s, step %" PRIu64 "%s", r->path, r->step,
                   r->last_step > r->step ? "; the steps after it are taken again" : "");
    if (strcmp(isa, now.isa) || strcmp(products, now.products))
        zf_record_text(t, "note",
                       "it was written with %s, %s; here it is %s, %s: the run continues, not bit-identical to one that was never stopped",
                       isa, products, now.isa, now.products);
}
