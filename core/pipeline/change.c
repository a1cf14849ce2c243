/* Between two steps: settling, draining, a new policy. Nothing here is in a hurry; lanes are waited for. */
#include "core/pipeline/impl.h"

#include <stdlib.h>
#include <string.h>

/* Owners where the ratio alone decides them. */
static enum zf_status assign_all(struct zf_pipeline *p, bool to_device, struct zf_err *e)
{
    size_t most = 1;
    for (size_t i = 0; i < p->matrices; i++)
        if (p->matrix[i].channels > most) most = p->matrix[i].channels;
    uint8_t *chosen = malloc(most);
    if (!chosen) return zf_fail_memory(e, "channels that change owner");
    memset(chosen, to_device, most);
    enum zf_status s = ZF_OK;
    for (size_t i = 0; !s && i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        size_t count = to_device ? x->channels : 0;
        if (!x->assigned || x->device.rows != count) s = zf_pipeline_assign(p, x, chosen, count, e);
        x->arrived = 0;
    }
    free(chosen);
    return s;
}

void zf_pipeline_share(struct zf_pipeline *p)
{
    if (p->host != p->device && p->device->type->share) p->device->type->share(p->device, zf_policy_offloads(&p->policy));
}

enum zf_status zf_pipeline_begin_windows(struct zf_pipeline *p, struct zf_err *e)
{
    size_t before = 0;
    zf_chunks_shrink(&p->chunks); /* nothing is pending; the policy may need less */
    for (size_t i = 0; i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        size_t own = x->channels * x->length;
        zf_window_start(&x->window, &p->policy, p->step, before, own, p->parameters);
        before += own;
    }
    for (size_t i = 0; i < p->matrices && !p->policy.accumulate_on_device; i++) zf_pipeline_free_sum(p, &p->matrix[i]);
    p->torn = true;
    if (!zf_policy_selects(&p->policy)) ZF_TRY(assign_all(p, p->policy.ratio >= 1, e));
    p->torn = false;
    zf_pipeline_release_masters(p);
    return ZF_OK;
}

enum zf_status zf_pipeline_show_due(struct zf_pipeline *p, struct zf_err *e)
{
    if (p->comm) ZF_TRY(zf_ranks_follow(p, e));
    for (size_t i = 0; i < p->matrices; i++)
        if (zf_window_shows(&p->matrix[i].window, p->step)) ZF_TRY(zf_pipeline_show(p, &p->matrix[i], p->policy.optimistic, true, e));
    return p->comm ? zf_ranks_visible(p, e) : ZF_OK;
}

enum zf_status zf_pipeline_settle(struct zf_pipeline *p, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_show_due(p, e));
    ZF_TRY(zf_pipeline_sync(p, e));
    zf_pipeline_exhume(p, UINT64_MAX);
    return ZF_OK;
}

static enum zf_status drain(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    struct zf_window *w = &x->window;
    bool windows = w->up.any || x->open.count;
    struct zf_update now = {.rule = p->rule};
    if (x->open.count && p->policy.accumulate_on_device) {
        ZF_TRY(zf_pipeline_lower_sum(p, x, e));
        ZF_TRY(zf_pipeline_sync(p, e));
    }
    if (w->up.any && !w->up.served) ZF_TRY(zf_pipeline_serve(p, x, &x->up, true, e));
    if (x->open.count) {
        x->open.rule = p->rule;
        x->open.cpu_rate = p->policy.cpu_rate;
        ZF_TRY(zf_pipeline_serve(p, x, &x->open, true, e));
    }
    if ((windows || p->policy.optimistic) && zf_all_cpu_rows(x)) {
        ZF_TRY(zf_pipeline_stage(p, x, &now, true, e));
        if (windows && p->policy.optimistic) {
            ZF_TRY(zf_pipeline_statistics(p, x, NULL, NULL, zf_cpu_rows(x), false, p->rule.beta2, e));
            ZF_TRY(zf_pipeline_record(p->host, p->cpu, x->served, e));
        }
        ZF_TRY(zf_pipeline_show(p, x, windows && p->policy.optimistic, false, e));
    }
    ZF_TRY(zf_pipeline_sync(p, e));
    ZF_TRY(zf_update_clear(p, &x->open, 0, e));
    ZF_TRY(zf_update_clear(p, &x->up, 0, e));
    w->up.any = false;
    return ZF_OK;
}

