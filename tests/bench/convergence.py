"""What the rules do to training: stories260K on tinyshakespeare, this trainer beside the oracle (the policy space executed plainly by PyTorch).

    python3 tests/bench/convergence.py BUILD MODEL TEXT [--reference FILE.tsv] [--oracle ORACLE.py --python PYTHON] [--rates 1.2e-3,4e-3]
        [--seeds 0,1,2] [--dtypes f32,bf16] [--rules exact,default] [--results FILE] [--markdown]

MODEL: stories260K as a Hugging Face folder. TEXT: tinyshakespeare. The first 90 % of its characters are tokenised whole and cut into rows of
256, whose order comes from the seed; the rest is validated on. 120 steps of 16 rows, 12 of warm-up, cosine to 10 %, betas 0.9 0.999, no
decay, clip 1, k 0.1, R 16, S 4.

--reference: runs of the oracle (tab-separated: rule, seed, rate, validation; golden/README.md); how its rows were ordered and what it was
validated on is not known, so what is compared with it is how far a rule stays behind exact at its rate. --oracle: runs it here, in f32, on
the same rows at the same rates of each step, for the first seed. --results keeps what has been done and goes on from there. Exit code 1: a
rule does not land where the oracle does, or the default not where exact does. Standard library only, but for the oracle's own process.
"""
import argparse
import itertools
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

from report import note, show

STEPS, BATCH, LENGTH, WARMUP = 120, 16, 256, 12
WITHIN, DEFAULT_WITHIN = 0.03, 0.02

ZENFLOW = {"strategy": "zenflow", "topk_ratio": "0.1", "update_interval": "4", "select_interval": "16"}
RULES = {  # what a user types; what the oracle calls it; its names in the reference
    "exact": ({"strategy": "gpu_only"}, {"k": 1.0, "S": 1, "R": 0, "swap": "none"}, ("gpu_only", "exact")),
    "published": (
        {**ZENFLOW, "swap": "global", "cpu_update": "mean", "cpu_learning_rate": "window"},
        {"k": 0.1, "S": 4, "R": 16, "swap": "global", "cpu_update": "mean", "lr_cpu": "window"},
        ("k0.1-S4-global-window", "published-S4"),
    ),
    "staggered sqrt": (
        {**ZENFLOW, "swap": "staggered", "cpu_update": "mean", "cpu_learning_rate": "sqrt", "optimistic": "no"},
        {"k": 0.1, "S": 4, "R": 16, "swap": "staggered", "cpu_update": "mean", "lr_cpu": "sqrt"},
        ("k0.1-S4-staggered-sqrt",),
    ),
    "default": (
        ZENFLOW,
        {"k": 0.1, "S": 4, "R": 16, "swap": "staggered", "cpu_update": "each", "lr_cpu": "sqrt", "optimistic": 1},
        (".1:4:each:*", "optimistic-each-S4"),
    ),
}

TORCH = r"""
import json, sys, torch
from transformers import AutoModelForCausalLM
job = json.load(open(sys.argv[1]))
sys.path.insert(0, job["oracle_folder"])
import importlib
oracle = importlib.import_module(job["oracle_name"])
model = AutoModelForCausalLM.from_pretrained(job["model"], attn_implementation="eager").float().eval()
rows, valid = (torch.tensor(job[k]) for k in ("train", "valid"))
trainer = oracle.Trainer(model, lr=lambda t: job["rates"][t - 1], betas=(0.9, 0.999), wd=0.0, clip=1.0, **job["policy"])
for t in range(job["steps"]):
    batch = rows[t * job["batch"]:(t + 1) * job["batch"]]
    trainer.train_step(lambda m: m(input_ids=batch, labels=batch).loss)
trainer.drain()
with torch.no_grad():
    losses = [model(input_ids=v, labels=v).loss.item() * len(v) for v in valid.split(job["batch"])]
print(sum(losses) / len(valid))
"""


def output(arguments, **more):
    p = subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, **more)
    if p.returncode:
        sys.exit(f"{' '.join(arguments[:4])}: exit {p.returncode}: {p.stderr.strip()[-400:]}")
    return p.stdout


