"""Threads in parts: compute, the CPU half and the loader on cores of their own where there are four or more. Machines are made up
(HWLOC_SYNTHETIC), so that this is seen wherever tests run; what the system really does is looked at where there are four cores."""

import json
import os
import re
import subprocess

import harness as h
from harness import expect

EIGHT = {"HWLOC_SYNTHETIC": "core:8 pu:2"}
THERE = {**EIGHT, "HWLOC_THISSYSTEM": "1"}
STEPS = 14
OFFLOADING = {
    "gpu_only": {"strategy": "gpu_only"},
    "zero_offload": {"strategy": "zero_offload"},
    "zenflow": {"strategy": "zenflow", "topk_ratio": 0.25, "update_interval": 4, "select_interval": 4},
    "mean": {"strategy": "zenflow", "topk_ratio": 0.25, "update_interval": 4, "optimistic": "no", "cpu_update": "mean"},
}


def env(more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")}, **more}


def make(folder, name, zenflow, dtype="f32", threads=0, **more):
    place = os.path.join(folder, name)
    os.mkdir(place)
    h.text_file(place)
    train = {"steps": STEPS, "valid_every": 7, "micro_batch": 2}
    return h.cfg(place, run={"threads": threads}, model={"layers": 2, "dtype": dtype}, train=train, zenflow=zenflow, **more)


def train(path, machine):
    """What it said, its start line and its steps."""
    done = h.run(path, "--plain", env=env(machine), timeout=120)
    out = os.path.join(os.path.dirname(path), "out")
    return done.stdout, h.metrics(out, "start")[0], h.metrics(out, "step")


def same(a, b, what):
    for key in ("loss", "grad_norm", "clip", "d2h_bytes", "h2d_bytes", "cpu_updates", "memory_device"):
        expect([m.get(key) for m in a] == [m.get(key) for m in b], what, key, "differ")


def exported(path):
    out = os.path.join(os.path.dirname(path), "out")
    found = [os.path.join(d, f) for d, _, files in os.walk(out) for f in files if f.endswith(".safetensors")]
    expect(found, "nothing was exported in", out)
    return h.read_tensors(sorted(found)[-1])


def test_doctor(folder):
    rows = (
        ({"HWLOC_SYNTHETIC": "core:8 pu:2"}, "8 physical, 16 processors", "lanes          compute 2,4,8,10,12, CPU half 6,14, loader 0 (gpu"),
        ({"HWLOC_SYNTHETIC": "core:4 pu:1"}, "4 physical, 4 processors", "lanes          compute 1-2, CPU half 3, loader 0 (gpu_only: "),
        ({"HWLOC_SYNTHETIC": "core:3 pu:1"}, "3 physical, 3 processors", "lanes          compute 0-2, CPU half 0-2, loader 0-2 (shared: "),
    )
    for machine, cores, lanes in rows if h.SLOW == 1 else rows[1:2]:  # it measures speeds
        said = h.run("doctor", env=env(machine)).stdout
        expect(cores in said and lanes in said, machine, said)
        expect("not pinned: the topology is not this machine's" in said, said)
        half = re.search(r"(?m)^CPU Adam .*\n +([\d.]+) GB/s by the CPU half's (\d) threads?, not pinned: ", said)
        expect(bool(half) == (not cores.startswith("3")), machine, said)
        expect(not half or (float(half[1]) > 0 and half[2] == cores[0].translate({ord("8"): "2", ord("4"): "1"})), said)


def test_same_bits(folder):
    """One pool or two, of this or that many threads: the same run, the same weights, the same bytes of memory."""
    for name, zenflow in OFFLOADING.items():
        for dtype in ("f32", "bf16") if name == "zenflow" else ("f32",):
            path = make(folder, f"{name}-{dtype}-one", zenflow, dtype, 1)
            _, start, one = train(path, {"HWLOC_SYNTHETIC": "core:2 pu:1"})
            expect(start["threads"] == 1 and "cpu_half" not in start and "loader_processor" not in start, start)
            tensors = exported(path)
            for threads in (0, 5):
                path = make(folder, f"{name}-{dtype}-{threads}", zenflow, dtype, threads)
                said, start, two = train(path, EIGHT)
                same(one, two, f"{name} {dtype} {threads} threads")
                expect(exported(path) == tensors, name, dtype, threads, "the weights differ")
                busy, all = name != "gpu_only", threads or 8
                half = start["cpu_half"]
                expect(start["threads"] == (all - all // 4 - 1 if busy else all), start["threads"])
                expect(half["threads"] == all // 4 and half["idle"] != busy and not half["pinned"], half)
                expect(start["adam_gb_s"] > 0 and f"GB/s by {half['threads'] if busy else all}" in said, said)
                expect(("; the CPU half: " if busy else "; the CPU half, when it has work, takes ") in said, said)


def test_cpu_lane_is_seen(folder):
    """Of the second device, in step lines, in the profile of Adam and in a trace."""
    path = make(folder, "a", OFFLOADING["zenflow"], log={"trace_steps": "5-9"})
    _, _, steps = train(path, EIGHT)
    expect(sum(m["busy"]["cpu"] for m in steps) > 0, [m["busy"] for m in steps])
    expect(any(m.get("adam_gb_s", 0) > 0 for m in steps), "no speed of CPU Adam")
    with open(os.path.join(folder, "a", "out", "traces", "steps-00000005-00000009.json"), encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    lanes = {m["tid"]: m["args"]["name"] for m in events if m.get("name") == "thread_name"}
    work = {lanes.get(m["tid"]) for m in events if m.get("ph") == "X" and m["name"] == "serve_rows"}
    expect(work == {"cpu"}, work, lanes)


def test_live_changes(folder):
    """Strategies that need the CPU half and those that do not, in turn: threads move, results stay."""
    at = {4: "set strategy zenflow", 7: "set strategy gpu_only", 9: "set strategy zero_offload", 12: "set strategy selected_only"}
    zenflow = {**OFFLOADING["zenflow"], "strategy": "gpu_only"}
    runs = []
    for name, machine in (("one", {"HWLOC_SYNTHETIC": "core:2 pu:1"}), ("two", EIGHT)):
        path = make(folder, name, zenflow, at={k: v for k, v in at.items()})
        runs.append((train(path, machine)[2], exported(path)))
    same(runs[0][0], runs[1][0], "live changes")
    expect(runs[0][1] == runs[1][1], "the weights differ")


def pins(folder, path, machine):
    """name -> the processors its threads were to be pinned to, as the programs ask the system."""
    log = os.path.join(folder, "pins")
    if os.path.exists(log):
        os.remove(log)
    more = {"LD_PRELOAD": os.environ["ZF_AFFINITY"], "ZF_AFFINITY_LOG": log, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    _, start, _ = train(path, {**machine, **more})
    found = {}
    if os.path.exists(log):
        with open(log, encoding="utf-8") as f:
            for line in f:
                name, *processors = re.fullmatch(r"(.+?)((?: \d+)+)\n", line).groups()
                if name == "zenflow-trainer":  # it tries one, and goes back
                    continue
                expect(len(processors[0].split()) == 1, line)
                found.setdefault(name, []).append(int(processors[0]))
    return start, {name: sorted(set(where)) for name, where in found.items()}


def test_who_is_pinned_where(folder):
    """A made-up machine that passes for this one, and a system that says yes to everything."""
    start, where = pins(folder, make(folder, "a", OFFLOADING["zenflow"]), THERE)
    expect(start["pinned"] and start["placement"] == "pinned to processors 2,4,8,10,12", start["placement"])
    expect(start["cpu_half"]["placement"] == "pinned to processors 6,14" and start["loader_processor"] == 0, start)
    half = {*where["cpu"], *where["cpu worker"]}
    expect(half == {6, 14} and where["loader"] == [0], where)
    expect(where["compute"] == [2, 6], "a lane for the pool, one to measure CPU Adam with", where)
    expect({*where["compute worker"]} == {4, 8, 10, 12, 6, 14, 0}, "the last three work while nobody else needs their cores", where)
    expect({*where} == {"compute", "compute worker", "cpu", "cpu worker", "loader"}, where)

    start, _ = pins(folder, make(folder, "b", OFFLOADING["gpu_only"]), THERE)
    expect(start["placement"] == "pinned to processors 0,2,4,6,8,10,12,14" and start["cpu_half"]["idle"], start)
    for name, threads, machine in (("c", 7, THERE), ("d", 9, THERE), ("e", 3, THERE), ("f", 0, {**THERE, "HWLOC_SYNTHETIC": "core:3 pu:2"})):
        start, where = pins(folder, make(folder, name, OFFLOADING["zenflow"], threads=threads), machine)
        expect(not start["pinned"] and where == {} and "loader_processor" not in start, name, start, where)
        expect(("cpu_half" in start) == (threads > 3), name, start)


def test_a_system_that_refuses(folder):
    """Processors that are not there: a word about it, and the run goes on."""
    machine = {"HWLOC_SYNTHETIC": "core:4 pu:1(indexes=3000,3001,3002,3003)", "HWLOC_THISSYSTEM": "1"}
    _, start, steps = train(make(folder, "a", OFFLOADING["zenflow"]), machine)
    expect(not start["pinned"] and len(steps) == STEPS, start)
    expect(start["placement"] == "not pinned: the system refused" == start["cpu_half"]["placement"], start)


def allowed(pid):
    """name -> sets of processors, one a thread."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        name = re.search(r"(?m)^Name:\t(.*)", text)[1]
        ranges = re.search(r"(?m)^Cpus_allowed_list:\t(.*)", text)[1].split(",")
        cpus = {c for r in ranges for c in range(int(r.split("-")[0]), int(r.split("-")[-1]) + 1)}
        found.setdefault(name, []).append(cpus)
    return found


def test_really(folder):
    """By the system's own account: as the start line says, on this machine as it is."""
    path = make(folder, "a", OFFLOADING["zenflow"])
    p = h.start(path, "--plain", "--set", "steps=100000", stdout=subprocess.DEVNULL, env=env({}))
    out = os.path.join(folder, "a", "out")
    try:
        h.wait_for_step(p, out, 3)
        start, where = h.metrics(out, "start", whole=False)[0], allowed(p.pid)
    finally:
        p.terminate()
        p.communicate()
    expect({"compute", "cpu", "loader"} <= {*where}, where)
    one = {name: sets for name, sets in where.items() if any(len(s) == 1 for s in sets)}
    if not start["pinned"]:
        expect(len(os.sched_getaffinity(0)) == 1 or not one, start["placement"], one)
        print("not pinned here:", start["placement"])
        return
    compute = [min(s) for s in where["compute"] + where["compute worker"]]
    half = [min(s) for s in where["cpu"] + where.get("cpu worker", [])]
    expect(all(len(s) == 1 for n in ("compute", "compute worker", "cpu", "loader") for s in where[n]), where)
    expect(len({*compute}) == len(compute) and {*half} < {*compute} and where["loader"] == [{start["loader_processor"]}], where)
    expect(len(compute) - len(half) - 1 == start["threads"] and len(half) == start["cpu_half"]["threads"], where, start)


if __name__ == "__main__":
    h.main()
