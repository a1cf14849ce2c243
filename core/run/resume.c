/* See resume.h. */
#include "core/run/resume.h"
#include "core/base/file.h"
#include "core/config/run_cfg.h"
#include "core/run/checkpoint_model.h"
#include "core/run/save_file.h"
#include "core/run/saves.h"
#include "core/run/trainer.h"
#include "core/session/change.h"
#include "core/session/rundir.h"
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

/* The same option by several accounts: asked for now, and at the last start; as that start began, and when the checkpoint was written. */
enum account { ASKED, THEN, RAN, SAVED, ACCOUNTS };

struct merge {
    struct zf_options *of[ACCOUNTS]; /* that of ASKED becomes what the run goes on with */
    struct zf_options next;          /* what it will be when the edits have been made */
    json_t *names;                   /* of options that were edited and count from the next step on */
    json_t *changes;                 /* zf_resume's */
    uint64_t first;                  /* that step */
    FILE *edits, *refused;
    size_t edited, refusals;
};

/* What was edited since the last start is what differs from what was asked for then, and from what that start made of it: RUN/run.cfg may
 * be the file that is given now. */
static enum zf_status merge_text(struct merge *m, enum zf_option_id id, char *const text[ACCOUNTS], struct zf_err *e)
{
    const struct zf_option *row = &zf_option_table[id];
    const char *asked = text[ASKED];
    const json_int_t first = (json_int_t)m->first;
    bool live = row->when != ZF_WHEN_RESTART, place = id == ZF_OPT_dir || id == ZF_OPT_resume, may = zf_option_free_to_change(id);
    bool edited = !place && strcmp(asked, text[THEN]) != 0 && strcmp(asked, text[RAN]) != 0 && !was_settled(m->of[ASKED], id);
    const char *goes_on = may ? text[RAN] : text[SAVED]; /* a start alone changes it, and the last one may have */
    if (place || (edited && !live && may)) goes_on = asked;
    if (edited && live) {
        json_array_append_new(m->names, json_string(row->name));
        if (strcmp(asked, goes_on)) {
            char *word = zf_command_join(&asked, 1);
            fprintf(m->edits, " %s %s", row->name, word ? word : asked);
            json_array_append_new(m->changes,
                                  json_pack("{ss ss ss sI}", "option", row->name, "old", goes_on, "new", asked, "from_step", first));
            m->edited++;
            free(word);
        }
    } else if (edited && may) {
        json_array_append_new(m->changes, json_pack("{ss ss ss}", "option", row->name, "old", text[RAN], "new", asked));
    } else if (edited && strcmp(asked, goes_on)) {
        fprintf(m->refused, "%s%s %s -> %s", m->refusals++ ? ", " : "", row->name, goes_on, asked);
    }
    if (!strcmp(asked, goes_on)) return ZF_OK;
    if (!edited) ZF_TRY(zf_options_set(&m->next, row->name, goes_on, &m->of[SAVED]->origin[id], e));
    return zf_options_set(m->of[ASKED], row->name, goes_on, &m->of[SAVED]->origin[id], e);
}

static enum zf_status merge_one(struct merge *m, enum zf_option_id id, struct zf_err *e)
{
    char *text[ACCOUNTS];
    bool all = true;
    for (int i = 0; i < ACCOUNTS; i++) all &= (text[i] = zf_options_get_text(m->of[i], id)) != NULL;
    enum zf_status s = all ? merge_text(m, id, text, e) : zf_fail_memory(e, "the options");
    for (int i = 0; i < ACCOUNTS; i++) free(text[i]);
    return s;
}

/* Of the checkpoint. */
static enum zf_status text_of_file(const struct zf_resume *r, const char **text, struct zf_err *e)
{
    if ((*text = zf_json_text(r->file.info, "run_cfg", NULL))) return ZF_OK;
    return zf_fail(e, ZF_FORMAT, r->path, "it does not say under which options it was written (`run_cfg`); another checkpoint is needed");
}

