"""Rows and torch's losses for the stories260K fine-tune that the tests repeat.

    python3 stories260k.py MODEL_DIR TEXT OUT_DIR      (needs: torch, transformers, safetensors)

MODEL_DIR: stories260K as a Hugging Face folder; TEXT: tinyshakespeare's input.txt. The first 90 % of the text's characters are
tokenised whole, without special tokens, and cut into rows of 256; the first 1,600 rows, in order, are OUT_DIR/tokens.safetensors.
OUT_DIR/losses.json has loss and gradient norm (before clipping) of 100 steps of 16 rows each: float32, AdamW lr 2e-3, betas 0.9 0.999,
eps 1e-8, no decay, clipped to norm 1, lr(t) = 2e-3 (1 + cos(pi (t - 1) / 100)) / 2. OUT_DIR/run.cfg says the same to our trainer.
"""

import json
import math
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

from make_golden import forward, load

STEPS, BATCH, LENGTH, RATE = 100, 16, 256, 2e-3


def main():
    folder, text_path, out = sys.argv[1:4]
    with open(text_path, encoding="utf-8") as f:
        text = f.read()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text[: len(text) * 9 // 10], add_special_tokens=False)["input_ids"]
    need = STEPS * BATCH * LENGTH
    if len(ids) < need:
        sys.exit(f"{text_path}: {len(ids)} tokens; {need} are needed")
    rows = torch.tensor(ids[:need]).reshape(STEPS * BATCH, LENGTH)
    os.makedirs(out, exist_ok=True)
    save_file({"input_ids": rows.to(torch.int32)}, os.path.join(out, "tokens.safetensors"), metadata={"format": "pt"})

    torch.manual_seed(0)
    model = load(folder)
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses, norms = [], []
    for t in range(1, STEPS + 1):
        for group in adam.param_groups:
            group["lr"] = RATE * (1 + math.cos(math.pi * (t - 1) / STEPS)) / 2
        batch = rows[(t - 1) * BATCH : t * BATCH]
        adam.zero_grad()
        _, loss = forward(model, batch, batch, None)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        adam.step()
        if t % 10 == 0:
            print(t, losses[-1], norms[-1], flush=True)
    with open(os.path.join(out, "losses.json"), "w") as f:
        json.dump(
            {"torch": torch.__version__, "transformers": transformers.__version__, "losses": losses, "grad_norms": norms}, f, indent=1
        )
        f.write("\n")


if __name__ == "__main__":
    main()
