/* The pipeline: one training step issued into lanes, under any policy (architecture 3 and 4; golden/zenflow_oracle.py defines every
 * result).
 *
 * Lanes: compute (the model's own) does forward, backward, the device half; d2h carries packed gradients to the host, h2d published rows to
 * the device; cpu updates the CPU half. Everything a lane waits for was issued before the wait, into a lane that does its work in order: no
 * cycles. The issuing thread waits once a step, for the norm, since whether the step counts decides what follows; and where channels
 * change owner.
 *
 * Ranks (comm is not NULL; ranks.c): behind compute, `exchange` sums each layer's gradients as soon as they are complete, every rank for
 * the channels of its share, and does what follows from gradients: norm, scores, rows for the CPU half, moves of rows. It brings the
 * selected rows' gradients to all ranks, so that the device half goes on alike everywhere, and before the next forward, layer by layer, the
 * rows that the CPU halves have changed.
 *
 * Ownership: the pipeline owns both halves' state, slots, staging. The device half's is in device memory, the CPU half's belongs to
 * `host`, the device whose pool the cpu lane works with (the same as `device` where they share cores). All functions: the issuing thread.
 *
 * Memory that several lanes use in turn (zf_chunks): a matrix gives its slots and staging back when its rows are made visible. Whoever
 * takes them next writes either in d2h, behind compute (which by then has waited for h2d, which waited for cpu), or in cpu, which waits for
 * what h2d was given before. */
#ifndef ZF_PIPELINE_PIPELINE_H
#define ZF_PIPELINE_PIPELINE_H

#include "core/model/model.h"
#include "core/pipeline/chunks.h"
#include "core/pipeline/window.h"
#include "kernels/comm.h"

/* What AdamW needs beside the policy; may change between steps. */
struct zf_adam_rule {
    double beta1, beta2, epsilon, weight_decay, clip_norm; /* decay acts on matrices; clip_norm 0: off */
    bool stochastic;                                       /* how masters become bf16 weights: by chance, else to nearest */
    uint64_t seed;                                         /* of that chance */
};

/* fp32 state of rows that one half owns: [rows][length]. Row r is channel order[r] of the matrix. */
struct zf_half {
    size_t rows;
    float *master, *m, *v; /* the device half's master in f32 is the visible weight itself: NULL */
    uint32_t *t;           /* updates each row has had */
    bool borrowed;         /* master lies in the model's own block */
};

/* An array of a half's rows; cols: elements of a row. By slots, or (an f32 device half's master is the weight itself) by channel. */
struct zf_array {
    float *base;
    size_t cols;
    bool by_channel;
};
enum { ZF_ARRAYS = 4 }; /* master, m, v, t */

/* A completed window on its way: from its end until its rows are visible. */
struct zf_update {
    struct zf_entry *entries;     /* each: one a step; mean: one, of the sum */
    struct zf_rows_memory *slots; /* of the entries, beside them */
    uint32_t count, room;         /* steps in it; mean: entries[0] alone is used */
    struct zf_rows_memory sum;    /* mean: fp32 */
    double last_rate, sum_rate;
    struct zf_adam_rule rule; /* in force when the window ended */
    enum zf_choice_cpu_learning_rate cpu_rate;
};

/* Of a matrix whose rows ranks share out by whole channels: rank r's share are channels first[r] .. first[r + 1]. A rank sums the gradients
 * of its share, and its CPU half has the rows of its share; the device half is the same on all ranks. Arrays of [ranks + 1] say where each
 * rank's part begins. What is the same on every rank decides what is exchanged. */
struct zf_shares {
    size_t *first, *partial; /* channels; partial sums of squares */
    /* [channels] the device half's in ascending order, then those of all CPU halves: each rank's stand together */
    uint32_t *list, *device_list;
    size_t *device, *cpu; /* in the first part of the list, in the second */
    size_t cpu_room;      /* rows that the own CPU half has memory for */
    bool stale;           /* rows of CPU halves have changed on their owners' devices */
    bool coming;          /* they are on their way, and compute has not waited for them yet */
    struct zf_event *here;
    uint8_t *staged; /* [channels] whether it is in its owner's staging */
    size_t staged_rows;
    double *column; /* pinned [length]: sums of second moments of the own rows in staging */
    bool summed;    /* they are newer than next_column, which then is to be made of all ranks' */
    const double *parts;
    size_t length;
};

