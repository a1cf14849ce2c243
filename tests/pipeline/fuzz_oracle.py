"""Random runs through the pipeline (drive.c) and through the oracle (golden/zenflow_oracle.py of ZF_SHARED), compared: losses, norms,
losses between steps, selections, weights, moments, counts of updates.

    python3 fuzz_oracle.py DRIVE [--cases N] [--seed S] [--only CASE] [--keep DIR] [--record FILE CASE..]

Needs torch and transformers, and is skipped (77) without them. Exit 1: at least one case differs; its script is printed as a file in
--keep. --record writes the cases, with the oracle's losses and norms, into a file that test_cases.c replays without Python.

Limits (golden/README.md): losses 1e-5, norms 1e-4, matrices 1e-4, vectors 5e-3, moments of matrices 1e-3 (OPT 2e-2), all relative; selections whose
gap is above 1e-5. Where one with a smaller gap falls differently the case is compared up to that step; so it is where the oracle in
float32 strays from itself as far as the trainer does: there rounding decides.
"""

import argparse
import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile

# of golden/families of ZF_SHARED, and of tests/golden/families; the tokens that each knows
SHARED = ["gpt2", "llama2", "llama31-rope", "opt-350m-like", "opt-pre-norm", "qwen2", "qwen3", "smollm2-like"]
OWN = {"gpt2-untied-hd6": 51, "llama-biases-tied": 50, "llama-linear-rope-hd6": 61, "opt-no-final-norm-hd20": 52,
       "qwen2-untied-multi-query": 57, "qwen3-tied-hd12": 58, "opt-plain-norms-f16": 53}
HERE = os.path.dirname(os.path.abspath(__file__))
RULES = {"beta1": "betas", "beta2": "betas", "epsilon": "eps", "weight_decay": "wd", "clip_norm": "clip"}


# ---- random runs ----


def ratio(r):
    return r.choice([0.0, 1.0, 1e-9, 0.004, 0.05, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 0.97, 0.999, r.random()])


def value_of(r, name):
    return {
        "strategy": lambda: r.choice(["gpu_only", "zero_offload", "stronghold", "zenflow_sync"] + 5 * ["zenflow"] + ["selected_only"]),
        "topk_ratio": lambda: ratio(r),
        "update_interval": lambda: r.choice([1, 2, 3, 4, 5, 6, 7, 8]),
        "select_interval": lambda: r.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        "swap": lambda: r.choice(["staggered", "staggered", "rolling", "global"]),
        "cpu_update": lambda: r.choice(["each", "mean"]),
        "cpu_learning_rate": lambda: r.choice(["window", "sum", "sqrt"]),
        "optimistic": lambda: r.choice(["yes", "yes", "no"]),
        "accumulate_on": lambda: r.choice(["host", "host", "device"]),
        "score": lambda: "squares",
    }[name]()


NAMES = ["strategy", "topk_ratio", "update_interval", "select_interval", "swap", "cpu_update", "cpu_learning_rate", "optimistic", "accumulate_on"]


def rule_of(r, name):
    return {
        "beta1": lambda: r.choice([0.0, 0.5, 0.8, 0.9, 0.95]),
        "beta2": lambda: r.choice([0.8, 0.9, 0.95, 0.99, 0.999]),
        "epsilon": lambda: r.choice([1e-8, 1e-8, 1e-6, 1e-3]),
        "weight_decay": lambda: r.choice([0.0, 0.01, 0.1, 1.0]),
        "clip_norm": lambda: r.choice([0.0, 0.1, 0.5, 1.0, 3.0, 100.0]),
    }[name]()


def allowed(options):
    """What core/pipeline/policy.c refuses does not come to a run."""
    o = options
    windows = o["strategy"] in ("zenflow", "zenflow_sync")
    if o["strategy"] == "selected_only" and o["topk_ratio"] == 0:
        return False
    if windows and o["accumulate_on"] == "device":
        if o["cpu_update"] == "each":
            return False
        if o["strategy"] == "zenflow" and o["swap"] == "staggered" and o["optimistic"] == "yes":
            return False
    return True