static enum zf_status merge_all(struct zf_resume *r, struct merge *m, const char *run, struct zf_err *e)
{
    char *refused = NULL, *edits = NULL;
    size_t size;
    enum zf_status s = ZF_OK;
    m->edits = open_memstream(&edits, &size);
    m->refused = open_memstream(&refused, &size);
    m->names = json_array();
    m->changes = json_array();
    if (!m->edits || !m->refused || !m->names || !m->changes) s = zf_fail_memory(e, "the options");
    for (int i = 0; !s && i < ZF_OPTIONS; i++) s = merge_one(m, (enum zf_option_id)i, e);
    if (m->edits) fclose(m->edits);
    if (m->refused) fclose(m->refused);
    if (!s && m->refusals)
        s = zf_fail(
            e, ZF_DIFFERENT, run,
            "%s: that is part of what the run is, and cannot change while it goes on; take it back, or begin another run with --set "
            "dir=NAME",
            refused);
    if (!s && m->edited && asprintf(&r->edits, "set!%s", edits) < 0) {
        r->edits = NULL;
        s = zf_fail_memory(e, "the options");
    }
    r->edited = m->names;
    r->changes = m->changes;
    if (!s && !(r->run_cfg = zf_options_text(&m->next))) s = zf_fail_memory(e, "the options");
    free(edits);
    free(refused);
    return s;
}

static enum zf_status merge_options(struct zf_resume *r, struct zf_options *o, const char *run, struct zf_err *e)
{
    char *start = zf_path_join(run, "run.cfg");
    const char *text = NULL;
    struct zf_options then, ran, saved;
    struct merge m = {.of = {o, &then, &ran, &saved}, .first = r->step + 1};
    enum zf_status s = start ? ZF_OK : zf_fail_memory(e, run);
    if (!s && !r->anew) s = text_of_file(r, &text, e);
    if (r->anew) text = zf_json_text(json_array_get(r->entries, 0), "run_cfg", NULL); /* never_saved has seen it */
    int read = 0;
    /* runs of versions that did not keep what was asked for: RUN/run.cfg */
    const char *const texts[] = {zf_json_text(r->start, "asked", NULL), zf_json_text(r->start, "run_cfg", NULL), text};
    const char *const names[] = {start, start, r->anew ? start : r->path};
    for (int i = THEN; !s && i < ACCOUNTS; i++) {
        s = zf_run_cfg_options(m.of[i], texts[i - 1], names[i - 1], e);
        read += !s;
    }
    free(start);
    if (!s && !(s = zf_options_copy(&m.next, o, e))) {
        s = merge_all(r, &m, run, e);
        zf_options_free(&m.next);
    }
    for (int i = THEN; i < THEN + read; i++) zf_options_free(m.of[i]);
    return s;
}

enum zf_status zf_resume_options(const struct zf_resume *r, struct zf_options *out, struct zf_err *e)
{
    return zf_run_cfg_options(out, r->run_cfg, "run.cfg", e);
}

/* One option of those of now becomes what it was when the checkpoint was written. */
static enum zf_status as_it_was(struct zf_options *wanted, const struct zf_options *then, enum zf_option_id id, FILE *refused,
                                size_t *count, struct zf_err *e)
{
    const struct zf_option *row = &zf_option_table[id];
    const struct zf_origin by_command = {.kind = ZF_ORIGIN_COMMAND};
    bool live = row->when != ZF_WHEN_RESTART || (id == ZF_OPT_epochs && !then->steps);
    char *was = zf_options_get_text(then, id), *is = zf_options_get_text(wanted, id);
    enum zf_status s = was && is ? ZF_OK : zf_fail_memory(e, "the options");
    if (!s && strcmp(was, is)) {
        if (live)
            s = zf_options_set(wanted, row->name, was, &by_command, e);
        else if (!zf_option_free_to_change(id))
            fprintf(refused, "%s%s %s there, %s here", (*count)++ ? ", " : "", row->name, was, is);
    }
    free(was);
    free(is);
    return s;
}

static enum zf_status options_then(const struct zf_resume *r, struct zf_options *wanted, const struct zf_options *now, struct zf_err *e)
{
    struct zf_options then;
    const char *text;
    char *refused = NULL;
    size_t size, count = 0;
    ZF_TRY(text_of_file(r, &text, e));
    ZF_TRY(zf_run_cfg_options(&then, text, r->path, e));
    enum zf_status s = zf_options_copy(wanted, now, e);
    bool copied = !s;
    FILE *to = open_memstream(&refused, &size);
    if (!s && !to) s = zf_fail_memory(e, "the options");
    for (int i = 0; !s && i < ZF_OPTIONS; i++) s = as_it_was(wanted, &then, (enum zf_option_id)i, to, &count, e);
    if (to) fclose(to);
    if (!s && count)
        s = zf_fail(e, ZF_DIFFERENT, r->path, "%s: that is part of what the run is, so it is no checkpoint of this one", refused);
    if (s && copied) zf_options_free(wanted);
    zf_options_free(&then);
    free(refused);
    return s;
}

