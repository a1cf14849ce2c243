"""What ZenFlow's own work costs beside the training itself, against the goals of this project.

    python3 tests/bench/zenflow.py BUILD MODEL [--dtypes bf16,f32] [--rounds 2] [--steps 8] [--only WORDS] [--markdown]

MODEL is a Hugging Face folder; the goals are those of SmolLM2-135M, 4 rows of 256 tokens, k 0.1, S 4. Times are processor time of the threads of a
trainer with one compute thread, a lane a thread, over `steps` steps after the windows have filled; what an op takes of its lane is its share of
that lane's trace. Of several rounds the one with the least processor time a step counts. Rows of speed are of the clock, all threads.
Only ratios mean something. Linux, standard library only. BUILD is a directory that meson has set up; what is run is built first.
"""
import argparse
import collections
import glob
import json
import math
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

STRATEGIES = ("gpu_only", "zero_offload", "stronghold", "zenflow_sync", "zenflow", "selected_only")
RATIO, INTERVAL = 0.1, 4
SETTLED = INTERVAL + 3  # steps after which memory has been touched and windows are full
LANES = ("compute", "d2h", "h2d", "cpu")
ADAM = ("adamw", "adamw_rows", "serve_rows")
QUIET = {"select_interval": 0, "optimistic": "no", "score_every": 0}


def thread_seconds(pid):
    """Processor seconds of each thread, by name; names that lanes do not have together as "others"."""
    sums = collections.Counter()
    for path in glob.glob(f"/proc/{pid}/task/*"):
        try:
            name, spent = open(path + "/comm").read().strip(), int(open(path + "/schedstat").read().split()[0])
        except (FileNotFoundError, ProcessLookupError, ValueError):
            continue
        sums[name if name in LANES else "others"] += spent / 1e9
    return sums


def await_step(process, path, step):
    """Until metrics.jsonl has the line of that step."""
    while process.poll() is None:
        try:
            if f'"type":"step","step":{step},' in open(path).read():
                return
        except FileNotFoundError:
            pass
        time.sleep(0.005)
    raise Absent(f"the trainer ended with {process.returncode} before step {step}")


