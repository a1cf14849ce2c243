"""What a person looks at while it trains: samples of the model's text, scores of one matrix; training does not feel either."""

import json
import os
import socket

import harness as h
from harness import expect


def train(folder, name, log, **changes):
    path = h.cfg(folder, name + ".cfg", **{**changes, "run": {"dir": name}, "train": {"steps": 24, "valid_every": 0},
                                           "zenflow": {"strategy": "zenflow", "update_interval": 3, "select_interval": 6},
                                           "log": {"plain_every": "0s", **log}})
    return os.path.join(folder, name), h.run(path, "--plain", timeout=120).stdout


def weights(out):
    with open(os.path.join(h.only_export(out), "model.safetensors"), "rb") as f:
        return f.read()


def test_samples_change_nothing_and_are_the_same_again(folder):
    h.text_file(folder)
    a, said = train(folder, "a", {"sample_every": 5, "sample_prompt": '"To be"'})
    b, _ = train(folder, "b", {})
    c, _ = train(folder, "c", {"sample_every": 5, "sample_prompt": '"To be"'})
    samples = h.metrics(a, "sample")
    expect([m["step"] for m in samples] == [5, 10, 15, 20], samples)
    for m in samples:
        expect(m["prompt"] == "To be" and m["text"].startswith("To be") and len(m["text"]) > 5, m)
    expect(samples == h.metrics(c, "sample"), "other samples the second time")
    expect(h.losses(a) == h.losses(b) and weights(a) == weights(b), "samples change the training")
    expect(said.count("sample: To be") == 4, said[-2000:])


def test_what_cannot_be_sampled_is_said(folder):
    h.text_file(folder)
    out, _ = train(folder, "empty", {"sample_every": 12})
    expect([m["prompt"] for m in h.metrics(out, "sample")] == ["", ""], "without a prompt it begins as a document does")
    out, said = train(folder, "long", {"sample_every": 12, "sample_prompt": "word " * 40})
    expect("the model's context is" in said and len(h.losses(out)) == 24, said[-2000:])


def test_commands(folder):
    """`sample` and `watch` on a live run: an answer, a line, scores of every channel."""
    h.text_file(folder)
    path = h.cfg(folder, run={"dir": "out"}, train={"steps": 100000, "valid_every": 0}, log={"score_every": 0},
                 zenflow={"strategy": "zenflow", "update_interval": 2, "select_interval": 0})
    p, out = h.start(path, "--plain", stdout=-3), os.path.join(folder, "out")
    h.wait_for_step(p, out, 3)
    said = h.run("send", out, "sample", "O Romeo").stdout
    expect(said.startswith("O Romeo"), said)
    expect(any(m["prompt"] == "O Romeo" and said.startswith(m["text"][:20]) for m in h.metrics(out, "sample", whole=False)), "no line")
    name = h.metrics(out, "start", whole=False)[0]["matrices"][1]
    done = h.run("send", out, "watch", name["name"][:-2], code=1)
    expect("did you mean " + name["name"] in done.stderr + done.stdout, done)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30 * h.SLOW)
        s.connect(os.path.join(out, "control.sock"))
        s.sendall(json.dumps({"id": 1, "command": "watch " + name["name"]}).encode() + b'\n{"id":2,"command":"score"}\n')
        for line in s.makefile():
            m = json.loads(line)
            if m.get("type") == "watch":
                break
    expect(m["name"] == name["name"] and len(m["scores"]) == name["channels"], m)
    expect(all(x >= 0 for x in m["scores"]) and max(m["scores"]) > 0, m)
    expect(sorted(set(m["selected"])) == m["selected"] and 0 < len(m["selected"]) < name["channels"], m)
    two_watch(out, [m["name"] for m in h.metrics(out, "start", whole=False)[0]["matrices"]])
    expect("watch" not in open(os.path.join(out, "journal.jsonl"), encoding="utf-8").read(), "watching is written down")
    h.run("send", out, "stop")
    h.finish(p, 5)


def client(out):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30 * h.SLOW)
    s.connect(os.path.join(out, "control.sock"))
    return s, s.makefile()


def ask(s, lines, *commands):
    """The commands one after the other; the names of the `watch` lines since, up to the last answer."""
    seen, last = [], None
    for n, command in enumerate(commands, 100):
        s.sendall(json.dumps({"id": n, "command": command}).encode() + b"\n")
        for line in lines:
            m = json.loads(line)
            if m.get("type") == "watch":
                seen.append(m["name"])
            if m.get("id") == n:
                expect(m["ok"], m)
                last = m["text"]
                break
    return seen, last


def told(s, lines):
    """The names of the matrices that the next score comes with."""
    ask(s, lines, "score")
    seen, step = set(), None
    for line in lines:
        m = json.loads(line)
        if m.get("type") == "watch":
            seen.add(m["name"])
        if m.get("type") == "score":
            return seen


def two_watch(out, names):
    """Each client has a matrix of its own, which ends with it: nothing is told in full for nobody."""
    (a, a_lines), (b, b_lines) = client(out), client(out)
    ask(a, a_lines, "watch " + names[0])
    ask(b, b_lines, "watch " + names[1])
    expect(told(a, a_lines) == {names[0], names[1]}, "two consoles on different matrices")
    ask(b, b_lines, "watch none")
    expect(told(a, a_lines) == {names[0]}, "one goes back, the other has its matrix still")
    ask(b, b_lines, "watch " + names[0])
    a.close(), a_lines.close()
    expect(told(b, b_lines) == {names[0]}, "both the same, one leaves")
    ask(b, b_lines, "watch " + names[2])
    expect(told(b, b_lines) == {names[2]}, "another one instead")
    b.close(), b_lines.close()
    c, c_lines = client(out)
    expect(told(c, c_lines) == set(), "nobody watches")
    c.close(), c_lines.close()


if __name__ == "__main__":
    h.main()
