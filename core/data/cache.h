/* The folder in which rows of large inputs are kept, and the names in it. */
#ifndef ZF_DATA_CACHE_H
#define ZF_DATA_CACHE_H

#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* cache: "auto", "no" or a folder, as the option. Whether rows of inputs of this many bytes are kept in a file, if its folder can be made.
 * Those of small inputs stay in memory: making them again takes a second or two, and nobody wants to find them on the disk. A folder that
 * was named is used whatever the size. */
bool zf_cache_used(const char *cache, uint64_t bytes);
/* The folder, made for its user alone if it is missing: the one that was named; for "auto" XDG_CACHE_HOME/zenflow-console or
 * ~/.cache/zenflow-console. To be freed. */
enum zf_status zf_cache_folder(char **out, const char *cache, struct zf_err *e);
/* FOLDER/KEY-IN-HEX.rows; to be freed, NULL = no memory */
char *zf_cache_path(const char *folder, const unsigned char key[16]);
/* Removes what writers that were killed have left there: files of exactly the names under which rows are written, of processes that are
 * gone, which nobody has locked. Who writes one keeps it locked (flock), for a process of another host or container has a number, too. */
void zf_cache_sweep(const char *folder);

#endif
