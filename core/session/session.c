/* The course of a run: what is done before a step. See session.h. */
#include "core/base/clock.h"
#include "core/session/session_impl.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double idle_seconds = 0.2;

enum zf_status zf_session_read_at(struct zf_session *s, struct zf_err *e)
{
    struct zf_author who = {.by = "at"};
    const char *user = getenv("USER");
    snprintf(who.user, sizeof who.user, "%s", user ? user : "");
    for (size_t i = 0; i < s->o->at_count; i++) {
        struct zf_command c;
        enum zf_status bad = zf_command_parse(&c, s->o->at[i].command, e);
        if (!bad) bad = zf_session_may_wait(&c, e);
        zf_command_free(&c);
        ZF_TRY(bad);
        ZF_TRY(zf_session_later(s, (uint64_t)s->o->at[i].step, s->o->at[i].command, &who, false, e));
    }
    return ZF_OK;
}

enum zf_status zf_session_open(struct zf_session **out, const char *run, struct zf_options *o, struct zf_journal *journal,
                               const struct zf_session_trainer *trainer, struct zf_err *e)
{
    *out = NULL;
    struct zf_session *s = calloc(1, sizeof *s);
    if (!s || !(s->run = strdup(run))) {
        free(s);
        return zf_fail_memory(e, run);
    }
    s->o = o;
    s->journal = journal;
    s->trainer = *trainer;
    s->next = 1;
    s->doing = "starting";
    s->facts.loss = s->facts.learning_rate = s->facts.tokens_per_s = s->facts.eta = -1;
    pthread_mutex_init(&s->lock, NULL);
    enum zf_status bad = zf_session_read_at(s, e);
    if (bad)
        zf_session_close(s);
    else
        *out = s;
    return bad;
}

enum zf_status zf_session_repeat(struct zf_session *s, uint64_t step, const char *command, const char *by, const char *user, bool written,
                                 struct zf_err *e)
{
    struct zf_author who = {0};
    snprintf(who.by, sizeof who.by, "%s", by);
    snprintf(who.user, sizeof who.user, "%s", user);
    return zf_session_later(s, step, command, &who, written, e);
}

json_t *zf_session_state(const struct zf_session *s)
{
    json_t *undo = json_array(), *due = json_array();
    for (size_t i = 0; i < s->undo_count; i++) json_array_append_new(undo, json_string(s->undo[i]));
    for (size_t i = 0; i < s->later_count && s->later[i].step <= s->next; i++) {
        const struct zf_later *l = &s->later[i];
        json_array_append_new(
            due, json_pack("{ss ss ss sb}", "command", l->command, "by", l->author.by, "user", l->author.user, "written", l->written));
    }
    return json_pack("{sI so so}", "begun", (json_int_t)s->next, "undo", undo, "due", due);
}

enum zf_status zf_session_restore(struct zf_session *s, const json_t *state, uint64_t step, struct zf_err *e)
{
    const json_t *undo = json_object_get(state, "undo"), *due = json_object_get(state, "due");
    for (size_t i = 0; i < json_array_size(undo); i++) {
        const char *text = json_string_value(json_array_get(undo, i));
        if (text && !zf_session_push_undo(s, strdup(text))) return zf_fail_memory(e, "what undo takes back");
    }
    s->begun = zf_json_number(state, "begun", 0) > (double)step;
    if (!s->begun) return ZF_OK;
    size_t kept = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->later_count; i++) {
        if (s->later[i].step == step + 1)
            free(s->later[i].command);
        else
            s->later[kept++] = s->later[i];
    }
    s->later_count = kept;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < json_array_size(due); i++) {
        const json_t *v = json_array_get(due, i);
        ZF_TRY(zf_session_repeat(s, step + 1, zf_json_text(v, "command", ""), zf_json_text(v, "by", ""), zf_json_text(v, "user", ""),
                                 json_is_true(json_object_get(v, "written")), e));
    }
    return ZF_OK;
}

bool zf_session_has_begun(const struct zf_session *s)
{
    return s->begun;
}

