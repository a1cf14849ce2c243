/* What goes to the trainer and what comes back: commands of a person with their answers, questions of our own (what it does, its options),
 * and notes about what somebody else did. Without a trainer (a recording, files) what the history knows is answered here. */
#include "tui/app_impl.h"

#include "core/base/clock.h"
#include "core/session/commands.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_EVERY 2.0 /* seconds, while no step comes */
#define SILENCE 5.0      /* seconds in which a trainer would have answered, whatever it does */

/* --- what can be told without a trainer --- */

static void put_options(const struct zf_app *a, FILE *to, const char *pattern)
{
    const struct zf_option *one = pattern ? zf_option_find(pattern) : NULL;
    char value[512], range[256];
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        const struct zf_option *row = &zf_option_table[id];
        if (one ? row != one : pattern ? fnmatch(pattern, row->name, 0) != 0 : row->when == ZF_WHEN_RESTART) continue;
        fprintf(to, "%-20s %s\n", row->name, zf_history_option(&a->h, row->name, value, sizeof value));
    }
    if (one)
        fprintf(to, "%s %s; default %s\n", one->sentence, zf_option_range(one, range, sizeof range),
                one->fallback[0] ? one->fallback : "none");
}

static void put_changes(const struct zf_app *a, FILE *to)
{
    size_t found = 0;
    for (size_t i = 0; i < a->h.notes.count; i++) {
        const struct zf_note *n = &a->h.notes.list[i];
        if (n->kind == ZF_NOTE_CHANGE && ++found) fprintf(to, "step %" PRIu64 "  %s\n", n->step, n->text ? n->text : "");
    }
    if (!found) fputs("nothing was changed\n", to);
}

/* To be freed; NULL: only a trainer could answer that. */
static char *answer_here(const struct zf_app *a, const char *line)
{
    struct zf_command c;
    struct zf_err e;
    char *text = NULL;
    size_t size;
    FILE *to = zf_command_parse(&c, line, &e) ? NULL : open_memstream(&text, &size);
    if (to) {
        double value = 0;
        uint64_t at;
        if (c.id == ZF_CMD_show) put_options(a, to, c.count ? c.word[0] : NULL);
        if (c.id == ZF_CMD_history) put_changes(a, to);
        if (c.id == ZF_CMD_status) {
            fprintf(to, "step %" PRIu64, a->h.step);
            if (a->h.steps) fprintf(to, " of %" PRIu64, a->h.steps);
            if (zf_series_at(zf_history_series(&a->h, ZF_SERIES_LOSS), a->h.step, &at, &value)) fprintf(to, ", loss %.4f", value);
            fprintf(to, "%s%s\n", a->h.ended ? "; the run has ended: " : "", a->h.ended ? a->h.end_reason : "");
        }
        size_t n = fclose(to) || !text ? 0 : strlen(text);
        if (n) text[n - 1] = 0;
        if (!n) {
            free(text);
            text = NULL;
        }
    }
    zf_command_free(&c);
    return text;
}

/* --- there and back --- */

/* Not what only asks, nor what the run itself tells: changes, pauses, files, marks, what is put off. */
static bool is_for_the_log(const char *command, bool ok)
{
    struct zf_command c;
    struct zf_err ignored;
    bool known = !zf_command_parse(&c, command, &ignored);
    enum zf_command_effect effect = known ? c.row->effect : ZF_EFFECT_NOTHING;
    zf_command_free(&c);
    return known && effect != ZF_EFFECT_NOTHING && (!ok || effect == ZF_EFFECT_STATE);
}

