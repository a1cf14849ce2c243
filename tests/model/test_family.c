/* Model families: config.json in every spelling, what is refused, tensors and their order against lists that transformers printed, sizes of
 * published models, rotary tables against values of transformers, and the golden model folders where they are at hand (ZF_SHARED). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "checkpoints/safetensors.h"
#include "core/model/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof table / sizeof *table)

/* JSON in tests is written with ' for ". */
static const char GPT2[] =
    "{'model_type': 'gpt2', 'vocab_size': 97, 'n_positions': 64, 'n_embd': 32, 'n_layer': 2, 'n_head': 4, 'n_inner': null,"
    " 'bos_token_id': 0, 'eos_token_id': 0, 'activation_function': 'gelu_new', 'resid_pdrop': 0.1, 'layer_norm_epsilon': 1e-5}";
static const char OPT[] =
    "{'model_type': 'opt', 'vocab_size': 96, 'hidden_size': 32, 'num_hidden_layers': 2, 'ffn_dim': 80, 'max_position_embeddings': 64,"
    " 'num_attention_heads': 4, 'activation_function': 'relu', 'dropout': 0.1}";
static const char LLAMA[] =
    "{'model_type': 'llama', 'vocab_size': 99, 'hidden_size': 48, 'intermediate_size': 112, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 128, 'rms_norm_eps': 1e-5, 'hidden_act': 'silu',"
    " 'rope_theta': 10000.0, 'rope_scaling': null, 'torch_dtype': 'bfloat16'}";
static const char QWEN2[] =
    "{'model_type': 'qwen2', 'vocab_size': 101, 'hidden_size': 48, 'intermediate_size': 96, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 128, 'rope_theta': 1000000.0,"
    " 'tie_word_embeddings': true, 'use_sliding_window': false, 'sliding_window': 131072, 'max_window_layers': 28}";
static const char QWEN3[] =
    "{'model_type': 'qwen3', 'vocab_size': 101, 'hidden_size': 40, 'intermediate_size': 96, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'max_position_embeddings': 128, 'rope_theta': 1000000}";

