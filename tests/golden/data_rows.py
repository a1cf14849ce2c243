"""Rows as transformers makes them, beside the rows that `zenflow-console data --json` shows: ids, labels, positions.

    data_rows.py --console build/zenflow-console --data FOLDER [--rows 300] [NAME...]

FOLDER holds tokenizers/, models/ and datasets/. Needs transformers. Exit 0: all equal; 1: a difference, shown with its tokens. make_data.py writes the
small set of such rows that the quick tests compare with.

What a row has to be is computed from the text alone: it is rendered (by the template of the tokenizer's own folder where it is a chat), encoded whole,
and a token is a target if any character of it lies in a span that is trained."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

IGNORED = -100

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# What is trained of a rendered chat: from behind the header of an assistant's turn to the end of its end-of-turn token.
TURNS = {
    "chatml": r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)",
    "llama3": r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n(.*?<\|eot_id\|>)",
    "llama2": r"\[/INST\](.*?</s>)",
}


class Tokenizer:
    """A folder's tokenizer.json, its special tokens and its chat template, in transformers' own hands."""

    def __init__(self, folder, template=None, eos=None):
        from transformers import PreTrainedTokenizerFast

        self.folder = folder
        config = os.path.join(folder, "tokenizer_config.json")
        self.config = json.load(open(config, encoding="utf-8")) if os.path.exists(config) else {}
        names = {k: self.text_of(self.config.get(k)) for k in ("bos_token", "eos_token", "unk_token")}
        self.hf = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(folder, "tokenizer.json"), clean_up_tokenization_spaces=False, **{k: v for k, v in names.items() if v}
        )
        self.hf.backend_tokenizer.no_truncation()
        self.hf.backend_tokenizer.no_padding()
        self.template = template or self.config.get("chat_template")
        self.eos = self.hf.convert_tokens_to_ids(names["eos_token"]) if names["eos_token"] else eos
        self.front = self.hf.backend_tokenizer.encode("").ids
        self.size = max(self.hf.get_vocab().values()) + 1

    @staticmethod
    def text_of(token):
        return token.get("content") if isinstance(token, dict) else token

    def encode(self, text, spans, specials=True):
        """ids and labels of a text of which the character ranges `spans` are trained."""
        self.hf.backend_tokenizer.encode_special_tokens = not specials
        got = self.hf.backend_tokenizer.encode(text, add_special_tokens=False)
        inside = [False] * (len(text) + 1)
        for begin, end in spans:
            inside[begin:end] = [True] * (end - begin)
        labels = []
        for token, (begin, end) in zip(got.ids, got.offsets):
            # a token of nothing but white space may have been trimmed to its end
            begin = begin - 1 if begin == end and begin else begin
            labels.append(token if any(inside[begin:end]) else IGNORED)
        return list(got.ids), labels

    def chat(self, kind, messages):
        self.hf.chat_template = self.template
        text = self.hf.apply_chat_template(messages, tokenize=False)
        return self.encode(text, [m.span(1) for m in re.finditer(TURNS[kind], text, re.S)])

    def prompt(self, prompt, response, eos=True, bos=True):
        ids, labels = self.encode(prompt + response, [(len(prompt), len(prompt + response))], specials=False)
        if bos:
            ids, labels = self.front + ids, [IGNORED] * len(self.front) + labels
        if eos and self.eos is not None:
            ids, labels = ids + [self.eos], labels + [self.eos]
        return ids, labels


def unscored(row):
    """The first token of a document is no target: nothing stands before it."""
    ids, labels = row
    return ids, [IGNORED] + labels[1:]


def json_records(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f) if path.endswith(".json") else [json.loads(line) for line in f if line.strip()]


def table(path):
    with open(path, encoding="utf-8-sig") as f:
        lines = f.read().split("\n")
    names = lines[0].split("\t")
    return [dict(zip(names, line.split("\t"))) for line in lines[1:] if line]


def plain_messages(record):
    """Contents as lists of parts -> their text."""
    out = []
    for m in record["messages"]:
        content = m["content"]
        if isinstance(content, list):
            content = "".join(p.get("value", p.get("text", "")) for p in content)
        out.append({"role": m["role"], "content": content})
    return out


# --- the program's side ---

def write_cfg(folder, model, train, options):
    """Option values are quoted, so that any text can stand in them."""
    quoted = lambda v: '"' + str(v).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    lines = ["[model]", f"path = {quoted(model)}", "[data]", f"train = {quoted(train)}", "shuffle = no", "pack = no", "cache = no"]
    lines += [f"{name} = {value if name == 'choices' else quoted(value)}" for name, value in options.items()]
    path = os.path.join(folder, "run.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    return path


def program_rows(console, cfg, count):
    done = subprocess.run([console, "data", cfg, "--json", "--rows", str(count)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"data: exit {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def model_folder(folder, tokenizer, vocab, context, eos=None):
    """A model without weights: enough for `data`."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(tokenizer):
        if name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
            os.symlink(os.path.join(tokenizer, name), os.path.join(folder, name))
    config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 1, "max_position_embeddings": context, "hidden_act": "silu", "rope_theta": 1e4, "tie_word_embeddings": True}
    if eos is not None:
        config["eos_token_id"] = eos
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return folder


# --- comparing ---

