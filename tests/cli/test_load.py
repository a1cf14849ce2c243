"""`load`: a run that waits goes to one of its checkpoints, in the same process, and from there with the same bits as one that never went
further; and what `keep_weights` leaves of checkpoints. `long` (an argument) does it under every strategy."""

import json
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness as h
import test_resume as r
from harness import expect
from test_resume import cut, journal, policy, same, save_of, saves, setting, uninterrupted

LONG = r.LONG
STEPS = r.STEPS
KEEP = {"save_every": 2, "keep": 100}


def send(out, *words, code=0):
    done = h.run("send", out, *words, code=code)
    return done.stdout + done.stderr


def writing(pid):
    """Has it a thread that writes a checkpoint?"""
    for t in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{t}/comm", encoding="utf-8") as f:
                if f.read() == "checkpoint\n":
                    return True
        except OSError:
            pass  # it has just ended
    return False


def waits(out):
    """Until it does, and what it saves is written; and before which step that is."""
    r.until(lambda: "paused" in h.run("send", out, "status", code=(0, 2, 8)).stdout)
    with open(os.path.join(out, "lock"), encoding="utf-8") as f:
        pid = json.load(f)["pid"]
    r.until(lambda: not writing(pid))
    send(out, "checkpoints")  # between two looks of the trainer at what it has written
    send(out, "checkpoints")
    return h.last_step(out) + 1


def at_seven(folder, name="out", env=None, **changes):
    """A run that waits after step 7 (its [at] has it wait before step 6), and was changed by hand before step 6."""
    path, out = setting(folder, name, **{"at": {"6": "pause"}, "checkpoint": KEEP, **changes})
    p = h.start(path, program=h.TRAINER, env=env or os.environ)
    h.wait_for_step(p, out, 5)
    expect(waits(out) == 6, "it does not wait before step 6")
    send(out, "set!", "lr", "5e-3", "topk_ratio", "0.5")
    send(out, "at", "7", "set beta1 0.8")
    send(out, "at", "12", "set beta1 0.7")
    send(out, "step", "2")
    h.wait_for_step(p, out, 7)
    expect(waits(out) == 8, "it does not wait before step 8")
    return path, out, p


def to_the_end(out, p):
    """From before step 6 or an earlier one."""
    send(out, "resume")
    h.wait_for_step(p, out, 5)
    expect(waits(out) == 6, "it does not wait before step 6")
    send(out, "resume")
    h.finish(p, 0)


def test_every_policy(folder):
    """Back from 7 to 4: the same bits as if it had never been at 7, nor been changed."""
    some = ("zenflow-staggered-each", "zenflow-rolling-mean", "zenflow-global-each", "zenflow_sync-global-mean", "zenflow-device", "zenflow-bf16", "gpu_only", "stronghold")
    for name in r.POLICIES if LONG else some:
        whole = uninterrupted(folder, "whole-" + name, **policy(name))
        path, out, p = at_seven(folder, name, **policy(name))
        said = send(out, "load", "4", "--yes")
        expect("step 4 is loaded from" in said and "the run was at step 7" in said and "`resume` goes on with step 5" in said, said)
        expect("learning_rate 0.005 -> 0.01, from step 5" in said and "topk_ratio 0.5 -> 0.25, from step 5" in said, said)
        expect("paused, step 4 of 14" in send(out, "status"), send(out, "status"))
        expect("0.01" in send(out, "show", "lr") and "put off" not in send(out, "show", "beta1"), send(out, "show", "beta1"))
        expect([m["step"] for m in h.metrics(out, "step", whole=False)] == [1, 2, 3, 4], "metrics are not cut")
        expect([m["step"] for m in cut(out) if m["type"] == "step"] == [5, 6, 7], cut(out))
        expect("no change to take back" in send(out, "undo", code=1), "what came after it can be undone")
        to_the_end(out, p)
        same(out, whole, name)


CHANGED = {"at": {"6": "set lr 5e-3 topk_ratio 0.5", "7": "set beta1 0.8", "12": "set beta1 0.7"}}


def killed(out, p):
    h.finish(p, -signal.SIGKILL)


def again(path, out, waiting=True):
    p = h.start(path, program=h.TRAINER)
    if waiting:
        waits(out)
        send(out, "resume")
    h.finish(p, 0)


