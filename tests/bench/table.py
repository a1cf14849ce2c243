"""Speed and memory of training on this machine against the goals of this project, with PyTorch beside it where it is installed.

    python3 tests/bench/table.py BUILD MODEL [--python PYTHON] [--rounds 2] [--only WORDS] [--markdown]

MODEL is a Hugging Face folder; the goals are those of SmolLM2-135M. PYTHON is one with torch and transformers. Everything is measured in one
run, ours and PyTorch's in turns, the best round of each counts; only ratios mean something, and only on a machine that does nothing else.
Standard library only. BUILD is a directory that meson has set up; what is run is built first. --only: comma-separated words; the rows
whose names have one of them (the tables of phases are "phases bf16" and "phases f32").
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from report import Absent, note, show

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

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


PROGRAMS = ["zenflow-console", "zenflow-trainer", "tests/kernels/bench_matmul", "tests/kernels/bench_adamw", "tests/model/bench_load",
            "tests/model/bench_generate"]


def child(arguments):
    """stdout, stderr, peak resident MB and processor seconds of a program."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if p.returncode is None:  # we were interrupted
                p.kill()
                p.wait()
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode(errors="replace"))
    if p.returncode:
        raise Absent(f"{' '.join(arguments[:3])}: exit {p.returncode}: {texts[1].strip()[-300:]}")
    return texts[0], texts[1], usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def once(function):
    """What is measured once and used in several rows; a failure is kept as well."""
    kept = {}

    def wrapped(*arguments):
        if arguments not in kept:
            try:
                kept[arguments] = function(*arguments), None
            except Absent as failure:
                kept[arguments] = None, failure
        value, failure = kept[arguments]
        if failure:
            raise failure
        return value

    return wrapped


