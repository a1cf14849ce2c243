"""device = cuda as users have it, on the emulated GPU: everything that the host does, with the same results within rounding, and every bit the
same where the host promises that. `long` (an argument): more of each."""

import glob
import os
import re
import sys

import harness as h
import test_resume as r
from harness import expect

LONG = "long" in sys.argv[1:]
HOST, CUDA = h.TRAINER, os.path.join(h.BUILD, "tests", "zenflow-trainer-emulated")
h.TRAINER = CUDA  # what test_resume runs
os.environ["CUDAEMU_PROTECT"] = "1"  # host code that touches device memory dies
BIG = ("zenflow-staggered-each", "zenflow_sync-rolling-mean", "zenflow-device", "zenflow-bf16", "stronghold", "gpu_only-bf16")


def emulating(**more):
    return {**os.environ, **{k: str(v) for k, v in more.items()}}


def resolved(out):
    with open(os.path.join(out, "run.cfg"), encoding="utf-8") as f:
        return re.search(r"^device = (\w+)", f.read(), re.M).group(1)


def relative(a, b):
    return abs(a - b) / abs(b)


def near(ours, theirs, limit, *what):
    expect(len(ours) == len(theirs) > 0, *what, len(ours), len(theirs))
    for i, (a, b) in enumerate(zip(ours, theirs)):
        expect(relative(a, b) <= limit, *what, i, a, b)


def near_weights(a, b, limit, *what):
    """Exported models, tensor by tensor, in the relative L2 norm."""
    ours, theirs = (h.read_tensors(os.path.join(h.only_export(x), "model.safetensors")) for x in (a, b))
    expect(ours.keys() == theirs.keys(), *what)
    for name in ours:
        if name.endswith("k_proj.bias"):
            continue  # its gradient is zero in theory, and AdamW makes whole steps of what rounding leaves
        x, y = h.unpack(ours[name]), h.unpack(theirs[name])
        off, size = sum((p - q) ** 2 for p, q in zip(x, y)) ** 0.5, sum(q * q for q in y) ** 0.5
        expect(off <= (limit if len(ours[name][1]) > 1 else 50 * limit) * size, *what, name, off / size)


# ---- which device ----


def test_auto_is_a_gpu_that_can_be_used(folder):
    """Found out once: what a run began with it goes on with, and a word is said about a GPU that is there and not used."""
    for name, env, device, said in (
        ("with", {}, "cuda", None),
        ("without", {"CUDAEMU_DEVICES": 0}, "host", None),
        ("old", {"CUDAEMU_CC": 75}, "host", "compute capability 7.5; 8.0 (Ampere) or later"),
    ):
        h.text_file(folder)
        path = h.cfg(folder, name + ".cfg", run={"dir": name}, train={"steps": 2, "valid_every": 0}, data={"valid_split": 0})
        out = os.path.join(folder, name)
        done = h.run(path, program=CUDA, env=emulating(**env))
        expect(resolved(out) == device == h.metrics(out, "start")[0]["device"], name, resolved(out))
        expect((said or "not used") in done.stdout if said else "not used" not in done.stdout + done.stderr, name, done.stdout)
        done = h.run(path, "--set", "steps=3", program=CUDA)  # `auto` still, and with a GPU
        expect(h.metrics(out, "start")[-1]["device"] == device, name, "went on with another device")


def test_a_gpu_that_is_not_there(folder):
    """Who asks for one is told what is missing and what to do, before anything is written; who only looks at rows needs none."""
    h.text_file(folder)
    path = h.cfg(folder, run={"device": "cuda"})
    model = os.path.join(h.FAMILIES, "gpt2-bare-names")
    commands = ((path,), ("check", path), ("verify", model, model + "/golden.safetensors", "--device", "cuda"), ("generate", model, "--ids", "3", "--device", "cuda"))
    missing = [
        (CUDA, {"CUDAEMU_DEVICES": 0}, "no NVIDIA driver"),
        (CUDA, {"CUDAEMU_DEVICES": -1}, "shows no GPU to this process"),
        (CUDA, {"CUDAEMU_CC": 75}, "compute capability 7.5"),
    ]
    if not glob.glob("/dev/nvidia*"):
        missing.append((HOST, {}, "no NVIDIA driver"))
    for program, env, text in missing:
        for command in commands:
            done = h.run(*command, program=program, env=emulating(**env), code=2)
            expect(text in done.stderr and "device = host" in done.stderr, command, done.stderr)
            expect(("--device: " if "--device" in command else "run.cfg:") in done.stderr, command, done.stderr)
    expect(not os.path.exists(os.path.join(folder, "out")), "something was written")
    h.run("data", path, program=CUDA, env=emulating(CUDAEMU_DEVICES=0))
    done = h.run("verify", model, model + "/golden.safetensors", "--device", "abacus", program=CUDA, code=2)
    expect("none of auto, host and cuda" in done.stderr, done.stderr)