def test_killed_after_it(folder):
    """Wherever it is killed from the journal's entry on, the run is at step 4, and was never changed; before that it is at 7."""
    name = policy("zenflow-staggered-each")
    whole, changed = uninterrupted(folder, "whole", **name), uninterrupted(folder, "changed", **name, **CHANGED)
    late = {
        "cut": r.fault("kill", "metrics.cut-1.jsonl", "write"),
        "line": r.fault("kill", "metrics.jsonl", "write", text='"type":"resume"'),
        "done": r.fault("kill", "metrics.jsonl", "write", text="is loaded from"),
        "sync": r.fault("kill", "metrics.cut-1.jsonl", "sync"),
    }
    for what, env in late.items():
        path, out, p = at_seven(folder, what, env, **name)
        h.run("send", out, "load", "4", "--yes", code=None)
        killed(out, p)
        again(path, out)
        same(out, whole, what)
        expect(h.metrics(out, "start")[-1]["attempt"] == 2, what, "attempts")
    for step in (5, 7, 9):
        path, out, p = at_seven(folder, f"at-{step}", **name)
        send(out, "load", "step-00000004", "--yes")
        send(out, "step", str(step - 4) if step < 6 else "1")
        if step > 5:
            h.wait_for_step(p, out, 5)
            send(out, "step", str(step - 5))
        h.wait_for_step(p, out, step)
        expect(waits(out) == step + 1, "steps")
        p.kill()
        p.wait()
        again(path, out, waiting=step < 6)
        same(out, whole, step)
    path, out, p = at_seven(folder, "early", r.fault("kill", "journal.jsonl", "write", text='"command":"load 4"'), **name)
    h.run("send", out, "load", "4", "--yes", code=None)
    killed(out, p)
    again(path, out, waiting=False)
    same(out, changed, "it was loaded though it was not written down")


def test_back_and_forth(folder):
    """A checkpoint of a course that the run was taken back from: with what had been changed and put off when it was written."""
    name = policy("zenflow-rolling-mean")
    whole, changed = uninterrupted(folder, "whole", **name), uninterrupted(folder, "changed", **name, **CHANGED)
    for kill in (False, True):
        path, out, p = at_seven(folder, f"kill-{kill}", **name)
        send(out, "load", "4", "--yes")
        send(out, "set", "clip_norm", "0.5")
        send(out, "step", "1")
        h.wait_for_step(p, out, 5)
        said = send(out, "load", "6", "--yes")
        expect("learning_rate 0.01 -> 0.005" in said and "clip_norm 0.5 -> 1" in said and "the run was at step 5" in said, said)
        expect(h.last_step(out) == 4 and [m["step"] for m in cut(out, 2) if m["type"] == "step"] == [5], "lines of the other way are still there")
        found = {os.path.basename(c["file"]): c["left"] for c in json.loads(h.run("inspect", out, "--json").stdout)["checkpoints"]}
        expect(found == {f"step-{n:08}.zfc": False for n in (2, 4, 6)}, found)
        if kill:
            p.kill()
            p.wait()
            again(path, out, waiting=False)
        else:
            send(out, "resume")
            h.finish(p, 0)
        ours, theirs = ([x for x in r.course(o) if int(x[0]) > 6] for o in (out, changed))
        expect(ours == theirs and len(ours) == 8 and r.weights(out) == r.weights(changed), kill, ours, theirs)
    path, out, p = at_seven(folder, "thrice", **name)
    for step in (6, 2, 6, 4):
        send(out, "load!", str(step))
        expect(f"paused, step {step} of" in send(out, "status"), send(out, "status"))
    to_the_end(out, p)
    expect(r.course(out)[-9:] == r.course(whole)[-9:] and r.weights(out) == r.weights(whole), "thrice")


def untouched(out):
    return [open(os.path.join(out, n), "rb").read() for n in ("journal.jsonl", "metrics.jsonl")]


