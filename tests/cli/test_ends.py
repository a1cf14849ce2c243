"""How a run ends: by the clock, by a signal in whatever it does, by a failure, by death; what it leaves then, and what the next start says of
it. Whatever it was, the run that goes on has the bits of one that was never stopped."""

import glob
import json
import os
import re
import signal
import struct
import subprocess
import time

import harness as h
import test_resume as r
from harness import expect
from test_resume import STEPS, fault, go_on, journal, save_of, saves, setting
from test_telemetry import events, fields

ENOSPC = 28
LONG = {"train": {"steps": 100000}, "checkpoint": {"save_every": 0, "save_minutes": 0}}


def texts(out, kind):
    return [m["text"] for m in h.metrics(out, kind)]


def said(out, kind, what):
    found = [t for t in texts(out, kind) if what in t]
    expect(found, f"no {kind} says", what, "but", texts(out, kind))
    return found[-1]


def at_end(out):
    return [(j["reason"], j["code"]) for j in journal(out) if j["type"] == "end"][-1]


# ---- death ----


def test_the_next_start_says_how_the_last_one_died(folder):
    for number, words in (
        (signal.SIGSEGV, "by signal 11 (Segmentation fault)"),
        (signal.SIGABRT, "by signal 6 (Aborted)"),
        (signal.SIGQUIT, "by signal 3 (Quit)"),
        (signal.SIGKILL, "it was killed outright, as by kill -9"),
    ):
        path, out = setting(folder, number.name, **LONG)
        p = h.start(path, program=h.TRAINER, stdout=subprocess.DEVNULL, env={**os.environ, "ASAN_OPTIONS": "handle_abort=0"})
        h.wait_for_step(p, out, 5)
        p.send_signal(number)
        _, err = p.communicate(timeout=30 * h.SLOW)
        # a sanitizer's own handler has the last word where there is one
        expect(p.returncode == -number or h.SLOW > 1, p.returncode, err)
        expect(number == signal.SIGKILL or f"ended by signal {int(number)} after step ".encode() in err, err)
        note = json.loads(h.run("status", out, "--json").stdout)["note"]
        expect(words in note and "peak memory" in note and "last sign of life was at 20" in note, note)
        step = h.metrics(out, "step", whole=False)[-1]["step"]
        expect(f"at step {step}" in note or f"at step {step + 1}" in note, step, note)
        go_on(path, "--set", "steps=3")
        told = said(out, "note", "ended without a clean stop at step")
        expect(words in told and (number == signal.SIGKILL or "kill -9" not in told), told)
        expect([j["before"] for j in journal(out) if j["type"] == "resume"] == [told], "the journal")


def test_a_lock_that_is_gone(folder):
    path, out = setting(folder)
    r.killed(path, env=r.at_step(6))
    os.remove(os.path.join(out, "lock"))
    go_on(path)
    said(out, "note", "how, nobody knows")
    go_on(path, "--set", "steps=20")
    expect(len([t for t in texts(out, "note") if "nobody knows" in t]) == 1, "told again after a clean end", texts(out, "note"))


# ---- failures ----


def broken(folder, name, what, text, room=0, code=3, **changes):
    """A trainer that is refused a thread, or memory, after it has written that line."""
    path, out = setting(folder, name, **changes)
    env = {**fault(what, "metrics.jsonl", "write", text=text), "ZF_FAULT_ROOM": str(room)}
    h.run(path, program=h.TRAINER, env=env, code=code)
    expect(at_end(out) == ("error", code), at_end(out))
    return path, out


def test_a_failure_between_steps_saves_the_state(folder):
    more = {"data": {"train": "text.txt", "sequence_length": 32, "valid_split": 0.1}, "train": {"valid_every": 3}}
    path, out = broken(folder, "out", "thread", '"type":"step","step":6,', **more)
    said(out, "note", "the state is whole and saved")
    expect(save_of(out, 6) in said(out, "note", "the next start goes on from"), "which one")
    go_on(path)
    r.same(out, r.uninterrupted(folder, **more))


def test_a_failure_within_a_step_says_what_is_next(folder):
    path, out = broken(folder, "out", "memory", '"type":"step","step":6,', 5, zenflow={"update_interval": 5})
    warned = said(out, "warning", "was applied, and its state cannot be saved; parts of the exported model may be a step older")
    expect(warned.endswith(f"the next start goes on from {save_of(out, 4)}, step 4"), warned)
    expect(max(saves(out)) == "step-00000004.zfc", saves(out))
    go_on(path)
    r.same(out, r.uninterrupted(folder, zenflow={"update_interval": 5}))
    # its gradients have moved what the CPU half's rows are seen as; masters are those of the step before
    wide = {"model": {"hidden": 256, "ffn": 512}, "zenflow": {"update_interval": 64, "select_interval": 64}, "checkpoint": {"save_every": 2}}
    path, out = broken(folder, "wide", "memory", '"type":"step","step":3,', 1 << 24, **wide)
    warned = said(out, "warning", "was applied, and its state cannot be saved; the next start goes on from")
    step = int(re.search(r"while step (\d+) was", warned)[1])
    expect(step > 4 and h.last_step(out) == step - 1 and f"step-{(step - 1) // 2 * 2:08}.zfc" in warned, warned)
    go_on(path)
    r.same(out, r.uninterrupted(folder, "wide-whole", **wide))


