"""Runs in bf16: as good as in f32, the same bits however they are computed, masters that lose nothing."""

import json
import os
import re

import harness as h
from harness import expect


def run_in(folder, name, dtype="bf16", options={}, **changes):
    path = h.cfg(folder, name + ".cfg", run={"dir": name, **changes.pop("run", {})}, model={"dtype": dtype, **options}, **changes)
    h.run(path, "--plain")
    return os.path.join(folder, name)


def weights(out):
    return h.read_tensors(os.path.join(h.only_export(out), "model.safetensors"))


def test_it_learns_as_in_f32(folder):
    h.text_file(folder)
    train = {"steps": 60, "learning_rate": "5e-3"}
    out = {dtype: run_in(folder, dtype, dtype, train=train) for dtype in ("f32", "bf16")}
    a, b = (h.losses(out[dtype]) for dtype in ("f32", "bf16"))
    worst = max(abs(x - y) / x for x, y in zip(a, b))
    va, vb = (h.metrics(out[dtype], "valid")[-1]["loss"] for dtype in ("f32", "bf16"))
    print(f"losses differ by at most {worst:.1e} relative, validation {va:.4f} and {vb:.4f}")
    expect(a != b, "bf16 gives the bits of f32: it did not compute in bf16")
    expect(len(a) == len(b) == 60 and worst < 0.03, "losses", a, b)
    expect(b[-1] < b[0] - 1.5 and abs(va - vb) / va < 0.02, "validation", va, vb)


def test_masters_keep_what_bf16_would_lose(folder):
    """Steps far below half a unit of bf16: without masters nothing would ever move. The export is of the masters."""
    name = "llama-multi-query-hd20"
    h.copy_model(folder, name)
    h.token_file(os.path.join(folder, "rows.safetensors"), 32, 16, 53)
    base = {"model": {"path": "model"}, "data": {"train": "rows.safetensors"}, "train": {"steps": 4, "batch_size": 4, "learning_rate": "1e-6"}}
    out = run_in(folder, "out", base=base, options={"freeze": "*embed*"})
    before, after = h.read_tensors(os.path.join(folder, "model", "model.safetensors")), weights(out)
    expect(before.keys() == after.keys() and all(t[0] == "F32" for t in after.values()), "the export is not f32")
    for n, t in before.items():
        if "embed" in n:
            expect(after[n] == t, n, "is frozen and was rounded")
            continue
        moved = [abs(x - y) for x, y in zip(h.unpack(t), h.unpack(after[n]))]
        expect(0 < max(moved) < 6e-6, n, "moved by at most", max(moved))


def test_stochastic_rounding(folder):
    h.text_file(folder)
    steps = {"steps": 12, "valid_every": 0}

    def losses(name, rounding, **run):
        return h.losses(run_in(folder, name, options={"stochastic_rounding": rounding}, run=run, train=steps))

    nearest, chance = losses("nearest", "no"), losses("chance", "yes")
    expect(nearest[0] == chance[0] and nearest != chance, "by chance and to nearest are the same")
    expect(losses("again", "yes") == chance, "the same seed rounds otherwise")
    expect(losses("threads", "yes", threads=3) == chance, "rounding depends on threads")
    expect(max(abs(a - b) / a for a, b in zip(nearest, chance)) < 0.05, "losses", nearest, chance)


def test_stochastic_rounding_in_f32_is_said(folder):
    h.text_file(folder)
    path = h.cfg(folder, model={"dtype": "f32", "stochastic_rounding": "yes"})
    done = h.run("check", path)
    expect(re.search("stochastic_rounding.*no effect", done.stdout + done.stderr), done.stdout)


def test_auto_is_what_the_hardware_multiplies(folder):
    h.text_file(folder)
    want = "bf16" if "bf16 in hardware" in h.run("doctor").stdout else "f32"
    path = h.cfg(folder, model={"dtype": "auto"}, train={"steps": 2, "valid_every": 0})
    expect(json.loads(h.run("check", path, "--json").stdout)["model"]["dtype"] == want, "check")
    done = h.run(path, "--plain")
    start = h.metrics(os.path.join(folder, "out"))[0]
    expect(start["dtype"] == start["options"]["dtype"] == start["options"]["bus_dtype"] == want, "start", start)
    expect(f" {want}," in done.stdout.splitlines()[0], done.stdout.splitlines()[0])
    with open(os.path.join(folder, "out", "run.cfg")) as f:
        expect(f"\ndtype = {want}\n" in f.read(), "RUN/run.cfg does not say what ran")


def test_the_plan_counts_bytes(folder):
    h.text_file(folder)
    plans = {}
    for dtype in ("f32", "bf16"):
        report = json.loads(h.run("check", h.cfg(folder, model={"dtype": dtype}), "--json").stdout)
        plans[dtype] = report["memory"]["bytes"]
    a, b = plans["f32"], plans["bf16"]
    expect(2 * b["weights"] == 3 * a["weights"], "visible weights and masters", a, b)
    expect(b["gradients"] == a["gradients"] and b["moments"] == a["moments"], "gradients, moments", a, b)
    expect(b["activations"] < 0.75 * a["activations"], "activations", a, b)


def test_generate(folder):
    h.text_file(folder)
    out = run_in(folder, "out", train={"steps": 20, "valid_every": 0})

    def say(*more):
        return h.run("generate", out, "--prompt", "First", "--tokens", "12", *more).stdout

    for dtype in ("bf16", "f32"):
        expect(say("--dtype", dtype) and say("--dtype", dtype) == say("--dtype", dtype), dtype)
    expect(say() == say("--dtype", "auto"), "auto is not the default")
    h.run("generate", out, "--prompt", "x", "--dtype", "f16", code=2)


if __name__ == "__main__":
    h.main()