/* Above the prompt if it fits there, else over the panels. */
static void show_answer(struct zf_app *a, bool ok, const char *command, const char *text)
{
    size_t lines = 1;
    for (const char *s = text; *s; s++) lines += *s == '\n';
    char *entry = NULL;
    if (is_for_the_log(command, ok) && asprintf(&entry, "%s%s %s", command, ok ? " ->" : " -> refused:", text) >= 0)
        zf_app_log(a, "note", entry); /* a refusal is no trouble of the training */
    free(entry);
    size_t room = a->c.rows > 12 ? (size_t)a->c.rows / 3 : 4;
    if (lines > room || strlen(text) > room * (size_t)(a->c.cols > 20 ? a->c.cols : 20))
        zf_app_offer(a, ZF_DIALOG_PAGER, command, text, NULL);
    else if (ok)
        zf_app_say(a, ZF_STYLE_GOOD, "%s", *text ? text : "done");
    else
        zf_app_say(a, ZF_STYLE_BAD, "refused: %s", text);
}

bool zf_app_send(struct zf_app *a, const char *command, bool yes, enum zf_purpose purpose)
{
    struct zf_err e = {0};
    if (a->h.ended && a->v.link != ZF_LINK_REPLAY && purpose == ZF_FOR_PERSON) {
        char *known = answer_here(a, command);
        if (known)
            show_answer(a, true, command, known);
        else
            zf_app_say(a, ZF_STYLE_WARN, "the run has ended; `generate`, `export` and `log` work on what it left");
        free(known);
        return false;
    }
    char *copy = strdup(command);
    bool room = copy && a->waiting_count < ZF_WAITING_MOST;
    enum zf_status s = room ? a->feed->type->ask(a->feed, ++a->last_id, command, yes, &e)
                            : zf_fail(&e, ZF_BUSY, NULL, "%d commands wait for an answer already", ZF_WAITING_MOST);
    if (!s) {
        a->waiting[a->waiting_count++] = (struct zf_waiting){a->last_id, purpose, copy};
        if (purpose == ZF_FOR_PERSON) zf_app_say(a, ZF_STYLE_DIM, "%s ...", command);
        return true;
    }
    char *here = purpose == ZF_FOR_PERSON ? answer_here(a, command) : NULL;
    if (here)
        show_answer(a, true, command, here);
    else if (purpose == ZF_FOR_PERSON)
        zf_app_say(a, ZF_STYLE_WARN, "%s", e.message);
    free(here);
    free(copy);
    return false;
}

static void take_status(struct zf_app *a, const char *text)
{
    const char *end = strstr(text, ", step ");
    size_t n = end ? (size_t)(end - text) : 0;
    if (n >= sizeof a->said) n = sizeof a->said - 1;
    char said[sizeof a->said];
    snprintf(said, sizeof said, "%.*s", (int)n, text);
    if (!strcmp(said, "training")) said[0] = 0;
    if (!strcmp(said, a->said)) return;
    memcpy(a->said, said, sizeof said);
    a->dirty = true;
}

static void take_options(struct zf_app *a, const char *text)
{
    json_t *rows = json_loads(text, 0, NULL);
    if (!json_is_array(rows)) {
        json_decref(rows);
        return;
    }
    json_decref(a->option_rows);
    a->v.option_rows = a->option_rows = rows;
    a->dirty = true;
}

static void take_answer(struct zf_app *a, const struct zf_waiting *w, const struct zf_answer *answer)
{
    const char *text = answer->text ? answer->text : "";
    a->status_at = 0; /* whatever it was: the trainer may do something else now */
    if (w->purpose == ZF_FOR_STATUS && answer->ok) {
        take_status(a, text);
        a->status_at = zf_clock();
    } else if (w->purpose == ZF_FOR_OPTIONS && answer->ok) {
        take_options(a, text);
    } else if (w->purpose == ZF_FOR_PERSON && answer->ask) {
        char *question = NULL, *how = strstr(text, ZF_TO_DO_IT);
        if (asprintf(&question, "%.*s. Do it?", how ? (int)(how - text) : (int)strlen(text), text) >= 0)
            zf_app_offer(a, ZF_DIALOG_ASK, w->command, question, w->command);
        free(question);
    } else if (w->purpose == ZF_FOR_PERSON) {
        show_answer(a, answer->ok, w->command, text);
        if (!answer->ok && a->stopping && !strcmp(w->command, "stop")) a->leave_at_end = a->stopping = false;
    }
}