def test_the_last_save_waits_for_room(folder):
    whole = r.uninterrupted(folder)
    for name, file in (("save", "step-00000014.zfc.tmp"), ("export", "exports/step-00000014")):
        path, out = setting(folder, name)
        h.run(path, program=h.TRAINER, env=fault(ENOSPC, file, "write"))
        expect("No space left" in said(out, "warning", "it is tried again every second for"), texts(out, "warning"))
        said(out, "note", "now it could be written")
        expect(at_end(out) == ("done", 0), at_end(out))
        r.same(out, whole)
    path, out = setting(folder, "never")
    done = h.run(path, "--set", "grace=0.5s", program=h.TRAINER, env=fault(ENOSPC, "step-00000014.zfc.tmp", "write", 1, 1000), code=7)
    expect("No space left" in done.stderr and f"goes on from {save_of(out, 12)}, step 12" in done.stderr, done.stderr)
    for told in (done.stderr, texts(out, "error")[-1]):
        expect("the checkpoint of step 14 could not be written: " in told and "the weights are exported to " in told, told)
        expect("could not be exported" not in told, told)
    expect(h.exports(out) == ["step-00000014"], "the export was not tried", h.exports(out))
    expect(at_end(out) == ("error", 7) and len([t for t in texts(out, "warning") if "tried again" in t]) == 1, texts(out, "warning"))
    go_on(path)
    r.same(out, whole)


def test_stop_tells_of_an_end_that_failed(folder):
    """`send stop` comes back with what became of the run: it was killed while it exported; its checkpoint could not be written."""
    for name, env, code, told in (
        ("killed", fault("kill", "exports/", "write"), 7, "died before the run had ended"),
        ("full", fault(ENOSPC, "step-00000003.zfc.tmp", "write", 1, 1000), 7, "ended with an error"),
    ):
        path, out = setting(folder, name, at={"4": "pause"}, run={"grace": "0.5s"})
        p = h.start(path, program=h.TRAINER, env=env)
        h.wait_for_step(p, out, 3)
        r.until(lambda: "paused" in h.run("send", out, "status", code=(0, 2, 8)).stdout)
        done = h.run("send", out, "stop", code=code)
        expect("the run ends" in done.stdout and told in done.stderr, done.stdout, done.stderr)
        p.wait(20 * h.SLOW)
        p.stdout.close()
        p.stderr.close()


# ---- signals ----


def test_a_signal_in_every_phase(folder):
    """SIGTERM when the run is set up, while it saves and exports, and again and again: exit 5, and nothing is lost. (In the middle of a step, of
    a validation and of a pause: test_resume.py.)"""
    checkpoint = {"save_every": 4, "export_every": 3}
    whole = r.uninterrupted(folder, checkpoint=checkpoint)
    for name, file, step, times in (
        ("start", "journal.jsonl", 0, 1),
        ("saving", "step-00000004.zfc.tmp", 4, 1),
        ("exporting", "exports/step-00000003", 3, 1),
        ("again", "step-00000004.zfc.tmp", 4, 1000),
    ):
        path, out = setting(folder, name, checkpoint=checkpoint)
        h.run(path, program=h.TRAINER, env=fault("term", file, "write", 1, times), code=5)
        last = h.last_step(out) if step else 0  # it may go on while step 4 is written; step 8 waits for it
        expect(at_end(out) == ("signal", 5) and step <= last < 8, name, at_end(out), last)
        expect(saves(out) == sorted({f"step-{n:08}.zfc" for n in (step, last)} if step != 3 else {f"step-{last:08}.zfc"}), name, saves(out))
        go_on(path)
        r.same(out, whole, name)
    path, out = setting(folder, "draining", checkpoint=checkpoint)  # nothing is left to be stopped
    h.run(path, program=h.TRAINER, env=fault("term", "metrics.jsonl", "write", text=f'"type":"step","step":{STEPS},'))
    expect(at_end(out) == ("done", 0), at_end(out))
    r.same(out, whole)


