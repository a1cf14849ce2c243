/* Files: mapping, reading whole, writing so that a reader sees the old or the new content, never half of one. */
#ifndef ZF_BASE_FILE_H
#define ZF_BASE_FILE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What cannot be read is no model and no data, whatever the reason: ZF_IO becomes ZF_FORMAT. Returns the code. */
static inline enum zf_status zf_unreadable(struct zf_err *e)
{
    if (e->code == ZF_IO) e->code = ZF_FORMAT;
    return e->code;
}

/* Opens a regular file for reading; ZF_IO. Never blocks. The descriptor is the caller's. */
struct stat;
enum zf_status zf_file_open(int *fd, struct stat *st, const char *path, struct zf_err *e);

/* A read-only view of a file. data is NULL when the file is empty. */
struct zf_map {
    const unsigned char *data;
    size_t size;
};

enum zf_status zf_map_open(struct zf_map *out, const char *path, struct zf_err *e); /* as zf_file_open */
void zf_map_close(struct zf_map *m);
/* Advice: the pages behind `bytes` bytes from `from` on will be wanted soon, or are done with and may leave this process. */
void zf_map_pages(const struct zf_map *m, const unsigned char *from, size_t bytes, bool done);

/* The whole file, NUL-terminated, to be freed. More than `limit` bytes is ZF_FORMAT. *size may be NULL. */
enum zf_status zf_file_read(char **out, size_t *size, const char *path, size_t limit, struct zf_err *e);

/* The one way in which a file of ours appears: written beside its name, fsync, rename, fsync of the directory. begin opens `beside` (fd);
 * end makes it `path` if status is ZF_OK, else removes it, and returns what came of it. After a failed begin there is nothing to end. */
struct zf_replacement {
    const char *path; /* the caller's; must stay */
    char *beside;
    int fd;
};
enum zf_status zf_file_begin(struct zf_replacement *out, const char *path, struct zf_err *e);
enum zf_status zf_file_end(struct zf_replacement *r, enum zf_status status, struct zf_err *e);
enum zf_status zf_file_write_atomic(const char *path, const void *data, size_t size, struct zf_err *e);
enum zf_status zf_file_copy(const char *from, const char *to, struct zf_err *e); /* atomic as well */
enum zf_status zf_file_sync_directory(const char *path, struct zf_err *e);

/* Bytes free for this user where path is, or, if it does not exist yet, where its folder will be made. UINT64_MAX: nobody knows. */
uint64_t zf_file_room(const char *path);

bool zf_file_exists(const char *path);
bool zf_directory_exists(const char *path);
enum zf_status zf_directory_make(const char *path, unsigned mode, struct zf_err *e); /* with parents; existing is fine */

/* "a/b" + "c" -> "a/b/c"; an absolute name stands for itself. To be freed; NULL = no memory. */
char *zf_path_join(const char *directory, const char *name);
char *zf_path_directory(const char *path);  /* "a/b" -> "a", "b" -> "."; to be freed */
const char *zf_path_name(const char *path); /* "a/b" -> "b", in place */

/* All of `size` bytes, over short writes and EINTR. */
enum zf_status zf_write_all(int fd, const void *data, size_t size, const char *path, struct zf_err *e);

#endif
