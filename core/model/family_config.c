/* config.json to the flags of the block and back, by tables: a row per key that is read, a row per key that must not ask for
 * mathematics that the block does not have. What is neither (dropout, caches, versions) is passed over.
 *
 * Pure functions; the parsed JSON stays the caller's. */
#include "core/model/family.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GPT2 = 1 << ZF_FAMILY_GPT2, OPT = 1 << ZF_FAMILY_OPT, LLAMA = 1 << ZF_FAMILY_LLAMA,
    QWEN2 = 1 << ZF_FAMILY_QWEN2, QWEN3 = 1 << ZF_FAMILY_QWEN3,
    LEARNED = GPT2 | OPT, ROTARY = LLAMA | QWEN2 | QWEN3, ALL = LEARNED | ROTARY
};

/* Where a key may stand. */
enum { TOP, PARAMETERS, SCALING, SCOPES };
enum { IN_TOP = 1 << TOP, IN_ROPE = 1 << PARAMETERS | 1 << SCALING };
static const char *const scope_names[SCOPES] = {[PARAMETERS] = "rope_parameters", [SCALING] = "rope_scaling"};

enum { NAMES = 2 };

struct reader {
    const json_t *scope[SCOPES]; /* NULL: not there */
    const char *path;
    unsigned family;             /* its bit */
    struct zf_err *e;
};

struct found {
    const json_t *value; /* NULL: absent */
    char key[96];        /* for messages: "rope_scaling.factor" */
};

/* What a config says beside the fields of struct zf_model_config. */
struct draft {
    struct zf_model_config c;
    bool remove_final_norm;
};

enum kind { SIZE, BOOL, FLOAT, DOUBLE };

struct key {
    unsigned families;
    enum kind kind;
    size_t field;             /* in struct draft */
    const char *names[NAMES]; /* the first is the one that is written */
    bool required;
    double absent;            /* the value if the key is absent or null; 0 for a size: derived from others */
    double least, most;
};

/* Limits far above any model that exists and far below an overflow of what is computed from them. */
#define LAYERS_MAX 1024
#define WIDTH_MAX 1048576
#define HEADS_MAX 65536
#define ROWS_MAX 1073741824

#define F(field) offsetof(struct draft, c.field)
static const struct key keys[] = {
    {ALL, SIZE, F(vocab), {"vocab_size"}, true, 0, 1, ROWS_MAX},
    {GPT2, SIZE, F(hidden), {"n_embd", "hidden_size"}, true, 0, 1, WIDTH_MAX},
    {OPT, SIZE, F(hidden), {"hidden_size", "d_model"}, true, 0, 1, WIDTH_MAX},
    {ROTARY, SIZE, F(hidden), {"hidden_size"}, true, 0, 1, WIDTH_MAX},
    {GPT2, SIZE, F(layers), {"n_layer", "num_hidden_layers"}, true, 0, 1, LAYERS_MAX},
    {OPT | ROTARY, SIZE, F(layers), {"num_hidden_layers"}, true, 0, 1, LAYERS_MAX},
    {GPT2, SIZE, F(heads), {"n_head", "num_attention_heads"}, true, 0, 1, HEADS_MAX},
    {OPT | ROTARY, SIZE, F(heads), {"num_attention_heads"}, true, 0, 1, HEADS_MAX},
    {ROTARY, SIZE, F(kv_heads), {"num_key_value_heads"}, false, 0, 1, HEADS_MAX},
    {LLAMA | QWEN2, SIZE, F(head_dim), {"head_dim"}, false, 0, 1, ZF_HEAD_DIM_MAX},
    {QWEN3, SIZE, F(head_dim), {"head_dim"}, false, 128, 1, ZF_HEAD_DIM_MAX},
    {GPT2, SIZE, F(ffn), {"n_inner"}, false, 0, 1, 16 * WIDTH_MAX},
    {OPT, SIZE, F(ffn), {"ffn_dim"}, true, 0, 1, 16 * WIDTH_MAX},
    {ROTARY, SIZE, F(ffn), {"intermediate_size"}, true, 0, 1, 16 * WIDTH_MAX},
    {GPT2, SIZE, F(context), {"n_positions", "max_position_embeddings"}, true, 0, 1, ROWS_MAX},
    {OPT | ROTARY, SIZE, F(context), {"max_position_embeddings"}, true, 0, 1, ROWS_MAX},
    {OPT, SIZE, F(embed_dim), {"word_embed_proj_dim"}, false, 0, 1, WIDTH_MAX},
    {GPT2, FLOAT, F(norm_eps), {"layer_norm_epsilon"}, false, 1e-5, 0, 1},
    {ROTARY, FLOAT, F(norm_eps), {"rms_norm_eps"}, false, 1e-6, 0, 1},
    {OPT, BOOL, F(norm_affine), {"layer_norm_elementwise_affine"}, false, 1, 0, 1},
    {OPT, BOOL, F(pre_norm), {"do_layer_norm_before"}, false, 1, 0, 1},
    {OPT, BOOL, offsetof(struct draft, remove_final_norm), {"_remove_final_layer_norm"}, false, 0, 0, 1},
    {OPT, BOOL, F(qkv_bias), {"enable_bias"}, false, 1, 0, 1},
    {LLAMA | QWEN3, BOOL, F(qkv_bias), {"attention_bias"}, false, 0, 0, 1},
    {LLAMA, BOOL, F(mlp_bias), {"mlp_bias"}, false, 0, 0, 1},
    {LEARNED, BOOL, F(tied), {"tie_word_embeddings"}, false, 1, 0, 1},
    {ROTARY, BOOL, F(tied), {"tie_word_embeddings"}, false, 0, 0, 1},
    {GPT2 | ROTARY, DOUBLE, F(init_std), {"initializer_range"}, false, 0.02, 0, 1},
    {OPT, DOUBLE, F(init_std), {"init_std"}, false, 0.02, 0, 1},
};

