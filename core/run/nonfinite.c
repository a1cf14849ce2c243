/* Steps that are not finite: what they mean, and what is said of them. One table of words, so that what a run says at the step, while it
 * waits and at its end goes together: what happened, at which step and in which tensor, what was done, what to do. */
#include "core/run/orders.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- which tensor --- */

static enum zf_status all_finite(void *ctx, const float *x, size_t n, struct zf_err *e)
{
    bool *finite = ctx;
    (void)e;
    for (size_t i = 0; *finite && i < n; i++) *finite = isfinite(x[i]);
    return ZF_OK;
}

/* The weights that an export would write: the masters, wherever they are. What cannot be looked at counts as finite. */
static bool weights_finite(const struct zf_model *m, const struct zf_param *p, const struct zf_pieces *x)
{
    struct zf_err ignored;
    bool elsewhere = false, finite = true;
    const float *block = m->master ? m->master : m->dtype == ZF_F32 ? (const float *)m->weights : NULL;
    if (m->hooks.masters) {
        float *all = malloc(p->rows * p->cols * sizeof *all);
        if (all && !m->hooks.masters(m->hooks.ctx, p, all, &elsewhere, &ignored) && elsewhere)
            all_finite(&finite, all, p->rows * p->cols, &ignored);
        free(all);
    }
    if (!elsewhere && block && zf_model_each_piece(m, block, p, x, all_finite, &finite, &ignored)) finite = true;
    return finite;
}

/* ", in the weights of NAME": where it comes from. A loss that is not finite makes every gradient so: then only weights tell something. */
static void find_tensor(struct zf_trainer *t, const struct zf_step_record *r, char *out, size_t size)
{
    const struct zf_params *p = &t->model.params;
    struct zf_err ignored;
    struct zf_pieces x;
    const char *kind = NULL;
    size_t i = 0;
    *out = 0;
    if (zf_pieces_open(&x, &t->model, &ignored)) return;
    while (i < p->count && weights_finite(&t->model, &p->list[i], &x)) i++;
    if (i < p->count) {
        kind = "weights";
    } else if (isfinite(r->loss)) {
        bool known = !zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_NORMS}, NULL, &ignored);
        for (i = 0; i < p->count && (!known || isfinite(t->norm[i].squares));) i++;
        if (i < p->count) kind = "gradient";
    }
    zf_pieces_close(&x, &t->model);
    if (kind) snprintf(out, size, ", in the %s of %s", kind, p->list[i].name);
}

/* --- at the step --- */

/* Where the documents of a training row come from: "FILE:LINE, FILE:LINE and 3 more". */
static void describe_row(const struct zf_trainer *t, uint64_t row, char *out, size_t size)
{
    enum { NAMED = 3 };
    struct zf_row_buffer buffer = {0};
    struct zf_row r;
    struct zf_err e;
    size_t n = 0;
    if (zf_dataset_read(&t->setup->train, row, &buffer, &r, &e)) r.documents = 0;
    snprintf(out, size, "%s", r.documents ? "" : "an unknown place");
    for (size_t i = 0; i < r.documents && i < NAMED && n < size; i++) {
        char place[320];
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "",
                              zf_dataset_place(&t->setup->train, &r.sources[i], place, sizeof place));
    }
    if (r.documents > NAMED && n < size) snprintf(out + n, size - n, " and %zu more", r.documents - NAMED);
    zf_row_buffer_free(&buffer);
}

static enum zf_verdict judge(const struct zf_trainer *t)
{
    const struct zf_options *o = t->o;
    if (o->nonfinite == ZF_NONFINITE_SKIP && t->in_row <= (uint64_t)o->max_skips) return ZF_GO_ON;
    return o->nonfinite == ZF_NONFINITE_STOP || t->step >= t->setup->steps ? ZF_GIVE_UP : ZF_ASK;
}

static void describe_verdict(const struct zf_trainer *t, enum zf_verdict v, char *out, size_t size)
{
    uint64_t most = (uint64_t)t->o->max_skips;
    char many[80] = "";
    if (t->o->nonfinite == ZF_NONFINITE_SKIP && v != ZF_GO_ON)
        snprintf(many, sizeof many, "more than %" PRIu64 " in a row (max_skips): ", most);
    if (v == ZF_GO_ON)
        snprintf(out, size, "skipped, %" PRIu64 " of at most %" PRIu64 " in a row", t->in_row, most);
    else if (v == ZF_ASK)
        snprintf(out, size, "%sthe run waits for `resume` or `stop`; without a client it ends in %g s (grace)", many, t->o->grace);
    else
        snprintf(out, size, "%s%s", many, t->o->nonfinite == ZF_NONFINITE_STOP ? "the run ends (nonfinite = stop)" : "it was the last one");
}

enum zf_verdict zf_nonfinite_step(struct zf_trainer *t, const struct zf_step_record *r)
{
    char place[1024], tensor[320] = "", done[256];
    t->skipped++;
    if (!r->label_tokens) {
        zf_record_text(t, "warning",
                       "step %" PRIu64 " has no target token (rows %" PRIu64 " to %" PRIu64 " of the order); nothing was learned from it",
                       r->step, r->first_row, r->last_row);
        return ZF_GO_ON;
    }
    if (!t->in_row++) find_tensor(t, r, tensor, sizeof tensor); /* it is looked for once: all weights are gone through */
    uint64_t row = zf_order_row(&t->order, r->first_row);
    enum zf_verdict v = judge(t);
    describe_row(t, row, place, sizeof place);
    describe_verdict(t, v, done, sizeof done);
    /* fabs: a NaN's sign means nothing, and a loss has none */
    zf_record_text(t, "warning",
                   "step %" PRIu64 ": loss %g, gradient norm %g: not finite%s, not applied; %s; it took rows %" PRIu64 " to %" PRIu64
                   " of the order, the first of them row %" PRIu64 " of the data (%s)",
                   r->step, fabs(r->loss), fabs(r->norm.norm), tensor, done, r->first_row, r->last_row, row, place);
    return v;
}

/* --- at the end --- */

void zf_nonfinite_why(const struct zf_trainer *t, bool asked, bool answered, char *out, size_t size)
{
    const struct zf_options *o = t->o;
    char many[96] = "", how[96] = "";
    if (o->nonfinite == ZF_NONFINITE_SKIP)
        snprintf(many, sizeof many, ", as were more than %" PRId64 " in a row (max_skips)", o->max_skips);
    if (answered)
        snprintf(how, sizeof how, ", and a client said stop");
    else if (asked)
        snprintf(how, sizeof how, ", and nobody answered within %g s (grace)", o->grace);
    else
        snprintf(how, sizeof how, o->nonfinite == ZF_NONFINITE_STOP ? ", and nonfinite = stop" : ", and was the last");
    snprintf(out, size, "step %" PRIu64 " was not finite%s%s", t->step, many, how);
}

void zf_nonfinite_done(const struct zf_trainer *t, const struct zf_err *export, char *out, size_t size)
{
    char of[64] = "as they were at the start";
    if (t->applied) snprintf(of, sizeof of, "after step %" PRIu64 ", the last that was applied,", t->applied);
    if (!export)
        snprintf(out, size,
                 "the weights %s are exported; look at the rows that the warning names; where the loss rose before, begin again, from an "
                 "earlier export or the model, with a lower learning rate",
                 of);
    else if (export->code == ZF_NUMERIC)
        snprintf(out, size, "nothing was exported: the weights of %s are not finite; begin again with a lower learning rate",
                 export->where);
    else
        snprintf(out, size, "the weights could not be exported: %s: %s", export->where, export->message);
}
