/* Families as tables: which tensors a model has, in the order in which transformers lists them, under its names.
 *
 * A family is a row of `families`; a tensor is a row of its table, with its shape in terms of the configuration and the flags
 * under which it exists.
 * Names and lists live in the caller's arena. Pure functions, no state. */
#include "core/model/family.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum dim { ONE, HIDDEN, EMBED, VOCAB, POSITIONS, FFN, QUERIES, KEYS, FUSED, HEAD_DIM, DIMS };

/* Facts about a model under which a tensor exists. */
enum {
    NORM_W = 1 << 0, NORM_B = 1 << 1, FINAL_W = 1 << 2, FINAL_B = 1 << 3, QKV_BIAS = 1 << 4, O_BIAS = 1 << 5, MLP_BIAS = 1 << 6,
    QK_NORM = 1 << 7, PROJECTED = 1 << 8, UNTIED = 1 << 9
};

struct row {
    enum zf_slot slot;
    const char *name; /* whole, or what follows "LAYERS.N." */
    enum dim rows, cols;
    bool layer, transposed;
    unsigned needs;
};

#define TABLE(slot, name, rows, cols) {ZF_SLOT_##slot, name, rows, cols, false, false, 0}
#define OUTER(slot, name, in, out, needs) {ZF_SLOT_##slot, name, in, out, false, true, needs}     /* a Linear outside the layers */
#define OUTER_VECTOR(slot, name, n, needs) {ZF_SLOT_##slot, name, ONE, n, false, false, needs}
#define LINEAR(slot, name, in, out) {ZF_SLOT_##slot, name, in, out, true, true, 0}               /* the file has [out][in] */
#define CONV1D(slot, name, in, out) {ZF_SLOT_##slot, name, in, out, true, false, 0}              /* the file has [in][out] */
#define VECTOR(slot, name, n, needs) {ZF_SLOT_##slot, name, ONE, n, true, false, needs}

static const struct row gpt2_rows[] = {
    TABLE(EMBED, "transformer.wte.weight", VOCAB, EMBED),
    TABLE(POSITION, "transformer.wpe.weight", POSITIONS, HIDDEN),
    VECTOR(ATTN_NORM_W, "ln_1.weight", HIDDEN, NORM_W),
    VECTOR(ATTN_NORM_B, "ln_1.bias", HIDDEN, NORM_B),
    CONV1D(QKV_W, "attn.c_attn.weight", HIDDEN, FUSED),
    VECTOR(QKV_B, "attn.c_attn.bias", FUSED, QKV_BIAS),
    CONV1D(O_W, "attn.c_proj.weight", QUERIES, HIDDEN),
    VECTOR(O_B, "attn.c_proj.bias", HIDDEN, O_BIAS),
    VECTOR(MLP_NORM_W, "ln_2.weight", HIDDEN, NORM_W),
    VECTOR(MLP_NORM_B, "ln_2.bias", HIDDEN, NORM_B),
    CONV1D(UP_W, "mlp.c_fc.weight", HIDDEN, FFN),
    VECTOR(UP_B, "mlp.c_fc.bias", FFN, MLP_BIAS),
    CONV1D(DOWN_W, "mlp.c_proj.weight", FFN, HIDDEN),
    VECTOR(DOWN_B, "mlp.c_proj.bias", HIDDEN, MLP_BIAS),
    OUTER_VECTOR(FINAL_NORM_W, "transformer.ln_f.weight", HIDDEN, FINAL_W),
    OUTER_VECTOR(FINAL_NORM_B, "transformer.ln_f.bias", HIDDEN, FINAL_B),
    OUTER(HEAD, "lm_head.weight", EMBED, VOCAB, UNTIED),
};