def test_refusals(folder):
    """Each leaves the run as it is."""
    name = policy("zenflow-staggered-each")
    changed = uninterrupted(folder, "changed", **name, **CHANGED)
    other = uninterrupted(folder, "other", train={"learning_rate": "1e-3"})
    path, out = setting(folder, "out", at={"5": "save mine", "6": "pause"}, checkpoint=KEEP, **name)
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 2)
    expect(waits(out) == 6, "waits")
    with open(save_of(out, 2), "r+b") as f:
        f.seek(5000)
        byte = f.read(1)[0]
        f.seek(5000)
        f.write(bytes([byte ^ 1]))
    h.write(os.path.join(out, "checkpoints", "text.zfc"), "no checkpoint\n")
    before = untouched(out)
    for words, reason in (
        (("load", "4"), "load takes the run from step 5 back to step 4: what was done since is undone, with 1 step to be taken again"),
        (("load", "3"), "there is no such checkpoint; there are: "),
        (("load!", "3"), "there is no such checkpoint; there are: "),
        (("load!", "three"), "step-00000004"),
        (("load!", "2"), "step-00000002.zfc"),
        (("load!", "text"), "text.zfc"),
        (("load!", save_of(other, 14)), "another run"),
        (("load!", os.path.join(folder, "nowhere.zfc")), "there is no such file"),
        (("load!", save_of(out, 3)), "there is no such checkpoint; "),
        (("load!", folder), folder),
        (("at", "9", "load", "4"), "cannot be put off"),
        (("load",), "load CHECKPOINT"),
    ):
        said = send(out, *words, code=1 if len(words) > 1 else (1, 2))
        expect(reason in said, words, said)
    expect(untouched(out) == before, "something was written down")
    for words in CHANGED["at"]["6"], "at 7 set beta1 0.8", "at 12 set beta1 0.7":
        send(out, *words.split(" "))
    send(out, "step", "1")
    h.wait_for_step(p, out, 6)
    send(out, "resume")
    h.finish(p, 0)
    same(out, changed)
    path, out = setting(folder, "busy", train={"steps": 100000})
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 5)
    expect("only while paused; `pause` first" in send(out, "load", "4", "--yes", code=1), "not paused")
    p.send_signal(signal.SIGTERM)
    h.finish(p, 5, 5)


def paused_at_four(folder, name="out", **more):
    path, out = setting(folder, name, at={"5": "pause"}, checkpoint={"save_every": 0}, **more)
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 4)
    expect(waits(out) == 5, "it does not wait before step 5")
    return path, out, p


def test_names_that_a_save_does_not_take(folder):
    """None that nothing would find, none that the run will use itself; and no checkpoint takes the place of another by a name."""
    path, out, p = paused_at_four(folder)
    send(out, "save", "mine")
    send(out, "save", "mine")  # the very same
    for words, reason in (
        (('save ""',), "1 to 200 bytes"),
        (("save", "step-00000010"), "take another name"),
        (("save", "step-00000003.zfc"), "take another name"),
    ):
        said = send(out, *words, code=1)
        expect(reason in said, words, said)
    send(out, "save")
    send(out, "step", "1")
    h.wait_for_step(p, out, 5)
    before = os.stat(os.path.join(out, "checkpoints", "mine.zfc")).st_ino
    expect("is there already" in send(out, "save", "mine", code=1), "another one took its place")
    expect(os.stat(os.path.join(out, "checkpoints", "mine.zfc")).st_ino == before, "it is another one")
    expect(saves(out) == ["mine.zfc", "step-00000004.zfc"], saves(out))
    send(out, "stop")
    h.finish(p, 5)
    path, out = setting(folder, "script", at={"5": "save mine", "7": "save! mine", "9": "save step-00000002"}, checkpoint={"save_every": 1, "keep": 99})
    h.run(path, program=h.TRAINER)  # a script says so itself, and is done again after a crash
    steps = {c["file"].rsplit("/", 1)[-1]: c["step"] for c in json.loads(h.run("inspect", out, "--json").stdout)["checkpoints"]}
    expect(steps["mine.zfc"] == 6 and steps["step-00000002.zfc"] == 2, steps)


def test_one_that_was_taken_away_is_written_again(folder):
    """What a command saved may have been moved since: the end writes it all the same."""
    path, out, p = paused_at_four(folder)
    send(out, "save", "mine")
    os.rename(os.path.join(out, "checkpoints", "mine.zfc"), os.path.join(folder, "mine.zfc"))
    send(out, "stop")
    h.finish(p, 5)
    expect(saves(out) == ["step-00000004.zfc"], saves(out))


