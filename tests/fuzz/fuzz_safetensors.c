/* Any bytes as a safetensors file: read or refused, never a crash. Each tensor that is accepted is read to its last byte. */
#include "checkpoints/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool condition)
{
    if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zf_safetensors s;
    struct zf_err e = {0};
    if (zf_st_parse(&s, data, size, "fuzz", &e)) {
        need(e.code == ZF_FORMAT && strlen(e.message) > 10 && !s.list);
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < s.count; i++) {
        const struct zf_st_tensor *t = &s.list[i];
        float f;
        int64_t n;
        need(zf_st_find(&s, t->name) == t && t->offset + t->bytes <= size && t->data == data + t->offset);
        if (t->elements) {
            (void)zf_st_floats(&f, t, t->elements - 1, 1, &e);
            (void)zf_st_integers(&n, t, t->elements - 1, 1, &e);
        }
        bytes += t->bytes;
    }
    need(bytes <= size - 8);
    zf_st_close(&s);
    return 0;
}
