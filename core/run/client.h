/* Finding a run's trainer and talking to it: for `send` and `attach`. */
#ifndef ZF_RUN_CLIENT_H
#define ZF_RUN_CLIENT_H

#include "core/base/err.h"
#include "core/session/lock.h"
#include "core/wire/wire.h"

#include <jansson.h>
#include <stdbool.h>

struct zf_client {
    char *run; /* the run directory */
    enum zf_lock_state state;
    struct zf_lock_record holder;
    bool elsewhere; /* the trainer is on another machine: only its files can be reached */
    struct zf_wire wire;
    const char *by; /* console or send */
    char user[64];
};

/* argument: a run directory or a run.cfg; NULL: the newest live run below ./runs, ZF_BUSY if there is none. Does not connect. */
enum zf_status zf_client_find(struct zf_client *c, const char *argument, struct zf_err *e);
/* ZF_BUSY: nobody there, or on another machine: then how to reach it. A trainer that is just starting is waited for, `seconds` at most. */
enum zf_status zf_client_connect(struct zf_client *c, double seconds, struct zf_err *e);
void zf_client_close(struct zf_client *c);

enum zf_status zf_client_ask(struct zf_client *c, int64_t id, const char *command, bool yes, struct zf_err *e);
/* The next line of the trainer (new reference), NULL: none yet. */
json_t *zf_client_next(struct zf_client *c);

/* "ssh HOST zenflow-console WHAT RUN" */
void zf_client_ssh(const struct zf_client *c, const char *what, char *out, size_t size);

#endif
