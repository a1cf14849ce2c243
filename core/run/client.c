/* See client.h. */
#include "core/run/client.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/session/locate.h"
#include "core/session/rundir.h"
#include "core/telemetry/jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE = 1 << 20 };

enum zf_status zf_client_find(struct zf_client *c, const char *argument, struct zf_err *e)
{
    const char *user = getenv("USER");
    *c = (struct zf_client){.wire.fd = -1, .by = "send"};
    if (user && *user)
        snprintf(c->user, sizeof c->user, "%s", user);
    else
        snprintf(c->user, sizeof c->user, "uid %u", (unsigned)geteuid());
    if (argument) {
        ZF_TRY(zf_locate_run(&c->run, argument, e));
    } else if (!(c->run = zf_rundir_newest("runs", true))) {
        return zf_fail(e, ZF_BUSY, "runs",
                       "there is no run below this directory whose trainer is alive; name one: a run directory or its run.cfg");
    }
    c->state = zf_lock_look(c->run, &c->holder);
    c->elsewhere = c->state == ZF_LOCK_LIVE && zf_lock_elsewhere(&c->holder);
    return ZF_OK;
}

void zf_client_ssh(const struct zf_client *c, const char *what, char *out, size_t size)
{
    char *real = realpath(c->run, NULL);
    snprintf(out, size, "ssh %s zenflow-console %s %s", c->holder.host, what, real ? real : c->run);
    free(real);
}

enum zf_status zf_client_connect(struct zf_client *c, double seconds, struct zf_err *e)
{
    char ssh[600];
    double until = zf_clock() + seconds;
    if (c->elsewhere) {
        zf_client_ssh(c, "attach", ssh, sizeof ssh);
        return zf_fail(e, ZF_BUSY, c->run, "its trainer is on %s, which this machine cannot reach but for its files: `%s`", c->holder.host,
                       ssh);
    }
    while (c->state == ZF_LOCK_LIVE) {
        char *where = zf_lock_where(c->run, &c->holder);
        int fd;
        enum zf_status s = where ? zf_wire_connect(&fd, where, until - zf_clock(), e) : zf_fail_memory(e, c->run);
        free(where);
        if (!s) {
            zf_wire_open(&c->wire, fd, ZF_WIRE_LINE_MOST, QUEUE);
            return ZF_OK;
        }
        if (s != ZF_BUSY || zf_clock() > until) return s;
        usleep(50000);
        c->state = zf_lock_look(c->run, &c->holder);
    }
    return zf_fail(e, ZF_BUSY, c->run, "no trainer is at work on it; `zenflow-console status %s` shows how it ended", c->run);
}

void zf_client_close(struct zf_client *c)
{
    zf_wire_close(&c->wire);
    free(c->run);
    c->run = NULL;
}

enum zf_status zf_client_ask(struct zf_client *c, int64_t id, const char *command, bool yes, struct zf_err *e)
{
    size_t size;
    json_t *o = json_pack("{sI ss ss ss}", "id", (json_int_t)id, "command", command, "by", c->by, "user", c->user);
    if (o && yes) json_object_set_new(o, "yes", json_true());
    char *text = zf_jsonl_text(o, &size);
    json_decref(o);
    if (!text) return zf_fail(e, ZF_USAGE, NULL, "the command is no UTF-8 text");
    bool fits = size <= ZF_WIRE_REQUEST_MOST && zf_wire_queue(&c->wire, text, size, 0);
    free(text);
    if (!fits) return zf_fail(e, ZF_USAGE, NULL, "the command is too long; at most 64 KiB are expected");
    double until = zf_clock() + 5;
    while (zf_wire_queued(&c->wire)) {
        if (zf_wire_flush(&c->wire)) return zf_fail(e, ZF_BUSY, c->run, "the trainer has closed the connection");
        if (zf_wire_queued(&c->wire) && zf_clock() > until)
            return zf_fail(e, ZF_IO, c->run, "the trainer does not read what is sent to it");
        if (zf_wire_queued(&c->wire)) zf_wire_wait(&c->wire, 0.1);
    }
    return ZF_OK;
}

json_t *zf_client_next(struct zf_client *c)
{
    char *line;
    size_t size;
    enum zf_wire_line found;
    while ((found = zf_wire_line(&c->wire, &line, &size)) != ZF_WIRE_NONE) {
        json_t *o = found == ZF_WIRE_LINE ? json_loadb(line, size, JSON_ALLOW_NUL, NULL) : NULL;
        if (json_is_object(o)) return o;
        json_decref(o);
    }
    return NULL;
}
