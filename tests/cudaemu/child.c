#include "tests/cudaemu/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* Else each child waits a second at its end for reports of threads that go on. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}
#endif

void child_run(struct child *c, const char *const *environment, int (*body)(void *arg), void *arg)
{
    int ends[2];
    size_t used = 0;
    ssize_t n;
    fflush(NULL);
    if (pipe(ends)) abort();
    pid_t pid = fork();
    if (pid < 0) abort();
    if (!pid) {
        for (; environment && *environment; environment += 2) setenv(environment[0], environment[1], 1);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        int result = body(arg);
        fflush(NULL);
        exit(result);
    }
    close(ends[1]);
    while ((n = read(ends[0], c->text + used, sizeof c->text - 1 - used)) > 0) {
        used += (size_t)n;
        if (used < sizeof c->text - 1) continue;
        char rest[256];
        while (read(ends[0], rest, sizeof rest) > 0)
            ;
    }
    c->text[used] = 0;
    close(ends[0]);
    waitpid(pid, &c->status, 0);
}
