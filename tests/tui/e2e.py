"""The console as a person has it: the real programs, a real trainer on a small model, a terminal. `e2e.py long` presses more keys."""

import functools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

from terminal import Terminal, h, wait
from harness import expect

LONG = {
    "run": {"threads": 1},
    "model": {"hidden": 64},
    "train": {"steps": 1000000, "valid_every": 0, "schedule": "constant"},
    "data": {"valid_split": None},
    "zenflow": {"strategy": "zenflow", "topk_ratio": 0.1, "update_interval": 4, "select_interval": 4},
    "log": {"score_every": 8},
}
KEYS = 10000 if "long" in sys.argv else 300


def cfg(folder, **more):
    h.text_file(folder)
    base = {s: {**h.TINY.get(s, {}), **LONG.get(s, {})} for s in {**h.TINY, **LONG}}
    return h.cfg(folder, base=base, **more)


def out_of(folder):
    return os.path.join(folder, "out")


def alive(folder):
    return json.loads(h.run("status", out_of(folder), "--json").stdout)["alive"]


def end(folder, code=(0, 8)):
    if os.path.isdir(out_of(folder)):
        h.run("send", out_of(folder), "stop", code=code)
        wait(lambda: not alive(folder), what="the trainer ends")


def trainer_pid(folder):
    with open(os.path.join(out_of(folder), "lock"), encoding="utf-8") as f:
        return json.load(f)["pid"]


def step_of(text):
    """The step that the header shows."""
    found = re.search(r"step\s+(\d+)", text)
    return int(found.group(1)) if found else 0


def goes_on(folder):
    before = h.last_step(out_of(folder))
    wait(lambda: h.metrics(out_of(folder), "step", whole=False)[-1]["step"] > before, what="the run goes on")


def background(folder, **more):
    path = cfg(folder, **more)
    h.run(path, "--detach")
    wait(lambda: h.metrics(out_of(folder), "step", whole=False), what="a first step")
    return path


def leave_prompt(t):
    """Escape, and until it has had its effect: a key right behind it would be Alt and that key. In vi's insertion mode it takes two."""

    def left(text):
        free = ": command" in text and "Esc closes" not in text and "any key" not in text
        if not free:
            t.keys("Escape")
            time.sleep(0.3)
        return free

    t.wait(left)


def test_watch_and_steer(folder):
    path, out = cfg(folder), out_of(folder)
    with Terminal(folder, path) as t:
        t.wait(lambda s: step_of(s) > 3)
        t.command("set topk_ratio 0.05")
        answer = t.wait(lambda s: re.search(r"topk_ratio 0\.1 -> 0\.05, from step \d+", s))
        first = int(re.search(r"0\.05, from step (\d+)", answer).group(1))
        wait(lambda: any(m["step"] >= first + 8 for m in h.metrics(out, "select", whole=False)), what="selections since")
        wanted = {m["name"]: m["channels"] for m in h.metrics(out, "start", whole=False)[0]["matrices"]}
        seen = {}
        for line in h.metrics(out, "select", whole=False):
            for m in line["matrices"]:
                seen.setdefault(line["step"] >= first, {}).setdefault(m["name"], []).append(m["selected"] / wanted[m["name"]])
        for name in seen[True]:
            expect(abs(seen[True][name][-1] - 0.05) < 0.02 and abs(seen[False][name][0] - 0.1) < 0.02, name, seen)
        t.wait("\u25bc")  # the mark on the plot
        t.command("set update_interval 8")
        t.wait(lambda s: re.search(r"update_interval 4 -> 8, from step \d+", s))
        t.command("set lr 5")  # much more
        t.answer("n", "y yes  n no")
        t.wait("not done")
        t.command("mark here I was")
        wait(lambda: h.metrics(out, "mark", whole=False), what="the mark")
        leave_prompt(t)
        t.keys("q")
        t.wait("detach")
        t.keys("Escape")
        t.wait("d detach", gone=True)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, "detached", t.text())
        t.wait("the run goes on")
    goes_on(folder)
    with Terminal(folder, "attach") as t:  # not in ./runs
        expect(t.exit() == 8, t.text())
    with Terminal(folder, path) as t:  # the same run.cfg: to the live run
        text = t.wait(lambda s: step_of(s) > first)
        t.wait("0.05")
        t.keys("q")
        t.wait("s stop")
        t.keys("s")
        expect(t.exit() == 5, "stopped", t.text())
        t.wait("(console) stopped it. Its weights: ")
        t.wait("to go on from checkpoints/step-")
    expect(h.metrics(out)[-1]["reason"] == "stopped", h.metrics(out)[-1])
    expect([m["option"] for m in h.metrics(out, "change")] == ["topk_ratio", "update_interval"], h.metrics(out, "change"))
    expect({m["by"] for m in h.metrics(out, "change")} == {"console"}, "by", text)


