"""A terminal for tests: tmux with a socket, a home and a configuration of its own. What a person would see is polled for, never slept for."""

import os
import shlex
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import harness as h  # noqa: E402


class Terminal:
    count = 0

    def __init__(self, folder, *args, size=(100, 30), program=None, **env):
        Terminal.count += 1
        self.folder = folder
        self.name = f"zf-{os.getpid()}-{Terminal.count}"
        self.pid_file = os.path.join(folder, self.name + ".pid")
        clean = {k: v for k, v in os.environ.items() if k.startswith(("PATH", "ASAN", "UBSAN", "LSAN"))}
        clean.update(HOME=folder, LC_ALL="C.UTF-8", SHELL="/bin/sh", TERM="xterm-256color", TMUX_TMPDIR=folder)
        self.env = clean
        inner = " ".join(f"{k}={shlex.quote(v)}" for k, v in {"TERM": "tmux-256color", **env}.items())
        words = " ".join(shlex.quote(str(w)) for w in (program or h.CONSOLE, *args))
        script = f"trap : INT; cd {shlex.quote(folder)}; {inner} sh -c 'echo $$ >{self.pid_file}; exec \"$@\"' sh {words}; echo \"exit=$?\"; exec cat"
        # the last line of a pane that is too small would scroll away: its exit is kept in a file, too
        script = script.replace('echo "exit=$?"', f'c=$?; echo $c >{self.pid_file}.exit; echo "exit=$c"')
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "sh", "-c", script)
        self.tmux("set-option", "-g", "status", "off", ";", "set-option", "-g", "escape-time", "0", ";", "set-option", "-g", "window-size", "manual")

    def tmux(self, *args, check=True):
        done = subprocess.run(["tmux", "-L", self.name, *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30 * h.SLOW)
        if check and done.returncode:
            raise AssertionError(f"tmux {args}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server", check=False)

    def text(self, styles=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if styles else []))

    def lines(self):
        return self.text().split("\n")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", "--", text)

    def answer(self, key, question):
        """Once it has been read: a key that comes sooner was not meant for it."""
        self.wait(question)
        time.sleep(0.7)
        self.keys(key)

    def command(self, text):
        """At the prompt, which is open already or not."""
        if not any(line.startswith("zf>") for line in self.lines()[-4:]):
            self.type(":")
            self.wait("zf>")
        self.type(text)
        self.keys("Enter")

    def resize(self, cols, rows):
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def wait(self, wanted, seconds=20, gone=False):
        """Until the text, or one for which the function is true, is there; that text."""
        found = wanted if callable(wanted) else lambda text: (wanted in text) != gone
        until = time.monotonic() + seconds * h.SLOW
        while True:
            text = self.text()
            if found(text):
                return text
            if time.monotonic() > until:
                raise AssertionError(f"not seen within {seconds * h.SLOW} s: {wanted!r}{' (gone)' if gone else ''}\n{text}")
            time.sleep(0.03)

    @property
    def pid(self):
        with open(self.pid_file, encoding="ascii") as f:
            return int(f.read())

    def exit(self, seconds=20):
        path = self.pid_file + ".exit"
        wait(lambda: os.path.exists(path) and open(path, encoding="ascii").read().strip(), seconds)
        with open(path, encoding="ascii") as f:
            return int(f.read())

    def ended(self):
        return os.path.exists(self.pid_file + ".exit")


def wait(condition, seconds=20, what=""):
    until = time.monotonic() + seconds * h.SLOW
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds * h.SLOW} s: {what}")
        time.sleep(0.03)