static const struct row opt_rows[] = {
    TABLE(EMBED, "model.decoder.embed_tokens.weight", VOCAB, EMBED),
    TABLE(POSITION, "model.decoder.embed_positions.weight", POSITIONS, HIDDEN),
    OUTER(PROJECT_OUT, "model.decoder.project_out.weight", HIDDEN, EMBED, PROJECTED),
    OUTER(PROJECT_IN, "model.decoder.project_in.weight", EMBED, HIDDEN, PROJECTED),
    OUTER_VECTOR(FINAL_NORM_W, "model.decoder.final_layer_norm.weight", HIDDEN, FINAL_W),
    OUTER_VECTOR(FINAL_NORM_B, "model.decoder.final_layer_norm.bias", HIDDEN, FINAL_B),
    LINEAR(K_W, "self_attn.k_proj.weight", HIDDEN, KEYS),
    VECTOR(K_B, "self_attn.k_proj.bias", KEYS, QKV_BIAS),
    LINEAR(V_W, "self_attn.v_proj.weight", HIDDEN, KEYS),
    VECTOR(V_B, "self_attn.v_proj.bias", KEYS, QKV_BIAS),
    LINEAR(Q_W, "self_attn.q_proj.weight", HIDDEN, QUERIES),
    VECTOR(Q_B, "self_attn.q_proj.bias", QUERIES, QKV_BIAS),
    LINEAR(O_W, "self_attn.out_proj.weight", QUERIES, HIDDEN),
    VECTOR(O_B, "self_attn.out_proj.bias", HIDDEN, O_BIAS),
    VECTOR(ATTN_NORM_W, "self_attn_layer_norm.weight", HIDDEN, NORM_W),
    VECTOR(ATTN_NORM_B, "self_attn_layer_norm.bias", HIDDEN, NORM_B),
    LINEAR(UP_W, "fc1.weight", HIDDEN, FFN),
    VECTOR(UP_B, "fc1.bias", FFN, MLP_BIAS),
    LINEAR(DOWN_W, "fc2.weight", FFN, HIDDEN),
    VECTOR(DOWN_B, "fc2.bias", HIDDEN, MLP_BIAS),
    VECTOR(MLP_NORM_W, "final_layer_norm.weight", HIDDEN, NORM_W),
    VECTOR(MLP_NORM_B, "final_layer_norm.bias", HIDDEN, NORM_B),
    OUTER(HEAD, "lm_head.weight", EMBED, VOCAB, UNTIED),
};

static const struct row llama_rows[] = {
    TABLE(EMBED, "model.embed_tokens.weight", VOCAB, EMBED),
    LINEAR(Q_W, "self_attn.q_proj.weight", HIDDEN, QUERIES),
    VECTOR(Q_B, "self_attn.q_proj.bias", QUERIES, QKV_BIAS),
    LINEAR(K_W, "self_attn.k_proj.weight", HIDDEN, KEYS),
    VECTOR(K_B, "self_attn.k_proj.bias", KEYS, QKV_BIAS),
    LINEAR(V_W, "self_attn.v_proj.weight", HIDDEN, KEYS),
    VECTOR(V_B, "self_attn.v_proj.bias", KEYS, QKV_BIAS),
    LINEAR(O_W, "self_attn.o_proj.weight", QUERIES, HIDDEN),
    VECTOR(O_B, "self_attn.o_proj.bias", HIDDEN, O_BIAS),
    VECTOR(Q_NORM, "self_attn.q_norm.weight", HEAD_DIM, QK_NORM),
    VECTOR(K_NORM, "self_attn.k_norm.weight", HEAD_DIM, QK_NORM),
    LINEAR(GATE_W, "mlp.gate_proj.weight", HIDDEN, FFN),
    VECTOR(GATE_B, "mlp.gate_proj.bias", FFN, MLP_BIAS),
    LINEAR(UP_W, "mlp.up_proj.weight", HIDDEN, FFN),
    VECTOR(UP_B, "mlp.up_proj.bias", FFN, MLP_BIAS),
    LINEAR(DOWN_W, "mlp.down_proj.weight", FFN, HIDDEN),
    VECTOR(DOWN_B, "mlp.down_proj.bias", HIDDEN, MLP_BIAS),
    VECTOR(ATTN_NORM_W, "input_layernorm.weight", HIDDEN, NORM_W),
    VECTOR(MLP_NORM_W, "post_attention_layernorm.weight", HIDDEN, NORM_W),
    OUTER_VECTOR(FINAL_NORM_W, "model.norm.weight", HIDDEN, FINAL_W),
    OUTER(HEAD, "lm_head.weight", EMBED, VOCAB, UNTIED),
};

