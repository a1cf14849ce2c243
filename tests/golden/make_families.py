"""Tiny random models of every family in shapes that are easy to get wrong, each with golden values (make_golden.py).

    python3 make_families.py OUT_DIR       (needs: torch, transformers, safetensors; OUT_DIR is what tests/golden/families holds)

Head dimensions 6, 12 and 20; one key/value head; heads * head_dim that is not hidden; biases where the family usually has none; heads tied
and not; rows of 37 tokens, one row and three; files in bf16 and f16, in shards, with old keys in config.json, with bare tensor names,
with buffers and tied heads that are to be ignored. Every value is computed from the weights as they are in the file.
"""

import json
import os
import shutil
import sys

import torch
import transformers as tf
from safetensors import safe_open
from safetensors.torch import save_file

from make_golden import golden

torch.set_num_threads(1)

LLAMA = dict(
    hidden_size=24,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
)
GPT2 = dict(n_positions=40, n_embd=24, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
OPT = dict(
    hidden_size=24, word_embed_proj_dim=24, num_hidden_layers=2, ffn_dim=40, num_attention_heads=2, max_position_embeddings=40, dropout=0.0
)


def llama(**more):
    return tf.LlamaConfig(**{**LLAMA, "bos_token_id": 1, "eos_token_id": 2, **more})


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def old_keys(config):
    """The spelling of transformers 4: rope_theta, rope_scaling {"type"}, torch_dtype."""
    params = dict(config.pop("rope_parameters"))
    config["rope_theta"] = params.pop("rope_theta")
    kind = params.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **params}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.38.0"
    return config


def old_keys_heads(config):
    config = old_keys(config)
    for key in ("head_dim", "num_key_value_heads", "attention_bias", "mlp_bias"):
        config.pop(key, None)
    return config


def old_keys_llama3(config):
    config = old_keys(config)
    config["rope_scaling"]["rope_type"] = config["rope_scaling"].pop("type")
    config["num_key_value_heads"] = (
        None if config["num_key_value_heads"] == config["num_attention_heads"] else config["num_key_value_heads"]
    )
    config["eos_token_id"] = [2, 5]
    return config


def old_keys_gpt2(config):
    config["n_ctx"] = config["n_positions"]
    config["n_inner"] = None
    for key in (
        "dtype",
        "tie_word_embeddings",
        "layer_norm_epsilon",
        "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn",
    ):
        config.pop(key, None)
    return config


