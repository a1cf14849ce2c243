/* A micro-batch: forward, the loss in chunks of rows (all logits never exist), backward. And full logits, for comparison with other
 * programs. */
#include "core/model/workspace.h"

static enum zf_status prepare(struct zf_model *m, const struct zf_batch *b, struct zf_err *e)
{
    struct zf_workspace *w = m->work;
    if (b->tokens > w->room)
        return zf_fail(e, ZF_MEMORY, NULL, "a micro-batch of %zu tokens; the workspace was made for %zu", b->tokens, w->room);
    ZF_TRY(zf_workspace_load(m, w, b, e));
    return zf_forward(m, w, b->tokens, b->segment_count, NULL, e);
}

/* Gradients of the head for rows whose dlogits stand in w->logits, in the type of activations. */
static enum zf_status head_backward(struct zf_model *m, struct zf_workspace *w, size_t first, size_t rows, struct zf_err *e)
{
    size_t vocab = m->config.vocab, width = w->w.e;
    size_t ld = vocab * sizeof *w->logits / zf_dtype_size(m->dtype); /* as cross_entropy leaves them */
    void *y = zf_at(m, w->y, first * width), *dy = zf_at(m, w->dy, first * width);
    bool add = first > 0; /* chunks of one micro-batch sum */
    if (!m->config.tied)
        return zf_linear_backward(m, &(struct zf_linear){ZF_SLOT_HEAD, ZF_SLOTS, -1, rows, width, ld, add}, y, w->logits, dy, m->dtype,
                                  false, e);
    float *dembed = zf_grad_at(m, ZF_SLOT_EMBED, -1);
    ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = m->dtype, .a = w->logits, .b = zf_weight_at(m, ZF_SLOT_EMBED, -1), .c = dy,
             .m = rows, .n = width, .k = vocab, .lda = ld, .ldb = width, .ldc = width);
    if (dembed)
        ZF_ISSUE(m, matmul, e, .type = m->dtype, .type_c = ZF_F32, .a = w->logits, .trans_a = true, .b = y, .c = dembed,
                 .accumulate = m->grad_begun || add, .m = vocab, .n = width, .k = rows, .lda = ld, .ldb = width, .ldc = width);
    return ZF_OK;
}

/* Forward and w->loss; with `backward` also the gradients of the head, and w->dy. */
static enum zf_status token_losses(struct zf_model *m, const struct zf_batch *b, bool backward, float loss_scale, struct zf_err *e)
{
    struct zf_workspace *w = m->work;
    size_t vocab = m->config.vocab;
    zf_phase_begin(m, backward ? ZF_PHASE_FORWARD : ZF_PHASE_VALIDATION);
    ZF_TRY(prepare(m, b, e));
    if (backward) zf_phase_begin(m, ZF_PHASE_HEAD);
    for (size_t first = 0; first < b->tokens; first += w->logit_rows) {
        size_t rows = b->tokens - first < w->logit_rows ? b->tokens - first : w->logit_rows;
        ZF_TRY(zf_head(m, w, first, rows, e));
        ZF_ISSUE(m, cross_entropy, e, .type = m->dtype, .logits = w->logits, .target = w->target + first, .loss = w->loss + first,
                 .rows = rows, .n = vocab, .ld = vocab, .scale = loss_scale, .gradient = backward);
        if (backward) ZF_TRY(head_backward(m, w, first, rows, e));
    }
    return ZF_OK;
}

enum zf_status zf_model_step(struct zf_model *m, const struct zf_batch *b, bool backward, float loss_scale, double *total, struct zf_err *e)
{
    struct zf_workspace *w = m->work;
    ZF_TRY(token_losses(m, b, backward, loss_scale, e));
    ZF_ISSUE(m, sum_losses, e, .loss = w->loss, .rows = b->tokens, .total = total);
    if (!backward) return ZF_OK;
    zf_phase_begin(m, ZF_PHASE_BACKWARD);
    ZF_TRY(zf_backward(m, w, b->tokens, b->segment_count, e));
    m->grad_begun = true;
    return ZF_OK;
}

enum zf_status zf_model_losses(struct zf_model *m, const struct zf_batch *b, float *losses, struct zf_err *e)
{
    const struct zf_device_type *t = m->device->type;
    ZF_TRY(token_losses(m, b, false, 0, e));
    enum zf_status s = t->copy(m->lane, losses, m->work->loss, b->tokens * sizeof *losses);
    return s ? zf_lane_refused(m->device, m->lane, s, "losses", e) : t->lane_sync(m->lane, e);
}

enum zf_status zf_model_logits(struct zf_model *m, const struct zf_batch *b, float *logits, struct zf_err *e)
{
    struct zf_workspace *w = m->work;
    const struct zf_device_type *t = m->device->type;
    size_t vocab = m->config.vocab;
    ZF_TRY(prepare(m, b, e));
    for (size_t first = 0; first < b->tokens; first += w->logit_rows) {
        size_t rows = b->tokens - first < w->logit_rows ? b->tokens - first : w->logit_rows;
        ZF_TRY(zf_head(m, w, first, rows, e));
        enum zf_status s = t->copy(m->lane, logits + first * vocab, w->logits, rows * vocab * sizeof *logits);
        if (s) return zf_lane_refused(m->device, m->lane, s, "logits", e);
    }
    return t->lane_sync(m->lane, e);
}

/* Its gradient is made by a kernel that can only add. */
static bool only_added(const struct zf_model *m, const struct zf_param *p)
{
    return !p->matrix || p->slot == ZF_SLOT_POSITION || (p->slot == ZF_SLOT_EMBED && !m->config.tied);
}

static bool wants_zeros(const struct zf_model *m, size_t i)
{
    return !m->params.list[i].frozen && only_added(m, &m->params.list[i]);
}

enum zf_status zf_model_begin_grad(struct zf_model *m, struct zf_err *e)
{
    const struct zf_params *p = &m->params;
    zf_phase_begin(m, ZF_PHASE_UPDATE);
    for (size_t i = 0, next; i < p->count; i = next) {
        next = i + 1;
        if (!wants_zeros(m, i)) continue;
        while (next < p->count && wants_zeros(m, next)) next++;
        const struct zf_param *first = &p->list[i], *last = &p->list[next - 1];
        size_t n = last->offset + last->rows * last->cols - first->offset;
        enum zf_status s = m->device->type->fill(m->lane, m->grad + first->offset, 0, n * sizeof *m->grad);
        if (s) return zf_lane_refused(m->device, m->lane, s, "the gradients", e);
    }
    m->grad_begun = false;
    return ZF_OK;
}