def rows_of(a, folder):
    """Rows to train on, in the order of the text, and rows to validate on."""
    text = open(a.text, encoding="utf-8").read()
    cut, path, parts = len(text) * 9 // 10, os.path.join(folder, "text.json"), []
    for part in (text[:cut], text[cut:]):
        with open(path, "w", encoding="utf-8") as f:
            json.dump([part], f)
        ids = json.loads(output([os.path.join(a.build, "zenflow-trainer"), "tokenize", a.model, path, "--json"]).splitlines()[0])
        parts.append([ids[i:i + LENGTH] for i in range(0, len(ids) - LENGTH + 1, LENGTH)])
    if len(parts[0]) < STEPS * BATCH or not parts[1]:
        sys.exit(f"{a.text}: {len(parts[0])} rows of {LENGTH} tokens to train on; {STEPS * BATCH} are needed")
    return parts


def shuffled(rows, seed):
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    return [rows[i] for i in order[:STEPS * BATCH]]


def write_rows(path, rows):
    flat = [x for row in rows for x in row]
    header = json.dumps({"input_ids": {"dtype": "I32", "shape": [len(rows), LENGTH], "data_offsets": [0, 4 * len(flat)]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(flat)}i", *flat))


def train(a, folder, rule, dtype, rate, seed):
    """Validation after the last step, and the rate of each step."""
    name = f"{rule}-{dtype}-{rate}-{seed}".replace(" ", "_")
    cfg, out = (os.path.join(folder, name + x) for x in (".cfg", ""))
    sections = {
        "run": {"dir": out, "threads": a.threads},
        "model": {"path": os.path.abspath(a.model), "dtype": dtype},
        "data": {"train": os.path.join(folder, f"train-{seed}.safetensors"), "valid": os.path.join(folder, "valid.safetensors"), "shuffle": "no"},
        "train": {"steps": STEPS, "batch_size": BATCH, "learning_rate": rate, "min_learning_rate": rate / 10, "warmup_steps": WARMUP,
                  "schedule": "cosine", "weight_decay": 0, "beta1": 0.9, "beta2": 0.999, "clip_norm": 1},
        "zenflow": RULES[rule][0],
        "log": {"score_every": 0},
    }
    with open(cfg, "w") as f:
        for section, options in sections.items():
            f.write(f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in options.items()))
    output([os.path.join(a.build, "zenflow-trainer"), cfg, "--plain"])
    lines = [json.loads(x) for x in open(os.path.join(out, "metrics.jsonl"))]
    steps = [m for m in lines if m["type"] == "step"]
    valid = [m for m in lines if m["type"] == "valid"][-1]
    for root, _, files in os.walk(os.path.join(out, "exports")):
        for f in files:
            os.remove(os.path.join(root, f))
    return {"valid": valid["loss"], "last": statistics.mean(m["loss"] for m in steps[-10:]), "rates": [m["learning_rate"] for m in steps]}


def ask_oracle(a, folder, rule, rates, rows, valid):
    path = os.path.join(folder, "oracle.json")
    oracle = os.path.abspath(a.oracle)
    with open(path, "w") as f:
        json.dump({"oracle_folder": os.path.dirname(oracle), "oracle_name": os.path.basename(oracle)[:-3], "model": os.path.abspath(a.model),
                   "train": rows, "valid": valid, "rates": rates, "policy": RULES[rule][1], "steps": STEPS, "batch": BATCH}, f)
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": str(a.threads or os.cpu_count())}
    return {"valid": float(output([a.python, "-c", TORCH, path], env=env).split()[-1])}


def reference(path):
    """(rule, seed, rate) to validation; the runs with warm-up, of which the file has the last."""
    known = {}
    for line in open(path):
        field = line.rstrip("\n").split("\t")
        if line.startswith("#") or len(field) < 4:
            continue
        for rule, (_, _, names) in RULES.items():
            if any(field[0] == n or n.endswith("*") and field[0].startswith(n[:-1]) for n in names):
                known[rule, int(field[1]), float(field[2])] = float(field[3])
    return known


class Results:
    """One JSON object a line, as they come."""

    def __init__(self, path):
        self.path, self.known = path, {}
        if path and os.path.exists(path):
            for line in open(path):
                o = json.loads(line)
                self.known[tuple(o["key"])] = o["value"]

    def get(self, key, make):
        if key not in self.known:
            self.known[key] = make()
            note(f"{' '.join(map(str, key))}: {self.known[key]['valid']:.4f}")
            if self.path:
                with open(self.path, "a") as f:
                    f.write(json.dumps({"key": key, "value": self.known[key]}) + "\n")
        return self.known[key]


def behind(figures, key_of, seeds):
    """How far behind exact, a mean over the seeds that have both; None: there are none."""
    gaps = [figures[key_of(s)] - figures[key_of(s, "exact")] for s in seeds if key_of(s) in figures and key_of(s, "exact") in figures]
    return statistics.mean(gaps) if gaps else None


def lines_of(a, results, known):
    """The table, and whether all is as it should be."""
    ours = {k[1:]: v["valid"] for k, v in results.known.items() if k[0] == "trained"}
    oracle = {k[1:]: v["valid"] for k, v in results.known.items() if k[0] == "oracle"}
    lines, fine = [], True
    for rate in a.rates:
        for rule in a.rules:
            theirs = behind(known, lambda s, r=rule: (r, s, rate), a.seeds)
            for dtype in a.dtypes:
                here = [ours[rule, dtype, rate, s] for s in a.seeds if (rule, dtype, rate, s) in ours]
                if not here:
                    continue
                gap = behind(ours, lambda s, r=rule: (r, dtype, rate, s), a.seeds)
                same = oracle.get((rule, rate, a.seeds[0]))
                first = ours.get((rule, dtype, rate, a.seeds[0]))
                apart = first - same if same is not None and first is not None else None
                off = gap - theirs if gap is not None and theirs is not None else None
                judged = apart if apart is not None else off  # the same rows say more than other rows
                wrong = judged is not None and abs(judged) > WITHIN or rule == "default" and gap is not None and gap > DEFAULT_WITHIN
                fine = fine and not wrong
                show = lambda x, f="{:.3f}": "-" if x is None else f.format(x)
                lines.append((f"{rate:g}", rule, dtype, " ".join(f"{x:.3f}" for x in here), show(gap, "{:+.3f}"), show(theirs, "{:+.3f}"),
                              show(same), show(apart, "{:+.4f}"), "off" if wrong else "ok"))
    return lines, fine


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--reference")
    p.add_argument("--oracle")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--rates", default="1.2e-3,4e-3", type=lambda s: [float(x) for x in s.split(",")])
    p.add_argument("--seeds", default="0,1,2", type=lambda s: [int(x) for x in s.split(",")])
    p.add_argument("--dtypes", default="f32,bf16", type=lambda s: s.split(","))
    p.add_argument("--rules", default=",".join(RULES), type=lambda s: s.split(","))
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--results")
    p.add_argument("--markdown", action="store_true")
    a = p.parse_args()
    unknown = [r for r in a.rules if r not in RULES]
    if unknown:
        p.error(f"{', '.join(unknown)}: rules are {', '.join(RULES)}")
    results, known = Results(a.results), reference(a.reference) if a.reference else {}
    with tempfile.TemporaryDirectory() as folder:
        rows, valid = rows_of(a, folder)
        write_rows(os.path.join(folder, "valid.safetensors"), valid)
        for seed in a.seeds:
            write_rows(os.path.join(folder, f"train-{seed}.safetensors"), shuffled(rows, seed))
            for rate, rule, dtype in itertools.product(a.rates, a.rules, a.dtypes):
                results.get(("trained", rule, dtype, rate, seed), lambda: train(a, folder, rule, dtype, rate, seed))
        first = a.seeds[0]
        for rate, rule in itertools.product(a.rates if a.oracle else [], a.rules):
            rates = results.known["trained", rule, a.dtypes[0], rate, first]["rates"]
            results.get(("oracle", rule, rate, first), lambda: ask_oracle(a, folder, rule, rates, shuffled(rows, first), valid))
    lines, fine = lines_of(a, results, known)
    header = ("peak rate", "rule", "dtype", "validation, nats; seeds " + " ".join(map(str, a.seeds)), "behind exact", "the oracle's, elsewhere",
              "oracle on these rows", "from it", "")
    show(header, lines, a.markdown)
    return 0 if fine else 1


sys.exit(main())