def difference(tokenizer, want, got):
    """The first one, in words; None if there is none."""
    expected = {"ids": want[0], "labels": want[1], "positions": list(range(len(want[0])))}
    for key, values in expected.items():
        if got[key] == values:
            continue
        at = next((i for i, (a, b) in enumerate(zip(values, got[key])) if a != b), min(len(values), len(got[key])))
        near = slice(max(0, at - 6), at + 6)
        words = tokenizer.hf.convert_ids_to_tokens
        return (f"{key} differ at {at} of {len(values)} / {len(got[key])}\n  transformers {values[near]} {words(want[0][near])}\n"
                f"  program      {got[key][near]} {words(got['ids'][near])}")
    return None


def compare(name, console, tokenizer, train, options, want, context=8192):
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(os.path.join(folder, "model"), tokenizer.folder, tokenizer.size, context, tokenizer.eos)
        rows = program_rows(console, write_cfg(folder, model, train, {"sequence_length": context, **options}), len(want))
    bad = [(i, difference(tokenizer, w, g)) for i, (w, g) in enumerate(zip(want, rows))]
    bad = [(i, d) for i, d in bad if d]
    if len(rows) != len(want):
        bad.append((len(rows), f"{len(rows)} rows, {len(want)} were expected"))
    tokens = sum(len(w[0]) for w in want)
    print(f"{'equal' if not bad else 'DIFFERENT':9} {name}: {len(want)} rows, {tokens} tokens, {sum(x != IGNORED for w in want for x in w[1])} labels"
          + (f"; {len(bad)} rows differ" if bad else ""), flush=True)
    for i, d in bad[:2]:
        print(f"  row {i}: {d}")
    return not bad


EXPLICIT = {"prompt": "Question: {question}\nAnswer:", "response": " {answer}"}
PAIR = {"prompt": "First: {#1 String}\nSecond: {#2 String}\nSame meaning?", "response": " {Quality}"}


def cases(data, rows):
    """name, tokenizer, file, options, rows wanted; one a tokenizer and dataset."""
    sets = os.path.join(data, "datasets")
    chats = {"qwen2": "chatml", "qwen3": "chatml", "llama3": "llama3", "llama2": "llama2", "stories260K": "llama2"}
    for name in ("qwen2", "qwen3", "llama3", "llama2", "gpt2-openai", "stories260K"):
        folder = os.path.join(data, "models", "stories260K-hf") if name == "stories260K" else os.path.join(data, "tokenizers", name)
        kind = chats.get(name)
        t = Tokenizer(folder, LLAMA2 if kind == "llama2" else None, eos=50256 if name == "gpt2-openai" else None)
        chosen = {"chat_template": "llama2"} if kind == "llama2" else {}

        path = os.path.join(sets, "gsm8k", "train.jsonl")
        records = json_records(path)[:rows]
        want = [t.prompt(f"Question: {r['question']}\nAnswer:", f" {r['answer']}") for r in records]
        yield f"{name} gsm8k, templates", t, path, EXPLICIT, want
        want = [t.prompt(f"Question: {r['question']}\nAnswer:", f" {r['answer']}", eos=False, bos=False) for r in records]
        yield f"{name} gsm8k, bare", t, path, {**EXPLICIT, "add_eos": "no", "add_bos": "no"}, want

        for file in ("alpaca_en_demo.json", "rasbt-instruction-data.json"):
            path = os.path.join(sets, "instruct", file)
            want = [t.prompt(f"### {r['instruction']}\n{r['input']}\n### Answer\n", r["output"]) for r in json_records(path)[:rows]]
            yield f"{name} {file}, templates", t, path, {"prompt": "### {instruction}\n{input}\n### Answer\n", "response": "{output}"}, want

        path = os.path.join(sets, "glue", "SST-2", "train.tsv")
        want = [t.prompt(r["sentence"] + "It was", (" b", " g")[int(r["label"])], eos=False) for r in table(path)[:rows]]
        yield (f"{name} SST-2, choices", t, path,
               {"prompt": "{sentence}It was", "response": "{label}", "choices": '"0= b", "1= g"', "add_eos": "no"}, want)

        path = os.path.join(sets, "glue", "MRPC", "train.tsv")
        want = [t.prompt(f"First: {r['#1 String']}\nSecond: {r['#2 String']}\nSame meaning?", " " + r["Quality"]) for r in table(path)[:rows]]
        yield f"{name} MRPC, templates", t, path, PAIR, want

        if kind:
            said = lambda user, answer: unscored(t.chat(kind, [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]))
            path = os.path.join(sets, "instruct", "alpaca_en_demo.json")
            want = [said(r["instruction"] + ("\n\n" + r["input"] if r["input"] else ""), r["output"]) for r in json_records(path)[:rows]]
            yield f"{name} alpaca_en_demo, chat", t, path, chosen, want
            path = os.path.join(sets, "gsm8k", "test.jsonl")
            yield f"{name} gsm8k, chat", t, path, chosen, [said(r["question"], r["answer"]) for r in json_records(path)[:rows]]
            path = os.path.join(sets, "instruct", "v1_sft_demo.jsonl")
            want = [unscored(t.chat(kind, plain_messages(r))) for r in json_records(path)[:rows]]
            yield f"{name} v1_sft_demo, chat", t, path, chosen, want


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--console", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--rows", type=int, default=300)
    p.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    a = p.parse_args()
    done = [compare(name, a.console, *case) for name, *case in cases(a.data, a.rows) if not a.names or any(n in name for n in a.names)]
    print(f"{sum(done)} of {len(done)} cases equal")
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
