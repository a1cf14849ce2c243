"""From files to rows, as `data` and `check` show them: formats, templates, masks, packing, what is left out and where that was, the cache, memory."""
import json
import os
import pty
import random
import re
import subprocess
import time

import harness as h
from harness import expect

GOLDEN = os.path.join(h.SOURCE, "tests", "golden", "data")
BASE = {
    "run": {"dir": "out", "seed": 3, "threads": 1},
    "model": {"family": "llama", "layers": 1, "hidden": 32, "heads": 2, "ffn": 64, "context": 64, "tokenizer": "bytes", "dtype": "f32"},
    "data": {"train": "train.jsonl", "shuffle": "no", "pack": "no", "cache": "no"},
    "train": {"steps": 2, "batch_size": 4, "learning_rate": "1e-3"},
}
EOS = 256  # of `bytes`


def cfg(folder, name="run.cfg", model=None, **data):
    return h.cfg(folder, name, base=BASE, model=model or {}, data=data)


def lines(folder, records, name="train.jsonl"):
    return h.write(os.path.join(folder, name), "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


def shown(path, *more, rows=100000):
    return [json.loads(line) for line in h.run("data", path, "--json", "--rows", rows, *more).stdout.splitlines()]


def ids(path, *more):
    return [r["ids"] for r in shown(path, *more)]


def labels_of(row):
    """The trained tokens' ids, and everything else that must hold of a row."""
    n = len(row["ids"])
    expect(n == row["tokens"] == len(row["labels"]) == len(row["positions"]) == sum(d["tokens"] for d in row["documents"]), "lengths", row)
    expect(all(a in (-100, b) for a, b in zip(row["labels"], row["ids"])), "labels are not the ids themselves", row)
    wanted = [i for d in row["documents"] for i in range(d["tokens"])]
    expect(row["positions"] == wanted, "positions do not restart with each document", row)
    expect(all(l == -100 for l, p in zip(row["labels"], row["positions"]) if p == 0), "a document's first token is a target", row)
    trained = [l for l in row["labels"] if l != -100]
    expect(len(trained) == row["trained"], "trained", row)
    return trained


def text(tokens):
    return bytes(t for t in tokens if t < 256).decode()


def checked(path, *more):
    return json.loads(h.run("check", path, "--json", *more).stdout)


def fails(path, *words, code=4, command="data"):
    """It ends with this code, and the message has all these words."""
    done = h.run(command, path, code=code)
    for w in words:
        expect(w in done.stderr, f"no `{w}` in", done.stderr)
    return done.stderr


PAIR = {"prompt": "ask", "completion": "answer"}


# --- what transformers makes of the same records ---

def test_rows_are_those_of_transformers(folder):
    """tests/golden/data, written by make_data.py: chats, prompts, choices, under three kinds of tokenizer."""
    options = {
        "chat": {"train": "chat.jsonl"},
        "prompt": {"train": "pairs.jsonl", "prompt": '"Q: {question}\\nA:"', "response": '" {answer}"'},
        "tight": {"train": "pairs.jsonl", "prompt": "{question}", "response": "{answer}", "add_eos": "no"},
        "choices": {"train": "pairs.jsonl", "prompt": "{question}", "response": "{label}", "choices": '"0= no", "1= yes"', "add_bos": "no"},
    }
    for case in h.json_lines(os.path.join(GOLDEN, "rows.jsonl")):
        data = dict(options[case["case"]])
        data["train"] = os.path.join(GOLDEN, data["train"])
        path = cfg(folder, model={"tokenizer": os.path.join(GOLDEN, case["tokenizer"]), "context": 512}, **data)
        got = shown(path)
        name = f"{case['tokenizer']} {case['case']}"
        expect(len(got) == len(case["rows"]), name, "rows", len(got))
        for i, (a, b) in enumerate(zip(got, case["rows"])):
            labels_of(a)
            expect(a["ids"] == b["ids"], f"{name}, row {i}: ids\n{a['ids']}\n{b['ids']}")
            expect(a["labels"] == b["labels"], f"{name}, row {i}: labels\n{a['labels']}\n{b['labels']}")


# --- the command itself ---

def test_rows_for_people(folder):
    lines(folder, [{"prompt": "ab", "completion": "cd\n"}, {"prompt": "e\nf", "completion": "g"}, {"prompt": "x", "completion": "[y]"}])
    path = cfg(folder, pack="yes")
    out = h.run("data", path).stdout
    expect("row 0 (train.jsonl:1, :2, :3): 16 tokens, 10 trained, 3 documents\n" in out, out)
    eos = re.search(r"ab\[cd\\n\n(.*)\]", out)
    expect(eos, "the first document's text", out)
    for words in (f"e\\n\nf[g{eos.group(1)}]\n", "--- document 2 (train.jsonl:2)\n", f"--- document 3 (train.jsonl:3)\nx[[y]{eos.group(1)}]\n"):
        expect(words in out, repr(words), "is missing in", out)
    expect("layout" in out and "prompt" in out and "completion" in out, "the effective template is not shown", out)
    out = h.run("data", path, "--ids").stdout
    expect("\nids: 97 98 [99 100 10 256]\n" in out, out)


def on_terminal(*args, **env):
    """What a command writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        env = {**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **env}
        os.execve(h.CONSOLE, [h.CONSOLE, *map(str, args)], env)
    out = b""
    try:
        while block := os.read(fd, 65536):
            out += block
    except OSError:  # its end
        pass
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    expect(status == 0, "exit", status, out.decode(errors="replace"))
    return out.decode(errors="replace").replace("\r\n", "\n")


def test_colour_on_a_terminal(folder):
    lines(folder, [PAIR])
    path = cfg(folder)
    out = on_terminal("data", path, TERM="xterm-256color")
    expect("ask\x1b[1;32manswer\x1b[0m\x1b[1;32;7m" in out, repr(out))
    for env in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {}):
        out = on_terminal("data", path, **env)
        expect("\x1b" not in out and "ask[answer" in out, env, repr(out))


def test_data_cannot_drive_the_terminal(folder):
    lines(folder, [{"prompt": "a\x1b[31mb\x07\r\x9b2J\u202e\u0000", "completion": "tab\there\x7f"}])
    for out in (h.run("data", cfg(folder)).stdout, on_terminal("data", cfg(folder), TERM="dumb")):
        expect(not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out), "control characters", repr(out))
        expect("a\\x1b[31mb\\x07\\x0d\\u009b2J\\u202e\\x00[tab\there\\x7f" in out, repr(out))


def test_a_character_between_prompt_and_answer(folder):
    """Tokens of bytes: runs of tokens are decoded so that a character is never torn."""
    lines(folder, [{"prompt": "\u00e9\U0001f600", "completion": "\u65e5\u672c"}])
    out = h.run("data", cfg(folder, add_eos="no")).stdout
    expect("\u00e9\U0001f600[\u65e5\u672c]\n" in out, out)
    for kind in ("chatml", "llama3", "llama2"):
        out = h.run("data", cfg(folder, model={"tokenizer": os.path.join(GOLDEN, kind)}, add_eos="no")).stdout
        expect("\u00e9\U0001f600[\u65e5\u672c]\n" in out and "\ufffd" not in out, kind, out)


def test_which_rows(folder):
    lines(folder, [{"prompt": f"{i}", "completion": "x"} for i in range(20)])
    path = cfg(folder, shuffle="yes", valid_split="0.25")
    order = shown(path)
    expect(sorted(r["row"] for r in order) == list(range(15)) and [r["row"] for r in order] != list(range(15)), "order", [r["row"] for r in order])
    expect([r["position"] for r in order] == list(range(15)), "positions of the order")
    expect(shown(path, "--from", 3, rows=4) == order[3:7], "--from")
    expect(len(shown(path, "--from", 14)) == 1, "the end of the epoch")
    second = shown(path, "--from", 15)
    expect([r["position"] for r in second] == list(range(15, 30)) and [r["row"] for r in second] != [r["row"] for r in order], "the second epoch")
    expect([text(r["ids"]) for r in shown(path, "--valid")] == [f"{i}x" for i in range(15, 20)], "--valid")
    expect(h.run("data", path).stdout.count("\nrow ") == 5, "five rows without --rows")
    h.run("check", path, "--set", "memory_limit=1M", code=3)
    expect(shown(path, "--set", "memory_limit=1M") == order, "a model that cannot be trained here hides its rows")
    h.run("data", path, "--valid", "--from", 5, code=2)
    h.run("data", path, "--rows", 0, code=2)
    expect("--row" in h.run("data", path, "--row", 3, code=2).stderr, "an unknown option")
    h.run("data", cfg(folder, valid_split=None), "--valid", code=2)
    expect("data run.cfg" in h.run("data", "--help").stdout and "data run.cfg" in h.run("--help").stdout, "--help")
    expect(not os.path.exists(os.path.join(folder, "out")), "something was written")
    done = subprocess.run(["sh", "-c", f'"{h.CONSOLE}" data "{path}" --json --rows 15 | head -n 1'], capture_output=True, text=True, timeout=60)
    expect(done.stdout.count("\n") == 1 and not done.stderr, "data | head", done.stderr)


def test_shuffling_is_a_function_of_the_seed(folder):
    lines(folder, [{"prompt": f"{i}", "completion": "x" * (i % 7)} for i in range(500)])
    path = cfg(folder, shuffle="yes", pack="yes")
    want = ids(path)
    for threads in (1, 2, 3):
        expect(ids(path, "--set", f"threads={threads}") == want, threads, "threads give another order")
    other = ids(path, "--set", "seed=4")
    expect(other != want and sorted(other) == sorted(want), "the seed")
    expect(sorted(ids(path, "--set", "shuffle=no")) == sorted(want), "shuffle changes the rows")


def test_tokens_are_shown_without_a_tokenizer(folder):
    model = h.copy_model(folder, "qwen2-old-keys-f16")
    for name in os.listdir(model):
        if name.endswith(".safetensors") or name.startswith("tokenizer"):
            os.remove(os.path.join(model, name))  # `data` needs no weights
    h.token_file(os.path.join(folder, "rows.safetensors"), 6, 8, 40, labels=lambda row, at, token: token if at % 2 else -100)
    path = h.cfg(folder, base={"run": {"dir": "out"}, "model": {"path": "model"}, "data": {"train": "rows.safetensors", "shuffle": "no"}})
    got = shown(path)
    expect(len(got) == 6 and "text" not in got[0], got[:1])
    for i, r in enumerate(got):
        expect([l != -100 for l in r["labels"]] == [False, True] * 4, "labels", r)
        expect(r["documents"] == [{**r["documents"][0], "line": i, "tokens": 8}], "documents", r)
    out = h.run("data", path, "--rows", 2).stdout
    expect("row 1 (rows.safetensors row 1): 8 tokens" in out, out)
    out = h.run("check", cfg(folder, "full.cfg", train="rows.safetensors")).stdout
    expect("longest row 8, rows 100.0 % full" in out, "as long as a row of the file", out)
    out = h.run("data", path).stdout
    expect(re.search(r"\nids: \d+ \[\d+\] \d+ \[\d+\]", out) and "tokenizer" in out, out)


def test_any_reader_finds_the_lines_of_json(folder):
    odd = "a\u2028b\u0085c\x1cd\u00e4\U0001f600"
    lines(folder, [{"prompt": "p", "completion": odd}, PAIR])
    got = shown(cfg(folder))
    expect(len(got) == 2 and got[0]["text"].startswith("p" + odd), got)


def test_ids_that_the_tokenizer_does_not_have(folder):
    h.token_file(os.path.join(folder, "rows.safetensors"), 2, 8, 300)
    path = h.cfg(folder, base=BASE, model={"vocab": 300}, data={"train": "rows.safetensors"})
    got = shown(path)
    expect(len(got) == 2 and any(max(r["ids"]) > 256 and "text" not in r for r in got), got)
    expect("ids:" in h.run("data", path).stdout, "ids are not shown")


# --- formats ---

RECORDS = [("one", "eins"), ("two, \"2\"", "zwei"), ("caf\u00e9", "tab\tbed"), ("", "empty question")]


def test_formats_give_the_same_rows(folder):
    two_lines = RECORDS + [("a\nb", "c\r\nd")]
    quoted = lambda t: '"' + t.replace('"', '""') + '"'
    csv = "q,a\n" + "".join(f"{quoted(q)},{quoted(a)}\n" for q, a in two_lines)
    flat = [(q, a.replace("\t", " ")) for q, a in RECORDS]
    tsv = "q\ta\n" + "".join(f"{q}\t{a}\n" for q, a in flat)
    objects = [{"q": q, "a": a, "n": 1} for q, a in two_lines]
    files = {
        "plain.jsonl": "".join(json.dumps(o) + "\n" for o in objects),
        "utf8.jsonl": "\ufeff" + "\r\n\r\n".join(json.dumps(o, ensure_ascii=False) for o in objects),
        "list.json": json.dumps(objects, indent=2),
        "bom.json": "\ufeff" + json.dumps(objects),
        "plain.csv": csv,
        "bom.csv": "\ufeff" + csv.rstrip("\n"),
    }
    want = [list((q + "=" + a).encode()) + [EOS] for q, a in two_lines]
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as f:
            f.write(content)
        expect(ids(cfg(folder, train=name, prompt="{q}=", response="{a}")) == want, name)
    want = [list((q + "=" + a).encode()) + [EOS] for q, a in flat]
    for name, content in {"plain.tsv": tsv, "bom.tsv": "\ufeff" + tsv, "crlf.tsv": tsv.replace("\n", "\r\n"), "open.tsv": tsv.rstrip("\n"),
                          "blank.tsv": tsv.replace("\n", "\n\n")}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as f:
            f.write(content)
        expect(ids(cfg(folder, train=name, prompt="{q}=", response="{a}")) == want, name)


def test_crlf_of_csv(folder):
    csv = 'q,a\r\n"x, ""y""",1\r\n"two\r\nlines",2\r\n'
    with open(os.path.join(folder, "t.csv"), "w", newline="") as f:
        f.write(csv)
    got = shown(cfg(folder, train="t.csv", prompt="{q}", response="{a}", add_eos="no"))
    expect([text(r["ids"]) for r in got] == ['x, "y"1', "two\r\nlines2"], [text(r["ids"]) for r in got])
    expect([r["documents"][0]["line"] for r in got] == [2, 3], "lines", got)


def test_what_records_are_is_detected(folder):
    """Without templates: the text that comes out, and what of it is trained; the effective template is shown."""
    cases = [
        ({"text": "all of it"}, "all of it", "ll of it"),
        (PAIR, "askanswer", "answer"),
        ({"prompt": "ask", "response": "answer"}, "askanswer", "answer"),
    ]
    for record, whole, trained in cases:
        lines(folder, [record])
        row = shown(cfg(folder))[0]
        expect(text(row["ids"]) == whole and text(labels_of(row)) == trained, record, text(row["ids"]), text(labels_of(row)))
        expect(row["ids"][-1] == EOS and row["labels"][-1] == EOS, "the end of text is no target", row)
        expect("layout" in h.run("data", cfg(folder)).stdout, "the effective template is not shown")
    lines(folder, [{"instruction": "Add.", "input": "1 and 1", "output": "2"}, {"instruction": "Sing.", "input": "", "output": "La"}])
    both = shown(cfg(folder, model={"context": 512}))
    for row, words, answer in zip(both, (("Add.", "1 and 1"), ("Sing.",)), ("2", "La")):
        expect(all(w in text(row["ids"]) for w in words) and text(labels_of(row)) == answer, text(row["ids"]), text(labels_of(row)))
    lines(folder, [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}])
    row = shown(cfg(folder, model={"tokenizer": os.path.join(GOLDEN, "chatml")}))[0]
    expect(row["text"].startswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>"), row["text"])
    lines(folder, [{"title": "x", "body": "y"}])
    fails(cfg(folder), "title", "body", "prompt", code=(2, 4))


def test_templates(folder):
    lines(folder, [{"a": "A", "b c": "B", "n": 3, "yes": True}])
    row = lambda **o: shown(cfg(folder, add_eos="no", **o))[0]
    got = row(prompt='"{a}\\t{{x}} {b c}:"', response="{n}{yes}")
    expect(text(got["ids"]) == "A\t{x} B:3true" and text(labels_of(got)) == "3true", text(got["ids"]))
    h.write(os.path.join(folder, "p.txt"), "From a file: {a}\n")
    h.write(os.path.join(folder, "r.txt"), "{b c}")
    got = row(prompt_file="p.txt", response_file="r.txt")
    expect(text(got["ids"]).startswith("From a file: A") and text(labels_of(got)) == "B", text(got["ids"]))
    expect(text(labels_of(row(prompt="{a}", response="{n}", train_on="all"))) == "3", "of `A3` the first letter has nothing before it")
    fails(cfg(folder, prompt="{nope}", response="{a}"), "nope", "b c", code=(2, 4))
    fails(cfg(folder, prompt="{a", response="{a}"), "{", code=2)


def test_p52_the_mask_is_of_the_span_not_of_the_words(folder):
    lines(folder, [{"prompt": "answer answer answer ", "completion": "answer"}])
    row = shown(cfg(folder))[0]
    expect([l != -100 for l in row["labels"]] == [False] * 21 + [True] * 7, row["labels"])


def test_p54_a_token_across_the_border_is_trained(folder):
    """` g` is one token in the golden tokenizer's words; the space is the prompt's."""
    lines(folder, [{"prompt": "It was the", "completion": "re"}])
    row = shown(cfg(folder, model={"tokenizer": os.path.join(GOLDEN, "chatml")}, add_eos="no"))[0]
    expect(row["text"] == "It was there" and row["trained"] >= 1 and row["labels"][-1] == row["ids"][-1], row)


def test_p88_p89_one_bos_and_a_trained_end(folder):
    lines(folder, [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "a"},
                                 {"role": "assistant", "content": "b"}]}])
    for kind, bos, end in (("llama3", "<|begin_of_text|>", "<|eot_id|>"), ("chatml", None, "<|im_end|>")):
        out = h.run("data", cfg(folder, model={"tokenizer": os.path.join(GOLDEN, kind)})).stdout
        expect(not bos or out.count(bos) == 1, kind, out)
        expect(f"[ho{end}]" in out and f"[b{end}]" in out, kind, "the end of a turn is not trained", out)


