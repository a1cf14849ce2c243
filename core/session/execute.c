/* What commands do, in the trainer's thread. See session.h. */
#include "core/base/file.h"
#include "core/base/plural.h"
#include "core/session/session_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MOST = 1 << 20, SOURCE_DEPTH = 4, LATER_MOST = 65536, ANSWER = 4096 };

void zf_verdict_set(struct zf_verdict *v, bool ok, const char *fmt, ...)
{
    va_list ap;
    free(v->text);
    va_start(ap, fmt);
    if (vasprintf(&v->text, fmt, ap) < 0) v->text = NULL;
    va_end(ap);
    v->ok = ok;
}

void zf_verdict_refuse(struct zf_verdict *v, const struct zf_err *e)
{
    zf_verdict_set(v, false, "%s%s%s", e->where, e->where[0] ? ": " : "", e->message);
}

static json_t *line(const char *type, uint64_t step)
{
    return json_pack("{ss sI}", "type", type, "step", (json_int_t)step);
}

void zf_session_say(struct zf_session *s, const char *kind, const char *fmt, ...)
{
    char text[ANSWER];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *o = line(kind, s->next - 1), *said = json_string(text);
    if (o) json_object_set_new(o, "text", said ? said : json_string("(no UTF-8)"));
    if (s->trainer.record)
        s->trainer.record(s->trainer.ctx, o);
    else
        json_decref(o);
}

struct zf_change_place zf_session_place(struct zf_session *s)
{
    return (struct zf_change_place){.step = s->next - 1,
                                    .steps = s->facts.steps,
                                    .rate = s->trainer.rate,
                                    .ctx = s->trainer.ctx,
                                    .run = s->run,
                                    .interval = s->facts.interval};
}

/* --- the journal --- */

static enum zf_status journal(struct zf_session *s, const char *type, uint64_t from, const char *command, const struct zf_author *who,
                              json_t *changes, json_t *why, struct zf_err *e)
{
    if (s->written) {
        json_decref(changes);
        json_decref(why);
        return ZF_OK;
    }
    json_t *o = json_pack("{ss sI sI ss ss ss}", "type", type, "step", (json_int_t)(s->next - 1), "from_step", (json_int_t)from, "command",
                          command, "by", who->by, "user", who->user);
    bool failed = !o; /* json_object_set_new takes what it is given, whatever it is given it for */
    if (changes && json_object_set_new(o, "changes", changes)) failed = true;
    if (why && json_object_set_new(o, "why", why)) failed = true;
    if (failed) {
        json_decref(o);
        return zf_fail_memory(e, "the journal");
    }
    return zf_journal_append(s->journal, o, e);
}

static void refuse_unwritten(struct zf_verdict *v, const struct zf_err *e)
{
    zf_verdict_set(v, false, "it cannot be written down (%s: %s); nothing was changed, training goes on", e->where, e->message);
}

/* --- changes of options --- */

static json_t *value_json(const json_t *all, enum zf_option_id id, const char *text)
{
    json_t *v = json_object_get(all, zf_option_table[id].name);
    if (id == ZF_OPT_steps) return json_integer(strtoll(text, NULL, 10)); /* it may stand for epochs */
    return v ? json_incref(v) : json_string(text);
}

static json_t *list_of(const struct zf_changes *c, const struct zf_options *before)
{
    json_t *list = json_array(), *was = zf_options_json(before), *is = zf_options_json(&c->wanted);
    for (size_t i = 0; list && was && is && i < c->count; i++) {
        const struct zf_change *one = &c->list[i];
        json_array_append_new(list, json_pack("{ss so so}", "option", zf_option_table[one->id].name, "old",
                                              value_json(was, one->id, one->before), "new", value_json(is, one->id, one->after)));
    }
    json_decref(was);
    json_decref(is);
    return list;
}

static void record_changes(struct zf_session *s, const json_t *list, const struct zf_author *who)
{
    for (size_t i = 0; s->trainer.record && i < json_array_size(list); i++) {
        json_t *o = line("change", s->next - 1);
        if (o) json_object_update(o, json_array_get(list, i));
        if (o) json_object_set_new(o, "from_step", json_integer((json_int_t)s->next));
        if (o) json_object_set_new(o, "by", json_string(who->by));
        if (o) json_object_set_new(o, "user", json_string(who->user));
        s->trainer.record(s->trainer.ctx, o);
    }
}

