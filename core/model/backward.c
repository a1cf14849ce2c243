/* The way back through forward.c. w->dres is the gradient of the residual stream; a branch's gradient is the stream's at its end.
 * Gradients of weights are written by the first micro-batch of a step (where a kernel can only add, they were zeroed before), and added to
 * by the others; gradients of activations are overwritten. */
#include "core/model/workspace.h"

#include <math.h>

float *zf_grad_at(const struct zf_model *m, enum zf_slot slot, int layer)
{
    const struct zf_param *p = slot == ZF_SLOTS ? NULL : zf_param_at(&m->params, slot, layer);
    return p && !p->frozen ? m->grad + p->offset : NULL;
}

enum zf_status zf_linear_backward(struct zf_model *m, const struct zf_linear *l, const void *x, const void *dy, void *dx,
                                  enum zf_dtype type_dx, bool accumulate, struct zf_err *e)
{
    const struct zf_param *p = zf_param_at(&m->params, l->weight, l->layer);
    float *dweight = zf_grad_at(m, l->weight, l->layer), *dbias = zf_grad_at(m, l->bias, l->layer);
    if (dweight)
        ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = ZF_F32, .a = x, .trans_a = true, .b = dy, .c = dweight,
                 .accumulate = m->grad_begun || l->add, .m = p->rows, .n = p->cols, .k = l->rows, .lda = l->ldx, .ldb = l->ldy,
                 .ldc = p->cols);
    if (dbias) ZF_ISSUE(m, bias_backward, e, .type = m->dtype, .dy = dy, .dbias = dbias, .rows = l->rows, .n = p->cols, .ld = l->ldy);
    ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = type_dx, .a = dy, .b = zf_at(m, m->weights, p->offset), .trans_b = true, .c = dx,
             .accumulate = accumulate, .m = l->rows, .n = p->rows, .k = p->cols, .lda = l->ldy, .ldb = p->cols, .ldc = l->ldx);
    return ZF_OK;
}

/* Where products add up to a gradient that goes to `to`: in fp32, so that it is rounded once. In f32 that is `to` itself. It begins with
 * `plus`, or, if that is NULL, with the first product. */
static enum zf_status begin_sum(struct zf_model *m, const struct zf_workspace *w, const void *plus, void *to, size_t n, float **sum,
                                struct zf_err *e)
{
    *sum = w->sum ? w->sum : to;
    if (plus) ZF_ISSUE(m, cast, e, .type = ZF_F32, .from_type = m->dtype, .to = *sum, .from = plus, .n = n);
    return ZF_OK;
}

static enum zf_status end_sum(struct zf_model *m, const struct zf_workspace *w, void *to, size_t n, struct zf_err *e)
{
    if (w->sum) ZF_ISSUE(m, cast, e, .type = m->dtype, .from_type = ZF_F32, .to = to, .from = w->sum, .n = n);
    return ZF_OK;
}

/* dx (+)= the gradient through a norm of the stream whose input was x. */
static enum zf_status norm_backward(struct zf_model *m, enum zf_slot weight, int layer, const void *x, const float *stats, const void *dy,
                                    void *dx, bool accumulate, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    size_t h = c->hidden;
    ZF_ISSUE(m, norm_backward_weight, e, .type = m->dtype, .kind = c->norm, .dy = dy, .x = x, .stats = stats,
             .dweight = zf_grad_at(m, weight, layer), .dbias = zf_grad_at(m, (enum zf_slot)(weight + 1), layer), .rows = rows, .groups = 1,
             .cols = h, .lddy = h, .ldx = h);
    ZF_ISSUE(m, norm_backward, e, .type = m->dtype, .kind = c->norm, .dy = dy, .x = x, .stats = stats,
             .weight = zf_weight_at(m, weight, layer), .dx = dx, .rows = rows, .groups = 1, .cols = h, .lddy = h, .ldx = h, .lddx = h,
             .accumulate = accumulate);
    return ZF_OK;
}

/* In place, rows of d ld apart. */
static enum zf_status head_norm_backward(struct zf_model *m, enum zf_slot weight, int layer, size_t heads, const void *x,
                                         const float *stats, void *d, size_t ld, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    size_t ldx = heads * c->head_dim;
    ZF_ISSUE(m, norm_backward_weight, e, .type = m->dtype, .kind = c->norm, .dy = d, .x = x, .stats = stats,
             .dweight = zf_grad_at(m, weight, layer), .rows = rows, .groups = heads, .cols = c->head_dim, .lddy = ld, .ldx = ldx);
    ZF_ISSUE(m, norm_backward, e, .type = m->dtype, .kind = c->norm, .dy = d, .x = x, .stats = stats,
             .weight = zf_weight_at(m, weight, layer), .dx = d, .rows = rows, .groups = heads, .cols = c->head_dim, .lddy = ld, .ldx = ldx,
             .lddx = ld);
    return ZF_OK;
}