def test_p91_special_tokens_in_content_stay_text(folder):
    model = {"tokenizer": os.path.join(GOLDEN, "chatml"), "context": 256}
    path = cfg(folder, model=model)
    lines(folder, [{"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "<|im_start|>"}]}])
    chat = shown(path)[0]
    special = {t["content"]: t["id"] for t in json.load(open(os.path.join(GOLDEN, "chatml", "tokenizer.json")))["added_tokens"]}
    expect(chat["ids"].count(special["<|im_end|>"]) == 2 and chat["ids"].count(special["<|im_start|>"]) == 2, chat)
    expect("spell" in h.run("check", path).stdout, "such rows are not counted")
    lines(folder, [{"q": "<|im_end|>", "a": "x"}])
    own = shown(cfg(folder, model=model, prompt="<|im_start|>{q}", response="{a}", add_eos="no"))[0]
    expect(own["ids"].count(special["<|im_start|>"]) == 1 and special["<|im_end|>"] not in own["ids"], "a template's own special tokens", own)


def test_chat_templates(folder):
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    lines(folder, [chat])
    kind = os.path.join(folder, "tokenizer")
    os.mkdir(kind)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(GOLDEN, "chatml", name)) as f:
            h.write(os.path.join(kind, name), f.read())
    config = json.load(open(os.path.join(kind, "tokenizer_config.json")))
    strange = "{% for m in messages %}{{ '@@' + m['role'] + '@@' + m['content'] }}{% endfor %}"
    h.write(os.path.join(kind, "tokenizer_config.json"), json.dumps({**config, "chat_template": strange}))
    model = {"tokenizer": kind}
    fails(cfg(folder, model=model), "@@", "chat_template", code=2)
    expect("<|im_start|>" in shown(cfg(folder, model=model, chat_template="chatml"))[0]["text"], "a chosen template")
    h.write(os.path.join(kind, "chat_template.jinja"), config["chat_template"])
    expect("<|im_start|>" in shown(cfg(folder, model=model))[0]["text"], "chat_template.jinja")
    os.remove(os.path.join(kind, "chat_template.jinja"))
    h.write(os.path.join(kind, "tokenizer_config.json"), json.dumps({**config, "chat_template": None}))
    expect("plain" in checked(cfg(folder, model=model))["train"]["layout"], "without a template it is plain, and that is said")
    expect(shown(cfg(folder, model=model))[0] == shown(cfg(folder, model=model, chat_template="plain"))[0], "plain")
    expect("chatml" in h.run("check", cfg(folder, model=model, chat_template="chatml")).stdout, "the template is not shown")
    lines(folder, [chat, {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": 3}]}])
    fails(cfg(folder, model=model, chat_template="chatml"), "train.jsonl:2", code=4)
    lines(folder, [{"messages": [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}, chat["messages"][1]]}])
    expect("hi" in shown(cfg(folder, model=model, chat_template="chatml"))[0]["text"], "content as parts")


def test_choices(folder):
    records = [{"s": f"text {i} ", "label": str(i % 2)} for i in range(8)]
    lines(folder, records)
    lines(folder, records[:5], "valid.jsonl")
    choice = {"valid": "valid.jsonl", "prompt": "{s}is", "response": "{label}", "choices": '"0= bad", "1= good"', "add_eos": "no"}
    path = cfg(folder, **choice)
    expect([text(labels_of(r)) for r in shown(path)] == [" bad", " good"] * 4, "choices")
    expect([text(labels_of(r)) for r in shown(path, "--valid")] == [" bad", " good"] * 2 + [" bad"], "choices of the validation rows")
    h.run(path)
    valid = h.metrics(os.path.join(folder, "out"), "valid")[-1]
    expect(valid["accuracy"] * 5 in range(6), valid)
    lines(folder, records + [{"s": "x", "label": "2"}])
    fails(path, "train.jsonl:9", "choices")
    expect(len(shown(path, "--set", "skip_bad=yes")) == 8, "skip_bad")


# --- what is wrong, and where ---

def test_errors_name_the_place(folder):
    good = json.dumps(PAIR)
    bad = {
        "t.jsonl": (good + "\n\n" + '{"prompt": "x", "completion" "y"}\n', "t.jsonl:3:"),
        "dup.jsonl": (good + "\n" + '{"prompt": "x", "prompt": "y", "completion": "z"}\n', "dup.jsonl:2"),
        "half.jsonl": (good + "\n" + good[:20], "half.jsonl:2:"),
        "lacks.jsonl": (good + "\n" + '{"prompt": "x"}\n', "lacks.jsonl:2"),
        "kind.jsonl": (good + "\n" + '{"prompt": "x", "completion": ["a"]}\n', "kind.jsonl:2"),
        "t.json": ("[" + good + ",\n " + good + ",\n  {\"prompt\": }]", "t.json:3"),
        "open.json": ("[" + good, "open.json:"),
        "object.json": (good, "object.json"),
        "t.tsv": ("prompt\tcompletion\nx\ty\nx\ty\tz\n", "t.tsv:3"),
        "t.csv": ("prompt,completion\nx,y\n\"x\",\"y\nmore\n", "t.csv:3"),
        "few.csv": ("prompt,completion\nx,y\nx\n", "few.csv:3"),
    }
    for name, (content, place) in bad.items():
        with open(os.path.join(folder, name), "w", newline="") as f:
            f.write(content)
        if name == "object.json":
            h.run("data", cfg(folder, train=name), code=(0, 4))
            continue
        fails(cfg(folder, train=name), os.path.join(folder, place))
    h.write(os.path.join(folder, "list.jsonl"), "[" + good + ",\n" + good + "]\n")
    expect(len(shown(cfg(folder, train="list.jsonl"))) == 2, "an array in a file of jsonl is seen as one")
    fails(cfg(folder, train="list.jsonl", format="jsonl"), "list.jsonl:1", "json")
    with open(os.path.join(folder, "latin.jsonl"), "wb") as f:
        f.write(good.encode() + b"\n" + '{"prompt": "caf\xe9", "completion": "x"}\n'.encode("latin-1"))
    fails(cfg(folder, train="latin.jsonl"), "latin.jsonl:2:16", "UTF-8")
    with open(os.path.join(folder, "latin.csv"), "wb") as f:
        f.write(b"prompt,completion\na,b\nc,\xff\n")
    fails(cfg(folder, train="latin.csv"), "latin.csv:3:3", "UTF-8")


def test_skip_bad_counts(folder):
    good = json.dumps(PAIR) + "\n"
    with open(os.path.join(folder, "train.jsonl"), "wb") as f:
        f.write((good + "{oops\n" + good).encode() + b'{"prompt": "\xff", "completion": "x"}\n' + (good + '{"prompt": "x"}\n' + good).encode())
    path = cfg(folder, skip_bad="yes")
    expect(len(shown(path)) == 4, "rows")
    expect(checked(path)["train"]["bad"] == 3, checked(path)["train"])
    out = h.run("check", path).stdout
    expect("train.jsonl:2" in out and "3" in out, "the first of them is not named", out)
    with open(os.path.join(folder, "train.jsonl"), "w") as f:
        f.write("{oops\n" * 3)
    fails(path, "train.jsonl")


def test_skip_bad_never_loses_the_rest_of_a_file(folder):
    h.write(os.path.join(folder, "open.csv"), "text,n\nok,1\n\"open,2\n" + "".join(f"line {i},{i}\n" for i in range(3000)))
    said = h.run("check", cfg(folder, train="open.csv", skip_bad="yes"), code=4).stderr
    expect("open.csv:3" in said and "skip_bad does not help" in said, said)
    h.write(os.path.join(folder, "cut.json"), '[{"text": "one"}, {"text": "open}' + ', {"text": "more"}' * 3000 + "]")
    said = h.run("check", cfg(folder, train="cut.json", skip_bad="yes"), code=4).stderr
    expect("cut.json:1" in said and "skip_bad does not help" in said, said)
    # bad lines before the first good one, more than are read at a time, are counted, whatever the number of threads
    h.write(os.path.join(folder, "late.jsonl"), "{\n" * 5000 + '{"text": "good"}\n')
    for threads in (1, 3):
        path = cfg(folder, train="late.jsonl", skip_bad="yes")
        report = json.loads(h.run("check", path, "--json", "--set", f"threads={threads}").stdout)["train"]
        expect((report["bad"], report["documents"], report["records"]) == (5000, 1, 5001), report)


def test_a_misspelt_role_is_no_other_speaker(folder):
    lines(folder, [{"messages": [{"role": "user", "content": "a"}, {"role": "asistant", "content": "b"}]}])
    for template in ("chatml", "plain"):
        said = h.run("check", cfg(folder, chat_template=template), code=4).stderr
        expect("train.jsonl:1" in said and '"asistant"' in said and "nearest is assistant" in said, said)


def test_messages_cannot_drive_the_terminal(folder):
    h.write(os.path.join(folder, "train.tsv"), "\x1b[31mred\tb\na\tb\n")
    said = h.run("check", cfg(folder, train="train.tsv"), code=2).stderr
    expect("\x1b" not in said and "red" in said, repr(said))


def test_what_beginners_do(folder):
    lines(folder, [{"instruction": "a", "output": ""}, {"instruction": "b", "output": "c"}])
    report = checked(cfg(folder))
    expect(report["train"]["unanswered"] == 1 and any("empty answer" in n for n in report["notes"]), report)
    h.write(os.path.join(folder, "lines.txt"), '{"text": "a"}\n')
    expect("format = jsonl" in fails(cfg(folder, train="lines.txt"), "lines.txt", code=2, command="check"), "json lines in a .txt")
    h.run("check", cfg(folder, train="lines.txt", format="text"))
    for name, content, words in (
        ("a.csv", "instruction;output\na;b\n", "semicolons"),
        ("b.tsv", "instruction,output\na,b\n", "format = csv"),
        ("c.tsv", '{"instruction": "a", "output": "b"}\n{"instruction": "a", "output": "b"}\n', "format = jsonl"),
    ):
        h.write(os.path.join(folder, name), content)
        fails(cfg(folder, train=name), words, code=2, command="check")


def test_empty_things(folder):
    for name, content in {"a.jsonl": "", "b.jsonl": "\n\n\n", "c.csv": "q,a\n", "d.tsv": "", "e.json": "[]", "f.txt": "", "g.jsonl": '{"text": ""}\n'}.items():
        h.write(os.path.join(folder, name), content)
        template = {"prompt": "{q}", "response": "{a}"} if name[0] in "cd" else {}
        fails(cfg(folder, train=name, **template), name)
    lines(folder, [{"text": "some"}, {"text": ""}, {"text": "more"}])
    found = checked(cfg(folder))["train"]
    expect(found["empty"] == 1 and found["documents"] == 2 and found["rows"] == 2, found)
    lines(folder, [{"prompt": "x", "completion": "y"}] * 300 + [{"prompt": "x", "completion": ""}])
    path = cfg(folder, add_eos="no")
    found = checked(path)["train"]
    expect(found["unlabelled"] == 1 and found["duplicates"] == 299, found)
    lines(folder, [{"prompt": "x", "completion": "y"}] * 10 + [{"prompt": "x", "completion": ""}])
    fails(path, "train.jsonl:11")
    lines(folder, [{"prompt": "x", "completion": ""}] * 2)
    fails(path, "train.jsonl")


# --- rows ---

LONG = [{"prompt": "p", "completion": c * n} for c, n in (("a", 3), ("b", 30), ("c", 14), ("d", 15), ("e", 46))]  # with p and the end: 5 32 16 17 48


def test_long_rows(folder):
    lines(folder, LONG)
    model = {"context": 16}
    message = fails(cfg(folder, model=model), "train.jsonl:2", "16", "48", "long_rows", command="check")
    expect("3 of " in message and "raise" not in message, message)
    shown_rows = h.run("data", cfg(folder, model=model), "--json", "--rows", 100)
    expect(len(shown_rows.stdout.splitlines()) == 2 and "3 records longer" in shown_rows.stderr, shown_rows.stderr)
    found = checked(cfg(folder, model=model, long_rows="truncate"))["train"]
    expect(found["truncated"] == 3 and found["rows"] == 5 and found["tokens"] == 5 + 4 * 16 and found["cut_tokens"] == 16 + 1 + 32, found)
    found = checked(cfg(folder, model=model, long_rows="drop"))["train"]
    expect(found["dropped"] == 3 and found["rows"] == 2 and found["tokens"] == 5 + 16 and found["cut_tokens"] == 32 + 17 + 48, found)
    path = cfg(folder, model=model, long_rows="split")
    found = checked(path)["train"]
    expect(found["split"] == 3 and found["rows"] == 1 + 2 + 1 + 2 + 3 and found["tokens"] == 5 + 32 + 16 + 17 + 48, found)
    got = shown(path)
    expect(text(got[1]["ids"]) == "p" + "b" * 15 and text(got[2]["ids"]) == "b" * 15 and text(labels_of(got[2])) == "b" * 14, "pieces", got[1:3])
    out = h.run("check", cfg(folder, model=model, long_rows="truncate")).stdout
    for words in ("truncated", "documents", "padding", "longest row 16, rows 86.2 % full", "; 49 tokens lost by that ("):
        expect(words in out, words, "is missing in", out)


def first_fit(lengths, row, window=64):
    """Documents in the rows that have room first; a new row when none has, for which the oldest of 64 is closed."""
    rows, open_rows = [], []
    for i, n in enumerate(lengths):
        fit = next((r for r in open_rows if sum(lengths[k] for k in r) + n <= row), None)
        if fit is None:
            if len(open_rows) == window:
                open_rows.pop(0)
            fit = []
            rows.append(fit)
            open_rows.append(fit)
        fit.append(i)
    return rows


def test_packing(folder):
    rng = random.Random(1)
    records = [{"prompt": f"{i}:", "completion": "x" * rng.choice((1, 3, 10, 25, 40, 50))} for i in range(1500)]
    lines(folder, records)
    lengths = [len(r["prompt"] + r["completion"]) + 1 for r in records]
    want = first_fit(lengths, 64)
    path = cfg(folder, pack="yes")
    got = shown(path)
    expect([[d["line"] - 1 for d in r["documents"]] for r in got] == want, "first fit")
    for r in got:
        labels_of(r)
        expect(r["tokens"] <= 64 and [d["tokens"] for d in r["documents"]] == [lengths[d["line"] - 1] for d in r["documents"]], r)
    alone = shown(cfg(folder, "alone.cfg", pack="no"))
    flat = {}
    for r in got:
        at = 0
        for d in r["documents"]:
            flat[d["line"]] = (r["ids"][at : at + d["tokens"]], r["labels"][at : at + d["tokens"]])
            at += d["tokens"]
    expect([flat[i + 1] for i in range(1500)] == [(r["ids"], r["labels"]) for r in alone], "packing changes documents")
    found = checked(path)["train"]
    expect(found["rows"] == len(want) and found["documents"] == 1500 and found["tokens"] == sum(lengths), found)


def test_text_is_cut_into_rows(folder):
    h.write(os.path.join(folder, "t.txt"), "a" * 100 + "\n\n" + "b" * 10 + "\n\n\n" + "c" * 64)
    tokens = lambda **o: [(r["tokens"], r["trained"], r["documents"][0]["line"]) for r in shown(cfg(folder, train="t.txt", **o))]
    expect(tokens() == [(64, 63, 1), (64, 63, 1), (52, 51, 1)], tokens())
    expect([t[0] for t in tokens(documents="blank")] == [64, 37, 11, 64, 1], tokens(documents="blank"))
    expect([t[2] for t in tokens(documents="blank")] == [1, 1, 3, 6, 6], tokens(documents="blank"))
    expect([t[0] for t in tokens(documents="b")][:2] == [64, 39], tokens(documents="b"))
    special = {"tokenizer": os.path.join(GOLDEN, "llama3")}
    h.write(os.path.join(folder, "t.txt"), "x<|eot_id|>y")
    row = shown(cfg(folder, train="t.txt", model=special))[0]
    expect(len(row["ids"]) == 4 and row["text"] == "x<|eot_id|>y<|end_of_text|>", row)


def test_rows_of_the_metrics_are_those_of_data(folder):
    lines(folder, [{"prompt": f"{i}", "completion": "x" * (i % 11)} for i in range(50)])
    path = h.cfg(folder, base=BASE, data={"shuffle": "yes"}, train={"steps": None, "epochs": 2, "batch_size": 8, "micro_batch": 3})
    h.run(path)
    order = shown(path) + shown(path, "--from", 50)
    steps = h.metrics(os.path.join(folder, "out"), "step")
    expect([m["rows"] for m in steps] == [[8 * i, min(8 * i + 7, 99)] for i in range(13)], [m["rows"] for m in steps])
    for m in steps:
        part = order[m["rows"][0] : m["rows"][1] + 1]
        expect([r["position"] for r in part] == list(range(m["rows"][0], m["rows"][1] + 1)), "positions")
        expect(m["tokens"] == sum(r["tokens"] for r in part) and m["label_tokens"] == sum(r["trained"] for r in part), m)


# --- the loss does not depend on how rows are laid out ---

def one_step(folder, name, data, train):
    """Loss and gradient norm of the whole data as one step, and the validation loss."""
    path = h.cfg(folder, name + ".cfg", base=BASE, run={"dir": name}, data=data, train={"steps": 1, "learning_rate": "1e-30", **train})
    h.run(path)
    out = os.path.join(folder, name)
    step = h.metrics(out, "step")[0]
    return step["loss"], step["grad_norm"], h.metrics(out, "valid")[-1]["loss"], step["label_tokens"]


def test_p55_p44_packing_and_batches_change_no_loss(folder):
    rng = random.Random(2)
    word = lambda: "".join(rng.choice("abcdefgh ") for _ in range(rng.choice((1, 2, 5, 17, 30))))
    lines(folder, [{"prompt": word(), "completion": word()} for _ in range(40)])
    lines(folder, [{"prompt": word(), "completion": word()} for _ in range(23)], "valid.jsonl")
    seen = {}
    for name, pack, micro in (("a", "no", "auto"), ("b", "no", 1), ("c", "no", 7), ("d", "yes", "auto"), ("e", "yes", 1), ("f", "yes", 3)):
        data = {"valid": "valid.jsonl", "pack": pack}
        path = cfg(folder, **data)
        rows = checked(path)["train"]["rows"]
        expect(rows == 40 if pack == "no" else rows < 30, "rows", rows)
        seen[name] = one_step(folder, name, data, {"batch_size": rows, "micro_batch": micro})
    for name, values in seen.items():
        expect(values[3] == seen["a"][3], "label tokens", seen)
        for a, b in zip(values[:3], seen["a"][:3]):
            expect(abs(a - b) <= 1e-6 * abs(b), name, seen)
    small = one_step(folder, "g", {"valid": "valid.jsonl", "pack": "no"}, {"batch_size": 2, "micro_batch": 1})
    expect(abs(small[2] - seen["a"][2]) <= 1e-6 * seen["a"][2], "the validation loss depends on batch_size", small, seen)


def test_p44_a_step_is_the_mean_over_its_label_tokens(folder):
    """Two rows with one and with nine trained tokens: the step's loss is their sum over ten."""
    one, nine = {"prompt": "ab", "completion": "c"}, {"prompt": "d", "completion": "efghijklm"}
    loss = {}
    for name, records in (("one", [one]), ("nine", [nine]), ("both", [one, nine])):
        lines(folder, records)
        lines(folder, records, "valid.jsonl")
        loss[name] = one_step(folder, name, {"valid": "valid.jsonl", "add_eos": "no"}, {"batch_size": len(records), "micro_batch": 1})
    for i in (0, 2):
        want = (loss["one"][i] + 9 * loss["nine"][i]) / 10
        expect(abs(loss["both"][i] - want) < 1e-6 * want, i, loss)


# --- the cache, and memory ---

def cached(folder):
    place = os.path.join(folder, "cache")
    return sorted(os.path.join(place, n) for n in os.listdir(place)) if os.path.isdir(place) else []


def test_rows_are_made_once(folder):
    lines(folder, [{"prompt": f"{i}", "completion": "x" * (i % 30)} for i in range(800)])
    path = cfg(folder, cache="cache", pack="yes", shuffle="yes")
    want = shown(path)
    expect(len(cached(folder)) == 1, cached(folder))
    file = cached(folder)[0]
    mark = lambda: (os.stat(file).st_mtime_ns, os.stat(file).st_ino)
    before = mark()
    expect(shown(path) == want and mark() == before and cached(folder) == [file], "rows were made again")
    h.run("check", path)
    expect(mark() == before, "check made them again")
    expect(shown(path, "--set", "seed=9", "--set", "threads=2") != want and cached(folder) == [file], "the order is no part of the rows")
    expect(shown(path, "--set", "cache=no") == want, "the cache changes rows")
    size = os.path.getsize(file)
    for at, name in ((0, "magic"), (40, "header"), (5000, "a row"), (size - 8, "index")):
        with open(file, "r+b") as f:
            f.seek(at)
            was = f.read(1)
            f.seek(at)
            f.write(bytes([was[0] ^ 0x55]))
        done = h.run("data", path, "--json", "--rows", 100000)
        expect([json.loads(line) for line in done.stdout.splitlines()] == want, name, "was damaged, and other rows came out")
        expect(shown(path) == want, "not made again after damage of", name)
    for length in (0, 10, 4096, size // 2, size - 1):
        os.truncate(file, length)
        expect(shown(path) == want and os.path.getsize(file) == size, "cut to", length)
    expect(cached(folder) == [file], "left over", cached(folder))
    with open(os.path.join(folder, "train.jsonl"), "a") as f:
        f.write('{"prompt": "more", "completion": "rows"}\n')
    expect(len(shown(path)) >= len(want) and len(cached(folder)) == 2, "a changed file")
    shown(path, "--set", "long_rows=drop")
    expect(len(cached(folder)) == 3, "another option")


def test_a_file_that_changes_while_it_is_read_is_refused(folder):
    line = json.dumps({"prompt": "a question that is not so short", "completion": "an answer " * 20}) + "\n"
    data = os.path.join(folder, "train.jsonl")
    with open(data, "w") as f:
        for _ in range(80000 if h.SLOW == 1 else 20000):  # not one string: a child's peak memory counts from its parent's
            f.write(line)
    path = cfg(folder, model={"context": 512}, train="train.jsonl", cache="cache", pack="yes")
    p = h.start("check", path, "--set", "threads=1")
    while p.poll() is None and not cached(folder):
        time.sleep(0.01)
    with open(data, "a") as f:
        f.write(line)
    said = p.communicate()[1].decode()
    expect(p.returncode == 4 and "changed while it was read" in said, p.returncode, said)
    expect(not cached(folder), "kept", cached(folder))


def test_memory_does_not_grow_with_the_file(folder):
    block = "".join(json.dumps({"prompt": f"question {i}", "completion": f"the answer is {i * i} " * 6}) + "\n" for i in range(2000))
    need = {}
    for name, size in (("small", 4 << 20), ("large", 64 << 20)):
        with open(os.path.join(folder, name + ".jsonl"), "w") as f:
            while f.tell() < size:
                f.write(block)
        path = cfg(folder, name + ".cfg", model={"context": 256}, train=name + ".jsonl", cache="cache", pack="yes", shuffle="yes")
        need[name], _ = h.peak("data", path, "--set", "threads=2")
    expect(need["large"] < 60 or h.SLOW > 1, "megabytes", need)
    print("peak memory in MB:", need)


if __name__ == "__main__":
    h.main()