/* ---- which checkpoint ---- */

static enum zf_status open_named(struct zf_resume *r, const char *from, struct zf_pool *pool, struct zf_err *e)
{
    ZF_TRY(zf_ckpt_open(&r->file, from, e));
    enum zf_status s = zf_saves_is_weights(r->file.info)
                           ? zf_fail(e, ZF_DIFFERENT, from,
                                     "it has its weights only, as keep_weights asks for, and nothing to go on from; take another one, or "
                                     "export it and begin a run with --set path=EXPORT --set dir=NAME")
                           : zf_ckpt_verify(&r->file, pool, NULL, e);
    char *real = s ? NULL : realpath(from, NULL); /* the journal names it for starts from wherever they are made */
    if (!s && !(r->path = real ? real : strdup(from))) s = zf_fail_memory(e, from);
    if (s) zf_ckpt_close(&r->file);
    return s;
}

static enum zf_status choose(struct zf_resume *r, const char *run, const char *from, int64_t threads, struct zf_err *e)
{
    struct zf_pool *pool = zf_pool_to_read(threads);
    enum zf_status s = from ? open_named(r, from, pool, e) : zf_saves_newest(&r->file, &r->path, run, NULL, false, pool, e);
    zf_pool_free(pool);
    return s;
}

/* It is of this run, and of which step. */
static enum zf_status check_run(struct zf_resume *r, const struct zf_run_facts *f, const char *run, struct zf_err *e)
{
    const char *of = zf_json_text(r->file.info, "run", f->run);
    double step = zf_json_number(r->file.info, "step", r->anew ? 0 : -1);
    if (strcmp(of, f->run) != 0)
        return zf_fail(e, ZF_DIFFERENT, r->path,
                       "it is a checkpoint of another run than the one in %s; to train on from its weights export it, and begin a run with "
                       "--set path=EXPORT --set dir=NAME",
                       run);
    if (!(step >= 0 && step < 9e15))
        return zf_fail(e, ZF_FORMAT, r->path, "it does not say of which step it is; another checkpoint is needed");
    r->step = (uint64_t)step;
    return ZF_OK;
}

/* The journal as it counts where it has `end` entries: what a `load` went back on has not happened, nor has that command. */
static void forget(json_t *entries, size_t end)
{
    for (size_t i = json_array_size(entries); i--;) {
        const json_t *v = json_array_get(entries, i);
        bool load = i < end && zf_journal_is_load(v);
        double before = zf_json_number(v, "journal", (double)i);
        if (i < end && !load) continue;
        if (load) end = before >= 0 && before < (double)i ? (size_t)before : i;
        json_array_set_new(entries, i, json_null());
    }
}

/* Attempts so far, the newest start, where the checkpoint stands among what was written. */
static void look_back(struct zf_resume *r)
{
    r->attempt = 1;
    for (size_t i = 0; i < json_array_size(r->entries); i++) {
        json_t *v = json_array_get(r->entries, i);
        if (zf_journal_is_load(v) || !(zf_json_is(v, "start") || zf_json_is(v, "resume"))) continue;
        r->attempt++;
        if (!zf_json_text(v, "run_cfg", NULL)) continue;
        json_decref(r->start);
        r->start = json_incref(v);
    }
    r->written = r->path ? zf_saves_written(r->entries, r->path, r->file.info) : json_array_size(r->entries);
    r->metrics = zf_json_count(r->file.info, "metrics");
}

/* What its data was: by the checkpoint, or else by the newest start, which is all that a run without one has. */
static void remember_content(struct zf_resume *r)
{
    json_t *saved = json_object_get(r->file.info, "content");
    r->content = json_incref(saved ? saved : json_object_get(r->start, "content"));
}

/* How far the run has come, on the way that counts. */
static uint64_t reached(const struct zf_resume *r, uint64_t last_step)
{
    for (size_t i = 0; i < json_array_size(r->entries); i++) {
        const json_t *v = json_array_get(r->entries, i);
        double step = fmax(fmax(zf_json_number(v, "step", 0), zf_json_number(v, "reached", 0)), zf_json_number(v, "from_step", 1) - 1);
        if (step < 9e15 && step > (double)last_step && !zf_json_is(v, "at")) last_step = (uint64_t)step;
    }
    return last_step;
}

/* It died before its first checkpoint: nothing is lost by beginning again but these steps. */
static bool never_saved(const struct zf_resume *r, const char *run)
{
    char *there = zf_saves_list(run);
    bool none = there && !*there && zf_json_text(json_array_get(r->entries, 0), "run_cfg", NULL);
    for (size_t i = 0; none && i < json_array_size(r->entries); i++) none = !zf_json_is(json_array_get(r->entries, i), "checkpoint");
    free(there);
    return none;
}

