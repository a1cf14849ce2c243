"""The check on a real GPU: see tests/gpu-check.sh. Python's standard library only.

`run --emulated` is the same with the emulated device and tiny models: so the tests know that this script works.
"""

import argparse
import glob
import json
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

# Dense bf16 of the data sheets, FLOP/s. A GPU that is not here has no MFU.
PEAKS = [("GB200", 2500e12), ("B200", 2250e12), ("H200", 989e12), ("H100 PCIe", 756e12), ("H100", 989e12), ("A100", 312e12), ("A10", 125e12), ("L40S", 362e12), ("4090", 165e12)]
TINY = {"family": "qwen3", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 32, "ffn": 160, "vocab": 300, "context": 64}
SMOLLM2 = {"family": "llama", "layers": 30, "hidden": 576, "heads": 9, "kv_heads": 3, "ffn": 1536, "vocab": 49152, "context": 2048}
QWEN = {"family": "qwen2", "layers": 28, "hidden": 1536, "heads": 12, "kv_heads": 2, "ffn": 8960, "vocab": 151936, "context": 2048}
STRATEGIES = ["gpu_only", "zenflow", "zenflow_sync", "stronghold", "zero_offload"]
CACHED = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux", "linux-vdso", "libcuda", "libutil.so", "libresolv.so")


def words_of(text, pattern):
    found = re.search(pattern, text)
    return found.group(1).strip() if found else ""