class Bench:
    def __init__(self, a, folder):
        self.a, self.folder, self.count = a, folder, 0
        self.config = json.load(open(os.path.join(a.model, "config.json")))
        for name in ("train", "rival", "pair", "matmul", "adamw", "reading", "load", "quick", "generate", "data_share"):
            setattr(self, name, once(getattr(self, name)))

    def program(self, *path):
        full = os.path.join(self.a.build, *path)
        if not os.path.exists(full):
            raise Absent(f"{path[-1]} is not built")
        return full

    def trainer(self):
        return self.program("zenflow-trainer")

    # ---- our runs

    def run(self, dtype, batch, data, **train):
        self.count += 1
        cfg, out = (os.path.join(self.folder, f"run-{self.count}{x}") for x in (".cfg", ""))
        lines = ["[run]", f"dir = {out}", f"threads = {self.a.threads}", "[model]", f"path = {os.path.abspath(self.a.model)}",
                 f"dtype = {dtype}", "[data]", *data, "[train]", f"batch_size = {batch}", "learning_rate = 1e-5",
                 *(f"{k} = {v}" for k, v in train.items())]
        with open(cfg, "w") as f:
            f.write("\n".join(lines) + "\n")
        _, _, peak, cpu = child([self.trainer(), cfg, "--plain"])
        steps = [m for m in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if m["type"] == "step"]
        profile = json.loads(child([self.trainer(), "log", out, "--profile", "--json"])[0])
        for root, _, files in os.walk(os.path.join(out, "exports")):
            for name in files:
                os.remove(os.path.join(root, name))
        return {"steps": steps, "profile": profile, "peak": peak, "cpu": cpu}

    def tokens(self, batch, length, steps):
        path = os.path.join(self.folder, f"{batch}-{length}-{steps}.safetensors")
        if not os.path.exists(path):
            count, r = batch * steps * length, random.Random(1)
            header = json.dumps({"input_ids": {"dtype": "I32", "shape": [batch * steps, length], "data_offsets": [0, 4 * count]}}).encode()
            with open(path, "wb") as f:
                f.write(struct.pack("<Q", len(header)) + header)
                f.write(struct.pack(f"<{count}i", *(r.randrange(10, self.config["vocab_size"]) for _ in range(count))))
        return [f"train = {path}"]

    def train(self, dtype, batch, length, steps, round_=0):
        note(f"ours, {dtype}, B {batch}, T {length}")
        r = self.run(dtype, batch, self.tokens(batch, length, steps), steps=steps)
        times = [m["step_ms"] / 1e3 for m in r["steps"]]
        r["seconds"] = statistics.median(times[1:])
        r["speed"] = batch * length / r["seconds"]
        return r

    def rival(self, kind, round_=0):
        a = self.a
        if not a.python or subprocess.run([a.python, "-c", "import torch, transformers"], capture_output=True).returncode:
            raise Absent("PyTorch is not beside it: give --python, one with torch and transformers")
        note(f"PyTorch, {kind}")
        out = child([a.python, "-c", RIVAL, os.path.abspath(a.model), kind, *map(str, (a.batch, a.length, a.steps, a.threads))])[0]
        speed, peak = map(float, out.split()[-2:])
        return {"speed": speed, "peak": peak}

    def pair(self, dtype, kinds):
        """Our best round, and the best round of any of PyTorch's kinds, taken in turns."""
        a, mine, theirs = self.a, [], []
        for i in range(a.rounds):
            mine.append(self.train(dtype, a.batch, a.length, a.steps, i))
            theirs += [(self.rival(kind, i), kind) for kind in kinds]
        return self.best(dtype), max(theirs, key=lambda x: x[0]["speed"])

    def best(self, dtype):
        a = self.a
        return max((self.train(dtype, a.batch, a.length, a.steps, i) for i in range(a.rounds)), key=lambda r: r["speed"])

    # ---- what the machine can do

    def threads(self):
        return [str(self.a.threads)] if self.a.threads else []

    def matmul(self):
        """Seconds of all products of a step, by type."""
        note("products alone")
        out, kinds, kind = child([self.program("tests", "kernels", "bench_matmul"), *self.threads()])[0], {}, None
        for line in out.splitlines():
            if re.search(r", (bf16|f32)$", line):
                kind = line.rsplit(" ", 1)[1]
            found = re.match(r"all products of a step: ([\d.]+) s", line)
            if found and kind:
                kinds[kind] = float(found[1])
        if set(kinds) != {"bf16", "f32"}:
            raise Absent("bench_matmul did not say how long the products of a step take")
        c, a = self.config, self.a
        if (c["hidden_size"], c["num_hidden_layers"], c["vocab_size"], a.batch * a.length) != (576, 30, 49152, 1024):
            raise Absent("bench_matmul multiplies the shapes of SmolLM2-135M, 1024 tokens; this is something else")
        return kinds

    def adamw(self):
        """GB/s: streaming, AdamW in f32, AdamW with bf16 weights."""
        note("AdamW alone")
        out = child([self.program("tests", "kernels", "bench_adamw"), *self.threads()])[0]
        found = re.search(r"streaming ([\d.]+) GB/s.*adamw f32 ([\d.]+) GB/s.*bf16 weights ([\d.]+) GB/s", out)
        if not found:
            raise Absent(f"bench_adamw says something else: {out.strip()[:200]}")
        return tuple(float(x) for x in found.groups())

    def reading(self):
        """GB of weights that a token reads, GB/s of reading them alone, share of that which tokens reach in the bench."""
        note("reading weights alone")
        out = child([self.program("tests", "model", "bench_generate"), os.path.abspath(self.a.model), *self.threads()])[0]
        found = re.search(r"reads ([\d.]+) MB of weights.*reading alone ([\d.]+) GB/s: a share of ([\d.]+)", out)
        if not found:
            raise Absent(f"bench_generate says something else: {out.strip()[:200]}")
        return float(found[1]) / 1e3, float(found[2]), float(found[3])

    # ---- the rows: each gives (figure in words, value, detail)

    def against(self, dtype, kinds):
        mine, (theirs, kind) = self.pair(dtype, kinds)
        return mine["speed"] / theirs["speed"], f"{mine['speed']:.0f} tok/s; torch {kind} {theirs['speed']:.0f}"

    def share_of_products(self, dtype):
        products, step = self.matmul()[dtype], self.best(dtype)["seconds"]
        return products / step, f"products alone {products:.3f} s, step {step:.3f} s"

    def share_of_streaming(self):
        stream, f32, bf16 = self.adamw()
        return min(f32, bf16) / stream, f"{f32:.1f} GB/s in f32, {bf16:.1f} with bf16 weights; streaming {stream:.1f}"

    def peak(self):
        mine, (theirs, _) = self.pair("bf16", ("bf16", "amp"))[0], (self.rival("amp"), None)
        return mine["peak"] / theirs["peak"], f"{mine['peak']:.0f} MB; torch amp {theirs['peak']:.0f} MB"

    def load(self, dtype):
        note(f"loading, {dtype}")
        return json.loads(child([self.program("tests", "model", "bench_load"), os.path.abspath(self.a.model), dtype, *self.threads()])[0])

    def loaded(self, dtype):
        x = self.load(dtype)
        return x["after_mb"] / (x["state_mb"] + x["largest_mb"]), (
            f"{x['after_mb']:.0f} MB (peak {x['peak_mb']:.0f}); weights and masters {x['state_mb']:.0f}, largest tensor "
            f"{x['largest_mb']:.0f}; {x['gb_per_s']:.2f} GB/s")

    def quick(self):
        """Seconds from the launch of README's main command to the line of its first step; the best of three."""
        note("quick start")
        times = []
        for i in range(3):
            out = os.path.join(self.folder, f"quick-{i}")
            began = time.perf_counter()
            p = subprocess.Popen([self.program("zenflow-console"), os.path.join(SOURCE, "configs", "quickstart.cfg"), "--set", f"dir={out}",
                                  "--set", "steps=10", "--set", "cache=no"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in p.stdout:
                if re.match(r"step +1/", line):
                    times.append(time.perf_counter() - began)
            if p.wait():
                raise Absent(f"the quick start ended with {p.returncode}")
        return min(times), "launch of the main command to the end of its first step; a fresh directory, no cached rows"

    def long_rows(self):
        short, length = self.best("bf16"), self.a.length
        r = self.train("bf16", 1, 16 * length, 3)
        return r["speed"] / short["speed"], f"{r['speed']:.0f} tok/s; T {length}, B {self.a.batch}: {short['speed']:.0f}"

    def long_memory(self):
        """Bytes that a token more takes, from T/2 to T against from T/4 to T/2: 1 is linear."""
        lengths = [n * self.a.length for n in (4, 8, 16)]
        peaks = [self.train("bf16", 1, n, 3)["peak"] for n in lengths]
        first, second = (peaks[1] - peaks[0]) / (lengths[1] - lengths[0]), (peaks[2] - peaks[1]) / (lengths[2] - lengths[1])
        if first <= 0:
            raise Absent(f"memory does not grow with T: {peaks}")
        return second / first, ", ".join(f"T {n}: {p:.0f} MB" for n, p in zip(lengths, peaks))

    def generate(self):
        tokens, best = 96, 0
        for _ in range(3):
            note("generating")
            err = child([self.trainer(), "generate", os.path.abspath(self.a.model), "--ids", "504,2365,282,260", "--tokens", str(tokens),
                         "--dtype", "bf16", "--json", "--time", *(["--threads", str(self.a.threads)] if self.a.threads else [])])[1]
            found = re.search(r"([\d.]+) tokens/s", err)
            if not found:
                raise Absent(f"generate --time says something else: {err.strip()[:200]}")
            best = max(best, float(found[1]))
        return best

    def generated(self):
        size, reading, share = self.reading()
        speed = self.generate()
        return share, (f"of reading the {size:.3f} GB of weights alone at {reading:.1f} GB/s, in turns; `generate` itself: {speed:.1f} tokens/s, "
                       f"{speed * size / reading:.2f}")

    def data_share(self):
        """One epoch over text in JSON lines: read, checked, hashed, tokenised, packed, batched once for every time it is trained on."""
        note("one epoch of text")
        text = open(os.path.join(SOURCE, "configs", "data", "shakespeare.txt"), encoding="utf-8").read()
        path, size = os.path.join(self.folder, "text.jsonl"), 40 * self.a.batch * self.a.length
        with open(path, "w", encoding="utf-8") as f:
            for i in range(0, min(size, len(text)), 300):
                f.write(json.dumps({"text": text[i:i + 300]}) + "\n")
        data = [f"train = {path}", f"sequence_length = {self.a.length}", "pack = yes", "valid_split = 0.1", "cache = no"]
        r = self.run("bf16", self.a.batch, data, epochs=1)
        p = r["profile"]
        evaluation = sum(x["seconds"] for x in p["rows"] if x["phase"] == "validation")
        return p["data_cpu_seconds"] / r["cpu"], (
            f"{p['data_cpu_seconds']:.3f} of {r['cpu']:.1f} processor seconds: reading, checking, tokenising, packing, batching rows to train on and "
            f"to validate on, once each; {len(r['steps'])} steps (the validation's own forward took {evaluation:.1f} s)")


ROWS = [  # name, goal, is it met, figure, how it is measured
    ("tok/s bf16 against the better of torch bf16 and amp", ">= 2.0x", lambda x: x >= 2, "{:.2f}x", lambda b: b.against("bf16", ("bf16", "amp"))),
    ("tok/s f32 against torch f32", ">= 1.25x", lambda x: x >= 1.25, "{:.2f}x", lambda b: b.against("f32", ("f32",))),
    ("share of the products' own speed, whole step, bf16", ">= 0.6", lambda x: x >= 0.6, "{:.2f}", lambda b: b.share_of_products("bf16")),
    ("share of the products' own speed, whole step, f32", ">= 0.7", lambda x: x >= 0.7, "{:.2f}", lambda b: b.share_of_products("f32")),
    ("AdamW with write-back, share of streaming bandwidth", ">= 0.9", lambda x: x >= 0.9, "{:.2f}", Bench.share_of_streaming),
    ("peak resident memory against torch amp", "<= 0.8x", lambda x: x <= 0.8, "{:.2f}x", Bench.peak),
    ("resident after loading / (state + largest tensor), f32", "<= 1", lambda x: x <= 1, "{:.2f}", lambda b: b.loaded("f32")),
    ("resident after loading / (state + largest tensor), bf16", "<= 1", lambda x: x <= 1, "{:.2f}", lambda b: b.loaded("bf16")),
    ("quick start, launch to the end of its first step", "<= 1 s", lambda x: x <= 1, "{:.2f} s", Bench.quick),
    ("rows 16 times as long, B 1: tok/s against short ones", ">= 0.5x", lambda x: x >= 0.5, "{:.2f}x", Bench.long_rows),
    ("rows 16 times as long: memory a token (1: linear)", "<= 1.1", lambda x: x <= 1.1, "{:.2f}", Bench.long_memory),
    ("generate, bf16, one sequence, share of bandwidth", ">= 0.7", lambda x: x >= 0.7, "{:.2f}", Bench.generated),
    ("data: share of processor time", "<= 2 %", lambda x: x <= 0.02, "{:.2%}", Bench.data_share),
]

PRODUCTS, ATTENTION = ("matmul",), ("attention", "attention_backward")
NOT_A_STEP = ("validation", "other", "generation")


def part_of(row):
    """Which line of the second table an op belongs to, and what bounds it."""
    phase, op = row["phase"], row["op"]
    if phase in NOT_A_STEP:
        return None
    if op in PRODUCTS:
        return f"{phase}: products", "flops"
    if op in ATTENTION:
        return f"{phase}: attention", "flops"
    if op == "adamw":
        return f"{phase}: AdamW", "bytes"
    if op in ("sum_squares", "clip_factor"):
        return f"{phase}: gradient norm", "bytes"
    if op == "cross_entropy":
        return f"{phase}: cross-entropy", "bytes"
    return f"{phase}: norms, rotation, activations, copies", "bytes"


def phases(bench, dtype):
    """Where a step's time goes, each part against the machine's own speed of products or memory, in this same run."""
    profile = bench.best(dtype)["profile"]
    parts = {}
    for row in profile["rows"]:
        name = part_of(row)
        if name:
            sums = parts.setdefault(name, [0.0, 0.0, 0.0])
            for i, key in enumerate(("seconds", "flops", "bytes")):
                sums[i] += row[key]
    steps, whole = profile["steps"], profile["seconds"]
    limits = {}
    try:
        limits["flops"] = sum(v[1] for k, v in parts.items() if k[0].endswith(": products")) / steps / bench.matmul()[dtype]
    except Absent:
        pass
    try:
        limits["bytes"] = bench.adamw()[0] * 1e9
    except Absent:
        pass
    lines = []
    for (name, bound), (seconds, flops, size) in parts.items():
        rate = (flops if bound == "flops" else size) / seconds if seconds else 0
        unit = "GFLOP/s" if bound == "flops" else "GB/s"
        lines.append((name, f"{1e3 * seconds / steps:.1f}", f"{seconds / whole:.1%}", f"{rate / 1e9:.1f} {unit}",
                      f"{rate / limits[bound]:.2f}" if bound in limits else "-"))
    rest = max(0.0, whole - sum(v[0] for v in parts.values()))
    lines.append(("between: waiting, issuing", f"{1e3 * rest / steps:.1f}", f"{rest / whole:.1%}", "", ""))
    lines.append(("step", f"{1e3 * whole / steps:.1f}", "", "", ""))
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("--python")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--only", default="")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    if a.steps < 3 or a.rounds < 1:
        p.error("at least 3 steps and 1 round are needed: the first step of a run does not count")
    words = [w.strip() for w in a.only.split(",") if w.strip()]
    wanted = lambda name: not words or any(w in name for w in words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for program in PROGRAMS:
        try:
            built = subprocess.run(["ninja", "-C", a.build, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if built.returncode:
                print(f"{program} cannot be built: {built.stdout.strip()[-300:]}", file=sys.stderr)
        except FileNotFoundError:
            print(f"ninja is not installed: {program} is taken as it is", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        bench, lines = Bench(a, folder), []
        for name, goal, met, figure, measure in ROWS:
            if not wanted(name):
                continue
            try:
                value, detail = measure(bench)
                lines.append((name, goal, figure.format(value), "ok" if met(value) else "short", detail))
            except Absent as why:
                lines.append((name, goal, "-", "skipped", str(why)))
            note("{}: {} ({}) {}".format(*lines[-1]))
        print(f"{os.path.basename(os.path.abspath(a.model))}, B {a.batch}, T {a.length}, {a.threads or 'all'} threads, best of {a.rounds} rounds\n")
        if lines:
            show(("figure", "goal", "here", "", "how"), lines, a.markdown)
        for dtype in ("bf16", "f32"):
            if not wanted(f"phases {dtype}"):
                continue
            try:
                show((f"part of a step, {dtype}", "ms", "share of the step", "speed", "share of the machine's"), phases(bench, dtype), a.markdown)
            except Absent as why:
                print(f"phases of {dtype}: skipped: {why}\n")


main()
