"""A run from start to end, and what it leaves behind."""

import csv
import io
import json
import math
import os
import re
import struct

import harness as h
from harness import expect


def small_run(folder, **changes):
    h.text_file(folder)
    path = h.cfg(folder, **changes)
    return path, os.path.join(folder, "out"), h.run(path, "--plain")


def test_a_run(folder):
    path, out, done = small_run(
        folder, data={"valid_split": 0.1}, train={"warmup_steps": 5, "min_learning_rate": "1e-3"}, log={"plain_every": "0s"}
    )
    expect("\x1b" not in done.stdout and "\r" not in done.stdout, "--plain writes control characters")
    expect("loss" in done.stdout and "tok/s" in done.stdout and len(done.stdout.splitlines()) >= 40, "progress lines", done.stdout[:2000])
    lines = h.metrics(out)
    expect(lines[0]["type"] == "start" and lines[0]["strategy"] == "gpu_only" and lines[0]["options"]["seed"] == 3, "first line", lines[0])
    expect(lines[0]["threads"] == 1 and lines[0]["placement"] and lines[0]["adam_gb_s"] > 0, "threads and CPU Adam", lines[0])
    expect(lines[-1] == {**lines[-1], "type": "end", "reason": "done", "step": 40}, "last line", lines[-1])
    steps = [m for m in lines if m["type"] == "step"]
    expect([m["step"] for m in steps] == list(range(1, 41)), "steps")
    expect(abs(steps[0]["loss"] - math.log(256)) < 1, "the first loss is not that of a guess", steps[0]["loss"])
    expect(steps[-1]["loss"] < steps[0]["loss"] - 1.5, "the loss does not fall", [m["loss"] for m in steps])
    for m in steps:
        t = m["step"]
        rate = (1e-3 + (1e-2 - 1e-3) * (1 + math.cos(math.pi * (t - 1) / 40)) / 2) * (t / 5 if t < 5 else 1)
        expect(abs(m["learning_rate"] - rate) < 1e-12, f"learning rate of step {t}: {m['learning_rate']}, not {rate}")
        expect(m["grad_norm"] > 0 and 0 < m["clip"] <= 1 and abs(m["clip"] - min(1, 1 / m["grad_norm"])) < 1e-5, "clip", m)
        expect(m["tokens"] == 4 * 32 and m["label_tokens"] == 4 * 31, "tokens", m)
    valid = [m for m in lines if m["type"] == "valid"]
    expect([m["step"] for m in valid] == [20, 40] and valid[1]["loss"] < valid[0]["loss"], "validation", valid)
    h.json_lines(os.path.join(out, "journal.jsonl"))
    h.run("check", os.path.join(out, "run.cfg"))
    export = h.only_export(out)
    expect(
        export.endswith("step-00000040") and {"config.json", "model.safetensors"} <= set(os.listdir(export)), "export", os.listdir(export)
    )
    expect(any(dtype == "F32" for dtype, _, _ in h.read_tensors(os.path.join(export, "model.safetensors")).values()), "export is not f32")


def test_an_ended_run_is_over(folder):
    path, out, _ = small_run(folder, train={"steps": 5})
    before = {name: open(os.path.join(out, name), "rb").read() for name in ("metrics.jsonl", "journal.jsonl")}
    done = h.run(path, "--plain")
    expect("over" in done.stdout + done.stderr, "it does not say that the run is over", done.stdout, done.stderr)
    expect(all(open(os.path.join(out, n), "rb").read() == data for n, data in before.items()), "an ended run was changed")
    expect(h.run(path, "--plain", "--resume", "never", code=(1, 2)).stderr, "--resume never on a run that is there")


def test_another_run_in_the_directory_is_refused(folder):
    path, out, _ = small_run(folder, train={"steps": 3})
    before = open(os.path.join(out, "metrics.jsonl"), "rb").read()
    for change in ("seed=4", "hidden=64"):
        done = h.run(path, "--plain", "--set", change, code=(1, 2))
        expect("dir" in done.stderr or out in done.stderr, "no fix is named", done.stderr)
    expect(open(os.path.join(out, "metrics.jsonl"), "rb").read() == before, "the other run was changed")


def test_a_directory_with_foreign_files_is_refused(folder):
    os.mkdir(os.path.join(folder, "out"))
    h.write(os.path.join(folder, "out", "thesis.tex"), "mine")
    h.text_file(folder)
    done = h.run(h.cfg(folder), "--plain", code=1)
    expect(
        "thesis.tex" in done.stderr and os.listdir(os.path.join(folder, "out")) == ["thesis.tex"],
        "something was written beside it",
        done.stderr,
    )
    expect(open(os.path.join(folder, "out", "thesis.tex")).read() == "mine", "a foreign file was changed")