def test_typed_ahead(folder):
    """A question answers itself by no key that was typed before it was seen."""
    background(folder)
    out, pid = out_of(folder), trainer_pid(folder)
    with Terminal(folder, "attach", out) as t:
        t.wait(lambda s: step_of(s) > 1)
        os.kill(pid, signal.SIGSTOP)
        t.command("set learning_rate 0.9")
        t.type("histor")
        t.wait("zf> histor")
        os.kill(pid, signal.SIGCONT)
        t.wait("asks: seen when the line is empty")
        t.type("y")
        t.keys("Enter")
        t.wait("nothing was changed")
        t.answer("n", "y yes  n no")
        t.wait("not done")
        t.command("set learning_rate 0.9")
        t.type("yes of course")  # the next line, begun blindly: at once, or in the moment in which it opens
        t.wait("zf> yes of course")
        t.wait("asks: seen when the line is empty")
        t.keys("C-c")
        t.answer("n", "y yes  n no")
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    expect(not h.metrics(out, "change", whole=False), h.metrics(out, "change", whole=False))
    end(folder)


def test_one_too_many(folder):
    """It says what the trainer said."""
    background(folder)
    with open(os.path.join(out_of(folder), "lock"), encoding="utf-8") as f:
        where = json.load(f)["socket"]
    others = [socket.socket(socket.AF_UNIX) for _ in range(32)]
    for s in others:
        s.connect(where if where.startswith("/") else os.path.join(out_of(folder), where))
        s.sendall(b'{"id":1,"command":"status"}\n')
        expect(s.recv(1), "let in")
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.answer("Escape", "there are 32 clients already")
        t.wait("any key", gone=True)
        t.keys("q")
        expect(t.exit() == 8, t.text())
        t.wait("out: there are 32 clients already")
    for s in others:
        s.close()
    goes_on(folder)
    end(folder)


def test_last_words(folder):
    """Of a run with a name that drives terminals, asked to stop, renamed."""
    name, odd = "o\x1b]0;owned\x07 x", "o\\x1b]0;owned\\x07 x'`"
    background(folder)
    run, pid = os.path.join(folder, name), trainer_pid(folder)
    os.rename(out_of(folder), run)
    try:
        with Terminal(folder, "attach", run) as t:
            t.wait(lambda s: step_of(s) > 1)
            t.keys("q")
            t.wait("d detach")
            t.keys("d")
            expect(t.exit() == 0, t.text())
            t.wait("the run goes on")
            expect(odd in t.text().replace("\n", ""), t.text())
        with Terminal(folder, "attach", run) as t:
            t.wait(lambda s: step_of(s) > 1)
            os.kill(pid, signal.SIGSTOP)
            t.keys("q")
            t.wait("s stop")
            t.keys("s")
            t.wait("stop ...")
            t.keys("q")
            t.wait("do not wait")
            t.keys("d")
            expect(t.exit() == 0, t.text())
            t.wait("it was asked to stop")
        with Terminal(folder, "attach", run) as t:
            time.sleep(0.5)
            os.rename(run, os.path.join(folder, "elsewhere"))
            os.kill(pid, signal.SIGCONT)
            t.wait("ended at step")
            t.wait("renamed")
            t.keys("q")
            expect(t.exit() == 5, t.text())
            t.wait("(stopped)")
    finally:
        os.kill(pid, signal.SIGCONT) if os.path.exists(f"/proc/{pid}") else None


