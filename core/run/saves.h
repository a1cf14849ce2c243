/* The checkpoints that a run has: the .zfc files in RUN/checkpoints. The journal tells which of them belong to the run as it went in the
 * end: what was written after a step that the run was later taken back to is of another course. */
#ifndef ZF_RUN_SAVES_H
#define ZF_RUN_SAVES_H

#include "checkpoints/container.h"

bool zf_saves_is_file(const char *name); /* it ends in .zfc */

/* The newest one that is whole, opened and verified, all of it. Damaged ones are passed over; `note` is told about each. ZF_OK with *path
 * NULL: there is none. path: to be freed; else zf_ckpt_close(out), too. */
enum zf_status zf_saves_newest(struct zf_ckpt *out, char **path, const char *run, void (*note)(void *ctx, const struct zf_err *why),
                               void *ctx, struct zf_err *e);
void zf_saves_warn(void *ctx, const struct zf_err *why); /* such a `note`: a warning on stderr */
/* Each of them, whole or not, the newest first. left: of another course, which no start takes. The first failure ends it, and is returned.
 */
typedef enum zf_status zf_saves_visit(void *ctx, const char *path, bool left, struct zf_err *e);
enum zf_status zf_saves_each(const char *run, zf_saves_visit *visit, void *ctx, struct zf_err *e);
/* Takes away what is left of checkpoints whose trainer died while it wrote them. Under the run's lock. */
void zf_saves_sweep(const char *run);
/* Takes away all but the `keep` newest of those that the run named itself, step-NUMBER.zfc, and wrote itself; of those of another course as
 * many stay. */
void zf_saves_keep(const char *run, size_t keep);
/* A line each, the newest first: "step-00000500.zfc  12.3 MiB  2026-01-31 12:00:00". To be freed; NULL: no memory. */
char *zf_saves_list(const char *run);

#endif
