/* What is known at once, also in the middle of a long step. In the control thread. See session.h. */
#include "core/base/plural.h"
#include "core/session/session_impl.h"
#include "core/telemetry/eta.h"
#include "core/telemetry/jsonl.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_status(struct zf_session *s, FILE *to)
{
    char eta[32];
    struct zf_session_facts f = s->facts;
    fprintf(to, "%s%s%s, step %" PRIu64 " of %" PRIu64, s->doing, s->why ? ": " : "", s->why ? s->why : "", f.step, f.steps);
    if (f.step && f.tokens_per_s > 0) { /* else this process has not taken a step yet */
        fprintf(to, ", loss %.4f, lr %.4g, %.0f tok/s", f.loss, f.learning_rate, f.tokens_per_s);
        fprintf(to, ", ETA %s", zf_duration_text(f.eta, eta, sizeof eta));
    }
    fprintf(to, "; %zu change%s, %zu command%s put off", s->changes, zf_plural(s->changes), s->later_count, zf_plural(s->later_count));
}

enum { SHOWN = 100 };

/* What is put off, by option: {"topk_ratio":[{"from_step":40,"value":"0.05"}...]}. Values are as the commands have them: x0.5 counts from
 * what the option is then. */
static json_t *pending_json(const struct zf_session *s)
{
    json_t *all = json_object();
    for (size_t i = 0; i < s->later_count; i++) {
        const struct zf_later *l = &s->later[i];
        struct zf_command c;
        struct zf_err ignored;
        bool sets = !zf_command_parse(&c, l->command, &ignored) && c.row->arguments == ZF_ARGS_PAIRS;
        for (size_t k = 0; sets && k + 1 < c.count; k += 2) {
            const struct zf_option *row = zf_option_find(c.word[k]);
            json_t *list = row ? json_object_get(all, row->name) : NULL;
            if (row && !list && !json_object_set_new(all, row->name, json_array())) list = json_object_get(all, row->name);
            if (json_array_size(list) < SHOWN)
                json_array_append_new(list, json_pack("{sI ss}", "from_step", (json_int_t)l->step, "value", c.word[k + 1]));
        }
        zf_command_free(&c);
    }
    return all;
}

static void put_pending(FILE *to, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        fprintf(to, "%s %s at step %.0f", i ? "," : " ->", zf_json_text(json_array_get(list, i), "value", "?"),
                zf_json_number(json_array_get(list, i), "from_step", 0));
}

static void put_option(struct zf_session *s, FILE *to, enum zf_option_id id, const json_t *pending, bool *any)
{
    char *text = zf_options_get_text(s->o, id);
    bool epochs = id == ZF_OPT_steps && !s->o->steps;
    if (*any) putc('\n', to);
    *any = true;
    if (epochs)
        fprintf(to, "%-20s %" PRIu64 " (of epochs)", zf_option_table[id].name, s->facts.steps);
    else
        fprintf(to, "%-20s %s", zf_option_table[id].name, text ? text : "?");
    put_pending(to, json_object_get(pending, zf_option_table[id].name));
    free(text);
}

/* For programs: every option, its value as in metrics.jsonl, where that comes from, and what is put off. What is no UTF-8 is left out. */
static json_t *options_json(const struct zf_session *s, const json_t *pending)
{
    static const char *const when[] = {"now", "step", "restart"};
    json_t *all = json_array(), *values = zf_options_json(s->o);
    char place[600];
    for (enum zf_option_id id = 0; all && id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        json_t *o = json_pack("{ss ss sO* ss so* ss ss sO*}", "section", row->section, "name", row->name, "value",
                              json_object_get(values, row->name), "default", row->fallback, "origin",
                              json_string(zf_origin_text(&s->o->origin[id], row->name, place, sizeof place)), "when", when[row->when],
                              "unit", row->unit, "pending", json_object_get(pending, row->name));
        if (json_array_append_new(all, o)) {
            json_decref(all);
            all = NULL;
        }
    }
    json_decref(values);
    return all;
}

static bool put_options(struct zf_session *s, FILE *to, const char *pattern)
{
    json_t *pending = pending_json(s);
    if (pattern && !strcmp(pattern, "--json")) {
        json_t *all = options_json(s, pending);
        int failed = all ? json_dumpf(all, to, JSON_COMPACT) : -1;
        json_decref(all);
        json_decref(pending);
        return !failed;
    }
    const struct zf_option *one = pattern ? zf_option_find(pattern) : NULL;
    struct zf_err e;
    bool any = false;
    char range[256];
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        bool meant = one ? row == one : pattern ? !fnmatch(pattern, row->name, 0) : row->when != ZF_WHEN_RESTART;
        if (meant) put_option(s, to, id, pending, &any);
    }
    json_decref(pending);
    if (one)
        fprintf(to, "\n%s %s; default %s; changes %s", one->sentence, zf_option_range(one, range, sizeof range),
                one->fallback[0] ? one->fallback : "none",
                one->when == ZF_WHEN_RESTART ? "at a start only"
                : one->when == ZF_WHEN_NOW   ? "at once"
                                             : "from the next step on");
    if (any) return true;
    zf_option_unknown(pattern, NULL, &e);
    fputs(e.message, to);
    return false;
}

