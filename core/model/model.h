/* A model on a device: weights, gradients, activations; forward, backward, loss, logits, key/value cache.
 *
 * Owner: whoever called zf_model_open. Flat blocks of `params.elements` each: the master weights in fp32, the visible weights in `dtype`
 * (the master itself where that is f32), the gradients in fp32. A model that is not trained has visible weights only. All of a parameter's
 * blocks have the same offsets.
 * Layout of activations: model/workspace.c. */
#ifndef ZF_MODEL_MODEL_H
#define ZF_MODEL_MODEL_H

#include "core/data/batch.h"
#include "core/model/family.h"
#include "kernels/ops.h"

struct zf_workspace;

/* Told as work is issued: before_layer, before what uses its weights (forward; -1: the embeddings, layers: what follows the last layer);
 * after_layer, behind what completes its gradients for this micro-batch (backward; layers first, -1 last, a tied head's with it). Either
 * may be NULL. */
struct zf_model_hooks {
    void *ctx;
    enum zf_status (*before_layer)(void *ctx, int layer, struct zf_err *e);
    enum zf_status (*after_layer)(void *ctx, int layer, struct zf_err *e);
    /* Where masters are that no longer lie in `master`: all of a parameter, [rows][cols], to host memory. NULL, or *elsewhere false: in
     * `master`. */
    enum zf_status (*masters)(void *ctx, const struct zf_param *p, float *out, bool *elsewhere, struct zf_err *e);
};

struct zf_model {
    struct zf_model_config config;
    struct zf_params params;
    struct zf_arena arena;
    struct zf_device *device;
    struct zf_lane *lane;      /* compute */
    enum zf_dtype dtype;       /* of weights and activations: ZF_F32 or ZF_BF16 */
    void *weights;             /* [params.elements] of dtype: what forward and backward see */
    float *master;             /* [params.elements]; = weights in f32; NULL in bf16 without training */
    float *grad;               /* [params.elements]; NULL until zf_model_reserve for training. Frozen parameters and gaps: zeros */
    bool grad_begun;           /* the next backward adds to grad, as other micro-batches of its step have; else it writes it */
    struct zf_workspace *work; /* activations for the largest micro-batch */
    struct zf_model_hooks hooks;
};

/* What forward keeps for backward: nothing (there is none), everything, or what each layer reads from the stream, out of which backward
 * computes the rest of it again, to the same bits. */
enum zf_keep { ZF_KEEP_NOTHING, ZF_KEEP_ALL, ZF_KEEP_INPUTS };

/* Sizes of the workspace, by the same function that lays it out: the plan and the allocation cannot disagree. */
struct zf_workspace_sizes {
    size_t activations, logits, batch;
};
/* tokens: of the largest micro-batch. positions: of the longest document (rows of the rotation table). */
struct zf_workspace_sizes zf_workspace_measure(const struct zf_model_config *c, enum zf_dtype dtype, size_t tokens, size_t positions,
                                               enum zf_keep keep);

/* Weights from a Hugging Face folder, or random ones if `hf` is NULL (init_std, seed), rounded once to dtype. Allocates weights only;
 * masters (of a model to be trained) with them. */
struct zf_hf;
struct zf_st_tensor;
enum zf_status zf_model_open(struct zf_model *out, const struct zf_model_config *c, const struct zf_hf *hf, uint64_t seed,
                             enum zf_dtype dtype, bool training, struct zf_device *d, struct zf_err *e);
/* Weights are zeros, to be written by whoever has them. */
enum zf_status zf_model_open_blank(struct zf_model *out, const struct zf_model_config *c, enum zf_dtype dtype, bool training,
                                   struct zf_device *d, struct zf_err *e);
void zf_model_close(struct zf_model *m);

/* The tensor of each parameter, in the order of the list: found[params->count], zeroed. Every one is there, once, with the right shape, and
 * a tied head equals its embedding; else ZF_FORMAT. note: what was ignored; empty if nothing. */
struct zf_weight_source {
    const struct zf_st_tensor *tensor;
    const char *file;
};
enum zf_status zf_sources_find(struct zf_weight_source *found, const struct zf_model_config *c, const struct zf_params *p,
                               const struct zf_hf *hf, char *note, size_t size, struct zf_err *e);

/* Allocates gradients (unless nothing is kept) and the workspace for micro-batches of up to `tokens` tokens. Once. */
enum zf_status zf_model_reserve(struct zf_model *m, size_t tokens, size_t positions, enum zf_keep keep, struct zf_err *e);

/* Issues forward and loss of a micro-batch; with `backward` gradients go into grad, each loss scaled by loss_scale (1 / label tokens
 * of the whole step). *total (device memory, double) += the sum of the losses. The batch's memory may be reused when this returns. */
enum zf_status zf_model_step(struct zf_model *m, const struct zf_batch *b, bool backward, float loss_scale, double *total,
                             struct zf_err *e);

/* Forward; the loss of each token (0 where it is no target), in order, to host memory: losses [tokens]. Waits. */
enum zf_status zf_model_losses(struct zf_model *m, const struct zf_batch *b, float *losses, struct zf_err *e);

/* Forward; logits [tokens][vocab] of all positions to host memory. Waits. */
enum zf_status zf_model_logits(struct zf_model *m, const struct zf_batch *b, float *logits, struct zf_err *e);

/* Before the first backward of a step, which then writes grad; those after it add. What is frozen was so before the first step. */
enum zf_status zf_model_begin_grad(struct zf_model *m, struct zf_err *e);

/* Generation: tokens of one sequence appended to the cache; logits [vocab] of the last to host memory. Waits. cache_tokens is the room. */
struct zf_cache;
enum { ZF_CACHE_PREFILL = 512 }; /* tokens of a prompt that go through at once: the size of its workspace */
size_t zf_cache_bytes(const struct zf_model_config *c, enum zf_dtype dtype, size_t room);
enum zf_status zf_cache_new(struct zf_cache **out, struct zf_model *m, size_t room, struct zf_err *e);
void zf_cache_free(struct zf_cache *c);
enum zf_status zf_cache_append(struct zf_cache *c, const int32_t *ids, size_t count, float *logits, struct zf_err *e);

/* fp32 export of the masters (of the weights, where there are none) as a folder that transformers loads. config_json: the source's, or
 * zf_model_config_write's. tokenizer_from: a folder whose tokenizer files are copied, or NULL. */
enum zf_status zf_model_export(const struct zf_model *m, const char *out, const json_t *config_json, const char *tokenizer_from,
                               struct zf_err *e);

/* Memory in which pieces of a parameter come to the host: bounded, whatever the model. */
struct zf_pieces {
    void *host, *turned; /* pinned */
    void *device;
    size_t floats; /* of each */
};
enum zf_status zf_pieces_open(struct zf_pieces *x, const struct zf_model *m, struct zf_err *e);
void zf_pieces_close(struct zf_pieces *x, const struct zf_model *m);

/* A parameter, in the checkpoint's layout, out of a flat block of fp32 on the device (masters, grad), piece after piece. Waits. */
typedef enum zf_status zf_model_piece(void *ctx, const float *x, size_t n, struct zf_err *e);
enum zf_status zf_model_each_piece(const struct zf_model *m, const float *block, const struct zf_param *p, const struct zf_pieces *x,
                                   zf_model_piece *take, void *ctx, struct zf_err *e);
size_t zf_model_piece_floats(const struct zf_params *p);

/* The shape the checkpoint has for a parameter; returns the rank. */
size_t zf_param_file_shape(const struct zf_param *p, size_t shape[2]);

#endif