def test_a_run_of_a_gpu_on_a_machine_without(folder):
    """It is not moved to the host behind anybody's back; asked to, it goes on there."""
    path, out = r.setting(folder, run={"device": "auto"})
    r.killed(path, env=r.at_step(6))
    done = h.run(path, program=CUDA, env=emulating(CUDAEMU_DEVICES=0), code=2)
    expect("device = host" in done.stderr, done.stderr)
    done = h.run(path, "--set", "device=host", program=CUDA, env=emulating(CUDAEMU_DEVICES=0))
    expect("device cuda -> host" in done.stderr and h.metrics(out, "start")[-1]["device"] == "host", done.stderr)


# ---- the same as on the host ----


def test_golden_families(folder):
    """Logits, loss, every gradient, and some steps of AdamW, of values made by transformers."""
    folders = sorted(glob.glob(os.path.join(h.FAMILIES, "*"))) + sorted(glob.glob(os.path.join(h.SHARED, "golden", "families", "*-*")))
    expect(len(folders) > 10, folders)
    for i, model in enumerate(folders):
        dtypes = ("f32", "bf16") if LONG else (("f32",) if i % 3 else ("bf16",))
        for dtype in dtypes:
            words = ("--losses",) if LONG or (i % 3 == 0 and "rope" not in model) else ()
            done = h.run("verify", model, model + "/golden.safetensors", "--device", "cuda", "--dtype", dtype, *words, program=CUDA)
            expect(", 0 different" in done.stdout, model, dtype, done.stdout)


SCRATCH = {
    "gpt2": {},
    "opt": {},
    "llama": {"kv_heads": 1},
    "qwen2": {"kv_heads": 1},
    "qwen3": {"kv_heads": 1, "head_dim": 8},
}


def test_training_equals_the_host(folder):
    """From scratch and to the end, with validation and samples on the way: losses, norms, what is sampled, the exported weights."""
    h.text_file(folder)
    for i, (family, options) in enumerate(SCRATCH.items()):
        outs = []
        for device in ("host", "cuda"):
            name = f"{family}-{device}"
            path = h.cfg(
                folder,
                name + ".cfg",
                run={"dir": name, "device": device, "threads": 2},
                model={"family": family, "hidden": 16, "ffn": 32, "recompute": "yes" if i % 2 else "no", **options},
                train={"steps": 6, "micro_batch": 2 if i % 2 else 4, "valid_every": 3, "valid_batches": 1},
                zenflow={"strategy": ("gpu_only", "zenflow", "zero_offload", "zenflow_sync", "stronghold")[i], "update_interval": 2, "select_interval": 2},
                log={"sample_every": 6, "sample_prompt": '"To be"', "norms_every": 3, "score_every": 3},
            )
            h.run(path, program=CUDA)
            outs.append(os.path.join(folder, name))
            expect(h.metrics(outs[-1], "start")[0]["device"] == device, name)
        host, cuda = outs
        for field in ("loss", "grad_norm"):
            near([m[field] for m in h.metrics(cuda, "step")], [m[field] for m in h.metrics(host, "step")], 1e-4, family, field)
        near([m["loss"] for m in h.metrics(cuda, "valid")], [m["loss"] for m in h.metrics(host, "valid")], 1e-5, family, "valid")
        near([m["total"] for m in h.metrics(cuda, "norms")], [m["total"] for m in h.metrics(host, "norms")], 1e-4, family, "norms")
        for kind in ("score", "select"):
            found = [[x["name"] for x in m["matrices"]] for m in h.metrics(cuda, kind)]
            expect(found == [[x["name"] for x in m["matrices"]] for m in h.metrics(host, kind)], family, kind)
        said = [[m["text"] for m in h.metrics(out, "sample")] for out in outs]
        expect(said[0] == said[1] and said[0], family, said)
        near_weights(cuda, host, 1e-3, family)


