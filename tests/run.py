"""Builds and tests in three ways; see run.sh. Counts single tests where a program reports them in cmocka's words, else programs.

A program that crashes, hangs or is missing from the log is a failure, whatever it printed before.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

CORES = len(os.sched_getaffinity(0))
SAN = {
    "ASAN_OPTIONS": "detect_leaks=1:halt_on_error=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
SANITIZED = ["-Db_lundef=false", "-Doptimization=1", "-Dgpu_arch=90"]  # what nvcc makes is the same in each build, and never run
# What has threads of its own, or streams: of each suite a folder under tests/, or a test's name. The emulated device has a thread for each
# of a block, so that most kernels take minutes here; their order is the same in all tests, and cudaemu has those that look for it.
THREADED = {
    "quick": {"base", "kernels", "train-threads", "pipeline schedules", "pipeline state"},
    "cuda": {"cudaemu", "cuda_comm", "cuda_gradients"},
}
# Whole steps on the emulated device are minutes here, and read and write what the kernels' own tests do; a terminal's are those of tests/tui.
CHECKED = {"cuda": {"cudaemu", "kernels", "cuda_memory"}, "but": {"console"}}
# What the host's tests of the same names do, once more on the emulated device: with `long`, or by `meson test --suite cuda`.
SHORT = {"but": {"cuda pipeline " + name for name in ("invariants", "state", "trajectories", "schedules", "adamw")}}
# name, meson options, factor on time limits, which of a suite's tests run (none said: all), and which do not
BUILDS = [
    ("plain", ["-Dwerror=true"], 1, SHORT),
    ("asan", ["-Db_sanitize=address,undefined"] + SANITIZED, 4, CHECKED),
    ("tsan", ["-Db_sanitize=thread"] + SANITIZED, 8, THREADED),
]
GOOD, SKIPPED = {"OK", "EXPECTEDFAIL"}, {"SKIP"}


def command(words, env=None):
    done = subprocess.run(
        words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    return done.returncode, done.stdout


def tail(text, lines=60):
    return "\n".join(text.rstrip().splitlines()[-lines:])


def listed(text, word):
    """cmocka's own sums, over all groups of a program."""
    return sum(int(n) for n in re.findall(r"^\[  %s *\] (\d+) test" % word, text, re.M))


def count(entry):
    """passed, failed, skipped of one program"""
    text = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
    passed, failed, skipped = listed(text, "PASSED"), listed(text, "FAILED"), listed(text, "SKIPPED")
    if entry["result"] in SKIPPED and not passed + failed + skipped:
        return 0, 0, 1
    if entry["result"] in GOOD | SKIPPED:
        return (passed, 0, skipped) if passed + skipped else (1, 0, 0)
    if not passed:  # it died before its own sum
        passed = len(re.findall(r"^\[       OK \]", text, re.M))
    return passed, max(failed, 1), skipped


def setup(name, options, suites, which):
    folder = "build-" + name
    print(f"{name}: building ...", flush=True)
    words = ["meson", "setup", folder] + options
    if os.path.exists(os.path.join(folder, "build.ninja")):
        words.append("--reconfigure")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    for step in (lambda: words, lambda: ["ninja", "-C", folder] + (needed(folder, suites, which) if name != "plain" else [])):
        step = step()
        code, text = command(step)
        if code:
            print(f"{name}: '{' '.join(step)}' failed ({code}):\n{tail(text)}", flush=True)
            return None
    return folder


def introspect(folder, what):
    code, text = command(["meson", "introspect", "--" + what, folder])
    if code:
        raise SystemExit(f"meson introspect failed: {tail(text)}")
    return json.loads(text)


def needed(folder, suites, which):
    """The files that those tests are made of: all the others need not be built."""
    files = {t["id"]: [os.path.relpath(f, os.path.abspath(folder)) for f in t["filename"]] for t in introspect(folder, "targets")}
    names = {n for s in suites for n in chosen(folder, s, which)}
    return sorted({f for t in introspect(folder, "tests") if t["name"] in names for i in t["depends"] for f in files.get(i, [])})


def chosen(folder, suite, which):
    out = []
    which, but = which.get(suite), which.get("but", set())
    for test in introspect(folder, "tests"):
        in_suite = any(s == suite or s.endswith(":" + suite) for s in test["suite"])
        places = {test["name"]} | {os.path.basename(os.path.dirname(word)) for word in test["cmd"] if "/" in word}
        if in_suite and test["name"] not in but and (which is None or which & places):
            out.append(test["name"])
    return out


def run(name, folder, suite, factor, which):
    began = time.monotonic()
    names = chosen(folder, suite, which)
    log = os.path.join(folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.remove(log)
    total, entries = [0, 0, 0], {}
    if names:
        print(f"{name}: testing, {len(names)} programs of the {suite} suite ...", flush=True)
        env = {**os.environ, **SAN}
        words = ["meson", "test", "-C", folder, "--no-rebuild", "--num-processes", str(CORES), "--timeout-multiplier", str(factor)]
        if name == "tsan" and command(["setarch", "-R", "true"])[0] == 0:
            words = ["setarch", "-R"] + words  # its shadow memory does not fit the address layout that newer kernels randomise
        code, text = command(words + ["--suite", suite] + names, env)
        if os.path.exists(log):
            with open(log, errors="replace") as f:
                entries = {e["name"].split(" / ")[-1]: e for e in map(json.loads, f)}
        else:
            print(f"{name}: meson test failed ({code}):\n{tail(text)}", flush=True)
    for test in names:
        entry = entries.get(test)
        sums = count(entry) if entry else (0, 1, 0)
        total = [a + b for a, b in zip(total, sums)]
        if sums[1]:
            print(f"--- {name}: {test}: {entry['result'] if entry else 'did not run'}", flush=True)
            if entry:
                print(tail((entry.get("stdout") or "") + (entry.get("stderr") or "")), flush=True)
    if (not names and suite != "cuda") or (suite == "quick" and "kernels_ops" not in names):  # no cmocka: a green run without the unit tests would be a lie
        print(f"{name}: the unit tests are missing; is cmocka installed?", flush=True)
        total[1] += 1
    report(f"{name} {suite}", total, time.monotonic() - began)
    return total


def report(what, total, seconds):
    print(f"{what}: {total[0]} passed, {total[1]} failed, {total[2]} skipped ({seconds:.0f} s)", flush=True)


def main():
    suites = ["quick", "cuda"] + [s for s in sys.argv[1:] if s == "long"]
    if set(sys.argv[1:]) - {"quick", "long"}:
        raise SystemExit("usage: tests/run.sh [long]")
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # under nohup, in the background of a script: tests are about them
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)
    total = [0, 0, 0]
    for name, options, factor, which in BUILDS:
        theirs = [s for s in suites if s != "long" or name == "plain"]
        which = {} if "long" in theirs else which
        folder = setup(name, options, theirs, which)
        parts = [[0, 1, 0]] if folder is None else [run(name, folder, s, factor, which) for s in theirs]
        for part in parts:
            total = [a + b for a, b in zip(total, part)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
