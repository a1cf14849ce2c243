"""Does transformers see in our export what our files say?

    python3 export_check.py FOLDER|RUN [--like MODEL_DIR]      (needs: torch, transformers, safetensors)

FOLDER: a model that zenflow-console exported; RUN: a run directory, its newest export is taken. Loads it with transformers as any
user would, wants every tensor used and none missing, every value as it is in the file, finite logits, the same logits after transformers saved and
loaded it again, and text of its own tokenizer to survive encoding and decoding. With --like: the same names, shapes and configuration as
the model it was made from. Exit 0 if all of it holds, else 1.
"""

import argparse
import glob
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

NOT_COMPARED = {
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "architectures",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
}


def newest_export(path):
    found = sorted(glob.glob(os.path.join(path, "exports", "step-*")))
    return found[-1] if found else path


def tensors(folder):
    out = {}
    for file in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        out.update(load_file(file))
    return out


def problems(folder, like):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            yield f"{kind}: {sorted(info[kind])}"
    stored, loaded = tensors(folder), model.state_dict()
    for name, value in stored.items():
        if name not in loaded or not torch.equal(loaded[name], value.float()):
            yield f"{name}: not in the model as it is in the file"
    ids = torch.arange(min(24, model.config.vocab_size)).reshape(2, -1)
    with torch.no_grad():
        logits = model.eval()(ids).logits
        if not torch.isfinite(logits).all():
            yield "logits are not finite"
        with tempfile.TemporaryDirectory() as again:
            model.save_pretrained(again)
            if not torch.equal(
                AutoModelForCausalLM.from_pretrained(again, dtype=torch.float32, attn_implementation="eager").eval()(ids).logits, logits
            ):
                yield "logits differ after transformers saved and loaded it"
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        tokenizer, text = AutoTokenizer.from_pretrained(folder), "Once upon a time, there was a king."
        got = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
        if got.strip() != text:
            yield f"the tokenizer makes {got!r} of {text!r}"
    if like:
        theirs = tensors(like)
        bare = {n.removeprefix("transformer.").removeprefix("model."): tuple(v.shape) for n, v in stored.items()}
        want = {
            n.removeprefix("transformer.").removeprefix("model."): tuple(v.shape)
            for n, v in theirs.items()
            if not n.endswith((".attn.bias", ".attn.masked_bias"))
        }  # buffers of old GPT-2 files
        if model.config.tie_word_embeddings:    # a tied head that was stored twice is stored once
            want.pop("lm_head.weight", None)
        if bare != want:
            yield f"names or shapes differ: {sorted(set(bare.items()) ^ set(want.items()))}"
        with open(os.path.join(folder, "config.json")) as f, open(os.path.join(like, "config.json")) as g:
            ours, other = json.load(f), json.load(g)
        for key in sorted((ours.keys() | other.keys()) - NOT_COMPARED):
            if ours.get(key) != other.get(key):
                yield f"config.json: {key} is {ours.get(key)!r}, was {other.get(key)!r}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--like")
    a = p.parse_args()
    folder = newest_export(a.folder)
    found = list(problems(folder, a.like))
    print("\n".join(found) or f"{folder}: good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
