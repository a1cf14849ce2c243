/* The control groups this process is in, v1 and v2, and what stands in their files. Reads files only; what is missing or garbled is not
 * there. Any thread.
 *
 * root: "/" ; tests give fake trees (root/proc/self/cgroup, root/proc/self/mountinfo, root/sys/fs/cgroup/...). */
#ifndef ZF_BASE_CGROUP_H
#define ZF_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

enum zf_cgroup_version { ZF_CGROUP_V1, ZF_CGROUP_V2 };

/* Calls fn for every directory from the process's group up to the mount point, of each hierarchy that `controller` ("memory", "cpu") can
 * belong to. */
typedef void zf_cgroup_fn(void *ctx, enum zf_cgroup_version version, const char *directory);
void zf_cgroup_walk(const char *root, const char *controller, zf_cgroup_fn *fn, void *ctx);

/* Processors' worth of time that the groups allow, the least of all; 0: no limit. */
double zf_cgroup_processors(const char *root);

/* The number after `key` at the beginning of a line of directory/file ("key N" or "key: N"); that at the beginning of the first line if key
 * is "". For files of procfs as well. */
bool zf_cgroup_number(const char *directory, const char *file, const char *key, unsigned long long *out);

#endif