static json_t *parse(const char *text)
{
    char buffer[4096];
    size_t n = strlen(text);
    struct zf_err e;
    json_t *json;
    assert_true(n < sizeof buffer);
    for (size_t i = 0; i <= n; i++) buffer[i] = text[i] == '\'' ? '"' : text[i];
    if (zf_json_parse(&json, buffer, n, "test", &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    return json;
}

/* base with the keys of patch; the value 'ABSENT' removes a key. */
static json_t *patched(const char *base, const char *patch)
{
    json_t *config = parse(base), *change = parse(patch), *value;
    const char *key;
    void *next;
    assert_int_equal(json_object_update(config, change), 0);
    json_object_foreach_safe(config, next, key, value)
        if (json_is_string(value) && !strcmp(json_string_value(value), "ABSENT")) json_object_del(config, key);
    json_decref(change);
    return config;
}

static struct zf_model_config read_config(const char *base, const char *patch)
{
    struct zf_model_config c;
    struct zf_err e;
    json_t *config = patched(base, patch);
    if (zf_model_config_read(&c, config, "config.json", &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    json_decref(config);
    return c;
}

static struct zf_params build(const struct zf_model_config *c, struct zf_arena *a)
{
    struct zf_params p;
    struct zf_err e;
    if (zf_params_build(&p, c, a, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    return p;
}

static void assert_same_config(const struct zf_model_config *a, const struct zf_model_config *b)
{
#define SAME(field) if (a->field != b->field) fail_msg("%s differs: %g, %g", #field, (double)a->field, (double)b->field)
    SAME(family);
    SAME(layers);
    SAME(hidden);
    SAME(heads);
    SAME(kv_heads);
    SAME(head_dim);
    SAME(ffn);
    SAME(vocab);
    SAME(context);
    SAME(embed_dim);
    SAME(position_rows);
    SAME(position_offset);
    SAME(padding_id);
    SAME(norm);
    SAME(norm_eps);
    SAME(norm_affine);
    SAME(norm_bias);
    SAME(pre_norm);
    SAME(final_norm);
    SAME(qkv_bias);
    SAME(o_bias);
    SAME(mlp_bias);
    SAME(qk_norm);
    SAME(fused_qkv);
    SAME(activation);
    SAME(rope.kind);
    SAME(rope.theta);
    SAME(rope.factor);
    SAME(rope.low_freq_factor);
    SAME(rope.high_freq_factor);
    SAME(rope.original_context);
    SAME(tied);
    SAME(init_std);
    SAME(init_scaled_output);
    SAME(bos_id);
    SAME(eos_count);
    for (size_t i = 0; i < a->eos_count; i++) SAME(eos_ids[i]);
#undef SAME
}

/* Configurations. */

static void test_flags(void **state)
{
    (void)state;
    struct zf_model_config c = read_config(GPT2, "{}");
    assert_int_equal(c.family, ZF_FAMILY_GPT2);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.hidden, 32);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.ffn, 128);
    assert_int_equal(c.vocab, 97);
    assert_int_equal(c.context, 64);
    assert_int_equal(c.embed_dim, 32);
    assert_int_equal(c.position_rows, 64);
    assert_int_equal(c.position_offset, 0);
    assert_int_equal(c.padding_id, -1);
    assert_int_equal(c.norm, ZF_LAYERNORM);
    assert_true(c.norm_eps == 1e-5f && c.norm_affine && c.norm_bias && c.pre_norm && c.final_norm);
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias && c.fused_qkv && c.tied && c.init_scaled_output && !c.qk_norm);
    assert_int_equal(c.activation, ZF_GELU_TANH);
    assert_int_equal(c.rope.kind, ZF_ROPE_NONE);
    assert_int_equal(c.file_dtype, ZF_F32);

    c = read_config(OPT, "{'torch_dtype': 'float16'}");
    assert_int_equal(c.position_rows, 66);
    assert_int_equal(c.position_offset, 2);
    assert_int_equal(c.padding_id, 1);
    assert_int_equal(c.bos_id, 2);
    assert_int_equal(c.file_dtype, ZF_F16);
    assert_int_equal(c.activation, ZF_RELU);
    assert_true(c.norm_eps == 1e-5f && c.pre_norm && c.final_norm && c.qkv_bias && c.o_bias && c.mlp_bias);
    assert_true(c.tied && !c.init_scaled_output);
    c = read_config(OPT, "{'do_layer_norm_before': false, 'word_embed_proj_dim': 16, 'enable_bias': false}");
    assert_true(!c.pre_norm && !c.final_norm && !c.qkv_bias && !c.o_bias && !c.mlp_bias);
    assert_int_equal(c.embed_dim, 16);
    c = read_config(OPT, "{'_remove_final_layer_norm': true}");
    assert_true(c.pre_norm && !c.final_norm);

    c = read_config(LLAMA, "{}");
    assert_int_equal(c.norm, ZF_RMSNORM);
    assert_int_equal(c.activation, ZF_SWIGLU);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 12);
    assert_int_equal(c.position_rows, 0);
    assert_int_equal(c.padding_id, -1);
    assert_int_equal(c.rope.kind, ZF_ROPE_DEFAULT);
    assert_int_equal(c.file_dtype, ZF_BF16);
    assert_true(c.rope.theta == 1e4 && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.norm_bias && !c.tied && c.norm_eps == 1e-5f);
    c = read_config(LLAMA, "{'attention_bias': true, 'mlp_bias': true, 'rms_norm_eps': 'ABSENT'}");
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias && c.norm_eps == 1e-6f);

    c = read_config(QWEN2, "{}");
    assert_true(c.qkv_bias && !c.o_bias && c.tied && !c.qk_norm);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.eos_count, 0);
    c = read_config(QWEN3, "{}");
    assert_true(!c.qkv_bias && !c.o_bias && !c.tied && c.qk_norm && c.rope.theta == 1e6);
    assert_int_equal(c.head_dim, 16);
    c = read_config(QWEN3, "{'head_dim': 'ABSENT'}");
    assert_int_equal(c.head_dim, 128);
}