def test_a_second_interrupt_does_not_wait_for_room(folder):
    """Neither does it leave less than there was, nor nothing for the next start to say. (In the middle of a save: test_resume.py.)"""
    whole = r.uninterrupted(folder)
    path, out = setting(folder)
    p = h.start(path, program=h.TRAINER, stdout=subprocess.DEVNULL, env=fault(ENOSPC, "step-00000014.zfc.tmp", "write", 1, 1000))
    r.until(lambda: any("tried again every second" in m["text"] for m in h.metrics(out, "warning", whole=False)))
    p.send_signal(signal.SIGINT)
    time.sleep(2.1)
    p.send_signal(signal.SIGTERM)  # says nothing new
    p.send_signal(signal.SIGINT)
    h.finish(p, 130)
    done = go_on(path)
    expect("by signal 2 (Interrupt)" in done.stdout and "step-00000012.zfc, step 12" in done.stdout, done.stdout)
    r.same(out, whole)


def test_a_signal_while_the_data_is_read(folder):
    with open(h.TEXT, encoding="utf-8") as f:
        h.write(os.path.join(folder, "text.txt"), f.read() * 40)  # 40 MB: kept in the cache
    path, out = setting(folder, data={"cache": os.path.join(folder, "cache")})
    done = h.run(path, program=h.TRAINER, env=fault("term", "/cache/", "write"), code=5)
    expect(not os.path.exists(os.path.join(out, "journal.jsonl")), "a run was begun", done.stderr)


# ---- the clock ----


def test_max_time_ends_a_pause_too(folder):
    path, out = setting(folder, at={"2": "pause"})  # one step is taken, however slow the start was
    done = h.run(path, "--set", "max_time=0.5s", "--set", "grace=0.2s", program=h.TRAINER, code=5)
    expect("max_time is over" in done.stderr and at_end(out) == ("stopped", 5) and h.last_step(out) == 1, done.stderr)
    go_on(path, "--set", "max_time=0s")
    r.same(out, r.uninterrupted(folder))


def job(seconds, **more):
    return {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time() + seconds)), **more}


def test_a_job_that_ends(folder):
    whole = r.uninterrupted(folder)
    # as little time as there is: a step each, and no more
    path, out = setting(folder, run={"grace": "10m"})
    for step in (1, 2, 3):
        done = go_on(path, env=job(300), code=5)
        expect("the job ends at 20" in done.stderr and h.last_step(out) == step and at_end(out) == ("stopped", 5), done.stderr)
        said(out, "note", "(SLURM_JOB_END_TIME), in ")
        said(out, "warning", "that is little time")
    done = go_on(path, env=job(100000))
    said(out, "note", "the run will stop and save before, with exit code 5")
    r.same(out, whole)
    # a save that took long the last time is left time for
    path, out = setting(folder, "slow", run={"grace": "0s"}, checkpoint={"save_every": 4})
    r.killed(path, env=r.at_step(6))
    lines = [{**j, "seconds": 1000} if j["type"] == "checkpoint" else j for j in journal(out)]
    h.write(os.path.join(out, "journal.jsonl"), "".join(json.dumps(j) + "\n" for j in lines))
    go_on(path, env=job(1200), code=5)
    expect(h.metrics(out)[-1]["step"] == 4 and "about 25m" in said(out, "warning", "that is little time"), texts(out, "warning"))
    go_on(path)
    r.same(out, whole)
    # enough time for steps, not for all; neither is a pause waited for
    env, both = job(min(5 * h.SLOW, 15)), []
    for name, at in (("steps", {}), ("pause", {"4": "pause"})):
        path, out = setting(folder, name, **{**LONG, "run": {"grace": "1s"}}, at=at)
        both.append((h.start(path, program=h.TRAINER, env=env, stdout=subprocess.DEVNULL), out))
    for p, out in both:
        h.finish(p, 5, 10)
        expect(time.time() < int(env["SLURM_JOB_END_TIME"]), "too late")
        r.ended(out, h.last_step(out))
    # what is no time is told, and nothing else
    for name, value, words in (("bad", "tomorrow", "is `tomorrow`"), ("past", "1700000000", "is in the past (2023-11-14T22:13:20"), ("nan", "nan", "is `nan`"), ("empty", "", "")):
        path, out = setting(folder, name)
        go_on(path, env=job(1, SLURM_JOB_END_TIME=value))
        warned = texts(out, "warning")
        expect(len(warned) == bool(words) and all(words in t and "when the job ends is not known" in t for t in warned), name, warned)


SRUN = """#!/bin/bash
case $HOW in
    run) exec "$@" ;;
    cancel) kill -TERM $PPID; exit 5 ;;
esac
"$@" & # TERM, KILL: in the middle
until grep -q "\\"type\\":\\"step\\",\\"step\\":$AT," "$METRICS"; do sleep 0.02; done
kill -$HOW $!
wait $!
"""