#define ROWS(table) table, sizeof table / sizeof *table
static const struct family {
    const char *name;
    const char *layers;    /* what stands before the number of a layer */
    const struct row *rows;
    size_t count;
    const char *prefix;    /* what some files leave out... */
    const char *starts[4]; /* ...before names that begin like this */
} families[ZF_FAMILIES] = {
    [ZF_FAMILY_GPT2] = {"gpt2", "transformer.h.", ROWS(gpt2_rows), "transformer.", {"wte.", "wpe.", "h.", "ln_f."}},
    [ZF_FAMILY_OPT] = {"opt", "model.decoder.layers.", ROWS(opt_rows), "model.", {"decoder."}},
    [ZF_FAMILY_LLAMA] = {"llama", "model.layers.", ROWS(llama_rows), NULL, {NULL}},
    [ZF_FAMILY_QWEN2] = {"qwen2", "model.layers.", ROWS(llama_rows), NULL, {NULL}},
    [ZF_FAMILY_QWEN3] = {"qwen3", "model.layers.", ROWS(llama_rows), NULL, {NULL}},
};

const char *zf_family_name(enum zf_family f)
{
    return families[f].name;
}

static unsigned facts(const struct zf_model_config *c)
{
    bool weights = c->norm_affine, biases = weights && c->norm_bias;
    return (weights ? NORM_W : 0u) | (biases ? NORM_B : 0u)
        | (weights && c->final_norm ? FINAL_W : 0u) | (biases && c->final_norm ? FINAL_B : 0u)
        | (c->qkv_bias ? QKV_BIAS : 0u) | (c->o_bias ? O_BIAS : 0u) | (c->mlp_bias ? MLP_BIAS : 0u) | (c->qk_norm ? QK_NORM : 0u)
        | (c->embed_dim != c->hidden ? PROJECTED : 0u) | (c->tied ? 0u : UNTIED);
}

static bool dimensions(size_t dim[DIMS], const struct zf_model_config *c)
{
    dim[ONE] = 1;
    dim[HIDDEN] = c->hidden;
    dim[EMBED] = c->embed_dim;
    dim[VOCAB] = c->vocab;
    dim[POSITIONS] = c->position_rows;
    dim[FFN] = c->ffn;
    dim[HEAD_DIM] = c->head_dim;
    return !__builtin_mul_overflow(c->heads, c->head_dim, &dim[QUERIES]) && !__builtin_mul_overflow(c->kv_heads, c->head_dim, &dim[KEYS])
        && !__builtin_add_overflow(dim[QUERIES], dim[KEYS], &dim[FUSED]) && !__builtin_add_overflow(dim[FUSED], dim[KEYS], &dim[FUSED]);
}

static enum zf_status too_large(struct zf_err *e, const char *what)
{
    return zf_fail(e, ZF_FORMAT, what, "this size does not fit in the address space; expected the sizes of a model that exists");
}

/* Appends a parameter. The flat blocks may hold 8-byte elements: their length stays below a signed byte count of those. */
static enum zf_status add(struct zf_params *p, const struct row *r, const size_t dim[DIMS], const char *name, int layer, struct zf_err *e)
{
    enum { ALIGN = 16 };
    const size_t most = PTRDIFF_MAX / 8;
    if (!name) return zf_fail_memory(e, "names of parameters");
    struct zf_param *q = &p->list[p->count];
    size_t n, end;
    *q = (struct zf_param){.name = name, .slot = r->slot, .layer = layer, .rows = dim[r->rows], .cols = dim[r->cols],
        .matrix = r->rows != ONE, .transposed = r->transposed, .offset = p->elements};
    if (__builtin_mul_overflow(q->rows, q->cols, &n) || __builtin_add_overflow(p->elements, n, &end) || end > most - ALIGN)
        return too_large(e, name);
    p->elements = (end + ALIGN - 1) / ALIGN * ALIGN;
    p->parameters += n;
    p->count++;
    *(layer < 0 ? &p->global[r->slot] : &p->layer[layer][r->slot]) = p->count;
    return ZF_OK;
}

static enum zf_status allocate(struct zf_params *out, const struct family *f, unsigned have, size_t layers, struct zf_arena *a,
    struct zf_err *e)
{
    size_t inner = 0, outer = 0, count, bytes;
    for (size_t i = 0; i < f->count; i++) {
        if (f->rows[i].needs & ~have) continue;
        if (f->rows[i].layer) inner++;
        else outer++;
    }
    if (layers > INT_MAX || __builtin_mul_overflow(inner, layers, &count) || __builtin_add_overflow(count, outer, &count)
        || __builtin_mul_overflow(count, sizeof *out->list, &bytes))
        return too_large(e, "layers");
    out->list = zf_arena_alloc(a, bytes);
    if (__builtin_mul_overflow(layers, sizeof *out->layer, &bytes)) return too_large(e, "layers");
    out->layer = zf_arena_alloc(a, bytes);
    return out->list && out->layer ? ZF_OK : zf_fail_memory(e, "the list of parameters");
}

