"""Every model folder there are right answers for, and the folders that must be refused."""

import glob
import json
import os
import shutil

import harness as h
from harness import expect


def verify_all(place, *more):
    folders = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(place, "*", "golden.safetensors")))
    if not folders:
        raise h.Skip(f"no {place}")
    bad = []
    for one in folders:
        done = h.run("verify", one, os.path.join(one, "golden.safetensors"), "--losses", *more, code=None)
        if done.returncode != 0:
            bad.append(f"{os.path.basename(one)}: exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-500:]}")
    expect(not bad, f"{len(bad)} of {len(folders)}:\n" + "\n".join(bad))


def test_verify_our_families(folder):
    expect(len(glob.glob(os.path.join(h.FAMILIES, "*", "golden.safetensors"))) == 15, "families are missing")
    verify_all(h.FAMILIES)
    verify_all(h.FAMILIES, "--dtype", "bf16")


def test_verify_shared_families(folder):
    if not h.SHARED or not os.path.isdir(h.SHARED):
        raise h.Skip("ZF_SHARED names no folder")
    for dtype in ("f32", "bf16"):
        verify_all(os.path.join(h.SHARED, "golden", "families"), "--dtype", dtype)


def test_verify_sees_a_difference(folder):
    model = h.copy_model(folder, "qwen2-untied-multi-query")
    golden = os.path.join(model, "golden.safetensors")
    expect(h.run("verify", model, golden, "--tolerance", "1e-6", code=1).stdout, "no table")
    tensors = h.read_tensors(golden)
    name = "grad.model.layers.0.mlp.down_proj.weight"
    values = list(h.unpack(tensors[name]))
    values[7] += 0.01 * sum(v * v for v in values) ** 0.5
    tensors[name] = (*tensors[name][:2], h.pack("F32", values))
    done = h.run("verify", model, h.write_tensors(golden, tensors), code=1)
    expect("down_proj" in done.stdout, "the tensor that differs is not in the table", done.stdout)
    other = os.path.join(h.FAMILIES, "gpt2-bare-names", "golden.safetensors")
    h.run("verify", model, other, code=(1, 4))


def broken(folder, name, change, *words, code=4):
    """check and verify a copy of a good model after change(model folder); the message has to contain one of words."""
    place = os.path.join(folder, name)
    os.mkdir(place)
    model = h.copy_model(place, "qwen2-untied-multi-query")
    change(model)
    golden = os.path.join(h.FAMILIES, "qwen2-untied-multi-query", "golden.safetensors")
    h.token_file(os.path.join(place, "rows.safetensors"), 8, 16, 57)
    path = h.cfg(
        place, base={"run": {"dir": "out"}, "model": {"path": "model"}, "data": {"train": "rows.safetensors"}, "train": {"steps": 1}}
    )
    for asked in (("check", path), (path, "--plain"), ("verify", model, golden)):
        done = h.run(*asked, code=code)
        expect(any(w.lower() in done.stderr.lower() for w in words), f"{name}: none of {words} in: {done.stderr}")
    expect(not os.path.exists(os.path.join(place, "out")), name, "left a run directory behind")


def shard(model, number=1):
    return os.path.join(model, f"model-{number:05d}-of-00003.safetensors")


def edit_json(path, changes):
    with open(path) as f:
        value = json.load(f)
    h.write(path, json.dumps({**value, **changes}))


def test_broken_files(folder):
    digest = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    lfs = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 12345\n"
    broken(folder, "lfs", lambda m: h.write(shard(m), lfs), "LFS")
    broken(folder, "html", lambda m: h.write(shard(m), "<!DOCTYPE html>\n<html><body>Not found</body></html>\n" * 9), "HTML")
    broken(folder, "empty", lambda m: h.write(shard(m), ""), "empty", "0 bytes", "short", "truncated")
    broken(folder, "truncated", lambda m: os.truncate(shard(m, 2), os.path.getsize(shard(m, 2)) - 100), "truncated", "100 bytes")
    broken(folder, "missing", lambda m: os.remove(shard(m, 3)), "model-00003-of-00003.safetensors")
    broken(folder, "no config", lambda m: os.remove(os.path.join(m, "config.json")), "config.json")


