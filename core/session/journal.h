/* RUN/journal.jsonl: what happened to a run, append-only, each line durable before it is answered for.
 *
 * Entries are objects with "type": start and resume (an attempt begins, but for a `load`), export, checkpoint, change (of options), at (a
 * command that is put off), command (any other that does something), end (with "reason": done|stopped|signal|error). Whatever has a step
 * says so in "step". "time" (UTC) is added here. One writer, the holder of RUN/lock; any of its threads. */
#ifndef ZF_SESSION_JOURNAL_H
#define ZF_SESSION_JOURNAL_H

#include "core/base/err.h"
#include "core/base/json.h"
#include <stdbool.h>
#include <stddef.h>

struct zf_journal;

enum zf_status zf_journal_open(struct zf_journal **out, const char *run, struct zf_err *e);
/* Steals the reference, also on failure; NULL is a failure. ZF_IO: not durable, nothing of it is left. */
enum zf_status zf_journal_append(struct zf_journal *j, json_t *stolen, struct zf_err *e);
size_t zf_journal_count(struct zf_journal *j); /* entries that it has now */
void zf_journal_close(struct zf_journal *j);

/* All entries as an array (new reference). A torn last line is passed over; *bad (may be NULL) counts such. No journal: ZF_IO. */
enum zf_status zf_journal_read(json_t **out, const char *run, size_t *bad, struct zf_err *e);

/* Of a run that went to another checkpoint while it went on (`load`): a `resume`, but no attempt begins. "checkpoint", "step": which;
 * "journal": how many entries there were when that was written. What was written between them has no effect on what comes behind. */
bool zf_journal_is_load(const json_t *entry);

/* "2025-01-31T12:00:00.123Z" into buffer, returned. */
const char *zf_time_text(double wall, char *buffer, size_t size);

#endif
