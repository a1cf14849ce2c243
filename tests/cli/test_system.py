"""Signals, closed pipes, full disks, locks, sockets, memory: the world a run lives in."""

import os
import resource
import shutil
import signal
import subprocess
import time

import harness as h
from harness import expect

LONG = {"train": {"steps": 1000000, "valid_every": 0}, "log": {"plain_every": "0s"}}


def long_run(folder, **more):
    h.text_file(folder)
    path, out = h.cfg(folder, **{**LONG, **more}), os.path.join(folder, "out")
    p = h.start(path, "--plain", stdout=subprocess.DEVNULL)
    h.wait_for_step(p, out, 3)
    return path, out, p


def ended_by_signal(out, p):
    h.finish(p, 5)
    end = h.metrics(out)[-1]
    expect(end["type"] == "end" and end["reason"] == "signal", "last line", end)
    expect(
        h.only_export(out).endswith(f"step-{h.last_step(out):08d}") and end["step"] == h.last_step(out),
        "export",
        h.exports(out),
        h.last_step(out),
    )


def test_sigint(folder):
    path, out, p = long_run(folder)
    p.send_signal(signal.SIGINT)
    ended_by_signal(out, p)


def test_sigterm(folder):
    path, out, p = long_run(folder)
    p.terminate()
    ended_by_signal(out, p)
    expect(h.run("status", out).stdout, "status of a run that was stopped")


def test_signal_right_at_the_start(folder):
    h.text_file(folder, 200000)
    p = h.start(h.cfg(folder, **LONG), "--plain", stdout=subprocess.DEVNULL)
    time.sleep(0.15)
    p.terminate()
    p.wait(30 * h.SLOW)
    expect(p.returncode in (5, -signal.SIGTERM), "exit", p.returncode)  # -SIGTERM: before our first instruction


def test_sighup_is_ignored(folder):
    path, out, p = long_run(folder)
    p.send_signal(signal.SIGHUP)
    h.wait_for_step(p, out, h.metrics(out, "step", whole=False)[-1]["step"] + 5)
    p.terminate()
    ended_by_signal(out, p)


def test_closed_stdout_does_not_end_a_run(folder):
    h.text_file(folder)
    p = h.start(h.cfg(folder, log={"plain_every": "0s"}, train={"steps": 60}), "--plain")
    p.stdout.readline()
    p.stdout.close()
    h.finish(p, 0)
    expect(h.last_step(os.path.join(folder, "out")) == 60 and h.exports(os.path.join(folder, "out")), "the run ended early")


def test_nothing_grows_after_the_first_steps(folder):
    path, out, p = long_run(
        folder, data={"valid_split": 0.1}, train={"steps": 1000000, "valid_every": 5}, log={"sample_every": 5, "plain_every": "0s"}
    )
    h.wait_for_step(p, out, 12)

    def peak():
        with open(f"/proc/{p.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))

    before = peak()
    h.wait_for_step(p, out, 400)
    after = peak()
    p.terminate()
    ended_by_signal(out, p)
    expect(h.SLOW > 1 or after - before <= 1024, f"the peak grew by {after - before} KiB")


def test_memory_limit(folder):
    h.text_file(folder)
    path = h.cfg(folder, run={"memory_limit": "24M"}, model={"hidden": 512, "heads": 8, "layers": 12, "ffn": 2048})
    before = sorted(os.listdir(folder))
    for words in ((path, "--plain"), ("check", path)):
        began = time.monotonic()
        done = h.run(*words, code=3)
        expect(h.SLOW > 1 or time.monotonic() - began < 2, f"{words}: {time.monotonic() - began:.1f} s to say no")
        expect("memory_limit" in done.stderr and "MiB" in done.stderr + done.stdout, "numbers, and which limit", done.stderr)
    expect(sorted(os.listdir(folder)) == before, "something was written", os.listdir(folder))


def test_a_log_that_cannot_be_written_is_dropped_and_counted(folder):
    """A limit on the size of files, which the log reaches and the export does not, stands for a full disk."""
    h.text_file(folder)
    out = os.path.join(folder, "out")
    limit = 200000

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = h.run(
        h.cfg(folder, train={"steps": 800, "valid_every": 0}), "--plain", preexec_fn=limited, restore_signals=False
    )  # SIGXFSZ stays ignored
    expect(h.exports(out) == ["step-00000800"], "export", h.exports(out))
    expect(limit - 4096 < os.path.getsize(os.path.join(out, "metrics.jsonl")) <= limit, "the log never met the limit")
    h.metrics(out, whole=False)
    with open(os.path.join(out, "trainer.log")) as f:
        said = done.stdout + done.stderr + f.read()
    expect("of metrics.jsonl lost" in said, "dropped lines are not counted", said[-2000:])
    expect(said.count("lines are lost: No space left on device; training goes on") >= 1, "nobody was told when it began", said[-2000:])


def test_a_run_directory_that_is_removed(folder):
    """What could not be read any more is not accepted."""
    _, out, p = long_run(folder)
    os.remove(os.path.join(out, "journal.jsonl"))
    os.remove(os.path.join(out, "metrics.jsonl"))
    done = h.run("send", out, "set", "learning_rate", "1e-4", "--yes", code=1)
    expect("cannot be written down" in done.stdout + done.stderr, done.stdout, done.stderr)
    p.terminate()
    p.communicate(timeout=30 * h.SLOW)
    with open(os.path.join(out, "trainer.log"), encoding="utf-8") as f:
        said = f.read()
    expect("metrics.jsonl cannot be written, lines are lost: No such file or directory" in said, said[-2000:])


def test_one_trainer_a_directory(folder):
    path, out, p = long_run(folder)
    second = h.start(path, "--plain", program=h.TRAINER)  # watches the first, and ends as it does
    h.run(path, "--plain", "--resume", "never", code=1)
    h.run(path, "--plain", "--set", "seed=99", code=1)
    h.wait_for_step(p, out, h.last_step(out) + 5)
    time.sleep(0.5 * h.SLOW)
    p.terminate()
    ended_by_signal(out, p)
    text, err = second.communicate(timeout=30 * h.SLOW)
    expect(second.returncode == 5 and str(p.pid).encode() in text, "the second one", second.returncode, text[-1000:], err)
    expect(len([j for j in h.json_lines(os.path.join(out, "journal.jsonl")) if j["type"] == "start"]) == 1, "two starts")


def test_a_killed_trainer_leaves_no_lock(folder):
    path, out, p = long_run(folder)
    p.kill()
    p.wait()
    done = h.run(path, "--plain", "--set", "steps=5", timeout=20)  # 8: the dead would still hold the run
    expect("without a clean stop" in done.stdout and h.last_step(out) == 5, "it goes on", done.stdout, done.stderr)


def test_no_internet_socket(folder):
    trace = os.path.join(folder, "trace")
    if not shutil.which("strace") or subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL).returncode:
        raise h.Skip("strace is not installed, or may not trace here")
    h.text_file(folder)
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # its leak check cannot run under a tracer
    for words in (
        (h.cfg(folder, train={"steps": 3}), "--plain"),
        ("generate", os.path.join(folder, "out"), "--prompt", "a", "--tokens", "2"),
        ("doctor",),
    ):
        h.run("-f", "-qq", "-e", "trace=socket,connect,execve", "-o", trace, h.CONSOLE, *words, program="strace", env=env)
        calls = open(trace).read()
        expect("execve(" in calls, "nothing was traced")
        expect("AF_INET" not in calls and "AF_PACKET" not in calls, words, "opened a socket:", calls)


if __name__ == "__main__":
    h.main()
