"""A GPU's memory, its figures, its loss, and giving it to others for a while, on the emulated one: what a user sees of them."""

import os
import re
import subprocess
import time

import harness as h
from harness import expect

TRAINER = os.path.join(h.BUILD, "tests", "zenflow-trainer-emulated")
EVERY = {"sequence_length": 32, "valid_split": 0}


def emulating(**more):
    return {**os.environ, **{k: str(v) for k, v in more.items()}}


def setting(folder, name="run.cfg", **changes):
    h.text_file(folder)
    sections = {"run": {"device": "cuda"}, "data": EVERY, "train": {"steps": 12, "valid_every": 0}, "zenflow": {"strategy": "zenflow", "topk_ratio": "0.25"}}
    for section, options in changes.items():
        sections.setdefault(section, {}).update(options)
    return h.cfg(folder, name, **sections), os.path.join(folder, sections["run"].get("dir", "out"))


def losses(out):
    return {line["step"]: line["loss"] for line in h.metrics(out, "step")}


def weights(out):
    with open(os.path.join(h.only_export(out), "model.safetensors"), "rb") as f:
        return f.read()


def paused(out, step, who):
    """Waits until the run waits before `step`."""
    until = time.time() + 60 * h.SLOW
    while time.time() < until and who.poll() is None:
        said = h.run("send", out, "status", code=None).stdout if os.path.isdir(out) else ""
        if "paused" in said and f"step {step} of" in said:
            return
        time.sleep(0.1)
    who.kill()
    raise AssertionError(f"never paused after step {step}: {who.communicate()}")


# ---- memory ----


def test_what_does_not_fit(folder):
    """Said before anything is written, with the parts, what is left and what others have, and something that fits, which does."""
    path, out = setting(folder, model={"hidden": 256, "ffn": 1024, "layers": 4}, train={"batch_size": 8, "micro_batch": 8})
    others = h.write(os.path.join(folder, "others"), "20")
    plan = h.run("check", path, "--json", program=TRAINER).stdout
    need = int(re.search(r'"device":\s*{.*?"total":\s*(\d+)', plan, re.S).group(1))
    mb = (need >> 20) + 21  # as much as is needed, and what the others have
    h.run("check", path, program=TRAINER, env=emulating(CUDAEMU_MEM_MB=mb, CUDAEMU_OTHERS_FILE=others))
    done = h.run(path, "--plain", program=TRAINER, env=emulating(CUDAEMU_MEM_MB=mb - 2, CUDAEMU_OTHERS_FILE=others), code=3)
    for text in ("of the memory of the GPU", "gradients", "weights", "other programs and CUDA have 20.00 MiB", "gpu memory     bytes", "does not fit"):
        expect(text in done.stderr, text, done.stderr)
    expect(not os.path.exists(out), "something was written")
    smaller = re.search(r"set micro_batch = (\d+)", done.stderr)
    expect(smaller, done.stderr)
    h.run("check", path, "--set", f"micro_batch={smaller.group(1)}", program=TRAINER, env=emulating(CUDAEMU_MEM_MB=mb - 2, CUDAEMU_OTHERS_FILE=others))
    # nor with memory_limit
    done = h.run("check", path, "--set", "memory_limit=60M", program=TRAINER, code=3)
    expect("memory_limit" in done.stderr + done.stdout, done.stderr)


