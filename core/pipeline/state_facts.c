/* See state.h: what is no array, as JSON, and the form of a pipeline made by it. */
#include "core/pipeline/impl.h"
#include "core/pipeline/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- to JSON ---- */

static json_t *rule_facts(const struct zf_adam_rule *r)
{
    return json_pack("{s:f s:f s:f s:f s:f s:b s:I}", "beta1", r->beta1, "beta2", r->beta2, "epsilon", r->epsilon, "weight_decay",
                     r->weight_decay, "clip_norm", r->clip_norm, "stochastic", r->stochastic, "seed", (json_int_t)r->seed);
}

/* With ranks, one of which may have none of the rows: whether the others have such a sum. */
static bool has_sum(const struct zf_matrix *x, const struct zf_update *u, bool folds)
{
    return u->sum.chunk || (x->shares && folds && u->count && !zf_cpu_rows(x) && zf_all_cpu_rows(x));
}

static json_t *update_facts(const struct zf_matrix *x, const struct zf_update *u, bool folds)
{
    json_t *entries = json_array();
    for (uint32_t i = 0; u->entries && i < u->count && i < u->room; i++)
        json_array_append_new(entries, json_pack("[f f]", (double)u->entries[i].scale, u->entries[i].lr));
    return json_pack("{s:I s:o s:b s:f s:f s:o s:i}", "count", (json_int_t)u->count, "entries", entries, "sum", has_sum(x, u, folds),
                     "last_rate", u->last_rate, "sum_rate", u->sum_rate, "rule", rule_facts(&u->rule), "cpu_rate", (int)u->cpu_rate);
}

static json_t *matrix_facts(const struct zf_pipeline *p, const struct zf_matrix *x)
{
    bool mean = p->policy.cpu_update == ZF_CPU_UPDATE_MEAN;
    const struct zf_window *w = &x->window;
    bool staged = x->staging.chunk && x->staged_rows;
    json_t *o = json_pack("{s:s s:I s:I s:b s:I s:I s:b s:b}", "name", x->param->name, "channels", (json_int_t)x->channels, "length",
                          (json_int_t)x->length, "assigned", x->assigned, "device_rows", (json_int_t)x->device.rows, "staged_rows",
                          (json_int_t)(staged ? x->staged_rows : 0), "staged_moved", x->staged_moved, "has_column", x->has_column);
    json_t *window = json_pack("{s:I s:I s:b s:b s:b s:I s:I s:I}", "origin", (json_int_t)w->origin, "selected", (json_int_t)w->selected,
                               "starts", w->starts, "up", w->up.any, "served", w->up.any && w->up.served, "ended", (json_int_t)w->up.ended,
                               "serve", (json_int_t)w->up.serve, "due", (json_int_t)w->up.due);
    json_t *more =
        json_pack("{s:o s:o s:I s:f s:I s:I s:b}", "window", window, "open",
                  update_facts(x, &x->open, mean && !p->policy.accumulate_on_device), "arrived", (json_int_t)x->arrived, "energy",
                  x->energy, "kept", (json_int_t)x->kept, "kept_of", (json_int_t)x->kept_of, "device_sum", x->device_sum && x->open.count);
    if (o && more && w->up.any) json_object_set_new(more, "up", update_facts(x, &x->up, mean));
    bool fine = o && more && !json_object_update(o, more);
    json_decref(more);
    if (fine) return o;
    json_decref(o);
    return NULL;
}

json_t *zf_state_facts(const struct zf_pipeline *p)
{
    json_t *matrices = json_array();
    bool fine = matrices != NULL;
    for (size_t i = 0; fine && i < p->matrices; i++) fine = !json_array_append_new(matrices, matrix_facts(p, &p->matrix[i]));
    json_t *o = fine ? json_pack("{s:I s:i s:f s:O}", "step", (json_int_t)p->step, "ranks", p->comm ? p->comm->ranks : 1, "last_clip",
                                 (double)p->last_clip, "matrices", matrices)
                     : NULL;
    json_decref(matrices);
    return o;
}