struct zf_matrix {
    const struct zf_param *param;
    struct zf_shares *shares; /* NULL: one rank */
    int layer; /* whose forward needs it and whose backward completes its gradient: -1 embeddings, the number of layers: head */
    size_t channels, length, partials, partial_at; /* of the sums of squares */
    struct zf_window window;
    uint32_t *order;        /* [channels] channels: the device half's by its rows, then the CPU half's, then those of other ranks' */
    uint32_t *device_order; /* the same on the device */
    struct zf_half device, cpu;
    bool assigned;             /* the halves have state; before, masters are the model's own */
    struct zf_update open, up; /* the window that accumulates; the completed one */
    float *device_sum;         /* accumulate_on = device: [device_sum_rows][length] of the open window */
    size_t device_sum_rows;
    struct zf_rows_memory staging; /* visible rows of `up` */
    uint32_t *staged;              /* [staged_rows] channels of the rows in staging */
    size_t staged_rows;
    bool staged_moved;                 /* some of them have changed owner since */
    bool handed;                       /* this step's gradient is packed already */
    struct zf_rows_memory slot;        /* this step's, until the step counts */
    float *channel, *column;           /* optimistic: second moments on the device [channels], [length] */
    float *next_channel, *next_column; /* pinned: those of staging's rows [channels], [length] */
    struct zf_event *served;           /* the cpu lane has made staging */
    bool has_column;
    uint32_t *arrived_list; /* [arrived] channels that this step's selection gave to the CPU half */
    size_t arrived;
    double energy;        /* share of the squared norm in the selected channels, at the last selection */
    size_t kept, kept_of; /* channels of the last two selections in common; in either */
};

/* A 1-D parameter: always the device half's. */
struct zf_vector {
    const struct zf_param *param;
    struct zf_half state;
    int layer;
    size_t partial_at;
};

/* A ring of pieces of device memory between a copy lane and compute. */
enum { ZF_RING = 3 };
struct zf_ring {
    void *piece[ZF_RING];
    struct zf_event *full[ZF_RING], *idle[ZF_RING];
    size_t bytes; /* of a piece */
    unsigned turn;
};

struct zf_pipeline_counts { /* since the start */
    uint64_t d2h_bytes, h2d_bytes, cpu_updates, selections, comm_bytes;
};

/* What ranks need to exchange. */
struct zf_exchange {
    struct zf_event *turned, *turned_back; /* from compute to the lane, and back */
    struct zf_event *columns_full, *columns_idle;
    size_t *each, *clipped, *some; /* [ranks + 1]: one thing a rank; scratch: of several lists at once, of the columns of a matrix */
    struct zf_comm_rows *list;     /* [parameters] scratch */
    double *losses, *losses_seen;  /* [ranks] on the device, pinned */
    double *scores;                /* on the device: one number a channel, of the matrix with the most */
    double *columns;               /* on the device [ZF_COLUMN_PARTS][longest row] */
    float *known;                  /* on the device [longest row]: column shares on their way to the host */
    char *piece;                   /* on the device: rows of several matrices, one behind the other */
    size_t piece_bytes;
};

struct zf_pipeline {
    struct zf_model *model;
    struct zf_device *device, *host;
    struct zf_comm *comm; /* NULL: one rank */
    struct zf_lane *compute, *d2h, *h2d, *cpu, *exchange;
    struct zf_lane *ready; /* compute or exchange: where what follows is issued from gradients, or makes rows visible */
    struct zf_policy policy;
    struct zf_adam_rule rule;
    struct zf_matrix *matrix; /* in the order of service; frozen ones are not among them */
    struct zf_vector *vector;
    size_t matrices, vectors, parameters; /* parameters: of all matrices */
    struct zf_chunks chunks;
    struct zf_ring down, up;
    double *partial; /* sums of squares on the device, all parameters' pieces */
    size_t partials;
    double *column_parts;      /* [ZF_COLUMN_PARTS][longest row], the cpu lane's */
    double *loss;              /* the step's sum of losses, on the device */
    struct zf_step_norm *norm; /* on the device */
    struct zf_step_norm *seen; /* pinned copy */
    double *sums;              /* [channels of all matrices][2] on the device, and pinned: scores */
    double *sums_seen;
    size_t *sums_at;            /* [matrices] */
    uint32_t *list, *list_seen; /* scratch for lists of rows [most channels] on the device, pinned */
    struct zf_event *normed;    /* norm and scores are on the host */
    struct zf_event *lowered;   /* this step's slots are full */
    struct zf_event *folded;    /* slots of the last step have been added to sums */
    struct zf_event *raised;    /* h2d has read what it was given so far */
    struct zf_exchange *common; /* of ranks; NULL: one */
    struct zf_grave *graves;    /* memory that work under way may still read */
    size_t grave_count, grave_room;
    uint64_t step;   /* completed */
    float last_clip; /* c of the last step that was not skipped */
    double rate;     /* of the step being issued */
    bool score_all;  /* scores of every matrix are wanted with this step */
    bool torn;       /* what alters masters has begun and not ended: after a failure parts of the model may be of different steps */
    bool last_micro_batch;
    bool graded; /* the step has a gradient */
    struct zf_pipeline_counts counts;
    struct zf_state_gate *gate; /* of a checkpoint that is being written (state.h); NULL: none */
};

