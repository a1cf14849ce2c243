"""What the command-line tests share: running the programs, small runs, safetensors in plain Python, and a
runner that reports in cmocka's words.

A test file defines functions test_* and ends with harness.main(). Each function gets a fresh directory. Everything below sees only what
a user sees: arguments, files, exit codes, signals.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ["ZF_BUILD"]
SOURCE = os.environ["ZF_SOURCE"]
SHARED = os.environ.get("ZF_SHARED", "")
CONSOLE = os.path.join(BUILD, "zenflow-console")
TRAINER = os.path.join(BUILD, "zenflow-trainer")
FAMILIES = os.path.join(SOURCE, "tests", "golden", "families")
SLOW = float(os.environ.get("ZF_SLOW", "1"))  # how much slower than a plain build this one may be
FEWER = SLOW > 1  # under a sanitizer: each kind of case, but not each of its kind, which the plain build has
TEXT = os.path.join(SOURCE, "configs", "data", "shakespeare.txt")


class Skip(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in what))


def start(*args, program=CONSOLE, **more):
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([program, *map(str, args)], **{**streams, **more})


def run(*args, code=0, program=CONSOLE, timeout=60, **more):
    """Runs to the end; stdout and stderr as text. code: the exit status that is right, or several, or None for any."""
    p = start(*args, program=program, **more)
    try:
        out, err = p.communicate(timeout=timeout * SLOW)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        raise AssertionError(f"{args}: still running after {timeout * SLOW} s") from None
    done = subprocess.CompletedProcess(p.args, p.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace"))
    wanted = code if isinstance(code, tuple) else (code,)
    expect(
        code is None or p.returncode in wanted,
        f"{args}: exit {p.returncode}, not {code}\nstdout: {done.stdout[-3000:]}\nstderr: {done.stderr[-3000:]}",
    )
    return done


def peak(*args, code=0):
    """Megabytes of memory that a command takes at most, and what it says on stderr."""
    p = start(*args, stdout=subprocess.DEVNULL)
    err = p.stderr.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    p.stderr.close()
    expect(p.returncode == code, args, "exit", p.returncode, err.decode(errors="replace")[-2000:])
    return usage.ru_maxrss / 1024, err.decode(errors="replace")


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def text_file(folder, size=20000, name="text.txt"):
    with open(TEXT, encoding="utf-8") as f:
        return write(os.path.join(folder, name), f.read(size))


TINY = {
    "run": {"dir": "out", "seed": 3, "threads": 1},
    "model": {"family": "llama", "layers": 1, "hidden": 32, "heads": 2, "ffn": 64, "context": 32, "tokenizer": "bytes", "dtype": "f32"},
    "data": {"train": "text.txt", "sequence_length": 32, "valid_split": 0.1},
    "train": {"steps": 40, "batch_size": 4, "learning_rate": "1e-2", "valid_every": 20},
}


def cfg(folder, name="run.cfg", base=TINY, **changes):
    """A run.cfg of TINY with changes given as section={"option": value}; None takes an option out."""
    sections = {s: dict(o) for s, o in base.items()}
    for section, options in changes.items():
        sections.setdefault(section, {}).update(options)
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{k} = {v}" for k, v in options.items() if v is not None]
    return write(os.path.join(folder, name), "\n".join(lines) + "\n")


FROM_FOLDER = {"family": None, "layers": None, "hidden": None, "heads": None, "ffn": None, "context": None, "tokenizer": None}


def no_constant(word):
    raise AssertionError(f"{word} is not JSON")


def json_lines(path, whole=True):
    """Every line as an object; a last line still being written is left out unless whole."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    lines = text.split("\n")
    expect(not whole or lines[-1] == "", path, "does not end with a newline")
    return [json.loads(line, parse_constant=no_constant) for line in lines[:-1]]


def metrics(folder, kind=None, whole=True):
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    return [m for m in json_lines(path, whole) if kind is None or m["type"] == kind]