/* The live options become the wanted ones. What was checked as a copy cannot be refused here but for memory. */
static enum zf_status store(struct zf_session *s, const struct zf_changes *c, struct zf_err *e)
{
    const struct zf_origin origin = {.kind = ZF_ORIGIN_COMMAND};
    enum zf_status bad = ZF_OK;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; !bad && i < c->count; i++) {
        char *text = zf_options_get_text(&c->wanted, c->list[i].id);
        bad = text ? zf_options_set(s->o, zf_option_table[c->list[i].id].name, text, &origin, e) : zf_fail_memory(e, "a change");
        free(text);
    }
    s->changes += !bad;
    pthread_mutex_unlock(&s->lock);
    return bad;
}

bool zf_session_push_undo(struct zf_session *s, char *stolen)
{
    if (stolen && s->undo_count == s->undo_room) {
        size_t room = s->undo_room ? 2 * s->undo_room : 16;
        char **more = realloc(s->undo, room * sizeof *more);
        if (more) s->undo = more, s->undo_room = room;
    }
    if (!stolen || s->undo_count == s->undo_room) {
        free(stolen);
        return false;
    }
    s->undo[s->undo_count++] = stolen;
    return true;
}

/* Checked, durable, done: in this order. *done: it was. `list` is for the records. */
static enum zf_status carry_out(struct zf_session *s, const struct zf_changes *c, const struct zf_author *who, bool undo,
                                struct zf_verdict *v, bool *done, struct zf_err *e)
{
    struct zf_options before;
    char *command = zf_changes_command(c, false);
    json_t *list = list_of(c, s->o);
    *done = false;
    enum zf_status bad = command && list ? zf_options_copy(&before, s->o, e) : zf_fail_memory(e, "a change");
    if (bad) {
        zf_verdict_refuse(v, e);
        free(command);
        json_decref(list);
        return ZF_OK;
    }
    if (s->trainer.check && s->trainer.check(s->trainer.ctx, s->o, &c->wanted, s->next, e)) {
        zf_verdict_refuse(v, e);
    } else if (journal(s, "change", s->next, command, who, json_incref(list), undo ? json_pack("{sb}", "undo", 1) : NULL, e)) {
        refuse_unwritten(v, e);
    } else {
        *done = true;
        bad = store(s, c, e);
        if (!bad && s->trainer.apply) bad = s->trainer.apply(s->trainer.ctx, &before, s->next, e);
        if (!bad) record_changes(s, list, who);
    }
    zf_options_free(&before);
    free(command);
    json_decref(list);
    return bad;
}

enum zf_status zf_session_go_to(struct zf_session *s, const struct zf_changes *c, uint64_t step, uint64_t steps,
                                const struct zf_command *by, struct zf_err *e)
{
    struct zf_author who = {.client = by->client};
    snprintf(who.by, sizeof who.by, "%s", by->by ? by->by : "");
    snprintf(who.user, sizeof who.user, "%s", by->user ? by->user : "");
    json_t *list = list_of(c, s->o);
    enum zf_status bad = list ? store(s, c, e) : zf_fail_memory(e, "the options");
    pthread_mutex_lock(&s->lock);
    while (s->later_count) free(s->later[--s->later_count].command);
    s->facts = (struct zf_session_facts){.step = step, .steps = steps, .eta = -1};
    pthread_mutex_unlock(&s->lock);
    while (s->undo_count) free(s->undo[--s->undo_count]);
    s->next = step + 1;
    s->begun = false;
    zf_session_pause(s, NULL);
    if (!bad) record_changes(s, list, &who);
    json_decref(list);
    return bad ? bad : zf_session_read_at(s, e);
}

static enum zf_status change(struct zf_session *s, const struct zf_command *c, const struct zf_author *who, bool yes, bool undo,
                             struct zf_verdict *v, struct zf_err *e)
{
    struct zf_change_place place = zf_session_place(s);
    struct zf_changes changes;
    enum zf_status bad = ZF_OK;
    bool done = false;
    if (zf_changes_make(&changes, s->o, c->word, c->count, &place, e)) {
        zf_verdict_refuse(v, e);
    } else if (changes.ask[0] && !yes && !c->yes) {
        zf_verdict_set(v, false, "%s: nothing was changed" ZF_TO_DO_IT " (`set!`, or --yes)", changes.ask);
        v->ask = true;
    } else {
        char *text = zf_changes_text(&changes, s->o, c->word, c->count, &place), *back = zf_changes_command(&changes, true);
        if (changes.count) bad = carry_out(s, &changes, who, undo, v, &done, e);
        if (!bad && (done || !changes.count)) zf_verdict_set(v, true, "%s", text ? text : "done");
        if (done && !undo) {
            zf_session_push_undo(s, back);
            back = NULL;
        }
        free(text);
        free(back);
    }
    zf_changes_free(&changes);
    return bad;
}

