#!/usr/bin/env python3
"""Writes a run directory as a trainer would have left it: metrics.jsonl and journal.jsonl of a made-up but likely run. The same arguments
give the same bytes, so that frames drawn from it can be compared with kept ones.

    make_run.py RUN [--steps N] [--layers L] [--rate STEPS_A_SECOND] [--score-every N] [--lanes N] [--hostile] ...

It has all types of lines (README, metrics.jsonl), `lanes` too, which a real file lacks: of the newest --lanes steps.
--hostile adds what no trainer writes: escape sequences, broken UTF-8, wrong types, torn and endless lines.
"""

import argparse
import json
import math
import os
import random

PHASES = ("ACC", "UP", "UPLOAD")
TOPS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
SHAPES = (("self_attn.q_proj", 576, 576), ("self_attn.k_proj", 576, 192), ("self_attn.v_proj", 576, 192), ("self_attn.o_proj", 576, 576),
          ("mlp.gate_proj", 576, 1536), ("mlp.up_proj", 576, 1536), ("mlp.down_proj", 1536, 576))  # fmt: skip
SAMPLES = (
    "To be, or not to be: that is the quarrel of the night.",
    "ROMEO:\nWhat light is this that yonder breaks?\n",
    "naïve café — 東京",
)
OPTIONS = {
    "dir": "runs/sky", "seed": 1, "device": "auto", "threads": 8, "path": "models/sky-135m", "dtype": "bf16", "train": ["sky.jsonl"],
    "valid_split": 0.01, "steps": 0, "batch_size": 16, "micro_batch": 0, "learning_rate": 2e-5, "schedule": "cosine", "warmup_steps": 40,
    "schedule_steps": 0, "min_learning_rate": 0.0, "weight_decay": 0.01, "clip_norm": 1.0, "strategy": "zenflow", "topk_ratio": 0.1,
    "update_interval": 4, "select_interval": 64, "swap": "staggered", "cpu_update": "each", "optimistic": True, "save_every": 0,
    "save_minutes": 30.0, "keep": 3, "log_every": 1, "score_every": 16, "log_channels": False, "norms_every": 0, "sample_every": 0,
}  # fmt: skip


