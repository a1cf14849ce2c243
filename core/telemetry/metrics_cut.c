/* Taking steps back: see metrics.h. */
#include "core/base/file.h"
#include "core/telemetry/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number of a line, as our own writer puts it. -1: it is not there. */
static double number_of(const char *line, size_t size, const char *name)
{
    const char *at = memmem(line, size, name, strlen(name));
    char digits[24] = "";
    if (!at) return -1;
    at += strlen(name);
    for (size_t n = 0; n < sizeof digits - 1 && at < line + size && *at >= '0' && *at <= '9'; n++) digits[n] = *at++;
    return *digits ? strtod(digits, NULL) : -1;
}

static bool begins(const char *line, size_t size, const char *begin)
{
    return size >= strlen(begin) && !memcmp(line, begin, strlen(begin));
}

/* Where the first line begins that is of a later step, or of a change that was made before the next step but after this one was saved: it
 * is made again. */
static size_t find_cut(const struct zf_map *m, uint64_t step, uint64_t saved)
{
    size_t change = m->size;
    for (size_t at = 0; at < m->size;) {
        const char *line = (const char *)m->data + at, *end = memchr(line, '\n', m->size - at);
        size_t size = end ? (size_t)(end - line) : m->size - at;
        double of = number_of(line, size < 64 ? size : 64, "\"step\":"); /* behind the type */
        if (of > (double)step) return at < change ? at : change;
        if (change == m->size && at >= saved && begins(line, size, "{\"type\":\"change\"") &&
            number_of(line, size, "\"from_step\":") > (double)step)
            change = at;
        at += size + 1;
    }
    return change;
}

static enum zf_status keep_tail(const char *path, const void *tail, size_t size, struct zf_err *e)
{
    char *folder = zf_path_directory(path), *name = NULL;
    int fd = -1;
    for (int i = 1; folder && fd < 0 && i < 100000; i++) {
        free(name);
        if (asprintf(&name, "%s/metrics.cut-%d.jsonl", folder, i) < 0) name = NULL;
        fd = name ? open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
        if (fd < 0 && (!name || errno != EEXIST)) break;
    }
    enum zf_status s = fd < 0 ? zf_fail_errno(e, name ? name : path, "cannot keep the lines of steps that are taken again")
                              : zf_write_all(fd, tail, size, name, e);
    if (!s && fsync(fd)) s = zf_fail_errno(e, name, "cannot sync it");
    if (fd >= 0) close(fd);
    if (s && fd >= 0) unlink(name);
    if (!s) s = zf_file_sync_directory(folder, e);
    free(folder);
    free(name);
    return s;
}

enum zf_status zf_metrics_cut(const char *path, uint64_t step, uint64_t saved, struct zf_err *e)
{
    struct zf_map m;
    if (!zf_file_exists(path)) return ZF_OK;
    ZF_TRY(zf_map_open(&m, path, e));
    size_t at = find_cut(&m, step, saved), rest = m.size - at;
    enum zf_status s = rest ? keep_tail(path, m.data + at, rest, e) : ZF_OK;
    zf_map_close(&m);
    if (s || !rest) return s;
    return truncate(path, (off_t)at) ? zf_fail_errno(e, path, "cannot cut the steps off that are taken again") : ZF_OK;
}
