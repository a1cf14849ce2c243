"""What the console costs, and how quickly it answers, against the goals of this project.

    python3 tests/bench/console.py BUILD [--seconds 20] [--only WORDS] [--markdown]

A trainer of a small model with all threads, consoles of 200x50 on terminals that only count bytes. Processor time is getrusage's; a key's time is from
the write to the terminal until the letter comes back. Linux, standard library only. BUILD is a directory that meson has set up.
"""
import argparse
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

from report import Absent, note, show

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
COLS, ROWS = 200, 50
CFG = """[run]
dir = out
threads = {threads}
[model]
family = llama
layers = {layers}
hidden = {hidden}
heads = 4
ffn = {ffn}
vocab = 256
context = 128
tokenizer = bytes
[data]
train = {text}
sequence_length = {tokens}
[train]
steps = 10000000
batch_size = {batch}
learning_rate = 1e-3
schedule = constant
[zenflow]
strategy = zenflow
topk_ratio = 0.1
update_interval = 4
"""
FAST = {"layers": 1, "hidden": 32, "ffn": 64, "tokens": 16, "batch": 1}  # as many lines a second as it can
USUAL = {"layers": 4, "hidden": 256, "ffn": 512, "tokens": 128, "batch": 8}  # some ten steps a second


def cpu_of(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def cpu_of_all(pid):
    """Of all its threads."""
    return sum(int(open(f"/proc/{pid}/task/{t}/schedstat", encoding="ascii").read().split()[0]) / 1e9 for t in os.listdir(f"/proc/{pid}/task"))


class Screen:
    """A console on a terminal that is read as quickly as it can be, and counted."""

    def __init__(self, program, folder, *args):
        self.bytes, self.tail = 0, b""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8", HOME=folder)
            os.execv(program, [program, *args])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLS, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def read(self, seconds, until=None):
        """For so long, or until the text has come; when it had."""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], rest)[0]:
                break
            try:
                got = os.read(self.fd, 1 << 16)
            except OSError:
                raise Absent("the console has ended: " + self.tail[-300:].decode(errors="replace")) from None
            self.bytes += len(got)
            self.tail = (self.tail + got)[-1 << 18 :]
            if until and until in self.tail:
                return time.monotonic()
        if until:
            raise Absent(f"{until!r} was not seen")
        return None

    def key(self, text, wanted):
        """Seconds until `wanted` comes."""
        self.read(0.01)
        self.tail = b""
        begin = time.monotonic()
        os.write(self.fd, text)
        return self.read(5, wanted) - begin

    def close(self):
        os.kill(self.pid, signal.SIGHUP)
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.wait4(self.pid, 0)[2]


