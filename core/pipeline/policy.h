/* The policy space (architecture 3.1): what options stand for. Every strategy is a point in it; nothing else in the trainer knows
 * strategies. golden/zenflow_oracle.py (`policy`, `set`) defines it. Pure. */
#ifndef ZF_PIPELINE_POLICY_H
#define ZF_PIPELINE_POLICY_H

#include "core/config/options.h"
#include "kernels/device.h"

/* When the CPU's update by a window becomes visible. */
enum zf_visible {
    ZF_VISIBLE_NONE,     /* in the step at which the window ends: no overlap */
    ZF_VISIBLE_GLOBAL,   /* all windows end together, the whole model becomes visible a window later */
    ZF_VISIBLE_ROLLING,  /* all windows end together, each matrix becomes visible when its service ends */
    ZF_VISIBLE_STAGGERED /* a matrix's window ends where its service begins */
};

struct zf_policy {
    double ratio;      /* k: share of the channels that the device half owns */
    uint32_t interval; /* S: steps of a window */
    uint64_t select;   /* R: least steps between two selections of a matrix; 0: once */
    enum zf_visible visible;
    bool cpu_half; /* false: the CPU half's gradients are dropped */
    bool layered;  /* what becomes visible need only be there when its layer needs it; else at the end of the step */
    bool optimistic, accumulate_on_device;
    enum zf_choice_cpu_update cpu_update;
    enum zf_choice_cpu_learning_rate cpu_rate;
    enum zf_choice_score score;
    enum zf_dtype bus; /* gradients are rounded to it once, whoever updates by them: strategies agree bit for bit (I1) */
};

/* dtype: the model's, which bus_dtype = auto is. interval: what update_interval = auto is now. strategy and device must not be auto any
 * more. */
struct zf_policy zf_policy_of(const struct zf_options *o, enum zf_dtype dtype, uint32_t interval);
/* What update_interval = auto is before anything is measured: 4, within max_update_interval. */
uint32_t zf_policy_first_interval(const struct zf_options *o);

/* Whether there is a CPU half that is updated, and one that may be selected from. */
bool zf_policy_offloads(const struct zf_policy *p);
bool zf_policy_selects(const struct zf_policy *p);

/* What a change between two steps does. */
enum zf_policy_change {
    ZF_CHANGE_NOTHING = 0,
    ZF_CHANGE_AT_ONCE = 1,  /* the next step does it the new way */
    ZF_CHANGE_RESELECT = 2, /* every matrix selects anew at its next window start */
    ZF_CHANGE_DRAIN = 4     /* everything pending is applied first, then new windows begin */
};
enum zf_policy_change zf_policy_compare(const struct zf_policy *old, const struct zf_policy *new);

/* Options that contradict each other, each as an error at its option's place. At start and before a live change. */
void zf_policy_check(const struct zf_options *o, struct zf_err_list *errors);

#endif