def test_a_copy_that_lies_elsewhere(folder):
    """The run goes on from there when it is killed before it writes one of its own, from whatever directory it is started."""
    whole = uninterrupted(folder, "whole")
    path, out, p = at_seven(folder)
    kept = os.path.join(folder, "kept.zfc")
    shutil.copy(save_of(out, 4), kept)
    for step in (2, 4):
        os.unlink(save_of(out, step))
    h.run("send", out, "load!", "./kept.zfc", cwd=folder)
    expect("kept.zfc" in send(out, "checkpoints"), send(out, "checkpoints"))
    p.kill()
    p.wait()
    said = h.run("inspect", out).stdout
    expect("a start goes on from kept.zfc" in said, said)
    h.run("export", out, os.path.join(folder, "model"))
    again(path, out)
    same(out, whole)
    path, out, p = at_seven(folder, "other")
    for step in (2, 4):
        shutil.move(save_of(out, step), os.path.join(folder, f"{step}.zfc"))
    send(out, "load!", os.path.join(folder, "2.zfc"))
    p.kill()
    p.wait()
    shutil.copy(kept, os.path.join(folder, "2.zfc"))  # of another run under that name
    expect("none that a start could go on from" in h.run("inspect", out).stdout, "a foreign one is taken")


def test_a_file_of_another_run(folder):
    """Whatever its name: no start, export or generate takes it for one of this run, and it stays."""
    whole = uninterrupted(folder, "whole")
    path, other = setting(folder, "other", checkpoint=KEEP)
    h.run(path, program=h.TRAINER)
    path, out = setting(folder, checkpoint=KEEP)
    r.killed(path, env=r.at_step(9))
    shutil.copy(save_of(other, 8), save_of(out, 8))
    shutil.copy(save_of(other, 12), save_of(out, 12))
    listed = h.run("inspect", out).stdout
    expect(listed.count("(of another run)") == 2 and "a start goes on from step-00000006.zfc" in listed, listed)
    h.run("export", out, os.path.join(folder, "newest"))
    for taken in ("6", "12"):
        h.run("export", out, os.path.join(folder, taken), "--step", taken, code=0 if taken == "6" else 4)
    models = [open(os.path.join(folder, n, "model.safetensors"), "rb").read() for n in ("newest", "6")]
    expect(models[0] == models[1], "the newest is another one")
    done = r.go_on(path)
    expect("step-00000006.zfc, step 6" in done.stdout, done.stdout)
    same(out, whole)


def test_a_directory_that_is_removed_and_begun_anew(folder):
    """The trainer that is left over ends at its next sign of life, and writes nothing into what has its run's name now."""
    path, out, p = paused_at_four(folder)
    shutil.rmtree(out)
    q = h.start(path, program=h.TRAINER)
    h.wait_for_step(q, out, 4)
    h.finish(p, 8, 30)
    expect(waits(out) == 5 and not os.path.exists(os.path.join(out, "checkpoints")), "it saved there")
    send(out, "resume")
    h.finish(q, 0)
    same(out, uninterrupted(folder, "whole"))


def test_a_directory_that_is_moved(folder):
    path, out, p = paused_at_four(folder)
    moved = os.path.join(folder, "moved")
    os.rename(out, moved)
    send(moved, "save", "mine")
    expect("mine.zfc" in send(moved, "checkpoints"), send(moved, "checkpoints"))
    send(moved, "stop")
    h.finish(p, 5)


def test_names(folder):
    path, out, p = at_seven(folder)
    shutil.copy(save_of(out, 4), os.path.join(folder, "kept.zfc"))
    for name in ("4", "step-00000004", "step-00000004.zfc", save_of(out, 4), os.path.join(folder, "kept.zfc"), "./kept.zfc"):
        done = h.run("send", out, "load", name, "--yes", cwd=folder)
        expect("step 4 is loaded" in done.stdout, name, done.stdout)
    loads = [j for j in journal(out) if "load" in j.get("command", "")]
    expect(len(loads) == 6 and all(j["type"] == "resume" and j["step"] == 4 and j["by"] == "send" for j in loads), loads)
    expect("load ./kept.zfc" in send(out, "history") or "kept.zfc" in send(out, "history"), send(out, "history"))
    to_the_end(out, p)
    same(out, uninterrupted(folder, "whole"))