enum zf_status zf_session_listen(struct zf_session *s, struct zf_err *e)
{
    return zf_control_start(&s->control, s->run, &(struct zf_control_hooks){.ctx = s, .at_once = zf_session_answer}, e);
}

const char *zf_session_socket(const struct zf_session *s)
{
    return s && s->control ? zf_control_path(s->control) : "";
}

void zf_session_close(struct zf_session *s)
{
    if (!s) return;
    while (s->owed) zf_session_answered(s, s->owed->ticket, false, "the run has ended before it was done");
    zf_control_stop(s->control);
    for (size_t i = 0; i < s->later_count; i++) free(s->later[i].command);
    for (size_t i = 0; i < s->undo_count; i++) free(s->undo[i]);
    free(s->later);
    free(s->undo);
    pthread_mutex_destroy(&s->lock);
    free(s->run);
    free(s);
}

void zf_session_told(struct zf_session *s, const struct zf_session_facts *f)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->facts = *f;
    pthread_mutex_unlock(&s->lock);
}

void zf_session_doing(struct zf_session *s, const char *what)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->doing = what;
    pthread_mutex_unlock(&s->lock);
}

void zf_session_breaks(struct zf_session *s, bool breaks)
{
    s->breaks = breaks;
}

void zf_session_pause(struct zf_session *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    s->paused = true;
    s->why = why;
    pthread_mutex_unlock(&s->lock);
    s->granted = 0;
}

void zf_session_publish(void *session, const char *line, size_t size)
{
    struct zf_session *s = session;
    if (s) zf_control_publish(s->control, line, size);
}

unsigned zf_session_clients(struct zf_session *s)
{
    return s ? zf_control_clients(s->control) : 0;
}

bool zf_session_has_client(struct zf_session *s, uint64_t client)
{
    return s && zf_control_has(s->control, client);
}

/* What was to be done before the next step; what is refused is told, as there is nobody to answer. */
static enum zf_status do_due(struct zf_session *s, bool *any, struct zf_err *e)
{
    if (!s->later_count || s->later[0].step > s->next) return ZF_OK;
    struct zf_later l = s->later[0];
    struct zf_verdict v = {0};
    *any = true;
    pthread_mutex_lock(&s->lock);
    memmove(s->later, s->later + 1, --s->later_count * sizeof *s->later);
    pthread_mutex_unlock(&s->lock);
    s->written = l.written;
    l.author.client = 0; /* who does not wait for it */
    bool edit = !strcmp(l.author.by, "file");
    if (!l.written && !edit) snprintf(l.author.by, sizeof l.author.by, "at"); /* whoever put it off */
    enum zf_status bad = l.step == s->next ? zf_session_execute(s, l.command, &l.author, true, &v, e) : ZF_OK;
    s->written = false;
    if (!bad && v.text) zf_session_say(s, v.ok ? "note" : "warning", "at %" PRIu64 " %s: %s", l.step, l.command, v.text);
    free(v.text);
    free(l.command);
    return bad;
}

static bool owe_answer(struct zf_session *s, struct zf_request *r)
{
    struct zf_owed_answer *one = malloc(sizeof *one);
    if (!one) return false;
    *one = (struct zf_owed_answer){s->ticket, r, s->owed};
    s->owed = one;
    return true;
}

void zf_session_answer_with(struct zf_session *s, uint64_t ticket)
{
    if (s) s->ticket = ticket;
}

bool zf_session_answered(struct zf_session *s, uint64_t ticket, bool ok, const char *text)
{
    for (struct zf_owed_answer **at = s ? &s->owed : NULL; at && *at; at = &(*at)->next) {
        struct zf_owed_answer *one = *at;
        if (one->ticket != ticket) continue;
        zf_control_answer(s->control, one->request, ok, false, text);
        *at = one->next;
        free(one);
        return true;
    }
    return false;
}