static void put_author(FILE *to, const char *user, const char *by)
{
    fprintf(to, "  (%s%s%s)", user, *user ? ", " : "", by);
}

static void put_change(FILE *to, const json_t *entry)
{
    const json_t *list = json_object_get(entry, "changes");
    fprintf(to, "step %.0f  ", zf_json_number(entry, "from_step", 0));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char old[512], new[512];
        fprintf(to, "%s%s %s -> %s", i ? ", " : "", zf_json_text(one, "option", "?"),
                zf_json_shown(json_object_get(one, "old"), old, sizeof old), zf_json_shown(json_object_get(one, "new"), new, sizeof new));
    }
    if (!list) fputs(zf_json_text(entry, "command", "?"), to);
    if (json_is_true(json_object_get(json_object_get(entry, "why"), "undo"))) fputs(", by undo", to);
    put_author(to, zf_json_text(entry, "user", ""), zf_json_text(entry, "by", "?"));
}

/* What was put off is told where it is done, until then by put_later. */
static bool was_done(const json_t *entry)
{
    return json_object_get(entry, "command") && !zf_json_is(entry, "at");
}

/* What has not been done yet, also by [at], of which the journal knows nothing before. */
static void put_later(struct zf_session *s, FILE *to, bool first)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->later_count && i < SHOWN; i++) {
        const struct zf_later *l = &s->later[i];
        fprintf(to, "%sstep %" PRIu64 "  put off: %s", first && !i ? "" : "\n", l->step, l->command);
        put_author(to, l->author.user, l->author.by);
    }
    if (s->later_count > SHOWN) fprintf(to, "\n(the next %d of %zu that are put off)", SHOWN, s->later_count);
    if (first && !s->later_count) fputs("nothing was changed", to);
    pthread_mutex_unlock(&s->lock);
}

static bool put_history(struct zf_session *s, FILE *to)
{
    json_t *all;
    struct zf_err e;
    size_t found = 0, shown = 0;
    if (zf_journal_read(&all, s->run, NULL, &e)) {
        fprintf(to, "%s: %s", e.where, e.message);
        return false;
    }
    for (size_t i = 0; i < json_array_size(all); i++) found += was_done(json_array_get(all, i));
    for (size_t i = 0, k = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        if (!was_done(entry) || k++ + SHOWN < found) continue;
        if (shown++) putc('\n', to);
        put_change(to, entry);
    }
    if (found > SHOWN) fprintf(to, "\n(the last %d of %zu; all are in journal.jsonl)", SHOWN, found);
    put_later(s, to, !found);
    json_decref(all);
    return true;
}

static bool put_help(FILE *to, const char *topic)
{
    bool known = true;
    json_t *all = topic && !strcmp(topic, "--json") ? zf_commands_json() : NULL;
    char *text = all ? json_dumps(all, JSON_COMPACT) : zf_command_help(topic, &known);
    fputs(text ? text : "no memory", to);
    free(text);
    json_decref(all);
    return known;
}

char *zf_session_answer(void *session, const struct zf_request *r, bool *ok)
{
    struct zf_session *s = session;
    struct zf_command c;
    struct zf_err e;
    char *text = NULL;
    size_t size;
    enum zf_status bad = zf_command_parse(&c, r->command, &e);
    if (!bad && c.row->who == ZF_WHO_TRAINER) {
        zf_command_free(&c);
        return NULL;
    }
    FILE *to = open_memstream(&text, &size);
    if (!to) {
        zf_command_free(&c);
        return strdup("no memory for an answer");
    }
    *ok = !bad;
    pthread_mutex_lock(&s->lock);
    if (bad)
        fprintf(to, "%s%s%s", e.where, e.where[0] ? ": " : "", e.message);
    else if (c.row->who == ZF_WHO_CONSOLE)
        *ok = false, fprintf(to, "%s: it is the console's own command, and this is no console", c.row->name);
    else if (c.id == ZF_CMD_status)
        put_status(s, to);
    else if (c.id == ZF_CMD_show)
        *ok = put_options(s, to, c.count ? c.word[0] : NULL);
    else if (c.id == ZF_CMD_help)
        *ok = put_help(to, c.count ? c.word[0] : NULL);
    pthread_mutex_unlock(&s->lock);
    if (!bad && c.id == ZF_CMD_history) *ok = put_history(s, to); /* from the file, without the lock */
    zf_command_free(&c);
    if (fclose(to) || !text) {
        free(text);
        return strdup("no memory for an answer");
    }
    return text;
}