enum zf_status zf_pipeline_drain(struct zf_pipeline *p, struct zf_err *e)
{
    ZF_TRY(zf_pipeline_settle(p, e));
    p->torn = true;
    for (size_t i = 0; i < p->matrices; i++) ZF_TRY(drain(p, &p->matrix[i], e));
    p->torn = false;
    if (p->comm) {
        ZF_TRY(zf_ranks_visible(p, e));
        ZF_TRY(zf_pipeline_sync(p, e));
    }
    zf_pipeline_exhume(p, UINT64_MAX);
    return ZF_OK;
}

/* Staging of a served window was made under the other rule. Rows that have arrived since are not among it. */
static enum zf_status stage_again(struct zf_pipeline *p, struct zf_matrix *x, struct zf_err *e)
{
    size_t rows = zf_cpu_rows(x), kept = 0;
    uint8_t *was = calloc(x->channels, 1);
    uint32_t *from = p->list_seen, *to = p->list_seen + x->channels;
    if (!was) return zf_fail_memory(e, "a change");
    for (size_t r = 0; r < x->staged_rows; r++)
        if (x->staged[r] != UINT32_MAX) was[x->staged[r]] = 1;
    if (x->shares) memcpy(was, x->shares->staged, x->channels);
    size_t all = x->shares ? x->shares->staged_rows : 0;
    bool nothing = x->staged_rows == 0;
    enum zf_status s = zf_pipeline_stage(p, x, &x->up, !p->policy.optimistic, e);
    for (size_t r = 0; r < rows; r++) {
        if (!was[x->staged[r]]) {
            x->staged[r] = UINT32_MAX;
            x->staged_moved = true;
        } else {
            from[kept] = (uint32_t)r;
            to[kept++] = (uint32_t)r;
        }
    }
    if (nothing) x->staged_rows = 0;
    if (x->shares) {
        memcpy(x->shares->staged, was, x->channels);
        x->shares->staged_rows = all;
    }
    free(was);
    if (!s && p->policy.optimistic && (kept || x->shares)) s = zf_pipeline_statistics(p, x, from, to, kept, true, x->up.rule.beta2, e);
    return s ? s : zf_pipeline_sync(p, e);
}

void zf_pipeline_reselect(struct zf_pipeline *p)
{
    for (size_t i = 0; i < p->matrices; i++) p->matrix[i].window.selected = 0;
}

enum zf_status zf_pipeline_change(struct zf_pipeline *p, const struct zf_policy *policy, const struct zf_adam_rule *rule, int *change,
                                  struct zf_err *e)
{
    *change = zf_policy_compare(&p->policy, policy);
    bool toggled = p->policy.optimistic != policy->optimistic;
    if (*change) ZF_TRY(zf_pipeline_settle(p, e));
    if (*change & ZF_CHANGE_DRAIN) ZF_TRY(zf_pipeline_drain(p, e));
    if (*change & ZF_CHANGE_RESELECT) zf_pipeline_reselect(p);
    p->policy = *policy;
    p->rule = *rule;
    zf_pipeline_share(p);
    if (*change & ZF_CHANGE_DRAIN) return zf_pipeline_begin_windows(p, e);
    for (size_t i = 0; toggled && i < p->matrices; i++) {
        struct zf_matrix *x = &p->matrix[i];
        if (x->window.up.any && x->window.up.served && zf_all_cpu_rows(x)) ZF_TRY(stage_again(p, x, e));
    }
    return ZF_OK;
}