def test_a_pickle_is_refused(folder):
    def only_pickle(model):
        for name in glob.glob(os.path.join(model, "model*")):
            os.remove(name)
        with open(os.path.join(model, "pytorch_model.bin"), "wb") as f:
            f.write(b"PK\x03\x04" + bytes(100))

    broken(folder, "pickle", only_pickle, "pickle", "pytorch_model.bin")


def test_missing_and_wrong_tensors(folder):
    def lost(model):
        path = shard(model)
        tensors = h.read_tensors(path)
        tensors.pop(sorted(tensors)[0])
        h.write_tensors(path, tensors)

    broken(folder, "tensor", lost, "tensor")

    def wrong(model):
        path = shard(model)
        tensors = h.read_tensors(path)
        name = max(tensors, key=lambda n: len(tensors[n][1]))
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, [shape[0] * shape[1]], data)
        h.write_tensors(path, tensors)

    broken(folder, "shape", wrong, "shape", "expected")


def test_refused_by_name(folder):
    def config(**changes):
        return lambda model: edit_json(os.path.join(model, "config.json"), changes)

    broken(folder, "family", config(model_type="mamba", architectures=["MambaForCausalLM"]), "mamba")
    broken(folder, "rope", config(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}), "yarn")
    broken(folder, "theta", config(rope_parameters={"rope_type": "default"}), "theta")
    broken(folder, "window", config(use_sliding_window=True, max_window_layers=0, layer_types=["sliding_attention"] * 2), "sliding")
    broken(folder, "activation", config(hidden_act="swoosh"), "swoosh")
    broken(folder, "json", lambda m: h.write(os.path.join(m, "config.json"), '{"model_type": "qwen2",'), "config.json")


def test_safetensors_fixtures(folder):
    place = os.path.join(h.SHARED, "data", "fixtures", "safetensors")
    if not h.SHARED or not os.path.isdir(place):
        raise h.Skip(f"no {place}")
    with open(os.path.join(place, "index.json")) as f:
        cases = json.load(f)["cases"]
    for case in cases:
        h.run("inspect", os.path.join(place, case["file"]), code=0 if case["expect"] == "ok" else 4)


def test_stories260k_trains_as_torch_does(folder):
    model = os.path.join(h.SHARED, "data", "models", "stories260K-hf")
    if not h.SHARED or not os.path.isdir(model):
        raise h.Skip(f"no {model}")
    golden = os.path.join(h.SOURCE, "tests", "golden", "stories260k")
    for name in ("run.cfg", "tokens.safetensors"):
        shutil.copy(os.path.join(golden, name), folder)
    with open(os.path.join(golden, "losses.json")) as f:
        want = json.load(f)
    # with sanitizers, and in bf16, only the first part of the same schedule
    for dtype, steps, limit in (("f32", 100 if h.SLOW == 1 else 10, 1e-3), ("bf16", 20 if h.SLOW == 1 else 5, 1e-2)):
        out = os.path.join(folder, dtype)
        changes = (f"path={model}", f"dir={out}", f"dtype={dtype}", f"steps={steps}", "schedule_steps=100")
        h.run(os.path.join(folder, "run.cfg"), "--plain", *(word for c in changes for word in ("--set", c)), timeout=240)
        got = h.metrics(out, "step")
        expect(len(got) == steps, "steps", len(got))
        worst = max(abs(m["loss"] - w) / w for m, w in zip(got, want["losses"]))
        print(f"{dtype}: losses differ by at most {worst:.1e} relative")
        expect(worst <= limit, f"{dtype}: losses differ by {worst:.2e} relative")


if __name__ == "__main__":
    h.main()
