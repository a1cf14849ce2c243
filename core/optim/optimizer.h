/* AdamW over all parameters of a model on the device (strategy gpu_only): moments, global norm, clipping, the check for finiteness.
 * Masters, moments and gradients are fp32; bf16 weights are rounded from their masters in the same pass. */
#ifndef ZF_OPTIM_OPTIMIZER_H
#define ZF_OPTIM_OPTIMIZER_H

#include "core/model/model.h"

struct zf_adam_rule {
    double beta1, beta2, epsilon, weight_decay, clip_norm; /* decay acts on matrices; clip_norm 0: off */
    bool stochastic;                                       /* how masters become bf16 weights: by chance, else to nearest */
    uint64_t seed;                                         /* of that chance */
};

struct zf_optimizer {
    struct zf_model *model;
    float *m, *v;              /* [params.elements] on the device */
    double *partial;           /* sums of squares, a chunk each */
    double *loss;              /* the step's sum of losses, on the device: argument of zf_model_step */
    struct zf_step_norm *norm; /* on the device */
    struct zf_step_norm *seen; /* pinned copy, valid after zf_optimizer_step */
    uint64_t updates;          /* steps that were applied: Adam's t */
};

enum zf_status zf_optimizer_init(struct zf_optimizer *o, struct zf_model *m, struct zf_err *e);
void zf_optimizer_free(struct zf_optimizer *o);

/* Before the first micro-batch of a step: gradients and loss begin anew. */
enum zf_status zf_optimizer_begin(struct zf_optimizer *o, struct zf_err *e);
/* Before a validation: the loss alone. */
enum zf_status zf_optimizer_begin_loss(struct zf_optimizer *o, struct zf_err *e);
/* The sum of losses since then. Waits. */
enum zf_status zf_optimizer_loss(struct zf_optimizer *o, double *loss, struct zf_err *e);

/* After the last: norm of the gradients, then the update, unless loss or norm is not finite. Waits; *out is what was found. */
enum zf_status zf_optimizer_step(struct zf_optimizer *o, const struct zf_adam_rule *rule, double rate, struct zf_step_norm *out,
                                 struct zf_err *e);

#endif
