/* `load`: a run that is paused goes to the state of one of its checkpoints, in the same process, with the same bits as a start from it. */
#ifndef ZF_RUN_LOAD_H
#define ZF_RUN_LOAD_H

#include "core/run/trainer.h"

/* What is lost by it, for who has not said yes; false: it cannot be done, and zf_load says why. */
bool zf_load_loses(const struct zf_trainer *t, const char *word, char *text, size_t room);
/* The checkpoint that c names. text: the answer. What is refused, and whatever fails until the journal has it, leaves all as it is; later
 * the run cannot go on (zf_session_breaks, t->broken), and its next start goes on from that checkpoint. */
enum zf_status zf_load(struct zf_trainer *t, const struct zf_command *c, char *text, size_t room, struct zf_err *e);

#endif