def text_of(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def share(ratio, tail):
    """Of the squared norm, in the best channels, where the k-th has k**-tail."""
    return ratio ** max(0.02, 1 - tail) if tail < 1 else min(1.0, ratio**0.05)


class Matrix:
    def __init__(self, name, channels, length, depth, rng):
        self.name, self.channels, self.length, self.depth = name, channels, length, depth
        self.tail = 0.3 + 0.55 * (1 - depth) + 0.08 * rng.random()
        bins = min(64, channels)
        self.bins = [-6 - 1.5 * depth + rng.gauss(0, 0.25) + (2.2 if rng.random() < 0.07 else 0) for _ in range(bins)]
        self.drift = [rng.gauss(0, 0.4) for _ in range(bins)]

    def at(self, progress, rng):
        """Exponent of the tail, bins of the scores at this time."""
        wobble = rng.random
        bins = [b + d * progress - 0.8 * progress + 0.1 * wobble() for b, d in zip(self.bins, self.drift)]
        return min(0.97, self.tail + 0.12 * progress + 0.02 * wobble()), bins


class Run:
    def __init__(self, args):
        self.a = args
        self.rng = random.Random(args.seed)
        self.options = dict(OPTIONS, steps=args.steps, schedule_steps=args.steps, score_every=args.score_every)
        self.options["log_channels"] = args.log_channels
        self.matrices = [Matrix("model.embed_tokens.weight", 49152, 576, 0.0, self.rng)]
        for layer in range(args.layers):
            depth = layer / max(1, args.layers - 1)
            for name, channels, length in SHAPES:
                self.matrices.append(Matrix(f"model.layers.{layer}.{name}.weight", channels, length, depth, self.rng))
        self.time = 0.2
        self.skipped = 0
        self.tokens = 16 * 256
        self.gpu_next = 0.0
        self.lines, self.journal = [], []

    def put(self, line):
        self.lines.append(line if isinstance(line, str) else text_of(line))

    def note(self, kind, step, words):
        self.put({"type": kind, "step": step, "text": words})

    def journal_put(self, entry):
        minutes = self.time / 60
        entry["time"] = f"2026-03-01T{8 + int(minutes // 60) % 16:02d}:{int(minutes) % 60:02d}:{self.time % 60:06.3f}Z"
        self.journal.append(text_of(entry))

    def start(self):
        parameters = sum(m.channels * m.length for m in self.matrices) + 576 * (2 * self.a.layers + 1)
        self.put({
            "type": "start", "version": "0.1.0", "model": self.options["path"], "parameters": parameters, "device": "cuda",
            "device_description": "one GPU, 80 GiB", "threads": 8, "pinned": True, "placement": "8 cores", "adam_gb_s": 92.5,
            "dtype": "bf16", "strategy": "zenflow", "options": self.options,
            "data": {"rows": 120000, "valid_rows": 1200, "tokens": 30720000},
            "matrices": [{"name": m.name, "channels": m.channels, "length": m.length} for m in self.matrices], "attempt": 1,
        })  # fmt: skip
        self.journal_put({"type": "start", "run": "5a1e0f7c33d2b911", "model": "models/sky-135m", "data": "sky.jsonl", "seed": "1",
                          "steps": self.a.steps})  # fmt: skip
        self.note("note", 0, "train: 3 of 120000 rows have no label token")

    def change(self, step, option, value, by="console"):
        old, self.options[option] = self.options[option], value
        what = {"option": option, "old": old, "new": value}
        self.put({"type": "change", "step": step - 1, **what, "from_step": step, "by": by, "user": "ada"})
        entry = {"type": "change", "step": step - 1, "from_step": step, "command": f"set {option} {value}", "by": by, "user": "ada"}
        self.journal_put({**entry, "changes": [what]})

    def rate(self, step):
        o = self.options
        p = min(1.0, (step - 1) / max(1, o["schedule_steps"]))
        rate = o["learning_rate"] * (1 + math.cos(math.pi * p)) / 2
        return rate * min(1.0, step / o["warmup_steps"]) if o["warmup_steps"] else rate

    def loss(self, step):
        p = step / self.a.steps
        loss = 2.05 + 1.9 * math.exp(-6 * p) + 0.6 * math.exp(-60 * p) - 0.12 * p + self.rng.gauss(0, 0.05)
        return loss + (0.9 if step % 397 == 0 else 0)

    def groups(self, step):
        s = self.options["update_interval"]
        parts = []
        for g in range(s):
            k = (step - g) % s
            phase = PHASES[1 if k < 2 else 2 if k == 2 else 0] if step > s else "ACC"
            parts.append(
                f'{{"fill":{(k % s) / s},"phase":"{phase}","staleness":{min(step, 1 + (k + 1) % s + (s if phase == "UP" else 0))},'
                f'"due":{step + 1 + (s - k) % s}}}'
            )
        return ",".join(parts)

    def step(self, step):
        rng, s = self.rng, self.options["update_interval"]
        ms = 1000 / self.a.rate * (1 + 0.04 * rng.random())
        stall = 0.0 if rng.random() < 0.93 else ms * 0.08 * rng.random()
        if step % 211 == 0:
            stall = 0.35 * ms
            ms += stall
        compute = (ms - stall) * (0.9 + 0.04 * rng.random())
        bad = step == int(0.45 * self.a.steps) and step > 10
        loss, norm = self.loss(step), abs(0.75 + 0.8 * math.exp(-8 * step / self.a.steps) + rng.gauss(0, 0.12))
        clip = min(1.0, 1 / norm) if norm else 1.0
        self.skipped += bad
        moved = 1.0 - self.options["topk_ratio"]
        down, up = int(269000000 * moved), int(269000000 * moved / s)
        began, self.time = self.time, self.time + ms / 1000
        words = ('"nan"', '"inf"', "0.0") if bad else (repr(loss), repr(norm), repr(clip))
        self.lines.append(
            f'{{"type":"step","step":{step},"time":{self.time!r},"epoch":{step * 16 / 120000!r},"loss":{words[0]},"grad_norm":{words[1]},'
            f'"clip":{words[2]},"learning_rate":{self.rate(step)!r},"tokens":{self.tokens},'
            f'"label_tokens":{self.tokens - rng.randrange(300)},'
            f'"tokens_per_s":{1000 * self.tokens / ms!r},"step_ms":{ms!r},"rows":[{(step - 1) * 16},{step * 16 - 1}],'
            f'"compute_ms":{compute!r},"stall_ms":{stall!r},"busy":{{"compute":{compute / ms!r},"d2h":{0.31 + 0.05 * rng.random()!r},'
            f'"h2d":{0.1 + 0.04 * rng.random()!r},"cpu":{0.62 + 0.2 * rng.random()!r}}},"d2h_bytes":{down},"h2d_bytes":{up},'
            f'"groups":[{self.groups(step)}],"cpu_updates":{len(self.matrices) // s},"adam_gb_s":{88 + 6 * rng.random()!r},'
            f'"skipped":{self.skipped},"memory_device":{41 << 30},"memory_host":{(9 << 30) + 4096 * min(step, 2000)}}}'
        )
        if bad:
            self.note("warning", step, "step %d: the loss is nan; the step was skipped" % step)
        while self.a.gpu and self.gpu_next < self.time:
            self.gpu(self.gpu_next)
            self.gpu_next += 1.0
        if step > self.a.steps - self.a.lanes:
            self.lanes(step, began, self.time, stall / 1000)

    def gpu(self, at):
        r = self.rng.random
        self.put(
            f'{{"type":"gpu","index":0,"utilization":{round(0.9 + 0.09 * r(), 3)},"memory_used":{44 << 30},'
            f'"power_w":{round(395 + 30 * r(), 1)},'
            f'"temperature_c":{62 + int(6 * r() + min(8, at / 30))},'
            f'"pcie_rx":{int(2.1e9 * (1 + 0.2 * r()))},"pcie_tx":{int(8e9 * (1 + 0.2 * r()))}}}'
        )

    def lanes(self, step, began, ended, stall):
        span, r = ended - began, self.rng.random

        def spans(count, share_busy, first=0.0):
            width = (1 - first) / count

            def at(part):
                return round(began + span * part, 6)

            return [[at(first + i * width), at(first + (i + share_busy * (0.8 + 0.2 * r())) * width)] for i in range(count)]

        wait = [[round(began, 6), round(began + stall, 6)]] if stall else []
        lanes = [
            {"name": "compute", "busy": spans(2, 0.97, stall / span), "wait": wait},
            {"name": "d2h", "busy": spans(6, 0.6, 0.45), "wait": []},
            {"name": "h2d", "busy": spans(4, 0.35), "wait": []},
            {"name": "cpu", "busy": spans(5, 0.75), "wait": []},
        ]
        self.put({"type": "lanes", "step": step, "from": round(began, 6), "to": round(ended, 6), "lanes": lanes, "lost": 0})

    def select(self, step, some):
        rng, ratio, entries = self.rng, self.options["topk_ratio"], []
        for m in some:
            tail, _ = m.at(step / self.a.steps, rng)
            selected = max(1, round(ratio * m.channels))
            kept = 0.0 if step <= self.options["update_interval"] else min(1.0, 0.5 + 0.4 * step / self.a.steps + 0.06 * rng.random())
            one = f'{{"name":"{m.name}","selected":{selected},"kept":{kept!r},"energy":{share(ratio, tail)!r}'
            if self.options["log_channels"]:
                one += ',"channels":[' + ",".join(map(str, sorted(rng.sample(range(m.channels), selected)))) + "]"
            entries.append(one + "}")
        if entries:
            self.lines.append(f'{{"type":"select","step":{step},"matrices":[{",".join(entries)}]}}')

    def score(self, step, some):
        entries, ratio = [], self.options["topk_ratio"]
        for m in some:
            tail, bins = m.at(step / self.a.steps, self.rng)
            tops = ",".join(repr(round(share(t, tail), 6)) for t in TOPS)
            entries.append(
                f'{{"name":"{m.name}","bins":[{",".join([repr(round(b, 3)) for b in bins])}],"top":[{tops}],'
                f'"selected_energy":{share(ratio, tail)!r}}}'
            )
        if entries:
            self.lines.append(f'{{"type":"score","step":{step},"matrices":[{",".join(entries)}]}}')

    def channels(self, step):
        s, every = self.options["update_interval"], self.options["select_interval"]
        window = (step - 1) % max(s, every)
        some = self.matrices[window::s] if window < s else []
        if self.a.score_every:
            self.select(step, some)
            self.score(step, self.matrices if step % self.a.score_every == 0 else some)

    def norms(self, step):
        entries = [{"name": m.name, "norm": 0.05 + 0.3 * self.rng.random(), "max": 0.01 + 0.02 * self.rng.random()} for m in self.matrices]
        self.put({"type": "norms", "step": step, "total": 0.81, "matrices": entries})

    def checkpoint(self, step):
        name = f"checkpoints/step-{step:08d}.zfc"
        size = 16 * sum(m.channels * m.length for m in self.matrices)
        sizes = {"bytes": int(0.83 * size), "raw_bytes": size}
        self.put({"type": "checkpoint", "step": step, "file": name, **sizes, "stall_ms": 11.5, "seconds": 3.1})
        self.journal_put({"type": "checkpoint", "step": step, "file": name})

    def events(self, step):
        n = self.a.steps

        def at(part):
            return step == max(2, int(part * n))

        if at(1 / 4):
            self.change(step, "learning_rate", 1e-5)
        if at(1 / 2):
            self.change(step, "topk_ratio", 0.05)
            answer = f"set topk_ratio 0.05: topk_ratio 0.1 -> 0.05, from step {step} (each matrix at its next window start)"
            self.note("note", step - 1, answer)
        if at(0.7):
            self.change(step, "update_interval", 8, by="send")
        if at(0.3):
            self.note("mark", step - 1, "new rows of the archive from here on")
        if at(0.62):
            self.put({"type": "resume", "step": step - 1, "attempt": 2})
            self.journal_put({"type": "resume", "step": step - 1, "attempt": 2})

    def after(self, step):
        n = self.a.steps
        if step % max(1, n // 20) == 0:
            self.put({"type": "valid", "step": step, "loss": self.loss(step) + 0.1, "tokens": 307200})
        if step % max(1, n // 10) == 0:
            self.checkpoint(step)
        if step % max(1, n // 8) == 0:
            self.note("sample", step, SAMPLES[step // max(1, n // 8) % len(SAMPLES)])
        if step % max(1, n // 4) == 0:
            self.norms(step)

    def end(self):
        entry = {"type": "end", "step": self.a.steps, "reason": "done", "code": 0, "stall": 0.014}
        self.put(entry)
        self.journal_put(dict(entry))


def hostile(step):
    """Lines that no trainer writes; raw bytes where JSON has no word for them."""
    esc = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e"
    yield json.dumps({"type": "mark", "step": step, "text": esc + "mark"}).encode()
    yield json.dumps({"type": "sample", "step": step, "text": esc + "\r\n\x00tail" + "\t" * 5}).encode()
    yield b'{"type":"note","step":%d,"text":"broken \xff\xfe\xc3( utf-8"}' % step
    yield b'{"type":"note","step":%d,"text":"\\ud800 alone"}' % step
    yield json.dumps({"type": "warning", "step": step, "text": "x" * 200000}).encode()
    for bad in ('"x"', "-1", "1e400", "1.5", "18446744073709551616", "null", "[]", "{}", '"nan"', "true", "9223372036854775807"):
        yield f'{{"type":"step","step":{bad},"loss":1.0}}'.encode()
        yield f'{{"type":"step","step":{step},"loss":{bad},"time":{bad},"groups":{bad},"busy":{bad}}}'.encode()
        yield f'{{"type":{bad},"step":{step}}}'.encode()
        yield f'{{"type":"select","step":{step},"matrices":{bad}}}'.encode()
        yield f'{{"type":"score","step":{step},"matrices":[{{"name":{bad},"bins":[{bad}],"top":{bad}}}]}}'.encode()
        yield f'{{"type":"lanes","step":{step},"from":{bad},"to":{bad},"lanes":[{{"name":{bad},"busy":[[{bad},1],{bad}]}}]}}'.encode()
        yield f'{{"type":"change","step":{step},"option":{bad},"old":{bad},"new":{bad},"from_step":{bad},"by":{bad}}}'.encode()
        yield f'{{"type":"end","step":{step},"reason":{bad}}}'.encode() if bad != "null" else b"{}"
    yield b'{"type":"step","step":7,"loss":' + b"[" * 3000 + b"]" * 3000 + b"}"
    yield b"[" * 100000
    yield b'{"type":"step","step":8,"loss":1,"loss":2}'
    yield b"null"
    yield b"\x00\x01\x02"
    yield b""
    yield b" " * 70000
    yield b'{"type":"groups"}'
    group = {"fill": 9e99, "phase": "\x1b[31m", "staleness": -1, "due": 1e30}
    yield json.dumps({"type": "step", "step": step, "groups": [group] * 500}).encode()
    one = {"name": esc, "selected": 1e18, "kept": "nan", "energy": "inf"}
    yield json.dumps({"type": "select", "step": step, "matrices": [one]}).encode()
    one = {"name": esc, "channels": -5, "length": 1e300}
    yield json.dumps({"type": "start", "matrices": [one] * 3, "options": [1], "model": esc}).encode()
    yield b'{"type":"step","step":9,"loss":2.5,"ti'


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--layers", type=int, default=30)
    p.add_argument("--rate", type=float, default=2.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--score-every", type=int, default=16, help="0: no select and score lines")
    p.add_argument("--lanes", type=int, default=64, help="newest steps with a lanes line")
    p.add_argument("--log-channels", action="store_true")
    p.add_argument("--no-gpu", dest="gpu", action="store_false")
    p.add_argument("--no-end", dest="ends", action="store_false", help="as if it were alive")
    p.add_argument("--hostile", action="store_true")
    a = p.parse_args()
    os.makedirs(a.run, exist_ok=True)
    run = Run(a)
    bad_at = {max(1, a.steps * k // 4) for k in (1, 2, 3)} if a.hostile else set()
    with open(os.path.join(a.run, "metrics.jsonl"), "wb") as f:
        run.start()
        for step in range(1, a.steps + 1):
            run.events(step)
            run.step(step)
            run.channels(step)
            run.after(step)
            if step in bad_at:
                f.write(("\n".join(run.lines) + "\n").encode())
                f.write(b"\n".join(hostile(step)) + b"\n")
                run.lines.clear()
            elif len(run.lines) > 2000:
                f.write(("\n".join(run.lines) + "\n").encode())
                run.lines.clear()
        if a.ends:
            run.end()
        if run.lines:
            f.write(("\n".join(run.lines) + "\n").encode())
        if a.hostile:
            f.write(b'{"type":"step","step":%d,"lo' % (a.steps + 1))
    with open(os.path.join(a.run, "journal.jsonl"), "w", encoding="utf-8") as f:
        f.write("\n".join(run.journal) + "\n")


if __name__ == "__main__":
    main()
