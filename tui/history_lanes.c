/* Busy and waiting intervals of the newest steps' lanes. */
#include "tui/history_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INTERVALS_MOST = 512 };

static void free_step(struct zf_lane_step *s)
{
    for (size_t i = 0; i < s->lanes; i++) {
        free(s->lane[i].busy.at);
        free(s->lane[i].wait.at);
    }
    *s = (struct zf_lane_step){0};
}

static void read_intervals(struct zf_interval_list *out, const json_t *list, double from)
{
    size_t n = json_array_size(list);
    if (n > INTERVALS_MOST) n = INTERVALS_MOST;
    *out = (struct zf_interval_list){.at = n ? malloc(n * sizeof *out->at) : NULL};
    for (size_t i = 0; out->at && i < n; i++) {
        const json_t *pair = json_array_get(list, i);
        double a = zf_history_number(json_array_get(pair, 0), (double)NAN) - from,
               b = zf_history_number(json_array_get(pair, 1), (double)NAN) - from;
        if (!(a >= -1e9) || !(b >= a) || !(b <= 1e9)) continue;
        out->at[out->count][0] = (float)a;
        out->at[out->count++][1] = (float)b;
    }
}

bool zf_history_take_lanes(struct zf_history *h, const json_t *line)
{
    const json_t *list = json_object_get(line, "lanes");
    size_t newest = (h->lane_at + ZF_LANE_STEPS - 1) % ZF_LANE_STEPS;
    uint64_t step = zf_history_count(json_object_get(line, "step"), UINT64_MAX);
    double from = zf_history_number(json_object_get(line, "from"), (double)NAN),
           to = zf_history_number(json_object_get(line, "to"), (double)NAN);
    if (step == UINT64_MAX || !json_is_array(list) || !(from >= 0) || !(to >= from) || !(to < 1e12)) return false;
    if (h->lane_steps && h->lane_step[newest].step > step) return false;
    bool again = h->lane_steps && h->lane_step[newest].step == step;
    struct zf_lane_step *s = &h->lane_step[again ? newest : h->lane_at];
    free_step(s);
    if (!again) {
        h->lane_at = (h->lane_at + 1) % ZF_LANE_STEPS;
        if (h->lane_steps < ZF_LANE_STEPS) h->lane_steps++;
    }
    s->step = step;
    s->from = from;
    s->to = to;
    for (size_t i = 0; i < json_array_size(list) && s->lanes < ZF_LANES_MOST; i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        if (!name) continue;
        snprintf(s->lane[s->lanes].name, sizeof s->lane[0].name, "%s", name);
        read_intervals(&s->lane[s->lanes].busy, json_object_get(o, "busy"), from);
        read_intervals(&s->lane[s->lanes].wait, json_object_get(o, "wait"), from);
        s->lanes++;
    }
    return true;
}

void zf_history_free_lanes(struct zf_history *h)
{
    for (size_t i = 0; i < ZF_LANE_STEPS; i++) free_step(&h->lane_step[i]);
    h->lane_steps = h->lane_at = 0;
}
