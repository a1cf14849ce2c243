/* `status` and `list`. */
#include "core/session/inspect_run.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/session/lock.h"
#include "core/session/rundir.h"
#include "core/telemetry/eta.h"
#include "core/telemetry/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct view {
    struct zf_run_facts facts;
    enum zf_lock_state lock;
    struct zf_lock_record holder;
    json_t *step, *valid; /* the newest lines of their kinds; NULL */
    const char *state;    /* "running", "paused", "died", or how it ended */
    char note[768];
};

/* *found false: no run there. */
static enum zf_status look(struct view *v, const char *run, bool *found, struct zf_err *e)
{
    *v = (struct view){.state = ""};
    *found = false;
    ZF_TRY(zf_rundir_look(&v->facts, run, NULL, e));
    v->lock = zf_lock_look(run, &v->holder);
    if (v->facts.state != ZF_RUNDIR_OURS && v->lock == ZF_LOCK_NONE) return ZF_OK;
    *found = true;
    char *metrics = zf_path_join(run, "metrics.jsonl");
    if (!metrics) return zf_fail_memory(e, run);
    v->step = zf_jsonl_last(metrics, "step");
    v->valid = zf_jsonl_last(metrics, "valid");
    free(metrics);
    if (v->lock == ZF_LOCK_LIVE) {
        v->state = v->holder.paused ? "paused" : "running";
        if (v->holder.paused)
            snprintf(v->note, sizeof v->note, "no step is taken until somebody says so: zenflow-console send %s resume", run);
        return ZF_OK;
    }
    v->state = v->facts.ended[0] ? v->facts.ended : "died";
    if (!v->facts.ended[0] && v->lock == ZF_LOCK_DEAD)
        zf_lock_explain(&v->holder, v->facts.last_step, v->note, sizeof v->note);
    else if (!v->facts.ended[0])
        snprintf(v->note, sizeof v->note, "the trainer ended without a clean stop at step %llu", (unsigned long long)v->facts.last_step);
    size_t used = strlen(v->note);
    if (!v->facts.finished && v->facts.last_checkpoint[0])
        snprintf(v->note + used, sizeof v->note - used, "%sthe same run.cfg goes on from its newest checkpoint", used ? "; " : "");
    return ZF_OK;
}

static void forget(struct view *v)
{
    json_decref(v->step);
    json_decref(v->valid);
}

static bool put(json_t *to, const char *key, json_t *value)
{
    return json_object_set_new(to, key, value) == 0;
}

static json_t *text_or_null(const char *s)
{
    json_t *v = s && *s ? json_string(s) : NULL;
    return v ? v : json_null();
}

/* A field of a metrics line as it stands there, null if absent. */
static json_t *field_or_null(const json_t *line, const char *key)
{
    json_t *v = json_object_get(line, key);
    return v ? json_incref(v) : json_null();
}

static json_t *view_json(const struct view *v, const char *run)
{
    static const char *const fields[] = {"loss", "grad_norm", "learning_rate", "tokens_per_s", "epoch", "skipped"};
    const struct zf_run_facts *f = &v->facts;
    bool alive = v->lock == ZF_LOCK_LIVE;
    json_t *o = json_object();
    bool ok = put(o, "run", text_or_null(run)) && put(o, "id", text_or_null(f->run)) && put(o, "alive", json_boolean(alive)) &&
              put(o, "state", text_or_null(v->state)) && put(o, "step", json_integer((json_int_t)f->last_step)) &&
              put(o, "steps", f->steps ? json_integer((json_int_t)f->steps) : json_null()) &&
              put(o, "attempts", json_integer((json_int_t)f->attempts));
    for (size_t i = 0; ok && i < sizeof fields / sizeof *fields; i++) ok = put(o, fields[i], field_or_null(v->step, fields[i]));
    ok = ok && put(o, "valid_loss", field_or_null(v->valid, "loss")) &&
         (!json_object_get(v->valid, "accuracy") || put(o, "accuracy", field_or_null(v->valid, "accuracy"))) &&
         put(o, "last_checkpoint", text_or_null(f->last_checkpoint)) && put(o, "last_export", text_or_null(f->last_export)) &&
         put(o, "ended", text_or_null(f->ended)) && put(o, "finished", json_boolean(f->finished)) &&
         put(o, "last_time", text_or_null(f->last_time)) && put(o, "host", alive ? text_or_null(v->holder.host) : json_null()) &&
         put(o, "pid", alive ? json_integer(v->holder.pid) : json_null()) &&
         put(o, "job", alive ? text_or_null(v->holder.job) : json_null()) && put(o, "note", text_or_null(v->note));
    if (ok) return o;
    json_decref(o);
    return NULL;
}

static enum zf_status put_json(FILE *to, const json_t *v, struct zf_err *e)
{
    size_t n;
    char *s = v ? zf_jsonl_text(v, &n) : NULL;
    if (!s) return zf_fail_memory(e, "the answer");
    fputs(s, to);
    free(s);
    return ZF_OK;
}

