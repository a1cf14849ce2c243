/* `attach` without a screen: the run's lines on stdout, commands on stdin. Ctrl-C, EOF or `detach` leaves; the run goes on. */
#include "core/run/remote.h"

#include "core/base/clock.h"
#include "core/run/client.h"
#include "core/session/commands.h"
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct attachment {
    struct zf_client client;
    struct zf_printer printer;
    bool reads; /* stdin is open */
    bool read_only;
    bool welcomed;      /* the lines of before have been passed over */
    int64_t sent, owed; /* commands; answers that are still to come */
    char *typed;        /* what stdin gave and is no line yet */
    size_t used, room;
    char *question; /* a command that waits for y/n */
};

enum { FIRST = 0, TYPED_MOST = 1 << 20 };

static enum zf_status ask(struct attachment *a, const char *command, bool yes, struct zf_err *e)
{
    ZF_TRY(zf_client_ask(&a->client, ++a->sent, command, yes, e));
    a->owed++;
    if (command != a->question) {
        free(a->question);
        a->question = strdup(command);
    }
    return ZF_OK;
}

/* A line that somebody typed. */
static enum zf_status typed(struct attachment *a, char *line, bool question, struct zf_err *e)
{
    line += strspn(line, " \t:");
    size_t n = strlen(line);
    while (n && strchr(" \t\r", line[n - 1])) line[--n] = 0;
    if (question) return line[0] == 'y' || line[0] == 'Y' ? ask(a, a->question, true, e) : ZF_OK;
    if (!*line || *line == '#') return ZF_OK;
    if (!strcmp(line, "detach")) {
        zf_left = 1;
        return ZF_OK;
    }
    size_t name = strcspn(line, " \t");
    const char *words[2] = {line, NULL};
    char *whole = NULL, after = line[name];
    if (after) { /* a relative path is relative to here */
        line[name] = 0;
        words[1] = line + name + 1;
        const struct zf_command_row *row = zf_command_find(line);
        if (row && row->arguments == ZF_ARGS_PATH) whole = zf_command_join(words, 2);
        line[name] = after;
    }
    enum zf_status s = ask(a, whole ? whole : line, false, e);
    free(whole);
    return s;
}

static enum zf_status read_stdin(struct attachment *a, bool *asked, struct zf_err *e)
{
    if (a->room - a->used < 4096) {
        size_t room = a->room ? 2 * a->room : 8192;
        char *more = room > TYPED_MOST ? NULL : realloc(a->typed, room);
        if (!more) return zf_fail(e, ZF_USAGE, "stdin", "a line that is no command: too long");
        a->typed = more;
        a->room = room;
    }
    ssize_t n = read(STDIN_FILENO, a->typed + a->used, a->room - a->used - 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return ZF_OK;
    if (n <= 0) {
        a->reads = false;
        if (a->used) a->typed[a->used++] = '\n'; /* the last line may have none */
    } else {
        a->used += (size_t)n;
    }
    char *from = a->typed, *newline;
    while (!zf_left && (newline = memchr(from, '\n', a->used - (size_t)(from - a->typed)))) {
        *newline = 0;
        bool question = *asked;
        *asked = false;
        ZF_TRY(typed(a, from, question, e));
        from = newline + 1;
    }
    a->used -= (size_t)(from - a->typed);
    memmove(a->typed, from, a->used);
    return ZF_OK;
}

static void show_answer(struct attachment *a, const json_t *o, bool *asked)
{
    const char *text = zf_json_text(o, "text", "");
    bool ok = json_is_true(json_object_get(o, "ok"));
    if (json_integer_value(json_object_get(o, "id")) == FIRST) a->welcomed = true;
    if (a->owed) a->owed--;
    for (const char *line = text; *line;) { /* a line each */
        int n = (int)strcspn(line, "\n");
        zf_plain_text(&a->printer.plain, "%s%.*s", ok ? "> " : "> refused: ", n, line);
        line += n + (line[n] == '\n');
    }
    if (json_is_true(json_object_get(o, "ask")) && isatty(STDIN_FILENO)) {
        *asked = true;
        zf_plain_text(&a->printer.plain, "> do it? y/n");
    }
}

static enum zf_status stay(struct attachment *a, struct zf_err *e)
{
    bool asked = false;
    ZF_TRY(zf_client_ask(&a->client, FIRST, "status", false, e));
    a->owed = 1;
    while (!zf_left && !a->printer.ended && (a->read_only || a->reads || a->owed)) {
        struct pollfd p[2] = {{.fd = a->client.wire.fd, .events = POLLIN}, {.fd = a->reads ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(p, 2, 200) < 0 && errno != EINTR) return zf_fail_errno(e, NULL, "cannot wait for input");
        enum zf_wire_state state = p[0].revents ? zf_wire_read(&a->client.wire) : ZF_WIRE_OK;
        json_t *o;
        while ((o = zf_client_next(&a->client))) {
            if (json_object_get(o, "ok"))
                show_answer(a, o, &asked);
            else if (a->welcomed || zf_json_is(o, "end"))
                zf_printer_line(&a->printer, o);
            json_decref(o);
        }
        if (a->printer.ended) return ZF_OK;
        if (state) return zf_fail(e, ZF_BUSY, a->client.run, "the trainer is gone without a word; `zenflow-console status` shows more");
        if (p[1].revents) ZF_TRY(read_stdin(a, &asked, e));
    }
    return ZF_OK;
}

enum zf_status zf_command_attach(struct zf_args *args, struct zf_err *e)
{
    struct attachment a = {.read_only = zf_args_flag(args, "--read-only")};
    const char *run = zf_args_next(args);
    ZF_TRY(zf_args_done(args, e));
    zf_leave_on_signals();
    enum zf_status s = zf_client_find(&a.client, run, e);
    a.client.by = "console";
    if (!s && a.client.elsewhere) {
        s = zf_follow(a.client.run, 2, e);
    } else if (!s) {
        s = zf_client_connect(&a.client, 5, e);
        zf_printer_init(&a.printer, a.client.run, 2);
        a.reads = !a.read_only;
        if (!s)
            zf_plain_text(&a.printer.plain, "attached to %s%s", a.client.run,
                          a.read_only ? "" : "; `help` lists commands, `detach` leaves");
        if (!s) s = stay(&a, e);
        if (!s && !a.printer.ended) zf_plain_text(&a.printer.plain, "left %s; the run goes on", a.client.run);
    }
    zf_client_close(&a.client);
    free(a.typed);
    free(a.question);
    return s;
}
