"""What is done with checkpoints beside going on from them: inspect, export, generate."""

import filecmp
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness as h
from harness import expect

ZENFLOW = {"strategy": "zenflow", "update_interval": 4, "select_interval": 8}


def checkpoint(folder, name):
    return os.path.join(folder, "out", "checkpoints", name + ".zfc")


def same_folders(a, b):
    """The same files with the same bytes."""
    names = sorted(os.listdir(a))
    expect(names == sorted(os.listdir(b)), names, "and", sorted(os.listdir(b)))
    _, different, bad = filecmp.cmpfiles(a, b, names, shallow=False)
    expect(not different and not bad, a, b, "differ in", different, bad)


def small_run(folder, **changes):
    h.text_file(folder)
    train = {"steps": 6, "valid_every": 0, **changes.pop("train", {})}
    path = h.cfg(folder, train=train, **changes)
    h.run(path)
    return os.path.join(folder, "out")


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def inside(path, tensor):
    """A place in the file that belongs to this tensor."""
    t = next(t for t in json.loads(h.run("inspect", path, "--json").stdout)["tensors"] if t["name"] == tensor)
    return t["offset"] + t["stored"] // 2


def exported(folder, name, *args, **more):
    to = os.path.join(folder, name)
    return to, h.run("export", *args, to, **more)


def test_an_export_is_the_runs_own(folder):
    for name, zenflow, model in (
        ("one", {"strategy": "gpu_only"}, {"dtype": "f32"}),
        ("two", ZENFLOW, {"dtype": "bf16"}),
        ("three", {"strategy": "zero_offload"}, {"dtype": "bf16", "family": "gpt2"}),
        ("four", ZENFLOW, {"freeze": "*norm*", "family": "opt"}),
    ):
        place = os.path.join(folder, name)
        os.mkdir(place)
        out = small_run(place, zenflow=zenflow, model=model, at={"5": "export", "6": "save later"}, checkpoint={"save_every": 4})
        own = os.path.join(out, "exports", "step-00000004")
        for i, args in enumerate(((out, "--step", "4"), (checkpoint(place, "step-00000004"),))):
            to, done = exported(place, f"e{i}", *args)
            same_folders(own, to)
            expect("step 4" in done.stdout and ("--drain" in done.stderr) == (zenflow is ZENFLOW), done.stdout, done.stderr)
        for i, args in enumerate(((out,), (place + "/run.cfg", "--step", "last"), (out, "--drain"))):
            same_folders(os.path.join(out, "exports", "step-00000006"), exported(place, f"l{i}", *args)[0])
        h.run("export", out, os.path.join(place, "none"), "--step", "3", code=4)
        h.run("export", out, os.path.join(place, "none"), "--step", "x", code=2)
        h.run("export", own, os.path.join(place, "none"), "--drain", code=2)
        h.run("export", checkpoint(place, "later"), os.path.join(place, "none"), "--step", "5", code=2)
        expect(not os.path.exists(os.path.join(place, "none")), "something was written")


def test_an_export_of_a_folders_model(folder):
    h.copy_model(folder, "gpt2-bf16-shards")
    with open(os.path.join(folder, "model", "config.json"), encoding="utf-8") as f:
        vocab = json.load(f)["vocab_size"]
    h.write(os.path.join(folder, "model", "generation_config.json"), '{"any": 1}\n')
    h.token_file(os.path.join(folder, "rows.safetensors"), 16, 16, vocab)
    h.run(
        h.cfg(
            folder,
            model={"path": "model", **h.FROM_FOLDER},
            data={"train": "rows.safetensors", "format": "tokens", "sequence_length": None, "valid_split": None},
            train={"steps": 3, "valid_every": 0},
        )
    )
    out = os.path.join(folder, "out")
    same_folders(h.only_export(out), exported(folder, "all", out)[0])
    os.rename(os.path.join(folder, "model"), os.path.join(folder, "elsewhere"))
    to, done = exported(folder, "less", out)
    expect("not there any more" in done.stderr and "model.safetensors" in os.listdir(to), done.stderr, os.listdir(to))


def test_types(folder):
    out = small_run(folder, zenflow=ZENFLOW)
    exact = h.only_export(out)
    for kind, size in (("bf16", 2), ("f16", 2), ("f32", 4)):
        ours, _ = exported(folder, "c-" + kind, out, "--dtype", kind)
        same_folders(exported(folder, "f-" + kind, exact, "--dtype", kind)[0], ours)
        expect(all(len(t[2]) % size == 0 and t[0] == kind.upper() for t in h.read_tensors(ours + "/model.safetensors").values()), kind)