static enum zf_status do_request(struct zf_session *s, bool *any, struct zf_err *e)
{
    struct zf_request *r = s->control ? zf_control_next(s->control) : NULL;
    struct zf_author who;
    struct zf_verdict v = {0};
    if (!r) return ZF_OK;
    *any = true;
    memcpy(who.by, r->by, sizeof who.by);
    memcpy(who.user, r->user, sizeof who.user);
    who.client = r->client;
    s->ticket = 0;
    enum zf_status bad = zf_session_execute(s, r->command, &who, r->yes, &v, e);
    if (bad || !v.ok || !s->ticket || !owe_answer(s, r))
        zf_control_answer(s->control, r, !bad && v.ok, v.ask, bad ? e->message : v.text ? v.text : "no memory for an answer");
    free(v.text);
    return bad;
}

/* Everything that is to be done now: [at] first. */
static enum zf_status do_all(struct zf_session *s, struct zf_err *e)
{
    for (bool any = true; any && !s->stop;) {
        any = false;
        ZF_TRY(do_due(s, &any, e));
        if (!any) ZF_TRY(do_request(s, &any, e));
    }
    return ZF_OK;
}

enum zf_status zf_session_before_step(struct zf_session *s, uint64_t next, bool *stop, struct zf_err *e)
{
    uint64_t told = 0; /* which step the pause is before */
    *stop = false;
    if (!s) return ZF_OK;
    s->next = next;
    for (;;) {
        ZF_TRY(do_all(s, e));
        if (s->stop || !s->paused) break;
        if (s->granted) {
            s->granted--;
            break;
        }
        if (told != s->next)
            zf_session_say(s, "note", "paused before step %" PRIu64 "%s%s; `resume` goes on, `step` takes one step, `stop` ends the run",
                           s->next, s->why ? ": " : "", s->why ? s->why : "");
        zf_session_doing(s, "paused"); /* after a command, too */
        told = s->next;
        if (s->trainer.idle) ZF_TRY(s->trainer.idle(s->trainer.ctx, e));
        if (s->control)
            zf_control_wait(s->control, idle_seconds);
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)(idle_seconds * 1e9)}, NULL);
    }
    *stop = s->stop;
    if (told && !s->stop) zf_session_say(s, "note", "going on with step %" PRIu64, s->next);
    zf_session_doing(s, s->stop ? "ending" : "training");
    return ZF_OK;
}

enum zf_status zf_session_at_end(struct zf_session *s, bool *stop, struct zf_err *e)
{
    *stop = false;
    if (!s) return ZF_OK;
    s->next = s->facts.step + 1;
    ZF_TRY(do_all(s, e));
    *stop = s->stop;
    return ZF_OK;
}

void zf_session_check_at(const struct zf_options *o, struct zf_err_list *errors)
{
    struct zf_options now;
    struct zf_err e;
    char where[sizeof e.where];
    if (!o->at_count) return;
    if (zf_options_copy(&now, o, &e)) {
        zf_err_list_add(errors, &e);
        return;
    }
    for (size_t i = 0; i < o->at_count; i++) {
        struct zf_command c;
        struct zf_changes changes = {0};
        struct zf_change_place place = {.step = (uint64_t)o->at[i].step - 1, .steps = UINT64_MAX};
        enum zf_status bad = zf_command_parse(&c, o->at[i].command, &e);
        if (!bad) bad = zf_session_may_wait(&c, &e);
        if (!bad && c.row->arguments == ZF_ARGS_PAIRS) bad = zf_changes_make(&changes, &now, c.word, c.count, &place, &e);
        if (!bad && changes.count) { /* what comes behind counts from there */
            zf_options_free(&now);
            now = changes.wanted;
            changes.wanted = (struct zf_options){0};
        }
        if (bad) {
            char what[sizeof e.message];
            snprintf(what, sizeof what, "%.200s%s%.1200s", e.where, e.where[0] ? ": " : "", e.message);
            zf_fail(&e, ZF_USAGE, zf_origin_text(&o->at[i].origin, "at", where, sizeof where), "%s", what);
            zf_err_list_add(errors, &e);
        }
        zf_changes_free(&changes);
        zf_command_free(&c);
    }
    zf_options_free(&now);
}
