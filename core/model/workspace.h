/* Activations of one micro-batch, and where each stands. Private to core/model.
 *
 * Widths (elements a token): h hidden, q = heads*head_dim, kv = kv_heads*head_dim, qkv = q + 2 kv, f ffn, u = 2f with SwiGLU (gate, then
 * up), else f, e embed_dim. Buffers of a layer are kept for backward; without training all layers share one set. */
#ifndef ZF_MODEL_WORKSPACE_H
#define ZF_MODEL_WORKSPACE_H

#include "core/model/model.h"

struct zf_widths {
    size_t h, q, kv, qkv, f, u, e;
};

struct zf_layer_buffers {
    float *in1;             /* [R][h] what the q, k, v products read */
    float *s1, *stats1;     /* [R][h], [R][2] what norm 1 normed */
    float *raw, *raw_stats; /* [R][q+kv], [R][(heads+kv_heads)][2] queries and keys before their norm; NULL without qk_norm */
    float *qkv;             /* [R][qkv] after norm and rotation */
    float *o, *lse;         /* [R][q], [R][heads] */
    float *in2;             /* [R][h] what the MLP reads */
    float *s2, *stats2;
    float *u, *a; /* [R][u], [R][f] before and after the activation */
};

struct zf_workspace {
    struct zf_widths w;
    size_t room;       /* R: tokens of the largest micro-batch */
    size_t logit_rows; /* rows of a chunk of logits */
    size_t positions;  /* rows of the rotation table */
    bool training;
    void *blocks[4]; /* activations, logits, batch, staging: device memory, owned */

    struct zf_layer_buffers *layers;                  /* [layers] */
    float *emb;                                       /* [R][e] embedding before project_in; NULL without it */
    float *branch;                                    /* [R][h] output of attention or MLP, on its way into the residual stream */
    float *sf, *statsf;                               /* what the final norm normed */
    float *final;                                     /* [R][h] input of the head (before project_out) */
    float *y;                                         /* [R][e] input of the head; = final without project_out */
    float *logits;                                    /* [logit_rows][vocab] */
    float *loss;                                      /* [R] */
    float *rope;                                      /* [positions][head_dim/2][2] */
    float *dres, *din, *dqkv, *do_, *da, *dy, *delta; /* gradients; NULL without training */

    int32_t *ids, *position, *target; /* [R] on the device */
    struct zf_segment *segments;
    unsigned char *staging[2];  /* pinned; a batch waits here for its copy */
    struct zf_event *staged[2]; /* the copy out of staging[i] is done */
    int turn;
};

/* Lays the workspace out from `base` (NULL: only measures) and returns the bytes of each part. */
struct zf_workspace_sizes zf_workspace_layout(struct zf_workspace *w, const struct zf_model_config *c, size_t tokens, size_t positions,
                                              bool training, void *const base[3]);
enum zf_status zf_workspace_new(struct zf_workspace **out, const struct zf_model_config *c, struct zf_device *d, struct zf_lane *l,
                                size_t tokens, size_t positions, bool training, struct zf_err *e);
void zf_workspace_free(struct zf_workspace *w, struct zf_device *d);

/* Copies a batch to the device. */
enum zf_status zf_workspace_load(struct zf_model *m, struct zf_workspace *w, const struct zf_batch *b, struct zf_err *e);

/* Where keys and values of a layer come from when there is a cache (generation). */
struct zf_cache {
    struct zf_model *m;
    struct zf_workspace *work;
    struct zf_batch batch;
    size_t used, room;
    float *keys; /* [layers][2][room][kv]: keys, then values */
};

/* One pass over the layers into w->y. cache NULL: keys are the batch's own. */
enum zf_status zf_forward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_cache *cache,
                          struct zf_err *e);
/* From w->dy back to the gradients of all parameters. */
enum zf_status zf_backward(struct zf_model *m, struct zf_workspace *w, size_t rows, size_t segments, struct zf_err *e);
/* logits of rows first .. first+rows of w->y into w->logits. */
enum zf_status zf_head(struct zf_model *m, struct zf_workspace *w, size_t first, size_t rows, struct zf_err *e);

/* y[rows][cols of W] = x W + bias, for the parameters in these slots; the gradients of it. */
struct zf_linear {
    enum zf_slot weight, bias; /* ZF_SLOTS as bias: has none */
    int layer;
    size_t rows, ldx, ldy;
};
enum zf_status zf_linear_forward(struct zf_model *m, const struct zf_linear *l, const float *x, float *y, struct zf_err *e);
enum zf_status zf_linear_backward(struct zf_model *m, const struct zf_linear *l, const float *x, const float *dy, float *dx,
                                  bool accumulate, struct zf_err *e);

/* Weights of a slot, NULL if the model has none; gradient likewise, NULL if frozen as well. */
float *zf_weight_at(const struct zf_model *m, enum zf_slot slot, int layer);
float *zf_grad_at(const struct zf_model *m, enum zf_slot slot, int layer);

/* An op's status -> an error that names the op. */
#define ZF_ISSUE(m, op, e, ...) \
    do { \
        enum zf_status issued_ = (m)->device->type->ops->op((m)->lane, &(struct zf_##op##_args){__VA_ARGS__}); \
        if (issued_ != ZF_OK) return zf_lane_refused((m)->device, (m)->lane, issued_, #op, (e)); \
    } while (0)

#endif
