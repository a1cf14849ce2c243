/* What the tests of model families share: a config.json of each family, written with ' for ". A header of its own functions: each test is
 * one program. */
#ifndef ZF_TESTS_MODEL_SUPPORT_H
#define ZF_TESTS_MODEL_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/model/family.h"

#include <string.h>

#define COUNT(table) (sizeof table / sizeof *table)

/* JSON in tests is written with ' for ". */
static const char GPT2[] __attribute__((unused)) =
    "{'model_type': 'gpt2', 'vocab_size': 97, 'n_positions': 64, 'n_embd': 32, 'n_layer': 2, 'n_head': 4, 'n_inner': null,"
    " 'bos_token_id': 0, 'eos_token_id': 0, 'activation_function': 'gelu_new', 'resid_pdrop': 0.1, 'layer_norm_epsilon': 1e-5}";
static const char OPT[] __attribute__((unused)) =
    "{'model_type': 'opt', 'vocab_size': 96, 'hidden_size': 32, 'num_hidden_layers': 2, 'ffn_dim': 80, 'max_position_embeddings': 64,"
    " 'num_attention_heads': 4, 'activation_function': 'relu', 'dropout': 0.1}";
static const char LLAMA[] __attribute__((unused)) =
    "{'model_type': 'llama', 'vocab_size': 99, 'hidden_size': 48, 'intermediate_size': 112, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 128, 'rms_norm_eps': 1e-5, 'hidden_act': 'silu',"
    " 'rope_theta': 10000.0, 'rope_scaling': null, 'torch_dtype': 'bfloat16'}";
static const char QWEN2[] __attribute__((unused)) =
    "{'model_type': 'qwen2', 'vocab_size': 101, 'hidden_size': 48, 'intermediate_size': 96, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 128, 'rope_theta': 1000000.0,"
    " 'tie_word_embeddings': true, 'use_sliding_window': false, 'sliding_window': 131072, 'max_window_layers': 28}";
static const char QWEN3[] __attribute__((unused)) =
    "{'model_type': 'qwen3', 'vocab_size': 101, 'hidden_size': 40, 'intermediate_size': 96, 'num_hidden_layers': 2,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'max_position_embeddings': 128, 'rope_theta': 1000000}";

static inline json_t *parse(const char *text)
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
static inline json_t *patched(const char *base, const char *patch)
{
    json_t *config = parse(base), *change = parse(patch), *value;
    const char *key;
    void *next;
    assert_int_equal(json_object_update(config, change), 0);
    json_object_foreach_safe(config, next, key, value) if (json_is_string(value) && !strcmp(json_string_value(value), "ABSENT"))
        json_object_del(config, key);
    json_decref(change);
    return config;
}

static inline struct zf_model_config read_config(const char *base, const char *patch)
{
    struct zf_model_config c;
    struct zf_err e;
    json_t *config = patched(base, patch);
    if (zf_model_config_read(&c, config, "config.json", &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    json_decref(config);
    return c;
}

static inline struct zf_params build(const struct zf_model_config *c, struct zf_arena *a)
{
    struct zf_params p;
    struct zf_err e;
    if (zf_params_build(&p, c, a, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    return p;
}

#endif