enum zf_status zf_params_build(struct zf_params *out, const struct zf_model_config *c, struct zf_arena *a, struct zf_err *e)
{
    const struct family *f = &families[c->family];
    const unsigned have = facts(c);
    size_t dim[DIMS];
    *out = (struct zf_params){0};
    if (!dimensions(dim, c)) return too_large(e, "heads x head_dim");
    ZF_TRY(allocate(out, f, have, c->layers, a, e));
    for (size_t i = 0, end; i < f->count; i = end) {
        const bool layer = f->rows[i].layer;
        for (end = i + 1; end < f->count && layer && f->rows[end].layer; end++) continue;
        for (size_t l = 0; l < (layer ? c->layers : 1); l++) {
            for (const struct row *r = f->rows + i; r < f->rows + end; r++) {
                if (r->needs & ~have) continue;
                const char *name = layer ? zf_arena_printf(a, "%s%zu.%s", f->layers, l, r->name) : r->name;
                ZF_TRY(add(out, r, dim, name, layer ? (int)l : -1, e));
            }
        }
    }
    return ZF_OK;
}

/* At most a few parameters follow the last layer. */
static int layer_count(const struct zf_params *p)
{
    for (size_t i = p->count; i-- > 0;)
        if (p->list[i].layer >= 0) return p->list[i].layer + 1;
    return 0;
}

const struct zf_param *zf_param_at(const struct zf_params *p, enum zf_slot slot, int layer)
{
    if (layer >= layer_count(p)) return NULL;
    size_t index = layer < 0 ? p->global[slot] : p->layer[layer][slot];
    return index ? &p->list[index - 1] : NULL;
}

/* The number in "....N....", -1 if there is none. */
static int layer_of(const char *name)
{
    for (const char *s = strchr(name, '.'); s; s = strchr(s + 1, '.')) {
        const char *digit = s + 1;
        int n = 0;
        while (*digit >= '0' && *digit <= '9' && n < INT_MAX / 10 - 1) n = 10 * n + (*digit++ - '0');
        if (digit > s + 1 && *digit == '.') return n;
    }
    return -1;
}

const struct zf_param *zf_param_find(const struct zf_params *p, const char *name)
{
    const int layer = layer_of(name);
    if (layer >= layer_count(p)) return NULL;
    const size_t *slots = layer < 0 ? p->global : p->layer[layer];
    for (int s = 0; s < ZF_SLOTS; s++)
        if (slots[s] && !strcmp(p->list[slots[s] - 1].name, name)) return &p->list[slots[s] - 1];
    return NULL;
}

static bool starts_with(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

static bool is_buffer(const struct zf_model_config *c, const char *name)
{
    static const char inv_freq[] = "rotary_emb.inv_freq";
    size_t n = strlen(name), tail = sizeof inv_freq - 1;
    if (c->rope.kind != ZF_ROPE_NONE && n >= tail && !strcmp(name + n - tail, inv_freq)) return n == tail || name[n - tail - 1] == '.';
    if (c->family != ZF_FAMILY_GPT2) return false;
    if (starts_with(name, "transformer.")) name += strlen("transformer.");
    if (!starts_with(name, "h.")) return false;
    size_t digits = strspn(name + 2, "0123456789");
    return digits && (!strcmp(name + 2 + digits, ".attn.bias") || !strcmp(name + 2 + digits, ".attn.masked_bias"));
}

const char *zf_family_canonical(const struct zf_model_config *c, const char *name, char *buffer, size_t size)
{
    const struct family *f = &families[c->family];
    if (is_buffer(c, name)) return NULL;
    for (size_t i = 0; i < sizeof f->starts / sizeof *f->starts && f->starts[i]; i++) {
        if (!starts_with(name, f->starts[i])) continue;
        int n = snprintf(buffer, size, "%s%s", f->prefix, name);
        return n >= 0 && (size_t)n < size ? buffer : name; /* what is too long is no name of ours in any spelling */
    }
    return name;
}
