/* See orders.h. */
#include "core/run/orders.h"
#include "core/run/load.h"
#include "core/run/steer.h"
#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum zf_status (*const acts[])(struct zf_trainer *, const struct zf_ordered *, const json_t *, struct zf_err *) = {
#define X(name, function) [ZF_ORDER_##name] = function,
    ZF_ORDERS(X)
#undef X
};

/* ---- telling ---- */

static enum zf_status tell(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    char *more = text ? json_dumps(text, JSON_COMPACT) : NULL;
    size_t size = more ? strlen(more) : 0;
    char *all = text && !more ? NULL : malloc(sizeof *o + size);
    if (all) memcpy(all, o, sizeof *o);
    if (all && size) memcpy(all + sizeof *o, more, size);
    enum zf_status s = all ? zf_world_tell(t->world, all, sizeof *o + size, e) : zf_fail_memory(e, "an order");
    free(more);
    free(all);
    return s;
}

enum zf_status zf_order(struct zf_trainer *t, struct zf_ordered o, const json_t *text, struct zf_err *e)
{
    o.step = t->step;
    if (t->world) {
        ZF_TRY(zf_world_check(t->world, e));
        ZF_TRY(tell(t, &o, text, e));
    }
    enum zf_status s = acts[o.kind](t, &o, text, e);
    t->apart |= t->world && s && s != ZF_STOPPED;
    return s;
}

/* ---- obeying ---- */

static enum zf_status hear(struct zf_trainer *t, struct zf_ordered *o, json_t **text, struct zf_err *e)
{
    void *bytes;
    size_t size;
    *text = NULL;
    ZF_TRY(zf_world_receive(t->world, 0, &bytes, &size, e));
    bool whole = size >= sizeof *o;
    if (whole) memcpy(o, bytes, sizeof *o);
    if (whole && size > sizeof *o) *text = json_loadb((char *)bytes + sizeof *o, size - sizeof *o, 0, NULL);
    free(bytes);
    if (whole && o->kind < ZF_ORDER_KINDS && (size == sizeof *o || *text)) return ZF_OK;
    json_decref(*text);
    *text = NULL;
    return zf_fail(e, ZF_IO, NULL, "an order of %zu bytes that nobody understands; this is a mistake in the program", size);
}

enum zf_status zf_orders_obey(struct zf_trainer *t, enum zf_status *code, struct zf_err *e)
{
    for (;;) {
        struct zf_ordered o;
        json_t *text;
        zf_world_doing(t->world, t->step, "waiting for an order");
        ZF_TRY(hear(t, &o, &text, e));
        enum zf_status s = ZF_OK;
        if (o.step != t->step && o.kind != ZF_ORDER_LAST)
            s = zf_fail(e, ZF_IO, NULL, "it has completed step %" PRIu64 ", and rank 0 step %" PRIu64 "; this is a mistake in the program",
                        t->step, o.step);
        if (!s) s = acts[o.kind](t, &o, text, e);
        json_decref(text);
        if (s && s != ZF_STOPPED) return s; /* dropped: what rank 0 wants next is its next order */
        if (o.kind != ZF_ORDER_END) continue;
        *code = (enum zf_status)o.number;
        return ZF_OK;
    }
}

/* ---- within an order ---- */

enum zf_status zf_order_go(struct zf_trainer *t, bool stop, struct zf_err *e)
{
    struct zf_ordered o = {.kind = ZF_ORDER_LAST, .flag = stop, .step = t->step};
    json_t *text;
    if (!t->world || t->may_end) return ZF_OK;
    if (!zf_world_rank(t->world)) {
        ZF_TRY(tell(t, &o, NULL, e));
    } else {
        ZF_TRY(hear(t, &o, &text, e));
        json_decref(text);
        if (o.kind != ZF_ORDER_LAST) return zf_fail(e, ZF_IO, NULL, "another order came within a step; this is a mistake in the program");
    }
    t->may_end = true;
    return o.flag ? zf_fail(e, ZF_STOPPED, NULL, "a signal or the clock asked to end") : ZF_OK;
}

struct answer {
    uint32_t status, count;
};

static enum zf_status send_answer(struct zf_trainer *t, enum zf_status status, const double *x, size_t n, struct zf_err *e)
{
    const struct answer head = {status, (uint32_t)n};
    char *all = malloc(sizeof head + n * sizeof *x);
    if (!all) return zf_fail_memory(e, "an answer");
    memcpy(all, &head, sizeof head);
    if (n) memcpy(all + sizeof head, x, n * sizeof *x);
    enum zf_status s = zf_world_send(t->world, 0, all, sizeof head + n * sizeof *x, e);
    free(all);
    return s;
}

static enum zf_status add_answer(struct zf_trainer *t, int rank, bool *stopped, double *x, size_t n, struct zf_err *e)
{
    struct answer head;
    void *bytes;
    size_t size;
    ZF_TRY(zf_world_receive(t->world, rank, &bytes, &size, e));
    bool fits = size == sizeof head + n * sizeof *x;
    if (fits) memcpy(&head, bytes, sizeof head);
    for (size_t i = 0; fits && i < n; i++) {
        double one;
        memcpy(&one, (char *)bytes + sizeof head + i * sizeof one, sizeof one);
        x[i] += one;
    }
    free(bytes);
    if (!fits) return zf_fail(e, ZF_IO, NULL, "an answer of %zu bytes from rank %d; this is a mistake in the program", size, rank);
    *stopped |= head.status == ZF_STOPPED;
    return ZF_OK;
}