enum { DEFAULT = 1 << ZF_ROPE_DEFAULT, LINEAR = 1 << ZF_ROPE_LINEAR, LLAMA3 = 1 << ZF_ROPE_LLAMA3 };
static const struct rope_key {
    unsigned kinds, scopes;
    size_t field; /* in struct zf_rope */
    const char *name;
    double least, most;
} rope_keys[] = {
    {DEFAULT | LINEAR | LLAMA3, IN_TOP | IN_ROPE, offsetof(struct zf_rope, theta), "rope_theta", 1, 1e15},
    {LINEAR | LLAMA3, IN_ROPE, offsetof(struct zf_rope, factor), "factor", 1e-3, 1e6},
    {LLAMA3, IN_ROPE, offsetof(struct zf_rope, low_freq_factor), "low_freq_factor", 1e-3, 1e6},
    {LLAMA3, IN_ROPE, offsetof(struct zf_rope, high_freq_factor), "high_freq_factor", 1e-3, 1e6},
    {LLAMA3, IN_TOP | IN_ROPE, offsetof(struct zf_rope, original_context), "original_max_position_embeddings", 1, ROWS_MAX},
};

static const char *const rope_names[] = {[ZF_ROPE_DEFAULT] = "default", [ZF_ROPE_LINEAR] = "linear", [ZF_ROPE_LLAMA3] = "llama3"};

