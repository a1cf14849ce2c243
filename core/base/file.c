#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum zf_status zf_file_open(int *fd, struct stat *st, const char *path, struct zf_err *e)
{
    /* O_NONBLOCK: a FIFO must not hang us; it is refused below. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return zf_fail_errno(e, path, "cannot open it");
    if (fstat(*fd, st)) {
        zf_fail_errno(e, path, "cannot stat it");
    } else if (!S_ISREG(st->st_mode)) {
        zf_fail(e, ZF_IO, path, "it is %s; a regular file is needed", S_ISDIR(st->st_mode) ? "a directory" : "no regular file");
    } else {
        return ZF_OK;
    }
    close(*fd);
    return e->code;
}

enum zf_status zf_map_open(struct zf_map *out, const char *path, struct zf_err *e)
{
    struct stat st;
    int fd;
    *out = (struct zf_map){0};
    ZF_TRY(zf_file_open(&fd, &st, path, e));
    void *p = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (p == MAP_FAILED) {
        bool memory = errno == ENOMEM;
        zf_fail_errno(e, path, "cannot map its %lld bytes", (long long)st.st_size);
        if (memory) e->code = ZF_MEMORY;
    }
    close(fd);
    if (p == MAP_FAILED) return e->code;
    *out = (struct zf_map){p, (size_t)st.st_size};
    return ZF_OK;
}

void zf_map_close(struct zf_map *m)
{
    if (m->data) munmap((void *)(size_t)m->data, m->size);
    *m = (struct zf_map){0};
}

void zf_map_pages(const struct zf_map *m, const unsigned char *from, size_t bytes, bool done)
{
    size_t at = (size_t)(from - m->data), page = (size_t)sysconf(_SC_PAGESIZE);
    if (!m->data || at > m->size) return;
    if (bytes > m->size - at) bytes = m->size - at;
    madvise((void *)((size_t)from - at % page), bytes + at % page, done ? MADV_DONTNEED : MADV_WILLNEED);
}

enum zf_status zf_file_read(char **out, size_t *size, const char *path, size_t limit, struct zf_err *e)
{
    struct stat st;
    int fd;
    *out = NULL;
    ZF_TRY(zf_file_open(&fd, &st, path, e));
    size_t have = 0, room = (size_t)st.st_size + 1;
    char *text = NULL;
    if ((size_t)st.st_size > limit) {
        zf_fail(e, ZF_FORMAT, path, "it has %lld bytes; at most %zu are expected here", (long long)st.st_size, limit);
    } else if (!(text = malloc(room + 1))) {
        zf_fail_memory(e, path);
    } else {
        e->code = ZF_OK;
        while (have < room) { /* one byte more than the size: a file that grows is read as it was */
            ssize_t n = read(fd, text + have, room - have);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) zf_fail_errno(e, path, "cannot read it");
            if (n <= 0) break;
            have += (size_t)n;
        }
        if (have > (size_t)st.st_size) have = (size_t)st.st_size;
    }
    close(fd);
    if (!text || e->code != ZF_OK) {
        free(text);
        return e->code;
    }
    text[have] = 0;
    *out = text;
    if (size) *size = have;
    return ZF_OK;
}

enum zf_status zf_write_all(int fd, const void *data, size_t size, const char *path, struct zf_err *e)
{
    const char *p = data;
    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return zf_fail_errno(e, path, "cannot write to it");
        p += n;
        size -= (size_t)n;
    }
    return ZF_OK;
}

enum zf_status zf_file_sync_directory(const char *path, struct zf_err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return zf_fail_errno(e, path, "cannot open the directory");
    int failed = fsync(fd) && errno != EINVAL; /* EINVAL: a file system without it */
    if (failed) zf_fail_errno(e, path, "cannot sync the directory");
    close(fd);
    return failed ? ZF_IO : ZF_OK;
}

enum zf_status zf_file_begin(struct zf_replacement *out, const char *path, struct zf_err *e)
{
    *out = (struct zf_replacement){.path = path, .fd = -1};
    if (asprintf(&out->beside, "%s.tmp-%ld", path, (long)getpid()) < 0) {
        out->beside = NULL;
        return zf_fail_memory(e, path);
    }
    out->fd = open(out->beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (out->fd >= 0) return ZF_OK;
    zf_fail_errno(e, path, "cannot create it");
    free(out->beside);
    out->beside = NULL;
    return e->code;
}

enum zf_status zf_file_end(struct zf_replacement *r, enum zf_status s, struct zf_err *e)
{
    char *directory = zf_path_directory(r->path);
    if (!s && !directory) s = zf_fail_memory(e, r->path);
    if (!s && fsync(r->fd)) s = zf_fail_errno(e, r->path, "cannot sync it");
    if (close(r->fd) && !s) s = zf_fail_errno(e, r->path, "cannot close it");
    if (!s && rename(r->beside, r->path)) s = zf_fail_errno(e, r->path, "cannot rename %s to it", r->beside);
    if (s)
        unlink(r->beside);
    else
        s = zf_file_sync_directory(directory, e);
    free(directory);
    free(r->beside);
    return s;
}

enum zf_status zf_file_write_atomic(const char *path, const void *data, size_t size, struct zf_err *e)
{
    struct zf_replacement r;
    ZF_TRY(zf_file_begin(&r, path, e));
    return zf_file_end(&r, zf_write_all(r.fd, data, size, path, e), e);
}

enum zf_status zf_file_copy(const char *from, const char *to, struct zf_err *e)
{
    struct zf_map m;
    ZF_TRY(zf_map_open(&m, from, e));
    enum zf_status s = zf_file_write_atomic(to, m.data, m.size, e);
    zf_map_close(&m);
    return s;
}

bool zf_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool zf_directory_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum zf_status zf_directory_make(const char *path, unsigned mode, struct zf_err *e)
{
    char *p = strdup(path);
    if (!p) return zf_fail_memory(e, path);
    enum zf_status s = ZF_OK;
    for (char *at = p + 1; !s; at++) {
        if (*at && *at != '/') continue;
        char end = *at;
        *at = 0;
        if (!zf_directory_exists(p) && mkdir(p, mode) && errno != EEXIST) s = zf_fail_errno(e, p, "cannot make the directory");
        *at = end;
        if (!end) break;
    }
    if (!s && !zf_directory_exists(path)) s = zf_fail(e, ZF_IO, path, "it exists and is no directory");
    free(p);
    return s;
}

char *zf_path_join(const char *directory, const char *name)
{
    size_t n = strlen(directory);
    char *p = malloc(n + strlen(name) + 2);
    if (!p) return NULL;
    if (name[0] == '/' || !n)
        strcpy(p, name);
    else
        sprintf(p, "%s%s%s", directory, directory[n - 1] == '/' ? "" : "/", name);
    return p;
}

char *zf_path_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

const char *zf_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

uint64_t zf_file_room(const char *path)
{
    struct statvfs disk;
    char *at = strdup(path);
    bool known = at && !statvfs(at, &disk);
    while (at && !known && strrchr(at, '/') > at) { /* the nearest folder that exists */
        *strrchr(at, '/') = 0;
        known = !statvfs(at, &disk);
    }
    if (at && !known) known = !statvfs(*path == '/' ? "/" : ".", &disk);
    free(at);
    return known && disk.f_blocks ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX; /* there are file systems that count nothing */
}