enum zf_status zf_resume_open(struct zf_resume *r, struct zf_options *o, const char *run, const char *from, struct zf_err *e)
{
    struct zf_run_facts f;
    *r = (struct zf_resume){0};
    ZF_TRY(zf_rundir_look(&f, run, NULL, e));
    ZF_TRY(choose(r, run, from, o->threads, e));
    enum zf_status s = zf_journal_read(&r->entries, run, NULL, e);
    if (!s) r->anew = !r->path && never_saved(r, run);
    if (!s && !r->path && !r->anew) return zf_resume_close(r), ZF_OK;
    if (!s) s = check_run(r, &f, run, e);
    if (!s) {
        look_back(r);
        remember_content(r);
        forget(r->entries, json_array_size(r->entries));
        r->last_step = reached(r, f.last_step);
        s = merge_options(r, o, run, e);
    }
    if (s) zf_resume_close(r);
    return s;
}

enum zf_status zf_resume_load(struct zf_resume *r, struct zf_options *wanted, const struct zf_options *now, const char *run,
                              const char *path, struct zf_err *e)
{
    struct zf_run_facts f;
    *r = (struct zf_resume){0};
    ZF_TRY(zf_rundir_look(&f, run, NULL, e));
    ZF_TRY(choose(r, run, path, now->threads, e));
    enum zf_status s = zf_journal_read(&r->entries, run, NULL, e);
    if (!s) s = check_run(r, &f, run, e);
    if (!s) s = options_then(r, wanted, now, e);
    if (!s) {
        look_back(r);
        forget(r->entries, r->written);
        r->attempt--; /* it is the same */
        r->last_step = r->step;
    }
    if (s) zf_resume_close(r);
    return s;
}

void zf_resume_close(struct zf_resume *r)
{
    if (r->path) zf_ckpt_close(&r->file);
    json_decref(r->entries);
    json_decref(r->start);
    json_decref(r->edited);
    json_decref(r->changes);
    json_decref(r->content);
    free(r->run_cfg);
    free(r->path);
    free(r->edits);
    *r = (struct zf_resume){0};
}

/* ---- state ---- */

enum zf_status zf_resume_counters(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e)
{
    const json_t *o = json_object_get(r->file.info, "trainer"), *best = json_object_get(o, "best");
    t->step = r->step;
    t->skipped = zf_json_count(o, "skipped");
    t->in_row = zf_json_count(o, "in_row");
    t->clipped = zf_json_count(o, "clipped");
    t->drains = zf_json_count(o, "drains");
    t->owed = json_is_true(json_object_get(o, "owed"));
    t->told_zero_loss = json_is_true(json_object_get(o, "told_zero_loss"));
    if (!t->drains) t->drains = 1;
    t->started -= fmax(0, fmin(1e9, zf_json_number(o, "seconds", 0)));
    if (best) {
        const char *path = zf_json_text(best, "path", NULL);
        t->best.any = true;
        t->best.loss = zf_json_number(best, "loss", (double)INFINITY);
        t->best.step = zf_json_count(best, "step");
        t->best.worse = zf_json_count(best, "worse");
        t->best.kept = zf_json_count(best, "kept");
        if (path && !(t->best.path = strdup(path))) return zf_fail_memory(e, path);
    }
    t->save.moment = (struct zf_moment){t->step, t->drains};
    if (json_is_true(json_object_get(o, "judged"))) t->judged_at = t->save.moment;
    t->save.bytes = r->file.size;
    zf_pace_resume(t, zf_saved_interval(&r->file, t->o), r->entries, r->last_step);
    return ZF_OK;
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

static bool names(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(zf_option_table[zf_option_id(zf_option_find(name))].name, json_string_value(json_array_get(list, i)))) return true;
    return false;
}

/* Was the option edited in run.cfg after entry `i` was written? That wins. */
static bool was_edited(const struct zf_resume *r, size_t i, const char *name)
{
    if (!zf_option_find(name)) return false;
    while (++i < json_array_size(r->entries))
        if (names(json_object_get(json_array_get(r->entries, i), "edited"), name)) return true;
    return names(r->edited, name);
}

