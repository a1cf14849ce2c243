/* Looks at the GPU once a second while a run goes on: `gpu` lines in metrics.jsonl and on the socket. */
#ifndef ZF_RUN_GPU_H
#define ZF_RUN_GPU_H

#include "core/telemetry/metrics.h"

struct zf_gpu_watch; /* a thread */

/* bus: of the GPU. ZF_IO: nothing can be told of it, and why; a run goes on without. */
enum zf_status zf_gpu_watch_start(struct zf_gpu_watch **out, const char *bus, struct zf_metrics *m, struct zf_err *e);
void zf_gpu_watch_stop(struct zf_gpu_watch *w); /* before the metrics are closed; NULL is fine */

#endif
