/* A run's checkpoints (checkpoints/container.h): one file has everything that the run needs to go on with the same bits, whatever its
 * strategy. When one is written, by whom it was asked for, and what is told of it; save_file.c writes it, and reads it.
 *
 * In the middle of a run training goes on while one is written (core/pipeline/state.h): one at a time, others wait for their turn. Where
 * there is no memory for a copy of what training alters, and at the ends of a run, training waits. All functions: the trainer's thread. */
#ifndef ZF_RUN_SAVE_H
#define ZF_RUN_SAVE_H

#include "checkpoints/container.h"
#include "core/pipeline/state.h"

struct zf_trainer;

/* Written when it returns, whatever was under way before it as well; of a moment that is saved already nothing is written. */
enum zf_status zf_trainer_save(struct zf_trainer *t, struct zf_err *e);
/* What the run is now is in a file of this process that is still there: somebody may have moved it away. */
bool zf_save_is_done(const struct zf_trainer *t);
/* By a command: as RUN/checkpoints/step-00000500.zfc, or as NAME.zfc there. Begins, or waits for its turn (scripted: at once, training
 * waits for it); text: the answer for those who do not wait for the end, which zf_session_answered tells. */
enum zf_status zf_save_command(struct zf_trainer *t, const char *name, bool scripted, char *text, size_t room, struct zf_err *e);
/* save_name.c. NULL is fine: the run's own name for it. */
enum zf_status zf_save_check_name(const char *name, struct zf_err *e);
/* Would it replace one that is there, or about to be? text: which. A script that comes to the same step again replaces its own. */
bool zf_save_replaces(const struct zf_trainer *t, const char *name, bool scripted, char *text, size_t room);
/* In the middle of a run: a full disk costs this checkpoint, not the run. It is tried again after some steps, more and more of them. Waits.
 */
bool zf_save_or_warn(struct zf_trainer *t);
void zf_save_due(struct zf_trainer *t);   /* after a step: save_every, save_minutes, SIGUSR1, what failed before */
void zf_save_idle(struct zf_trainer *t);  /* while the run waits, a few times a second: SIGUSR1 and commands alone */
void zf_save_end(struct zf_trainer *t);   /* waits for what is under way and what waits for its turn */
void zf_save_close(struct zf_trainer *t); /* the same, unless the run is another trainer's by now; then gives all memory back */

#endif