static enum zf_status undo(struct zf_session *s, const struct zf_author *who, struct zf_verdict *v, struct zf_err *e)
{
    struct zf_command c;
    if (!s->undo_count) {
        zf_verdict_set(v, false, "there is no change to take back; `history` shows what was changed");
        return ZF_OK;
    }
    char *back = s->undo[s->undo_count - 1];
    enum zf_status bad = ZF_OK;
    if (zf_command_parse(&c, back, e))
        zf_verdict_refuse(v, e);
    else
        bad = change(s, &c, who, true, true, v, e);
    zf_command_free(&c);
    if (!bad && v->ok) {
        free(back);
        s->undo_count--;
    }
    return bad;
}

enum zf_status zf_session_decided(struct zf_session *s, enum zf_option_id id, int64_t old, int64_t now, json_t *why, bool written,
                                  struct zf_err *e)
{
    static const struct zf_author who = {.by = "auto"};
    const char *name = zf_option_table[id].name;
    char command[96];
    snprintf(command, sizeof command, "set! %s %" PRId64, name, now);
    json_t *list = json_pack("[{ss sI sI}]", "option", name, "old", (json_int_t)old, "new", (json_int_t)now);
    s->written = written;
    enum zf_status bad = list ? journal(s, "change", s->next, command, &who, json_incref(list), why, e) : zf_fail_memory(e, "a change");
    s->written = false;
    if (!list) json_decref(why);
    if (!bad) record_changes(s, list, &who);
    json_decref(list);
    return bad;
}

/* --- later --- */

enum zf_status zf_session_may_wait(const struct zf_command *c, struct zf_err *e)
{
    if (c->row->who == ZF_WHO_CONSOLE) return zf_fail(e, ZF_USAGE, c->row->name, "it is the console's own command; nobody would see it");
    if (c->row->who == ZF_WHO_READ) return zf_fail(e, ZF_USAGE, c->row->name, "it only answers, and nobody would be there to read it");
    if (c->id == ZF_CMD_watch)
        return zf_fail(e, ZF_USAGE, c->row->name, "it is for a client that listens, as long as that stays; it cannot be put off");
    if (c->row->allowed == ZF_ALLOWED_PAUSED)
        return zf_fail(e, ZF_USAGE, c->row->name, "it is for a run that waits for somebody; it cannot be put off");
    if (c->row->arguments == ZF_ARGS_STEP_COMMAND)
        return zf_fail(e, ZF_USAGE, c->row->name, "a step that names a step; the command alone is expected");
    return ZF_OK;
}

/* Under the lock: the control thread tells what is put off. */
static bool insert_later(struct zf_session *s, const struct zf_later *one)
{
    if (s->later_count == s->later_room) {
        size_t room = s->later_room ? 2 * s->later_room : 16;
        struct zf_later *more = realloc(s->later, room * sizeof *more);
        if (!more) return false;
        s->later = more;
        s->later_room = room;
    }
    size_t i = s->later_count++;
    for (; i && s->later[i - 1].step > one->step; i--) s->later[i] = s->later[i - 1];
    s->later[i] = *one;
    return true;
}

enum zf_status zf_session_later(struct zf_session *s, uint64_t step, const char *command, const struct zf_author *who, bool written,
                                struct zf_err *e)
{
    if (s->later_count >= LATER_MOST) return zf_fail(e, ZF_USAGE, NULL, "%d commands wait already", LATER_MOST);
    struct zf_later one = {step, strdup(command), *who, written};
    pthread_mutex_lock(&s->lock);
    bool done = one.command && insert_later(s, &one);
    pthread_mutex_unlock(&s->lock);
    if (done) return ZF_OK;
    free(one.command);
    return zf_fail_memory(e, "a command");
}

