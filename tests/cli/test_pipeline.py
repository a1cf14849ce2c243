"""The policy space through the trainer: the golden trajectories from run.cfg and [at], strategies that must be the same bits, what is refused,
rates and accumulation beside windows, defects of the published implementation that only a whole run could have (tests/pipeline/README.md)."""

import json
import math
import os

import harness as h
from harness import expect

STRATEGIES = ["gpu_only", "zero_offload", "stronghold", "zenflow_sync", "zenflow", "selected_only"]
WINDOWS = {"topk_ratio": 0.25, "update_interval": 4, "select_interval": 4}


def train(folder, name, **changes):
    place = os.path.join(folder, name)
    os.mkdir(place)
    h.text_file(place)
    path = h.cfg(place, **{**changes, "train": {"steps": 24, "valid_every": 0, "micro_batch": 4, **changes.get("train", {})},
                           "log": {"plain_every": "0s", **changes.get("log", {})}})
    h.run(path, "--plain", timeout=120)
    return os.path.join(place, "out")


def weights(out):
    """Of the export: name to bytes."""
    with open(os.path.join(h.only_export(out), "model.safetensors"), "rb") as f:
        return f.read()


def relative(a, b):
    return abs(a - b) / max(abs(b), 1e-12)


def distance(a, b):
    d, n = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b))), math.sqrt(math.fsum(y * y for y in b))
    return d / max(n, 1e-30)


def run_golden(folder, golden, family, name, case, tensors):
    place = os.path.join(folder, family + name)
    os.mkdir(place)
    at = {str(step): "set " + " ".join(f"{k} {v}" for k, v in changes.items()) for step, changes in case["at"]}
    path = h.cfg(
        place,
        base={},
        run={"dir": "out", "threads": 2},
        model={"path": os.path.join(golden, "families", family), "dtype": "f32"},
        data={"train": os.path.join(golden, "trajectories", family, "batches.safetensors"), "shuffle": "no"},
        train={"steps": 24, "schedule_steps": 40, "batch_size": 2, "learning_rate": 1e-3, "schedule": "cosine", "weight_decay": 0.1, "beta2": 0.95,
               "clip_norm": 1, "valid_every": 0},
        zenflow=case["options"],
        at=at,
    )
    h.run(path, "--plain", timeout=120)
    out = os.path.join(place, "out")
    steps = h.metrics(out, "step")
    expect(len(steps) == 24, name, len(steps), "steps")
    for i, m in enumerate(steps):
        for key, field, limit in (("loss", "loss", 1e-5), ("norm", "grad_norm", 1e-4)):
            wanted = tensors[f"{name}.{key}"][i]
            expect(relative(m[field], wanted) <= limit, family, name, "step", i + 1, field, m[field], "the oracle's", wanted)
    ours = h.read_tensors(os.path.join(h.only_export(out), "model.safetensors"))
    for tensor in ours:
        wanted = tensors.get(f"{name}.after.{tensor}")
        if wanted is None:  # a tied head, exported twice
            continue
        got, limit = h.unpack(ours[tensor]), 1e-4 if len(ours[tensor][1]) > 1 else 5e-3
        expect(distance(got, wanted) <= limit, family, name, tensor, "differs by", distance(got, wanted))


def test_golden_trajectories(folder):
    golden = os.path.join(os.environ.get("ZF_SHARED", ""), "golden")
    if not os.path.isdir(os.path.join(golden, "trajectories")):
        raise h.Skip("the golden trajectories are not here (ZF_SHARED)")
    some = {"gpt2-plain": ["live-strategy", "live-interval", "selected_only"], "llama2-plain": ["optimistic-live", "rolling-mean", "sync-each"]}
    for family, names in some.items():
        place = os.path.join(golden, "trajectories", family)
        with open(os.path.join(place, "trajectories.json"), encoding="utf-8") as f:
            cases = json.load(f)["cases"]
        tensors = {n: h.unpack(t) for n, t in h.read_tensors(os.path.join(place, "trajectories.safetensors")).items() if n.split(".")[0] in names}
        for name in names:
            run_golden(folder, golden, family, name, cases[name], tensors)


def test_exact_strategies_are_the_same_bits(folder):
    """I1-I4, and a run that leaves for the CPU and comes back, through files and lines."""
    for dtype in ("f32", "bf16"):
        one = train(folder, dtype + "-gpu_only", model={"dtype": dtype}, zenflow={"strategy": "gpu_only"})
        for name, options, at in (
            ("zero_offload", {"strategy": "zero_offload"}, {}),
            ("stronghold", {"strategy": "stronghold"}, {}),
            ("nothing", {"strategy": "zenflow_sync", "topk_ratio": 0, "update_interval": 1}, {}),
            ("everything", {"strategy": "zenflow", "topk_ratio": 1}, {}),
            ("selected", {"strategy": "zenflow_sync", "topk_ratio": 0.3, "update_interval": 1, "select_interval": 1}, {}),
            ("tour", {"strategy": "gpu_only"}, {"5": "set strategy zero_offload", "11": "set strategy gpu_only", "15": "set strategy stronghold"}),
        ):
            other = train(folder, f"{dtype}-{name}", model={"dtype": dtype}, zenflow=options, at=at)
            expect(h.losses(one) == h.losses(other), dtype, name, "losses are not gpu_only's")
            expect(weights(one) == weights(other), dtype, name, "weights are not gpu_only's")