static void test_ids(void **state)
{
    (void)state;
    struct zf_model_config c = read_config(LLAMA, "{'eos_token_id': [3, 98, 7], 'bos_token_id': 1, 'pad_token_id': 5}");
    assert_int_equal(c.eos_count, 3);
    assert_int_equal(c.eos_ids[1], 98);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.padding_id, 5); /* transformers gives it to the embedding of llama, too */
    c = read_config(LLAMA, "{'eos_token_id': null, 'bos_token_id': null, 'pad_token_id': -1}");
    assert_int_equal(c.eos_count, 0);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.padding_id, 98);
    c = read_config(LLAMA, "{}");
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.eos_ids[0], 2);
    c = read_config(OPT, "{'pad_token_id': null}");
    assert_int_equal(c.padding_id, -1);
    /* Ids beside the vocabulary, as a real file of 53 tokens has: nobody can mean them. */
    c = read_config(GPT2, "{'vocab_size': 53, 'bos_token_id': 50256, 'eos_token_id': [51, 50256], 'pad_token_id': 50257}");
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.eos_count, 1);
    assert_int_equal(c.eos_ids[0], 51);
    assert_int_equal(c.padding_id, -1);
}

/* Spellings that mean the same model. */
static void test_spellings(void **state)
{
    static const struct {
        const char *base, *one, *other;
    } cases[] = {
        {LLAMA, "{}",
            "{'rope_theta': 'ABSENT', 'rope_scaling': 'ABSENT', 'rope_parameters': {'rope_theta': 10000, 'rope_type': 'default'}}"},
        {LLAMA, "{}", "{'rope_theta': 10000, 'rope_parameters': {'rope_theta': 10000.0}}"},
        {LLAMA, "{}", "{'torch_dtype': 'ABSENT', 'dtype': 'bfloat16'}"},
        {LLAMA, "{}", "{'hidden_act': 'swish'}"},
        {LLAMA, "{}", "{'hidden_act': 'ABSENT'}"},
        {LLAMA, "{}",
            "{'head_dim': null, 'attention_dropout': 0.5, 'pretraining_tp': 2, 'layer_types': ['full_attention', 'full_attention']}"},
        {LLAMA, "{}", "{'model_type': 'ABSENT', 'architectures': ['LlamaForCausalLM']}"},
        {LLAMA, "{'num_key_value_heads': 4}", "{'num_key_value_heads': null}"},
        {LLAMA, "{'num_key_value_heads': 4}", "{'num_key_value_heads': 'ABSENT'}"},
        {LLAMA, "{'rope_scaling': {'type': 'linear', 'factor': 4}}",
            "{'rope_theta': 'ABSENT', 'rope_scaling': null, 'rope_parameters': {'rope_theta': 1e4, 'rope_type': 'linear', 'factor': 4.0}}"},
        {LLAMA, "{'rope_scaling': {'type': 'linear', 'rope_type': 'linear', 'factor': 4}}",
            "{'rope_scaling': {'rope_type': 'linear', 'factor': 4}}"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
                " 'original_max_position_embeddings': 64}}",
            "{'rope_theta': 'ABSENT', 'rope_scaling': 'ABSENT', 'rope_parameters': {'rope_theta': 1e4, 'rope_type': 'llama3', 'factor': 8,"
            " 'low_freq_factor': 1, 'high_freq_factor': 4, 'original_max_position_embeddings': 64, 'partial_rotary_factor': 1.0}}"},
        {QWEN2, "{}",
            "{'model_type': 'ABSENT', 'architectures': ['Qwen2ForCausalLM'], 'use_sliding_window': 'ABSENT', 'use_mrope': false}"},
        {QWEN3, "{}", "{'model_type': 'ABSENT', 'architectures': ['Qwen3ForCausalLM'], 'attention_bias': false, 'sliding_window': null}"},
        {GPT2, "{}", "{'n_embd': 'ABSENT', 'hidden_size': 32, 'n_layer': 'ABSENT', 'num_hidden_layers': 2, 'n_head': 'ABSENT',"
                     " 'num_attention_heads': 4, 'n_positions': 'ABSENT', 'max_position_embeddings': 64}"},
        {GPT2, "{}",
            "{'hidden_size': 32, 'n_ctx': 64, 'n_inner': 128, 'activation_function': 'gelu_pytorch_tanh', 'add_cross_attention': false,"
                     " 'scale_attn_weights': true, 'reorder_and_upcast_attn': false, 'scale_attn_by_inverse_layer_idx': false}"},
        {GPT2, "{}",
            "{'model_type': null, 'architectures': ['GPT2LMHeadModel'], 'activation_function': 'ABSENT', 'tie_word_embeddings': true}"},
        {OPT, "{}", "{'hidden_size': 'ABSENT', 'd_model': 32, 'word_embed_proj_dim': 32, 'enable_bias': true, 'layerdrop': 0.1}"},
        {OPT, "{}", "{'model_type': 'ABSENT', 'architectures': ['OPTForCausalLM'], 'pad_token_id': 1, 'eos_token_id': 2}"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config a = read_config(cases[i].base, cases[i].one), b = read_config(cases[i].base, cases[i].other);
        assert_same_config(&a, &b);
        assert_int_equal(a.file_dtype, b.file_dtype);
    }
}

/* Each names the key, what was found and what was expected. */
static void test_refusals(void **state)
{
    static const struct {
        const char *base, *patch, *key, *word;
    } cases[] = {
        {LLAMA, "{'model_type': 'mistral'}", "model_type", "\"mistral\"; expected one of gpt2, opt, llama, qwen2, qwen3"},
        {LLAMA, "{'model_type': 7}", "model_type", "found 7"},
        {LLAMA, "{'model_type': 'ABSENT'}", "model_type", "missing; expected one of gpt2"},
        {LLAMA, "{'model_type': 'ABSENT', 'architectures': ['MambaForCausalLM']}", "architectures", "MambaForCausalLM"},
        {LLAMA, "{'model_type': 'ABSENT', 'architectures': 5}", "model_type", "missing"},
        {LLAMA, "{'rope_theta': 'ABSENT'}", "rope_theta", "missing"},
        {LLAMA, "{'rope_theta': null, 'rope_parameters': {'rope_type': 'default'}}", "rope_theta", "no default"},
        {LLAMA, "{'rope_theta': -1}", "rope_theta", "found -1"},
        {LLAMA, "{'rope_theta': 0}", "rope_theta", "found 0"},
        {LLAMA, "{'rope_theta': '10000'}", "rope_theta", "found \"10000\"; expected a number"},
        {LLAMA, "{'rope_theta': 500000, 'rope_parameters': {'rope_theta': 10000}}", "rope_parameters.rope_theta", "what rope_theta says"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'yarn', 'factor': 4}}", "rope_scaling.rope_type", "\"yarn\""},
        {LLAMA, "{'rope_scaling': {'type': 'dynamic', 'factor': 4}}", "rope_scaling.type", "\"dynamic\""},
        {LLAMA, "{'rope_scaling': {'rope_type': 'longrope'}}", "rope_scaling.rope_type", "\"longrope\""},
        {LLAMA, "{'rope_parameters': {'rope_type': 'proportional'}}", "rope_parameters.rope_type", "\"proportional\""},
        {LLAMA, "{'rope_scaling': {'rope_type': 'linear\\u0000', 'factor': 4}}", "rope_scaling.rope_type", "linear\\u0000"},
        {LLAMA, "{'rope_scaling': {'factor': 4}}", "rope_type", "missing"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'linear'}}", "factor", "missing"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'linear', 'factor': 0}}", "rope_scaling.factor", "found 0"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'linear', 'factor': 4, 'type': 'dynamic'}}", "rope_scaling.type", "dynamic"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': 4}}",
            "original_max_position_embeddings", "missing"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4, 'high_freq_factor': 4,"
                " 'original_max_position_embeddings': 64}}", "rope_scaling.high_freq_factor", "above low_freq_factor"},
        {LLAMA, "{'rope_scaling': 3}", "rope_scaling", "found 3; expected an object"},
        {LLAMA, "{'rope_parameters': {'full_attention': {'rope_theta': 1e4}}}", "rope_parameters", "by kind of layer"},
        {LLAMA, "{'partial_rotary_factor': 0.5}", "partial_rotary_factor", "found 0.5"},
        {LLAMA, "{'rope_parameters': {'rope_theta': 1e4, 'partial_rotary_factor': 0.25}}", "rope_parameters.partial_rotary_factor", "0.25"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'default', 'mrope_section': [16, 24, 24]}}", "rope_scaling.mrope_section", "found a list"},
        {QWEN2, "{'use_sliding_window': true}", "use_sliding_window", "sliding-window"},
        {QWEN2, "{'layer_types': ['full_attention', 'sliding_attention']}", "layer_types", "\"sliding_attention\""},
        {QWEN3, "{'layer_types': 'full_attention'}", "layer_types", "a list"},
        {QWEN2, "{'use_mrope': true}", "use_mrope", "multimodal"},
        {LLAMA, "{'quantization_config': {'quant_method': 'gptq'}}", "quantization_config", "quantized"},
        {LLAMA, "{'attn_logit_softcapping': 50.0}", "attn_logit_softcapping", "found 50"},
        {LLAMA, "{'final_logit_softcapping': 30.0}", "final_logit_softcapping", "soft-capped"},
        {LLAMA, "{'query_pre_attn_scalar': 256}", "query_pre_attn_scalar", "scale"},
        {LLAMA, "{'attention_multiplier': 0.0078125}", "attention_multiplier", "scale"},
        {LLAMA, "{'embedding_multiplier': 12.0}", "embedding_multiplier", "12"},
        {LLAMA, "{'logits_scaling': 8}", "logits_scaling", "8"},
        {LLAMA, "{'is_causal': false}", "is_causal", "later tokens"},
        {LLAMA, "{'use_qk_norm': true}", "use_qk_norm", "normed"},
        {GPT2, "{'scale_attn_by_inverse_layer_idx': true}", "scale_attn_by_inverse_layer_idx", "found true"},
        {GPT2, "{'reorder_and_upcast_attn': true}", "reorder_and_upcast_attn", "found true"},
        {GPT2, "{'scale_attn_weights': false}", "scale_attn_weights", "found false"},
        {GPT2, "{'add_cross_attention': true}", "add_cross_attention", "cross-attention"},
        {GPT2, "{'activation_function': 'gelu'}", "activation_function",
            "found \"gelu\"; expected one of \"gelu_new\" \"gelu_pytorch_tanh\" \"relu\""},
        {OPT, "{'activation_function': 'gelu'}", "activation_function", "found \"gelu\"; expected one of \"relu\""},
        {LLAMA, "{'hidden_act': 'gelu_pytorch_tanh'}", "hidden_act", "expected one of \"silu\" \"swish\""},
        {LLAMA, "{'torch_dtype': 'float8_e4m3fn'}", "torch_dtype", "float8_e4m3fn"},
        {LLAMA, "{'dtype': 'float16'}", "dtype", "what torch_dtype says: \"bfloat16\""},
        {LLAMA, "{'hidden_size': 'ABSENT'}", "hidden_size", "missing"},
        {LLAMA, "{'hidden_size': null}", "hidden_size", "found null"},
        {LLAMA, "{'hidden_size': 0}", "hidden_size", "found 0; expected a whole number from 1 to 1048576"},
        {LLAMA, "{'hidden_size': -48}", "hidden_size", "found -48"},
        {LLAMA, "{'hidden_size': 48.0}", "hidden_size", "found 48.0"},
        {LLAMA, "{'hidden_size': '48'}", "hidden_size", "found \"48\""},
        {LLAMA, "{'hidden_size': 9223372036854775807}", "hidden_size", "found 9223372036854775807"},
        {LLAMA, "{'hidden_size': {'a': 1}}", "hidden_size", "found an object"},
        {LLAMA, "{'vocab_size': 4294967296}", "vocab_size", "found 4294967296"},
        {LLAMA, "{'num_hidden_layers': 1000000}", "num_hidden_layers", "found 1000000"},
        {LLAMA, "{'max_position_embeddings': 'ABSENT'}", "max_position_embeddings", "missing"},
        {LLAMA, "{'intermediate_size': true}", "intermediate_size", "found true"},
        {LLAMA, "{'hidden_size': 50}", "hidden_size", "found 50; expected a multiple of the number of heads, which is 4"},
        {LLAMA, "{'num_key_value_heads': 3}", "num_key_value_heads", "found 3; expected a divisor"},
        {LLAMA, "{'num_key_value_heads': 8}", "num_key_value_heads", "found 8"},
        {LLAMA, "{'num_attention_heads': 16, 'num_key_value_heads': 16}", "head_dim", "found 3"},
        {LLAMA, "{'head_dim': 258}", "head_dim", "from 1 to 256"},
        {LLAMA, "{'hidden_size': 2048}", "head_dim", "found 512"},
        {LLAMA, "{'head_dim': 7}", "head_dim", "multiple of 2"},
        {LLAMA, "{'rms_norm_eps': '1e-5'}", "rms_norm_eps", "found \"1e-5\""},
        {LLAMA, "{'rms_norm_eps': -1e-5}", "rms_norm_eps", "a number from 0 to 1"},
        {LLAMA, "{'tie_word_embeddings': 'yes'}", "tie_word_embeddings", "true or false"},
        {LLAMA, "{'eos_token_id': [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "eos_token_id", "at most 16"},
        {LLAMA, "{'eos_token_id': 'x'}", "eos_token_id", "a token id"},
        {LLAMA, "{'eos_token_id': [1, null]}", "eos_token_id", "found null"},
        {LLAMA, "{'bos_token_id': 1.5}", "bos_token_id", "found 1.5"},
        {LLAMA, "{'pad_token_id': 99}", "pad_token_id", "which has 99 (vocab_size)"},
        {LLAMA, "{'pad_token_id': -100}", "pad_token_id", "found -100"},
        {GPT2, "{'hidden_size': 64}", "hidden_size", "what n_embd says: 32"},
        {GPT2, "{'n_embd': 33}", "n_embd", "found 33"},
        {GPT2, "{'n_inner': 0}", "n_inner", "found 0"},
        {OPT, "{'ffn_dim': 'ABSENT'}", "ffn_dim", "missing"},
        {OPT, "{'d_model': 64}", "d_model", "what hidden_size says"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config c;
        struct zf_err e = {0};
        char where[256];
        json_t *config = patched(cases[i].base, cases[i].patch);
        snprintf(where, sizeof where, "some/config.json: %s", cases[i].key);
        if (zf_model_config_read(&c, config, "some/config.json", &e) != ZF_FORMAT) fail_msg("accepted: %s", cases[i].patch);
        if (strcmp(e.where, where) || !strstr(e.message, cases[i].word))
            fail_msg("%s: wrong place or message: %s: %s", cases[i].patch, e.where, e.message);
        json_decref(config);
    }
    struct zf_model_config c;
    struct zf_err e;
    json_t *list = parse("[1]");
    assert_int_equal(zf_model_config_read(&c, list, "config.json", &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "found a list"));
    json_decref(list);
}