class Check:
    def __init__(self, o):
        self.programs, self.out, self.emulated = os.path.abspath(o.programs), os.path.abspath(o.out), o.emulated
        self.trainer = self.find("zenflow-trainer-emulated" if o.emulated else "zenflow-trainer")
        self.end = time.monotonic() + o.seconds
        self.failed, self.rows = [], []
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join([self.programs + "/lib", *cuda_folders(), os.environ.get("LD_LIBRARY_PATH", "")]))
        os.makedirs(self.out, exist_ok=True)

    def find(self, name):
        for at in (name, "tests/" + name, "tests/gpu/" + name):
            path = os.path.join(self.programs, at)
            if os.path.exists(path):
                return path
        sys.exit(f"check.py: there is no {name} in {self.programs}")

    def left(self):
        return self.end - time.monotonic()

    def say(self, text):
        print(f"[{self.left():4.0f} s left] {text}", flush=True)

    def judge(self, good, text):
        self.say(("good:   " if good else "FAILED: ") + text)
        if not good:
            self.failed.append(text)

    def command(self, words, most):
        try:
            done = subprocess.run(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=max(5, min(most, self.left())))
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            out = late.stdout or b""
            return 124, (out if isinstance(out, str) else out.decode(errors="replace")) + f"\n(ended after {most:.0f} s)"

    # ---- runs ----

    def config(self, name, sections):
        lines = []
        for section, options in sections.items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {value}" for key, value in (options.items() if isinstance(options, dict) else options)]
        path = os.path.join(self.out, name + ".cfg")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        return path

    def train(self, name, model, data, device, steps, batch, most, dtype="bf16", zenflow=None, at=(), log=None, micro=0):
        shutil.rmtree(os.path.join(self.out, name), ignore_errors=True)
        train = {"steps": steps, "batch_size": batch, "learning_rate": "3e-4", "schedule": "constant"}
        if micro:
            train["micro_batch"] = micro
        path = self.config(name, {
            "run": {"dir": os.path.join(self.out, name), "seed": 1, "device": device},
            "model": {**model, "tokenizer": "bytes", "dtype": dtype},
            "data": {"train": data, "format": "tokens"},
            "train": train, "zenflow": zenflow or {"strategy": "gpu_only"},
            "checkpoint": {"keep": 1}, "log": log or {}, "at": list(at)})
        rc, text = self.command([self.trainer, path, "--plain"], most)
        lines = []
        metrics = os.path.join(self.out, name, "metrics.jsonl")
        if os.path.exists(metrics):
            lines = [json.loads(line) for line in open(metrics)]
        for heavy in ("checkpoints", "exports"):
            shutil.rmtree(os.path.join(self.out, name, heavy), ignore_errors=True)
        if rc:
            self.judge(False, f"run {name} ended with {rc}:\n" + "\n".join(text.splitlines()[-12:]))
        return [line for line in lines if line["type"] == "step"], lines

    # ---- parts ----

    def facts(self):
        if not self.emulated:
            rc, text = self.command(["nvidia-smi"], 20)
            print(text if not rc else "nvidia-smi did not answer: " + text)
        rc, text = self.command([self.trainer, "doctor"], 60)
        print(text)
        name = words_of(self.command(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 20)[1], r"(.*)") if not self.emulated else "emulated"
        self.peak = next((peak for key, peak in PEAKS if key in name), 0)

    def kernels(self):
        for path in sorted(glob.glob(self.programs + "/gpu_*") + glob.glob(self.programs + "/tests/gpu/gpu_*")):
            if not os.access(path, os.X_OK) or os.path.isdir(path):
                continue
            rc, text = self.command([path], 60)
            count = words_of(text, r"\[  PASSED  \] (\d+)")
            why = "" if not rc else ":\n" + "\n".join([line for line in text.splitlines() if "[  FAILED" in line or "rror" in line][:20] + text.splitlines()[-5:])
            self.judge(rc == 0, f"{os.path.basename(path)}: {count or 0} tests" + why)

    def same_as_host(self):
        data = tokens(os.path.join(self.out, "tiny.safetensors"), 64, 64, TINY["vocab"])
        for dtype, tolerance in (("f32", 2e-5), ("bf16", 5e-3)):
            for strategy in ("gpu_only", "zenflow"):
                seen = {}
                for device in ("cuda", "host"):
                    steps, _ = self.train(f"tiny-{dtype}-{strategy}-{device}", TINY, data, device, 12, 4, 60, dtype, {"strategy": strategy, "update_interval": 2, "select_interval": 4})
                    seen[device] = [s["loss"] for s in steps]
                far = max((abs(a - b) / abs(b) for a, b in zip(seen["cuda"], seen["host"])), default=9)
                self.judge(len(seen["cuda"]) == len(seen["host"]) == 12 and far < tolerance, f"12 steps of a tiny model, {strategy}, {dtype}: losses as the host's within {far:.1e} (at most {tolerance:.0e})")

    def curve(self):
        model, rows, batch, steps = (TINY, 64, 4, 6) if self.emulated else (SMOLLM2, 512, 8, 8)
        data = tokens(os.path.join(self.out, "curve.safetensors"), 64, rows, model["vocab"])
        losses = []
        for device in ("cuda", "host"):
            steps_seen, _ = self.train("curve-" + device, model, data, device, steps, batch, 90, zenflow={"strategy": "zenflow"})
            losses.append([s["loss"] for s in steps_seen])
        far = max((abs(a - b) / abs(b) for a, b in zip(*losses)), default=9)
        print("    GPU ", " ".join(f"{x:8.4f}" for x in losses[0]))
        print("    host", " ".join(f"{x:8.4f}" for x in losses[1]))
        self.judge(len(losses[0]) == steps and len(losses[1]) == steps and far < 5e-3, f"SmolLM2's shape, zenflow, bf16: losses as the host's within {far:.1e} (at most 5e-03)")

    def speed(self):
        """All strategies in one run, changed as it goes: the weights are made once."""
        model, length, batch, each = (TINY, 64, 4, 5) if self.emulated else (QWEN, 1024, 8, 10)
        data = tokens(os.path.join(self.out, "speed.safetensors"), 64, length, model["vocab"])
        at = [(1 + i * each, f"set! strategy {name}") for i, name in enumerate(STRATEGIES) if i]
        steps, lines = self.train("speed", model, data, "cuda", each * len(STRATEGIES), batch, max(60, self.left() - 10), zenflow={"strategy": STRATEGIES[0]}, at=at,
                                  log={"trace_steps": f"{each + each // 2}-{each + each // 2 + 1}"})
        start = next((line for line in lines if line["type"] == "start"), None)
        if len(steps) < each * len(STRATEGIES):
            self.judge(False, f"the run of all strategies has {len(steps)} of {each * len(STRATEGIES)} steps")
        for i, name in enumerate(STRATEGIES):
            mine = [s for s in steps if i * each + 2 < s["step"] <= (i + 1) * each]  # the first ones change over
            if start and mine:
                self.rows.append(self.figures(name, mine, start["parameters"], model, length))
        for path in glob.glob(os.path.join(self.out, "speed", "traces", "*")):
            self.say(f"a trace: {path} ({os.path.getsize(path)} bytes)")

    def figures(self, name, steps, parameters, model, length):
        def middle(field):
            return statistics.median(s.get(field, 0) for s in steps)

        tokens_step, ms = middle("tokens"), middle("step_ms")
        # 6 a parameter and token, and causal attention: 6 * layers * width * length
        flops = tokens_step * (6 * parameters + 6 * model["layers"] * model.get("head_dim", model["hidden"] // model["heads"]) * model["heads"] * length)
        return {"strategy": name, "step_ms": ms, "tokens_s": tokens_step / ms * 1e3, "tflops": flops / ms / 1e9, "mfu": flops / (ms / 1e3) / self.peak if self.peak else None,
                "stall": middle("stall_ms") / ms, "d2h_mb": middle("d2h_bytes") / 2**20, "h2d_mb": middle("h2d_bytes") / 2**20, "device_gb": middle("memory_device") / 2**30,
                "loss": steps[-1]["loss"]}

    def table(self):
        head = f"{'strategy':14}{'ms/step':>10}{'tokens/s':>11}{'TFLOP/s':>9}{'MFU':>7}{'stall':>7}{'MB down':>9}{'MB up':>8}{'GB GPU':>8}{'of none':>9}"
        print("\n" + head)
        none = next((r["step_ms"] for r in self.rows if r["strategy"] == "gpu_only"), None)
        for r in self.rows:
            mfu = "n/a" if r["mfu"] is None else f"{100 * r['mfu']:.1f}%"
            print(f"{r['strategy']:14}{r['step_ms']:10.1f}{r['tokens_s']:11.0f}{r['tflops']:9.1f}{mfu:>7}{100 * r['stall']:6.1f}%{r['d2h_mb']:9.0f}{r['h2d_mb']:8.0f}{r['device_gb']:8.2f}{r['step_ms'] / none if none else 0:9.2f}")
        with open(os.path.join(self.out, "summary.json"), "w") as f:
            json.dump({"rows": self.rows, "failed": self.failed}, f, indent=1)
        print(f"\n{len(self.failed)} checks failed" + "".join("\n  " + text.splitlines()[0] for text in self.failed))


def cuda_folders():
    """Where cuBLAS and NCCL may be: the toolkit, or Python's packages of NVIDIA."""
    site = subprocess.run([sys.executable, "-c", "import site,sysconfig;print(*site.getsitepackages(),sysconfig.get_paths()['purelib'],sep='\\n')"], stdout=subprocess.PIPE, text=True).stdout.split()
    found = ["/usr/local/cuda/lib64"] + [f for s in site for f in glob.glob(s + "/nvidia/*/lib")]
    return [f for f in dict.fromkeys(found) if glob.glob(f + "/libcublas*.so*") or glob.glob(f + "/libnccl*.so*")]


def tokens(path, rows, length, vocab):
    """Rows that can be learnt: a token mostly follows from the one before it."""
    draw = random.Random(1)
    follows = [draw.randrange(vocab) for _ in range(vocab)]
    data = bytearray()
    for _ in range(rows):
        x = draw.randrange(vocab)
        for _ in range(length):
            data += struct.pack("<q", x)
            x = follows[x] if draw.random() < 0.8 else draw.randrange(vocab)
    head = json.dumps({"input_ids": {"dtype": "I64", "shape": [rows, length], "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
    return path


def pack(o):
    """Programs, stripped, with every library that is not the system's own."""
    build, libraries = os.path.abspath(o.programs), {}
    programs = [build + "/zenflow-trainer", *(p for p in glob.glob(build + "/tests/gpu/gpu_*") if not os.path.isdir(p))]
    for program in programs:
        for line in subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
            found = re.match(r"\s*(\S+) => (\S+)", line)
            if found and not found.group(1).startswith(CACHED):
                libraries[found.group(1)] = found.group(2)
    with tempfile.TemporaryDirectory() as room, tarfile.open(o.file, "w:xz", preset=6) as tar:
        tar.add(os.path.abspath(__file__), "check.py")
        for path, name in [(p, os.path.basename(p)) for p in programs] + [(p, "lib/" + n) for n, p in libraries.items()]:
            stripped = os.path.join(room, "stripped")
            subprocess.run(["strip", "-o", stripped, os.path.realpath(path)], check=True)
            tar.add(stripped, name)
    size = os.path.getsize(o.file)
    print(f"{o.file}: {size / 1e6:.1f} MB, {len(programs)} programs, {len(libraries)} libraries")
    return 0 if size < 60e6 else 1


def run(o):
    check = Check(o)
    parts = [check.facts, check.kernels, check.same_as_host, check.curve, check.speed]
    for part in parts:
        if check.left() < 5:
            check.judge(False, f"no time was left for {part.__name__}")
            continue
        part()
    check.table()
    return 1 if check.failed else 0


def main():
    words = argparse.ArgumentParser()
    words.add_argument("verb", choices=["run", "pack"])
    words.add_argument("--programs", required=True)
    words.add_argument("--out", default="gpu-check.out")
    words.add_argument("--file", default="gpu-check.tar.xz")
    words.add_argument("--seconds", type=float, default=290)
    words.add_argument("--emulated", action="store_true")
    o = words.parse_args()
    return run(o) if o.verb == "run" else pack(o)


if __name__ == "__main__":
    sys.exit(main())
