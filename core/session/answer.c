/* What is known at once, also in the middle of a long step. In the control thread. See session.h. */
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
    if (f.step) {
        fprintf(to, ", loss %.4f, lr %.4g, %.0f tok/s", f.loss, f.learning_rate, f.tokens_per_s);
        fprintf(to, ", ETA %s", zf_duration_text(f.eta, eta, sizeof eta));
    }
    fprintf(to, "; %zu changes, %zu commands wait", s->changes, s->waiting);
}

static void put_option(struct zf_session *s, FILE *to, enum zf_option_id id, bool *any)
{
    char *text = zf_options_get_text(s->o, id);
    bool epochs = id == ZF_OPT_steps && !s->o->steps;
    if (*any) putc('\n', to);
    *any = true;
    if (epochs)
        fprintf(to, "%-20s %" PRIu64 " (of epochs)", zf_option_table[id].name, s->facts.steps);
    else
        fprintf(to, "%-20s %s", zf_option_table[id].name, text ? text : "?");
    free(text);
}

/* For programs: every option, its value as in metrics.jsonl, and where that comes from. What is no UTF-8 is left out. */
static json_t *options_json(const struct zf_session *s)
{
    static const char *const when[] = {"now", "step", "restart"};
    json_t *all = json_array(), *values = zf_options_json(s->o);
    char place[600];
    for (enum zf_option_id id = 0; all && id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        json_t *o =
            json_pack("{ss ss sO* ss so* ss ss}", "section", row->section, "name", row->name, "value", json_object_get(values, row->name),
                      "default", row->fallback, "origin", json_string(zf_origin_text(&s->o->origin[id], row->name, place, sizeof place)),
                      "when", when[row->when], "unit", row->unit);
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
    if (pattern && !strcmp(pattern, "--json")) {
        json_t *all = options_json(s);
        int failed = all ? json_dumpf(all, to, JSON_COMPACT) : -1;
        json_decref(all);
        return !failed;
    }
    const struct zf_option *one = pattern ? zf_option_find(pattern) : NULL;
    struct zf_err e;
    bool any = false;
    char range[256];
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        bool meant = one ? row == one : pattern ? !fnmatch(pattern, row->name, 0) : row->when != ZF_WHEN_RESTART;
        if (meant) put_option(s, to, id, &any);
    }
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

static void put_change(FILE *to, const json_t *entry)
{
    const json_t *list = json_object_get(entry, "changes");
    fprintf(to, "step %.0f  ", zf_json_number(entry, "from_step", 0));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char *old = json_dumps(json_object_get(one, "old"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)),
             *new = json_dumps(json_object_get(one, "new"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        fprintf(to, "%s%s %s -> %s", i ? ", " : "", zf_json_text(one, "option", "?"), old ? old : "?", new ? new : "?");
        free(old);
        free(new);
    }
    if (!list) fprintf(to, "%s%s", !strcmp(zf_json_text(entry, "type", ""), "at") ? "planned: " : "", zf_json_text(entry, "command", "?"));
    const char *user = zf_json_text(entry, "user", "");
    fprintf(to, "  (%s%s%s)", user, *user ? ", " : "", zf_json_text(entry, "by", "?"));
}

enum { SHOWN = 100 };

static bool put_history(struct zf_session *s, FILE *to)
{
    json_t *all;
    struct zf_err e;
    size_t found = 0, shown = 0;
    if (zf_journal_read(&all, s->run, NULL, &e)) {
        fprintf(to, "%s: %s", e.where, e.message);
        return false;
    }
    for (size_t i = 0; i < json_array_size(all); i++) found += json_object_get(json_array_get(all, i), "command") != NULL;
    for (size_t i = 0, k = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        if (!json_object_get(entry, "command") || k++ + SHOWN < found) continue;
        if (shown++) putc('\n', to);
        put_change(to, entry);
    }
    if (!found) fputs("nothing was changed", to);
    if (found > SHOWN) fprintf(to, "\n(the last %d of %zu; all are in journal.jsonl)", SHOWN, found);
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