def change(r, options):
    """One command: one option, some together, the rule, or a tour."""
    while True:
        new = dict(options)
        kind = r.random()
        names = [r.choice(NAMES)] if kind < 0.5 else r.sample(NAMES, r.randint(2, 4)) if kind < 0.85 else []
        for n in names:
            new[n] = value_of(r, n)
        if r.random() < 0.15 and "strategy" not in names:
            new["topk_ratio"] = ratio(r)
        rule = {n: rule_of(r, n) for n in r.sample(list(RULES), r.randint(1, 2))} if not names or r.random() < 0.2 else {}
        if allowed(new):
            return new, {"set": {n: v for n, v in new.items() if v != options[n] or n in names}, "rule": rule}


def case(seed, own=False):
    r = random.Random(seed)
    steps, length = r.randint(12, 30), r.choice([5, 8, 12, 16])
    while True:
        options = {n: value_of(r, n) for n in NAMES + ["score"]}
        if r.random() < 0.6:
            options["strategy"] = "zenflow"
        if allowed(options):
            break
    first = dict(options)
    rule = {n: rule_of(r, n) for n in RULES} if r.random() < 0.5 else {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
    lively, unlucky = r.choice([0, 0.1, 0.3]), r.choice([0, 0, 0.1, 0.3])
    peak, cosine = r.choice([1e-4, 1e-3, 1e-3, 3e-3]), r.random() < 0.7
    all_steps = []
    for t in range(1, steps + 1):
        one = {"rate": peak * (0.5 + 0.5 * math.cos(math.pi * (t - 1) / 40)) if cosine else peak * r.choice([0.5, 1.0, 1.0, 1.0]), "before": []}
        while t > 1 and r.random() < lively:
            if r.random() < 0.15:
                one["before"].append({"do": r.choice(["drain", "settle", "reselect"])})
            else:
                options, c = change(r, options)
                one["before"].append(c)
        if r.random() < unlucky:
            one["bad"] = r.choice(["scale", "loss", "none", "matrix", "matrix", "vector"])  # the last two become a parameter's name
            one["draw"] = r.random()
        if r.random() < 0.1:
            one["validate"] = True
        all_steps.append(one)
    family = r.choice(SHARED + list(OWN))
    if own:
        family = r.choice(list(OWN))
    ids = [r.randint(3, OWN.get(family, 96) - 1) for _ in range(2 * steps * length)]
    grain = r.choice([None, [4096, 1024, 64], [1024, 1024, 64], [16384, 512, 64]])
    script = {"family": family, "ids": ids, "length": length, "threads": r.randint(1, 3), "jitter": r.choice([0, 0, r.randint(1, 999)]),
              "two": r.random() < 0.2, "recompute": r.random() < 0.2, "options": first, "rule": rule, "steps": all_steps}
    if grain:
        script["grain"] = grain
    if r.random() < 0.3:
        script["undrained"] = True
    return script


# ---- the oracle ----


class Models:
    """Each family once; every case starts from a copy of its weights."""

    def __init__(self, shared, double=True):
        self.shared, self.known, self.double = shared, {}, double

    def folder(self, family):
        if family in OWN:
            return os.path.join(HERE, "..", "golden", "families", family)
        return os.path.join(self.shared, "golden", "families", family + "-plain")

    def get(self, family):
        import torch
        from transformers import AutoModelForCausalLM

        if family not in self.known:
            self.known[family] = AutoModelForCausalLM.from_pretrained(self.folder(family), attn_implementation="eager", dtype=torch.float32).eval()
            if self.double:
                self.known[family].double()
        return copy.deepcopy(self.known[family])


def loss_of(model, ids, torch):
    return model(input_ids=ids, labels=ids).loss


def bad_loss(bad, ids, torch):
    """What spoils a step as drive.c does; `bad` a parameter's name: one element of its gradient is not finite."""
    def spoiled(model):
        if bad == "none":
            return torch.tensor(float("nan"), dtype=torch.float64, requires_grad=True) * 1.0
        loss = loss_of(model, ids, torch)
        if bad == "scale":
            return loss * float("inf")
        if bad == "loss":
            return loss + float("inf")

        def hook(g):
            g = g.clone()
            g.view(-1)[0] = float("nan")
            return g

        handles.append(dict(model.named_parameters())[bad].register_hook(hook))
        return loss

    handles = []
    return spoiled, handles


def summed_on_device(policy, options):
    """Of which the oracle knows nothing: it changes as swap does (interface.md)."""
    return options["accumulate_on"] == "device" and policy["cpu_half"] and policy["k"] < 1 and policy["S"] > 1


def run_oracle(zo, torch, models, script):
    model = models.get(script["family"])
    options, rule = dict(script["options"]), dict(script["rule"])
    rates = [s["rate"] for s in script["steps"]]
    tr = zo.Trainer(model, lr=lambda t: rates[t - 1], clip=rule["clip_norm"], betas=(rule["beta1"], rule["beta2"]), eps=rule["epsilon"],
                    wd=rule["weight_decay"], **zo.policy(options))
    batches = torch.tensor(script["ids"]).reshape(len(rates), 2, script["length"])
    steps = []
    for i, s in enumerate(script["steps"]):
        for c in s["before"]:
            if c.get("do") == "drain":
                tr.drain()
            elif c.get("do") == "reselect":
                for m in tr.mats:
                    m.selected_at = None
            elif "set" in c:
                before = summed_on_device(zo.policy(options), options)
                options.update(c["set"])
                rule.update(c["rule"])
                new = {k: v for k, v in zo.policy(options).items() if getattr(tr, k) != v}
                more = {"betas": (rule["beta1"], rule["beta2"]), "eps": rule["epsilon"], "wd": rule["weight_decay"]}
                new.update({k: v for k, v in more.items() if tr.h[k] != v})
                if tr.clip != rule["clip_norm"]:
                    new["clip"] = rule["clip_norm"]
                if summed_on_device(zo.policy(options), options) != before:
                    new["swap"] = zo.policy(options)["swap"]
                tr.set(**new)
        validation = None
        if s.get("validate"):
            with torch.no_grad():
                validation = float(loss_of(model, batches[i], torch))
        handles, fn = [], lambda m: loss_of(m, batches[i], torch)
        if s.get("bad"):
            fn, handles = bad_loss(s["bad"], batches[i], torch)
        loss, norm = tr.train_step(fn)
        for h in handles:
            h.remove()
        selected = {name: (channels, gap) for t, name, channels, gap in tr.selected_log if t == i + 1}
        steps.append({"loss": loss, "norm": norm, "validation": validation, "selected": selected})
    if not script.get("undrained"):
        tr.drain()
    with torch.no_grad():
        last = float(loss_of(model, batches[0], torch))
    after = {}
    for m in tr.mats:
        after[m.name] = (m.rows(m.param.data), m.m, m.v, m.t.tolist())
    names = {id(p): n for n, p in model.named_parameters()}
    for p, mo, vo, t in tr.vecs:
        after[names[id(p)]] = (p.data.reshape(1, -1), mo.reshape(1, -1), vo.reshape(1, -1), [t])
    return steps, after, last


# ---- comparison ----


def name_spoilt(script, models, drive_names):
    """`matrix` and `vector` become names of parameters."""
    for s in script["steps"]:
        if s.get("bad") in ("matrix", "vector"):
            some = [p["name"] for p in drive_names if p["matrix"] == (s["bad"] == "matrix")]
            s["bad"] = some[int(s["draw"] * len(some))] if some else "loss"  # a family without vectors
        s.pop("draw", None)


def run_drive(drive, script, models):
    s = dict(script, model=models.folder(script["family"]))
    done = subprocess.run([drive], input=json.dumps(s), capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError("the driver: %d: %s %s" % (done.returncode, done.stdout[-2000:], done.stderr[-2000:]))
    return json.loads(done.stdout)


def relative(a, b):
    return abs(a - b) / max(abs(b), 1e-12)


def distance(a, b):
    d, n = float((a - b).norm()), float(b.norm())
    return d / n if n > 0 else (0.0 if d == 0 else math.inf)


def but_few(a, b):
    """The distance without three elements: a first update is the sign of a mean gradient, which may cancel to rounding. A mistake is not of
    three elements."""
    d = ((a - b) ** 2).flatten()
    rest = max(float(d.sum() - d.topk(min(3, len(d))).values.sum()), 0.0)
    n = float(b.norm())
    return math.sqrt(rest) / n if n > 0 else distance(a, b)


def compare(script, ours, steps, after, weights, torch):
    """None, or what differs. The second value: steps compared."""
    worst = {"loss": 0.0, "norm": 0.0, "matrix": 0.0, "vector": 0.0, "moment": 0.0}
    for t, (a, b) in enumerate(zip(ours["steps"], steps), 1):
        bad = script["steps"][t - 1].get("bad")
        if b["validation"] is not None:
            worst["loss"] = max(worst["loss"], relative(a["validation"], b["validation"]))
            if relative(a["validation"], b["validation"]) > 1e-5:
                return "before step %d: validation %.9g, the oracle's %.9g" % (t, a["validation"], b["validation"]), t, worst
        if not bad:
            for key, limit in (("loss", 1e-5), ("norm", 1e-4)):
                worst[key] = max(worst[key], relative(a[key], b[key]))
                if relative(a[key], b[key]) > limit:
                    return "step %d: %s %.9g, the oracle's %.9g" % (t, key, a[key], b[key]), t, worst
        if set(a["selected"]) != set(b["selected"]):
            return "step %d: selected in %s, the oracle in %s" % (t, sorted(a["selected"]), sorted(b["selected"])), t, worst
        for name, (channels, gap) in b["selected"].items():
            if sorted(a["selected"][name]) != channels:
                if gap < 1e-5:
                    return None, t, worst
                return "step %d: %s selects %s, the oracle %s" % (t, name, sorted(a["selected"][name]), channels), t, worst
    at = 0
    for p in ours["parameters"]:
        n = p["rows"] * p["cols"]
        w, m, v = (torch.from_numpy(weights[at + k * n : at + (k + 1) * n].copy()).double().reshape(p["rows"], p["cols"]) for k in range(3))
        at += 3 * n
        ow, om, ov, ot = after[p["name"]]
        ow, om, ov = (x.reshape(p["rows"], p["cols"]) for x in (ow, om, ov))
        kind = "matrix" if p["matrix"] else "vector"
        far = but_few(w, ow) if p["matrix"] else distance(w, ow)
        worst[kind] = max(worst[kind], far)
        if far > (1e-4 if p["matrix"] else 5e-3):
            return "%s differs by %.3g" % (p["name"], far), len(steps), worst
        if script.get("undrained"):
            continue  # masters and moments are ahead of what is visible
        if p["t"] != ot:
            return "%s: updates %s, the oracle %s" % (p["name"], p["t"], ot), len(steps), worst
        for x, y, what in ((m, om, "m"), (v, ov, "v")):
            if not p["matrix"] or float(y.norm()) < 1e-6:
                continue
            worst["moment"] = max(worst["moment"], distance(x, y))
            if distance(x, y) > (2e-2 if "opt" in script["family"] else 1e-3):  # a relu falls to the other side for one token
                return "%s: %s differs by %.3g" % (p["name"], what, distance(x, y)), len(steps), worst
    return None, len(steps), worst


def strays(a, b):
    """The largest relative difference of losses and norms, step by step, up to each step."""
    out, most = [], 0.0
    for x, y in zip(a, b):
        for key in ("loss", "norm"):
            if x[key] is not None and y[key] is not None and math.isfinite(x[key]) and math.isfinite(y[key]):
                most = max(most, relative(x[key], y[key]) / (1 if key == "loss" else 10))
        out.append(most)
    return out


def run_case(drive, models, zo, torch, script, folder):
    import numpy

    script["out"] = os.path.join(folder, "out.%d.bin" % os.getpid())
    probe = run_drive(drive, dict(script, steps=[], out=None), models)
    name_spoilt(script, models, probe["parameters"])
    ours = run_drive(drive, script, models)
    steps, after, last = run_oracle(zo, torch, models, script)
    weights = numpy.fromfile(script["out"], dtype=numpy.float32)
    what, compared, worst = compare(script, ours, steps, after, weights, torch)
    if not what and compared == len(steps) and relative(ours["last"], last) > 1e-5:
        what = "the last loss: %.9g, the oracle's %.9g" % (ours["last"], last)
    expected = {"loss": [s["loss"] for s in steps], "norm": [s["norm"] for s in steps], "validation": [s["validation"] for s in steps], "last": last,
                "updates": {n: sum(t) for n, (_, _, _, t) in after.items()}}
    if what:
        single = run_oracle(zo, torch, Models(models.shared, double=False), script)[0]
        if strays(single, steps)[compared - 1] > 0.2 * strays(ours["steps"], steps)[compared - 1]:
            return None, compared - 1, {}, expected
    return what, compared, worst, expected


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("drive")
    arg.add_argument("--cases", type=int, default=300)
    arg.add_argument("--seed", type=int, default=1)
    arg.add_argument("--keep")
    arg.add_argument("--script", help="run this script instead of random ones")
    arg.add_argument("--record", nargs="+", metavar=("FILE", "CASE"))
    a = arg.parse_args()
    shared = os.environ.get("ZF_SHARED", "")
    try:
        import torch

        sys.path.insert(0, os.path.join(shared, "golden"))
        import transformers
        import zenflow_oracle as zo
    except ImportError as missing:
        other = os.environ.get("ZF_PYTHON")
        if other and os.path.abspath(other) != os.path.abspath(sys.executable):
            os.execv(other, [other] + sys.argv)
        print("skipped: %s (torch, transformers and the oracle of ZF_SHARED are needed)" % missing)
        return 77
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    models, failed, short, worst = Models(shared), 0, 0, {}
    folder = a.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    record = []
    seeds = [int(s) for s in a.record[1:]] if a.record else range(a.seed, a.seed + a.cases)
    for seed in ["script"] if a.script else seeds:
        script = json.load(open(a.script)) if a.script else case(seed, own=bool(a.record))
        try:
            what, compared, w, expected = run_case(a.drive, models, zo, torch, script, folder)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            what, compared, w, expected = str(error), 0, {}, None
        short += not what and compared < len(script["steps"])
        for k, x in w.items():
            worst[k] = max(worst.get(k, (0.0, 0)), (x, seed))
        if what:
            failed += 1
            kept = os.path.join(folder, "case-%s.json" % seed)
            json.dump(script, open(kept, "w"))
            print("case %s (%s): %s [%s]" % (seed, script["family"], what, kept), flush=True)
        elif a.record:
            if compared < len(script["steps"]):
                raise SystemExit("case %s can be compared in part only" % seed)
            script.pop("out")
            for key in ("loss", "norm", "validation"):
                expected[key] = [x if x is not None and math.isfinite(x) else None for x in expected[key]]
            record.append({"case": seed, **script, "expected": expected})
    print("%d cases, %d differ, %d compared in part; worst %s" % (1 if a.script else len(seeds), failed, short, worst))
    if a.record:
        with open(a.record[0], "w") as f:
            f.write("[\n%s\n]\n" % ",\n".join(json.dumps(c, separators=(",", ":")) for c in record))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