/* What is left of a command that was done. To be freed; NULL: nothing. */
static char *without_edited(const struct zf_resume *r, size_t i, const char *command)
{
    struct zf_command c;
    struct zf_err ignored;
    const char *words[ZF_COMMAND_WORDS + 1] = {"set!"};
    size_t n = 1;
    char *left = NULL;
    bool pairs = !zf_command_parse(&c, command, &ignored) && c.row->arguments == ZF_ARGS_PAIRS;
    for (size_t k = 0; pairs && k + 1 < c.count; k += 2)
        if (!was_edited(r, i, c.word[k])) {
            words[n++] = c.word[k];
            words[n++] = c.word[k + 1];
        }
    if (!pairs || n == c.count + 1)
        left = strdup(command);
    else if (n > 1)
        left = zf_command_join(words, n);
    zf_command_free(&c);
    return left;
}

static enum zf_status repeat_one(const struct zf_resume *r, size_t i, struct zf_trainer *t, struct zf_err *e)
{
    const json_t *v = json_array_get(r->entries, i);
    const char *command = zf_json_text(v, "command", ""), *by = zf_json_text(v, "by", ""), *user = zf_json_text(v, "user", ""),
               *edits = zf_json_text(v, "edits", NULL);
    static const char *const elsewhere[] = {"at", "auto", "file"}; /* done again by [at] and what was put off, zf_pace, the starts */
    uint64_t from = edits ? zf_json_count(v, "step") + 1 : zf_json_count(v, "from_step");
    bool put_off = zf_json_is(v, "at"), done = zf_json_is(v, "change") || zf_json_is(v, "command");
    for (size_t k = 0; done && k < sizeof elsewhere / sizeof *elsewhere; k++) done = strcmp(by, elsewhere[k]) != 0;
    if (from <= r->step || (!put_off && !edits && !(done && is_repeated(command)))) return ZF_OK;
    if (from == r->step + 1 && i < r->written && zf_session_has_begun(t->session)) return ZF_OK;
    /* what was put off and not yet done is no change that was made: it stays */
    char *left = put_off && from > r->last_step ? strdup(command) : without_edited(r, i, edits ? edits : command);
    if (!left) return ZF_OK;
    /* what is put off or edited is written down when it is done; the rest stands in the journal already */
    enum zf_status s = zf_session_repeat(t->session, from, left, edits ? "file" : by, user, !put_off && !edits, e);
    free(left);
    return s;
}

enum zf_status zf_resume_commands(const struct zf_resume *r, struct zf_trainer *t, struct zf_err *e)
{
    const char *user = getenv("USER");
    ZF_TRY(zf_session_restore(t->session, json_object_get(r->file.info, "session"), r->step, e));
    for (size_t i = 0; i < json_array_size(r->entries); i++) ZF_TRY(repeat_one(r, i, t, e));
    return r->edits ? zf_session_repeat(t->session, r->step + 1, r->edits, "file", user ? user : "", false, e) : ZF_OK;
}

json_t *zf_resume_entry(const struct zf_resume *r, const struct zf_trainer *t)
{
    const char *user = getenv("USER");
    json_t *o = json_pack("{ss sI ss* sI sI sI sO*}", "type", "resume", "step", (json_int_t)t->step, "checkpoint", r->path, "attempt",
                          (json_int_t)r->attempt, "steps", (json_int_t)t->setup->steps, "reached", (json_int_t)r->last_step, "edited",
                          json_array_size(r->edited) ? r->edited : NULL);
    if (o && r->edits) json_object_update_new(o, json_pack("{ss ss}", "edits", r->edits, "user", user ? user : ""));
    return o;
}

void zf_resume_machine(const struct zf_resume *r, struct zf_trainer *t)
{
    const json_t *m = json_object_get(r->file.info, "machine");
    struct zf_device_info now;
    t->device->type->info(t->device, &now);
    const char *isa = zf_json_text(m, "instructions", ""), *products = zf_json_text(m, "products", "");
    if (strcmp(isa, now.isa) || strcmp(products, now.products))
        zf_record_text(t, "note",
                       "it was written with %s, %s; here it is %s, %s: the run continues, not bit-identical to one that was never stopped",
                       isa, products, now.isa, now.products);
}

void zf_resume_tell(const struct zf_resume *r, struct zf_trainer *t)
{
    if (r->anew) {
        zf_record_text(t, "note", "it has no checkpoint yet, and begins again; what was changed by hand is done again");
        return;
    }
    zf_record_text(t, "note", "goes on from %s, step %" PRIu64 "%s", r->path, r->step,
                   r->last_step > r->step ? "; the steps after it are taken again" : "");
    zf_resume_machine(r, t);
}