/* ---- from JSON ---- */

/* Reads members of objects; the first that is not there, or of another kind, or out of its range stays as `missing`. */
struct reader {
    const char *missing;
};

static uint64_t whole(struct reader *r, const json_t *o, const char *name, uint64_t most)
{
    const json_t *x = json_object_get(o, name);
    bool fine = json_is_integer(x) && json_integer_value(x) >= 0 && (uint64_t)json_integer_value(x) <= most;
    if (!fine && !r->missing) r->missing = name;
    return fine ? (uint64_t)json_integer_value(x) : 0;
}

static double number(struct reader *r, const json_t *o, const char *name)
{
    const json_t *x = json_object_get(o, name);
    if (!json_is_number(x) && !r->missing) r->missing = name;
    return json_number_value(x);
}

static bool flag(struct reader *r, const json_t *o, const char *name)
{
    const json_t *x = json_object_get(o, name);
    if (!json_is_boolean(x) && !r->missing) r->missing = name;
    return json_is_true(x);
}

static struct zf_adam_rule rule_of(struct reader *r, const json_t *o)
{
    return (struct zf_adam_rule){.beta1 = number(r, o, "beta1"),
                                 .beta2 = number(r, o, "beta2"),
                                 .epsilon = number(r, o, "epsilon"),
                                 .weight_decay = number(r, o, "weight_decay"),
                                 .clip_norm = number(r, o, "clip_norm"),
                                 .stochastic = flag(r, o, "stochastic"),
                                 .seed = whole(r, o, "seed", INT64_MAX)};
}

/* A window with room for what is to be read into it. */
static enum zf_status make_update(struct zf_pipeline *p, struct zf_matrix *x, const json_t *o, bool arrays, struct zf_update *u,
                                  struct reader *r, struct zf_err *e)
{
    enum { MOST = 1 << 20 }; /* steps of a window */
    const json_t *entries = json_object_get(o, "entries");
    size_t rows = zf_cpu_rows(x), row = x->length * zf_dtype_size(p->policy.bus), given = json_array_size(entries);
    bool mean = p->policy.cpu_update == ZF_CPU_UPDATE_MEAN, sum = flag(r, o, "sum");
    *u = (struct zf_update){.count = (uint32_t)whole(r, o, "count", MOST),
                            .last_rate = number(r, o, "last_rate"),
                            .sum_rate = number(r, o, "sum_rate"),
                            .rule = rule_of(r, json_object_get(o, "rule")),
                            .cpu_rate = (enum zf_choice_cpu_learning_rate)whole(r, o, "cpu_rate", ZF_CPU_LEARNING_RATE_SUM)};
    if (!r->missing && given != (mean && u->count ? 1 : u->count)) r->missing = "entries";
    if (r->missing || !u->count) return ZF_OK;
    u->room = mean ? 1 : u->count > p->policy.interval ? u->count : p->policy.interval;
    u->entries = calloc(u->room, sizeof *u->entries);
    u->slots = calloc(u->room, sizeof *u->slots);
    if (!u->entries || !u->slots) return zf_fail_memory(e, "a window");
    for (size_t i = 0; i < given; i++) {
        const json_t *pair = json_array_get(entries, i);
        if (!mean && arrays) ZF_TRY(zf_chunks_take(&p->chunks, rows, row, &u->slots[i], e));
        u->entries[i] = (struct zf_entry){{u->slots[i].chunk, u->slots[i].chunk_rows},
                                          (float)json_number_value(json_array_get(pair, 0)),
                                          json_number_value(json_array_get(pair, 1))};
    }
    return sum && arrays ? zf_chunks_take(&p->chunks, rows, x->length * sizeof(float), &u->sum, e) : ZF_OK;
}

