"""Runs of several ranks, each a process: under mpirun, which exchanges over MPI, and as srun starts them, by the variables alone (then they
exchange over TCP). What they compute is what one rank does; how one of them ends is how all of them do."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import CONSOLE, SLOW, Skip, cfg, expect, metrics, only_export, read_tensors, run, text_file, unpack, write

MPIRUN = shutil.which("mpirun")
KEYS = ("OMPI_", "PMIX_", "PRTE_", "SLURM_")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(KEYS)}


class Ranks:
    """Processes as srun starts them. others: {rank: arguments} of those that are started differently."""

    def __init__(self, folder, ranks, *args, others=None, job="7", program=CONSOLE, env=None):
        self.out, self.p = [], []
        for r in range(ranks):
            e = {**CLEAN, **(env or {}), "SLURM_PROCID": str(r), "SLURM_NTASKS": str(ranks), "SLURM_LOCALID": str(r)}
            e |= {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "XDG_CACHE_HOME": os.path.join(folder, "cache")}
            names = [os.path.join(folder, f"{job}.{kind}.{r}") for kind in ("out", "err")]
            self.out.append(names)
            with open(names[0], "wb") as o, open(names[1], "wb") as x:
                given = (others or {}).get(r, args)
                self.p.append(subprocess.Popen([program, *map(str, given)], env=e, stdin=subprocess.DEVNULL, stdout=o, stderr=x))

    def text(self, rank, kind=1):
        with open(self.out[rank][kind], encoding="utf-8", errors="replace") as f:
            return f.read()

    def all_text(self):
        return "".join(f"--- rank {r}\n{self.text(r, 0)[-1500:]}{self.text(r)[-1500:]}" for r in range(len(self.p)))

    def end(self, code=0, seconds=60, but=()):
        """All end, with this code. but: ranks whose code does not matter."""
        until = time.monotonic() + seconds * SLOW
        for p in self.p:
            try:
                p.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                for q in self.p:
                    q.kill()
                raise AssertionError(f"a rank is still alive after {seconds} s\n{self.all_text()}") from None
        codes = [p.returncode for p in self.p]
        expect(all(c == code or r in but for r, c in enumerate(codes)), f"exit codes {codes}, not {code}\n{self.all_text()}")
        return self

    def wait_for_step(self, folder, step, seconds=60):
        until = time.monotonic() + seconds * SLOW
        while time.monotonic() < until:
            done = metrics(folder, "step", whole=False)
            if done and done[-1]["step"] >= step:
                return self
            expect(self.p[0].poll() is None, "it ended before step", step, self.all_text())
            time.sleep(0.05)
        for q in self.p:
            q.kill()
        raise AssertionError(f"step {step} was not reached\n{self.all_text()}")


def mpi(folder, ranks, *args, code=0):
    if not MPIRUN:
        raise Skip("there is no mpirun")
    e = {**CLEAN, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    e["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    return run("--bind-to", "none", "-n", ranks, CONSOLE, *args, program=MPIRUN, code=code, env=e, timeout=120)


def make(folder, **changes):
    text_file(folder)
    train = {"steps": 24, "batch_size": 6, "valid_every": 12, **changes.pop("train", {})}
    more = {"run": {"device": "host", **changes.pop("run", {})}, "train": train}
    return cfg(folder, **more, **changes)


STRATEGIES = {
    "gpu_only": {},
    "zero_offload": {},
    "zenflow_sync": {"topk_ratio": 0.2, "select_interval": 8},
    "zenflow": {"topk_ratio": 0.2, "select_interval": 8},
    "selected_only": {"topk_ratio": 0.2, "select_interval": 8},
}
MORE = {
    "stronghold": {},
    "zenflow": {"topk_ratio": 0.2, "select_interval": 8, "cpu_update": "mean", "optimistic": "no", "accumulate_on": "device"},
}


def to(folder, name):
    return ["--set", "dir=" + os.path.join(folder, name)]


def at(strategy, options, folder, name):
    out = ["--set", f"strategy={strategy}", *to(folder, name)]
    for k, v in options.items():
        out += ["--set", f"{k}={v}"]
    return out


def losses(run_dir):
    return [m["loss"] for m in metrics(run_dir, "step")] + [m["loss"] for m in metrics(run_dir, "valid")]


def same(folder, one, other, what, exact=False, loss=2e-4, weight=2e-3):
    a, b = losses(os.path.join(folder, one)), losses(os.path.join(folder, other))
    expect(len(a) == len(b) and a, what, len(a), "and", len(b), "losses")
    apart = max(abs(x - y) for x, y in zip(a, b))
    expect(apart <= (0 if exact else loss), what, "losses are apart by", apart)
    x, y = (read_tensors(os.path.join(only_export(os.path.join(folder, d)), "model.safetensors")) for d in (one, other))
    expect(x.keys() == y.keys(), what, "other tensors")
    if exact:
        expect(x == y, what, "the weights differ")
        return
    for name in x:
        far = max(abs(p - q) for p, q in zip(unpack(x[name]), unpack(y[name])))
        expect(far <= weight, what, name, "is apart by", far)


def equal(folder, strategies, counts):
    path = make(folder)
    for strategy, options in strategies.items():
        run(path, *at(strategy, options, folder, "r1"))
        for n in counts:
            Ranks(folder, n, path, "--plain", *at(strategy, options, folder, f"r{n}")).end()
            same(folder, "r1", f"r{n}", f"{strategy}, {n} ranks")
        for n in (1, *counts):
            shutil.rmtree(os.path.join(folder, f"r{n}"))


def test_ranks_are_as_one(folder):
    equal(folder, STRATEGIES, [2, 4])


def test_under_mpirun(folder):
    path = make(folder, zenflow={"strategy": "zenflow", "topk_ratio": 0.2})
    run(path, *to(folder, "r1"))
    done = mpi(folder, 2, path, "--plain", *to(folder, "r2"))
    same(folder, "r1", "r2", "under mpirun")
    expect(done.stdout.count("end: done") == 1, "rank 0 alone speaks:", done.stdout)
    expect("error" not in done.stderr, done.stderr)


def long_equal(folder):
    equal(folder, {**MORE, **STRATEGIES}, [2, 3, 4, 6])
    path = make(folder, model={"dtype": "bf16"})
    for strategy, options in STRATEGIES.items():
        run(path, *at(strategy, options, folder, "b1" + strategy))
        Ranks(folder, 3, path, "--plain", *at(strategy, options, folder, "b3" + strategy)).end()
        same(folder, "b1" + strategy, "b3" + strategy, f"{strategy}, bf16", loss=2e-2, weight=5e-2)


def test_ragged_rows(folder):
    """Steps and epochs whose rows are no multiple of the ranks; rows of different lengths; a last step with fewer rows than ranks."""
    lines = ["x" * (1 + 7 * i % 23) for i in range(21)]
    write(os.path.join(folder, "rows.jsonl"), "".join(json.dumps({"text": t}) + "\n" for t in lines))
    data = {"train": "rows.jsonl", "valid_split": 0.2, "pack": "no"}
    path = make(folder, data=data, train={"steps": None, "epochs": 2, "batch_size": 4, "valid_every": 3, "micro_batch": 1})
    run(path, *to(folder, "r1"))
    for n in (3, 4):
        Ranks(folder, n, path, "--plain", *to(folder, f"r{n}")).end()
        same(folder, "r1", f"r{n}", f"{n} ranks")
    a, b = (metrics(os.path.join(folder, d), "step") for d in ("r1", "r4"))
    for x, y in zip(a, b):
        expect(all(x[k] == y[k] for k in ("tokens", "label_tokens", "rows")), "figures are of the whole:", x, y)


def resumes(folder, strategies, counts, steps):
    path = make(folder, train={"valid_every": 0}, checkpoint={"save_every": 5, "keep": 10})
    for strategy, options in strategies.items():
        for n in counts:
            Ranks(folder, n, path, "--plain", *at(strategy, options, folder, f"w{n}")).end()
            for m in counts:
                for step in steps:
                    place = os.path.join(folder, "again")
                    shutil.rmtree(place, ignore_errors=True)
                    shutil.copytree(os.path.join(folder, f"w{n}"), place)
                    shutil.rmtree(os.path.join(place, "exports"))
                    checkpoint = f"{place}/checkpoints/step-{step:08d}.zfc"
                    Ranks(folder, m, path, "--plain", "--resume", checkpoint, *at(strategy, options, folder, "again")).end()
                    what = f"{strategy}: saved by {n} at step {step}, gone on with by {m}"
                    same(folder, f"w{n}", "again", what, exact=n == m)
        for n in counts:
            shutil.rmtree(os.path.join(folder, f"w{n}"))


def test_checkpoints_know_no_ranks(folder):
    resumes(folder, {"zenflow": STRATEGIES["zenflow"]}, [1, 2, 4], [10])


def long_resumes(folder):
    resumes(folder, {**MORE, **STRATEGIES}, [1, 2, 3, 4], [5, 10, 15])


def test_a_change_is_everybodys(folder):
    """`send` to rank 0: all ranks do the same at the same step, or their weights would not be the same bits at the next save."""
    path = make(folder, train={"steps": 100000, "valid_every": 0}, zenflow={"strategy": "zenflow", "topk_ratio": 0.2})
    out = os.path.join(folder, "out")
    ranks = Ranks(folder, 3, path, "--plain").wait_for_step(out, 5)
    for command in ("set topk_ratio 0.4", "set strategy zero_offload", "set strategy zenflow", "set update_interval 2", "select", "eval", "save",
                    "pause", "set learning_rate x0.5", "step 3", "sample Once", "score", "set norms_every 1", "resume", "undo"):
        run("send", out, "--yes", command)
    run("send", out, "pause")
    first = sorted(os.listdir(os.path.join(out, "checkpoints")))[0]
    run("send", out, "--yes", "load", first)
    run("send", out, "save again")
    run("send", out, "set norms_every 1")
    run("send", out, "resume")
    step = metrics(out, "step", whole=False)[-1]["step"]
    ranks.wait_for_step(out, step + 5)
    run("send", out, "stop")
    ranks.end(5)
    expect(any(m["option"] == "topk_ratio" for m in metrics(out, "change")), "the change is told")
    expect(metrics(out, "norms"), "norms of all ranks' gradients are told")
    run(path, "--plain", "--set", "steps=" + str(metrics(out, "step")[-1]["step"] + 3))


def test_norms_are_of_the_whole(folder):
    path = make(folder, log={"norms_every": 4}, zenflow={"strategy": "zenflow", "topk_ratio": 0.2})
    run(path, *to(folder, "r1"))
    Ranks(folder, 3, path, "--plain", *to(folder, "r3")).end()
    a, b = (metrics(os.path.join(folder, d), "norms") for d in ("r1", "r3"))
    expect(len(a) == len(b) == 6, len(a), len(b))
    for x, y in zip(a, b):
        for p, q in zip([{"norm": x["total"], "max": 0}, *x["matrices"]], [{"norm": y["total"], "max": 0}, *y["matrices"]]):
            expect(abs(p["norm"] - q["norm"]) <= 1e-3 * p["norm"] and abs(p["max"] - q["max"]) <= 1e-3 * p["max"] + 1e-9, p, q)


ENDLESS = {"steps": 1000000, "valid_every": 0}


def is_gone(pid):
    """Ended, or waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def lose(folder, victim, number, stopped=False):
    path = make(folder, train=ENDLESS, zenflow={"strategy": "zenflow", "topk_ratio": 0.2}, checkpoint={"save_every": 5})
    out = os.path.join(folder, "out")
    ranks = Ranks(folder, 3, path, "--plain").wait_for_step(out, 12)
    pid = ranks.p[victim].pid
    began = time.monotonic()
    os.kill(pid, number)
    ranks.end(7, seconds=20, but=(victim,))
    expect(time.monotonic() - began < (18 if stopped else 10) * SLOW, "it took", time.monotonic() - began, "s")
    expect(ranks.p[victim].returncode == -signal.SIGKILL, "the lost rank ended with", ranks.p[victim].returncode)
    name = f"rank {victim} (pid {pid} on host "
    for r in range(3):
        expect(r == victim or name in ranks.text(r), f"rank {r} does not name it:", ranks.text(r))
    with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as f:
        journal = [json.loads(line) for line in f]
    if victim:
        expect(any(m["rank"] == victim and name in m["text"] for m in metrics(out, "rank")), "metrics do not name it")
        expect(any(m["type"] == "rank" and m["rank"] == victim for m in journal), "the journal does not name it")
        expect(journal[-1]["type"] == "end" and journal[-1]["code"] == 7, journal[-1])
    Ranks(folder, 2, path, "--plain", "--set", f"steps={metrics(out, 'step', whole=False)[-1]['step'] + 3}", job="8").end()


