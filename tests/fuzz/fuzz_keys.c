/* Any bytes as those of a terminal: the same keys whatever the pieces, every byte in one of them, and nothing kept for long. */
#include "tui/keys.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 8192, KEPT_MOST = 520 };
struct seen {
    struct zf_key_event list[MOST];
    size_t count, bytes;
};

static void take(struct zf_keys *k, struct seen *s)
{
    struct zf_key_event e;
    while (zf_keys_next(k, &e)) {
        if (!e.size || s->count == MOST || (e.key & ~(uint32_t)ZF_KEY_ALT) > ZF_KEY_FOCUS) abort();
        if (e.key == ZF_KEY_MOUSE && (e.x < 0 || e.y < 0)) abort();
        e.bytes = NULL; /* valid until the next feed only */
        s->list[s->count++] = e;
        s->bytes += e.size;
    }
    if (k->used - k->taken > KEPT_MOST) abort();
    if (zf_keys_waits(k) != (k->used > k->taken)) abort();
}

static void read_all(struct seen *s, const uint8_t *data, size_t size, size_t piece)
{
    struct zf_keys k = {0};
    memset(s, 0, sizeof *s);
    for (size_t at = 0; at < size; at += piece) {
        if (!zf_keys_feed(&k, data + at, size - at < piece ? size - at : piece)) abort();
        take(&k, s);
    }
    zf_keys_idle(&k);
    take(&k, s);
    if (s->bytes != size || k.used != k.taken) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen one, other;
    if (size > MOST) return 0;
    read_all(&one, data, size, 1);
    read_all(&other, data, size, size ? 1 + data[0] * 13u : 1);
    if (one.count != other.count) abort();
    for (size_t i = 0; i < one.count; i++) {
        const struct zf_key_event *a = &one.list[i], *b = &other.list[i];
        if (a->key != b->key || a->size != b->size || a->x != b->x || a->y != b->y || a->button != b->button) abort();
    }
    return 0;
}
