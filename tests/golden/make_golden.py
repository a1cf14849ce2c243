"""What transformers computes for a model, as a file for `zenflow-console verify`.

    python3 make_golden.py MODEL_DIR OUT.safetensors [--rows B] [--length T] [--documents] [--masked] [--vocab N] [--steps N] [--seed N]

MODEL_DIR is any Hugging Face causal language model (needs: torch, transformers, safetensors). Then

    zenflow-console verify MODEL_DIR OUT.safetensors --losses

compares logits, loss, every gradient, and as many AdamW steps as --steps says (0: none; a big model needs memory for them).
All values are float32, attention is transformers' plain ("eager") one, weights are taken as stored and widened. Contents of OUT:

    input_ids [B][T]  random tokens below --vocab       labels [B][T]  the same; -100 is not trained (--masked: a prompt a row)
    document [B][T]   with --documents: a token sees its own document only, positions restart; each document is run by itself
    logits [B][T][V]  loss [1]  grad.NAME               losses [steps], after.NAME: AdamW, lr 1e-3, betas 0.9 0.95, eps 1e-8,
                                                        decay 0.1 on tensors of two dimensions or more, no clipping;
                                                        without those tensors that the same steps in float64 move elsewhere
                                                        (gradients that are zero in theory: Adam magnifies their rounding)
NAME is the tensor's name in the checkpoint, not the one in memory.
"""

import argparse
import glob
import os

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

IGNORE = -100


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.eval()


def stored_names(folder):
    names = set()
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        if os.path.basename(path).startswith("model"):
            with safe_open(path, "pt") as f:
                names.update(f.keys())
    return names


def checkpoint_name(model, stored, name):
    """Some checkpoints were saved from the model without its head and lack the first part of every name."""
    bare = name.removeprefix(model.base_model_prefix + ".")
    return bare if name not in stored and bare in stored else name


def make_batch(model, rows, length, vocab, documents, masked, seed):
    g = torch.Generator().manual_seed(seed)
    pad = model.config.pad_token_id  # torch.nn.Embedding gives a padding row no gradient: keep out of its way
    usable = torch.tensor([i for i in range(vocab) if i != pad])
    ids = usable[torch.randint(len(usable), (rows, length), generator=g)]
    labels = ids.clone()
    if masked:
        for r in range(rows):
            labels[r, : length // 3 + r] = IGNORE
    document = None
    if documents:
        document = torch.zeros_like(ids)
        for r in range(rows):
            for cut in torch.randint(2, length, (r + 2,), generator=g).tolist():
                document[r, cut:] += 1
    return ids, labels, document


def spans(document_row):
    start = 0
    for t in range(1, len(document_row) + 1):
        if t == len(document_row) or document_row[t] != document_row[start]:
            yield start, t
            start = t


def forward(model, ids, labels, document):
    """Logits [B][T][V] and the mean of the loss over all label tokens of the batch."""
    if document is None:
        logits = model(input_ids=ids, use_cache=False).logits
        want = torch.full_like(labels, IGNORE)
        want[:, :-1] = labels[:, 1:]
    else:
        want = torch.full_like(labels, IGNORE)
        rows = []
        for r in range(ids.shape[0]):
            parts = []
            for a, b in spans(document[r].tolist()):
                parts.append(model(input_ids=ids[r : r + 1, a:b], use_cache=False).logits[0])
                want[r, a : b - 1] = labels[r, a + 1 : b]
            rows.append(torch.cat(parts))
        logits = torch.stack(rows)
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), want.flatten(), ignore_index=IGNORE)


def train(model, ids, labels, document, steps):
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim >= 2) == wide], "weight_decay": 0.1 if wide else 0.0} for wide in (True, False)
    ]
    adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(steps):
        adam.zero_grad()
        _, loss = forward(model, ids, labels, document)
        losses.append(loss.item())
        loss.backward()
        adam.step()
    return losses, {n: p.detach().clone() for n, p in model.named_parameters()}


def golden(folder, rows=2, length=24, documents=False, masked=False, vocab=0, steps=20, seed=1):
    model = load(folder)
    stored = stored_names(folder)
    name_of = {n: checkpoint_name(model, stored, n) for n, _ in model.named_parameters()}
    ids, labels, document = make_batch(model, rows, length, vocab or model.config.vocab_size, documents, masked, seed)
    out = {"input_ids": ids, "labels": labels}
    if document is not None:
        out["document"] = document
    logits, loss = forward(model, ids, labels, document)
    loss.backward()
    out["logits"] = logits.detach().contiguous()
    out["loss"] = loss.detach().reshape(1)
    for n, p in model.named_parameters():
        out["grad." + name_of[n]] = torch.zeros_like(p) if p.grad is None else p.grad.clone().contiguous()
    if steps:
        losses, after = train(model, ids, labels, document, steps)
        _, exact = train(load(folder).double(), ids, labels, document, steps)
        out["losses"] = torch.tensor(losses)
        for n, p in after.items():
            limit = 1e-3 if p.ndim >= 2 else 5e-3
            if (p - exact[n]).norm() <= limit / 5 * exact[n].norm():
                out["after." + name_of[n]] = p.contiguous()
            else:
                print(f"after.{name_of[n]} is left out: float32 does not determine it")
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--rows", type=int, default=2)
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--documents", action="store_true")
    p.add_argument("--masked", action="store_true")
    p.add_argument("--vocab", type=int, default=0, help="use token ids below this only (0: all)")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    values = golden(a.model, a.rows, a.length, a.documents, a.masked, a.vocab, a.steps, a.seed)
    save_file(values, a.out, metadata={"format": "pt"})
    print(f"{a.out}: loss {values['loss'].item():.6f}, {sum(k.startswith('grad.') for k in values)} gradients")


if __name__ == "__main__":
    main()
