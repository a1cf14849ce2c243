"""What checkpoints cost, beside torch.save with zstd and plain safetensors, on the state of a model that was trained a little.

    python3 tests/bench/checkpoints.py BUILD MODEL [--python PYTHON] [--rounds 2] [--steps 20] [--folder DIRECTORY] [--markdown]

MODEL is a Hugging Face folder; the goals are those of SmolLM2-135M in bf16. PYTHON is one with torch and safetensors; without it their rows
are left out, in words, and so are those of zstd where there is no such program. The model is trained by --steps steps on
configs/data/shakespeare.txt, and the tensors of the checkpoint that it ends with, masters, moments and weights, are what all of them write
and read, in turns, on one thread, in DIRECTORY (else a temporary one; ten times the model's size is needed). The best round of each counts.
Processor time, the system's for the file included; MB are of the tensors, so that they can be compared. Standard library only.
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

from report import Absent, note, show

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = ["zenflow-console", "zenflow-trainer", "tests/checkpoints/bench_checkpoint"]

CFG = """[run]
dir = out
[model]
path = {model}
dtype = bf16
[data]
train = {text}
sequence_length = 128
[train]
steps = {steps}
batch_size = 4
learning_rate = 1e-4
"""

# Everything is read once before it is timed, so that it is in memory if it fits.
RIVAL = r"""
import json, os, subprocess, sys, time, torch
from safetensors.torch import load_file, save_file
folder, level, zstd = sys.argv[1], sys.argv[2], sys.argv[3] == "yes"
torch.set_num_threads(1)
path = lambda name: os.path.join(folder, name)
def spent(action):
    before = os.times()
    result = action()
    after = os.times()
    return result, sum(after[:4]) - sum(before[:4])
def synced(action, name):
    def whole():
        action()
        fd = os.open(path(name), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return spent(whole)[1]
def read_all():
    return {k: v.clone() for k, v in load_file(path("plain.safetensors")).items()}
run = lambda *words: subprocess.run(["zstd", "-q", "-f", "-T1", *words], check=True)
out = {}
data = read_all()
data, out["safetensors read"] = spent(read_all)
out["safetensors write"] = synced(lambda: save_file(data, path("again.safetensors")), "again.safetensors")
out["safetensors stored"] = os.path.getsize(path("again.safetensors"))
os.remove(path("again.safetensors"))
out["torch write"] = synced(lambda: torch.save(data, path("again.pt")), "again.pt")
del data
out["torch stored"] = os.path.getsize(path("again.pt"))
out["torch read"] = spent(lambda: torch.load(path("again.pt")))[1]
if zstd:
    out["zstd write"] = synced(lambda: run("-" + level, path("again.pt"), "-o", path("again.pt.zst")), "again.pt.zst")
    out["zstd stored"] = os.path.getsize(path("again.pt.zst"))
    os.remove(path("again.pt"))
    out["zstd read"] = spent(lambda: run("-d", path("again.pt.zst"), "-o", path("again.pt")))[1]
    os.remove(path("again.pt.zst"))
os.remove(path("again.pt"))
print(json.dumps(out))
"""


def output(words, **more):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
    if done.returncode:
        raise Absent(f"{os.path.basename(words[0])}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def best(rounds):
    """Of what was measured several times the least, key by key."""
    return {k: min(r[k] for r in rounds) for k in rounds[0]} if rounds else {}


def trained(build, model, steps, folder):
    note(f"training {steps} steps")
    text = os.path.join(SOURCE, "configs", "data", "shakespeare.txt")
    with open(os.path.join(folder, "run.cfg"), "w", encoding="utf-8") as f:
        f.write(CFG.format(model=os.path.abspath(model), text=text, steps=steps))
    output([os.path.join(build, "zenflow-console"), os.path.join(folder, "run.cfg"), "--plain"])
    shutil.rmtree(os.path.join(folder, "out", "exports"))
    return glob.glob(os.path.join(folder, "out", "checkpoints", "*.zfc"))[0]


def measure(build, model, python, rounds, steps, folder):
    file, zstd = trained(build, model, steps, folder), shutil.which("zstd")
    ours, theirs = [], []
    for i in range(rounds):
        note(f"round {i + 1}: ours")
        ours.append(json.loads(output([os.path.join(build, PROGRAMS[2]), file, folder, "1"])))
        if python:
            note(f"round {i + 1}: torch, safetensors" + (", zstd" if zstd else "; no program zstd is here"))
            theirs.append(json.loads(output([python, "-c", RIVAL, folder, "1", "yes" if zstd else "no"])))
    if not python:
        note("no --python: nothing beside it")
    return best(ours), best(theirs)


def speeds(ours, theirs):
    def line(what, stored, write, read):
        return [what, f"{100 * stored / ours['raw']:.1f} %", f"{ours['raw'] / write / 1e6:.0f}", f"{ours['raw'] / read / 1e6:.0f}"]

    lines = [line("checkpoint", ours["stored"], ours["write"], ours["read"])]
    if "zstd stored" in theirs:
        write, read = (theirs["torch " + w] + theirs["zstd " + w] for w in ("write", "read"))
        lines.append(line("torch.save, zstd -1", theirs["zstd stored"], write, read))
    for name, key in (("torch.save", "torch"), ("safetensors", "safetensors")):
        if theirs:
            lines.append(line(name, theirs[key + " stored"], theirs[key + " write"], theirs[key + " read"]))
    return lines


def goals(ours):
    mb, parameter = ours["raw"] / 1e6, 14 / ours["raw"]

    def line(what, have, goal, good, digits=0):
        return [what, f"{have:.{digits}f}", f"{goal}", "ok" if good(have, goal) else "short"]

    least, most = (lambda x, y: x >= y), (lambda x, y: x <= y)
    return [
        line("bytes stored for 14", ours["stored"] * parameter, 10.2, most, 2),
        line("written, MB/s a core", mb / ours["write"], 400, least),
        line("read, MB/s a core", mb / ours["read"], 800, least),
        line("left in the page cache, MB", ours["cached"] / 1e6, 512, most),
        line("memory of the writer beyond two chunks a thread, MB", (ours["memory"] - ours["chunks"]) / 1e6, 16, most, 1),
    ]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("--python")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--folder")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    output(["ninja", "-C", a.build, *PROGRAMS])
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        ours, theirs = measure(os.path.abspath(a.build), a.model, a.python, a.rounds, a.steps, folder)
    print(f"{ours['raw'] / 1e9:.2f} GB of tensors; MB of them a second of processor time\n")
    show(["", "size", "write", "read"], speeds(ours, theirs), a.markdown)
    show(["what", "measured", "goal", ""], goals(ours), a.markdown)


if __name__ == "__main__":
    try:
        main()
    except Absent as e:
        sys.exit(f"checkpoints.py: {e}")
