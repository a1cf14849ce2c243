"""A run that goes on is steered, watched, detached: send, attach, [at], --detach, followers."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time

import harness as h
from harness import expect

LONG = {"train": {"steps": 1000000, "valid_every": 0, "schedule": "constant"}, "log": {"plain_every": "0s"}}


def live(folder, *words, out="out", **more):
    h.text_file(folder)
    path, out = h.cfg(folder, **{**LONG, **more}), os.path.join(folder, out)
    p = h.start(path, "--plain", *words, stdout=subprocess.DEVNULL)
    h.wait_for_step(p, out, 3)
    return path, out, p


def send(out, *words, code=0, **more):
    done = h.run("send", out, *words, code=code, **more)
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


def end(out, p, code=5):
    if p.poll() is None:
        send(out, "stop", code=(0, 8))
    h.finish(p, code)


def journal(out):
    return h.json_lines(os.path.join(out, "journal.jsonl"))


def wait(condition, seconds=20):
    until = time.monotonic() + seconds * h.SLOW
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds * h.SLOW} s")


def from_step(answer):
    return int(answer.split("from step ")[1].split()[0].strip(",()"))


def test_learning_rate_from_the_promised_step(folder):
    path, out, p = live(folder)
    answer = send(out, "set", "learning_rate", "5e-3")
    expect("learning_rate 0.01 -> 0.005, from step" in answer and "lr(" in answer, answer)
    first = from_step(answer)
    h.wait_for_step(p, out, first + 3)
    end(out, p)
    for m in h.metrics(out, "step"):
        expect(m["learning_rate"] == (1e-2 if m["step"] < first else 5e-3), m["step"], m["learning_rate"], first)
    change = h.metrics(out, "change")
    expect(len(change) == 1, change)
    expect({**change[0], "option": "learning_rate", "old": 0.01, "new": 0.005, "from_step": first, "by": "send"} == change[0], change)
    entry = [e for e in journal(out) if e["type"] == "change"]
    expect(len(entry) == 1 and entry[0]["from_step"] == first and entry[0]["command"] == "set! learning_rate 0.005", entry)
    expect(h.metrics(out)[-1]["reason"] == "stopped" and h.metrics(out)[-1]["code"] == 5, "end", h.metrics(out)[-1])
    expect(h.exports(out), "no export")
    expect(not os.path.exists(os.path.join(out, "control.sock")), "the socket is left")


def test_several_at_once_and_values(folder):
    path, out, p = live(folder)
    answer = send(out, "set", "lr", "x0.5", "weight_decay", "+100%", "clip_norm=2")
    expect("0.01 -> 0.005" in answer and "weight_decay 0.01 -> 0.02" in answer and "clip_norm 1 -> 2" in answer, answer)
    expect("learning_rate is 0.005 already" in send(out, "set", "lr", "-0%"), "no change")
    expect("falls to 1/250 of what it is" in send(out, "set", "lr", "default", code=1), "that asks")
    expect("learning_rate 0.005 -> 2e-5" in send(out, "set", "lr", "default", "--yes"), "default")
    expect("weight_decay" in send(out, "show") and "0.02" in send(out, "show", "weight_decay"), "show")
    end(out, p)


def test_refusals(folder):
    path, out, p = live(folder, data={"valid_split": None})
    for words, reason in (
        (("set", "lr", "-1"), "above 0"),
        (("set", "topk_ratio", "2"), "nearest is 1"),
        (("set", "batch_size", "16"), "at a start only"),
        (("set", "lr", "1"), "more than 10"),
        (("sett", "lr", "1"), "nearest is `set`"),
        (("save", "../x"), "has no / in it"),
        (("load", "x"), "`pause` first"),
        (("detach",), "console's own"),
        (("undo",), "no change"),
        (("eval",), "no validation"),
        (("set", "valid_every", "5"), "without validation data"),
    ):
        expect(reason in send(out, *words, code=1), words, reason)
    said = json.loads(h.run("send", out, "set", "lr", "1", "--json", code=1).stdout)
    expect(said["ok"] is False and said["ask"] is True, said)
    expect(not [e for e in journal(out) if e["type"] != "start"], "a refused one was written down", journal(out))
    expect("0.01 -> 1," in send(out, "set!", "lr", "1"), "set!")
    expect("1 -> 20," in send(out, "--yes", "set", "lr", "20"), "--yes")
    end(out, p)
    expect(not h.metrics(out, "warning"), h.metrics(out, "warning"))


def state(out):
    return json.loads(h.run("status", out, "--json").stdout)["state"]


def test_pause_step_resume_stop(folder):
    path, out, p = live(folder)
    answer = send(out, "pause")
    first = int(answer.split("before step ")[1].split(";")[0])
    wait(lambda: h.last_step(out) == first - 1)
    time.sleep(0.3)
    expect(h.last_step(out) == first - 1, "it goes on")
    expect("paused" in send(out, "status"), "status")
    wait(lambda: state(out) == "paused")
    expect(json.loads(h.run("status", out, "--json").stdout)["alive"], "not alive while it is paused")
    expect("paused: pid" in h.run("status", out).stdout and " paused " in h.run("list", folder).stdout, "a pause is not told by files")
    send(out, "set", "lr", "0.02")
    send(out, "step", "2")
    wait(lambda: h.last_step(out) == first + 1)
    time.sleep(0.3)
    expect(h.last_step(out) == first + 1, "more than two steps")
    wait(lambda: state(out) == "paused")
    send(out, "resume")
    h.wait_for_step(p, out, first + 4)
    wait(lambda: state(out) == "running")
    rates = {m["step"]: m["learning_rate"] for m in h.metrics(out, "step")}
    expect(rates[first - 1] == 0.01 and rates[first] == 0.02, rates)
    send(out, "pause")
    send(out, "stop")  # also ends a pause
    h.finish(p, 5)


def test_history_and_undo(folder):
    path, out, p = live(folder)
    send(out, "set", "lr", "0.02")
    send(out, "set", "lr", "0.03", "beta1", "0.8")
    expect("learning_rate 0.03 -> 0.02" in send(out, "undo"), "undo")
    expect("learning_rate 0.02 -> 0.01" in send(out, "undo"), "undo")
    history = send(out, "history")
    expect(history.count("\n") == 3 and "learning_rate 0.01 -> 0.02" in history and "send" in history, history)
    send(out, "mark", "half way")
    end(out, p)
    expect([m["text"] for m in h.metrics(out, "mark")] == ["half way"], h.metrics(out, "mark"))


def test_steps_are_raised_and_lowered(folder):
    h.text_file(folder)
    path, out = h.cfg(folder, train={"steps": 100000, "valid_every": 0, "schedule": "constant"}), os.path.join(folder, "out")
    p = h.start(path, "--plain", stdout=subprocess.DEVNULL)
    h.wait_for_step(p, out, 3)
    send(out, "pause")
    at = h.last_step(out)
    expect(f"100000 -> {at + 5}" in send(out, "set", "steps", at + 5), "lower")
    send(out, "resume")
    h.finish(p, 0)
    expect(h.last_step(out) == at + 5 and h.metrics(out)[-1]["reason"] == "done", h.metrics(out)[-1])
    # one step more than was planned for: the same rows as a run that was planned so
    for name, steps in (("a", 6), ("b", 4)):
        at_lines = {} if name == "a" else {"at": {3: "set steps 6"}}
        cfg = h.cfg(folder, name + ".cfg", run={"dir": name}, train={"steps": steps, "valid_every": 0, "schedule": "constant"}, **at_lines)
        h.run(cfg, "--plain")
    expect(h.losses(os.path.join(folder, "a")) == h.losses(os.path.join(folder, "b")), "the steps differ")


def test_at(folder):
    """Commands of run.cfg; and what was steered by hand is repeated by its journal, bit for bit."""
    h.text_file(folder)
    at = {"at": {5: "set lr 1e-3", 8: "set! lr 0.5 clip_norm 0", 9: "mark nine", 10: "undo", 12: "set lr nonsense"}}
    bad = h.run("check", h.cfg(folder, **at), code=2)
    expect("run.cfg" in bad.stderr and "nonsense" in bad.stderr, bad.stderr)
    del at["at"][12]
    at["at"][14] = "stop"
    path, out = h.cfg(folder, train={"steps": 20, "schedule": "constant", "valid_every": 0}, **at), os.path.join(folder, "out")
    done = h.run(path, "--plain", code=5)
    rates = [m["learning_rate"] for m in h.metrics(out, "step")]
    expect(rates == [0.01] * 4 + [1e-3] * 3 + [0.5] * 2 + [1e-3] * 4, rates)
    expect("nine" in done.stdout and "change: learning_rate" in done.stdout, done.stdout)
    entries = [e for e in journal(out) if "command" in e]
    expect({e["by"] for e in entries} == {"at"}, entries)
    again = {"at": {e["from_step"]: e["command"] for e in entries if e["type"] in ("change", "command")}}
    h.run(h.cfg(folder, "b.cfg", run={"dir": "b"}, train={"steps": 20, "schedule": "constant", "valid_every": 0}, **again), "--plain", code=5)
    expect(h.losses(os.path.join(folder, "b")) == h.losses(out), "the journal does not repeat the run")


def test_steered_by_hand_and_replayed(folder):
    path, out, p = live(folder)
    send(out, "set", "lr", "0.03", "beta2", "0.95")
    h.wait_for_step(p, out, h.last_step(out) + 2)
    send(out, "at", h.last_step(out) + 1000, "set", "weight_decay", "0.3")
    send(out, "set", "lr", "-50%")
    h.wait_for_step(p, out, [e for e in journal(out) if e["type"] == "at"][0]["from_step"] + 2)
    end(out, p)
    steps = h.last_step(out)
    entries = [e for e in journal(out) if e["type"] == "change"]
    expect([e["by"] for e in entries] == ["send", "send", "at"], entries)
    lines = "\n".join(f"{e['from_step']} = {e['command']}" for e in entries)
    path = h.cfg(folder, "b.cfg", run={"dir": "b"}, train={"steps": steps, "valid_every": 0, "schedule": "constant"})
    with open(path, "a", encoding="utf-8") as f:
        f.write(f"[at]\n{lines}\n")
    h.run(path, "--plain", timeout=120)
    expect(h.losses(os.path.join(folder, "b")) == h.losses(out), "the journal does not repeat the run")


def test_export_eval_source(folder):
    path, out, p = live(folder, data={"valid_split": 0.1})
    answer = send(out, "eval")
    expect("validation loss" in answer, answer)
    where = os.path.join(folder, "here")
    send(out, "export", "here", cwd=folder)
    expect(os.path.exists(os.path.join(where, "model.safetensors")), os.listdir(folder))
    expect(where in send(out, "export", where, code=1), "an export over another one")
    h.write(os.path.join(folder, "script"), "# two\nset lr 0.02\nmark done\n")
    expect("2 commands of" in send(out, "source", "script", cwd=folder), "source")
    end(out, p)


def test_zenflow_is_steered(folder):
    """Between strategies and back, with lanes, traces, scores and selections asked for on the way."""
    path, out, p = live(folder, zenflow={"strategy": "gpu_only", "topk_ratio": 0.25, "update_interval": 2, "select_interval": 8})
    expect("selects no channels" in send(out, "select", code=1), "a selection under gpu_only")
    answer = send(out, "set", "strategy", "zenflow")
    expect("strategy gpu_only -> zenflow" in answer, answer)
    expect("kept" not in send(out, "set", "topk_ratio", "0.5"), "topk_ratio under zenflow")
    expect("selects anew" in send(out, "select"), "select")
    step = int(send(out, "score").rsplit(" ", 1)[1])
    wait(lambda: [m for m in h.metrics(out, "score", whole=False) if m["step"] == step])
    send(out, "trace", "2")
    wait(lambda: os.path.isdir(os.path.join(out, "traces")) and os.listdir(os.path.join(out, "traces")))
    listener = socket.socket(socket.AF_UNIX)
    listener.connect(os.path.join(out, "control.sock"))
    lines = listener.makefile(encoding="utf-8")
    kinds = {json.loads(next(lines))["type"] for _ in range(200)}
    expect({"start", "step", "lanes"} <= kinds, kinds)
    listener.close()
    expect("no such matrix" in send(out, "watch", "*", code=1), "watch")
    expect("update_interval 2 -> 4" in send(out, "set", "update_interval", "4", "optimistic", "no", "cpu_update", "mean"), "interval")
    expect("strategy zenflow -> gpu_only" in send(out, "set", "strategy", "gpu_only"), "back")
    expect("auto is settled" in send(out, "set", "strategy", "auto", code=1), "auto")
    end(out, p)
    expect(h.metrics(out, "select"), "nothing was selected")
    expect(all(isinstance(x, float) for x in h.losses(out)), "losses")


def test_detach(folder):
    h.text_file(folder)
    path, out = h.cfg(folder, **LONG), os.path.join(folder, "out")
    done = h.run(path, "--detach")
    expect(done.stdout.strip() == out and not done.stderr, done.stdout, done.stderr)
    pid = json.load(open(os.path.join(out, "lock")))["pid"]
    try:
        wait(lambda: h.metrics(out, "step", whole=False))
        expect(os.getsid(pid) != os.getsid(0) and os.getpgid(pid) != os.getpgid(0), "it is in our session")
        for fd in (0, 1, 2):
            expect(os.readlink(f"/proc/{pid}/fd/{fd}") in ("/dev/null", os.path.join(out, "trainer.log")), fd)
        again = h.run(path, "--detach")
        expect(again.stdout.strip() == out and "already" in again.stderr, again.stdout, again.stderr)
        send(out, "set", "lr", "0.02")
        send(out, "stop")
        wait(lambda: not os.path.exists(os.path.join(out, "lock")))
    finally:
        if os.path.exists(f"/proc/{pid}"):
            wait(lambda: not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().split()[2] == "Z")
    log = open(os.path.join(out, "trainer.log")).read()
    expect("step" in log and "end: stopped" in log and "change: learning_rate" in log, log[-2000:])
    steps = h.last_step(out)
    done = h.run(path, "--detach")  # ended early: it goes on
    expect(done.stdout.strip() == out and not done.stderr, done.stdout, done.stderr)
    wait(lambda: h.metrics(out, "resume", whole=False) and h.metrics(out, "step", whole=False)[-1]["step"] > steps)
    expect("lr" in send(out, "show", "lr") and "0.02" in send(out, "show", "lr"), "what was changed before")
    send(out, "stop")
    wait(lambda: not os.path.exists(os.path.join(out, "lock")))


def test_detach_says_why_it_could_not_start(folder):
    h.text_file(folder)
    path = h.cfg(folder, run={"memory_limit": "24M"}, model={"hidden": 512, "heads": 8, "layers": 12, "ffn": 2048})
    before = sorted(os.listdir(folder))
    done = h.run(path, "--detach", code=3)
    expect("memory" in done.stderr and not done.stdout, done.stdout, done.stderr)
    expect(sorted(os.listdir(folder)) == before, "something was written", os.listdir(folder))
    h.run(h.cfg(folder, data={"train": "nothing.txt"}), "--detach", code=4)
    done = h.run(h.cfg(folder, train={"steps": 3}), "--plain")
    done = h.run(h.cfg(folder, train={"steps": 3}), "--detach")
    expect("over" in done.stdout and done.stdout.splitlines()[-1] == os.path.join(folder, "out"), done.stdout)


def test_following_a_live_run(folder):
    h.text_file(folder)
    path, out = h.cfg(folder, train=LONG["train"], log={"plain_every": "0.2s"}), os.path.join(folder, "out")
    h.run(path, "--detach")
    wait(lambda: h.metrics(out, "step", whole=False))
    first, second = h.start(path, "--plain"), h.start(path, "--plain")
    time.sleep(1.0 * h.SLOW)
    first.send_signal(signal.SIGINT)  # leaves; the run goes on
    h.finish(first, 0)
    expect(b"left; the run goes on" in first.stdout.read(), "how it left")
    send(out, "mark", "seen")
    send(out, "stop")
    h.finish(second, 5)
    text = second.stdout.read().decode()
    expect("mark: seen" in text and "step" in text and "end: stopped" in text, text[-2000:])
    expect("\x1b" not in text and "\r" not in text, "control characters")


def test_attach(folder):
    path, out, p = live(folder, log={"plain_every": "0s"})
    a = h.start("attach", out, stdin=subprocess.PIPE)
    a.stdin.write(b"set lr 0.02\nset lr -1\n# nothing\nmark from a pipe\n")
    text, err = a.communicate(timeout=20 * h.SLOW)  # the end of the input leaves, once all is answered
    text = text.decode()
    expect(a.returncode == 0 and "> learning_rate 0.01 -> 0.02" in text and "> refused: " in text and "left" in text, text, err)
    expect([m["text"] for m in h.metrics(out, "mark", whole=False)] == ["from a pipe"], "mark")
    expect([m["by"] for m in h.metrics(out, "change", whole=False)] == ["console"], "by")
    a = h.start("attach", path, "--read-only", stdin=subprocess.PIPE)
    time.sleep(0.5 * h.SLOW)
    a.send_signal(signal.SIGINT)
    h.finish(a, 0)
    a = h.start("attach", out, "--read-only")
    b = h.start("attach", out, stdin=subprocess.PIPE)
    time.sleep(0.5 * h.SLOW)
    b.kill()  # without a word
    b.wait()
    send(out, "mark", "the end")
    send(out, "stop")
    h.finish(p, 5)
    h.finish(a, 0)
    text = a.stdout.read().decode()
    expect("mark: the end" in text and "end: stopped" in text, text[-1000:])
    expect("no trainer" in h.run("attach", out, code=8).stderr, "attach to a run that ended")


def test_stop_then_start(folder):
    """`stop` comes back when the run has ended: what is chained to it is a start."""
    path, out, p = live(folder)
    expect("the run ends" in send(out, "stop") and not os.path.exists(os.path.join(out, "lock")), "it came back too early")
    h.finish(p, 5)
    done = h.run(path, "--detach")
    expect("at work" not in done.stderr and done.stdout.strip() == out, done.stderr)
    done = h.run("send", out, "stop", "--json")
    expect(json.loads(done.stdout)["ok"] and not os.path.exists(os.path.join(out, "lock")), done.stdout)
    h.run(path, "--detach")
    pid = json.load(open(os.path.join(out, "lock"), encoding="utf-8"))["pid"]
    send(out, "pause")
    os.kill(pid, signal.SIGSTOP)
    send(out, "stop", "--no-wait")
    h.run("send", out, "stop", "--timeout", "0.3", code=7)
    os.kill(pid, signal.SIGCONT)
    wait(lambda: not os.path.exists(os.path.join(out, "lock")))


def test_exit_codes_of_send(folder):
    h.text_file(folder)
    h.run("send", "pause", code=8, cwd=folder)
    h.run("send", "nowhere/run", "pause", code=2, cwd=folder)
    path, out, p = live(folder, out="runs/a", run={"dir": "runs/a"})
    expect("step" in h.run("send", "status", cwd=folder).stdout, "the newest live run")
    expect("step" in h.run("send", "run.cfg", "status", cwd=folder).stdout, "by its run.cfg")
    expect("NAME VALUE" in h.run("send", "help", "set", cwd=folder).stdout, "help")
    h.run("send", cwd=folder, code=2)
    h.run("send", "--nonsense", "pause", cwd=folder, code=2)
    h.run("send", "--no-wait", "mark", "unheard", cwd=folder)
    wait(lambda: h.metrics(out, "mark", whole=False))
    os.kill(p.pid, signal.SIGSTOP)
    h.run("send", "--timeout", "0.5", "pause", cwd=folder, code=7)
    os.kill(p.pid, signal.SIGCONT)
    wait(lambda: "paused" in send(out, "status"))
    p.kill()
    p.wait()
    h.run("send", "status", cwd=folder, code=8)


def test_a_terminal_is_asked(folder):
    path, out, p = live(folder)
    for said, code, rate in ((b"n\n", 1, "0.01"), (b"y\n", 0, "1")):
        ours, theirs = pty.openpty()
        s = h.start("send", out, "set", "lr", "1", stdin=theirs)
        os.write(ours, said)
        text, err = s.communicate(timeout=20 * h.SLOW)
        expect(s.returncode == code and b"[y/N]" in err, said, s.returncode, text, err)
        expect(rate in send(out, "show", "lr").split("\n")[0], "learning_rate")
        os.close(ours)
        os.close(theirs)
    end(out, p)


def test_a_path_longer_than_a_socket_may_be(folder):
    runtime = os.path.join(folder, "r")
    os.mkdir(runtime, 0o700)
    name = "d" * 120
    os.environ["XDG_RUNTIME_DIR"] = runtime
    try:
        path, out, p = live(folder, out=name, run={"dir": name})
        where = json.load(open(os.path.join(out, "lock")))["socket"]
        expect(os.path.dirname(where) == runtime and not os.path.exists(os.path.join(out, "control.sock")), where)
    finally:
        del os.environ["XDG_RUNTIME_DIR"]
    expect("0.01 -> 0.02" in send(out, "set", "lr", "0.02"), "over a socket elsewhere")
    end(out, p)
    expect(not os.listdir(runtime), "the socket is left", os.listdir(runtime))


def test_two_senders_at_once(folder):
    path, out, p = live(folder)
    errors = []

    def sender(option, values):
        try:
            for v in values:
                send(out, "set", option, v)
        except AssertionError as e:
            errors.append(e)

    threads = [
        threading.Thread(target=sender, args=("lr", ["0.02", "0.03", "0.04", "0.05"])),
        threading.Thread(target=sender, args=("beta1", ["0.8", "0.7", "0.6", "0.5"])),
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect(not errors, errors)
    expect("0.05" in send(out, "show", "lr") and "0.5" in send(out, "show", "beta1"), "the last values")
    end(out, p)
    expect(len([e for e in journal(out) if e["type"] == "change"]) == 8, journal(out))


def test_bad_clients_do_not_slow_a_run(folder):
    path, out, p = live(folder)
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(os.path.join(out, "control.sock"))
    flood = socket.socket(socket.AF_UNIX)
    flood.connect(os.path.join(out, "control.sock"))
    dropped = threading.Event()

    def pour():
        block = b"x" * (1 << 16)
        try:
            for _ in range(1 << 14):  # a gigabyte
                flood.sendall(block)
        except OSError:
            dropped.set()

    t = threading.Thread(target=pour)
    t.start()
    before = h.last_step(out)
    expect("0.01 -> 0.02" in send(out, "set", "lr", "0.02"), "while one floods")
    t.join()
    expect(dropped.is_set(), "the one that floods was not dropped")
    h.wait_for_step(p, out, before + 50)
    expect(os.stat(os.path.join(out, "control.sock")).st_mode & 0o777 == 0o600, "mode of the socket")
    deaf.close()
    flood.close()
    end(out, p)


def test_a_run_on_another_machine(folder):
    """A lock with a fresh heartbeat of another host: followed from its files, not touched; taken over only when asked to."""
    path, out, p = live(folder, checkpoint={"save_every": 2})
    send(out, "save")  # answered when it is whole
    p.kill()
    p.wait()
    record = json.load(open(os.path.join(out, "lock")))
    expect(record["paused"] is False, record)
    record.update(paused=True, host="elsewhere", boot_id="0" * 8 + "-0000-0000-0000-" + "0" * 12, heartbeat=time.time() + 30, socket="")
    h.write(os.path.join(out, "lock"), json.dumps(record))
    expect(state(out) == "paused", "a pause on another machine")
    f = h.start(path, "--plain")
    time.sleep(1.0 * h.SLOW)
    with open(os.path.join(out, "metrics.jsonl"), "a", encoding="utf-8") as m:
        m.write('{"type":"mark","step":4,"text":"over there"}\n{"type":"end","step":4,"reason":"done","code":0}\n')
    h.finish(f, 0)
    text = f.stdout.read().decode()
    expect("ssh elsewhere zenflow-console attach " + out in text and "mark: over there" in text, text)
    expect("ssh elsewhere" in send(out, "pause", code=8), "send")
    done = h.run(path, "--takeover", "--plain", "--set", "max_time=0.2s", code=5)
    expect("goes on from" in done.stdout and "on host elsewhere) ended without a clean stop" in done.stdout, done.stdout)


def test_non_finite_asks(folder):
    h.copy_model(folder, "llama-multi-query-hd20")
    h.token_file(os.path.join(folder, "rows.safetensors"), 32, 16, 53)
    model = os.path.join(folder, "model", "model.safetensors")
    tensors = h.read_tensors(model)
    name = "model.layers.0.mlp.down_proj.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, h.pack("F32", [3e38 if i % 2 else -3e38 for i in range(len(data) // 4)]))
    h.write_tensors(model, tensors)
    base = {
        "run": {"dir": "out", "threads": 1},
        "model": {"path": "model", "dtype": "f32"},
        "data": {"train": "rows.safetensors"},
        "train": {"steps": 4, "batch_size": 4, "learning_rate": "1e-3"},
    }
    alone = h.run(h.cfg(folder, base=base, run={"dir": "alone", "grace": "0.5s"}), "--plain", code=6)
    expect(h.exports(os.path.join(folder, "alone")), "the last good state is not saved")
    expect("the run waits for `resume` or `stop`; without a client it ends in 0.5 s (grace)" in alone.stdout, alone.stdout)
    for text in (alone.stderr, alone.stdout):
        expect("step 1 was not finite, and nobody answered within 0.5 s (grace); the weights as they were at the start are exported" in text, text)
    out = os.path.join(folder, "out")
    p = h.start(h.cfg(folder, base=base), "--plain", stdout=subprocess.DEVNULL)
    wait(lambda: os.path.exists(os.path.join(out, "control.sock")) and "not finite" in send(out, "status", code=(0, 8)))
    expect(h.exports(out), "the last good state is not saved before anybody is waited for")
    send(out, "resume")
    wait(lambda: h.last_step(out) == 2 and "paused" in send(out, "status"))
    send(out, "stop")
    h.finish(p, 6)
    said = h.metrics(out, "error")[-1]["text"]
    expect("step 2 was not finite, and a client said stop" in said, said)


def test_a_directory_that_is_moved_while_it_trains(folder):
    """Another run may take the name: commands, sockets and exports stay apart."""
    h.text_file(folder)
    path = h.cfg(folder, train={"steps": 1000000, "valid_every": 0})
    first, second = os.path.join(folder, "m.old"), os.path.join(folder, "m")
    h.run(path, "--detach", "--set", f"dir={second}")
    os.rename(second, first)
    h.run(path, "--detach", "--set", f"dir={second}")
    wait(lambda: h.metrics(second, "step", whole=False) and h.metrics(first, "step", whole=False))
    send(first, "stop")
    wait(lambda: h.metrics(first, "end", whole=False))
    expect(not h.metrics(second, "end", whole=False), "the other run was stopped")
    expect(len(h.exports(first)) == 1 and not h.exports(second), "the export went into the other run's directory")
    send(second, "stop")
    wait(lambda: h.metrics(second, "end", whole=False))


if __name__ == "__main__":
    h.main()