/* The only value (or none at all) with which the model is one that the block computes. */
enum only { ONLY_FALSE, ONLY_TRUE, ONLY_NULL, ONLY_ONE };
static const char *const only_text[] = {[ONLY_FALSE] = "false", [ONLY_TRUE] = "true", [ONLY_NULL] = "null", [ONLY_ONE] = "1"};
static const struct refusal {
    unsigned families, scopes;
    const char *name;
    enum only only;
    const char *what;
} refusals[] = {
    {ALL, IN_TOP, "quantization_config", ONLY_NULL, "quantized weights cannot be trained here: use the model they were made from"},
    {ALL, IN_TOP, "add_cross_attention", ONLY_FALSE, "cross-attention is not supported"},
    {ALL, IN_TOP, "is_encoder_decoder", ONLY_FALSE, "encoder-decoder models are not supported"},
    {ALL, IN_TOP, "is_causal", ONLY_TRUE, "attention to later tokens is not supported"},
    {ALL, IN_TOP, "use_bidirectional_attention", ONLY_FALSE, "attention to later tokens is not supported"},
    {ALL, IN_TOP, "use_sliding_window", ONLY_FALSE, "sliding-window attention is not supported"},
    {ALL, IN_TOP, "scale_attn_weights", ONLY_TRUE, "unscaled attention is not supported"},
    {ALL, IN_TOP, "scale_attn_by_inverse_layer_idx", ONLY_FALSE, "attention scaled by the number of the layer is not supported"},
    {ALL, IN_TOP, "reorder_and_upcast_attn", ONLY_FALSE, "this order of scaling is not supported"},
    {ALL, IN_TOP, "attn_logit_softcapping", ONLY_NULL, "soft-capped attention is not supported"},
    {ALL, IN_TOP, "final_logit_softcapping", ONLY_NULL, "soft-capped logits are not supported"},
    {ALL, IN_TOP, "query_pre_attn_scalar", ONLY_NULL, "another attention scale than 1/sqrt(head_dim) is not supported"},
    {ALL, IN_TOP, "attention_multiplier", ONLY_NULL, "another attention scale than 1/sqrt(head_dim) is not supported"},
    {ALL, IN_TOP, "embedding_multiplier", ONLY_ONE, "scaled embeddings are not supported"},
    {ALL, IN_TOP, "residual_multiplier", ONLY_ONE, "scaled residuals are not supported"},
    {ALL, IN_TOP, "logits_scaling", ONLY_ONE, "scaled logits are not supported"},
    {ALL, IN_TOP, "clip_qkv", ONLY_NULL, "clipped queries and keys are not supported"},
    {LLAMA | QWEN2, IN_TOP, "use_qk_norm", ONLY_FALSE, "normed queries and keys are not part of this family"},
    {ROTARY, IN_TOP, "use_mrope", ONLY_FALSE, "multimodal rotary embeddings are not supported"},
    {ROTARY, IN_ROPE, "mrope_section", ONLY_NULL, "multimodal rotary embeddings are not supported"},
    {ROTARY, IN_TOP | IN_ROPE, "partial_rotary_factor", ONLY_ONE, "rotary embeddings of a part of the head are not supported"},
    {ROTARY, IN_ROPE, "attention_factor", ONLY_ONE, "scaled rotary embeddings are not supported"},
};

static const struct activation {
    unsigned families;
    const char *name; /* the first of a family is its default, the first of a kind the one that is written */
    enum zf_activation_kind kind;
} activations[] = {
    {GPT2, "gelu_new", ZF_GELU_TANH},
    {GPT2, "gelu_pytorch_tanh", ZF_GELU_TANH},
    {LEARNED, "relu", ZF_RELU},
    {ROTARY, "silu", ZF_SWIGLU},
    {ROTARY, "swish", ZF_SWIGLU},
};

static const struct dtype_name {
    const char *name;
    enum zf_dtype dtype;
} dtypes[] = {{"float32", ZF_F32}, {"bfloat16", ZF_BF16}, {"float16", ZF_F16}, {"float64", ZF_F64}};

/* What of a family no key can change, and the ids that its class assumes where a file has none. */
static const struct base {
    const char *architecture;
    int bos, eos, pad;
    bool padded; /* its class gives pad_token_id to the embedding, whose row then gets no gradient from lookups */
    struct zf_model_config c;
} bases[ZF_FAMILIES] = {
    [ZF_FAMILY_GPT2] = {"GPT2LMHeadModel", 50256, 50256, -1, false,
        {.norm = ZF_LAYERNORM, .norm_affine = true, .norm_bias = true, .pre_norm = true, .final_norm = true, .qkv_bias = true,
            .o_bias = true, .mlp_bias = true, .fused_qkv = true, .init_scaled_output = true}},
    [ZF_FAMILY_OPT] = {"OPTForCausalLM", 2, 2, 1, true, {.norm = ZF_LAYERNORM, .norm_eps = 1e-5f, .position_offset = 2}},
    [ZF_FAMILY_LLAMA] = {"LlamaForCausalLM", 1, 2, -1, true,
        {.norm = ZF_RMSNORM, .norm_affine = true, .pre_norm = true, .final_norm = true}},
    [ZF_FAMILY_QWEN2] = {"Qwen2ForCausalLM", -1, -1, -1, true,
        {.norm = ZF_RMSNORM, .norm_affine = true, .pre_norm = true, .final_norm = true, .qkv_bias = true}},
    [ZF_FAMILY_QWEN3] = {"Qwen3ForCausalLM", -1, -1, -1, true,
        {.norm = ZF_RMSNORM, .norm_affine = true, .pre_norm = true, .final_norm = true, .qk_norm = true}},
};

