/* A timeline as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open: JSON in Chrome's trace event format. One track a lane;
 * waits in a category and a colour of their own; steps as marks across all tracks. The file appears when it is complete. One thread. */
#ifndef ZF_TELEMETRY_TRACE_H
#define ZF_TELEMETRY_TRACE_H

#include "core/base/err.h"
#include <stdbool.h>

struct zf_trace;

/* origin: the clock's time that the file calls 0. */
enum zf_status zf_trace_open(struct zf_trace **out, const char *path, double origin, struct zf_err *e);
void zf_trace_track(struct zf_trace *t, int track, const char *name);
/* work: seconds of it that were work, shown where they are fewer than it lasted. */
void zf_trace_span(struct zf_trace *t, int track, const char *name, const char *category, bool wait, double start, double end, double work);
void zf_trace_mark(struct zf_trace *t, const char *name, double at);
size_t zf_trace_size(const struct zf_trace *t); /* bytes so far */
/* Completes the file, or removes what there is of it. Frees the trace either way. */
enum zf_status zf_trace_close(struct zf_trace *t, struct zf_err *e);
void zf_trace_discard(struct zf_trace *t); /* NULL is fine */

#endif
