"""Speed and memory of training on this machine, with PyTorch beside it where it is installed.

    python3 tests/bench/table.py BUILD MODEL [--python PYTHON] [--batch 4] [--length 256] [--steps 6] [--threads 0]

MODEL is a Hugging Face folder, e.g. SmolLM2-135M. PYTHON is one with torch and transformers. Everything is measured in one run; only the
ratios mean something, and only on a machine that does nothing else. Standard library only.
"""
import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

RIVAL = r"""
import resource, statistics, sys, time, torch
from transformers import AutoModelForCausalLM
path, kind, batch, length, steps, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
if threads: torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16 if kind == "bf16" else torch.float32, attn_implementation="sdpa")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
rows = torch.randint(10, model.config.vocab_size, (batch, length), generator=torch.Generator().manual_seed(1))
times = []
for _ in range(steps):
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "amp"):
        loss = model(input_ids=rows, labels=rows, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - began)
print(batch * length / statistics.median(times[1:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def tokens_file(path, rows, length, vocab):
    header = json.dumps({"input_ids": {"dtype": "I32", "shape": [rows, length], "data_offsets": [0, 4 * rows * length]}}).encode()
    r = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.write(struct.pack(f"<{rows * length}i", *(r.randrange(10, vocab) for _ in range(rows * length))))


def child(arguments):
    """Output and peak resident megabytes of a program."""
    p = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = p.communicate()
    if p.returncode:
        sys.exit(f"{arguments[0]}: exit {p.returncode}: {err.strip()[-600:]}")
    return out


def ours(a, folder, dtype, batch, length, steps):
    vocab = json.load(open(os.path.join(a.model, "config.json")))["vocab_size"]
    data, cfg, run = (os.path.join(folder, f"{dtype}-{batch}-{length}{x}") for x in (".safetensors", ".cfg", ""))
    tokens_file(data, batch * steps, length, vocab)
    with open(cfg, "w") as f:
        f.write(f"[run]\ndir = {run}\nthreads = {a.threads}\n[model]\npath = {os.path.abspath(a.model)}\ndtype = {dtype}\n"
                f"[data]\ntrain = {data}\n[train]\nbatch_size = {batch}\nsteps = {steps}\nlearning_rate = 1e-5\n")
    child([os.path.join(a.build, "zenflow-trainer"), cfg, "--plain"])
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    steps = [m for m in lines if m["type"] == "step"]
    return batch * length / statistics.median(m["step_ms"] for m in steps[1:]) * 1e3, max(m["memory_host"] for m in steps) / 2**20


def rival(a, kind):
    out = child([a.python, "-c", RIVAL, os.path.abspath(a.model), kind, *map(str, (a.batch, a.length, a.steps, a.threads))])
    return tuple(map(float, out.split()[-2:]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("--python")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=0)
    a = p.parse_args()
    torch = a.python and subprocess.run([a.python, "-c", "import torch, transformers"], capture_output=True).returncode == 0
    if not torch:
        print("PyTorch is not beside it: give --python, one with torch and transformers")
    with tempfile.TemporaryDirectory() as folder:
        mine = {d: ours(a, folder, d, a.batch, a.length, a.steps) for d in ("f32", "bf16")}
        theirs = {k: rival(a, k) for k in ("f32", "bf16", "amp")} if torch else {}
        long = ours(a, folder, "bf16", 1, 16 * a.length, 3)
    print(f"{os.path.basename(os.path.abspath(a.model))}, B {a.batch}, T {a.length}")
    for name, (speed, memory) in [(f"ours {k}", v) for k, v in mine.items()] + [(f"torch {k}", v) for k, v in theirs.items()]:
        print(f"  {name:12} {speed:8.0f} tok/s  {memory:8.0f} MB peak")
    print(f"  ours bf16, B 1, T {16 * a.length}: {long[0]:.0f} tok/s ({long[0] / mine['bf16'][0]:.2f} of T {a.length}), {long[1]:.0f} MB")
    if torch:
        print(f"  bf16 against the better of torch bf16 and amp: {mine['bf16'][0] / max(theirs['bf16'][0], theirs['amp'][0]):.2f}x")
        print(f"  f32 against torch f32: {mine['f32'][0] / theirs['f32'][0]:.2f}x")
        print(f"  peak memory, bf16 against torch amp: {mine['bf16'][1] / theirs['amp'][1]:.2f}x")
    for bench in ("adamw", "matmul"):
        program = os.path.join(a.build, "tests", "kernels", "bench_" + bench)
        if os.path.exists(program):
            print(child([program] + ([str(a.threads)] if a.threads else [])).rstrip())
        else:
            print(f"bench_{bench} is not built: ninja -C {a.build} tests/kernels/bench_{bench}")


main()