def test_a_rank_is_killed(folder):
    lose(folder, 2, signal.SIGKILL)


def test_rank_0_is_killed(folder):
    lose(folder, 0, signal.SIGKILL)


def test_a_rank_is_stopped(folder):
    lose(folder, 1, signal.SIGSTOP, stopped=True)


def test_a_signal_to_any_rank(folder):
    path = make(folder, train=ENDLESS, zenflow={"strategy": "zenflow", "topk_ratio": 0.2})
    for rank in (1, 0):
        out = os.path.join(folder, f"out{rank}")
        ranks = Ranks(folder, 2, path, "--plain", *to(folder, f"out{rank}")).wait_for_step(out, 3)
        os.kill(ranks.p[rank].pid, signal.SIGTERM)
        ranks.end(5)
        last = metrics(out, "step")[-1]["step"]
        expect(metrics(out, "checkpoint")[-1]["step"] == last, "the last step is saved")
        run(path, *to(folder, f"out{rank}"), "--set", f"steps={last + 3}")
        expect(len(metrics(out, "step")) == last + 3, "it goes on")


def test_mpirun_ends(folder):
    if not MPIRUN:
        raise Skip("there is no mpirun")
    path = make(folder, train=ENDLESS)
    out = os.path.join(folder, "out")
    e = {**CLEAN, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    p = harness.start("--mca", "odls_base_sigkill_timeout", "5", "--bind-to", "none", "-n", 2, CONSOLE, path, "--plain", program=MPIRUN, env=e)
    harness.wait_for_step(p, out, 3)
    p.terminate()
    p.communicate(timeout=60 * SLOW)
    expect(metrics(out, "checkpoint")[-1]["step"] == metrics(out, "step")[-1]["step"], "the last step is saved")
    expect(metrics(out, "end")[-1]["code"] == 5, metrics(out, "end"))


def test_no_room_for_a_checkpoint(folder):
    """Rank 0 cannot write one: it says so, and all train on."""
    path = make(folder, checkpoint={"save_every": 5}, train=ENDLESS)
    out = os.path.join(folder, "out")
    places = os.path.join(out, "checkpoints")
    ranks = Ranks(folder, 2, path, "--plain").wait_for_step(out, 7)
    run("send", out, "pause")
    os.rename(places, places + ".away")
    write(places, "in the way")
    last = metrics(out, "step", whole=False)[-1]["step"]
    run("send", out, "step 10")
    ranks.wait_for_step(out, last + 10)
    run("send", out, "eval")  # when the ten steps are over
    os.unlink(places)
    os.rename(places + ".away", places)
    run("send", out, "stop")
    ranks.end(5)
    expect(any("unsaved since" in m["text"] for m in metrics(out, "warning")), "it is not told")


def test_others_are_refused(folder):
    path = make(folder)
    other = cfg(folder, "other.cfg", run={"device": "host", "dir": "out"}, train={"steps": 24, "batch_size": 6, "valid_every": 12, "learning_rate": "1e-4"})
    ranks = Ranks(folder, 3, path, "--plain", others={1: (other, "--plain")}).end(2)
    said = ranks.text(0)
    expect("rank 1 (pid" in said and "learning_rate" in said and "same run.cfg" in said, said)
    expect(not os.path.exists(os.path.join(folder, "out")), "nothing was begun")
    few = make(folder, train={"batch_size": 2})
    ranks = Ranks(folder, 3, few, "--plain").end(2)
    expect("batch_size" in ranks.text(0) and "3 ranks" in ranks.text(0), ranks.text(0))
    ranks = Ranks(folder, 2, path, "--detach").end(2)
    expect("srun" in ranks.text(0), ranks.text(0))
    bad = cfg(folder, "bad.cfg", train={"learning_rat": 1})
    ranks = Ranks(folder, 2, bad, "--plain").end(2)
    expect("learning_rate" in ranks.text(0), ranks.text(0))
    expect(not [n for n in os.listdir(folder) if "ranks-" in n], "what they found each other by is left:", os.listdir(folder))


def test_two_jobs(folder):
    path = make(folder, train=ENDLESS)
    out = os.path.join(folder, "out")
    ranks = Ranks(folder, 2, path, "--plain").wait_for_step(out, 2)
    second = Ranks(folder, 2, path, "--plain", job="8").end(8)
    expect("a trainer is at work on it" in second.text(0), second.text(0))
    expect(not second.text(1), second.text(1))
    step = metrics(out, "step", whole=False)[-1]["step"]
    ranks.wait_for_step(out, step + 2)
    run("send", out, "stop")
    ranks.end(5)
    over = Ranks(folder, 2, path, "--plain", "--set", f"steps={metrics(out, 'step')[-1]['step'] + 2}", job="9").end()
    again = Ranks(folder, 2, path, "--plain", "--set", f"steps={metrics(out, 'step')[-1]['step']}", job="10").end()
    expect("this run is over" in again.text(0, 0), over.text(0, 0), again.text(0, 0))


def test_data_is_tokenised_once(folder):
    path = make(folder, train={"steps": 2})
    Ranks(folder, 3, path, "--plain").end()
    kept = os.listdir(os.path.join(folder, "cache", "zenflow-console"))
    expect(len([n for n in kept if n.endswith(".rows")]) == 1, kept)


def test_not_finite(folder):
    """A step that is not finite is so on all ranks: skipped, or the end of all with exit code 6."""
    text_file(folder)
    path = make(folder, train={"learning_rate": "1e30", "nonfinite": "stop", "clip_norm": 0, "steps": 50})
    ranks = Ranks(folder, 2, path, "--plain").end(6)
    expect("not finite" in ranks.text(0), ranks.text(0))
    expect(not ranks.text(1), ranks.text(1))


if __name__ == "__main__":
    if sys.argv[1:] == ["long"]:
        test_ranks_long, test_resumes_long = long_equal, long_resumes
        sys.argv[1:] = ["test_ranks_long", "test_resumes_long"]
    harness.main()