def test_limits(folder):
    """of files and of descriptors: refused, with what it is."""
    background(folder)
    with Terminal(folder, "-c", 'ulimit -f 100; exec "$0" "$@"', h.CONSOLE, "attach", out_of(folder), program="/bin/sh") as t:
        t.wait(lambda s: step_of(s) > 1)
        t.command("write loss loss.svg")
        t.wait("File too large")
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    with Terminal(folder, "-c", 'ulimit -n 6; exec "$0" "$@"', h.CONSOLE, "attach", out_of(folder), program="/bin/sh") as t:
        expect(t.exit() == 7, t.text())
        t.wait("Too many open files")
    end(folder)


def test_two_consoles(folder):
    background(folder)
    with Terminal(folder, "attach", out_of(folder)) as a, Terminal(folder, "attach", out_of(folder), "--read-only") as b:
        a.wait(lambda s: step_of(s) > 1)
        b.wait(lambda s: step_of(s) > 1)
        b.command("set lr 0.02")
        b.wait("--read-only")
        b.command("show learning_rate")
        b.wait("0.01")
        a.command("set lr 0.02")
        a.wait("learning_rate 0.01 -> 0.02")
        b.wait(lambda s: re.search(r"learning_rate.*0\.01.*0\.02", s))
        a.command("pause")
        b.wait(lambda s: "paused" in s.split("\n")[0])
        a.command("resume")
        b.wait(lambda s: " RUN " in s.split("\n")[0])
        leave_prompt(b)
        b.keys("q")
        expect(b.exit() == 0, "a reader leaves")
        leave_prompt(a)
        a.keys("q")
        a.wait("d detach")
        a.keys("d")
        expect(a.exit() == 0, "left")
    goes_on(folder)
    end(folder)


def test_a_console_that_dies(folder):
    background(folder)
    for number, code in ((signal.SIGHUP, 0), (signal.SIGTERM, 0), (signal.SIGKILL, 137)):
        with Terminal(folder, "attach", out_of(folder)) as t:
            t.wait(lambda s: step_of(s) > 1)
            os.kill(t.pid, number)
            expect(t.exit() == code, number, t.exit())
        goes_on(folder)
    with Terminal(folder, "attach", out_of(folder)) as t:  # the terminal itself goes
        t.wait(lambda s: step_of(s) > 1)
    goes_on(folder)
    end(folder)


def test_a_trainer_that_dies(folder):
    background(folder)
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        os.kill(trainer_pid(folder), signal.SIGKILL)
        t.answer("x", "the trainer is gone")
        t.wait("any key", gone=True)
        t.wait("loss")  # it can be looked at
        t.wait("LOST")
        t.keys("z")
        t.keys("q")
        expect(t.exit() == 8, t.text())
    with Terminal(folder, "attach", out_of(folder)) as t:  # what is left
        t.wait("without a clean stop")
        t.keys("q")
        expect(t.exit() == 0, t.text())


def test_ends(folder):
    path = cfg(folder, train={"steps": 3, "valid_every": 0})
    with Terminal(folder, path) as t:
        t.wait("last step")
        t.keys("q")
        expect(t.exit() == 0, t.text())
        t.wait("ended at step 3: it has reached its last step")
        t.wait("lets its model speak")
    with Terminal(folder, path) as t:  # it is over: its recording
        t.wait(lambda s: step_of(s) == 3)
        t.command("set lr 1e-3")
        t.wait(lambda s: "ecording" in s or "over" in s)
        leave_prompt(t)
        t.keys("q")
        expect(t.exit() == 0, t.text())
    done = h.run("replay", out_of(folder), "--snapshot", "80x24")
    expect(len(done.stdout.splitlines()) <= 24 and max(map(len, done.stdout.splitlines())) <= 80 and "loss" in done.stdout, done.stdout)
    expect(step_of(h.run("replay", out_of(folder), "--snapshot", "80x24", "--at-step", "2").stdout) == 2, "at step 2")
    for wrong in (("--snapshot", "80"), ("--snapshot", "0x5"), ("--at-step", "2"), ("--theme", "pink"), ()):
        done = h.run("replay", out_of(folder), *wrong, code=2)
        expect(done.stderr.startswith("zenflow-console: "), done.stderr)