def test_same_seed_same_bits_other_seed_other_run(folder):
    all_losses = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        place = os.path.join(folder, name)
        os.mkdir(place)
        all_losses.append(h.losses(small_run(place, run={"seed": seed}, train={"steps": 10})[1]))
    expect(all_losses[0] == all_losses[1], "the same run twice gives other losses")
    expect(all_losses[0] != all_losses[2], "the seed changes nothing")


def test_log(folder):
    path, out, _ = small_run(folder, train={"steps": 6})
    rows = list(csv.DictReader(io.StringIO(h.run("log", out, "--csv").stdout)))
    expect(len(rows) == 6 and [float(r["loss"]) for r in rows] == h.losses(out), "log --csv", rows)
    lines = json.loads(h.run("log", out, "--json", "--fields", "step,loss").stdout, parse_constant=h.no_constant)
    expect([(m["step"], m["loss"]) for m in lines] == [(m["step"], m["loss"]) for m in h.metrics(out, "step")], "log --json", lines)
    table = h.run("log", path).stdout
    expect("loss" in table and len(table.splitlines()) >= 6, "log of a run.cfg", table)


def test_log_profile(folder):
    _, out, _ = small_run(folder, data={"valid_split": 0.1}, train={"steps": 6, "valid_every": 3})
    profile = json.loads(h.run("log", out, "--profile", "--json").stdout)
    rows = {(r["phase"], r["op"]): r for r in profile["rows"]}
    steps = [m["step_ms"] / 1e3 for m in h.metrics(out) if m["type"] == "step"]
    expect(profile["steps"] == 5 and abs(profile["seconds"] - sum(steps[1:])) < 1e-6, "all steps but the first", profile, steps)
    within = sum(r["seconds"] for (phase, _), r in rows.items() if phase not in ("other", "validation"))
    expect(0 < within <= profile["seconds"], "kernels take longer than the steps", profile)
    expect(rows["update", "sum_squares"]["calls"] % 5 == 0 and rows["head and loss", "cross_entropy"]["calls"] >= 5, "calls", rows)
    expect(rows["forward", "matmul"]["flops"] * 2 == rows["backward", "matmul"]["flops"], "backward is twice forward", rows)
    expect(("validation", "attention") in rows and rows["validation", "matmul"]["flops"] > 0, "validation", rows)
    expect(0 < profile["data_cpu_seconds"] < profile["cpu_seconds"], "processor time", profile)
    table = h.run("log", out, "--profile").stdout
    expect(all(name in table for name in ("forward", "adamw", "between", "processor time")), "table", table)
    h.write(os.path.join(out, "metrics.jsonl"), '{"type":"profile","steps":-1,"seconds":"x","rows":[7,{"phase":"forward","op":"\\u001b[2J"}]}\n')
    expect("\x1b" not in h.run("log", out, "--profile").stdout, "a control character of the file")
    h.write(os.path.join(out, "metrics.jsonl"), "")
    expect("when it ends" in h.run("log", out, "--profile", code=2).stderr, "a run without an account")


def test_status_list_inspect(folder):
    path, out, _ = small_run(folder, train={"steps": 4})
    expect(json.loads(h.run("status", out, "--json").stdout)["step"] == 4, "status --json")
    expect("4" in h.run("status", path).stdout, "status")
    export = h.only_export(out)
    for place in (out, export, os.path.join(export, "model.safetensors")):
        expect(h.run("inspect", place).stdout, "inspect says nothing about", place)
        json.loads(h.run("inspect", place, "--json").stdout, parse_constant=h.no_constant)


def test_generate(folder):
    path, out, _ = small_run(folder, train={"steps": 20})

    def say(*more):
        return h.run("generate", out, "--prompt", "First", "--tokens", "20", *more).stdout

    expect(say() and say() == say(), "greedy text differs between two calls")
    warm = ("--temperature", "1", "--top-p", "0.9", "--seed")
    expect(say(*warm, "5") == say(*warm, "5"), "the same seed gives other text")
    expect(len({say(*warm, seed) for seed in "12345"}) > 1, "the seed changes nothing")
    h.run("generate", os.path.join(folder, "nothing"), "--prompt", "x", code=(2, 4))
    timed = h.run("generate", out, "--prompt", "First", "--tokens", "20", "--time")
    expect(re.search(r"prompt of 5 tokens in \d+\.\d+ s; \d+ more in \d+\.\d+ s", timed.stderr), "how long it took", timed.stderr)