class Bench:
    def __init__(self, args):
        self.args = args
        self.console = os.path.join(os.path.abspath(args.build), "zenflow-console")
        self.rows = []
        self.folder = tempfile.mkdtemp(prefix="zf-console-")

    def row(self, figure, goal, value, limit, form="{:.1f}", how=""):
        ok = value <= limit
        self.rows.append((figure, goal, form.format(value), "ok" if ok else "short", how))

    def trainer(self, shape):
        """A run in the background."""
        run = tempfile.mkdtemp(dir=self.folder)
        text = os.path.abspath(os.path.join(SOURCE, "configs", "data", "shakespeare.txt"))
        with open(os.path.join(run, "run.cfg"), "w", encoding="utf-8") as f:
            f.write(CFG.format(threads=os.cpu_count(), text=text, **shape))
        subprocess.run([self.console, "run.cfg", "--detach"], cwd=run, check=True, stdout=subprocess.DEVNULL)
        time.sleep(2)
        with open(os.path.join(run, "out", "lock"), encoding="utf-8") as f:
            return run, json.load(f)["pid"]

    def stop(self, run):
        subprocess.run([self.console, "send", "out", "stop", "--yes"], cwd=run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def rate(self, run, seconds, more=lambda: time.sleep(0.05)):
        """Steps a second meanwhile."""
        def step():
            with open(os.path.join(run, "out", "metrics.jsonl"), "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 20000))
                steps = [x for x in f.read().split(b"\n")[1:-1] if x.startswith(b'{"type":"step"')]
            return json.loads(steps[-1])["step"]

        first, begin = step(), time.monotonic()
        while time.monotonic() - begin < seconds:
            more()
        return (step() - first) / (time.monotonic() - begin)

    def watch(self, name, shape):
        run, pid = self.trainer(shape)
        seconds = self.args.seconds
        try:
            note(f"{name}: without a console, and with one, in turn")
            spent = {False: [], True: []}
            bytes_, cpu, rates, keys = 0, 0, [], []
            for _ in range(2):
                for seen in (False, True):
                    screen = Screen(self.console, run, "attach", "out") if seen else None
                    if screen:
                        screen.read(3)
                    before, mine, sent = cpu_of_all(pid), cpu_of(screen.pid) if screen else 0, screen.bytes if screen else 0
                    rate = self.rate(run, seconds, (lambda s=screen: s.read(0.05)) if screen else lambda: time.sleep(0.05))
                    spent[seen].append((cpu_of_all(pid) - before) / seconds / rate)
                    if not screen:
                        continue
                    rates.append(rate)
                    cpu = max(cpu, (cpu_of(screen.pid) - mine) / seconds)
                    bytes_ = max(bytes_, (screen.bytes - sent) / seconds)
                    screen.key(b":", b"zf>")
                    keys += [screen.key(bytes([c]), bytes([c])) for c in b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"]
                    screen.close()
            how = f"{statistics.mean(rates):.0f} steps/s"
            self.row(f"{name}: bytes to a terminal of {COLS}x{ROWS}", "<= 30 kB/s", bytes_ / 1000, 30, "{:.1f} kB/s", how)
            self.row(f"{name}: processor time of the console", "<= 2 % of a core", 100 * cpu, 2, "{:.2f} %", how)
            self.row(f"{name}: a key to the screen, of 104 the slowest", "<= 50 ms", 1000 * max(keys), 50, "{:.0f} ms",
                     f"median {1000 * statistics.median(keys):.1f} ms")
            more = min(spent[True]) / min(spent[False]) - 1
            self.row(f"{name}: processor time of a step with a console", "<= 1 % more", 100 * more, 1, "{:+.2f} %",
                     f"{1000 * min(spent[False]):.2f} ms alone")
        finally:
            self.stop(run)

    def history(self):
        """A run of a day, and one of a million steps."""
        maker = os.path.join(SOURCE, "tests", "tui", "make_run.py")
        day, long = os.path.join(self.folder, "day"), os.path.join(self.folder, "long")
        note("writing a day of steps, a million steps")
        subprocess.run([sys.executable, maker, day, "--steps", "86400", "--rate", "1"], check=True)
        subprocess.run([sys.executable, maker, long, "--steps", "1000000", "--rate", "1000", "--score-every", "64", "--layers", "4"], check=True)
        for name, run, goal in (("a day of a step a second", day, 1), ("a million steps", long, None)):
            begin = time.monotonic()
            pid = os.spawnv(os.P_NOWAIT, self.console, [self.console, "replay", run, "--snapshot", f"{COLS}x{ROWS}"])
            used = os.wait4(pid, 0)[2]
            took, size = time.monotonic() - begin, os.path.getsize(os.path.join(run, "metrics.jsonl")) / 1e6
            self.row(f"{name}: the whole history in a frame", f"<= {goal} s" if goal else "", took, goal or 1e9, "{:.2f} s", f"{size:.0f} MB")
            self.row(f"{name}: memory of the console", "<= 64 MB", used.ru_maxrss / 1024, 64, "{:.0f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", choices=("usual", "fast", "history"))
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    b = Bench(args)
    rows = {"usual": lambda: b.watch("usual", USUAL), "fast": lambda: b.watch("fast", FAST), "history": b.history}
    try:
        for name, body in rows.items():
            if args.only in (None, name):
                body()
    except Absent as e:
        print(e, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(b.folder, ignore_errors=True)
    show(("figure", "goal", "here", "", "how"), b.rows, args.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
