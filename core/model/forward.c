/* One block for every family, driven by the flags of struct zf_model_config.
 *
 * pre-norm:  s1 = stream            in1 = N1(s1)   s2 = s1 + attention(in1)   in2 = N2(s2)   stream = s2 + mlp(in2)
 * post-norm: in1 = stream           s1 = in1 + attention(in1)   in2 = N1(s1)   s2 = in2 + mlp(in2)   stream = N2(s2)
 *
 * The addition of a branch to the stream is part of the norm that follows it. */
#include "core/model/workspace.h"

#include <math.h>

void *zf_weight_at(const struct zf_model *m, enum zf_slot slot, int layer)
{
    const struct zf_param *p = slot == ZF_SLOTS ? NULL : zf_param_at(&m->params, slot, layer);
    return p ? zf_at(m, m->weights, p->offset) : NULL;
}

enum zf_status zf_linear_forward(struct zf_model *m, const struct zf_linear *l, const void *x, void *y, struct zf_err *e)
{
    const struct zf_param *p = zf_param_at(&m->params, l->weight, l->layer);
    ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = m->dtype, .a = x, .b = zf_at(m, m->weights, p->offset),
             .bias = zf_weight_at(m, l->bias, l->layer), .c = y, .m = l->rows, .n = p->cols, .k = p->rows, .lda = l->ldx, .ldb = p->cols,
             .ldc = l->ldy);
    return ZF_OK;
}

/* y = norm(x + residual); sum = x + residual. residual NULL: y = norm(x). */
static enum zf_status norm(struct zf_model *m, enum zf_slot weight, int layer, const void *x, const void *residual, void *sum, void *y,
                           float *stats, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    ZF_ISSUE(m, norm, e, .type = m->dtype, .kind = c->norm, .x = x, .residual = residual, .sum = sum, .y = y, .stats = stats,
             .weight = zf_weight_at(m, weight, layer), .bias = zf_weight_at(m, (enum zf_slot)(weight + 1), layer), .rows = rows,
             .groups = 1, .cols = c->hidden, .ldx = c->hidden, .ldy = c->hidden, .eps = c->norm_eps);
    return ZF_OK;
}

/* The norm of each query's or key's head (Qwen3). */
static enum zf_status head_norm(struct zf_model *m, enum zf_slot weight, int layer, size_t heads, const void *x, void *y, size_t ldy,
                                float *stats, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    ZF_ISSUE(m, norm, e, .type = m->dtype, .kind = c->norm, .x = x, .y = y, .stats = stats, .weight = zf_weight_at(m, weight, layer),
             .rows = rows, .groups = heads, .cols = c->head_dim, .ldx = heads * c->head_dim, .ldy = ldy, .eps = c->norm_eps);
    return ZF_OK;
}

enum zf_status zf_rotate(struct zf_model *m, const struct zf_workspace *w, void *x, size_t heads, size_t ld, bool inverse, size_t rows,
                         struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    if (c->rope.kind != ZF_ROPE_NONE)
        ZF_ISSUE(m, rope, e, .type = m->dtype, .x = x, .table = w->rope, .position = w->position, .rows = rows, .heads = heads,
                 .head_dim = c->head_dim, .ld = ld, .inverse = inverse);
    return ZF_OK;
}

/* Queries, keys, values of a layer, normed and rotated. With a norm queries and keys are kept as they were before it, too. */
static enum zf_status project_qkv(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    struct zf_layer_buffers *b = &w->layers[layer];
    const struct zf_widths *d = &w->w;
    if (c->fused_qkv) {
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_QKV_W, ZF_SLOT_QKV_B, layer, rows, d->h, d->ldq}, b->in1, b->q, e));
    } else {
        void *q = c->qk_norm ? b->raw_q : b->q, *k = c->qk_norm ? b->raw_k : b->k;
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_Q_W, ZF_SLOT_Q_B, layer, rows, d->h, d->ldq}, b->in1, q, e));
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_K_W, ZF_SLOT_K_B, layer, rows, d->h, d->ldkv}, b->in1, k, e));
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_V_W, ZF_SLOT_V_B, layer, rows, d->h, d->ldkv}, b->in1, b->v, e));
    }
    if (c->qk_norm) {
        ZF_TRY(head_norm(m, ZF_SLOT_Q_NORM, layer, c->heads, b->raw_q, b->q, d->ldq, b->raw_q_stats, rows, e));
        ZF_TRY(head_norm(m, ZF_SLOT_K_NORM, layer, c->kv_heads, b->raw_k, b->k, d->ldkv, b->raw_k_stats, rows, e));
    }
    ZF_TRY(zf_rotate(m, w, b->q, c->heads, d->ldq, false, rows, e));
    return zf_rotate(m, w, b->k, c->kv_heads, d->ldkv, false, rows, e);
}