def test_a_matrix(folder):
    """of a live run, and of one that has ended while it was watched: columns of before come from the file."""
    path = cfg(folder, train={"steps": 500, "valid_every": 0}, log={"score_every": 4})
    with Terminal(folder, path) as t:
        t.wait(lambda s: step_of(s) > 20)
        t.command("zoom channels")
        leave_prompt(t)
        t.keys("Enter")
        t.wait("score, log10")
        t.wait("ENDED")
        t.keys("Escape")  # all matrices again
        t.wait("layer x time")
        t.keys("Enter")
        t.wait("score, log10")
        t.wait("hold of")
        expect("No scores" not in t.text(), t.text())
        t.keys("q")
        expect(t.exit() == 0, t.text())


def test_put_off(folder):
    background(folder, at={"900000": "set topk_ratio 0.05"})
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        t.command("zoom options")
        t.wait("-> 0.05 at step 900000")
        t.wait("about to be")
        h.run("send", out_of(folder), "at", "800000", "set", "clip_norm", "2")
        t.wait("-> 2 at step 800000")
        t.command("at 700000 save")
        t.wait("before step 700000")
        t.command("history")
        t.wait("step 700000  put off: save")
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    end(folder)


def test_checkpoints_by_name(folder):
    """A name is not taken twice without a yes; Tab has the names for `load`."""
    background(folder)
    good = os.path.join(out_of(folder), "checkpoints", "good.zfc")
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        t.command("save good")
        t.wait("saved to")
        first = os.stat(good).st_ino
        t.command("save good")
        t.wait("save would replace it")
        t.answer("n", "y yes  n no")
        t.wait("not done")
        expect(os.stat(good).st_ino == first, "it was replaced")
        t.command("save good")
        t.answer("y", "y yes  n no")
        wait(lambda: os.stat(good).st_ino != first, what="it is replaced")
        t.command("pause")
        t.wait("paused before")
        t.type("load g")
        t.keys("Tab")
        t.wait("load good")
        t.keys("Enter")
        t.wait("to be taken again")
        t.answer("y", "y yes  n no")
        t.wait("is loaded from")
    end(folder)


def test_refusals(folder):
    path = cfg(folder, train={"learning_rate": "much"})
    with Terminal(folder, path) as t:
        expect(t.exit() == 2, t.text())
        t.wait("learning_rate")
    with Terminal(folder, os.path.join(folder, "nothing.cfg")) as t:
        expect(t.exit() == 2, t.text())
        t.wait("there is no such file")
    with Terminal(folder, "attach", os.path.join(folder, "nothing")) as t:
        expect(t.exit() == 2, t.text())


def test_sizes_and_typing(folder):
    background(folder)
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        t.type(":set learning_rate 0.0")
        for cols, rows in ((80, 24), (20, 3), (300, 100), (40, 10), (5, 2), (132, 43), (20, 3), (1, 1), (100, 30)):
            t.resize(cols, rows)
        t.type("2")
        t.wait("set learning_rate 0.02")  # what was typed is still there
        t.keys("Escape", "q")  # at once: as good as Alt-q, which would mean nothing
        t.wait("d detach")
        t.keys("Escape", ":")
        t.type("set learning_rate 0.02")
        t.wait("zf> set learning_rate 0.02")
        for i in range(20):
            t.resize(20 + 13 * i % 200, 3 + 7 * i % 60)
        t.resize(100, 30)
        t.keys("Enter")
        t.wait("0.01 -> 0.02")
        t.type("set learning_rate 7")
        t.keys("C-c")
        t.wait("learning_rate 7", gone=True)
        t.type("stat\t\r")  # completed
        t.wait("training")
        leave_prompt(t)
        t.keys("C-c")
        t.wait("`q` leaves")
        for cols, rows in ((20, 3), (80, 24), (132, 43), (300, 100)):
            t.resize(cols, rows)
            t.wait(lambda s, c=cols, r=rows: len(s.split("\n")) >= r and "step" in s)
        t.resize(100, 30)
        t.keys("?")
        t.wait("keys and commands")
        t.keys("Escape")
        t.wait("keys and commands", gone=True)
        t.keys("q", "d")
        expect(t.exit() == 0, t.text())
    end(folder)


