"""The frames in README.md are what the console draws: `python3 tests/tui/readme_frames.py BUILD` compares, `--write` puts them there.

A frame stands between `<!-- frame: COLSxROWS STEP -->` and `<!-- frame: end -->`, as a block of text. The run is make_run.py's.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "..", "..", "README.md")


def main():
    build, write = sys.argv[1], "--write" in sys.argv
    with open(README, encoding="utf-8") as f:
        old = f.read()
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "sky")
        subprocess.run([sys.executable, os.path.join(HERE, "make_run.py"), run, "--steps", "600"], check=True, stdout=subprocess.DEVNULL)

        def frame(match):
            size, step = match[1], match[2]
            command = [os.path.join(build, "zenflow-console"), "replay", run, "--snapshot", size, "--at-step", step]
            text = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout.decode()
            lines = "".join(("    " + line).rstrip() + "\n" for line in text.split("\n")).rstrip()
            return f"<!-- frame: {size} {step} -->\n\n{lines}\n\n<!-- frame: end -->"

        new, found = re.subn(r"<!-- frame: (\d+x\d+) (\d+) -->\n.*?<!-- frame: end -->", frame, old, flags=re.S)
    if not found:
        sys.exit("README.md has no frames")
    if write:
        with open(README, "w", encoding="utf-8") as f:
            f.write(new)
    elif new != old:
        sys.exit("README.md shows other frames than the console draws; put them right with tests/tui/readme_frames.py BUILD --write")
    print(f"{found} frames")


main()