/* New keys and values join the cache, which then stands for the batch's own. */
static enum zf_status cache_keys(struct zf_model *m, struct zf_workspace *w, struct zf_cache *cache, int layer, size_t rows, void **keys,
                                 struct zf_err *e)
{
    const struct zf_widths *d = &w->w;
    const void *const parts[] = {w->layers[layer].k, w->layers[layer].v};
    *keys = zf_at(m, cache->keys, (size_t)layer * 2 * cache->room * d->kv);
    for (size_t i = 0; i < 2; i++)
        ZF_ISSUE(m, copy_rows, e, .type = m->dtype, .from = parts[i], .ld_from = d->ldkv,
                 .to = zf_at(m, *keys, (i * cache->room + cache->used) * d->kv), .ld_to = d->kv, .rows = rows, .cols = d->kv);
    return ZF_OK;
}

static enum zf_status attention(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, size_t segments, struct zf_cache *cache,
                                struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    const struct zf_widths *d = &w->w;
    struct zf_layer_buffers *b = &w->layers[layer];
    ZF_TRY(project_qkv(m, w, layer, rows, e));
    void *keys = b->k, *values = b->v;
    size_t ldkv = d->ldkv;
    if (cache) {
        ZF_TRY(cache_keys(m, w, cache, layer, rows, &keys, e));
        values = zf_at(m, keys, cache->room * d->kv);
        ldkv = d->kv;
    }
    ZF_ISSUE(m, attention, e, .type = m->dtype, .q = b->q, .k = keys, .v = values, .o = b->o, .lse = b->lse, .segments = w->segments,
             .segment_count = segments, .q_rows = rows, .k_rows = cache ? cache->room : rows, .heads = c->heads, .kv_heads = c->kv_heads,
             .head_dim = c->head_dim, .ldq = d->ldq, .ldkv = ldkv, .ldo = d->q, .pairs = w->pairs, .keys = w->keys,
             .scale = (float)(1 / sqrt((double)c->head_dim)));
    return zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_O_W, ZF_SLOT_O_B, layer, rows, d->q, d->h}, b->o, w->branch, e);
}

/* Up to the activation. */
static enum zf_status mlp_inside(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    const struct zf_widths *d = &w->w;
    struct zf_layer_buffers *b = &w->layers[layer];
    ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_UP_W, ZF_SLOT_UP_B, layer, rows, d->h, d->f}, b->in2, b->up, e));
    if (b->gate)
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_GATE_W, ZF_SLOT_GATE_B, layer, rows, d->h, d->f}, b->in2, b->gate, e));
    ZF_ISSUE(m, activation, e, .type = m->dtype, .kind = c->activation, .x = b->gate ? b->gate : b->up, .up = b->gate ? b->up : NULL,
             .y = b->a, .rows = rows, .n = d->f, .ldx = d->f, .ldy = d->f);
    return ZF_OK;
}

/* The norms around a layer's branches, and the branches; with pre-norm the first norm is not in it, and the output is the branch that the
 * next norm will add. `again`: backward wants it, which with pre-norm has no use for that branch. */
static enum zf_status layer_forward(struct zf_model *m, struct zf_workspace *w, int l, size_t rows, size_t segments, struct zf_cache *cache,
                                    bool again, struct zf_err *e)
{
    bool pre = m->config.pre_norm, last = (size_t)l + 1 == m->config.layers;
    const struct zf_widths *d = &w->w;
    struct zf_layer_buffers *b = &w->layers[l];
    ZF_TRY(attention(m, w, l, rows, segments, cache, e));
    if (pre)
        ZF_TRY(norm(m, ZF_SLOT_MLP_NORM_W, l, b->s1, w->branch, b->s2, b->in2, b->stats2, rows, e));
    else
        ZF_TRY(norm(m, ZF_SLOT_ATTN_NORM_W, l, b->in1, w->branch, b->s1, b->in2, b->stats1, rows, e));
    ZF_TRY(mlp_inside(m, w, l, rows, e));
    if (pre && again) return ZF_OK;
    ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_DOWN_W, ZF_SLOT_DOWN_B, l, rows, d->f, d->h}, b->a, w->branch, e));
    if (pre) return ZF_OK;
    return norm(m, ZF_SLOT_MLP_NORM_W, l, b->in2, w->branch, b->s2, last ? w->final : w->layers[l + 1].in1, b->stats2, rows, e);
}