def test_tokenize_bytes(folder):
    path, out, _ = small_run(folder, train={"steps": 1})
    export = h.only_export(out)
    text = h.write(os.path.join(folder, "t.txt"), "AB\né z\n")
    expect(h.run("tokenize", export, text).stdout == "65 66\n195 169 32 122\n", "ids of bytes")
    ids = h.write(os.path.join(folder, "ids.txt"), "72 105\n")
    expect(h.run("tokenize", export, ids, "--decode").stdout == "Hi\n", "--decode")
    asked = h.write(os.path.join(folder, "t.json"), json.dumps(["AB", "a\nb"]))
    expect(
        [json.loads(line) for line in h.run("tokenize", export, asked, "--json").stdout.splitlines()] == [[65, 66], [97, 10, 98]], "--json"
    )


def test_export(folder):
    path, out, _ = small_run(folder, train={"steps": 2})
    exact = h.read_tensors(os.path.join(h.only_export(out), "model.safetensors"))
    for kind, dtype, size in (("f32", "F32", 4), ("bf16", "BF16", 2), ("f16", "F16", 2)):
        to = os.path.join(folder, kind)
        h.run("export", out, to, "--dtype", kind)
        got = h.read_tensors(os.path.join(to, "model.safetensors"))
        expect(got.keys() == exact.keys() and all(t[0] == dtype and t[1] == exact[n][1] for n, t in got.items()), "export", kind)
        if kind == "bf16":
            want = struct.unpack("<I", exact["model.norm.weight"][2][:4])[0]
            want = (want + 0x7FFF + (want >> 16 & 1)) >> 16
            expect(struct.unpack("<H", got["model.norm.weight"][2][:2])[0] == want, "bf16 is not rounded to nearest even")
    expect(h.run("export", out, os.path.join(folder, "f32"), code=None).returncode != 0, "an existing folder was overwritten")


def tokens_run(folder, name="llama-multi-query-hd20", vocab=53, rows=32, labels=None, **changes):
    h.copy_model(folder, name)
    h.token_file(os.path.join(folder, "rows.safetensors"), rows, 16, vocab, labels)
    base = {
        "run": {"dir": "out", "threads": 1},
        "model": {"path": "model", "dtype": "f32"},
        "data": {"train": "rows.safetensors"},
        "train": {"steps": 6, "batch_size": 4, "learning_rate": "1e-3"},
    }
    return h.cfg(folder, base=base, **changes), os.path.join(folder, "out")


def test_frozen_tensors_keep_their_bits(folder):
    path, out = tokens_run(folder, model={"freeze": "model.layers.*, *embed*, lm_head.weight"}, train={"steps": 3})
    h.run(path, "--plain")
    before = h.read_tensors(os.path.join(folder, "model", "model.safetensors"))
    after = h.read_tensors(os.path.join(h.only_export(out), "model.safetensors"))
    expect(before.keys() == after.keys(), "names", before.keys() ^ after.keys())
    expect([n for n in before if before[n] != after[n]] == ["model.norm.weight"], "changed:", [n for n in before if before[n] != after[n]])


def test_sharded_bf16_model_trains(folder):
    path, out = tokens_run(folder, "gpt2-bf16-shards", 45)
    h.run(path, "--plain")
    expect(h.losses(out)[-1] < h.losses(out)[0], "losses", h.losses(out))


def test_validation_file_patience_and_best(folder):
    h.text_file(folder)
    h.text_file(folder, 3000, "valid.txt")
    path = h.cfg(
        folder,
        data={"valid": "valid.txt", "valid_split": None},
        train={
            "steps": 400,
            "learning_rate": "3",
            "schedule": "constant",
            "valid_every": 2,
            "patience": 3,
            "keep_best": "yes",
            "clip_norm": 0,
        },
    )
    h.run(path, "--plain")
    out = os.path.join(folder, "out")
    valid = h.metrics(out, "valid")
    expect(h.last_step(out) < 400, "patience did not end a run that gets worse")
    best = min(range(len(valid)), key=lambda i: valid[i]["loss"])
    expect(len([m for m in valid[best + 1 :] if m["step"] > valid[best]["step"]]) >= 3, "ended too early", valid)


def test_last_epoch_may_be_short(folder):
    path, out = tokens_run(folder, rows=10, train={"steps": None, "epochs": 1.5})
    h.run(path, "--plain")
    expect(
        [m["tokens"] for m in h.metrics(out, "step")] == [64, 64, 64, 48],
        "steps of 15 rows, four at a time",
        [m["tokens"] for m in h.metrics(out, "step")],
    )


