/* See pace.h. */
#include "core/run/pace.h"
#include "core/run/orders.h"
#include "core/run/steer.h"

#include "core/telemetry/jsonl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void zf_pace_start(struct zf_trainer *t)
{
    zf_pace_close(t);
    t->pace = (struct zf_pace){.interval = {.now = zf_policy_first_interval(t->o)}};
    zf_pace_forget(t);
}

void zf_pace_close(struct zf_trainer *t)
{
    free(t->pace.again);
    t->pace.again = NULL;
    t->pace.again_count = 0;
}

void zf_pace_resume(struct zf_trainer *t, uint32_t now, const json_t *entries, uint64_t last_step)
{
    struct zf_pace *p = &t->pace;
    size_t i;
    const json_t *v;
    p->interval.now = now;
    zf_pace_forget(t);
    p->again = calloc(json_array_size(entries) + 1, sizeof *p->again);
    p->again_until = p->again ? last_step : 0;
    json_array_foreach((json_t *)(uintptr_t)entries, i, v)
    {
        double from = zf_json_number(v, "from_step", 0),
               chosen = zf_json_number(json_array_get(json_object_get(v, "changes"), 0), "new", 0);
        bool ours = !strcmp(zf_json_text(v, "by", ""), "auto") && from > (double)t->step && from < 9e15 && chosen >= 1 && chosen < 1e6;
        if (p->again && ours) p->again[p->again_count++] = (struct zf_pace_decision){(uint64_t)from, (uint32_t)chosen};
    }
}

void zf_pace_forget(struct zf_trainer *t)
{
    struct zf_pace *p = &t->pace;
    p->looking = p->told_room = false;
    p->room = 0;
    p->interval.longer = p->interval.shorter = 0;
    p->from = t->step + 2 * p->interval.now; /* until the lanes have reached their stride */
}

static bool is_auto(const struct zf_trainer *t)
{
    return !t->o->update_interval && t->o->strategy == ZF_STRATEGY_ZENFLOW && zf_policy_offloads(&t->pipeline.policy);
}

void zf_pace_step(struct zf_trainer *t)
{
    struct zf_pace *p = &t->pace;
    if (!is_auto(t)) return;
    p->interval.most = (uint32_t)t->o->max_update_interval;
    p->interval.mean = t->o->cpu_update == ZF_CPU_UPDATE_MEAN;
    p->interval.bus = (unsigned)zf_dtype_size(t->pipeline.policy.bus);
    if (p->looking) p->compute += t->watch.step.busy[ZF_LANE_COMPUTE];
    if (p->looking || t->step < p->from) return;
    p->looking = true;
    p->from = t->step;
    p->compute = 0;
    zf_pipeline_sample(&t->pipeline, &p->then);
}

/* The cpu lane goes on during a validation, and so it counts whole; compute counts in steps alone. */
static struct zf_interval_look look(const struct zf_trainer *t)
{
    const struct zf_pace *p = &t->pace;
    struct zf_pipeline_sample now;
    zf_pipeline_sample(&t->pipeline, &now);
    now = zf_pipeline_between(&p->then, &now);
    return (struct zf_interval_look){.steps = t->step - p->from,
                                     .compute = p->compute,
                                     .cpu = now.busy[ZF_LANE_CPU],
                                     .d2h = now.busy[ZF_LANE_D2H],
                                     .h2d = now.busy[ZF_LANE_H2D]};
}

/* The longest window up to `wanted` that memory is enough for; a shorter one than now needs less. */
static uint32_t with_room(struct zf_trainer *t, uint32_t wanted)
{
    struct zf_pace *p = &t->pace;
    struct zf_err e;
    if (p->room && wanted > p->room) wanted = p->room;
    for (; wanted > p->interval.now; wanted--) {
        struct zf_policy policy = zf_policy_of(t->o, t->model.dtype, wanted);
        if (!zf_steer_memory(t, &policy, &e)) break;
        p->room = wanted - 1;
        if (!p->told_room) zf_record_text(t, "note", "update_interval = auto: memory is not enough for %" PRIu32 ": %s", wanted, e.message);
        p->told_room = true;
    }
    return wanted;
}

static json_t *why_json(const struct zf_pace *p, const struct zf_interval_look *l)
{
    double ms = 1e3 / (double)l->steps;
    return json_pack("{sI sf sf sf sf sf sI}", "steps", (json_int_t)l->steps, "compute_ms", ms * l->compute, "cpu_ms", ms * l->cpu,
                     "d2h_ms", ms * l->d2h, "h2d_ms", ms * l->h2d, "share", p->interval.share, "wanted", (json_int_t)p->interval.wanted);
}

static enum zf_status act(struct zf_trainer *t, uint32_t now, struct zf_err *e)
{
    struct zf_pace *p = &t->pace;
    p->interval.now = now;
    t->drains++;
    json_t *changes = json_pack("{sI}", "interval", (json_int_t)now);
    enum zf_status s = changes ? zf_order(t, (struct zf_ordered){.kind = ZF_ORDER_CHANGE}, changes, e) : zf_fail_memory(e, "a change");
    json_decref(changes);
    ZF_TRY(s);
    uint32_t room = p->room; /* memory has not become more */
    zf_pace_forget(t);
    p->room = room;
    return ZF_OK;
}

/* What was decided before is done again, and told as it was. */
static enum zf_status repeat(struct zf_trainer *t, struct zf_err *e)
{
    struct zf_pace *p = &t->pace;
    for (size_t i = 0; i < p->again_count; i++) {
        if (p->again[i].step != t->step + 1 || p->again[i].now == p->interval.now) continue;
        ZF_TRY(zf_session_decided(t->session, ZF_OPT_update_interval, p->interval.now, p->again[i].now, NULL, true, e));
        ZF_TRY(act(t, p->again[i].now, e));
    }
    return ZF_OK;
}

enum zf_status zf_pace_decide(struct zf_trainer *t, struct zf_err *e)
{
    struct zf_pace *p = &t->pace;
    uint32_t was = p->interval.now, now = (uint32_t)t->o->max_update_interval;
    json_t *why = NULL;
    if (!is_auto(t)) return ZF_OK;
    if (t->step < p->again_until) return repeat(t, e);
    if (was > now) {
        why = json_pack("{sI}", "max_update_interval", (json_int_t)now);
    } else if (p->looking && t->step - p->from >= zf_interval_steps(&p->interval)) {
        struct zf_interval_look l = look(t);
        p->looking = false;
        p->from = t->step;
        now = with_room(t, zf_interval_decide(&p->interval, &l));
        if (now != was) why = why_json(p, &l);
    } else {
        return ZF_OK;
    }
    if (now == was) return ZF_OK;
    if (zf_session_decided(t->session, ZF_OPT_update_interval, was, now, why, false, e)) {
        if (!p->told_journal)
            zf_record_text(t, "warning", "update_interval = auto stays at %" PRIu32 ": it cannot be written down (%s: %s)", was, e->where,
                           e->message);
        p->told_journal = true;
        return ZF_OK;
    }
    p->told_journal = false;
    return act(t, now, e);
}
