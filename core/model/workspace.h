/* Activations of one micro-batch, and where each stands. Private to core/model.
 *
 * void pointers are to elements of the model's dtype: zf_at. What a kernel keeps to itself (statistics, lse, delta), losses, the rotation
 * table and logits are fp32.
 *
 * Widths (elements a token): h hidden, q = heads*head_dim, kv = kv_heads*head_dim, f ffn, e embed_dim. Buffers have no gaps between rows
 * (products are fastest so), except queries, keys and values where one product makes all three: they stand side by side in rows of
 * q + 2 kv. ldq and ldkv say which. Where all is kept for backward each layer has its buffers; else all share one set, except, where inputs
 * are kept, what a layer reads from the stream: s1 with pre-norm, in1 with post-norm. */
#ifndef ZF_MODEL_WORKSPACE_H
#define ZF_MODEL_WORKSPACE_H

#include "core/model/model.h"

struct zf_widths {
    size_t h, q, kv, f, e, ldq, ldkv;
};

struct zf_layer_buffers {
    void *in1;                        /* [R][h] what the q, k, v products read */
    void *s1;                         /* [R][h] what norm 1 normed */
    float *stats1;                    /* [R][2] */
    void *raw_q, *raw_k;              /* [R][q], [R][kv] before their norm; NULL without qk_norm */
    float *raw_q_stats, *raw_k_stats; /* [R][heads][2], [R][kv_heads][2], likewise */
    void *q, *k, *v;                  /* [R][ldq], [R][ldkv] twice: after norm and rotation */
    void *o;                          /* [R][q] */
    float *lse;                       /* [R][heads] */
    void *in2;                        /* [R][h] what the MLP reads */
    void *s2;
    float *stats2;
    void *gate, *up, *a; /* [R][f] before and after the activation; gate NULL without SwiGLU */
};

struct zf_workspace {
    struct zf_widths w;
    size_t room;         /* R: tokens of the largest micro-batch */
    size_t logit_rows;   /* rows of a chunk of logits */
    size_t positions;    /* rows of the rotation table */
    enum zf_dtype dtype; /* of activations */
    enum zf_keep keep;
    void *blocks[4]; /* activations, logits, batch, staging: device memory, owned */

    struct zf_layer_buffers *layers;                 /* [layers] */
    void *emb;                                       /* [R][e] embedding before project_in; NULL without it */
    void *branch;                                    /* [R][h] output of attention or MLP, on its way into the residual stream */
    void *sf;                                        /* [R][h] what the final norm normed */
    float *statsf;                                   /* [R][2] */
    void *final;                                     /* [R][h] input of the head (before project_out) */
    void *y;                                         /* [R][e] input of the head; = final without project_out */
    float *logits;                                   /* [logit_rows][vocab] */
    float *loss;                                     /* [R] */
    float *rope;                                     /* [positions][head_dim/2][2] */
    void *dres, *din, *dq, *dk, *dv, *do_, *da, *dy; /* gradients; NULL without training */
    float *delta;                                    /* [R][heads]; likewise */
    float *sum; /* [R][h] gradients while products add up to them; NULL where activations are fp32, or without training */

    int32_t *ids, *position, *target; /* [R] on the device */
    struct zf_segment *segments;
    double pairs, keys;         /* of the segments that were loaded last (zf_segments_sum) */
    unsigned char *staging[2];  /* pinned; a batch waits here for its copy */
    struct zf_event *staged[2]; /* the copy out of staging[i] is done */
    int turn;
};

/* Lays the workspace out from `base` (NULL: only measures) and returns the bytes of each part. */
struct zf_workspace_sizes zf_workspace_layout(struct zf_workspace *w, const struct zf_model_config *c, enum zf_dtype dtype, size_t tokens,
                                              size_t positions, enum zf_keep keep, void *const base[3]);
