#include "core/run/check.h"

#include "core/base/plural.h"
#include "core/base/show.h"
#include "core/run/content.h"
#include "core/run/report.h"
#include "core/run/resume.h"
#include "core/run/setup.h"
#include "core/run/train.h"
#include "core/session/change.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a start would find in the run directory. */
struct outlook {
    const char *would, *text;
    char from[600];          /* where it would go on */
    struct zf_resume resume; /* open if it would */
    struct zf_err why;       /* code: what a start would end with at once */
};

static enum zf_status look_for_checkpoint(struct outlook *l, const struct zf_options *o, struct zf_err *e)
{
    struct zf_options copy;
    struct zf_resume *r = &l->resume;
    ZF_TRY(zf_options_copy(&copy, o, e));
    enum zf_status s = zf_train_resume(r, &copy, ZF_TRAIN_GO_ON, NULL, e);
    if (!s && r->anew)
        snprintf(l->from, sizeof l->from, "the run there would begin again, as it has no checkpoint yet");
    else if (!s)
        snprintf(l->from, sizeof l->from, "the run there would go on from %s, step %" PRIu64, r->path, r->step);
    zf_options_free(&copy);
    return s;
}

static void refuse(struct outlook *l)
{
    l->would = "refuse";
    l->text = "it would be refused";
}

static void look_ahead(struct outlook *l, const struct zf_options *o)
{
    enum zf_train_start what = ZF_TRAIN_BEGIN;
    enum zf_status s = zf_train_look(o, false, &what, &l->why);
    if (!s && what == ZF_TRAIN_GO_ON) s = look_for_checkpoint(l, o, &l->why);
    static const char *const would[] = {[ZF_TRAIN_BEGIN] = "begin", [ZF_TRAIN_GO_ON] = "continue", [ZF_TRAIN_OVER] = "nothing"};
    const char *const text[] = {
        [ZF_TRAIN_BEGIN] = "a fresh run would begin",
        [ZF_TRAIN_GO_ON] = l->from,
        [ZF_TRAIN_OVER] =
            "it would change nothing, as the run there is over, and show its recording in a terminal; to train on raise steps, and "
            "schedule_steps with it (the learning rate stays where the schedule ended), to train again take another directory with "
            "--set dir=NAME"};
    l->would = s == ZF_BUSY ? "attach" : would[what];
    l->text = s == ZF_BUSY ? "it would show the run that is there: a trainer is at work on it" : text[what];
    if (s && s != ZF_BUSY) refuse(l);
}

/* The same once the data was read. */
static enum zf_status look_at_data(struct outlook *l, struct zf_setup *s, struct zf_err *e)
{
    if (l->why.code || !strcmp(l->would, "nothing")) return ZF_OK;
    if (zf_content_check(s, l->resume.content, &l->why)) return refuse(l), ZF_OK;
    return zf_train_note_rate(s, &l->resume, s->o, e);
}

/* "learning_rate 0.006 -> 0.003, save_every 50 -> 40, from step 151"; what counts from the start on stands on a line of its own. */
static void print_changes(const struct zf_resume *r, bool late)
{
    char *text = NULL;
    size_t size, count = 0;
    FILE *to = open_memstream(&text, &size);
    for (size_t i = 0; to && i < json_array_size(r->changes); i++) {
        const json_t *v = json_array_get(r->changes, i);
        if ((json_object_get(v, "from_step") != NULL) == late)
            fprintf(to, "%s%s %s -> %s", count++ ? ", " : "", zf_json_text(v, "option", ""), zf_json_text(v, "old", ""),
                    zf_json_text(v, "new", ""));
    }
    if (to && late) fprintf(to, ", from step %" PRIu64, r->step + 1);
    if (to) fclose(to);
    if (text && count) zf_show_line(stdout, "%-14s %s", "edited", text);
    free(text);
}