enum zf_status zf_order_sum(struct zf_trainer *t, enum zf_status status, double *x, size_t n, struct zf_err *e)
{
    bool stopped = false;
    struct zf_err why = *e;
    if (!t->world) return status;
    if (zf_world_rank(t->world)) {
        if (!status || status == ZF_STOPPED) ZF_TRY(send_answer(t, status, x, n, e));
        *e = why;
        return status;
    }
    if (status) /* they need not go on with theirs */
        ZF_TRY(tell(t, &(struct zf_ordered){.kind = ZF_ORDER_LAST, .flag = true, .step = t->step}, NULL, e));
    for (int r = 1; r < zf_world_ranks(t->world); r++) ZF_TRY(add_answer(t, r, &stopped, x, n, e));
    *e = why;
    if (status) return status;
    return stopped ? zf_fail(e, ZF_IO, NULL, "a rank has left its work without being told to; this is a mistake in the program") : ZF_OK;
}

/* ---- options ---- */

json_t *zf_orders_changes(const struct zf_options *before, const struct zf_options *now, uint32_t interval)
{
    json_t *set = json_object();
    bool whole = set != NULL;
    for (int i = 0; whole && i < ZF_OPTIONS; i++) {
        char *was = zf_options_get_text(before, (enum zf_option_id)i), *is = zf_options_get_text(now, (enum zf_option_id)i);
        whole = was && is && (!strcmp(was, is) || !json_object_set_new(set, zf_option_table[i].name, json_string(is)));
        free(was);
        free(is);
    }
    if (whole) return json_pack("{so sI}", "set", set, "interval", (json_int_t)interval);
    json_decref(set);
    return NULL;
}

enum zf_status zf_orders_set(struct zf_trainer *t, const json_t *changes, struct zf_err *e)
{
    const struct zf_origin origin = {.kind = ZF_ORIGIN_COMMAND};
    struct zf_options *o = (struct zf_options *)(uintptr_t)t->o; /* this rank's own: no session changes them */
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(changes, "set"), name, value) ZF_TRY(zf_options_set(o, name, json_string_value(value), &origin, e));
    t->pace.interval.now = (uint32_t)zf_json_number(changes, "interval", t->pace.interval.now);
    return ZF_OK;
}

/* ---- small orders ---- */

enum zf_status zf_order_late(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)t, (void)o, (void)text, (void)e; /* what it was to end had ended */
    return ZF_OK;
}

enum zf_status zf_order_select(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)o, (void)text, (void)e;
    zf_pipeline_reselect(&t->pipeline);
    return ZF_OK;
}

enum zf_status zf_order_drain(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)o, (void)text;
    zf_world_doing(t->world, t->step, "draining");
    ZF_TRY(zf_pipeline_drain(&t->pipeline, e));
    t->drains++;
    return ZF_OK;
}

enum zf_status zf_order_settle(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)o, (void)text;
    return zf_pipeline_settle(&t->pipeline, e);
}

enum zf_status zf_order_change(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    int change;
    (void)o;
    if (zf_world_rank(t->world)) ZF_TRY(zf_orders_set(t, text, e));
    uint64_t steps = (uint64_t)t->o->steps;
    t->schedule = zf_schedule_of(t->o);
    t->rule = zf_rule_of(t->o);
    struct zf_policy policy = zf_policy_of(t->o, t->model.dtype, t->pace.interval.now);
    ZF_TRY(zf_pipeline_change(&t->pipeline, &policy, &t->rule, &change, e));
    t->change = change;
    uint64_t rows = steps * (uint64_t)t->o->batch_size;
    if (!steps || (steps == t->setup->steps && rows == t->setup->total_rows)) return ZF_OK;
    t->setup->steps = steps;
    t->setup->total_rows = rows;
    return zf_trainer_feed(t, e);
}

static enum zf_status ask_masters(void *pipeline, const struct zf_param *param, float *out, bool *elsewhere, struct zf_err *e)
{
    struct zf_trainer *t = (void *)((char *)pipeline - offsetof(struct zf_trainer, pipeline));
    t->masters.out = out;
    enum zf_status s =
        zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_MASTERS, .number = (uint64_t)(param - t->model.params.list)}, NULL, e);
    t->masters.out = NULL;
    *elsewhere = t->masters.elsewhere;
    return s;
}

/* An export, and whoever else looks at masters, asks for them here, a parameter at a time. */
void zf_orders_take_masters(struct zf_trainer *t)
{
    t->masters.of = t->model.hooks.masters;
    if (t->world && !zf_world_rank(t->world)) t->model.hooks.masters = ask_masters;
}

enum zf_status zf_trainer_masters(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)text;
    if (o->number >= t->model.params.count) return zf_fail(e, ZF_IO, NULL, "there is no such parameter; this is a mistake in the program");
    const struct zf_param *q = &t->model.params.list[o->number];
    float *own = t->masters.out ? NULL : malloc(q->rows * q->cols * sizeof *own);
    if (!t->masters.out && !own) return zf_fail_memory(e, q->name);
    enum zf_status s = t->masters.of(&t->pipeline, q, own ? own : t->masters.out, &t->masters.elsewhere, e);
    free(own);
    return s;
}

enum zf_status zf_order_end(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e)
{
    (void)t, (void)o, (void)text, (void)e;
    return ZF_OK;
}
