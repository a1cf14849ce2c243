/* Generation with a key/value cache: its own small workspace, the model's weights. */
#include "core/model/workspace.h"

#include <stdlib.h>

size_t zf_cache_bytes(const struct zf_model_config *c, enum zf_dtype dtype, size_t room)
{
    return c->layers * 2 * room * c->kv_heads * c->head_dim * zf_dtype_size(dtype);
}

enum zf_status zf_cache_new(struct zf_cache **out, struct zf_model *m, size_t room, struct zf_err *e)
{
    struct zf_cache *c = calloc(1, sizeof *c);
    enum zf_status s;
    *out = NULL;
    if (!c) return zf_fail_memory(e, "the key/value cache");
    c->m = m;
    c->room = room;
    size_t chunk = room < ZF_CACHE_PREFILL ? room : ZF_CACHE_PREFILL;
    ZF_GOTO(fail, s, zf_batch_init(&c->batch, chunk, e));
    /* the rotation table must reach the last position, not just the chunk */
    ZF_GOTO(fail, s, zf_workspace_new(&c->work, &m->config, m->dtype, m->device, m->lane, chunk, room, ZF_KEEP_NOTHING, e));
    ZF_GOTO(fail, s,
            m->device->type->alloc(m->device, ZF_MEM_DEVICE, ZF_TAG_CACHE, zf_cache_bytes(&m->config, m->dtype, room), &c->keys, e));
    *out = c;
    return ZF_OK;
fail:
    zf_cache_free(c);
    return s;
}

void zf_cache_free(struct zf_cache *c)
{
    struct zf_err ignored;
    if (!c) return;
    c->m->device->type->lane_sync(c->m->lane, &ignored); /* after a failure work may still be under way */
    c->m->device->type->free(c->m->device, c->keys);
    zf_workspace_free(c->work, c->m->device);
    zf_batch_free(&c->batch);
    free(c);
}

static enum zf_status append_chunk(struct zf_cache *c, const int32_t *ids, size_t count, struct zf_err *e)
{
    struct zf_batch *b = &c->batch;
    zf_batch_clear(b);
    for (size_t i = 0; i < count; i++) {
        b->ids[i] = ids[i];
        b->position[i] = (int32_t)(c->used + i);
        b->target[i] = -1;
    }
    b->tokens = count;
    b->segments[0] = (struct zf_segment){.q_begin = 0, .q_count = count, .k_begin = 0, .k_count = c->used + count};
    b->segment_count = 1;
    zf_phase_begin(c->m, ZF_PHASE_GENERATION);
    ZF_TRY(zf_workspace_load(c->m, c->work, b, e));
    ZF_TRY(zf_forward(c->m, c->work, count, 1, c, e));
    c->used += count;
    return ZF_OK;
}

enum zf_status zf_cache_append(struct zf_cache *c, const int32_t *ids, size_t count, float *logits, struct zf_err *e)
{
    if (!count || count > c->room - c->used)
        return zf_fail(e, ZF_USAGE, NULL, "%zu tokens more than the %zu that fit (context or --tokens)", count, c->room - c->used);
    size_t last = 0;
    for (size_t at = 0; at < count; at += last) {
        last = count - at < c->work->room ? count - at : c->work->room;
        ZF_TRY(append_chunk(c, ids + at, last, e));
    }
    ZF_TRY(zf_head(c->m, c->work, last - 1, 1, e));
    const struct zf_device_type *t = c->m->device->type;
    enum zf_status s = t->copy(c->m->lane, logits, c->work->logits, c->m->config.vocab * sizeof *logits);
    return s ? zf_lane_refused(c->m->device, c->m->lane, s, "logits", e) : t->lane_sync(c->m->lane, e);
}