def test_paste_and_suspend(folder):
    background(folder)
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        t.tmux("set-buffer", "qs\nstop\nzzz\n")
        t.tmux("paste-buffer", "-p")  # into the dashboard: no keys
        t.type(":")
        t.wait("zf>")
        expect("d detach" not in t.text() and "9 options" in t.text(), t.text())
        t.tmux("set-buffer", "mark one\nstop\n")
        t.tmux("paste-buffer", "-p")
        t.wait("mark one")
        expect(alive(folder) and not h.metrics(out_of(folder), "mark", whole=False), "a paste was carried out")
        t.keys("C-c")
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    # a shell with jobs: only there can anything be stopped
    script = 'set -m; "$0" "$@"; echo back in the shell; read x; fg'
    with Terminal(folder, "-c", script, h.CONSOLE, "attach", out_of(folder), program="/bin/sh") as t:
        t.wait(lambda s: step_of(s) > 1)
        t.keys("C-z")
        t.wait("back in the shell")
        goes_on(folder)
        before = h.last_step(out_of(folder))
        t.keys("Enter")
        t.wait(lambda s: step_of(s) > before)
        t.command("show lr")
        t.wait("The schedule's peak")
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    end(folder)


def test_kinds_of_terminals(folder):
    path = background(folder)
    with Terminal(folder, path, TERM="dumb") as t:  # lines, in the foreground
        t.wait(lambda s: len(re.findall(r"step +\d+", s)) > 1 and "\u2500" not in s)
        t.keys("C-c")
        expect(t.exit() == 0, t.text())
    with Terminal(folder, "attach", out_of(folder), LC_ALL="C") as t:
        text = t.wait(lambda s: step_of(s) > 1)
        expect(text.isascii(), text)
        t.keys("q", "d")
        expect(t.exit() == 0, t.text())
    with Terminal(folder, "attach", out_of(folder), NO_COLOR="1") as t:
        t.wait(lambda s: step_of(s) > 1)
        colours = re.findall(r"\x1b\[[0-9;]*?\b(?:3[0-7]|4[0-7]|38;5|48;5)[0-9;]*m", t.text(styles=True))
        expect(not colours, colours[:5])
        t.keys("q", "d")
        expect(t.exit() == 0, t.text())
    for kind in ("vt100", "xterm", "linux", "screen", "xterm-nobody-knows"):
        with Terminal(folder, "attach", out_of(folder), TERM=kind) as t:
            t.wait(lambda s: step_of(s) > 1)
            t.keys("q")
            t.wait("d detach")
            t.keys("d")
            expect(t.exit() == 0, kind, t.text())
    goes_on(folder)
    end(folder)


def test_random_keys(folder):
    background(folder)
    r = random.Random(1)
    keys = ["Tab", "BTab", *"1234567890zsl+-[]c/pg tM", "End", "Left", "Right", "Up", "Down", "PageUp", "PageDown", "Enter", "Escape", "C-l", "C-c",
            ":", "?", "M-b", "F5", "F9", "Home", "BSpace", "C-r", "C-g", "<", ">", "set ", "show", "lr ", "\u672c", "e\u0301", "\x1b[", "\x1b[999;999", "\x1bOA"]
    with Terminal(folder, "attach", out_of(folder)) as t:
        t.wait(lambda s: step_of(s) > 1)
        sent = 0
        while sent < KEYS:
            some = [r.choice(keys) for _ in range(20)]
            sent += len(some)
            for k in some:
                t.keys(k) if len(k) > 1 and not k.startswith("\x1b") and k.strip() == k else t.type(k)
            if r.random() < 0.5:
                t.resize(r.randint(2, 250), r.randint(1, 90))
            expect(not t.ended(), "it ended", t.text())
        t.resize(100, 30)
        t.keys("Escape")
        time.sleep(0.5)  # what is on the screen may be older than the last keys
        leave_prompt(t)
        t.command("show topk_ratio")
        t.wait(lambda s: re.search(r"topk_ratio +0\.1", s))
        memory = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{t.pid}/status", encoding="ascii").read()).group(1))
        expect(memory < 64 * 1024 or h.SLOW > 1, "memory", memory)
        leave_prompt(t)
        t.keys("q")
        t.wait("d detach")
        t.keys("d")
        expect(t.exit() == 0, t.text())
    h.run("send", out_of(folder), "resume", code=(0, 1))  # `p` was among the keys
    goes_on(folder)
    end(folder)