def test_what_it_says(folder):
    """What is taken back, before; what is known, after."""
    path, out, p = at_seven(folder)
    said = send(out, "load", "4", code=1)
    expect("from step 7 back to step 4: what was done since is undone, with 3 steps to be taken again; to do it say yes" in said, said)
    expect("loss" in send(out, "status"), "status of a run that has taken steps")
    said = send(out, "load!", "4")
    expect("topk_ratio 0.5 -> " in said and "learning_rate 0.005 -> " in said, said)
    expect("pending" not in said and "window" not in said, "what becomes of what is pending is not so", said)
    said = send(out, "status")
    expect("step 4 of 14" in said and "loss" not in said and "tok/s" not in said, "what this course has not computed yet", said)
    to_the_end(out, p)


def test_named_ones_are_not_lost(folder):
    path, out, p = at_seven(folder)
    good = os.path.join(out, "checkpoints", "good.zfc")
    send(out, "save", "good")
    before = open(good, "rb").read()
    send(out, "step")
    h.wait_for_step(p, out, 8)
    waits(out)
    for words in ("good",), ("good.zfc",):
        said = send(out, "save", *words, code=1)
        expect("good.zfc is there already, of step 7: save would replace it; to do it say yes (`save!`, or --yes)" in said, said)
    for name in "step-00000100", "step-00000100.zfc", "step-123456789":
        expect("take another name" in send(out, "save!", name, code=1), "a name of the run's own")
    expect(open(good, "rb").read() == before and "step-00000100.zfc" not in saves(out), saves(out))
    expect("good.zfc  step 7  " in send(out, "checkpoints"), send(out, "checkpoints"))
    send(out, "save", "good", "--yes")
    send(out, "save", "good")  # the very same
    expect("good.zfc  step 8  " in send(out, "checkpoints"), send(out, "checkpoints"))
    send(out, "save!", "good")
    for names in ("one", "one"), ("two", "three", "three"):  # the last one comes while the first is being written
        file = h.write(os.path.join(folder, "names.txt"), "".join(f"save {n}\n" for n in names))
        said = send(out, "source", file, code=1)
        expect(f"names.txt:{len(names)}: {names[-1]}.zfc is " in said and ": save would replace it" in said, said)
    r.until(lambda: all(n + ".zfc" in saves(out) for n in ("one", "two", "three")))
    h.write(good, "no checkpoint\n")
    expect("good.zfc is there already and cannot be read" in send(out, "save", "good", code=1), "a damaged one")
    send(out, "stop")
    h.finish(p, 5)


def test_scripts_do_not_replace_them(folder):
    """A line of [at] replaces what another step left only with `!`; what it wrote itself, when it comes to its step again."""
    at = {"5": "save mine\n5 = save other", "7": "save mine", "9": "save! other"}
    path, out = setting(folder, at=at, checkpoint=KEEP)
    r.killed(path, env=r.at_step(6))
    mine = os.path.join(out, "checkpoints", "mine.zfc")
    inode = os.stat(mine).st_ino
    h.run(path, "--resume", "2", program=h.TRAINER)
    expect(os.stat(mine).st_ino != inode, "it was not written again")
    warnings = [m["text"] for m in h.metrics(out, "warning") if "save" in m["text"]]
    expect(len(warnings) == 1 and "at 7 save mine: mine.zfc is there already, of step 4: save would replace it" in warnings[0], warnings)
    steps = [json.loads(h.run("inspect", os.path.join(out, "checkpoints", n + ".zfc"), "--json").stdout)["step"] for n in ("mine", "other")]
    expect(steps == [4, 8], steps)


def test_it_ends_after_it(folder):
    """`stop`, right away: the checkpoint of an end, of that step; and a start goes on from it."""
    path, out, p = at_seven(folder)
    send(out, "load", "4", "--yes")
    send(out, "stop")
    h.finish(p, 5)
    r.ended(out, 4)
    again(path, out)
    same(out, uninterrupted(folder, "whole"))


