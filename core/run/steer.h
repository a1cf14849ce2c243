/* A trainer that is steered: its session, and what options stand for. Private to core/run. */
#ifndef ZF_RUN_STEER_H
#define ZF_RUN_STEER_H

#include "core/run/trainer.h"
#include "core/session/session.h"

struct zf_schedule zf_schedule_of(const struct zf_options *o);
struct zf_adam_rule zf_rule_of(const struct zf_options *o);
/* Memory under another policy, with the micro-batches of now: ZF_MEMORY and numbers where it is not enough. */
enum zf_status zf_steer_memory(const struct zf_trainer *t, const struct zf_policy *policy, struct zf_err *e);
/* The loader anew, from `step` to the run's end. */
enum zf_status zf_trainer_feed(struct zf_trainer *t, struct zf_err *e);

/* Opens the session and its socket; live: the options that commands change. Journal, metrics and lock are there. unheard: why there is no
 * socket, "" if there is one. */
enum zf_status zf_steer_open(struct zf_trainer *t, struct zf_options *live, char *unheard, size_t size, struct zf_err *e);
/* Pauses because a step was not finite: for a client's `resume` or `stop`, or until nobody has come within `grace` (ZF_NUMERIC). */
void zf_steer_ask(struct zf_trainer *t);
void zf_steer_told(struct zf_trainer *t, const struct zf_step_record *r); /* after a step */

#endif