static void read_window(struct zf_window *w, const json_t *o, struct reader *r)
{
    w->origin = whole(r, o, "origin", INT64_MAX);
    w->selected = whole(r, o, "selected", INT64_MAX);
    w->starts = flag(r, o, "starts");
    w->up.any = flag(r, o, "up");
    w->up.served = flag(r, o, "served");
    w->up.ended = whole(r, o, "ended", INT64_MAX);
    w->up.serve = whole(r, o, "serve", INT64_MAX);
    w->up.due = whole(r, o, "due", INT64_MAX);
}

/* Some channels for the device half, as many as it had: which they are is read afterwards. */
static enum zf_status assign(struct zf_pipeline *p, struct zf_matrix *x, size_t count, struct zf_err *e)
{
    if (x->assigned && x->device.rows == count) return ZF_OK;
    uint8_t *chosen = calloc(x->channels, 1);
    if (!chosen) return zf_fail_memory(e, "channels of the device half");
    memset(chosen, 1, count);
    enum zf_status s = zf_pipeline_assign(p, x, chosen, count, e);
    free(chosen);
    return s;
}

/* How what is known of channels is read. */
struct lists {
    zf_state_list_reader *read;
    void *ctx;
};

static enum zf_status read_list(const struct lists *l, const struct zf_matrix *x, const char *what, uint32_t *out, size_t room, size_t *n,
                                struct zf_err *e)
{
    char name[256];
    snprintf(name, sizeof name, "%.180s:%s", x->param->name, what);
    ZF_TRY(l->read(l->ctx, name, out, room, n, e));
    for (size_t i = 0; i < *n; i++)
        if (out[i] >= x->channels && out[i] != UINT32_MAX)
            return zf_fail(e, ZF_FORMAT, name, "it names channel %u of %zu", out[i], x->channels);
    return ZF_OK;
}

/* Ranks: the very owners, each rank's rows in the order in which the file has them. */
static enum zf_status assign_own(struct zf_pipeline *p, struct zf_matrix *x, size_t count, const struct lists *l, struct zf_err *e)
{
    size_t n, own = 0;
    uint32_t *order = calloc(x->channels, sizeof *order);
    uint8_t *chosen = calloc(x->channels, 1), *seen = calloc(x->channels, 1);
    enum zf_status s = order && chosen && seen ? read_list(l, x, "order", order, x->channels, &n, e) : zf_fail_memory(e, "channels");
    for (size_t i = 0; !s && i < x->channels; i++) {
        if (n != x->channels || order[i] >= x->channels || seen[order[i]])
            s = zf_fail(e, ZF_FORMAT, x->param->name, "its channels are in no order in the saved state");
        else
            seen[order[i]] = 1;
    }
    for (size_t i = 0; !s && i < count; i++) chosen[order[i]] = 1;
    if (!s) s = zf_pipeline_assign(p, x, chosen, count, e);
    if (!s) memcpy(x->order, order, count * sizeof *order);
    for (size_t i = count; !s && i < x->channels; i++)
        if (zf_is_own(p, x, order[i])) x->order[count + own++] = order[i];
    free(order);
    free(chosen);
    free(seen);
    return s;
}

/* Rows in staging that are this rank's; and which of all ranks are. */
static enum zf_status stage_own(struct zf_pipeline *p, struct zf_matrix *x, size_t *staged, const struct lists *l, struct zf_err *e)
{
    struct zf_shares *shares = x->shares;
    uint32_t *list = *staged ? calloc(*staged, sizeof *list) : NULL;
    size_t n = 0, own = 0;
    if (*staged && !list) return zf_fail_memory(e, "channels");
    enum zf_status s = *staged ? read_list(l, x, "staged", list, *staged, &n, e) : ZF_OK;
    memset(shares->staged, 0, x->channels);
    shares->staged_rows = 0;
    for (size_t i = 0; !s && i < n; i++) {
        if (list[i] == UINT32_MAX) continue; /* it had gone to the device half */
        shares->staged[list[i]] = 1;
        shares->staged_rows++;
        own += zf_is_own(p, x, list[i]);
    }
    *staged = own;
    free(list);
    return s;
}

