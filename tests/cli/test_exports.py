"""Exports, seen from outside: what was not trained comes out as it went in, and transformers computes with the rest what this program does.
ZF_PYTHON names a Python that has torch and transformers (default: this one)."""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness as h
from harness import expect

PYTHON = os.environ.get("ZF_PYTHON", sys.executable)
COMPANIONS = ("special_tokens_map.json", "generation_config.json", "chat_template.jinja", "chat_template.json", "merges.txt", "vocab.txt",
              "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "added_tokens.json")
DTYPES = {"F32": ("f32", "float32"), "BF16": ("bf16", "bfloat16"), "F16": ("f16", "float16")}


def model_tensors(folder):
    """Of all shards: name -> (dtype, shape, bytes)."""
    files = sorted(n for n in os.listdir(folder) if n.startswith("model") and n.endswith(".safetensors"))
    expect(files, folder, "has no model")
    return {k: v for n in files for k, v in h.read_tensors(os.path.join(folder, n)).items()}


def read(*parts):
    with open(os.path.join(*parts), "rb") as f:
        return f.read()


def vocabulary(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        return json.load(f)["vocab_size"]


def golden_model(folder, name):
    """One of the small models of tests/golden, with files beside it that nobody may change; and rows of ids."""
    place = os.path.join(folder, name)
    os.mkdir(place)
    model = h.copy_model(place, name)
    for i, file in enumerate(COMPANIONS):
        h.write(os.path.join(model, file), f'{{ "any" :\t{i}.0 }}\r\n')
    os.remove(os.path.join(model, "golden.safetensors"))
    h.token_file(os.path.join(place, "rows.safetensors"), 8, 16, vocabulary(model))
    return place, model


def rows_run(place, **changes):
    data = {"train": "rows.safetensors", "format": "tokens", "sequence_length": None, "valid_split": None}
    train = {"steps": 3, "valid_every": 0, **changes.pop("train", {})}
    h.run(h.cfg(place, model={"path": "model", **h.FROM_FOLDER}, data=data, train=train, **changes))
    return os.path.join(place, "out")


def as_transformers_saves(model, tensors):
    """By the names that its model with a head has; without what it makes itself: masks, and a head that is the embedding."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    base = {"gpt2": "transformer.", "opt": "model."}.get(config["model_type"], "model.")
    tied = config.get("tie_word_embeddings", config["model_type"] in ("gpt2", "opt"))
    out = {}
    for name, tensor in tensors.items():
        if not name.endswith((".attn.bias", ".attn.masked_bias")) and not (tied and name == "lm_head.weight"):
            out[name if name.startswith((base, "lm_head.")) else base + name] = tensor
    return out


def expect_same(what, model, export, theirs):
    """The same tensors, config.json and files beside it, to the byte."""
    ours = model_tensors(export)
    expect(ours.keys() == theirs.keys(), what, sorted(ours.keys() ^ theirs.keys()))
    expect(all(ours[k] == theirs[k] for k in ours), what, [k for k in ours if ours[k] != theirs[k]])
    beside = {n for n in os.listdir(model) if not n.startswith("model")}
    expect(beside == {n for n in os.listdir(export) if not n.startswith("model")}, what, os.listdir(export))
    different = [n for n in beside if read(model, n) != read(export, n)]
    expect(not different, what, different)


def test_what_was_not_trained_is_what_it_was(folder):
    """An export of a folder, and of a checkpoint before the first step."""
    for name in sorted(os.listdir(h.FAMILIES)):
        place, model = golden_model(folder, name)
        out, theirs = rows_run(place, at={"1": "save untouched"}), model_tensors(model)
        kind, _ = DTYPES[theirs[max(theirs)][0]]
        untouched = os.path.join(out, "checkpoints", "untouched.zfc")
        for i, what in enumerate(((model,), (untouched,), (out, "--step", "0"))):
            to = os.path.join(place, f"to{i}")
            h.run("export", *what, to, "--dtype", kind)
            expect_same((name, *what), model, to, theirs if what == (model,) else as_transformers_saves(model, theirs))
        one = "model.safetensors"
        expect(not os.path.exists(os.path.join(model, one)) or read(model, one) == read(place, "to0", one), name, "the file is another")
        shutil.rmtree(place)


def test_config_says_the_type_and_nothing_else_new(folder):
    for name in sorted(os.listdir(h.FAMILIES)):
        _, model = golden_model(folder, name)
        with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
            theirs = json.load(f)
        for kind, word in DTYPES.values():
            to = os.path.join(folder, name, kind)
            h.run("export", model, to, "--dtype", kind)
            with open(os.path.join(to, "config.json"), encoding="utf-8") as f:
                ours = json.load(f)
            keys = [k for k in ("dtype", "torch_dtype") if k in theirs] or (["torch_dtype"] if kind != "f32" else [])
            expect(ours == {**theirs, **{k: word for k in keys}}, name, kind, ours)


def test_whole_numbers_stay_what_they_are(folder):
    """Masks and positions that old folders have beside the weights."""
    model = h.copy_model(folder, "gpt2-untied-hd6")
    path = os.path.join(model, "model.safetensors")
    whole = {"h.0.attn.bias": ("BOOL", [2, 3], bytes([1, 0, 1, 1, 0, 0])), "steps": ("I64", [2], h.pack("I64", [-1, 1 << 60]))}
    tensors = {**h.read_tensors(path), **whole}
    h.write_tensors(path, tensors)
    for kind, (word, _) in DTYPES.items():
        to = os.path.join(folder, word)
        h.run("export", model, to, "--dtype", word)
        ours = model_tensors(to)
        expect(ours.keys() == tensors.keys() and all(ours[n] == whole[n] for n in whole), word, sorted(ours))
        expect({t[0] for n, t in ours.items() if tensors[n][0] == "F32"} == {kind}, word)


def test_memory_of_a_folder(folder):
    """A piece at a time, however big it is."""
    model, path = os.path.join(folder, "model"), os.path.join(folder, "model", "model.safetensors")
    os.mkdir(model)
    h.write(os.path.join(model, "config.json"), "{}")
    size = (300 if h.SLOW == 1 else 8) << 20  # sanitizers have memory of their own
    text = json.dumps({"a": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + size)
    memory, _ = h.peak("export", model, os.path.join(folder, "to"), "--dtype", "bf16")
    expect(os.path.getsize(os.path.join(folder, "to", "model.safetensors")) > size and (h.SLOW > 1 or memory < 100), memory)


def test_the_best(folder):
    """The export that keep_best keeps, or else a checkpoint of its step; said if there is neither."""
    h.text_file(folder)
    h.run(h.cfg(folder, train={"steps": 30, "valid_every": 10, "keep_best": "yes"}, checkpoint={"save_every": 10, "keep": 9}))
    out = os.path.join(folder, "out")
    best = next(e["step"] for e in reversed(h.json_lines(os.path.join(out, "journal.jsonl"))) if e["type"] == "export" and e["best"])
    tensors = []
    for i, gone in enumerate((None, f"exports/step-{best:08}", f"checkpoints/step-{best:08}.zfc")):
        if gone:
            os.rename(os.path.join(out, gone), os.path.join(folder, f"gone{i}"))
        to = os.path.join(folder, f"to{i}")
        done = h.run("export", out, to, "--step", "best", code=4 if i == 2 else 0)
        if i < 2:
            expect(f"step-{best:08}" in done.stdout, done.stdout)
            tensors.append(model_tensors(to))
    expect(tensors[0] == tensors[1], "a checkpoint of the best step is not its export")
    expect(f"was {best}," in done.stderr and "neither" in done.stderr and not os.path.exists(to), done.stderr)
    for step in ("", "1e1", " 10", "-1", "bset"):
        h.run("export", out, to, "--step", step, code=2)
    h.run("export", os.path.join(folder, "to0"), to, "--step", "best", code=2)
    # what is there already is said before anything is read
    done = h.run("export", os.path.join(folder, "nothing"), os.path.join(folder, "to0"), code=7)
    expect("exists already" in done.stderr, done.stderr)


def test_the_best_that_was_not_kept(folder):
    """Which step it was is known all the same."""
    h.text_file(folder)
    at = {"11": "set! learning_rate 1"}  # from there on it gets worse
    h.run(h.cfg(folder, train={"steps": 30, "valid_every": 10}, checkpoint={"save_every": 10, "keep": 9}, at=at))
    out, to = os.path.join(folder, "out"), os.path.join(folder, "to")
    best = min(h.metrics(out, "valid"), key=lambda m: m["loss"])["step"]
    done = h.run("export", out, to, "--step", "best", code=4)
    expect(f"its best step was {best}, and keep_best is no" in done.stderr and f"`--step {best}` is there" in done.stderr, done.stderr)
    h.run("export", out, to, "--step", best)
    os.remove(os.path.join(out, "checkpoints", f"step-{best:08}.zfc"))
    for name in h.exports(out):
        os.rename(os.path.join(out, "exports", name), os.path.join(folder, name))
    done = h.run("export", out, os.path.join(folder, "again"), "--step", "best", code=4)
    expect(f"its best step was {best}, of which nothing is left" in done.stderr, done.stderr)


def test_the_best_of_another_course(folder):
    """What was the best of steps that the run was taken back from is not the best of the run."""
    h.text_file(folder)
    path = h.cfg(folder, train={"steps": 30, "valid_every": 10, "keep_best": "yes"}, checkpoint={"save_every": 10, "keep": 9})
    h.run(path)
    out = os.path.join(folder, "out")
    h.run(path, "--resume", os.path.join(out, "checkpoints", "step-00000010.zfc"), "--set", "steps=13")
    best = [e["step"] for e in h.json_lines(os.path.join(out, "journal.jsonl")) if e["type"] == "export" and e["best"]]
    last = h.metrics(out, "valid")[-1]["step"]
    done = h.run("export", out, os.path.join(folder, "to"), "--step", "best")
    expect(int(done.stdout.split("step-")[1][:8]) in (10, last) and 30 in best, done.stdout, best)


def sharded(model, to, limit):
    """The folder anew, as it were if it were too big for one file."""
    h.run(model, to, limit, program=os.environ["ZF_SHARDS"])
    return to


def test_shards(folder):
    """They have the same tensors, each once, and fit into the limit, but for those of one tensor; read back, it is the same model."""
    for name in ("llama3-rope-f16-shards", "gpt2-untied-hd6", "qwen2-untied-multi-query"):
        place, model = golden_model(folder, name)
        theirs, limit = model_tensors(model), 4000
        to = sharded(model, os.path.join(place, "to"), limit)
        expect_same(name, model, to, theirs)
        files = sorted(n for n in os.listdir(to) if n.endswith(".safetensors"))
        count = len(files)
        expect(count > 2 and files == [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)], files)
        inside = [h.read_tensors(os.path.join(to, n)) for n in files]
        expect(all(len(t) == 1 or sum(len(x[2]) for x in t.values()) <= limit for t in inside), [len(t) for t in inside])
        with open(os.path.join(to, "model.safetensors.index.json"), encoding="utf-8") as f:
            index = json.load(f)
        expect(index["weight_map"] == {k: n for n, t in zip(files, inside) for k in t}, index)
        expect(index["metadata"]["total_size"] == sum(len(t[2]) for t in theirs.values()), index["metadata"])
        for i, source in enumerate((model, to)):
            h.run("export", source, os.path.join(place, f"one{i}"))
        expect(read(place, "one0", "model.safetensors") == read(place, "one1", "model.safetensors"), name, "is read back as another model")


GOLDEN = """
import sys
sys.path.insert(0, sys.argv[1])
from make_golden import golden, save_file, torch
torch.set_num_threads(1)
for folder in sys.argv[2:]:
    save_file(golden(folder, steps=0), folder + ".golden", metadata={"format": "pt"})
"""


def test_transformers_computes_the_same(folder):
    """Logits, loss and gradients of trained models of all families, within 1e-5 of ours in f32.."""
    if subprocess.run([PYTHON, "-c", "import torch, transformers, safetensors"], capture_output=True).returncode:
        raise h.Skip(f"{PYTHON} has no torch, transformers, safetensors (set ZF_PYTHON)")
    found = []
    for name in sorted(os.listdir(h.FAMILIES)):
        place, _ = golden_model(folder, name)
        found.append(h.only_export(rows_run(place)))
    found.append(sharded(found[-1], os.path.join(folder, "shards"), 4000))
    for family in ("gpt2", "opt", "llama", "qwen2", "qwen3"):
        place = os.path.join(folder, family)
        os.mkdir(place)
        h.text_file(place)
        zenflow = {"strategy": "zenflow", "update_interval": 2}
        h.run(h.cfg(place, model={"family": family}, train={"steps": 5, "valid_every": 0}, zenflow=zenflow))
        found.append(os.path.join(place, "model"))
        h.run("export", os.path.join(place, "out"), found[-1], "--drain")
    done = subprocess.run([PYTHON, "-c", GOLDEN, os.path.join(h.SOURCE, "tests", "golden"), *found], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr[-3000:])
    for model in found:
        h.run("verify", model, model + ".golden", "--dtype", "f32")


if __name__ == "__main__":
    h.main()
