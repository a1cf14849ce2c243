/* See gpu.h. */
#include "core/run/gpu.h"

#include "core/base/pool.h"
#include "core/telemetry/jsonl.h"
#include "kernels/nvml.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct zf_gpu_watch {
    struct zf_nvml *nvml;
    struct zf_metrics *metrics;
    pthread_t thread;
    pthread_mutex_t lock; /* over stop */
    pthread_cond_t moved;
    bool stop;
};

/* What it does not tell is absent, and `refused` says why. */
static json_t *gpu_line(struct zf_nvml *n)
{
    struct zf_nvml_value v[ZF_NVML_SAMPLES];
    json_t *o = json_pack("{s:s s:i}", "type", "gpu", "index", 0), *refused = json_object();
    zf_nvml_sample(n, v);
    for (int i = 0; i < ZF_NVML_SAMPLES; i++) {
        const char *name = zf_nvml_sample_name((enum zf_nvml_sampled)i);
        if (v[i].why)
            json_object_set_new(refused, name, json_string(v[i].why));
        else
            json_object_set_new(o, name, zf_json_real(v[i].value));
    }
    if (json_object_size(refused)) json_object_set(o, "refused", refused);
    json_decref(refused);
    return o;
}

static void *look(void *arg)
{
    struct zf_gpu_watch *w = arg;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        pthread_mutex_unlock(&w->lock);
        zf_metrics_write(w->metrics, gpu_line(w->nvml));
        next.tv_sec++;
        pthread_mutex_lock(&w->lock);
        while (!w->stop && !pthread_cond_timedwait(&w->moved, &w->lock, &next)) {
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum zf_status zf_gpu_watch_start(struct zf_gpu_watch **out, const char *bus, struct zf_metrics *m, struct zf_err *e)
{
    struct zf_gpu_watch *w = calloc(1, sizeof *w);
    pthread_condattr_t monotonic;
    *out = NULL;
    if (!w) return zf_fail_memory(e, "the GPU's figures");
    w->metrics = m;
    enum zf_status s = zf_nvml_open(&w->nvml, bus, e);
    if (s) {
        free(w);
        return s;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!zf_thread_start(&w->thread, look, w)) {
        pthread_setname_np(w->thread, "gpu");
        *out = w;
        return ZF_OK;
    }
    zf_nvml_close(w->nvml);
    free(w);
    return zf_fail(e, ZF_MEMORY, NULL, "the system refused a thread for the GPU's figures");
}

void zf_gpu_watch_stop(struct zf_gpu_watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->moved);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    zf_nvml_close(w->nvml);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->moved);
    free(w);
}
