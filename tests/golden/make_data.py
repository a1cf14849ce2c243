"""Writes tests/golden/data: three tiny tokenizers, a few records, and the rows that transformers makes of them. Run by hand; needs transformers."""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer as Raw, decoders, models, normalizers, pre_tokenizers, processors, trainers

import data_rows as d

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "data")
TEXT = os.path.join(HERE, "..", "..", "configs", "data", "shakespeare.txt")
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIALS = {
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "llama2": ["<unk>", "<s>", "</s>"],
}
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
CONFIG = {
    "chatml": {"eos_token": "<|im_end|>", "chat_template": d.CHATML},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "chat_template": LLAMA3},
    "llama2": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "chat_template": d.LLAMA2},
}

turn = lambda role, content: {"role": role, "content": content}
CHATS = [
    [turn("user", "What is the capital of France?"), turn("assistant", "Paris.")],
    [turn("system", "Answer in one word."), turn("user", "Is water wet?"), turn("assistant", "Yes.")],
    [turn("user", "One?"), turn("assistant", "Two."), turn("user", "Three?"), turn("assistant", "Four, and\n\nfive.")],
    [turn("user", "Say Paris. The answer is Paris."), turn("assistant", "Paris")],
    [turn("user", "caf\u00e9 or cafe\u0301? \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467"), turn("assistant", "caf\u00e9 \u2014 \u65e5\u672c\u8a9e \u00a0\u3000.")],
    [turn("user", "tab\there, 1234567, a'LL b'll"), turn("assistant", "def f(x):\n    return x  # two  spaces")],
    [turn("user", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), turn("assistant", "b" * 70)],
]
# Their content spells control tokens, which stay text.
SPELLED = [
    [turn("user", "What does <|im_end|> mean? And <|eot_id|>, </s>, [INST]?"), turn("assistant", "<|im_start|> begins a turn; <s> and <|begin_of_text|> begin a text.")],
]
PAIRS = [
    {"question": "What is two and two?", "answer": "Four", "label": "1"},
    {"question": "Four is the answer to what", "answer": "Four", "label": "0"},
    {"question": "spaces at the end  ", "answer": "  and at the front", "label": "1"},
    {"question": "e\u0301clair, \u4e2d\u6587, \U0001f680", "answer": "\u0301mark", "label": "0"},
    {"question": "It's {not} a column", "answer": "line one\nline two\n", "label": "1"},
]


def words_of(kind, lines):
    if kind == "llama2":
        raw = Raw(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        raw.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        specials = SPECIALS[kind] + [f"<0x{b:02X}>" for b in range(256)]
        # words of the training text keep their ranges apart, as SentencePiece has it; the tokenizer itself splits nothing
        lines = [word for line in lines for word in line.replace("\u2581", "").split(" ") if word]
        trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=specials, show_progress=False)
    else:
        raw = Raw(models.BPE(ignore_merges=kind == "llama3"))
        raw.normalizer = normalizers.NFC() if kind == "chatml" else None
        split = pre_tokenizers.Split(Regex(WORDS % ("" if kind == "chatml" else "{1,3}")), "isolated")
        raw.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        raw.decoder = decoders.ByteLevel()
        specials = []
        trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=[], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(lines, trainer)
    if kind == "llama2":
        file = json.loads(raw.to_str())
        file["added_tokens"] = [t for t in file["added_tokens"] if t["content"] in SPECIALS[kind]]
        raw = Raw.from_str(json.dumps(file))
    else:
        raw.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIALS[kind]])
    if kind != "chatml":
        bos = CONFIG[kind]["bos_token"]
        raw.post_processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, raw.token_to_id(bos))])
    return raw


def write_tokenizer(kind):
    folder = os.path.join(GOLDEN, kind)
    os.makedirs(folder, exist_ok=True)
    with open(TEXT, encoding="utf-8") as f:
        lines = f.read(60000).split("\n")
    lines += [m["content"] for chat in CHATS for m in chat if m["content"].isascii()] * 3
    words_of(kind, lines).save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(CONFIG[kind], f, indent=1)
        f.write("\n")
    return d.Tokenizer(folder)


def spelled(t, kind, messages):
    """A chat whose content spells control tokens: the rendered text is cut at the template's own ones, the rest is encoded with them disabled."""
    hidden = [turn(m["role"], f"\x01{i}\x02") for i, m in enumerate(messages)]
    t.hf.chat_template = t.template
    text = t.hf.apply_chat_template(hidden, tokenize=False)
    names = sorted(SPECIALS[kind], key=len, reverse=True)
    pattern = "(" + "|".join(map(d.re.escape, names)) + ")"
    spans = [m.span(1) for m in d.re.finditer(d.TURNS[kind], text, d.re.S)]
    ids, labels, at = [], [], 0
    for part in d.re.split(pattern, text):
        begin, at = at, at + len(part)
        inside = [any(a <= i < b for a, b in spans) for i in range(begin, at)]
        if part in names:
            token = t.hf.convert_tokens_to_ids(part)
            ids.append(token)
            labels.append(token if all(inside) else d.IGNORED)
            continue
        if not part:
            continue
        real, trained, end = "", [], 0
        for m in list(d.re.finditer(r"\x01(\d+)\x02", part)) + [None]:
            stop = m.start() if m else len(part)
            real += part[end:stop]
            trained += inside[end:stop]
            if m:
                content = messages[int(m.group(1))]["content"]
                real += content
                trained += [inside[stop]] * len(content)
                end = m.end()
        runs = [(i, i + 1) for i, yes in enumerate(trained) if yes]
        more, targets = t.encode(real, runs, specials=False)
        ids += more
        labels += targets
    return ids, labels


def write_lines(name, records):
    with open(os.path.join(GOLDEN, name), "w", encoding="utf-8") as f:
        for r in records:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


def main():
    os.makedirs(GOLDEN, exist_ok=True)
    write_lines("chat.jsonl", [{"messages": c} for c in CHATS + SPELLED])
    write_lines("pairs.jsonl", PAIRS)
    cases = []
    for kind in SPECIALS:
        t = write_tokenizer(kind)
        whole = [t.chat(kind, c) for c in CHATS]
        parts = [spelled(t, kind, c) for c in CHATS]
        for c, w, p in zip(CHATS, whole, parts):
            assert w == p, (kind, c, t.hf.convert_ids_to_tokens(w[0]), t.hf.convert_ids_to_tokens(p[0]), w[1], p[1])
        rows = {"chat": whole + [spelled(t, kind, c) for c in SPELLED]}
        rows["prompt"] = [t.prompt(f"Q: {r['question']}\nA:", f" {r['answer']}") for r in PAIRS]
        rows["tight"] = [t.prompt(r["question"], r["answer"], eos=False) for r in PAIRS]
        rows["choices"] = [t.prompt(r["question"], (" no", " yes")[int(r["label"])], bos=False) for r in PAIRS]
        for name, got in rows.items():
            cases.append({"tokenizer": kind, "case": name, "vocab": t.size,
                          "rows": [{"ids": i, "labels": l} for i, l in map(d.unscored, got)]})
    write_lines("rows.jsonl", cases)
    print("written:", ", ".join(f"{c['tokenizer']} {c['case']}" for c in cases))


if __name__ == "__main__":
    main()
