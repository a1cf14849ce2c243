#include "core/pipeline/chunks.h"

#include <stdlib.h>

void zf_chunks_init(struct zf_chunks *c, struct zf_device *d, size_t bytes)
{
    *c = (struct zf_chunks){.device = d, .bytes = bytes};
}

void zf_chunks_free(struct zf_chunks *c)
{
    for (size_t i = 0; i < c->slabs; i++) c->device->type->free(c->device, c->slab[i]);
    free(c->slab);
    free(c->idle);
    *c = (struct zf_chunks){0};
}

void zf_chunks_shrink(struct zf_chunks *c)
{
    struct zf_device *d = c->device;
    size_t bytes = c->bytes;
    if (c->used) return;
    zf_chunks_free(c);
    zf_chunks_init(c, d, bytes);
}

static size_t per_slab(const struct zf_chunks *c)
{
    return c->bytes >= ZF_CHUNKS_SLAB ? 1 : ZF_CHUNKS_SLAB / c->bytes;
}

static bool grow_list(void ***list, size_t *room, size_t need)
{
    if (need <= *room) return true;
    size_t wanted = need < 64 ? 64 : need + need / 2;
    void **grown = realloc(*list, wanted * sizeof *grown);
    if (!grown) return false;
    *list = grown;
    *room = wanted;
    return true;
}

static enum zf_status add_slab(struct zf_chunks *c, struct zf_err *e)
{
    size_t n = per_slab(c);
    void *slab;
    /* room for every piece there is, so that giving back cannot fail */
    if (!grow_list(&c->slab, &c->slab_room, c->slabs + 1) || !grow_list(&c->idle, &c->idle_room, (c->slabs + 1) * n))
        return zf_fail_memory(e, "slots of gradients");
    ZF_TRY(c->device->type->alloc(c->device, ZF_MEM_PINNED, ZF_TAG_SLOTS, n * c->bytes, &slab, e));
    c->slab[c->slabs++] = slab;
    for (size_t i = n; i-- > 0;) c->idle[c->idle_count++] = (char *)slab + i * c->bytes;
    return ZF_OK;
}

enum zf_status zf_chunks_take(struct zf_chunks *c, size_t rows, size_t row_bytes, struct zf_rows_memory *out, struct zf_err *e)
{
    *out = (struct zf_rows_memory){0};
    if (!rows) return ZF_OK;
    size_t each = c->bytes / row_bytes;
    if (!each) return zf_fail(e, ZF_MEMORY, NULL, "a row of %zu bytes; pieces have %zu: a mistake in the program", row_bytes, c->bytes);
    size_t count = (rows - 1) / each + 1;
    void **list = malloc(count * sizeof *list);
    if (!list) return zf_fail_memory(e, "slots of gradients");
    while (c->idle_count < count) {
        enum zf_status s = add_slab(c, e);
        if (s) {
            free(list);
            return s;
        }
    }
    for (size_t i = 0; i < count; i++) list[i] = c->idle[--c->idle_count];
    c->used += count;
    if (c->used > c->peak) c->peak = c->used;
    *out = (struct zf_rows_memory){.chunk = list, .count = count, .chunk_rows = each};
    return ZF_OK;
}

void **zf_chunks_give(struct zf_chunks *c, struct zf_rows_memory *m)
{
    void **list = m->chunk;
    for (size_t i = m->count; i-- > 0;) c->idle[c->idle_count++] = m->chunk[i];
    c->used -= m->count;
    *m = (struct zf_rows_memory){0};
    return list;
}

size_t zf_chunks_bytes(const struct zf_chunks *c)
{
    return c->slabs * per_slab(c) * c->bytes;
}