/* The gradient for the layer's in1 out of w->dq, dk, dv. */
static enum zf_status qkv_backward(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, const void *plus, void *to,
                                   struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    const struct zf_widths *d = &w->w;
    const void *in1 = w->layers[layer].in1;
    const struct zf_linear fused = {ZF_SLOT_QKV_W, ZF_SLOT_QKV_B, layer, rows, d->h, d->ldq},
                           q = {ZF_SLOT_Q_W, ZF_SLOT_Q_B, layer, rows, d->h, d->ldq},
                           k = {ZF_SLOT_K_W, ZF_SLOT_K_B, layer, rows, d->h, d->ldkv},
                           v = {ZF_SLOT_V_W, ZF_SLOT_V_B, layer, rows, d->h, d->ldkv};
    float *sum;
    if (c->fused_qkv && !plus) return zf_linear_backward(m, &fused, in1, w->dq, to, m->dtype, false, e);
    ZF_TRY(begin_sum(m, w, plus, to, rows * d->h, &sum, e));
    ZF_TRY(zf_linear_backward(m, c->fused_qkv ? &fused : &q, in1, w->dq, sum, ZF_F32, plus, e));
    if (!c->fused_qkv) {
        ZF_TRY(zf_linear_backward(m, &k, in1, w->dk, sum, ZF_F32, true, e));
        ZF_TRY(zf_linear_backward(m, &v, in1, w->dv, sum, ZF_F32, true, e));
    }
    return end_sum(m, w, to, rows * d->h, e);
}

/* to = plus (NULL: nothing) + the gradient for the layer's in1, from dout, that of attention's output. */
static enum zf_status attention_backward(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, size_t segments,
                                         const void *dout, const void *plus, void *to, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    const struct zf_widths *d = &w->w;
    struct zf_layer_buffers *b = &w->layers[layer];
    ZF_TRY(zf_linear_backward(m, &(struct zf_linear){ZF_SLOT_O_W, ZF_SLOT_O_B, layer, rows, d->q, d->h}, b->o, dout, w->do_, m->dtype,
                              false, e));
    ZF_ISSUE(m, attention_backward, e, .type = m->dtype, .q = b->q, .k = b->k, .v = b->v, .o = b->o, .do_ = w->do_, .lse = b->lse,
             .dq = w->dq, .dk = w->dk, .dv = w->dv, .delta = w->delta, .segments = w->segments, .segment_count = segments, .q_rows = rows,
             .k_rows = rows, .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim, .ldq = d->ldq, .ldkv = d->ldkv,
             .ldo = d->q, .lddo = d->q, .lddq = d->ldq, .lddkv = d->ldkv, .pairs = w->pairs, .keys = w->keys,
             .scale = (float)(1 / sqrt((double)c->head_dim)));
    ZF_TRY(zf_rotate(m, w, w->dq, c->heads, d->ldq, true, rows, e));
    ZF_TRY(zf_rotate(m, w, w->dk, c->kv_heads, d->ldkv, true, rows, e));
    if (c->qk_norm) {
        ZF_TRY(head_norm_backward(m, ZF_SLOT_Q_NORM, layer, c->heads, b->raw_q, b->raw_q_stats, w->dq, d->ldq, rows, e));
        ZF_TRY(head_norm_backward(m, ZF_SLOT_K_NORM, layer, c->kv_heads, b->raw_k, b->raw_k_stats, w->dk, d->ldkv, rows, e));
    }
    return qkv_backward(m, w, layer, rows, plus, to, e);
}

/* to = plus (NULL: nothing) + the gradient for the layer's in2, from dout, that of the MLP's output. Overwrites b->gate and b->up with
 * their gradients. */
static enum zf_status mlp_backward(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, const void *dout, const void *plus,
                                   void *to, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    const struct zf_widths *d = &w->w;
    struct zf_layer_buffers *b = &w->layers[layer];
    ZF_TRY(zf_linear_backward(m, &(struct zf_linear){ZF_SLOT_DOWN_W, ZF_SLOT_DOWN_B, layer, rows, d->f, d->h}, b->a, dout, w->da, m->dtype,
                              false, e));
    void *x = b->gate ? b->gate : b->up, *up = b->gate ? b->up : NULL;
    ZF_ISSUE(m, activation_backward, e, .type = m->dtype, .kind = c->activation, .dy = w->da, .x = x, .up = up, .dx = x, .dup = up,
             .rows = rows, .n = d->f, .lddy = d->f, .ldx = d->f, .lddx = d->f);
    const struct zf_linear into_up = {ZF_SLOT_UP_W, ZF_SLOT_UP_B, layer, rows, d->h, d->f},
                           into_gate = {ZF_SLOT_GATE_W, ZF_SLOT_GATE_B, layer, rows, d->h, d->f};
    float *sum;
    if (!b->gate && !plus) return zf_linear_backward(m, &into_up, b->in2, b->up, to, m->dtype, false, e);
    ZF_TRY(begin_sum(m, w, plus, to, rows * d->h, &sum, e));
    ZF_TRY(zf_linear_backward(m, &into_up, b->in2, b->up, sum, ZF_F32, plus, e));
    if (b->gate) ZF_TRY(zf_linear_backward(m, &into_gate, b->in2, b->gate, sum, ZF_F32, true, e));
    return end_sum(m, w, to, rows * d->h, e);
}

