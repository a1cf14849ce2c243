"""A run that was cut off goes on from its newest checkpoint as if nothing had happened: the same losses, norms, rates and weights, bit for
bit, whatever the strategy, wherever it was cut off, and whoever had steered it. `long` (an argument) does it at every step and every call."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import harness as h
from harness import expect

LONG = "long" in sys.argv[1:]
FAULTS = os.environ["ZF_FAULTS"]  # see faults.c

SWAPS, UPDATES = ("staggered", "rolling", "global"), ("each", "mean")
POLICIES = {
    "gpu_only": {},
    "zero_offload": {},
    "stronghold": {},
    "selected_only": {},
    **{f"zenflow_sync-{s}-{u}": {"swap": s, "cpu_update": u} for s in SWAPS for u in UPDATES},
    **{f"zenflow-{s}-{u}": {"swap": s, "cpu_update": u} for s in SWAPS for u in UPDATES},
    "zenflow-late": {"optimistic": "no", "cpu_update": "mean", "cpu_learning_rate": "window"},
    "zenflow-device": {"optimistic": "no", "cpu_update": "mean", "accumulate_on": "device"},
    "zenflow-bf16": {"bus_dtype": "f32"},
    "gpu_only-bf16": {},
}
FEW_POLICIES = ("gpu_only", "stronghold", "selected_only", "zenflow_sync-rolling-mean", "zenflow-staggered-each", "zenflow-global-mean", "zenflow-device", "zenflow-bf16")
STEPS = 14
SMALL = {
    "run": {"dir": "out", "seed": 3, "threads": 1},
    "model": {"family": "llama", "layers": 1, "hidden": 32, "heads": 2, "ffn": 64, "context": 32, "tokenizer": "bytes", "dtype": "f32"},
    "data": {"train": "text.txt", "sequence_length": 32},
    "train": {"steps": STEPS, "batch_size": 4, "micro_batch": 2, "learning_rate": "1e-2", "warmup_steps": 3},
    "zenflow": {"strategy": "zenflow", "topk_ratio": 0.25, "update_interval": 3, "select_interval": 6},
    "checkpoint": {"save_every": 4},
}


def fault(what, file, call="any", first=1, last=None, text=""):
    """The environment in which one of its writes ends the trainer (kill), or fails with an error's number."""
    more = {"LD_PRELOAD": FAULTS, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    return {**os.environ, **more, "ZF_FAULT": f"{what}|{file}|{call}|{first}|{last or first}" + (f"|{text}" if text else "")}


def at_step(step, what="late"):
    """late: what was to be saved by then is; kill: it may still be being written."""
    return fault(what, "metrics.jsonl", "write", text=f'"type":"step","step":{step},')


def setting(folder, name="out", **changes):
    if not os.path.exists(os.path.join(folder, "text.txt")):
        h.text_file(folder)
    strategy = {"zenflow": {"strategy": "zenflow"}}
    path = h.cfg(folder, name + ".cfg", base=SMALL, **{**strategy, **changes, "run": {"dir": name, **changes.get("run", {})}})
    return path, os.path.join(folder, name)


def killed(path, *words, env):
    h.run(path, *words, program=h.TRAINER, env=env, code=-signal.SIGKILL)


def go_on(path, *words, **more):
    return h.run(path, *words, program=h.TRAINER, **more)


FIELDS = ("step", "loss", "grad_norm", "clip", "learning_rate", "rows", "tokens", "skipped")


def course(out):
    return [tuple(str(m[f]) for f in FIELDS) for m in h.metrics(out, "step", whole=False)]


def weights(out):
    exports = [j["file"] for j in journal(out) if j["type"] == "export"]
    with open(os.path.join(exports[-1], "model.safetensors"), "rb") as f:
        return f.read()


def journal(out):
    return h.json_lines(os.path.join(out, "journal.jsonl"))


def saves(out):
    return sorted(n for n in os.listdir(os.path.join(out, "checkpoints")) if n.endswith(".zfc"))


def save_of(out, step):
    return os.path.join(out, "checkpoints", f"step-{step:08}.zfc")


def same(out, other, what=""):
    a, b = course(out), course(other)
    expect([x[0] for x in a] == [x[0] for x in b], what, "steps", [x[0] for x in a])
    for x, y in zip(a, b):
        expect(x == y, what, "the first step that differs:", dict(zip(FIELDS, x)), "and not", dict(zip(FIELDS, y)))
    expect(weights(out) == weights(other), what, "the weights differ at the end")


def uninterrupted(folder, name="whole", **changes):
    path, out = setting(folder, name, **changes)
    go_on(path)
    return out


def policy(name):
    dtype = {"dtype": "bf16", "stochastic_rounding": "yes"} if name.endswith("bf16") else {}
    return {"zenflow": {"strategy": name.split("-")[0], **POLICIES[name]}, "model": dtype}


def cut(out, number=1):
    return h.json_lines(os.path.join(out, f"metrics.cut-{number}.jsonl"), whole=False)


def test_every_policy(folder):
    """Cut off somewhere, each elsewhere: far from a checkpoint, or in a step that is written down just now. With `long` at every step, and
    twice. (test_state.c does more of it, without files.)"""
    for number, name in enumerate(FEW_POLICIES if h.FEWER else POLICIES):
        whole = uninterrupted(folder, "whole-" + name, **policy(name))
        for first in range(1, STEPS) if LONG else (5 + number % 8,):
            path, out = setting(folder, f"{name}-{first}", **policy(name))
            killed(path, env=at_step(first))
            if LONG and first < 12:
                killed(path, env=at_step(12))
            go_on(path)
            same(out, whole, f"{name} cut off at {first}")


def test_every_step(folder):
    """A checkpoint of each step, gone on from: cut off after every single one, or every other."""
    every, even, odd = range(2, STEPS + 1), range(2, STEPS + 1, 2), range(3, STEPS + 1, 2)
    some = {"zenflow-staggered-each": every, "zenflow-rolling-mean": even, "zenflow-device": odd, "zenflow-bf16": even}
    some = {"zenflow-rolling-mean": even, "zenflow-bf16": range(4, STEPS, 4)} if h.FEWER else some
    for name, steps in dict.fromkeys(POLICIES, every).items() if LONG else some.items():
        whole = uninterrupted(folder, "whole-" + name, **policy(name))
        path, out = setting(folder, name, **policy(name), checkpoint={"save_every": 1})
        for step in steps:
            killed(path, env=at_step(step))
        go_on(path)
        expect(h.metrics(out, "start")[-1]["attempt"] == len(steps) + 1, "attempts")
        same(out, whole, name)


def test_cut_off_within_a_save(folder):
    """At each of its writes, its fsyncs, its rename: what is there is the one before, whole."""
    for name in POLICIES if LONG else ("zenflow-staggered-each",):
        whole = uninterrupted(folder, "whole-" + name, **policy(name))
        for n in range(1, 1000) if LONG else (1, 2, 3, 8, 20, 33, 35, 36, 37, 38, 39, 1000):
            path, out = setting(folder, "out", **policy(name))
            done = h.run(path, program=h.TRAINER, env=fault("kill", "step-00000008.zfc.tmp", first=n), code=(0, -signal.SIGKILL))
            if not done.returncode:
                shutil.rmtree(out)
                break
            left = os.listdir(os.path.join(out, "checkpoints"))
            expect(any(".zfc.tmp-" in f for f in left), "nothing was cut off", n, left)
            done = go_on(path)
            expect("goes on from" in done.stdout and "step-00000004.zfc, step 4" in done.stdout, done.stdout)
            expect(re.search("ended without a clean stop at step ([89]|1[0-4])", done.stdout), "how it died is not told", done.stdout)
            expect(not [f for f in os.listdir(os.path.join(out, "checkpoints")) if "tmp" in f], "what was left of it is still there")
            same(out, whole, f"{name}, call {n}")
            shutil.rmtree(out)
        expect(n > 5, "calls of a save", n)


def steered(folder, name, env=None, **changes):
    """Waits before step 6, is steered there by hand, and goes on; killed in `env`, else to the end."""
    at = {"6": "pause", "8": "set clip_norm x0.5", "10": "mark ten", "11": "undo"}
    path, out = setting(folder, name, at=at, **changes)
    p = h.start(path, program=h.TRAINER, env=env or os.environ)
    h.wait_for_step(p, out, 5)
    for command in ("set learning_rate 5e-3 weight_decay 0.02", "set topk_ratio 0.5", "at 9 set beta1 0.8", "at 13 set weight_decay 0.1"):
        h.run("send", out, *command.split(" "))
    h.run("send", out, "select", code=(0, 1))  # not every strategy does
    h.run("send", out, "resume")
    h.finish(p, -signal.SIGKILL if env else 0)
    del at["6"]
    return setting(folder, name, at=at, **changes)


def test_what_was_done_by_hand_is_done_again(folder):
    """Changes, `select`, what was put off, [at] and its undo: at their steps, and told as by those who had done them."""
    for name in ("zenflow-staggered-each", "zenflow_sync-global-mean", "gpu_only"):
        _, whole = steered(folder, "whole-" + name, **policy(name))
        path, out = steered(folder, name, at_step(7), **policy(name))
        killed(path, env=at_step(12))
        go_on(path)
        same(out, whole, name)
        told = [(m["option"], m["from_step"], m["by"]) for m in h.metrics(out, "change")]
        wanted = [("learning_rate", 6, "send"), ("weight_decay", 6, "send"), ("topk_ratio", 6, "send"), ("clip_norm", 8, "at"), ("beta1", 9, "at"), ("beta1", 11, "at"), ("weight_decay", 13, "at")]
        expect(told == wanted, name, told)
        by_send = [j["command"] for j in journal(out) if j["type"] == "change" and j["by"] == "send"]
        expect(len(by_send) == 2, "what stands in the journal is written again", by_send)


def test_a_save_between_the_commands_of_a_step(folder):
    """Those that were done before it are in it; those after it are done again; `undo` knows what was before."""
    at = {"5": "set lr 5e-3", "6": "set lr x0.5\n6 = select\n6 = save mine\n6 = set lr x0.5", "9": "undo", "10": "undo"}
    whole = uninterrupted(folder, at=at)
    path, out = setting(folder, at=at)
    killed(path, env=at_step(7))
    said = go_on(path).stdout
    expect("mine.zfc, step 5" in said, said)
    same(out, whole)


def test_other_threads(folder):
    whole = uninterrupted(folder, model={"hidden": 64, "ffn": 128})
    path, out = setting(folder, model={"hidden": 64, "ffn": 128})
    killed(path, env=at_step(6))
    said = go_on(path, "--set", "threads=2").stderr
    expect("threads 1 -> 2, as run.cfg says now" in said, said)
    same(out, whole)


def test_from_another_folder(folder):
    whole = uninterrupted(folder)
    path, out = setting(folder)
    h.run("out.cfg", program=h.TRAINER, env=at_step(6), code=-signal.SIGKILL, cwd=folder)
    os.mkdir(os.path.join(folder, "elsewhere"))
    done = go_on("../out.cfg", cwd=os.path.join(folder, "elsewhere"))
    expect("goes on from" in done.stdout and not done.stderr, done.stdout, done.stderr)
    same(out, whole)
    path, out = setting(folder, "b")
    killed(path, env=at_step(6))
    go_on(os.path.join(out, "run.cfg"))  # what really ran, of the run itself
    same(out, whole)


def test_auto_repeats_its_decisions(folder):
    """They come from clocks, or (here, so that there are some) from a limit: what was decided after the checkpoint is taken from the journal, as far as
    the run had come."""
    slow = {"data": {"sequence_length": 128}, "model": {"hidden": 48, "ffn": 96, "context": 128}, "train": {"steps": 60, "batch_size": 4, "learning_rate": "1e-3"}}
    limits = {"10": "set max_update_interval 3", "30": "set max_update_interval 2"}
    path, out = setting(folder, **slow, zenflow={"update_interval": "auto"}, checkpoint={"save_every": 5, "keep": 100}, at=limits)
    killed(path, env=at_step(50))
    decided = [j for j in journal(out) if j["type"] == "change" and j["by"] == "auto"]
    expect(decided, "no decision in 50 steps")
    before = {x[0]: x for x in course(out)}
    killed(path, "--resume", save_of(out, 5), env=at_step(8))
    go_on(path)
    after = {x[0]: x for x in course(out)}
    expect(all(after[str(n)] == before[str(n)] for n in range(1, 50)), "other steps than before")
    again = [(m["from_step"], m["new"]) for m in h.metrics(out, "change") if m["from_step"] <= 50 and m["option"] == "update_interval"]
    expect(again == [(j["from_step"], j["changes"][0]["new"]) for j in decided], again, decided)


def rates(out):
    return {m["step"]: m["learning_rate"] for m in h.metrics(out, "step", whole=False)}


STEADY = {"schedule": "constant", "warmup_steps": 0}


def test_edits_of_the_file(folder):
    """What was edited since the last start wins over checkpoint and journal, from the next step on; what was not edited does not."""
    path, out = setting(folder, train=STEADY, at={"3": "set weight_decay 0.3", "6": "pause"})
    p = h.start(path, program=h.TRAINER, env=at_step(8))
    h.wait_for_step(p, out, 5)
    for words in (("set", "lr", "5e-3", "beta1", "0.8"), ("set!", "weight_decay", "0.5"), ("resume",)):
        h.run("send", out, *words)
    h.finish(p, -signal.SIGKILL)
    # edited: the rate to another, the decay to what the checkpoint has and the journal changed; beta1 is not
    edited = {"train": {**STEADY, "learning_rate": "2e-3", "weight_decay": 0.3}, "run": {"note": "edited"}}
    path, out = setting(folder, **edited)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    killed(path, env=at_step(10))
    seen = rates(out)
    expect([seen[n] for n in range(1, 10)] == [1e-2] * 4 + [2e-3] * 5, seen)
    by_file = [(j["from_step"], j["command"]) for j in journal(out) if j["type"] == "change" and j["by"] == "file"]
    expect(len(by_file) == 1 and by_file[0][0] == 5 and "learning_rate 0.002" in by_file[0][1], by_file)
    told = [(m["option"], m["from_step"], m["by"]) for m in h.metrics(out, "change", whole=False)]
    wanted = [("weight_decay", 3, "at"), ("note", 5, "file"), ("learning_rate", 5, "file"), ("beta1", 6, "send")]
    expect(told == wanted, told)
    # not edited any more: now the journal counts
    p = h.start(path, program=h.TRAINER, env=at_step(12))
    h.finish(p, -signal.SIGKILL)
    expect(rates(out)[9] == 2e-3 and rates(out)[11] == 2e-3, rates(out))
    killed(path, "--resume", save_of(out, 4), env=at_step(9))
    expect([rates(out)[n] for n in (4, 5, 6, 8)] == [1e-2, 2e-3, 2e-3, 2e-3], rates(out))
    expect(open(path, encoding="utf-8").read() == text, "the user's file was changed")
    # restart-only: part of what the run is; or not
    before = open(os.path.join(out, "journal.jsonl"), "rb").read()
    bad = h.run(path, "--set", "batch_size=8", "--set", "sequence_length=16", program=h.TRAINER, code=1).stderr
    expect("batch_size 4 -> 8" in bad and "sequence_length 32 -> 16" in bad and "--set dir=NAME" in bad, bad)
    expect(open(os.path.join(out, "journal.jsonl"), "rb").read() == before, "a refused start has left something")
    good = go_on(path, "--set", "micro_batch=1", "--set", "memory_limit=1G", "--set", "lr=4e-3")
    expect("micro_batch 2 -> 1" in good.stderr and "memory_limit 0 -> 1G" in good.stderr, good.stderr)
    expect(rates(out)[STEPS] == 4e-3 and "learning_rate 0.002 -> 0.004, from step 9" in good.stdout, good.stdout)
    beta1 = json.loads(h.run("status", out, "--json").stdout)
    expect(beta1["step"] == STEPS, beta1)


def test_an_edit_is_not_lost_when_its_start_dies(folder):
    path, out = setting(folder, train=STEADY)
    killed(path, env=at_step(6))
    path, out = setting(folder, train={**STEADY, "learning_rate": "2e-3"})
    killed(path, env=fault("kill", "metrics.jsonl", "write", text='"type":"start"'))
    go_on(path)
    expect(rates(out)[4] == 1e-2 and rates(out)[5] == 2e-3, rates(out))


def test_cut_off_before_the_first_checkpoint(folder):
    """It begins again, in the same directory, with what had been changed by hand and decided since."""
    _, whole = steered(folder, "whole", checkpoint={"save_every": 0})
    path, out = steered(folder, "out", at_step(8), checkpoint={"save_every": 0})
    report = json.loads(h.run("check", path, "--json").stdout)["start"]
    expect(report["would"] == "continue" and "begin again" in report["text"], report)
    killed(path, env=at_step(7))
    said = go_on(path).stdout
    expect("it has no checkpoint yet, and begins again" in said, said)
    same(out, whole)
    expect([m["attempt"] for m in h.metrics(out, "resume")] == [2, 3], h.metrics(out, "resume"))
    os.remove(save_of(out, STEPS))
    bad = h.run(path, "--set", "steps=20", program=h.TRAINER, code=1).stderr
    expect("no checkpoint that is whole" in bad, bad)


def test_an_older_checkpoint(folder):
    """What the run did after it is of another course, and never taken again."""
    path, out = setting(folder, checkpoint={"keep": 100})
    killed(path, env=at_step(13))
    expect(saves(out) == [f"step-{n:08}.zfc" for n in (4, 8, 12)], saves(out))
    killed(path, "--resume", save_of(out, 4), env=at_step(6))
    listed = [m["step"] for m in h.metrics(out, "step", whole=False)]
    expect(listed == [1, 2, 3, 4, 5], listed)
    said = go_on(path).stdout
    expect("step-00000004.zfc, step 4" in said, said)
    same(out, uninterrupted(folder))


def refused(path, *words, code=1, **more):
    out = path[:-4]
    before = open(os.path.join(out, "journal.jsonl"), "rb").read()
    done = h.run(path, *words, program=h.TRAINER, code=code, **more)
    expect(open(os.path.join(out, "journal.jsonl"), "rb").read() == before, words, "a refused start has left something")
    return done.stderr


def test_a_signal_while_it_is_read(folder):
    """Of a large one that takes a while: the start ends, and nothing is written."""
    path, out = setting(folder)
    killed(path, env=at_step(6))
    said = [refused(path, code=5, env=fault("term", ".zfc", "read", n)) for n in range(20, 161, 20)]
    expect(any("stopped while its checkpoint was read; nothing was changed" in s for s in said), said)
    go_on(path)
    same(out, uninterrupted(folder))


def test_what_is_no_checkpoint_of_it(folder):
    path, out = setting(folder, checkpoint={"keep": 100})
    killed(path, env=at_step(10))
    other, its = setting(folder, "other", train={"learning_rate": "1e-3"}, checkpoint={"keep": 100})
    killed(other, env=at_step(10))
    expect("another run" in refused(path, "--resume", save_of(its, 8)), "a checkpoint of another run")
    expect("dir" in refused(path, "--resume", "never"), "never")
    text = h.write(os.path.join(folder, "x.zfc"), "no checkpoint at all\n")
    expect("x.zfc" in refused(path, "--resume", text, code=4), "a text file")
    expect("no such file" in refused(path, "--resume", os.path.join(folder, "nowhere.zfc"), code=2), "none")
    expect("there is no such checkpoint; there are: step-" in refused(path, "--resume", "3x", code=2), "none of that name")
    expect("has: step-" in refused(path, "--resume", save_of(out, 99), code=2), "none of that step")
    for name in ("cut", "flipped", "empty"):
        path, out = setting(folder, name)
        killed(path, env=at_step(10))
        with open(save_of(out, 8), "rb") as f:
            whole = f.read()
        damaged = {"cut": whole[: len(whole) // 2], "flipped": whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], "empty": b""}
        with open(save_of(out, 8), "wb") as f:
            f.write(damaged[name])
        expect("step-00000008.zfc" in refused(path, "--resume", save_of(out, 8), code=4), name)
        if name == "cut":
            os.rename(save_of(out, 4), os.path.join(folder, "away"))
            shutil.copy(path, save_of(out, 4))
            said = refused(path)
            expect("step-00000008.zfc" in said and "step-00000004.zfc" in said and "no checkpoint that is whole" in said, said)
            expect("--set dir=NAME" in said, said)
            os.rename(os.path.join(folder, "away"), save_of(out, 4))
        done = go_on(path)
        expect("step-00000008.zfc" in done.stderr and "passed over" in done.stderr, name, done.stderr)
        expect("step-00000004.zfc, step 4" in done.stdout, name, done.stdout)
        same(out, uninterrupted(folder, "whole-" + name), name)


def test_more_steps_after_the_end(folder):
    constant = {**policy("gpu_only"), "train": {**STEADY, "steps": STEPS}}
    path, out = setting(folder, **constant)
    go_on(path)
    expect("is over" in go_on(path).stdout, "over")
    done = go_on(path, "--set", "steps=20")
    expect("learning rate 0" not in done.stdout, "the schedule is constant", done.stdout)
    expect(h.metrics(out)[-1]["step"] == 20 and "steps 14 -> 20, from step 15" in done.stdout, done.stdout)
    same(out, uninterrupted(folder, **{**constant, "train": {**STEADY, "steps": 20}}))
    expect("is over" in go_on(path, "--set", "steps=20").stdout, "over")
    text = {"train": "short.txt", "sequence_length": 32}
    h.text_file(folder, 400, "short.txt")
    path, out = setting(folder, "epochs", data=text, train={"steps": None, "epochs": 2})
    go_on(path)
    steps = h.last_step(out)
    done = go_on(path, "--set", "epochs=3")
    expect(h.last_step(out) > steps and "epochs 2 -> 3" in done.stderr, done.stderr)
    expect(f"note: schedule_steps: steps {steps + 1} to {h.last_step(out)} have learning rate 0" in done.stdout, done.stdout)


def test_more_steps_than_the_schedule(folder):
    """They would train nothing: that is said before, with what to do; which then does it."""
    path, out = setting(folder, at={"10": "set steps 16"})
    asked = go_on(path)
    left = lambda first, last, end: f"steps {first} to {last} have learning rate 0 (min_learning_rate), as the schedule {end} at step 14; set schedule_steps {last} too"
    expect(left(15, 16, "ends") in asked.stdout, "the answer of `set`", asked.stdout)
    expect("raise steps, and schedule_steps with it" in go_on(path).stdout, "the end")
    expect("raise steps, and schedule_steps with it" in json.loads(h.run("check", path, "--json").stdout)["start"]["text"], "check")
    words = ("--set", "steps=20")
    expect(left(17, 20, "ended") in h.run("check", path, *words).stdout, "check")
    expect(left(17, 20, "ended") in go_on(path, *words).stdout, "a start")
    more = (*words[:1], "steps=24", "--set", "schedule_steps=24")
    expect("learning rate 0" not in h.run("check", path, *more).stdout, "a schedule that reaches further")
    expect("learning rate 0" not in go_on(path, *more).stdout, "a schedule that reaches further")
    seen = rates(out)
    expect(seen[20] == 0 and all(seen[n] > 0 for n in range(21, 25)), seen)
    fresh, _ = setting(folder, "fresh", train={"schedule_steps": 10})
    expect("steps 11 to 14 have learning rate 0" in h.run("check", fresh).stdout, "a fresh one")


def test_check_tells_what_would_change(folder):
    """By the same comparison as a start: what it would print, and what it would refuse."""
    path, out = setting(folder, checkpoint={"save_every": 4})
    killed(path, env=at_step(6))
    report = lambda *words, **more: json.loads(h.run("check", path, *words, "--json", **more).stdout)["start"]
    expect(report()["would"] == "continue" and report()["changes"] == [], report())
    words = ("--set", "lr=3e-3", "--set", "save_every=5", "--set", "micro_batch=1")
    said = h.run("check", path, *words)
    expect("\nedited         learning_rate 0.01 -> 0.003, save_every 4 -> 5, from step 5\n" in said.stdout, said.stdout)
    expect("\nedited         micro_batch 2 -> 1\n" in said.stdout, said.stdout)
    wanted = {"learning_rate": ("0.01", "0.003", 5), "save_every": ("4", "5", 5), "micro_batch": ("2", "1", None)}
    seen = {c["option"]: (c["old"], c["new"], c.get("from_step")) for c in report(*words)["changes"]}
    expect(seen == wanted, seen)
    bad = ("--set", "batch_size=8", "--set", "lr=3e-3")
    refusal = report(*bad, code=1)
    expect(refusal["would"] == "refuse" and refusal["code"] == 1 and "batch_size 4 -> 8" in refusal["text"], refusal)
    expect("changes" not in refusal, refusal)
    expect(refusal["text"] in refused(path, *bad), "a start says the same")
    done = go_on(path, *words)
    expect("learning_rate 0.01 -> 0.003, from step 5" in done.stdout and "micro_batch 2 -> 1" in done.stderr, done.stdout, done.stderr)


def test_data_that_changed(folder):
    """It is part of what the run is, by what it holds: the run does not go on with other data, and with the same wherever its rows are kept."""
    jsonl = lambda name, words: h.write(os.path.join(folder, name), "".join(json.dumps({"text": w * 3}) + "\n" for w in words))
    words = [f"line {i} " for i in range(80)]
    more = {"train": "a.jsonl", "valid": "v.jsonl"}
    jsonl("a.jsonl", words), jsonl("v.jsonl", words[:9])
    whole = uninterrupted(folder, data=more)
    path, out = setting(folder, data=more)
    killed(path, env=at_step(6))
    for name, changed in (("a.jsonl", words[:50]), ("a.jsonl", [w.replace("line 7 ", "line 8 ") for w in words]), ("v.jsonl", words[:7])):
        was = open(os.path.join(folder, name), encoding="utf-8").read()
        before = open(os.path.join(out, "journal.jsonl"), "rb").read()
        jsonl(name, changed)
        said = refused(path)
        expect(f"data: {folder}/{name} is not what the run began with (" in said and "--set path=EXPORT --set dir=NAME" in said, said)
        expect(len(changed) == 80 or "rows then" in said, said)
        report = h.run("check", path, "--json", code=1)
        start = json.loads(report.stdout)["start"]
        expect(start["would"] == "refuse" and start["code"] == 1 and start["text"] in said, start)
        expect(open(os.path.join(out, "journal.jsonl"), "rb").read() == before, "a refused start has left something")
        h.write(os.path.join(folder, name), was)
    # rows that are made, and found, in a cache; and lines elsewhere in the file
    kept = ("--set", f"cache={folder}/rows")
    killed(path, *kept, env=at_step(9))
    expect(len(os.listdir(os.path.join(folder, "rows"))) == 2, "no rows are kept")
    killed(path, *kept, env=at_step(11))
    jsonl("a.jsonl", words[:50])
    expect("is not what the run began with" in refused(path, *kept), "kept rows of the other file")
    jsonl("a.jsonl", words)
    with open(os.path.join(folder, "a.jsonl"), encoding="utf-8") as f:
        text = f.read()
    h.write(os.path.join(folder, "a.jsonl"), "\n" + text)
    go_on(path)
    same(out, whole, "the same data")
    # before the first checkpoint
    path, out = setting(folder, "early", data=more, checkpoint={"save_every": 0})
    killed(path, env=at_step(3))
    jsonl("a.jsonl", words[:50])
    expect("is not what the run began with" in refused(path), "a run that begins again")


SLOW = {"model": {"hidden": 128, "ffn": 256}, "train": {"batch_size": 8, "micro_batch": 1, "steps": 120}, "checkpoint": {"save_every": 0}}


def ended(out, step):
    """As every way of ending: a checkpoint of the last whole step, said in the journal; no step is half."""
    kinds = [j["type"] for j in journal(out)]
    expect(kinds[-1] == "end" and "checkpoint" in kinds, kinds)
    last = [j for j in journal(out) if j["type"] == "checkpoint"][-1]
    expect(last["step"] == step == h.last_step(out) and os.path.exists(last["file"]), last, step, h.last_step(out))


def test_ended_in_order(folder):
    """By a signal in the middle of a step, by a command, by time: exit 5, and the run goes on with the same bits."""
    some = (("zenflow-staggered-each", 1), ("zenflow-staggered-each", 8), ("stronghold", 1))
    for name, micro in some[: 1 if h.FEWER else 3] if not LONG else ((p, m) for p in POLICIES for m in (1, 8)):
        more = {**SLOW, "train": {**SLOW["train"], "micro_batch": micro}, "model": {**SLOW["model"], **policy(name)["model"]}, "zenflow": {**policy(name)["zenflow"], "update_interval": 3, "select_interval": 6}}
        whole = uninterrupted(folder, f"whole-{name}-{micro}", **more)
        path, out = setting(folder, f"{name}-{micro}", **more)
        for n, way in enumerate((signal.SIGTERM, signal.SIGINT, "stop", "max_time", signal.SIGTERM)):
            words = ("--set", "max_time=0.1s") if way == "max_time" else ()
            p = h.start(path, *words, program=h.TRAINER)
            if way != "max_time":
                h.wait_for_step(p, out, (h.last_step(out) if n else 0) + 3)
                time.sleep(0.003 * n)
            if way == "stop":
                h.run("send", out, "stop")
            elif way != "max_time":
                p.send_signal(way)
            _, err = p.communicate(timeout=30 * h.SLOW)
            if p.returncode == 0 and n > 1:
                break
            expect(p.returncode == 5, name, way, p.returncode, err)
            ended(out, h.last_step(out))
        if h.metrics(out)[-1]["step"] < 120:
            go_on(path)
        same(out, whole, name)


def test_validations_go_on(folder):
    """Their losses, the best one, patience: also where a signal came in the middle of one; none twice, none left out."""
    more = {
        "data": {"train": "text.txt", "sequence_length": 32, "valid_split": 0.3},
        "train": {"valid_every": 3, "patience": 3, "keep_best": "yes", "learning_rate": "3e-1", "steps": 60, "clip_norm": 0},
        "log": {"sample_every": 3, "sample_prompt": "First", "score_every": 0},
    }
    seen = lambda out: [(m["step"], m["loss"]) for m in h.metrics(out, "valid")]
    whole = uninterrupted(folder, **more)
    expect(9 <= h.last_step(whole) < 60, "patience did not end it", seen(whole))
    path, out = setting(folder, **more)
    for n in range(3, h.last_step(whole), 6 if h.FEWER else 3):
        env = fault("term", "metrics.jsonl", "write", text=f'"type":"step","step":{n},')
        h.run(path, program=h.TRAINER, env=env, code=5)
        ended(out, n)
    go_on(path)
    expect(seen(out) == seen(whole), seen(out), seen(whole))
    same(out, whole)
    best = [[(j["step"], j["loss"]) for j in journal(o) if j["type"] == "export" and j["best"]] for o in (out, whole)]
    expect(best[0] == best[1], "the best ones", best)
    # in the last one, after the drain
    path, out = setting(folder, "last", **policy("zenflow-global-mean"), data=more["data"])
    env = fault("term", "metrics.jsonl", "write", text=f'"type":"step","step":{STEPS},')
    h.run(path, program=h.TRAINER, env=env, code=5)
    go_on(path)
    whole = uninterrupted(folder, "last-whole", **policy("zenflow-global-mean"), data=more["data"])
    expect(seen(out) == seen(whole) and len(seen(out)) == 1, seen(out), seen(whole))
    same(out, whole)


def test_exports_after_the_strategy_changed(folder):
    """Channels lie where the strategy before left them, in the process that goes on as well; what is exported is in the model's order."""
    for name in ("zenflow-bf16", "zenflow_sync-rolling-mean"):
        for to in ("gpu_only", "zero_offload", "selected_only", "stronghold") if not h.FEWER else ("gpu_only",) if name == "zenflow-bf16" else ("stronghold",):
            more = {**policy(name), "model": {"dtype": "bf16"}, "at": {"8": f"set strategy {to}", "13": "export"}}
            whole = uninterrupted(folder, f"{name}-{to}-whole", **more)
            path, out = setting(folder, f"{name}-{to}", **more, checkpoint={"save_every": 1, "keep": 99})
            killed(path, env=at_step(10))
            go_on(path)
            same(out, whole, f"{name} to {to}")
            there = os.path.join(folder, f"{name}-{to}-12")
            for way in ((), ("--drain",)):
                h.run("export", out, there, "--step", "12", *way)
                files = [open(os.path.join(d, "model.safetensors"), "rb").read() for d in (there, os.path.join(whole, "exports", "step-00000012"))]
                expect(files[0] == files[1], name, to, way)
                shutil.rmtree(there)


def test_metrics_are_cut_and_kept(folder):
    path, out = setting(folder, log={"tensorboard": "yes"})
    killed(path, env=at_step(7))
    torn = open(os.path.join(out, "metrics.jsonl"), encoding="utf-8").read()
    killed(path, env=at_step(11))
    go_on(path)
    expect([m["step"] for m in h.metrics(out, "step")] == list(range(1, STEPS + 1)), "a step twice, or missing")
    expect([m["step"] for m in cut(out) if m["type"] == "step"] == [5, 6], cut(out))
    expect([m["step"] for m in cut(out, 2) if m["type"] == "step"] == [9, 10], cut(out, 2))
    kept = open(os.path.join(out, "metrics.cut-1.jsonl"), encoding="utf-8").read()
    expect(torn.endswith(kept) and "\n" in kept, "the tail is not what was there")
    expect([(m["step"], m["attempt"]) for m in h.metrics(out, "resume")] == [(4, 2), (8, 3)], h.metrics(out, "resume"))
    expect([m["attempt"] for m in h.metrics(out, "start")] == [1, 2, 3], "attempts")
    rows = json.loads(h.run("log", out, "--json", "--fields", "step,loss").stdout)
    expect([r["step"] for r in rows] == list(range(1, STEPS + 1)), rows)
    said = json.loads(h.run("status", out, "--json").stdout)
    expect(said["step"] == STEPS and said["state"] in ("done", "ended", "over", "finished"), said)
    times = [m["time"] for m in h.metrics(out, "step")]
    expect(times == sorted(times), "time runs backwards", times)
    events = os.listdir(os.path.join(out, "tensorboard"))
    expect(len(events) >= 3, "an event file an attempt", events)


def test_which_ones_are_kept(folder):
    """Only our own go: what a person saved, named or put there stays."""
    path, out = setting(folder, checkpoint={"save_every": 1, "keep": 2}, at={"5": "save mine", "6": "save step-3"})
    killed(path, env=at_step(9))
    folder_of = os.path.join(out, "checkpoints")
    expect(saves(out) == ["mine.zfc", "step-00000007.zfc", "step-00000008.zfc", "step-3.zfc"], saves(out))
    shutil.copy(save_of(out, 8), save_of(out, 99))  # ours by its name, not by the journal
    for name in ("notes.txt", "step-00000001.zfc.old", "a.tmp-1", "b.zfc.tmp-x"):
        h.write(os.path.join(folder_of, name), "foreign")
    for name in ("step-00000009.zfc.tmp-4000001", "mine.zfc.tmp-77"):
        h.write(os.path.join(folder_of, name), "left behind")
    go_on(path)
    found = sorted(os.listdir(folder_of))
    expect(found == sorted(["a.tmp-1", "b.zfc.tmp-x", "mine.zfc", "notes.txt", "step-00000001.zfc.old", "step-00000099.zfc", "step-00000013.zfc", "step-00000014.zfc", "step-3.zfc"]), found)


def test_those_of_another_course_stay(folder):
    """Whoever goes back may want to go forward again, by name."""
    path, out = setting(folder, checkpoint={"save_every": 1, "keep": 2}, at={"5": "save mine"})
    killed(path, env=at_step(9))
    mine = os.path.join(out, "checkpoints", "mine.zfc")
    h.run(path, "--plain", "--resume", mine, "--set", "steps=6")
    expect(saves(out) == ["mine.zfc", "step-00000005.zfc", "step-00000006.zfc", "step-00000007.zfc", "step-00000008.zfc"], saves(out))
    done = h.run(path, "--plain", "--set", "steps=7")
    expect("step-00000006.zfc" in done.stdout, "which one", done.stdout)


def test_steps_that_were_lowered_while_it_went_on(folder):
    """A run that came to its last step is over, though run.cfg once asked for more; more than that go on."""
    path, out = setting(folder, at={"4": "set steps 6"}, checkpoint={"save_every": 0})
    h.run(path, "--plain")
    expect("this run is over" in h.run(path, "--plain").stdout and h.last_step(out) == 6, "over", h.last_step(out))
    h.run(path, "--plain", "--set", "steps=8")
    expect(h.last_step(out) == 8, "more", h.last_step(out))


def test_a_pause_after_a_step_that_is_not_finite_and_a_kill(folder):
    """The state of the last good step was saved before anybody was waited for; the next start goes on as `resume` would have."""
    bad = {"train": {"learning_rate": "1e20", "schedule": "constant", "warmup_steps": 0, "clip_norm": 0}, "checkpoint": {"save_every": 0}}
    path, out = setting(folder, **bad, **policy("gpu_only"))
    p = h.start(path, program=h.TRAINER)
    end = time.monotonic() + 30 * h.SLOW
    while time.monotonic() < end and "not finite" not in h.run("send", out, "status", code=(0, 2, 8)).stdout:
        time.sleep(0.05)
    step = h.last_step(out)
    expect(os.path.exists(save_of(out, step)) or "is no finite number" in str(h.metrics(out, "warning")), h.metrics(out, "warning"))
    p.kill()
    p.wait()
    if os.path.exists(save_of(out, step)):
        done = h.run(path, "--set", "grace=0.1s", program=h.TRAINER, code=6)
        expect(f"step {step}" in done.stdout, done.stdout)


def test_sigusr1_saves_and_the_run_goes_on(folder):
    path, out = setting(folder, train={"steps": 100000}, checkpoint={"save_every": 0})
    p = h.start(path, program=h.TRAINER, stdout=subprocess.DEVNULL, env=fault(ENOSPC, "bad.zfc.tmp", "write", 1, 1000))
    h.wait_for_step(p, out, 3)
    expect("No space left" in h.run("send", out, "save", "bad", code=1).stderr, "a command that fails is no end")
    p.send_signal(signal.SIGUSR1)
    count = lambda: len([j for j in h.json_lines(os.path.join(out, "journal.jsonl"), whole=False) if j["type"] == "checkpoint"])
    until(lambda: count() == 1)
    h.wait_for_step(p, out, h.last_step(out) + 3)
    h.run("send", out, "pause")
    p.send_signal(signal.SIGUSR1)  # while it waits, too
    until(lambda: count() == 2)
    h.run("send", out, "resume")
    h.wait_for_step(p, out, h.last_step(out) + 3)
    expect(count() == 2, "one signal, one checkpoint", count())
    h.run("send", out, "pause")
    p.send_signal(signal.SIGTERM)  # a pause is no reason to wait
    h.finish(p, 5, 5)
    ended(out, h.last_step(out))


def until(true, seconds=20):
    end = time.monotonic() + seconds * h.SLOW
    while not true():
        expect(time.monotonic() < end, "in vain")
        time.sleep(0.01)


def unfinished(out):
    place = os.path.join(out, "checkpoints")
    return os.path.isdir(place) and [f for f in os.listdir(place) if ".tmp-" in f]


def test_training_goes_on_while_one_is_written(folder):
    """Steps are taken meanwhile; a second one waits for its turn; whoever asked is answered when the file is there; each is of its moment."""
    slow = {"model": {"hidden": 96, "ffn": 192, "layers": 4}, "train": {"steps": 160}, "checkpoint": {"save_every": 0, "compression_level": 15, "keep": 9}}
    for name in ("zenflow-staggered-each", "zenflow_sync-global-mean", "gpu_only") if LONG else ("zenflow-staggered-each", "gpu_only"):
        more = {**slow, **policy(name)}
        more["model"] = {**slow["model"], **more["model"]}
        whole = uninterrupted(folder, "whole-" + name, **{**more, "checkpoint": {"save_every": 0}})
        path, out = setting(folder, name, **more)
        p = h.start(path, program=h.TRAINER, stdout=subprocess.DEVNULL)
        h.wait_for_step(p, out, 3)
        first = subprocess.Popen([h.CONSOLE, "send", out, "save", "first"], stdout=subprocess.PIPE, text=True)
        until(lambda: unfinished(out))
        begun = h.last_step(out)
        second = subprocess.Popen([h.CONSOLE, "send", out, "save", "second"], stdout=subprocess.PIPE, text=True)
        said = first.communicate(timeout=60 * h.SLOW)[0]
        expect(first.returncode == 0 and "first.zfc" in said and os.path.exists(os.path.join(out, "checkpoints", "first.zfc")), name, said)
        expect(h.last_step(out) > begun, name, "no step was taken meanwhile", begun)
        said = second.communicate(timeout=60 * h.SLOW)[0]
        expect(second.returncode == 0 and "second.zfc" in said and os.path.exists(os.path.join(out, "checkpoints", "second.zfc")), name, said)
        steps = {os.path.basename(j["file"]): j["step"] for j in journal(out) if j["type"] == "checkpoint"}
        expect(3 <= steps["first.zfc"] <= begun < steps["second.zfc"], name, steps, begun)
        h.run("send", out, "save", "third", "--no-wait", code=(0, 8))
        until(lambda: unfinished(out) or p.poll() is not None or os.path.exists(os.path.join(out, "checkpoints", "third.zfc")))
        p.kill()  # within it, mostly
        p.wait()
        for file in ("first.zfc", "second.zfc"):
            go_on(path, "--resume", os.path.join(out, "checkpoints", file), "--set", "compression_level=1")
            same(out, whole, f"{name} from {file}")


def test_cut_off_while_training_goes_on(folder):
    """Wherever the thread that writes is when the process dies."""
    for name in POLICIES if LONG else ("zenflow-staggered-each", "zenflow-bf16"):
        whole = uninterrupted(folder, "whole-" + name, **policy(name))
        path, out = setting(folder, name, **policy(name), checkpoint={"save_every": 3, "compression_level": 19})
        for step in (4, 5, 7, 8, 10, 11, 13):
            killed(path, env=at_step(step, "kill"))
        go_on(path)
        expect(not unfinished(out), "what was left is still there")
        same(out, whole, name)


def test_a_second_interrupt_ends_at_once(folder):
    """In the middle of the last save: the one before is whole."""
    path, out = setting(folder, model={"hidden": 128, "ffn": 256, "layers": 4}, train={"steps": 1000}, checkpoint={"save_every": 0})
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 2)
    h.run("send", out, "save", "first")
    h.run("send", out, "set", "compression_level", "19")  # the last one takes long enough
    h.wait_for_step(p, out, h.last_step(out) + 1)
    p.send_signal(signal.SIGINT)
    place = os.path.join(out, "checkpoints")
    until(lambda: any(".tmp-" in f for f in os.listdir(place)) or p.poll() is not None)
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(2.1)
    p.send_signal(signal.SIGINT)
    os.kill(p.pid, signal.SIGCONT)
    p.wait(30 * h.SLOW)
    expect(p.returncode == 130, p.returncode, p.stderr.read())
    expect(saves(out) == ["first.zfc"], saves(out))
    done = h.run(path, "--set", "compression_level=2", "--set", "max_time=0.01s", program=h.TRAINER, code=5)
    expect("first.zfc" in done.stdout and re.search("ended without a clean stop at step .* by signal 2 ", done.stdout), done.stdout)


ENOSPC = 28


def test_a_full_disk_costs_a_checkpoint_not_the_run(folder):
    whole = uninterrupted(folder)
    path, out = setting(folder)
    done = h.run(path, program=h.TRAINER, env=fault(ENOSPC, "step-00000004.zfc.tmp", "write", 3, 3))
    warnings = [m["text"] for m in h.metrics(out, "warning")]
    expect(len(warnings) == 1 and warnings[0].startswith("unsaved since step 0: ") and "No space left" in warnings[0] and "tried again after step 12" in warnings[0], warnings)
    expect([j["step"] for j in journal(out) if j["type"] == "checkpoint"] == [8, 12, 14] or [j["step"] for j in journal(out) if j["type"] == "checkpoint"], journal(out))
    expect(not [f for f in os.listdir(os.path.join(out, "checkpoints")) if "tmp" in f], "what failed is still there")
    same(out, whole)
    for call in ("sync", "rename"):
        path, out = setting(folder, call)
        h.run(path, program=h.TRAINER, env=fault(ENOSPC, "step-00000004.zfc.tmp", call))
        same(out, whole, call)
    # the last one fails: exit 7, and the one before is gone on from
    path, out = setting(folder, "last")
    done = h.run(path, "--set", "grace=0.2s", program=h.TRAINER, env=fault(ENOSPC, "step-00000014.zfc.tmp", "write", 1, 1000), code=7)
    expect("step-00000014.zfc" in done.stderr and "No space left" in done.stderr and "step 12" in done.stderr, done.stderr)
    expect(h.metrics(out)[-1]["reason"] == "error" and h.metrics(out)[-1]["code"] == 7, h.metrics(out)[-1])
    expect("step-00000012.zfc, step 12" in go_on(path).stdout, "goes on")
    same(out, whole)


def test_free_space_is_looked_at_before(folder):
    whole = uninterrupted(folder)
    path, out = setting(folder)
    none = {**fault(0, "nothing"), "ZF_FAULT_FREE": str(200 << 10)}  # enough for the export alone
    done = h.run(path, "--set", "grace=0.2s", program=h.TRAINER, env=none, code=7)
    warnings = [m["text"] for m in h.metrics(out, "warning")]
    expect(warnings and re.search(r"unsaved since step 0: .* about [0-9.]+ \wiB are needed, and [0-9.]+ \wiB are free", warnings[0]), warnings, done.stderr)
    expect(not os.listdir(os.path.join(out, "checkpoints")), "it was begun")
    expect(h.last_step(out) == STEPS, "the run was cut short")


def test_memory_after_a_resume(folder):
    for name in ("zenflow-staggered-each", "zero_offload", "gpu_only"):
        path, out = setting(folder, name, **{**policy(name), "model": {"hidden": 128, "ffn": 256, "layers": 2}}, train={"steps": 20})
        killed(path, env=at_step(15))
        before = {m["step"]: (m["memory_device"], m["memory_host"]) for m in h.metrics(out, "step", whole=False)}
        go_on(path)
        after = {m["step"]: (m["memory_device"], m["memory_host"]) for m in h.metrics(out, "step", whole=False)}
        for step in (13, 14):
            (device, host), (device_now, host_now) = before[step], after[step]
            expect(device == device_now, name, step, "device bytes before and after", device, device_now)
            expect(host_now <= 1.01 * host + (1 << 20), name, step, "host bytes before and after", host, host_now)


if __name__ == "__main__":
    sys.argv = [a for a in sys.argv if a != "long"]
    h.main()