def test_threads_and_micro_batches(folder):
    """Z17, Z20: the same bits whatever the threads; micro-batches, windows and the schedule are three counters: neither the rates nor the
    number of windows depend on the others."""
    zenflow = {"strategy": "zenflow", **WINDOWS}
    one = train(folder, "one", zenflow=zenflow)
    for threads in (2, 3):
        other = train(folder, f"threads{threads}", zenflow=zenflow, run={"threads": threads})
        expect(weights(one) == weights(other), threads, "threads change bits")
    rates = [m["learning_rate"] for m in h.metrics(one, "step")]
    for name, changes in (
        ("micro", {"train": {"micro_batch": 1}, "zenflow": zenflow}),
        ("off", {"zenflow": {"strategy": "gpu_only"}}),
        ("long", {"zenflow": {**zenflow, "update_interval": 7}}),
    ):
        other = train(folder, name, **changes)
        expect([m["learning_rate"] for m in h.metrics(other, "step")] == rates, name, "rates depend on it")
        expect([m["tokens"] for m in h.metrics(other, "step")] == [m["tokens"] for m in h.metrics(one, "step")], name, "tokens")
    close = max(relative(a, b) for a, b in zip(h.losses(one), h.losses(os.path.join(folder, "micro", "out"))))
    expect(close < 1e-5, "micro-batches change losses by", close)


def test_every_strategy_is_finite(folder):
    """Z28: ten windows of every strategy, and learning."""
    for strategy in STRATEGIES:
        options = {"strategy": strategy, **(WINDOWS if strategy in ("zenflow_sync", "zenflow", "selected_only") else {})}
        losses = h.losses(train(folder, strategy, train={"steps": 40}, zenflow=options))
        expect(len(losses) == 40 and all(math.isfinite(x) for x in losses), strategy, losses)
        expect(min(losses[-5:]) < 0.8 * losses[0], strategy, "does not learn", losses)


def test_what_cannot_be_is_refused(folder):
    """Z29, and combinations: a sentence and exit 2, at start and in [at]."""
    h.text_file(folder)
    for options, word in (
        ({"topk_ratio": -0.1}, "topk_ratio"),
        ({"topk_ratio": 1.5}, "topk_ratio"),
        ({"update_interval": 0}, "update_interval"),
        ({"select_interval": -1}, "select_interval"),
        ({"strategy": "selected_only", "topk_ratio": 0}, "topk_ratio"),
        ({"strategy": "zenflow_sync", "update_interval": "auto"}, "update_interval"),
        ({"strategy": "zenflow", "accumulate_on": "device", "cpu_update": "each"}, "accumulate_on"),
        ({"strategy": "zenflow", "accumulate_on": "device", "cpu_update": "mean", "optimistic": "yes"}, "accumulate_on"),
    ):
        done = h.run("check", h.cfg(folder, zenflow=options), code=2)
        expect(word in done.stderr, options, done.stderr)
    for ratio in (0, 1):  # both ends are points like any other
        losses = h.losses(train(folder, f"ratio{ratio}", zenflow={"strategy": "zenflow", "topk_ratio": ratio, "update_interval": 3}))
        expect(losses[-1] < losses[0], ratio, losses)


def test_the_last_export_is_of_the_drained_state(folder):
    """Whatever else comes every so many steps: what is pending is in it, and the last step is validated once, after its drain."""
    zenflow = {"strategy": "zenflow", **WINDOWS}
    plain = train(folder, "plain", zenflow=zenflow, train={"valid_every": 0})
    often = train(folder, "often", zenflow=zenflow, train={"valid_every": 6, "keep_best": "yes"}, checkpoint={"export_every": 6})

    def last(out):
        with open(os.path.join(out, "exports", "step-00000024", "model.safetensors"), "rb") as f:
            return f.read()

    expect(last(plain) == last(often), "an export from before the drain was taken for the last one")
    expect([m["step"] for m in h.metrics(often, "valid")] == [6, 12, 18, 24], h.metrics(often, "valid"))
    expect(h.metrics(plain, "valid")[-1]["loss"] == h.metrics(often, "valid")[-1]["loss"], "validated before the drain")


if __name__ == "__main__":
    h.main()