/* The model has been opened for training. The masters become the pipeline's. host: NULL: the device itself does the CPU half's work. comm:
 * NULL: this is the only rank; it outlives the pipeline. */
enum zf_status zf_pipeline_open(struct zf_pipeline *p, struct zf_model *m, struct zf_device *host, struct zf_comm *comm,
                                const struct zf_policy *policy, const struct zf_adam_rule *rule, struct zf_err *e);
void zf_pipeline_close(struct zf_pipeline *p);

/* Step p->step + 1: begin, zf_model_step for each micro-batch (last = before the last one), then finish. rate: the step's learning rate. */
enum zf_status zf_pipeline_begin(struct zf_pipeline *p, double rate, bool score_all, struct zf_err *e);
void zf_pipeline_last(struct zf_pipeline *p);
enum zf_status zf_pipeline_finish(struct zf_pipeline *p, struct zf_step_norm *out, struct zf_err *e);
/* A step without a target token: takes its number and its rate, and changes nothing else but what is due. */
enum zf_status zf_pipeline_skip(struct zf_pipeline *p, double rate, struct zf_err *e);

/* Of ranks, every one calls everything below and above, in the same order, with the same arguments; what they return is the same. In place
 * of a step's micro-batches, where this rank has no rows in the step. */
enum zf_status zf_pipeline_absent(struct zf_pipeline *p, struct zf_err *e);

/* Before a validation: the loss alone; its sum since, over all ranks. Waits. */
enum zf_status zf_pipeline_begin_loss(struct zf_pipeline *p, struct zf_err *e);
enum zf_status zf_pipeline_loss(struct zf_pipeline *p, double *loss, struct zf_err *e);

/* Between steps: issues what is due and not yet visible; waits until all lanes are idle. */
enum zf_status zf_pipeline_settle(struct zf_pipeline *p, struct zf_err *e);
/* Applies what is pending, then what is accumulated, and shows the masters. Waits. */
enum zf_status zf_pipeline_drain(struct zf_pipeline *p, struct zf_err *e);
/* Between steps. Drains where the change needs it. The bits of enum zf_policy_change say what happened. */
enum zf_status zf_pipeline_change(struct zf_pipeline *p, const struct zf_policy *policy, const struct zf_adam_rule *rule, int *change,
                                  struct zf_err *e);
/* Every matrix selects anew at its next window start. */
void zf_pipeline_reselect(struct zf_pipeline *p);

/* Of the visible weights, which all ranks have the same, bit for bit. Settles; waits. */
enum zf_status zf_pipeline_digest(struct zf_pipeline *p, unsigned char out[16], struct zf_err *e);

/* After a step: the gradient of a parameter, in pieces; of ranks, those rows that this one has the sum of. Waits. */
enum zf_status zf_pipeline_gradient(struct zf_pipeline *p, const struct zf_param *q, void (*see)(void *ctx, const float *x, size_t n),
                                    void *ctx, struct zf_err *e);

/* Masters of a parameter, [rows][cols], from whoever holds them, as they are now. Waits; between steps. */
enum zf_status zf_pipeline_masters(struct zf_pipeline *p, const struct zf_param *param, float *out, struct zf_err *e);

#endif
