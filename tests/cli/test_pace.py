"""update_interval = auto: it moves by what the lanes do, within its limits, and what it decides is written down and can be repeated."""

import os
import resource
import threading
import time

import harness as h
from harness import expect

# a step of many tokens and few weights: the CPU half needs a fraction of the device's time, so nothing need be late
QUICK = {
    "data": {"sequence_length": 128, "valid_split": None},
    "model": {"hidden": 48, "ffn": 96, "context": 128},
    "train": {"steps": 90, "batch_size": 4, "learning_rate": "1e-3", "valid_every": 0},
    "log": {"plain_every": "0s"},
}


def changes(out):
    return [j for j in h.json_lines(os.path.join(out, "journal.jsonl")) if j["type"] == "change"]


def until(true, tell):
    end = time.monotonic() + 60 * h.SLOW
    while not true():
        expect(time.monotonic() < end, "in vain:", tell())
        time.sleep(0.05)


def train(folder, name, at=None, **zenflow):
    path = h.cfg(folder, name + ".cfg", **{**QUICK, "run": {"dir": name}}, zenflow={"strategy": "zenflow", **zenflow}, **({"at": at} if at else {}))
    done = h.run(path, "--plain", timeout=120)
    return os.path.join(folder, name), done.stdout


def weights(out):
    with open(os.path.join(h.only_export(out), "model.safetensors"), "rb") as f:
        return f.read()


def test_auto_decides_and_its_journal_repeats_it(folder):
    h.text_file(folder)
    out, said = train(folder, "auto", update_interval="auto")
    found = changes(out)
    expect(found, "no decision in 90 steps")
    expect(found[0]["changes"][0]["old"] == 4, found[0])
    expect(found[-1]["changes"][0]["new"] == 1, found)
    for entry in found:
        expect(entry["by"] == "auto" and entry["from_step"] == entry["step"] + 1, entry)
        why = entry["why"]
        expect(why["steps"] >= 8 and why["compute_ms"] > why["cpu_ms"] > 0 and 0 < why["share"] < 0.7, why)
    told = h.metrics(out, "change")
    expect([(m["from_step"], m["new"], m["by"]) for m in told] == [(e["from_step"], e["changes"][0]["new"], "auto") for e in found], told)
    expect("update_interval 4 -> " in said and "(auto)" in said, said[-500:])
    at = {str(e["from_step"]): e["command"] for e in found}
    again, _ = train(folder, "again", at=at, update_interval=4)
    expect(h.losses(again) == h.losses(out), "other losses when its journal is given as [at]")
    expect(weights(again) == weights(out), "other weights")


def test_auto_stays_within_its_limits_and_can_be_switched_live(folder):
    """Begins at most at max_update_interval; a lower limit counts at once; `set update_interval auto` begins anew."""
    h.text_file(folder)
    out, _ = train(folder, "low", update_interval="auto", max_update_interval=2,
                   at={"3": "set update_interval 16", "10": "set! update_interval auto max_update_interval 16", "12": "set max_update_interval 3"})
    found = [(e["by"], [(c["option"], c["old"], c["new"]) for c in e["changes"]], e["from_step"]) for e in changes(out)]
    expect(found[0][0] == "at" and found[0][2] == 3, found)
    expect(("auto", [("update_interval", 4, 3)], 12) in found, found)
    expect(all(c[2] <= 3 for by, cs, _ in found if by == "auto" for c in cs), found)
    with open(os.path.join(out, "run.cfg"), encoding="utf-8") as f:
        expect("update_interval = auto" in f.read(), "the option itself was changed")


def test_auto_without_a_journal_stays(folder):
    """What cannot be written down is not done, and said once; later it is."""
    h.text_file(folder)
    path = h.cfg(folder, **{**QUICK, "run": {"dir": "out"}, "train": {**QUICK["train"], "steps": 5000}},
                 zenflow={"strategy": "zenflow", "update_interval": "auto"})
    p = h.start(path, "--plain")
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(p.stdout), daemon=True)
    reader.start()
    out, said = os.path.join(folder, "out"), lambda: b"".join(lines).decode()
    h.wait_for_step(p, out, 1)
    size = os.path.getsize(os.path.join(out, "journal.jsonl"))
    hard = resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))[1]
    until(lambda: "update_interval = auto stays at 4" in said(), said)
    expect(not changes(out), "decided without a journal")
    resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    until(lambda: changes(out), said)
    expect(said().count("stays at 4") == 1, said())
    h.run("send", out, "stop")
    expect(p.wait(timeout=60 * h.SLOW) == 5, "exit", p.returncode, p.stderr.read())
    reader.join(timeout=10)
    p.stdout.close()
    p.stderr.close()


if __name__ == "__main__":
    h.main()
