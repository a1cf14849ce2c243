/* config.json of model families: every spelling, what is refused by name, writing and reading back. */
#include "tests/model/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
