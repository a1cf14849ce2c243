"""What the benchmarks of this folder print alike."""

import sys


class Absent(Exception):
    """Something that a row needs is not there; its text says what."""


def note(text):
    """Where it is: to stderr, as it goes on."""
    print("... " + text, file=sys.stderr, flush=True)


def show(header, lines, markdown):
    """A table, as Markdown or in columns."""
    if markdown:
        print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
        for line in lines:
            print("| " + " | ".join(line) + " |")
    else:
        widths = [max(len(x[i]) for x in [header] + lines) for i in range(len(header))]
        for line in [header] + lines:
            print("  ".join(x.ljust(w) for x, w in zip(line, widths)).rstrip())
    print(flush=True)