def bare_gpt2(tensors):
    """The hub's own file: no first part, and the causal mask as a buffer."""
    out = {k.removeprefix("transformer."): v for k, v in tensors.items()}
    for layer in range(2):
        out[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(40, 40)).reshape(1, 1, 40, 40).to(torch.uint8)
        out[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return out


def bare_opt(tensors):
    return {k.removeprefix("model."): v for k, v in tensors.items()}


def tied_head_stored(tensors):
    return {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}


# name: config, then how it is stored (dtype, shards, keys: config.json rewritten, tensors: names changed) and what is asked of it.
CASES = {
    "llama-multi-query-hd20": (llama(vocab_size=53, head_dim=20, num_key_value_heads=1, rope_parameters=rope()), dict(rows=3, length=13)),
    "llama-biases-tied": (
        llama(vocab_size=50, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rope_parameters=rope(theta=100000.0)),
        dict(rows=1, length=37, documents=True),
    ),
    "llama-linear-rope-hd6": (
        llama(vocab_size=61, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, rope_parameters=rope("linear", factor=4.0)),
        dict(rows=1, length=37),
    ),
    "llama-old-keys-bf16": (
        llama(vocab_size=64, tie_word_embeddings=True, num_hidden_layers=1, rope_parameters=rope("linear", factor=2.0)),
        dict(dtype="bfloat16", keys=old_keys_heads, tensors=tied_head_stored, rows=3, length=11, vocab=50, masked=True),
    ),
    "llama3-rope-f16-shards": (
        llama(
            vocab_size=56,
            num_attention_heads=4,
            num_key_value_heads=1,
            num_hidden_layers=1,
            rope_parameters=rope(
                "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
            ),
        ),
        dict(dtype="float16", shards=3, keys=old_keys_llama3, rows=1, length=37),
    ),
    "gpt2-untied-hd6": (
        tf.GPT2Config(**{**GPT2, "vocab_size": 51, "n_head": 4, "n_inner": 40, "tie_word_embeddings": False}),
        dict(rows=1, length=37),
    ),
    "gpt2-bare-names": (tf.GPT2Config(vocab_size=47, **GPT2), dict(keys=old_keys_gpt2, tensors=bare_gpt2, rows=3, length=17, masked=True)),
    "gpt2-bf16-shards": (
        tf.GPT2Config(**{**GPT2, "vocab_size": 48, "n_embd": 20, "n_head": 1}),
        dict(dtype="bfloat16", shards=2, rows=2, length=37, vocab=45, documents=True),
    ),
    "opt-no-final-norm-hd20": (
        tf.OPTConfig(
            **{
                **OPT,
                "vocab_size": 52,
                "hidden_size": 20,
                "word_embed_proj_dim": 20,
                "num_attention_heads": 1,
                "_remove_final_layer_norm": True,
            }
        ),
        dict(rows=3, length=37),
    ),
    "opt-plain-norms-f16": (
        tf.OPTConfig(vocab_size=53, enable_bias=False, layer_norm_elementwise_affine=False, **OPT),
        dict(dtype="float16", rows=1, length=37, documents=True),
    ),
    "opt-post-norm-bare-names": (
        tf.OPTConfig(**{**OPT, "vocab_size": 54, "word_embed_proj_dim": 12, "num_attention_heads": 4, "do_layer_norm_before": False}),
        dict(tensors=bare_opt, rows=3, length=12, masked=True),
    ),
    "qwen2-untied-multi-query": (
        tf.Qwen2Config(
            **{
                **LLAMA,
                "vocab_size": 57,
                "num_key_value_heads": 1,
                "rms_norm_eps": 1e-6,
                "tie_word_embeddings": False,
                "rope_parameters": rope(theta=1e6),
            }
        ),
        dict(shards=3, rows=3, length=14),
    ),
    "qwen2-old-keys-f16": (
        tf.Qwen2Config(
            **{
                **LLAMA,
                "vocab_size": 60,
                "num_attention_heads": 4,
                "num_hidden_layers": 1,
                "tie_word_embeddings": True,
                "rope_parameters": rope(theta=1e6),
            }
        ),
        dict(dtype="float16", keys=old_keys, rows=1, length=37, documents=True),
    ),
    "qwen3-tied-hd12": (
        tf.Qwen3Config(
            **{
                **LLAMA,
                "vocab_size": 58,
                "hidden_size": 20,
                "num_attention_heads": 3,
                "num_key_value_heads": 1,
                "head_dim": 12,
                "tie_word_embeddings": True,
                "rope_parameters": rope(theta=1e6),
            }
        ),
        dict(rows=1, length=37),
    ),
    "qwen3-biases-bf16": (
        tf.Qwen3Config(
            **{
                **LLAMA,
                "vocab_size": 59,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 20,
                "num_hidden_layers": 1,
                "attention_bias": True,
                "rope_parameters": rope(theta=1e6),
            }
        ),
        dict(dtype="bfloat16", keys=old_keys, rows=3, length=15, documents=True),
    ),
}


def random_model(config, seed):
    torch.manual_seed(seed)
    model = tf.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():  # far from the values a model starts with, where mistakes are small
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.2 * torch.randn(p.shape))
            else:
                p.mul_(4.0)
    return model


def store(folder, tensors, shards):
    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    names, weight_map = list(tensors), {}
    for s in range(shards):
        part = {n: tensors[n] for n in names[s::shards]}
        file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=1)


def make(out, name, config, seed, dtype="float32", shards=1, keys=None, tensors=None, **asked):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    random_model(config, seed).to(getattr(torch, dtype)).save_pretrained(folder)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)

    path = os.path.join(folder, "config.json")
    with open(path) as f:
        stored = json.load(f)
    with open(path, "w") as f:
        json.dump(keys(stored) if keys else stored, f, indent=1)
        f.write("\n")

    path = os.path.join(folder, "model.safetensors")
    with safe_open(path, "pt") as f:
        values = {n: f.get_tensor(n).clone() for n in f.keys()}
    os.remove(path)
    store(folder, tensors(values) if tensors else values, shards)

    gold = golden(folder, seed=seed, **asked)
    save_file(gold, os.path.join(folder, "golden.safetensors"), metadata={"format": "pt"})
    print(
        f"{name}: {sum(t.numel() for t in values.values())} parameters, loss {gold['loss'].item():.4f} -> {gold['losses'][-1].item():.4f}"
    )


if __name__ == "__main__":
    tf.logging.set_verbosity_error()
    for index, (case, (config, how)) in enumerate(CASES.items()):
        make(sys.argv[1], case, config, 100 + index, **how)
