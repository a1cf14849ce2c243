"""Where two things meet: two starts of one run, a limit and a large file, a signal and a command that is no run, a time limit and the last step."""
import os
import shutil
import signal
import subprocess
import time

import harness as h
from harness import expect


def test_two_starts_of_one_run(folder):
    h.text_file(folder, 200000)
    run = h.cfg(folder, train={"steps": 10})
    both = [h.start(run) for _ in range(2)]
    for p in both:
        p.communicate(timeout=60 * h.SLOW)
    codes = sorted(p.returncode for p in both)
    # the slower one finds a lock, a run that has just begun, or one that is over already
    expect(codes in ([0, 8], [0, 0]), "exit codes", codes)
    starts = [j for j in h.json_lines(os.path.join(folder, "out", "journal.jsonl")) if j["type"] == "start"]
    steps = [m["step"] for m in h.metrics(os.path.join(folder, "out"), "step")]
    expect(len(starts) == 1, "starts", starts)
    expect(steps == list(range(1, 11)), "steps", steps)


def test_a_large_file_is_refused_early(folder):
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as f:
        f.truncate(300 << 20)                  # sparse: reading it would take far longer than refusing it
    run = h.cfg(folder, run={"memory_limit": "600M"}, data={"cache": "no"})
    began = time.monotonic()
    done = h.run(run, code=3)
    expect(time.monotonic() - began < 2 * h.SLOW, "refused too late")
    expect("data" in done.stderr, done.stderr)
    expect(not os.path.exists(os.path.join(folder, "out")), "something was written")


def test_an_interrupt_ends_other_commands_at_once(folder):
    p = h.start("tokenize", "bytes", "-", stdin=subprocess.PIPE)
    time.sleep(0.3 * h.SLOW)
    p.send_signal(signal.SIGINT)
    h.finish(p, -signal.SIGINT, 5)
    p.stdin.close()


def test_a_double_keystroke_is_one_interrupt(folder):
    h.text_file(folder, 200000)
    p = h.start(h.cfg(folder, train={"steps": 100000}))
    h.wait_for_step(p, os.path.join(folder, "out"), 3)
    for _ in range(3):
        p.send_signal(signal.SIGINT)
        time.sleep(0.02)
    h.finish(p, 5)
    h.only_export(os.path.join(folder, "out"))


def test_a_closed_stdout_overwrites_nothing(folder):
    h.text_file(folder)
    run = h.cfg(folder, train={"steps": 5})
    done = subprocess.run(["sh", "-c", f'"{h.CONSOLE}" "{run}" <&- >&- 2>&-'], timeout=60 * h.SLOW)
    expect(done.returncode == 0, "exit", done.returncode)
    kinds = [j["type"] for j in h.json_lines(os.path.join(folder, "out", "journal.jsonl"))]
    expect(kinds == ["start", "checkpoint", "export", "end"], kinds)


def test_a_name_that_is_taken_is_left_alone(folder):
    h.text_file(folder)
    p = h.start(h.cfg(folder, run={"threads": 1}, train={"steps": 400}))
    h.wait_for_step(p, os.path.join(folder, "out"), 1)
    taken = os.path.join(folder, "out", "exports", "step-00000400")
    os.makedirs(taken)
    h.finish(p, 0)
    expect(os.listdir(taken) == [], "a foreign folder was touched")
    expect(os.path.exists(os.path.join(taken + "-2", "model.safetensors")), h.exports(os.path.join(folder, "out")))
    for step in ("last", "400"):               # the journal says where it is
        h.run("export", os.path.join(folder, "out"), os.path.join(folder, "o" + step), "--step", step)


def test_only_our_own_best_is_removed(folder):
    h.text_file(folder)
    out = os.path.join(folder, "out")
    p = h.start(h.cfg(folder, train={"steps": 400, "valid_every": 100, "keep_best": "yes", "learning_rate": "3e-3"}))
    h.wait_for_step(p, out, 1)
    taken = os.path.join(out, "exports", "step-00000100")
    os.makedirs(taken)
    h.write(os.path.join(taken, "mine.txt"), "precious")
    h.finish(p, 0)
    expect(os.path.exists(os.path.join(taken, "mine.txt")), "somebody's file is gone")
    best = [j["file"] for j in h.json_lines(os.path.join(out, "journal.jsonl")) if j["type"] == "export" and j["best"]]
    expect(len(best) > 1, "the loss did not improve twice", best)
    there = [b for b in best if os.path.exists(b)]
    expect(there == best[-1:], "of the best ones only the last stays", there)
    h.run("export", out, os.path.join(folder, "b"), "--step", "best")


def test_a_run_that_is_over_stays_over(folder):
    h.text_file(folder)
    run = h.cfg(folder, train={"steps": 400, "valid_every": 1, "patience": 1, "learning_rate": "1"})
    h.run(run)
    expect(h.last_step(os.path.join(folder, "out")) < 400, "patience did not end it")
    steps = h.last_step(os.path.join(folder, "out"))
    h.run(run, "--set", "steps=401")             # more are asked for: patience is asked again
    expect(h.last_step(os.path.join(folder, "out")) == steps + 1, "its patience was forgotten")
    os.remove(os.path.join(folder, "text.txt"))  # it needs its data no more
    expect("over" in h.run(run).stdout, "not over")


def test_weights_that_are_not_finite_are_never_exported(folder):
    h.text_file(folder)
    done = h.run(h.cfg(folder, train={"steps": 1, "learning_rate": "1e300", "valid_every": None}), code=6)
    expect("learning rate" in done.stderr, done.stderr)
    expect(h.exports(os.path.join(folder, "out")) == [], h.exports(os.path.join(folder, "out")))


def test_an_address_space_that_is_too_small(folder):
    h.text_file(folder)
    run = h.cfg(folder, model={"hidden": 64, "layers": 2})
    if h.SLOW > 1:
        raise h.Skip("sanitizers need all of the address space")
    for kilobytes in (180000, 200000, 220000):
        done = subprocess.run(["sh", "-c", f'ulimit -v {kilobytes}; exec "{h.TRAINER}" "{run}"'], capture_output=True, timeout=60)
        expect(done.returncode in (0, 3), kilobytes, "exit", done.returncode, done.stderr[-500:])
        shutil.rmtree(os.path.join(folder, "out"), ignore_errors=True)


def test_time_that_ends_with_the_last_step(folder):
    h.text_file(folder)
    h.run(h.cfg(folder, run={"max_time": "0.001"}, train={"steps": 1, "valid_every": None}))
    expect(len(h.metrics(os.path.join(folder, "out"), "valid")) == 1, "the validation at the end is missing")
    done = h.run(h.cfg(folder, run={"max_time": "0.001", "dir": "out2"}), code=5)
    expect("max_time" in done.stderr, done.stderr)
    expect(h.last_step(os.path.join(folder, "out2")) == 1, "it went on")


def test_a_pipe_that_closes_is_no_error_of_a_table(folder):
    p = h.start("options")
    p.stdout.close()
    p.wait(10 * h.SLOW)
    expect(p.returncode in (-signal.SIGPIPE, 0), "exit", p.returncode)


if __name__ == "__main__":
    h.main()
