/* "1 step", "2 steps": the end of a word after its number. */
#ifndef ZF_BASE_PLURAL_H
#define ZF_BASE_PLURAL_H

#include <stdint.h>

static inline const char *zf_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#endif
