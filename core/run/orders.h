/* What the ranks of a run do together. Rank 0 has the session, the run directory and the clock; whatever of it concerns the pipeline is an
 * order, which it tells the others and then carries out like them, by the same table. With one rank an order is a call.
 *
 * Between two orders all ranks have the same step, options and owners; the figures that rank 0 needs of the others are the answers of some
 * orders. A rank that fails tells rank 0 (zf_world_fail), and all end. */
#ifndef ZF_RUN_ORDERS_H
#define ZF_RUN_ORDERS_H

#include "core/run/trainer.h"

/* Name, function, what it is. */
#define ZF_ORDERS(X) \
    X(STEP, zf_trainer_step)       /* one optimizer step, at `rate`; flag: scores of all matrices */ \
    X(LAST, zf_order_late)         /* within a step: its last micro-batch may begin; flag: it is dropped instead. Else what comes late */ \
    X(LOSS, zf_trainer_loss)       /* `number` rows of validation */ \
    X(SUM, zf_trainer_sum)         /* of those losses, over all ranks */ \
    X(CHOICES, zf_trainer_choices) /* `number` records of validation with their choices; 0: all */ \
    X(CHANGE, zf_order_change)     /* text: what has changed in the options, and update_interval */ \
    X(SELECT, zf_order_select)     /* anew, at the next window starts */ \
    X(DRAIN, zf_order_drain) \
    X(SETTLE, zf_order_settle)     /* all that is due is visible */ \
    X(NORMS, zf_trainer_norms)     /* of the newest gradients */ \
    X(MASTERS, zf_trainer_masters) /* of parameter `number`, all of them, to rank 0 */ \
    X(SAVE, zf_trainer_share)      /* the state comes to rank 0, which writes it */ \
    X(LOAD, zf_order_load)         /* text: the checkpoint, and what its options are */ \
    X(END, zf_order_end)           /* with the exit code `number` */

enum zf_order_kind {
#define X(name, function) ZF_ORDER_##name,
    ZF_ORDERS(X)
#undef X
        ZF_ORDER_KINDS
};

/* As it goes over the wire; then its text, JSON, if it has one. */
struct zf_ordered {
    uint32_t kind, flag;
    uint64_t step; /* that all have completed */
    uint64_t number;
    double rate;
};

/* Rank 0. */
enum zf_status zf_order(struct zf_trainer *t, struct zf_ordered o, const json_t *text, struct zf_err *e);
/* Another rank: carries out orders until the run is over, or fails. */
enum zf_status zf_orders_obey(struct zf_trainer *t, enum zf_status *code, struct zf_err *e);

/* {"set":{NAME:VALUE,...},"interval":...}: what makes the options of before those of now. NULL: no memory. */
json_t *zf_orders_changes(const struct zf_options *before, const struct zf_options *now, uint32_t interval);
enum zf_status zf_orders_set(struct zf_trainer *t, const json_t *changes, struct zf_err *e);

/* Between two micro-batches of a step, of which the next one is the last: may it begin? ZF_STOPPED: the step is dropped, on all ranks. */
enum zf_status zf_order_go(struct zf_trainer *t, bool stop, struct zf_err *e);
/* The answers to an order: sums of doubles over all ranks, in their order, at rank 0. status: of this rank's part; where rank 0's own has
 * ended, the others are told to leave theirs. */
enum zf_status zf_order_sum(struct zf_trainer *t, enum zf_status status, double *x, size_t n, struct zf_err *e);

/* After the pipeline is opened: its masters are those of all ranks. */
void zf_orders_take_masters(struct zf_trainer *t);

#define X(name, function) enum zf_status function(struct zf_trainer *t, const struct zf_ordered *o, const json_t *text, struct zf_err *e);
ZF_ORDERS(X)
#undef X

#endif
