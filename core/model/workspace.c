/* One function lays the buffers out; measuring is laying out from nothing. So the memory plan and the allocation agree. */
#include "core/model/workspace.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIVATIONS, LOGITS, BATCH, PARTS };

/* Bump "allocation" in units of 64 bytes; base NULL counts only. */
struct cut {
    unsigned char *base;
    size_t used;
};

static void *cut(struct cut *c, size_t elements, size_t size)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (elements * size + 63) & ~(size_t)63;
    return p;
}

static float *floats(struct cut *c, size_t rows, size_t width)
{
    return cut(c, rows * width, sizeof(float));
}

static struct zf_widths widths(const struct zf_model_config *c)
{
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, all = q + 2 * kv;
    return (struct zf_widths){
        .h = c->hidden, .q = q, .kv = kv, .f = c->ffn, .e = c->embed_dim, .ldq = c->fused_qkv ? all : q, .ldkv = c->fused_qkv ? all : kv};
}

/* Queries, keys, values: of their own, or side by side. */
static void cut_qkv(struct cut *at, const struct zf_workspace *w, bool fused, void **q, void **k, void **v)
{
    const struct zf_widths *d = &w->w;
    size_t R = w->room, size = zf_dtype_size(w->dtype);
    unsigned char *p = cut(at, R * d->ldq, size);
    *q = p;
    *k = !fused ? cut(at, R * d->kv, size) : p ? p + d->q * size : NULL;
    *v = !fused ? cut(at, R * d->kv, size) : p ? p + (d->q + d->kv) * size : NULL;
}

static void lay_layer(struct zf_layer_buffers *b, const struct zf_model_config *c, const struct zf_workspace *w, struct cut *at)
{
    const struct zf_widths *d = &w->w;
    size_t R = w->room, size = zf_dtype_size(w->dtype);
    *b = (struct zf_layer_buffers){.in1 = cut(at, R * d->h, size),
                                   .s1 = cut(at, R * d->h, size),
                                   .stats1 = floats(at, R, 2),
                                   .o = cut(at, R * d->q, size),
                                   .lse = floats(at, R, c->heads),
                                   .in2 = cut(at, R * d->h, size),
                                   .s2 = cut(at, R * d->h, size),
                                   .stats2 = floats(at, R, 2),
                                   .up = cut(at, R * d->f, size),
                                   .a = cut(at, R * d->f, size)};
    cut_qkv(at, w, c->fused_qkv, &b->q, &b->k, &b->v);
    if (c->activation == ZF_SWIGLU) b->gate = cut(at, R * d->f, size);
    if (c->qk_norm) {
        b->raw_q = cut(at, R * d->q, size);
        b->raw_k = cut(at, R * d->kv, size);
        b->raw_q_stats = floats(at, R, 2 * c->heads);
        b->raw_k_stats = floats(at, R, 2 * c->kv_heads);
    }
}

/* Chunks of about 32 MiB of logits, but at least 256 rows: smaller products are slow. */
static size_t chunk_rows(size_t tokens, size_t vocab)
{
    size_t rows = ((size_t)8 << 20) / vocab;
    if (rows < 256) rows = 256;
    return rows < tokens ? rows : tokens;
}

/* What only backward needs. */
static void lay_gradients(struct zf_workspace *w, const struct zf_model_config *c, struct cut *at)
{
    const struct zf_widths *d = &w->w;
    size_t R = w->room, size = zf_dtype_size(w->dtype);
    w->dres = cut(at, R * d->h, size);
    w->din = cut(at, R * d->h, size);
    cut_qkv(at, w, c->fused_qkv, &w->dq, &w->dk, &w->dv);
    w->do_ = cut(at, R * d->q, size);
    w->da = cut(at, R * d->f, size);
    w->dy = cut(at, R * d->e, size);
    w->delta = floats(at, R, c->heads);
    w->sum = w->dtype == ZF_F32 ? NULL : floats(at, R, d->h);
}

struct zf_workspace_sizes zf_workspace_layout(struct zf_workspace *w, const struct zf_model_config *c, enum zf_dtype dtype, size_t R,
                                              size_t positions, enum zf_keep keep, void *const base[3])
{
    struct cut act = {base ? base[ACTIVATIONS] : NULL, 0}, log = {base ? base[LOGITS] : NULL, 0}, bat = {base ? base[BATCH] : NULL, 0};
    struct zf_layer_buffers scratch, first = {0};
    size_t size = zf_dtype_size(dtype);
    w->w = widths(c);
    w->room = R;
    w->dtype = dtype;
    w->keep = keep;
    w->logit_rows = chunk_rows(R, c->vocab);
    w->positions = c->rope.kind == ZF_ROPE_NONE ? 0 : positions < c->context ? positions : c->context;
    for (size_t l = 0; l < c->layers; l++) {
        struct zf_layer_buffers *b = w->layers ? &w->layers[l] : &scratch;
        if (l == 0 || keep == ZF_KEEP_ALL)
            lay_layer(b, c, w, &act);
        else
            *b = first;
        if (l == 0) first = *b;
        if (l > 0 && keep == ZF_KEEP_INPUTS) *(c->pre_norm ? &b->s1 : &b->in1) = cut(&act, R * w->w.h, size);
    }
    bool projected = w->w.e != w->w.h;
    w->emb = projected ? cut(&act, R * w->w.e, size) : NULL;
    w->branch = cut(&act, R * w->w.h, size);
    w->sf = cut(&act, R * w->w.h, size);
    w->statsf = floats(&act, R, 2);
    w->final = cut(&act, R * w->w.h, size);
    w->y = projected ? cut(&act, R * w->w.e, size) : w->final;
    w->loss = floats(&act, R, 1);
    w->rope = floats(&act, w->positions, c->head_dim);
    if (keep != ZF_KEEP_NOTHING) lay_gradients(w, c, &act);
    w->logits = floats(&log, w->logit_rows, c->vocab);
    w->ids = cut(&bat, R, sizeof *w->ids);
    w->position = cut(&bat, R, sizeof *w->position);
    w->target = cut(&bat, R, sizeof *w->target);
    w->segments = cut(&bat, R, sizeof *w->segments);
    return (struct zf_workspace_sizes){.activations = act.used, .logits = log.used, .batch = bat.used};
}

