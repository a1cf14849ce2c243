"""Random runs (those of fuzz_oracle.py, on models of tests/golden/families), each under two schedules: one thread, each piece of work done as
it is issued, pieces of the usual size; and several threads, lanes held up, small pieces, layers computed again. All losses, selections,
weights and moments must be the same bits. In fp32 and bf16, with fp32 and bf16 on the bus, both scores, rounding by chance and to nearest.

    python3 fuzz_schedules.py DRIVE [--cases N] [--seed S]

Python's standard library only. Exit 1: at least one case differs; its scripts are kept beside the message.
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

import fuzz_oracle


def run(drive, script):
    done = subprocess.run([drive], input=json.dumps(script), capture_output=True, text=True, timeout=300)
    if done.returncode:
        return "exit %d: %s" % (done.returncode, (done.stdout + done.stderr)[-800:])
    with open(script["out"], "rb") as f:
        return done.stdout, f.read()


def two_ways(seed, folder):
    r = random.Random(seed + 1000003)
    one = fuzz_oracle.case(seed, own=True)
    one["model"] = fuzz_oracle.Models("").folder(one["family"])
    one["bf16"] = r.random() < 0.5
    one["stochastic"] = r.random() < 0.5
    one["options"].update(bus_dtype=r.choice(["auto", "f32", "bf16"]), score=r.choice(["squares", "l1"]))
    for s in one["steps"]:
        if s.get("bad") in ("matrix", "vector"):
            s["bad"] = r.choice(["loss", "scale"])
    other = copy.deepcopy(one)
    one.update(synchronous=True, threads=1, jitter=0, recompute=False, out=os.path.join(folder, "one"))
    one.pop("grain", None)
    other.update(threads=r.randint(1, 4), jitter=r.randint(1, 1 << 30), recompute=r.random() < 0.3, out=os.path.join(folder, "other"))
    other["grain"] = r.choice([[1024, 512, 64], [512, 512, 64], [2048, 512, 64], [4096, 1024, 64]])
    return one, other


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("drive")
    arg.add_argument("--cases", type=int, default=300)
    arg.add_argument("--seed", type=int, default=1)
    a = arg.parse_args()
    folder, failed = tempfile.mkdtemp(), 0
    for seed in range(a.seed, a.seed + a.cases):
        scripts = two_ways(seed, folder)
        results = [run(a.drive, s) for s in scripts]
        if results[0] == results[1] and isinstance(results[0], tuple):
            continue
        failed += 1
        kept = os.path.join(folder, "case-%d.json" % seed)
        with open(kept, "w") as f:
            json.dump(scripts, f)
        what = [x for x in results if isinstance(x, str)] or "not the same bits"
        print("case %d (%s): %s [%s]" % (seed, scripts[0]["family"], what, kept), flush=True)
    print("%d cases, %d differ" % (a.cases, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
