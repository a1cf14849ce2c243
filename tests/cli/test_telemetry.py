"""What a run tells of itself under every strategy: lines whose figures follow from shapes and options, traces, TensorBoard, the summary."""

import glob
import json
import math
import os
import socket
import struct
import subprocess
import sys

import harness as h
from harness import expect

STEPS, S, K = 14, 4, 0.25
POLICIES = {
    "gpu_only": {},
    "zero_offload": {},
    "stronghold": {},
    "zenflow_sync": {"topk_ratio": K, "update_interval": S, "select_interval": 4},
    "selected_only": {"topk_ratio": K, "select_interval": 4},
    "zenflow": {"topk_ratio": K, "update_interval": S, "select_interval": 4},
    "zenflow plain": {"topk_ratio": K, "update_interval": S, "select_interval": 0, "optimistic": "no"},
    "zenflow rolling": {"topk_ratio": K, "update_interval": S, "select_interval": 0, "swap": "rolling", "cpu_update": "mean"},
    "zenflow global": {"topk_ratio": K, "update_interval": S, "select_interval": 0, "swap": "global"},
}


def train(folder, name, log=None):
    h.text_file(folder)
    path = h.cfg(
        folder,
        model={"layers": 2},
        data={"valid_split": 0.1},
        train={"steps": STEPS, "valid_every": 7, "micro_batch": 2},
        zenflow={"strategy": name.split()[0], **POLICIES[name]},
        log={"score_every": 5, "norms_every": 7, "log_channels": "yes", "plain_every": "0s", **(log or {})},
    )
    done = h.run(path, "--plain")
    out = os.path.join(folder, "out")
    return out, done.stdout, h.metrics(out)


def of(lines, kind):
    return [m for m in lines if m["type"] == kind]


def quota(n):
    return max(1, math.floor(K * n + 0.5))


def owned(name, matrix):
    """Channels of a matrix that the device half owns."""
    fixed = {"gpu_only": matrix["channels"], "zero_offload": 0, "stronghold": 0}
    return fixed.get(name, quota(matrix["channels"]))


def offloads(name):
    return name not in ("gpu_only", "selected_only")


