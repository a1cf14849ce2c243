/* Writing a run's checkpoints (checkpoints/container.h): one file has everything that the run needs to go on with the same bits, whatever
 * its strategy. Training waits while one is written. */
#ifndef ZF_RUN_SAVE_H
#define ZF_RUN_SAVE_H

#include "checkpoints/container.h"
#include "core/pipeline/state.h"

struct zf_trainer;

/* As RUN/checkpoints/step-00000500.zfc, or as NAME.zfc there; *out (may be NULL): where, to be freed. Older ones go that `keep` does not
 * keep. What fails leaves all others as they were. */
enum zf_status zf_trainer_save(struct zf_trainer *t, const char *name, char **out, struct zf_err *e);
/* In the middle of a run: a full disk costs this checkpoint, not the run. It is tried again after some steps, more and more of them. */
bool zf_save_or_warn(struct zf_trainer *t);
void zf_save_due(struct zf_trainer *t);   /* after a step: save_every, save_minutes, SIGUSR1, what failed before */
void zf_save_asked(struct zf_trainer *t); /* while the run waits: SIGUSR1 alone */

/* What writing and reading share: the type of a piece's tensor, and room for as many of its rows as are moved at once. */
struct zf_save_buffer {
    void *bytes;            /* owned by whoever has the struct */
    size_t room, rows, row; /* bytes; rows at once; bytes of a row */
};
enum zf_ckpt_type zf_save_type(enum zf_state_type t);
enum zf_status zf_save_room(const struct zf_state_piece *x, struct zf_save_buffer *b, struct zf_err *e);

#endif