def test_drained(folder):
    """What is pending at a step is applied as the end of a run of so many steps does."""
    for name, model, zenflow in (
        ("each", {"dtype": "bf16"}, {**ZENFLOW, "update_interval": 3}),
        ("mean", {"dtype": "f32"}, {**ZENFLOW, "cpu_update": "mean", "swap": "global"}),
        ("auto", {"dtype": "f32"}, {**ZENFLOW, "update_interval": "auto"}),
    ):
        place = os.path.join(folder, name)
        os.mkdir(place)
        common = {"model": model, "zenflow": zenflow, "checkpoint": {"keep": 9}}
        rate = {"schedule": "constant", "schedule_steps": 9, "valid_every": 0}
        out = small_run(place, train={**rate, "steps": 9}, at={"6": "save five"}, **common)
        short = os.path.join(place, "short")
        h.run(h.cfg(place, "short.cfg", run={"dir": "short"}, train={**rate, "steps": 5}, **common))
        to, _ = exported(place, "drained", checkpoint(place, "five"), "--drain")
        same_folders(h.only_export(short), to)
        plain, done = exported(place, "plain", checkpoint(place, "five"))
        expect("--drain" in done.stderr, done.stderr)
        expect(not filecmp.cmp(to + "/model.safetensors", plain + "/model.safetensors", shallow=False), name, "nothing was pending")
        expect(h.exports(out) == ["step-00000009"], h.exports(out))


def test_inspect_a_checkpoint(folder):
    out = small_run(folder, zenflow=ZENFLOW, checkpoint={"save_every": 4, "compression_level": 3})
    path = checkpoint(folder, "step-00000004")
    text = h.run("inspect", path).stdout
    for what in ("4 of 6", "llama: 1 layers", "strategy = zenflow", "compression_level = 3", "norm.weight:master  f32 [1, 32]", "whole", "%"):
        expect(what in text, what, "is not in", text)
    expect("keep = " not in text and "patience" not in text, "a default is shown", text)
    found = json.loads(h.run("inspect", path, "--json").stdout)
    expect(found["valid"] and found["step"] == 4 and found["steps"] == 6 and not found["damaged"], found)
    expect(found["options"]["compression_level"] == 3 and "keep" not in found["options"] and found["run"] == out, found["options"])
    expect(found["model"]["hidden_size"] == 32 and found["machine"]["instructions"] and found["file_bytes"] == os.path.getsize(path), found)
    expect(found["bytes"] == sum(t["bytes"] for t in found["tensors"]) > found["stored"], "bytes")