enum zf_status zf_workspace_new(struct zf_workspace **out, const struct zf_model_config *c, enum zf_dtype dtype, struct zf_device *d,
                                struct zf_lane *l, size_t tokens, size_t positions, enum zf_keep keep, struct zf_err *e);
void zf_workspace_free(struct zf_workspace *w, struct zf_device *d);

/* load.c: all weights, from `source` (one a parameter) of hf; NULL, both: random ones. Waits. */
enum zf_status zf_model_load(struct zf_model *m, const struct zf_hf *hf, const struct zf_weight_source *source, uint64_t seed,
                             struct zf_err *e);

/* Copies a batch to the device. */
enum zf_status zf_workspace_load(struct zf_model *m, struct zf_workspace *w, const struct zf_batch *b, struct zf_err *e);

/* Where keys and values of a layer come from when there is a cache (generation). */
struct zf_cache {
    struct zf_model *m;
    struct zf_workspace *work;
    struct zf_batch batch;
    size_t used, room;
    void *keys; /* [layers][2][room][kv]: keys, then values */
};

/* One pass over the layers into w->y. cache NULL: keys are the batch's own. */
enum zf_status zf_forward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_cache *cache,
                          struct zf_err *e);
/* What a layer computed in zf_forward, once more, from its input; what nobody reads in backward is left out. */
enum zf_status zf_layer_again(struct zf_model *m, struct zf_workspace *w, int layer, size_t rows, size_t segments, struct zf_err *e);
/* From w->dy back to the gradients of all parameters. */
enum zf_status zf_backward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_err *e);
/* logits of rows first .. first+rows of w->y into w->logits. */
enum zf_status zf_head(struct zf_model *m, struct zf_workspace *w, size_t first, size_t rows, struct zf_err *e);

/* y[rows][cols of W] = x W + bias, for the parameters in these slots; the gradients of it. */
struct zf_linear {
    enum zf_slot weight, bias; /* ZF_SLOTS as bias: has none */
    int layer;
    size_t rows, ldx, ldy;
    bool add; /* to the gradient of the weight, even in the first micro-batch of a step */
};
enum zf_status zf_linear_forward(struct zf_model *m, const struct zf_linear *l, const void *x, void *y, struct zf_err *e);
/* type_dx: the model's, or ZF_F32; only that accumulates. */
enum zf_status zf_linear_backward(struct zf_model *m, const struct zf_linear *l, const void *x, const void *dy, void *dx,
                                  enum zf_dtype type_dx, bool accumulate, struct zf_err *e);

/* Rotates heads of queries or keys, rows ld apart. Nothing in a model without. */
enum zf_status zf_rotate(struct zf_model *m, const struct zf_workspace *w, void *x, size_t heads, size_t ld, bool inverse, size_t rows,
                         struct zf_err *e);

/* Weights of a slot, NULL if the model has none; gradient likewise, NULL if frozen as well. */
void *zf_weight_at(const struct zf_model *m, enum zf_slot slot, int layer);
float *zf_grad_at(const struct zf_model *m, enum zf_slot slot, int layer);

/* Element n of weights, activations, cache. */
static inline void *zf_at(const struct zf_model *m, void *p, size_t n)
{
    return (unsigned char *)p + n * zf_dtype_size(m->dtype);
}

/* What is issued from here on is for this; for the account of time alone. */
static inline void zf_phase_begin(const struct zf_model *m, enum zf_phase p)
{
    if (m->device->type->lane_phase) m->device->type->lane_phase(m->lane, p);
}

/* An op's status -> an error that names the op. */
#define ZF_ISSUE(m, op, e, ...) \
    do { \
        enum zf_status issued_ = (m)->device->type->ops->op((m)->lane, &(struct zf_##op##_args){__VA_ARGS__}); \
        if (issued_ != ZF_OK) return zf_lane_refused((m)->device, (m)->lane, issued_, #op, (e)); \
    } while (0)

#endif
