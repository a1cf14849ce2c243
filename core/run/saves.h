/* The checkpoints that a run has: the .zfc files in RUN/checkpoints. The journal tells which of them belong to the run as it went in the
 * end: what was written after a step that the run was later taken back to is of another course. */
#ifndef ZF_RUN_SAVES_H
#define ZF_RUN_SAVES_H

#include "checkpoints/container.h"

bool zf_saves_is_file(const char *name); /* it ends in .zfc */
/* It is called as a run calls that of this step, step-NUMBER.zfc. */
bool zf_saves_is_own_name(const char *path, uint64_t *step);
/* It was reduced to its weights, as keep_weights asks for: enough to export, nothing to go on from. */
bool zf_saves_is_weights(const json_t *info);
double zf_saves_step(const char *path); /* of which step it is, by itself; -1: it does not say, or cannot be read */

/* The newest one of the run's course, opened and verified, all of it: of that step (NULL: of any), and with all its state unless `weights`
 * are enough. Damaged ones are passed over, with a warning on stderr. ZF_OK with *path NULL: there is none. path: to be freed; else
 * zf_ckpt_close(out), too. pool: NULL is fine. */
enum zf_status zf_saves_newest(struct zf_ckpt *out, char **path, const char *run, const uint64_t *step, bool weights, struct zf_pool *pool,
                               struct zf_err *e);
/* Of the run as it went in the end; of another course, which no start takes; of another run, put there by somebody. */
enum zf_saves_of { ZF_SAVES_OURS, ZF_SAVES_LEFT, ZF_SAVES_FOREIGN };
const char *zf_saves_where(enum zf_saves_of of); /* for people, in brackets; "": ours */
/* Each of them, whole or not, the newest first. The first failure ends it, and is returned. */
typedef enum zf_status zf_saves_visit(void *ctx, const char *path, enum zf_saves_of of, struct zf_err *e);
enum zf_status zf_saves_each(const char *run, zf_saves_visit *visit, void *ctx, struct zf_err *e);
/* What a person calls one: the file's name with or without .zfc, a step, or a path (with a slash). To be freed. fork: up to which step its
 * course and the run's are the same; UINT64_MAX: not known. ZF_USAGE: there is none, and which there are. */
enum zf_status zf_saves_find(char **path, uint64_t *fork, const char *run, const char *word, struct zf_err *e);
/* "last, step-00000500", the newest first; "none yet". To be freed; NULL: no memory. */
char *zf_saves_names(const char *run);
/* A checkpoint by this path was asked for, and there is no such file: ZF_USAGE, and which ones its run has. */
enum zf_status zf_saves_missing(const char *path, struct zf_err *e);
/* How many entries the journal had when the state was taken that is in this file: as it says itself, or as its entry or its time does. */
size_t zf_saves_written(const json_t *entries, const char *path, const json_t *info);
/* Takes away what is left of checkpoints whose trainer died while it wrote them. Under the run's lock. */
void zf_saves_sweep(const char *run);
/* Of those that the run named itself, step-NUMBER.zfc, and wrote itself, the `keep` newest whole ones stay, the `keep_weights` after them
 * with their weights only; the others go. Of those of another course as many stay. Nothing happens where there is none to go on from. Any
 * thread, one at a time. */
void zf_saves_keep(const char *run, size_t keep, size_t keep_weights);
/* A line each, the newest first: "good.zfc  step 500  12.3 MiB  2026-01-31 12:00:00". To be freed; NULL: no memory. */
char *zf_saves_list(const char *run);

#endif
