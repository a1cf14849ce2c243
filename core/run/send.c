/* `send`: one command, its answer. */
#include "core/run/remote.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/show.h"
#include "core/run/client.h"
#include "core/session/commands.h"
#include "core/telemetry/jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    bool yes, no_wait, json;
    double timeout; /* 0: none */
};

/* The first word names a run unless it is a command. */
static bool names_a_run(const char *word)
{
    size_t n = strlen(word);
    if (strchr(word, '/') || (n > 4 && !strcmp(word + n - 4, ".cfg"))) return true;
    return !zf_command_find(word) && zf_directory_exists(word);
}

/* What is asked y/n is asked where a person is. */
static bool said_yes(const char *question)
{
    char line[16];
    if (!isatty(STDIN_FILENO)) return false;
    zf_show_lines(stderr, question, strlen(question));
    fputs("\ndo it? [y/N] ", stderr);
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

/* The answer with this id (new reference). */
static enum zf_status wait_for(struct zf_client *c, int64_t id, double timeout, json_t **out, struct zf_err *e)
{
    double until = zf_clock() + timeout;
    for (bool ended = false;;) {
        json_t *o;
        while ((o = zf_client_next(c))) {
            if (json_object_get(o, "ok") && json_integer_value(json_object_get(o, "id")) == id) {
                *out = o;
                return ZF_OK;
            }
            json_decref(o);
        }
        double left = timeout > 0 ? until - zf_clock() : -1;
        if (ended) return zf_fail(e, ZF_BUSY, c->run, "the trainer ended before it answered");
        if (timeout > 0 && left <= 0)
            return zf_fail(e, ZF_IO, c->run, "no answer within %g s; commands are carried out between two steps, and this one may still be",
                           timeout);
        ended = zf_wire_wait(&c->wire, left) == ZF_WIRE_ENDED; /* the answer may have come with the end */
    }
}

/* The trainer saves and exports, and is gone: a start may follow. What it ended with counts. */
static enum zf_status wait_for_its_end(struct zf_client *c, double timeout, struct zf_err *e)
{
    double until = zf_clock() + timeout, code = -1; /* of its last line; -1: that has not come */
    enum zf_lock_state state;
    struct zf_lock_record now;
    for (bool ended = false; (state = zf_lock_look(c->run, &now)), !ended || (state == ZF_LOCK_LIVE && now.pid == c->holder.pid);) {
        json_t *o;
        while ((o = zf_client_next(c))) {
            if (!strcmp(zf_json_text(o, "type", ""), "end")) code = zf_json_number(o, "code", code);
            json_decref(o);
        }
        double left = timeout > 0 ? until - zf_clock() : -1;
        if (timeout > 0 && left <= 0)
            return zf_fail(e, ZF_IO, c->run, "it has not ended within %g s; it saves and exports, and ends by itself", timeout);
        if (ended)
            usleep(20000);
        else
            ended = zf_wire_wait(&c->wire, left) == ZF_WIRE_ENDED;
    }
    if (code < 0 && state == ZF_LOCK_DEAD)
        return zf_fail(e, ZF_IO, c->run, "its trainer died before the run had ended; `zenflow-console status %s` tells how", c->run);
    if (code <= ZF_OK || code == ZF_STOPPED || code == ZF_NUMERIC) return ZF_OK; /* one that is not finite asked for this */
    return zf_fail(e, (enum zf_status)code, c->run, "it has ended with an error; `zenflow-console status %s` tells which", c->run);
}

static bool is_stop(const char *command)
{
    struct zf_command c;
    struct zf_err ignored;
    bool is = !zf_command_parse(&c, command, &ignored) && c.id == ZF_CMD_stop;
    zf_command_free(&c);
    return is;
}

static enum zf_status converse(struct zf_client *c, const char *command, const struct options *o, struct zf_err *e)
{
    json_t *answer = NULL;
    ZF_TRY(zf_client_connect(c, o->timeout > 0 && o->timeout < 5 ? o->timeout : 5, e));
    ZF_TRY(zf_client_ask(c, 1, command, o->yes, e));
    if (o->no_wait) return ZF_OK;
    ZF_TRY(wait_for(c, 1, o->timeout, &answer, e));
    const char *text = json_string_value(json_object_get(answer, "text"));
    if (json_is_true(json_object_get(answer, "ask")) && !o->json && said_yes(text ? text : "")) {
        json_decref(answer);
        answer = NULL;
        ZF_TRY(zf_client_ask(c, 2, command, true, e));
        ZF_TRY(wait_for(c, 2, o->timeout, &answer, e));
        text = json_string_value(json_object_get(answer, "text"));
    }
    bool ok = json_is_true(json_object_get(answer, "ok"));
    if (o->json) {
        json_object_del(answer, "id");
        json_object_set_new(answer, "run", json_string(c->run));
        json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        putchar('\n');
    } else if (ok) {
        if (text) zf_show_lines(stdout, text, strlen(text));
        putchar('\n');
    }
    enum zf_status s = ok ? ZF_OK : zf_fail(e, ZF_DIFFERENT, NULL, "%s", text ? text : "refused");
    json_decref(answer);
    fflush(stdout);
    return !s && is_stop(command) ? wait_for_its_end(c, o->timeout, e) : s;
}

enum zf_status zf_command_send(struct zf_args *a, struct zf_err *e)
{
    struct options o = {.yes = zf_args_flag(a, "--yes"), .no_wait = zf_args_flag(a, "--no-wait"), .json = zf_args_flag(a, "--json")};
    const char *words[1024], *run = NULL;
    size_t count = 0;
    struct zf_client c;
    ZF_TRY(zf_args_real(a, "--timeout", 0.001, 1e9, &o.timeout, e));
    for (int i = 0; i < a->count; i++) { /* after the command's name a word may begin with `-`: -10% */
        const char *word = a->list[i];
        if (!word || (!count && !strcmp(word, "--"))) continue;
        if (!count && word[0] == '-') return zf_args_done(a, e);
        if (!count && !run && names_a_run(word)) {
            run = word;
            continue;
        }
        if (count == sizeof words / sizeof *words) return zf_fail(e, ZF_USAGE, "send", "too many words for one command");
        words[count++] = word;
    }
    if (!count)
        return zf_fail(e, ZF_USAGE, "send", "COMMAND is missing; `zenflow-console send help` lists what there is while a run is alive");
    char *command = zf_command_join(words, count);
    enum zf_status s = command ? zf_client_find(&c, run, e) : zf_fail_memory(e, "a command");
    if (command && !s) s = converse(&c, command, &o, e);
    if (command) zf_client_close(&c);
    free(command);
    return s;
}