def test_read_errors(folder):
    """Before anything was altered the run goes on; after that it ends, and its checkpoints are as they were."""
    EIO = 5
    ended = False
    whole = uninterrupted(folder, "whole")
    for n in (1, 4, 30) + tuple(range(50, 400, 25)):
        path, out, p = at_seven(folder, f"n{n}", r.fault(EIO, "mine.zfc", "read", n, 10000), at={"5": "save mine", "6": "pause"})
        before = untouched(out)
        done = h.run("send", out, "load", "mine", "--yes", code=(0, 1, 8))
        if done.returncode == 0:
            p.kill()
            p.wait()
            break
        if "\"type\":\"resume\"" not in untouched(out)[0].decode():
            expect("mine.zfc" in done.stderr and untouched(out) == before, done.stderr)
            expect("paused, step 7" in send(out, "status"), "it is not as it was")
            p.kill()
            p.wait()
            continue
        ended = True
        p.wait(30 * h.SLOW)
        expect(p.returncode in (4, 7), p.returncode, p.stderr.read())
        kinds = [j["type"] for j in journal(out)]
        expect(kinds[-1] == "end" and "export" not in kinds, kinds)
        expect(saves(out) == ["mine.zfc"] + [f"step-{k:08}.zfc" for k in (2, 4, 6)], saves(out))
        again(path, out)
        same(out, whole, n)
    expect(ended and n > 50, "no error came while it was loaded", n)


def test_after_a_step_that_is_not_finite(folder):
    """What it is for: back, and on without what was done."""
    name = {**policy("gpu_only"), "train": {"clip_norm": 0}}
    path, out = setting(folder, at={"6": "pause"}, checkpoint=KEEP, **name)
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 5)
    waits(out)
    send(out, "set!", "lr", "1e30")
    send(out, "resume")
    r.until(lambda: "not finite" in h.run("send", out, "status", code=(0, 2, 8)).stdout)
    send(out, "load", "4", "--yes")
    expect("not finite" not in send(out, "status"), send(out, "status"))
    to_the_end(out, p)
    same(out, uninterrupted(folder, "whole", **name))


def test_validation_goes_on(folder):
    """The best one and patience are those of then."""
    more = {
        "data": {"train": "text.txt", "sequence_length": 32, "valid_split": 0.3},
        "train": {"valid_every": 2, "patience": 3, "learning_rate": "3e-1", "steps": 60, "clip_norm": 0},
    }
    seen = lambda out: [(m["step"], m["loss"]) for m in h.metrics(out, "valid")]
    whole = uninterrupted(folder, "whole", **more)
    path, out, p = at_seven(folder, **more)
    send(out, "load", "4", "--yes")
    to_the_end(out, p)
    expect(seen(out) == seen(whole), seen(out), seen(whole))
    same(out, whole)


def test_steps_that_came_from_epochs(folder):
    """More steps, taken back: the last one is as small as it was."""
    h.text_file(folder, 1000, "short.txt")
    short = {"data": {"train": "short.txt", "sequence_length": 32}, "train": {"steps": None, "epochs": 1.5, "batch_size": 4}}
    whole = uninterrupted(folder, "whole", **short)
    path, out, p = at_seven(folder, **short)
    send(out, "set", "steps", "40")
    said = send(out, "load", "4", "--yes")
    expect(f"steps 40 -> {h.last_step(whole)}" in said and f"step 4 of {h.last_step(whole)}" in send(out, "status"), said)
    to_the_end(out, p)
    same(out, whole)
    expect(h.metrics(out, "step")[-1]["rows"] == h.metrics(whole, "step")[-1]["rows"], "the last step")


def test_interval_auto(folder):
    """What it had decided is what it was then; later decisions are not repeated, but made anew."""
    slow = {"data": {"sequence_length": 128}, "model": {"hidden": 48, "ffn": 96, "context": 128}, "train": {"steps": 60, "learning_rate": "1e-3"}}
    limits = {"10": "set max_update_interval 3", "30": "set max_update_interval 2", "50": "pause"}  # beside clocks, so that there is a decision
    path, out = setting(folder, **slow, zenflow={"update_interval": "auto"}, checkpoint={"save_every": 5, "keep": 100}, at=limits)
    p = h.start(path, program=h.TRAINER)
    h.wait_for_step(p, out, 49)
    waits(out)
    before = {m["step"]: m for m in h.metrics(out, "step", whole=False)}
    decided = [j for j in journal(out) if j["type"] == "change" and j["by"] == "auto"]
    expect(decided, "no decision in 49 steps")
    for step in (5, 45):
        send(out, "load", str(step), "--yes")
        send(out, "step", "1")
        h.wait_for_step(p, out, step + 1)
        waits(out)
        expect(str(h.metrics(out, "step", whole=False)[-1]["loss"]) == str(before[step + 1]["loss"]), step)
    send(out, "load", "5", "--yes")
    send(out, "resume")
    h.wait_for_step(p, out, 49)
    waits(out)
    send(out, "resume")
    h.finish(p, 0)


