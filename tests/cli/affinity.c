/* Stands before pthread_setaffinity_np: pins nobody, and writes to the file that ZF_AFFINITY_LOG names who was to be where, as
 * "NAME PROCESSOR...". For tests of a machine that was made up (HWLOC_SYNTHETIC, HWLOC_THISSYSTEM). Any thread: one write a line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    const char *path = getenv("ZF_AFFINITY_LOG");
    char name[16] = "?", line[4096];
    pthread_getname_np(thread, name, sizeof name);
    size_t n = (size_t)snprintf(line, sizeof line, "%s", name);
    for (size_t i = 0; i < size * 8 && n < sizeof line - 8; i++)
        if (CPU_ISSET_S(i, size, set)) n += (size_t)snprintf(line + n, sizeof line - n, " %zu", i);
    line[n++] = '\n';
    int f = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (f < 0 || write(f, line, n) != (ssize_t)n) abort();
    close(f);
    return 0;
}
