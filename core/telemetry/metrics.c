/* See metrics.h. */
#include "core/telemetry/metrics.h"
#include "core/telemetry/jsonl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct zf_metrics {
    pthread_mutex_t lock; /* over all of it */
    struct zf_jsonl file;
    size_t dropped;
    int error;
    void (*listener)(void *ctx, const char *line, size_t size);
    void *ctx;
};

enum zf_status zf_metrics_open(struct zf_metrics **out, const char *path, struct zf_err *e)
{
    *out = NULL;
    struct zf_metrics *m = calloc(1, sizeof *m);
    if (!m) return zf_fail_memory(e, path);
    enum zf_status s = zf_jsonl_open(&m->file, path, e);
    if (s) {
        free(m);
        return s;
    }
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return ZF_OK;
}

void zf_metrics_write(struct zf_metrics *m, json_t *stolen)
{
    if (m) {
        size_t size;
        char *text = zf_jsonl_text(stolen, &size);
        pthread_mutex_lock(&m->lock);
        int error = text ? zf_jsonl_append(&m->file, text, size) : ENOMEM;
        if (error) {
            m->error = error;
            m->dropped++;
        }
        if (text && m->listener) m->listener(m->ctx, text, size);
        pthread_mutex_unlock(&m->lock);
        free(text);
    }
    json_decref(stolen);
}

void zf_metrics_listen(struct zf_metrics *m, void (*fn)(void *ctx, const char *line, size_t size), void *ctx)
{
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->listener = fn;
    m->ctx = ctx;
    pthread_mutex_unlock(&m->lock);
}

uint64_t zf_metrics_size(const struct zf_metrics *m)
{
    struct stat st;
    return m && !fstat(m->file.fd, &st) ? (uint64_t)st.st_size : 0;
}

size_t zf_metrics_dropped(struct zf_metrics *m)
{
    if (!m) return 0;
    pthread_mutex_lock(&m->lock);
    size_t dropped = m->dropped;
    pthread_mutex_unlock(&m->lock);
    return dropped;
}

const char *zf_metrics_why(struct zf_metrics *m)
{
    if (!m) return "";
    pthread_mutex_lock(&m->lock);
    int error = m->error;
    pthread_mutex_unlock(&m->lock);
    return error ? strerror(error) : "";
}

void zf_metrics_close(struct zf_metrics *m)
{
    if (!m) return;
    zf_jsonl_close(&m->file);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