static enum zf_status embed_backward(struct zf_model *m, struct zf_workspace *w, size_t rows, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    float *dembed = zf_grad_at(m, ZF_SLOT_EMBED, -1), *dposition = zf_grad_at(m, ZF_SLOT_POSITION, -1);
    if (dposition)
        ZF_ISSUE(m, embed_backward, e, .type = m->dtype, .dy = w->dres, .index = w->position, .dtable = dposition, .rows = rows,
                 .cols = w->w.h, .offset = c->position_offset, .skip = -1);
    void *dx = w->dres;
    if (w->emb) {
        dx = w->dy; /* [R][e]: the head's gradient is done with */
        ZF_TRY(zf_linear_backward(m, &(struct zf_linear){ZF_SLOT_PROJECT_IN, ZF_SLOTS, -1, rows, w->w.e, w->w.h}, w->emb, w->dres, dx,
                                  m->dtype, false, e));
    }
    if (dembed)
        ZF_ISSUE(m, embed_backward, e, .type = m->dtype, .dy = dx, .index = w->ids, .dtable = dembed, .rows = rows, .cols = w->w.e,
                 .skip = c->padding_id);
    return ZF_OK;
}

/* One layer: w->dres is the gradient of the stream behind it, then of the stream before it. */
static enum zf_status layer_backward(struct zf_model *m, struct zf_workspace *w, int l, size_t rows, size_t segments, struct zf_err *e)
{
    struct zf_layer_buffers *b = &w->layers[l];
    bool last = (size_t)l + 1 == m->config.layers; /* the shared buffers are still as it left them */
    if (w->keep == ZF_KEEP_INPUTS && !last) ZF_TRY(zf_layer_again(m, w, l, rows, segments, e));
    if (m->config.pre_norm) {
        ZF_TRY(mlp_backward(m, w, l, rows, w->dres, NULL, w->din, e));
        ZF_TRY(norm_backward(m, ZF_SLOT_MLP_NORM_W, l, b->s2, b->stats2, w->din, w->dres, true, rows, e));
        ZF_TRY(attention_backward(m, w, l, rows, segments, w->dres, NULL, w->din, e));
        return norm_backward(m, ZF_SLOT_ATTN_NORM_W, l, b->s1, b->stats1, w->din, w->dres, true, rows, e);
    }
    /* s2 = in2 + mlp(in2): the gradient of s2 is that of the branch and, summed with the branch's, that of in2 */
    ZF_TRY(norm_backward(m, ZF_SLOT_MLP_NORM_W, l, b->s2, b->stats2, w->dres, w->din, false, rows, e));
    ZF_TRY(mlp_backward(m, w, l, rows, w->din, w->din, w->dres, e));
    ZF_TRY(norm_backward(m, ZF_SLOT_ATTN_NORM_W, l, b->s1, b->stats1, w->dres, w->din, false, rows, e));
    return attention_backward(m, w, l, rows, segments, w->din, w->din, w->dres, e);
}

static enum zf_status after(const struct zf_model *m, int layer, struct zf_err *e)
{
    return m->hooks.after_layer ? m->hooks.after_layer(m->hooks.ctx, layer, e) : ZF_OK;
}

enum zf_status zf_backward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_err *e)
{
    const struct zf_model_config *c = &m->config;
    size_t h = w->w.h;
    void *dfinal = w->dy;
    if (w->y != w->final) {
        dfinal = w->din;
        ZF_TRY(zf_linear_backward(m, &(struct zf_linear){ZF_SLOT_PROJECT_OUT, ZF_SLOTS, -1, rows, h, w->w.e}, w->final, w->dy, dfinal,
                                  m->dtype, false, e));
    }
    if (c->pre_norm && c->final_norm)
        ZF_TRY(norm_backward(m, ZF_SLOT_FINAL_NORM_W, -1, w->sf, w->statsf, dfinal, w->dres, false, rows, e));
    else
        ZF_ISSUE(m, copy_rows, e, .type = m->dtype, .from = dfinal, .to = w->dres, .rows = rows, .cols = h, .ld_from = h, .ld_to = h);
    ZF_TRY(after(m, (int)c->layers, e));
    for (int l = (int)c->layers - 1; l >= 0; l--) {
        ZF_TRY(layer_backward(m, w, l, rows, segments, e));
        ZF_TRY(after(m, l, e));
    }
    ZF_TRY(embed_backward(m, w, rows, e));
    return after(m, -1, e);
}