def test_the_script_for_slurm(folder):
    """The one in configs/, with an srun and an scontrol that note what they are asked to do."""
    more = {**r.SLOW, "run": {"grace": "10m"}}
    whole = r.uninterrupted(folder, **more)
    path, out = setting(folder, **more)
    fake = os.path.join(folder, "fake")
    os.mkdir(fake)
    for name, text in (("srun", SRUN), ("scontrol", '#!/bin/bash\necho "$@" >> "$FAKE/asked"\n')):
        os.chmod(h.write(os.path.join(fake, name), text), 0o755)

    def queued():
        log = os.path.join(fake, "asked")
        return open(log, encoding="utf-8").read().splitlines() if os.path.exists(log) else []

    def one(how, code, at=0, seconds=100000, restarts=0, config=path):
        before = len(queued())
        env = job(seconds, FAKE=fake, HOW=how, AT=str(at), METRICS=os.path.join(out, "metrics.jsonl"), SLURM_RESTART_COUNT=str(restarts))
        env["PATH"] = os.pathsep.join((fake, h.BUILD, env["PATH"]))
        done = h.run(os.path.join(h.SOURCE, "configs", "slurm.sbatch"), config, program="bash", env=env, code=code)
        expect(all(line == "requeue 7" for line in queued()), queued())
        return len(queued()) - before, done.stdout

    again, _ = one("run", 5, seconds=300)  # it ends by itself
    expect(again == 1 and h.last_step(out) == 1, again, h.last_step(out))
    again, _ = one("TERM", 5, at=20, restarts=1)  # by the signal
    expect(again == 1 and h.last_step(out) >= 20, again, h.last_step(out))
    again, text = one("KILL", 137, at=40, restarts=2)  # the machine: Slurm queues such a job by itself
    expect(again == 0 and "exit code 137: not queued again" in text, again, text)
    again, text = one("run", 5, seconds=300, restarts=100)
    expect(again == 0 and "100 jobs were not enough" in text, again, text)
    again, text = one("cancel", 5)
    expect(again == 0 and "cancelled" in text, again, text)
    again, text = one("run", 0, restarts=3)
    expect(again == 0 and h.last_step(out) == 120, again, h.last_step(out))
    r.same(out, whole)
    expect(one("run", 0)[0] == 0 and one("run", 2, config=os.path.join(folder, "none.cfg"))[0] == 0, "over, or wrong")


# ---- what is seen of it afterwards ----


def scalars(out):
    """As TensorBoard reads them: files in their order; a START forgets what was of its step and later."""
    found = {}
    for path in sorted(glob.glob(os.path.join(out, "tensorboard", "events.out.tfevents.*")), key=lambda p: (os.path.getmtime(p), p)):
        for e in events(path):
            if 7 in e:
                found = {k: v for k, v in found.items() if k[1] < e[2]}
            for _, value in fields(e[5]) if 5 in e else ():
                v = dict(fields(value))
                key = (v[1].decode(), e[2])
                expect(key not in found, "twice", key)
                found[key] = struct.unpack("<f", v[2])[0]
    return found


def test_curves_go_on(folder):
    """TensorBoard shows every step once, as the run that counts took it, though steps were taken twice."""
    more = {"log": {"tensorboard": "yes"}, "data": {"train": "text.txt", "sequence_length": 32, "valid_split": 0.1}, "train": {"valid_every": 3}}
    path, out = setting(folder, **more)
    r.killed(path, env=r.at_step(7))
    r.killed(path, "--set", "learning_rate=5e-3", env=r.at_step(11))
    go_on(path, "--set", "learning_rate=5e-3")
    single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    wanted = {(k, m["step"]): single(m[k]) for m in h.metrics(out, "step") for k in ("loss", "grad_norm", "learning_rate", "tokens_per_s")}
    wanted |= {("valid_loss", m["step"]): single(m["loss"]) for m in h.metrics(out, "valid")}
    found = scalars(out)
    expect(set(found) == set(wanted), "more, or less", set(found) ^ set(wanted))
    expect(found == wanted, "of other steps", {k: (found[k], x) for k, x in wanted.items() if found[k] != x})


def test_the_time_left_is_of_this_process(folder):
    """Unknown for five steps of each process, whatever was done before."""
    path, out = setting(folder, log={"plain_every": 0}, train={"steps": 24})
    r.killed(path, env=r.at_step(18))
    lines = [line for line in go_on(path).stdout.splitlines() if re.match(r"step +\d+/24", line)]
    etas = {int(line.split("/")[0].split()[1]): line.rsplit("ETA ", 1)[1] for line in lines}
    expect(list(etas) == list(range(17, 25)), etas)
    expect([n for n, eta in etas.items() if eta == "--"] == [17, 18, 19, 20], etas)


if __name__ == "__main__":
    h.main()
