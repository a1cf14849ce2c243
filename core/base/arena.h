/* Arena: many small objects with one lifetime (options, names, tables). Not thread-safe.
 * A zeroed struct is an empty arena. Any of these may return NULL (no memory). */
#ifndef ZF_BASE_ARENA_H
#define ZF_BASE_ARENA_H

#include <stddef.h>

struct zf_arena {
    struct zf_arena_block *head;
};

void *zf_arena_alloc(struct zf_arena *a, size_t bytes); /* zeroed, 16-aligned; NULL = no memory */
char *zf_arena_strndup(struct zf_arena *a, const char *s, size_t n);
char *zf_arena_strdup(struct zf_arena *a, const char *s);
char *zf_arena_printf(struct zf_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void zf_arena_free(struct zf_arena *a); /* everything; the arena is empty again */

#endif
