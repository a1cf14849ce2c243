/* Model families as data: config.json -> flags of one block, and a table of tensor names a family.
 *
 * The block (forward.c, backward.c) knows flags, never families. To add a family: a row in family.c's tables. */
#ifndef ZF_MODEL_FAMILY_H
#define ZF_MODEL_FAMILY_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "kernels/ops.h"
#include <stdbool.h>
#include <stddef.h>

enum zf_family { ZF_FAMILY_GPT2, ZF_FAMILY_OPT, ZF_FAMILY_LLAMA, ZF_FAMILY_QWEN2, ZF_FAMILY_QWEN3, ZF_FAMILIES };

enum zf_rope_kind { ZF_ROPE_NONE, ZF_ROPE_DEFAULT, ZF_ROPE_LINEAR, ZF_ROPE_LLAMA3 };

struct zf_rope {
    enum zf_rope_kind kind; /* NONE: learned positions */
    double theta, factor, low_freq_factor, high_freq_factor, original_context;
};

struct zf_model_config {
    enum zf_family family;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    size_t embed_dim;     /* width of the embedding and of the head; not hidden: project_in, project_out (OPT-350M) */
    size_t position_rows; /* rows of the learned position table, 0 with rope */
    int position_offset;  /* row of position p is p + offset (OPT: 2) */
    int padding_id;       /* this token's embedding gets no gradient from lookups (pad_token_id, except GPT-2); -1: none */
    enum zf_norm_kind norm;
    float norm_eps;
    bool norm_affine, norm_bias; /* weight; weight and bias */
    bool pre_norm, final_norm;
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    bool fused_qkv; /* one tensor [hidden][3*hidden] in the checkpoint (GPT-2) */
    enum zf_activation_kind activation;
    struct zf_rope rope;
    bool tied; /* the head is the embedding */
    double init_std;
    bool init_scaled_output; /* GPT-2: c_proj starts divided by sqrt(2 layers) */
    int bos_id;              /* -1: none */
    int eos_ids[16];
    size_t eos_count;
    enum zf_dtype file_dtype; /* torch_dtype or dtype; ZF_F32 if absent */
};

/* Where a parameter stands in the block. */
#define ZF_SLOT_MAP(X) \
    X(EMBED) \
    X(POSITION) X(PROJECT_OUT) X(PROJECT_IN) X(ATTN_NORM_W) X(ATTN_NORM_B) X(Q_W) X(Q_B) X(K_W) X(K_B) X(V_W) X(V_B) X(QKV_W) X(QKV_B) \
        X(Q_NORM) X(K_NORM) X(O_W) X(O_B) X(MLP_NORM_W) X(MLP_NORM_B) X(GATE_W) X(GATE_B) X(UP_W) X(UP_B) X(DOWN_W) X(DOWN_B) \
            X(FINAL_NORM_W) X(FINAL_NORM_B) X(HEAD)
enum zf_slot {
#define X(name) ZF_SLOT_##name,
    ZF_SLOT_MAP(X)
#undef X
        ZF_SLOTS
};

/* One parameter as the checkpoint has it. Matrices are stored [rows][cols] with a channel a row ([in][out]; tables [rows][hidden]);
 * vectors have rows = 1 and no channels. */
struct zf_param {
    const char *name; /* the checkpoint's own, as transformers writes it */
    enum zf_slot slot;
    int layer; /* -1: outside the layers */
    size_t rows, cols;
    bool matrix;
    bool transposed; /* the file has [cols][rows] */
    bool frozen;
    size_t offset; /* first element in the flat blocks of weights, gradients, m, v; 64-byte aligned */
};

/* In the order in which transformers lists the parameters: it is the order of service of the CPU half, too (architecture 3.2). */
struct zf_params {
    struct zf_param *list;
    size_t count;
    size_t elements;           /* length of a flat block, alignment gaps included */
    size_t parameters;         /* without gaps */
    size_t global[ZF_SLOTS];   /* index into list + 1; 0: the model has none */
    size_t (*layer)[ZF_SLOTS]; /* [layers], likewise */
};

/* Reads a parsed config.json (old and new key spellings). Unknown families, rope types, activations, a missing theta, sliding windows
 * that are on: ZF_FORMAT, by name. `path` is for messages. */
enum zf_status zf_model_config_read(struct zf_model_config *out, const json_t *config, const char *path, struct zf_err *e);

/* The config.json that transformers needs for this model (models from scratch). New reference. */
json_t *zf_model_config_write(const struct zf_model_config *c);

/* Makes the list. Names and tables live in the arena. ZF_FORMAT if a size does not fit in memory's address space. */
enum zf_status zf_params_build(struct zf_params *out, const struct zf_model_config *c, struct zf_arena *a, struct zf_err *e);

/* NULL if the model has no such parameter. */
const struct zf_param *zf_param_at(const struct zf_params *p, enum zf_slot slot, int layer);
const struct zf_param *zf_param_find(const struct zf_params *p, const char *name);

const char *zf_family_name(enum zf_family f); /* "gpt2", ... : model_type */

/* A tensor name of a file in any accepted spelling -> the canonical one (buffer of `size` bytes), or NULL: it is a buffer to be ignored
 * (h.N.attn.bias, rotary_emb.inv_freq). Names without the prefix (wte.weight, decoder...) are completed. */
const char *zf_family_canonical(const struct zf_model_config *c, const char *name, char *buffer, size_t size);

/* cos and sin for positions 0..positions-1: table[positions][head_dim/2][2]. */
void zf_rope_table(float *table, const struct zf_rope *r, size_t positions, size_t head_dim);

#endif