def test_replay(folder):
    run = os.path.join(folder, "recorded")
    subprocess.run([sys.executable, os.path.join(h.SOURCE, "tests", "tui", "make_run.py"), run, "--steps", "500"], check=True, stdout=subprocess.DEVNULL)
    with Terminal(folder, "replay", run, "--from", "100", "--speed", "20") as t:
        t.wait(lambda s: step_of(s) > 105)
        t.keys("p")
        stands = step_of(t.wait("REPLAY paused"))
        t.wait("p go on")
        time.sleep(0.5)
        expect(step_of(t.text()) == stands, stands, t.text())
        t.command(".seek 50")
        t.wait(lambda s: step_of(s) == 50)
        t.command(".seek 300")
        t.wait(lambda s: step_of(s) == 300)
        leave_prompt(t)
        t.keys("[")
        t.wait(lambda s: 200 <= step_of(s) < 300)
        t.keys("p", ">", ">", ">", ">", ">", ">", ">")
        t.wait(lambda s: step_of(s) == 500)  # the end stays on the screen
        t.keys("q")
        expect(t.exit() == 0, t.text())


def test_another_machine(folder):
    background(folder)
    end(folder)
    out = out_of(folder)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as m:
        kept = [line for line in m if '"type":"end"' not in line]
    h.write(os.path.join(out, "metrics.jsonl"), "".join(kept))
    record = {"host": "elsewhere", "pid": 7, "pid_start": 1, "boot_id": "other", "heartbeat": 4e9, "step": 3, "file_lock": False}
    h.write(os.path.join(out, "lock"), json.dumps(record) + "\n")
    with Terminal(folder, "attach", out) as t:
        t.wait("ssh elsewhere")
        t.keys("Space")
        with open(os.path.join(out, "metrics.jsonl"), "a", encoding="utf-8") as m:
            m.write('{"type":"mark","step":4,"text":"from over there"}\n')
        t.wait("from over there")
        t.keys("q")
        expect(t.exit() == 0, t.text())


def test_what_is_linked(_):
    def needed(program):
        return subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout

    console, trainer = needed(h.CONSOLE), needed(h.TRAINER)
    expect("libreadline" in console and "libncursesw" in console, console)
    expect("dnnl" not in console and "hwloc" not in console and "cuda" not in console, console)
    expect("readline" not in trainer and "ncurses" not in trainer and "libtinfo" not in trainer, trainer)


def test_a_file_named_like_a_command(folder):
    """is no run.cfg, neither for the console nor for the trainer."""
    h.write(os.path.join(folder, "status"), "")
    with Terminal(folder, "status", folder) as t:
        t.wait("there is no run here")
    with Terminal(folder, "man") as t:
        t.wait("EXIT STATUS")


def cleaned(test):
    """No trainer outlives its test, whatever happens in it."""

    @functools.wraps(test)
    def run(folder):
        try:
            test(folder)
        finally:
            if os.path.exists(os.path.join(out_of(folder), "lock")) and alive(folder):
                os.kill(trainer_pid(folder), signal.SIGKILL)

    return run


for name, test in list(globals().items()):
    if name.startswith("test_") and name != "test_another_machine":
        globals()[name] = cleaned(test)

if __name__ == "__main__":
    if "long" in sys.argv:
        sys.argv = [sys.argv[0], "test_random_keys"]
    h.main()