void zf_app_answers(struct zf_app *a)
{
    struct zf_answer answer;
    while (a->feed->type->answer && a->feed->type->answer(a->feed, &answer)) {
        a->heard_at = zf_clock();
        for (size_t i = 0; i < a->waiting_count; i++) {
            struct zf_waiting w = a->waiting[i];
            if (w.id != answer.id) continue;
            memmove(&a->waiting[i], &a->waiting[i + 1], (--a->waiting_count - i) * sizeof w);
            take_answer(a, &w, &answer);
            free(w.command);
            break;
        }
    }
}

/* The trainer shall tell the matrix that is looked at in full, and no other; whatever made it one. */
static void watch_what_is_shown(struct zf_app *a)
{
    size_t wanted = a->v.shown[ZF_PANEL_CHANNELS] ? a->v.matrix : SIZE_MAX;
    if (wanted == a->watched || (wanted >= a->h.matrices && wanted != SIZE_MAX) || a->waiting_count >= ZF_WAITING_MOST / 2) return;
    char *command = zf_command_join((const char *const[]){"watch", wanted == SIZE_MAX ? "none" : a->h.matrix[wanted].name}, 2);
    if (command) zf_app_send(a, command, false, ZF_FOR_NOBODY);
    free(command);
    a->watched = wanted;
}

double zf_app_curious(struct zf_app *a, double now)
{
    double silent = a->v.link == ZF_LINK_LIVE && now - a->heard_at > SILENCE ? now - a->heard_at : 0;
    a->dirty |= (silent > 0) != (a->v.silent > 0);
    a->v.silent = silent;
    if (a->v.link != ZF_LINK_LIVE) return -1;
    watch_what_is_shown(a);
    if (a->options_asked && a->waiting_count < ZF_WAITING_MOST / 2) {
        a->options_asked = false;
        zf_app_send(a, "show --json", false, ZF_FOR_OPTIONS);
    }
    if (now - a->status_at >= STATUS_EVERY && a->waiting_count < ZF_WAITING_MOST / 2) {
        a->status_at = now;
        zf_app_send(a, "status", false, ZF_FOR_STATUS);
    }
    return a->status_at + STATUS_EVERY - now;
}

/* --- what others do --- */

/* What is told when a console comes, or reads all anew, may be hours old: by the time of steps, which a resume counts anew. */
static bool is_news(const struct zf_app *a, const struct zf_note *n)
{
    return a->v.link != ZF_LINK_REPLAY && a->h.time - fmax(n->time, 0) <= ZF_PASSING;
}

void zf_app_news(struct zf_app *a)
{
    static const unsigned looks[ZF_NOTE_KINDS] = {
        [ZF_NOTE_ERROR] = ZF_STYLE_BAD, [ZF_NOTE_WARNING] = ZF_STYLE_WARN, [ZF_NOTE_CHANGE] = ZF_STYLE_MARK}; /* 0: not told */
    const struct zf_notes *n = &a->h.notes;
    uint64_t fresh = n->added - a->notes_seen; /* more than there are, when it was begun anew with less */
    size_t from = n->count - (fresh < n->count ? (size_t)fresh : n->count);
    for (size_t i = from; i < n->count; i++)
        if (n->list[i].kind == ZF_NOTE_RESUME) from = i;
    for (size_t i = from; i < n->count; i++) {
        const struct zf_note *one = &n->list[i];
        /* a note may say that something was put off */
        if (one->kind == ZF_NOTE_CHANGE || one->kind == ZF_NOTE_NOTE || one->kind == ZF_NOTE_WARNING) a->options_asked = true;
        if (looks[one->kind] && is_news(a, one)) zf_app_pass(a, looks[one->kind], one->text);
    }
    a->notes_seen = n->added;
}
