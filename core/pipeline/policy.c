#include "core/pipeline/policy.h"

#include <string.h>

/* What a strategy fixes, whatever the options say. ratio, interval below 0: the option's. */
static const struct point {
    double ratio;
    int interval;
    bool windows; /* swap and optimistic count */
    bool selects; /* select_interval counts */
    bool cpu_half, layered;
} points[] = {
    [ZF_STRATEGY_AUTO] = {1, 1, false, false, true, false}, /* resolved before: as gpu_only */
    [ZF_STRATEGY_GPU_ONLY] = {1, 1, false, false, true, false},  [ZF_STRATEGY_ZERO_OFFLOAD] = {0, 1, false, false, true, false},
    [ZF_STRATEGY_STRONGHOLD] = {0, 1, false, false, true, true}, [ZF_STRATEGY_ZENFLOW_SYNC] = {-1, -1, false, true, true, false},
    [ZF_STRATEGY_ZENFLOW] = {-1, -1, true, true, true, true},    [ZF_STRATEGY_SELECTED_ONLY] = {-1, -1, false, true, false, false},
};

static const enum zf_visible visible_of[] = {
    [ZF_SWAP_STAGGERED] = ZF_VISIBLE_STAGGERED, [ZF_SWAP_ROLLING] = ZF_VISIBLE_ROLLING, [ZF_SWAP_GLOBAL] = ZF_VISIBLE_GLOBAL};

struct zf_policy zf_policy_of(const struct zf_options *o, enum zf_dtype dtype, uint32_t interval)
{
    const struct point *s = &points[o->strategy];
    struct zf_policy p = {
        .ratio = s->ratio < 0 ? o->topk_ratio : s->ratio,
        .interval = s->interval > 0      ? (uint32_t)s->interval
                    : o->update_interval ? (uint32_t)o->update_interval
                                         : interval,
        .select = s->selects ? (uint64_t)o->select_interval : 0,
        .visible = s->windows ? visible_of[o->swap] : ZF_VISIBLE_NONE,
        .cpu_half = s->cpu_half,
        .layered = s->layered,
        .cpu_update = o->cpu_update,
        .cpu_rate = o->cpu_learning_rate,
        .score = o->score,
        .bus = o->bus_dtype == ZF_BUS_DTYPE_AUTO   ? dtype
               : o->bus_dtype == ZF_BUS_DTYPE_BF16 ? ZF_BF16
                                                   : ZF_F32,
    };
    p.optimistic = o->optimistic && p.visible == ZF_VISIBLE_STAGGERED;
    p.accumulate_on_device = o->accumulate_on == ZF_ACCUMULATE_ON_DEVICE && zf_policy_offloads(&p) && p.interval > 1;
    return p;
}

uint32_t zf_policy_first_interval(const struct zf_options *o)
{
    return o->max_update_interval < 4 ? (uint32_t)o->max_update_interval : 4;
}

bool zf_policy_offloads(const struct zf_policy *p)
{
    return p->cpu_half && p->ratio < 1;
}

bool zf_policy_selects(const struct zf_policy *p)
{
    return p->ratio > 0 && p->ratio < 1;
}

enum zf_policy_change zf_policy_compare(const struct zf_policy *a, const struct zf_policy *b)
{
    bool inside = zf_policy_selects(a) && zf_policy_selects(b), ratio = a->ratio != b->ratio;
    int change = ZF_CHANGE_NOTHING;
    if (a->interval != b->interval || a->visible != b->visible || a->cpu_half != b->cpu_half || a->cpu_update != b->cpu_update ||
        a->bus != b->bus || a->accumulate_on_device != b->accumulate_on_device || (ratio && !inside))
        change |= ZF_CHANGE_DRAIN;
    if (ratio && inside) change |= ZF_CHANGE_RESELECT;
    if (a->select != b->select || a->optimistic != b->optimistic || a->cpu_rate != b->cpu_rate || a->score != b->score ||
        a->layered != b->layered)
        change |= ZF_CHANGE_AT_ONCE;
    return (enum zf_policy_change)change;
}

static bool is(const struct zf_options *o, enum zf_choice_strategy s)
{
    return o->strategy == s;
}
static bool windows(const struct zf_options *o) /* whether it has more than one step to accumulate */
{
    return is(o, ZF_STRATEGY_ZENFLOW) || is(o, ZF_STRATEGY_ZENFLOW_SYNC);
}
static bool device_each(const struct zf_options *o)
{
    return windows(o) && o->accumulate_on == ZF_ACCUMULATE_ON_DEVICE && o->cpu_update == ZF_CPU_UPDATE_EACH;
}
static bool device_optimistic(const struct zf_options *o)
{
    return is(o, ZF_STRATEGY_ZENFLOW) && o->accumulate_on == ZF_ACCUMULATE_ON_DEVICE && o->optimistic && o->swap == ZF_SWAP_STAGGERED &&
           o->cpu_update != ZF_CPU_UPDATE_EACH;
}
static bool nothing_selected(const struct zf_options *o)
{
    return is(o, ZF_STRATEGY_SELECTED_ONLY) && o->topk_ratio == 0;
}
static bool auto_without_overlap(const struct zf_options *o)
{
    return o->update_interval == 0 && (is(o, ZF_STRATEGY_ZENFLOW_SYNC) || is(o, ZF_STRATEGY_SELECTED_ONLY));
}

static const struct {
    bool (*broken)(const struct zf_options *o);
    enum zf_option_id place;
    const char *sentence;
} rules[] = {
    {device_each, ZF_OPT_accumulate_on,
     "accumulate_on = device beside cpu_update = each; the device can only keep a sum, and each needs every step's gradient; set "
     "cpu_update mean, "
     "or accumulate_on host"},
    {device_optimistic, ZF_OPT_accumulate_on,
     "accumulate_on = device beside optimistic = yes; optimistic weights need the gradients on the host in time; set optimistic no, or "
     "accumulate_on host"},
    {nothing_selected, ZF_OPT_topk_ratio,
     "topk_ratio = 0 under strategy selected_only; nothing but vectors would be trained; a ratio above 0 is expected"},
    {auto_without_overlap, ZF_OPT_update_interval,
     "update_interval = auto under a strategy without overlap; it is chosen so that the CPU half hides behind the device, which nothing "
     "does "
     "here; give a number of steps, or take strategy zenflow"},
};

void zf_policy_check(const struct zf_options *o, struct zf_err_list *errors)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].broken(o)) continue;
        struct zf_err e;
        char where[sizeof e.where];
        zf_fail(&e, ZF_USAGE, zf_origin_text(&o->origin[rules[i].place], zf_option_table[rules[i].place].name, where, sizeof where), "%s",
                rules[i].sentence);
        zf_err_list_add(errors, &e);
    }
}
