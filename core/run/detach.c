/* See detach.h. */
#include "core/run/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Both go through the pipe in one piece each. */
struct hello {
    pid_t pid;
};

/* 0: nothing came. */
static size_t receive(int fd, void *to, size_t size, const volatile int *stop, pid_t pid)
{
    size_t got = 0;
    bool asked = false;
    while (got < size) {
        ssize_t n = read(fd, (char *)to + got, size - got);
        if (n > 0) got += (size_t)n;
        if (!n || (n < 0 && errno != EINTR)) return 0;
        if (n < 0 && stop && *stop && pid > 0 && !asked) {
            asked = true;
            kill(pid, SIGTERM);
        }
    }
    return got;
}

static enum zf_status wait_for_start(int fd, const volatile int *stop, struct zf_err *e)
{
    struct hello hello;
    struct zf_err verdict;
    if (receive(fd, &hello, sizeof hello, NULL, 0) && receive(fd, &verdict, sizeof verdict, stop, hello.pid)) {
        *e = verdict;
        return verdict.code;
    }
    return zf_fail(e, ZF_IO, NULL, "the trainer ended before the run was started, without a word (killed?)");
}

/* In the grandchild: alone, with nothing of the caller's but its stdout and stderr, until the start is over. */
static void settle(struct zf_detach *d, int fd)
{
    struct hello hello = {getpid()};
    int nothing = open("/dev/null", O_RDWR);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        if (nothing > 2) close(nothing);
    }
    d->pipe = dup2(fd, 3) == 3 ? 3 : fd;
    fcntl(d->pipe, F_SETFD, FD_CLOEXEC);
    close_range((unsigned)d->pipe + 1, ~0u, 0);
    if (write(d->pipe, &hello, sizeof hello) < 0) _exit(ZF_IO); /* the parent is gone */
}

enum zf_status zf_detach(struct zf_detach *d, const volatile int *stop, struct zf_err *e)
{
    int ends[2];
    *d = (struct zf_detach){.pipe = -1, .parent = true};
    if (pipe(ends)) return zf_fail_errno(e, "--detach", "cannot make a pipe");
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return zf_fail_errno(e, "--detach", "cannot start another process");
    }
    if (child) {
        close(ends[1]);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
        enum zf_status s = wait_for_start(ends[0], stop, e);
        close(ends[0]);
        return s;
    }
    pid_t grandchild = setsid() < 0 ? -1 : fork();
    if (grandchild) _exit(grandchild < 0); /* a session leader could get a terminal again */
    d->parent = false;
    settle(d, ends[1]);
    return ZF_OK;
}

static void give(struct zf_detach *d, const struct zf_err *verdict)
{
    if (d->pipe < 0) return;
    if (write(d->pipe, verdict, sizeof *verdict) < 0) errno = 0; /* nobody waits any more */
    close(d->pipe);
    d->pipe = -1;
}

void zf_detach_started(struct zf_detach *d, const char *log)
{
    static const struct zf_err fine = {.code = ZF_OK};
    fflush(stdout);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0) fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
    give(d, &fine);
}

void zf_detach_failed(struct zf_detach *d, const struct zf_err *why)
{
    give(d, why);
}