static void test_write(void **state)
{
    static const struct {
        const char *base, *patch;
    } cases[] = {
        {GPT2, "{}"},
        {GPT2, "{'tie_word_embeddings': false, 'n_inner': 100, 'activation_function': 'relu', 'eos_token_id': [0, 5]}"},
        {OPT, "{'layer_norm_elementwise_affine': false}"},
        {OPT, "{'do_layer_norm_before': false, 'word_embed_proj_dim': 16, 'pad_token_id': null}"},
        {OPT, "{'_remove_final_layer_norm': true, 'enable_bias': false, 'init_std': 0.006}"},
        {LLAMA, "{'attention_bias': true, 'mlp_bias': true, 'rms_norm_eps': 3.0517578e-05}"},
        {LLAMA, "{'rope_scaling': {'type': 'linear', 'factor': 2.5}, 'eos_token_id': null}"},
        {LLAMA, "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
                " 'original_max_position_embeddings': 64}}"},
        {QWEN2, "{'pad_token_id': 3}"},
        {QWEN3, "{'eos_token_id': [9, 8, 7]}"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct zf_model_config a = read_config(cases[i].base, cases[i].patch), b;
        struct zf_err e;
        json_t *config = zf_model_config_write(&a), *again;
        assert_non_null(config);
        if (zf_model_config_read(&b, config, "written", &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
        assert_same_config(&a, &b);
        assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "float32");
        again = zf_model_config_write(&b);
        assert_true(json_equal(config, again));
        json_decref(config);
        json_decref(again);
    }
    struct zf_model_config c = read_config(LLAMA, "{}");
    json_t *config = zf_model_config_write(&c);
    assert_true(json_real_value(json_object_get(config, "rms_norm_eps")) == 1e-5); /* not the float's 9.99999975e-06 */
    json_decref(config);
}

/* Tensors. */

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
        cmocka_unit_test(test_flags), cmocka_unit_test(test_ids), cmocka_unit_test(test_spellings), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_write), cmocka_unit_test(test_lists), cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_sizes_of_published_models), cmocka_unit_test(test_too_large), cmocka_unit_test(test_names),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_golden_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