def test_memory_does_not_grow(folder):
    for name in ("zenflow-staggered-each",) if h.FEWER else ("zenflow-staggered-each", "gpu_only"):
        big = {**policy(name), "model": {"hidden": 128, "ffn": 256, "layers": 2}, "log": {"tensorboard": "yes"}}
        path, out, p = at_seven(folder, name, **big)
        seen = [[m for m in h.metrics(out, "step", whole=False) if m["step"] == 5][0]]
        for _ in range(4):
            for _ in range(3):
                send(out, "load", "4", "--yes")
            send(out, "step", "1")
            h.wait_for_step(p, out, 5)
            waits(out)
            seen.append(h.metrics(out, "step", whole=False)[-1])
        expect(all(m["step"] == 5 and m["memory_device"] == seen[0]["memory_device"] for m in seen), name, seen)
        host = [m["memory_host"] for m in seen]
        if h.SLOW == 1:  # a sanitizer keeps what was freed for a while
            expect(max(host[1:]) <= 1.01 * host[1] + (4 << 20), name, host)
        p.kill()
        p.wait()


# ---- which checkpoints stay, and as what ----

THIN = {"save_every": 1, "keep": 2, "keep_weights": 3}


def weights_only(out):
    found = json.loads(h.run("inspect", out, "--json").stdout)
    return {os.path.basename(c["file"]): c["weights_only"] for c in found["checkpoints"]}, os.path.basename(found["next"])


def files(folder):
    return {n: open(os.path.join(folder, n), "rb").read() for n in sorted(os.listdir(folder))}


def test_weights_of_older_ones_stay(folder):
    for name in ("zenflow-bf16", "gpu_only"):
        path, out = setting(folder, name, **policy(name), checkpoint=THIN, at={"4": "save mine", "9": "pause"})
        p = h.start(path, program=h.TRAINER)
        h.wait_for_step(p, out, 8)
        waits(out)
        expect(weights_only(out) == ({"step-00000008.zfc": False, "step-00000007.zfc": False, "step-00000006.zfc": True, "step-00000005.zfc": True, "step-00000004.zfc": True, "mine.zfc": False}, "step-00000008.zfc"), weights_only(out))
        listed = send(out, "checkpoints").splitlines()
        expect([line.endswith("(weights only)") for line in listed] == [False, False, True, True, True, False], listed)
        before = untouched(out)
        said = send(out, "load", "6", "--yes", code=1)
        expect("step-00000006.zfc" in said and "its weights only" in said and untouched(out) == before, said)
        shutil.copy(save_of(out, 8), os.path.join(folder, "eight.zfc"))
        send(out, "step", "2")
        h.wait_for_step(p, out, 10)
        waits(out)
        full, thin = os.path.join(folder, "eight.zfc"), save_of(out, 8)
        expect(os.path.getsize(thin) < os.path.getsize(full) / 2, os.path.getsize(thin), os.path.getsize(full))
        expect("weights only" in h.run("inspect", thin).stdout and json.loads(h.run("inspect", thin, "--json").stdout)["weights_only"], "inspect")
        for what in (full, thin):
            h.run("export", what, what + ".out")
        expect(files(full + ".out") == files(thin + ".out"), "an export differs")
        speak = [h.run("generate", what, "--prompt", "First", "--tokens", "8").stdout for what in (full, thin)]
        expect(speak[0] == speak[1], speak)
        if name != "gpu_only":  # gradients that are on their way
            said = h.run("export", thin, os.path.join(folder, "drained"), "--drain", code=1).stderr
            expect("its weights only" in said and not os.path.exists(os.path.join(folder, "drained")), said)
        send(out, "set", "keep_weights", "1")
        send(out, "resume")
        h.finish(p, 0)
        expect(list(weights_only(out)[0]) == ["step-00000014.zfc", "step-00000013.zfc", "step-00000012.zfc", "mine.zfc"], weights_only(out))
        bad = h.run(path, "--resume", save_of(out, 12), "--set", "steps=20", program=h.TRAINER, code=1).stderr
        expect("its weights only" in bad and "keep_weights" in bad, bad)
        same(out, uninterrupted(folder, "whole-" + name, **policy(name)), name)
        os.remove(os.path.join(folder, "eight.zfc"))
        shutil.rmtree(full + ".out")


