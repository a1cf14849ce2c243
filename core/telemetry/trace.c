/* See trace.h. */
#include "core/telemetry/trace.h"
#include "core/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct zf_trace {
    struct zf_replacement file;
    char *path;
    FILE *to;
    double origin;
    bool any; /* an event stands there already */
};

enum zf_status zf_trace_open(struct zf_trace **out, const char *path, double origin, struct zf_err *e)
{
    struct zf_trace *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return zf_fail_memory(e, path);
    t->origin = origin;
    t->path = strdup(path);
    enum zf_status s = t->path ? zf_file_begin(&t->file, t->path, e) : zf_fail_memory(e, path);
    if (!s) {
        int fd = dup(t->file.fd);
        t->to = fd < 0 ? NULL : fdopen(fd, "w");
        if (!t->to) {
            if (fd >= 0) close(fd);
            s = zf_file_end(&t->file, zf_fail_errno(e, path, "cannot write it"), e);
        }
    }
    if (s) {
        free(t->path);
        free(t);
        return s;
    }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->to);
    *out = t;
    return ZF_OK;
}

static void text(FILE *to, const char *s)
{
    putc('"', to);
    for (; *s; s++) {
        if ((unsigned char)*s < ' ')
            fprintf(to, "\\u%04x", (unsigned)(unsigned char)*s);
        else if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else
            putc(*s, to);
    }
    putc('"', to);
}

static void begin(struct zf_trace *t, char kind, int track, const char *name)
{
    fprintf(t->to, "%s\n{\"ph\":\"%c\",\"pid\":1,\"tid\":%d,\"name\":", t->any ? "," : "", kind, track);
    text(t->to, name);
    t->any = true;
}

void zf_trace_track(struct zf_trace *t, int track, const char *name)
{
    begin(t, 'M', track, "thread_name");
    fputs(",\"args\":{\"name\":", t->to);
    text(t->to, name);
    fputs("}}", t->to);
    begin(t, 'M', track, "thread_sort_index");
    fprintf(t->to, ",\"args\":{\"sort_index\":%d}}", track);
}

void zf_trace_span(struct zf_trace *t, int track, const char *name, const char *category, bool wait, double start, double end, double work)
{
    begin(t, 'X', track, name);
    fputs(",\"cat\":", t->to);
    text(t->to, wait ? "wait" : category);
    fprintf(t->to, ",\"ts\":%.3f,\"dur\":%.3f", 1e6 * (start - t->origin), 1e6 * (end - start));
    if (wait)
        fputs(",\"cname\":\"terrible\"", t->to);
    else if (work < 0.98 * (end - start))
        fprintf(t->to, ",\"args\":{\"work_us\":%.3f}", 1e6 * work);
    putc('}', t->to);
}

void zf_trace_mark(struct zf_trace *t, const char *name, double at)
{
    begin(t, 'i', 0, name);
    fprintf(t->to, ",\"cat\":\"step\",\"s\":\"g\",\"ts\":%.3f}", 1e6 * (at - t->origin));
}

size_t zf_trace_size(const struct zf_trace *t)
{
    off_t at = ftello(t->to);
    return at > 0 ? (size_t)at : 0;
}

enum zf_status zf_trace_close(struct zf_trace *t, struct zf_err *e)
{
    fputs("\n]}\n", t->to);
    bool broken = ferror(t->to) != 0;
    broken |= fclose(t->to) != 0;
    enum zf_status s = zf_file_end(&t->file, broken ? zf_fail_errno(e, t->path, "cannot write it") : ZF_OK, e);
    free(t->path);
    free(t);
    return s;
}

void zf_trace_discard(struct zf_trace *t)
{
    struct zf_err ignored;
    if (!t) return;
    fclose(t->to);
    zf_file_end(&t->file, ZF_IO, &ignored);
    free(t->path);
    free(t);
}
