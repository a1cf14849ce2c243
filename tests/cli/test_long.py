"""The long suite: what takes minutes, or needs transformers (ZF_PYTHON names a Python that has it; default: this one)."""
import os
import subprocess
import sys

import harness as h
from harness import expect

PYTHON = os.environ.get("ZF_PYTHON", sys.executable)


def shared(*parts):
    path = os.path.join(h.SHARED, *parts)
    if not h.SHARED or not os.path.exists(path):
        raise h.Skip(f"no {path}")
    return path


def text_run(folder, seed):
    """The recipe of which PyTorch's results are known: first 90 % of the text, rows of 256, batch 16, 100 steps."""
    with open(shared("data", "datasets", "tinyshakespeare", "input.txt"), encoding="utf-8") as f:
        text = f.read()
    cut = len(text) * 9 // 10
    h.write(os.path.join(folder, "train.txt"), text[:cut])
    h.write(os.path.join(folder, "valid.txt"), text[cut : cut + 40000])
    h.cfg(folder, base={"run": {"dir": f"out{seed}", "seed": seed}, "model": {"path": shared("data", "models", "stories260K-hf")},
                        "data": {"train": "train.txt", "valid": "valid.txt", "sequence_length": 256, "add_eos": "no"},
                        "train": {"steps": 100, "batch_size": 16, "learning_rate": "2e-3", "weight_decay": 0}})
    h.run(os.path.join(folder, "run.cfg"), timeout=240)
    return h.metrics(os.path.join(folder, f"out{seed}"), "valid")[-1]["loss"]


def test_text_trains_as_well_as_with_torch(folder):
    """PyTorch: 2.710 and 2.686 nats for two seeds of the order."""
    for seed in (0, 1):
        loss = text_run(folder, seed)
        print(f"seed {seed}: validation {loss:.3f} nats")
        expect(2.62 < loss < 2.76, "validation", loss)


def test_transformers_loads_every_export(folder):
    if subprocess.run([PYTHON, "-c", "import torch, transformers, safetensors"], capture_output=True).returncode:
        raise h.Skip(f"{PYTHON} has no torch, transformers, safetensors (set ZF_PYTHON)")
    check = os.path.join(h.SOURCE, "tests", "golden", "export_check.py")
    for name in sorted(os.listdir(h.FAMILIES)):
        place = os.path.join(folder, name)
        os.mkdir(place)
        model = h.copy_model(place, name)
        vocab = h.read_tensors(os.path.join(model, "golden.safetensors"))["logits"][1][-1]
        h.token_file(os.path.join(place, "rows.safetensors"), 8, 16, vocab)
        h.cfg(place, base={"run": {"dir": "out"}, "model": {"path": "model"}, "data": {"train": "rows.safetensors"}, "train": {"steps": 2, "batch_size": 4, "learning_rate": "1e-3"}})
        h.run(os.path.join(place, "run.cfg"))
        export = h.only_export(os.path.join(place, "out"))
        done = subprocess.run([PYTHON, check, export, "--like", model], capture_output=True, text=True)
        expect(done.returncode == 0, name, done.stdout[-2000:], done.stderr[-2000:])
    for family in ("gpt2", "opt", "llama", "qwen2", "qwen3"):
        place = os.path.join(folder, "scratch-" + family)
        os.mkdir(place)
        h.text_file(place)
        h.cfg(place, model={"family": family}, train={"steps": 2, "valid_every": None})
        h.run(os.path.join(place, "run.cfg"))
        done = subprocess.run([PYTHON, check, h.only_export(os.path.join(place, "out"))], capture_output=True, text=True)
        expect(done.returncode == 0, family, done.stdout[-2000:], done.stderr[-2000:])


if __name__ == "__main__":
    h.main()
