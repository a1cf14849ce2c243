"""What a checkpoint costs the training that goes on while it is written.

    python3 tests/bench/saves.py BUILD MODEL [--dtype bf16] [--strategies zenflow,gpu_only] [--saves 3] [--markdown]

MODEL is a Hugging Face folder; the goals are those of SmolLM2-135M, 4 rows of 256 tokens: training is held up for at most a tenth of a step, and
the writer takes at most the processor time of 300 MB/s. A save is asked for when the one before is durable and some steps have been taken without
one. Held up: what the `checkpoint` line says (stall_ms), in units of the median step without a save. Slower: the time from a save's beginning
to its end in excess of as many undisturbed steps; where training has all cores to itself, the writer's processor time is taken from it. Only ratios
mean something. Linux, standard library only.
"""
import argparse
import glob
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile
import threading
import time

from report import Absent, note, show

BATCH, LENGTH, SETTLED, BETWEEN = 4, 256, 12, 6
GOAL_STALL, GOAL_RATE = 0.1, 300e6


def tokens(folder, vocabulary, rows):
    path, r = os.path.join(folder, "tokens.safetensors"), random.Random(1)
    header = json.dumps({"input_ids": {"dtype": "I32", "shape": [rows, LENGTH], "data_offsets": [0, 4 * rows * LENGTH]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.write(struct.pack(f"<{rows * LENGTH}i", *(r.randrange(10, vocabulary) for _ in range(rows * LENGTH))))
    return path


def lines(out, kind):
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [m for m in map(json.loads, (x for x in f if x.endswith("\n"))) if m["type"] == kind]


def last_step(out):
    try:
        return max((m["step"] for m in lines(out, "step")), default=0)
    except FileNotFoundError:
        return 0


class Writers(threading.Thread):
    """The processor time of the threads called `checkpoint`, looked at while they live."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.seconds, self.peak, self.over = pid, {}, 0, False

    def run(self):
        while not self.over:
            for path in glob.glob(f"/proc/{self.pid}/task/*"):
                try:
                    if open(path + "/comm").read() == "checkpoint\n":
                        self.seconds[os.path.basename(path)] = int(open(path + "/schedstat").read().split()[0]) / 1e9
                except (FileNotFoundError, ProcessLookupError, ValueError):
                    continue
            time.sleep(0.02)


def await_step(p, out, step):
    while last_step(out) < step:
        if p.poll() is not None:
            raise Absent(f"the trainer ended with {p.returncode}")
        time.sleep(0.05)


def measure(a, folder, strategy, data):
    out, cfg = os.path.join(folder, strategy), os.path.join(folder, strategy + ".cfg")
    with open(cfg, "w") as f:
        f.write(f"[run]\ndir = {out}\n[model]\npath = {os.path.abspath(a.model)}\ndtype = {a.dtype}\n[data]\ntrain = {data}\n[train]\nsteps = 100000\n")
        f.write(f"batch_size = {BATCH}\nlearning_rate = 1e-5\n[zenflow]\nstrategy = {strategy}\n[checkpoint]\nsave_minutes = 1000\nkeep = 1\n[log]\nscore_every = 0\n")
    p = subprocess.Popen([os.path.join(a.build, "zenflow-trainer"), cfg, "--plain"], stdout=subprocess.DEVNULL)
    writers = Writers(p.pid)
    writers.start()
    try:
        await_step(p, out, SETTLED)
        for _ in range(a.saves):
            subprocess.run([os.path.join(a.build, "zenflow-console"), "send", out, "save", "--timeout", "600"], check=True, stdout=subprocess.DEVNULL)
            await_step(p, out, last_step(out) + BETWEEN)
    finally:
        writers.over = True
        p.kill()
        p.wait()
    steps, saves = {m["step"]: m for m in lines(out, "step")}, lines(out, "checkpoint")
    spans = []  # of steps that a save fell upon: from the one after it was begun to the one it ended in
    for c in saves:
        began = steps[c["step"]]["time"]
        spans.append([n for n in steps if c["step"] < n and steps[n]["time"] - steps[n]["step_ms"] / 1e3 <= began + c["seconds"]])
    busy = {n for s in spans for n in s}
    quiet = statistics.median(m["step_ms"] for n, m in steps.items() if n > SETTLED - 4 and n not in busy) / 1e3
    return {
        "step": quiet,
        "stall": [c["stall_ms"] / 1e3 / quiet for c in saves],
        "slower": [sum(steps[n]["step_ms"] / 1e3 - quiet for n in s) / quiet for s in spans],
        "seconds": [c["seconds"] for c in saves],
        "cpu": sum(writers.seconds.values()) / len(saves),
        "raw": saves[-1]["raw_bytes"],
        "stored": saves[-1]["bytes"],
        "memory": max(m["memory_host"] for m in steps.values()) - max(m["memory_host"] for n, m in steps.items() if n <= saves[0]["step"]),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build"), p.add_argument("model"), p.add_argument("--dtype", default="bf16"), p.add_argument("--saves", type=int, default=3)
    p.add_argument("--strategies", default="zenflow,gpu_only"), p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    vocabulary = json.load(open(os.path.join(a.model, "config.json")))["vocab_size"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="zf-saves-") as folder:
        data = tokens(folder, vocabulary, 256)
        for strategy in a.strategies.split(","):
            try:
                r = measure(a, folder, strategy, data)
            except Absent as e:
                note(f"{strategy}: {e}")
                continue
            each = lambda x, f="{:.2f}": " ".join(f.format(v) for v in x)
            note(f"{strategy}: a step {r['step']:.2f} s; saves took {each(r['seconds'], '{:.1f}')} s, {r['stored'] / r['raw']:.3f} of {r['raw'] / 1e9:.2f} GB; "
                 f"{r['memory'] / 2**20:.0f} MiB more memory")
            rows.append((f"{strategy}: held up, steps", each(r["stall"]), f"{GOAL_STALL:g} at most"))
            rows.append((f"{strategy}: slower in all, steps", each(r["slower"]), ""))
            rows.append((f"{strategy}: processor time, MB/s", f"{r['raw'] / r['cpu'] / 1e6:.0f}", f"{GOAL_RATE / 1e6:.0f} at least"))
    show(("a checkpoint, while training goes on", "measured", "goal"), rows, a.markdown)


if __name__ == "__main__":
    main()
