#include "core/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct zf_arena_block {
    struct zf_arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

enum { BLOCK = 64 * 1024 };

void *zf_arena_alloc(struct zf_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - 64) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    struct zf_arena_block *b = a->head;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;
        if (size > SIZE_MAX - sizeof *b || !(b = malloc(sizeof *b + size))) return NULL;
        *b = (struct zf_arena_block){.next = a->head, .size = size};
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return memset(p, 0, bytes);
}

char *zf_arena_strndup(struct zf_arena *a, const char *s, size_t n)
{
    char *p = zf_arena_alloc(a, n + 1);
    if (p) memcpy(p, s, n);
    return p;
}

char *zf_arena_strdup(struct zf_arena *a, const char *s)
{
    return zf_arena_strndup(a, s, strlen(s));
}

char *zf_arena_printf(struct zf_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : zf_arena_alloc(a, (size_t)n + 1);
    if (!p) return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void zf_arena_free(struct zf_arena *a)
{
    while (a->head) {
        struct zf_arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
}
