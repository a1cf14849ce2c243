/* update_interval = auto: the shortest window in which the CPU half and the bus keep up with the device, from what lanes were measured to
 * do. It waits for nothing and reads no clock: the caller measures, journals a decision and acts on it; what was wanted before is in the
 * struct.
 *
 * A round (S steps) costs the cpu lane and the bus some seconds, the device computes S steps in the meantime. With `each` a round costs
 * 26 + bS bytes a parameter, b what an element takes on the bus, with `mean` 30 + bS (folding each step), so the cost of another S follows
 * from the measured one. */
#ifndef ZF_PIPELINE_INTERVAL_H
#define ZF_PIPELINE_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

/* Sums over the steps of one look, stalls left out of compute. */
struct zf_interval_look {
    uint64_t steps;
    double compute, cpu, d2h, h2d; /* busy seconds */
};

struct zf_interval {
    uint32_t now, most; /* S; max_update_interval */
    unsigned bus;       /* bytes of an element of a gradient on it */
    bool mean;
    unsigned longer, shorter; /* looks in a row that wanted another S */
    uint32_t wanted;          /* by the newest look */
    double share;             /* of the device's time that the slower of cpu and bus takes with `now` */
};

/* Steps of a look: rounds enough to be fair to every matrix. */
uint64_t zf_interval_steps(const struct zf_interval *v);

/* Takes a look into account and returns the S that should be: v->now, or another one, when two looks in a row are for a longer window or
 * four for a shorter one (which must then fit with room to spare). The caller sets v->now when it has acted. */
uint32_t zf_interval_decide(struct zf_interval *v, const struct zf_interval_look *look);

#endif