def test_auto_uses_the_gpu_s_memory(folder):
    """gpu_only where its state fits the GPU, else zenflow."""
    path, _ = setting(folder, model={"hidden": 192, "ffn": 768, "layers": 2}, zenflow={"strategy": "auto", "topk_ratio": "0.05"}, train={"batch_size": 1})

    def total(strategy):
        text = h.run("check", path, "--json", "--set", f"strategy={strategy}", program=TRAINER).stdout
        return int(re.search(r'"device":\s*{.*?"total":\s*(\d+)', text, re.S).group(1))

    most, least = total("gpu_only"), total("zenflow")
    expect(least < most - (2 << 20), least, most)
    for mb, strategy in ((most // (1 << 20) + 1, "gpu_only"), (least // (1 << 20) + 1, "zenflow")):
        out = os.path.join(folder, strategy)
        h.run(path, "--set", "steps=1", "--set", "dir=" + out, program=TRAINER, env=emulating(CUDAEMU_MEM_MB=mb))
        expect(h.metrics(out, "start")[0]["strategy"] == strategy, mb, h.metrics(out, "start")[0]["strategy"])


def test_pins_that_are_refused(folder):
    """The same losses and weights; one note that says how much, and what to do."""
    path, out = setting(folder)
    h.run(path, "--plain", program=TRAINER)
    for i, most in enumerate((0, 5)):
        done = h.run(path, "--plain", "--set", "dir=" + os.path.join(folder, f"less{i}"), program=TRAINER, env=emulating(CUDAEMU_PIN_MB=most))
        less = os.path.join(folder, f"less{i}")
        expect(done.stdout.count("could not be pinned") == 1 and "ulimit -l" in done.stdout, done.stdout)
        expect(losses(less) == losses(out) and weights(less) == weights(out), most)


# ---- figures ----


def test_gpu_lines(folder):
    """Once a second, under the names of the interface; what the GPU refuses to tell is absent, and why is said."""
    path, out = setting(folder, train={"steps": 400}, run={"max_time": "3s"})
    h.run(path, "--plain", program=TRAINER, code=5, env=emulating(CUDAEMU_NVML_REFUSE="nvmlDeviceGetPowerUsage,nvmlDeviceGetPcieThroughput"))
    lines = h.metrics(out, "gpu")
    expect(len(lines) >= 2, lines)
    for line in lines:
        expect(line["index"] == 0 and line["utilization"] == 0.53 and line["temperature_c"] == 41 and line["memory_used"] > 1 << 20, line)
        expect("power_w" not in line and "pcie_rx" not in line and set(line["refused"]) == {"power_w", "pcie_rx", "pcie_tx"}, line)
        expect(line["refused"]["power_w"] == "this GPU does not tell", line)
    frame = h.run("replay", out, "--snapshot", "160x60").stdout
    expect("n/a (this GPU does not tell)" in frame and "41 C" in frame, frame)
    path, out = setting(folder, train={"steps": 2}, run={"dir": "without"})
    done = h.run(path, "--plain", program=TRAINER, env=emulating(CUDAEMU_NVML=0))
    expect("power and temperature are not shown" in done.stdout and not h.metrics(out, "gpu"), done.stdout)


def test_doctor(folder):
    said = h.run("doctor", program=TRAINER, env=emulating(CUDAEMU_NVML_REFUSE="nvmlDeviceGetMigMode,nvmlDeviceGetPowerUsage")).stdout
    for text in ("0: cudaemu sm_90, sm_90", "4.00 of 4.00 GiB free", "PCIe 4.0 x8 now", "4 NVLinks up", "power_w n/a (this GPU does not tell)", "MIG n/a", "ECC on",
                 "driver 999.99", "compute mode default", "CUDA           the driver can CUDA", "cuBLAS ", "cuBLASLt ", "NCCL ", "NVML ", "GPU copies     pinned", "memlock "):
        expect(text in said, text, said)
    said = h.run("doctor", program=TRAINER, env=emulating(CUDAEMU_DEVICES=0)).stdout
    expect("none that CUDA can use" in said and "GPU copies" not in said, said)


# ---- loss ----


def test_a_gpu_that_is_lost(folder):
    """Wherever it happens the run ends within seconds, says what to do, with its last checkpoint intact; the next start goes on from there."""
    path, out = setting(folder, checkpoint={"save_every": 4}, train={"steps": 12}, run={"dir": "whole"})
    h.run(path, "--plain", program=TRAINER)
    whole, n = os.path.join(folder, "whole"), 0
    for launch, how in ((1, "launch"), (90, "ecc"), (300, "unavailable"), (600, "launch")):
        n += 1
        place = os.path.join(folder, f"lost{n}")
        began = time.time()
        done = h.run(path, "--plain", "--set", "dir=" + place, program=TRAINER, env=emulating(CUDAEMU_LOSE_AT=launch, CUDAEMU_LOSE_WITH=how), code=7, timeout=60)
        expect("the GPU is lost to this program" in done.stderr and "nvidia-smi" in done.stderr, launch, done.stderr)
        expect(time.time() - began < 30 * h.SLOW, "it took long")
        if not os.path.exists(os.path.join(place, "journal.jsonl")):
            continue  # before the run was opened
        expect("on the GPU and cannot be saved" in done.stdout and ("next start goes on from" in done.stdout or "begins again" in done.stdout), done.stdout)
        saved = h.metrics(place, "checkpoint")
        if saved:
            expect(f"step {saved[-1]['step']}" in done.stdout, done.stdout)
        h.run(path, "--plain", "--set", "dir=" + place, program=TRAINER)
        expect(weights(place) == weights(whole), launch, how)
    expect(n == 4)


# ---- for others, for a while ----


def start_paused(path, out, at, **env):
    who = h.start(path, "--plain", program=TRAINER, env=emulating(**env), stderr=subprocess.STDOUT)
    paused(out, at - 1, who)
    return who


def test_release(folder):
    """The GPU's memory is free, the run can be asked and saved, and goes on with the same bits."""
    for i, more in enumerate(({}, {"strategy": "gpu_only"}, {"swap": "global", "optimistic": "no", "cpu_update": "mean"})):
        dtype = ("bf16", "f32")[i % 2]
        path, _ = setting(folder, run={"dir": f"whole{i}"}, zenflow=more, model={"dtype": dtype})
        h.run(path, "--plain", program=TRAINER)
        whole = os.path.join(folder, f"whole{i}")
        path, out = setting(folder, run={"dir": f"out{i}"}, zenflow=more, model={"dtype": dtype}, at={"6": "pause", "9": "pause --release-gpu"})
        who = start_paused(path, out, 6)
        said = h.run("send", out, "pause", "--release-gpu").stdout
        expect("MiB of the GPU's memory are released" in said and "which takes about" in said, said)
        expect("the GPU is released" in h.run("send", out, "status").stdout)
        time.sleep(1.2)
        expect(h.metrics(out, "gpu", whole=False)[-1]["memory_used"] < 1 << 20, h.metrics(out, "gpu", whole=False)[-1])
        for words in (("set", "topk_ratio", "0.5"), ("sample", "x"), ("export", os.path.join(folder, "no")), ("load", "last"), ("score",)):
            refused = h.run("send", out, "--yes", *words, code=1).stderr
            expect("`resume` takes it again" in refused, words, refused)
        expect("saved to" in h.run("send", out, "save").stdout)
        expect("does not know" in h.run("send", out, "pause", "--now", code=1).stderr)
        expect("the GPU is taken again" in h.run("send", out, "resume").stdout)
        paused(out, 8, who)
        h.run("send", out, "resume")
        stdout, _ = who.communicate(timeout=60 * h.SLOW)
        expect(who.returncode == 0, stdout)
        expect(losses(out) == losses(whole) and weights(out) == weights(whole), more)
        h.run("inspect", os.path.join(out, "checkpoints", "step-00000005.zfc"))  # what was saved meanwhile is a checkpoint as any other


def test_release_and_others(folder):
    """Who has taken the memory meanwhile keeps it; the run stays paused, and may try again, or end with its state saved."""
    others = h.write(os.path.join(folder, "others"), "0")
    path, out = setting(folder, at={"6": "pause --release-gpu"})
    who = start_paused(path, out, 6, CUDAEMU_OTHERS_FILE=others)
    h.write(others, "4090")
    refused = h.run("send", out, "resume", code=1).stderr
    expect("GPU refused" in refused and "stays paused" in refused, refused)
    expect("paused" in h.run("send", out, "status").stdout)
    h.write(others, "0")
    h.run("send", out, "step")
    paused(out, 6, who)
    h.run("send", out, "pause", "--release-gpu")
    h.write(others, "4090")
    h.run("send", out, "stop")
    stdout, _ = who.communicate(timeout=60 * h.SLOW)
    expect(who.returncode == 5 and b"not exported" in stdout and b"step 6 saved" in stdout, who.returncode, stdout)
    whole = setting(folder, "whole.cfg", run={"dir": "whole"})[0]
    h.run(whole, "--plain", program=TRAINER)
    h.run(path, "--plain", program=TRAINER)
    expect(weights(out) == weights(os.path.join(folder, "whole")))
    path, out = setting(folder, run={"dir": "host", "device": "host"}, at={"2": "pause --release-gpu"})
    who = start_paused(path, out, 2)
    expect("no memory of its own" in h.run("send", out, "pause", "--release-gpu", code=1).stderr)
    h.run("send", out, "resume")
    expect(who.wait(60 * h.SLOW) == 0)


h.main()
