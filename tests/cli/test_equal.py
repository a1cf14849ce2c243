"""What must not depend on how the work is cut up: threads and micro-batches."""

import json
import os

import harness as h
from harness import expect


def case(folder, name, **changes):
    place = os.path.join(folder, name)
    os.mkdir(place)
    h.token_file(os.path.join(place, "rows.safetensors"), 64, 24, 300, lambda row, at, i: -100 if at < (row * 7) % 20 else i)
    model = {
        "family": "qwen3",
        "layers": 2,
        "hidden": 48,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 12,
        "ffn": 80,
        "vocab": 300,
        "context": 24,
        "tokenizer": None,
        **changes.pop("model", {}),
    }
    train = {"steps": 12, "batch_size": 16, "learning_rate": "3e-3", "valid_every": 0}
    run = changes.pop("run", {})
    path = h.cfg(
        place,
        model=model,
        data={"train": "rows.safetensors", "sequence_length": None, "valid_split": None},
        train={**train, **changes},
        run=run,
    )
    h.run(path, "--plain")
    return h.metrics(os.path.join(place, "out"), "step")


def test_threads(folder):
    for dtype in ("f32", "bf16"):
        one, *others = (case(folder, f"{dtype}-t{n}", model={"dtype": dtype}, run={"threads": n}) for n in (1, 2, 3, 5))
        for other in others:
            expect([m["loss"] for m in one] == [m["loss"] for m in other], dtype, "losses depend on the number of threads")
            expect([m["grad_norm"] for m in one] == [m["grad_norm"] for m in other], dtype, "norms depend on the number of threads")


def test_micro_batches(folder):
    for dtype, limit in (("f32", 2e-6), ("bf16", 1e-3)):
        runs = [case(folder, f"{dtype}-m{n}", model={"dtype": dtype}, micro_batch=n) for n in (1, 4, 16, 5)]
        for other in runs[1:]:
            worst = max(abs(a["loss"] - b["loss"]) for a, b in zip(runs[0], other))
            print(f"{dtype}: losses differ by {worst:.1e}")
            expect(worst <= limit, f"{dtype}: losses differ by {worst}")
            expect(all(a["label_tokens"] == b["label_tokens"] for a, b in zip(runs[0], other)), "label tokens")


def test_recompute(folder):
    for dtype in ("f32", "bf16"):
        kept, again = (case(folder, f"{dtype}-r{r}", model={"dtype": dtype, "recompute": r}, micro_batch=5) for r in ("no", "yes"))
        expect([(m["loss"], m["grad_norm"]) for m in kept] == [(m["loss"], m["grad_norm"]) for m in again], dtype, "recompute changes bits")
    path = os.path.join(folder, "f32-rno", "run.cfg")
    no, yes = (json.loads(h.run("check", path, "--json", "--set", f"recompute={r}").stdout)["memory"] for r in ("no", "yes"))
    expect(not no["recompute"] and yes["recompute"], "the plan does not say so")
    expect(yes["bytes"]["activations"] < no["bytes"]["activations"], "recompute saves nothing", no, yes)


if __name__ == "__main__":
    h.main()
