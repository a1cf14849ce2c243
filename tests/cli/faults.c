/* Stands before the calls with which files are written and read: kills the program in the middle of one, or makes one fail. For tests of
 * what a crash, a full disk and a machine without memory leave behind.
 *
 *   ZF_FAULT = "WHAT|FILE|CALL|FROM|TO|TEXT"   WHAT: kill, late (the same, when the checkpoint that is
 *                                              being written is whole), term (SIGTERM, and the call goes
 *                                              on), thread or memory (the next thread is refused, or room
 *                                              for ZF_FAULT_ROOM elements, or from a MiB on bytes), or the
 *                                              number of an error; FILE: part of the path; CALL: write, sync, rename, read,
 *                                              any; the FROM-th to the TO-th of such calls; TEXT: of a write, what is in it
 *   ZF_FAULT_FREE = BYTES                      what statvfs says is free */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

static atomic_int no_thread, no_memory;

/* The thread that writes checkpoints has ended. */
static void await_checkpoint(void)
{
    for (int found = 1; found; usleep(1000)) {
        char path[300], name[32];
        DIR *d = opendir("/proc/self/task");
        found = 0;
        for (struct dirent *f; d && (f = readdir(d));) {
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", f->d_name);
            FILE *comm = fopen(path, "r");
            if (comm && fgets(name, sizeof name, comm) && !strcmp(name, "checkpoint\n")) found = 1;
            if (comm) fclose(comm);
        }
        if (d) closedir(d);
    }
}

static int wanted(const char *call, const char *path, const void *data, size_t size)
{
    static atomic_int count;
    char what[16] = "", file[128] = "", which[16] = "", text[128] = "";
    int from = 1, to = 1;
    const char *fault = getenv("ZF_FAULT");
    if (!fault || sscanf(fault, "%15[^|]|%127[^|]|%15[^|]|%d|%d|%127[^\n]", what, file, which, &from, &to, text) < 3) return 0;
    if ((strcmp(which, "any") != 0 && strcmp(which, call) != 0) || !strstr(path, file)) return 0;
    if (text[0] && !(data && memmem(data, size, text, strlen(text)))) return 0;
    int n = atomic_fetch_add(&count, 1) + 1;
    if (n < from || n > to) return 0;
    if (!strcmp(what, "term")) kill(getpid(), SIGTERM);
    if (!strcmp(what, "thread")) atomic_store(&no_thread, 1);
    if (!strcmp(what, "memory")) atomic_store(&no_memory, 1);
    if (!strcmp(what, "late")) await_checkpoint();
    return !strcmp(what, "kill") || !strcmp(what, "late") ? -1 : atoi(what);
}

static int of_file(const char *call, int fd, const void *data, size_t size)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    return n > 0 ? wanted(call, path, data, size) : 0;
}

static ssize_t (*next_write(void))(int, const void *, size_t)
{
    return (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
}

ssize_t write(int fd, const void *data, size_t size)
{
    int fault = of_file("write", fd, data, size);
    if (fault < 0) { /* half of it is there */
        next_write()(fd, data, size / 2);
        kill(getpid(), SIGKILL);
    }
    if (!fault) return next_write()(fd, data, size);
    errno = fault;
    return -1;
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    int fault = of_file("read", fd, NULL, 0);
    if (fault < 0) kill(getpid(), SIGKILL);
    if (!fault) return ((ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64"))(fd, to, size, at);
    errno = fault;
    return -1;
}

static int sync_file(const char *name, int fd)
{
    int fault = of_file("sync", fd, NULL, 0);
    if (fault < 0) kill(getpid(), SIGKILL);
    if (!fault) return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
    errno = fault;
    return -1;
}

int fsync(int fd)
{
    return sync_file("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_file("fdatasync", fd);
}

int rename(const char *from, const char *to)
{
    int fault = wanted("rename", from, NULL, 0);
    if (fault < 0) kill(getpid(), SIGKILL);
    if (!fault) return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
    errno = fault;
    return -1;
}

int statvfs64(const char *path, struct statvfs64 *out)
{
    const char *room = getenv("ZF_FAULT_FREE");
    int failed = ((int (*)(const char *, struct statvfs64 *))dlsym(RTLD_NEXT, "statvfs64"))(path, out);
    if (!failed && room) out->f_bavail = strtoull(room, NULL, 10) / out->f_frsize;
    return failed;
}

int pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*body)(void *), void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    return atomic_exchange(&no_thread, 0) ? EAGAIN : next(out, how, body, arg);
}

/* The first after it was asked for that is as large as that. */
static int refused(size_t least, size_t most)
{
    const char *room = atomic_load(&no_memory) ? getenv("ZF_FAULT_ROOM") : NULL;
    size_t wanted = room ? strtoul(room, NULL, 10) : 0;
    return room && least <= wanted && wanted <= most && atomic_exchange(&no_memory, 0);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *(*next)(void *, size_t, int, int, int, off_t) = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    enum { PAGES = 1 << 20 };
    if (!refused(PAGES, size)) return next(at, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

void *calloc(size_t count, size_t size)
{
    static void *(*next)(size_t, size_t);
    static int looking;
    if (refused(count, count)) return NULL;
    if (!next && looking) return NULL; /* of dlsym itself, which does without */
    looking = 1;
    if (!next) next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    return next(count, size);
}