def losses(folder):
    return [m["loss"] for m in metrics(folder, "step")]


def wait_for_step(p, folder, step, seconds=60):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        done = metrics(folder, "step", whole=False)
        if done and done[-1]["step"] >= step:
            return
        if p.poll() is not None:
            raise AssertionError(
                f"ended ({p.returncode}) before step {step}: {p.stderr.read().decode(errors='replace') if p.stderr else ''}"
            )
        time.sleep(0.02)
    p.kill()
    raise AssertionError(f"step {step} not reached in {seconds * SLOW} s")


def finish(p, code, seconds=30):
    try:
        p.wait(seconds * SLOW)
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError(f"still alive after {seconds * SLOW} s") from None
    expect(
        p.returncode == code,
        f"exit {p.returncode}, not {code}",
        p.stderr.read().decode(errors="replace")[-2000:] if p.stderr and not p.stderr.closed else "",
    )


DTYPES = {"F32": ("f", 4), "I64": ("q", 8), "I32": ("i", 4), "F64": ("d", 8)}


def read_tensors(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in header.items()}


def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return path


def pack(dtype, values):
    return struct.pack(f"<{len(values)}{DTYPES[dtype][0]}", *values)


def unpack(tensor):
    dtype, _, data = tensor
    letter, size = DTYPES[dtype]
    return struct.unpack(f"<{len(data) // size}{letter}", data)


def token_file(path, rows, length, vocab, labels=None):
    """Rows of ids from a fixed recurrence; labels: a function of (row, position, id)."""
    x, ids = 12345, []
    for _ in range(rows * length):
        x = (x * 1103515245 + 12345) % (1 << 31)
        ids.append(3 + (x >> 16) % (vocab - 3))
    tensors = {"input_ids": ("I32", [rows, length], pack("I32", ids))}
    if labels:
        tensors["labels"] = ("I64", [rows, length], pack("I64", [labels(i // length, i % length, ids[i]) for i in range(rows * length)]))
    return write_tensors(path, tensors)


def copy_model(folder, name, to="model"):
    return shutil.copytree(os.path.join(FAMILIES, name), os.path.join(folder, to))


def exports(folder):
    place = os.path.join(folder, "exports")
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def only_export(folder):
    found = exports(folder)
    expect(len(found) == 1, "one export was expected, found", found)
    return os.path.join(folder, "exports", found[0])


def last_step(folder):
    return metrics(folder, "step", whole=False)[-1]["step"]


def kill_what_is_left(folder):
    """A test that failed half-way may leave a run behind, detached: it would train for ever."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if folder.encode() in f.read() and int(pid) != os.getpid():
                    os.kill(int(pid), 9)
        except OSError:
            pass


def main():
    module = sys.modules["__main__"]
    tests = [(n, f) for n, f in vars(module).items() if n.startswith("test_") and (len(sys.argv) < 2 or n in sys.argv[1:])]
    passed, failed, skipped = [], [], []
    print(f"[==========] Running {len(tests)} test(s).", flush=True)
    for name, function in tests:
        print(f"[ RUN      ] {name}", flush=True)
        folder = tempfile.mkdtemp(prefix="zf-cli-")
        began = time.monotonic()
        try:
            function(folder)
            passed.append(name)
            print(f"[       OK ] {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Skip as e:
            skipped.append(name)
            print(f"skipped: {e}", flush=True)
        except Exception:
            failed.append(name)
            traceback.print_exc(file=sys.stdout)
            print(f"[  FAILED  ] {name}", flush=True)
        finally:
            kill_what_is_left(folder)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"[  PASSED  ] {len(passed)} test(s).")
    for word, names in (("SKIPPED ", skipped), ("FAILED  ", failed)):
        if names:
            print(f"[  {word}] {len(names)} test(s), listed below:")
            print("\n".join(f"[  {word}] {n}" for n in names))
    sys.exit(1 if failed else 77 if skipped and not passed else 0)