/* Takes back what zf_session_later put last for this step. */
static void forget_later(struct zf_session *s, uint64_t step)
{
    size_t i = s->later_count;
    while (i && s->later[i - 1].step != step) i--;
    if (!i) return;
    pthread_mutex_lock(&s->lock);
    free(s->later[i - 1].command);
    memmove(s->later + i - 1, s->later + i, (s->later_count - i) * sizeof *s->later);
    s->later_count--;
    pthread_mutex_unlock(&s->lock);
}

/* Would a change be refused, or asked about, if it were made now? */
static bool refused_now(struct zf_session *s, const struct zf_command *c, bool yes, struct zf_verdict *v, struct zf_err *e)
{
    struct zf_change_place place = zf_session_place(s);
    struct zf_changes changes = {0};
    if (c->row->arguments != ZF_ARGS_PAIRS) return false;
    bool refused = zf_changes_make(&changes, s->o, c->word, c->count, &place, e) != ZF_OK;
    if (refused) {
        zf_verdict_refuse(v, e);
    } else if (changes.ask[0] && !yes && !c->yes) {
        refused = v->ask = true;
        zf_verdict_set(v, false, "%s: nothing was planned" ZF_TO_DO_IT " (`set!`, or --yes)", changes.ask);
    }
    zf_changes_free(&changes);
    return refused;
}

static void put_off(struct zf_session *s, const struct zf_command *c, const struct zf_author *who, bool yes, struct zf_verdict *v,
                    struct zf_err *e)
{
    struct zf_command inner;
    if (c->number < s->next) {
        zf_verdict_set(v, false, "step %" PRIu64 " is issued already; %" PRIu64 " or later is expected", c->number, s->next);
        return;
    }
    if (zf_command_parse(&inner, c->word[1], e) || zf_session_may_wait(&inner, e)) {
        zf_verdict_refuse(v, e);
    } else if (!refused_now(s, &inner, yes || c->yes, v, e)) {
        if (zf_session_later(s, c->number, c->word[1], who, false, e))
            zf_verdict_refuse(v, e);
        else if (journal(s, "at", c->number, c->word[1], who, NULL, NULL, e)) {
            forget_later(s, c->number);
            refuse_unwritten(v, e);
        } else {
            zf_session_say(s, "note", "put off until step %" PRIu64 ": %s", c->number, c->word[1]);
            zf_verdict_set(v, true, "before step %" PRIu64 ": %s%s", c->number, c->word[1],
                           c->number > s->facts.steps ? " (the run ends before that, unless steps is raised)" : "");
        }
    }
    zf_command_free(&inner);
}

/* --- files of commands --- */

/* Relative paths of [at] are relative to the run.cfg; clients send absolute ones. */
static char *path_of(const struct zf_session *s, const struct zf_author *who, const char *path)
{
    if (strcmp(who->by, "at") != 0 || !s->o->file) return strdup(path);
    char *directory = zf_path_directory(s->o->file), *whole = directory ? zf_path_join(directory, path) : NULL;
    free(directory);
    return whole;
}

static enum zf_status source_lines(struct zf_session *s, const char *path, char *text, const struct zf_author *who, bool yes,
                                   struct zf_verdict *v, struct zf_err *e)
{
    size_t number = 0, done = 0;
    char *said = NULL;
    enum zf_status bad = ZF_OK;
    v->ok = true;
    for (char *at = text, *end; !bad && v->ok && *at && !s->stop; at = end) {
        struct zf_verdict one = {0};
        end = at + strcspn(at, "\n");
        if (*end) *end++ = 0;
        at += strspn(at, " \t");
        at[strcspn(at, "\r")] = 0;
        number++;
        if (!*at || *at == '#' || *at == ';') continue;
        bad = zf_session_execute(s, at, who, yes, &one, e);
        char *more = NULL;
        if (bad || asprintf(&more, "%s%s%s", said ? said : "", said ? "\n" : "", one.text ? one.text : "") < 0) more = NULL;
        free(said);
        said = more;
        v->ok = one.ok;
        v->ask = one.ask;
        if (!bad && !one.ok && one.placed)
            zf_verdict_set(v, false, "%s", one.text ? one.text : "");
        else if (!bad && !one.ok)
            zf_verdict_set(v, false, "%s:%zu: %s (%zu command%s before it: carried out)", path, number, one.text ? one.text : "", done,
                           zf_plural(done));
        v->placed = !one.ok;
        done++;
        free(one.text);
    }
    if (!bad && v->ok)
        zf_verdict_set(v, true, "%s%s%zu command%s of %s: carried out", said ? said : "", said ? "\n" : "", done, zf_plural(done), path);
    free(said);
    return bad;
}