#define COUNT(table) (sizeof table / sizeof *table)

/* Reading. */

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && json_string_length(value) == strlen(text) && !memcmp(json_string_value(value), text, strlen(text));
}

static bool is_given(const json_t *value)
{
    return value && !json_is_null(value);
}

/* A value as a message may show it: short, ASCII. */
static const char *show(char *buffer, size_t size, const json_t *value)
{
    if (json_is_object(value)) return "an object";
    if (json_is_array(value)) return "a list";
    size_t n = json_dumpb(value, buffer, size - 4, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    if (n < size - 4) buffer[n] = 0;
    else memcpy(buffer + size - 4, "...", 4);
    return buffer;
}

static enum zf_status refuse(struct reader *r, const char *key, const json_t *value, const char *expected)
{
    char where[512], found[80];
    snprintf(where, sizeof where, "%s: %s", r->path, key);
    if (!value) return zf_fail(r->e, ZF_FORMAT, where, "missing; expected %s", expected);
    return zf_fail(r->e, ZF_FORMAT, where, "found %s; expected %s", show(found, sizeof found, value), expected);
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* The value of a key under any of its names in any of the places it may stand. Two that differ are no config. */
static enum zf_status find(struct reader *r, unsigned scopes, const char *const *names, size_t count, struct found *out)
{
    out->value = NULL;
    snprintf(out->key, sizeof out->key, "%s", names[0]);
    for (int s = 0; s < SCOPES; s++) {
        if (!(scopes & 1u << s) || !r->scope[s]) continue;
        for (size_t i = 0; i < count && names[i]; i++) {
            const json_t *value = json_object_get(r->scope[s], names[i]);
            if (!value || (json_is_null(value) && out->value)) continue;
            struct found next = {.value = value};
            snprintf(next.key, sizeof next.key, "%s%s%s", s == TOP ? "" : scope_names[s], s == TOP ? "" : ".", names[i]);
            if (is_given(out->value) && !same(out->value, value)) {
                char expected[192], shown[80];
                snprintf(expected, sizeof expected, "what %s says: %s", out->key, show(shown, sizeof shown, out->value));
                return refuse(r, next.key, value, expected);
            }
            *out = next;
        }
    }
    return ZF_OK;
}

static enum zf_status number(struct reader *r, const struct found *f, double least, double most, double *out)
{
    char expected[96];
    double x = json_is_number(f->value) ? json_number_value(f->value) : NAN;
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    if (!(x >= least && x <= most)) return refuse(r, f->key, f->value, expected);
    *out = x;
    return ZF_OK;
}

static enum zf_status size(struct reader *r, const struct found *f, double least, double most, size_t *out)
{
    char expected[96];
    json_int_t x = json_is_integer(f->value) ? json_integer_value(f->value) : -1;
    snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", least, most);
    if (x < (json_int_t)least || x > (json_int_t)most) return refuse(r, f->key, f->value, expected);
    *out = (size_t)x;
    return ZF_OK;
}

static enum zf_status read_key(struct reader *r, const struct key *k, void *draft)
{
    struct found f;
    void *field = (char *)draft + k->field;
    double x = k->absent;
    ZF_TRY(find(r, IN_TOP, k->names, NAMES, &f));
    const bool given = is_given(f.value);
    if (!given && k->required) return refuse(r, f.key, f.value, "the model's size (this key is not optional)");
    if (k->kind == SIZE) {
        *(size_t *)field = (size_t)k->absent;
        return given ? size(r, &f, k->least, k->most, field) : ZF_OK;
    }
    if (k->kind == BOOL) {
        if (given && !json_is_boolean(f.value)) return refuse(r, f.key, f.value, "true or false");
        *(bool *)field = given ? json_is_true(f.value) : k->absent != 0;
        return ZF_OK;
    }
    if (given) ZF_TRY(number(r, &f, k->least, k->most, &x));
    if (k->kind == FLOAT) *(float *)field = (float)x;
    else *(double *)field = x;
    return ZF_OK;
}

static void names_of_families(char *out, size_t size_of_out)
{
    size_t n = 0;
    for (int f = 0; f < ZF_FAMILIES && n < size_of_out; f++)
        n += (size_t)snprintf(out + n, size_of_out - n, "%s%s", f ? ", " : "", zf_family_name(f));
}

static enum zf_status read_family(struct reader *r, enum zf_family *out)
{
    char supported[96], expected[128];
    const json_t *type = json_object_get(r->scope[TOP], "model_type"), *list = json_object_get(r->scope[TOP], "architectures"), *item;
    size_t i;
    names_of_families(supported, sizeof supported);
    snprintf(expected, sizeof expected, "one of %s", supported);
    for (int f = 0; f < ZF_FAMILIES && is_given(type); f++) {
        if (!is_text(type, zf_family_name(f))) continue;
        *out = f;
        return ZF_OK;
    }
    if (is_given(type)) return refuse(r, "model_type", type, expected);
    json_array_foreach(list, i, item) {
        for (int f = 0; f < ZF_FAMILIES; f++) {
            if (!is_text(item, bases[f].architecture)) continue;
            *out = f;
            return ZF_OK;
        }
    }
    if (json_array_size(list))
        return refuse(r, "architectures", json_array_get(list, 0), "the causal language model of gpt2, opt, llama, qwen2 or qwen3");
    return refuse(r, "model_type", NULL, expected);
}

static bool is_only(const json_t *value, enum only only)
{
    switch (only) {
    case ONLY_FALSE: return json_is_false(value);
    case ONLY_TRUE: return json_is_true(value);
    case ONLY_ONE: return json_is_number(value) && json_number_value(value) == 1;
    default: return false;
    }
}

static enum zf_status check_refusals(struct reader *r)
{
    for (const struct refusal *x = refusals; x < refusals + COUNT(refusals); x++) {
        struct found f;
        char expected[160];
        if (!(x->families & r->family)) continue;
        ZF_TRY(find(r, x->scopes, &x->name, 1, &f));
        if (!is_given(f.value) || is_only(f.value, x->only)) continue;
        snprintf(expected, sizeof expected, "%s or nothing: %s", only_text[x->only], x->what);
        return refuse(r, f.key, f.value, expected);
    }
    return ZF_OK;
}

static enum zf_status check_layer_types(struct reader *r)
{
    const json_t *list = json_object_get(r->scope[TOP], "layer_types"), *item;
    size_t i;
    if (!is_given(list)) return ZF_OK;
    if (!json_is_array(list)) return refuse(r, "layer_types", list, "a list");
    json_array_foreach(list, i, item)
        if (!is_text(item, "full_attention"))
            return refuse(r, "layer_types", item, "\"full_attention\" in every layer: other kinds are not supported");
    return ZF_OK;
}

static enum zf_status read_activation(struct reader *r, enum zf_activation_kind *out)
{
    const char *const name = r->family & ROTARY ? "hidden_act" : "activation_function";
    const struct activation *own = NULL;
    struct found f;
    char expected[128] = "one of";
    size_t n = strlen(expected);
    ZF_TRY(find(r, IN_TOP, &name, 1, &f));
    for (const struct activation *a = activations; a < activations + COUNT(activations); a++) {
        if (!(a->families & r->family)) continue;
        if (!own) own = a;
        if (is_text(f.value, a->name)) {
            *out = a->kind;
            return ZF_OK;
        }
        n += (size_t)snprintf(expected + n, sizeof expected - n, " \"%s\"", a->name);
    }
    if (is_given(f.value)) return refuse(r, f.key, f.value, expected);
    *out = own->kind;
    return ZF_OK;
}

static enum zf_status read_dtype(struct reader *r, enum zf_dtype *out)
{
    static const char *const names[NAMES] = {"torch_dtype", "dtype"};
    struct found f;
    *out = ZF_F32;
    ZF_TRY(find(r, IN_TOP, names, NAMES, &f));
    if (!is_given(f.value)) return ZF_OK;
    for (const struct dtype_name *d = dtypes; d < dtypes + COUNT(dtypes); d++) {
        if (!is_text(f.value, d->name)) continue;
        *out = d->dtype;
        return ZF_OK;
    }
    return refuse(r, f.key, f.value, "\"float32\", \"bfloat16\", \"float16\" or \"float64\"");
}

/* rope_type and its older spelling; transformers takes a missing one for "default", unless the rest shows that it is not. */
static enum zf_status read_rope_kind(struct reader *r, enum zf_rope_kind *out)
{
    static const char *const names[NAMES] = {"rope_type", "type"}, *const factor[] = {"factor"};
    struct found f, with;
    ZF_TRY(find(r, IN_ROPE, names, NAMES, &f));
    ZF_TRY(find(r, IN_ROPE, factor, 1, &with));
    *out = ZF_ROPE_DEFAULT;
    if (!is_given(f.value) && !is_given(with.value)) return ZF_OK;
    for (enum zf_rope_kind k = ZF_ROPE_DEFAULT; k <= ZF_ROPE_LLAMA3; k++) {
        if (!is_text(f.value, rope_names[k])) continue;
        *out = k;
        return ZF_OK;
    }
    return refuse(r, f.key, f.value, "\"default\", \"linear\" or \"llama3\": other kinds of rotary embeddings are not supported");
}

static enum zf_status read_rope(struct reader *r, struct zf_rope *out)
{
    ZF_TRY(read_rope_kind(r, &out->kind));
    for (const struct rope_key *k = rope_keys; k < rope_keys + COUNT(rope_keys); k++) {
        struct found f;
        if (!(k->kinds & 1u << out->kind)) continue;
        ZF_TRY(find(r, k->scopes, &k->name, 1, &f));
        if (!is_given(f.value))
            return refuse(r, k->name, f.value, "a number: there is no default, a wrong one makes a model that writes nonsense");
        ZF_TRY(number(r, &f, k->least, k->most, (double *)((char *)out + k->field)));
    }
    if (out->kind == ZF_ROPE_LLAMA3 && out->high_freq_factor <= out->low_freq_factor) {
        char expected[96];
        snprintf(expected, sizeof expected, "a number above low_freq_factor, which is %g", out->low_freq_factor);
        struct found f;
        static const char *const name[] = {"high_freq_factor"};
        ZF_TRY(find(r, IN_ROPE, name, 1, &f));
        return refuse(r, f.key, f.value, expected);
    }
    return ZF_OK;
}

static enum zf_status open_scopes(struct reader *r, const json_t *config)
{
    if (!json_is_object(config)) return refuse(r, "the whole file", config, "an object, config.json of a Hugging Face model");
    r->scope[TOP] = config;
    for (int s = PARAMETERS; s < SCOPES; s++) {
        const json_t *value = json_object_get(config, scope_names[s]), *inner;
        const char *key;
        if (!is_given(value)) continue;
        if (!json_is_object(value)) return refuse(r, scope_names[s], value, "an object");
        json_object_foreach((json_t *)value, key, inner) { /* a macro without const; nothing is changed */
            if (json_is_object(inner))
                return refuse(r, scope_names[s], inner, "one setting for all layers: settings by kind of layer are not supported");
        }
        r->scope[s] = value;
    }
    return ZF_OK;
}

/* An id beside the vocabulary is none: no text has it, no head can give it. */
static enum zf_status read_id(struct reader *r, const char *key, const json_t *value, size_t vocab, int *out)
{
    if (!json_is_integer(value)) return refuse(r, key, value, "a token id");
    json_int_t id = json_integer_value(value);
    *out = id >= 0 && id < (json_int_t)vocab ? (int)id : -1;
    return ZF_OK;
}

static enum zf_status read_eos(struct reader *r, const json_t *value, struct zf_model_config *c)
{
    const size_t most = COUNT(c->eos_ids), count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > most) return refuse(r, "eos_token_id", value, "at most 16 ids");
    for (size_t i = 0; i < count; i++) {
        int id = -1;
        ZF_TRY(read_id(r, "eos_token_id", json_is_array(value) ? json_array_get(value, i) : value, c->vocab, &id));
        if (id >= 0) c->eos_ids[c->eos_count++] = id;
    }
    return ZF_OK;
}

/* The row of the embedding that torch leaves out of the gradients of lookups. Negative ids count from the end, as there. */
static enum zf_status read_padding(struct reader *r, const json_t *value, struct zf_model_config *c)
{
    const json_int_t rows = (json_int_t)c->vocab;
    char expected[128];
    if (!is_given(value)) return ZF_OK;
    snprintf(expected, sizeof expected, "null or a row of the embedding, which has %zu (vocab_size)", c->vocab);
    if (!json_is_integer(value)) return refuse(r, "pad_token_id", value, expected);
    json_int_t id = json_integer_value(value);
    if (id < -rows || id >= rows) return refuse(r, "pad_token_id", value, expected);
    c->padding_id = (int)(id < 0 ? id + rows : id);
    return ZF_OK;
}

static int in_vocabulary(int id, const struct zf_model_config *c)
{
    return id >= 0 && (size_t)id < c->vocab ? id : -1;
}

static enum zf_status read_ids(struct reader *r, struct zf_model_config *c)
{
    const struct base *b = &bases[c->family];
    const json_t *bos = json_object_get(r->scope[TOP], "bos_token_id"), *eos = json_object_get(r->scope[TOP], "eos_token_id"),
        *pad = json_object_get(r->scope[TOP], "pad_token_id");
    c->bos_id = bos ? -1 : in_vocabulary(b->bos, c);
    if (is_given(bos)) ZF_TRY(read_id(r, "bos_token_id", bos, c->vocab, &c->bos_id));
    c->eos_count = 0;
    if (is_given(eos)) ZF_TRY(read_eos(r, eos, c));
    else if (!eos && in_vocabulary(b->eos, c) >= 0) c->eos_ids[c->eos_count++] = b->eos;
    c->padding_id = pad || !b->padded ? -1 : in_vocabulary(b->pad, c);
    return b->padded ? read_padding(r, pad, c) : ZF_OK;
}

static enum zf_status refuse_size(struct reader *r, const char *name, size_t found, const char *expected, size_t than)
{
    char text[128];
    json_t *value = json_integer((json_int_t)found);
    if (!value) return zf_fail_memory(r->e, "a message");
    snprintf(text, sizeof text, "%s %zu", expected, than);
    enum zf_status s = refuse(r, name, value, text);
    json_decref(value);
    return s;
}

/* Sizes that follow from others, and what must divide what. */
static enum zf_status derive(struct reader *r, struct zf_model_config *c)
{
    const char *hidden = r->family == GPT2 ? "n_embd" : "hidden_size";
    /* A head dimension of its own makes this unnecessary, but transformers insists for llama. */
    if ((!c->head_dim || r->family == LLAMA) && c->hidden % c->heads)
        return refuse_size(r, hidden, c->hidden, "a multiple of the number of heads, which is", c->heads);
    if (!c->head_dim) c->head_dim = c->hidden / c->heads;
    if (c->head_dim > ZF_HEAD_DIM_MAX)
        return refuse_size(r, "head_dim", c->head_dim, "(the hidden size divided by the number of heads) at most", ZF_HEAD_DIM_MAX);
    if (r->family & ROTARY && c->head_dim % 2) return refuse_size(r, "head_dim", c->head_dim, "for rotary embeddings a multiple of", 2);
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (c->heads % c->kv_heads)
        return refuse_size(r, "num_key_value_heads", c->kv_heads, "a divisor of the number of heads, which is", c->heads);
    if (!c->ffn) c->ffn = 4 * c->hidden;
    if (!c->embed_dim) c->embed_dim = c->hidden;
    c->position_rows = r->family & LEARNED ? c->context + (size_t)c->position_offset : 0;
    return ZF_OK;
}

enum zf_status zf_model_config_read(struct zf_model_config *out, const json_t *config, const char *path, struct zf_err *e)
{
    struct reader r = {.path = path, .e = e};
    enum zf_family family = ZF_FAMILY_GPT2;
    ZF_TRY(open_scopes(&r, config));
    ZF_TRY(read_family(&r, &family));
    r.family = 1u << family;
    ZF_TRY(check_refusals(&r));
    ZF_TRY(check_layer_types(&r));
    struct draft d = {.c = bases[family].c};
    struct zf_model_config *c = &d.c;
    c->family = family;
    for (const struct key *k = keys; k < keys + COUNT(keys); k++)
        if (k->families & r.family) ZF_TRY(read_key(&r, k, &d));
    if (family == ZF_FAMILY_OPT) {
        c->norm_bias = c->norm_affine;
        c->final_norm = c->pre_norm && !d.remove_final_norm;
        c->o_bias = c->mlp_bias = c->qkv_bias;
    }
    if (r.family & (LLAMA | QWEN3)) c->o_bias = c->qkv_bias;
    ZF_TRY(read_activation(&r, &c->activation));
    ZF_TRY(read_dtype(&r, &c->file_dtype));
    if (r.family & ROTARY) ZF_TRY(read_rope(&r, &c->rope));
    ZF_TRY(derive(&r, c));
    ZF_TRY(read_ids(&r, c));
    *out = *c;
    return ZF_OK;
}

/* Writing. The older spelling of rotary embeddings and dtype: transformers 4 and 5 both read it. */

/* The shortest decimal that reads back to the float: 1e-05, not 9.9999997e-06. */
static json_t *short_float(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return json_real(strtod(text, NULL));
}

static json_t *id_or_null(int id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static json_t *eos_ids(const struct zf_model_config *c)
{
    if (c->eos_count <= 1) return id_or_null(c->eos_count ? c->eos_ids[0] : -1);
    json_t *list = json_array();
    for (size_t i = 0; list && i < c->eos_count; i++) {
        if (!json_array_append_new(list, json_integer(c->eos_ids[i]))) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *value_of(const struct key *k, const struct draft *d)
{
    const void *field = (const char *)d + k->field;
    switch (k->kind) {
    case SIZE: return json_integer((json_int_t)*(const size_t *)field);
    case BOOL: return json_boolean(*(const bool *)field);
    case FLOAT: return short_float(*(const float *)field);
    default: return json_real(*(const double *)field);
    }
}

static json_t *rope_scaling(const struct zf_rope *rope)
{
    if (rope->kind == ZF_ROPE_DEFAULT) return json_null();
    json_t *o = json_object();
    int bad = json_object_set_new(o, "rope_type", json_string(rope_names[rope->kind]));
    for (const struct rope_key *k = rope_keys; k < rope_keys + COUNT(rope_keys); k++) {
        if (k->scopes == (IN_TOP | IN_ROPE) && k->field == offsetof(struct zf_rope, theta)) continue; /* stands beside it */
        if (!(k->kinds & 1u << rope->kind)) continue;
        double x = *(const double *)((const char *)rope + k->field);
        bool whole = k->field == offsetof(struct zf_rope, original_context) && x == floor(x);
        bad |= json_object_set_new(o, k->name, whole ? json_integer((json_int_t)x) : json_real(x));
    }
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

static const char *activation_name(enum zf_activation_kind kind)
{
    const struct activation *a = activations;
    while (a->kind != kind) a++;
    return a->name;
}

json_t *zf_model_config_write(const struct zf_model_config *c)
{
    static const struct {
        unsigned families;
        const char *name;
    } dropouts[] = {{GPT2, "resid_pdrop"}, {GPT2, "embd_pdrop"}, {GPT2, "attn_pdrop"},
        {OPT, "dropout"}, {OPT, "layerdrop"}, {OPT | ROTARY, "attention_dropout"}};
    const unsigned family = 1u << c->family;
    const struct draft d = {.c = *c, .remove_final_norm = c->pre_norm && !c->final_norm};
    json_t *o = json_object();
    int bad = json_object_set_new(o, "architectures", json_pack("[s]", bases[c->family].architecture));
    bad |= json_object_set_new(o, "model_type", json_string(zf_family_name(c->family)));
    bad |= json_object_set_new(o, "torch_dtype", json_string("float32"));
    for (const struct key *k = keys; k < keys + COUNT(keys); k++)
        if (k->families & family) bad |= json_object_set_new(o, k->names[0], value_of(k, &d));
    bad |= json_object_set_new(o, family & ROTARY ? "hidden_act" : "activation_function", json_string(activation_name(c->activation)));
    if (family & ROTARY) {
        bad |= json_object_set_new(o, "rope_theta", json_real(c->rope.theta));
        bad |= json_object_set_new(o, "rope_scaling", rope_scaling(&c->rope));
    }
    for (size_t i = 0; i < COUNT(dropouts); i++)
        if (dropouts[i].families & family) bad |= json_object_set_new(o, dropouts[i].name, json_real(0));
    bad |= json_object_set_new(o, "bos_token_id", id_or_null(c->bos_id));
    bad |= json_object_set_new(o, "eos_token_id", eos_ids(c));
    bad |= json_object_set_new(o, "pad_token_id", id_or_null(c->padding_id));
    if (!bad) return o;
    json_decref(o);
    return NULL;
}