def test_those_with_weights_alone_are_nothing_to_go_on_from(folder):
    path, out = setting(folder, checkpoint=THIN)
    r.killed(path, env=r.at_step(9))
    for step in (7, 8):
        os.remove(save_of(out, step))
    bad = h.run(path, program=h.TRAINER, code=1).stderr
    expect("no checkpoint that is whole" in bad, bad)
    expect("step 6" in h.run("export", out, os.path.join(folder, "six")).stdout, "an export of the newest")


def test_cut_off_while_one_is_reduced(folder):
    """It is as it was; the run goes on."""
    whole = uninterrupted(folder, "whole")
    reduced = 0
    for call, n in (*(("any", n) for n in (range(90, 120) if LONG else (98, 106))), ("sync", 2), ("rename", 1), ("rename", 2)):
        path, out = setting(folder, f"{call}-{n}", checkpoint=THIN)
        done = h.run(path, program=h.TRAINER, env=r.fault("kill", "step-00000003.zfc.tmp", call, first=n), code=(0, -signal.SIGKILL))
        if not done.returncode:  # it has no more calls
            continue
        found, following = weights_only(out)
        later = int(following[5:13]) > 3
        reduced += later
        expect(not found.get("step-00000003.zfc", False), call, n, found, following)
        r.go_on(path)
        expect(not [f for f in os.listdir(os.path.join(out, "checkpoints")) if "tmp" in f], "left behind")
        same(out, whole, n)
    expect(reduced >= 2, "hardly ever in the middle of it", reduced)


def test_a_full_disk_leaves_it_whole(folder):
    path, out = setting(folder, checkpoint={"save_every": 1, "keep": 2, "keep_weights": 100}, at={"8": "pause"})
    p = h.start(path, program=h.TRAINER, env=r.fault(28, "step-00000003.zfc.tmp", "rename", 2, 3))
    h.wait_for_step(p, out, 5)
    waits(out)
    expect([n for n, w in weights_only(out)[0].items() if not w] == ["step-00000007.zfc", "step-00000006.zfc"], weights_only(out))
    seen = journal(out)
    send(out, "resume")
    h.finish(p, 0)
    expect(len([j for j in seen if j["type"] == "checkpoint"]) == 7 and not [m for m in h.metrics(out, "warning")], h.metrics(out, "warning"))
    same(out, uninterrupted(folder, "whole"))


def test_killed_before_its_entry(folder):
    """The file is whole, under its name, and the journal does not know it: it is the newest all the same."""
    whole = uninterrupted(folder, "whole")
    path, out = setting(folder, checkpoint=KEEP)
    entry = r.fault("kill", "journal.jsonl", "write", text='"type":"checkpoint","step":8')
    r.killed(path, env=entry)
    expect("step-00000008.zfc" in saves(out) and not [j for j in h.json_lines(os.path.join(out, "journal.jsonl"), whole=False) if j.get("step") == 8], saves(out))
    said = r.go_on(path).stdout
    expect("step-00000008.zfc, step 8" in said, said)
    same(out, whole)
    # of a course that is left by now
    path, out = setting(folder, "left", checkpoint=KEEP)
    r.killed(path, env=entry)
    r.killed(path, "--resume", save_of(out, 4), env=r.at_step(6))
    said = r.go_on(path).stdout
    expect("step-00000004.zfc, step 4" in said, said)
    same(out, whole)


if __name__ == "__main__":
    sys.argv = [a for a in sys.argv if a != "long"]
    h.main()