static enum zf_status source(struct zf_session *s, const struct zf_command *c, const struct zf_author *who, bool yes, struct zf_verdict *v,
                             struct zf_err *e)
{
    char *text = NULL, *path = path_of(s, who, c->word[0]);
    size_t size = 0;
    enum zf_status bad = ZF_OK;
    if (s->depth == SOURCE_DEPTH) {
        zf_verdict_set(v, false, "%s: files that name files, more than %d deep", c->word[0], SOURCE_DEPTH);
    } else if (!path || zf_file_read(&text, &size, path, SOURCE_MOST, e)) {
        if (!path) zf_fail_memory(e, "a path");
        zf_verdict_refuse(v, e);
    } else {
        s->depth++;
        bad = source_lines(s, path, text, who, yes || c->yes, v, e);
        s->depth--;
    }
    free(text);
    free(path);
    return bad;
}

/* --- the course --- */

static void set_paused(struct zf_session *s, bool paused, uint64_t granted)
{
    pthread_mutex_lock(&s->lock);
    s->paused = paused;
    s->why = NULL;
    pthread_mutex_unlock(&s->lock);
    s->granted = granted;
}

/* After `pause --release-gpu`; the run is paused. */
static void release(struct zf_session *s, struct zf_verdict *v, struct zf_err *e)
{
    char answer[ANSWER] = "";
    enum zf_status bad = s->trainer.release ? s->trainer.release(s->trainer.ctx, answer, sizeof answer, e)
                                            : zf_fail(e, ZF_DIFFERENT, "--release-gpu", "this trainer has no GPU");
    if (bad) {
        zf_verdict_set(v, false, "paused before step %" PRIu64 ", but the GPU is not released: %s", s->next, e->message);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->why = "the GPU is released";
    pthread_mutex_unlock(&s->lock);
    zf_verdict_set(v, true, "paused before step %" PRIu64 ": %s", s->next, answer);
}

/* Before the run goes on. false: it cannot, and v says why. */
static bool take(struct zf_session *s, char *answer, size_t room, struct zf_verdict *v, struct zf_err *e)
{
    *answer = 0;
    if (!s->trainer.take || !s->trainer.take(s->trainer.ctx, answer, room, e)) return true;
    zf_verdict_refuse(v, e);
    return false;
}

/* These are done even if they cannot be written down: who cannot stop a run because the disk is full is not helped. */
static void course(struct zf_session *s, const struct zf_command *c, const char *text, const struct zf_author *who, struct zf_verdict *v,
                   struct zf_err *e)
{
    bool was = s->paused && !s->granted, releases = c->id == ZF_CMD_pause && c->count;
    char taken[ANSWER];
    if ((c->id == ZF_CMD_resume || c->id == ZF_CMD_step) && !take(s, taken, sizeof taken, v, e)) return;
    enum zf_status unwritten = journal(s, "command", s->next, text, who, NULL, NULL, e);
    switch (c->id) {
    case ZF_CMD_pause:
        set_paused(s, true, 0);
        zf_verdict_set(v, true, "paused%s before step %" PRIu64 "; `resume` goes on", was ? " already," : "", s->next);
        if (releases) release(s, v, e);
        break;
    case ZF_CMD_resume:
        zf_verdict_set(v, true, s->paused ? "going on with step %" PRIu64 "%s%s" : "it is not paused; the next step is %" PRIu64 "%s%s",
                       s->next, *taken ? "; " : "", taken);
        set_paused(s, false, 0);
        break;
    case ZF_CMD_step:
        set_paused(s, true, c->number);
        zf_verdict_set(v, true, "taking steps %" PRIu64 " to %" PRIu64 ", then pausing%s%s", s->next, s->next + c->number - 1,
                       *taken ? "; " : "", taken);
        break;
    default: s->stop = true; zf_verdict_set(v, true, "the run ends: step %" PRIu64 " was the last; now it is saved", s->next - 1);
    }
    if (!unwritten || !v->text) return;
    char *done = strdup(v->text);
    if (done) zf_verdict_set(v, true, "%s (not written down: %s: %s)", done, e->where, e->message);
    free(done);
}

static bool able(const struct zf_session *s, enum zf_command_id id)
{
    return s->trainer.can && s->trainer.act && s->trainer.can(s->trainer.ctx, id);
}

static enum zf_status act(struct zf_session *s, const struct zf_command *c, const char *text, const struct zf_author *who, bool yes,
                          struct zf_verdict *v, struct zf_err *e)
{
    char answer[ANSWER] = "done";
    if (!able(s, c->id)) {
        zf_verdict_set(v, false, "%s: %s", c->row->name, c->row->without);
        return ZF_OK;
    }
    bool agreed = c->yes || (yes && who->client); /* what stands in [at] was meant, but not that something is there already */
    if (c->row->asks != ZF_ASKS_NEVER && !agreed && s->trainer.ask && s->trainer.ask(s->trainer.ctx, c, answer, sizeof answer)) {
        zf_verdict_set(v, false, "%s" ZF_TO_DO_IT " (`%s!`, or --yes)", answer, c->row->name);
        v->ask = true;
        return ZF_OK;
    }
    /* what changes what is trained is written down first; the rest when it has been done */
    bool itself = c->id == ZF_CMD_load, first = !itself && c->row->effect == ZF_EFFECT_STATE,
         after = !itself && !first && c->row->effect != ZF_EFFECT_NOTHING;
    if (first && journal(s, "command", s->next, text, who, NULL, NULL, e)) {
        refuse_unwritten(v, e);
        return ZF_OK;
    }
    const char *doing = s->doing; /* changed by this thread alone */
    enum zf_status bad = s->trainer.act(s->trainer.ctx, c, answer, sizeof answer, e);
    zf_session_doing(s, doing); /* before anybody is answered */
    if (bad == ZF_STOPPED || bad == ZF_BUSY || (bad && s->breaks)) return bad;
    if (bad)
        zf_verdict_refuse(v, e);
    else if (after && journal(s, "command", s->next, text, who, NULL, NULL, e))
        zf_verdict_set(v, true, "%s (not written down: %s: %s)", answer, e->where, e->message);
    else
        zf_verdict_set(v, true, "%s", answer);
    return ZF_OK;
}

static void mark(struct zf_session *s, const struct zf_command *c, const char *text, const struct zf_author *who, struct zf_verdict *v,
                 struct zf_err *e)
{
    if (journal(s, "command", s->next, text, who, NULL, NULL, e)) {
        refuse_unwritten(v, e);
        return;
    }
    zf_session_say(s, "mark", "%s", c->word[0]);
    zf_verdict_set(v, true, "marked before step %" PRIu64, s->next);
}

enum zf_status zf_session_execute(struct zf_session *s, const char *text, const struct zf_author *who, bool yes, struct zf_verdict *v,
                                  struct zf_err *e)
{
    struct zf_command c;
    enum zf_status bad = ZF_OK;
    if (zf_command_parse(&c, text, e)) {
        zf_verdict_refuse(v, e);
    } else if (c.row->who != ZF_WHO_TRAINER) {
        zf_verdict_set(v, false, "%s: it is no command for here%s", c.row->name,
                       c.row->who == ZF_WHO_CONSOLE ? ", but the console's own" : "; ask the run itself");
    } else if (c.row->allowed == ZF_ALLOWED_PAUSED && !s->paused && able(s, c.id)) { /* nobody pauses for what cannot be done */
        zf_verdict_set(v, false, "%s: only while paused; `pause` first", c.row->name);
    } else {
        c.client = who->client;
        c.by = who->by;
        c.user = who->user;
        switch (c.id) {
        case ZF_CMD_set: bad = change(s, &c, who, yes, false, v, e); break;
        case ZF_CMD_undo: bad = undo(s, who, v, e); break;
        case ZF_CMD_pause:
        case ZF_CMD_resume:
        case ZF_CMD_step:
        case ZF_CMD_stop: course(s, &c, text, who, v, e); break;
        case ZF_CMD_at: put_off(s, &c, who, yes, v, e); break;
        case ZF_CMD_source: bad = source(s, &c, who, yes, v, e); break;
        case ZF_CMD_mark: mark(s, &c, text, who, v, e); break;
        default: bad = act(s, &c, text, who, yes, v, e);
        }
    }
    zf_command_free(&c);
    return bad;
}
