/* Where a socket lives, listening and connecting. See wire.h. */
#include "core/base/clock.h"
#include "core/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int bind_at(int fd, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    memcpy(a.sun_path, path, strlen(path) + 1); /* its length was checked */
    if (!lstat(path, &st) && S_ISSOCK(st.st_mode)) unlink(path);
    return bind(fd, (struct sockaddr *)&a, sizeof a);
}

/* A directory of this user's alone. */
static bool private_directory(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
}

/* The same for every way of naming the directory (FNV-1a). */
static unsigned long long name_of(const char *directory)
{
    char *real = realpath(directory, NULL);
    unsigned long long h = 0xcbf29ce484222325;
    for (const char *c = real ? real : directory; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3;
    free(real);
    return h;
}

/* Where sockets may be when the directory itself cannot have one; false: nowhere. */
static bool runtime_path(char *path, const char *directory)
{
    char own[64], user[64];
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    snprintf(user, sizeof user, "/run/user/%u", (unsigned)geteuid());
    snprintf(own, sizeof own, "/tmp/zenflow-console-%u", (unsigned)geteuid());
    const char *const places[] = {xdg && xdg[0] == '/' ? xdg : user, user, own};
    unsigned long long name = name_of(directory);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (places[i] == own && mkdir(own, 0700) && errno != EEXIST) continue;
        if (!private_directory(places[i]) || access(places[i], W_OK)) continue;
        int n = snprintf(path, ZF_WIRE_PATH_MOST, "%s/zenflow-%016llx.sock", places[i], name);
        if (n > 0 && n < ZF_WIRE_PATH_MOST) return true;
    }
    return false;
}

enum zf_status zf_wire_listen(int *fd, char *path, const char *directory, const char *name, struct zf_err *e)
{
    enum { BACKLOG = 16 };
    int why = ENAMETOOLONG, n = snprintf(path, ZF_WIRE_PATH_MOST, "%s/%s", directory, name);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return zf_fail_errno(e, directory, "cannot make a socket");
    fchmod(*fd, 0600); /* what bind makes has this mode from the first moment on */
    bool bound = n > 0 && n < ZF_WIRE_PATH_MOST && !bind_at(*fd, path);
    if (!bound && n < ZF_WIRE_PATH_MOST) why = errno;
    if (!bound && runtime_path(path, directory)) {
        bound = !bind_at(*fd, path);
        why = errno;
    }
    if (bound && !listen(*fd, BACKLOG)) return ZF_OK;
    if (bound) why = errno;
    close(*fd);
    *fd = -1;
    *path = 0;
    return zf_fail(e, ZF_IO, directory, "no control socket could be made there or in XDG_RUNTIME_DIR: %s; the run cannot be steered",
                   strerror(why));
}

int zf_wire_accept(int listener, unsigned *uid)
{
    struct ucred who;
    socklen_t size = sizeof who;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return -1;
    *uid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) ? (unsigned)-1 : (unsigned)who.uid;
    return fd;
}

/* The name for connect(2): one that is too long is reached through its directory's descriptor. */
static bool address_of(struct sockaddr_un *a, const char *path, int *directory)
{
    const char *slash = strrchr(path, '/');
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    *directory = -1;
    if (strlen(path) < sizeof a->sun_path) {
        strcpy(a->sun_path, path);
        return true;
    }
    char *parent = slash ? strndup(path, (size_t)(slash - path)) : NULL;
    if (parent) *directory = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    int n = *directory < 0 ? -1 : snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d%s", *directory, slash);
    return n > 0 && n < (int)sizeof a->sun_path;
}

enum zf_status zf_wire_connect(int *fd, const char *path, double seconds, struct zf_err *e)
{
    struct sockaddr_un a;
    int directory, failed = ENAMETOOLONG;
    double until = zf_clock() + seconds;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return zf_fail_errno(e, path, "cannot make a socket");
    if (address_of(&a, path, &directory)) do
            failed = connect(*fd, (struct sockaddr *)&a, sizeof a) ? errno : 0;
        while ((failed == EAGAIN || failed == EINTR) && zf_clock() < until && !usleep(20000)); /* EAGAIN: its queue is full */
    if (directory >= 0) close(directory);
    if (!failed) return ZF_OK;
    close(*fd);
    *fd = -1;
    errno = failed;
    zf_fail_errno(e, path, "no trainer answers there");
    if (failed == ENOENT || failed == ECONNREFUSED || failed == EAGAIN || failed == ENOTDIR) e->code = ZF_BUSY;
    return e->code;
}