enum zf_status zf_layer_again(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, size_t segments, struct zf_err *e)
{
    struct zf_layer_buffers *b = &w->layers[layer];
    if (m->config.pre_norm) ZF_TRY(norm(m, ZF_SLOT_ATTN_NORM_W, layer, b->s1, NULL, NULL, b->in1, b->stats1, rows, e));
    return layer_forward(m, w, layer, rows, segments, NULL, true, e);
}

/* x = E[id] (through project_in), plus P[position]. */
static enum zf_status embed(struct zf_model *m, struct zf_workspace *w, void *x, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    ZF_ISSUE(m, embed, e, .type = m->dtype, .table = zf_weight_at(m, ZF_SLOT_EMBED, -1), .index = w->ids, .y = w->emb ? w->emb : x,
             .rows = rows, .cols = w->w.e);
    if (w->emb) ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_PROJECT_IN, ZF_SLOTS, -1, rows, w->w.e, w->w.h}, w->emb, x, e));
    if (c->position_rows)
        ZF_ISSUE(m, embed, e, .type = m->dtype, .table = zf_weight_at(m, ZF_SLOT_POSITION, -1), .index = w->position, .y = x, .rows = rows,
                 .cols = w->w.h, .offset = c->position_offset, .accumulate = true);
    return ZF_OK;
}

static enum zf_status before(const struct zf_model *m, int layer, struct zf_err *e)
{
    return m->hooks.before_layer ? m->hooks.before_layer(m->hooks.ctx, layer, e) : ZF_OK;
}

enum zf_status zf_forward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_cache *cache,
                          struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    bool pre = c->pre_norm;
    int last = (int)c->layers - 1;
    ZF_TRY(before(m, -1, e));
    ZF_TRY(embed(m, w, pre ? w->layers[0].s1 : w->layers[0].in1, rows, e));
    for (int l = 0; l <= last; l++) {
        struct zf_layer_buffers *b = &w->layers[l];
        ZF_TRY(before(m, l, e));
        if (pre && l == 0) ZF_TRY(norm(m, ZF_SLOT_ATTN_NORM_W, l, b->s1, NULL, NULL, b->in1, b->stats1, rows, e));
        if (pre && l > 0) ZF_TRY(norm(m, ZF_SLOT_ATTN_NORM_W, l, w->layers[l - 1].s2, w->branch, b->s1, b->in1, b->stats1, rows, e));
        ZF_TRY(layer_forward(m, w, l, rows, segments, cache, false, e));
    }
    ZF_TRY(before(m, last + 1, e));
    const void *s2 = w->layers[last].s2;
    if (pre && c->final_norm) ZF_TRY(norm(m, ZF_SLOT_FINAL_NORM_W, -1, s2, w->branch, w->sf, w->final, w->statsf, rows, e));
    if (pre && !c->final_norm) ZF_ISSUE(m, add, e, .type = m->dtype, .a = s2, .b = w->branch, .y = w->final, .n = rows * w->w.h);
    if (w->y != w->final)
        ZF_TRY(zf_linear_forward(m, &(struct zf_linear){ZF_SLOT_PROJECT_OUT, ZF_SLOTS, -1, rows, w->w.h, w->w.e}, w->final, w->y, e));
    return ZF_OK;
}

enum zf_status zf_head(struct zf_model *m, struct zf_workspace *w, size_t first, size_t rows, struct zf_err *e)
{
    size_t vocab = m->config.vocab, width = w->w.e;
    bool tied = m->config.tied;
    ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = ZF_F32, .a = zf_at(m, w->y, first * width),
             .b = zf_weight_at(m, tied ? ZF_SLOT_EMBED : ZF_SLOT_HEAD, -1), .trans_b = tied, .c = w->logits, .m = rows, .n = vocab,
             .k = width, .lda = width, .ldb = tied ? width : vocab, .ldc = vocab);
    return ZF_OK;
}