def test_damage_is_named(folder):
    out = small_run(folder, zenflow=ZENFLOW, checkpoint={"save_every": 2})
    last, before = checkpoint(folder, "step-00000006"), checkpoint(folder, "step-00000004")
    own, _ = exported(folder, "whole", before)
    flip(last, inside(last, "model.norm.weight:master"))
    done = h.run("inspect", last, code=4)
    expect("model.norm.weight:master" in done.stderr and "1 damaged" in done.stdout, done.stdout, done.stderr)
    found = json.loads(h.run("inspect", last, "--json", code=4).stdout)
    expect(not found["valid"] and found["damaged"] == ["model.norm.weight:master"], found["damaged"])
    done = h.run("inspect", out, code=4)
    expect("DAMAGED" in done.stdout and "model.norm.weight:master" in done.stderr and "from step-00000004.zfc" in done.stdout, done)
    found = json.loads(h.run("inspect", out, "--json", code=4).stdout)
    expect([c["valid"] for c in found["checkpoints"]] == [False, True, True] and found["next"] == before, found)
    to, done = exported(folder, "older", out)
    expect("model.norm.weight:master" in done.stderr and "passed over" in done.stderr, done.stderr)
    same_folders(own, to)
    there = sorted(os.listdir(folder))
    done = h.run("export", last, os.path.join(folder, "bad"), code=4)
    expect("model.norm.weight:master" in done.stderr and sorted(os.listdir(folder)) == there, done.stderr, os.listdir(folder))
    h.run("generate", last, "--prompt", "x", code=4)
    # moments are no part of an export
    other = checkpoint(folder, "step-00000002")
    own, _ = exported(folder, "two", other)
    flip(other, inside(other, "model.norm.weight:m"))
    same_folders(own, exported(folder, "again", other)[0])
    h.run("export", other, os.path.join(folder, "drained"), "--drain", code=4)
    for path in (other, before):
        os.truncate(path, os.path.getsize(path) // 2)
        expect(path in h.run("inspect", path, code=4).stderr, "a file cut short")
    done = h.run("inspect", out, code=4)
    expect("none that a start could go on from" in done.stdout, done.stdout)
    h.run("inspect", h.write(os.path.join(folder, "no.zfc"), "text\n"), code=4)
    # the export of the run's end is still there
    same_folders(h.only_export(out), exported(folder, "export", out)[0])


def test_of_another_course(folder):
    """What was saved after a step that the run was taken back to is not what a start goes on from."""
    out = small_run(folder, zenflow=ZENFLOW, checkpoint={"save_every": 2, "keep": 9}, at={"6": "save five"})
    h.run(os.path.join(folder, "run.cfg"), "--resume", checkpoint(folder, "step-00000002"), "--set", "steps=3")
    found = json.loads(h.run("inspect", out, "--json").stdout)
    left = {os.path.basename(c["file"]): c["left"] for c in found["checkpoints"]}
    expect(left["five.zfc"] and not left["step-00000003.zfc"] and not left["step-00000002.zfc"], left)
    expect(found["next"] == checkpoint(folder, "step-00000003"), found["next"])
    expect("was taken back from" in h.run("inspect", out).stdout, "inspect")
    expect("step 3" in exported(folder, "three", out)[1].stdout, "export of a run")
    h.run("export", out, os.path.join(folder, "none"), "--step", "5", code=4)
    expect("step 5" in exported(folder, "five", checkpoint(folder, "five"))[1].stdout, "export of a file")


def test_while_it_goes_on(folder):
    h.text_file(folder)
    out = os.path.join(folder, "out")
    p = h.start(h.cfg(folder, zenflow=ZENFLOW, train={"steps": 100000, "valid_every": 0}, checkpoint={"save_every": 20, "keep": 2}))
    h.wait_for_step(p, out, 45)
    step = last = 0
    for i in range(3):
        to, done = exported(folder, f"e{i}", out)
        step = int(done.stdout.split("step ")[-1])
        expect(step % 20 == 0 and step >= last, done.stdout)
        last = step
    expect("a start goes on from" in h.run("inspect", out).stdout, "inspect of a run that goes on")
    p.send_signal(signal.SIGTERM)
    h.finish(p, 5)
    same_folders(h.only_export(out), exported(folder, "end", out)[0])


def test_generate(folder):
    out = small_run(folder, train={"steps": 30}, zenflow=ZENFLOW, at={"11": "save ten"})

    def ids(what, *more):
        warm = ("--temperature", "1", "--seed", "5")
        return json.loads(h.run("generate", what, "--prompt", "First", "--tokens", "30", "--json", *warm, *more).stdout)

    expect(ids(out) == ids(h.only_export(out)) == ids(checkpoint(folder, "step-00000030")), "a run speaks unlike its export")
    for dtype in ("f32", "bf16"):
        to, _ = exported(folder, "ten-" + dtype, checkpoint(folder, "ten"))
        ten = ids(checkpoint(folder, "ten"), "--dtype", dtype)
        expect(ten == ids(to, "--dtype", dtype) and ten["text"] and ten["ids"] != ids(out)["ids"], "a checkpoint speaks unlike its export")
    os.rename(os.path.join(out, "exports"), os.path.join(out, "gone"))
    expect(ids(out), "a run without exports")


def test_what_is_no_run(folder):
    os.mkdir(os.path.join(folder, "empty"))
    for command in (("inspect", "empty"), ("export", "empty", "to"), ("generate", "empty", "--prompt", "x")):
        done = h.run(*command, code=4, cwd=folder)
        expect("config.json" in done.stderr, done.stderr)
    # a file of this format that is of no run; its tensors can be told all the same
    alien = os.path.join(h.SOURCE, "tests", "checkpoints", "container-1.zfc")
    expect(json.loads(h.run("inspect", alien, "--json").stdout)["valid"], "inspect of a file of no run")
    for command in (("export", alien, "to"), ("generate", alien, "--prompt", "x")):
        done = h.run(*command, code=4, cwd=folder)
        expect("no checkpoint of a run" in done.stderr and os.listdir(folder) == ["empty"], done.stderr)


def test_what_is_not_there(folder):
    """A checkpoint that is not there: its run's others are named."""
    out = small_run(folder, checkpoint={"save_every": 2, "keep": 9}, at={"6": "save five"})
    for place, others in ((out, "has: step-00000006, five, step-00000004, step-00000002"), (folder, "there is no such file")):
        gone = os.path.join(place, "checkpoints", "step-00000005.zfc")
        for command in (("inspect", gone), ("export", gone, "to"), ("generate", gone, "--prompt", "x")):
            done = h.run(*command, code=2, cwd=folder)
            expect(others in done.stderr and gone in done.stderr, command, done.stderr)


def test_gone_on_from_by_name(folder):
    """--resume takes what `load` takes."""
    out = small_run(folder, checkpoint={"save_every": 2, "keep": 9}, at={"6": "save five"})
    path, steps = os.path.join(folder, "run.cfg"), 6
    for word, step in (("4", 4), ("five", 5), ("five.zfc", 5), ("step-00000004", 4), (checkpoint(folder, "step-00000002"), 2)):
        steps += 1
        done = h.run(path, "--plain", "--resume", word, "--set", f"steps={steps}")
        expect(f", step {step}; the steps after it are taken again" in done.stdout, word, done.stdout)
        expect(h.last_step(out) == steps, word)
    done = h.run(path, "--plain", "--resume", "4", "--set", "dir=" + os.path.join(folder, "nowhere"), code=2)
    expect("no run in" in done.stderr, done.stderr)


if __name__ == "__main__":
    h.main()
