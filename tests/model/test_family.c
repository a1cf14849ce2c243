/* Parameters of model families: tensors and their order against lists that transformers printed, sizes of published models, rotary tables against values of
 * transformers, and the golden model folders where they are at hand (ZF_SHARED). */
#include "tests/model/support.h"

#include "checkpoints/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void describe(char *out, size_t size, const struct zf_param *p)
{
    if (!p->matrix) snprintf(out, size, "%s [%zu]", p->name, p->cols);
    else snprintf(out, size, "%s [%zu][%zu]", p->name, p->transposed ? p->cols : p->rows, p->transposed ? p->rows : p->cols);
}

/* Names, shapes in the file, and the order of named_parameters(), as printed by transformers 5.24. */
static void test_lists(void **state)
{
    static const struct {
        const char *base, *patch;
        const char *list[32];
    } cases[] = {
    {/* llama with every bias */
        LLAMA, "{'hidden_size': 8, 'num_attention_heads': 2,"
        " 'num_key_value_heads': 1, 'head_dim': 6, 'num_hidden_layers': 1, 'vocab_size': 10,"
        " 'intermediate_size': 12, 'attention_bias': true, 'mlp_bias': true, 'tie_word_embeddings': false}",
        {"model.embed_tokens.weight [10][8]",
            "model.layers.0.self_attn.q_proj.weight [12][8]",
            "model.layers.0.self_attn.q_proj.bias [12]",
            "model.layers.0.self_attn.k_proj.weight [6][8]",
            "model.layers.0.self_attn.k_proj.bias [6]",
            "model.layers.0.self_attn.v_proj.weight [6][8]",
            "model.layers.0.self_attn.v_proj.bias [6]",
            "model.layers.0.self_attn.o_proj.weight [8][12]",
            "model.layers.0.self_attn.o_proj.bias [8]",
            "model.layers.0.mlp.gate_proj.weight [12][8]",
            "model.layers.0.mlp.gate_proj.bias [12]",
            "model.layers.0.mlp.up_proj.weight [12][8]",
            "model.layers.0.mlp.up_proj.bias [12]",
            "model.layers.0.mlp.down_proj.weight [8][12]",
            "model.layers.0.mlp.down_proj.bias [8]",
            "model.layers.0.input_layernorm.weight [8]",
            "model.layers.0.post_attention_layernorm.weight [8]",
            "model.norm.weight [8]",
            "lm_head.weight [10][8]"}},
    {/* qwen2 */
        QWEN2, "{'hidden_size': 8, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'num_hidden_layers': 1, 'vocab_size': 10,"
        " 'intermediate_size': 12, 'tie_word_embeddings': true}",
        {"model.embed_tokens.weight [10][8]",
            "model.layers.0.self_attn.q_proj.weight [8][8]",
            "model.layers.0.self_attn.q_proj.bias [8]",
            "model.layers.0.self_attn.k_proj.weight [4][8]",
            "model.layers.0.self_attn.k_proj.bias [4]",
            "model.layers.0.self_attn.v_proj.weight [4][8]",
            "model.layers.0.self_attn.v_proj.bias [4]",
            "model.layers.0.self_attn.o_proj.weight [8][8]",
            "model.layers.0.mlp.gate_proj.weight [12][8]",
            "model.layers.0.mlp.up_proj.weight [12][8]",
            "model.layers.0.mlp.down_proj.weight [8][12]",
            "model.layers.0.input_layernorm.weight [8]",
            "model.layers.0.post_attention_layernorm.weight [8]",
            "model.norm.weight [8]"}},
    {/* qwen3 with biases */
        QWEN3, "{'hidden_size': 8, 'num_attention_heads': 2,"
        " 'num_key_value_heads': 1, 'head_dim': 6, 'num_hidden_layers': 1, 'vocab_size': 10,"
        " 'intermediate_size': 12, 'attention_bias': true, 'tie_word_embeddings': false}",
        {"model.embed_tokens.weight [10][8]",
            "model.layers.0.self_attn.q_proj.weight [12][8]",
            "model.layers.0.self_attn.q_proj.bias [12]",
            "model.layers.0.self_attn.k_proj.weight [6][8]",
            "model.layers.0.self_attn.k_proj.bias [6]",
            "model.layers.0.self_attn.v_proj.weight [6][8]",
            "model.layers.0.self_attn.v_proj.bias [6]",
            "model.layers.0.self_attn.o_proj.weight [8][12]",
            "model.layers.0.self_attn.o_proj.bias [8]",
            "model.layers.0.self_attn.q_norm.weight [6]",
            "model.layers.0.self_attn.k_norm.weight [6]",
            "model.layers.0.mlp.gate_proj.weight [12][8]",
            "model.layers.0.mlp.up_proj.weight [12][8]",
            "model.layers.0.mlp.down_proj.weight [8][12]",
            "model.layers.0.input_layernorm.weight [8]",
            "model.layers.0.post_attention_layernorm.weight [8]",
            "model.norm.weight [8]",
            "lm_head.weight [10][8]"}},
    {/* opt, projected, without biases, untied */
        OPT, "{'hidden_size': 8, 'num_attention_heads': 2,"
        " 'num_hidden_layers': 1, 'vocab_size': 10, 'ffn_dim': 12, 'word_embed_proj_dim': 4,"
        " 'max_position_embeddings': 7, 'enable_bias': false, 'tie_word_embeddings': false}",
        {"model.decoder.embed_tokens.weight [10][4]",
            "model.decoder.embed_positions.weight [9][8]",
            "model.decoder.project_out.weight [4][8]",
            "model.decoder.project_in.weight [8][4]",
            "model.decoder.final_layer_norm.weight [8]",
            "model.decoder.final_layer_norm.bias [8]",
            "model.decoder.layers.0.self_attn.k_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.v_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.q_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.out_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn_layer_norm.weight [8]",
            "model.decoder.layers.0.self_attn_layer_norm.bias [8]",
            "model.decoder.layers.0.fc1.weight [12][8]",
            "model.decoder.layers.0.fc2.weight [8][12]",
            "model.decoder.layers.0.final_layer_norm.weight [8]",
            "model.decoder.layers.0.final_layer_norm.bias [8]",
            "lm_head.weight [10][4]"}},
    {/* opt without weights in its norms */
        OPT, "{'hidden_size': 8, 'num_attention_heads': 2,"
        " 'num_hidden_layers': 1, 'vocab_size': 10, 'ffn_dim': 12,"
        " 'max_position_embeddings': 7, 'layer_norm_elementwise_affine': false}",
        {"model.decoder.embed_tokens.weight [10][8]",
            "model.decoder.embed_positions.weight [9][8]",
            "model.decoder.layers.0.self_attn.k_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.k_proj.bias [8]",
            "model.decoder.layers.0.self_attn.v_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.v_proj.bias [8]",
            "model.decoder.layers.0.self_attn.q_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.q_proj.bias [8]",
            "model.decoder.layers.0.self_attn.out_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.out_proj.bias [8]",
            "model.decoder.layers.0.fc1.weight [12][8]",
            "model.decoder.layers.0.fc1.bias [12]",
            "model.decoder.layers.0.fc2.weight [8][12]",
            "model.decoder.layers.0.fc2.bias [8]"}},
    {/* opt, post-norm, projected */
        OPT, "{'hidden_size': 8, 'num_attention_heads': 2,"
        " 'num_hidden_layers': 1, 'vocab_size': 10, 'ffn_dim': 12, 'word_embed_proj_dim': 4,"
        " 'max_position_embeddings': 7, 'do_layer_norm_before': false}",
        {"model.decoder.embed_tokens.weight [10][4]",
            "model.decoder.embed_positions.weight [9][8]",
            "model.decoder.project_out.weight [4][8]",
            "model.decoder.project_in.weight [8][4]",
            "model.decoder.layers.0.self_attn.k_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.k_proj.bias [8]",
            "model.decoder.layers.0.self_attn.v_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.v_proj.bias [8]",
            "model.decoder.layers.0.self_attn.q_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.q_proj.bias [8]",
            "model.decoder.layers.0.self_attn.out_proj.weight [8][8]",
            "model.decoder.layers.0.self_attn.out_proj.bias [8]",
            "model.decoder.layers.0.self_attn_layer_norm.weight [8]",
            "model.decoder.layers.0.self_attn_layer_norm.bias [8]",
            "model.decoder.layers.0.fc1.weight [12][8]",
            "model.decoder.layers.0.fc1.bias [12]",
            "model.decoder.layers.0.fc2.weight [8][12]",
            "model.decoder.layers.0.fc2.bias [8]",
            "model.decoder.layers.0.final_layer_norm.weight [8]",
            "model.decoder.layers.0.final_layer_norm.bias [8]"}},
    {/* gpt2, untied */
        GPT2, "{'n_embd': 8, 'n_head': 2, 'n_layer': 1, 'vocab_size': 10, 'n_positions': 7, 'tie_word_embeddings': false}",
        {"transformer.wte.weight [10][8]",
            "transformer.wpe.weight [7][8]",
            "transformer.h.0.ln_1.weight [8]",
            "transformer.h.0.ln_1.bias [8]",
            "transformer.h.0.attn.c_attn.weight [8][24]",
            "transformer.h.0.attn.c_attn.bias [24]",
            "transformer.h.0.attn.c_proj.weight [8][8]",
            "transformer.h.0.attn.c_proj.bias [8]",
            "transformer.h.0.ln_2.weight [8]",
            "transformer.h.0.ln_2.bias [8]",
            "transformer.h.0.mlp.c_fc.weight [8][32]",
            "transformer.h.0.mlp.c_fc.bias [32]",
            "transformer.h.0.mlp.c_proj.weight [32][8]",
            "transformer.h.0.mlp.c_proj.bias [8]",
            "transformer.ln_f.weight [8]",
            "transformer.ln_f.bias [8]",
            "lm_head.weight [10][8]"}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config c = read_config(cases[i].base, cases[i].patch);
        struct zf_arena a = {0};
        struct zf_params p = build(&c, &a);
        size_t n = 0, end = 0, parameters = 0;
        for (; cases[i].list[n]; n++) {
            char text[128];
            assert_true(n < p.count);
            describe(text, sizeof text, &p.list[n]);
            assert_string_equal(text, cases[i].list[n]);
            assert_int_equal(p.list[n].offset % 16, 0);
            assert_true(p.list[n].offset >= end && p.list[n].offset < end + 16);
            end = p.list[n].offset + p.list[n].rows * p.list[n].cols;
            parameters += p.list[n].rows * p.list[n].cols;
            assert_ptr_equal(zf_param_find(&p, p.list[n].name), &p.list[n]);
            assert_ptr_equal(zf_param_at(&p, p.list[n].slot, p.list[n].layer), &p.list[n]);
            assert_false(p.list[n].frozen);
        }
        assert_int_equal(p.count, n);
        assert_int_equal(p.parameters, parameters);
        assert_true(p.elements >= end && p.elements < end + 16);
        assert_null(zf_param_at(&p, ZF_SLOT_EMBED, 0));
        assert_null(zf_param_at(&p, ZF_SLOT_Q_NORM, 1));
        assert_null(zf_param_find(&p, "model.layers.1.self_attn.q_proj.weight"));
        assert_null(zf_param_find(&p, "model.layers.99999999999999999999.self_attn.q_proj.weight"));
        assert_null(zf_param_find(&p, ""));
        assert_int_equal(zf_param_at(&p, ZF_SLOT_HEAD, -1) == NULL, c.tied);
        zf_arena_free(&a);
    }
}

static void test_layouts(void **state)
{
    (void)state;
    struct zf_arena a = {0};
    struct zf_model_config c = read_config(GPT2, "{'tie_word_embeddings': false}");
    struct zf_params p = build(&c, &a);
    const struct zf_param *q = zf_param_at(&p, ZF_SLOT_QKV_W, 1);
    assert_string_equal(q->name, "transformer.h.1.attn.c_attn.weight");
    assert_true(q->matrix && !q->transposed && q->rows == 32 && q->cols == 96);
    q = zf_param_at(&p, ZF_SLOT_HEAD, -1); /* no embedding: its channels are features */
    assert_true(q->matrix && q->transposed && q->rows == 32 && q->cols == 97);
    q = zf_param_at(&p, ZF_SLOT_EMBED, -1);
    assert_true(q->matrix && !q->transposed && q->rows == 97 && q->cols == 32);
    q = zf_param_at(&p, ZF_SLOT_QKV_B, 0);
    assert_true(!q->matrix && q->rows == 1 && q->cols == 96);
    c = read_config(LLAMA, "{}");
    p = build(&c, &a);
    q = zf_param_at(&p, ZF_SLOT_K_W, 0);
    assert_true(q->matrix && q->transposed && q->rows == 48 && q->cols == 24);
    zf_arena_free(&a);
}

static void test_sizes_of_published_models(void **state)
{
    static const struct {
        const char *name, *base;
        int hidden, ffn, layers, heads, kv, head_dim, vocab, context;
        const char *more;
        size_t parameters;
    } models[] = {
        {"opt-125m", OPT, 768, 3072, 12, 12, 0, 0, 50272, 2048, "{}", 125239296},
        {"opt-350m", OPT, 1024, 4096, 24, 16, 0, 0, 50272, 2048, "{'word_embed_proj_dim': 512, 'do_layer_norm_before': false}", 331196416},
        {"opt-1.3b", OPT, 2048, 8192, 24, 32, 0, 0, 50272, 2048, "{}", 1315758080},
        {"opt-2.7b", OPT, 2560, 10240, 32, 32, 0, 0, 50272, 2048, "{}", 2651596800},
        {"opt-6.7b", OPT, 4096, 16384, 32, 32, 0, 0, 50272, 2048, "{}", 6658473984},
        {"gpt2", GPT2, 768, 3072, 12, 12, 0, 0, 50257, 1024, "{}", 124439808},
        {"gpt2-medium", GPT2, 1024, 4096, 24, 16, 0, 0, 50257, 1024, "{}", 354823168},
        {"gpt2-large", GPT2, 1280, 5120, 36, 20, 0, 0, 50257, 1024, "{}", 774030080},
        {"gpt2-xl", GPT2, 1600, 6400, 48, 25, 0, 0, 50257, 1024, "{}", 1557611200},
        {"llama-2-7b", LLAMA, 4096, 11008, 32, 32, 32, 0, 32000, 4096, "{}", 6738415616},
        {"TinyLlama-1.1B", LLAMA, 2048, 5632, 22, 32, 4, 0, 32000, 2048, "{}", 1100048384},
        {"llama-3.2-1b", LLAMA, 2048, 8192, 16, 32, 8, 64, 128256, 131072, "{'tie_word_embeddings': true}", 1235814400},
        {"llama-3.2-3b", LLAMA, 3072, 8192, 28, 24, 8, 128, 128256, 131072, "{'tie_word_embeddings': true}", 3212749824},
        {"llama-3.1-8b", LLAMA, 4096, 14336, 32, 32, 8, 0, 128256, 131072, "{}", 8030261248},
        {"qwen2.5-0.5b", QWEN2, 896, 4864, 24, 14, 2, 0, 151936, 32768, "{}", 494032768},
        {"qwen2.5-1.5b", QWEN2, 1536, 8960, 28, 12, 2, 0, 151936, 32768, "{}", 1543714304},
        {"qwen2.5-3b", QWEN2, 2048, 11008, 36, 16, 2, 0, 151936, 32768, "{}", 3085938688},
        {"qwen2.5-7b", QWEN2, 3584, 18944, 28, 28, 4, 0, 152064, 32768, "{'tie_word_embeddings': false}", 7615616512},
        {"qwen3-0.6b", QWEN3, 1024, 3072, 28, 16, 8, 128, 151936, 40960, "{'tie_word_embeddings': true}", 596049920},
        {"qwen3-1.7b", QWEN3, 2048, 6144, 28, 16, 8, 128, 151936, 40960, "{'tie_word_embeddings': true}", 1720574976},
        {"qwen3-4b", QWEN3, 2560, 9728, 36, 32, 8, 128, 151936, 40960, "{'tie_word_embeddings': true}", 4022468096},
        {"qwen3-8b", QWEN3, 4096, 12288, 36, 32, 8, 128, 151936, 40960, "{}", 8190735360},
        {"smollm2-135m", LLAMA, 576, 1536, 30, 9, 3, 0, 49152, 8192, "{'tie_word_embeddings': true}", 134515008},
        {"smollm2-360m", LLAMA, 960, 2560, 32, 15, 5, 0, 49152, 8192, "{'tie_word_embeddings': true}", 361821120},
        {"smollm2-1.7b", LLAMA, 2048, 8192, 24, 32, 32, 0, 49152, 8192, "{'tie_word_embeddings': true}", 1711376384},
    };
    (void)state;
    assert_int_equal(COUNT(models), 25);
    for (size_t i = 0; i < COUNT(models); i++) {
        const bool gpt2 = models[i].base == GPT2;
        struct zf_model_config c;
        struct zf_err e;
        struct zf_arena a = {0};
        json_t *config = patched(models[i].base, models[i].more);
        const struct {
            const char *key;
            int value;
        } set[] = {
            {gpt2 ? "n_embd" : "hidden_size", models[i].hidden}, {gpt2 ? "n_layer" : "num_hidden_layers", models[i].layers},
            {gpt2 ? "n_inner" : models[i].base == OPT ? "ffn_dim" : "intermediate_size", models[i].ffn},
            {gpt2 ? "n_head" : "num_attention_heads", models[i].heads}, {"num_key_value_heads", models[i].kv},
            {"head_dim", models[i].head_dim}, {"vocab_size", models[i].vocab},
            {gpt2 ? "n_positions" : "max_position_embeddings", models[i].context},
        };
        for (size_t k = 0; k < COUNT(set); k++)
            if (set[k].value) assert_int_equal(json_object_set_new(config, set[k].key, json_integer(set[k].value)), 0);
        if (zf_model_config_read(&c, config, models[i].name, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
        struct zf_params p = build(&c, &a);
        if (p.parameters != models[i].parameters) fail_msg("%s: %zu parameters", models[i].name, p.parameters);
        json_decref(config);
        zf_arena_free(&a);
    }
}

static void test_too_large(void **state)
{
    (void)state;
    const struct zf_model_config good = read_config(LLAMA, "{}");
#define AT(field) offsetof(struct zf_model_config, field)
    const struct {
        size_t field, value;
    } cases[] = {
        {AT(vocab), SIZE_MAX / 16}, {AT(vocab), SIZE_MAX / 2}, {AT(ffn), (size_t)1 << 58}, {AT(heads), SIZE_MAX},
        {AT(layers), SIZE_MAX}, {AT(layers), (size_t)1 << 62}, {AT(hidden), (size_t)1 << 56},
    };
#undef AT
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config c = good;
        struct zf_params p;
        struct zf_err e;
        struct zf_arena a = {0};
        *(size_t *)((char *)&c + cases[i].field) = cases[i].value;
        assert_int_equal(zf_params_build(&p, &c, &a, &e), ZF_FORMAT);
        assert_non_null(strstr(e.message, "address space"));
        zf_arena_free(&a);
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *base, *name, *canonical;
    } cases[] = {
        {GPT2, "wte.weight", "transformer.wte.weight"},
        {GPT2, "wpe.weight", "transformer.wpe.weight"},
        {GPT2, "h.11.attn.c_attn.bias", "transformer.h.11.attn.c_attn.bias"},
        {GPT2, "ln_f.bias", "transformer.ln_f.bias"},
        {GPT2, "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.weight"},
        {GPT2, "lm_head.weight", "lm_head.weight"},
        {GPT2, "score.weight", "score.weight"},
        {GPT2, "h.0.attn.bias", NULL},
        {GPT2, "h.10.attn.masked_bias", NULL},
        {GPT2, "transformer.h.3.attn.bias", NULL},
        {GPT2, "h..attn.bias", "transformer.h..attn.bias"},
        {OPT, "decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
        {OPT, "model.decoder.layers.1.fc1.bias", "model.decoder.layers.1.fc1.bias"},
        {OPT, "lm_head.weight", "lm_head.weight"},
        {LLAMA, "model.layers.0.self_attn.rotary_emb.inv_freq", NULL},
        {LLAMA, "model.rotary_emb.inv_freq", NULL},
        {LLAMA, "rotary_emb.inv_freq", NULL},
        {LLAMA, "my_rotary_emb.inv_freq", "my_rotary_emb.inv_freq"},
        {LLAMA, "model.norm.weight", "model.norm.weight"},
        {LLAMA, "h.0.attn.bias", "h.0.attn.bias"},
        {QWEN3, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config c = read_config(cases[i].base, "{}");
        char buffer[64];
        const char *got = zf_family_canonical(&c, cases[i].name, buffer, sizeof buffer);
        if (!cases[i].canonical) assert_null(got);
        else assert_string_equal(got, cases[i].canonical);
    }
    struct zf_model_config c = read_config(GPT2, "{}");
    char small[8];
    assert_string_equal(zf_family_canonical(&c, "wte.weight", small, sizeof small), "wte.weight");
    assert_string_equal(zf_family_name(ZF_FAMILY_QWEN3), "qwen3");
}

/* cos, sin of one position, as transformers 5.24 computes them. A frequency that is one unit in the last place off shows
 * at position 33333. */
static void test_rope(void **state)
{
    static const struct {
        struct zf_rope rope;
        size_t head_dim, position;
        float values[32];
    } cases[] = {
        {{ZF_ROPE_DEFAULT, 1e4}, 16, 1000, {
            0.562379062f, 0.826879561f, -0.477397919f, 0.878687203f, 0.862318873f, -0.506365657f, 0.978682399f, 0.205379441f,
            -0.839071512f, -0.54402113f, -0.999786079f, -0.0206838083f, 0.540302336f, 0.841470957f, 0.950415254f, 0.310983628f}},
        {{ZF_ROPE_DEFAULT, 1e6}, 12, 33333, {
            0.763587475f, 0.645704389f, -0.997551024f, -0.0699420795f, 0.948877871f, 0.315643519f, -0.339398444f, 0.940642715f,
            -0.981680572f, -0.190534189f, 0.944957972f, 0.327191681f}},
        {{ZF_ROPE_LINEAR, 1e4, 4}, 16, 1000, {
            0.240988299f, -0.970528007f, -0.869245708f, -0.494380355f, 0.991202831f, -0.132351756f, -0.0516898036f, 0.998663187f,
            -0.801143587f, 0.598472118f, 0.703440666f, 0.710753977f, 0.968912423f, 0.247403964f, 0.996876597f, 0.0789746195f}},
        {{ZF_ROPE_LLAMA3, 5e5, 8, 1, 4, 64}, 32, 250, {
            0.240988299f, -0.970528007f, -0.990777552f, -0.135498583f, 0.539293945f, 0.842117608f, -0.89023602f, 0.4554995f, 0.385369211f,
            0.922762454f, 0.869051874f, 0.494720995f, 0.974143982f, 0.225928217f, 0.994968414f, 0.100189313f, 0.999023616f, 0.044179786f,
            0.999810636f, 0.0194604099f, 0.999963284f, 0.00857015047f, 0.999992907f, 0.0037740455f, 0.999998629f, 0.00166196655f,
            0.999999762f, 0.000731874898f, 0.99999994f, 0.000322293286f, 1.0f, 0.000141927201f}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t width = cases[i].head_dim / 2 * 2, positions = cases[i].position + 1;
        float *table = calloc(positions * width, sizeof *table);
        assert_non_null(table);
        zf_rope_table(table, &cases[i].rope, positions, cases[i].head_dim);
        for (size_t d = 0; d < width; d++) {
            double got = (double)table[cases[i].position * width + d], want = (double)cases[i].values[d];
            if (!(fabs(got - want) <= 2e-7)) fail_msg("case %zu, %zu: %.9g, not %.9g", i, d, got, want);
            assert_true(table[d] == (d % 2 ? 0.0f : 1.0f)); /* position 0 */
        }
        free(table);
    }
}

/* The real files. */

static void check_folder(const char *folder)
{
    char path[1024], buffer[256], text[256];
    struct zf_err e;
    struct zf_model_config c;
    struct zf_safetensors file;
    struct zf_arena a = {0};
    json_t *config;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (zf_json_file(&config, path, 1 << 20, &e) != ZF_OK || zf_model_config_read(&c, config, path, &e) != ZF_OK)
        fail_msg("%s: %s", e.where, e.message);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (zf_st_open(&file, path, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    struct zf_params p = build(&c, &a);
    size_t known = 0;
    for (size_t i = 0; i < file.count; i++) {
        const struct zf_st_tensor *t = &file.list[i];
        const char *name = zf_family_canonical(&c, t->name, buffer, sizeof buffer);
        const struct zf_param *q = name ? zf_param_find(&p, name) : NULL;
        if (!name || (!q && c.tied && !strcmp(name, "lm_head.weight"))) continue;
        if (!q) fail_msg("%s: %s is no parameter", path, t->name);
        describe(text, sizeof text, q);
        char want[256];
        if (t->rank == 1) snprintf(want, sizeof want, "%s [%zu]", name, t->shape[0]);
        else snprintf(want, sizeof want, "%s [%zu][%zu]", name, t->shape[0], t->shape[1]);
        assert_string_equal(text, want);
        known++;
    }
    if (known != p.count) fail_msg("%s: %zu of %zu parameters", path, known, p.count);
    zf_st_close(&file);
    zf_arena_free(&a);
    json_decref(config);
}

static void test_golden_folders(void **state)
{
    static const char *const names[] = {"families/gpt2", "families/opt-pre-norm", "families/opt-350m-like", "families/llama2",
        "families/smollm2-like", "families/llama31-rope", "families/qwen2", "families/qwen3"};
    static const char *const kinds[] = {"plain", "masked", "packed"};
    const char *shared = getenv("ZF_SHARED");
    char path[768];
    (void)state;
    snprintf(path, sizeof path, "%s/golden/families/index.json", shared ? shared : ".");
    if (!shared || !zf_file_exists(path)) {
        print_message("skipped: the golden model folders are not here (ZF_SHARED)\n");
        skip();
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t k = 0; k < COUNT(kinds); k++) {
            snprintf(path, sizeof path, "%s/golden/%s-%s", shared, names[i], kinds[k]);
            check_folder(path);
        }
    }
    static const char *const models[] = {"stories260K-hf", "capp-gpt2"};
    for (size_t i = 0; i < COUNT(models); i++) {
        snprintf(path, sizeof path, "%s/data/models/%s", shared, models[i]);
        check_folder(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_sizes_of_published_models),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_golden_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