static enum zf_status shape_matrix(struct zf_pipeline *p, struct zf_matrix *x, const json_t *o, const struct lists *l, struct reader *r,
                                   struct zf_err *e)
{
    bool assigned = flag(r, o, "assigned"), sum = flag(r, o, "device_sum");
    size_t device = whole(r, o, "device_rows", x->channels), staged = whole(r, o, "staged_rows", x->channels);
    if (whole(r, o, "channels", UINT32_MAX) != x->channels || whole(r, o, "length", UINT32_MAX) != x->length) r->missing = "channels";
    read_window(&x->window, json_object_get(o, "window"), r);
    if (r->missing || !assigned) return ZF_OK;
    ZF_TRY(p->comm ? assign_own(p, x, device, l, e) : assign(p, x, device, e));
    x->arrived = whole(r, o, "arrived", x->channels);
    x->staged_moved = flag(r, o, "staged_moved");
    x->has_column = flag(r, o, "has_column");
    x->energy = number(r, o, "energy");
    x->kept = whole(r, o, "kept", x->channels);
    x->kept_of = whole(r, o, "kept_of", x->channels);
    if (r->missing) return ZF_OK;
    ZF_TRY(make_update(p, x, json_object_get(o, "open"), true, &x->open, r, e));
    if (x->window.up.any) ZF_TRY(make_update(p, x, json_object_get(o, "up"), !x->window.up.served, &x->up, r, e));
    if (sum) ZF_TRY(zf_pipeline_make_sum(p, x, zf_cpu_rows(x), e));
    if (p->comm) ZF_TRY(stage_own(p, x, &staged, l, e));
    x->staged_rows = staged;
    return zf_chunks_take(&p->chunks, staged, x->length * zf_dtype_size(p->model->dtype), &x->staging, e);
}

static const json_t *facts_of(const json_t *all, const struct zf_matrix *x)
{
    size_t i;
    const json_t *o;
    json_array_foreach((json_t *)(uintptr_t)all, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "name"));
        if (name && !strcmp(name, x->param->name)) return o;
    }
    return NULL;
}

enum zf_status zf_state_shape(struct zf_pipeline *p, const json_t *facts, zf_state_list_reader *read, void *ctx, struct zf_err *e)
{
    const struct lists lists = {read, ctx};
    const json_t *all = json_object_get(facts, "matrices");
    struct reader r = {0};
    p->step = whole(&r, facts, "step", INT64_MAX);
    p->last_clip = (float)number(&r, facts, "last_clip");
    if (json_array_size(all) != p->matrices) r.missing = "matrices";
    for (size_t i = 0; !r.missing && i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        const json_t *o = facts_of(all, x);
        ZF_TRY(shape_matrix(p, x, o, &lists, &r, e));
        if (r.missing)
            return zf_fail(e, ZF_FORMAT, x->param->name, "`%s` of the saved state is missing or does not fit this model and policy",
                           r.missing);
    }
    return r.missing ? zf_fail(e, ZF_FORMAT, NULL, "`%s` of the saved state is missing or does not fit this model", r.missing) : ZF_OK;
}

enum zf_status zf_state_settled(struct zf_pipeline *p, struct zf_err *e)
{
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        bool fine = true;
        for (size_t k = 0; k < x->staged_rows; k++) fine &= x->staged[k] < x->channels || x->staged[k] == UINT32_MAX;
        for (size_t k = 0; k < x->arrived; k++) fine &= x->arrived_list[k] < x->channels;
        if (!fine) return zf_fail(e, ZF_FORMAT, x->param->name, "the saved state names channels that it does not have");
        ZF_TRY(zf_pipeline_copy(p, p->compute, x->device_order, x->order, x->channels * sizeof *x->order, e));
    }
    ZF_TRY(zf_pipeline_sync(p, e));
    zf_pipeline_release_masters(p);
    return ZF_OK;
}