def test_generate(folder):
    """The same words as the host's from a model and from a run, in both types."""
    models = ("gpt2-bare-names", "llama-multi-query-hd20", "opt-post-norm-bare-names", "qwen3-tied-hd12")
    for name in models:
        model = os.path.join(h.FAMILIES, name)
        words = ("generate", model, "--ids", "5,9,7,11", "--tokens", "6", "--json", "--dtype", "f32")
        a, b = (h.run(*words, "--device", d, program=CUDA).stdout for d in ("cuda", "host"))
        expect(a == b and '"ids"' in a, name, a, b)
    h.run("generate", model, "--ids", "5,9", "--tokens", "3", "--dtype", "bf16", program=CUDA)
    path, out = r.setting(folder, "run", train={"steps": 3}, model={"hidden": 16})
    r.go_on(path)
    a, b = (h.run("generate", out, "--prompt", "To be", "--tokens", "5", "--dtype", "f32", "--device", d, program=CUDA).stdout for d in ("cuda", "host"))
    expect(a == b and a.startswith("To be"), a, b)
    h.run("export", out, os.path.join(folder, "exported"), program=CUDA)


# ---- the same bits as if nothing had happened ----


def test_cut_off_and_gone_on(folder):
    """kill -9 in a step, and go on: the same bits; where the GPU or its libraries are others, it says that they may differ."""
    for number, name in enumerate(r.POLICIES if LONG else BIG[:4]):
        changes = r.policy(name)
        whole = r.uninterrupted(folder, "whole-" + name, **changes)
        expect(h.metrics(whole, "start")[0]["device"] == "cuda", "not on the GPU")
        path, out = r.setting(folder, name, **changes)
        r.killed(path, env=r.at_step(5 + number % 8))
        done = r.go_on(path)
        expect("goes on from" in done.stdout and "not bit-identical" not in done.stdout, name, done.stdout)
        r.same(out, whole, name)
    path, out = r.setting(folder, "other", run={"device": "cuda"})
    r.killed(path, env=r.at_step(6))
    done = r.go_on(path, env=emulating(CUDAEMU_CC=80))
    expect("sm_90, cuBLAS" in done.stdout and "sm_80, cuBLAS" in done.stdout and "not bit-identical" in done.stdout, done.stdout)


def test_steered_and_cut_off(folder):
    """Changes by hand and from [at], undone and put off, are done again."""
    for name in ("zenflow-staggered-each", "gpu_only") if LONG else ("zenflow-staggered-each",):
        _, whole = r.steered(folder, "whole-" + name, **r.policy(name))
        path, out = r.steered(folder, name, r.at_step(7), **r.policy(name))
        r.killed(path, env=r.at_step(12))
        r.go_on(path)
        r.same(out, whole, name)


def test_from_one_device_to_the_other(folder):
    """A checkpoint holds nothing of a device's: the run goes on on the other one, near to what it would have been, and says so."""
    for first, then in (("cuda", "host"), ("host", "cuda")):
        for name in BIG if LONG else BIG[:3]:
            changes = r.policy(name)
            whole = r.uninterrupted(folder, f"whole-{first}-{name}", run={"device": first}, **changes)
            path, out = r.setting(folder, f"{first}-{name}", run={"device": first}, **changes)
            r.killed(path, env=r.at_step(6))
            done = r.go_on(path, "--set", "device=" + then)
            expect("not bit-identical" in done.stdout and f"device {first} -> {then}" in done.stderr, done.stdout, done.stderr)
            expect([m["device"] for m in h.metrics(out, "start")] == [first, then], "the devices")
            near(h.losses(out), h.losses(whole), 2e-2 if name.endswith("bf16") else 1e-4, first, then, name)


if __name__ == "__main__":
    sys.argv = [a for a in sys.argv if a != "long"]
    h.main()
