/* What talks to a run that goes on: send, attach, following it from its files. */
#ifndef ZF_RUN_REMOTE_H
#define ZF_RUN_REMOTE_H

#include "core/base/err.h"
#include "core/base/args.h"
#include "core/telemetry/eta.h"
#include "core/telemetry/plain.h"

#include <jansson.h>
#include <signal.h>

enum zf_status zf_command_send(struct zf_args *a, struct zf_err *e);
enum zf_status zf_command_attach(struct zf_args *a, struct zf_err *e);

/* Progress lines on stdout of a run that another process trains, from its files; ends with the run, and with its code, or with ZF_OK at
 * SIGINT or SIGTERM (the run goes on). */
enum zf_status zf_follow(const char *run, double plain_every, struct zf_err *e);

/* For those who only watch: SIGINT and SIGTERM set zf_left. */
extern volatile sig_atomic_t zf_left;
void zf_leave_on_signals(void);

/* Lines of metrics.jsonl as the lines that a person wants. */
struct zf_printer {
    struct zf_plain plain;
    struct zf_eta eta;
    uint64_t steps;
    bool ended;
    enum zf_status code; /* of the run, once it has ended */
};
void zf_printer_init(struct zf_printer *p, const char *run, double plain_every);
void zf_printer_line(struct zf_printer *p, const json_t *line);

#endif