class Bench:
    def __init__(self, a, folder):
        self.a, self.folder, self.count, self.kept = a, folder, 0, {}
        self.config = json.load(open(os.path.join(a.model, "config.json")))

    def tokens(self, steps):
        a, path = self.a, os.path.join(self.folder, f"{steps}.safetensors")
        if not os.path.exists(path):
            count, r = a.batch * steps * a.length, random.Random(1)
            header = json.dumps({"input_ids": {"dtype": "I32", "shape": [a.batch * steps, a.length], "data_offsets": [0, 4 * count]}}).encode()
            with open(path, "wb") as f:
                f.write(struct.pack("<Q", len(header)) + header)
                f.write(struct.pack(f"<{count}i", *(r.randrange(10, self.config["vocab_size"]) for _ in range(count))))
        return path

    def cfg(self, dtype, threads, steps, options):
        self.count += 1
        path, out = (os.path.join(self.folder, f"run-{self.count}{x}") for x in (".cfg", ""))
        log = {k: options[k] for k in ("score_every", "trace_steps") if k in options}
        zenflow = {"strategy": "zenflow", "topk_ratio": RATIO, "update_interval": INTERVAL, **{k: v for k, v in options.items() if k not in log}}
        sections = {"run": {"dir": out, "threads": threads}, "model": {"path": os.path.abspath(self.a.model), "dtype": dtype},
                    "data": {"train": self.tokens(steps)}, "train": {"batch_size": self.a.batch, "steps": steps, "learning_rate": 1e-5},
                    "zenflow": zenflow, "log": log}
        with open(path, "w") as f:
            for section, lines in sections.items():
                f.write(f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items()))
        return path, out

    def trainer(self):
        path = os.path.join(self.a.build, "zenflow-trainer")
        if not os.path.exists(path):
            raise Absent("zenflow-trainer is not built")
        return path

    def clear(self, out):
        for root, _, files in os.walk(os.path.join(out, "exports")):
            for name in files:
                os.remove(os.path.join(root, name))

    # ---- processor time of a step: by lane, and within a lane by op

    def once(self, dtype, options):
        a = self.a
        first, last = SETTLED, SETTLED + a.steps
        path, out = self.cfg(dtype, 1, last + 1, {**options, "trace_steps": f"{first + 1}-{last}"})
        metrics = os.path.join(out, "metrics.jsonl")
        p = subprocess.Popen([self.trainer(), path, "--plain"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            await_step(p, metrics, first)
            before = thread_seconds(p.pid)
            await_step(p, metrics, last)
            after = thread_seconds(p.pid)
            errors = p.communicate()[1]
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()
        if p.returncode:
            raise Absent(f"the trainer ended with {p.returncode}: {errors.decode(errors='replace').strip()[-300:]}")
        self.clear(out)
        lanes = {n: (after[n] - before[n]) / a.steps for n in (*LANES, "others")}
        busy, shares = collections.Counter(), collections.Counter()
        events = json.load(open(glob.glob(os.path.join(out, "traces", "*.json"))[0]))["traceEvents"]
        for e in events:
            if e["ph"] == "X" and e["cat"] != "wait":
                busy[e["tid"]] += e["dur"]
                shares[e["tid"], e["name"], e["cat"]] += e["dur"]
        ops = {(LANES[tid - 1], op, phase): lanes[LANES[tid - 1]] * x / busy[tid] for (tid, op, phase), x in shares.items()}
        steps = [m for m in map(json.loads, open(metrics)) if m["type"] == "step"]
        return {"lanes": lanes, "ops": ops, "all": sum(lanes.values()), "steps": steps}

    def run(self, dtype, **options):
        """The round with the least processor time."""
        key = dtype, tuple(sorted(options.items()))
        if key not in self.kept:
            rounds = []
            for i in range(self.a.rounds):
                note(f"{dtype}, {', '.join(f'{k} {v}' for k, v in options.items())}, round {i + 1}")
                rounds.append(self.once(dtype, options))
            self.kept[key] = min(rounds, key=lambda r: r["all"])
        return self.kept[key]

    def only(self, dtype):
        return self.run(dtype, strategy="gpu_only", score_every=0)

    def handing(self, run):
        """Seconds a step of what is neither forward nor backward nor Adam nor the norm, by what it is."""
        parts = collections.Counter()
        for (lane, op, phase), seconds in run["ops"].items():
            if lane == "compute" and op in ("hand_over", "move_rows", "row_sums", "vhat_rows") or lane == "compute" and op == "copy" and phase == "update":
                parts[op] += seconds
            elif lane in ("d2h", "h2d"):
                parts[lane] += seconds
            elif lane == "cpu" and op not in ADAM:
                parts[op] += seconds
        return parts

    def show_parts(self, parts, whole):
        return ", ".join(f"{k} {v / whole:.2%}" for k, v in sorted(parts.items(), key=lambda x: -x[1]) if v / whole >= 5e-4)

    # ---- the rows: each gives (figure, detail)

    def overhead(self, dtype):
        step, parts = self.only(dtype)["all"], self.handing(self.run(dtype, **QUIET))
        parts["scores, every 16 steps"] = self.scores(dtype) / 16  # the default of score_every
        return sum(parts.values()) / step, f"of a step's {step:.3f} s: {self.show_parts(parts, step)}"

    def scores(self, dtype):
        """Seconds that scores of all matrices take beside the norm, which is taken from the same reading: in a run in which a step's
        selections have one of INTERVAL parts of the matrices, the norm alone the others."""
        ops = self.run(dtype, **{**QUIET, "select_interval": INTERVAL})["ops"]
        both, norm = (sum(s for (_, op, _), s in ops.items() if op == name) for name in ("row_sums", "sum_squares"))
        return INTERVAL * max(0, both - norm / (INTERVAL - 1))

    def selection(self, dtype):
        """Every matrix once in INTERVAL steps, against never."""
        step = self.only(dtype)["all"]
        with_, without = self.run(dtype, **{**QUIET, "select_interval": INTERVAL}), self.run(dtype, **QUIET)
        moved = sum(self.handing(with_)[k] - self.handing(without)[k] for k in ("move_rows", "copy"))
        moved += with_["lanes"]["others"] - without["lanes"]["others"]
        return self.scores(dtype) / step, ("scores of all matrices, beside the norm; choosing, and moving the state of channels that change owner (here of "
                                           f"random tokens, the most there can be), {INTERVAL * max(0, moved) / step:.2%} more, every select_interval steps")

    def optimistic(self, dtype):
        """Hand-over that moves, second moments; rows ahead and by chance as the kernel alone is slower with them."""
        step, parts = self.only(dtype)["all"], collections.Counter(self.handing(self.run(dtype, **{**QUIET, "optimistic": "yes"})))
        parts.subtract(self.handing(self.run(dtype, **QUIET)))
        del parts["d2h"]  # the same bytes
        kernel, count = self.kernels(), sum(n for n, _ in self.matrices()) * (1 - RATIO)
        parts["rows ahead"] = (kernel["serve_rows, four, ahead, by chance"] - kernel["serve_rows, four entries"]) * 1e-12 * count / INTERVAL
        return sum(parts.values()) / step, self.show_parts(parts, step)

    def kernels(self):
        """Nanoseconds of processor time for 1000 elements of each op of bench_rows, and its ratios: of the shape that is worst."""
        if "kernels" not in self.kept:
            path = os.path.join(self.a.build, "tests", "kernels", "bench_rows")
            if not os.path.exists(path):
                raise Absent("bench_rows is not built")
            note("kernels of rows alone")
            out = subprocess.run([path], capture_output=True, text=True, check=True).stdout
            found = {}
            for name, figure in re.findall(r"^  (\S.*?) +([\d.]+) ns/1000", out, re.M):
                found[name] = max(found.get(name, 0), float(figure))
            for passes, mean in re.findall(r"four entries at once: ([\d.]+) of four passes.*?, ([\d.]+) of it with its folds", out):
                found["passes"] = max(found.get("passes", 0), float(passes))
                found["mean"] = max(found.get("mean", 0), float(mean))
            self.kept["kernels"] = found
        return self.kept["kernels"]

    def each_to_mean(self):
        found = self.kernels()
        return found["mean"], "the CPU half's kernels alone, four entries at once against their sum and one update by it (bench_rows)"

    def each_to_passes(self):
        return self.kernels()["passes"], "as above, against four updates by one entry each"

    def memory(self, update):
        """Of the plan, which is what the pipeline allocates at most. Bytes a parameter of the CPU half."""
        path, out = self.cfg("bf16", 1, 1, {**QUIET, "cpu_update": update})
        p = subprocess.run([self.trainer(), "check", path, "--json"], capture_output=True, text=True)
        if p.returncode:
            raise Absent(f"check: {p.stderr.strip()[-300:]}")
        bytes_, sizes = json.loads(p.stdout)["memory"]["bytes"], self.matrices()
        count = sum(n for n, _ in sizes) * (1 - RATIO)
        rings = 6 * 4 * 2**20  # between the lanes, in device memory
        staging, before, total = [0] * INTERVAL, 0, sum(n for n, _ in sizes)
        for n, _ in sizes:  # rows on their way up, of the matrices that a step's service takes
            for step in range(INTERVAL * before // total, -(-INTERVAL * (before + n) // total)):
                staging[step] += n * (1 - RATIO) * 2
            before += n
        formula = 18 + 4 / INTERVAL if update == "mean" else 15 + INTERVAL
        used = (bytes_["CPU half"] + bytes_["slots"] - rings) / count
        allowed = formula + max(staging) / count
        return used / allowed, f"{used:.2f} bytes; {formula:g} and {max(staging) / count:.2f} of a service's staging are {allowed:.2f}"

    def matrices(self):
        """Elements and shapes, in the order of the file's names by layer: embeddings first, a head of its own last."""
        with open(os.path.join(self.a.model, "model.safetensors"), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        kinds = ("embed", "wte", "q_proj", "k_proj", "v_proj", "o_proj", "gate", "up_", "down")
        place = lambda name: next((i for i, k in enumerate(kinds) if k in name), len(kinds))
        number = lambda name: int((re.findall(r"\.(\d+)\.", name) or [-1])[0])
        names = [n for n, t in header.items() if n != "__metadata__" and len(t["shape"]) == 2]
        order = sorted(names, key=lambda n: (n.startswith("lm_head"), number(n), place(n)))
        return [(math.prod(header[n]["shape"]), header[n]["shape"]) for n in order if not (n.startswith("lm_head") and self.config.get("tie_word_embeddings"))]

    # ---- strategies

    def speeds(self, dtype):
        """(strategy, tokens/s, against gpu_only, processor seconds a step), the best of the rounds."""
        a, best = self.a, {}
        for i in range(a.rounds):
            for strategy in STRATEGIES:
                note(f"{dtype}, {strategy}, round {i + 1}")
                steps = SETTLED + a.steps
                path, out = self.cfg(dtype, a.threads, steps + 1, {"strategy": strategy})
                p = subprocess.Popen([self.trainer(), path, "--plain"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    await_step(p, os.path.join(out, "metrics.jsonl"), SETTLED)
                    before = sum(thread_seconds(p.pid).values())
                    await_step(p, os.path.join(out, "metrics.jsonl"), steps)
                    spent = (sum(thread_seconds(p.pid).values()) - before) / a.steps
                finally:
                    if p.poll() is None:
                        try:
                            p.wait(60)
                        except subprocess.TimeoutExpired:
                            p.kill()
                            p.wait()
                lines = [m for m in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if m["type"] == "step"]
                seconds = statistics.median(m["step_ms"] for m in lines[SETTLED:steps]) / 1e3
                self.clear(out)
                old = best.get(strategy, (math.inf, math.inf))
                best[strategy] = min(old[0], seconds), min(old[1], spent)
        tokens, (base, base_cpu) = a.batch * a.length, best["gpu_only"]
        return [(s, f"{tokens / best[s][0]:.0f}", f"{base / best[s][0]:.2f}x", f"{best[s][1]:.3f}", f"{best[s][1] / base_cpu:.2f}x") for s in STRATEGIES]


ROWS = [  # name, goal, is it met, figure, how it is measured, by type?
    ("hand-offs, scores, gather, scatter, packing: share of a gpu_only step", "<= 5 %", lambda x: x <= 0.05, "{:.2%}", Bench.overhead, True),
    ("a selection over all matrices: share of a step", "<= 1 %", lambda x: x <= 0.01, "{:.2%}", Bench.selection, True),
    ("optimistic adds to a gpu_only step", "<= 3 %", lambda x: x <= 0.03, "{:.2%}", Bench.optimistic, True),
    ("each at S 4 against mean, a window", "<= 1.4x", lambda x: x <= 1.4, "{:.2f}x", Bench.each_to_mean, False),
    ("each at S 4 against S separate passes", "<= 0.45x", lambda x: x <= 0.45, "{:.2f}x", Bench.each_to_passes, False),
    ("CPU half, mean: against 18 + 4/S bytes and staging", "<= 1", lambda x: x <= 1, "{:.3f}", lambda b: b.memory("mean"), False),
    ("CPU half, each: against 15 + S bytes and staging", "<= 1", lambda x: x <= 1, "{:.3f}", lambda b: b.memory("each"), False),
]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("--dtypes", default="bf16,f32")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--steps", type=int, default=2 * INTERVAL)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--only", default="")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    if a.steps < INTERVAL or a.steps % INTERVAL or a.rounds < 1:
        p.error(f"steps are a multiple of {INTERVAL}, rounds at least 1")
    words = [w.strip() for w in a.only.split(",") if w.strip()]
    wanted = lambda name: not words or any(w in name for w in words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for program in ("zenflow-trainer", "tests/kernels/bench_rows"):
        try:
            built = subprocess.run(["ninja", "-C", a.build, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if built.returncode:
                print(f"{program} cannot be built: {built.stdout.strip()[-300:]}", file=sys.stderr)
        except FileNotFoundError:
            print(f"ninja is not installed: {program} is taken as it is", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        bench, lines, dtypes = Bench(a, folder), [], a.dtypes.split(",")
        for row, goal, met, figure, measure, typed in ROWS:
            for dtype in dtypes if typed else [None]:
                name = f"{row}, {dtype}" if typed else row
                if not wanted(name):
                    continue
                try:
                    value, detail = measure(bench, dtype) if typed else measure(bench)
                    lines.append((name, goal, figure.format(value), "ok" if met(value) else "short", detail))
                except Absent as why:
                    lines.append((name, goal, "-", "skipped", str(why)))
                note("{}: {} ({}) {} {}".format(*lines[-1]))
        print(f"{os.path.basename(os.path.abspath(a.model))}, B {a.batch}, T {a.length}, k {RATIO}, S {INTERVAL}, best of {a.rounds} rounds\n")
        if lines:
            show(("figure", "goal", "here", "", "how"), lines, a.markdown)
        for dtype in dtypes:
            if wanted(f"strategies, {dtype}"):
                try:
                    show((f"strategies, {dtype}", "tokens/s", "", "processor s a step", ""), bench.speeds(dtype), a.markdown)
                except Absent as why:
                    print(f"strategies, {dtype}: skipped: {why}\n")


main()
