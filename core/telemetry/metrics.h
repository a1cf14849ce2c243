/* RUN/metrics.jsonl. Nothing that goes wrong here ever stops training: a line that cannot be written is dropped and counted, the next one
 * is tried. Owner: the trainer; any thread writes lines. The program ignores SIGXFSZ and SIGPIPE (a file size limit is an error code then,
 * no death). */
#ifndef ZF_TELEMETRY_METRICS_H
#define ZF_TELEMETRY_METRICS_H

#include "core/base/err.h"
#include "core/base/json.h"
#include <stddef.h>
#include <stdint.h>

struct zf_metrics;

/* For a run that goes on from step `step`: what comes after that step is moved to metrics.cut-N.jsonl beside it, N the first number that is
 * free; changes from the next step on, too, if they were made after the state was taken, when the file had `size` bytes. No file: nothing
 * to do. */
enum zf_status zf_metrics_cut(const char *path, uint64_t step, uint64_t size, struct zf_err *e);
/* Appends to what is there; a torn last line is cut off. */
enum zf_status zf_metrics_open(struct zf_metrics **out, const char *path, struct zf_err *e);
/* One line, one write(2). Steals the reference; NULL (no memory) counts as dropped. m may be NULL: nothing is written. */
void zf_metrics_write(struct zf_metrics *m, json_t *stolen);
/* Every line goes to `fn`, too, whether it could be written or not; with its newline. */
void zf_metrics_listen(struct zf_metrics *m, void (*fn)(void *ctx, const char *line, size_t size), void *ctx);
uint64_t zf_metrics_size(const struct zf_metrics *m); /* bytes of the file now; 0: not known */
size_t zf_metrics_dropped(struct zf_metrics *m);
const char *zf_metrics_why(struct zf_metrics *m); /* why the last dropped line was dropped; "" */
void zf_metrics_close(struct zf_metrics *m);

#endif