struct zf_workspace_sizes zf_workspace_measure(const struct zf_model_config *c, enum zf_dtype dtype, size_t tokens, size_t positions,
                                               enum zf_keep keep)
{
    struct zf_workspace w = {0};
    struct zf_workspace_sizes s = zf_workspace_layout(&w, c, dtype, tokens, positions, keep, NULL);
    s.batch *= 3; /* on the device, and twice in staging */
    return s;
}

static enum zf_status fill_rope(struct zf_workspace *w, const struct zf_model_config *c, struct zf_device *d, struct zf_lane *l,
                                struct zf_err *e)
{
    if (!w->positions) return ZF_OK;
    size_t bytes = w->positions * c->head_dim * sizeof(float);
    void *host;
    ZF_TRY(d->type->alloc(d, ZF_MEM_PINNED, ZF_TAG_OTHER, bytes, &host, e));
    zf_rope_table(host, &c->rope, w->positions, c->head_dim);
    enum zf_status s = d->type->copy(l, w->rope, host, bytes);
    if (s)
        zf_lane_refused(d, l, s, "the rotary table", e);
    else
        s = d->type->lane_sync(l, e);
    d->type->free(d, host);
    return s;
}

enum zf_status zf_workspace_new(struct zf_workspace **out, const struct zf_model_config *c, enum zf_dtype dtype, struct zf_device *d,
                                struct zf_lane *l, size_t tokens, size_t positions, enum zf_keep keep, struct zf_err *e)
{
    struct zf_workspace *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w || !(w->layers = calloc(c->layers, sizeof *w->layers))) {
        free(w);
        return zf_fail_memory(e, "the workspace");
    }
    struct zf_workspace_sizes size = zf_workspace_layout(w, c, dtype, tokens, positions, keep, NULL);
    const struct zf_device_type *t = d->type;
    enum zf_status s;
    ZF_GOTO(fail, s, t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_ACTIVATIONS, size.activations, &w->blocks[ACTIVATIONS], e));
    ZF_GOTO(fail, s, t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_LOGITS, size.logits, &w->blocks[LOGITS], e));
    ZF_GOTO(fail, s, t->alloc(d, ZF_MEM_DEVICE, ZF_TAG_BATCH, size.batch, &w->blocks[BATCH], e));
    ZF_GOTO(fail, s, t->alloc(d, ZF_MEM_PINNED, ZF_TAG_BATCH, 2 * size.batch, &w->blocks[PARTS], e));
    zf_workspace_layout(w, c, dtype, tokens, positions, keep, w->blocks);
    for (int i = 0; i < 2; i++) {
        w->staging[i] = (unsigned char *)w->blocks[PARTS] + (size_t)i * size.batch;
        ZF_GOTO(fail, s, t->event_new(d, &w->staged[i], e));
    }
    ZF_GOTO(fail, s, fill_rope(w, c, d, l, e));
    *out = w;
    return ZF_OK;
fail:
    zf_workspace_free(w, d);
    return s;
}

void zf_workspace_free(struct zf_workspace *w, struct zf_device *d)
{
    if (!w) return;
    for (int i = 0; i < 2; i++)
        if (w->staged[i]) d->type->event_free(w->staged[i]);
    for (size_t i = 0; i < sizeof w->blocks / sizeof *w->blocks; i++) d->type->free(d, w->blocks[i]);
    free(w->layers);
    free(w);
}

enum zf_status zf_workspace_load(struct zf_model *m, struct zf_workspace *w, const struct zf_batch *b, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    int turn = w->turn;
    w->turn ^= 1;
    ZF_TRY(t->event_sync(w->staged[turn], e)); /* its last copy has left the staging buffer */
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } parts[] = {{w->ids, b->ids, b->tokens * sizeof *b->ids},
                 {w->position, b->position, b->tokens * sizeof *b->position},
                 {w->target, b->target, b->tokens * sizeof *b->target},
                 {w->segments, b->segments, b->segment_count * sizeof *b->segments}};
    zf_segments_sum(b->segments, b->segment_count, &w->pairs, &w->keys);
    unsigned char *at = w->staging[turn];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        memcpy(at, parts[i].from, parts[i].bytes);
        enum zf_status s = t->copy(m->lane, parts[i].to, at, parts[i].bytes);
        if (s) return zf_lane_refused(m->device, m->lane, s, "a batch", e);
        at += (parts[i].bytes + 63) & ~(size_t)63;
    }
    enum zf_status s = t->event_record(m->lane, w->staged[turn]);
    return s ? zf_lane_refused(m->device, m->lane, s, "an event", e) : ZF_OK;
}