def test_non_finite_is_shown_and_never_applied(folder):
    path, out = tokens_run(folder, train={"nonfinite": "stop"})
    model = os.path.join(folder, "model", "model.safetensors")
    tensors = h.read_tensors(model)
    name = "model.layers.0.mlp.down_proj.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, h.pack("F32", [3e38 if i % 2 else -3e38 for i in range(len(data) // 4)]))
    h.write_tensors(model, tensors)
    done = h.run(path, "--plain", code=6)
    expect("not applied; the run ends (nonfinite = stop); it took rows" in done.stdout, "what was done", done.stdout)
    expect("step 1 was not finite, and nonfinite = stop; the weights as they were at the start are exported" in done.stderr, done.stderr)
    expect(re.search(r"not finite.* row \d+ of the data \([^ ]*\.safetensors row \d+\)", done.stdout), "the row's place", done.stdout)
    first = h.metrics(out, "step")[0]
    expect(first["loss"] in ("nan", "inf") or first["grad_norm"] in ("nan", "inf"), "not shown raw", first)
    expect(h.metrics(out)[-1]["type"] == "end" and h.metrics(out)[-1]["reason"] == "error", "last line", h.metrics(out)[-1])
    after = h.read_tensors(os.path.join(h.only_export(out), "model.safetensors"))
    expect(all(after[n] == t for n, t in tensors.items()), "the step was applied")


def test_weights_that_are_not_finite_are_named(folder):
    path, out = tokens_run(folder, train={"nonfinite": "skip", "max_skips": 1, "steps": 3})
    model = os.path.join(folder, "model", "model.safetensors")
    tensors = h.read_tensors(model)
    name = "model.layers.0.mlp.down_proj.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, h.pack("F32", [float("nan")] + list(h.unpack(tensors[name]))[1:]))
    h.write_tensors(model, tensors)
    done = h.run(path, "--plain", "--set", "grace=0.2s", code=6)
    said = [m["text"] for m in h.metrics(out, "warning")]
    expect(f"in the weights of {name}, not applied; skipped, 1 of at most 1 in a row" in said[0], said)
    expect("not applied; more than 1 in a row (max_skips): the run waits" in said[1], said)
    expect(said[2].startswith("unsaved since step 0: ") and f'"{name}:master", element 0 is no finite number' in said[2], said)
    expect("step 2 was not exported, the run waits: " + name in said[3], said)
    expect(not [f for f in os.listdir(os.path.join(out, "checkpoints")) if f], "a state that is not finite was saved")
    end = h.metrics(out, "error")[-1]["text"]
    why = "step 2 was not finite, as were more than 1 in a row (max_skips), and nobody answered within 0.2 s (grace)"
    expect(end.startswith(why) and f"nothing was exported: the weights of {name} are not finite" in end, end)
    expect(end in done.stderr and h.exports(out) == [], done.stderr)


def choices_run(folder, name, **changes):
    """Is the animal a bird? The answer follows from the prompt; the one choice is longer than the other."""
    animals = [("gull", 1), ("hound", 0), ("wren", 1), ("horse", 0), ("finch", 1), ("mole", 0)]
    for part, rows in (("train", 60), ("valid", 18)):
        lines = ["animal\tbird"] + [f"{a}\t{b}" for a, b in (animals * 10)[:rows]]
        h.write(os.path.join(folder, f"{part}.tsv"), "\n".join(lines) + "\n")
    data = {"train": "train.tsv", "valid": "valid.tsv", "valid_split": None, "prompt": "{animal}:", "response": "{bird}"}
    data |= {"choices": "0=no, 1=yes it is", **changes.pop("data", {})}
    path = h.cfg(folder, name=name + ".cfg", run={"dir": name}, data=data, **changes)
    return h.run(path, "--plain"), h.metrics(os.path.join(folder, name), "valid")


def test_choices(folder):
    done, valid = choices_run(folder, "out", train={"steps": 100, "valid_every": 50})
    expect([m["records"] for m in valid] == [18, 18], "records", valid)
    expect(valid[-1]["accuracy"] == 1, "the accuracy of what is learned in no time", valid)
    expect(f"validation loss {valid[-1]['loss']:.4f} over {valid[-1]['tokens']} targets, accuracy 1.0000 of 18" in done.stdout, done.stdout)
    _, few = choices_run(folder, "few", train={"steps": 1, "valid_every": 1, "valid_batches": 2, "micro_batch": 1, "learning_rate": "1e-12"})
    expect(few[0]["records"] == 8 and few[0]["accuracy"] in [i / 8 for i in range(9)], "valid_batches", few)
    _, long = choices_run(folder, "long", data={"long_rows": "drop", "sequence_length": 12})
    expect(all(m["records"] == 18 for m in long), "records longer than a row", long)
    _, none = choices_run(folder, "none", data={"choices": None})
    expect(all("accuracy" not in m and "records" not in m for m in none), "accuracy without choices", none)


if __name__ == "__main__":
    h.main()