def windows(matrices):
    """Where in a round each matrix is served."""
    total, before, out = sum(m["channels"] * m["length"] for m in matrices), 0, []
    for m in matrices:
        own = m["channels"] * m["length"]
        out.append((S * before // total, -(-S * (before + own) // total)))
        before += own
    return out


def bytes_up(name, matrices):
    """Bytes that go up in each step, by the clock of windows: what is due at the end of a step goes up then, or before the next forward if
    nothing takes its place before."""
    rows = [(m["channels"] - owned(name, m)) * m["length"] * 4 for m in matrices]
    up = [0] * (STEPS + 2)
    if not offloads(name):
        return up[1 : STEPS + 1]
    late = name.startswith("zenflow ") or name == "stronghold"
    interval = S if "zenflow" in name else 1
    for bytes_, (start, end) in zip(rows, windows(matrices)):
        pending = None
        for t in range(1, STEPS + 1):
            delay, at = {"zenflow plain": (end - start, start), "zenflow rolling": (end, 0), "zenflow global": (interval, 0)}.get(name, (0, 0))
            ends = t % interval == at % interval
            if ends and not delay:
                up[t + 1 if late else t] += bytes_
            if pending == t:
                up[t if ends else t + 1] += bytes_
                pending = None
            if ends and delay:
                pending = t + delay
    return up[1 : STEPS + 1]


def check_steps(name, lines):
    matrices, steps = lines[0]["matrices"], of(lines, "step")
    spans = windows(matrices)
    interval = S if "zenflow" in name else 1
    widest = max(end - start for start, end in spans)
    bound = {"zenflow": interval + widest, "zenflow plain": interval + widest, "zenflow rolling": 2 * S, "zenflow global": 2 * S}.get(
        name, interval
    )
    down = sum((m["channels"] - owned(name, m)) * m["length"] * 4 for m in matrices) if offloads(name) else 0
    up = bytes_up(name, matrices)
    groups = len({start for start, _ in spans}) if interval > 1 else 1
    expect([m["step"] for m in steps] == list(range(1, STEPS + 1)), name, "steps")
    for m in steps:
        t = m["step"]
        expect(set(m["busy"]) == {"compute", "d2h", "h2d", "cpu"} and all(0 <= x <= 1 for x in m["busy"].values()), name, "busy", m["busy"])
        expect(0 < m["compute_ms"] and m["stall_ms"] >= 0, name, "times", m)
        expect(m["stall_ms"] == 0 or offloads(name), name, "stalls", m)
        expect(m["d2h_bytes"] == down, name, "step", t, "d2h_bytes", m["d2h_bytes"], "not", down)
        if name not in ("zenflow", "zenflow_sync"):
            expect(m["h2d_bytes"] == up[t - 1], name, "step", t, "h2d_bytes", m["h2d_bytes"], "not", up[t - 1])
        expect(len(m["groups"]) == (groups if offloads(name) else 0), name, "groups", m["groups"])
        for g in m["groups"]:
            expect(1 <= g["staleness"] <= bound, name, "step", t, "staleness above", bound, g)
            expect(g["phase"] in ("ACC", "UP", "UPLOAD") and t <= g["due"] <= t + bound, name, "step", t, g)
            expect(g["phase"] == "UPLOAD" or g["due"] > t, name, "step", t, g)
            expect(g["fill"] * interval == int(g["fill"] * interval) and 0 <= g["fill"] < 1, name, "fill", g)
        expect((m["busy"]["cpu"] > 0) <= offloads(name) and m.get("adam_gb_s", 1) > 0, name, "cpu", m)
        expect(m["memory_device"] > 0 and m["memory_host"] > 0, name, "memory", m)
    if offloads(name):
        seen = max(g["staleness"] for m in steps for g in m["groups"])
        expect(seen == bound, name, "the oldest weights were", seen, "steps old, not", bound)
        per_step = sum(m["cpu_updates"] for m in steps) / STEPS
        expect(abs(per_step * interval / len(matrices) - 1) < 0.3, name, "CPU updates", per_step)
        total, size = sum(m["h2d_bytes"] for m in steps), sum(m["channels"] * m["length"] for m in matrices) * 4
        formula = size * (1 - (0 if name in ("zero_offload", "stronghold") else K)) / interval * STEPS
        expect(name not in ("zenflow", "zenflow_sync") or 0.6 * formula < total < 1.25 * formula, name, "h2d bytes", total, "formula", formula)
    else:
        expect(all(m["cpu_updates"] == 0 and "adam_gb_s" not in m for m in steps), name, "CPU updates without a CPU half")


def check_selections(name, lines):
    matrices = {m["name"]: m for m in lines[0]["matrices"]}
    selects, last = of(lines, "select"), {}
    expect(bool(selects) == (name.startswith("zenflow") or name == "selected_only"), name, "select lines", len(selects))
    every = POLICIES[name].get("select_interval", 0)
    for line in selects:
        for m in line["matrices"]:
            n = matrices[m["name"]]["channels"]
            expect(m["selected"] == quota(n) == len(m["channels"]) == len(set(m["channels"])), name, "quota of", n, m)
            expect(m["channels"] == sorted(m["channels"]) and 0 <= m["channels"][0] and m["channels"][-1] < n, name, "channels", m)
            expect(0 < m["energy"] <= 1, name, "energy", m)
            kept, before = 0, last.get(m["name"])
            if before:
                old, new = set(before[1]), set(m["channels"])
                kept = len(old & new) / len(old | new)
                expect(every and line["step"] - before[0] >= every, name, "selected too soon", m["name"], before[0], line["step"])
            expect(abs(m["kept"] - kept) < 1e-12, name, "kept", m["kept"], "not", kept)
            last[m["name"]] = (line["step"], m["channels"])
    if selects:
        expect(selects[0]["step"] == 1 and set(last) == set(matrices), name, "the first selection is not of all")
        expect(lines[-1]["selections"] == sum(len(s["matrices"]) for s in selects), name, "selections at the end")


def check_scores(name, lines):
    matrices = {m["name"]: m for m in lines[0]["matrices"]}
    selected = {(s["step"], m["name"]): m for s in of(lines, "select") for m in s["matrices"]}
    scores = of(lines, "score")
    expect({5, 10} <= {s["step"] for s in scores}, name, "score lines", [s["step"] for s in scores])
    expect(len({s["step"] for s in scores}) == len(scores), name, "two score lines of a step")
    for line in scores:
        names = [m["name"] for m in line["matrices"]]
        wanted = set(matrices) if line["step"] % 5 == 0 else {n for t, n in selected if t == line["step"]}
        expect(set(names) == wanted, name, "scores at step", line["step"], "of", names)
        for m in line["matrices"]:
            n = matrices[m["name"]]["channels"]
            expect(len(m["bins"]) == min(64, n) and len(m["top"]) == 6, name, m)
            expect(m["top"] == sorted(m["top"]) and 0 < m["top"][0] and m["top"][5] <= 1, name, "top", m["top"])
            whole = {"gpu_only": 1, "zero_offload": 0, "stronghold": 0}
            if name in whole:
                expect(m["selected_energy"] == whole[name], name, "selected_energy", m)
            elif (line["step"], m["name"]) in selected:
                expect(abs(m["selected_energy"] - selected[line["step"], m["name"]]["energy"]) < 1e-12, name, "selected_energy", m)
    expect({(t, n) for t, n in selected} <= {(s["step"], m["name"]) for s in scores for m in s["matrices"]}, name, "selections without scores")


def check_norms(name, lines):
    norms = {m["step"]: m["grad_norm"] for m in of(lines, "step")}
    found = of(lines, "norms")
    expect([m["step"] for m in found] == [7, 14], name, "norms lines")
    for m in found:
        expect(abs(m["total"] / norms[m["step"]] - 1) < 1e-5, name, "norms of step", m["step"], m["total"], norms[m["step"]])
        expect(sum(x["norm"] ** 2 for x in m["matrices"]) <= m["total"] ** 2 * (1 + 1e-9), name, "norms of matrices")
        expect(all(0 < x["max"] <= x["norm"] for x in m["matrices"]), name, "largest elements")


def check_end(name, lines, text):
    end, steps = lines[-1], of(lines, "step")
    size = sum(m["channels"] * m["length"] for m in lines[0]["matrices"]) * 4
    bus = end["bus"]
    expect(end["type"] == "end" and end["reason"] == "done" and 0 <= end["stall"] <= 1, name, end)
    expect(bus["matrix_bytes"] == size, name, bus)
    for lane in ("d2h", "h2d"):
        expect(abs(bus[lane] - sum(m[lane + "_bytes"] for m in steps) / size / STEPS) < 1e-9, name, lane, bus)
    share = {"gpu_only": 0, "selected_only": 0, "zero_offload": 2, "stronghold": 2}.get(name, (1 - K) * (1 + 1 / S))
    expect(abs(bus["formula"] - share) < 1e-9, name, "formula", bus)
    expect("policy: " in text, name, text[-800:])
    told = f"formula {share:.4g} M" in text and "stalls: " in text
    expect(told or (name == "gpu_only" and "stalls: " not in text), name, "what is told of the bus", text[-800:])


def check_all(folder, name):
    out, text, lines = train(folder, name)
    check_steps(name, lines)
    check_selections(name, lines)
    check_scores(name, lines)
    check_norms(name, lines)
    check_end(name, lines, text)
    return [m["loss"] for m in of(lines, "step")]


def test_strategies_without_windows(folder):
    losses = {}
    for name in ("gpu_only", "zero_offload", "stronghold"):
        os.mkdir(os.path.join(folder, name))
        losses[name] = check_all(os.path.join(folder, name), name)
    expect(losses["gpu_only"] == losses["zero_offload"] == losses["stronghold"], "losses differ", losses)


def test_strategies_that_select(folder):
    for name in ("zenflow_sync", "selected_only", "zenflow"):
        os.mkdir(os.path.join(folder, name))
        check_all(os.path.join(folder, name), name)


def test_ways_to_become_visible(folder):
    for name in ("zenflow plain", "zenflow rolling", "zenflow global"):
        os.mkdir(os.path.join(folder, name))
        check_all(os.path.join(folder, name), name)


def check_trace(path, steps, strategy):
    subprocess.run([sys.executable, "-m", "json.tool", path, os.devnull], check=True)
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    expect(list(tracks.values()) == ["compute", "d2h", "h2d", "cpu"], "tracks", tracks)
    marks = {e["name"]: e["ts"] for e in events if e["ph"] == "i"}
    expect(list(marks) == [f"step {t}" for t in steps] and sorted(marks.values()) == list(marks.values()), "marks", marks)
    for tid, lane in tracks.items():
        spans = [e for e in events if e["ph"] == "X" and e["tid"] == tid]
        works = any(e["name"] != "wait" for e in spans)
        expect(works == (lane == "compute" or strategy != "gpu_only"), lane, "has", len(spans), "spans")
        for a, b in zip(spans, spans[1:]):
            expect(a["dur"] >= 0 and b["ts"] >= a["ts"] + a["dur"] - 0.002, lane, "spans overlap", a, b)
        for e in spans:
            expect((e["cat"] == "wait") == (e["name"] == "wait") == ("cname" in e), "waits are not kept apart", e)
    names = {tracks[e["tid"]]: {x["name"] for x in events if x["ph"] == "X" and x["tid"] == e["tid"]} for e in events if e["ph"] == "X"}
    expect({"matmul", "attention", "adamw_rows"} <= names["compute"], "compute", names)
    for t in steps: # each step's own work begins after its mark
        end = marks.get(f"step {t + 1}", math.inf)
        expect(any(e["ph"] == "X" and e["cat"] == "forward" and marks[f"step {t}"] <= e["ts"] < end for e in events), "step", t, "has no forward")
    if strategy == "zenflow":
        expect("serve_rows" in names["cpu"] and names["h2d"] <= {"copy", "wait"} and "copy" in names["h2d"], "lanes", names)


def test_traces(folder):
    for strategy in ("gpu_only", "zenflow"):
        here = os.path.join(folder, strategy)
        os.mkdir(here)
        out, text, _ = train(here, strategy, {"trace_steps": "5-9"})
        path = os.path.join(out, "traces", "steps-00000005-00000009.json")
        expect(path in text, "the trace is not named", text[-500:])
        check_trace(path, range(5, 10), strategy)
    h.run(os.path.join(here, "run.cfg"), "--plain", "--set", "dir=" + os.path.join(here, "last"), "--set", "trace_steps=12-99")
    check_trace(os.path.join(here, "last", "traces", "steps-00000012-00000014.json"), range(12, STEPS + 1), "zenflow")


def test_a_trace_has_a_bound(folder):
    out, text, _ = train(folder, "zenflow", {"trace_steps": "2-14", "trace_bytes": "4k"})
    note = [m["text"] for m in h.metrics(out, "note") if "traced" in m["text"]]
    expect(len(note) == 1 and note[0].startswith("steps 2 to 2 traced: ") and "cut in the last of them" in note[0], note)
    path = os.path.join(out, "traces", "steps-00000002-00000014.json")
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    marks = [e["name"] for e in events if e["ph"] == "i"]
    expect(marks == ["step 2", "cut here: trace_bytes"], marks)


def test_lanes_for_clients(folder):
    """Who listens on the socket gets busy intervals of steps, 25 times a second at most, and the traces and scores that it asks for; the file gets no lanes."""
    h.text_file(folder)
    zenflow = {"strategy": "zenflow", **POLICIES["zenflow plain"]}
    p = h.start(h.cfg(folder, train={"steps": 200000, "valid_every": 0}, zenflow=zenflow, log={"score_every": 0}), "--plain")
    out = os.path.join(folder, "out")
    h.wait_for_step(p, out, 3)
    lanes, answers, scores, note = [], {}, [], None
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30 * h.SLOW)
        s.connect(os.path.join(out, "control.sock"))
        s.sendall(b'{"id":1,"command":"trace 2"}\n{"id":2,"command":"score"}\n')
        for text in s.makefile():
            m = json.loads(text)
            if "id" in m:
                answers[m["id"]] = m
            lanes += [m] if m.get("type") == "lanes" else []
            scores += [m] if m.get("type") == "score" and m["step"] > 1 else []
            note = m if m.get("type") == "note" and "traced" in m["text"] else note
            if note and scores and len(answers) == 2 and len(lanes) >= 10:
                break
    p.terminate()
    h.finish(p, 5)
    expect(all(a["ok"] for a in answers.values()), "answers", answers)
    expect(len(scores) == 1, "score lines that were asked for", scores)
    traces = glob.glob(os.path.join(out, "traces", "*.json"))
    expect(len(traces) == 1 and traces[0] in note["text"], "traces", traces, note)
    first = int(os.path.basename(traces[0]).split("-")[1])
    check_trace(traces[0], (first, first + 1), "zenflow")
    steps = [m["step"] for m in lanes]
    expect(steps == sorted(set(steps)), "steps", steps)
    near = [(a["from"], b["from"]) for a, b in zip(lanes, lanes[1:]) if b["from"] - a["from"] < 0.039]
    expect(not near, "more often than a screen shows", near)
    for m in lanes:
        expect([x["name"] for x in m["lanes"]] == ["compute", "d2h", "h2d", "cpu"] and m["from"] < m["to"], m)
        for x in m["lanes"]:
            for kind in ("busy", "wait"):
                at = [t for piece in x[kind] for t in piece]
                expect(at == sorted(at) and len(at) <= 512 and (not at or at[-1] <= m["to"] + 0.5), x["name"], kind, at)
    expect(all(m["lanes"][0]["busy"] for m in lanes), "compute did nothing")
    expect(not h.metrics(out, "lanes"), "lanes in the file")


def test_a_trace_changes_nothing(folder):
    seen = []
    for name, log in (("a", {}), ("b", {"trace_steps": "1-14", "tensorboard": "yes", "score_every": 1, "norms_every": 1})):
        os.mkdir(os.path.join(folder, name))
        _, _, lines = train(os.path.join(folder, name), "zenflow", log)
        seen.append([(m["loss"], m["grad_norm"]) for m in of(lines, "step")])
    expect(seen[0] == seen[1], "losses differ", seen)


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def fields(data):
    """Number, value of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            b = data[at]
            at += 1
            x |= (b & 127) << shift
            shift += 7
            if b < 128:
                return x

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at : at + size]
            at += size


def events(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        for begin, length in ((at, 8), (at + 12, size)):
            c = crc32c(data[begin : begin + length])
            masked = ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
            expect(struct.unpack_from("<I", data, begin + length)[0] == masked, "checksum at", begin)
        yield dict(fields(data[at + 12 : at + 12 + size]))
        at += 16 + size


def test_tensorboard(folder):
    out, _, lines = train(folder, "zenflow", {"tensorboard": "yes"})
    files = glob.glob(os.path.join(out, "tensorboard", "events.out.tfevents.*"))
    expect(len(files) == 1, "event files", files)
    all_ = list(events(files[0]))
    expect(all_[0][3] == b"brain.Event:2", "the first event", all_[0])
    found = {}
    for e in all_[1:]:
        for _, value in fields(e[5]):
            v = dict(fields(value))
            found[v[1].decode(), e[2]] = struct.unpack("<f", v[2])[0]
    wanted = {(k, m["step"]): m[k] for m in of(lines, "step") for k in ("loss", "grad_norm", "learning_rate", "tokens_per_s")}
    wanted |= {("valid_loss", m["step"]): m["loss"] for m in of(lines, "valid")}
    expect(set(found) == set(wanted), "scalars", set(found) ^ set(wanted))
    for key, x in wanted.items():
        expect(found[key] == struct.unpack("<f", struct.pack("<f", x))[0], key, found[key], x)


if __name__ == "__main__":
    h.main()
