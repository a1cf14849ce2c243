/* Where rows are kept on disk. No state but the folder itself. */
#include "core/data/cache.h"

#include "core/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_DIGITS = 32, PID_DIGITS = 9 }; /* of a process: at most, less than an int */
static const uint64_t large = (uint64_t)32 << 20;
static const char digits[] = "0123456789abcdef";

bool zf_cache_used(const char *cache, uint64_t bytes)
{
    if (!cache || !*cache || !strcmp(cache, "no")) return false;
    return strcmp(cache, "auto") || bytes >= large;
}

static enum zf_status name_folder(char **out, const char *cache, struct zf_err *e)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (strcmp(cache, "auto"))
        *out = strdup(cache);
    else if (base && base[0] == '/')
        *out = zf_path_join(base, "zenflow-console");
    else if (home && home[0] == '/' && zf_directory_exists(home))
        *out = zf_path_join(home, ".cache/zenflow-console");
    else
        return zf_fail(e, ZF_IO, "cache", "there is no home folder (HOME%s%s); set XDG_CACHE_HOME, or cache to a folder",
                       home ? " = " : " is not set", home ? home : "");
    return *out ? ZF_OK : zf_fail_memory(e, "a path");
}

enum zf_status zf_cache_folder(char **out, const char *cache, struct zf_err *e)
{
    *out = NULL;
    ZF_TRY(name_folder(out, cache, e));
    enum zf_status s = zf_directory_make(*out, 0700, e);
    if (!s && faccessat(AT_FDCWD, *out, W_OK | X_OK, AT_EACCESS)) s = zf_fail_errno(e, *out, "cannot write into it");
    if (!s) return ZF_OK;
    free(*out);
    *out = NULL;
    return s;
}

char *zf_cache_path(const char *folder, const unsigned char key[16])
{
    char name[KEY_DIGITS + sizeof ".rows"];
    for (size_t i = 0; i < KEY_DIGITS; i++) name[i] = digits[i % 2 ? key[i / 2] & 15 : key[i / 2] >> 4];
    strcpy(name + KEY_DIGITS, ".rows");
    return zf_path_join(folder, name);
}

/* The process whose file of rows on its way this is, by zf_cache_path and zf_file_begin; 0: it is something else. */
static pid_t writer_of(const char *name)
{
    static const char middle[] = ".rows.tmp-";
    if (strspn(name, digits) != KEY_DIGITS || strncmp(name + KEY_DIGITS, middle, sizeof middle - 1)) return 0;
    const char *pid = name + KEY_DIGITS + sizeof middle - 1;
    size_t n = strspn(pid, "0123456789");
    return n > PID_DIGITS || pid[n] || *pid == '0' ? 0 : (pid_t)atol(pid);
}

static void remove_if_unlocked(int folder, const char *name)
{
    struct stat st;
    int fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !flock(fd, LOCK_EX | LOCK_NB)) unlinkat(folder, name, 0);
    close(fd);
}

void zf_cache_sweep(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        pid_t pid = writer_of(f->d_name);
        if (pid && kill(pid, 0) && errno == ESRCH) remove_if_unlocked(dirfd(d), f->d_name);
    }
    if (d) closedir(d);
}