static void print_json(const struct zf_setup *s, const struct zf_err *fit, const struct outlook *l)
{
    const struct zf_model_config *c = &s->config;
    json_t *notes = json_array(), *o = json_object();
    for (size_t i = 0; i < s->notes.count; i++) json_array_append_new(notes, json_string(s->notes.list[i].message));
    json_object_set_new(o, "model",
                        json_pack("{s:s s:s s:I s:I s:I s:I s:I s:I s:I}", "family", zf_family_name(c->family), "dtype",
                                  zf_dtype_name(s->dtype), "parameters", (json_int_t)s->params.parameters, "layers", (json_int_t)c->layers,
                                  "hidden", (json_int_t)c->hidden, "heads", (json_int_t)c->heads, "kv_heads", (json_int_t)c->kv_heads,
                                  "vocab", (json_int_t)c->vocab, "context", (json_int_t)c->context));
    json_object_set_new(o, "train", zf_report_dataset_json(&s->train));
    json_object_set_new(o, "valid", zf_report_dataset_json(&s->valid));
    json_object_set_new(o, "steps", json_integer((json_int_t)s->steps));
    json_object_set_new(o, "memory", zf_memory_plan_json(&s->plan, &s->limits));
    json_object_set_new(o, "fits", json_boolean(!fit));
    if (fit) json_object_set_new(o, "error", json_string(fit->message));
    json_object_set_new(o, "start",
                        json_pack("{s:s s:i s:s s:O*}", "would", l->would, "code", (int)l->why.code, "text",
                                  l->why.code ? l->why.message : l->text, "changes", l->why.code ? NULL : l->resume.changes));
    json_object_set_new(o, "options", zf_options_json(s->o));
    json_object_set_new(o, "notes", notes);
    size_t size;
    char *text = zf_jsonl_text(o, &size);
    if (text) fwrite(text, 1, size, stdout);
    free(text);
    json_decref(o);
}

static void print_options(const struct zf_options *o)
{
    printf("options        other than their defaults\n");
    for (int i = 0; i < ZF_OPTIONS; i++) {
        enum zf_option_id id = (enum zf_option_id)i;
        char *text = zf_options_is_default(o, id) ? NULL : zf_options_get_text(o, id), place[600];
        if (text)
            zf_show_line(stdout, "  %-20s %s%s%s", zf_option_table[i].name, text, o->origin[i].kind == ZF_ORIGIN_DEFAULT ? "" : "  from ",
                         zf_origin_text(&o->origin[i], zf_option_table[i].name, place, sizeof place));
        free(text);
    }
}

static void print_text(const struct zf_setup *s, bool fits, const struct outlook *l)
{
    const struct zf_model_config *c = &s->config;
    printf("%-14s %s, %zu parameters: %zu layer%s, hidden %zu, %zu head%s (%zu key/value), ffn %zu, vocabulary %zu, context %zu, in %s\n",
           "model", zf_family_name(c->family), s->params.parameters, c->layers, zf_plural(c->layers), c->hidden, c->heads,
           zf_plural(c->heads), c->kv_heads, c->ffn, c->vocab, c->context, zf_dtype_name(s->dtype));
    /* with valid_split both are of the same files */
    if (s->train.rows) zf_report_dataset("train", &s->train, true);
    if (s->valid.rows) zf_report_dataset("valid", &s->valid, s->o->valid.count > 0);
    if (s->choices.rows)
        printf("%-14s %" PRIu64 " records to answer, %zu choices\n", "choices", s->choices.rows / s->choice_count, s->choice_count);
    if (s->steps)
        printf("%-14s %" PRIu64 " step%s of %" PRId64 " sequence%s, %.3g epochs\n", "run", s->steps, zf_plural(s->steps), s->o->batch_size,
               zf_plural((uint64_t)s->o->batch_size), (double)s->total_rows / (double)s->train.rows);
    zf_show_line(stdout, "%-14s %s", "directory", s->o->dir);
    zf_memory_plan_print(stdout, &s->plan, &s->limits);
    print_options(s->o);
    for (size_t i = 0; i < s->notes.count; i++)
        zf_show_line(stdout, "note           %s: %s", s->notes.list[i].where, s->notes.list[i].message);
    printf("%-14s %s\n", "a start", l->text);
    for (int late = 0; !l->why.code && late < 2; late++) print_changes(&l->resume, late);
    if (fits && !l->why.code) puts("all is well: nothing was trained, nothing was written");
}

enum zf_status zf_check_run(const struct zf_options *o, bool json, const volatile int *stop, struct zf_err *e)
{
    struct zf_setup s = {0};
    struct outlook ahead = {0};
    look_ahead(&ahead, o);
    enum zf_status status = zf_setup_model(&s, o, e);
    if (!status) status = zf_setup_weights(&s, e);
    if (!status) status = zf_setup_data(&s, stop, e);
    if (!status) status = look_at_data(&ahead, &s, e);
    if (!status || (status == ZF_MEMORY && s.plan.total)) {
        if (json)
            print_json(&s, status ? e : NULL, &ahead);
        else
            print_text(&s, !status, &ahead);
    }
    zf_setup_free(&s);
    zf_resume_close(&ahead.resume);
    if (!ahead.why.code) return status;
    if (status) /* both are said; what is wrong with the files counts */
        zf_err_print("note", &ahead.why);
    else
        *e = ahead.why;
    return status ? status : e->code;
}
