/* The trainer's door: a thread that serves clients on RUN/control.sock.
 *
 * Requests come as lines {"id":…,"command":"…"} (also "yes": no question is asked; "user", "by": who it is); their answers are {"id":…,
 * "ok":…,"text":…} (also "ask": true where a yes would help). What can be answered at once is, by the thread itself; the rest waits in a
 * bounded queue for the trainer's thread. Telemetry lines go to every client; a new one gets the `start` line and the last lines first.
 *
 * Nothing here makes the trainer wait: a client that does not read loses lines, which is counted and told to it, and is dropped when not
 * even answers fit; one that sends no requests but garbage, or sends faster than anybody types, is told, then throttled or dropped.
 * Functions marked T are the trainer's thread's; `at_once` is called in the control thread. */
#ifndef ZF_SESSION_CONTROL_H
#define ZF_SESSION_CONTROL_H

#include "core/base/err.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zf_control;

struct zf_request {
    uint64_t client;
    json_t *id;
    char *command;
    bool yes;
    char user[64], by[16]; /* by: console or send */
    struct zf_request *next;
};

struct zf_control_hooks {
    void *ctx;
    /* The answer (to be freed), or NULL: it is for the trainer's thread. */
    char *(*at_once)(void *ctx, const struct zf_request *r, bool *ok);
};

/* ZF_IO: no socket could be made. */
enum zf_status zf_control_start(struct zf_control **out, const char *run, const struct zf_control_hooks *hooks, struct zf_err *e);
const char *zf_control_path(const struct zf_control *c); /* of the socket */
void zf_control_stop(struct zf_control *c);              /* T. Sends what is queued to those who read; NULL is fine */

/* T. The oldest waiting request, NULL: none. Each one is to be answered, which frees it. */
struct zf_request *zf_control_next(struct zf_control *c);
void zf_control_wait(struct zf_control *c, double seconds); /* T. Until a request is there */
void zf_control_answer(struct zf_control *c, struct zf_request *stolen, bool ok, bool ask, const char *text);

/* T. A line for all clients; with its newline. Those that begin with {"type":"start" are kept for new clients, {"type":"lanes" never. */
void zf_control_publish(struct zf_control *c, const char *line, size_t size);

bool zf_control_has(struct zf_control *c, uint64_t client); /* is it still there? 0: nobody */
unsigned zf_control_clients(struct zf_control *c);
uint64_t zf_control_lost(struct zf_control *c); /* lines that clients did not get */

#endif