static void put_number(FILE *to, const char *name, const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    if (json_is_number(v))
        fprintf(to, "  %-14s %.6g\n", name, json_number_value(v));
    else if (json_is_string(v))
        zf_show_line(to, "  %-14s %s", name, json_string_value(v));
}

static void put_text(FILE *to, const struct view *v, const char *run)
{
    const struct zf_run_facts *f = &v->facts;
    char age[32];
    zf_show_line(to, "%s", run);
    if (v->lock == ZF_LOCK_LIVE && v->holder.pid)
        zf_show_line(to, "  %-14s %s: pid %lld on %s%s%s, for %s", "state", v->state, v->holder.pid, v->holder.host,
                     v->holder.job[0] ? ", job " : "", v->holder.job,
                     zf_duration_text(zf_wall_clock() - v->holder.started, age, sizeof age));
    else
        zf_show_line(to, "  %-14s %s", "state", v->state);
    fprintf(to, "  %-14s %llu", "step", (unsigned long long)f->last_step);
    if (f->steps) fprintf(to, " of %llu", (unsigned long long)f->steps);
    fputc('\n', to);
    put_number(to, "loss", v->step, "loss");
    put_number(to, "grad_norm", v->step, "grad_norm");
    put_number(to, "learning_rate", v->step, "learning_rate");
    put_number(to, "tokens_per_s", v->step, "tokens_per_s");
    put_number(to, "valid_loss", v->valid, "loss");
    put_number(to, "accuracy", v->valid, "accuracy");
    if (f->attempts > 1) fprintf(to, "  %-14s %llu\n", "attempts", (unsigned long long)f->attempts);
    if (f->last_checkpoint[0]) zf_show_line(to, "  %-14s %s", "last_save", f->last_checkpoint);
    if (f->last_export[0]) zf_show_line(to, "  %-14s %s", "last_export", f->last_export);
    if (f->last_time[0]) zf_show_line(to, "  %-14s %s", "last_entry", f->last_time);
    if (v->note[0]) zf_show_line(to, "  %-14s %s", "note", v->note);
}

enum zf_status zf_status_print(FILE *to, const char *run, bool json, struct zf_err *e)
{
    struct view v;
    bool found;
    enum zf_status s = look(&v, run, &found, e);
    if (!s && !found) s = zf_fail(e, ZF_USAGE, run, "there is no run here; a run directory or its run.cfg is expected (see `list`)");
    if (!s && json) {
        json_t *o = view_json(&v, run);
        s = put_json(to, o, e);
        json_decref(o);
    } else if (!s) {
        put_text(to, &v, run);
    }
    forget(&v);
    return s;
}

static int visible(const struct dirent *item)
{
    return item->d_name[0] != '.';
}

static void put_list_row(FILE *to, const struct view *v, const char *name)
{
    char of[32] = "", loss[32] = "-";
    if (v->facts.steps) snprintf(of, sizeof of, "/%llu", (unsigned long long)v->facts.steps);
    double x = zf_json_number(v->step, "loss", -1);
    if (v->step) snprintf(loss, sizeof loss, "%.4f", x);
    char steps[64];
    snprintf(steps, sizeof steps, "%llu%s", (unsigned long long)v->facts.last_step, of);
    zf_show_line(to, "%-24s %-8s %13s  %9s  %s", name, v->state, steps, isnan(x) ? "nan" : loss, v->facts.last_time);
}

enum zf_status zf_list_print(FILE *to, const char *runs, bool json, struct zf_err *e)
{
    struct dirent **items = NULL;
    int count = scandir(runs, &items, visible, alphasort), shown = 0;
    json_t *all = json_array();
    enum zf_status s = all ? ZF_OK : zf_fail_memory(e, "the list");
    if (count < 0 && errno != ENOENT && !s) s = zf_fail_errno(e, runs, "cannot read the directory");
    for (int i = 0; i < count; i++) {
        struct zf_err ignored;
        struct view v = {0};
        bool found = false;
        char *run = zf_path_join(runs, items[i]->d_name);
        if (!s && run && zf_directory_exists(run) && !look(&v, run, &found, &ignored) && found) {
            if (json) {
                json_t *o = view_json(&v, run);
                if (!o || json_array_append_new(all, o)) s = zf_fail_memory(e, "the list");
            } else {
                if (!shown) fprintf(to, "%-24s %-8s %13s  %9s  %s\n", "run", "state", "step", "loss", "last entry");
                put_list_row(to, &v, items[i]->d_name);
            }
            shown++;
        }
        forget(&v);
        free(run);
        free(items[i]);
    }
    free(items);
    if (!s && json) s = put_json(to, all, e);
    if (!s && !json && !shown) zf_show_line(to, "no runs in %s", runs);
    json_decref(all);
    return s;
}
